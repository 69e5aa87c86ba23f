//! Decodes the members that follow on other threads.
//!
//! It only spares the walk in `members` the work: what comes from here is a whole member in which nothing was wrong.
//! Any other one is left to the walk, so that damage is met and reported in one place.
//!
//! A member ends where another one's header, or the end of the file, follows a trailer that gives as the member's size
//! just the bytes from its start to there. It is searched for from its start on, so nothing has to be known of the
//! file's end; what cannot be found so (trailers that lie, padding, a member that is too large) is left to the walk as
//! well.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::{Cancel, SharedSource};

use super::members::{Container, MemberDecoder, WholeMember};
use crate::Options;
use crate::input::Input;
use crate::starts::find;
use crate::thread_pool::{self, ThreadPool};

/// Bytes that all members in work, and those that the walk is at, may take together, decoded and as dictionaries.
const MOST_IN_WORK: u64 = 128 << 20;
/// Bytes of a member that are searched for its end: as many as `plzip -9` may make of 64 MiB, and some more.
const LARGEST_MEMBER: u64 = 66 << 20;
/// Decoded bytes that are worth a thread: smaller members are taken together. (In the tests a few are.)
const WORTH: u64 = if cfg!(test) { 1000 } else { 1 << 20 };
/// Members taken together at most.
const MOST_TOGETHER: usize = 1000;
/// Tasks for each thread that decodes: the one that it is at, and one to go on with.
const FOUND_PER_THREAD: usize = 2;
/// Bytes that are looked at before more are read.
const STRIDE: usize = 64 << 10;
/// Bytes of a trailer with the member's size.
const TRAILER: usize = 20;

/// Where a member is, and what its trailer says that it decodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    start: u64,
    pub(super) end: u64,
    pub(super) decoded: u64,
}

/// Members one behind the other.
struct MemberBatch {
    members: Vec<Member>,
    /// Bytes of memory that decoding them takes.
    bytes: u64,
    /// Bytes of the largest dictionary.
    dictionary: u64,
}

/// Bytes that members in work take together, also those that nobody wants any more and somebody still decodes.
#[derive(Clone, Default)]
struct InWork(Arc<AtomicU64>);

/// A part of them, until it is dropped.
struct Held {
    of: InWork,
    bytes: u64,
}

impl InWork {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn hold(&self, bytes: u64) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { of: self.clone(), bytes }
    }
}

impl Held {
    /// No more of it is needed.
    fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.of.0.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Finds the ends of members.
pub(super) struct Finder<C> {
    container: std::marker::PhantomData<C>,
    input: Input,
    /// Bytes that it may still read, so that members of which none can be found do not take a time that is quadratic.
    left: u64,
}

impl<C: Container> Finder<C> {
    pub(super) fn new(source: SharedSource) -> Self {
        let left = source.len().saturating_mul(2).saturating_add(LARGEST_MEMBER);
        Self { container: std::marker::PhantomData, input: Input::new(source, 0), left }
    }

    /// The member at byte `start`, and the bytes of its dictionary; `None` where its end cannot be found.
    pub(super) fn member(&mut self, start: u64, cancel: &Cancel) -> io::Result<Option<(Member, u64)>> {
        self.input.seek(start);
        let header = self.input.fill(C::HEADER)?.get(..C::HEADER).and_then(|bytes| C::header(bytes).ok());
        let Some(header) = header.filter(|header| header.trailer == TRAILER) else { return Ok(None) };
        Ok(self.end_of(start, cancel)?.map(|member| (member, header.dictionary)))
    }

    /// The same, whatever its header is: its trailer tells.
    pub(super) fn end_of(&mut self, start: u64, cancel: &Cancel) -> io::Result<Option<Member>> {
        self.input.seek(start);
        let is_end = |trailer: &[u8], end: u64| {
            let (decoded, length) = C::sizes(trailer)?;
            (Some(length) == end.checked_sub(start)).then_some(Member { start, end, decoded })
        };
        loop {
            cancel.check()?;
            let position = self.input.position();
            let at_end = self.input.remaining() <= STRIDE as u64;
            let bytes = self.input.peek(STRIDE)?;
            let read = bytes.len();
            self.left = self.left.saturating_sub(read as u64);
            let mut from = TRAILER;
            while let Some(at) = find(bytes, C::MAGIC, from) {
                let is_header = bytes.get(at..at + C::HEADER).is_some_and(|bytes| C::header(bytes).is_ok());
                let found = is_header.then(|| is_end(&bytes[at - TRAILER..at], position + at as u64)).flatten();
                if found.is_some() {
                    self.left = self.left.saturating_add((read - at) as u64);
                    return Ok(found);
                }
                from = at + 1;
            }
            if at_end {
                let trailer = read.checked_sub(TRAILER).map(|at| &bytes[at..]);
                return Ok(trailer.and_then(|trailer| is_end(trailer, position + read as u64)));
            }
            // A header that is cut here is seen whole next time.
            let passed = read.saturating_sub(TRAILER + C::HEADER);
            if passed == 0 || self.left == 0 || position + passed as u64 - start > LARGEST_MEMBER {
                return Ok(None);
            }
            self.input.consume(passed);
        }
    }

    /// True if it has read all that it may: what it does not find then may be there.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.input.memory()
    }
}

/// Decodes members.
struct Unpacker<C> {
    container: std::marker::PhantomData<fn() -> C>,
    source: SharedSource,
    options: Options,
    /// Asks the threads to end when nobody wants their members any more.
    abandon: Cancel,
}

impl<C: Container> thread_pool::Job for Unpacker<C> {
    type Input = (Vec<Member>, Held);
    type Output = (VecDeque<WholeMember>, Held);
    type Tools = ();

    fn tools(&self) {}

    fn work(&self, (): &mut (), _place: u64, (members, mut held): Self::Input) -> Option<Self::Output> {
        let decode = |member: &Member| {
            let source = self.source.clone();
            let whole = MemberDecoder::<C>::whole(source, member.start, member.decoded, &self.options, &self.abandon)?;
            (whole.end == member.end).then_some(whole)
        };
        let decoded = members.iter().map(decode).collect::<Option<_>>()?;
        // Dictionaries are gone.
        held.shrink(members.iter().map(|member| member.decoded).sum());
        Some((decoded, held))
    }
}

/// The members that are being decoded, in order.
pub(super) struct Ahead<C: Container> {
    source: SharedSource,
    cancel: Cancel,
    abandon: Cancel,
    pool: ThreadPool<Unpacker<C>>,
    /// Threads, with that of the walk.
    threads: usize,
    finder: Finder<C>,
    /// Where the next member begins.
    next: u64,
    /// The next one cannot be found.
    stuck: bool,
    /// Found, but there is no room for it yet.
    waiting: Option<MemberBatch>,
    jobs: VecDeque<Job>,
    in_work: InWork,
    ready: VecDeque<WholeMember>,
    /// What those take that are ready, up to when the walk has handed out the last of them.
    of_ready: Option<Held>,
    /// Bytes of the dictionary where the walk decodes itself.
    of_walk: u64,
    /// [`MOST_IN_WORK`], but for tests.
    most: u64,
    /// Something is wrong, or not begun, before this byte: the walk goes on alone until there.
    left_to_walk: u64,
}

/// Members that somebody, or the walk, is to decode.
struct Job {
    from: u64,
    to: u64,
    /// Bytes of the largest dictionary, and whether the walk is to decode them.
    dictionary: u64,
    is_left: bool,
}

impl<C: Container> Ahead<C> {
    /// `None` where the options leave no threads for it, or there is one member only.
    pub(super) fn new(source: SharedSource, options: &Options) -> Option<Self> {
        (C::MANY && options.threads > 1).then(|| {
            let abandon = Cancel::default();
            let unpacker = Unpacker {
                container: std::marker::PhantomData,
                source: source.clone(),
                options: options.clone(),
                abandon: abandon.clone(),
            };
            Self {
                finder: Finder::new(source.clone()),
                source,
                cancel: options.cancel.clone(),
                abandon,
                pool: ThreadPool::new(unpacker, "lzip members", options.threads - 1),
                threads: options.threads,
                next: 0,
                stuck: false,
                waiting: None,
                jobs: VecDeque::new(),
                in_work: InWork::default(),
                ready: VecDeque::new(),
                of_ready: None,
                of_walk: 0,
                most: MOST_IN_WORK,
                left_to_walk: 0,
            }
        })
    }

    /// The member at byte `position`, if it could be decoded ahead. Members behind it are being decoded when this
    /// returns.
    pub(super) fn take(&mut self, position: u64) -> io::Result<Option<WholeMember>> {
        if position < self.left_to_walk {
            return Ok(None);
        }
        if self.ready.front().is_some_and(|member| member.start == position) {
            return Ok(self.ready.pop_front());
        }
        self.ready.clear();
        (self.of_ready, self.of_walk) = (None, 0);
        if self.jobs.front().is_none_or(|job| job.from != position) {
            // The walk went another way, or begins, or has passed what we could not.
            self.pool.drop_before(u64::MAX);
            self.jobs.clear();
            self.waiting = None;
            (self.stuck, self.next) = (false, position);
        }
        self.start_jobs();
        let Some(job) = self.jobs.pop_front() else {
            self.left_to_walk = position.saturating_add(1);
            return Ok(None);
        };
        let decoded = self.pool.take(job.from, &mut (), &self.cancel)?;
        self.cancel.check()?;
        if let Some((members, held)) = decoded {
            (self.ready, self.of_ready) = (members, Some(held));
        } else {
            (self.left_to_walk, self.of_walk) = (job.to, job.dictionary);
        }
        self.start_jobs();
        Ok(self.ready.pop_front())
    }

    fn start_jobs(&mut self) {
        while self.jobs.len() < FOUND_PER_THREAD * self.threads {
            let found = match self.waiting.take() {
                Some(found) => found,
                None => self.find(),
            };
            let (Some(first), Some(last)) = (found.members.first(), found.members.last()) else { return };
            let (from, to, bytes, dictionary) = (first.start, last.end, found.bytes, found.dictionary);
            // The walk itself can do the next one: with nothing beside it, it is of use to hand out its bytes while it
            // is decoded, and of large ones the one behind it is to be in work then.
            let is_next = self.jobs.is_empty();
            let is_alone = is_next && to == self.source.len();
            let worth = bytes <= self.most && !is_alone && !(is_next && bytes > self.most / 2);
            // The walk is at one of those that are left to it at a time.
            let left = self.jobs.iter().filter(|job| job.is_left).map(|job| job.dictionary);
            let of_walk = left.chain([self.of_walk]).max().unwrap_or_default();
            let (more, of_walk) = if worth { (bytes, of_walk) } else { (0, of_walk.max(dictionary)) };
            let in_work = self.in_work.bytes();
            if (worth || in_work > 0 && !is_next) && in_work.saturating_add(more).saturating_add(of_walk) > self.most {
                self.waiting = Some(found);
                return;
            }
            if worth {
                self.pool.add(from, (found.members, self.in_work.hold(bytes)));
            }
            self.jobs.push_back(Job { from, to, dictionary, is_left: !worth });
        }
    }

    /// Gathers members until they are worth a thread; none where the walk has to look.
    fn find(&mut self) -> MemberBatch {
        let (mut found, mut decoded) = (MemberBatch { members: Vec::new(), bytes: 0, dictionary: 0 }, 0_u64);
        while decoded < WORTH && found.members.len() < MOST_TOGETHER && !self.stuck {
            // An error in what the walk has not reached is none yet.
            let Ok(Some((member, dictionary))) = self.finder.member(self.next, &self.cancel) else {
                self.stuck = true;
                break;
            };
            // One dictionary at a time.
            let dictionary = dictionary.min(member.decoded);
            found.dictionary = found.dictionary.max(dictionary);
            let bytes = member.decoded.saturating_add(dictionary);
            found.bytes = found.bytes.saturating_add(bytes);
            decoded = decoded.saturating_add(member.decoded);
            self.next = member.end;
            found.members.push(member);
        }
        found
    }

    /// Bytes of memory that the members in work and those that are ready may take, with that which the walk hands out.
    pub(super) fn memory(&self) -> usize {
        self.finder.memory() + usize::try_from(self.in_work.bytes()).unwrap_or(usize::MAX)
    }
}

impl<C: Container> Drop for Ahead<C> {
    fn drop(&mut self) {
        self.abandon.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lzma::lzip::Members;
    use crate::testing::{noise, sample, source, tool};

    fn members(data: &[u8], part: usize) -> Vec<Vec<u8>> {
        data.chunks(part).map(|part| tool("lzip -q -c -6", part)).collect()
    }

    fn ahead(stream: &[u8], threads: usize) -> Ahead<Members> {
        Ahead::new(source(stream), &Options { threads, ..Options::default() }).unwrap()
    }

    /// As the walk does, but not before all is done that could be.
    fn take(ahead: &mut Ahead<Members>, position: u64) -> Option<WholeMember> {
        ahead.take(position).unwrap().inspect(|member| assert_eq!(member.start, position))
    }

    #[test]
    fn the_ends_of_members_are_found() {
        let noise = noise(200_000);
        let parts = [&b""[..], b"LZIP\x01\x0c", &noise, b"", &[0; 100], &sample(300_000, 3)];
        let members: Vec<_> = parts.iter().map(|part| tool("lzip -q -c -3", part)).collect();
        let stream = members.concat();
        let cancel = Cancel::default();
        let mut finder = Finder::<Members>::new(source(&stream));
        let mut start = 0;
        for (part, member) in parts.iter().zip(&members) {
            let end = start + member.len() as u64;
            let found = finder.member(start, &cancel).unwrap().unwrap().0;
            assert_eq!(found, Member { start, end, decoded: part.len() as u64 });
            start = end;
        }
        assert_eq!(finder.member(start, &cancel).unwrap(), None);
        // Of what holds whole members, as a file that was packed twice, none of them is one, and garbage behind the
        // last hides its end.
        let stored = [&tool("lzip -q -c -0", &stream)[..], &members[2], b"garbage"].concat();
        let mut finder = Finder::<Members>::new(source(&stored));
        let end = finder.member(0, &cancel).unwrap().unwrap().0.end;
        assert_eq!(end as usize, stored.len() - members[2].len() - 7);
        assert_eq!(finder.member(end, &cancel).unwrap(), None);
        // At every place of a header in what is looked at together.
        for length in STRIDE - 60..STRIDE + 60 {
            let first = tool("lzip -q -c -0", &noise[..length - 700]);
            let stream = [&first[..], &members[1]].concat();
            let found = Finder::<Members>::new(source(&stream)).member(0, &cancel).unwrap().unwrap().0;
            assert_eq!(found.end as usize, first.len());
        }
    }

    #[test]
    fn magic_is_found_wherever_it_is() {
        for at in 0..40 {
            let mut bytes = b"LLZZIPLZ.PI".repeat(6);
            bytes[at..at + 4].copy_from_slice(b"LZIP");
            for from in 0..50 {
                let expected = (from..bytes.len() - 3).find(|&start| bytes[start..].starts_with(b"LZIP"));
                assert_eq!(find(&bytes, b"LZIP", from), expected, "at {at}, from {from}");
            }
        }
    }

    #[test]
    fn members_that_lie_cost_no_more_than_their_share() {
        let mut one = tool("lzip -q -c -0", b"");
        let last = one.len() - 1;
        one[last] = 1;
        let stream = one.repeat(20_000);
        let mut finder = Finder::<Members>::new(source(&stream));
        for start in (0..stream.len() as u64).step_by(one.len()) {
            assert_eq!(finder.member(start, &Cancel::default()).unwrap(), None);
        }
        assert_eq!(finder.left, 0);
    }

    #[test]
    fn whole_members_come_in_order_and_others_are_left() {
        let data = sample(30_000, 1);
        // Of the tests' size for one thread, and a fifth of it: five of those are taken together.
        for (part, left_behind) in [(1000, 1), (200, 5)] {
            let members = members(&data, part);
            let mut stream = members.concat();
            for threads in [2, 3] {
                let mut ahead = ahead(&stream, threads);
                let (mut position, mut taken) = (0, 0);
                for (part, member) in data.chunks(part).zip(&members) {
                    let end = position + member.len() as u64;
                    // What nobody has begun is left to the walk, with all that belongs together.
                    ahead.pool.settle();
                    if let Some(whole) = take(&mut ahead, position) {
                        assert!(whole.data == part && whole.end == end);
                        taken += 1;
                    }
                    position = end;
                }
                assert!(taken + 2 * left_behind >= members.len(), "{taken} of {}", members.len());
                assert!(take(&mut ahead, position).is_none());
            }
            let starts: Vec<_> = members
                .iter()
                .scan(0, |next, member| Some(std::mem::replace(next, *next + member.len() as u64)))
                .collect();
            stream[starts[6] as usize + members[6].len() / 2] ^= 1;
            let mut ahead = ahead(&stream, 3);
            let found = starts.iter().map(|&start| {
                ahead.pool.settle();
                take(&mut ahead, start).is_some()
            });
            let found: Vec<_> = found.collect();
            let expected = starts.len() - found.iter().filter(|&&found| found).count();
            assert!(!found[6] && expected <= 4 * left_behind, "{found:?}");
        }
    }

    #[test]
    fn what_somebody_still_decodes_for_nobody_counts() {
        let data = sample(10_000, 1);
        let members = members(&data, 1000);
        let stream = members.concat();
        let mut ahead = ahead(&stream, 3);
        let in_work = ahead.in_work.clone();
        // As a thread has it that goes on with what was dropped.
        let held = in_work.hold(MOST_IN_WORK);
        assert!(take(&mut ahead, 0).is_none() && ahead.pool.len() == 0);
        let mut position = members[0].len() as u64;
        assert!(take(&mut ahead, position).is_none() && ahead.pool.len() == 0);
        drop(held);
        position += members[1].len() as u64;
        let _ = take(&mut ahead, position);
        assert!(ahead.pool.len() > 0 && in_work.bytes() > 0);
        // Elsewhere.
        let _ = take(&mut ahead, 0);
        drop(ahead);
        assert_eq!(in_work.bytes(), 0);
    }

    #[test]
    fn what_is_handed_out_counts_with_what_is_in_work() {
        const PART: usize = 10_000;
        let data = sample(8 * PART, 1);
        let members = members(&data, PART);
        let mut ahead = ahead(&members.concat(), 3);
        // Each is decoded, with a dictionary of as many bytes.
        ahead.most = 6 * PART as u64 + 5000;
        let (mut position, mut last) = (0, None);
        for member in &members {
            ahead.pool.settle();
            last = take(&mut ahead, position);
            let together = ahead.in_work.bytes() + ahead.of_walk;
            assert!(together <= ahead.most && together >= PART as u64, "{together}");
            position += member.len() as u64;
        }
        let last = last.expect("it was begun while others were handed out").data.len() as u64;
        assert_eq!((ahead.jobs.len(), ahead.in_work.bytes()), (0, last));
        assert!(take(&mut ahead, position).is_none());
        assert_eq!(ahead.in_work.bytes(), 0);
    }

    #[test]
    fn what_the_walk_decodes_itself_counts_with_what_is_in_work() {
        const PART: usize = 10_000;
        let stream = members(&sample(4 * PART, 1), PART).concat();
        for (most, in_work) in [(2 * PART + PART / 2, 0), (3 * PART, 1)] {
            let mut ahead = ahead(&stream, 3);
            ahead.most = most as u64;
            // More than half of that is left to the walk, with its dictionary.
            assert!(take(&mut ahead, 0).is_none());
            assert_eq!((ahead.of_walk, ahead.pool.len()), (PART as u64, in_work), "{most}");
        }
    }

    #[test]
    fn a_member_alone_is_left_to_the_walk() {
        let stream = tool("lzip -q -c", &sample(100_000, 1));
        assert!(take(&mut ahead(&stream, 3), 0).is_none());
        assert!(Ahead::<Members>::new(source(&stream), &Options::default()).is_none());
    }
}
