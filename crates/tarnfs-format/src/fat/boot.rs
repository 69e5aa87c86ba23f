//! The boot sector of FAT (Microsoft's FAT32 File System Specification 1.03; Linux: include/uapi/linux/msdos_fs.h).

use crate::clusters::{Clusters, RECORD, Root, Width};
use crate::little::{u16_at, u32_at};

/// Bytes that are looked at.
pub(super) const LENGTH: usize = 512;

/// Clusters that a table of 12 and of 16 bits has at most.
const OF_TWELVE: u64 = 4084;
const OF_SIXTEEN: u64 = 65_524;
const OF_TWENTY_EIGHT: u64 = 0x0fff_fff4;

/// What a boot sector says.
#[derive(Debug, Clone)]
pub(super) struct Boot {
    pub(super) clusters: Clusters,
    pub(super) root: Root,
    /// Bytes of the whole.
    pub(super) length: u64,
}

/// What the boot sector `bytes` says, if it is one: all numbers are possible together, and two of three marks are
/// there. `show` shows bytes elsewhere.
pub(super) fn parse(bytes: &[u8], show: impl Fn(u64, usize) -> Vec<u8>) -> Option<Boot> {
    let bytes = bytes.get(..LENGTH)?;
    let (byte, half, word) = (|at: usize| bytes.get(at).copied(), |at| u16_at(bytes, at), |at| u32_at(bytes, at));
    if !matches!(bytes, [0xeb, _, 0x90, ..] | [0xe9, ..]) {
        return None;
    }
    let (sector, of_cluster) = (u64::from(half(11)?), u64::from(byte(13)?));
    let (reserved, tables) = (u64::from(half(14)?), u64::from(byte(16)?));
    let (records, media) = (u64::from(half(17)?), byte(21)?);
    let sectors = match half(19)? {
        0 => u64::from(word(32)?),
        few => few.into(),
    };
    let (of_table, is_wide) = match half(22)? {
        0 => (u64::from(word(36)?), true),
        few => (few.into(), false),
    };
    let of_root = records.checked_mul(RECORD as u64)?;
    let is_possible = matches!(sector, 512 | 1024 | 2048 | 4096)
        && of_cluster.is_power_of_two()
        && reserved > 0
        && (1..=4).contains(&tables)
        && matches!(media, 0xf0 | 0xf8..)
        && of_root.is_multiple_of(sector)
        && of_table > 0
        // Its version has to be 0.
        && (if is_wide { records == 0 && half(42)? == 0 } else { records > 0 });
    if !is_possible {
        return None;
    }
    let root = tables.checked_mul(of_table)?.checked_add(reserved)?;
    let first = root.checked_add(of_root.checked_div(sector)?)?;
    let count = sectors.checked_sub(first)?.checked_div(of_cluster)?;
    let (width, bits, most) = if is_wide {
        (Width::TwentyEight, 32, OF_TWENTY_EIGHT)
    } else if count <= OF_TWELVE {
        (Width::Twelve, 12, OF_TWELVE)
    } else {
        (Width::Sixteen, 16, OF_SIXTEEN)
    };
    // Two numbers of the table are of no cluster.
    let in_table = of_table.checked_mul(sector)?.checked_mul(8)?.checked_div(bits)?;
    if count == 0 || count > most || count.checked_add(2)? > in_table {
        return None;
    }
    let flags = if is_wide { half(40)? } else { 0 };
    // One table may be used instead of all.
    let used = if flags & 0x80 == 0 { 0 } else { u64::from(flags & 0x0f) };
    if used >= tables {
        return None;
    }
    let table = used.checked_mul(of_table)?.checked_add(reserved)?.checked_mul(sector)?;
    let is_marked = bytes.ends_with(&[0x55, 0xaa]);
    let is_named = bytes.get(if is_wide { 82.. } else { 54.. })?.starts_with(b"FAT");
    let has_media =
        matches!(show(table, 3)[..], [first, 0xff, third] if first == media && (third == 0xff || bits == 32));
    if u32::from(is_marked).checked_add(is_named.into())?.checked_add(has_media.into())? < 2 {
        return None;
    }
    let clusters = Clusters {
        width,
        table,
        start: first.checked_mul(sector)?,
        length: of_cluster.checked_mul(sector)?,
        count: u32::try_from(count).ok()?,
    };
    let root = if is_wide { Root::Cluster(word(44)?) } else { Root::At(root.checked_mul(sector)?, of_root) };
    if matches!(root, Root::Cluster(first) if !clusters.has(first)) {
        return None;
    }
    Some(Boot { clusters, root, length: sectors.checked_mul(sector)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mkfs.fat writes it to a disk of 1.44 MB.
    fn floppy() -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        bytes[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
        bytes[3..11].copy_from_slice(b"mkfs.fat");
        bytes[11..24].copy_from_slice(&[0, 2, 1, 1, 0, 2, 224, 0, 0x40, 0x0b, 0xf0, 9, 0]);
        bytes[54..62].copy_from_slice(b"FAT12   ");
        bytes[510..].copy_from_slice(&[0x55, 0xaa]);
        bytes
    }

    #[test]
    fn a_boot_sector_has_numbers_that_fit_each_other() {
        let nothing = |_: u64, _: usize| Vec::new();
        let boot = parse(&floppy(), nothing).unwrap();
        assert_eq!((boot.clusters.width, boot.clusters.count, boot.length), (Width::Twelve, 2847, 1_474_560));
        assert_eq!((boot.clusters.table, boot.clusters.start), (512, 33 * 512));
        for (at, bytes) in [
            (0, &[0xff][..]),
            (11, &[1]),
            (13, &[3]),
            (14, &[0, 0]),
            (16, &[0]),
            (16, &[9]),
            (17, &[1, 0]),
            (19, &[9, 0]),
            (21, &[0xf1]),
            (22, &[1, 0]),
            (22, &[0, 0]),
        ] {
            let mut changed = floppy();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            assert!(parse(&changed, nothing).is_none(), "byte {at}");
        }
        // One mark may be missing.
        let mut unmarked = floppy();
        unmarked[510] = 0;
        assert!(parse(&unmarked, nothing).is_none());
        assert!(parse(&unmarked, |_, _| vec![0xf0, 0xff, 0xff]).is_some());
        assert!(parse(&unmarked, |_, _| vec![0xf8, 0xff, 0xff]).is_none());
        assert!(parse(&floppy()[..511], nothing).is_none());
    }
}
