//! For tests of whatever reads: a source that counts what is read of it, and one that misbehaves at its n-th read.
//!
//! A test runs an operation with the fault at read 1, 2, 3, ... until one run ends before the fault: then every read
//! that the operation makes has failed once, and what it did each time has been looked at.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{SharedSource, Source};

/// Another source, which counts the bytes that are read of it.
#[derive(Debug)]
pub struct CountedSource {
    inner: SharedSource,
    bytes: AtomicU64,
}

impl CountedSource {
    /// `inner`, of which nothing was read yet.
    pub fn new(inner: SharedSource) -> Self {
        Self { inner, bytes: AtomicU64::new(0) }
    }

    /// Bytes that were read so far, the same ones as often as they were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl Source for CountedSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.inner.read_at(buffer, offset)?;
        self.bytes.fetch_add(read as u64, Ordering::SeqCst);
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// How a read goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error number.
    Error(i32),
    /// It returns no bytes, as if the end were there.
    Nothing,
    /// It returns half of the bytes (rounded down) that it could.
    Half,
    /// It returns other bytes.
    Garbage,
    /// It takes this long.
    Stall(Duration),
}

/// Which reads go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// This one; the first is number 1.
    At(u64),
    /// This one and all behind it.
    From(u64),
}

/// Another source, with a fault.
#[derive(Debug)]
pub struct FaultySource {
    inner: SharedSource,
    fault: Fault,
    when: When,
    length: u64,
    reads: AtomicU64,
}

impl FaultySource {
    /// `inner`, of which reads go wrong by `fault`.
    pub fn new(inner: SharedSource, fault: Fault, when: When) -> Self {
        let length = inner.len();
        Self { inner, fault, when, length, reads: AtomicU64::new(0) }
    }

    /// Says that its length is `length`, whatever it is.
    #[must_use]
    pub fn that_claims(mut self, length: u64) -> Self {
        self.length = length;
        self
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// True once a read has gone wrong.
    pub fn has_struck(&self) -> bool {
        let (When::At(number) | When::From(number)) = self.when;
        self.reads() >= number
    }
}

impl Source for FaultySource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let strikes = match self.when {
            When::At(at) => number == at,
            When::From(from) => number >= from,
        };
        if !strikes {
            return self.inner.read_at(buffer, offset);
        }
        match self.fault {
            Fault::Error(number) => Err(io::Error::from_raw_os_error(number)),
            Fault::Nothing => Ok(0),
            Fault::Half => Ok(self.inner.read_at(buffer, offset)? / 2),
            Fault::Garbage => {
                let read = self.inner.read_at(buffer, offset)?;
                buffer[..read].iter_mut().for_each(|byte| *byte ^= 0x55);
                Ok(read)
            }
            Fault::Stall(time) => {
                std::thread::sleep(time);
                self.inner.read_at(buffer, offset)
            }
        }
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{}, faulty", self.inner.describe())
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;
    use std::sync::Arc;

    #[test]
    fn goes_wrong_when_it_is_told_to() {
        let whole: SharedSource = Arc::new(MemorySource::new(*b"0123456789", "digits"));
        let mut buffer = [0; 4];
        let mut read = |source: &FaultySource| {
            let read = source.read_at(&mut buffer, 2);
            read.map(|read| String::from_utf8_lossy(&buffer[..read]).into_owned())
        };
        let once = FaultySource::new(Arc::clone(&whole), Fault::Error(5), When::At(2));
        assert_eq!(read(&once).unwrap(), "2345");
        assert!(!once.has_struck());
        assert_eq!(read(&once).unwrap_err().raw_os_error(), Some(5));
        assert!(once.has_struck());
        assert_eq!(read(&once).unwrap(), "2345");
        let always = FaultySource::new(Arc::clone(&whole), Fault::Half, When::From(1)).that_claims(7);
        assert_eq!((read(&always).unwrap().as_str(), read(&always).unwrap().as_str(), always.len()), ("23", "23", 7));
        assert_eq!(read(&FaultySource::new(Arc::clone(&whole), Fault::Nothing, When::At(1))).unwrap(), "");
        assert_eq!(read(&FaultySource::new(whole, Fault::Garbage, When::At(1))).unwrap(), "gfa`");
    }
}
