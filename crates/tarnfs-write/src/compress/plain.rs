//! No compression.

use std::io;
use std::ops::RangeInclusive;

use super::{Bare, Block, Compression, Compressor, Frame};

/// Bytes are what they are.
pub(super) struct Plain;

struct Nothing;

impl Compressor for Nothing {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        block.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Compression for Plain {
    fn name(&self) -> &'static str {
        "none"
    }

    fn suffix(&self) -> &'static str {
        ""
    }

    fn short(&self) -> &'static [&'static str] {
        &[]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        0..=0
    }

    fn usual_level(&self) -> i32 {
        0
    }

    fn block(&self, _: i32) -> usize {
        // Stays in the second-level cache between being read and being written.
        512 << 10
    }

    fn memory(&self, _: i32) -> u64 {
        0
    }

    fn spacing(&self) -> u64 {
        u64::MAX
    }

    fn compressor(&self, _: i32) -> io::Result<Box<dyn Compressor>> {
        Ok(Box::new(Nothing))
    }

    fn frame(&self, _: i32) -> Box<dyn Frame> {
        Box::new(Bare)
    }

    fn is_plain(&self) -> bool {
        true
    }
}
