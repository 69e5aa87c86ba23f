//! ISO 9660 images: ECMA-119 with Rock Ridge (RRIP 1.12), Joliet, ISO 9660:1999, zisofs and El Torito.
//!
//! `descriptor` finds the last session and its trees, `record` is what stands in the listing of a folder, `rock_ridge`
//! what stands behind each name there. `reader` walks the folders and makes an [`crate::Entry`] of each record. Nothing
//! of the files is read but the tables of compressed ones.
//!
//! What is so on purpose:
//!
//! - Rock Ridge is shown if there is any, else Joliet, else long names, else the short ones, as by Linux.
//! - Of short names only the mark of the first version (`;1`) is taken off. They stay in upper case.
//! - What a computer boots from is in a folder `[BOOT]`, with the names that 7-Zip gives.
//! - Files of another system that go with a file of the same name (resource forks) are left out, as Linux does.
//! - Where Rock Ridge says that a file has several names, those with the same content are hard links.

mod bytes;
mod descriptor;
mod names;
mod reader;
mod record;
mod rock_ridge;
mod zisofs;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted};

/// ISO 9660 images.
#[derive(Debug)]
pub struct Iso9660;

const NAME: &str = "iso9660";

/// What a descriptor gets: its kind, magic and version.
const BITS: u32 = 56;

/// The byte at which the image ends whose descriptors `show` shows, as they say.
pub(crate) fn end(show: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<u64> {
    descriptor::end(show)
}

impl Format for Iso9660 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Rock Ridge, Joliet, level 4, several sessions, files of several extents, zisofs, boot images"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".iso"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match &probe.at(descriptor::FIRST.saturating_mul(descriptor::SECTOR), 7)[..] {
            [0..=3 | 255, magic @ .., 1 | 2] if magic == descriptor::MAGIC => BITS,
            _ => 0,
        }
    }

    fn head(&self) -> usize {
        // In the first of them UDF has its marks, too, behind these.
        64 << 10
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let Some(volume) = descriptor::find(source, 1, cancel)? else { return Ok(Unlisted::unknown()) };
        let mut others = Vec::new();
        let mut before = vec![0; descriptor::FIRST.saturating_mul(descriptor::SECTOR) as usize];
        source.read_exact_at(&mut before, 0)?;
        if before.iter().any(|&byte| byte != 0) {
            others.push("boot code or partitions in its first 32768 bytes".to_owned());
        }
        if volume.boot.is_some() {
            others.push("the catalogue of what a computer boots from".to_owned());
        }
        if volume.start > 0 || descriptor::has_older_session(source, &volume, cancel)? {
            others.push("the sessions before its last one".to_owned());
        }
        if descriptor::has_udf(source)? {
            others.push("what only UDF describes".to_owned());
        }
        if volume.has_other_trees() {
            others.push("a second tree of names (as of Joliet), which may have other files".to_owned());
        }
        let options = Options { cancel: cancel.clone(), ..Options::default() };
        let mut ignore = |_| Ok(());
        let left_out = reader::Reader::open(source, &options, &mut ignore).and_then(reader::Reader::run)?;
        if left_out.hidden {
            others.push("which files are hidden".to_owned());
        }
        if left_out.access_lists {
            others.push("access lists".to_owned());
        }
        if left_out.attributes {
            others.push("extended attributes that have no place in a file system".to_owned());
        }
        if left_out.associated {
            others.push("files of another system that go with others".to_owned());
        }
        let end = volume.start.saturating_add(volume.sectors).saturating_mul(descriptor::SECTOR);
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

impl Fidelity for Iso9660 {
    fn tells_of_unix(&self, source: &dyn Source) -> io::Result<bool> {
        reader::has_rock_ridge(source)
    }
}

impl ReadRandom for Iso9660 {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(&**source, options, receive)?.run().map(drop)
    }
}
