use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aes::Aes256;
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use rustix::fs::fstatvfs;
use rustix::rand::{GetRandomFlags, getrandom};
use xxhash_rust::xxh3::Xxh3;

use super::{checksum, placed};
use crate::Scratch;
use crate::scratch::Borrowed;

/// A stream takes at most this part of the space that is free where its copy lies.
const PART_OF_SPACE: u64 = 4;

/// What was decoded of a stream, in a file without a name, where a random read would have to decode much: from the
/// start if there are no seek points, or from far before where the codec is slow.
pub(super) struct Copied {
    file: Borrowed,
    /// Of what a password opens.
    key: Option<Key>,
    length: u64,
    /// The checksum of each part of [`SUMMED`] bytes. The system tells nobody who does not ask that it could not write
    /// what it had taken, and there are zeros then.
    sums: Vec<u32>,
    /// Of the part that is not full yet.
    hash: Box<Xxh3>,
    /// Bytes until it is looked again how much space there is.
    left: u64,
    /// When it was read last, in seconds since it was begun.
    read: AtomicU64,
    begun: Instant,
    /// It could not be read, or was not what was written.
    is_lost: AtomicBool,
}

/// What is secret is encrypted in the file: with a key that is in this memory only, and of no other copy. Each byte of
/// the file is written once, so no byte of the key stream is used twice.
struct Key(Box<[u8; 32]>);

impl Key {
    fn new() -> io::Result<Self> {
        let mut key = Self(Box::default());
        let filled = getrandom(&mut key.0[..], GetRandomFlags::empty())?;
        if filled < key.0.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(key) }
    }

    /// Encrypts or decrypts what lies at `offset` of the file.
    fn apply(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut cipher = ctr::Ctr128LE::<Aes256>::new((&*self.0).into(), &[0; 16].into());
        let is_done = cipher.try_seek(offset).is_ok() && cipher.try_apply_keystream(bytes).is_ok();
        if is_done { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.fill(0);
    }
}

/// Bytes that are read and compared at once. (Of 16 GiB, the checksums take 2 MiB.)
const SUMMED: usize = 32 << 10;

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
        let key = scratch.is_secret().then(Key::new).transpose();
        let key = key.inspect_err(|error| log::debug!("nothing is copied, as there is no key: {error}")).ok()?;
        (length <= space_of(&file) / PART_OF_SPACE).then(|| Self {
            file,
            key,
            length: 0,
            sums: Vec::new(),
            hash: Box::default(),
            left: LOOK,
            read: AtomicU64::new(0),
            begun: Instant::now(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Adds the next bytes. After an error it is of no use.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &self.key {
            None => self.file().write_all_at(bytes, self.length)?,
            Some(key) => {
                let mut encrypted = bytes.to_vec();
                key.apply(&mut encrypted, self.length)?;
                self.file().write_all_at(&encrypted, self.length)?;
            }
        }
        self.note(bytes);
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

    /// Keeps the checksums of the next bytes.
    fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SUMMED - (self.length % SUMMED as u64) as usize;
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            self.hash.update(part);
            self.length += part.len() as u64;
            if part.len() == room {
                self.finish();
            }
            bytes = rest;
        }
    }

    /// No more bytes come. Before that, those of the last part cannot be read if it is not full.
    pub(super) fn finish(&mut self) {
        let start = self.sums.len() as u64 * SUMMED as u64;
        if start < self.length {
            self.sums.push(placed(self.hash.digest(), start));
            self.hash.reset();
        }
    }

    /// Bytes that can be read.
    fn summed(&self) -> u64 {
        self.length.min(self.sums.len() as u64 * SUMMED as u64)
    }

    /// Bytes that it has.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Reads from byte `offset` on what it has of that. An error says that the copy is of no use.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read.store(self.begun.elapsed().as_secs(), Ordering::Relaxed);
        let there = self.summed().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut part = Vec::new();
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let number = at / SUMMED as u64;
            let start = number * SUMMED as u64;
            let length = (self.summed() - start).min(SUMMED as u64) as usize;
            let lost = |_: &io::Error| self.is_lost.store(true, Ordering::Relaxed);
            if at == start && length <= there - done {
                self.read_part(&mut buffer[done..done + length], number).inspect_err(lost)?;
                done += length;
                continue;
            }
            part.resize(length, 0);
            self.read_part(&mut part, number).inspect_err(lost)?;
            let wanted = &part[(at - start) as usize..];
            let count = wanted.len().min(there - done);
            buffer[done..done + count].copy_from_slice(&wanted[..count]);
            done += count;
        }
        Ok(there)
    }

    /// Reads all of the part of that number.
    fn read_part(&self, part: &mut [u8], number: u64) -> io::Result<()> {
        let start = number * SUMMED as u64;
        self.file().read_exact_at(part, start)?;
        if let Some(key) = &self.key {
            key.apply(part, start)?;
        }
        if self.sums.get(number as usize) == Some(&checksum(part, start)) {
            return Ok(());
        }
        Err(io::Error::other(format!("what was kept decoded of it is not what was written, at its byte {start}")))
    }

    /// True if nobody has read from it for so long, or it is of no use.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        if self.is_lost.load(Ordering::Relaxed) {
            return true;
        }
        let read = Duration::from_secs(self.read.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(read) >= idle
    }

    /// As if the disk had lost the bytes from there on.
    #[cfg(test)]
    pub(super) fn lose(&self, at: u64) {
        self.file().write_all_at(&[0; 4096], at).unwrap();
    }

    #[cfg(test)]
    pub(super) fn is_encrypted(&self) -> bool {
        self.key.is_some()
    }

    fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that show where they come from.
    fn content() -> Vec<u8> {
        (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
    }

    fn copied(scratch: &Scratch, bytes: &[u8]) -> Copied {
        let mut copied = Copied::new(scratch, bytes.len() as u64).unwrap();
        // Not in whole blocks of the cipher.
        for part in bytes.chunks(10_007) {
            copied.add(part).unwrap();
        }
        copied.finish();
        copied
    }

    /// > What is read from a copy of decoded data that is kept for a mount is compared with its checksum.
    #[test]
    fn what_is_not_what_was_written_is_an_error() {
        let (bytes, scratch) = (content(), Scratch::default());
        for scratch in [scratch.for_secrets(), scratch] {
            let copied = copied(&scratch, &bytes);
            let (lost, last) = (5 * SUMMED + 4096, bytes.len() - 10);
            copied.lose(lost as u64);
            copied.file().write_all_at(&[7], last as u64).unwrap();
            for at in (0..bytes.len()).step_by(5000) {
                let mut part = [0; 3000];
                let length = part.len().min(bytes.len() - at);
                let parts = at / SUMMED..=(at + length - 1) / SUMMED;
                let is_lost = parts.contains(&5) || parts.contains(&(last / SUMMED));
                match copied.read(&mut part[..length], at as u64) {
                    Ok(read) => assert!(!is_lost && read == length && part[..length] == bytes[at..at + length], "{at}"),
                    Err(error) => assert!(is_lost && error.kind() == io::ErrorKind::Other, "{at}: {error}"),
                }
            }
        }
    }

    /// The part that is not full yet has no checksum, and is not read before it has.
    #[test]
    fn what_is_not_summed_is_not_there() {
        let mut copied = Copied::new(&Scratch::default(), 3 * SUMMED as u64).unwrap();
        let mut part = vec![0; 2 * SUMMED];
        copied.add(&vec![1; SUMMED + 100]).unwrap();
        assert_eq!(
            (copied.read(&mut part, 10).unwrap(), copied.read(&mut part, SUMMED as u64).unwrap()),
            (SUMMED - 10, 0)
        );
        copied.add(&vec![2; SUMMED - 100]).unwrap();
        copied.finish();
        assert_eq!((copied.read(&mut part, 0).unwrap(), copied.sums.len()), (2 * SUMMED, 2));
        assert!(
            part[..SUMMED + 100].iter().all(|&byte| byte == 1) && part[SUMMED + 100..].iter().all(|&byte| byte == 2)
        );
    }

    #[test]
    fn a_copy_of_what_is_secret_is_encrypted_with_a_key_of_its_own() {
        let (bytes, scratch) = (content(), Scratch::default());
        let (plain, secret) = (copied(&scratch, &bytes), copied(&scratch.for_secrets(), &bytes));
        let other = copied(&scratch.for_secrets(), &bytes);
        let stored = |copied: &Copied| {
            let mut stored = vec![0; bytes.len()];
            copied.file().read_exact_at(&mut stored, 0).unwrap();
            stored
        };
        assert!(stored(&plain) == bytes);
        let (first, second) = (stored(&secret), stored(&other));
        for at in (0..bytes.len()).step_by(64) {
            let part = at..at + 64;
            assert!(first[part.clone()] != bytes[part.clone()] && first[part.clone()] != second[part.clone()], "{at}");
        }
        // Nor is the same key stream used at two places.
        let stream: Vec<_> = first.iter().zip(&bytes).map(|(one, other)| one ^ other).collect();
        let mut blocks: Vec<_> = stream.as_chunks::<16>().0.to_vec();
        blocks.sort_unstable();
        assert!(blocks.windows(2).all(|pair| pair[0] != pair[1]));
        for copied in [&plain, &secret, &other] {
            for (at, length) in [(0, 1), (5, 100), (16, 16), (131_071, 70_000), (bytes.len() - 3, 3)] {
                let mut part = vec![0; length];
                assert_eq!(copied.read(&mut part, at as u64).unwrap(), length);
                assert!(part == bytes[at..at + length], "at {at}");
            }
        }
    }
}
