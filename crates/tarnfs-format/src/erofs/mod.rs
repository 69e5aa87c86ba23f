//! EROFS, the read-only file system of Android, containers and others, as Linux's fs/erofs/erofs_fs.h has it.
//!
//! `superblock` says where all is, `inode` what stands in an inode, `attributes` has those that follow it, `listing`
//! the names in a folder. `content` says where the content of a file lies; where that is packed, `clusters` reads the
//! index of it. `volume` reads inodes and content, `reader` walks the folders and makes an [`crate::Entry`] of each
//! name.
//!
//! What is so on purpose:
//!
//! - The first name of an inode is a file, and each other one a hard link, if it has several.
//! - A folder that is reached a second time is damage.
//! - What lies on another device is told with the name of that one, and cannot be read.
//! - An inode that has no time of its own has that of the image.

mod attributes;
mod clusters;
mod content;
mod inode;
mod listing;
mod reader;
mod superblock;
mod volume;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted};

/// EROFS.
#[derive(Debug)]
pub struct Erofs;

const NAME: &str = "erofs";

/// What a superblock gets: its magic and numbers that have to fit each other.
const BITS: u32 = 56;
/// The same with a checksum that is right.
const SUM_BITS: u32 = 88;

impl Format for Erofs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "LZ4, MicroLZMA, deflate and zstd; tails in inodes, chunks, fragments, extended attributes"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".erofs"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match superblock::find(&|offset, length| probe.at(offset, length)) {
            Some(found) if found.has_sum && found.is_right => SUM_BITS,
            Some(_) => BITS,
            None => 0,
        }
    }

    fn head(&self) -> usize {
        4 << 10
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let show = |offset: u64, length: usize| {
            let mut bytes = vec![0; length];
            let read = source.read_at(&mut bytes, offset).unwrap_or_default();
            bytes.truncate(read);
            bytes
        };
        let mut others = Vec::new();
        if show(0, superblock::START as usize).iter().any(|byte| *byte != 0) {
            others.push("boot code in its first 1024 bytes".to_owned());
        }
        let Some(found) = superblock::find(&show) else { return Ok(Unlisted::unknown()) };
        others.extend(crate::around(source, 0..found.length(), cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Erofs {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(&**source, options, receive)?.run()
    }
}
