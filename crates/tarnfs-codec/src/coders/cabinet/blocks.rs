//! The blocks of a folder, one after the other, in all cabinets that it lies in.

use std::io;

use tarnfs_source::SharedSource;

use super::{BLOCK, RUN};
use crate::faults;

/// Bytes of a header (CFDATA): a checksum, the length of the data, and of what comes of them.
const HEADER: usize = 8;

/// What a checksum says that differs.
pub(super) const WRONG: &str = "the checksum of a block does not match its data";

/// Bytes of data of one block, at most: what cannot be compressed takes some more.
const MOST: usize = BLOCK + 6144;

/// What the checksum of a block says of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Right,
    /// There is none.
    None,
    Wrong,
}

pub(super) struct Blocks {
    source: SharedSource,
    /// Where the blocks of each cabinet begin, how many there are, and what each has reserved; the next one first.
    runs: std::vec::IntoIter<(u64, u32, u8)>,
    at: u64,
    left: u32,
    /// Bytes between a header and its data.
    reserve: u8,
    /// Where the last block began.
    last: u64,
}

impl Blocks {
    pub(super) fn new(source: SharedSource, runs: &[[u8; RUN]]) -> Self {
        let run = |&[a, b, c, d, e, f, g, h, i, j, k, l, reserve]: &[u8; RUN]| {
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l]), reserve)
        };
        let runs = runs.iter().map(run).collect::<Vec<_>>().into_iter();
        Self { source, runs, at: 0, left: 0, reserve: 0, last: 0 }
    }

    /// The data of the next block, how many bytes come of them, and whether they are right; `None` behind the last one.
    pub(super) fn next(&mut self, data: &mut Vec<u8>) -> io::Result<Option<(usize, Check)>> {
        data.clear();
        let (mut is_begun, mut check) = (false, Check::Right);
        loop {
            while self.left == 0 {
                match self.runs.next() {
                    Some(run) => (self.at, self.left, self.reserve) = run,
                    None if is_begun => return Err(self.invalid("a block that goes on in a cabinet that is not there")),
                    None => return Ok(None),
                }
            }
            self.last = self.at;
            let mut header = vec![0; HEADER + usize::from(self.reserve)];
            if self.source.read_at(&mut header, self.at)? < header.len() {
                return Err(faults::cut(self.source.len(), "the header of a block"));
            }
            let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
            let (stored, length) = (half(4), half(6));
            if length > BLOCK || data.len() + stored > MOST {
                return Err(self.invalid("a block that is longer than any can be"));
            }
            let (from, start) = (data.len(), self.at + header.len() as u64);
            data.resize(from + stored, 0);
            if self.source.read_at(&mut data[from..], start)? < stored {
                return Err(faults::cut(self.source.len(), "a block"));
            }
            let expected = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let sum = checksum(&data[from..], 0);
            // Some programs take what is reserved for a part of the header.
            let is_right = |end: usize| checksum(&header[4..end], sum) == expected;
            if expected == 0 {
                check = if check == Check::Wrong { check } else { Check::None };
            } else if !is_right(HEADER) && !is_right(header.len()) {
                check = Check::Wrong;
            }
            self.at = start + stored as u64;
            self.left -= 1;
            // Of one that goes on in the next cabinet.
            if length > 0 || self.left > 0 || self.runs.len() == 0 {
                // All but the last one are so long. Where this is wrong, what is behind it would be out of place.
                let is_last = self.left == 0 && self.runs.len() == 0;
                if check == Check::Wrong && length != BLOCK && !is_last {
                    return Err(self.invalid(WRONG));
                }
                return Ok(Some((length, check)));
            }
            is_begun = true;
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.at
    }

    pub(super) fn invalid(&self, what: &str) -> io::Error {
        faults::invalid(self.last, what)
    }

    pub(super) fn memory(&self) -> usize {
        self.runs.len() * size_of::<(u64, u32, u8)>()
    }
}

/// All words of four bytes by XOR, with `seed`; bytes that are left over the other way round.
fn checksum(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(seed, |sum, word| sum ^ u32::from_le_bytes(*word));
    sum ^ rest.iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
}
