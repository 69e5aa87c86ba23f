//! ARJ: a header for each file, and the file, compressed by itself.
//!
//! `header` reads headers; only `reader` walks along the archive. A file is a [`Piece`](crate::Piece) of its own.
//!
//! What `arj x` would make is the reference. Where the two differ on purpose:
//!
//! - Times of DOS, which are those of whoever has packed, are taken for UTC.
//! - Of an archive in several files each is one by itself: what begins in another one, or goes on there, cannot be
//!   read.
//! - Neither files with a password can be read, nor special files of Unix.
//!
//! The format: `TECHNOTE.TXT` of ARJ.

mod header;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted};

const NAME: &str = "arj";

/// Archives of ARJ.
#[derive(Debug)]
pub struct Arj;

impl Format for Arj {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "methods 0 to 4; no passwords"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".arj"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        header::bid(probe.head())
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
}

impl Fidelity for Arj {
    fn told(&self, shown: &Shown) -> Told {
        const TWO_SECONDS: u64 = 2_000_000_000;
        Told { mtime: Some(TWO_SECONDS).filter(|_| shown.mtime != Time::default()), ..Told::NOTHING }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Arj {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }

    fn heeds_held(&self) -> bool {
        true
    }
}
