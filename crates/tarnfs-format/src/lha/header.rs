//! Headers of levels 0 to 3, and their extensions.

use crate::encoding::Encoding;
use crate::ext::crc16;
use crate::little::{u16_at, u32_at, u64_at};
use crate::separators;
use crate::time::{dos_time, file_time};
use crate::{Kind, Time};

/// Bytes of the longest header of levels 0 to 2. One of level 3 says how long it is in four bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// Bytes from which the level is known, and the length.
pub(super) const START: usize = 32;

/// Where the level stands.
const LEVEL: usize = 20;

/// What stands between the names of a path, in extensions.
const SEPARATOR: u8 = 0xff;

/// A method: "-lh5-".
pub(super) type Method = [u8; 5];

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub(super) struct Header {
    pub(super) method: Method,
    /// Bytes of the header with its extensions, and of the file behind it.
    pub(super) length: u64,
    pub(super) stored: u64,
    pub(super) size: u64,
    pub(super) crc: Option<u16>,
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    pub(super) mtime: Time,
    pub(super) atime: Option<Time>,
    /// A checksum of the header is not what it says.
    pub(super) is_damaged: bool,
    /// A backslash may separate the names of its path. Later levels have a byte of their own for that.
    pub(super) has_backslashes: bool,
    /// Its extensions go beyond what is there.
    pub(super) is_cut: bool,
    /// It tells something that is not here: a comment, or what a system had beside the file.
    pub(super) tells_more: bool,
}

fn method_of(bytes: &[u8]) -> Option<Method> {
    let method: &Method = bytes.get(2..)?.first_chunk()?;
    matches!(method, [b'-', b'l' | b'p', b'h' | b'z' | b'm', _, b'-']).then_some(*method)
}

/// Bits that match where `head` begins with a header.
pub(super) fn bid(head: &[u8]) -> u32 {
    let Some(level) = method_of(head).and_then(|_| head.get(LEVEL)).filter(|level| **level <= 3) else { return 0 };
    let is_long_enough = match level {
        0 | 1 => {
            let sum = sum_of(head);
            return if sum.is_some() && sum == head.get(1).copied() { 32 + 6 + 8 } else { 0 };
        }
        2 => u16_at(head, 0).is_some_and(|length| length >= 26),
        _ => u16_at(head, 0) == Some(4),
    };
    if is_long_enough { 32 + 6 } else { 0 }
}

/// The sum of the bytes of a header of level 0 or 1 behind its first two.
fn sum_of(bytes: &[u8]) -> Option<u8> {
    let length = usize::from(*bytes.first()?);
    let counted = bytes.get(2..length.checked_add(2)?)?;
    (length >= 20).then(|| counted.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)))
}

/// The CRC-16 of a header, in which the two bytes of its own count as zeros.
fn crc_without(header: &[u8], place: usize) -> Option<u16> {
    let behind = header.get(place.checked_add(2)?..)?;
    Some(crc16(crc16(crc16(0, header.get(..place)?), &[0; 2]), behind))
}

/// Bytes of the fields that each header has.
const LEAST_OF_LEVEL_2: usize = 26;
const LEAST_OF_LEVEL_3: usize = 32;

/// Bytes that have to be there to read the header that `start` begins with, without the extensions of level 1. `None`
/// if none does.
pub(super) fn length(start: &[u8]) -> Option<usize> {
    method_of(start)?;
    match start.get(LEVEL)? {
        0 | 1 => usize::from(*start.first()?).checked_add(2),
        2 => Some(usize::from(u16_at(start, 0)?)).filter(|length| *length >= LEAST_OF_LEVEL_2),
        3 => usize::try_from(u32_at(start, 24)?).ok().filter(|length| *length >= LEAST_OF_LEVEL_3),
        _ => None,
    }
}

/// Extensions, one behind the other: each has the length of the next one at its end.
struct Extensions<'h> {
    bytes: &'h [u8],
    next: usize,
    /// Bytes of a length.
    width: usize,
    /// Where the next one begins.
    at: usize,
    /// It goes beyond what is there.
    is_cut: bool,
}

impl<'h> Iterator for Extensions<'h> {
    type Item = (u8, &'h [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let content = self.next.checked_sub(self.width)?;
        let whole = self.bytes.get(self.at..self.at.checked_add(self.next)?);
        self.is_cut = whole.is_none();
        let whole = whole?;
        let (content, next) = whole.split_at_checked(content)?;
        self.at = self.at.checked_add(self.next)?;
        self.next = if self.width == 2 { u16_at(next, 0)?.into() } else { usize::try_from(u32_at(next, 0)?).ok()? };
        let (kind, content) = content.split_first()?;
        Some((*kind, content))
    }
}

impl Header {
    /// The header at the start of `bytes`, which holds it and all its extensions; `None` if it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let method = method_of(bytes)?;
        let level = *bytes.get(LEVEL)?;
        let number = |at: usize| u32_at(bytes, at);
        let (date, time) = (u16_at(bytes, 17)?, u16_at(bytes, 15)?);
        let mut header = Self {
            method,
            length: length(bytes)? as u64,
            stored: number(7)?.into(),
            size: number(11)?.into(),
            crc: None,
            path: Vec::new(),
            kind: if method == *b"-lhd-" { Kind::Folder } else { Kind::File },
            link: Vec::new(),
            mode: if method == *b"-lhd-" { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            mtime: if level < 2 { dos_time(date, time) } else { Time { seconds: number(15)?.into(), nanoseconds: 0 } },
            atime: None,
            has_backslashes: level < 2,
            is_damaged: false,
            is_cut: false,
            tells_more: false,
        };
        let mut folder = Vec::new();
        match level {
            0 | 1 => {
                header.is_damaged = sum_of(bytes)? != *bytes.get(1)?;
                let name_length = usize::from(*bytes.get(21)?);
                let behind = name_length.checked_add(22)?;
                header.path = bytes.get(22..behind)?.to_vec();
                let base = usize::from(*bytes.first()?).checked_add(2)?;
                // Some have no more than a name.
                header.crc = (behind.checked_add(2)? <= base).then(|| u16_at(bytes, behind)).flatten();
                if level == 0 {
                    header.old_unix(bytes.get(behind.checked_add(2)?..base).unwrap_or_default());
                } else {
                    let next = u16_at(bytes, base.checked_sub(2)?)?.into();
                    let extensions = Extensions { bytes, next, width: 2, at: base, is_cut: false };
                    let end = header.extended(extensions, &mut folder);
                    // They count as a part of what is stored.
                    let more = (end as u64).saturating_sub(base as u64);
                    header.length = end as u64;
                    header.stored = header.stored.saturating_sub(more);
                }
            }
            2 => {
                header.crc = u16_at(bytes, 21);
                let all = bytes.get(..usize::try_from(header.length).ok()?)?;
                header.extended(
                    Extensions { bytes: all, next: u16_at(bytes, 24)?.into(), width: 2, at: 26, is_cut: false },
                    &mut folder,
                );
            }
            _ => {
                header.crc = u16_at(bytes, 21);
                let all = bytes.get(..usize::try_from(header.length).ok()?)?;
                let next = usize::try_from(number(28)?).ok()?;
                header.extended(Extensions { bytes: all, next, width: 4, at: 32, is_cut: false }, &mut folder);
            }
        }
        header.name(&folder);
        Some(header)
    }

    /// What LHA of Unix writes behind a header of level 0: "U", a version, the time, the mode, and the owner.
    fn old_unix(&mut self, bytes: &[u8]) {
        if let ([b'U', _, ..], Some(seconds), Some(mode)) = (bytes, u32_at(bytes, 2), u16_at(bytes, 6)) {
            self.mtime = Time { seconds: seconds.into(), nanoseconds: 0 };
            self.unix_mode(mode);
            self.uid = u16_at(bytes, 8).unwrap_or_default().into();
            self.gid = u16_at(bytes, 10).unwrap_or_default().into();
        } else {
            // The letter of another system, and more.
            self.tells_more = bytes.len() > 1;
        }
    }

    fn unix_mode(&mut self, mode: u16) {
        self.mode = u32::from(mode) & 0o7777;
        match mode & 0o170_000 {
            0o120_000 => self.kind = Kind::Symlink,
            0o040_000 => self.kind = Kind::Folder,
            _ => {}
        }
    }

    /// What extensions tell; where the last one ends.
    fn extended(&mut self, mut extensions: Extensions<'_>, folder: &mut Vec<u8>) -> usize {
        let (mut at, mut checked) = (extensions.at, None);
        while let Some((kind, content)) = extensions.next() {
            let start = std::mem::replace(&mut at, extensions.at);
            let half = |at: usize| u16_at(content, at);
            match kind {
                // The checksum of all of the header, behind the kind.
                0x00 => checked = start.checked_add(1).zip(half(0)).or(checked),
                0x01 => self.path = content.to_vec(),
                0x02 => *folder = content.to_vec(),
                // DOS: whether it is read-only, a folder, or is to be archived; and whether it is hidden, or of the
                // system.
                0x40 => self.tells_more |= half(0).is_none_or(|attributes| attributes & !0x31 != 0),
                // Windows: when it was made, changed, and read.
                0x41 => {
                    let time = |at: usize| u64_at(content, at).and_then(file_time);
                    self.mtime = time(8).unwrap_or(self.mtime);
                    self.atime = time(16).or(self.atime);
                }
                0x42 => {
                    if let (Some(stored), Some(size)) = (u64_at(content, 0), u64_at(content, 8)) {
                        (self.stored, self.size) = (stored, size);
                    }
                }
                0x44 => self.path = of_utf_16(content),
                0x45 => *folder = of_utf_16(content),
                // In which code page names are.
                0x46 => {}
                0x50 => {
                    if let Some(mode) = half(0) {
                        self.unix_mode(mode);
                    }
                }
                0x51 => {
                    self.gid = half(0).unwrap_or_default().into();
                    self.uid = half(2).unwrap_or_default().into();
                }
                0x52 => self.group = content.to_vec(),
                0x53 => self.user = content.to_vec(),
                0x54 => {
                    if let Some(seconds) = u32_at(content, 0) {
                        self.mtime = Time { seconds: seconds.into(), nanoseconds: 0 };
                    }
                }
                _ => self.tells_more = true,
            }
        }
        self.is_cut = extensions.is_cut;
        // Of level 1, the header ends where the last extension does.
        let end = if extensions.bytes.get(LEVEL) == Some(&1) { extensions.at } else { extensions.bytes.len() };
        if let Some((place, expected)) = checked.filter(|_| !self.is_cut) {
            let header = extensions.bytes.get(..end).unwrap_or_default();
            self.is_damaged |= crc_without(header, place) != Some(expected);
        }
        extensions.at
    }

    /// Makes the path of a folder and a name.
    fn name(&mut self, folder: &[u8]) {
        // A NUL ends what some programs write. On the Amiga a comment follows.
        let mut texts = self.path.split(|&byte| byte == 0);
        let name = texts.next().unwrap_or_default();
        self.tells_more |= texts.any(|text| !text.is_empty());
        let is_separated = folder.is_empty() || folder.ends_with(&[SEPARATOR]) || folder.ends_with(b"/");
        let between: &[u8] = if is_separated { b"" } else { b"/" };
        let mut path = [folder, between, name].concat();
        for byte in &mut path {
            if *byte == SEPARATOR {
                *byte = b'/';
            }
        }
        self.path = path;
    }

    /// Turns what separates the names of the path around, and takes the target of a link out of it. Both may be halves
    /// of characters in `encoding`.
    pub(super) fn split(&mut self, encoding: Option<Encoding>) {
        let mut path = std::mem::take(&mut self.path);
        if self.has_backslashes || encoding.is_some() || !separators::is_doubtful(&path) {
            path = separators::with_slashes(path, encoding);
        }
        if self.kind == Kind::Symlink
            && let Some(bar) = separators::position(&path, b'|', encoding)
        {
            self.link = path.split_off(bar).get(1..).unwrap_or_default().to_vec();
        }
        self.path = path;
    }
}

/// A name in UTF-16, little-endian.
fn of_utf_16(bytes: &[u8]) -> Vec<u8> {
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
    // What separates folders there is the unit, not the character.
    let units = units.map(|unit| if unit == 0xffff { u16::from(b'/') } else { unit });
    let text: String = char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.into_bytes()
}
