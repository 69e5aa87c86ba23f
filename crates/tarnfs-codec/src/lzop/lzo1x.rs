//! Blocks of LZO1X: literals, and matches of what was decoded before.
//!
//! There is no specification; what the instructions mean is described in the Linux kernel's
//! Documentation/staging/lzo.rst.

/// The data are not valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid;

/// Distance at which a match ends the block.
const END: usize = 0x4000;

/// Matches reach no further back.
pub(crate) const FARTHEST: usize = END + 0x4000 + 0x3FFF;

/// Where instructions come from.
pub(crate) trait Bytes {
    /// What is said of bytes that are no instructions, or of too few.
    type Error: From<Invalid>;

    fn byte(&mut self) -> Result<u8, Self::Error>;

    /// Two bytes, little-endian.
    fn word(&mut self) -> Result<usize, Self::Error>;
}

/// What to do next.
pub(crate) enum Instruction {
    /// Copy so many bytes that follow.
    Literals(usize),
    /// Copy `length` bytes decoded `distance` bytes before, then `literals` (at most three) that follow.
    Match { distance: usize, length: usize, literals: usize },
    /// Nothing more.
    End,
}

/// The literals that a block begins with, if its first byte says so.
#[inline]
pub(crate) fn first_literals(first: u8) -> Option<usize> {
    (first >= 18).then(|| usize::from(first) - 17)
}

/// Reads an instruction. What the shortest ones mean depends on how many `literals` came last since the last match:
/// none, one to three, or 4 for more.
#[inline]
pub(crate) fn instruction<B: Bytes>(bytes: &mut B, literals: usize) -> Result<Instruction, B::Error> {
    let instruction = usize::from(bytes.byte()?);
    let (distance, length, next) = match instruction {
        64.. => {
            let distance = (usize::from(bytes.byte()?) << 3) + (instruction >> 2 & 7) + 1;
            (distance, (instruction >> 5) + 1, instruction)
        }
        32.. => {
            let length = length(bytes, instruction & 31, 31)?.saturating_add(2);
            let word = bytes.word()?;
            ((word >> 2) + 1, length, word)
        }
        16.. => {
            let length = length(bytes, instruction & 7, 7)?.saturating_add(2);
            let word = bytes.word()?;
            let distance = END + ((instruction & 8) << 11) + (word >> 2);
            if distance == END {
                return Ok(Instruction::End);
            }
            (distance, length, word)
        }
        _ if literals == 0 => return Ok(Instruction::Literals(length(bytes, instruction, 15)?.saturating_add(3))),
        _ => {
            let distance = (usize::from(bytes.byte()?) << 2) + (instruction >> 2) + 1;
            if literals == 4 { (distance + 2048, 3, instruction) } else { (distance, 2, instruction) }
        }
    };
    Ok(Instruction::Match { distance, length, literals: next & 3 })
}

/// A length that is `short`, or, if that is 0, `most` and what the bytes that follow add.
#[inline]
fn length<B: Bytes>(bytes: &mut B, short: usize, most: usize) -> Result<usize, B::Error> {
    if short > 0 {
        return Ok(short);
    }
    let mut length = most;
    loop {
        match bytes.byte()? {
            0 => length = length.saturating_add(255),
            last => return Ok(length.saturating_add(usize::from(last))),
        }
    }
}

/// Decodes all of `input`, which must be exactly as much as `output` has room for.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), Invalid> {
    let room = output.len();
    decompress_up_to(input, output).and_then(|length| if length == room { Ok(()) } else { Err(Invalid) })
}

/// Decodes all of `input`, for which `output` must have room enough, and says how much it is.
pub(crate) fn decompress_up_to(input: &[u8], output: &mut [u8]) -> Result<usize, Invalid> {
    let mut block = Block { input, at: 0, output, filled: 0 };
    let mut literals = 0;
    if let Some(first) = input.first().and_then(|&first| first_literals(first)) {
        block.at = 1;
        block.copy(first)?;
        literals = first.min(4);
    }
    loop {
        match instruction(&mut block, literals)? {
            Instruction::Literals(length) => {
                block.copy(length)?;
                literals = 4;
            }
            Instruction::Match { distance, length, literals: few } => {
                block.repeat(distance, length)?;
                literals = few;
                block.copy_few(few)?;
            }
            Instruction::End => {
                return if block.at == block.input.len() { Ok(block.filled) } else { Err(Invalid) };
            }
        }
    }
}

struct Block<'a> {
    input: &'a [u8],
    at: usize,
    output: &'a mut [u8],
    filled: usize,
}

impl Bytes for Block<'_> {
    type Error = Invalid;

    #[inline]
    fn byte(&mut self) -> Result<u8, Invalid> {
        let &byte = self.input.get(self.at).ok_or(Invalid)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn word(&mut self) -> Result<usize, Invalid> {
        let &word = self.input.get(self.at..).and_then(<[u8]>::first_chunk).ok_or(Invalid)?;
        self.at += 2;
        Ok(usize::from(u16::from_le_bytes(word)))
    }
}

impl Block<'_> {
    /// Copies literals.
    #[inline]
    fn copy(&mut self, length: usize) -> Result<(), Invalid> {
        let literals = self.input.get(self.at..).and_then(|rest| rest.get(..length)).ok_or(Invalid)?;
        self.output[self.filled..].get_mut(..length).ok_or(Invalid)?.copy_from_slice(literals);
        (self.at, self.filled) = (self.at + length, self.filled + length);
        Ok(())
    }

    /// Copies at most three literals: four, where there is room for what is too much.
    #[inline]
    fn copy_few(&mut self, length: usize) -> Result<(), Invalid> {
        let from = self.input[self.at..].first_chunk::<4>();
        let Some((from, to)) = from.zip(self.output[self.filled..].first_chunk_mut()) else { return self.copy(length) };
        *to = *from;
        (self.at, self.filled) = (self.at + length, self.filled + length);
        Ok(())
    }

    /// Copies what was decoded `distance` bytes before.
    #[inline]
    fn repeat(&mut self, distance: usize, length: usize) -> Result<(), Invalid> {
        /// Bytes copied at once, as long as they do not overlap and there is room for what is too much.
        const STEP: usize = 8;
        let start = self.filled.checked_sub(distance).ok_or(Invalid)?;
        let end = self.filled.checked_add(length).ok_or(Invalid)?;
        if end > self.output.len() {
            return Err(Invalid);
        }
        if distance >= STEP && end + STEP <= self.output.len() {
            let mut done = 0;
            while done < length {
                let Some(&bytes) = self.output[start + done..].first_chunk::<STEP>() else { return Err(Invalid) };
                self.output[self.filled + done..][..STEP].copy_from_slice(&bytes);
                done += STEP;
            }
        } else {
            // What is there is repeated: each time there is twice as much of it.
            let mut done = 0;
            while done < length {
                let count = (distance + done).min(length - done);
                self.output.copy_within(start..start + count, self.filled + done);
                done += count;
            }
        }
        self.filled = end;
        Ok(())
    }
}
