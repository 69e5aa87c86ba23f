//! A file on a disk that cannot read some of its blocks, while it is walked.

use std::io;
use std::ops::Range;

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

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::{Cancel, Source};

    use super::*;

    /// A disk of which nothing can be read, for this reason.
    #[derive(Debug)]
    struct Bad(i32);

    impl Source for Bad {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(self.0))
        }

        fn len(&self) -> u64 {
            1 << 40
        }

        fn describe(&self) -> String {
            "bad".to_owned()
        }
    }

    fn stream(error: i32, passes_them: bool) -> PastBadBlocks {
        PastBadBlocks::new(SourceStream::new(Arc::new(Bad(error)), Cancel::default()), passes_them)
    }

    /// Each place is told once, and of very many only some are.
    #[test]
    fn bad_blocks_are_passed_where_that_is_wanted() {
        const EIO: i32 = 5;
        const ESTALE: i32 = 116;
        let mut past = stream(EIO, true);
        for number in 0..MOST_NOTES as u64 + 5 {
            for _ in 0..2 {
                assert_eq!(past.peek(512).unwrap(), b"");
                assert_eq!(past.position(), number << 20);
            }
            assert_eq!(past.skip(1 << 20).unwrap(), 1 << 20);
        }
        let told = past.into_bad_blocks();
        assert_eq!(told.len(), MOST_NOTES);
        assert!((0..).zip(&told).all(|(number, (at, what))| *at == number << 20 && what.contains("os error 5")));
        for (error, passes_them) in [(EIO, false), (ESTALE, true), (ESTALE, false)] {
            let mut stream = stream(error, passes_them);
            assert_eq!(stream.peek(512).unwrap_err().raw_os_error(), Some(error), "{passes_them}");
            assert!(stream.into_bad_blocks().is_empty());
        }
    }
}
