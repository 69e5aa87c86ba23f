//! What of the archive is extracted: what was named, and all that is below it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

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
    patterns: Vec<One>,
    /// Before it is settled, those of globs, too: what is typed as a glob may be a name.
    names: Names,
    /// The place of the root, which each entry of an archive is looked for from.
    root: At,
    limits: Limits,
}

/// The names of all patterns, as a tree: a list of files may have thousands of them, and is asked for each entry.
#[derive(Debug, Default)]
struct Names {
    /// The first one is the root's.
    steps: Vec<Step>,
}

/// Where some of the names have come to.
#[derive(Debug, Default)]
struct Step {
    /// The next names, and the steps that they lead to.
    below: BTreeMap<Vec<u8>, usize>,
    /// Numbers of the patterns that end here.
    ends: Vec<usize>,
}

impl Names {
    fn new<'a>(all: impl Iterator<Item = (usize, &'a [Vec<u8>])>) -> Self {
        let mut steps = vec![Step::default()];
        for (number, names) in all {
            let mut at = 0;
            for name in names {
                let next = steps.len();
                at = match steps[at].below.get(name) {
                    Some(&known) => known,
                    None => *steps[at].below.entry(name.clone()).or_insert(next),
                };
                if at == next {
                    steps.push(Step::default());
                }
            }
            steps[at].ends.push(number);
        }
        Self { steps }
    }

    /// Where `name` leads from a step, and what is there.
    fn below(&self, at: usize, name: &[u8]) -> Option<(usize, &Step)> {
        let next = *self.steps.get(at)?.below.get(name)?;
        Some((next, self.steps.get(next)?))
    }
}

/// How far the patterns have come on the way to a folder.
#[derive(Debug, Clone)]
pub(in crate::commands) enum At {
    /// The folder is selected, and all in it.
    All,
    /// Something in it may be. Many folders may wait, so that they share it.
    Within(Arc<Places>),
}

/// See [`At::Within`].
#[derive(Debug)]
pub(in crate::commands) struct Places {
    /// The step of the names, if some lead on from here.
    names: Option<usize>,
    /// Numbers of the globs that may still match, and for each those of components that may come next.
    globs: Vec<(usize, BTreeSet<usize>)>,
}

impl Selection {
    pub(in crate::commands) fn new(typed: &[OsString], limits: Limits) -> Self {
        let patterns = typed.iter().map(|typed| {
            let names = name::components(typed.as_bytes(), &limits).iter().map(<[u8]>::to_vec).collect();
            One { typed: typed.clone(), names, glob: globs::pattern(typed.as_bytes()), is_there: false }
        });
        let mut selection = Self { patterns: patterns.collect(), names: Names::default(), root: At::All, limits };
        selection.begin(|_| true);
        selection
    }

    /// Takes as names those that `are_names`, and all others as globs only.
    fn begin(&mut self, are_names: impl Fn(&One) -> bool) {
        let patterns = &self.patterns;
        let named = patterns.iter().enumerate().filter(|(_, one)| are_names(one));
        self.names = Names::new(named.map(|(number, one)| (number, one.names.as_slice())));
        let globs = patterns.iter().enumerate().filter(|(_, one)| one.glob.is_some());
        let globs = globs.map(|(number, _)| (number, BTreeSet::from([0]))).collect();
        // Without patterns, everything is.
        self.root = if patterns.is_empty() || patterns.iter().any(|one| one.names.is_empty()) {
            At::All
        } else {
            At::Within(Arc::new(Places { names: Some(0), globs }))
        };
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
        self.begin(|one| one.glob.is_none());
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
        self.root.clone()
    }

    /// True if not all of the archive is selected.
    pub(in crate::commands) fn is_limited(&self) -> bool {
        matches!(self.root, At::Within(_))
    }

    /// The place of what is called `name` in a folder at `at`; `None` if nothing of it is selected. The numbers of the
    /// patterns that select it are given to `found`.
    pub(in crate::commands) fn below(&self, at: &At, name: &[u8], mut found: impl FnMut(usize)) -> Option<At> {
        let At::Within(places) = at else { return Some(At::All) };
        let (mut is_selected, mut next) = (false, Places { names: None, globs: Vec::new() });
        if let Some((at, step)) = places.names.and_then(|at| self.names.below(at, name)) {
            is_selected = !step.ends.is_empty();
            step.ends.iter().for_each(|&number| found(number));
            next.names = (!step.below.is_empty()).then_some(at);
        }
        for (number, places) in &places.globs {
            let Some(glob) = self.patterns.get(*number).and_then(|one| one.glob.as_ref()) else { continue };
            let mut after = glob.after(places, name);
            if after.remove(&glob.len()) {
                is_selected = true;
                found(*number);
            }
            if !after.is_empty() {
                next.globs.push((*number, after));
            }
        }
        match (is_selected, next.names.is_some() || !next.globs.is_empty()) {
            (true, _) => Some(At::All),
            (false, true) => Some(At::Within(Arc::new(next))),
            (false, false) => None,
        }
    }

    /// The only names that can be selected in a folder at `at`, in order, if that is known without listing it.
    pub(in crate::commands) fn names_at(&self, at: &At) -> Option<impl Iterator<Item = &[u8]>> {
        let At::Within(places) = at else { return None };
        let step = places.names.and_then(|at| self.names.steps.get(at));
        places.globs.is_empty().then(|| step.into_iter().flat_map(|step| step.below.keys().map(Vec::as_slice)))
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
        if !self.is_limited() {
            return true;
        }
        let mut at = self.root();
        for name in &name::components(path, &self.limits) {
            match self.below(&at, name, |_| {}) {
                Some(At::All) => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }

    /// The patterns, as they were typed.
    pub(in crate::commands) fn typed(&self) -> impl Iterator<Item = &OsString> {
        self.patterns.iter().map(|one| &one.typed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(typed: &[&str]) -> Selection {
        Selection::new(&typed.iter().map(OsString::from).collect::<Vec<_>>(), Limits::default())
    }

    #[test]
    fn what_is_named_is_taken_with_all_below_it() {
        let selection = of(&["./a/b/", "a/c", "a/c/d", "d/*.c", "x[1]", "**/deep"]);
        for path in ["a/b", "a/b/x", "./a/c", "a/c/d/e", "d/y.c", "d/y.c/z", "x[1]", "x1", "x1/y", "q/r/deep/s"] {
            assert!(selection.may_take(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "a/bb", "b", "d/x", "d", "x", "deeper", ".q/deep"] {
            assert!(!selection.may_take(path.as_bytes()), "{path}");
        }
        assert!(selection.names_at(&selection.root()).is_none());
        let all = of(&["a", "."]);
        assert!(all.may_take(b"b") && !all.is_limited());
    }

    #[test]
    fn all_patterns_that_name_something_are_told() {
        let selection = of(&["a/b", "a/b", "a/*", "c"]);
        let at = selection.below(&selection.root(), b"a", |number| panic!("{number}")).unwrap();
        let mut found = Vec::new();
        assert!(matches!(selection.below(&at, b"b", |number| found.push(number)), Some(At::All)));
        assert_eq!(found, [0, 1, 2]);
        assert!(selection.below(&selection.root(), b"b", |_| {}).is_none());
    }

    /// Of thousands of names each entry is looked for among those alone that begin as it does.
    #[test]
    fn a_list_of_names_is_no_list_to_go_through() {
        let typed: Vec<_> = (0..2000).map(|number| OsString::from(format!("f/{}/{number}", number % 7))).collect();
        let selection = Selection::new(&typed, Limits::default());
        let mut at = selection.root();
        let mut numbers = Vec::new();
        for name in [&b"f"[..], b"3", b"1004"] {
            let At::Within(places) = &at else { panic!("{at:?}") };
            assert!(places.globs.is_empty());
            let next = selection.below(&at, name, |number| numbers.push(number)).unwrap();
            at = next;
        }
        assert_eq!(numbers, [1004]);
        assert!(matches!(at, At::All));
        // Folders, and one for each name.
        assert_eq!(selection.names.steps.len(), 1 + 1 + 7 + 2000);
        let of_root: Vec<_> = selection.names_at(&selection.root()).unwrap().collect();
        assert_eq!(of_root, [b"f"]);
    }
}
