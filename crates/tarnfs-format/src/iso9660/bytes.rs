//! Numbers and times. Most numbers stand there in both orders of bytes; the first one is little-endian.

use crate::Time;
use crate::calendar::seconds_of;
pub(super) use crate::little::{u16_at, u32_at, u64_at};

/// A time of seven bytes (ECMA-119, 9.1.5): years since 1900, month, day, hour, minute, second, and how far it is from
/// UTC. `None` for one that was not told.
pub(super) fn short_time(bytes: &[u8]) -> Option<Time> {
    let &[year, month, day, hour, minute, second, zone] = bytes.first_chunk()?;
    if [year, month, day, hour, minute, second] == [0; 6] {
        return None;
    }
    let date = [i64::from(year).saturating_add(1900), month.into(), day.into()];
    time(date, [hour.into(), minute.into(), second.into()], zone as i8, 0)
}

/// A time of 17 bytes (ECMA-119, 8.4.26.1): its digits, hundredths of a second, and how far it is from UTC.
pub(super) fn long_time(bytes: &[u8]) -> Option<Time> {
    let &bytes: &[u8; 17] = bytes.first_chunk()?;
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0_i64, |sum, digit| {
            let digit = digit.is_ascii_digit().then(|| digit.wrapping_sub(b'0'))?;
            Some(sum.saturating_mul(10).saturating_add(digit.into()))
        })
    };
    let date = [number(0, 4)?, number(4, 6)?, number(6, 8)?];
    let of_day = [number(8, 10)?, number(10, 12)?, number(12, 14)?];
    let [.., zone] = bytes;
    time(date, of_day, zone as i8, number(14, 16)?)
}

/// `zone` counts quarters of an hour to the east of Greenwich. `None` for what is no date.
fn time(date: [i64; 3], of_day: [i64; 3], zone: i8, hundredths: i64) -> Option<Time> {
    let seconds = seconds_of(date, of_day, i64::from(zone).saturating_mul(15))?;
    let nanoseconds = u32::try_from(hundredths.saturating_mul(10_000_000)).ok()?;
    Some(Time { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        for (bytes, seconds) in [
            ([70, 1, 1, 0, 0, 0, 0], Some(0)),
            ([100, 2, 29, 12, 30, 45, 0], Some(951_827_445)),
            // Two hours to the east.
            ([124, 12, 31, 23, 59, 59, 8], Some(1_735_682_399)),
            // Half past three hours to the west.
            ([101, 3, 1, 0, 0, 0, 242], Some(983_417_400)),
            ([0, 1, 1, 0, 0, 0, 0], Some(-2_208_988_800)),
            ([0; 7], None),
            ([100, 13, 1, 0, 0, 0, 0], None),
            ([100, 1, 0, 0, 0, 0, 0], None),
        ] {
            assert_eq!(short_time(&bytes).map(|time| time.seconds), seconds, "{bytes:?}");
        }
        let long = long_time(b"1999123123595950\0").unwrap();
        assert_eq!((long.seconds, long.nanoseconds), (946_684_799, 500_000_000));
        assert_eq!(long_time(b"0000000000000000\0"), None);
        assert_eq!(long_time(b"19991231235959"), None);
    }
}
