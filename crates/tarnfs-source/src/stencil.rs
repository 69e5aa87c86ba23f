use std::io;
use std::ops::Range;

use crate::{Alone, Grant, SharedSource, Source};

/// Bytes that lie together in a sparse file: where they are in the file, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    /// Byte of the file at which the data goes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bytes between where its data are stored and those of the extent before it: 0, but for a file whose parts lie on
    /// several volumes.
    pub skip: u64,
}

impl Extent {
    /// What is passed over before bytes that are not stored at all. No archive has as many.
    const LOST: u64 = 1 << 60;

    /// Data that are not there: the archive was cut before them, or goes on with those of another file. Nor is what
    /// follows them in the file. Reading them is an error.
    pub fn lost(offset: u64, length: u64) -> Self {
        Self { offset, length, skip: Self::LOST }
    }

    /// True if its data are not there.
    pub fn is_lost(&self) -> bool {
        self.skip >= Self::LOST
    }
}

/// A sparse file: extents of data, packed one behind the other in `packed`, and zeros between them.
#[derive(Debug)]
pub struct Stencil {
    packed: SharedSource,
    /// Sorted, disjoint, none empty.
    extents: Vec<Placed>,
    length: u64,
    room: Room,
}

/// An extent, and the byte of what is stored at which its data begins.
#[derive(Debug)]
struct Placed {
    offset: u64,
    length: u64,
    from: u64,
}

impl Placed {
    fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// The memory that a map takes.
#[derive(Debug)]
enum Room {
    /// Nobody counts it.
    Uncounted,
    Granted(Grant),
    /// More than was granted.
    Exceeding {
        _alone: Option<Alone>,
    },
}

impl Stencil {
    /// Bytes of memory that each extent takes.
    pub const PER_EXTENT: usize = size_of::<Placed>();

    /// A file of `length` bytes whose `extents` hold the bytes of `packed` in order.
    ///
    /// `InvalidData` if the extents are not in ascending order, overlap or go past `length`. Empty extents are
    /// dropped.
    pub fn new(packed: SharedSource, extents: impl IntoIterator<Item = Extent>, length: u64) -> io::Result<Self> {
        let extents = extents.into_iter();
        let mut placed = Vec::with_capacity(extents.size_hint().0);
        let (mut end, mut from) = (0, 0_u64);
        for extent in extents {
            let next = extent.offset.checked_add(extent.length);
            let (true, Some(next)) = (extent.offset >= end, next.filter(|&next| next <= length)) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: the map of a sparse file is out of order or goes past its end", packed.describe()),
                ));
            };
            end = next;
            from = from.checked_add(extent.skip).ok_or(io::ErrorKind::InvalidData)?;
            if extent.length > 0 {
                placed.push(Placed { offset: extent.offset, length: extent.length, from });
                from = from.checked_add(extent.length).ok_or(io::ErrorKind::InvalidData)?;
            }
        }
        Ok(Self { packed, extents: placed, length, room: Room::Uncounted })
    }

    /// The same, whose map takes what was `granted`; without that more than there is, for which it has to be `alone`
    /// unless it is small.
    #[must_use]
    pub fn within(mut self, granted: Option<Grant>, alone: Option<Alone>) -> Self {
        self.room = match granted {
            Some(grant) => Room::Granted(grant),
            None => Room::Exceeding { _alone: alone },
        };
        self
    }

    /// What of the bytes before `limit` lies together where it is stored, from extent `next` on, which ends behind
    /// `offset`: the byte at which it begins there, how many bytes it is, and the first extent that is not among it.
    ///
    /// A map can have more extents than the file has pages. To read each of them alone would take as many calls of the
    /// system.
    fn run(&self, next: usize, offset: u64, limit: u64) -> Option<(u64, u64, usize)> {
        let first = self.extents.get(next).filter(|first| first.offset < limit)?;
        let from = first.from + offset.saturating_sub(first.offset);
        let (mut length, mut last) = (0, next);
        for extent in &self.extents[next..] {
            if extent.offset >= limit || last > next && extent.from != from + length {
                break;
            }
            length += extent.end().min(limit) - extent.offset.max(offset);
            last += 1;
        }
        Some((from, length, last))
    }

    /// Index of the first extent that ends behind `offset`.
    fn extent_at(&self, offset: u64) -> usize {
        self.extents.partition_point(|extent| extent.end() <= offset)
    }
}

impl Source for Stencil {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let limit = offset + wanted as u64;
        let mut done = 0;
        let mut next = self.extent_at(offset);
        while let Some((from, length, behind)) = self.run(next, offset, limit) {
            // All of it goes to the end of its place, and then, extent by extent, to where it belongs: that is never
            // further to the right.
            let end = (self.extents[behind - 1].end().min(limit) - offset) as usize;
            let mut read = end - length as usize;
            if from >= Extent::LOST {
                let what =
                    format!("{}: what comes behind that in the file is missing: it was cut", self.packed.describe());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            self.packed.read_exact_at(&mut buffer[read..end], from)?;
            for extent in &self.extents[next..behind] {
                let begin = (extent.offset.max(offset) - offset) as usize;
                let length = (extent.end().min(limit) - extent.offset.max(offset)) as usize;
                buffer.copy_within(read..read + length, begin);
                buffer[done..begin].fill(0);
                read += length;
                done = begin + length;
            }
            next = behind;
        }
        buffer[done..].fill(0);
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{}, sparse", self.packed.describe())
    }

    fn is_unproven(&self) -> bool {
        self.packed.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.packed.verify(is_abandoned)
    }

    fn depth(&self) -> usize {
        self.packed.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        let extent = self.extents.get(self.extent_at(offset))?;
        Some(extent.offset.max(offset))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let mut position = offset;
        for extent in &self.extents[self.extent_at(offset)..] {
            if extent.offset > position {
                break;
            }
            position = extent.end();
        }
        position.min(self.length).max(offset)
    }

    fn most_data(&self) -> u64 {
        let stored = self.extents.iter().map(|extent| extent.length).fold(0, u64::saturating_add);
        stored.min(self.packed.most_data())
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let end = offset.saturating_add(length as u64);
        let mut next = self.extent_at(offset);
        while let Some((from, length, behind)) = self.run(next, offset, end) {
            if !self.packed.is_ready(from, length as usize) {
                return false;
            }
            next = behind;
        }
        true
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        let mut next = self.extent_at(range.start);
        while let Some((from, length, behind)) = self.run(next, range.start, range.end) {
            if self.packed.is_filled(from..from.saturating_add(length)) {
                return true;
            }
            next = behind;
        }
        false
    }

    fn memory(&self) -> usize {
        match &self.room {
            Room::Uncounted => self.extents.len() * Self::PER_EXTENT,
            Room::Granted(grant) => grant.bytes(),
            Room::Exceeding { .. } => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn sparse() -> Stencil {
        let packed = Arc::new(MemorySource::new(*b"abcXYZ", "packed"));
        let map = [(2, 3), (5, 0), (8, 3)].map(|(offset, length)| Extent { offset, length, skip: 0 });
        Stencil::new(packed, map, 12).unwrap()
    }

    #[test]
    fn reads_zeros_between_the_extents() {
        let whole = b"\0\0abc\0\0\0XYZ\0";
        for start in 0..=13 {
            for length in 0..=14 {
                let mut buffer = vec![1; length];
                let read = sparse().read_at(&mut buffer, start).unwrap();
                let expected =
                    &whole[(start as usize).min(12)..(start as usize + length).min(12).max((start as usize).min(12))];
                assert_eq!(&buffer[..read], expected);
            }
        }
    }

    /// Counts how often it is asked.
    #[derive(Debug)]
    struct Counted(MemorySource, AtomicUsize);

    impl Source for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            "counted".to_owned()
        }

        fn is_ready(&self, _: u64, _: usize) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn extents_that_are_stored_together_are_read_at_once() {
        const EXTENTS: usize = 1000;
        let bytes: Vec<u8> = (0..EXTENTS).map(|number| 1 + (number % 251) as u8).collect();
        let packed = Arc::new(Counted(MemorySource::new(bytes.clone(), "packed"), AtomicUsize::new(0)));
        let map = (0..EXTENTS as u64).map(|number| Extent { offset: 2 * number + 1, length: 1, skip: 0 });
        let source = Stencil::new(packed.clone(), map, 2 * EXTENTS as u64 + 1).unwrap();
        let whole: Vec<u8> = bytes.iter().flat_map(|&byte| [0, byte]).chain([0]).collect();
        let mut buffer = vec![7; whole.len()];
        assert_eq!(source.read_at(&mut buffer, 0).unwrap(), whole.len());
        assert!(buffer == whole);
        assert!(source.is_ready(0, whole.len()));
        assert_eq!(packed.1.load(Ordering::Relaxed), 2);
        for (offset, length) in [(1, 3), (2, 3), (777, 500), (1990, 11), (2000, 9)] {
            let expected = &whole[offset..whole.len().min(offset + length)];
            assert_eq!(source.read_at(&mut buffer[..length], offset as u64).unwrap(), expected.len());
            assert_eq!(&buffer[..expected.len()], expected, "{offset} {length}");
        }
    }

    #[test]
    fn finds_holes_and_data_as_lseek_does() {
        let source = sparse();
        let data: Vec<_> = (0..=12).map(|offset| source.next_data(offset)).collect();
        let at = |n: u64| Some(n);
        assert_eq!(data, [at(2), at(2), at(2), at(3), at(4), at(8), at(8), at(8), at(8), at(9), at(10), None, None]);
        let holes: Vec<_> = (0..=12).map(|offset| source.next_hole(offset)).collect();
        assert_eq!(holes, [0, 1, 5, 5, 5, 5, 6, 7, 11, 11, 11, 11, 12]);
    }

    #[test]
    fn passes_over_what_lies_between_parts() {
        let packed = Arc::new(MemorySource::new(*b"abc--XY-Z", "packed"));
        let map = [(0, 3, 0), (3, 2, 2), (5, 1, 1)].map(|(offset, length, skip)| Extent { offset, length, skip });
        let source = Stencil::new(packed.clone(), map, 6).unwrap();
        let mut buffer = [0; 6];
        assert_eq!(source.read_at(&mut buffer, 0).unwrap(), 6);
        assert_eq!(&buffer, b"abcXYZ");
        assert_eq!((source.next_hole(0), source.next_data(4)), (6, Some(4)));
        assert!(source.is_ready(0, 6));
        assert!(Stencil::new(packed, [Extent { offset: 0, length: 1, skip: u64::MAX }], 6).is_err());
    }

    /// Nobody is told of a place that there cannot be.
    #[test]
    fn what_is_lost_is_an_error_that_says_so() {
        let packed: SharedSource = Arc::new(MemorySource::new(*b"abc", "packed"));
        let part: SharedSource = Arc::new(crate::Slice::new(packed, 1, Extent::LOST + 4));
        let map =
            [Extent { offset: 0, length: 2, skip: 0 }, Extent::lost(2, 3), Extent { offset: 6, length: 1, skip: 0 }];
        assert_eq!(map.map(|extent| extent.is_lost()), [false, true, false]);
        let source = Stencil::new(part, map, 8).unwrap();
        let mut buffer = [7; 8];
        assert_eq!(source.read_at(&mut buffer[..2], 0).unwrap(), 2);
        assert_eq!(&buffer[..2], b"bc");
        for offset in [1, 2, 4, 6] {
            let error = source.read_at(&mut buffer[..2], offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(
                error.to_string(),
                "packed at byte 1: what comes behind that in the file is missing: it was cut",
                "{offset}"
            );
        }
        // Zeros that are in no extent are there.
        assert_eq!(source.read_at(&mut buffer, 7).unwrap(), 1);
        assert_eq!(source.next_data(2), Some(2));
    }

    #[test]
    fn refuses_a_map_that_lies() {
        let packed = || -> SharedSource { Arc::new(MemorySource::new(*b"abc", "packed")) };
        for map in [vec![(4, 2), (2, 1)], vec![(0, 3), (2, 1)], vec![(5, 6)], vec![(u64::MAX, 2)]] {
            let map = map.into_iter().map(|(offset, length)| Extent { offset, length, skip: 0 });
            assert!(Stencil::new(packed(), map, 10).is_err());
        }
    }
}
