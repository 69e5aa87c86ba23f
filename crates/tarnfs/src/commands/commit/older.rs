//! Older entries of names in a tar: those of what has not changed go into an archive that is written anew, too.

use std::collections::BTreeSet;

use tarnfs_tree::open::OpenArchive;
use tarnfs_tree::{Attributes, Error, Kind, Tree as _, path};

use super::rewrite::Job;
use crate::commands::rewriting::joined;
use crate::exit::Failure;
use crate::inside;

/// Names with older entries that are kept; of more, none are.
const MOST: usize = 100_000;

/// See the module.
#[derive(Default)]
pub(super) struct Older {
    /// Path in the archive, and what it was. Of one name, the oldest comes first.
    pub(super) entries: Vec<(Vec<u8>, Attributes)>,
    /// So many cannot be kept.
    pub(super) lost: u64,
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
        let is_tar = self.new.target.container().is_some_and(|container| container.own_levels().is_none());
        if !is_tar || count > MOST as u64 {
            return Ok(Older { lost: count, ..Older::default() });
        }
        let mut names = BTreeSet::new();
        opened.index.replaced(&mut |folder, name, _| {
            names.insert((folder, name.to_vec()));
        })?;
        opened.index.replaced_links(&mut |folder, name, _, _| {
            names.insert((folder, name.to_vec()));
        })?;
        let mut older = Older::default();
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
                    // One that shares its content with other names would be another file than these.
                    let is_shared = |version: &Attributes| version.kind != Kind::Folder && version.links > 1;
                    if versions.iter().any(is_shared) {
                        older.lost += versions.len() as u64;
                    } else {
                        older.entries.extend(versions.into_iter().map(|version| (path.clone(), version)));
                    }
                }
                (Err(Error::NotFound | Error::NotAFolder), _) if !is_root => {}
                (Ok(_), Ok(_) | Err(Error::NotFound)) => {}
                _ if is_root => {}
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
        Ok(older)
    }

    /// Fails unless the `new` archive has them.
    pub(super) fn has_older(&self, older: &Older, new: &OpenArchive) -> Result<(), Failure> {
        let of_new = |error: Error| self.new.is_not_it(error.to_string());
        let tree = inside::tree(new);
        let mut last: Option<(&[u8], Vec<Attributes>)> = None;
        for (path, attributes) in &older.entries {
            if last.as_ref().is_none_or(|(known, _)| known != path) {
                let (above, name) = path
                    .iter()
                    .rposition(|&byte| byte == b'/')
                    .map_or((&b""[..], &path[..]), |slash| (&path[..slash], &path[slash + 1..]));
                let folder = path::find(&tree, above, false).map_err(of_new)?;
                let mut versions = tree.versions(folder.node, name).map_err(of_new)?;
                versions.reverse();
                last = Some((path, versions));
            }
            let found = last.as_mut().and_then(|(_, versions)| versions.pop());
            let Some(found) = found else { return Err(self.new.is_not_it("an older entry is missing".to_owned())) };
            self.new.compare_with(&self.tree, &tree, path, (attributes, &found))?;
        }
        let count = new.index.replaced_count().map_err(|error| of_new(error.into()))?;
        if count == older.entries.len() as u64 {
            return Ok(());
        }
        Err(self.new.is_not_it(format!("{count} older entries are in it, not {}", older.entries.len())))
    }
}
