//! The tree of an image: security descriptors, and then what each folder has, one behind the other.

use std::ops::Range;

use crate::Time;
use crate::little::{u16_at, u32_at, u64_at};
use crate::reparse::{self, units};
use crate::time::file_time;

/// Bytes of what tells a file, without its name, and of a stream of it.
pub(super) const FIXED: usize = 102;
const STREAM: usize = 38;

/// What wimlib adds for files of Unix, and extended attributes, which Windows has, too.
const UNIX: u32 = 0x337d_d873;
const XATTRS: u32 = 2;

/// Attributes; one says that there are no others.
pub(super) const READ_ONLY: u32 = 1;
pub(super) const NORMAL: u32 = 0x80;
pub(super) const FOLDER: u32 = 0x10;
pub(super) const REPARSE: u32 = 0x400;
pub(super) const ENCRYPTED: u32 = 0x4000;

/// Streams of a file.
const MOST_STREAMS: u16 = 4096;

/// Bytes of the name of a stream: NTFS has no longer ones.
const LONGEST_STREAM_NAME: u16 = 2 * 255;

/// Why a file of a tree is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    /// More was read than a tree has room for: any number of folders may lead to the same files.
    #[error("the tree of an image has more files than fit into it")]
    TooMany,
    /// It says what cannot be.
    #[error("{0}")]
    Broken(&'static str),
}

impl From<&'static str> for Wrong {
    fn from(what: &'static str) -> Self {
        Self::Broken(what)
    }
}

/// What is told of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dentry {
    pub(super) attributes: u32,
    pub(super) security: Option<u32>,
    /// Where what is in it begins, of a folder.
    pub(super) below: u64,
    pub(super) created: u64,
    pub(super) accessed: Option<Time>,
    pub(super) written: Option<Time>,
    pub(super) hash: [u8; 20],
    /// Of a link or the like, what kind it is.
    pub(super) reparse: u32,
    /// Of files that are one, a number that they have.
    pub(super) group: u64,
    pub(super) name: Vec<u16>,
    pub(super) short_name: Vec<u16>,
    pub(super) unix: Option<Unix>,
    /// Where in the tree its extended attributes lie.
    pub(super) xattrs: Range<usize>,
    pub(super) streams: Vec<Stream>,
    /// Streams that are not among these, as their names are too long.
    pub(super) lost: u16,
}

/// As a file was on Unix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unix {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
    pub(super) device: u32,
}

/// A stream of a file beside the one that it has in its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) name: Vec<u16>,
    pub(super) hash: [u8; 20],
}

impl Dentry {
    /// The hashes of its streams without a name, zeros for one that there is not: what Windows keeps for a link or a
    /// driver, and the content. As wimlib tells them apart: of what has [`REPARSE`], the content is the second one.
    pub(super) fn unnamed(&self) -> ([u8; 20], [u8; 20]) {
        let others = self.streams.iter().filter(|stream| stream.name.is_empty()).map(|stream| stream.hash);
        let mut hashes = [self.hash].into_iter().chain(others).filter(|hash| *hash != [0; 20]);
        let kept = if self.has_kept() { hashes.next() } else { None };
        (kept.unwrap_or_default(), hashes.next().unwrap_or_default())
    }

    /// True if Windows keeps something for it.
    pub(super) fn has_kept(&self) -> bool {
        self.attributes & REPARSE != 0 && !self.is_encrypted()
    }

    /// True of a file whose content Windows has encrypted. What is in a folder is not.
    pub(super) fn is_encrypted(&self) -> bool {
        self.attributes & (ENCRYPTED | FOLDER) == ENCRYPTED
    }

    /// True if it is a link.
    pub(super) fn is_link(&self) -> bool {
        self.has_kept() && reparse::is_link(self.reparse)
    }
}

#[cfg(test)]
thread_local! {
    /// How often a file of a tree was read.
    pub(super) static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A number that is rounded up to the next multiple of 8.
fn aligned(number: u64) -> Option<u64> {
    Some(number.checked_add(7)? & !7)
}

/// What begins at `at`, and where the next one does; `None` at the end of a folder. The error says what is wrong. What
/// a file takes, and a stream takes at least, is taken from `left`, the bytes of the tree that may still be read.
pub(super) fn read(bytes: &[u8], at: u64, left: &mut usize) -> Result<Option<(Dentry, u64)>, Wrong> {
    const CUT: &str = "it goes on behind the end of its tree";
    #[cfg(test)]
    READS.set(READS.get().saturating_add(1));
    let start = usize::try_from(at).map_err(|_| CUT)?;
    let length = u64_at(bytes, start).ok_or(CUT)?;
    if length <= 8 {
        return Ok(None);
    }
    let mut take = |count: usize| left.checked_sub(count).map(|fewer| *left = fewer).ok_or(Wrong::TooMany);
    let end = at.checked_add(length).and_then(|end| usize::try_from(end).ok()).ok_or(CUT)?;
    let own = bytes.get(start..end).filter(|own| own.len() >= FIXED).ok_or(CUT)?;
    // Any number of folders may lead to it, and what wimlib has added is searched for in all of it.
    take(own.len())?;
    let fields = || -> Option<(Dentry, u16)> {
        let [short_length, length] = [98, 100].map(|at| u16_at(own, at));
        let (short_length, length) = (short_length?, length?);
        // Each name that is not empty ends with a zero.
        let behind = |length: u16| usize::from(length).saturating_add(if length > 0 { 2 } else { 0 });
        let short_at = FIXED.checked_add(behind(length))?;
        let attributes = u32_at(own, 8)?;
        let is_reparse = attributes & REPARSE != 0;
        let (unix, xattrs) = added(own, short_at.checked_add(behind(short_length))?);
        let dentry = Dentry {
            attributes,
            security: u32_at(own, 12).filter(|number| *number != u32::MAX),
            below: u64_at(own, 16)?,
            created: u64_at(own, 40)?,
            accessed: file_time(u64_at(own, 48)?),
            written: file_time(u64_at(own, 56)?),
            hash: *own.get(64..)?.first_chunk()?,
            reparse: if is_reparse { u32_at(own, 88)? } else { 0 },
            group: if is_reparse { 0 } else { u64_at(own, 88)? },
            name: units(own, FIXED, length)?,
            short_name: units(own, short_at, short_length)?,
            unix,
            xattrs: start.checked_add(xattrs.start)?..start.checked_add(xattrs.end)?,
            ..Dentry::default()
        };
        Some((dentry, u16_at(own, 96)?))
    };
    let (mut dentry, count) = fields().ok_or("its names do not fit into it")?;
    let mut next = aligned(at.saturating_add(length)).ok_or(CUT)?;
    if count > MOST_STREAMS {
        return Err(Wrong::Broken("it has too many streams"));
    }
    for _ in 0..count {
        take(STREAM)?;
        let start = usize::try_from(next).map_err(|_| CUT)?;
        let length = u64_at(bytes, start).ok_or(CUT)?;
        let stream = || -> Option<Option<Stream>> {
            let own = bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
            let name_length = u16_at(own, 36)?;
            let hash = *own.get(16..)?.first_chunk()?;
            if name_length > LONGEST_STREAM_NAME {
                return Some(None);
            }
            Some(Some(Stream { name: units(own, STREAM, name_length)?, hash }))
        };
        match stream().ok_or("a stream of it goes on behind the end of its tree")? {
            Some(stream) => dentry.streams.push(stream),
            None => dentry.lost = dentry.lost.saturating_add(1),
        }
        next = next.checked_add(length).and_then(aligned).ok_or(CUT)?;
    }
    Ok(Some((dentry, next)))
}

/// What was added behind the names: what the file was on Unix, and where its extended attributes lie.
fn added(own: &[u8], names_end: usize) -> (Option<Unix>, Range<usize>) {
    let (mut unix, mut xattrs, mut at) = (None, 0..0, names_end);
    while let Some((tag, data)) = item(own, at) {
        at = data.end;
        match tag {
            UNIX if unix.is_none() && data.len() >= 16 => {
                let [uid, gid, mode, device] =
                    [0, 4, 8, 12].map(|behind| u32_at(own, data.start.saturating_add(behind)));
                unix = (|| Some(Unix { uid: uid?, gid: gid?, mode: mode?, device: device? }))();
            }
            // No more than was paid for: what is cut shows as that.
            XATTRS if xattrs.is_empty() => xattrs = data.start.min(own.len())..data.end.min(own.len()),
            _ => {}
        }
    }
    (unix, xattrs)
}

/// What an item is that begins at the next multiple of 8, and where its data lie.
fn item(own: &[u8], at: usize) -> Option<(u32, Range<usize>)> {
    let at = usize::try_from(aligned(at as u64)?).ok()?;
    let [tag, length] = [0, 4].map(|behind| u32_at(own, at.checked_add(behind)?));
    let (tag, length) = (tag?, length?);
    let data = at.checked_add(8)?;
    Some((tag, data..data.checked_add(length as usize)?))
}

/// An extended attribute: its name and value, and what is behind it.
pub(super) type Xattr<'b> = (&'b [u8], &'b [u8], &'b [u8]);

/// The first of the extended attributes `bytes`: the length of its value, that of its name, flags, the name and a zero,
/// and the value.
pub(super) fn xattr(bytes: &[u8]) -> Option<Xattr<'_>> {
    let (value, name) = (usize::from(u16_at(bytes, 0)?), usize::from(*bytes.get(2)?));
    let (name, rest) = bytes.get(4..)?.split_at_checked(name)?;
    let (value, rest) = rest.get(1..)?.split_at_checked(value)?;
    Some((name, value, rest))
}

/// Where the security descriptors of a tree lie. There may be millions: only where every few of them begin is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    count: u32,
    every: Vec<u32>,
}

/// Descriptors between two whose places are kept.
const EVERY: usize = 64;

/// Bytes of the descriptor that has a number.
fn length_of(bytes: &[u8], number: usize) -> Option<usize> {
    usize::try_from(u64_at(bytes, number.checked_mul(8)?.checked_add(8)?)?).ok()
}

impl Descriptors {
    /// The one of that number in the tree `bytes`.
    pub(super) fn get<'b>(&self, bytes: &'b [u8], number: u32) -> Option<&'b [u8]> {
        let wanted = usize::try_from(number).ok().filter(|_| number < self.count)?;
        let mut at = usize::try_from(*self.every.get(wanted / EVERY)?).ok()?;
        for before in (wanted / EVERY).checked_mul(EVERY)?..wanted {
            at = at.checked_add(length_of(bytes, before)?)?;
        }
        bytes.get(at..at.checked_add(length_of(bytes, wanted)?)?)
    }
}

/// Where the root is, and the security descriptors.
pub(super) fn start(bytes: &[u8]) -> Option<(u64, Descriptors)> {
    let [total, count] = [0, 4].map(|at| u32_at(bytes, at));
    let (total, count) = (total?, count?);
    let root = aligned(u64::from(total).max(8))?;
    let mut place = usize::try_from(count).ok()?.checked_mul(8)?.checked_add(8)?;
    if count > 0 && place > total as usize {
        return None;
    }
    let mut every = Vec::new();
    for number in 0..count as usize {
        if number.is_multiple_of(EVERY) {
            every.push(u32::try_from(place).ok()?);
        }
        let end = place.checked_add(length_of(bytes, number)?);
        place = end.filter(|end| *end <= total as usize && *end <= bytes.len())?;
    }
    Some((root, Descriptors { count, every }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn what_is_told_is_taken_apart() {
        let mut bytes = vec![0; 8];
        let name = utf16("name");
        let mut own = vec![0; FIXED];
        own[8..12].copy_from_slice(&0x21_u32.to_le_bytes());
        own[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        own[88] = 7;
        own[96] = 1;
        own[100] = name.len() as u8;
        own.extend([&name[..], &[0, 0]].concat());
        own.resize(own.len().next_multiple_of(8), 0);
        own.extend([&UNIX.to_le_bytes()[..], &16_u32.to_le_bytes()].concat());
        own.extend([1_u32, 2, 0o100_644, 0].iter().flat_map(|number| number.to_le_bytes()));
        let of_xattrs = 8 + own.len();
        own.extend([XATTRS, 13].iter().flat_map(|number| number.to_le_bytes()));
        own.extend(b"\x02\0\x06\0user.x\0ab");
        own.resize(own.len().next_multiple_of(8), 0);
        let length = own.len() as u64;
        own[..8].copy_from_slice(&length.to_le_bytes());
        bytes.extend(&own);
        let mut stream = vec![0; STREAM];
        (stream[0], stream[16], stream[36]) = (48, 9, 2);
        stream.extend(utf16("s"));
        stream.resize(48, 0);
        bytes.extend(stream);
        bytes.extend([0; 8]);
        let mut left = own.len() + STREAM;
        assert_eq!(read(&bytes, 8, &mut (left - 1)), Err(Wrong::TooMany));
        let (found, next) = read(&bytes, 8, &mut left).unwrap().unwrap();
        assert_eq!(left, 0);
        assert_eq!((found.attributes, found.security, found.group), (0x21, None, 7));
        assert_eq!(String::from_utf16(&found.name).unwrap(), "name");
        assert_eq!(found.unix, Some(Unix { uid: 1, gid: 2, mode: 0o100_644, device: 0 }));
        assert_eq!(found.xattrs, of_xattrs + 8..of_xattrs + 21);
        assert_eq!(xattr(&bytes[found.xattrs]), Some((&b"user.x"[..], &b"ab"[..], &[][..])));
        assert_eq!((xattr(b"\x02\0\x06\0user.x\0a"), xattr(b"\0\0\x06\0user."), xattr(b"")), (None, None, None));
        assert_eq!((found.streams.len(), found.streams[0].hash[0], &found.streams[0].name[..]), (1, 9, &[115][..]));
        assert_eq!(next + 8, bytes.len() as u64);
        assert!(read(&bytes, next, &mut 0).unwrap().is_none());
        for length in 8..bytes.len() - 8 {
            assert!(read(&bytes[..length], 8, &mut 1000).is_err(), "{length}");
        }
        assert!(start(&[0; 8]).is_some_and(|(root, _)| root == 8));
        let one = [20, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        let (root, found) = start(&one).unwrap();
        assert_eq!((root, found.get(&one, 0), found.get(&one, 1)), (24, Some(&[1, 2, 3, 4][..]), None));
        assert!(start(&[20, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).is_none());
    }

    /// Of each of millions, its place took half as much memory as the tree itself.
    #[test]
    fn of_many_descriptors_few_places_are_kept() {
        const COUNT: u32 = 1000;
        let lengths = |number: u32| u64::from(number % 5);
        let total = 8 + COUNT * 8 + (0..COUNT).map(|number| number % 5).sum::<u32>();
        let mut bytes = [total.to_le_bytes(), COUNT.to_le_bytes()].concat();
        bytes.extend((0..COUNT).flat_map(|number| lengths(number).to_le_bytes()));
        bytes.extend((0..COUNT).flat_map(|number| vec![number as u8; lengths(number) as usize]));
        let (_, found) = start(&bytes).unwrap();
        assert_eq!(found.every.len(), COUNT.div_ceil(64) as usize);
        for number in 0..COUNT {
            let own = vec![number as u8; lengths(number) as usize];
            assert_eq!(found.get(&bytes, number), Some(&own[..]), "{number}");
        }
        assert_eq!(found.get(&bytes, COUNT), None);
    }
}
