//! What servers say that mean harm, or are broken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::hostile::Hostile;
use crate::servers::{archives, tree};
use crate::support::{Scratch, run};

/// > A length that no file can have is an error that says so.
#[test]
fn a_length_that_is_none_is_an_error() {
    for length in [u64::MAX, u64::MAX - 615, 1 << 63] {
        let scratch = Scratch::new();
        let server = Hostile::new(move |request, answer| {
            if request.is_of_index() {
                return answer.missing();
            }
            let count = answer.head(request, length, "x")?;
            answer.zeros(count)
        });
        let ran = run(&scratch, ["ls", &server.url("x.tar")]);
        assert!(ran.code == 3 && ran.err.lines().count() == 1, "{length}: {} {}", ran.code, ran.err);
        assert!(ran.err.contains(&format!("{length} bytes")), "{}", ran.err);
    }
}

/// > An answer that is longer than the one before it is not read into memory.
#[test]
fn an_answer_that_grows_is_not_read() {
    let scratch = Scratch::new();
    let server = Hostile::new(|request, answer| {
        let length: u64 = if request.number == 0 { 1000 } else { 1 << 40 };
        write!(answer, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        // The first one is cut.
        answer.zeros(if request.number == 0 { 1 } else { length })
    });
    let ran = run(&scratch, ["ls", &server.url("x.tar")]);
    assert!(ran.code == 3 && ran.err.contains("another length"), "{} {}", ran.code, ran.err);
    // What buffers of sockets hold.
    assert!(server.sent() < 64 << 20, "{}", server.sent());
}

/// > An index beside the object is copied only if it is a database, and not too long for one.
#[test]
fn what_is_no_index_is_not_copied() {
    let scratch = Scratch::new();
    archives(&scratch);
    let tar = fs::read(scratch.path("served/a.tar")).unwrap();
    // A database that is too long, and something else.
    for (length, start) in [(100_u64 << 40, &b"SQLite format 3\0"[..]), (20 << 20, b"\0")] {
        let fresh = Scratch::new();
        let tar = tar.clone();
        let server = Hostile::new(move |request, answer| {
            if !request.is_of_index() {
                return answer.part(request, &tar, "archive");
            }
            let count = answer.head(request, length, "index")?;
            let start = if request.start == 0 { start } else { b"" };
            answer.write_all(start)?;
            answer.zeros(count - start.len() as u64)
        });
        let url = server.url("a.tar");
        let ran = run(&fresh, ["cat", "-d2", &url, "d/hello"]).ok();
        assert!(ran.text() == "hello\n" && ran.err.contains("no index beside it: "), "{}", ran.err);
        // All of the archive, and the first block of each index.
        assert!(server.sent() < 8 << 20, "{}", server.sent());
        let kept: u64 = fresh.shell("du -sk cache/tarnfs/remote | cut -f1").trim().parse().unwrap();
        assert!(kept < 8 << 10, "{kept}");
        // Named, it is an error.
        let index = format!("--index-file={}", server.url("x.sqlite"));
        let ran = run(&fresh, ["cat", &index, &url, "d/hello"]);
        assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("x.sqlite"), "{}", ran.err);
    }
}
