//! The dictionary: the last decoded bytes, in a ring.

use super::checkpoint::Loaded;

/// Bytes decoded at most before somebody looks at what they are.
pub(super) const STEP: usize = 128 << 10;

/// The ring's ends are multiples of this: who decodes that much at a time stops nowhere else.
pub(super) const STRIDE: usize = 4096;

/// Bytes that copying a match may write behind its end.
const OVERSHOOT: usize = 16;

/// Bytes in the ring beside the dictionary: for one step that is being decoded, and one that a hold lasts too long.
const ROOM: usize = 2 * STEP + OVERSHOOT;

/// The last decoded bytes.
pub(super) struct History {
    pub(super) ring: Vec<u8>,
    /// Distances at most.
    pub(super) dictionary: usize,
    /// Where in the ring the next byte goes.
    pub(super) position: usize,
    /// Bytes that a distance may reach: since the last reset, at most the dictionary.
    pub(super) reach: usize,
    /// Bytes since the last reset; its lowest bits are a context.
    pub(super) phase: usize,
    /// Bytes decoded in all.
    pub(super) produced: u64,
    /// Of these, bytes that nobody has taken.
    undelivered: usize,
    /// Bytes of the ring that were written to, as long as it was not once around.
    touched: usize,
}

impl History {
    /// `None` where there is no memory for it.
    pub(super) fn new(dictionary: usize) -> Option<Self> {
        let length = dictionary.checked_add(ROOM)?.checked_next_multiple_of(STRIDE)?;
        let mut ring = Vec::<u8>::new();
        ring.try_reserve_exact(length).ok()?;
        // The allocator's zeros, of which pages are only taken when they are written to.
        drop(ring);
        let ring = vec![0; length];
        Some(Self { ring, dictionary, position: 0, reach: 0, phase: 0, produced: 0, undelivered: 0, touched: 0 })
    }

    /// Goes on behind `produced` bytes in all, with the history that was `loaded`.
    pub(super) fn restore(&mut self, loaded: &Loaded, produced: u64) {
        for (start, bytes) in loaded.known() {
            self.ring[start..start + bytes.len()].copy_from_slice(bytes);
            self.touched += bytes.len();
        }
        (self.position, self.reach) = (loaded.length, loaded.length);
        (self.phase, self.produced) = (usize::from(loaded.phase), produced);
    }

    /// Forgets all for the data that follow.
    pub(super) fn reset(&mut self) {
        (self.reach, self.phase) = (0, 0);
    }

    /// Bytes that may be decoded at once: up to the ring's end, and none over those undelivered.
    pub(super) fn room(&self) -> usize {
        let free = self.ring.len() - OVERSHOOT - self.undelivered;
        STEP.min(free).min(self.ring.len() - self.position)
    }

    /// Counts `count` bytes that were written at the position.
    pub(super) fn advance(&mut self, count: usize) {
        self.position += count;
        if self.position == self.ring.len() {
            self.position = 0;
        }
        self.reach = self.reach.saturating_add(count).min(self.dictionary);
        self.phase = self.phase.wrapping_add(count);
        self.produced += count as u64;
        self.undelivered += count;
        self.touched = self.touched.saturating_add(count);
    }

    /// Takes back the last `count` bytes, of which none was delivered. Nothing is decoded behind that.
    pub(super) fn retract(&mut self, count: usize) {
        self.position = self.index(count);
        self.produced -= count as u64;
        self.undelivered -= count;
    }

    /// Appends bytes as they are, as many as there is room for; returns how many.
    pub(super) fn append(&mut self, bytes: &[u8]) -> usize {
        let count = self.room().min(bytes.len());
        self.ring[self.position..self.position + count].copy_from_slice(&bytes[..count]);
        self.advance(count);
        count
    }

    /// Hands out bytes from before the decoded byte `hold`; returns how many.
    pub(super) fn deliver(&mut self, output: &mut [u8], hold: u64) -> usize {
        let held = usize::try_from(self.produced.saturating_sub(hold)).unwrap_or(usize::MAX);
        let mut written = 0;
        while written < output.len() {
            let start = self.index(self.undelivered);
            let count = self.undelivered.saturating_sub(held);
            let count = count.min(output.len() - written).min(self.ring.len() - start);
            if count == 0 {
                break;
            }
            output[written..written + count].copy_from_slice(&self.ring[start..start + count]);
            self.undelivered -= count;
            written += count;
        }
        written
    }

    /// Where in the ring the byte lies that was decoded `age` bytes before the next one.
    pub(super) fn index(&self, age: usize) -> usize {
        if self.position >= age { self.position - age } else { self.position + self.ring.len() - age }
    }

    /// The byte before the next one.
    pub(super) fn last(&self) -> u8 {
        if self.reach == 0 { 0 } else { self.ring[self.index(1)] }
    }

    /// Bytes of memory when `more` bytes have been decoded. The ring's pages count from when they are first written.
    pub(super) fn memory_after(&self, more: u64) -> usize {
        let more = usize::try_from(more).unwrap_or(usize::MAX);
        self.ring.len().min(self.touched.saturating_add(more))
    }
}
