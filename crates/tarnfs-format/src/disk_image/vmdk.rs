//! VMDK, monolithic and sparse or optimised for streams (VMware: Virtual Disk Format 5.0): a header, a directory of
//! tables, and tables of grains. What lies in other files is told by their names.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Source};

use super::layout::{
    Found, LONGEST, LONGEST_BLOCK, Layout, Packed, Place, Refusal, Run, Show, coder, read, split, stored,
};
use super::tables::Tables;
use crate::Coder;
use crate::image::damaged;
use crate::little::{u16_at, u32_at, u64_at};
use crate::name::excerpt;

const MAGIC: &[u8] = b"KDMV";
const DESCRIPTOR: &[u8] = b"# Disk DescriptorFile";
/// Of hosts without an operating system of their own (ESX).
const OTHER_MAGIC: &[u8] = b"COWD";

/// What a header gets with numbers that can be, without, and what a text gets.
const BITS: u32 = 64;
const MAGIC_BITS: u32 = 32;

const HEADER: usize = 512;
const SECTOR: u64 = 512;

/// Flags: grains that are zeros have a number of their own; grains are packed.
const HAS_ZEROS: u32 = 1 << 2;
const IS_PACKED: u32 = 1 << 16;

/// The directory is told by a copy of the header, which begins so many bytes before the end.
const AT_END: u64 = u64::MAX;
const COPY_BEHIND: u64 = 1024;

/// Bytes of a descriptor that are looked at.
const LONGEST_DESCRIPTOR: u64 = 64 << 10;

/// Bytes before the data of a packed grain, and how many more than the grain has they may be (zlib).
const BEFORE_GRAIN: u64 = 12;
const GROWTH: u64 = 4096;

/// What an entry has for a grain that is not there, and for one that is zeros.
const NO_GRAIN: u32 = 0;
const ZEROS: u32 = 1;

/// Entries that are looked at to say how long a run is.
const AT_ONCE: u64 = 1 << 12;

pub(super) fn bid(show: &Show<'_>, _: Option<u64>) -> u32 {
    let head = show(0, HEADER);
    if head.starts_with(DESCRIPTOR) {
        return BITS;
    }
    if !head.starts_with(MAGIC) {
        return if head.starts_with(OTHER_MAGIC) && matches!(u32_at(&head, 4), Some(1)) { MAGIC_BITS } else { 0 };
    }
    if matches!(u32_at(&head, 4), Some(1..=3)) { BITS } else { MAGIC_BITS }
}

#[derive(Debug)]
struct Vmdk {
    length: u64,
    grain: u64,
    /// Entries of a table.
    entries: u64,
    directory: u64,
    has_zeros: bool,
    coder: Option<Arc<Coder>>,
    tables: Tables,
}

/// What lies in other files, of a descriptor that says so.
fn elsewhere(text: &[u8]) -> Refusal {
    let lines = text.split(|byte| *byte == b'\n');
    // RW 4192256 SPARSE "disk-s001.vmdk"
    let names = lines.filter_map(|line| {
        let is_extent = [&b"RW "[..], b"RDONLY ", b"NOACCESS "].iter().any(|start| line.starts_with(start));
        line.split(|byte| *byte == b'"').nth(1).filter(|_| is_extent)
    });
    let mut names: Vec<_> = names.take(5).map(|name| excerpt(name).to_string()).collect();
    if names.len() == 5 {
        names.pop();
        names.push("others".to_owned());
    }
    let names = if names.is_empty() { "other files".to_owned() } else { names.join(", ") };
    let what = format!(
        "it only describes a disk whose bytes lie in {names}; open that file, or make one image of all with `qemu-img convert`"
    );
    Refusal::needs(what)
}

pub(super) fn open(source: &dyn Source, _: &Cancel) -> Result<Found, Refusal> {
    let wrong = Refusal::because;
    let mut head = read(source, 0, HEADER)?;
    if head.starts_with(DESCRIPTOR) {
        let text = read(source, 0, LONGEST_DESCRIPTOR as usize)?;
        return Err(elsewhere(&text));
    }
    if head.starts_with(OTHER_MAGIC) {
        return Err(Refusal::needs("it is an extent of an ESX host (COWD), which is not read"));
    }
    if u64_at(&head, 56) == Some(AT_END) {
        let at = source.len().saturating_sub(COPY_BEHIND);
        head = read(source, at, HEADER)?;
        if !head.starts_with(MAGIC) {
            return Err(wrong("the VMDK image is cut: its directory lies at its end"));
        }
    }
    let cut = || wrong("the header of the VMDK image is cut");
    let word = |at: usize| u32_at(&head, at).ok_or_else(cut);
    let long = |at: usize| u64_at(&head, at).ok_or_else(cut);
    let (version, flags, capacity, grain) = (word(4)?, word(8)?, long(12)?, long(20)?);
    let (text, text_length, entries, directory) = (long(28)?, long(36)?, word(44)?, long(56)?);
    let method = u16_at(&head, 77).ok_or_else(cut)?;
    if !matches!(version, 1..=3) {
        return Err(Refusal::needs(format!("a VMDK image of version {version}; 1 to 3 are read")));
    }
    if text > 0 && text_length > 0 {
        let length = text_length.saturating_mul(SECTOR).min(LONGEST_DESCRIPTOR);
        check_descriptor(&read(source, text.saturating_mul(SECTOR), length as usize)?)?;
    }
    let (grain, length) = (grain.saturating_mul(SECTOR), capacity.saturating_mul(SECTOR));
    let is_possible = grain.is_power_of_two() && (8 * SECTOR..=LONGEST_BLOCK).contains(&grain);
    if !is_possible || !(1..=1 << 16).contains(&entries) || length > LONGEST || directory == AT_END {
        return Err(wrong("the header of the VMDK image is damaged"));
    }
    let coder = match (flags & IS_PACKED != 0, method) {
        (false, _) => None,
        (true, 1) => Some(coder("zlib-behind-length")),
        (true, other) => {
            return Err(Refusal::needs(format!("its grains are compressed in a way that is not known ({other})")));
        }
    };
    Ok(Found::new(Vmdk {
        length,
        grain,
        entries: entries.into(),
        directory: directory.saturating_mul(SECTOR),
        has_zeros: flags & HAS_ZEROS != 0,
        coder,
        tables: Tables::default(),
    }))
}

/// Refuses what has only what differs from another disk, or only a part of one.
fn check_descriptor(text: &[u8]) -> Result<(), Refusal> {
    let value = |key: &[u8]| {
        let mut lines = text.split(|byte| *byte == b'\n');
        let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(b"="));
        line.map(|line| line.trim_ascii().to_ascii_lowercase())
    };
    if value(b"parentCID").is_some_and(|parent| parent != b"ffffffff") {
        let name = value(b"parentFileNameHint").unwrap_or_default();
        let name = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(&name);
        let what = format!(
            "it has only what differs from {}, its parent; `qemu-img convert` makes one image of both",
            excerpt(name)
        );
        return Err(Refusal::needs(what));
    }
    let extents = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"RW ")).count();
    if extents > 1 { Err(elsewhere(text)) } else { Ok(()) }
}

impl Vmdk {
    /// What an entry says of the grain, from byte `inside` on; `next` is where another grain begins.
    fn place(&self, source: &dyn Source, entry: u32, inside: u64, next: Option<u32>) -> Run {
        let length = self.grain.saturating_sub(inside);
        if entry == NO_GRAIN || entry == ZEROS && self.has_zeros {
            return Run { length, place: Place::Hole };
        }
        let at = u64::from(entry).saturating_mul(SECTOR);
        let Some(coder) = &self.coder else { return stored(source, at.saturating_add(inside), length) };
        // How long it is stands before it; it is no longer than to the next one.
        let most = self.grain.saturating_add(BEFORE_GRAIN).saturating_add(GROWTH);
        let next = next.map(|next| u64::from(next).saturating_mul(SECTOR)).filter(|next| *next > at);
        let most = next.map_or(most, |next| most.min(next.saturating_sub(at)));
        let there = most.min(source.len().saturating_sub(at));
        if there <= BEFORE_GRAIN {
            return Run { length, place: Place::Nowhere("a grain lies behind the end of the image, which is cut") };
        }
        let coder = Arc::clone(coder);
        let packed = Packed { at, stored: there, coder, decoded: self.grain, skip: inside };
        Run { length, place: Place::Packed(packed) }
    }
}

impl Layout for Vmdk {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, wanted: u64) -> io::Result<Run> {
        let (number, inside) = split(at, self.grain);
        let (first, second) = split(number, self.entries);
        let in_table = self.entries.saturating_sub(second);
        let place = self.directory.saturating_add(first.saturating_mul(4));
        let table = u32_at(self.tables.entries(source, place, 4)?.bytes(), 0).unwrap_or_default();
        if table == NO_GRAIN {
            let length = in_table.saturating_mul(self.grain).saturating_sub(inside);
            return Ok(Run { length, place: Place::Hole });
        }
        let table = u64::from(table).saturating_mul(SECTOR);
        if table >= source.len() {
            return Err(damaged(format!("a table of the image would begin at byte {table}, behind its end")));
        }
        let found = self.tables.entries(source, table.saturating_add(second.saturating_mul(4)), 4)?;
        let mut entries = found.bytes().chunks_exact(4).take(in_table.min(AT_ONCE) as usize);
        let mut entries = entries.by_ref().filter_map(|entry| u32_at(entry, 0)).peekable();
        let entry = entries.next().unwrap_or(NO_GRAIN);
        let mut run = self.place(source, entry, inside, entries.peek().copied().filter(|next| *next > ZEROS));
        for entry in entries {
            let next = self.place(source, entry, 0, None);
            let follows = match (&run.place, &next.place) {
                (Place::Hole, Place::Hole) => true,
                (Place::At(at), Place::At(next)) => at.saturating_add(run.length) == *next,
                _ => false,
            };
            if run.length >= wanted || !follows {
                break;
            }
            run.length = run.length.saturating_add(next.length);
        }
        Ok(run)
    }
}
