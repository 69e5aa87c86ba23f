//! A stream of bytes that is cut into blocks, which are compressed and written.

use std::fmt;
use std::io;

use tarnfs_codec::SeekPoint;
use tarnfs_tree::open::Options;

use crate::compress::{self, Block, Compression, Frame};
use crate::pipeline::{Pipeline, Sink, Work};
use crate::sidecar::{Fed, Pool, Reader};
use crate::{Finished, Output};

/// How an archive is written.
pub struct Writing {
    /// Where to.
    pub output: Output,
    /// How it is compressed.
    pub compression: &'static dyn Compression,
    /// How hard.
    pub level: i32,
    /// Threads that compress; at least 1.
    pub threads: usize,
    /// Bytes that all of them may take together. One thread always works.
    pub memory: u64,
    /// With these options its index is made; none without.
    pub index: Option<Options>,
}

impl Writing {
    /// Threads for which there is memory.
    pub(crate) fn threads(&self) -> usize {
        compress::threads(self.compression, self.level, self.threads, self.memory)
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Writing")
            .field("output", &self.output)
            .field("compression", &self.compression.name())
            .field("level", &self.level)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// A full block.
struct Raw {
    data: Vec<u8>,
    length: usize,
    block: Block,
}

/// Writes blocks in order.
struct Ordered {
    output: Output,
    frame: Box<dyn Frame>,
    is_plain: bool,
    spacing: u64,
    /// Bytes written, and bytes that they are decoded.
    written: u64,
    decoded: u64,
    /// Of the last seek point.
    last: Option<u64>,
    reader: Option<Reader>,
    pool: Pool,
    packed: Pool,
}

impl Ordered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Of the places where decoding can start, those that a first pass would keep.
    fn points(&mut self, block: &mut Block) -> Vec<SeekPoint> {
        let mut kept = Vec::new();
        for point in block.points.drain(..) {
            let decoded = self.decoded + point.decoded;
            let is_due = self.last.is_none_or(|last| decoded - last >= self.spacing);
            if !is_due {
                continue;
            }
            kept.push(match self.last {
                // The start of the stream is a place of its own, before what stands before the first block, where
                // decoders begin without having been told anything. (In bzip2 each block is told how large it may be.)
                None if point.bit == 0 => SeekPoint { state: self.frame.first_state(), ..SeekPoint::default() },
                _ => SeekPoint { compressed_bit: self.written * 8 + point.bit, decoded, state: point.state },
            });
            self.last = Some(decoded);
        }
        kept
    }
}

impl Sink<Raw> for Ordered {
    fn take(&mut self, done: Raw) -> io::Result<()> {
        let Raw { data, length, mut block } = done;
        let points = self.points(&mut block);
        if self.is_plain {
            self.write(&data[..length])?;
        } else {
            self.write(&block.bytes)?;
        }
        self.frame.add(&data[..length], &block);
        self.decoded += length as u64;
        self.packed.give_back(block.bytes);
        let fed = Fed { data, length, points, compressed: self.written };
        let back = match &mut self.reader {
            Some(reader) => reader.feed(fed),
            None => Err(fed),
        };
        if let Err(fed) = back {
            self.pool.give_back(fed.data);
        }
        Ok(())
    }
}

/// Takes the bytes of a stream; see the module.
pub struct BlockStream {
    pipeline: Pipeline<Raw, Raw, Ordered>,
    data: Vec<u8>,
    filled: usize,
    length: usize,
    position: u64,
    pool: Pool,
    packed: Pool,
}

impl BlockStream {
    /// Starts its threads.
    pub fn new(mut writing: Writing) -> io::Result<Self> {
        let (compression, level) = (writing.compression, writing.level);
        let (pool, packed) = (Pool::default(), Pool::default());
        let threads = writing.threads();
        let reader = match (writing.index.take(), writing.output.path()) {
            (Some(options), Some(path)) => Some(Reader::start(path.to_owned(), compression.name(), &pool, options)?),
            _ => None,
        };
        let work = || -> io::Result<Work<Raw, Raw>> {
            let mut compressor = compression.compressor(level)?;
            Ok(Box::new(move |mut raw: Raw| {
                compressor.compress(&raw.data[..raw.length], &mut raw.block)?;
                Ok(raw)
            }))
        };
        let is_plain = compression.is_plain();
        let works = if is_plain { Vec::new() } else { (0..threads).map(|_| work()).collect::<io::Result<_>>()? };
        let own: Option<Work<Raw, Raw>> = is_plain.then(|| Box::new(Ok) as _);
        let mut ordered = Ordered {
            output: writing.output,
            frame: compression.frame(level),
            is_plain,
            spacing: compression.spacing(),
            written: 0,
            decoded: 0,
            last: None,
            reader,
            pool: pool.clone(),
            packed: packed.clone(),
        };
        let start = ordered.frame.start();
        // Points count from the file's first byte on.
        ordered.write(&start)?;
        let most = if is_plain { 4 } else { 2 * threads + 1 };
        let length = compression.block(level);
        let pipeline = Pipeline::new(own, works, most, ordered)?;
        Ok(Self { pipeline, data: pool.take(length), filled: 0, length, position: 0, pool, packed })
    }

    /// Bytes put so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Room for what comes next, never none: to be filled, as far as [`BlockStream::fill`] then says.
    pub fn room(&mut self) -> io::Result<&mut [u8]> {
        if self.filled == self.length {
            self.send()?;
        }
        Ok(&mut self.data[self.filled..])
    }

    /// The first `length` bytes of the room were filled.
    pub fn fill(&mut self, length: usize) {
        self.filled += length;
        self.position += length as u64;
    }

    /// Puts `bytes`.
    pub fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.fill(now.len());
            bytes = later;
        }
        Ok(())
    }

    /// Puts so many zeros.
    pub fn put_zeros(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let room = self.room()?;
            let now = room.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            room[..now].fill(0);
            self.fill(now);
            count -= now as u64;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let data = std::mem::take(&mut self.data);
        let mut block = Block { bytes: self.packed.take(0), ..Block::default() };
        block.clear();
        self.pipeline.send(Raw { data, length: self.filled, block })?;
        self.data = self.pool.take(self.length);
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left, and the end of the compressed stream.
    pub fn finish(mut self) -> io::Result<Finished> {
        if self.filled > 0 {
            self.send()?;
        }
        let mut ordered = self.pipeline.finish()?;
        let end = ordered.frame.end();
        ordered.write(&end)?;
        let index = ordered.reader.take().map(Reader::finish);
        Ok(Finished { output: ordered.output, index, length: ordered.written })
    }
}

impl fmt::Debug for BlockStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BlockStream").field("position", &self.position).finish_non_exhaustive()
    }
}
