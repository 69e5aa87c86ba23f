//! Older entries of names in a tar: those of what has not changed go into an archive that is written anew, too. Of a
//! folder in whose place something else shows, that is all that is in it.

use std::collections::BTreeSet;

use tarnfs_tree::open::OpenArchive;
use tarnfs_tree::{Attributes, Error, Kind, Node, Tree, path};

use super::rewrite::Job;
use crate::commands::rewriting::{Rewriting, children, joined};
use crate::exit::Failure;
use crate::inside;

/// Names with older entries that are kept; of more, none are.
const MOST: usize = 100_000;

/// See the module.
#[derive(Default)]
pub(super) struct Older {
    /// Path in the archive, and what it was. Of one name, the oldest comes first.
    pub(super) entries: Vec<(Vec<u8>, Attributes)>,
    /// Names of which these are older versions.
    kept: Vec<Kept>,
    /// So many cannot be kept.
    pub(super) lost: u64,
}

struct Kept {
    path: Vec<u8>,
    /// The oldest first, without what shows.
    versions: Vec<Attributes>,
    /// One of them is a folder, and something else shows: what is in it is found by its versions alone.
    has_inner: bool,
}

/// How many an archive that is written anew would not have, where nothing of these names is changed.
pub(super) fn lost_older(new: &Rewriting<'_>) -> Result<u64, Failure> {
    let count = || {
        let count = new.opened.index.replaced_count()?;
        if count == 0 || !can_keep(new, count) {
            return Ok(count);
        }
        let (old, mut lost) = (inside::tree(new.opened), 0);
        for (folder, name) in names_of(new.opened)? {
            new.cancel.check()?;
            // The root has none.
            if !name.is_empty() {
                let mut versions = old.versions(folder, &name)?;
                versions.pop();
                if versions.iter().any(is_shared) {
                    lost += versions.len() as u64;
                }
            }
        }
        Ok(lost)
    };
    count().map_err(|error: Error| new.of_input(b"", &error))
}

/// True if a new archive can have so many.
fn can_keep(new: &Rewriting<'_>, count: u64) -> bool {
    let is_tar = new.target.container().is_some_and(|container| container.own_levels().is_none());
    is_tar && count <= MOST as u64
}

/// One that shares its content with other names would be another file than these.
fn is_shared(version: &Attributes) -> bool {
    version.kind != Kind::Folder && version.links > 1
}

/// Names that have older entries, and the folders that they are in.
fn names_of(opened: &OpenArchive) -> Result<BTreeSet<(Node, Vec<u8>)>, Error> {
    let mut names = BTreeSet::new();
    opened.index.replaced(&mut |folder, name, _| {
        names.insert((folder, name.to_vec()));
    })?;
    opened.index.replaced_links(&mut |folder, name, _, _| {
        names.insert((folder, name.to_vec()));
    })?;
    Ok(names)
}

impl Job<'_> {
    /// Those of what is as it was. What was changed or removed is so with all that it had been before.
    pub(super) fn older(&self) -> Result<Older, Failure> {
        self.find_older().map_err(|error| self.new.of_input(b"", &error))
    }

    fn find_older(&self) -> Result<Older, Error> {
        let (opened, old) = (self.new.opened, inside::tree(self.new.opened));
        let count = opened.index.replaced_count()?;
        if count == 0 {
            return Ok(Older::default());
        }
        if !can_keep(&self.new, count) {
            return Ok(Older { lost: count, ..Older::default() });
        }
        let names = names_of(opened)?;
        let mut older = Older::default();
        let mut others = BTreeSet::new();
        for (folder, name) in names {
            self.new.cancel.check()?;
            // The root has no name.
            let is_root = name.is_empty();
            let path = joined(&opened.tree.path_of(folder).unwrap_or_default(), &name);
            let now = if is_root { Err(Error::NotFound) } else { path::find(&self.tree, &path, false) };
            let before = if is_root { Err(Error::NotFound) } else { old.lookup(folder, &name) };
            match (now, before) {
                (Ok(now), Ok(before)) if now.node == before.node && self.tree.overlay.is_as_below(now.node) => {
                    let mut versions = old.versions(folder, &name)?;
                    versions.pop();
                    if versions.iter().any(is_shared) {
                        older.lost += versions.len() as u64;
                    } else {
                        self.keep(&old, &mut older, path, (versions, before.kind))?;
                    }
                }
                _ if is_root => {}
                (Err(Error::NotFound | Error::NotAFolder), _) | (Ok(_), Ok(_) | Err(Error::NotFound)) => {
                    others.insert(path);
                }
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
        // Those in folders in whose place something else shows.
        for Kept { path, .. } in older.kept.iter().filter(|kept| kept.has_inner) {
            let below = joined(path, b"");
            older.lost += others.range(below.clone()..).take_while(|other| other.starts_with(&below)).count() as u64;
        }
        Ok(older)
    }

    /// Keeps `versions` of what is at `path`, where something of that kind shows.
    fn keep(
        &self,
        old: &dyn Tree,
        older: &mut Older,
        path: Vec<u8>,
        (versions, shown): (Vec<Attributes>, Kind),
    ) -> Result<(), Error> {
        let (begun, mut has_inner) = (older.entries.len(), false);
        for version in &versions {
            // All versions of a folder have the same in them, and so has the folder that shows, if one does.
            let is_first = version.kind == Kind::Folder && shown != Kind::Folder && !has_inner;
            if !is_first || !old.is_implied(version.node) {
                older.entries.push((path.clone(), version.clone()));
            }
            if is_first {
                has_inner = true;
                if !self.keep_inner(old, older, (version.node, &path))? {
                    older.entries.truncate(begun);
                    older.lost += versions.len() as u64;
                    return Ok(());
                }
            }
        }
        older.kept.push(Kept { path, versions, has_inner });
        Ok(())
    }

    /// Keeps all that is in a folder in whose place something else shows. False if that cannot be done.
    fn keep_inner(&self, old: &dyn Tree, older: &mut Older, (folder, path): (Node, &[u8])) -> Result<bool, Error> {
        let mut folders = vec![(folder, path.to_vec())];
        while let Some((folder, above)) = folders.pop() {
            let mut from = Some(0);
            while let Some(position) = from {
                let (found, next) = children(old, folder, position)?;
                from = next;
                for (name, attributes) in found {
                    self.new.cancel.check()?;
                    let is_folder = attributes.kind == Kind::Folder;
                    if !is_folder && attributes.links > 1 || older.entries.len() >= MOST {
                        return Ok(false);
                    }
                    let path = joined(&above, &name);
                    if is_folder {
                        folders.push((attributes.node, path.clone()));
                    }
                    if !is_folder || !old.is_implied(attributes.node) {
                        older.entries.push((path, attributes));
                    }
                }
            }
        }
        Ok(true)
    }

    /// Fails unless the `new` archive has them.
    pub(super) fn has_older(&self, older: &Older, new: &OpenArchive) -> Result<(), Failure> {
        let of_new = |error: Error| self.new.is_not_it(error.to_string());
        // As they were, which is not what their nodes are where something that shares their content was written to.
        let (old, tree) = (inside::tree(self.new.opened), inside::tree(new));
        let mut expected = 0;
        for Kept { path, versions, has_inner } in &older.kept {
            let (above, name) = path
                .iter()
                .rposition(|&byte| byte == b'/')
                .map_or((&b""[..], &path[..]), |slash| (&path[..slash], &path[slash + 1..]));
            let folder = path::find(&tree, above, false).map_err(of_new)?;
            let found = tree.versions(folder.node, name).map_err(of_new)?;
            if found.len() < versions.len() {
                return Err(self.new.is_not_it("an older entry is missing".to_owned()));
            }
            expected += versions.len() as u64;
            let mut has_inner = *has_inner;
            for (version, found) in versions.iter().zip(&found) {
                self.new.compare_with(&old, &tree, path, (version, found))?;
                if version.kind == Kind::Folder && std::mem::take(&mut has_inner) {
                    self.new.compare_below(&old, &tree, path, (version.node, found.node))?;
                }
            }
        }
        let count = new.index.replaced_count().map_err(|error| of_new(error.into()))?;
        if count == expected {
            return Ok(());
        }
        Err(self.new.is_not_it(format!("{count} older entries are in it, not {expected}")))
    }
}
