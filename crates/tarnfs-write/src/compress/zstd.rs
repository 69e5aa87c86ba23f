//! zstd in frames, with the table of "Zstandard Seekable Format" (0.1.0) in a skippable frame behind them.

use std::io;
use std::ops::RangeInclusive;

use zstd_safe::{CCtx, CParameter, get_error_name};

use super::{Block, Compression, Compressor, Frame, Point, failed};

/// zstd by frames.
pub(super) struct Zstd;

const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;
/// Of the table: how many frames, a byte of flags, and its magic.
const FOOTER: usize = 9;
const SKIPPABLE_HEADER: usize = 8;

/// From this level on windows are larger than the usual frame.
const LARGE: i32 = 17;

struct Frames(CCtx<'static>);

fn library(code: usize) -> io::Error {
    failed("zstd", get_error_name(code))
}

impl Compressor for Frames {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        block.bytes.reserve(zstd_safe::compress_bound(data.len()));
        self.0.compress2(&mut block.bytes, data).map_err(library)?;
        block.points.push(Point::at_start(&[]));
        Ok(())
    }
}

#[derive(Default)]
struct Table {
    frames: u32,
    entries: Vec<u8>,
    /// More frames than a table can have.
    is_full: bool,
}

impl Frame for Table {
    fn add(&mut self, data: &[u8], block: &Block) {
        /// As the format's description has it.
        const MOST: u32 = 0x0800_0000;
        self.is_full |= self.frames == MOST;
        if self.is_full {
            return;
        }
        self.frames += 1;
        self.entries.extend_from_slice(&(block.bytes.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(&(data.len() as u32).to_le_bytes());
    }

    fn end(&mut self) -> Vec<u8> {
        if self.is_full {
            return Vec::new();
        }
        let mut table = Vec::with_capacity(SKIPPABLE_HEADER + self.entries.len() + FOOTER);
        table.extend_from_slice(&SKIPPABLE.to_le_bytes());
        table.extend_from_slice(&((self.entries.len() + FOOTER) as u32).to_le_bytes());
        table.append(&mut self.entries);
        table.extend_from_slice(&self.frames.to_le_bytes());
        // Entries without checksums: frames have their own.
        table.push(0);
        table.extend_from_slice(&SEEKABLE.to_le_bytes());
        table
    }
}

impl Compression for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn suffix(&self) -> &'static str {
        ".zst"
    }

    fn short(&self) -> &'static [&'static str] {
        &[".tzst"]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        1..=22
    }

    fn usual_level(&self) -> i32 {
        3
    }

    fn block(&self, level: i32) -> usize {
        if level < LARGE { 4 << 20 } else { 16 << 20 }
    }

    fn memory(&self, level: i32) -> u64 {
        // Measured with frames of that length, rounded up.
        match level {
            ..=4 => 8 << 20,
            5..=12 => 40 << 20,
            13..LARGE => 90 << 20,
            _ => 300 << 20,
        }
    }

    fn spacing(&self) -> u64 {
        tarnfs_codec::PIECE as u64
    }

    fn compressor(&self, level: i32) -> io::Result<Box<dyn Compressor>> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(library)?;
        context.set_parameter(CParameter::ChecksumFlag(true)).map_err(library)?;
        Ok(Box::new(Frames(context)))
    }

    fn frame(&self, _: i32) -> Box<dyn Frame> {
        Box::new(Table::default())
    }
}
