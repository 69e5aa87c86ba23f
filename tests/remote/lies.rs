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
