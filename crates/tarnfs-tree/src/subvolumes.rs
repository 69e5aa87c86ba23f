//! Several trees beside each other, each in a folder of its own.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tarnfs_source::SharedSource;

use crate::spaces::{OWN, Spaces};
use crate::{
    Attributes, Child, Error, HeldUp, Kind, Lifetime, Node, Time, Totals, Tree, UNKNOWN, Waiting, Work, Xattrs,
};

/// Trees by the names of their folders.
pub struct Subvolumes {
    names: Vec<Vec<u8>>,
    trees: Vec<Arc<dyn Tree>>,
    spaces: Spaces,
    /// What each tree's root was when somebody asked last. Where asking may have to wait for a server, this is what
    /// the folder that holds them all shows: who looks for another of them must not wait, too.
    last: Mutex<Vec<Option<Attributes>>>,
    /// When it was made: of nothing else is the root's time where there is no tree.
    begun: Time,
    /// Permission bits of the root.
    mode: u32,
}

impl fmt::Debug for Subvolumes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subvolumes").field("names", &self.names).finish_non_exhaustive()
    }
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX), nanoseconds: now.subsec_nanos() }
}

impl Subvolumes {
    /// Puts each tree into a folder. Of those with the same name the second becomes `name.1`, and so on.
    pub fn new(trees: impl IntoIterator<Item = (Vec<u8>, Arc<dyn Tree>)>) -> Result<Self, Error> {
        let (mut names, mut all): (Vec<Vec<u8>>, Vec<_>) = (Vec::new(), Vec::new());
        // Each name that is taken, with the last number behind it that was tried: very many may be the same.
        let mut taken: HashMap<Vec<u8>, usize> = HashMap::new();
        for (name, tree) in trees {
            let mut number = taken.get(&name).copied();
            let mut free = name.clone();
            while let Some(last) = number.as_mut().filter(|_| taken.contains_key(&free)) {
                *last += 1;
                free = [name.as_slice(), b".", last.to_string().as_bytes()].concat();
            }
            if let (Some(number), Some(last)) = (number, taken.get_mut(&name)) {
                *last = number;
            }
            taken.insert(free.clone(), 0);
            names.push(free);
            all.push(tree);
        }
        let this = Self {
            spaces: Spaces::new(OWN, &all)?,
            last: Mutex::new(vec![None; all.len()]),
            names,
            trees: all,
            begun: now(),
            mode: 0o755,
        };
        for tree in 0..this.trees.len() {
            // One that cannot be asked now says so to whoever looks.
            let _ = this.volume(tree);
        }
        Ok(this)
    }

    /// The same, where nobody but whoever mounts may enter the root.
    pub(crate) fn for_owner(self) -> Self {
        Self { mode: 0o700, ..self }
    }

    /// The tree and the node in it; `None` for the root.
    fn place(&self, node: Node) -> Result<Option<(usize, Node)>, Error> {
        match self.spaces.inner(node) {
            None if node == Node::ROOT => Ok(None),
            None => Err(Error::NotFound),
            place => Ok(place),
        }
    }

    /// Asks the tree that a node is in; `root` answers for the root.
    fn ask<T>(
        &self,
        node: Node,
        root: impl FnOnce() -> Result<T, Error>,
        ask: impl FnOnce(&dyn Tree, Node) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.place(node)? {
            None => root(),
            Some((tree, inner)) => ask(&*self.trees[tree], inner),
        }
    }

    /// What the folder of a tree is: the root of the tree.
    fn volume(&self, tree: usize) -> Result<Attributes, Error> {
        let found = self.spaces.attributes(tree, &self.trees[tree].attributes(Node::ROOT)?)?;
        if let Some(last) = self.last().get_mut(tree) {
            *last = Some(found.clone());
        }
        Ok(found)
    }

    fn last(&self) -> MutexGuard<'_, Vec<Option<Attributes>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for those who must not wait: as it was last.
    fn volume_at_once(&self, tree: usize) -> Result<Attributes, Error> {
        let last = if self.trees[tree].is_ready(Node::ROOT) { None } else { self.last()[tree].clone() };
        last.map_or_else(|| self.volume(tree), Ok)
    }

    /// The same for what shows them all: one that cannot be asked is as it was last, too. `None` if it never could be.
    fn volume_as_known(&self, tree: usize) -> Option<Attributes> {
        self.volume_at_once(tree).ok().or_else(|| self.last()[tree].clone())
    }

    /// The same for a listing: of one that may have to be waited for, or cannot be asked, only name and kind are right.
    /// Who wants to know more asks it, and waits alone.
    fn volume_in_listing(&self, tree: usize) -> Option<Attributes> {
        let last = || Some(Attributes { node: UNKNOWN, ..self.last()[tree].clone()? });
        let now = || self.volume(tree).ok();
        if self.trees[tree].is_ready(Node::ROOT) { now().or_else(last) } else { last().or_else(now) }
    }

    /// The root: of whoever mounts, and as old as the newest of what is in it.
    fn root(&self) -> Attributes {
        let mut newest = if self.trees.is_empty() { self.begun } else { Time::default() };
        for known in (0..self.trees.len()).filter_map(|tree| self.volume_as_known(tree)) {
            let mtime = known.mtime;
            if (mtime.seconds, mtime.nanoseconds) > (newest.seconds, newest.nanoseconds) {
                newest = mtime;
            }
        }
        Attributes {
            node: Node::ROOT,
            kind: Kind::Folder,
            mode: self.mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            links: u32::try_from(self.trees.len()).unwrap_or(u32::MAX).saturating_add(2),
            size: 0,
            blocks: 0,
            mtime: newest,
            atime: newest,
            ctime: newest,
        }
    }
}

impl Tree for Subvolumes {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        match self.place(folder)? {
            None => self.volume(self.names.iter().position(|own| own == name).ok_or(Error::NotFound)?),
            Some((tree, inner)) => self.spaces.attributes(tree, &self.trees[tree].lookup(inner, name)?),
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let Some((tree, inner)) = self.place(folder)? else {
            for (tree, name) in self.names.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
                // One that could never be asked is found by its name, with its error.
                if let Some(attributes) = self.volume_in_listing(tree)
                    && !receive(Child { name, attributes, next: tree as u64 + 1 })
                {
                    break;
                }
            }
            return Ok(());
        };
        let mut failure = None;
        self.trees[tree].read_dir(inner, from, &mut |child| match self.spaces.attributes(tree, &child.attributes) {
            Ok(attributes) => receive(Child { attributes, ..child }),
            Err(error) => {
                failure = Some(error);
                false
            }
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.place(node)? {
            None => Ok(self.root()),
            Some((tree, Node::ROOT)) => self.volume(tree),
            Some((tree, inner)) => self.spaces.attributes(tree, &self.trees[tree].attributes(inner)?),
        }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        match self.place(folder)? {
            None | Some((_, Node::ROOT)) => Ok(Node::ROOT),
            Some((tree, inner)) => self.spaces.outer(tree, self.trees[tree].parent(inner)?),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.ask(node, || Err(Error::WrongKind), |tree, inner| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.ask(node, || Ok(Vec::new()), |tree, inner| tree.xattrs(inner))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(node, || Ok(None), |tree, inner| tree.xattr(inner, name))
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let Some((tree, inner)) = self.place(folder)? else {
            if from > 0 {
                return Ok(());
            }
            match self.lookup(folder, name) {
                Ok(attributes) => drop(receive(attributes)),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            return Ok(());
        };
        let mut result = Ok(true);
        self.trees[tree].each_version(inner, name, from, &mut |attributes| {
            result = self.spaces.attributes(tree, &attributes).map(&mut *receive);
            matches!(result, Ok(true))
        })?;
        result.map(drop)
    }

    fn node_limit(&self) -> u64 {
        self.spaces.end()
    }

    fn forget(&self, node: Node, times: u64) {
        if let Some((tree, inner)) = self.spaces.inner(node) {
            self.trees[tree].forget(inner, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        if let Some((tree, inner)) = self.spaces.inner(folder) {
            self.trees[tree].close_folder(inner);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.ask(node, || Err(Error::IsAFolder), |tree, inner| tree.open(inner))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.ask(node, || Ok(None), |tree, inner| Ok(tree.path_of(inner))).ok().flatten()
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.ask(node, || Ok((Vec::new(), Vec::new())), |tree, inner| tree.owner_names(inner))
    }

    /// The root is as old as the newest of the trees. Which names are in it never changes.
    fn lifetime(&self, node: Node) -> Lifetime {
        match self.place(node) {
            Ok(Some((tree, inner))) => self.trees[tree].lifetime(inner),
            Ok(None) => self.trees.iter().map(|tree| tree.lifetime(Node::ROOT)).min().unwrap_or(Lifetime::Forever),
            Err(_) => Lifetime::None,
        }
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        match self.spaces.inner(folder) {
            Some((tree, inner)) => self.trees[tree].lifetime_of_gaps(inner),
            None => self.lifetime(folder),
        }
    }

    fn totals(&self) -> Totals {
        let totals = Totals::of_all(&self.trees);
        Totals { nodes: totals.nodes.saturating_add(1), ..totals }
    }

    fn work(&self) -> Work {
        Work::of_all(&self.trees)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Subvolumes {
    fn is_ready(&self, node: Node) -> bool {
        if let Some((tree, inner)) = self.spaces.inner(node) {
            return self.trees[tree].is_ready(inner);
        }
        // What is not ready is shown as it was last, unless it was never seen.
        let last = self.last();
        self.trees.iter().zip(&*last).all(|(tree, last)| last.is_some() || tree.is_ready(Node::ROOT))
    }

    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        match self.spaces.inner(folder) {
            Some((tree, inner)) => self.trees[tree].lists_at_once(inner, from),
            None => self.is_ready(folder),
        }
    }

    fn lane(&self, node: Node) -> u64 {
        self.spaces.inner(node).map_or(0, |(tree, inner)| self.trees[tree].lane(inner))
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.spaces.inner(node).and_then(|(tree, inner)| self.trees[tree].held_up(inner))
    }

    fn wait_out(&self, node: Node) {
        if let Some((tree, inner)) = self.spaces.inner(node) {
            self.trees[tree].wait_out(inner);
        }
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        let found = match self.spaces.inner(folder) {
            Some((tree, inner)) => self.spaces.outer(tree, self.trees[tree].asked_for(inner, name)),
            None => match self.names.iter().position(|own| own == name) {
                Some(tree) => self.spaces.outer(tree, Node::ROOT),
                None => return folder,
            },
        };
        found.unwrap_or(folder)
    }
}
