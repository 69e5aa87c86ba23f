//! Where in a file an image begins, and its superblock.

use super::numbers::Fields;

/// Bytes of a superblock.
pub(super) const SUPERBLOCK: usize = 96;

/// What every image begins with, in its own order of bytes.
const MAGIC: [u8; 4] = *b"hsqs";

/// Where a table would begin that an image does not have.
pub(super) const NO_TABLE: u64 = u64::MAX;

/// Blocks of files are from 4 KiB to 1 MiB long.
const BLOCK_LOGS: std::ops::RangeInclusive<u16> = 12..=20;

/// Where nothing tells where an image begins, its magic is looked for in so many bytes, so many at a time.
const SEARCHED: u64 = 1 << 20;
const STEP: usize = 64 << 10;
/// What is looked at together: also a magic that lies across the end of a step.
const LOOKED_AT: usize = STEP + MAGIC.len() - 1;
/// So many places that have the magic are tried.
const MOST_TRIED: usize = 256;

/// The first block of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) block_size: u32,
    pub(super) fragments: u32,
    pub(super) compression: u16,
    pub(super) ids: u16,
    /// Where the root's inode is.
    pub(super) root: u64,
    /// Bytes of the image; all offsets count from its start.
    pub(super) length: u64,
    pub(super) id_table: u64,
    pub(super) xattr_table: u64,
    pub(super) inode_table: u64,
    pub(super) listing_table: u64,
    pub(super) fragment_table: u64,
}

/// Why an image cannot be read that has the magic.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It says what cannot be.
    Damaged(String),
    /// It is of another kind.
    Unknown(String),
}

impl Superblock {
    /// Reads one. `None` where there is no magic; an error says why it cannot be read all the same.
    pub(super) fn parse(bytes: &[u8]) -> Option<Result<Self, Refusal>> {
        let magic = bytes.first_chunk()?;
        // The old ones, in the order of bytes of the machine, and those with LZMA before that was taken in.
        if matches!(magic, b"sqsh" | b"qshs" | b"shsq") {
            let version = bytes.get(28..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes));
            // Or that of a machine of another order of bytes.
            let version = if version > 0xff { version >> 8 } else { version };
            return Some(Err(Refusal::Unknown(format!(
                "squashfs version {version} of another make cannot be read, only 4 as Linux has it"
            ))));
        }
        let cut = || Refusal::Damaged("its superblock is cut".to_owned());
        (*magic == MAGIC).then(|| Self::fields(bytes).unwrap_or_else(|_| Err(cut())))
    }

    fn fields(bytes: &[u8]) -> std::io::Result<Result<Self, Refusal>> {
        let mut fields = Fields(bytes.get(4..).unwrap_or_default());
        let (_inodes, _time) = (fields.u32()?, fields.u32()?);
        let (block_size, fragments) = (fields.u32()?, fields.u32()?);
        let (compression, block_log) = (fields.u16()?, fields.u16()?);
        let (_flags, ids) = (fields.u16()?, fields.u16()?);
        let (major, minor) = (fields.u16()?, fields.u16()?);
        let (root, length) = (fields.u64()?, fields.u64()?);
        let (id_table, xattr_table) = (fields.u64()?, fields.u64()?);
        let (inode_table, listing_table, fragment_table) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let _export_table = fields.u64()?;
        if (major, minor) != (4, 0) {
            return Ok(Err(Refusal::Unknown(format!("squashfs version {major} cannot be read"))));
        }
        if !BLOCK_LOGS.contains(&block_log) || 1_u32.checked_shl(block_log.into()) != Some(block_size) {
            let what = format!("its blocks would have {block_size} bytes, or 2 to the power of {block_log}");
            return Ok(Err(Refusal::Damaged(what)));
        }
        let first = SUPERBLOCK as u64;
        let is_in_order = first <= inode_table && inode_table < listing_table && listing_table < id_table;
        let fits = |table: u64| table == NO_TABLE || table < length;
        if !is_in_order || id_table >= length || !fits(xattr_table) || !fits(fragment_table) || ids == 0 {
            return Ok(Err(Refusal::Damaged("its tables lie where they cannot".to_owned())));
        }
        let fields = Self {
            block_size,
            fragments,
            compression,
            ids,
            root,
            length,
            id_table,
            xattr_table,
            inode_table,
            listing_table,
            fragment_table,
        };
        Ok(Ok(fields))
    }
}

/// Shows bytes of a file: at an offset, up to so many.
pub(super) type Show<'s> = dyn Fn(u64, usize) -> Vec<u8> + 's;

/// Where an image begins, and its superblock, or why it cannot be read.
pub(super) type Found = (u64, Result<Superblock, Refusal>);

/// Where an image begins in a file of `length` bytes, if that is known, and its superblock. At the start it may be one
/// that cannot be read; further behind that is none. With `anywhere` it is searched for behind what nothing is known
/// of, too.
pub(super) fn find(show: &Show<'_>, length: Option<u64>, anywhere: bool) -> Option<Found> {
    if let Some(found) = Superblock::parse(&show(0, SUPERBLOCK)) {
        return Some((0, found));
    }
    let length = length?;
    let at = |offset: u64| {
        let found = Superblock::parse(&show(offset, SUPERBLOCK))?.ok()?;
        (found.length <= length.saturating_sub(offset)).then_some((offset, Ok(found)))
    };
    let search = |from: u64| {
        let end = from.saturating_add(SEARCHED).min(length);
        let steps = std::iter::successors(Some(from), |step| step.checked_add(STEP as u64));
        let with_magic = |step: u64| {
            let bytes = show(step, LOOKED_AT);
            let places = bytes.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC);
            places.map(|(place, _)| step.saturating_add(place as u64)).collect::<Vec<_>>()
        };
        steps.take_while(|step| *step < end).flat_map(with_magic).take(MOST_TRIED).find_map(at)
    };
    let head = show(0, 64);
    if head.starts_with(b"\x7fELF") {
        // Most programs have nothing behind them.
        let end = end_of_program(show).filter(|&end| end < length)?;
        return at(end).or_else(|| search(end));
    }
    if head.get(32..).is_some_and(|behind| behind.starts_with(b"SIF_MAGIC")) {
        return parts_of_sif(show).into_iter().find_map(at).or_else(|| search(0));
    }
    (anywhere || head.starts_with(b"#!")).then(|| search(0)).flatten()
}

/// Where a program ends: behind its table of sections, which stands last, or what else there is.
fn end_of_program(show: &Show<'_>) -> Option<u64> {
    let header = show(0, 64);
    let is_64 = header.get(4) == Some(&2);
    let is_big_endian = header.get(5) == Some(&2);
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = header.get(at..at.checked_add(length)?)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    };
    let (segments, size_of_segment, segment_count) = if is_64 {
        (number(32, 8)?, number(54, 2)?, number(56, 2)?)
    } else {
        (number(28, 4)?, number(42, 2)?, number(44, 2)?)
    };
    let (sections, size_of_section, section_count) = if is_64 {
        (number(40, 8)?, number(58, 2)?, number(60, 2)?)
    } else {
        (number(32, 4)?, number(46, 2)?, number(48, 2)?)
    };
    let behind = |table: u64, size: u64, count: u64| table.checked_add(size.checked_mul(count)?);
    let ends = [behind(segments, size_of_segment, segment_count)?, behind(sections, size_of_section, section_count)?];
    ends.into_iter().max()
}

/// Where the parts of a container of Singularity begin.
fn parts_of_sif(show: &Show<'_>) -> Vec<u64> {
    /// Bytes of a descriptor, and how many a container has.
    const DESCRIPTOR: u64 = 585;
    const MOST: u64 = 48;
    /// Kind of a part that is a file system.
    const PARTITION: u32 = 0x4004;
    let Ok(table) = Fields(&show(96, 8)).u64() else { return Vec::new() };
    let part = |number: u64| {
        let descriptor = show(table.checked_add(number.checked_mul(DESCRIPTOR)?)?, 25);
        let mut fields = Fields(&descriptor);
        let kind = fields.u32().ok()?;
        // Whether it is used, its number, its group, and what it belongs to.
        fields.bytes::<13>().ok()?;
        (kind == PARTITION).then(|| fields.u64().ok()).flatten()
    };
    (0..MOST).filter_map(part).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A superblock of an image of 4096 bytes.
    pub(in super::super) fn superblock() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1_u32, 0, 131_072, 0].iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend([1_u16, 17, 0, 1, 4, 0].iter().flat_map(|number| number.to_le_bytes()));
        let tables = [0, 4096, 300, NO_TABLE, 96, 200, NO_TABLE, NO_TABLE];
        bytes.extend(tables.iter().flat_map(|number: &u64| number.to_le_bytes()));
        assert_eq!(bytes.len(), SUPERBLOCK);
        bytes
    }

    fn found(file: &[u8]) -> Option<u64> {
        found_within(file, false).0
    }

    /// Where one is found, and how many bytes were looked at.
    fn found_within(file: &[u8], anywhere: bool) -> (Option<u64>, usize) {
        let looked_at = std::cell::Cell::new(0);
        let show = |offset: u64, length: usize| {
            let rest = file.get(offset as usize..).unwrap_or_default();
            looked_at.set(looked_at.get() + length.min(rest.len()));
            rest[..length.min(rest.len())].to_vec()
        };
        let found = find(&show, Some(file.len() as u64), anywhere).filter(|(_, found)| found.is_ok());
        (found.map(|(at, _)| at), looked_at.get())
    }

    fn image() -> Vec<u8> {
        let mut image = superblock();
        image.resize(4096, 0);
        image
    }

    #[test]
    fn an_image_is_found_at_the_start_behind_a_program_and_behind_a_script() {
        assert_eq!(found(&image()), Some(0));
        // 64 bytes of header, 3 sections of 64 bytes at byte 1000: it ends at byte 1192.
        let mut program = b"\x7fELF\x02\x01\x01".to_vec();
        program.resize(1192, 0);
        program[40..48].copy_from_slice(&1000_u64.to_le_bytes());
        program[58..62].copy_from_slice(&[64, 0, 3, 0]);
        assert_eq!(found(&program), None);
        assert_eq!(found(&[&program[..], &image()].concat()), Some(1192));
        let mut padded = program.clone();
        padded.resize(8192, 0);
        assert_eq!(found(&[&padded[..], &image()].concat()), Some(8192));
        let mut big = program;
        big[5] = 2;
        big[40..48].copy_from_slice(&1000_u64.to_be_bytes());
        big[58..62].copy_from_slice(&[0, 64, 0, 3]);
        assert_eq!(found(&[&big[..], &image()].concat()), Some(1192));
        // At any byte, also across the end of what is looked at together.
        for start in [4096, 4097, STEP - 1, STEP + 5, 3 * STEP - 2] {
            let mut script = b"#!/bin/sh\nhsqs".to_vec();
            script.resize(start, b'\n');
            assert_eq!(found(&[&script[..], &image()].concat()), Some(start as u64));
            assert_eq!(found(&script), None);
        }
        let mut sif = vec![0; 40_000];
        sif[..10].copy_from_slice(b"#!/bin/run");
        sif[32..41].copy_from_slice(b"SIF_MAGIC");
        sif[96..104].copy_from_slice(&4096_u64.to_le_bytes());
        sif[4096 + 585..4096 + 589].copy_from_slice(&0x4004_u32.to_le_bytes());
        sif[4096 + 585 + 17..4096 + 585 + 25].copy_from_slice(&40_000_u64.to_le_bytes());
        assert_eq!(found(&[&sif[..], &image()].concat()), Some(40_000));
    }

    #[test]
    fn behind_what_nobody_knows_a_part_is_searched_if_nothing_else_is_made_of_it() {
        for (start, is_found) in [(5000, true), ((1 << 20) - 1, true), ((1 << 20) + STEP, false)] {
            let file = [vec![b'x'; start], image()].concat();
            let (found, looked_at) = found_within(&file, true);
            assert_eq!(found, is_found.then_some(start as u64));
            assert!(looked_at < (1 << 20) + 2 * STEP, "{looked_at}");
            // Else its first bytes are all that is looked at.
            assert_eq!(found_within(&file, false), (None, SUPERBLOCK + 64));
        }
    }

    #[test]
    fn what_cannot_be_a_superblock_is_none() {
        let at = |place: usize, bytes: &[u8]| {
            let mut image = image();
            image[place..place + bytes.len()].copy_from_slice(bytes);
            Superblock::parse(&image).unwrap()
        };
        assert!(at(0, b"hsqs").is_ok());
        for (place, bytes, expected) in
            [(28, &[3, 0][..], "version 3 cannot be read"), (0, b"sqsh", "of another make cannot be read")]
        {
            let Err(Refusal::Unknown(what)) = at(place, bytes) else { panic!("byte {place}") };
            assert!(what.contains(expected), "{what}");
        }
        for (place, bytes) in [
            (12, &[0, 0, 4, 0][..]),
            (22, &[21, 0]),
            (26, &[0, 0]),
            (40, &[0, 1, 0, 0]),
            (64, &[95]),
            (72, &[96]),
            (48, &[200, 0]),
            (80, &[0, 16, 0, 0, 0, 0, 0, 0]),
        ] {
            assert!(matches!(at(place, bytes), Err(Refusal::Damaged(_))), "byte {place}");
        }
        for length in 0..SUPERBLOCK {
            assert!(!matches!(Superblock::parse(&image()[..length]), Some(Ok(_))), "{length} bytes");
        }
        // Behind a script all of it has to be there.
        let mut script = b"#!/bin/sh\n".to_vec();
        script.resize(4096, b'\n');
        script.extend(&image()[..4095]);
        assert_eq!(found(&script), None);
    }
}
