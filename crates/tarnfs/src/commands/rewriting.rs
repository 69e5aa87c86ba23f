//! An archive that takes the place of another one: what of the old one has no place in it, who may read it, and whether
//! all is in it. For `convert` and `commit`.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, getxattr};
use rustix::io::Errno;
use tarnfs_format::{Entry, Kind, Unlisted};
use tarnfs_source::{Cancel, Source};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{IndexPlace, OpenArchive, Options, Problem, Recreate, is_single_file};
use tarnfs_tree::{Attributes, Node, Tree, Xattrs};
use tarnfs_write::{Output, Target};

use super::create::of_output;
use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::escaped;

/// Bytes that are read at once where both archives are compared.
const BATCH: usize = 1 << 20;

/// Fails if the archive at `path` is not the one that was `known`, or was changed since. `instead` says what there is.
pub(super) fn is_unchanged(path: &Path, known: &fs::Metadata, instead: &str) -> Result<(), Failure> {
    let now = fs::metadata(path).map_err(|error| of_input(path, &error))?;
    if is_same_file(&now, known) {
        return Ok(());
    }
    let what = format!("it changed meanwhile; it is kept, and {instead}");
    Err(Failure::new(Code::Failure, format!("{}: {what}", shown(path.as_os_str()))))
}

/// True if it is the file that was `known`, and nobody has changed it since.
pub(super) fn is_same_file(now: &fs::Metadata, known: &fs::Metadata) -> bool {
    let facts = |of: &fs::Metadata| {
        (of.dev(), of.ino(), of.len(), (of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()))
    };
    facts(now) == facts(known)
}

pub(super) fn of_input(archive: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::CannotOpen, format!("{}: {error}", shown(archive.as_os_str())))
}

/// To read an archive that will be removed: an index may say less of it than a first pass of this program does, or be
/// of another state of it.
pub(super) fn read_anew(options: &Options) -> Options {
    let mut options = options.clone();
    (options.index.place, options.index.recreate) = (IndexPlace::Memory, Recreate::Always);
    options
}

/// What is in an archive and in none of its entries.
pub(super) fn unlisted(opened: &OpenArchive, cancel: &Cancel) -> io::Result<Unlisted> {
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
pub(super) fn lost_with_layers(opened: &OpenArchive) -> io::Result<Vec<String>> {
    let layers = opened.index.summary().layers.iter().zip(&opened.inputs);
    let known = layers.filter_map(|(layer, input)| Some((tarnfs_codec::by_name(&layer.codec)?.file_codec()?, input)));
    let lost: io::Result<Vec<_>> = known.map(|(codec, input)| codec.unlisted(&**input)).collect();
    lost.map(|lost| lost.concat())
}

/// Which bits of its mode say who may read the archive at `path`, of which that file is known. Of one in several files,
/// the bits that all of them have.
pub(super) fn readers(path: &Path, known: &fs::Metadata) -> Result<u32, Failure> {
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
pub(super) fn take_over(output: &Output, old: &fs::Metadata, mode: u32) -> io::Result<()> {
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

/// See the module.
pub(super) struct Rewriting<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    pub(super) target: Target,
    pub(super) cancel: &'a Cancel,
    pub(super) opened: &'a OpenArchive,
    /// What is not in the tree.
    pub(super) unlisted: Unlisted,
    /// How far it has come.
    pub(super) progress: Arc<Progress>,
}

impl Rewriting<'_> {
    /// That something of the old archive cannot be read.
    pub(super) fn of_input(&self, path: &[u8], error: &tarnfs_tree::Error) -> Failure {
        if self.cancel.is_cancelled() || inside::is_interrupted(error) {
            return Failure::new(Code::Interrupted, "interrupted; no archive was written");
        }
        inside::failure(self.from, path, error)
    }

    /// That the new archive is not whole.
    #[allow(clippy::needless_pass_by_value, reason = "it is made for this")]
    pub(super) fn is_not_it(&self, what: String) -> Failure {
        let what = format!("the new archive is not what it should be, and was not kept: {what}");
        Failure::new(Code::Failure, format!("{}: {what}", shown(self.to.as_os_str())))
    }

    /// In words, what lies behind the end of an archive that is read forwards, also of a compressed one: the new one
    /// ends where the old one does. Those that have a directory know it themselves.
    pub(super) fn behind_the_end(&self) -> io::Result<Vec<String>> {
        if let Some(what) = inside::behind_the_end(self.opened, u64::MAX)? {
            return Ok(vec![what]);
        }
        let summary = self.opened.index.summary();
        let format = tarnfs_format::by_name(&summary.format).filter(|format| format.forwards().is_some());
        // Some end with the last entry, and something is wrong with what is behind that.
        let end = summary.end.min(self.opened.stream.len());
        format.map_or_else(|| Ok(Vec::new()), |_| tarnfs_format::around(&*self.opened.stream, 0..end, self.cancel))
    }

    /// Opens the new archive, which has no name yet.
    pub(super) fn open_new(&self, output: &Output, options: &Options) -> Result<OpenArchive, Failure> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", output.file().as_fd().as_raw_fd()));
        let mut options = options.clone();
        options.index.place = IndexPlace::Memory;
        options.index.is_written = false;
        options.decoding.decoded_cache = None;
        options.shape = tarnfs_index::Shape { gnu_incremental: Some(false), ..tarnfs_index::Shape::default() };
        let new = tarnfs_tree::open::open(&path, &options).map_err(|problem| match problem {
            Problem::Cancelled => Failure::new(Code::Interrupted, "interrupted; no archive was written"),
            problem => self.is_not_it(problem.to_string()),
        })?;
        match new.index.summary().notes.first() {
            Some((_, what)) => Err(self.is_not_it(what.clone())),
            None => Ok(new),
        }
    }

    /// Fails unless all that the tree `old` has is in the `new` archive, every byte of its files.
    pub(super) fn compare_trees(&self, old: &dyn Tree, new: &OpenArchive) -> Result<(), Failure> {
        let unlisted = unlisted(new, self.cancel).map_err(|error| of_output(self.to, &error))?;
        if !self.unlisted.comment.is_empty() && unlisted.comment != self.unlisted.comment {
            return Err(self.is_not_it("the comment on it is another one".to_owned()));
        }
        self.compare_below(old, &inside::tree(new), b"", (Node::ROOT, Node::ROOT))
    }

    /// The same of what is below the folder of the tree `old` and that of the tree `new`, which is at `path` in both.
    pub(super) fn compare_below(
        &self,
        old: &dyn Tree,
        new: &dyn Tree,
        path: &[u8],
        (old_folder, new_folder): (Node, Node),
    ) -> Result<(), Failure> {
        // What is before their names is shared by all that wait in one folder: paths may be long.
        let mut folders = vec![(old_folder, new_folder, Rc::<[u8]>::default(), path.to_vec(), 0)];
        while let Some((old_folder, new_folder, above, own, from)) = folders.pop() {
            let folder_path: Rc<[u8]> = joined(&above, &own).into();
            let found = children(old, old_folder, from);
            let (found, next) = found.map_err(|error| self.of_input(&folder_path, &error))?;
            if let Some(next) = next {
                folders.push((old_folder, new_folder, above, own, next));
            }
            for (name, attributes) in found {
                let path = joined(&folder_path, &name);
                if self.is_left_out(&attributes, &path) {
                    continue;
                }
                let found = self.compare_found(old, new, &path, (&attributes, new_folder))?;
                if attributes.kind == Kind::Folder {
                    folders.push((attributes.node, found, Rc::clone(&folder_path), name, 0));
                }
            }
        }
        Ok(())
    }

    /// Fails unless what is at `path` in the tree `new` is what has these `attributes` in the tree `old`.
    pub(super) fn compare_one(
        &self,
        old: &dyn Tree,
        new: &dyn Tree,
        path: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let (above, name) = path
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
        if self.is_left_out(attributes, path) {
            return Ok(());
        }
        let other = |error: tarnfs_tree::Error| self.is_not_it(format!("{}: {error}", escaped(path)));
        if name.is_empty() {
            let root = new.attributes(Node::ROOT).map_err(other)?;
            return self.compare_with(old, new, path, (attributes, &root));
        }
        let folder = tarnfs_tree::path::find(new, above, false).map_err(other)?;
        self.compare_found(old, new, path, (attributes, folder.node)).map(drop)
    }

    /// The same, in a folder of the tree `new`. Returns its node there.
    fn compare_found(
        &self,
        old: &dyn Tree,
        new: &dyn Tree,
        path: &[u8],
        (attributes, folder): (&Attributes, Node),
    ) -> Result<Node, Failure> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let found = new.lookup(folder, name);
        let found = found.map_err(|error| self.is_not_it(format!("{}: {error}", escaped(path))))?;
        self.compare_with(old, new, path, (attributes, &found))?;
        Ok(found.node)
    }

    /// Fails unless `found` in the tree `new` is what has these `attributes` in the tree `old`.
    pub(super) fn compare_with(
        &self,
        old: &dyn Tree,
        new: &dyn Tree,
        path: &[u8],
        (attributes, found): (&Attributes, &Attributes),
    ) -> Result<(), Failure> {
        let of_old = |error| self.of_input(path, &error);
        let other = |error: tarnfs_tree::Error| self.is_not_it(format!("{}: {error}", escaped(path)));
        let is_not = |what: &str| Err(self.is_not_it(format!("{}: {what}", escaped(path))));
        let is_it = (found.kind, found.size) == (attributes.kind, attributes.size)
            || attributes.kind == Kind::Folder && found.kind == Kind::Folder;
        if !is_it {
            return is_not("it is something else");
        }
        // What both say of it is made up.
        if attributes.kind == Kind::Folder && old.is_implied(attributes.node) && new.is_implied(found.node) {
            return Ok(());
        }
        if let Some(what) = self.other_attributes((attributes, found)) {
            return is_not(&format!("its {what}"));
        }
        if self.target.keeps().names
            && old.owner_names(attributes.node).map_err(of_old)? != new.owner_names(found.node).map_err(other)?
        {
            return is_not("the names of its owner are others");
        }
        if self.target.keeps().xattrs {
            let one = self.stored_xattrs(old, attributes.node).map_err(of_old)?;
            let (mut one, mut two) = (one, new.xattrs(found.node).map_err(other)?);
            one.sort();
            two.sort();
            if one != two {
                return is_not("its extended attributes are others");
            }
        }
        match attributes.kind {
            Kind::File => {
                let one = old.open(attributes.node).map_err(of_old)?;
                let two = new.open(found.node).map_err(other)?;
                self.compare(&*one, &*two, path)
            }
            Kind::Symlink => {
                let one = old.read_link(attributes.node).map_err(of_old)?;
                if new.read_link(found.node).map_err(other)? == one { Ok(()) } else { is_not("it leads elsewhere") }
            }
            _ => Ok(()),
        }
    }

    /// The extended attributes of a file, without what tarnfs says of it.
    fn stored_xattrs(&self, tree: &dyn Tree, node: Node) -> Result<Xattrs, tarnfs_tree::Error> {
        Ok(tree.xattrs(node)?.into_iter().filter(|(name, _)| !self.is_added(name)).collect())
    }

    /// True of an extended attribute in which tarnfs says something of the file.
    pub(super) fn is_added(&self, name: &[u8]) -> bool {
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
    pub(super) fn compare(&self, old: &dyn Source, new: &dyn Source, path: &[u8]) -> Result<(), Failure> {
        let place = if path.is_empty() { String::new() } else { format!("{}: ", escaped(path)) };
        if old.len() != new.len() {
            return Err(self.is_not_it(format!("{place}its length is another one")));
        }
        // There may be very many small files.
        let most = old.len().min(BATCH as u64) as usize;
        let (mut left, mut right) = (vec![0; most], vec![0; most]);
        let mut at = 0;
        while at < old.len() {
            self.cancel.check().map_err(|error| of_output(self.to, &error))?;
            let data = next_data(old, new, at);
            if data > at {
                at = data;
                continue;
            }
            let length = (old.len() - at).min(BATCH as u64) as usize;
            old.read_exact_at(&mut left[..length], at).map_err(|error| self.of_input(path, &error.into()))?;
            new.read_exact_at(&mut right[..length], at).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => of_output(self.to, &error),
                _ => self.is_not_it(format!("{place}{error}")),
            })?;
            if left[..length] != right[..length] {
                return Err(self.is_not_it(format!("{place}its bytes from {at} on are others")));
            }
            at += length as u64;
        }
        Ok(())
    }
}

/// The first byte from `at` on that is not a hole on both sides, which are of one length.
fn next_data(old: &dyn Source, new: &dyn Source, at: u64) -> u64 {
    let next = |side: &dyn Source| side.next_data(at).unwrap_or(side.len());
    // Mostly there are none.
    let first = next(old);
    if first > at { first.min(next(new)) } else { at }
}

pub(super) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Some of what is in a folder, from position `from` on, and where the rest begins if there may be more.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
pub(super) fn children(
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, SystemTime};

    use tarnfs_source::{Extent, MemorySource, SharedSource, Stencil};

    use super::*;

    /// A file may have any length for its holes.
    #[test]
    fn what_is_a_hole_on_both_sides_is_passed_over() {
        const LENGTH: u64 = 1 << 40;
        let with_bytes_at = |places: &[u64]| {
            let packed: SharedSource = Arc::new(MemorySource::new(vec![1; places.len()], "packed"));
            let map = places.iter().map(|&offset| Extent { offset, length: 1, skip: 0 });
            Stencil::new(packed, map, LENGTH).unwrap()
        };
        let (old, new) = (with_bytes_at(&[5, 1 << 30]), with_bytes_at(&[1 << 20, 1 << 30]));
        let next = |at: u64| next_data(&old, &new, at);
        assert_eq!([0, 5, 6, 1 << 20].map(next), [5, 5, 1 << 20, 1 << 20]);
        assert_eq!([(1 << 20) + 1, 1 << 30, (1 << 30) + 1].map(next), [1 << 30, 1 << 30, LENGTH]);
    }

    /// What was changed in place has the same numbers, and may have the same length and the same time.
    #[test]
    fn a_file_that_was_changed_is_not_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        fs::write(&path, "old").unwrap();
        let known = fs::metadata(&path).unwrap();
        assert!(is_same_file(&fs::metadata(&path).unwrap(), &known));
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        assert!(!is_same_file(&file.metadata().unwrap(), &known));
        // The clock by which a file system notes changes has coarse ticks.
        loop {
            fs::write(&path, "new").unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            file.set_modified(known.modified().unwrap()).unwrap();
            let now = file.metadata().unwrap();
            assert_eq!((now.modified().unwrap(), now.len()), (known.modified().unwrap(), known.len()));
            if (now.ctime(), now.ctime_nsec()) != (known.ctime(), known.ctime_nsec()) {
                assert!(!is_same_file(&now, &known));
                return;
            }
        }
    }
}
