//! Inodes, listings and tables: packed in blocks that each hold up to 8 KiB, one behind the other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource};

use super::numbers::Fields;
use crate::image::{Quota, damaged};
use crate::{Coder, Decode};

/// Bytes that a block holds. Only the last one of a table may hold fewer.
pub(super) const BLOCK: usize = 8192;
const LENGTH: u64 = BLOCK as u64;
/// Bit of a block's header: it is stored as it is.
const IS_STORED: u16 = 1 << 15;
/// Bytes before it.
const HEADER: usize = 2;

/// Times that a block of LZMA takes as long to decode as one of the others.
const SLOW: u64 = 8;

/// Decoded blocks that are kept: 32 MiB, which is all of an image with half a million files.
const KEPT: usize = 4096;

/// What may be decoded again, and of blocks that overlap others, in bytes, each block as a whole one: any number of
/// names may lead to inodes in ever other blocks, and blocks may begin in the middle of others. Those of which an image
/// consists are not counted, so it may have any number of them.
const AGAIN: Quota = Quota { most: 128 << 20, least: 1 << 20, of_small: 1024 };
/// So much more for each byte of the image; few bytes may be packed in many, so what is longer counts as `LARGE`.
const FOR_EACH_BYTE: u64 = 32;
const LARGE: u64 = 256 << 20;

/// Blocks of which it is remembered that they were decoded: 2 GiB of inodes and listings. More of them count.
const MOST_RANGES: usize = 1 << 18;

/// A place among what is packed: where its block begins, and a byte in there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// Byte of the image.
    pub(super) block: u64,
    pub(super) byte: u16,
}

impl Place {
    /// Of a reference, as the image has them, into the table that begins at byte `table`.
    pub(super) fn new(table: u64, reference: u64) -> io::Result<Self> {
        let block = table.checked_add(reference >> 16).ok_or_else(|| damaged("it would lie behind the image"))?;
        let byte = reference as u16;
        if usize::from(byte) >= BLOCK {
            return Err(damaged(format!("it would begin at byte {byte} of a block of {BLOCK} bytes")));
        }
        Ok(Self { block, byte })
    }
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Where the next one begins.
    next: u64,
}

/// Reads what is packed, and keeps what it decoded.
#[derive(Debug)]
pub(super) struct Metadata<'s> {
    source: &'s SharedSource,
    /// Where in the source the image begins, and its length.
    base: u64,
    length: u64,
    coder: Arc<Coder>,
    decode: &'s Decode,
    cancel: &'s Cancel,
    /// By where they begin; those that cannot be read with what is wrong.
    blocks: HashMap<u64, Result<Arc<Block>, (io::ErrorKind, String)>>,
    last: Option<(u64, Arc<Block>)>,
    /// Those in `blocks`, the oldest first.
    order: VecDeque<u64>,
    /// Where blocks begin and end that were decoded, and do not overlap.
    ranges: BTreeMap<u64, u64>,
    /// What may still be decoded beside these, unless somebody else counts that.
    again: u64,
    is_counted_elsewhere: bool,
    decoded: u64,
    /// What a block counts.
    cost: u64,
}

impl<'s> Metadata<'s> {
    /// Of an image with `data` bytes that are no holes, one of so many `shares`.
    pub(super) fn new(
        source: &'s SharedSource,
        (base, length): (u64, u64),
        coder: Arc<Coder>,
        (data, shares): (u64, u64),
        (decode, cancel): (&'s Decode, &'s Cancel),
    ) -> Self {
        let is_slow = coder.steps.iter().any(|step| matches!(step.codec.as_str(), "xz-block" | "lzma-block"));
        let cost = if is_slow { LENGTH.saturating_mul(SLOW) } else { LENGTH };
        let again = AGAIN.of(data, shares).saturating_add(data.min(LARGE).saturating_mul(FOR_EACH_BYTE));
        let (blocks, order, ranges, last, is_counted_elsewhere, decoded) = Default::default();
        Self {
            source,
            base,
            length,
            coder,
            decode,
            cancel,
            blocks,
            last,
            order,
            ranges,
            again,
            is_counted_elsewhere,
            decoded,
            cost,
        }
    }

    /// Whether what is decoded from now on is counted by who asks for it ([`decoded`](Self::decoded)).
    pub(super) fn count_elsewhere(&mut self, is_counted_elsewhere: bool) {
        self.is_counted_elsewhere = is_counted_elsewhere;
    }

    /// What was decoded so far, in bytes: each block counts as a whole one, and once more when it is decoded again, and
    /// so many times as much where that is slow.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Fills `bytes` from `place` on, which is moved behind them.
    pub(super) fn read(&mut self, place: &mut Place, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let block = self.block(place.block)?;
            let there = block.bytes.get(usize::from(place.byte)..).unwrap_or_default();
            let count = there.len().min(rest.len());
            for (to, from) in rest.iter_mut().zip(there) {
                *to = *from;
            }
            filled = filled.saturating_add(count);
            let behind = usize::from(place.byte).saturating_add(count);
            if behind < block.bytes.len() {
                place.byte = behind as u16;
            } else if block.bytes.len() == BLOCK || filled == bytes.len() && count > 0 {
                *place = Place { block: block.next, byte: 0 };
            } else {
                return Err(damaged(format!("it goes on behind the end of the block at byte {}", place.block)));
            }
        }
        Ok(())
    }

    /// The next `N` bytes at `place`, which is moved behind them.
    pub(super) fn array<const N: usize>(&mut self, place: &mut Place) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(place, &mut bytes)?;
        Ok(bytes)
    }

    /// Entry `number` of a table of entries of `N` bytes whose list of blocks begins at byte `table` of the image.
    pub(super) fn entry<const N: usize>(&mut self, table: u64, number: u64) -> io::Result<[u8; N]> {
        let byte = number.checked_mul(N as u64).ok_or_else(|| damaged("its number is too large"))?;
        let at = (byte / LENGTH).checked_mul(8).and_then(|at| table.checked_add(at));
        let at = at.filter(|at| at.checked_add(8).is_some_and(|end| end <= self.length));
        let at = at.ok_or_else(|| damaged("it would lie behind the image"))?;
        let mut list = [0; 8];
        self.source.read_exact_at(&mut list, self.base.saturating_add(at))?;
        let mut place = Place { block: u64::from_le_bytes(list), byte: (byte % LENGTH) as u16 };
        self.array(&mut place)
    }

    fn block(&mut self, at: u64) -> io::Result<Arc<Block>> {
        if let Some((_, block)) = self.last.as_ref().filter(|(last, _)| *last == at) {
            return Ok(Arc::clone(block));
        }
        self.cancel.check()?;
        let known = match self.blocks.get(&at) {
            Some(Ok(block)) => Ok(Arc::clone(block)),
            Some(Err((kind, what))) => Err(io::Error::new(*kind, what.clone())),
            None => {
                let before = self.ranges.range(..=at).next_back();
                if before.is_some_and(|(_, end)| at < *end) {
                    self.count()?;
                }
                self.decoded = self.decoded.saturating_add(self.cost);
                let decoded = self.decode(at).map(Arc::new);
                let kept = match &decoded {
                    Ok(block) => {
                        self.decoded_once(at, block.next)?;
                        Ok(Arc::clone(block))
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        self.count()?;
                        Err((error.kind(), error.to_string()))
                    }
                    Err(_) => return decoded,
                };
                if self.blocks.len() >= KEPT {
                    // Whoever goes on needs few of them; who does not has them decoded again.
                    for old in self.order.drain(..KEPT / 2) {
                        self.blocks.remove(&old);
                    }
                }
                self.blocks.insert(at, kept);
                self.order.push_back(at);
                decoded
            }
        }?;
        self.last = Some((at, Arc::clone(&known)));
        Ok(known)
    }

    /// An entry was told. A block of inodes has some hundred: honest images in which many names lead to the same inodes
    /// have room for them again.
    pub(super) fn told_one(&mut self) {
        self.again = self.again.saturating_add(self.cost / 32);
    }

    /// Counts a block that was decoded before, or overlaps one that was.
    fn count(&mut self) -> io::Result<()> {
        if !self.is_counted_elsewhere {
            let left = self.again.checked_sub(self.cost);
            self.again = left.ok_or_else(|| damaged("blocks of inodes and names are decoded too often"))?;
        }
        Ok(())
    }

    /// Takes note of the block that lies from `at` to `end`, if it is one of its own.
    fn decoded_once(&mut self, at: u64, end: u64) -> io::Result<()> {
        let before = self.ranges.range(..end).next_back().map(|(start, end)| (*start, *end));
        match before {
            // It was counted before it was decoded.
            Some((start, last)) if start <= at && at < last => Ok(()),
            Some((start, _)) if start > at => self.count(),
            _ if self.ranges.len() >= MOST_RANGES => self.count(),
            _ => {
                self.ranges.insert(at, end);
                Ok(())
            }
        }
    }

    fn decode(&self, at: u64) -> io::Result<Block> {
        let wrong = |what: &str| damaged(format!("the metadata block at byte {at} of the image {what}"));
        let there = self.length.saturating_sub(at).min((HEADER + BLOCK) as u64) as usize;
        let mut bytes = vec![0; there];
        let start = self.base.checked_add(at).ok_or_else(|| wrong("lies behind its end"))?;
        self.source.read_exact_at(&mut bytes, start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("is missing: the file was cut"),
            _ => error,
        })?;
        let header = Fields(&bytes).u16().map_err(|_| wrong("lies behind its end"))?;
        let length = usize::from(header & !IS_STORED);
        let stored = bytes.get(HEADER..HEADER.saturating_add(length));
        let stored =
            stored.filter(|stored| !stored.is_empty()).ok_or_else(|| wrong("has a length that it cannot have"))?;
        let next = at.saturating_add((HEADER as u64).saturating_add(length as u64));
        let bytes = if header & IS_STORED != 0 {
            stored.to_vec()
        } else {
            let mut decoded = vec![0; BLOCK];
            let found = self.decode.block(&self.coder, stored, &mut decoded);
            let length = found.map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => wrong(&format!("is damaged: {error}")),
                _ => error,
            })?;
            decoded.truncate(length);
            decoded
        };
        if bytes.is_empty() { Err(wrong("is empty")) } else { Ok(Block { bytes, next }) }
    }
}
