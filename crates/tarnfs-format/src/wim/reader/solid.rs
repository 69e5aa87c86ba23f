//! Short contents in solid resources: what Windows keeps for links, and streams that are attributes. Which ones come
//! next is known from the tree. So they are read in the order in which they lie, and each chunk is decoded once for all
//! of them. The codec compares nothing of a solid resource: each content is compared with its hash here.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use sha1::{Digest, Sha1};
use tarnfs_source::{SharedSource, Slice};

use super::{Hash, OF_TREE, Reader, Solid};
use crate::clusters::name_of;
use crate::image::{damaged, is_damage};
use crate::little::u32_at;
use crate::wim::dentry::{self, Dentry, FOLDER, Wrong};
use crate::window::Window;
use crate::{Error, Step};

/// Bytes of short contents that are kept, with what each takes beside them: those of the next files of the tree.
pub(super) const MOST_SHORT: usize = if cfg!(test) { 16 << 10 } else { 16 << 20 };
pub(super) const OF_SHORT_ONE: usize = 128;

/// Bytes before the table of a solid resource.
pub(super) const SOLID_HEADER: u64 = 16;

/// Chunks of a solid resource, as the codec has it.
const MOST_CHUNKS: u64 = 1 << 20;

/// Something short that is wanted.
#[derive(Debug)]
struct Short {
    solid: u32,
    /// Where it lies in what comes of that.
    offset: u64,
    length: usize,
    hash: Hash,
    /// What was read of it so far, or why it cannot be.
    found: Result<Vec<u8>, String>,
}

impl Short {
    /// Where its bytes go on that are not there yet; `None` if all are, or cannot be had.
    fn next(&self) -> Option<u64> {
        let there = self.found.as_ref().ok()?.len();
        (there < self.length).then(|| self.offset.saturating_add(there as u64))
    }

    /// What was read of it, if that is right.
    fn checked(self) -> Result<Vec<u8>, String> {
        let is_wrong = |bytes: &Vec<u8>| Sha1::digest(bytes)[..] != self.hash;
        if self.found.as_ref().is_ok_and(is_wrong) {
            return Err("is damaged: its SHA-1 does not match".to_owned());
        }
        self.found
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }

    /// Takes what it needs of bytes that begin at `at`.
    fn fill(&mut self, at: u64, part: &[u8]) {
        let Some(skip) = self.next().and_then(|next| next.checked_sub(at)) else { return };
        let rest = usize::try_from(skip).ok().and_then(|skip| part.get(skip..)).unwrap_or_default();
        if let Ok(bytes) = &mut self.found {
            let wanted = self.length.saturating_sub(bytes.len()).min(rest.len());
            bytes.extend_from_slice(rest.get(..wanted).unwrap_or_default());
        }
    }
}

/// Where in the tree that begins which is in a folder, if the walk goes there: it does not follow links.
fn below(dentry: &Dentry) -> Option<u64> {
    let is_open = dentry.attributes & FOLDER != 0 && dentry.below != 0 && !dentry.is_link();
    is_open.then_some(dentry.below)
}

/// Which chunk of a solid resource begins where, as its table is read from the start.
struct Place {
    number: u64,
    at: u64,
}

impl Reader<'_> {
    /// Something short of a solid resource, which was read ahead. If it was not, it is read by itself.
    pub(super) fn short(&mut self, hash: &Hash) -> Result<Vec<u8>, String> {
        if let Some(found) = self.shorts.get(hash) {
            return found.clone();
        }
        let mut one = [self.short_of(*hash).ok_or_else(|| self.absent())?];
        self.read_shorts(&mut one).map_err(|error| error.to_string())?;
        let [one] = one;
        one.checked()
    }

    fn short_of(&self, hash: Hash) -> Option<Short> {
        let blob = self.blobs.get(&hash).filter(|blob| blob.part == self.header.part)?;
        let (solid, offset) = (blob.solid?, blob.place.offset);
        let length = usize::try_from(blob.place.length).ok()?;
        let is_short = length <= self.options.limits.xattr_value;
        is_short.then(|| Short { solid, offset, length, hash, found: Ok(Vec::new()) })
    }

    /// What is short in solid resources of all that a file has, as far as it is not there yet: no more than its
    /// attributes may take.
    fn wanted_of(&self, dentry: &Dentry) -> Vec<Short> {
        let kept = dentry.has_kept().then(|| dentry.unnamed().0);
        let named = dentry.streams.iter().filter(|stream| !stream.name.is_empty()).map(|stream| stream.hash);
        let wanted = kept.into_iter().chain(named).filter(|hash| !self.shorts.contains_key(hash));
        let mut room = self.options.limits.xattr_value.saturating_mul(16);
        let has_room = |short: &Short| room.checked_sub(short.length).map(|left| room = left).is_some();
        wanted.filter_map(|hash| self.short_of(hash)).filter(has_room).collect()
    }

    /// Reads what is short in solid resources of `dentry`, if that is not there yet, and with it that of what comes
    /// next in the tree: `open` are places in folders that go on, and the lengths of their paths; the path of `dentry`
    /// has `length` bytes.
    pub(super) fn read_ahead(
        &mut self,
        dentry: &Dentry,
        tree: &[u8],
        open: &[(u64, usize)],
        length: usize,
    ) -> Result<(), Error> {
        let mut own = if self.solids.is_empty() { Vec::new() } else { self.wanted_of(dentry) };
        if own.is_empty() {
            return Ok(());
        }
        if self.of_shorts > MOST_SHORT / 2 {
            self.shorts.clear();
            self.of_shorts = 0;
            // Some of what it has may have been there.
            own = self.wanted_of(dentry);
        }
        let limits = self.options.limits;
        let (mut seen, mut wanted, mut next) = (HashSet::new(), Vec::new(), own);
        let mut open = open.to_vec();
        open.extend(below(dentry).map(|below| (below, length)));
        loop {
            // All of a file, or what it has would be read twice.
            for short in next {
                if seen.insert(short.hash) {
                    let taken = short.length.saturating_add(OF_SHORT_ONE);
                    self.of_shorts = self.of_shorts.saturating_add(taken);
                    wanted.push(short);
                }
            }
            next = Vec::new();
            let depth = open.len();
            let Some((place, length)) = open.last_mut().filter(|_| self.of_shorts < MOST_SHORT) else { break };
            self.options.cancel.check().map_err(Error::Receiver)?;
            let (dentry, behind) = match dentry::read(tree, *place, &mut self.ahead) {
                Ok(Some(found)) => found,
                Err(Wrong::TooMany) => break,
                Ok(None) | Err(Wrong::Broken(_)) => {
                    open.pop();
                    continue;
                }
            };
            *place = behind;
            // The walk leaves out the same.
            let Some(name) = name_of(dentry.name.iter().copied()) else { continue };
            let length = length.saturating_add(usize::from(*length > 0)).saturating_add(name.len());
            if length > limits.path || depth >= limits.path_components {
                continue;
            }
            open.extend(below(&dentry).map(|below| (below, length)));
            next = self.wanted_of(&dentry);
        }
        wanted.sort_by_key(|short| (short.solid, short.offset));
        for run in wanted.chunk_by_mut(|left, right| left.solid == right.solid) {
            self.read_shorts(run)?;
        }
        for short in wanted {
            self.shorts.insert(short.hash, short.checked());
        }
        Ok(())
    }

    /// Reads what lies in one solid resource, in the order in which it lies there.
    fn read_shorts(&mut self, shorts: &mut [Short]) -> Result<(), Error> {
        let number = shorts.first().map_or(u32::MAX, |short| short.solid);
        let solid = self.solids.get(number as usize).map(Arc::clone);
        for short in shorts.iter_mut() {
            if solid.as_ref().is_none_or(|solid| short.end() > solid.length) {
                short.found = Err("lies behind the end of its solid resource".to_owned());
            }
        }
        let Some(solid) = solid.filter(|solid| solid.chunk > 0) else { return Ok(()) };
        let table = solid.length.div_ceil(solid.chunk.into()).saturating_mul(4);
        let mut place = Place { number: 0, at: SOLID_HEADER.saturating_add(table) };
        let source = Arc::clone(self.source);
        let mut window = Window::growing(&*source).until(&self.options.cancel);
        let mut first = 0_usize;
        loop {
            let rest = shorts.get_mut(first..).unwrap_or_default();
            let Some(short) = rest.first() else { return Ok(()) };
            let Some(next) = short.next() else {
                first = first.saturating_add(1);
                continue;
            };
            let chunk = u64::from(solid.chunk);
            let number = next.checked_div(chunk).unwrap_or_default();
            let begin = number.saturating_mul(chunk);
            let end = begin.saturating_add(chunk).min(solid.length);
            let count = rest.partition_point(|short| short.offset < end);
            let inside = rest.get_mut(..count).unwrap_or_default();
            let stored = self.place_of(&solid, number, &mut place, &mut window);
            let read = stored.and_then(|stored| self.read_chunk(&solid, stored, begin..end, inside));
            let why = match read {
                Ok(()) => "is cut".to_owned(),
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => error.to_string(),
                Err(error) => return Err(Error::Read { offset: solid.offset, error }),
            };
            // What was not there now never is.
            for short in inside.iter_mut().filter(|short| short.next().is_some_and(|next| next < end)) {
                short.found = Err(why.clone());
            }
        }
    }

    /// Where in the solid resource a chunk lies. `place` goes forwards only.
    fn place_of(
        &mut self,
        solid: &Solid,
        number: u64,
        place: &mut Place,
        window: &mut Window<'_>,
    ) -> io::Result<(u64, u64)> {
        let count = solid.length.div_ceil(solid.chunk.into());
        if count > MOST_CHUNKS {
            return Err(damaged(format!("lies in a solid resource of {count} chunks, more than {MOST_CHUNKS}")));
        }
        let end = solid.offset.saturating_add(solid.stored);
        loop {
            self.chunks.take_bytes(4)?;
            let at = SOLID_HEADER.saturating_add(place.number.saturating_mul(4));
            let length = window.bytes(solid.offset.saturating_add(at), end, 4)?;
            let length = u32_at(length, 0).ok_or_else(|| damaged("lies in a solid resource that is cut"))?;
            let behind = place.at.saturating_add(length.into());
            if place.number >= number {
                return if behind <= solid.stored {
                    Ok((place.at, length.into()))
                } else {
                    Err(damaged(format!("lies in chunk {number} of a solid resource, which goes on behind its end")))
                };
            }
            *place = Place { number: place.number.saturating_add(1), at: behind };
        }
    }

    /// Decodes the chunk that gives the bytes `range`, as far as these are wanted for `shorts`.
    fn read_chunk(
        &mut self,
        solid: &Solid,
        (from, stored): (u64, u64),
        range: std::ops::Range<u64>,
        shorts: &mut [Short],
    ) -> io::Result<()> {
        let length = range.end.saturating_sub(range.start);
        self.chunks.take_bytes(length.max(OF_TREE))?;
        let bytes = Slice::new(Arc::clone(self.source), solid.offset.saturating_add(from), stored);
        let bytes: SharedSource = Arc::new(bytes);
        // One chunk is a resource without a table.
        let compression = u8::try_from(solid.compression).unwrap_or(u8::MAX);
        let properties = [&[compression, 4][..], &solid.chunk.to_le_bytes(), &[0; 20]].concat();
        let decoded_length = Some(length);
        let step = Step { codec: "chunked".to_owned(), properties, decoded_length, ..Step::default() };
        let until = shorts.iter().map(Short::end).max().unwrap_or_default().min(range.end);
        let (mut at, mut first) = (range.start, 0_usize);
        let decoded = self.options.decode.each(&step, bytes, &self.options.cancel, &mut |part| {
            let end = at.saturating_add(part.len() as u64);
            for short in shorts.iter_mut().skip(first).take_while(|short| short.offset < end) {
                short.fill(at, part);
            }
            at = end;
            while shorts.get(first).is_some_and(|short| short.next().is_none()) {
                first = first.saturating_add(1);
            }
            // What is behind that nobody wants.
            if at < until { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        });
        match decoded {
            Err(_) if at >= until => Ok(()),
            decoded => decoded,
        }
    }
}

#[cfg(test)]
mod tests;
