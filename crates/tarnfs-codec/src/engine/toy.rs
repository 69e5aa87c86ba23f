//! A run-length format for the engine's tests: records of a length (4 bytes, little-endian) and the byte that is
//! repeated.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tarnfs_source::{MemorySource, SharedSource};

use super::{Indexing, Table};
use crate::{Codec, DecodeContext, Decoder, Findings, FirstPass, Options, Pace, SeekPoint};

const RECORD: u64 = 5;

/// The codec.
#[derive(Debug, Default)]
pub(super) struct Toy(Arc<Faults>);

/// What can go wrong in a codec, and what is counted.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Bytes decoded by all decoders after the first pass.
    pub(super) decoded: AtomicU64,
    /// Returns 0 from this decoded byte on; 0 for never.
    pub(super) ends_at: AtomicU64,
    /// Returns an error from this decoded byte on; 0 for never.
    pub(super) fails_at: AtomicU64,
    /// Panics at this decoded byte; 0 for never.
    pub(super) panics_at: AtomicU64,
    /// Spoils the byte at this decoded offset; 0 for none.
    pub(super) spoils: AtomicU64,
    /// Sleeps at each read, so that readers meet.
    pub(super) slow: AtomicBool,
    /// What `memory` says.
    pub(super) memory: AtomicU64,
    /// So much more as soon as so many bytes are decoded.
    pub(super) dictionary: AtomicU64,
    /// Decoders that are decoding at this moment, and the most that ever were.
    pub(super) busy: AtomicU64,
    pub(super) most_busy: AtomicU64,
}

/// Counted as decoding as long as it lives.
struct Busy(Arc<Faults>);

impl Busy {
    fn new(toy: &Arc<Faults>) -> Self {
        let now = toy.busy.fetch_add(1, Ordering::Relaxed) + 1;
        toy.most_busy.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(toy))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct ToyDecoder {
    toy: Arc<Faults>,
    source: SharedSource,
    /// Of the next record.
    compressed: u64,
    decoded: u64,
    started: u64,
    run: (u32, u8),
    /// Only in the first pass.
    spacing: Option<u64>,
    findings: Findings,
    last_point: Option<u64>,
    /// Like a real one, it has a window from the first byte on.
    has_window: bool,
}

impl Toy {
    pub(super) fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    fn decoder(&self, source: SharedSource, point: &SeekPoint, spacing: Option<u64>) -> ToyDecoder {
        let SeekPoint { compressed_bit, decoded, .. } = *point;
        ToyDecoder {
            toy: Arc::clone(&self.0),
            source,
            compressed: compressed_bit / 8,
            decoded,
            started: decoded,
            run: (0, 0),
            spacing,
            findings: Findings::default(),
            last_point: None,
            has_window: false,
        }
    }
}

impl Deref for Toy {
    type Target = Faults;

    fn deref(&self) -> &Faults {
        &self.0
    }
}

/// True if the bytes of `range` come to the place of a fault.
fn reaches(place: &AtomicU64, range: &Range<u64>) -> bool {
    let place = place.load(Ordering::Relaxed);
    place > 0 && range.end > place
}

impl Codec for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        // Its own, so that the faults come later and nothing is counted.
        Ok(Box::new(Toy::new().decoder(source, &SeekPoint::default(), Some(options.seek_point_spacing))))
    }

    fn resume(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        _context: &DecodeContext,
    ) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(self.decoder(source, point, None)))
    }
}

impl Decoder for ToyDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let _busy = Busy::new(&self.toy);
        self.has_window = true;
        if self.toy.slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(300));
        }
        if self.run.0 == 0 {
            let mut record = [0; RECORD as usize];
            let read = self.source.read_at(&mut record, self.compressed)?;
            if let Some(spacing) = self.spacing
                && read > 0
                && self.last_point.is_none_or(|last| self.decoded - last >= spacing)
            {
                self.last_point = Some(self.decoded);
                self.findings.points.push(SeekPoint {
                    compressed_bit: self.compressed * 8,
                    decoded: self.decoded,
                    state: vec![],
                });
            }
            match read {
                0 => return Ok(0),
                5 => self.run = (u32::from_le_bytes([record[0], record[1], record[2], record[3]]), record[4]),
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            self.compressed += RECORD;
        }
        let length = buffer.len().min(self.run.0 as usize);
        let range = self.decoded..self.decoded + length as u64;
        if reaches(&self.toy.ends_at, &range) {
            return Ok(0);
        }
        if reaches(&self.toy.fails_at, &range) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a bad record"));
        }
        assert!(!reaches(&self.toy.panics_at, &range), "the toy breaks");
        buffer[..length].fill(self.run.1);
        let spoilt = self.toy.spoils.load(Ordering::Relaxed);
        if spoilt > 0 && range.contains(&spoilt) {
            buffer[(spoilt - range.start) as usize] ^= 1;
        }
        self.run.0 -= length as u32;
        self.decoded += length as u64;
        self.toy.decoded.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let filled = (self.decoded - self.started).saturating_add(bytes);
        let dictionary = self.toy.dictionary.load(Ordering::Relaxed).min(filled) as usize;
        if self.has_window { self.toy.memory.load(Ordering::Relaxed) as usize + dictionary + 100 } else { 100 }
    }
}

impl FirstPass for ToyDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.compressed
    }
}

/// Runs of lengths that differ, `length` bytes in all: decoded and compressed.
pub(super) fn sample(length: usize, mut seed: u32) -> (Vec<u8>, SharedSource) {
    let (mut decoded, mut compressed) = (Vec::with_capacity(length), Vec::new());
    while decoded.len() < length {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let run = ((seed >> 8) % 5000 + 1).min((length - decoded.len()) as u32);
        let byte = (seed >> 24) as u8;
        decoded.resize(decoded.len() + run as usize, byte);
        compressed.extend_from_slice(&run.to_le_bytes());
        compressed.push(byte);
    }
    (decoded, Arc::new(MemorySource::new(compressed, "sample.toy")))
}

/// A stream that decodes to `bytes`.
#[cfg(shuttle)]
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    let record = |run: &[u8]| [&(run.len() as u32).to_le_bytes()[..], &run[..1]].concat();
    bytes.chunk_by(|one, next| one == next).flat_map(record).collect()
}

/// The table that a first pass makes, with reads of `step` bytes; it must return `decoded`.
pub(super) fn index(toy: &'static Toy, source: &SharedSource, decoded: &[u8], spacing: u64, step: usize) -> Table {
    let options = Options { seek_point_spacing: spacing, ..Options::default() };
    let mut indexing = Indexing::new(toy, Arc::clone(source), &options).unwrap();
    let mut table = Table::default();
    let (mut buffer, mut all) = (vec![0; step], Vec::new());
    loop {
        let read = indexing.read(&mut buffer).unwrap();
        indexing.take_chunks(&mut table.chunks);
        if read == 0 {
            break;
        }
        all.extend_from_slice(&buffer[..read]);
    }
    assert!(all == decoded, "the first pass returned other bytes");
    assert_eq!(indexing.decoded_position(), decoded.len() as u64);
    assert_eq!(indexing.compressed_position(), source.len());
    table
}
