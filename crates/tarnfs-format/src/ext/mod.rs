//! File systems of Linux: ext2, ext3 and ext4, as Linux's fs/ext4/ext4.h and Documentation/filesystems/ext4 have them.
//!
//! `superblock` says where all is, `volume` finds groups and the inodes in them. `inode`, `listing` and `attributes`
//! are what is stored, `map` says where the content of a file lies, `sums` has the checksums. `reader` walks the
//! folders and makes an [`crate::Entry`] of each name. Nothing of the files is read but values of attributes and long
//! targets.
//!
//! What is so on purpose:
//!
//! - Folders are read from their start to their end: an index says nothing new.
//! - The journal is not replayed. That it should be is told.
//! - Where the superblock or the descriptor of a group is damaged, a copy of it is read.
//! - The first name of an inode is a file, and each other one a hard link, if it has several.
//! - A folder that is reached a second time is damage.
//! - What is encrypted is not read: such a folder is empty.
//! - The time at which a file was made is in no tree.

mod attributes;
mod inode;
mod listing;
mod map;
mod reader;
mod sums;
mod superblock;
mod volume;

pub(crate) use sums::crc16;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted};

/// ext2, ext3 and ext4.
#[derive(Debug)]
pub struct Ext;

const NAME: &str = "ext";

/// What a superblock gets: its magic, and numbers that have to fit each other.
const BITS: u32 = 48;
/// What a copy of one gets.
const COPY_BITS: u32 = 40;

impl Format for Ext {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "ext2, ext3, ext4; extents, holes, extended attributes, data in inodes, checksums"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".ext4", ".ext3", ".ext2"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match superblock::find(|offset, length| probe.at(offset, length)) {
            Some((_, false)) => BITS,
            Some((_, true)) => COPY_BITS,
            None => 0,
        }
    }

    fn head(&self) -> usize {
        superblock::LENGTH.saturating_add(superblock::START as usize)
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
        let Some((found, _)) = superblock::find(show) else { return Ok(Unlisted::unknown()) };
        let end = found.blocks.saturating_mul(found.block);
        others.extend(crate::around(source, 0..end, cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Ext {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(&**source, options, receive)?.run()
    }
}
