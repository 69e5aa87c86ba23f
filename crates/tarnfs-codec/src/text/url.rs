//! Contents of data URLs in pages: characters may be written as pages have them (`&amp;`), as strings of scripts do
//! (`\u003d`, `\/`) or style sheets (`\3d `), and as addresses do (`%20`), and what comes of that may be base64.
//!
//! Properties: a byte with what is undone: 1 characters of pages, 2 of addresses, 4 base64, 8 characters of strings of
//! scripts, 16 of style sheets.

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

/// What some letters are that begin as an escape does.
enum Found {
    /// It goes on.
    More,
    /// They stand for these bytes.
    Bytes(Vec<u8>),
    /// All but the last one do.
    Before(Vec<u8>),
    /// They are text, but for so many at their end, which may begin an escape.
    Text(usize),
}

/// One way in which characters are written as others.
struct Escape {
    mark: u8,
    rule: fn(&[u8]) -> Found,
    /// The start of one.
    begun: Vec<u8>,
}

impl Escape {
    fn new(mark: u8, rule: fn(&[u8]) -> Found) -> Self {
        Self { mark, rule, begun: Vec::new() }
    }
}

struct Characters {
    /// In the order in which they are undone.
    escapes: Vec<Escape>,
    base64: Option<Quads>,
}

impl Characters {
    fn new(coder: &CoderContext) -> io::Result<Self> {
        let &[flags @ 0..32] = &coder.properties[..] else { return Err(coders::invalid_properties("data URLs")) };
        let all = [
            (1, Escape::new(b'&', in_page)),
            (8, Escape::new(b'\\', in_string)),
            (16, Escape::new(b'\\', in_style)),
            (2, Escape::new(b'%', in_address)),
        ];
        let escapes = all.into_iter().filter(|(flag, _)| flags & flag != 0).map(|(_, escape)| escape).collect();
        Ok(Self { escapes, base64: (flags & 4 != 0).then(|| Quads::with(false)) })
    }

    /// Takes a letter that comes of the first `from` escapes.
    fn letter(&mut self, from: usize, letter: u8, bytes: &mut Vec<u8>) {
        let Some(escape) = self.escapes.get_mut(from) else { return self.out(letter, bytes) };
        if escape.begun.is_empty() && letter != escape.mark {
            return self.letter(from + 1, letter, bytes);
        }
        escape.begun.push(letter);
        let (found, again) = match (escape.rule)(&escape.begun) {
            Found::More => return,
            Found::Bytes(found) => {
                escape.begun.clear();
                (found, Vec::new())
            }
            Found::Before(found) => {
                escape.begun.clear();
                (found, vec![letter])
            }
            Found::Text(count) => {
                let begun = escape.begun.len();
                // It gets shorter each time.
                let again = escape.begun.split_off(begun.saturating_sub(count).max(1));
                (std::mem::take(&mut escape.begun), again)
            }
        };
        for letter in found {
            self.letter(from + 1, letter, bytes);
        }
        for letter in again {
            self.letter(from, letter, bytes);
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

/// "&amp;", "&#65;".
fn in_page(begun: &[u8]) -> Found {
    match begun {
        [b'&'] => Found::More,
        [_, .., b'&'] => Found::Text(1),
        [name @ .., b';'] => character(name).map_or(Found::Text(0), Found::Bytes),
        [.., last] if begun.len() > LONGEST || !last.is_ascii_alphanumeric() && *last != b'#' => Found::Text(0),
        _ => Found::More,
    }
}

/// "\n", "\x41", "\u0041", "\ud83d\ude00".
fn in_string(begun: &[u8]) -> Found {
    let (length, digits) = match begun {
        [] | [_] | [_, b'\r'] => return Found::More,
        [_, b'n'] => return Found::Bytes(vec![b'\n']),
        [_, b'r'] => return Found::Bytes(vec![b'\r']),
        [_, b't'] => return Found::Bytes(vec![b'\t']),
        [_, b'b'] => return Found::Bytes(vec![0x08]),
        [_, b'v'] => return Found::Bytes(vec![0x0b]),
        [_, b'f'] => return Found::Bytes(vec![0x0c]),
        [_, b'0'] => return Found::Bytes(vec![0]),
        // It goes on in the next line.
        [_, b'\n'] | [_, b'\r', b'\n'] => return Found::Bytes(Vec::new()),
        [_, b'\r', _] => return Found::Before(Vec::new()),
        [_, b'x', digits @ ..] => (2, digits),
        [_, b'u', digits @ ..] => (4, digits),
        [_, letter, ..] => return Found::Bytes(vec![*letter]),
    };
    // What comes behind it may be the second half of one.
    let (first, second) = digits.split_at_checked(length).unwrap_or((digits, &[]));
    if let Some(place) = first.iter().position(|digit| !digit.is_ascii_hexdigit()) {
        return Found::Text(first.len() - place - usize::from(first.get(place) != Some(&b'\\')));
    }
    if first.len() < length {
        return Found::More;
    }
    let number = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let Some(high) = number(first) else { return Found::Text(0) };
    if let Some(character) = char::from_u32(high) {
        return Found::Bytes(character.to_string().into_bytes());
    }
    match second {
        [] | [b'\\'] | [b'\\', b'u'] if high < 0xdc00 => Found::More,
        [b'\\', b'u', digits @ ..] if digits.len() < 4 && digits.iter().all(u8::is_ascii_hexdigit) => Found::More,
        [b'\\', b'u', digits @ ..] => {
            let low = number(digits).filter(|low| (0xdc00..0xe000).contains(low));
            let character = low.and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)));
            character.map_or(Found::Text(second.len()), |character| Found::Bytes(character.to_string().into_bytes()))
        }
        _ => Found::Text(second.len()),
    }
}

/// "\3c ", "\\"", and a backslash at the end of a line (CSS Syntax Level 3, 4.3.7).
fn in_style(begun: &[u8]) -> Found {
    const MOST_DIGITS: usize = 6;
    let digits = begun.get(1..).unwrap_or_default();
    let Some((last, before)) = digits.split_last() else { return Found::More };
    let character = |digits: &[u8]| {
        let number = std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let character = number.and_then(char::from_u32).filter(|character| *character != '\0');
        character.unwrap_or(char::REPLACEMENT_CHARACTER).to_string().into_bytes()
    };
    // CR LF is one end of a line.
    if let Some((b'\r', digits)) = before.split_last() {
        let found = if digits.is_empty() { Vec::new() } else { character(digits) };
        return if *last == b'\n' { Found::Bytes(found) } else { Found::Before(found) };
    }
    match last {
        b'\r' => Found::More,
        _ if last.is_ascii_hexdigit() && before.len() < MOST_DIGITS => Found::More,
        // A blank ends it.
        _ if !before.is_empty() && last.is_ascii_whitespace() => Found::Bytes(character(before)),
        _ if !before.is_empty() => Found::Before(character(before)),
        b'\n' => Found::Bytes(Vec::new()),
        _ => Found::Bytes(vec![*last]),
    }
}

/// "%20".
fn in_address(begun: &[u8]) -> Found {
    let digit = |letter: &u8| char::from(*letter).to_digit(16).map(|value| value as u8);
    match begun {
        [_] => Found::More,
        [_, first] if digit(first).is_some() => Found::More,
        [_, first, second] if let (Some(high), Some(low)) = (digit(first), digit(second)) => {
            Found::Bytes(vec![high << 4 | low])
        }
        // What comes last may begin one.
        _ => Found::Text(usize::from(begun.ends_with(b"%"))),
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
            self.letter(0, letter, bytes);
        }
        if is_last {
            for from in 0..self.escapes.len() {
                let mut begun = std::mem::take(&mut self.escapes[from].begun);
                // What was begun is none, but for what a blank would end.
                if begun.len() > 1
                    && let Found::Bytes(ended) | Found::Before(ended) =
                        (self.escapes[from].rule)(&[&begun[..], b" "].concat())
                {
                    begun = ended;
                }
                for letter in begun {
                    self.letter(from + 1, letter, bytes);
                }
            }
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        let is_between = self.base64.as_ref().is_none_or(Letters::is_between);
        is_between && self.escapes.iter().all(|escape| escape.begun.is_empty())
    }

    fn has_ended(&self) -> bool {
        self.base64.as_ref().is_some_and(Letters::has_ended)
    }
}
