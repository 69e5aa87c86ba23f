//! What macOS compresses (decmpfs): an attribute says how, and has the data of short files; those of longer ones are in
//! the resource fork, in blocks.

use std::io;
use std::sync::Arc;

use crate::content::Content;
use crate::image::{Budget, damaged};
use crate::little::{u32_at, u64_at};
use crate::window::Window;
use crate::{Coder, Piece, Step, big};

/// The attribute that says how.
pub(super) const ATTRIBUTE: &[u8] = b"com.apple.decmpfs";

/// Bytes before the data in it.
const HEADER: u64 = 16;

/// Bytes that come of one block.
const BLOCK: u64 = 64 << 10;

/// Bytes of a file whose data are in the attribute.
const LONGEST_INSIDE: u64 = 16 << 20;

/// Blocks of one file: 64 GiB.
const MOST_BLOCKS: u64 = 1 << 20;

/// Bytes of the table of blocks that are read at once.
const AT_ONCE: u64 = 32 << 10;

/// A compression: its coder, and bits of the first byte of a block that is not compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Method {
    coder: &'static str,
    mask: u8,
    stored: u8,
}

impl Method {
    fn is_stored(self, first: Option<&u8>) -> bool {
        first.is_some_and(|first| first & self.mask == self.stored)
    }
}

const ZLIB: Method = Method { coder: "zlib-block", mask: 0x0f, stored: 0x0f };
const LZVN: Method = Method { coder: "lzvn-block", mask: 0xff, stored: 0x06 };
const LZFSE: Method = Method { coder: "lzfse-block", mask: 0xff, stored: 0xff };

fn coder(codec: &str) -> Arc<Coder> {
    let step = Step { codec: codec.to_owned(), ..Step::default() };
    Arc::new(Coder { steps: vec![step], is_behind_header: None })
}

/// The length of a file, as its attribute says.
pub(super) fn length(attribute: &[u8]) -> Option<u64> {
    u64_at(attribute, 8).filter(|size| i64::try_from(*size).is_ok())
}

/// Where the content of a file lies, as its attribute says, which begins at byte `at` of the image. `resource` is its
/// resource fork.
pub(super) fn content(
    attribute: &[u8],
    at: u64,
    resource: &Content,
    window: &mut Window<'_>,
    budget: &mut Budget,
) -> io::Result<Content> {
    let (true, Some(kind), Some(size)) = (attribute.starts_with(b"fpmc"), u32_at(attribute, 4), length(attribute))
    else {
        return Err(damaged("what says how it is compressed is damaged"));
    };
    let mut content = Content::new(size);
    let data = attribute.get(HEADER as usize..).unwrap_or_default();
    let place = at.checked_add(HEADER);
    let inside = |content: &mut Content, method: Option<Method>| {
        let place = place.ok_or_else(|| damaged("its data lie in two places"))?;
        let is_stored = method.is_none_or(|method| method.is_stored(data.first()));
        let skip = u64::from(method.is_some() && is_stored);
        let stored = (data.len() as u64).saturating_sub(skip);
        let piece =
            Piece { length: size, offset: place.saturating_add(skip), stored, decoded: size, ..Piece::default() };
        match method.filter(|_| !is_stored) {
            // No more comes of what an attribute holds.
            Some(_) if size > LONGEST_INSIDE => return Err(damaged("it has another length than it says")),
            Some(method) => content.add_packed(Piece { coder: Some(coder(method.coder)), ..piece }),
            None if stored == size => content.add_packed(piece),
            None => return Err(damaged("it has another length than it says")),
        }
        Ok(())
    };
    match kind {
        1 => inside(&mut content, None)?,
        3 => inside(&mut content, Some(ZLIB))?,
        7 => inside(&mut content, Some(LZVN))?,
        11 => inside(&mut content, Some(LZFSE))?,
        4 => {
            let blocks = Blocks::of_resources(size, resource, window)?;
            blocks.add(&mut content, ZLIB, resource, window, budget)?;
        }
        8 => Blocks::of_offsets(size).add(&mut content, LZVN, resource, window, budget)?,
        12 => Blocks::of_offsets(size).add(&mut content, LZFSE, resource, window, budget)?,
        other => content.add_missing(at, size, format!("macOS has compressed it in a way that is not known ({other})")),
    }
    Ok(content)
}

/// What a look at the first byte of a block counts for: it is read with what is behind it.
const OF_LOOK: u64 = 4 << 10;

/// The blocks of a file in its resource fork.
struct Blocks {
    count: u64,
    /// Where their table begins, and what offsets count from.
    table: u64,
    start: u64,
    /// Each has an offset and a length; else only an offset, and they lie one behind the other.
    has_lengths: bool,
}

impl Blocks {
    /// The only one of the resources.
    fn of_resources(size: u64, resource: &Content, window: &mut Window<'_>) -> io::Result<Self> {
        let mut bytes = Vec::new();
        resource.read(window, 0, 4, &mut bytes)?;
        let start = big::u32_at(&bytes, 0).map(|start| u64::from(start).saturating_add(4));
        let start = start.ok_or_else(|| damaged("its resource fork is cut"))?;
        resource.read(window, start, 4, &mut bytes)?;
        let count = u32_at(&bytes, 0).map(u64::from);
        let count = count.filter(|count| *count == size.div_ceil(BLOCK));
        let count = count.ok_or_else(|| damaged("it has not as many blocks as it should"))?;
        Ok(Self { count, table: start.saturating_add(4), start, has_lengths: true })
    }

    /// All of the fork.
    fn of_offsets(size: u64) -> Self {
        Self { count: size.div_ceil(BLOCK), table: 0, start: 0, has_lengths: false }
    }

    fn add(
        &self,
        content: &mut Content,
        method: Method,
        resource: &Content,
        window: &mut Window<'_>,
        budget: &mut Budget,
    ) -> io::Result<()> {
        if self.count > MOST_BLOCKS {
            return Err(damaged("it has more blocks than can be read"));
        }
        let (packed, entry) = (coder(method.coder), if self.has_lengths { 8_u64 } else { 4 });
        let (mut table, mut read_from) = (Vec::new(), u64::MAX);
        for number in 0..self.count {
            budget.take_parts(1)?;
            let from = self.table.saturating_add(number.saturating_mul(entry));
            if number == 0 || from.saturating_sub(read_from).saturating_add(8) > table.len() as u64 {
                resource.read(window, from, AT_ONCE, &mut table)?;
                read_from = from;
            }
            let at = usize::try_from(from.saturating_sub(read_from)).unwrap_or(usize::MAX);
            let words = u32_at(&table, at).zip(u32_at(&table, at.saturating_add(4)));
            let (offset, second) = words.ok_or_else(|| damaged("its table of blocks is cut"))?;
            let stored = if self.has_lengths { Some(second) } else { second.checked_sub(offset) };
            let stored = u64::from(stored.ok_or_else(|| damaged("its blocks are not in order"))?);
            let length = content.left().min(BLOCK);
            let offset = self.start.saturating_add(offset.into());
            let found = resource.at(offset).ok().filter(|(piece, inside)| {
                piece.coder.is_none() && inside.checked_add(stored).is_some_and(|end| end <= piece.length)
            });
            let Some((piece, inside)) = found.filter(|_| stored > 0) else {
                content.add_missing(0, length, "a block of it lies in two places, or nowhere");
                continue;
            };
            let at = piece.offset.saturating_add(inside);
            let piece = Piece { length, offset: at, stored, decoded: length, ..Piece::default() };
            let may_be_stored = stored.checked_sub(1) == Some(length);
            // To look into it may mean to decode a block of the image that the volume is in.
            if may_be_stored && !window.has(at, 1) {
                budget.take_bytes(OF_LOOK)?;
            }
            if may_be_stored && method.is_stored(window.bytes(at, u64::MAX, 1)?.first()) {
                content.add_packed(Piece { offset: at.saturating_add(1), stored: length, ..piece });
            } else {
                content.add_packed(Piece { coder: Some(Arc::clone(&packed)), ..piece });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// A table may name blocks far from each other, of each of which the first byte is looked at.
    #[test]
    fn a_look_at_a_block_is_paid_for() {
        const STORED: u32 = BLOCK as u32 + 1;
        let size = (2 * BLOCK).to_le_bytes();
        let attribute = [&b"fpmc"[..], &8_u32.to_le_bytes(), &size].concat();
        let table = [12, 12 + STORED, 12 + 2 * STORED].map(u32::to_le_bytes).concat();
        let block = [&[LZVN.stored][..], &vec![7; BLOCK as usize]].concat();
        let source = MemorySource::new([&table[..], &block, &block].concat(), "resource");
        let mut resource = Content::new(12 + 2 * u64::from(STORED));
        resource.add(0, resource.size, resource.size);
        let (mut window, mut budget) = (Window::growing(&source), Budget::new(0, 1));
        let before = budget.bytes;
        let found = content(&attribute, 0, &resource, &mut window, &mut budget).unwrap();
        let places: Vec<_> = found.pieces.iter().map(|piece| (piece.offset, piece.coder.is_some())).collect();
        assert_eq!(places, [(13, false), (13 + u64::from(STORED), false)]);
        // The first is there, as it is behind the table.
        assert_eq!(before - budget.bytes, OF_LOOK);
        budget.bytes = OF_LOOK - 1;
        assert!(content(&attribute, 0, &resource, &mut Window::growing(&source), &mut budget).is_err());
    }
}
