//! The values of extended attributes, each decoded once. Making a decoder takes far longer than what comes of most of
//! them, and a table that is packed has room for some hundred thousand that lead to the same bytes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use tarnfs_source::{MemorySource, SharedSource, Slice};

use super::toc::Data;
use crate::image::BYTES;
use crate::{Coder, Decode};

/// What reading one costs, beside the bytes that are stored of it.
const OF_READING: u64 = 128;

/// What decoding one costs more: a decoder is made for it, however few bytes come of it.
const OF_DECODER: u64 = 512;

/// The same of bytes of which others were decoded before: no program writes such archives, and there is no end of the
/// ways to cut the same bytes.
const OF_OVERLAP: u64 = 32 << 10;

/// What one costs that cannot be decoded to as many bytes as it says: more may come of it, of bzip2 a whole block.
const OF_WRONG: u64 = 128 << 10;
const OF_WRONG_BLOCK: u64 = 900_000;
pub(super) const BLOCKS: &str = "bzip2";

/// What may be spent for each byte of the archive, beside what the smallest one may spend.
const FOR_EACH_BYTE: u64 = 4;

/// Bytes of one that is compared with others by what is stored of it: files of one origin have the same.
const LONGEST_COMPARED: u64 = 4 << 10;

/// Bytes of memory that all take that are kept, and one of them beside its bytes.
const MOST_KEPT: usize = 16 << 20;
const OF_KEPT: usize = 256;

/// A value, or what is wrong with it.
type Value = Arc<Result<Vec<u8>, String>>;

/// What is stored of one, how many bytes should come of it, and how it is encoded.
type Stored = (Vec<u8>, u64, Vec<u8>);

#[derive(Debug)]
pub(super) struct Values {
    by_place: HashMap<Data, Value>,
    by_bytes: HashMap<Stored, Value>,
    /// Bytes of memory that these take.
    kept: usize,
    /// Where bytes begin that were decoded, and where they end.
    decoded: BTreeMap<u64, u64>,
    /// What may still be spent.
    left: u64,
}

impl Values {
    /// Of an archive with `data` bytes that are no holes, which is one of `shares`.
    pub(super) fn new(data: u64, shares: u64) -> Self {
        Self {
            by_place: HashMap::new(),
            by_bytes: HashMap::new(),
            kept: 0,
            decoded: BTreeMap::new(),
            left: BYTES.of(data, shares).saturating_add(data.saturating_mul(FOR_EACH_BYTE)),
        }
    }

    /// The value that `data` tells of, whose bytes begin at byte `offset` of `source`, where `coder` has packed it.
    pub(super) fn get(
        &mut self,
        data: &Data,
        (source, offset): (&SharedSource, u64),
        coder: &Coder,
        decode: &Decode,
    ) -> Result<Vec<u8>, String> {
        if let Some(known) = self.by_place.get(data) {
            return known.as_ref().clone();
        }
        self.spend(OF_READING.saturating_add(data.stored))?;
        let mut slice: SharedSource = Arc::new(Slice::new(Arc::clone(source), offset, data.stored));
        let mut stored = None;
        if data.stored <= LONGEST_COMPARED {
            let mut bytes = vec![0; data.stored as usize];
            slice.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
            let same: Stored = (bytes, data.size, data.encoding.clone());
            if let Some(known) = self.by_bytes.get(&same).map(Arc::clone) {
                self.keep(data, None, &known);
                return known.as_ref().clone();
            }
            slice = Arc::new(MemorySource::new(same.0.as_slice(), "an extended attribute"));
            stored = Some(same);
        }
        let is_new = self.is_new(data.offset, data.stored);
        self.spend(if is_new { OF_DECODER } else { OF_OVERLAP })?;
        let value = decode.decode(coder, slice, data.size, &|_| true);
        if value.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Unsupported) {
            let is_block = coder.steps.first().is_some_and(|step| step.codec == BLOCKS);
            self.left = self.left.saturating_sub(if is_block { OF_WRONG_BLOCK } else { OF_WRONG });
        }
        let value = Arc::new(value.map_err(|error| error.to_string()));
        self.keep(data, stored, &value);
        value.as_ref().clone()
    }

    fn spend(&mut self, cost: u64) -> Result<(), String> {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| "it is left out: the archive asks for too much work".to_owned())
    }

    /// True if none of these bytes of the heap was decoded before; now they are.
    fn is_new(&mut self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let before = self.decoded.range(..end).next_back();
        let is_new = length > 0 && before.is_none_or(|(_, end_of_other)| *end_of_other <= start);
        if is_new {
            self.decoded.insert(start, end);
        }
        is_new
    }

    fn keep(&mut self, data: &Data, stored: Option<Stored>, value: &Value) {
        let of_stored = stored.as_ref().map_or(0, |(bytes, _, encoding)| bytes.len().saturating_add(encoding.len()));
        let of_value = match value.as_ref() {
            Ok(value) => value.len(),
            Err(what) => what.len(),
        };
        let weight = OF_KEPT.saturating_add(data.encoding.len()).saturating_add(of_stored).saturating_add(of_value);
        self.kept = self.kept.saturating_add(weight);
        if self.kept > MOST_KEPT {
            self.by_place.clear();
            self.by_bytes.clear();
            self.kept = weight;
        }
        self.by_place.insert(data.clone(), Arc::clone(value));
        if let Some(stored) = stored {
            self.by_bytes.insert(stored, Arc::clone(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Step;

    /// How many of `all` are decoded, and how many have a value, where `heap` is all that an archive has.
    fn decoded(heap: &[u8], all: impl Iterator<Item = (u64, u64)>) -> (usize, usize) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let decode = Decode::new(move |_, stored, length, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut bytes = vec![0; length as usize];
            stored.read_exact_at(&mut bytes, 0).map(|()| bytes)
        });
        let source: SharedSource = Arc::new(MemorySource::new(heap, "an archive"));
        let step = Step { codec: "xz".to_owned(), ..Step::default() };
        let coder = Coder { steps: vec![step], is_behind_header: None };
        let mut values = Values::new(heap.len() as u64, 1);
        let right = all.filter(|&(offset, stored)| {
            let data = Data { offset, stored, size: 1, encoding: b"application/x-xz".to_vec() };
            let value = values.get(&data, (&source, offset), &coder, &decode);
            value.is_ok_and(|value| value == heap[offset as usize..][..1])
        });
        let right = right.count();
        (count.load(Ordering::Relaxed), right)
    }

    /// Each in bytes of its own, with no more than these in the archive.
    #[test]
    fn attributes_in_bytes_of_their_own_are_all_read() {
        let heap: Vec<u8> =
            (0..5000_u32).flat_map(|number| [[number as u8; 20], [(number >> 8) as u8; 20]].concat()).collect();
        let all = || (0..5000).map(|number| (number * 40, 40));
        assert_eq!(decoded(&heap, all()), (5000, 5000));
        // In any order, and again.
        assert_eq!(decoded(&heap, all().rev().chain(all())), (5000, 10_000));
    }

    #[test]
    fn attributes_that_are_the_same_are_decoded_once() {
        let heap = [&[7_u8; 20][..], &[8; 20]].concat().repeat(500);
        let all = (0..1000).map(|number| (number * 20, 20));
        assert_eq!(decoded(&heap, all), (2, 1000));
        // Two in turn, where the archive has nothing else.
        let all = (0..20_000).map(|number| (number % 2 * 20, 20));
        assert_eq!(decoded(&heap[..40], all), (2, 20_000));
    }

    /// The same bytes may be cut in any number of ways.
    #[test]
    fn few_attributes_are_decoded_that_share_bytes() {
        let heap: Vec<u8> = (0..4000_u32).flat_map(u32::to_le_bytes).collect();
        let all = (0..1000).flat_map(|offset| (100..120).map(move |stored| (offset, stored)));
        let (count, right) = decoded(&heap, all);
        assert!((10..150).contains(&count) && right == count, "{count} {right}");
    }
}
