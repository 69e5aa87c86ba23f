//! Bytes that are written at any offset and read again: of a file, or in memory; or read only, behind a URL.
//!
//! In memory they are not a file without a name (memfd), because a limit on the size of files (`ulimit -f`) holds for
//! those as well.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLock};

use tarnfs_source::{Budget, Grant, Setting, SharedSource};

/// A file, or memory, or a source that is only read.
#[derive(Debug)]
pub(crate) enum Store {
    File(File),
    Memory(RwLock<Memory>),
    Source(SharedSource),
}

/// Bytes in pieces, so that growing copies nothing.
#[derive(Debug)]
pub(crate) struct Memory {
    pieces: Vec<Piece>,
    length: u64,
    /// What memory it may have.
    share: Share,
    /// What lies in no memory is here, at its own place.
    file: Option<File>,
    is_complete: bool,
}

#[derive(Debug)]
enum Piece {
    Memory(Box<[u8]>, Option<Grant>),
    InFile,
}

/// The part of a budget that one store may have.
#[derive(Debug)]
struct Share {
    budget: Budget,
    left: usize,
    /// False where no disk takes anything: then it is an error if no memory is granted.
    has_disk: bool,
}

impl Share {
    /// The memory of one piece. A quarter of a budget that has other uses is left to these: caches and decoders.
    fn take(&mut self) -> Option<Grant> {
        let left = self.left.checked_sub(PIECE)?;
        let limit = self.budget.limit();
        let for_others = if self.has_disk { limit / 4 } else { 0 };
        if self.budget.used().saturating_add(PIECE) > limit.saturating_sub(for_others) {
            return None;
        }
        let grant = self.budget.take(PIECE)?;
        self.left = left;
        Some(grant)
    }
}

/// Bytes of a piece: 2 to the power of `SHIFT`.
const PIECE: usize = 1 << SHIFT;
const SHIFT: u32 = 18;

/// Number of the piece in which byte `at` lies, and where in it.
fn place(at: u64) -> (usize, usize) {
    ((at >> SHIFT) as usize, at as usize & PIECE.saturating_sub(1))
}

fn zeros() -> io::Result<Box<[u8]>> {
    let mut piece = Vec::new();
    piece.try_reserve_exact(PIECE).map_err(|_| io::ErrorKind::OutOfMemory)?;
    piece.resize(PIECE, 0);
    Ok(piece.into_boxed_slice())
}

/// Says that `budget`, which is for what no disk takes, is used up.
fn no_room(budget: &Budget) -> io::Error {
    let mib = budget.limit() >> 20;
    let what = format!(
        "this index has to be in memory, since no disk takes a temporary file or a password opens what it says, and it needs more than {mib} MiB, the limit; name a folder with room in TMPDIR, or a larger {}",
        Setting::CacheMemory
    );
    io::Error::new(io::ErrorKind::OutOfMemory, what)
}

impl Memory {
    /// One piece more: in memory, or in a temporary file where that is not granted.
    fn new_piece(&mut self) -> io::Result<Piece> {
        if let Some(grant) = self.share.take() {
            return Ok(Piece::Memory(zeros()?, Some(grant)));
        }
        if !self.share.has_disk {
            return Err(no_room(&self.share.budget));
        }
        if self.file.is_none() {
            self.file = Some(tarnfs_source::temporary_file()?);
        }
        Ok(Piece::InFile)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..length).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let (number, from) = place(at);
            let step = PIECE.saturating_sub(from).min(rest.len());
            let Some(to) = rest.get_mut(..step) else { break };
            match (self.pieces.get(number), &self.file) {
                (Some(Piece::Memory(piece, _)), _) => {
                    let part = piece.get(from..from.saturating_add(step)).ok_or(io::ErrorKind::UnexpectedEof)?;
                    to.copy_from_slice(part);
                }
                (Some(Piece::InFile), Some(file)) => file.read_exact_at(to, at)?,
                _ => break,
            }
            done = done.saturating_add(step);
        }
        Ok(done)
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        if self.is_complete {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let pieces = usize::try_from(length.div_ceil(PIECE as u64)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SQLite asks for each page that it appends.
        let changes_file = length < self.length || pieces != self.pieces.len();
        if length < self.length {
            // What lies behind the end is zero when it comes back.
            let (number, from) = place(length);
            if let Some(Piece::Memory(piece, _)) = self.pieces.get_mut(number)
                && let Some(tail) = piece.get_mut(from..)
            {
                tail.fill(0);
            }
            if let Some(file) = &self.file {
                file.set_len(length)?;
            }
            let gone = self.pieces.drain(pieces.min(self.pieces.len())..);
            let freed = gone.filter(|piece| matches!(piece, Piece::Memory(_, Some(_)))).count();
            self.share.left = self.share.left.saturating_add(freed.saturating_mul(PIECE));
        }
        while self.pieces.len() < pieces {
            let piece = self.new_piece()?;
            self.pieces.push(piece);
        }
        if let Some(file) = self.file.as_ref().filter(|_| changes_file) {
            file.set_len((pieces as u64).saturating_mul(PIECE as u64))?;
        }
        self.length = length;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if end > self.length {
            self.set_length(end)?;
        }
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let (number, from) = place(at);
            let part = rest.split_off(..PIECE.saturating_sub(from).min(rest.len())).unwrap_or_default();
            match (self.pieces.get_mut(number), &self.file) {
                (Some(Piece::Memory(piece, _)), _) if !self.is_complete => {
                    let to = piece.get_mut(from..from.saturating_add(part.len()));
                    to.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(part);
                }
                (Some(Piece::InFile), Some(file)) if !self.is_complete => file.write_all_at(part, at)?,
                _ => return Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            }
            at = at.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Nothing is written any more: gives back what the last piece has too much.
    fn complete(&mut self) {
        self.is_complete = true;
        let (_, end) = place(self.length);
        if let Some(Piece::Memory(piece, grant)) = self.pieces.last_mut().filter(|_| end > 0) {
            let mut bytes = std::mem::take(piece).into_vec();
            bytes.truncate(end);
            *piece = bytes.into_boxed_slice();
            if grant.take().is_some() {
                *grant = self.share.budget.take(end);
            }
        }
    }
}

impl Store {
    /// No bytes, in memory that comes from `budget`, which is for what no disk takes. It is an error if that is not
    /// enough.
    pub(crate) fn without_disk(budget: &Budget) -> Self {
        Self::with(Share { budget: budget.clone(), left: usize::MAX, has_disk: false })
    }

    /// No bytes, in up to `most` bytes of memory that come from `budget`. What gets none goes to a temporary file.
    pub(crate) fn within(budget: &Budget, most: usize) -> Self {
        Self::with(Share { budget: budget.clone(), left: most, has_disk: true })
    }

    fn with(share: Share) -> Self {
        Self::Memory(RwLock::new(Memory { pieces: Vec::new(), length: 0, share, file: None, is_complete: false }))
    }

    /// From here on it is only read.
    pub(crate) fn complete(&self) {
        if let Self::Memory(memory) = self {
            memory.write().unwrap_or_else(PoisonError::into_inner).complete();
        }
    }

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Memory(memory) => memory.read().unwrap_or_else(PoisonError::into_inner).read(buffer, offset),
            Self::Source(source) => source.read_at(buffer, offset),
        }
    }

    /// Reads `buffer.len()` bytes at `offset`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, offset),
            Self::Source(source) => source.read_exact_at(buffer, offset),
            Self::Memory(_) if self.read_at(buffer, offset)? == buffer.len() => Ok(()),
            Self::Memory(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes `bytes` at `offset`.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, offset),
            Self::Memory(memory) => memory.write().unwrap_or_else(PoisonError::into_inner).write(bytes, offset),
            Self::Source(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    /// Cuts it, or adds zeros.
    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.set_len(length),
            Self::Memory(memory) => memory.write().unwrap_or_else(PoisonError::into_inner).set_length(length),
            Self::Source(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    /// True if a read may have to wait for a server.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Source(_))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Memory(memory) => Ok(memory.read().unwrap_or_else(PoisonError::into_inner).length),
            Self::Source(source) => Ok(source.len()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    #[test]
    fn memory_does_what_a_file_does() {
        let budget = Budget::new(100 * PIECE);
        let store = Store::without_disk(&budget);
        does_what_a_file_does(&store);
        drop(store);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn memory_without_a_disk_ends_with_the_budget() {
        let budget = Budget::new(8 * PIECE);
        let stores = [(); 2].map(|()| Store::without_disk(&budget));
        stores[0].write_all_at(&vec![7; 5 * PIECE], 0).unwrap();
        stores[1].write_all_at(&vec![8; 3 * PIECE], 0).unwrap();
        let error = stores[1].write_all_at(b"more", 3 * PIECE as u64).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("2 MiB") && error.to_string().contains("TMPDIR"), "{error}");
        let mut byte = [0];
        stores[0].read_exact_at(&mut byte, 5 * PIECE as u64 - 1).unwrap();
        assert_eq!((byte, budget.used()), ([7], 8 * PIECE));
    }

    /// Pieces are given back when the store is cut, and taken again.
    #[test]
    fn memory_that_is_partly_in_a_file_does_what_a_file_does() {
        let budget = Budget::new(100 * PIECE);
        let store = Store::within(&budget, 3 * PIECE);
        does_what_a_file_does(&store);
        assert!(budget.used() <= 3 * PIECE);
        drop(store);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_the_budget_does_not_grant_is_in_a_file() {
        let budget = Budget::new(8 * PIECE);
        let stores = [(); 3].map(|()| Store::within(&budget, 4 * PIECE));
        let bytes = vec![7; 5 * PIECE + 10];
        for (store, taken) in stores.iter().zip([4, 6, 6]) {
            store.write_all_at(&bytes, 0).unwrap();
            assert_eq!(budget.used(), taken * PIECE);
        }
        let small = Store::within(&Budget::new(2 * PIECE), PIECE);
        small.write_all_at(b"a few bytes", 0).unwrap();
        for store in stores.iter().chain([&small]) {
            store.complete();
            store.write_all_at(b"no more", 0).unwrap_err();
            store.set_len(1).unwrap_err();
        }
        for store in &stores {
            let mut read = vec![0; bytes.len() + 1];
            assert_eq!(store.read_at(&mut read, 0).unwrap(), bytes.len());
            assert!(read.starts_with(&bytes));
        }
        let Store::Memory(memory) = &small else { panic!() };
        let memory = memory.read().unwrap();
        let [Piece::Memory(piece, Some(grant))] = memory.pieces.as_slice() else { panic!("{:?}", memory.pieces) };
        assert_eq!((&**piece, grant.bytes()), (&b"a few bytes"[..], 11));
        drop(stores);
        assert_eq!(budget.used(), 0);
    }

    fn does_what_a_file_does(memory: &Store) {
        let file = Store::File(tempfile::tempfile().unwrap());
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..2000 {
            let (at, length) = (next(3 << 20), next(100_000) as usize);
            match next(10) {
                0 => {
                    file.set_len(at).unwrap();
                    memory.set_len(at).unwrap();
                }
                1..=5 => {
                    let bytes: Vec<u8> = (0..length).map(|n| ((n as u64 * at) >> 3) as u8 | 1).collect();
                    file.write_all_at(&bytes, at).unwrap();
                    memory.write_all_at(&bytes, at).unwrap();
                }
                _ => {
                    let (mut one, mut other) = (vec![7; length], vec![7; length]);
                    let read = file.read_at(&mut one, at).unwrap();
                    assert_eq!(memory.read_at(&mut other, at).unwrap(), read);
                    assert!(one == other);
                    assert_eq!(memory.read_exact_at(&mut other, at).is_ok(), read == length);
                }
            }
            assert_eq!(memory.len().unwrap(), file.len().unwrap());
        }
    }
}
