//! Trees of files and folders: what a mount, a listing or a copy sees.
//!
//! [`Tree`] is the one interface between what is below (archives, folders, later unions of them) and what is above
//! (the kernel, the command). It knows nothing of the kernel's types. What can be changed has an [`Edit`].

#![forbid(unsafe_code)]

mod access_list;
mod alone;
mod archive;
pub mod asker;
pub mod assemble;
pub mod build;
mod census;
mod chain;
mod compose;
pub mod containers;
pub mod control;
mod decoded_cache;
mod directory;
pub mod edit;
mod error;
mod extensions;
mod far;
pub mod filling;
mod folder;
mod grow;
pub mod hashes;
mod home;
mod in_memory;
mod lanes;
mod lazy;
mod legible;
mod lifetime;
mod member_tables;
mod members;
pub mod open;
mod overlay;
mod parts;
pub mod path;
mod patience;
mod pieces;
mod preferred;
mod problem;
mod readers;
mod recheck;
mod rename;
mod spaces;
mod streams;
mod subdirectory;
mod subvolumes;
#[cfg(test)]
mod toy;
mod union;
mod unnoticed;
mod unproven;
mod versions;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::sync::Arc;

use tarnfs_source::SharedSource;

pub use archive::{ArchiveTree, DamagedFiles, Fit, LockedFiles, Stored};
pub use assemble::{AssembleError, Assembly, Location, Observer, assemble};
pub use census::{Census, Method};
pub use compose::{ComposeError, Composition, compose};
pub use control::ControlTree;
pub use edit::{Edit, WritableFile};
pub use error::Error;
pub use far::FarTree;
pub use folder::{FolderTree, Served};
pub use lazy::{Base, Lazily, LazyTree};
pub use lifetime::Lifetime;
pub use overlay::{
    Appends, Change, Changed, GoesInto, HEAD, MountedOver, Now, OverlayError, OverlayStatus, OverlayTree, Written,
};
pub use overlay::{ContentPlace, Held, Named};
pub use patience::with_memory;
pub use subdirectory::Subdirectory;
pub use subvolumes::Subvolumes;
pub use tarnfs_codec::engine::Statistics;
pub use tarnfs_format::name::escape;
pub use tarnfs_format::{Device, Kind, Time, Xattrs};
pub use tarnfs_index::{DEFAULT_EXTENSIONS, Node};
pub use union::{Memory, UnionTree};
pub use versions::Versions;

/// What `stat` says of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its number in this tree, the same for every name of one file.
    pub node: Node,
    /// What it is; never [`Kind::HardLink`].
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has; for a folder 2 and one for each folder in it.
    pub links: u32,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of 512 bytes that hold data: less than `size` says where there are holes.
    pub blocks: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last access.
    pub atime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

/// What is known of a whole tree, for `statfs` and for what can be answered without looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub struct Totals {
    /// Files, folders and all else.
    pub nodes: u64,
    /// Sum of the files' sizes in bytes.
    pub bytes: u64,
    /// False if no node can have extended attributes.
    pub has_xattrs: bool,
    /// True if some node has an access control list.
    pub has_acls: bool,
    /// True if nothing can ever change: whatever was answered once may be kept for ever, and so says
    /// [`Tree::lifetime`] of every node.
    pub is_immutable: bool,
    /// True if the content of some file is not verified yet ([`tarnfs_source::Source::is_unproven`]).
    pub is_unproven: bool,
}

impl Totals {
    /// Of several trees together.
    fn of_all(trees: &[Arc<dyn Tree>]) -> Self {
        let mut all = Self { is_immutable: true, ..Self::default() };
        for tree in trees {
            let one = tree.totals();
            all.nodes = all.nodes.saturating_add(one.nodes);
            all.bytes = all.bytes.saturating_add(one.bytes);
            all.has_xattrs |= one.has_xattrs;
            all.has_acls |= one.has_acls;
            all.is_immutable &= one.is_immutable;
            all.is_unproven |= one.is_unproven;
        }
        all
    }
}

/// What a tree has done for those who read from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    /// What was decoded for them, and what was not.
    pub decoding: Statistics,
    /// Bytes of memory by who holds them at this moment.
    pub memory: Vec<(&'static str, u64)>,
    /// Bytes that all of them may hold together.
    pub memory_limit: u64,
}

impl Work {
    /// Of several trees together. They share the memory of what is decoded ([`open::Options::cache`]), so each of them
    /// reports all of it.
    fn of_all(trees: &[Arc<dyn Tree>]) -> Self {
        let mut all = Self::default();
        for tree in trees {
            let one = tree.work();
            all.decoding += one.decoding;
            all.memory_limit = all.memory_limit.max(one.memory_limit);
            for (owner, bytes) in one.memory {
                match all.memory.iter_mut().find(|(name, _)| *name == owner) {
                    Some((_, most)) => *most = bytes.max(*most),
                    None => all.memory.push((owner, bytes)),
                }
            }
        }
        all
    }
}

/// What looking into a node has to wait for ([`Waiting::held_up`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldUp {
    /// Who waits for the same has the same number. It is below 2⁶³.
    pub by: u64,
    /// Changes as long as that gets on.
    pub steps: u64,
}

/// In a listing, the number of a child of which only name and kind are known now, since it cannot be asked. Nobody is
/// given a node.
pub const UNKNOWN: Node = Node(0);

/// One child of a folder.
#[derive(Debug)]
pub struct Child<'a> {
    /// One component, never empty, `.` or `..`.
    pub name: &'a [u8],
    /// What `stat` says of it; its node may be [`UNKNOWN`].
    pub attributes: Attributes,
    /// Where to go on behind this child: `from` of [`Tree::read_dir`].
    pub next: u64,
}

/// What was known of a node when somebody asked last ([`Waiting::attributes_at_once`]).
#[allow(missing_debug_implementations, reason = "a function cannot show itself")]
pub struct LastKnown {
    /// What `stat` said.
    pub attributes: Attributes,
    /// That may be otherwise by now.
    pub is_old: bool,
    /// To be called by somebody who may wait, so that the next answer is newer; `None` if somebody else is at it.
    pub refresh: Option<Box<dyn FnOnce() + Send>>,
}

/// Files and folders under one root, [`Node::ROOT`].
///
/// An implementor provides all that has no body here; `xattrs` may be empty and `link` may refuse what is no symbolic
/// link. Safe to share between threads. A method may wait for the disk; only reads of what `open` returns may decode.
pub trait Tree: Send + Sync {
    /// The child `name` of `folder`, or [`Error::NotFound`].
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error>;

    /// Hands the children of `folder` to `receive`, in an order that does not change, from position `from` (0: the
    /// first) until it returns false; the child that it refused so counts as not given.
    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error>;

    /// How many children `folder` has at most, if that is known without listing it.
    fn count(&self, folder: Node) -> Option<u64> {
        let _ = folder;
        None
    }

    /// True if `folder` has something of that name, be it a hard link that leads nowhere and does not show.
    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        match self.lookup(folder, name) {
            Ok(found) => {
                // Only looked at.
                self.forget(found.node, 1);
                Ok(true)
            }
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Hands the names of the children of `folder` to `receive`, and perhaps a few more: those of hard links that lead
    /// nowhere.
    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.read_dir(folder, 0, &mut |child| {
            receive(child.name);
            // Only looked at.
            self.forget(child.attributes.node, 1);
            true
        })
    }

    /// What `stat` says of `node`.
    fn attributes(&self, node: Node) -> Result<Attributes, Error>;

    /// True of a folder that nothing tells of but what lies in it: its attributes are made up.
    fn is_implied(&self, folder: Node) -> bool {
        let _ = folder;
        false
    }

    /// True of a folder of older versions, and of each folder among them: no listing leads there, and what is in it has
    /// its place elsewhere, or is not to be changed.
    fn is_of_versions(&self, folder: Node) -> bool {
        let _ = folder;
        false
    }

    /// The folder that `folder` is in; the root is in itself.
    fn parent(&self, folder: Node) -> Result<Node, Error>;

    /// Target of a symbolic link.
    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error>;

    /// Extended attributes by name.
    fn xattrs(&self, node: Node) -> Result<Xattrs, Error>;

    /// The value of one of them, which may be far quicker to find than all; `None` if there is none of that name.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.xattrs(node)?.into_iter().find(|(key, _)| key == name).map(|(_, value)| value))
    }

    /// Hands to `receive`, until that returns false, everything that was ever stored under `name` in `folder`, oldest
    /// first: what later entries, or sources further to the right, have replaced, and last what shows. The node of a
    /// folder among them has what lies below the folder now; several may have the same. Nothing if there is nothing.
    /// Each is given as by a look-up, as far as [`forget`](Self::forget) counts, the last one as well. The first `from`
    /// are passed over.
    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        if from > 0 {
            return Ok(());
        }
        match self.lookup(folder, name) {
            Ok(attributes) => {
                receive(attributes);
                Ok(())
            }
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All that [`each_version`](Self::each_version) has. There may be millions.
    fn versions(&self, folder: Node, name: &[u8]) -> Result<Vec<Attributes>, Error> {
        let mut versions = Vec::new();
        let result = self.each_version(folder, name, 0, &mut |version| {
            versions.push(version);
            true
        });
        match result {
            Ok(()) => Ok(versions),
            Err(error) => {
                for version in versions {
                    self.forget(version.node, 1);
                }
                Err(error)
            }
        }
    }

    /// Numbers of nodes are less than this, also of those that are found later: who puts trees together gives each a
    /// range of numbers.
    fn node_limit(&self) -> u64;

    /// Whoever was given `node` by [`lookup`](Self::lookup) and [`read_dir`](Self::read_dir), so many `times` in all,
    /// forgets it so many times: where numbers are given out as files are met, its number can be free again. Need
    /// not be called.
    fn forget(&self, node: Node, times: u64) {
        let _ = (node, times);
    }

    /// Somebody has done with listing `folder`: what was kept open for going on can be closed. Need not be called.
    fn close_folder(&self, folder: Node) {
        let _ = folder;
    }

    /// The content of a regular file.
    fn open(&self, node: Node) -> Result<SharedSource, Error>;

    /// Where `node` is in the archive that it comes from, for messages; `None` where that is not known. It may be slow.
    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        let _ = node;
        None
    }

    /// Names of owner and group as stored, empty where there are none.
    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error>;

    /// How long all may be kept that is said of `node`: attributes, content, extended attributes, the target of a
    /// link, and the nodes of names in a folder. It is asked with every answer, also by threads that must not wait.
    ///
    /// Who has a folder for ever has the nodes of its names for ever, but for those whose own lifetime is none.
    fn lifetime(&self, node: Node) -> Lifetime;

    /// How long may be kept what is *not* in `folder`: that there is nothing of a name, and that a listing has all. It
    /// is less than the folder's own where something may come to it while the rest stays.
    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        self.lifetime(folder)
    }

    /// What is known of the whole.
    fn totals(&self) -> Totals;

    /// What decoding has cost so far. Nothing, where nothing is decoded.
    fn work(&self) -> Work {
        Work::default()
    }

    /// Which questions to it may have to be waited for. `None` where all are answered at once.
    fn waiting(&self) -> Option<&dyn Waiting> {
        None
    }

    /// What changes it. `None` where all is for reading only.
    fn edit(&self) -> Option<&dyn Edit> {
        None
    }
}

/// A tree that may have to be waited for: a stream is decoded, an archive opened, a server asked. Whoever must not wait
/// asks here before, and has others ask the tree.
pub trait Waiting {
    /// False if a question about `node` (what it is, what is in it) may have to decode or to open an archive first: it
    /// is then asked by a thread that may wait. Reads of files tell that themselves
    /// ([`tarnfs_source::Source::is_ready`]).
    fn is_ready(&self, node: Node) -> bool {
        let _ = node;
        true
    }

    /// The same of listing `folder` from position `from` on: all of it may have to be gathered first.
    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        let _ = from;
        self.is_ready(folder)
    }

    /// The node whose [`is_ready`](Self::is_ready) and [`lane`](Self::lane) hold for looking up `name` in `folder`:
    /// where trees stand beside each other, the one that has to be asked is known by the name.
    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        let _ = name;
        folder
    }

    /// Questions about nodes of one lane may all have to wait for the same: an archive that is being indexed, a server
    /// that does not answer. Who has threads that wait leaves some of them to other lanes.
    fn lane(&self, node: Node) -> u64 {
        let _ = node;
        0
    }

    /// What looking into `node` has to wait for that may take very long, whoever asks: a stream is verified, say. Who
    /// has threads that wait has one of them [`wait_out`](Self::wait_out) what many questions wait for. Asked by
    /// threads that must not wait.
    fn held_up(&self, node: Node) -> Option<HeldUp> {
        let _ = node;
        None
    }

    /// Waits until `node` is held up no more, or nobody gets on with that. What came of it is told to who asks next.
    fn wait_out(&self, node: Node) {
        let _ = node;
    }

    /// The same as it was when somebody asked last, for those who must not wait where [`attributes`](Tree::attributes)
    /// may have to. `None` where that is not known.
    fn attributes_at_once(&self, node: Node) -> Option<LastKnown> {
        let _ = node;
        None
    }
}

/// As [`Waiting`] says, or that nothing has to be waited for.
impl dyn Tree + '_ {
    /// See [`Waiting::is_ready`].
    pub fn is_ready(&self, node: Node) -> bool {
        self.waiting().is_none_or(|tree| tree.is_ready(node))
    }

    /// See [`Waiting::lists_at_once`].
    pub fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        self.waiting().is_none_or(|tree| tree.lists_at_once(folder, from))
    }

    /// See [`Waiting::asked_for`].
    pub fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        self.waiting().map_or(folder, |tree| tree.asked_for(folder, name))
    }

    /// See [`Waiting::lane`].
    pub fn lane(&self, node: Node) -> u64 {
        self.waiting().map_or(0, |tree| tree.lane(node))
    }

    /// See [`Waiting::held_up`].
    pub fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.waiting()?.held_up(node)
    }

    /// See [`Waiting::wait_out`].
    pub fn wait_out(&self, node: Node) {
        if let Some(tree) = self.waiting() {
            tree.wait_out(node);
        }
    }

    /// See [`Waiting::attributes_at_once`].
    pub fn attributes_at_once(&self, node: Node) -> Option<LastKnown> {
        self.waiting()?.attributes_at_once(node)
    }
}
