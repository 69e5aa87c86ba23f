//! Images of squashfs that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_format::squashfs::Squashfs;
use tarnfs_format::{Decode, Entry, Error, Event, Format, Kind, Options, Probe, ReadRandom};
use tarnfs_source::{MemorySource, SharedSource, Source};

const NONE: u32 = u32::MAX;
/// Bit of the length of a block that is stored as it is.
const STORED: u32 = 1 << 24;

/// Tables of an image, before they are cut into blocks of 8 KiB that are stored as they are.
#[derive(Default)]
struct Image {
    inodes: Vec<u8>,
    listings: Vec<u8>,
    /// What stands before the tables.
    data: Vec<u8>,
    root: usize,
    /// Names and values of attributes, and the lists of them: where each begins, and how many it has.
    attributes: Vec<u8>,
    lists: Vec<(usize, u32)>,
    /// Blocks behind the attributes, as they are stored.
    blocks: Vec<u8>,
    /// Bytes before all these that somebody else puts there.
    missing: u64,
}

/// The reference to byte `at` of a table.
fn reference(at: usize) -> u64 {
    ((at / 8192 * 8194) as u64) << 16 | (at % 8192) as u64
}

fn number(bytes: &mut Vec<u8>, numbers: &[u32]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

impl Image {
    /// What all inodes begin with. Returns where it is.
    fn head(&mut self, kind: u16) -> usize {
        let at = self.inodes.len();
        for field in [kind, 0o755, 0, 0] {
            self.inodes.extend(field.to_le_bytes());
        }
        number(&mut self.inodes, &[1_600_000_000, at as u32 + 1]);
        at
    }

    /// A folder whose listing is `length` bytes from byte `from` on.
    fn folder(&mut self, from: usize, length: usize) -> usize {
        let (at, place) = (self.head(8), reference(from));
        number(&mut self.inodes, &[2, length as u32 + 3, (place >> 16) as u32, 1]);
        number(&mut self.inodes, &[(place as u32 & 0xffff) << 16, NONE]);
        at
    }

    /// A file of these lengths of blocks.
    fn file(&mut self, size: u64, blocks: &[u32]) -> usize {
        let at = self.head(9);
        self.inodes.extend([96, size, 0].iter().flat_map(|number: &u64| number.to_le_bytes()));
        number(&mut self.inodes, &[1, NONE, 0, NONE]);
        number(&mut self.inodes, blocks);
        at
    }

    /// An empty file that has the attributes of list `list`.
    fn with_attributes(&mut self, list: u32) -> usize {
        let at = self.file(0, &[]);
        let end = self.inodes.len();
        self.inodes[end - 4..].copy_from_slice(&list.to_le_bytes());
        at
    }

    /// A listing of `names`, each with where its inode is. Returns where it is, and its length.
    fn listing(&mut self, names: &[(&[u8], usize)]) -> (usize, usize) {
        let from = self.listings.len();
        for (name, inode) in names {
            let place = reference(*inode);
            number(&mut self.listings, &[0, (place >> 16) as u32, 1]);
            for field in [place as u16, 0, 1, name.len() as u16 - 1] {
                self.listings.extend(field.to_le_bytes());
            }
            self.listings.extend(*name);
        }
        (from, self.listings.len() - from)
    }

    fn bytes(&self) -> Vec<u8> {
        let stored = |table: &[u8]| -> Vec<u8> {
            let block = |block: &[u8]| [&(block.len() as u16 | 1 << 15).to_le_bytes(), block].concat();
            table.chunks(8192).flat_map(block).collect()
        };
        let (inodes, listings) = (stored(&self.inodes), stored(&self.listings));
        let first = 96 + self.data.len() as u64;
        let second = first + inodes.len() as u64;
        let ids = second + listings.len() as u64;
        let mut image = b"hsqs".to_vec();
        number(&mut image, &[1, 0, 4096, 0]);
        image.extend([1_u16, 12, 0, 1, 4, 0].iter().flat_map(|field| field.to_le_bytes()));
        let (attributes, at) = ([stored(&self.attributes), self.blocks.clone()].concat(), ids + 14);
        let mut lists = Vec::new();
        for (from, count) in &self.lists {
            lists.extend(reference(*from).to_le_bytes());
            number(&mut lists, &[*count, 0]);
        }
        let lists = stored(&lists);
        let list_at = at + self.missing + attributes.len() as u64;
        let table = if self.lists.is_empty() { u64::MAX } else { list_at + lists.len() as u64 };
        let of_lists: Vec<_> = (0..lists.len().div_ceil(8194)).map(|block| list_at + 8194 * block as u64).collect();
        let header = if self.lists.is_empty() { 0 } else { 16 };
        let length = list_at + (lists.len() + header + 8 * of_lists.len()) as u64;
        let tables = [reference(self.root), length, ids + 6, table, first, second, u64::MAX, u64::MAX];
        image.extend(tables.iter().flat_map(|table| table.to_le_bytes()));
        image.extend(&self.data);
        image.extend(inodes);
        image.extend(listings);
        image.extend([4, 0x80, 0xe8, 3, 0, 0]);
        image.extend(ids.to_le_bytes());
        image.extend(attributes);
        image.extend(lists);
        if !self.lists.is_empty() {
            image.extend(at.to_le_bytes());
            number(&mut image, &[self.lists.len() as u32, 0]);
            image.extend(of_lists.iter().flat_map(|list| list.to_le_bytes()));
        }
        image
    }
}

fn source(image: &Image) -> SharedSource {
    Arc::new(MemorySource::new(image.bytes(), "image"))
}

/// Counts the bytes that are read of it. What has any of those at `bad` cannot be read.
#[derive(Debug)]
struct Counted {
    inner: SharedSource,
    bytes: AtomicU64,
    bad: Range<u64>,
}

impl Counted {
    fn new(inner: SharedSource, bad: Range<u64>) -> Arc<Self> {
        Arc::new(Self { inner, bytes: AtomicU64::new(0), bad })
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl Source for Counted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < self.bad.end && self.bad.start < offset + buffer.len() as u64 {
            return Err(io::Error::from_raw_os_error(5));
        }
        let read = self.inner.read_at(buffer, offset)?;
        self.bytes.fetch_add(read as u64, Ordering::SeqCst);
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// All entries but the root, and what was wrong. More than `most` entries are too many.
fn read(image: &Image, most: usize) -> (Vec<Entry>, Vec<String>) {
    read_source(&source(image), most).unwrap()
}

fn read_source(source: &SharedSource, most: usize) -> Result<(Vec<Entry>, Vec<String>), Error> {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    each(source, &mut |event| {
        match event {
            Event::Entry(entry) if entry.path != b"." => entries.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        if entries.len() > most { Err(io::Error::other("too many")) } else { Ok(()) }
    })?;
    Ok((entries, damage))
}

/// The same of one of so many images that share what does not depend on their length.
fn read_shared(source: &SharedSource, shares: u64) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let receive = &mut |event| {
        match event {
            Event::Entry(entry) if entry.path != b"." => entries.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    };
    Squashfs.read(source, &Options { shares, ..Options::default() }, receive).unwrap();
    (entries, damage)
}

fn each(source: &SharedSource, receive: &mut dyn FnMut(Event) -> io::Result<()>) -> Result<(), Error> {
    let decode = Decode::default().with_blocks(|_, _, _| Err(io::ErrorKind::InvalidData.into()));
    Squashfs.read(source, &Options { decode, ..Options::default() }, &mut |event| receive(event))
}

#[test]
fn a_small_image_is_read() {
    let mut image = Image { data: vec![7; 5000], ..Image::default() };
    let file = image.file(4096 * 3 + 100, &[STORED + 4096, 0, 500, STORED + 100]);
    let (from, length) = image.listing(&[(b"file", file), (b"other", file)]);
    let below = image.folder(from, length);
    let (from, length) = image.listing(&[(b"below", below)]);
    image.root = image.folder(from, length);
    assert!(Squashfs.bid(&Probe::of_head(&image.bytes())) > 32);
    let (entries, damage) = read(&image, 100);
    assert!(damage.is_empty(), "{damage:?}");
    let paths: Vec<_> = entries.iter().map(|entry| (entry.path.as_slice(), entry.kind)).collect();
    assert_eq!(paths, [(&b"below"[..], Kind::Folder), (b"below/file", Kind::File), (b"below/other", Kind::File)]);
    assert_eq!((entries[1].uid, entries[1].mtime.seconds), (1000, 1_600_000_000));
    let pieces = entries[1].body.pieces.as_deref().unwrap();
    let told: Vec<_> = pieces.iter().map(|piece| (piece.hole, piece.length, piece.offset, piece.stored)).collect();
    assert_eq!(told, [(0, 4096, 96, 4096), (4096, 4096, 96 + 4096, 500), (0, 100, 96 + 4596, 100)]);
    let coders: Vec<_> = pieces.iter().map(|piece| piece.coder.is_some()).collect();
    assert_eq!(coders, [false, true, false]);
}

#[test]
fn blocks_stored_one_behind_the_other_are_one_piece() {
    let mut image = Image { data: vec![7; 4096 * 4 + 10], ..Image::default() };
    let file = image.file(4096 * 4 + 10, &[STORED + 4096, STORED + 4096, STORED + 4096, STORED + 4096, STORED + 10]);
    let (from, length) = image.listing(&[(b"file", file)]);
    image.root = image.folder(from, length);
    let (entries, _) = read(&image, 10);
    let pieces = entries[0].body.pieces.as_deref().unwrap();
    assert_eq!((pieces.len(), pieces[0].length, pieces[0].stored), (1, 4096 * 4 + 10, 4096 * 4 + 10));
}

/// An index keeps so many pieces of a file. Of one that has more, the first ones are there, and nothing is damaged.
#[test]
fn of_a_file_with_too_many_blocks_the_first_ones_are_there() {
    const MOST: usize = 1 << 20;
    let (stored, blocks) = (1_u32, MOST + 5);
    let mut image = Image { data: vec![7; blocks], ..Image::default() };
    let size = 4096 * blocks as u64;
    let file = image.file(size, &vec![stored; blocks]);
    let (from, length) = image.listing(&[(b"file", file)]);
    image.root = image.folder(from, length);
    let (entries, damage) = read(&image, 10);
    assert!(damage.is_empty(), "{damage:?}");
    let pieces = entries[0].body.pieces.as_deref().unwrap();
    let last = pieces.last().unwrap();
    assert_eq!((entries[0].body.size, pieces.len(), last.length, last.stored), (size, MOST, 6 * 4096, 0));
    assert_eq!(pieces.iter().map(|piece| piece.hole + piece.length).sum::<u64>(), size);
    assert_eq!(last.coder.as_ref().unwrap().steps[0].codec, "more than 1048576 blocks of one file");
}

/// Lengths of blocks are packed well, and all files may lie at the same bytes.
#[test]
fn all_files_together_have_no_more_parts_than_the_image_allows() {
    const BLOCKS: usize = 1000;
    let mut image = Image { data: vec![7; BLOCKS], ..Image::default() };
    let files: Vec<_> = (0..20).map(|_| image.file(4096 * BLOCKS as u64, &vec![1; BLOCKS])).collect();
    let names: Vec<_> = (0..20).map(|number| format!("{number:02}").into_bytes()).collect();
    let named: Vec<_> = names.iter().zip(&files).map(|(name, file)| (name.as_slice(), *file)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    // One that is alone has room for them.
    let (entries, damage) = read(&image, 100);
    assert_eq!((entries.len(), damage), (20, Vec::new()));
    let (entries, damage) = read_shared(&source(&image), u64::MAX);
    let parts: usize = entries.iter().map(|entry| entry.body.pieces.as_deref().unwrap().len()).sum();
    // The image has some 82 KB, of which one part takes 16.
    assert!((4 * BLOCKS..6 * BLOCKS).contains(&parts), "{parts}");
    assert!(entries.len() == 20 && damage.len() >= 14, "{damage:?}");
    assert!(damage.iter().all(|what| what.contains("too many parts")), "{damage:?}");
}

/// Blocks of inodes may begin in the middle of others, and any number of names may lead to inodes in each of them.
#[test]
fn blocks_that_overlap_are_decoded_no_more_often_than_the_image_allows() {
    const NAMES: u32 = 10_000;
    // At each even place begins a block that is stored as it is and has 0x1f80 bytes.
    let mut image = Image { inodes: [0x80, 0x9f].repeat(16 << 10), ..Image::default() };
    for place in 0..NAMES {
        number(&mut image.listings, &[0, 2 + 2 * place, 1]);
        image.listings.extend([0_u16, 0, 1, 4].iter().flat_map(|field| field.to_le_bytes()));
        image.listings.extend(format!("{place:05}").into_bytes());
    }
    let length = image.listings.len();
    image.root = image.folder(0, length);
    let counted = Counted::new(source(&image), 0..0);
    let shared: SharedSource = Arc::<Counted>::clone(&counted);
    let options = Options { shares: 1 << 10, ..Options::default() };
    let mut entries = 0;
    let receive = &mut |event| {
        entries += usize::from(matches!(event, Event::Entry(_)));
        Ok(())
    };
    Squashfs.read(&shared, &options, receive).unwrap();
    assert_eq!(entries, 1);
    // All of them would be 80 MB.
    let read = counted.bytes();
    assert!((5 << 20..20 << 20).contains(&read), "{read}");
}

/// Ten thousand folders with the same ten thousand names would be a hundred million.
#[test]
fn folders_do_not_share_a_listing() {
    let mut image = Image::default();
    let names: Vec<_> = (0..5000).map(|number| format!("{number}").into_bytes()).collect();
    let few = image.file(0, &[]);
    let (shared, length) = image.listing(&names.iter().map(|name| (name.as_slice(), few)).collect::<Vec<_>>());
    let overlapping: Vec<_> = (0..5000_usize)
        // Some begin in the middle of it, and some end there.
        .map(|number| image.folder(if number % 2 == 0 { shared } else { shared + number / 2 * 20 }, length))
        .collect();
    let named: Vec<_> = names.iter().zip(&overlapping).map(|(name, folder)| (name.as_slice(), *folder)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let (entries, damage) = read(&image, 20_000);
    assert!(entries.len() < 20_000 && damage.len() == 1000, "{} {}", entries.len(), damage.len());
    assert!(damage.iter().any(|what| what.contains("overlaps that of another folder")), "{:?}", damage.first());
}

/// Inodes of which each has the rest of the table as its blocks.
#[test]
fn large_inodes_do_not_overlap() {
    let mut image = Image::default();
    let inodes: Vec<_> = (0..20_000).map(|_| image.file(1 << 60, &[])).collect();
    let names: Vec<_> = (0..20_000).map(|number| format!("{number}").into_bytes()).collect();
    let named: Vec<_> = names.iter().zip(&inodes).map(|(name, inode)| (name.as_slice(), *inode)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let (_, damage) = read(&image, 30_000);
    assert_eq!(damage.len(), 1000, "the last one says that there is more");
}

/// Where there are more large ones than are kept in memory, each is paid for: those that overlap come to an end, others
/// do not.
#[test]
fn more_large_inodes_than_are_kept_cost_their_bytes() {
    let mut image = Image::default();
    // Blocks that are holes take nothing but their lengths.
    let apart: Vec<_> = (0..10).map(|_| image.file(4096 * 500, &[0; 500])).collect();
    // Each has the 1000 numbers behind it as lengths of its blocks, which begin with those of others.
    let blocks: u64 = 14 * 50 + 1000;
    let overlapping: Vec<_> = (0..50).map(|_| image.file(4096 * blocks, &[])).collect();
    image.inodes.resize(image.inodes.len() + 4 * blocks as usize, 0);
    let names: Vec<_> = (0..60).map(|number| format!("{number:03}").into_bytes()).collect();
    let inodes = apart.iter().chain(&overlapping);
    let named: Vec<_> = names.iter().zip(inodes).map(|(name, inode)| (name.as_slice(), *inode)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let (entries, damage) = read_shared(&source(&image), u64::MAX);
    let told = entries.iter().filter(|entry| entry.path.as_slice() < b"010".as_slice()).count();
    assert_eq!(told, 10, "{damage:?}");
    let over = entries.len() - told;
    // Four times the bytes of the image, less what the first ones took, at 6800 bytes each.
    let paid = 4 * (image.bytes().len() as u64) - 10 * 2000;
    assert!(over < 50);
    assert_eq!(over as u64, paid / (4 * blocks), "{damage:?}");
    assert!(damage.iter().any(|what| what.contains("are read too often")), "{damage:?}");
}

/// Attributes of a few kilobytes that thousands of names have in turn, or that are too many each time.
#[test]
fn attributes_cost_no_more_than_they_tell() {
    for (count, value, names, damaged) in [(16_000_u32, 0, 6000, 1), (600, 60_000, 6000, 1000), (2, 3, 50, 0)] {
        let mut image = Image::default();
        for list in 0..2 {
            image.lists.push((image.attributes.len(), count));
            for _ in 0..count.min(16_000 >> (8 * u32::from(value > 0))) {
                image.attributes.extend([0, 0, 1, 0, b'a' + list]);
                number(&mut image.attributes, &[value]);
                image.attributes.resize(image.attributes.len() + value as usize, b'v');
            }
        }
        // So that the last one can be read.
        image.attributes.resize(image.attributes.len() + 40_000_000 * usize::from(value > 100), 0);
        let files = [image.with_attributes(0), image.with_attributes(1)];
        let names: Vec<_> = (0..names).map(|number| format!("{number}").into_bytes()).collect();
        let named: Vec<_> = names.iter().enumerate().map(|(at, name)| (name.as_slice(), files[at % 2])).collect();
        let (from, length) = image.listing(&named);
        image.root = image.folder(from, length);
        let source = Counted::new(source(&image), 0..0);
        let (entries, damage) = read_source(&(Arc::clone(&source) as SharedSource), 10_000).unwrap();
        assert_eq!((entries.len(), damage.len()), (names.len(), damaged), "{:?}", damage.first());
        // No block more than once.
        assert!(source.bytes() < source.len() + (64 << 10), "{} of {}", source.bytes(), source.len());
        let bytes: usize =
            entries.iter().flat_map(|entry| &entry.xattrs).map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes > 0 || value > 100);
        assert_eq!(
            damage.iter().filter(|what| what.contains("others are left out")).count(),
            usize::from(count == 16_000),
            "{count}"
        );
    }
}

/// Any number of lists may name one value, each by another name: `mksquashfs` stores what is equal once. An index keeps
/// the attributes of each file.
#[test]
fn a_value_that_is_stored_once_is_not_told_of_every_file() {
    let mut image = Image::default();
    number(&mut image.attributes, &[60_000]);
    image.attributes.resize(4 + 60_000, b'v');
    let names: Vec<_> = (0..200).map(|number| format!("{number:03}").into_bytes()).collect();
    for name in &names {
        image.lists.push((image.attributes.len(), 1));
        image.attributes.extend([0, 1, 3, 0]);
        image.attributes.extend(name);
        number(&mut image.attributes, &[8]);
        image.attributes.extend([0; 8]);
    }
    let files: Vec<_> = (0..names.len() as u32).map(|list| image.with_attributes(list)).collect();
    let named: Vec<_> = names.iter().zip(&files).map(|(name, file)| (name.as_slice(), *file)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let (entries, damage) = read(&image, 1000);
    let with = entries.iter().filter(|entry| entry.xattrs.len() == 1 && entry.xattrs[0].1.len() == 60_000).count();
    assert!(entries.len() == names.len() && (10..80).contains(&with), "{with}: {:?}", damage.first());
    assert!(damage.len() == 1 && damage[0].contains("others are left out"), "{damage:?}");
}

/// Each of these values stands in a block of its own, and there are more of them than are kept.
#[test]
fn values_that_are_elsewhere_are_decoded_within_bounds() {
    for is_damaged in [false, true] {
        let mut image = Image::default();
        let values = 5000;
        // In blocks of 8 KiB, with two bytes before each.
        let behind = (values * 17_usize).div_ceil(8192) * 2 + values * 17;
        for value in 0..values {
            image.attributes.extend([0, 1, 1, 0, b'a']);
            number(&mut image.attributes, &[8]);
            image.attributes.extend((((behind + value * 14) as u64) << 16).to_le_bytes());
            image.blocks.extend([12, 0x80]);
            number(&mut image.blocks, &[8, 1, 2]);
        }
        if is_damaged {
            let kind = image.attributes.len() - 17;
            image.attributes[kind] = 9;
        }
        let names: Vec<_> = (0..40).map(|number| format!("{number}").into_bytes()).collect();
        image.lists = vec![(0, values as u32); names.len()];
        let files: Vec<_> = (0..40).map(|list| image.with_attributes(list)).collect();
        let named: Vec<_> = names.iter().zip(&files).map(|(name, file)| (name.as_slice(), *file)).collect();
        let (from, length) = image.listing(&named);
        image.root = image.folder(from, length);
        let source = Counted::new(source(&image), 0..0);
        let (entries, damage) = read_source(&(Arc::clone(&source) as SharedSource), 100).unwrap();
        assert_eq!(entries.len(), names.len());
        let with_all = |entry: &&Entry| entry.xattrs.len() == values;
        assert_eq!(entries.iter().filter(with_all).count() > 1, !is_damaged, "{:?}", damage.first());
        let left_out = damage.iter().filter(|what| what.contains("others are left out")).count();
        assert_eq!(left_out, 1, "{:?}", damage.first());
        let most = (256 << 20) + 64 * source.len() + (1 << 20);
        assert!(source.bytes() < most, "{} bytes were read", source.bytes());
    }
}

/// Bytes, and the same block many times in the midst of them.
#[derive(Debug)]
struct Repeated {
    bytes: Vec<u8>,
    from: u64,
    block: Vec<u8>,
    count: u64,
}

impl Repeated {
    fn length(&self) -> u64 {
        self.block.len() as u64 * self.count
    }
}

impl Source for Repeated {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = self.from + self.length();
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset + filled as u64;
            let there = match at {
                at if at < self.from => &self.bytes[at as usize..self.from as usize],
                at if at < end => &self.block[((at - self.from) % self.block.len() as u64) as usize..],
                at => self.bytes.get((at - self.length()) as usize..).unwrap_or_default(),
            };
            let count = there.len().min(rest.len());
            if count == 0 {
                break;
            }
            rest[..count].copy_from_slice(&there[..count]);
            filled += count;
        }
        Ok(filled)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.length()
    }

    fn describe(&self) -> String {
        "image".to_owned()
    }
}

/// What is on a disk all of whose clusters are one of its image.
#[derive(Debug)]
struct Once(SharedSource);

impl Source for Once {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn most_data(&self) -> u64 {
        1000
    }
}

/// Listings that lie apart from each other may be stored once.
#[test]
fn there_are_no_more_names_than_are_stored() {
    let mut image = Image::default();
    let file = image.file(0, &[]);
    let names: Vec<_> = (0..70_000).map(|number| format!("{number:06}").into_bytes()).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_slice(), file)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let whole = source(&image);
    let (entries, damage) = read_source(&whole, 100_000).unwrap();
    assert_eq!((entries.len(), damage.first()), (70_000, None));
    let (entries, damage) = read_source(&(Arc::new(Once(whole)) as SharedSource), 100_000).unwrap();
    assert!((15_000..30_000).contains(&entries.len()), "{}", entries.len());
    assert!(damage.len() == 1 && damage[0].contains("too many names"), "{damage:?}");
}

/// Folders are kept as long as an image is read, and each takes far less where it is packed.
#[test]
fn there_are_no_more_folders_than_the_image_pays_for() {
    let mut image = Image::default();
    let (from, length) = image.listing(&[]);
    let folders: Vec<_> = (0..4000).map(|_| image.folder(from, length)).collect();
    let names: Vec<_> = (0..4000).map(|number| format!("{number:0250}").into_bytes()).collect();
    let named: Vec<_> = names.iter().zip(folders).map(|(name, folder)| (name.as_slice(), folder)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let whole = source(&image);
    let (entries, damage) = read_source(&whole, 10_000).unwrap();
    assert_eq!((entries.len(), damage.first()), (4000, None));
    let (entries, damage) = read_source(&(Arc::new(Once(whole)) as SharedSource), 10_000).unwrap();
    assert!((2500..3500).contains(&entries.len()), "{}", entries.len());
    assert!(damage.iter().any(|what| what.contains("too many folders")), "{:?}", damage.first());
}

/// Where each file is signed, attributes are much of an image. They are not left out, however many bytes they have.
#[test]
fn signatures_of_many_files_are_kept() {
    const FILES: u32 = 70_000;
    const OF_ONE: usize = 4096;
    let mut signatures = Vec::new();
    for (name, length) in [(&b"ima"[..], 2000_usize), (b"evm", 2000), (b"x", 65)] {
        signatures.extend([2, 0, name.len() as u8, 0]);
        signatures.extend(name);
        number(&mut signatures, &[length as u32]);
        signatures.resize(signatures.len() + length, b's');
    }
    assert_eq!(signatures.len(), OF_ONE);
    let block = [&(8192_u16 | 1 << 15).to_le_bytes()[..], &signatures, &signatures].concat();
    let count = u64::from(FILES / 2);
    let mut image = Image { missing: count * block.len() as u64, ..Image::default() };
    image.lists = (0..FILES as usize).map(|list| (list * OF_ONE, 3)).collect();
    let files: Vec<_> = (0..FILES).map(|list| image.with_attributes(list)).collect();
    let names: Vec<_> = (0..FILES).map(|number| format!("{number}").into_bytes()).collect();
    let named: Vec<_> = names.iter().zip(&files).map(|(name, file)| (name.as_slice(), *file)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let bytes = image.bytes();
    // Where the attributes begin stands at the start of the table that the superblock tells.
    let number = |at: u64| u64::from_le_bytes(*bytes[at as usize..].first_chunk().unwrap());
    let from = number(number(56) - image.missing);
    let source: SharedSource = Arc::new(Repeated { bytes, from, block, count });
    let (mut signed, mut damage) = (0, Vec::new());
    each(&source, &mut |event| {
        match event {
            Event::Entry(entry) => signed += usize::from(entry.xattrs.len() == 3),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((signed, damage.first()), (FILES as usize, None));
}

/// What cannot be read before an image, where that is searched for, does not keep it from being read.
#[test]
fn an_image_is_found_behind_bytes_that_cannot_be_read() {
    let mut image = Image::default();
    let file = image.file(0, &[]);
    let (from, length) = image.listing(&[(b"file", file)]);
    image.root = image.folder(from, length);
    let mut script = b"#!/bin/sh\n".to_vec();
    script.resize(200_000, b'\n');
    let read = |bytes: &[u8], bad| {
        let source: SharedSource = Counted::new(Arc::new(MemorySource::new(bytes, "script")), bad);
        read_source(&source, 10)
    };
    let whole = [&script[..], &image.bytes()].concat();
    for bad in [0..0, 0..1, 4096..8192, 70_000..70_001] {
        let (entries, damage) = read(&whole, bad.clone()).unwrap();
        assert_eq!((entries.len(), damage.len()), (1, 0), "{bad:?}: {damage:?}");
    }
    // Where there is none, or it is there that nothing can be read, nobody knows what it is.
    for (bytes, bad) in [(&script, 4096..8192), (&script, 0..1), (&whole, 200_000..200_001)] {
        let result = read(bytes, bad.clone());
        assert!(matches!(result, Err(Error::Read { .. })), "{bad:?}: {result:?}");
    }
}

/// One that is large is told once, whatever number of links it says.
#[test]
fn a_large_file_with_many_names_is_told_once() {
    let mut image = Image { data: vec![7; 100_000], ..Image::default() };
    let large = image.file(4096 * 5000, &vec![20; 5000]);
    let names: Vec<_> = (0..3000).map(|number| format!("{number}").into_bytes()).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_slice(), large)).collect();
    let (from, length) = image.listing(&named);
    image.root = image.folder(from, length);
    let (entries, damage) = read(&image, 5000);
    assert!(damage.is_empty(), "{damage:?}");
    assert_eq!(entries.iter().filter(|entry| entry.kind == Kind::File).count(), 1);
    assert_eq!(entries.iter().filter(|entry| entry.kind == Kind::HardLink && entry.link == b"0").count(), 2999);
}

#[test]
fn folders_are_as_deep_as_paths_may_be() {
    let mut image = Image::default();
    let (mut listing, names) = (image.listing(&[]), vec!["d"; 3000]);
    for name in names {
        let folder = image.folder(listing.0, listing.1);
        listing = image.listing(&[(name.as_bytes(), folder)]);
    }
    image.root = image.folder(listing.0, listing.1);
    let (entries, damage) = read(&image, 5000);
    assert_eq!(entries.len(), 1024);
    assert!(damage.len() == 1 && damage[0].contains("too deep"), "{damage:?}");
}

/// Where the path of the first name is longer than a path may be, each name is a file.
#[test]
fn links_to_what_is_very_deep_are_files() {
    let mut image = Image::default();
    let file = image.file(0, &[]);
    let mut listing = image.listing(&[(b"one", file), (b"two", file)]);
    let name = vec![b'd'; 250];
    for _ in 0..20 {
        let folder = image.folder(listing.0, listing.1);
        listing = image.listing(&[(&name, folder), (b"e", file)]);
    }
    image.root = image.folder(listing.0, listing.1);
    let (entries, damage) = read(&image, 100);
    assert!(damage.is_empty(), "{damage:?}");
    // What was met first lies deepest.
    let files: Vec<_> = entries.iter().filter(|entry| entry.kind == Kind::File).map(|entry| entry.path.len()).collect();
    assert!(entries.iter().all(|entry| entry.link.len() <= 4096));
    assert_eq!(files.len(), 22, "{files:?}");
}

#[test]
fn names_that_lead_elsewhere_are_left_out() {
    let mut image = Image::default();
    let file = image.file(0, &[]);
    let names: [&[u8]; 6] = [b".", b"..", b"a/b", b"/", b"zero\0", b"right"];
    let listing = image.listing(&names.map(|name| (name, file)));
    image.root = image.folder(listing.0, listing.1);
    let (entries, damage) = read(&image, 10);
    assert_eq!(entries.iter().map(|entry| entry.path.as_slice()).collect::<Vec<_>>(), [b"right"]);
    assert_eq!(damage.len(), 5);
}

#[test]
fn content_that_lies_where_it_cannot_is_told() {
    for (size, blocks) in
        [(4096, &[4097][..]), (4096, &[4096]), (100, &[STORED + 50]), (u64::MAX, &[0; 10]), (1 << 40, &[0; 10])]
    {
        let mut image = Image { data: vec![7; 60], ..Image::default() };
        let file = image.file(size, blocks);
        let listing = image.listing(&[(b"file", file)]);
        image.root = image.folder(listing.0, listing.1);
        let (entries, damage) = read(&image, 10);
        assert!(damage.len() == 1 && damage[0].contains("cannot be read"), "{size}: {damage:?}");
        assert_eq!(entries.len(), 1);
    }
}

/// Wherever an image ends, and whatever a byte of its tables is, reading it ends.
#[test]
fn every_prefix_and_every_changed_byte_is_read_to_some_end() {
    let mut image = Image { data: vec![7; 5000], ..Image::default() };
    let file = image.file(5000, &[STORED + 4096, STORED + 904]);
    let listing = image.listing(&[(b"file", file)]);
    let below = image.folder(listing.0, listing.1);
    let listing = image.listing(&[(b"below", below), (b"other", file)]);
    image.root = image.folder(listing.0, listing.1);
    let whole = image.bytes();
    let options = Options::default();
    let try_it = |bytes: Vec<u8>| {
        let mut count = 0;
        let source: SharedSource = Arc::new(MemorySource::new(bytes, "image"));
        let result = Squashfs.read(&source, &options, &mut |_| {
            count += 1;
            assert!(count < 1000, "it goes on and on");
            Ok(())
        });
        assert!(!matches!(result, Err(Error::Receiver(_))));
    };
    for length in 0..whole.len() {
        try_it(whole[..length].to_vec());
    }
    for at in (0..96).chain(96 + 5000..whole.len()) {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            try_it(bytes);
        }
    }
}
