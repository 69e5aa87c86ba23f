//! What a tree says of a node, in the kernel's terms.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use tarnfs_tree::{Attributes, Device, Kind, Time};

use crate::options::Overrides;

/// What programs are told to read at once. They have the page cache before them: larger buffers only cost memory.
const BLOCK_SIZE: u32 = 4096;

/// The kernel's form of `attributes`.
pub(crate) fn to_kernel(attributes: &Attributes, overrides: Overrides) -> FileAttr {
    let (kind, device) = kind(attributes.kind);
    FileAttr {
        ino: INodeNo(attributes.node.0),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (attributes.mode & 0o7777 & !overrides.umask) as u16,
        nlink: attributes.links,
        uid: overrides.uid.unwrap_or(attributes.uid),
        gid: overrides.gid.unwrap_or(attributes.gid),
        rdev: device,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Attributes of which only number and kind matter: for `.` and `..`, and with number 0 for a name that is not there.
pub(crate) fn bare_folder(node: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Kind and device number.
pub(crate) fn kind(kind: Kind) -> (FileType, u32) {
    match kind {
        // A tree resolves hard links; a stray one is still a file.
        Kind::File | Kind::HardLink => (FileType::RegularFile, 0),
        Kind::Folder => (FileType::Directory, 0),
        Kind::Symlink => (FileType::Symlink, 0),
        Kind::CharacterDevice(number) => (FileType::CharDevice, device(number)),
        Kind::BlockDevice(number) => (FileType::BlockDevice, device(number)),
        Kind::Fifo => (FileType::NamedPipe, 0),
        Kind::Socket => (FileType::Socket, 0),
    }
}

/// As `new_encode_dev` of the kernel's `kdev_t.h`: 12 bits of major number around 20 bits of minor number. Larger numbers cannot be said.
fn device(Device { major, minor }: Device) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

fn time(Time { seconds, nanoseconds }: Time) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second =
        if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(u64::from(nanoseconds.min(999_999_999)))))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_at_the_ends_of_the_range() {
        let at = |seconds, nanoseconds| time(Time { seconds, nanoseconds });
        assert_eq!(at(0, 0), SystemTime::UNIX_EPOCH);
        assert_eq!(at(-2, 800_000_000), SystemTime::UNIX_EPOCH - Duration::from_millis(1200));
        assert_eq!(at(i64::MAX, 1).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), i64::MAX as u64);
        assert!(at(i64::MIN, 0) < SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn device_numbers_beyond_8_bits() {
        assert_eq!(device(Device { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(Device { major: 0xabc, minor: 0xf_edcb }), 0xfeda_bccb);
    }
}
