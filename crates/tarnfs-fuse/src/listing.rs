//! Folders: a reply that is filled from one walk over the tree.

use std::time::Duration;

use tarnfs_tree::{Error, Node, Tree, UNKNOWN};

use crate::attributes;
use crate::deadline::Ticket;
use crate::options::Overrides;
use crate::protocol::ReplyNames;

/// Positions 1 and 2 are those behind `.` and `..`, which a tree does not list.
const DOTS: u64 = 2;

/// What is added to a listing with each name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How long the kernel may keep names and attributes.
    pub(crate) keep: Duration,
    pub(crate) overrides: Overrides,
}

impl Terms {
    /// Those that hold for `node`: who may control a mount is told as it is, and never kept.
    pub(crate) fn of(self, tree: &dyn Tree, node: Node) -> Self {
        let Some(control) = tree.control() else { return self };
        Self {
            keep: if control.is_fleeting(node) { Duration::ZERO } else { self.keep },
            overrides: if control.is_own(node) { Overrides::default() } else { self.overrides },
        }
    }

    /// How long the kernel may keep that there is nothing of a name: something can be mounted there.
    pub(crate) fn keep_nothing(self, tree: &dyn Tree) -> Duration {
        if tree.control().is_some() { Duration::ZERO } else { self.keep }
    }
}

/// Fills the reply behind `ticket` with the children of `folder` from position `offset`. Nodes of which the kernel then
/// knows are put into `given`.
pub(crate) fn fill(
    tree: &dyn Tree,
    folder: Node,
    offset: u64,
    terms: Terms,
    ticket: &Ticket<ReplyNames>,
    given: &mut Vec<Node>,
) -> Result<(), Error> {
    // Once the deadline has passed there is nothing to fill.
    let add = |name: &[u8], next, keep, attributes: &_| {
        ticket.with(|reply| reply.add(name, next, keep, attributes)).unwrap_or(false)
    };
    // Of these the kernel only takes the number.
    if offset < 1 && !add(b".", 1, terms.keep, &attributes::bare_folder(folder.0)) {
        return Ok(());
    }
    if offset < DOTS && !add(b"..", DOTS, terms.keep, &attributes::bare_folder(tree.parent(folder)?.0)) {
        return Ok(());
    }
    tree.read_dir(folder, offset.saturating_sub(DOTS), &mut |child| {
        let terms = terms.of(tree, child.attributes.node);
        let attributes = attributes::to_kernel(&child.attributes, terms.overrides);
        let is_added = add(child.name, child.next.saturating_add(DOTS), terms.keep, &attributes);
        if is_added && child.attributes.node != UNKNOWN {
            given.push(child.attributes.node);
        }
        is_added
    })
}
