//! What the catalogue says of files and folders, and what names are on Linux.

use super::volume::Fork;
use crate::Time;
use crate::big::{u16_at, u32_at};

/// Seconds from 1904 to 1970.
const FROM_1904: i64 = 2_082_844_800;

/// Bytes of a record, of a folder and of a file.
const FOLDER: usize = 88;
const FILE: usize = 248;

/// Flags of a record: it has extended attributes; others lead to the same folder.
const HAS_ATTRIBUTES: u16 = 1 << 2;
const HAS_OTHERS: u16 = 1 << 5;

/// What a key of the catalogue is: a folder, and a name in it.
pub(super) fn key(key: &[u8]) -> Option<(u32, Vec<u16>)> {
    Some((u32_at(key, 2)?, units(key, 6)?))
}

/// A text: the number of its units, and these.
pub(super) fn units(bytes: &[u8], at: usize) -> Option<Vec<u16>> {
    let length = usize::from(u16_at(bytes, at)?).checked_mul(2)?;
    let start = at.checked_add(2)?;
    let bytes = bytes.get(start..start.checked_add(length)?)?;
    Some(bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit)).collect())
}

/// A name as Linux can have it: macOS shows a slash as a colon, and the kernel a zero as its picture.
pub(super) fn name(units: &[u16]) -> Vec<u8> {
    let characters = char::decode_utf16(units.iter().copied()).map(|one| match one {
        Ok('/') => ':',
        Ok('\0') => '\u{2400}',
        Ok(one) => one,
        Err(_) => char::REPLACEMENT_CHARACTER,
    });
    let name: String = characters.collect();
    if matches!(&name[..], "." | "..") { format!("{name}_").into_bytes() } else { name.into_bytes() }
}

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) id: u32,
    pub(super) is_folder: bool,
    pub(super) mtime: Time,
    pub(super) ctime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    /// What the record says with bits of its own.
    flags: u16,
    /// macOS has compressed it.
    pub(super) is_compressed: bool,
    /// The number of a device, or of the file that this is a name of.
    pub(super) special: u32,
    /// Type and creator, and what else the Finder keeps.
    pub(super) finder: Vec<u8>,
    pub(super) data: Fork,
    pub(super) resource: Fork,
}

fn time(seconds: u32) -> Option<Time> {
    (seconds != 0).then(|| Time { seconds: i64::from(seconds).saturating_sub(FROM_1904), nanoseconds: 0 })
}

impl File {
    /// A record of the catalogue; `None` for those that lead back to a folder, and for what is cut.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let kind = u16_at(data, 0).filter(|kind| matches!(kind, 1 | 2))?;
        let is_folder = kind == 1;
        data.get(..if is_folder { FOLDER } else { FILE })?;
        let fork = |at: usize| if is_folder { Some(Fork::default()) } else { Fork::read(data, at) };
        Some(Self {
            id: u32_at(data, 8)?,
            is_folder,
            flags: u16_at(data, 2)?,
            mtime: time(u32_at(data, 16)?).unwrap_or_default(),
            ctime: time(u32_at(data, 20)?),
            atime: time(u32_at(data, 24)?),
            uid: u32_at(data, 32)?,
            gid: u32_at(data, 36)?,
            is_compressed: data.get(41)? & 0x20 != 0,
            mode: u16_at(data, 42)?,
            special: u32_at(data, 44)?,
            finder: data.get(48..80)?.to_vec(),
            data: fork(88)?,
            resource: fork(88_usize.saturating_add(super::volume::FORK))?,
        })
    }

    /// True if it has extended attributes.
    pub(super) fn has_attributes(&self) -> bool {
        self.flags & HAS_ATTRIBUTES != 0
    }

    /// True of a name of a file that lies elsewhere.
    pub(super) fn is_link(&self) -> bool {
        !self.is_folder && self.finder.starts_with(b"hlnkhfs+")
    }

    /// The same of a folder. Finder's alias of a folder is a file that only looks like it.
    pub(super) fn is_folder_link(&self) -> bool {
        !self.is_folder && self.flags & HAS_OTHERS != 0 && self.finder.starts_with(b"fdrpMACS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_linux_can_have() {
        let told = |text: &str| String::from_utf8(name(&text.encode_utf16().collect::<Vec<_>>())).unwrap();
        assert_eq!(
            (told("a/b"), told("x\0"), told(".."), told("é")),
            ("a:b".into(), "x\u{2400}".into(), ".._".into(), "é".into())
        );
        assert_eq!(units(&[0, 1, 0, 65, 9], 0), Some(vec![65]));
        assert_eq!(units(&[0, 2, 0, 65], 0), None);
        assert_eq!(key(&[0, 8, 0, 0, 0, 2, 0, 1, 0, 66]), Some((2, vec![66])));
    }

    #[test]
    fn files_are_taken_apart() {
        let mut data = vec![0; 248];
        (data[1], data[11], data[16], data[41], data[42], data[43]) = (2, 20, 0xc0, 0x20, 0x81, 0xa4);
        data[48..56].copy_from_slice(b"hlnkhfs+");
        (data[95], data[103], data[107], data[111]) = (9, 1, 50, 1);
        let file = File::read(&data).unwrap();
        assert_eq!((file.id, file.is_folder, file.is_compressed, file.mode), (20, false, true, 0o100_644));
        assert_eq!(file.mtime.seconds, 0xc000_0000 - FROM_1904);
        assert!(file.is_link() && !file.is_folder_link() && file.ctime.is_none());
        assert_eq!((file.data.length, file.data.blocks, file.data.extents.clone()), (9, 1, vec![(50, 1)]));
        data[48..56].copy_from_slice(b"fdrpMACS");
        let is_link = |flags: u8| {
            let mut data = data.clone();
            data[3] = flags;
            File::read(&data).unwrap().is_folder_link()
        };
        assert!(!is_link(2) && is_link(0x22));
        assert!(File::read(&data[..200]).is_none() && File::read(&[0, 3]).is_none());
    }
}
