//! Headers of RAR 1.5 to 4, from public descriptions.

use super::fields::Fields;
use super::file::{File, of_unix, of_windows};
use super::names;
use super::walk::{Block, Header};
use crate::time::dos_time;

/// Bytes of the shortest header.
pub(super) const LEAST: usize = 7;

const MAIN: u8 = 0x73;
const FILE: u8 = 0x74;
const OLD_SERVICE: u8 = 0x77;
const SERVICE: u8 = 0x7A;
const END: u8 = 0x7B;

/// What old services are of. Attributes of OS/2, Macintosh and BeOS are shown nowhere.
const OS2_ATTRIBUTES: u16 = 0x100;
const UNIX_OWNERS: u16 = 0x101;
const MAC_ATTRIBUTES: u16 = 0x102;
const BEOS_ATTRIBUTES: u16 = 0x103;
const ACCESS_LIST: u16 = 0x104;
const STREAM: u16 = 0x105;

/// Bytes of the main header without what some programs have put into it.
const LENGTH_OF_MAIN: usize = 13;

/// Versions before 3.0 have a comment in the header of what it is on.
const MAIN_COMMENT: u16 = 2;
const FILE_COMMENT: u16 = 8;

/// Bytes of the header that begins so.
pub(super) fn length(head: &[u8]) -> Option<usize> {
    let length = usize::from(Fields(head.get(5..)?).u16()?);
    Some(length).filter(|length| *length >= LEAST)
}

/// True if its checksum is right: the lower half of a CRC-32. Comments in a header are not in it.
pub(super) fn is_whole(header: &[u8]) -> bool {
    let Some((sum, rest)) = header.split_first_chunk::<2>() else { return false };
    let is_right = |bytes: &[u8]| crc32fast::hash(bytes) as u16 == u16::from_le_bytes(*sum);
    let without_comment = match *rest {
        [MAIN, flags, ..] if flags & 2 != 0 => header.get(2..LENGTH_OF_MAIN),
        [FILE, flags, ..] if flags & 8 != 0 => {
            let left = Fields(rest).skipped_file();
            left.and_then(|left| rest.get(..rest.len().checked_sub(left)?))
        }
        _ => None,
    };
    // Of what signs an archive, old versions had none.
    is_right(rest) || without_comment.is_some_and(is_right) || rest.first() == Some(&0x79)
}

impl Fields<'_> {
    /// Bytes behind all that a header of a file has, from its kind on.
    fn skipped_file(mut self) -> Option<usize> {
        self.u8()?;
        let flags = self.u16()?;
        self.u16()?;
        parse_file(&mut self, flags, false)?;
        Some(self.0.len())
    }
}

/// A header whose checksum is right.
pub(super) fn parse(header: &[u8]) -> Option<Header> {
    let mut fields = Fields(header);
    let (_sum, kind, flags, _length) = (fields.u16()?, fields.u8()?, fields.u16()?, fields.u16()?);
    let has_data = matches!(kind, FILE | SERVICE) || flags & 0x8000 != 0;
    let mut behind = fields;
    let length = if has_data { u64::from(behind.u32()?) } else { 0 };
    let plain = |block| Some(Header { block, length });
    match kind {
        MAIN => {
            let locks = (flags & 0x80 != 0).then(|| vec![0]);
            let has_comment = flags & MAIN_COMMENT != 0;
            plain(Block::Main { is_volume: flags & 1 != 0, is_solid: flags & 8 != 0, locks, has_comment })
        }
        FILE | SERVICE => {
            let (mut file, length) = parse_file(&mut fields, flags, kind == SERVICE)?;
            (file.is_continued, file.goes_on) = (flags & 1 != 0, flags & 2 != 0);
            file.has_comment = flags & FILE_COMMENT != 0;
            let block = if kind == FILE { Block::File(Box::new(file)) } else { Block::Service(Box::new(file)) };
            Some(Header { block, length })
        }
        OLD_SERVICE => {
            // Of these, owners on Unix: a level, the lengths of both names, and these.
            let (what, _level) = (behind.u16()?, behind.u8()?);
            match what {
                UNIX_OWNERS => {}
                ACCESS_LIST | STREAM | OS2_ATTRIBUTES | MAC_ATTRIBUTES | BEOS_ATTRIBUTES => {
                    return plain(Block::LeftOut);
                }
                _ => return plain(Block::Other),
            }
            let (user, group) = (behind.u16()?, behind.u16()?);
            let (user, group) = (behind.bytes(user.into())?.to_vec(), behind.bytes(group.into())?.to_vec());
            plain(Block::Owner { user, group })
        }
        END => plain(Block::End { is_followed: flags & 1 != 0 }),
        _ => plain(Block::Other),
    }
}

/// A file, or what belongs to one, and how many bytes are stored.
fn parse_file(fields: &mut Fields<'_>, flags: u16, is_service: bool) -> Option<(File, u64)> {
    /// Versions before 2.0 have one flag for all files.
    const HAS_SOLID_FLAG: u8 = 20;
    const SALT: usize = 8;
    let (mut stored, mut size) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
    let (host, crc) = (fields.u8()?, fields.u32()?);
    let (time, date) = (fields.u16()?, fields.u16()?);
    let (version, method, name) = (fields.u8()?, fields.u8()?, fields.u16()?);
    let attributes = fields.u32()?;
    let is_unknown = size == u64::from(u32::MAX) && flags & 0x100 == 0;
    if flags & 0x100 != 0 {
        stored |= u64::from(fields.u32()?) << 32;
        size |= u64::from(fields.u32()?) << 32;
    }
    let name = fields.bytes(name.into())?;
    let salt = if flags & 0x400 != 0 { SALT } else { 0 };
    // A file has nothing there.
    let beside = if is_service { fields.bytes(fields.0.len().checked_sub(salt)?)? } else { &[] };
    fields.bytes(salt)?;
    let path = if flags & 0x200 != 0 { names::of_four(name) } else { name.to_vec() };
    let is_folder = flags & 0xE0 == 0xE0;
    // Unix and BeOS.
    let is_unix = matches!(host, 3 | 5);
    let (kind, mode) =
        if is_unix { of_unix(attributes, is_folder) } else { of_windows(attributes, is_folder && version >= 20) };
    let mut file = File {
        path,
        kind,
        mode,
        mtime: dos_time(date, time),
        size: Some(size).filter(|_| !is_unknown),
        is_stored: method == 0x30,
        is_solid: version >= HAS_SOLID_FLAG && flags & 0x10 != 0,
        is_as_archive: version < HAS_SOLID_FLAG,
        is_encrypted: flags & 4 != 0,
        crc: Some(crc),
        beside: beside.to_vec(),
        ..File::default()
    };
    if flags & 0x1000 != 0 && !is_service {
        // What is wrong with them leaves the time as it was.
        let _ = extended_times(fields, &mut file);
    }
    Some((file, stored))
}

/// Times to 100 ns: of change, of creation, of access, of archiving. Each has four bits: whether there is one, whether
/// it is a second later than the time of DOS, and how many bytes tell the rest.
fn extended_times(fields: &mut Fields<'_>, file: &mut File) -> Option<()> {
    let flags = fields.u16()?;
    for (number, shift) in [12, 8, 4, 0].into_iter().enumerate() {
        let how = flags >> shift & 15;
        if how & 8 == 0 {
            continue;
        }
        let mut time = if number == 0 {
            file.mtime
        } else {
            let (time, date) = (fields.u16()?, fields.u16()?);
            dos_time(date, time)
        };
        time.seconds = time.seconds.saturating_add(i64::from(how >> 2 & 1));
        let mut ticks = 0_u32;
        for _ in 0..how & 3 {
            ticks = ticks >> 8 | u32::from(fields.u8()?) << 16;
        }
        time.nanoseconds = ticks.saturating_mul(100).min(999_999_900);
        match number {
            0 => file.mtime = time,
            2 => file.atime = Some(time),
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    /// A header with its length, and no checksum.
    fn header(kind: u8, flags: u16, fields: &[u8]) -> Vec<u8> {
        let length = (fields.len() + 7) as u16;
        [&[0, 0, kind][..], &flags.to_le_bytes(), &length.to_le_bytes(), fields].concat()
    }

    #[test]
    fn old_services_tell_owners_and_what_is_left_out() {
        let owner = |what: u16| {
            let fields = [&[0; 4][..], &what.to_le_bytes(), &[0, 4, 0, 5, 0], b"jane", b"users"].concat();
            parse(&header(OLD_SERVICE, 0x8000, &fields)).unwrap().block
        };
        assert!(matches!(owner(UNIX_OWNERS), Block::Owner { user, group } if user == b"jane" && group == b"users"));
        assert!(matches!(owner(STREAM), Block::LeftOut) && matches!(owner(ACCESS_LIST), Block::LeftOut));
        for what in [OS2_ATTRIBUTES, MAC_ATTRIBUTES, BEOS_ATTRIBUTES] {
            assert!(matches!(owner(what), Block::LeftOut));
        }
        assert!(matches!(owner(0x106), Block::Other));
    }

    #[test]
    fn what_belongs_to_a_file_has_more_behind_its_name() {
        let mut fields = [0; 25];
        fields[4] = 5;
        fields[19..21].copy_from_slice(&[3, 0]);
        for (kind, salt, expected) in [(SERVICE, &[][..], &b"jane\0users"[..]), (SERVICE, &[9; 8], b"jane\0users")] {
            let flags = if salt.is_empty() { 0 } else { 0x400 };
            let whole = header(kind, flags, &[&fields[..], b"UOW", b"jane\0users", salt].concat());
            let Block::Service(service) = parse(&whole).unwrap().block else { panic!("it is a service") };
            assert_eq!((&service.path[..], &service.beside[..]), (&b"UOW"[..], expected));
        }
        // Of Unix.
        fields[8] = 3;
        let whole = header(FILE, 0, &[&fields[..], b"a\\b", b"rest"].concat());
        let Block::File(file) = parse(&whole).unwrap().block else { panic!("it is a file") };
        assert_eq!((&file.path[..], &file.beside[..]), (&b"a\\b"[..], &b""[..]));
    }

    #[test]
    fn paths_are_as_they_are_stored_on_every_system() {
        let name = b"dir\\file.txt";
        for host in [0, 2, 3, 5] {
            let mut bytes = [7_u32.to_le_bytes(), 7_u32.to_le_bytes()].concat();
            bytes.push(host);
            bytes.extend([0; 8]);
            bytes.extend([29, 0x30, name.len() as u8, 0]);
            bytes.extend(0o100_644_u32.to_le_bytes());
            bytes.extend(name);
            let (file, stored) = parse_file(&mut Fields(&bytes), 0x8000, false).unwrap();
            assert_eq!((&file.path[..], stored), (&name[..], 7), "host {host}");
        }
    }

    #[test]
    fn times_go_down_to_100_ns() {
        let mut file = File { mtime: Time { seconds: 10, nanoseconds: 0 }, ..File::default() };
        // A second more, three bytes; no creation; access with one byte.
        let mut fields = Fields(&[0x90, 0xF0, 0x40, 0x42, 0x0F, 0x21, 0x00, 0x21, 0x00, 0x01]);
        extended_times(&mut fields, &mut file).unwrap();
        assert_eq!(file.mtime, Time { seconds: 11, nanoseconds: 100_000_000 });
        assert_eq!(file.atime.map(|time| time.nanoseconds), Some(0x1_0000 * 100));
        assert!(fields.0.is_empty());
    }
}
