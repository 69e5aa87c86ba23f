//! How long a part is once it is decoded, and whether each of its bytes can be found without those before it. What
//! decodes it counts in the same way.

use crate::Step;

/// How the content of a part is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Not at all, or in a way that is not known: it is shown as it is stored.
    None,
    Base64,
    QuotedPrintable,
}

impl Encoding {
    /// That of the field Content-Transfer-Encoding.
    pub(crate) fn of(value: &[u8]) -> Self {
        let value = value.trim_ascii();
        if value.eq_ignore_ascii_case(b"base64") {
            Self::Base64
        } else if value.eq_ignore_ascii_case(b"quoted-printable") {
            Self::QuotedPrintable
        } else {
            Self::None
        }
    }
}

/// What is known of a part up to some line.
#[derive(Debug)]
pub(crate) enum Measure {
    Stored,
    Base64(Base64),
    Quoted(Quoted),
}

impl Measure {
    pub(crate) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::None => Self::Stored,
            Encoding::Base64 => Self::Base64(Base64::default()),
            Encoding::QuotedPrintable => Self::Quoted(Quoted::default()),
        }
    }

    /// Some of a line.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match self {
            Self::Stored => {}
            Self::Base64(base64) => base64.text(text),
            Self::Quoted(quoted) => quoted.bytes(text),
        }
    }

    /// The end of a line.
    pub(crate) fn end(&mut self, end: &[u8]) {
        match self {
            Self::Stored => {}
            Self::Base64(base64) => base64.end(end.len()),
            Self::Quoted(quoted) => quoted.bytes(end),
        }
    }

    /// How many bytes come of the `stored` ones that were told, and what decodes them.
    pub(crate) fn finish(self, stored: u64) -> (u64, Option<Step>) {
        match self {
            Self::Stored => (stored, None),
            Self::Base64(base64) => {
                let (length, properties) = base64.finish();
                (length, Some(Step { codec: "mime-base64".to_owned(), properties, ..Step::default() }))
            }
            Self::Quoted(quoted) => {
                (quoted.finish(), Some(Step { codec: "quoted-printable".to_owned(), ..Step::default() }))
            }
        }
    }
}

/// Base64: what is not in its alphabet is ignored, and a padding that completes four characters ends it.
#[derive(Debug, Default)]
pub(crate) struct Base64 {
    characters: u64,
    padding: u64,
    has_ended: bool,
    /// Characters of the line so far, and whether it has nothing but these.
    in_line: u64,
    is_dirty: bool,
    lines: Lines,
}

/// Whether all lines but the last are equally long.
#[derive(Debug, Default, PartialEq, Eq)]
enum Lines {
    #[default]
    None,
    /// So many characters, and so many bytes of a line end; none as long as that is not known.
    Equal(u64, usize),
    /// The same, and the last one has come.
    Last(u64, usize),
    Different,
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

impl Base64 {
    fn text(&mut self, text: &[u8]) {
        if self.has_ended || text.is_empty() {
            return;
        }
        let count = text.iter().filter(|&&byte| is_base64(byte)).count();
        if count == text.len() {
            self.is_dirty |= self.padding > 0;
            self.padding = 0;
            self.add(count as u64);
            return;
        }
        for &byte in text {
            if is_base64(byte) {
                // Behind padding that completes nothing.
                self.is_dirty |= self.padding > 0;
                self.padding = 0;
                self.add(1);
            } else if byte == b'=' {
                if self.characters % 4 >= 2 {
                    self.padding = self.padding.saturating_add(1);
                    if (self.characters % 4).saturating_add(self.padding) >= 4 {
                        self.has_ended = true;
                        return;
                    }
                } else {
                    self.is_dirty = true;
                }
            } else {
                self.is_dirty = true;
            }
        }
    }

    fn add(&mut self, count: u64) {
        self.characters = self.characters.saturating_add(count);
        self.in_line = self.in_line.saturating_add(count);
    }

    fn end(&mut self, length: usize) {
        let characters = std::mem::take(&mut self.in_line);
        if self.is_dirty {
            self.lines = Lines::Different;
        }
        self.lines = match std::mem::take(&mut self.lines) {
            Lines::None if characters > 0 => Lines::Equal(characters, length),
            Lines::Equal(all, end) if characters == all && end == length => Lines::Equal(all, end),
            Lines::Equal(all, end) if characters < all => Lines::Last(all, end),
            // The last one may end otherwise, or not at all.
            Lines::Equal(all, end) if characters == all && length == 0 => Lines::Last(all, end),
            Lines::Last(all, end) if characters == 0 => Lines::Last(all, end),
            _ => Lines::Different,
        };
    }

    fn finish(mut self) -> (u64, Vec<u8>) {
        if self.in_line > 0 {
            self.end(0);
        }
        let length =
            (self.characters / 4).saturating_mul(3).saturating_add((self.characters % 4).saturating_mul(6) / 8);
        let lines = match self.lines {
            // Of a single line it does not matter how long it is.
            Lines::Equal(all, end) | Lines::Last(all, end) if all.is_multiple_of(4) || self.characters <= all => {
                u32::try_from(all).ok().map(|all| (all, end as u8))
            }
            _ => None,
        };
        let properties = lines.map(|(all, end)| [&all.to_le_bytes()[..], &[end]].concat());
        (length, properties.unwrap_or_default())
    }
}

/// Quoted-printable: "=4A" is a byte, "=" at the end of a line joins it with the next one, any other "=" is itself.
#[derive(Debug, Default)]
pub(crate) struct Quoted {
    length: u64,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    /// Behind "=".
    Escaped,
    /// Behind "=" and a digit.
    Digit,
    /// Behind "=" and a carriage return, up to the end of the line.
    ToEnd,
}

impl Quoted {
    fn bytes(&mut self, mut bytes: &[u8]) {
        loop {
            if self.state == State::Plain {
                let plain = memchr::memchr(b'=', bytes).unwrap_or(bytes.len());
                self.length = self.length.saturating_add(plain as u64);
                bytes = bytes.get(plain..).unwrap_or_default();
            }
            let Some((&byte, rest)) = bytes.split_first() else { return };
            bytes = rest;
            let (length, next) = match (self.state, byte) {
                (State::Plain, b'=') => (0, State::Escaped),
                // Some programs write an equals sign so.
                (State::Plain, _) | (State::Escaped, b'=') => (1, State::Plain),
                (State::Escaped | State::ToEnd, b'\n') => (0, State::Plain),
                (State::Escaped, b'\r') | (State::ToEnd, _) => (0, State::ToEnd),
                (State::Escaped, byte) if byte.is_ascii_hexdigit() => (0, State::Digit),
                (State::Escaped, _) => (2, State::Plain),
                (State::Digit, byte) if byte.is_ascii_hexdigit() => (1, State::Plain),
                // The sign, the digit, and what comes now, which may be a sign, too.
                (State::Digit, b'=') => (2, State::Escaped),
                (State::Digit, _) => (3, State::Plain),
            };
            self.length = self.length.saturating_add(length);
            self.state = next;
        }
    }

    fn finish(self) -> u64 {
        self.length.saturating_add(if self.state == State::Digit { 2 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(encoding: Encoding, text: &str) -> (u64, Vec<u8>) {
        let mut measure = Measure::new(encoding);
        for line in text.split_inclusive('\n') {
            let end = if line.ends_with("\r\n") { 2 } else { usize::from(line.ends_with('\n')) };
            let (line, end) = line.as_bytes().split_at(line.len() - end);
            let middle = line.len() / 2;
            measure.text(&line[..middle]);
            measure.text(&line[middle..]);
            measure.end(end);
        }
        let (length, step) = measure.finish(text.len() as u64);
        (length, step.map(|step| step.properties).unwrap_or_default())
    }

    #[test]
    fn lengths_are_those_that_python_decodes() {
        for (text, length, lines) in [
            ("QUJD\r\nREVG\r\nRw==\r\n", 7, Some((4, 2))),
            ("QUJDREVG\nRw==\n\n", 7, Some((8, 1))),
            ("QUJDREVG\nREVG", 9, Some((8, 1))),
            ("QUJD", 3, Some((4, 0))),
            // What is behind the end is nothing.
            ("QQ==\nQUJD\n", 1, Some((2, 1))),
            ("QUJD\nREVGQUJD\n", 9, None),
            ("QUJD\nREVG\r\nQUJD\n", 9, None),
            ("QU JD\nREVG\n", 6, None),
            ("QUJ\nD\n", 3, None),
            ("", 0, None),
            ("=", 0, None),
            ("Q=UJD\n", 3, None),
            ("QUI", 2, Some((3, 0))),
            // Halves of a line, of which the first ends in padding that completes nothing.
            ("QUJDQQ=QUJDQQ\n", 9, None),
        ] {
            let properties = lines.map(|(all, end): (u32, u8)| [&all.to_le_bytes()[..], &[end]].concat());
            let (found, told) = measured(Encoding::Base64, text);
            assert_eq!((found, told), (length, properties.unwrap_or_default()), "{text:?}");
        }
        for (text, length) in [
            ("a=3Db\n", 4),
            ("soft=\nbreak=\r\n", 9),
            ("soft= \nx", 8),
            ("==41", 3),
            ("=", 0),
            ("=4", 2),
            ("=4x=4=41=zz", 9),
            ("=\r \nx", 1),
        ] {
            assert_eq!(measured(Encoding::QuotedPrintable, text).0, length, "{text:?}");
        }
        assert_eq!(measured(Encoding::None, "abc\n").0, 4);
    }
}
