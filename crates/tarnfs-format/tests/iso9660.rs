//! Images of ISO 9660 that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_format::iso9660::Iso9660;
use tarnfs_format::{Entry, Event, Format, Options, Probe, ReadRandom};
use tarnfs_source::{Extent, MemorySource, SharedSource, Source, Stencil};

const SECTOR: usize = 2048;
/// Sectors of the image, and that of the root's listing.
const SECTORS: usize = 64;
const ROOT: usize = 18;

/// Of the flags of a record.
const FOLDER: u8 = 2;
const GOES_ON: u8 = 128;

/// An image of 64 sectors.
struct Image(Vec<u8>);

/// Both orders of bytes.
fn both(number: usize) -> Vec<u8> {
    [(number as u32).to_le_bytes(), (number as u32).to_be_bytes()].concat()
}

/// A record of what lies in sector `at`.
fn record(name: &[u8], flags: u8, at: usize, length: usize) -> Vec<u8> {
    let mut record = vec![0, 0];
    record.extend(both(at));
    record.extend(both(length));
    record.extend([101, 2, 3, 4, 5, 6, 0, flags, 0, 0, 1, 0, 0, 1, name.len() as u8]);
    record.extend(name);
    if name.len().is_multiple_of(2) {
        record.push(0);
    }
    record[0] = record.len() as u8;
    record
}

impl Image {
    /// One whose root has so many bytes.
    fn new(root: usize) -> Self {
        let mut image = Self(vec![0; SECTORS * SECTOR]);
        image.put(16, 0, b"\x01CD001\x01");
        image.put(16, 40, &[b' '; 32]);
        image.put(16, 80, &both(SECTORS));
        image.put(16, 128, &[0, 8, 8, 0]);
        image.put(16, 156, &record(&[0], FOLDER, ROOT, root));
        image.put(17, 0, b"\xffCD001\x01");
        image
    }

    fn put(&mut self, sector: usize, at: usize, bytes: &[u8]) {
        let start = sector * SECTOR + at;
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// A listing in one sector of a folder.
    fn list(&mut self, sector: usize, records: &[Vec<u8>]) {
        let own = [record(&[0], FOLDER, sector, SECTOR), record(&[1], FOLDER, ROOT, SECTOR)];
        self.put(sector, 0, &[own.concat(), records.concat()].concat());
    }

    fn read(&self) -> (Vec<String>, Vec<String>) {
        self.read_but(0..0)
    }

    /// Paths, and what is damaged, if some sectors cannot be decoded.
    fn read_but(&self, sectors: Range<usize>) -> (Vec<String>, Vec<String>) {
        assert!(Iso9660.bid(&Probe::of_head(&self.0)) > 32);
        let bad = (sectors.start * SECTOR) as u64..(sectors.end * SECTOR) as u64;
        let source: SharedSource = Arc::new(Damaged { inner: MemorySource::new(&self.0[..], "image"), bad });
        let (entries, damage) = told(&source);
        (paths_of(&entries), damage)
    }

    /// Bytes of a file that can be read; `None` if nothing of it can.
    fn content(&self, path: &str) -> Option<u64> {
        let source: SharedSource = Arc::new(MemorySource::new(&self.0[..], "image"));
        let (entries, _) = told(&source);
        let entry = entries.iter().find(|entry| entry.path == path.as_bytes()).unwrap();
        let pieces = entry.body.pieces.as_ref().unwrap();
        let whole = pieces.iter().map(|piece| piece.length).sum::<u64>();
        assert_eq!(whole, entry.body.size);
        let readable = pieces.iter().filter(|piece| piece.coder.is_none()).map(|piece| piece.length).sum();
        let is_unreadable = pieces.len() == 1 && pieces[0].coder.is_some() && pieces[0].offset == entry.header;
        (!is_unreadable).then_some(readable)
    }
}

fn paths_of(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8(entry.path.clone()).unwrap()).collect()
}

fn read(source: &SharedSource) -> (Vec<String>, Vec<String>) {
    let (entries, damage) = told(source);
    (paths_of(&entries), damage)
}

fn told(source: &SharedSource) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let mut receive = |event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        if entries.len() > 10_000 { Err(io::Error::other("too many")) } else { Ok(()) }
    };
    Iso9660.read(source, &Options::default(), &mut receive).unwrap();
    (entries, damage)
}

/// As a compressed file of which some bytes are damaged.
#[derive(Debug)]
struct Damaged {
    inner: MemorySource,
    bad: Range<u64>,
}

impl Source for Damaged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < self.bad.end && self.bad.start < offset + buffer.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged here"));
        }
        self.inner.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// Two folders with a file in each, and what a computer boots from.
fn two_folders() -> Image {
    let mut image = Image::new(SECTOR);
    image.put(17, 0, b"\x00CD001\x01EL TORITO SPECIFICATION");
    image.put(17, 0x47, &25_u32.to_le_bytes());
    let mut catalogue = [0; 64];
    catalogue[0] = 1;
    catalogue[28..32].copy_from_slice(&[0xaa, 0x55, 0x55, 0xaa]);
    catalogue[32..40].copy_from_slice(&[0x88, 0, 0, 0, 0, 0, 4, 0]);
    catalogue[40] = 26;
    // The sum of all words is 0.
    catalogue[28..30].copy_from_slice(&0_u16.wrapping_sub(1).wrapping_sub(0xaa55).to_le_bytes());
    image.put(25, 0, &catalogue);
    image.list(ROOT, &[record(b"A", FOLDER, 20, SECTOR), record(b"B", FOLDER, 21, SECTOR)]);
    image.list(20, &[record(b"X.;1", 0, 22, 10)]);
    image.list(21, &[record(b"Y.;1", 0, 23, 10)]);
    image
}

#[test]
fn what_cannot_be_decoded_costs_itself_only() {
    let all = [".", "A", "A/X", "B", "B/Y", "[BOOT]", "[BOOT]/Boot-NoEmul.img"];
    let image = two_folders();
    let without = |left_out: &[&str]| all.iter().copied().filter(|path| !left_out.contains(path)).collect::<Vec<_>>();
    for (sectors, left_out, what) in [
        (0..0, &[][..], ""),
        (20..21, &["A/X"], "A: 2048 bytes of the listing: it is damaged here"),
        (21..22, &["B/Y"], "B: 2048 bytes of the listing"),
        (22..24, &[], ""),
        (25..26, &["[BOOT]", "[BOOT]/Boot-NoEmul.img"], "what a computer boots from is left out"),
        (18..19, &["A", "A/X", "B", "B/Y"], "the root: 2048 bytes of the listing"),
    ] {
        let (paths, damage) = image.read_but(sectors.clone());
        assert_eq!(paths, without(left_out), "{sectors:?}: {damage:?}");
        assert_eq!(damage.len(), usize::from(!what.is_empty()), "{sectors:?}: {damage:?}");
        assert!(damage.iter().all(|found| found.contains(what)), "{sectors:?}: {damage:?}");
    }
}

#[test]
fn names_behind_a_sector_that_cannot_be_decoded_are_there() {
    let mut image = Image::new(2 * SECTOR);
    image.list(ROOT, &[record(b"LOST.;1", 0, 22, 10)]);
    image.put(ROOT + 1, 0, &record(b"KEPT.;1", 0, 23, 10));
    assert_eq!(image.read().0, [".", "LOST", "KEPT"]);
    let (paths, damage) = image.read_but(ROOT..ROOT + 1);
    assert_eq!((paths, damage.len()), (vec![".".to_owned(), "KEPT".to_owned()], 1));
}

#[test]
fn a_listing_is_that_of_one_folder() {
    let mut image = Image::new(SECTOR);
    let names: Vec<_> = (0..20).map(|number| record(format!("D{number}").as_bytes(), FOLDER, ROOT, SECTOR)).collect();
    image.list(ROOT, &names);
    let (paths, damage) = image.read();
    assert_eq!((paths.len(), damage.len()), (21, 20));
    assert!(damage.iter().all(|what| what.ends_with("it is that of another folder")), "{damage:?}");
}

/// Of a file that goes on in another record, the rest is in none of another name.
#[test]
fn extents_are_those_of_one_name() {
    let part = |name: &[u8], flags, at| record(name, flags, at, 10);
    let first = || part(b"A.;1", GOES_ON, 30);
    for (records, expected, lost) in [
        (vec![first(), part(b"A.;1", 0, 31)], vec!["A"], false),
        (vec![first(), part(b"B.;1", 0, 31)], vec!["A", "B"], true),
        (vec![first(), record(b"A.;1", FOLDER, 20, SECTOR)], vec!["A", "A.;1"], true),
        (vec![first()], vec!["A"], true),
        (vec![first(), vec![3, 0, 0], vec![0; 40]], vec!["A"], true),
    ] {
        let mut image = Image::new(SECTOR);
        image.list(ROOT, &records);
        image.list(20, &[]);
        let (paths, damage) = image.read();
        assert_eq!(paths[1..], expected, "{damage:?}");
        let found = damage.iter().any(|what| what == "A cannot be read: an extent of it is missing");
        assert_eq!(found, lost, "{damage:?}");
        assert_eq!(image.content("A"), if lost { None } else { Some(20) });
    }
}

#[test]
fn of_a_cut_image_the_first_bytes_of_a_file_are_there() {
    let mut image = Image::new(SECTOR);
    image.list(ROOT, &[record(b"CUT.;1", 0, SECTORS - 1, 3 * SECTOR), record(b"GONE.;1", 0, SECTORS + 5, 7)]);
    let (paths, damage) = image.read();
    assert_eq!(paths, [".", "CUT", "GONE"]);
    assert_eq!(damage.len(), 2);
    assert!(damage[0].starts_with("the last 4096 of 6144 bytes of CUT lie behind the end"), "{damage:?}");
    assert_eq!((image.content("CUT"), image.content("GONE")), (Some(SECTOR as u64), Some(0)));
}

/// Folders in holes of any length take no time: each is a sector of records before 4 GiB of nothing.
#[test]
fn listings_in_holes_are_passed_over() {
    let mut image = Image::new(SECTOR);
    let far = |number: usize| SECTORS + (number + 1) * (1 << 21);
    let names: Vec<_> = (0..40).map(|number| format!("D{number}")).collect();
    let named = names.iter().enumerate();
    image
        .list(ROOT, &named.map(|(at, name)| record(name.as_bytes(), FOLDER, far(at), 0xffff_f800)).collect::<Vec<_>>());
    let source: SharedSource =
        Arc::new(Holes { image: image.0, far: (0..40).map(|number| (far(number) * SECTOR) as u64).collect() });
    let (paths, damage) = read(&source);
    assert_eq!((paths.len(), damage), (41, vec![]));
}

/// The image, and far behind it sectors with the record of a folder, 4 GiB from each other.
#[derive(Debug)]
struct Holes {
    image: Vec<u8>,
    far: Vec<u64>,
}

impl Source for Holes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        buffer.fill(0);
        let first = record(&[0], FOLDER, 0, SECTOR);
        let parts = self.far.iter().map(|far| (*far, &first[..])).chain([(0, &self.image[..])]);
        for (start, bytes) in parts {
            let from = offset.max(start);
            let to = (offset + buffer.len() as u64).min(start + bytes.len() as u64);
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..][..part.len()].copy_from_slice(part);
            }
        }
        Ok(buffer.len())
    }

    fn len(&self) -> u64 {
        self.far.last().unwrap() + (4 << 30)
    }

    fn describe(&self) -> String {
        "holes".to_owned()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        if offset < self.image.len() as u64 {
            return Some(offset);
        }
        self.far.iter().map(|far| (*far).max(offset)).find(|at| self.far.contains(&(at / 4096 * 4096)))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        if offset < self.image.len() as u64 { self.image.len() as u64 } else { (offset / 4096 + 1) * 4096 }
    }
}

/// Holes may be shorter than a sector: then the next data may lie in the same sector, behind the end of the listing.
#[test]
fn a_listing_ends_before_data_of_the_same_sector() {
    const PART: usize = 512;
    let mut image = Image::new(SECTOR);
    image.list(ROOT, &[record(b"D", FOLDER, 20, SECTOR + 100), record(b"E", FOLDER, 20, SECTOR)]);
    image.list(20, &[record(b"X.;1", 0, 22, 10)]);
    image.put(21, 2 * PART, &[1; 100]);
    // So much that the listings are no more than the image.
    image.put(40, 0, &[1; 2 * SECTOR]);
    let parts = image.0.chunks(PART).enumerate().filter(|(_, part)| part.iter().any(|byte| *byte != 0));
    let (places, packed): (Vec<_>, Vec<_>) = parts.unzip();
    let packed: SharedSource = Arc::new(MemorySource::new(packed.concat(), "packed"));
    let extents = places.iter().map(|at| Extent { offset: (at * PART) as u64, length: PART as u64, skip: 0 });
    let source: SharedSource = Arc::new(Stencil::new(packed, extents, image.0.len() as u64).unwrap());
    let (paths, damage) = read(&source);
    assert_eq!((&paths[..3], paths.len()), (&[".", "D", "D/X"].map(str::to_owned)[..], 4));
    assert!(damage.len() == 1 && damage[0].contains("that of another folder"), "{damage:?}");
}

/// A record with fields of Rock Ridge behind its name.
fn with_fields(mut record: Vec<u8>, fields: &[u8]) -> Vec<u8> {
    record.extend(fields);
    if record.len() % 2 == 1 {
        record.push(0);
    }
    record[0] = record.len() as u8;
    record
}

#[test]
fn a_link_without_a_target_is_told() {
    let mut image = Image::new(SECTOR);
    let own = with_fields(record(&[0], FOLDER, ROOT, SECTOR), &[b'S', b'P', 7, 1, 0xbe, 0xef, 0]);
    let posix = |mode| [&[b'P', b'X', 36, 1][..], &both(mode), &both(1), &both(0), &both(0)].concat();
    let link = with_fields(record(b"LINK.;1", 0, 0, 0), &posix(0o120_777));
    let file = with_fields(record(b"X.;1", 0, 22, 10), &posix(0o100_644));
    image.put(ROOT, 0, &[own, record(&[1], FOLDER, ROOT, SECTOR), link, file].concat());
    let (paths, damage) = image.read();
    assert_eq!(paths, [".", "LINK", "X"]);
    assert!(damage.len() == 1 && damage[0].starts_with("LINK: a symbolic link without a target"), "{damage:?}");
}

/// Any number of records may share an area with attributes, and begin these otherwise: what is in the index of an image
/// is no more than the image itself, and some.
#[test]
fn attributes_that_are_stored_once_are_not_told_of_every_file() {
    const AREA: usize = 30;
    const PARTS: usize = 230;
    let part = |flags: u8, bytes: &[u8]| [&[flags, bytes.len() as u8][..], bytes].concat();
    let field = |parts: Vec<u8>| [&[b'A', b'L', parts.len() as u8 + 5, 1, 1][..], &parts].concat();
    let area: Vec<u8> = (0..PARTS).flat_map(|_| field(part(1, &[b'v'; 240]))).chain(field(part(0, b"end"))).collect();
    let elsewhere = [&[b'C', b'E', 28, 1][..], &both(AREA), &both(0), &both(area.len())].concat();
    let own = with_fields(record(&[0], FOLDER, ROOT, 3 * SECTOR), &[b'S', b'P', 7, 1, 0xbe, 0xef, 0]);
    let mut image = Image::new(3 * SECTOR);
    image.put(AREA, 0, &area);
    image.put(ROOT, 0, &[own, record(&[1], FOLDER, ROOT, 3 * SECTOR)].concat());
    for number in 0..36 {
        let begin = field([part(0, format!("\x03name{number:04}").as_bytes()), part(1, b"begin")].concat());
        let name = format!("F{number:02}.;1");
        let file = with_fields(record(name.as_bytes(), 0, 0, 0), &[begin, elsewhere.clone()].concat());
        assert!(file.len() <= 100);
        image.put(ROOT + 1 + number / 18, number % 18 * file.len(), &file);
    }
    let source: SharedSource = Arc::new(MemorySource::new(&image.0[..], "image"));
    let (entries, damage) = told(&source);
    assert_eq!(entries.len(), 37);
    let with: Vec<_> = entries.iter().filter(|entry| !entry.xattrs.is_empty()).collect();
    let length = 5 + PARTS * 240 + 3;
    assert!(with.iter().all(|entry| entry.xattrs[0].1.len() == length), "{:?}", with[0].xattrs[0].1.len());
    assert_eq!(with.len(), ((1 << 20) + SECTORS * SECTOR) / (length + "user.name0000".len()));
    assert!(damage.len() == 36 - with.len() && damage[0].contains("too many"), "{damage:?}");
}

/// Of files that have several names, the first path of each is held. A record is short, however long that is.
#[test]
fn paths_of_files_with_several_names_are_held_as_far_as_the_image_pays_for_them() {
    const DEEP: usize = 19;
    const LISTED: usize = 20 + DEEP - 1;
    let mut image = Image::new(SECTOR);
    let own = with_fields(record(&[0], FOLDER, ROOT, SECTOR), &[b'S', b'P', 7, 1, 0xbe, 0xef, 0]);
    let posix = [&[b'P', b'X', 36, 1][..], &both(0o100_644), &both(2), &both(0), &both(0)].concat();
    // Folders in each other, and in the last of these, files; a folder beside has all but the first ones, too.
    let name = [b'D'; 200];
    let first = record(&name, FOLDER, 20, SECTOR);
    let beside = record(b"Z", FOLDER, LISTED + 1, 16 * SECTOR);
    image.put(ROOT, 0, &[own, record(&[1], FOLDER, ROOT, SECTOR), first, beside].concat());
    for sector in 20..LISTED {
        let length = if sector + 1 < LISTED { SECTOR } else { 17 * SECTOR };
        image.list(sector, &[record(&name, FOLDER, sector + 1, length)]);
    }
    let file = |number: usize| with_fields(record(format!("F{number:03}").as_bytes(), 0, 60, 1 + number), &posix);
    let files: Vec<_> = (0..26 + 16 * 27).map(file).collect();
    image.list(LISTED, &files[..26]);
    for (number, files) in files[26..].chunks(27).enumerate() {
        image.put(LISTED + 1 + number, 0, &files.concat());
    }
    let source: SharedSource = Arc::new(MemorySource::new(&image.0[..], "image"));
    let (entries, damage) = told(&source);
    assert_eq!((entries.len(), damage), (1 + DEEP + files.len() + 1 + 16 * 27, vec![]));
    // Those of which the path is not held are files of their own.
    let links = entries.iter().filter(|entry| !entry.link.is_empty()).count();
    assert!((300..400).contains(&links), "{links}");
}

/// What a record says of a file holds for all its extents.
#[test]
fn a_file_of_several_extents_is_as_unreadable_as_one_of_a_single_one() {
    let own = with_fields(record(&[0], FOLDER, ROOT, SECTOR), &[b'S', b'P', 7, 1, 0xbe, 0xef, 0]);
    // Compressed by a program that is not known, and sparse.
    let unknown = [&b"ZF\x10\x01??\x04\x0f"[..], &both(100)].concat();
    let sparse = [&b"SF\x15\x01"[..], &both(0), &both(100), &[1]].concat();
    for (fields, expected) in [(&unknown, "compressed in a way"), (&sparse, "sparse files"), (&Vec::new(), "")] {
        let mut image = Image::new(SECTOR);
        let part = |flags, at| with_fields(record(b"A.;1", flags, at, 10), fields);
        let one = with_fields(record(b"B.;1", 0, 32, 10), fields);
        image.put(
            ROOT,
            0,
            &[own.clone(), record(&[1], FOLDER, ROOT, SECTOR), part(GOES_ON, 30), part(0, 31), one].concat(),
        );
        let (paths, damage) = image.read();
        assert_eq!(paths, [".", "A", "B"]);
        let is_readable = expected.is_empty();
        assert_eq!(damage.len(), if is_readable { 0 } else { 2 }, "{damage:?}");
        assert!(damage.iter().all(|what| what.contains(expected)), "{damage:?}");
        assert_eq!(image.content("A"), is_readable.then_some(20));
        assert_eq!(image.content("B").is_some(), is_readable);
    }
}

/// Each record of a folder costs the whole path.
#[test]
fn folders_in_folders_end_before_their_paths_cost_much() {
    const DEEP: usize = 150;
    let mut image = Image::new(SECTOR);
    image.0.resize((ROOT + DEEP + 2) * SECTOR, 0);
    let name = [b'D'; 200];
    for depth in 0..DEEP {
        image.list(ROOT + depth, &[record(&name, FOLDER, ROOT + depth + 1, SECTOR)]);
    }
    image.list(ROOT + DEEP, &[]);
    let (paths, damage) = image.read();
    let longest = paths.iter().map(String::len).max().unwrap();
    assert!((15 << 10..17 << 10).contains(&longest) && paths.len() < DEEP, "{longest} bytes, {} paths", paths.len());
    assert!(damage.len() == 1 && damage[0].contains("too deep"), "{damage:?}");
}

/// An image with many sectors of zeros behind it; counts how often it is read.
#[derive(Debug)]
struct Long(MemorySource, AtomicU64);

impl Source for Long {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        buffer.fill(0);
        self.0.read_at(buffer, offset)?;
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        100 << 20
    }

    fn describe(&self) -> String {
        "image".to_owned()
    }
}

/// A disk may have thousands of partitions, behind each of which further sessions are looked for.
#[test]
fn images_on_one_disk_share_where_sessions_are_looked_for() {
    let mut image = Image::new(SECTOR);
    image.list(ROOT, &[]);
    for (shares, expected) in [(1, 12_000..13_000), (8192, 1..400)] {
        let source = Arc::new(Long(MemorySource::new(&image.0[..], "image"), AtomicU64::new(0)));
        let options = Options { shares, ..Options::default() };
        let shared: SharedSource = Arc::<Long>::clone(&source);
        Iso9660.read(&shared, &options, &mut |_| Ok(())).unwrap();
        let reads = source.1.load(Ordering::Relaxed);
        assert!(expected.contains(&reads), "{shares}: {reads}");
    }
}
