//! What was decoded of a chunk. A match may reach back to its start, and a chunk may be as long as the memory of the
//! machine that wrote it: up to a bound it is kept in memory, what lies before the last part of a longer one in a
//! temporary file without a name.

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::fstatvfs;
use tarnfs_source::Limits;

use crate::Scratch;
use crate::scratch::Borrowed;

/// Bytes decoded at once at most.
pub(super) const STEP: usize = 128 << 10;

/// Bytes in memory before the file is begun, also where limits are lower.
const LEAST: usize = 4 * STEP;

/// What is said where there is no place for a history.
const ADVICE: &str =
    "set TMPDIR to a folder with more room, or compress the archive again with a smaller window (lrzip -w)";

/// The decoded bytes of one chunk.
pub(super) struct History {
    /// The last bytes: all, as long as nothing is in the file.
    recent: Vec<u8>,
    /// Bytes of the chunk before those: all of them are in the file.
    stored: u64,
    /// Kept for the next chunk.
    file: Option<Borrowed>,
    scratch: Scratch,
    /// Bytes that were handed out, of those in memory.
    served: usize,
    /// Bytes in memory at most, and where there is no file.
    room: usize,
    room_without_file: usize,
}

impl History {
    pub(super) fn new(limits: &Limits, scratch: Scratch) -> Self {
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX).max(LEAST);
        let room = bytes(limits.decoder_window);
        let room_without_file = bytes(limits.lzma_dictionary).max(room);
        Self { recent: Vec::new(), stored: 0, file: None, scratch, served: 0, room, room_without_file }
    }

    /// Forgets all for another chunk. All was handed out.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.recent.clear();
        (self.stored, self.served) = (0, 0);
        self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))
    }

    /// Decoded bytes.
    pub(super) fn length(&self) -> u64 {
        self.stored + self.recent.len() as u64
    }

    /// Those that were not handed out.
    pub(super) fn unserved(&self) -> usize {
        self.recent.len() - self.served
    }

    /// Hands out bytes; returns how many.
    pub(super) fn serve(&mut self, buffer: &mut [u8]) -> usize {
        crate::stepwise::hand_out(&self.recent, &mut self.served, buffer)
    }

    /// Makes room for [`STEP`] bytes in memory. All was handed out.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let length = self.recent.len();
        if length + STEP > self.room && (self.file.is_some() || self.begin_file()?) {
            self.store(length / 2)?;
        }
        if self.recent.capacity() < self.recent.len() + STEP {
            // Twice as much, but not more than there will be.
            let most = if self.recent.len() + STEP > self.room { self.room_without_file } else { self.room };
            let wanted = (2 * self.recent.capacity()).min(most).max(self.recent.len() + STEP);
            let more = wanted - self.recent.len();
            self.recent.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        Ok(())
    }

    /// False if there is no file, and none is needed yet.
    fn begin_file(&mut self) -> io::Result<bool> {
        match self.scratch.borrow() {
            Ok(file) => {
                self.file = Some(file);
                Ok(true)
            }
            // As in a mount, which has given up making files, where all that were made before are lent.
            Err(_) if self.recent.len() + STEP <= self.room_without_file => Ok(false),
            Err(error) => {
                let what = format!(
                    "a chunk of lrzip longer than {} bytes needs a temporary file, and there is none: {error}: {ADVICE}",
                    self.room_without_file
                );
                Err(io::Error::new(io::ErrorKind::Unsupported, what))
            }
        }
    }

    /// Moves the first `count` bytes from memory into the file.
    fn store(&mut self, count: usize) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let room = fstatvfs(&**file).map(|of| of.f_bavail.saturating_mul(of.f_frsize))?;
        let written = if room < self.stored {
            // Others need the disk, too, and a small file may decode to any length.
            Err(io::Error::new(io::ErrorKind::StorageFull, "it would take more than half of what was free"))
        } else {
            file.write_all_at(&self.recent[..count], self.stored)
        };
        written.map_err(|error| {
            let what =
                format!("the temporary file for a chunk of lrzip, {} bytes so far: {error}: {ADVICE}", self.stored);
            io::Error::new(error.kind(), what)
        })?;
        self.recent.drain(..count);
        self.stored += count as u64;
        self.served = self.recent.len();
        Ok(())
    }

    /// Appends at most `count` bytes, which is at most [`STEP`], that `fill` writes; returns how many those were.
    pub(super) fn append<E>(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let start = self.recent.len();
        self.recent.resize(start + count, 0);
        let filled = fill(&mut self.recent[start..]);
        self.recent.truncate(start + filled.as_ref().map_or(0, |&count| count));
        filled
    }

    /// Appends some of the `length` bytes that begin `distance` bytes before the end; returns how many. None if there
    /// are not so many.
    pub(super) fn repeat(&mut self, distance: u64, length: usize) -> io::Result<usize> {
        let Some(from) = self.length().checked_sub(distance).filter(|_| distance > 0) else { return Ok(0) };
        if from < self.stored {
            let count = length.min(usize::try_from(self.stored - from).unwrap_or(usize::MAX));
            let Some(file) = &self.file else { return Ok(0) };
            let start = self.recent.len();
            self.recent.resize(start + count, 0);
            file.read_exact_at(&mut self.recent[start..], from)?;
            return Ok(count);
        }
        let from = (from - self.stored) as usize;
        let end = self.recent.len() + length;
        // What is there is repeated: each time there is twice as much of it.
        while self.recent.len() < end {
            let count = (self.recent.len() - from).min(end - self.recent.len());
            self.recent.extend_from_within(from..from + count);
        }
        Ok(length)
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.recent.capacity()
    }

    /// The same once so many bytes more were decoded.
    pub(super) fn memory_after(&self, bytes: u64) -> usize {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let needed = self.recent.len().saturating_add(STEP).saturating_add(bytes);
        if needed <= self.recent.capacity() {
            return self.recent.capacity();
        }
        let most = if needed > self.room && self.file.is_none() { self.room_without_file } else { self.room };
        needed.saturating_mul(2).min(most).max(self.recent.capacity())
    }
}
