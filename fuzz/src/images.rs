//! Images of file systems and disks, whole or not.

use tarnfs_format::{Event, Format, Options, Probe, Reader};

/// Entries after which a pass ends: further extents of a file are cheap, and so are names of one.
const MOST: usize = 1 << 16;

/// Blocks of an image that is packed.
const MOST_BLOCKS: usize = 8192;

/// Bytes of a block there, and before it.
const BLOCK: usize = 512;
const NUMBER: usize = 2;

pub fn iso9660(data: &[u8]) {
    image(&tarnfs_format::iso9660::Iso9660, data);
}

pub fn disk_image(data: &[u8]) {
    image(&tarnfs_format::disk_image::DiskImage, data);
}

pub fn erofs(data: &[u8]) {
    image(&tarnfs_format::erofs::Erofs, data);
}

pub fn exfat(data: &[u8]) {
    image(&tarnfs_format::exfat::ExFat, data);
}

pub fn fat(data: &[u8]) {
    image(&tarnfs_format::fat::Fat, data);
}

pub fn hfsplus(data: &[u8]) {
    image(&tarnfs_format::hfsplus::HfsPlus, data);
}

pub fn ntfs(data: &[u8]) {
    image(&tarnfs_format::ntfs::Ntfs, data);
}

pub fn partitions(data: &[u8]) {
    image(&tarnfs_format::partitions::Partitions, data);
}

pub fn ext(data: &[u8]) {
    image(&tarnfs_format::ext::Ext, data);
}

/// Reads `data` as an image, which may be packed.
fn image(format: &dyn Format, data: &[u8]) {
    match data.strip_prefix(b"packed") {
        Some(packed) => read(format, &unpack(packed)),
        None => read(format, data),
    }
}

/// An image of which only those blocks are there that are not zeros, each behind its number.
pub(super) fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    for one in packed.chunks_exact(NUMBER + BLOCK) {
        let at = usize::from(u16::from_le_bytes([one[0], one[1]])) % MOST_BLOCKS * BLOCK;
        image.resize(image.len().max(at + BLOCK), 0);
        image[at..at + BLOCK].copy_from_slice(&one[NUMBER..]);
    }
    image
}

pub(super) fn read(format: &dyn Format, data: &[u8]) {
    let source = super::source(data);
    format.bid(&Probe::of_head(&data[..data.len().min(64 << 10)]));
    format.bid(&Probe::new(&data[..data.len().min(4 << 10)], &*source));
    let Reader::Random(reader) = format.reader() else { return };
    let options = Options::default();
    let length = data.len() as u64;
    let mut count = 0;
    // Whether it is read to its end is the image's matter.
    let _ = reader.read(&source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        count += 1;
        if count > MOST {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        super::check_entry(&entry, &options.limits);
        super::check_pieces(&entry, length);
        Ok(())
    });
    let _ = format.unlisted(&*source, &tarnfs_source::Cancel::default());
}
