//! Days and seconds of dates.

/// Days from 1970-01-01 to a day of the Gregorian calendar, which holds before its beginning, too. `None` for a month
/// that is none. A day behind the end of its month is one of the next month.
pub(crate) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    // A year begins in March: so the day that not each one has is its last.
    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month.checked_add(9)?),
        3..=12 => (year, month.checked_sub(3)?),
        _ => return None,
    };
    let leap_days = [(4, 1), (100, -1), (400, 1)]
        .map(|(years, sign): (i64, i64)| year.div_euclid(years).saturating_mul(sign))
        .into_iter()
        .sum::<i64>();
    let of_months = month.checked_mul(153)?.checked_add(2)?.div_euclid(5);
    let before = year.checked_mul(365)?.checked_add(leap_days)?.checked_add(of_months)?;
    before.checked_add(day)?.checked_sub(719_469)
}

/// Seconds since 1970 of a year, month and day, and of an hour, minute and second, as a clock so many minutes to the
/// east of Greenwich shows them. `None` for what is no date.
pub(crate) fn seconds_of(
    [year, month, day]: [i64; 3],
    [hour, minute, second]: [i64; 3],
    minutes_east: i64,
) -> Option<i64> {
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = hour.saturating_mul(3600).saturating_add(minute.saturating_mul(60)).saturating_add(second);
    let east = minutes_east.saturating_mul(60);
    Some(days(year, month, day)?.saturating_mul(86_400).saturating_add(of_day).saturating_sub(east))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for ((year, month, day), expected) in [
            ((1970, 1, 1), Some(0)),
            ((1969, 12, 31), Some(-1)),
            ((2000, 2, 29), Some(11_016)),
            ((2000, 3, 1), Some(11_017)),
            ((1900, 3, 1), Some(-25_508)),
            ((2100, 2, 29), Some(47_541)),
            ((2100, 3, 1), Some(47_541)),
            ((1, 1, 1), Some(-719_162)),
            ((2000, 0, 1), None),
            ((2000, 13, 1), None),
            ((i64::MAX, 1, 1), None),
        ] {
            assert_eq!(days(year, month, day), expected, "{year}-{month}-{day}");
        }
    }
}
