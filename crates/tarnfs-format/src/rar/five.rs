//! Headers of RAR 5 and later (technote.htm of RAR, "RAR 5.0 archive format").

use super::fields::Fields;
use super::file::{File, of_unix, of_windows};
use super::names;
use super::walk::{Block, Header};
use crate::time::file_time;
use crate::{Kind, Time};

/// Bytes of the checksum, and of the longest length.
pub(super) const LEAST: usize = 4 + 3;
/// Bytes of a header at most: its length has three bytes.
const LONGEST: u64 = 2 << 20;

/// Bytes of the header that begins so, with its checksum and length.
pub(super) fn length(head: &[u8]) -> Option<usize> {
    let rest = head.get(4..)?;
    let mut fields = Fields(rest.get(..3).unwrap_or(rest));
    let before = fields.0.len();
    let length = fields.number().filter(|length| (1..=LONGEST).contains(length))?;
    let before = before.checked_sub(fields.0.len())?;
    usize::try_from(length).ok()?.checked_add(before)?.checked_add(4)
}

/// True if its checksum is right.
pub(super) fn is_whole(header: &[u8]) -> bool {
    header.split_first_chunk::<4>().is_some_and(|(sum, rest)| crc32fast::hash(rest) == u32::from_le_bytes(*sum))
}

/// A header whose checksum is right.
pub(super) fn parse(header: &[u8]) -> Option<Header> {
    let mut fields = Fields(header.get(4..)?);
    fields.number()?;
    let (kind, flags) = (fields.number()?, fields.number()?);
    let extra = if flags & 1 != 0 { usize::try_from(fields.number()?).ok()? } else { 0 };
    let length = if flags & 2 != 0 { fields.number()? } else { 0 };
    let (fields, extra) = fields.0.split_at_checked(fields.0.len().checked_sub(extra)?)?;
    let (mut fields, extra) = (Fields(fields), Fields(extra));
    let block = match kind {
        1 => {
            let flags = fields.number()?;
            Block::Main { is_volume: flags & 1 != 0, is_solid: flags & 4 != 0, locks: None, has_comment: false }
        }
        2 | 3 => {
            let mut file = file(fields, extra)?;
            (file.is_continued, file.goes_on) = (flags & 8 != 0, flags & 0x10 != 0);
            if kind == 2 { Block::File(Box::new(file)) } else { Block::Service(Box::new(file)) }
        }
        4 => {
            let (version, flags) = (fields.number()?, fields.number()?);
            let (rounds, salt) = (fields.u8()?, fields.bytes(16)?);
            // With a version that is not known, the keys are made in another way.
            let rounds = if version == 0 { rounds } else { u8::MAX };
            let check = if flags & 1 != 0 { fields.bytes(12)? } else { &[] };
            Block::Lock([&[rounds], salt, check].concat())
        }
        5 => Block::End { is_followed: fields.number()? & 1 != 0 },
        _ => Block::Other,
    };
    Some(Header { block, length })
}

fn file(mut fields: Fields<'_>, mut extra: Fields<'_>) -> Option<File> {
    let (flags, size, attributes) = (fields.number()?, fields.number()?, fields.number()?);
    let mut file = File { size: Some(size).filter(|_| flags & 8 == 0), ..File::default() };
    if flags & 2 != 0 {
        file.mtime = Time { seconds: fields.u32()?.into(), nanoseconds: 0 };
    }
    if flags & 4 != 0 {
        file.crc = Some(fields.u32()?);
    }
    let (compression, host) = (fields.number()?, fields.number()?);
    file.is_stored = compression & 0x380 == 0;
    file.is_solid = compression & 0x40 != 0;
    let is_folder = flags & 1 != 0;
    (file.kind, file.mode) =
        if host == 1 { of_unix(attributes as u32, is_folder) } else { of_windows(attributes as u32, is_folder) };
    file.path = names::of_five(fields.string()?);
    while !extra.0.is_empty() {
        let mut record = Fields(extra.string()?);
        record_of(record.number()?, record, &mut file);
    }
    if host == 0 {
        // The first versions on Windows wrote the path of an original as Windows does, where no name has a backslash.
        file.copy_of = file.copy_of.map(names::with_slashes);
        if file.kind == Kind::HardLink {
            file.link = names::with_slashes(file.link);
        }
    }
    // A folder in the archive's words is none only where a link stands for it.
    if is_folder && file.link.is_empty() {
        file.kind = Kind::Folder;
    }
    Some(file)
}

/// What is wrong in one record does not matter to the others.
fn record_of(kind: u64, mut fields: Fields<'_>, file: &mut File) -> Option<()> {
    match kind {
        1 => {
            file.is_encrypted = true;
            let (_version, flags) = (fields.number()?, fields.number()?);
            if flags & 2 != 0 {
                // It depends on the password.
                (file.crc, file.has_other_check) = (None, true);
            }
        }
        2 => file.has_other_check |= fields.number()? == 0,
        3 => times(fields, file)?,
        4 => {
            let (_flags, version) = (fields.number()?, fields.number()?);
            file.path.extend_from_slice(format!(";{version}").as_bytes());
        }
        5 => {
            let (kind, _flags) = (fields.number()?, fields.number()?);
            let target = names::of_five(fields.string()?);
            match kind {
                1 => (file.kind, file.link) = (Kind::Symlink, target),
                2 | 3 => {
                    let target = target.strip_prefix(b"\\??\\").unwrap_or(&target).to_vec();
                    (file.kind, file.link) = (Kind::Symlink, names::with_slashes(target));
                }
                4 => (file.kind, file.link) = (Kind::HardLink, target),
                5 => file.copy_of = Some(target),
                _ => {}
            }
        }
        6 => {
            let flags = fields.number()?;
            if flags & 1 != 0 {
                file.user = fields.string()?.to_vec();
            }
            if flags & 2 != 0 {
                file.group = fields.string()?.to_vec();
            }
            if flags & 4 != 0 {
                file.uid = fields.number()?;
            }
            if flags & 8 != 0 {
                file.gid = fields.number()?;
            }
        }
        7 => file.beside = fields.0.to_vec(),
        _ => {}
    }
    Some(())
}

/// Times of change, of creation, which has no place here, and of access: of Windows or of Unix, these perhaps with
/// nanoseconds behind all of them.
fn times(mut fields: Fields<'_>, file: &mut File) -> Option<()> {
    const IS_UNIX: u64 = 1;
    const HAS_NANOSECONDS: u64 = 0x10;
    const FLAGS: [u64; 3] = [2, 4, 8];
    const BELOW_SECOND: u32 = 1_000_000_000;
    let flags = fields.number()?;
    let mut times = [None; 3];
    for (time, _) in times.iter_mut().zip(FLAGS).filter(|(_, flag)| flags & flag != 0) {
        *time = if flags & IS_UNIX == 0 {
            file_time(fields.u64()?)
        } else {
            Some(Time { seconds: fields.u32()?.into(), nanoseconds: 0 })
        };
    }
    if flags & (IS_UNIX | HAS_NANOSECONDS) == IS_UNIX | HAS_NANOSECONDS {
        for time in times.iter_mut().flatten() {
            time.nanoseconds = fields.u32().filter(|part| *part < BELOW_SECOND).unwrap_or_default();
        }
    }
    let [modified, _created, accessed] = times;
    file.mtime = modified.unwrap_or(file.mtime);
    file.atime = accessed;
    Some(())
}
