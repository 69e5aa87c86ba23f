//! Debian's packages: what they install in the folder `data`, and what says how in `control`.
//!
//! The codec of packages has decoded both: the stream is an ar with a magic of its own, whose last member has no
//! length. A member that is a tar is a folder, any other one (the version of the format, signatures) a file.
//!
//! `ar x` and `tar -x` of GNU, in a folder for each, is the reference.

mod reader;

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::{Error, Format, Nature, Options, Probe, ReadForwards, Reader, Receive, Stream, Unlisted};

const NAME: &str = "deb";

/// What the codec puts before the members.
const MAGIC: &[u8] = b"!<debs>\n";

/// Packages of version 2.
#[derive(Debug)]
pub struct Deb;

impl Format for Deb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "control and data as folders, each in every compression; signatures"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".deb", ".udeb", ".ddeb"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if probe.head().starts_with(MAGIC) { 64 } else { 0 }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        // Each member is shown, and what is behind the end of a tar in one is told on the way.
        Ok(Unlisted::default())
    }

    fn nature(&self) -> Nature {
        Nature::Package
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }
}

impl ReadForwards for Deb {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::read(stream, options, receive)
    }
}
