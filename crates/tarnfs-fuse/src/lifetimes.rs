//! How long the kernel keeps what it is told.

use std::time::Duration;

use tarnfs_tree::{Lifetime, Node, Tree};

use crate::handles::Handles;
use crate::protocol::Keep;

/// What never changes: 136 years. (Larger numbers overflow the kernel's clock on some machines.)
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// What may change.
pub(crate) const FOR_NOW: Duration = Duration::from_secs(1);

/// The kernel's form of `lifetime`.
pub(crate) fn duration(lifetime: Lifetime) -> Duration {
    match lifetime {
        Lifetime::None => Duration::ZERO,
        Lifetime::Short => FOR_NOW,
        Lifetime::Forever => FOR_EVER,
    }
}

/// Of what a node is: nothing is kept while the kernel may change it without our being told.
pub(crate) fn of_node(tree: &dyn Tree, handles: &Handles, node: Node) -> Duration {
    if handles.is_written_by_kernel(node.0) { Duration::ZERO } else { duration(tree.lifetime(node)) }
}

/// Of the name of `child` in a folder of that lifetime, and of what the child is.
pub(crate) fn of_child(tree: &dyn Tree, handles: &Handles, folder: Lifetime, child: Node) -> Keep {
    let name = if tree.lifetime(child) == Lifetime::None { Lifetime::None } else { folder };
    Keep { name: duration(name), attributes: of_node(tree, handles, child) }
}

/// That there is nothing of a name in `folder`.
pub(crate) fn of_nothing(tree: &dyn Tree, folder: Node) -> Keep {
    Keep::both(duration(tree.lifetime_of_gaps(folder)))
}

/// True if a listing of `folder` is right for ever, and of every child in it that it is the same.
pub(crate) fn keeps_listing(tree: &dyn Tree, folder: Node) -> bool {
    tree.lifetime(folder).min(tree.lifetime_of_gaps(folder)) == Lifetime::Forever
}
