//! ar: archives of GNU, BSD and Darwin, and Windows' libraries (COFF).
//!
//! `header` reads one header; only `reader` walks along a stream.
//!
//! What `ar x` would make is the reference. Where the two differ on purpose:
//!
//! - Symbol tables are not shown, those of BSD neither.
//! - The members of a thin archive lie in other files, which are never opened; one note says so.
//! - A name with slashes in it has folders.

pub(crate) mod header;
mod reader;

use crate::{Error, Format, Options, Probe, ReadForwards, Reader, Receive, Shown, Stream, Told};

/// All dialects of ar.
#[derive(Debug)]
pub struct Ar;

/// At the start of an archive, and of one whose members lie in other files.
const MAGIC: &[u8; 8] = b"!<arch>\n";
const THIN: &[u8; 8] = b"!<thin>\n";

/// Bits of its magic.
const MAGIC_BITS: u32 = 64;

impl Format for Ar {
    fn name(&self) -> &'static str {
        "ar"
    }

    fn about(&self) -> &'static str {
        "GNU and BSD names, of thin archives nothing but the names"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".a", ".ar"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        if head.starts_with(MAGIC) || head.starts_with(THIN) { MAGIC_BITS } else { 0 }
    }

    fn told(&self, shown: &Shown) -> Told {
        // What ar writes so that the same files make the same archive.
        let is_left_out = (shown.uid, shown.gid, shown.mtime.seconds, shown.mode) == (0, 0, 0, 0o644);
        if is_left_out { Told::NOTHING } else { Told::all(shown.mtime) }
    }

    fn has_hard_links(&self) -> bool {
        false
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }
}

impl ReadForwards for Ar {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::Reader::new(stream, options, receive).run()
    }
}
