//! What stands in a folder of exFAT: sets of records (section 6 and 7 of the specification).

use crate::Time;
use crate::clusters::{Found, Listed, Part, RECORD, name_of};
use crate::image::Budget;
use crate::little::{u16_at, u32_at, u64_at};
use crate::time::dos_time;

/// Kinds of records that are in use.
const END: u8 = 0;
const LABEL: u8 = 0x83;
const FILE: u8 = 0x85;
const STREAM: u8 = 0xc0;
const NAME: u8 = 0xc1;

/// Attributes of a file.
const READ_ONLY: u16 = 0x01;
const FOLDER: u16 = 0x10;

/// Characters of the name of a whole, and in one record of that of a file.
const IN_LABEL: usize = 11;
const IN_RECORD: usize = 15;

/// Damaged sets of one listing, behind which the rest of it is left out.
const MOST_DAMAGED: usize = 10_000;

/// What a damaged set counts for, in bytes, beside its own: the next one may begin in it, and listings may overlap.
const OF_DAMAGE: u64 = 256;

/// Names of one listing.
const MOST_FOUND: usize = 1 << 20;

/// Adds what is in `part` of a listing. Returns how many bytes of it that was: others are of a set that goes on.
pub(super) fn list(part: Part<'_>, listed: &mut Listed, budget: &mut Budget) -> usize {
    let (records, _) = part.bytes.as_chunks::<RECORD>();
    let mut number = 0_usize;
    while let Some(record) = records.get(number).filter(|_| !listed.is_done) {
        let inside = number.saturating_mul(RECORD);
        let at = part.at.saturating_add(inside);
        number = number.saturating_add(1);
        match record[0] {
            END => listed.is_done = true,
            LABEL => {
                let length = usize::from(record[1]).min(IN_LABEL);
                listed.label = name_of(units(record, 2).take(length));
            }
            FILE => {
                let behind = usize::from(record[1]);
                let end = number.saturating_add(behind);
                let Some(set) = records.get(number.saturating_sub(1)..end) else {
                    if !part.is_last {
                        return inside;
                    }
                    listed.end(at, "a set of records is cut");
                    break;
                };
                match file(set, at) {
                    Ok(_) if listed.found.len() >= MOST_FOUND => {
                        listed.end(at, "it has too many names: the rest is left out");
                    }
                    Ok(found) => {
                        listed.add(found);
                        number = end;
                    }
                    Err(why) => {
                        listed.damage.push((at, format!("a file is left out: {why}")));
                        let cost = (set.len() as u64).saturating_mul(RECORD as u64).saturating_add(OF_DAMAGE);
                        if listed.damage.len() >= MOST_DAMAGED || budget.take_bytes(cost).is_err() {
                            listed.end(at, "too much is damaged: the rest is left out");
                        }
                    }
                }
            }
            _ => {}
        }
    }
    part.bytes.len()
}

/// The UTF-16 in a record from byte `from` on.
fn units(record: &[u8; RECORD], from: usize) -> impl Iterator<Item = u16> {
    (from..RECORD).step_by(2).filter_map(|at| u16_at(record, at))
}

/// What a set of records says.
fn file(set: &[[u8; RECORD]], at: usize) -> Result<Found, &'static str> {
    let cut = "its records are too few";
    let [file, stream, others @ ..] = set else { return Err(cut) };
    let sum = set.iter().flatten().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    let sum = sum.fold(0, |sum: u16, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()));
    if u16_at(file, 2) != Some(sum) {
        return Err("its checksum is wrong");
    }
    if stream[0] != STREAM {
        return Err("nothing says where it is");
    }
    let length = usize::from(stream[3]);
    let names = others.iter().take_while(|record| record[0] == NAME);
    let stored = names.flat_map(|record| units(record, 2).take(IN_RECORD)).take(length).collect::<Vec<_>>();
    if stored.len() < length {
        return Err(cut);
    }
    let name = name_of(stored.into_iter()).ok_or("it has no name")?;
    let attributes = u16_at(file, 4).ok_or(cut)?;
    let (first, size) = (u32_at(stream, 20).ok_or(cut)?, u64_at(stream, 24).ok_or(cut)?);
    Ok(Found {
        name,
        at,
        is_folder: attributes & FOLDER != 0,
        is_read_only: attributes & READ_ONLY != 0,
        mtime: time(file, 12, file[21], file[23]),
        atime: time(file, 16, 0, file[24]),
        first,
        size,
        written: u64_at(stream, 8).ok_or(cut)?,
        is_run: stream[1] & 2 != 0,
    })
}

/// A time at byte `at`, with what there is beside it: units of 10 ms, and quarters of an hour to the east of Greenwich,
/// in seven bits with a sign, if they are told.
fn time(record: &[u8; RECORD], at: usize, parts: u8, zone: u8) -> Option<Time> {
    let (time, date) = (u16_at(record, at)?, u16_at(record, at.checked_add(2)?)?);
    if date == 0 {
        return None;
    }
    let local = dos_time(date, time);
    let quarters = i64::from(zone & 0x7f);
    let quarters = if quarters < 64 { quarters } else { quarters.saturating_sub(128) };
    let east = if zone & 0x80 != 0 { quarters.saturating_mul(900) } else { 0 };
    let parts = if parts < 200 { parts } else { 0 };
    let seconds = local.seconds.saturating_sub(east).saturating_add(i64::from(parts / 100));
    Some(Time { seconds, nanoseconds: u32::from(parts % 100).saturating_mul(10_000_000) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in a listing that is read in parts of so many bytes, and what is left of what may be read.
    fn read(bytes: &[u8], at_once: usize, mut budget: Budget) -> (Listed, Budget) {
        let (mut listed, mut at) = (Listed::with_room(1 << 30), 0);
        while at < bytes.len() && !listed.is_done {
            let end = bytes.len().min(at + at_once);
            let part = Part { bytes: &bytes[at..end], at, is_last: end == bytes.len() };
            let taken = super::list(part, &mut listed, &mut budget);
            assert!(taken > 0);
            at += taken;
        }
        (listed, budget)
    }

    fn list(bytes: &[u8]) -> Listed {
        read(bytes, bytes.len().max(1), Budget::new(0, 1)).0
    }

    fn set(name: &str) -> Vec<u8> {
        let units: Vec<u16> = name.encode_utf16().collect();
        let names = units.len().div_ceil(IN_RECORD);
        let mut set = vec![0; RECORD * (2 + names)];
        (set[0], set[1]) = (FILE, 1 + names as u8);
        // 2020-02-29 12:34:56, 1.23 s later, two hours to the east.
        set[12..16].copy_from_slice(&0x505d_645c_u32.to_le_bytes());
        (set[21], set[23]) = (123, 0x88);
        (set[32], set[33], set[35]) = (STREAM, 3, units.len() as u8);
        set[40..48].copy_from_slice(&70_u64.to_le_bytes());
        set[52..56].copy_from_slice(&9_u32.to_le_bytes());
        set[56..64].copy_from_slice(&100_u64.to_le_bytes());
        for (record, part) in set[64..].chunks_mut(RECORD).zip(units.chunks(IN_RECORD)) {
            record[0] = NAME;
            let bytes: Vec<u8> = part.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            record[2..2 + bytes.len()].copy_from_slice(&bytes);
        }
        let sum = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = sum.fold(0, |sum: u16, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()));
        set[2..4].copy_from_slice(&sum.to_le_bytes());
        set
    }

    #[test]
    fn a_file_is_a_set_of_records() {
        let name = "a name of more than fifteen characters ä";
        let found = list(&set(name)).found.remove(0);
        assert_eq!((found.name, found.first, found.size, found.written), (name.as_bytes().to_vec(), 9, 100, 70));
        assert!(found.is_run && !found.is_folder);
        let time = found.mtime.unwrap();
        assert_eq!((time.seconds, time.nanoseconds), (1_582_979_696 - 7200 + 1, 230_000_000));
    }

    #[test]
    fn what_is_damaged_all_over_is_read_no_further() {
        let mut bad = set("bad");
        bad[2] ^= 1;
        let listed = list(&bad.repeat(2 * MOST_DAMAGED));
        assert_eq!((listed.damage.len(), listed.found.len()), (MOST_DAMAGED + 1, 0));
    }

    /// What costs the sum of 256 records for each of 32 bytes is taken from what may be read of the image.
    #[test]
    fn what_is_damaged_costs_what_it_reads() {
        let bad = [&[FILE, 255][..], &[0; RECORD - 2]].concat().repeat(1000);
        let before = Budget::new(0, 1).bytes;
        let (listed, budget) = read(&bad, bad.len(), Budget::new(0, 1));
        assert_eq!(listed.damage.len(), 1000 - 255 + 1);
        assert!(before - budget.bytes >= 745 * 256 * RECORD as u64);
        let mut little = Budget::new(0, 1);
        little.bytes = 100_000;
        let (listed, _) = read(&bad, bad.len(), little);
        let last = listed.damage.last().unwrap();
        assert!(listed.damage.len() < 15 && last.1.contains("too much is damaged"), "{last:?}");
    }

    /// A listing may have 256 MiB, and is never in memory as a whole.
    #[test]
    fn a_listing_is_read_in_parts() {
        let names: Vec<_> =
            (0..300).map(|number| format!("a name that takes two records, or three {number}")).collect();
        let mut bytes: Vec<u8> = names.iter().flat_map(|name| set(name)).collect();
        // The checksum of one in the middle.
        bytes[100 * 160 + 2] ^= 1;
        let whole = list(&bytes);
        assert_eq!((whole.found.len(), whole.damage.len()), (299, 1));
        for at_once in [256, 1000 / RECORD * RECORD, 4096, 4096 + RECORD] {
            let (parts, _) = read(&bytes, at_once, Budget::new(0, 1));
            assert_eq!((parts.found, parts.damage), (whole.found.clone(), whole.damage.clone()), "{at_once}");
        }
        let mut listed = Listed::with_room(20_000);
        let part = Part { bytes: &bytes, at: 0, is_last: true };
        super::list(part, &mut listed, &mut Budget::new(0, 1));
        assert!((10..200).contains(&listed.found.len()) && listed.is_done, "{}", listed.found.len());
        assert!(listed.damage.iter().any(|(_, what)| what.contains("too many names")), "{:?}", listed.damage);
    }

    #[test]
    fn a_set_that_is_damaged_is_left_out_and_the_next_is_not() {
        let mut first = set("one");
        first[40] ^= 1;
        let listed = list(&[first, set("two"), vec![0; RECORD], set("behind")].concat());
        let names: Vec<_> = listed.found.iter().map(|found| found.name.clone()).collect();
        assert_eq!((names, listed.damage.len()), (vec![b"two".to_vec()], 1));
        for length in (0..96).step_by(RECORD) {
            assert!(list(&set("one")[..length]).found.is_empty());
        }
    }
}
