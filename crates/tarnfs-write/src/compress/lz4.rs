//! LZ4 in one frame of independent blocks ("LZ4 Frame Format Description", 1.6.4).

use std::io;
use std::ops::RangeInclusive;

use xxhash_rust::xxh32::{Xxh32, xxh32};

use super::{Block, Compression, Compressor, Frame, Point, failed};

/// LZ4 by blocks.
pub(super) struct Lz4;

const MAGIC: u32 = 0x184d_2204;
/// Version 1, independent blocks, and a checksum of the content.
const FLAGS: u8 = 0x64;
/// Blocks of at most 4 MiB.
const DESCRIPTOR: u8 = 0x70;
const BLOCK: usize = 4 << 20;
/// Of a block's length: it is stored.
const STORED: u32 = 1 << 31;

/// Version of the state of a seek point, with the frame's flags behind it.
const STATE: [u8; 3] = [1, FLAGS, DESCRIPTOR];

struct Blocks;

impl Compressor for Blocks {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        let out = &mut block.bytes;
        out.resize(4 + lz4_flex::block::get_maximum_output_size(data.len()), 0);
        let length = lz4_flex::block::compress_into(data, &mut out[4..]).map_err(|error| failed("lz4", error))?;
        if length < data.len() {
            out[..4].copy_from_slice(&(length as u32).to_le_bytes());
            out.truncate(4 + length);
        } else {
            out.truncate(4);
            out[..4].copy_from_slice(&(data.len() as u32 | STORED).to_le_bytes());
            out.extend_from_slice(data);
        }
        block.points.push(Point::at_start(&STATE));
        Ok(())
    }
}

struct Content(Xxh32);

impl Frame for Content {
    fn start(&mut self) -> Vec<u8> {
        let descriptor = [FLAGS, DESCRIPTOR];
        let mut header = MAGIC.to_le_bytes().to_vec();
        header.extend_from_slice(&descriptor);
        header.push((xxh32(&descriptor, 0) >> 8) as u8);
        header
    }

    fn add(&mut self, data: &[u8], _: &Block) {
        self.0.update(data);
    }

    fn end(&mut self) -> Vec<u8> {
        [0_u32.to_le_bytes(), self.0.digest().to_le_bytes()].concat()
    }
}

impl Compression for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    fn suffix(&self) -> &'static str {
        ".lz4"
    }

    fn short(&self) -> &'static [&'static str] {
        &[".tlz4"]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        1..=1
    }

    fn usual_level(&self) -> i32 {
        1
    }

    fn block(&self, _: i32) -> usize {
        BLOCK
    }

    fn memory(&self, _: i32) -> u64 {
        1 << 20
    }

    fn spacing(&self) -> u64 {
        BLOCK as u64
    }

    fn compressor(&self, _: i32) -> io::Result<Box<dyn Compressor>> {
        Ok(Box::new(Blocks))
    }

    fn frame(&self, _: i32) -> Box<dyn Frame> {
        Box::new(Content(Xxh32::new(0)))
    }
}
