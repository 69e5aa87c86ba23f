//! mtree: text that lists files with their attributes, and nothing of what they hold.
//!
//! `line` takes lines apart, `keywords` says what they tell; only `reader` reads the text. Names are told in one of two
//! ways, or both: as they lie in folders that are entered with their line and left with `..`, or with their whole path.
//!
//! What `bsdtar -tvf` lists is the reference. Where the two differ on purpose: bsdtar then reads the files themselves
//! from the disk, at the path or at `contents=`. That could be any file of whoever mounts it, so nothing is read here:
//! files have the size that is told, and reading them says what is missing. Sums and flags are extended attributes
//! (`user.mtree.sha256`).
//!
//! The format: mtree(5) of FreeBSD, mtree(8) of NetBSD.

mod keywords;
mod line;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};

const NAME: &str = "mtree";

/// What a specification begins with, mostly.
const MAGIC: &[u8] = b"#mtree";

/// Lines that have to be right where it does not.
const LEAST_LINES: usize = 3;

/// Bytes of the text that are looked at for that.
const LOOKED_AT: usize = 4096;

/// Specifications of BSD's mtree and of libarchive.
#[derive(Debug)]
pub struct Mtree;

impl Format for Mtree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "lists of BSD's mtree and libarchive: names and attributes, which have no contents"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".mtree"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        match head.strip_prefix(MAGIC) {
            Some([] | [b' ' | b'\t' | b'\r' | b'\n', ..]) => 48,
            Some(_) => 0,
            None => {
                let is_all = head.len() <= LOOKED_AT;
                let head = head.get(..LOOKED_AT).unwrap_or(head);
                if keywords::are_all_known(head, is_all, LEAST_LINES) { 40 } else { 0 }
            }
        }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("the text of the list, with sums and comments"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Mtree {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Some(1), ..Told::all(shown.mtime) }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Mtree {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
