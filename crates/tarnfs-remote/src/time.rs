//! Times as servers write them, in ns since 1970.

use std::time::SystemTime;

/// The same of a time, as far as HTTP has dates for it: from 1970 on, and before the year 10000. What is told apart by
/// that has others, too.
pub(crate) fn to_http(time: SystemTime) -> String {
    const BEHIND: u64 = 253_402_300_800;
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since.as_secs() < BEHIND => httpdate::fmt_http_date(time),
        Ok(since) => format!("{} s after 1970", since.as_secs()),
        Err(before) => format!("{} s before 1970", before.duration().as_secs()),
    }
}

/// As in HTTP: `Fri, 24 May 2013 00:00:00 GMT`.
pub(crate) fn of_http(text: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// As in ISO 8601, in UTC: `2013-05-24T00:00:00.000Z`.
pub(crate) fn of_iso(text: &str) -> Option<i64> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    of_parts([year, month, day, hour, minute, second])?.checked_add(digits.parse().ok()?)
}

/// Of year, month, day, hour, minute and second.
pub(crate) fn of_parts([year, month, day, hour, minute, second]: [u32; 6]) -> Option<i64> {
    /// Days of a year before each month.
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_time = (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !(1970..2200).contains(&year) || !is_time {
        return None;
    }
    let month_before = BEFORE.get((month as usize).checked_sub(1)?)?;
    let year = i64::from(year);
    // Leap days up to the end of February of this year, or of the one before.
    let last = if month > 2 { year } else { year - 1 };
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let days = (year - 1970) * 365 + leaps(last) - leaps(1969) + month_before + i64::from(day) - 1;
    let seconds = ((days * 24 + i64::from(hour)) * 60 + i64::from(minute)) * 60 + i64::from(second);
    Some(seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_text_each() {
        let of = |seconds: i64| {
            let by = std::time::Duration::from_secs(seconds.unsigned_abs());
            let epoch = SystemTime::UNIX_EPOCH;
            to_http(if seconds < 0 { epoch - by } else { epoch + by })
        };
        assert_eq!((of(0).as_str(), of(-60).as_str()), ("Thu, 01 Jan 1970 00:00:00 GMT", "60 s before 1970"));
        assert_eq!(of(253_402_300_799), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(of(253_402_300_800), "253402300800 s after 1970");
        let old = SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(60);
        let version = crate::Version::of_second(Some(1), Some(old)).unwrap();
        assert_eq!(version.modified.as_deref(), Some("60 s before 1970"));
    }

    #[test]
    fn times_are_read() {
        const THEN: i64 = 1_369_353_600_000_000_000;
        assert_eq!(of_http("Fri, 24 May 2013 00:00:00 GMT"), Some(THEN));
        assert_eq!(of_iso("2013-05-24T00:00:00.000Z"), Some(THEN));
        assert_eq!(of_iso("2013-05-24T00:00:01.25Z"), Some(THEN + 1_250_000_000));
        assert_eq!(of_iso("2013-05-24T00:00:00Z"), Some(THEN));
        // Each day is one behind the one before it.
        for (day, next) in [
            ("2024-02-28", "2024-02-29"),
            ("2024-02-29", "2024-03-01"),
            ("2023-02-28", "2023-03-01"),
            ("2100-02-28", "2100-03-01"),
            ("2024-12-31", "2025-01-01"),
        ] {
            let of = |day: &str| of_iso(&format!("{day}T00:00:00Z")).unwrap();
            assert_eq!(of(next) - of(day), 86_400_000_000_000, "{day}");
        }
        for wrong in ["", "2013-05-24", "2013-13-24T00:00:00Z", "2013-05-24T00:00:00+01:00", "x-y-zT0:0:0Z"] {
            assert_eq!(of_iso(wrong), None, "{wrong}");
        }
    }
}
