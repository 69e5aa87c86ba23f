//! A block of a disk that cannot be read. Of what is compressed, most of what lies behind it is lost with it: with
//! `--force`, what comes before it is served.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tarnfs_source::{Cancel, SharedSource, Source};

/// Bytes that are tried at once, and then where one of them cannot be read: a sector of a disk.
const STEPS: [usize; 2] = [1 << 20, 512];

/// True of what the system says of a block that the disk cannot read.
pub(crate) fn is_bad_block(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// A source up to its first byte that cannot be read. From there on it is as if it were cut; it is as long as before.
#[derive(Debug)]
pub(super) struct Readable {
    source: SharedSource,
    /// That byte.
    end: u64,
    /// What the system says of it.
    why: String,
}

impl Readable {
    /// As much of `source` as can be read; `None` where that is all of it, or nothing. Reads all that it is to serve.
    pub(super) fn of(source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Self>> {
        let mut buffer = vec![0; STEPS[0]];
        let (mut end, mut steps) = (0, STEPS.iter().peekable());
        while let Some(&&step) = steps.peek() {
            cancel.check()?;
            let length = source.len().saturating_sub(end).min(step as u64) as usize;
            if length == 0 {
                return Ok(None);
            }
            match source.read_exact_at(&mut buffer[..length], end) {
                Ok(()) => end += length as u64,
                Err(error) if is_bad_block(&error) => {
                    steps.next();
                    if steps.peek().is_none() {
                        let source = Arc::clone(source);
                        return Ok((end > 0).then(|| Self { source, end, why: error.to_string() }));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// What is wrong with it.
    pub(super) fn why(&self) -> String {
        format!("byte {} of the file cannot be read: {}", self.end, self.why)
    }
}

impl Source for Readable {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, self.end)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let there = self.end.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if there == 0 && !buffer.is_empty() && offset < self.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, self.why()));
        }
        self.source.read_before(&mut buffer[..there], offset, end.min(self.end))
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        // Nothing there is known to be a hole.
        if offset >= self.end && offset < self.len() {
            return Some(offset);
        }
        self.source.next_data(offset).map(|data| data.min(self.end))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if offset < self.end {
            self.source.prefetch(offset, length.min(self.end - offset));
        }
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let there = self.end.saturating_sub(offset).min(length as u64) as usize;
        there == 0 || self.source.is_ready(offset, there)
    }

    fn part_starts(&self) -> &[u64] {
        self.source.part_starts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that count, of which some cannot be read.
    #[derive(Debug)]
    struct Bad {
        length: u64,
        lost: std::ops::Range<u64>,
        errno: Errno,
    }

    impl Source for Bad {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let end = self.length.min(offset.saturating_add(buffer.len() as u64));
            if offset < self.lost.end && end > self.lost.start {
                return Err(self.errno.into());
            }
            buffer.iter_mut().zip(offset..end).for_each(|(byte, at)| *byte = at as u8);
            Ok(end.saturating_sub(offset) as usize)
        }

        fn len(&self) -> u64 {
            self.length
        }

        fn describe(&self) -> String {
            "a disk".to_owned()
        }
    }

    fn readable(length: u64, lost: std::ops::Range<u64>, errno: Errno) -> io::Result<Option<Readable>> {
        let source: SharedSource = Arc::new(Bad { length, lost, errno });
        Readable::of(&source, &Cancel::default())
    }

    #[test]
    fn what_lies_before_a_bad_block_is_there_and_the_rest_is_an_error() {
        const MIB: u64 = 1 << 20;
        for (length, at) in [(3 * MIB, 2 * MIB + 4096), (3 * MIB, MIB), (MIB + 700, MIB + 512), (5000, 4096)] {
            let readable = readable(length, at..at + 1, Errno::IO).unwrap().unwrap();
            assert_eq!((readable.len(), readable.end), (length, at));
            let mut buffer = [0; 100];
            assert_eq!(readable.read_at(&mut buffer, at - 60).unwrap(), 60);
            assert!(buffer[..60].iter().zip(at - 60..).all(|(&byte, at)| byte == at as u8));
            for offset in [at, at + 1, length - 1] {
                let error = readable.read_at(&mut buffer, offset).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "as of what was cut");
                assert!(error.to_string().starts_with(&format!("byte {at} of the file cannot be read: ")), "{error}");
                assert_eq!(readable.next_data(offset), Some(offset));
            }
            assert_eq!((readable.read_at(&mut buffer, length).unwrap(), readable.next_data(length)), (0, None));
            assert_eq!((readable.read_at(&mut [], at).unwrap(), readable.next_data(5)), (0, Some(5)));
        }
    }

    #[test]
    fn what_is_no_bad_block_is_nothing_to_go_on_with() {
        assert!(readable(5000, 5000..5001, Errno::IO).unwrap().is_none(), "all can be read");
        assert!(readable(5000, 0..1, Errno::IO).unwrap().is_none(), "nothing can be read");
        assert!(readable(5000, 4096..4097, Errno::TIMEDOUT).is_err());
        let cancel = Cancel::default();
        cancel.cancel();
        let source: SharedSource = Arc::new(Bad { length: 5000, lost: 0..0, errno: Errno::IO });
        assert!(Readable::of(&source, &cancel).is_err());
    }
}
