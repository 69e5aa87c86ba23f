//! Times as people read them: in the time zone of this machine, as `ls` shows them.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tarnfs_tree::Time;

/// `2026-11-20 12:34`, local time.
pub(crate) fn minutes(time: Time) -> String {
    usual_minutes(time).unwrap_or_else(|| local(time, "%Y-%m-%d %H:%M"))
}

/// The same of years with four digits, without a search for the zone and a look at the format each time: a list of a
/// million entries shows a million times.
fn usual_minutes(time: Time) -> Option<String> {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
    // The fraction does not reach a minute's digits.
    let shown = ZONE.to_datetime(Timestamp::from_second(time.seconds).ok()?);
    let year = shown.year();
    if !(1000..=9999).contains(&year) || time.nanoseconds >= 1_000_000_000 {
        return None;
    }
    let mut text = String::with_capacity(16);
    let mut two = |number: i16, behind: &str| {
        for digit in [number / 10, number % 10] {
            text.push(char::from(b'0' + digit as u8));
        }
        text.push_str(behind);
    };
    two(year / 100, "");
    two(year % 100, "-");
    two(shown.month().into(), "-");
    two(shown.day().into(), " ");
    two(shown.hour().into(), ":");
    two(shown.minute().into(), "");
    Some(text)
}

/// `2026-11-20 12:34:56.123456789 +0100 (2026-11-20 11:34:56.123456789 UTC)`; once where both are the same.
pub(crate) fn in_both_zones(time: Time) -> String {
    let (here, utc) = (local(time, "%Y-%m-%d %H:%M:%S.%9f %z"), in_utc(time));
    // One of no calendar has no zone.
    if here == utc || here.ends_with("+0000") { utc } else { format!("{here} ({utc})") }
}

/// `2026-11-20 11:34:56.123456789 UTC`
pub(crate) fn in_utc(time: Time) -> String {
    shown(time, TimeZone::UTC, "%Y-%m-%d %H:%M:%S.%9f UTC")
}

fn local(time: Time, format: &str) -> String {
    shown(time, TimeZone::system(), format)
}

/// A time outside of the years -9999 to 9999 is shown as seconds since 1970: `@253402300800`.
fn shown(time: Time, zone: TimeZone, format: &str) -> String {
    match i32::try_from(time.nanoseconds).ok().and_then(|ns| Timestamp::new(time.seconds, ns).ok()) {
        Some(timestamp) => timestamp.to_zoned(zone).strftime(format).to_string(),
        None => format!("@{}", time.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_with_the_date_command() {
        for seconds in [
            0,
            -1,
            951_782_399,
            951_782_400,
            951_868_800,
            4_102_444_799,
            -2_208_988_801,
            -62_135_596_800,
            253_402_207_200,
        ] {
            let output = std::process::Command::new("date")
                .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d %H:%M:%S.%N UTC"])
                .output()
                .unwrap();
            let expected = String::from_utf8(output.stdout).unwrap();
            assert_eq!(in_utc(Time { seconds, nanoseconds: 0 }), expected.trim());
        }
    }

    #[test]
    fn usual_minutes_are_those_of_the_format() {
        let years = |years: i64| years * 31_556_952;
        for seconds in (0..3000).map(|step| step * 98_765_437 - years(2100)).chain([
            -30_610_224_001,
            -30_610_224_000,
            253_402_207_200,
            253_402_300_799,
            253_402_300_800,
            i64::MIN,
            i64::MAX,
        ]) {
            for nanoseconds in [0, 999_999_999] {
                let time = Time { seconds, nanoseconds };
                assert_eq!(minutes(time), local(time, "%Y-%m-%d %H:%M"), "{seconds}");
            }
        }
        assert_eq!(usual_minutes(Time { seconds: 0, nanoseconds: 0 }).map(|text| text.len()), Some(16));
    }

    #[test]
    fn times_of_no_calendar_are_seconds() {
        for seconds in [i64::MIN, -500_000_000_000, 300_000_000_000, i64::MAX] {
            assert_eq!(minutes(Time { seconds, nanoseconds: 999_999_999 }), format!("@{seconds}"));
        }
    }
}
