//! Text of headers that is in other encodings: words of RFC 2047, and values of RFC 2231.

use encoding_rs::Encoding;

/// Bytes in which an encoded word ends: RFC 2047 allows 75, and some programs write long ones. A header may have any
/// number of starts without an end.
const LONGEST_WORD: usize = 4 << 10;

/// `bytes` in that charset as text; `None` if it is not known.
fn decoded(charset: &[u8], bytes: &[u8]) -> Option<String> {
    // RFC 2231 allows a language behind it.
    let label = charset.split(|&byte| byte == b'*').next().unwrap_or_default();
    let encoding = Encoding::for_label(label)?;
    Some(encoding.decode_without_bom_handling(bytes).0.into_owned())
}

/// Bytes of a header that say nothing of their encoding: UTF-8, or the one that most others are in.
pub(super) fn plain(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

/// A header's text, whose words may be encoded: "=?utf-8?q?gr=C3=BCn?=".
pub(super) fn text(value: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), value);
    // What was decoded of words of one charset that follow each other: a character may be cut between them.
    let mut pending: Option<(&[u8], Vec<u8>)> = None;
    let flush = |pending: &mut Option<(&[u8], Vec<u8>)>, text: &mut String| {
        if let Some((charset, bytes)) = pending.take() {
            text.push_str(&decoded(charset, &bytes).unwrap_or_else(|| plain(&bytes)));
        }
    };
    while !rest.is_empty() {
        let start = memchr::memmem::find(rest, b"=?").unwrap_or(rest.len());
        let (before, found) = rest.split_at_checked(start).unwrap_or((rest, b""));
        // Blanks between two of them are no part of the text.
        if pending.is_none() || !before.iter().all(u8::is_ascii_whitespace) {
            flush(&mut pending, &mut text);
            text.push_str(&plain(before));
        }
        if found.is_empty() {
            flush(&mut pending, &mut text);
            if !before.is_empty() && before.iter().all(u8::is_ascii_whitespace) && !text.ends_with(' ') {
                text.push(' ');
            }
            break;
        }
        if let Some((charset, bytes, behind)) = word(found) {
            match &mut pending {
                Some((before, all)) if before.eq_ignore_ascii_case(charset) => all.extend_from_slice(&bytes),
                _ => {
                    flush(&mut pending, &mut text);
                    pending = Some((charset, bytes));
                }
            }
            rest = behind;
        } else {
            flush(&mut pending, &mut text);
            text.push_str("=?");
            rest = found.get(2..).unwrap_or_default();
        }
    }
    flush(&mut pending, &mut text);
    text
}

/// Charset and bytes of the encoded word at the start of `bytes`, and what is behind it.
fn word(bytes: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let all = bytes.get(..LONGEST_WORD).unwrap_or(bytes);
    let rest = all.strip_prefix(b"=?")?;
    let (charset, rest) = split(rest, b'?')?;
    let (kind, rest) = split(rest, b'?')?;
    let end = memchr::memmem::find(rest, b"?=")?;
    let (content, behind) = rest.split_at_checked(end)?;
    let is_word = |byte: &u8| !byte.is_ascii_whitespace() || kind.eq_ignore_ascii_case(b"q");
    if charset.is_empty() || charset.len() > 64 || !content.iter().all(is_word) {
        return None;
    }
    Encoding::for_label(charset.split(|&byte| byte == b'*').next()?)?;
    let decoded = match kind {
        b"B" | b"b" => base64(content),
        b"Q" | b"q" => escaped(content, b'=', true),
        _ => return None,
    };
    let length = all.len().checked_sub(behind.len())?.checked_add(2)?;
    Some((charset, decoded, bytes.get(length..)?))
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|&byte| byte == at)?;
    Some((bytes.get(..place)?, bytes.get(place.checked_add(1)?..)?))
}

/// What base64 says; anything else in it is ignored.
fn base64(text: &[u8]) -> Vec<u8> {
    let (mut decoded, mut bits, mut count) = (Vec::new(), 0_u32, 0_u32);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte.wrapping_sub(b'A'),
            b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count = count.saturating_add(6);
        if count >= 8 {
            count = count.saturating_sub(8);
            decoded.push((bits >> count) as u8);
        }
    }
    decoded
}

/// What has bytes as `mark` and two digits. In words of a header, an underscore is a blank.
pub(super) fn escaped(text: &[u8], mark: u8, has_blanks: bool) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..2).filter(|_| byte == mark).and_then(|digits| std::str::from_utf8(digits).ok());
        let value =
            digits.filter(|digits| !digits.starts_with('+')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) => {
                decoded.push(value);
                rest = behind.get(2..).unwrap_or_default();
            }
            None if byte == b'_' && has_blanks => decoded.push(b' '),
            None => decoded.push(byte),
        }
    }
    decoded
}

/// A value as RFC 2231 has it: "utf-8'en'gr%C3%BCn". `None` if its charset is not known.
pub(super) fn extended(value: &[u8]) -> Option<String> {
    let (charset, rest) = split(value, b'\'')?;
    let (_, text) = split(rest, b'\'')?;
    let bytes = escaped(text, b'%', false);
    if charset.is_empty() { Some(plain(&bytes)) } else { decoded(charset, &bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_rfcs() {
        for (value, expected) in [
            ("plain", "plain"),
            ("=?utf-8?q?gr=C3=BCn?=", "grün"),
            ("=?ISO-8859-1?B?Z3L8bg==?= und =?utf-8*de?Q?blau_rot?=", "grün und blau rot"),
            // A character is cut between two.
            ("=?utf-8?q?gr=C3?=\r\n =?utf-8?Q?=BCn?=", "grün"),
            ("=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本"),
            ("a =?utf-8?q?b?= c", "a b c"),
            ("=?utf-8?q?b?=c", "bc"),
            ("=?unknown?q?b?=", "=?unknown?q?b?="),
            ("=?utf-8?x?b?=", "=?utf-8?x?b?="),
            ("1 =? 2 ?= 3", "1 =? 2 ?= 3"),
            ("=?", "=?"),
            ("", ""),
        ] {
            assert_eq!(text(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(text(b"gr\xfcn"), "grün");
        // Long ones are words, and starts without an end are text, however many there are.
        assert_eq!(text(format!("=?utf-8?q?{}?= b", "a".repeat(3000)).as_bytes()), "a".repeat(3000) + " b");
        let starts = "=?zz?q?a ".repeat(7000) + "?=";
        assert_eq!(text(starts.as_bytes()), starts);
        assert_eq!(extended(b"utf-8'en'%e2%82%ac%20rates").as_deref(), Some("€ rates"));
        assert_eq!((extended(b"iso-8859-1''gr%FCn").as_deref(), extended(b"x")), (Some("grün"), None));
        assert_eq!(escaped(b"%+1%4", b'%', false), b"%+1%4");
    }
}
