//! Archives that were split over files which lie beside each other in the tree: they show as one folder, under the name
//! of the part that they are found by.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_format::name::escape;
use tarnfs_source::{Joined, SharedSource};

use super::archives::{File, Steps, Where};
use super::unchanged::Unchanged;
use super::{LazyTree, nanoseconds};
use crate::open::Problem;
use crate::parts::{self, Found, Wrong};
use crate::{Error, FolderTree, Kind, Node, Tree};

/// Missing parts of which is remembered that they were told.
const MOST_TOLD: usize = 1024;

/// Parts that are not there, and of which that was said.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashSet<(Node, Vec<u8>)>>);

/// What a file is to those beside it.
#[derive(Debug)]
pub(super) enum Role {
    /// It stands for itself.
    Alone,
    /// The archive that it is a part of shows under the name of another one.
    Other,
    /// It is shown as what these are together.
    Shown(Found<SharedSource>),
    /// A part is not there.
    Lacks(Vec<u8>),
}

/// The files of an archive as one, the last change of any of them, and each by itself.
pub(super) type Opened = (SharedSource, i64, Vec<Arc<Unchanged>>);

/// Those that were found, as one.
pub(super) fn joined(found: &Found<SharedSource>) -> io::Result<SharedSource> {
    let files = found.files.iter().map(|(_, file)| SharedSource::clone(file)).collect();
    Ok(Arc::new(Joined::new(files, format!("{} in {} files", escape(&found.whole), found.files.len()))?))
}

/// The file `name` in `folder` of `tree`, if there is one, and what is known of it. Nobody holds it.
fn file_in(tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Option<SharedSource>, Error> {
    let attributes = match tree.lookup(folder, name) {
        Err(Error::NotFound) => return Ok(None),
        attributes => attributes?,
    };
    // Another kind of file, such as a link, nobody has named.
    let opened = if attributes.kind == Kind::File { tree.open(attributes.node).map(Some) } else { Ok(None) };
    tree.forget(attributes.node, 1);
    opened
}

impl LazyTree {
    /// What the file `name` in `folder` of `tree` is to those beside it.
    pub(super) fn role_of(tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Role, Error> {
        if !parts::may_be_part(name) {
            return Ok(Role::Alone);
        }
        let open = |name: &[u8]| {
            let file = file_in(tree, folder, name);
            file.map_err(|error| {
                Problem::CannotOpen(match error {
                    Error::Io(error) => error,
                    error => error.errno().into(),
                })
            })
        };
        match parts::find(name, &open) {
            Ok(None) => Ok(Role::Alone),
            Ok(Some(found)) if found.shown == name => Ok(Role::Shown(found)),
            Ok(Some(_)) => Ok(Role::Other),
            Err(Wrong::Missing(missing)) => Ok(Role::Lacks(missing)),
            Err(Wrong::Problem(Problem::Read { error, .. } | Problem::CannotOpen(error))) => Err(Error::Io(error)),
            Err(Wrong::Problem(problem)) => Err(io::Error::other(problem).into()),
        }
    }

    /// True if the file `name` in `folder` of `tree`, which is `source`, is shown as a folder: it is an archive, or the
    /// part of one that stands for all of them.
    pub(super) fn is_shown(
        &self,
        tree: &dyn Tree,
        folder: Node,
        name: &[u8],
        source: &SharedSource,
    ) -> Result<bool, Error> {
        match self.with_room(|| Self::role_of(tree, folder, name))? {
            Role::Alone => self.is_archive(&**source, name),
            Role::Other => Ok(false),
            Role::Shown(found) => self.is_archive(&*joined(&found)?, &found.whole),
            Role::Lacks(missing) => {
                let stands_alone = parts::stands_alone(name, &**source);
                let begins = parts::stem_of_number(name).is_some_and(|_| parts::is_first(name));
                if (begins && self.is_archive(&**source, name)? || parts::is_split(name, &**source))
                    && self.told.is_new(folder, &missing)
                {
                    let (name, missing) = (escape(name), escape(&missing));
                    let then = if stands_alone { "" } else { "; it stays a file" };
                    log::warn!("{name}: a part of it is missing: {missing}{then}");
                }
                if stands_alone { self.is_archive(&**source, name) } else { Ok(false) }
            }
        }
    }

    /// The parts of the archive that `file` stands for, which lies in `tree`; `None` if that is one file.
    pub(super) fn open_parts(
        &self,
        file: &File,
        tree: &dyn Tree,
        source: &SharedSource,
    ) -> Result<Option<Found<SharedSource>>, Error> {
        let (Where::Base(folder) | Where::Archive(_, folder)) = self.place(file.folder);
        match Self::role_of(tree, folder, &file.name)? {
            Role::Shown(found) => {
                if !self.how.options.shape.ignore_zeros
                    && let Some(format) = parts::are_volumes(&found.files)?
                {
                    let what =
                        format!("its parts are volumes of {format}, each with headers of its own: -i joins them");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                }
                Ok(Some(found))
            }
            Role::Alone => Ok(None),
            Role::Lacks(_) if parts::stands_alone(&file.name, &**source) => Ok(None),
            Role::Other | Role::Lacks(_) => Err(super::changed(&escape(&file.name).to_string())),
        }
    }

    /// The same, opened: files in `folder`, which must stay as they are.
    pub(super) fn open_in_folder(
        &self,
        found: &Found<SharedSource>,
        file: &File,
        folder: &Arc<FolderTree>,
        steps: &Steps,
    ) -> Result<Opened, Error> {
        let (Where::Base(inner) | Where::Archive(_, inner)) = self.place(file.folder);
        let (mut unchanged, mut modified) = (Vec::new(), i64::MIN);
        for (name, source) in &found.files {
            let attributes = folder.lookup(inner, name)?;
            let (node, reads) = (attributes.node, Arc::clone(&steps.reads));
            let of_folder = (Arc::clone(folder), node);
            let part = Unchanged::new(SharedSource::clone(source), of_folder, &attributes, reads);
            // It is held until it is closed.
            let part = part.inspect_err(|_| folder.forget(node, 1))?.holding();
            unchanged.push(Arc::new(part));
            modified = modified.max(nanoseconds(attributes.mtime));
        }
        let files = unchanged.iter().map(|part| Arc::clone(part) as SharedSource).collect();
        let name = format!("{} in {} files", escape(&found.whole), unchanged.len());
        let source = Arc::new(Joined::new(files, name)?);
        Ok((source, modified, unchanged))
    }
}

impl Told {
    fn is_new(&self, folder: Node, missing: &[u8]) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MOST_TOLD && told.insert((folder, missing.to_vec()))
    }
}
