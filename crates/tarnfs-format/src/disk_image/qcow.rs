//! qcow2, versions 2 and 3 (QEMU: docs/interop/qcow2.txt): tables of two levels, whose entries tell where each cluster
//! lies.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Source};

use super::layout::{
    Found, LONGEST, LONGEST_BLOCK, Layout, Packed, Place, Refusal, Run, Show, coder, read, split, stored,
};
use super::tables::Tables;
use crate::Coder;
use crate::big::{u32_at, u64_at};
use crate::image::damaged;
use crate::name::excerpt;

const MAGIC: &[u8] = b"QFI\xfb";

/// What a magic gets.
const BITS: u32 = 32;
/// What it gets with numbers that can be.
const WHOLE_BITS: u32 = 64;

/// Bytes of the longest header that says something which is known.
const HEADER: usize = 112;
/// Bytes of one of version 2, and of one of version 3 without what came later.
const SHORT_HEADER: u32 = 72;
const LONG_HEADER: u32 = 104;

/// Bits of the number of bytes of a cluster.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;

/// Bytes of the name of another file (the specification's own limit).
const LONGEST_NAME: u32 = 1023;

/// Features that a reader has to know.
mod incompatible {
    pub(super) const DIRTY: u64 = 1;
    pub(super) const CORRUPT: u64 = 1 << 1;
    pub(super) const DATA_FILE: u64 = 1 << 2;
    pub(super) const COMPRESSION: u64 = 1 << 3;
    pub(super) const LONG_ENTRIES: u64 = 1 << 4;
}

/// Bits of an entry that are a place, in units of bytes.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// Bits of an entry of the second level: it is packed; it is zeros.
const IS_PACKED: u64 = 1 << 62;
const IS_ZERO: u64 = 1;

/// Bytes that the length of a packed cluster counts.
const SECTOR: u64 = 512;

/// Parts of a cluster that a long entry has two bits for.
const PARTS: u64 = 32;

/// Entries that are looked at to say how long a run is.
const AT_ONCE: u64 = 1 << 13;

pub(super) fn bid(show: &Show<'_>, _: Option<u64>) -> u32 {
    let head = show(0, HEADER);
    if !head.starts_with(MAGIC) {
        return 0;
    }
    let is_known =
        matches!(u32_at(&head, 4), Some(2 | 3)) && u32_at(&head, 20).is_some_and(|bits| CLUSTER_BITS.contains(&bits));
    if is_known { WHOLE_BITS } else { BITS }
}

#[derive(Debug)]
struct Qcow {
    length: u64,
    cluster_bits: u32,
    first_table: u64,
    first_entries: u64,
    has_zeros: bool,
    has_long_entries: bool,
    coder: Arc<Coder>,
    tables: Tables,
}

pub(super) fn open(source: &dyn Source, _: &Cancel) -> Result<Found, Refusal> {
    use incompatible::{COMPRESSION, CORRUPT, DATA_FILE, DIRTY, LONG_ENTRIES};
    let head = read(source, 0, HEADER)?;
    let cut = || Refusal::because("the header of the qcow2 image is cut");
    let word = |at: usize| u32_at(&head, at).ok_or_else(cut);
    let long = |at: usize| u64_at(&head, at).ok_or_else(cut);
    let version = word(4)?;
    if !matches!(version, 2 | 3) {
        return Err(Refusal::needs(format!("it is a QCOW image of version {version}; 2 and 3 are read")));
    }
    let (backing, backing_length) = (long(8)?, word(16)?);
    let (cluster_bits, length, encryption) = (word(20)?, long(24)?, word(32)?);
    let (first_entries, first_table, snapshots) = (u64::from(word(36)?), long(40)?, word(60)?);
    let (features, header) = if version == 2 { (0, SHORT_HEADER) } else { (long(72)?, word(100)?) };
    if encryption != 0 {
        return Err(Refusal::needs("the qcow2 image is encrypted"));
    }
    if backing != 0 {
        let name = read(source, backing, backing_length.min(LONGEST_NAME) as usize)?;
        let name = excerpt(&name);
        let what = format!(
            "it has only what differs from {name}, its backing file; `qemu-img convert` makes one image of both"
        );
        return Err(Refusal::needs(what));
    }
    if features & DATA_FILE != 0 {
        return Err(Refusal::needs("its data lie in another file (an external data file)"));
    }
    let unknown = features & !(DIRTY | CORRUPT | COMPRESSION | LONG_ENTRIES);
    if unknown != 0 {
        return Err(Refusal::needs(format!("the qcow2 image has features that are not known: {unknown:#x}")));
    }
    let is_short = version == 3 && header < LONG_HEADER;
    if is_short || !CLUSTER_BITS.contains(&cluster_bits) || length > LONGEST || !first_table.is_multiple_of(SECTOR) {
        return Err(Refusal::because("the header of the qcow2 image is damaged"));
    }
    let method = if features & COMPRESSION == 0 { 0 } else { head.get(104).copied().unwrap_or_default() };
    let coder = match method {
        0 => coder("deflate-in-front"),
        1 => coder("zstd-in-front"),
        other => {
            return Err(Refusal::needs(format!("its clusters are compressed in a way that is not known ({other})")));
        }
    };
    let layout = Qcow {
        length,
        cluster_bits,
        first_table,
        first_entries,
        has_zeros: version > 2,
        has_long_entries: features & LONG_ENTRIES != 0,
        coder,
        tables: Tables::default(),
    };
    let mut found = Found::new(layout);
    if features & CORRUPT != 0 {
        found.damage.push((72, "the image says of itself that it is corrupt".to_owned()));
    }
    if snapshots > 0 {
        found.others.push(format!("{snapshots} snapshots of the disk"));
    }
    Ok(found)
}

impl Qcow {
    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of an entry of the second level.
    fn entry(&self) -> u64 {
        if self.has_long_entries { 16 } else { 8 }
    }

    /// Entries in a table of the second level.
    fn entries(&self) -> u64 {
        split(self.cluster(), self.entry()).0
    }

    /// What an entry of the second level says of the bytes from byte `inside` of its cluster on.
    fn place(&self, source: &dyn Source, entry: &[u8], inside: u64) -> io::Result<Run> {
        let number = u64_at(entry, 0).unwrap_or_default();
        let cluster = self.cluster();
        let left = cluster.saturating_sub(inside);
        if number & IS_PACKED != 0 {
            let bits = 62_u32.saturating_sub(self.cluster_bits.saturating_sub(8));
            let of_place = (1_u64 << bits).saturating_sub(1);
            let at = number & of_place;
            let sectors = (number & !(IS_PACKED | 1 << 63)) >> bits;
            let longest = sectors.saturating_add(1).saturating_mul(SECTOR).saturating_sub(at % SECTOR);
            let stored = longest.min(source.len().saturating_sub(at)).min(LONGEST_BLOCK);
            if stored == 0 {
                return Ok(Run {
                    length: left,
                    place: Place::Nowhere("a cluster lies behind the end of the image, which is cut"),
                });
            }
            let packed = Packed { at, stored, coder: Arc::clone(&self.coder), decoded: cluster, skip: inside };
            return Ok(Run { length: left, place: Place::Packed(packed) });
        }
        let at = number & PLACE;
        if self.has_long_entries {
            let bitmap = u64_at(entry, 8).unwrap_or_default();
            let part = cluster / PARTS;
            let first = inside.checked_div(part).unwrap_or_default();
            // Parts that are neither written nor zeros would be those of a backing file.
            let is_written = |one: u64| bitmap >> one & 1 == 1 && bitmap >> one.saturating_add(PARTS) & 1 == 0;
            let is_first = is_written(first);
            let end = (first..PARTS).find(|one| is_written(*one) != is_first).unwrap_or(PARTS);
            let length = end.saturating_mul(part).saturating_sub(inside);
            let place = if is_first { self.at(at.saturating_add(inside), at)? } else { Place::Hole };
            return Ok(Run { length, place });
        }
        let is_hole = at == 0 || self.has_zeros && number & IS_ZERO != 0;
        let place = if is_hole { Place::Hole } else { self.at(at.saturating_add(inside), at)? };
        Ok(Run { length: left, place })
    }

    /// A byte of a cluster that begins at byte `cluster` of the image.
    fn at(&self, at: u64, cluster: u64) -> io::Result<Place> {
        if cluster == 0 || !cluster.is_multiple_of(self.cluster()) {
            return Err(damaged(format!("a cluster of the image would begin at byte {cluster}")));
        }
        Ok(Place::At(at))
    }
}

impl Layout for Qcow {
    fn length(&self) -> u64 {
        self.length
    }

    fn run(&self, source: &dyn Source, at: u64, wanted: u64) -> io::Result<Run> {
        let (cluster, entries) = (self.cluster(), self.entries());
        let (number, inside) = split(at, cluster);
        let (first, second) = split(number, entries);
        let left = entries.saturating_sub(second).saturating_mul(cluster).saturating_sub(inside);
        let nothing = Ok(Run { length: left, place: Place::Hole });
        if first >= self.first_entries {
            return Err(damaged("the first table of the image is too short for its disk"));
        }
        let place = self.first_table.saturating_add(first.saturating_mul(8));
        let table = u64_at(self.tables.entries(source, place, 8)?.bytes(), 0).unwrap_or_default() & PLACE;
        if table == 0 {
            return nothing;
        }
        if !table.is_multiple_of(cluster) {
            return Err(damaged(format!("a table of the image would begin at byte {table}")));
        }
        let size = self.entry() as usize;
        let place = table.saturating_add(second.saturating_mul(self.entry()));
        let found = self.tables.entries(source, place, size)?;
        let mut rest = found.bytes().chunks_exact(size).take(entries.saturating_sub(second).min(AT_ONCE) as usize);
        let Some(entry) = rest.next() else { return nothing };
        let mut run = self.place(source, entry, inside)?;
        let is_whole = run.length == cluster.saturating_sub(inside);
        if !is_whole {
            return Ok(cut(source, run));
        }
        for entry in rest {
            if run.length >= wanted {
                break;
            }
            let next = self.place(source, entry, 0);
            let follows = match (&run.place, next.as_ref().map(|next| &next.place)) {
                (Place::Hole, Ok(Place::Hole)) => true,
                (Place::At(at), Ok(Place::At(next))) => at.saturating_add(run.length) == *next,
                _ => false,
            };
            let Some(next) = next.ok().filter(|_| follows) else { break };
            run.length = run.length.saturating_add(next.length);
            if next.length < cluster {
                break;
            }
        }
        Ok(cut(source, run))
    }
}

/// The same, as far as the image goes.
fn cut(source: &dyn Source, run: Run) -> Run {
    match run.place {
        Place::At(at) => stored(source, at, run.length),
        _ => run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    #[test]
    fn an_entry_says_where_a_packed_cluster_lies() {
        let layout = Qcow {
            length: 1 << 30,
            cluster_bits: 16,
            first_table: 0,
            first_entries: 1,
            has_zeros: true,
            has_long_entries: false,
            coder: coder("deflate-in-front"),
            tables: Tables::default(),
        };
        let source = MemorySource::new(vec![0; 1 << 20], "image");
        // 54 bits of a place, then sectors behind the first one.
        let entry = (IS_PACKED | 3 << 54 | 0x12345).to_be_bytes();
        let run = layout.place(&source, &entry, 100).unwrap();
        let Place::Packed(packed) = run.place else { panic!("{run:?}") };
        assert_eq!((packed.at, packed.stored, packed.skip), (0x12345, 4 * 512 - 0x12345 % 512, 100));
        assert_eq!(run.length, (1 << 16) - 100);
        let entry = 0x8000_0000_0001_0000_u64.to_be_bytes();
        assert_eq!(layout.place(&source, &entry, 5).unwrap().place, Place::At(0x10005));
        let entry = 0x8000_0000_0001_0001_u64.to_be_bytes();
        assert_eq!(layout.place(&source, &entry, 5).unwrap().place, Place::Hole);
        assert!(layout.place(&source, &0x8000_0000_0001_0200_u64.to_be_bytes(), 5).is_err());
    }
}
