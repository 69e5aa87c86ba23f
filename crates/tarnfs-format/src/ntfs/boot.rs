//! The boot sector, and its copy behind the volume.

use tarnfs_source::Source;

use crate::little::{u16_at, u64_at};

/// Bytes that are looked at.
pub(super) const LENGTH: usize = 512;

const MARK: &[u8] = b"NTFS    ";

/// Bytes of a sector, a cluster and a record, at most.
const MOST_OF_SECTOR: u64 = 4096;
const MOST_OF_CLUSTER: u64 = 2 << 20;
const MOST_OF_RECORD: u64 = 64 << 10;

/// What a boot sector says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    /// Bytes of a sector and of a cluster, and how many clusters there are.
    pub(super) sector: u64,
    pub(super) cluster: u64,
    pub(super) clusters: u64,
    /// Bytes of the volume. A copy of the boot sector comes behind it.
    pub(super) length: u64,
    /// Byte at which the table of files begins, and the copy of its first records.
    pub(super) table: u64,
    pub(super) mirror: u64,
    /// Bytes of a record.
    pub(super) record: u64,
}

/// What the boot sector `bytes` says, if it is one.
pub(super) fn parse(bytes: &[u8]) -> Option<Boot> {
    let bytes = bytes.get(..LENGTH)?;
    let is_one = bytes.get(3..11) == Some(MARK) && bytes.ends_with(&[0x55, 0xaa]);
    // What FAT has there.
    let is_none = |at: usize, length: usize| bytes.iter().skip(at).take(length).all(|byte| *byte == 0);
    if !is_one || !is_none(14, 7) || !is_none(22, 2) || !is_none(32, 4) {
        return None;
    }
    let sector = u64::from(u16_at(bytes, 11)?);
    let cluster = sector.checked_mul(match *bytes.get(13)? {
        sectors @ 1..=128 => sectors.into(),
        shift @ 0xe0.. => 1 << 0_u8.wrapping_sub(shift),
        _ => return None,
    })?;
    let record = match bytes.get(64)?.cast_signed() {
        clusters @ 1.. => cluster.checked_mul(clusters.unsigned_abs().into())?,
        shift => 1_u64.checked_shl(shift.unsigned_abs().into())?,
    };
    let sectors = u64_at(bytes, 40)?;
    let length = sectors.checked_mul(sector)?;
    let clusters = length.checked_div(cluster)?;
    let is_power = [sector, cluster, record].into_iter().all(u64::is_power_of_two);
    let is_possible = is_power
        && (LENGTH as u64..=MOST_OF_SECTOR).contains(&sector)
        && cluster <= MOST_OF_CLUSTER
        && (LENGTH as u64..=MOST_OF_RECORD).contains(&record)
        && i64::try_from(length).is_ok();
    let place = |at: usize| {
        let cluster_number = u64_at(bytes, at)?;
        cluster_number.checked_mul(cluster).filter(|_| cluster_number < clusters)
    };
    Some(Boot { sector, cluster, clusters, length, table: place(48)?, mirror: place(56)?, record })
        .filter(|_| is_possible)
}

/// What the copy behind the volume says, if that ends `length` bytes; `show` shows some of these.
pub(super) fn copy(show: &dyn Fn(u64, usize) -> Vec<u8>, length: u64) -> Option<Boot> {
    [512, 1024, 2048, 4096].into_iter().find_map(|sector: u64| {
        let at = length.checked_sub(sector)?;
        parse(&show(at, LENGTH)).filter(|boot| boot.sector == sector && boot.length == at)
    })
}

/// What the boot sector of `source` says, and whether only its copy does.
pub(super) fn find(source: &dyn Source) -> std::io::Result<Option<(Boot, bool)>> {
    let failed = std::cell::Cell::new(None);
    let show = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        let read = source.read_at(&mut bytes, at).unwrap_or_else(|error| {
            failed.set(Some(error));
            0
        });
        bytes.truncate(read);
        bytes
    };
    let own = parse(&show(0, LENGTH)).map(|boot| (boot, false));
    let found = own.or_else(|| copy(&show, source.len()).map(|boot| (boot, true)));
    match failed.take() {
        Some(error) if found.is_none() => Err(error),
        _ => Ok(found),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of a volume of 1000 clusters of 4 KiB.
    pub(crate) fn good() -> Vec<u8> {
        let mut good = b"\xeb\x52\x90NTFS    ".to_vec();
        good.resize(LENGTH, 0);
        good[11..14].copy_from_slice(&[0, 2, 8]);
        good[40..48].copy_from_slice(&8000_u64.to_le_bytes());
        (good[48], good[56], good[64]) = (4, 2, 0xf6);
        good[510..].copy_from_slice(&[0x55, 0xaa]);
        good
    }

    #[test]
    fn a_boot_sector_has_numbers_that_fit_each_other() {
        let boot = parse(&good()).unwrap();
        let expected = Boot {
            sector: 512,
            cluster: 4096,
            clusters: 1000,
            length: 4_096_000,
            table: 16_384,
            mirror: 8192,
            record: 1024,
        };
        assert_eq!(boot, expected);
        for (at, byte) in [(3, b'X'), (11, 1), (13, 0), (13, 3), (13, 200), (14, 1), (22, 1), (32, 1), (510, 0)] {
            let mut changed = good();
            changed[at] = byte;
            assert_eq!(parse(&changed), None, "byte {at}");
        }
        for (at, byte) in [(47, 0xff), (50, 1), (58, 1), (64, 0), (64, 3), (64, 0xf8), (64, 0x80)] {
            let mut changed = good();
            changed[at] = byte;
            assert_eq!(parse(&changed), None, "byte {at}");
        }
        let mut large = good();
        // 2 MiB, and a record that is a cluster.
        (large[13], large[45], large[64]) = (0xf4, 1, 0xf4);
        let large = parse(&large).unwrap();
        assert_eq!((large.cluster, large.record), (2 << 20, 4096));
    }

    #[test]
    fn the_copy_is_behind_the_volume() {
        let show = |at: u64, _: usize| if at == 4_096_000 { good() } else { Vec::new() };
        assert!(copy(&show, 4_096_000 + 512).is_some());
        assert!(copy(&show, 4_096_000 + 1024).is_none());
        assert!(copy(&|_, _| good(), 100).is_none());
    }
}
