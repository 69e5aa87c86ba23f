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

use super::wire::{self, Incoming};
use crate::backend::Entry;
use crate::source::next_pinned;

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

    fn connect(&self) -> io::Result<Connection> {
        let (ours, theirs) = UnixStream::pair()?;
        wire::hand_over(&self.control, &theirs)?;
        // The other process may be stopped at any time.
        ours.set_nonblocking(true)?;
        Ok(Connection { socket: ours, incoming: Incoming::default() })
    }

    /// Opens the object whose URL is shown so, and all that is needed to read it later. `Interrupted` once `cancel` is
    /// asked for, also of what is read of it. `IsADirectory` if a folder is there.
    pub fn open(&self, shown: &str, cancel: &Cancel) -> io::Result<Distant> {
        let mut first = self.connect()?;
        // All of it may have to be read.
        let answer = first.ask(wire::OPEN, shown.as_bytes(), cancel, None)??;
        let connections = self.connections(first, cancel)?;
        Distant::new(shown.to_owned(), &answer, connections, false)
    }

    /// The folder whose URL is shown so. Nothing is asked of its server now.
    pub fn folder(&self, shown: &str, cancel: &Cancel) -> io::Result<DistantFolder> {
        let mut first = self.connect()?;
        let answer = first.ask(wire::FOLDER, shown.as_bytes(), cancel, Some(Instant::now() + PATIENCE))??;
        let [number] = wire::numbers(&answer).ok_or_else(gone)?;
        Ok(DistantFolder { name: shown.to_owned(), number, connections: self.connections(first, cancel)? })
    }

    fn connections(&self, first: Connection, cancel: &Cancel) -> io::Result<Arc<Connections>> {
        let mut idle = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            idle.push(self.connect()?);
        }
        Ok(Arc::new(Connections {
            cancel: cancel.clone(),
            beside: Mutex::new(Some(first)),
            idle: Mutex::new(Idle { free: idle, left: CONNECTIONS, closed: Vec::new() }),
            freed: Condvar::new(),
        }))
    }

    /// The index whose URL is shown so; `None` if there is none.
    pub fn index(&self, shown: &str, cancel: &Cancel) -> io::Result<Option<Index>> {
        let mut first = self.connect()?;
        let answer = first.ask(wire::INDEX, shown.as_bytes(), cancel, None)??;
        Index::of(&answer, shown.to_owned(), || self.connections(first, cancel))
    }
}

/// An index behind a URL, in one version.
#[derive(Debug)]
pub enum Index {
    /// A copy of all of it is at this path.
    Copy(PathBuf),
    /// It is read where it lies.
    Far(Distant),
}

impl Index {
    /// What the other process has told of it.
    fn of(
        answer: &[u8],
        name: String,
        connections: impl FnOnce() -> io::Result<Arc<Connections>>,
    ) -> io::Result<Option<Self>> {
        let Some((&kind, told)) = answer.split_first() else { return Ok(None) };
        Ok(Some(match kind {
            wire::COPIED => Self::Copy(OsString::from_vec(told.to_vec()).into()),
            _ => Self::Far(Distant::new(name, told, connections()?, true)?),
        }))
    }
}

fn gone() -> io::Error {
    let what = "the process that reads over the network has ended: unmount and mount again";
    io::Error::new(io::ErrorKind::BrokenPipe, what)
}

fn late() -> io::Error {
    let what = "the process that reads over the network does not answer in time";
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Why there is no answer. With one, the connection can be used again.
enum Unanswered {
    /// It may come yet: nothing else is to be asked before.
    Late(io::Error),
    /// Nothing was asked.
    NotAsked(io::Error),
    /// Nothing will come.
    Gone,
}

impl From<Unanswered> for io::Error {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Late(error) | Unanswered::NotAsked(error) => error,
            Unanswered::Gone => gone(),
        }
    }
}

/// One socket, over which one question is asked at a time.
#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    /// What has come of the next message.
    incoming: Incoming,
}

impl Connection {
    /// Asks, and passes on what is said meanwhile. The inner error is what the other process answers.
    fn ask(
        &mut self,
        kind: u8,
        payload: &[u8],
        cancel: &Cancel,
        deadline: Option<Instant>,
    ) -> Result<io::Result<Vec<u8>>, Unanswered> {
        match wire::send_now(&self.socket, kind, payload) {
            Ok(()) => {}
            // It has not even read what was asked before.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Unanswered::NotAsked(late())),
            Err(_) => return Err(Unanswered::Gone),
        }
        self.answer(&mut |socket| wait(socket, cancel, deadline))
    }

    /// The answer to what was asked. `wait` waits until something has come.
    fn answer(
        &mut self,
        wait: &mut dyn FnMut(&UnixStream) -> io::Result<()>,
    ) -> Result<io::Result<Vec<u8>>, Unanswered> {
        loop {
            wait(&self.socket).map_err(Unanswered::Late)?;
            let read = self.incoming.read(&mut self.socket).map_err(|_| Unanswered::Gone)?;
            let Some((kind, payload)) = read else { continue };
            match kind {
                wire::FOUND => return Ok(Ok(payload)),
                wire::FAILED => return Ok(Err(wire::error(&payload))),
                wire::LINE => {
                    let (level, text) = payload.split_first().ok_or(Unanswered::Gone)?;
                    let level = log::Level::iter().find(|known| *known as usize == usize::from(*level));
                    log::log!(level.unwrap_or(log::Level::Debug), "{}", String::from_utf8_lossy(text));
                }
                _ => return Err(Unanswered::Gone),
            }
        }
    }
}

/// Waits until something has come.
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
            return Err(late());
        }
    }
}

/// An object that is read by the other process.
pub struct Distant {
    name: String,
    number: u64,
    length: u64,
    modified: i64,
    version: String,
    is_lasting: bool,
    /// See [`Source::pinned`].
    pinned: u64,
    /// It is one of many in a folder, and is closed when nobody reads it any more.
    is_below: bool,
    connections: Arc<Connections>,
    pieces: Mutex<Pieces>,
}

/// All connections for one object, or for a folder and the files in it.
#[derive(Debug)]
struct Connections {
    cancel: Cancel,
    /// The one for what may take long, until an answer is late.
    beside: Mutex<Option<Connection>>,
    idle: Mutex<Idle>,
    freed: Condvar,
}

/// Connections that nobody waits for.
#[derive(Debug)]
struct Idle {
    free: Vec<Connection>,
    /// All there are. Those whose other end is gone do not come back.
    left: usize,
    /// Files that are to be closed.
    closed: Vec<u64>,
}

impl Connections {
    /// One of them, once there is one.
    fn take(&self, deadline: Instant) -> io::Result<Connection> {
        /// How soon somebody who wants it to end is heard.
        const LOOK: Duration = Duration::from_millis(200);
        let mut idle = lock(&self.idle);
        loop {
            if let Some(connection) = idle.free.pop() {
                return Ok(connection);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if idle.left == 0 {
                return Err(gone());
            }
            if left.is_zero() {
                return Err(late());
            }
            self.cancel.check()?;
            idle = self.freed.wait_timeout(idle, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// It can be used again, or there is one less.
    fn give_back(&self, connection: Option<Connection>) {
        let mut idle = lock(&self.idle);
        match connection {
            Some(connection) => {
                let mut is_gone = false;
                while let Some(number) = idle.closed.pop() {
                    let sent = wire::send_now(&connection.socket, wire::CLOSE, &wire::of_numbers(&[number]));
                    if let Err(error) = sent {
                        // What would follow half a message is no message.
                        is_gone = error.kind() != io::ErrorKind::WouldBlock;
                        idle.closed.push(number);
                        break;
                    }
                }
                if is_gone {
                    idle.left -= 1;
                } else {
                    idle.free.push(connection);
                }
            }
            None => idle.left -= 1,
        }
        drop(idle);
        self.freed.notify_one();
    }

    /// Asks over one of them. `payload` is told how many milliseconds are left then.
    fn ask(self: &Arc<Self>, kind: u8, payload: impl FnOnce(u64) -> Vec<u8>, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut connection = self.take(deadline)?;
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let payload = payload(u64::try_from(left).unwrap_or(u64::MAX));
        let answer = connection.ask(kind, &payload, &self.cancel, Some(deadline));
        self.after(connection, kind, &answer);
        answer?
    }

    /// What becomes of a connection after a question.
    fn after(self: &Arc<Self>, connection: Connection, kind: u8, answer: &Result<io::Result<Vec<u8>>, Unanswered>) {
        match answer {
            Ok(_) | Err(Unanswered::NotAsked(_)) => self.give_back(Some(connection)),
            Err(Unanswered::Late(_)) => self.drain(connection, kind),
            Err(Unanswered::Gone) => self.give_back(None),
        }
    }

    /// Says that a file is not read any more. Never waits: where all connections are in use, that is said later.
    fn close(&self, number: u64) {
        let mut idle = lock(&self.idle);
        idle.closed.push(number);
        let Some(connection) = idle.free.pop() else { return };
        drop(idle);
        self.give_back(Some(connection));
    }

    /// Waits for an answer that nobody wants any more, in a thread for that: then the connection can be used again.
    fn drain(self: &Arc<Self>, mut connection: Connection, kind: u8) {
        let all = Arc::clone(self);
        let wait = move || {
            let answer = connection.answer(&mut |socket| wait(socket, &Cancel::default(), None));
            // Nobody will read what was opened.
            if let Ok(Ok(answer)) = &answer
                && kind == wire::BELOW
                && let Some(([number], _)) = wire::numbers_before(answer)
            {
                lock(&all.idle).closed.push(number);
            }
            all.give_back(answer.is_ok().then_some(connection));
        };
        if std::thread::Builder::new().name("tarnfs-late".into()).spawn(wait).is_err() {
            self.give_back(None);
        }
    }
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

/// A folder that the other process lists, and whose files it reads.
#[derive(Debug)]
pub struct DistantFolder {
    name: String,
    number: u64,
    connections: Arc<Connections>,
}

impl DistantFolder {
    /// What lies in the folder of this path in it; the empty one is itself.
    pub fn list(&self, path: &[u8]) -> io::Result<Vec<Entry>> {
        let deadline = Instant::now() + PATIENCE;
        let mut connection = self.connections.take(deadline)?;
        let mut entries = Vec::new();
        loop {
            let mut payload = wire::of_numbers(&[self.number, entries.len() as u64]);
            payload.extend_from_slice(path);
            let answer = connection.ask(wire::LIST, &payload, &self.connections.cancel, Some(deadline));
            let page = match &answer {
                Ok(Ok(page)) => wire::entries(page),
                _ => None,
            };
            match page {
                Some((part, true)) if !part.is_empty() => entries.extend(part),
                Some((part, _)) => {
                    self.connections.after(connection, wire::LIST, &answer);
                    entries.extend(part);
                    return Ok(entries);
                }
                None => {
                    self.connections.after(connection, wire::LIST, &answer);
                    return answer?.and_then(|_| Err(gone()));
                }
            }
        }
    }

    /// Opens the file of this path in it.
    pub fn open(&self, path: &[u8]) -> io::Result<Distant> {
        let mut payload = wire::of_numbers(&[self.number]);
        payload.extend_from_slice(path);
        let answer = self.connections.ask(wire::BELOW, |_| payload, Instant::now() + PATIENCE)?;
        let name = format!("{}/{}", self.name.trim_end_matches('/'), String::from_utf8_lossy(path));
        Distant::new(name, &answer, Arc::clone(&self.connections), true)
    }
}

impl Distant {
    /// Of what the other process has told of an object that it has opened.
    fn new(name: String, answer: &[u8], connections: Arc<Connections>, is_below: bool) -> io::Result<Self> {
        let ([number, length, modified, is_lasting], version) = wire::numbers_before(answer).ok_or_else(gone)?;
        Ok(Self {
            name,
            number,
            length,
            modified: modified as i64,
            version: String::from_utf8_lossy(version).into_owned(),
            is_lasting: is_lasting != 0,
            pinned: next_pinned(),
            is_below,
            connections,
            pieces: Mutex::default(),
        })
    }

    /// Last change as the server tells it, ns since 1970; 0 where it does not.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// The index whose name has `suffix` behind that of the object; `None` if there is none.
    pub fn beside(&self, suffix: &str) -> io::Result<Option<Index>> {
        let mut beside = lock(&self.connections.beside);
        let connection = beside.as_mut().ok_or_else(late)?;
        let mut payload = wire::of_numbers(&[self.number]);
        payload.extend_from_slice(suffix.as_bytes());
        let answer = connection.ask(wire::BESIDE, &payload, &self.connections.cancel, None);
        if answer.is_err() {
            // The answer to this question would be taken for that to the next one.
            *beside = None;
        }
        let answer = answer??;
        Index::of(&answer, format!("{}{suffix}", self.name), || Ok(Arc::clone(&self.connections)))
    }

    /// Names the version that it is pinned to.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// True if no other version will ever have that name.
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Asks for bytes.
    fn asked(&self, start: u64, length: u64, most: u64, deadline: Instant) -> io::Result<Vec<u8>> {
        let payload = |left| wire::of_numbers(&[self.number, start, length, most, left]);
        self.connections.ask(wire::READ, payload, deadline)
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
        let (mut done, deadline) = (self.known(buffer, offset), Instant::now() + PATIENCE);
        while done < wanted {
            let at = offset + done as u64;
            let start = at / PIECE * PIECE;
            let end = (offset + wanted as u64).next_multiple_of(PIECE).min(self.length);
            let length = (end - start).min(wire::MOST_READ as u64);
            let bytes = self.asked(start, length, most, deadline)?;
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

    fn pinned(&self) -> Option<u64> {
        Some(self.pinned)
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
        let Some(connection) = lock(&self.connections.idle).free.pop() else { return };
        let sent =
            wire::send_now(&connection.socket, wire::PREFETCH, &wire::of_numbers(&[self.number, offset, length]));
        let is_gone = sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
        self.connections.give_back((!is_gone).then_some(connection));
    }
}

impl Drop for Distant {
    fn drop(&mut self) {
        if self.is_below {
            self.connections.close(self.number);
        }
    }
}

impl std::fmt::Debug for Distant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Distant").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Answers each read with its offset, and stops in the middle of an answer as long as `is_stopped`.
    fn helper(control: UnixStream, is_stopped: Arc<AtomicBool>) {
        std::thread::spawn(move || {
            while let Ok(Some(mut socket)) = wire::take_over(&control) {
                let is_stopped = Arc::clone(&is_stopped);
                std::thread::spawn(move || {
                    while let Ok((kind, payload)) = wire::receive(&mut socket) {
                        let answer = match kind {
                            wire::OPEN => wire::of_numbers(&[0, 1 << 40, 0, 1]),
                            wire::READ => payload[8..16].to_vec(),
                            _ => Vec::new(),
                        };
                        let mut message = Vec::new();
                        wire::send(&mut message, wire::FOUND, &answer).unwrap();
                        let half = if kind == wire::READ { message.len() / 2 } else { message.len() };
                        socket.write_all(&message[..half]).unwrap();
                        while is_stopped.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        socket.write_all(&message[half..]).unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn answers_that_were_late_go_to_nobody_and_cost_no_connection() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        helper(theirs, Arc::clone(&is_stopped));
        let distant = Client::new(ours).open("x", &Cancel::default()).unwrap();
        let read =
            |offset: u64, time: u64| distant.asked(offset, 8, u64::MAX, Instant::now() + Duration::from_millis(time));
        for round in 0..3_u64 {
            is_stopped.store(true, Ordering::Relaxed);
            // One more than there are connections.
            for number in 0..=CONNECTIONS as u64 {
                let error = read(1000 * round + number, 20).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            }
            is_stopped.store(false, Ordering::Relaxed);
            for number in 0..20 {
                assert_eq!(read(number, 100_000).unwrap(), number.to_le_bytes());
            }
        }
        let all = || lock(&distant.connections.idle).free.len();
        while all() < CONNECTIONS {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(lock(&distant.connections.idle).left, CONNECTIONS);
    }

    /// One connection, and its other end.
    fn one() -> (Arc<Connections>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let connection = Connection { socket: ours, incoming: Incoming::default() };
        let all = Connections {
            cancel: Cancel::default(),
            beside: Mutex::new(None),
            idle: Mutex::new(Idle { free: vec![connection], left: 1, closed: Vec::new() }),
            freed: Condvar::new(),
        };
        (Arc::new(all), theirs)
    }

    #[test]
    fn what_cannot_be_sent_over_costs_the_connection() {
        let (all, theirs) = one();
        drop(theirs);
        all.close(7);
        let idle = lock(&all.idle);
        assert_eq!((idle.free.len(), idle.left, &idle.closed[..]), (0, 0, &[7][..]));
    }

    #[test]
    fn what_was_opened_too_late_is_closed() {
        let (all, mut theirs) = one();
        let error = all.ask(wire::BELOW, |_| wire::of_numbers(&[0]), Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(wire::receive(&mut theirs).unwrap().0, wire::BELOW);
        wire::send(&mut theirs, wire::FOUND, &wire::of_numbers(&[77, 5, 0, 1])).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        assert_eq!(wire::receive(&mut theirs).unwrap(), (wire::CLOSE, wire::of_numbers(&[77])));
    }
}
