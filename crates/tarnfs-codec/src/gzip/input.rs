//! Reads the compressed bytes.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

/// First block after a resume: most resumes decode a piece or two.
const SMALLEST_BLOCK: usize = 16 << 10;
/// Largest block: stays in the second-level cache, and is memory that the allocator gives out again. A larger one it
/// maps anew for each decoder, and a random read leaves half of it unused.
const LARGEST_BLOCK: usize = 64 << 10;

/// The compressed bytes of a source in order, read in blocks that double from 16 to 64 KiB.
pub(super) struct Input {
    source: SharedSource,
    /// Where the block in `block` ends in the source.
    block_end: u64,
    block: Vec<u8>,
    /// What of the block is not consumed starts here.
    next: usize,
    cancel: Cancel,
}

impl Input {
    /// Starts at byte `offset`.
    pub(super) fn new(source: SharedSource, offset: u64, cancel: Cancel) -> Self {
        Self { source, block_end: offset, block: Vec::new(), next: 0, cancel }
    }

    /// The source that is read.
    pub(super) fn source(&self) -> &SharedSource {
        &self.source
    }

    /// What ends a long pass.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Offset in the source of the next byte that is not consumed.
    pub(super) fn position(&self) -> u64 {
        self.block_end - (self.block.len() - self.next) as u64
    }

    /// The bytes that come next, at least one; empty only at the end of the source.
    pub(super) fn fill(&mut self) -> io::Result<&[u8]> {
        self.fill_to(1)
    }

    /// The bytes that come next, at least `least` (which is less than a block); fewer only at the end of the source.
    pub(super) fn fill_to(&mut self, least: usize) -> io::Result<&[u8]> {
        let rest = self.block.len() - self.next;
        if rest < least && self.block_end < self.source.len() {
            self.cancel.check()?;
            let size = (self.block.len() * 2).clamp(SMALLEST_BLOCK, LARGEST_BLOCK);
            self.block.copy_within(self.next.., 0);
            self.next = 0;
            self.block.resize(size, 0);
            let read = self.source.read_at(&mut self.block[rest..], self.block_end);
            self.block.truncate(rest + *read.as_ref().unwrap_or(&0));
            self.block_end += read? as u64;
        }
        Ok(&self.block[self.next..])
    }

    /// Goes on by `count` bytes of what [`Input::fill`] returned.
    pub(super) fn consume(&mut self, count: usize) {
        self.next = (self.next + count).min(self.block.len());
    }

    /// Goes on over a hole of the source behind what was read, without reading it.
    pub(super) fn skip_hole(&mut self) {
        let data = self.source.next_data(self.block_end).unwrap_or_else(|| self.source.len());
        if self.next == self.block.len() && data > self.block_end {
            self.block.clear();
            (self.next, self.block_end) = (0, data);
        }
    }

    /// The next byte, consumed; `None` at the end of the source.
    pub(super) fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = self.fill()?.first().copied();
        self.consume(usize::from(byte.is_some()));
        Ok(byte)
    }

    /// The next `N` bytes, consumed; `None` if the source ends before (then what there was is consumed).
    pub(super) fn bytes<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        for place in &mut bytes {
            let Some(byte) = self.byte()? else { return Ok(None) };
            *place = byte;
        }
        Ok(Some(bytes))
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.block.capacity()
    }
}
