//! What each codec says of itself, and the windows that seek points of other programs have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::io;

use tarnfs_codec::{CODECS, Codec, by_name, detect, detect_named};

#[test]
fn names_and_suffixes_are_those_that_programs_write() {
    for (name, suffixes) in [
        ("brotli", &[(".tbr", ".tar"), (".br", "")][..]),
        (
            "bzip2",
            &[
                (".tbz2", ".tar"),
                (".tbz", ".tar"),
                (".tb2", ".tar"),
                (".tz2", ".tar"),
                (".bz2", ""),
                (".bzip2", ""),
                (".bz", ""),
            ],
        ),
        ("compress", &[(".tz", ".tar"), (".z", "")]),
        ("gzip", &[(".tgz", ".tar"), (".taz", ".tar"), (".gz", ""), (".bgz", ""), (".gzip", "")]),
        ("zlib", &[(".zz", ""), (".zlib", "")]),
        ("deflate", &[(".deflate", "")]),
        ("lrzip", &[(".tlrz", ".tar"), (".lrz", "")]),
        ("lz4", &[(".tlz4", ".tar"), (".lz4", "")]),
        ("lzop", &[(".tzo", ".tar"), (".lzo", "")]),
        ("snappy", &[(".sz", ""), (".snappy", "")]),
        ("xz", &[(".txz", ".tar"), (".xz", "")]),
        ("zstd", &[(".tzst", ".tar"), (".tzstd", ".tar"), (".tzs", ".tar"), (".zst", ""), (".zstd", "")]),
    ] {
        let codec = by_name(name).unwrap_or_else(|| panic!("there is no {name}"));
        let (own, expected): (BTreeSet<_>, BTreeSet<_>) =
            (codec.file_codec().unwrap().suffixes().iter().collect(), suffixes.iter().collect());
        assert_eq!((codec.name(), own), (name, expected));
    }
    assert!(by_name("toy").is_none() && by_name("").is_none());
    let all: Vec<&str> = CODECS.iter().flat_map(|codec| codec.suffixes()).map(|(suffix, _)| *suffix).collect();
    // A suffix is of one codec; this one was that of lzma before it was that of lzip, and bytes tell which it is.
    let twice: Vec<_> = all.iter().filter(|one| all.iter().filter(|other| other == one).count() > 1).collect();
    assert_eq!(twice, [&".tlz", &".tlz"]);
    assert!(all.iter().all(|suffix| suffix.starts_with('.') && suffix.to_lowercase() == *suffix));
}

#[test]
fn a_format_without_a_magic_is_known_by_the_name_alone() {
    let by_name_only: Vec<&str> =
        CODECS.iter().filter(|codec| codec.may_be_named(b"anything")).map(|codec| codec.name()).collect();
    assert_eq!(by_name_only, ["base64", "brotli", "deflate"]);
    // An uncompressed block and the end, as RFC 7932 has them.
    let brotli = b"\x0b\x02\x80hello\x03";
    assert_eq!(detect_named(b"a.BR", brotli).map(Codec::name), Some("brotli"));
    for (name, head) in [(&b"a.gz"[..], &brotli[..]), (b".br", brotli), (b"a.br", b"\xff\xff\xff\xff")] {
        assert!(detect_named(name, head).is_none(), "{name:?}");
    }
    for head in [&b""[..], b"plain text, and no archive", &[0; 2000]] {
        assert!(detect(head).is_none());
    }
}

#[test]
fn windows_of_other_programs_become_states_and_come_back() {
    for name in ["gzip", "zlib", "deflate"] {
        let windows = by_name(name).unwrap().windows().unwrap();
        for length in [0, 1, 1000, 32 << 10] {
            let window: Vec<u8> = (0..length).map(|n| (n % 249) as u8).collect();
            let state = windows.state_from_window(&window).unwrap();
            assert!(!state.is_empty());
            assert_eq!(windows.window_from_state(&state).unwrap(), window, "{name}, {length}");
        }
        assert_eq!(windows.window_from_state(b"").unwrap(), b"", "the start of a stream needs none");
        let invalid = |result: io::Result<Vec<u8>>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidData);
        invalid(windows.state_from_window(&vec![0; (32 << 10) + 1]));
        invalid(windows.window_from_state(b"\x02"));
        invalid(windows.window_from_state(b"\x01frog"));
    }
    for name in ["bzip2", "xz", "zstd", "lz4"] {
        assert!(by_name(name).unwrap().windows().is_none(), "{name}");
    }
}
