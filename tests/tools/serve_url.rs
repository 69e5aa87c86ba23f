//! `tarnfs serve` of a folder behind a URL: what a client has already is of one version.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::served::Served;
use crate::support::Scratch;

/// Bytes of the file in both versions.
const LENGTH: usize = 14_000;

fn content(is_new: bool) -> Vec<u8> {
    let line: &[u8] = if is_new { b"NEW CONTENT 2\n" } else { b"old content 1\n" };
    line.repeat(LENGTH / line.len())
}

/// A server whose page has times to the minute, in which the file is replaced by another one of the same length.
fn server(is_new: &Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let is_new = Arc::clone(is_new);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let is_new = is_new.load(Ordering::SeqCst);
            std::thread::spawn(move || answer(socket, is_new));
        }
    });
    url
}

fn answer(mut socket: TcpStream, is_new: bool) -> Option<()> {
    let head: Vec<String> = BufReader::new(socket.try_clone().ok()?)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_ascii_lowercase())
        .collect();
    let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
    let path = head.first()?.split(' ').nth(1)?.to_owned();
    let version = u8::from(is_new);
    let (kind, about, mut body) = match path.as_str() {
        "/" => {
            let mut page = "<html><body><pre><a href=\"../\">../</a>\n".to_owned();
            let mut list = |name: &str, length: usize| {
                let _ = writeln!(page, "<a href=\"{name}\">{name}</a>      24-May-2013 00:00     {length}");
            };
            list("f.txt", LENGTH);
            (0..6).for_each(|number| list(&format!("g{number}"), 10));
            ("text/html", String::new(), page.into_bytes())
        }
        "/f.txt" => {
            let second = 10 + 20 * version;
            let about = format!("ETag: \"v{version}\"\r\nLast-Modified: Fri, 24 May 2013 00:00:{second} GMT\r\n");
            ("text/plain", about, content(is_new))
        }
        path if path.starts_with("/g") => ("text/plain", format!("ETag: \"{}\"\r\n", &path[1..]), vec![b'x'; 10]),
        _ => return write!(socket, "HTTP/1.1 404 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok(),
    };
    let tag = format!("\"v{version}\"");
    let (mut status, mut range) = ("200 OK", String::new());
    if path == "/f.txt" && header("if-match: ").is_some_and(|has| has != tag) {
        (status, body) = ("412 Precondition Failed", Vec::new());
    } else if let Some((first, last)) = header("range: bytes=").and_then(|range| range.split_once('-')) {
        let (first, length): (usize, _) = (first.parse().ok()?, body.len());
        body = body.get(first..length.min(last.parse::<usize>().ok()? + 1))?.to_vec();
        status = "206 Partial Content";
        range = format!("Content-Range: bytes {first}-{}/{length}\r\n", first + body.len() - 1);
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{about}{range}\r\n"
    );
    socket.write_all(&[head.into_bytes(), body].concat()).ok()
}

/// > The ETag of a file in a folder behind a URL is that of the bytes that are sent: no client joins two versions.
#[test]
fn no_two_versions_of_a_file_behind_a_url_are_joined() {
    let scratch = Scratch::new();
    let is_new = Arc::new(AtomicBool::new(false));
    let url = server(&is_new);
    let served = Served::new(&scratch, ["--cache-size=0", &url]);
    let (old, new) = (content(false), content(true));
    let has = |name: &str, value: &str| served.ask("GET", "/f.txt", &[(name, value)]);
    let ranged = |if_range: &str| served.ask("GET", "/f.txt", &[("Range", "bytes=7000-"), ("If-Range", if_range)]);
    let first = served.ask("GET", "/f.txt", &[("Range", "bytes=0-6999")]).whole(206);
    let (etag, modified) = (first.header("etag").to_owned(), first.header("last-modified").to_owned());
    assert!(first.body == old[..7000] && etag.starts_with('"'), "{etag}");
    assert_eq!(modified, "Fri, 24 May 2013 00:00:00 GMT");
    assert_eq!(has("If-None-Match", &etag).whole(304).header("etag"), etag);
    assert!(ranged(&etag).whole(206).body == old[7000..]);
    // A time to the minute is not enough.
    assert!(ranged(&modified).whole(200).body == old);
    is_new.store(true, Ordering::SeqCst);
    // What was open is closed when others are.
    for number in 0..6 {
        assert_eq!(served.get(&format!("/g{number}")).whole(200).body, b"xxxxxxxxxx");
    }
    let whole = has("If-None-Match", &etag).whole(200);
    assert!(whole.body == new);
    assert_ne!(whole.header("etag"), etag);
    assert!(ranged(&etag).whole(200).body == new);
    assert!(has("If-Modified-Since", &modified).whole(200).body == new);
    has("If-Match", &etag).whole(412);
    assert!(ranged(whole.header("etag")).whole(206).body == new[7000..]);
    let listed = served.ask("PROPFIND", "/", &[("Depth", "1")]).whole(207).text();
    assert!(listed.contains("getlastmodified") && !listed.contains("getetag"), "{listed}");
    assert_eq!(served.end(), Some(0));
    // Nor is it the same to the next server.
    is_new.store(false, Ordering::SeqCst);
    let again = Served::new(&scratch, ["--cache-size=0", &url]);
    assert_eq!(again.get("/f.txt").whole(200).header("etag"), etag);
    is_new.store(true, Ordering::SeqCst);
    assert_eq!(again.end(), Some(0));
    let again = Served::new(&scratch, ["--cache-size=0", &url]);
    assert_eq!(again.get("/f.txt").whole(200).header("etag"), whole.header("etag"));
    assert_eq!(again.end(), Some(0));
}
