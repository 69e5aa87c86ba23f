//! Decodes what follows on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here are blocks in which nothing was wrong, and which
//! begin where the walk has arrived. Where a block begins further on can only be guessed ([`search`]), and what was
//! before it is not known then ([`unknown`](super::unknown)): the walk tells both when it comes there. (M. Kerbiriou
//! and R. Chikhi, "Parallel decompression of gzip-compressed files and random access to DNA sequences", 2019; M.
//! Knespel and H. Brunst, "Rapidgzip", 2023.)
//!
//! With two threads the one other starts some way ahead of the walk, and goes on until the walk arrives where it has
//! started; with more, each takes a part of the same length.
//!
//! Threads of a [pool](crate::thread_pool) have places that are known before they begin. Here a job finds its own while
//! it is at work, tells the walk, and is told by it when to end.
//!
//! What a job holds is bounded, however long blocks are and however long nothing is known of the history: three parts.
//! There are as many of that as jobs, and once more what the walk hands out, or the memory of that for the next job.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

use tarnfs_source::{Cancel, Limits, SharedSource};

use super::codes::Codes;
use super::guess;
use super::input::Input;
use super::member::{self, MAGIC};
use super::search::{self, Candidate};
use super::segment::{self, Bounds, History, Output, Segment};
use crate::Options;

/// Decoded bytes of all parts in work together, roughly, and of one. (In the tests they are small, so that there are
/// many.)
const PARTS: u64 = 64 << 20;
const LARGEST: u64 = if cfg!(test) { 256 << 10 } else { 16 << 20 };

/// Compressed bytes of one part.
const SMALLEST_PART: u64 = if cfg!(test) { 1 << 10 } else { 128 << 10 };
const LARGEST_PART: u64 = 16 << 20;

/// Compressed bytes that are searched at once.
const SEARCHED: usize = 32 << 10;

/// Instead of the bit at which a job has begun.
const SEARCHING: u64 = 0;
const NOTHING: u64 = u64::MAX;

/// Decoding ahead of one walk.
pub(super) struct Ahead {
    source: SharedSource,
    limits: Limits,
    /// There may be gzip members.
    has_members: bool,
    threads: usize,
    /// Decoded bytes of one part, roughly.
    part: u64,
    /// In the order of the stream.
    jobs: VecDeque<Job>,
    /// Threads of jobs that nobody wants any more, which may not have noticed yet.
    abandoned: Vec<Job>,
    /// What came of the last job that the walk has reached.
    ready: VecDeque<Segment>,
    /// The byte behind the part of the last job.
    next: u64,
    /// Memory of a segment that has been handed out, for the next job.
    spare: Option<[Output; 2]>,
}

struct Job {
    /// The byte at which its part ends.
    until: u64,
    shared: Arc<Shared>,
    thread: JoinHandle<Vec<Segment>>,
}

/// What a job and the walk tell each other.
#[derive(Default)]
struct Shared {
    /// The bit at which the job has begun to decode.
    start: AtomicU64,
    /// Bytes of memory of what it is decoding or has decoded last, and of what it has decoded before.
    held: AtomicUsize,
    kept: AtomicUsize,
    /// The walk waits for what comes of that start: nothing behind it is searched.
    is_awaited: Cancel,
    enough: Cancel,
    abandon: Cancel,
}

impl Shared {
    fn memory(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.kept.load(Ordering::Relaxed)
    }
}

impl Ahead {
    /// `None` where the options leave no threads for it.
    pub(super) fn new(source: SharedSource, options: &Options, has_members: bool) -> Option<Self> {
        let threads = options.threads.saturating_sub(1);
        (threads > 0).then(|| Self {
            source,
            limits: options.limits,
            has_members,
            threads,
            part: LARGEST.min(PARTS / threads as u64),
            jobs: VecDeque::new(),
            abandoned: Vec::new(),
            ready: VecDeque::new(),
            next: 0,
            spare: None,
        })
    }

    /// The blocks from bit `bit` on, at which one begins, if they have been decoded. `decoded` bytes came from all
    /// before: what follows will be like it.
    pub(super) fn take(&mut self, bit: u64, decoded: u64) -> Option<Segment> {
        self.drop_ready_before(bit);
        while self.ready.is_empty() {
            let Some(job) = self.jobs.front() else { break };
            match job.shared.start.load(Ordering::Relaxed) {
                SEARCHING if bit / 8 < job.until => break,
                NOTHING | SEARCHING => self.drop_job(),
                start if start > bit => break,
                start if start < bit => self.drop_job(),
                _ => {
                    let Some(job) = self.jobs.pop_front() else { break };
                    job.shared.is_awaited.cancel();
                    if self.threads == 1 {
                        job.shared.enough.cancel();
                    }
                    // A panic in there loses nothing: the walk decodes these blocks again.
                    self.ready.extend(job.thread.join().unwrap_or_default());
                    self.drop_ready_before(bit);
                }
            }
        }
        self.start_jobs(self.ready.back().map_or(bit, |segment| segment.end) / 8, decoded.max(1));
        if self.ready.front()?.start == bit { self.ready.pop_front() } else { None }
    }

    /// Takes back a segment that was handed out.
    pub(super) fn recycle(&mut self, segment: Segment) {
        let outputs = segment.into_outputs();
        if self.spare.as_ref().is_none_or(|spare| segment::touched(spare) < segment::touched(&outputs)) {
            self.spare = Some(outputs);
        }
    }

    /// They are in order, and there may be tens of thousands.
    fn drop_ready_before(&mut self, bit: u64) {
        while self.ready.front().is_some_and(|segment| segment.start < bit) {
            self.ready.pop_front();
        }
    }

    fn drop_job(&mut self) {
        if let Some(job) = self.jobs.pop_front() {
            job.shared.abandon.cancel();
            self.abandoned.push(job);
        }
    }

    /// Starts jobs behind byte `position` of the compressed stream.
    fn start_jobs(&mut self, position: u64, decoded: u64) {
        // What they have made is dropped with them.
        self.abandoned.retain(|job| !job.thread.is_finished());
        let Some(part) = self.part_behind(position.max(1), decoded) else { return };
        // A file that sends the walk past one job after the other could leave any number of them behind.
        while self.jobs.len() + self.abandoned.len() < self.threads {
            let start = self.next.max(position + part);
            if start >= self.source.len().saturating_sub(SMALLEST_PART) {
                return;
            }
            let until = start + part;
            let shared = Arc::<Shared>::default();
            let work = Work {
                source: SharedSource::clone(&self.source),
                limits: self.limits,
                has_members: self.has_members,
                // Alone, it goes on until the walk arrives at its start.
                until: if self.threads == 1 { u64::MAX } else { until * 8 },
                most: self.part as usize / 2 * 3,
                room: self.part as usize * 3,
                outputs: self.spare.take().unwrap_or_default(),
                shared: Arc::clone(&shared),
            };
            // Where no thread is to be had, the walk does it.
            let Ok(thread) = Builder::new().name("inflate".to_owned()).spawn(move || work.run(start, until)) else {
                return;
            };
            self.jobs.push_back(Job { until, shared, thread });
            self.next = until;
        }
    }

    /// Compressed bytes of one part, where these `position` bytes became so many; `None` where others would be no help.
    fn part_behind(&self, position: u64, decoded: u64) -> Option<u64> {
        /// As long as little is known.
        const USUAL_RATIO: u64 = 4;
        const LITTLE: u64 = 1 << 20;
        if decoded < LITTLE {
            return Some((self.part / USUAL_RATIO).clamp(SMALLEST_PART, LARGEST_PART));
        }
        // Stored blocks are copied, and matches of 258 bytes written, faster than another thread's memory is read.
        let is_copied = decoded < position.saturating_add(position / 64);
        let is_filled = decoded / position > 128;
        let part = (u128::from(self.part) * u128::from(position) / u128::from(decoded)) as u64;
        (!is_copied && !is_filled).then(|| part.clamp(SMALLEST_PART, LARGEST_PART))
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let jobs = self.jobs.iter().chain(&self.abandoned).map(|job| job.shared.memory()).sum::<usize>();
        let spare = self.spare.as_ref().map_or(0, segment::touched);
        self.ready.iter().map(Segment::memory).sum::<usize>() + jobs + spare
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        while !self.jobs.is_empty() {
            self.drop_job();
        }
        for job in self.abandoned.drain(..) {
            let _ = job.thread.join();
        }
    }
}

/// What a job knows.
struct Work {
    source: SharedSource,
    limits: Limits,
    has_members: bool,
    until: u64,
    /// Decoded bytes at which a segment ends at the next boundary.
    most: usize,
    /// Bytes of memory of all that it decodes.
    room: usize,
    outputs: [Output; 2],
    shared: Arc<Shared>,
}

impl Work {
    /// Decodes what begins in these bytes.
    fn run(mut self, start: u64, end: u64) -> Vec<Segment> {
        // Whatever cannot be read here, the walk meets and reports.
        if let Ok(Some(first)) = self.search(start, end) {
            return self.members_from(first);
        }
        self.shared.start.store(NOTHING, Ordering::Relaxed);
        Vec::new()
    }

    /// The first place from which blocks can be decoded.
    fn search(&mut self, start: u64, end: u64) -> io::Result<Option<Segment>> {
        let mut data = vec![0; SEARCHED + guess::MEMBER];
        let mut codes = Codes::new();
        let mut bit = start * 8;
        let mut in_vain = 0;
        while bit / 8 < end {
            self.shared.abandon.check()?;
            let base = bit / 8;
            let length = self.source.read_at(&mut data, base)?;
            let searched = SEARCHED.min((end - base) as usize);
            let mut from = (bit % 8) as usize;
            let abandon = self.shared.abandon.clone();
            while let Some(candidate) = search::next(&data[..length], from, searched, &mut codes, &abandon) {
                let (start, history) = match candidate {
                    Candidate::Block(at) => {
                        from = at + 1;
                        (Some(base * 8 + at as u64), History::Unknown)
                    }
                    Candidate::Member(at) => {
                        from = at * 8 + 8;
                        (self.data_of_member(base + at as u64)?, History::None)
                    }
                };
                let Some(start) = start else { continue };
                self.shared.start.store(start, Ordering::Relaxed);
                match self.decode(start, history)? {
                    Ok(found) => return Ok(Some(found)),
                    Err(outputs) => {
                        in_vain += outputs[0].length();
                        self.outputs = outputs;
                    }
                }
                // Many blocks may lead to the same fault.
                if in_vain > self.most || self.shared.is_awaited.is_cancelled() {
                    return Ok(None);
                }
            }
            bit = (base + searched as u64) * 8;
        }
        Ok(None)
    }

    /// The bit behind the header of the gzip member that begins at byte `at`.
    fn data_of_member(&self, at: u64) -> io::Result<Option<u64>> {
        let mut input = Input::new(SharedSource::clone(&self.source), at, self.shared.abandon.clone());
        let is_member = input.bytes()? == Some(MAGIC) && member::read_gzip_header(&mut input, &self.limits)?;
        Ok(is_member.then(|| input.position() * 8))
    }

    fn decode(&mut self, start: u64, history: History) -> io::Result<Result<Segment, [Output; 2]>> {
        let Shared { enough, abandon, held, kept, .. } = &*self.shared;
        let room = self.room.saturating_sub(kept.load(Ordering::Relaxed));
        let bounds = Bounds { until: self.until, most: self.most, room, held, enough, abandon };
        Segment::decode(&self.source, start, history, &bounds, std::mem::take(&mut self.outputs))
    }

    /// `first`, and what follows it if it ends with its member.
    fn members_from(&mut self, first: Segment) -> Vec<Segment> {
        /// CRC-32 and length (RFC 1952 §2.3.1).
        const TRAILER: u64 = 8;
        let (mut taken, mut segments) = (0, Vec::new());
        self.keep(first, &mut segments, &mut taken);
        while let Some(last) = segments.last()
            && self.has_members
            && last.is_final
            && last.end < self.until
            && taken < self.most
            && !self.shared.enough.is_cancelled()
            && let Ok(Some(start)) = self.data_of_member(last.end / 8 + TRAILER)
            && let Ok(Ok(next)) = self.decode(start, History::None)
        {
            self.keep(next, &mut segments, &mut taken);
        }
        segments
    }

    /// Puts `segment` behind the others, which count as so much.
    fn keep(&mut self, mut segment: Segment, segments: &mut Vec<Segment>, taken: &mut usize) {
        /// One that holds nothing still takes its place.
        const LEAST: usize = 1 << 10;
        // Another one may be decoded beside it, and there may be very many: so each takes no more memory than it
        // needs, and that of the work is used again.
        if self.has_members && segment.is_final {
            match segment.shrink() {
                Some(outputs) => self.outputs = outputs,
                None => segment.trim(),
            }
            self.shared.kept.fetch_add(segment.memory(), Ordering::Relaxed);
            self.shared.held.store(0, Ordering::Relaxed);
        }
        *taken += segment.weight().max(LEAST);
        segments.push(segment);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use tarnfs_source::{MemorySource, Source};

    use super::*;
    use crate::gzip::tests::{filter, text};

    /// Blocks of a gzip file of one member, decoded from its start.
    fn whole(source: &SharedSource) -> Segment {
        let (never, held) = (Cancel::default(), AtomicUsize::default());
        let (most, room) = (usize::MAX, usize::MAX);
        let bounds = Bounds { until: u64::MAX, most, room, held: &held, enough: &never, abandon: &never };
        // A header without a name has ten bytes.
        Segment::decode(source, 80, History::None, &bounds, Default::default()).unwrap().ok().unwrap()
    }

    /// What a job of `most` bytes makes of this member, again and again.
    fn members(member: &[u8], count: usize, most: usize) -> Vec<Segment> {
        let bytes = member.repeat(count);
        let source: SharedSource = Arc::new(MemorySource::new(&bytes[..], "test"));
        let first = whole(&source);
        let mut work = Work {
            source,
            limits: Limits::default(),
            has_members: true,
            until: u64::MAX,
            most,
            room: most.saturating_mul(2),
            outputs: Default::default(),
            shared: Arc::default(),
        };
        work.members_from(first)
    }

    #[test]
    fn a_job_of_many_small_members_takes_little_memory() {
        const MOST: usize = 1 << 20;
        let memory = |segments: &[Segment]| segments[1..].iter().map(Segment::memory).sum::<usize>();
        let empty = filter("gzip", &["-nc"], b"").unwrap();
        let segments = members(&empty, 5000, MOST);
        assert!(segments.len() >= 1000 && segments.iter().all(|segment| segment.bytes().is_empty()));
        assert!(memory(&segments) <= MOST, "{}", memory(&segments));
        // As in bgzf: all of them, in about as much memory as they have bytes.
        let data = text(60_000);
        let segments = members(&filter("gzip", &["-nc"], &data).unwrap(), 15, MOST);
        assert!(segments.len() == 15 && segments.iter().all(|segment| segment.bytes() == data));
        assert!(memory(&segments) <= MOST, "{}", memory(&segments));
        // Each byte in a block of its own: 18 bits, of which the last begins the final one.
        let mut bits = Vec::new();
        for number in 0..1000 {
            // Its head, with the lowest bit first; then the codes of "A" and of the end.
            bits.extend([number == 999, true, false, false, true, true, true, false, false, false, true]);
            bits.extend([false; 7]);
        }
        let byte = |bits: &[bool]| bits.iter().rev().fold(0_u8, |byte, &bit| byte << 1 | u8::from(bit));
        let tail = [&crc32fast::hash(&[b'A'; 1000]).to_le_bytes()[..], &1000_u32.to_le_bytes()].concat();
        let member = [&empty[..10], &bits.chunks(8).map(byte).collect::<Vec<_>>(), &tail].concat();
        let segments = members(&member, 1000, MOST);
        assert!((20..200).contains(&segments.len()), "{}", segments.len());
        assert!(segments.iter().all(|segment| segment.bytes() == [b'A'; 1000]));
        assert!(memory(&segments) <= 2 * MOST, "{}", memory(&segments));
    }

    /// Nobody gets to read it before it is open.
    #[derive(Debug)]
    struct Closed {
        bytes: MemorySource,
        is_open: Mutex<bool>,
        opened: Condvar,
    }

    impl Source for Closed {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            drop(self.opened.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            self.bytes.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.bytes.len()
        }

        fn describe(&self) -> String {
            self.bytes.describe()
        }
    }

    #[test]
    fn a_walk_that_passes_its_jobs_leaves_few_threads_behind() {
        const THREADS: usize = 3;
        let closed = Arc::new(Closed {
            bytes: MemorySource::new(vec![0; 8 << 20], "test"),
            is_open: Mutex::default(),
            opened: Condvar::default(),
        });
        let source: SharedSource = Arc::clone(&closed) as SharedSource;
        let options = Options { threads: THREADS, ..Options::default() };
        let mut ahead = Ahead::new(SharedSource::clone(&source), &options, true).unwrap();
        for byte in (1..source.len()).step_by(100_000) {
            assert!(ahead.take(byte * 8, 1).is_none());
        }
        // Each thread holds the source.
        let alive = Arc::strong_count(&closed) - 3;
        *closed.is_open.lock().unwrap() = true;
        closed.opened.notify_all();
        drop(ahead);
        assert_eq!(Arc::strong_count(&closed), 2);
        assert!((1..THREADS).contains(&alive), "{alive} threads");
    }

    /// All blocks before a fault lead to it, and so many may not be decoded from each of them.
    #[test]
    fn what_lies_before_a_fault_is_decoded_once() {
        // In many small blocks.
        let mut random = 1_u32;
        let mut letter = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (random >> 28) as u8
        };
        let letters: Vec<u8> = (0..6 << 20).map(|_| letter()).collect();
        let compressed = filter("gzip", &["-nc1"], &letters).unwrap();
        let cut = &compressed[..compressed.len() - compressed.len() / 10];
        let source: SharedSource = Arc::new(MemorySource::new(cut, "test"));
        let work = |source: &SharedSource, most: usize, shared: &Arc<Shared>| Work {
            source: SharedSource::clone(source),
            limits: Limits::default(),
            has_members: true,
            until: u64::MAX,
            most,
            room: most.saturating_mul(2),
            outputs: Default::default(),
            shared: Arc::clone(shared),
        };
        let shared = Arc::<Shared>::default();
        let segments = work(&source, usize::MAX / 4, &shared).run(1000, source.len());
        assert_eq!(segments.len(), 1);
        assert!(segments[0].bytes().len() > 4 << 20, "{}", segments[0].bytes().len());
        let start = segments[0].start;
        assert!(!segments[0].is_final && start == shared.start.load(Ordering::Relaxed));
        assert!(start / 8 < source.len() / 4, "{} of {}", start / 8, source.len());
        // Where each block is as long as that, it is not tried with all of them; nor once the walk is there.
        let wrong = filter("gzip", &["-nc1"], &text(64 << 10)).unwrap();
        let block = &wrong[..wrong.len() / 2];
        let source: SharedSource = Arc::new(MemorySource::new(block.repeat(300), "test"));
        for (most, is_awaited) in [(64 << 10, false), (usize::MAX / 4, true)] {
            let shared = Arc::<Shared>::default();
            if is_awaited {
                shared.is_awaited.cancel();
            }
            assert!(work(&source, most, &shared).search(1, source.len()).unwrap().is_none());
            let last = shared.start.load(Ordering::Relaxed) / 8;
            assert!(last > 0 && last < source.len() / 2, "{last} of {}", source.len());
        }
    }

    #[test]
    fn most_blocks_are_decoded_ahead_of_the_walk() {
        let compressed = filter("gzip", &["-nc"], &text(12 << 20)).unwrap();
        let source: SharedSource = Arc::new(MemorySource::new(&compressed[..], "test"));
        let whole = whole(&source);
        for threads in [2, 3, 8] {
            let options = Options { threads, ..Options::default() };
            let mut ahead = Ahead::new(SharedSource::clone(&source), &options, true).unwrap();
            let (mut position, mut number, mut walked) = (0, 0, 0);
            while let Some((decoded, bit)) = whole.boundary(number) {
                // This walk takes no time, so it has to wait where others would be ahead of a true one.
                while ahead.jobs.iter().any(|job| !job.thread.is_finished()) {
                    std::thread::yield_now();
                }
                number += 1;
                if decoded < position {
                    continue;
                }
                let counted = ahead.memory();
                match ahead.take(bit, decoded as u64) {
                    Some(mut segment) => {
                        assert!(counted >= segment.bytes().len(), "a job counts what it holds");
                        assert!(segment.settle(&whole.window(decoded, &[])));
                        assert!(whole.bytes()[decoded..].starts_with(segment.bytes()), "{threads} threads");
                        position = decoded + segment.bytes().len();
                        ahead.recycle(segment);
                    }
                    None => walked += 1,
                }
            }
            assert!(walked <= number * 2 / 3, "{threads} threads: {walked} of {number} blocks are left to the walk");
        }
    }
}
