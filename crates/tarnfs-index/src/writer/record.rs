//! Entries in the compact form in which they wait to be sorted.
//!
//! A record is one run of bytes: its length, its place in the tree (what it is sorted by), its name, and what the index
//! says of it. No record points at another one, so records can be copied, spilled and merged as they are. What is large
//! in one lies beside them ([`Builder::large`]), so that a merge has none of it in memory.

use std::io;

use std::cmp::Ordering;

use tarnfs_format::{Device, Entry, Kind, Time};

use super::spool::{Overflow, Spool};

/// What a record stands for. The order counts: of records at one place and of one rank, markers come first, then
/// requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Tag {
    /// There is a folder of this name, named by an entry or not.
    #[default]
    Marker,
    /// A hard link wants to know what is here.
    Request,
    /// An entry.
    Entry,
}

/// Bits of the column `more` of a class.
pub(crate) mod more {
    pub(crate) const LINK: u16 = 1;
    pub(crate) const DEVICE: u16 = 2;
    pub(crate) const TIMES: u16 = 4;
    pub(crate) const EXTENTS: u16 = 8;
    pub(crate) const XATTRS: u16 = 16;
    pub(crate) const LINK_COUNT: u16 = 32;
    /// Not of a table: the time of the last change is in nanoseconds. No record has it, since a record has the whole
    /// time.
    pub(crate) const NANOSECONDS: u16 = 64;
    /// Not of a table, and not in records: the entry's own headers do not tell all of it.
    pub(crate) const INHERITS: u16 = 128;
    /// Not in records: what the table of extents has are pieces.
    pub(crate) const PIECES: u16 = 256;
    /// All that there are.
    pub(crate) const ALL: u16 = 511;
}

/// Nanoseconds since 1970, of a time that is not whole seconds and can be stored so.
pub(super) fn in_nanoseconds(time: Time) -> Option<i64> {
    let part = Some(i64::from(time.nanoseconds)).filter(|&part| part != 0)?;
    if let Some(nanoseconds) = time.seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(part)) {
        return Some(nanoseconds);
    }
    // Before 1970 the seconds may not fit where the time does.
    let nanoseconds = i128::from(time.seconds).checked_mul(1_000_000_000)?.checked_add(i128::from(part))?;
    i64::try_from(nanoseconds).ok()
}

/// Nanoseconds of a time that [`in_nanoseconds`] cannot store; they go to the table `times`.
pub(super) fn separate_nanoseconds(time: Time) -> Option<u32> {
    (time.nanoseconds != 0 && in_nanoseconds(time).is_none()).then_some(time.nanoseconds)
}

/// Times of the last access and the last change of the inode, where they are not that of the last change of the
/// content, which stands for them.
fn other_times(entry: &Entry) -> [Option<Time>; 2] {
    [entry.atime, entry.ctime].map(|time| time.filter(|time| *time != entry.mtime))
}

/// True of what is stored in pieces: a file, or a symbolic link whose target is its content, which nobody has read yet.
pub(super) fn has_pieces(entry: &Entry) -> bool {
    let has_content = entry.kind == Kind::File || entry.kind == Kind::Symlink && entry.link.is_empty();
    has_content && entry.body.pieces.is_some()
}

/// Bits of `more` that the entry's class gets, but for [`more::LINK_COUNT`], which is only known at the end.
pub(super) fn bits_of(entry: &Entry) -> u16 {
    let mut bits = 0;
    let mut set = |condition: bool, bit: u16| {
        if condition {
            bits |= bit;
        }
    };
    let has_pieces = has_pieces(entry);
    set(entry.kind == Kind::Symlink && !has_pieces, more::LINK);
    set(matches!(entry.kind, Kind::CharacterDevice(_) | Kind::BlockDevice(_)), more::DEVICE);
    let has_times = other_times(entry).iter().any(Option::is_some);
    set(has_times || separate_nanoseconds(entry.mtime).is_some(), more::TIMES);
    set(has_pieces || entry.kind == Kind::File && entry.body.extents.is_some(), more::EXTENTS);
    set(has_pieces, more::PIECES);
    set(!entry.xattrs.is_empty(), more::XATTRS);
    set(in_nanoseconds(entry.mtime).is_some(), more::NANOSECONDS);
    set(entry.inherits, more::INHERITS);
    bits
}

/// Bit of the tag's byte: the number of an origin follows the rank.
const HAS_ORIGIN: u8 = 128;

/// Bit of the tag's byte: then, where the streams begin that the entry lies in.
const HAS_AROUND: u8 = 64;

/// Bytes before the name: length of the whole (4), folder (4), length of the name (1), tag (1).
const HEAD: usize = 10;

/// Bytes of the record at the start of `bytes`.
pub(super) fn length_of(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize)
}

/// The folder of that record.
pub(super) fn folder_of(bytes: &[u8]) -> u32 {
    bytes.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |folder| u32::from_le_bytes(*folder))
}

/// A record, read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record<'a> {
    /// The whole.
    pub(super) bytes: &'a [u8],
    /// Number of the folder it is in.
    pub(super) folder: u32,
    pub(super) tag: Tag,
    pub(super) name: &'a [u8],
    /// Where the entry begins in its own stream.
    pub(super) rank: u64,
    /// Of what an entry in a nested stream says: where that stream and those around it begin, each in the one around
    /// it, the outermost first.
    around: &'a [u8],
    /// The archive in the archive that it was found in ([`super::origins`]).
    pub(super) origin: u32,
    /// What follows.
    rest: &'a [u8],
}

/// What an entry's record holds beside its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a> {
    pub(super) class: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) more: u16,
    pub(super) is_folder: bool,
    /// Number of the hard link, if it is one.
    pub(super) hard_link: Option<u32>,
    is_apart: bool,
    rest: &'a [u8],
}

/// In place of what goes into the side tables stands where it begins in [`Builder::large`], and how many bytes it is.
const IS_APART: u8 = 32;
const IS_FOLDER: u8 = 64;
const IS_HARD_LINK: u8 = 128;

impl<'a> Record<'a> {
    /// The record at the start of `bytes`. What this writer has made is whole; of anything else it makes an empty
    /// record.
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        let whole = bytes.get(..length_of(bytes)).unwrap_or_default();
        let Some((head, rest)) = whole.split_first_chunk::<HEAD>() else { return Self::default() };
        let [_, _, _, _, one, two, three, four, name, tag] = *head;
        let folder = u32::from_le_bytes([one, two, three, four]);
        let (name, mut rest) = rest.split_at_checked(name.into()).unwrap_or_default();
        let has_origin = tag & HAS_ORIGIN != 0;
        let has_around = tag & HAS_AROUND != 0;
        let tag = match tag & !(HAS_ORIGIN | HAS_AROUND) {
            0 => Tag::Marker,
            1 => Tag::Request,
            _ => Tag::Entry,
        };
        let rank = read_number(&mut rest);
        let origin = if has_origin { read_number(&mut rest) as u32 } else { 0 };
        let around = if has_around { read_bytes(&mut rest) } else { &[] };
        Self { bytes: whole, folder, tag, name, rank, around, origin, rest }
    }

    /// Of an entry, whether it is one of a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.rest.first().is_some_and(|flags| flags & IS_FOLDER != 0)
    }

    /// Which of two records of one name comes first: the one that the archive has first, also if one lies in a file
    /// that is compressed.
    pub(super) fn compare(&self, other: &Record<'_>) -> Ordering {
        let places = if self.around.is_empty() && other.around.is_empty() {
            self.rank.cmp(&other.rank)
        } else {
            self.places().cmp(other.places())
        };
        places.then(self.tag.cmp(&other.tag))
    }

    /// Where it begins: in the archive's own stream what it lies in, in that one the next, at last itself.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        let mut around = self.around;
        std::iter::from_fn(move || (!around.is_empty()).then(|| read_number(&mut around))).chain([self.rank])
    }

    /// Number of the folder that a marker stands for, or of the hard link that a request comes from.
    pub(super) fn number(&self) -> u32 {
        read_number(&mut { self.rest }) as u32
    }

    /// Attributes of an entry.
    pub(super) fn attributes(&self) -> Attributes<'a> {
        let mut rest = self.rest;
        let flags = rest.split_off_first().copied().unwrap_or_default();
        let class = read_number(&mut rest) as u32;
        let size = read_number(&mut rest);
        let mtime = read_time(&mut rest);
        let hard_link = (flags & IS_HARD_LINK != 0).then(|| read_number(&mut rest) as u32);
        Attributes {
            class,
            size,
            mtime,
            more: u16::from(flags & !(IS_APART | IS_FOLDER | IS_HARD_LINK)),
            is_apart: flags & IS_APART != 0,
            is_folder: flags & IS_FOLDER != 0,
            hard_link,
            rest,
        }
    }
}

/// What goes into the side tables.
#[derive(Debug, Default)]
pub(super) struct Side<'a> {
    pub(super) link: &'a [u8],
    pub(super) device: Device,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    pub(super) extents: &'a [u8],
    /// Number of the name, value.
    pub(super) xattrs: Vec<(u32, &'a [u8])>,
}

impl<'a> Attributes<'a> {
    /// Bytes of content; 0 for what has none (a symbolic link's size is the length of its target).
    pub(super) fn size_of_file(&self) -> u64 {
        if self.more & more::LINK == 0 { self.size } else { 0 }
    }

    /// True of a symbolic link whose target is in its record.
    pub(super) fn has_target(&self) -> bool {
        self.more & (more::LINK | more::EXTENTS) == more::LINK
    }

    /// What goes into the side tables, as `more` says. `large` is where it lies if it is large; `bytes` gets it then.
    pub(super) fn side(&self, large: &Spool, bytes: &'a mut Vec<u8>) -> io::Result<Side<'a>> {
        let mut rest = self.rest;
        if self.is_apart {
            let at = read_number(&mut rest);
            bytes.resize(read_number(&mut rest) as usize, 0);
            large.read_exact_at(bytes, at)?;
            rest = bytes;
        }
        let mut side = Side::default();
        if self.has_target() {
            side.link = read_bytes(&mut rest);
        }
        if self.more & more::DEVICE != 0 {
            side.device = Device { major: read_number(&mut rest) as u32, minor: read_number(&mut rest) as u32 };
        }
        if self.more & more::TIMES != 0 {
            let which = rest.split_off_first().copied().unwrap_or_default();
            side.atime = (which & 1 != 0).then(|| read_time(&mut rest));
            side.ctime = (which & 2 != 0).then(|| read_time(&mut rest));
        }
        if self.more & more::EXTENTS != 0 {
            side.extents = read_bytes(&mut rest);
        }
        if self.more & more::XATTRS != 0 {
            while !rest.is_empty() {
                side.xattrs.push((read_number(&mut rest) as u32, read_bytes(&mut rest)));
            }
        }
        Ok(side)
    }
}

/// What an entry's record says in numbers of what many entries share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shared<'a> {
    /// Of the name of each of the entry's attributes.
    pub(super) xattrs: &'a [u32],
    /// The list of its pieces, as it is written.
    pub(super) pieces: &'a [u8],
}

/// What is known of an entry beside what it says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) class: u32,
    /// See [`bits_of`].
    pub(super) bits: u16,
    /// Number of the hard link, if it is one.
    pub(super) link: Option<u32>,
}

/// Makes records, one at a time, in a buffer that it uses again.
#[derive(Debug)]
pub(super) struct Builder {
    bytes: Vec<u8>,
    /// Where what comes is found.
    pub(super) origin: u32,
    /// What goes into the side tables, of entries that have more of it than [`MOST_INSIDE`].
    pub(super) large: Spool,
    /// Where the streams begin that what comes lies in, as numbers.
    pub(super) around: Vec<u8>,
}

/// Bytes for the side tables that stay in a record. Nearly all have less: it is about as much as the longest target of
/// a symbolic link on Linux, and more than what is usual of extended attributes.
const MOST_INSIDE: usize = 4096;
/// Bytes of what is large that stay in memory.
const LARGE_ROOM: usize = 1 << 20;

impl Builder {
    /// What is too much for its memory goes to `overflow`.
    pub(super) fn new(overflow: &Overflow) -> Self {
        Self { bytes: Vec::new(), origin: 0, around: Vec::new(), large: Spool::new(LARGE_ROOM, overflow) }
    }

    fn begin(&mut self, folder: u32, name: &[u8], tag: Tag, rank: u64) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&folder.to_le_bytes());
        self.bytes.push(name.len() as u8);
        let has_around = if self.around.is_empty() { 0 } else { HAS_AROUND };
        self.bytes.push(tag as u8 | has_around | if self.origin == 0 { 0 } else { HAS_ORIGIN });
        self.bytes.extend_from_slice(name);
        write_number(&mut self.bytes, rank);
        if self.origin != 0 {
            write_number(&mut self.bytes, u64::from(self.origin));
        }
        if has_around != 0 {
            write_bytes(&mut self.bytes, &self.around);
        }
    }

    fn end(&mut self) -> &[u8] {
        let length = self.bytes.len() as u32;
        if let Some(head) = self.bytes.first_chunk_mut() {
            *head = length.to_le_bytes();
        }
        &self.bytes
    }

    /// A marker of folder `number`, or a request of hard link `number`.
    pub(super) fn number(&mut self, folder: u32, name: &[u8], tag: Tag, rank: u64, number: u32) -> &[u8] {
        self.begin(folder, name, tag, rank);
        write_number(&mut self.bytes, u64::from(number));
        self.end()
    }

    /// An entry.
    pub(super) fn entry(
        &mut self,
        folder: u32,
        name: &[u8],
        entry: &Entry,
        Numbers { class, bits, link: hard_link }: Numbers,
        Shared { xattrs, pieces }: Shared<'_>,
    ) -> io::Result<&[u8]> {
        self.begin(folder, name, Tag::Entry, entry.header);
        let bytes = &mut self.bytes;
        let mut flags = (bits & !(more::NANOSECONDS | more::INHERITS | more::PIECES)) as u8;
        if entry.kind == Kind::Folder {
            flags |= IS_FOLDER;
        }
        if hard_link.is_some() {
            flags |= IS_HARD_LINK;
        }
        let is_symlink = entry.kind == Kind::Symlink;
        let device = match entry.kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => Some(device),
            _ => None,
        };
        let has_pieces = has_pieces(entry);
        let extents = entry.body.extents.as_ref().filter(|_| entry.kind == Kind::File && !has_pieces);
        if is_symlink {
            // Also of one in pieces, which has no row in that table: its bytes are none of the files'.
            flags |= more::LINK as u8;
        }
        let flags_at = bytes.len();
        bytes.push(flags);
        write_number(bytes, u64::from(class));
        let size = match entry.kind {
            Kind::File => entry.body.size,
            Kind::Symlink if has_pieces => entry.body.size,
            Kind::Symlink => entry.link.len() as u64,
            _ => 0,
        };
        write_number(bytes, size);
        write_time(bytes, entry.mtime);
        if let Some(number) = hard_link {
            write_number(bytes, u64::from(number));
        }
        let side_at = bytes.len();
        if is_symlink && !has_pieces {
            write_bytes(bytes, &entry.link);
        }
        if let Some(device) = device {
            write_number(bytes, u64::from(device.major));
            write_number(bytes, u64::from(device.minor));
        }
        if u16::from(flags) & more::TIMES != 0 {
            let times = other_times(entry);
            bytes.push(u8::from(times[0].is_some()) | u8::from(times[1].is_some()) << 1);
            for time in times.into_iter().flatten() {
                write_time(bytes, time);
            }
        }
        if has_pieces {
            write_bytes(bytes, pieces);
        }
        if let Some(extents) = extents {
            let mut map = Vec::new();
            let mut end = 0_u64;
            for extent in extents.iter().filter(|extent| extent.length > 0) {
                // A pair without data says how much of what is stored is passed over.
                if extent.skip > 0 {
                    write_number(&mut map, extent.skip);
                    write_number(&mut map, 0);
                }
                write_number(&mut map, extent.offset.saturating_sub(end));
                write_number(&mut map, extent.length);
                end = extent.offset.saturating_add(extent.length);
            }
            write_bytes(bytes, &map);
        }
        for (number, (_, value)) in xattrs.iter().zip(&entry.xattrs) {
            write_number(bytes, u64::from(*number));
            write_bytes(bytes, value);
        }
        if let Some(side) = bytes.get(side_at..).filter(|side| side.len() > MOST_INSIDE) {
            let (at, length) = (self.large.len(), side.len());
            self.large.write(side)?;
            bytes.truncate(side_at);
            bytes.shrink_to(MOST_INSIDE);
            if let Some(flags) = bytes.get_mut(flags_at) {
                *flags |= IS_APART;
            }
            write_number(bytes, at);
            write_number(bytes, length as u64);
        }
        Ok(self.end())
    }
}

/// Unsigned LEB128.
pub(crate) fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Unsigned LEB128 at the start of `bytes`, which is moved behind it. What is cut or does not fit ends as it is:
/// callers that read foreign bytes check what they get.
#[inline]
pub(crate) fn read_number(bytes: &mut &[u8]) -> u64 {
    // As most are.
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return byte.into();
    }
    read_long_number(bytes)
}

fn read_long_number(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0_u32;
    while let Some(&byte) = bytes.split_off_first() {
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        shift = shift.saturating_add(7);
        if byte < 0x80 {
            break;
        }
    }
    number
}

pub(crate) fn write_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    write_number(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

pub(crate) fn read_bytes<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = read_number(bytes) as usize;
    bytes.split_off(..length).unwrap_or_default()
}

fn write_time(bytes: &mut Vec<u8>, time: Time) {
    // Zigzag, so that times before 1970 are short, too; the nanoseconds are nearly always 0.
    write_number(bytes, (time.seconds.wrapping_shl(1) ^ (time.seconds >> 63)) as u64);
    write_number(bytes, u64::from(time.nanoseconds));
}

fn read_time(bytes: &mut &[u8]) -> Time {
    let folded = read_number(bytes);
    let seconds = (folded >> 1) as i64 ^ ((folded & 1) as i64).wrapping_neg();
    Time { seconds, nanoseconds: (read_number(bytes) as u32).min(999_999_999) }
}
