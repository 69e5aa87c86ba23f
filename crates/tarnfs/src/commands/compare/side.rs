//! What an archive is compared with: a folder on disk (`disk.rs`), or another archive (`second.rs`).

use std::io;

use tarnfs_format::Told;
use tarnfs_tree::{Error, Kind, Time, Xattrs};

/// What stands at a name there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) links: u32,
    /// It has holes, perhaps.
    pub(super) is_sparse: bool,
    pub(super) file: FileNumber,
    /// When it was changed last in any way, where that is known.
    pub(super) ctime: (i64, u64),
    pub(super) told: Told,
    /// Hard links would be told.
    pub(super) has_links: bool,
}

/// The same for all names of one file.
pub(super) type FileNumber = (u64, u64);

/// Something with files and folders.
pub(super) trait Side: Send + Sync + 'static {
    /// An open folder.
    type Folder: Send + Sync;
    type File: Readable;

    /// The folder at the path of these names.
    fn folder(&self, names: &[Vec<u8>]) -> Result<Self::Folder, Error>;

    /// The folder `name` in `folder`.
    fn inner(&self, folder: &Self::Folder, name: &[u8]) -> Result<Self::Folder, Error>;

    /// The same folder once more, where that takes no descriptor: such a folder may be kept however deep it lies. A way
    /// from the root for each of them would take as many questions as it is deep.
    fn copied(&self, folder: &Self::Folder) -> Option<Self::Folder>;

    /// What is called `name` in `folder`; the folder itself, if that is empty. `None` if there is nothing.
    fn look(&self, folder: &Self::Folder, name: &[u8]) -> Result<Option<Seen>, Error>;

    /// Hands all names in `folder` to `receive`.
    fn names(&self, folder: &Self::Folder, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Target of a symbolic link.
    fn target(&self, folder: &Self::Folder, name: &[u8], seen: &Seen) -> Result<Vec<u8>, Error>;

    /// Extended attributes of what is called `name` in `folder`; of the folder itself, if that is empty.
    fn xattrs(&self, folder: &Self::Folder, name: &[u8], seen: &Seen) -> Result<Xattrs, Error>;

    /// The content of a regular file.
    fn open(&self, folder: &Self::Folder, name: &[u8], seen: &Seen) -> Result<Self::File, Error>;

    /// True if its files have the numbers that the kernel gives them.
    fn is_on_disk(&self) -> bool;

    /// False if it knows no hard links.
    fn has_hard_links(&self) -> bool;

    /// False if it knows no extended attributes.
    fn has_xattrs(&self) -> bool;
}

/// An open file.
pub(super) trait Readable: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `at`, fewer only at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// The first byte at or after `at` that is not in a hole; `None` where there is none.
    fn next_data(&self, at: u64) -> Option<u64>;

    /// False if it is no longer what `seen` says.
    fn is_still(&self, seen: &Seen) -> io::Result<bool>;

    /// Fails if what was read is not what is stored.
    fn verify(&self) -> io::Result<()>;
}
