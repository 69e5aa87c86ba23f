//! Sparse images of Android (AOSP: system/core/libsparse/sparse_format.h): chunks, one behind the other, each with a
//! header that says how many blocks of the disk it is.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Source};

use super::layout::{Found, LONGEST, Layout, Packed, Place, Refusal, Run, Show, coder, read, stored};
use crate::Coder;
use crate::little::{u16_at, u32_at};
use crate::window::Window;

const MAGIC: u32 = 0xed26_ff3a;

/// Bytes of the header, and of that of a chunk; there may be more of both.
const HEADER: u16 = 28;
const CHUNK: u16 = 12;

/// What a header gets: its magic, version and lengths.
const BITS: u32 = 72;

const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const NOTHING: u16 = 0xcac3;
const SUM: u16 = 0xcac4;

/// Chunks: 32 MiB of memory. A real image has some thousands.
const MOST_CHUNKS: usize = 1 << 20;

/// Bytes of a pattern, and of a block of it.
const PATTERN: u64 = 4;
const FILLED: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From this byte of the image on.
    Raw(u64),
    /// Four bytes again and again, which are at this byte of the image.
    Fill(u64),
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// The first byte of the disk that it is.
    start: u64,
    kind: Kind,
}

#[derive(Debug)]
struct Sparse {
    length: u64,
    chunks: Vec<Chunk>,
    /// What there is of the disk; behind it the image is cut or damaged.
    end: u64,
    coder: Arc<Coder>,
}

/// Bytes of a block, and how many of them and of chunks there are.
fn header(head: &[u8]) -> Option<(u16, u16, u32, u32, u32)> {
    let is_one = u32_at(head, 0)? == MAGIC && u16_at(head, 4)? == 1;
    let (header, chunk, block) = (u16_at(head, 8)?, u16_at(head, 10)?, u32_at(head, 12)?);
    let is_possible = is_one && header >= HEADER && chunk >= CHUNK && block >= 4 && block.is_multiple_of(4);
    is_possible.then_some((header, chunk, block, u32_at(head, 16)?, u32_at(head, 20)?))
}

pub(super) fn bid(show: &Show<'_>, _: Option<u64>) -> u32 {
    if header(&show(0, HEADER.into())).is_some() { BITS } else { 0 }
}

pub(super) fn open(source: &dyn Source, cancel: &Cancel) -> Result<Found, Refusal> {
    let head = read(source, 0, HEADER.into())?;
    let (header, of_chunk, block, blocks, chunks) =
        header(&head).ok_or_else(|| Refusal::because("the header of the sparse image is damaged"))?;
    let block = u64::from(block);
    let length = block.saturating_mul(blocks.into());
    if length > LONGEST {
        return Err(Refusal::because(format!("the disk would have {blocks} blocks of {block} bytes")));
    }
    let mut window = Window::growing(source).until(cancel);
    let (mut at, mut start, mut found) = (u64::from(header), 0_u64, Vec::<Chunk>::new());
    let mut wrong = None;
    for number in 0..chunks {
        let bytes = window.bytes(at, u64::MAX, CHUNK.into()).map_err(|error| Refusal::Read(at, error))?;
        let fields = (u16_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        let (Some(kind), Some(count), Some(total)) = fields else {
            wrong = Some(format!("the image is cut before chunk {number} of {chunks}"));
            break;
        };
        let (size, total) = (block.saturating_mul(count.into()), u64::from(total));
        let body = at.saturating_add(of_chunk.into());
        let stored = total.saturating_sub(of_chunk.into());
        let kind = match kind {
            RAW if stored == size => Some(Kind::Raw(body)),
            FILL if stored == PATTERN => Some(Kind::Fill(body)),
            NOTHING if stored == 0 => Some(Kind::Nothing),
            SUM if count == 0 || stored == PATTERN => None,
            _ => {
                wrong = Some(format!("chunk {number} of {chunks} is none"));
                break;
            }
        };
        if total < u64::from(of_chunk) || size > length.saturating_sub(start) && kind.is_some() {
            wrong = Some(format!("chunk {number} of {chunks} has a length that it cannot have"));
            break;
        }
        if let Some(kind) = kind.filter(|_| size > 0) {
            let is_more = |last: &Chunk| last.kind == Kind::Nothing && kind == Kind::Nothing;
            if !found.last().is_some_and(is_more) {
                found.push(Chunk { start, kind });
            }
            start = start.saturating_add(size);
        }
        if found.len() > MOST_CHUNKS {
            wrong = Some(format!("the image has more than {MOST_CHUNKS} chunks"));
            break;
        }
        at = at.saturating_add(total);
    }
    let layout = Sparse { length, chunks: found, end: start, coder: coder("repeated") };
    let mut found = Found::new(layout);
    found.damage.extend(wrong.map(|what| (at, what)));
    Ok(found)
}

impl Layout for Sparse {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
        // What an image does not tell of to its end is not needed, unless it is cut.
        let behind = self.length.saturating_sub(at);
        if at >= self.end {
            return Ok(Run { length: behind, place: Place::Nowhere("it goes on behind the last chunk of the image") });
        }
        let next = self.chunks.partition_point(|chunk| chunk.start <= at);
        let end = self.chunks.get(next).map_or(self.end, |chunk| chunk.start);
        let chunk = next.checked_sub(1).and_then(|number| self.chunks.get(number));
        let Some(Chunk { start, kind }) = chunk else { return Ok(Run { length: behind, place: Place::Hole }) };
        let (inside, length) = (at.saturating_sub(*start), end.saturating_sub(at));
        Ok(match *kind {
            Kind::Nothing => Run { length, place: Place::Hole },
            Kind::Raw(body) => stored(source, body.saturating_add(inside), length),
            Kind::Fill(body) => {
                let mut pattern = [0; PATTERN as usize];
                source.read_exact_at(&mut pattern, body)?;
                if pattern == [0; PATTERN as usize] {
                    return Ok(Run { length, place: Place::Hole });
                }
                // Blocks of it, each of which is a whole number of patterns.
                let skip = inside % PATTERN;
                let decoded = length.saturating_add(skip).min(FILLED);
                let coder = Arc::clone(&self.coder);
                let packed = Packed { at: body, stored: PATTERN, coder, decoded, skip };
                Run { length: decoded.saturating_sub(skip), place: Place::Packed(packed) }
            }
        })
    }
}
