//! How far apart the seek points of a first pass are.

use crate::Options;

/// Of 100 bytes of the compressed stream, what all states together may take where points are closer than they must be.
const SHARE: u64 = 1;
/// Decoded bytes between two members of a file that begin points, at least, where points may be closer than they must
/// be.
const LEAST: u64 = 512 << 10;
/// The same between two points with states. Resuming, and decoding to the end of a piece, takes about as long as
/// decoding 256 KiB, so that closer ones would gain little.
const LEAST_INSIDE: u64 = 192 << 10;
/// Behind a state that was not worth it, the next one is made so many decoded bytes further on at least.
const LEAST_BEHIND_REFUSED: u64 = 96 << 10;
/// Bytes that a point takes in an index beside its state.
const ROW: u64 = 48;
/// Bytes of a state, before there is one to go by.
const GUESS: u64 = 2 << 10;
/// A state that is as large as expected is taken at so many hundredths of the distance that would be right if all
/// states were alike: large ones are refused, which leaves more for the others.
const EAGERNESS: u128 = 80;
/// Of the distance that would be right for a state as large as expected, in hundredths: from there on states are made.
/// To make one takes about as long as decoding 80 KB, and what is refused was made in vain.
const LOOKED_FROM: u64 = 130;

/// Decides where seek points are, from what those so far have taken. It depends on the stream alone: the same one has
/// the same points whatever decodes it.
///
/// A read decodes half of the distance between two points, on average. For what all states together take, that is
/// least if each distance goes with the square root of what the state takes: points are close where they are cheap.
#[derive(Debug)]
pub(crate) struct Spacing {
    /// Decoded bytes between two points at most.
    most: u64,
    /// Points may be closer.
    is_closer: bool,
    /// Bytes that points have taken.
    spent: u64,
    /// Bytes that the state of the next one will take, as far as one can tell.
    expected: u64,
    /// The sum of all distances so far, each times the [`root`] of what its point took.
    weight: u128,
    /// Decoded bytes behind the last point before another one is looked for.
    least: u64,
}

/// 16 times the square root of what a point with a state of `length` bytes takes.
fn root(length: u64) -> u128 {
    u128::from((length.saturating_add(ROW) << 8).isqrt())
}

impl Spacing {
    pub(crate) fn new(options: &Options) -> Self {
        let (most, is_closer) = (options.seek_point_spacing.max(1), options.closer_seek_points);
        let least = if is_closer { most.min(LEAST_INSIDE) } else { most };
        Self { most, is_closer, spent: 0, expected: GUESS, weight: 0, least }
    }

    /// Decoded bytes between two points with states at least.
    pub(crate) fn least(&self) -> u64 {
        self.least
    }

    /// The same between two that need none.
    pub(crate) fn least_without_states(&self) -> u64 {
        if self.is_closer { self.most.min(LEAST) } else { self.most }
    }

    /// True if there may be a point at byte `compressed` of the stream, so many decoded bytes behind the last one.
    pub(crate) fn is_due(&self, behind_last: u64, compressed: u64) -> bool {
        behind_last >= self.most || behind_last >= self.least && self.affords(self.expected, compressed)
    }

    /// True if a point there with a state of `length` bytes is worth it: then it counts as the last one.
    pub(crate) fn takes(&mut self, length: usize, behind_last: u64, compressed: u64) -> bool {
        let length = length as u64;
        let is_taken = behind_last >= self.most || {
            let weight = self.weight_with(length, behind_last);
            self.affords(length, compressed) && behind_last >= self.distance(weight, length, compressed)
        };
        self.expected = (3 * self.expected + length) / 4;
        if is_taken {
            self.note(length, behind_last);
        }
        if self.is_closer {
            let right = self.distance(self.weight, self.expected, compressed);
            let least = (right.saturating_mul(LOOKED_FROM) / 100).max(LEAST_INSIDE);
            let behind_refused = if is_taken { 0 } else { behind_last.saturating_add(LEAST_BEHIND_REFUSED) };
            self.least = least.max(behind_refused).min(self.most);
        }
        is_taken
    }

    /// Takes note of a point without a state.
    pub(crate) fn note_without_state(&mut self, behind_last: u64) {
        self.note(0, behind_last);
    }

    fn note(&mut self, length: u64, behind_last: u64) {
        self.weight = self.weight_with(length, behind_last);
        self.spent = self.spent.saturating_add(length + ROW);
    }

    fn affords(&self, length: u64, compressed: u64) -> bool {
        self.spent.saturating_add(length).saturating_add(ROW) <= compressed / 100 * SHARE
    }

    fn weight_with(&self, length: u64, behind_last: u64) -> u128 {
        self.weight.saturating_add(root(length).saturating_mul(u128::from(behind_last)))
    }

    /// How far from the last point one with a state of `length` bytes should be.
    fn distance(&self, weight: u128, length: u64, compressed: u64) -> u64 {
        let may_spend = u128::from((compressed / 100 * SHARE).max(1));
        let distance = weight.saturating_mul(root(length)).saturating_mul(EAGERNESS) / (may_spend * (100 << 8));
        u64::try_from(distance).unwrap_or(u64::MAX).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoded offsets of the points of a stream of 400 MiB in blocks of 64 KiB, and the bytes that their states take,
    /// which differ from block to block.
    fn points_of(options: &Options, ratio: u64, state: impl Fn(u64) -> usize) -> (Vec<u64>, usize) {
        let (mut spacing, mut points, mut taken) = (Spacing::new(options), vec![0], 0);
        for decoded in (0..400 << 20).step_by(64 << 10) {
            let behind_last = decoded - points.last().copied().unwrap_or(0);
            let (state, compressed) = (state(decoded), decoded / ratio);
            if spacing.is_due(behind_last, compressed) && spacing.takes(state, behind_last, compressed) {
                points.push(decoded);
                taken += state;
            }
        }
        (points, taken)
    }

    fn points(options: &Options, ratio: u64, state: usize) -> (Vec<u64>, usize) {
        points_of(options, ratio, |_| state)
    }

    fn gaps(points: &[u64]) -> (u64, u64) {
        let gaps = points.windows(2).map(|two| two[1] - two[0]);
        (gaps.clone().min().unwrap_or(0), gaps.max().unwrap_or(0))
    }

    #[test]
    fn points_are_as_close_as_their_share_allows() {
        let options = Options { closer_seek_points: true, ..Options::default() };
        let (far, taken) = points(&options, 4, 3000);
        assert!(taken <= 1 << 20 && taken > 900 << 10, "{taken}");
        let (least, most) = gaps(&far);
        assert!(least >= LEAST_INSIDE && (1 << 20..=2 << 20).contains(&most), "{least} {most}");
        // States that take nothing, behind the first, of which nobody knows that; and some that take too much.
        assert_eq!(gaps(&points(&options, 1, 1).0[1..]), (LEAST_INSIDE, LEAST_INSIDE));
        assert_eq!(gaps(&points(&options, 100, 32 << 10).0).1, options.seek_point_spacing);
    }

    #[test]
    fn points_are_close_where_states_are_small() {
        let options = Options { closer_seek_points: true, ..Options::default() };
        // Of 16 MiB the first half has small ones.
        let is_cheap = |decoded: u64| decoded % (16 << 20) < 8 << 20;
        let (far, taken) = points_of(&options, 3, |decoded| if is_cheap(decoded) { 500 } else { 4500 });
        assert!(taken <= (400 << 20) / 3 / 100, "{taken}");
        let cheap = far.iter().filter(|&&decoded| is_cheap(decoded)).count();
        // By the square root it would be three times as many, if each region went on for long.
        assert!(2 * cheap > 3 * (far.len() - cheap), "{cheap} of {}", far.len());
        // That a read decodes, on average, against the same number of bytes spent at one distance for all.
        let squares: u64 = far.windows(2).map(|two| (two[1] - two[0]).pow(2) >> 20).sum();
        let mean = (squares << 20) / 2 / (400 << 20);
        let (even, of_even) = points_of(&options, 3, |_| 2500);
        assert!(of_even + 48 * even.len() >= (taken + 48 * far.len()) * 9 / 10);
        let alike = (400 << 20) / even.len() as u64 / 2;
        assert!(mean < alike * 9 / 10, "{mean} {alike}");
    }

    #[test]
    fn a_given_spacing_is_kept() {
        for spacing in [64 << 10, 1 << 20, 16 << 20] {
            let options = Options { seek_point_spacing: spacing, ..Options::default() };
            assert_eq!(gaps(&points(&options, 4, 10).0), (spacing, spacing));
        }
    }
}
