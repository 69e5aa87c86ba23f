//! Names in legacy encodings: archives say nowhere which one they use, so a person does.

use std::borrow::Cow;

use encoding_rs as whatwg;
use oem_cp::code_table::DECODING_TABLE_CP_MAP;
use oem_cp::code_table_type::TableType;

/// A character encoding that names may be stored in; see [`Encoding::for_name`].
#[derive(Debug, Clone, Copy)]
pub struct Encoding(Decoder);

#[derive(Debug, Clone, Copy)]
enum Decoder {
    /// Names stay as they are.
    Utf8,
    /// Each byte is the character of that number.
    Latin1,
    Whatwg(&'static whatwg::Encoding),
    /// A code page of DOS, which WHATWG leaves out.
    Dos(&'static TableType),
}

impl Encoding {
    /// The encoding that people call `name`: "koi8-r", "shift_jis", "latin1", "cp437", "windows-1252", ... in any case,
    /// with the labels of the WHATWG Encoding Standard and those of Python. `None` if there is none, or if it is
    /// one in which a slash is not the byte `/` (UTF-16, ISO-2022-JP).
    pub fn for_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        let page = ["cp", "ibm", "dos-"].iter().find_map(|start| name.strip_prefix(start)?.parse::<u16>().ok());
        let decoder = match (name.as_str(), page) {
            ("utf-8" | "utf8" | "u8" | "utf-8-sig" | "ascii" | "us-ascii", _) | (_, Some(65001)) => Decoder::Utf8,
            // WHATWG takes these for Windows-1252, which has other characters from 0x80 to 0x9f.
            ("latin1" | "latin-1" | "l1" | "latin" | "iso-8859-1" | "iso8859-1" | "8859", _) => Decoder::Latin1,
            (_, Some(page)) => return Self::for_code_page(page),
            (name, None) => {
                let short = name.strip_prefix("iso8859-").map(|part| format!("iso-8859-{part}"));
                let label = match name {
                    "mac-roman" => "macintosh",
                    "mac-cyrillic" => "x-mac-cyrillic",
                    // The label itself has the underscore that was replaced above.
                    "shift-jis" | "s-jis" => "sjis",
                    _ => short.as_deref().unwrap_or(name),
                };
                return Self::for_label(label);
            }
        };
        Some(Self(decoder))
    }

    fn for_label(label: &str) -> Option<Self> {
        let found = whatwg::Encoding::for_label(label.as_bytes())?;
        if !found.is_ascii_compatible() || found == whatwg::REPLACEMENT {
            return None;
        }
        Some(Self(if found == whatwg::UTF_8 { Decoder::Utf8 } else { Decoder::Whatwg(found) }))
    }

    /// True of a name that means an encoding in which no archive here has names: a byte 0 ends them, and `/` separates
    /// them.
    pub fn is_of_no_names(name: &str) -> bool {
        let name = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        let is_wide = ["utf-16", "utf16", "utf-32", "utf32", "u16", "u32"].iter().any(|start| name.starts_with(start));
        is_wide || whatwg::Encoding::for_label(name.as_bytes()).is_some() && Self::for_name(&name).is_none()
    }

    fn for_code_page(page: u16) -> Option<Self> {
        match page {
            932 => Self::for_label("sjis"),
            936 => Self::for_label("gbk"),
            949 => Self::for_label("euc-kr"),
            950 => Self::for_label("big5"),
            1250..=1258 | 874 => Self::for_label(&format!("windows-{page}")),
            _ => DECODING_TABLE_CP_MAP.get(&page).map(|table| Self(Decoder::Dos(table))),
        }
    }

    /// True of a byte that begins a character of which a later byte may look like one of ASCII.
    pub(crate) fn is_lead(&self, byte: u8) -> bool {
        let Decoder::Whatwg(encoding) = self.0 else { return false };
        let has_pairs = [whatwg::BIG5, whatwg::EUC_KR, whatwg::GBK, whatwg::GB18030].contains(&encoding);
        match byte {
            0x81..=0x9f | 0xe0..=0xfc if encoding == whatwg::SHIFT_JIS => true,
            0x81..=0xfe => has_pairs,
            _ => false,
        }
    }

    /// `name` as UTF-8. A name that is UTF-8 already, or that is not in this encoding either, stays as it is.
    pub fn decode<'name>(&self, name: &'name [u8]) -> Cow<'name, [u8]> {
        if std::str::from_utf8(name).is_ok() {
            return Cow::Borrowed(name);
        }
        let decoded = match self.0 {
            Decoder::Utf8 => None,
            Decoder::Latin1 => Some(name.iter().copied().map(char::from).collect()),
            Decoder::Whatwg(encoding) => {
                encoding.decode_without_bom_handling_and_without_replacement(name).map(Cow::into_owned)
            }
            Decoder::Dos(table) => table.decode_string_checked(name),
        };
        decoded.map_or(Cow::Borrowed(name), |decoded| Cow::Owned(decoded.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_what_python_makes_of_them() {
        for (encoding, name, expected) in [
            ("koi8-r", &b"\xf0\xf2\xe9\xf7\xe5\xf4"[..], "ПРИВЕТ"),
            ("cp866", b"\x8f\x90\x88\x82\x85\x92", "ПРИВЕТ"),
            ("CP437", b"na\x8bve", "naïve"),
            ("cp850", b"\xb5", "Á"),
            ("latin1", b"\x85\xe4", "\u{85}ä"),
            ("cp1252", b"\x85\xe4", "…ä"),
            ("windows-1252", b"\x85", "…"),
            ("shift_jis", b"\x83\x65\x83\x58\x83\x67", "テスト"),
            ("cp932", b"\x83\x65", "テ"),
            ("euc_jp", b"\xa5\xc6", "テ"),
            ("gb18030", b"\xd6\xd0", "中"),
            ("iso8859_15", b"\xa4", "€"),
            ("mac_roman", b"\x8a", "ä"),
            ("mac_cyrillic", b"\x80", "А"),
            ("S-JIS", b"\x83\x65", "テ"),
            ("cp936", b"\xd6\xd0", "中"),
            ("cp949", b"\xb0\xa1", "가"),
            ("cp950", b"\xa4\xa4", "中"),
            ("cp1251", b"\xc0", "А"),
            ("cp874", b"\xa1", "ก"),
            ("ibm866", b"\x8f", "П"),
            ("dos_866", b"\x8f", "П"),
            ("cp65001", "ä".as_bytes(), "ä"),
            ("utf-8", "ä".as_bytes(), "ä"),
            // Already UTF-8: stays.
            ("koi8-r", "ä".as_bytes(), "ä"),
        ] {
            let encoding = Encoding::for_name(encoding).unwrap_or_else(|| panic!("{encoding} is not known"));
            assert_eq!(String::from_utf8_lossy(&encoding.decode(name)), expected, "{encoding:?}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_stays_as_it_is() {
        let japanese = Encoding::for_name("shift_jis").unwrap();
        assert_eq!(&*japanese.decode(b"a\x83/"), b"a\x83/");
        assert_eq!(&*Encoding::for_name("utf8").unwrap().decode(b"\xff"), b"\xff");
        for name in ["utf-16", "utf-16le", "iso-2022-jp", "iso-2022-kr", "cp99999", "cp1", "frog", ""] {
            assert!(Encoding::for_name(name).is_none(), "{name}");
        }
        for (name, is_known) in
            [("UTF_16", true), ("utf-32be", true), ("iso-2022-jp", true), ("frog", false), ("cp1", false)]
        {
            assert_eq!(Encoding::is_of_no_names(name), is_known, "{name}");
        }
        assert!(!Encoding::is_of_no_names("koi8-r") && !Encoding::is_of_no_names("utf-8"));
    }
}
