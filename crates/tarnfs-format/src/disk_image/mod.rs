//! Images of disks that are more than the bytes of a disk: qcow2, VMDK, VHD, VHDX, disk images of macOS,
//! and the sparse images of Android.
//!
//! Each of them says where the bytes of a disk lie in it: nowhere (zeros), as they are, or packed. `layout` is what
//! they have in common, and one module of each finds that out: `qcow`, `vmdk`, `vhd`, `vhdx`, `sparse`, `dmg`. `view`
//! shows the disk as a [`Source`], in which the file system or the table of partitions is found that knows what is on
//! it; `moved` makes of places on the disk places in the image. `reader` has what is on the disk told.
//!
//! What is so on purpose:
//!
//! - What is on the disk is shown, as of an image that has nothing around it. A disk on which nothing is known is a
//!   file: `disk.img`.
//! - Tables of the image are read where they are needed, and never as a whole.
//! - An image that needs another file (a backing file, a parent, extents) is refused, with the name of that one.
//! - Snapshots in an image are not shown. That there are some is told.

mod dmg;
mod layout;
mod moved;
mod qcow;
mod reader;
mod sparse;
mod tables;
mod vhd;
mod vhdx;
mod view;
mod vmdk;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::image::told_of_any;
use crate::{
    Damage, Error, Fidelity, Format, Options, Part, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
};

/// Images of disks.
#[derive(Debug)]
pub struct DiskImage;

const NAME: &str = "disk-image";

/// The end of the name of a disk image of macOS.
const DMG: &[u8; 4] = b".dmg";

impl Format for DiskImage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "qcow2, VMDK, VHD, VHDX, DMG, sparse images of Android; what is on the disk, as of one with nothing around it"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".qcow2", ".qcow", ".vmdk", ".vhd", ".vhdx", ".simg", ".dmg"]
    }

    /// A fixed VHD begins as its disk does.
    fn head(&self) -> usize {
        64 << 10
    }

    /// The first block of a disk image of macOS is packed by a codec that would be found there.
    fn is_known_by_its_end(&self, name: &[u8]) -> bool {
        name.last_chunk::<4>().is_some_and(|end| end.eq_ignore_ascii_case(DMG))
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let show = |offset: u64, length: usize| probe.at(offset, length);
        layout::bid(&show, probe.length())
    }

    fn wrong_checksums(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Vec<Damage>>> {
        reader::wrong_checksums(&**source, cancel)
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        reader::unlisted(source, cancel)
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for DiskImage {
    fn told(&self, shown: &Shown) -> Told {
        told_of_any(shown)
    }

    fn tells_of_unix(&self, source: &dyn Source) -> io::Result<bool> {
        reader::tells_of_unix(source)
    }

    fn parts(&self, source: &dyn Source) -> io::Result<Option<Vec<Part>>> {
        reader::parts(source)
    }
}

impl ReadRandom for DiskImage {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
