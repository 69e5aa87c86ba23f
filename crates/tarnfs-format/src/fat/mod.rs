//! FAT with 12, 16 and 32 bits, and long names (VFAT): Microsoft's FAT32 File System Specification 1.03.
//!
//! `boot` is the sector at the start, `records` what stands in a folder. What it has in common with exFAT is in
//! [`crate::clusters`]: chains of clusters, and the walk through the folders.
//!
//! What is so on purpose:
//!
//! - Short names are in the characters of code page 437, and in lower case where a record says so, as by Linux.
//! - Times are local ones of nobody knows where. They are taken for UTC.
//! - A file is 0644, or 0444 if it is read-only, and a folder 0755. Other attributes are not shown; hidden files are.
//! - A folder that is reached a second time is damage.
//! - When a file was made is in no tree.

mod boot;
mod records;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::clusters::{self, Clusters, Ends, Listed, Listings, Part, Root};
use crate::image::Budget;
use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Time, Told, Unlisted,
};

/// FAT12, FAT16 and FAT32.
#[derive(Debug)]
pub struct Fat;

const NAME: &str = "fat";

/// What a boot sector gets: numbers that fit each other, and two marks. More than a table of partitions, which may
/// stand in the same sector.
const BITS: u32 = 44;

/// The unit of its times, in ns.
const UNIT: u64 = 2_000_000_000;

impl Format for Fat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "FAT12, FAT16 and FAT32 with long names"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".fat", ".vfat", ".fat12", ".fat16", ".fat32", ".ima", ".vfd"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let found = boot::parse(&probe.at(0, boot::LENGTH), |at, length| probe.at(at, length));
        if found.is_some() { BITS } else { 0 }
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

impl Fidelity for Fat {
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
    let show = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        let read = source.read_at(&mut bytes, at).unwrap_or_default();
        bytes.truncate(read);
        bytes
    };
    let start = clusters::start_of(source, boot::LENGTH)?;
    boot::parse(&start, show).ok_or_else(|| clusters::no_boot_sector(NAME))
}

/// The folders of one.
struct Folders(boot::Boot);

impl Listings for Folders {
    const NAME: &'static str = NAME;
    /// 65536 records.
    const LONGEST: u64 = 2 << 20;
    const ENDS: Ends = Ends::WithChain;

    fn clusters(&self) -> &Clusters {
        &self.0.clusters
    }

    fn root(&self) -> Root {
        self.0.root
    }

    /// All of it.
    const AT_ONCE: u64 = Self::LONGEST;

    fn list(&self, part: Part<'_>, listed: &mut Listed, _: &mut Budget) -> usize {
        records::list(part.bytes, self.0.clusters.width, listed);
        part.bytes.len()
    }
}

impl ReadRandom for Fat {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        let folders = Folders(open(&**source)?);
        clusters::Reader::new(&**source, folders, options, receive).run()
    }
}
