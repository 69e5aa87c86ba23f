//! An object that is pinned to one version, as a source.
//!
//! A block is in memory, in the cache on disk, or fetched by one of those who want it: the others wait for that one, in
//! this process (a [`Flight`]) and in others ([`Blocks::turn`]). Who fetches waits for nobody else in this process, so
//! there is no circle.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use tarnfs_source::{Setting, Source};

use crate::ahead::Ahead;
use crate::backend::{Object, Version};
use crate::cache::{BLOCK, Blocks};
use crate::fetch::{self, DEADLINE};
use crate::shelf::{Holder, Shelf};

/// Blocks in memory: 32 MiB of an object that is named, and 12 MiB of one of many: what is read ahead, and a little
/// more.
const MOST_IN_MEMORY: usize = 256;
const FEW_IN_MEMORY: usize = 96;

/// Those of all objects together that are some of many: 64 MiB.
pub(crate) const MOST_ON_SHELF: usize = 512;

/// Blocks of one request at most: 2 MiB. What is longer is fetched over several connections at once.
const MOST_JOINED: u64 = 16;

/// Threads that read ahead, of all objects. (Of one, [`Object::readers`].)
const MOST_THREADS: usize = 64;
static ALL_THREADS: AtomicUsize = AtomicUsize::new(0);

/// What waits to be read ahead; more is dropped.
const MOST_WAITING: usize = 64;

/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
pub struct RemoteSource(Arc<Shared>);

/// A block, or the last one, which is shorter.
type Block = Arc<[u8]>;

struct Shared {
    /// Without secrets.
    name: String,
    object: Box<dyn Object>,
    version: Version,
    blocks: Option<Blocks>,
    /// Where blocks that are not in the cache come from.
    missing: Missing,
    /// Of one of many: what bounds the blocks of all, and what this one is there.
    shelf: Option<(Arc<Shelf>, Weak<dyn Holder>)>,
    /// See [`Source::pinned`].
    number: u64,
    state: Mutex<State>,
    /// Something waits to be read ahead, or nobody wants it any more.
    work: Condvar,
}

/// What is done about blocks that are not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They are fetched.
    Fetched,
    /// Nothing is: `--offline`.
    Offline,
    /// They cannot be: the server has sent all at once, and some is lost.
    Lost,
}

#[derive(Default)]
struct State {
    memory: HashMap<u64, (Block, u64)>,
    /// Blocks in it at most.
    most: usize,
    time: u64,
    flights: HashMap<u64, Arc<Flight>>,
    ahead: Ahead,
    waiting: VecDeque<Range<u64>>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// What came of it. Errors are for all who wait, so they are what can be copied of one.
type Landed = Result<Vec<Block>, (io::ErrorKind, String)>;

/// Blocks that somebody fetches, from the first one on.
#[derive(Debug)]
struct Flight {
    first: u64,
    landed: Mutex<Option<Landed>>,
    waits: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteSource {
    pub(crate) fn new(
        name: String,
        object: Box<dyn Object>,
        version: Version,
        blocks: Option<Blocks>,
        missing: Missing,
        shelf: Option<Arc<Shelf>>,
    ) -> Self {
        let most = if shelf.is_some() { FEW_IN_MEMORY } else { MOST_IN_MEMORY };
        let (state, work) = (Mutex::new(State { most, ..State::default() }), Condvar::new());
        Self(Arc::new_cyclic(|this: &Weak<Shared>| {
            let this: Weak<dyn Holder> = this.clone();
            let shelf = shelf.map(|shelf| (shelf, this));
            Shared { name, object, version, blocks, missing, shelf, number: next_pinned(), state, work }
        }))
    }

    /// Removes what of it nobody will find again. To be called when nobody reads it any more.
    pub(crate) fn end(&self) {
        if let Some(blocks) = &self.0.blocks {
            blocks.end();
        }
    }

    /// The version that it is pinned to.
    pub fn version(&self) -> &Version {
        &self.0.version
    }

    /// Names that version: no other one has this name, but one may have several.
    pub fn version_name(&self) -> String {
        self.0.version.name()
    }

    /// Last change as the server tells it, ns since 1970; 0 where it does not.
    pub fn modified(&self) -> i64 {
        let text = self.0.version.modified.as_deref();
        let time = text.and_then(|text| httpdate::parse_http_date(text).ok());
        let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
    }

    /// As [`Source::read_before`], with an answer or an error soon after `deadline`, or after 45 s.
    pub(crate) fn read_by(&self, deadline: Instant, buffer: &mut [u8], offset: u64, most: u64) -> io::Result<usize> {
        let deadline = deadline.min(Instant::now() + DEADLINE);
        let shared = &self.0;
        let length = shared.version.length;
        let wanted = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let end = offset + wanted as u64;
        {
            let mut state = lock(&shared.state);
            let next = state.ahead.read(offset, end, length.min(most.max(end)));
            // What is longer than one request goes over several connections.
            let rest = (offset / BLOCK + MOST_JOINED)..end.div_ceil(BLOCK);
            let next = next.start / BLOCK..next.end.div_ceil(BLOCK).max(next.start / BLOCK);
            for blocks in [rest, next] {
                if !blocks.is_empty() && shared.missing == Missing::Fetched {
                    shared.wants(&mut state, blocks);
                }
            }
        }
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            for block in shared.some(at / BLOCK, end.div_ceil(BLOCK), deadline)? {
                let from = ((offset + done as u64) % BLOCK) as usize;
                let part = block.get(from..).unwrap_or_default();
                let count = part.len().min(wanted - done);
                buffer[done..done + count].copy_from_slice(&part[..count]);
                done += count;
                if done == wanted {
                    break;
                }
            }
        }
        Ok(wanted)
    }

    /// Blocks that came with the first answer.
    pub(crate) fn has(&self, first: &[Block]) {
        self.0.keep(0, first, |_| {});
    }
}

impl State {
    fn keep(&mut self, number: u64, block: Block) {
        self.time += 1;
        self.memory.insert(number, (block, self.time));
        if self.memory.len() > self.most {
            let oldest = self.memory.iter().min_by_key(|(_, (_, time))| *time).map(|(&number, _)| number);
            oldest.map(|oldest| self.memory.remove(&oldest));
        }
    }

    /// The block, which counts as used then.
    fn kept(&mut self, number: u64) -> Option<Block> {
        self.time += 1;
        let time = self.time;
        self.memory.get_mut(&number).map(|(block, used)| {
            *used = time;
            Arc::clone(block)
        })
    }

    /// Blocks from `number` on, before `end`, that nobody has or fetches: whoever calls fetches them.
    fn claim(&mut self, number: u64, end: u64) -> Option<(Range<u64>, Arc<Flight>)> {
        let is_free = |number: &u64| !self.memory.contains_key(number) && !self.flights.contains_key(number);
        let most = end.min(number.saturating_add(MOST_JOINED));
        let run = number..number + (number..most).take_while(is_free).count() as u64;
        if run.is_empty() {
            return None;
        }
        let flight = Arc::new(Flight { first: number, landed: Mutex::default(), waits: Condvar::new() });
        self.flights.extend(run.clone().map(|number| (number, Arc::clone(&flight))));
        Some((run, flight))
    }
}

impl Flight {
    /// Blocks from `number` on, once they are there.
    fn wait(&self, number: u64, deadline: Instant) -> io::Result<Vec<Block>> {
        let mut landed = lock(&self.landed);
        loop {
            match &*landed {
                Some(Ok(blocks)) => {
                    let from = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
                    return Ok(blocks.get(from..).unwrap_or_default().to_vec());
                }
                Some(Err((kind, what))) => return Err(io::Error::new(*kind, what.clone())),
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::other("the server does not answer in time"));
            }
            landed = self.waits.wait_timeout(landed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Lands a flight whatever becomes of who fetches: nobody waits for one that has panicked.
struct Landing<'a> {
    shared: &'a Shared,
    run: Range<u64>,
    flight: Arc<Flight>,
    result: Landed,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(Vec::new()));
        let found = result.as_ref().map_or(&[][..], Vec::as_slice);
        self.shared.keep(self.run.start, found, |state| {
            for number in self.run.clone() {
                state.flights.remove(&number);
            }
        });
        *lock(&self.flight.landed) = Some(result);
        self.flight.waits.notify_all();
    }
}

/// One of the threads of all objects.
struct OneOfAll;

impl OneOfAll {
    fn new() -> Option<Self> {
        let one_more = |all| (all < MOST_THREADS).then_some(all + 1);
        ALL_THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for OneOfAll {
    fn drop(&mut self) {
        ALL_THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A number for one version of an object, see [`Source::pinned`].
pub(crate) fn next_pinned() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Holder for Shared {
    fn give_up(&self, number: u64) {
        let block = lock(&self.state).memory.remove(&number);
        drop(block);
    }
}

impl Shared {
    /// How long this block is.
    fn length_of(&self, number: u64) -> usize {
        self.version.length.saturating_sub(number * BLOCK).min(BLOCK) as usize
    }

    /// Keeps these blocks in memory, and does `more` in the same step.
    fn keep(&self, first: u64, blocks: &[Block], more: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        for (number, block) in (first..).zip(blocks) {
            state.keep(number, Arc::clone(block));
        }
        more(&mut state);
        drop(state);
        if let Some((shelf, this)) = &self.shelf {
            shelf.has(this, first..first + blocks.len() as u64);
        }
    }

    /// Some blocks from `number` on, at least that one. Those before `end` are fetched along with it.
    fn some(&self, number: u64, end: u64, deadline: Instant) -> io::Result<Vec<Block>> {
        loop {
            let mut state = lock(&self.state);
            if let Some(block) = state.kept(number) {
                return Ok(vec![block]);
            }
            let Some((run, flight)) = state.claim(number, end) else {
                let flight = state.flights.get(&number).map(Arc::clone);
                drop(state);
                let Some(flight) = flight else { continue };
                match flight.wait(number, deadline) {
                    Ok(found) if found.is_empty() => continue,
                    // Who has fetched it may have had less time.
                    Err(error) if error.kind() == io::ErrorKind::Other && Instant::now() < deadline => continue,
                    found => return found,
                }
            };
            drop(state);
            return self.fly(run, flight, deadline);
        }
    }

    /// Gets blocks that were claimed.
    fn fly(&self, run: Range<u64>, flight: Arc<Flight>, deadline: Instant) -> io::Result<Vec<Block>> {
        let failed = (io::ErrorKind::Other, "fetching it has failed".to_owned());
        let mut landing = Landing { shared: self, run: run.clone(), flight, result: Err(failed) };
        let found = self.get(&run, deadline).map_err(|error| self.said(&error, run.start * BLOCK));
        landing.result = match &found {
            Ok(blocks) => Ok(blocks.clone()),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        found
    }

    /// What went wrong, and where.
    fn said(&self, error: &io::Error, offset: u64) -> io::Error {
        let at = format!("{}: byte {offset} cannot be read: ", self.name);
        io::Error::new(error.kind(), format!("{at}{error}"))
    }

    /// Gets blocks from the cache, and fetches the others.
    fn get(&self, run: &Range<u64>, deadline: Instant) -> io::Result<Vec<Block>> {
        let mut found: Vec<Option<Block>> = run.clone().map(|number| self.cached(number)).collect();
        let mut from = 0;
        while let Some(first) = found[from..].iter().position(Option::is_none).map(|at| from + at) {
            let count = found[first..].iter().take_while(|block| block.is_none()).count();
            let start = run.start + first as u64;
            let missing = start..start + count as u64;
            match self.missing {
                Missing::Fetched => {}
                Missing::Offline => {
                    let what = format!("it is not in the cache, and with {} nothing is fetched", Setting::Offline);
                    return Err(io::Error::other(what));
                }
                Missing::Lost => {
                    let what = "it is damaged or gone in the cache, and the server sends no parts: open it again";
                    return Err(io::Error::other(what));
                }
            }
            // Who fetches them meanwhile may have no answer, so there is time left for doing it here, too.
            let now = Instant::now();
            let half = now + deadline.saturating_duration_since(now) / 2;
            let turn = self.blocks.as_ref().and_then(|blocks| blocks.turn(&missing, half));
            if turn.is_some() {
                // Another process may have fetched them meanwhile.
                for (block, number) in found[first..first + count].iter_mut().zip(missing.clone()) {
                    *block = self.cached(number);
                }
                if found[first].is_some() {
                    continue;
                }
            }
            let count = found[first..first + count].iter().take_while(|block| block.is_none()).count();
            let missing = start..start + count as u64;
            let range = missing.start * BLOCK..(missing.end * BLOCK).min(self.version.length);
            let mut bytes = Vec::new();
            let fetched = fetch::fetch(&*self.object, &self.version, range, deadline, &mut bytes);
            // Over a slow line not all may have come.
            for ((block, bytes), number) in found[first..].iter_mut().zip(bytes.chunks(BLOCK as usize)).zip(missing) {
                if bytes.len() == self.length_of(number) {
                    self.store(number, bytes);
                    *block = Some(bytes.into());
                }
            }
            match fetched {
                Err(error) if found[0].is_none() => return Err(error),
                Err(error) => {
                    log::debug!("{}: {error}", self.name);
                    break;
                }
                Ok(()) => from = first + count,
            }
        }
        Ok(found.into_iter().map_while(|block| block).collect())
    }

    fn cached(&self, number: u64) -> Option<Block> {
        self.blocks.as_ref()?.get(number, self.length_of(number)).map(Block::from)
    }

    fn store(&self, number: u64, bytes: &[u8]) {
        if let Some(Err(error)) = self.blocks.as_ref().map(|blocks| blocks.put(number, bytes)) {
            log::debug!("{}: a block is not kept: {error}", self.name);
        }
    }

    /// Has blocks fetched by threads that are there for it. Where too much waits already, nothing is done.
    fn wants(self: &Arc<Self>, state: &mut State, blocks: Range<u64>) {
        let mut start = blocks.start;
        while start < blocks.end && state.waiting.len() < MOST_WAITING {
            let end = blocks.end.min(start + MOST_JOINED / 2);
            state.waiting.push_back(start..end);
            start = end;
            if state.idle == 0 && state.threads < self.object.readers() {
                // The reader fetches it itself where there are too many.
                let Some(one) = OneOfAll::new() else { break };
                let shared = Arc::clone(self);
                let work = move || {
                    let _one = one;
                    shared.work();
                };
                if std::thread::Builder::new().name("tarnfs-ahead".into()).spawn(work).is_err() {
                    break;
                }
                state.threads += 1;
            }
        }
        self.work.notify_all();
    }

    /// What one of these threads does.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.is_over || state.threads > self.object.readers() {
                break;
            }
            if let Some(blocks) = state.waiting.pop_front() {
                drop(state);
                let deadline = Instant::now() + DEADLINE;
                let mut number = blocks.start;
                while number < blocks.end {
                    let claimed = lock(&self.state).claim(number, blocks.end);
                    let Some((run, flight)) = claimed else {
                        number += 1;
                        continue;
                    };
                    number = run.end;
                    // Who reads there gets the error.
                    if self.fly(run, flight, deadline).is_err() {
                        break;
                    }
                }
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Source for RemoteSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, u64::MAX)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, most: u64) -> io::Result<usize> {
        self.read_by(Instant::now() + DEADLINE, buffer, offset, most)
    }

    fn len(&self) -> u64 {
        self.0.version.length
    }

    fn describe(&self) -> String {
        self.0.name.clone()
    }

    fn pinned(&self) -> Option<u64> {
        Some(self.0.number)
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let end = offset.saturating_add(length as u64).min(self.len());
        let state = lock(&self.0.state);
        (offset / BLOCK..end.div_ceil(BLOCK)).all(|number| offset >= end || state.memory.contains_key(&number))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.len());
        if offset < end && self.0.missing == Missing::Fetched {
            let mut state = lock(&self.0.state);
            // No further than to the first: there may be millions of them.
            let mut blocks = offset / BLOCK..end.div_ceil(BLOCK);
            if let Some(first) = blocks.find(|number| !state.memory.contains_key(number)) {
                self.0.wants(&mut state, first..end.div_ceil(BLOCK));
            }
        }
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        lock(&self.0.state).is_over = true;
        self.0.work.notify_all();
    }
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("RemoteSource").field(&self.0.name).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}
