//! What a file system has packed in chunks, behind a table of where each begins: each chunk by itself, where all of it
//! lies in more parts of an image than an index keeps of one coder.

use std::io;
use std::sync::Arc;

use tarnfs_source::Source;

use super::super::view::{Under, View};
use super::{MOST_PIECES, Moved, TOO_MANY, coded};
use crate::entry::MOST_OF_CODERS;
use crate::image::{Budget, is_damage};
use crate::little::{u32_at, u64_at};
use crate::{Coder, Input, Piece, Step};

/// Bytes of the table that are read at once, and of one of its numbers at most.
const AT_ONCE: u64 = 32 << 10;

/// How something was packed in chunks.
struct Chunked<'c> {
    step: &'c Step,
    /// Bytes of a number of the table, and of a chunk.
    width: u64,
    chunk: u64,
}

impl<'c> Chunked<'c> {
    /// That of `coder`, if it is one without a checksum of all chunks.
    fn of(coder: &'c Coder) -> Option<Self> {
        let step = coder.steps.last().filter(|step| step.codec == "chunked")?;
        let [_, width @ (4 | 8), ..] = *step.properties.as_slice() else { return None };
        let (chunk, hash) = (u32_at(&step.properties, 2)?, step.properties.get(6..)?);
        let is_one = chunk > 0 && hash.iter().all(|byte| *byte == 0);
        is_one.then(|| Self { step, width: width.into(), chunk: chunk.into() })
    }
}

/// The places of the bytes `from..to` of what lies in `places`.
fn cut(places: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut found, mut start) = (Vec::new(), 0_u64);
    for &(at, length) in places {
        let end = start.saturating_add(length);
        let (first, last) = (from.max(start), to.min(end));
        if first < last {
            found.push((at.saturating_add(first.saturating_sub(start)), last.saturating_sub(first)));
        }
        start = end;
    }
    found
}

/// Tells the chunks of `piece`, which lies in `places` of the disk. The inner error says why that cannot be.
pub(super) fn apart<S: Under>(
    view: &View<S>,
    piece: &Piece,
    coder: &Coder,
    places: &[(u64, u64)],
    (to, budget): (&mut Moved, &mut Budget),
) -> io::Result<Result<(), String>> {
    let chunked = Chunked::of(coder).filter(|_| (piece.skip, piece.length) == (0, piece.decoded));
    let Some(Chunked { step, width, chunk }) = chunked else { return Ok(Err(TOO_MANY.to_owned())) };
    let count = piece.length.div_ceil(chunk);
    if count < 2 || count > (MOST_PIECES as u64).min(budget.parts) {
        return Ok(Err(TOO_MANY.to_owned()));
    }
    let there = places.iter().map(|(_, length)| *length).fold(0, u64::saturating_add);
    let behind_table = count.saturating_sub(1).saturating_mul(width);
    let wrong = || Ok(Err("its chunks are not in order".to_owned()));
    if behind_table >= there {
        return wrong();
    }
    if let Err(error) = budget.take_bytes(behind_table) {
        return Ok(Err(error.to_string()));
    }
    // All of them are looked at before the first one is told.
    let mut ends = Vec::new();
    let mut table = Vec::new();
    for at in (0..behind_table).step_by(AT_ONCE as usize) {
        for (at, length) in cut(places, at, at.saturating_add(AT_ONCE).min(behind_table)) {
            let start = table.len();
            table.resize(start.saturating_add(length as usize), 0);
            match view.read_exact_at(table.get_mut(start..).unwrap_or_default(), at) {
                Err(error) if is_damage(&error) => return Ok(Err(error.to_string())),
                read => read?,
            }
        }
        let numbers = table.chunks_exact(width as usize);
        ends.extend(numbers.map(|number| u64_at(number, 0).or_else(|| u32_at(number, 0).map(u64::from))));
        table.clear();
    }
    let mut from = behind_table;
    let ends: Option<Vec<u64>> = ends
        .into_iter()
        .map(|end| end.and_then(|end| behind_table.checked_add(end)))
        .chain([Some(there)])
        .map(|end| end.filter(|end| *end <= there && std::mem::replace(&mut from, *end) < *end))
        .collect();
    let Some(ends) = ends else { return wrong() };
    let (mut from, mut left, mut known) = (behind_table, piece.length, None::<Arc<Coder>>);
    for end in ends {
        let length = left.min(chunk);
        let (place, stored) = placed(step, length, &cut(places, from, end));
        // Most have the same coder.
        let coder = known.take().filter(|known| **known == place.1).unwrap_or_else(|| Arc::new(place.1));
        let (offset, decoded) = (place.0, length);
        let of_chunk = Piece { length, offset, stored, coder: Some(Arc::clone(&coder)), decoded, ..Piece::default() };
        coded(view, &of_chunk, &coder, to, budget)?;
        (from, left, known) = (end, left.saturating_sub(length), Some(coder));
        if to.of_coders > MOST_OF_CODERS {
            // Nothing behind it is kept.
            break;
        }
    }
    Ok(Ok(()))
}

/// Where a chunk of `length` bytes that lies in `places` begins, its coder, and how many bytes it goes over.
fn placed(step: &Step, length: u64, places: &[(u64, u64)]) -> ((u64, Coder), u64) {
    let start = places.iter().map(|(at, _)| *at).min().unwrap_or_default();
    let end = places.iter().map(|(at, length)| at.saturating_add(*length)).max().unwrap_or_default();
    let mut last = Step { decoded_length: Some(length), inputs: Vec::new(), ..step.clone() };
    let mut steps = Vec::new();
    if places.len() != 1 {
        let sum = places.iter().map(|(_, length)| *length).fold(0, u64::saturating_add);
        let inputs = places.iter().map(|&(at, length)| Input::Stored { offset: at.saturating_sub(start), length });
        let (inputs, codec) = (inputs.collect(), "copy".to_owned());
        steps.push(Step { codec, properties: Vec::new(), decoded_length: Some(sum), inputs });
        last.inputs = vec![Input::Step(0)];
    }
    steps.push(last);
    ((start, Coder { steps, is_behind_header: None }), end.saturating_sub(start))
}
