//! Buffers for the bytes of replies: of all mounts of this process together, as few as work at once.
//!
//! A reader that waits for its turn at the decoders holds its buffer, and each mount can have many such readers:
//! without a common bound, some dozens of mounts would hold more for replies than all caches may have.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tarnfs_source::Source;

use crate::deadline::lock;

/// The largest reply: 256 pages, the most that the kernel asks for unless told otherwise.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// How many may be held by readers that wait.
const MOST: usize = 32;

/// How many are kept for the next reader: clearing a fresh one costs as much as reading into it.
const MOST_FREE: usize = 8;

/// A buffer held for longer no longer counts, up to a limit of such buffers: what its reader waits for may never come.
const STUCK: Duration = Duration::from_secs(10);

/// See [`STUCK`].
const MOST_STUCK: usize = 64;

/// How often somebody who waits looks for stuck ones.
const LOOK: Duration = Duration::from_secs(1);

/// The buffers of this process.
static BUFFERS: Buffers = Buffers::new();

/// A set of buffers.
#[derive(Debug)]
struct Buffers(Mutex<PoolState>);

#[derive(Debug)]
struct PoolState {
    free: Vec<Box<[u8]>>,
    /// Since when the buffers that count are held, by number.
    held: Vec<(u64, Instant)>,
    /// Who waits for one, by number.
    waiting: VecDeque<(u64, SyncSender<Buffer>)>,
    next: u64,
}

/// A buffer of [`MOST_BYTES`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    of: &'static Buffers,
    /// `None` if it does not count.
    number: Option<u64>,
    bytes: Box<[u8]>,
}

/// A buffer for a reader that may wait long, as soon as there is one.
pub(crate) fn take() -> Buffer {
    BUFFERS.take()
}

/// A buffer for bytes that are there.
pub(crate) fn take_at_once() -> Buffer {
    BUFFERS.lend(&mut lock(&BUFFERS.0), false)
}

/// Bytes of those that are held and of those that are kept for the next reader.
pub(crate) fn memory() -> usize {
    let state = lock(&BUFFERS.0);
    (state.free.len() + state.held.len()) * MOST_BYTES
}

/// Gives back to the system what nobody holds.
pub(crate) fn trim() {
    let free = std::mem::take(&mut lock(&BUFFERS.0).free);
    drop(free);
}

impl Buffers {
    const fn new() -> Self {
        Self(Mutex::new(PoolState { free: Vec::new(), held: Vec::new(), waiting: VecDeque::new(), next: 0 }))
    }

    fn take(&'static self) -> Buffer {
        let mut state = lock(&self.0);
        if state.waiting.is_empty() && state.has_room() {
            return self.lend(&mut state, true);
        }
        let (hand, handed) = sync_channel(1);
        state.next += 1;
        let number = state.next;
        state.waiting.push_back((number, hand));
        drop(state);
        loop {
            match handed.recv_timeout(LOOK) {
                Ok(buffer) => return buffer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.lend(&mut lock(&self.0), true),
            }
            let mut state = lock(&self.0);
            let first = state.waiting.front().is_some_and(|(other, _)| *other == number);
            if first && state.has_room() {
                state.waiting.pop_front();
                return self.lend(&mut state, true);
            }
        }
    }

    fn lend(&'static self, state: &mut PoolState, counts: bool) -> Buffer {
        let bytes = state.free.pop().unwrap_or_else(|| vec![0; MOST_BYTES].into_boxed_slice());
        let number = counts.then(|| {
            state.next += 1;
            state.held.push((state.next, Instant::now()));
            state.next
        });
        Buffer { of: self, number, bytes }
    }
}

impl PoolState {
    fn has_room(&self) -> bool {
        let stuck = self.held.iter().filter(|(_, since)| since.elapsed() >= STUCK).count();
        self.held.len() - stuck.min(MOST_STUCK) < MOST
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut state = lock(&self.of.0);
        state.held.retain(|(number, _)| Some(*number) != self.number);
        let bytes = std::mem::take(&mut self.bytes);
        if state.free.len() < MOST_FREE || !state.waiting.is_empty() {
            state.free.push(bytes);
        }
        if self.number.is_some()
            && state.has_room()
            && let Some((_, hand)) = state.waiting.pop_front()
        {
            let buffer = self.of.lend(&mut state, true);
            drop(state);
            // Who waits takes it; there is room for one.
            let _ = hand.send(buffer);
        }
    }
}

impl Buffer {
    /// Reads `size` bytes of `source` at `offset` into it, no more than it has room for, and fewer only where the file
    /// ends: that is what the kernel takes fewer bytes for, so what was read before an error must not be handed on.
    ///
    /// # Errors
    ///
    /// Those of the source, and that it ends before its length, or returns more than it was asked for.
    pub(crate) fn fill(&mut self, source: &dyn Source, offset: u64, size: u32) -> io::Result<&[u8]> {
        let room = MOST_BYTES.min(size as usize) as u64;
        let wanted = source.len().saturating_sub(offset).min(room) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            match source.read_at(&mut self.bytes[done..wanted], at)? {
                // It was cut short meanwhile, which only what may change can be.
                0 if source.len() <= at => break,
                0 => {
                    let ends = format!("{}: ends at byte {at}", source.describe());
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends));
                }
                read if read > wanted - done => {
                    let what = format!("{}: returned more than was asked for", source.describe());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                read => done += read,
            }
        }
        Ok(&self.bytes[..done])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// Alone in its set, as the others count too.
    fn set() -> &'static Buffers {
        Box::leak(Box::new(Buffers::new()))
    }

    #[test]
    fn no_more_are_held_than_allowed_and_all_get_one() {
        let buffers = set();
        let (held, most, served) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * MOST {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let buffer = buffers.take();
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        held.fetch_sub(1, Ordering::SeqCst);
                        drop(buffer);
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(served.into_inner(), 4 * MOST * 20);
        assert!((1..=MOST).contains(&most.into_inner()));
        let state = lock(&buffers.0);
        assert!(state.held.is_empty() && state.waiting.is_empty() && state.free.len() <= MOST_FREE + MOST);
    }

    #[test]
    fn who_holds_one_for_long_does_not_keep_others_from_theirs() {
        let buffers = set();
        let held: Vec<_> = (0..MOST).map(|_| buffers.take()).collect();
        assert!(!lock(&buffers.0).has_room());
        let long_ago = Instant::now().checked_sub(STUCK).unwrap();
        lock(&buffers.0).held[0].1 = long_ago;
        let another = buffers.take();
        assert!(!lock(&buffers.0).has_room());
        drop(another);
        // Also for one that waits already.
        let full = buffers.take();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(buffers.take()));
            while lock(&buffers.0).waiting.is_empty() {
                thread::yield_now();
            }
            lock(&buffers.0).held[1].1 = long_ago;
            waiting.join().unwrap();
        });
        drop((full, held));
        assert!(lock(&buffers.0).held.is_empty());
    }

    /// Whoever asks for the memory of the process is told of these too, and when all is quiet they are given back.
    #[test]
    fn what_is_held_and_what_is_kept_counts_until_it_is_given_back() {
        // Other tests have a buffer or two of the same set.
        const OTHERS: usize = 4;
        let held: Vec<_> = (0..MOST - OTHERS).map(|_| take()).collect();
        let count = held.len();
        assert!((count..=count + OTHERS + MOST_FREE).contains(&(memory() / MOST_BYTES)), "{}", memory());
        drop(held);
        assert!((MOST_FREE - OTHERS..=MOST_FREE + OTHERS).contains(&(memory() / MOST_BYTES)), "{}", memory());
        trim();
        assert!(memory() <= OTHERS * MOST_BYTES, "{}", memory());
    }
}
