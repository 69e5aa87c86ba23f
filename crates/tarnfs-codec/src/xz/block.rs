use std::io;

use crc64fast::Digest as Crc64;
use liblzma::stream::{Action, Filters, Status, Stream};
use sha2::{Digest, Sha256};
use tarnfs_source::Limits;

use super::container::{BlockHeader, CheckId, Fault, LZMA2};
use crate::lzma::{self, Lzma2, LzmaPoint};

/// Decoded bytes of one LZMA2 chunk at most (its size has 21 bits), and bytes that even such a chunk takes.
const LARGEST_CHUNK: u64 = 2 << 20;
const SMALLEST_CHUNK: u64 = 6;
/// Bytes of the smallest dictionary that LZMA2's properties can say.
const SMALLEST_DICTIONARY: u64 = 4096;
/// What liblzma keeps beside the dictionary.
const TABLES: usize = 64 << 10;

/// Decodes the compressed data of one block and computes its check.
pub(super) struct BlockDecoder {
    data: Data,
    /// Bytes of the header.
    header: u64,
    check: Check,
    /// Decoded bytes that the header announces.
    announced: Option<u64>,
    taken: u64,
    written: u64,
}

/// Who decodes.
enum Data {
    /// Ours, where there is no other filter than LZMA2.
    Lzma2(Box<Lzma2>),
    Liblzma {
        stream: Stream,
        dictionary: u64,
    },
}

/// The check of what was decoded so far.
enum Check {
    /// None, one not known here, or one that needs not be verified.
    Unverified,
    Crc32(crc32fast::Hasher),
    Crc64(Crc64),
    Sha256(Box<Sha256>),
}

/// What one step of decoding did.
pub(super) struct Step {
    pub(super) taken: usize,
    pub(super) written: usize,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    /// There is more, or more input is needed.
    More,
    /// The end of the data.
    End,
    /// The data are damaged.
    Damaged(String),
}

impl BlockDecoder {
    /// A decoder of a block with this `header`, of which at most `input` bytes are there.
    pub(super) fn new(
        header: &BlockHeader,
        check: Option<CheckId>,
        input: u64,
        limits: &Limits,
    ) -> io::Result<Result<Self, Fault>> {
        let possible = (input / SMALLEST_CHUNK).saturating_add(1).saturating_mul(LARGEST_CHUNK);
        let most = header.uncompressed.map_or(possible, |size| size.min(possible));
        let (mut filters, mut dictionary) = (Filters::new(), 0);
        for filter in &header.filters {
            let properties = &filter.properties[..];
            let added = match filter.id {
                0x03 => filters.delta_properties(properties),
                0x04 => filters.x86_properties(properties),
                0x05 => filters.powerpc_properties(properties),
                0x06 => filters.ia64_properties(properties),
                0x07 => filters.arm_properties(properties),
                0x08 => filters.arm_thumb_properties(properties),
                0x09 => filters.sparc_properties(properties),
                0x0A => filters.arm64_properties(properties),
                0x0B => filters.riscv_properties(properties),
                LZMA2 => {
                    let Some(size) = needed_dictionary(properties, most) else {
                        return Ok(Err(Fault::Damaged("LZMA2 properties that are not valid".into())));
                    };
                    dictionary = dictionary_size(size);
                    if dictionary > limits.lzma_dictionary {
                        return Ok(Err(Fault::Unsupported(format!(
                            "a block needs a dictionary of {dictionary} bytes, the limit is {}",
                            limits.lzma_dictionary
                        ))));
                    }
                    filters.lzma2_properties(&[size])
                }
                id => return Ok(Err(Fault::Unsupported(format!("filter {id:#x} is not known here")))),
            };
            if let Err(error) = added {
                return match error {
                    liblzma::stream::Error::Mem => Err(io::ErrorKind::OutOfMemory.into()),
                    _ => Ok(Err(Fault::Damaged(format!("the properties of filter {:#x} are not valid", filter.id)))),
                };
            }
        }
        let data = if let [_] = header.filters[..] {
            let dictionary = usize::try_from(dictionary).map_err(|_| io::ErrorKind::OutOfMemory)?;
            Data::Lzma2(Box::new(Lzma2::new(dictionary)?))
        } else {
            match Stream::new_raw_decoder(&filters) {
                Ok(stream) => Data::Liblzma { stream, dictionary },
                Err(liblzma::stream::Error::Mem) => return Err(io::ErrorKind::OutOfMemory.into()),
                Err(error) => return Ok(Err(Fault::Unsupported(format!("liblzma refuses the filters: {error}")))),
            }
        };
        let check = match check {
            Some(CheckId::CRC32) => Check::Crc32(crc32fast::Hasher::new()),
            Some(CheckId::CRC64) => Check::Crc64(Crc64::new()),
            Some(CheckId::SHA256) => Check::Sha256(Box::default()),
            _ => Check::Unverified,
        };
        Ok(Ok(Self { data, header: header.length as u64, check, announced: header.uncompressed, taken: 0, written: 0 }))
    }

    /// Bytes of input that [`BlockDecoder::decode`] needs, unless there are no more.
    pub(super) fn wanted(&self) -> usize {
        match self.data {
            Data::Lzma2(_) => Lzma2::WANTED,
            Data::Liblzma { .. } => 1,
        }
    }

    /// Looks for seek points inside the block, `spacing` decoded bytes apart, where its filters allow it.
    pub(super) fn survey(&mut self, spacing: u64) {
        if let Data::Lzma2(decoder) = &mut self.data {
            decoder.survey(spacing);
        }
    }

    /// Moves the seek points that were found into `found`, with offsets from the block's start. Each comes before any
    /// byte behind it is decoded.
    pub(super) fn take_points(&mut self, found: &mut impl Extend<LzmaPoint>) {
        let header = self.header;
        if let Data::Lzma2(decoder) = &mut self.data {
            let from_start = |point: LzmaPoint| LzmaPoint { compressed: point.compressed + header, ..point };
            found.extend(decoder.take_points().map(from_start));
        }
    }

    /// Goes on at a seek point inside the block, behind that many bytes of compressed data and of decoded. The error
    /// says what is wrong with its `state`.
    pub(super) fn resume(&mut self, compressed: u64, decoded: u64, state: &[u8]) -> Result<(), &'static str> {
        let Data::Lzma2(decoder) = &mut self.data else { return Err("is of a block with other filters") };
        (self.taken, self.written, self.check) = (compressed, decoded, Check::Unverified);
        decoder.resume(state, decoded)
    }

    /// Decodes from `input` into `buffer`, which is not empty.
    pub(super) fn decode(&mut self, input: &[u8], buffer: &mut [u8]) -> io::Result<Step> {
        let left = self.announced.map_or(u64::MAX, |announced| announced.saturating_sub(self.written));
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        // One byte more than is announced: whether it comes tells if the header is right.
        let mut surplus = [0];
        let output = if room == 0 { &mut surplus[..] } else { &mut buffer[..room] };
        let mut step = self.data.step(input, output)?;
        self.taken += step.taken as u64;
        if room == 0 && step.written > 0 {
            step.written = 0;
            step.outcome = Outcome::Damaged("a block holds more than its header says".into());
            return Ok(step);
        }
        self.written += step.written as u64;
        self.check.update(&buffer[..step.written]);
        Ok(step)
    }

    /// Bytes of compressed data taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Is `stored` the check of what was decoded?
    pub(super) fn matches(self, stored: &[u8]) -> bool {
        match self.check {
            Check::Unverified => true,
            Check::Crc32(hash) => hash.finalize().to_le_bytes() == stored,
            Check::Crc64(hash) => hash.sum64().to_le_bytes() == stored,
            Check::Sha256(hash) => hash.finalize()[..] == *stored,
        }
    }

    /// Bytes of memory once so many bytes more are decoded. The dictionary's pages count from when they are first
    /// written.
    pub(super) fn memory_after(&self, bytes: u64) -> usize {
        match &self.data {
            Data::Lzma2(decoder) => decoder.memory_after(bytes),
            Data::Liblzma { dictionary, .. } => {
                let written = self.written.saturating_add(bytes).min(*dictionary);
                usize::try_from(written).unwrap_or(usize::MAX).saturating_add(TABLES)
            }
        }
    }
}

impl Data {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
        match self {
            Self::Lzma2(decoder) => {
                let lzma::Step { taken, written, outcome } = decoder.step(input, output);
                let outcome = match outcome {
                    lzma::Outcome::More => Outcome::More,
                    lzma::Outcome::End => Outcome::End,
                    lzma::Outcome::Damaged(what) => Outcome::Damaged(what.into()),
                };
                Ok(Step { taken, written, outcome })
            }
            Self::Liblzma { stream, .. } => {
                let (before_in, before_out) = (stream.total_in(), stream.total_out());
                let result = stream.process(input, output, Action::Run);
                let taken = (stream.total_in() - before_in) as usize;
                let written = (stream.total_out() - before_out) as usize;
                let outcome = match result {
                    Ok(Status::StreamEnd) => Outcome::End,
                    Ok(_) => Outcome::More,
                    Err(liblzma::stream::Error::Mem) => return Err(io::ErrorKind::OutOfMemory.into()),
                    Err(_) => Outcome::Damaged("the data of a block do not decode".into()),
                };
                Ok(Step { taken, written, outcome })
            }
        }
    }
}

impl Check {
    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Unverified => {}
            Self::Crc32(hash) => hash.update(data),
            Self::Crc64(hash) => hash.write(data),
            Self::Sha256(hash) => hash.update(data),
        }
    }
}

/// Bytes of the dictionary that LZMA2's properties say (§5.3.1).
pub(crate) fn dictionary_size(bits: u8) -> u64 {
    match bits {
        40 => u64::from(u32::MAX),
        bits => (2 | u64::from(bits & 1)) << (bits / 2 + 11),
    }
}

/// Bytes of its dictionary that a block of `uncompressed` bytes touches.
pub(super) fn dictionary_of(header: &BlockHeader, uncompressed: u64) -> u64 {
    match header.filters.last().map(|filter| &filter.properties[..]) {
        Some(&[bits @ 0..=40]) => dictionary_size(bits).min(uncompressed),
        _ => 0,
    }
}

/// LZMA2's properties for the smallest dictionary that decodes a block of at most `most` bytes: no larger than the
/// stored `properties` say. `None` if those are not valid.
fn needed_dictionary(properties: &[u8], most: u64) -> Option<u8> {
    let &[bits @ 0..=40] = properties else { return None };
    let most = most.max(SMALLEST_DICTIONARY);
    (0..bits).find(|&smaller| dictionary_size(smaller) >= most).or(Some(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_no_larger_than_its_block() {
        assert_eq!(dictionary_size(0), 4096);
        assert_eq!(dictionary_size(22), 8 << 20);
        assert_eq!(needed_dictionary(&[22], u64::MAX), Some(22));
        assert_eq!(needed_dictionary(&[22], 4 << 20), Some(20));
        assert_eq!(needed_dictionary(&[22], (4 << 20) + 1), Some(21));
        assert_eq!(needed_dictionary(&[40], u64::MAX), Some(40));
        assert_eq!(needed_dictionary(&[30], 0), Some(0));
        assert_eq!(needed_dictionary(&[41], 0), None);
        assert_eq!(needed_dictionary(&[], 0), None);
    }
}
