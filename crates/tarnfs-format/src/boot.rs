//! What a computer boots from: the catalogue of El Torito 1.0.

use std::collections::{HashMap, HashSet};
use std::io;

use tarnfs_source::Source;

use crate::little::{u16_at, u32_at};
use crate::{Body, Entry, Kind, Piece};

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 2048;

/// The folder of what a computer boots from.
const FOLDER: &[u8] = b"[BOOT]";

/// Permission bits where nothing says any.
pub(crate) const FOLDER_MODE: u32 = 0o755;
pub(crate) const FILE_MODE: u32 = 0o644;

/// Bytes of an entry of the catalogue, and how many are looked at: a sector of them.
const ENTRY: usize = 32;

/// An image from which a computer boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its first byte, and how many it has, as far as the catalogue says.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// What it is taken for: no medium, a floppy disk, a hard disk.
    pub(crate) medium: &'static str,
}

/// The sector of the catalogue, if `descriptor` is the volume descriptor that says where it is.
pub(crate) fn catalogue(descriptor: &[u8]) -> Option<u64> {
    let is_one = descriptor.starts_with(b"\0CD001") && descriptor.get(7..30) == Some(b"EL TORITO SPECIFICATION");
    u32_at(descriptor, 0x47).filter(|_| is_one).map(u64::from)
}

/// Names of that folder that may be taken. Where all of these are, two folders have the last name.
const MOST_TAKEN: u64 = 1000;

/// Which names of the folder are those of something else in the root: the image may have files that were unpacked from
/// another one. An image may have any number of names, and long ones, so only numbers are kept.
#[derive(Debug, Default)]
pub(crate) struct Taken(HashSet<u64>);

impl Taken {
    /// Takes note of a name in the root.
    pub(crate) fn note(&mut self, name: &[u8]) {
        let Some(behind) = name.strip_prefix(FOLDER) else { return };
        let number = if behind.is_empty() {
            Some(0)
        } else {
            let digits = behind.strip_prefix(b" (").and_then(|behind| behind.strip_suffix(b")"));
            let number = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
            number.filter(|number| Self::name(*number) == name)
        };
        self.0.extend(number.filter(|number| *number < MOST_TAKEN));
    }

    /// The first name that is free.
    fn free(&self) -> Vec<u8> {
        let number = (0..MOST_TAKEN).find(|number| !self.0.contains(number)).unwrap_or(MOST_TAKEN);
        Self::name(number)
    }

    fn name(number: u64) -> Vec<u8> {
        if number == 0 { FOLDER.to_vec() } else { [FOLDER, format!(" ({number})").as_bytes()].concat() }
    }
}

/// A folder of `images`, if there are any. `known` are the lengths of files by the byte at which each begins; the whole
/// has `there` bytes.
pub(crate) fn entries(images: &[Image], known: &HashMap<u64, u64>, taken: &Taken, there: u64) -> Vec<Entry> {
    let path = taken.free();
    let folder = |header| Entry {
        path: path.clone(),
        kind: Kind::Folder,
        mode: FOLDER_MODE,
        header,
        body: Body { offset: header, ..Body::default() },
        ..Entry::default()
    };
    let mut entries: Vec<_> = images.first().map(|image| folder(image.offset)).into_iter().collect();
    for (number, image) in images.iter().enumerate() {
        let number = number.saturating_add(1);
        let start = if images.len() > 1 { format!("{number}-") } else { String::new() };
        let name = format!("{start}Boot-{}.img", image.medium);
        // The catalogue often names only the first sectors of a file.
        let of_file = known.get(&image.offset).copied().unwrap_or_default();
        let size = image.size.max(of_file).min(there.saturating_sub(image.offset));
        let piece = Piece { length: size, offset: image.offset, stored: size, decoded: size, ..Piece::default() };
        let pieces = (size > 0).then(|| vec![piece]);
        let body = Body { offset: image.offset, size, pieces, ..Body::default() };
        let path = [&path[..], b"/", name.as_bytes()].concat();
        entries.push(Entry { path, kind: Kind::File, mode: FILE_MODE, body, ..folder(image.offset) });
    }
    entries
}

/// The images in the catalogue at `sector`, in their order; none if it is damaged.
pub(crate) fn images(source: &dyn Source, sector: u64) -> io::Result<Vec<Image>> {
    let mut catalogue = [0; SECTOR as usize];
    let Some(at) = sector.checked_mul(SECTOR).filter(|at| at.saturating_add(SECTOR) <= source.len()) else {
        return Ok(Vec::new());
    };
    source.read_exact_at(&mut catalogue, at)?;
    let (entries, _) = catalogue.as_chunks::<ENTRY>();
    let Some((validation, entries)) = entries.split_first() else { return Ok(Vec::new()) };
    let sum = (0..ENTRY).step_by(2).filter_map(|at| u16_at(validation, at)).fold(0, u16::wrapping_add);
    if !validation.starts_with(&[1]) || !validation.ends_with(&[0x55, 0xaa]) || sum != 0 {
        return Ok(Vec::new());
    }
    // 0x88 can be booted, 0 cannot now; the others are headers of sections, and what belongs to an entry.
    let mut images = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let [kind @ (0x88 | 0), medium, ..] = *entry else { continue };
        let start = u32_at(entry, 8).map_or(0, u64::from).saturating_mul(SECTOR);
        if start == 0 || start >= source.len() {
            // The first one is always there; behind the others, zeros end the catalogue.
            if number > 0 && kind == 0 {
                break;
            }
            continue;
        }
        let told = u16_at(entry, 6).map_or(0, u64::from).saturating_mul(512);
        let (medium, size) = match medium & 0x0f {
            0 => ("NoEmul", told),
            1 => ("1.2M", 1_228_800),
            2 => ("1.44M", 1_474_560),
            3 => ("2.88M", 2_949_120),
            _ => ("HardDisk", hard_disk(source, start)?.unwrap_or(told)),
        };
        images.push(Image { offset: start, size: size.min(source.len().saturating_sub(start)), medium });
    }
    Ok(images)
}

/// Bytes of a disk whose first sector is at byte `start`: up to the end of its first partition.
fn hard_disk(source: &dyn Source, start: u64) -> io::Result<Option<u64>> {
    let mut sector = [0; 512];
    if start.saturating_add(512) > source.len() {
        return Ok(None);
    }
    source.read_exact_at(&mut sector, start)?;
    let numbers = u32_at(&sector, 446 + 8).zip(u32_at(&sector, 446 + 12));
    let is_table = sector.ends_with(&[0x55, 0xaa]);
    Ok(numbers
        .filter(|_| is_table)
        .map(|(first, count)| u64::from(first).saturating_add(count.into()).saturating_mul(512)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_the_first_name_that_is_free() {
        let mut taken = Taken::default();
        assert_eq!(taken.free(), b"[BOOT]");
        taken.note(b"[BOOT] (1)");
        assert_eq!(taken.free(), b"[BOOT]");
        taken.note(b"[BOOT]");
        assert_eq!(taken.free(), b"[BOOT] (2)");
        for other in ["[BOOT] (02)", "[BOOT] (+2)", "[BOOT](2)", "[BOOT] (2) ", "[BOOT] ()", "[boot] (2)", "[BOOT]2"] {
            taken.note(other.as_bytes());
        }
        assert_eq!(taken.free(), b"[BOOT] (2)");
    }

    /// An image may have millions of names in its root, each of up to 60 KiB.
    #[test]
    fn few_names_are_kept_and_no_long_ones() {
        let mut taken = Taken::default();
        for number in 0..10_000_u64 {
            taken.note(&[FOLDER, &number.to_le_bytes(), &[b'x'; 200]].concat());
        }
        assert_eq!(taken.0.len(), 0);
        for number in 0..10_000 {
            taken.note(&Taken::name(number));
        }
        assert_eq!(taken.0.len() as u64, MOST_TAKEN);
        assert_eq!(taken.free(), Taken::name(MOST_TAKEN));
    }
}
