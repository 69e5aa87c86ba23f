//! Archives that can be written.

mod tar;
mod zip;

use std::io;
use std::ops::RangeInclusive;

use tarnfs_format::Entry;

use crate::{ArchiveWriter, Writing};

/// A kind of archive that can be written.
pub trait Container: Send + Sync {
    /// The name of the format that reads it ([`tarnfs_format::Format::name`]).
    fn name(&self) -> &'static str;

    /// What names of such archives end in, before the suffix of a compression: `.tar`.
    fn suffix(&self) -> &'static str;

    /// Levels that there are and the one that is taken if none is named, of what compresses each file for itself.
    /// `None` if the whole archive is a stream that a [`Compression`](crate::compress::Compression) takes.
    fn own_levels(&self) -> Option<(RangeInclusive<i32>, i32)>;

    /// What of an entry it can keep.
    fn keeps(&self) -> Keeps;

    /// See [`ArchiveWriter::why_not`].
    fn why_not(&self, entry: &Entry) -> Option<&'static str>;

    /// Starts one.
    fn writer(&self, writing: Writing) -> io::Result<Box<dyn ArchiveWriter>>;
}

/// What a kind of archive can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct Keeps {
    /// The attributes of the folder that everything is in.
    pub root: bool,
    /// The names of owners, beside their numbers.
    pub names: bool,
    /// Extended attributes, ACLs among them.
    pub xattrs: bool,
    /// Where the holes of a file are.
    pub holes: bool,
    /// When the attributes were changed last. Nobody can give that to a file again, so it may go without a word.
    pub ctime: bool,
    /// A comment on all of it.
    pub comment: bool,
    /// The smallest difference of two times, in ns.
    pub time_unit: u32,
}

/// All of them. The first is taken where a name does not say.
pub static CONTAINERS: &[&dyn Container] = &[&tar::Pax, &zip::InfoZip];

/// Extended attributes that are access control lists.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}
