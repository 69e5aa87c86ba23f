//! Paths of DOS and Windows: a backslash stands between their names. In encodings of East Asia the same byte is the
//! second half of common characters, so what it is depends on the encoding, which archives do not tell.
//!
//! Paths keep their bytes here: who gets the entries decodes them.

use crate::encoding::Encoding;
use crate::guess::Names;
use crate::{Error, Options};

/// The second byte of a character is at least this one.
const LEAST_SECOND: u8 = 0x40;

/// Knows which encoding the paths of an archive have.
#[derive(Debug)]
pub(crate) struct Separators {
    encoding: Option<Encoding>,
    /// Nobody has told it, and it was not guessed yet.
    is_open: bool,
}

impl Separators {
    pub(crate) fn new(options: &Options) -> Self {
        Self { encoding: options.encoding, is_open: options.guess_encoding && options.encoding.is_none() }
    }

    /// The encoding that says of the bytes of `path` which are characters of their own; `None` if all are that look so.
    /// Where it has to be guessed, `gather` adds the paths of the archive: most need no guess.
    pub(crate) fn encoding_of(
        &mut self,
        path: &[u8],
        gather: impl FnOnce(&mut Names) -> Result<(), Error>,
    ) -> Result<Option<Encoding>, Error> {
        if !is_doubtful(path) {
            return Ok(None);
        }
        if std::mem::take(&mut self.is_open) {
            let mut names = Names::default();
            gather(&mut names)?;
            self.encoding = names.guess().map(|(encoding, _)| encoding);
        }
        Ok(self.encoding)
    }
}

/// True if a backslash or a bar of `path` may be the second half of a character.
pub(crate) fn is_doubtful(path: &[u8]) -> bool {
    path.windows(2).any(|pair| matches!(pair, [0x80..=0xff, b'\\' | b'|'])) && std::str::from_utf8(path).is_err()
}

/// Says of each byte of a path, one after the other, whether it is a character of its own.
fn characters(encoding: Option<Encoding>) -> impl FnMut(u8) -> bool {
    let mut is_behind_lead = false;
    move |byte| {
        let is_alone = !(is_behind_lead && byte >= LEAST_SECOND);
        is_behind_lead = is_alone && encoding.is_some_and(|encoding| encoding.is_lead(byte));
        is_alone
    }
}

/// `path`, which is in `encoding`, with slashes in place of its backslashes.
pub(crate) fn with_slashes(mut path: Vec<u8>, encoding: Option<Encoding>) -> Vec<u8> {
    let mut is_alone = characters(encoding);
    for byte in &mut path {
        if is_alone(*byte) && *byte == b'\\' {
            *byte = b'/';
        }
    }
    path
}

/// Where the first character `wanted` of `path` is, which is in `encoding`.
pub(crate) fn position(path: &[u8], wanted: u8, encoding: Option<Encoding>) -> Option<usize> {
    let mut is_alone = characters(encoding);
    path.iter().position(|&byte| is_alone(byte) && byte == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(path: &[u8], told: Option<&str>, others: &[&[u8]]) -> Vec<u8> {
        let encoding = told.map(|told| Encoding::for_name(told).unwrap());
        let options = Options { encoding, guess_encoding: told.is_none(), ..Options::default() };
        let gather = |names: &mut Names| {
            others.iter().chain([&path]).for_each(|name| names.add(name, true));
            Ok(())
        };
        let encoding = Separators::new(&options).encoding_of(path, gather).unwrap();
        with_slashes(path.to_vec(), encoding)
    }

    #[test]
    fn halves_of_characters_separate_nothing() {
        for (path, encoding, expected) in [
            // 表, ソ, 能, and a separator behind each.
            (&b"d\\\x95\x5c\\\x83\x5c\\\x94\x5c"[..], "cp932", &b"d/\x95\x5c/\x83\x5c/\x94\x5c"[..]),
            (b"\x81\x5c\\a", "gbk", b"\x81\x5c/a"),
            (b"\x81\x5c\\a", "gb18030", b"\x81\x5c/a"),
            // A character of four bytes.
            (b"\x81\x30\x81\x30\\a", "gb18030", b"\x81\x30\x81\x30/a"),
            (b"\xa5\x5c\\\xb3\x5c", "big5", b"\xa5\x5c/\xb3\x5c"),
            // 0xb1 is a character of its own.
            (b"\xb1\\a", "cp932", b"\xb1/a"),
            (b"\x83\\a", "cp437", b"\x83/a"),
            (b"\x83\\a", "utf-8", b"\x83/a"),
            ("ソ\\a".as_bytes(), "cp932", "ソ/a".as_bytes()),
            (b"a\\b", "cp932", b"a/b"),
        ] {
            assert_eq!(turned(path, Some(encoding), &[]), expected, "{path:?} in {encoding}");
        }
        assert_eq!(position(b"\x83\x7c|x", b'|', Encoding::for_name("cp932")), Some(2));
    }

    #[test]
    fn what_nobody_tells_is_guessed() {
        let japanese: [&[u8]; 1] = [b"\x83\x65\x83\x58\x83\x67.txt"];
        assert_eq!(turned(b"\x83\x5c\x83\x74\x83\x67.txt", None, &japanese), b"\x83\x5c\x83\x74\x83\x67.txt");
        assert_eq!(turned(b"d\\\x95\x5c\\\x83\x5c", None, &japanese), b"d/\x95\x5c/\x83\x5c");
        // "Café\menu.txt" of DOS.
        assert_eq!(turned(b"Caf\x82\\menu.txt", None, &[b"B\x81cher.txt"]), b"Caf\x82/menu.txt");
    }
}
