//! What Windows keeps for a file of which a driver is in charge: links, and what others make of it (reparse points).
//!
//! The kinds and what they hold: [MS-FSCC], section 2.1.2.

use crate::little::u16_at;

/// Kinds that are links: a junction, a symbolic link, and one of Linux on Windows.
const MOUNT_POINT: u32 = 0xa000_0003;
const SYMLINK: u32 = 0xa000_000c;
const LINUX: u32 = 0xa000_001d;

/// True of the kinds that are links.
pub(crate) fn is_link(kind: u32) -> bool {
    matches!(kind, MOUNT_POINT | SYMLINK | LINUX)
}

/// What Windows keeps for something that is no link, with the head that it has there and not in the archive: the kind,
/// the length, and nothing.
pub(crate) fn with_head(reparse: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    [&reparse.to_le_bytes()[..], &length.to_le_bytes(), &[0; 2], data].concat()
}

/// UTF-16 of `length` bytes, from byte `at` on.
pub(crate) fn units(bytes: &[u8], at: usize, length: u16) -> Option<Vec<u16>> {
    let bytes = bytes.get(at..at.checked_add(usize::from(length))?)?;
    Some(bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect())
}

/// The target of a link, as what Windows keeps for it says it; `None` if that is no link.
pub(crate) fn target(reparse: u32, data: &[u8]) -> Option<Vec<u8>> {
    let names_at = match reparse {
        SYMLINK => 12,
        MOUNT_POINT => 8,
        // A version, and the target itself.
        LINUX => return data.get(4..).map(<[u8]>::to_vec),
        _ => return None,
    };
    let (at, length) = (usize::from(u16_at(data, 0)?), u16_at(data, 2)?);
    let name: String = char::decode_utf16(units(data, at.checked_add(names_at)?, length)?)
        .map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER))
        .map(|one| if one == '\\' { '/' } else { one })
        .collect();
    // `\??\C:\folder` is `/folder` on a system without drives.
    let name = name.strip_prefix("/??/").unwrap_or(&name);
    let mut letters = name.chars();
    let has_drive = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && letters.next() == Some(':');
    let name = if has_drive { name.get(2..).unwrap_or_default() } else { name };
    Some(if name.is_empty() { b"/".to_vec() } else { name.as_bytes().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_linux() {
        let link = |names_at: usize, text: &str| {
            let name: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let mut data = vec![0; names_at];
            data[2..4].copy_from_slice(&(name.len() as u16).to_le_bytes());
            [data, name].concat()
        };
        let told = |reparse, data: Vec<u8>| target(reparse, &data).map(|target| String::from_utf8(target).unwrap());
        assert_eq!(told(0xa000_000c, link(12, "..\\a b\\c")), Some("../a b/c".to_owned()));
        assert_eq!(told(0xa000_000c, link(12, "\\??\\C:\\Users")), Some("/Users".to_owned()));
        assert_eq!(told(0xa000_0003, link(8, "\\??\\D:")), Some("/".to_owned()));
        assert_eq!(told(0xa000_001d, b"\x02\0\0\0a/b".to_vec()), Some("a/b".to_owned()));
        assert_eq!((told(0x8000_0013, link(8, "x")), told(0xa000_0003, vec![1; 9])), (None, None));
    }
}
