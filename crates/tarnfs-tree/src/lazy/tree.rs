//! What is asked of a tree with archives in it.

use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::archives::{MOST, WIDTH, Where};
use super::{BATCH, Base, LANES, LazyTree, stale};
use crate::{
    Attributes, Child, Error, HeldUp, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs, access_list, unproven,
};

impl LazyTree {
    /// True if the list of the file that the archive of that number shows as is not that of all files that it is made
    /// of.
    fn hides_list(&self, number: u32) -> bool {
        self.readers_of(number).is_some_and(|readers| !readers.have_list())
    }
}

impl Tree for LazyTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let found = self.within(folder, |tree, inner, outer| {
            let attributes = tree.lookup(inner, name)?;
            Ok(Attributes { node: outer(attributes.node), ..attributes })
        });
        match found {
            Ok(attributes) => {
                self.hold(attributes.node);
                let shown = self.shown(folder, name, attributes)?;
                if self.shown_name(folder, name, &shown) == name {
                    self.give(shown.node);
                    return Ok(shown);
                }
                self.forget(shown.node, 1);
                self.beside(folder, name)
            }
            Err(Error::NotFound) if self.strips() => {
                let shown = self.stripped(folder, name)?;
                self.give(shown.node);
                Ok(shown)
            }
            Err(error) => Err(error),
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let (mut from, mut is_half) = self.position(folder, from)?;
        loop {
            // Gathered before they are looked at: a tree that is being listed may not take questions.
            let mut children = Vec::new();
            let listed = self.within(folder, |tree, inner, outer| {
                tree.read_dir(inner, from, &mut |child| {
                    // One that is refused counts as not given.
                    if children.len() == BATCH {
                        return false;
                    }
                    let attributes = Attributes { node: outer(child.attributes.node), ..child.attributes };
                    children.push((child.name.to_vec(), attributes, child.next));
                    true
                })
            });
            for (_, attributes, _) in &children {
                self.hold(attributes.node);
            }
            if listed.is_err() {
                // What came before the error is given to nobody.
                for (_, attributes, _) in children {
                    self.forget(attributes.node, 1);
                }
                return listed;
            }
            let is_last = children.len() < BATCH;
            let mut children = children.into_iter();
            while let Some((name, attributes, next)) = children.next() {
                let before = std::mem::replace(&mut from, next);
                let was_given = std::mem::take(&mut is_half);
                let mut give = |name: &[u8], attributes: Attributes, next: u64| {
                    let node = attributes.node;
                    self.give(node);
                    let is_taken = receive(Child { name, attributes, next });
                    if !is_taken {
                        self.forget(node, 1);
                    }
                    is_taken
                };
                let shown = self.shown(folder, &name, attributes).and_then(|attributes| {
                    let shown_name = self.shown_name(folder, &name, &attributes);
                    let next = self.position_of(folder, next, false);
                    if shown_name == name {
                        return Ok(give(&name, attributes, next));
                    }
                    // An archive and its file, in this order.
                    if was_given {
                        self.forget(attributes.node, 1);
                    } else if !give(&shown_name, attributes, self.position_of(folder, before, true)) {
                        return Ok(false);
                    }
                    match self.beside(folder, &name) {
                        // It has gone meanwhile.
                        Err(Error::NotFound) => Ok(true),
                        file => Ok(give(&name, file?, next)),
                    }
                });
                if !matches!(shown, Ok(true)) {
                    // Those behind it were not given to anybody either.
                    for (_, attributes, _) in children {
                        self.forget(attributes.node, 1);
                    }
                    return shown.map(drop);
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(node) {
            let file = self.archives().file(number).map(|archive| archive.node).ok_or_else(stale)?;
            return Ok(self.as_folder(number, &self.attributes(file)?));
        }
        self.within(node, |tree, inner, outer| {
            let attributes = tree.attributes(inner)?;
            Ok(Attributes { node: outer(attributes.node), ..attributes })
        })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(folder) {
            return self.archives().file(number).map(|archive| archive.folder).ok_or_else(stale);
        }
        self.within(folder, |tree, inner, outer| Ok(outer(tree.parent(inner)?)))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.within(node, |tree, inner, _| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(node) {
            let file = self.archives().file(number).map(|archive| archive.node).ok_or_else(stale)?;
            let mut xattrs = self.xattrs(file)?;
            if self.hides_list(number) {
                xattrs.retain(|(name, _)| name != access_list::NAME);
            }
            for (_, value) in xattrs.iter_mut().filter(|(name, _)| name == access_list::NAME) {
                access_list::open_to_readers(value);
            }
            return Ok(xattrs);
        }
        self.within(node, |tree, inner, _| tree.xattrs(inner))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(node) {
            let file = self.archives().file(number).map(|archive| archive.node).ok_or_else(stale)?;
            if name == access_list::NAME && self.hides_list(number) {
                return Ok(None);
            }
            let mut value = self.xattr(file, name)?;
            if name == access_list::NAME
                && let Some(value) = &mut value
            {
                access_list::open_to_readers(value);
            }
            return Ok(value);
        }
        self.within(node, |tree, inner, _| tree.xattr(inner, name))
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        self.within(folder, |tree, inner, outer| {
            tree.each_version(inner, name, from, &mut |attributes| {
                let node = outer(attributes.node);
                self.hold(node);
                receive(Attributes { node, ..attributes })
            })
        })
    }

    fn node_limit(&self) -> u64 {
        self.ranges.limit.saturating_add(MOST as u64 * WIDTH)
    }

    fn forget(&self, node: Node, times: u64) {
        match self.place(node) {
            Where::Base(inner) => {
                // In an archive the number of a file never becomes another's, so what is known of it stays true.
                if matches!(self.base, Base::Folder(_)) {
                    self.archives().forget_answer(node);
                }
                self.base.tree().forget(inner, times);
            }
            Where::Archive(number, _) => self.with(|archives, released| archives.release(number, times, released)),
        }
    }

    fn close_folder(&self, folder: Node) {
        if let Where::Base(inner) = self.place(folder) {
            self.base.tree().close_folder(inner);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.within(node, |tree, inner, _| tree.open(inner))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.within(node, |tree, inner, _| Ok(tree.path_of(inner))).ok().flatten()
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.within(node, |tree, inner, _| tree.owner_names(inner))
    }

    /// What lies in an archive stays what it is: of a file that has changed comes another archive, with other numbers,
    /// to which its name in the folder leads. But what looks like an archive may be a file from the moment when
    /// somebody looks inside, so nothing is for ever where there may be some, and neither is the folder that an
    /// archive is, whose owner and times are the file's.
    fn lifetime(&self, node: Node) -> Lifetime {
        match self.place(node) {
            Where::Base(inner) => self.base.tree().lifetime(inner).min(Lifetime::Short),
            Where::Archive(_, inner) => Lifetime::unless(self.how.all || inner == Node::ROOT),
        }
    }

    fn totals(&self) -> Totals {
        // What an archive has that nobody has looked into is not known.
        Totals { has_xattrs: true, has_acls: true, is_immutable: false, ..self.base.tree().totals() }
    }

    fn work(&self) -> Work {
        let mut trees = self.archives().trees();
        if let Base::Other(tree) = &self.base {
            trees.push(Arc::clone(tree));
        }
        Work::of_all(&trees)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for LazyTree {
    /// In a folder, archives are told by a few bytes of files; all else has to decode. An archive that is open now may
    /// be closed a moment later.
    fn is_ready(&self, node: Node) -> bool {
        match (self.place(node), &self.base) {
            (Where::Base(inner), Base::Folder(folder)) => folder.is_ready(inner),
            _ => false,
        }
    }

    /// Each that is open has one of its own: reading one must not wait until others have been indexed. Those that are
    /// not share a few: who waits for them takes threads, and there may be any number of them.
    fn lane(&self, node: Node) -> u64 {
        match (self.place(node), &self.base) {
            (Where::Base(inner), base) => base.tree().lane(inner),
            (Where::Archive(..), Base::Folder(folder)) if !folder.is_ready(Node::ROOT) => folder.lane(Node::ROOT),
            (Where::Archive(number, _), _) => {
                let number = u64::from(number);
                let is_open = self.archives().is_open(number as u32);
                (if is_open { number + 1 } else { MOST as u64 + 1 + number % LANES }) << 32 | self.lane
            }
        }
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        match self.place(node) {
            Where::Base(inner) => self.base.tree().held_up(inner),
            Where::Archive(number, _) => {
                let file = self.archives().unproven(number).map(|(_, file)| file.node)?;
                Some(HeldUp { by: self.lane(file), steps: unproven::steps() })
            }
        }
    }

    fn wait_out(&self, node: Node) {
        match self.place(node) {
            Where::Base(inner) => self.base.tree().wait_out(inner),
            Where::Archive(number, _) => {
                let found = self.archives().unproven(number).map(|(number, file)| (number, file.clone()));
                let Some((number, file)) = found else { return };
                let waited = match self.place(file.node) {
                    Where::Base(_) => self.wait_until_verified(number, &file, None),
                    Where::Archive(outer, _) => self.open_archive(outer).and_then(|tree| {
                        // How deep it lies does not matter here.
                        self.wait_until_verified(number, &file, Some(&(tree, 0)))
                    }),
                };
                // Who asks next is told.
                drop(waited);
            }
        }
    }
}
