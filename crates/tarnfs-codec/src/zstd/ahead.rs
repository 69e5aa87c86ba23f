//! Decodes the frames that follow on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here is a whole frame in which nothing was wrong. Any
//! other frame is left to the walk, so that damage is met, reported and stepped over in one place.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tarnfs_source::{Cancel, Limits, SharedSource};

use super::frame::{BLOCK_HEADER, BlockHeader, CHECKSUM, FrameHeader, LONGEST_HEADER, Start};
use super::idle::Loan;
use crate::Options;
use crate::input::Input;

/// Bytes that all frames in work may take together, compressed and decoded.
const MOST_IN_WORK: usize = 64 << 20;
/// Decoded (or compressed) bytes of the largest frame that is decoded as a whole.
pub(super) const LARGEST_FRAME: usize = 16 << 20;
/// Decoded bytes that are worth a thread: smaller frames are taken together. (In the tests a few are.)
const WORTH: usize = if cfg!(test) { 1000 } else { 2 << 20 };
/// Frames taken together at most.
const MOST_TOGETHER: usize = 10_000;

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

/// Frames that were found and not yet decoded.
#[derive(Default)]
struct Found {
    compressed: Vec<u8>,
    frames: Vec<FoundFrame>,
    decoded: usize,
}

struct FoundFrame {
    from: u64,
    start: u64,
    end: u64,
    header: FrameHeader,
    compressed: Range<usize>,
    decoded: Range<usize>,
}

/// The frames that are being decoded, in order.
pub(super) struct Ahead {
    input: Input,
    limits: Limits,
    cancel: Cancel,
    /// Asks the threads to end when nobody wants their frames any more.
    abandon: Cancel,
    threads: usize,
    /// The next frame cannot be decoded as a whole.
    stuck: bool,
    /// Where that frame, or what else is there, starts.
    stuck_at: u64,
    jobs: VecDeque<Job>,
    in_work: usize,
    ready: VecDeque<DecodedFrame>,
    /// Something is wrong before this byte: the walk goes on alone until there.
    left_to_walk: u64,
}

struct Job {
    from: u64,
    to: u64,
    bytes: usize,
    thread: JoinHandle<Option<VecDeque<DecodedFrame>>>,
}

impl Ahead {
    /// `None` where the options leave no threads for it: with two cores, of which the reader of the decoded bytes needs one, it
    /// was measured to be slower than decoding in place.
    pub(super) fn new(source: SharedSource, options: &Options) -> Option<Self> {
        (options.threads > 2).then(|| Self {
            input: Input::new(source, 0),
            limits: options.limits,
            cancel: options.cancel.clone(),
            abandon: Cancel::default(),
            threads: options.threads,
            stuck: false,
            stuck_at: 0,
            jobs: VecDeque::new(),
            in_work: 0,
            ready: VecDeque::new(),
            left_to_walk: 0,
        })
    }

    /// The first frame at or behind byte `position`, if it could be decoded ahead. Frames behind it are being decoded when
    /// this returns.
    pub(super) fn take(&mut self, position: u64) -> io::Result<Option<DecodedFrame>> {
        if position < self.left_to_walk {
            return Ok(None);
        }
        if self.ready.front().is_some_and(|frame| frame.from == position) {
            return Ok(self.ready.pop_front());
        }
        self.ready.clear();
        if self.jobs.front().is_none_or(|job| job.from != position) {
            // The walk went another way, or begins, or has passed what we could not.
            self.jobs.clear();
            self.in_work = 0;
            self.stuck = false;
            self.input.seek(position);
        }
        self.start_jobs()?;
        let Some(job) = self.jobs.pop_front() else {
            // Up to and over what we cannot decode; or each of the skippable frames before it would send us there again.
            self.left_to_walk = self.stuck_at.saturating_add(1);
            return Ok(None);
        };
        // A panic in there loses nothing: the walk decodes the frames again.
        let frames = job.thread.join().ok().flatten();
        self.in_work -= job.bytes;
        self.cancel.check()?;
        self.start_jobs()?;
        match frames {
            Some(frames) => self.ready = frames,
            None => self.left_to_walk = job.to,
        }
        Ok(self.ready.pop_front())
    }

    fn start_jobs(&mut self) -> io::Result<()> {
        while self.jobs.len() < self.threads && !self.stuck && self.in_work < MOST_IN_WORK {
            let from = self.input.position();
            let found = self.find()?;
            let Some(to) = found.frames.last().map(|frame| frame.end) else { return Ok(()) };
            let bytes = found.compressed.len() + found.decoded;
            let stop = [self.abandon.clone(), self.cancel.clone()];
            let Ok(thread) = Builder::new().name("zstd frames".into()).spawn(move || decode(&found, &stop)) else {
                self.stuck = true;
                return Ok(());
            };
            self.jobs.push_back(Job { from, to, bytes, thread });
            self.in_work += bytes;
        }
        Ok(())
    }

    /// Gathers frames until they are worth a thread. Stops at what the walk must see.
    fn find(&mut self) -> io::Result<Found> {
        let mut found = Found::default();
        let mut from = self.input.position();
        while found.decoded < WORTH && found.compressed.len() < LARGEST_FRAME && found.frames.len() < MOST_TOGETHER {
            self.cancel.check()?;
            let start = self.input.position();
            match Start::parse(self.input.fill(LONGEST_HEADER)?) {
                Start::Skippable(length) if self.input.skip(length) => {}
                Start::Frame(header) if self.gather(&header, from, start, &mut found)? => from = self.input.position(),
                _ => {
                    self.stuck = true;
                    self.stuck_at = start;
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Adds the frame at the input's position; false if it cannot be decoded as a whole.
    fn gather(&mut self, header: &FrameHeader, from: u64, start: u64, found: &mut Found) -> io::Result<bool> {
        let content = header.content.and_then(|content| usize::try_from(content).ok());
        let Some(content) = content.filter(|&content| content <= LARGEST_FRAME) else { return Ok(false) };
        if header.dictionary != 0 || header.window > self.limits.decoder_window {
            return Ok(false);
        }
        let begin = found.compressed.len();
        let mut whole = self.gather_bytes(header.length, found)?;
        let mut last = false;
        while whole && !last {
            let block = self.input.fill(BLOCK_HEADER)?.first_chunk().map(|bytes| BlockHeader::parse(*bytes, header));
            let Some(Ok(block)) = block else {
                whole = false;
                break;
            };
            last = block.last;
            whole = found.compressed.len() - begin <= LARGEST_FRAME
                && self.gather_bytes(BLOCK_HEADER + block.length, found)?;
        }
        if whole && header.checksum {
            whole = self.gather_bytes(CHECKSUM, found)?;
        }
        if !whole {
            found.compressed.truncate(begin);
            return Ok(false);
        }
        let decoded = found.decoded..found.decoded + content;
        found.decoded = decoded.end;
        let compressed = begin..found.compressed.len();
        found.frames.push(FoundFrame { from, start, end: self.input.position(), header: *header, compressed, decoded });
        Ok(true)
    }

    fn gather_bytes(&mut self, count: usize, found: &mut Found) -> io::Result<bool> {
        let Some(bytes) = self.input.fill(count)?.get(..count) else { return Ok(false) };
        found.compressed.extend_from_slice(bytes);
        self.input.consume(count);
        Ok(true)
    }

    /// Bytes of memory that the frames in work and those that are ready may take.
    pub(super) fn memory(&self) -> usize {
        let ready = self.ready.front().map_or(0, |frame| frame.together.capacity());
        self.input.memory() + self.in_work + ready
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.abandon.cancel();
    }
}

/// Decodes what was found; `None` if anything is wrong with any of it, or if nobody wants it any more.
fn decode(found: &Found, stop: &[Cancel]) -> Option<VecDeque<DecodedFrame>> {
    let mut blocks = Loan::take();
    let mut data = Vec::with_capacity(found.decoded);
    for frame in &found.frames {
        if stop.iter().any(Cancel::is_cancelled) {
            return None;
        }
        blocks.decode_frame(&frame.header, found.compressed.get(frame.compressed.clone())?, &mut data)?;
    }
    let together = Arc::new(data);
    let decoded = |frame: &FoundFrame| DecodedFrame {
        from: frame.from,
        start: frame.start,
        end: frame.end,
        together: Arc::clone(&together),
        decoded: frame.decoded.clone(),
    };
    Some(found.frames.iter().map(decoded).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn whole_frames_come_in_order_and_others_are_left() {
        let data = testing::sample(3000, 1);
        // Of the tests' size for one thread, and half of it: two of those are taken together.
        for (part, left) in [(1000, [true, false, true]), (500, [false, false, true])] {
            let mut frames: Vec<_> = data
                .chunks(part)
                .map(|part| testing::tool(&format!("zstd -q -c --stream-size={}", part.len()), part))
                .collect();
            frames.truncate(3);
            let mut stream = frames.concat();
            let options = Options { threads: 3, ..Options::default() };
            let mut ahead = Ahead::new(testing::source(&stream), &options).unwrap();
            let mut position = 0;
            for part in data.chunks(part).take(3) {
                let frame = ahead.take(position).unwrap().unwrap();
                assert!(frame.data() == part);
                position = frame.end;
            }
            assert!(ahead.take(position).unwrap().is_none());
            let middle = frames[0].len() + frames[1].len() / 2;
            stream[middle] ^= 1;
            let mut ahead = Ahead::new(testing::source(&stream), &options).unwrap();
            let starts = [0, frames[0].len(), frames[0].len() + frames[1].len()];
            assert_eq!(starts.map(|start| ahead.take(start as u64).unwrap().is_some()), left);
        }
    }
}
