//! Which encoding the names of an archive have that are neither UTF-8 nor say that they are.
//!
//! Programs on Windows write them in the code page of DOS that their country has, others in whatever they have. What
//! people elsewhere write is told by `chardetng`, the detector of Firefox. It knows no code page of Western Europe, as
//! web pages never had one. So there is a second opinion on these: a good encoding makes words of the bytes, with
//! small letters behind large ones, and not boxes and fractions.

use std::ops::RangeInclusive;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs as whatwg;

use crate::encoding::Encoding;

/// Bytes of names that are looked at.
const MOST: usize = 64 << 10;

/// As many are enough where they are gathered for a guess alone.
const ENOUGH_NAMES: usize = 16 << 10;

/// What speaks for each encoding of Western Europe, in a hundred, if it is to be taken.
const ENOUGH: u64 = 85;

/// As many bytes of a word, in a hundred, are letters with marks in languages of Western Europe at most. Half of those
/// of Japanese are none that ASCII has.
const DENSEST: u64 = 45;

/// Encodings of Western Europe: those of DOS first.
const WESTERN: [&str; 3] = ["cp437", "cp850", "windows-1252"];

/// Those of East Asia in which programs on Windows write names, and what the first bytes of their common characters
/// are: those that schools teach, and syllables. Of two that fit as well the last one is the likelier.
const EAST_ASIA: [(&whatwg::Encoding, RangeInclusive<u8>); 4] = [
    (whatwg::BIG5, 0xa4..=0xc6),
    (whatwg::EUC_KR, 0xb0..=0xc8),
    (whatwg::SHIFT_JIS, 0x82..=0x97),
    (whatwg::GBK, 0xb0..=0xd7),
];

/// Gathers names, and makes a guess.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Each with a line end.
    sample: Vec<u8>,
    of_dos: u64,
    of_others: u64,
}

impl Names {
    /// Adds a name that does not say what encoding it has, of a program on DOS or Windows or on something else.
    pub(crate) fn add(&mut self, name: &[u8], is_of_dos: bool) {
        if std::str::from_utf8(name).is_ok() || self.sample.len().saturating_add(name.len()) > MOST {
            return;
        }
        self.sample.extend_from_slice(name);
        self.sample.push(b'\n');
        let count = if is_of_dos { &mut self.of_dos } else { &mut self.of_others };
        *count = count.saturating_add(1);
    }

    /// True if more of them would not make a better guess.
    pub(crate) fn are_enough(&self) -> bool {
        self.sample.len() >= ENOUGH_NAMES
    }

    /// The encoding that they have, most likely, and its name. `None` if all are UTF-8, or if nothing fits.
    pub(crate) fn guess(&self) -> Option<(Encoding, &'static str)> {
        if self.sample.is_empty() {
            return None;
        }
        let is_of_dos = self.of_dos >= self.of_others;
        let (name, score) = western(&self.sample, is_of_dos);
        let is_western = score >= ENOUGH;
        if is_western && density(&self.sample) < DENSEST && name != "windows-1252" {
            return known(name);
        }
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        detector.feed(&self.sample, true);
        let told = detector.guess(None, Utf8Detection::Deny);
        let fits = |told: &'static whatwg::Encoding| {
            told.decode_without_bom_handling_and_without_replacement(&self.sample).is_some()
        };
        let is_latin = matches!(
            told.name(),
            "windows-1250"
                | "windows-1252"
                | "windows-1254"
                | "windows-1257"
                | "windows-1258"
                | "ISO-8859-2"
                | "ISO-8859-4"
        );
        // Few bytes say little to the detector: if they may be common characters in East Asia, they are. Words in
        // Cyrillic letters, which are pairs of such bytes, too, it knows well.
        let is_cyrillic = matches!(told.name(), "IBM866" | "KOI8-U" | "KOI8-R" | "windows-1251" | "ISO-8859-5");
        let is_dense = told.is_single_byte() && !is_cyrillic && density(&self.sample) >= DENSEST;
        let of_east_asia = EAST_ASIA.iter().filter(|(encoding, _)| is_dense && fits(encoding));
        let common = of_east_asia.map(|(encoding, leads)| (commonness(&self.sample, leads), encoding.name()));
        let least = if is_western { 2 } else { 1 };
        let common = common.filter(|((common, all), _)| *common >= ENOUGH && *all >= least);
        let likeliest = common.max_by_key(|((common, _), _)| *common);
        match () {
            () if likeliest.is_some() => known(likeliest?.1),
            () if fits(told) && !told.is_single_byte() => known(told.name()),
            // Latin letters, and the detector does not know those of DOS.
            () if is_western && (name != "windows-1252" || !is_latin) => known(name),
            () if is_latin && is_of_dos && name != "windows-1252" => known(name),
            () if fits(told) => known(told.name()),
            // APPNOTE, appendix D: what names have that do not say.
            () if is_of_dos => known("cp437"),
            () => None,
        }
    }
}

fn known(name: &'static str) -> Option<(Encoding, &'static str)> {
    Some((Encoding::for_name(name)?, name))
}

/// The encoding of Western Europe that makes most sense of `sample`, and how much, in a hundred.
fn western(sample: &[u8], is_of_dos: bool) -> (&'static str, u64) {
    let mut best = (WESTERN[0], 0);
    let order = if is_of_dos { [0, 1, 2] } else { [2, 0, 1] };
    for name in order.into_iter().filter_map(|at| WESTERN.get(at)) {
        let Some(encoding) = Encoding::for_name(name) else { continue };
        let text = String::from_utf8_lossy(&encoding.decode(sample)).into_owned();
        let score = sense(&text);
        if score > best.1 {
            best = (name, score);
        }
    }
    best
}

/// How many of the characters of `text` that are not ASCII stand where such may stand, in a hundred.
fn sense(text: &str) -> u64 {
    let (mut sum, mut count) = (0_u64, 0_u64);
    let (mut before, mut characters) = (['\n'; 2], text.chars().peekable());
    while let Some(character) = characters.next() {
        if !character.is_ascii() {
            let next = characters.peek().copied().unwrap_or('\n');
            sum = sum.saturating_add(sense_of(character, before, next));
            count = count.saturating_add(1);
        }
        before = [before[1], character];
    }
    sum.checked_div(count).unwrap_or_default()
}

fn sense_of(character: char, [first, before]: [char; 2], next: char) -> u64 {
    let is_special = |character: char| !character.is_ascii() && character.is_alphabetic();
    let is_inside = before.is_alphabetic() && next.is_alphabetic();
    let is_at_something = before.is_alphanumeric() || before.is_ascii_punctuation() || next.is_alphanumeric();
    match character {
        // Quotation marks and dashes of Windows. Nobody quotes nothing.
        '’' => 100,
        '‘' | '“' | '”' | '„' if !is_inside && is_at_something => 100,
        '–' | '—' if !is_inside => 100,
        '…' if !next.is_alphabetic() => 100,
        '°' | 'ª' | 'º' | '«' | '»' | '£' | '©' | '®' | '€' | '²' | '³' | '§' | '´' | '·' | '•' | '™' | '¿' | '¡' => {
            if is_inside {
                0
            } else {
                70
            }
        }
        _ if !character.is_alphabetic() || character > '\u{17f}' => 0,
        // No more than two in a row.
        _ if is_special(before) && is_special(first) => 0,
        _ if character.is_uppercase() && before.is_lowercase() => 0,
        _ if character.is_lowercase() && (next.is_uppercase() || first.is_uppercase() && before.is_uppercase()) => 0,
        _ if !before.is_alphabetic() && !next.is_alphabetic() => 90,
        'õ' | 'Õ' | 'ð' | 'Ð' | 'þ' | 'Þ' | 'ý' | 'Ý' | 'ÿ' | 'ı' | 'ƒ' | 'š' | 'Š' | 'ž' | 'Ž' | 'Ÿ' => {
            80
        }
        _ => 100,
    }
}

/// How many characters of two bytes begin with one of `leads`, in a hundred, and how many there are.
fn commonness(sample: &[u8], leads: &RangeInclusive<u8>) -> (u64, u64) {
    let (mut common, mut all) = (0_u64, 0_u64);
    let mut bytes = sample.iter();
    while let Some(byte) = bytes.find(|byte| !byte.is_ascii()) {
        all = all.saturating_add(1);
        common = common.saturating_add(leads.contains(byte).into());
        bytes.next();
    }
    (common.saturating_mul(100).checked_div(all).unwrap_or_default(), all)
}

/// How many bytes are not ASCII, of words that have such, in a hundred.
fn density(sample: &[u8]) -> u64 {
    let is_of_word = |byte: &u8| !byte.is_ascii() || byte.is_ascii_alphabetic();
    let (mut high, mut all) = (0_u64, 0_u64);
    for word in sample.split(|byte| !is_of_word(byte)) {
        let count = word.iter().filter(|byte| !byte.is_ascii()).count() as u64;
        if count > 0 {
            high = high.saturating_add(count);
            all = all.saturating_add(word.len() as u64);
        }
    }
    high.saturating_mul(100).checked_div(all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(names: &[&[u8]], is_of_dos: bool) -> String {
        let mut sample = Names::default();
        for name in names {
            sample.add(name, is_of_dos);
        }
        sample.guess().map_or_else(String::new, |(_, name)| name.to_owned())
    }

    /// `text` in that encoding, by the table for decoding it where that is one of DOS.
    fn encoded(text: &str, encoding: &str) -> Vec<u8> {
        if let Some(other) = encoding_rs::Encoding::for_label(encoding.as_bytes()) {
            return other.encode(text).0.into_owned();
        }
        let known = Encoding::for_name(encoding).unwrap();
        let byte = |character: char| {
            let is_it = |byte: &u8| *known.decode(&[*byte]) == *character.to_string().as_bytes();
            (0..=255_u8).find(is_it).unwrap_or_else(|| panic!("{character} in {encoding}"))
        };
        text.chars().map(byte).collect()
    }

    #[test]
    fn names_of_each_country() {
        for (encoding, dos, others, names) in [
            (
                "shift_jis",
                "Shift_JIS",
                "Shift_JIS",
                &["テスト.txt", "日本語/新しいフォルダ/写真.jpg", "資料 (2).doc"][..],
            ),
            ("shift_jis", "Shift_JIS", "Shift_JIS", &["photos/テスト.txt"]),
            ("shift_jis", "Shift_JIS", "Shift_JIS", &["ソフトウェア/マニュアル.pdf"]),
            ("shift_jis", "Shift_JIS", "Shift_JIS", &["日本語.txt"]),
            ("shift_jis", "Shift_JIS", "Shift_JIS", &["写真.jpg"]),
            ("gbk", "GBK", "GBK", &["中文.txt"]),
            ("gbk", "GBK", "GBK", &["照片.jpg"]),
            ("cp866", "IBM866", "IBM866", &["Фото.jpg"]),
            ("gbk", "GBK", "GBK", &["新建文件夹/测试文档.txt", "说明.doc"]),
            ("gbk", "GBK", "GBK", &["中文.txt", "readme-说明.txt"]),
            ("big5", "Big5", "Big5", &["新增資料夾/測試文件.txt", "說明.doc"]),
            ("euc-kr", "EUC-KR", "EUC-KR", &["새 폴더/문서 파일.txt", "한글.hwp"]),
            ("cp866", "IBM866", "IBM866", &["Новая папка/Документ.txt", "Привет мир.doc"]),
            ("cp866", "IBM866", "IBM866", &["ПРИВЕТ.TXT"]),
            ("windows-1251", "windows-1251", "windows-1251", &["Новая папка/Документ.txt", "Привет мир.doc"]),
            ("koi8-r", "KOI8-U", "KOI8-U", &["Новая папка/Документ.txt", "Привет мир.doc"]),
            ("cp437", "cp437", "cp437", &["Müller & Söhne/Größe.txt", "Übersicht für März.doc"]),
            ("cp437", "cp437", "cp437", &["naïve café/déjà vu.txt", "Señor Niño.mp3", "à la carte.doc"]),
            ("cp437", "cp437", "cp437", &["Äpfel.txt", "été.txt"]),
            ("cp437", "cp437", "cp437", &["Bücher.txt"]),
            ("cp437", "cp437", "cp437", &["ü.txt"]),
            ("cp437", "cp437", "cp437", &["äö"]),
            ("cp437", "cp437", "cp437", &["äö.txt"]),
            ("cp850", "cp850", "cp850", &["São João/Ação.txt", "Ålesund Øst.doc", "coração.txt", "Ímã.txt"]),
            ("windows-1252", "windows-1252", "windows-1252", &["Müller & Söhne/Größe.txt", "Übersicht für März.doc"]),
            ("windows-1252", "windows-1252", "windows-1252", &["naïve café/déjà vu.txt", "It’s a – b.txt"]),
            ("windows-1252", "windows-1252", "windows-1252", &["São João/Ação.txt", "Ålesund.doc"]),
            ("windows-1252", "windows-1252", "windows-1252", &["Bücher.txt"]),
            ("windows-1250", "windows-1250", "windows-1250", &["Příliš žluťoučký kůň.txt", "Zażółć gęślą jaźń.doc"]),
        ] {
            let bytes: Vec<Vec<u8>> = names.iter().map(|name| encoded(name, encoding)).collect();
            let bytes: Vec<&[u8]> = bytes.iter().map(|name| &name[..]).collect();
            let told = (guessed(&bytes, true), guessed(&bytes, false));
            assert_eq!(told, (dos.to_owned(), others.to_owned()), "{names:?} in {encoding}");
        }
    }

    #[test]
    fn what_is_utf_8_needs_no_guess() {
        assert_eq!(guessed(&["ä".as_bytes(), b"a"], true), "");
        assert_eq!(guessed(&[], true), "");
    }
}
