//! Connections to one server: some that read, each of which may be in the middle of a file, and one that asks.
//!
//! Who reads on where a transfer is, or will be once another thread has read its part, waits for that one: so a file
//! that is read from start to end, also by several threads, comes over one connection. Who holds a connection waits for
//! none of those that read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Site;
use super::connection::{About, Connection};
use crate::backend::Fault;

/// Connections that read. Servers have a bound for each client, often of five.
const MOST: usize = 4;

/// Bytes that are read and kept for others rather than that a transfer is begun anew: threads that read on for one
/// reader come in any order.
pub(super) const SKIPPED: u64 = 1 << 20;

/// Bytes that are kept so, of all files.
const MOST_KEPT: usize = 8 << 20;

/// As far behind what others read somebody may read because the thread in between, which reads ahead, too, is not here
/// yet. That one is waited for, but no longer than this.
const AHEAD: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_millis(50);

/// A login that was refused is not tried again before.
const REFUSED: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Pool {
    pub(super) site: Site,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reading: Lane,
    asking: Lane,
    /// Who waits for what.
    waiting: Vec<(u64, Wanted)>,
    /// Connections that read at most, as far as the server has said so.
    most: Option<usize>,
    refused: Option<(String, Instant)>,
    last: u64,
    /// Parts of files that were skipped: which file, start, and what is there.
    kept: VecDeque<(String, u64, Vec<u8>)>,
    /// Those that are being read, or of which it is not known yet of which version they are.
    skipping: Vec<(String, Range<u64>)>,
    /// Whether the first name of a path lies in the folder in which connections begin.
    homes: Vec<(String, bool)>,
}

#[derive(Default)]
struct Lane {
    idle: Vec<Connection>,
    busy: Vec<(u64, Option<Wanted>)>,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) path: String,
    /// The file in its version. A transfer that has begun with an older one goes on with that, whatever is at the path.
    pub(super) file: String,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Wanted {
    /// True if it begins there in this file, or so many bytes behind.
    fn lies_behind(&self, file: &str, position: u64, most: u64) -> bool {
        self.file == file && position <= self.start && self.start - position <= most
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reading,
    Asking,
}

/// A connection that nobody else has meanwhile.
pub(super) struct Taken {
    pool: Arc<Pool>,
    kind: Kind,
    number: u64,
    connection: Option<Connection>,
}

/// Bytes of a part of a file: those that somebody has skipped, or a connection by which they come.
pub(super) enum Got {
    Kept(Vec<u8>),
    Taken(Box<Taken>),
}

/// What there is to do for who wants a connection.
enum Step {
    Take(Box<Connection>),
    Connect,
    Wait,
}

impl State {
    fn lane(&mut self, kind: Kind) -> &mut Lane {
        match kind {
            Kind::Reading => &mut self.reading,
            Kind::Asking => &mut self.asking,
        }
    }

    /// Bytes that were skipped of this part, from its start on; they are not kept any longer.
    fn kept(&mut self, wanted: &Wanted) -> Option<Vec<u8>> {
        let is_there = |(file, start, bytes): &(String, u64, Vec<u8>)| {
            *file == wanted.file && (*start..start + bytes.len() as u64).contains(&wanted.start)
        };
        let at = self.kept.iter().position(is_there)?;
        let (file, start, mut bytes) = self.kept.remove(at)?;
        let mut found = bytes.split_off((wanted.start - start) as usize);
        let surplus = found.split_off(found.len().min((wanted.end - wanted.start) as usize));
        let behind = wanted.start + found.len() as u64;
        let rest = [(start, bytes), (behind, surplus)].into_iter().filter(|(_, bytes)| !bytes.is_empty());
        self.kept.extend(rest.map(|(start, bytes)| (file.clone(), start, bytes)));
        Some(found)
    }

    fn step(&mut self, kind: Kind, wanted: Option<&Wanted>, number: u64, waited: Duration) -> Step {
        let most = if kind == Kind::Asking { 1 } else { self.most.unwrap_or(MOST) };
        let waiting = std::mem::take(&mut self.waiting);
        let skipping = std::mem::take(&mut self.skipping);
        let lane = self.lane(kind);
        let mut step = None;
        if let Some(wanted) = wanted {
            let planned = lane.busy.iter().filter_map(|(_, busy)| busy.as_ref());
            let others = waiting.iter().filter(|(other, _)| *other != number).map(|(_, other)| other);
            let ends: Vec<_> = planned.chain(others).map(|other| (other.file.as_str(), other.end)).collect();
            let is_behind = |most: u64| ends.iter().any(|(file, end)| wanted.lies_behind(file, *end, most));
            let is_late = waited >= PATIENCE || !is_behind(AHEAD);
            let goes_on = |connection: &Connection| {
                connection.transfer().is_some_and(|(file, position)| wanted.lies_behind(file, position, SKIPPED))
            };
            if skipping.iter().any(|(file, part)| *file == wanted.file && part.contains(&wanted.start)) {
                step = Some(Step::Wait);
            } else if let Some(at) = lane.idle.iter().position(goes_on) {
                step = Some(Step::Take(Box::new(lane.idle.remove(at))));
            } else if is_behind(SKIPPED) || !is_late {
                step = Some(Step::Wait);
            }
        }
        let free = lane.idle.iter().position(|connection| connection.transfer().is_none());
        let step = step.unwrap_or_else(|| {
            if let Some(at) = free {
                return Step::Take(Box::new(lane.idle.remove(at)));
            }
            if lane.idle.len() + lane.busy.len() < most {
                return Step::Connect;
            }
            // The one that nobody has used for longest.
            if lane.idle.is_empty() { Step::Wait } else { Step::Take(Box::new(lane.idle.remove(0))) }
        });
        (self.waiting, self.skipping) = (waiting, skipping);
        step
    }
}

impl Pool {
    pub(super) fn new(site: Site) -> Self {
        Self { site, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that reads: in the middle of the file, if one is there. Or some bytes of the part, from its start
    /// on.
    pub(super) fn reading(self: &Arc<Self>, wanted: Wanted, deadline: Instant) -> Result<Got, Fault> {
        self.got(Kind::Reading, Some(wanted), deadline)
    }

    /// Whoever wants something of this part, which is skipped now, waits for what becomes of it.
    pub(super) fn skips(self: &Arc<Self>, file: &str, part: Range<u64>) -> Skipped {
        self.lock().skipping.push((file.to_owned(), part.clone()));
        Skipped { pool: Arc::clone(self), file: file.to_owned(), part, bytes: Vec::new() }
    }

    /// Gives up what was sent of this file: what is kept, and transfers that nobody reads just now.
    pub(super) fn forget(&self, file: &str) {
        let is_of_file = |connection: &Connection| connection.transfer().is_some_and(|(sent, _)| sent == file);
        let mut state = self.lock();
        state.kept.retain(|(kept, ..)| kept != file);
        let (ended, idle) = std::mem::take(&mut state.reading.idle).into_iter().partition::<Vec<_>, _>(is_of_file);
        state.reading.idle = idle;
        drop(state);
        drop(ended);
        self.changed.notify_all();
    }

    fn take(self: &Arc<Self>, kind: Kind, wanted: Option<Wanted>, deadline: Instant) -> Result<Taken, Fault> {
        match self.got(kind, wanted, deadline)? {
            Got::Taken(taken) => Ok(*taken),
            Got::Kept(_) => Err(Fault::Again("there is no connection".to_owned(), None)),
        }
    }

    fn got(self: &Arc<Self>, kind: Kind, wanted: Option<Wanted>, deadline: Instant) -> Result<Got, Fault> {
        let begin = Instant::now();
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.waiting.extend(wanted.clone().map(|wanted| (number, wanted)));
        let taken = loop {
            if let Some((what, at)) = &state.refused
                && at.elapsed() < REFUSED
            {
                break Err(Fault::Final(what.clone()));
            }
            if let Some(kept) = wanted.as_ref().and_then(|wanted| state.kept(wanted)) {
                state.waiting.retain(|(waiting, _)| *waiting != number);
                return Ok(Got::Kept(kept));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match state.step(kind, wanted.as_ref(), number, begin.elapsed()) {
                Step::Take(connection) => {
                    state.lane(kind).busy.push((number, wanted));
                    break Ok(Some(*connection));
                }
                Step::Connect => {
                    state.lane(kind).busy.push((number, wanted));
                    break Ok(None);
                }
                Step::Wait if left.is_zero() => {
                    break Err(Fault::Again("all connections to the server are in use".to_owned(), None));
                }
                Step::Wait => {
                    // That a plan comes to nothing is told to nobody.
                    let pause = left.min(PATIENCE);
                    state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        state.waiting.retain(|(waiting, _)| *waiting != number);
        drop(state);
        self.changed.notify_all();
        let mut taken = Taken { pool: Arc::clone(self), kind, number, connection: taken? };
        if taken.connection.is_none() {
            taken.connection = Some(self.connect(kind, deadline)?);
        }
        Ok(Got::Taken(Box::new(taken)))
    }

    fn connect(&self, kind: Kind, deadline: Instant) -> Result<Connection, Fault> {
        let result = Connection::new(&self.site, deadline);
        let mut state = self.lock();
        match &result {
            Ok(_) => state.refused = None,
            Err(Fault::Final(what)) => state.refused = Some((what.clone(), Instant::now())),
            // It may take no more of us: those that are there have to do.
            Err(_) => {
                let others = state.reading.idle.len() + state.reading.busy.len();
                if kind == Kind::Reading && others > 1 {
                    state.most = Some(others - 1);
                }
            }
        }
        result
    }

    /// What is at this path. Over the connection that asks; where the server takes no other one, over one that reads.
    pub(super) fn about(self: &Arc<Self>, path: &str, deadline: Instant) -> Result<About, Fault> {
        self.ask(deadline, |connection| connection.about(path, deadline))
    }

    /// Asks something else in the same way.
    pub(super) fn ask<T>(
        self: &Arc<Self>,
        deadline: Instant,
        question: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut taken = match self.take(Kind::Asking, None, deadline) {
            Err(Fault::Again(..)) if !self.lock().reading.idle.is_empty() => {
                self.take(Kind::Reading, None, deadline)?
            }
            taken => taken?,
        };
        question(taken.connection()?)
    }

    /// Whether this name, the first of a path, lies in the folder in which connections begin.
    pub(super) fn is_at_home(&self, name: &str, find: impl FnOnce() -> Result<bool, Fault>) -> Result<bool, Fault> {
        const MOST_NAMES: usize = 64 << 10;
        let known = |state: &State| state.homes.iter().find(|(known, _)| known == name).map(|&(_, is)| is);
        if let Some(is) = known(&self.lock()) {
            return Ok(is);
        }
        let found = find()?;
        let mut state = self.lock();
        let is = known(&state).unwrap_or(found);
        if known(&state).is_none() && state.homes.len() < MOST_NAMES {
            state.homes.push((name.to_owned(), is));
        }
        Ok(is)
    }
}

/// A part of a file that is read for others.
pub(super) struct Skipped {
    pool: Arc<Pool>,
    file: String,
    part: Range<u64>,
    /// What is there.
    pub(super) bytes: Vec<u8>,
}

impl Skipped {
    /// It is of the right version: who wants it gets it.
    pub(super) fn keep(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return;
        }
        let mut state = self.pool.lock();
        state.kept.push_back((self.file.clone(), self.part.start, bytes));
        while state.kept.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>() > MOST_KEPT {
            state.kept.pop_front();
        }
    }
}

impl Drop for Skipped {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(at) = state.skipping.iter().position(|(file, part)| *file == self.file && *part == self.part) {
            state.skipping.swap_remove(at);
        }
        drop(state);
        self.pool.changed.notify_all();
    }
}

impl Taken {
    pub(super) fn connection(&mut self) -> Result<&mut Connection, Fault> {
        self.connection.as_mut().ok_or_else(|| Fault::Again("there is no connection".to_owned(), None))
    }

    /// Nothing more is read over this connection.
    pub(super) fn give_up(&mut self) {
        self.connection = None;
    }

    /// What is at this path, asked while this one is held.
    pub(super) fn about(&mut self, path: &str, deadline: Instant) -> Result<About, Fault> {
        let pool = Arc::clone(&self.pool);
        match pool.take(Kind::Asking, None, deadline) {
            Ok(mut other) => other.connection()?.about(path, deadline),
            Err(Fault::Again(..)) if Instant::now() < deadline => self.connection()?.about(path, deadline),
            Err(fault) => Err(fault),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let connection = self.connection.take().filter(Connection::is_usable);
        let mut state = self.pool.lock();
        let lane = state.lane(self.kind);
        lane.busy.retain(|(number, _)| *number != self.number);
        lane.idle.extend(connection);
        drop(state);
        self.pool.changed.notify_all();
    }
}
