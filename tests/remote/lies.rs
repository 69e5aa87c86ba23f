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
