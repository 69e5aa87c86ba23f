//! What goes wrong on the way to a server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::proxy::{Fault, PASSING, Proxy};
use crate::servers::{Server, archives, contents, tree};
use crate::support::{Mounted, Scratch, can_mount, have, rounds, run};

/// Lists all and reads all, without anything in a cache. Returns what came of it, and how many requests there were.
fn read_all(
    server: &Server,
    name: &str,
    fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static,
) -> (Vec<(i32, Vec<u8>, String)>, usize) {
    let scratch = Scratch::new();
    let proxy = Proxy::new(server.address, fault);
    let url = proxy.url(name);
    let commands = [&["ls", "-R", &url][..], &["find", &url], &["cat", &url, "numbers", "d/hello", "d/e/noise"]];
    let ran = commands.map(|words| {
        let ran = run(&scratch, words.iter());
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        // They name the port.
        (ran.code, ran.out, ran.err.replace(&proxy.address.to_string(), "HOST"))
    });
    (ran.into(), proxy.requests().len())
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn each_fault_at_each_request_is_got_over() {
    /// Most of the time is spent with waiting.
    const AT_ONCE: usize = 4;
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d/e served; seq 1 30000 > tree/numbers; echo hello > tree/d/hello
         head -c 600000 /dev/urandom > tree/d/e/noise
         tar -C tree -c . | zstd -q -o served/a.tar.zst; (cd tree; zip -qry ../served/a.zip .)
         touch -d '5 minutes ago' served/*",
    );
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let content: Vec<u8> = ["numbers", "d/hello", "d/e/noise"]
        .iter()
        .flat_map(|name| fs::read(tree(&scratch).join(name)).unwrap())
        .collect();
    for name in &["a.tar.zst", "a.zip"][..rounds(1, 2) as usize] {
        let (expected, requests) = read_all(&server, name, |_| None);
        assert!(expected.iter().all(|(code, ..)| *code == 0), "{expected:?}");
        assert!(expected[2].1 == content && requests > 5);
        let all: Vec<_> = PASSING.iter().flat_map(|&fault| (0..=requests).map(move |number| (fault, number))).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&(fault, number)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (ran, _) = read_all(&server, name, move |at| (at == number).then_some(fault));
                for ((code, out, err), (_, expected, _)) in ran.iter().zip(&expected) {
                    assert!(*code == 0 && out == expected, "{name}, {fault:?} at {number}: {code}: {err}");
                }
            }
        };
        std::thread::scope(|scope| {
            (0..AT_ONCE).for_each(|_| {
                scope.spawn(work);
            });
        });
    }
}

/// > A fault that stays is an error that says what it was, in bounded time.
#[test]
fn a_fault_that_stays_is_an_error() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    for (fault, said) in [(Fault::Closed, "time"), (Fault::TooMany, "429"), (Fault::Garbage, "no HTTP")] {
        let start = Instant::now();
        let (ran, _) = read_all(&server, "a.tar.zst", move |_| Some(fault));
        assert!(start.elapsed() < Duration::from_secs(150));
        for (code, out, err) in ran {
            let lines = err.lines().count();
            assert!(code == 3 && out.is_empty() && lines == 1, "{fault:?}: {err}");
            assert!(err.contains(said) || fault == Fault::Closed, "{fault:?}: {err}");
        }
    }
}

/// > A server that does not answer any more costs its readers an error, in the time that any request to a mount has,
/// > and hangs nobody.
#[test]
fn a_dead_server_hangs_nobody() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let is_dead = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_dead);
    let proxy = Proxy::new(server.address, move |_| seen.load(Ordering::Relaxed).then_some(Fault::Silent));
    // Far from each other, so that the header of none is there with that of another.
    scratch.shell(
        "for i in $(seq 8); do head -c 9000000 /dev/urandom > tree/long$i; done; mkdir tree/other; touch tree/other/x
         tar -C tree -cf served/b.tar .; touch -d '5 minutes ago' served/b.tar",
    );
    let url = proxy.url("b.tar");
    run(&scratch, ["index", "--cache-size=2M", &url]).ok();
    let mount = Mounted::new(&scratch, &url, &["--cache-size=2M"]);
    is_dead.store(true, Ordering::Relaxed);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=8)
            .map(|number| {
                let path = mount.path(format!("long{number}"));
                scope.spawn(move || {
                    let mut buffer = [0; 4096];
                    let file = fs::File::open(path)?;
                    std::os::unix::fs::FileExt::read_at(&file, &mut buffer, 4 << 20)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        // Meanwhile, what needs no server is answered.
        assert!(fs::read_dir(mount.path("other")).unwrap().count() == 1 && start.elapsed() < Duration::from_secs(30));
        for reader in readers {
            let error = reader.join().unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(5), "{error}");
        }
    });
    assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
    is_dead.store(false, Ordering::Relaxed);
    assert!(fs::read(mount.path("long3")).unwrap() == fs::read(tree(&scratch).join("long3")).unwrap());
    mount.unmount();
}

/// > An object that is replaced while it is read gives the old bytes or an error that says so, never a mixture.
#[test]
fn an_object_replaced_between_any_two_requests_is_noticed() {
    let scratch = Scratch::new();
    archives(&scratch);
    // Of the same length, and other bytes everywhere.
    scratch
        .shell("head -c 3000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf other.tar .; cp served/a.tar first.tar");
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let served = scratch.path("served/a.tar");
    let of = |name: &str| fs::read(scratch.path(name)).unwrap();
    let (first, second) = (of("first.tar"), of("other.tar"));
    assert!(first.len() == second.len());
    let mut noticed = 0;
    for number in 0..rounds(8, 40) as usize {
        let fresh = Scratch::new();
        fs::copy(scratch.path("first.tar"), &served).unwrap();
        let (from, to) = (scratch.path("other.tar"), served.clone());
        let count = Arc::new(AtomicUsize::new(0));
        let proxy = Proxy::with(
            server.address,
            |_| None,
            move |at| {
                if at == number {
                    let new = to.with_extension("new");
                    fs::copy(&from, &new).unwrap();
                    // nginx tells versions apart by length and second.
                    let later = SystemTime::now() + Duration::from_secs(3600);
                    fs::File::options().write(true).open(&new).unwrap().set_modified(later).unwrap();
                    fs::rename(&new, &to).unwrap();
                }
                count.fetch_add(1, Ordering::Relaxed);
            },
        );
        let ran = run(&fresh, ["cat", "--index-file=:memory:", &proxy.url("a.tar"), "d/e/noise"]);
        let is_one_of_them =
            |bytes: &[u8]| [&first, &second].iter().any(|tar| tar.windows(bytes.len()).any(|part| part == bytes));
        if ran.code == 0 {
            assert!(ran.out.len() == 3_000_000 && is_one_of_them(&ran.out), "{number}");
        } else {
            assert!(ran.err.contains("has changed"), "{number}: {}", ran.err);
            noticed += 1;
        }
    }
    assert!(noticed > 0);
}

/// > A certificate that nobody who is trusted has signed is refused.
#[test]
fn certificates_are_checked() {
    if !have("openssl") {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", true) else { return };
    let cat = |authority: Option<&str>, host: &str| {
        let mut command = crate::support::tarnfs(&scratch);
        if let Some(authority) = authority {
            command.env("SSL_CERT_FILE", scratch.path(authority));
        }
        let url = format!("https://{host}:{}/a.tar.zst", server.address.port());
        crate::support::Ran::from(command.args(["cat", &url, "d/hello"]).output().unwrap())
    };
    assert_eq!(cat(Some("ca.crt"), "localhost").ok().text(), "hello\n");
    for (authority, host) in [(None, "localhost"), (Some("ca.crt"), "127.0.0.1")] {
        let ran = cat(authority, host);
        assert!(ran.code == 3 && ran.out.is_empty() && ran.err.contains("certificate"), "{}", ran.err);
    }
    if can_mount() {
        let mut command = crate::support::tarnfs(&scratch);
        let at = scratch.path("m");
        let url = format!("https://localhost:{}/a.tar.zst", server.address.port());
        command.env("SSL_CERT_FILE", scratch.path("ca.crt")).arg(url).arg(&at);
        crate::support::Ran::from(command.output().unwrap()).ok();
        assert_eq!(contents(&at), contents(&tree(&scratch)));
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    }
}
