//! The two streams of a chunk: what to do, and the bytes that are no matches. Each is a chain of blocks, which lie
//! between those of the other.

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource, Slice, Source};

use super::header::{BlockHeader, unsupported};
use super::lzo::LzoDecoder;
use crate::blocks::Stop;
use crate::bzip2::Bzip2;
use crate::gzip::Zlib;
use crate::input::Input;
use crate::lzma::Lzma;
use crate::{Codec, DecodeContext, Decoder, SeekPoint};

/// How blocks are packed.
pub(super) const STORED: u8 = 3;
const BZIP2: u8 = 4;
const LZO: u8 = 5;
const LZMA: u8 = 6;
const GZIP: u8 = 7;
const ZPAQ: u8 = 8;

/// `lc` and `lp` of LZMA together, as in xz.
const MOST_CONTEXT: u8 = 4;

/// One of the streams of a chunk.
pub(super) struct Stream {
    source: SharedSource,
    limits: Limits,
    cancel: Cancel,
    /// The properties and the dictionary of LZMA.
    lzma: [u8; 5],
    /// Bytes of the numbers in headers.
    width: usize,
    /// From here on places of blocks are counted.
    base: u64,
    /// The header of the next block; `None` behind the last one.
    next: Option<u64>,
    /// Behind the last block whose header was read, or behind the headers that the chunk begins with.
    end: u64,
    block: Option<Block>,
}

/// A block that is being decoded.
struct Block {
    decoder: Box<dyn Decoder>,
    /// Where its header is.
    at: u64,
    /// Bytes that are still to come.
    left: u64,
}

impl Stream {
    /// The stream whose first header is at the input's position, which is behind it then.
    pub(super) fn open(
        input: &mut Input,
        base: u64,
        width: usize,
        lzma: [u8; 5],
        limits: Limits,
        cancel: &Cancel,
    ) -> Result<Self, Stop> {
        let (source, at) = (SharedSource::clone(input.shared_source()), input.position());
        let header = BlockHeader::read(&*source, at, width)?.ok_or(Stop::Cut("the header of a chunk"))?;
        input.skip(BlockHeader::size(width));
        if !header.is_empty() {
            return Err(Stop::Invalid("no stream of a chunk begins there".to_owned()));
        }
        let cancel = cancel.clone();
        let mut stream =
            Self { source, limits, cancel, lzma, width, base, next: None, end: input.position(), block: None };
        stream.next = stream.place(header.next)?;
        Ok(stream)
    }

    /// Behind the last block whose header was read.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Fills `buffer`, or as much of it as there are bytes; returns how many.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Stop> {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(block) = &mut self.block else {
                let Some(header) = self.read_header()? else { break };
                self.block = Some(self.start(header)?);
                continue;
            };
            let rest = &mut buffer[filled..];
            let most = usize::try_from(block.left).unwrap_or(usize::MAX).min(rest.len());
            let read = block.decoder.read(&mut rest[..most]).map_err(|error| failed(block.at, error))?;
            if read == 0 {
                return Err(block.wrong("holds less than its header says"));
            }
            block.left -= read as u64;
            filled += read;
            if block.left == 0 {
                if block.decoder.read(&mut [0]).map_err(|error| failed(block.at, error))? > 0 {
                    return Err(block.wrong("holds more than its header says"));
                }
                self.block = None;
            }
        }
        Ok(filled)
    }

    /// Goes to the end, where all that was to be read must have been.
    pub(super) fn finish(&mut self) -> Result<(), Stop> {
        if let Some(block) = &self.block {
            return Err(block.wrong("holds more than its chunk needs"));
        }
        match self.read_header()? {
            Some((_, at)) => Err(Stop::Invalid(format!("the block at byte {at} is not needed by its chunk"))),
            None => Ok(()),
        }
    }

    /// Goes to the end without decoding.
    pub(super) fn skip(&mut self) -> Result<(), Stop> {
        self.block = None;
        while self.read_header()?.is_some() {}
        Ok(())
    }

    /// A place that a header says.
    fn place(&self, next: u64) -> Result<Option<u64>, Stop> {
        if next == 0 {
            return Ok(None);
        }
        // Blocks are written one after the other: so there is an end to them.
        match self.base.checked_add(next).filter(|&at| at >= self.end) {
            Some(at) if at < self.source.len() => Ok(Some(at)),
            Some(_) => Err(Stop::Cut("a chunk")),
            None => Err(Stop::Invalid("a block that lies before the one that leads to it".to_owned())),
        }
    }

    /// Reads the header of the next block that has bytes, and where it is.
    fn read_header(&mut self) -> Result<Option<(BlockHeader, u64)>, Stop> {
        while let Some(at) = self.next {
            // There may be any number of blocks that hold nothing.
            self.cancel.check()?;
            let header = BlockHeader::read(&*self.source, at, self.width)?.ok_or(Stop::Cut("the header of a block"))?;
            let start = at + BlockHeader::size(self.width);
            if header.packed > self.source.len() - start {
                return Err(Stop::Cut("a block"));
            }
            self.end = start + header.packed;
            self.next = self.place(header.next)?;
            // Of a stream that ends where a block does, an empty one is left.
            if !header.is_empty() {
                return Ok(Some((header, at)));
            }
        }
        Ok(None)
    }

    /// A decoder for the block whose header is at byte `at`.
    fn start(&self, (header, at): (BlockHeader, u64)) -> Result<Block, Stop> {
        let BlockHeader { method, packed, decoded, .. } = header;
        let data = Slice::new(SharedSource::clone(&self.source), self.end - packed, packed);
        let wrong = |what: &str| Err(Stop::Invalid(format!("the block at byte {at} {what}")));
        if packed == 0 || decoded == 0 {
            return wrong("is empty before it is unpacked or behind it");
        }
        let whole = SeekPoint::default();
        let context = DecodeContext { limits: self.limits, ..DecodeContext::default() };
        let decoder: Result<Box<dyn Decoder>, _> = match method {
            STORED if packed != decoded => return wrong("is stored, and has another length than its data"),
            STORED => Ok(Box::new(Stored(Input::new(shared(data), 0)))),
            LZO => Ok(Box::new(LzoDecoder::new(Input::new(shared(data), 0)))),
            BZIP2 => Bzip2.resume(shared(data), &whole, &context),
            GZIP => Zlib.resume(shared(data), &whole, &context),
            // What is learnt has a size that these say, and would be made for each of many small blocks. lrzip writes 3
            // and 0.
            LZMA if self.lzma[0] % 9 + self.lzma[0] / 9 % 5 > MOST_CONTEXT => {
                return wrong("is packed with LZMA of properties that lrzip does not use");
            }
            LZMA => Lzma.resume(shared(Alone::new(self.lzma, decoded, data)), &whole, &context),
            ZPAQ => {
                let what = format!(
                    "the block at byte {at} is packed with ZPAQ, which is not supported: \
                     decompress the file with lrzip -d, or compress it with another method"
                );
                return Err(unsupported(what));
            }
            _ => return wrong(&format!("is packed with method {method}, which is not known")),
        };
        Ok(Block { decoder: decoder.map_err(|error| failed(at, error))?, at, left: decoded })
    }

    /// Bytes of memory once so many bytes more were read.
    pub(super) fn memory_after(&self, bytes: u64) -> usize {
        self.block.as_ref().map_or(0, |block| block.decoder.memory_after(bytes))
    }
}

impl Block {
    fn wrong(&self, what: &str) -> Stop {
        Stop::Invalid(format!("the block at byte {} {what}", self.at))
    }
}

/// What is said where the block at byte `at` cannot be decoded.
fn failed(at: u64, error: io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Stop::Invalid(format!("the block at byte {at} cannot be decoded"))
        }
        io::ErrorKind::Unsupported => unsupported(format!("the block at byte {at} cannot be decoded: {error}")),
        _ => Stop::Io(error),
    }
}

fn shared(source: impl Source + 'static) -> SharedSource {
    SharedSource::from(Box::new(source) as Box<dyn Source>)
}

/// A block that is not packed.
struct Stored(Input);

impl Decoder for Stored {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.fill(1)?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        self.0.consume(length);
        Ok(length)
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

/// A block of LZMA as a file `.lzma`: with the header that its properties and its length are in.
#[derive(Debug)]
struct Alone {
    header: [u8; Self::HEADER],
    data: Slice,
}

impl Alone {
    const HEADER: usize = 13;

    fn new(properties: [u8; 5], length: u64, data: Slice) -> Self {
        let mut header = [0; Self::HEADER];
        header[..5].copy_from_slice(&properties);
        header[5..].copy_from_slice(&length.to_le_bytes());
        Self { header, data }
    }
}

impl Source for Alone {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let header = usize::try_from(offset).ok().and_then(|offset| self.header.get(offset..)).unwrap_or_default();
        let length = header.len().min(buffer.len());
        buffer[..length].copy_from_slice(&header[..length]);
        let behind = offset.saturating_add(length as u64).saturating_sub(Self::HEADER as u64);
        if length < buffer.len() { Ok(length + self.data.read_at(&mut buffer[length..], behind)?) } else { Ok(length) }
    }

    fn len(&self) -> u64 {
        Self::HEADER as u64 + self.data.len()
    }

    fn describe(&self) -> String {
        self.data.describe()
    }
}
