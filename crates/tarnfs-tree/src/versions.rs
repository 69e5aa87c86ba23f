//! Older versions of files and folders, in folders that no listing shows.
//!
//! Beside each file and folder there is a folder `<name>.versions`. What is in it is named by numbers: 1 is what was
//! stored first, the last is what shows, as `tar --occurrence` counts them. Something that really has that name is
//! shown in its place.
//!
//! A folder among the versions has what lies below its path now, whichever version it is. It has numbers of its own,
//! and so have all folders in it: no folder may be in two places. These are [`View`]s. Files in it are those of the
//! tree.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tarnfs_source::SharedSource;

use crate::spaces::OWN;
use crate::{Attributes, Child, Error, Kind, Node, Totals, Tree, UNKNOWN, Work, Xattrs};

/// What the folder of versions has behind the file's name.
const SUFFIX: &[u8] = b".versions";

/// A tree with older versions in it.
pub struct Versions {
    tree: Arc<dyn Tree>,
    /// Where the numbers of views begin: behind those of the tree.
    first: u64,
    is_immutable: bool,
    views: RwLock<Views>,
    /// Listings of folders of versions that were not done, those used last behind the others.
    rests: Mutex<Vec<Rest>>,
}

/// A folder that is not in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum View {
    /// The versions of what has this name in that folder, which may be a view.
    Versions(Node, Arc<[u8]>),
    /// The folder in that view which has this name, and the folder of the tree that has what is in it.
    Folder(Node, Arc<[u8]>, Node),
}

/// What of a listing was not given to anybody yet: a name may be stored a million times, and is asked for some dozens
/// at a time.
#[derive(Debug)]
struct Rest {
    /// The folder of versions, and how many of them were given.
    view: Node,
    from: u64,
    versions: VecDeque<Attributes>,
    /// No more come behind these.
    is_complete: bool,
    made: Instant,
    took: Duration,
}

/// Listings that are not done, versions in each, and in all of them together: about 30 MB.
const MOST_RESTS: usize = 4;
const MOST_OF_REST: usize = 1 << 17;
const MOST_OF_RESTS: usize = 1 << 18;

/// How long one goes on where something may change, and how many times as long as it took to read.
const FRESH: Duration = Duration::from_secs(1);
const FRESH_TIMES: u32 = 10;

/// Those that somebody knows.
#[derive(Debug, Default)]
struct Views {
    /// With how often each was given out, less how often it was forgotten.
    all: HashMap<u64, (View, u64)>,
    numbers: HashMap<View, u64>,
    /// Where to look for a free number. Those that are forgotten come round again after all others.
    next: u64,
}

impl fmt::Debug for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Versions").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Versions {
    /// `tree`, with a folder of versions for each file and folder in it.
    pub fn new(tree: Arc<dyn Tree>) -> Self {
        let (first, is_immutable) = (tree.node_limit(), tree.totals().is_immutable);
        Self { first, is_immutable, tree, views: RwLock::default(), rests: Mutex::default() }
    }

    /// The view that `node` is. `None` for what is in the tree.
    fn view(&self, node: Node) -> Result<Option<View>, Error> {
        let Some(number) = node.0.checked_sub(self.first) else { return Ok(None) };
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let view = views.all.get(&number).map(|(view, _)| view.clone());
        view.map(Some).ok_or(Error::NotFound)
    }

    /// The node of `view`, given out once more.
    fn give(&self, view: View) -> Result<Node, Error> {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        let views = &mut *views;
        let number = match views.numbers.get(&view) {
            Some(&number) => number,
            None if (views.all.len() as u64) < OWN => {
                while views.all.contains_key(&views.next) {
                    views.next = (views.next + 1) % OWN;
                }
                let number = views.next;
                views.next = (number + 1) % OWN;
                views.numbers.insert(view.clone(), number);
                number
            }
            None => return Err(io::Error::other("there are no numbers left for folders of versions").into()),
        };
        views.all.entry(number).or_insert((view, 0)).1 += 1;
        Ok(Node(self.first + number))
    }

    /// Forgets a view so many times; returns it if there is such.
    fn take_back(&self, node: Node, times: u64) -> Option<View> {
        let number = node.0.checked_sub(self.first)?;
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        let (view, held) = views.all.get_mut(&number)?;
        let view = view.clone();
        *held = held.saturating_sub(times);
        if *held == 0 {
            views.all.remove(&number);
            views.numbers.remove(&view);
        }
        Some(view)
    }

    /// The node of the tree on which an answer about `node`, or about `name` in it, waits; if it need not wait, one of
    /// those that have to be asked. `None` for a view that nobody knows.
    ///
    /// About a folder of versions the tree is asked by the name of what it holds versions of. Where trees stand beside
    /// each other, that may lead to a server, while the folder that they stand in answers at once.
    fn asked(&self, node: Node, name: Option<&[u8]>) -> Option<Node> {
        let mut asked = Vec::new();
        let mut ask_for = |folder: Node, name: &[u8]| -> Option<()> {
            if let Some((inner, _)) = self.inner(folder).ok()? {
                asked.push(self.tree.asked_for(inner, name));
            }
            Some(())
        };
        if let Some(name) = name {
            ask_for(node, name)?;
            if let Some(file) = name.strip_suffix(SUFFIX) {
                ask_for(node, file)?;
            }
        }
        // What a look-up in a folder of the tree asks is known by the name; it asks the folder, too, where that is a
        // view or is to have one beside it.
        let mut at = node;
        while let Some(View::Versions(folder, name)) = self.view(at).ok()? {
            ask_for(folder, &name)?;
            at = folder;
        }
        match self.view(at).ok()? {
            Some(View::Folder(above, _, inner)) => {
                if let Some(View::Versions(folder, file)) = self.view(above).ok()? {
                    ask_for(folder, &file)?;
                }
                asked.push(inner);
            }
            _ if name.is_none_or(|name| name.ends_with(SUFFIX)) => asked.push(at),
            _ => {}
        }
        asked.iter().copied().find(|&node| !self.tree.is_ready(node)).or_else(|| asked.first().copied())
    }

    /// The folder of the tree that has what is in `folder`, and whether that is a view. `None` for a folder of
    /// versions.
    fn inner(&self, folder: Node) -> Result<Option<(Node, bool)>, Error> {
        Ok(match self.view(folder)? {
            None => Some((folder, false)),
            Some(View::Folder(_, _, inner)) => Some((inner, true)),
            Some(View::Versions(..)) => None,
        })
    }

    /// Hands to `receive` what the tree has stored under `name` in `folder`, which may be a view, behind the first
    /// `from`, until it returns false.
    fn stored(
        &self,
        folder: Node,
        name: &[u8],
        from: usize,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let Some((inner, _)) = self.inner(folder)? else { return Ok(()) };
        let mut passed = 0;
        self.tree.each_version(inner, name, &mut |version| {
            if passed == from {
                return receive(version);
            }
            passed += 1;
            self.tree.forget(version.node, 1);
            true
        })
    }

    /// The folder of versions of `name`.
    fn versions_of(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let newest = self.newest(folder, name)?;
        let node = self.give(View::Versions(folder, Arc::from(name)))?;
        self.describe(node, folder, &newest).inspect_err(|_| drop(self.take_back(node, 1)))
    }

    fn newest(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        // What shows is the last of them, and is found at once, however many there are.
        if let Some((inner, _)) = self.inner(folder)? {
            match self.tree.lookup(inner, name) {
                Ok(shown) => {
                    self.tree.forget(shown.node, 1);
                    return Ok(shown);
                }
                // What hides it all may be no version of it.
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        let mut last = None;
        self.stored(folder, name, 0, &mut |version| {
            self.tree.forget(version.node, 1);
            last = Some(version);
            true
        })?;
        last.ok_or(Error::NotFound)
    }

    /// The version of that number, as the tree has it.
    fn version(&self, folder: Node, name: &[u8], number: &[u8]) -> Result<Attributes, Error> {
        let version = number_of(number).and_then(|number| number.checked_sub(1)).ok_or(Error::NotFound)?;
        let mut found = None;
        self.stored(folder, name, version, &mut |version| {
            found = Some(version);
            false
        })?;
        found.ok_or(Error::NotFound)
    }

    /// Forgets what was only looked at.
    fn forget_all(&self, versions: impl IntoIterator<Item = Attributes>) {
        for version in versions {
            self.tree.forget(version.node, 1);
        }
    }

    /// What the tree has as `name` of the view `parent`: a folder becomes a view.
    fn shown(&self, parent: Node, name: &[u8], attributes: Attributes) -> Result<Attributes, Error> {
        if attributes.kind != Kind::Folder {
            return Ok(attributes);
        }
        let inner = attributes.node;
        match self.give(View::Folder(parent, Arc::from(name), inner)) {
            Ok(node) => Ok(Attributes { node, ..attributes }),
            Err(error) => {
                self.tree.forget(inner, 1);
                Err(error)
            }
        }
    }

    /// A folder of versions: for those who may enter the folder that the file is in, and as old as what is the newest
    /// in it.
    fn describe(&self, node: Node, folder: Node, newest: &Attributes) -> Result<Attributes, Error> {
        let above = self.attributes(folder)?;
        Ok(Attributes {
            node,
            kind: Kind::Folder,
            mode: above.mode & 0o555,
            uid: above.uid,
            gid: above.gid,
            links: 2,
            size: 0,
            blocks: 0,
            mtime: newest.mtime,
            atime: newest.atime,
            ctime: newest.ctime,
        })
    }

    /// The versions behind the first `from`, as [`Self::rests`] has them or as they are read now.
    fn rest(&self, view: Node, (folder, name): (Node, &[u8]), from: u64) -> Result<Rest, Error> {
        let is_fresh =
            |rest: &Rest| self.is_immutable || rest.made.elapsed() < FRESH.max(rest.took.saturating_mul(FRESH_TIMES));
        let known = {
            let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
            rests.iter().position(|rest| (rest.view, rest.from) == (view, from)).map(|place| rests.remove(place))
        };
        match known {
            Some(rest) if from > 0 && is_fresh(&rest) => return Ok(rest),
            Some(rest) => self.forget_all(rest.versions),
            None => {}
        }
        let made = Instant::now();
        let mut versions = VecDeque::new();
        let listed = self.stored(folder, name, usize::try_from(from).unwrap_or(usize::MAX), &mut |version| {
            versions.push_back(version);
            versions.len() < MOST_OF_REST
        });
        if let Err(error) = listed {
            self.forget_all(versions);
            return Err(error);
        }
        let is_complete = versions.len() < MOST_OF_REST;
        Ok(Rest { view, from, versions, is_complete, made, took: made.elapsed() })
    }

    /// Keeps what somebody may go on with, in the place of what was kept for longest.
    fn keep(&self, rest: Rest) {
        let mut dropped = Vec::new();
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.push(rest);
        while rests.len() > MOST_RESTS || rests.iter().map(|rest| rest.versions.len()).sum::<usize>() > MOST_OF_RESTS {
            dropped.push(rests.remove(0));
        }
        drop(rests);
        for rest in dropped {
            self.forget_all(rest.versions);
        }
    }

    /// Nobody goes on with listing this folder of versions.
    fn drop_rests(&self, view: Node) {
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped: Vec<Rest> = rests.extract_if(.., |rest| rest.view == view).collect();
        drop(rests);
        for rest in dropped {
            self.forget_all(rest.versions);
        }
    }

    /// Lists a folder of versions.
    fn list_versions(
        &self,
        view: Node,
        of: (Node, &[u8]),
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let mut rest = self.rest(view, of, from)?;
        loop {
            while let Some(attributes) = rest.versions.pop_front() {
                let number = rest.from + 1;
                let name = number.to_string();
                let shown = self.shown(view, name.as_bytes(), attributes.clone()).inspect_err(|_| {
                    self.forget_all(rest.versions.drain(..));
                })?;
                let node = shown.node;
                if !receive(Child { name: name.as_bytes(), attributes: shown, next: number }) {
                    // The version itself stays, for who goes on.
                    if node != attributes.node {
                        self.take_back(node, 1);
                    }
                    rest.versions.push_front(attributes);
                    self.keep(rest);
                    return Ok(());
                }
                rest.from = number;
            }
            if rest.is_complete {
                return Ok(());
            }
            rest = self.rest(view, of, rest.from)?;
        }
    }

    /// Lists a view of a folder of the tree.
    fn list_view(
        &self,
        view: Node,
        inner: Node,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.tree.read_dir(inner, from, &mut |child| {
            if child.attributes.kind != Kind::Folder || child.attributes.node == UNKNOWN {
                return receive(child);
            }
            // What is refused here, the tree takes back itself.
            let own = self.give(View::Folder(view, Arc::from(child.name), child.attributes.node));
            let taken = own.map(|node| {
                let is_taken = receive(Child { attributes: Attributes { node, ..child.attributes }, ..child });
                if !is_taken {
                    self.take_back(node, 1);
                }
                is_taken
            });
            taken.unwrap_or_else(|error| {
                result = Err(error);
                false
            })
        })?;
        result
    }
}

/// The number that `name` is, written as numbers are: no sign, no zeros in front.
fn number_of(name: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.starts_with(['0', '+']))?;
    text.parse().ok()
}

impl Tree for Versions {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let found = match self.view(folder)? {
            Some(View::Versions(above, file)) => {
                let version = self.version(above, &file, name)?;
                return self.shown(folder, name, version);
            }
            Some(View::Folder(_, _, inner)) => {
                self.tree.lookup(inner, name).and_then(|attributes| self.shown(folder, name, attributes))
            }
            None => self.tree.lookup(folder, name),
        };
        match (found, name.strip_suffix(SUFFIX)) {
            (Err(Error::NotFound), Some(file)) if !file.is_empty() => self.versions_of(folder, file),
            (found, _) => found,
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        match self.view(folder)? {
            None => self.tree.read_dir(folder, from, receive),
            Some(View::Folder(_, _, inner)) => self.list_view(folder, inner, from, receive),
            Some(View::Versions(above, name)) => self.list_versions(folder, (above, &name), from, receive),
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        let attributes = match self.view(node)? {
            None => return self.tree.attributes(node),
            Some(View::Versions(folder, name)) => {
                return self.describe(node, folder, &self.newest(folder, &name)?);
            }
            Some(View::Folder(above, name, inner)) => match self.view(above) {
                Ok(Some(View::Versions(folder, file))) => {
                    let version = self.version(folder, &file, &name)?;
                    self.tree.forget(version.node, 1);
                    version
                }
                _ => self.tree.attributes(inner)?,
            },
        };
        Ok(Attributes { node, ..attributes })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        match self.view(folder)? {
            Some(View::Versions(above, _) | View::Folder(above, ..)) => Ok(above),
            None => self.tree.parent(folder),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        if self.view(node)?.is_some() { Err(Error::WrongKind) } else { self.tree.read_link(node) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        match self.inner(node)? {
            Some((inner, _)) => self.tree.xattrs(inner),
            None => Ok(Vec::new()),
        }
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        match self.inner(folder)? {
            Some((_, false)) => return self.tree.each_version(folder, name, receive),
            Some((inner, true)) => {
                let mut result = Ok(true);
                self.tree.each_version(inner, name, &mut |attributes| {
                    result = self.shown(folder, name, attributes).map(&mut *receive);
                    matches!(result, Ok(true))
                })?;
                return result.map(drop);
            }
            None => {}
        }
        match self.lookup(folder, name) {
            Ok(attributes) => drop(receive(attributes)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn node_limit(&self) -> u64 {
        self.first.saturating_add(OWN)
    }

    fn is_ready(&self, node: Node) -> bool {
        if node.0 < self.first {
            return self.tree.is_ready(node);
        }
        self.asked(node, None).is_none_or(|node| self.tree.is_ready(node))
    }

    fn lane(&self, node: Node) -> u64 {
        self.asked(node, None).map_or(0, |node| self.tree.lane(node))
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        if folder.0 < self.first && !name.ends_with(SUFFIX) {
            return self.tree.asked_for(folder, name);
        }
        self.asked(folder, Some(name)).unwrap_or(folder)
    }

    fn forget(&self, node: Node, times: u64) {
        if node.0 < self.first {
            self.tree.forget(node, times);
            return;
        }
        match self.take_back(node, times) {
            Some(View::Folder(_, _, inner)) => self.tree.forget(inner, times),
            // Its number may become another's.
            Some(View::Versions(..)) if self.view(node).is_err() => self.drop_rests(node),
            _ => {}
        }
    }

    fn close_folder(&self, folder: Node) {
        if folder.0 >= self.first {
            self.drop_rests(folder);
        }
        if let Ok(Some((inner, _))) = self.inner(folder) {
            self.tree.close_folder(inner);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        if self.view(node)?.is_some() { Err(Error::IsAFolder) } else { self.tree.open(node) }
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        match self.view(node)? {
            Some(View::Versions(folder, _)) => self.owner_names(folder),
            Some(View::Folder(_, _, inner)) => self.tree.owner_names(inner),
            None => self.tree.owner_names(node),
        }
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }
}
