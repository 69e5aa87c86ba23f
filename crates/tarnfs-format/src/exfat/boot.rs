//! The boot sector of exFAT (Microsoft's exFAT file system specification, section 3.1).

use crate::clusters::{Clusters, Width};
use crate::little::{u16_at, u32_at, u64_at};

/// Bytes that are looked at.
pub(super) const LENGTH: usize = 512;

const MARK: &[u8] = b"\xeb\x76\x90EXFAT   ";

/// Clusters that there are at most.
const MOST: u32 = u32::MAX - 10;

/// What a boot sector says.
#[derive(Debug, Clone)]
pub(super) struct Boot {
    pub(super) clusters: Clusters,
    /// The first cluster of the listing of the root.
    pub(super) root: u32,
    /// Bytes of the whole.
    pub(super) length: u64,
}

/// What the boot sector `bytes` says, if it is one.
pub(super) fn parse(bytes: &[u8]) -> Option<Boot> {
    let bytes = bytes.get(..LENGTH)?;
    let is_one = bytes.starts_with(MARK)
        && bytes.ends_with(&[0x55, 0xaa])
        && bytes.get(MARK.len()..64)?.iter().all(|byte| *byte == 0);
    let [sector @ 9..=12, cluster, tables @ 1..=2, ..] = *bytes.get(108..)? else { return None };
    let cluster = u32::from(cluster).checked_add(sector.into()).filter(|shift| *shift <= 25)?;
    if !is_one {
        return None;
    }
    let word = |at: usize| u32_at(bytes, at);
    let (of_table, count, root) = (word(84)?, word(92)?, word(96)?);
    // The second table is used where a flag says so, and there is one.
    let used = u64::from(u16_at(bytes, 106)? & 1).min(u64::from(tables).checked_sub(1)?);
    let table = used.checked_mul(of_table.into())?.checked_add(word(80)?.into())?;
    let in_bytes = |sectors: u64| sectors.checked_mul(1_u64.checked_shl(sector.into())?);
    let clusters = Clusters {
        width: Width::ThirtyTwo,
        table: in_bytes(table)?,
        start: in_bytes(word(88)?.into())?,
        length: 1_u64.checked_shl(cluster)?,
        count,
    };
    // Two numbers of the table are of no cluster.
    let in_table = in_bytes(of_table.into())?.checked_div(4)?;
    let is_possible = count > 0
        && count <= MOST
        && u64::from(count).checked_add(2)? <= in_table
        && word(80)? >= 24
        && clusters.has(root)
        && clusters.start >= clusters.table;
    is_possible.then_some(Boot { clusters, root, length: in_bytes(u64_at(bytes, 72)?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_sector_has_numbers_that_fit_each_other() {
        let mut good = MARK.to_vec();
        good.resize(LENGTH, 0);
        good[72..80].copy_from_slice(&20_000_u64.to_le_bytes());
        for (at, number) in [(80, 128_u32), (84, 64), (88, 192), (92, 2000), (96, 5)] {
            good[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        good[108..111].copy_from_slice(&[9, 3, 1]);
        good[510..].copy_from_slice(&[0x55, 0xaa]);
        let boot = parse(&good).unwrap();
        assert_eq!(
            (boot.clusters.table, boot.clusters.start, boot.clusters.length, boot.root),
            (128 << 9, 192 << 9, 4096, 5)
        );
        for (at, bytes) in [
            (3, &b"F"[..]),
            (20, &[1]),
            (80, &[1]),
            (84, &[1, 0]),
            (92, &[0, 0]),
            (96, &[1]),
            (108, &[13]),
            (109, &[20]),
            (110, &[3]),
            (510, &[0]),
        ] {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            assert!(parse(&changed).is_none(), "byte {at}");
        }
    }
}
