use std::sync::Arc;

use tarnfs_source::{MemorySource, SharedSource};

use super::base64::Base64;
use super::quoted::QuotedPrintable;
use crate::{Codec, CoderContext, ContainerCodec as _, DecodeContext, FileCodec, Options, PIECE, SeekPoint};

fn source(text: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(text, "text"))
}

fn coder(length: usize, properties: &[u8]) -> CoderContext {
    CoderContext { decoded_length: Some(length as u64), properties: properties.into(), ..CoderContext::default() }
}

/// What comes of a first pass, and what the last read said.
fn decoded(codec: &dyn Codec, text: &[u8], coder: CoderContext) -> (Vec<u8>, Option<String>, Vec<SeekPoint>) {
    let options = Options { coder, seek_point_spacing: PIECE as u64, ..Options::default() };
    let mut pass = codec.first_pass(source(text), &options).unwrap();
    let (mut bytes, mut buffer, mut points) = (Vec::new(), vec![0; 70_001], Vec::new());
    let error = loop {
        match pass.read(&mut buffer) {
            Ok(0) => break None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) => break Some(error.to_string()),
        }
    };
    assert!(matches!(pass.read(&mut buffer), Ok(0)));
    pass.take_points(&mut points);
    (bytes, error, points)
}

/// As base64 in lines, the last of which may be shorter.
fn encoded(bytes: &[u8], line: usize, end: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for number in 0..4 {
            let value = (bits >> (18 - 6 * number)) as usize & 63;
            text.push(if number <= group.len() { alphabet[value] } else { b'=' });
        }
    }
    text.chunks(line).flat_map(|line| [line, end.as_bytes()].concat()).collect()
}

#[test]
fn base64_is_read_in_order_and_anywhere() {
    let bytes: Vec<u8> = (0..300_001_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    for (line, end) in [(76, "\n"), (76, "\r\n"), (60, "\n"), (4, "\n"), (1 << 20, "\n"), (64, ""), (75, "\n")] {
        for length in [1, 2, 3, 57, 58, 59, 60, 300_001] {
            let bytes = &bytes[..length];
            let text = encoded(bytes, line, end);
            for coder in [CoderContext::default(), coder(length, b"")] {
                let (found, error, points) = decoded(&Base64, &text, coder.clone());
                assert_eq!((found.len(), error), (length, None), "{line} {end:?}");
                assert!(found == bytes);
                for point in points {
                    let context = DecodeContext { coder: coder.clone(), ..DecodeContext::default() };
                    let mut decoder = Base64.resume(source(&text), &point, &context).unwrap();
                    let mut buffer = vec![0; 1000];
                    let read = decoder.read(&mut buffer).unwrap();
                    assert_eq!(buffer[..read], bytes[point.decoded as usize..][..read]);
                    assert!(read == 1000 || point.decoded as usize + read == length);
                }
            }
            if !line.is_multiple_of(4) && text.len() > line {
                continue;
            }
            let properties = [&(line as u32).to_le_bytes()[..], &[end.len() as u8]].concat();
            let anywhere = Base64.random_access(&source(&text), &coder(length, &properties)).unwrap().unwrap();
            for (from, count) in [(0, length), (1, 5), (2, 1000), (length / 2, 60_000), (length - 1, 9), (length, 1)] {
                let mut buffer = vec![0; count];
                let read = anywhere.read_at(&mut buffer, from as u64).unwrap();
                let expected = &bytes[from.min(length)..(from + count).min(length)];
                assert_eq!(buffer[..read], *expected, "{line} {end:?} {length}: {count} bytes at {from}");
            }
        }
    }
}

#[test]
fn what_is_wrong_with_base64_is_told_or_passed() {
    for (text, bytes, what) in [
        ("QUJD*", "ABC", Some("does not have")),
        ("QUJDR", "ABC", Some("cut short inside four")),
        ("QUJDR=", "ABC", Some("where none can be")),
        ("QUI=\nQUJD", "ABABC", None),
        ("QUI=\nQQ==\nQUJD\n", "ABAABC", None),
        ("QQ=\nQUJD\n", "A", Some("goes on behind its padding")),
        ("QUI=\n*", "AB", Some("does not have")),
        ("QUJD\n====\n*", "ABC", None),
    ] {
        let (found, error, _) = decoded(&Base64, text.as_bytes(), CoderContext::default());
        assert_eq!(String::from_utf8(found).unwrap(), bytes, "{text}");
        assert_eq!(error.is_some(), what.is_some());
        assert!(what.is_none_or(|what| error.unwrap().contains(what)), "{text}");
    }
    for (text, length, ends) in
        [("Q U*J\nD=RE", 4, true), ("QUJDRE", 4, true), ("QUJD", 4, false), ("QUJDREVG", 4, true)]
    {
        let (found, error, _) = decoded(&Base64, text.as_bytes(), coder(length, b""));
        assert_eq!((found.len() == length, error.is_none()), (ends, ends), "{text}");
    }
    for properties in [&b"x"[..], &[0; 5], &[76, 0, 0, 0, 3]] {
        assert!(Base64.random_access(&source(b"QUJD"), &coder(3, properties)).is_err());
    }
    let damaged = Base64.random_access(&source(b"QUJD\n!!!!\n"), &coder(6, &[4, 0, 0, 0, 1])).unwrap().unwrap();
    assert!(damaged.read_at(&mut [0; 3], 0).is_ok() && damaged.read_at(&mut [0; 3], 3).is_err());
}

#[test]
fn quoted_printable_is_what_python_makes_of_it() {
    for (text, bytes) in [
        ("a=3Db\n", "a=b\n"),
        ("soft=\nbreak=\r\n", "softbreak"),
        ("soft= \nx", "soft= \nx"),
        ("==41", "=41"),
        ("=", ""),
        ("=4", "=4"),
        ("=4x=4=41=zz", "=4x=4A=zz"),
        ("=\r \nx", "x"),
    ] {
        for coder in [CoderContext::default(), coder(bytes.len(), b"")] {
            let (found, error, _) = decoded(&QuotedPrintable, text.as_bytes(), coder);
            assert_eq!((String::from_utf8(found).unwrap().as_str(), error), (bytes, None), "{text:?}");
        }
    }
    let text = "gr=C3=BCn=\n".repeat(60_000);
    let (found, error, points) = decoded(&QuotedPrintable, text.as_bytes(), CoderContext::default());
    assert!(found == "grün".repeat(60_000).as_bytes() && error.is_none() && points.len() > 1);
    for point in points {
        let mut decoder = QuotedPrintable.resume(source(text.as_bytes()), &point, &DecodeContext::default()).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(decoder.read(&mut buffer).unwrap(), 64);
        assert_eq!(buffer, found[point.decoded as usize..][..64]);
    }
}

/// Nothing that is left out is taken for nothing.
#[test]
fn what_is_behind_the_end_is_told() {
    use super::base64::Base64File;
    use super::uu::Uuencode;
    let uu = "begin 644 a.txt\n#86)C\n`\nend\n";
    let base64 = "begin-base64 644 a\nYWJj\n====\n";
    for (codec, text) in [(&Uuencode as &dyn Codec, uu), (&Base64File, base64)] {
        let rest = [("", 0), ("\n \n\n", 0), ("more\n", 5), (text, text.len())];
        for (behind, ignored) in rest {
            let text = format!("{text}{behind}");
            let mut pass = codec.first_pass(source(text.as_bytes()), &Options::default()).unwrap();
            let (mut bytes, mut buffer) = (Vec::new(), [0; 100]);
            while let read @ 1.. = pass.read(&mut buffer).unwrap() {
                bytes.extend_from_slice(&buffer[..read]);
            }
            assert_eq!(bytes, b"abc");
            let damage = pass.findings().map(|findings| findings.damage.clone()).unwrap();
            assert_eq!(damage.len(), usize::from(ignored > 0), "{text:?}: {damage:?}");
            assert!(damage.iter().all(|damage| damage.what.starts_with(&format!("{ignored} bytes"))), "{damage:?}");
        }
    }
}

#[test]
fn text_that_is_indented_is_no_header() {
    use super::base64::Base64File;
    for (text, expected) in [
        ("  SGVsbG8g\n  d29ybGQh\n\n", "Hello world!"),
        ("  SGVsbG8g\n  d29ybGQh\n\n  SGVsbG8g\n", "Hello world!Hello "),
        ("\nSGVsbG8g\n\nd29ybGQh\n", "Hello world!"),
        ("Subject: x\n  Zm9sZGVk\n\nSGVsbG8g\n", "Hello "),
    ] {
        let (found, error, _) = decoded(&Base64File, text.as_bytes(), CoderContext::default());
        assert_eq!((String::from_utf8(found).unwrap().as_str(), error), (expected, None), "{text:?}");
    }
}

#[test]
fn what_stands_before_a_text_is_told() {
    use super::base64::Base64File;
    use super::uu::Uuencode;
    let uu = "begin 644 a.txt\n#86)C\n`\nend\n";
    let base64 = "begin-base64 644 b\nYWJj\n====\n";
    let told = |codec: &dyn FileCodec, text: &str| codec.unlisted(&*source(text.as_bytes())).unwrap();
    for before in ["", "\n\n"] {
        assert!(told(&Uuencode, &format!("{before}{uu}")).is_empty(), "{before:?}");
        assert!(told(&Base64File, &format!("{before}{base64}")).is_empty(), "{before:?}");
    }
    assert!(told(&Base64File, "YWJj\n").is_empty());
    for before in ["Subject: y\n\n", "Subject: y\n  z\n", "\nX: y\n"] {
        assert_eq!(told(&Uuencode, &format!("{before}{uu}")), ["the header fields before its text"], "{before:?}");
        assert_eq!(told(&Base64File, &format!("{before}{base64}")).len(), 1, "{before:?}");
    }
    assert_eq!(told(&Base64File, "Content-Transfer-Encoding: base64\n\nYWJj\n").len(), 1);
}

#[test]
fn files_have_heads() {
    use super::base64::Base64File;
    use super::uu::Uuencode;
    let uu = "begin 644 a.txt\n#86)C\n\"9&4\n`\nend\nmore\n";
    let mail = format!("From: x\nSubject: y\n  z\n\n{uu}");
    for (text, name) in [(uu, "a.txt"), (&mail, "a.txt")] {
        assert!(Uuencode.bid(text.as_bytes()) >= 24, "{text}");
        assert_eq!(Uuencode.stored_name(text.as_bytes()), Some(name.as_bytes()));
        let (found, error, _) = decoded(&Uuencode, text.as_bytes(), CoderContext::default());
        assert_eq!((String::from_utf8(found).unwrap().as_str(), error), ("abcde", None));
    }
    // Behind fields it may be mail, which gets 32: what stands in these would be lost.
    assert_eq!((Uuencode.bid(uu.as_bytes()), Uuencode.bid(mail.as_bytes())), (72, 24));
    let empty = "begin 644 a.txt\nend\n";
    assert!(Uuencode.bid(empty.as_bytes()) > 48);
    assert_eq!(decoded(&Uuencode, empty.as_bytes(), CoderContext::default()).1, None);
    for text in
        ["begin 644 a.txt\nThis is text.\n", "begin the\n#86)C\n", "text\nbegin 644 a\n#86)C\n", "begin 644 a\n"]
    {
        assert_eq!(Uuencode.bid(text.as_bytes()), 0, "{text}");
    }
    let (found, error, _) = decoded(&Uuencode, &uu.as_bytes()[..27], CoderContext::default());
    assert!(found == b"abcde" || found == b"abc", "{found:?}");
    assert!(error.is_some());
    let base64 = "begin-base64 644 b c\nYWJj\nZGU=\n====\n";
    assert_eq!((Base64File.bid(base64.as_bytes()), Base64File.bid(b"YWJj\n")), (104, 0));
    assert_eq!(Base64File.bid(format!("From: x\n\n{base64}").as_bytes()), 24);
    assert_eq!(Base64File.stored_name(base64.as_bytes()), Some(&b"b c"[..]));
    for text in [base64, "YWJj\nZGU=\n", "Content-Type: x\nContent-Transfer-Encoding: base64\n\nYWJjZGU="] {
        let (found, error, _) = decoded(&Base64File, text.as_bytes(), CoderContext::default());
        assert_eq!((String::from_utf8(found).unwrap().as_str(), error), ("abcde", None), "{text}");
    }
    let lines = format!("M{}\n", "#86)".repeat(15)).repeat(9000);
    let text = format!("begin 644 a\n{lines}`\nend\n");
    let (found, error, points) = decoded(&Uuencode, text.as_bytes(), CoderContext::default());
    assert!(found.len() == 9000 * 45 && error.is_none() && !points.is_empty(), "{} {error:?}", found.len());
    for point in points {
        let mut decoder = Uuencode.resume(source(text.as_bytes()), &point, &DecodeContext::default()).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(decoder.read(&mut buffer).unwrap(), 64);
        assert_eq!(buffer, found[point.decoded as usize..][..64]);
    }
}

#[test]
fn addresses_and_pages_have_their_own_characters() {
    use super::url::DataUrl;
    for (flags, text, bytes) in [
        (0, "a&amp;%41", "a&amp;%41"),
        (1, "a&amp;&#65;&#x42;&lt &unknown;&", "a&AB&lt &unknown;&"),
        (2, "a%41%%42%4x%", "aA%B%4x%"),
        (3, "&#37;41&amp;amp;", "A&amp;"),
        (7, "QUJ&#68;%0ARE&#x56;H", "ABCDEG"),
        (4, "QUJD*RA==QUJD", "ABCD"),
        (12, "QUI\\x3d", "AB"),
        (12, "QUI\\u003D", "AB"),
        (12, "Pj8\\/Pj8\\u002BPj8\\x2f", ">??>?>>??"),
        (12, "QU\\nJD\\", "ABC"),
        (8, "\\x4\\u004z\\'\\x41\\", "\\x4\\u004z'A\\"),
        (15, "QU&#92;x4aD%3d", "ABC"),
        // Two halves are one character; one alone is none.
        (8, "\\ud83d\\uDE00\\u00e9", "\u{1f600}\u{e9}"),
        (8, "\\ud83d\\n\\ud83d\\u0041 \\ude00 \\ud83dx \\ud83", "\\ud83d\n\\ud83dA \\ude00 \\ud83dx \\ud83"),
        (8, "\\ud83d\\ud83d\\ude00", "\\ud83d\u{1f600}"),
        (8, "\\x4\\x41\\u12\\'", "\\x4A\\u12'"),
        (8, "a\\\r\nb\\\rc\\\r", "abc"),
        (8, "a\\tb\\r\\nc\\\nd\\v", "a\tb\r\ncd\u{b}"),
        // Style sheets have others.
        (16, "\\3csvg a=\\\"x\\\" \\23/\\3e", "<svg a=\"x\" #/>"),
        (16, "\\0000411\\e9 \\n\\\nx\\110000 \\zz", "A1\u{e9}nx\u{fffd}zz"),
        (18, "\\25 41", "A"),
        (16, "a\\\r\nb\\\rc\\41\r\nd\\42\re", "abcAdBe"),
    ] {
        let coder = CoderContext { properties: [flags].as_slice().into(), ..CoderContext::default() };
        let (found, error, _) = decoded(&DataUrl, text.as_bytes(), coder);
        assert_eq!((String::from_utf8_lossy(&found).as_ref(), error), (bytes, None), "{text}");
    }
}
