//! Older versions of files and folders, in folders that no listing shows.
//!
//! Beside each file and folder there is a folder `<name>.versions`. What is in it is named by numbers: 1 is what was
//! stored first, the last is what shows, as `tar --occurrence` counts them. Something that really has that name is
//! shown in its place.
//!
//! A folder among the versions has what lies below its path now, whichever version it is. It has numbers of its own,
//! and so have all folders in it: no folder may be in two places. These are [`View`]s. Files in it are those of the
//! tree. Who may enter a view is said by the folder that shows at its path: an older version may have been open to all.

#[cfg(test)]
mod tests;
mod tree;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::lanes::new_lane;
use crate::spaces::OWN;
use crate::{Attributes, Child, Error, Kind, Node, Tree, UNKNOWN};

/// What the folder of versions has behind the file's name.
const SUFFIX: &[u8] = b".versions";

/// A tree with older versions in it.
pub struct Versions {
    tree: Arc<dyn Tree>,
    /// Where the numbers of views begin: behind those of the tree.
    first: u64,
    is_immutable: bool,
    /// Of what is asked of trees that are ready.
    lane: u64,
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

/// Children of a view that are looked at together.
const BATCH: usize = 128;

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
        Self { first, is_immutable, lane: new_lane(), tree, views: RwLock::default(), rests: Mutex::default() }
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
        let asked = self.all_asked(node, name)?;
        asked.iter().copied().find(|&node| !self.tree.is_ready(node)).or_else(|| asked.first().copied())
    }

    fn all_asked(&self, node: Node, name: Option<&[u8]>) -> Option<Vec<Node>> {
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
        Some(asked)
    }

    /// Stands for what is asked of trees that are ready, but may take its time: there may be millions of versions, and
    /// a view is asked together with what shows.
    fn slow(&self) -> Node {
        Node(self.first.saturating_add(OWN))
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
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let Some((inner, _)) = self.inner(folder)? else { return Ok(()) };
        self.tree.each_version(inner, name, from, receive)
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
        let guarded = self.guarded(parent, name, attributes);
        let given = guarded.and_then(|attributes| {
            let node = self.give(View::Folder(parent, Arc::from(name), inner))?;
            Ok(Attributes { node, ..attributes })
        });
        given.inspect_err(|_| self.tree.forget(inner, 1))
    }

    /// Calls `work` with the folder of the tree that shows where `name` of the view `parent` is, if there is one now.
    fn with_now<T>(
        &self,
        parent: Node,
        name: &[u8],
        work: impl FnOnce(Option<&Attributes>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // From the view up to where the way leaves the tree.
        let (mut at, mut names) = (parent, vec![Arc::from(name)]);
        loop {
            let view = match self.view(at) {
                Ok(Some(view)) => view,
                Ok(None) => break,
                // Forgotten by whoever knew what is in it. The kernel forgets children first.
                Err(Error::NotFound) => return work(None),
                Err(error) => return Err(error),
            };
            match view {
                View::Folder(above, name, _) => {
                    names.push(name);
                    at = above;
                }
                // The last of them is a number, and stands for this.
                View::Versions(folder, name) => {
                    names.pop();
                    names.push(name);
                    at = folder;
                }
            }
        }
        let mut now: Option<Attributes> = None;
        while let Some(name) = names.pop() {
            let folder = now.take();
            let found = self.tree.lookup(folder.as_ref().map_or(at, |folder| folder.node), &name);
            if let Some(folder) = folder {
                self.tree.forget(folder.node, 1);
            }
            match found {
                Ok(found) if found.kind == Kind::Folder => now = Some(found),
                Ok(other) => {
                    self.tree.forget(other.node, 1);
                    break;
                }
                Err(Error::NotFound | Error::NotAFolder) => break,
                Err(error) => return Err(error),
            }
        }
        let result = work(now.as_ref());
        if let Some(now) = now {
            self.tree.forget(now.node, 1);
        }
        result
    }

    /// A folder of the tree that is `name` of the view `parent`, for no more than those who may enter what shows there.
    fn guarded(&self, parent: Node, name: &[u8], version: Attributes) -> Result<Attributes, Error> {
        self.with_now(parent, name, |now| {
            // Where something else shows, the last of the folders counts. One that nothing lies in may have no number
            // that leads to it.
            let last = match now {
                Some(now) => now.clone(),
                None => match self.tree.attributes(version.node) {
                    Err(Error::NotFound) => return Ok(version),
                    last => last?,
                },
            };
            let mut mode = version.mode & last.mode;
            // The kernel asks an access list only where the group has a right. Without one, whom the list denies would
            // be one of the others.
            if mode & 0o070 == 0 && last.mode & 0o070 != 0 {
                mode &= !0o007;
            }
            Ok(Attributes { mode, uid: last.uid, gid: last.gid, ..version })
        })
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
        let listed = self.stored(folder, name, from, &mut |version| {
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
        let is_what_shows = match self.view(view)? {
            Some(View::Folder(above, name, _)) => {
                self.with_now(above, &name, |now| Ok(now.is_none_or(|now| now.node == inner)))?
            }
            _ => true,
        };
        if !is_what_shows {
            return self.list_part(view, inner, from, receive);
        }
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

impl Versions {
    /// Lists a view of a folder that shows with more in it, from other trees. Gathered before they are looked at: a
    /// tree that is being listed may not take questions.
    fn list_part(
        &self,
        view: Node,
        inner: Node,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let mut from = from;
        loop {
            let mut children: VecDeque<(Vec<u8>, Attributes, u64)> = VecDeque::new();
            let listed = self.tree.read_dir(inner, from, &mut |child| {
                let has_room = children.len() < BATCH;
                if has_room {
                    children.push_back((child.name.to_vec(), child.attributes, child.next));
                }
                has_room
            });
            let is_last = children.len() < BATCH;
            let forget_all = |children: VecDeque<(Vec<u8>, Attributes, u64)>| {
                self.forget_all(children.into_iter().map(|(_, attributes, _)| attributes));
            };
            if listed.is_err() {
                forget_all(children);
                return listed;
            }
            while let Some((name, attributes, next)) = children.pop_front() {
                let is_known = attributes.node != UNKNOWN;
                let shown = if is_known { self.shown(view, &name, attributes) } else { Ok(attributes) };
                let given = shown.map(|attributes| {
                    let node = attributes.node;
                    let is_taken = receive(Child { name: &name, attributes, next });
                    if !is_taken && is_known {
                        self.forget(node, 1);
                    }
                    is_taken
                });
                if !matches!(given, Ok(true)) {
                    forget_all(children);
                    return given.map(drop);
                }
                from = next;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// The number that `name` is, written as numbers are: no sign, no zeros in front.
fn number_of(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.starts_with(['0', '+']))?;
    text.parse().ok()
}
