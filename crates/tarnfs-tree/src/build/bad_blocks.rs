//! A file on a disk that cannot read some of its blocks, while it is walked.

use std::io;

use tarnfs_format::{SourceStream, Stream};

use super::receiver::MOST_NOTES;
use crate::open::is_bad_block;

/// Where the disk cannot read, the stream seems to end, and goes on for whoever skips that.
pub(super) struct PastBadBlocks {
    stream: SourceStream,
    /// Else what cannot be read is an error.
    passes_them: bool,
    /// Where something could not be read, and what the system says.
    bad_blocks: Vec<(u64, String)>,
}

impl PastBadBlocks {
    pub(super) fn new(stream: SourceStream, passes_them: bool) -> Self {
        Self { stream, passes_them, bad_blocks: Vec::new() }
    }

    pub(super) fn into_bad_blocks(self) -> Vec<(u64, String)> {
        self.bad_blocks
    }
}

impl Stream for PastBadBlocks {
    fn position(&self) -> u64 {
        self.stream.position()
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if !self.passes_them {
            return self.stream.peek(length);
        }
        let at = self.stream.position();
        match self.stream.peek(length).map(drop) {
            Err(error) if is_bad_block(&error) => {
                let is_known = self.bad_blocks.last().is_some_and(|(known, _)| *known == at);
                if !is_known && self.bad_blocks.len() < MOST_NOTES {
                    self.bad_blocks.push((at, error.to_string()));
                }
                Ok(&[])
            }
            Err(error) => Err(error),
            // It is in memory.
            Ok(()) => self.stream.peek(length),
        }
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        self.stream.skip(length)
    }

    fn go_back(&mut self, position: u64) -> bool {
        self.stream.go_back(position)
    }

    fn hole(&self) -> u64 {
        self.stream.hole()
    }
}
