//! VHD, fixed and dynamic (Microsoft: Virtual Hard Disk Image Format Specification 1.0): a footer, and for dynamic ones
//! a table of the blocks that are there.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::layout::{Found, LONGEST, Layout, Place, Refusal, Run, Show, read, split, stored};
use super::tables::Tables;
use crate::big::{u32_at, u64_at};
use crate::image::damaged;

const COOKIE: &[u8] = b"conectix";
const DYNAMIC_COOKIE: &[u8] = b"cxsparse";

/// Bytes of a footer, and of the header of a dynamic disk.
const FOOTER: usize = 512;
const HEADER: usize = 1024;

/// What a footer gets that has its checksum, and a cookie alone.
const BITS: u32 = 98;
const COOKIE_BITS: u32 = 64;

const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;

const SECTOR: u64 = 512;
const NO_BLOCK: u32 = u32::MAX;

/// Entries that are looked at to say how long a run is.
const AT_ONCE: usize = 1 << 12;

/// True if the sum of all bytes but those of the checksum at `at` is its complement.
fn is_right(bytes: &[u8], at: usize) -> bool {
    let sum = bytes.iter().enumerate().filter(|(place, _)| !(at..at.saturating_add(4)).contains(place));
    let sum = sum.fold(0_u32, |sum, (_, byte)| sum.wrapping_add((*byte).into()));
    u32_at(bytes, at) == Some(!sum)
}

/// Byte of a footer at which its checksum is.
const SUM_AT: usize = 64;

pub(super) fn bid(show: &Show<'_>, length: Option<u64>) -> u32 {
    let head = show(0, FOOTER);
    if head.starts_with(COOKIE) {
        return if is_right(&head, SUM_AT) { BITS } else { COOKIE_BITS };
    }
    let tail = length.and_then(|length| length.checked_sub(FOOTER as u64)).map(|at| show(at, FOOTER));
    let is_fixed =
        |tail: &Vec<u8>| tail.starts_with(COOKIE) && is_right(tail, SUM_AT) && u32_at(tail, 60) == Some(FIXED);
    if tail.as_ref().is_some_and(is_fixed) { BITS } else { 0 }
}

#[derive(Debug)]
struct Fixed {
    length: u64,
}

#[derive(Debug)]
struct Dynamic {
    length: u64,
    block: u64,
    /// Bytes before the data of a block: which of its sectors are there.
    bitmap: u64,
    table: u64,
    entries: u64,
    tables: Tables,
}

pub(super) fn open(source: &dyn Source, _: &Cancel) -> Result<Found, Refusal> {
    let behind = source.len().saturating_sub(FOOTER as u64);
    let (first, last) = (read(source, 0, FOOTER)?, read(source, behind, FOOTER)?);
    let whole = [&last, &first].into_iter().find(|one| one.starts_with(COOKIE) && is_right(one, SUM_AT));
    let footer = whole.ok_or_else(|| Refusal::because("the checksums of both footers of the VHD image are wrong"))?;
    let (place, length, kind) = (u64_at(footer, 16), u64_at(footer, 48), u32_at(footer, 60));
    let length = length.filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| Refusal::because("the disk in the VHD image would be too long"))?;
    let is_last_whole = last.starts_with(COOKIE) && is_right(&last, SUM_AT);
    let mut found = match kind {
        Some(FIXED) => Found::new(Fixed { length }),
        Some(DYNAMIC) => dynamic(source, place.unwrap_or_default(), length)?,
        Some(DIFFERENCING) => {
            let what =
                "it has only what differs from another disk, its parent; `qemu-img convert` makes one image of both";
            return Err(Refusal::needs(what));
        }
        _ => return Err(Refusal::needs("a VHD image of a kind that is not known")),
    };
    if !is_last_whole {
        found.damage.push((
            behind,
            "the footer at the end of the VHD image is missing or damaged; its copy is read".to_owned(),
        ));
    }
    Ok(found)
}

fn dynamic(source: &dyn Source, place: u64, length: u64) -> Result<Found, Refusal> {
    let header = read(source, place, HEADER)?;
    if !header.starts_with(DYNAMIC_COOKIE) || !is_right(&header, 36) {
        return Err(Refusal::because("the header of the dynamic VHD image is damaged"));
    }
    let (table, entries, block) = (u64_at(&header, 16), u32_at(&header, 28), u32_at(&header, 32));
    let (table, entries, block) = (table.unwrap_or_default(), entries.unwrap_or_default(), block.unwrap_or_default());
    if !block.is_power_of_two() || u64::from(block) < SECTOR || !table.is_multiple_of(4) {
        return Err(Refusal::because("the header of the dynamic VHD image says what cannot be"));
    }
    let block = u64::from(block);
    let bitmap = (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
    let (entries, tables) = (entries.into(), Tables::default());
    Ok(Found::new(Dynamic { length, block, bitmap, table, entries, tables }))
}

impl Layout for Fixed {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
        Ok(stored(source, at, self.length.saturating_sub(at)))
    }
}

impl Layout for Dynamic {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, wanted: u64) -> io::Result<Run> {
        let (number, inside) = split(at, self.block);
        if number >= self.entries {
            return Err(damaged("the table of the image is too short for its disk"));
        }
        let found = self.tables.entries(source, self.table.saturating_add(number.saturating_mul(4)), 4)?;
        let left = self.entries.saturating_sub(number).min(AT_ONCE as u64) as usize;
        let mut entries = found.bytes().chunks_exact(4).take(left).filter_map(|entry| u32_at(entry, 0));
        let mut length = self.block.saturating_sub(inside);
        let first = entries.next().unwrap_or(NO_BLOCK);
        if first != NO_BLOCK {
            let start = u64::from(first).saturating_mul(SECTOR).saturating_add(self.bitmap);
            return Ok(stored(source, start.saturating_add(inside), length));
        }
        for _ in entries.take_while(|entry| *entry == NO_BLOCK) {
            if length >= wanted {
                break;
            }
            length = length.saturating_add(self.block);
        }
        Ok(Run { length, place: Place::Hole })
    }
}
