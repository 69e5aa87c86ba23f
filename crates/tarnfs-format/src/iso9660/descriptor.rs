//! Volume descriptors: where the root is, and in which of the ways names are stored.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::{u16_at, u32_at};
use super::record::Record;
use crate::boot;

/// Bytes of a sector, and of a descriptor.
pub(super) use crate::boot::SECTOR;
/// Sectors before the first descriptor of a session.
pub(super) const FIRST: u64 = 16;
/// What stands in each of them behind the byte that says which one it is.
pub(super) const MAGIC: &[u8] = b"CD001";
/// Descriptors of one session; there are rarely more than five.
const MOST: u64 = 64;
/// Sessions of one image, and sectors behind the end of one in which the next one is looked for: of a CD there are
/// 11 400 between the first two.
const MOST_SESSIONS: u32 = 100;
const MOST_BETWEEN: u64 = 12_000;

/// Sectors that are looked at in all, of images that share what one may take.
const MOST_LOOKED_AT: u64 = 2_400_000;

/// The same where sessions before the newest one are looked for: one sector of 16, of a disc with 512 GiB.
const MOST_OF_OLDER: u64 = 1 << 24;

/// A tree of folders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    /// Bytes of a block: extents count in it.
    pub(super) block: u64,
    /// Block in which the listing of the root begins, and its length in bytes.
    pub(super) root: (u64, u64),
}

/// What the descriptors of one session say.
#[derive(Debug, Default)]
pub(super) struct Volume {
    /// Names of the first standard, and those of Rock Ridge if it has them.
    pub(super) primary: Option<Tree>,
    /// Names in UCS-2.
    pub(super) joliet: Option<Tree>,
    /// Long names, of ISO 9660:1999.
    pub(super) enhanced: Option<Tree>,
    /// Sector of the catalogue of what can be booted.
    pub(super) boot: Option<u64>,
    /// The name of the volume.
    pub(super) label: Vec<u8>,
    /// Sectors of all of it, as it says itself.
    pub(super) sectors: u64,
    /// Sector at which the session begins.
    pub(super) start: u64,
}

/// The descriptors that begin at `sector`; `None` where there are none. `left` is how many sectors may still be looked
/// at.
fn session(source: &dyn Source, sector: u64, left: &mut u64) -> io::Result<Option<Volume>> {
    let mut volume = Volume::default();
    for sector in (sector..).take(MOST as usize) {
        let Some(rest) = left.checked_sub(1) else { break };
        *left = rest;
        let mut bytes = [0; SECTOR as usize];
        let Some(at) = sector.checked_mul(SECTOR).filter(|at| at.saturating_add(SECTOR) <= source.len()) else { break };
        match source.read_exact_at(&mut bytes, at) {
            // What cannot be decoded costs what it says, and not what the others say.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && volume.primary.is_some() => break,
            read => read?,
        }
        let [kind, head @ ..] = &bytes;
        if !head.starts_with(MAGIC) {
            break;
        }
        volume.add(*kind, &bytes);
        if *kind == 255 {
            break;
        }
    }
    let has_tree = volume.primary.is_some() || volume.joliet.is_some() || volume.enhanced.is_some();
    Ok(has_tree.then_some(volume))
}

impl Volume {
    /// False of another image behind one, whose blocks count from its own start.
    fn lies_behind(&self, start: u64) -> bool {
        let tree = self.primary.or(self.joliet).or(self.enhanced);
        tree.is_some_and(|tree| tree.root.0.saturating_mul(tree.block) >= start.saturating_mul(SECTOR))
    }

    /// True if there is more than one tree of names: each may have files that are in no other.
    pub(super) fn has_other_trees(&self) -> bool {
        [self.primary, self.joliet, self.enhanced].iter().flatten().count() > 1
    }

    fn add(&mut self, kind: u8, bytes: &[u8]) {
        let of = |from: usize, length: usize| bytes.get(from..).and_then(|rest| rest.get(..length)).unwrap_or_default();
        match kind {
            0 => self.boot = boot::catalogue(bytes).or(self.boot),
            1 if self.primary.is_none() => {
                self.primary = tree(bytes);
                let label = of(40, 32);
                let end = label.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |at| at.saturating_add(1));
                self.label = label.get(..end).unwrap_or_default().to_vec();
                let block = self.primary.map_or(SECTOR, |tree| tree.block);
                let blocks = u32_at(bytes, 80).map_or(0, u64::from);
                self.sectors = blocks.saturating_mul(block).div_ceil(SECTOR);
            }
            // Level 1, 2 and 3 of UCS-2; UTF-16 is told in the same way.
            2 if of(88, 32).windows(3).any(|window| matches!(window, b"%/@" | b"%/C" | b"%/E")) => {
                self.joliet = tree(bytes);
            }
            2 if of(6, 1) == [2] => self.enhanced = tree(bytes),
            _ => {}
        }
    }
}

/// The byte at which the first session ends, as its first descriptor with a tree says; `None` where there is none.
pub(super) fn end(show: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<u64> {
    for sector in (FIRST..).take(FIRST as usize) {
        let bytes = show(sector.saturating_mul(SECTOR), SECTOR as usize);
        let (kind, head) = bytes.split_first()?;
        if !head.starts_with(MAGIC) {
            return None;
        }
        if matches!(kind, 1 | 2) {
            let block = u16_at(&bytes, 128).filter(|block| matches!(block, 512 | 1024 | 2048))?;
            return u64::from(u32_at(&bytes, 80)?).checked_mul(block.into());
        }
    }
    None
}

/// True if UDF describes files, too. Its marks stand behind the descriptors (ECMA-167, 2/9).
pub(super) fn has_udf(source: &dyn Source) -> io::Result<bool> {
    let end = FIRST.saturating_add(MOST).saturating_add(MOST).min(source.len() / SECTOR);
    for sector in FIRST..end {
        let mut head = [0; 6];
        source.read_exact_at(&mut head, sector.saturating_mul(SECTOR))?;
        match &head[1..] {
            b"NSR02" | b"NSR03" => return Ok(true),
            b"CD001" | b"BEA01" | b"BOOT2" | b"TEA01" | b"CDW02" => {}
            _ => break,
        }
    }
    Ok(false)
}

/// True if a session before the newest one is still there, whose descriptors stand at the front: a program that adds a
/// session to a file, or to a disc that can be overwritten, replaces those at the front. (libisofs keeps the first
/// session at sector 32, and each begins at a multiple of 16.)
pub(super) fn has_older_session(source: &dyn Source, newest: &Volume, cancel: &Cancel) -> io::Result<bool> {
    has_older_within(source, newest, MOST_OF_OLDER, cancel)
}

/// The same, where so many sectors are looked at. Behind these there may be one.
fn has_older_within(source: &dyn Source, newest: &Volume, mut left: u64, cancel: &Cancel) -> io::Result<bool> {
    let end = newest.sectors.min(source.len() / SECTOR);
    let roots =
        |volume: &Volume| [volume.primary, volume.joliet, volume.enhanced].map(|tree| tree.map(|tree| tree.root));
    let mut next = FIRST;
    while next < end {
        let begins = next;
        next = begins.saturating_add(FIRST);
        let Some(rest) = left.checked_sub(1) else { return Ok(true) };
        left = rest;
        cancel.check()?;
        let (sector, mut head) = (next, [0; 7]);
        let at = sector.saturating_mul(SECTOR);
        if source.read_at(&mut head, at)? < head.len() {
            break;
        }
        if head == [0; 7] {
            // A hole may have any length.
            let data = source.next_data(at).map_or(end, |data| data / SECTOR);
            let before = data.saturating_sub(data % FIRST).saturating_sub(FIRST);
            next = next.max(before);
            continue;
        }
        let is_first = matches!(head, [1, magic @ .., 1] if magic == *MAGIC);
        if is_first
            && let Some(found) = session(source, sector, &mut left)?
            && found.lies_behind(begins)
            && roots(&found) != roots(newest)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The tree of a descriptor; `None` where it cannot be one.
fn tree(bytes: &[u8]) -> Option<Tree> {
    let block = u16_at(bytes, 128)?;
    let root = Record::parse(bytes.get(156..)?)?;
    let is_possible = matches!(block, 512 | 1024 | 2048) && root.is_folder();
    is_possible.then(|| Tree { block: block.into(), root: (root.start(), root.length) })
}

/// What the last session says: it has the files of those before it that are still there. `None` where there is none.
/// Others are looked for as far as one of so many `shares` may.
pub(super) fn find(source: &dyn Source, shares: u64, cancel: &Cancel) -> io::Result<Option<Volume>> {
    let (mut left, mut of_first) = (MOST_LOOKED_AT.checked_div(shares).unwrap_or(MOST_LOOKED_AT), MOST);
    let Some(mut volume) = session(source, FIRST, &mut of_first)? else { return Ok(None) };
    let mut start = 0_u64;
    let sectors = source.len() / SECTOR;
    for _ in 0..MOST_SESSIONS {
        // Some programs count its sectors from its own start.
        let ends = [volume.sectors, volume.sectors.saturating_add(start)];
        let mut next = None;
        for end in ends {
            let from = end.max(start.saturating_add(1)).saturating_add(FIRST);
            for sector in from..from.saturating_add(MOST_BETWEEN).min(sectors) {
                let Some(rest) = left.checked_sub(1) else { break };
                left = rest;
                cancel.check()?;
                let mut head = [0; 7];
                match source.read_exact_at(&mut head, sector.saturating_mul(SECTOR)) {
                    // What cannot be decoded there costs none of the sessions before.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                    read => read?,
                }
                let is_first = matches!(head, [1, magic @ .., 1] if magic == *MAGIC);
                let begins = sector.saturating_sub(FIRST);
                if is_first
                    && let Some(found) = session(source, sector, &mut left)?
                    && found.lies_behind(begins)
                {
                    next = Some((begins, found));
                    break;
                }
            }
            if next.is_some() || ends[0] == ends[1] {
                break;
            }
        }
        let Some((found, of_next)) = next else { break };
        (start, volume) = (found, of_next);
    }
    volume.start = start;
    Ok(Some(volume))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A disk with one sector in which there is something, and how often it was read.
    #[derive(Debug)]
    struct Sparse {
        sector: u64,
        head: [u8; 7],
        reads: AtomicU64,
    }

    impl Source for Sparse {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            buffer.fill(0);
            if offset == self.sector * SECTOR {
                buffer[..7].copy_from_slice(&self.head);
            }
            Ok(buffer.len())
        }

        fn len(&self) -> u64 {
            8 << 40
        }

        fn describe(&self) -> String {
            "sparse".to_owned()
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            let (start, end) = (self.sector * SECTOR, (self.sector + 1) * SECTOR);
            (offset < end).then_some(offset.max(start))
        }
    }

    /// A disk on which each sector is the first descriptor of a session at its start, and how often it was read.
    #[derive(Debug)]
    struct Same {
        sector: [u8; SECTOR as usize],
        reads: AtomicU64,
    }

    impl Source for Same {
        fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            buffer.copy_from_slice(&self.sector[..buffer.len()]);
            Ok(buffer.len())
        }

        fn len(&self) -> u64 {
            8 << 40
        }

        fn describe(&self) -> String {
            "the same".to_owned()
        }
    }

    /// Behind each of them may be 63 more.
    #[test]
    fn descriptors_of_sessions_that_are_none_are_counted() {
        let mut sector = [0; SECTOR as usize];
        sector[..7].copy_from_slice(b"\x01CD001\x01");
        sector[80..84].copy_from_slice(&32_u32.to_le_bytes());
        sector[128..130].copy_from_slice(&(SECTOR as u16).to_le_bytes());
        // The root: a folder in block 0.
        (sector[156], sector[156 + 25], sector[156 + 32]) = (34, 2, 1);
        let source = Same { sector, reads: AtomicU64::new(0) };
        let volume = find(&source, MOST_LOOKED_AT / 1000, &Cancel::default()).unwrap().unwrap();
        assert_eq!((volume.start, volume.primary.map(|tree| tree.root.0)), (0, Some(0)));
        let reads = source.reads.swap(0, Ordering::Relaxed);
        assert!((1000..1000 + 2 * MOST).contains(&reads), "{reads}");
        let newest = Volume { sectors: u64::MAX, ..volume };
        assert!(has_older_within(&source, &newest, 1000, &Cancel::default()).unwrap());
        let reads = source.reads.load(Ordering::Relaxed);
        assert!((900..=1000).contains(&reads), "{reads}");
    }

    #[test]
    fn holes_are_passed_at_once_where_older_sessions_are_looked_for() {
        let newest = Volume { sectors: u64::MAX, ..Volume::default() };
        for (sector, head, is_looked_at) in [
            (160_000_000 * FIRST, *b"\x01CD001\x01", true),
            (160_000_000 * FIRST, *b"nothing", false),
            (160_000_000 * FIRST + 3, *b"\x01CD001\x01", false),
            (FIRST, *b"\x01CD001\x01", false),
        ] {
            let source = Sparse { sector, head, reads: AtomicU64::new(0) };
            assert!(!has_older_session(&source, &newest, &Cancel::default()).unwrap());
            let reads = source.reads.load(Ordering::Relaxed);
            assert!(reads < 80, "{sector}: {reads}");
            // Its descriptors were read, which are none behind the first bytes.
            assert_eq!(reads > 5, is_looked_at, "{sector}: {reads}");
        }
    }
}
