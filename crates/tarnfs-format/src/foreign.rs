//! Formats that tarnfs cannot read: told by their magic numbers, so that a message can name them.

/// As many of a file's first bytes are looked at.
pub const HEAD: usize = 4 << 10;

/// Where the mark is, what it is, and what has it. The first one that fits counts.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"RE~^", "a RAR archive of before version 1.5"),
    (0, b"DWARFS", "a DwarFS image"),
    (0, b"\x45\x3d\xcd\x28", "a cramfs image"),
    (0, b"\x28\xcd\x3d\x45", "a cramfs image"),
    (0, b"-rom1fs-", "a romfs image"),
    (0, b"ISc(", "an InstallShield archive"),
    (7, b"**ACE**", "an ACE archive"),
    (20, b"\xdc\xa7\xc4\xfd", "a ZOO archive"),
    (0, b"WLPWM\0\0\0", "a WIM image for pipes"),
    (0, b"7kSt", "a ZPAQ archive"),
    (0, b"zPQ", "a ZPAQ archive"),
    (0, b"StuffIt ", "a StuffIt archive"),
    (0, b"SIT!", "a StuffIt archive"),
    (0, b"ITSF", "a CHM file"),
    (0, b"Cr24", "a Chrome extension"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a compound file of Microsoft"),
    (0, b"BZ0", "a file compressed with bzip (version 1)"),
    (0, b"RZIP", "a file compressed with rzip"),
    (0, b"bvx", "a file compressed with LZFSE"),
    (0, b"\x1f\x1e", "a file compressed with pack"),
    (0, b"\x1f\xa0", "a file compressed with LZH of SCO"),
    (0, b"\x7fELF", "a program or library"),
    (0, b"MZ", "a program of Windows or DOS"),
];

/// What a file is that begins with `head`, with its article: "a ZIP archive". `None` if that is not known.
pub fn name_of(head: &[u8]) -> Option<&'static str> {
    let has = |offset: usize, mark: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(offset, mark, _)| has(*offset, mark)).map(|(_, _, name)| *name)
}

/// What encrypts whole files, and how those begin.
const ENCRYPTED: &[(&[u8], &str)] = &[
    (b"age-encryption.org/v1\n", "age"),
    (b"-----BEGIN AGE ENCRYPTED FILE-----", "age"),
    (b"-----BEGIN PGP MESSAGE-----", "OpenPGP"),
    (b"Salted__", "openssl"),
    // A password and its salt: a packet of 13 bytes, with the length as it was once written and as it is now.
    (b"\x8c\x0d\x04", "OpenPGP"),
    (b"\xc3\x0d\x04", "OpenPGP"),
];

/// What the file was encrypted with that begins with `head`, if that is known.
pub fn encrypted_with(head: &[u8]) -> Option<&'static str> {
    // A key for somebody else, of version 3, in a packet whose length has one byte or two.
    if matches!(head, [0x84 | 0xc1, 0x20..0xc0, 3, ..] | [0x85 | 0xc1, 1..=8 | 0xc0..=0xc8, _, 3, ..]) {
        return Some("OpenPGP");
    }
    ENCRYPTED.iter().find(|(start, _)| head.starts_with(start)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_where_they_are() {
        for &(offset, mark, _) in MARKS {
            assert!(offset + mark.len() <= HEAD);
            let mut head = vec![0; offset];
            head.extend_from_slice(mark);
            assert!(name_of(&head).is_some(), "{mark:?}");
            head.pop();
            assert_eq!(name_of(&head), None, "{mark:?}");
        }
        assert_eq!((name_of(b""), name_of(b"text"), name_of(&vec![0; HEAD])), (None, None, None));
    }

    #[test]
    fn encrypted_files_are_told_by_their_first_bytes() {
        for (head, program) in [
            (&b"age-encryption.org/v1\n-> X25519"[..], Some("age")),
            (b"Salted__\x01\x02", Some("openssl")),
            (b"\x8c\x0d\x04\x09\x03\x08", Some("OpenPGP")),
            (b"\x85\x02\x0c\x03\x01", Some("OpenPGP")),
            (b"\x84\x5e\x03\x01", Some("OpenPGP")),
            (b"\xc1\xc1\x4c\x03\x01", Some("OpenPGP")),
            (b"", None),
            (b"\x85\x02\x0c", None),
            (b"\x85\x02\x0c\x04", None),
            (b"text", None),
        ] {
            assert_eq!(encrypted_with(head), program, "{head:?}");
        }
        for (start, name) in ENCRYPTED {
            let mut head = start.to_vec();
            head.resize(4096, 0);
            assert!(crate::detect(&crate::Probe::of_head(&head)).is_none(), "{name}");
        }
    }

    /// What can be read is not in the list.
    #[test]
    fn no_mark_is_that_of_a_known_format() {
        for &(offset, mark, name) in MARKS {
            let mut head = vec![0; 4096];
            let Some(place) = head.get_mut(offset..offset + mark.len()) else { continue };
            place.copy_from_slice(mark);
            assert!(crate::detect(&crate::Probe::of_head(&head)).is_none(), "{name}");
        }
    }
}
