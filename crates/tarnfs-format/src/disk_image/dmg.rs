//! Disk images of macOS (UDIF, `.dmg`): parts of a disk, packed one by one, a property list that has their tables, and
//! a trailer of 512 bytes at the end that says where that is. Apple has published nothing; what is here is what
//! `hdiutil` writes.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tarnfs_source::{Cancel, Source};

use super::layout::{
    Found, LONGEST, LONGEST_BLOCK, Layout, Packed, Place, Refusal, Run, Show, Sum, coder, read, stored,
};
use crate::Coder;
use crate::big::{u32_at, u64_at};

const MAGIC: &[u8] = b"koly";
const TRAILER: u64 = 512;

/// Of images that are encrypted: at the start, and of the first version at the end.
const ENCRYPTED: &[u8] = b"encrcdsa";
const ENCRYPTED_FIRST: &[u8] = b"cdsaencr";

/// What a trailer gets: its magic, version and length.
const BITS: u32 = 96;
const ENCRYPTED_BITS: u32 = 64;
/// A comment of another archive may end so.
const ENCRYPTED_FIRST_BITS: u32 = 12;

const SECTOR: u64 = 512;

/// Bytes of the property list, of which a block takes 54.
const LONGEST_LIST: u64 = 64 << 20;
/// Blocks: 32 MiB of memory, and 256 GiB of a disk in blocks of 256 KiB.
const MOST_BLOCKS: usize = 1 << 20;

/// Tables that are wrong, after which no more are looked at: `hdiutil` writes some ten in all.
const MOST_WRONG: usize = 100;

const TABLE: &[u8] = b"mish";
/// Bytes before the blocks of a table, and of each.
const BEFORE_BLOCKS: usize = 204;
const OF_BLOCK: usize = 40;

/// Kinds of blocks.
const ZEROS: u32 = 0;
const RAW: u32 = 1;
const FREE: u32 = 2;
const COMMENT: u32 = 0x7fff_fffe;
const END: u32 = u32::MAX;
const PACKED: [(u32, &str); 5] = [
    (0x8000_0004, "adc-block"),
    (0x8000_0005, "zlib-block"),
    (0x8000_0006, "bzip2-block"),
    (0x8000_0007, "lzfse-block"),
    (0x8000_0008, "xz-block"),
];

/// The kind of checksum that is a CRC-32.
const CRC_32: u32 = 2;

#[derive(Debug, Clone, Copy)]
struct Block {
    /// The first byte of the disk that it is, and how many it is.
    start: u64,
    length: u64,
    /// Where it is stored, and bytes that it takes there.
    at: u64,
    stored: u32,
    /// The number of its coder, [`AS_IT_IS`] or [`NOTHING`].
    kind: u8,
}

impl Block {
    /// Bytes that it takes where it is stored; of what is as it is, it may be any number.
    fn stored_length(&self) -> u64 {
        if self.stored == u32::MAX { self.length } else { self.stored.into() }
    }
}

const AS_IT_IS: u8 = u8::MAX;
const NOTHING: u8 = u8::MAX - 1;

#[derive(Debug)]
struct Dmg {
    length: u64,
    blocks: Vec<Block>,
    coders: [Arc<Coder>; PACKED.len()],
}

fn is_trailer(trailer: &[u8]) -> bool {
    trailer.starts_with(MAGIC) && u32_at(trailer, 4) == Some(4) && u32_at(trailer, 8) == Some(TRAILER as u32)
}

/// Where the property list lies that a trailer tells of: before the trailer.
fn list(trailer: &[u8], length: u64) -> Option<(u64, u64)> {
    let (at, bytes) = (u64_at(trailer, 216)?, u64_at(trailer, 224)?);
    let end = at.checked_add(bytes).filter(|_| bytes > 0)?;
    (end <= length.checked_sub(TRAILER)?).then_some((at, bytes))
}

pub(super) fn bid(show: &Show<'_>, length: Option<u64>) -> u32 {
    if show(0, ENCRYPTED.len()) == ENCRYPTED {
        return ENCRYPTED_BITS;
    }
    let Some(length) = length else { return 0 };
    let end = |bytes: u64| length.checked_sub(bytes);
    if let Some(trailer) = end(TRAILER).map(|at| show(at, TRAILER as usize)).filter(|trailer| is_trailer(trailer)) {
        // An archive whose last file is such an image ends so, too: then the list lies elsewhere.
        let starts = |(at, _)| [&b"<?xml"[..], b"<plist"].iter().any(|start| show(at, start.len()) == *start);
        return if list(&trailer, length).is_some_and(starts) { BITS } else { 0 };
    }
    let is_encrypted =
        end(ENCRYPTED_FIRST.len() as u64).is_some_and(|at| show(at, ENCRYPTED_FIRST.len()) == ENCRYPTED_FIRST);
    if is_encrypted { ENCRYPTED_FIRST_BITS } else { 0 }
}

pub(super) fn open(source: &dyn Source, cancel: &Cancel) -> Result<Found, Refusal> {
    let trailer = read(source, source.len().saturating_sub(TRAILER), TRAILER as usize)?;
    if !is_trailer(&trailer) {
        return Err(Refusal::needs("the disk image is encrypted; `hdiutil convert` of macOS decrypts it"));
    }
    let cut = || Refusal::because("the trailer of the disk image is cut");
    let long = |at: usize| u64_at(&trailer, at).ok_or_else(cut);
    let (data, data_length) = (long(24)?, long(32)?);
    if u32_at(&trailer, 60).is_some_and(|segments| segments > 1) {
        return Err(Refusal::needs(
            "it is a part of a disk image in several files; `hdiutil convert` makes one of them",
        ));
    }
    let place = list(&trailer, source.len()).filter(|(_, length)| *length <= LONGEST_LIST);
    let Some((list, list_length)) = place else {
        return Err(Refusal::because("its property list would lie behind the end of the disk image, or is too long"));
    };
    let text = read(source, list, list_length as usize)?;
    let (mut blocks, mut damage) = (Vec::new(), Vec::new());
    for table in tables(&text) {
        cancel.check().map_err(|error| Refusal::Read(list, error))?;
        if let Err(what) = add(table, data, &mut blocks) {
            damage.push((list, what.to_owned()));
        }
        if damage.len() >= MOST_WRONG {
            break;
        }
    }
    if blocks.is_empty() {
        return Err(Refusal::because("its property list has no blocks"));
    }
    blocks.sort_by_key(|block| block.start);
    let end = blocks.iter().map(|block| block.start.saturating_add(block.length)).max().unwrap_or_default();
    let length = long(492)?.saturating_mul(SECTOR).max(end);
    if length > LONGEST {
        return Err(Refusal::because(format!("the disk would have {length} bytes")));
    }
    let layout = Dmg { length, blocks, coders: PACKED.map(|(_, name)| coder(name)) };
    let mut found = Found::new(layout);
    found.damage = damage;
    let has_sum = u32_at(&trailer, 80) == Some(CRC_32) && u32_at(&trailer, 84) == Some(32) && data_length > 0;
    let range = data..data.saturating_add(data_length);
    found.sum = u32_at(&trailer, 88).filter(|_| has_sum && range.end <= source.len()).map(|crc| Sum { range, crc });
    Ok(found)
}

/// Where `what` is in `text`.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// The tables of blocks in a property list, in base64. They are the data of the dictionaries in the array `blkx`.
fn tables(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let array = find(list, b"<key>blkx</key>").and_then(|at| list.get(at..));
    let end = array.and_then(|array| find(array, b"</array>"));
    let mut rest = array.and_then(|array| array.get(..end.unwrap_or(array.len()))).unwrap_or_default();
    std::iter::from_fn(move || {
        const OPENING: &[u8] = b"<data>";
        rest = rest.get(find(rest, OPENING)?.checked_add(OPENING.len())?..)?;
        let data;
        (data, rest) = rest.split_at_checked(find(rest, b"</data>")?)?;
        Some(data)
    })
}

/// Adds the blocks of a table. Where they are stored counts from byte `data` on. Of those that cannot be, nobody knows
/// where they lie; the others are added.
fn add(table: &[u8], data: u64, blocks: &mut Vec<Block>) -> Result<(), &'static str> {
    let text: Vec<u8> = table.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let table = BASE64_STANDARD.decode(text).map_err(|_| "a table of blocks is not in base64")?;
    if !table.starts_with(TABLE) {
        return Err("a table of blocks does not begin like one");
    }
    let cut = "a table of blocks is cut";
    let (first, from) = u64_at(&table, 8).zip(u64_at(&table, 24)).ok_or(cut)?;
    let count = u32_at(&table, 200).ok_or(cut)? as usize;
    let data = data.saturating_add(from);
    let mut wrong = None;
    for stored in table.get(BEFORE_BLOCKS..).unwrap_or_default().chunks_exact(OF_BLOCK).take(count) {
        if u32_at(stored, 0) == Some(END) {
            break;
        }
        match block(stored, first, data) {
            Ok(Some(_)) if blocks.len() >= MOST_BLOCKS => {
                return Err("the disk image has too many blocks; the last ones are lost");
            }
            Ok(block) => blocks.extend(block),
            Err(what) => wrong = wrong.or(Some(what)),
        }
    }
    let is_cut = table.len() < BEFORE_BLOCKS.saturating_add(count.saturating_mul(OF_BLOCK));
    wrong.or(is_cut.then_some(cut)).map_or(Ok(()), Err)
}

/// A block of a table that begins with sector `first`; `None` if it is no part of the disk.
fn block(stored: &[u8], first: u64, data: u64) -> Result<Option<Block>, &'static str> {
    let cut = "a table of blocks is cut";
    let number = |at: usize| u64_at(stored, at).ok_or(cut);
    let (start, sectors, at, bytes) = (number(8)?, number(16)?, number(24)?, number(32)?);
    let kind = match u32_at(stored, 0).ok_or(cut)? {
        ZEROS | FREE => NOTHING,
        RAW => AS_IT_IS,
        COMMENT => return Ok(None),
        kind => {
            let place = PACKED.iter().position(|(known, _)| *known == kind);
            place.and_then(|place| u8::try_from(place).ok()).ok_or("a block is packed in a way that is not known")?
        }
    };
    let start = first.checked_add(start).and_then(|start| start.checked_mul(SECTOR));
    let (Some(start), Some(length)) = (start, sectors.checked_mul(SECTOR)) else {
        return Err("a block lies where it cannot");
    };
    if start.checked_add(length).is_none() || kind < NOTHING && length.max(bytes) > LONGEST_BLOCK {
        return Err("a block is longer than any");
    }
    // What is as it is may have any length.
    let stored = u32::try_from(bytes).unwrap_or(u32::MAX);
    Ok((length > 0).then_some(Block { start, length, at: data.saturating_add(at), stored, kind }))
}

impl Layout for Dmg {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, _: u64) -> io::Result<Run> {
        let next = self.blocks.partition_point(|block| block.start <= at);
        let end = self.blocks.get(next).map_or(self.length, |block| block.start);
        let to_end = end.saturating_sub(at);
        let block = next.checked_sub(1).and_then(|number| self.blocks.get(number));
        let inside = block.map(|block| (block, at.saturating_sub(block.start)));
        // Of what was never written there are blocks, too.
        let Some((block, skip)) = inside.filter(|(block, skip)| *skip < block.length) else {
            return Ok(Run { length: to_end, place: Place::Nowhere("no table of the image tells where it lies") });
        };
        let length = block.length.saturating_sub(skip).min(to_end);
        Ok(match block.kind {
            NOTHING => Run { length, place: Place::Hole },
            AS_IT_IS => match block.stored_length().saturating_sub(skip) {
                0 => Run { length, place: Place::Nowhere("a block is shorter than the part of the disk that it is") },
                there => stored(source, block.at.saturating_add(skip), length.min(there)),
            },
            kind => {
                let bytes = u64::from(block.stored);
                let coder = self.coders.get(usize::from(kind)).filter(|_| bytes > 0);
                let is_there = block.at.checked_add(bytes).is_some_and(|end| end <= source.len());
                let place = match coder.filter(|_| is_there) {
                    Some(coder) => Place::Packed(Packed {
                        at: block.at,
                        stored: bytes,
                        coder: Arc::clone(coder),
                        decoded: block.length,
                        skip,
                    }),
                    None => Place::Nowhere("a block would lie behind the end of the image"),
                };
                Run { length, place }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// A table of blocks: kind, first sector, sectors, where it is stored, bytes.
    fn table(first: u64, blocks: &[(u32, u64, u64, u64, u64)]) -> Vec<u8> {
        let mut table = [&b"mish\0\0\0\x01"[..], &first.to_be_bytes(), &[0; 184]].concat();
        table.extend((blocks.len() as u32).to_be_bytes());
        for (kind, start, sectors, at, bytes) in blocks {
            table.extend([kind.to_be_bytes(), [0; 4]].concat());
            table.extend([start, sectors, at, bytes].into_iter().flat_map(|number| number.to_be_bytes()));
        }
        table
    }

    fn image(data: &[u8], sectors: u64, tables: &[Vec<u8>]) -> Vec<u8> {
        let of_table = |table: &Vec<u8>| {
            let text = BASE64_STANDARD.encode(table);
            let (first, second) = text.split_at(text.len() / 2);
            format!("<dict><key>Data</key>\n<data>\n\t{first}\n\t{second}\n</data></dict>")
        };
        let tables: String = tables.iter().map(of_table).collect();
        let list = format!("<plist><key>blkx</key><array>{tables}</array><key>plst</key><data>AAAA</data></plist>");
        let mut trailer = vec![0; 512];
        trailer[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
        let fields = [(32, data.len()), (216, data.len()), (224, list.len()), (492, sectors as usize)];
        for (at, number) in fields {
            trailer[at..at + 8].copy_from_slice(&(number as u64).to_be_bytes());
        }
        [data, list.as_bytes(), &trailer].concat()
    }

    /// Runs, in sectors, and how many things are damaged.
    type Places = (Vec<(u64, &'static str)>, usize);

    fn places(bytes: Vec<u8>) -> Result<Places, String> {
        let source = MemorySource::new(bytes, "image");
        let found = open(&source, &Cancel::default()).map_err(|refusal| format!("{refusal:?}"))?;
        let (mut at, mut places) = (0, Vec::new());
        while at < found.layout.length() {
            let run = found.layout.run(&source, at, u64::MAX).unwrap();
            let kind = match run.place {
                Place::Hole => "hole",
                Place::At(_) => "stored",
                Place::Packed(_) => "packed",
                Place::Nowhere(_) => "nowhere",
            };
            places.push((run.length / SECTOR, kind));
            at += run.length;
        }
        Ok((places, found.damage.len()))
    }

    #[test]
    fn blocks_lie_where_their_tables_say() {
        let first =
            table(0, &[(RAW, 0, 1, 0, 512), (COMMENT, 0, 0, 0, 0), (0x8000_0005, 1, 2, 512, 100), (END, 3, 0, 0, 0)]);
        let second = table(10, &[(ZEROS, 0, 4, 0, 0), (0x8000_0006, 4, 2, 600, 1 << 20), (RAW, 9, 3, 0, 1024)]);
        let bytes = image(&[1; 2000], 30, &[second.clone(), first.clone()]);
        let expected =
            [(1, "stored"), (2, "packed"), (7, "nowhere"), (4, "hole"), (2, "nowhere"), (3, "nowhere"), (2, "stored")];
        let whole = [&expected[..], &[(1, "nowhere"), (8, "nowhere")]].concat();
        assert_eq!(places(bytes.clone()), Ok((whole, 0)));
        // A block that cannot be costs no other, and neither does a table.
        let odd = table(0, &[(77, 0, 1, 0, 0), (RAW, 1, 1, 0, 512), (0x8000_0005, 2, 1 << 20, 0, 9)]);
        let (found, damage) = places(image(&[1; 2000], 3, &[odd])).unwrap();
        assert_eq!((found, damage), (vec![(1, "nowhere"), (1, "stored"), (1, "nowhere")], 1));
        for wrong in [
            table(0, &[(77, 0, 1, 0, 0)]),
            table(u64::MAX, &[(RAW, 1, 1, 0, 0)]),
            table(0, &[(0x8000_0005, 0, 1 << 20, 0, 9)]),
            b"mish".to_vec(),
            b"none".to_vec(),
        ] {
            let (found, damage) = places(image(&[1; 2000], 3, &[wrong, first.clone()])).unwrap();
            assert_eq!((found, damage), (vec![(1, "stored"), (2, "packed")], 1));
        }
        let segmented = |bytes: &mut Vec<u8>| {
            let at = bytes.len() - 512 + 63;
            bytes[at] = 2;
        };
        let mut part = bytes.clone();
        segmented(&mut part);
        assert!(places(part).unwrap_err().contains("several files"));
        let mut far = bytes;
        let at = far.len() - 512 + 216;
        far[at] = 1;
        assert!(places(far).unwrap_err().contains("behind the end"));
    }
}
