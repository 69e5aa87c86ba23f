//! Decodes the blocks that follow on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here are blocks that could be decoded, and that begin where the walk
//! has arrived. They are found by their magic ([`Finder`]), which may also be inside of a block, or behind the last: the walk never
//! comes there, and what was decoded from there is thrown away when it has passed. Whatever cannot be decoded is left to the walk, so that
//! damage is met, reported and stepped over in one place.
//!
//! While another thread is at the block that the walk needs, the walk's thread does not wait: it decodes the next one that nobody is at.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use tarnfs_source::{Cancel, SharedSource};

use super::bit_reader::BitReader;
use super::block::{Block, Checked, LEVEL_SIZE, MAGIC_BITS, TOP_LEVEL, Workbench};
use super::finder::Finder;
use crate::Options;

/// Bytes that all threads may take together, with the blocks that they have decoded.
const MOST_MEMORY: usize = 128 << 20;

/// What one thread takes: the rows of a block, its text in parts and in one piece, and the texts that are ready.
const PER_THREAD: usize = 8 << 20;

/// Blocks that are found ahead of the walk, for each thread that decodes: the one that it is at, and one to go on with.
const FOUND_PER_THREAD: usize = 2;

/// A block that has been decoded.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) block: Block,
    pub(super) checked: Checked,
    /// The bit behind it.
    pub(super) end: u64,
}

/// Decoding ahead of one walk.
#[derive(Debug)]
pub(super) struct Ahead {
    finder: Finder,
    /// Where the finder has arrived.
    found: u64,
    cancel: Cancel,
    shared: Arc<Shared>,
    /// Threads that there may be, and those that there are.
    most: usize,
    threads: Vec<JoinHandle<()>>,
    reader: BitReader,
}

/// What the threads and the walk share.
#[derive(Debug)]
struct Shared {
    source: SharedSource,
    queue: Mutex<Queue>,
    /// A block was found, or the end has come.
    work: Condvar,
    /// A block was decoded, or cannot be.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of the stream.
    places: VecDeque<Place>,
    ended: bool,
    /// Memory of blocks that have been read.
    spare: Vec<Block>,
}

/// Where a block seems to begin.
#[derive(Debug)]
struct Place {
    bit: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Found,
    InWork,
    /// Nothing, where no block could be decoded.
    Done(Option<Decoded>),
}

impl Ahead {
    /// `None` where the options leave no threads for it.
    pub(super) fn new(source: SharedSource, options: &Options) -> Option<Self> {
        let most = options.threads.saturating_sub(1).min(MOST_MEMORY / PER_THREAD);
        (most > 0).then(|| Self {
            finder: Finder::new(source.clone(), 0),
            found: 0,
            cancel: options.cancel.clone(),
            reader: BitReader::new(source.clone(), 0),
            shared: Arc::new(Shared { source, queue: Mutex::default(), work: Condvar::new(), done: Condvar::new() }),
            most,
            threads: Vec::new(),
        })
    }

    /// The block whose magic is at bit `bit`, if it has been decoded. `bench` is used where there is time to decode another.
    pub(super) fn take(&mut self, bit: u64, bench: &mut Workbench) -> io::Result<Option<Decoded>> {
        self.look_ahead(bit)?;
        let mut queue = self.shared.lock();
        loop {
            match queue.places.front() {
                Some(Place { bit: front, state: State::InWork }) if *front == bit => {}
                Some(Place { bit: front, .. }) if *front == bit => break,
                _ => return Ok(None),
            }
            self.cancel.check()?;
            queue = match queue.claim() {
                Some((other, memory)) => {
                    drop(queue);
                    let decoded = decode(&mut self.reader, other, bench, memory);
                    self.shared.put(other, decoded)
                }
                None => self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
        match queue.places.pop_front() {
            Some(Place { state: State::Done(decoded), .. }) => Ok(decoded),
            _ => Ok(None),
        }
    }

    /// Takes back a block that has been read.
    pub(super) fn recycle(&mut self, block: Block) {
        let mut queue = self.shared.lock();
        if queue.spare.len() <= self.most {
            queue.spare.push(block);
        }
    }

    /// Drops what is before bit `bit`, and finds as many blocks behind it as may be in work.
    fn look_ahead(&mut self, bit: u64) -> io::Result<()> {
        if self.found <= bit {
            // The walk begins, or has gone where no magic was found; what is there it decodes itself.
            self.finder = Finder::new(self.shared.source.clone(), bit + 1);
            self.found = bit + 1;
        }
        let mut queue = self.shared.lock();
        while queue.places.front().is_some_and(|place| place.bit < bit) {
            queue.places.pop_front();
        }
        let mut missing = (FOUND_PER_THREAD * (self.most + 1)).saturating_sub(queue.places.len());
        drop(queue);
        while missing > 0 && self.found < u64::MAX {
            let Some(place) = self.finder.next(&self.cancel)? else {
                self.found = u64::MAX;
                return Ok(());
            };
            self.found = place + 1;
            self.shared.lock().places.push_back(Place { bit: place, state: State::Found });
            self.shared.work.notify_one();
            self.start_thread();
            missing -= 1;
        }
        Ok(())
    }

    /// One more, as long as there may be.
    fn start_thread(&mut self) {
        if self.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            // Where no thread is to be had, the others and the walk do it.
            let thread = Builder::new().name("bzip2 block".into()).spawn(move || shared.work());
            self.threads.extend(thread);
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        let queue = self.shared.lock();
        let ready = queue.places.iter().map(|place| match &place.state {
            State::Done(Some(decoded)) => decoded.block.memory(),
            _ => 0,
        });
        let ready = ready.sum::<usize>() + queue.spare.iter().map(Block::memory).sum::<usize>();
        drop(queue);
        self.finder.memory() + self.reader.memory() + ready + self.threads.len() * PER_THREAD
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // What it guards is whole between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes what is found, until the end.
    fn work(&self) {
        let mut bench = Workbench::new();
        let mut reader = BitReader::new(self.source.clone(), 0);
        let mut queue = self.lock();
        while !queue.ended {
            queue = match queue.claim() {
                Some((bit, memory)) => {
                    drop(queue);
                    let decoded = decode(&mut reader, bit, &mut bench, memory);
                    self.put(bit, decoded)
                }
                None => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Puts what came of `bit` in its place, if the walk has not passed that.
    fn put(&self, bit: u64, decoded: Option<Decoded>) -> MutexGuard<'_, Queue> {
        let mut queue = self.lock();
        if let Some(place) = queue.places.iter_mut().find(|place| place.bit == bit) {
            place.state = State::Done(decoded);
            self.done.notify_one();
        }
        queue
    }
}

impl Queue {
    /// The first place that nobody has been at, and memory for it.
    fn claim(&mut self) -> Option<(u64, Block)> {
        let place = self.places.iter_mut().find(|place| matches!(place.state, State::Found))?;
        place.state = State::InWork;
        Some((place.bit, self.spare.pop().unwrap_or_default()))
    }
}

/// Decodes the block whose magic is at bit `bit`; nothing, if there is anything that the walk has to see.
fn decode(reader: &mut BitReader, bit: u64, bench: &mut Workbench, mut block: Block) -> Option<Decoded> {
    // A panic in there loses nothing: the walk decodes the block again.
    catch_unwind(AssertUnwindSafe(|| {
        reader.go_to(bit + MAGIC_BITS as u64);
        // The level of the stream is only known to the walk, which looks at it.
        let checked = bench.decode(reader, usize::from(TOP_LEVEL) * LEVEL_SIZE, &mut block).ok()?;
        Some(Decoded { block, checked, end: reader.position() })
    }))
    .ok()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, source, tool};

    impl Ahead {
        /// Waits until nothing is left to do.
        fn settle(&self) {
            while !self.shared.lock().places.iter().all(|place| matches!(place.state, State::Done(_))) {
                std::thread::yield_now();
            }
        }

        fn take_bytes(&mut self, bit: u64, bench: &mut Workbench) -> Option<(Vec<u8>, u64)> {
            let Decoded { mut block, checked, end } = self.take(bit, bench).unwrap()?;
            assert_eq!(checked.stated, checked.computed);
            let mut bytes = vec![0; checked.length as usize];
            assert_eq!(block.read(&mut bytes), bytes.len());
            self.recycle(block);
            Some((bytes, end))
        }
    }

    #[test]
    fn blocks_are_decoded_ahead_of_the_walk() {
        let data = sample(3_000_000, 1);
        let stream = tool("bzip2 -1 -c", &data);
        let mut finder = Finder::new(source(&stream), 0);
        let blocks: Vec<u64> = std::iter::from_fn(|| finder.next(&Cancel::default()).unwrap()).collect();
        assert!(blocks.len() > 8);
        for threads in [2, 3, 8] {
            let options = Options { threads, ..Options::default() };
            let (mut ahead, mut bench) = (Ahead::new(source(&stream), &options).unwrap(), Workbench::new());
            assert!(ahead.take(blocks[0], &mut bench).unwrap().is_none(), "the walk itself is at the first one");
            let mut rest = None;
            for (number, &bit) in blocks.iter().enumerate().skip(1) {
                ahead.settle();
                let (bytes, end) = ahead.take_bytes(bit, &mut bench).unwrap();
                let rest = rest
                    .get_or_insert_with(|| &data[data.windows(99).position(|part| bytes.starts_with(part)).unwrap()..]);
                *rest = rest.strip_prefix(&bytes[..]).unwrap();
                assert!(blocks.get(number + 1).is_none_or(|&next| next == end));
            }
            assert_eq!(rest, Some(&b""[..]));
            assert_eq!(ahead.threads.len(), threads - 1);
        }
    }

    #[test]
    fn while_another_thread_is_at_a_block_the_walk_decodes_the_next() {
        let data = sample(600_000, 2);
        let stream = tool("bzip2 -1 -c", &data);
        let options = Options { threads: 2, ..Options::default() };
        let (mut ahead, mut bench) = (Ahead::new(source(&stream), &options).unwrap(), Workbench::new());
        // As if the one thread had begun with the second block, and took its time.
        ahead.threads.push(std::thread::spawn(|| {}));
        ahead.take(32, &mut bench).unwrap();
        let (second, memory) = ahead.shared.lock().claim().unwrap();
        let shared = Arc::clone(&ahead.shared);
        let other = std::thread::spawn(move || {
            let is_decoded = |queue: &Queue| queue.places.iter().any(|place| matches!(place.state, State::Done(_)));
            while !is_decoded(&shared.lock()) {
                std::thread::yield_now();
            }
            let mut reader = BitReader::new(shared.source.clone(), 0);
            let decoded = decode(&mut reader, second, &mut Workbench::new(), memory);
            drop(shared.put(second, decoded));
        });
        let (bytes, _) = ahead.take_bytes(second, &mut bench).unwrap();
        other.join().unwrap();
        assert!(data.windows(bytes.len()).any(|part| part == bytes));
    }

    #[test]
    fn what_is_no_block_is_left_to_the_walk() {
        let stream = tool("bzip2 -1 -c", &sample(2_000_000, 3));
        let magic = &stream[4..10];
        let bytes = [&stream[..4], magic, &[0xff; 50], magic, &[0; 50], &stream[4..]].concat();
        let options = Options { threads: 3, ..Options::default() };
        let (mut ahead, mut bench) = (Ahead::new(source(&bytes), &options).unwrap(), Workbench::new());
        let starts = [4, 60, 116].map(|byte| ahead.take(byte * 8, &mut bench).unwrap().is_some());
        assert_eq!(starts[..2], [false, false]);
        ahead.settle();
        let mut finder = Finder::new(source(&bytes), 117 * 8);
        let next = finder.next(&Cancel::default()).unwrap().unwrap();
        assert!(ahead.take(next, &mut bench).unwrap().is_some());
        // Over two of them at once, as from behind damage.
        let (_, third) = (finder.next(&Cancel::default()), finder.next(&Cancel::default()).unwrap().unwrap());
        ahead.settle();
        assert!(ahead.take(third, &mut bench).unwrap().is_some());
    }
}
