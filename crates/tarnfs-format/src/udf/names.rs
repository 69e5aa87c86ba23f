//! Names in OSTA Compressed Unicode (UDF 2.1.1), and targets of symbolic links, which are made of them.

use std::char::{REPLACEMENT_CHARACTER, decode_utf16};

use super::bytes::{crc, u16_at};

/// Bytes of a component of a path before its name.
const HEAD: usize = 4;

/// The text: its first byte says how many bits a character has. `None` of one that does so in no way that there is.
pub(super) fn text(stored: &[u8]) -> Option<String> {
    match stored {
        [] => Some(String::new()),
        // The latter are of names that were removed.
        [8 | 254, latin @ ..] => Some(latin.iter().copied().map(char::from).collect()),
        [16 | 255, wide @ ..] => {
            let (pairs, _) = wide.as_chunks();
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            Some(decode_utf16(units).map(|character| character.unwrap_or(REPLACEMENT_CHARACTER)).collect())
        }
        _ => None,
    }
}

/// The text in a field of fixed length, whose last byte says how much of it is used (UDF 2.1.3).
pub(super) fn field(bytes: &[u8]) -> Option<String> {
    let (length, stored) = bytes.split_last()?;
    text(stored.get(..usize::from(*length))?)
}

/// A name as Linux can have it. What it cannot have in a name becomes `_`, and the checksum of what is stored comes
/// behind it, so that names that differ still do (UDF 4.2.2.1.5).
pub(super) fn name(stored: &[u8]) -> Option<Vec<u8>> {
    let text = text(stored)?;
    let mut changed: String = text.chars().map(|one| if matches!(one, '/' | '\0') { '_' } else { one }).collect();
    let is_reserved = matches!(&*text, "" | "." | "..");
    if is_reserved {
        changed = text.replace('.', "_");
    }
    if is_reserved || changed != text {
        changed = format!("{changed}#{:04X}", crc(stored));
    }
    Some(changed.into_bytes())
}

/// The target of a symbolic link (ECMA-167, 4/14.16), of which `components` is the content. `None` if it is no path.
pub(super) fn target(mut components: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    while let [kind, length, ..] = *components {
        let _version = u16_at(components, 2)?;
        let (stored, rest) = components.get(HEAD..)?.split_at_checked(length.into())?;
        components = rest;
        // Behind the root no further slash.
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        match kind {
            // That of a volume that was agreed upon, and that of the file system: here there is one.
            1 | 2 => path = b"/".to_vec(),
            3 => path.extend_from_slice(b".."),
            4 => path.push(b'.'),
            5 => path.extend_from_slice(text(stored).filter(|name| !name.contains(['/', '\0']))?.as_bytes()),
            _ => return None,
        }
    }
    (components.is_empty() && !path.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        [&[16][..], &text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>()].concat()
    }

    #[test]
    fn names_have_eight_or_sixteen_bits() {
        assert_eq!(name(b"\x08gr\xfcn").unwrap(), "grün".as_bytes());
        assert_eq!(name(&wide("漢字 \u{1f600}")).unwrap(), "漢字 \u{1f600}".as_bytes());
        assert_eq!(name(&[16, 0xd8, 0, 0, b'a']).unwrap(), "\u{fffd}a".as_bytes());
        assert_eq!((name(b"\x09a"), text(b"")), (None, Some(String::new())));
        assert_eq!(field(b"\x08abc\0\0\x04").unwrap(), "abc");
        assert_eq!((field(b"\x08abc\x09"), field(b"")), (None, None));
    }

    #[test]
    fn what_cannot_be_a_name_is_told_from_others() {
        let names: Vec<_> = [&b"\x08a/b"[..], b"\x08a\0b", b"\x08a_b", b"\x08..", b"\x08.", b"\x08"]
            .iter()
            .map(|stored| String::from_utf8(name(stored).unwrap()).unwrap())
            .collect();
        assert!(names.iter().all(|name| !name.contains(['/', '\0'])), "{names:?}");
        assert_eq!(names[2], "a_b");
        assert!(names[0].starts_with("a_b#") && names[1].starts_with("a_b#") && names[0] != names[1], "{names:?}");
        assert!(names[3].starts_with("__#") && names[4].starts_with("_#") && names[5].starts_with('#'), "{names:?}");
    }

    #[test]
    fn targets_are_paths() {
        let part = |kind: u8, name: &[u8]| [&[kind, name.len() as u8, 0, 0], name].concat();
        let path = |parts: &[Vec<u8>]| target(&parts.concat()).map(|path| String::from_utf8(path).unwrap());
        let [a, b] = [part(5, b"\x08a"), part(5, &wide("ö\u{100}"))];
        assert_eq!(path(&[a.clone(), b.clone()]).unwrap(), "a/ö\u{100}");
        assert_eq!(path(&[part(2, b""), a.clone()]).unwrap(), "/a");
        assert_eq!(path(&[part(1, b""), a.clone()]).unwrap(), "/a");
        assert_eq!(path(&[part(3, b""), part(3, b""), a.clone(), part(4, b"")]).unwrap(), "../../a/.");
        assert_eq!(path(&[part(2, b"")]).unwrap(), "/");
        assert_eq!((path(&[]), path(&[part(6, b"")]), target(&a[..3])), (None, None, None));
        assert_eq!((target(&a[..5]), path(&[part(5, b"\x08a/b")])), (None, None));
    }
}
