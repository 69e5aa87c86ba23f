//! Where the content of a file lies in an image, put together from its start to its end.

use std::io;

use crate::Piece;
use crate::image::damaged;
use crate::window::Window;

/// Bytes that are read at once.
const AT_ONCE: u64 = 32 << 10;

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) size: u64,
    pub(crate) pieces: Vec<Piece>,
    /// Byte of the file at which each piece begins.
    starts: Vec<u64>,
    end: u64,
    hole: u64,
    /// Why some of it is not there.
    pub(crate) missing: Option<String>,
}

impl Content {
    pub(crate) fn new(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    /// Bytes that are still to be told.
    pub(crate) fn left(&self) -> u64 {
        self.size.saturating_sub(self.end)
    }

    /// Bytes that were told.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn add_hole(&mut self, length: u64) {
        let length = length.min(self.left());
        self.hole = self.hole.saturating_add(length);
        self.end = self.end.saturating_add(length);
    }

    /// Bytes that lie at byte `at` of an image that has `there`.
    pub(crate) fn add(&mut self, at: u64, length: u64, there: u64) {
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
    pub(crate) fn add_missing(&mut self, offset: u64, length: u64, why: impl Into<String>) {
        let length = length.min(self.left());
        if length > 0 {
            self.missing.get_or_insert_with(|| why.into());
            let is_missing = |last: &&mut Piece| last.coder.is_some() && last.stored == 0;
            match self.pieces.last_mut().filter(|_| self.hole == 0).filter(is_missing) {
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

    /// Bytes that a coder makes of what is stored, where all of that is there.
    pub(crate) fn add_packed(&mut self, piece: Piece) {
        let length = piece.length.min(self.left());
        if length > 0 {
            self.push(Piece { length, ..piece });
            self.end = self.end.saturating_add(length);
        }
    }

    fn push(&mut self, piece: Piece) {
        self.starts.push(self.end);
        self.pieces.push(Piece { hole: std::mem::take(&mut self.hole), ..piece });
    }

    /// The piece at byte `at` of the file, and how far into it that is; without a piece, in a hole of so many bytes.
    pub(crate) fn at(&self, at: u64) -> Result<(&Piece, u64), u64> {
        let behind = self.starts.partition_point(|start| *start <= at);
        let found = behind.checked_sub(1).and_then(|number| self.pieces.get(number).zip(self.starts.get(number)));
        let inside = found.map(|(piece, start)| (piece, at.saturating_sub(*start)));
        let next = self.starts.get(behind).copied().unwrap_or(self.size);
        inside.filter(|(piece, inside)| *inside < piece.length).ok_or_else(|| next.saturating_sub(at))
    }

    /// Puts up to `length` bytes from byte `at` on into `buffer`: fewer where the file ends.
    pub(crate) fn read(&self, window: &mut Window<'_>, at: u64, length: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
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
                    let length = left.min(piece.length.saturating_sub(inside)).min(AT_ONCE);
                    let bytes = window.bytes(piece.offset.saturating_add(inside), u64::MAX, length as usize)?;
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
