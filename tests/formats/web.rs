//! WARC and asar.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have};
use crate::trees::{small, told};

/// A record as crawlers write it.
fn record(kind: &str, address: &str, date: &str, content: &str) -> String {
    let http = if kind == "response" { "Content-Type: application/http; msgtype=response\r\n" } else { "" };
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {address}\r\nWARC-Date: {date}\r\n\
         WARC-Record-ID: <urn:uuid:{}>\r\n{http}Content-Length: {}\r\n\r\n{content}\r\n\r\n",
        address.len(),
        content.len()
    )
}

/// An answer of HTTP.
fn answer(content: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{content}", content.len())
}

#[test]
fn records_are_shown_by_their_addresses() {
    if !can_mount() || !have("gzip") {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    let records = [
        record("warcinfo", "", "2020-01-01T00:00:00Z", "software: x\r\n"),
        record("request", "https://example.org/a/page", "2020-01-01T00:00:01Z", "GET /a/page HTTP/1.1\r\n\r\n"),
        record("response", "https://example.org/a/page", "2020-01-01T00:00:01Z", &answer("old")),
        record("response", "https://example.org/", "2020-01-01T00:00:02Z", &answer("<html></html>")),
        record("response", "https://example.org/q?x=1/2", "2020-01-01T00:00:03Z", &answer("asked")),
        record("resource", "dns:example.org", "2020-01-01T00:00:04Z", "192.0.2.1\n"),
        record("response", "https://example.org/a/page", "2021-02-03T04:05:06Z", &answer("new")),
    ];
    fs::write(scratch.path("x.warc"), records.concat()).unwrap();
    for (number, record) in records.iter().enumerate() {
        fs::write(scratch.path(format!("{number}.record")), record).unwrap();
    }
    // Each compressed by itself, as crawlers do it.
    scratch.shell("for n in 0 1 2 3 4 5 6; do gzip -c $n.record; done > x.warc.gz");
    for name in ["x.warc", "x.warc.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        let read = |path: &str| fs::read_to_string(mounted.path(path)).unwrap();
        assert_eq!(read("https/example.org/a/page"), "new", "{name}");
        assert_eq!(fs::metadata(mounted.path("https/example.org/a/page")).unwrap().mtime(), 1_612_325_106);
        assert_eq!(read("https/example.org/index.html"), "<html></html>");
        assert_eq!(read("https/example.org/q?x=1_2"), "asked");
        assert_eq!(read("dns/example.org/index.html"), "192.0.2.1\n");
        assert_eq!(read(".records/request/https/example.org/a/page"), "GET /a/page HTTP/1.1\r\n\r\n");
        assert_eq!(fs::read_dir(mounted.path(".records/warcinfo")).unwrap().count(), 1);
        mounted.unmount();
    }
    // What is damaged between two records, and what is cut.
    let broken = [&records[3], "no record at all\r\n", &records[4], &records[6][..records[6].len() - 9]].concat();
    fs::write(scratch.path("broken.warc"), broken).unwrap();
    let listed = told(&scratch, "find", "broken.warc", &[]);
    assert!(listed.out.windows(4).any(|window| window == b"x=1_"), "{}", listed.text());
    assert!(listed.err.contains("no valid record") && listed.err.contains("the archive ends"), "{}", listed.err);
}

#[test]
fn what_wget_has_written_is_read() {
    if !have("wget") || !can_mount() || !have("python3") {
        return println!("left out: no wget or no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir site; seq 2000 > site/numbers; echo hello > site/hello
        cat > serve.py <<'END'
import functools, http.server
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="site")
server = http.server.HTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, file=open("port", "w"), flush=True)
for _ in range(2): server.handle_request()
END
        python3 serve.py > log 2>&1 & for _ in $(seq 100); do [ -s port ] && break; sleep 0.1; done
        port=$(cat port); wget -q --warc-file=made -O /dev/null http://127.0.0.1:$port/numbers http://127.0.0.1:$port/hello; wait"#,
    );
    let port = fs::read_to_string(scratch.path("port")).unwrap();
    let mounted = Mounted::new(&scratch, scratch.path("made.warc.gz"), &[]);
    let folder = mounted.path(Path::new("http").join(format!("127.0.0.1:{}", port.trim())));
    for name in ["numbers", "hello"] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), fs::read(scratch.path("site").join(name)).unwrap());
    }
    mounted.unmount();
}

#[test]
fn archives_of_electron_are_read() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    fs::copy(small("files.asar"), scratch.path("files.asar")).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("files.asar"), &[]);
    assert_eq!(fs::read(mounted.path("a.txt")).unwrap(), b"hello");
    assert_eq!(fs::read(mounted.path("d/b")).unwrap(), b"abc");
    assert_eq!(fs::read(mounted.path("d/l")).unwrap(), b"hello");
    assert_eq!(fs::metadata(mounted.path("d/b")).unwrap().permissions().mode() & 0o777, 0o755);
    // It lies beside the archive.
    assert_eq!(fs::metadata(mounted.path("u")).unwrap().len(), 9);
    assert!(fs::read(mounted.path("u")).is_err());
    mounted.unmount();
    let bytes = fs::read(small("files.asar")).unwrap();
    for length in [15, 100, bytes.len() - 1] {
        fs::write(scratch.path("cut.asar"), &bytes[..length]).unwrap();
        assert_ne!(told(&scratch, "check", "cut.asar", &[]).code, 0, "{length}");
    }
}
