//! What a record begins with: a line with the version, and lines with a name and a value each, up to an empty one.

use crate::Time;
use crate::time::internet_date;

/// Bytes of a header, at most.
pub(super) const LONGEST: usize = 64 << 10;

/// The version that a record begins with: "1.0".
pub(super) fn version(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"WARC/")?;
    let end = rest.iter().take(8).position(|&byte| matches!(byte, b'\r' | b'\n'))?;
    let version = rest.get(..end)?;
    let is_one = version.len() >= 3 && version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_one.then_some(version)
}

/// What a header says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the header, with the empty line.
    pub(super) length: usize,
    /// Bytes behind it.
    pub(super) content: u64,
    /// "response", "request", ...
    pub(super) kind: Vec<u8>,
    pub(super) address: Vec<u8>,
    pub(super) id: Vec<u8>,
    pub(super) date: Option<Time>,
    /// The content is a message of HTTP.
    pub(super) is_http: bool,
}

/// Bytes of the lines at the start of `bytes`, with the empty line that ends them; `None` if none does.
pub(super) fn end_of_lines(bytes: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    loop {
        let rest = bytes.get(at..)?;
        let line = rest.iter().position(|&byte| byte == b'\n')?;
        at = at.checked_add(line)?.checked_add(1)?;
        if matches!(rest.get(..line)?, b"" | b"\r") {
            return Some(at);
        }
    }
}

/// Name and value of each line.
fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        Some((name.trim_ascii(), value.get(1..)?.trim_ascii()))
    })
}

impl Header {
    /// The header at the start of `bytes`; `None` if it is none, or does not end there.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        version(bytes)?;
        // Each line but the first has a colon, or goes on with the one before it. To look farther where that is not so
        // would cost much where the mark stands often.
        let is_field = |line: &[u8]| line.contains(&b':') || line.first().is_some_and(u8::is_ascii_whitespace);
        for line in bytes.split(|&byte| byte == b'\n').skip(1) {
            if matches!(line, [] | [b'\r']) {
                break;
            }
            if !is_field(line) {
                return None;
            }
        }
        let length = end_of_lines(bytes)?;
        let mut header = Self { length, ..Self::default() };
        let mut has_length = false;
        for (name, value) in fields(bytes.get(..length)?) {
            match name.to_ascii_lowercase().as_slice() {
                b"content-length" => {
                    header.content = std::str::from_utf8(value).ok()?.parse().ok()?;
                    has_length = true;
                }
                b"warc-type" => header.kind = value.to_vec(),
                // Some have it in angle brackets.
                b"warc-target-uri" => {
                    let plain = value.strip_prefix(b"<").and_then(|value| value.strip_suffix(b">"));
                    header.address = plain.unwrap_or(value).to_vec();
                }
                b"warc-record-id" => header.id = value.to_vec(),
                b"warc-date" => header.date = date(value),
                b"content-type" => {
                    header.is_http = value.to_ascii_lowercase().starts_with(b"application/http");
                }
                _ => {}
            }
        }
        has_length.then_some(header)
    }
}

/// A date of a record.
fn date(text: &[u8]) -> Option<Time> {
    internet_date(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_far_as_they_go() {
        let bytes = b"WARC/1.0\r\nWARC-Type: response\r\nwarc-target-uri: <http://a/b>\r\nWARC-Date: 2017-03-06T04:03:53.25Z\r\n\
            Content-Type: application/http; msgtype=response\r\nContent-Length: 12\r\n\r\nHTTP";
        let header = Header::read(bytes).unwrap();
        assert_eq!((header.content, &header.kind[..], &header.address[..]), (12, &b"response"[..], &b"http://a/b"[..]));
        assert_eq!(header.date, Some(Time { seconds: 1_488_773_033, nanoseconds: 250_000_000 }));
        assert!(header.is_http && bytes[header.length..] == *b"HTTP");
        for length in 0..header.length {
            assert_eq!(Header::read(&bytes[..length]), None);
        }
        assert!(Header::read(b"WARC/1.0\r\nWARC-Type: x\r\n\r\n").is_none());
        // A line that is no field is in no header; one that begins with a space goes on.
        assert!(Header::read(b"WARC/1.0\nWARC/1.0\nContent-Length: 1\n\n").is_none());
        assert!(Header::read(b"WARC/1.0\nX-Y: a\n b\nContent-Length: 1\n\n").is_some());
        assert_eq!((version(b"WARC/1.1\n"), version(b"WARC/x\n")), (Some(&b"1.1"[..]), None));
        assert_eq!((date(b"2017-03-06"), date(b"2017-13-06T04:03:53Z"), date(b"x")), (None, None, None));
    }
}
