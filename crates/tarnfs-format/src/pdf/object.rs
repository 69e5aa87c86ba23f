//! Objects, as they are written.

use std::sync::Arc;

/// Objects in each other.
const MOST_LEVELS: usize = 64;

/// Objects in one, with all that is in them.
const MOST_PARTS: usize = 1 << 19;

/// Bytes of a string or a name that take as much memory as one more object.
const BYTES_OF_PART: usize = 64;

/// Bytes of what is read that take one more step.
const BYTES_OF_STEP: usize = 16;

/// Steps that a list takes beside what is in it.
const STEPS_OF_LIST: usize = 1;

/// What an object is. A clone shares what is in it: a document may ask for one as often as it likes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    Null,
    Bool(bool),
    Integer(i64),
    Real(f64),
    String(Vec<u8>),
    /// Without the slash.
    Name(Vec<u8>),
    Array(Arc<Vec<Object>>),
    Dict(Dict),
    /// Of an object with that number and generation.
    Reference(u32, u16),
    /// What is none: an operator, "obj", "endobj", ...
    Word(Vec<u8>),
}

/// Names and objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dict(pub(super) Arc<Vec<(Vec<u8>, Object)>>);

impl Dict {
    pub(super) fn get(&self, name: &str) -> Option<&Object> {
        self.0.iter().rev().find(|(found, _)| found == name.as_bytes()).map(|(_, object)| object)
    }

    /// Objects in it, and itself: what it takes of memory.
    pub(super) fn parts(&self) -> usize {
        let names = self.0.iter().map(|(name, object)| object.parts().saturating_add(name.len() / BYTES_OF_PART));
        names.fold(1, usize::saturating_add)
    }
}

impl Object {
    /// Objects in it, and itself. They lie in each other no deeper than `MOST_LEVELS`.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Array(array) => array.iter().map(Self::parts).fold(1, usize::saturating_add),
            Self::Dict(dict) => dict.parts(),
            Self::String(bytes) | Self::Name(bytes) | Self::Word(bytes) => {
                (bytes.len() / BYTES_OF_PART).saturating_add(1)
            }
            _ => 1,
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Real(number) => Some(*number as i64),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    pub(super) fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn string(&self) -> Option<&[u8]> {
        match self {
            Self::String(string) => Some(string),
            _ => None,
        }
    }

    pub(super) fn array(&self) -> Option<&[Object]> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    pub(super) fn dict(&self) -> Option<&Dict> {
        match self {
            Self::Dict(dict) => Some(dict),
            _ => None,
        }
    }

    pub(super) fn reference(&self) -> Option<(u32, u16)> {
        match self {
            Self::Reference(number, generation) => Some((*number, *generation)),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, word: &[u8]) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// Reads objects.
#[derive(Debug, Clone)]
pub(super) struct Parser<'b> {
    bytes: &'b [u8],
    at: usize,
    parts: usize,
    /// Steps that all objects so far have taken, but for those of bytes.
    steps: usize,
    /// What was asked for lies behind the last byte.
    pub(super) is_cut: bool,
    /// There are references: not in what a page draws.
    has_references: bool,
}

fn is_white(byte: u8) -> bool {
    matches!(byte, 0 | 9 | 10 | 12 | 13 | 32)
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'/' | b'%')
}

/// A number as it is written: some programs write two signs, or nothing but a sign.
fn number(text: &[u8]) -> Option<Object> {
    let digits = text.trim_ascii_start();
    if !digits.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')) {
        return None;
    }
    let start = digits.iter().position(|byte| !matches!(byte, b'+' | b'-'))?;
    let is_negative = digits.get(..start)?.last() == Some(&b'-');
    let text = std::str::from_utf8(digits.get(start..)?).ok()?;
    let text = text.split_once('-').map_or(text, |(before, _)| before);
    if let Ok(number) = text.parse::<i64>() {
        return Some(Object::Integer(if is_negative { number.saturating_neg() } else { number }));
    }
    let number: f64 = text.parse().ok()?;
    Some(Object::Real(if is_negative { -number } else { number }))
}

impl<'b> Parser<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0, parts: 0, steps: 0, is_cut: false, has_references: true }
    }

    /// Of what a page draws: there are operators, and no references.
    pub(super) fn of_content(bytes: &'b [u8]) -> Self {
        Self { has_references: false, ..Self::new(bytes) }
    }

    /// Objects in the last one, and itself.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// Steps that all so far have taken: one for each object, and some for those that take memory of their own, so that
    /// a step is about as long wherever it is taken; and one for some bytes of what is passed.
    pub(super) fn steps(&self) -> u64 {
        self.steps.saturating_add(self.at / BYTES_OF_STEP) as u64
    }

    /// How far it has come.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Goes on there.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = at.min(self.bytes.len());
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek();
        match byte {
            Some(_) => self.at = self.at.saturating_add(1),
            None => self.is_cut = true,
        }
        byte
    }

    /// Passes blanks and comments.
    pub(super) fn skip_white(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'%' {
                while self.peek().is_some_and(|byte| !matches!(byte, b'\n' | b'\r')) {
                    self.at = self.at.saturating_add(1);
                }
            } else if is_white(byte) {
                self.at = self.at.saturating_add(1);
            } else {
                return;
            }
        }
        self.is_cut = true;
    }

    /// The next object; `None` where there is none, or too much of it.
    pub(super) fn object(&mut self) -> Option<Object> {
        self.parts = 0;
        self.at_level(0)
    }

    fn at_level(&mut self, level: usize) -> Option<Object> {
        self.parts = self.parts.saturating_add(1);
        self.steps = self.steps.saturating_add(1);
        if level > MOST_LEVELS || self.parts > MOST_PARTS {
            return None;
        }
        self.skip_white();
        let byte = self.peek()?;
        match byte {
            b'/' => Some(Object::Name(self.name())),
            b'(' => self.string(),
            b'[' => {
                self.at = self.at.saturating_add(1);
                self.steps = self.steps.saturating_add(STEPS_OF_LIST);
                let mut array = Vec::new();
                loop {
                    self.skip_white();
                    if self.peek()? == b']' {
                        self.at = self.at.saturating_add(1);
                        return Some(Object::Array(Arc::new(array)));
                    }
                    match self.at_level(level.saturating_add(1))? {
                        // An end that belongs to what is around it.
                        Object::Word(word) if word == b"endobj" || word == b">>" => {
                            return Some(Object::Array(Arc::new(array)));
                        }
                        object => array.push(object),
                    }
                }
            }
            b'<' if self.bytes.get(self.at.saturating_add(1)) == Some(&b'<') => {
                self.at = self.at.saturating_add(2);
                self.steps = self.steps.saturating_add(STEPS_OF_LIST);
                self.dict(level).map(Object::Dict)
            }
            b'<' => self.hex(),
            b'>' if self.bytes.get(self.at.saturating_add(1)) == Some(&b'>') => {
                self.at = self.at.saturating_add(2);
                Some(Object::Word(b">>".to_vec()))
            }
            b'>' | b')' | b']' | b'{' | b'}' => {
                self.at = self.at.saturating_add(1);
                Some(Object::Word(vec![byte]))
            }
            _ => Some(self.word()),
        }
    }

    fn dict(&mut self, level: usize) -> Option<Dict> {
        let mut dict = Vec::new();
        loop {
            let name = match self.at_level(level.saturating_add(1))? {
                Object::Name(name) => name,
                Object::Word(word) if word == b">>" => return Some(Dict(Arc::new(dict))),
                Object::Word(word) if word == b"endobj" || word == b"stream" => {
                    self.at = self.at.saturating_sub(word.len());
                    return Some(Dict(Arc::new(dict)));
                }
                _ => continue,
            };
            match self.at_level(level.saturating_add(1))? {
                Object::Word(word) if word == b">>" => return Some(Dict(Arc::new(dict))),
                object => dict.push((name, object)),
            }
        }
    }

    fn token(&mut self) -> &'b [u8] {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let length = rest.iter().position(|&byte| is_white(byte) || is_delimiter(byte));
        self.is_cut |= length.is_none();
        let length = length.unwrap_or(rest.len());
        self.at = start.saturating_add(length);
        rest.get(..length).unwrap_or_default()
    }

    fn name(&mut self) -> Vec<u8> {
        self.at = self.at.saturating_add(1);
        let mut token = self.token();
        let mut name = Vec::with_capacity(token.len());
        while let Some((&byte, rest)) = token.split_first() {
            let digits = rest.get(..2).filter(|_| byte == b'#').and_then(|digits| std::str::from_utf8(digits).ok());
            if let Some(value) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                name.push(value);
                token = rest.get(2..).unwrap_or_default();
            } else {
                name.push(byte);
                token = rest;
            }
        }
        name
    }

    fn word(&mut self) -> Object {
        let token = self.token();
        if token.is_empty() {
            // Never stands still.
            self.at = self.at.saturating_add(1);
            return Object::Null;
        }
        match number(token) {
            Some(Object::Integer(first)) if self.has_references => {
                self.reference(first).unwrap_or(Object::Integer(first))
            }
            Some(number) => number,
            None => match token {
                b"null" => Object::Null,
                b"true" => Object::Bool(true),
                b"false" => Object::Bool(false),
                word => Object::Word(word.to_vec()),
            },
        }
    }

    /// "12 0 R", of which the first number was read.
    fn reference(&mut self, number: i64) -> Option<Object> {
        let start = self.at;
        let found = (|| {
            let number = u32::try_from(number).ok()?;
            self.skip_white();
            if !self.peek()?.is_ascii_digit() {
                return None;
            }
            let generation = std::str::from_utf8(self.token()).ok()?.parse().ok()?;
            self.skip_white();
            let is_it = self.token() == b"R";
            is_it.then_some(Object::Reference(number, generation))
        })();
        if found.is_none() {
            self.at = start;
        }
        found
    }

    fn string(&mut self) -> Option<Object> {
        self.at = self.at.saturating_add(1);
        let (mut string, mut level) = (Vec::new(), 0_usize);
        loop {
            match self.take()? {
                b'(' => {
                    level = level.saturating_add(1);
                    string.push(b'(');
                }
                b')' => {
                    let Some(outer) = level.checked_sub(1) else { return Some(Object::String(string)) };
                    level = outer;
                    string.push(b')');
                }
                b'\\' => match self.take()? {
                    b'n' => string.push(b'\n'),
                    b'r' => string.push(b'\r'),
                    b't' => string.push(b'\t'),
                    b'b' => string.push(8),
                    b'f' => string.push(12),
                    b'\r' => {
                        if self.peek() == Some(b'\n') {
                            self.at = self.at.saturating_add(1);
                        }
                    }
                    b'\n' => {}
                    first @ b'0'..=b'7' => {
                        let mut value = first.wrapping_sub(b'0');
                        for _ in 0..2 {
                            let Some(digit @ b'0'..=b'7') = self.peek() else { break };
                            value = value.wrapping_mul(8).wrapping_add(digit.wrapping_sub(b'0'));
                            self.at = self.at.saturating_add(1);
                        }
                        string.push(value);
                    }
                    other => string.push(other),
                },
                byte => string.push(byte),
            }
        }
    }

    fn hex(&mut self) -> Option<Object> {
        self.at = self.at.saturating_add(1);
        let (mut string, mut high) = (Vec::new(), None);
        loop {
            let byte = self.take()?;
            let value = char::from(byte).to_digit(16).map(|value| value as u8);
            match (byte, value, high) {
                (b'>', ..) => {
                    string.extend(high.map(|high: u8| high << 4));
                    return Some(Object::String(string));
                }
                (_, Some(value), Some(first)) => {
                    string.push(first << 4 | value);
                    high = None;
                }
                (_, Some(value), None) => high = Some(value),
                _ => {}
            }
        }
    }
}

/// A string as text: UTF-16, UTF-8, or the encoding of documents, which is near Latin-1.
pub(super) fn text(string: &[u8]) -> String {
    if let Some(rest) = string.strip_prefix(b"\xfe\xff") {
        return encoding_rs::UTF_16BE.decode_without_bom_handling(rest).0.into_owned();
    }
    if let Some(rest) = string.strip_prefix(b"\xff\xfe") {
        return encoding_rs::UTF_16LE.decode_without_bom_handling(rest).0.into_owned();
    }
    if let Some(rest) = string.strip_prefix(b"\xef\xbb\xbf") {
        return String::from_utf8_lossy(rest).into_owned();
    }
    // Many programs write UTF-8 without saying so.
    match std::str::from_utf8(string) {
        Ok(text) => text.to_owned(),
        Err(_) => string.iter().map(|byte| of_document(*byte)).collect(),
    }
}

/// A character of PDFDocEncoding (annex D.3).
fn of_document(byte: u8) -> char {
    const FROM_24: [char; 8] = ['˘', 'ˇ', 'ˆ', '˙', '˝', '˛', '˚', '˜'];
    const FROM_128: [char; 33] = [
        '•', '†', '‡', '…', '—', '–', 'ƒ', '⁄', '‹', '›', '−', '‰', '„', '“', '”', '‘', '’', '‚', '™', 'ﬁ', 'ﬂ', 'Ł',
        'Œ', 'Š', 'Ÿ', 'Ž', 'ı', 'ł', 'œ', 'š', 'ž', '\u{fffd}', '€',
    ];
    let low = byte.checked_sub(24).and_then(|place| FROM_24.get(usize::from(place)));
    let high = byte.checked_sub(128).and_then(|place| FROM_128.get(usize::from(place)));
    low.or(high).copied().unwrap_or(char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Object> {
        Parser::new(text.as_bytes()).object()
    }

    fn dict(parts: Vec<(&str, Object)>) -> Object {
        let parts = parts.into_iter().map(|(name, object)| (name.as_bytes().to_vec(), object)).collect();
        Object::Dict(Dict(Arc::new(parts)))
    }

    #[test]
    fn clones_share_what_is_in_them() {
        let object = read("<</A [1 2 3]/B <</C (d)>>>>").unwrap();
        assert_eq!(object.parts(), 7);
        let (dict, clone) = (object.dict().unwrap(), object.clone());
        assert!(Arc::ptr_eq(&dict.0, &clone.dict().unwrap().0));
        let inner = |dict: &Dict| dict.get("B").and_then(Object::dict).cloned().unwrap();
        assert!(Arc::ptr_eq(&inner(dict).0, &inner(clone.dict().unwrap()).0));
        assert_eq!(Object::String(vec![0; 640]).parts(), 11);
    }

    #[test]
    fn objects_are_read_as_they_are_written() {
        let name = |name: &str| Object::Name(name.as_bytes().to_vec());
        let string = |string: &str| Object::String(string.as_bytes().to_vec());
        for (text, object) in [
            ("12 ", Object::Integer(12)),
            ("--3 ", Object::Integer(-3)),
            ("-.5 ", Object::Real(-0.5)),
            ("12 0 R ", Object::Reference(12, 0)),
            ("12 0 obj ", Object::Integer(12)),
            ("/A#20b(", name("A b")),
            ("(a(b)\\)\\101\\\n\\n)", string("a(b))A\n")),
            ("<48 656c6C6F2>", string("Hello ")),
            (
                "% x\n[1 2 R 3 0 R]",
                Object::Array(Arc::new(vec![
                    Object::Integer(1),
                    Object::Integer(2),
                    Object::Word(b"R".to_vec()),
                    Object::Reference(3, 0),
                ])),
            ),
            (
                "<</A 1/B<</C true>>/D null>>",
                dict(vec![
                    ("A", Object::Integer(1)),
                    ("B", dict(vec![("C", Object::Bool(true))])),
                    ("D", Object::Null),
                ]),
            ),
        ] {
            if text.contains("2 R 3") {
                assert!(read(text).unwrap().array().unwrap().contains(&Object::Reference(3, 0)));
                continue;
            }
            assert_eq!(read(text), Some(object), "{text}");
        }
        for text in ["", "(a", "<4", "[1", "<</A", "<</A 1", &"[".repeat(1000), &"<</A".repeat(1000)] {
            assert_eq!(read(text), None, "{text}");
        }
        let mut many = Parser::new(b"q 1 0 0 1 0 0 cm } >> ) ET");
        let mut count = 0;
        while many.object().is_some() {
            count += 1;
        }
        assert_eq!(count, 12);
    }

    #[test]
    fn text_is_in_one_of_three_encodings() {
        assert_eq!(text(b"\xfe\xff\0g\0r\0\xfc\0n"), "grün");
        assert_eq!((text("grün".as_bytes()), text(b"gr\xfcn \x80")), ("grün".into(), "grün •".into()));
    }
}
