//! What the codes of a font stand for.

use std::collections::HashMap;
use std::io;
use std::sync::LazyLock;

use super::document::Document;
use super::object::{Dict, Object, Parser};

/// Codes of a font that are known.
const MOST_CODES: usize = 1 << 17;

/// Codes of one range: they have two bytes.
const MOST_IN_RANGE: u32 = 1 << 16;

/// Bytes of what one code stands for: a ligature takes a few.
const LONGEST: usize = 64;

/// The same as it is stored, where each byte of a text takes at most two.
const LONGEST_STORED: usize = 2 * LONGEST;

/// Steps that a code of a range takes, and a name of a character: what they stand for is found out and kept.
const STEPS_OF_CODE: usize = 4;

/// What takes steps of those that may be taken.
type Spend<'d> = dyn FnMut(usize) -> io::Result<()> + 'd;

/// A font.
#[derive(Debug, Default)]
pub(super) struct Font {
    /// Codes have two bytes, or one.
    is_wide: bool,
    /// What codes stand for.
    codes: HashMap<u32, String>,
}

/// Names of characters that are no letters, as fonts have them.
const NAMES: &[(&str, &str)] = &[
    ("space", " "),
    ("exclam", "!"),
    ("quotedbl", "\""),
    ("numbersign", "#"),
    ("dollar", "$"),
    ("percent", "%"),
    ("ampersand", "&"),
    ("quotesingle", "'"),
    ("quoteright", "’"),
    ("quoteleft", "‘"),
    ("parenleft", "("),
    ("parenright", ")"),
    ("asterisk", "*"),
    ("plus", "+"),
    ("comma", ","),
    ("hyphen", "-"),
    ("minus", "−"),
    ("period", "."),
    ("slash", "/"),
    ("zero", "0"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("colon", ":"),
    ("semicolon", ";"),
    ("less", "<"),
    ("equal", "="),
    ("greater", ">"),
    ("question", "?"),
    ("at", "@"),
    ("bracketleft", "["),
    ("backslash", "\\"),
    ("bracketright", "]"),
    ("asciicircum", "^"),
    ("underscore", "_"),
    ("grave", "`"),
    ("braceleft", "{"),
    ("bar", "|"),
    ("braceright", "}"),
    ("asciitilde", "~"),
    ("quotedblleft", "“"),
    ("quotedblright", "”"),
    ("quotedblbase", "„"),
    ("quotesinglbase", "‚"),
    ("guillemotleft", "«"),
    ("guillemotright", "»"),
    ("endash", "–"),
    ("emdash", "—"),
    ("bullet", "•"),
    ("ellipsis", "…"),
    ("dagger", "†"),
    ("daggerdbl", "‡"),
    ("section", "§"),
    ("paragraph", "¶"),
    ("degree", "°"),
    ("copyright", "©"),
    ("registered", "®"),
    ("trademark", "™"),
    ("Euro", "€"),
    ("sterling", "£"),
    ("cent", "¢"),
    ("yen", "¥"),
    ("fi", "fi"),
    ("fl", "fl"),
    ("ff", "ff"),
    ("ffi", "ffi"),
    ("ffl", "ffl"),
    ("germandbls", "ß"),
    ("ae", "æ"),
    ("AE", "Æ"),
    ("oe", "œ"),
    ("OE", "Œ"),
    ("oslash", "ø"),
    ("Oslash", "Ø"),
    ("dotlessi", "ı"),
    ("mu", "µ"),
    ("multiply", "×"),
    ("divide", "÷"),
    ("plusminus", "±"),
    ("onehalf", "½"),
    ("onequarter", "¼"),
    ("eth", "ð"),
    ("Eth", "Ð"),
    ("thorn", "þ"),
    ("Thorn", "Þ"),
    ("nbspace", " "),
    ("exclamdown", "¡"),
    ("questiondown", "¿"),
    ("lslash", "ł"),
    ("Lslash", "Ł"),
];

/// The same, to be searched: a font may have any number of names.
static BY_NAME: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| NAMES.iter().copied().collect());

/// What stands behind a letter in the name of one with an accent, and the accent.
const ACCENTS: [(&str, char); 9] = [
    ("acute", '\u{301}'),
    ("grave", '\u{300}'),
    ("circumflex", '\u{302}'),
    ("dieresis", '\u{308}'),
    ("tilde", '\u{303}'),
    ("ring", '\u{30a}'),
    ("cedilla", '\u{327}'),
    ("caron", '\u{30c}'),
    ("ogonek", '\u{328}'),
];

/// Letters with accents that are one character: base, accent, and the character.
const COMPOSED: &str =
    "aáàâäãå eéèêë iíìîï oóòôöõ uúùûü yý_ ÿ nñ cç AÁÀÂÄÃÅ EÉÈÊË IÍÌÎÏ OÓÒÔÖÕ UÚÙÛÜ YÝ NÑ CÇ sš zž SŠ ZŽ";

/// The character of that name: "A", "adieresis", "uni00E4", "u1F600".
fn character(name: &str) -> Option<String> {
    if let Some(text) = BY_NAME.get(name) {
        return Some((*text).to_owned());
    }
    let stem = name.split('.').next().unwrap_or_default();
    let mut letters = stem.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return Some(letter.to_string());
    }
    let number = stem.strip_prefix("uni").or_else(|| stem.strip_prefix('u'));
    if let Some(digits) = number.and_then(|number| number.get(..number.len().min(6))).filter(|digits| digits.len() >= 4)
        && let Some(letter) = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)
    {
        return Some(letter.to_string());
    }
    let letter = stem.chars().next()?;
    let accent =
        ACCENTS.iter().find(|(name, _)| stem.get(letter.len_utf8()..) == Some(name)).map(|(_, accent)| *accent)?;
    Some(composed(letter, accent))
}

fn composed(letter: char, accent: char) -> String {
    let order = ['\u{301}', '\u{300}', '\u{302}', '\u{308}', '\u{303}', '\u{30a}'];
    let found = match (letter, accent) {
        ('y', '\u{308}') => Some('ÿ'),
        ('n' | 'N', '\u{303}') | ('c' | 'C', '\u{327}') | ('s' | 'S' | 'z' | 'Z', '\u{30c}') => {
            COMPOSED.split(' ').find(|word| word.starts_with(letter)).and_then(|word| word.chars().nth(1))
        }
        _ => {
            let place = order.iter().position(|found| *found == accent);
            let word = COMPOSED.split(' ').find(|word| word.starts_with(letter));
            place.zip(word).and_then(|(place, word)| word.chars().nth(place.saturating_add(1)))
        }
    };
    found.map_or_else(|| format!("{letter}{accent}"), |found| found.to_string())
}

impl Font {
    /// The one with that dictionary.
    pub(super) fn of(document: &mut Document<'_>, dict: &Dict) -> io::Result<Self> {
        let mut font = Self { is_wide: document.get(dict, "Subtype")?.name() == Some(b"Type0"), ..Self::default() };
        if !font.is_wide {
            font.simple(document, dict)?;
        }
        let map = dict.get("ToUnicode").cloned().unwrap_or(Object::Null);
        if let Some(stream) = document.stream(&map)? {
            let bytes = document.decoded(&stream)?;
            let is_simple = !font.is_wide;
            font.read_map(&bytes, &mut |steps| document.spend(steps as u64))?;
            // Only composite ones have codes of two bytes (section 9.4.3), whatever their map says.
            font.is_wide &= !is_simple;
        }
        Ok(font)
    }

    /// One byte for each character.
    fn simple(&mut self, document: &mut Document<'_>, dict: &Dict) -> io::Result<()> {
        let encoding = document.get(dict, "Encoding")?;
        let (base, differences) = match &encoding {
            Object::Name(name) => (name.clone(), Object::Null),
            Object::Dict(dict) => {
                let base = document.get(dict, "BaseEncoding")?.name().unwrap_or_default().to_vec();
                (base, document.get(dict, "Differences")?)
            }
            _ => (Vec::new(), Object::Null),
        };
        let table = if base == b"MacRomanEncoding" { encoding_rs::MACINTOSH } else { encoding_rs::WINDOWS_1252 };
        for code in 32..=255_u8 {
            let text = table.decode_without_bom_handling(&[code]).0.into_owned();
            self.codes.insert(code.into(), text);
        }
        document.spend(self.codes.len().saturating_add(differences.parts()) as u64)?;
        let mut code = 0_u32;
        for difference in differences.array().unwrap_or_default() {
            match difference {
                Object::Integer(number) => code = u32::try_from(*number).unwrap_or(0),
                // Codes have one byte.
                Object::Name(name) if code < 256 => {
                    document.spend(STEPS_OF_CODE as u64)?;
                    if let Some(text) = std::str::from_utf8(name).ok().and_then(character) {
                        self.codes.insert(code, text);
                    }
                    code = code.saturating_add(1);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes what a map of codes to Unicode says (Adobe technical note 5411).
    fn read_map(&mut self, bytes: &[u8], spend: &mut Spend<'_>) -> io::Result<()> {
        let mut parser = Parser::of_content(bytes);
        // What waits for its operator, and how many objects are in it.
        let (mut waiting, mut held) = (Vec::<Object>::new(), 0_usize);
        while let Some(object) = parser.object() {
            spend(parser.parts())?;
            let Object::Word(word) = object else {
                held = held.saturating_add(parser.parts());
                if held <= MOST_CODES {
                    waiting.push(object);
                }
                continue;
            };
            held = 0;
            match word.as_slice() {
                b"endcodespacerange" => {
                    self.is_wide = waiting.iter().filter_map(Object::string).any(|code| code.len() > 1);
                }
                b"endbfchar" => {
                    for pair in waiting.as_chunks::<2>().0 {
                        if let [Object::String(code), Object::String(text)] = pair {
                            spend(STEPS_OF_CODE)?;
                            self.add(number(code), text);
                        }
                    }
                }
                b"endbfrange" => {
                    for range in waiting.as_chunks::<3>().0 {
                        if let [Object::String(first), Object::String(last), to] = range {
                            self.range(number(first), number(last), to, spend)?;
                        }
                    }
                }
                _ => {}
            }
            waiting.clear();
        }
        Ok(())
    }

    fn range(&mut self, first: u32, last: u32, to: &Object, spend: &mut Spend<'_>) -> io::Result<()> {
        let last = last.min(first.saturating_add(MOST_IN_RANGE - 1));
        match to {
            Object::Array(texts) => {
                for (code, text) in (first..=last).zip(texts.iter()) {
                    let Some(text) = text.string() else { break };
                    spend(STEPS_OF_CODE)?;
                    self.add(code, text);
                }
            }
            Object::String(text) if text.len() <= LONGEST_STORED => {
                // The last unit counts up.
                let mut text = text.clone();
                let Some((_, end)) = text.split_last_chunk::<2>() else { return Ok(()) };
                let (unit, place) = (u16::from_be_bytes(*end), text.len().saturating_sub(2));
                spend(last.checked_sub(first).map_or(0, |count| (count as usize).saturating_mul(STEPS_OF_CODE)))?;
                for (count, code) in (first..=last).enumerate() {
                    text.truncate(place);
                    text.extend(unit.wrapping_add(count as u16).to_be_bytes());
                    self.add(code, &text);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, code: u32, text: &[u8]) {
        if text.len() > LONGEST_STORED || self.codes.len() >= MOST_CODES {
            return;
        }
        let text = utf16(text);
        if text.len() <= LONGEST {
            self.codes.insert(code, text);
        }
    }

    /// Appends what `codes` stand for, until `text` has `most` bytes.
    pub(super) fn text(&self, codes: &[u8], text: &mut String, most: usize) {
        let width = if self.is_wide { 2 } else { 1 };
        for code in codes.chunks(width) {
            if text.len() >= most {
                return;
            }
            if let Some(found) = self.codes.get(&number(code)) {
                text.push_str(found);
            }
        }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn weight(&self) -> usize {
        self.codes.len().saturating_mul(2 * LONGEST)
    }
}

fn number(code: &[u8]) -> u32 {
    code.iter().fold(0, |number: u32, byte| number.wrapping_mul(256).wrapping_add((*byte).into()))
}

fn utf16(text: &[u8]) -> String {
    // Some maps have one byte.
    if let [letter] = text {
        return char::from(*letter).to_string();
    }
    // Most have one unit.
    if let Ok(unit) = <[u8; 2]>::try_from(text)
        && let Some(letter) = char::from_u32(u16::from_be_bytes(unit).into())
    {
        return letter.to_string();
    }
    encoding_rs::UTF_16BE.decode_without_bom_handling(text).0.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_characters() {
        for (name, text) in [
            ("A", "A"),
            ("adieresis", "ä"),
            ("Ccedilla", "Ç"),
            ("ntilde", "ñ"),
            ("scaron", "š"),
            ("uni00E4", "ä"),
            ("u1F600", "😀"),
            ("fi", "fi"),
            ("a.alt", "a"),
            ("ydieresis", "ÿ"),
            ("eacute", "é"),
            ("aring", "å"),
        ] {
            assert_eq!(character(name).as_deref(), Some(text), "{name}");
        }
        assert_eq!(character("g123"), None);
    }

    #[test]
    fn maps_have_characters_and_ranges() {
        let map =
            b"1 begincodespacerange <0000> <FFFF> endcodespacerange 2 beginbfchar <0001> <0041> <0002> <00660069> \
            endbfchar 2 beginbfrange <0010> <0012> <0061> <0020> <0021> [<D83DDE00> <0042>] endbfrange";
        let mut font = Font::default();
        font.read_map(map, &mut |_| Ok(())).unwrap();
        let mut text = String::new();
        font.text(&[0, 1, 0, 2, 0, 0x10, 0, 0x12, 0, 0x20, 0, 0x21, 0xff, 0xff], &mut text, 1000);
        assert_eq!(text, "Afiac😀B");
        // No more than there is room for.
        let mut text = String::new();
        font.text(&[0, 1].repeat(1000), &mut text, 10);
        assert_eq!(text, "A".repeat(10));
    }

    /// A map may say two bytes of a font whose codes have one.
    #[test]
    fn codes_of_simple_fonts_have_one_byte() {
        use std::sync::Arc;
        use tarnfs_source::{MemorySource, SharedSource};
        let map = "1 begincodespacerange <0000> <FFFF> endcodespacerange 1 beginbfchar <41> <0048> endbfchar";
        for (kind, codes, is_wide) in [("TrueType", &b"A"[..], false), ("Type0", b"\0A", true)] {
            let text = format!(
                "%PDF-1.7\n1 0 obj\n<</Pages 2 0 R>>\nendobj\n2 0 obj\n<</Subtype/{kind}/ToUnicode 3 0 R>>\nendobj\n\
                3 0 obj\n<</Length {}>>stream\n{map}\nendstream\nendobj\ntrailer\n<</Root 1 0 R>>\n",
                map.len()
            );
            let source: SharedSource = Arc::new(MemorySource::new(text.as_bytes(), "a document"));
            let options = crate::Options::default();
            let mut document = Document::open(&source, &options, 0).unwrap();
            let dict = document.resolve(&Object::Reference(2, 0)).unwrap();
            let font = Font::of(&mut document, dict.dict().unwrap()).unwrap();
            let mut text = String::new();
            font.text(codes, &mut text, 10);
            assert_eq!((text.as_str(), font.is_wide), ("H", is_wide));
        }
    }

    /// What a map takes of the work that is allowed.
    fn work(map: &[u8]) -> (Font, usize) {
        let (mut font, mut work) = (Font::default(), 0);
        let spend = &mut |steps| {
            work += steps;
            if work > 1 << 30 { Err(crate::image::damaged("too much")) } else { Ok(()) }
        };
        font.read_map(map, spend).unwrap();
        (font, work)
    }

    #[test]
    fn ranges_of_codes_are_no_longer_than_codes_are() {
        let (font, work) = work(b"1 beginbfrange <0000> <FFFFFFFF> <0000> endbfrange");
        assert_eq!(font.codes.len(), MOST_IN_RANGE as usize);
        let steps = (MOST_IN_RANGE as usize - 1) * STEPS_OF_CODE;
        assert!((steps..steps + 100).contains(&work), "{work}");
        let (font, _) = self::work(b"1 beginbfrange <0005> <0004> <0000> <FFFFFFFF> <FFFFFFFF> <0041> endbfrange");
        assert_eq!(font.codes.into_iter().collect::<Vec<_>>(), [(u32::MAX, "A".to_owned())]);
    }

    /// Texts that are not kept let no table grow: neither may the loop wait for that.
    #[test]
    fn ranges_of_long_texts_take_nothing() {
        let map = format!("1 beginbfrange <00000000> <FFFFFFFF> <{}> endbfrange", "0061".repeat(2000));
        let (font, work) = work(map.as_bytes());
        assert!(font.codes.is_empty() && work < 100, "{work}");
        // Those that overlap count each time.
        let map = format!("1 beginbfrange {} endbfrange", "<0000> <0FFF> <0061> ".repeat(100));
        let (font, work) = self::work(map.as_bytes());
        assert_eq!(font.codes.len(), 0x1000);
        assert!(work >= 100 * 0xfff, "{work}");
    }
}
