//! What a tree says of a node, in the kernel's terms.

use tarnfs_tree::{Attributes, Device, Kind, Time};

use crate::options::Overrides;
use crate::protocol;

/// The kernel's form of `attributes`.
pub(crate) fn to_kernel(attributes: &Attributes, overrides: Overrides) -> protocol::Attributes {
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

/// As `new_encode_dev` of the kernel's `kdev_t.h`: 12 bits of major number around 20 bits of minor number. Larger numbers cannot be said.
fn device(Device { major, minor }: Device) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// Seconds, and nanoseconds of which the kernel believes less than a second.
fn time(Time { seconds, nanoseconds }: Time) -> (i64, u32) {
    (seconds, nanoseconds.min(999_999_999))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_beyond_8_bits() {
        assert_eq!(device(Device { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(Device { major: 0xabc, minor: 0xf_edcb }), 0xfeda_bccb);
    }
}
