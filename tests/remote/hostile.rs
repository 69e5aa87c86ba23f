//! Servers that say what no real one says: each test writes its own answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A request: its path, and the range that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) start: u64,
    /// Behind the last byte.
    pub(crate) end: u64,
    /// From 0 on.
    pub(crate) number: u64,
}

impl Request {
    /// True if it is for an index beside the archive.
    pub(crate) fn is_of_index(&self) -> bool {
        self.path.contains("sqlite")
    }
}

/// Writes the answer to a request. The connection is closed then.
type Answers = dyn Fn(&Request, &mut Answer) -> std::io::Result<()> + Send + Sync;

/// Where an answer goes. It counts its bytes.
pub(crate) struct Answer {
    client: TcpStream,
    sent: Arc<AtomicU64>,
}

impl Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.client.write(bytes)?;
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.client.flush()
    }
}

impl Answer {
    /// There is none.
    pub(crate) fn missing(&mut self) -> std::io::Result<()> {
        self.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }

    /// The head of an answer with a range of an object that has `length` bytes.
    pub(crate) fn head(&mut self, request: &Request, length: u64, tag: &str) -> std::io::Result<u64> {
        let end = request.end.min(length);
        let (start, last, count) = (request.start, end.saturating_sub(1), end.saturating_sub(request.start));
        write!(
            self,
            "HTTP/1.1 206 Partial Content\r\nETag: \"{tag}\"\r\nContent-Range: bytes {start}-{last}/{length}\r\n\
             Content-Length: {count}\r\nConnection: close\r\n\r\n"
        )?;
        Ok(count)
    }

    /// A range of `bytes`.
    pub(crate) fn part(&mut self, request: &Request, bytes: &[u8], tag: &str) -> std::io::Result<()> {
        let count = self.head(request, bytes.len() as u64, tag)?;
        self.write_all(&bytes[request.start as usize..][..count as usize])
    }

    /// So many zeros, or as many as are taken.
    pub(crate) fn zeros(&mut self, mut count: u64) -> std::io::Result<()> {
        let zeros = vec![0; 1 << 16];
        while count > 0 {
            let part = count.min(zeros.len() as u64);
            self.write_all(&zeros[..part as usize])?;
            count -= part;
        }
        Ok(())
    }
}

pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    /// Bytes of all answers.
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Hostile {
    pub(crate) fn new(answers: impl Fn(&Request, &mut Answer) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, requests) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let (all, over) = (Arc::clone(&sent), Arc::clone(&is_over));
        let answers: Arc<Answers> = Arc::new(answers);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (client, answers) = (client.unwrap(), Arc::clone(&answers));
                let (all, count) = (Arc::clone(&all), Arc::clone(&requests));
                std::thread::spawn(move || serve(client, &*answers, all, &count));
            }
        });
        Self { address, sent, is_over }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut client: TcpStream, answers: &Answers, sent: Arc<AtomicU64>, count: &AtomicU64) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let (_, range) = head.split_once("range: bytes=")?;
    let (first, last) = range.lines().next()?.split_once('-')?;
    let request = Request {
        path: head.split(' ').nth(1)?.to_owned(),
        start: first.parse().ok()?,
        end: last.trim().parse::<u64>().ok()? + 1,
        number: count.fetch_add(1, Ordering::Relaxed),
    };
    answers(&request, &mut Answer { client, sent }).ok()
}
