//! What stands in a folder of FAT: records with short names, and before each those with the parts of a long one.

use crate::clusters::{Found, Listed, RECORD, Width, name_of};
use crate::encoding::Encoding;
use crate::little::{u16_at, u32_at};
use crate::time::dos_time;

/// Attributes of a record.
mod attribute {
    pub(super) const READ_ONLY: u8 = 0x01;
    pub(super) const LABEL: u8 = 0x08;
    pub(super) const FOLDER: u8 = 0x10;
    /// All of these together are those of a part of a long name.
    pub(super) const LONG: u8 = 0x0f;
    pub(super) const ALL: u8 = 0x3f;
}

/// First bytes of a name that mean something else.
const END: u8 = 0;
const REMOVED: u8 = 0xe5;
const STANDS_FOR_REMOVED: u8 = 0x05;

/// In what names for Windows NT, those parts of a short name are in lower case.
const LOWER_NAME: u8 = 0x08;
const LOWER_END: u8 = 0x10;

/// Parts of a long name, and characters in each.
const MOST_PARTS: u8 = 20;
const IN_PART: usize = 13;

/// The page of characters of short names.
const PAGE: &str = "cp437";

/// A long name of which not all parts were met yet.
struct Long {
    units: Vec<u16>,
    /// The number of the part that was met last; the last is 1.
    part: u8,
    sum: u8,
}

/// Adds all that is in the listing `bytes`.
pub(super) fn list(bytes: &[u8], width: Width, listed: &mut Listed) {
    let mut long: Option<Long> = None;
    let page = Encoding::for_name(PAGE);
    let (records, _) = bytes.as_chunks::<RECORD>();
    for (number, record) in records.iter().enumerate() {
        let at = number.saturating_mul(RECORD);
        let [first, ..] = *record;
        let attributes = record.get(11).copied().unwrap_or_default() & attribute::ALL;
        match first {
            END => break,
            REMOVED => {
                long = None;
                continue;
            }
            _ => {}
        }
        if attributes == attribute::LONG {
            long = add_part(long, record);
            continue;
        }
        let long = long.take();
        let short: [u8; 11] = record.first_chunk().copied().unwrap_or_default();
        if attributes & attribute::LABEL != 0 {
            if attributes & attribute::FOLDER == 0 && listed.label.is_none() {
                let label = page.map(|page| page.decode(short.trim_ascii_end()).into_owned());
                listed.label = label;
            }
            continue;
        }
        if short.starts_with(b".") && matches!(short.trim_ascii_end(), b"." | b"..") {
            continue;
        }
        let long = long.filter(|long| long.part == 1 && long.sum == sum(&short));
        let units = long.map(|long| long.units.into_iter().take_while(|unit| *unit != 0).collect::<Vec<_>>());
        let case = record.get(12).copied().unwrap_or_default();
        let name = units.and_then(|units| name_of(units.into_iter())).or_else(|| short_name(short, case, page));
        let Some(name) = name else {
            listed.damage.push((at, "a record in it has no name, and is left out".to_owned()));
            continue;
        };
        let half = |at: usize| u16_at(record, at).unwrap_or_default();
        let high = if width == Width::TwentyEight { u32::from(half(20)) } else { 0 };
        let size = u64::from(u32_at(record, 28).unwrap_or_default());
        let time = |date: u16, time: u16| (date != 0).then(|| dos_time(date, time));
        listed.add(Found {
            name,
            at,
            is_folder: attributes & attribute::FOLDER != 0,
            is_read_only: attributes & attribute::READ_ONLY != 0,
            mtime: time(half(24), half(22)),
            atime: time(half(18), 0),
            first: high << 16 | u32::from(half(26)),
            size,
            written: size,
            is_run: false,
        });
        if listed.is_done {
            break;
        }
    }
}

/// `long` with one part more, or a new one; `None` if that is no part of it.
fn add_part(long: Option<Long>, record: &[u8; RECORD]) -> Option<Long> {
    let (number, sum) = (record[0], *record.get(13)?);
    let part = number & 0x1f;
    let units = (1..11).chain(14..26).chain(28..32).step_by(1).collect::<Vec<usize>>();
    let units = units.chunks_exact(2).filter_map(|pair| u16_at(record, *pair.first()?));
    let units: Vec<u16> = units.collect();
    if number & 0x40 != 0 {
        return (1..=MOST_PARTS).contains(&part).then_some(Long { units, part, sum });
    }
    let long = long.filter(|long| part > 0 && long.part.checked_sub(1) == Some(part) && long.sum == sum)?;
    // The last part comes first.
    debug_assert!(long.units.len() < IN_PART.saturating_mul(MOST_PARTS.into()));
    Some(Long { units: [units, long.units].concat(), part, sum })
}

/// The checksum of a short name, which parts of the long one have.
fn sum(short: &[u8; 11]) -> u8 {
    short.iter().fold(0, |sum: u8, byte| sum.rotate_right(1).wrapping_add(*byte))
}

/// Letters of code page 437 that are not of ASCII, and the same in lower case (`charset2lower` of Linux's nls_cp437.c).
/// They change with [`PAGE`].
const LOWER: [(u8, u8); 10] = [
    (0x80, 0x87),
    (0x8e, 0x84),
    (0x8f, 0x86),
    (0x90, 0x82),
    (0x92, 0x91),
    (0x99, 0x94),
    (0x9a, 0x81),
    (0xa5, 0xa4),
    (0xe4, 0xe5),
    (0xe8, 0xed),
];

fn lower(name: &mut [u8]) {
    name.make_ascii_lowercase();
    for byte in name.iter_mut().filter(|byte| !byte.is_ascii()) {
        if let Some((_, lower)) = LOWER.iter().find(|(upper, _)| upper == byte) {
            *byte = *lower;
        }
    }
}

/// The short name as Linux shows it.
fn short_name(mut short: [u8; 11], case: u8, page: Option<Encoding>) -> Option<Vec<u8>> {
    if short.first() == Some(&STANDS_FOR_REMOVED) {
        short[0] = REMOVED;
    }
    let (name, end) = short.split_at_mut(8);
    if case & LOWER_NAME != 0 {
        lower(name);
    }
    if case & LOWER_END != 0 {
        lower(end);
    }
    let (name, end) = (name.trim_ascii_end(), end.trim_ascii_end());
    let stored = if end.is_empty() { name.to_vec() } else { [name, b".", end].concat() };
    let decoded = page.map_or_else(|| stored.clone(), |page| page.decode(&stored).into_owned());
    let is_name = !name.is_empty() && !decoded.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_name.then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(short: &[u8; 11], attributes: u8, case: u8) -> Vec<u8> {
        let mut record = [&short[..], &[attributes, case]].concat();
        record.resize(RECORD, 0);
        record
    }

    fn part(number: u8, sum: u8, text: &str) -> Vec<u8> {
        let mut units: Vec<u16> = text.encode_utf16().collect();
        if units.len() < IN_PART {
            units.push(0);
        }
        units.resize(IN_PART, 0xffff);
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        [&[number], &bytes[..10], &[attribute::LONG, 0, sum], &bytes[10..22], &[0, 0], &bytes[22..]].concat()
    }

    fn names(bytes: &[Vec<u8>]) -> Vec<String> {
        let mut listed = Listed::with_room(1 << 20);
        list(&bytes.concat(), Width::Sixteen, &mut listed);
        listed.found.into_iter().map(|found| String::from_utf8(found.name).unwrap()).collect()
    }

    #[test]
    fn long_names_stand_before_short_ones() {
        let short = b"LONGNA~1TXT";
        let sum = sum(short);
        let parts = [part(0x42, sum, "e.text"), part(1, sum, "a long namä, s")];
        let parts = [parts[0].clone(), part(1, sum, "a long näme, "), record(short, 0x20, 0)];
        assert_eq!(names(&parts), ["a long näme, e.text"]);
        // One that is of another record, one that is not whole, and one whose order is wrong.
        assert_eq!(names(&[part(0x41, sum ^ 1, "other"), record(short, 0x20, 0)]), ["LONGNA~1.TXT"]);
        assert_eq!(names(&[parts[0].clone(), record(short, 0x20, 0)]), ["LONGNA~1.TXT"]);
        assert_eq!(names(&[parts[1].clone(), parts[0].clone(), record(short, 0x20, 0)]), ["LONGNA~1.TXT"]);
    }

    #[test]
    fn short_names_are_in_the_case_that_is_told() {
        let found = names(&[
            record(b"README     ", 0x20, 0),
            record(b"README  TXT", 0x20, LOWER_NAME | LOWER_END),
            record(b"A       B  ", 0x20, LOWER_END),
            record(b"\x05BC     D  ", 0x20, 0),
            record(b"\xe5BC     D  ", 0x20, 0),
            record(b"GR\x9aN       ", 0x20, 0),
            record(b"29\x90A    \x80\xe2\xe4", 0x20, LOWER_NAME | LOWER_END),
            record(b".          ", 0x10, 0),
            record(b"..         ", 0x10, 0),
            record(b"LABEL      ", 0x08, 0),
            record(b"\0          ", 0x20, 0),
            record(b"BEHIND     ", 0x20, 0),
        ]);
        assert_eq!(found, ["README", "readme.txt", "A.b", "σBC.D", "GRÜN", "29éa.çΓσ"]);
    }
}
