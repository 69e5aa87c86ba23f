//! An archive in an archive, whose directory is read: what is known to be damaged of it is not, and how much is read is
//! counted.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Source};

use super::amount::Amount;
use super::nested::Candidate;

/// Its bytes, of which none are given that are damaged: a directory may have no checksums of its own. Each of very many
/// archives may lead to the same bytes again and again, so all that is read of them is bounded together.
#[derive(Debug)]
pub(super) struct Undamaged {
    source: SharedSource,
    damaged: Vec<Range<u64>>,
    amount: Arc<Amount>,
}

impl Undamaged {
    pub(super) fn of(candidate: &Candidate, amount: &Arc<Amount>) -> SharedSource {
        let (source, damaged) = (SharedSource::clone(&candidate.bytes), candidate.damaged.clone());
        Arc::new(Self { source, damaged, amount: Arc::clone(amount) })
    }
}

impl Source for Undamaged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.amount
            .add_read(buffer.len().min(usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX)))?;
        let end = offset.saturating_add(buffer.len() as u64);
        let is_in = |damaged: &&Range<u64>| damaged.start < end && damaged.end > offset;
        match self.damaged.iter().filter(is_in).map(|damaged| damaged.start).min() {
            None => self.source.read_at(buffer, offset),
            // What lies before it.
            Some(start) if start > offset => self.source.read_at(&mut buffer[..(start - offset) as usize], offset),
            Some(_) => {
                let what = format!("byte {offset} of {} is damaged", self.describe());
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
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

    fn part_starts(&self) -> &[u64] {
        self.source.part_starts()
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_source::MemorySource;

    use super::*;

    /// Whatever is asked for, in whichever order the damage was found.
    #[test]
    fn nothing_of_a_damaged_range_is_given() {
        let bytes: Vec<u8> = (0..100).collect();
        let source = Arc::new(MemorySource::new(bytes, "whole"));
        let amount = Arc::new(Amount::new(source.len()));
        let damaged = Undamaged { source, damaged: vec![30..40, 10..20, 90..100], amount };
        for (offset, length, expected) in [
            (0, 5, Some(5)),
            (0, 10, Some(10)),
            (0, 11, Some(10)),
            (0, 100, Some(10)),
            (9, 50, Some(1)),
            (10, 1, None),
            (15, 100, None),
            (19, 1, None),
            (20, 5, Some(5)),
            (20, 100, Some(10)),
            (39, 1, None),
            (40, 50, Some(50)),
            (40, 60, Some(50)),
            (99, 1, None),
            (100, 1, Some(0)),
        ] {
            let mut buffer = vec![0xff; length];
            match (damaged.read_at(&mut buffer, offset), expected) {
                (Ok(read), Some(expected)) => {
                    assert_eq!(read, expected, "{length} bytes at {offset}");
                    assert!(buffer[..read].iter().copied().eq((offset as u8..).take(read)), "{length} at {offset}");
                }
                (Err(error), None) => assert_eq!(error.kind(), io::ErrorKind::InvalidData),
                (found, _) => panic!("{length} bytes at {offset}: {found:?}"),
            }
        }
        assert_eq!(damaged.len(), 100);
    }
}
