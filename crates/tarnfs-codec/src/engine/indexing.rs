use std::collections::VecDeque;
use std::fmt;
use std::io;

use tarnfs_source::{Cancel, SharedSource};
use xxhash_rust::xxh3::Xxh3;

use super::{SpillWriter, checksum, placed};
use crate::{Checks, Chunk, Codec, Damage, FirstPass, Options, PIECE, SeekPoint};

/// The first decoding of a stream: hands out its bytes, and beside them the [`Chunk`]s with their checksums.
///
/// ```
/// # use std::{io, sync::Arc};
/// # use tarnfs_source::MemorySource;
/// # use tarnfs_codec::{Codec, Options, engine::Indexing};
/// # fn index(codec: &'static dyn Codec, source: MemorySource) -> io::Result<()> {
/// let mut indexing = Indexing::new(codec, Arc::new(source), &Options::default())?;
/// let (mut buffer, mut chunks) = (vec![0; 128 << 10], Vec::new());
/// while indexing.read(&mut buffer)? > 0 {
///     indexing.take_chunks(&mut chunks);
/// }
/// indexing.take_chunks(&mut chunks);
/// # Ok(())
/// # }
/// ```
pub struct Indexing {
    codec: &'static dyn Codec,
    pass: Box<dyn FirstPass>,
    cancel: Cancel,
    /// Bytes handed out.
    decoded: u64,
    /// Of these, the ones that were verified.
    settled: u64,
    /// Points reported and not yet the start of a chunk.
    points: VecDeque<SeekPoint>,
    /// The chunk that is being decoded.
    open: Option<Chunk>,
    /// Of its piece that is being decoded.
    hash: Xxh3,
    in_piece: usize,
    finished: Vec<Chunk>,
    ended: bool,
    /// Points that come are left out.
    leaves_out: bool,
    spill: SpillWriter,
}

impl Indexing {
    /// Starts decoding `source` from its start.
    pub fn new(codec: &'static dyn Codec, source: SharedSource, options: &Options) -> io::Result<Self> {
        Ok(Self::of_pass(codec, codec.first_pass(source, options)?, &options.cancel))
    }

    /// Takes what `pass` decodes, or knows without decoding it: the bytes and seek points of a stream of `codec`.
    pub fn of_pass(codec: &'static dyn Codec, pass: Box<dyn FirstPass>, cancel: &Cancel) -> Self {
        Self {
            codec,
            pass,
            cancel: cancel.clone(),
            decoded: 0,
            settled: 0,
            points: VecDeque::new(),
            open: None,
            hash: Xxh3::new(),
            in_piece: 0,
            finished: Vec::new(),
            ended: false,
            leaves_out: false,
            spill: SpillWriter::nothing(),
        }
    }

    /// From now on `spill` takes what is slow to decode.
    pub fn keep(&mut self, spill: SpillWriter) {
        self.spill = spill;
        self.spill.cancel = self.cancel.clone();
    }

    /// While this is true, seek points that the codec finds are left out, and chunks are longer for it.
    pub fn leave_out_points(&mut self, leaves_out: bool) {
        self.leaves_out = leaves_out;
    }

    /// After the end of the stream: true if pieces of it are in a [`DecodedFile`](super::DecodedFile) now. After an
    /// error there may be some.
    pub fn finish_keeping(&mut self) -> io::Result<bool> {
        std::mem::replace(&mut self.spill, SpillWriter::nothing()).finish()
    }

    /// Decodes into `buffer` and returns how many bytes; 0 at the end of the stream, and after an error.
    ///
    /// `Interrupted` once `options.cancel` was asked for; otherwise as [`Decoder::read`](crate::Decoder::read). What
    /// was decoded before an error is in the chunks.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        let result = self.cancel.check().and_then(|()| self.pass.read(buffer)).and_then(|read| {
            self.spill.measure();
            self.take_points();
            let data = buffer.get(..read).ok_or_else(|| broken("returned more bytes than were asked for"))?;
            self.add(data).map(|()| read)
        });
        if matches!(result, Ok(0)) {
            self.settled = self.decoded;
        }
        if !matches!(result, Ok(1..)) {
            self.end();
        }
        result
    }

    /// Nobody wants more of it: the chunk that is being decoded ends here.
    pub fn end(&mut self) {
        self.ended = true;
        self.close_chunk();
    }

    /// Moves the chunks that are finished into `into`, in order. After `read` has returned 0 or an error, the last one,
    /// cut at what was decoded, is among them.
    pub fn take_chunks(&mut self, into: &mut Vec<Chunk>) {
        into.append(&mut self.finished);
    }

    /// Moves the damage found so far into `into`.
    pub fn take_damage(&mut self, into: &mut Vec<Damage>) {
        self.pass.take_damage(into);
    }

    /// Moves what [`FirstPass::take_shifts`] has found into `into`.
    pub fn take_shifts(&mut self, into: &mut Vec<u64>) {
        self.pass.take_shifts(into);
    }

    /// Bytes of the compressed stream read so far.
    pub fn compressed_position(&self) -> u64 {
        self.pass.compressed_position()
    }

    /// Bytes of memory that the decoder holds.
    pub fn memory(&self) -> usize {
        self.pass.memory()
    }

    /// The same once it has decoded so many bytes more.
    pub fn memory_after(&self, bytes: u64) -> usize {
        self.pass.memory_after(bytes)
    }

    /// Bytes of the decoded stream handed out so far.
    pub fn decoded_position(&self) -> u64 {
        self.decoded
    }

    /// Bytes of the decoded stream, from its start, that will not be found to be damaged any more. (Damage that was
    /// found in them is known: see [`Indexing::take_damage`].)
    pub fn settled(&self) -> u64 {
        self.settled
    }

    fn take_points(&mut self) {
        let mut found = Vec::new();
        self.pass.take_points(&mut found);
        for point in found {
            let last = self.points.back().or(self.open.as_ref().map(|chunk| &chunk.point));
            if self.leaves_out && last.is_some() {
                continue;
            }
            // A point behind what is checksummed already would be of no use; without it the chunk is only longer.
            if point.decoded >= self.decoded && last.is_none_or(|last| last.decoded <= point.decoded) {
                self.points.push_back(point);
            } else {
                log::warn!("a seek point at decoded byte {} came too late and is left out", point.decoded);
            }
        }
    }

    /// Adds bytes to the checksums; points among them split them into chunks.
    fn add(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            while self.points.front().is_some_and(|point| point.decoded == self.decoded) {
                self.close_chunk();
                self.open = self.points.pop_front().map(|point| Chunk { point, ..Chunk::default() });
                self.settle();
                self.spill.seek_point();
            }
            let Some(chunk) = &mut self.open else {
                return Err(broken("found no seek point at the start of the stream"));
            };
            let until_point = self.points.front().map_or(u64::MAX, |point| point.decoded - self.decoded);
            let length =
                (PIECE - self.in_piece).min(data.len()).min(usize::try_from(until_point).unwrap_or(usize::MAX));
            let (now, later) = data.split_at(length);
            self.spill.decoded(now);
            if length == PIECE {
                let checksum = checksum(now, self.decoded);
                chunk.checksums.push(checksum);
                self.spill.piece(self.decoded, PIECE, checksum);
            } else {
                self.hash.update(now);
                self.in_piece += length;
                if self.in_piece == PIECE {
                    let start = self.decoded + length as u64 - PIECE as u64;
                    let checksum = placed(self.hash.digest(), start);
                    chunk.checksums.push(checksum);
                    self.spill.piece(start, PIECE, checksum);
                    self.hash.reset();
                    self.in_piece = 0;
                }
            }
            chunk.length += length as u64;
            self.decoded += length as u64;
            data = later;
        }
        self.settle();
        Ok(())
    }

    /// Takes note of what is verified: as the codec says of the chunk that is open, at whose point or behind it we are.
    fn settle(&mut self) {
        self.settled = self.settled.max(self.pass.verified_to().min(self.decoded));
        let Some(chunk) = &self.open else { return };
        match self.codec.settles(&chunk.point) {
            Checks::Itself => self.settled = self.decoded,
            Checks::Chunk => self.settled = self.settled.max(chunk.point.decoded),
            Checks::Whole => {}
        }
    }

    /// Finishes the chunk that is being decoded. One that is empty is left out: two points at the same byte, such as
    /// those of an empty member, are of no use.
    fn close_chunk(&mut self) {
        if let Some(mut chunk) = self.open.take().filter(|chunk| chunk.length > 0) {
            if self.in_piece > 0 {
                let start = self.decoded - self.in_piece as u64;
                let checksum = placed(self.hash.digest(), start);
                chunk.checksums.push(checksum);
                self.spill.piece(start, self.in_piece, checksum);
                self.hash.reset();
                self.in_piece = 0;
            }
            self.finished.push(chunk);
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::other(format!("the decoder {what}; this is an error in tarnfs, please report it"))
}

impl fmt::Debug for Indexing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Indexing")
            .field("decoded", &self.decoded)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
