//! Bytes that wait to be read again: in memory while they are few, then in a temporary file without a name. Where no disk takes
//! one, or it is full, they stay in memory: an index in memory must be possible without any disk.

use std::io;

use crate::store::Store;

/// Appended to, then read from its start any number of times.
#[derive(Debug)]
pub(super) struct Spool {
    /// What is not in the file yet.
    buffer: Vec<u8>,
    file: Option<Store>,
    /// Bytes in the file.
    written: u64,
    /// Bytes that are kept in memory before they go to the file.
    room: usize,
}

/// Bytes that go to the file at once.
const BUFFER: usize = 256 << 10;

impl Spool {
    /// Keeps up to `room` bytes in memory.
    pub(super) fn in_memory(room: usize) -> Self {
        Self { buffer: Vec::new(), file: None, written: 0, room }
    }

    /// Goes to disk at once.
    pub(super) fn on_disk() -> Self {
        Self { buffer: Vec::with_capacity(BUFFER), file: Some(temporary()), written: 0, room: BUFFER }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len().saturating_add(bytes.len()) > self.room {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is in memory to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary()),
        };
        if let Err(error) = file.write_all_at(&self.buffer, self.written) {
            log::debug!("a temporary file could not be written: {error}; it goes on in memory");
            let moved = Store::in_memory();
            copy(file, &moved, self.written)?;
            moved.write_all_at(&self.buffer, self.written)?;
            *file = moved;
        }
        self.written = self.written.saturating_add(self.buffer.len() as u64);
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER);
        self.room = self.room.min(BUFFER);
        Ok(())
    }

    /// Reads from the start.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { spool: self, at: 0, buffer: Vec::new(), from: 0 }
    }
}

/// Reads what a [`Spool`] holds.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    spool: &'a Spool,
    /// Byte of the file at which the next read from it begins.
    at: u64,
    /// Bytes of the file, and where in them the next record begins.
    buffer: Vec<u8>,
    from: usize,
}

/// The first bytes of a record: its length in bytes, these included.
const LENGTH: usize = 4;

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
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a temporary file of an index being written has changed",
            )),
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
        if self.from >= self.buffer.len() && self.at < self.spool.written {
            let length = self.spool.written.saturating_sub(self.at).min(BUFFER as u64) as usize;
            self.buffer.resize(length, 0);
            self.from = 0;
            if let Some(file) = &self.spool.file {
                file.read_exact_at(&mut self.buffer, self.at)?;
            }
            self.at = self.at.saturating_add(length as u64);
        }
        if self.from < self.buffer.len() {
            return Ok(self.buffer.get(self.from..).unwrap_or_default());
        }
        // Behind the file comes what is still in memory.
        let past = self.from.saturating_sub(self.buffer.len());
        Ok(self.spool.buffer.get(past..).unwrap_or_default())
    }
}

/// On a disk, or in memory where none takes one.
fn temporary() -> Store {
    let kept = |error| {
        log::debug!("what is spooled stays in memory: {error}");
        Store::in_memory()
    };
    tarnfs_source::temporary_file().map_or_else(kept, Store::File)
}

/// Copies the first `length` bytes.
fn copy(from: &Store, to: &Store, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while at < length {
        let part = buffer.get_mut(..length.saturating_sub(at).min(BUFFER as u64) as usize).unwrap_or_default();
        from.read_exact_at(part, at)?;
        to.write_all_at(part, at)?;
        at = at.saturating_add(part.len() as u64);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_no_more_goes_on_in_memory() {
        let mut spool = Spool::on_disk();
        let record = |number: u32| [&104_u32.to_le_bytes()[..], &[number as u8; 100]].concat();
        for number in 0..6000 {
            if number == 4000 {
                // From here on nothing can be written to it.
                let Some(Store::File(whole)) = spool.file.take() else { panic!("it is on a disk") };
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&whole));
                spool.file = Some(Store::File(std::fs::File::open(path).unwrap()));
            }
            spool.write(&record(number)).unwrap();
        }
        let mut reader = spool.reader();
        let mut current = Vec::new();
        for number in 0..6000 {
            assert!(reader.record(&mut current).unwrap() && current == record(number), "{number}");
        }
        assert!(!reader.record(&mut current).unwrap());
    }
}
