//! Decoding without the history before it: over two made-up histories that differ in every byte, at once. Where the
//! results differ, a byte came from the history, and the two values say from where. The symbols are decoded once and by
//! the loop that decodes all others, which no decoder of marked symbols is.

/// The two made-up histories, of so many bytes (at most 32 KiB).
pub(super) fn histories(length: usize) -> [Vec<u8>; 2] {
    let first = |index: usize| index as u8;
    let second = |index: usize| (index as u8).wrapping_add(1).wrapping_add((index >> 8) as u8);
    [(0..length).map(first).collect(), (0..length).map(second).collect()]
}

/// Where in the history a byte came from that was decoded as these two; `None` if it did not come from there.
#[inline]
pub(super) fn origin(first: u8, second: u8) -> Option<usize> {
    let upper = second.wrapping_sub(first).checked_sub(1)?;
    Some(usize::from(upper) << 8 | usize::from(first))
}

/// Puts bytes of the true `history` in the place of those in `first` that came from it, as `second` tells. The history
/// is of as many bytes as those made up; False if a byte came from before the last `known` bytes of it.
pub(super) fn resolve(first: &mut [u8], second: &[u8], history: &[u8], known: usize) -> bool {
    /// Compared at once: most of these are equal, or differ in many bytes.
    const STRIDE: usize = 32;
    let unknown = history.len().saturating_sub(known);
    let comes_from_unknown = |(&first, &second): (&u8, &u8)| origin(first, second).is_some_and(|at| at < unknown);
    if unknown > 0 && first.iter().zip(second).any(comes_from_unknown) {
        return false;
    }
    // What a byte is, by how much its second value lies above the first one, less 1, and the first one: no branch, as
    // none could be foretold. Those that did not come from the history are equal: with 1 less that is 255.
    let Ok(mut bytes) = Box::<[u8; 1 << 16]>::try_from(vec![0; 1 << 16]) else { return false };
    bytes[..history.len()].copy_from_slice(history);
    for (byte, value) in bytes[0xff00..].iter_mut().zip(0..=255) {
        *byte = value;
    }
    for (first, second) in first.chunks_mut(STRIDE).zip(second.chunks(STRIDE)) {
        if first == second {
            continue;
        }
        for (first, &second) in first.iter_mut().zip(second) {
            let above = second.wrapping_sub(*first).wrapping_sub(1);
            *first = bytes[usize::from(u16::from_be_bytes([above, *first]))];
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_history_is_told_from_all_others() {
        let [first, second] = histories(32 << 10);
        for index in 0..first.len() {
            assert_eq!(origin(first[index], second[index]), Some(index));
        }
        for byte in 0..=255 {
            assert_eq!(origin(byte, byte), None);
        }
    }

    #[test]
    fn what_came_from_the_history_is_put_in_place() {
        let [first, second] = histories(32 << 10);
        let history: Vec<u8> = (0..32 << 10).map(|index: usize| (index * 7 / 3) as u8).collect();
        let mut bytes = [&b"a"[..], &first[100..300], b"b", &first[32000..]].concat();
        let others = [&b"a"[..], &second[100..300], b"b", &second[32000..]].concat();
        let expected = [&b"a"[..], &history[100..300], b"b", &history[32000..]].concat();
        let mut again = bytes.clone();
        assert!(resolve(&mut bytes, &others, &history, history.len() - 100));
        assert_eq!(bytes, expected);
        assert!(!resolve(&mut again, &others, &history, history.len() - 101));
    }
}
