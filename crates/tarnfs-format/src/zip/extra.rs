//! Extra fields: what a header says of a member beside what PKZIP of 1989 knew (APPNOTE 4.5, Info-ZIP's extrafld.txt).

use super::bytes::{u16_at, u32_at, u64_at};
use crate::time::file_time;
use crate::{Device, Time};

/// What the extra fields of one header say. Those that are damaged or not known are passed over.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra<'b> {
    /// Large sizes and offsets: those, one behind the other, for which the header has all ones.
    large: Option<&'b [u8]>,
    /// The name in UTF-8, if it is of the name that stands in the header.
    pub(super) unicode_path: Option<&'b [u8]>,
    pub(super) aes: Option<Aes>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) owner: Option<(u64, u64)>,
    /// A whole Unix mode, with the type.
    pub(super) mode: Option<u16>,
    pub(super) device: Option<Device>,
    /// Target of a symbolic link.
    pub(super) link: Option<&'b [u8]>,
    /// There is a field that only programs on Unix write, or one with times of Unix, which others write, too.
    pub(super) is_of_unix: bool,
    pub(super) has_unix_times: bool,
}

/// WinZip's encryption (extra field 0x9901).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Aes {
    /// AE-1 has a CRC of the content, AE-2 has not.
    pub(super) version: u16,
    /// 1 to 3: 128, 192 or 256 bits.
    pub(super) strength: u8,
    /// How the content was packed before.
    pub(super) method: u16,
}

/// Sizes and offset of a header, those that were too large for it taken from its extra fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) size: u64,
    pub(super) stored: u64,
    pub(super) offset: u64,
}

impl<'b> Extra<'b> {
    /// Reads `fields`, which belong to a member that is called `name` in its header and was changed on `date`, as DOS
    /// has it.
    pub(super) fn read(mut fields: &'b [u8], name: &[u8], date: u16) -> Self {
        let mut extra = Self::default();
        // Of one time in several fields the finer one counts.
        let (mut ntfs, mut extended, mut old) = (None, None, None);
        let mut crc = None;
        while let Some((head, rest)) = fields.split_at_checked(4) {
            // What follows the fields may be padding for alignment.
            let Some((field, rest)) = rest.split_at_checked(u16_at(head, 2).into()) else { break };
            fields = rest;
            extra.has_unix_times |= u16_at(head, 0) == 0x5455;
            extra.is_of_unix |= matches!(u16_at(head, 0), 0x000d | 0x5855 | 0x7855 | 0x7875 | 0x756e);
            match u16_at(head, 0) {
                0x0001 => extra.large = Some(field),
                0x000a => ntfs = ntfs.or(ntfs_times(field)),
                0x000d if field.len() >= 12 => {
                    old = old.or(Some(unix_times(field)));
                    extra.owner.get_or_insert((u16_at(field, 8).into(), u16_at(field, 10).into()));
                }
                0x5455 => extended = extended.or(extended_times(field, date)),
                0x5855 if field.len() >= 8 => {
                    old = old.or(Some(unix_times(field)));
                    if field.len() >= 12 {
                        extra.owner.get_or_insert((u16_at(field, 8).into(), u16_at(field, 10).into()));
                    }
                }
                0x7855 if field.len() >= 4 => {
                    extra.owner.get_or_insert((u16_at(field, 0).into(), u16_at(field, 2).into()));
                }
                // The only one that holds numbers of 32 bits.
                0x7875 => extra.owner = owner(field).or(extra.owner),
                0x7075 => {
                    // Once: there may be thousands of these fields, and the name may be long.
                    let crc = *crc.get_or_insert_with(|| crc32fast::hash(name));
                    extra.unicode_path = unicode(field, crc);
                }
                0x756e => extra.asi(field),
                0x9901 if field.len() >= 7 && field.get(2..4) == Some(b"AE") => {
                    let strength = field.get(4).copied().unwrap_or_default();
                    extra.aes = Some(Aes { version: u16_at(field, 0), strength, method: u16_at(field, 5) });
                }
                _ => {}
            }
        }
        let times = ntfs.or(extended).or(old).unwrap_or_default();
        let others = [extended, old].into_iter().flatten();
        (extra.mtime, extra.atime) = others.fold(times, |(mtime, atime), other| (mtime.or(other.0), atime.or(other.1)));
        extra
    }

    /// `size`, `stored` and `offset` with those that are among the extra fields; `None` if one is missing there.
    ///
    /// All ones in a header without such fields are a number like others: an archive without zip64 may have it.
    pub(super) fn numbers(&self, size: u32, stored: u32, offset: u32) -> Option<Numbers> {
        let mut large = self.large;
        let mut number = |small: u32| match large.as_mut() {
            Some(rest) if small == u32::MAX => {
                let (first, others) = rest.split_first_chunk()?;
                *rest = others;
                Some(u64::from_le_bytes(*first))
            }
            _ => Some(small.into()),
        };
        Some(Numbers { size: number(size)?, stored: number(stored)?, offset: number(offset)? })
    }

    /// Whether there is a zip64 field.
    pub(super) fn is_64(&self) -> bool {
        self.large.is_some()
    }

    /// `volume`, or what stands in its place among the extra fields, behind the numbers that [`Extra::numbers`] takes.
    pub(super) fn volume(&self, volume: u16, [size, stored, offset]: [u32; 3]) -> u32 {
        let before = [size, stored, offset].into_iter().filter(|small| *small == u32::MAX).count();
        let large = self.large.filter(|_| volume == u16::MAX);
        let large = large.and_then(|large| large.get(before.saturating_mul(8)..)?.first_chunk());
        large.map_or(volume.into(), |bytes| u32::from_le_bytes(*bytes))
    }

    /// ASi's: a checksum, and what `lstat` says, with the target of a link.
    fn asi(&mut self, field: &'b [u8]) {
        let Some((checksum, rest)) = field.split_at_checked(4) else { return };
        if rest.len() < 10 || u32_at(checksum, 0) != crc32fast::hash(rest) {
            return;
        }
        let mode = u16_at(rest, 0);
        self.mode = Some(mode);
        self.owner = self.owner.or(Some((u16_at(rest, 6).into(), u16_at(rest, 8).into())));
        let number = u32_at(rest, 2);
        match mode & 0o170_000 {
            0o120_000 => self.link = rest.get(10..).filter(|link| !link.is_empty()),
            0o020_000 | 0o060_000 => self.device = Some(Device { major: number >> 8, minor: number & 0xff }),
            _ => {}
        }
    }
}

/// True if one of the fields says something of which no entry shows anything: access lists of Windows, what macOS keeps
/// of a file. Those that are known and only fill, or mark an archive of Java, say nothing.
pub(super) fn says_more(mut fields: &[u8]) -> bool {
    while let Some((head, rest)) = fields.split_at_checked(4) {
        let Some((_, rest)) = rest.split_at_checked(u16_at(head, 2).into()) else { break };
        fields = rest;
        match u16_at(head, 0) {
            // Sizes, times, owners, names, and how content is encrypted; a comment is told for itself. The last five
            // are of `zipalign`, Apache's and Android's alignment, Office, and Java.
            0x0001 | 0x000a | 0x000d | 0x0017 | 0x5455 | 0x5855 | 0x6375 | 0x7075 | 0x756e | 0x7855 | 0x7875
            | 0x9901 | 0x0000 | 0xa11e | 0xd935 | 0xa220 | 0xcafe => {}
            _ => return true,
        }
    }
    false
}

/// mtime and atime, where told.
type Times = (Option<Time>, Option<Time>);

/// Seconds of 32 bits: atime, mtime.
fn unix_times(field: &[u8]) -> Times {
    let time = |at| Some(seconds(u32_at(field, at), 0));
    (time(4), time(0))
}

/// Which ones there are, and mtime, atime and the time of creation, of which the directory has only the first.
fn extended_times(field: &[u8], date: u16) -> Option<Times> {
    let (&which, rest) = field.split_first()?;
    let mtime = (which & 1 != 0 && rest.len() >= 4).then(|| seconds(u32_at(rest, 0), date));
    let before = if which & 1 == 0 { 0 } else { 4 };
    let after = rest.get(before..).filter(|after| which & 2 != 0 && after.len() >= 4);
    let atime = after.map(|after| seconds(u32_at(after, 0), date));
    Some((mtime, atime))
}

/// Seconds since 1970: before it, if the sign says so, but not where the date of DOS is one after 2037.
fn seconds(stored: u32, date: u16) -> Time {
    let is_late = date >> 9 >= 2038 - 1980;
    let seconds = if is_late { stored.into() } else { stored.cast_signed().into() };
    Time { seconds, nanoseconds: 0 }
}

/// Times of NTFS: four bytes of nothing, then attributes with tag and length; the first one has mtime, atime and the
/// time of creation.
fn ntfs_times(field: &[u8]) -> Option<Times> {
    let mut attributes = field.get(4..)?;
    while let Some((head, rest)) = attributes.split_at_checked(4) {
        let (value, rest) = rest.split_at_checked(u16_at(head, 2).into())?;
        if u16_at(head, 0) == 1 && value.len() >= 24 {
            return Some((file_time(u64_at(value, 0)), file_time(u64_at(value, 8))));
        }
        attributes = rest;
    }
    None
}

/// Version 1, then user and group, each a number with its length before it.
fn owner(field: &[u8]) -> Option<(u64, u64)> {
    let (&version, rest) = field.split_first()?;
    let (uid, rest) = sized(rest)?;
    let (gid, _) = sized(rest)?;
    (version == 1).then_some((uid, gid))
}

fn sized(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_at_checked(length.into())?;
    let mut whole = [0; 8];
    whole.get_mut(..number.len())?.copy_from_slice(number);
    Some((u64::from_le_bytes(whole), rest))
}

/// Version 1, the checksum `crc` of the name that it stands for, and the name.
fn unicode(field: &[u8], crc: u32) -> Option<&[u8]> {
    let (head, path) = field.split_at_checked(5)?;
    let is_of_it = head.first() == Some(&1) && u32_at(head, 1) == crc;
    (is_of_it && !path.is_empty() && std::str::from_utf8(path).is_ok()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(id: u16, bytes: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes()[..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
    }

    #[test]
    fn large_numbers_stand_only_for_those_that_are_missing() {
        let bytes = field(1, &[7_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat());
        let extra = Extra::read(&bytes, b"", 0);
        let numbers = |size, stored, offset| Some(Numbers { size, stored, offset });
        assert_eq!(extra.numbers(u32::MAX, 5, u32::MAX), numbers(7, 5, 8));
        assert_eq!(extra.numbers(1, u32::MAX, 3), numbers(1, 7, 3));
        assert_eq!(extra.numbers(u32::MAX, u32::MAX, u32::MAX), None);
        let none = Extra::default();
        assert_eq!(none.numbers(u32::MAX, 1, 2), numbers(u32::MAX.into(), 1, 2));
    }

    #[test]
    fn of_several_times_the_finest_counts() {
        let extended = field(0x5455, &[&[3][..], &5_u32.to_le_bytes(), &6_u32.to_le_bytes()].concat());
        let ticks = (11_644_473_600_u64 + 9) * 10_000_000 + 1;
        let ntfs = field(
            0x000a,
            &[&[0, 0, 0, 0, 1, 0, 24, 0][..], &ticks.to_le_bytes(), &0_u64.to_le_bytes(), &[0; 8]].concat(),
        );
        let time = |seconds, nanoseconds| Some(Time { seconds, nanoseconds });
        let bytes = [extended.clone(), ntfs].concat();
        let extra = Extra::read(&bytes, b"", 0);
        assert_eq!((extra.mtime, extra.atime), (time(9, 100), time(6, 0)));
        let old = field(0x5855, &[1_u32, u32::MAX].map(u32::to_le_bytes).concat());
        let extra = Extra::read(&old, b"", 0);
        assert_eq!((extra.mtime, extra.atime), (time(-1, 0), time(1, 0)));
        // A date of 2040 says that the sign is none.
        let late = field(0x5455, &[&[1][..], &0x8400_0000_u32.to_le_bytes()].concat());
        assert_eq!(Extra::read(&late, b"", 60 << 9).mtime, time(0x8400_0000, 0));
    }

    #[test]
    fn owners_and_names_and_what_is_broken() {
        let new = field(0x7875, &[1, 4, 1, 0, 1, 0, 2, 5, 0]);
        let old = field(0x7855, &[9, 0, 8, 0]);
        assert_eq!(Extra::read(&[new, old.clone()].concat(), b"", 0).owner, Some((0x10001, 5)));
        assert_eq!(Extra::read(&old, b"", 0).owner, Some((9, 8)));
        let path = |of: &[u8]| field(0x7075, &[&[1][..], &crc32fast::hash(of).to_le_bytes(), "ä".as_bytes()].concat());
        assert_eq!(Extra::read(&path(b"\x84"), b"\x84", 0).unicode_path, Some("ä".as_bytes()));
        assert_eq!(Extra::read(&path(b"other"), b"\x84", 0).unicode_path, None);
        let both = [path(b"other"), path(b"\x84")].concat();
        assert_eq!(Extra::read(&both, b"\x84", 0).unicode_path, Some("ä".as_bytes()));
        for broken in [&[0x75, 0x78, 200, 0, 1][..], &[0x75, 0x78, 3, 0, 1, 200, 1], &[1], &[0; 7]] {
            assert_eq!(Extra::read(broken, b"", 0).owner, None);
        }
    }
}
