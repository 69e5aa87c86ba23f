//! What an index may be.

mod own;
mod table;
mod whole;

use std::fs::File;
use std::path::Path;

use tarnfs_format::Kind;

use super::entries::Reader;
use crate::Error;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// None: the entries are only read.
    Nothing,
    /// That of tarnfs.
    Own,
    /// The sidecar of ratarmount.
    Ratarmount,
    /// One table of SQLite, whose key is the path.
    Paths,
    /// All of it in memory, written as MessagePack.
    MessagePack,
    /// The same as JSON.
    Json,
}

impl Backend {
    pub(super) const ALL: [Self; 6] =
        [Self::Nothing, Self::Own, Self::Ratarmount, Self::Paths, Self::MessagePack, Self::Json];

    /// In tables and plots.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "the entries alone",
            Self::Own => "tarnfs",
            Self::Ratarmount => "ratarmount",
            Self::Paths => "one table of paths",
            Self::MessagePack => "MessagePack",
            Self::Json => "JSON",
        }
    }

    /// On a command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Own => "own",
            Self::Ratarmount => "ratarmount",
            Self::Paths => "paths",
            Self::MessagePack => "messagepack",
            Self::Json => "json",
        }
    }

    /// Bytes of memory for each entry that making or opening takes at least; 0 where that does not grow much.
    pub(super) fn memory(self) -> u64 {
        if matches!(self, Self::MessagePack | Self::Json) { whole::MEMORY } else { 0 }
    }

    /// Makes it of all entries. Returns how many seconds of that went into what is no part of it.
    pub(super) fn make(self, entries: &mut Reader, path: &Path) -> Result<Option<f64>, Error> {
        match self {
            Self::Nothing => {
                for entry in entries {
                    entry.map_err(Error::at(path))?;
                }
                return Ok(None);
            }
            Self::Own => own::make(entries, path)?,
            Self::Ratarmount => return own::make_for_ratarmount(entries, path).map(Some),
            Self::Paths => table::make(entries, path)?,
            Self::MessagePack | Self::Json => whole::make(self == Self::Json, entries, path)?,
        }
        // The others end so themselves.
        File::open(path).and_then(|file| file.sync_all()).map_err(Error::at(path))?;
        Ok(None)
    }

    /// Opens it.
    pub(super) fn open(self, path: &Path) -> Result<Box<dyn Opened>, Error> {
        match self {
            Self::Nothing => Err(Error::Other("there is nothing to open".to_owned())),
            Self::Own => own::open(path),
            Self::Ratarmount => table::open(path, true),
            Self::Paths => table::open(path, false),
            Self::MessagePack | Self::Json => whole::open(self == Self::Json, path),
        }
    }
}

/// A folder that was looked up.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Its path; empty for the root.
    pub(super) path: Vec<u8>,
    /// Its number, where it has one.
    pub(super) node: u64,
}

/// What is known of an entry: what a file system has to say of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) seconds: i64,
    /// Of a folder, as in [`Known`].
    pub(super) node: u64,
}

/// An open index.
pub(super) trait Opened {
    /// The folder of that path.
    fn known(&self, path: &[u8]) -> Result<Known, Error>;

    /// What has this name in a folder.
    fn lookup(&self, folder: &Known, name: &[u8]) -> Result<Option<Found>, Error>;

    /// What has this path, from the root on.
    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error>;

    /// Hands all that is in a folder to `receive`.
    fn list(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error>;
}

/// For `map_err`: what went wrong with an index.
fn failed(error: impl std::fmt::Display) -> Error {
    Error::Other(error.to_string())
}

/// `st_mode` with the type.
const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const FILE: u32 = 0o100_000;

/// Type and permission bits in one number.
fn full_mode(entry: &tarnfs_format::Entry) -> u32 {
    entry.mode
        | match entry.kind {
            Kind::Folder => FOLDER,
            Kind::Symlink => LINK,
            _ => FILE,
        }
}

fn kind_of(mode: u32) -> Kind {
    match mode & TYPE {
        FOLDER => Kind::Folder,
        LINK => Kind::Symlink,
        _ => Kind::File,
    }
}
