//! Ranges of node numbers: trees side by side in one tree.

use std::io;
use std::sync::Arc;

use crate::{Attributes, Error, Node, Tree, UNKNOWN};

/// Numbers of the tree that holds others: the root, and folders that are in none of the others.
pub(crate) const OWN: u64 = 1 << 32;

/// Each tree has a range of numbers, [`Tree::node_limit`] wide, behind those of the tree that holds it.
#[derive(Debug, Clone)]
pub(crate) struct Spaces {
    /// Where each range begins, and the last one ends.
    starts: Vec<u64>,
}

impl Spaces {
    /// Ranges for `trees`, behind the numbers below `own`. Fails where they do not fit in 63 bits.
    pub(crate) fn new(own: u64, trees: &[Arc<dyn Tree>]) -> Result<Self, Error> {
        let mut starts = Vec::with_capacity(trees.len() + 1);
        starts.push(own);
        let mut spaces = Self { starts };
        for tree in trees {
            spaces.add(&**tree)?;
        }
        Ok(spaces)
    }

    /// A range for one more tree, behind all others; theirs stay as they are.
    pub(crate) fn add(&mut self, tree: &dyn Tree) -> Result<(), Error> {
        let end = self.end().checked_add(tree.node_limit()).filter(|&end| end <= 1 << 63);
        let end = end.ok_or_else(|| io::Error::other("too many trees in one: there are no numbers left for nodes"))?;
        self.starts.push(end);
        Ok(())
    }

    /// How many numbers tree `tree` has.
    pub(crate) fn width(&self, tree: usize) -> u64 {
        self.starts[tree + 1] - self.starts[tree]
    }

    /// Where all numbers end.
    pub(crate) fn end(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The number that `inner` of tree `tree` has here.
    pub(crate) fn outer(&self, tree: usize, inner: Node) -> Result<Node, Error> {
        let (start, end) = (self.starts[tree], self.starts[tree + 1]);
        // An index may lie; its numbers must not become those of another tree.
        let outer = start.checked_add(inner.0).filter(|&outer| outer < end);
        Ok(Node(outer.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("node {}: there can be none of that number", inner.0))
        })?))
    }

    /// [`Spaces::outer`] of what `attributes` are of. What is not known in its tree is not known here.
    pub(crate) fn attributes(&self, tree: usize, attributes: &Attributes) -> Result<Attributes, Error> {
        if attributes.node == UNKNOWN {
            return Ok(attributes.clone());
        }
        Ok(Attributes { node: self.outer(tree, attributes.node)?, ..attributes.clone() })
    }

    /// The tree, and the node in it, that has the number `outer`; `None` for the tree's own and for numbers that nobody
    /// has.
    pub(crate) fn inner(&self, outer: Node) -> Option<(usize, Node)> {
        let tree = self.starts.partition_point(|&start| start <= outer.0).checked_sub(1)?;
        (tree + 1 < self.starts.len()).then(|| (tree, Node(outer.0 - self.starts[tree])))
    }
}
