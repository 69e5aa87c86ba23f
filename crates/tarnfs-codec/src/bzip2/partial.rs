//! One block of which only a part is wanted.
//!
//! The Huffman codes of a block have to be read from its start. But the walk that makes its text (see
//! [`inverse_bwt`](super::inverse_bwt)) can begin wherever the row is known, and a first pass keeps the rows of some
//! places with the seek point: [`Mark`]s. Between two marks no run of the first run-length coding goes on, so what
//! follows a mark needs nothing of what is before it. The CRC of the block is not compared.

use super::inverse_bwt::{LANES, ROWS, Rows, firsts, walk_back};
use super::run_length::Expander;

/// Bytes of text between two marks, at least.
pub(super) const SPACING: usize = 8 << 10;

/// Decoded bytes that a block can have.
const MOST_DECODED: u64 = 52 * ROWS as u64;

/// A place in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Bytes of text before it, and decoded bytes.
    pub(super) text: usize,
    pub(super) decoded: u64,
    /// The row from which the walk leads to the byte before it.
    pub(super) row: usize,
}

/// Appends marks, of which the last is at the end of the block, to a state.
pub(super) fn save(marks: &[Mark], state: &mut Vec<u8>) {
    let (mut text, mut decoded) = (0, 0);
    for mark in marks {
        put(state, (mark.text - text) as u64);
        put(state, mark.decoded - decoded);
        state.extend_from_slice(&(mark.row as u32).to_le_bytes()[..3]);
        (text, decoded) = (mark.text, mark.decoded);
    }
}

/// The marks in a state; `None` if there are none that can be.
pub(super) fn load(mut state: &[u8]) -> Option<Vec<Mark>> {
    let (mut marks, mut last) = (Vec::new(), Mark { text: 0, decoded: 0, row: 0 });
    while !state.is_empty() {
        let text = last.text.checked_add(usize::try_from(get(&mut state)?).ok()?)?;
        let decoded = last.decoded.checked_add(get(&mut state)?)?;
        let (row, rest) = state.split_first_chunk::<3>()?;
        state = rest;
        let row = u32::from_le_bytes([row[0], row[1], row[2], 0]) as usize;
        let mark = Mark { text, decoded, row };
        if mark.text <= last.text || mark.text >= ROWS || mark.row >= ROWS || mark.decoded > MOST_DECODED {
            return None;
        }
        marks.push(mark);
        last = mark;
    }
    (!marks.is_empty()).then_some(marks)
}

/// Writes a number: seven bits a byte, the lowest first.
fn put(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7F {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn get(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A block whose text is made as it is read.
#[derive(Debug)]
pub(super) struct Partial {
    marks: Vec<Mark>,
    /// Of each byte, the rows before those that begin with it.
    first: [u32; 256],
    /// The first mark up to which there is no text yet.
    next: usize,
    /// Between some marks.
    text: Vec<u8>,
    expander: Expander,
    /// Decoded bytes to leave out.
    skip: u64,
}

impl Partial {
    /// From the decoded byte `from` of the block on.
    pub(super) fn new(marks: Vec<Mark>, counts: &[u32; 256], from: u64) -> Self {
        let next = marks.partition_point(|mark| mark.decoded <= from);
        let before = next.checked_sub(1).map_or(0, |before| marks[before].decoded);
        Self {
            marks,
            first: firsts(counts),
            next,
            text: Vec::new(),
            expander: Expander::default(),
            skip: from - before,
        }
    }

    /// Moves decoded bytes into `buffer` and returns how many; 0 at the end of the block.
    pub(super) fn read(&mut self, rows: &Rows, buffer: &mut [u8]) -> usize {
        loop {
            if self.skip > 0 {
                let most = buffer.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                let skipped = self.expander.expand(&self.text, &mut buffer[..most]);
                self.skip -= skipped as u64;
                if skipped > 0 {
                    continue;
                }
            } else {
                let read = self.expander.expand(&self.text, buffer);
                if read > 0 {
                    return read;
                }
            }
            if !self.make_text(rows) {
                return 0;
            }
        }
    }

    /// Makes what comes next of the text; false at its end.
    fn make_text(&mut self, rows: &Rows) -> bool {
        let batch = &self.marks[self.next..self.marks.len().min(self.next + LANES)];
        let Some(last) = batch.last() else { return false };
        let start = self.next.checked_sub(1).map_or(0, |before| self.marks[before].text);
        self.text.clear();
        self.text.resize(last.text - start, 0);
        let (mut rest, mut at) = (&mut self.text[..], start);
        let mut lanes = Vec::with_capacity(LANES);
        for mark in batch {
            let (part, behind) = rest.split_at_mut(mark.text - at);
            lanes.push((mark.row, part));
            (rest, at) = (behind, mark.text);
        }
        walk_back(rows, &self.first, lanes);
        self.expander = Expander::default();
        self.next += batch.len();
        true
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.marks.capacity() * size_of::<Mark>()
    }
}
