//! Looks for where the next frame, stream, file or member begins, behind bytes that are none.
//!
//! Whatever decodes comes to the same place, as what is looked at depends on the stream alone: a decoder that was
//! resumed before such bytes puts the same gap there as the first pass.
//!
//! A header alone proves nothing: a damaged frame may hold files of its own kind, which it stores as they are, and what
//! is taken for the next frame then would be bytes of another file. So what stands behind the header must lead from
//! one part to the next, up to the end ([`leads_on`]); or so far that it lies in nothing that is stored: that is cut
//! into blocks, whose headers move all behind them out of place.
//!
//! What that may cost is bounded for the whole stream ([`Effort`]): anybody can write a file of which each part looks
//! like the start of something that leads far.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

/// Bytes that stand for what is lost where nothing says how much that is. A tar is made of blocks of as many: a gap
/// that keeps to them lets it go on behind.
pub(crate) const GAP: usize = 512;

/// Whoever decodes over what cannot be read looks through it again: behind so many bytes of it there is a seek point.
pub(crate) const LONG_GAP: u64 = 1 << 20;

/// Bytes that are looked at behind a stream of next to nothing. Behind others it is as many as were read before it and
/// these: a small file at the start of a large disk does not cost a look at all of that.
pub(crate) const LOOKED_AT: u64 = 64 << 20;

/// Bytes that are looked at together: at first few, as the next start is often near.
const FIRST_WINDOW: usize = 4 << 10;
const WINDOW: usize = 256 << 10;

/// Bytes that are read where a walk comes to a header.
const READ: usize = 4 << 10;

/// What a step of a walk costs, in bytes that are read: as long as it takes to look through so many.
const STEP: u64 = 64;

/// What all searches in one stream may cost together, in bytes that are read: a few times what there is to read.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    spent: u64,
    most: u64,
}

impl Effort {
    /// A search begins at byte `from` of `source`: it may cost as much as what was read before it is worth.
    pub(crate) fn allow(&mut self, source: &SharedSource, from: u64) {
        let length = source.len().min(from.saturating_add(LOOKED_AT));
        self.most = self.most.max(length.saturating_mul(4).saturating_add(LOOKED_AT));
    }

    /// Counts what something costs. False if that is too much, and from then on.
    pub(crate) fn spend(&mut self, cost: u64) -> bool {
        self.spent = self.spent.saturating_add(cost);
        !self.is_spent()
    }

    /// True if nothing more may be looked for.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent > self.most
    }
}

/// So many places may look like a start and be none, and one more in each 4 KiB. By chance it is one in 2^32 bytes.
const LOOK_ALIKES: u64 = 1000;
const BETWEEN: u64 = 4 << 10;

/// The first place, from byte `from` of `source` on, at which one of the `magics` stands, and of which `is_start` says
/// that it is a start. A magic is four bytes, none of them zero and no two of them the same.
///
/// Holes are jumped over. `None` also where too much only looks like a start, and where the `effort` is spent.
pub(crate) fn next(
    source: &SharedSource,
    from: u64,
    magics: &[[u8; 4]],
    cancel: &Cancel,
    effort: &mut Effort,
    mut is_start: impl FnMut(u64, &mut Effort) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    effort.allow(source, from);
    let mut left = LOOKED_AT.saturating_add(from);
    let (mut look_alikes, mut at, mut window, mut most) = (0_u64, from, Vec::new(), FIRST_WINDOW);
    while let Some(data) = source.next_data(at).filter(|_| left > 0) {
        cancel.check()?;
        at = data;
        let length = source.len().saturating_sub(at).min(left).min(most as u64) as usize;
        if !effort.spend(length as u64) {
            return Ok(None);
        }
        most = (2 * most).min(WINDOW);
        window.resize(length, 0);
        let read = source.read_at(&mut window, at)?;
        let bytes = window.get(..read).unwrap_or_default();
        let mut places: Vec<_> = magics.iter().map(|magic| find(bytes, magic, 0)).collect();
        while let Some(place) = places.iter().copied().flatten().min() {
            let found = at.saturating_add(place as u64);
            let is_start = is_start(found, effort)?;
            if effort.is_spent() {
                return Ok(None);
            }
            if is_start {
                return Ok(Some(found));
            }
            cancel.check()?;
            look_alikes += 1;
            if look_alikes > LOOK_ALIKES + found.saturating_sub(from) / BETWEEN {
                return Ok(None);
            }
            for (next, magic) in places.iter_mut().zip(magics).filter(|(next, _)| **next == Some(place)) {
                *next = find(bytes, magic, place + 1);
            }
        }
        // A magic may go on behind the window.
        let Some(passed) = read.checked_sub(size_of::<[u8; 4]>() - 1).filter(|&passed| passed > 0) else { break };
        at = at.saturating_add(passed as u64);
        left = left.saturating_sub(passed as u64);
    }
    Ok(None)
}

/// The first byte from byte `from` of `source` on that is not zero; `None` if there is none, as far as is looked.
pub(crate) fn nonzero(
    source: &SharedSource,
    from: u64,
    cancel: &Cancel,
    effort: &mut Effort,
) -> io::Result<Option<u64>> {
    effort.allow(source, from);
    let (mut left, mut at, mut window, mut most) = (LOOKED_AT, from, Vec::new(), FIRST_WINDOW);
    while let Some(data) = source.next_data(at).filter(|_| left > 0) {
        cancel.check()?;
        at = data;
        let length = source.len().saturating_sub(at).min(left).min(most as u64) as usize;
        // What nobody may look at is not known to be zeros.
        if !effort.spend(length as u64) {
            return Ok(Some(at));
        }
        most = (2 * most).min(WINDOW);
        window.resize(length, 0);
        let read = source.read_at(&mut window, at)?;
        let bytes = window.get(..read).unwrap_or_default();
        if let Some(place) = bytes.iter().position(|&byte| byte != 0) {
            return Ok(Some(at.saturating_add(place as u64)));
        }
        if read == 0 {
            break;
        }
        at = at.saturating_add(read as u64);
        left = left.saturating_sub(read as u64);
    }
    Ok(None)
}

/// Goes from header to header, and reads little more than these.
pub(crate) struct Walk<'a> {
    source: &'a SharedSource,
    cancel: &'a Cancel,
    effort: &'a mut Effort,
    position: u64,
    /// What was read from byte `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl<'a> Walk<'a> {
    /// From byte `position` on.
    pub(crate) fn new(source: &'a SharedSource, position: u64, cancel: &'a Cancel, effort: &'a mut Effort) -> Self {
        effort.allow(source, position);
        Self { source, cancel, effort, position, bytes: Vec::new(), start: position }
    }

    pub(crate) fn source(&self) -> &'a SharedSource {
        self.source
    }

    pub(crate) fn cancel(&self) -> &'a Cancel {
        self.cancel
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Counts one step, and what else it costs. False if that is too much.
    pub(crate) fn step(&mut self, cost: u64) -> io::Result<bool> {
        self.cancel.check()?;
        Ok(self.effort.spend(cost.saturating_add(STEP)))
    }

    /// The next `length` bytes; fewer at the end of the source, and where nothing more may be read.
    pub(crate) fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        let from = self.position.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let known = from.and_then(|from| Some((from, from.checked_add(length)?)));
        if let Some((from, to)) = known.filter(|&(_, to)| to <= self.bytes.len()) {
            return Ok(&self.bytes[from..to]);
        }
        let left = self.source.len().saturating_sub(self.position);
        let wanted = length.max(READ).min(usize::try_from(left).unwrap_or(usize::MAX));
        self.bytes.resize(wanted, 0);
        self.start = self.position;
        let is_allowed = self.effort.spend(wanted as u64);
        let read = if is_allowed { self.source.read_at(&mut self.bytes, self.start)? } else { 0 };
        self.bytes.truncate(read);
        Ok(&self.bytes[..length.min(read)])
    }

    /// Goes on by `count` bytes; false if the source ends before.
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        let end = self.position.checked_add(count).filter(|&end| end <= self.source.len());
        self.position = end.unwrap_or(self.position);
        end.is_some()
    }

    /// Goes to byte `position`.
    pub(crate) fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// The next byte that is not zero; `None` if there is none up to the end.
    fn nonzero(&mut self) -> io::Result<Option<u64>> {
        let position = self.position;
        if self.peek(1)?.first().is_some_and(|&byte| byte != 0) {
            return Ok(Some(position));
        }
        nonzero(self.source, position, self.cancel, self.effort)
    }
}

/// What may stand behind a part that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// More of the same, of which little tells that it is.
    More,
    /// Another part, which proves itself.
    Part,
    /// Another frame, stream or file, or the end.
    Start,
    /// Nothing: that was no part.
    Lost,
}

/// What proves a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proof {
    /// Parts that lead further than this lie in nothing that is stored.
    pub(crate) far: u64,
    /// The most bytes that are stored together. A frame, stream or file that begins further on lies in nothing that is
    /// stored, either: behind what is stored the parts are out of place, and lead to no other start. So of a file that
    /// is cut as well, and leads to no end, no more than this is lost in front of the cut.
    pub(crate) stored: u64,
    /// A start is expected there, and one part is enough, with another one behind it.
    pub(crate) is_expected: bool,
    /// Zeros may stand between two starts.
    pub(crate) is_padded: bool,
}

/// True if what stands at the walk's position leads to the end of the source, or to nothing but zeros up to there; or
/// further than what is enough of a `proof`. `pass` passes a part.
///
/// What leads far enough counts although it leads to no end: a file may be damaged at two places, or cut.
pub(crate) fn leads_on(
    walk: &mut Walk,
    proof: Proof,
    mut pass: impl FnMut(&mut Walk) -> io::Result<Behind>,
) -> io::Result<bool> {
    let (start, mut behind) = (walk.position(), Behind::More);
    while walk.step(0)? {
        if behind == Behind::Start {
            match walk.nonzero()? {
                None => return Ok(true),
                Some(at) if proof.is_padded => walk.seek(at),
                Some(_) => {}
            }
        }
        let at = walk.position();
        let next = pass(walk)?;
        if next == Behind::Lost {
            return Ok(false);
        }
        let is_other_start = behind == Behind::Start && at.saturating_sub(start) > proof.stored;
        let is_enough = proof.is_expected && behind != Behind::More;
        if is_enough || is_other_start || at.saturating_sub(start) > proof.far {
            return Ok(!walk.effort.is_spent());
        }
        behind = next;
    }
    Ok(false)
}

/// Where `wanted`, of bytes that are different, is in `bytes`, from byte `from` on. One byte of as many as it has is
/// looked at.
pub(crate) fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let mut last = from.checked_add(wanted.len().checked_sub(1)?)?;
    while let Some(byte) = bytes.get(last) {
        if let Some(behind) = wanted.iter().position(|other| other == byte) {
            let at = last - behind;
            if at >= from && bytes[at..].starts_with(wanted) {
                return Some(at);
            }
        }
        last += wanted.len();
    }
    None
}

/// `head` with `magic` at its start, if just one byte of that is another one there: then all the rest of a header can
/// tell whether it is one.
pub(crate) fn mended(head: &[u8], magic: &[u8]) -> Option<Vec<u8>> {
    let (found, rest) = head.split_at_checked(magic.len())?;
    let wrong = found.iter().zip(magic).filter(|(found, wanted)| found != wanted).count();
    (wrong == 1).then(|| [magic, rest].concat())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tarnfs_source::Source;

    use super::*;
    use crate::testing::source;

    const MAGIC: [u8; 4] = *b"ABCD";

    #[test]
    fn the_first_that_proves_itself_is_found() {
        for at in [0, 1, WINDOW - 4, WINDOW - 3, WINDOW - 1, WINDOW, 2 * WINDOW + 77] {
            let mut bytes = vec![b'A'; 3 * WINDOW];
            bytes[at..at + 4].copy_from_slice(&MAGIC);
            bytes[3 * WINDOW - 4..].copy_from_slice(&MAGIC);
            let source = source(&bytes);
            let found = |from, accepted: u64| {
                let effort = &mut Effort::default();
                next(&source, from, &[MAGIC], &Cancel::default(), effort, |place, _| Ok(place >= accepted)).unwrap()
            };
            assert_eq!(found(0, 0), Some(at as u64));
            assert_eq!(found(at as u64 + 1, 0), Some(3 * WINDOW as u64 - 4));
            assert_eq!(found(0, at as u64 + 1), Some(3 * WINDOW as u64 - 4));
            assert_eq!(found(0, u64::MAX), None);
        }
    }

    /// A terabyte of which all but a few bytes is a hole, or zeros of which nobody knows that.
    #[derive(Debug)]
    struct Disk {
        magic: u64,
        tells_holes: bool,
        read: AtomicU64,
    }

    impl Source for Disk {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            buffer.fill(0);
            self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            for (byte, at) in MAGIC.iter().zip(self.magic..) {
                if let Some(place) = at.checked_sub(offset).and_then(|place| buffer.get_mut(place as usize)) {
                    *place = *byte;
                }
            }
            Ok(buffer.len())
        }

        fn len(&self) -> u64 {
            1 << 40
        }

        fn describe(&self) -> String {
            "a disk".into()
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            if self.tells_holes { (offset < self.magic + 4).then(|| offset.max(self.magic)) } else { Some(offset) }
        }
    }

    #[test]
    fn holes_are_jumped_over_and_not_all_of_a_disk_is_looked_at() {
        for (tells_holes, magic, expected) in
            [(true, 1 << 39, Some(1 << 39)), (false, 1 << 39, None), (false, 10 << 20, Some(10 << 20))]
        {
            let disk = std::sync::Arc::new(Disk { magic, tells_holes, read: AtomicU64::new(0) });
            let source: SharedSource = disk.clone();
            let effort = &mut Effort::default();
            assert_eq!(next(&source, 5, &[MAGIC], &Cancel::default(), effort, |_, _| Ok(true)).unwrap(), expected);
            let read = disk.read.load(Ordering::Relaxed);
            assert!(read < LOOKED_AT + (2 * WINDOW) as u64 && (!tells_holes || read <= WINDOW as u64), "{read}");
        }
    }

    #[test]
    fn among_too_many_that_only_look_like_a_start_none_is_looked_for() {
        let bytes = MAGIC.repeat(5000);
        let mut looked_at = 0;
        let effort = &mut Effort::default();
        let found = next(&source(&bytes), 0, &[MAGIC], &Cancel::default(), effort, |_, _| {
            looked_at += 1;
            Ok(false)
        });
        assert_eq!(found.unwrap(), None);
        assert!((1000..1010).contains(&looked_at), "{looked_at}");
        let cancel = Cancel::default();
        cancel.cancel();
        assert!(next(&source(&bytes), 0, &[MAGIC], &cancel, effort, |_, _| Ok(false)).is_err());
    }

    #[test]
    fn of_several_magics_the_first_one_counts() {
        let bytes = [&[0; 100][..], b"EFGH", &[0; 5000], &MAGIC, b"EFGH", &MAGIC].concat();
        let mut seen = Vec::new();
        let found =
            next(&source(&bytes), 0, &[MAGIC, *b"EFGH"], &Cancel::default(), &mut Effort::default(), |place, _| {
                seen.push(place);
                Ok(place > 5108)
            });
        assert_eq!((found.unwrap(), seen), (Some(5112), vec![100, 5104, 5108, 5112]));
    }

    /// Whatever the look-alikes cost, all of them together cost a few times what there is to read.
    #[test]
    fn what_searches_cost_is_bounded_for_the_whole_stream() {
        let bytes = [&MAGIC[..], &[1; 1000]].concat().repeat(900);
        let (source, cancel, mut effort, mut steps) = (source(&bytes), Cancel::default(), Effort::default(), 0_u64);
        for from in 0..100 {
            let found = next(&source, from, &[MAGIC], &cancel, &mut effort, |at, effort| {
                let mut walk = Walk::new(&source, at, &cancel, effort);
                // A chain of one byte a step, to just before the end.
                leads_on(
                    &mut walk,
                    Proof { far: u64::MAX, stored: u64::MAX, is_expected: false, is_padded: false },
                    |walk| {
                        steps += 1;
                        Ok(if walk.skip(1) { Behind::More } else { Behind::Lost })
                    },
                )
            });
            assert_eq!(found.unwrap(), None);
        }
        let most = (4 * bytes.len() as u64 + LOOKED_AT) / STEP;
        assert!(effort.is_spent() && steps <= most + 1, "{steps}");
    }

    #[test]
    fn a_walk_leads_to_the_end_or_far() {
        // Parts of ten bytes, each of which begins with a one.
        let part = [1, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        let pass = |walk: &mut Walk| {
            let is_part = walk.peek(1)? == [1] && walk.skip(10);
            Ok(if is_part { Behind::Start } else { Behind::Lost })
        };
        let leads = |bytes: &[u8], far, is_expected, is_padded| {
            let source = source(bytes);
            let (cancel, mut effort) = (Cancel::default(), Effort::default());
            let mut walk = Walk::new(&source, 0, &cancel, &mut effort);
            leads_on(&mut walk, Proof { far, stored: u64::MAX, is_expected, is_padded }, pass).unwrap()
        };
        let parts = part.repeat(1000);
        let other = [&parts[..], b"other"].concat();
        let padded = [&parts[..], &[0; 70], &parts, &vec![0; 500_000]].concat();
        assert!(leads(&parts, u64::MAX, false, false) && !leads(&parts[..9999], u64::MAX, false, false));
        assert!(!leads(&other, 9990, false, false) && leads(&other, 9989, false, false));
        assert!(leads(&other, u64::MAX, true, false) && !leads(&[&part[..], b"other"].concat(), u64::MAX, true, false));
        assert!(leads(&padded, u64::MAX, false, true) && !leads(&padded, u64::MAX, false, false));
        assert!(!leads(b"", u64::MAX, false, false));
    }

    #[test]
    fn one_wrong_byte_of_a_magic_is_mended() {
        assert_eq!(mended(b"ABxDrest", &MAGIC).unwrap(), b"ABCDrest");
        for other in [&b"ABCDrest"[..], b"AxxDrest", b"ABC", b""] {
            assert_eq!(mended(other, &MAGIC), None);
        }
    }
}
