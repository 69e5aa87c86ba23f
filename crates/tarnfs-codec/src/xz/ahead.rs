//! Decodes the blocks that follow on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here is a whole block in which nothing was wrong. Any
//! other block is left to the walk, so that damage is met, reported and stepped over in one place.
//!
//! Each block has a thread of its own, not one of a [pool](crate::thread_pool): a block may take as much memory as all
//! that is in work, so those that nobody wants are called back and waited for, and the walk never works beside them.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::thread::{Builder, JoinHandle};

use tarnfs_source::{Cancel, SharedSource};

use super::block::{BlockDecoder, Outcome, dictionary_of};
use super::container::{CheckId, LONGEST_BLOCK_HEADER, block_header, block_header_length, padded};
use super::decoder::LARGEST_RATIO;
use super::index::{Record, Records, Search};
use crate::Options;
use crate::input::Input;
use crate::lzma::LzmaPoint;

/// Bytes that all blocks in work, and the one that the walk is at, may take together: decoded, as dictionary, and of
/// the compressed ones what is in memory.
const MOST_IN_WORK: u64 = 128 << 20;

/// Compressed bytes of one block that are in memory, at most.
const MOST_READ: u64 = 512 << 10;

/// Decoded bytes of a block that is worth a thread. (In the tests any is.)
const LEAST: u64 = if cfg!(test) { 1 } else { 256 << 10 };

/// Bytes of padding behind the streams, over which the index is looked for.
const MOST_PADDING: u64 = 8 << 20;

/// Decoded bytes between two looks at whether the work is still wanted.
const STRIDE: usize = 256 << 10;

/// A block in which nothing was wrong.
pub(super) struct DecodedBlock {
    pub(super) data: Vec<u8>,
    pub(super) record: Record,
    /// Offset in the compressed stream of what follows it.
    pub(super) end: u64,
    /// Seek points inside.
    pub(super) points: Vec<LzmaPoint>,
}

/// The blocks that are being decoded, in order.
pub(super) struct Ahead {
    source: SharedSource,
    options: Options,
    jobs: VecDeque<Job>,
    in_work: u64,
    /// Bytes of the block that the walk is at: as decoded, until it has handed them out, or of the dictionary where it
    /// decodes the block itself.
    of_walk: u64,
    /// [`MOST_IN_WORK`], but for tests.
    most: u64,
    /// The block behind those in work; `None` while its place is not known.
    next: Option<u64>,
    search: Search,
    /// What the index says of the blocks from `next` on.
    records: Option<Records>,
    /// Memory of a block that has been delivered: fresh memory costs a tenth of decoding to it.
    spare: Vec<u8>,
}

struct Job {
    start: u64,
    bytes: u64,
    /// Bytes of the dictionary.
    dictionary: u64,
    /// None for a block that is left to the walk.
    thread: Option<JoinHandle<Option<DecodedBlock>>>,
    /// Asks the thread to end when nobody wants its block any more.
    abandon: Cancel,
}

impl Ahead {
    /// `None` where the options leave no threads for it.
    pub(super) fn new(source: SharedSource, options: &Options) -> Option<Self> {
        (options.threads > 1).then(|| Self {
            search: Search::new(source.clone()).with_padding(MOST_PADDING),
            source,
            options: options.clone(),
            jobs: VecDeque::new(),
            in_work: 0,
            of_walk: 0,
            most: MOST_IN_WORK,
            next: None,
            records: None,
            spare: Vec::new(),
        })
    }

    /// The block at byte `position`, if it could be decoded ahead. Blocks behind it are being decoded when this
    /// returns.
    pub(super) fn take(&mut self, position: u64, check: CheckId) -> io::Result<Option<DecodedBlock>> {
        if self.jobs.front().is_none_or(|job| job.start != position) {
            // The walk went another way, or begins.
            self.abandon_jobs();
            self.next = Some(position);
            self.records = None;
        }
        self.of_walk = 0;
        self.start_jobs(check);
        let Some(job) = self.jobs.pop_front() else { return Ok(None) };
        // A panic in there loses nothing: the walk decodes the block again.
        let block = job.thread.and_then(|thread| thread.join().ok()).flatten();
        self.in_work -= job.bytes;
        self.options.cancel.check()?;
        self.of_walk = if let Some(block) = &block {
            block.data.capacity() as u64
        } else {
            self.spare = Vec::new();
            job.dictionary
        };
        self.start_jobs(check);
        Ok(block)
    }

    fn start_jobs(&mut self, check: CheckId) {
        while self.jobs.len() < self.options.threads {
            let Some(start) = self.next else { return };
            // An error in what the walk has not reached is none yet.
            let sizes = self.sizes_of(start, check).ok().flatten();
            let place = sizes.and_then(|(record, dictionary)| {
                let length = padded(record.unpadded)?;
                let end = start.checked_add(length).filter(|&end| end <= self.source.len())?;
                let bytes = length.min(MOST_READ).checked_add(record.uncompressed)?.checked_add(dictionary)?;
                Some((record, end, bytes, dictionary))
            });
            let Some((record, end, bytes, dictionary)) = place else {
                self.next = None;
                return;
            };
            // With nothing beside it, it is of use to hand out its bytes while it is decoded.
            let is_alone = self.jobs.is_empty() && self.is_index_at(end).unwrap_or(false);
            let is_possible = record.uncompressed / LARGEST_RATIO <= record.unpadded;
            // One beside which there is no room for itself, as it is handed out, would stop all others for that time.
            let has_room = bytes.saturating_add(record.uncompressed) <= self.most;
            let worth = record.uncompressed >= LEAST && has_room && is_possible && !is_alone;
            // The walk is at one block at a time.
            let left = self.jobs.iter().filter(|job| job.thread.is_none()).map(|job| job.dictionary);
            let of_walk = left.chain([self.of_walk]).max().unwrap_or_default();
            let (more, of_walk) = if worth { (bytes, of_walk) } else { (0, of_walk.max(dictionary)) };
            let together = self.in_work.saturating_add(more).saturating_add(of_walk);
            if (worth || self.in_work > 0) && together > self.most {
                return;
            }
            let abandon = Cancel::default();
            let thread = if worth { self.spawn(start..end, record, check, &abandon) } else { None };
            let bytes = if thread.is_some() { bytes } else { 0 };
            self.jobs.push_back(Job { start, bytes, dictionary, thread, abandon });
            self.in_work += bytes;
            self.next = Some(end);
            if let Some(records) = self.records.take() {
                self.records = records.next().ok().flatten();
            }
        }
    }

    /// The index of a stream begins with a zero byte, which no block does (xz file format, 4).
    fn is_index_at(&self, position: u64) -> io::Result<bool> {
        let mut indicator = [1];
        self.source.read_at(&mut indicator, position)?;
        Ok(indicator == [0])
    }

    /// Takes back the memory of a block that was taken.
    pub(super) fn recycle(&mut self, data: Vec<u8>) {
        self.spare = data;
        self.of_walk = 0;
    }

    fn spawn(
        &mut self,
        place: Range<u64>,
        record: Record,
        check: CheckId,
        abandon: &Cancel,
    ) -> Option<JoinHandle<Option<DecodedBlock>>> {
        let mut memory = std::mem::take(&mut self.spare);
        // It is counted as it is said to be.
        memory.truncate(usize::try_from(record.uncompressed).unwrap_or(usize::MAX));
        memory.shrink_to(usize::try_from(record.uncompressed).unwrap_or(usize::MAX));
        let (source, options, abandon) = (self.source.clone(), self.options.clone(), abandon.clone());
        let work = Work { source, place, record, check, options, abandon };
        // Where no thread is to be had, the walk does it.
        Builder::new().name("xz block".into()).spawn(move || work.decode(memory)).ok()
    }

    /// From the block's header or from the index, with the bytes of its dictionary. Both may lie: then the block does
    /// not decode as they say.
    fn sizes_of(&mut self, start: u64, check: CheckId) -> io::Result<Option<(Record, u64)>> {
        let mut bytes = [0; LONGEST_BLOCK_HEADER];
        let read = self.source.read_at(&mut bytes, start)?;
        let size = bytes[0];
        let Some(bytes) = bytes[..read].get(..block_header_length(size)).filter(|_| size > 0) else { return Ok(None) };
        let Ok(header) = block_header(bytes, check) else { return Ok(None) };
        if let (Some(compressed), Some(uncompressed)) = (header.compressed, header.uncompressed) {
            let unpadded = compressed.checked_add((header.length + check.size()) as u64);
            let record = unpadded.map(|unpadded| Record { unpadded, uncompressed });
            return Ok(record.map(|record| (record, dictionary_of(&header, uncompressed))));
        }
        if self.records.is_none() {
            self.records = self.search.records_from(start, &self.options.cancel)?;
        }
        let record = self.records.as_ref().map(Records::current);
        Ok(record.map(|record| (record, dictionary_of(&header, record.uncompressed))))
    }

    /// Ends all jobs. Waits until they have ended: a file of which each block sends the walk another way could leave
    /// any number of them behind, each with its memory.
    fn abandon_jobs(&mut self) {
        for job in &self.jobs {
            job.abandon.cancel();
        }
        for thread in self.jobs.drain(..).filter_map(|job| job.thread) {
            let _ = thread.join();
        }
        self.in_work = 0;
    }

    /// Bytes of memory that the blocks in work may take, and of one that was handed out.
    pub(super) fn memory(&self) -> usize {
        usize::try_from(self.in_work).unwrap_or(usize::MAX).saturating_add(self.spare.capacity())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.abandon_jobs();
    }
}

/// What the thread of a block knows.
struct Work {
    source: SharedSource,
    /// Bytes of the compressed stream.
    place: Range<u64>,
    record: Record,
    check: CheckId,
    options: Options,
    /// Nobody wants it any more.
    abandon: Cancel,
}

impl Work {
    /// Decodes the block into `data`, whatever that holds; `None` if it is not exactly what its record says, or if
    /// nobody wants it any more.
    fn decode(self, mut data: Vec<u8>) -> Option<DecodedBlock> {
        let Self { source, place, record, check, options, abandon } = self;
        let mut input = Input::new(source, place.start);
        let bytes = input.fill(LONGEST_BLOCK_HEADER).ok()?;
        let header = block_header(bytes.get(..block_header_length(*bytes.first()?))?, check).ok()?;
        input.consume(header.length);
        let compressed = record.unpadded.checked_sub((header.length + check.size()) as u64)?;
        let announced = header.uncompressed.is_none_or(|size| size == record.uncompressed)
            && header.compressed.is_none_or(|size| size == compressed);
        let mut decoder =
            BlockDecoder::new(&header, Some(check), compressed, &options.limits).ok()?.ok().filter(|_| announced)?;
        let expected = usize::try_from(record.uncompressed).ok()?;
        data.truncate(expected);
        data.try_reserve_exact(expected - data.len()).ok()?;
        let (mut filled, mut surplus, mut points) = (0, [0], Vec::new());
        decoder.survey(options.seek_point_spacing);
        loop {
            if abandon.is_cancelled() || options.cancel.is_cancelled() {
                return None;
            }
            let left = usize::try_from(compressed - decoder.taken()).ok()?;
            let available = input.fill(decoder.wanted()).ok()?;
            // Memory is touched only as it fills: the sizes may lie.
            let stride = expected.min(filled + STRIDE);
            if data.len() < stride {
                data.resize(stride, 0);
            }
            let room = if filled < expected { &mut data[filled..stride] } else { &mut surplus[..] };
            let step = decoder.decode(&available[..left.min(available.len())], room).ok()?;
            let idle = step.taken == 0 && step.written == 0;
            decoder.take_points(&mut points);
            input.consume(step.taken);
            filled += step.written;
            match step.outcome {
                Outcome::End => break,
                // One byte too many tells that the record lies: the rest may be of any length.
                Outcome::More if !idle && filled <= expected => {}
                _ => return None,
            }
        }
        let length = usize::try_from(place.end - input.position()).ok()?;
        let rest = input.fill(length).ok()?.get(..length)?;
        let (padding, stored) = rest.split_at(length.checked_sub(check.size())?);
        let good = filled == expected && decoder.taken() == compressed && padding.iter().all(|&byte| byte == 0);
        (good && decoder.matches(stored)).then_some(DecodedBlock { data, record, end: place.end, points })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing;

    #[test]
    fn whole_blocks_come_in_order_and_others_are_left() {
        let data = testing::sample(500_000, 1);
        let mut file = testing::tool("xz -q -c -1 --block-size=100000", &data);
        let options = Options { threads: 3, ..Options::default() };
        let mut ahead = Ahead::new(testing::source(&file), &options).unwrap();
        let (mut position, mut starts) = (12, vec![]);
        for part in data.chunks(100_000) {
            starts.push(position as usize);
            let block = ahead.take(position, CheckId::CRC64).unwrap().unwrap();
            assert!(block.data == part);
            position = block.end;
        }
        assert!(ahead.take(position, CheckId::CRC64).unwrap().is_none());
        file[starts[2] + 1000] ^= 1;
        let mut ahead = Ahead::new(testing::source(&file), &options).unwrap();
        let found = starts.iter().map(|&start| ahead.take(start as u64, CheckId::CRC64).unwrap().is_some());
        assert_eq!(found.collect::<Vec<_>>(), [true, true, false, true, true]);
    }

    #[test]
    fn a_walk_that_goes_another_way_leaves_no_thread_behind() {
        const BLOCK: usize = 10_000_000;
        let file = testing::tool("xz -q -c -0 --block-size=10000000", &vec![0; 6 * BLOCK]);
        let options = Options { threads: 3, ..Options::default() };
        let ahead = || {
            let source = testing::source(&file);
            (Ahead::new(SharedSource::clone(&source), &options).unwrap(), source)
        };
        let (mut first, source) = ahead();
        let second_block = first.take(12, CheckId::CRC64).unwrap().unwrap().end;
        assert_eq!(first.jobs.len(), 3);
        let third_block = first.take(second_block, CheckId::CRC64).unwrap().unwrap().end;
        // What is read by nobody: padding of the file's own, where no block begins.
        assert!(first.take(third_block + 4, CheckId::CRC64).unwrap().is_none());
        assert_eq!((first.jobs.len(), first.memory()), (0, 0));
        // Each thread holds the source.
        let (mut other, source_of_other) = ahead();
        assert!(other.take(third_block + 4, CheckId::CRC64).unwrap().is_none());
        assert_eq!(Arc::strong_count(&source), Arc::strong_count(&source_of_other));
        drop(first);
        assert_eq!(Arc::strong_count(&source), 1);
    }

    #[test]
    fn what_is_handed_out_counts_with_what_is_in_work() {
        const BLOCK: usize = 400_000;
        let data = vec![0; 8 * BLOCK];
        let file = testing::tool("xz -q -c -0 --block-size=400000", &data);
        let options = Options { threads: 4, ..Options::default() };
        let mut ahead = Ahead::new(testing::source(&file), &options).unwrap();
        // As for three blocks, whose dictionaries have 256 KiB.
        ahead.most = 3 * (BLOCK as u64 + (256 << 10)) + 10_000;
        let (mut position, mut most_at_work) = (12, 0);
        for _ in 0..8 {
            let block = ahead.take(position, CheckId::CRC64).unwrap().unwrap();
            assert_eq!(block.data.len(), BLOCK);
            let together = ahead.in_work + block.data.capacity() as u64;
            assert!(together <= ahead.most, "{together} of {}", ahead.most);
            most_at_work = most_at_work.max(ahead.jobs.len());
            position = block.end;
            ahead.recycle(block.data);
            assert!(ahead.memory() >= BLOCK, "what is spare counts, too");
        }
        assert_eq!(most_at_work, 2);
    }

    #[test]
    fn what_the_walk_decodes_itself_counts_with_what_is_in_work() {
        // A block beside which there is no room for itself, and small ones.
        let data = vec![0; 1_200_000];
        let file = testing::tool("xz -q -c -0 --block-list=800000,100000,100000,100000,100000", &data);
        let options = Options { threads: 4, ..Options::default() };
        let mut ahead = Ahead::new(testing::source(&file), &options).unwrap();
        // Its dictionary of 256 KiB, and one of the small ones with as much as dictionary.
        ahead.most = 600_000;
        assert!(ahead.take(12, CheckId::CRC64).unwrap().is_none());
        assert_eq!((ahead.of_walk, ahead.jobs.len()), (256 << 10, 1));
        assert!(ahead.jobs[0].thread.is_some());
        // Without it there is room for two: one that is handed out, and one behind it.
        let second = ahead.jobs[0].start;
        let block = ahead.take(second, CheckId::CRC64).unwrap().unwrap();
        assert_eq!((block.data.len(), ahead.jobs.len()), (100_000, 2));
    }

    /// Or it would go on to the block's end a byte at a time, with a dictionary that nobody has counted.
    #[test]
    fn a_block_of_more_than_its_record_says_is_left_where_that_shows() {
        const BLOCK: u64 = 4 << 20;
        let file = testing::tool("xz -q -c -0 --block-size=4194304", &testing::noise(BLOCK as usize));
        let records = Search::new(testing::source(&file)).records_from(12, &Cancel::default()).unwrap();
        let record = records.as_ref().map(Records::current).unwrap();
        assert_eq!(record.uncompressed, BLOCK);
        for said in [BLOCK, BLOCK / 4] {
            let is_read_on = Cancel::default();
            let source = testing::CancelledBehind(testing::source(&file), BLOCK / 2, is_read_on.clone());
            let place = 12..12 + padded(record.unpadded).unwrap();
            let record = Record { uncompressed: said, ..record };
            let (source, check) = (Arc::new(source), CheckId::CRC64);
            let (options, abandon) = (Options::default(), Cancel::default());
            let block = Work { source, place, record, check, options, abandon }.decode(Vec::new());
            let is_whole = said == BLOCK;
            assert_eq!((block.is_some(), is_read_on.is_cancelled()), (is_whole, is_whole), "{said} bytes");
        }
    }

    #[test]
    fn a_block_alone_is_left_to_the_walk() {
        let data = testing::sample(100_000, 1);
        let file = testing::tool("xz -q -c -1", &data);
        let mut ahead = Ahead::new(testing::source(&file), &Options { threads: 3, ..Options::default() }).unwrap();
        assert!(ahead.take(12, CheckId::CRC64).unwrap().is_none());
    }
}
