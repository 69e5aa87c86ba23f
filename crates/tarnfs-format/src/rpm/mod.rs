//! RPM packages: their files at once, with the owners that the package names.
//!
//! The codec of packages has decoded the payload: the stream is the header of the signatures, that of the package, and
//! a cpio. The parsers are without I/O. `header` reads a header, `files` what it says of each file; only `reader` walks
//! along the stream.
//!
//! What `rpm2cpio` and `cpio -i` would make is the reference, with users and groups by name, as RPM installs them.
//! Where the two differ on purpose:
//!
//! - A payload in which files have numbers in place of names (`07070X`, of packages with files of 4 GiB and more) is
//!   read as RPM reads it. GNU cpio does not know it.
//! - Files that are not in the payload (ghosts) are not shown.

mod files;
mod header;
mod reader;

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::{Error, Format, Nature, Options, Probe, ReadForwards, Reader, Receive, Stream, Unlisted};

const NAME: &str = "rpm";

/// Packages of RPM 3 and later.
#[derive(Debug)]
pub struct Rpm;

impl Format for Rpm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "packages and their sources, payloads of every compression, files of any size; owners by name"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".rpm", ".srpm", ".spm"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        // A magic of 8 bytes, and the first entry of the header of the signatures.
        if header::begins_package(probe.head()) { 64 + 32 } else { 0 }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("the headers of the package: what it needs, and its scripts"))
    }

    fn nature(&self) -> Nature {
        Nature::Package
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }
}

impl ReadForwards for Rpm {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::read(stream, options, receive)
    }
}
