//! Cabinets of Microsoft: folders of files that are compressed together, perhaps over several cabinets.
//!
//! The parsers are without I/O. `header` reads what a cabinet begins with, its folders and its files; `names` knows
//! what cabinets are called that belong together. `reader` makes entries: a file is a [`Piece`](crate::Piece) of its
//! folder, so files differ in what is skipped.
//!
//! What `cabextract` would make is the reference. Where the two differ on purpose:
//!
//! - Times of DOS, which are those of whoever has packed, are taken for UTC.
//! - Names that are not in UTF-8 stay as they are.
//!
//! The format: [MS-CAB], "Cabinet File Format".

mod header;
mod names;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted, Volume,
    VolumesByFirst,
};

const NAME: &str = "cab";

/// What a cabinet begins with: a signature, and four bytes of zeros.
const MAGIC: &[u8] = b"MSCF\0\0\0\0";

/// What a cabinet may follow: the program that unpacks it.
const MOST_BEFORE: u64 = 2 << 20;

/// Bytes behind a program in which a cabinet begins.
const BEHIND_PROGRAM: usize = 16 << 10;

/// Cabinets of version 1.
#[derive(Debug)]
pub struct Cab;

impl Format for Cab {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "stored, MSZIP, Quantum and LZX, several cabinets, self-extracting"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".cab"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if probe.head().starts_with(MAGIC) {
            return 64;
        }
        let behind = crate::program::end(probe).filter(|end| *end < MOST_BEFORE);
        if behind.is_some_and(|end| reader::find(&probe.at(end, BEHIND_PROGRAM)).is_some()) { 64 } else { 0 }
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

impl Fidelity for Cab {
    fn told(&self, shown: &Shown) -> Told {
        const TWO_SECONDS: u64 = 2_000_000_000;
        Told { mtime: Some(TWO_SECONDS).filter(|_| shown.mtime.seconds != 0), ..Told::NOTHING }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl VolumesByFirst for Cab {
    fn first_volumes(&self, name: &[u8]) -> Vec<Vec<u8>> {
        names::firsts(name)
    }

    fn volume(&self, source: &dyn Source) -> io::Result<Option<Volume>> {
        reader::volume(source)
    }
}

impl ReadRandom for Cab {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }

    fn heeds_held(&self) -> bool {
        true
    }
}
