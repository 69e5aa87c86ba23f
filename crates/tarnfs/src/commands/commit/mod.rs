//! `tarnfs commit`: puts what was written into an overlay back into its archive.
//!
//! Where nothing is taken out of a tar that is not compressed, what was written is put behind it ([`append`]). Else the
//! tree that a mount would show goes into a new archive beside the old one ([`rewrite`]), which is read again and
//! compared. Then the overlay notes which archive it goes into, that takes the old one's place, and the overlay is
//! emptied. Who finds the note looks which of both archives is there, and goes on from that.

mod append;
mod merged;
mod older;
mod plan;
mod rewrite;

use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use tarnfs_source::{Cancel, FileSource};
use tarnfs_tree::open::{OpenArchive, Options, is_url, parts_of};
use tarnfs_tree::{GoesInto, MountedOver, OverlayError, OverlayTree, Tree};
use tarnfs_write::Target;
use tarnfs_write::compress;
use tarnfs_write::container::CONTAINERS;

use super::check::wrong_checksums;
use super::create;
use super::rewriting::{is_unchanged, read_anew};
use crate::args::{Commit, Compress, Keys, Mount, Open, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::overlay::{self, Commits};
use crate::signals::Ending;
use crate::terminal;

use append::Left;
use older::{Older, lost_older};
use plan::{Changes, Plan, is_confirmed, say};
use rewrite::{Job, lost_of, rewriting};

/// What is asked for.
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct Task<'a> {
    archive: &'a Path,
    /// The folder of the overlay.
    overlay: &'a Path,
    /// Nobody is asked.
    yes: bool,
    dry_run: bool,
    /// It goes on where the new archive cannot have all of it.
    lossy: bool,
    /// The archive is written anew, also where appending is enough.
    rewrite: bool,
    /// Nobody is told what will be done.
    is_quiet: bool,
    how: Compress,
    threads: usize,
    open: &'a Open,
    /// The mount that was written in, whose folder goes when all is in the archive, and what a signal ends.
    commits: Option<(&'a Commits, &'a Ending)>,
}

impl<'a> Task<'a> {
    /// Of a mount that has ended.
    fn of_unmount(archive: &'a Path, overlay: &'a Path, open: &'a Open) -> Self {
        Self {
            archive,
            overlay,
            yes: true,
            dry_run: false,
            lossy: false,
            rewrite: false,
            is_quiet: true,
            how: Compress { compress: None, level: None, memory: None, overwrite: true, no_index: false },
            threads: 0,
            open,
            commits: None,
        }
    }
}

/// Puts what is in an overlay into its archive.
pub(crate) fn run(arguments: &Commit) -> Result<Code, Failure> {
    let (level, memory, no_index) = (arguments.level, arguments.memory, arguments.no_index);
    commit(&Task {
        archive: &arguments.archive,
        overlay: &arguments.overlay,
        yes: arguments.yes,
        dry_run: arguments.dry_run,
        lossy: arguments.lossy,
        rewrite: arguments.rewrite,
        is_quiet: false,
        how: Compress { compress: None, level, memory, overwrite: true, no_index },
        threads: arguments.threads,
        open: &arguments.open,
        commits: None,
    })
}

/// The same for `--commit-overlay`.
pub(crate) fn of_mount(mount: &Mount) -> Result<Code, Failure> {
    let usage = |what: &str| Failure::new(Code::Usage, format!("--commit-overlay: {what}"));
    let Some(overlay) = mount.written.overlay() else {
        return Err(usage("name the folder of the overlay with --write-overlay DIR"));
    };
    let [archive] = mount.paths.as_slice() else {
        return Err(usage("name one archive, and no mount point: an overlay goes into one archive"));
    };
    if mount.prefix.is_some() {
        return Err(usage("--prefix does not go with it"));
    }
    let task = Task::of_unmount(archive, Path::new(overlay), &mount.open);
    commit(&Task { yes: false, is_quiet: false, ..task })
}

/// The archive that a mount of `sources` is to put into what is written there, if that can be done.
pub(crate) fn can_be_written(sources: &[PathBuf], mount: &Mount) -> Result<PathBuf, Failure> {
    let [archive] = sources else {
        let what = "--write: name one archive: what is written goes into one; --write-overlay DIR takes it for others";
        return Err(Failure::new(Code::Usage, what));
    };
    if mount.prefix.is_some() || mount.disable_union_mount {
        let what = "--write does not go with --prefix and --disable-union-mount";
        return Err(Failure::new(Code::Usage, what));
    }
    let archive = archive.canonicalize().unwrap_or_else(|_| archive.clone());
    let task = Task::of_unmount(&archive, Path::new(""), &mount.open);
    is_one_file(&task)?;
    let keys = Keys::read(task.open)?;
    let mut options = inside::options(task.open, &keys, &Cancel::default())?;
    if options.shape.recursion.is_some() || options.shape.transform.is_some() {
        return Err(Failure::new(Code::Usage, "--write does not go with -r and --transform"));
    }
    options.index.use_sidecars = false;
    let changes = overlay::changes_of(&archive);
    overlay::are_own_changes(&archive, &changes)?;
    if Left::of(&archive, &changes)?.is_some_and(|left| left.bytes > 0) {
        // Unless a commit is at it. With that behind its end it would be refused.
        let _lock = lock(&archive)?;
        Left::of(&archive, &changes)?.map_or(Ok(()), |left| left.take_back(&archive))?;
    }
    let opened = inside::open_quietly(&archive, &options)?;
    is_whole(&archive, &opened, &options)?;
    let target = target_of(&archive, &opened)?;
    let new = rewriting(&archive, target, &opened, &options.cancel)?;
    match lost_of(&new, false)?.first() {
        None => {
            let lost = lost_older(&new)?;
            if lost > 0 {
                let entries = if lost == 1 { "entry" } else { "entries" };
                log::warn!(
                    "{}: {lost} older {entries} of the same names cannot be kept where it is written anew, as for what \
                     is removed or renamed: then what was written stays beside it, and `tarnfs commit --lossy` goes \
                     on without them",
                    shown(archive.as_os_str())
                );
            }
            drop(new);
            Ok(archive)
        }
        Some(what) => {
            let what = format!(
                "{what}; --write would not put anything into it: --write-overlay DIR takes what is written, and \
                 `tarnfs commit --lossy` goes on without that"
            );
            Err(cannot(&archive, what))
        }
    }
}

/// Puts what was written in a mount that is over into its archive. Where that fails, it is said where it is.
pub(crate) fn when_unmounted(
    archive: &Path,
    commits: &Commits,
    written: &OverlayTree,
    (open, ending): (&Open, &Ending),
) -> Result<(), Failure> {
    let folder = commits.folder().to_owned();
    let task = Task { commits: Some((commits, ending)), ..Task::of_unmount(archive, &folder, open) };
    match written.release().map_err(failed).and_then(|()| commit(&task)) {
        Ok(_) => Ok(()),
        Err(mut failure) => {
            failure.message = format!("{}; {}", failure.message, kept_in(archive, &folder));
            log::error!("{}", failure.message);
            Err(failure)
        }
    }
}

/// That what was written could not be put into its archive.
pub(crate) fn kept_in(archive: &Path, folder: &Path) -> String {
    let (archive, folder) = (shown(archive.as_os_str()), shown(folder.as_os_str()));
    format!(
        "what was written is not in {archive}, and is kept in {folder}: `tarnfs commit {archive} --overlay {folder}` says why, \
         and the next mount with --write goes on with it"
    )
}

fn commit(task: &Task<'_>) -> Result<Code, Failure> {
    is_one_file(task)?;
    let keys = Keys::read(task.open)?;
    let ending = task.commits.map(|(_, ending)| ending.clone()).unwrap_or_default();
    let mut options = inside::options(task.open, &keys, &ending.cancel())?;
    if options.shape.recursion.is_some() || options.shape.transform.is_some() {
        let what = "-r and --transform do not go with it: only what is stored in the archive itself can be written";
        return Err(Failure::new(Code::Usage, what));
    }
    // That of ratarmount says too little: what it leaves out would not be in the new archive.
    options.index.use_sidecars = false;
    options.index.is_written = false;
    let _lock = lock(task.archive)?;
    is_overlay(task.overlay)?;
    // With what an ended commit has left at its end, as a mount may have shown it.
    let before = state_of(task.archive)?;
    let mut left = Left::of(task.archive, task.overlay)?;
    if task.dry_run {
        if !told_of_what_is_first(task, left.as_ref())? {
            return Ok(Code::Success);
        }
    } else if let Some(left) = left.take() {
        left.take_back(task.archive)?;
    }
    if !task.rewrite
        && let Some(code) = attempt(task, &options, (left, &before), &ending)?
    {
        return Ok(code);
    }
    // To replace an archive, it is read anew.
    let code = attempt(task, &read_anew(&options), (left, &before), &ending)?;
    code.ok_or_else(|| cannot(task.archive, "it was to be written anew, and was not; this is an error in tarnfs"))
}

/// Says what a commit does first, as another one was ended. False if nothing can be said of what it does then.
fn told_of_what_is_first(task: &Task<'_>, left: Option<&Left>) -> Result<bool, Failure> {
    let (archive, overlay) = (shown(task.archive.as_os_str()), shown(task.overlay.as_os_str()));
    let then = "only then it can be said what else is done";
    if let Some(left) = left.filter(|left| left.bytes > 0) {
        let what =
            format!("{archive}: {} bytes that an ended commit has left at its end are taken away first", left.bytes);
        // Such an archive has other entries than it will have.
        say(&if left.has_head { format!("{what}; {then}") } else { what })?;
        if left.has_head {
            return Ok(false);
        }
    }
    let is_theirs = !has_overlay(task.overlay);
    if is_theirs {
        say(&format!("{overlay}: what ratarmount has written there is taken over first; {then}"))?;
    }
    Ok(!is_theirs)
}

/// Commits into the archive as `options` open it. `None` if it has to be written anew, and an index was used. `left` is
/// not taken away yet; `before` anything was, the archive was so.
fn attempt(
    task: &Task<'_>,
    options: &Options,
    (left, before): (Option<Left>, &MountedOver),
    ending: &Ending,
) -> Result<Option<Code>, Failure> {
    let archive = task.archive;
    let known = fs::metadata(archive).map_err(|error| cannot(archive, format!("cannot be opened: {error}")))?;
    let opened = inside::open_quietly(archive, options)?;
    is_whole(archive, &opened, options)?;
    if opened.file != Some((known.dev(), known.ino())) {
        return Err(cannot(archive, "another file took its place while it was opened"));
    }
    let target = create::checked(target_of(archive, &opened)?, &task.how)?;
    let overlay = open_overlay(task, &opened)?;
    // It may have been waited for, while somebody else committed it.
    if let Err(failure) = is_unchanged(archive, &known, "nothing was committed: do it again") {
        if !task.dry_run {
            overlay.forget_root().map_err(failed)?;
        }
        return Err(failure);
    }
    let code = commit_opened(task, (&opened, &known, left, before), target, &overlay, (options, ending))?;
    if code == Some(Code::Success)
        && let Some((commits, _)) = task.commits
    {
        // While the overlay is ours.
        overlay.remove_empty_folders();
        commits.finish();
    }
    drop(overlay);
    Ok(code)
}

/// The same, with both at hand.
fn commit_opened(
    task: &Task<'_>,
    (opened, known, left, before): (&OpenArchive, &Metadata, Option<Left>, &MountedOver),
    target: Target,
    overlay: &Arc<OverlayTree>,
    (options, ending): (&Options, &Ending),
) -> Result<Option<Code>, Failure> {
    let (archive, folder, cancel) = (task.archive, task.overlay, ending.cancel());
    if is_committed(task, opened, overlay)? {
        let has_all = format!("{}: has what was written since a commit that was ended", shown(archive.as_os_str()));
        if task.dry_run {
            say(&format!("{has_all}; only the overlay is emptied"))?;
        } else {
            terminal::tell(&format!("{has_all}; the overlay is empty now"));
        }
        return Ok(Some(Code::Success));
    }
    is_of_this(archive, folder, overlay)?;
    // Before what is nothing is removed: nor does the walk of the changes meet all.
    all_is_listed(task, overlay, &cancel)?;
    let changes = Changes::of(folder)?;
    if changes.is_nothing() && !(changes.root && target.keeps().root) {
        if changes.root {
            let what = "owner, mode and time of the folder that all is in cannot be kept there";
            log::warn!("{}: {what}", shown(archive.as_os_str()));
        }
        terminal::tell(&format!("{}: nothing to commit", shown(folder.as_os_str())));
        return Ok(Some(Code::Success));
    }
    let since = since_mounted(task, overlay, (left, before))?;
    let job = Job::new(task, target, (opened, left), Arc::clone(overlay), changes.root, &cancel)?;
    let tail = if task.rewrite || changes.removes() { None } else { job.tail(&changes.moved, known)? };
    if tail.is_none() && !opened.is_new {
        return Ok(None);
    }
    let older = if tail.is_some() { Older::default() } else { job.older()? };
    let lost = if tail.is_some() { Vec::new() } else { job.lost(&older)? };
    let others: Vec<&String> = since.iter().map(|(what, _)| what).chain(&lost).collect();
    let how = match target.container() {
        Some(container) if container.own_levels().is_none() && !target.compression().is_plain() => {
            format!("{}, compressed with {}", container.name(), target.compression().name())
        }
        _ => target.container().map_or("", |container| container.name()).to_owned(),
    };
    let appends = tail.is_some();
    if !task.is_quiet {
        let length = left.map_or(known.len(), |left| left.was.length);
        Plan { archive, overlay: folder, how, appends, length, changes: &changes, others: &others }.tell()?;
    }
    if task.dry_run {
        return Ok(Some(Code::Success));
    }
    if let Some((what, true)) = &since
        && task.yes
        && !task.lossy
    {
        let what = format!(
            "{what}; it stays as it is, and so does the overlay: a mount of it with the overlay shows both together, \
             and --lossy goes on"
        );
        return Err(Failure::new(Code::Failure, format!("{}: {what}", shown(archive.as_os_str()))));
    }
    if task.yes && !lost.is_empty() && !task.lossy {
        return Err(would_be_less(archive));
    }
    if !task.yes && !is_confirmed()? {
        return Err(Failure::new(Code::Failure, "nothing was committed"));
    }
    // That of a mount does so since it has begun.
    if task.commits.is_none() {
        ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    }
    let length = match &tail {
        Some(tail) => job.append(tail, known, options)?,
        None => job.rewrite(&older, known, options, ending)?,
    };
    terminal::tell(&format!("{}: {length} bytes, before {}", shown(archive.as_os_str()), known.len()));
    Ok(Some(Code::Success))
}

/// An archive as it is now.
fn state_of(archive: &Path) -> Result<MountedOver, Failure> {
    MountedOver::of(archive).map_err(|error| cannot(archive, format!("cannot be opened: {error}")))
}

/// In words, that the archive is not the one over which the overlay was mounted last; and whether that was at its
/// place, so that somebody has changed it or put another one there. `before` that was taken away, there was what an
/// ended commit has left.
fn since_mounted(
    task: &Task<'_>,
    overlay: &OverlayTree,
    (left, before): (Option<Left>, &MountedOver),
) -> Result<Option<(String, bool)>, Failure> {
    let Some(mounted) = overlay.mounted_over().map_err(failed)? else { return Ok(None) };
    let now = state_of(task.archive)?;
    if mounted.is_as(&now) || mounted.is_as(before) || left.is_some_and(|left| mounted.is_as_before(&left.was)) {
        return Ok(None);
    }
    Ok(Some(if mounted.is_at_place_of(&now) {
        let what = "it was changed or replaced since it was mounted with the overlay: of what was changed both there \
                    and in the mount, only that in the mount is kept";
        (what.to_owned(), true)
    } else {
        ("it is another one than that which was mounted with the overlay last".to_owned(), false)
    }))
}

/// Fails if something was written that no listing of the mount gives: it would get into no archive, and be removed with
/// the overlay.
fn all_is_listed(task: &Task<'_>, overlay: &OverlayTree, cancel: &Cancel) -> Result<(), Failure> {
    if task.dry_run {
        // What is compared on the way would be noted.
        return Ok(());
    }
    match overlay.unlisted(cancel).map_err(failed)? {
        None => Ok(()),
        Some(path) => {
            let what = format!(
                "{} was written, but no listing of the mount shows it: it would be lost, so nothing was committed; \
                 mount it again with --write-overlay, and copy it to another name",
                terminal::escaped(&path)
            );
            Err(Failure::new(Code::Failure, format!("--overlay {}: {what}", shown(task.overlay.as_os_str()))))
        }
    }
}

fn cannot(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Code::CannotOpen, format!("{}: {what}", shown(path.as_os_str())))
}

/// What is wrong with an overlay.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: OverlayError) -> Failure {
    Failure::new(Code::CannotOpen, format!("--overlay {error}"))
}

/// Why the archive is not replaced.
fn would_be_less(archive: &Path) -> Failure {
    let what = "the new one would not have all of it, as was said above: it stays as it is, and so does the overlay; \
                --lossy goes on without that";
    Failure::new(Code::Failure, format!("{}: {what}", shown(archive.as_os_str())))
}

/// Fails for what is no file that can be replaced.
fn is_one_file(task: &Task<'_>) -> Result<(), Failure> {
    let archive = task.archive;
    inside::not_standard_input(archive)?;
    if task.open.force {
        let what = "--force: what is damaged would look whole in the new archive; `tarnfs extract --force` takes what can be decoded";
        return Err(Failure::new(Code::Usage, what));
    }
    if is_url(archive) && !archive.exists() {
        return Err(cannot(archive, "is a URL: nothing can be replaced there; commit into a copy on this machine"));
    }
    if archive.is_dir() {
        let what = "is a folder: copy what is in the mount to it; only an archive takes what is in an overlay";
        return Err(cannot(archive, what));
    }
    let parts = parts_of(archive).map_err(|problem| cannot(archive, problem))?;
    if !parts.is_empty() {
        let what = "lies in several files, which cannot be replaced: `tarnfs convert` makes one of it";
        return Err(cannot(archive, what));
    }
    Ok(())
}

/// True if there is an overlay that tarnfs has made, or has taken over.
fn has_overlay(folder: &Path) -> bool {
    folder.join(".tarnfs-overlay.sqlite").is_file()
}

/// Fails where there is no overlay: opening one would make it.
fn is_overlay(folder: &Path) -> Result<(), Failure> {
    if has_overlay(folder) || folder.join(".ratarmount.overlay.sqlite").is_file() {
        return Ok(());
    }
    let what = if folder.is_dir() {
        "is no overlay: nothing was written there with --write-overlay"
    } else {
        "there is no such folder"
    };
    Err(Failure::new(Code::CannotOpen, format!("--overlay {}: {what}", shown(folder.as_os_str()))))
}

/// Nobody else commits into the archive meanwhile.
fn lock(archive: &Path) -> Result<File, Failure> {
    // Nobody may ever write to a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let failed = |error: std::io::Error| cannot(archive, format!("cannot be opened: {error}"));
    let file = File::from(openat(CWD, archive, flags, Mode::empty()).map_err(|error| failed(error.into()))?);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(cannot(archive, "is not a file"));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(cannot(archive, "another program has locked it, perhaps another commit: wait for that"))
        }
        // A file system without locks.
        _ => Ok(file),
    }
}

/// Fails if the archive is damaged or encrypted, or not all of it is known.
fn is_whole(archive: &Path, opened: &OpenArchive, options: &Options) -> Result<(), Failure> {
    let code = inside::tell_of_damage_and(archive, opened, options, "`tarnfs extract --force` takes it");
    if code != Code::Success {
        let what = "it is damaged, and stays as it is; `tarnfs extract` takes what is whole";
        return Err(Failure::new(code, format!("{}: {what}", shown(archive.as_os_str()))));
    }
    if opened.index_path.as_deref() == Some(archive) {
        return Err(cannot(archive, "it is an index without its archive, and what files hold is not in it"));
    }
    if inside::tell_of_locked(archive, opened, options)?.is_some() {
        let what = "files in it are encrypted, and would not be so in the new one; `tarnfs convert --decrypt` makes an \
                    archive that is not, into which the overlay can be committed";
        return Err(cannot(archive, what));
    }
    let unread = |error: std::io::Error| inside::failure(archive, b"", &error.into());
    let wrong = wrong_checksums(opened, &options.cancel).map_err(unread)?;
    if let Some(damage) = wrong.iter().flatten().next() {
        let what = format!("{}: damaged at byte {}: {}", shown(archive.as_os_str()), damage.offset, damage.what);
        return Err(Failure::new(Code::Damaged, what));
    }
    Ok(())
}

/// As what the archive is written again.
fn target_of(archive: &Path, opened: &OpenArchive) -> Result<Target, Failure> {
    let summary = opened.index.summary();
    let layers: Vec<&str> = summary.layers.iter().map(|layer| layer.codec.as_str()).collect();
    let container = CONTAINERS.iter().find(|container| container.name() == summary.format);
    let name = match (container, layers.as_slice()) {
        (Some(container), []) if container.own_levels().is_some() => Some(container.name()),
        (Some(container), []) if container.own_levels().is_none() => Some("none"),
        (Some(container), [codec]) if container.own_levels().is_none() => {
            compress::by_name(codec).map(compress::Compression::name)
        }
        _ => None,
    };
    name.and_then(Target::named).ok_or_else(|| {
        let mut kind =
            vec![if summary.format == tarnfs_index::SINGLE_FILE { "a single file" } else { summary.format.as_str() }];
        kind.extend(layers.iter().rev());
        let what = format!(
            "{} can be read, but not written: convert it to a tar or a zip (`tarnfs convert`), and commit into that",
            kind.join(", in ")
        );
        cannot(archive, what)
    })
}

/// The overlay, over the archive.
fn open_overlay(task: &Task<'_>, opened: &OpenArchive) -> Result<Arc<OverlayTree>, Failure> {
    let lower: Arc<dyn Tree> = Arc::new(inside::tree(opened));
    let overlay = if task.dry_run {
        overlay::look(&lower, task.overlay)
    } else {
        overlay::open(&lower, task.overlay, &format!("process {}, which commits it", std::process::id()))
    };
    overlay.map(Arc::new).map_err(failed)
}

/// True if the archive has all of the overlay since a commit that was ended: then it is emptied.
fn is_committed(task: &Task<'_>, opened: &OpenArchive, overlay: &OverlayTree) -> Result<bool, Failure> {
    let archive = task.archive;
    // What goes into the first layer of compression is the file.
    let file = opened.inputs.first().unwrap_or(&opened.stream);
    let is_in = overlay.is_in(&**file).map_err(failed)?;
    if is_in && !task.dry_run {
        let is_on_disk = overlay::is_on_disk(overlay, archive);
        if !is_on_disk.map_err(|error| cannot(archive, format!("bringing it to the disk: {}", error.error)))? {
            overlay.distrust_notes(opened.file).map_err(failed)?;
            let what = "the disk has refused what an ended commit has appended; nothing is lost: commit again";
            return Err(cannot(archive, what));
        }
        overlay.empty(true).map_err(failed)?;
    }
    if is_in {
        return Ok(true);
    }
    if let Some(noted) = overlay.goes_into().map_err(failed)? {
        remove_hidden(task, noted)?;
    }
    if !task.dry_run {
        overlay.forget_notes().map_err(failed)?;
    }
    Ok(false)
}

/// Removes a new archive, as which a commit noted it, that was to get the name of the `archive` when that was ended.
fn remove_hidden(task: &Task<'_>, noted: GoesInto) -> Result<(), Failure> {
    let real = task.archive.canonicalize().unwrap_or_else(|_| task.archive.to_owned());
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return Ok(()) };
    let begin = [b".", name.as_bytes(), b"."].concat();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_named_so = name.as_bytes().starts_with(&begin) && name.as_bytes().ends_with(b".part");
        let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
        // Another one may be at work: the names are those of processes, the bytes are what was noted.
        let is_it = || FileSource::open(entry.path()).and_then(|file| noted.is(&file));
        if !is_named_so || !is_file() || !is_it().unwrap_or(false) {
            continue;
        }
        let shown = shown(entry.path().as_os_str());
        if task.dry_run {
            say(&format!("{shown}: an ended commit has left it; it is removed first"))?;
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => log::info!("{shown}: removed, as an ended commit has left it"),
            Err(error) => log::warn!("{shown}: left by an ended commit: {error}"),
        }
    }
    Ok(())
}

/// Fails if what was written was written over something else.
fn is_of_this(archive: &Path, folder: &Path, overlay: &OverlayTree) -> Result<(), Failure> {
    let folder = shown(folder.as_os_str());
    if let Some(over) = overlay.over().map_err(failed)? {
        let what = format!(
            "--overlay {folder}: it was written over {over}, not over one archive as it is: mount that again with \
             --write-overlay, and copy from there what is to go into {}",
            shown(archive.as_os_str())
        );
        return Err(Failure::new(Code::CannotOpen, what));
    }
    if let Some(path) = overlay.among_versions().map_err(failed)? {
        let what = format!(
            "--overlay {folder}: something was written in {}, where older versions are, and would be in no archive: \
             mount it with --write-overlay, and copy all that is to stay into another overlay",
            terminal::escaped(&path)
        );
        return Err(Failure::new(Code::CannotOpen, what));
    }
    match overlay.missing_below().map_err(failed)? {
        None => Ok(()),
        Some(path) => {
            let what = format!(
                "--overlay {folder}: {} is not in {}, or is something else there than what was changed: name the archive \
                 that it was written over; what was written in an archive in it (-r) cannot be committed",
                terminal::escaped(&path),
                shown(archive.as_os_str())
            );
            Err(Failure::new(Code::CannotOpen, what))
        }
    }
}
