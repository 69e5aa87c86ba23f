//! The way through both trees: folders are compared, what stands at one side only is told, and all else that is
//! selected is noted down.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use tarnfs_format::Shown;
use tarnfs_tree::{Attributes, Error, Kind, Node, Stored, Tree};

use super::difference::Difference;
use super::lines::Turn;
use super::side::{FileNumber, Seen, Side};
use super::{Comparison, Stop, Unread};
use crate::commands::extract::plan::{Item, Items, Sorter, What};
use crate::commands::extract::selection::{At, Selection};
use crate::inside;

/// Names of one folder that are held in memory, each by a number. In a longer one they are looked for in the index.
const MOST_NAMES: usize = 1 << 20;

/// What is to be compared.
pub(super) struct Plan {
    pub(super) items: Items,
    /// Bytes of all files, and how many there are.
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// For each pattern, whether it names something.
    pub(super) found: Vec<bool>,
}

/// Folders above a folder that waits which are kept open for it, at most: one for each level. Those of an archive are
/// only numbers.
const MOST_OPEN: usize = 64;

/// Folders deeper than that which are kept for those who compare what lies in them: 32 MiB.
const MOST_DEEP: usize = 1 << 20;

/// A folder that is still to be looked into.
struct Waiting<F> {
    node: Node,
    from: u64,
    depth: usize,
    at: At,
    there: Place<F>,
    /// The names that were met.
    names: Names,
}

/// Where a folder is at the other side.
enum Place<F> {
    Missing,
    Open(Arc<F>),
    /// In this one, of this name. There may be many, so it is opened when its turn comes.
    In(Arc<F>, Vec<u8>),
    /// Deep below: it is looked for by its path.
    Deep,
}

/// Names of a folder.
#[derive(Debug, Default)]
struct Names {
    known: HashSet<u64>,
    are_all_known: bool,
}

struct Walk<'a, 'l, S: Side> {
    comparison: &'a Comparison<'a, S>,
    selection: &'a Selection,
    left_out: &'a [FileNumber],
    turn: Turn<'l>,
    keys: RandomState,
    sorter: Sorter,
    found: Vec<bool>,
    bytes: u64,
    count: u64,
}

/// Compares the folders that are selected.
pub(super) fn plan<S: Side>(
    comparison: &Comparison<'_, S>,
    selection: &Selection,
    left_out: &[FileNumber],
) -> Result<Plan, Stop> {
    let found = vec![false; selection.typed().count()];
    let (turn, keys, sorter) = (comparison.lines.turn(), RandomState::new(), Sorter::new());
    let mut walk = Walk { comparison, selection, left_out, turn, keys, sorter, found, bytes: 0, count: 0 };
    walk.all()?;
    let Walk { sorter, found, bytes, count, .. } = walk;
    let items = sorter.finish().map_err(|error| comparison.cannot_note(&error))?;
    Ok(Plan { items, bytes, count, found })
}

impl<S: Side> Walk<'_, '_, S> {
    fn all(&mut self) -> Result<(), Stop> {
        let comparison = self.comparison;
        let broken = |error: &Error| Stop(inside::failure(comparison.archive, b"", error));
        let at = self.selection.root();
        let there = match comparison.side.folder(&[]) {
            Ok(there) => Arc::new(there),
            Err(error) => return Err(Stop(inside::failure(comparison.other, b"", &error))),
        };
        if matches!(at, At::All) {
            self.found.iter_mut().for_each(|found| *found = true);
            let stored = comparison.tree.stored(Node::ROOT).map_err(|error| broken(&error))?;
            let attributes = comparison.tree.attributes(Node::ROOT).map_err(|error| broken(&error))?;
            match comparison.side.look(&there, b"") {
                Ok(Some(seen)) => {
                    let side = (&*there, &b""[..], &seen);
                    let compared = comparison.attributes((Node::ROOT, &stored), shown(&attributes), side, |what| {
                        self.turn.add(b"", Kind::Folder, what);
                    });
                    compared.or_else(|error| comparison.unread(b"", error))?;
                }
                Ok(None) => {}
                Err(error) => comparison.unread(b"", Unread::Other(error))?,
            }
        }
        let names = Names::new();
        let there = Place::Open(there);
        let mut waiting = vec![Waiting { node: Node::ROOT, from: 0, depth: 0, at, there, names }];
        while let Some(next) = waiting.pop() {
            comparison.check()?;
            comparison.lines.check()?;
            self.folder(next, &mut waiting)?;
        }
        Ok(())
    }

    fn folder(&mut self, next: Waiting<S::Folder>, waiting: &mut Vec<Waiting<S::Folder>>) -> Result<(), Stop> {
        let comparison = self.comparison;
        let Waiting { node, from, depth, at, there, mut names } = next;
        let there = match self.open(node, there) {
            Ok(there) => there,
            Err(error) => {
                let path = comparison.tree.names_to(node).unwrap_or_default().join(&b'/');
                return comparison.unread(&path, error);
            }
        };
        if depth > MOST_OPEN
            && let Some(copied) = there.as_deref().and_then(|there| comparison.side.copied(there))
        {
            let mut deep = comparison.deep.lock().unwrap_or_else(PoisonError::into_inner);
            if deep.len() < MOST_DEEP {
                deep.insert(node, copied);
            }
        }
        let children = self.selection.children(comparison.tree, node, from, &at);
        let (children, rest) = children.map_err(|error| Stop(inside::failure(comparison.archive, b"", &error)))?;
        let mut inner = Vec::new();
        let wants_names = there.is_some() && self.tells_of_extra(node);
        for (name, attributes, stored) in children {
            if wants_names {
                names.add(self.keys.hash_one(&name));
            }
            let found = &mut self.found;
            let Some(at) = self.selection.below(&at, &name, |number| found[number] = true) else { continue };
            let is_selected = matches!(at, At::All);
            match What::of(attributes.kind) {
                None if attributes.kind == Kind::Folder => {
                    let inside = if let Some(there) = &there {
                        self.inner(node, there, &name, (&attributes, &stored), is_selected)?
                    } else {
                        self.missing(is_selected, node, &name, Kind::Folder);
                        (!is_selected).then_some(Place::Missing)
                    };
                    if let Some(there) = inside {
                        let (depth, names) = (depth + 1, Names::new());
                        let there = match there {
                            Place::In(above, _) if depth > MOST_OPEN && comparison.side.copied(&above).is_none() => {
                                Place::Deep
                            }
                            there => there,
                        };
                        inner.push(Waiting { node: attributes.node, from: 0, depth, at, there, names });
                    }
                }
                None => {}
                // At the other side it may be a folder, in which something is selected.
                Some(_) if !is_selected => {
                    if let Some(there) = there.as_ref().filter(|_| wants_names) {
                        match comparison.side.look(there, &name) {
                            Ok(Some(seen)) if seen.kind == Kind::Folder => self.only_there(node, there, &name, at)?,
                            Ok(_) => {}
                            Err(error) => comparison.unread(&comparison.path_of(node, &name), Unread::Other(error))?,
                        }
                    }
                }
                Some(_) if there.is_none() => self.missing(true, node, &name, attributes.kind),
                Some(kind) => self.note(node, name, kind, &attributes, stored)?,
            }
        }
        match (rest, &there) {
            (Some(from), _) => {
                let there = there.map_or(Place::Missing, Place::Open);
                waiting.push(Waiting { node, from, depth, at, there, names });
            }
            (None, Some(there)) if wants_names => self.extra(node, there, &at, &names)?,
            _ => {}
        }
        waiting.extend(inner.into_iter().rev());
        Ok(())
    }

    fn open(&self, node: Node, there: Place<S::Folder>) -> Result<Option<Arc<S::Folder>>, Unread> {
        let opened = match there {
            Place::Missing => return Ok(None),
            Place::Open(there) => return Ok(Some(there)),
            Place::In(folder, name) => self.comparison.side.inner(&folder, &name),
            Place::Deep => {
                let names = self.comparison.tree.names_to(node).map_err(Unread::Archive)?;
                self.comparison.side.folder(&names)
            }
        };
        opened.map(|there| Some(Arc::new(there))).map_err(Unread::Other)
    }

    fn missing(&mut self, is_selected: bool, folder: Node, name: &[u8], kind: Kind) {
        if is_selected {
            self.comparison.add(&mut self.turn, folder, name, kind, &Difference::OnlyInArchive);
        }
    }

    /// Compares a folder, and says where it is at the other side. `None` if nobody needs to look into it.
    fn inner(
        &mut self,
        parent: Node,
        there: &Arc<S::Folder>,
        name: &[u8],
        (attributes, stored): (&Attributes, &Stored),
        is_selected: bool,
    ) -> Result<Option<Place<S::Folder>>, Stop> {
        let comparison = self.comparison;
        let path = || comparison.path_of(parent, name);
        let seen = match comparison.side.look(there, name) {
            Ok(seen) => seen,
            Err(error) => {
                comparison.unread(&path(), Unread::Other(error))?;
                return Ok(None);
            }
        };
        let Some(seen) = seen else {
            self.missing(is_selected, parent, name, Kind::Folder);
            return Ok((!is_selected).then_some(Place::Missing));
        };
        if seen.kind != Kind::Folder {
            if is_selected {
                self.turn.add(&path(), Kind::Folder, &Difference::Kind(seen.kind));
            }
            return Ok((!is_selected).then_some(Place::Missing));
        }
        if is_selected {
            let side = (&**there, name, &seen);
            let compared = comparison.attributes((attributes.node, stored), shown(attributes), side, |what| {
                self.turn.add(&path(), Kind::Folder, what);
            });
            compared.or_else(|error| comparison.unread(&path(), error))?;
        }
        Ok(Some(Place::In(Arc::clone(there), name.to_vec())))
    }

    /// True if what is only at the other side is told of this folder.
    fn tells_of_extra(&self, folder: Node) -> bool {
        self.comparison.what.extra.is_some_and(|also_of_root| also_of_root || folder != Node::ROOT)
    }

    /// Tells what is in `there` and not among `names`.
    fn extra(&mut self, folder: Node, there: &S::Folder, at: &At, names: &Names) -> Result<(), Stop> {
        let comparison = self.comparison;
        let mut extra = Vec::new();
        let listed = match self.selection.names_at(at) {
            Some(typed) => {
                let typed = typed.filter(|name| !names.has(self.keys.hash_one(name)));
                extra.extend(typed.map(<[u8]>::to_vec));
                Ok(())
            }
            None => comparison.side.names(there, &mut |name| {
                if !names.has(self.keys.hash_one(name)) {
                    extra.push(name.to_vec());
                }
            }),
        };
        listed.or_else(|error| {
            let path = comparison.tree.names_to(folder).unwrap_or_default().join(&b'/');
            comparison.unread(&path, Unread::Other(error))
        })?;
        extra.sort_unstable();
        for name in extra {
            if !names.are_all_known {
                match comparison.tree.lookup(folder, &name) {
                    Ok(_) => continue,
                    Err(Error::NotFound) => {}
                    Err(error) => return Err(Stop(inside::failure(comparison.archive, b"", &error))),
                }
            }
            let mut numbers = Vec::new();
            let Some(below) = self.selection.below(at, &name, |number| numbers.push(number)) else { continue };
            match comparison.side.look(there, &name) {
                Ok(Some(seen)) if matches!(below, At::Within(_)) => {
                    if seen.kind == Kind::Folder {
                        self.only_there(folder, there, &name, below)?;
                    }
                }
                Ok(Some(seen)) if !self.is_left_out(&seen) => {
                    self.has_found(&numbers);
                    comparison.add(&mut self.turn, folder, &name, seen.kind, &Difference::OnlyInOther);
                }
                Ok(_) => {}
                Err(error) => comparison.unread(&comparison.path_of(folder, &name), Unread::Other(error))?,
            }
        }
        Ok(())
    }

    /// Tells what is selected in the folder `name` in `parent`, which is at the other side only, in `there`.
    fn only_there(&mut self, parent: Node, there: &S::Folder, name: &[u8], at: At) -> Result<(), Stop> {
        let comparison = self.comparison;
        let above = match comparison.tree.names_to(parent) {
            Ok(above) => Rc::new(above),
            Err(error) => return Err(Stop(inside::failure(comparison.archive, b"", &error))),
        };
        // What is above them is shared by all that wait in one folder: paths may be long.
        let mut waiting = vec![(above, comparison.side.copied(there), name.to_vec(), at)];
        while let Some((above, in_folder, name, at)) = waiting.pop() {
            comparison.lines.check()?;
            let opened = in_folder.map(|folder| comparison.side.inner(&folder, &name));
            let path: Rc<Vec<_>> = Rc::new(above.iter().cloned().chain([name]).collect());
            let mut names = Vec::new();
            let listed = opened.unwrap_or_else(|| comparison.side.folder(&path)).and_then(|there| {
                match self.selection.names_at(&at) {
                    Some(typed) => names.extend(typed.map(<[u8]>::to_vec)),
                    None => comparison.side.names(&there, &mut |name| names.push(name.to_vec()))?,
                }
                Ok(there)
            });
            let there = match listed {
                Ok(there) => there,
                Err(error) => {
                    comparison.unread(&path.join(&b'/'), Unread::Other(error))?;
                    continue;
                }
            };
            names.sort_unstable();
            let mut inner = Vec::new();
            for name in names {
                let mut numbers = Vec::new();
                let Some(below) = self.selection.below(&at, &name, |number| numbers.push(number)) else { continue };
                let seen = comparison.side.look(&there, &name);
                let joined = |name: &Vec<u8>| path.iter().chain([name]).cloned().collect::<Vec<_>>().join(&b'/');
                match seen {
                    Ok(Some(seen)) if matches!(below, At::Within(_)) => {
                        if seen.kind == Kind::Folder {
                            inner.push((Rc::clone(&path), comparison.side.copied(&there), name, below));
                        }
                    }
                    Ok(Some(seen)) if !self.is_left_out(&seen) => {
                        self.has_found(&numbers);
                        self.turn.add(&joined(&name), seen.kind, &Difference::OnlyInOther);
                    }
                    Ok(_) => {}
                    Err(error) => comparison.unread(&joined(&name), Unread::Other(error))?,
                }
            }
            waiting.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// These patterns have selected something.
    fn has_found(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.found[number] = true;
        }
    }

    fn is_left_out(&self, seen: &Seen) -> bool {
        self.comparison.side.is_on_disk() && self.left_out.contains(&seen.file)
    }

    fn note(
        &mut self,
        folder: Node,
        name: Vec<u8>,
        kind: What,
        attributes: &Attributes,
        stored: Stored,
    ) -> Result<(), Stop> {
        self.count += 1;
        if kind == What::File {
            self.bytes = self.bytes.saturating_add(attributes.size);
        }
        let item = Item::new(folder, name, kind, attributes, stored);
        self.sorter.push(item).map_err(|error| self.comparison.cannot_note(&error))
    }
}

fn shown(attributes: &Attributes) -> Shown {
    let &Attributes { kind, mode, uid, gid, mtime, .. } = attributes;
    Shown { kind, mode, uid, gid, mtime }
}

impl Names {
    fn new() -> Self {
        Self { known: HashSet::new(), are_all_known: true }
    }

    fn add(&mut self, name: u64) {
        if self.known.len() < MOST_NAMES {
            self.known.insert(name);
        } else {
            self.are_all_known = false;
        }
    }

    fn has(&self, name: u64) -> bool {
        self.known.contains(&name)
    }
}
