//! Folders: a reply that is filled from one walk over the tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use tarnfs_tree::{Attributes, Error, Kind, Node, Tree};

use crate::attributes;
use crate::deadline::{Refuse, Ticket};
use crate::options::Overrides;

/// Positions 1 and 2 are those behind `.` and `..`, which a tree does not list.
const DOTS: u64 = 2;

/// What is added to a listing with each name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How long the kernel may keep names and attributes.
    pub(crate) keep: Duration,
    pub(crate) overrides: Overrides,
}

/// A reply to which names are added until it is full.
pub(crate) trait Listing: Refuse {
    /// True if the name does not fit any more.
    fn add_child(&mut self, attributes: &Attributes, next: u64, name: &OsStr, terms: Terms) -> bool;
    /// As [`Listing::add_child`] for `.` and `..`, of which the kernel only takes the number.
    fn add_dots(&mut self, node: Node, next: u64, name: &str, terms: Terms) -> bool;
    fn done(self);
}

impl Listing for ReplyDirectory {
    fn add_child(&mut self, attributes: &Attributes, next: u64, name: &OsStr, _: Terms) -> bool {
        self.add(INodeNo(attributes.node.0), next, attributes::kind(attributes.kind).0, name)
    }

    fn add_dots(&mut self, node: Node, next: u64, name: &str, _: Terms) -> bool {
        self.add(INodeNo(node.0), next, attributes::kind(Kind::Folder).0, name)
    }

    fn done(self) {
        self.ok();
    }
}

impl Listing for ReplyDirectoryPlus {
    fn add_child(&mut self, attributes: &Attributes, next: u64, name: &OsStr, terms: Terms) -> bool {
        let attributes = attributes::to_kernel(attributes, terms.overrides);
        self.add(attributes.ino, next, name, &terms.keep, &attributes, Generation(0))
    }

    fn add_dots(&mut self, node: Node, next: u64, name: &str, terms: Terms) -> bool {
        self.add(INodeNo(node.0), next, name, &terms.keep, &attributes::bare_folder(node.0), Generation(0))
    }

    fn done(self) {
        self.ok();
    }
}

/// Fills the reply behind `ticket` with the children of `folder` from position `offset`.
pub(crate) fn fill<R: Listing>(
    tree: &dyn Tree,
    folder: Node,
    offset: u64,
    terms: Terms,
    ticket: &Ticket<R>,
) -> Result<(), Error> {
    // Once the deadline has passed there is nothing to fill.
    let full = |added: Option<bool>| added.unwrap_or(true);
    if offset < 1 && full(ticket.with(|reply| reply.add_dots(folder, 1, ".", terms))) {
        return Ok(());
    }
    if offset < DOTS {
        let parent = tree.parent(folder)?;
        if full(ticket.with(|reply| reply.add_dots(parent, DOTS, "..", terms))) {
            return Ok(());
        }
    }
    tree.read_dir(folder, offset.saturating_sub(DOTS), &mut |child| {
        let next = child.next.saturating_add(DOTS);
        !full(ticket.with(|reply| reply.add_child(&child.attributes, next, OsStr::from_bytes(child.name), terms)))
    })
}
