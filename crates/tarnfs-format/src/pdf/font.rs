//! What the codes of a font stand for.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::LazyLock;

use super::document::Document;
use super::object::{Dict, Object, Parser};

/// Codes of a font that are known, and ranges of them.
const MOST_CODES: usize = 1 << 17;

/// Codes of one range: they have two bytes.
const MOST_IN_RANGE: u32 = 1 << 16;

/// Bytes of what one code stands for: a ligature takes a few.
const LONGEST: usize = 64;

/// The same as it is stored, where each byte of a text takes at most two.
const LONGEST_STORED: usize = 2 * LONGEST;

/// Steps that a code takes, a range, and a name of a character: what they stand for is found out and kept.
const STEPS_OF_CODE: usize = 6;

/// What takes steps of those that may be taken.
type Spend<'d> = dyn FnMut(usize) -> io::Result<()> + 'd;

/// A font.
#[derive(Debug, Default)]
pub(super) struct Font {
    /// Codes have two bytes, or one.
    is_wide: bool,
    /// What codes stand for, by the first code of each range. No two have one in common.
    codes: BTreeMap<u32, Run>,
}

/// Codes that follow each other. Some programs write that of all codes for each font: it takes no more than one.
#[derive(Debug)]
struct Run {
    last: u32,
    text: Text,
}

/// What codes stand for.
#[derive(Debug, Clone)]
enum Text {
    One(Box<str>),
    /// What this code stands for, as it is stored; the last unit counts up.
    From(u32, Box<[u8]>),
}

impl Text {
    /// Appends what `code` stands for.
    fn append(&self, code: u32, text: &mut String) {
        let (first, stored) = match self {
            Self::One(one) => return text.push_str(one),
            Self::From(first, stored) => (*first, stored),
        };
        let Some((before, end)) = stored.split_last_chunk::<2>() else { return };
        let unit = u16::from_be_bytes(*end).wrapping_add(code.wrapping_sub(first) as u16);
        // Most have one unit.
        if before.is_empty()
            && let Some(letter) = char::from_u32(unit.into())
        {
            return text.push(letter);
        }
        let found = utf16(&[before, &unit.to_be_bytes()].concat());
        if found.len() <= LONGEST {
            text.push_str(&found);
        }
    }
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
            let text = table.decode_without_bom_handling(&[code]).0.into();
            self.set(code.into(), code.into(), Text::One(text));
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
                        self.set(code, code, Text::One(text.into()));
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
        let mut spent = 0;
        while let Some(object) = parser.object() {
            spend(parser.steps().saturating_sub(spent) as usize)?;
            spent = parser.steps();
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
            Object::String(text) if (2..=LONGEST_STORED).contains(&text.len()) => {
                spend(STEPS_OF_CODE)?;
                self.set(first, last, Text::From(first, text.as_slice().into()));
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, code: u32, text: &[u8]) {
        if text.len() > LONGEST_STORED {
            return;
        }
        let text = utf16(text);
        if text.len() <= LONGEST {
            self.set(code, code, Text::One(text.into()));
        }
    }

    /// Codes from `first` to `last` stand for `text`, whatever they stood for before. What is cut or removed here was
    /// paid for when it came.
    fn set(&mut self, first: u32, last: u32, text: Text) {
        if first > last || self.codes.len() >= MOST_CODES {
            return;
        }
        while let Some((&start, run)) = self.codes.range(..=last).next_back()
            && run.last >= first
        {
            let Some(run) = self.codes.remove(&start) else { break };
            if run.last > last {
                let behind = Run { last: run.last, text: run.text.clone() };
                self.codes.insert(last.saturating_add(1), behind);
            }
            if start < first {
                self.codes.insert(start, Run { last: first.saturating_sub(1), text: run.text });
                break;
            }
        }
        self.codes.insert(first, Run { last, text });
    }

    /// What `code` stands for.
    fn get(&self, code: u32) -> Option<&Text> {
        let (_, run) = self.codes.range(..=code).next_back()?;
        (run.last >= code).then_some(&run.text)
    }

    /// Appends what `codes` stand for, until `text` has `most` bytes.
    pub(super) fn text(&self, codes: &[u8], text: &mut String, most: usize) {
        let width = if self.is_wide { 2 } else { 1 };
        for code in codes.chunks(width) {
            if text.len() >= most {
                return;
            }
            let code = number(code);
            if let Some(found) = self.get(code) {
                found.append(code, text);
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

    fn shown(font: &Font, code: u32) -> String {
        let mut text = String::new();
        font.get(code).into_iter().for_each(|found| found.append(code, &mut text));
        text
    }

    #[test]
    fn ranges_of_codes_are_no_longer_than_codes_are() {
        let (font, work) = work(b"1 beginbfrange <0000> <FFFFFFFF> <0041> endbfrange");
        assert_eq!([0, 1, 0xffff, 0x10000].map(|code| shown(&font, code)), ["A", "B", "@", ""]);
        // However many codes it has.
        assert!(font.codes.len() == 1 && work < 50, "{work}");
        let (font, _) = self::work(b"1 beginbfrange <0005> <0004> <0000> <FFFFFFFF> <FFFFFFFF> <0041> endbfrange");
        assert_eq!((font.codes.len(), shown(&font, u32::MAX)), (1, "A".to_owned()));
    }

    /// What a map says last counts, of each code.
    #[test]
    fn later_ranges_cut_those_before_them() {
        let map =
            b"4 beginbfrange <0000> <00FF> <0100> <0010> <001F> <0041> <0018> <0018> <0061> <00F0> <0110> <0391> \
            endbfrange 1 beginbfchar <0014> <0021> endbfchar 1 beginbfrange <0012> <0016> <D83DDE00> endbfrange";
        let (font, _) = work(map);
        for (code, text) in [
            (0xf, "\u{10f}"),
            (0x10, "A"),
            (0x11, "B"),
            (0x12, "\u{1f600}"),
            (0x14, "\u{1f602}"),
            (0x17, "H"),
            (0x18, "a"),
            (0x19, "J"),
            (0x20, "\u{120}"),
            (0xef, "\u{1ef}"),
            (0xf0, "\u{391}"),
            (0x110, "\u{3b1}"),
            (0x111, ""),
        ] {
            assert_eq!(shown(&font, code), text, "{code:x}");
        }
    }

    /// Texts that are not kept let no table grow: neither may the loop wait for that.
    #[test]
    fn ranges_of_long_texts_take_nothing() {
        let map = format!("1 beginbfrange <00000000> <FFFFFFFF> <{}> endbfrange", "0061".repeat(2000));
        let (font, work) = work(map.as_bytes());
        assert!(font.codes.is_empty() && work < 1000, "{work}");
        // Those that overlap count each time.
        let map = format!("1 beginbfrange {} endbfrange", "<0000> <0FFF> <0061> ".repeat(100));
        let (font, work) = self::work(map.as_bytes());
        assert_eq!((font.codes.len(), shown(&font, 0xfff)), (1, "\u{1060}".to_owned()));
        assert!(work >= 100 * STEPS_OF_CODE, "{work}");
    }
}
