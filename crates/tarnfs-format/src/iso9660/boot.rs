//! What a computer boots from: the catalogue of El Torito 1.0.

use std::io;

use tarnfs_source::Source;

use super::bytes::{u16_at, u32_at};
use super::descriptor::SECTOR;

/// Bytes of an entry of the catalogue, and how many are looked at: a sector of them.
const ENTRY: usize = 32;

/// An image from which a computer boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    /// Its first byte, and how many it has, as far as the catalogue says.
    pub(super) offset: u64,
    pub(super) size: u64,
    /// What it is taken for: no medium, a floppy disk, a hard disk.
    pub(super) medium: &'static str,
}

/// The images in the catalogue at `sector`, in their order; none if it is damaged.
pub(super) fn images(source: &dyn Source, sector: u64) -> io::Result<Vec<Image>> {
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
