//! What threads write, in the order of the archive whoever is first. What has to wait for its turn is bounded.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tarnfs_tree::Kind;

use super::difference::{Difference, Style};
use crate::exit::Failure;
use crate::terminal::{Output, output_failure};

/// Bytes of one turn that may wait, and of all together.
const MOST_OF_ONE: usize = 64 << 10;
const MOST: usize = 16 << 20;

/// Writes lines to standard output.
pub(super) struct Lines {
    style: Style,
    is_terminal: bool,
    following: AtomicU64,
    has_any: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    out: BufWriter<Stdout>,
    /// Whose turn it is.
    now: u64,
    /// Those that are over and wait for others.
    waiting: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    failure: Option<io::Error>,
}

/// The lines of one piece of work. Its turn is over when it is dropped.
pub(super) struct Turn<'a> {
    lines: &'a Lines,
    number: u64,
    out: Output,
}

impl Lines {
    pub(super) fn new(style: Style) -> Self {
        let state =
            State { out: BufWriter::new(io::stdout()), now: 0, waiting: BTreeMap::new(), bytes: 0, failure: None };
        Self {
            style,
            is_terminal: io::stdout().is_terminal(),
            following: AtomicU64::new(0),
            has_any: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn behind all that there are.
    pub(super) fn turn(&self) -> Turn<'_> {
        let number = self.following.fetch_add(1, Ordering::Relaxed);
        Turn { lines: self, number, out: Output::in_memory(self.is_terminal) }
    }

    /// True if something differs.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// Fails if standard output takes no more.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        state.failure.take().map_or(Ok(()), |error| Err(output_failure(&error)))
    }

    /// Writes what there is still.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        let written = state.failure.take().map_or(Ok(()), Err).and_then(|()| state.out.flush());
        written.map_err(|error| output_failure(&error))
    }

    fn write(&self, state: &mut State, bytes: &[u8]) {
        if bytes.is_empty() || state.failure.is_some() {
            return;
        }
        let written = state.out.write_all(bytes);
        // A person looks on.
        let written = if self.is_terminal { written.and_then(|()| state.out.flush()) } else { written };
        state.failure = written.err();
    }

    /// Writes `bytes` when it is the turn of `number`.
    fn in_turn(&self, number: u64, bytes: &[u8]) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.now != number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.write(&mut state, bytes);
        state
    }

    fn end(&self, number: u64, bytes: Vec<u8>) {
        let mut state = self.lock();
        if state.now != number && bytes.len() <= MOST_OF_ONE && state.bytes + bytes.len() <= MOST {
            state.bytes += bytes.len();
            state.waiting.insert(number, bytes);
            return;
        }
        drop(state);
        let mut state = self.in_turn(number, &bytes);
        state.now += 1;
        loop {
            let now = state.now;
            let Some(bytes) = state.waiting.remove(&now) else { break };
            state.bytes -= bytes.len();
            self.write(&mut state, &bytes);
            state.now += 1;
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Turn<'_> {
    /// Adds a line.
    pub(super) fn add(&mut self, path: &[u8], kind: Kind, what: &Difference) {
        self.lines.has_any.store(true, Ordering::Relaxed);
        // It goes to memory, which does not fail.
        let _ = self.lines.style.write(&mut self.out, path, kind, what);
        if self.out.len() > MOST_OF_ONE {
            let bytes = self.out.take();
            drop(self.lines.in_turn(self.number, &bytes));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lines.end(self.number, self.out.take());
    }
}
