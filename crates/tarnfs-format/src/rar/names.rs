//! Names as they are stored.

/// Marks names of RAR 5 with bytes that were no characters, each of which is one from here on (`MARK`, as UTF-8).
const MARK: &str = "\u{fffe}";
const MAPPED: std::ops::RangeInclusive<u32> = 0xE080..=0xE0FF;

/// A name of RAR 5: UTF-8, of which some may stand for bytes.
pub(super) fn of_five(name: &[u8]) -> Vec<u8> {
    let Some(text) = std::str::from_utf8(name).ok().filter(|text| text.contains(MARK)) else { return name.to_vec() };
    let mut bytes = Vec::with_capacity(name.len());
    for character in text.chars().filter(|character| !MARK.contains(*character)) {
        if MAPPED.contains(&u32::from(character)) {
            bytes.push(u32::from(character) as u8);
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    bytes
}

/// A name of RAR 4 that has two forms, in bytes and in UTF-16, of which the second one tells only in what it differs.
/// If there is no second one, the first one is UTF-8.
pub(super) fn of_four(field: &[u8]) -> Vec<u8> {
    let Some(end) = field.iter().position(|&byte| byte == 0) else { return field.to_vec() };
    let (plain, rest) = field.split_at_checked(end).unwrap_or_default();
    match decoded(plain, rest.get(1..).unwrap_or_default()) {
        Some(units) if !units.is_empty() => String::from_utf16_lossy(&units).into_bytes(),
        _ => plain.to_vec(),
    }
}

/// Units of UTF-16 of which most have the same upper half. Two bits say of each how it is stored.
fn decoded(plain: &[u8], packed: &[u8]) -> Option<Vec<u16>> {
    let mut bytes = packed.iter().copied();
    let high = u16::from(bytes.next()?) << 8;
    let (mut units, mut flags, mut count) = (Vec::new(), 0_u8, 0_u32);
    // No name is longer than all that it is made of.
    while units.len() <= plain.len().saturating_add(packed.len()) {
        if count == 0 {
            let Some(next) = bytes.next() else { break };
            (flags, count) = (next, 4);
        }
        let how = flags >> 6;
        (flags, count) = (flags << 2, count.saturating_sub(1));
        let Some(byte) = bytes.next() else { break };
        match how {
            0 => units.push(byte.into()),
            1 => units.push(high | u16::from(byte)),
            2 => units.push(u16::from_le_bytes([byte, bytes.next()?])),
            _ => {
                // A run of the plain name, as it is or moved by so much.
                let moved = if byte & 0x80 == 0 { None } else { Some(bytes.next()?) };
                let length = usize::from(byte & 0x7F).saturating_add(2);
                for same in plain.iter().skip(units.len()).take(length) {
                    units.push(moved.map_or(u16::from(*same), |moved| high | u16::from(same.wrapping_add(moved))));
                }
            }
        }
    }
    Some(units)
}

/// Slashes in place of what DOS and Windows have.
pub(super) fn with_slashes(mut path: Vec<u8>) -> Vec<u8> {
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_characters_come_back() {
        assert_eq!(of_five("a\u{fffe}\u{e0e4}b\u{20ac}".as_bytes()), b"a\xe4b\xe2\x82\xac");
        assert_eq!(of_five("\u{e0e4}".as_bytes()), "\u{e0e4}".as_bytes());
        assert_eq!(of_five(b"a\xff"), b"a\xff");
    }

    #[test]
    fn the_second_form_of_a_name_tells_in_what_it_differs() {
        assert_eq!(of_four("ä".as_bytes()), "ä".as_bytes());
        // One unit of each kind: of Latin-1, of Cyrillic, of both bytes, and a run.
        let field = [b"xyz.txt\0\x04".as_slice(), &[0b0001_1011, b'a', 0x16, 0xAC, 0x20, 2]].concat();
        assert_eq!(of_four(&field), "aЖ€.txt".as_bytes());
        assert_eq!(of_four(b"plain\0"), b"plain");
        let moved = [b"0123\0\x04".as_slice(), &[0b1100_0000, 0x82, 0xE0]].concat();
        assert_eq!(of_four(&moved), "АБВГ".as_bytes());
    }

    #[test]
    fn broken_names_are_names() {
        for length in 0..40 {
            let field: Vec<u8> = (0..length).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let _ = of_four(&field);
            let _ = of_four(&[b"ab\0", &field[..]].concat());
        }
        assert_eq!(with_slashes(b"a\\b/c".to_vec()), b"a/b/c");
    }
}
