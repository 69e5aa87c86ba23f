//! One connection, over which any number of questions are asked at a time.
//!
//! A thread of its own reads the answers and gives each to whoever waits for it. It waits for nobody: an answer that
//! nobody wants any more is dropped, and a handle in it is closed. Nobody waits for the server to read what it is
//! asked, either: what does not go at once is written by that thread ([`Outgoing`]).

mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::outgoing::Outgoing;
use super::said::{self, Refusal};
use super::wire::{self, Answer, Expected, Question};
use crate::backend::Fault;

/// A connection over which nothing has come for so long is given up when an answer is late.
const SILENCE: Duration = Duration::from_secs(20);

/// Handles that are kept open in one session: servers have a bound for them, too.
const MOST_HANDLES: usize = 64;

/// Answers that a server owes at most, also those that nobody waits for any more.
const MOST_OWED: usize = 64 << 10;

/// Bytes that are read of a file by one question: what every server gives.
const FIRST_PIECE: usize = 32 << 10;

/// See the module. It ends when it is dropped.
pub(super) struct Session(Arc<Shared>);

struct Shared {
    socket: UnixStream,
    outgoing: Outgoing,
    waiting: Mutex<Waiting>,
    handles: AtomicUsize,
    /// Bytes that the server gives at once.
    piece: AtomicUsize,
    is_slow: AtomicBool,
}

struct Waiting {
    next: u32,
    by_id: HashMap<u32, Asked>,
    heard: Instant,
    /// Why it is over.
    over: Option<Refusal>,
}

/// A question that has no answer yet.
struct Asked {
    /// Its place among those that were asked together.
    number: usize,
    /// `None` when nobody waits any more.
    sender: Option<Sender<(usize, Answer)>>,
    expected: Expected,
}

/// Answers to questions that were asked together, in their order.
pub(super) struct Answers {
    session: Arc<Shared>,
    receiver: Receiver<(usize, Answer)>,
    /// Those that came before their turn.
    early: HashMap<usize, Answer>,
    next: usize,
    /// The number of the first question, and how many there are.
    first: u32,
    count: usize,
}

impl Session {
    /// Speaks over `socket` with a server, of which `errors` has what is said besides. Waits until it has answered.
    /// `alive` is closed when the session is over.
    pub(super) fn begin(
        socket: UnixStream,
        errors: UnixStream,
        alive: UnixStream,
        deadline: Instant,
    ) -> Result<Self, Fault> {
        let of_ours = |error: io::Error| Fault::Again(format!("asking ssh: {error}"), None);
        socket.set_nonblocking(true).map_err(of_ours)?;
        let writer = socket.try_clone().map_err(of_ours)?;
        let waiting = Waiting { next: 1, by_id: HashMap::new(), heard: Instant::now(), over: None };
        let session = Self(Arc::new(Shared {
            outgoing: Outgoing::new(writer.try_clone().map_err(of_ours)?).map_err(of_ours)?,
            socket: writer,
            waiting: Mutex::new(waiting),
            handles: AtomicUsize::new(0),
            piece: AtomicUsize::new(FIRST_PIECE),
            is_slow: AtomicBool::new(false),
        }));
        let (ready, begun) = channel();
        let shared = Arc::clone(&session.0);
        let read = move || {
            // That no first answer comes is seen when this is dropped: behind why.
            shared.read(&socket, &errors, &ready);
            drop(ready);
            drop(alive);
        };
        std::thread::Builder::new().name("tarnfs-sftp".into()).spawn(read).map_err(of_ours)?;
        session.0.outgoing.send(wire::hello());
        match begun.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => Ok(session),
            Err(RecvTimeoutError::Timeout) => Err(late()),
            Err(RecvTimeoutError::Disconnected) => Err(session.0.fault()),
        }
    }

    /// True if nothing more comes over it.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.0.waiting).over.is_some()
    }

    /// Asks all of these at once.
    pub(super) fn ask(&self, questions: &[Question<'_>]) -> Result<Answers, Fault> {
        let (sender, receiver) = channel();
        let first = self.0.ask(questions, Some(&sender))?;
        let session = Arc::clone(&self.0);
        Ok(Answers { session, receiver, early: HashMap::new(), next: 0, first, count: questions.len() })
    }

    /// Asks one thing.
    pub(super) fn ask_one(&self, question: Question<'_>, deadline: Instant) -> Result<Answer, Fault> {
        self.ask(&[question])?.next(deadline)
    }

    /// Closes a handle, and waits for no answer.
    pub(super) fn close(&self, handle: &[u8]) {
        self.0.close(handle);
    }

    /// True if one more handle may be kept. Then [`Session::keeps_one_less`] is to be called at the end.
    pub(super) fn keeps_one_more(&self) -> bool {
        let more = |count: usize| (count < MOST_HANDLES).then_some(count + 1);
        self.0.handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One that was kept is not any more.
    pub(super) fn keeps_one_less(&self) {
        self.0.handles.fetch_sub(1, Ordering::Relaxed);
    }

    /// An answer took so long, with all that was asked for before.
    pub(super) fn took(&self, time: Duration) {
        const SLOW: Duration = Duration::from_secs(4);
        const FAST: Duration = Duration::from_secs(1);
        if !(FAST..SLOW).contains(&time) {
            self.0.is_slow.store(time >= SLOW, Ordering::Relaxed);
        }
    }

    /// What is asked for has to wait long: no more should be asked for at a time than is needed.
    pub(super) fn is_slow(&self) -> bool {
        self.0.is_slow.load(Ordering::Relaxed)
    }

    /// Bytes that one question may be for.
    pub(super) fn piece(&self) -> usize {
        self.0.piece.load(Ordering::Relaxed)
    }

    /// The server gives no more than that at once.
    pub(super) fn gives(&self, bytes: usize) {
        const LEAST: usize = 1 << 10;
        self.0.piece.fetch_min(bytes.max(LEAST), Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Answers {
    /// The next one, before the deadline.
    pub(super) fn next(&mut self, deadline: Instant) -> Result<Answer, Fault> {
        loop {
            if let Some(answer) = self.early.remove(&self.next) {
                self.next += 1;
                return Ok(answer);
            }
            match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((number, answer)) => {
                    self.early.insert(number, answer);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.session.fault()),
                Err(RecvTimeoutError::Timeout) => {
                    if lock(&self.session.waiting).heard.elapsed() >= SILENCE {
                        self.session.end();
                    }
                    return Err(late());
                }
            }
        }
    }
}

/// What was opened for who has gone meanwhile is closed: what has come, here; what comes yet, by whoever reads it.
impl Drop for Answers {
    fn drop(&mut self) {
        if self.next == self.count {
            return;
        }
        {
            let mut waiting = lock(&self.session.waiting);
            for number in 0..self.count {
                if let Some(asked) = waiting.by_id.get_mut(&self.first.wrapping_add(number as u32)) {
                    asked.sender = None;
                }
            }
        }
        let come = self.early.drain().chain(self.receiver.try_iter());
        for (_, answer) in come {
            if let Answer::Handle(handle) = answer {
                self.session.close(&handle);
            }
        }
    }
}

fn late() -> Fault {
    Fault::Again("the server does not answer in time".to_owned(), None)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Asks all of these at once, and returns the number of the first one.
    fn ask(&self, questions: &[Question<'_>], sender: Option<&Sender<(usize, Answer)>>) -> Result<u32, Fault> {
        let mut message = Vec::new();
        let first = {
            let mut waiting = lock(&self.waiting);
            if waiting.over.is_some() {
                drop(waiting);
                return Err(self.fault());
            }
            if waiting.by_id.len() + questions.len() > MOST_OWED {
                self.end();
                return Err(Fault::Again("the server leaves too many questions without an answer".to_owned(), None));
            }
            let first = waiting.next;
            for (number, question) in questions.iter().enumerate() {
                let id = waiting.next;
                waiting.next = id.wrapping_add(1);
                let asked = Asked { number, sender: sender.cloned(), expected: question.expects() };
                waiting.by_id.insert(id, asked);
                message.extend_from_slice(&wire::of_question(id, question));
            }
            first
        };
        self.outgoing.send(message);
        Ok(first)
    }

    /// See [`Session::close`].
    fn close(&self, handle: &[u8]) {
        let _ = self.ask(&[Question::Close(handle)], None);
    }

    /// Nothing more is read or written. Whoever reads is told so.
    fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn fault(&self) -> Fault {
        let waiting = lock(&self.waiting);
        waiting.over.as_ref().map_or_else(|| Fault::Again("the connection was cut".to_owned(), None), Refusal::fault)
    }

    /// What the thread does: it reads until there is nothing more.
    fn read(&self, socket: &UnixStream, errors: &UnixStream, ready: &Sender<()>) {
        let mut heard = said::Heard::default();
        let result = self.answers(socket, errors, &mut heard, ready);
        // The program ends soon, and says why before.
        let until = Instant::now() + Duration::from_secs(2);
        let _ = socket.shutdown(Shutdown::Both);
        let _ = errors.set_read_timeout(Some(Duration::from_secs(1)));
        while Instant::now() < until && heard.read(errors) {}
        let refusal = match result {
            Ok(()) => heard.refusal(),
            Err(what) => Refusal::Passing(what.to_owned()),
        };
        let mut waiting = lock(&self.waiting);
        waiting.over = Some(refusal);
        // Whoever waits for one of them sees that no answer comes.
        waiting.by_id.clear();
    }

    fn answers(
        &self,
        mut socket: &UnixStream,
        errors: &UnixStream,
        heard: &mut said::Heard,
        ready: &Sender<()>,
    ) -> Result<(), &'static str> {
        const NO_SFTP: &str = "what answers there does not speak SFTP";
        const UNREAD: &str = "the server does not read what it is asked";
        let (mut incoming, mut buffer) = (wire::Incoming::default(), vec![0; 64 << 10]);
        let (mut is_begun, mut has_errors) = (false, true);
        loop {
            // Nobody rings once it is looked at: what is queued from here on is heard.
            self.outgoing.hear();
            let left = self.outgoing.left().map_err(|()| UNREAD)?;
            let events = if left.is_some() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let bell = self.outgoing.bell();
            let mut polled =
                [(socket, events), (bell, PollFlags::IN), (errors, PollFlags::IN)].map(|(of, on)| PollFd::new(of, on));
            let polled = &mut polled[..2 + usize::from(has_errors)];
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(polled, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Ok(()),
                Ok(_) => {}
            }
            let come: Vec<_> = polled.iter().map(PollFd::revents).collect();
            if come.get(2).is_some_and(|come| !come.is_empty()) {
                has_errors = heard.read(errors);
            }
            let of_socket = come.first().copied().unwrap_or(PollFlags::empty());
            if of_socket.contains(PollFlags::OUT) {
                self.outgoing.write();
            }
            if (of_socket - PollFlags::OUT).is_empty() {
                continue;
            }
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => incoming.push(buffer.get(..read).unwrap_or_default()),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    continue;
                }
                Err(_) => return Ok(()),
            }
            lock(&self.waiting).heard = Instant::now();
            while let Some(payload) = incoming.next().map_err(|()| NO_SFTP)? {
                if !is_begun {
                    if !wire::is_hello(payload) {
                        return Err(NO_SFTP);
                    }
                    is_begun = true;
                    let _ = ready.send(());
                    continue;
                }
                let (id, answer) = wire::answer(payload).ok_or(NO_SFTP)?;
                let mut waiting = lock(&self.waiting);
                let Some(asked) = waiting.by_id.remove(&id) else { continue };
                if !asked.expected.is_met_by(&answer) {
                    return Err(NO_SFTP);
                }
                match (asked.sender, answer) {
                    // While nobody can give up waiting.
                    (Some(sender), answer) => drop(sender.send((asked.number, answer))),
                    (None, Answer::Handle(handle)) => {
                        drop(waiting);
                        self.close(&handle);
                    }
                    (None, _) => {}
                }
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Session")
    }
}
