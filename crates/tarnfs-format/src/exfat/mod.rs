//! exFAT, as Microsoft's specification has it (revision 1.00).
//!
//! `boot` is the sector at the start, `records` what stands in a folder. What it has in common with FAT is in
//! [`crate::clusters`]: chains of clusters, and the walk through the folders.
//!
//! What is so on purpose:
//!
//! - A time without a zone is taken for UTC.
//! - A file is 0644, or 0444 if it is read-only, and a folder 0755. Other attributes are not shown; hidden files are.
//! - What was not written of a file yet is zeros.
//! - A folder that is reached a second time is damage, and so is a file whose checksum is wrong: it is left out.

mod boot;
mod records;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::clusters::{self, Clusters, Ends, Listed, Listings, Part, Root};
use crate::image::Budget;
use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted,
};

/// exFAT.
#[derive(Debug)]
pub struct ExFat;

const NAME: &str = "exfat";

/// What a boot sector gets: its mark, zeros, and numbers that fit each other.
const BITS: u32 = 88;

/// The unit of its times, in ns.
const UNIT: u64 = 10_000_000;

impl Format for ExFat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "exFAT 1.00"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".exfat"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if boot::parse(&probe.at(0, boot::LENGTH)).is_some() { BITS } else { 0 }
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        clusters::unlisted(source, open(source).ok().map(|boot| boot.length), cancel)
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for ExFat {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Some(UNIT).filter(|_| shown.mtime != Time::default()), ..Told::NOTHING }
    }

    fn tells_of_unix(&self, _: &dyn Source) -> io::Result<bool> {
        Ok(false)
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

fn open(source: &dyn Source) -> Result<boot::Boot, Error> {
    boot::parse(&clusters::start_of(source, boot::LENGTH)?).ok_or_else(|| clusters::no_boot_sector(NAME))
}

/// The folders of one.
struct Folders(boot::Boot);

impl Listings for Folders {
    const NAME: &'static str = NAME;
    /// Section 7.6.7 of the specification.
    const LONGEST: u64 = 256 << 20;
    const ENDS: Ends = Ends::WithLength;

    fn clusters(&self) -> &Clusters {
        &self.0.clusters
    }

    fn root(&self) -> Root {
        Root::Cluster(self.0.root)
    }

    const AT_ONCE: u64 = 1 << 20;

    fn list(&self, part: Part<'_>, listed: &mut Listed, budget: &mut Budget) -> usize {
        records::list(part, listed, budget)
    }
}

impl ReadRandom for ExFat {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        let folders = Folders(open(&**source)?);
        clusters::Reader::new(&**source, folders, options, receive).run()
    }
}
