//! A table that is read at places far from each other, of which pages are kept.

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::image::{Budget, is_damage};

/// Bytes of a page, and pages that are kept: 4 MiB, the table of a disk with a million clusters.
const PAGE: u64 = 16 << 10;
const KEPT: usize = 256;

/// What reading a page counts for, however few bytes of it are wanted: who goes to and fro in a large table may need
/// another one each time.
pub(crate) const OF_PAGE: u64 = 4 << 10;

/// Shows a table, and keeps what it has read.
#[derive(Debug)]
pub(crate) struct Pages<'s> {
    source: &'s dyn Source,
    cancel: Option<&'s Cancel>,
    /// By the remainder of their numbers. One without bytes is damaged somewhere.
    kept: Vec<(u64, Vec<u8>)>,
    /// What was read without its page.
    alone: Vec<u8>,
}

impl<'s> Pages<'s> {
    pub(crate) fn new(source: &'s dyn Source) -> Self {
        Self { source, cancel: None, kept: Vec::new(), alone: Vec::new() }
    }

    /// Reads no more once `cancel` says so.
    pub(crate) fn until(self, cancel: &'s Cancel) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// `length` bytes from byte `at` on, and fewer only where the source ends. What has to be read for that is taken
    /// from the budget.
    pub(crate) fn bytes(&mut self, at: u64, length: usize, budget: &mut Budget) -> io::Result<&[u8]> {
        let there = self.source.len().saturating_sub(at);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(&[]);
        }
        let (number, inside) = (at / PAGE, (at % PAGE) as usize);
        let end = inside.saturating_add(length);
        if end > PAGE as usize {
            return self.alone(at, length, budget);
        }
        let place = number.checked_rem(KEPT as u64).unwrap_or(0) as usize;
        if self.kept.is_empty() {
            self.kept.resize(KEPT, (u64::MAX, Vec::new()));
        }
        let is_known = self.kept.get(place).is_some_and(|(known, _)| *known == number);
        if !is_known {
            let page = self.page(number, budget)?;
            if let Some(kept) = self.kept.get_mut(place) {
                *kept = (number, page);
            }
        }
        if self.kept.get(place).is_none_or(|(_, page)| page.is_empty()) {
            return self.alone(at, length, budget);
        }
        let page = self.kept.get(place).map_or(&[][..], |(_, page)| page);
        Ok(page.get(inside..end).unwrap_or_default())
    }

    /// Reads a page.
    fn page(&self, number: u64, budget: &mut Budget) -> io::Result<Vec<u8>> {
        self.pay(budget)?;
        let start = number.saturating_mul(PAGE);
        let mut page = vec![0; self.source.len().saturating_sub(start).min(PAGE) as usize];
        match self.source.read_exact_at(&mut page, start) {
            // Only some of it may be.
            Err(error) if is_damage(&error) => Ok(Vec::new()),
            read => read.map(|()| page),
        }
    }

    fn alone(&mut self, at: u64, length: usize, budget: &mut Budget) -> io::Result<&[u8]> {
        self.pay(budget)?;
        self.alone.resize(length, 0);
        self.source.read_exact_at(&mut self.alone, at)?;
        Ok(&self.alone)
    }

    fn pay(&self, budget: &mut Budget) -> io::Result<()> {
        self.cancel.map_or(Ok(()), Cancel::check)?;
        budget.take_bytes(OF_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Bytes that say where they are, of which one cannot be read.
    #[derive(Debug)]
    struct Counted {
        length: u64,
        bad: u64,
        reads: AtomicU64,
    }

    impl Source for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let there = self.length.saturating_sub(offset).min(buffer.len() as u64);
            if (offset..offset + there).contains(&self.bad) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
            }
            for (at, byte) in buffer.iter_mut().take(there as usize).enumerate() {
                *byte = ((offset + at as u64) / 16) as u8;
            }
            Ok(there as usize)
        }

        fn len(&self) -> u64 {
            self.length
        }

        fn describe(&self) -> String {
            "counted".to_owned()
        }
    }

    #[test]
    fn a_page_is_read_and_paid_for_once() {
        let source = Counted { length: 8 << 20, bad: PAGE + 100, reads: AtomicU64::new(0) };
        let (mut pages, mut budget) = (Pages::new(&source), Budget::new(0, 1));
        let before = budget.bytes;
        let mut shown = |at: u64, length: usize| pages.bytes(at, length, &mut budget).map(<[u8]>::to_vec);
        for _ in 0..100 {
            assert_eq!(shown(160, 4).unwrap(), [10; 4]);
            assert_eq!(shown(5 * PAGE - 2, 2).unwrap(), [0xff; 2]);
        }
        assert_eq!(source.reads.load(Ordering::Relaxed), 2);
        // Across two pages, at the end, and behind it.
        assert_eq!(shown(5 * PAGE - 1, 2).unwrap(), [0xff, 0]);
        assert_eq!(shown((8 << 20) - 1, 4).unwrap(), [0xff]);
        assert!(shown(9 << 20, 4).unwrap().is_empty());
        // Of a page that is damaged somewhere, all else is there.
        assert_eq!(shown(PAGE + 160, 4).unwrap(), [10; 4]);
        assert!(is_damage(&shown(PAGE + 100, 2).unwrap_err()));
        // Two that have the same place.
        for _ in 0..10 {
            assert_eq!(shown(160, 4).unwrap(), [10; 4]);
            assert_eq!(shown(160 + PAGE * KEPT as u64, 4).unwrap(), [10; 4]);
        }
        let reads = source.reads.load(Ordering::Relaxed);
        // One page is there already, and the damaged one was tried once.
        assert_eq!((reads, before - budget.bytes), (2 + 2 + 3 + 19, 26 * OF_PAGE));
    }
}
