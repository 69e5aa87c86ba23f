//! `tarnfs convert`: from any archive that can be mounted to one that `tarnfs create` writes.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, getxattr};
use rustix::io::Errno;
use tarnfs_format::{Entry, Format, Kind, Unlisted};
use tarnfs_source::{Cancel, SharedSource, Source};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{
    IndexFile, IndexPlace, OpenArchive, Options, Problem, Recreate, indexes_of, is_index_alone, is_single_file, is_url,
};
use tarnfs_tree::{Attributes, LockedFiles, Node, Tree, Xattrs};
use tarnfs_write::container::Container;
use tarnfs_write::{ArchiveWriter, BlockStream, Finished, LEFT_OUT, Output, Refill, RefillError, Target};

use super::check::wrong_checksums;
use super::create::{self, commit, of_output, output};
use crate::args::{Convert, Keys, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::signals::Ending;
use crate::terminal::{self, escaped};

/// Bytes that are read at once where both archives are compared.
const BATCH: usize = 1 << 20;

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
    let job = Job {
        from,
        to,
        target,
        arguments,
        cancel,
        opened: &opened,
        looks_into_archives,
        locked,
        unlisted,
        left_out,
        progress,
    };
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
    let bar = inside::bar_of(to, &job.progress, summary.files.saturating_add(summary.folders));
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

/// Fails if the archive at `path` is not the one that was `known`, or was changed since. `instead` says what there is.
fn is_unchanged(path: &Path, known: &fs::Metadata, instead: &str) -> Result<(), Failure> {
    let now = fs::metadata(path).map_err(|error| of_input(path, &error))?;
    let facts = |of: &fs::Metadata| {
        (of.dev(), of.ino(), of.len(), (of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()))
    };
    if facts(&now) == facts(known) {
        return Ok(());
    }
    let what = format!("it changed while it was converted; it is kept, and {instead}");
    Err(Failure::new(Code::Failure, format!("{}: {what}", shown(path.as_os_str()))))
}

fn of_input(archive: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::CannotOpen, format!("{}: {error}", shown(archive.as_os_str())))
}

/// What is written. A file that is compressed and no archive has no `.tar` in its name.
fn target(arguments: &Convert) -> Result<Target, Failure> {
    let single = Target::single(arguments.output.as_os_str().as_bytes());
    match single.filter(|_| arguments.how.compress.is_none()) {
        Some(target) => create::checked(target, &arguments.how),
        None => create::target(&arguments.output, &arguments.how),
    }
}

/// To read an archive that will be removed: an index may say less of it than a first pass of this program does, or be
/// of another state of it.
fn read_anew(options: &Options) -> Options {
    let mut options = options.clone();
    (options.index.place, options.index.recreate) = (IndexPlace::Memory, Recreate::Always);
    options
}

/// What is in an archive and in none of its entries.
fn unlisted(opened: &OpenArchive, cancel: &Cancel) -> io::Result<Unlisted> {
    let summary = opened.index.summary();
    match tarnfs_format::by_name(&summary.format) {
        Some(format) => {
            let mut found = format.unlisted(&*opened.stream, cancel)?;
            found.others.extend_from_slice(&summary.unlisted);
            Ok(found)
        }
        None if is_single_file(&*opened.index, opened.stream.len()).map_err(io::Error::other)? => {
            Ok(Unlisted::default())
        }
        // In place of a file that was compressed several times shows what that holds.
        None => Ok(Unlisted::unknown()),
    }
}

/// What is lost with the compression of an archive, in words.
fn lost_with_layers(opened: &OpenArchive) -> io::Result<Vec<String>> {
    let layers = opened.index.summary().layers.iter().zip(&opened.inputs);
    let known = layers.filter_map(|(layer, input)| Some((tarnfs_codec::by_name(&layer.codec)?, input)));
    let lost: io::Result<Vec<_>> = known.map(|(codec, input)| codec.unlisted(&**input)).collect();
    lost.map(|lost| lost.concat())
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

/// Which bits of its mode say who may read the archive at `path`, of which that file is known. Of one in several files,
/// the bits that all of them have.
fn readers(path: &Path, known: &fs::Metadata) -> Result<u32, Failure> {
    // Where there is an access list, only the list says who may, and the new one has none.
    let of = |path: &Path, found: &fs::Metadata| {
        let most = if has_access_list(path) { 0o700 } else { 0o7777 };
        // Another group may be any.
        found.mode() & most & if found.gid() == known.gid() { 0o7777 } else { 0o7707 }
    };
    let mut bits = of(path, known);
    let cannot = |problem| Failure::new(Code::CannotOpen, format!("{}: {problem}", shown(path.as_os_str())));
    for part in tarnfs_tree::open::parts_of(path).map_err(cannot)? {
        let found = fs::metadata(&part).map_err(|error| of_input(&part, &error))?;
        bits &= of(&part, &found) | 0o7000;
    }
    Ok(bits)
}

/// True if the bits of its mode are not all that says who may read it.
fn has_access_list(path: &Path) -> bool {
    let mut list = [0_u8; 1024];
    match getxattr(path, c"system.posix_acl_access", &mut list[..]) {
        Ok(_) => true,
        // A long one.
        Err(error) => error == Errno::RANGE,
    }
}

/// The new file belongs to whom the old one belongs, and may be read by the same people, or by fewer: it gets the bits
/// of `mode`, which the old one has.
fn take_over(output: &Output, old: &fs::Metadata, mode: u32) -> io::Result<()> {
    let file = output.file();
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        let owner = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
        // Who may not give files away keeps it, and lets nobody read it who could not before.
        if let Err(error) = fchown(file, Some(owner.0), Some(owner.1)) {
            log::info!("the new archive belongs to who converts: {}", io::Error::from(error));
            let for_another = tarnfs_write::output::for_another_group(old.mode(), own.uid() == old.uid());
            fchmod(file, Mode::from_raw_mode(for_another & mode))?;
            return Ok(());
        }
    }
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
}

struct Job<'a> {
    from: &'a Path,
    to: &'a Path,
    target: Target,
    arguments: &'a Convert,
    cancel: &'a Cancel,
    opened: &'a OpenArchive,
    /// Archives in it are folders there. The index may have been made so, and serve a call without that.
    looks_into_archives: bool,
    /// Files that are encrypted, unless somebody wants them otherwise.
    locked: Option<LockedFiles>,
    /// What is not in the tree.
    unlisted: Unlisted,
    /// Entries that the new archive cannot have at all.
    left_out: Cell<u64>,
    /// How far it has come.
    progress: Arc<Progress>,
}

impl Job<'_> {
    fn of_input(&self, path: &[u8], error: &tarnfs_tree::Error) -> Failure {
        if self.cancel.is_cancelled() || inside::is_interrupted(error) {
            return Failure::new(Code::Interrupted, "interrupted; no archive was written");
        }
        inside::failure(self.from, path, error)
    }

    /// True if only the compression changes: the bytes of the tar, or of the single file, stay as they are.
    fn keeps_stream(&self) -> bool {
        let Some(container) = self.target.container() else { return true };
        let changes_tree = self.looks_into_archives || self.arguments.open.transform.is_some();
        container.own_levels().is_none() && self.is_of(container) && !changes_tree
    }

    /// True if the old archive is of that kind.
    fn is_of(&self, container: &dyn Container) -> bool {
        self.opened.index.summary().format == container.name()
    }

    /// The bytes that are compressed anew. Of a package these are its own: nobody can make one of what its codec gives.
    fn bytes(&self) -> Result<&SharedSource, Failure> {
        let format = tarnfs_format::by_name(&self.opened.index.summary().format);
        if !format.is_some_and(Format::is_rewritten) {
            return Ok(&self.opened.stream);
        }
        let what = || format!("{}: its own bytes are too deep in it to be kept", shown(self.from.as_os_str()));
        self.opened.inputs.last().ok_or_else(|| Failure::new(Code::Failure, what()))
    }

    fn recompress(&self, output: Output) -> Result<Finished, Failure> {
        let mut writing =
            create::writing(self.target, output, &self.arguments.how, self.arguments.threads, self.cancel);
        if !self.target.container().is_some_and(|container| self.is_of(container)) {
            // Made at its first mount: of what is no archive, an index says the time of the finished file.
            writing.index = None;
        }
        let failed = |error: io::Error| of_output(self.to, &error);
        let mut out = BlockStream::new(writing).map_err(failed)?;
        let stream = self.bytes()?;
        self.progress.total.store(stream.len(), Ordering::Relaxed);
        let mut at = 0;
        loop {
            self.cancel.check().map_err(failed)?;
            let room = out.room().map_err(failed)?;
            let read = stream.read_at(room, at).map_err(|error| self.of_input(b"", &error.into()))?;
            if read == 0 {
                break;
            }
            out.fill(read);
            at += read as u64;
            self.progress.bytes.store(at, Ordering::Relaxed);
        }
        if at != stream.len() {
            return Err(self.of_input(b"", &io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        }
        out.finish().map_err(failed)
    }

    fn refill(&self, output: Output) -> Result<Finished, Failure> {
        let failed = |error: io::Error| of_output(self.to, &error);
        let how = &self.arguments.how;
        let writing = create::writing(self.target, output, how, self.arguments.threads, self.cancel);
        let mut writer = self.target.writer(writing).map_err(failed)?;
        let tree = inside::tree(self.opened);
        let is_added = |name: &[u8]| self.is_added(name);
        let summary = self.opened.index.summary();
        self.progress.total.store(summary.bytes, Ordering::Relaxed);
        let mut refill = Refill::new(&tree, &mut *writer, self.cancel, &self.progress, &is_added);
        let refused = |error| match error {
            RefillError::Tree { path, error } => self.of_input(&path, &error),
            RefillError::Output(error) => failed(error),
        };
        let of_root = |error| self.of_input(b"", &error);
        let has_root = self.opened.tree.stored(Node::ROOT).map_err(of_root)?.header.is_some();
        if has_root && self.target.keeps().root {
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
            log::warn!("{}: {what}: {}{more}", shown(self.to.as_os_str()), escaped(&first));
        }
        if has_root && !self.target.keeps().root {
            let to = shown(self.to.as_os_str());
            log::warn!("{to}: owner, mode and time of the folder that all is in cannot be kept there");
            is_less = true;
        }
        is_less |= self.tell_of_what_has_no_place(&mut *writer);
        for what in inside::other_names(self.opened, self.cancel).map_err(|error| self.of_input(b"", &error))? {
            log::warn!("{}: {what}", shown(self.to.as_os_str()));
            is_less = true;
        }
        let versions = self.opened.index.replaced_count().map_err(|error| self.of_input(b"", &error.into()))?;
        if versions > 0 {
            let entries = if versions == 1 { "entry" } else { "entries" };
            // With -r, an archive is an older version of the folder with what it holds.
            if !self.looks_into_archives {
                log::warn!("{}: {versions} older {entries} of the same names are not kept", shown(self.to.as_os_str()));
            }
            is_less = true;
        }
        for what in self.behind_the_end().map_err(|error| self.of_input(b"", &error.into()))? {
            log::warn!("{}: {what}; that is not kept", shown(self.from.as_os_str()));
            is_less = true;
        }
        if is_less && self.arguments.replace {
            return Err(would_be_less(self.from));
        }
        writer.finish().map_err(failed)
    }

    /// In words, what lies behind the end of an archive that is read forwards, also of a compressed one: the new one
    /// ends where the old one does. Those that have a directory know it themselves.
    fn behind_the_end(&self) -> io::Result<Vec<String>> {
        if let Some(what) = inside::behind_the_end(self.opened, u64::MAX)? {
            return Ok(vec![what]);
        }
        let summary = self.opened.index.summary();
        let format = tarnfs_format::by_name(&summary.format).filter(|format| format.forwards().is_some());
        // Some end with the last entry, and something is wrong with what is behind that.
        let end = summary.end.min(self.opened.stream.len());
        format.map_or_else(|| Ok(Vec::new()), |_| tarnfs_format::around(&*self.opened.stream, 0..end, self.cancel))
    }

    /// Says what is not kept of all that is no entry; true if that is something. `writer` gets the comment.
    fn tell_of_what_has_no_place(&self, writer: &mut dyn ArchiveWriter) -> bool {
        let (from, to) = (shown(self.from.as_os_str()), shown(self.to.as_os_str()));
        let mut is_less = false;
        if let Some(locked) = &self.locked {
            let what = inside::not_encrypted_any_more(locked);
            let meant = if self.arguments.replace { "; --decrypt says that this is meant" } else { "" };
            log::warn!("{to}: {what}{meant}");
            is_less = true;
        }
        if !self.unlisted.comment.is_empty() && !writer.comment(&self.unlisted.comment) {
            log::warn!("{to}: the comment on the archive cannot be kept there");
            is_less = true;
        }
        for what in &self.unlisted.others {
            log::warn!("{from}: {what}: that is not kept");
            is_less = true;
        }
        if self.opened.index.summary().label.is_some() {
            log::warn!("{to}: the label of the archive cannot be kept there");
            is_less = true;
        }
        is_less
    }

    /// Compares every file of both archives, or all bytes where only the compression is another one.
    fn verify(&self, finished: &Finished, options: &Options) -> Result<(), Failure> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", finished.output.file().as_fd().as_raw_fd()));
        let mut options = options.clone();
        options.index.place = IndexPlace::Memory;
        options.index.is_written = false;
        options.decoding.decoded_cache = None;
        options.shape = tarnfs_index::Shape { gnu_incremental: Some(false), ..tarnfs_index::Shape::default() };
        let cannot = |what: String| {
            let what = format!("the new archive is not what it should be, and was not kept: {what}");
            Failure::new(Code::Failure, format!("{}: {what}", shown(self.to.as_os_str())))
        };
        let new = tarnfs_tree::open::open(&path, &options).map_err(|problem| match problem {
            Problem::Cancelled => Failure::new(Code::Interrupted, "interrupted; no archive was written"),
            problem => cannot(problem.to_string()),
        })?;
        if let Some((_, what)) = new.index.summary().notes.first() {
            return Err(cannot(what.clone()));
        }
        if self.keeps_stream() {
            return self.compare(&**self.bytes()?, &*new.stream, b"", &cannot);
        }
        let unlisted = unlisted(&new, self.cancel).map_err(|error| of_output(self.to, &error))?;
        if !self.unlisted.comment.is_empty() && unlisted.comment != self.unlisted.comment {
            return Err(cannot("the comment on it is another one".to_owned()));
        }
        let (old, new) = (inside::tree(self.opened), inside::tree(&new));
        // What is before their names is shared by all that wait in one folder: paths may be long.
        let mut folders = vec![(Node::ROOT, Node::ROOT, Rc::<[u8]>::default(), Vec::new(), 0)];
        while let Some((old_folder, new_folder, above, own, from)) = folders.pop() {
            let folder_path: Rc<[u8]> = joined(&above, &own).into();
            let found = children(&old, old_folder, from);
            let (found, next) = found.map_err(|error| self.of_input(&folder_path, &error))?;
            if let Some(next) = next {
                folders.push((old_folder, new_folder, above, own, next));
            }
            for (name, attributes) in found {
                let path = joined(&folder_path, &name);
                if self.is_left_out(&attributes, &path) {
                    continue;
                }
                let other = |error: tarnfs_tree::Error| cannot(format!("{}: {error}", escaped(&path)));
                let found = new.lookup(new_folder, &name).map_err(other)?;
                let is_it = (found.kind, found.size) == (attributes.kind, attributes.size)
                    || attributes.kind == Kind::Folder && found.kind == Kind::Folder;
                if !is_it {
                    return Err(cannot(format!("{}: it is something else", escaped(&path))));
                }
                if let Some(what) = self.other_attributes((&attributes, &found)) {
                    return Err(cannot(format!("{}: its {what}", escaped(&path))));
                }
                if self.target.keeps().names {
                    let names = old.owner_names(attributes.node).map_err(|error| self.of_input(&path, &error))?;
                    if names != new.owner_names(found.node).map_err(other)? {
                        return Err(cannot(format!("{}: the names of its owner are others", escaped(&path))));
                    }
                }
                if self.target.keeps().xattrs {
                    let old =
                        self.stored_xattrs(&old, attributes.node).map_err(|error| self.of_input(&path, &error))?;
                    let (mut old, mut new) = (old, new.xattrs(found.node).map_err(other)?);
                    old.sort();
                    new.sort();
                    if old != new {
                        return Err(cannot(format!("{}: its extended attributes are others", escaped(&path))));
                    }
                }
                match attributes.kind {
                    Kind::Folder => folders.push((attributes.node, found.node, Rc::clone(&folder_path), name, 0)),
                    Kind::File => {
                        let one = old.open(attributes.node).map_err(|error| self.of_input(&path, &error))?;
                        let two = new.open(found.node).map_err(other)?;
                        self.compare(&*one, &*two, &path, &cannot)?;
                    }
                    Kind::Symlink => {
                        let one = old.read_link(attributes.node).map_err(|error| self.of_input(&path, &error))?;
                        if new.read_link(found.node).map_err(other)? != one {
                            return Err(cannot(format!("{}: it leads elsewhere", escaped(&path))));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The extended attributes of a file, without what tarnfs says of it.
    fn stored_xattrs(&self, tree: &dyn Tree, node: Node) -> Result<Xattrs, tarnfs_tree::Error> {
        Ok(tree.xattrs(node)?.into_iter().filter(|(name, _)| !self.is_added(name)).collect())
    }

    /// True of an extended attribute in which tarnfs says something of the file.
    fn is_added(&self, name: &[u8]) -> bool {
        let hashes = &self.opened.index.summary().shape.hashes;
        let hash = name.strip_prefix(b"user.hash.");
        name == b"user.tarnfs.damaged" || hash.is_some_and(|hash| hashes.iter().any(|own| own.as_bytes() == hash))
    }

    /// True of what cannot be kept, as has been told.
    fn is_left_out(&self, attributes: &Attributes, path: &[u8]) -> bool {
        let entry = Entry { kind: attributes.kind, path: path.to_vec(), ..Entry::default() };
        self.target.why_not(&entry).is_some()
    }

    /// Which attribute is another one, as far as the new format has them.
    fn other_attributes(&self, (old, new): (&Attributes, &Attributes)) -> Option<&'static str> {
        let is_link = old.kind == Kind::Symlink;
        let keeps = self.target.keeps();
        let unit = keeps.time_unit;
        let times = |of: &Attributes| {
            let ctime = if keeps.ctime { of.ctime } else { of.mtime };
            [of.mtime, of.atime, ctime].map(|time| (time.seconds, time.nanoseconds / unit))
        };
        if !is_link && old.mode != new.mode {
            Some("mode is another one")
        } else if (old.uid, old.gid) != (new.uid, new.gid) {
            Some("owner is another one")
        } else if times(old) != times(new) {
            Some("time is another one")
        } else {
            None
        }
    }

    /// Fails if the bytes of `path` are others in the new archive, or cannot be read from the old one.
    fn compare(
        &self,
        old: &dyn Source,
        new: &dyn Source,
        path: &[u8],
        cannot: &dyn Fn(String) -> Failure,
    ) -> Result<(), Failure> {
        let place = if path.is_empty() { String::new() } else { format!("{}: ", escaped(path)) };
        if old.len() != new.len() {
            return Err(cannot(format!("{place}its length is another one")));
        }
        let (mut left, mut right) = (vec![0; BATCH], vec![0; BATCH]);
        let mut at = 0;
        while at < old.len() {
            self.cancel.check().map_err(|error| of_output(self.to, &error))?;
            let length = (old.len() - at).min(BATCH as u64) as usize;
            old.read_exact_at(&mut left[..length], at).map_err(|error| self.of_input(path, &error.into()))?;
            new.read_exact_at(&mut right[..length], at).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => of_output(self.to, &error),
                _ => cannot(format!("{place}{error}")),
            })?;
            if left[..length] != right[..length] {
                return Err(cannot(format!("{place}its bytes from {at} on are others")));
            }
            at += length as u64;
        }
        Ok(())
    }
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Some of what is in a folder, from position `from` on, and where the rest begins if there may be more.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
fn children(
    tree: &dyn Tree,
    folder: Node,
    from: u64,
) -> Result<(Vec<(Vec<u8>, Attributes)>, Option<u64>), tarnfs_tree::Error> {
    /// However many there are, they take little memory.
    const MOST: usize = 256;
    let (mut found, mut next) = (Vec::new(), None);
    tree.read_dir(folder, from, &mut |child| {
        if found.len() == MOST {
            return false;
        }
        found.push((child.name.to_vec(), child.attributes));
        next = (found.len() == MOST).then_some(child.next);
        true
    })?;
    Ok((found, next))
}
