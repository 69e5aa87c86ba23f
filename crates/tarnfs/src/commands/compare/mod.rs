//! `tarnfs compare`: what differs between an archive and a folder, or another archive.
//!
//! Where the archive is compressed and has no index, its contents are compared while it is decoded for the first time
//! (`passing.rs`). Then the tree is known: `walk.rs` compares folders and notes all else down, in the order of the
//! archive, and threads (`work.rs`) compare that. Both sides are asked through `side.rs`.

mod content;
mod difference;
mod disk;
mod lines;
mod passing;
mod second;
mod side;
mod walk;
mod work;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_format::Shown;
use tarnfs_index::Index;
use tarnfs_source::{Cancel, Source};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{Contents, OpenArchive, Options, is_url};
use tarnfs_tree::{ArchiveTree, Error, Kind, Node, Stored, Time, Tree, Xattrs};

use crate::args::{Compare, Ignored, shown};
use crate::exit::{Code, Failure};
use crate::inside::{self, ToExtract};

use super::extract::owners::Owners;
use super::extract::report::Report;
use super::extract::selection::Selection;
use super::window;
use difference::{Difference, Style};
use disk::Disk;
use lines::{Lines, Turn};
use passing::Passing;
use second::{Keeps, Second};
use side::{FileNumber, Seen, Side};

/// Files with several names at the other side of which is looked whether they are several in the archive.
const MOST_LINKED: usize = 1 << 20;

/// Extended attributes that are access control lists.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// What tarnfs says of a file, which is not in the archive.
const DAMAGED: &[u8] = b"user.tarnfs.damaged";

/// Why nothing more is compared.
struct Stop(Failure);

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct What {
    mode: bool,
    owner: bool,
    mtime: bool,
    xattrs: bool,
    links: bool,
    content: bool,
    /// What is only at the other side, and, if that is to be told, also in the folder that everything is in.
    extra: Option<bool>,
}

/// A file that has several names at the other side.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Linked {
    file: FileNumber,
    stored: Stored,
    node: Node,
    folder: Node,
    name: Vec<u8>,
}

/// What all parts of it know.
struct Comparison<'a, S: Side> {
    archive: &'a Path,
    tree: &'a ArchiveTree,
    index: &'a dyn Index,
    /// What small files are read from, several at once. `None` if more has to be looked at for each of them.
    stream: Option<&'a dyn Source>,
    keeps: Keeps,
    side: &'a S,
    what: What,
    other: &'a Path,
    owners: &'a Owners,
    lines: &'a Lines,
    report: &'a Report,
    cancel: &'a Cancel,
    progress: &'a Progress,
    passing: Option<&'a Passing<S>>,
    /// It is one compressed file. If something of that is missing, nobody knows how long it was.
    is_a_file: bool,
    force: bool,
    linked: Mutex<Vec<Linked>>,
    /// Folders of the other side that lie deep, where they can be kept, by what they are in the archive.
    deep: Mutex<HashMap<Node, S::Folder>>,
    is_stopped: AtomicBool,
}

/// Compares what was named.
pub(crate) fn run(arguments: &Compare) -> Result<Code, Failure> {
    let other = arguments.other.as_deref().unwrap_or(Path::new("."));
    if other == Path::new("-") {
        let what = "-: only the first archive can be standard input; a file of that name is ./-";
        return Err(Failure::new(Code::Usage, what));
    }
    let cannot_open =
        |error: std::io::Error| Failure::new(Code::CannotOpen, format!("{}: {error}", shown(other.as_os_str())));
    let missing =
        |error: std::io::Error| cannot_open(std::io::Error::new(error.kind(), format!("cannot be opened: {error}")));
    let is_remote = arguments.open.network.is_some() && is_url(other) && !other.exists();
    if !is_remote && fs::metadata(other).map_err(missing)?.is_dir() {
        let disk = Disk::open(other).map_err(cannot_open)?;
        return with(arguments, other, |_| Ok((disk, Code::Success)));
    }
    if let Some(file) = arguments.open.index_file().filter(|file| *file != ":memory:") {
        let what = "each archive has an index of its own; use --index-folders";
        return Err(Failure::new(Code::Usage, format!("--index-file {}: {what}", shown(file))));
    }
    with(arguments, other, |options| {
        let options = Options { contents: None, sink: None, progress: Arc::default(), ..options.clone() };
        let (opened, code) = inside::open_with(other, &options)?;
        let second = Second::new(opened, arguments.numeric_owner, options.cancel.clone());
        Ok((second.map_err(|error| inside::failure(other, b"", &error))?, code))
    })
}

/// Compares it with what `open` opens, which is called `other`.
fn with<S: Side>(
    arguments: &Compare,
    other: &Path,
    open: impl FnOnce(&Options) -> Result<(S, Code), Failure>,
) -> Result<Code, Failure> {
    let archive = &arguments.archive;
    let compares = |what| !arguments.content_only && !arguments.ignore.contains(&what);
    let compares_content = !arguments.ignore.contains(&Ignored::Content);
    let (mut side, mut passing) = (None, None);
    let opened = inside::open_to_extract(archive, &arguments.open, false, false, |options, _| {
        // Of neither side: whoever compares wants to know what is stored now, also if it has rotted since a mount.
        options.decoding.decoded_cache = None;
        let (opened, code) = open(options)?;
        let opened = Arc::new(opened);
        side = Some((Arc::clone(&opened), code));
        if compares_content {
            let selection = Selection::new(&arguments.patterns, options.limits);
            let limits = (options.limits, options.decoding.threads);
            passing = Some(Arc::new(Passing::new(&opened, selection, limits, &options.cancel)));
        }
        Ok(passing.clone().map(|passing| passing as Arc<dyn Contents>))
    });
    let passed = passing.as_ref().map_or(Ok(()), |passing| passing.finish());
    let first = "the archive comes first: tarnfs compare ARCHIVE DIR";
    let ToExtract { opened, code, cancel, limits, threads } =
        opened.map_err(|failure| inside::of_folder(archive, failure, first))?;
    passed.map_err(|error| Failure::new(Code::Failure, format!("{}: {error}", shown(archive.as_os_str()))))?;
    let Some((side, other_code)) = side else {
        return Err(Failure::new(Code::Failure, format!("{}: not opened", shown(other.as_os_str()))));
    };
    let code = code.max(other_code);
    let report = Report::new(archive, arguments.open.colour(), code, arguments.open.debug >= 2, false);
    let failed = |error: &Error| inside::failure(archive, b"", error);
    let owners = Owners::new(&*opened.index, arguments.numeric_owner).map_err(|error| failed(&error))?;
    let mut selection = Selection::new(&arguments.patterns, limits);
    selection.settle(&opened.tree).map_err(|error| failed(&error))?;
    let format = second::format_of(&opened);
    let has_root = opened.tree.stored(Node::ROOT).map_err(|error| failed(&error))?.header.is_some();
    let tells_of_root = arguments.other.is_some() || has_root || !arguments.patterns.is_empty();
    let progress = Arc::new(Progress::default());
    let lines = Lines::new(Style { is_json: arguments.json, archive: name_of(archive), other: name_of(other) });
    let comparison = Comparison {
        archive,
        tree: &opened.tree,
        index: &*opened.index,
        stream: window::stream_of(&opened),
        keeps: Keeps::of(&opened),
        side: &*side,
        what: What {
            mode: compares(Ignored::Mode),
            owner: compares(Ignored::Owner),
            mtime: compares(Ignored::Mtime),
            // Where one side has none at all, nobody has looked at them when it was made.
            xattrs: compares(Ignored::Xattrs) && second::has_xattrs(&opened) && side.has_xattrs(),
            links: compares(Ignored::Links)
                && format.is_some_and(|format| format.fidelity().has_hard_links())
                && side.has_hard_links(),
            content: compares_content,
            extra: (!arguments.no_extra).then_some(tells_of_root),
        },
        other,
        owners: &owners,
        lines: &lines,
        report: &report,
        cancel: &cancel,
        progress: &progress,
        passing: passing.as_deref().filter(|_| opened.is_new && !opened.index.summary().layers.is_empty()),
        is_a_file: opened.is_single_file().map_err(|error| inside::failure(archive, b"", &error.into()))?,
        force: arguments.open.force,
        linked: Mutex::default(),
        deep: Mutex::default(),
        is_stopped: AtomicBool::new(false),
    };
    let compared = comparison.all(&selection, &left_out(&opened), &progress, threads);
    // What was found is said in any case.
    let written = lines.finish();
    compared.map_err(|stop| stop.0)?;
    written?;
    let code = report.finish()?;
    Ok(if lines.has_any() { code.max(Code::Failure) } else { code })
}

/// What an archive is called in the lines.
fn name_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec()
}

/// The archive and its index may lie in the folder.
fn left_out(opened: &OpenArchive) -> Vec<FileNumber> {
    let index = opened.index_path.as_deref().and_then(|path| fs::metadata(path).ok());
    opened.file.into_iter().chain(index.map(|found| (found.dev(), found.ino()))).collect()
}

impl<S: Side> Comparison<'_, S> {
    fn all(
        &self,
        selection: &Selection,
        left_out: &[FileNumber],
        progress: &Arc<Progress>,
        threads: usize,
    ) -> Result<(), Stop> {
        let plan = walk::plan(self, selection, left_out)?;
        for (number, pattern) in selection.typed().enumerate().filter(|(number, _)| !plan.found[*number]) {
            use std::os::unix::ffi::OsStrExt as _;
            let is_there = selection.is_there(self.tree, number);
            if is_there.map_err(|error| Stop(inside::failure(self.archive, b"", &error)))?
                || selection.names_of(number).is_some_and(|names| self.is_at_other_side(names))
            {
                // Another one selects it.
                continue;
            }
            self.report.failed(&inside::failure(self.archive, pattern.as_bytes(), &Error::NotFound));
        }
        progress.total.store(plan.bytes.max(1), Ordering::Relaxed);
        let bar = inside::bar(self.archive, progress);
        let is_little = plan.bytes < 1 << 20 && plan.count < 64;
        work::run(self, plan.items, if is_little { 1 } else { threads })?;
        drop(bar);
        self.tell_of_linked()
    }

    /// True if something is at the path of these names at the other side.
    fn is_at_other_side(&self, names: &[Vec<u8>]) -> bool {
        let Some((name, above)) = names.split_last() else { return false };
        let found = self.side.folder(above).and_then(|folder| self.side.look(&folder, name));
        found.is_ok_and(|found| found.is_some())
    }

    /// Tells of names that are one file at the other side, and several in the archive.
    fn tell_of_linked(&self) -> Result<(), Stop> {
        let mut linked = std::mem::take(&mut *self.linked.lock().unwrap_or_else(PoisonError::into_inner));
        linked.sort_unstable();
        let mut turn = self.lines.turn();
        for names in linked.chunk_by(|one, next| one.file == next.file) {
            self.check()?;
            let Some(first) = names.first() else { continue };
            for other in names.iter().filter(|other| other.node != first.node) {
                let to = self.path_of(first.folder, &first.name);
                turn.add(&self.path_of(other.folder, &other.name), Kind::File, &Difference::Linked(to));
            }
        }
        drop(turn);
        Ok(self.lines.check()?)
    }

    /// Notes a file that has more names at the other side.
    fn note_linked(&self, linked: Linked) {
        let mut all = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_LINKED {
            all.push(linked);
        }
    }

    /// Compares the attributes of `name` in `folder` at the other side, or of the folder itself if that is empty.
    /// Fails where one of the sides cannot be read.
    fn attributes(
        &self,
        (node, stored): (Node, &Stored),
        shown: Shown,
        (folder, name, seen): (&S::Folder, &[u8], &Seen),
        mut add: impl FnMut(&Difference),
    ) -> Result<(), Unread> {
        let told = self.keeps.told(self.tree, node, &shown, stored);
        if self.what.mode && told.mode && seen.told.mode && shown.kind != Kind::Symlink && shown.mode != seen.mode {
            add(&Difference::Mode(shown.mode, seen.mode));
        }
        if self.what.owner && told.owner && seen.told.owner {
            let (user, group) = self.owners.here(self.index, node, shown.uid, shown.gid).map_err(Unread::Archive)?;
            if user != seen.uid {
                add(&Difference::User(user, seen.uid));
            }
            if group != seen.gid {
                add(&Difference::Group(group, seen.gid));
            }
        }
        if self.what.mtime
            && let (Some(unit), Some(other_unit)) = (told.mtime, seen.told.mtime)
            && !is_same_time(shown.mtime, seen.mtime, unit.max(other_unit))
        {
            add(&Difference::Mtime(shown.mtime, seen.mtime));
        }
        if self.what.xattrs && stored.header.is_some() {
            let mut archive = Xattrs::new();
            if stored.has_xattrs {
                archive = self.tree.xattrs(node).map_err(Unread::Archive)?;
            }
            let other = self.side.xattrs(folder, name, seen).map_err(Unread::Other)?;
            if self.side.is_on_disk() {
                // Whoever unpacks it with other programs has none of these.
                let there = by_name(&other);
                archive.retain(|(name, _)| !self.keeps.is_foreign(stored, name) || there.contains_key(name.as_slice()));
            }
            self.xattrs(&archive, &other, add);
        }
        Ok(())
    }

    fn xattrs(&self, archive: &Xattrs, other: &Xattrs, mut add: impl FnMut(&Difference)) {
        let summary = self.index.summary();
        let hashes = &summary.shape.hashes;
        let is_root = rustix::process::geteuid().is_root();
        let is_own = |name: &[u8]| {
            let hash = name.strip_prefix(b"user.hash.");
            // Others do not see those of root.
            name == DAMAGED
                || !is_root && name.starts_with(b"trusted.")
                || hash.is_some_and(|hash| hashes.iter().any(|own| own.as_bytes() == hash))
        };
        // A file can have many thousands.
        let (in_archive, in_other) = (by_name(archive), by_name(other));
        for (name, stored) in archive.iter().filter(|(name, _)| !is_own(name)) {
            let there = in_other.get(name.as_slice()).copied();
            if !is_same_xattr(name, stored, there) {
                add(&Difference::Xattr(name.clone(), Some(stored.clone()), there.map(<[u8]>::to_vec)));
            }
        }
        // Of others than users' attributes nobody knows whether they were looked at when the archive was made.
        let is_told = |name: &[u8]| {
            if is_acl(name) { summary.has_acls } else { name.starts_with(b"user.") && !is_own(name) }
        };
        for (name, there) in other.iter().filter(|(name, _)| is_told(name)) {
            if !in_archive.contains_key(name.as_slice()) {
                add(&Difference::Xattr(name.clone(), None, Some(there.clone())));
            }
        }
    }

    fn path_of(&self, folder: Node, name: &[u8]) -> Vec<u8> {
        let mut names = self.tree.names_to(folder).unwrap_or_default();
        names.push(name.to_vec());
        names.join(&b'/')
    }

    /// Tells that something at `path` cannot be compared.
    fn unread(&self, path: &[u8], error: Unread) -> Result<(), Stop> {
        let (place, is_of_disk, error) = match error {
            Unread::Archive(error) => (self.archive, false, error),
            Unread::Other(error) => (self.other, self.side.is_on_disk(), error),
        };
        if inside::is_interrupted(&error) {
            return Err(self.interrupted());
        }
        let failure = inside::failure(place, path, &error);
        let code = if is_of_disk { Code::Failure } else { failure.code };
        self.report.failed(&Failure { code, ..failure });
        Ok(())
    }

    /// Adds a line.
    fn add(&self, turn: &mut Turn<'_>, folder: Node, name: &[u8], kind: Kind, what: &Difference) {
        turn.add(&self.path_of(folder, name), kind, what);
    }

    fn check(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() { Err(self.interrupted()) } else { Ok(()) }
    }

    fn interrupted(&self) -> Stop {
        Stop(Failure::new(Code::Interrupted, format!("{}: interrupted", shown(self.archive.as_os_str()))))
    }

    /// The list of what is to be compared cannot be kept.
    fn cannot_note(&self, error: &std::io::Error) -> Stop {
        let what = format!("{}: the list of its files: {error}", shown(self.archive.as_os_str()));
        Stop(Failure::new(Code::Failure, what))
    }
}

/// One of the sides cannot be read.
enum Unread {
    Archive(Error),
    Other(Error),
}

/// The values of extended attributes. Where there are several of a name, the first one counts.
fn by_name(xattrs: &Xattrs) -> HashMap<&[u8], &[u8]> {
    xattrs.iter().rev().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

/// True if both say the same. A list that says no more than the mode is none.
fn is_same_xattr(name: &[u8], archive: &[u8], other: Option<&[u8]>) -> bool {
    /// The version, and then entries: tag, permissions, number (linux/posix_acl_xattr.h).
    const HEAD: usize = 4;
    const ENTRY: usize = 8;
    const MINIMAL: usize = HEAD + 3 * ENTRY;
    if other == Some(archive) {
        return true;
    }
    if !is_acl(name) {
        return false;
    }
    let sorted = |list: &[u8]| {
        let mut entries: Vec<Vec<u8>> =
            list.get(HEAD..).unwrap_or_default().chunks(ENTRY).map(<[u8]>::to_vec).collect();
        for entry in &mut entries {
            // Only entries of single users and groups have a number.
            if !matches!(entry.first(), Some(0x02 | 0x08)) {
                entry.truncate(4);
            }
        }
        entries.sort();
        entries
    };
    match other {
        Some(other) => sorted(archive) == sorted(other),
        None => name == ACCESS_ACL && archive.len() <= MINIMAL,
    }
}

/// True if times are the same as far as both sides can tell, whose `unit` is in ns.
fn is_same_time(one: Time, other: Time, unit: u64) -> bool {
    const SECOND: u64 = 1_000_000_000;
    if unit > SECOND {
        // It may have been rounded either way.
        return one.seconds.abs_diff(other.seconds) < unit / SECOND;
    }
    let parts = |time: Time| u64::from(time.nanoseconds) / unit;
    one.seconds == other.seconds && parts(one) == parts(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_as_far_as_they_are_told() {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        assert!(is_same_time(time(5, 123_456_789), time(5, 123_456_789), 1));
        assert!(!is_same_time(time(5, 123_456_789), time(5, 123_456_788), 1));
        assert!(is_same_time(time(5, 123_456_700), time(5, 123_456_789), 100));
        assert!(!is_same_time(time(5, 123_456_700), time(5, 123_456_800), 100));
        assert!(is_same_time(time(5, 0), time(5, 999_999_999), 1_000_000_000));
        assert!(!is_same_time(time(5, 0), time(6, 0), 1_000_000_000));
        assert!(is_same_time(time(-6, 0), time(-7, 0), 2_000_000_000));
        assert!(!is_same_time(time(6, 0), time(8, 0), 2_000_000_000));
        assert!(!is_same_time(time(i64::MIN, 0), time(i64::MAX, 0), 2_000_000_000));
    }

    #[test]
    fn access_lists_are_compared_by_what_they_say() {
        let list = |entries: &[[u8; 8]]| [&[2, 0, 0, 0], entries.concat().as_slice()].concat();
        let (user, named, group) =
            ([1, 0, 7, 0, 255, 255, 255, 255], [2, 0, 7, 0, 9, 0, 0, 0], [4, 0, 5, 0, 255, 255, 255, 255]);
        let other_number = [4, 0, 5, 0, 0, 0, 0, 0];
        let is_same = |one: &[[u8; 8]], other: &[[u8; 8]]| is_same_xattr(ACCESS_ACL, &list(one), Some(&list(other)));
        assert!(is_same(&[user, named, group], &[user, group, named]));
        assert!(is_same(&[user, named, group], &[user, named, other_number]));
        assert!(!is_same(&[user, named, group], &[user, group]));
        assert!(is_same_xattr(ACCESS_ACL, &list(&[user, group, group]), None));
        assert!(!is_same_xattr(ACCESS_ACL, &list(&[user, named, group, group]), None));
        assert!(!is_same_xattr(b"user.x", &list(&[user, group]), Some(&list(&[group, user]))));
    }
}
