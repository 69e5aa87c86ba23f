use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;

use crate::Scratch;
use crate::scratch::Borrowed;

/// A stream takes at most this part of the space that is free where its copy lies.
const PART_OF_SPACE: u64 = 4;

/// What was decoded of a stream, in a file without a name, where a random read would have to decode much: from the
/// start if there are no seek points, or from far before where the codec is slow.
pub(super) struct Copied {
    file: Borrowed,
    length: u64,
    /// Bytes until it is looked again how much space there is.
    left: u64,
    /// When it was read last, in seconds since it was begun.
    read: AtomicU64,
    begun: Instant,
}

/// So often it is looked how much space is left, in bytes of a copy, and so many bytes are left free.
const LOOK: u64 = 64 << 20;
const LEFT_FREE: u64 = 256 << 20;

/// Bytes that are free where `file` lies.
fn space_of(file: &File) -> u64 {
    fstatvfs(file).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

impl Copied {
    /// Of a stream of `length` decoded bytes. `None` where there is no file, or not so much space.
    pub(super) fn new(scratch: &Scratch, length: u64) -> Option<Self> {
        let file = scratch.borrow_for_copy(length)?;
        (length <= space_of(&file) / PART_OF_SPACE).then(|| Self {
            file,
            length: 0,
            left: LOOK,
            read: AtomicU64::new(0),
            begun: Instant::now(),
        })
    }

    /// Adds the next bytes. After an error it is of no use.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if self.left == 0 {
            self.left = LOOK;
            // Others may have filled it meanwhile.
            if space_of(&self.file) < LEFT_FREE {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Bytes that it has.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Reads from byte `offset` on what it has of that.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read.store(self.begun.elapsed().as_secs(), Ordering::Relaxed);
        let there = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.file().read_exact_at(&mut buffer[..there], offset)?;
        Ok(there)
    }

    /// True if nobody has read from it for so long.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        let read = Duration::from_secs(self.read.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(read) >= idle
    }

    fn file(&self) -> &File {
        &self.file
    }
}
