//! Times as DOS and Windows count them, and as people write them.

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

/// "2017-03-06T04:03:53Z" (RFC 3339), perhaps with parts of a second, or "+02:00" in place of the Z.
pub(crate) fn internet_date(text: &str) -> Option<Time> {
    let (day, clock) = text.split_once('T')?;
    let numbers = |text: &str, between: char| -> Option<[i64; 3]> {
        let found: Vec<i64> = text.split(between).map(str::parse).collect::<Result<_, _>>().ok()?;
        found.try_into().ok()
    };
    let end = clock.find(['Z', '+', '-'])?;
    let (clock, zone) = clock.split_at_checked(end)?;
    let minutes_east = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign @ ("+" | "-"), zone) => {
            let (hours, minutes) = zone.split_once(':')?;
            let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
            let minutes = i64::from(hours).saturating_mul(60).saturating_add(minutes.into());
            if sign == "+" { minutes } else { minutes.saturating_neg() }
        }
        _ => return None,
    };
    let (clock, parts) = clock.split_once('.').unwrap_or((clock, ""));
    let seconds = calendar::seconds_of(numbers(day, '-')?, numbers(clock, ':')?, minutes_east)?;
    let parts = parts.get(..9).unwrap_or(parts);
    let scale = 10_u32.saturating_pow(9_u32.saturating_sub(parts.len() as u32));
    let nanoseconds = parts.parse::<u32>().unwrap_or_default().saturating_mul(scale).min(999_999_999);
    Some(Time { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_internet_have_a_zone() {
        let date = |text| internet_date(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(date("2017-03-06T04:03:53.25Z"), Some((1_488_773_033, 250_000_000)));
        assert_eq!(date("2017-03-06T06:03:53+02:00"), date("2017-03-06T04:03:53Z"));
        assert_eq!(date("2017-03-06T01:33:53-02:30"), date("2017-03-06T04:03:53Z"));
        for text in ["", "2017-03-06", "2017-03-06T04:03:53", "2017-03-06T04:03:53+2", "2017-13-06T04:03:53Z", "T:Z"] {
            assert_eq!(date(text), None, "{text}");
        }
    }

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
