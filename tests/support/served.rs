//! `tarnfs serve` as a process, and a client that says byte for byte what it sends and got.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::support::{Scratch, in_scratch, tarnfs, unique};

/// Only what hangs takes this long, also on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    scheme: String,
    pub(crate) process: Child,
    log: PathBuf,
    _out: BufReader<ChildStdout>,
}

impl Served {
    /// Serves on any free port, or where `options` say. Returns when it listens.
    pub(crate) fn new<A: AsRef<OsStr>>(scratch: &Scratch, options: impl IntoIterator<Item = A>) -> Self {
        Self::by(tarnfs(scratch), scratch, options)
    }

    /// The same, by a command that runs the program.
    pub(crate) fn by<A: AsRef<OsStr>>(
        mut command: Command,
        scratch: &Scratch,
        options: impl IntoIterator<Item = A>,
    ) -> Self {
        let log = scratch.path(format!("log-{}", unique()));
        in_scratch(&mut command, scratch);
        let mut process = command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .current_dir(scratch.path(""))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut url = String::new();
        out.read_line(&mut url).unwrap();
        let said = fs::read_to_string(&log).unwrap();
        let place = url.strip_suffix("/\n").and_then(|url| url.split_once("://"));
        let (scheme, address) = place.unwrap_or_else(|| panic!("{url}: {said}"));
        Self { address: address.parse().unwrap(), scheme: scheme.to_owned(), process, log, _out: out }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection(BufReader::new(stream))
    }

    /// One request on a connection of its own. The path is sent as it is.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask_with(method, path, headers, b"")
    }

    pub(crate) fn ask_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(request(method, path, headers, body).as_slice());
        connection.answer(method == "HEAD")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    pub(crate) fn said(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The most memory that it has had resident, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Ctrl-C; returns the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal(Signal::INT);
        let code = self.process.wait().unwrap().code();
        self.said();
        code
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += "Host: localhost\r\n";
    }
    for (name, value) in headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    if !body.is_empty() {
        text.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

pub(crate) struct Connection(BufReader<TcpStream>);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The connection ended before the body.
    pub(crate) is_cut: bool,
    /// Bytes of the longest piece, where it was sent in pieces.
    pub(crate) longest: usize,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn whole(self, status: u16) -> Self {
        assert_eq!((self.status, self.is_cut), (status, false), "{}", String::from_utf8_lossy(&self.body));
        self
    }
}

impl Connection {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// False if the server does not take all of it, or has closed the connection by now.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok() && self.0.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// True once the server has closed it, without sending more.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(read) => read == 0,
            // That it is silent says nothing.
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    /// True once the server has closed it, whatever it has sent before.
    pub(crate) fn has_end(&mut self) -> bool {
        match self.0.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    /// Reads so many bytes; fails if they do not come.
    #[track_caller]
    pub(crate) fn skip(&mut self, count: u64) {
        assert_eq!(io::copy(&mut self.0.by_ref().take(count), &mut io::sink()).unwrap(), count);
    }

    /// True once something has come.
    pub(crate) fn has_more(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        // A reset is an end, too.
        let _ = self.0.read_until(b'\n', &mut line);
        String::from_utf8(line).unwrap().trim_end_matches(['\r', '\n']).to_owned()
    }

    pub(crate) fn answer(&mut self, is_head: bool) -> Answer {
        let status = self.line();
        let code = status.strip_prefix("HTTP/1.1 ").or(status.strip_prefix("HTTP/1.0 "));
        let status = code.unwrap_or_else(|| panic!("no answer: {status:?}")).get(..3).unwrap().parse().unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut answer = Answer { status, headers, body: Vec::new(), is_cut: false, longest: 0 };
        if is_head || status == 304 {
            return answer;
        }
        if answer.header("transfer-encoding") == "chunked" {
            loop {
                let Ok(length) = usize::from_str_radix(&self.line(), 16) else {
                    answer.is_cut = true;
                    return answer;
                };
                answer.longest = answer.longest.max(length);
                answer.is_cut |= !self.read(length, &mut answer.body);
                self.line();
                if length == 0 || answer.is_cut {
                    return answer;
                }
            }
        }
        let length = answer.header("content-length").parse().unwrap();
        answer.is_cut = !self.read(length, &mut answer.body);
        answer
    }

    fn read(&mut self, length: usize, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        // A reset ends it as well.
        let _ = (&mut self.0).take(length as u64).read_to_end(into);
        into.len() - before == length
    }
}
