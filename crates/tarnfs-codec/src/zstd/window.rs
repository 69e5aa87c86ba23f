//! The bytes that were decoded last, to which matches refer.
//!
//! The buffer is a ring that only ever wraps before a block: a block lies in one piece, and what is older and still in
//! reach lies before it, or behind it at the end of the lap before. Copies are made in words, beyond their ends, where
//! nothing is that is still referred to.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::hint::select_unpredictable;
use std::sync::Arc;

use super::block::Invalid;
use super::dictionary::Dictionary;
use super::literals::LITERALS_MARGIN;
use super::sequences::Sequence;

/// Bytes behind the end of a copy that it may write.
const MARGIN: usize = LITERALS_MARGIN;

/// So may end what was made with a dictionary that is not there.
pub(super) const BEFORE_WINDOW: Invalid = "a match begins before the window";

/// Windows above this are larger than what lies close to the processor: so many sequences before it is copied, what a
/// match refers to is fetched. In smaller ones that takes longer than it gains.
const FETCHED_ABOVE: usize = 16 << 20;
const FETCHED_AHEAD: usize = 16;

/// Sequences whose lengths are looked at together: few enough that they are still at hand when they are executed.
const CHECKED_TOGETHER: usize = 256;

const TOO_LONG: Invalid = "a block becomes longer than it may";
/// What is wrong with a sequence whose offset is 0.
pub(super) const NO_OFFSET: Invalid = "a match with an offset of 0";

/// The last bytes decoded.
#[derive(Default)]
pub(super) struct Window {
    buffer: Vec<u8>,
    /// Something was written to the buffer. Before that it is zeros, which take no memory yet.
    is_used: bool,
    /// Where the next byte comes to.
    at: usize,
    /// Where the lap before ended. What lies from `at` (and what a block takes) to there is older than what lies
    /// before `at`.
    lap_end: usize,
    /// Bytes that matches may refer to.
    history: usize,
    /// The most of them.
    reach: usize,
    /// The most that a block decodes to.
    largest_block: usize,
    /// What stands before the frame. It is in reach as long as all of the frame is (RFC 8878 §5).
    dictionary: Option<Arc<Dictionary>>,
}

impl Window {
    /// Becomes empty, and large enough for matches that refer `reach` bytes back. False if there is no memory.
    pub(super) fn start(&mut self, reach: usize, largest_block: usize) -> bool {
        let wanted = reach.checked_add(largest_block + 2 * MARGIN);
        let Some(wanted) = wanted.filter(|&wanted| isize::try_from(wanted).is_ok()) else { return false };
        if self.buffer.len() < wanted {
            self.buffer = Vec::new();
            if Vec::<u8>::new().try_reserve_exact(wanted).is_err() {
                return false;
            }
            // Zeroed by the kernel, page by page as it is used.
            self.buffer = vec![0; wanted];
            self.is_used = false;
        }
        let (buffer, is_used) = (std::mem::take(&mut self.buffer), self.is_used);
        *self = Self { buffer, is_used, reach, largest_block, ..Self::default() };
        true
    }

    /// Becomes empty, with room for `length` bytes of any number of frames, of which none is overwritten: in `memory`,
    /// or where it is. False if there is no memory.
    pub(super) fn start_with_all(&mut self, memory: Option<Vec<u8>>, length: usize, largest_block: usize) -> bool {
        if let Some(memory) = memory {
            (self.buffer, self.is_used) = (memory, true);
        }
        // The last block may begin where the bytes end.
        self.start(length, largest_block)
    }

    /// Begins behind all that was decoded, to which nothing may refer now. Returns where that is.
    pub(super) fn start_behind(&mut self, reach: usize, largest_block: usize) -> usize {
        (self.history, self.lap_end, self.reach, self.largest_block) = (0, 0, reach, largest_block);
        self.dictionary = None;
        self.at
    }

    /// Has this before the frame, of which as much is there as matches may refer to.
    pub(super) fn put_before(&mut self, dictionary: Option<&Arc<Dictionary>>) {
        self.dictionary = dictionary.cloned();
    }

    /// What stands before the frame and may be referred to.
    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_deref()
    }

    /// All that was decoded since [`Window::start_with_all`], and other bytes behind that.
    pub(super) fn all(&self) -> &[u8] {
        &self.buffer
    }

    /// The same, with its memory.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(self).buffer
    }

    /// Continues behind `length` bytes, at most as many as the reach, which are to be written to what this returns:
    /// zeros until then.
    pub(super) fn continue_behind(&mut self, length: usize) -> &mut [u8] {
        let length = length.min(self.reach);
        (self.at, self.lap_end, self.history) = (length, 0, length);
        let history = &mut self.buffer[..length];
        if std::mem::replace(&mut self.is_used, true) {
            history.fill(0);
        }
        history
    }

    /// The bytes that matches may refer to: the older ones, and the newer ones.
    pub(super) fn history(&self) -> [&[u8]; 2] {
        let newer = self.history.min(self.at);
        let older = self.history - newer;
        [&self.buffer[self.lap_end - older..self.lap_end], &self.buffer[self.at - newer..self.at]]
    }

    /// How far matches may refer back.
    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// The last `length` bytes, all of one block.
    pub(super) fn last(&self, length: usize) -> &[u8] {
        &self.buffer[self.at - length..self.at]
    }

    /// Makes the next block's bytes lie in one piece.
    fn make_room(&mut self) {
        self.is_used = true;
        if self.at + self.largest_block + MARGIN > self.buffer.len() {
            (self.lap_end, self.at) = (self.at, 0);
        }
    }

    fn advance(&mut self, count: usize) {
        self.at += count;
        if self.history + count > self.reach {
            self.dictionary = None;
        }
        self.history = self.reach.min(self.history + count);
    }

    /// Appends `bytes`, at most a block.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.make_room();
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Appends a byte `count` times, at most a block.
    pub(super) fn append_repeated(&mut self, byte: u8, count: usize) {
        self.make_room();
        self.buffer[self.at..self.at + count].fill(byte);
        self.advance(count);
    }

    /// Executes `sequences` and appends the literals that are left; returns how many bytes that made. `literals` has
    /// [`LITERALS_MARGIN`] bytes more than there are literals; none of `repeats` is 0, before and after.
    pub(super) fn execute(
        &mut self,
        literals: &[u8],
        sequences: &[Sequence],
        repeats: &mut [u32; 3],
    ) -> Result<usize, Invalid> {
        if self.reach > FETCHED_ABOVE {
            self.execute_fetching::<true>(literals, sequences, repeats)
        } else {
            self.execute_fetching::<false>(literals, sequences, repeats)
        }
    }

    fn execute_fetching<const FETCH: bool>(
        &mut self,
        literals: &[u8],
        sequences: &[Sequence],
        repeats: &mut [u32; 3],
    ) -> Result<usize, Invalid> {
        self.make_room();
        let start = self.at;
        let limit = start + self.largest_block;
        let count = literals.len() - LITERALS_MARGIN;
        assert!(limit + MARGIN <= self.buffer.len(), "room was made");
        let mut known = *repeats;
        let (mut fetched, mut far) = (start, sequences.iter());
        for sequence in far.by_ref().take(if FETCH { FETCHED_AHEAD } else { 0 }) {
            fetched = self.fetch(fetched, sequence);
        }
        // The first byte of this lap that may be referred to.
        let first = start - self.history.min(start);
        // Where the next byte comes to, and the next literal.
        let (mut at, mut next) = (start, 0);
        for sequences in sequences.chunks(CHECKED_TOGETHER) {
            let (taken, made) = lengths(sequences);
            if taken > (count - next) as u64 {
                return Err("a block takes more literals than it has");
            }
            if made > (limit - at) as u64 {
                return Err(TOO_LONG);
            }
            let mut to = self.buffer.as_mut_ptr().wrapping_add(at);
            let mut from = literals.as_ptr().wrapping_add(next);
            let mut first = self.buffer.as_ptr().wrapping_add(first);
            (at, next) = (at + made as usize, next + taken as usize);
            for sequence in sequences {
                if FETCH && let Some(later) = far.next() {
                    fetched = self.fetch(fetched, later);
                }
                let (length, matched) = (sequence.literals as usize, sequence.matched as usize);
                // SAFETY: all lengths together, of these literals and of all that is made, were compared with what
                // there is: `from` + `length` is no more than `next`, nor that than `count`, behind which are
                // LITERALS_MARGIN bytes; `to` + `length` + `matched` is at most `limit`, behind which are MARGIN bytes.
                unsafe { copy_apart(to, from, length) };
                (to, from) = (to.wrapping_add(length), from.wrapping_add(length));
                let offset = repeated(sequence, &mut known) as usize;
                let most = (to as usize).wrapping_sub(first as usize).min(self.reach);
                if offset.wrapping_sub(1) >= most {
                    let at = to as usize - self.buffer.as_ptr() as usize;
                    let lap = first as usize - self.buffer.as_ptr() as usize;
                    self.copy_from_elsewhere(offset, start, at, matched)?;
                    // The buffer was written to by other means.
                    to = self.buffer.as_mut_ptr().wrapping_add(at);
                    first = self.buffer.as_ptr().wrapping_add(lap);
                } else {
                    // SAFETY: `offset` is at least 1, and so many bytes are before `to` in the buffer; for the bytes
                    // behind `to` see above.
                    unsafe { copy_match(to, offset, matched) };
                }
                to = to.wrapping_add(matched);
            }
        }
        let rest = &literals[next..count];
        if rest.len() > limit - at {
            return Err(TOO_LONG);
        }
        self.buffer[at..at + rest.len()].copy_from_slice(rest);
        at += rest.len();
        *repeats = known;
        self.advance(at - start);
        Ok(at - start)
    }

    /// Has the processor fetch what a sequence will copy whose literals come to `at`; returns where the next one
    /// begins.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call would take longer")]
    fn fetch(&self, at: usize, sequence: &Sequence) -> usize {
        let at = at.wrapping_add(sequence.literals as usize);
        let from = at.wrapping_sub(sequence.offset as usize);
        #[cfg(target_arch = "x86_64")]
        if from < self.buffer.len() {
            // SAFETY: every processor of this architecture has the instruction, which changes nothing that a program
            // can see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.buffer.as_ptr().wrapping_add(from).cast()) };
        }
        at.wrapping_add(sequence.matched as usize)
    }

    /// Copies a match that begins in the lap before, or before the frame, or is wrong.
    #[cold]
    fn copy_from_elsewhere(
        &mut self,
        offset: usize,
        start: usize,
        mut at: usize,
        mut matched: usize,
    ) -> Result<(), Invalid> {
        if offset == 0 {
            return Err(NO_OFFSET);
        }
        let before = self.history + (at - start);
        if offset > before.min(self.reach) {
            let dictionary = self.dictionary.as_deref().filter(|_| before <= self.reach).ok_or(BEFORE_WINDOW)?;
            let content = dictionary.content();
            let from = content.len().checked_sub(offset - before).ok_or(BEFORE_WINDOW)?;
            let first = matched.min(offset - before);
            self.buffer[at..at + first].copy_from_slice(&content[from..from + first]);
            // The rest begins where the frame does.
            (at, matched) = (at + first, matched - first);
        }
        if let Some(older) = offset.checked_sub(at).filter(|_| matched > 0) {
            let from = self.lap_end - older;
            let first = matched.min(older);
            self.buffer.copy_within(from..from + first, at);
            // The rest begins at the start of this lap.
            (at, matched) = (at + first, matched - first);
        }
        // It may overlap with what it writes.
        for position in at..at + matched {
            self.buffer[position] = self.buffer[position - offset];
        }
        Ok(())
    }
}

/// The offset of a sequence, 0 if it is wrong; `known` are the repeated ones before it, and those after it (RFC 8878
/// §3.1.1.5).
///
/// Which of them it is nobody can foretell: a wrong guess of the processor would take longer than all of this.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would take longer")]
pub(super) fn repeated(sequence: &Sequence, known: &mut [u32; 3]) -> u32 {
    let [first, second, third] = *known;
    // From 4 on, and if it is not the one that comes before the first, it is no repeated one.
    let number = u64::from(sequence.offset) + u64::from(sequence.literals == 0);
    let offset = select_unpredictable(sequence.offset > 3, sequence.offset.wrapping_sub(3), first.wrapping_sub(1));
    let offset = select_unpredictable(number == 3, third, offset);
    let offset = select_unpredictable(number == 2, second, offset);
    let offset = select_unpredictable(number == 1, first, offset);
    *known =
        [offset, select_unpredictable(number == 1, second, first), select_unpredictable(number <= 2, third, second)];
    offset
}

/// How many literals these sequences take, and how many bytes they make.
fn lengths(sequences: &[Sequence]) -> (u64, u64) {
    let (mut taken, mut made) = (0_u64, 0_u64);
    for sequence in sequences {
        taken = taken.wrapping_add(u64::from(sequence.literals));
        made = made.wrapping_add(u64::from(sequence.literals)).wrapping_add(u64::from(sequence.matched));
    }
    (taken, made)
}

/// Copies 16 bytes.
///
/// # Safety
/// They are there, and apart.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would take longer")]
unsafe fn copy_wide(to: *mut u8, from: *const u8) {
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from, to, 16) };
}

/// Copies `length` bytes between buffers.
///
/// # Safety
/// Behind the `length` bytes of both there are 32 more. They are apart from each other.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would take longer than most copies")]
unsafe fn copy_apart(mut to: *mut u8, mut from: *const u8, length: usize) {
    // SAFETY: each step begins before the end or is the first, and is 32 bytes long at most.
    unsafe {
        copy_wide(to, from);
        if length > 16 {
            let end = to.add(length);
            to = to.add(16);
            from = from.add(16);
            loop {
                copy_wide(to, from);
                copy_wide(to.add(16), from.add(16));
                to = to.add(32);
                from = from.add(32);
                if to >= end {
                    break;
                }
            }
        }
    }
}

/// Copies `length` bytes from `offset` bytes before `to`, byte after byte in effect.
///
/// # Safety
/// The `offset` bytes before `to` and the `length` + 48 bytes from `to` on are in one buffer; `offset` is not 0.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would take longer than most copies")]
unsafe fn copy_match(to: *mut u8, offset: usize, length: usize) {
    // SAFETY: as above; what a step reads was written before it.
    unsafe {
        if offset >= 16 {
            let from = to.sub(offset);
            copy_wide(to, from);
            let second = to.add(16);
            copy_wide(second, second.sub(offset));
            if length > 32 {
                copy_steps(to.add(32), to.add(length), offset);
            }
        } else {
            copy_close(to, offset, length);
        }
    }
}

/// # Safety
/// As for [`copy_match`]; `offset` is at least 16.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would take longer than most copies")]
unsafe fn copy_steps(mut to: *mut u8, end: *mut u8, offset: usize) {
    // SAFETY: each step begins before the end or is the first, and each half of it reads what was written before it.
    unsafe {
        loop {
            copy_wide(to, to.sub(offset));
            let half = to.add(16);
            copy_wide(half, half.sub(offset));
            to = to.add(32);
            if to >= end {
                break;
            }
        }
    }
}

/// # Safety
/// As for [`copy_match`]; `offset` is less than 16.
unsafe fn copy_close(to: *mut u8, offset: usize, length: usize) {
    // SAFETY: the first bytes are written one by one or 8 at once where as many are there, to at most 23 bytes; from
    // there on the offset may be any multiple of itself that reaches back no further than to the first byte.
    unsafe {
        let from = to.sub(offset);
        let mut written = 0;
        if offset >= 8 {
            while written < 16 {
                to.add(written).cast::<u64>().write_unaligned(from.add(written).cast::<u64>().read_unaligned());
                written += 8;
            }
        } else {
            while written < 16 {
                *to.add(written) = *from.add(written);
                written += 1;
            }
        }
        if length > 16 {
            copy_steps(to.add(16), to.add(length), offset * (15 / offset + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(literals: u32, offset: u32, matched: u32) -> Sequence {
        Sequence { literals, matched, offset }
    }

    #[test]
    fn copies_of_every_offset_and_length() {
        for offset in 1..70_u32 {
            for matched in 3..150_u32 {
                let mut window = Window::default();
                assert!(window.start(4096, 4096));
                let mut literals: Vec<u8> = (1..=offset as u8 + 3).collect();
                let mut expected: Vec<u8> = literals[..offset as usize].to_vec();
                (0..matched as usize).for_each(|at| expected.push(expected[at]));
                expected.extend(&literals[offset as usize..]);
                literals.extend([0xEE; LITERALS_MARGIN]);
                let made = window.execute(&literals, &[sequence(offset, offset + 3, matched)], &mut [1, 4, 8]);
                assert_eq!(window.last(made.unwrap()), expected, "{offset} {matched}");
            }
        }
    }

    #[test]
    fn a_ring_holds_what_it_reaches() {
        let (reach, block) = (1000, 300);
        let mut window = Window::default();
        assert!(window.start(reach, block));
        let mut all = Vec::new();
        for round in 0..200_u32 {
            let mut literals: Vec<u8> = (0..10).map(|at| (round * 7 + at) as u8).collect();
            all.extend(&literals);
            literals.extend([0; LITERALS_MARGIN]);
            let offset = (1 + round * 37 % 1000).min(all.len() as u32);
            let matched = 3 + round * 11 % 280;
            let made = window.execute(&literals, &[sequence(10, offset + 3, matched)], &mut [1, 4, 8]).unwrap();
            (0..matched).for_each(|_| all.push(all[all.len() - offset as usize]));
            assert_eq!(made, 10 + matched as usize);
            assert_eq!(window.last(made), &all[all.len() - made..], "round {round}");
            let history = window.history().concat();
            assert_eq!(history, &all[all.len().saturating_sub(reach)..]);
        }
        let too_far = sequence(0, 1004, 3);
        assert!(window.execute(&[0; LITERALS_MARGIN], &[too_far], &mut [1, 4, 8]).is_err());
    }

    #[test]
    fn offsets_are_repeated_as_the_specification_says() {
        let mut known = [10, 20, 30];
        let mut next = |literals, offset| {
            let offset = repeated(&sequence(literals, offset, 3), &mut known);
            assert_eq!(offset, known[0]);
            known
        };
        assert_eq!(next(1, 1), [10, 20, 30]);
        assert_eq!(next(1, 2), [20, 10, 30]);
        assert_eq!(next(1, 3), [30, 20, 10]);
        assert_eq!(next(0, 1), [20, 30, 10]);
        assert_eq!(next(0, 2), [10, 20, 30]);
        assert_eq!(next(0, 3), [9, 10, 20]);
        assert_eq!(next(0, 4), [1, 9, 10]);
        assert_eq!(next(1, 4), [1, 1, 9]);
        assert_eq!(next(1, 900), [897, 1, 1]);
        assert_eq!(next(0, u32::MAX), [u32::MAX - 3, 897, 1]);
        known = [1, 2, 3];
        assert_eq!(repeated(&sequence(0, 3, 3), &mut known), 0);
    }
}
