//! VHDX, fixed and dynamic ([MS-VHDX] 2.0): headers, tables of regions, a table of what is known of the disk, and one
//! of its blocks.

use std::io;

use tarnfs_source::{Cancel, Source, crc32c};

use super::layout::{Found, LONGEST, Layout, Place, Refusal, Run, Show, read, split, stored};
use super::tables::Tables;
use crate::image::{damaged, is_damage};
use crate::little::{u16_at, u32_at, u64_at};

const MAGIC: &[u8] = b"vhdxfile";
const BITS: u32 = 64;

/// Where the two headers are, and the bytes that their checksums are of.
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER: usize = 4096;
/// Where the two tables of regions are, and their bytes.
const REGIONS: [u64; 2] = [192 << 10, 256 << 10];
const TABLE: usize = 64 << 10;

/// Entries of both tables behind their headers.
const ENTRY: usize = 32;
const REGIONS_AT: usize = 16;
const ITEMS_AT: usize = 32;
const MOST_ENTRIES: usize = 2047;

/// What regions and items are called, as they are stored.
const BLOCKS: [u8; 16] = *b"\x66\x77\xc2\x2d\x23\xf6\x00\x42\x9d\x64\x11\x5e\x9b\xfd\x4a\x08";
const METADATA: [u8; 16] = *b"\x06\xa2\x7c\x8b\x90\x47\x9a\x4b\xb8\xfe\x57\x5f\x05\x0f\x88\x6e";
const PARAMETERS: [u8; 16] = *b"\x37\x67\xa1\xca\x36\xfa\x43\x4d\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b";
const SIZE: [u8; 16] = *b"\x24\x42\xa5\x2f\x1b\xcd\x76\x48\xb2\x11\x5d\xbe\xd8\x3b\xf4\xb8";
const SECTOR: [u8; 16] = *b"\x1d\xbf\x41\x81\x6f\xa9\x09\x47\xba\x47\xf2\x33\xa8\xfa\xab\x5f";

/// Flag of a disk: it has only what differs from another one.
const HAS_PARENT: u32 = 2;

/// Sectors that an entry of another kind stands for, among those of the blocks.
const SECTORS_OF_CHUNK: u64 = 1 << 23;

/// Bits of an entry: what is so with the block, and its place.
const STATE: u64 = 7;
const PLACE: u64 = !0xf_ffff;
const PRESENT: u64 = 6;
const IN_PART: u64 = 7;

/// Entries that are looked at to say how long a run is.
const AT_ONCE: usize = 1 << 11;

const MEBIBYTE: u64 = 1 << 20;

pub(super) fn bid(show: &Show<'_>, _: Option<u64>) -> u32 {
    if show(0, MAGIC.len()) == MAGIC { BITS } else { 0 }
}

#[derive(Debug)]
struct Vhdx {
    length: u64,
    block: u64,
    /// Blocks after which an entry of another kind follows.
    ratio: u64,
    table: u64,
    entries: u64,
    tables: Tables,
}

/// Bytes that begin with `magic`, and have a checksum behind it.
fn checked(source: &dyn Source, at: u64, length: usize, magic: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let bytes = read(source, at, length)?;
    let sum = u32_at(&bytes, 4);
    let mut without = bytes.clone();
    if let Some(place) = without.get_mut(4..8) {
        place.fill(0);
    }
    let is_right = bytes.len() == length && bytes.starts_with(magic) && sum == Some(crc32c(0, &without));
    Ok(is_right.then_some(bytes))
}

/// What is damaged costs nothing of what is there twice.
fn unless_damaged(read: Result<Option<Vec<u8>>, Refusal>) -> Result<Option<Vec<u8>>, Refusal> {
    match read {
        Err(Refusal::Read(_, error)) if is_damage(&error) => Ok(None),
        read => read,
    }
}

pub(super) fn open(source: &dyn Source, _: &Cancel) -> Result<Found, Refusal> {
    let wrong = Refusal::because;
    let mut header: Option<(u64, Vec<u8>)> = None;
    for at in HEADERS {
        let Some(bytes) = unless_damaged(checked(source, at, HEADER, b"head"))? else { continue };
        let number = u64_at(&bytes, 8).unwrap_or_default();
        if header.as_ref().is_none_or(|(other, _)| number > *other) {
            header = Some((number, bytes));
        }
    }
    let (_, header) = header.ok_or_else(|| wrong("the checksums of both headers of the VHDX image are wrong"))?;
    if header.get(48..64).is_some_and(|log| log.iter().any(|byte| *byte != 0)) {
        let what = "the VHDX image was not closed, and its log would have to be replayed first; `qemu-img check -r all` or Windows do that";
        return Err(Refusal::needs(what));
    }
    let mut regions = None;
    for at in REGIONS {
        if regions.is_none() {
            regions = unless_damaged(checked(source, at, TABLE, b"regi"))?;
        }
    }
    let regions =
        regions.ok_or_else(|| wrong("the checksums of both tables of regions of the VHDX image are wrong"))?;
    let count = u32_at(&regions, 8).map_or(0, |count| count as usize).min(MOST_ENTRIES);
    let region = |name: [u8; 16]| {
        let (entries, _) = regions.get(REGIONS_AT..)?.as_chunks::<ENTRY>();
        let entry = entries.iter().take(count).find(|entry| entry.starts_with(&name))?;
        u64_at(entry, 16).zip(u32_at(entry, 24))
    };
    let (table, table_length) = region(BLOCKS).ok_or_else(|| wrong("the VHDX image has no table of blocks"))?;
    let (metadata, _) = region(METADATA).ok_or_else(|| wrong("the VHDX image does not say what its disk is like"))?;
    let items = read(source, metadata, TABLE)?;
    if !items.starts_with(b"metadata") {
        return Err(wrong("what the VHDX image says of its disk is damaged"));
    }
    let count = u16_at(&items, 10).map_or(0, usize::from).min(MOST_ENTRIES);
    let item = |name: [u8; 16]| -> Result<Vec<u8>, Refusal> {
        let entries = items.get(ITEMS_AT..).unwrap_or_default().as_chunks::<ENTRY>().0;
        let entry = entries.iter().take(count).find(|entry| entry.starts_with(&name));
        let place = entry.and_then(|entry| u32_at(entry, 16));
        let place = place.ok_or_else(|| wrong("the VHDX image does not say what its disk is like"))?;
        read(source, metadata.saturating_add(place.into()), 8)
    };
    let (parameters, size, sector) = (item(PARAMETERS)?, item(SIZE)?, item(SECTOR)?);
    let (block, flags) = (u32_at(&parameters, 0).unwrap_or_default(), u32_at(&parameters, 4).unwrap_or_default());
    let (length, sector) = (u64_at(&size, 0).unwrap_or(u64::MAX), u32_at(&sector, 0).unwrap_or_default());
    if flags & HAS_PARENT != 0 {
        return Err(Refusal::needs(
            "it has only what differs from another disk, its parent; `qemu-img convert` makes one image of both",
        ));
    }
    let block = u64::from(block);
    let is_possible = block.is_power_of_two() && (MEBIBYTE..=256 << 20).contains(&block);
    if !is_possible || !matches!(sector, 512 | 4096) || length > LONGEST || !table.is_multiple_of(MEBIBYTE) {
        return Err(wrong("the VHDX image says of its disk what cannot be"));
    }
    let ratio = SECTORS_OF_CHUNK.saturating_mul(sector.into()).checked_div(block).unwrap_or(1).max(1);
    let (entries, tables) = (u64::from(table_length) / 8, Tables::default());
    Ok(Found::new(Vhdx { length, block, ratio, table, entries, tables }))
}

impl Layout for Vhdx {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, wanted: u64) -> io::Result<Run> {
        let (number, inside) = split(at, self.block);
        let (chunk, in_chunk) = split(number, self.ratio);
        let index = number.saturating_add(chunk);
        if index >= self.entries {
            return Err(damaged("the table of the image is too short for its disk"));
        }
        let found = self.tables.entries(source, self.table.saturating_add(index.saturating_mul(8)), 8)?;
        let in_chunk = self.ratio.saturating_sub(in_chunk);
        let left = in_chunk.min(self.entries.saturating_sub(index)).min(AT_ONCE as u64) as usize;
        let mut entries = found.bytes().chunks_exact(8).take(left).filter_map(|entry| u64_at(entry, 0));
        let mut length = self.block.saturating_sub(inside);
        let first = entries.next().unwrap_or_default();
        let is_there = |entry: u64| matches!(entry & STATE, PRESENT | IN_PART);
        if first & STATE == IN_PART {
            return Err(damaged("a block of the image is only there in part"));
        }
        let start = first & PLACE;
        for entry in entries {
            let follows = if is_there(first) {
                entry & STATE == PRESENT && entry & PLACE == start.saturating_add(length).saturating_add(inside)
            } else {
                !is_there(entry)
            };
            if length >= wanted || !follows {
                break;
            }
            length = length.saturating_add(self.block);
        }
        if is_there(first) {
            return Ok(stored(source, start.saturating_add(inside), length));
        }
        Ok(Run { length, place: Place::Hole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_costs_nothing_of_what_is_there_twice() {
        let failed = |error: io::Error| Err(Refusal::Read(7, error));
        assert!(matches!(unless_damaged(failed(damaged("why"))), Ok(None)));
        // A disk that fails now may be read the next time.
        for error in [io::Error::from_raw_os_error(5), io::ErrorKind::TimedOut.into()] {
            assert!(matches!(unless_damaged(failed(error)), Err(Refusal::Read(7, _))));
        }
        assert!(matches!(unless_damaged(Ok(Some(vec![1]))), Ok(Some(bytes)) if bytes == [1]));
        assert!(matches!(unless_damaged(Err(Refusal::needs("it"))), Err(Refusal::Needs(_))));
    }
}
