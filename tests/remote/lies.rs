//! What servers say that mean harm, or are broken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::hostile::Hostile;
use crate::servers::{archives, tree};
use crate::support::{Mounted, Scratch, can_mount, run};

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

/// > An index beside the object is used only if it is a database, or a compressed one, and copied only if it is short.
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
        let is_database = !start.starts_with(b"\0");
        let why = if is_database { "it is not used" } else { "no index beside it: " };
        assert!(ran.text() == "hello\n" && ran.err.contains(why), "{}", ran.err);
        // All of the archive, and the first block of each index.
        assert!(server.sent() < 8 << 20, "{}", server.sent());
        let kept: u64 = fresh.shell("du -sk cache/tarnfs/remote | cut -f1").trim().parse().unwrap();
        assert!(kept < 8 << 10, "{kept}");
        // Named, it is an error, or a warning if it could be one.
        let index = format!("--index-file={}", server.url("x.sqlite"));
        let ran = run(&fresh, ["cat", &index, &url, "d/hello"]);
        assert!(ran.code != 0 && ran.out.is_empty() || is_database, "{}", ran.err);
        assert!(ran.err.contains("x.sqlite"), "{}", ran.err);
    }
}

/// > A server that sends byte by byte costs its readers an error, and nothing when it is well again.
#[test]
fn a_server_that_drips_hangs_nobody() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // Far from each other, so that the header of none is there with that of another.
    scratch.shell(
        "mkdir tree; for i in $(seq 12); do head -c 9000000 /dev/urandom > tree/$i; done; tar -C tree -cf a.tar .",
    );
    let tar = fs::read(scratch.path("a.tar")).unwrap();
    let drips = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&drips);
    let server = Hostile::new(move |request, answer| {
        if request.is_of_index() {
            return answer.missing();
        }
        if !seen.load(Ordering::Relaxed) {
            return answer.part(request, &tar, "x");
        }
        let count = answer.head(request, tar.len() as u64, "x")?;
        for byte in &tar[request.start as usize..][..count as usize] {
            answer.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    });
    let mount = Mounted::new(&scratch, server.url("a.tar"), &["--cache-size=0"]);
    drips.store(true, Ordering::Relaxed);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=12)
            .map(|number| {
                let path = mount.path(number.to_string());
                scope.spawn(move || {
                    let file = fs::File::open(path)?;
                    std::os::unix::fs::FileExt::read_at(&file, &mut [0; 4096], 4 << 20)
                })
            })
            .collect();
        let errors: Vec<_> = readers.into_iter().filter_map(|reader| reader.join().unwrap().err()).collect();
        // A sample of the archive may lie where one reads.
        assert!(errors.len() >= 8 && errors.iter().all(|error| error.raw_os_error() == Some(5)), "{errors:?}");
    });
    assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
    drips.store(false, Ordering::Relaxed);
    for number in 1..=12 {
        let name = number.to_string();
        assert!(fs::read(mount.path(&name)).unwrap() == fs::read(tree(&scratch).join(&name)).unwrap(), "{name}");
    }
    mount.unmount();
    // Nor is one that is opened.
    drips.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let ran = run(&Scratch::new(), ["ls", &server.url("a.tar")]);
    assert!(ran.code == 3 && start.elapsed() < Duration::from_secs(150), "{} {}", ran.code, ran.err);
}
