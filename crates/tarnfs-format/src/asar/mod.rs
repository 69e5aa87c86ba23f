//! asar: the archives of Electron. A header in JSON says where each file lies; nothing is compressed.
//!
//! `tree` reads the header; only `reader` reads the archive. What `asar extract` would make is the reference. Where the
//! two differ on purpose:
//!
//! - Files that lie beside the archive (`unpacked`) have a size, but cannot be read.
//! - The hashes of the header (`integrity`) are not compared.
//!
//! The format: <https://github.com/electron/asar#format>.

mod reader;
mod tree;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};

const NAME: &str = "asar";

/// All versions of asar.
#[derive(Debug)]
pub struct Asar;

impl Format for Asar {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "files, links, executables"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".asar"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        // Four lengths that follow from each other, and the start of an object.
        if reader::Start::read(probe.head()).is_some() && probe.head().get(16) == Some(&b'{') { 32 + 32 + 8 } else { 0 }
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

impl Fidelity for Asar {
    fn told(&self, _: &Shown) -> Told {
        Told::NOTHING
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Asar {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
