//! ar: archives of GNU, BSD and Darwin, and Windows' libraries (COFF).
//!
//! `header` reads one header; only `reader` walks along a stream.
//!
//! What `ar x` would make is the reference. Where the two differ on purpose:
//!
//! - Symbol tables are not shown, those of BSD neither.
//! - The members of a thin archive lie in other files, which are never opened: they are shown, but cannot be read; one
//!   note says so.
//! - A name with slashes in it has folders.

pub(crate) mod header;
mod reader;

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::{Error, Fidelity, Format, Options, Probe, ReadForwards, Reader, Receive, Shown, Stream, Told, Unlisted};
use header::{HEADER, Header, Name, is_symbols};

/// All dialects of ar.
#[derive(Debug)]
pub struct Ar;

/// At the start of an archive, and of one whose members lie in other files.
const MAGIC: &[u8; 8] = b"!<arch>\n";
const THIN: &[u8; 8] = b"!<thin>\n";

/// What the name of a table of symbols begins with, of BSD.
const SYMBOLS: &[u8] = b"__.SYMDEF";

/// Bits of its magic.
const MAGIC_BITS: u32 = 64;

impl Format for Ar {
    fn name(&self) -> &'static str {
        "ar"
    }

    fn about(&self) -> &'static str {
        "GNU and BSD names, of thin archives names and sizes"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".a", ".ar"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        if head.starts_with(MAGIC) || head.starts_with(THIN) { MAGIC_BITS } else { 0 }
    }

    fn unlisted(&self, source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        // It comes first. The longest name of one is less than 32 bytes.
        let mut head = [0; MAGIC.len() + HEADER + 32];
        let read = source.read_at(&mut head, 0)?;
        let has_magic = head.starts_with(MAGIC) || head.starts_with(THIN);
        let start = if has_magic { MAGIC.len() } else { 0 };
        let bytes = head.get(start..read).and_then(|bytes| bytes.split_first_chunk::<HEADER>());
        // It may have no members at all.
        let Some((first, content)) = bytes else { return Ok(Unlisted::default()) };
        let has_symbols = match Header::read(first).map(|header| header.name) {
            Some(Name::Symbols) => true,
            Some(Name::Short(name)) => is_symbols(name),
            Some(Name::Before(_)) => content.starts_with(SYMBOLS),
            Some(Name::Names | Name::Table(_)) | None => false,
        };
        let others = has_symbols.then(|| "its table of symbols".to_owned());
        Ok(Unlisted::of(others.into_iter().collect()))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Ar {
    fn told(&self, shown: &Shown) -> Told {
        // What ar writes so that the same files make the same archive.
        let is_left_out = (shown.uid, shown.gid, shown.mtime.seconds, shown.mode) == (0, 0, 0, 0o644);
        if is_left_out { Told::NOTHING } else { Told::all(shown.mtime) }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadForwards for Ar {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::Reader::new(stream, options, receive).run()
    }
}
