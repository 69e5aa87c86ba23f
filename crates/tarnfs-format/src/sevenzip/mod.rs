//! 7z: blocks of compressed files, and a header behind them that says what they are.
//!
//! The parsers are without I/O. `start` reads the first 32 bytes, which say where the header is. `bytes` reads what a
//! header is made of; `streams` and `files` are its two halves, `folder` the graph of coders of one block and `methods`
//! the codecs that undo them. `coders` makes a [`Coder`](crate::Coder) of them. Only `reader` reads
//! the archive, and the header is decoded by whoever calls ([`Decode`](crate::Decode)), for it is compressed, and
//! perhaps encrypted, as files are.
//!
//! A file is a [`Piece`](crate::Piece) of its block: files that share a block differ in what is skipped.
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

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted};

/// The largest header that is read, and the most that one may decode to: of a million files with names of 20
/// characters. It is kept in memory while it is read.
const MOST_HEADER: u64 = 64 << 20;

/// What is small gives no large one, as each of its bytes may tell of a file: those of 7-Zip decode to 5 or 20 times
/// what is stored.
const OF_SMALL_ONE: u64 = 1 << 20;
const FOR_EACH_STORED: u64 = 1024;

/// All versions of 7z.
#[derive(Debug)]
pub struct SevenZip;

/// Bits of the signature, and of the checksum behind it.
const SIGNATURE_BITS: u32 = 48;
const CHECKSUM_BITS: u32 = 32;

/// Bytes behind a program in which an archive begins: what it is to do may be written before it.
const BEHIND_PROGRAM: usize = 16 << 10;

impl Format for SevenZip {
    fn name(&self) -> &'static str {
        "7z"
    }

    fn about(&self) -> &'static str {
        "all methods and filters, solid or not, encrypted (also names), several files (.7z.001), self-extracting"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".7z", ".cb7"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if probe.head().starts_with(start::SIGNATURE) {
            return SIGNATURE_BITS;
        }
        let behind = crate::program::end(probe).filter(|end| *end < reader::MOST_BEFORE as u64);
        match behind.and_then(|end| start::find(&probe.at(end, BEHIND_PROGRAM))) {
            Some(_) => SIGNATURE_BITS + CHECKSUM_BITS,
            None => 0,
        }
    }

    fn compares_content(&self) -> bool {
        true
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let (at, start) = match reader::find_start(source) {
            Ok(found) => found,
            Err(Error::Read { error, .. }) => return Err(error),
            Err(_) => return Ok(Unlisted::unknown()),
        };
        // The header is the last of it.
        let header = at.saturating_add(start::LENGTH as u64).saturating_add(start.offset);
        let others = crate::around(source, at..header.saturating_add(start.length), cancel)?;
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for SevenZip {
    fn told(&self, shown: &Shown) -> Told {
        let is_told = shown.mtime != Time::default();
        let all = Told::all(shown.mtime);
        Told { owner: false, mtime: all.mtime.filter(|_| is_told), ..all }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for SevenZip {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
