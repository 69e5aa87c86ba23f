//! The other end of a session, for tests: each says itself what is answered.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session::Session;

/// Kinds of questions and of answers, as the draft numbers them.
pub(super) const CLOSE: u8 = 4;
pub(super) const READ: u8 = 5;
pub(super) const OF_HANDLE: u8 = 8;
pub(super) const STATUS: u8 = 101;
pub(super) const HANDLE: u8 = 102;
pub(super) const DATA: u8 = 103;
pub(super) const NAMES: u8 = 104;
pub(super) const ATTRIBUTES: u8 = 105;

/// See the module.
pub(super) struct Peer {
    socket: UnixStream,
    /// Kept open.
    _errors: UnixStream,
    pub(super) alive: UnixStream,
}

/// What was asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) id: u32,
    pub(super) kind: u8,
    /// Handle or path.
    pub(super) of: Vec<u8>,
    /// Of a read.
    pub(super) offset: u64,
    pub(super) length: u32,
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A text as it stands in a message.
pub(super) fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

/// A regular file of this length, changed at this second.
pub(super) fn attributes(size: u64, modified: u32) -> Vec<u8> {
    let (flags, mode) = (13_u32, 0o100_644_u32);
    [
        &flags.to_be_bytes()[..],
        &size.to_be_bytes(),
        &mode.to_be_bytes(),
        &modified.to_be_bytes(),
        &modified.to_be_bytes(),
    ]
    .concat()
}

impl Peer {
    /// A session that has begun, and its other end.
    pub(super) fn new() -> (Arc<Session>, Self) {
        let [(ours, socket), (our_errors, errors), (our_alive, alive)] = [(); 3].map(|()| UnixStream::pair().unwrap());
        let mut peer = Self { socket, _errors: errors, alive };
        peer.message(&[2, 0, 0, 0, 3]);
        let session = Session::begin(ours, our_errors, our_alive, soon()).unwrap();
        assert_eq!(peer.payload().unwrap(), [1, 0, 0, 0, 3]);
        (Arc::new(session), peer)
    }

    /// Over what was handed over for a program.
    pub(super) fn of_program([socket, errors, alive]: [UnixStream; 3]) -> Self {
        let mut peer = Self { socket, _errors: errors, alive };
        peer.payload().unwrap();
        peer.message(&[2, 0, 0, 0, 3]);
        peer
    }

    fn message(&mut self, payload: &[u8]) {
        // Who has gone does not want it.
        let _ = self.socket.write_all(&text(payload));
    }

    fn payload(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).ok()?;
        let mut payload = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    /// The next question; `None` at the end.
    pub(super) fn asked(&mut self) -> Option<Asked> {
        let payload = self.payload()?;
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let end = 9 + number(5) as usize;
        let (offset, length) = match payload[0] {
            READ => (u64::from_be_bytes(payload[end..end + 8].try_into().unwrap()), number(end + 8)),
            _ => (0, 0),
        };
        Some(Asked { id: number(1), kind: payload[0], of: payload[9..end].to_vec(), offset, length })
    }

    pub(super) fn answer(&mut self, asked: &Asked, kind: u8, what: &[u8]) {
        self.message(&[&[kind], &asked.id.to_be_bytes()[..], what].concat());
    }

    /// With this code.
    pub(super) fn status(&mut self, asked: &Asked, code: u32) {
        self.answer(asked, STATUS, &code.to_be_bytes());
    }

    /// Nothing more is said.
    pub(super) fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
