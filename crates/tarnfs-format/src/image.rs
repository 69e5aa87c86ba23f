//! What the readers of images share: telling what is there, and what is damaged.

use std::io;

use tarnfs_source::Source;

use crate::entry::changes_of_coder;
use crate::name::excerpt;
use crate::{
    Damage, Entry, Error, Event, FORMATS, Format, Kind, Piece, Probe, ReceiveRandom, Shown, Time, Told, Xattrs,
};

/// Damage that is told singly: an image may have any number of names that lead nowhere.
const MOST_TOLD: u64 = 1000;

/// Ranges of data between holes that are counted.
const MOST_RANGES: usize = 1 << 16;

/// Hands to the receiver what is in an image.
pub(crate) struct Teller<'run> {
    receive: &'run mut ReceiveRandom<'run>,
    damage: u64,
    /// What extended attributes may still take; `None` if they are bounded elsewhere.
    attributes: Option<OfAttributes>,
}

impl<'run> Teller<'run> {
    pub(crate) fn new(receive: &'run mut ReceiveRandom<'run>) -> Self {
        Self { receive, damage: 0, attributes: None }
    }

    /// Leaves out extended attributes once those of all files take more than `bound`.
    pub(crate) fn with_attributes(self, bound: OfAttributes) -> Self {
        Self { attributes: Some(bound), ..self }
    }

    pub(crate) fn entry(&mut self, mut entry: Entry) -> Result<(), Error> {
        // Who asks Linux for the target of a link gets it up to its first zero, and no link can have one.
        if entry.kind == Kind::Symlink
            && let Some(end) = entry.link.iter().position(|byte| *byte == 0).filter(|end| *end > 0)
        {
            entry.link.truncate(end);
        }
        if self.attributes.as_mut().is_some_and(|bound| !bound.take(&entry.xattrs)) {
            entry.xattrs = Xattrs::new();
            let what =
                format!("'{}': its extended attributes are left out: {TOO_MANY_ATTRIBUTES}", excerpt(&entry.path));
            self.damage(entry.header, what)?;
        }
        self.event(Event::Entry(Box::new(entry)))
    }

    /// `what` is wrong, at a byte of the source.
    pub(crate) fn damage(&mut self, offset: u64, what: String) -> Result<(), Error> {
        self.damage = self.damage.saturating_add(1);
        let what = match self.damage {
            ..MOST_TOLD => what,
            MOST_TOLD => "more is damaged than is told here".to_owned(),
            _ => return Ok(()),
        };
        self.event(Event::Damage(Damage { offset, what }))
    }

    pub(crate) fn event(&mut self, event: Event) -> Result<(), Error> {
        (self.receive)(event).map_err(Error::Receiver)
    }
}

/// Bytes that are shown at once to what looks for a file system.
const HEAD: usize = 64 << 10;
/// The same where not all of these can be read.
const LEAST_HEAD: usize = 4 << 10;

/// The format that is all of `source`, of those that `may` be it.
pub(crate) fn format_of(source: &dyn Source, may: fn(&dyn Format) -> bool) -> io::Result<Option<&'static dyn Format>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(usize::MAX))];
    if let Err(error) = source.read_exact_at(&mut head, 0) {
        // Only some of it may be damaged.
        head.truncate(LEAST_HEAD);
        if !is_damage(&error) || source.read_exact_at(&mut head, 0).is_err() {
            return Err(error);
        }
    }
    let probe = Probe::new(&head, source);
    let bids = FORMATS.iter().filter(|format| may(**format)).map(|format| (format.bid(&probe), *format));
    let best = bids.filter(|(bid, _)| *bid > 0).max_by_key(|(bid, _)| *bid);
    match probe.take_error() {
        Some((_, error)) if !is_damage(&error) => Err(error),
        _ => Ok(best.map(|(_, format)| format)),
    }
}

/// What is told of a file on a disk, whatever its file system is.
pub(crate) fn told_of_any(shown: &Shown) -> Told {
    // FAT counts in twos.
    const TWO_SECONDS: u64 = 2_000_000_000;
    let told = Told::all(shown.mtime);
    Told { mtime: told.mtime.filter(|_| shown.mtime != Time::default()).map(|unit| unit.max(TWO_SECONDS)), ..told }
}

/// What is wrong where the coders of a file's pieces take more than an index keeps.
pub(crate) const CODERS: &str = "its parts are packed in too many ways";

/// The first of a file's pieces whose coder makes it more than `most` bytes that its coders take.
pub(crate) fn too_many_coders(pieces: &[Piece], most: usize) -> Option<usize> {
    changes_of_coder(pieces).find(|&(_, sum)| sum > most).map(|(at, _)| at)
}

/// The path of a folder, for people.
pub(crate) fn shown(path: &[u8]) -> String {
    if matches!(path, b"" | b".") { "the root".to_owned() } else { excerpt(path).to_string() }
}

/// The error of bytes that say what cannot be.
pub(crate) fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// True if `error` is the image's fault, and not one of who reads it.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Bytes of `source` that are no holes, but no more than are stored. Bounds that grow with the image count these: it
/// may have any length for its holes, and for what it has in many places.
pub(crate) fn data_of(source: &dyn Source) -> u64 {
    let (mut at, mut sum) = (0, 0_u64);
    for _ in 0..MOST_RANGES {
        let Some(start) = source.next_data(at) else { return sum.min(source.most_data()) };
        at = source.next_hole(start).max(start.saturating_add(1));
        sum = sum.saturating_add(at.saturating_sub(start));
    }
    // Of what is in that many ranges, a bound had better be too large than too small.
    sum.saturating_add(source.len().saturating_sub(at)).min(source.most_data())
}

/// What may still be read and told. Any number of names may lead to one entry, and any number of entries to one list.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Parts of all files.
    pub(crate) parts: u64,
    /// Bytes of entries, and of what is read of files.
    pub(crate) bytes: u64,
}

/// Parts of all files, and one more for so many bytes of the image.
const MOST_PARTS: u64 = 16 << 20;
const BYTES_FOR_EACH_PART: u64 = 16;

/// Bytes that are read, and so many more for each byte of the image.
const MOST_BYTES: u64 = 256 << 20;
const FOR_EACH_BYTE: u64 = 4;

/// Bytes that a further name of a file takes beside the names.
const OF_LINK: u64 = 64;

/// What an image may take, but for what it may take for each of its bytes. One that has little may take less:
/// an archive may have any number of such images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    /// What one may take, or several have together.
    pub(crate) most: u64,
    /// What the smallest one may take, and so much more each of its bytes, up to that.
    pub(crate) least: u64,
    pub(crate) of_small: u64,
}

impl Quota {
    /// That of an image with `data` bytes that are no holes ([`data_of`]), which is one of `shares` images.
    pub(crate) fn of(self, data: u64, shares: u64) -> u64 {
        let small = self.least.saturating_add(data.saturating_mul(self.of_small));
        self.most.checked_div(shares).unwrap_or(self.most).min(small)
    }
}

/// Parts of all files. A hard link takes some 20 bytes where it is listed, and costs 600.
pub(crate) const PARTS: Quota = Quota { most: MOST_PARTS, least: 64 << 10, of_small: 4 };
/// Bytes that are read.
pub(crate) const BYTES: Quota = Quota { most: MOST_BYTES, least: 1 << 20, of_small: 32 };

/// What the extended attributes of all files may take. Any number of files may have the same ones, or such as share
/// their bytes, and an index keeps those of each file: an image of a few kilobytes could make one of gigabytes.
#[derive(Debug, Default)]
pub(crate) struct OfAttributes {
    left: u64,
    small: u64,
}

/// Bytes of them beside those that there are for each byte of the image, and such as are not counted in these: the
/// first [`OF_EACH`] of each file, so that labels and access lists, of which thousands of files have the same, are kept
/// where there is little else.
const ATTRIBUTES: Quota = Quota { most: 16 << 20, least: 256 << 10, of_small: 32 };
const SMALL_ATTRIBUTES: Quota = Quota { most: 256 << 20, least: 64 << 10, of_small: 1024 };
const OF_EACH: u64 = 256;

/// What is wrong where there are more.
pub(crate) const TOO_MANY_ATTRIBUTES: &str = "those of all files take far more than the image";

impl OfAttributes {
    /// Of an image with `data` bytes that are no holes ([`data_of`]), which is one of `shares` images.
    pub(crate) fn new(data: u64, shares: u64) -> Self {
        let left = ATTRIBUTES.of(data, shares).saturating_add(data.saturating_mul(FOR_EACH_BYTE));
        Self { left, small: SMALL_ATTRIBUTES.of(data, shares) }
    }

    /// Takes those of a file. False if there is no room for them.
    pub(crate) fn take(&mut self, list: &Xattrs) -> bool {
        let bytes = list.iter().map(|(name, value)| name.len().saturating_add(value.len()) as u64);
        let bytes = bytes.fold(0, u64::saturating_add);
        let small = bytes.min(OF_EACH).min(self.small);
        let Some(left) = self.left.checked_sub(bytes.saturating_sub(small)) else { return false };
        (self.left, self.small) = (left, self.small.saturating_sub(small));
        true
    }
}

impl Budget {
    /// Of an image that packs nothing, with `data` bytes that are no holes ([`data_of`]), which is one of so many that
    /// share what does not depend on these.
    pub(crate) fn of_image(data: u64, shares: u64) -> Self {
        Self {
            parts: PARTS.of(data, shares).saturating_add(data / BYTES_FOR_EACH_PART),
            bytes: BYTES.of(data, shares).saturating_add(data.saturating_mul(FOR_EACH_BYTE)),
        }
    }

    /// The same of one in which each part of a file takes a cluster, so that few bytes have no more than a few parts:
    /// one of 9 KB had a million, by chains and lists that come again, and an index has six bytes for each.
    pub(crate) fn in_clusters(data: u64, shares: u64) -> Self {
        let few = Quota { of_small: 0, ..PARTS }.of(data, shares);
        Self { parts: few.saturating_add(data / BYTES_FOR_EACH_PART), ..Self::of_image(data, shares) }
    }

    /// Of an image of `length` bytes, one of so many that share what does not depend on their length
    /// ([`Options::shares`](crate::Options::shares)).
    pub(crate) fn new(length: u64, shares: u64) -> Self {
        let of_one = |most: u64| most.checked_div(shares).unwrap_or(most);
        Self {
            parts: of_one(MOST_PARTS).saturating_add(length / BYTES_FOR_EACH_PART),
            bytes: of_one(MOST_BYTES).saturating_add(length.saturating_mul(FOR_EACH_BYTE)),
        }
    }

    pub(crate) fn take_parts(&mut self, count: u64) -> io::Result<()> {
        let left = self.parts.checked_sub(count);
        self.parts = left.ok_or_else(|| damaged("the files of the image lie in too many parts"))?;
        Ok(())
    }

    /// For a further name of a file, which is told with the first one.
    pub(crate) fn take_link(&mut self, path: &[u8], link: &[u8]) -> io::Result<()> {
        self.take_bytes(OF_LINK.saturating_add(path.len().saturating_add(link.len()) as u64))
    }

    pub(crate) fn take_bytes(&mut self, count: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(count);
        self.bytes = left.ok_or_else(|| damaged("the entries of the image are read too often"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_on_one_disk_share_what_one_may_take() {
        let alone = Budget::new(1 << 20, 1);
        for shares in [2, 128, 8192] {
            let one = Budget::new((1 << 20) / shares, shares);
            let (parts, bytes) = (one.parts.saturating_mul(shares), one.bytes.saturating_mul(shares));
            assert!(parts <= alone.parts && bytes <= alone.bytes, "{shares}: {one:?}");
        }
        assert_eq!(Budget::new(0, 0).parts, MOST_PARTS);
    }

    /// An archive may have thousands of images of some kilobytes, each of which leads to the same bytes again and
    /// again.
    #[test]
    fn a_small_image_may_take_little() {
        let small = Budget::of_image(20 << 10, 1);
        assert!(small.bytes < 2 << 20 && small.parts < 256 << 10, "{small:?}");
        let (large, as_before) = (Budget::of_image(64 << 20, 1), Budget::new(64 << 20, 1));
        assert_eq!((large.bytes, large.parts), (as_before.bytes, as_before.parts));
        let (shared, as_before) = (Budget::of_image(64 << 20, 512), Budget::new(64 << 20, 512));
        assert_eq!((shared.bytes, shared.parts), (as_before.bytes, as_before.parts));
        // Of clusters there are fewer for each byte.
        let in_clusters = |data: u64| Budget::in_clusters(data, 1).parts;
        assert_eq!((in_clusters(0), in_clusters(4 << 20)), (64 << 10, (64 << 10) + (256 << 10)));
        assert_eq!(Budget::in_clusters(4 << 20, 1).bytes, Budget::of_image(4 << 20, 1).bytes);
    }

    /// Neither holes nor what is stored once count, however long the disk is for them.
    #[test]
    fn holes_are_no_data() {
        use std::os::unix::fs::FileExt as _;
        use std::sync::Arc;
        use tarnfs_source::{Extent, FileSource, MemorySource, SharedSource, Slice, Stencil};
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&[7; 8192], 1 << 20).unwrap();
        file.as_file().set_len(1 << 34).unwrap();
        let whole: SharedSource = Arc::new(FileSource::open(file.path()).unwrap());
        // A file system without holes has data everywhere.
        if whole.next_hole(0) == 0 {
            let blocks = data_of(&*whole);
            assert!((8192..1 << 20).contains(&blocks), "{blocks}");
            assert_eq!(data_of(&Slice::new(whole, 4096, 1 << 33)), blocks);
        }
        let packed: SharedSource = Arc::new(MemorySource::new(vec![1; 70_000], "packed"));
        let map = (0..70_000).map(|number| Extent { offset: number << 20, length: 1, skip: 0 });
        let sparse: SharedSource = Arc::new(Stencil::new(packed, map, 1 << 40).unwrap());
        // More ranges than are counted.
        assert_eq!(data_of(&*sparse), 70_000);
        assert_eq!(data_of(&Slice::new(sparse, 0, 100 << 20)), 100);
    }

    /// An index keeps the attributes of each file, whoever shares their bytes in the image.
    #[test]
    fn attributes_take_no_more_than_the_image_pays_for() {
        let told = |data: u64, shares: u64, files: usize, length: usize| {
            let (mut bytes, mut damage) = (0, 0);
            let mut receive = |event| {
                match event {
                    Event::Entry(entry) => bytes += entry.xattrs.iter().map(|(_, value)| value.len()).sum::<usize>(),
                    Event::Damage(found) => damage += usize::from(found.what.contains(TOO_MANY_ATTRIBUTES)),
                    _ => {}
                }
                Ok(())
            };
            let mut teller = Teller::new(&mut receive).with_attributes(OfAttributes::new(data, shares));
            for _ in 0..files {
                let xattrs = vec![(b"user.a".to_vec(), vec![0; length])];
                teller.entry(Entry { path: b"a".to_vec(), xattrs, ..Entry::default() }).unwrap();
            }
            (bytes, damage)
        };
        let (bytes, damage) = told(10 << 10, 1, 100, 60_000);
        assert!((300_000..700_000).contains(&bytes) && bytes == (100 - damage) * 60_000, "{bytes} {damage}");
        // As many as the image has are never too many, nor are the labels of many files that have nothing else.
        assert_eq!(told(6_000_000, 1 << 20, 100, 60_000), (6_000_000, 0));
        assert_eq!(told(10 << 10, 1, 20_000, 200), (4_000_000, 0));
    }

    /// Linux ends it there, and who asks it to make such a link is refused.
    #[test]
    fn the_target_of_a_link_ends_at_a_zero() {
        let mut links = Vec::new();
        let mut receive = |event| {
            if let Event::Entry(entry) = event {
                links.push(entry.link);
            }
            Ok(())
        };
        let mut teller = Teller::new(&mut receive);
        for (kind, link) in
            [(Kind::Symlink, &b"a/b\0c\0"[..]), (Kind::Symlink, b"a/b cde"), (Kind::HardLink, b"a/b\0c\0")]
        {
            teller.entry(Entry { kind, link: link.to_vec(), ..Entry::default() }).unwrap();
        }
        assert_eq!(links, [&b"a/b"[..], b"a/b cde", b"a/b\0c\0"]);
    }

    #[test]
    fn where_coders_become_too_many_is_known() {
        use crate::Coder;
        use std::sync::Arc;
        let coders =
            ["a", "b"].map(|header| Arc::new(Coder { steps: Vec::new(), is_behind_header: Some(header.to_owned()) }));
        let pieces: Vec<_> =
            (0..10).map(|at| Piece { coder: Some(Arc::clone(&coders[at / 2 % 2])), ..Piece::default() }).collect();
        let found = [0, 1, 2, 4, 5].map(|count| too_many_coders(&pieces, count * coders[0].weight()));
        assert_eq!(found, [Some(0), Some(2), Some(4), Some(8), None]);
    }
}
