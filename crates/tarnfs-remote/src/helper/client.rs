//! Who asks the process that has the network.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tarnfs_source::{Cancel, Source};

use super::wire;

/// Connections for one object: so many threads can wait for it at once.
const CONNECTIONS: usize = 8;

/// How long one answer may take: longer than the other process tries.
const PATIENCE: Duration = Duration::from_secs(52);

/// Bytes that are kept together, and how many of those: 4 MiB. What is read in small steps is asked for once.
const PIECE: u64 = 64 << 10;
const MOST_PIECES: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Client {
    control: UnixStream,
}

impl Client {
    /// Over the other end of what [`serve`](super::serve) has got.
    pub fn new(control: UnixStream) -> Self {
        Self { control }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        wire::hand_over(&self.control, &theirs)?;
        Ok(ours)
    }

    /// Opens the object whose URL is shown so, and all that is needed to read it later. `Interrupted` once `cancel` is
    /// asked for, also of what is read of it.
    pub fn open(&self, shown: &str, cancel: &Cancel) -> io::Result<Distant> {
        let mut first = self.connect()?;
        // All of it may have to be read.
        let answer = ask(&mut first, wire::OPEN, shown.as_bytes(), cancel, None)?;
        let (numbers, version) = answer.split_at_checked(32).ok_or_else(gone)?;
        let [number, length, modified, is_lasting] = wire::numbers(numbers).ok_or_else(gone)?;
        let version = String::from_utf8_lossy(version).into_owned();
        let beside = Mutex::new(first);
        let mut idle = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let mut socket = self.connect()?;
            ask(&mut socket, wire::ATTACH, &wire::of_numbers(&[number]), cancel, Some(PATIENCE))?;
            idle.push(socket);
        }
        Ok(Distant {
            name: shown.to_owned(),
            length,
            modified: modified as i64,
            version,
            is_lasting: is_lasting != 0,
            cancel: cancel.clone(),
            beside,
            idle: Mutex::new(Idle { sockets: idle, left: CONNECTIONS }),
            freed: Condvar::new(),
            pieces: Mutex::default(),
        })
    }

    /// A local copy of the file whose URL is shown so; `None` if there is none.
    pub fn copy(&self, shown: &str, cancel: &Cancel) -> io::Result<Option<PathBuf>> {
        Ok(path(ask(&mut self.connect()?, wire::COPY, shown.as_bytes(), cancel, None)?))
    }
}

fn path(answer: Vec<u8>) -> Option<PathBuf> {
    (!answer.is_empty()).then(|| OsString::from_vec(answer).into())
}

fn gone() -> io::Error {
    let what = "the process that reads over the network has ended: unmount and mount again";
    io::Error::new(io::ErrorKind::BrokenPipe, what)
}

/// Asks, and passes on what is said meanwhile. After an error of the connection itself ([`is_of_connection`]), the
/// answer may come later: nothing else is to be asked over it.
fn ask(
    socket: &mut UnixStream,
    kind: u8,
    payload: &[u8],
    cancel: &Cancel,
    patience: Option<Duration>,
) -> io::Result<Vec<u8>> {
    wire::send(socket, kind, payload).map_err(|_| gone())?;
    let deadline = patience.map(|patience| Instant::now() + patience);
    loop {
        wait(socket, cancel, deadline)?;
        let (kind, payload) = wire::receive(socket).map_err(|_| gone())?;
        match kind {
            wire::FOUND => return Ok(payload),
            wire::FAILED => return Err(wire::error(&payload)),
            wire::LINE => {
                let (level, text) = payload.split_first().ok_or_else(gone)?;
                let level = log::Level::iter().find(|known| *known as usize == usize::from(*level));
                log::log!(level.unwrap_or(log::Level::Debug), "{}", String::from_utf8_lossy(text));
            }
            _ => return Err(gone()),
        }
    }
}

/// Waits until there is an answer.
fn wait(socket: &UnixStream, cancel: &Cancel, deadline: Option<Instant>) -> io::Result<()> {
    /// How soon somebody who wants it to end is heard.
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    loop {
        let mut polled = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut polled, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        cancel.check()?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the process that reads over the network does not answer in time",
            ));
        }
    }
}

/// True if no answer has come. What the other process says has none of these kinds.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// An object that is read by the other process.
pub struct Distant {
    name: String,
    length: u64,
    modified: i64,
    version: String,
    is_lasting: bool,
    cancel: Cancel,
    /// The connection that has opened it.
    beside: Mutex<UnixStream>,
    idle: Mutex<Idle>,
    freed: Condvar,
    pieces: Mutex<Pieces>,
}

/// Connections that nobody waits for.
#[derive(Debug)]
struct Idle {
    sockets: Vec<UnixStream>,
    /// All there are. Those that were broken do not come back.
    left: usize,
}

/// What was read last.
#[derive(Debug, Default)]
struct Pieces {
    known: HashMap<u64, (Arc<[u8]>, u64)>,
    time: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Distant {
    /// Last change as the server tells it, ns since 1970; 0 where it does not.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// A local copy of the file whose name has `suffix` behind that of the object; `None` if there is none.
    pub fn beside(&self, suffix: &str) -> io::Result<Option<PathBuf>> {
        ask(&mut lock(&self.beside), wire::BESIDE, suffix.as_bytes(), &self.cancel, None).map(path)
    }

    /// Names the version that it is pinned to.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// True if no other version will ever have that name.
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    fn take(&self) -> io::Result<UnixStream> {
        let deadline = Instant::now() + PATIENCE;
        let mut idle = lock(&self.idle);
        loop {
            if let Some(socket) = idle.sockets.pop() {
                return Ok(socket);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if idle.left == 0 || left.is_zero() {
                return Err(gone());
            }
            idle = self.freed.wait_timeout(idle, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks for bytes. A connection over which no answer came is not used again: it may come later.
    fn asked(&self, numbers: &[u64]) -> io::Result<Vec<u8>> {
        let mut socket = self.take()?;
        let answer = ask(&mut socket, wire::READ, &wire::of_numbers(numbers), &self.cancel, Some(PATIENCE));
        let is_whole = answer.as_ref().err().is_none_or(|error| !is_of_connection(error));
        let mut idle = lock(&self.idle);
        if is_whole {
            idle.sockets.push(socket);
        } else {
            idle.left -= 1;
        }
        drop(idle);
        self.freed.notify_one();
        answer
    }

    /// Copies what is known, up to the first byte that is not.
    fn known(&self, buffer: &mut [u8], offset: u64) -> usize {
        let mut pieces = lock(&self.pieces);
        pieces.time += 1;
        let (time, mut done) = (pieces.time, 0);
        while done < buffer.len() {
            let at = offset + done as u64;
            let Some((piece, used)) = pieces.known.get_mut(&(at / PIECE)) else { break };
            *used = time;
            let part = piece.get((at % PIECE) as usize..).unwrap_or_default();
            let count = part.len().min(buffer.len() - done);
            if count == 0 {
                break;
            }
            buffer[done..done + count].copy_from_slice(&part[..count]);
            done += count;
        }
        done
    }

    fn keep(&self, start: u64, bytes: &[u8]) {
        let mut pieces = lock(&self.pieces);
        pieces.time += 1;
        let time = pieces.time;
        for (number, piece) in (start / PIECE..).zip(bytes.chunks(PIECE as usize)) {
            pieces.known.insert(number, (piece.into(), time));
        }
        while pieces.known.len() > MOST_PIECES {
            let oldest = pieces.known.iter().min_by_key(|(number, (_, used))| (*used, **number));
            let Some(oldest) = oldest.map(|(&number, _)| number) else { break };
            pieces.known.remove(&oldest);
        }
    }
}

impl Source for Distant {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, u64::MAX)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, most: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let mut done = self.known(buffer, offset);
        while done < wanted {
            let at = offset + done as u64;
            let start = at / PIECE * PIECE;
            let end = (offset + wanted as u64).next_multiple_of(PIECE).min(self.length);
            let length = (end - start).min(wire::MOST_READ as u64);
            let bytes = self.asked(&[start, length, most])?;
            if bytes.len() as u64 != length {
                return Err(io::Error::other(format!("{}: byte {at} cannot be read", self.name)));
            }
            let part = &bytes[(at - start) as usize..];
            let count = part.len().min(wanted - done);
            buffer[done..done + count].copy_from_slice(&part[..count]);
            done += count;
            self.keep(start, &bytes);
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let end = offset.saturating_add(length as u64).min(self.length);
        let pieces = lock(&self.pieces);
        offset >= end || (offset / PIECE..end.div_ceil(PIECE)).all(|number| pieces.known.contains_key(&number))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if self.is_ready(offset, usize::try_from(length).unwrap_or(usize::MAX)) {
            return;
        }
        // Not if all of them are in use: this never waits.
        let Some(mut socket) = lock(&self.idle).sockets.pop() else { return };
        let _ = wire::send(&mut socket, wire::PREFETCH, &wire::of_numbers(&[offset, length]));
        lock(&self.idle).sockets.push(socket);
        self.freed.notify_one();
    }
}

impl std::fmt::Debug for Distant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Distant").field(&self.name).finish()
    }
}
