//! What was written is appended to a tar that is not compressed, in its place: as long as nothing is taken out of it,
//! that takes the time of what is written, not that of the archive.
//!
//! All that goes behind it is written beside it first, and compared. Behind the entries of the archive there are only
//! zeros, so nothing of it is lost by writing over them. The first two blocks of what is appended stay zero until all
//! behind them is on the disk: until then every program finds the end of the old archive there. Then both are written
//! at once. An overlay notes how the archive was, so that what an ended commit has left behind its end is taken away
//! again.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use tarnfs_source::{FileSource, Fingerprint, Joined, MemorySource, SharedSource, Slice, Source};
use tarnfs_tree::open::{OpenArchive, Options};
use tarnfs_tree::{Appends, Attributes, Error, HEAD, Kind, MountedOver, Node, OverlayStatus, Tree, path};
use tarnfs_write::Output;

use super::failed;
use super::plan::Moved;
use super::rewrite::Job;
use crate::args::shown;
use crate::commands::create::{self, of_output};
use crate::commands::mounts;
use crate::commands::rewriting::{children, is_same_file, is_unchanged, joined};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::reading::is_read;
use crate::terminal::escaped;

/// Bytes of a tar's block, and of what its length is a multiple of, as `tar` has it.
const BLOCK: u64 = 512;
const RECORD: u64 = 20 * BLOCK;

/// Bytes of zeros behind a tar, at most: what it is padded with.
const MOST_PADDING: u64 = 64 << 20;

/// Bytes that are copied at once.
const BATCH: usize = 1 << 20;

/// What is appended.
pub(super) struct Tail {
    /// Where the archive's entries end.
    end: u64,
    entries: Entries,
}

/// Path in the archive, and what is there.
type Entries = Vec<(Vec<u8>, Attributes)>;

impl Job<'_> {
    /// What is to be appended; `None` where the archive, of which that is `known`, has to be written anew: also where
    /// it is not certain that nothing is taken out of it. `moved` has another name, or a further one.
    pub(super) fn tail(&self, moved: &[Moved], known: &Metadata) -> Result<Option<Tail>, Failure> {
        let unread = |error: Error| self.new.of_input(b"", &error);
        let summary = self.new.opened.index.summary();
        let (end, stream) = (summary.end, &self.new.opened.stream);
        let is_plain = self.new.target.container().is_some_and(|container| container.own_levels().is_none())
            && self.new.target.compression().is_plain();
        // Headers in it may say something of all entries behind them. Of names that are read in another encoding, what
        // is appended has other ones, and replaces none.
        let is_as_stored = !summary.shape.ignore_zeros && summary.shape.encoding.is_none();
        let can_grow = is_plain && summary.grown_from.is_some() && is_as_stored;
        // Behind another name it may be the copy that somebody keeps.
        if known.nlink() != 1 || self.tree.overlay.hides_below().map_err(failed)? {
            return Ok(None);
        }
        let length = self.left.map_or(stream.len(), |left| left.was.length);
        if !can_grow || !end.is_multiple_of(BLOCK) || length.saturating_sub(end) > MOST_PADDING {
            return Ok(None);
        }
        let is_clear = || Ok(self.left.is_some() || is_zero(&**stream, end..length)?);
        if !is_clear().map_err(|error: io::Error| unread(error.into()))? || is_shown(self.new.from, known) {
            return Ok(None);
        }
        for moved in moved {
            if moved.is_folder || !self.is_further_name(moved)? {
                return Ok(None);
            }
        }
        let entries = self.entries().map_err(unread)?;
        Ok(entries.map(|entries| Tail { end, entries }))
    }

    /// True if a file that was there before has a further name, and that was nobody's.
    fn is_further_name(&self, moved: &Moved) -> Result<bool, Failure> {
        let find = |tree: &dyn Tree, path: &[u8]| match path::find(tree, path, false) {
            Ok(found) => Ok(Some(found.node)),
            Err(Error::NotFound | Error::NotAFolder) => Ok(None),
            Err(error) => Err(self.new.of_input(path, &error)),
        };
        let old = inside::tree(self.new.opened);
        // What stands for something below has its node.
        let (was, first) = (find(&old, &moved.from)?, find(&self.tree, &moved.from)?);
        let (further, replaced) = (find(&self.tree, &moved.path)?, find(&old, &moved.path)?);
        Ok(was.is_some() && was == first && was == further && replaced.is_none())
    }

    /// What is not in the archive as it is now, each folder before all that is in it: who unpacks a tar gives it its
    /// time when that is over. So a folder goes with what is in it, also if it has not changed. `None` where something
    /// is to be taken out of the archive.
    fn entries(&self) -> Result<Option<Entries>, Error> {
        let of_overlay = |error: tarnfs_tree::OverlayError| error.error;
        let (overlay, old) = (&self.tree.overlay, inside::tree(self.new.opened));
        let has_root = self.new.opened.tree.stored(Node::ROOT)?.header.is_some();
        // Names of a file that has several may be in folders of which nothing is said.
        let has_shared = overlay.has_shared().map_err(of_overlay)?;
        let (mut entries, mut unchanged, mut used) = (Vec::new(), Vec::new(), HashSet::new());
        let above: &[u8] = if has_root { b"." } else { b"" };
        let root = self.tree.attributes(Node::ROOT)?;
        if (has_root || self.has_new_root) && !self.is_as_before(&root, &old.attributes(Node::ROOT)?, &old)? {
            entries.push((b".".to_vec(), root));
        } else if has_root {
            unchanged.push((b".".to_vec(), root));
        }
        let mut folders = vec![(Node::ROOT, Some(Node::ROOT), above.to_vec())];
        while let Some((folder, below, folder_path)) = folders.pop() {
            let mut from = Some(0);
            while let Some(position) = from {
                let (found, next) = children(&self.tree, folder, position)?;
                from = next;
                for (name, attributes) in found {
                    self.new.cancel.check()?;
                    let is_folder = attributes.kind == Kind::Folder;
                    let written = overlay.written(attributes.node).map_err(of_overlay)?;
                    if written.is_none() && !(is_folder && has_shared) {
                        continue;
                    }
                    let before = match below.map(|below| old.lookup(below, &name)).transpose() {
                        Err(Error::NotFound) => None,
                        before => before?,
                    };
                    let path = joined(&folder_path, &name);
                    let is_new = match (&before, written) {
                        (_, None) => false,
                        (Some(before), Some(written))
                            if before.kind != attributes.kind || is_folder && written.is_made =>
                        {
                            return Ok(None);
                        }
                        // It comes from another place.
                        (Some(before), Some(written)) if !written.is_made && before.node != attributes.node => {
                            return Ok(None);
                        }
                        // A folder's: all that is in it comes from there.
                        (None, Some(written)) if is_folder && !written.is_made => return Ok(None),
                        (Some(before), Some(written)) => {
                            // What is said of a folder without an entry is made up, and is another thing each time.
                            let has_entry = !is_folder || !self.tree.is_implied(attributes.node);
                            let is_as_before = || self.is_as_before(&attributes, before, &old);
                            written.is_made || written.has_content || has_entry && !is_as_before()?
                        }
                        (None, Some(_)) => true,
                    };
                    if is_folder {
                        folders.push((attributes.node, before.map(|before| before.node), path.clone()));
                    }
                    if is_new {
                        used.insert(folder_path.clone());
                        entries.push((path, attributes));
                    } else if is_folder {
                        unchanged.push((path, attributes));
                    }
                }
            }
        }
        // One without an entry gets none: whoever unpacks the archive would give the folder that is there already
        // attributes that nobody has chosen.
        let goes_along =
            |(path, attributes): &(Vec<u8>, Attributes)| used.contains(path) && !self.tree.is_implied(attributes.node);
        entries.extend(unchanged.into_iter().filter(goes_along));
        // There may be very many, and their paths long: nothing is kept of them to compare them.
        entries.sort_by(|(one, _), (other, _)| {
            let [one, other] = [one, other].map(|path| (path != b".", path.split(|&byte| byte == b'/')));
            one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1))
        });
        Ok(Some(entries))
    }

    fn is_as_before(&self, now: &Attributes, before: &Attributes, old: &dyn Tree) -> Result<bool, Error> {
        let facts = |of: &Attributes| {
            let links = if of.kind == Kind::Folder { 0 } else { of.links };
            (of.mode, of.uid, of.gid, of.mtime, of.size, links)
        };
        let folder_or = |of: &Attributes| {
            let (mode, uid, gid, mtime, size, links) = facts(of);
            (mode, uid, gid, mtime, if of.kind == Kind::Folder { 0 } else { size }, links)
        };
        if folder_or(now) != folder_or(before) {
            return Ok(false);
        }
        let (mut now, mut before) = (self.tree.xattrs(now.node)?, old.xattrs(before.node)?);
        now.sort();
        before.sort();
        Ok(now == before)
    }

    /// Does it, and says how long the archive is now.
    pub(super) fn append(&self, tail: &Tail, known: &Metadata, options: &Options) -> Result<u64, Failure> {
        let archive = self.new.from;
        let failed_to_write = |error: io::Error| of_output(archive, &error);
        let real = archive.canonicalize().map_err(failed_to_write)?;
        let output = Output::create(&real, true, true).map_err(failed_to_write)?;
        let mut how = create::writing(self.new.target, output, &self.task.how, self.task.threads, self.new.cancel);
        // Its own is of the archive.
        how.index = None;
        let mut writer = self.new.target.writer(how).map_err(failed_to_write)?;
        self.fill(&self.tree, &mut *writer, |refill| {
            tail.entries.iter().try_for_each(|(path, attributes)| refill.entry(attributes, path))
        })?;
        let part = writer.finish().map_err(failed_to_write)?;
        let new = self.new.open_new(&part.output, options)?;
        for (name, attributes) in &tail.entries {
            let name = name.strip_prefix(b"./").unwrap_or(if name == b"." { b"" } else { name });
            self.new.compare_one(&self.tree, &inside::tree(&new), name, attributes)?;
        }
        drop(new);
        is_unchanged(archive, known, "nothing was committed")?;
        let length = if tail.entries.is_empty() {
            known.len()
        } else {
            self.put_behind(&real, tail, (part.output.file(), part.length), known)?
        };
        self.is_what_was_shown(options)?;
        self.tree.overlay.empty(self.new.target.keeps().root || !self.has_new_root).map_err(|error| {
            let what = "has what was written, but the overlay could not be emptied; the same command does that";
            Failure::new(Code::Failure, format!("{}: {what}: {error}", shown(archive.as_os_str())))
        })?;
        Ok(length)
    }

    /// Opens the longer archive, which gives it its index, and fails unless it shows what the mount did.
    fn is_what_was_shown(&self, options: &Options) -> Result<(), Failure> {
        let archive = self.new.from;
        let mut options = options.clone();
        options.index.is_written = !self.task.how.no_index;
        if self.new.opened.index_path.is_some() {
            // There was one.
            options.index.minimum_file_count = 0;
        }
        let opened = match tarnfs_tree::open::open(archive, &options) {
            Err(problem) if options.index.is_written => {
                // The archive is whole, and an index can be made at any time.
                log::warn!("{}: no index is written: {problem}", shown(archive.as_os_str()));
                options.index.is_written = false;
                tarnfs_tree::open::open(archive, &options)
            }
            opened => opened,
        };
        let is_it = opened.map_err(|problem| problem.to_string()).and_then(|opened| {
            let what = self.difference(&opened).map_err(|error| error.to_string())?;
            what.map_or(Ok(()), |path| Err(format!("{} is another one in it than in the mount", escaped(&path))))
        });
        is_it.map_err(|what| {
            // Nothing is removed then: the next commit finds what is in the archive by now, and what is not.
            let overlay = &self.tree.overlay;
            // It was us who have changed the archive.
            let noted = overlay.note_mounted_over(MountedOver::of(archive).ok().as_ref());
            if let Err(error) = overlay.forget_notes().and(noted) {
                log::warn!("{error}");
            }
            let (archive, overlay) = (shown(archive.as_os_str()), shown(self.task.overlay.as_os_str()));
            let what = format!("was appended to, but cannot be shown to have all of it, and {overlay} stays: {what}");
            Failure::new(Code::Failure, format!("{archive}: {what}"))
        })
    }

    /// The path of something that is not in the longer archive as a mount with the overlay shows it. What is as it was
    /// has the same header; the content of what was written was compared before. Folders of which nothing is said are
    /// as they were.
    fn difference(&self, longer: &OpenArchive) -> Result<Option<Vec<u8>>, Error> {
        let (overlay, old, new) = (&self.tree.overlay, &self.new.opened.tree, inside::tree(longer));
        let has_shared = overlay.has_shared().map_err(|error| error.error)?;
        let facts = |of: &Attributes| {
            let mode = if of.kind == Kind::Symlink { 0 } else { of.mode };
            let size = if of.kind == Kind::Folder { 0 } else { of.size };
            (size, mode, of.uid, of.gid, of.mtime)
        };
        let mut folders = vec![(Node::ROOT, Node::ROOT, Vec::new())];
        while let Some((merged_folder, new_folder, folder_path)) = folders.pop() {
            let (mut from, mut counts) = (Some(0), [0_u64; 2]);
            while let Some(position) = from {
                let (found, next) = children(&self.tree, merged_folder, position)?;
                from = next;
                counts[0] += found.len() as u64;
                for (name, merged) in found {
                    self.new.cancel.check()?;
                    let path = joined(&folder_path, &name);
                    let is_as_below = overlay.is_as_below(merged.node);
                    let found = match new.lookup(new_folder, &name) {
                        Ok(found) if found.kind == merged.kind => found,
                        Ok(_) | Err(Error::NotFound) => return Ok(Some(path)),
                        Err(error) => return Err(error),
                    };
                    let is_folder = merged.kind == Kind::Folder;
                    let is_same = match (is_as_below, is_folder) {
                        (true, true) => true,
                        (true, false) => old.stored(merged.node)?.header == longer.tree.stored(found.node)?.header,
                        (false, true) if self.tree.is_implied(merged.node) && new.is_implied(found.node) => true,
                        (false, _) => facts(&merged) == facts(&found),
                    };
                    if !is_same {
                        return Ok(Some(path));
                    }
                    if is_folder && (has_shared || !is_as_below) {
                        folders.push((merged.node, found.node, path));
                    }
                }
            }
            let mut from = Some(0);
            while let Some(position) = from {
                let (found, next) = children(&new, new_folder, position)?;
                from = next;
                counts[1] += found.len() as u64;
            }
            if counts[0] != counts[1] {
                return Ok(Some(folder_path));
            }
        }
        Ok(None)
    }

    fn put_behind(&self, path: &Path, tail: &Tail, part: (&File, u64), known: &Metadata) -> Result<u64, Failure> {
        let (archive, overlay) = (self.new.from, &self.tree.overlay);
        let failed_to_write = |error: io::Error| of_output(archive, &error);
        let file = File::options().read(true).write(true).open(path).map_err(failed_to_write)?;
        let mut head = vec![0; HEAD as usize];
        part.0.read_exact_at(&mut head, 0).map_err(failed_to_write)?;
        let was = (known.len(), self.new.opened.index.summary().archive.fingerprint);
        let copy = part.0.try_clone().and_then(|copy| FileSource::from_file(copy, archive)).map_err(failed_to_write)?;
        let file_is = (known.dev(), known.ino());
        let note = Appends::new(file_is, was, tail.end, (&copy, part.1), self.new.cancel).map_err(failed_to_write)?;
        overlay.note_appends(note).map_err(failed)?;
        // It is what was read, whatever its path leads to by now. That is asked as late as can be.
        if !is_same_file(&file.metadata().map_err(failed_to_write)?, known) {
            overlay.forget_notes().map_err(failed)?;
            is_unchanged(archive, known, "nothing was committed")?;
            return Err(failed_to_write(io::Error::other("another file took its place")));
        }
        let length = new_length(tail.end + part.1, known.len());
        copy_behind(&file, tail.end, part, known.len()..length, &|| self.new.cancel.check())
            .map_err(|error| self.undo(&file, note, false, &error))?;
        // Who finds the head takes all of it for done. What the disk has refused is not.
        let publish = file.write_all_at(&head, tail.end).and_then(|()| file.sync_all());
        publish.map_err(|error| self.undo(&file, note, true, &error))?;
        Ok(length)
    }

    /// Takes away what was put behind the end of the archive, because of an error, which is returned in words.
    /// `has_head`: something of its head may be on the disk.
    fn undo(&self, file: &File, note: Appends, has_head: bool, because: &io::Error) -> Failure {
        let (archive, overlay) = (self.new.from, &self.tree.overlay);
        let Err(error) = take_back(file, note, has_head) else {
            if let Err(error) = overlay.forget_notes() {
                // Nobody finds what it says.
                log::warn!("{error}");
            }
            return of_output(archive, because);
        };
        let what = if has_head {
            // It may be found whole after a loss of power, when more was written to the overlay.
            if let Err(error) = overlay.distrust_appended(note) {
                log::warn!("{error}");
            }
            "could not be taken away again, and may be a part of it after a loss of power: the next commit takes it away"
        } else {
            "could not be taken away again, and does no harm"
        };
        let archive = shown(archive.as_os_str());
        let what = format!("{archive}: {because}; what was put behind its end {what}: {error}");
        Failure::new(Code::Failure, what)
    }
}

/// How long an archive of `length` bytes is when there are entries up to `end`.
fn new_length(end: u64, length: u64) -> u64 {
    end.checked_next_multiple_of(RECORD).unwrap_or(end).max(length)
}

/// Puts all of `part` but its first blocks into `file`, where it goes from `at` on. The file grows as
/// `lengths` say.
fn copy_behind(
    file: &File,
    at: u64,
    (part, size): (&File, u64),
    lengths: std::ops::Range<u64>,
    check: &dyn Fn() -> io::Result<()>,
) -> io::Result<()> {
    if !lengths.is_empty() {
        // Where the disk is full, that is known before anything is written. Not all file systems know how.
        match fallocate(file, FallocateFlags::empty(), lengths.start, lengths.end - lengths.start) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(lengths.end)?,
            allocated => allocated?,
        }
    }
    let mut buffer = vec![0; BATCH];
    let mut done = HEAD;
    while done < size {
        check()?;
        let batch = (size - done).min(BATCH as u64) as usize;
        part.read_exact_at(&mut buffer[..batch], done)?;
        file.write_all_at(&buffer[..batch], at + done)?;
        done += batch as u64;
    }
    file.sync_all()?;
    check()
}

/// Takes away what lies behind the end of an archive that was that long. `has_head`: the head may be there, too, or may
/// be on the disk though it is not seen.
fn take_back(file: &File, was: Appends, has_head: bool) -> io::Result<()> {
    let zeros = vec![0; BATCH];
    let now = file.metadata()?.len();
    let zero = |range: std::ops::Range<u64>| {
        let mut at = range.start;
        while at < range.end {
            let batch = (range.end - at).min(BATCH as u64) as usize;
            file.write_all_at(&zeros[..batch], at)?;
            at += batch as u64;
        }
        Ok::<_, io::Error>(())
    };
    if has_head {
        // Before what is behind it goes: else a loss of power leaves a part of it.
        zero(was.end..was.end.saturating_add(HEAD).min(now))?;
        file.sync_all()?;
    }
    zero(was.end..was.length.min(now))?;
    file.set_len(was.length)?;
    file.sync_all()
}

/// What an ended commit has left behind the end of an archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) was: Appends,
    /// So many bytes.
    pub(super) bytes: u64,
    /// Something of its head is there, so that it is a part of the archive for who reads that.
    pub(super) has_head: bool,
    /// It may be on the disk though it is not seen.
    is_doubtful: bool,
}

impl Left {
    /// What a commit of the overlay in `folder` has put behind the end of the archive at `path`, if it was ended before
    /// that was a part of it, or if what is in the overlay may be more by now.
    pub(super) fn of(path: &Path, folder: &Path) -> Result<Option<Self>, Failure> {
        let Ok(status) = OverlayStatus::open(folder) else { return Ok(None) };
        let (appends, left) = (status.appends().map_err(failed)?, status.left().map_err(failed)?);
        let is_doubtful = appends.is_none();
        let Some(was) = appends.or(left) else { return Ok(None) };
        drop(status);
        Self::find(path, was, is_doubtful).map_err(|error| cannot_take_back(path, &error))
    }

    fn find(path: &Path, was: Appends, is_doubtful: bool) -> io::Result<Option<Self>> {
        let file: SharedSource = Arc::new(FileSource::open(path)?);
        let padding = was.length.saturating_sub(was.end);
        if file.len() < was.end || padding > MOST_PADDING {
            return Ok(None);
        }
        // It is as long as the commit has made it, and nobody else has put an entry behind its end.
        let is_that_long = [was.length, new_length(was.end.saturating_add(was.tail), was.length)].contains(&file.len());
        let is_whole = file.len() == was.length && is_zero(&*file, was.end..file.len())?;
        if !is_that_long || is_whole && !is_doubtful {
            return Ok(None);
        }
        let head = was.end..was.end.saturating_add(HEAD).min(file.len());
        let has_head = !is_zero(&*file, head)?;
        if has_head && !was.is_torn(&*file)? && !(is_doubtful && was.is_done(&*file)?) {
            return Ok(None);
        }
        let zeros = MemorySource::new(vec![0; padding as usize], "zeros");
        let bytes = if is_whole { 0 } else { file.len() - was.end };
        let old = Joined::new(vec![Arc::new(Slice::new(file, 0, was.end)), Arc::new(zeros)], "the archive")?;
        let is_it = Fingerprint::of(&old)? == was.fingerprint;
        Ok(is_it.then_some(Self { was, bytes, has_head, is_doubtful }))
    }

    /// Takes it away.
    pub(super) fn take_back(&self, path: &Path) -> Result<(), Failure> {
        let file = File::options().read(true).write(true).open(path);
        let taken = file.and_then(|file| take_back(&file, self.was, self.has_head || self.is_doubtful));
        taken.map_err(|error| cannot_take_back(path, &error))?;
        log::info!("{}: what an ended commit has left behind its end was taken away", path.display());
        Ok(())
    }
}

fn cannot_take_back(path: &Path, error: &io::Error) -> Failure {
    let what = "taking away what an ended commit has left behind its end";
    Failure::new(Code::CannotOpen, format!("{}: {what}: {error}", shown(path.as_os_str())))
}

/// True if there are only zeros.
fn is_zero(source: &dyn Source, mut range: std::ops::Range<u64>) -> io::Result<bool> {
    let mut buffer = vec![0; 64 << 10];
    while !range.is_empty() {
        let most = (range.end - range.start).min(buffer.len() as u64) as usize;
        let read = source.read_at(&mut buffer[..most], range.start)?;
        if read == 0 {
            return Ok(true);
        }
        if buffer[..read].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        range.start += read as u64;
    }
    Ok(true)
}

/// True if a mount or a server shows the archive, or nobody knows: it would have to say that the archive has changed,
/// where one that is written anew leaves the old one to it.
fn is_shown(archive: &Path, known: &Metadata) -> bool {
    let real = archive.canonicalize().unwrap_or_else(|_| archive.to_owned());
    let is_file = |found: &Metadata| (found.dev(), found.ino()) == (known.dev(), known.ino());
    let is_it = |source: &std::path::PathBuf| {
        source.canonicalize().is_ok_and(|source| source == real) || source.metadata().is_ok_and(|found| is_file(&found))
    };
    let shows = |mount: &tarnfs_fuse::MountedTree| mounts::sources(&mount.source).0.iter().any(is_it);
    tarnfs_fuse::mounts().map_or(true, |mounts| mounts.iter().any(shows)) || stays_read(&|| is_read(archive, known))
}

/// True if `is_read` stays so: a mount that was just unmounted says for a moment more that it reads the archive.
fn stays_read(is_read: &dyn Fn() -> bool) -> bool {
    const LOOKS: u32 = 10;
    const BETWEEN: Duration = Duration::from_millis(50);
    (0..LOOKS).all(|look| {
        if look > 0 {
            thread::sleep(BETWEEN);
        }
        is_read()
    })
}
