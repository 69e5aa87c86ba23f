use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::{SharedSource, Source};

/// A part of another source: `length` bytes from `start`.
#[derive(Debug, Clone)]
pub struct Slice {
    whole: SharedSource,
    start: u64,
    length: u64,
}

impl Slice {
    /// The part of `whole` that begins at byte `start` and is `length` bytes long.
    ///
    /// A part that goes past the end of `whole` is cut there: its reads return `UnexpectedEof` behind the cut,
    /// so a file in a truncated archive is an error, not a short file.
    pub fn new(whole: SharedSource, start: u64, length: u64) -> Self {
        Self { whole, start, length }
    }

    /// Byte of the whole at which it begins.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Source for Slice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let start = self.start.checked_add(offset).ok_or(io::ErrorKind::InvalidInput)?;
        let read = self.whole.read_before(&mut buffer[..wanted], start, self.start.saturating_add(self.length))?;
        if read == 0 {
            let (there, end) = (self.whole.len(), self.start.saturating_add(self.length));
            // One byte more than there is means that nobody knows how much is missing.
            let to = if end == there.saturating_add(1) { String::new() } else { format!(" to byte {end}") };
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{} ends at byte {there}, but what begins at byte {} goes on{to}: it was cut",
                    self.whole.describe(),
                    self.start,
                ),
            ));
        }
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{} at byte {}", self.whole.describe(), self.start)
    }

    fn is_unproven(&self) -> bool {
        self.whole.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.whole.verify(is_abandoned)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        let [from, to] = [range.start, range.end].map(|at| self.start.saturating_add(at.min(self.length)));
        self.whole.is_filled(from..to)
    }

    fn depth(&self) -> usize {
        self.whole.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        let at = self.start.saturating_add(offset);
        // A read says that it was cut.
        let cut = self.whole.len();
        if at >= cut {
            return Some(offset);
        }
        let data = self.whole.next_data(at).unwrap_or(cut);
        Some(data.saturating_sub(self.start).max(offset)).filter(|&data| data < self.length)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let at = self.start.saturating_add(offset);
        let cut = self.whole.len();
        let hole = if at >= cut { cut } else { self.whole.next_hole(at) };
        // What was cut is no hole: a read says so.
        let hole = if hole >= cut { self.length } else { hole.saturating_sub(self.start) };
        hole.min(self.length).max(offset)
    }

    fn most_data(&self) -> u64 {
        self.length.min(self.whole.most_data())
    }

    fn file_range(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let (file, start) = self.whole.file_range()?;
        // A part that was cut has an error for whoever reads it.
        let is_whole = self.start.checked_add(self.length)? <= self.whole.len();
        Some((file, start.checked_add(self.start)?)).filter(|_| is_whole)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if offset < self.length {
            self.whole.prefetch(self.start.saturating_add(offset), length.min(self.length - offset));
        }
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let length = self.length.saturating_sub(offset).min(length as u64) as usize;
        length == 0 || self.whole.is_ready(self.start.saturating_add(offset), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;
    use std::sync::Arc;

    /// The kernel copies what lies in a file, and nothing of a part that was cut.
    #[test]
    fn a_part_of_a_file_is_a_range_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"0123456789").unwrap();
        let whole: SharedSource = Arc::new(crate::FileSource::open(file.path()).unwrap());
        let part: SharedSource = Arc::new(Slice::new(whole, 3, 6));
        let start = |source: &dyn Source| source.file_range().map(|(_, start)| start);
        assert_eq!(start(&*part), Some(3));
        assert_eq!(start(&Slice::new(Arc::clone(&part), 2, 4)), Some(5));
        assert_eq!(start(&Slice::new(part, 2, 5)), None);
        assert_eq!(start(&Slice::new(Arc::new(MemorySource::new(*b"0123", "digits")), 0, 4)), None);
    }

    #[test]
    fn holes_of_the_whole_are_those_of_its_parts() {
        use std::os::unix::fs::FileExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(b"data", 0).unwrap();
        file.as_file().write_all_at(b"data", 1 << 30).unwrap();
        let whole: SharedSource = Arc::new(crate::FileSource::open(file.path()).unwrap());
        let length = whole.len();
        let part = Slice::new(Arc::clone(&whole), 1, length - 1);
        assert_eq!(part.next_data(0), Some(0));
        let data = part.next_data(1 << 20).unwrap();
        assert!((1 << 29..1 << 30).contains(&data), "{data}");
        assert_eq!((part.next_data(length - 2), part.next_data(length - 1)), (Some(length - 2), None));
        assert_eq!(Slice::new(Arc::clone(&whole), 1 << 20, 1000).next_data(0), None, "all of it is a hole");
        // What was cut is no hole: a read of it is an error.
        let cut = Slice::new(Arc::clone(&whole), 1 << 20, 4 << 30);
        assert_eq!(cut.next_data(3 << 30), Some(3 << 30));
        assert_eq!(cut.next_data((1 << 30) + 100), Some((1 << 30) + 100));
        assert_eq!((cut.next_hole(3 << 30), cut.next_hole((1 << 30) + 100)), (4 << 30, 4 << 30));
        if whole.next_hole(0) < 1 << 20 {
            assert_eq!(part.next_hole(0), whole.next_hole(1) - 1);
            assert_eq!((part.next_hole(1 << 20), cut.next_hole(5)), (1 << 20, 5));
        }
        assert_eq!((part.next_hole(data), part.next_hole(length)), (length - 1, length));
    }

    #[test]
    fn stays_inside_its_part_and_reports_a_cut() {
        let whole: SharedSource = Arc::new(MemorySource::new(*b"0123456789", "digits"));
        let mut buffer = [0; 8];
        let part = Slice::new(Arc::clone(&whole), 3, 4);
        assert_eq!(part.read_at(&mut buffer, 1).unwrap(), 3);
        assert_eq!(&buffer[..3], b"456");
        assert_eq!(part.read_at(&mut buffer, 4).unwrap(), 0);
        let cut = Slice::new(Arc::clone(&whole), 8, 10);
        assert_eq!(cut.read_at(&mut buffer, 0).unwrap(), 2);
        let error = cut.read_at(&mut buffer, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            error.to_string(),
            "digits ends at byte 10, but what begins at byte 8 goes on to byte 18: it was cut"
        );
        let exact = cut.read_exact_at(&mut buffer, 0).unwrap_err();
        assert_eq!(
            (exact.kind(), exact.to_string()),
            (error.kind(), error.to_string()),
            "more than there is says so, too"
        );
        let far = Slice::new(whole, u64::MAX, 2);
        assert!(far.read_at(&mut buffer, 1).is_err());
    }
}
