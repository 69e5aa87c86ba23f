//! Numbers as tar writes them: octal digits, base-256, and the decimals of pax records.

use crate::Time;

/// The number in a header field; `None` if there is something else in it or it is outside an `i64`.
///
/// Octal digits may have blanks or one NUL before them and end at a blank, a NUL or the end of the field. A field with
/// its first bit set is a big-endian number in two's complement without that bit (GNU and star call it base-256). A
/// field without digits is 0, as POSIX-1988 archives leave fields that do not apply.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    match field {
        [first, ..] if first & 0x80 != 0 => base_256(field),
        [0, rest @ ..] => octal(rest),
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Option<i64> {
    let mut bytes = field.iter().copied().skip_while(u8::is_ascii_whitespace);
    let mut value = 0_u64;
    loop {
        match bytes.next() {
            Some(digit @ b'0'..=b'7') => {
                if value >> 60 != 0 {
                    return None;
                }
                value = (value << 3) | u64::from(digit & 7);
            }
            None | Some(0) => break,
            Some(byte) if byte.is_ascii_whitespace() => break,
            Some(_) => return None,
        }
    }
    i64::try_from(value).ok()
}

fn base_256(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    // The bit behind the marker is the sign: spread it over the marker.
    let mut value = i64::from((first << 1).cast_signed() >> 1);
    for &byte in rest {
        value = value.checked_mul(256)? | i64::from(byte);
    }
    Some(value)
}

/// A number that cannot be negative, in decimal digits only, as pax records hold them.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte & 0xf))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A time of a pax record: seconds since 1970, perhaps negative, perhaps with a fraction.
///
/// As in GNU tar, digits behind the ninth of the fraction are rounded down in time, and what is no digit ends it.
pub(super) fn time(text: &[u8]) -> Option<Time> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    let (mut nanoseconds, mut unit, mut rest) = (0_u32, 100_000_000_u32, false);
    for &byte in fraction.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = u32::from(byte & 0xf);
        nanoseconds = nanoseconds.saturating_add(digit.saturating_mul(unit));
        rest |= unit == 0 && digit != 0;
        unit /= 10;
    }
    if !negative {
        return Some(Time { seconds, nanoseconds });
    }
    nanoseconds = nanoseconds.saturating_add(u32::from(rest));
    if nanoseconds == 0 {
        return Some(Time { seconds: seconds.checked_neg()?, nanoseconds: 0 });
    }
    // The nanoseconds count forward: -1.25 is 0.75 s after -2.
    Some(Time {
        seconds: seconds.checked_neg()?.checked_sub(1)?,
        nanoseconds: 1_000_000_000_u32.saturating_sub(nanoseconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_as_the_tars_of_forty_years_write_them() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"77777777", Some(0o77_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"\x00000644\0", Some(0o644)),
            (b"644 junk", Some(0o644)),
            (b"644junk\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (b"8\0", None),
            (b"\x80\0\0\0\0\0\0\0\0\0\0\x09", Some(9)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff", Some(0x3fff_ffff_ffff_ffff)),
            (b"7777777777777777777777777", None),
            (b"", Some(0)),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }

    #[test]
    fn pax_times_keep_their_nanoseconds_on_both_sides_of_1970() {
        for (text, time_) in [
            ("0", Some((0, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("1.0000000019", Some((1, 1))),
            ("-1", Some((-1, 0))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-0.000000001", Some((-1, 999_999_999))),
            ("-1.0000000001", Some((-2, 999_999_999))),
            ("-1.9999999999", Some((-2, 0))),
            ("9223372036854775807.999999999", Some((i64::MAX, 999_999_999))),
            ("9223372036854775808", None),
            ("", None),
            (" 1", None),
            ("1.x", Some((1, 0))),
            ("1e3", None),
            ("--1", None),
        ] {
            let expected = time_.map(|(seconds, nanoseconds)| Time { seconds, nanoseconds });
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn decimals_are_digits_only() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "", "+1", "-1", " 1", "1 ", "0x1", "1\0"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text:?}");
        }
    }
}
