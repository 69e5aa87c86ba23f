//! HFS+ and HFSX: the file systems of macOS before APFS, and of most of its disk images.
//!
//! `volume` reads the volume header, `tree` walks b-trees, `records` takes apart what they hold, `compressed` reads
//! what macOS compresses (decmpfs), and `reader` walks the catalogue and makes an [`crate::Entry`] of each name.
//!
//! What is so on purpose:
//!
//! - Names are as they are stored (decomposed). A slash in one is a colon, as macOS shows it.
//! - Files that macOS has compressed are shown as it shows them.
//! - Extended attributes, Finder's information and resource forks are in the namespace of users. Of both, what is
//!   longer than an attribute of Linux may be is not shown.
//! - The first name of a file with several names is the file. A folder with several names, which only Time Machine
//!   makes, is shown where it lies, and each name is a symbolic link there.
//! - What was in a folder that is lost is in `lost+found`.
//! - A journal is not replayed. That it should be is told.
//!
//! The format: "HFS Plus Volume Format" (Apple, Technical Note TN1150).

mod compressed;
mod reader;
mod records;
mod tree;
mod volume;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted,
};
use volume::Volume;

const NAME: &str = "hfsplus";

/// What a volume header gets: its mark and version, and numbers that have to fit each other.
const BITS: u32 = 56;
/// What a copy of one gets: less than whatever has been written over the volume since.
const COPY_BITS: u32 = 5;

/// HFS+ (version 4) and HFSX (version 5).
#[derive(Debug)]
pub struct HfsPlus;

impl Format for HfsPlus {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "HFS+, HFSX; hard links, extended attributes, resource forks, files that macOS compresses (zlib, LZVN, LZFSE)"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".hfs", ".hfsx", ".hfsplus"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let show = |offset: u64, length: usize| probe.at(offset, length);
        let copy = || probe.length().and_then(|length| Volume::find_copy(&show, length));
        match Volume::find(&show) {
            Some(_) => BITS,
            None if copy().is_some() => COPY_BITS,
            None => 0,
        }
    }

    fn head(&self) -> usize {
        4096
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let Some((volume, _)) = reader::find(source)? else { return Ok(Unlisted::unknown()) };
        let mut others =
            vec!["its volume header and journal, and long resource forks and extended attributes".to_owned()];
        others.extend(crate::around(source, volume.range(), cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for HfsPlus {
    fn told(&self, shown: &Shown) -> Told {
        let told = Told::all(shown.mtime);
        Told { mtime: told.mtime.filter(|_| shown.mtime != Time::default()), ..told }
    }

    fn foreign_xattrs(&self) -> Option<&'static [u8]> {
        Some(b"user.com.apple.")
    }
}

impl ReadRandom for HfsPlus {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(&**source, options, receive)?.run()
    }
}
