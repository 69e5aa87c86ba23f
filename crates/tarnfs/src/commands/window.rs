//! Small files of an archive whose contents follow each other are read several at once.

use tarnfs_source::Source;
use tarnfs_tree::Stored;
use tarnfs_tree::open::OpenArchive;

/// Files that are not longer are small.
const SMALL: u64 = 32 << 10;

/// Bytes that are read at once.
const READ: usize = 256 << 10;

/// A file is the next one if no more bytes lie between it and the one before: headers, and filling.
const BETWEEN: u64 = 8 << 10;

/// A part of the archive's innermost stream.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    at: u64,
    /// Where the file ended that was asked for last.
    end: u64,
}

/// What small files of `opened` can be read from without more ado. `None` if more has to be looked at for each of them.
pub(super) fn stream_of(opened: &OpenArchive) -> Option<&dyn Source> {
    let stream = &*opened.stream;
    (opened.tree.is_read_as_stored() && !stream.is_unproven()).then_some(stream)
}

impl Window {
    /// The content of a small file. `None` where it is to be read alone: where none before it was asked for, what lies
    /// behind it may be of no use; and of what is damaged that says what is wrong.
    pub(super) fn content(&mut self, stream: &dyn Source, stored: &Stored, size: u64) -> Option<&[u8]> {
        let (Stored { stream: 0, place, is_plain: true, .. }, 0..=SMALL) = (*stored, size) else {
            return None;
        };
        let is_next = place.checked_sub(self.end).is_some_and(|between| between <= BETWEEN);
        self.end = place.saturating_add(size);
        let within = |at: u64, length: usize| {
            let from = usize::try_from(place.checked_sub(at)?).ok()?;
            let end = from.checked_add(size as usize)?;
            (end <= length).then_some(from..end)
        };
        if let Some(range) = within(self.at, self.bytes.len()) {
            return self.bytes.get(range);
        }
        if !is_next {
            return None;
        }
        self.bytes.resize(READ, 0);
        let read = stream.read_at(&mut self.bytes, place).unwrap_or(0);
        self.bytes.truncate(read);
        self.at = place;
        self.bytes.get(within(place, read)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tarnfs_source::MemorySource;

    use super::*;

    #[derive(Debug)]
    struct Counted(MemorySource, AtomicUsize);

    impl Source for Counted {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(buffer, at)
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    fn stored(place: u64) -> Stored {
        Stored { stream: 0, place, header: Some(0), is_plain: true, has_xattrs: false }
    }

    #[test]
    fn neighbours_are_read_at_once_and_what_lies_apart_is_not() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
        let source = Counted(MemorySource::new(bytes.clone(), "numbers"), AtomicUsize::new(0));
        let reads = || source.1.load(Ordering::Relaxed);
        let mut window = Window::default();
        // Far behind the start, alone.
        assert_eq!(window.content(&source, &stored(20_000), 100), None);
        assert_eq!(reads(), 0);
        for place in (20_512..29_000).step_by(512) {
            let wanted = &bytes[place as usize..][..100];
            assert_eq!(window.content(&source, &stored(place), 100), Some(wanted), "{place}");
        }
        assert_eq!(reads(), 1);
        // Too large, of another stream, in pieces, or behind the end.
        assert_eq!(window.content(&source, &stored(29_000), SMALL + 1), None);
        assert_eq!(window.content(&source, &Stored { stream: 1024, ..stored(29_000) }, 1), None);
        assert_eq!(window.content(&source, &Stored { is_plain: false, ..stored(29_000) }, 1), None);
        assert_eq!(window.content(&source, &stored(299_900), 100), None);
        assert_eq!(window.content(&source, &stored(300_000), 100), None);
        assert_eq!(window.content(&source, &stored(u64::MAX), 100), None);
        assert_eq!(reads(), 2);
    }
}
