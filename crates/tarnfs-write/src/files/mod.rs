//! Files and folders of this machine, as entries of an archive.

pub(crate) mod names;

mod exclude;
mod mode;
mod transform;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use tarnfs_format::Time;
use tarnfs_source::Cancel;
use tarnfs_tree::build::Progress;

pub use exclude::Exclude;
pub use mode::ModeChange;
pub use names::{group_name, group_number, user_name, user_number};
pub use transform::Transform;
pub use walk::{add, xattrs_at};

/// What goes into an archive, and how it looks there. The words are those of GNU tar.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Choice {
    /// Paths are relative to this folder, not to that of the process.
    pub folder: Option<PathBuf>,
    /// Files and folders with all that is in them.
    pub paths: Vec<Vec<u8>>,
    /// What is left out.
    pub excludes: Vec<Exclude>,
    /// Folders that are mount points are entered empty.
    pub one_file_system: bool,
    /// Symbolic links are entered as what they lead to.
    pub follow: bool,
    /// Each name of a file is entered as a file.
    pub hard_dereference: bool,
    /// Holes are kept.
    pub sparse: bool,
    /// Extended attributes are kept, but for ACLs.
    pub xattrs: bool,
    /// ACLs are kept.
    pub acls: bool,
    /// The order of a folder's files.
    pub sort: Sort,
    /// Everything belongs to that user.
    pub owner: Option<Owner>,
    /// And to that group.
    pub group: Option<Owner>,
    /// Everything was changed then.
    pub mtime: Option<Time>,
    /// What becomes of permission bits.
    pub mode: Option<ModeChange>,
    /// Permission bits say no more than whether a file can be executed: 0755 or 0644.
    pub plain_modes: bool,
    /// Users and groups are numbers alone.
    pub numeric_owner: bool,
    /// What becomes of paths, one after the other.
    pub transforms: Vec<Transform>,
    /// Device and number of files that are left out: the archive itself.
    pub leaves_out: Vec<(u64, u64)>,
    /// Is told how much was read, of how many entries.
    pub progress: Arc<Progress>,
    /// Ends it.
    pub cancel: Cancel,
}

/// The order of a folder's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// As the file system has it.
    #[default]
    None,
    /// By name, byte by byte.
    Name,
    /// By number, which is often how they lie on the disk.
    Inode,
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Empty if there is only a number.
    pub name: Vec<u8>,
    /// The number.
    pub id: u64,
}

/// What was put into an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Entries.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files that something was told of: they have changed, vanished, or cannot be read or kept.
    pub told: u64,
}
