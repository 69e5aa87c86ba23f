//! Tables of partitions: that of a PC's master boot record, with the chain of its logical partitions, and the GUID
//! table (UEFI Specification 2.10, section 5), and Apple's map (Inside Macintosh: Devices, "Partition Map").

use std::collections::BTreeSet;

use crate::big;
use crate::little::{u16_at, u32_at, u64_at};

/// Bytes of a sector where nothing says another number.
pub(super) const SECTOR: u64 = 512;
/// Others are those of disks that have large ones only.
const SECTORS: [u64; 2] = [SECTOR, 4096];

/// What the first block of a disk of Apple begins with, and each record of its map, which has 512 bytes.
const APPLE: &[u8] = b"ER";
const APPLE_RECORD: &[u8] = b"PM\0\0";
const MOST_APPLE: u32 = 255;
/// Parts of the disk that hold nothing but the map, or nothing.
const APPLE_OTHERS: [&[u8]; 3] = [b"Apple_partition_map", b"Apple_Free", b"Apple_Void"];

/// Where the records of a master boot record begin, how many there are, and how many bytes each has.
const RECORDS: usize = 446;
const COUNT: usize = 4;
const RECORD: usize = 16;

/// Kinds of partitions.
const NOTHING: u8 = 0;
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// Partitions in one that is extended. Linux takes up to 255 in all.
const MOST_LOGICAL: usize = 251;

/// Bytes of a GUID table: 128 records have 16 KiB.
const LONGEST: u64 = 1 << 20;

const SIGNATURE: &[u8] = b"EFI PART";

/// What begins like a master boot record but is a file system, from its third byte on: exFAT, NTFS, and what BitLocker
/// has encrypted.
const OTHERS: &[&[u8]] = &[b"EXFAT   ", b"NTFS    ", b"-FVE-FS-", b"ReFS\0\0\0\0"];

/// Shows bytes of a disk: at an offset, up to so many.
pub(super) type Show<'s> = dyn Fn(u64, usize) -> Vec<u8> + 's;

/// A part of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: u32,
    /// In bytes.
    pub(super) start: u64,
    pub(super) length: u64,
}

/// Kinds of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A master boot record.
    Boot,
    Guid,
    Apple,
}

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) partitions: Vec<Partition>,
    pub(super) kind: Kind,
    /// What is wrong with it, and where.
    pub(super) damage: Vec<(u64, String)>,
}

/// A record of a master boot record, in sectors.
#[derive(Debug, Clone, Copy)]
struct Record {
    kind: u8,
    start: u64,
    count: u64,
}

/// Where a kernel of Linux has its mark (the boot protocol of x86).
const LINUX_MARK: (u64, &[u8]) = (0x202, b"HdrS");

/// The table of a disk that has so many bytes, if that is known.
pub(super) fn find(show: &Show<'_>, length: Option<u64>) -> Option<Table> {
    let sector = show(0, SECTOR as usize);
    let Some(records) = records(&sector) else { return apple_map(show, &sector) };
    // A program of DOS and Windows, which a Linux kernel is, too, has other things there.
    if sector.starts_with(b"MZ") || show(LINUX_MARK.0, 4) == LINUX_MARK.1 {
        return None;
    }
    if sector.get(3..11).is_some_and(|name| OTHERS.contains(&name)) {
        return None;
    }
    if records.iter().any(|record| record.kind == PROTECTIVE) {
        return guid_table(show, length);
    }
    let used = || records.iter().enumerate().filter(|(_, record)| record.kind != NOTHING && record.count > 0);
    let sectors = length.map_or(u64::MAX, |length| length / SECTOR);
    let mut ranges: Vec<_> = used().map(|(_, one)| (one.start, one.start.saturating_add(one.count))).collect();
    ranges.sort_unstable();
    let is_possible = ranges.first().is_some_and(|(start, _)| *start > 0 && *start < sectors)
        && ranges.iter().zip(ranges.iter().skip(1)).all(|((_, end), (start, _))| end <= start);
    if !is_possible {
        return None;
    }
    let (mut partitions, mut damage) = (Vec::new(), Vec::new());
    for (index, record) in used() {
        if !EXTENDED.contains(&record.kind) {
            partitions.push(partition(index.saturating_add(1), record.start, record.count));
        }
    }
    for (_, record) in used().filter(|(_, record)| EXTENDED.contains(&record.kind)) {
        logical(show, *record, &mut partitions, &mut damage);
    }
    Some(Table { partitions, kind: Kind::Boot, damage })
}

/// Apple's map: a record for each partition, which says how many there are. The first one is the map itself.
fn apple_map(show: &Show<'_>, first: &[u8]) -> Option<Table> {
    let block = u64::from(big::u16_at(first, 2)?);
    if !first.starts_with(APPLE) || !matches!(block, 512 | 1024 | 2048 | 4096) {
        return None;
    }
    let (mut partitions, mut damage) = (Vec::new(), Vec::new());
    let (mut number, mut count) = (1_u32, 1);
    while number <= count {
        let at = u64::from(number).checked_mul(block)?;
        let record = show(at, SECTOR as usize);
        let numbers = big::u32_at(&record, 4).zip(big::u32_at(&record, 8)).zip(big::u32_at(&record, 12));
        let Some(((all, start), length)) = numbers.filter(|_| record.starts_with(APPLE_RECORD)) else {
            if number == 1 {
                return None;
            }
            damage.push((at, format!("record {number} of the map of partitions is damaged")));
            number = number.checked_add(1)?;
            continue;
        };
        if number == 1 {
            count = all.min(MOST_APPLE);
        }
        let kind = record.get(48..80)?.split(|byte| *byte == 0).next().unwrap_or_default();
        if start > 0 && length > 0 && !APPLE_OTHERS.contains(&kind) {
            let (start, length) = (u64::from(start).checked_mul(block)?, u64::from(length).checked_mul(block)?);
            partitions.push(Partition { number, start, length });
        }
        number = number.checked_add(1)?;
    }
    (!partitions.is_empty()).then_some(Table { partitions, kind: Kind::Apple, damage })
}

fn partition(number: usize, start: u64, count: u64) -> Partition {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    Partition { number, start: start.saturating_mul(SECTOR), length: count.saturating_mul(SECTOR) }
}

/// The records of a sector, if it can be a master boot record.
fn records(sector: &[u8]) -> Option<[Record; COUNT]> {
    if sector.len() != SECTOR as usize || !sector.ends_with(&[0x55, 0xaa]) {
        return None;
    }
    let mut records = [Record { kind: NOTHING, start: 0, count: 0 }; COUNT];
    let (stored, _) = sector.get(RECORDS..)?.as_chunks::<RECORD>();
    for (record, stored) in records.iter_mut().zip(stored) {
        // Booted from or not.
        if !matches!(stored[0], 0 | 0x80) {
            return None;
        }
        *record = Record { kind: stored[4], start: u32_at(stored, 8)?.into(), count: u32_at(stored, 12)?.into() };
    }
    Some(records)
}

/// Adds the partitions in one that is extended: each has a boot record of its own, which says where the next one is.
fn logical(show: &Show<'_>, extended: Record, found: &mut Vec<Partition>, damage: &mut Vec<(u64, String)>) {
    let (mut at, mut number) =
        (extended.start, 5_usize.saturating_add(found.iter().filter(|one| one.number >= 5).count()));
    let mut passed = BTreeSet::new();
    while passed.len() < MOST_LOGICAL {
        let byte = at.saturating_mul(SECTOR);
        if !passed.insert(at) {
            damage.push((byte, "the chain of logical partitions has no end".to_owned()));
            return;
        }
        let Some([first, next, ..]) = records(&show(byte, SECTOR as usize)) else {
            damage.push((
                byte,
                "a boot record of a logical partition is damaged; those from there on are lost".to_owned(),
            ));
            return;
        };
        if first.kind != NOTHING && first.count > 0 && !EXTENDED.contains(&first.kind) {
            found.push(partition(number, at.saturating_add(first.start), first.count));
            number = number.saturating_add(1);
        }
        if !EXTENDED.contains(&next.kind) || next.count == 0 {
            return;
        }
        at = extended.start.saturating_add(next.start);
    }
}

/// The GUID table: the one at the start, else its copy at the end.
fn guid_table(show: &Show<'_>, length: Option<u64>) -> Option<Table> {
    let first = SECTORS.iter().find_map(|sector| guid_at(show, *sector, 1));
    if let Some(partitions) = first {
        return Some(Table { partitions, kind: Kind::Guid, damage: Vec::new() });
    }
    let length = length?;
    let partitions = SECTORS.iter().find_map(|sector| {
        let last = length.checked_div(*sector)?.checked_sub(1)?;
        guid_at(show, *sector, last)
    })?;
    let what = "the table of partitions is damaged; its copy at the end of the disk is read".to_owned();
    Some(Table { partitions, kind: Kind::Guid, damage: vec![(SECTOR, what)] })
}

/// The table whose header stands in sector `at`, if its checksums are right.
fn guid_at(show: &Show<'_>, sector: u64, at: u64) -> Option<Vec<Partition>> {
    let header = show(at.checked_mul(sector)?, SECTOR as usize);
    let (word, long) = (|at: usize| u32_at(&header, at), |at: usize| u64_at(&header, at));
    let length = usize::try_from(word(12)?).ok()?;
    if !header.starts_with(SIGNATURE) || u16_at(&header, 10)? != 1 || !(92..=SECTOR as usize).contains(&length) {
        return None;
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(header.get(..16)?);
    sum.update(&[0; 4]);
    sum.update(header.get(20..length)?);
    if sum.finalize() != word(16)? || long(24)? != at {
        return None;
    }
    let (count, size) = (u64::from(word(80)?), u64::from(word(84)?));
    let whole = count.checked_mul(size).filter(|whole| *whole <= LONGEST && size >= 128)?;
    let records = show(long(72)?.checked_mul(sector)?, whole as usize);
    if records.len() as u64 != whole || crc32fast::hash(&records) != word(88)? {
        return None;
    }
    let mut partitions = Vec::new();
    for (index, record) in records.chunks_exact(size as usize).enumerate() {
        let (start, end) = (u64_at(record, 32)?, u64_at(record, 40)?);
        let is_used = record.get(..16)?.iter().any(|byte| *byte != 0);
        if is_used && start > 0 && end >= start {
            let number = u32::try_from(index).ok()?.checked_add(1)?;
            let count = end.saturating_sub(start).saturating_add(1);
            partitions.push(Partition {
                number,
                start: start.saturating_mul(sector),
                length: count.saturating_mul(sector),
            });
        }
    }
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of so many sectors whose boot record has these: where, kind, start, number of sectors.
    fn disk(sectors: usize, records: &[(usize, usize, u8, u32, u32)]) -> Vec<u8> {
        let mut disk = vec![0; sectors * 512];
        for &(at, index, kind, start, count) in records {
            let record = at * 512 + RECORDS + index * RECORD;
            disk[record + 4] = kind;
            disk[record + 8..record + 12].copy_from_slice(&start.to_le_bytes());
            disk[record + 12..record + 16].copy_from_slice(&count.to_le_bytes());
            disk[at * 512 + 510..at * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
        }
        disk
    }

    /// Partitions, in sectors, and how many things are damaged.
    type Found = (Vec<(u32, u64, u64)>, usize);

    fn found(disk: &[u8]) -> Option<Found> {
        let show = |at: u64, length: usize| {
            let rest = disk.get(at as usize..).unwrap_or_default();
            rest[..length.min(rest.len())].to_vec()
        };
        let table = find(&show, Some(disk.len() as u64))?;
        let all = table.partitions.iter().map(|one| (one.number, one.start / 512, one.length / 512)).collect();
        Some((all, table.damage.len()))
    }

    #[test]
    fn logical_partitions_follow_each_other() {
        let good =
            [(0, 0, 0x83, 1, 9), (0, 2, 0x05, 20, 80), (20, 0, 0x83, 2, 8), (20, 1, 0x05, 20, 20), (40, 0, 7, 1, 19)];
        assert_eq!(found(&disk(100, &good)), Some((vec![(1, 1, 9), (5, 22, 8), (6, 41, 19)], 0)));
        // A chain without an end, and one that leads to nothing.
        let ring = [(0, 0, 0x05, 20, 80), (20, 0, 0x83, 2, 8), (20, 1, 0x05, 0, 20)];
        assert_eq!(found(&disk(100, &ring)), Some((vec![(5, 22, 8)], 1)));
        let lost = [(0, 0, 0x05, 20, 80), (20, 0, 0x83, 2, 8), (20, 1, 0x05, 40, 20)];
        assert_eq!(found(&disk(100, &lost)), Some((vec![(5, 22, 8)], 1)));
    }

    #[test]
    fn what_only_looks_like_a_table_is_none() {
        let good = disk(100, &[(0, 0, 0x83, 1, 9), (0, 1, 0x0c, 10, 20)]);
        assert!(found(&good).is_some());
        for (at, bytes) in [(510, &[0][..]), (446, &[1]), (478, b"x"), (454, &[0]), (454, &[12]), (3, b"NTFS    ")] {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(found(&changed), None, "byte {at}");
        }
        assert_eq!(found(&disk(100, &[(0, 0, 0, 0, 0)])), None);
        assert_eq!(found(&disk(100, &[(0, 0, PROTECTIVE, 1, 99)])), None);
        let mut text = b"text\n".repeat(200);
        text[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(found(&text), None);
    }
}
