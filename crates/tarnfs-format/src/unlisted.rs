//! What is in an archive and in none of its entries.

use std::io;
use std::ops::Range;

use tarnfs_source::{Cancel, Source};

/// What is in an archive and in none of its entries. It has no place in a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// The comment on all of it, in whatever encoding; mostly empty.
    pub comment: Vec<u8>,
    /// All else, in words: "12 bytes before its first file".
    pub others: Vec<String>,
}

impl Unlisted {
    /// Of a format that shows only a part of what it reads: what else is there.
    pub(crate) fn but(what: &str) -> Self {
        Self { others: vec![what.to_owned()], ..Self::default() }
    }

    /// Of what has no comment: all else.
    pub(crate) fn of(others: Vec<String>) -> Self {
        Self { others, ..Self::default() }
    }

    /// Of what nobody can look at: there may be anything.
    pub fn unknown() -> Self {
        Self::but("what else is in it, which is not known")
    }
}

/// In words, what is before and behind an archive that has the bytes `own` of `source`. Zeros behind it are padding.
pub fn around(source: &dyn Source, own: Range<u64>, cancel: &Cancel) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    if own.start > 0 {
        found.push(format!("{} bytes before the archive", own.start));
    }
    let (mut at, mut bytes) = (own.end, vec![0; 64 << 10]);
    // Holes are zeros.
    while let Some(data) = source.next_data(at) {
        cancel.check()?;
        at = at.max(data);
        let read = source.read_at(&mut bytes, at)?;
        let read = bytes.get(..read).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        if read.iter().any(|&byte| byte != 0) {
            found.push(format!("{} bytes behind its end", source.len().saturating_sub(own.end)));
            break;
        }
        at = at.saturating_add(read.len() as u64);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use tarnfs_source::{MemorySource, SharedSource};

    use super::*;
    use crate::{Event, FORMATS, Format, Options, Reader, by_name};

    fn sample(name: &str) -> Vec<u8> {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
        fs::read(samples.join(name)).unwrap()
    }

    fn unlisted(format: &str, bytes: &[u8]) -> Unlisted {
        let format = by_name(format).unwrap();
        format.unlisted(&MemorySource::new(bytes, "archive"), &Cancel::default()).unwrap()
    }

    fn others(format: &str, bytes: &[u8]) -> String {
        unlisted(format, bytes).others.join("; ")
    }

    /// What is no archive of a format was one when it was opened: nobody says that nothing else is in it.
    #[test]
    fn a_format_that_finds_no_archive_does_not_say_that_nothing_is_there() {
        for bytes in [vec![], vec![0; 4096], vec![0x55; 70_000]] {
            for format in FORMATS.iter().filter(|format| matches!(format.reader(), Reader::Random(_))) {
                let found = format.unlisted(&MemorySource::new(&bytes[..], "none"), &Cancel::default());
                assert!(found.is_err() || found.is_ok_and(|found| !found.others.is_empty()), "{}", format.name());
            }
        }
    }

    /// Samples of formats that know where they end.
    const SAMPLES: [(&str, &str); 15] = [
        ("arj", "method0.arj"),
        ("arj", "method1.arj"),
        ("arj", "method4.arj"),
        ("asar", "files.asar"),
        ("cab", "stored.cab"),
        ("cab", "mszip.cab"),
        ("lha", "level0.lzh"),
        ("lha", "level1.lzh"),
        ("lha", "lh1.lzh"),
        ("lha", "lh5.lzh"),
        ("lha", "lh7.lzh"),
        ("sqlar", "files.sqlar"),
        ("wim", "lzx.wim"),
        ("wim", "xpress.wim"),
        ("wim", "lzms.wim"),
    ];

    #[test]
    fn what_is_behind_the_end_is_told() {
        for (format, name) in SAMPLES {
            let mut bytes = sample(name);
            assert!(!others(format, &bytes).contains("behind its end"), "{name}: {}", others(format, &bytes));
            bytes.extend([0; 300]);
            assert!(!others(format, &bytes).contains("behind its end"), "{name}: {}", others(format, &bytes));
            bytes.truncate(bytes.len() - 300);
            bytes.extend(b"precious");
            assert!(others(format, &bytes).contains("8 bytes behind its end"), "{name}: {}", others(format, &bytes));
        }
    }

    #[test]
    fn nothing_is_told_of_archives_that_have_nothing_else() {
        for name in ["method0.arj", "method1.arj", "method4.arj"] {
            assert_eq!(unlisted("arj", &sample(name)), Unlisted::default(), "{name}");
        }
        for name in ["stored.cab", "mszip.cab", "quantum.cab", "lzx-calls.cab"] {
            assert_eq!(unlisted("cab", &sample(name)), Unlisted::default(), "{name}");
        }
        for name in ["level0.lzh", "level1.lzh", "lh1.lzh", "lh5.lzh", "lh6.lzh", "lh7.lzh"] {
            assert_eq!(unlisted("lha", &sample(name)), Unlisted::default(), "{name}");
        }
        assert_eq!(unlisted("asar", &sample("files.asar")), Unlisted::default());
    }

    #[test]
    fn descriptions_signatures_and_tables_are_told() {
        assert_eq!(others("wim", &sample("lzx.wim")), "the names and descriptions of its images (XML)");
        assert!(others("xar", &sample("gzip.xar")).contains("signatures"));
        assert!(others("cab", &sample("part1.cab")).contains("reserved bytes"));
        assert_eq!(others("sqlar", &sample("utf16.sqlar")), "other tables of the database, views, or the like (1)");
        assert_eq!(unlisted("sqlar", &sample("files.sqlar")), Unlisted::default());
        let library = |name: &str, content: &str| {
            format!("!<arch>\n{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n{content}", 0, 0, 0, 644, content.len())
                .into_bytes()
        };
        for (name, content) in [("/", "symbols!"), ("__.SYMDEF", "symbols!"), ("#1/12", "__.SYMDEF\0\0\0symbols!")] {
            assert_eq!(others("ar", &library(name, content)), "its table of symbols", "{name}");
        }
        assert_eq!(unlisted("ar", &library("symbols/", "symbols!")), Unlisted::default());
        assert_eq!(unlisted("ar", b"!<arch>\n"), Unlisted::default());
    }

    #[test]
    fn comments_are_told() {
        // The header of the archive anew, with a comment.
        let bytes = sample("method0.arj");
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let (header, rest) = (&bytes[4..4 + length], &bytes[4 + length + 4..]);
        let header = [&header[..usize::from(header[0])], b"x.arj\0mine\0"].concat();
        let (length, crc) = ((header.len() as u16).to_le_bytes(), crc32fast::hash(&header).to_le_bytes());
        let commented = [&bytes[..2], &length, &header, &crc, rest].concat();
        assert_eq!(unlisted("arj", &commented).comment, b"mine");
        // Of level 1, with an extension.
        let lha = |kind: u8, text: &[u8]| {
            let extension = [&[kind], text, &[0, 0]].concat();
            let length = extension.len() as u16;
            let stored = u32::from(length).to_le_bytes();
            let body =
                [b"-lh0-", &stored[..], &[0; 8], &[0x20, 1, 1, b'f', 0, 0, b'U'], &length.to_le_bytes()].concat();
            let sum = body.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
            [&[body.len() as u8, sum], &body[..], &extension, &[0]].concat()
        };
        for (kind, text, is_told) in [
            (0x3f_u8, &b"mine"[..], true),
            (0x71, b"mine", true),
            (0x40, &[0x21, 0], false),
            (0x40, &[0x22, 0], true),
            (0x54, &[1, 2, 3, 4], false),
            (0x01, b"name", false),
            (0x01, b"name\0filenote", true),
        ] {
            let found = others("lha", &lha(kind, text));
            assert_eq!(found.contains("comments"), is_told, "{kind:#x} {text:?}: {found}");
            assert_eq!(found.is_empty(), !is_told, "{kind:#x} {text:?}: {found}");
        }
        // RAR before 3.0 has them in headers.
        assert_eq!(
            others("rar", &sample("../rar/password_rar202.rar")),
            "a comment that is not read; comments on 2 of its files"
        );
        assert_eq!(others("rar", &sample("../rar/readme_154_normal.rar")), "");
        // As `git archive` writes it.
        let mut block = vec![0; 512];
        block[..17].copy_from_slice(b"pax_global_header");
        for (at, text) in
            [(100, &b"0000666"[..]), (124, b"00000000017"), (136, b"00000000000"), (156, b"g"), (257, b"ustar\x0000")]
        {
            block[at..at + text.len()].copy_from_slice(text);
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let tar = [&block[..], b"15 comment=abc\n", &[0; 497 + 1024]].concat();
        assert_eq!(unlisted("tar", &tar), Unlisted { comment: b"abc".to_vec(), others: Vec::new() });
        assert_eq!(unlisted("tar", &[0; 1024]), Unlisted::default());
    }

    /// A statement that goes on in another page of the list of tables.
    #[test]
    fn a_database_of_small_pages_is_known_as_an_archive() {
        let source: SharedSource = Arc::new(MemorySource::new(sample("utf16.sqlar"), "archive"));
        let mut head = vec![0; 4096];
        let read = source.read_at(&mut head, 0).unwrap();
        let found = crate::detect(&crate::Probe::new(&head[..read], &*source));
        assert_eq!(found.map(Format::name), Some("sqlar"));
        let mut entries = 0;
        let Reader::Random(reader) = by_name("sqlar").unwrap().reader() else { panic!("it has a directory") };
        reader
            .read(&source, &Options::default(), &mut |event| {
                entries += usize::from(matches!(event, Event::Entry(_)));
                Ok(())
            })
            .unwrap();
        assert!(entries > 0);
    }
}
