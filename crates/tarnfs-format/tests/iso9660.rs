//! Images of ISO 9660 that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_format::iso9660::Iso9660;
use tarnfs_format::{Event, Format, Options, Probe, ReadRandom};
use tarnfs_source::{MemorySource, SharedSource, Source};

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
        let (mut paths, mut damage) = (Vec::new(), Vec::new());
        let mut receive = |event| {
            match event {
                Event::Entry(entry) => paths.push(String::from_utf8(entry.path).unwrap()),
                Event::Damage(found) => damage.push(found.what),
                _ => {}
            }
            if paths.len() > 10_000 { Err(io::Error::other("too many")) } else { Ok(()) }
        };
        Iso9660.read(&source, &Options::default(), &mut receive).unwrap();
        (paths, damage)
    }
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

#[test]
fn a_file_of_many_extents_ends_with_the_listing() {
    let mut image = Image::new(SECTOR);
    let part = |at| record(b"BIG.;1", GOES_ON, at, SECTOR);
    image.list(ROOT, &[part(30), part(31), part(40)]);
    let (paths, damage) = image.read();
    assert_eq!((paths, damage), (vec![".".to_owned(), "BIG".to_owned()], vec![]));
}
