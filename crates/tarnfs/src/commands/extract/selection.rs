//! What of the archive is extracted: what was named, and all that is below it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use tarnfs_format::name;
use tarnfs_source::Limits;
use tarnfs_tree::{ArchiveTree, Attributes, Error, Node, Stored, Tree};

use crate::globs::{self, Pattern};

/// Children that are looked at at a time.
const BATCH: usize = 256;

/// One of the patterns.
#[derive(Debug)]
struct One {
    /// As it was typed.
    typed: OsString,
    /// Its components, if it names something or is no glob.
    names: Vec<Vec<u8>>,
    /// `None` if it is no glob.
    glob: Option<Pattern>,
    /// It names something. Known when it is settled.
    is_there: bool,
}

/// All patterns.
#[derive(Debug)]
pub(in crate::commands) struct Selection {
    /// Everything, if there are none.
    patterns: Vec<One>,
    limits: Limits,
}

/// How far each pattern has come on the way to a folder.
#[derive(Debug, Clone)]
pub(in crate::commands) enum At {
    /// The folder is selected, and all in it.
    All,
    /// Numbers of the patterns that may still match, and for each those of components that may come next. Of all that
    /// are named there may be thousands, and as many folders that wait.
    Within(Rc<Vec<(usize, BTreeSet<usize>)>>),
}

impl Selection {
    pub(in crate::commands) fn new(typed: &[OsString], limits: Limits) -> Self {
        let patterns = typed.iter().map(|typed| {
            let names = name::components(typed.as_bytes(), &limits).iter().map(<[u8]>::to_vec).collect();
            One { typed: typed.clone(), names, glob: globs::pattern(typed.as_bytes()), is_there: false }
        });
        Self { patterns: patterns.collect(), limits }
    }

    /// What names something is no glob. To be called when that can be known.
    pub(in crate::commands) fn settle(&mut self, tree: &ArchiveTree) -> Result<(), Error> {
        for one in &mut self.patterns {
            let mut at = Some(Node::ROOT);
            for name in &one.names {
                at = match at.map(|folder| tree.lookup(folder, name)) {
                    Some(Ok(found)) => Some(found.node),
                    Some(Err(Error::NotFound | Error::NotAFolder)) | None => None,
                    Some(Err(error)) => return Err(error),
                };
            }
            if at.is_some() {
                one.glob = None;
                one.is_there = true;
            }
        }
        Ok(())
    }

    /// True if pattern `number` stands for something in `tree`. What lies in a folder that another pattern selects is
    /// not asked for its own, so that a walk does not tell.
    pub(in crate::commands) fn is_there(&self, tree: &ArchiveTree, number: usize) -> Result<bool, Error> {
        let Some(one) = self.patterns.get(number) else { return Ok(false) };
        match &one.glob {
            Some(glob) => globs::has_any(tree, glob),
            None => Ok(one.is_there),
        }
    }

    /// The components of pattern `number`, if it is no glob.
    pub(in crate::commands) fn names_of(&self, number: usize) -> Option<&[Vec<u8>]> {
        self.patterns.get(number).filter(|one| one.glob.is_none()).map(|one| &one.names[..])
    }

    /// The place of the root.
    pub(in crate::commands) fn root(&self) -> At {
        let is_all = |one: &One| one.names.is_empty();
        if self.patterns.is_empty() || self.patterns.iter().any(is_all) {
            return At::All;
        }
        At::Within(Rc::new((0..self.patterns.len()).map(|number| (number, BTreeSet::from([0]))).collect()))
    }

    /// The place of what is called `name` in a folder at `at`; `None` if nothing of it is selected. The numbers of the
    /// patterns that select it are given to `found`.
    pub(in crate::commands) fn below(&self, at: &At, name: &[u8], mut found: impl FnMut(usize)) -> Option<At> {
        let At::Within(places) = at else { return Some(At::All) };
        let (mut is_selected, mut next) = (false, Vec::new());
        for (number, places) in &**places {
            let Some(one) = self.patterns.get(*number) else { continue };
            let (mut after, length) = if let Some(glob) = &one.glob {
                (glob.after(places, name), glob.len())
            } else {
                let matching = places.iter().filter(|&&place| one.names.get(place).is_some_and(|own| own == name));
                (matching.map(|place| place + 1).collect(), one.names.len())
            };
            if after.remove(&length) {
                is_selected = true;
                found(*number);
            }
            if !after.is_empty() {
                next.push((*number, after));
            }
        }
        match (is_selected, !next.is_empty()) {
            (true, _) => Some(At::All),
            (false, true) => Some(At::Within(Rc::new(next))),
            (false, false) => None,
        }
    }

    /// The only names that can be selected in a folder at `at`, if that is known without listing it.
    pub(in crate::commands) fn names_at(&self, at: &At) -> Option<BTreeSet<&[u8]>> {
        let At::Within(places) = at else { return None };
        let mut names = BTreeSet::new();
        for (number, places) in &**places {
            let Some(one) = self.patterns.get(*number) else { continue };
            if one.glob.is_some() {
                return None;
            }
            names.extend(places.iter().filter_map(|&place| one.names.get(place)).map(Vec::as_slice));
        }
        Some(names)
    }

    /// What may be selected of `folder`, which is at `at`, from position `from` on: some of it, and where the rest
    /// begins if there is more.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    pub(in crate::commands) fn children(
        &self,
        tree: &ArchiveTree,
        folder: Node,
        from: u64,
        at: &At,
    ) -> Result<(Vec<(Vec<u8>, Attributes, Stored)>, Option<u64>), Error> {
        let (mut found, mut next) = (Vec::new(), None);
        if let Some(names) = self.names_at(at) {
            for name in names {
                let child = match tree.lookup(folder, name) {
                    Err(Error::NotFound) => continue,
                    child => child?,
                };
                let stored = tree.stored(child.node)?;
                found.push((name.to_vec(), child, stored));
            }
            return Ok((found, None));
        }
        tree.read_stored(folder, from, &mut |child, stored| {
            if found.len() == BATCH {
                return false;
            }
            found.push((child.name.to_vec(), child.attributes, stored));
            next = (found.len() == BATCH).then_some(child.next);
            true
        })?;
        Ok((found, next))
    }

    /// True if what lies at `path` may be selected; asked while nobody knows what there is.
    pub(in crate::commands) fn may_take(&self, path: &[u8]) -> bool {
        let root = self.root();
        if matches!(root, At::All) {
            return true;
        }
        // What is typed as a glob may be a name.
        let components = name::components(path, &self.limits);
        let by_name = |one: &One| {
            let mut names = components.iter();
            one.names.iter().all(|own| names.next() == Some(own.as_slice()))
        };
        if self.patterns.iter().any(by_name) {
            return true;
        }
        let mut at = root;
        for name in &components {
            match self.below(&at, name, |_| {}) {
                Some(next) => at = next,
                None => return false,
            }
        }
        matches!(at, At::All)
    }

    /// The patterns, as they were typed.
    pub(in crate::commands) fn typed(&self) -> impl Iterator<Item = &OsString> {
        self.patterns.iter().map(|one| &one.typed)
    }
}
