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
/// Bytes of it that are read at once, and that are decoded at once.
const AT_ONCE: u64 = 64 << 10;
const DECODED_AT_ONCE: usize = 8 << 10;
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
    let (mut blocks, mut damage) = (Vec::new(), Vec::new());
    let end = list.saturating_add(list_length);
    let mut text = Text { source, next: list, end, bytes: Vec::new(), passed: 0, cancel };
    // Tables of blocks are the data of the dictionaries in this array.
    if text.pass(&[b"<key>blkx</key>"], |_| {})?.is_some() {
        while text.pass(&[b"</array>", b"<data>"], |_| {})? == Some(1) && damage.len() < MOST_WRONG {
            let (mut table, before) = (Table::new(data), blocks.len());
            if text.pass(&[b"</array>", b"</data>"], |part| table.add(part, &mut blocks))? != Some(1) {
                // It has no end.
                blocks.truncate(before);
                break;
            }
            if let Err(what) = table.finish(&mut blocks, before) {
                damage.push((list, what.to_owned()));
            }
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

/// A property list, of which a part is in memory.
struct Text<'s> {
    source: &'s dyn Source,
    /// What is not read yet.
    next: u64,
    end: u64,
    /// What was read, and how many bytes of that were passed.
    bytes: Vec<u8>,
    passed: usize,
    cancel: &'s Cancel,
}

impl Text<'_> {
    /// Passes all up to the first of `marks`, and that. What is before it is handed to `take`, in parts. Returns the
    /// number of the mark; `None` at the end.
    fn pass(&mut self, marks: &[&[u8]], mut take: impl FnMut(&[u8])) -> Result<Option<usize>, Refusal> {
        let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or_default();
        loop {
            let rest = self.bytes.get(self.passed..).unwrap_or_default();
            let found = memchr::memchr_iter(b'<', rest).find_map(|at| {
                let is_there = |mark: &&[u8]| rest.get(at..).is_some_and(|rest| rest.starts_with(mark));
                let number = marks.iter().position(is_there)?;
                Some((at, number, marks.get(number)?.len()))
            });
            if let Some((at, number, length)) = found {
                take(rest.get(..at).unwrap_or_default());
                self.passed = self.passed.saturating_add(at).saturating_add(length);
                return Ok(Some(number));
            }
            let part = self.end.saturating_sub(self.next).min(AT_ONCE);
            // A mark may begin in the last bytes.
            let all = rest.len().saturating_sub(if part == 0 { 0 } else { longest });
            take(rest.get(..all).unwrap_or_default());
            self.passed = self.passed.saturating_add(all);
            if part == 0 {
                return Ok(None);
            }
            self.cancel.check().map_err(|error| Refusal::Read(self.next, error))?;
            self.bytes.drain(..self.passed);
            self.passed = 0;
            self.bytes.extend(read(self.source, self.next, part as usize)?);
            self.next = self.next.saturating_add(part);
        }
    }
}

/// A table of blocks that is being read, in base64.
struct Table {
    /// Byte from which on places of blocks count.
    data: u64,
    /// What comes of the text, and was not taken yet; characters of it that make no bytes yet; whether it has ended.
    bytes: Vec<u8>,
    text: Vec<u8>,
    has_ended: bool,
    /// Bytes that came of it.
    length: usize,
    /// Its first sector, once that is known, and blocks that it has, and that were taken.
    first: Option<u64>,
    count: usize,
    taken: usize,
    /// What is wrong with all of it, and with one block.
    wrong: Option<&'static str>,
    wrong_block: Option<&'static str>,
    is_full: bool,
}

impl Table {
    const CUT: &'static str = "a table of blocks is cut";

    fn new(data: u64) -> Self {
        let (bytes, text, has_ended, length, first, count, taken) = Default::default();
        let (wrong, wrong_block, is_full) = Default::default();
        Self { data, bytes, text, has_ended, length, first, count, taken, wrong, wrong_block, is_full }
    }

    /// Adds some of its text.
    fn add(&mut self, text: &[u8], blocks: &mut Vec<Block>) {
        for part in text.chunks(DECODED_AT_ONCE) {
            self.text.extend(part.iter().filter(|byte| !byte.is_ascii_whitespace()));
            let whole = self.text.len() & !3;
            self.decode(whole, blocks);
        }
    }

    /// Decodes so many characters.
    fn decode(&mut self, count: usize, blocks: &mut Vec<Block>) {
        if self.wrong.is_some() {
            self.text.clear();
        }
        if count == 0 || self.wrong.is_some() {
            return;
        }
        let characters = self.text.get(..count).unwrap_or_default();
        let before = self.bytes.len();
        // Padding ends it.
        let is_right = !self.has_ended && BASE64_STANDARD.decode_vec(characters, &mut self.bytes).is_ok();
        self.has_ended |= characters.ends_with(b"=");
        self.text.drain(..count);
        if !is_right {
            self.wrong = Some("a table of blocks is not in base64");
            return;
        }
        self.length = self.length.saturating_add(self.bytes.len().saturating_sub(before));
        self.take(blocks);
    }

    /// Takes the blocks that were decoded.
    fn take(&mut self, blocks: &mut Vec<Block>) {
        let mut from = 0;
        if self.first.is_none() {
            if self.bytes.len() < BEFORE_BLOCKS {
                return;
            }
            let numbers = (u64_at(&self.bytes, 8), u64_at(&self.bytes, 24), u32_at(&self.bytes, 200));
            let (true, (Some(first), Some(start), Some(count))) = (self.bytes.starts_with(TABLE), numbers) else {
                self.wrong = Some("a table of blocks does not begin like one");
                return;
            };
            (self.first, self.count) = (Some(first), count as usize);
            self.data = self.data.saturating_add(start);
            from = BEFORE_BLOCKS;
        }
        let first = self.first.unwrap_or_default();
        while let Some(stored) = self.bytes.get(from..from.saturating_add(OF_BLOCK))
            && self.taken < self.count
            && !self.is_full
        {
            from = from.saturating_add(OF_BLOCK);
            self.taken = self.taken.saturating_add(1);
            if u32_at(stored, 0) == Some(END) {
                self.taken = self.count;
                break;
            }
            match block(stored, first, self.data) {
                Ok(Some(_)) if blocks.len() >= MOST_BLOCKS => self.is_full = true,
                Ok(block) => blocks.extend(block),
                Err(what) => self.wrong_block = self.wrong_block.or(Some(what)),
            }
        }
        if self.taken >= self.count || self.is_full {
            from = self.bytes.len();
        }
        self.bytes.drain(..from);
    }

    /// Says what is wrong with it, all of which was added. Of `blocks`, it has those from `before` on. Of those that
    /// cannot be, nobody knows where they lie; the others are there.
    fn finish(mut self, blocks: &mut Vec<Block>, before: usize) -> Result<(), &'static str> {
        self.decode(self.text.len(), blocks);
        if self.first.is_none() && self.wrong.is_none() {
            let is_one = self.bytes.starts_with(TABLE);
            self.wrong = Some(if is_one { Self::CUT } else { "a table of blocks does not begin like one" });
        }
        if let Some(wrong) = self.wrong {
            blocks.truncate(before);
            return Err(wrong);
        }
        if self.is_full {
            return Err("the disk image has too many blocks; the last ones are lost");
        }
        let is_cut = self.length < BEFORE_BLOCKS.saturating_add(self.count.saturating_mul(OF_BLOCK));
        self.wrong_block.or(is_cut.then_some(Self::CUT)).map_or(Ok(()), Err)
    }
}

/// A block of a table that begins with sector `first`; `None` if it is no part of the disk.
fn block(stored: &[u8], first: u64, data: u64) -> Result<Option<Block>, &'static str> {
    let cut = Table::CUT;
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
    use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// The longest part that is read of it at once.
    #[derive(Debug)]
    struct Longest(MemorySource, AtomicUsize);

    impl Source for Longest {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.fetch_max(buffer.len(), Ordering::Relaxed);
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    /// A list of any length takes the memory of its blocks.
    #[test]
    fn a_long_list_is_read_in_parts() {
        const BLOCKS: u64 = 3000;
        // Of different lengths, so that tables and marks lie across parts at different places.
        let tables: Vec<_> = (0..8)
            .map(|number| {
                let blocks: Vec<_> = (0..BLOCKS - number).map(|at| (RAW, at, 1, 0, 512)).collect();
                table(number * BLOCKS, &blocks)
            })
            .collect();
        let source = Longest(MemorySource::new(image(&[1; 512], 8 * BLOCKS, &tables), "image"), AtomicUsize::new(0));
        assert!(source.len() > 1 << 20);
        let found = open(&source, &Cancel::default()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert_eq!((found.damage.len(), source.1.load(Ordering::Relaxed)), (0, AT_ONCE as usize));
        let sectors = (0..8 * BLOCKS).filter(|sector| {
            let run = found.layout.run(&source, sector * SECTOR, u64::MAX).unwrap();
            matches!(run.place, Place::At(_)) && run.length == SECTOR
        });
        assert_eq!(sectors.count() as u64, 8 * BLOCKS - 28);
        // What is wrong at the end of a table makes all of it wrong.
        let text = |tail: &str| {
            let good = table(0, &[(RAW, 0, 1, 0, 512)]);
            let bytes = image(&[1; 512], 2, &[table(1, &[(RAW, 0, 1, 0, 512); 300]), good]);
            let at = memchr::memmem::find(&bytes, b"\n</data>").unwrap();
            let mut changed = bytes[..at - tail.len()].to_vec();
            changed.extend(tail.as_bytes());
            changed.extend(&bytes[at..]);
            places(changed).unwrap()
        };
        assert_eq!(text(""), (vec![(1, "stored"), (1, "stored")], 0));
        for tail in ["?", "A=AA", "=AAAA"] {
            assert_eq!(text(tail), (vec![(1, "stored"), (1, "nowhere")], 1), "{tail}");
        }
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
