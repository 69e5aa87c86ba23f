//! Sizes in bytes, as people write them.

use std::num::IntErrorKind;
use std::ops::Range;
use std::str::FromStr;

/// `text` in bytes: a number, with a unit behind it or none. `K`, `KiB`, `M`, `MiB`, ... are powers of 1024; `kB`,
/// `MB`, ... of 1000.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    let problem = || "give bytes, or a number with K, M or G behind it, such as 512M".to_owned();
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let factor = match unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit) {
        "" => 1,
        prefix => {
            let power = UNITS.iter().position(|unit| prefix.strip_prefix(*unit) == Some("")).ok_or_else(problem)?;
            let base: u64 = if unit.len() == 2 && unit.ends_with('B') { 1000 } else { 1024 };
            base.pow(power as u32 + 1)
        }
    };
    // A whole number is exact, however large; one that is too large is the largest there is.
    if number.contains('.') {
        return number.parse::<f64>().map(|number| (number * factor as f64) as u64).map_err(|_| problem());
    }
    match number.parse::<u64>() {
        Ok(number) => Ok(number.saturating_mul(factor)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u64::MAX),
        Err(_) => Err(problem()),
    }
}

/// A number of the type of the option.
pub(crate) fn parse_number<N: FromStr>(text: &str) -> Result<N, String> {
    text.trim().parse().map_err(|_| "give a number".to_owned())
}

/// How many: less than none is none.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    parse_number::<i64>(text).map(|number| number.max(0) as u64).or_else(|_| parse_number::<u64>(text))
}

/// The level of `-d`: what is less than the lowest or more than the highest is that.
pub(crate) fn parse_level(text: &str) -> Result<u8, String> {
    let level = parse_number::<i64>(text).map_err(|_| "give a number: 0, 1, 2, or 3 for everything".to_owned())?;
    Ok(level.clamp(0, u8::MAX.into()) as u8)
}

/// `OFFSET:LENGTH`, `OFFSET:` or `OFFSET`, both as sizes.
pub(crate) fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let problem = |_| {
        "give OFFSET:LENGTH in bytes or with K, M or G behind them, such as 10:1K, or 512M: for all from there on"
            .to_owned()
    };
    let (offset, length) = text.split_once(':').unwrap_or((text, ""));
    let start = parse_size(offset).map_err(problem)?;
    let end = if length.is_empty() { u64::MAX } else { start.saturating_add(parse_size(length).map_err(problem)?) };
    Ok(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        let sizes = [
            ("0", 0),
            ("4096", 4096),
            ("12b", 12),
            ("1k", 1024),
            ("512M", 512 << 20),
            ("1.5 GiB", 3 << 29),
            ("2gb", 2_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("99999999999P", u64::MAX),
            ("9007199254740993", (1 << 53) + 1),
            ("18446744073709551615", u64::MAX),
            ("99999999999999999999", u64::MAX),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1X", "1KK", "1.2.3", "1iB2", "lots"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_range("1K:2"), Ok(1024..1026));
        assert_eq!(parse_range("7:"), Ok(7..u64::MAX));
        assert_eq!(parse_range("7"), Ok(7..u64::MAX));
        assert_eq!(["-1", "0", "3", "300"].map(parse_level), [0, 0, 3, u8::MAX].map(Ok));
        assert_eq!(["-5", "7", "18446744073709551615"].map(parse_count), [0, 7, u64::MAX].map(Ok));
        assert!(parse_count("x").is_err());
        assert!(parse_level("x").is_err() && parse_level("").is_err());
        assert!(parse_range(":7").is_err() && parse_range("1:2:3").is_err() && parse_range("").is_err());
    }
}
