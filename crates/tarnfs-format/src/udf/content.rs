//! Where the content of a file lies: allocation descriptors (ECMA-167, 4/14.14.1 to 4/14.14.3).

use std::io;

use super::bytes::{Place, damaged, u16_at, u32_at};
use super::file::Form;

/// What an allocation descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) kind: Allocation,
    /// Bytes of the file.
    pub(super) length: u64,
    pub(super) place: Place,
}

/// The first two bits of a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocation {
    Recorded,
    /// Nothing was written there yet, or it has no place: zeros.
    Hole,
    /// Here the descriptors go on.
    Next,
}

/// The descriptors in `bytes`, up to one that ends them.
pub(super) fn extents(bytes: &[u8], form: Form, partition: u16) -> impl Iterator<Item = io::Result<Extent>> {
    let length = match form {
        Form::Short => 8,
        Form::Long => 16,
        Form::Extended | Form::Inside => 20,
    };
    bytes.chunks_exact(length).map_while(move |bytes| {
        let told = u32_at(bytes, 0)?;
        let kind = match told >> 30 {
            0 => Allocation::Recorded,
            1 | 2 => Allocation::Hole,
            _ => Allocation::Next,
        };
        let mut length = u64::from(told & (u32::MAX >> 2));
        let at: usize = if form == Form::Extended { 12 } else { 4 };
        let number = || if form == Form::Short { Some(partition) } else { u16_at(bytes, at.checked_add(4)?) };
        let place = Place { block: u32_at(bytes, at)?, partition: number()? };
        if length == 0 {
            return None;
        }
        if form == Form::Extended && kind != Allocation::Next {
            let (recorded, told) = (u32_at(bytes, 4)? & (u32::MAX >> 2), u32_at(bytes, 8)?);
            if kind == Allocation::Recorded && recorded != told {
                return Some(Err(damaged("it is compressed, in a way that is not told")));
            }
            length = told.into();
        }
        Some(Ok(Extent { kind, length, place }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_end_where_one_has_no_length() {
        let short = |told: u32, block: u32| [told.to_le_bytes(), block.to_le_bytes()].concat();
        let bytes =
            [short(4096, 7), short(1 << 30 | 512, 9), short(2 << 30 | 512, 0), short(3 << 30 | 2048, 8)].concat();
        let found: Vec<_> = extents(&bytes, Form::Short, 3).map(|extent| extent.unwrap()).collect();
        let kinds: Vec<_> = found.iter().map(|extent| (extent.kind, extent.length, extent.place.block)).collect();
        let (hole, recorded) = (Allocation::Hole, Allocation::Recorded);
        assert_eq!(kinds, [(recorded, 4096, 7), (hole, 512, 9), (hole, 512, 0), (Allocation::Next, 2048, 8)]);
        assert!(found.iter().all(|extent| extent.place.partition == 3));
        let bytes = [short(4096, 7), short(0, 0), short(4096, 8)].concat();
        assert_eq!(extents(&bytes, Form::Short, 0).count(), 1);
        let long = [&short(100, 5)[..], &2_u16.to_le_bytes(), &[0; 6]].concat();
        let found = extents(&long, Form::Long, 0).next().unwrap().unwrap();
        assert_eq!(found.place, Place { partition: 2, block: 5 });
        let extended = |recorded: u32| {
            [&short(2048, recorded)[..], &100_u32.to_le_bytes(), &9_u32.to_le_bytes(), &[1, 0, 0, 0]].concat()
        };
        let found = extents(&extended(100), Form::Extended, 0).next().unwrap().unwrap();
        assert_eq!((found.length, found.place), (100, Place { partition: 1, block: 9 }));
        assert!(extents(&extended(99), Form::Extended, 0).next().unwrap().is_err());
    }
}
