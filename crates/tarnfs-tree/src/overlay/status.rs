//! What an overlay changes, read from its folder alone: what lies below need not be there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::content::path_of;
use super::editing::is_name;
use super::files::{join, open_to_read, plain_file};
use super::rows::{self, NodeRow, ROOT, Said};
use super::{OverlayError, database};
use crate::{Error, Kind};

/// How something is not as it is below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was made.
    Added,
    /// Its content or its attributes were changed, or something else has its name.
    Modified,
    /// It was removed.
    Deleted,
    /// It has another name.
    Renamed,
}

impl Change {
    /// `A`, `M`, `D` or `R`.
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
            Self::Renamed => 'R',
        }
    }
}

/// Something that an overlay changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// How.
    pub change: Change,
    /// The path in the mount.
    pub path: Vec<u8>,
    /// What is there now. Of what was removed that is not known.
    pub now: Option<Now>,
    /// The path that it has below, if that is another one: it was renamed, or a folder that it lies in.
    pub from: Option<Vec<u8>>,
    /// Of a file that was written.
    pub content: Option<ContentPlace>,
}

/// Where the content of a file lies that was written, as the overlay says it. Anybody may have made that, so it may
/// lead anywhere: [`OverlayStatus`] follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentPlace(Vec<u8>);

impl ContentPlace {
    fn of(row: &NodeRow) -> Option<Self> {
        row.place.clone().filter(|_| row.kind == Kind::File).map(Self)
    }
}

/// A name in the mount of which an overlay says something.
#[derive(Debug)]
pub struct Named {
    /// The path in the mount.
    pub path: Vec<u8>,
    /// The path of what would be there, were nothing said of this name: there need not be anything.
    pub below: Option<Vec<u8>>,
    /// What has it; `None` if nothing has it any more.
    pub held: Option<Held>,
}

/// What has a name.
#[derive(Debug)]
pub struct Held {
    id: u64,
    /// What it is now.
    pub now: Now,
    /// The path that it has below; `None` of what was made here.
    pub from: Option<Vec<u8>>,
    /// Of a file that was written.
    pub content: Option<ContentPlace>,
    /// Its content or its attributes are not as they are below.
    pub is_changed: bool,
    /// It has several names below.
    pub is_shared: bool,
    /// It got another name before this one.
    pub is_further: bool,
}

/// What is there in place of what is below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// File, folder, ...
    pub kind: Kind,
    /// The permissions.
    pub mode: u32,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
}

impl Now {
    fn of(row: &NodeRow) -> Self {
        Self { kind: row.kind, mode: row.mode, target: row.target.clone() }
    }
}

impl Held {
    fn of(row: &NodeRow, is_further: bool) -> Self {
        Self {
            id: row.id,
            now: Now::of(row),
            from: row.lower.clone(),
            content: ContentPlace::of(row),
            is_changed: row.changed != 0,
            is_shared: row.is_shared,
            is_further,
        }
    }
}

impl Changed {
    /// True of a folder. Of what was removed that is not known.
    pub fn is_folder(&self) -> bool {
        self.now.as_ref().is_some_and(|now| now.kind == Kind::Folder)
    }
}

/// The folder of an overlay, to look into it. It may be in use.
#[derive(Debug)]
pub struct OverlayStatus {
    pub(super) folder: PathBuf,
    root: OwnedFd,
    pub(super) connection: Connection,
}

/// A folder that is walked.
struct Walked {
    id: u64,
    path: Vec<u8>,
    lower: Option<Vec<u8>>,
}

/// A name that a walk has met.
struct Met {
    folder: u64,
    name: Vec<u8>,
    path: Vec<u8>,
    below: Option<Vec<u8>>,
    is_over: bool,
    /// What has it.
    node: Option<NodeRow>,
}

impl OverlayStatus {
    /// Opens the overlay in `folder`.
    pub fn open(folder: &Path) -> Result<Self, OverlayError> {
        let open = || {
            let folder = folder.canonicalize()?;
            let root = openat(CWD, &folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let path = folder.join(database::NAME);
            if !path.is_file() {
                let what = format!("is no overlay of tarnfs: there is no {} in it", database::NAME);
                return Err(io::Error::new(io::ErrorKind::NotFound, what).into());
            }
            Ok(Self { connection: database::Database::look(&path)?, root, folder })
        };
        open().map_err(|error: Error| OverlayError { path: folder.to_owned(), error })
    }

    fn of<T>(&self, done: Result<T, Error>) -> Result<T, OverlayError> {
        done.map_err(|error| OverlayError { path: self.folder.clone(), error })
    }

    /// Hands all that it changes to `receive`, until that returns false: folder by folder, in each by name, a folder
    /// before what is in it.
    pub fn each(&self, receive: &mut dyn FnMut(Changed) -> bool) -> Result<(), OverlayError> {
        self.of(self.each_change(receive))
    }

    /// The same for names: all of which something is said, also where that is only that something in it was changed,
    /// or which node it is.
    pub fn each_name(&self, receive: &mut dyn FnMut(&Named) -> bool) -> Result<(), OverlayError> {
        self.of(self.each_named(receive))
    }

    /// True if something is said of a name in the folder `held`.
    pub fn says_of(&self, held: &Held, name: &[u8]) -> Result<bool, OverlayError> {
        self.of(rows::name(&self.connection, held.id, name).map(|said| said != Said::Nothing))
    }

    /// True if what has this path below has a name here that stands for it.
    pub fn has_name(&self, below: &[u8]) -> Result<bool, OverlayError> {
        self.of(rows::has_name(&self.connection, below))
    }

    /// Where a content lies, for who wants to look at it. `None` if there is no file that an overlay can have put
    /// there.
    pub fn path_of(&self, content: &ContentPlace) -> Option<PathBuf> {
        plain_file(self.root.as_fd(), &content.0).ok().map(|_| self.folder.join(path_of(&content.0)))
    }

    /// How many bytes a content has.
    pub fn length_of(&self, content: &ContentPlace) -> io::Result<u64> {
        Ok(plain_file(self.root.as_fd(), &content.0).map_err(|error| self.of_content(content, &error))?.st_size as u64)
    }

    /// Opens a content, to read it: it lies in the folder of the overlay, and no link leads to it.
    pub fn open_content(&self, content: &ContentPlace) -> io::Result<File> {
        open_to_read(self.root.as_fd(), &content.0).map_err(|error| self.of_content(content, &error))
    }

    fn of_content(&self, content: &ContentPlace, error: &io::Error) -> io::Error {
        let place = tarnfs_format::name::excerpt(&content.0);
        let what = format!("what was written to it should be at {place} in {}: {error}", self.folder.display());
        io::Error::new(error.kind(), what)
    }

    /// Hands each name to `receive`, until that returns false, which is returned then.
    fn walk(&self, receive: &mut dyn FnMut(&Met) -> Result<bool, Error>) -> Result<bool, Error> {
        let Some(root) = rows::node(&self.connection, ROOT)? else { return Ok(true) };
        let mut folders = vec![Walked { id: ROOT, path: Vec::new(), lower: root.lower }];
        let mut seen = std::collections::HashSet::from([ROOT]);
        while let Some(folder) = folders.pop() {
            let mut inner = Vec::new();
            for (row, is_over) in rows::all_names(&self.connection, folder.id)? {
                let rows::NameRow { name, node, .. } = row;
                // Nor is it shown in a mount.
                if is_name(&name).is_err() {
                    continue;
                }
                let node = match node.map(|node| rows::node(&self.connection, node)).transpose()? {
                    Some(None) => continue,
                    node => node.flatten(),
                };
                let (path, below) = (join(&folder.path, &name), folder.lower.as_ref().map(|lower| join(lower, &name)));
                let met = Met { folder: folder.id, name, path, below, is_over, node };
                if !receive(&met)? {
                    return Ok(false);
                }
                // A file that somebody has made for us may have a folder in itself.
                if let Some(row) = met.node.filter(|row| row.kind == Kind::Folder)
                    && seen.insert(row.id)
                {
                    inner.push(Walked { id: row.id, path: met.path, lower: row.lower });
                }
            }
            folders.extend(inner.into_iter().rev());
        }
        Ok(true)
    }

    fn each_named(&self, receive: &mut dyn FnMut(&Named) -> bool) -> Result<(), Error> {
        let goes_on = self.walk(&mut |met| {
            let held = met.node.as_ref().map(|row| self.held(met, row)).transpose()?;
            Ok(receive(&Named { path: met.path.clone(), below: met.below.clone(), held }))
        })?;
        if goes_on {
            self.without_names(&mut |path, row| {
                receive(&Named { path: path.clone(), below: Some(path), held: Some(Held::of(row, false)) })
            })?;
        }
        Ok(())
    }

    fn held(&self, met: &Met, row: &NodeRow) -> Result<Held, Error> {
        let has_others = row.links > 1 && row.kind != Kind::Folder;
        let first = if has_others { rows::name_of(&self.connection, row.id)? } else { None };
        let is_further = first.is_some_and(|(folder, name)| folder != met.folder || name != met.name);
        Ok(Held::of(row, is_further))
    }

    fn each_change(&self, receive: &mut dyn FnMut(Changed) -> bool) -> Result<(), Error> {
        let Some(root) = rows::node(&self.connection, ROOT)? else { return Ok(()) };
        let nothing = Changed { change: Change::Modified, path: b"/".to_vec(), now: None, from: None, content: None };
        if root.changed != 0 && !receive(Changed { now: Some(Now::of(&root)), ..nothing.clone() }) {
            return Ok(());
        }
        let goes_on = self.walk(&mut |met| {
            let Met { path, below, .. } = met;
            let Some(row) = &met.node else {
                let has_moved = below.as_ref().map(|below| rows::has_moved(&self.connection, below)).transpose()?;
                let from = below.clone().filter(|below| below != path);
                let gone = Changed { change: Change::Deleted, path: path.clone(), from, ..nothing.clone() };
                return Ok(!met.is_over || has_moved == Some(true) || receive(gone));
            };
            let from = row.lower.clone().filter(|lower| lower != path);
            let (now, content) = (Some(Now::of(row)), ContentPlace::of(row));
            let said = Changed { path: path.clone(), now, from, content, ..nothing.clone() };
            let (is_in_place, is_modified) = (row.lower.is_some() && row.lower == *below, row.changed != 0);
            let changes = match &row.lower {
                Some(_) if is_in_place && is_modified => vec![said],
                Some(_) if is_in_place => Vec::new(),
                // It has that name below, too, or has replaced what had it there.
                Some(_) if rows::is_written_name(row, met.is_over) => {
                    vec![Changed { from: below.clone().filter(|below| below != path), ..said }]
                }
                Some(from) => {
                    let renamed = Changed { change: Change::Renamed, from: Some(from.clone()), ..said.clone() };
                    if is_modified { vec![renamed, said] } else { vec![renamed] }
                }
                None if met.is_over => vec![said],
                None => vec![Changed { change: Change::Added, ..said }],
            };
            Ok(changes.into_iter().all(&mut *receive))
        })?;
        if goes_on {
            self.without_names(&mut |path, row| {
                let (now, content) = (Some(Now::of(row)), ContentPlace::of(row));
                receive(Changed { path, now, content, ..nothing.clone() })
            })?;
        }
        Ok(())
    }

    /// What has several names below, and was changed, but has no more names in rows: one of the others leads to it.
    /// They are not known here, so it stands under the path by which it was changed first.
    fn without_names(&self, receive: &mut dyn FnMut(Vec<u8>, &NodeRow) -> bool) -> Result<(), Error> {
        for id in rows::shared(&self.connection)? {
            let Some(row) = rows::node(&self.connection, id)? else { continue };
            let Some(path) = row.lower.clone().filter(|_| row.changed != 0 && row.links > 0) else { continue };
            if rows::name_of(&self.connection, id)?.is_none() && !receive(path, &row) {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use rustix::fs::{FileType, mknodat};

    use super::*;
    use crate::edit::New;
    use crate::overlay::OverlayTree;
    use crate::{FolderTree, Node, Tree as _};

    /// > The database of an overlay is not trusted: a place in it leads to contents alone.
    #[test]
    fn only_contents_of_the_overlay_are_opened() {
        let [below, outer] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (folder, secret) = (outer.path().join("overlay"), outer.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), &folder, "test").unwrap();
        let edit = tree.edit().unwrap();
        let new = New { kind: Kind::File, mode: 0o644, umask: 0, uid: 0, gid: 0, target: Vec::new() };
        let node = edit.make(Node::ROOT, b"file", &new).unwrap().node;
        edit.open_to_write(node, false).unwrap().write_at(b"mine", 0).unwrap();
        tree.finish();
        drop(tree);
        symlink(&secret, folder.join("link")).unwrap();
        symlink(outer.path(), folder.join("linked")).unwrap();
        mknodat(CWD, folder.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let status = OverlayStatus::open(&folder).unwrap();
        let found = |place: &[u8]| {
            let place = ContentPlace(place.to_vec());
            let content = status.open_content(&place).and_then(io::read_to_string);
            (status.path_of(&place), status.length_of(&place).ok(), content.map_err(|error| error.to_string()))
        };
        let file = folder.canonicalize().unwrap().join("file");
        assert_eq!(found(b"file"), (Some(file), Some(4), Ok("mine".to_owned())));
        let absolute = secret.as_os_str().as_bytes();
        let others: [&[u8]; 10] = [
            absolute,
            b"../secret",
            b"./file",
            b"",
            database::NAME.as_bytes(),
            b".tarnfs-overlay.files/../file",
            b"link",
            b"linked/secret",
            b"pipe",
            b"none",
        ];
        for place in others {
            let (path, length, content) = found(place);
            assert_eq!((path, length), (None, None), "{place:?}");
            assert!(content.unwrap_err().contains("should be at"), "{place:?}");
        }
    }
}
