//! Resources of WIM: what was compressed in chunks that each stand for themselves, behind a table of where they lie.
//!
//! `chunked` is one resource, and has a SHA-1 of all that comes of it, which is compared. Properties: the compression
//! (0 none, 1 XPRESS, 2 LZX, 3 LZMS), bytes of a number of the table (4 or 8), those of a chunk (4, little-endian), and
//! the SHA-1. `chunked-solid` is a resource that holds many files; it says itself what it is, and has no properties.
//!
//! The formats: "Windows Imaging File Format (WIM)" of Microsoft, [MS-XCA], [MS-PATCH]; of LZMS and of solid resources
//! nothing was published.

mod lzms;
mod xpress;

use std::io;

use sha1::{Digest, Sha1};
use tarnfs_source::{Limits, SharedSource};

use super::invalid_properties;
use super::lzx::{Dialect, Lzx};
use super::prefix::Prefix;
use super::straight::{Anywhere, Straight};
use crate::faults;
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};
use lzms::Lzms;

/// Bytes of the properties, and where the SHA-1 begins.
const PROPERTIES: usize = 26;
const HASH: usize = 6;

/// Bytes before the table of a solid resource.
const SOLID_HEADER: usize = 16;

/// Chunks of a solid resource: each has tens of megabytes.
const MOST_CHUNKS: u64 = 1 << 20;

/// Bytes of a chunk at least, and with XPRESS at most.
const LEAST_CHUNK: u64 = 512;
const MOST_OF_XPRESS: u64 = 1 << 16;

/// The codec, of many files or of one.
#[derive(Debug)]
pub(super) struct Wim {
    is_solid: bool,
}

pub(super) const RESOURCE: Wim = Wim { is_solid: false };
pub(super) const SOLID: Wim = Wim { is_solid: true };

enum Engine {
    Stored,
    Xpress(Prefix),
    Lzx(Box<Lzx>),
    Lzms(Box<Lzms>),
}

/// Where chunks lie.
enum Table {
    /// Numbers of so many bytes, from the start of the resource on: where each chunk but the first begins.
    Read(usize),
    /// Where each begins, and the last one ends.
    Known(Vec<u64>),
}

struct Resource {
    source: SharedSource,
    engine: Engine,
    table: Table,
    /// Where the chunks begin.
    start: u64,
    chunk: u64,
    length: u64,
    /// The chunk that was decoded last, and its number.
    block: Vec<u8>,
    number: Option<u64>,
    stored: Vec<u8>,
    hash: Sha1,
    hashed: u64,
    expected: Option<[u8; 20]>,
}

fn engine(kind: u32, chunk: u64, limits: &Limits) -> Option<Engine> {
    let is_possible = chunk.is_power_of_two() && chunk >= LEAST_CHUNK && chunk <= limits.decoder_window;
    match kind {
        // A chunk is held in memory, however it is stored.
        0 => (chunk <= limits.decoder_window).then_some(Engine::Stored),
        1 if is_possible && chunk <= MOST_OF_XPRESS => Some(Engine::Xpress(Prefix::new())),
        2 if is_possible => Some(Engine::Lzx(Box::new(Lzx::new(chunk.ilog2().max(15) as u8, Dialect::Wim)?))),
        3 if is_possible => Some(Engine::Lzms(Box::new(Lzms::new()))),
        _ => None,
    }
}

impl Resource {
    fn new(is_solid: bool, source: &SharedSource, coder: &CoderContext, limits: &Limits) -> io::Result<Self> {
        let length = coder.decoded_length.ok_or_else(|| invalid_properties("a resource of WIM"))?;
        let resource = |engine, table, start, chunk, expected| Self {
            source: SharedSource::clone(source),
            engine,
            table,
            start,
            chunk,
            length,
            block: Vec::new(),
            number: None,
            stored: Vec::new(),
            hash: Sha1::new(),
            hashed: 0,
            expected,
        };
        if is_solid {
            let (kind, chunk, starts) = solid(source, length)?;
            let engine = engine(kind, chunk, limits);
            let engine =
                engine.ok_or_else(|| faults::unsupported(12, format!("method {kind} with chunks of {chunk} bytes")))?;
            let start = starts.first().copied().unwrap_or_default();
            return Ok(resource(engine, Table::Known(starts), start, chunk, None));
        }
        let invalid = || invalid_properties("a resource of WIM");
        let properties: &[u8; PROPERTIES] = coder.properties[..].try_into().map_err(|_| invalid())?;
        let [kind, width, a, b, c, d, ..] = *properties;
        let chunk = u64::from(u32::from_le_bytes([a, b, c, d]));
        let engine = engine(kind.into(), chunk, limits);
        let engine =
            engine.ok_or_else(|| faults::unsupported(0, format!("method {kind} with chunks of {chunk} bytes")))?;
        let expected = properties[HASH..].first_chunk().copied().filter(|hash| *hash != [0; 20]);
        if matches!(engine, Engine::Stored) {
            return Ok(resource(engine, Table::Known(Vec::new()), 0, 1, expected));
        }
        if !matches!(width, 4 | 8) {
            return Err(invalid());
        }
        let behind_table = length.div_ceil(chunk).saturating_sub(1).checked_mul(width.into());
        let start = behind_table.filter(|start| *start <= source.len());
        let start = start.ok_or_else(|| faults::cut(source.len(), "the table of a resource"))?;
        Ok(resource(engine, Table::Read(width.into()), start, chunk, expected))
    }

    /// Where the chunk begins that has a number in the table.
    fn listed(&self, number: u64, width: usize) -> io::Result<u64> {
        let Some(before) = number.checked_sub(1) else { return Ok(self.start) };
        if number >= self.length.div_ceil(self.chunk) {
            return Ok(self.source.len());
        }
        let mut bytes = [0; 8];
        self.source.read_exact_at(&mut bytes[..width], before * width as u64)?;
        Ok(self.start.saturating_add(u64::from_le_bytes(bytes)))
    }

    /// Decodes a chunk.
    fn decode(&mut self, number: u64) -> io::Result<()> {
        self.number = None;
        let (from, to) = match &self.table {
            Table::Read(width) => (self.listed(number, *width)?, self.listed(number + 1, *width)?),
            Table::Known(starts) => {
                let start = |at: u64| starts.get(usize::try_from(at).ok()?).copied();
                start(number).zip(start(number + 1)).unwrap_or_default()
            }
        };
        let length = (self.length - number * self.chunk).min(self.chunk) as usize;
        let stored = to.checked_sub(from).filter(|stored| *stored > 0 && *stored <= length as u64);
        let stored = stored.filter(|_| to <= self.source.len());
        let stored =
            stored.ok_or_else(|| faults::invalid(from, format!("chunk {number} cannot lie where it should")))?;
        self.stored.resize(stored as usize, 0);
        self.source.read_exact_at(&mut self.stored, from)?;
        let (stored, block) = (&mut self.stored, &mut self.block);
        let decoded = match &mut self.engine {
            _ if stored.len() == length => {
                std::mem::swap(block, stored);
                Ok(())
            }
            // Before memory is taken for bytes that are not there.
            Engine::Stored => Err("bytes that are not compressed, but fewer than they should be"),
            engine => {
                block.resize(length, 0);
                match engine {
                    Engine::Stored => Ok(()),
                    Engine::Xpress(code) => xpress::decode(code, stored, block),
                    Engine::Lzx(lzx) => {
                        lzx.reset();
                        lzx.decode(stored, block)
                    }
                    Engine::Lzms(lzms) => lzms.decode(stored, block),
                }
            }
        };
        decoded.map_err(|what| faults::invalid(from, what))?;
        self.number = Some(number);
        Ok(())
    }
}

/// The method of a solid resource, the bytes of a chunk, and where each begins and the last one ends.
fn solid(source: &SharedSource, length: u64) -> io::Result<(u32, u64, Vec<u64>)> {
    let mut header = [0; SOLID_HEADER];
    source.read_exact_at(&mut header, 0)?;
    let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let (chunk, kind) = (u64::from(word(8)), word(12));
    if header.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) != Some(length) || chunk == 0 {
        return Err(faults::invalid(0, "a solid resource of another length than it says"));
    }
    let count = length.div_ceil(chunk);
    if count > MOST_CHUNKS || count * 4 > source.len() {
        return Err(faults::invalid(0, format!("a solid resource of {count} chunks")));
    }
    let mut table = vec![0; count as usize * 4];
    source.read_exact_at(&mut table, SOLID_HEADER as u64)?;
    let mut end = (SOLID_HEADER + table.len()) as u64;
    let mut starts = vec![end];
    for length in table.as_chunks::<4>().0 {
        end += u64::from(u32::from_le_bytes(*length));
        starts.push(end);
    }
    Ok((kind, chunk, starts))
}

impl Anywhere for Resource {
    fn length(&self) -> u64 {
        self.length
    }

    fn place(&self, decoded: u64) -> u64 {
        decoded.min(self.source.len())
    }

    fn memory(&self) -> usize {
        let engine = match &self.engine {
            Engine::Stored => 0,
            Engine::Xpress(code) => code.memory(),
            Engine::Lzx(lzx) => lzx.memory(),
            Engine::Lzms(lzms) => lzms.memory(),
        };
        let table = if let Table::Known(starts) = &self.table { starts.capacity() * 8 } else { 0 };
        // What it will hold once it has decoded a chunk: what is stored takes much less, mostly.
        let chunk = self.chunk.min(self.length) as usize;
        engine + table + (self.block.capacity() + self.stored.capacity()).max(chunk + chunk / 4)
    }

    fn fetch(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = if matches!(self.engine, Engine::Stored)
            && matches!(self.table, Table::Known(ref known) if known.is_empty())
        {
            self.source.read_at(buffer, offset)?
        } else {
            let number = offset / self.chunk;
            if self.number != Some(number) {
                self.decode(number)?;
            }
            let inside = (offset % self.chunk) as usize;
            let bytes = self.block.get(inside..).unwrap_or_default();
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        };
        if self.expected.is_some() && self.hashed == offset {
            self.hash.update(&buffer[..read]);
            self.hashed += read as u64;
        }
        Ok(read)
    }

    fn check_all(&mut self) -> io::Result<Result<(), &'static str>> {
        let is_right = match self.expected {
            Some(expected) if self.hashed == self.length => self.hash.clone().finalize()[..] == expected,
            _ => true,
        };
        Ok(if is_right { Ok(()) } else { Err("the SHA-1 of a resource does not match its data") })
    }
}

impl Codec for Wim {
    fn name(&self) -> &'static str {
        if self.is_solid { "chunked-solid" } else { "chunked" }
    }

    fn pace(&self) -> Pace {
        // A chunk of a solid resource has megabytes.
        Pace { bytes_per_millisecond: if self.is_solid { 40_000 } else { 150_000 }, in_whole_chunks: self.is_solid }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let resource = Resource::new(self.is_solid, &source, &options.coder, &options.limits)?;
        Ok(Box::new(Straight::first_pass(resource, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let resource = Resource::new(self.is_solid, &source, &context.coder, &context.limits)?;
        Ok(Box::new(Straight::resume(resource, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Wim {
    fn own_checks(&self) -> OwnChecks {
        // Of what is solid each file has a checksum.
        if self.is_solid { OwnChecks::None } else { OwnChecks::Whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    /// A solid resource that is not compressed: so many bytes in chunks of so many, of which `data` are there.
    fn stored(length: u64, chunk: u32, data: &[u8]) -> SharedSource {
        let count = length.div_ceil(chunk.into()) as usize;
        let mut table = vec![0; count * 4];
        for (size, part) in table.as_chunks_mut::<4>().0.iter_mut().zip(data.chunks(chunk as usize)) {
            *size = (part.len() as u32).to_le_bytes();
        }
        let header = [&length.to_le_bytes()[..], &chunk.to_le_bytes(), &0_u32.to_le_bytes()].concat();
        Arc::new(MemorySource::new([&header, &table[..], data].concat(), "solid"))
    }

    fn opened(source: &SharedSource, length: u64) -> io::Result<Resource> {
        let coder = CoderContext { decoded_length: Some(length), ..CoderContext::default() };
        Resource::new(true, source, &coder, &Limits::default())
    }

    /// One stored byte was enough for 4 GiB of zeros.
    #[test]
    fn what_is_not_compressed_takes_no_more_memory_than_is_stored() {
        let huge = u32::MAX;
        let error = opened(&stored(huge.into(), huge, b"x"), huge.into()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("chunks of 4294967295 bytes"), "{error}");
        let (length, chunk) = (96 << 20, 64 << 20);
        let mut resource = opened(&stored(length, chunk, b"x"), length).unwrap();
        let error = resource.fetch(&mut [0; 16], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert_eq!((resource.block.capacity(), resource.number), (0, None));
    }

    #[test]
    fn chunks_that_are_not_compressed_are_read_at_any_place() {
        let data: Vec<u8> = (0..1000_u32).map(|number| (number * 7) as u8).collect();
        let mut resource = opened(&stored(1000, 300, &data), 1000).unwrap();
        for at in [0, 299, 300, 950, 5, 999] {
            let mut buffer = [0; 100];
            let read = resource.fetch(&mut buffer, at as u64).unwrap();
            assert!(read > 0 && buffer[..read] == data[at..at + read], "{at}");
        }
    }
}
