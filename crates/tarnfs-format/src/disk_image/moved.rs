//! Pieces of files on a disk become pieces of the image that the disk is in.

use std::io;
use std::sync::Arc;

use super::layout::{Packed, Place};
use super::view::{Under, View};
use crate::entry::MOST_OF_CODERS;
use crate::image::{Budget, CODERS, is_damage, too_many_coders};
use crate::{Coder, Input, Piece, Step};

/// Pieces of one file: 100 MiB of memory.
const MOST_PIECES: usize = 1 << 20;

/// Places that one packed block of a file system may lie in, and steps that join and undo them: an index keeps no more
/// of them.
const MOST_PARTS: usize = 32;
const MOST_STEPS: usize = 32;

/// Bytes of tables that are looked at to find one run, about.
const OF_RUN: u64 = 1 << 10;

/// Bytes of a block, as it is stored or not.
const LONGEST_BLOCK: u64 = 16 << 20;

/// The pieces of a file, put together from its start to its end.
#[derive(Debug, Default)]
struct Moved {
    pieces: Vec<Piece>,
    hole: u64,
    /// Why some of it is not there.
    missing: Option<String>,
}

impl Moved {
    fn push(&mut self, piece: Piece) {
        let follows = self.hole == 0 && piece.coder.is_none() && piece.crc.is_none();
        let is_plain = |last: &&mut Piece| {
            last.coder.is_none() && last.crc.is_none() && last.offset.saturating_add(last.stored) == piece.offset
        };
        match self.pieces.last_mut().filter(|_| follows).filter(is_plain) {
            Some(last) => {
                for sum in [&mut last.length, &mut last.stored, &mut last.decoded] {
                    *sum = sum.saturating_add(piece.length);
                }
            }
            None => self.pieces.push(Piece { hole: std::mem::take(&mut self.hole), ..piece }),
        }
    }

    fn miss(&mut self, offset: u64, length: u64, why: &str) {
        self.missing.get_or_insert_with(|| why.to_owned());
        self.push(Piece::unreadable(offset, length));
    }

    /// Only the first pieces are there: the rest of `length` bytes, some of which may be a hole, cannot be read.
    fn only(mut self, first: usize, length: u64, why: String) -> (Vec<Piece>, Option<String>) {
        self.pieces.truncate(first);
        let behind = self.pieces.last().map_or(0, |piece| piece.offset);
        self.pieces.push(Piece::unreadable(behind, length.saturating_sub(length_of(&self.pieces))));
        (self.pieces, Some(why))
    }
}

/// Bytes that pieces and the holes before them have.
fn length_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.hole.saturating_add(piece.length)).fold(0, u64::saturating_add)
}

/// What `pieces` of the disk are as pieces of the image, and why some of them are not there.
pub(super) fn moved<S: Under>(
    view: &View<S>,
    pieces: Vec<Piece>,
    budget: &mut Budget,
) -> io::Result<(Vec<Piece>, Option<String>)> {
    let mut to = Moved::default();
    let length = length_of(&pieces);
    for piece in pieces {
        to.hole = to.hole.saturating_add(piece.hole);
        let before = to.pieces.len();
        match &piece.coder {
            None => plain(view, &piece, &mut to, MOST_PIECES, budget)?,
            Some(_) if piece.stored == 0 => to.push(Piece { offset: view.place_of(piece.offset), hole: 0, ..piece }),
            Some(coder) => coded(view, &piece, coder, &mut to, budget)?,
        }
        let added = to.pieces.len().saturating_sub(before) as u64;
        if let Err(error) = budget.take_parts(added) {
            return Ok(to.only(before, length, error.to_string()));
        }
        if to.pieces.len() > MOST_PIECES {
            return Ok(to.only(MOST_PIECES, length, format!("it lies in more than {MOST_PIECES} parts of the image")));
        }
    }
    // That what is behind them cannot be read is one coder more.
    let of_rest = Piece::unreadable(0, 1).coder.map_or(0, |coder| coder.weight());
    if too_many_coders(&to.pieces, MOST_OF_CODERS).is_some() {
        let first = too_many_coders(&to.pieces, MOST_OF_CODERS.saturating_sub(of_rest)).unwrap_or_default();
        return Ok(to.only(first, length, CODERS.to_owned()));
    }
    Ok((to.pieces, to.missing))
}

/// Bytes that the file system has as they are. No more than `most` pieces come of them, and one.
fn plain<S: Under>(view: &View<S>, piece: &Piece, to: &mut Moved, most: usize, budget: &mut Budget) -> io::Result<()> {
    let (mut at, mut left) = (piece.offset, piece.length);
    while left > 0 && to.pieces.len() <= most {
        let run = match budget.take_bytes(OF_RUN).and_then(|()| view.run(at, left)) {
            Ok(run) if run.length > 0 => run,
            Ok(_) => {
                to.miss(0, left, "it goes on behind the end of the disk");
                break;
            }
            Err(error) if is_damage(&error) => {
                to.miss(0, left, &error.to_string());
                break;
            }
            Err(error) => return Err(error),
        };
        match run.place {
            Place::Hole => to.hole = to.hole.saturating_add(run.length),
            Place::At(offset) => {
                // A checksum is that of all of it.
                let crc = piece.crc.filter(|_| run.length == piece.length);
                let length = run.length;
                to.push(Piece { length, offset, stored: length, decoded: length, crc, ..Piece::default() });
            }
            Place::Packed(Packed { at, stored, coder, decoded, skip }) => {
                let (length, coder) = (run.length, Some(coder));
                to.push(Piece { length, offset: at, stored, coder, decoded, skip, ..Piece::default() });
            }
            Place::Nowhere(why) => to.miss(0, run.length, why),
        }
        at = at.saturating_add(run.length);
        left = left.saturating_sub(run.length);
    }
    Ok(())
}

/// What is left of the packed block `piece` without a hole at its front, where its coder skips zeros there anyway.
fn behind_hole(mut lies: Moved, piece: &Piece, coder: &Coder) -> (Moved, Piece) {
    let mut piece = piece.clone();
    if let ([step], Some(first)) = (coder.steps.as_slice(), lies.pieces.first_mut())
        && step.codec.ends_with("-behind-zeros")
    {
        piece.stored = piece.stored.saturating_sub(std::mem::take(&mut first.hole));
    }
    (lies, piece)
}

/// A block that the file system has packed: in one run of the image it is the same block; in several, these are joined
/// first.
fn coded<S: Under>(
    view: &View<S>,
    piece: &Piece,
    coder: &Arc<Coder>,
    to: &mut Moved,
    budget: &mut Budget,
) -> io::Result<()> {
    let stored = Piece { length: piece.stored, offset: piece.offset, ..Piece::default() };
    let mut lies = Moved::default();
    plain(view, &stored, &mut lies, MOST_PARTS, budget)?;
    let (lies, piece) = behind_hole(lies, piece, coder);
    let has_hole = lies.hole > 0 || lies.pieces.iter().any(|part| part.hole > 0);
    let joined = match lies.pieces.as_slice() {
        _ if lies.missing.is_some() => Err(lies.missing.clone().unwrap_or_default()),
        [one] if one.coder.is_none() && !has_hole => {
            to.push(Piece { offset: one.offset, hole: 0, ..piece });
            return Ok(());
        }
        _ if has_hole => Err("a packed block of it has holes in the image".to_owned()),
        parts if parts.len() > MOST_PARTS => Err("a packed block of it lies in too many parts of the image".to_owned()),
        parts => joined(parts, &piece, coder),
    };
    match joined {
        Ok(piece) => to.push(piece),
        Err(why) => to.miss(lies.pieces.first().map_or(0, |part| part.offset), piece.length, &why),
    }
    Ok(())
}

/// The block `piece`, which `coder` has made, where it lies in `parts` of the image.
fn joined(parts: &[Piece], piece: &Piece, coder: &Coder) -> Result<Piece, String> {
    let [block] = coder.steps.as_slice() else { return Err("it is packed in more than one step".to_owned()) };
    let end = piece.skip.saturating_add(piece.length);
    if !block.properties.is_empty() || piece.decoded > LONGEST_BLOCK || piece.stored > LONGEST_BLOCK {
        return Err("a packed block of it lies in several parts of the image".to_owned());
    }
    let start = parts.iter().map(|part| part.offset).min().unwrap_or_default();
    let behind = parts.iter().map(|part| part.offset.saturating_add(part.stored)).max().unwrap_or_default();
    let (mut steps, mut inputs) = (Vec::new(), Vec::new());
    for part in parts {
        let place = Input::Stored { offset: part.offset.saturating_sub(start), length: part.stored };
        let Some(of_image) = &part.coder else {
            inputs.push(place);
            continue;
        };
        let [one] = of_image.steps.as_slice() else {
            return Err("the image is packed in more than one step".to_owned());
        };
        steps.push(in_memory(&one.codec, part.decoded, part.skip.saturating_add(part.length), vec![place]));
        let input = Input::Step(steps.len().saturating_sub(1));
        steps.push(Step {
            codec: "part".to_owned(),
            properties: part.skip.to_le_bytes().to_vec(),
            decoded_length: Some(part.length),
            inputs: vec![input],
        });
        inputs.push(Input::Step(steps.len().saturating_sub(1)));
    }
    let (codec, properties) = ("copy".to_owned(), Vec::new());
    steps.push(Step { codec, properties, decoded_length: Some(piece.stored), inputs });
    let all = Input::Step(steps.len().saturating_sub(1));
    steps.push(in_memory(&block.codec, piece.decoded, end, vec![all]));
    if steps.len() > MOST_STEPS {
        return Err("a packed block of it lies in too many parts of the image".to_owned());
    }
    let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
    let stored = behind.saturating_sub(start);
    Ok(Piece { length: piece.length, offset: start, stored, coder, decoded: end, skip: piece.skip, ..Piece::default() })
}

/// A block among other steps: at most `most` bytes come of it, of which `wanted` are needed.
fn in_memory(codec: &str, most: u64, wanted: u64, inputs: Vec<Input>) -> Step {
    let properties = [&most.to_le_bytes()[..], codec.as_bytes()].concat();
    Step { codec: "block".to_owned(), properties, decoded_length: Some(wanted), inputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decode;
    use crate::disk_image::layout::{self, Layout, Run};
    use tarnfs_source::{MemorySource, SharedSource, Source};

    const CLUSTER: u64 = 512;

    /// Clusters that are packed one behind the other, each in a way of its own.
    #[derive(Debug)]
    struct Each(fn(u64) -> String);

    impl Layout for Each {
        fn length(&self) -> u64 {
            1 << 40
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            let (number, skip) = (at / CLUSTER, at % CLUSTER);
            let coder = layout::coder(&(self.0)(number));
            let place = Place::Packed(Packed { at: number, stored: 1, coder, decoded: CLUSTER, skip });
            Ok(Run { length: CLUSTER - skip, place })
        }
    }

    fn moved_of(name: fn(u64) -> String, pieces: &[(u64, u64)], budget: &mut Budget) -> (Vec<Piece>, Option<String>) {
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; 1 << 20], "image"));
        let view = View::new(image, Box::new(Each(name)), Decode::default());
        let plain = |&(hole, clusters): &(u64, u64)| {
            let length = clusters * CLUSTER;
            Piece { hole, length, stored: length, decoded: length, ..Piece::default() }
        };
        moved(&view, pieces.iter().map(plain).collect(), budget).unwrap()
    }

    /// The first so many bytes of the disk are a hole, and so are those of its fifth cluster, if that is wanted.
    #[derive(Debug)]
    struct Holes(u64, bool);

    impl Layout for Holes {
        fn length(&self) -> u64 {
            1 << 20
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            if at < self.0 {
                return Ok(Run { length: self.0 - at, place: Place::Hole });
            }
            let is_hole = self.1 && at / CLUSTER == 4;
            let place = if is_hole { Place::Hole } else { Place::At(at + 7000) };
            Ok(Run { length: CLUSTER - at % CLUSTER, place })
        }
    }

    /// Zeros in front of packed blocks are a cluster, and images of disks do not store these.
    #[test]
    fn holes_in_front_of_a_packed_block_are_left_out() {
        let of = |holes: Holes, codec: &str| {
            let image: SharedSource = Arc::new(MemorySource::new(vec![0; 1 << 20], "image"));
            let view = View::new(image, Box::new(holes), Decode::default());
            let coder = Some(layout::coder(codec));
            let piece = Piece { length: 9000, stored: 4096, decoded: 9000, coder, ..Piece::default() };
            let (pieces, missing) = moved(&view, vec![piece], &mut Budget::of_image(1 << 20, 1)).unwrap();
            let [piece] = pieces.as_slice() else { panic!("{pieces:?}") };
            ((piece.length, piece.hole, piece.offset, piece.stored), missing)
        };
        let whole = of(Holes(0, false), "lz4-behind-zeros");
        assert_eq!(whole, ((9000, 0, 7000, 4096), None));
        let found = of(Holes(1024, false), "lz4-behind-zeros");
        assert_eq!(found, ((9000, 0, 8024, 3072), None));
        for (holes, codec) in [(Holes(1024, false), "lz4"), (Holes(1024, true), "lz4-behind-zeros")] {
            let missing = of(holes, codec).1;
            assert!(missing.is_some_and(|why| why.contains("holes in the image")), "{codec}");
        }
    }

    /// Of a file that lies in more ways or parts than an index keeps, the first ones are there.
    #[test]
    fn what_is_too_much_costs_the_rest_only() {
        let mut budget = Budget::of_image(1 << 30, 1);
        // Each takes a thousandth of what all may, and somewhat more.
        let name = |number| format!("{number:0>length$}", length = MOST_OF_CODERS / 1000);
        let (pieces, missing) = moved_of(name, &[(5, 900), (7, 300)], &mut budget);
        assert_eq!(missing.as_deref(), Some(CODERS));
        let there = pieces.len() - 1;
        assert!((950..1000).contains(&there), "{there}");
        assert_eq!(length_of(&pieces), 1200 * CLUSTER + 12);
        assert_eq!(too_many_coders(&pieces, MOST_OF_CODERS), None);
        assert_eq!((pieces[there - 1].stored, pieces[there].stored, pieces[900].hole), (1, 0, 7));
        // More parts than the image may have.
        let mut little = Budget::of_image(0, 1);
        little.parts = 1000;
        let (pieces, missing) = moved_of(|_| "one".to_owned(), &[(5, 900), (7, 300)], &mut little);
        assert!(missing.is_some_and(|why| why.contains("too many parts")));
        assert_eq!((pieces.len(), length_of(&pieces)), (901, 1200 * CLUSTER + 12));
        let (pieces, missing) = moved_of(|_| "one".to_owned(), &[(0, (1 << 20) + 10)], &mut budget);
        assert!(missing.is_some_and(|why| why.contains("1048576 parts")));
        assert_eq!((pieces.len(), length_of(&pieces)), (MOST_PIECES + 1, ((1 << 20) + 10) * CLUSTER));
    }
}
