//! `tarnfs extract`: the files of an archive, or some of them, as files.
//!
//! Where the archive is compressed and has no index, one pass decodes it and writes what is in it (`stage.rs`). Then
//! the tree is known: `walk.rs` makes the folders and notes all else down (`plan.rs`), in the order of the archive.
//! Threads (`work.rs`) make that: they take what was written, or read it from the archive. Last, folders get their
//! attributes (`finishing.rs`). `destination.rs` is all that makes and names things; `existing.rs` says what becomes of
//! what is there.

pub(super) mod attributes;
pub(super) mod content;
mod destination;
mod existing;
mod finishing;
mod folders;
mod folding;
pub(super) mod owners;
pub(super) mod plan;
pub(super) mod report;
pub(super) mod selection;
mod stage;
mod walk;
mod work;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tarnfs_index::Index;
use tarnfs_source::{Cancel, Source};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{Contents, OpenArchive};
use tarnfs_tree::{ArchiveTree, Error, Node, Tree, Xattrs};

use crate::args::{Extract, shown};
use crate::commands::window;
use crate::exit::{Code, Failure};
use crate::inside::{self, ToExtract};

use attributes::{Finished, Keeping, Wanted, hands_lists_down};
use destination::{Destination, cannot_be_here, has_no_room};
use existing::Existing;
use finishing::{Folders, is_still};
use owners::Owners;
use plan::Unfinished;
use report::Report;
use selection::Selection;
use stage::Staging;

/// Why nothing more is extracted.
struct Stop(Failure);

/// What all parts of it know.
struct Extraction<'a> {
    archive: &'a Path,
    tree: &'a ArchiveTree,
    index: &'a dyn Index,
    destination: &'a Destination,
    keeping: &'a Keeping,
    owners: &'a Owners,
    existing: Existing,
    /// Folders that are left out at the start of each path.
    strip: usize,
    force: bool,
    /// It is one compressed file. If something of that is missing, nobody knows how long it was.
    is_a_file: bool,
    folder: &'a Path,
    /// What small files are read from, several at once.
    stream: Option<&'a dyn Source>,
    cancel: &'a Cancel,
    progress: &'a Progress,
    report: &'a Report,
    staging: Option<&'a Staging>,
    /// Folders that were there hand access lists down.
    inherits: AtomicBool,
    is_stopped: AtomicBool,
    has_no_links: AtomicBool,
    /// Other file systems lie below the folder; asked when something has failed.
    has_mounts: OnceLock<bool>,
}

/// Extracts what was named.
pub(crate) fn run(arguments: &Extract) -> Result<Code, Failure> {
    let archive = &arguments.archive;
    let keeping = Arc::new(Keeping::new(arguments)?);
    let existing = Existing::of(arguments);
    let folder = arguments.directory.as_path();
    let cannot_open = |error: &io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "cannot be made: the folder that it is to be in is not there",
            io::ErrorKind::NotADirectory => "cannot be extracted to: it is no folder",
            io::ErrorKind::PermissionDenied => "cannot be made or opened: permission denied",
            _ => return Failure::new(Code::Failure, format!("-C {}: {error}", shown(folder.as_os_str()))),
        };
        Failure::new(Code::Failure, format!("-C {}: {what}", shown(folder.as_os_str())))
    };
    let mut destination = None;
    let mut staging = None;
    let is_all = arguments.patterns.is_empty();
    let opened = inside::open_to_extract(archive, &arguments.open, is_all, true, |options, ending| {
        let opened = Arc::new(Destination::open(folder).map_err(|error| cannot_open(&error))?);
        ending.removes(Some(opened.remover(folder)));
        // What stays as it is need not be written a second time; that is known when the index is there.
        if !existing.may_leave() {
            let selection = Selection::new(&arguments.patterns, options.limits);
            let threads = options.decoding.threads;
            let writing = writing_to(archive, folder);
            staging = Some(Arc::new(Staging::new(&opened, &writing, selection, &keeping, threads)));
        }
        destination = Some(opened);
        Ok(staging.clone().map(|staging| staging as Arc<dyn Contents>))
    });
    if let Some(staging) = staging.as_ref().filter(|_| opened.is_err()) {
        staging.give_up();
    }
    let staged = staging.as_ref().map_or(Ok(()), |staging| staging.finish());
    if (opened.is_err() || staged.is_err()) && destination.take_if(|destination| destination.is_made()).is_some() {
        staging = None;
        // Only if nothing is in it.
        let _ = std::fs::remove_dir(folder);
    }
    staged.map_err(|error| cannot_write(archive, folder, &error).0)?;
    let ToExtract { opened, code, cancel, limits, threads } = opened.map_err(|mut failure| {
        // In 7z, -o names the folder.
        if failure.code == Code::CannotOpen && arguments.no_same_owner && !archive.is_file() {
            failure.message.push_str("; the folder to extract to is named with -C");
        }
        failure
    })?;
    let Some(destination) = &destination else { return Err(cannot_open(&io::ErrorKind::NotFound.into())) };
    let staging = staging.filter(|_| opened.is_new && !opened.index.summary().layers.is_empty());
    let names_all = arguments.open.debug >= 2;
    let report = Report::new(archive, arguments.open.colour(), code, names_all, arguments.verbose);
    let failed = |error: &Error| inside::failure(archive, b"", error);
    let owners = Owners::new(&*opened.index, keeping.is_numeric).map_err(|error| failed(&error))?;
    let progress = Arc::new(Progress::default());
    let mut selection = Selection::new(&arguments.patterns, limits);
    selection.settle(&opened.tree).map_err(|error| failed(&error))?;
    let extraction = Extraction {
        archive,
        tree: &opened.tree,
        index: &*opened.index,
        destination,
        keeping: &keeping,
        owners: &owners,
        existing,
        strip: arguments.strip_components,
        force: arguments.open.force,
        is_a_file: opened.is_single_file().map_err(|error| inside::failure(archive, b"", &error.into()))?,
        folder,
        stream: window::stream_of(&opened),
        cancel: &cancel,
        progress: &progress,
        report: &report,
        staging: staging.as_deref(),
        inherits: AtomicBool::new(hands_lists_down(destination.root())),
        is_stopped: AtomicBool::new(false),
        has_no_links: AtomicBool::new(false),
        has_mounts: OnceLock::new(),
    };
    extraction.all(&selection, &progress, threads).map_err(|stop| stop.0)?;
    report_end(&opened, &extraction);
    keeping.tell_of_lost(report.archive());
    let finished = report.finish();
    if destination.is_made() && matches!(finished, Ok(Code::Failure)) {
        // What was named is not in the archive. Only if nothing is in it.
        let _ = std::fs::remove_dir(folder);
    }
    finished
}

/// What is said of the whole when all is done.
fn report_end(opened: &OpenArchive, extraction: &Extraction<'_>) {
    if extraction.has_no_links.load(Ordering::Relaxed) {
        let name = shown(extraction.archive.as_os_str());
        log::warn!("{name}: the file system there has no hard links, or too few: some files are there several times");
    }
    if opened.index.has_unverified() && extraction.force {
        log::info!("what fails its checksum was extracted, too");
    }
}

/// What is done, for messages.
fn writing_to(archive: &Path, folder: &Path) -> String {
    format!("{}: writing to {}", shown(archive.as_os_str()), shown(folder.as_os_str()))
}

/// That nothing more can be written.
fn cannot_write(archive: &Path, folder: &Path, error: &io::Error) -> Stop {
    let what = "all that has its name there is whole; --resume goes on";
    Stop(Failure::new(Code::Failure, format!("{}: {error}: {what}", writing_to(archive, folder))))
}

impl Extraction<'_> {
    fn all(&self, selection: &Selection, progress: &Arc<Progress>, threads: usize) -> Result<(), Stop> {
        let plan = walk::plan(self, selection)?;
        let last = plan.found.len().saturating_sub(1);
        for (number, pattern) in selection.typed().enumerate().filter(|(number, _)| !plan.found[*number]) {
            use std::os::unix::ffi::OsStrExt as _;
            if selection.is_there(self.tree, number).map_err(|error| self.broken(&error))? {
                // Another one selects it.
                continue;
            }
            let mut failure = inside::failure(self.archive, pattern.as_bytes(), &Error::NotFound);
            if tarnfs_tree::path::find(self.tree, pattern.as_bytes(), true).is_ok() {
                failure.message.push_str(
                    "; the way there leads over a symbolic link, which is not followed: name what it leads to",
                );
            } else if number == last && self.folder == Path::new(".") {
                // Other programs take the last one for the folder to extract to.
                failure.message.push_str("; -C names the folder to extract to");
            }
            self.report.failed(&failure);
        }
        progress.total.store(plan.bytes.max(1), Ordering::Relaxed);
        let bar = inside::bar_of(self.archive, progress, plan.count);
        // A few files are made before another thread has begun.
        let is_little = plan.bytes < 1 << 20 && plan.count < 64;
        // Without the first folders several may have one name: the last one of the archive is to be there in the end.
        let threads = if is_little || self.strip > 0 { 1 } else { threads };
        work::run(self, plan.items, threads)?;
        drop(bar);
        self.destination.remove_stage();
        self.finish_folders(plan.folders)
    }

    /// Gives folders their attributes: each when nothing is made in it any more.
    fn finish_folders(&self, folders: Folders) -> Result<(), Stop> {
        let cannot = |error| self.cannot_note(&error);
        let mut folders = folders.finish().map_err(cannot)?;
        while let Some(folder) = folders.next(|node| self.names_of(node)).map_err(cannot)? {
            self.check()?;
            if let Err(failure) = self.finish_folder(folder) {
                let names = self.tree.names_to(folder.node).unwrap_or_default();
                self.report.of_file(&names.join(&b'/'), failure.code, &failure.message);
            }
        }
        Ok(())
    }

    fn finish_folder(&self, Unfinished { node, is_made, identity }: Unfinished) -> Result<(), Failure> {
        let read = |error: &Error| inside::failure(self.archive, b"", error);
        let attributes = self.tree.attributes(node).map_err(|error| read(&error))?;
        let stored = self.tree.stored(node).map_err(|error| read(&error))?;
        let names = self.names_of(node).map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
        let folder = self.destination.folder_to_finish(&names);
        let folder = folder.map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
        if !is_still(&folder, identity).map_err(|error| Failure::new(Code::Failure, error.to_string()))? {
            return Err(Failure::new(Code::Failure, "its attributes cannot be kept: somebody has replaced it"));
        }
        let xattrs =
            if stored.has_xattrs { self.tree.xattrs(node).map_err(|error| read(&error))? } else { Xattrs::new() };
        let (uid, gid) = (attributes.uid, attributes.gid);
        let owner =
            if self.keeping.owner { self.owner(node, uid, gid).map_err(|error| read(&error))? } else { (uid, gid) };
        let wanted =
            Wanted { mode: attributes.mode, owner, mtime: attributes.mtime, atime: attributes.atime, xattrs: &xattrs };
        // Lists of a folder that was there are the user's.
        if is_made && self.inherits.load(Ordering::Relaxed) {
            use std::os::fd::AsFd as _;
            self.keeping.without_inherited(folder.as_fd(), true);
        }
        self.keeping.keep(&folder, &wanted, Finished::Folder { is_made })
    }

    /// The names at the destination of a folder in the archive, and of those that it is in.
    fn names_of(&self, folder: Node) -> io::Result<Vec<Vec<u8>>> {
        let names = self.tree.names_to(folder).map_err(io::Error::other)?;
        Ok(names.into_iter().skip(self.strip).collect())
    }

    fn owner(&self, node: Node, uid: u32, gid: u32) -> Result<(u32, u32), Error> {
        self.owners.here(self.index, node, uid, gid)
    }

    fn path_of(&self, folder: Node, name: &[u8]) -> Vec<u8> {
        let mut names = self.tree.names_to(folder).unwrap_or_default();
        names.push(name.to_vec());
        names.join(&b'/')
    }

    fn failed(&self, folder: Node, name: &[u8], code: Code, what: &str) {
        self.report.of_file(&self.path_of(folder, name), code, what);
    }

    /// It has its name.
    fn done(&self, folder: Node, name: &[u8]) -> Result<(), Stop> {
        if self.report.says_names() { self.report.done(&self.path_of(folder, name)).map_err(Stop) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() { Err(self.interrupted()) } else { Ok(()) }
    }

    fn goes_on(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// True of what no other file would fare better with. What is mounted below has room, and may be written to, or
    /// not, by itself.
    fn ends_all(&self, error: &io::Error) -> bool {
        let is_of_one_mount = cannot_be_here(error) || has_no_room(error);
        content::ends_all(error) && !(is_of_one_mount && self.has_mounts())
    }

    fn has_mounts(&self) -> bool {
        *self.has_mounts.get_or_init(|| self.destination.has_mounts())
    }

    /// Files are made twice where they cannot have two names.
    fn no_links(&self) {
        self.has_no_links.store(true, Ordering::Relaxed);
    }

    fn interrupted(&self) -> Stop {
        let name = shown(self.archive.as_os_str());
        Stop(Failure::new(Code::Interrupted, format!("{name}: interrupted; --resume goes on")))
    }

    fn cannot_write(&self, error: &io::Error) -> Stop {
        cannot_write(self.archive, self.folder, error)
    }

    /// The list of what is to be done cannot be kept.
    fn cannot_note(&self, error: &io::Error) -> Stop {
        let what = format!("{}: the list of its files: {error}", shown(self.archive.as_os_str()));
        Stop(Failure::new(Code::Failure, what))
    }

    fn broken(&self, error: &Error) -> Stop {
        Stop(inside::failure(self.archive, b"", error))
    }
}
