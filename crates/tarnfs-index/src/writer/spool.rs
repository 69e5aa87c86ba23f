//! Bytes that wait to be read again: in memory while they are few, then in a temporary file without a name. Where no
//! disk takes one, or it is full, they stay in memory, up to a limit: an index in memory must be possible without any
//! disk.

use std::io;
use std::ops::Range;

use tarnfs_source::Budget;

use crate::store::Store;

/// Appended to, then read any number of times.
#[derive(Debug)]
pub(super) struct Spool {
    /// What is in no store yet.
    buffer: Vec<u8>,
    /// Where the rest is, each with the byte that it begins with: a file, and in memory what that did not take.
    stores: Vec<(u64, Store)>,
    /// Bytes in the stores.
    stored: u64,
    /// Bytes that are kept in the buffer before they go to the file.
    room: usize,
    overflow: Overflow,
}

/// Where that goes which is too much for a spool's own memory.
#[derive(Debug, Clone)]
pub(super) struct Overflow {
    /// What all spools of a writer may have together where no disk takes them.
    memory: Budget,
    /// False if nothing of it may come onto a disk.
    has_disk: bool,
}

impl Overflow {
    /// To a temporary file without a name, or to `memory` where no disk takes one.
    pub(super) fn on_disk(memory: &Budget) -> Self {
        Self { memory: memory.clone(), has_disk: true }
    }

    /// To `memory`.
    pub(super) fn in_memory(memory: &Budget) -> Self {
        Self { memory: memory.clone(), has_disk: false }
    }

    fn store(&self) -> Store {
        let on_disk = self.has_disk.then(tarnfs_source::temporary_file);
        match on_disk {
            Some(Ok(file)) => return Store::File(file),
            Some(Err(error)) => log::debug!("what is spooled stays in memory: {error}"),
            None => {}
        }
        self.without_disk()
    }

    pub(super) fn has_disk(&self) -> bool {
        self.has_disk
    }

    /// In memory.
    pub(super) fn without_disk(&self) -> Store {
        Store::without_disk(&self.memory)
    }
}

/// Bytes that go to the file at once.
pub(super) const BUFFER: usize = 256 << 10;
/// Bytes that a reader reads at once: merging has many of them.
const STEP: u64 = 64 << 10;

impl Spool {
    /// Keeps up to `room` bytes in memory.
    pub(super) fn new(room: usize, overflow: &Overflow) -> Self {
        Self { buffer: Vec::new(), stores: Vec::new(), stored: 0, room, overflow: overflow.clone() }
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> u64 {
        self.stored.saturating_add(self.buffer.len() as u64)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len().saturating_add(bytes.len()) > self.room {
            let waiting = std::mem::take(&mut self.buffer);
            self.store(&waiting)?;
            self.buffer = waiting;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER);
            self.room = self.room.min(BUFFER);
            if bytes.len() >= self.room {
                return self.store(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes `bytes` behind what is stored.
    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.stores.is_empty() {
            self.stores.push((0, self.overflow.store()));
        }
        if let Some((start, store)) = self.stores.last() {
            match (store.write_all_at(bytes, self.stored.saturating_sub(*start)), store) {
                (Err(error), Store::File(_)) => {
                    log::debug!("a temporary file could not be written: {error}; it goes on in memory");
                    let memory = self.overflow.without_disk();
                    memory.write_all_at(bytes, 0)?;
                    self.stores.push((self.stored, memory));
                }
                (written, _) => written?,
            }
        }
        self.stored = self.stored.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Reads `to.len()` bytes from byte `at` on.
    pub(super) fn read_exact_at(&self, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
        for (number, (start, store)) in self.stores.iter().enumerate() {
            let next = self.stores.get(number.saturating_add(1));
            let end = next.map_or(self.stored, |(start, _)| *start);
            let part = end.saturating_sub(at).min(to.len() as u64) as usize;
            let Some(part) = to.split_off_mut(..part).filter(|part| !part.is_empty()) else { continue };
            store.read_exact_at(part, at.saturating_sub(*start))?;
            at = at.saturating_add(part.len() as u64);
        }
        let from = at.saturating_sub(self.stored) as usize;
        match self.buffer.get(from..from.saturating_add(to.len())) {
            _ if to.is_empty() => Ok(()),
            Some(part) => {
                to.copy_from_slice(part);
                Ok(())
            }
            None => Err(changed()),
        }
    }

    /// Reads from the start.
    pub(super) fn reader(&self) -> Reader<'_> {
        self.reader_of(0..self.len())
    }

    /// Reads the records that lie in `range`.
    pub(super) fn reader_of(&self, range: Range<u64>) -> Reader<'_> {
        Reader { spool: self, rest: range, buffer: Vec::new(), from: 0 }
    }
}

/// Reads what a [`Spool`] holds.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    spool: &'a Spool,
    /// What has not been read yet.
    rest: Range<u64>,
    /// Bytes that were read, and where in them the next record begins.
    buffer: Vec<u8>,
    from: usize,
}

/// The first bytes of a record: its length in bytes, these included.
const LENGTH: usize = 4;

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a temporary file of an index being written has changed")
}

impl Reader<'_> {
    /// Puts the next record into `current`; false at the end.
    pub(super) fn record(&mut self, current: &mut Vec<u8>) -> io::Result<bool> {
        current.clear();
        if !self.copy(LENGTH, current)? {
            return Ok(false);
        }
        let length = current.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        match length.checked_sub(LENGTH) {
            Some(rest) if self.copy(rest, current)? => Ok(true),
            _ => Err(changed()),
        }
    }

    /// Appends the next `length` bytes to `to`; false if there are no more.
    fn copy(&mut self, mut length: usize, to: &mut Vec<u8>) -> io::Result<bool> {
        while length > 0 {
            let ready = self.ready()?;
            let part = ready.len().min(length);
            let Some(part) = ready.get(..part).filter(|part| !part.is_empty()) else { return Ok(false) };
            to.extend_from_slice(part);
            let moved = part.len();
            length = length.saturating_sub(moved);
            self.from = self.from.saturating_add(moved);
        }
        Ok(true)
    }

    /// Bytes that can be had without more reading; none at the end.
    fn ready(&mut self) -> io::Result<&[u8]> {
        if self.from >= self.buffer.len() {
            let length = self.rest.end.saturating_sub(self.rest.start).min(STEP) as usize;
            self.buffer.resize(length, 0);
            self.from = 0;
            self.spool.read_exact_at(&mut self.buffer, self.rest.start)?;
            self.rest.start = self.rest.start.saturating_add(length as u64);
        }
        Ok(self.buffer.get(self.from..).unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_no_more_goes_on_in_memory() {
        let mut spool = Spool::new(BUFFER, &Overflow::on_disk(&Budget::new(8 << 20)));
        let record = |number: u32| [&104_u32.to_le_bytes()[..], &[number as u8; 100]].concat();
        for number in 0..6000 {
            if number == 4000 {
                // From here on nothing can be written to it.
                let Some((0, Store::File(whole))) = spool.stores.pop() else { panic!("it is on a disk") };
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&whole));
                spool.stores.push((0, Store::File(std::fs::File::open(path).unwrap())));
            }
            spool.write(&record(number)).unwrap();
        }
        let mut reader = spool.reader();
        let mut current = Vec::new();
        for number in 0..6000 {
            assert!(reader.record(&mut current).unwrap() && current == record(number), "{number}");
        }
        assert!(!reader.record(&mut current).unwrap());
        // What the file took stays there.
        let [(0, Store::File(_)), (start, Store::Memory(_))] = spool.stores.as_slice() else {
            panic!("{:?}", spool.stores)
        };
        assert!(*start > 0 && *start <= 4000 * 104, "{start}");
        let mut across = vec![0; 208];
        for at in [0, start - 104, start - 50, spool.stored - 104, spool.len() - 208] {
            spool.read_exact_at(&mut across, at / 104 * 104).unwrap();
            let number = (at / 104) as u32;
            assert!(across == [record(number), record(number + 1)].concat(), "{number}");
        }
        spool.read_exact_at(&mut across, spool.len() - 207).unwrap_err();
    }

    #[test]
    fn what_is_secret_comes_onto_no_disk() {
        let mut spool = Spool::new(10, &Overflow::in_memory(&Budget::new(1 << 20)));
        spool.write(&vec![7; 300_000]).unwrap();
        assert!(matches!(spool.stores.as_slice(), [(0, Store::Memory(_))]), "{:?}", spool.stores);
        let mut read = vec![0; 300_000];
        spool.read_exact_at(&mut read, 0).unwrap();
        assert!(read.iter().all(|&byte| byte == 7));
        // More than there may be is an error.
        assert_eq!(spool.write(&vec![7; 1 << 20]).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }

    /// Large pieces are not copied into the buffer, and come back between the small ones.
    #[test]
    fn pieces_of_all_sizes_come_back() {
        let mut spool = Spool::new(1000, &Overflow::on_disk(&Budget::new(0)));
        let piece = |number: usize| vec![number as u8; [1, 999, 1000, 1001, BUFFER, BUFFER * 2 + 1, 7][number % 7]];
        let mut all = Vec::new();
        for number in 0..30 {
            spool.write(&piece(number)).unwrap();
            all.extend(piece(number));
        }
        assert_eq!((spool.len(), spool.buffer.capacity() <= BUFFER), (all.len() as u64, true));
        for (at, length) in [(0, all.len()), (500, 1), (999, 3000), (all.len() - 1, 1), (all.len(), 0)] {
            let mut read = vec![0; length];
            spool.read_exact_at(&mut read, at as u64).unwrap();
            assert!(read == all[at..at + length], "{at}");
        }
    }
}
