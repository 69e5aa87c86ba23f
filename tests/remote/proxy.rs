//! A proxy before a server, which counts requests and does harm to one of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What happens to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is closed before anything is said.
    Closed,
    /// It is cut in the middle of the body.
    Cut,
    /// The body is shorter than was asked for, and the headers say so.
    Short,
    /// The body is shorter than its range.
    Lies,
    /// Other bytes than those that were asked for, and the headers say so.
    WrongRange,
    /// All of it instead of a range.
    Whole,
    /// 503, and when to come again.
    Busy,
    /// 429 without that.
    TooMany,
    /// What is no HTTP.
    Garbage,
    /// Neither version nor time.
    Nameless,
    /// Nothing, for ever.
    Silent,
}

/// All that a read gets over. [`Fault::Silent`] takes long.
pub(crate) const PASSING: [Fault; 10] = [
    Fault::Closed,
    Fault::Cut,
    Fault::Short,
    Fault::Lies,
    Fault::WrongRange,
    Fault::Whole,
    Fault::Busy,
    Fault::TooMany,
    Fault::Garbage,
    Fault::Nameless,
];

/// Called before each request, with its number.
type Before = Box<dyn Fn(usize) + Send + Sync>;

struct Shared {
    server: SocketAddr,
    /// Heads of requests.
    requests: Mutex<Vec<String>>,
    fault: Box<dyn Fn(usize) -> Option<Fault> + Send + Sync>,
    before: Before,
    is_over: AtomicBool,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Before `server`. `fault` says what becomes of the request of each number, from 0 on.
    pub(crate) fn new(server: SocketAddr, fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self::with(server, fault, |_| {})
    }

    pub(crate) fn with(
        server: SocketAddr,
        fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static,
        before: impl Fn(usize) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, fault, before) = (Mutex::default(), Box::new(fault), Box::new(before));
        let shared = Arc::new(Shared { server, requests, fault, before, is_over: AtomicBool::new(false) });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if all.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (all, client) = (Arc::clone(&all), client.unwrap());
                std::thread::spawn(move || all.serve(client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The ranges that were asked for.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges_of("")
    }

    /// Those of requests that have this in their first line.
    pub(crate) fn ranges_of(&self, part: &str) -> Vec<(u64, u64)> {
        let of = |head: &String| {
            let (_, rest) =
                head.to_ascii_lowercase().split_once("range: bytes=").map(|(a, b)| (a.to_owned(), b.to_owned()))?;
            let (first, last) = rest.lines().next()?.split_once('-')?;
            Some((first.parse().ok()?, last.trim().parse::<u64>().ok()? + 1))
        };
        let is_for = |head: &&String| head.lines().next().is_some_and(|line| line.contains(part));
        self.requests().iter().filter(is_for).filter_map(of).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// The value of a header.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn without(head: &str, names: &[&str]) -> String {
    let is_kept = |line: &&str| {
        !names.iter().any(|name| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name)))
    };
    head.lines().filter(is_kept).flat_map(|line| [line, "\r\n"]).collect()
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> Option<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(head.clone());
            requests.len() - 1
        };
        (self.before)(number);
        let fault = (self.fault)(number);
        let mut sent = without(head.trim_end(), &["Connection"]);
        if fault == Some(Fault::Whole) {
            sent = without(sent.trim_end(), &["Range", "If-None-Match", "If-Modified-Since"]);
        }
        let mut server = TcpStream::connect(self.server).ok()?;
        server.write_all(format!("{sent}Connection: close\r\n\r\n").as_bytes()).ok()?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        let (said, body) = (String::from_utf8_lossy(&answer[..end]).into_owned(), &answer[end + 4..]);
        let range = header(&said, "Content-Range").and_then(|range| {
            let (range, length) = range.strip_prefix("bytes ")?.split_once('/')?;
            let (first, last) = range.split_once('-')?;
            Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, length.parse::<u64>().ok()?))
        });
        let with_range = |first: u64, last: u64, length: u64, body: &[u8]| {
            let rest = without(&said, &["Content-Range", "Content-Length"]);
            let head =
                format!("{rest}Content-Range: bytes {first}-{last}/{length}\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        };
        let status = |line: &str, more: &str| {
            format!("HTTP/1.1 {line}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
        };
        let bytes = match (fault, range) {
            (Some(Fault::Closed), _) => return None,
            (Some(Fault::Cut), _) => answer[..end + 4 + body.len() / 2].to_vec(),
            (Some(Fault::Short), Some((first, last, length))) if last > first => {
                let half = first + (last - first) / 2;
                with_range(first, half, length, &body[..(half - first + 1) as usize])
            }
            (Some(Fault::Lies), Some((first, last, length))) => {
                with_range(first, last, length, &body[..body.len() / 2])
            }
            (Some(Fault::WrongRange), Some((first, last, length))) => with_range(first + 1, last + 1, length, body),
            (Some(Fault::Busy), _) => status("503 Service Unavailable", "Retry-After: 1\r\n"),
            (Some(Fault::TooMany), _) => status("429 Too Many Requests", ""),
            (Some(Fault::Garbage), _) => b"what?\r\n\r\n".to_vec(),
            (Some(Fault::Nameless), _) => {
                let rest = without(&said, &["ETag", "Last-Modified"]);
                [rest.as_bytes(), b"\r\n", body].concat()
            }
            (Some(Fault::Silent), _) => {
                // Until the client goes.
                let _ = client.read(&mut [0]);
                return None;
            }
            _ => answer,
        };
        client.write_all(&bytes).ok()?;
        client.shutdown(Shutdown::Write).ok()
    }
}
