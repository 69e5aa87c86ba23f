//! Trees put together, as a command line asks for it.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::containers::Wanted;
use crate::{Error, Subdirectory, Subvolumes, Tree, UnionTree, Versions};

/// How trees are opened and put together. In this order: sources, union or subvolumes, prefix, versions; around all of
/// them, in a mount, what can be added to it while it runs ([`crate::ControlTree`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composition {
    /// Several sources are one over the other; else each is in a folder of its own.
    pub union: bool,
    /// The folder that becomes the root.
    pub prefix: Option<Vec<u8>>,
    /// Older versions of files are in folders beside them.
    pub file_versions: bool,
    /// Archives inside of archives are opened when somebody looks into them, not with the one that they lie in. Those
    /// in folders always are.
    pub lazy: bool,
    /// Archives that were opened so and stay open, each with its index.
    pub most_open: usize,
    /// What is an archive of container images, or a layout of them, shows what a container would see; `None` for what
    /// is stored.
    pub images: Option<Wanted>,
    /// Where the tree will be mounted, without symbolic links: what lies below must not be opened by its path.
    pub mountpoint: Option<PathBuf>,
}

impl Default for Composition {
    fn default() -> Self {
        Self {
            union: true,
            prefix: None,
            file_versions: true,
            lazy: false,
            most_open: most_open(),
            images: Some(Wanted::default()),
            mountpoint: None,
        }
    }
}

/// What the descriptors of this process are enough for.
fn most_open() -> usize {
    /// What all else takes, with files of the cache that may make room, and what one archive does, with its own.
    const OTHERS: u64 = 32 + 64;
    const OF_ONE: u64 = 6;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(OTHERS) / OF_ONE).clamp(2, 64) as usize
}

/// Why trees cannot be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComposeError {
    /// There is no folder at [`Composition::prefix`], or it cannot be looked for.
    #[error("the prefix {}: {error}", tarnfs_format::name::escape(path))]
    Prefix {
        /// The prefix.
        path: Vec<u8>,
        /// What came of looking for it.
        error: Error,
    },
    /// There are too many of them.
    #[error(transparent)]
    Tree(#[from] Error),
}

/// Puts `sources` together, from left to right, each with the name that its folder has where it gets one. Of no sources
/// comes an empty folder.
pub fn compose(sources: Vec<(Vec<u8>, Arc<dyn Tree>)>, how: &Composition) -> Result<Arc<dyn Tree>, ComposeError> {
    let mut tree: Arc<dyn Tree> = match <[_; 1]>::try_from(sources) {
        Ok([(_, only)]) => only,
        Err(several) if how.union && !several.is_empty() => {
            Arc::new(UnionTree::new(several.into_iter().map(|(_, source)| source).collect())?)
        }
        Err(several) => Arc::new(Subvolumes::new(several)?),
    };
    if let Some(path) = &how.prefix {
        let below = Subdirectory::new(tree, path);
        tree = Arc::new(below.map_err(|error| ComposeError::Prefix { path: path.clone(), error })?);
    }
    if how.file_versions {
        tree = Arc::new(Versions::new(tree));
    }
    Ok(tree)
}
