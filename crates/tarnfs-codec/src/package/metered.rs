//! What is stored of a member, as long as enough comes of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tarnfs_source::{SharedSource, Source};

/// Stored bytes that may hold nothing: a block of bzip2 says nothing before its end.
const FOR_NOTHING: u64 = 2 << 20;

/// For each byte that has come of it, so many more may be stored, up to some: streams of few bytes take more than
/// these.
const FOR_EACH_BYTE: u64 = 3;
const MOST_FOR_BYTES: u64 = 8 << 20;

/// Bytes that a decoder may read before it needs them.
const READ_AHEAD: u64 = 512 << 10;

/// Stored bytes of which `decoded` ones may come.
pub(super) fn most(decoded: u64) -> u64 {
    let more = decoded.saturating_mul(FOR_EACH_BYTE).min(MOST_FOR_BYTES);
    FOR_NOTHING.saturating_add(decoded).saturating_add(more)
}

/// A source that lets out so many bytes as may hold what was decoded so far, and is an error behind that: a decoder
/// passes any number of streams and blocks that hold nothing while it is asked for one byte.
#[derive(Debug)]
pub(super) struct Metered {
    source: SharedSource,
    decoded: AtomicU64,
    taken: Mutex<Taken>,
}

/// What was let out.
#[derive(Debug, Default)]
struct Taken {
    /// Bytes, each once where they are read in order.
    bytes: u64,
    /// Where these end.
    end: u64,
}

impl Metered {
    pub(super) fn new(source: SharedSource) -> Self {
        Self { source, decoded: AtomicU64::new(0), taken: Mutex::default() }
    }

    /// So many bytes have come of it.
    pub(super) fn set_decoded(&self, decoded: u64) {
        self.decoded.store(decoded, Ordering::Relaxed);
    }

    fn take(&self, offset: u64, length: usize) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(length as u64);
        if offset <= taken.end {
            taken.bytes = taken.bytes.saturating_add(end.saturating_sub(taken.end));
            taken.end = taken.end.max(end);
        } else {
            taken.bytes = taken.bytes.saturating_add(length as u64);
        }
        let decoded = self.decoded.load(Ordering::Relaxed);
        let most = most(decoded);
        if taken.bytes > most.saturating_add(READ_AHEAD) {
            return Err(too_much(most, decoded));
        }
        Ok(())
    }
}

/// The error of a member that takes more than `most` bytes for that.
pub(super) fn too_much(most: u64, decoded: u64) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("it takes more than {most} bytes to say {decoded}"))
}

impl Source for Metered {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.source.read_at(buffer, offset)?;
        self.take(offset, read)?;
        Ok(read)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let read = self.source.read_before(buffer, offset, end)?;
        self.take(offset, read)?;
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }
}
