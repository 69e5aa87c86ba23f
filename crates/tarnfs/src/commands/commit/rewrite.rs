//! The archive is written anew, beside the old one.

use std::cell::RefCell;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Gid, Mode, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{IndexFile, OpenArchive, Options, indexes_of};
use tarnfs_tree::{GoesInto, Node, OverlayTree, Tree};
use tarnfs_write::{ArchiveWriter, Finished, LEFT_OUT, Output, Refill, RefillError, Target, files};

use super::append::Left;
use super::merged::Merged;
use super::older::Older;
use super::{Task, failed, would_be_less};
use crate::args::shown;
use crate::commands::create::{self, of_output};
use crate::commands::extract::attributes::without_list;
use crate::commands::rewriting::{Rewriting, is_unchanged, joined, lost_with_layers, unlisted};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::signals::Ending;
use crate::terminal::escaped;

/// Of a file.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// What an archive has that no `new` one can have, whatever was written: in words. `is_cut`: what is behind its end is
/// taken away before.
pub(super) fn lost_of(new: &Rewriting<'_>, is_cut: bool) -> Result<Vec<String>, Failure> {
    let unread = |error: io::Error| new.of_input(b"", &error.into());
    let mut lost = lost_with_layers(new.opened).map_err(unread)?;
    lost.extend(new.unlisted.others.iter().cloned());
    if !new.unlisted.comment.is_empty() && !new.target.keeps().comment {
        lost.push("the comment on it".to_owned());
    }
    if new.opened.index.summary().label.is_some() {
        lost.push("its label".to_owned());
    }
    if !is_cut {
        lost.extend(new.behind_the_end().map_err(unread)?);
    }
    let mut lost: Vec<_> = lost.into_iter().map(|what| format!("{what}: that is not kept")).collect();
    lost.extend(inside::other_names(new.opened, new.cancel).map_err(|error| new.of_input(b"", &error))?);
    Ok(lost)
}

/// Of an archive that is to take its own place.
pub(super) fn rewriting<'a>(
    archive: &'a Path,
    target: Target,
    opened: &'a OpenArchive,
    cancel: &'a Cancel,
) -> Result<Rewriting<'a>, Failure> {
    let unlisted = unlisted(opened, cancel).map_err(|error| inside::failure(archive, b"", &error.into()))?;
    Ok(Rewriting { from: archive, to: archive, target, cancel, opened, unlisted, progress: Arc::default() })
}

/// See the module.
pub(super) struct Job<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) new: Rewriting<'a>,
    pub(super) tree: Merged,
    /// The attributes of the root were changed.
    pub(super) has_new_root: bool,
    /// What is behind the end of the archive, and is taken away before anything is done.
    pub(super) left: Option<Left>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        task: &'a Task<'a>,
        target: Target,
        (opened, left): (&'a OpenArchive, Option<Left>),
        overlay: Arc<OverlayTree>,
        has_new_root: bool,
        cancel: &'a Cancel,
    ) -> Result<Self, Failure> {
        let new = rewriting(task.archive, target, opened, cancel)?;
        Ok(Self { task, new, tree: Merged { overlay, has_names: target.keeps().names }, has_new_root, left })
    }

    /// What the new archive will not have, as far as that is known before it is written.
    pub(super) fn lost(&self, older: &Older) -> Result<Vec<String>, Failure> {
        let mut lost = lost_of(&self.new, self.left.is_some())?;
        if older.lost > 0 {
            let entries = if older.lost == 1 { "entry" } else { "entries" };
            lost.push(format!("{} older {entries} of the same names are not kept", older.lost));
        }
        if self.has_new_root && !self.new.target.keeps().root {
            lost.push("owner, mode and time of the folder that all is in cannot be kept there".to_owned());
        }
        Ok(lost)
    }

    /// Does it, and says how long the archive is now.
    pub(super) fn rewrite(
        &self,
        older: &Older,
        known: &Metadata,
        options: &Options,
        ending: &Ending,
    ) -> Result<u64, Failure> {
        let archive = self.new.from;
        let failed_to_write = |error: io::Error| of_output(archive, &error);
        // What a link leads to is replaced.
        let real = archive.canonicalize().map_err(failed_to_write)?;
        let output = Output::create(&real, true, true).map_err(failed_to_write)?;
        ending.removes(output.remover());
        let summary = self.new.opened.index.summary();
        let bar = inside::bar_of(archive, &self.new.progress, summary.files.saturating_add(summary.folders));
        let mut finished = self.refill(older, output)?;
        drop(bar);
        self.new.cancel.check().map_err(failed_to_write)?;
        let new = self.new.open_new(&finished.output, options)?;
        self.new.compare_trees(&self.tree, &new)?;
        self.has_older(older, &new)?;
        let file = new.inputs.first().unwrap_or(&new.stream);
        let noted = GoesInto::of(&**file, self.new.cancel).map_err(failed_to_write)?;
        drop(new);
        self.take_over(&finished.output, known, &real)?;
        finished.output.keep_mode();
        // That may take long, and what is compared behind it must be as it is when the name changes hands.
        finished.output.file().sync_all().map_err(failed_to_write)?;
        is_unchanged(archive, known, "nothing was committed")?;
        self.new.cancel.check().map_err(failed_to_write)?;
        let indexes = indexes_of(archive, self.new.opened, options);
        let length = finished.length;
        self.change_places(finished, noted)?;
        indexes.iter().for_each(IndexFile::remove);
        Ok(length)
    }

    /// The new archive gets its name, and the overlay is emptied.
    fn change_places(&self, finished: Finished, new: GoesInto) -> Result<(), Failure> {
        let overlay = &self.tree.overlay;
        overlay.note_goes_into(new).map_err(failed)?;
        // Whether it has come to that, who finds the note will see.
        create::commit(self.new.from, finished, &Cancel::default())?;
        overlay.empty(self.new.target.keeps().root || !self.has_new_root).map_err(|error| {
            let archive = shown(self.new.from.as_os_str());
            let what = "has what was written, but the overlay could not be emptied; the same command does that";
            Failure::new(Code::Failure, format!("{archive}: {what}: {error}"))
        })
    }

    fn refill(&self, older: &Older, output: Output) -> Result<Finished, Failure> {
        let (archive, new) = (self.new.from, &self.new);
        let failed_to_write = |error: io::Error| of_output(archive, &error);
        let writing = create::writing(new.target, output, &self.task.how, self.task.threads, new.cancel);
        let mut writer = new.target.writer(writing).map_err(failed_to_write)?;
        new.progress.total.store(new.opened.index.summary().bytes, Ordering::Relaxed);
        let of_root = |error| new.of_input(b"", &error);
        let has_root = new.opened.tree.stored(Node::ROOT).map_err(of_root)?.header.is_some();
        let root = self.tree.attributes(Node::ROOT).map_err(of_root)?;
        let has_entry = (has_root || self.has_new_root) && new.target.keeps().root;
        // Who has put in `.` has `./` before all names.
        let above: &[u8] = if has_entry && has_root { b"." } else { b"" };
        self.fill(&self.tree, &mut *writer, |refill| if has_entry { refill.entry(&root, b".") } else { Ok(()) })?;
        // What they were: one may share its content with a name that was written to.
        self.fill(&inside::tree(new.opened), &mut *writer, |refill| {
            older.entries.iter().try_for_each(|(path, old)| refill.entry(old, &joined(above, path)))
        })?;
        self.fill(&self.tree, &mut *writer, |refill| refill.below(Node::ROOT, above))?;
        if !new.unlisted.comment.is_empty() {
            writer.comment(&new.unlisted.comment);
        }
        writer.finish().map_err(failed_to_write)
    }

    /// Has `put` put something of a `tree` into the archive that `writer` writes. Fails if that cannot be kept there.
    pub(super) fn fill(
        &self,
        tree: &dyn Tree,
        writer: &mut dyn ArchiveWriter,
        put: impl FnOnce(&mut Refill<'_>) -> Result<(), RefillError>,
    ) -> Result<(), Failure> {
        let (archive, new) = (self.new.from, &self.new);
        let is_added = |name: &[u8]| new.is_added(name);
        let mut refill = Refill::new(tree, writer, new.cancel, &new.progress, &is_added);
        put(&mut refill).map_err(|error| match error {
            RefillError::Tree { path, error } => new.of_input(&path, &error),
            RefillError::Output(error) => of_output(archive, &error),
        })?;
        let (left_out, is_less) = refill.left_out();
        for (what, (count, first)) in &left_out {
            let more = if *count > 1 { format!(", and {} more", count - 1) } else { String::new() };
            log::warn!("{}: {what}: {}{more}", shown(archive.as_os_str()), escaped(first));
        }
        let is_less = is_less || left_out.keys().any(|what| what.starts_with(LEFT_OUT));
        if is_less && !self.task.lossy { Err(would_be_less(archive)) } else { Ok(()) }
    }

    /// The new file belongs to whom the old one belongs, and has its mode, its access list, and its extended
    /// attributes.
    fn take_over(&self, output: &Output, old: &Metadata, path: &Path) -> Result<(), Failure> {
        let (archive, file) = (self.new.from, output.file());
        let lost = RefCell::new(Vec::new());
        let owner = (Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
        let own = file.metadata().map_err(|error| of_output(archive, &error))?;
        let mut mode = old.mode() & 0o7777;
        if (own.uid(), own.gid()) != (old.uid(), old.gid())
            && let Err(error) = fchown(file, owner.0, owner.1)
        {
            lost.borrow_mut().push(format!("its owner cannot be kept: {}", io::Error::from(error)));
            mode = tarnfs_write::output::for_another_group(mode, own.uid() == old.uid());
        }
        let xattrs = files::xattrs_at(path.as_os_str().as_bytes()).map_err(|error| of_output(archive, &error))?;
        // One that comes from the folder. Mostly there is none.
        let _ = fremovexattr(file, ACCESS_LIST);
        // Without its list, its group would have all that the list allows to anybody in it.
        let (list, others): (Vec<_>, Vec<_>) = xattrs.into_iter().partition(|(name, _)| name == ACCESS_LIST.as_bytes());
        for (_, list) in list {
            // That of another owner says something else.
            let is_given = lost.borrow().is_empty();
            let set = if is_given { fsetxattr(file, ACCESS_LIST, &list, XattrFlags::empty()) } else { Ok(()) };
            if !is_given || set.is_err() {
                mode = without_list(mode, &list);
            }
            if let Err(error) = set {
                let what = format!("its access list cannot be kept: {}", io::Error::from(error));
                lost.borrow_mut().push(what);
            }
        }
        fchmod(file, Mode::from_raw_mode(mode)).map_err(|error| of_output(archive, &error.into()))?;
        for (name, value) in others {
            let shown_name = escaped(&name);
            match fsetxattr(file, &*name, &value, XattrFlags::empty()) {
                Ok(()) => {}
                // Labels that the system gives, each in its own way.
                Err(error) if name.starts_with(b"security.") || name.starts_with(b"trusted.") => {
                    log::debug!("{}: {shown_name}: {}", archive.display(), io::Error::from(error));
                }
                Err(error) => {
                    let what =
                        format!("its extended attribute {shown_name} cannot be kept: {}", io::Error::from(error));
                    lost.borrow_mut().push(what);
                }
            }
        }
        let lost = lost.into_inner();
        for what in &lost {
            log::warn!("{}: {what}", shown(archive.as_os_str()));
        }
        if lost.is_empty() || self.task.lossy { Ok(()) } else { Err(would_be_less(archive)) }
    }
}
