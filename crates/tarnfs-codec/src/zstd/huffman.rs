//! Huffman codes of literals (RFC 8878 §4.2).

use super::bits::Reverse;
use super::block::Invalid;
use super::fse::{Counts, FseState, MOST_STATES, TOO_MANY_SYMBOLS};

/// Bits of the longest code (RFC 8878 §4.2.1).
const LONGEST: u8 = 11;
/// Symbols whose weights are given: that of the last one follows from the others.
pub(super) const MOST_WEIGHTS: usize = 255;
/// The accuracy of the table for weights at most (RFC 8878 §4.2.1.2).
const WEIGHTS_LOG: u8 = 6;
/// Symbols decoded from one word of each stream.
const ROUND: usize = 5;

/// A code, ready to decode.
#[derive(Clone)]
pub(super) struct Huffman {
    /// For what the next 11 bits may be: the symbol, and in the lowest byte the length of its code.
    entries: Box<[u16; 1 << LONGEST]>,
    weights: [u8; MOST_WEIGHTS],
    /// Weights that were given.
    given: usize,
}

impl Huffman {
    pub(super) fn new() -> Self {
        Self { entries: Box::new([0; 1 << LONGEST]), weights: [0; MOST_WEIGHTS], given: 0 }
    }

    /// The weights that it was made from.
    pub(super) fn weights(&self) -> &[u8] {
        &self.weights[..self.given]
    }

    /// Reads the description of a code, and returns how many bytes it takes.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<usize, Invalid> {
        const CUT: Invalid = "the description of a Huffman code is cut";
        let (&head, rest) = bytes.split_first().ok_or(CUT)?;
        let head = usize::from(head);
        let mut weights = [0; MOST_WEIGHTS];
        let (length, given) = if head < 128 {
            let described = rest.get(..head).ok_or(CUT)?;
            (head, read_compressed_weights(described, &mut weights)?)
        } else {
            let given = head - 127;
            let length = given.div_ceil(2);
            for (two, byte) in weights.chunks_mut(2).zip(rest.get(..length).ok_or(CUT)?) {
                two[0] = byte >> 4;
                if let Some(second) = two.get_mut(1) {
                    *second = byte & 15;
                }
            }
            (length, given)
        };
        self.make(&weights[..given])?;
        Ok(1 + length)
    }

    /// Becomes the code of these weights.
    pub(super) fn make(&mut self, given: &[u8]) -> Result<(), Invalid> {
        let mut ranks = [0_u32; LONGEST as usize + 2];
        let mut sum = 0_u32;
        for &weight in given {
            *ranks.get_mut(usize::from(weight)).ok_or("a Huffman code of too many bits")? += 1;
            sum += 1 << weight >> 1;
        }
        if sum == 0 || given.len() > MOST_WEIGHTS {
            return Err("a Huffman code without symbols");
        }
        let longest = sum.ilog2() as u8 + 1;
        let rest = (1 << longest) - sum;
        if longest > LONGEST || !rest.is_power_of_two() {
            return Err("a Huffman code that is not complete");
        }
        let last = rest.ilog2() as u8 + 1;
        ranks[usize::from(last)] += 1;
        if ranks[1] < 2 || !ranks[1].is_multiple_of(2) {
            return Err("a Huffman code without two longest codes");
        }
        // Longer codes come first, and those of one length in the order of their symbols.
        let spare = LONGEST - longest;
        let mut starts = [0_usize; LONGEST as usize + 2];
        let mut at = 0;
        for weight in 1..starts.len() {
            starts[weight] = at;
            at += (ranks[weight] as usize) << (weight - 1) << spare;
        }
        for (symbol, &weight) in given.iter().chain([&last]).enumerate() {
            if weight > 0 {
                let count = 1 << (weight - 1) << spare;
                let start = &mut starts[usize::from(weight)];
                let entry = (symbol as u16) << 8 | u16::from(longest + 1 - weight);
                self.entries[*start..*start + count].fill(entry);
                *start += count;
            }
        }
        self.weights = [0; MOST_WEIGHTS];
        self.weights[..given.len()].copy_from_slice(given);
        self.given = given.len();
        Ok(())
    }

    /// Decodes one stream; it has as many symbols as `output` takes.
    pub(super) fn decode(&self, bytes: &[u8], output: &mut [u8]) -> Result<(), Invalid> {
        self.decode_rest(start(bytes)?, output)
    }

    fn decode_rest(&self, mut reader: Reverse, output: &mut [u8]) -> Result<(), Invalid> {
        for output in output.chunks_mut(ROUND) {
            let mut word = reader.word();
            let mut used = 0;
            for byte in output {
                let entry = self.entry(word);
                *byte = (entry >> 8) as u8;
                word <<= entry & 63;
                used += usize::from(entry & 63);
            }
            if !reader.skip(used) {
                return Err("a stream of literals ends too early");
            }
        }
        if reader.left() > 0 {
            return Err("a stream of literals has bits left over");
        }
        Ok(())
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn entry(&self, word: u64) -> u16 {
        self.entries[(word >> (64 - LONGEST)) as usize]
    }

    /// Decodes four streams side by side: no step of one waits for one of another.
    pub(super) fn decode_four(&self, streams: [&[u8]; 4], output: [&mut [u8]; 4]) -> Result<(), Invalid> {
        let [a, b, c, d] = streams;
        let mut readers = [start(a)?, start(b)?, start(c)?, start(d)?];
        let rounds = output.iter().map(|output| output.len()).min().unwrap_or(0) / ROUND;
        let rest = self.rounds(&mut readers, output, rounds);
        for (reader, output) in readers.into_iter().zip(rest) {
            self.decode_rest(reader, output)?;
        }
        Ok(())
    }

    /// Goes `rounds` rounds at most, as long as no stream comes near its start, and returns what is left of the output.
    fn rounds<'a>(&self, readers: &mut [Reverse; 4], output: [&'a mut [u8]; 4], rounds: usize) -> [&'a mut [u8]; 4] {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.rounds_bmi2(readers, output, rounds) };
        }
        self.rounds_inline(readers, output, rounds)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi2")]
    fn rounds_bmi2<'a>(
        &self,
        readers: &mut [Reverse; 4],
        output: [&'a mut [u8]; 4],
        rounds: usize,
    ) -> [&'a mut [u8]; 4] {
        self.rounds_inline(readers, output, rounds)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn rounds_inline<'a>(
        &self,
        readers: &mut [Reverse; 4],
        output: [&'a mut [u8]; 4],
        rounds: usize,
    ) -> [&'a mut [u8]; 4] {
        let [out_a, out_b, out_c, out_d] = output;
        let mut done = 0;
        while let [Some(mut a), Some(mut b), Some(mut c), Some(mut d)] = readers.each_ref().map(Reverse::far) {
            let safe = a.rounds().min(b.rounds()).min(c.rounds()).min(d.rounds()).min(rounds - done / ROUND);
            if safe == 0 {
                break;
            }
            let behind = done + safe * ROUND;
            let four = (out_a[done..behind].as_chunks_mut::<ROUND>().0.iter_mut())
                .zip(out_b[done..behind].as_chunks_mut::<ROUND>().0)
                .zip(out_c[done..behind].as_chunks_mut::<ROUND>().0.iter_mut())
                .zip(out_d[done..behind].as_chunks_mut::<ROUND>().0);
            for (((to_a, to_b), to_c), to_d) in four {
                for step in 0..ROUND {
                    let (entry_a, entry_b) = (self.entry(a.word), self.entry(b.word));
                    let (entry_c, entry_d) = (self.entry(c.word), self.entry(d.word));
                    to_a[step] = (entry_a >> 8) as u8;
                    to_b[step] = (entry_b >> 8) as u8;
                    to_c[step] = (entry_c >> 8) as u8;
                    to_d[step] = (entry_d >> 8) as u8;
                    a.word <<= entry_a & 63;
                    b.word <<= entry_b & 63;
                    c.word <<= entry_c & 63;
                    d.word <<= entry_d & 63;
                }
                // SAFETY: no more rounds than `Far::rounds` said, each of at most 55 bits.
                unsafe {
                    a.refill();
                    b.refill();
                    c.refill();
                    d.refill();
                }
            }
            done = behind;
            for (reader, far) in readers.iter_mut().zip([a, b, c, d]) {
                reader.go_on(&far);
            }
        }
        [&mut out_a[done..], &mut out_b[done..], &mut out_c[done..], &mut out_d[done..]]
    }
}

/// A stream of literals.
fn start(bytes: &[u8]) -> Result<Reverse<'_>, Invalid> {
    Reverse::new(bytes).map_err(|_| "a stream of literals has no end mark")
}

/// Reads weights that two states of one table take turns to write, until the bits are used up; returns how many there
/// are.
fn read_compressed_weights(bytes: &[u8], weights: &mut [u8; MOST_WEIGHTS]) -> Result<usize, Invalid> {
    const WRONG: Invalid = "the weights of a Huffman code do not add up";
    let (counts, length) = Counts::read(bytes, usize::from(LONGEST) + 2, WEIGHTS_LOG).map_err(|what| match what {
        TOO_MANY_SYMBOLS => "the weights of a Huffman code have a table of more than there are",
        what => what,
    })?;
    let mut states = [FseState::default(); MOST_STATES];
    let states = counts.states(&mut states);
    let mut reader = Reverse::new(bytes.get(length..).unwrap_or_default())?;
    let mut start = || reader.take(counts.log).ok_or(WRONG);
    let mut turns = [start()? as usize, start()? as usize];
    for count in 1.. {
        let state = states.get(turns[0]).ok_or(WRONG)?;
        *weights.get_mut(count - 1).ok_or(WRONG)? = state.symbol;
        let Some(bits) = reader.take(state.bits) else {
            // The other state has a last one.
            *weights.get_mut(count).ok_or(WRONG)? = states.get(turns[1]).ok_or(WRONG)?.symbol;
            return Ok(count + 1);
        };
        turns = [turns[1], usize::from(state.next) + bits as usize];
    }
    Err(WRONG)
}
