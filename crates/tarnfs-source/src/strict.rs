use std::io;
use std::ops::Range;

use crate::{SharedSource, Source};

/// Another source, kept to its word: a read that returns fewer bytes than there should be is an error.
///
/// Who reads a source takes a short answer for its end. From one that is not our own (a connection, somebody else's
/// code) that would be an archive that looks cut, or empty.
#[derive(Debug)]
pub struct Strict {
    source: SharedSource,
    version: Option<String>,
}

impl Strict {
    /// Watches over `source`.
    pub fn new(source: SharedSource) -> Self {
        Self { source, version: None }
    }

    /// The same, where it is known what tells it from others ([`Source::version`]).
    #[must_use]
    pub fn of_version(self, version: Option<String>) -> Self {
        Self { version, ..self }
    }

    /// What `read` brings, if that is all that there should be at byte `offset`.
    fn whole(
        &self,
        buffer: &mut [u8],
        offset: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let read = read(&mut buffer[..wanted])?;
        if read == wanted {
            return Ok(read);
        }
        // Not `UnexpectedEof`, which says of a stream that it is cut: the next answer may be another one.
        let described = self.describe();
        Err(io::Error::other(format!("{described}: {read} of {wanted} bytes could be read at byte {offset}")))
    }
}

impl Source for Strict {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.whole(buffer, offset, |buffer| self.source.read_at(buffer, offset))
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        self.whole(buffer, offset, |buffer| self.source.read_before(buffer, offset, end))
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.source.is_filled(range)
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn pinned(&self) -> Option<u64> {
        self.source.pinned()
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref().or_else(|| self.source.version())
    }

    fn part_starts(&self) -> &[u64] {
        self.source.part_starts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;
    use crate::testing::{Fault, FaultySource, When};
    use std::sync::Arc;

    #[test]
    fn short_answers_are_errors_and_the_end_is_not() {
        let whole: SharedSource = Arc::new(MemorySource::new(*b"0123456789", "digits"));
        let mut buffer = [0; 4];
        let strict = Strict::new(Arc::clone(&whole));
        assert_eq!((strict.read_at(&mut buffer, 8).unwrap(), strict.read_at(&mut buffer, 10).unwrap()), (2, 0));
        for fault in [Fault::Nothing, Fault::Half] {
            let strict = Strict::new(Arc::new(FaultySource::new(Arc::clone(&whole), fault, When::At(1))));
            assert_eq!(strict.read_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::Other);
            assert_eq!(strict.read_at(&mut buffer, 0).unwrap(), 4);
        }
        let longer = FaultySource::new(whole, Fault::Nothing, When::At(0)).that_claims(12);
        assert!(Strict::new(Arc::new(longer)).read_at(&mut buffer, 9).is_err());
        let versioned = Strict::new(Arc::new(strict.of_version(Some("1".to_owned()))));
        assert_eq!(versioned.version(), Some("1"));
        assert_eq!(versioned.of_version(Some("2".to_owned())).version(), Some("2"));
    }
}
