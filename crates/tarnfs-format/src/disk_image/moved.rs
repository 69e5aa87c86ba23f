//! Pieces of files on a disk become pieces of the image that the disk is in.
//!
//! What the file system has packed lies in one place of the disk, or in several that it has told to join. Each of these
//! may lie in several parts of the image, some of which are packed themselves: these are undone, then all are joined. A
//! cluster of zeros is a hole of the image, also among what is packed.
//! Where there are more of them than an index keeps, of what was packed in chunks each chunk is a piece by itself.

mod chunks;

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

const TOO_MANY: &str = "a packed block of it lies in too many parts of the image";
const NOTHING: &str = "the image has a hole where a packed block of it is";
const LONG_HOLES: &str = "a packed block of it has long holes in the image";

/// What undoes packed blocks of NTFS: of zeros, only zeros come.
const OF_ZEROS: &[u8] = b"lznt1-block";

/// The pieces of a file, put together from its start to its end.
#[derive(Debug, Default)]
struct Moved {
    pieces: Vec<Piece>,
    hole: u64,
    /// Why some of it is not there.
    missing: Option<String>,
    /// The last coder of them, and the bytes that all take.
    coder: Option<Arc<Coder>>,
    of_coders: usize,
}

impl Moved {
    fn push(&mut self, piece: Piece) {
        if let Some(coder) = &piece.coder
            && self.coder.as_ref().is_none_or(|last| !Arc::ptr_eq(last, coder) && last != coder)
        {
            self.of_coders = self.of_coders.saturating_add(coder.weight());
            self.coder = Some(Arc::clone(coder));
        }
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
        if to.of_coders > MOST_OF_CODERS {
            // What comes behind them is left out, below.
            break;
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

/// Where on the disk the bytes lie that `coder` undoes, in their order, and whether they are joined in a step of their
/// own.
fn places(piece: &Piece, coder: &Coder) -> (Vec<(u64, u64)>, bool) {
    if let [first, last] = coder.steps.as_slice()
        && first.codec == "copy"
        && last.inputs == [Input::Step(0)]
    {
        let place = |input: &Input| match *input {
            Input::Stored { offset, length } => Some((piece.offset.saturating_add(offset), length)),
            Input::Step(_) => None,
        };
        let places: Option<Vec<_>> = first.inputs.iter().map(place).collect();
        if let Some(places) = places.filter(|places| !places.is_empty()) {
            return (places, true);
        }
    }
    (vec![(piece.offset, piece.stored)], false)
}

/// True if only zeros come of zeros that `coder` undoes.
fn keeps_zeros(coder: &Coder) -> bool {
    let Some(last) = coder.steps.last() else { return false };
    let in_memory = last.properties.get(size_of::<u64>()..).filter(|_| last.codec == "block");
    in_memory.unwrap_or(last.codec.as_bytes()) == OF_ZEROS
}

/// What the file system has packed: in one run of the image it is the same; in several, these are joined first.
fn coded<S: Under>(
    view: &View<S>,
    piece: &Piece,
    coder: &Arc<Coder>,
    to: &mut Moved,
    budget: &mut Budget,
) -> io::Result<()> {
    let (places, is_joined) = places(piece, coder);
    let mut lies = Moved::default();
    for &(offset, length) in &places {
        plain(view, &Piece { length, offset, ..Piece::default() }, &mut lies, MOST_PARTS, budget)?;
    }
    let (lies, piece) = behind_hole(lies, piece, coder);
    let has_hole = lies.hole > 0 || lies.pieces.iter().any(|part| part.hole > 0);
    let joined = match lies.pieces.as_slice() {
        _ if lies.missing.is_some() => Err(lies.missing.clone().unwrap_or_default()),
        [one] if one.coder.is_none() && !has_hole && !is_joined => {
            to.push(Piece { offset: one.offset, hole: 0, ..piece });
            return Ok(());
        }
        // What has more parts was not looked at to its end.
        parts if parts.len() > MOST_PARTS => Err(TOO_MANY.to_owned()),
        [] if keeps_zeros(coder) => {
            to.hole = to.hole.saturating_add(piece.length);
            return Ok(());
        }
        [] => Err(NOTHING.to_owned()),
        _ => joined(&lies, &piece, coder),
    };
    let joined = match joined {
        Err(why) if why == TOO_MANY => match chunks::apart(view, &piece, coder, &places, (&mut *to, &mut *budget))? {
            Ok(()) => return Ok(()),
            Err(why) => Err(why),
        },
        joined => joined,
    };
    match joined {
        Ok(piece) => to.push(piece),
        Err(why) => to.miss(lies.pieces.first().map_or(0, |part| part.offset), piece.length, &why),
    }
    Ok(())
}

/// What of `piece`, which `coder` has made, lies in those parts of the image.
///
/// Holes among them are zeros, and so is one at their end: where nothing is packed behind it, a coder may need them.
fn joined(lies: &Moved, piece: &Piece, coder: &Coder) -> Result<Piece, String> {
    let parts = lies.pieces.as_slice();
    // They are in memory together.
    if parts.iter().map(|part| part.hole).fold(lies.hole, u64::saturating_add) > LONGEST_BLOCK {
        return Err(LONG_HOLES.to_owned());
    }
    let end = piece.skip.saturating_add(piece.length);
    let (last, decoded) = match coder.steps.as_slice() {
        [block] if block.properties.is_empty() => {
            if piece.decoded > LONGEST_BLOCK || piece.stored > LONGEST_BLOCK {
                return Err("a packed block of it lies in several parts of the image".to_owned());
            }
            (in_memory(&block.codec, piece.decoded, end, Vec::new()), end)
        }
        [whole] if whole.inputs.is_empty() => (whole.clone(), piece.decoded),
        [_, last] if places(piece, coder).1 => (last.clone(), piece.decoded),
        _ => return Err("it is packed in more than one step".to_owned()),
    };
    let start = parts.iter().map(|part| part.offset).min().unwrap_or_default();
    let behind = parts.iter().map(|part| part.offset.saturating_add(part.stored)).max().unwrap_or_default();
    let (mut steps, mut inputs) = (Vec::new(), Vec::new());
    for part in parts {
        add_zeros(part.hole, &mut steps, &mut inputs);
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
    add_zeros(lies.hole, &mut steps, &mut inputs);
    if inputs.len() > MOST_PARTS {
        return Err(TOO_MANY.to_owned());
    }
    let (codec, properties) = ("copy".to_owned(), Vec::new());
    let stored = length_of(parts).saturating_add(lies.hole);
    steps.push(Step { codec, properties, decoded_length: Some(stored), inputs });
    let inputs = vec![Input::Step(steps.len().saturating_sub(1))];
    steps.push(Step { inputs, ..last });
    if steps.len() > MOST_STEPS {
        return Err(TOO_MANY.to_owned());
    }
    let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
    let stored = behind.saturating_sub(start);
    Ok(Piece { length: piece.length, offset: start, stored, coder, decoded, skip: piece.skip, ..Piece::default() })
}

/// So many zeros, made of nothing that is stored, are joined next.
fn add_zeros(length: u64, steps: &mut Vec<Step>, inputs: &mut Vec<Input>) {
    if length > 0 {
        steps.push(in_memory("zeros", length, length, vec![Input::Stored { offset: 0, length: 0 }]));
        inputs.push(Input::Step(steps.len().saturating_sub(1)));
    }
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

    /// The first so many bytes of the disk are a hole, and so are those of one cluster.
    #[derive(Debug)]
    struct Holes(u64, Option<u64>);

    impl Layout for Holes {
        fn length(&self) -> u64 {
            1 << 20
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            if at < self.0 {
                return Ok(Run { length: self.0 - at, place: Place::Hole });
            }
            let is_hole = self.1 == Some(at / CLUSTER);
            let place = if is_hole { Place::Hole } else { Place::At(at + 7000) };
            Ok(Run { length: CLUSTER - at % CLUSTER, place })
        }
    }

    /// A packed block of a file system, in an image with `layout`: its piece, and why it is not there.
    fn block_in(layout: impl Layout + 'static, codec: &str) -> (Vec<Piece>, Option<String>) {
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; 1 << 20], "image"));
        let view = View::new(image, Box::new(layout), Decode::default());
        let coder = Some(layout::coder(codec));
        let piece = Piece { length: 9000, stored: 4096, decoded: 9000, coder, ..Piece::default() };
        moved(&view, vec![piece], &mut Budget::of_image(1 << 20, 1)).unwrap()
    }

    /// Zeros in front of packed blocks are a cluster, and images of disks do not store these.
    #[test]
    fn holes_in_front_of_a_packed_block_are_left_out() {
        let of = |holes: Holes, codec: &str| {
            let (pieces, missing) = block_in(holes, codec);
            let [piece] = pieces.as_slice() else { panic!("{pieces:?}") };
            ((piece.length, piece.hole, piece.offset, piece.stored), missing)
        };
        let whole = of(Holes(0, None), "lz4-behind-zeros");
        assert_eq!(whole, ((9000, 0, 7000, 4096), None));
        let found = of(Holes(1024, None), "lz4-behind-zeros");
        assert_eq!(found, ((9000, 0, 8024, 3072), None));
    }

    /// What is packed may end with a cluster of zeros, or have one in it.
    #[test]
    fn holes_in_a_packed_block_are_zeros() {
        let zeros = |clusters: u64| (vec![Input::Stored { offset: 0, length: 0 }], Some(clusters * CLUSTER));
        let joined = |holes: Holes, codec: &str| {
            let (pieces, missing) = block_in(holes, codec);
            let [piece] = pieces.as_slice() else { panic!("{pieces:?}") };
            assert_eq!((missing, piece.length, piece.hole), (None, 9000, 0));
            let mut steps = piece.coder.as_ref().unwrap().steps.clone();
            let last = steps.pop().unwrap();
            assert_eq!(last, in_memory(codec, 9000, 9000, vec![Input::Step(steps.len() - 1)]));
            let copy = steps.pop().unwrap();
            assert_eq!((copy.codec.as_str(), copy.decoded_length), ("copy", Some(4096)));
            let of_zeros: Vec<_> = steps
                .into_iter()
                .inspect(|step| assert!(step.codec == "block" && step.properties.ends_with(b"zeros")))
                .map(|step| (step.inputs, step.decoded_length))
                .collect();
            (of_zeros, copy.inputs, piece.offset, piece.stored)
        };
        let part = |offset, clusters| Input::Stored { offset, length: clusters * CLUSTER };
        let (step, codec) = (Input::Step(0), "lznt1-block");
        // At the end, in the middle, and in front.
        let at_end = (vec![zeros(1)], vec![part(0, 7), step], 7000, 7 * CLUSTER);
        assert_eq!(joined(Holes(0, Some(7)), codec), at_end);
        let amid = (vec![zeros(1)], vec![part(0, 4), step, part(5 * CLUSTER, 3)], 7000, 8 * CLUSTER);
        assert_eq!(joined(Holes(0, Some(4)), codec), amid);
        let twice = (vec![zeros(2), zeros(1)], vec![step, part(0, 2), Input::Step(1), part(3 * CLUSTER, 3)]);
        assert_eq!(joined(Holes(1024, Some(4)), "lz4"), (twice.0, twice.1, 8024, 6 * CLUSTER));
        // Nothing of it is stored.
        assert_eq!(block_in(Holes(1 << 20, None), codec), (vec![], None));
        let (pieces, missing) = block_in(Holes(1 << 20, None), "lz4");
        assert_eq!((pieces.len(), pieces[0].stored, missing.as_deref()), (1, 0, Some(NOTHING)));
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

    /// Each cluster lies in front of the one before it, and those from the 12th up to the 98th are a hole.
    #[derive(Debug)]
    struct Backwards;

    impl Layout for Backwards {
        fn length(&self) -> u64 {
            1 << 20
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            let (number, inside) = (at / CLUSTER, at % CLUSTER);
            if (12..98).contains(&number) {
                return Ok(Run { length: 98 * CLUSTER - at, place: Place::Hole });
            }
            let place = Place::At((2000 - 2 * number) * CLUSTER + inside);
            Ok(Run { length: CLUSTER - inside, place })
        }
    }

    /// What lies between two places that are joined is another file's, and may be anywhere.
    #[test]
    fn of_what_is_joined_each_place_is_moved_by_itself() {
        let copy = |places: &[(u64, u64)]| Step {
            codec: "copy".to_owned(),
            decoded_length: Some(4 * CLUSTER),
            inputs: places.iter().map(|&(offset, length)| Input::Stored { offset, length }).collect(),
            ..Step::default()
        };
        let block = in_memory("lz4-block", 65_536, 5000, vec![Input::Step(0)]);
        let steps = vec![copy(&[(88 * CLUSTER, 2 * CLUSTER), (0, 2 * CLUSTER)]), block.clone()];
        let piece = |steps: Vec<Step>| Piece {
            length: 5000,
            offset: 10 * CLUSTER,
            stored: 90 * CLUSTER,
            decoded: 5000,
            coder: Some(Arc::new(Coder { steps, is_behind_header: None })),
            ..Piece::default()
        };
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; 1 << 20], "image"));
        let view = View::new(Arc::clone(&image), Box::new(Backwards), Decode::default());
        let mut budget = Budget::of_image(1 << 20, 1);
        let (pieces, missing) = moved(&view, vec![piece(steps.clone())], &mut budget).unwrap();
        assert_eq!((pieces.len(), missing), (1, None));
        // Clusters 98, 99, 10 and 11 of the disk.
        let places = [2, 0, 178, 176].map(|number| (number * CLUSTER, CLUSTER));
        assert_eq!(pieces[0].coder.as_ref().unwrap().steps, [copy(&places), block.clone()]);
        assert_eq!((pieces[0].offset, pieces[0].stored), (1802 * CLUSTER, 179 * CLUSTER));
        assert_eq!((pieces[0].length, pieces[0].decoded), (5000, 5000));
        // Where the image is packed, too, each part is undone first.
        let view = View::new(image, Box::new(Each(|_| "zlib-block".to_owned())), Decode::default());
        let (pieces, missing) = moved(&view, vec![piece(steps)], &mut budget).unwrap();
        let steps = &pieces[0].coder.as_ref().unwrap().steps;
        let names: Vec<_> = steps.iter().map(|step| step.codec.as_str()).collect();
        assert_eq!((names.len(), missing), (10, None));
        assert_eq!(names[..3], ["block", "part", "block"]);
        assert_eq!(steps[8].inputs, [1, 3, 5, 7].map(Input::Step));
        assert_eq!(steps[9], Step { inputs: vec![Input::Step(8)], ..block });
    }

    /// What is packed in chunks is joined where it lies in few parts, and in many each chunk is a piece.
    #[test]
    fn what_is_packed_in_chunks_may_lie_in_any_number_of_parts() {
        let moved_of = |first: u64, table: [u32; 2], hash: u8| {
            let mut bytes = vec![0; 1 << 20];
            let at = ((2000 - 2 * first) * CLUSTER) as usize;
            bytes[at..at + 8].copy_from_slice(&table.map(u32::to_le_bytes).concat());
            let image: SharedSource = Arc::new(MemorySource::new(bytes, "image"));
            let view = View::new(image, Box::new(Backwards), Decode::default());
            let properties = [&[1, 4][..], &4096_u32.to_le_bytes(), &[hash; 20]].concat();
            let (length, codec) = (2 * 4096 + 9, "chunked".to_owned());
            let step = Step { codec, properties, decoded_length: Some(length), ..Step::default() };
            let coder = Some(Arc::new(Coder { steps: vec![step], is_behind_header: None }));
            let (offset, stored) = (first * CLUSTER, if first == 0 { 5 * CLUSTER } else { 40 * CLUSTER });
            let piece = Piece { length, offset, stored, decoded: length, coder, ..Piece::default() };
            moved(&view, vec![piece], &mut Budget::of_image(1 << 20, 1)).unwrap()
        };
        let of = |piece: &Piece| {
            let steps = &piece.coder.as_ref().unwrap().steps;
            let names: Vec<_> = steps.iter().map(|step| step.codec.clone()).collect();
            (piece.length, names.join(" "), steps[0].inputs.len(), steps[0].decoded_length)
        };
        let (pieces, missing) = moved_of(0, [0, 0], 0);
        let whole = (8201, "copy chunked".to_owned(), 5, Some(5 * CLUSTER));
        assert_eq!((pieces.iter().map(of).collect::<Vec<_>>(), missing), (vec![whole], None));
        let (pieces, missing) = moved_of(100, [8000, 16_000], 0);
        let chunk = |length, parts, stored| (length, "copy chunked".to_owned(), parts, Some(stored));
        // The table has 8 bytes, and 20480 are there.
        let chunks = vec![chunk(4096, 16, 8000), chunk(4096, 17, 8000), chunk(9, 9, 20_480 - 16_008)];
        assert_eq!((pieces.iter().map(of).collect::<Vec<_>>(), missing), (chunks, None));
        // One in one part is as it is.
        let (pieces, _) = moved_of(100, [300, 8000], 0);
        assert_eq!((pieces.len(), pieces[0].coder.as_ref().unwrap().steps.len()), (3, 1));
        assert_eq!((pieces[0].offset, pieces[0].stored), (1800 * CLUSTER + 8, 300));
        for (table, hash, why) in
            [([300, 200], 0, "in order"), ([300, 30_000], 0, "in order"), ([300, 400], 1, "too many")]
        {
            let (pieces, missing) = moved_of(100, table, hash);
            assert!(missing.is_some_and(|told| told.contains(why)), "{table:?}");
            assert_eq!((pieces.len(), pieces[0].length, pieces[0].stored), (1, 8201, 0));
        }
    }
}
