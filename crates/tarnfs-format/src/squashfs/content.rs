//! Where the content of a file lies: its blocks, and its end in a block that it shares.

use std::io;
use std::sync::Arc;

use super::inode::Fragment;
use super::metadata::{Metadata, Place};
use super::numbers::Fields;
use super::start::{NO_TABLE, Superblock};
use crate::image::{Budget, damaged};
use crate::{Coder, Piece, Step};

/// Bit of a block's length: it is stored as it is.
const IS_STORED: u32 = 1 << 24;

/// Pieces of one file: 64 MiB of memory. In blocks of 128 KiB that is a file of 128 GiB.
const MOST_PIECES: usize = 1 << 20;

/// Blocks in holes that count as a part. Their lengths are zeros, which pack well: a block of metadata has 2048 of
/// them, of some 33 bytes that are stored, which pay for as many parts.
const HOLES_OF_PART: u64 = 16;

/// Makes pieces of blocks.
#[derive(Debug)]
pub(super) struct Contents {
    /// Where in the source the image begins.
    base: u64,
    /// Bytes of the image that there are.
    there: u64,
    superblock: Superblock,
    /// What the blocks were made with.
    coder: Arc<Coder>,
    /// The fragment block that was asked for last.
    last: Option<(u32, u64, u32)>,
    /// What all files may take. Lengths of blocks are packed, and any number of files may lie at the same bytes.
    budget: Budget,
}

impl Contents {
    pub(super) fn new(
        (base, there): (u64, u64),
        superblock: Superblock,
        coder: Arc<Coder>,
        (data, shares): (u64, u64),
    ) -> Self {
        Self { base, there, superblock, coder, last: None, budget: Budget::of_image(data, shares) }
    }

    /// How many blocks a file of `size` bytes has of its own.
    fn count(&self, size: u64, has_fragment: bool) -> u64 {
        let whole = u64::from(self.superblock.block_size);
        if has_fragment { size.checked_div(whole).unwrap_or_default() } else { size.div_ceil(whole) }
    }

    /// Bytes of the list of their lengths.
    pub(super) fn list(&self, size: u64, has_fragment: bool) -> u64 {
        self.count(size, has_fragment).saturating_mul(4)
    }

    /// Takes so many bytes of an inode that may be read again and again.
    pub(super) fn take_bytes(&mut self, count: u64) -> io::Result<()> {
        self.budget.take_bytes(count)
    }

    /// Takes one more part of a file that has these. The first one is paid for with its name.
    fn take_part(&mut self, pieces: &[Piece]) -> io::Result<()> {
        if pieces.is_empty() { Ok(()) } else { self.budget.take_parts(1) }
    }

    /// The pieces of a file of `size` bytes whose blocks begin at byte `start` of the image. `lengths` is where the
    /// lengths of its blocks stand, and is moved behind them, but not behind `limit`. Of more blocks than can be told,
    /// the first ones are, and one piece for the rest.
    pub(super) fn pieces(
        &mut self,
        metadata: &mut Metadata<'_>,
        (start, size): (u64, u64),
        (lengths, limit): (&mut Place, Option<Place>),
        fragment: Option<Fragment>,
    ) -> io::Result<Vec<Piece>> {
        let whole = u64::from(self.superblock.block_size);
        let count = self.count(size, fragment.is_some());
        let (mut pieces, mut at, mut hole, mut left) = (Vec::<Piece>::new(), start, 0_u64, size);
        let mut holes = 0_u64;
        for _ in 0..count {
            let length = left.min(whole);
            left = left.saturating_sub(length);
            if limit.is_some_and(|limit| *lengths >= limit) {
                return Err(damaged("its inode overlaps another one"));
            }
            let told = u32::from_le_bytes(metadata.array(lengths)?);
            if told == 0 {
                hole = hole.saturating_add(length);
                holes = holes.saturating_add(1);
                if holes.is_multiple_of(HOLES_OF_PART) {
                    self.budget.take_parts(1)?;
                }
                continue;
            }
            let stored = self.stored(told)?;
            let mut piece = self.piece(at, told, length, (0, length))?;
            piece.hole = std::mem::take(&mut hole);
            at = at.saturating_add(stored);
            // What is stored as it is, one behind the other, is one.
            let is_full = pieces.len() >= MOST_PIECES;
            match pieces.last_mut() {
                Some(last) if last.coder.is_none() && piece.coder.is_none() && piece.hole == 0 => {
                    for sum in [&mut last.length, &mut last.stored, &mut last.decoded] {
                        *sum = sum.saturating_add(length);
                    }
                }
                _ if is_full => {
                    let rest = piece.hole.saturating_add(length).saturating_add(left);
                    return Ok(with_rest(pieces, rest));
                }
                _ => {
                    self.take_part(&pieces)?;
                    pieces.push(piece);
                }
            }
        }
        if let Some(Fragment { number, skip }) = fragment.filter(|_| left > 0) {
            let (start, told) = self.fragment(metadata, number)?;
            let mut piece = self.piece(start, told, left, (skip.into(), whole))?;
            piece.hole = hole;
            if pieces.len() >= MOST_PIECES {
                return Ok(with_rest(pieces, hole.saturating_add(left)));
            }
            self.take_part(&pieces)?;
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// Bytes that a block of that length takes.
    fn stored(&self, told: u32) -> io::Result<u64> {
        let stored = told & !IS_STORED;
        let is_possible = stored > 0 && stored <= self.superblock.block_size;
        if is_possible { Ok(stored.into()) } else { Err(damaged(format!("a block of it would have {stored} bytes"))) }
    }

    /// `length` bytes of the block at byte `at` of the image, of which at most `most` bytes come, from byte `skip` on.
    fn piece(&self, at: u64, told: u32, length: u64, (skip, most): (u64, u64)) -> io::Result<Piece> {
        let stored = self.stored(told)?;
        if at.checked_add(stored).is_none_or(|end| end > self.there) {
            return Err(damaged(format!(
                "a block of it would begin at byte {at} of the image, and reach behind its end"
            )));
        }
        let offset = self.base.saturating_add(at);
        let end = skip.saturating_add(length);
        if told & IS_STORED == 0 && end <= most {
            let coder = Some(Arc::clone(&self.coder));
            return Ok(Piece { length, offset, stored, coder, decoded: most, skip, ..Piece::default() });
        }
        if end > stored || told & IS_STORED == 0 {
            return Err(damaged(format!("a block of it has fewer bytes than the {end} that it needs")));
        }
        let offset = offset.saturating_add(skip);
        Ok(Piece { length, offset, stored: length, decoded: length, ..Piece::default() })
    }

    /// Where a block of fragments begins, and its length.
    fn fragment(&mut self, metadata: &mut Metadata<'_>, number: u32) -> io::Result<(u64, u32)> {
        if let Some((_, start, told)) = self.last.filter(|(last, ..)| *last == number) {
            return Ok((start, told));
        }
        if number >= self.superblock.fragments || self.superblock.fragment_table == NO_TABLE {
            let count = self.superblock.fragments;
            return Err(damaged(format!("its end would lie in fragment block {number} of {count}")));
        }
        let entry = metadata.entry::<16>(self.superblock.fragment_table, number.into())?;
        let mut fields = Fields(&entry);
        let (start, told) = (fields.u64()?, fields.u32()?);
        self.last = Some((number, start, told));
        Ok((start, told))
    }
}

/// The pieces of which there are as many as may be, and so many bytes behind them that lie in others: in place of the
/// last one stands one that no codec can read, whose name says why. Nothing is damaged.
fn with_rest(mut pieces: Vec<Piece>, rest: u64) -> Vec<Piece> {
    if let Some(last) = pieces.pop() {
        let what = format!("more than {MOST_PIECES} blocks of one file");
        let rest = Piece::unknown(last.offset, rest.saturating_add(last.length), what);
        pieces.push(Piece { hole: last.hole, ..rest });
    }
    pieces
}

/// The coder of blocks for the number that the superblock has for it, or what it is called that nothing reads.
pub(super) fn coder(compression: u16) -> Result<Coder, String> {
    let codec = match compression {
        1 => "zlib-block",
        2 => "lzma-block",
        3 => "lzo1x-block",
        4 => "xz-block",
        5 => "lz4-block",
        6 => "zstd-block",
        other => return Err(format!("its compression has the number {other}, which is not known")),
    };
    Ok(Coder { steps: vec![Step { codec: codec.to_owned(), ..Step::default() }], is_behind_header: None })
}

#[cfg(test)]
mod tests {
    use tarnfs_source::{Cancel, MemorySource, SharedSource};

    use super::*;
    use crate::Decode;

    /// A file that is one hole may be of any length, and zeros pack well.
    #[test]
    fn lengths_of_holes_are_paid_for() {
        const STORED: usize = 33;
        let coder = Arc::new(coder(1).unwrap());
        let decode = Decode::default().with_blocks(|_, stored, decoded| {
            assert_eq!(stored.len(), STORED);
            Ok(decoded.len())
        });
        let read = |blocks: usize, shares: u64| {
            let block = [&(STORED as u16).to_le_bytes()[..], &[0; STORED]].concat();
            let image: SharedSource = Arc::new(MemorySource::new(block.repeat(blocks), "image"));
            let (data, cancel) = (image.len(), Cancel::default());
            let superblock = Superblock {
                block_size: 4096,
                fragments: 0,
                compression: 1,
                ids: 1,
                root: 0,
                length: data,
                id_table: 0,
                xattr_table: NO_TABLE,
                inode_table: 0,
                listing_table: 0,
                fragment_table: NO_TABLE,
            };
            let of_image = ((0, data), Arc::clone(&coder), (data, shares));
            let mut metadata = Metadata::new(&image, of_image.0, of_image.1, of_image.2, (&decode, &cancel));
            let mut contents = Contents::new((0, data), superblock, Arc::clone(&coder), (data, shares));
            let (mut place, size) = (Place { block: 0, byte: 0 }, blocks as u64 * 2048 * 4096);
            contents.pieces(&mut metadata, (0, size), (&mut place, None), None).map(|pieces| pieces.len())
        };
        // What one image has itself is all there.
        assert_eq!(read(1000, 1).unwrap(), 0);
        let error = read(1000, 1 << 12).unwrap_err();
        assert!(error.to_string().contains("too many parts"), "{error}");
    }
}
