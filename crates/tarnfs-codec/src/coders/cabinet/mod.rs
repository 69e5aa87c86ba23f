//! Folders of cabinets: what is in them was compressed together, in blocks of up to 32 KiB that each have a header.
//!
//! The stream is a part of the cabinet, from the first block of the folder on. `blocks` finds the blocks and compares
//! their checksums, `mszip`, `quantum` and `lzx`, which WIM has as well, decode one after the other, with what came
//! before. A block whose checksum differs is decoded all the same, and told.
//!
//! Properties: the compression (0 none, 1 MSZIP, 2 Quantum, 3 LZX), and its window as a power of two; then where the
//! blocks are: for each cabinet that the folder lies in, the place of the first one (8 bytes, little-endian, from the
//! start of the stream), their number (4 bytes), and the bytes that each has between its header and its data.
//!
//! The formats: "Microsoft Cabinet File Format" ([MS-CAB]), "MSZIP Compression and Decompression Data Structure"
//! ([MS-MCI]), "LZX DELTA Compression and Decompression" ([MS-PATCH]); of Quantum nothing was published.

mod blocks;
mod mszip;
mod quantum;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::invalid_properties;
use super::lzx::{Dialect, Lzx};
use super::streamed::{Streamed, Unpack};
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};
use blocks::{Blocks, Check, WRONG};
use mszip::Mszip;
use quantum::Quantum;

/// Bytes of the properties for each cabinet.
const RUN: usize = 13;

/// Bytes that come of one block, at most.
const BLOCK: usize = 32 << 10;

/// The codec.
#[derive(Debug)]
pub(super) struct Cabinet;

enum Engine {
    Stored,
    Mszip(Box<Mszip>),
    Quantum(Box<Quantum>),
    Lzx(Box<Lzx>),
}

struct Unpacker {
    blocks: Blocks,
    engine: Engine,
    stored: Vec<u8>,
    block: Vec<u8>,
    served: usize,
    /// Bytes that were handed out.
    total: u64,
    /// Where the first block began that has no checksum.
    unchecked: Option<u64>,
    /// Why the bytes of this block may be wrong.
    doubt: Option<String>,
    /// So many of the bytes that were handed out may be wrong, and why.
    flaw: Option<(u64, String)>,
}

impl Unpacker {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let invalid = || invalid_properties("a folder of a cabinet");
        let &[method, window, ref runs @ ..] = &coder.properties[..] else { return Err(invalid()) };
        let (runs, rest) = runs.as_chunks::<RUN>();
        if !rest.is_empty() {
            return Err(invalid());
        }
        let engine = match method {
            0 => Engine::Stored,
            1 => Engine::Mszip(Box::new(Mszip::new())),
            2 => Engine::Quantum(Box::new(Quantum::new(window).ok_or_else(invalid)?)),
            3 => Engine::Lzx(Box::new(Lzx::new(window, Dialect::Cabinet).ok_or_else(invalid)?)),
            _ => return Err(invalid()),
        };
        let blocks = Blocks::new(source, runs);
        let (stored, block) = (Vec::new(), Vec::new());
        Ok(Self { blocks, engine, stored, block, served: 0, total: 0, unchecked: None, doubt: None, flaw: None })
    }

    /// Decodes the next block; false at the end.
    fn next(&mut self) -> io::Result<bool> {
        self.served = 0;
        self.block.clear();
        let Some((length, check)) = self.blocks.next(&mut self.stored)? else { return Ok(false) };
        match check {
            Check::Wrong => {
                self.doubt.get_or_insert_with(|| self.blocks.invalid(WRONG).to_string());
            }
            Check::None => {
                self.unchecked.get_or_insert(self.total);
            }
            // What is compressed refers to what came before.
            Check::Right if matches!(self.engine, Engine::Stored) => self.doubt = None,
            Check::Right => {}
        }
        self.block.resize(length, 0);
        let decoded = match &mut self.engine {
            Engine::Stored if self.stored.len() == length => {
                std::mem::swap(&mut self.block, &mut self.stored);
                Ok(())
            }
            Engine::Stored => Err("a stored block that has another length than it says"),
            Engine::Mszip(mszip) => mszip.decode(&self.stored, &mut self.block),
            Engine::Quantum(quantum) => quantum.decode(&self.stored, &mut self.block),
            Engine::Lzx(lzx) => lzx.decode(&self.stored, &mut self.block),
        };
        decoded.map_err(|what| {
            self.block.clear();
            let error = self.blocks.invalid(what);
            // What is wrong may lie in any block of which nothing tells whether it is right.
            let doubtful = self.unchecked.map(|from| self.total - from);
            self.flaw = doubtful.filter(|length| *length > 0).map(|length| (length, error.to_string()));
            error
        })?;
        Ok(true)
    }
}

impl Unpack for Unpacker {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        // A block may hold nothing.
        while self.served == self.block.len() {
            cancel.check()?;
            if !self.next()? {
                return Ok(0);
            }
        }
        let count = crate::stepwise::hand_out(&self.block, &mut self.served, buffer);
        self.total += count as u64;
        // With each part: who takes the first bytes of a block must know, too.
        self.flaw = self.doubt.clone().filter(|_| count > 0).map(|what| (count as u64, what));
        Ok(count)
    }

    fn take_flaw(&mut self) -> Option<(u64, String)> {
        self.flaw.take()
    }

    fn position(&self) -> u64 {
        self.blocks.position()
    }

    fn memory(&self, _decoded: u64) -> usize {
        let engine = match &self.engine {
            Engine::Stored => 0,
            Engine::Mszip(mszip) => mszip.memory(),
            Engine::Quantum(quantum) => quantum.memory(),
            Engine::Lzx(lzx) => lzx.memory(),
        };
        size_of::<Self>() + self.stored.capacity() + self.block.capacity() + self.blocks.memory() + engine
    }
}

impl Codec for Cabinet {
    fn name(&self) -> &'static str {
        "cabinet"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Unpacker::new(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = Unpacker::new(source, &context.coder)?;
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Cabinet {
    fn own_checks(&self) -> OwnChecks {
        OwnChecks::Parts
    }
}
