//! NTFS, versions 1.2 to 3.1.
//!
//! `boot` is the sector at the start, `record` takes records of the table of files (MFT) apart, `stream` says where
//! what a file has lies, `wof` where what Windows has compressed later, and `reader` walks the table and makes an
//! [`crate::Entry`] of each name. The listings of folders (indexes) are not read: each file says itself in which
//! folders it is.
//!
//! What is so on purpose:
//!
//! - Owners and modes are not shown, but for those that Linux on Windows keeps (WSL). A file is 0644, or 0444 if it is
//!   read-only, and a folder 0755.
//! - Files that Windows has compressed are shown as it shows them: LZNT1, and what `compact /exe` makes (WOF).
//! - Streams with a name are extended attributes (`user.NAME`), and so are attributes, short names and times of
//!   creation (`user.ntfs.*`), as of WIM. Streams that are longer than an attribute of Linux may be are not shown, and
//!   neither are security descriptors.
//! - Junctions and symbolic links are those of Linux, without the letter of a drive. So are links that Services for
//!   Unix (Interix) and ntfs-3g have made.
//! - Files of the system itself (`$MFT`, ..., `$Extend`) are not shown.
//! - What was in a folder that is lost is in `lost+found`.
//! - The journal is not replayed. That it should be is told.
//!
//! Microsoft has published no specification. The layout is that which the Linux-NTFS project has found out, and which
//! the kernel's `fs/ntfs3/ntfs.h` has.

mod boot;
mod extended;
mod reader;
mod record;
mod stream;
mod table;
mod wof;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted,
};

const NAME: &str = "ntfs";

/// What a boot sector gets: its mark, zeros, and numbers that fit each other.
const BITS: u32 = 88;
/// What a copy of one gets: less than whatever has been written over the volume since.
const COPY_BITS: u32 = 5;

/// What attributes of Windows are called.
const FOREIGN: &[u8] = b"user.ntfs.";

/// The unit of its times, in ns.
const UNIT: u64 = 100;

/// NTFS.
#[derive(Debug)]
pub struct Ntfs;

impl Format for Ntfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "compressed files (LZNT1, and XPRESS and LZX of Windows 10), holes, links, streams and attributes of Windows"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".ntfs"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let copy = || probe.length().and_then(|length| boot::copy(&|at, length| probe.at(at, length), length));
        match boot::parse(&probe.at(0, boot::LENGTH)) {
            Some(_) => BITS,
            None if copy().is_some() => COPY_BITS,
            None => 0,
        }
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let Some((boot, _)) = boot::find(source)? else { return Ok(Unlisted::unknown()) };
        let mut others = vec!["its journal and security descriptors, and long streams".to_owned()];
        let end = boot.length.saturating_add(boot.sector);
        others.extend(crate::around(source, 0..end, cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Ntfs {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Some(UNIT).filter(|_| shown.mtime != Time::default()), ..Told::NOTHING }
    }

    fn foreign_xattrs(&self) -> Option<&'static [u8]> {
        Some(FOREIGN)
    }
}

impl ReadRandom for Ntfs {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(&**source, options, receive)?.run()
    }
}
