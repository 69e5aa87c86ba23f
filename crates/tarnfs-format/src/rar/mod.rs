//! RAR 1.5 to 7: blocks with headers of their own, each file's before its content, perhaps over several volumes.
//!
//! The parsers are without I/O. `fields` reads what headers are made of, `five` and `four` the headers of RAR 5 and of
//! those before it, `names` the names in them, `services` what belongs to a file. `walk` goes from header to header,
//! through all volumes, and has those decrypted that are encrypted ([`Decode`](crate::Decode)); `volumes` knows what
//! volumes are called. `reader` makes entries.
//!
//! What is stored is read where it lies. All else is a [`Piece`](crate::Piece) that begins with the file's header: its
//! decoder goes from header to header as well, so a file in several volumes and a run of solid files look alike. Files
//! of a run differ in what is skipped.
//!
//! What `7z x` of 7-Zip would make is the reference. Where the two differ on purpose:
//!
//! - Older versions of files (`-ver`) are shown with their number, as `unrar` does it.
//! - Times of DOS, which are those of whoever has packed, are taken for UTC.
//! - Alternate streams of NTFS are extended attributes, if they are short: `user.` and the name. Access lists are not
//!   shown.

mod fields;
mod file;
mod five;
mod four;
mod names;
mod reader;
mod services;
mod volumes;
mod walk;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted, Volume,
    VolumesByFirst,
};

const NAME: &str = "rar";

const MARK_5: &[u8] = b"Rar!\x1a\x07\x01\0";
const MARK_4: &[u8] = b"Rar!\x1a\x07\0";

/// What an archive may follow: the program that unpacks it. UnRAR looks as far.
const MOST_BEFORE: usize = 2 << 20;

/// Bytes behind a program in which an archive begins.
const BEHIND_PROGRAM: usize = 16 << 10;

/// Bits of a mark, and of the checksum of a header.
const MARK_BITS: u32 = 56;
const CHECKSUM_BITS: u32 = 16;

/// Which headers an archive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// RAR 1.5 to 4.
    Four,
    /// RAR 5 to 7.
    Five,
}

impl Version {
    fn mark(self) -> &'static [u8] {
        match self {
            Self::Four => MARK_4,
            Self::Five => MARK_5,
        }
    }

    /// As a decoder takes it.
    fn number(self) -> u8 {
        match self {
            Self::Four => 4,
            Self::Five => 5,
        }
    }
}

/// All versions of RAR but the first.
#[derive(Debug)]
pub struct Rar;

impl Format for Rar {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "1.5 to 7: all methods and filters, solid or not, encrypted (also names), several files (.part1.rar, .r00), links, self-extracting"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".rar", ".cbr"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if [MARK_5, MARK_4].iter().any(|mark| probe.head().starts_with(mark)) {
            return MARK_BITS;
        }
        let behind = crate::program::end(probe).filter(|end| *end < MOST_BEFORE as u64);
        match behind.and_then(|end| walk::find(&probe.at(end, BEHIND_PROGRAM))) {
            Some(_) => MARK_BITS.saturating_add(CHECKSUM_BITS),
            None => 0,
        }
    }

    fn compares_content(&self) -> bool {
        true
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        reader::unlisted(source, cancel)
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }

    fn volumes_by_first(&self) -> Option<&dyn VolumesByFirst> {
        Some(self)
    }
}

impl Fidelity for Rar {
    fn told(&self, shown: &Shown) -> Told {
        let all = Told::all(shown.mtime);
        let is_told = shown.mtime != Time::default();
        Told { owner: (shown.uid, shown.gid) != (0, 0), mtime: all.mtime.filter(|_| is_told), ..all }
    }
}

impl VolumesByFirst for Rar {
    fn first_volumes(&self, name: &[u8]) -> Vec<Vec<u8>> {
        volumes::firsts(name)
    }

    fn next_volume(&self, name: &[u8]) -> Option<Vec<u8>> {
        volumes::next(name)
    }

    fn volume(&self, source: &dyn Source) -> io::Result<Option<Volume>> {
        reader::volume(source)
    }
}

impl ReadRandom for Rar {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
