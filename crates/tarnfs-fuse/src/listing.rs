//! Folders: a reply that is filled from one walk over the tree.

use tarnfs_tree::{Error, Node, Tree, UNKNOWN};

use crate::deadline::Ticket;
use crate::handles::Handles;
use crate::options::Overrides;
use crate::protocol::{Keep, ReplyNames};
use crate::{attributes, lifetimes};

/// Positions 1 and 2 are those behind `.` and `..`, which a tree does not list.
const DOTS: u64 = 2;

/// Fills the reply behind `ticket` with the children of `folder` from position `offset`. Nodes of which the kernel then
/// knows are put into `given`.
pub(crate) fn fill(
    (tree, handles, overrides): (&dyn Tree, &Handles, Overrides),
    folder: Node,
    offset: u64,
    ticket: &Ticket<ReplyNames>,
    given: &mut Vec<Node>,
) -> Result<(), Error> {
    // Once the deadline has passed there is nothing to fill.
    let add = |name: &[u8], next, keep, attributes: &_| {
        ticket.with(|reply| reply.add(name, next, keep, attributes)).unwrap_or(false)
    };
    // Of these the kernel only takes the number.
    if offset < 1 && !add(b".", 1, Keep::default(), &attributes::bare_folder(folder.0)) {
        return Ok(());
    }
    if offset < DOTS && !add(b"..", DOTS, Keep::default(), &attributes::bare_folder(tree.parent(folder)?.0)) {
        return Ok(());
    }
    let lifetime = tree.lifetime(folder);
    tree.read_dir(folder, offset.saturating_sub(DOTS), &mut |child| {
        let node = child.attributes.node;
        let keep = if node == UNKNOWN { Keep::default() } else { lifetimes::of_child(tree, handles, lifetime, node) };
        let attributes = attributes::shown(tree, &child.attributes, overrides);
        let is_added = add(child.name, child.next.saturating_add(DOTS), keep, &attributes);
        if is_added && node != UNKNOWN {
            given.push(node);
        }
        is_added
    })
}
