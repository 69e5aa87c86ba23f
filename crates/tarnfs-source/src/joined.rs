use std::io;
use std::ops::Range;

use crate::{SharedSource, Source};

/// Several sources, one behind the other, as one: the parts of a file that was split.
#[derive(Debug)]
pub struct Joined {
    parts: Vec<SharedSource>,
    /// Byte at which each part begins.
    starts: Vec<u64>,
    length: u64,
    name: String,
}

impl Joined {
    /// The `parts` in their order; `name` is what a person would call the whole. `InvalidInput` if they are longer
    /// than any file can be.
    pub fn new(parts: Vec<SharedSource>, name: impl Into<String>) -> io::Result<Self> {
        let (mut starts, mut length) = (Vec::with_capacity(parts.len()), 0_u64);
        for part in &parts {
            starts.push(length);
            let end = length.checked_add(part.len()).filter(|end| i64::try_from(*end).is_ok());
            length = end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the parts are too long"))?;
        }
        Ok(Self { parts, starts, length, name: name.into() })
    }

    /// Number of the part that has byte `offset`.
    fn part_at(&self, offset: u64) -> usize {
        self.starts.partition_point(|&start| start <= offset).saturating_sub(1)
    }

    /// The parts that have bytes in `offset..offset + length`: each with where in it, and how many bytes.
    fn within(&self, offset: u64, length: u64) -> impl Iterator<Item = (&SharedSource, u64, u64)> {
        let end = offset.saturating_add(length).min(self.length);
        let places = self.parts.iter().zip(&self.starts).skip(self.part_at(offset));
        places.take_while(move |(_, start)| **start < end).filter_map(move |(part, &start)| {
            let from = offset.saturating_sub(start);
            let to = (end - start).min(part.len());
            (from < to).then(|| (part, from, to - from))
        })
    }
}

impl Source for Joined {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        for (part, from, length) in self.within(offset, buffer.len() as u64) {
            let behind = done + length as usize;
            part.read_exact_at(&mut buffer[done..behind], from)?;
            done = behind;
        }
        Ok(done)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn depth(&self) -> usize {
        self.parts.iter().map(|part| part.depth()).max().unwrap_or_default()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.within(offset, length).for_each(|(part, from, length)| part.prefetch(from, length));
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.within(offset, length as u64).all(|(part, from, length)| part.is_ready(from, length as usize))
    }

    fn is_unproven(&self) -> bool {
        self.parts.iter().any(|part| part.is_unproven())
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        let length = range.end.saturating_sub(range.start);
        self.within(range.start, length).any(|(part, from, length)| part.is_filled(from..from.saturating_add(length)))
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.verify(is_abandoned))
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.parts.iter().zip(&self.starts).skip(self.part_at(offset)).find_map(|(part, &start)| {
            let from = offset.saturating_sub(start);
            part.next_data(from).filter(|&data| data < part.len()).map(|data| start + data)
        })
    }

    fn next_hole(&self, offset: u64) -> u64 {
        for (part, &start) in self.parts.iter().zip(&self.starts).skip(self.part_at(offset)) {
            let hole = part.next_hole(offset.saturating_sub(start));
            // The end of a part is none.
            if hole < part.len() {
                return start.saturating_add(hole);
            }
        }
        self.length.max(offset)
    }

    fn most_data(&self) -> u64 {
        self.parts.iter().map(|part| part.most_data()).fold(0, u64::saturating_add)
    }

    /// That of the first part which has one, with those of the others mixed in.
    fn pinned(&self) -> Option<u64> {
        let pinned = self.parts.iter().filter_map(|part| part.pinned());
        pinned.reduce(|all, one| all.rotate_left(17) ^ one)
    }

    fn part_starts(&self) -> &[u64] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;
    use crate::testing::{Fault, FaultySource, When};
    use std::sync::Arc;

    fn parts() -> Vec<SharedSource> {
        let part = |bytes: &'static [u8]| Arc::new(MemorySource::new(bytes, "part")) as SharedSource;
        vec![part(b"0123"), part(b""), part(b"4"), part(b"56789")]
    }

    #[test]
    fn parts_are_read_as_one() {
        let joined = Joined::new(parts(), "digits").unwrap();
        assert_eq!((joined.len(), joined.part_starts()), (10, &[0, 4, 4, 5][..]));
        for from in 0..12 {
            for length in 0..12 {
                let mut buffer = vec![0; length];
                let read = joined.read_at(&mut buffer, from as u64).unwrap();
                let there = &b"0123456789"[from.min(10)..(from + length).min(10)];
                assert_eq!(&buffer[..read], there, "{length} bytes from {from}");
                assert!(joined.is_ready(from as u64, length));
            }
            assert_eq!(joined.next_data(from as u64), (from < 10).then_some(from as u64));
        }
        assert_eq!(joined.read_at(&mut [0; 3], u64::MAX).unwrap(), 0);
        assert_eq!(Joined::new(Vec::new(), "").unwrap().read_at(&mut [0; 3], 0).unwrap(), 0);
    }

    #[test]
    fn holes_of_the_parts_are_those_of_the_whole() {
        let sparse = |map: &[(u64, u64)]| -> SharedSource {
            let map = map.iter().map(|&(offset, length)| crate::Extent { offset, length, skip: 0 });
            Arc::new(crate::Stencil::new(parts().remove(3), map, 10).unwrap())
        };
        let parts = vec![sparse(&[(2, 1), (8, 2)]), sparse(&[(0, 3)]), sparse(&[])];
        let joined = Joined::new(parts, "sparse").unwrap();
        let holes: Vec<_> = [0, 2, 3, 8, 9, 10, 12, 13, 29, 30, 31].map(|at| joined.next_hole(at)).into();
        assert_eq!(holes, [0, 3, 3, 13, 13, 13, 13, 13, 29, 30, 31]);
        assert_eq!((joined.next_data(3), joined.next_data(13), joined.most_data()), (Some(8), None, 6));
    }

    #[test]
    fn a_part_that_fails_or_ends_early_is_an_error() {
        for fault in [Fault::Nothing, Fault::Half] {
            let mut parts = parts();
            parts[3] = Arc::new(FaultySource::new(Arc::clone(&parts[3]), fault, When::At(1)));
            let joined = Joined::new(parts, "digits").unwrap();
            assert!(joined.read_at(&mut [0; 8], 0).is_err());
        }
        let long = || Arc::new(FaultySource::new(parts().remove(0), Fault::Nothing, When::At(0)).that_claims(1 << 62));
        assert!(Joined::new(vec![long(), long(), long()], "long").is_err());
    }
}
