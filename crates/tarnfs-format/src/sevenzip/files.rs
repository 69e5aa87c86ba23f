//! What a header says of the files: names, times and attributes, each in a column of its own.

use super::bytes::{Bits, Broken, Bytes, Column, inside};
use super::property as id;
use crate::{Kind, Time};

/// The files of an archive, in its order.
#[derive(Debug, Clone, Default)]
pub(super) struct Files<'h> {
    left: usize,
    next: usize,
    next_empty: usize,
    names: Option<Bytes<'h>>,
    /// Files without content, folders among them.
    empty: Option<Bits<'h>>,
    /// Of these: files.
    empty_but_file: Option<Bits<'h>>,
    /// Of these: what is to be removed when the archive is unpacked.
    anti: Option<Bits<'h>>,
    modified: Option<Column<'h, 8>>,
    accessed: Option<Column<'h, 8>>,
    changed: Option<Column<'h, 8>>,
    attributes: Option<Column<'h, 4>>,
}

/// One file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// `None` where the archive has no names: then it is of one file.
    pub(super) name: Option<Vec<u8>>,
    pub(super) has_content: bool,
    pub(super) is_anti: bool,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) modified: Option<Time>,
    pub(super) accessed: Option<Time>,
    pub(super) changed: Option<Time>,
}

impl<'h> Files<'h> {
    pub(super) fn read(bytes: &mut Bytes<'h>) -> Result<Self, Broken> {
        let count = bytes.count()?;
        let mut files = Self { left: count, ..Self::default() };
        let mut empties = 0;
        loop {
            let kind = bytes.number()?;
            if kind == id::END {
                return Ok(files);
            }
            let length = bytes.number()?;
            let mut part = bytes.part(length)?;
            match kind {
                id::EMPTY_STREAM => {
                    let empty = part.bits(count)?;
                    empties = empty.ones(count);
                    files.empty = Some(empty);
                }
                id::EMPTY_FILE => files.empty_but_file = Some(part.bits(empties)?),
                id::ANTI => files.anti = Some(part.bits(empties)?),
                id::NAMES => {
                    inside(&mut part)?;
                    files.names = Some(part);
                }
                id::MODIFIED => files.modified = Some(Column::property(&mut part, count)?),
                id::ACCESSED => files.accessed = Some(Column::property(&mut part, count)?),
                id::CHANGED => files.changed = Some(Column::property(&mut part, count)?),
                id::ATTRIBUTES => files.attributes = Some(Column::property(&mut part, count)?),
                // Comments, where files begin on a tape, and filling.
                _ => {}
            }
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<File>, Broken> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let is_empty = self.empty.is_some_and(|empty| empty.get(self.next));
        let of_empty = |bits: Option<Bits<'_>>| is_empty && bits.is_some_and(|bits| bits.get(self.next_empty));
        let (is_file, is_anti) = (!is_empty || of_empty(self.empty_but_file), of_empty(self.anti));
        self.next = self.next.saturating_add(1);
        self.next_empty = self.next_empty.saturating_add(usize::from(is_empty));
        let (kind, mode) = kind_and_mode(self.attributes.as_mut().and_then(Column::next), is_file, is_empty);
        let time = |column: &mut Option<Column<'_, 8>>| column.as_mut().and_then(Column::next).map(time);
        Ok(Some(File {
            name: self.names.as_mut().map(name).transpose()?,
            has_content: !is_empty,
            is_anti,
            kind,
            mode,
            modified: time(&mut self.modified),
            accessed: time(&mut self.accessed),
            changed: time(&mut self.changed),
        }))
    }
}

/// What Windows keeps of a file; 7-Zip elsewhere puts what Unix keeps in the upper half, and says so in a bit that
/// Windows does not use.
fn kind_and_mode(attributes: Option<[u8; 4]>, is_file: bool, is_empty: bool) -> (Kind, u32) {
    const READ_ONLY: u32 = 1;
    const UNIX: u32 = 1 << 15;
    const TYPE: u32 = 0o170_000;
    let attributes = attributes.map_or(0, u32::from_le_bytes);
    let kind = if is_file { Kind::File } else { Kind::Folder };
    if attributes & UNIX != 0 {
        let mode = attributes >> 16;
        let kind = match mode & TYPE {
            // Its content is the target.
            0o120_000 if !is_empty => Kind::Symlink,
            0o010_000 if is_empty && is_file => Kind::Fifo,
            0o140_000 if is_empty && is_file => Kind::Socket,
            _ => kind,
        };
        return (kind, mode & 0o7777);
    }
    // On a folder of Windows the bit does not mean that nothing can be made in it.
    (
        kind,
        if !is_file {
            0o755
        } else if attributes & READ_ONLY != 0 {
            0o444
        } else {
            0o644
        },
    )
}

/// Tenths of microseconds since 1601.
fn time(ticks: [u8; 8]) -> Time {
    const TICKS: u64 = 10_000_000;
    const FROM_1601_TO_1970: i64 = 11_644_473_600;
    let ticks = u64::from_le_bytes(ticks);
    let seconds = (ticks / TICKS) as i64;
    Time { seconds: seconds.saturating_sub(FROM_1601_TO_1970), nanoseconds: (ticks % TICKS).saturating_mul(100) as u32 }
}

/// The next name, in UTF-16 up to a zero, as UTF-8. Halves of a pair that stand alone are written as if they were
/// characters (WTF-8).
fn name(names: &mut Bytes<'_>) -> Result<Vec<u8>, Broken> {
    let units = names.pairs()?;
    if units.iter().all(|[low, high]| *high == 0 && low.is_ascii()) {
        return Ok(units.iter().map(|[low, _]| *low).collect());
    }
    let mut name = Vec::with_capacity(units.len().saturating_mul(2));
    for character in char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit))) {
        match character {
            // 7-Zip's way to keep a byte of a name that is not UTF-8.
            Ok(character @ '\u{ef80}'..='\u{efff}') => name.push((character as u32 & 0xff) as u8),
            Ok(character) => name.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(half) => {
                let half = half.unpaired_surrogate();
                name.extend([0xe0 | (half >> 12) as u8, 0x80 | (half >> 6 & 0x3f) as u8, 0x80 | (half & 0x3f) as u8]);
            }
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(units: &[u16]) -> Vec<u8> {
        let bytes: Vec<u8> = units.iter().chain(&[0]).flat_map(|unit| unit.to_le_bytes()).collect();
        name(&mut Bytes::new(&bytes)).unwrap()
    }

    #[test]
    fn names_become_utf_8() {
        assert_eq!(name_of(&[]), b"");
        assert_eq!(name_of(&"aä€😀".encode_utf16().collect::<Vec<_>>()), "aä€😀".as_bytes());
        assert_eq!(name_of(&[0xd83d, 0x61]), b"\xed\xa0\xbda");
        assert_eq!(name_of(&[0xde00]), b"\xed\xb8\x80");
        assert_eq!(name_of(&[0x62, 0xefff, 0xefc3, 0xef7f]), b"b\xff\xc3\xee\xbd\xbf");
        assert!(name(&mut Bytes::new(&[0x61, 0, 0])).is_err());
    }

    #[test]
    fn times_count_from_1601() {
        let of = |ticks: u64| time(ticks.to_le_bytes());
        assert_eq!(of(0), Time { seconds: -11_644_473_600, nanoseconds: 0 });
        assert_eq!(of(116_444_736_000_000_001), Time { seconds: 0, nanoseconds: 100 });
        assert_eq!(of(116_444_735_999_999_999), Time { seconds: -1, nanoseconds: 999_999_900 });
        assert_eq!(of(u64::MAX).nanoseconds, 955_161_500);
    }

    #[test]
    fn attributes_are_those_of_windows_or_unix() {
        let of = |attributes: u32, is_file, is_empty| kind_and_mode(Some(attributes.to_le_bytes()), is_file, is_empty);
        let unix = |mode: u32| mode << 16 | 0x8000;
        for (found, expected) in [
            (kind_and_mode(None, true, false), (Kind::File, 0o644)),
            (kind_and_mode(None, false, true), (Kind::Folder, 0o755)),
            (of(0x21, true, false), (Kind::File, 0o444)),
            (of(0x11, false, true), (Kind::Folder, 0o755)),
            (of(unix(0o100_4755), true, false), (Kind::File, 0o4755)),
            (of(unix(0o041_777), false, true), (Kind::Folder, 0o1777)),
            (of(unix(0o120_777), true, false), (Kind::Symlink, 0o777)),
            // No target, and content where there can be none.
            (of(unix(0o120_777), true, true), (Kind::File, 0o777)),
            (of(unix(0o010_600), true, true), (Kind::Fifo, 0o600)),
            (of(unix(0o010_600), true, false), (Kind::File, 0o600)),
            (of(unix(0o140_600), true, true), (Kind::Socket, 0o600)),
            (of(unix(0o020_600), true, true), (Kind::File, 0o600)),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn files_have_what_their_columns_say() {
        let time = 116_444_736_000_000_000_u64.to_le_bytes();
        let names: Vec<u8> = "f\0d\0e\0a\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let header = [
            &[4][..],
            &[25, 3, 0, 0, 0],
            &[14, 1, 0b0111_0000, 15, 1, 0b1100_0000, 16, 1, 0b0100_0000],
            &[17, 17, 0],
            &names,
            &[20, 11, 0, 0b0100_0000, 0],
            &time,
            // Comment and start positions: passed over.
            &[22, 2, 1, 2, 24, 1, 9],
            &[0],
        ]
        .concat();
        let mut files = Files::read(&mut Bytes::new(&header)).unwrap();
        let mut next = || files.next().unwrap();
        let file = |name: &str, has_content, kind, is_anti| File {
            name: Some(name.into()),
            has_content,
            is_anti,
            kind,
            mode: if kind == Kind::Folder { 0o755 } else { 0o644 },
            modified: (name == "d").then(Time::default),
            accessed: None,
            changed: None,
        };
        assert_eq!(next(), Some(file("f", true, Kind::File, false)));
        assert_eq!(next(), Some(file("d", false, Kind::File, false)));
        assert_eq!(next(), Some(file("e", false, Kind::File, true)));
        assert_eq!(next(), Some(file("a", false, Kind::Folder, false)));
        assert_eq!(next(), None);
        for length in 0..header.len() {
            assert!(Files::read(&mut Bytes::new(&header[..length])).is_err());
        }
    }
}
