use std::sync::Arc;

use tarnfs_source::MemorySource;

use super::PdfStream;
use crate::{Codec, CoderContext, Options};

/// What comes of `stored`, and whether it ends with an error.
fn decoded(properties: &[u8], stored: &[u8]) -> (Vec<u8>, bool) {
    let coder = CoderContext { properties: properties.into(), ..CoderContext::default() };
    let options = Options { coder, ..Options::default() };
    let source = Arc::new(MemorySource::new(stored, "stored"));
    let Ok(mut pass) = PdfStream.first_pass(source, &options) else { return (Vec::new(), true) };
    let (mut bytes, mut buffer) = (Vec::new(), [0; 777]);
    loop {
        match pass.read(&mut buffer) {
            Ok(0) => return (bytes, false),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(_) => return (bytes, true),
        }
        assert!(bytes.len() < 1 << 24);
    }
}

#[test]
fn letters_are_bytes() {
    for (stage, stored, bytes, fails) in [
        (4, &b"48 65\n6C6c6F>xx"[..], &b"Hello"[..], false),
        (4, b"4", b"@", false),
        (4, b"4x", b"", true),
        (3, b"87cUR\nD]j7BEbo80~>", b"Hello world!", false),
        (3, b"z~>", b"\0\0\0\0", false),
        (3, b"5sb~>", b"AB", false),
        (3, b"uuuuu", b"", true),
        (3, b"\x7f", b"", true),
        (5, b"\x02abc\xfed\x80more", b"abcddd", false),
        (5, b"\x05ab", b"", true),
    ] {
        assert_eq!(decoded(&[stage], stored), (bytes.to_vec(), fails), "{stage} {stored:?}");
    }
    assert!(decoded(&[], b"as it is").0 == b"as it is" && decoded(&[9], b"").1 && decoded(&[4; 9], b"").1);
}

/// What comes behind something wrong is never taken for what would have been there.
#[test]
fn nothing_follows_what_is_wrong() {
    const GROUPS: usize = 20_000;
    let text = ["z".repeat(GROUPS), "v".to_owned(), "z".repeat(3 * GROUPS), "~>".to_owned()].concat();
    let digits = ["00".repeat(GROUPS), "x".to_owned(), "00".repeat(3 * GROUPS), ">".to_owned()].concat();
    let [a, b] = 300_u16.to_le_bytes();
    let prefix = [8, 1, 0, b'x'];
    let image = [9, a, b, 0, 0, a, b, 0, 0, 8, 0, 0, 0, 0];
    let rows = [6, 2, 1, 8, 7, 0, 0, 0];
    for (letters, stored, whole) in [(3, text, 4 * GROUPS), (4, digits, GROUPS)] {
        for stages in [&[][..], &prefix, &image, &rows, &[6, 2, 1, 8, 7, 0, 0, 0, 8, 1, 0, b'x']] {
            let properties = [&[letters][..], stages].concat();
            let (bytes, fails) = decoded(&properties, stored.as_bytes());
            assert!(fails, "{properties:?}");
            // An image has something before its pixels, and between them.
            assert!(bytes.len() < whole + 1000, "{properties:?}: {}", bytes.len());
        }
    }
}

#[test]
fn lzw_is_that_of_the_standard() {
    // The example of ISO 32000, 7.4.4.2.
    let stored = [0x80, 0x0b, 0x60, 0x50, 0x22, 0x0c, 0x0c, 0x85, 0x01];
    assert_eq!(decoded(&[2, 1], &stored), (vec![45, 45, 45, 45, 45, 65, 45, 45, 45, 66], false));
    assert!(decoded(&[2, 1], &[0xff; 9]).1);
}

#[test]
fn rows_are_made_of_differences() {
    let columns = 4_u32.to_le_bytes();
    let stage = |kind: u8, bits: u8| [&[6, kind, 1, bits][..], &columns].concat();
    let rows = [&[1, 1, 1, 1, 1][..], &[2, 1, 1, 1, 1], &[0, 9, 9, 9, 9], &[3, 1, 1, 1, 1], &[4, 1, 0]].concat();
    let expected = [&[1, 2, 3, 4][..], &[2, 3, 4, 5], &[9, 9, 9, 9], &[5, 8, 9, 10], &[6, 8]].concat();
    assert_eq!(decoded(&stage(15, 8), &rows), (expected, false));
    assert_eq!(decoded(&stage(2, 8), &[1, 1, 1, 255, 7, 0, 0, 0]), (vec![1, 2, 3, 2, 7, 7, 7, 7], false));
    assert_eq!(decoded(&stage(2, 16), &[0, 255, 0, 1, 0, 0, 0, 1]), (vec![0, 255, 1, 0, 1, 0, 1, 1], false));
    assert_eq!(decoded(&stage(2, 4), &[0x1f, 0x11]), (vec![0x10, 0x12], false));
    // Values that share bytes, of one colour and of three.
    assert_eq!(decoded(&stage(2, 2), &[0x55, 0xc1]), (vec![0x6c, 0xfc], false));
    let shared = |colors: u8, bits: u8| [&[6, 2, colors, bits][..], &4_u32.to_le_bytes()].concat();
    assert_eq!(decoded(&shared(1, 1), &[0b1010_0000, 0b0100_0000]), (vec![0b1100_0000, 0b0111_1111], false));
    assert_eq!(decoded(&shared(3, 1), &[0b1000_1000, 0b1000_0000]), (vec![0x9b, 0xff], false));
    assert_eq!(
        decoded(&shared(3, 4), &[0x12, 0x31, 0x11, 0xf0, 0xe0, 0x00]),
        (vec![0x12, 0x32, 0x34, 0x13, 0x21, 0x32], false)
    );
    assert!(decoded(&stage(7, 8), &[0]).1 && decoded(&stage(15, 3), &[0]).1);
}

#[test]
fn flate_needs_no_checksum() {
    let mut packed = vec![0; 1000];
    let text = b"hello hello hello".repeat(20);
    let (packed, _) = zlib_rs::compress_slice(&mut packed, &text, zlib_rs::DeflateConfig::default());
    assert_eq!(decoded(&[1], packed), (text.clone(), false));
    assert_eq!(decoded(&[1], &packed[..packed.len() - 4]), (text.clone(), false));
    assert_eq!(decoded(&[1], &[b"\r\n", &*packed].concat()), (text.clone(), false));
    let (bytes, fails) = decoded(&[1], &packed[..packed.len() - 8]);
    assert!(fails && text.starts_with(&bytes));
    // In letters, and with a predictor behind it.
    let letters = packed.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert_eq!(decoded(&[4, 1], letters.as_bytes()), (text, false));
}

/// Some programs keep the filter of what is empty, and store nothing.
#[test]
fn nothing_comes_of_nothing() {
    let rows = [1, 6, 15, 1, 8, 4, 0, 0, 0];
    for stages in [&[1][..], &[4, 1], &[1, 1], &[2, 1], &rows] {
        assert_eq!(decoded(stages, b""), (Vec::new(), false), "{stages:?}");
    }
    // What has begun has an end.
    for stored in [&b"\x78"[..], b"\x78\x9c", b"\x78\x9c\x01"] {
        assert_eq!(decoded(&[1], stored), (Vec::new(), true), "{stored:?}");
    }
}

/// Blanks between digits give nothing, and any number of them come of a few bytes: that would end after days.
#[test]
fn filters_in_each_other_end_where_nothing_comes_of_them() {
    let deflated = |bytes: &[u8]| {
        let mut room = vec![0; bytes.len() + 1000];
        zlib_rs::compress_slice(&mut room, bytes, zlib_rs::DeflateConfig::default()).0.to_vec()
    };
    let blanks = deflated(&deflated(&vec![b' '; 16 << 20]));
    assert_eq!(decoded(&[1, 1, 4], &blanks), (Vec::new(), true));
    assert_eq!(decoded(&[1, 1, 3], &blanks), (Vec::new(), true));
    // What comes before them is there; and blanks that are stored are no waste.
    let text = [b"4142>"[..].to_vec(), vec![b' '; 1 << 20]].concat();
    assert_eq!(decoded(&[1, 4], &deflated(&text)), (b"AB".to_vec(), false));
    assert_eq!(decoded(&[4, 1], &vec![b' '; 1 << 20]).0, Vec::<u8>::new());
    let spaced = b"4 1\n".repeat(1 << 20);
    assert_eq!(decoded(&[1, 4], &deflated(&spaced)), (vec![b'A'; 1 << 20], false));
}

/// A row of 16 MiB may have one byte.
#[test]
fn rows_take_no_more_than_has_come_of_them() {
    use super::Undo;
    let predictor = super::predictor::Predictor::new(15, 1, 8, 16 << 20).unwrap();
    assert!(predictor.memory() < 1000, "{}", predictor.memory());
    let columns = (16_u32 << 20).to_le_bytes();
    assert_eq!(decoded(&[&[6, 15, 1, 8][..], &columns].concat(), &[4, b'a', 1]), (vec![b'a', b'b'], false));
    // A long one comes whole, though nothing comes out before its end.
    let columns = (8_u32 << 20).to_le_bytes();
    let (bytes, fails) = decoded(&[&[5, 6, 2, 1, 8][..], &columns].concat(), &[129, 1].repeat(1 << 16));
    assert!(!fails && bytes.len() == 8 << 20);
    assert!(bytes.iter().zip(1_usize..).all(|(byte, count)| *byte == count as u8));
}

/// What no password opens.
#[test]
fn passwords_are_asked_for() {
    let mut properties = vec![7, 1, 3, 16, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 32];
    properties.extend([1; 32]);
    properties.push(32);
    properties.extend([2; 32]);
    properties.extend([0, 0, 4, 1, 2, 3, 4]);
    for password in [None, Some(b"x".as_slice())] {
        let coder = CoderContext {
            properties: properties.as_slice().into(),
            password: password.map(Into::into),
            ..CoderContext::default()
        };
        let options = Options { coder, ..Options::default() };
        let error = PdfStream.first_pass(Arc::new(MemorySource::new(&b"x"[..], "x")), &options).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    }
}
