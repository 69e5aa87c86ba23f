//! WIM: images of Windows. A table of resources by their SHA-1, and for each image a tree of folders that names them.
//!
//! `header` reads the header and where resources lie, `dentry` the trees; only `reader` reads the archive. Trees are
//! resources themselves, which whoever calls decodes ([`Decode`](crate::Decode)). A file is a [`Piece`](crate::Piece)
//! of its resource; in solid resources (ESD) many files were compressed together.
//!
//! What `wimlib-imagex apply` makes on Linux is the reference. Where the two differ on purpose:
//!
//! - Where there are several images, each is a folder that is called by its number, as in 7-Zip.
//! - What Windows keeps for a file that is no link (of a driver that fetches or decompresses it) is an extended
//!   attribute (`user.ntfs.reparse`), with the eight bytes before it that NTFS has. The content is the file's other
//!   stream.
//! - What Windows has encrypted (EFS) is damage where `apply` only warns: it cannot be read.
//! - Alternate streams are extended attributes (`user.NAME`), and so are attributes, short names, times of creation and
//!   security descriptors of Windows (`user.ntfs.*`).
//! - Extended attributes that `wimlib-imagex capture --unix-data` has stored are shown, and those that Windows calls so
//!   are `user.ntfs.ea.NAME`.
//! - The SHA-1 of each file is compared when it is read; the table of SHA-1 over the whole archive (integrity table) is
//!   not compared.
//!
//! The format: "Windows Imaging File Format (WIM)", of Microsoft; of solid resources, the sources of wimlib.

mod dentry;
mod header;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Kind, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};
use header::{HEADER, Header};

const NAME: &str = "wim";

/// What attributes of Windows are called. Of files that wimlib has captured with those of Unix, it tells no time of
/// creation.
const FOREIGN: &[u8] = b"user.ntfs.";
const CREATED: &[u8] = b"user.ntfs.created";

/// WIM, split or not, and ESD.
#[derive(Debug)]
pub struct Wim;

impl Format for Wim {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "XPRESS, LZX, LZMS, solid (ESD); several images; links, streams, attributes of Windows and of wimlib on Unix"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".wim", ".esd", ".swm"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if Header::read(probe.head()).is_some() { 64 + 32 } else { 0 }
    }

    fn compares_content(&self) -> bool {
        true
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let mut head = [0; HEADER];
        let read = source.read_at(&mut head, 0)?;
        let header = Header::read(head.get(..read).unwrap_or_default());
        let Some(header) = header else { return Ok(Unlisted::unknown()) };
        let mut others = Vec::new();
        if header.descriptions.length > 0 {
            others.push("the names and descriptions of its images (XML)".to_owned());
        }
        others.extend(crate::around(source, 0..header.end(), cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Wim {
    fn told(&self, shown: &Shown) -> Told {
        let told = Told::all(shown.mtime);
        // A link has no attributes that say whether anything of Unix is told.
        let is_untold = shown.kind == Kind::Symlink && (shown.uid, shown.gid) == (0, 0);
        Told { owner: !is_untold, mtime: told.mtime.map(|unit| unit.max(100)), ..told }
    }

    fn xattr_without_unix(&self) -> Option<&'static [u8]> {
        Some(CREATED)
    }

    fn foreign_xattrs(&self) -> Option<&'static [u8]> {
        Some(FOREIGN)
    }
}

impl ReadRandom for Wim {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }

    fn heeds_held(&self) -> bool {
        true
    }
}
