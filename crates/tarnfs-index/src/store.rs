//! Bytes that are written at any offset and read again: of a file, or in memory.
//!
//! In memory they are not a file without a name (memfd), because a limit on the size of files (`ulimit -f`) holds for
//! those as well.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLock};

/// A file, or memory.
#[derive(Debug)]
pub(crate) enum Store {
    File(File),
    Memory(RwLock<Memory>),
}

/// Bytes in pieces, so that growing copies nothing.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pieces: Vec<Box<[u8]>>,
    length: u64,
}

/// Bytes of a piece: 2 to the power of `SHIFT`.
const PIECE: usize = 1 << SHIFT;
const SHIFT: u32 = 18;

/// Number of the piece in which byte `at` lies, and where in it.
fn place(at: u64) -> (usize, usize) {
    ((at >> SHIFT) as usize, at as usize & PIECE.saturating_sub(1))
}

impl Memory {
    /// Hands the parts of pieces that lie in `length` bytes from `offset` to `receive`: what is before each part, and
    /// the part.
    fn parts(&mut self, offset: u64, length: usize, receive: &mut dyn FnMut(usize, &mut [u8])) {
        let mut done = 0;
        while done < length {
            let at = offset.saturating_add(done as u64);
            let (piece, from) = place(at);
            let step = length.saturating_sub(done).min(PIECE.saturating_sub(from));
            let part = self.pieces.get_mut(piece).and_then(|piece| piece.get_mut(from..from.saturating_add(step)));
            if let Some(part) = part {
                receive(done, part);
            }
            done = done.saturating_add(step);
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let length = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..length).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let (piece, from) = place(at);
            let Some(part) = self.pieces.get(piece).and_then(|piece| piece.get(from..)) else { break };
            let step = part.len().min(rest.len());
            if let (Some(to), Some(part)) = (rest.get_mut(..step), part.get(..step)) {
                to.copy_from_slice(part);
            }
            done = done.saturating_add(step);
        }
        done
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        let pieces = usize::try_from(length.div_ceil(PIECE as u64)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let kept = length.min(self.length);
        // What lies behind the end is zero when it comes back.
        let cut = (self.length.saturating_sub(kept)).min(PIECE as u64) as usize;
        self.parts(kept, cut, &mut |_, part| part.fill(0));
        self.pieces.truncate(pieces);
        while self.pieces.len() < pieces {
            let mut piece = Vec::new();
            piece.try_reserve_exact(PIECE).map_err(|_| io::ErrorKind::OutOfMemory)?;
            piece.resize(PIECE, 0);
            self.pieces.push(piece.into_boxed_slice());
        }
        self.length = length;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if end > self.length {
            self.set_length(end)?;
        }
        self.parts(offset, bytes.len(), &mut |before, part| {
            if let Some(bytes) = bytes.get(before..before.saturating_add(part.len())) {
                part.copy_from_slice(bytes);
            }
        });
        Ok(())
    }
}

impl Store {
    /// No bytes, in memory.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(RwLock::default())
    }

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Memory(memory) => Ok(memory.read().unwrap_or_else(PoisonError::into_inner).read(buffer, offset)),
        }
    }

    /// Reads `buffer.len()` bytes at `offset`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, offset),
            Self::Memory(_) if self.read_at(buffer, offset)? == buffer.len() => Ok(()),
            Self::Memory(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes `bytes` at `offset`.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, offset),
            Self::Memory(memory) => memory.write().unwrap_or_else(PoisonError::into_inner).write(bytes, offset),
        }
    }

    /// Cuts it, or adds zeros.
    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.set_len(length),
            Self::Memory(memory) => memory.write().unwrap_or_else(PoisonError::into_inner).set_length(length),
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Memory(memory) => Ok(memory.read().unwrap_or_else(PoisonError::into_inner).length),
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    #[test]
    fn memory_does_what_a_file_does() {
        let (file, memory) = (Store::File(tempfile::tempfile().unwrap()), Store::in_memory());
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
