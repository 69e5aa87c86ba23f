//! What was decoded last, and which filters are to be undone in it before anybody gets it.
//!
//! Bytes are counted from the start of the stream. A match copies what was decoded, not what a filter has made of it.
//! The ring grows while it fills, and beyond the dictionary only for a filter that covers more.

use std::collections::VecDeque;
use std::io;

use super::bits::Bits;
use super::filters::Filter;
use crate::faults;

/// A match is no longer: 4097 bytes, and 3 more for a far one.
pub(super) const LONGEST_MATCH: usize = 4352;

/// Bytes of the ring at first.
const SMALLEST: usize = 64 << 10;

/// Decoded bytes that wait to be handed out, at most, unless a filter needs more.
const STEP: u64 = 32 << 10;

/// Symbols that are decoded before somebody looks whether they are wanted still: there may be any number of which
/// nothing comes.
pub(super) const AT_ONCE: usize = 1 << 16;

/// Bytes that one filter covers at most, in all versions.
pub(super) const LONGEST_FILTER: u64 = 4 << 20;

/// Filters that wait at most, as in UnRAR.
const MOST_FILTERS: usize = 8192;

/// Those that cover the same bytes. Each takes milliseconds, and a few bytes of the archive.
const MOST_ON_ONE: usize = 16;

/// A filter over a part of the stream.
struct Pending {
    start: u64,
    length: u64,
    filter: Filter,
}

/// Copies bytes to others. Most are few: these go in two steps, which may overlap.
#[inline]
fn copy_apart(ring: &mut [u8], from: usize, to: usize, length: usize) {
    match length {
        0..4 => {
            for number in 0..length {
                ring[to + number] = ring[from + number];
            }
        }
        4..8 => copy_twice::<4>(ring, from, to, length),
        8..16 => copy_twice::<8>(ring, from, to, length),
        16..=32 => copy_twice::<16>(ring, from, to, length),
        _ => ring.copy_within(from..from + length, to),
    }
}

#[inline]
fn copy_twice<const N: usize>(ring: &mut [u8], from: usize, to: usize, length: usize) {
    let (first, last): ([u8; N], [u8; N]) = {
        let bytes = &ring[from..from + length];
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else { return };
        (*first, *last)
    };
    let bytes = &mut ring[to..to + length];
    bytes[..N].copy_from_slice(&first);
    bytes[length - N..].copy_from_slice(&last);
}

/// Copies bytes to those right behind them, and these again: fewer than `length` lie between.
fn repeat(ring: &mut [u8], from: usize, to: usize, length: usize) {
    if to == from + 1 {
        let byte = ring[from];
        ring[to..to + length].fill(byte);
        return;
    }
    // What is there already doubles each time.
    let mut done = 0;
    while done < length {
        let count = (to + done - from).min(length - done);
        ring.copy_within(from..from + count, to + done);
        done += count;
    }
}

pub(super) struct Window {
    ring: Vec<u8>,
    mask: usize,
    /// Bytes of the ring at most, and the farthest that a match reaches.
    most: usize,
    farthest: u64,
    /// Byte behind the last one that was decoded, and behind the last one that was handed out or filtered.
    total: u64,
    flushed: u64,
    /// Where the ring has to be looked at again.
    fence: u64,
    /// Where the member begins and ends.
    start: u64,
    end: u64,
    filters: VecDeque<Pending>,
    filtered: Vec<u8>,
    served: usize,
}

impl Window {
    /// For a stream of `length` bytes.
    pub(super) fn new() -> Self {
        let mut window = Self {
            ring: Vec::new(),
            mask: 0,
            most: SMALLEST,
            farthest: 0,
            total: 0,
            flushed: 0,
            fence: 0,
            start: 0,
            end: 0,
            filters: VecDeque::new(),
            filtered: Vec::new(),
            served: 0,
        };
        window.resize(SMALLEST);
        window
    }

    /// Begins a member of `length` bytes, whose matches reach up to `dictionary` bytes back. Of a stream with `left`
    /// bytes from here on.
    pub(super) fn begin(&mut self, length: u64, dictionary: u64, left: u64) {
        self.filters.clear();
        (self.start, self.end) = (self.total, self.total.saturating_add(length));
        self.farthest = self.farthest.max(dictionary);
        let needed = self.farthest.min(self.total.saturating_add(left));
        let needed = usize::try_from(needed).unwrap_or(usize::MAX >> 1).checked_next_power_of_two();
        self.most = self.most.max(needed.unwrap_or(usize::MAX >> 1));
        self.set_fence();
    }

    fn set_fence(&mut self) {
        let capacity = self.ring.len();
        let full = self.flushed + capacity as u64;
        self.fence = if capacity < self.most { full.min(capacity as u64) } else { full };
    }

    /// Makes the ring this long, a power of two, and keeps what is in it.
    fn resize(&mut self, capacity: usize) {
        let mut ring = vec![0; capacity];
        let mask = capacity - 1;
        let mut at = self.total - self.total.min(self.ring.len() as u64);
        while at < self.total {
            let (from, to) = (at as usize & self.mask, at as usize & mask);
            let left = usize::try_from(self.total - at).unwrap_or(usize::MAX);
            let count = left.min(self.ring.len() - from).min(capacity - to);
            ring[to..to + count].copy_from_slice(&self.ring[from..from + count]);
            at += count as u64;
        }
        (self.ring, self.mask) = (ring, mask);
        self.set_fence();
    }

    /// Makes room for one match. False if what was decoded has to be handed out first.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.total + LONGEST_MATCH as u64 <= self.fence || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        let capacity = self.ring.len();
        let waiting = self.total - self.flushed + LONGEST_MATCH as u64;
        let is_held = self.filters.front().is_some_and(|first| first.start <= self.flushed);
        if capacity < self.most || waiting > capacity as u64 && is_held {
            // No filter covers more than `LONGEST_FILTER`.
            self.resize(capacity.saturating_mul(2));
        }
        self.set_fence();
        self.total + LONGEST_MATCH as u64 <= self.fence
    }

    /// True if there is something to hand out, or the member is decoded.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.total - self.flushed >= STEP && !self.is_held() || self.total >= self.end
    }

    /// True if a filter that is not complete begins where the next byte would be handed out.
    fn is_held(&self) -> bool {
        let first = self.filters.front();
        first.is_some_and(|first| first.start <= self.flushed && first.start + first.length > self.total)
    }

    /// True if all bytes of the member were decoded.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.total >= self.end
    }

    /// Bytes that were decoded, of all members.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The last byte; there is room for it ([`Window::has_room`]), and the member is not decoded.
    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        let at = self.total as usize & self.mask;
        if let Some(place) = self.ring.get_mut(at) {
            *place = byte;
        }
        self.total += 1;
    }

    /// Appends `length` bytes that lie `distance` back, of at most [`LONGEST_MATCH`], for which there is room. Those
    /// behind the member's end are left out. Where there are none so far back, they are zeros, as in UnRAR.
    #[inline]
    pub(super) fn copy(&mut self, distance: u64, length: usize) {
        let length = length.min(usize::try_from(self.end.saturating_sub(self.total)).unwrap_or(usize::MAX));
        if distance == 0 || distance > self.total || distance > self.farthest {
            self.append_zeros(length);
            return;
        }
        let (from, to) = ((self.total - distance) as usize & self.mask, self.total as usize & self.mask);
        self.total += length as u64;
        let capacity = self.ring.len();
        if from.max(to) + length > capacity {
            for number in 0..length {
                self.ring[(to + number) & self.mask] = self.ring[(from + number) & self.mask];
            }
        } else if distance >= length as u64 {
            copy_apart(&mut self.ring, from, to, length);
        } else {
            repeat(&mut self.ring, from, to, length);
        }
    }

    #[cold]
    fn append_zeros(&mut self, length: usize) {
        for _ in 0..length {
            self.push(0);
        }
    }

    /// A filter over `length` bytes that begin `ahead` of the next one.
    pub(super) fn add_filter(&mut self, ahead: u64, length: u64, filter: Filter, bits: &Bits) -> io::Result<()> {
        if length > LONGEST_FILTER {
            return Err(bits.invalid("a filter that covers too much"));
        }
        if self.filters.len() >= MOST_FILTERS {
            return Err(bits.invalid("too many filters at once"));
        }
        let start = self.total.saturating_add(ahead);
        if length > 0 {
            let at = self.filters.partition_point(|pending| pending.start <= start);
            self.filters.insert(at, Pending { start, length, filter });
        }
        Ok(())
    }

    /// Filters that wait are not wanted any more.
    pub(super) fn forget_filters(&mut self) {
        self.filters.clear();
    }

    /// Moves what is complete into `buffer`; returns how many bytes. None if more has to be decoded.
    pub(super) fn serve(&mut self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        loop {
            if self.served < self.filtered.len() {
                let count = buffer.len().min(self.filtered.len() - self.served);
                buffer[..count].copy_from_slice(&self.filtered[self.served..self.served + count]);
                self.served += count;
                return Ok(count);
            }
            let limit = self.filters.front().map_or(self.end, |first| first.start).min(self.end).min(self.total);
            if self.flushed < limit {
                let at = self.flushed as usize & self.mask;
                let left = usize::try_from(limit - self.flushed).unwrap_or(usize::MAX);
                let count = left.min(buffer.len()).min(self.ring.len() - at);
                buffer[..count].copy_from_slice(&self.ring[at..at + count]);
                self.flushed += count as u64;
                self.set_fence();
                return Ok(count);
            }
            if self.flushed >= self.end || !self.undo_filters(place)? {
                return Ok(0);
            }
        }
    }

    /// Undoes the filters over the bytes that come next. False if these are not decoded yet.
    fn undo_filters(&mut self, place: u64) -> io::Result<bool> {
        let Some(first) = self.filters.front() else { return Ok(false) };
        let (start, length) = (first.start, first.length);
        if start < self.flushed || start.saturating_add(length) > self.end {
            return Err(faults::invalid(place, "a filter that covers what it cannot"));
        }
        if start + length > self.total {
            return Ok(false);
        }
        self.filtered.clear();
        self.served = 0;
        let mut at = start;
        while at < start + length {
            let from = at as usize & self.mask;
            let count = ((start + length - at) as usize).min(self.ring.len() - from);
            self.filtered.extend_from_slice(&self.ring[from..from + count]);
            at += count as u64;
        }
        // Several may cover the same bytes, one after the other.
        let position = start - self.start;
        if self.filters.iter().take_while(|next| (next.start, next.length) == (start, length)).count() > MOST_ON_ONE {
            return Err(faults::invalid(place, "too many filters that cover the same"));
        }
        let is_next = |next: &Pending| (next.start, next.length) == (start, length);
        while self.filters.front().is_some_and(is_next) {
            let Some(next) = self.filters.pop_front() else { break };
            if !next.filter.undo(&mut self.filtered, position) {
                return Err(faults::invalid(place, "a filter with parameters that it cannot have"));
            }
        }
        self.flushed = start + length;
        self.set_fence();
        Ok(true)
    }

    /// Bytes of memory once so many bytes were decoded, of all members.
    pub(super) fn memory(&self, decoded: u64) -> usize {
        let behind = usize::try_from(decoded).unwrap_or(usize::MAX).checked_next_power_of_two();
        let ring = if decoded > self.total { behind.unwrap_or(usize::MAX).min(self.most) } else { 0 };
        ring.max(self.ring.len()) + self.filtered.capacity() + self.filters.capacity() * size_of::<Pending>()
    }
}
