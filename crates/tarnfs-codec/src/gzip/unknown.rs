//! Decoding without the history before it: twice, over two made-up histories that differ in every byte. Where the results
//! differ, a byte came from the history, and the two values say from where. Both run at the speed of the inflate, which no decoder of
//! marked symbols does.

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

/// Puts bytes of the true `history` in the place of those in `first` that came from it, as `second` tells. The history is of as many bytes
/// as those made up; False if a byte came from before the last `known` bytes of it.
pub(super) fn resolve(first: &mut [u8], second: &[u8], history: &[u8], known: usize) -> bool {
    /// Compared at once: most of these are equal, or differ in many bytes.
    const STRIDE: usize = 32;
    let unknown = history.len().saturating_sub(known);
    let mut least = usize::MAX;
    for (first, second) in first.chunks_mut(STRIDE).zip(second.chunks(STRIDE)) {
        if first == second {
            continue;
        }
        for (byte, &other) in first.iter_mut().zip(second) {
            if let Some(origin) = origin(*byte, other) {
                least = least.min(origin);
                *byte = history.get(origin).copied().unwrap_or(0);
            }
        }
    }
    least >= unknown
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
