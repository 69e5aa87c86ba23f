//! Where points inside a frame are worth what they take.

use super::ahead::LARGEST_FRAME;
use super::frame::FrameHeader;

/// Of 1000 bytes of the compressed stream, what all states together may take.
const SHARE: u64 = 28;
/// The least decoded bytes between two points, and behind the last one.
const LEAST: u64 = 1 << 20;
/// Decoded bytes between two points that are not many: with larger windows only a window lies between them.
const LONG: u64 = 48 << 20;
/// What counts as expected where a state was too large to be made.
const TOO_MUCH: u64 = 64 << 20;

/// Decides where points inside frames are.
pub(super) struct Survey {
    spacing: u64,
    /// Bytes that states have taken.
    spent: u64,
    /// Bytes that the next state will take, as far as one can tell; 0 if one cannot.
    expected: u64,
    /// Offset in the decoded stream of the last point or attempt at one.
    last: u64,
    /// At every block, whatever it takes.
    #[cfg(test)]
    pub(super) everywhere: bool,
}

impl Survey {
    pub(super) fn new(spacing: u64) -> Self {
        Self {
            spacing: spacing.max(LEAST),
            spent: 0,
            expected: 0,
            last: 0,
            #[cfg(test)]
            everywhere: false,
        }
    }

    /// Takes note of a point at the start of a frame.
    pub(super) fn passed(&mut self, decoded: u64) {
        self.last = decoded;
    }

    /// True if a point inside a frame is worth trying at byte `compressed` of the stream and `decoded` of what it
    /// becomes, `before` of them of the frame.
    pub(super) fn is_due(&self, header: &FrameHeader, compressed: u64, decoded: u64, before: u64) -> bool {
        #[cfg(test)]
        if self.everywhere {
            return before > 0;
        }
        // Smaller frames are decoded as a whole where there are threads for it, and points do not depend on that. (A
        // frame may end with a block that is empty.)
        let is_large = header.content.unwrap_or(before) > LARGEST_FRAME as u64;
        let left = header.content.map_or(u64::MAX, |content| content.saturating_sub(before));
        let reach = header.window.min(before);
        // Following the references behind a point takes time in proportion to the window.
        let window = header.window.min(header.content.unwrap_or(u64::MAX));
        let spacing = self.spacing.max((8 * window).min(LONG)).max(window);
        if !is_large || left < LEAST || decoded - self.last < spacing || before < LEAST {
            return false;
        }
        // Before there is a state to go by: an eighth of the window is used, and is compressed like the rest.
        let ratio = compressed.max(1) as f64 / decoded.max(1) as f64;
        let guess = (reach as f64 / 8.0 * ratio) as u64;
        let expected = if self.expected == 0 { guess } else { self.expected };
        self.left(compressed) >= expected
    }

    /// Bytes that states up to byte `compressed` may take beside those that there are.
    fn left(&self, compressed: u64) -> u64 {
        (compressed / 1000 * SHARE).saturating_sub(self.spent)
    }

    /// Takes note of a state of `length` bytes, and tells whether it is worth keeping; `None` is too much for any
    /// point.
    pub(super) fn is_worth(&mut self, length: Option<usize>, compressed: u64, decoded: u64) -> bool {
        self.last = decoded;
        let Some(length) = length.map(|length| length as u64) else {
            self.expected = TOO_MUCH;
            return false;
        };
        self.expected = length;
        #[cfg(test)]
        if self.everywhere {
            return true;
        }
        let is_worth = length <= self.left(compressed);
        if is_worth {
            self.spent += length;
        }
        is_worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader =
        FrameHeader { length: 6, window: 2 << 20, content: None, dictionary: 0, checksum: false };

    #[test]
    fn points_take_no_more_than_their_share() {
        let mut survey = Survey::new(0);
        let (mut states, mut points) = (0, Vec::new());
        // A stream of half the length; states that grow from nothing to more than expected.
        for decoded in (0..400 << 20).step_by(128 << 10) {
            let compressed = decoded / 2;
            if survey.is_due(&HEADER, compressed, decoded, decoded) {
                let state = decoded as usize / 1000;
                if survey.is_worth(Some(state), compressed, decoded) {
                    states += state as u64;
                    points.push(decoded);
                }
            }
            assert!(states * 100 <= compressed * 3, "{states} of {compressed}");
        }
        assert!(points.len() > 20, "{points:?}");
        assert!(points[0] >= LEAST && points.windows(2).all(|two| two[1] - two[0] >= 8 * HEADER.window));
    }

    #[test]
    fn small_frames_have_none() {
        let due = |content: Option<u64>, before| {
            let header = FrameHeader { content, ..HEADER };
            Survey::new(0).is_due(&header, 1 << 40, 1 << 41, before)
        };
        assert!(!due(Some(LARGEST_FRAME as u64), 4 << 20));
        assert!(due(Some(LARGEST_FRAME as u64 + 1), 4 << 20));
        assert!(!due(None, LARGEST_FRAME as u64) && due(None, LARGEST_FRAME as u64 + 1));
        assert!(!due(Some(LARGEST_FRAME as u64 + 1), (16 << 20) - 1000));
        assert!(!due(None, LEAST - 1));
        // What was too large is not tried again soon.
        let mut survey = Survey::new(0);
        assert!(!survey.is_worth(None, 1 << 30, 1 << 20));
        assert!(!survey.is_due(&HEADER, 1 << 31, 1 << 32, 1 << 31));
        assert!(survey.is_due(&HEADER, 1 << 32, 1 << 32, 1 << 31));
    }
}
