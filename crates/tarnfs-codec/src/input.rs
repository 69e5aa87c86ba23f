use std::io;

use tarnfs_source::{SharedSource, Source};

/// A source read in order through a buffer.
///
/// The first reads are small, because somebody who wants one small file needs little; they double while reading goes
/// on.
#[derive(Debug)]
pub(crate) struct Input {
    source: SharedSource,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Offset in the source of `buffer[start]`.
    position: u64,
    next_read: usize,
}

impl Input {
    const FIRST_READ: usize = 16 << 10;
    /// Larger reads gain nothing and push decoded bytes out of the processor's cache.
    const LARGEST_READ: usize = 256 << 10;

    /// Reads `source` from byte `position` on.
    pub(crate) fn new(source: SharedSource, position: u64) -> Self {
        Self { source, buffer: Vec::new(), start: 0, end: 0, position, next_read: Self::FIRST_READ }
    }

    /// Offset in the source of the next unread byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The source that is read.
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// The same, to be read by somebody else, too.
    pub(crate) fn shared_source(&self) -> &SharedSource {
        &self.source
    }

    /// Bytes from the position to the end of the source.
    pub(crate) fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.position)
    }

    /// The unread bytes that are in memory.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// At least the next `wanted` bytes (and what else is in memory); fewer only at the end of the source.
    pub(crate) fn fill(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted {
            self.read(wanted)?;
        }
        Ok(self.buffered())
    }

    /// The next `length` bytes; fewer only at the end of the source.
    pub(crate) fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        let bytes = self.fill(length)?;
        Ok(&bytes[..length.min(bytes.len())])
    }

    fn read(&mut self, wanted: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let unread = self.remaining() - self.end as u64;
        let length = (self.next_read.max(wanted) - self.end).min(usize::try_from(unread).unwrap_or(usize::MAX));
        self.next_read = (self.next_read * 2).min(Self::LARGEST_READ);
        if self.buffer.len() < self.end + length {
            self.buffer.resize(self.end + length, 0);
        }
        let from = self.position.saturating_add(self.end as u64);
        self.end += self.source.read_at(&mut self.buffer[self.end..self.end + length], from)?;
        Ok(())
    }

    /// Moves on by `count` bytes, all of which are in memory.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.position += count as u64;
    }

    /// Moves on by `count` bytes, at most to the end of the source, without reading them. False if it ends before.
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        let possible = count.min(self.remaining());
        self.seek(self.position + possible);
        possible == count
    }

    /// Goes on at byte `position`.
    pub(crate) fn seek(&mut self, position: u64) {
        match position.checked_sub(self.position) {
            Some(forward) if forward <= (self.end - self.start) as u64 => self.consume(forward as usize),
            _ => {
                (self.start, self.end) = (0, 0);
                self.position = position;
            }
        }
    }

    /// Moves on over a hole of the source at the position, by a multiple of `step` bytes, without reading it.
    pub(crate) fn skip_hole(&mut self, step: u64) {
        let data = self.source.next_data(self.position).unwrap_or_else(|| self.source.len());
        let hole = data.saturating_sub(self.position);
        self.seek(self.position + hole.checked_rem(step).map_or(0, |rest| hole - rest));
    }

    /// Bytes of memory that the buffer takes.
    pub(crate) fn memory(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarnfs_source::MemorySource;

    #[test]
    fn reads_skips_and_stops_at_the_end() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect();
        let mut input = Input::new(Arc::new(MemorySource::new(bytes.clone(), "numbers")), 10);
        assert_eq!(&input.fill(5).unwrap()[..5], &bytes[10..15]);
        input.consume(3);
        assert!(input.skip(2));
        assert_eq!(input.peek(2).unwrap(), &bytes[15..17]);
        assert!(input.skip(50_000));
        assert_eq!(&input.fill(40_000).unwrap()[..40_000], &bytes[50_015..90_015]);
        input.consume(40_000);
        assert_eq!(input.fill(usize::MAX >> 1).unwrap(), &bytes[90_015..]);
        assert!(!input.skip(u64::MAX));
        assert_eq!((input.position(), input.remaining()), (100_000, 0));
        assert_eq!(input.fill(1).unwrap(), b"");
    }
}
