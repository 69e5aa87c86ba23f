//! The inner loop of inflate: decodes while input and output are far from their ends, so that it need not look at
//! them at each symbol. It loads 8 bytes at once, keeps up to three literals per load, looks the next code up before
//! it copies a match, and copies matches in words beyond their ends.

use super::bits::BitReader;
use super::codes::{self, Codes, DISTANCE_BITS, END, LITERAL_BITS, LITERALS, SPECIAL, SUBTABLE};

/// One round loads at most 4 times, each from at most 7 bytes further.
const INPUT_MARGIN: usize = 40;
/// One round writes up to 5 literals and a match of 258 bytes, and up to 32 bytes behind it.
const OUTPUT_MARGIN: usize = 320;

/// Why the loop stopped.
pub(super) enum Stopped {
    /// The input or the output comes near its end.
    Margin,
    /// The block ended.
    BlockEnd,
    /// The data is not valid.
    Invalid(&'static str),
}

/// Decodes symbols of a block to each of `outputs` from `written` on. Its history is what was decoded before it.
pub(super) fn decode<const N: usize>(
    codes: &Codes,
    reader: &mut BitReader,
    outputs: &mut [&mut [u8]; N],
    written: &mut usize,
    histories: &[&[u8]; N],
) -> Stopped {
    let room = room_in(outputs);
    if reader.input.len() - reader.next < INPUT_MARGIN || room - *written < OUTPUT_MARGIN {
        return Stopped::Margin;
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { decode_bmi2(codes, reader, outputs, written, histories) };
    }
    decode_inline(codes, reader, outputs, written, histories)
}

/// With shifts that neither need a certain register nor set flags.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi2")]
fn decode_bmi2<const N: usize>(
    codes: &Codes,
    reader: &mut BitReader,
    outputs: &mut [&mut [u8]; N],
    written: &mut usize,
    histories: &[&[u8]; N],
) -> Stopped {
    decode_inline(codes, reader, outputs, written, histories)
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "it is compiled for several processors")]
fn decode_inline<const N: usize>(
    codes: &Codes,
    reader: &mut BitReader,
    outputs: &mut [&mut [u8]; N],
    written: &mut usize,
    histories: &[&[u8]; N],
) -> Stopped {
    let input = reader.input;
    let (input_limit, output_limit) = (input.len() - INPUT_MARGIN, room_in(outputs) - OUTPUT_MARGIN);
    let mut starts = outputs.each_mut().map(|output| output.as_mut_ptr());
    // Only the 6 lowest bits of `count` count in here: the others are whatever entries have there.
    let (mut next, mut buffer, mut count, mut at) = (reader.next, reader.buffer, reader.count, *written);
    let Some((literals, distances)) = codes.tables() else { return Stopped::Invalid("no codes") };

    macro_rules! refill {
        () => {
            // SAFETY: a round begins at or before `input_limit`, and loads less than `INPUT_MARGIN` further.
            let word = unsafe { input.as_ptr().add(next).cast::<u64>().read_unaligned() };
            buffer |= u64::from_le(word).wrapping_shl(count);
            next = next.wrapping_add((!count >> 3 & 7) as usize);
            count |= 0b11_1000;
        };
    }
    macro_rules! consume {
        ($entry:expr) => {
            buffer = buffer.wrapping_shr(codes::takes($entry));
            count = count.wrapping_sub($entry);
        };
    }
    macro_rules! literals {
        ($entry:expr) => {
            for start in starts {
                // SAFETY: a round begins at or before `output_limit`, and comes here three times at most, for 2 bytes
                // each.
                unsafe { start.add(at).cast::<[u8; 2]>().write(codes::bytes($entry)) };
            }
            at = at.wrapping_add(codes::literals($entry));
        };
    }
    macro_rules! look_up {
        () => {
            literals.entry(buffer)
        };
    }

    refill!();
    let mut entry = look_up!();
    let stopped = loop {
        if next > input_limit || at > output_limit {
            break Stopped::Margin;
        }
        // At least 56 bits are ready, of which literals take at most 12.
        if entry & LITERALS != 0 {
            consume!(entry);
            literals!(entry);
            entry = look_up!();
            if entry & LITERALS != 0 {
                consume!(entry);
                literals!(entry);
                entry = look_up!();
                if entry & LITERALS != 0 {
                    consume!(entry);
                    literals!(entry);
                    refill!();
                    entry = look_up!();
                    continue;
                }
                // A length takes at most 20 bits, a literal before it included, and a distance without a subtable 22:
                // behind one look-up there are enough.
                refill!();
            }
        }
        if entry & SPECIAL != 0 {
            if entry & SUBTABLE != 0 {
                entry = literals.in_subtable(entry, buffer);
                buffer >>= LITERAL_BITS;
                count = count.wrapping_sub(LITERAL_BITS);
                if entry & LITERALS != 0 {
                    consume!(entry);
                    literals!(entry);
                    refill!();
                    entry = look_up!();
                    continue;
                }
            }
            if entry & END != 0 {
                consume!(entry);
                break Stopped::BlockEnd;
            }
            if entry & SPECIAL != 0 {
                break Stopped::Invalid("invalid literal/length code");
            }
        }
        literals!(entry);
        let length = codes::length(entry, buffer);
        consume!(entry);
        let mut entry_of_distance = distances.entry(buffer);
        if entry_of_distance & SPECIAL != 0 {
            if entry_of_distance & SUBTABLE == 0 {
                break Stopped::Invalid("invalid distance code");
            }
            refill!();
            entry_of_distance = distances.in_subtable(entry_of_distance, buffer);
            buffer >>= DISTANCE_BITS;
            count = count.wrapping_sub(DISTANCE_BITS);
            if entry_of_distance & SPECIAL != 0 {
                break Stopped::Invalid("invalid distance code");
            }
        }
        let distance = codes::distance(entry_of_distance, buffer);
        consume!(entry_of_distance);
        refill!();
        entry = look_up!();
        if distance > at {
            if histories.iter().any(|history| distance - at > history.len()) {
                break Stopped::Invalid("invalid distance too far back");
            }
            copy_from_histories(outputs, at, histories, length, distance);
            // Pointers taken before the outputs were borrowed again may not be used any more.
            starts = outputs.each_mut().map(|output| output.as_mut_ptr());
        } else {
            for start in starts {
                // SAFETY: `distance` is at least 1 and at most `at`; `at` is at most `output_limit` and 5, `length` at
                // most 258.
                unsafe { copy(start.add(at), length, distance) };
            }
        }
        at = at.wrapping_add(length);
    };
    (reader.next, reader.buffer, reader.count, *written) = (next, buffer, count & 63, at);
    stopped
}

/// Bytes that each of them has room for.
pub(super) fn room_in(outputs: &[&mut [u8]]) -> usize {
    outputs.iter().map(|output| output.len()).min().unwrap_or(0)
}

/// Apart from the loop, which has no registers to spare for it.
#[cold]
#[inline(never)]
fn copy_from_histories<const N: usize>(
    outputs: &mut [&mut [u8]; N],
    at: usize,
    histories: &[&[u8]; N],
    length: usize,
    distance: usize,
) {
    for (output, history) in outputs.iter_mut().zip(histories) {
        copy_from_history(output, at, history, length, distance);
    }
}

/// Copies a match that begins before `output`; `history` reaches back far enough.
pub(super) fn copy_from_history(output: &mut [u8], at: usize, history: &[u8], length: usize, distance: usize) {
    let from = history.len() - (distance - at);
    let first = length.min(distance - at);
    output[at..at + first].copy_from_slice(&history[from..from + first]);
    for position in at + first..at + length {
        output[position] = output[position - distance];
    }
}

/// Copies `length` bytes from `distance` bytes before `to`, byte after byte in effect.
///
/// # Safety
/// The `distance` bytes before `to` and the `length` + 32 bytes from `to` on are in one buffer; `distance` is not 0.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it is compiled for several processors")]
unsafe fn copy(mut to: *mut u8, length: usize, distance: usize) {
    type Wide = [u8; 16];
    // SAFETY: each write begins before `end` or in the first 32 bytes, and is at most 16 bytes long; each read ends
    // before what is written with it, as `distance` is at least the width of both, or what it reads too far is
    // overwritten in the next step.
    unsafe {
        let end = to.add(length);
        let mut from = to.sub(distance);
        if distance >= 16 {
            to.cast::<Wide>().write_unaligned(from.cast::<Wide>().read_unaligned());
            to.add(16).cast::<Wide>().write_unaligned(from.add(16).cast::<Wide>().read_unaligned());
            if length > 32 {
                loop {
                    to = to.add(32);
                    from = from.add(32);
                    to.cast::<Wide>().write_unaligned(from.cast::<Wide>().read_unaligned());
                    to.add(16).cast::<Wide>().write_unaligned(from.add(16).cast::<Wide>().read_unaligned());
                    if to.add(32) >= end {
                        break;
                    }
                }
            }
        } else if distance == 1 {
            let bytes = [*from; 16];
            loop {
                to.cast::<Wide>().write_unaligned(bytes);
                to = to.add(16);
                if to >= end {
                    break;
                }
            }
        } else {
            // As far as the bytes are there; at least 8 of them where the distance is 8 or more.
            let step = distance.min(8);
            loop {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
                to = to.add(step);
                from = from.add(step);
                if to >= end {
                    break;
                }
            }
        }
    }
}
