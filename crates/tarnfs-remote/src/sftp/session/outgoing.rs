//! What is on its way to a server. Nobody waits for one that does not read.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long one message may take once it is its turn: they are short, and who does not even read them answers none.
const WRITING: Duration = Duration::from_secs(10);

/// Bytes that wait at most: questions for all links of some folders at once.
const MOST: usize = 16 << 20;

/// Messages for a socket that does not block. What does not go at once is written by the thread that polls the socket.
pub(super) struct Outgoing {
    socket: UnixStream,
    queue: Mutex<Queue>,
    /// A byte comes out of the second one when something begins to wait.
    bell: (UnixStream, UnixStream),
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// So many bytes of the first one are written, which is the first one since then.
    written: usize,
    since: Option<Instant>,
    /// Of all messages.
    bytes: usize,
    /// There is too much.
    is_full: bool,
}

impl Queue {
    /// Writes what can be written now. What is wrong with the socket is heard of by whoever reads.
    fn write(&mut self, mut socket: &UnixStream) {
        while let Some(message) = self.messages.front() {
            match socket.write(message.get(self.written..).unwrap_or_default()) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
            if self.written >= message.len() {
                self.bytes -= message.len();
                self.written = 0;
                self.messages.pop_front();
                self.since = (!self.messages.is_empty()).then(Instant::now);
            }
        }
    }
}

impl Outgoing {
    /// For this socket.
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        let bell = UnixStream::pair()?;
        bell.0.set_nonblocking(true)?;
        bell.1.set_nonblocking(true)?;
        Ok(Self { socket, queue: Mutex::default(), bell })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message behind all others, now or later. It never waits.
    pub(super) fn send(&self, message: Vec<u8>) {
        let mut queue = self.lock();
        let is_first = queue.messages.is_empty();
        queue.is_full |= queue.bytes + message.len() > MOST;
        if !queue.is_full {
            queue.bytes += message.len();
            queue.messages.push_back(message);
        }
        if is_first {
            queue.since = Some(Instant::now());
            queue.write(&self.socket);
        }
        if (is_first && !queue.messages.is_empty()) || queue.is_full {
            // If it is rung already, that is heard, too.
            let _ = (&self.bell.0).write(&[0]);
        }
    }

    /// Writes what can be written now.
    pub(super) fn write(&self) {
        self.lock().write(&self.socket);
    }

    /// What to poll for reading while nothing waits.
    pub(super) fn bell(&self) -> &UnixStream {
        &self.bell.1
    }

    /// Ends the ringing.
    pub(super) fn hear(&self) {
        let _ = (&self.bell.1).read(&mut [0; 64]);
    }

    /// The time that the first message still has; `None` if there is none. An error if it has none, or too much waits.
    pub(super) fn left(&self) -> Result<Option<Duration>, ()> {
        let queue = self.lock();
        let left = queue.since.map(|since| WRITING.saturating_sub(since.elapsed()));
        if queue.is_full || left.is_some_and(|left| left.is_zero()) { Err(()) } else { Ok(left) }
    }
}
