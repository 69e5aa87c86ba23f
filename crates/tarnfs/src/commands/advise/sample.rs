//! A sample that stands for a folder or an archive: pieces of the stream that an archive of it would be, drawn from
//! all over it, the same ones at each call.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tarnfs_format::{Body, Kind, Time};
use tarnfs_source::{Cancel, Source};
use tarnfs_tree::{Attributes, Error, Node, Tree};
use tarnfs_write::{ArchiveWriter, Content, Nothing, Output, Target, Writing, entry_of};

use crate::inside;

/// Bytes of a piece: as much as most compressors take at once.
pub(super) const PIECE: usize = 4 << 20;
/// Pieces of a sample at most.
const PIECES: u64 = 12;
/// Files and folders of a tree that are looked at.
const MOST_ENTRIES: usize = 300_000;
/// Bytes of the paths of folders: in an archive they may be of any length.
const MOST_PATHS: usize = 64 << 20;
/// Looking at them, and reading the sample, ends after this time, where disks and servers are slow.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a file takes in an archive beside its bytes, which are filled up to a multiple of it.
const HEADER: u64 = 512;
/// What it takes if its time has a fraction of a second: a header for what does not fit into the other one, as well.
const WITH_FRACTION: u64 = 3 * HEADER;

fn header(mtime: Time) -> u64 {
    if mtime.nanoseconds > 0 { WITH_FRACTION } else { HEADER }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Those in front, as many as they are, come from all over the input.
    pub(super) pieces: Vec<Vec<u8>>,
    /// Bytes of the whole stream, as far as it was seen.
    pub(super) total: u64,
    /// Files with bytes, as far as they were seen, and how many bytes.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// There is more than was looked at.
    pub(super) is_cut: bool,
    /// Folders, files and pieces that cannot be read.
    pub(super) unreadable: u64,
    /// Bytes of files that cannot be read which would be in the sample.
    pub(super) lost: u64,
}

impl Sample {
    /// Bytes in it.
    pub(super) fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// True if it says little of the whole: more of what was to be in it cannot be read than can.
    pub(super) fn says_little(&self) -> bool {
        self.lost > self.length()
    }

    /// True if it is all that there is.
    pub(super) fn is_all(&self) -> bool {
        !self.is_cut && self.total <= PIECES * PIECE as u64 && self.unreadable == 0
    }
}

/// Numbers that look like random ones, and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    /// One below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Where pieces begin in a stream of `total` bytes, and how long they are. Those in front come from all over it.
fn places(total: u64) -> Vec<(u64, usize)> {
    let piece = PIECE as u64;
    let mut places = Vec::new();
    if total <= PIECES * piece {
        let starts = (0..total.div_ceil(piece)).map(|number| number * piece);
        places.extend(starts.map(|start| (start, (total - start).min(piece) as usize)));
    } else {
        let mut random = Random(total);
        for number in 0..PIECES {
            let (from, to) = (share(total, number), share(total, number + 1));
            places.push((from + random.below(to - from - piece + 1), PIECE));
        }
    }
    // Halves, quarters, eighths, ...: the number of each with its bits in reverse.
    let mut order: Vec<_> = places.into_iter().enumerate().collect();
    order.sort_by_key(|(number, _)| (*number as u8).reverse_bits());
    order.into_iter().map(|(_, place)| place).collect()
}

/// Where part `number` begins.
fn share(total: u64, number: u64) -> u64 {
    (u128::from(total) * u128::from(number) / u128::from(PIECES)) as u64
}

/// Draws from a stream whose bytes are compressed as they are.
pub(super) fn of_stream(stream: &dyn Source, files: (u64, u64), cancel: &Cancel) -> io::Result<Sample> {
    let mut sample = Sample { total: stream.len(), files: files.0, bytes: files.1, ..Sample::default() };
    let (start, mut failed) = (Instant::now(), None);
    for (at, length) in places(stream.len()) {
        cancel.check()?;
        if start.elapsed() > PATIENCE && !sample.pieces.is_empty() {
            break;
        }
        let mut piece = vec![0; length];
        match stream.read_exact_at(&mut piece, at) {
            Ok(()) => sample.pieces.push(piece),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            // It is damaged there.
            Err(error) => {
                sample.unreadable += 1;
                sample.lost = sample.lost.saturating_add(length as u64);
                failed = Some(error);
            }
        }
    }
    if let Some(error) = failed.filter(|_| sample.pieces.is_empty()) {
        return Err(error);
    }
    Ok(sample)
}

/// A file or folder that was seen.
struct Seen {
    node: Node,
    /// In the list of folders.
    folder: u32,
    name: Box<[u8]>,
    /// Bytes that stand before it in the stream.
    before: u64,
}

/// What is in a tree, as it would stand in an archive.
struct Walk<'a> {
    tree: &'a dyn Tree,
    cancel: &'a Cancel,
    folders: Vec<Vec<u8>>,
    /// Bytes of their paths, and of those that wait.
    paths: usize,
    seen: Vec<Seen>,
    sample: Sample,
}

/// Draws from what is in a tree. Nothing is opened but regular files.
pub(super) fn of_tree(tree: &dyn Tree, cancel: &Cancel) -> Result<Sample, Error> {
    let mut walk = Walk { tree, cancel, folders: Vec::new(), paths: 0, seen: Vec::new(), sample: Sample::default() };
    walk.look()?;
    if walk.seen.is_empty() {
        // What an archive of nothing is.
        let piece = walk.piece(0, PIECE)?;
        walk.sample.total = piece.len() as u64;
        walk.sample.pieces.push(piece);
        return Ok(walk.sample);
    }
    let start = Instant::now();
    for (at, length) in places(walk.sample.total) {
        cancel.check()?;
        if start.elapsed() > PATIENCE && !walk.sample.pieces.is_empty() {
            break;
        }
        let piece = walk.piece(at, length)?;
        if !piece.is_empty() {
            walk.sample.pieces.push(piece);
        }
    }
    Ok(walk.sample)
}

impl Walk<'_> {
    /// Looks into the folders in a random order, so that in a huge tree those that are seen lie all over it.
    fn look(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let mut random = Random(0);
        let mut links = HashSet::new();
        let mut waiting = vec![(Node::ROOT, Vec::new())];
        while !waiting.is_empty() {
            let (folder, path) = waiting.swap_remove(random.below(waiting.len() as u64) as usize);
            self.cancel.check()?;
            if self.is_enough(start) {
                self.sample.is_cut = true;
                break;
            }
            let number = self.folders.len() as u32;
            let (mut is_cut, tree) = (false, self.tree);
            let listed = tree.read_dir(folder, 0, &mut |child| {
                is_cut = self.is_enough(start) || self.cancel.is_cancelled();
                if is_cut {
                    return false;
                }
                let attributes = child.attributes;
                if attributes.kind == Kind::Folder {
                    let inner =
                        if path.is_empty() { child.name.to_vec() } else { [&path, &b"/"[..], child.name].concat() };
                    self.paths += inner.len();
                    waiting.push((attributes.node, inner));
                } else if attributes.links > 1 && !links.insert(attributes.node) {
                    // Another name of one file has no bytes of its own.
                    return true;
                }
                self.see(number, child.name, &attributes);
                true
            });
            self.sample.is_cut |= is_cut;
            match listed {
                Ok(()) => {}
                Err(error) if folder == Node::ROOT || inside::is_interrupted(&error) => return Err(error),
                Err(_) => self.sample.unreadable += 1,
            }
            self.folders.push(path);
        }
        self.cancel.check()?;
        // As an archive would have them, whatever the order in which they were seen. Of one folder they stay in order.
        let folders = &self.folders;
        self.seen.sort_by(|one, other| folders[one.folder as usize].cmp(&folders[other.folder as usize]));
        for seen in &mut self.seen {
            let length = std::mem::replace(&mut seen.before, self.sample.total);
            self.sample.total = self.sample.total.saturating_add(length);
        }
        Ok(())
    }

    fn is_enough(&self, start: Instant) -> bool {
        self.seen.len() >= MOST_ENTRIES || self.paths > MOST_PATHS || start.elapsed() > PATIENCE
    }

    fn see(&mut self, folder: u32, name: &[u8], attributes: &Attributes) {
        let size = if attributes.kind == Kind::File { attributes.size } else { 0 };
        self.sample.files += u64::from(size > 0);
        self.sample.bytes = self.sample.bytes.saturating_add(size);
        // Until it is known what stands before it: its own length.
        let before = header(attributes.mtime).saturating_add(size.checked_next_multiple_of(HEADER).unwrap_or(size));
        self.seen.push(Seen { node: attributes.node, folder, name: name.into(), before });
    }

    /// The files that are found at byte `at` of the stream, and behind it.
    fn piece(&mut self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = File::from(memfd_create("tarnfs-sample", MemfdFlags::CLOEXEC)?);
        let target = Target::plain();
        let mut writer = target.writer(Writing {
            output: Output::stream(file.as_fd().try_clone_to_owned()?.into()),
            compression: target.compression(),
            level: target.usual_level(),
            threads: 1,
            memory: 0,
            index: None,
        })?;
        let first = self.seen.partition_point(|seen| seen.before <= at).saturating_sub(1);
        let (mut at, mut left) = (at, length as u64);
        for number in first..self.seen.len() {
            if left == 0 {
                break;
            }
            self.cancel.check()?;
            let seen = &self.seen[number];
            // Its header stands before the part of it, too.
            let skip = at.saturating_sub(seen.before);
            let next = self.seen.get(number + 1).map_or(self.sample.total, |next| next.before);
            match self.put(&mut *writer, seen, skip, left) {
                Ok(put) => left = left.saturating_sub(put),
                Err(Refused::Input(bytes)) => {
                    self.sample.unreadable += 1;
                    self.sample.lost = self.sample.lost.saturating_add(bytes);
                    // It has its place in the piece.
                    left = left.saturating_sub(next.saturating_sub(at));
                }
                Err(Refused::Output(error)) => return Err(error),
            }
            at = next;
        }
        let mut written = writer.finish()?.output.file().try_clone()?;
        written.rewind()?;
        let mut piece = Vec::with_capacity(length);
        written.take(length as u64).read_to_end(&mut piece)?;
        Ok(piece)
    }

    /// Puts what is seen there from byte `skip` of its bytes on, at most `most` bytes. Returns how many it takes.
    fn put(&self, writer: &mut dyn ArchiveWriter, seen: &Seen, skip: u64, most: u64) -> Result<u64, Refused> {
        let attributes = self.tree.attributes(seen.node)?;
        let wanted = if attributes.kind == Kind::File { attributes.size.saturating_sub(skip).min(most) } else { 0 };
        let refused = |error: Error| match Refused::from(error) {
            Refused::Input(_) => Refused::Input(wanted),
            output @ Refused::Output(_) => output,
        };
        let (user, group) = self.tree.owner_names(seen.node)?;
        let folder = &self.folders[seen.folder as usize];
        let path = if folder.is_empty() { seen.name.to_vec() } else { [folder, &b"/"[..], &seen.name].concat() };
        let mut entry = entry_of(&attributes, path, (user, group));
        if writer.why_not(&entry).is_some() {
            return Ok(0);
        }
        let mut content = None;
        match attributes.kind {
            Kind::File => {
                let source = self.tree.open(seen.node).map_err(refused)?;
                let size = source.len().saturating_sub(skip).min(most);
                // Before its header is written: zeros for what cannot be read would be compressed very well.
                let mut bytes = vec![0; usize::try_from(size).map_err(|_| Refused::Input(wanted))?];
                source.read_exact_at(&mut bytes, skip).map_err(|error| refused(error.into()))?;
                entry.body = Body { size, stored: size, ..Body::default() };
                content = Some(Part(bytes));
            }
            Kind::Symlink => entry.link = self.tree.read_link(seen.node)?,
            _ => {}
        }
        let added = match &content {
            Some(content) => writer.add(&entry, content),
            None => writer.add(&entry, &Nothing),
        };
        match added.map_err(Refused::Output)?.error {
            Some(error) if error.kind() == io::ErrorKind::Interrupted => Err(Refused::Output(error)),
            Some(_) => Err(Refused::Input(wanted)),
            // The bytes behind it are filled up, too.
            None => Ok(header(entry.mtime).saturating_add(entry.body.size.next_multiple_of(HEADER))),
        }
    }
}

/// Why a file is not in a piece.
enum Refused {
    /// It cannot be read, and so many bytes of it are missing.
    Input(u64),
    Output(io::Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) if error.kind() == io::ErrorKind::Interrupted => Self::Output(error),
            _ => Self::Input(0),
        }
    }
}

/// Bytes of a file, of which there are never more than in a piece.
struct Part(Vec<u8>);

impl Content for Part {
    fn read_at(&self, mut buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        buffer.write(&rest[..rest.len().min(buffer.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_from_all_over_and_are_the_same_each_time() {
        assert_eq!(places(0), []);
        assert_eq!(places(5), [(0, 5)]);
        let piece = PIECE as u64;
        let mut all = places(PIECES * piece - 1);
        assert_eq!(all[..2], [(0, PIECE), (8 * piece, PIECE)]);
        all.sort_unstable();
        assert!(all.iter().zip(&all[1..]).all(|(one, other)| one.0 + one.1 as u64 == other.0), "{all:?}");
        assert_eq!(all.iter().map(|(_, length)| *length as u64).sum::<u64>(), PIECES * piece - 1);
        for total in [PIECES * piece + 1, 1 << 40, u64::MAX] {
            let drawn = places(total);
            assert_eq!(drawn, places(total));
            // One of each twelfth, the first ones far from each other.
            let mut parts: Vec<_> =
                drawn.iter().map(|(start, _)| (0..PIECES).find(|part| share(total, part + 1) > *start)).collect();
            assert_eq!(parts[..3], [Some(0), Some(8), Some(4)], "{total}");
            parts.sort_unstable();
            assert_eq!(parts, (0..PIECES).map(Some).collect::<Vec<_>>(), "{total}");
            assert!(drawn.iter().all(|(start, length)| start.saturating_add(*length as u64) <= total), "{total}");
        }
    }
}
