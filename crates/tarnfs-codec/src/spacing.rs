//! How far apart the seek points of a first pass are.
//!
//! Where points may be closer than they must be, their states take about a hundredth of the compressed stream. Files
//! are mostly read from their start. So what a point costs is compared with what it spares: the bytes that are decoded
//! in vain before each file that begins behind the last point, and before other bytes, which count less. Where small
//! files are many, points are closer; inside of large files they are further apart.

use crate::{FileStarts, Options};

/// Of 1000 bytes of the compressed stream, what all states up to there may take where points are closer than they must
/// be. A whole stream takes about 10, unless files begin everywhere.
const SHARE: u64 = 20;
/// Decoded bytes between two points at least, where points may be closer than they must be. Resuming, and decoding to
/// the end of a piece, takes about as long as decoding 256 KiB, so that closer ones would gain little.
const LEAST: u64 = 128 << 10;
/// The same where members begin.
const LEAST_OF_MEMBERS: u64 = 384 << 10;
/// The same behind the start of a member, as the next one may be near and needs no state.
const LEAST_BEHIND_MEMBER: u64 = 512 << 10;
/// Decoded bytes from one look to the next: looking takes time of a first pass that has one thread.
const LOOK: u64 = 128 << 10;
/// So many bytes inside of files count as one start of a file.
const BYTES_FOR_START: f64 = (128 << 10) as f64;
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
    /// Decoded bytes behind the last point at which it looks next.
    look: u64,
    /// A member has begun behind the last point.
    has_member: bool,
    /// Bytes that points have taken.
    spent: u64,
    /// Bytes that the state of the next one will take, as far as one can tell.
    expected: u64,
    starts: Option<Starts>,
}

/// The starts of files in what has passed.
#[derive(Debug)]
struct Starts {
    of: FileStarts,
    /// Decoded bytes that have passed.
    passed: u64,
    /// How much of a magic they end with.
    matched: usize,
    /// How many there were.
    all: u64,
    /// The sum of the distances of those behind the last point from that, which was at byte `last`.
    distances: u64,
    last: u64,
}

impl Starts {
    /// `None` where nobody knows what they look like, or how far points are apart is given.
    fn new(options: &Options) -> Option<Self> {
        let of = options.file_starts.filter(|of| of.block > 0 && !of.magic.is_empty() && options.closer_seek_points)?;
        Some(Self { of, passed: 0, matched: 0, all: 0, distances: 0, last: 0 })
    }

    /// Takes note of `bytes`, which begin at byte `at` of the stream. What has passed before is left out.
    fn pass(&mut self, at: u64, bytes: &[u8]) {
        let known = self.passed.saturating_sub(at).min(bytes.len() as u64);
        let (bytes, at) = (&bytes[known as usize..], at + known);
        if bytes.is_empty() {
            return;
        }
        let FileStarts { block, at: place, magic } = self.of;
        let (mut from, matched) = (0, std::mem::take(&mut self.matched));
        let matched = if at == self.passed { matched } else { 0 };
        self.passed = at + bytes.len() as u64;
        if matched > 0 {
            from = self.compare(at, bytes, &magic[matched..], matched);
        }
        let in_block = (at + from as u64) % block;
        let mut next = from as u64 + (place + block - in_block) % block;
        while let Some(rest) =
            usize::try_from(next).ok().and_then(|next| bytes.get(next..)).filter(|rest| !rest.is_empty())
        {
            self.compare(at + next, rest, magic, 0);
            next += block;
        }
    }

    /// Looks whether `bytes`, at byte `at` of the stream, begin with `wanted`, before which so much of the magic was
    /// there. Returns how many of them were looked at.
    fn compare(&mut self, at: u64, bytes: &[u8], wanted: &[u8], matched: usize) -> usize {
        let common = wanted.len().min(bytes.len());
        if wanted[..common] == bytes[..common] {
            if common < wanted.len() {
                self.matched = matched + common;
            } else {
                self.all += 1;
                let distance = at.saturating_sub(matched as u64).saturating_sub(self.last);
                // One block may be any length, and there is no point inside of it.
                self.distances = self.distances.saturating_add(distance);
            }
        }
        common
    }

    /// There is a point at byte `at` of the stream.
    fn begin_chunk(&mut self, at: u64) {
        (self.distances, self.last) = (0, at);
    }

    /// True if a point at byte `decoded`, so many bytes behind the last one, spares as much as points spare that are so
    /// far `apart` where nothing is known of files.
    fn is_worth(starts: Option<&Self>, decoded: u64, behind_last: u64, apart: f64) -> bool {
        let (distances, all) = starts.map_or((0, 0), |starts| (starts.distances, starts.all));
        let (decoded, behind_last) = (decoded as f64, behind_last as f64);
        // Where there are many files, what lies inside of large ones pays for that.
        let many = (all as f64 * f64::from(1 << 20) / decoded).min(1.0);
        2.0 * distances as f64 * BYTES_FOR_START + behind_last * behind_last >= apart * apart * (1.0 + 1.25 * many)
    }
}

impl Spacing {
    pub(crate) fn new(options: &Options) -> Self {
        let most = options.seek_point_spacing.max(1);
        let least = if options.closer_seek_points { most.min(LEAST) } else { most };
        let starts = Starts::new(options);
        Self { least, most, look: least, has_member: false, spent: 0, expected: GUESS, starts }
    }

    /// Decoded bytes behind the last point before which no other one is due.
    pub(crate) fn next_look(&self) -> u64 {
        if self.has_member { self.look.max(LEAST_BEHIND_MEMBER.min(self.most)) } else { self.look }
    }

    /// Decoded bytes between two points at least where a member begins, which needs no state.
    pub(crate) fn least_of_members(&self) -> u64 {
        if self.least < self.most { LEAST_OF_MEMBERS } else { self.most - self.most / 4 }
    }

    /// Takes note of a member that begins, and gets no point.
    pub(crate) fn begin_member(&mut self) {
        self.has_member = true;
    }

    /// Takes note of decoded `bytes`, which begin at byte `at` of the stream.
    pub(crate) fn pass(&mut self, at: u64, bytes: &[u8]) {
        if let Some(starts) = &mut self.starts {
            starts.pass(at, bytes);
        }
    }

    /// True if there should be a point at byte `compressed` of the stream, so many decoded bytes behind the last one,
    /// which was at byte `last` of these.
    pub(crate) fn is_due(&mut self, last: u64, behind_last: u64, compressed: u64) -> bool {
        if behind_last < self.next_look() {
            return false;
        }
        let is_due = behind_last >= self.most || self.is_worth(last + behind_last, behind_last, compressed);
        if !is_due {
            self.look = (behind_last / LOOK + 1) * LOOK;
        }
        is_due
    }

    /// True if it spares enough.
    fn is_worth(&self, decoded: u64, behind_last: u64, compressed: u64) -> bool {
        let takes = self.expected + ROW;
        if self.spent + takes > compressed / 1000 * SHARE {
            return false;
        }
        // How far apart they are where they take a hundredth.
        let apart = takes as f64 * 100.0 * decoded as f64 / compressed as f64;
        Starts::is_worth(self.starts.as_ref(), decoded, behind_last, apart)
    }

    /// Takes note of a point at byte `decoded`, with a state of `length` bytes.
    pub(crate) fn spend(&mut self, decoded: u64, length: usize) {
        let length = length as u64;
        self.spent += length + ROW;
        (self.look, self.has_member) = (self.least, false);
        if let Some(starts) = &mut self.starts {
            starts.begin_chunk(decoded);
        }
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
            if spacing.is_due(last, decoded - last, decoded / ratio) {
                spacing.spend(decoded, state);
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
        assert!(taken <= 1 << 20 && taken > 850 << 10, "{taken}");
        let (least, most) = gaps(&far);
        assert!(least >= LEAST && (1 << 20..=2 << 20).contains(&most), "{least} {most}");
        // States that take nothing, once that is known, and some that take too much.
        assert_eq!(gaps(&points(&options, 1, 1).0), (LEAST, 2 * LEAST));
        assert_eq!(gaps(&points(&options, 100, 32 << 10).0).1, options.seek_point_spacing);
    }

    const TAR: FileStarts = FileStarts { block: 512, at: 257, magic: b"ustar" };

    fn closer() -> Options {
        Options { closer_seek_points: true, file_starts: Some(TAR), ..Options::default() }
    }

    #[test]
    fn starts_are_found_however_the_stream_is_cut() {
        let mut stream = vec![b'u'; 20 * 512 + 100];
        for (block, magic) in [(0, "ustar"), (3, "ustar"), (4, "usta "), (7, "ustar  "), (19, "ustar")] {
            stream[block * 512 + 257..][..magic.len()].copy_from_slice(magic.as_bytes());
        }
        // It counts only where it belongs.
        stream[5 * 512 + 100..][..5].copy_from_slice(b"ustar");
        for length in [1, 2, 3, 4, 5, 7, 255, 512, 1000, stream.len()] {
            let mut starts = Starts::new(&closer()).unwrap();
            for (number, part) in stream.chunks(length).enumerate() {
                starts.pass((number * length) as u64, part);
                // What has passed does not count again.
                starts.pass(0, &stream[..number * length]);
            }
            assert_eq!((starts.all, starts.distances), (4, 512 * (3 + 7 + 19) + 4 * 257), "{length}");
        }
        // However many there are in one block.
        let mut starts = Starts::new(&closer()).unwrap();
        starts.distances = u64::MAX - 1;
        starts.pass(0, &stream);
        assert_eq!(starts.distances, u64::MAX);
        // What is left out may have begun a magic.
        let mut starts = Starts::new(&closer()).unwrap();
        starts.pass(0, &stream[..259]);
        starts.pass(259 + 512, b"tar");
        assert_eq!(starts.all, 0);
    }

    #[test]
    fn points_are_closer_where_files_begin() {
        let options = closer();
        let mut header = [0; 512];
        header[257..262].copy_from_slice(TAR.magic);
        let (mut spacing, mut points, mut taken) = (Spacing::new(&options), vec![0], 0);
        // Of each 100 MiB the first 30 are files of 8 KiB, the rest one file.
        let is_small = |decoded: u64| decoded % (100 << 20) < 30 << 20;
        for decoded in (0..400_u64 << 20).step_by(8 << 10) {
            let last = points.last().copied().unwrap();
            if decoded % (32 << 10) == 0 && spacing.is_due(last, decoded - last, decoded * 2 / 5) {
                spacing.spend(decoded, 2100);
                points.push(decoded);
                taken += 2100;
            }
            if is_small(decoded) {
                spacing.pass(decoded, &header);
            }
        }
        assert!(taken * 1000 < (400 << 20) * 2 / 5 * SHARE, "{taken}");
        let gaps = |small| {
            let gaps: Vec<u64> =
                points.windows(2).filter(|two| is_small(two[0]) == small).map(|two| two[1] - two[0]).collect();
            gaps.iter().sum::<u64>() / gaps.len() as u64
        };
        assert!(
            gaps(true) < 300 << 10 && (700 << 10..1 << 20).contains(&gaps(false)),
            "{} {}",
            gaps(true),
            gaps(false)
        );
    }

    /// Members of bgzf, pigz and our own begin so often that no state is worth it.
    #[test]
    fn members_that_are_near_come_first() {
        let (mut spacing, mut last, mut points) = (Spacing::new(&closer()), 0, (0, 0));
        let mut header = [0; 512];
        header[257..262].copy_from_slice(TAR.magic);
        for decoded in (0..64_u64 << 20).step_by(16 << 10) {
            let behind_last = decoded - last;
            if decoded % (128 << 10) == 0 && decoded > 0 {
                if behind_last >= spacing.least_of_members() {
                    spacing.spend(decoded, 0);
                    (last, points.0) = (decoded, points.0 + 1);
                } else {
                    spacing.begin_member();
                }
            } else if spacing.is_due(last, behind_last, decoded / 2) {
                spacing.spend(decoded, 2000);
                (last, points.1) = (decoded, points.1 + 1);
            }
            spacing.pass(decoded, &header);
        }
        assert_eq!(points, ((64 << 20) / (384 << 10), 0));
    }

    #[test]
    fn a_given_spacing_is_kept() {
        for spacing in [64 << 10, 1 << 20, 16 << 20] {
            let options = Options { seek_point_spacing: spacing, ..Options::default() };
            assert_eq!(gaps(&points(&options, 4, 10).0), (spacing, spacing));
        }
    }
}
