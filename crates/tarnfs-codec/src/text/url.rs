//! Contents of data URLs in pages: characters may be written as pages have them (`&amp;`), as strings of scripts do
//! (`\u003d`, `\/`) and as addresses do (`%20`), and what comes of that may be base64.
//!
//! Properties: a byte with what is undone: 1 characters of pages, 2 of addresses, 4 base64, 8 characters of
//! strings.

use std::io;

use tarnfs_source::SharedSource;

use super::base64::Quads;
use super::{Letters, Text};
use crate::{Codec, CoderContext, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint, coders};

/// The codec.
#[derive(Debug)]
pub(crate) struct DataUrl;

impl Codec for DataUrl {
    fn name(&self) -> &'static str {
        "data-url"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Text::first_pass(source, 0, Characters::new(&options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Text::resume(source, 0, Characters::new(&context.coder)?, point, context)?))
    }
}

/// Bytes of a character's name, with the ampersand.
const LONGEST: usize = 12;

/// The names that are written most.
const NAMES: [(&[u8], &[u8]); 14] = [
    (b"&amp", b"&"),
    (b"&lt", b"<"),
    (b"&gt", b">"),
    (b"&quot", b"\""),
    (b"&apos", b"'"),
    (b"&nbsp", b"\xc2\xa0"),
    (b"&plus", b"+"),
    (b"&sol", b"/"),
    (b"&equals", b"="),
    (b"&num", b"#"),
    (b"&percnt", b"%"),
    (b"&Tab", b"\t"),
    (b"&NewLine", b"\n"),
    (b"&colon", b":"),
];

struct Characters {
    in_pages: bool,
    in_strings: bool,
    in_addresses: bool,
    base64: Option<Quads>,
    /// The start of what a page writes for a character, or a string, or an address.
    of_page: Vec<u8>,
    of_string: Vec<u8>,
    of_address: Vec<u8>,
}

impl Characters {
    fn new(coder: &CoderContext) -> io::Result<Self> {
        let &[flags @ 0..16] = &coder.properties[..] else { return Err(coders::invalid_properties("data URLs")) };
        Ok(Self {
            in_pages: flags & 1 != 0,
            in_strings: flags & 8 != 0,
            in_addresses: flags & 2 != 0,
            base64: (flags & 4 != 0).then(|| Quads::with(false)),
            of_page: Vec::new(),
            of_string: Vec::new(),
            of_address: Vec::new(),
        })
    }

    fn letter(&mut self, letter: u8, bytes: &mut Vec<u8>) {
        if !self.in_pages || self.of_page.is_empty() && letter != b'&' {
            return self.in_string(letter, bytes);
        }
        if letter == b'&' && !self.of_page.is_empty() {
            self.end_of_page(bytes);
        }
        self.of_page.push(letter);
        if letter == b';' {
            self.of_page.pop();
            let name = std::mem::take(&mut self.of_page);
            match character(&name) {
                Some(character) => character.iter().for_each(|letter| self.in_string(*letter, bytes)),
                None => name.iter().chain(b";").for_each(|letter| self.in_string(*letter, bytes)),
            }
        } else if self.of_page.len() > LONGEST
            || self.of_page.len() > 1 && !letter.is_ascii_alphanumeric() && letter != b'#'
        {
            self.end_of_page(bytes);
        }
    }

    /// What was begun is no character's name.
    fn end_of_page(&mut self, bytes: &mut Vec<u8>) {
        for letter in std::mem::take(&mut self.of_page) {
            self.in_string(letter, bytes);
        }
    }

    fn in_string(&mut self, letter: u8, bytes: &mut Vec<u8>) {
        if !self.in_strings || self.of_string.is_empty() && letter != b'\\' {
            return self.in_address(letter, bytes);
        }
        self.of_string.push(letter);
        let length = match self.of_string.get(1) {
            None => return,
            Some(b'x') => 4,
            Some(b'u') => 6,
            Some(_) => 2,
        };
        if self.of_string.len() == 2 && length > 2 || self.of_string.len() < length && letter.is_ascii_hexdigit() {
            return;
        }
        let escape = std::mem::take(&mut self.of_string);
        let is_whole = escape.len() == length && letter.is_ascii_hexdigit();
        let digits = escape.get(2..).filter(|_| is_whole && length > 2);
        let number = digits.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (number.and_then(char::from_u32), escape.as_slice()) {
            (Some(character), _) => {
                character.to_string().bytes().for_each(|letter| self.in_address(letter, bytes));
            }
            // The end of a line, or a blank.
            (None, [_, b'n' | b'r' | b't']) => self.in_address(b'\n', bytes),
            (None, [_, letter]) => self.in_address(*letter, bytes),
            (None, _) => escape.iter().for_each(|letter| self.in_address(*letter, bytes)),
        }
    }

    fn in_address(&mut self, letter: u8, bytes: &mut Vec<u8>) {
        if !self.in_addresses || self.of_address.is_empty() && letter != b'%' {
            return self.out(letter, bytes);
        }
        self.of_address.push(letter);
        let digit = |letter: &u8| char::from(*letter).to_digit(16).map(|value| value as u8);
        match self.of_address.as_slice() {
            [_] => {}
            [_, first] if digit(first).is_some() => {}
            [_, first, second] if let (Some(high), Some(low)) = (digit(first), digit(second)) => {
                self.of_address.clear();
                self.out(high << 4 | low, bytes);
            }
            // No escape; what comes last may begin one.
            _ => {
                let mut letters = std::mem::take(&mut self.of_address);
                if letters.last() == Some(&b'%') {
                    letters.pop();
                    self.of_address.push(b'%');
                }
                for letter in &letters {
                    self.out(*letter, bytes);
                }
            }
        }
    }

    fn out(&mut self, letter: u8, bytes: &mut Vec<u8>) {
        match &mut self.base64 {
            // It is lenient: nothing is wrong with it.
            Some(quads) => drop(quads.decode(&[letter], false, bytes)),
            None => bytes.push(letter),
        }
    }
}

/// The character of that name, which begins with an ampersand.
fn character(name: &[u8]) -> Option<Vec<u8>> {
    if let Some((_, character)) = NAMES.iter().find(|(found, _)| *found == name) {
        return Some(character.to_vec());
    }
    let number = std::str::from_utf8(name.strip_prefix(b"&#")?).ok()?;
    let number = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    Some(char::from_u32(number)?.to_string().into_bytes())
}

impl Letters for Characters {
    fn decode(&mut self, text: &[u8], is_last: bool, bytes: &mut Vec<u8>) -> Result<(), (usize, &'static str)> {
        for &letter in text {
            self.letter(letter, bytes);
        }
        if is_last {
            self.end_of_page(bytes);
            for letter in std::mem::take(&mut self.of_string) {
                self.in_address(letter, bytes);
            }
            for letter in std::mem::take(&mut self.of_address) {
                self.out(letter, bytes);
            }
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        let is_between = self.base64.as_ref().is_none_or(Letters::is_between);
        is_between && self.of_page.is_empty() && self.of_string.is_empty() && self.of_address.is_empty()
    }

    fn has_ended(&self) -> bool {
        self.base64.as_ref().is_some_and(Letters::has_ended)
    }
}
