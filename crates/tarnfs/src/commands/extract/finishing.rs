//! Folders that get their attributes when all is made in them.

use std::hash::{BuildHasher, RandomState};
use std::io;

use tarnfs_tree::{Node, Stored, Time};

use super::plan::{Backwards, Item, Items, Sorter, What};

/// Takes them as they are found: each before what is in it.
pub(super) enum Folders {
    /// They are finished in the reverse order.
    Each(Backwards),
    /// Without the first names of their paths several may be one: they are sorted by what they are called then.
    Merged(Sorter, RandomState),
}

impl Folders {
    pub(super) fn new(may_merge: bool) -> Self {
        if may_merge { Self::Merged(Sorter::new(), RandomState::new()) } else { Self::Each(Backwards::default()) }
    }

    /// Adds a folder, which this call `has_made` or not. `names`: its path, asked for where that matters.
    pub(super) fn push(
        &mut self,
        node: Node,
        header: u64,
        has_made: bool,
        names: impl FnOnce() -> io::Result<Vec<Vec<u8>>>,
    ) -> io::Result<()> {
        match self {
            Self::Each(folders) => folders.push(node, has_made),
            Self::Merged(sorter, keys) => {
                let names = names()?;
                // What is in a folder comes before it, all of one path one behind the other, and of these the last one
                // of the archive first.
                let stored = Stored {
                    stream: u32::MAX - u32::try_from(names.len()).unwrap_or(u32::MAX),
                    place: keys.hash_one(names),
                    header: Some(u64::MAX - header),
                    is_plain: false,
                    has_xattrs: false,
                };
                let none = Time { seconds: 0, nanoseconds: 0 };
                sorter.push(Item {
                    stored,
                    node,
                    folder: node,
                    name: Vec::new(),
                    kind: What::File,
                    mode: 0,
                    uid: 0,
                    gid: 0,
                    links: 0,
                    size: has_made.into(),
                    mtime: none,
                    atime: none,
                })
            }
        }
    }

    /// Begins to hand them out.
    pub(super) fn finish(self) -> io::Result<Finishing> {
        Ok(match self {
            Self::Each(folders) => Finishing::Each(folders),
            Self::Merged(sorter, _) => Finishing::Merged(sorter.finish()?, None),
        })
    }
}

/// Hands them out, each behind what is in it.
pub(super) enum Finishing {
    Each(Backwards),
    /// With the one that comes next, and its path.
    Merged(Items, Option<(Node, bool, Vec<Vec<u8>>)>),
}

impl Finishing {
    /// The next one, and whether this call has made it. Of several that are one, the last one of the archive.
    pub(super) fn next(
        &mut self,
        names_of: impl Fn(Node) -> io::Result<Vec<Vec<u8>>>,
    ) -> io::Result<Option<(Node, bool)>> {
        let (items, following) = match self {
            Self::Each(folders) => return folders.pop(),
            Self::Merged(items, following) => (items, following),
        };
        let mut found = following.take();
        while let Some(item) = items.next()? {
            let (names, has_made) = (names_of(item.node)?, item.size != 0);
            match &mut found {
                None => found = Some((item.node, has_made, names)),
                Some((_, is_made, of_found)) if *of_found == names => *is_made |= has_made,
                Some(_) => {
                    *following = Some((item.node, has_made, names));
                    break;
                }
            }
        }
        Ok(found.map(|(node, has_made, _)| (node, has_made)))
    }
}
