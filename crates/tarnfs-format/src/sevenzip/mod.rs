//! 7z: blocks of compressed files, and a header behind them that says what they are.
//!
//! The parsers are without I/O. `start` reads the first 32 bytes, which say where the header is. `bytes` reads what a
//! header is made of; `streams` and `files` are its two halves, `folder` the graph of coders of one block and `methods`
//! the codecs that undo them. `coders` makes a [`Coder`] of them. Only `reader` reads the archive, and the header is
//! decoded by whoever calls ([`Decode`]), for it is compressed, and perhaps encrypted, as files are.
//!
//! A file is a [`Piece`] of its block: files that share a block differ in what is skipped.
//!
//! What `7z x` of 7-Zip would make is the reference. Where the two differ on purpose:
//!
//! - Files that an archive wants removed (anti items) are not shown.
//! - An archive that breaks off, or whose header is damaged, is an error: 7-Zip has ways to guess where a header may
//!   be.
//! - A header that keeps values in a stream of their own is an error. No program is known that writes such a one.

mod bytes;
mod coders;
mod files;
mod folder;
mod methods;
mod property;
mod reader;
mod start;
mod streams;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use tarnfs_source::SharedSource;

use crate::{Damage, Entry, Error, Options};

/// The largest header that is read, and the most that one may decode to: of a million files with names of 20
/// characters. It is kept in memory while it is read.
const MOST_HEADER: u64 = 64 << 20;

/// Undoes a coder in memory: what is stored, and how many bytes are to come out. No more may come, and fewer are an
/// error (`UnexpectedEof`).
pub type Decode<'d> = dyn FnMut(&Coder, SharedSource, u64) -> io::Result<Vec<u8>> + 'd;

/// What is found in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A file, folder or link, and where its content is.
    Entry(Box<Entry>, Option<Piece>),
    /// Something is wrong.
    Damage(Damage),
}

/// A run of a file's content, and how it comes from the archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// Bytes of the file that it gives.
    pub length: u64,
    /// Byte of the archive at which it is stored.
    pub offset: u64,
    /// Bytes that it takes there.
    pub stored: u64,
    /// What makes the file's bytes of the stored ones; `None` if they are the same.
    pub coder: Option<Arc<Coder>>,
    /// Bytes that the coder gives in all.
    pub decoded: u64,
    /// Of these, bytes before this piece.
    pub skip: u64,
    /// CRC-32 of this piece's bytes.
    pub crc: Option<u32>,
}

/// How stored bytes become a file's: steps that are undone one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Coder {
    /// In the order in which they are undone: first the one that the archive's bytes go into.
    pub steps: Vec<Step>,
}

/// One step of a [`Coder`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// Name of a codec.
    pub codec: String,
    /// What the codec has to know beside the bytes, in its own form.
    pub properties: Vec<u8>,
    /// Bytes that this step gives, where the last one gives another number.
    pub decoded: Option<u64>,
}

/// All versions of 7z.
#[derive(Debug)]
pub struct SevenZip;

impl SevenZip {
    /// How sure it is that a file which begins with `head` is a 7z archive: the number of bits that had to match.
    pub fn bid(&self, head: &[u8]) -> u32 {
        if head.starts_with(start::SIGNATURE) { 48 } else { 0 }
    }

    /// Hands what the archive in `source` holds to `receive`, in the order of the archive.
    pub fn read(
        &self,
        source: &SharedSource,
        options: &Options,
        decode: &mut Decode<'_>,
        receive: &mut dyn FnMut(Found) -> io::Result<()>,
    ) -> Result<(), Error> {
        reader::read(source, options, decode, receive)
    }
}
