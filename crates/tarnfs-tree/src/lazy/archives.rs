//! Which archives were met, their numbers, and which of them are open.
//!
//! An archive has its number as long as somebody holds a node in it, or it is open. Then the number is free, and after
//! a while another archive gets it: whoever changes an archive over and over must not use them up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::parts::Set;
use crate::build::Progress;
use crate::readers::Readers;
use crate::{Attributes, Node, Time, Tree};

/// Numbers of one archive: [`crate::ArchiveTree`] has no more.
pub(super) const WIDTH: u64 = 1 << 31;

/// Archives that have numbers at a time.
pub(super) const MOST: usize = 1 << 20;

/// Archives that are opened at a time. A first pass takes several threads, and memory.
pub(super) const MOST_OPENING: usize = 2;

/// The same with those that do not get on, since their files may lie on a server that is gone, and with those that take
/// long: a small archive may hold so much that it takes hours.
const MOST_OPENING_AT_ALL: usize = 64;

/// How many times as long as it may get no further one counts at the most.
const LONG: u32 = 4;

/// Of those that do not count, so many may have begun to decode. What a stream needs for that is known only when it is
/// decoded, and may be a lot.
const MOST_LONG: usize = 2;

/// And so many altogether, where nobody else is at work: few that take long are not to keep all others closed. More
/// could take all memory there is, as each may need 1.5 GiB ([`tarnfs_source::Limits::lzma_dictionary`]). What of the
/// memory for caches is in use is no measure: the index that each pass makes takes most of that.
pub(super) const MOST_LONG_AT_ALL: usize = 8;

/// Files that are remembered as archives that cannot be opened.
const MOST_FAILED: usize = 1 << 14;

/// Answers that are remembered for files that are no archives.
const MOST_REMEMBERED: usize = 1 << 20;

/// How long a number stays free: what was open for a last read is closed by then, and a request that is stuck was given
/// up.
const REST: Duration = Duration::from_secs(120);

/// Which range of numbers each archive has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranges {
    /// Where those of the tree end in which the archives are.
    pub(super) limit: u64,
}

/// Where a number leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Base(Node),
    Archive(u32, Node),
}

impl Ranges {
    pub(super) fn place(self, node: Node) -> Where {
        match node.0.checked_sub(self.limit) {
            None => Where::Base(node),
            Some(behind) => Where::Archive((behind / WIDTH) as u32, Node(behind % WIDTH)),
        }
    }

    pub(super) fn outer(self, archive: u32, inner: Node) -> Node {
        Node(self.limit + u64::from(archive) * WIDTH + inner.0 % WIDTH)
    }

    /// The archive that a node is in.
    fn archive(self, node: Node) -> Option<u32> {
        match self.place(node) {
            Where::Base(_) => None,
            Where::Archive(number, _) => Some(number),
        }
    }
}

/// What tells that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Version {
    size: u64,
    mtime: Time,
    /// A file can be written to and get its old time back.
    ctime: Time,
    /// The same of others that it is one archive with, where that matters.
    others: u64,
}

impl Version {
    pub(super) fn of(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime, others: 0 }
    }

    /// The same for an archive that the file is with others, a set of that hash.
    pub(super) fn of_set(self, hash: u64) -> Self {
        Self { others: hash, ..self }
    }

    /// True if nothing but the inode may have changed: a file was renamed, say.
    pub(super) fn has_content_of(&self, other: &Self) -> bool {
        self.size == other.size && self.mtime == other.mtime
    }
}

/// One file that is an archive.
#[derive(Debug, Clone)]
pub(super) struct File {
    /// The file, in numbers of the whole tree, and the folder that it is in. It is held.
    pub(super) node: Node,
    pub(super) folder: Node,
    pub(super) version: Version,
    /// The files that it is made of, if these are several, or may become so.
    pub(super) set: Option<Arc<Set>>,
    /// Who may read all that it is made of, if these are several.
    pub(super) readers: Option<Arc<Readers>>,
    pub(super) name: Vec<u8>,
    /// Archives that it lies in, as `--recursion-depth` counts them: one that is compressed is two.
    pub(super) depth: u32,
    /// The same, where each counts once.
    pub(super) within: u32,
}

/// What a file was found to be: an archive of that number, or none.
pub(super) type Known = (Version, Option<u32>);

/// A name in a folder, as a hash. A file of several names is an archive of its own under each of them: it shows as a
/// folder, and the kernel wants each folder in one place. What is written to one, or removed, does not touch the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(u64);

/// What files were found to be, as long as they stay as they are.
#[derive(Debug, Default)]
struct Answers {
    /// Those that are no archives, whatever their names.
    others: HashMap<Node, Version>,
    archives: HashMap<(Node, Place), (Version, u32)>,
}

impl Answers {
    fn len(&self) -> usize {
        self.others.len() + self.archives.len()
    }

    fn find(&self, file: Node, place: Place, version: Version) -> Option<Known> {
        let archive = self.archives.get(&(file, place)).map(|(version, archive)| (*version, Some(*archive)));
        let known = [archive, self.others.get(&file).map(|version| (*version, None))];
        known.into_iter().flatten().find(|(known, _)| *known == version)
    }
}

struct Archive {
    file: File,
    place: Place,
    state: ArchiveState,
    used: u64,
    /// How often nodes in it were given out and not forgotten.
    held: u64,
    /// The file has changed, and is another archive or none by now.
    is_old: bool,
    /// What it lies in was not verified when somebody looked last.
    is_unproven: bool,
    /// Files in it that may be archives.
    files: Answers,
    /// Calls inside each other that reading from it takes ([`super::LazyTree::opened`]).
    calls: usize,
    /// Archives that it counts as: one that is compressed is two. Known once it was open.
    levels: u32,
    /// What has numbered its nodes ([`tarnfs_index::Index::numbering`]), once it was open.
    numbering: Option<u64>,
    /// Somebody was given its number.
    was_given: bool,
}

enum ArchiveState {
    Free,
    Closed,
    Opening,
    Open(Arc<dyn Tree>),
    Failed,
}

/// What an archive is at this moment, for those who want to look into it.
pub(super) enum FoundArchive {
    Free,
    Failed,
    /// To be opened; nobody does yet.
    Closed(File),
    /// Somebody is at it.
    Opening(File),
    Open(Arc<dyn Tree>, usize),
}

/// What came of opening an archive.
pub(super) enum Outcome {
    /// Its tree, with the calls that reading it takes, and what numbers its nodes.
    Opened(Arc<dyn Tree>, usize, u64),
    /// Its nodes have other numbers by now. Those that were given out lead nowhere any more; who looks again gets new
    /// ones.
    Renumbered,
    /// It could not be opened now, and may be later.
    NotNow,
    /// It cannot be opened, and never can: it is a file from now on.
    Never,
}

/// What shows that opening an archive gets on.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) progress: Arc<Progress>,
    /// Reads of the file that got an answer.
    pub(super) reads: Arc<AtomicU64>,
}

impl Steps {
    fn count(&self) -> u64 {
        let Progress { bytes, entries, .. } = &*self.progress;
        [&*self.reads, bytes, entries].into_iter().fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
    }

    /// True once the first pass has begun.
    fn decodes(&self) -> bool {
        let Progress { bytes, entries, .. } = &*self.progress;
        bytes.load(Ordering::Relaxed) > 0 || entries.load(Ordering::Relaxed) > 0
    }
}

/// An archive that is being opened.
struct AtWork {
    steps: Arc<Steps>,
    /// How many there were when somebody looked, and since when.
    seen: u64,
    since: Instant,
    begun: Instant,
    /// It waits for its turn.
    waits: bool,
}

/// What is to be done without the lock: trees are dropped, and files forgotten by the tree that they are in.
#[derive(Default)]
#[must_use]
pub(super) struct Released {
    pub(super) trees: Vec<Arc<dyn Tree>>,
    pub(super) files: Vec<Node>,
}

/// The archives that were met.
pub(super) struct Archives {
    ranges: Ranges,
    all: Vec<Archive>,
    /// Of files of the base that may be archives, what they were found to be.
    files: Answers,
    hasher: RandomState,
    /// How many answers there are in all of these tables.
    remembered: usize,
    /// Archives in folders that cannot be opened, by name, as a file that is forgotten gets another number: what was a
    /// file once is to stay one. In other folders there may be others of the same name.
    failed: HashSet<(Vec<u8>, Version)>,
    /// Numbers that are free, and since when nobody should use them; first those that were given to nobody.
    free: VecDeque<(Option<Instant>, u32)>,
    /// Those that are open.
    open: Vec<u32>,
    /// First passes and the like that are at work.
    at_work: HashMap<u32, AtWork>,
    clock: u64,
}

impl Archives {
    pub(super) fn new(ranges: Ranges) -> Self {
        let (all, files, free, open) = (Vec::new(), Answers::default(), VecDeque::new(), Vec::new());
        Self {
            ranges,
            all,
            files,
            hasher: RandomState::new(),
            remembered: 0,
            failed: HashSet::new(),
            free,
            open,
            at_work: HashMap::new(),
            clock: 0,
        }
    }

    fn get(&mut self, number: u32) -> Option<&mut Archive> {
        self.all.get_mut(number as usize).filter(|archive| !matches!(archive.state, ArchiveState::Free))
    }

    /// The file that an archive is.
    pub(super) fn file(&self, number: u32) -> Option<&File> {
        let archive = self.all.get(number as usize)?;
        (!matches!(archive.state, ArchiveState::Free)).then_some(&archive.file)
    }

    /// Where `name` in `folder` is.
    pub(super) fn place(&self, folder: Node, name: &[u8]) -> Place {
        Place(self.hasher.hash_one((folder, name)))
    }

    fn files(&mut self, of: Option<u32>) -> Option<&mut Answers> {
        match of {
            None => Some(&mut self.files),
            Some(number) => self.get(number).map(|archive| &mut archive.files),
        }
    }

    /// What is known of `file` at that place, if it still is as it was then.
    pub(super) fn known(&mut self, file: Node, place: Place, version: Version) -> Option<Known> {
        let of = self.ranges.archive(file);
        self.files(of)?.find(file, place, version)
    }

    /// The number of the archive that `file` stands for there, and the files that it is made of, if that is known.
    pub(super) fn set_of(&mut self, file: Node, place: Place, version: Version) -> Option<(u32, Arc<Set>)> {
        let (_, number) = self.known(file, place, version)?;
        let set = self.file(number?)?.set.as_ref()?;
        Some((number?, Arc::clone(set)))
    }

    /// What the archive of that number is made of has changed: it is another one, or none, by now.
    pub(super) fn outdate(&mut self, number: u32, released: &mut Released) {
        self.forget_file_of(number);
        self.release(number, 0, released);
    }

    /// The archive of that number is old: what its file is by now is not known.
    fn forget_file_of(&mut self, number: u32) {
        let Some(archive) = self.get(number) else { return };
        let is_known = !std::mem::replace(&mut archive.is_old, true);
        let (file, place) = (archive.file.node, archive.place);
        let of = self.ranges.archive(file);
        if is_known && self.files(of).is_some_and(|files| files.archives.remove(&(file, place)).is_some()) {
            self.remembered = self.remembered.saturating_sub(1);
        }
    }

    /// True if an archive of that name and version could not be opened.
    pub(super) fn has_failed(&self, name: &[u8], version: Version) -> bool {
        self.failed.contains(&(name.to_vec(), version))
    }

    /// Remembers what a file was found to be at that place. An archive that it was there before is old from now on.
    fn remember(&mut self, (file, place): (Node, Place), known: Known, released: &mut Released) {
        if self.remembered >= MOST_REMEMBERED {
            self.files.others.clear();
            let mut left = self.files.len();
            for archive in &mut self.all {
                archive.files.others.clear();
                left += archive.files.len();
            }
            self.remembered = left;
        }
        let of = self.ranges.archive(file);
        let Some(files) = self.files(of) else { return };
        let count = files.len();
        let before = match known {
            (version, Some(number)) => files.archives.insert((file, place), (version, number)),
            (version, None) => {
                files.others.insert(file, version);
                files.archives.remove(&(file, place))
            }
        };
        let now = files.len();
        self.remembered = self.remembered.saturating_add(now).saturating_sub(count);
        if let Some((_, old)) = before
            && known.1 != Some(old)
        {
            if let Some(archive) = self.get(old) {
                archive.is_old = true;
            }
            self.release(old, 0, released);
        }
    }

    /// `file`, which was looked at there, is no archive.
    pub(super) fn no_archive(&mut self, file: Node, place: Place, version: Version, released: &mut Released) {
        self.remember((file, place), (version, None), released);
    }

    /// `file` is an archive: its number, which is held once. The file's own hold is given over. `None` if there are too
    /// many. What it lies in may not be verified yet.
    pub(super) fn met(&mut self, file: File, is_unproven: bool, released: &mut Released) -> Option<u32> {
        let (node, version) = (file.node, file.version);
        let place = self.place(file.folder, &file.name);
        if let Some((_, Some(number))) = self.known(node, place, version) {
            // Somebody else was quicker.
            self.hold(number);
            self.let_go(node, released);
            return Some(number);
        }
        let archive = Archive {
            file,
            place,
            state: ArchiveState::Closed,
            used: 0,
            held: 1,
            is_old: false,
            is_unproven,
            files: Answers::default(),
            calls: 0,
            levels: 1,
            numbering: None,
            was_given: false,
        };
        let is_rested = |since: &Option<Instant>| since.is_none_or(|since| since.elapsed() >= REST);
        let is_rested = self.free.front().is_some_and(|(since, _)| is_rested(since));
        let number = if is_rested && let Some((_, number)) = self.free.pop_front() {
            self.all[number as usize] = archive;
            number
        } else if self.all.len() < MOST {
            self.all.push(archive);
            self.all.len() as u32 - 1
        } else {
            return None;
        };
        self.remember((node, place), (version, Some(number)), released);
        Some(number)
    }

    /// Somebody was given a node of this archive.
    pub(super) fn hold(&mut self, number: u32) {
        if let Some(archive) = self.get(number) {
            archive.held += 1;
        }
    }

    /// Somebody knows the number of this archive from now on. One that was only looked at need not rest.
    pub(super) fn give(&mut self, number: u32) {
        if let Some(archive) = self.get(number) {
            archive.was_given = true;
        }
    }

    /// Somebody forgets nodes of this archive. What nobody holds and is not open is not known any more, and neither are
    /// the archives around it that only it held.
    pub(super) fn release(&mut self, number: u32, times: u64, released: &mut Released) {
        let (mut number, mut times) = (number, times);
        loop {
            let Some(archive) = self.get(number) else { return };
            archive.held = archive.held.saturating_sub(times);
            let is_kept = match archive.state {
                ArchiveState::Open(_) => !archive.is_old,
                ArchiveState::Opening => true,
                _ => false,
            };
            if archive.held > 0 || is_kept {
                return;
            }
            let (file, place, is_old) = (archive.file.node, archive.place, archive.is_old);
            let was_given = archive.was_given;
            let files = std::mem::take(&mut archive.files);
            self.remembered = self.remembered.saturating_sub(files.len());
            if let Some(archive) = self.all.get_mut(number as usize)
                && let ArchiveState::Open(tree) = std::mem::replace(&mut archive.state, ArchiveState::Free)
            {
                released.trees.push(tree);
            }
            self.open.retain(|open| *open != number);
            if was_given {
                self.free.push_back((Some(Instant::now()), number));
            } else {
                self.free.push_front((None, number));
            }
            let of = self.ranges.archive(file);
            if !is_old && self.files(of).is_some_and(|files| files.archives.remove(&(file, place)).is_some()) {
                self.remembered = self.remembered.saturating_sub(1);
            }
            match of {
                None => return released.files.push(file),
                Some(outer) => (number, times) = (outer, 1),
            }
        }
    }

    /// A file is forgotten once.
    pub(super) fn let_go(&mut self, file: Node, released: &mut Released) {
        match self.ranges.archive(file) {
            None => released.files.push(file),
            Some(outer) => self.release(outer, 1, released),
        }
    }

    /// Somebody forgets a file of the base, which may become another one.
    pub(super) fn forget_answer(&mut self, file: Node) {
        if self.files.others.remove(&file).is_some() {
            self.remembered = self.remembered.saturating_sub(1);
        }
    }

    /// What an archive is, which somebody is about to use.
    pub(super) fn find(&mut self, number: u32) -> FoundArchive {
        self.clock += 1;
        let clock = self.clock;
        let Some(archive) = self.get(number) else { return FoundArchive::Free };
        archive.used = clock;
        match &archive.state {
            ArchiveState::Free => FoundArchive::Free,
            ArchiveState::Failed => FoundArchive::Failed,
            ArchiveState::Closed => FoundArchive::Closed(archive.file.clone()),
            ArchiveState::Opening => FoundArchive::Opening(archive.file.clone()),
            ArchiveState::Open(tree) => FoundArchive::Open(Arc::clone(tree), archive.calls),
        }
    }

    /// Whether what the archive of that number lies in is verified by now.
    pub(super) fn set_unproven(&mut self, number: u32, is_unproven: bool) {
        if let Some(archive) = self.get(number) {
            archive.is_unproven = is_unproven;
        }
    }

    /// True if it was not when somebody looked last.
    pub(super) fn is_unproven(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|archive| archive.is_unproven)
    }

    /// The file of an archive that cannot be opened before what it lies in is verified: that of this number, or of one
    /// around it.
    pub(super) fn unproven(&self, number: u32) -> Option<(u32, &File)> {
        let mut at = Some(number);
        while let Some(number) = at {
            let archive = self.all.get(number as usize)?;
            match archive.state {
                ArchiveState::Closed if archive.is_unproven => return Some((number, &archive.file)),
                ArchiveState::Free | ArchiveState::Failed | ArchiveState::Open(_) => return None,
                ArchiveState::Closed | ArchiveState::Opening => at = self.ranges.archive(archive.file.node),
            }
        }
        None
    }

    /// Now that what it lies in is verified, the archive of that number is none.
    pub(super) fn is_none(&mut self, number: u32, released: &mut Released) {
        if self.get(number).is_some_and(|archive| matches!(archive.state, ArchiveState::Closed)) {
            self.end(number, Outcome::Never, released);
        }
    }

    /// True of an archive that need not be waited for.
    pub(super) fn is_open(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|archive| matches!(archive.state, ArchiveState::Open(_)))
    }

    /// True if one more may be opened.
    pub(super) fn may_begin(&mut self, patience: Duration) -> bool {
        self.at_work.len() < MOST_OPENING_AT_ALL && self.has_turn(patience)
    }

    /// True if one more may be at work. One that got no further for `patience`, or is at work for much longer, does not
    /// count, unless too many of these take memory. Where nobody else is at work, that is still more of them.
    fn has_turn(&mut self, patience: Duration) -> bool {
        let (mut counted, mut decoding) = (0, 0);
        for at_work in self.at_work.values_mut().filter(|at_work| !at_work.waits) {
            let seen = at_work.steps.count();
            if std::mem::replace(&mut at_work.seen, seen) != seen {
                at_work.since = Instant::now();
            }
            let is_long = at_work.begun.elapsed() >= patience.saturating_mul(LONG);
            if !is_long && at_work.since.elapsed() < patience {
                counted += 1;
            } else {
                decoding += usize::from(at_work.steps.decodes());
            }
        }
        counted + decoding.saturating_sub(MOST_LONG) < MOST_OPENING || counted == 0 && decoding < MOST_LONG_AT_ALL
    }

    /// The file has answered, for which it may have been waited so long that others were begun meanwhile. True if it is
    /// the turn of this archive again.
    pub(super) fn may_go_on(&mut self, number: u32, patience: Duration) -> bool {
        if let Some(at_work) = self.at_work.get_mut(&number) {
            at_work.waits = true;
        }
        let has_turn = self.has_turn(patience);
        if let Some(at_work) = self.at_work.get_mut(&number).filter(|_| has_turn) {
            at_work.waits = false;
            (at_work.since, at_work.begun) = (Instant::now(), Instant::now());
        }
        has_turn
    }

    /// How many archives are around what lies in this one.
    pub(super) fn depth_in(&self, number: u32) -> u32 {
        self.all.get(number as usize).map_or(0, |archive| archive.file.depth.saturating_add(archive.levels))
    }

    /// The same, where each counts once.
    pub(super) fn number_in(&self, number: u32) -> u32 {
        self.all.get(number as usize).map_or(0, |archive| archive.file.within.saturating_add(1))
    }

    /// It is being opened, and counts as so many archives.
    pub(super) fn set_levels(&mut self, number: u32, levels: u32) {
        if let Some(archive) = self.get(number) {
            archive.levels = levels;
        }
    }

    /// Somebody begins to open it, and takes these steps.
    pub(super) fn begin(&mut self, number: u32) -> Arc<Steps> {
        let steps = Arc::new(Steps::default());
        let now = Instant::now();
        self.at_work
            .insert(number, AtWork { steps: Arc::clone(&steps), seen: 0, since: now, begun: now, waits: false });
        if let Some(archive) = self.get(number) {
            archive.state = ArchiveState::Opening;
        }
        steps
    }

    /// True if nodes of this archive, of which some may have been given out, are numbered otherwise than this.
    pub(super) fn is_renumbered(&mut self, number: u32, numbering: u64) -> bool {
        self.get(number).and_then(|archive| archive.numbering).is_some_and(|before| before != numbering)
    }

    /// Somebody has done with opening it. At once, so that nobody sees it between two states.
    pub(super) fn end(&mut self, number: u32, outcome: Outcome, released: &mut Released) {
        self.at_work.remove(&number);
        if let Some(archive) = self.get(number) {
            match outcome {
                Outcome::NotNow => archive.state = ArchiveState::Closed,
                Outcome::Opened(tree, calls, numbering) => {
                    archive.state = ArchiveState::Open(tree);
                    archive.calls = calls;
                    archive.numbering = Some(numbering);
                    self.open.push(number);
                }
                Outcome::Renumbered => {
                    archive.state = ArchiveState::Closed;
                    self.forget_file_of(number);
                }
                Outcome::Never => {
                    archive.state = ArchiveState::Failed;
                    let (file, version, is_old) = (archive.file.node, archive.file.version, archive.is_old);
                    let place = archive.place;
                    let (name, set) = (archive.file.name.clone(), archive.file.set.clone());
                    if !is_old {
                        if self.failed.len() >= MOST_FAILED {
                            self.failed.clear();
                        }
                        if let Some(set) = set {
                            // Others may come, or change: then it is looked at again.
                            self.failed.insert((name, version.of_set(set.hash)));
                            self.forget_file_of(number);
                        } else {
                            self.failed.insert((name, version));
                            self.no_archive(file, place, version, released);
                        }
                    }
                }
            }
        }
        self.release(number, 0, released);
    }

    /// Closes those that were not used for longest.
    pub(super) fn close_others(&mut self, most: usize, released: &mut Released) {
        if self.open.len() <= most {
            return;
        }
        let used = |number: &u32| self.all.get(*number as usize).map_or(0, |archive| archive.used);
        let mut open = self.open.clone();
        open.sort_by_key(used);
        self.open = open.split_off(open.len() - most);
        for number in open {
            if let Some(archive) = self.get(number)
                && let ArchiveState::Open(tree) = std::mem::replace(&mut archive.state, ArchiveState::Closed)
            {
                released.trees.push(tree);
            }
            self.release(number, 0, released);
        }
    }

    /// Those that are open.
    pub(super) fn trees(&self) -> Vec<Arc<dyn Tree>> {
        let open = |number: &u32| match &self.all.get(*number as usize)?.state {
            ArchiveState::Open(tree) => Some(Arc::clone(tree)),
            _ => None,
        };
        self.open.iter().filter_map(open).collect()
    }

    /// How many numbers were ever used.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> usize {
        self.all.len()
    }

    /// How many have numbers.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
