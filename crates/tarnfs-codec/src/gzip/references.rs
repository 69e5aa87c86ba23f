//! Which bytes of the history deflate data refers to: its symbols are followed, and nothing is written.
//!
//! What a match copies that was itself decoded behind the start needs no look: what that came from is marked already.

use super::bits::BitReader;
use super::codes::{self, Codes, DISTANCE_BITS, END, LITERAL_BITS, SPECIAL, SUBTABLE};
use super::inflate::{BlockKind, WINDOW, block_header};

/// Follows deflate data. Kept for a whole pass, because the tables of codes are large.
pub(super) struct References {
    codes: Codes,
    /// Of each byte before the start, the last one last: it is referred to.
    used: Vec<bool>,
    /// Bytes decoded from the start on.
    at: usize,
}

/// Why there is no more to follow.
enum Ended {
    /// The data ends, or is not valid: nothing behind it is ever decoded.
    Data,
    /// What was read of it ends.
    Input,
    /// Nothing behind it reaches the history.
    Reach,
}

impl References {
    /// Bytes of memory of one.
    pub(super) const MEMORY: usize = size_of::<Codes>() + (32 << 10) + WINDOW;

    pub(super) fn new() -> Self {
        Self { codes: Codes::of_single_symbols(), used: Vec::with_capacity(WINDOW), at: 0 }
    }

    /// Of each of the `length` bytes before bit `skipped` of `input`: whether the data from there on refers to it. What
    /// `input` ends before may refer to anything that it can reach.
    pub(super) fn before(&mut self, input: &[u8], skipped: u8, length: usize) -> &[bool] {
        self.used.clear();
        self.used.resize(length, false);
        self.at = 0;
        let mut reader = BitReader::new(0, 0, input);
        let mut block = || -> Result<(), Ended> {
            reader.bits(u32::from(skipped)).ok_or(Ended::Input)?;
            while !self.block(&mut reader)? {}
            Err(Ended::Data)
        };
        if matches!(block(), Err(Ended::Input)) {
            let reached = length.saturating_sub(WINDOW.saturating_sub(self.at));
            self.used[reached..].fill(true);
        }
        &self.used
    }

    /// Follows a block; true if it is the final one.
    fn block(&mut self, reader: &mut BitReader) -> Result<bool, Ended> {
        let (is_final, kind) = block_header(reader, &mut self.codes).map_err(|error| match error {
            codes::HeaderError::Short => Ended::Input,
            codes::HeaderError::Invalid(_) => Ended::Data,
        })?;
        match kind {
            BlockKind::Stored(length) => {
                self.at += length;
                reader.next += length;
                if self.at >= WINDOW {
                    return Err(Ended::Reach);
                }
                if reader.next > reader.input.len() {
                    return Err(Ended::Input);
                }
            }
            BlockKind::Compressed => self.symbols(reader)?,
        }
        Ok(is_final)
    }

    /// Follows symbols up to the block's end.
    fn symbols(&mut self, reader: &mut BitReader) -> Result<(), Ended> {
        let Self { codes, used, at } = self;
        let (literals, distances) = codes.tables().ok_or(Ended::Data)?;
        while *at < WINDOW {
            reader.refill();
            // Where 56 bits are ready, two literals (15 bits each) and a length (20) are among them.
            let mut left = if reader.count >= 56 { 2 } else { 0 };
            let (mut entry, mut bits);
            loop {
                entry = literals.entry(reader.buffer);
                bits = 0;
                if entry & SUBTABLE != 0 {
                    entry = literals.in_subtable(entry, reader.buffer);
                    bits = LITERAL_BITS;
                }
                if entry & codes::LITERALS == 0 || left == 0 {
                    break;
                }
                reader.consume(bits + codes::takes(entry));
                *at += 1;
                left -= 1;
            }
            let length = codes::length(entry, reader.buffer >> bits);
            bits += codes::takes(entry);
            if bits > reader.count {
                return Err(Ended::Input);
            }
            reader.consume(bits);
            if entry & codes::LITERALS != 0 {
                *at += 1;
                continue;
            }
            if entry & SPECIAL != 0 {
                return if entry & END == 0 { Err(Ended::Data) } else { Ok(()) };
            }
            reader.refill();
            let mut entry = distances.entry(reader.buffer);
            bits = 0;
            if entry & SUBTABLE != 0 {
                entry = distances.in_subtable(entry, reader.buffer);
                bits = DISTANCE_BITS;
            }
            let distance = codes::distance(entry, reader.buffer >> bits);
            bits += codes::takes(entry);
            if bits > reader.count {
                return Err(Ended::Input);
            }
            if entry & SPECIAL != 0 {
                return Err(Ended::Data);
            }
            reader.consume(bits);
            if distance > *at {
                let back = distance - *at;
                let Some(start) = used.len().checked_sub(back) else { return Err(Ended::Data) };
                used[start..start + length.min(back)].fill(true);
            }
            *at += length;
        }
        Err(Ended::Reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::inflate::{Inflate, InflateState, Stop};
    use crate::gzip::tests::{filter, mixture};
    use crate::gzip::unknown;

    /// By decoding over two made-up histories: what differs came from them.
    fn decoded(input: &[u8], skipped: u8) -> Vec<bool> {
        let mut inflate = Inflate::<2>::new();
        inflate.set_windows(unknown::histories(WINDOW).each_ref().map(|history| &history[..]));
        let mut input = input;
        if skipped > 0 {
            inflate.prime(8 - skipped, input[0] >> skipped);
            input = &input[1..];
        }
        let mut outputs = [vec![0; WINDOW], vec![0; WINDOW]];
        let step = inflate.step(input, outputs.each_mut().map(|output| &mut output[..]), 0, Stop::Never);
        let mut used = vec![false; WINDOW];
        for (&first, &second) in outputs[0][..step.written].iter().zip(&outputs[1]) {
            if let Some(origin) = unknown::origin(first, second) {
                used[origin] = true;
            }
        }
        used
    }

    #[test]
    fn what_is_referred_to_is_what_decoding_copies() {
        let data = mixture(2 << 20);
        for level in ["-1", "-6", "-9"] {
            let compressed = filter("gzip", &["-nc", level], &data).unwrap();
            let mut references = References::new();
            let mut inflate = Inflate::<1>::new();
            let (mut read, mut written, mut output) = (10, 0, vec![0; data.len()]);
            let mut looked_at = 0;
            // From each block on.
            loop {
                let step = inflate.step(&compressed[read..], [&mut output[..]], written, Stop::AtBlock);
                (read, written) = (read + step.read, written + step.written);
                let InflateState::Boundary { spare_bits } = step.place else { break };
                let (start, skipped) = if spare_bits == 0 { (read, 0) } else { (read - 1, 8 - spare_bits) };
                let input = &compressed[start..];
                // All of it, and cut in the middle of what matters.
                if written >= WINDOW {
                    assert!(references.before(input, skipped, WINDOW) == decoded(input, skipped), "level {level}");
                    looked_at += 1;
                }
                let cut = &input[..input.len().min(500)];
                let exact = decoded(input, skipped);
                let guessed = references.before(cut, skipped, WINDOW);
                assert!(exact.iter().zip(guessed).all(|(exact, guessed)| guessed >= exact), "level {level}");
            }
            assert!(looked_at > 3, "level {level}: {looked_at} blocks");
        }
        // Whatever it is.
        for skipped in 0..8 {
            References::new().before(&data[usize::from(skipped) * 1000..], skipped, WINDOW);
        }
        assert!(!References::new().before(&[0xff; 100], 0, WINDOW).contains(&true));
        assert!(!References::new().before(&[], 0, 100).contains(&false));
    }
}
