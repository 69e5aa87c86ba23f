//! Where the content of a file lies: allocation descriptors (ECMA-167, 4/14.14.1 to 4/14.14.3) and what comes of them.

use std::io;

use super::bytes::{Place, damaged, u16_at, u32_at};
use super::file::Form;
use super::image::{Image, LARGEST_BLOCK};
use crate::Piece;

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

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    pub(super) pieces: Vec<Piece>,
    /// Byte of the file at which each piece begins.
    starts: Vec<u64>,
    end: u64,
    hole: u64,
    /// Why some of it is not there.
    pub(super) missing: Option<String>,
}

impl Content {
    pub(super) fn new(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    /// Bytes that are still to be told.
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.end)
    }

    pub(super) fn add_hole(&mut self, length: u64) {
        let length = length.min(self.left());
        self.hole = self.hole.saturating_add(length);
        self.end = self.end.saturating_add(length);
    }

    /// Bytes that lie at byte `at` of an image that has `there`.
    pub(super) fn add(&mut self, at: u64, length: u64, there: u64) {
        let length = length.min(self.left());
        let stored = length.min(there.saturating_sub(at));
        if stored > 0 {
            let ends = self.pieces.last_mut().filter(|_| self.hole == 0);
            match ends.filter(|last| last.coder.is_none() && last.offset.saturating_add(last.stored) == at) {
                Some(last) => {
                    for sum in [&mut last.length, &mut last.stored, &mut last.decoded] {
                        *sum = sum.saturating_add(stored);
                    }
                }
                None => self.push(Piece { length: stored, offset: at, stored, decoded: stored, ..Piece::default() }),
            }
            self.end = self.end.saturating_add(stored);
        }
        if stored < length {
            self.add_missing(
                there,
                length.saturating_sub(stored),
                "it goes on behind the end of the image, which is cut",
            );
        }
    }

    /// Bytes that cannot be had, for the first reason that is told. `offset` is a byte of the image.
    pub(super) fn add_missing(&mut self, offset: u64, length: u64, why: impl Into<String>) {
        let length = length.min(self.left());
        if length > 0 {
            self.missing.get_or_insert_with(|| why.into());
            match self.pieces.last_mut().filter(|last| last.coder.is_some() && self.hole == 0) {
                Some(last) => {
                    for sum in [&mut last.length, &mut last.decoded] {
                        *sum = sum.saturating_add(length);
                    }
                }
                None => self.push(Piece::unreadable(offset, length)),
            }
            self.end = self.end.saturating_add(length);
        }
    }

    fn push(&mut self, piece: Piece) {
        self.starts.push(self.end);
        self.pieces.push(Piece { hole: std::mem::take(&mut self.hole), ..piece });
    }

    /// The piece at byte `at` of the file, and how far into it that is; without a piece, in a hole of so many bytes.
    pub(super) fn at(&self, at: u64) -> Result<(&Piece, u64), u64> {
        let behind = self.starts.partition_point(|start| *start <= at);
        let found = behind.checked_sub(1).and_then(|number| self.pieces.get(number).zip(self.starts.get(number)));
        let inside = found.map(|(piece, start)| (piece, at.saturating_sub(*start)));
        let next = self.starts.get(behind).copied().unwrap_or(self.size);
        inside.filter(|(piece, inside)| *inside < piece.length).ok_or_else(|| next.saturating_sub(at))
    }

    /// Puts up to `length` bytes from byte `at` on into `buffer`: fewer where the file ends.
    pub(super) fn read(&self, image: &mut Image<'_>, at: u64, length: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        let end = at.saturating_add(length).min(self.size);
        let mut at = at;
        while at < end {
            let left = end.saturating_sub(at);
            match self.at(at) {
                Ok((Piece { coder: Some(_), .. }, _)) => {
                    return Err(damaged(self.missing.clone().unwrap_or_default()));
                }
                Ok((piece, inside)) => {
                    let length = left.min(piece.length.saturating_sub(inside)).min(LARGEST_BLOCK);
                    let bytes = image.content(piece.offset.saturating_add(inside), length)?;
                    if bytes.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    buffer.extend_from_slice(bytes);
                    at = at.saturating_add(bytes.len() as u64);
                }
                Err(hole) => {
                    let length = left.min(hole);
                    buffer.resize(buffer.len().saturating_add(length as usize), 0);
                    at = at.saturating_add(length);
                }
            }
        }
        Ok(())
    }
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

    #[test]
    fn pieces_end_where_the_image_or_the_file_does() {
        let mut content = Content::new(1000);
        content.add(100, 200, 5000);
        content.add(300, 100, 5000);
        content.add_hole(50);
        content.add(4900, 300, 5000);
        content.add(700, 900, 5000);
        let pieces: Vec<_> =
            content.pieces.iter().map(|one| (one.hole, one.length, one.offset, one.coder.is_some())).collect();
        assert_eq!(pieces, [(0, 300, 100, false), (50, 100, 4900, false), (0, 200, 5000, true), (0, 350, 700, false)]);
        assert_eq!((content.left(), content.starts.clone()), (0, vec![0, 350, 450, 650]));
        assert!(content.missing.as_ref().unwrap().contains("cut"));
        assert_eq!(content.at(320).map(|_| ()), Err(30));
        assert_eq!(content.at(451).map(|(piece, inside)| (piece.length, inside)), Ok((200, 1)));
        let mut hole = Content::new(70);
        hole.add_hole(100);
        assert_eq!((hole.left(), hole.pieces.len(), hole.at(30).map(|_| ())), (0, 0, Err(40)));
    }
}
