//! Decodes symbols: literals and matches.

#![allow(clippy::inline_always, reason = "parts of one loop")]

use std::hint::select_unpredictable;

use super::history::History;
use super::model::{LITERAL_STATES, Lengths, Model};
use super::range::RangeDecoder;

/// Bytes that the range decoder draws at most for one symbol.
pub(super) const LONGEST_SYMBOL: usize = 20;

/// The distance, less 1, that ends the data.
const END_MARKER: u32 = u32::MAX;

/// Bytes copied at once.
const WIDE: usize = 16;

/// Is told which bytes of the history are referred to.
pub(super) trait Watch {
    /// `length` bytes from `distance` before ring index `at` on are referred to. `ring` is the ring's length.
    fn refer(&mut self, at: usize, distance: usize, length: usize, ring: usize);
}

/// Watches nothing.
pub(super) struct Nobody;

impl Watch for Nobody {
    #[inline(always)]
    fn refer(&mut self, _at: usize, _distance: usize, _length: usize, _ring: usize) {}
}

/// Why decoding stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Enough was written or drawn.
    Limit,
    /// The data say that they end.
    EndMarker,
}

/// The data cannot be what an encoder has written.
#[derive(Debug)]
pub(super) struct Invalid;

/// How far is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes that may be written.
    pub(super) room: usize,
    /// Bytes of the input: where more are drawn, it ends.
    pub(super) drawn: usize,
}

/// Decodes symbols within the bounds. What did not fit of the last match is left in `pending`.
pub(super) fn decode<W: Watch>(
    model: &mut Model,
    decoder: &mut RangeDecoder<'_>,
    history: &mut History,
    pending: &mut usize,
    Bounds { room, drawn }: Bounds,
    watch: &mut W,
) -> Result<Stop, Invalid> {
    // Locals, which stay in registers.
    let mut range = RangeDecoder { range: decoder.range, code: decoder.code, input: decoder.input, at: decoder.at };
    let mut state = model.state;
    let [mut distance0, mut distance1, mut distance2, mut distance3] = model.distances;
    let begin = history.position;
    let mut at = begin;
    let end = begin + room.min(history.room());
    let phase = history.phase.wrapping_sub(begin);
    let reach = history.reach.wrapping_sub(begin);
    let dictionary = history.dictionary;
    let mut last = usize::from(history.last());
    let ring = &mut history.ring[..];
    let properties = model.properties;
    let position_mask = (1 << properties.position) - 1;
    let literal_mask = (1 << properties.literal_position) - 1;
    let literal_context = properties.literal_context;

    let mut result = Ok(Stop::Limit);
    if *pending > 0 {
        let length = (*pending).min(end - at);
        // It was looked at when the match began.
        let distance = distance0 as usize + 1;
        watch.refer(at, distance, length, ring.len());
        copy(ring, at, distance, length);
        at += length;
        *pending -= length;
        last = usize::from(ring[at - 1]);
    }
    while at < end && range.at <= drawn {
        let position = at.wrapping_add(phase) & position_mask;
        if !range.bit(&mut model.is_match[state][position]) {
            let context = (at.wrapping_add(phase) & literal_mask) << literal_context | last >> (8 - literal_context);
            let literals = &mut model.literals[context];
            let mut node = 1_usize;
            if state < LITERAL_STATES {
                let mut probability = literals[1];
                for _ in 0..8 {
                    let next = [literals[node << 1 & 0xff], literals[(node << 1 | 1) & 0xff]];
                    let (digit, updated) = range.digit(probability);
                    literals[node & 0xff] = updated;
                    node = node << 1 | digit;
                    probability = select_unpredictable(digit == 0, next[0], next[1]);
                }
                state = if state < 4 { 0 } else { state - 3 };
            } else {
                let distance = distance0 as usize + 1;
                watch.refer(at, distance, 1, ring.len());
                let mut matched = usize::from(ring[source(ring, at, distance)]);
                // Bit 8 as long as all bits were those of the matched byte, which goes past it.
                let mut same = 0x100;
                matched <<= 1;
                let mut index = same + (matched & same) + node;
                let mut probability = literals[index];
                for _ in 0..8 {
                    let expected = matched & same;
                    matched <<= 1;
                    let (same_if_0, same_if_1) = (same & !expected, expected);
                    let if_0 = (same_if_0 + (matched & same_if_0) + (node << 1)) & 0x3ff;
                    let if_1 = (same_if_1 + (matched & same_if_1) + (node << 1 | 1)) & 0x3ff;
                    let next = [literals[if_0], literals[if_1]];
                    let (digit, updated) = range.digit(probability);
                    literals[index] = updated;
                    node = node << 1 | digit;
                    same = select_unpredictable(digit == 0, same_if_0, same_if_1);
                    index = select_unpredictable(digit == 0, if_0, if_1);
                    probability = select_unpredictable(digit == 0, next[0], next[1]);
                }
                state = if state < 10 { state - 3 } else { state - 6 };
            }
            last = node & 0xff;
            ring[at] = last as u8;
            at += 1;
            continue;
        }
        let length;
        if range.bit(&mut model.is_repeated[state]) {
            let available = at.wrapping_add(reach).min(dictionary);
            if range.bit(&mut model.is_not_last[state]) {
                let distance;
                if range.bit(&mut model.is_not_second[state]) {
                    if range.bit(&mut model.is_not_third[state]) {
                        distance = distance3;
                        distance3 = distance2;
                    } else {
                        distance = distance2;
                    }
                    distance2 = distance1;
                } else {
                    distance = distance1;
                }
                distance1 = distance0;
                distance0 = distance;
            } else if !range.bit(&mut model.is_long[state][position]) {
                if distance0 as usize >= available {
                    result = Err(Invalid);
                    break;
                }
                let distance = distance0 as usize + 1;
                watch.refer(at, distance, 1, ring.len());
                last = usize::from(ring[source(ring, at, distance)]);
                ring[at] = last as u8;
                at += 1;
                state = if state < LITERAL_STATES { 9 } else { 11 };
                continue;
            }
            length = match_length(&mut range, &mut model.repeated_lengths, position);
            state = if state < LITERAL_STATES { 8 } else { 11 };
        } else {
            (distance3, distance2, distance1) = (distance2, distance1, distance0);
            length = match_length(&mut range, &mut model.match_lengths, position);
            state = if state < LITERAL_STATES { 7 } else { 10 };
            let slot = range.tree::<6, 64>(&mut model.slots[(length - 2).min(3)]) as u32;
            distance0 = slot;
            if slot >= 4 {
                let bits = (slot >> 1) - 1;
                distance0 = (2 | slot & 1) << bits;
                if slot < 14 {
                    let first = distance0.wrapping_sub(slot) as usize;
                    distance0 |= range.reverse_tree(&mut model.footers, first, bits);
                } else {
                    distance0 = distance0.wrapping_add(range.direct(bits - 4) << 4);
                    distance0 = distance0.wrapping_add(range.reverse_tree(&mut model.align, 0, 4));
                    if distance0 == END_MARKER {
                        result = Ok(Stop::EndMarker);
                        break;
                    }
                }
            }
        }
        if distance0 as usize >= at.wrapping_add(reach).min(dictionary) {
            result = Err(Invalid);
            break;
        }
        let distance = distance0 as usize + 1;
        let now = length.min(end - at);
        watch.refer(at, distance, now, ring.len());
        copy(ring, at, distance, now);
        at += now;
        *pending = length - now;
        last = usize::from(ring[at - 1]);
    }
    (decoder.range, decoder.code, decoder.at) = (range.range, range.code, range.at);
    model.state = state;
    model.distances = [distance0, distance1, distance2, distance3];
    history.advance(at - begin);
    result
}

#[inline(always)]
fn match_length(range: &mut RangeDecoder<'_>, lengths: &mut Lengths, position: usize) -> usize {
    if !range.bit(&mut lengths.beyond_low) {
        2 + range.tree::<3, 8>(&mut lengths.low[position])
    } else if !range.bit(&mut lengths.beyond_middle) {
        10 + range.tree::<3, 8>(&mut lengths.middle[position])
    } else {
        18 + range.tree::<8, 256>(&mut lengths.high)
    }
}

/// Ring index of the byte `distance` before `at`.
#[inline(always)]
fn source(ring: &[u8], at: usize, distance: usize) -> usize {
    if at >= distance { at - distance } else { at.wrapping_add(ring.len()).wrapping_sub(distance) }
}

/// Copies `length` bytes from `distance` before `at` to `at`. May write up to [`WIDE`] bytes more.
#[inline(always)]
fn copy(ring: &mut [u8], at: usize, distance: usize, length: usize) {
    let source = source(ring, at, distance);
    let most = ring.len() - WIDE;
    if distance >= WIDE && at.max(source) + length <= most {
        let mut done = 0;
        while done < length {
            ring.copy_within(source + done..source + done + WIDE, at + done);
            done += WIDE;
        }
    } else if distance == 1 && source < at {
        let byte = ring[source];
        ring[at..at + length].fill(byte);
    } else {
        copy_bytewise(ring, at, source, length);
    }
}

#[inline(never)]
fn copy_bytewise(ring: &mut [u8], at: usize, mut source: usize, length: usize) {
    for to in at..at + length {
        ring[to] = ring[source];
        source += 1;
        if source == ring.len() {
            source = 0;
        }
    }
}
