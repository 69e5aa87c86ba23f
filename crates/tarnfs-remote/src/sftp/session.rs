//! One connection, over which any number of questions are asked at a time.
//!
//! A thread of its own reads the answers and gives each to whoever waits for it. It waits for nobody: an answer that
//! nobody wants any more is dropped.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::said::{self, Refusal};
use super::wire::{self, Answer, Question};
use crate::backend::Fault;

/// How long writing a question may take: they are short, and who does not even read them answers none.
const WRITING: Duration = Duration::from_secs(10);

/// A connection over which nothing has come for so long is given up when an answer is late.
const SILENCE: Duration = Duration::from_secs(20);

/// Handles that are kept open in one session: servers have a bound for them, too.
const MOST_HANDLES: usize = 64;

/// Bytes that are read of a file by one question: what every server gives.
const FIRST_PIECE: usize = 32 << 10;

/// See the module. It ends when it is dropped.
pub(super) struct Session(Arc<Shared>);

struct Shared {
    socket: UnixStream,
    /// Held by whoever writes to it: messages are written as a whole.
    writes: Mutex<()>,
    waiting: Mutex<Waiting>,
    handles: AtomicUsize,
    /// Bytes that the server gives at once.
    piece: AtomicUsize,
}

struct Waiting {
    next: u32,
    by_id: HashMap<u32, (usize, Sender<(usize, Answer)>)>,
    heard: Instant,
    /// Why it is over.
    over: Option<Refusal>,
}

/// Answers to questions that were asked together, in their order.
pub(super) struct Answers {
    session: Arc<Shared>,
    receiver: Receiver<(usize, Answer)>,
    /// Those that came before their turn.
    early: HashMap<usize, Answer>,
    next: usize,
}

impl Session {
    /// Speaks over `socket` with a server, of which `errors` has what is said besides. Waits until it has answered.
    pub(super) fn begin(socket: UnixStream, errors: UnixStream, deadline: Instant) -> Result<Self, Fault> {
        let of_ours = |error: io::Error| Fault::Again(format!("asking ssh: {error}"), None);
        let writer = socket.try_clone().map_err(of_ours)?;
        writer.set_write_timeout(Some(WRITING)).map_err(of_ours)?;
        let waiting = Waiting { next: 1, by_id: HashMap::new(), heard: Instant::now(), over: None };
        let session = Self(Arc::new(Shared {
            socket: writer,
            writes: Mutex::default(),
            waiting: Mutex::new(waiting),
            handles: AtomicUsize::new(0),
            piece: AtomicUsize::new(FIRST_PIECE),
        }));
        let (ready, begun) = channel();
        let shared = Arc::clone(&session.0);
        // That no first answer comes is seen when this is dropped: behind why.
        let read = move || shared.read(&socket, &errors, &ready);
        std::thread::Builder::new().name("tarnfs-sftp".into()).spawn(read).map_err(of_ours)?;
        session.0.send(&wire::hello());
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
        let mut message = Vec::new();
        {
            let mut waiting = lock(&self.0.waiting);
            if waiting.over.is_some() {
                drop(waiting);
                return Err(self.0.fault());
            }
            for (number, question) in questions.iter().enumerate() {
                let id = waiting.next;
                waiting.next = id.wrapping_add(1);
                waiting.by_id.insert(id, (number, sender.clone()));
                message.extend_from_slice(&wire::of_question(id, question));
            }
        }
        self.0.send(&message);
        Ok(Answers { session: Arc::clone(&self.0), receiver, early: HashMap::new(), next: 0 })
    }

    /// Asks one thing.
    pub(super) fn ask_one(&self, question: Question<'_>, deadline: Instant) -> Result<Answer, Fault> {
        self.ask(&[question])?.next(deadline)
    }

    /// Closes a handle, and waits for no answer.
    pub(super) fn close(&self, handle: &[u8]) {
        let _ = self.ask(&[Question::Close(handle)]);
    }

    /// True if one more handle may be kept. Then [`Session::let_go`] is to be called at the end.
    pub(super) fn keeps_one_more(&self) -> bool {
        let more = |count: usize| (count < MOST_HANDLES).then_some(count + 1);
        self.0.handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Closes a handle that was kept.
    pub(super) fn let_go(&self, handle: &[u8]) {
        self.0.handles.fetch_sub(1, Ordering::Relaxed);
        self.close(handle);
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

fn late() -> Fault {
    Fault::Again("the server does not answer in time".to_owned(), None)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Who cannot be written to is heard of by whoever reads.
    fn send(&self, message: &[u8]) {
        let _turn = lock(&self.writes);
        if (&self.socket).write_all(message).is_err() {
            self.end();
        }
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
        let (mut incoming, mut buffer) = (wire::Incoming::default(), vec![0; 64 << 10]);
        let (mut is_begun, mut has_errors) = (false, true);
        loop {
            let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(errors, PollFlags::IN)];
            let polled = &mut polled[..=usize::from(has_errors)];
            match poll(polled, None::<&Timespec>) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Ok(()),
                Ok(_) => {}
            }
            let is_ready: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
            if is_ready.get(1) == Some(&true) {
                has_errors = heard.read(errors);
            }
            if is_ready.first() != Some(&true) {
                continue;
            }
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => incoming.push(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
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
                let waits = lock(&self.waiting).by_id.remove(&id);
                if let Some((number, sender)) = waits {
                    let _ = sender.send((number, answer));
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
