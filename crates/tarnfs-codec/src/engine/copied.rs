use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aes::Aes256;
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use rustix::fs::fstatvfs;
use rustix::rand::{GetRandomFlags, getrandom};

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
    /// Bytes until it is looked again how much space there is.
    left: u64,
    /// When it was read last, in seconds since it was begun.
    read: AtomicU64,
    begun: Instant,
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
            left: LOOK,
            read: AtomicU64::new(0),
            begun: Instant::now(),
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
        if let Some(key) = &self.key {
            key.apply(&mut buffer[..there], offset)?;
        }
        Ok(there)
    }

    /// True if nobody has read from it for so long.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        let read = Duration::from_secs(self.read.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(read) >= idle
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
        copied
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
