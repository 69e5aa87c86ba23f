//! Numbers, times, texts and checksums, as ECMA-167 and OSTA UDF have them.

use std::sync::LazyLock;

use crate::Time;
use crate::calendar::seconds_of;
pub(super) use crate::image::{damaged, is_damage};
pub(super) use crate::little::{u16_at, u32_at, u64_at};

/// Bytes of a time.
pub(super) const TIME: usize = 12;

/// The zone of a time that has none.
const NO_ZONE: i64 = -2047;

/// A time (ECMA-167, 1/7.3): kind and zone, year, month, day, hour, minute, second, and the parts of a second in three
/// steps of a hundred. `None` for one that was not told, or is none.
pub(super) fn time(bytes: &[u8]) -> Option<Time> {
    let bytes: &[u8; TIME] = bytes.first_chunk()?;
    let (zone, year) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
    let &[_, _, _, _, month, day, hour, minute, second, parts @ ..] = bytes;
    let east = match (zone >> 12, i64::from(zone & 0x0fff)) {
        // Twelve bits with a sign.
        (1, zone) => Some(if zone < 0x800 { zone } else { zone.saturating_sub(0x1000) }),
        _ => None,
    };
    let east = east.filter(|east| *east != NO_ZONE && (-1440..=1440).contains(east)).unwrap_or(0);
    let date = [i64::from(year as i16), month.into(), day.into()];
    let seconds = seconds_of(date, [hour.into(), minute.into(), second.into()], east)?;
    // What counts more than that is left out, as by Linux.
    let micros = parts.iter().fold(0_u32, |sum, part| sum.saturating_mul(100).saturating_add((*part).into()));
    let is_possible = parts.iter().all(|part| *part < 100);
    Some(Time { seconds, nanoseconds: if is_possible { micros.saturating_mul(1000) } else { 0 } })
}

/// Of each byte, what it does to the checksum.
static TABLE: LazyLock<[u16; 256]> = LazyLock::new(|| {
    std::array::from_fn(|byte| {
        (0..8).fold((byte as u16) << 8, |sum, _| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 })
    })
});

/// The CRC of ITU-T V.41 (ECMA-167, 1/7.2.6), which begins with 0.
pub(super) fn crc(bytes: &[u8]) -> u16 {
    let table = &*TABLE;
    bytes.iter().fold(0, |sum: u16, byte| {
        let index = (sum >> 8) as u8 ^ byte;
        sum << 8 ^ table.get(usize::from(index)).copied().unwrap_or_default()
    })
}

/// Where something lies: a block of a partition, as a long allocation descriptor says (ECMA-167, 4/14.14.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) partition: u16,
    pub(super) block: u32,
}

/// A long allocation descriptor at a place in `bytes`: kind and length as they are stored, and where it lies.
pub(super) fn long_place(bytes: &[u8], at: usize) -> Option<(u32, Place)> {
    let bytes = bytes.get(at..)?;
    Some((u32_at(bytes, 0)?, Place { block: u32_at(bytes, 4)?, partition: u16_at(bytes, 8)? }))
}

/// The identifier of an entity (ECMA-167, 1/7.4), without the zeros behind it.
pub(super) fn identifier(bytes: &[u8], at: usize) -> &[u8] {
    let text = bytes.get(at.saturating_add(1)..at.saturating_add(24)).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // UDF 2.60, 6.5, has these bytes as its example.
        assert_eq!(crc(&[0x70, 0x6a, 0x77]), 0x3299);
        assert_eq!(crc(b"123456789"), 0x31c3);
        assert_eq!(crc(b""), 0);
    }

    #[test]
    fn times_have_zones_and_parts() {
        let stamp = |zone: u16, rest: [u8; 10]| [&zone.to_le_bytes()[..], &rest].concat();
        let utc = [0xd0, 0x07, 2, 29, 12, 30, 45, 0, 0, 0];
        assert_eq!(time(&stamp(0x1000, utc)), Some(Time { seconds: 951_827_445, nanoseconds: 0 }));
        let parts = [0xd0, 0x07, 2, 29, 12, 30, 45, 12, 34, 56];
        assert_eq!(time(&stamp(0x1000, parts)), Some(Time { seconds: 951_827_445, nanoseconds: 123_456_000 }));
        // Two hours to the east, five and a half to the west, and one that has no zone.
        let (kind, east) = (0x1000, 120);
        assert_eq!(time(&stamp(kind | east, utc)).unwrap().seconds, 951_827_445 - 7200);
        assert_eq!(time(&stamp(0x1000 | (0x1000 - 330), utc)).unwrap().seconds, 951_827_445 + 330 * 60);
        assert_eq!(time(&stamp(0x1000 | (0x1000 - 2047), utc)).unwrap().seconds, 951_827_445);
        assert_eq!(time(&stamp(120, utc)).unwrap().seconds, 951_827_445);
        assert_eq!(time(&[0; 12]), None);
        assert_eq!(time(&[0; 11]), None);
    }
}
