//! What a tree says of a node, in the kernel's terms, and what the kernel wants of one, in the tree's.

use std::time::SystemTime;

use tarnfs_tree::edit::{self, Change, Space};
use tarnfs_tree::{Attributes, Device, Kind, Time, Totals, Tree};

use crate::options::Overrides;
use crate::protocol::{self, Stamp};

/// The one unit of `statfs`, so that programs that confuse fragment and block size are right too.
const STATFS_UNIT: u32 = 512;

/// `NAME_MAX`.
const LONGEST_NAME: u32 = 255;

/// The kernel's form of what `tree` says of a node. Of what is there to control the mount, owner and mode are who may
/// do so, whatever else the mount shows of others.
pub(crate) fn shown(tree: &dyn Tree, attributes: &Attributes, overrides: Overrides) -> protocol::Attributes {
    let is_own = tree.edit().is_some_and(|edit| edit.is_own(attributes.node));
    to_kernel(attributes, if is_own { Overrides::default() } else { overrides })
}

/// The kernel's form of `attributes`.
fn to_kernel(attributes: &Attributes, overrides: Overrides) -> protocol::Attributes {
    let (kind, device) = kind(attributes.kind);
    protocol::Attributes {
        node: attributes.node.0,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        mode: kind | (attributes.mode & 0o7777 & !overrides.umask),
        links: attributes.links,
        uid: overrides.uid.unwrap_or(attributes.uid),
        gid: overrides.gid.unwrap_or(attributes.gid),
        device,
    }
}

/// The room of a tree in which something can be made.
pub(crate) fn room(space: Space) -> protocol::Totals {
    let Space { unit, blocks, free, available, nodes, free_nodes } = space;
    protocol::Totals { blocks, free, available, nodes, free_nodes, unit, longest_name: LONGEST_NAME }
}

/// That of a tree which is full.
pub(crate) fn full(totals: &Totals) -> protocol::Totals {
    protocol::Totals {
        blocks: totals.bytes.div_ceil(u64::from(STATFS_UNIT)),
        free: 0,
        available: 0,
        nodes: totals.nodes,
        free_nodes: 0,
        unit: STATFS_UNIT,
        longest_name: LONGEST_NAME,
    }
}

/// The value of the extended attribute `name`: of an ACL, nobody gets what the umask takes from the mode.
pub(crate) fn masked(name: &[u8], mut value: Vec<u8>, umask: u32) -> Vec<u8> {
    /// Bytes of the version before all entries, and of each entry: tag, permissions, who (`linux/posix_acl_xattr.h`).
    const HEAD: usize = 4;
    const ENTRY: usize = 8;
    const OWNER: u16 = 0x01;
    const OTHERS: u16 = 0x20;
    if umask == 0 || !matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default") {
        return value;
    }
    for entry in value.get_mut(HEAD..).unwrap_or_default().chunks_exact_mut(ENTRY) {
        if let [tag, tag_high, permissions, ..] = entry {
            let shift = match u16::from_le_bytes([*tag, *tag_high]) {
                OWNER => 6,
                OTHERS => 0,
                // Groups, people with a name, and the mask of what they get.
                _ => 3,
            };
            *permissions &= !((umask >> shift & 7) as u8);
        }
    }
    value
}

/// Attributes of which only number and kind matter: for `.` and `..`, and with number 0 for a name that is not there.
pub(crate) fn bare_folder(node: u64) -> protocol::Attributes {
    protocol::Attributes { node, mode: kind(Kind::Folder).0 | 0o755, links: 2, ..protocol::Attributes::default() }
}

/// Kind, as in the mode of a file (`inode(7)`), and device number.
fn kind(kind: Kind) -> (u32, u32) {
    match kind {
        // A tree resolves hard links; a stray one is still a file.
        Kind::File | Kind::HardLink => (0o100_000, 0),
        Kind::Folder => (0o040_000, 0),
        Kind::Symlink => (0o120_000, 0),
        Kind::CharacterDevice(number) => (0o020_000, device(number)),
        Kind::BlockDevice(number) => (0o060_000, device(number)),
        Kind::Fifo => (0o010_000, 0),
        Kind::Socket => (0o140_000, 0),
    }
}

/// As `new_encode_dev` of the kernel's `kdev_t.h`: 12 bits of major number around 20 bits of minor number. Larger
/// numbers cannot be said.
fn device(Device { major, minor }: Device) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// The inverse of [`device`], `new_decode_dev`.
fn device_of(number: u32) -> Device {
    Device { major: number >> 8 & 0xfff, minor: (number & 0xff) | (number >> 12 & 0xf_ff00) }
}

/// The inverse of [`kind`].
fn kind_of(mode: u32, number: u32) -> Option<Kind> {
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => Kind::File,
        0o040_000 => Kind::Folder,
        0o120_000 => Kind::Symlink,
        0o020_000 => Kind::CharacterDevice(device_of(number)),
        0o060_000 => Kind::BlockDevice(device_of(number)),
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        _ => return None,
    })
}

/// What is to be made, in the tree's terms; `None` if there is nothing of its kind.
pub(crate) fn new(new: protocol::New<'_>) -> Option<edit::New> {
    let kind = kind_of(new.mode, new.device)?;
    let protocol::New { mode, umask, user: uid, group: gid, target, .. } = new;
    Some(edit::New { kind, mode: mode & 0o7777, umask, uid, gid, target: target.to_vec() })
}

/// What is to be changed, in the tree's terms.
pub(crate) fn change(change: protocol::Change) -> Change {
    let protocol::Change { mode, uid, gid, size, atime, mtime } = change;
    let mode = mode.map(|mode| mode & 0o7777);
    Change { mode, uid, gid, size, atime: atime.map(time_of), mtime: mtime.map(time_of) }
}

fn time_of(stamp: Stamp) -> Time {
    match stamp {
        Stamp::At(seconds, nanoseconds) => Time { seconds, nanoseconds: nanoseconds.min(999_999_999) },
        Stamp::Now => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
        }
    }
}

/// Seconds, and nanoseconds of which the kernel believes less than a second.
fn time(Time { seconds, nanoseconds }: Time) -> (i64, u32) {
    (seconds, nanoseconds.min(999_999_999))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_holds_for_everybody_whom_an_acl_names() {
        let acl = |permissions: [u8; 6]| {
            let tags = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20];
            let entries = tags.iter().zip(permissions).flat_map(|(&tag, bits)| [tag, 0, bits, 0, 7, 0, 0, 0]);
            [2, 0, 0, 0].into_iter().chain(entries).collect::<Vec<u8>>()
        };
        for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
            assert_eq!(masked(name, acl([7; 6]), 0o137), acl([6, 4, 4, 4, 4, 0]));
            assert_eq!(masked(name, acl([7; 6]), 0), acl([7; 6]));
            // What is no ACL stays as it is.
            assert_eq!(masked(name, vec![2, 0, 0], 0o777), [2, 0, 0]);
        }
        assert_eq!(masked(b"user.x", acl([7; 6]), 0o777), acl([7; 6]));
    }

    #[test]
    fn modes_are_those_of_inode_7() {
        let device = Device { major: 8, minor: 1 };
        for (of, mode) in [
            (Kind::File, libc_mode(b'-')),
            (Kind::HardLink, libc_mode(b'-')),
            (Kind::Folder, libc_mode(b'd')),
            (Kind::Symlink, libc_mode(b'l')),
            (Kind::CharacterDevice(device), libc_mode(b'c')),
            (Kind::BlockDevice(device), libc_mode(b'b')),
            (Kind::Fifo, libc_mode(b'p')),
            (Kind::Socket, libc_mode(b's')),
        ] {
            let is_device = matches!(of, Kind::CharacterDevice(_) | Kind::BlockDevice(_));
            assert_eq!(kind(of), (mode, if is_device { 0x801 } else { 0 }), "{of:?}");
            let back = if of == Kind::HardLink { Kind::File } else { of };
            assert_eq!(kind_of(mode | 0o7777, 0x801), Some(back));
        }
        let folder = bare_folder(77);
        assert_eq!((folder.node, folder.mode, folder.links, folder.size), (77, libc_mode(b'd') | 0o755, 2, 0));
        assert_eq!(
            (time(Time { seconds: -5, nanoseconds: 7 }), time(Time { seconds: 1, nanoseconds: 1 << 30 })),
            ((-5, 7), (1, 999_999_999))
        );
    }

    /// The bits of what `ls` shows with this letter.
    fn libc_mode(letter: u8) -> u32 {
        use rustix::fs::FileType;
        let kind = match letter {
            b'd' => FileType::Directory,
            b'l' => FileType::Symlink,
            b'c' => FileType::CharacterDevice,
            b'b' => FileType::BlockDevice,
            b'p' => FileType::Fifo,
            b's' => FileType::Socket,
            _ => FileType::RegularFile,
        };
        kind.as_raw_mode()
    }

    #[test]
    fn device_numbers_beyond_8_bits() {
        assert_eq!(device(Device { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(Device { major: 0xabc, minor: 0xf_edcb }), 0xfeda_bccb);
        assert_eq!(device_of(0xfeda_bccb), Device { major: 0xabc, minor: 0xf_edcb });
        assert_eq!(kind_of(0o110_000, 0), None);
    }
}
