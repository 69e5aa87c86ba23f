//! LHA, and LArc before it: a header for each file, and the file, compressed by itself.
//!
//! `header` reads headers of all levels and their extensions; only `reader` walks along the archive. A file is a
//! [`Piece`](crate::Piece) of its own.
//!
//! What `lha x` would make is the reference. Where the two differ on purpose:
//!
//! - Times of DOS, which are those of whoever has packed, are taken for UTC.
//! - Names that are not in UTF-8 stay as they are; `--encoding` says what they are in. What headers have in UTF-16 is
//!   made UTF-8.
//!
//! The format was never published as a whole. What is known of it: `header.doc.md` of LHa for UNIX.

mod header;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted};

const NAME: &str = "lha";

/// Archives of LHA and LArc.
#[derive(Debug)]
pub struct Lha;

impl Format for Lha {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "headers of all levels; lh0, lh1, lh4 to lh7, lhx, lz4, lz5, lzs; owners, modes and links of Unix"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".lzh", ".lha", ".lzs"]
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

impl Fidelity for Lha {
    fn told(&self, shown: &Shown) -> Told {
        let all = Told::all(shown.mtime);
        let is_told = shown.mtime != Time::default();
        Told { owner: (shown.uid, shown.gid) != (0, 0), mtime: all.mtime.filter(|_| is_told), ..all }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Lha {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }

    fn heeds_held(&self) -> bool {
        true
    }
}
