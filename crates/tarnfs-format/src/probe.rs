use std::cell::RefCell;
use std::io;

use tarnfs_source::Source;

/// What a format may look at to say whether it is the one: the first bytes, and where all of the archive is at hand,
/// any others.
#[derive(Debug)]
pub struct Probe<'p> {
    head: &'p [u8],
    source: Option<&'p dyn Source>,
    searches: bool,
    /// The first error, and the byte at which it was.
    error: RefCell<Option<(u64, io::Error)>>,
}

impl<'p> Probe<'p> {
    /// Of a stream of which only the start is known: at least 1 KiB, unless the stream is shorter.
    pub fn of_head(head: &'p [u8]) -> Self {
        Self { head, source: None, searches: false, error: RefCell::default() }
    }

    /// Of a source, which begins with `head`. Of one that has to be decoded first, only the head is shown: its end
    /// would cost all of it.
    pub fn new(head: &'p [u8], source: &'p dyn Source) -> Self {
        let source = Some(source).filter(|source| source.depth() == 0);
        Self { head, source, searches: false, error: RefCell::default() }
    }

    /// The same of a file that nothing else is made of: formats may search it for where they begin.
    #[must_use]
    pub fn searching(self) -> Self {
        Self { searches: true, ..self }
    }

    /// Whether it may be searched where nothing tells that there is something to be found: a megabyte, not more.
    pub fn searches(&self) -> bool {
        self.searches
    }

    /// The first bytes: at least 1 KiB, unless there are fewer.
    pub fn head(&self) -> &'p [u8] {
        self.head
    }

    /// Length of the whole in bytes, if it is known.
    pub fn length(&self) -> Option<u64> {
        self.source.map(Source::len)
    }

    /// Up to `length` bytes from byte `offset`; fewer, or none, where there are no more or they cannot be read
    /// ([`Probe::take_error`]).
    pub fn at(&self, offset: u64, length: usize) -> Vec<u8> {
        let in_head = usize::try_from(offset).ok().and_then(|from| self.head.get(from..from.checked_add(length)?));
        if let Some(found) = in_head {
            return found.to_vec();
        }
        let Some(source) = self.source else {
            return usize::try_from(offset).ok().and_then(|from| self.head.get(from..)).unwrap_or_default().to_vec();
        };
        let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        let read = source.read_at(&mut bytes, offset).unwrap_or_else(|error| {
            self.error.borrow_mut().get_or_insert((offset, error));
            0
        });
        bytes.truncate(read);
        bytes
    }

    /// The first error that there was, and the byte at which reading failed: what formats have said since may be wrong.
    pub fn take_error(&self) -> Option<(u64, io::Error)> {
        self.error.take()
    }

    /// The last `length` bytes, or all if there are fewer; none if the end is not known.
    pub fn tail(&self, length: usize) -> Vec<u8> {
        let Some(end) = self.length() else { return Vec::new() };
        self.at(end.saturating_sub(length as u64), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarnfs_source::testing::{Fault, FaultySource, When};
    use tarnfs_source::{MemorySource, SharedSource};

    #[test]
    fn shows_what_there_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        let source = MemorySource::new(bytes.clone(), "bytes");
        let probe = Probe::new(&bytes[..100], &source);
        assert_eq!((probe.at(90, 10), probe.at(90, 20)), (bytes[90..100].to_vec(), bytes[90..110].to_vec()));
        assert_eq!((probe.at(250, 20), probe.at(300, 1)), (bytes[250..].to_vec(), Vec::new()));
        assert_eq!((probe.tail(10), probe.tail(1000)), (bytes[246..].to_vec(), bytes.clone()));
        let probe = Probe::of_head(&bytes[..100]);
        assert_eq!((probe.at(90, 20), probe.at(200, 1), probe.tail(10)), (bytes[90..100].to_vec(), vec![], vec![]));
        assert_eq!(probe.length(), None);
        assert!(probe.take_error().is_none());
    }

    /// An archive that is known by its end is not taken for something else because that could not be read once.
    #[test]
    fn an_error_is_told_once() {
        let source: SharedSource = Arc::new(MemorySource::new(vec![0; 256], "bytes"));
        let source = FaultySource::new(source, Fault::Error(5), When::At(1));
        let probe = Probe::new(&[0; 100], &source);
        assert_eq!((probe.tail(10), probe.tail(10).len()), (Vec::new(), 10));
        let (offset, error) = probe.take_error().unwrap();
        assert_eq!((offset, error.raw_os_error()), (246, Some(5)));
        assert!(probe.take_error().is_none());
    }
}
