//! What is written, as it looks to who makes the index: blocks with their seek points come over a queue, and a thread
//! reads them as the decoder of a finished archive would give them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tarnfs_codec::{Decoder, Findings, FirstPass, SeekPoint};
use tarnfs_format::Stream;
use tarnfs_format::stream::MOST_PEEKED;
use tarnfs_tree::build::Along;
use tarnfs_tree::open::{Options, Problem, ReadAlong, read_along};

/// Blocks that may wait for the thread.
const WAITING: usize = 4;

/// Buffers of blocks, used again: memory that comes new from the system costs more than what is done with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// A buffer of `length` bytes, which may hold anything.
    pub(crate) fn take(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

/// A block that was written.
#[derive(Debug)]
pub(crate) struct Fed {
    /// Its first `length` bytes, before they were compressed.
    pub(crate) data: Vec<u8>,
    pub(crate) length: usize,
    /// Where decoding can start in it.
    pub(crate) points: Vec<SeekPoint>,
    /// Bytes of the archive up to its end.
    pub(crate) compressed: u64,
}

/// The thread that makes the index.
#[derive(Debug)]
pub(crate) struct Reader {
    feed: Option<SyncSender<Fed>>,
    thread: JoinHandle<Result<ReadAlong, Problem>>,
}

impl Reader {
    /// Starts it, for an archive at `path` compressed with `codec`.
    pub(crate) fn start(path: PathBuf, codec: &'static str, pool: &Pool, options: Options) -> io::Result<Self> {
        let (feed, blocks) = sync_channel(WAITING);
        let blocks = Blocks { blocks, pool: pool.clone() };
        let thread = std::thread::Builder::new().name("indexing".into()).spawn(move || {
            let along = match tarnfs_codec::by_name(codec) {
                Some(codec) => Along::Compressed(codec, Box::new(Pass::new(blocks))),
                None => Along::Plain(Box::new(Plain::new(blocks))),
            };
            read_along(&path, along, &options)
        })?;
        Ok(Self { feed: Some(feed), thread })
    }

    /// Hands on a block. Gives it back if the thread has ended: why, [`Reader::finish`] will say.
    pub(crate) fn feed(&mut self, fed: Fed) -> Result<(), Fed> {
        let Some(feed) = &self.feed else { return Err(fed) };
        feed.send(fed).map_err(|error| error.0)
    }

    /// There is no more.
    pub(crate) fn finish(mut self) -> Result<ReadAlong, Problem> {
        drop(self.feed.take());
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(Problem::Unwritten("the thread that makes the index has panicked".to_owned())))
    }
}

/// Where blocks come from, and where their memory goes to.
struct Blocks {
    blocks: Receiver<Fed>,
    pool: Pool,
}

impl Blocks {
    fn next(&self) -> Option<Fed> {
        self.blocks.recv().ok()
    }
}

/// The first pass of what is being compressed: nothing is decoded, since it is there.
struct Pass {
    blocks: Blocks,
    now: Option<Fed>,
    /// Bytes of `now` that were handed out.
    at: usize,
    compressed: u64,
    findings: Findings,
}

impl Pass {
    fn new(blocks: Blocks) -> Self {
        Self { blocks, now: None, at: 0, compressed: 0, findings: Findings::default() }
    }
}

impl Decoder for Pass {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(fed) = self.now.as_ref().filter(|fed| self.at < fed.length) {
                let rest = &fed.data[self.at..fed.length];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.at += count;
                return Ok(count);
            }
            if let Some(done) = self.now.take() {
                self.blocks.pool.give_back(done.data);
            }
            let Some(mut fed) = self.blocks.next() else { return Ok(0) };
            self.findings.points.append(&mut fed.points);
            self.compressed = fed.compressed;
            (self.now, self.at) = (Some(fed), 0);
        }
    }

    fn memory(&self) -> usize {
        self.now.as_ref().map_or(0, |fed| fed.data.capacity())
    }
}

impl FirstPass for Pass {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.compressed
    }
}

/// An archive that is not compressed. What is skipped of it is not looked at.
struct Plain {
    source: Blocks,
    blocks: VecDeque<Fed>,
    /// Bytes of the first of them that were passed.
    at: usize,
    position: u64,
    /// What lies in two blocks, put together to be shown.
    joined: Vec<u8>,
    is_over: bool,
}

impl Plain {
    fn new(source: Blocks) -> Self {
        Self { source, blocks: VecDeque::new(), at: 0, position: 0, joined: Vec::new(), is_over: false }
    }

    fn more(&mut self) -> bool {
        match self.source.next() {
            Some(fed) => self.blocks.push_back(fed),
            None => self.is_over = true,
        }
        !self.is_over
    }

    fn drop_passed(&mut self) {
        while self.blocks.front().is_some_and(|fed| self.at >= fed.length) {
            let Some(fed) = self.blocks.pop_front() else { return };
            self.at -= fed.length;
            self.source.pool.give_back(fed.data);
        }
    }
}

impl Stream for Plain {
    fn position(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if length > MOST_PEEKED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.drop_passed();
        let mut there = self.blocks.iter().map(|fed| fed.length).sum::<usize>().saturating_sub(self.at);
        while there < length && !self.is_over {
            if self.more() {
                there += self.blocks.back().map_or(0, |fed| fed.length);
            }
        }
        let first = self.blocks.front().map_or(0, |fed| fed.length - self.at);
        if first >= length.min(there) {
            let Some(fed) = self.blocks.front() else { return Ok(&[]) };
            return Ok(&fed.data[self.at..fed.length.min(self.at + length)]);
        }
        self.joined.clear();
        let mut from = self.at;
        for fed in &self.blocks {
            let rest = &fed.data[from..fed.length];
            self.joined.extend_from_slice(&rest[..rest.len().min(length - self.joined.len())]);
            from = 0;
        }
        Ok(&self.joined)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut left = length;
        loop {
            self.drop_passed();
            let Some(fed) = self.blocks.front() else {
                if self.is_over || left == 0 || !self.more() {
                    break;
                }
                continue;
            };
            let step = left.min((fed.length - self.at) as u64);
            self.at += step as usize;
            self.position += step;
            left -= step;
            if left == 0 {
                break;
            }
        }
        Ok(length - left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream in blocks of odd lengths shows the same bytes as one in memory.
    #[test]
    fn a_stream_in_blocks_is_walked_like_any_other() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        for step in [1, 513, 4096, 30_000] {
            let (feed, blocks) = sync_channel(100_000 / 700 + 2);
            for part in bytes.chunks(700) {
                // Buffers may be longer than what is in them.
                let data = [part, &[0xff; 9]].concat();
                feed.send(Fed { data, length: part.len(), points: Vec::new(), compressed: 0 }).unwrap();
            }
            drop(feed);
            let mut stream = Plain::new(Blocks { blocks, pool: Pool::default() });
            let mut at = 0_usize;
            loop {
                for length in [0, 1, 512, 5000] {
                    let end = (at + length).min(bytes.len());
                    assert_eq!(stream.peek(length).unwrap(), &bytes[at..end], "{length} bytes at {at}");
                }
                let moved = stream.skip(step).unwrap() as usize;
                at += moved;
                assert_eq!(stream.position(), at as u64);
                if moved == 0 {
                    break;
                }
            }
            assert_eq!(at, bytes.len());
        }
    }
}
