//! Files of which all has to be read before their checksum tells whether they are right, and which are too long for
//! that to be done before the first byte is served.
//!
//! Whatever anybody reads of such a [`Member`] goes into its CRC-32, in whichever order it comes. So who reads all of
//! it is told of damage at the latest with the last bytes. What is found out is kept for as long as the archive is
//! open ([`Members`]).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crc32fast::Hasher;
use tarnfs_index::Node;

use crate::unproven::Tries;

/// While somebody who reads from the start on has read something new so short a time ago, nobody reads ahead of him: he
/// gets to the end as fast, and two would be in each other's way.
const MOMENT: Duration = Duration::from_millis(50);

/// One of them: a piece of a file.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its CRC-32, if the archive says it, and its length in bytes.
    expected: Option<u32>,
    length: u64,
    verdict: OnceLock<Result<(), Arc<str>>>,
    /// It was said that it is served although it is damaged.
    is_told: AtomicBool,
    progress: Mutex<Progress>,
    /// For who verifies it beside the readers.
    pub(crate) tries: Tries,
}

/// How far it is known.
#[derive(Debug, Default)]
struct Progress {
    seen: Seen,
    /// Where the last read ended.
    last: u64,
    /// The furthest byte up to which reads went on where others ended, and when it was reached.
    lead: u64,
    moved: Option<Instant>,
}

/// Parts of which the CRC-32 is known: by their start, with their end. No two of them touch.
#[derive(Debug, Default)]
struct Seen(BTreeMap<u64, (u64, Hasher)>);

/// A part that nobody has seen, and the checksum of the one that it goes on from, with where that begins: its own start
/// if there is none.
struct Unseen {
    range: Range<u64>,
    from: u64,
    before: Hasher,
}

impl Seen {
    /// So many parts are kept apart. Of more, the shortest is given up: it is seen again by who verifies all.
    const MOST: usize = 256;

    /// The first part of `range` that was not seen.
    fn missing(&self, range: &Range<u64>) -> Option<Unseen> {
        let (mut start, mut from, mut before) = (range.start, range.start, Hasher::new());
        if let Some((first, (end, crc))) = self.0.range(..=start).next_back()
            && *end >= start
        {
            (start, from, before) = (*end, *first, crc.clone());
        }
        let next = self.0.range(start..range.end.max(start)).next().map(|(&next, _)| next);
        let range = start..next.unwrap_or(range.end);
        (range.start < range.end).then_some(Unseen { range, from, before })
    }

    /// Adds `part`, which was missing a moment ago: `before` goes over it as well. False if somebody else was there
    /// meanwhile.
    fn add(&mut self, part: Unseen) -> bool {
        let Unseen { range, from, before: mut crc } = part;
        if self.missing(&range).is_none_or(|now| now.range != range || now.from != from) {
            return false;
        }
        let mut end = range.end;
        if let Some((behind, of_that)) = self.0.remove(&end) {
            crc.combine(&of_that);
            end = behind;
        }
        self.0.insert(from, (end, crc));
        if self.0.len() > Self::MOST {
            // The first one grows with who reads from the start on.
            let others = self.0.iter().filter(|(other, _)| **other != from && **other != 0);
            let shortest = others.min_by_key(|(start, (end, _))| end - **start).map(|(&start, _)| start);
            shortest.and_then(|shortest| self.0.remove(&shortest));
        }
        true
    }

    /// The checksum of the first `length` bytes, once all of them were seen.
    fn whole(&self, length: u64) -> Option<u32> {
        self.0.get(&0).filter(|(end, _)| *end >= length).map(|(_, crc)| crc.clone().finalize())
    }
}

impl Member {
    /// One of `length` bytes that should have the CRC-32 `expected`. Without that, somebody else has to decide.
    pub(crate) fn new(expected: Option<u32>, length: u64) -> Arc<Self> {
        let (verdict, is_told, progress, tries) = Default::default();
        Arc::new(Self { expected, length, verdict, is_told, progress, tries })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is right, and if not, why; `None` as long as that is not known.
    pub(crate) fn verdict(&self) -> Option<&Result<(), Arc<str>>> {
        self.verdict.get()
    }

    /// True for the one who says that it is served although it is damaged: once.
    pub(crate) fn is_to_be_told(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// Keeps what has been found out; what was known before counts.
    pub(crate) fn decide(&self, verdict: Result<(), String>) {
        self.decide_with(&mut self.progress(), verdict);
    }

    fn decide_with(&self, progress: &mut Progress, verdict: Result<(), String>) {
        // Words of a decoder are short; this holds whatever they are.
        const LONGEST: usize = 400;
        let _ = self.verdict.set(verdict.map_err(|what| what.chars().take(LONGEST).collect::<String>().into()));
        progress.seen = Seen::default();
    }

    /// Somebody has read these bytes at `offset` of it.
    pub(crate) fn see(&self, bytes: &[u8], offset: u64) {
        let end = offset.saturating_add(bytes.len() as u64).min(self.length);
        let mut at = offset;
        while at < end && self.verdict().is_none() {
            let Some(mut unseen) = self.progress().seen.missing(&(at..end)) else { return };
            let Range { start, end: behind } = unseen.range;
            // Without the lock: others read on.
            unseen.before.update(&bytes[(start - offset) as usize..(behind - offset) as usize]);
            let mut progress = self.progress();
            if !progress.seen.add(unseen) {
                at = start;
                continue;
            }
            // Under the lock: who finds that all was seen finds the verdict.
            if let (Some(crc), Some(expected)) = (progress.seen.whole(self.length), self.expected) {
                self.decide_with(&mut progress, compared(crc, expected));
            }
            at = behind;
        }
    }

    /// The first bytes that nobody has seen, at most `most`.
    pub(crate) fn unseen(&self, most: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.progress().seen.missing(&(0..self.length))?.range;
        Some(start..end.min(start.saturating_add(most)))
    }

    /// Somebody reads this range. True if he reads on where the last read ended, and further than anybody did so.
    pub(crate) fn note_read(&self, range: &Range<u64>) -> bool {
        let mut progress = self.progress();
        let leads = progress.last == range.start && range.end > progress.lead;
        if leads {
            progress.lead = range.end;
            progress.moved = Some(Instant::now());
        }
        progress.last = range.end;
        leads
    }

    /// True while somebody is about to read from byte `at` on, for the first time.
    pub(crate) fn is_led(&self, at: u64) -> bool {
        let progress = self.progress();
        progress.lead <= at && progress.moved.is_some_and(|moved| moved.elapsed() < MOMENT)
    }
}

/// Whether the checksum `crc` is the one that the archive says.
pub(crate) fn compared(crc: u32, expected: u32) -> Result<(), String> {
    if crc == expected {
        return Ok(());
    }
    Err(format!("its CRC-32 is {crc:08x}, not {expected:08x} as the archive says: it is damaged"))
}

/// Those of one archive, by the file and their number in it.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    members: HashMap<(Node, usize), Arc<Member>>,
    /// Once there are so many, those of which nothing is known and that nobody has any more are removed.
    most: usize,
}

impl Members {
    /// So many are kept at least, and this is the most of those that nobody has any more: some megabytes. What is
    /// forgotten is verified again.
    const FEW: usize = 64;
    const MOST: usize = 1 << 14;

    /// The member of that number, as long as anybody has it the same for all.
    pub(crate) fn of(&self, node: Node, number: usize, expected: Option<u32>, length: u64) -> Arc<Member> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { members, most } = &mut *known;
        if members.len() >= (*most).max(Self::FEW) {
            let is_held = |member: &Arc<Member>| Arc::strong_count(member) > 1;
            members.retain(|_, member| is_held(member) || member.verdict().is_some());
            if members.len() >= Self::MOST {
                let mut number = 0_usize;
                // Half of them, so that this is rare; those that are damaged last.
                members.retain(|_, member| {
                    number += 1;
                    is_held(member) || member.verdict().is_some_and(Result::is_err) || number.is_multiple_of(2)
                });
            }
            if members.len() >= Self::MOST {
                members.retain(|_, member| is_held(member));
            }
            let count = members.len();
            *most = if count < Self::MOST { (2 * count).min(Self::MOST) } else { count + count / 4 };
        }
        Arc::clone(members.entry((node, number)).or_insert_with(|| Member::new(expected, length)))
    }

    /// What is wrong with the file `node`, if that was found out.
    pub(crate) fn damage(&self, node: Node, number: usize) -> Option<Arc<str>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.members.get(&(node, number))?.verdict()?.as_ref().err().map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn whoever_reads_all_in_whatever_order_knows_at_the_last_byte() {
        let bytes = content(100_000);
        let crc = crc32fast::hash(&bytes);
        for (step, size) in [(1000, 1000), (1000, 1500), (997, 4000), (1, 100_000), (333, 333)] {
            for order in 0..4_u64 {
                for expected in [crc, !crc] {
                    let member = Member::new(Some(expected), bytes.len() as u64);
                    let mut places: Vec<usize> = (0..bytes.len()).step_by(step).collect();
                    places.sort_by_key(|&place| match order {
                        0 => place as u64,
                        1 => u64::MAX - place as u64,
                        _ => (place as u64 + order).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                    });
                    // More parts than are kept apart make it start again.
                    if places.len() > Seen::MOST && order > 0 {
                        places.extend((0..bytes.len()).step_by(step));
                    }
                    let mut covered = vec![false; bytes.len()];
                    for place in places {
                        let end = (place + size).min(bytes.len());
                        member.see(&bytes[place..end], place as u64);
                        covered[place..end].fill(true);
                        assert!(member.verdict().is_none() || covered.iter().all(|&covered| covered));
                        if size == 100_000 {
                            break;
                        }
                    }
                    if order == 0 || size < 100_000 {
                        let verdict = member.verdict().expect("all of it was seen");
                        assert_eq!(verdict.is_ok(), expected == crc, "{step} {size} {order}");
                        assert!(member.progress().seen.0.is_empty(), "nothing more is kept");
                    }
                }
            }
        }
    }

    #[test]
    fn readers_at_the_same_time_come_to_the_right_end() {
        let bytes = content(1 << 20);
        for expected in [crc32fast::hash(&bytes), 7] {
            let member = Member::new(Some(expected), bytes.len() as u64);
            std::thread::scope(|scope| {
                for reader in 1..5_usize {
                    let (member, bytes) = (&member, &bytes);
                    scope.spawn(move || {
                        for place in (0..bytes.len()).step_by(1000 * reader) {
                            let end = (place + 1000 * reader).min(bytes.len());
                            member.see(&bytes[place..end], place as u64);
                        }
                    });
                }
            });
            assert_eq!(member.verdict().expect("all of it was seen").is_ok(), expected != 7);
        }
    }

    #[test]
    fn the_parts_that_are_kept_apart_are_bounded() {
        let member = Member::new(Some(0), 1 << 40);
        for place in (0..10_000_u64).rev() {
            member.see(&[1, 2, 3], place * 1000);
            assert!(member.progress().seen.0.len() <= Seen::MOST + 1);
        }
        assert_eq!(member.unseen(10), Some(3..13), "the first one is kept");
    }

    #[test]
    fn who_reads_on_is_let_go_ahead() {
        let member = Member::new(Some(0), 1 << 30);
        assert!(!member.is_led(0));
        assert!(!member.note_read(&(500..600)) && !member.is_led(600), "that is no reading on");
        assert!(!member.note_read(&(0..100)) && member.note_read(&(100..200)));
        assert!(member.is_led(200) && !member.is_led(100));
        std::thread::sleep(MOMENT);
        assert!(!member.is_led(200), "not for ever");
        member.note_read(&(0..100));
        member.note_read(&(100..200));
        assert!(!member.is_led(200), "who reads the same again leads nobody");
    }

    #[test]
    fn what_is_known_is_kept_and_bounded() {
        let members = Members::default();
        let of = |node: usize| members.of(Node(node as u64), 0, Some(1), 10);
        let held = of(0);
        of(1).decide(Ok(()));
        of(2).decide(Err("wrong".to_owned()));
        for node in 3..1000 {
            of(node);
        }
        assert!(members.0.lock().unwrap().members.len() <= Members::FEW + 1, "of those nothing is known");
        assert!(of(1).verdict().is_some_and(Result::is_ok) && Arc::ptr_eq(&held, &of(0)));
        for node in 1000..1000 + 2 * Members::MOST {
            of(node).decide(Ok(()));
        }
        assert!(members.0.lock().unwrap().members.len() <= Members::MOST);
        assert_eq!(members.damage(Node(2), 0).as_deref(), Some("wrong"));
        assert!(Arc::ptr_eq(&held, &of(0)) && held.verdict().is_none());
    }
}
