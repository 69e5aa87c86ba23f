//! Times as DOS and Windows count them.

use crate::{Time, calendar};

/// Date and time of DOS: two seconds are its unit, and it is local time. Whose is not known: it is taken for UTC. What
/// is no date (month 0) becomes the nearest one.
pub(crate) fn dos_time(date: u16, time: u16) -> Time {
    let field = |from: u16, shift: u32, bits: u32| i64::from(from >> shift & (1_u16 << bits).saturating_sub(1));
    let (year, month, day) = (field(date, 9, 7), field(date, 5, 4).clamp(1, 12), field(date, 0, 5).max(1));
    let clock = [(11, 5, 3600), (5, 6, 60), (0, 5, 2)];
    let of_day = clock.map(|(shift, bits, unit)| field(time, shift, bits).saturating_mul(unit)).iter().sum::<i64>();
    let days = calendar::days(year.saturating_add(1980), month, day).unwrap_or(0);
    Time { seconds: days.saturating_mul(86_400).saturating_add(of_day), nanoseconds: 0 }
}

/// A time in 100 ns since 1601; 0 means none.
pub(crate) fn file_time(ticks: u64) -> Option<Time> {
    const SECOND: u64 = 10_000_000;
    const FROM_1601_TO_1970: i64 = 11_644_473_600;
    let seconds = (ticks / SECOND).cast_signed().saturating_sub(FROM_1601_TO_1970);
    let nanoseconds = (ticks % SECOND).saturating_mul(100) as u32;
    (ticks != 0).then_some(Time { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_dos_are_those_of_the_calendar() {
        for (date, time, seconds) in [
            ((0, 1, 1), (0, 0, 0), 315_532_800),
            ((0, 0, 0), (0, 0, 0), 315_532_800),
            ((20, 2, 29), (12, 34, 56), 951_827_696),
            ((20, 3, 1), (0, 0, 0), 951_868_800),
            ((21, 1, 1), (0, 0, 0), 978_307_200),
            ((120, 3, 1), (0, 0, 0), 4_107_542_400),
            ((121, 1, 1), (0, 0, 0), 4_133_980_800),
            ((127, 12, 31), (23, 59, 58), 4_354_819_198),
        ] {
            let (year, month, day): (u16, u16, u16) = date;
            let (hour, minute, second): (u16, u16, u16) = time;
            let told = dos_time(year << 9 | month << 5 | day, hour << 11 | minute << 5 | (second / 2));
            assert_eq!(told, Time { seconds, nanoseconds: 0 }, "{date:?}");
        }
    }
}
