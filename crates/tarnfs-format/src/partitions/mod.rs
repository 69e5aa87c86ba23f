//! Disks with partitions: a master boot record with primary and logical ones, and GUID tables (GPT).
//!
//! `table` finds and reads the table, `reader` has what is in each partition told by the format that knows it.
//!
//! What is so on purpose:
//!
//! - A partition is a folder that has its number as its name, as Linux counts them (`/dev/sda1`).
//! - One in which no file system is known is a file: `2.img`. So is one that overlaps another one.
//! - An image of a CD with a table in front, so that it can be copied to a stick, is an image of a CD.

mod reader;
mod table;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::image::told_of_any;
use crate::{Error, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};

/// Disks with partitions.
#[derive(Debug)]
pub struct Partitions;

const NAME: &str = "partitions";

/// What a master boot record gets: two bytes, four that are one of two numbers, and ranges that do not overlap. Less
/// than any file system in whose first sector there may be one.
const BITS: u32 = 38;
/// What a GUID table gets, which has checksums: less than ISO 9660, which is in the same image where both are.
const GUID_BITS: u32 = 52;

impl Format for Partitions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "MBR with logical partitions, GPT; each partition is a folder, or a file if its file system is not known"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".img", ".raw", ".dd", ".mbr", ".gpt"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match table::find(&|offset, length| probe.at(offset, length), probe.length()) {
            Some(table) if table.is_guid => GUID_BITS,
            Some(_) => BITS,
            None => 0,
        }
    }

    fn head(&self) -> usize {
        64 << 10
    }

    fn is_disk(&self) -> bool {
        true
    }

    fn told(&self, shown: &Shown) -> Told {
        told_of_any(shown)
    }

    fn tells_of_unix(&self, source: &dyn Source) -> io::Result<bool> {
        reader::tells_of_unix(source)
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let _ = cancel;
        let has_table = reader::open(source)?.is_some();
        let others =
            if has_table { vec!["its table of partitions, and what is between these".to_owned()] } else { Vec::new() };
        Ok(Unlisted { others, ..Unlisted::default() })
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Partitions {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
