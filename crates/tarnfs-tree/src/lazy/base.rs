//! The tree in which archives are found.

use std::sync::Arc;

use crate::{FarTree, FolderTree, Tree};

/// See the module.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "not every tree can show itself")]
pub enum Base {
    /// A folder: archives lie in files of their own, and so do their indexes.
    Folder(Arc<FolderTree>),
    /// A folder behind a URL: each archive in it is opened as its own URL would be.
    Far(Arc<FarTree>),
    /// Anything else: their indexes are in memory.
    Other(Arc<dyn Tree>),
}

impl Base {
    pub(super) fn tree(&self) -> &dyn Tree {
        match self {
            Self::Folder(folder) => &**folder,
            Self::Far(folder) => &**folder,
            Self::Other(tree) => &**tree,
        }
    }
}
