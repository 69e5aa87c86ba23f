//! What SQLite stores of a long row: its start in a page of a table, the rest in a list of pages, each of which begins
//! with the number of the next one.
//!
//! The stream is the database. Properties, all little-endian: bytes of a page, and of these in use (4 bytes each);
//! where the start of the row lies (8 bytes) and how long that is (4); the number of the first page of the list, from
//! 1 (4); the byte of the row at which what is wanted begins (8), and its length (8).
//!
//! Only what is read of the list is walked. Some of its pages are kept, so that a read anywhere walks a few.
//!
//! The format: <https://www.sqlite.org/fileformat2.html#cell_payload_overflow_pages>.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::{SharedSource, Source};

use super::invalid_properties;
use super::straight::Straight;
use crate::faults;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// Bytes of the number of the next page.
const NUMBER: usize = 4;

/// Bytes that are read at once where pages follow each other.
const AT_ONCE: usize = 64 << 10;

/// Pages of a list that are kept. Where there are more, only every second one is, and so on.
const MOST_KEPT: usize = 1 << 14;

/// The codec.
#[derive(Debug)]
pub(super) struct Overflow;

/// The row.
#[derive(Debug)]
struct Row {
    source: SharedSource,
    page: u64,
    /// Bytes of a page of the list that belong to the row.
    room: u64,
    start: (u64, u64),
    first: u32,
    skip: u64,
    length: u64,
    kept: Mutex<Kept>,
}

/// Pages of the list that are known.
#[derive(Debug)]
struct Kept {
    /// Every so many.
    pages: Vec<u32>,
    every: usize,
    /// The one that comes next for who reads on: its place in the list, and its number.
    next: (usize, u32),
    /// How far the list was walked, and one of its pages: a list that comes to that again is a ring. The page is
    /// another one each time that twice as many were walked (R. P. Brent, "An Improved Monte Carlo Factorization
    /// Algorithm", 1980).
    walked: usize,
    watched: (usize, u32),
}

impl Row {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let invalid = || invalid_properties("a row of SQLite");
        let properties = &coder.properties;
        let word = |at: usize| properties.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four));
        let long = |at: usize| properties.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight));
        let (page, used) = (word(0).ok_or_else(invalid)?, word(4).ok_or_else(invalid)?);
        let (at, local) = (long(8).ok_or_else(invalid)?, word(16).ok_or_else(invalid)?);
        let first = word(20).ok_or_else(invalid)?;
        let (skip, length) = (long(24).ok_or_else(invalid)?, long(32).ok_or_else(invalid)?);
        let is_right = properties.len() == 40
            && (512..=1 << 16).contains(&page)
            && page.is_power_of_two()
            && used <= page
            && used > NUMBER as u32
            && first > 0
            && skip.checked_add(length).is_some();
        if !is_right {
            return Err(invalid());
        }
        let kept = Kept { pages: vec![first], every: 1, next: (0, first), walked: 0, watched: (0, first) };
        let kept = Mutex::new(kept);
        let room = u64::from(used) - NUMBER as u64;
        Ok(Self { source, page: page.into(), room, start: (at, local.into()), first, skip, length, kept })
    }

    /// Where a page begins.
    fn place(&self, number: u32) -> io::Result<u64> {
        let place = u64::from(number).checked_sub(1).map(|before| before * self.page);
        let place = place.filter(|place| place + self.page <= self.source.len());
        place.ok_or_else(|| faults::invalid(self.start.0, format!("the list of pages of a row leads to page {number}")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the page at a place in the list.
    fn page_at(&self, wanted: usize) -> io::Result<u32> {
        let (mut at, mut number) = {
            let kept = self.lock();
            let before = (wanted / kept.every).min(kept.pages.len() - 1);
            let known = (before * kept.every, kept.pages[before]);
            if (known.0..=wanted).contains(&kept.next.0) { kept.next } else { known }
        };
        let mut bytes = Vec::new();
        while at < wanted {
            let place = self.place(number)?;
            // The pages of a list mostly follow each other.
            let most = (AT_ONCE as u64 / self.page).min((wanted - at) as u64).max(1) * self.page;
            let length = if wanted - at > 1 { most.min(self.source.len() - place) as usize } else { NUMBER };
            bytes.resize(length, 0);
            self.source.read_exact_at(&mut bytes, place)?;
            for page in bytes.chunks(self.page as usize) {
                let next = next_of(page);
                at += 1;
                self.keep(at, next)?;
                let follows = next == number.wrapping_add(1);
                number = next;
                if !follows || at == wanted {
                    break;
                }
            }
        }
        Ok(number)
    }

    fn keep(&self, at: usize, number: u32) -> io::Result<()> {
        let mut kept = self.lock();
        if at > kept.walked {
            kept.walked = at;
            // The last page is followed by none.
            if number == kept.watched.1 {
                return Err(faults::invalid(self.start.0, format!("the list of a row comes to page {number} again")));
            }
            if at > kept.watched.0 * 2 {
                kept.watched = (at, number);
            }
        }
        if at == kept.pages.len() * kept.every {
            kept.pages.push(number);
            if kept.pages.len() >= MOST_KEPT {
                kept.every *= 2;
                let mut place = 0;
                kept.pages.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
            }
        }
        Ok(())
    }

    /// Reads from the list of pages: bytes of it, from its start.
    fn read_list(&self, buffer: &mut [u8], from: u64) -> io::Result<()> {
        let (mut done, mut bytes) = (0, Vec::new());
        let mut at = usize::try_from(from / self.room).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut inside = (from % self.room) as usize;
        let mut number = self.page_at(at)?;
        while done < buffer.len() {
            let place = self.place(number)?;
            let wanted = (inside + buffer.len() - done).div_ceil(self.room as usize) as u64 * self.page;
            let length = wanted.min(AT_ONCE as u64).min(self.source.len() - place);
            bytes.resize(length as usize, 0);
            self.source.read_exact_at(&mut bytes, place)?;
            for page in bytes.chunks_exact(self.page as usize) {
                let content = &page[NUMBER + inside..NUMBER + self.room as usize];
                let count = content.len().min(buffer.len() - done);
                buffer[done..done + count].copy_from_slice(&content[..count]);
                done += count;
                inside = 0;
                let next = next_of(page);
                at += 1;
                self.keep(at, next)?;
                let follows = next == number.wrapping_add(1);
                number = next;
                if !follows || done == buffer.len() {
                    break;
                }
            }
        }
        self.lock().next = (at, number);
        Ok(())
    }
}

/// The number that a page of a list begins with.
fn next_of(page: &[u8]) -> u32 {
    page.first_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

impl Source for Row {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (local, rest) = {
            let from = self.skip.saturating_add(offset);
            let local = self.start.1.saturating_sub(from).min(wanted as u64) as usize;
            (buffer.get_mut(..local).unwrap_or_default(), from)
        };
        let in_page = local.len();
        if in_page > 0 {
            self.source.read_exact_at(local, self.start.0.saturating_add(rest))?;
        }
        if in_page < wanted {
            let from = rest.saturating_add(in_page as u64).saturating_sub(self.start.1);
            self.read_list(&mut buffer[in_page..wanted], from)?;
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{}, the row whose list begins with page {}", self.source.describe(), self.first)
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

    fn memory(&self) -> usize {
        self.lock().pages.capacity() * size_of::<u32>()
    }
}

fn row(source: SharedSource, coder: &CoderContext) -> io::Result<SharedSource> {
    Ok(Arc::new(Row::new(source, coder)?))
}

impl Codec for Overflow {
    fn name(&self) -> &'static str {
        "overflow"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Straight::first_pass(row(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Straight::resume(row(source, &context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Overflow {
    fn decoded_length(&self, _stored: u64, coder: &CoderContext) -> Option<u64> {
        coder.properties.get(32..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
    }

    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        row(SharedSource::clone(source), coder).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// A database of pages of 512 bytes, of which 500 are in use, that holds `row` behind its first 39 bytes in the
    /// pages of `list`.
    fn stored(row: &[u8], list: &[u32]) -> Vec<u8> {
        let mut database = vec![0xee; 512 * 4096];
        database[1000..1039].copy_from_slice(&row[..39]);
        for (number, (part, page)) in row[39..].chunks(496).zip(list).enumerate() {
            let at = (*page as usize - 1) * 512;
            let next = list.get(number + 1).copied().unwrap_or(0);
            database[at..at + 4].copy_from_slice(&next.to_be_bytes());
            database[at + 4..at + 4 + part.len()].copy_from_slice(part);
        }
        database
    }

    fn properties(first: u32, skip: u64, length: u64) -> Arc<[u8]> {
        let words = [512_u32, 500].map(u32::to_le_bytes).concat();
        let place = [&1000_u64.to_le_bytes()[..], &39_u32.to_le_bytes(), &first.to_le_bytes()].concat();
        [&words[..], &place, &skip.to_le_bytes(), &length.to_le_bytes()].concat().into()
    }

    fn opened(database: Vec<u8>, properties: Arc<[u8]>) -> io::Result<SharedSource> {
        let coder = CoderContext { properties, ..CoderContext::default() };
        let source: SharedSource = Arc::new(MemorySource::new(database, "database"));
        Ok(Overflow.random_access(&source, &coder)?.unwrap())
    }

    #[test]
    fn rows_are_read_at_any_place_wherever_their_pages_lie() {
        let row: Vec<u8> = (0..1_000_000_u32).flat_map(|number| (number * 7).to_le_bytes()).take(1_500_000).collect();
        let straight: Vec<u32> = (10..4000).collect();
        let back: Vec<u32> = (10..4000).rev().collect();
        let mixed: Vec<u32> = (0..3900).map(|number: u32| number / 7 * 7 + 6 - number % 7 + 10).collect();
        for list in [straight, back, mixed] {
            let opened = opened(stored(&row, &list), properties(list[0], 20, 1_400_000)).unwrap();
            let mut place = 1_u64;
            for _ in 0..300 {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (from, length) = ((place >> 33) % 1_400_000, ((place >> 20) % 90_000) as usize);
                let mut buffer = vec![0; length];
                let read = opened.read_at(&mut buffer, from).unwrap();
                assert_eq!(read as u64, (1_400_000 - from).min(length as u64));
                assert!(buffer[..read] == row[20 + from as usize..][..read], "{length} bytes at {from}");
            }
            let mut all = vec![0; 1_400_000];
            assert_eq!(opened.read_at(&mut all, 0).unwrap(), all.len());
            assert!(all == row[20..1_400_020] && opened.memory() < 1 << 17);
        }
    }

    #[test]
    fn lists_that_end_early_or_never_are_errors_or_end() {
        let row = vec![7; 100_000];
        let list: Vec<u32> = (10..200).collect();
        let mut cut = stored(&row, &list);
        cut[512 * 50..512 * 50 + 4].fill(0);
        let broken = opened(cut.clone(), properties(10, 0, 100_000)).unwrap();
        let error = broken.read_at(&mut vec![0; 100_000], 0).unwrap_err();
        assert!(error.to_string().contains("leads to page 0"), "{error}");
        assert_eq!(broken.read_at(&mut [0; 100], 10_000).unwrap(), 100);
        assert!(broken.read_at(&mut [0; 100], 90_000).is_err());
        cut[512 * 50..512 * 50 + 4].copy_from_slice(&10_u32.to_be_bytes());
        let ring = opened(cut, properties(10, 0, 1 << 60)).unwrap();
        for _ in 0..2 {
            let error = ring.read_at(&mut [0; 100], 1 << 59).unwrap_err();
            assert!(error.to_string().contains("again"), "{error}");
        }
        for wrong in [properties(0, 0, 1), properties(1, u64::MAX, 1), vec![0; 40].into(), vec![].into()] {
            assert!(opened(vec![0; 4096], wrong).is_err());
        }
    }
}
