use std::sync::Arc;

use tarnfs_source::Extent;

/// One member of an archive, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The path as stored, bytes and all: [`crate::name`] makes components of it.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Owner's name as stored; empty if none.
    pub user: Vec<u8>,
    /// Group's name as stored; empty if none.
    pub group: Vec<u8>,
    /// Last change of the content.
    pub mtime: Time,
    /// Last access, where stored.
    pub atime: Option<Time>,
    /// Last change of the inode, where stored.
    pub ctime: Option<Time>,
    /// Byte of the stream at which its first header begins (of the extended headers before it, if it has some).
    pub header: u64,
    /// True if a header that holds for all entries behind it says something of this one: its own headers do not tell
    /// all.
    pub inherits: bool,
    /// True if there is an ACL that its permission bits may come from. Whether they do depends on whom this machine
    /// knows.
    pub has_acl_text: bool,
    /// Where its content is.
    pub body: Body,
    /// Target of a symbolic or hard link, as stored.
    pub link: Vec<u8>,
    /// Extended attributes by name, ACLs among them in the kernel's binary form (`system.posix_acl_access`).
    pub xattrs: Xattrs,
}

impl Entry {
    /// Bytes of memory that it takes, roughly.
    pub fn weight(&self) -> usize {
        let Self { path, user, group, link, xattrs, body, .. } = self;
        let strings = [path, user, group, link].into_iter().fold(0, |sum: usize, text| sum.saturating_add(text.len()));
        let pairs = xattrs.iter().fold(strings, |sum, (name, value)| {
            let texts = name.len().saturating_add(value.len());
            sum.saturating_add(texts).saturating_add(size_of::<(Vec<u8>, Vec<u8>)>())
        });
        let extents = body.extents.as_ref().map_or(0, |extents| extents.len().saturating_mul(size_of::<Extent>()));
        let pieces = body.pieces.as_deref().map_or(0, |pieces| {
            weight_of_coders(pieces).saturating_add(pieces.len().saturating_mul(size_of::<Piece>()))
        });
        size_of::<Self>().saturating_add(extents).saturating_add(pieces).saturating_add(pairs)
    }
}

/// Attributes of a file as they are shown. Some stand for what its entry does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content.
    pub mtime: Time,
}

/// Which attributes of a file its entry has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Last change of the content: the smallest difference, in ns, that the entry tells. `None` if it tells none.
    pub mtime: Option<u64>,
}

impl Told {
    /// Nothing.
    pub const NOTHING: Self = Self { mode: false, owner: false, mtime: None };

    /// All of them, of an entry that has this time. Parts of a second that are not stored are zeros.
    pub fn all(mtime: Time) -> Self {
        let unit = match mtime.nanoseconds {
            0 => 1_000_000_000,
            parts if parts.is_multiple_of(1000) => 1000,
            parts if parts.is_multiple_of(100) => 100,
            _ => 1,
        };
        Self { mode: true, owner: true, mtime: Some(unit) }
    }
}

/// Extended attributes: name and value of each.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A folder.
    Folder,
    /// A symbolic link to [`Entry::link`].
    Symlink,
    /// Another name of the file at the path [`Entry::link`].
    HardLink,
    /// A character device.
    CharacterDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// Where the content of an entry lies in the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Body {
    /// Byte of the stream at which it begins.
    pub offset: u64,
    /// Bytes that it takes in the stream, also those of a folder that has something behind its header, which is not
    /// shown.
    pub stored: u64,
    /// Length of the file in bytes: `stored`, unless the file is sparse; 0 of what is no file.
    pub size: u64,
    /// The extents of a sparse file, whose data lie one behind the other from `offset`, or of one that lies in parts
    /// on several volumes; `None` for a file without a map. An empty map is a file that is one hole.
    pub extents: Option<Vec<Extent>>,
    /// The pieces of a file (or of the target of a symbolic link) that is not simply stored in one run: then `offset`
    /// and `stored` say nothing of it.
    pub pieces: Option<Vec<Piece>>,
}

impl Body {
    /// Of one that goes on behind the end of its archive, byte `end` of the stream: what lies there belongs to another
    /// file, and must not be read for this one.
    pub fn end_at(&mut self, end: u64) {
        let there = end.saturating_sub(self.offset);
        if self.stored <= there {
            return;
        }
        self.stored = there;
        if self.size == 0 {
            // What lies behind the header of a folder is not read.
            return;
        }
        let (mut from, mut is_cut) = (0_u64, false);
        let mut extents = Vec::new();
        let size = self.size;
        for mut extent in self.extents.take().unwrap_or_else(|| vec![Extent { offset: 0, length: size, skip: 0 }]) {
            from = from.saturating_add(extent.skip);
            let fits = there.saturating_sub(from).min(extent.length);
            from = from.saturating_add(extent.length);
            if !is_cut && fits < extent.length {
                is_cut = true;
                extents.extend((fits > 0).then_some(Extent { length: fits, ..extent }));
                let left = extent.length.saturating_sub(fits);
                extent = Extent::lost(extent.offset.saturating_add(fits), left);
            }
            extents.push(extent);
        }
        self.extents = Some(extents);
    }
}

/// A run of a file's content, and how it comes from the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// Bytes of hole before it in the file.
    pub hole: u64,
    /// Bytes of the file that it gives.
    pub length: u64,
    /// Byte of the stream at which it is stored.
    pub offset: u64,
    /// Bytes that it takes there.
    pub stored: u64,
    /// What makes the file's bytes of the stored ones; `None` if they are the same.
    pub coder: Option<Arc<Coder>>,
    /// Bytes that the coder gives in all; `length` where there is none. The most that it may give where it decodes
    /// blocks, of which the archive does not say how long they are.
    pub decoded: u64,
    /// Of these, bytes before this piece: several files may share a block.
    pub skip: u64,
    /// CRC-32 of this piece's bytes.
    pub crc: Option<u32>,
}

/// Bytes of the longest file that there can be: systems and indexes count them in 63 bits.
pub(crate) const LONGEST_FILE: u64 = i64::MAX as u64;

impl Piece {
    /// What stands for `size` bytes that lie where they cannot, or for as many of them as a file may have. `offset` is
    /// a byte of the stream.
    pub(crate) fn unreadable(offset: u64, size: u64) -> Self {
        Self::unknown(offset, size, "places or sizes that cannot be".to_owned())
    }

    /// The same of bytes that may well be whole: `what` cannot be read here.
    pub(crate) fn unknown(offset: u64, size: u64, what: String) -> Self {
        let size = size.min(LONGEST_FILE);
        let step = Step { codec: what, ..Step::default() };
        let coder = Some(Arc::new(Coder { steps: vec![step], is_behind_header: None }));
        Self { length: size, offset, decoded: size, coder, ..Self::default() }
    }
}

/// How stored bytes become a file's: steps that are undone one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Coder {
    /// In the order in which they are undone: first the one that the archive's bytes go into.
    pub steps: Vec<Step>,
    /// The stored bytes stand behind a header of the format named here; [`Piece::offset`] is that of the header
    /// ([`crate::ReadRandom::find_content`]).
    pub is_behind_header: Option<String>,
}

/// Bytes of memory that the coders of one file's pieces may take: an index keeps no more. A packed block of a file
/// system in packed blocks of a disk image has a coder of its own, of some 800 bytes.
pub const MOST_OF_CODERS: usize = 16 << 20;

impl Coder {
    /// Bytes of memory, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let of_step = |step: &Step| {
            let inputs = step.inputs.len().saturating_mul(size_of::<Input>());
            [size_of::<Step>(), step.codec.len(), step.properties.len(), inputs]
                .into_iter()
                .fold(0, usize::saturating_add)
        };
        self.steps.iter().map(of_step).fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// The pieces whose coder is another one than that of the last piece with one, and the bytes that all up to there take.
pub(crate) fn changes_of_coder(pieces: &[Piece]) -> impl Iterator<Item = (usize, usize)> {
    let (mut last, mut sum) = (None::<&Arc<Coder>>, 0_usize);
    pieces.iter().enumerate().filter_map(move |(at, piece)| {
        let coder = piece.coder.as_ref()?;
        if last.is_some_and(|last| Arc::ptr_eq(last, coder) || last == coder) {
            return None;
        }
        last = Some(coder);
        sum = sum.saturating_add(coder.weight());
        Some((at, sum))
    })
}

/// Bytes that the coders of `pieces` take.
fn weight_of_coders(pieces: &[Piece]) -> usize {
    changes_of_coder(pieces).last().map_or(0, |(_, sum)| sum)
}

/// One step of a [`Coder`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// Name of a codec.
    pub codec: String,
    /// What the codec has to know beside the bytes, in its own form.
    pub properties: Vec<u8>,
    /// Bytes that come of it, where the archive says so and it does not follow from the steps around it.
    pub decoded_length: Option<u64>,
    /// What goes into it, in the order in which the codec takes it. Empty: what comes of the step before, or the
    /// archive's bytes if there is none.
    pub inputs: Vec<Input>,
}

/// What goes into a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// Some of the archive's bytes.
    Stored {
        /// Where they begin, from the start of the piece's.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// What comes of the step with this number, from 0: one before this one.
    Step(usize),
}

/// A time in seconds and nanoseconds since 1970; the nanoseconds count forward also before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub nanoseconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64, skip: u64) -> Extent {
        Extent { offset, length, skip }
    }

    /// The extents of a file whose content, of 40 bytes with what is passed over, is cut behind `there` bytes.
    fn cut(extents: Option<Vec<Extent>>, size: u64, there: u64) -> (u64, Option<Vec<Extent>>) {
        let mut body = Body { offset: 1000, stored: 40, size, extents, pieces: None };
        body.end_at(1000 + there);
        (body.stored, body.extents)
    }

    #[test]
    fn a_file_ends_where_its_archive_does() {
        assert_eq!(cut(None, 40, 40), (40, None));
        assert_eq!(cut(None, 40, 30), (30, Some(vec![extent(0, 30, 0), Extent::lost(30, 10)])));
        // Nothing of it is there.
        assert_eq!(cut(None, 40, 0), (0, Some(vec![Extent::lost(0, 40)])));
        // A folder with something behind its header.
        assert_eq!(cut(None, 0, 30), (30, None));
    }

    #[test]
    fn what_is_passed_over_counts_where_a_file_is_cut() {
        // Its data lie at 0..5, 13..23 and 23..40 of what is stored.
        let map = vec![extent(0, 5, 0), extent(10, 10, 8), extent(30, 17, 0)];
        let with = |there| cut(Some(map.clone()), 50, there).1.unwrap();
        assert_eq!(with(40), map);
        assert_eq!(with(39), [map[0], map[1], extent(30, 16, 0), Extent::lost(46, 1)]);
        assert_eq!(with(23), [map[0], map[1], Extent::lost(30, 17)]);
        assert_eq!(with(20), [map[0], extent(10, 7, 8), Extent::lost(17, 3), map[2]]);
        for there in [5, 12, 13] {
            assert_eq!(with(there), [map[0], Extent::lost(10, 10), map[2]], "{there}");
        }
        assert_eq!(with(0), [Extent::lost(0, 5), map[1], map[2]]);
    }
}
