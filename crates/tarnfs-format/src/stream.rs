use std::io;
use std::ops::Range;

use tarnfs_source::{Cancel, SharedSource};

/// A stream that is walked once from start to end: a source, or a compressed stream that is just being decoded.
pub trait Stream {
    /// Byte of the stream at which the next `peek` begins.
    fn position(&self) -> u64;

    /// The next `length` bytes without moving on; fewer only where the stream ends.
    ///
    /// `length` is at most [`crate::stream::MOST_PEEKED`]; more is `InvalidInput`.
    fn peek(&mut self, length: usize) -> io::Result<&[u8]>;

    /// Moves `length` bytes on and returns how far it got: less only where the stream ends.
    fn skip(&mut self, length: u64) -> io::Result<u64>;

    /// Goes back to byte `position`, which was passed before. False (and nothing is done) if this stream cannot.
    fn go_back(&mut self, position: u64) -> bool {
        let _ = position;
        false
    }

    /// True if something of unknown length may be missing before byte `end`: a part of a compressed stream that was
    /// lost. Of what was not looked at yet nobody knows.
    fn may_have_shifted(&self, end: u64) -> bool {
        let _ = end;
        false
    }

    /// Bytes from where it stands on that are a hole: all of them are zeros, and there may be more than anybody can
    /// read.
    fn hole(&self) -> u64 {
        0
    }

    /// True if something in these bytes of the stream could not be read, and something else was shown in its place.
    fn is_filled(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
}

/// The most that one [`Stream::peek`] can show.
pub const MOST_PEEKED: usize = 32 << 20;

/// Walks a source. What is skipped is not read, unless it is so little that reading on costs less than a new call.
#[derive(Debug)]
pub struct SourceStream {
    source: SharedSource,
    cancel: Cancel,
    /// Its first `filled` bytes are bytes of the source; the rest is room, kept so that it is cleared only once.
    buffer: Vec<u8>,
    filled: usize,
    /// Byte of the source at which `buffer` begins.
    start: u64,
    /// Byte of the source at which the stream stands, inside the filled part of `buffer` or at its end.
    position: u64,
    /// How much to read at once: grows while the bytes read are wanted, shrinks when they are skipped.
    batch: usize,
    /// Bytes skipped since the last read that it would have been better not to read.
    passed: u64,
}

impl SourceStream {
    /// Large enough that a system call is cheap against the bytes it brings.
    const MOST: usize = 1 << 20;
    /// A header, its extended headers, and a small file or two.
    const LEAST: usize = 4 << 10;
    /// Copying fewer bytes than this out of the page cache is about as cheap as another system call.
    const WORTH_A_CALL: u64 = 4 << 10;

    /// Walks `source` from its start.
    pub fn new(source: SharedSource, cancel: Cancel) -> Self {
        let (buffer, batch) = (Vec::new(), Self::LEAST);
        Self { source, cancel, buffer, filled: 0, start: 0, position: 0, batch, passed: 0 }
    }

    fn buffered(&self) -> usize {
        self.start.saturating_add(self.filled as u64).saturating_sub(self.position) as usize
    }

    /// Reads on until `length` bytes are there, or the source ends.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        self.cancel.check()?;
        // Half of it is worth more than the calls that come instead.
        self.batch = if self.passed > self.batch as u64 / 2 {
            (self.batch / 4).max(Self::LEAST)
        } else {
            self.batch.saturating_mul(2).min(Self::MOST)
        };
        let kept = self.buffered();
        self.buffer.copy_within(self.filled.saturating_sub(kept)..self.filled, 0);
        (self.start, self.filled, self.passed) = (self.position, kept, 0);
        // Never more room than there are bytes: `length` may come from a file that lies.
        let there = usize::try_from(self.source.len().saturating_sub(self.start)).unwrap_or(usize::MAX);
        let wanted = length.max(self.batch).min(there).max(kept);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let room = self.buffer.get_mut(kept..wanted).unwrap_or_default();
        let from = self.start.saturating_add(kept as u64);
        let mut room_length = room.len();
        let needed = length.min(there).saturating_sub(kept);
        let read = match self.source.read_at(room, from) {
            // What cannot be read may lie behind what is wanted, and be skipped.
            Err(_) if needed < room_length => {
                (self.batch, room_length) = (Self::LEAST, needed);
                self.source.read_at(room.get_mut(..needed).unwrap_or_default(), from)?
            }
            read => read?,
        };
        self.filled = kept.saturating_add(read);
        if read < room_length {
            // Taken for the end, what is behind it would be missing without a word.
            let ends = format!("{}: ends at byte {}", self.source.describe(), from.saturating_add(read as u64));
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends));
        }
        Ok(())
    }
}

impl Stream for SourceStream {
    fn position(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if self.buffered() < length {
            if length > MOST_PEEKED {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.fill(length)?;
        }
        let from = self.position.saturating_sub(self.start) as usize;
        let to = from.saturating_add(length).min(self.filled);
        Ok(self.buffer.get(from..to).unwrap_or_default())
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        if length >= Self::WORTH_A_CALL {
            self.passed = self.passed.saturating_add(length);
        }
        if length <= self.buffered() as u64 {
            self.position = self.position.saturating_add(length);
            return Ok(length);
        }
        self.cancel.check()?;
        let length = length.min(self.source.len().saturating_sub(self.position));
        let leaves = length > self.buffered() as u64;
        self.position = self.position.saturating_add(length);
        if leaves {
            (self.start, self.filled) = (self.position, 0);
        }
        Ok(length)
    }

    fn go_back(&mut self, position: u64) -> bool {
        let is_buffered = (self.start..=self.start.saturating_add(self.filled as u64)).contains(&position);
        if !is_buffered {
            (self.start, self.filled) = (position, 0);
        }
        self.position = position;
        true
    }

    fn hole(&self) -> u64 {
        let end = self.source.len();
        self.source.next_data(self.position).unwrap_or(end).min(end).saturating_sub(self.position)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.source.is_filled(range)
    }
}

/// A source as a stream that can only go forwards, as one that is decoded does: what is skipped is read.
#[derive(Debug)]
pub struct ForwardStream(pub SourceStream);

impl Stream for ForwardStream {
    fn position(&self) -> u64 {
        self.0.position()
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        self.0.peek(length)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        self.0.skip(length)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.0.is_filled(range)
    }
}

/// A stream up to a byte at which it ends for whoever walks this: the content of one file in an archive. Positions are
/// those of the stream.
pub struct Part<'s> {
    stream: &'s mut dyn Stream,
    start: u64,
    end: u64,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Part").field("start", &self.start).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<'s> Part<'s> {
    /// From where `stream` stands up to byte `end`.
    pub fn new(stream: &'s mut dyn Stream, end: u64) -> Self {
        Self { start: stream.position(), stream, end }
    }

    /// The byte of the stream at which it ends, if that has so many.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    fn left(&self) -> u64 {
        self.end.saturating_sub(self.stream.position())
    }
}

impl Stream for Part<'_> {
    fn position(&self) -> u64 {
        self.stream.position()
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        self.stream.peek(length.min(left))
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        self.stream.skip(length.min(self.left()))
    }

    fn go_back(&mut self, position: u64) -> bool {
        position >= self.start && self.stream.go_back(position)
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.stream.may_have_shifted(end)
    }

    fn hole(&self) -> u64 {
        self.stream.hole().min(self.left())
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range)
    }
}

/// A stream whose bytes lie elsewhere: positions count from `base` on.
#[derive(Debug)]
pub struct Moved<S> {
    stream: S,
    base: u64,
}

impl<S: Stream> Moved<S> {
    /// Byte 0 of `stream` becomes byte `base`.
    pub fn new(stream: S, base: u64) -> Self {
        Self { stream, base }
    }
}

impl<S: Stream> Stream for Moved<S> {
    fn position(&self) -> u64 {
        self.base.saturating_add(self.stream.position())
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        self.stream.peek(length)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        self.stream.skip(length)
    }

    fn go_back(&mut self, position: u64) -> bool {
        position >= self.base && self.stream.go_back(position.saturating_sub(self.base))
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.stream.may_have_shifted(end.saturating_sub(self.base))
    }

    fn hole(&self) -> u64 {
        self.stream.hole()
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range.start.saturating_sub(self.base)..range.end.saturating_sub(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarnfs_source::MemorySource;

    #[test]
    fn a_hole_is_known_without_being_read() {
        use tarnfs_source::{Extent, Stencil};
        let packed = Arc::new(MemorySource::new(vec![1; 1024], "packed"));
        let extent = |offset| Extent { offset, length: 512, skip: 0 };
        let sparse = Stencil::new(packed, vec![extent(0), extent(1 << 40)], 1 << 60).unwrap();
        let mut stream = Moved::new(SourceStream::new(Arc::new(sparse), Cancel::default()), 7);
        assert_eq!((stream.hole(), stream.skip(512).unwrap()), (0, 512));
        assert_eq!(Part::new(&mut stream, 2007).hole(), 1488);
        assert_eq!(stream.hole(), (1 << 40) - 512);
        stream.skip(1 << 40).unwrap();
        assert_eq!((stream.position(), stream.hole()), ((1 << 40) + 519, (1 << 60) - (1 << 40) - 512));
        let plain = Arc::new(MemorySource::new(vec![0; 1024], "plain"));
        assert_eq!(SourceStream::new(plain, Cancel::default()).hole(), 0);
    }

    #[test]
    fn shows_the_same_bytes_however_it_is_walked() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        for step in [1, 511, 4095, 70_000, 400_000, 1_500_000] {
            let source = Arc::new(MemorySource::new(bytes.clone(), "bytes"));
            let mut stream = SourceStream::new(source, Cancel::default());
            let mut at = 0_usize;
            for _ in 0..2000 {
                for length in [0, 1, 512, 5000] {
                    let end = (at + length).min(bytes.len());
                    assert_eq!(stream.peek(length).unwrap(), &bytes[at..end], "{length} bytes at {at}");
                }
                let moved = stream.skip(step).unwrap();
                assert_eq!(moved, step.min((bytes.len() - at) as u64));
                at += moved as usize;
                assert_eq!(stream.position(), at as u64);
            }
            assert!(stream.go_back(1_000_000));
            assert_eq!(stream.position(), 1_000_000);
            assert_eq!(stream.peek(10).unwrap(), &bytes[1_000_000..1_000_010]);
            // Within what is there already, and outside of it.
            for (back, ahead) in [(1_000_004, 3), (1_000_000, 10), (999_999, 20), (1_000_010, 10), (1_000_001, 0)] {
                assert!(stream.go_back(back) && stream.position() == back);
                let back = back as usize;
                assert_eq!(stream.peek(10).unwrap(), &bytes[back..back + 10]);
                assert_eq!(stream.skip(ahead).unwrap(), ahead);
                let at = back + ahead as usize;
                assert_eq!(stream.peek(10).unwrap(), &bytes[at..at + 10]);
            }
        }
    }

    /// Bytes of which some cannot be read.
    #[derive(Debug)]
    struct Bad(MemorySource, std::ops::Range<u64>);

    impl tarnfs_source::Source for Bad {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let is_bad = offset < self.1.end && offset.saturating_add(buffer.len() as u64) > self.1.start;
            if is_bad { Err(io::Error::from_raw_os_error(5)) } else { self.0.read_at(buffer, offset) }
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    /// Counts what is read of it.
    #[derive(Debug)]
    struct Counted(MemorySource, std::sync::atomic::AtomicU64);

    impl tarnfs_source::Source for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let read = self.0.read_at(buffer, offset)?;
            self.1.fetch_add(read as u64, std::sync::atomic::Ordering::Relaxed);
            Ok(read)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    /// After headers that all were wanted come files of which nothing is.
    #[test]
    fn what_is_skipped_is_soon_not_read_any_more() {
        let source = Arc::new(Counted(MemorySource::new(vec![0; 8 << 20], "zeros"), 0.into()));
        let mut stream = SourceStream::new(Arc::clone(&source) as SharedSource, Cancel::default());
        while !stream.peek(512).unwrap().is_empty() {
            stream.skip(if stream.position() < 2 << 20 { 512 } else { 512 + (16 << 10) }).unwrap();
        }
        let read = source.1.load(std::sync::atomic::Ordering::Relaxed);
        assert!((2 << 20..5 << 20).contains(&read), "{read}");
    }

    /// What is skipped need not be readable, though much is read at once.
    #[test]
    fn what_cannot_be_read_is_an_error_only_for_who_wants_it() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let source = Arc::new(Bad(MemorySource::new(bytes.clone(), "bytes"), 150_000..150_001));
        let mut stream = SourceStream::new(source, Cancel::default());
        for at in (0..bytes.len()).step_by(1000) {
            let shown = stream.peek(512).map(<[u8]>::to_vec).map_err(|error| error.raw_os_error());
            let right = bytes[at..(at + 512).min(bytes.len())].to_vec();
            assert_eq!(shown, if at == 150_000 { Err(Some(5)) } else { Ok(right) }, "{at}");
            stream.skip(1000).unwrap();
        }
    }

    #[test]
    fn a_part_ends_where_it_was_cut_and_a_moved_stream_counts_from_its_base() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let source = Arc::new(MemorySource::new(bytes.clone(), "bytes"));
        let mut stream = Moved::new(SourceStream::new(source, Cancel::default()), 1 << 40);
        assert_eq!(stream.skip(1000).unwrap(), 1000);
        let base = (1_u64 << 40) + 1000;
        let mut part = Part::new(&mut stream, base + 5000);
        assert_eq!((part.position(), part.peek(6000).unwrap().len()), (base, 5000));
        assert_eq!(part.skip(4000).unwrap(), 4000);
        assert_eq!(part.peek(6000).unwrap(), &bytes[5000..6000]);
        assert_eq!(part.skip(6000).unwrap(), 1000);
        assert!(part.peek(1).unwrap().is_empty());
        assert!(part.go_back(base) && !part.go_back(base - 1));
        assert_eq!(part.peek(10).unwrap(), &bytes[1000..1010]);
    }
}
