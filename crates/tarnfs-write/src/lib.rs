//! Writes archives that anybody can seek in: parallel, in bounded memory, with the same bytes for any number of
//! threads, and with their index in the same pass.
//!
//! What goes in comes as [`Entry`](tarnfs_format::Entry)s with their [`Content`], from the file system ([`files`]) or
//! from anywhere else. An [`ArchiveWriter`] lays them out ([`container`]: tar and zip). The bytes of a tar are cut into
//! blocks, each of which is compressed for itself ([`compress`]), by as many threads as there are ([`pipeline`]). One
//! more thread puts them in order into the [`output`], which gets its name when it is whole. What was written is read
//! along for the index ([`sidecar`]). What a compression gives for a sample can be tried before ([`trial`]).
//!
//! A new compression is one file in `compress/` and one line in [`compress::COMPRESSIONS`]. A new kind of archive is
//! one file in `container/` and one line in [`container::CONTAINERS`].

#![forbid(unsafe_code)]

pub mod compress;
pub mod container;
pub mod files;
pub mod output;
pub mod pipeline;
mod refill;
mod sidecar;
mod stream;
mod target;
pub mod trial;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::io;

use tarnfs_format::Entry;
use tarnfs_tree::open::ReadAlong;

pub use output::Output;
pub use refill::{LEFT_OUT, LeftOut, Refill, RefillError, entry_of};
pub use stream::{BlockStream, Writing};
pub use target::Target;

/// The bytes of a file that goes into an archive.
pub trait Content {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// What is behind every entry without bytes.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Content for Nothing {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }
}

/// Bytes that were expected and did not come. Zeros stand in the archive for them.
#[derive(Debug, Default)]
pub struct Missing {
    /// How many.
    pub bytes: u64,
    /// Why, if reading failed; else the file has become shorter.
    pub error: Option<io::Error>,
}

/// Puts entries into an archive.
pub trait ArchiveWriter {
    /// What cannot be kept of `entry` here, as words that go on "is left out: ". `None` of what can be kept.
    fn why_not(&self, entry: &Entry) -> Option<&'static str>;

    /// What of `entry` is not kept, though it is written: "its extended attributes", ...
    fn leaves_out(&self, entry: &Entry) -> Vec<&'static str>;

    /// What else of `entry` is not kept, in the same words. Of files on a disk nobody expects that there; in
    /// one that becomes such an archive, it may be all that there is.
    fn loses(&self, entry: &Entry) -> Vec<&'static str> {
        let _ = entry;
        Vec::new()
    }

    /// From now on, access lists name users and groups by numbers alone: the numbers are of another machine, which may
    /// call others so than this one.
    fn name_nobody(&mut self) {}

    /// Puts a comment on all of the archive; false if it can have none.
    fn comment(&mut self, comment: &[u8]) -> bool {
        let _ = comment;
        false
    }

    /// Writes `entry`. Of a file with bytes, `body.size` of `content` are read; where `body.extents` tells where data
    /// lie, only those. An error is one of writing.
    fn add(&mut self, entry: &Entry, content: &dyn Content) -> io::Result<Missing>;

    /// True if a second name of a file is an entry that says so; else it is written as a file again.
    fn has_hard_links(&self) -> bool;

    /// Ends the archive. Its output has all bytes then.
    fn finish(self: Box<Self>) -> io::Result<Finished>;
}

/// An archive of which all was written.
#[derive(Debug)]
pub struct Finished {
    /// Where it was written to.
    pub output: Output,
    /// What its index is made of, or why there is none.
    pub index: Option<Result<ReadAlong, tarnfs_tree::open::Problem>>,
    /// Bytes of the archive.
    pub length: u64,
}
