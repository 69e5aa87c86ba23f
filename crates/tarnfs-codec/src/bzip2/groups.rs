//! The Huffman symbols of a block, and the rows that they stand for.

#![allow(clippy::inline_always, reason = "all of it must become one loop, compiled for the processor that it runs on")]

use std::io;

use super::bit_reader::BitReader;
use super::huffman::{Code, INVALID};
use super::inverse_bwt::ROWS;
#[cfg(target_arch = "x86_64")]
use super::move_to_front::Shuffled;
use super::move_to_front::{MoveToFront, Portable};

/// Huffman codes of one block.
pub(super) const CODES: usize = 6;

/// Symbols that are coded with the same Huffman code.
pub(super) const GROUP: usize = 50;

/// Entries written at once for a short run, so that its length need not be guessed.
pub(super) const SHORT_RUN: usize = 8;

/// What is needed to read the symbols of a block.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    pub(super) codes: &'a [Code],
    /// The code of each group.
    pub(super) selectors: &'a [u8],
    /// The bytes that occur, in ascending order.
    pub(super) used: &'a [u8],
    /// Rows that the block may have: at most [`ROWS`] - [`SHORT_RUN`].
    pub(super) most: usize,
}

impl Groups<'_> {
    /// Reads symbols up to the end of the block and writes its rows into `entries`: the last byte of each, and how
    /// many rows before it have the same (shifted by 8). Returns the number of rows and how often each byte occurs.
    pub(super) fn read(&self, reader: &mut BitReader, entries: &mut [u32; ROWS]) -> io::Result<(usize, [u32; 256])> {
        #[cfg(target_arch = "x86_64")]
        if Shuffled::is_available() && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has just been asked for these instructions.
            return unsafe { self.read_with_avx2(reader, entries) };
        }
        self.read_by::<Portable>(reader, entries)
    }

    /// [`read`](Self::read), compiled for processors since 2013: the whole decoder is a third faster for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi2")]
    fn read_with_avx2(&self, reader: &mut BitReader, entries: &mut [u32; ROWS]) -> io::Result<(usize, [u32; 256])> {
        self.read_by::<Shuffled>(reader, entries)
    }

    #[inline(always)]
    fn read_by<L: MoveToFront>(
        &self,
        reader: &mut BitReader,
        entries: &mut [u32; ROWS],
    ) -> io::Result<(usize, [u32; 256])> {
        // Two symbols stand for runs, each position of the list but the first for itself, then comes the end.
        let end = self.used.len() as u16 + 1;
        let mut rows = RowWriter {
            entries,
            length: 0,
            most: self.most,
            counts: [0; 256],
            recent: L::new(self.used),
            run: 0,
            weight: 1,
        };
        let mut group = [0; GROUP];
        for &selector in self.selectors {
            reader.ensure()?;
            let (bytes, start) = reader.window();
            let code = &self.codes[usize::from(selector) % CODES];
            let behind = read_group(bytes, start, code, &mut group);
            let within = if group.iter().fold(0, |most, &symbol| most.max(symbol)) < end {
                None
            } else {
                group.iter().position(|&symbol| symbol >= end)
            };
            reader.move_to(match within {
                None => behind,
                Some(last) => behind_symbol(bytes, start, code, last),
            });
            if reader.is_past_end() {
                return Err(reader.cut());
            }
            let symbols = &group[..within.unwrap_or(GROUP)];
            rows.add(symbols).map_err(|what| reader.damaged(what))?;
            match within {
                None => {}
                Some(last) if group[last] == INVALID => {
                    return Err(reader.damaged("bits that are no Huffman code of the block"));
                }
                Some(_) => {
                    rows.add_run().map_err(|what| reader.damaged(what))?;
                    return Ok((rows.length, rows.counts));
                }
            }
        }
        Err(reader.damaged("a block goes on behind its last selector"))
    }
}

/// Decodes one group of symbols from bit `start` of `bytes` on, beyond the end of the block if that is in it. Returns
/// the bit behind.
#[inline(always)]
fn read_group(bytes: &[u8], start: usize, code: &Code, group: &mut [u16; GROUP]) -> usize {
    // Of `bits`, the highest `valid` have been read as far as the byte `next`; those below are right, too, and read
    // again.
    let mut next = start / 8 + 7;
    let mut bits = word_at(bytes, start / 8) << (start % 8);
    let mut valid = 56 - start % 8;
    for pair in group.as_chunks_mut::<2>().0 {
        // Two codes take at most 40 of the 56 to 63 bits that are there then.
        bits |= word_at(bytes, next) >> (valid % 64);
        next = next.wrapping_add(63_usize.wrapping_sub(valid) / 8);
        valid |= 0x38;
        for symbol in pair {
            let (decoded, length) = code.decode(bits);
            *symbol = decoded;
            bits <<= length;
            valid = valid.wrapping_sub(length as usize);
        }
    }
    next * 8 - valid
}

/// The bit behind the symbol number `last` of the group that begins at bit `start`.
fn behind_symbol(bytes: &[u8], start: usize, code: &Code, last: usize) -> usize {
    (0..=last).fold(start, |bit, _| bit + code.decode(word_at(bytes, bit / 8) << (bit % 8)).1 as usize)
}

/// Eight bytes from `position` on as a number; zero behind the end.
#[inline(always)]
fn word_at(bytes: &[u8], position: usize) -> u64 {
    bytes.get(position..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_be_bytes(*word))
}

/// Turns symbols into rows: undoes the second run-length coding and the move to front, and counts the bytes.
struct RowWriter<'a, L> {
    entries: &'a mut [u32; ROWS],
    length: usize,
    most: usize,
    /// How often each byte has occurred.
    counts: [u32; 256],
    recent: L,
    /// The run being read (of the most recent byte), and the weight of its next digit: its length is written in digits
    /// 1 and 2 with weights 1, 2, 4, ...
    run: u32,
    weight: u32,
}

impl<L: MoveToFront> RowWriter<'_, L> {
    /// Adds symbols, none of them the end.
    #[inline(always)]
    fn add(&mut self, symbols: &[u16]) -> Result<(), &'static str> {
        for &symbol in symbols {
            if symbol < 2 {
                if self.weight as usize > ROWS {
                    return Err("a run is longer than a block may be");
                }
                self.run = self.run.wrapping_add(self.weight << symbol);
                self.weight <<= 1;
                continue;
            }
            if self.run > 0 {
                self.add_run()?;
            }
            if self.length >= self.most {
                return Err("a block is longer than its level allows");
            }
            let byte = self.recent.take(usize::from(symbol - 1) & 0xff);
            let count = &mut self.counts[usize::from(byte)];
            self.entries[self.length % ROWS] = *count << 8 | u32::from(byte);
            *count = count.wrapping_add(1);
            self.length = self.length.wrapping_add(1);
        }
        Ok(())
    }

    /// Writes the run that has been read.
    #[inline(always)]
    fn add_run(&mut self) -> Result<(), &'static str> {
        let run = std::mem::take(&mut self.run) as usize;
        self.weight = 1;
        if run > self.most - self.length {
            return Err("a run goes on behind the end that the level sets to a block");
        }
        let byte = self.recent.front();
        let count = &mut self.counts[usize::from(byte)];
        let mut entry = *count << 8 | u32::from(byte);
        *count += run as u32;
        // The rows behind the run are written again later, or not used.
        for chunk in self.entries[self.length..].as_chunks_mut::<SHORT_RUN>().0.iter_mut().take(run.div_ceil(SHORT_RUN))
        {
            for (row, place) in (0..).zip(chunk) {
                *place = entry.wrapping_add(row << 8);
            }
            entry = entry.wrapping_add((SHORT_RUN as u32) << 8);
        }
        self.length += run;
        Ok(())
    }
}
