//! What a record begins with: a line with the version, and lines with a name and a value each, up to an empty one.

use crate::Time;
use crate::time::internet_date;

/// Bytes of a header, at most.
pub(super) const LONGEST: usize = 64 << 10;

/// What each header begins with, before the version.
pub(super) const MARK: &[u8] = b"WARC/";

/// The version that a record begins with: "1.0".
pub(super) fn version(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MARK)?;
    let end = rest.iter().take(8).position(|&byte| matches!(byte, b'\r' | b'\n'))?;
    let version = rest.get(..end)?;
    let is_one = version.len() >= 3 && version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_one.then_some(version)
}

/// Bytes of the line with the version, with its end.
fn first_line(bytes: &[u8]) -> Option<usize> {
    let length = MARK.len().checked_add(version(bytes)?.len())?;
    let end = match bytes.get(length..)? {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => return None,
    };
    length.checked_add(end)
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

/// Name and value of a line.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    Some((name.trim_ascii(), value.get(1..)?.trim_ascii()))
}

impl Header {
    /// The header at the start of `bytes`; `None` if it is none, or does not end there.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Finder::default().read(0, bytes).ok()
    }

    /// That of `lines`, of which the last one is empty. The error is the byte before which none begins either.
    fn of(lines: &[u8]) -> Result<Self, usize> {
        let mut header = Self { length: lines.len(), ..Self::default() };
        let (mut content, mut wrong, mut at) = (None, None, 0_usize);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let start = at;
            at = at.saturating_add(line.len());
            let Some((name, value)) = field(line) else { continue };
            match name.to_ascii_lowercase().as_slice() {
                b"content-length" => match std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()) {
                    Some(length) => content = Some(length),
                    None => wrong = Some(start),
                },
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
        match (wrong, content) {
            (Some(wrong), _) => Err(wrong),
            (None, None) => Err(lines.len()),
            (None, Some(content)) => Ok(Self { content, ..header }),
        }
    }
}

/// Reads headers at places of a stream, each behind the one before. Where one seems to begin, others may seem to begin
/// in each of its lines: these are looked at once.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// Where the first line begins that is not known to be a field, and up to where it does not end.
    line: u64,
    seen: u64,
    /// Bytes that were looked at.
    #[cfg(test)]
    looked: usize,
}

impl Finder {
    /// The header at byte `at` of the stream, at the start of `bytes`; the error says how many bytes behind `at` the
    /// next one may begin, at the earliest.
    pub(super) fn read(&mut self, at: u64, bytes: &[u8]) -> Result<Header, usize> {
        let Some(first) = first_line(bytes) else { return Err(1) };
        if at >= self.line {
            self.line = at.saturating_add(first as u64);
            self.seen = self.line;
        }
        loop {
            let [line, seen] = [self.line, self.seen].map(|place| place.saturating_sub(at) as usize);
            let rest = bytes.get(seen..).unwrap_or_default();
            let end = memchr::memchr(b'\n', rest);
            #[cfg(test)]
            {
                self.looked = self.looked.saturating_add(end.unwrap_or(rest.len())).saturating_add(1);
            }
            let Some(end) = end.map(|end| seen.saturating_add(end)) else {
                // It may end in what is looked at from another place.
                self.seen = self.seen.max(at.saturating_add(bytes.len() as u64));
                return Err(1);
            };
            let text = bytes.get(line..end).unwrap_or_default();
            let length = end.saturating_add(1);
            if matches!(text, b"" | b"\r") {
                // Others may end here, too.
                self.seen = self.line;
                #[cfg(test)]
                {
                    self.looked = self.looked.saturating_add(length);
                }
                return Header::of(bytes.get(..length).unwrap_or_default());
            }
            self.line = at.saturating_add(length as u64);
            self.seen = self.line;
            // Each line but the first has a colon, or goes on with the one before it.
            if !text.contains(&b':') && !text.first().is_some_and(u8::is_ascii_whitespace) {
                return Err(line);
            }
        }
    }
}

/// A date of a record.
fn date(text: &[u8]) -> Option<Time> {
    internet_date(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found behind damage, and how many bytes were looked at for it, if whoever searches goes from mark to
    /// mark.
    fn found(bytes: &[u8]) -> (Option<usize>, usize) {
        let (mut finder, mut at) = (Finder::default(), 0);
        while let Some(place) = memchr::memmem::find(&bytes[at..], MARK) {
            at += place;
            match finder.read(at as u64, &bytes[at..bytes.len().min(at + LONGEST)]) {
                Ok(header) => {
                    assert_eq!(Some(header), Header::read(&bytes[at..bytes.len().min(at + LONGEST)]));
                    return (Some(at), finder.looked);
                }
                Err(length) => at += length,
            }
        }
        (None, finder.looked)
    }

    /// Where a search finds the first header that can be read by itself.
    fn first(bytes: &[u8]) -> Option<usize> {
        let mut places = memchr::memmem::find_iter(bytes, MARK);
        places.find(|at| Header::read(&bytes[*at..bytes.len().min(at + LONGEST)]).is_some())
    }

    /// Lines of any kind in any order: what is known of some of them hides none.
    #[test]
    fn no_header_is_missed() {
        const LINES: [&str; 12] = [
            "WARC/1.0\n",
            "x:WARC/1.0\r\n",
            "xWARC/1.0\n",
            "Content-Length: 3\n",
            "Content-Length: 3\r\n",
            "Content-Length: x\r\n",
            "x: y\n",
            " x\r\n",
            "x\n",
            "\n",
            "\r\n",
            "WARC/x:\n",
        ];
        let (mut seed, mut some, mut none) = (1_u64, 0, 0);
        for number in 0..20_000 {
            let mut text = String::new();
            for _ in 0..number % 30 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(LINES[(seed >> 40) as usize % LINES.len()]);
            }
            let expected = first(text.as_bytes());
            assert_eq!(found(text.as_bytes()).0, expected, "{text}");
            *(if expected.is_some() { &mut some } else { &mut none }) += 1;
        }
        assert!(some > 1000 && none > 1000, "{some} {none}");
        // One that begins in the lines of another, which is too long.
        for length in [LONGEST - 100, LONGEST, 2 * LONGEST] {
            for filler in ["x: y\n", "x:WARC/1.0\n"] {
                let lines = filler.repeat(length / filler.len());
                let text = format!("WARC/1.0\n{lines}x:WARC/1.0\nContent-Length: 3\n\nabc");
                let mut places = memchr::memmem::find_iter(text.as_bytes(), MARK);
                let expected = places.find(|at| text.len() - 3 - at <= LONGEST);
                assert_eq!(found(text.as_bytes()).0, expected, "{length} {filler}");
            }
        }
    }

    /// Headers may seem to begin in every line of others, and none be one.
    #[test]
    fn lines_are_looked_at_once() {
        let marks = "x:WARC/1.0\n".repeat(5000);
        let long = format!("x:WARC/1.0\n{}", "x".repeat(40_000));
        for part in [
            marks.clone(),
            format!("{marks}x\n"),
            format!("{marks}\n"),
            format!("{marks}Content-Length: x\n"),
            format!("{}\n", "x:WARC/1.0\nContent-Length:x\n".repeat(2000)),
            format!("{marks}{}\n", "x".repeat(40_000)),
            format!("{marks}{}", "x".repeat(2_000_000)),
            long.repeat(2),
        ] {
            let text = part.repeat(2_000_000 / part.len() + 1);
            let (at, looked) = found(text.as_bytes());
            assert_eq!(at, None);
            assert!(looked <= 4 * text.len(), "{looked} bytes of {}: {}", text.len(), &part[part.len() - 20..]);
        }
    }

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
