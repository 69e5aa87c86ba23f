//! XAR, as Apple's installers have it (`.pkg`): a table of contents in XML, and a heap in which files lie one by one.
//!
//! `toc` reads the table; only `reader` reads the archive. The table is decoded by whoever calls
//! ([`Decode`](crate::Decode)), for it is compressed. What is in the heap stands for itself: each file is a
//! [`Piece`](crate::Piece) with a codec of its own.
//!
//! What `xar -x` would make is the reference. Where the two differ on purpose:
//!
//! - Extended attributes without a namespace of Linux are in that of users.
//! - The checksums of the table and of files (SHA-1, MD5) are not compared: zlib, bzip2 and xz have their own.
//!
//! The format: <https://github.com/mackyle/xar/wiki/xarformat>.

mod attributes;
mod reader;
mod toc;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted, big};

const NAME: &str = "xar";

/// What an archive begins with, and the version that is known.
const MAGIC: &[u8] = b"xar!";
const VERSION: u16 = 1;

/// Archives of version 1.
#[derive(Debug)]
pub struct Xar;

impl Format for Xar {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "gzip, bzip2, xz, LZMA and stored; links, devices, extended attributes; also installers of macOS"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".xar", ".pkg", ".mpkg", ".xip"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        let is_one = head.starts_with(MAGIC) && big::u16_at(head, 6) == Some(VERSION);
        if is_one && big::u16_at(head, 4).is_some_and(|length| length >= 28) { 64 } else { 0 }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        // The table is compressed, and nothing here undoes that.
        Ok(Unlisted::but("what its table has beside files, such as signatures, and what is behind these"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Xar {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }

    fn heeds_held(&self) -> bool {
        true
    }
}
