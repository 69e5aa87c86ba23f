//! bzip2 with one stream for each block, as pbzip2 has it: `bzip2 -d` reads streams one behind the other.

use std::io;
use std::ops::RangeInclusive;

use bzip2::{Action, Compress, Compression as Level, Status};

use super::{Block, Compression, Compressor, Frame, Point, failed};

/// bzip2, a stream for each block.
pub(super) struct Bzip2;

/// Of 100 000 bytes of a block, those that are used: runs of four bytes take five in it, and what does not fit would
/// become a second block.
const USED: usize = 99_000;

/// "BZh" and the level, behind which the block begins.
const STREAM_HEADER: u64 = 4;

/// Version of the state of a seek point; the level is behind it.
const STATE: u8 = 1;

struct Streams(i32);

impl Compressor for Streams {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        let mut stream = Compress::new(Level::new(self.0.unsigned_abs()), 0);
        // As its manual says: what cannot be compressed grows by one hundredth and 600 bytes at most.
        block.bytes.reserve(data.len() + data.len() / 100 + 600);
        loop {
            let consumed = stream.total_in() as usize;
            let status = stream
                .compress_vec(&data[consumed..], &mut block.bytes, Action::Finish)
                .map_err(|error| failed("bzip2", error))?;
            if status == Status::StreamEnd {
                break;
            }
            block.bytes.reserve(64 << 10);
        }
        block.points.push(Point { bit: STREAM_HEADER * 8, decoded: 0, state: vec![STATE, self.0 as u8] });
        Ok(())
    }
}

impl Compression for Bzip2 {
    fn name(&self) -> &'static str {
        "bzip2"
    }

    fn suffix(&self) -> &'static str {
        ".bz2"
    }

    fn short(&self) -> &'static [&'static str] {
        &[".tbz2", ".tbz", ".tb2", ".tz2"]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        1..=9
    }

    fn usual_level(&self) -> i32 {
        9
    }

    fn block(&self, level: i32) -> usize {
        level.unsigned_abs() as usize * USED
    }

    fn memory(&self, _: i32) -> u64 {
        8 << 20
    }

    fn spacing(&self) -> u64 {
        0
    }

    fn compressor(&self, level: i32) -> io::Result<Box<dyn Compressor>> {
        Ok(Box::new(Streams(level)))
    }

    fn frame(&self, level: i32) -> Box<dyn Frame> {
        Box::new(AtLeastOne { level, is_there: false })
    }
}

/// Without a stream it would be no file of bzip2.
struct AtLeastOne {
    level: i32,
    is_there: bool,
}

impl Frame for AtLeastOne {
    fn add(&mut self, _: &[u8], _: &Block) {
        self.is_there = true;
    }

    fn end(&mut self) -> Vec<u8> {
        /// The end of a stream, and the checksum of no blocks.
        const END: [u8; 10] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90, 0, 0, 0, 0];
        if self.is_there { Vec::new() } else { [format!("BZh{}", self.level).as_bytes(), &END].concat() }
    }
}
