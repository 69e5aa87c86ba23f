//! cpio: the old binary one in both orders of bytes, odc (POSIX 1988), newc and crc (SVR4).
//!
//! The parsers know nothing of streams: `header` reads one header, `links` finds out which names are one file,
//! `checksum` adds up what goes by. Only `reader` walks along a stream.
//!
//! What `cpio -i` of GNU would make is the reference. Where the two differ on purpose:
//!
//! - Archives one behind the other, with zeros between them, are one, as Linux reads its initramfs. Of them the kernel
//!   also undoes compression: what comes compressed behind an archive is shown as one file (`part-2.zst`), which is
//!   opened as any other compressed file in an archive is.
//! - Names of one file with content each (odc, binary) are one file only if all that their headers say is the same:
//!   their inodes have few digits.
//! - The checksums of crc are compared where the content goes by anyway, in a compressed stream. What can be skipped is
//!   not read for them, but where somebody wants to know ([`Format::wrong_checksums`]).
//! - A name that is longer than [`tarnfs_source::Limits::path`] is cut, one longer than
//!   [`tarnfs_source::Limits::extended_header`] is no header.

mod checksum;
mod header;
mod links;
mod reader;

use std::io;

use header::{Dialect, LONGEST, find, is_plausible};
use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Damage, Error, Event, Format, ForwardStream, Options, Probe, ReadForwards, Reader, Receive, SourceStream, Stream,
    Unlisted,
};

/// All dialects of cpio.
#[derive(Debug)]
pub struct Cpio;

/// Bits of six digits of magic, and of numbers that have to be digits.
const DIGITS_BITS: u32 = 48 + 160;
/// Bits of a magic of two bytes, a type, and the end of a name at its place.
const BINARY_BITS: u32 = 16 + 1 + 15;
/// What an archive gets whose start is damaged: less than any format that recognises it.
const DAMAGED_BITS: u32 = 3;

impl Format for Cpio {
    fn name(&self) -> &'static str {
        "cpio"
    }

    fn about(&self) -> &'static str {
        "newc, crc, odc, both binary orders; an initramfs of several parts"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".cpio"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        match Dialect::of(head) {
            Some(dialect) if is_plausible(head, dialect) => match dialect {
                Dialect::Binary(_) => BINARY_BITS,
                _ => DIGITS_BITS,
            },
            _ if is_something_else(head) => 0,
            // The old one has too little that could be told from chance.
            _ if [Dialect::Newc, Dialect::Crc, Dialect::Odc].iter().any(|&dialect| find(head, dialect).is_some()) => {
                DAMAGED_BITS
            }
            _ => 0,
        }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        // Inodes and sums say nothing of what files are.
        Ok(Unlisted::default())
    }

    fn wrong_checksums(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Vec<Damage>>> {
        let mut head = [0; LONGEST];
        let read = source.read_at(&mut head, 0)?;
        if Dialect::of(head.get(..read).unwrap_or_default()) != Some(Dialect::Crc) {
            return Ok(None);
        }
        // All of it is read there, and the sums of what goes by are compared.
        let mut stream = ForwardStream(SourceStream::new(SharedSource::clone(source), cancel.clone()));
        let options = Options { cancel: cancel.clone(), ..Options::default() };
        let mut found = Vec::new();
        let mut receive = |event, _: &mut dyn Stream| {
            match event {
                Event::Damage(damage) if found.len() < MOST_WRONG => found.push(damage),
                _ => {}
            }
            Ok(())
        };
        reader::Reader::new(&mut stream, &options, &mut receive).run()?;
        Ok(Some(found))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }
}

/// Files with wrong checksums that are told.
const MOST_WRONG: usize = 16;

impl ReadForwards for Cpio {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::Reader::new(stream, options, receive).run()
    }
}

/// True if a file that begins so may have a cpio somewhere inside but is not one.
fn is_something_else(head: &[u8]) -> bool {
    const MAGICS: [&[u8]; 6] = [b"PK", b"\x7fELF", b"MZ", b"#!", b"!<arch>", b"ustar"];
    MAGICS.iter().any(|magic| head.starts_with(magic))
}
