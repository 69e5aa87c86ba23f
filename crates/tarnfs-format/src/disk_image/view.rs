//! A disk, as its image has it, as bytes.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::{Cancel, SharedSource, Source};

use super::layout::{Layout, Packed, Place, Run};
use crate::image::{Quota, damaged, data_of};
use crate::{Coder, Decode};

/// Packed blocks that are kept when they were decoded, and bytes of them.
const KEPT: usize = 64;
const MOST_KEPT: usize = 16 << 20;

/// Bytes of the image for which one more run is looked at to say where holes are, and how many are beside: only bounds
/// need to know it, once for each file system on the disk. Of an image that is packed, each cluster is one. A run of
/// holes may have thousands of entries, and all of them may be in one table.
const BYTES_FOR_EACH_RUN: u64 = 512;
const RUNS: Quota = Quota { most: 1 << 18, least: 1 << 10, of_small: 2 };

/// Bytes that are decoded to list what is on the disk, and so many more for each byte of the image: any number of its
/// nodes and tables may lie in the same blocks.
const DECODED: Quota = Quota { most: 64 << 20, least: 16 << 20, of_small: 512 };
const DECODED_FOR_EACH_BYTE: u64 = 128;

/// Bytes of a disk that one byte of its image may stand for where it is packed.
const PACKED: u64 = 32;

/// An image: borrowed, or shared.
pub(super) trait Under: Send + Sync + Debug {
    fn image(&self) -> &dyn Source;
}

impl Under for SharedSource {
    fn image(&self) -> &dyn Source {
        &**self
    }
}

impl Under for &dyn Source {
    fn image(&self) -> &dyn Source {
        *self
    }
}

/// What a packed block is known by: where it is stored, its lengths, and how it is packed, as an image may say that of
/// one place in two ways.
type Key = ([u64; 3], Arc<Coder>);

/// The disk in an image.
#[derive(Debug)]
pub(super) struct View<S> {
    image: S,
    layout: Box<dyn Layout>,
    decode: Decode,
    cancel: Cancel,
    /// The last one first.
    blocks: Mutex<VecDeque<(Key, Arc<[u8]>)>>,
    /// How many runs may still be looked at for holes.
    runs: AtomicU64,
    /// Bytes that may still be decoded.
    to_decode: AtomicU64,
    /// Bytes of the image that are no holes.
    data: u64,
    /// True once a block was met that is packed.
    is_packed: AtomicBool,
}

impl<S: Under> View<S> {
    pub(super) fn new(image: S, layout: Box<dyn Layout>, decode: Decode) -> Self {
        let data = data_of(image.image());
        let each = data / BYTES_FOR_EACH_RUN;
        let runs = AtomicU64::new(RUNS.of(each, 1).saturating_add(each));
        let decoded = DECODED.of(data, 1).saturating_add(data.saturating_mul(DECODED_FOR_EACH_BYTE));
        let (to_decode, is_packed) = (AtomicU64::new(decoded), AtomicBool::new(false));
        let (blocks, cancel) = (Mutex::default(), Cancel::default());
        Self { image, layout, decode, cancel, blocks, runs, to_decode, data, is_packed }
    }

    /// Looks for no more holes and decodes no more once `cancel` says so.
    pub(super) fn until(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// Where byte `at` of the disk lies, and at most `wanted` bytes behind it.
    pub(super) fn run(&self, at: u64, wanted: u64) -> io::Result<Run> {
        let left = self.layout.length().saturating_sub(at).min(wanted);
        let mut run = self.layout.run(self.image.image(), at, left)?;
        run.length = run.length.min(left);
        if run.length == 0 && left > 0 {
            return Err(damaged(format!("the tables of the image end before byte {at} of the disk")));
        }
        if matches!(run.place, Place::Packed(_)) {
            self.is_packed.store(true, Ordering::Relaxed);
        }
        Ok(run)
    }

    pub(super) fn image(&self) -> &dyn Source {
        self.image.image()
    }

    /// The byte of the image that is nearest to byte `at` of the disk.
    pub(super) fn place_of(&self, at: u64) -> u64 {
        match self.run(at, 1).map(|run| run.place) {
            Ok(Place::At(at)) => at,
            // Further on in a block is further on here, too.
            Ok(Place::Packed(Packed { at, stored, skip, .. })) => at.saturating_add(skip.min(stored.saturating_sub(1))),
            _ => 0,
        }
    }

    fn block(&self, packed: &Packed) -> io::Result<Arc<[u8]>> {
        let blocks = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ([packed.at, packed.stored, packed.decoded], Arc::clone(&packed.coder));
        let known = blocks().iter().find(|(known, _)| *known == key).map(|(_, block)| Arc::clone(block));
        if let Some(known) = known {
            return Ok(known);
        }
        self.cancel.check()?;
        let cost = packed.stored.saturating_add(packed.decoded);
        let is_left = self.to_decode.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost));
        is_left.map_err(|_| damaged("packed blocks of the image are decoded too often to list what is on it"))?;
        let mut stored = vec![0; packed.stored as usize];
        self.image().read_exact_at(&mut stored, packed.at)?;
        let mut decoded = vec![0; packed.decoded as usize];
        let length = self.decode.block(&packed.coder, &stored, &mut decoded)?;
        decoded.truncate(length);
        let block: Arc<[u8]> = decoded.into();
        let mut blocks = blocks();
        blocks.push_front((key, Arc::clone(&block)));
        let mut bytes = 0_usize;
        let kept = blocks.iter().take(KEPT).take_while(|(_, block)| {
            bytes = bytes.saturating_add(block.len());
            bytes <= MOST_KEPT
        });
        let kept = kept.count().max(1);
        blocks.truncate(kept);
        Ok(block)
    }

    /// Fills `buffer` with what lies at `place`.
    fn fill(&self, place: &Place, buffer: &mut [u8]) -> io::Result<()> {
        match place {
            Place::Hole => buffer.fill(0),
            Place::At(at) => self.image().read_exact_at(buffer, *at)?,
            Place::Nowhere(why) => return Err(damaged(*why)),
            Place::Packed(packed) => {
                let block = self.block(packed)?;
                let from = packed.skip as usize;
                let bytes = block.get(from..from.saturating_add(buffer.len()));
                buffer.copy_from_slice(bytes.ok_or_else(|| damaged("a block of the image is too short"))?);
            }
        }
        Ok(())
    }

    /// The next byte from `at` on that is in a hole, or in none. `None` where nobody may look on.
    fn next(&self, at: u64, is_hole: bool) -> Option<u64> {
        let mut at = at;
        while at < self.len() {
            self.cancel.check().ok()?;
            self.runs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
            let run = self.run(at, u64::MAX).ok()?;
            if matches!(run.place, Place::Hole) == is_hole {
                return Some(at);
            }
            at = at.saturating_add(run.length);
        }
        Some(at)
    }
}

impl<S: Under> Source for View<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..wanted).filter(|rest| !rest.is_empty()) {
            let run = self.run(offset.saturating_add(filled as u64), rest.len() as u64)?;
            let part = rest.get_mut(..run.length as usize).unwrap_or_default();
            let length = part.len();
            self.fill(&run.place, part)?;
            filled = filled.saturating_add(length);
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.layout.length()
    }

    fn describe(&self) -> String {
        format!("the disk in {}", self.image().describe())
    }

    fn depth(&self) -> usize {
        self.image().depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        // Nothing is a hole of which nobody knows.
        self.next(offset, false).or(Some(offset)).filter(|at| *at < self.len())
    }

    fn next_hole(&self, offset: u64) -> u64 {
        // Where nobody may look on, as much is there as the image has: a bound had better be too large than too small.
        let unknown = || offset.saturating_add(self.data);
        self.next(offset, true).unwrap_or_else(unknown).min(self.len()).max(offset)
    }

    fn most_data(&self) -> u64 {
        // Any number of clusters of the disk may be one of the image.
        let packed = if self.is_packed.load(Ordering::Relaxed) { PACKED } else { 1 };
        self.data.saturating_mul(packed).min(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// Clusters of 512 bytes, none behind the one before it.
    #[derive(Debug)]
    struct Scattered(u64);

    impl Layout for Scattered {
        fn length(&self) -> u64 {
            self.0
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            Ok(Run { length: 512 - at % 512, place: Place::At(0) })
        }
    }

    /// The bounds of each file system on a disk are reckoned from what is there, however many were before it.
    #[test]
    fn what_is_there_is_known_of_each_file_system_on_a_scattered_disk() {
        let length = 60 << 20;
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; length as usize], "image"));
        let view = View::new(SharedSource::clone(&image), Box::new(Scattered(length)), Decode::default());
        for _ in 0..3 {
            assert_eq!(data_of(&view), length);
        }
        // Tables may say any length.
        let view = View::new(image, Box::new(Scattered(1 << 60)), Decode::default());
        assert_eq!(data_of(&view), length);
    }

    /// A disk of holes, and how often it was looked at.
    #[derive(Debug)]
    struct Holes(Arc<AtomicU64>);

    impl Layout for Holes {
        fn length(&self) -> u64 {
            1 << 50
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Run { length: (1 << 27) - at % (1 << 27), place: Place::Hole })
        }
    }

    /// An archive may have any number of small images with long tables of holes.
    #[test]
    fn of_a_small_image_few_runs_are_looked_at() {
        let runs = |length: usize| {
            let image: SharedSource = Arc::new(MemorySource::new(vec![0; length], "image"));
            let looked_at = Arc::new(AtomicU64::new(0));
            let view = View::new(image, Box::new(Holes(Arc::clone(&looked_at))), Decode::default());
            // Each file system asks again.
            assert!((0..3).all(|_| data_of(&view) <= length as u64));
            (looked_at.load(Ordering::Relaxed), view)
        };
        assert_eq!([4 << 10, 786 << 10, 64 << 20].map(|length| runs(length).0), [1048, 5740, (1 << 18) + (1 << 17)]);
        let (_, view) = runs(64 << 20);
        let cancel = Cancel::default();
        let view = view.until(&cancel);
        view.runs.store(1 << 20, Ordering::Relaxed);
        cancel.cancel();
        let _ = data_of(&view);
        assert_eq!(view.runs.load(Ordering::Relaxed), 1 << 20);
    }

    /// Each cluster packed in bytes of its own.
    #[derive(Debug)]
    struct Apart;

    impl Layout for Apart {
        fn length(&self) -> u64 {
            1 << 40
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            let coder = super::super::layout::coder("none");
            let place = Place::Packed(Packed { at: (at >> 20) % 1000, stored: 1, coder, decoded: 1 << 20, skip: 0 });
            Ok(Run { length: (1 << 20) - at % (1 << 20), place })
        }
    }

    /// The same of what is decoded to list what is on the disk.
    #[test]
    fn of_a_small_image_little_is_decoded() {
        let decoded = |length: usize| {
            let count = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&count);
            let decode = Decode::default().with_blocks(move |_, _, block| {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(block.len())
            });
            let image: SharedSource = Arc::new(MemorySource::new(vec![0; length], "image"));
            let view = View::new(image, Box::new(Apart), decode);
            let ends = (0..200).any(|number| view.read_exact_at(&mut [0], number << 20).is_err());
            (count.load(Ordering::Relaxed), ends)
        };
        assert_eq!(decoded(1 << 10), (16, true));
        assert_eq!(decoded(128 << 10), (79, true));
        assert_eq!(decoded(4 << 20), (200, false));
    }

    /// Each cluster packed in the same bytes.
    #[derive(Debug)]
    struct Once;

    impl Layout for Once {
        fn length(&self) -> u64 {
            1 << 40
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            let (coder, skip) = (super::super::layout::coder("none"), 0);
            let place = Place::Packed(Packed { at: 0, stored: 100, coder, decoded: 1 << 16, skip });
            Ok(Run { length: (1 << 16) - at % (1 << 16), place })
        }
    }

    /// Two blocks of the disk, which are the same bytes packed in two ways.
    #[derive(Debug)]
    struct Twice;

    impl Layout for Twice {
        fn length(&self) -> u64 {
            1024
        }

        fn run(&self, _: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
            let coder = super::super::layout::coder(if at < 512 { "one" } else { "other" });
            let place = Place::Packed(Packed { at: 0, stored: 100, coder, decoded: 512, skip: at % 512 });
            Ok(Run { length: 512 - at % 512, place })
        }
    }

    #[test]
    fn one_place_may_be_packed_in_two_ways() {
        let decode = Decode::default().with_blocks(|coder, _, block| {
            block.fill(coder.steps[0].codec.as_bytes()[1]);
            Ok(block.len())
        });
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; 100], "image"));
        let view = View::new(image, Box::new(Twice), decode);
        let mut bytes = [0; 1024];
        view.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!([bytes[0], bytes[511], bytes[512], bytes[1023]], *b"nntt");
    }

    /// All clusters of the disk may be one of the image: no bound grows with what is not there.
    #[test]
    fn what_is_stored_once_counts_once() {
        let image: SharedSource = Arc::new(MemorySource::new(vec![0; 1 << 20], "image"));
        let length = 130_000 * 512;
        let view = View::new(SharedSource::clone(&image), Box::new(Scattered(length)), Decode::default());
        assert_eq!(data_of(&view), 1 << 20);
        let partition = tarnfs_source::Slice::new(Arc::new(view), 1 << 20, length / 2);
        assert_eq!(data_of(&partition), 1 << 20);
        let view = View::new(image, Box::new(Once), Decode::default());
        assert_eq!(data_of(&view), PACKED << 20);
    }
}
