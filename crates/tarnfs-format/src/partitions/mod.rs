//! Disks with partitions: a master boot record with primary and logical ones, GUID tables (GPT),
//! and Apple's map of partitions.
//!
//! `table` finds and reads the table, `reader` has what is in each partition told by the format that knows it.
//!
//! What is so on purpose:
//!
//! - A partition is a folder that has its number as its name, as Linux counts them (`/dev/sda1`).
//! - One in which no file system is known is a file: `2.img`. So is one that overlaps another one.
//! - An image of a CD with a table in front, so that it can be copied to a stick, is an image of a CD. If a partition
//!   begins in the CD and goes on behind its end, the table is newer.

mod reader;
mod table;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::image::told_of_any;
use crate::{
    Error, Fidelity, Format, Nature, Options, Part, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
};

/// Disks with partitions.
#[derive(Debug)]
pub struct Partitions;

const NAME: &str = "partitions";

/// What a master boot record gets: two bytes, four that are one of two numbers, and ranges that do not overlap. Less
/// than any file system in whose first sector there may be one.
const BITS: u32 = 38;
/// What a GUID table gets, which has checksums: less than ISO 9660, which is in the same image where both are.
const GUID_BITS: u32 = 52;

/// What Apple's map gets: marks of two records, and a size that is one of four. CDs have one, too.
const APPLE_BITS: u32 = 50;

/// What a table gets that is newer than the CD whose descriptors are still there: more than both formats of these.
const NEWER_BITS: u32 = 90;

/// Sectors of 512 bytes before what only a CD has: a table in front of it has a partition that begins there.
const OF_CD: u64 = 64;

/// Bytes that a partition may have behind the end of a CD: it is padded to a cylinder, or to a whole MiB.
const PADDING: u64 = 1 << 20;

/// True if what says that all of the disk is a CD is what was on it before it was partitioned: programs that do that do
/// not wipe it. A table that was made for a CD has partitions that hold all of it, lie in it, or behind its end. UDF
/// without ISO 9660 is on no CD that has such a table.
fn is_newer(table: &table::Table, show: &table::Show<'_>) -> bool {
    let begins_inside = |one: &&table::Partition| one.start > OF_CD.saturating_mul(table::SECTOR);
    let mut ranges = table.partitions.iter().filter(begins_inside);
    match crate::iso9660::end(show) {
        Some(end) => ranges.any(|one| {
            let behind = one.start.saturating_add(one.length);
            one.start < end && behind > end.saturating_add(PADDING)
        }),
        None => ranges.next().is_some() && crate::udf::has_mark(show),
    }
}

impl Format for Partitions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "MBR with logical partitions, GPT, Apple's map; each partition is a folder, or a file if its file system is not known"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".img", ".raw", ".dd", ".mbr", ".gpt"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let show = |offset: u64, length: usize| probe.at(offset, length);
        match table::find(&show, probe.length()) {
            // CDs for Macs have Apple's map, too, whose partition may go on behind what PCs see.
            Some(table) if table.kind != table::Kind::Apple && is_newer(&table, &show) => NEWER_BITS,
            Some(table) => match table.kind {
                table::Kind::Boot => BITS,
                table::Kind::Apple => APPLE_BITS,
                table::Kind::Guid => GUID_BITS,
            },
            None => 0,
        }
    }

    fn head(&self) -> usize {
        64 << 10
    }

    fn nature(&self) -> Nature {
        Nature::Disk
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let _ = cancel;
        let has_table = reader::open(source)?.is_some();
        let of_table = || Unlisted::but("its table of partitions, and what is between these");
        Ok(if has_table { of_table() } else { Unlisted::unknown() })
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Partitions {
    /// Of archives in it: a partition has its own format.
    fn told(&self, shown: &Shown) -> Told {
        told_of_any(shown)
    }

    fn parts(&self, source: &dyn Source) -> io::Result<Option<Vec<Part>>> {
        reader::parts(source).map(Some)
    }
}

impl ReadRandom for Partitions {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
