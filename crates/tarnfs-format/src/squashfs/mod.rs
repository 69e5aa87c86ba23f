//! squashfs 4.0, as Linux's fs/squashfs/squashfs_fs.h and Documentation/filesystems/squashfs.rst have it.
//!
//! An image is a file system: inodes and listings of folders, packed in blocks of 8 KiB, stand behind the blocks of
//! the files. `start` finds the image and reads its superblock, `metadata` reads what is packed, `inode`, `listing` and
//! `attributes` are what is in there. `reader` walks the folders from the root on and makes an [`crate::Entry`] of each
//! inode. Nothing of the files is read.
//!
//! What the kernel makes of an image is the reference. What is so on purpose:
//!
//! - An image may begin anywhere in a file: behind a program (AppImage), in a container (SIF), or behind a script;
//!   behind anything else in its first megabyte, if nothing else is made of the file.
//! - The first name of an inode is a file, and each other one a hard link, whatever number of links is told.
//! - A folder that is reached a second time is damage, and so are inodes or listings that overlap: an image of a few
//!   kilobytes could tell of billions of names with them.
//! - The index of a large folder and the export table are not looked at: they say nothing new.

mod attributes;
mod content;
mod inode;
mod listing;
mod metadata;
mod numbers;
mod reader;
mod start;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted};

/// squashfs, and what has an image of it inside: AppImage, snap, SIF.
#[derive(Debug)]
pub struct Squashfs;

const NAME: &str = "squashfs";

/// What a superblock gets at the start: its magic, version, size of a block (twice), and compression.
const HEAD_BITS: u32 = 96;
/// What one gets further behind, where something tells that it is there: less than a tar or a zip that is there itself.
const BEHIND_BITS: u32 = 36;
/// What a magic alone gets: of another version, or damaged.
const MAGIC_BITS: u32 = 32;

impl Format for Squashfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "version 4 with each compression, extended attributes; inside of AppImage, snap, SIF"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".squashfs", ".sqsh", ".sqfs", ".sfs", ".snap", ".appimage", ".sif"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match start::find(&|offset, length| probe.at(offset, length), probe.length(), probe.searches()) {
            Some((0, Ok(_))) => HEAD_BITS,
            Some((0, Err(_))) => MAGIC_BITS,
            Some((_, Ok(_))) => BEHIND_BITS,
            _ => 0,
        }
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let found = reader::find(source).map_err(|(_, error)| error)?;
        let Some((base, Ok(superblock))) = found else { return Ok(Unlisted::unknown()) };
        let others = crate::around(source, base..base.saturating_add(superblock.length), cancel)?;
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Squashfs {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::open(source, options, receive)?.run()
    }
}
