//! Paths inside a tree, for those who are not the kernel.

use rustix::io::Errno;

use crate::archive::LONGEST_TARGET;
use crate::{Attributes, Error, Kind, Node, Tree};

/// Symbolic links followed on the way of one path, as the kernel's own limit (ELOOP).
const MOST_LINKS: usize = 40;

/// Components that are walked for one path, those of the links on its way among them: eight paths as long as the
/// kernel takes them. 39 links of 4095 bytes that lead to each other have 60 000, and each archive has room for many.
const MOST_STEPS: u64 = 16 << 10;

/// Finds what `path` names, from the root. Symbolic links are followed inside the tree only: an absolute one starts at
/// the tree's root, and `..` stops there. The last component is only followed if `follow` says so.
///
/// What was met on the way is forgotten again ([`Tree::forget`]); what is found counts as looked up once.
pub fn find(tree: &dyn Tree, path: &[u8], follow: bool) -> Result<Attributes, Error> {
    find_by(tree, path, follow, &mut |_| (), &mut |_| ())
}

/// [`find`], where `through` is told what folders the way leads through, the root among them, in its order.
pub fn find_through(
    tree: &dyn Tree,
    path: &[u8],
    follow: bool,
    through: &mut dyn FnMut(&Attributes),
) -> Result<Attributes, Error> {
    find_by(tree, path, follow, &mut |_| (), through)
}

/// [`find_through`], where `visit` is told which nodes are asked.
pub(crate) fn find_by(
    tree: &dyn Tree,
    path: &[u8],
    follow: bool,
    visit: &mut dyn FnMut(Node),
    through: &mut dyn FnMut(&Attributes),
) -> Result<Attributes, Error> {
    let mut steps = MOST_STEPS;
    Walk { tree, steps: &mut steps, visit, through, way: Vec::new() }.find(path, follow)
}

/// [`find`], where links are followed, which takes no more than `steps`, and counts them down. `None` if those were not
/// enough: targets of links may be long, and lead to other ones.
pub(crate) fn find_within(tree: &dyn Tree, path: &[u8], steps: &mut u64) -> Option<Result<Attributes, Error>> {
    let walk = Walk { tree, steps: &mut *steps, visit: &mut |_| (), through: &mut |_| (), way: Vec::new() };
    let found = walk.find(path, true);
    (*steps > 0).then_some(found)
}

/// The way along one path.
struct Walk<'w> {
    tree: &'w dyn Tree,
    /// Where none are left, the way ends with [`Error::TooManyLinks`]. Each component is one.
    steps: &'w mut u64,
    /// Is told which nodes are asked.
    visit: &'w mut dyn FnMut(Node),
    /// Is told what folders the way leads through.
    through: &'w mut dyn FnMut(&Attributes),
    /// All that was looked up.
    way: Vec<Node>,
}

impl Walk<'_> {
    /// [`find`].
    fn find(mut self, path: &[u8], follow: bool) -> Result<Attributes, Error> {
        let found = self.walk(path, follow);
        // In the end: a number that is free could be another's before the end of the way.
        let kept = found.as_ref().ok().and_then(|found| self.way.iter().rposition(|node| *node == found.node));
        for (place, node) in self.way.into_iter().enumerate() {
            if Some(place) != kept {
                self.tree.forget(node, 1);
            }
        }
        found
    }

    fn walk(&mut self, path: &[u8], follow: bool) -> Result<Attributes, Error> {
        (self.visit)(Node::ROOT);
        let mut at = self.tree.attributes(Node::ROOT)?;
        // What is still to walk, last component first, each behind a slash: in one piece, as there may be very many.
        let mut rest = Vec::new();
        push_reversed(&mut rest, path);
        let mut links = 0;
        while let Some(slash) = rest.iter().rposition(|&byte| byte == b'/') {
            let component = rest.split_off(slash + 1);
            rest.truncate(slash);
            *self.steps = self.steps.saturating_sub(1);
            if *self.steps == 0 {
                return Err(Error::TooManyLinks);
            }
            // Also for the nothing behind a last slash: what it follows must be a folder.
            if at.kind != Kind::Folder {
                return Err(Error::NotAFolder);
            }
            if matches!(component.as_slice(), b"" | b".") {
                continue;
            }
            if component == b".." {
                at = self.tree.attributes(self.tree.parent(at.node)?)?;
                continue;
            }
            (self.through)(&at);
            (self.visit)(self.tree.asked_for(at.node, &component));
            let child = self.tree.lookup(at.node, &component)?;
            self.way.push(child.node);
            if child.kind == Kind::Symlink && (follow || !rest.is_empty()) {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Error::TooManyLinks);
                }
                let target = self.tree.read_link(child.node)?;
                // As the kernel does.
                if target.len() as u64 > LONGEST_TARGET {
                    return Err(Errno::NAMETOOLONG.into());
                }
                if target.first() == Some(&b'/') {
                    at = self.tree.attributes(Node::ROOT)?;
                }
                push_reversed(&mut rest, &target);
            } else {
                at = child;
            }
        }
        Ok(at)
    }
}

/// Adds the components of `path` to `rest`, the last one first.
fn push_reversed(rest: &mut Vec<u8>, path: &[u8]) {
    for component in path.rsplit(|&byte| byte == b'/') {
        rest.push(b'/');
        rest.extend_from_slice(component);
    }
}
