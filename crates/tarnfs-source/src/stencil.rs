use std::io;

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

    /// Index of the first extent that ends behind `offset`.
    fn extent_at(&self, offset: u64) -> usize {
        self.extents.partition_point(|extent| extent.end() <= offset)
    }
}

impl Source for Stencil {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let mut done = 0;
        let mut next = self.extent_at(offset);
        while done < wanted {
            let position = offset + done as u64;
            let rest = &mut buffer[done..];
            match self.extents.get(next) {
                Some(extent) if extent.offset <= position => {
                    let skip = position - extent.offset;
                    let length = (extent.length - skip).min(rest.len() as u64) as usize;
                    self.packed.read_exact_at(&mut rest[..length], extent.from + skip)?;
                    done += length;
                    next += 1;
                }
                following => {
                    let hole = following.map_or(u64::MAX, |extent| extent.offset - position);
                    let length = hole.min(rest.len() as u64) as usize;
                    rest[..length].fill(0);
                    done += length;
                }
            }
        }
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

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let end = offset.saturating_add(length as u64);
        self.extents[self.extent_at(offset)..].iter().take_while(|extent| extent.offset < end).all(|extent| {
            let skip = offset.saturating_sub(extent.offset);
            let most = (extent.length - skip).min(length as u64) as usize;
            self.packed.is_ready(extent.from + skip, most)
        })
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

    #[test]
    fn refuses_a_map_that_lies() {
        let packed = || -> SharedSource { Arc::new(MemorySource::new(*b"abc", "packed")) };
        for map in [vec![(4, 2), (2, 1)], vec![(0, 3), (2, 1)], vec![(5, 6)], vec![(u64::MAX, 2)]] {
            let map = map.into_iter().map(|(offset, length)| Extent { offset, length, skip: 0 });
            assert!(Stencil::new(packed(), map, 10).is_err());
        }
    }
}
