//! An archive in an archive that is cut or damaged: what can be read of it is shown, whether it is indexed with what it
//! lies in or opened later.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tarnfs_codec::{ChunkTable, Codec};
use tarnfs_source::{SharedSource, Source};

use crate::unnoticed::first_unnoticed;

/// Of what cannot be read, this is shown to a first pass: no header begins so, nor is it the end of a tar.
const FILLER: u8 = 0xff;

/// What is tried at once where something cannot be read, first and then: a block of a tar.
const STEPS: [usize; 2] = [64 << 10, 512];

/// Bytes that are filled, beside as many as could be read. Each 512 of them are a read that fails, and a few bytes of
/// an image may say that a file has a TiB of damaged blocks.
const MOST_FILLED: u64 = 64 << 20;

/// Places that were filled which are remembered. Of more than these the first counts.
const MOST_PLACES: usize = 4096;

/// Bytes of `source` that are there: a file in an archive that was cut may say that it is longer.
fn what_is_there(source: &dyn Source) -> io::Result<u64> {
    let has = |offset: u64| match source.read_at(&mut [0], offset) {
        Ok(read) => Ok(read > 0),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) if is_damage(&error) => Ok(true),
        Err(error) => Err(error),
    };
    let Some(last) = source.len().checked_sub(1) else { return Ok(0) };
    if has(last)? {
        return Ok(source.len());
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low.midpoint(high);
        if has(middle)? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// A source that can be read from its first to its last byte, while somebody looks for what is in it. From then on what
/// is damaged is an error.
#[derive(Debug)]
pub(crate) struct Legible {
    source: SharedSource,
    /// Of what is there.
    length: u64,
    fills: AtomicBool,
    has_filled: AtomicBool,
    /// What was filled: where each run of bytes begins, and where it ends.
    filled: Mutex<BTreeMap<u64, u64>>,
    /// Bytes that may still be filled.
    left: AtomicU64,
    /// The first byte that was not filled, as there were too many before it; else none has this number.
    end: AtomicU64,
}

impl Legible {
    /// As much of `source` as there is.
    pub(crate) fn new(source: SharedSource) -> io::Result<Self> {
        let length = what_is_there(&*source)?;
        Ok(Self::of(source, length, MOST_FILLED))
    }

    /// All of `source`, which is there.
    pub(crate) fn whole(source: SharedSource) -> Self {
        let length = source.len();
        Self::of(source, length, MOST_FILLED)
    }

    /// The first `length` bytes of `source`, of which that many, and as many as can be read, may be filled.
    fn of(source: SharedSource, length: u64, most_filled: u64) -> Self {
        let (fills, has_filled) = (AtomicBool::new(true), AtomicBool::new(false));
        let (filled, left, end) = (Mutex::default(), most_filled.into(), u64::MAX.into());
        Self { source, length, fills, has_filled, filled, left, end }
    }

    /// Fills nothing any more. True if something was shown that is not there.
    pub(crate) fn finish(&self) -> bool {
        self.fills.store(false, Ordering::SeqCst);
        self.has_filled.load(Ordering::SeqCst)
    }

    /// What was filled, as far as that is remembered.
    pub(crate) fn filled(&self) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = Vec::new();
        for (&start, &end) in &*self.filled.lock().unwrap_or_else(PoisonError::into_inner) {
            match all.last_mut().filter(|last| last.end >= start) {
                Some(last) => last.end = end.max(last.end),
                None => all.push(start..end),
            }
        }
        all
    }

    /// As much of it as could be filled, where that was not all: as if it were cut there.
    pub(crate) fn cut(&self) -> Option<Self> {
        let length = Some(self.end.load(Ordering::SeqCst)).filter(|&end| end < self.length)?;
        Some(Self::of(SharedSource::clone(&self.source), length, u64::MAX))
    }

    /// What comes before the first byte that was filled and that `codec`, which has made `table` of all this, has not
    /// noticed: what it has made of that was never stored. With `all`, before the first byte that was filled at all.
    pub(crate) fn before_unnoticed(
        &self,
        codec: &dyn Codec,
        table: &dyn ChunkTable,
        all: bool,
    ) -> io::Result<Option<Self>> {
        let filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let next = |from: u64| {
            let around = filled.range(..from).next_back().filter(|&(_, &end)| end > from).map(|_| from);
            Ok(around.or_else(|| filled.range(from..).next().map(|(&start, _)| start)))
        };
        let unnoticed = first_unnoticed(codec, table, &next)?.map(|unnoticed| unnoticed.byte);
        let first = if all || filled.len() >= MOST_PLACES { filled.keys().next().copied() } else { unnoticed };
        Ok(first
            .filter(|_| unnoticed.is_some())
            .map(|length| Self::of(SharedSource::clone(&self.source), length, MOST_FILLED)))
    }

    fn has_filled_at(&self, offset: u64, length: usize) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset + length as u64;
        if let Some((_, before)) = filled.range_mut(..=offset).next_back()
            && *before >= offset
        {
            *before = end.max(*before);
            return;
        }
        if filled.len() < MOST_PLACES {
            filled.insert(offset, end);
            return;
        }
        // The first of them counts, which may be this one.
        if let Some(first) = filled.first_entry().filter(|first| *first.key() > offset) {
            let end = first.remove();
            filled.insert(offset, end);
        }
    }

    /// Reads what can be read, step by step.
    fn fill(&self, buffer: &mut [u8], offset: u64, steps: &[usize]) -> io::Result<()> {
        let Some((&step, smaller)) = steps.split_first() else {
            let less = |left: u64| left.checked_sub(buffer.len() as u64);
            if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
                self.end.fetch_min(offset, Ordering::SeqCst);
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too much of it is damaged to go on"));
            }
            buffer.fill(FILLER);
            self.has_filled_at(offset, buffer.len());
            return Ok(());
        };
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            // Up to where a block ends.
            let end = buffer.len().min(done + step - (at % step as u64) as usize);
            match self.source.read_exact_at(&mut buffer[done..end], at) {
                Err(error) if is_damage(&error) => self.fill(&mut buffer[done..end], at, smaller)?,
                read => {
                    read?;
                    self.has_read(end - done);
                }
            }
            done = end;
        }
        Ok(())
    }

    fn has_read(&self, length: usize) {
        let more = |left: u64| Some(left.saturating_add(length as u64));
        let _ = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }
}

impl Source for Legible {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, self.len())
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let length = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if length == 0 {
            return Ok(0);
        }
        match self.source.read_before(&mut buffer[..length], offset, end) {
            Err(error) if is_damage(&error) && self.fills.load(Ordering::SeqCst) => {
                self.has_filled.store(true, Ordering::SeqCst);
                self.fill(&mut buffer[..length], offset, &STEPS)?;
                Ok(length)
            }
            Ok(read) => {
                self.has_read(read);
                Ok(read)
            }
            error => error,
        }
    }

    fn len(&self) -> u64 {
        self.length
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

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        if !self.has_filled.load(Ordering::SeqCst) {
            return false;
        }
        let filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are not remembered lie behind the last one that is.
        filled.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start || filled.len() >= MOST_PLACES)
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset).filter(|&data| data < self.length)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset).min(self.length).max(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data().min(self.length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn part_starts(&self) -> &[u64] {
        self.source.part_starts()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Whether a read has to wait is not changed by who looks at it.
    #[derive(Debug)]
    struct Waits;

    impl Source for Waits {
        fn read_at(&self, _: &mut [u8], offset: u64) -> io::Result<usize> {
            Err(if offset < 512 { io::ErrorKind::InvalidData } else { io::ErrorKind::TimedOut }.into())
        }

        fn len(&self) -> u64 {
            1024
        }

        fn describe(&self) -> String {
            "slow".to_owned()
        }

        fn is_ready(&self, offset: u64, length: usize) -> bool {
            (offset, length) == (3, 5)
        }

        fn is_unproven(&self) -> bool {
            true
        }

        fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
            if is_abandoned() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }

        fn depth(&self) -> usize {
            7
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            Some(offset + 1)
        }

        fn next_hole(&self, offset: u64) -> u64 {
            offset + 2
        }

        fn most_data(&self) -> u64 {
            9
        }
    }

    #[test]
    fn all_but_damage_is_passed_on() {
        let source = Arc::new(Waits);
        let legible = Legible::of(Arc::<Waits>::clone(&source), 1024, MOST_FILLED);
        assert!(legible.is_ready(3, 5) && !legible.is_ready(3, 6) && !legible.is_ready(2, 5));
        assert_eq!((legible.len(), legible.describe(), legible.depth()), (1024, "slow".to_owned(), 7));
        assert_eq!((legible.next_data(5), legible.next_hole(5), legible.most_data()), (Some(6), 7, 9));
        assert!(legible.is_unproven() && legible.verify(&|| false).is_ok() && legible.verify(&|| true).is_err());
        // Damage is filled while somebody looks, a file that cannot be read now is an error.
        let mut bytes = [0; 512];
        assert_eq!(legible.read_at(&mut bytes, 0).unwrap(), 512);
        assert_eq!(bytes, [FILLER; 512]);
        assert_eq!(legible.read_at(&mut bytes, 512).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(legible.finish());
        assert_eq!(legible.read_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // What would be too much is left as it is.
        let most = Legible::of(source, 1024, 512);
        assert_eq!((most.read_at(&mut bytes, 0).unwrap(), most.cut().is_none()), (512, true));
        assert_eq!(most.read_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(most.cut().unwrap().len(), 0);
        // Where a file was cut, it ends.
        let cut = Legible::of(Arc::new(Waits), 600, MOST_FILLED);
        assert_eq!((cut.next_data(598), cut.next_data(599), cut.next_hole(599)), (Some(599), None, 600));
        assert_eq!((cut.len(), cut.read_at(&mut bytes, 600).unwrap()), (600, 0));
        assert!(!cut.finish());
    }

    #[test]
    fn what_was_filled_is_remembered() {
        let legible = Legible::of(Arc::new(Waits), 1024, MOST_FILLED);
        let filled = || legible.filled.lock().unwrap().clone();
        for (at, length) in [(1000, 10), (500, 12), (512, 8), (510, 4), (1000, 5)] {
            legible.has_filled_at(at, length);
        }
        assert_eq!(filled(), BTreeMap::from([(500, 520), (1000, 1010)]));
        assert!(!legible.is_filled(510..511), "nothing was asked for");
        legible.has_filled.store(true, Ordering::SeqCst);
        for (range, is_filled) in [(0..500, false), (0..501, true), (519..1000, true), (520..1000, false)] {
            assert_eq!(legible.is_filled(range.clone()), is_filled, "{range:?}");
        }
        legible.has_filled_at(495, 10);
        assert_eq!(legible.filled(), [495..520, 1000..1010]);
        legible.filled.lock().unwrap().remove(&495);
        for at in 2..2 * MOST_PLACES as u64 {
            legible.has_filled_at(at * 1024, 1);
        }
        assert_eq!((filled().len(), filled().keys().next().copied()), (MOST_PLACES, Some(500)));
        legible.has_filled_at(7, 1);
        assert_eq!((filled().len(), filled().keys().next().copied()), (MOST_PLACES, Some(7)));
    }

    #[test]
    fn what_is_not_there_is_not_shown() {
        let whole: SharedSource = Arc::new(tarnfs_source::MemorySource::new(vec![7; 1000], "whole"));
        for (length, there) in [(1000, 1000), (1500, 1000), (1 << 60, 1000), (0, 0)] {
            let part = Arc::new(tarnfs_source::Slice::new(SharedSource::clone(&whole), 0, length));
            assert_eq!(Legible::new(part).unwrap().len(), there);
        }
    }
}
