//! `tarnfs convert`: from any archive that can be mounted to one that `tarnfs create` writes.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarnfs_format::Nature;
use tarnfs_source::SharedSource;
use tarnfs_tree::open::{IndexFile, Options, indexes_of, is_index_alone, is_url};
use tarnfs_tree::{LockedFiles, Node, Tree as _};
use tarnfs_write::container::Container;
use tarnfs_write::{ArchiveWriter, BlockStream, Finished, LEFT_OUT, Output, Refill, RefillError, Target};

use super::check::wrong_checksums;
use super::create::{self, commit, of_output, output};
use super::rewriting::{Rewriting, is_unchanged, lost_with_layers, of_input, read_anew, readers, take_over, unlisted};
use crate::args::{Convert, Keys, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::signals::Ending;
use crate::terminal::{self, escaped};

/// Puts what is in an archive into another one.
pub(crate) fn run(arguments: &Convert) -> Result<Code, Failure> {
    let (from, to) = (&arguments.archive, &arguments.output);
    inside::not_standard_input(from)?;
    if arguments.replace && to == Path::new("-") {
        return Err(Failure::new(
            Code::Usage,
            "--replace needs a file to replace the archive with, not standard output",
        ));
    }
    if arguments.open.force {
        // What is damaged would have a right checksum in the new one, and nobody would know.
        let what = "--force: what is damaged would look whole in the new archive; `tarnfs extract --force` takes what can be decoded";
        return Err(Failure::new(Code::Usage, what));
    }
    let target = target(arguments)?;
    let is_same = is_same(from, to);
    if is_same && !arguments.replace {
        let what = "is the archive itself: --replace replaces it when the new one is verified";
        return Err(Failure::new(Code::Usage, format!("{}: {what}", shown(to.as_os_str()))));
    }
    let keys = Keys::read(&arguments.open)?;
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    let cancel = ending.cancel();
    let mut options = inside::options(&arguments.open, &keys, &cancel)?;
    if arguments.replace && options.shape.recursion.is_some() {
        return Err(Failure::new(
            Code::Usage,
            "--replace removes the archive, and with -r what was in it would be its archives no more: give one of them",
        ));
    }
    // That of ratarmount says too little: what it leaves out would not be in the new archive.
    options.index.use_sidecars = false;
    let is_remote = arguments.open.network.is_some() && is_url(from) && !from.exists();
    if is_remote && arguments.replace {
        let what = "is a URL: nothing can be replaced there";
        return Err(Failure::new(Code::Usage, format!("{}: {what}", shown(from.as_os_str()))));
    }
    let known = fs::metadata(from).map(Some).or_else(|error| {
        let what = format!("{}: cannot be opened: {error}", shown(from.as_os_str()));
        if is_remote { Ok(None) } else { Err(Failure::new(Code::CannotOpen, what)) }
    })?;
    if arguments.replace && is_index_alone(from, options.limits) {
        let what = "it is an index without its archive, and what files hold is not in it";
        return Err(Failure::new(Code::Usage, format!("{}: {what}", shown(from.as_os_str()))));
    }
    let opened = inside::open_quietly(from, &if arguments.replace { read_anew(&options) } else { options.clone() })
        .map_err(|failure| inside::of_folder(from, failure, "`tarnfs create` makes an archive of it"))?;
    let code = inside::tell_of_damage_and(from, &opened, &options, "`tarnfs extract --force` takes it");
    if code != Code::Success {
        let what = "it is damaged, and was not converted";
        return Err(Failure::new(code, format!("{}: {what}", shown(from.as_os_str()))));
    }
    let locked = inside::tell_of_locked(from, &opened, &options)?.filter(|_| !arguments.decrypt);
    let length = opened.index.summary().archive.length;
    if arguments.replace && known.as_ref().is_some_and(|known| known.len() != length) {
        let what = "it lies in several files, which --replace cannot replace: convert it without that, and remove them";
        return Err(Failure::new(Code::Usage, format!("{}: {what}", shown(from.as_os_str()))));
    }
    let identity = known.as_ref().map(|known| (known.dev(), known.ino()));
    if opened.file.is_some_and(|file| Some(file) != identity) {
        let what = "another file took its place while it was opened";
        return Err(Failure::new(Code::CannotOpen, format!("{}: {what}", shown(from.as_os_str()))));
    }
    let looks_into_archives = options.shape.recursion.is_some();
    let (left_out, progress) = (Cell::new(0), Arc::default());
    let unread = |error: io::Error| inside::failure(from, b"", &error.into());
    let unlisted = unlisted(&opened, &cancel).map_err(unread)?;
    let lost = lost_with_layers(&opened).map_err(unread)?;
    for what in &lost {
        log::warn!("{}: {what}: that is not kept", shown(from.as_os_str()));
    }
    if arguments.replace && !lost.is_empty() {
        return Err(would_be_less(from));
    }
    // The new one has no checksum that could tell of it.
    let wrong = wrong_checksums(&opened, &cancel).map_err(unread)?;
    if let Some(damage) = wrong.iter().flatten().next() {
        let from = shown(from.as_os_str());
        return Err(Failure::new(Code::Damaged, format!("{from}: damaged at byte {}: {}", damage.offset, damage.what)));
    }
    let cancel = &cancel;
    let new = Rewriting { from, to, target, cancel, opened: &opened, unlisted, progress };
    let job = Job { new, arguments, looks_into_archives, locked, left_out };
    // Who may not read the archive may not read what becomes of it.
    let most = known.as_ref().map_or(Ok(0o7777), |known| readers(from, known))?;
    let is_private = most & 0o044 != 0o044;
    let mut output = output(to, arguments.how.overwrite || is_same, is_private)?;
    ending.removes(output.remover());
    if let Some(Err(error)) = known.as_ref().map(|known| output.limit_mode(most, known.gid())) {
        let to = shown(to.as_os_str());
        log::warn!("{to}: more may read it than may read the archive, as its mode cannot be changed: {error}");
    }
    let summary = opened.index.summary();
    let bar = inside::bar_of(to, &job.new.progress, summary.files.saturating_add(summary.folders));
    let mut finished = if job.keeps_stream() { job.recompress(output) } else { job.refill(output) }?;
    drop(bar);
    cancel.check().map_err(|error| of_output(to, &error))?;
    if let Some(known) = known.as_ref().filter(|_| arguments.replace) {
        job.verify(&finished, &options)?;
        take_over(&finished.output, known, most).map_err(|error| of_output(to, &error))?;
        finished.output.keep_mode();
        // That may take long, and what is compared behind it must be as it is when the name changes hands.
        finished.output.file().sync_all().map_err(|error| of_output(to, &error))?;
        is_unchanged(from, known, "no other archive was written")?;
    }
    let (old, length) = (known.as_ref().map_or(length, fs::Metadata::len), finished.length);
    // Asked while both are there. What only a link leads to stays, and its indexes with it.
    let is_at_one_place =
        is_same && matches!((from.canonicalize(), to.canonicalize()), (Ok(one), Ok(other)) if one == other);
    let is_removed = arguments.replace && if is_same { is_at_one_place } else { !from.is_symlink() };
    let indexes = if is_removed { indexes_of(from, &opened, &options) } else { Vec::new() };
    commit(to, finished, cancel)?;
    if let Some(known) = known.as_ref().filter(|_| arguments.replace && !is_same) {
        is_unchanged(from, known, "the new archive has what was in it before")?;
        fs::remove_file(from).map_err(|error| of_input(from, &error))?;
    }
    if arguments.replace && is_same && !is_at_one_place {
        let to = shown(to.as_os_str());
        log::warn!("{}: stays as it is: {to} was another name of that file", shown(from.as_os_str()));
    }
    // They are of no use without it. The new one may have its own in their place.
    indexes.iter().for_each(IndexFile::remove);
    terminal::tell(&format!(
        "{}: {length} bytes, from {old} bytes of {}",
        shown(to.as_os_str()),
        shown(from.as_os_str())
    ));
    match job.left_out.get() {
        0 => Ok(Code::Success),
        1 => Err(Failure::new(
            Code::Failure,
            format!("{}: one entry is not in it, as was said above", shown(to.as_os_str())),
        )),
        more => {
            let what = format!("{}: {more} entries are not in it, as was said above", shown(to.as_os_str()));
            Err(Failure::new(Code::Failure, what))
        }
    }
}

/// What is written. A file that is compressed and no archive has no `.tar` in its name.
fn target(arguments: &Convert) -> Result<Target, Failure> {
    let single = Target::single(arguments.output.as_os_str().as_bytes());
    match single.filter(|_| arguments.how.compress.is_none()) {
        Some(target) => create::checked(target, &arguments.how),
        None => create::target(&arguments.output, &arguments.how),
    }
}

/// Why the archive `from` is not replaced.
fn would_be_less(from: &Path) -> Failure {
    let what = "the new one would not have all of it, as was said above: it is kept, and no other archive was written; without --replace there are both";
    Failure::new(Code::Failure, format!("{}: {what}", shown(from.as_os_str())))
}

/// True if both paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some() && identity(one) == identity(other)
}

struct Job<'a> {
    new: Rewriting<'a>,
    arguments: &'a Convert,
    /// Archives in it are folders there. The index may have been made so, and serve a call without that.
    looks_into_archives: bool,
    /// Files that are encrypted, unless somebody wants them otherwise.
    locked: Option<LockedFiles>,
    /// Entries that the new archive cannot have at all.
    left_out: Cell<u64>,
}

impl Job<'_> {
    /// True if only the compression changes: the bytes of the tar, or of the single file, stay as they are.
    fn keeps_stream(&self) -> bool {
        let Some(container) = self.new.target.container() else { return true };
        let changes_tree = self.looks_into_archives || self.arguments.open.transform.is_some();
        container.own_levels().is_none() && self.is_of(container) && !changes_tree
    }

    /// True if the old archive is of that kind.
    fn is_of(&self, container: &dyn Container) -> bool {
        self.new.opened.index.summary().format == container.name()
    }

    /// The bytes that are compressed anew. Of a package these are its own: nobody can make one of what its codec gives.
    fn bytes(&self) -> Result<&SharedSource, Failure> {
        let format = tarnfs_format::by_name(&self.new.opened.index.summary().format);
        if !format.is_some_and(|format| format.nature() == Nature::Package) {
            return Ok(&self.new.opened.stream);
        }
        let what = || format!("{}: its own bytes are too deep in it to be kept", shown(self.new.from.as_os_str()));
        self.new.opened.inputs.last().ok_or_else(|| Failure::new(Code::Failure, what()))
    }

    fn recompress(&self, output: Output) -> Result<Finished, Failure> {
        let mut writing =
            create::writing(self.new.target, output, &self.arguments.how, self.arguments.threads, self.new.cancel);
        if !self.new.target.container().is_some_and(|container| self.is_of(container)) {
            // Made at its first mount: of what is no archive, an index says the time of the finished file.
            writing.index = None;
        }
        let failed = |error: io::Error| of_output(self.new.to, &error);
        let mut out = BlockStream::new(writing).map_err(failed)?;
        let stream = self.bytes()?;
        self.new.progress.total.store(stream.len(), Ordering::Relaxed);
        let mut at = 0;
        loop {
            self.new.cancel.check().map_err(failed)?;
            let room = out.room().map_err(failed)?;
            let read = stream.read_at(room, at).map_err(|error| self.new.of_input(b"", &error.into()))?;
            if read == 0 {
                break;
            }
            out.fill(read);
            at += read as u64;
            self.new.progress.bytes.store(at, Ordering::Relaxed);
        }
        if at != stream.len() {
            return Err(self.new.of_input(b"", &io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        }
        out.finish().map_err(failed)
    }

    fn refill(&self, output: Output) -> Result<Finished, Failure> {
        let failed = |error: io::Error| of_output(self.new.to, &error);
        let how = &self.arguments.how;
        let writing = create::writing(self.new.target, output, how, self.arguments.threads, self.new.cancel);
        let mut writer = self.new.target.writer(writing).map_err(failed)?;
        let tree = inside::tree(self.new.opened);
        let is_added = |name: &[u8]| self.new.is_added(name);
        let summary = self.new.opened.index.summary();
        self.new.progress.total.store(summary.bytes, Ordering::Relaxed);
        let mut refill = Refill::new(&tree, &mut *writer, self.new.cancel, &self.new.progress, &is_added);
        let refused = |error| match error {
            RefillError::Tree { path, error } => self.new.of_input(&path, &error),
            RefillError::Output(error) => failed(error),
        };
        let of_root = |error| self.new.of_input(b"", &error);
        let has_root = self.new.opened.tree.stored(Node::ROOT).map_err(of_root)?.header.is_some();
        if has_root && self.new.target.keeps().root {
            let root = tree.attributes(Node::ROOT).map_err(of_root)?;
            refill.entry(&root, b".").map_err(refused)?;
        }
        refill.below(Node::ROOT, b"").map_err(refused)?;
        let (left_out, mut is_less) = refill.left_out();
        drop(refill);
        for (what, (count, first)) in left_out {
            if what.starts_with(LEFT_OUT) {
                self.left_out.set(self.left_out.get().saturating_add(count));
            }
            let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
            log::warn!("{}: {what}: {}{more}", shown(self.new.to.as_os_str()), escaped(&first));
        }
        if has_root && !self.new.target.keeps().root {
            let to = shown(self.new.to.as_os_str());
            log::warn!("{to}: owner, mode and time of the folder that all is in cannot be kept there");
            is_less = true;
        }
        is_less |= self.tell_of_what_has_no_place(&mut *writer);
        for what in
            inside::other_names(self.new.opened, self.new.cancel).map_err(|error| self.new.of_input(b"", &error))?
        {
            log::warn!("{}: {what}", shown(self.new.to.as_os_str()));
            is_less = true;
        }
        let versions = self.new.opened.index.replaced_count().map_err(|error| self.new.of_input(b"", &error.into()))?;
        if versions > 0 {
            let entries = if versions == 1 { "entry" } else { "entries" };
            // With -r, an archive is an older version of the folder with what it holds.
            if !self.looks_into_archives {
                log::warn!(
                    "{}: {versions} older {entries} of the same names are not kept",
                    shown(self.new.to.as_os_str())
                );
            }
            is_less = true;
        }
        for what in self.new.behind_the_end().map_err(|error| self.new.of_input(b"", &error.into()))? {
            log::warn!("{}: {what}; that is not kept", shown(self.new.from.as_os_str()));
            is_less = true;
        }
        if is_less && self.arguments.replace {
            return Err(would_be_less(self.new.from));
        }
        writer.finish().map_err(failed)
    }

    /// Says what is not kept of all that is no entry; true if that is something. `writer` gets the comment.
    fn tell_of_what_has_no_place(&self, writer: &mut dyn ArchiveWriter) -> bool {
        let (from, to) = (shown(self.new.from.as_os_str()), shown(self.new.to.as_os_str()));
        let mut is_less = false;
        if let Some(locked) = &self.locked {
            let what = inside::not_encrypted_any_more(locked);
            let meant = if self.arguments.replace { "; --decrypt says that this is meant" } else { "" };
            log::warn!("{to}: {what}{meant}");
            is_less = true;
        }
        if !self.new.unlisted.comment.is_empty() && !writer.comment(&self.new.unlisted.comment) {
            log::warn!("{to}: the comment on the archive cannot be kept there");
            is_less = true;
        }
        for what in &self.new.unlisted.others {
            log::warn!("{from}: {what}: that is not kept");
            is_less = true;
        }
        if self.new.opened.index.summary().label.is_some() {
            log::warn!("{to}: the label of the archive cannot be kept there");
            is_less = true;
        }
        is_less
    }

    /// Compares every file of both archives, or all bytes where only the compression is another one.
    fn verify(&self, finished: &Finished, options: &Options) -> Result<(), Failure> {
        let new = self.new.open_new(&finished.output, options)?;
        if self.keeps_stream() {
            return self.new.compare(&**self.bytes()?, &*new.stream, b"");
        }
        self.new.compare_trees(&inside::tree(self.new.opened), &new)
    }
}
