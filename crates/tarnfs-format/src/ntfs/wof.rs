//! What Windows has compressed since a file was written (WOF; `compact /exe`, CompactOS): in a stream of its own, and
//! in the form of a resource of WIM, a table and chunks behind it.
//!
//! What is kept for the driver: [MS-FSCC], section 2.1.2; the form of the stream: wimlib, which writes both.

use std::io;

use super::stream::{Coders, MOST_PARTS, Packed, bounded, joined};
use crate::content::Content;
use crate::image::{Budget, CODERS, damaged};
use crate::little::{u32_at, u64_at};
use crate::window::Window;

/// Numbers of the table have four bytes, but those of files that are as long as this.
const LONG: u64 = 1 << 32;

/// Chunks of a file that lies in many parts, each of which is a piece then, and bytes of the table that are read at
/// once.
const MOST_CHUNKS: u64 = 1 << 20;
const AT_ONCE: u64 = 32 << 10;

/// Why the end of a file with more chunks cannot be read.
const TOO_MANY: &str = "it lies in so many parts that no more chunks can be read";

/// How a file was compressed: as WIM numbers that, and bytes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Method {
    kind: u8,
    chunk: u32,
}

/// Where the content of a file of `size` bytes lies if what Windows keeps for its driver is `kept`, and `packed` what
/// it has made of it. `None` if it is something else.
pub(super) fn content(
    kept: &[u8],
    size: u64,
    packed: &Content,
    window: &mut Window<'_>,
    budget: &mut Budget,
) -> Option<io::Result<Content>> {
    // A version, whose driver it is (files, and no image), a version of that, and how it is compressed.
    if [0, 4, 8].map(|at| u32_at(kept, at)) != [Some(1), Some(2), Some(1)] {
        return None;
    }
    let (kind, chunk) = match u32_at(kept, 12)? {
        0 => (1, 4 << 10),
        1 => (2, 32 << 10),
        2 => (1, 8 << 10),
        3 => (1, 16 << 10),
        _ => return Some(Err(damaged("it is compressed by Windows in a way that is not known"))),
    };
    Some(unpacked(Method { kind, chunk }, size, packed, window, budget))
}

fn unpacked(
    method: Method,
    size: u64,
    packed: &Content,
    window: &mut Window<'_>,
    budget: &mut Budget,
) -> io::Result<Content> {
    if let Some(missing) = &packed.missing {
        return Err(damaged(missing.clone()));
    }
    if packed.pieces.iter().any(|piece| piece.coder.is_some() || piece.hole > 0) {
        return Err(damaged("what it is compressed to has holes, or is compressed"));
    }
    let width = if size < LONG { 4_u8 } else { 8 };
    let properties = [&[method.kind, width][..], &method.chunk.to_le_bytes(), &[0; 20]].concat();
    let resource = Packed { codec: "chunked", properties, is_block: false };
    let mut content = Content::new(size);
    if size == 0 {
        return Ok(content);
    }
    let places: Vec<_> = packed.pieces.iter().map(|piece| (piece.offset, piece.stored)).collect();
    if places.len() <= MOST_PARTS {
        content.add_packed(joined(&places, &resource, size, size).map_err(damaged)?);
        return Ok(content);
    }
    // Each chunk by itself, which is a resource without a table.
    let (chunk, width) = (u64::from(method.chunk), u64::from(width));
    let count = size.div_ceil(chunk);
    let shown = count.min(MOST_CHUNKS);
    budget.take_parts(shown)?;
    let behind_table = count.saturating_sub(1).saturating_mul(width);
    budget.take_bytes(behind_table)?;
    let (mut table, mut from, mut coders) = (Vec::new(), behind_table, Coders::default());
    for number in 0..shown {
        let at = number.saturating_mul(width);
        let inside = usize::try_from(at % AT_ONCE).unwrap_or_default();
        if inside == 0 {
            packed.read(window, at, AT_ONCE.min(behind_table.saturating_sub(at)), &mut table)?;
        }
        let next = if width == 4 { u32_at(&table, inside).map(u64::from) } else { u64_at(&table, inside) };
        let end = if number.saturating_add(1) < count {
            next.and_then(|next| behind_table.checked_add(next)).filter(|end| *end <= packed.size)
        } else {
            Some(packed.size)
        };
        let length = content.left().min(chunk);
        let places = end.filter(|end| *end > from).map(|end| parts(packed, from, end));
        let places = places.ok_or_else(|| damaged("its chunks are not in order"))?;
        let mut piece = joined(&places, &resource, length, length).map_err(damaged)?;
        if !coders.take(&mut piece) {
            let left = content.left();
            content.add_missing(0, left, CODERS);
            break;
        }
        content.add_packed(piece);
        from = end.unwrap_or(from);
    }
    let left = content.left();
    content.add_missing(0, left, TOO_MANY);
    Ok(bounded(content))
}

/// Where the bytes `from..to` of a stream lie.
fn parts(packed: &Content, from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), from);
    while at < to
        && let Ok((piece, inside)) = packed.at(at)
    {
        let length = to.saturating_sub(at).min(piece.stored.saturating_sub(inside));
        found.push((piece.offset.saturating_add(inside), length));
        at = at.saturating_add(length);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// Three chunks of 4 KiB in pieces of 16 bytes that lie backwards: each is a piece, and its parts are joined.
    #[test]
    fn what_lies_in_many_parts_is_read_chunk_by_chunk() {
        let stream: Vec<u8> = [&100_u32.to_le_bytes()[..], &300_u32.to_le_bytes(), &[7; 792]].concat();
        let image: Vec<u8> = stream.chunks(16).rev().flat_map(<[u8]>::to_vec).collect();
        let mut packed = Content::new(800);
        (0..50).for_each(|number| packed.add(800 - 16 - number * 16, 16, 800));
        let source = MemorySource::new(image, "image");
        let (mut window, mut budget) = (Window::growing(&source), Budget::new(1 << 20, 1));
        let mut kept = [0_u8; 16];
        (kept[0], kept[4], kept[8]) = (1, 2, 1);
        let mut read = |kept: &[u8], size| content(kept, size, &packed, &mut window, &mut budget);
        let found = read(&kept, 2 * 4096 + 9).unwrap().unwrap();
        let lengths: Vec<_> = found.pieces.iter().map(|piece| piece.length).collect();
        assert_eq!((lengths, found.missing), (vec![4096, 4096, 9], None));
        let steps = &found.pieces[0].coder.as_ref().unwrap().steps;
        let sum = |number: usize| found.pieces[number].coder.as_ref().unwrap().steps[0].decoded_length;
        assert_eq!((steps.len(), sum(0), sum(1), sum(2)), (2, Some(100), Some(200), Some(492)));
        assert_eq!(steps[1].decoded_length, Some(4096));
        // More chunks than the table has in order, another driver, and another way.
        assert!(read(&kept, 5 * 4096).unwrap().is_err());
        kept[4] = 1;
        assert!(read(&kept, 9).is_none());
        (kept[4], kept[12]) = (2, 9);
        assert!(read(&kept, 9).unwrap().is_err());
    }

    /// What can be read of a long one is read: it is not refused.
    #[test]
    fn the_start_of_a_file_with_too_many_chunks_is_there() {
        let count = MOST_CHUNKS + 10;
        let table = (1..count).flat_map(u64::to_le_bytes);
        let stream: Vec<u8> = table.chain((0..count).map(|number| number as u8)).collect();
        let length = stream.len() as u64;
        let mut packed = Content::new(length);
        // Its parts lie backwards.
        let parts: Vec<&[u8]> = stream.chunks(stream.len().div_ceil(MOST_PARTS + 8)).collect();
        let mut end = length;
        for part in &parts {
            end -= part.len() as u64;
            packed.add(end, part.len() as u64, length);
        }
        let source = MemorySource::new(parts.iter().rev().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), "image");
        let (mut window, mut budget) = (Window::growing(&source), Budget::new(1 << 30, 1));
        let mut kept = [0_u8; 16];
        (kept[0], kept[4], kept[8]) = (1, 2, 1);
        let found = content(&kept, count * 4096, &packed, &mut window, &mut budget).unwrap().unwrap();
        assert!(found.missing.is_some() && found.pieces.len() > 100, "{:?}", found.missing);
        assert_eq!(found.pieces.iter().map(|piece| piece.length).sum::<u64>(), count * 4096);
    }
}
