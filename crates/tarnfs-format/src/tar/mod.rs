//! tar, in all its dialects: v7, ustar, GNU, pax, star, Solaris.
//!
//! The parsers know nothing of streams: `header` reads one block, `numbers` the ways in which tar writes a number,
//! `pax` extended headers, `sparse` maps of holes, `acl` access lists. `inheritance` counts what global headers give to
//! all entries. `member` makes an [`Entry`](crate::Entry) of all that. Only `reader` walks along a stream.
//!
//! What `tar -x` of GNU tar would make is the reference. Where the two differ on purpose:
//!
//! - One size counts, pax over ustar, for the content as for where the next header is. Links, folders, devices and
//!   fifos have no content, whatever their header says; but a hard link with a size is asked what follows it (some
//!   writers store the file again, others only its size).
//! - A header whose pax records are damaged where they may tell its size is passed over, not read with another size.
//! - After damage, the search for the next header goes on past zero blocks, so that holes in a damaged file do not end
//!   the archive. So it does behind a gap of unknown length in a compressed stream, where zeros may be those of a file.
//! - The continuation of a file from an earlier volume is served as the part that it is; `tar` without `-M` skips it.
//!   Where volumes lie one behind the other in one stream ([`Options::ignore_zeros`]), the parts of a file are joined;
//!   those of a sparse file are not.
//! - An empty pax value takes a key away, as POSIX has it; `tar` calls it malformed for numbers.
//! - Of a key that stands twice in one global header the last one counts, as POSIX has it, and as everywhere else;
//!   `tar` takes the first.
//! - A global header with more names and attributes than would be cheap to copy into each of a million entries is
//!   believed only in its numbers. So is one with fewer, from where all entries together would have more of them than
//!   the archive has bytes.
//! - Solaris' ACLs (`A`) are passed over, `tar` makes files of them.

mod acl;
mod header;
mod inheritance;
mod member;
mod numbers;
mod pax;
mod reader;
mod sparse;
mod volumes;

use std::io;

use header::{BLOCK, Block, Check, Dialect, Header, check};
use tarnfs_source::{Cancel, Source};

use crate::{Error, FileStarts, Format, Options, Probe, ReadForwards, Reader, Receive, Stream, Unlisted};

/// All dialects of tar.
#[derive(Debug)]
pub struct Tar;

/// Bits that a right checksum stands for: eight bytes that have to be so and not otherwise.
const CHECKSUM_BITS: u32 = 48;
/// What an archive gets that does not begin with a header but has one soon: less than any format that recognises it.
const DAMAGED_BITS: u32 = 4;
/// What a file of zeros gets: an empty archive, if nothing else wants it.
const EMPTY_BITS: u32 = 1;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn about(&self) -> &'static str {
        "v7, ustar, pax, GNU, star, Solaris; sparse files, incremental dumps, several volumes"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".tar", ".cbt"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let (blocks, rest) = probe.head().as_chunks::<BLOCK>();
        let Some((first, others)) = blocks.split_first() else { return 0 };
        match check(first) {
            Check::Header => match (Header(first).is_plausible(), Header(first).dialect()) {
                (false, _) => 0,
                (true, Dialect::V7) => CHECKSUM_BITS,
                (true, Dialect::Ustar) => CHECKSUM_BITS + 40,
                (true, Dialect::Gnu | Dialect::Star) => CHECKSUM_BITS + 64,
            },
            _ if is_something_else(first) => 0,
            _ if others.iter().any(is_good_header) => DAMAGED_BITS,
            // The end of an archive is two blocks; GNU tar takes one for it as well.
            Check::Zero if others.iter().all(|block| check(block) == Check::Zero) && rest.is_empty() => EMPTY_BITS,
            _ => 0,
        }
    }

    fn unlisted(&self, source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        /// Bytes of a global header that are looked at: that of git has 52.
        const LONGEST: u64 = 4 << 10;
        let mut block = [0; BLOCK];
        let read = source.read_at(&mut block, 0)?;
        if read < BLOCK || check(&block) != Check::Header || Header(&block).typeflag() != b'g' {
            return Ok(Unlisted::default());
        }
        let length = Header(&block).size().unwrap_or_default().min(LONGEST);
        let mut body = vec![0; length as usize];
        let read = source.read_at(&mut body, BLOCK as u64)?;
        let comment = pax::comment(body.get(..read).unwrap_or_default());
        Ok(Unlisted { comment: comment.unwrap_or_default().to_vec(), ..Unlisted::default() })
    }

    fn is_later_volume(&self, head: &[u8]) -> bool {
        volumes::is_later(head)
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }
}

impl ReadForwards for Tar {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::Reader::new(stream, options, receive).run()
    }

    fn continues(&self, head: &[u8]) -> Option<u64> {
        // A global header says something of every entry behind it.
        let first = head.first_chunk()?;
        (Header(first).typeflag() != b'g').then_some(BLOCK as u64)
    }

    fn file_starts(&self) -> Option<FileStarts> {
        // Headers of POSIX and of GNU.
        Some(FileStarts { block: BLOCK as u64, at: 257, magic: b"ustar" })
    }
}

/// A header that nothing but a tar has: the checksum alone is not enough in the middle of something unknown.
fn is_good_header(block: &Block) -> bool {
    check(block) == Check::Header && Header(block).is_plausible() && Header(block).dialect() != Dialect::V7
}

/// True if a file that begins so may have a tar somewhere inside but is not one.
fn is_something_else(first: &Block) -> bool {
    const MAGICS: [&[u8]; 9] =
        [b"PK", b"\x7fELF", b"MZ", b"#!", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"];
    let is_text = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' '..=b'~' | 0x80..);
    MAGICS.iter().any(|magic| first.starts_with(magic))
        || std::str::from_utf8(first).is_ok() && first.iter().all(is_text)
}
