//! The index of an archive: what lies where, so that a later mount reads nothing but what it is asked for.
//!
//! An [`Index`] answers from rows that it fetches when asked; nothing is loaded at opening, and no memory grows with
//! the archive. There are two: [`own`], the schema of tarnfs (`schema.sql`), and [`ratarmount`], which reads and
//! writes the sidecars of ratarmount.
//!
//! A [`Writer`] takes entries in the archive's order, sorts them once and writes the file under a temporary name,
//! which is renamed when it is complete and on disk. [`trust`] decides whether a file that is found may be believed
//! at all, [`location`] where indexes are looked for and put.

#![deny(clippy::arithmetic_side_effects)]

mod history;
mod in_pieces;
pub mod location;
pub mod own;
mod pieces;
mod pool;
pub mod ratarmount;
mod shape;
mod sqlite;
mod store;
mod stream_tables;
mod sweep;
pub mod trust;
mod vfs;
mod writer;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::fmt::Debug;
use std::io;

use tarnfs_format::{Kind, Time, Xattrs};
use tarnfs_source::{Extent, Fingerprint, SharedSource};

pub use history::History;
pub use in_pieces::{Holder, InPieces};
pub use own::schema::VERSION as SCHEMA_VERSION;
pub use rusqlite::version as sqlite_version;
pub use shape::{DEFAULT_EXTENSIONS, Recursion, Shape};
pub use stream_tables::StreamTables;
pub use sweep::{SeekPoints, Swept};
pub use writer::{Destination, Writer, WriterOptions};

/// Number of a file or folder in one index. Computed from its row, so nobody needs a table of them. What hard links
/// share is one node. The root is [`Node::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

impl Node {
    /// The folder that everything is in.
    pub const ROOT: Self = Self(1);
}

/// What an index, as Linux, shows for an owner or group whose number does not fit in 32 bits.
pub const OVERFLOWN_OWNER: u32 = 65_534;

/// An owner or a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its number, as [`Row`] has it.
    pub id: u32,
    /// Its name, as stored; empty if there is none.
    pub name: Vec<u8>,
}

/// What an index says of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub struct Row {
    /// Its number: of the file itself, also if it was found through a hard link.
    pub node: Node,
    /// What it is; never [`Kind::HardLink`].
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has; for a folder 2 and one for each folder in it.
    pub links: u32,
    /// Length in bytes; for a symbolic link that of its target.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last access: as stored, else `mtime`.
    pub atime: Time,
    /// Last change of the inode: as stored, else `mtime`.
    pub ctime: Time,
    /// The stream that `header` and `body` count in: 0 the archive's innermost one, others [`Nested`] ones.
    pub stream: u32,
    /// Byte of the stream at which its first header begins; `None` for what no entry names.
    pub header: Option<u64>,
    /// Byte of the stream at which its content begins.
    pub body: u64,
    /// True if it has holes: [`Index::extents`] says where.
    pub is_sparse: bool,
    /// True if it is not simply stored in one run: [`InPieces::pieces`] says how it is, and `body` is of no meaning. A
    /// file, or a symbolic link whose target is stored as the content of a file is.
    pub has_pieces: bool,
    /// True if it has extended attributes.
    pub has_xattrs: bool,
    /// True if its own headers do not tell all of it ([`tarnfs_format::Entry::inherits`]).
    pub inherits: bool,
}

/// One layer of compression around the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// [`tarnfs_codec::Codec::name`].
    pub codec: String,
    /// Length of what comes out of it, in bytes.
    pub decoded_length: u64,
}

/// A file in the archive whose content is shown, and which has to be decoded for that: another stream beside the
/// archive's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// [`tarnfs_codec::Codec::name`], or [`STORED_IN_PIECES`].
    pub codec: String,
    /// Length of what comes out of it, in bytes.
    pub decoded_length: u64,
    /// The stream that it lies in.
    pub input: u32,
    /// Where in that stream it begins, in bytes.
    pub start: u64,
    /// Its length there, in bytes.
    pub length: u64,
}

/// What a [`Nested`] stream has in place of a codec whose content is a file in pieces: [`InPieces::pieces`] has them.
/// It lies between the first byte of any of them and the last one.
pub const STORED_IN_PIECES: &str = "pieces";

/// Number of the first [`Nested`] stream. Layers of compression around the archive have smaller ones.
pub const FIRST_NESTED: u32 = 1024;

/// The archive that an index belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archive {
    /// Length in bytes.
    pub length: u64,
    /// Of its bytes.
    pub fingerprint: Fingerprint,
    /// Last change of its content, ns since 1970; only compared with `--verify-mtime`.
    pub modified: i64,
}

/// What is known of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else of the archive")]
pub struct Summary {
    /// The archive that was indexed.
    pub archive: Archive,
    /// The name that its file had then, if it is known: whose index this is.
    pub name: Option<Vec<u8>>,
    /// What shaped the index.
    pub shape: Shape,
    /// Layers of compression, outermost first. Streams are numbered likewise: stream 0 is the file, stream n what
    /// layer n gives.
    pub layers: Vec<Layer>,
    /// [`tarnfs_format::Format::name`], or [`SINGLE_FILE`].
    pub format: String,
    /// Byte of the innermost stream at which the last entry ends (where an append would begin).
    pub end: u64,
    /// Fingerprint of the innermost stream's bytes before `end`, if it is the file itself; what tells that an archive
    /// only grew.
    pub grown_from: Option<Fingerprint>,
    /// Nodes that are not folders.
    pub files: u64,
    /// Folders, the root among them.
    pub folders: u64,
    /// Sum of the files' sizes in bytes.
    pub bytes: u64,
    /// True if any node has extended attributes.
    pub has_xattrs: bool,
    /// True if any node has an access control list.
    pub has_acls: bool,
    /// The name that the archive gives itself.
    pub label: Option<Vec<u8>>,
    /// What was met in the archive that no entry shows, in words ([`tarnfs_format::Event::Unlisted`]): at most
    /// [`MOST_UNLISTED`].
    pub unlisted: Vec<String>,
    /// True if an archive in it stayed a file for want of a password.
    pub has_locked: bool,
    /// True if archives in it have a directory, which may be encrypted. Known only of what was just read.
    pub has_directories: bool,
    /// Entries whose path is not the one that they have in the archive ([`tarnfs_format::name`]).
    pub renamed: Renamed,
    /// What was found broken while indexing, for people: byte of the innermost stream, and a clause. (What must not be
    /// served says [`StreamTables::damage_in`].)
    pub notes: Vec<(u64, String)>,
}

/// Entries whose path leads out of a folder, or is too long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renamed {
    /// How many there are.
    pub count: u64,
    /// The path that the first of them has in the archive, or its beginning.
    pub first: Vec<u8>,
}

impl Renamed {
    /// Bytes of the first path at most.
    pub(crate) const LONGEST: usize = 1024;

    /// There is one more, which has this `path`.
    pub(crate) fn meet(&mut self, path: &[u8]) {
        if self.count == 0 {
            self.first = path.get(..Self::LONGEST).unwrap_or(path).to_vec();
        }
        self.count = self.count.saturating_add(1);
    }

    /// There are these, too, behind those that are known.
    pub fn join(&mut self, more: Self) {
        if self.count == 0 {
            self.first = more.first;
        }
        self.count = self.count.saturating_add(more.count);
    }
}

/// As many things that no entry shows are told of one archive: whoever hears of these knows that it has more.
pub const MOST_UNLISTED: usize = 16;

/// Adds to what is known of an archive that no entry shows.
pub fn join_unlisted(known: &mut Vec<String>, more: Vec<String>) {
    for what in more {
        if known.len() < MOST_UNLISTED && !known.contains(&what) {
            known.push(what);
        }
    }
}

/// What [`Summary::format`] is of a compressed file that is no archive, or in which the archive is compressed again.
pub const SINGLE_FILE: &str = "file";

impl Summary {
    /// True of a compressed file that is no archive, or in which there is something that is compressed again.
    pub fn may_be_single_file(&self) -> bool {
        self.format == SINGLE_FILE
    }

    /// Of an index of the plain `archive` in `format`, in which nothing has been found yet.
    pub fn new(archive: Archive, format: &str) -> Self {
        Self {
            archive,
            name: None,
            shape: Shape::default(),
            layers: Vec::new(),
            format: format.to_owned(),
            end: archive.length,
            grown_from: None,
            files: 0,
            folders: 0,
            bytes: 0,
            has_xattrs: false,
            has_acls: false,
            label: None,
            unlisted: Vec::new(),
            has_locked: false,
            has_directories: false,
            renamed: Renamed::default(),
            notes: Vec::new(),
        }
    }
}

/// Answers from an index file. Here is what shows, and what is said of each file; [`InPieces`] says what is stored in
/// pieces, [`History`] what does not show any more, and [`StreamTables`] how streams are decoded. Safe to share between
/// threads, which do not wait for each other.
///
/// Every value comes from a file that may be broken or lie: an implementor checks each row when it reads it (offsets
/// inside the stream, names that are one component, known kinds, parents that are folders) and answers
/// [`Error::Broken`] otherwise.
#[allow(clippy::type_complexity, reason = "each of these types is used once, where its documentation is")]
pub trait Index: InPieces + History + StreamTables + Send + Sync + Debug {
    /// What is known of the whole.
    fn summary(&self) -> &Summary;

    /// What numbers the nodes: two indexes of the same archive, made with the same options, number them alike if this
    /// is the same. 0 of an index of tarnfs.
    fn numbering(&self) -> u64 {
        0
    }

    /// True if whoever asks may have to wait for a server.
    fn waits(&self) -> bool {
        false
    }

    /// The child `name` of `folder`.
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Option<Row>, Error>;

    /// Hands the children of `folder` to `receive` in a fixed order, beginning with number `from` (0 is the first),
    /// until it returns false. `receive` gets the number of the following child (what to give as `from` to go on
    /// behind this one), the name and the row.
    fn children(&self, folder: Node, from: u64, receive: &mut dyn FnMut(u64, &[u8], &Row) -> bool)
    -> Result<(), Error>;

    /// How many rows `folder` has at most; 0 if it is none.
    fn count(&self, folder: Node) -> Result<u64, Error> {
        let mut count = 0_u64;
        self.children(folder, 0, &mut |_, _, _| {
            count = count.saturating_add(1);
            true
        })?;
        Ok(count)
    }

    /// True if `folder` has a row of that name, be it that of a link that leads nowhere.
    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        Ok(self.lookup(folder, name)?.is_some())
    }

    /// Hands the names of the rows of `folder` to `receive`, those of links that lead nowhere among them.
    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.children(folder, 0, &mut |_, name, _| {
            receive(name);
            true
        })
    }

    /// The node; `None` if there is none of that number.
    fn row(&self, node: Node) -> Result<Option<Row>, Error>;

    /// The node and the name that its own entry has.
    fn named_row(&self, node: Node) -> Result<Option<(Row, Vec<u8>)>, Error>;

    /// The folder that `node` is in, a file or a folder; `None` where it is not known. Slow: it is for messages.
    fn folder_of(&self, node: Node) -> Result<Option<Node>, Error> {
        let _ = node;
        Ok(None)
    }

    /// The folder that `folder` is in; the root is in itself.
    fn parent(&self, folder: Node) -> Result<Node, Error>;

    /// Target of a symbolic link, as stored. Empty if it is stored in pieces ([`Row::has_pieces`]).
    fn link(&self, node: Node) -> Result<Vec<u8>, Error>;

    /// Extended attributes. Of an index of tarnfs in the order of their names.
    fn xattrs(&self, node: Node) -> Result<Xattrs, Error>;

    /// The value of one of them; `None` if there is none of that name.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.xattrs(node)?.into_iter().find(|(key, _)| key == name).map(|(_, value)| value))
    }

    /// From now on [`Index::xattrs`] leaves out those of these names that were computed ([`own::COMPUTED`]): hashes
    /// that the index has and nobody asked for.
    fn hide_xattrs(&self, names: Vec<Vec<u8>>) {
        let _ = names;
    }

    /// Extents of a sparse file.
    fn extents(&self, node: Node) -> Result<Vec<Extent>, Error>;

    /// False if [`Index::extents`] may have to decode, or needs an archive that is not there: who must not wait does
    /// without them.
    fn knows_extents(&self) -> bool {
        true
    }

    /// For an index that does not hold all that headers say: from now on these are read from `stream`, which is the
    /// innermost one and verifies what it decodes.
    fn read_headers_from(&self, stream: &SharedSource) {
        let _ = stream;
    }

    /// Names of owner and group, as stored; empty if none.
    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error>;

    /// The owners that there are: numbers as rows have them, and the names stored with them. `None` where that is not
    /// known without looking at each node.
    fn owners(&self) -> Result<Option<Vec<(Owner, Owner)>>, Error> {
        Ok(None)
    }

    /// Hands every entry that shows to `receive`, in any order, to be counted: that takes far less time than going
    /// through folders. (A folder behind something else of its name is among them, and so is a link that leads
    /// nowhere.) An error of `receive` ends it.
    fn sweep(&self, receive: &mut dyn FnMut(&Swept<'_>) -> Result<(), Error>) -> Result<(), Error> {
        sweep::through_folders(self, receive)
    }
}

/// Why an index could not be used, or not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file of that name.
    #[error("there is no index")]
    Missing,
    /// Somebody else could have written it.
    #[error("not believed: {0}")]
    NotTrusted(String),
    /// It belongs to another state of the archive.
    #[error("does not belong to this archive: {0}")]
    Stale(String),
    /// It belongs to the archive, and shows another tree than the one that was asked for.
    #[error("made {}", with_options(.0))]
    OtherOptions(String),
    /// Written by a later version, or by another program.
    #[error("of a kind that this version does not read: {0}")]
    Unknown(String),
    /// What ratarmount keeps of such an archive is neither read nor written.
    #[error("{0}")]
    Foreign(String),
    /// It contradicts itself or the archive.
    #[error("broken: {0}")]
    Broken(String),
    /// Reading or writing it failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How an index was made, where a call wants another one. `options` is a [`Shape`] in words, or what else is different.
fn with_options(options: &str) -> String {
    if options == shape::NO_OPTIONS { "without options".to_owned() } else { format!("with other options ({options})") }
}
