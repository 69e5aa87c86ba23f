//! How far apart the seek points of a first pass are.

use crate::Options;

/// Of 100 bytes of the compressed stream, what all states together may take where points are closer than they must be.
const SHARE: u64 = 1;
/// Decoded bytes between two points at least, where points may be closer than they must be. Resuming, and decoding
/// to the end of a piece, takes about as long as decoding 256 KiB, so that closer ones would gain little.
const LEAST: u64 = 512 << 10;
/// Bytes that a point takes in an index beside its state.
const ROW: u64 = 48;
/// Bytes of a state, before there is one to go by.
const GUESS: u64 = 2 << 10;

/// Decides where seek points are, from what those so far have taken. It depends on the stream alone: the same one has
/// the same points whatever decodes it.
#[derive(Debug)]
pub(crate) struct Spacing {
    /// Decoded bytes between two points, at least and at most.
    least: u64,
    most: u64,
    /// Bytes that points have taken.
    spent: u64,
    /// Bytes that the state of the next one will take, as far as one can tell.
    expected: u64,
}

impl Spacing {
    pub(crate) fn new(options: &Options) -> Self {
        let most = options.seek_point_spacing.max(1);
        let least = if options.closer_seek_points { most.min(LEAST) } else { most };
        Self { least, most, spent: 0, expected: GUESS }
    }

    /// Decoded bytes between two points at least.
    pub(crate) fn least(&self) -> u64 {
        self.least
    }

    /// True if there should be a point at byte `compressed` of the stream, so many decoded bytes behind the last one.
    pub(crate) fn is_due(&self, behind_last: u64, compressed: u64) -> bool {
        let may_spend = compressed / 100 * SHARE;
        behind_last >= self.most || behind_last >= self.least && self.spent + self.expected + ROW <= may_spend
    }

    /// Takes note of a point with a state of `length` bytes.
    pub(crate) fn spend(&mut self, length: usize) {
        let length = length as u64;
        self.spent += length + ROW;
        if length > 0 {
            self.expected = (3 * self.expected + length) / 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoded offsets of the points of a stream of 400 MiB in blocks of 64 KiB, and the bytes that their states take.
    fn points(options: &Options, ratio: u64, state: usize) -> (Vec<u64>, usize) {
        let (mut spacing, mut points, mut taken) = (Spacing::new(options), vec![0], 0);
        for decoded in (0..400 << 20).step_by(64 << 10) {
            let last = points.last().copied().unwrap_or(0);
            if spacing.is_due(decoded - last, decoded / ratio) {
                spacing.spend(state);
                points.push(decoded);
                taken += state;
            }
        }
        (points, taken)
    }

    fn gaps(points: &[u64]) -> (u64, u64) {
        let gaps = points.windows(2).map(|two| two[1] - two[0]);
        (gaps.clone().min().unwrap_or(0), gaps.max().unwrap_or(0))
    }

    #[test]
    fn points_are_as_close_as_their_share_allows() {
        let options = Options { closer_seek_points: true, ..Options::default() };
        let (far, taken) = points(&options, 4, 3000);
        assert!(taken <= 1 << 20 && taken > 1000 << 10, "{taken}");
        let (least, most) = gaps(&far);
        assert!(least >= LEAST && (1 << 20..=2 << 20).contains(&most), "{least} {most}");
        // States that take nothing, and some that take too much.
        assert_eq!(gaps(&points(&options, 1, 1).0), (LEAST, LEAST));
        assert_eq!(gaps(&points(&options, 100, 32 << 10).0).1, options.seek_point_spacing);
    }

    #[test]
    fn a_given_spacing_is_kept() {
        for spacing in [64 << 10, 1 << 20, 16 << 20] {
            let options = Options { seek_point_spacing: spacing, ..Options::default() };
            assert_eq!(gaps(&points(&options, 4, 10).0), (spacing, spacing));
        }
    }
}
