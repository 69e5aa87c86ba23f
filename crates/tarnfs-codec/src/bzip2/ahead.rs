//! Decodes the blocks that follow on other threads.
//!
//! It only spares the walk in `decoder` the work: what comes from here are blocks that could be decoded, and that begin
//! where the walk has arrived. They are found by their magic ([`Finder`]), which may also be inside of a block, or
//! behind the last: the walk never comes there, and what was decoded from there is thrown away when it has passed.
//! Whatever cannot be decoded is left to the walk, so that damage is met, reported and stepped over in one place.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::bit_reader::BitReader;
use super::block::{Block, Checked, LEVEL_SIZE, MAGIC_BITS, TOP_LEVEL, Workbench};
use super::finder::Finder;
use crate::Options;
use crate::thread_pool::{Job, ThreadPool};

/// Bytes that all threads may take together, with the blocks that they have decoded.
const MOST_MEMORY: usize = 128 << 20;

/// What one thread takes: the rows of a block, its text in parts and in one piece, and the texts that are ready.
const PER_THREAD: usize = 8 << 20;

/// Blocks that are found ahead of the walk, for each thread that decodes: the one that it is at, and one to go on with.
const FOUND_PER_THREAD: usize = 2;

/// Bytes behind a magic in which the next one is looked for. The longest block takes 18 002 groups of 50 codes of 20
/// bits, and the tables before them: 2.3 MB. Where there is none, the walk goes first: a small file may stand at the
/// start of a large disk, and nothing is decoded meanwhile.
const REACH: u64 = 3 << 20;

/// A block that has been decoded.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) block: Block,
    pub(super) checked: Checked,
    /// The bit behind it.
    pub(super) end: u64,
}

/// Decoding ahead of one walk.
pub(super) struct Ahead {
    cancel: Cancel,
    finder: Finder,
    /// Where the finder has arrived.
    found: u64,
    pool: ThreadPool<Unpacker>,
    /// Threads, with that of the walk.
    threads: usize,
    /// For the walk's thread: a reader, and where its workbench stays for as long as it is used here.
    tools: (Workbench, BitReader),
    /// Memory of blocks that have been read.
    spare: Vec<Block>,
}

/// Decodes the block whose magic is at the bit that is its place.
struct Unpacker(SharedSource);

impl Job for Unpacker {
    /// Memory to decode into.
    type Input = Block;
    type Output = Decoded;
    type Tools = (Workbench, BitReader);

    fn tools(&self) -> Self::Tools {
        (Workbench::new(), BitReader::new(self.0.clone(), 0))
    }

    fn work(&self, (bench, reader): &mut Self::Tools, bit: u64, mut block: Block) -> Option<Decoded> {
        reader.go_to(bit + MAGIC_BITS as u64);
        // The level of the stream is only known to the walk, which looks at it.
        let checked = bench.decode(reader, usize::from(TOP_LEVEL) * LEVEL_SIZE, &mut block).ok()?;
        Some(Decoded { block, checked, end: reader.position() })
    }
}

impl Ahead {
    /// `None` where the options leave no threads for it.
    pub(super) fn new(source: SharedSource, options: &Options) -> Option<Self> {
        let threads = options.threads.min(MOST_MEMORY / PER_THREAD);
        (threads > 1).then(|| {
            let unpacker = Unpacker(source.clone());
            Self {
                finder: Finder::new(source, 0),
                cancel: options.cancel.clone(),
                found: 0,
                tools: unpacker.tools(),
                pool: ThreadPool::new(unpacker, "bzip2 block", threads - 1),
                threads,
                spare: Vec::new(),
            }
        })
    }

    /// The block whose magic is at bit `bit`, if it has been decoded. Blocks behind it are being decoded when this
    /// returns.
    ///
    /// `bench` is that of the walk, which has no use for it now.
    pub(super) fn take(&mut self, bit: u64, bench: &mut Workbench) -> io::Result<Option<Decoded>> {
        if self.found <= bit {
            // The walk begins, or has gone where no magic was found; what is there it decodes itself.
            self.finder.go_to(bit + 1);
            self.found = bit + 1;
        }
        self.pool.drop_before(bit);
        for _ in self.pool.len()..self.threads * FOUND_PER_THREAD {
            // An error in what the walk has not reached is none yet.
            let end = (self.found / 8).saturating_add(REACH);
            let Ok(Some(next)) = self.finder.next_before(end, &self.cancel) else { break };
            self.found = next + 1;
            self.pool.add(next, self.spare.pop().unwrap_or_default());
        }
        std::mem::swap(&mut self.tools.0, bench);
        let taken = self.pool.take(bit, &mut self.tools, &self.cancel);
        std::mem::swap(&mut self.tools.0, bench);
        taken
    }

    /// Takes back a block that has been read.
    pub(super) fn recycle(&mut self, block: Block) {
        if self.spare.len() < self.threads {
            self.spare.push(block);
        }
    }

    /// Bytes of memory that it may take.
    pub(super) fn memory(&self) -> usize {
        self.finder.memory() + (self.pool.threads() + 1) * PER_THREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, source, tool};

    fn take(ahead: &mut Ahead, bit: u64) -> Option<(Vec<u8>, u64)> {
        let Decoded { mut block, checked, end } = ahead.take(bit, &mut Workbench::new()).unwrap()?;
        assert_eq!(checked.stated, checked.computed);
        let mut bytes = vec![0; checked.length as usize];
        assert_eq!(block.read(&mut bytes), bytes.len());
        ahead.recycle(block);
        Some((bytes, end))
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
            let mut ahead = Ahead::new(source(&stream), &options).unwrap();
            assert!(take(&mut ahead, blocks[0]).is_none(), "the walk itself is at the first one");
            let mut rest = &data[..];
            for (number, &bit) in blocks.iter().enumerate().skip(1) {
                ahead.pool.settle();
                let (bytes, end) = take(&mut ahead, bit).unwrap();
                if number == 1 {
                    rest = &data[data.windows(99).position(|part| bytes.starts_with(part)).unwrap()..];
                }
                rest = rest.strip_prefix(&bytes[..]).unwrap();
                assert!(blocks.get(number + 1).is_none_or(|&next| next == end));
            }
            assert!(rest.is_empty());
            assert_eq!(ahead.pool.threads(), threads - 1);
        }
    }

    #[test]
    fn what_is_no_block_is_left_to_the_walk() {
        let stream = tool("bzip2 -1 -c", &sample(2_000_000, 3));
        let magic = &stream[4..10];
        let bytes = [&stream[..4], magic, &[0xff; 50], magic, &[0; 50], &stream[4..]].concat();
        let options = Options { threads: 3, ..Options::default() };
        let mut ahead = Ahead::new(source(&bytes), &options).unwrap();
        assert!(take(&mut ahead, 32).is_none());
        ahead.pool.settle();
        assert!(take(&mut ahead, 60 * 8).is_none());
        assert!(take(&mut ahead, 116 * 8).is_some());
        let mut finder = Finder::new(source(&bytes), 117 * 8);
        let mut next = || finder.next(&Cancel::default()).unwrap().unwrap();
        ahead.pool.settle();
        assert!(take(&mut ahead, next()).is_some());
        // Over one of them, as from behind damage.
        next();
        ahead.pool.settle();
        assert!(take(&mut ahead, next()).is_some());
    }
}
