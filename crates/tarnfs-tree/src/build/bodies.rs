//! Compressed files in a compressed archive: kept while they go by, since whoever decodes them wants to read them at
//! any place. Few bytes stay in memory, more go to a temporary file without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use tarnfs_format::Stream;
use tarnfs_source::{SharedSource, Source, temporary_file};

/// Bytes of one body, and of all of them together, that stay in memory.
const MOST_OF_ONE: u64 = 1 << 20;
const MOST_TOGETHER: usize = 16 << 20;

/// The same where nothing may come onto a disk.
const MOST_OF_SECRETS: usize = 64 << 20;

/// Read from the stream at once.
const STEP: usize = 128 << 10;

/// Bytes of the file that a body gets at once; a long one gets more, so that it lies in few pieces however many are
/// taken beside each other.
const PIECE: u64 = 1 << 20;

/// What all bodies of an archive may take together, for each of its bytes and beside: what is compressed does not get
/// shorter by much when it is compressed again, and a file that decodes to more of itself has no end.
const MOST_FOR_EACH_BYTE: u64 = 8;
const MOST_BESIDE: u64 = 256 << 20;

/// All bodies of one pass.
#[derive(Debug)]
pub(super) struct Bodies {
    /// Bytes that may still be kept.
    room: AtomicU64,
    in_memory: Arc<AtomicUsize>,
    /// Made when it is first needed. Held only while it is made: who takes a body may wait for other threads
    /// meanwhile.
    file: Mutex<Option<Arc<File>>>,
    /// Byte of the file from which on nobody has it.
    end: AtomicU64,
}

impl Bodies {
    /// Of an archive of so many bytes.
    pub(super) fn new(archive_length: u64) -> Self {
        let room = archive_length.saturating_mul(MOST_FOR_EACH_BYTE).saturating_add(MOST_BESIDE);
        let (in_memory, file, end) = (Arc::default(), Mutex::default(), AtomicU64::new(0));
        Self { room: AtomicU64::new(room), in_memory, file, end }
    }

    /// Takes room for so many bytes.
    fn claim(&self, bytes: u64) -> io::Result<()> {
        let claimed = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes));
        let what = "more than an archive of its length should hold";
        claimed.map(drop).map_err(|_| io::Error::new(io::ErrorKind::StorageFull, what))
    }

    /// Takes the next bytes of `stream` up to `length`, or to its end if that comes before, and what they are called.
    /// An error for which [`is_no_room`] is true if there is no room for them; the stream then stands somewhere
    /// among them. If they are `secret`, as they may come from what a password opens, none of them goes onto a disk.
    pub(super) fn take(
        &self,
        stream: &mut dyn Stream,
        length: u64,
        name: &str,
        secret: bool,
    ) -> io::Result<SharedSource> {
        let mut claimed = 0;
        let taken = self.take_counted(stream, length, (name, secret), &mut claimed);
        if taken.is_err() {
            // A body that is too long leaves room for those that are shorter.
            self.room.fetch_add(claimed, Ordering::Relaxed);
        }
        taken
    }

    /// Adds to `claimed` what room it takes, and what of it is free again after an error stays there.
    fn take_counted(
        &self,
        stream: &mut dyn Stream,
        length: u64,
        (name, secret): (&str, bool),
        claimed: &mut u64,
    ) -> io::Result<SharedSource> {
        let (together, of_one) =
            if secret { (MOST_OF_SECRETS, MOST_OF_SECRETS as u64) } else { (MOST_TOGETHER, MOST_OF_ONE) };
        let mut bytes = Vec::new();
        let mut left = length;
        // Others are read at the same time: each sees what all of them have.
        let mut counted = Counted { counter: &self.in_memory, bytes: 0 };
        while left > 0 && (bytes.len() as u64) < of_one && self.in_memory.load(Ordering::Relaxed) < together {
            let step = read(stream, left, &mut bytes)?;
            counted.add(step as usize);
            self.claim(step)?;
            *claimed += step;
            if step == 0 {
                left = 0;
            }
            left -= step;
        }
        let name = name.to_owned();
        if left == 0 || stream.peek(1)?.is_empty() {
            counted.bytes = 0;
            return Ok(Arc::new(InMemory { bytes, counter: Arc::clone(&self.in_memory), name }));
        }
        if secret {
            let what = "what a password may open is not put on a disk";
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        let mut body = OnDisk { file: self.file()?, pieces: Vec::new(), length: 0, name };
        match self.write(&mut body, bytes, left, stream, claimed) {
            Ok(()) => Ok(Arc::new(body)),
            Err(error) => {
                if body.free().is_err() {
                    *claimed = 0;
                }
                Err(error)
            }
        }
    }

    /// Writes `bytes` and the next bytes of `stream`, up to `left`, to where `body` is kept.
    fn write(
        &self,
        body: &mut OnDisk,
        mut bytes: Vec<u8>,
        mut left: u64,
        stream: &mut dyn Stream,
        claimed: &mut u64,
    ) -> io::Result<()> {
        // Where the next byte goes, and how many bytes have their place there.
        let (mut at, mut reserved) = (0, 0);
        loop {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                if reserved == 0 {
                    reserved = PIECE.max(body.length / 4);
                    let start = self.end.fetch_add(reserved, Ordering::Relaxed);
                    if body.pieces.is_empty() || start != at {
                        body.pieces.push((body.length, start));
                    }
                    at = start;
                }
                let (part, behind) = rest.split_at(rest.len().min(usize::try_from(reserved).unwrap_or(usize::MAX)));
                let written = part.len() as u64;
                // Also if not all of it can be written.
                body.length += written;
                body.file.write_all_at(part, at)?;
                (at, reserved) = (at + written, reserved - written);
                rest = behind;
            }
            bytes.clear();
            let step = if left == 0 { 0 } else { read(stream, left, &mut bytes)? };
            if step == 0 {
                break;
            }
            self.claim(step)?;
            *claimed += step;
            left -= step;
        }
        // What was not needed is for the next one, if nobody has come in between.
        let _ = self.end.compare_exchange(at + reserved, at, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(file.insert(Arc::new(temporary_file()?))),
        })
    }
}

/// True if bytes could not be kept because there is no room for them.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Moves up to a step of the next `left` bytes of `stream` behind `bytes` and returns how many; 0 at its end.
fn read(stream: &mut dyn Stream, left: u64, bytes: &mut Vec<u8>) -> io::Result<u64> {
    let next = stream.peek(STEP.min(usize::try_from(left).unwrap_or(STEP)))?;
    bytes.extend_from_slice(next);
    let length = next.len() as u64;
    stream.skip(length)
}

/// Bytes of a body that are in memory while it is read. Those of one that stays there are its own to give back.
struct Counted<'c> {
    counter: &'c AtomicUsize,
    bytes: usize,
}

impl Counted<'_> {
    fn add(&mut self, more: usize) {
        self.counter.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct InMemory {
    bytes: Vec<u8>,
    counter: Arc<AtomicUsize>,
    name: String,
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Source for InMemory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let length = buffer.len().min(self.bytes.len() - from);
        buffer[..length].copy_from_slice(&self.bytes[from..from + length]);
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

#[derive(Debug)]
struct OnDisk {
    file: Arc<File>,
    /// Where each piece begins: byte of the body, byte of the file.
    pieces: Vec<(u64, u64)>,
    length: u64,
    name: String,
}

impl OnDisk {
    /// Gives the disk back what it takes there.
    fn free(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (number, &(start, place)) in self.pieces.iter().enumerate() {
            let end = self.pieces.get(number + 1).map_or(self.length, |&(start, _)| start);
            rustix::fs::fallocate(&self.file, flags, place, end - start)?;
        }
        Ok(())
    }
}

impl Source for OnDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if length == 0 {
            return Ok(0);
        }
        let following = self.pieces.partition_point(|&(start, _)| start <= offset);
        let (mut done, mut offset) = (0, offset);
        for (number, &(start, place)) in self.pieces.iter().enumerate().skip(following.saturating_sub(1)) {
            let end = self.pieces.get(number + 1).map_or(self.length, |&(start, _)| start);
            let step = (length - done).min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            if step == 0 {
                break;
            }
            self.file.read_exact_at(&mut buffer[done..done + step], place + (offset - start))?;
            (done, offset) = (done + step, offset + step as u64);
        }
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_format::SourceStream;
    use tarnfs_source::{Cancel, MemorySource};

    #[test]
    fn what_goes_by_can_be_read_again_wherever_it_is_kept() {
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 253) as u8).collect();
        let source = Arc::new(MemorySource::new(bytes.clone(), "bytes"));
        let mut stream = SourceStream::new(source, Cancel::default());
        let bodies = Bodies::new(0);
        let (mut at, mut taken) = (0, Vec::new());
        for length in [10, 0, 3_000_000, 1 << 20, 700, 10_000_000] {
            let body = bodies.take(&mut stream, length, "body", false).unwrap();
            let there = length.min(bytes.len() as u64 - at);
            assert_eq!(body.len(), there);
            taken.push((at as usize, body));
            at += there;
        }
        // A password may open them: then nothing of them comes onto a disk.
        let secret = Bodies::new(0);
        let source = Arc::new(MemorySource::new(bytes.clone(), "bytes"));
        let mut stream = SourceStream::new(source, Cancel::default());
        assert_eq!(secret.take(&mut stream, 3_000_000, "body", true).unwrap().len(), 3_000_000);
        assert!(secret.file.lock().unwrap().is_none());
        let long: Vec<u8> = vec![7; MOST_OF_SECRETS + 1];
        let mut stream = SourceStream::new(Arc::new(MemorySource::new(long, "bytes")), Cancel::default());
        assert!(is_no_room(&secret.take(&mut stream, u64::MAX, "body", true).unwrap_err()));
        for (at, body) in taken {
            let mut back = vec![0; body.len() as usize];
            body.read_exact_at(&mut back, 0).unwrap();
            assert_eq!(back, bytes[at..at + back.len()]);
        }
        assert_eq!(bodies.in_memory.load(Ordering::Relaxed), 0);
    }

    /// One that is too long stays a file, and those behind it are kept.
    #[test]
    fn a_body_that_does_not_fit_leaves_its_room() {
        use std::os::unix::fs::MetadataExt;
        let bodies = Bodies { room: AtomicU64::new(6 << 20), ..Bodies::new(0) };
        let mut kept = Vec::new();
        for first in 0..2 {
            for _ in 0..3 {
                let error = bodies.take(&mut numbers(4 << 20, 0), u64::MAX, "long", false).unwrap_err();
                assert!(is_no_room(&error), "{error}");
            }
            kept.push(bodies.take(&mut numbers(700_000, first), u64::MAX, "short", false).unwrap());
        }
        assert_eq!(bodies.room.load(Ordering::Relaxed), (6 << 20) - 2 * 4 * 700_000);
        // What was written of the long ones is gone from the disk.
        let on_disk = bodies.file().unwrap().metadata().unwrap().blocks() * 512;
        assert!(on_disk < 7 << 20, "{on_disk} bytes on disk");
        for (first, body) in kept.iter().enumerate() {
            check(body, 700_000, first as u32);
        }
    }

    /// Bytes that come only when another body has been taken.
    struct After<'b> {
        bodies: &'b Bodies,
        inner: SourceStream,
        others: Vec<SharedSource>,
    }

    impl Stream for After<'_> {
        fn position(&self) -> u64 {
            self.inner.position()
        }

        fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
            if self.inner.position() > 2 << 20 && self.others.len() < 20 {
                let mut stream = numbers(1 << 20, self.others.len() as u32);
                self.others.push(self.bodies.take(&mut stream, u64::MAX, "other", false)?);
            }
            self.inner.peek(length)
        }

        fn skip(&mut self, length: u64) -> io::Result<u64> {
            self.inner.skip(length)
        }
    }

    fn numbers(count: u32, first: u32) -> SourceStream {
        let bytes: Vec<u8> = (0..count).flat_map(|n| (n + first).to_le_bytes()).collect();
        SourceStream::new(Arc::new(MemorySource::new(bytes, "numbers")), Cancel::default())
    }

    fn check(body: &SharedSource, count: u32, first: u32) {
        assert_eq!(body.len(), u64::from(count) * 4);
        let mut bytes = vec![0; body.len() as usize];
        body.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.chunks_exact(4).eq((0..count).map(|n| (n + first).to_le_bytes())), "{first}");
        // Also across the ends of pieces.
        for at in (1..body.len() - 100_000).step_by(77_777) {
            let mut part = vec![0; 100_000];
            body.read_exact_at(&mut part, at).unwrap();
            assert_eq!(part, bytes[at as usize..][..part.len()], "{first} at {at}");
        }
        // An archive says where something of it lies, and there may be nothing.
        for behind in [body.len(), body.len() + 1, u64::MAX] {
            assert_eq!((body.read_at(&mut [0; 5], behind).unwrap(), body.read_at(&mut [], behind).unwrap()), (0, 0));
        }
    }

    /// Nobody who takes a body keeps others from taking theirs.
    #[test]
    fn bodies_are_taken_while_others_are() {
        let bodies = Bodies::new(0);
        let mut stream = After { bodies: &bodies, inner: numbers(8 << 20, 77), others: Vec::new() };
        let body = bodies.take(&mut stream, u64::MAX, "first", false).unwrap();
        check(&body, 8 << 20, 77);
        assert_eq!(stream.others.len(), 20);
        for (first, other) in stream.others.iter().enumerate() {
            check(other, 1 << 20, first as u32);
        }
    }
}
