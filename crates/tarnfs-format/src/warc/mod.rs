//! WARC: what a crawler has met, a record for each request and answer, one behind the other. Mostly each record is
//! compressed by itself (`.warc.gz`).
//!
//! `header` reads what a record begins with, `place` makes a path of an address; only `reader` walks along a stream.
//! Answers are files at their addresses (`https/example.com/folder/page`), with the date of the record as their time:
//! where one was met several times, the last answer shows, and those before are its older versions. A page `a` that has
//! others below it is `a/index.html` if one of those was met before, else they are in `a.d`. The headers of HTTP
//! are not shown. All other records are in the folder `.records`, by their kinds.
//!
//! The format: ISO 28500, <https://iipc.github.io/warc-specifications/>.

mod header;
mod place;
mod reader;

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadForwards, Reader, Receive, Shown, Stream, Told, Unlisted};

const NAME: &str = "warc";

/// WARC 0.17 to 1.1.
#[derive(Debug)]
pub struct Warc;

impl Format for Warc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "0.17 to 1.1, also `.warc.gz`; answers by their addresses, all other records by their kinds"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".warc"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if header::version(probe.head()).is_some() { 48 } else { 0 }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("the headers of its records and of HTTP"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Warc {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Told::all(shown.mtime).mtime, ..Told::NOTHING }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadForwards for Warc {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::read(stream, options, receive)
    }
}
