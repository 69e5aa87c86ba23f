//! Has the file under us changed? Its identity says so at once, its fingerprint says so after a few reads.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstat;
use rustix::io::Errno;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::Source;

/// What the operating system says of an open file: equal identities mean an unchanged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub length: u64,
    /// Last change of content, ns since 1970.
    pub modified: i128,
    /// Last change of content or inode (also a rename, a chmod), ns since 1970.
    pub changed: i128,
}

impl FileIdentity {
    /// The identity of an open file.
    pub fn of(file: &impl AsFd) -> io::Result<Self> {
        let stat = fstat(file)?;
        let nanoseconds = |seconds: i64, part: u64| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: stat.st_size as u64,
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    /// A hash of all of it: another file has another one, and so has the same file after any change.
    pub fn hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for number in [self.device, self.inode, self.length] {
            hash.update(&number.to_le_bytes());
        }
        for time in [self.modified, self.changed] {
            hash.update(&time.to_le_bytes());
        }
        hash.digest()
    }
}

/// A hash over a source's length and samples of its bytes: the head, the tail and [`Fingerprint::SAMPLES`] blocks
/// at positions that follow from the length, so that the same archive always gets the same one, wherever it lies.
///
/// Sampling cannot see every change. What it misses is caught when bytes are read: decoded pieces have
/// checksums, and the header of an entry is compared on its first open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Blocks sampled between head and tail.
    pub const SAMPLES: u64 = 16;
    /// Bytes of the head and of the tail.
    const EDGE: usize = 8192;
    /// Bytes of each sample: one disk block.
    const SAMPLE: usize = 4096;

    /// Reads the samples of `source` (about 80 KiB) and hashes them.
    pub fn of(source: &dyn Source) -> io::Result<Self> {
        let length = source.len();
        let mut hash = Xxh3::with_seed(length);
        let mut buffer = [0; Self::EDGE];
        let mut add = |offset: u64, most: usize| -> io::Result<()> {
            // Nothing behind it is wanted.
            let mut read = || source.read_before(&mut buffer[..most], offset, offset.saturating_add(most as u64));
            // Once more, as a server may fail for a moment.
            let read = read().or_else(|_| read());
            match read {
                Ok(read) => hash.update(&buffer[..read]),
                // A bad block of a disk is no reason to refuse all else in the archive.
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => hash.update(b"unreadable"),
                Err(error) => return Err(error),
            }
            Ok(())
        };
        let blocks = length / Self::SAMPLE as u64;
        let sampled = if blocks > 4 { 0..Self::SAMPLES } else { 0..0 };
        let sampled =
            sampled.map(|sample| xxh3_64_with_seed(&sample.to_le_bytes(), length) % blocks * Self::SAMPLE as u64);
        // Of a server, all at once.
        sampled.clone().for_each(|offset| source.prefetch(offset, Self::SAMPLE as u64));
        source.prefetch(length.saturating_sub(Self::EDGE as u64), Self::EDGE as u64);
        add(0, Self::EDGE)?;
        for offset in sampled {
            add(offset, Self::SAMPLE)?;
        }
        add(length.saturating_sub(Self::EDGE as u64), Self::EDGE)?;
        Ok(Self(hash.digest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros, but for one block.
    #[derive(Debug)]
    struct Edited {
        length: u64,
        block: Option<u64>,
    }

    const BLOCK: u64 = 512;

    impl Source for Edited {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let read = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
            for (byte, at) in buffer[..read].iter_mut().zip(offset..) {
                *byte = u8::from(self.block == Some(at / BLOCK));
            }
            Ok(read)
        }

        fn len(&self) -> u64 {
            self.length
        }

        fn describe(&self) -> String {
            "zeros".to_owned()
        }
    }

    /// How many of 1000 blocks, changed one at a time anywhere in a source of this length, the samples see.
    fn seen(length: u64) -> usize {
        let of = |block| Fingerprint::of(&Edited { length, block }).unwrap();
        let whole = of(None);
        let blocks = (0..1000_u64).map(|n| xxh3_64_with_seed(&n.to_le_bytes(), 1) % (length / BLOCK));
        blocks.filter(|&block| of(Some(block)) != whole).count()
    }

    /// A source of which one block cannot be read.
    #[derive(Debug)]
    struct Bad(u64, Errno);

    impl Source for Bad {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if (offset..offset + buffer.len() as u64).contains(&self.0) {
                return Err(self.1.into());
            }
            Edited { length: self.len(), block: None }.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            100_000
        }

        fn describe(&self) -> String {
            "bad".to_owned()
        }
    }

    #[test]
    fn a_bad_block_is_a_sample_too() {
        let whole = Fingerprint::of(&Edited { length: 100_000, block: None }).unwrap();
        let bad = Fingerprint::of(&Bad(99_000, Errno::IO)).unwrap();
        assert_ne!(bad, whole);
        assert_eq!(Fingerprint::of(&Bad(99_000, Errno::IO)).unwrap(), bad);
        // A server that does not answer has not said what lies there.
        assert!(Fingerprint::of(&Bad(99_000, Errno::TIMEDOUT)).is_err());
    }

    #[test]
    fn samples_see_a_change_in_them_and_no_other() {
        let of = |block| Fingerprint::of(&Edited { length: 1 << 30, block }).unwrap();
        assert_ne!(of(None), of(Some(0)), "the head");
        assert_ne!(of(None), of(Some((1 << 30) / BLOCK - 1)), "the tail");
        let (small, large, huge) = (seen(16 << 10), seen(1 << 20), seen(1 << 30));
        println!("of 1000 changed blocks seen: {small} in 16 KiB, {large} in 1 MiB, {huge} in 1 GiB");
        // 80 KiB of each: all, a fourteenth (samples may lie over one another), nearly none.
        assert_eq!(small, 1000);
        assert!((40..=80).contains(&large), "{large}");
        assert!(huge <= 5, "{huge}");
    }
}
