//! Names, as the standards before Rock Ridge have them.

use std::char::{REPLACEMENT_CHARACTER, decode_utf16};

/// How names are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// One byte for each character.
    Bytes,
    /// UCS-2, or UTF-16, with the more significant byte first.
    Joliet,
}

impl Names {
    /// The name, without the mark of a first version, and without a dot behind which there is nothing.
    pub(super) fn read(self, stored: &[u8], is_folder: bool) -> Vec<u8> {
        let mut name = match self {
            Self::Bytes => stored.to_vec(),
            Self::Joliet => {
                let (pairs, _) = stored.as_chunks();
                let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
                let characters = decode_utf16(units).map(|character| character.unwrap_or(REPLACEMENT_CHARACTER));
                characters.collect::<String>().into_bytes()
            }
        };
        if !is_folder && let Some(first) = name.strip_suffix(b";1") {
            name.truncate(first.len());
            if self == Self::Bytes && name.len() > 1 && name.ends_with(b".") {
                name.pop();
            }
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_no_part_of_a_name() {
        for (stored, name) in [("README.TXT;1", "README.TXT"), ("NOTES.;1", "NOTES"), ("A.B;2", "A.B;2"), (".;1", ".")]
        {
            assert_eq!(Names::Bytes.read(stored.as_bytes(), false), name.as_bytes());
        }
        assert_eq!(Names::Bytes.read(b"A;1", true), b"A;1");
        let units: Vec<u8> = "grün \u{1f600}.;1".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(Names::Joliet.read(&units, false), "grün \u{1f600}.".as_bytes());
        assert_eq!(Names::Joliet.read(&[0xd8, 0, 0, b'a'], true), "\u{fffd}a".as_bytes());
    }
}
