//! A stream, line by line.

use crate::{Error, Stream};

/// Bytes that are read together. A longer line comes in several parts.
pub(super) const TOGETHER: usize = 256 << 10;

/// Some of a stream.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Where what comes next begins in the buffer, and in the stream.
    start: usize,
    at: u64,
    /// The stream has no more than what is in the buffer.
    is_end: bool,
    /// What comes next goes on with a line.
    goes_on: bool,
    /// Bytes of the line before that, and whether it is the start of one.
    length: usize,
    is_start: bool,
}

/// A line, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'l> {
    /// Byte of the stream at which it begins.
    pub(super) at: u64,
    /// Without its end.
    pub(super) text: &'l [u8],
    /// "\n" or "\r\n", or nothing where the file ends or more of the line follows.
    pub(super) end: &'l [u8],
    /// It is the start of a line.
    pub(super) is_start: bool,
}

impl Line<'_> {
    /// True of an empty line.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.is_start
    }

    /// Byte of the stream behind it.
    pub(super) fn behind(&self) -> u64 {
        self.at.saturating_add(self.text.len() as u64).saturating_add(self.end.len() as u64)
    }
}

impl Lines {
    pub(super) fn new(stream: &dyn Stream) -> Self {
        Self { at: stream.position(), ..Self::default() }
    }

    /// Goes to the next line; false behind the last one.
    pub(super) fn next(&mut self, stream: &mut dyn Stream) -> Result<bool, Error> {
        let mut rest = self.buffer.get(self.start..).unwrap_or_default();
        let mut found = memchr::memchr(b'\n', rest);
        while found.is_none() && !self.is_end && rest.len() < TOGETHER {
            let searched = rest.len();
            self.fill(stream)?;
            rest = self.buffer.get(self.start..).unwrap_or_default();
            let more = memchr::memchr(b'\n', rest.get(searched..).unwrap_or_default());
            found = more.map(|place| place.saturating_add(searched));
        }
        let length = match found {
            Some(place) => place.saturating_add(1),
            // A carriage return may belong to the end of the line.
            None if rest.last() == Some(&b'\r') && !self.is_end => rest.len().saturating_sub(1),
            None => rest.len(),
        };
        self.is_start = !std::mem::replace(&mut self.goes_on, found.is_none());
        self.length = length;
        self.start = self.start.saturating_add(length);
        self.at = self.at.saturating_add(length as u64);
        Ok(length > 0)
    }

    /// The line that it went to last.
    pub(super) fn line(&self) -> Line<'_> {
        let from = self.start.saturating_sub(self.length);
        let bytes = self.buffer.get(from..self.start).unwrap_or_default();
        let of_end = if bytes.ends_with(b"\r\n") { 2 } else { usize::from(bytes.ends_with(b"\n")) };
        let (text, end) = bytes.split_at_checked(bytes.len().saturating_sub(of_end)).unwrap_or((bytes, b""));
        Line { at: self.at.saturating_sub(self.length as u64), text, end, is_start: self.is_start }
    }

    fn fill(&mut self, stream: &mut dyn Stream) -> Result<(), Error> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let offset = stream.position();
        let failed = |error| Error::Read { offset, error };
        let bytes = stream.peek(TOGETHER).map_err(failed)?;
        let length = bytes.len();
        self.buffer.extend_from_slice(bytes);
        self.is_end = length < TOGETHER;
        stream.skip(length as u64).map_err(failed)?;
        Ok(())
    }

    /// Up to `length` bytes from byte `at` of the stream on, which lies ahead, if that is no more than `most` bytes
    /// away, and no byte behind its end. Nothing is moved.
    pub(super) fn look_at(
        &self,
        stream: &mut dyn Stream,
        at: u64,
        length: usize,
        most: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(ahead) = at.checked_sub(self.at) else { return Ok(None) };
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        if ahead.saturating_add(length as u64) > most.min(crate::stream::MOST_PEEKED as u64) {
            return Ok(None);
        }
        let ahead = ahead as usize;
        let in_buffer = rest.get(ahead.min(rest.len())..).unwrap_or_default();
        let mut found = in_buffer.get(..length.min(in_buffer.len())).unwrap_or_default().to_vec();
        let missing = length.saturating_sub(found.len());
        if missing > 0 && !self.is_end {
            let offset = stream.position();
            let skipped = ahead.saturating_sub(rest.len());
            let bytes = stream.peek(skipped.saturating_add(missing));
            let bytes = bytes.map_err(|error| Error::Read { offset, error })?;
            let Some(more) = bytes.get(skipped..) else { return Ok(None) };
            found.extend_from_slice(more);
        } else if ahead > rest.len() {
            return Ok(None);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceStream;
    use std::sync::Arc;
    use tarnfs_source::{Cancel, MemorySource};

    #[test]
    fn lines_are_those_of_the_file_however_long() {
        let long = vec![b'x'; 3 * TOGETHER + 5];
        let bytes = [b"a\r\n\n".as_slice(), &long, b"\r\nb\rc\nlast"].concat();
        let mut stream = SourceStream::new(Arc::new(MemorySource::new(bytes.clone(), "bytes")), Cancel::default());
        let mut lines = Lines::new(&stream);
        assert_eq!(lines.look_at(&mut stream, 2, 4, 100).unwrap().unwrap(), b"\n\nxx");
        let (mut all, mut starts) = (Vec::new(), Vec::new());
        while lines.next(&mut stream).unwrap() {
            let line = lines.line();
            assert_eq!(line.at, all.len() as u64);
            all.extend_from_slice(line.text);
            all.extend_from_slice(line.end);
            assert_eq!(line.behind(), all.len() as u64);
            if line.is_start {
                starts.push((line.at, line.end.len()));
            }
            if line.at == 0 {
                let end = bytes.len() as u64 - 4;
                assert_eq!(lines.look_at(&mut stream, end, 9, 1 << 30).unwrap().unwrap(), b"last");
                assert_eq!(lines.look_at(&mut stream, end, 9, 100).unwrap(), None);
                assert_eq!(lines.look_at(&mut stream, end + 4, 9, 1 << 30).unwrap().unwrap(), b"");
                assert_eq!(lines.look_at(&mut stream, end + 5, 9, 1 << 30).unwrap(), None);
            }
        }
        let behind = 4 + long.len() as u64 + 2;
        assert_eq!(starts, [(0, 2), (3, 1), (4, 0), (behind, 1), (behind + 4, 0)]);
        assert_eq!(all, bytes);
    }
}
