//! Dates, as file systems of optical discs store them.

/// Seconds since 1970 of a year, month and day, and of an hour, minute and second, as a clock so many minutes to the
/// east of Greenwich shows them. `None` for what is no date.
pub(crate) fn seconds_of(
    [year, month, day]: [i64; 3],
    [hour, minute, second]: [i64; 3],
    minutes_east: i64,
) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A year begins in March: so the day that not each one has is its last.
    let (year, month) =
        if month > 2 { (year, month.saturating_sub(3)) } else { (year.checked_sub(1)?, month.checked_add(9)?) };
    let of_years = year.saturating_mul(365).saturating_add(year.div_euclid(4)).saturating_sub(year.div_euclid(100));
    let of_months = month.saturating_mul(153).saturating_add(2).div_euclid(5);
    let days = [year.div_euclid(400), of_months, day, -719_469].into_iter().fold(of_years, i64::saturating_add);
    let of_day = hour.saturating_mul(3600).saturating_add(minute.saturating_mul(60)).saturating_add(second);
    let east = minutes_east.saturating_mul(60);
    Some(days.saturating_mul(86_400).saturating_add(of_day).saturating_sub(east))
}
