//! Lines and words, and characters that are written in another way (vis(3)).

use std::io;

use crate::window::Window;

/// Bytes of a line, with those that it goes on in: names and targets of links are the longest part. What joins lines
/// counts, too: any number of them may add nothing else.
const LONGEST: usize = 1 << 20;

/// Bytes that are looked at at once.
const AT_ONCE: usize = 4 << 10;

/// Reads lines.
pub(super) struct Lines<'s> {
    window: Window<'s>,
    at: u64,
    pub(super) line: Vec<u8>,
    join: Join,
}

impl<'s> Lines<'s> {
    pub(super) fn new(window: Window<'s>) -> Self {
        Self { window, at: 0, line: Vec::new(), join: Join::default() }
    }

    /// Reads the next line, with those that it goes on in, and returns the byte at which it begins; `None` at the end.
    /// `InvalidData` where it is longer than any is.
    pub(super) fn next(&mut self) -> io::Result<Option<u64>> {
        self.line.clear();
        let start = self.at;
        self.join.begin();
        loop {
            let bytes = self.window.bytes(self.at, u64::MAX, AT_ONCE)?;
            if bytes.is_empty() {
                return Ok((self.at > start).then_some(start));
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            let length = self.at.saturating_sub(start).saturating_add(part.len() as u64);
            if length > LONGEST as u64 {
                let what = format!("a line of more than {LONGEST} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.line.extend_from_slice(part);
            self.at = self.at.saturating_add(part.len() as u64).saturating_add(u64::from(end.is_some()));
            if end.is_some() && !self.join.goes_on(&mut self.line) {
                return Ok(Some(start));
            }
        }
    }
}

/// What is known of a line that goes on in others. It may do so very often, so only what is new is looked at.
#[derive(Debug, Default)]
struct Join {
    /// Where in it the last of its lines begins.
    last: usize,
    /// So many blanks stand at its front, at least.
    blanks: usize,
    /// Bytes that were looked at, of all lines.
    #[cfg(test)]
    looked: usize,
}

impl Join {
    fn begin(&mut self) {
        (self.last, self.blanks) = (0, 0);
    }

    /// True of a line that ends with a backslash, which is not the second one of two, and is no comment. What ends its
    /// last line is taken off.
    fn goes_on(&mut self, line: &mut Vec<u8>) -> bool {
        if line.get(self.last..).is_some_and(|last| last.ends_with(b"\r")) {
            line.pop();
        }
        // Those that stand before the last line are an even number.
        let last = line.get(self.last..).unwrap_or_default();
        let count = last.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if count % 2 == 0 {
            return false;
        }
        let rest = line.get(self.blanks..).unwrap_or_default();
        let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.blanks = self.blanks.saturating_add(blanks);
        #[cfg(test)]
        {
            self.looked = self.looked.saturating_add(count).saturating_add(blanks);
        }
        if line.get(self.blanks) == Some(&b'#') {
            return false;
        }
        line.pop();
        self.last = line.len();
        true
    }
}

pub(super) fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii_start().first().is_none_or(|&byte| byte == b'#')
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// What is written in `word`: `\040`, `\s`, `\M-a`, `\^C` and so on are other characters.
pub(super) fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, behind @ ..] = rest {
        if *first != b'\\' {
            plain.push(*first);
            rest = behind;
            continue;
        }
        match escape(behind) {
            Some((Some(byte), length)) => {
                plain.push(byte);
                rest = behind.get(length..).unwrap_or_default();
            }
            Some((None, length)) => rest = behind.get(length..).unwrap_or_default(),
            // It stands for itself.
            None => {
                plain.push(b'\\');
                rest = behind;
            }
        }
    }
    plain
}

/// The character that `bytes`, behind a backslash, stand for, and how many of them do. Some stand for none.
fn escape(bytes: &[u8]) -> Option<(Option<u8>, usize)> {
    let control = |byte: u8| if byte == b'?' { 0x7f } else { byte & 0x1f };
    let octal = |byte: u8| u16::from(byte.wrapping_sub(b'0'));
    Some(match *bytes {
        [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            (Some((octal(a) << 6 | octal(b) << 3 | octal(c)) as u8), 3)
        }
        [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
            (Some(digit(high) << 4 | digit(low)), 3)
        }
        [b'0', ..] => (Some(0), 1),
        [b'M', b'-', byte, ..] => (Some(byte | 0x80), 3),
        [b'M', b'^', byte, ..] => (Some(control(byte) | 0x80), 3),
        [b'^', byte, ..] => (Some(control(byte)), 2),
        [b'a', ..] => (Some(7), 1),
        [b'b', ..] => (Some(8), 1),
        [b't', ..] => (Some(b'\t'), 1),
        [b'n', ..] => (Some(b'\n'), 1),
        [b'v', ..] => (Some(0x0b), 1),
        [b'f', ..] => (Some(0x0c), 1),
        [b'r', ..] => (Some(b'\r'), 1),
        [b'E', ..] => (Some(0x1b), 1),
        [b's', ..] => (Some(b' '), 1),
        [b'$', ..] => (None, 1),
        [byte @ (b'\\' | b'#' | b'"' | b'*' | b'?' | b'[' | b'='), ..] => (Some(byte), 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    #[test]
    fn escapes_stand_for_other_characters() {
        for (written, plain) in [
            (&b"a\\040b"[..], &b"a b"[..]),
            (b"\\s\\t\\\\\\#\\303\\244", b" \t\\#\xc3\xa4"),
            (b"\\M-C\\M-$\\^A\\M^A\\^?\\x41", b"\xc3\xa4\x01\x81\x7fA"),
            (b"\\q\\", b"\\q\\"),
            (b"\\0x\\400\\$z", b"\0x\\400z"),
        ] {
            assert_eq!(unescaped(written), plain, "{}", String::from_utf8_lossy(written));
        }
    }

    #[test]
    fn lines_go_on_behind_a_backslash() {
        let text = b"#mtree \\\na type=file \\\r\n  size=3\r\n\nb\\\\\nlast";
        let source = MemorySource::new(&text[..], "text");
        let mut lines = Lines::new(Window::growing(&source));
        let mut found = Vec::new();
        while let Some(at) = lines.next().unwrap() {
            found.push((at, String::from_utf8(lines.line.clone()).unwrap()));
        }
        let expected = [(0, "#mtree \\"), (9, "a type=file   size=3"), (34, ""), (35, "b\\\\"), (39, "last")];
        assert_eq!(found, expected.map(|(at, line)| (at, line.to_owned())));
        let long = MemorySource::new(vec![b'a'; LONGEST + 1], "text");
        assert!(Lines::new(Window::growing(&long)).next().is_err());
    }

    /// Whatever stands before a backslash decides whether the line goes on, in whichever of its lines that is.
    #[test]
    fn backslashes_count_in_the_line_that_they_end() {
        for (text, expected) in [
            (&b"a\\\\\\\n\\\nb\n"[..], &["a\\\\b"][..]),
            (b"a\\\\\\\n\\\\\nb\n", &["a\\\\\\\\", "b"]),
            (b"\\\n\\\n  \\\n# a\\\nb\n", &["  # a\\", "b"]),
            (b"  \\\na\\\n#b\\\nc\n", &["  a#bc"]),
            (b" \t#\\\na\n", &[" \t#\\", "a"]),
            (b"a\\\r\n\r\nb\n", &["a", "b"]),
            (b"\\\n\n\\", &["", "\\"]),
        ] {
            let source = MemorySource::new(text, "text");
            let mut lines = Lines::new(Window::growing(&source));
            let mut found = Vec::new();
            while lines.next().unwrap().is_some() {
                found.push(String::from_utf8(lines.line.clone()).unwrap());
            }
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        }
    }

    /// A line may be joined of very many that add nothing to it, behind very many blanks.
    #[test]
    fn joined_lines_are_looked_at_once() {
        for (front, part) in [(" ", "\\\n"), ("a", "\\\n"), (" ", " \\\n"), (" ", "\\\\\\\n"), (" ", "\\\r\n")] {
            let text = [front.repeat(LONGEST / 4), part.repeat(LONGEST / 2 / part.len()), "\n".to_owned()].concat();
            let source = MemorySource::new(text.as_bytes(), "text");
            let mut lines = Lines::new(Window::growing(&source));
            assert_eq!(lines.next().unwrap(), Some(0), "{part:?}");
            assert_eq!(lines.at, text.len() as u64);
            assert!(lines.join.looked <= 2 * text.len(), "{part:?}: {} bytes of {}", lines.join.looked, text.len());
        }
        let endless = MemorySource::new(b"\\\n".repeat(LONGEST), "text");
        let mut lines = Lines::new(Window::growing(&endless));
        assert_eq!(lines.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(lines.line.is_empty() && lines.join.looked <= 2 * LONGEST);
    }
}
