//! What an overlay changes, read from its folder alone: what lies below need not be there.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::content::path_of;
use super::files::join;
use super::rows::{self, NodeRow, ROOT};
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
    /// Of a file that was written: where its content lies.
    pub content: Option<PathBuf>,
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
    pub(super) connection: Connection,
}

/// A folder that is walked.
struct Walked {
    id: u64,
    path: Vec<u8>,
    lower: Option<Vec<u8>>,
}

impl OverlayStatus {
    /// Opens the overlay in `folder`.
    pub fn open(folder: &Path) -> Result<Self, OverlayError> {
        let open = || {
            let folder = folder.canonicalize()?;
            let path = folder.join(database::NAME);
            if !path.is_file() {
                let what = format!("is no overlay of tarnfs: there is no {} in it", database::NAME);
                return Err(std::io::Error::new(std::io::ErrorKind::NotFound, what).into());
            }
            Ok(Self { connection: database::Database::look(&path)?, folder })
        };
        open().map_err(|error: Error| OverlayError { path: folder.to_owned(), error })
    }

    /// Hands all that it changes to `receive`, until that returns false: folder by folder, in each by name, a folder
    /// before what is in it.
    pub fn each(&self, receive: &mut dyn FnMut(Changed) -> bool) -> Result<(), OverlayError> {
        self.walk(receive).map_err(|error| OverlayError { path: self.folder.clone(), error })
    }

    fn walk(&self, receive: &mut dyn FnMut(Changed) -> bool) -> Result<(), Error> {
        let Some(root) = rows::node(&self.connection, ROOT)? else { return Ok(()) };
        let nothing = Changed { change: Change::Modified, path: b"/".to_vec(), now: None, from: None, content: None };
        if root.changed != 0 && !receive(Changed { now: Some(Now::of(&root)), ..nothing.clone() }) {
            return Ok(());
        }
        let mut folders = vec![Walked { id: ROOT, path: Vec::new(), lower: root.lower }];
        let mut seen = std::collections::HashSet::from([ROOT]);
        while let Some(folder) = folders.pop() {
            let mut inner = Vec::new();
            for (row, is_over) in rows::all_names(&self.connection, folder.id)? {
                let rows::NameRow { name, node, .. } = row;
                let path = join(&folder.path, &name);
                let below = folder.lower.as_ref().map(|lower| join(lower, &name));
                let Some(node) = node else {
                    let has_moved = below.as_ref().map(|below| rows::has_moved(&self.connection, below)).transpose()?;
                    let from = below.filter(|below| *below != path);
                    let gone = Changed { change: Change::Deleted, path, from, ..nothing.clone() };
                    if is_over && has_moved != Some(true) && !receive(gone) {
                        return Ok(());
                    }
                    continue;
                };
                let Some(row) = rows::node(&self.connection, node)? else { continue };
                let is_folder = row.kind == Kind::Folder;
                let content = row.place.as_deref().filter(|_| row.kind == Kind::File);
                let content = content.map(|place| self.folder.join(path_of(place)));
                let from = row.lower.clone().filter(|lower| *lower != path);
                let said = Changed { path: path.clone(), now: Some(Now::of(&row)), from, content, ..nothing.clone() };
                let (is_in_place, is_modified) = (row.lower.is_some() && row.lower == below, row.changed != 0);
                let changes = match &row.lower {
                    Some(_) if is_in_place && is_modified => vec![said],
                    Some(_) if is_in_place => Vec::new(),
                    // It has that name below, too, or has replaced what had it there.
                    Some(_) if rows::is_written_name(&row, is_over) => {
                        vec![Changed { from: below.filter(|below| *below != path), ..said }]
                    }
                    Some(from) => {
                        let renamed = Changed { change: Change::Renamed, from: Some(from.clone()), ..said.clone() };
                        if is_modified { vec![renamed, said] } else { vec![renamed] }
                    }
                    None if is_over => vec![said],
                    None => vec![Changed { change: Change::Added, ..said }],
                };
                if changes.into_iter().any(|change| !receive(change)) {
                    return Ok(());
                }
                // A file that somebody has made for us may have a folder in itself.
                if is_folder && seen.insert(node) {
                    inner.push(Walked { id: node, path, lower: row.lower });
                }
            }
            folders.extend(inner.into_iter().rev());
        }
        self.without_names_here(receive)
    }

    /// What has several names below, and was changed, but has no more names in rows: one of the others leads to it.
    /// They are not known here, so it stands under the path by which it was changed first.
    fn without_names_here(&self, receive: &mut dyn FnMut(Changed) -> bool) -> Result<(), Error> {
        for id in rows::shared(&self.connection)? {
            let Some(row) = rows::node(&self.connection, id)? else { continue };
            let now = Some(Now::of(&row));
            let Some(path) = row.lower.filter(|_| row.changed != 0 && row.links > 0) else { continue };
            if rows::name_of(&self.connection, id)?.is_some() {
                continue;
            }
            let content = row.place.as_deref().map(|place| self.folder.join(path_of(place)));
            let change = Change::Modified;
            if !receive(Changed { change, path, now, from: None, content }) {
                return Ok(());
            }
        }
        Ok(())
    }
}
