//! Decodes the frames that follow on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here is a whole frame in which nothing was wrong. Any
//! other frame is left to the walk, so that damage is met, reported and stepped over in one place.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, SharedSource};

use super::block::Blocks;
use super::dictionary::{Dictionaries, Dictionary};
use super::frame::{BLOCK_HEADER, BlockHeader, BlockKind, CHECKSUM, FrameHeader, LONGEST_HEADER, Start};
use super::idle::Loan;
use crate::Options;
use crate::thread_pool::{Job as _, ThreadPool};

/// Bytes that all frames in work may take together, compressed and decoded.
const MOST_IN_WORK: usize = 64 << 20;
/// Decoded (or compressed) bytes of the largest frame that is decoded as a whole.
pub(super) const LARGEST_FRAME: usize = 16 << 20;
/// The same with one thread: as pzstd makes them. Whoever has one thread is to take little memory.
const LARGEST_ALONE: usize = 8 << 20;
/// What is stored of a frame may be longer than what comes of it, by one byte for each so many: blocks have headers.
const OF_HEADERS: usize = 1 << 10;
/// Decoded bytes that are worth a thread: smaller frames are taken together. (In the tests a few are.)
const WORTH: usize = if cfg!(test) { 1000 } else { 2 << 20 };
/// Frames taken together at most.
const MOST_TOGETHER: usize = 10_000;
/// Tasks for each thread that decodes: the one that it is at, and one to go on with.
const FOUND_PER_THREAD: usize = 2;
/// Bytes of the stream read at a time.
const READ: usize = 256 << 10;

/// A frame in which nothing was wrong.
pub(super) struct DecodedFrame {
    /// Where the search for it began: skippable frames may come before it.
    from: u64,
    /// Its bounds in the compressed stream.
    pub(super) start: u64,
    pub(super) end: u64,
    together: Arc<Vec<u8>>,
    decoded: Range<usize>,
}

impl DecodedFrame {
    /// Its decoded bytes.
    pub(super) fn data(&self) -> &[u8] {
        self.together.get(self.decoded.clone()).unwrap_or_default()
    }
}

/// What was read of the stream for some frames, and behind them.
#[derive(Default)]
struct Bytes {
    /// The first `filled` are bytes of the stream, without those that were skipped; the first `passed` of them have
    /// been looked at.
    buffer: Vec<u8>,
    filled: usize,
    passed: usize,
    /// Bytes that the buffer has at most, but for what is wanted.
    most: usize,
    /// Where in the stream to read on.
    next: u64,
}

impl Bytes {
    /// Where in the stream the first byte is that has not been looked at.
    fn position(&self) -> u64 {
        self.next - self.unread().len() as u64
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.passed..self.filled]
    }

    /// At least the next `wanted` bytes; fewer only at the end of the source.
    fn fill(&mut self, wanted: usize, source: &SharedSource) -> io::Result<&[u8]> {
        let end = self.passed + wanted;
        if self.filled < end {
            let end = end.max(self.filled + READ);
            if self.buffer.len() < end {
                // Grows by more than is read: moving all of it each time would take long.
                let length = end.max((self.buffer.len() * 2).min(self.most));
                self.buffer.reserve_exact(length - self.buffer.len());
                self.buffer.resize(length, 0);
            }
            let read = source.read_at(&mut self.buffer[self.filled..end], self.next)?;
            self.filled += read;
            self.next += read as u64;
        }
        Ok(self.unread())
    }

    /// Passes `count` bytes; false if the source ends before.
    fn skip(&mut self, count: u64, source: &SharedSource) -> bool {
        let possible = self.position().checked_add(count).is_some_and(|end| end <= source.len());
        if possible {
            let unread = self.unread().len();
            let in_memory = usize::try_from(count).map_or(unread, |count| count.min(unread));
            self.passed += in_memory;
            self.next += count - in_memory as u64;
        }
        possible
    }

    /// Goes on in `memory`, whatever that holds, with the bytes that have not been looked at. Returns the others.
    fn split(&mut self, memory: Vec<u8>) -> Vec<u8> {
        let mut rest = Self { buffer: memory, most: self.most, next: self.next, ..Self::default() };
        rest.filled = self.unread().len();
        if rest.buffer.len() < rest.filled {
            rest.buffer.resize(rest.filled, 0);
        }
        rest.buffer[..rest.filled].copy_from_slice(self.unread());
        std::mem::replace(self, rest).buffer
    }
}

/// Frames that were found and not yet decoded.
#[derive(Default)]
struct FrameBatch {
    compressed: Vec<u8>,
    frames: Vec<FoundFrame>,
    /// Bytes that they decode to at most.
    most: usize,
    /// Memory to decode into.
    output: Vec<u8>,
}

struct FoundFrame {
    from: u64,
    start: u64,
    end: u64,
    header: FrameHeader,
    dictionary: Option<Arc<Dictionary>>,
    compressed: Range<usize>,
    most: usize,
}

/// What became of frames that were found.
struct Decoded {
    frames: VecDeque<DecodedFrame>,
    /// Memory that is not needed any more.
    compressed: Vec<u8>,
}

/// Decodes frames.
struct Unpacker(Cancel);

impl crate::thread_pool::Job for Unpacker {
    type Input = FrameBatch;
    type Output = Decoded;
    type Tools = Blocks;

    fn tools(&self) -> Blocks {
        Blocks::new()
    }

    fn work(&self, blocks: &mut Blocks, _place: u64, found: FrameBatch) -> Option<Decoded> {
        let FrameBatch { compressed, frames, most, output } = found;
        if !blocks.start_whole_frames(Some(output), most) {
            return None;
        }
        let mut places = Vec::with_capacity(frames.len());
        for frame in &frames {
            self.0.check().ok()?;
            let compressed = compressed.get(frame.compressed.clone())?;
            places.push(blocks.decode_frame(&frame.header, frame.dictionary.as_ref(), compressed, frame.most)?);
        }
        let together = Arc::new(blocks.take_whole_frames());
        let decoded = |(frame, decoded): (&FoundFrame, Range<usize>)| DecodedFrame {
            from: frame.from,
            start: frame.start,
            end: frame.end,
            together: Arc::clone(&together),
            decoded,
        };
        let frames = frames.iter().zip(places).map(decoded).collect();
        Some(Decoded { frames, compressed })
    }
}

/// The frames that are being decoded, in order.
pub(super) struct Ahead {
    source: SharedSource,
    limits: Limits,
    dictionaries: Dictionaries,
    cancel: Cancel,
    pool: ThreadPool<Unpacker>,
    /// Threads, with that of the walk.
    threads: usize,
    /// Decoded bytes of a frame that is decoded as a whole, and compressed ones.
    largest: usize,
    largest_stored: usize,
    /// What that one decodes with while it waits, or alone.
    blocks: Option<Loan>,
    /// What it does alone: the one job that there is then.
    alone: Option<FrameBatch>,
    bytes: Bytes,
    /// The next frame cannot be decoded as a whole.
    stuck: bool,
    /// Where that frame, or what else is there, starts.
    stuck_at: u64,
    jobs: VecDeque<Job>,
    in_work: usize,
    ready: VecDeque<DecodedFrame>,
    /// Something is wrong before this byte: the walk goes on alone until there.
    left_to_walk: u64,
    /// Memory of frames that have been read, compressed and decoded: fresh memory costs a tenth of decoding to it.
    spare: [Vec<Vec<u8>>; 2],
}

/// Where frames are that were found.
struct Job {
    from: u64,
    to: u64,
    bytes: usize,
}

impl Ahead {
    /// With one thread, that of the walk decodes whole frames alone.
    pub(super) fn new(source: SharedSource, options: &Options) -> Self {
        let threads = options.threads.max(1);
        let largest = if threads > 1 { LARGEST_FRAME } else { LARGEST_ALONE };
        let largest_stored = largest + largest / OF_HEADERS;
        Self {
            source,
            limits: options.limits,
            dictionaries: options.dictionaries.clone(),
            cancel: options.cancel.clone(),
            pool: ThreadPool::new(Unpacker(options.cancel.clone()), "zstd frames", threads - 1),
            threads,
            largest,
            largest_stored,
            blocks: None,
            alone: None,
            bytes: Bytes { most: largest_stored + READ, ..Bytes::default() },
            stuck: false,
            stuck_at: 0,
            jobs: VecDeque::new(),
            in_work: 0,
            ready: VecDeque::new(),
            left_to_walk: 0,
            spare: Default::default(),
        }
    }

    /// True if there are other threads than that of the walk.
    pub(super) fn has_threads(&self) -> bool {
        self.threads > 1
    }

    /// The first frame at or behind byte `position`, if it could be decoded ahead. Frames behind it are being decoded
    /// when this returns.
    pub(super) fn take(&mut self, position: u64) -> io::Result<Option<DecodedFrame>> {
        if position < self.left_to_walk {
            return Ok(None);
        }
        if self.ready.front().is_some_and(|frame| frame.from == position) {
            return Ok(self.ready.pop_front());
        }
        self.ready.clear();
        let goes_on = match self.jobs.front() {
            Some(job) => job.from == position,
            None => !self.has_threads() && !self.stuck && self.bytes.position() == position,
        };
        if !goes_on {
            // The walk went another way, or begins, or has passed what we could not.
            self.pool.drop_before(u64::MAX);
            self.alone = None;
            self.jobs.clear();
            self.in_work = 0;
            self.stuck = false;
            let most = self.largest_stored + READ;
            self.bytes = Bytes { most, next: position, ..Bytes::default() };
        }
        self.start_jobs();
        let Some(job) = self.jobs.pop_front() else {
            // Up to and over what we cannot decode; or each of the skippable frames before it would send us there
            // again.
            self.left_to_walk = self.stuck_at.saturating_add(1);
            return Ok(None);
        };
        let blocks = self.blocks.get_or_insert_with(Loan::take);
        let decoded = match self.alone.take() {
            Some(found) => Unpacker(self.cancel.clone()).work(blocks, job.from, found),
            None => self.pool.take(job.from, blocks, &self.cancel)?,
        };
        self.in_work -= job.bytes;
        self.cancel.check()?;
        match decoded {
            Some(Decoded { frames, compressed }) => {
                self.ready = frames;
                // Alone it reads on into the same memory.
                let compressed = if self.has_threads() { compressed } else { self.bytes.split(compressed) };
                self.keep(0, compressed);
            }
            None => self.left_to_walk = job.to,
        }
        if self.has_threads() {
            self.start_jobs();
        }
        Ok(self.ready.pop_front())
    }

    /// Takes back a frame that has been read.
    pub(super) fn recycle(&mut self, frame: DecodedFrame) {
        // The last of those that were decoded together.
        if let Ok(memory) = Arc::try_unwrap(frame.together) {
            self.keep(1, memory);
        }
    }

    fn keep(&mut self, kind: usize, memory: Vec<u8>) {
        if self.spare[kind].len() < 2 {
            self.spare[kind].push(memory);
        }
    }

    fn start_jobs(&mut self) {
        let most = if self.has_threads() { FOUND_PER_THREAD * self.threads } else { 1 };
        while self.jobs.len() < most && !self.stuck && self.in_work < MOST_IN_WORK {
            let from = self.bytes.position();
            let found = self.find();
            let Some(to) = found.frames.last().map(|frame| frame.end) else { return };
            let bytes = found.compressed.len() + found.most;
            if self.has_threads() {
                self.pool.add(from, found);
            } else {
                self.alone = Some(found);
            }
            self.jobs.push_back(Job { from, to, bytes });
            self.in_work += bytes;
        }
    }

    /// Gathers frames until they are worth a thread; none where the walk has to look.
    fn find(&mut self) -> FrameBatch {
        let mut found = FrameBatch::default();
        // An error in what the walk has not reached is none yet.
        let gathered = self.gather_frames(&mut found);
        // Where there is nothing but skippable frames, the walk is to pass them all, or we should read them again for
        // each of them.
        if gathered.is_err() || found.frames.is_empty() && !self.stuck {
            self.stuck = true;
            self.stuck_at = self.bytes.position();
        }
        if !found.frames.is_empty() {
            found.compressed = self.bytes.split(self.spare[0].pop().unwrap_or_default());
            found.output = self.spare[1].pop().unwrap_or_default();
        }
        found
    }

    /// Adds frames. Stops at what the walk must see.
    fn gather_frames(&mut self, found: &mut FrameBatch) -> io::Result<()> {
        let mut from = self.bytes.position();
        while found.most < WORTH && self.bytes.passed < self.largest && found.frames.len() < MOST_TOGETHER {
            self.cancel.check()?;
            let start = self.bytes.position();
            match Start::parse(self.bytes.fill(LONGEST_HEADER, &self.source)?) {
                Start::Skippable(length) if self.bytes.skip(length, &self.source) => {}
                Start::Frame(header) if self.gather(&header, from, start, found)? => from = self.bytes.position(),
                _ => {
                    self.stuck = true;
                    self.stuck_at = start;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the frame at the position; false if it cannot be decoded as a whole.
    fn gather(&mut self, header: &FrameHeader, from: u64, start: u64, found: &mut FrameBatch) -> io::Result<bool> {
        let can_be_whole = header.content.is_none_or(|content| content <= self.largest as u64);
        let Ok(dictionary) = self.dictionaries.for_frame(header.dictionary) else { return Ok(false) };
        if !can_be_whole || header.window > self.limits.decoder_window {
            return Ok(false);
        }
        let dictionary = dictionary.cloned();
        // What the blocks may become is only needed where the frame does not say what they do.
        let (mut length, mut most) = (header.length, 0);
        loop {
            let behind = length + BLOCK_HEADER;
            let bytes = self.bytes.fill(behind, &self.source)?;
            let block = bytes.get(length..).and_then(|bytes| bytes.first_chunk());
            let Some(Ok(block)) = block.map(|bytes| BlockHeader::parse(*bytes, header)) else { return Ok(false) };
            length = behind + block.length;
            most += match block.kind {
                BlockKind::Raw => block.length,
                BlockKind::Repeated { count } => count,
                BlockKind::Compressed => header.largest_block() as usize,
            };
            if length > self.largest_stored || header.content.is_none() && most > self.largest {
                return Ok(false);
            }
            if block.last {
                break;
            }
        }
        length += if header.checksum { CHECKSUM } else { 0 };
        if self.bytes.fill(length, &self.source)?.len() < length {
            return Ok(false);
        }
        let most = header.content.map_or(most, |content| content as usize);
        let compressed = self.bytes.passed..self.bytes.passed + length;
        self.bytes.passed = compressed.end;
        found.most += most;
        let end = self.bytes.position();
        found.frames.push(FoundFrame { from, start, end, header: *header, dictionary, compressed, most });
        Ok(true)
    }

    /// Bytes of memory that the frames in work and those that are ready may take.
    pub(super) fn memory(&self) -> usize {
        let ready = self.ready.front().map_or(0, |frame| frame.together.capacity());
        let spare = self.spare.iter().flatten().map(Vec::capacity).sum::<usize>();
        self.bytes.buffer.capacity() + self.in_work + ready + spare
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_source::testing::CountedSource;

    use super::*;
    use crate::testing;

    /// As the walk does, but not before all is done that could be.
    fn take(ahead: &mut Ahead, position: u64) -> Option<DecodedFrame> {
        ahead.start_jobs();
        ahead.pool.settle();
        ahead.take(position).unwrap()
    }

    #[test]
    fn whole_frames_come_in_order_and_others_are_left() {
        let data = testing::sample(3000, 1);
        // Of the tests' size for one thread, and half of it: two of those are taken together, if they say how long they
        // are.
        for (part, says, left) in
            [(1000, true, [true, false, true]), (500, true, [false, false, true]), (1000, false, [true, false, true])]
        {
            let frame = |part: &[u8]| {
                let size = if says { format!("--stream-size={}", part.len()) } else { String::new() };
                testing::tool(&format!("zstd -q -c {size}"), part)
            };
            let mut frames: Vec<_> = data.chunks(part).map(frame).collect();
            frames.truncate(3);
            let mut stream = frames.concat();
            let options = Options { threads: 3, ..Options::default() };
            let mut ahead = Ahead::new(testing::source(&stream), &options);
            let mut position = 0;
            for part in data.chunks(part).take(3) {
                let frame = take(&mut ahead, position).unwrap();
                assert!(frame.data() == part);
                position = frame.end;
                ahead.recycle(frame);
            }
            assert!(take(&mut ahead, position).is_none());
            let middle = frames[0].len() + frames[1].len() / 2;
            stream[middle] ^= 1;
            let mut ahead = Ahead::new(testing::source(&stream), &options);
            let starts = [0, frames[0].len(), frames[0].len() + frames[1].len()];
            let found = starts.map(|start| take(&mut ahead, start as u64).is_some());
            assert_eq!(found, left, "{part} bytes, {says}");
        }
    }

    #[test]
    fn one_thread_takes_whole_frames_and_reads_them_once() {
        let data = testing::sample(8 * READ, 3);
        let frames: Vec<_> = data.chunks(READ / 2).map(|part| testing::tool("zstd -q -c", part)).collect();
        let stream = frames.concat();
        let source = Arc::new(CountedSource::new(testing::source(&stream)));
        let mut ahead = Ahead::new(source.clone(), &Options { threads: 1, ..Options::default() });
        let mut position = 0;
        for part in data.chunks(READ / 2) {
            let frame = ahead.take(position).unwrap().unwrap();
            assert!(frame.data() == part);
            position = frame.end;
            ahead.recycle(frame);
        }
        assert!(ahead.take(position).unwrap().is_none());
        assert_eq!(source.bytes(), stream.len() as u64);
    }

    /// A frame of blocks of 128 KiB that are stored as they are.
    fn stored(length: usize) -> Vec<u8> {
        const BLOCK: usize = 128 << 10;
        let mut frame = b"\x28\xb5\x2f\xfd\xa0".to_vec();
        frame.extend((length as u32).to_le_bytes());
        for start in (0..length).step_by(BLOCK) {
            let count = BLOCK.min(length - start);
            let header = (count as u32) << 3 | u32::from(start + count == length);
            frame.extend(&header.to_le_bytes()[..3]);
            frame.resize(frame.len() + count, 7);
        }
        frame
    }

    /// Several archives may be read beside each other, each by one thread.
    #[test]
    fn one_thread_takes_frames_of_pzstd_and_little_memory() {
        let lengths = [LARGEST_ALONE, LARGEST_ALONE, LARGEST_ALONE, LARGEST_ALONE + 1];
        let stream: Vec<u8> = lengths.into_iter().flat_map(stored).collect();
        let mut ahead = Ahead::new(testing::source(&stream), &Options { threads: 1, ..Options::default() });
        let (mut position, mut most) = (0, 0);
        for _ in 0..3 {
            let frame = ahead.take(position).unwrap().unwrap();
            assert_eq!(frame.data().len(), LARGEST_ALONE);
            most = most.max(ahead.memory() + frame.data().len());
            position = frame.end;
            ahead.recycle(frame);
            most = most.max(ahead.memory());
        }
        assert!(ahead.take(position).unwrap().is_none());
        // Once what is stored, and once what comes of it.
        assert!(most < 2 * LARGEST_ALONE + (2 << 20), "{most}");
    }

    #[test]
    fn frames_to_skip_are_read_once_and_not_for_each_of_them() {
        const SKIPPABLE: &[u8] = b"\x50\x2a\x4d\x18\0\0\0\0";
        let stream = SKIPPABLE.repeat(LARGEST_FRAME / SKIPPABLE.len() + 100_000);
        let source = Arc::new(CountedSource::new(testing::source(&stream)));
        let options = Options { threads: 3, ..Options::default() };
        let mut ahead = Ahead::new(source.clone(), &options);
        for number in 0..20 {
            assert!(ahead.take(number * SKIPPABLE.len() as u64).unwrap().is_none());
        }
        let read = source.bytes();
        assert!(read <= stream.len() as u64, "{read} of {} bytes", stream.len());
        // Behind what it has seen it looks again.
        assert!(ahead.take(LARGEST_FRAME as u64 + SKIPPABLE.len() as u64).unwrap().is_none());
        assert_eq!(ahead.stuck_at, stream.len() as u64);
    }

    #[test]
    fn bytes_are_read_on_behind_what_is_skipped_and_split_off() {
        let data = testing::sample(3 * READ, 2);
        let source = testing::source(&data);
        let mut bytes = Bytes { most: usize::MAX, next: 5, ..Bytes::default() };
        assert_eq!(bytes.fill(10, &source).unwrap()[..10], data[5..15]);
        assert!(bytes.skip(95, &source) && bytes.position() == 100);
        let before = bytes.split(vec![7; 50]);
        assert_eq!(before[..95], data[5..100]);
        assert!(bytes.fill(READ + 1, &source).unwrap().starts_with(&data[100..100 + READ]));
        let end = 3 * READ as u64 - 4;
        assert!(bytes.skip(end - 100, &source) && bytes.position() == end);
        assert_eq!(bytes.fill(10, &source).unwrap(), &data[end as usize..]);
        assert!(!bytes.skip(5, &source) && bytes.position() == end);
        assert!(!bytes.skip(u64::MAX, &source));
        assert!(bytes.skip(4, &source) && bytes.fill(1, &source).unwrap().is_empty());
    }
}
