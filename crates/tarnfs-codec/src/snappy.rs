//! `.sz`: the framing format of snappy. Chunks of at most 64 KiB that need nothing of each other, with masked CRC-32Cs.
//!
//! Their contents are decoded by `snap`; walking the chunks is done here. A seek point is at a chunk.

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Limits, SharedSource, crc32c};

use crate::blocks::{BlockDecoder, Blocks, Fault, Part, Stop};
use crate::input::Input;
use crate::{Checks, Codec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(crate) struct Snappy;

impl Codec for Snappy {
    fn name(&self) -> &'static str {
        "snappy"
    }

    fn about(&self) -> &'static str {
        "seeks to each chunk of the framing format"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".sz", ""), (".snappy", "")]
    }

    fn settles(&self, _point: &SeekPoint) -> Checks {
        Checks::Itself
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: false }
    }

    fn bid(&self, head: &[u8]) -> u32 {
        if head.starts_with(&IDENTIFIER) { 8 * IDENTIFIER.len() as u32 } else { 0 }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(BlockDecoder::<Chunks>::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(BlockDecoder::<Chunks>::resume(source, point, context.limits)?))
    }
}

/// A state is this byte.
const VERSION: u8 = 1;

/// "Stream identifier": the first chunk of a file, and of each that follows.
const IDENTIFIER: [u8; 10] = *b"\xff\x06\0\0sNaPpY";

/// Decoded bytes of a chunk at most.
const LARGEST_CHUNK: usize = 64 << 10;

/// Bytes of the head of a chunk: its kind, and its length in three bytes.
const HEAD: usize = 4;

/// The chunks of a file.
struct Chunks {
    /// The identifier must come next.
    at_start: bool,
}

impl Blocks for Chunks {
    fn new(_limits: Limits) -> Self {
        Self { at_start: true }
    }

    fn next(&mut self, input: &mut Input, block: &mut Vec<u8>, verify: bool) -> Result<Part, Stop> {
        let at_start = std::mem::take(&mut self.at_start);
        if input.remaining() == 0 && !at_start {
            return Ok(Part::End);
        }
        let head = input.peek(IDENTIFIER.len())?;
        if at_start && !head.starts_with(&IDENTIFIER) {
            let is_cut = IDENTIFIER.starts_with(head);
            return Err(if is_cut {
                Stop::Cut("its head")
            } else {
                Stop::Invalid("no snappy stream begins there".to_owned())
            });
        }
        let Some(&[kind, low, middle, high]) = head.first_chunk() else { return Err(Stop::Cut("the head of a chunk")) };
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        let is_packed = match kind {
            0x00 => true,
            0x01 => false,
            0x80.. => {
                if kind == IDENTIFIER[0]
                    && length == IDENTIFIER.len() - HEAD
                    && head.len() == IDENTIFIER.len()
                    && head != IDENTIFIER
                {
                    return Err(Stop::Invalid("the identifier of a stream that is not snappy's".to_owned()));
                }
                return if input.skip((HEAD + length) as u64) { Ok(Part::Other) } else { Err(Stop::Cut("a chunk")) };
            }
            _ => {
                return Err(Stop::Invalid(format!(
                    "a chunk of kind {kind:#04x}, which is reserved: nobody can read it"
                )));
            }
        };
        let head = HEAD + 4;
        let whole = HEAD + length;
        if whole as u64 > input.remaining() {
            return Err(Stop::Cut("a chunk"));
        }
        if whole < head || !is_packed && whole - head > LARGEST_CHUNK {
            return Err(Stop::Invalid(format!("a chunk of {length} bytes, which cannot be")));
        }
        block.resize(LARGEST_CHUNK, 0);
        let (stated, data) = input.peek(whole)?[HEAD..].split_at(head - HEAD);
        let length = if is_packed {
            unpack(data, block)
        } else {
            block[..data.len()].copy_from_slice(data);
            Some(data.len())
        };
        let is_right = |length| !verify || stated == masked(&block[..length]).to_le_bytes();
        let part = match length {
            Some(0) if is_right(0) => Part::Other,
            Some(length) if is_right(length) => Part::Block { length, fault: None },
            Some(length) => {
                // A packed one has as many bytes as it says at its start. One that is stored may be a packed one whose
                // kind is damaged, but not if it is as long as it may be.
                let is_exact = is_packed || length == LARGEST_CHUNK || length == 0;
                let what = "the CRC-32C of a chunk does not match its data";
                Part::Block { length, fault: Some(Fault { what, is_decoded: true, is_exact }) }
            }
            None => {
                // What it says at its start may be what is damaged; all but the last are as long as they may be.
                let stated = snap::raw::decompress_len(data).ok().filter(|length| (1..=LARGEST_CHUNK).contains(length));
                let is_exact = stated == Some(LARGEST_CHUNK);
                let fault = Some(Fault { what: "a chunk that cannot be decoded", is_decoded: false, is_exact });
                Part::Block { length: stated.unwrap_or(LARGEST_CHUNK), fault }
            }
        };
        input.consume(whole);
        Ok(part)
    }

    fn state(&self) -> Vec<u8> {
        vec![VERSION]
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        self.at_start = false;
        state == [VERSION]
    }
}

/// Decodes a chunk to the start of `block`, if it is valid and not too long.
fn unpack(data: &[u8], block: &mut [u8]) -> Option<usize> {
    snap::raw::Decoder::new().decompress(data, block).ok()
}

/// The CRC-32C of `bytes`, masked as the framing format has it ("Checksum format").
fn masked(bytes: &[u8]) -> u32 {
    crc32c(0, bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}
