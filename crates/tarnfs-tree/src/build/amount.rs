//! How much the archives in an archive may be to read, and to keep of them: a bomb of archives in archives has no end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tarnfs_format::{Body, Options, Piece};
use tarnfs_source::Limits;

/// What all nested streams of an archive may hold together, for each of its bytes and beside.
const MOST_FOR_EACH_BYTE: u64 = 1000;
const MOST_BESIDE: u64 = 64 << 30;

/// What a byte of a hole counts for that a codec looks through: it is stored nowhere, and no compressed stream has long
/// runs of zeros.
const WEIGHT_OF_HOLES: u64 = 64;

/// What an entry of a directory counts for there: as many bytes as the header of one in a tar.
const BYTES_OF_ENTRY: usize = 512;

/// What a byte counts for there which is decoded while a directory is read: most filters of documents look at each, and
/// nothing of it is kept.
const WEIGHT_OF_DECODED: usize = 8;

/// The processor time for the directory of one archive in an archive: there may be thousands.
const TIME_OF_ONE: Duration = Duration::from_secs(5);

/// Bytes for names that wait in an archive in an archive, however many are around it.
const LEAST_WAITING: usize = 1 << 20;

/// The same for one extended header: the attributes that it tells stay in memory while the content of their file is
/// read, which may be an archive.
const LEAST_HEADER: u64 = 1 << 20;

/// What is said of an archive that would be too much.
pub(super) const TOO_MUCH: &str = "the archives in this archive hold too much; is it a bomb?";

/// Those of `options` with which the directory of an archive in an archive is read: what is decoded for it counts.
pub(super) fn of_nested(options: &Options, amount: &Arc<Amount>) -> Options {
    let (decode, amount) = (options.decode.clone(), Arc::clone(amount));
    let counted = options.decode.clone().with_each(move |step, stored, cancel, take| {
        decode.each(step, stored, cancel, &mut |part| {
            amount.add_read(part.len().saturating_mul(WEIGHT_OF_DECODED))?;
            take(part)
        })
    });
    let directory_time = options.limits.directory_time.min(TIME_OF_ONE);
    Options { decode: counted, limits: Limits { directory_time, ..options.limits }, ..options.clone() }
}

/// The limits of an archive that has so many around it. What waits in those, and what they tell, is in memory, too. All
/// together have about twice what the outermost one has.
pub(super) fn limits_at(limits: Limits, depth: u32) -> Limits {
    let Limits { waiting_names, extended_header, .. } = limits;
    Limits {
        waiting_names: waiting_names.checked_shr(depth).unwrap_or_default().max(LEAST_WAITING.min(waiting_names)),
        extended_header: extended_header.checked_shr(depth).unwrap_or_default().max(LEAST_HEADER.min(extended_header)),
        ..limits
    }
}

/// Bytes that were read of archives in an archive, and the most that there may be.
#[derive(Debug)]
pub(crate) struct Amount {
    read: AtomicU64,
    most: u64,
    /// Bytes of memory that all together take for files that may be parts of archives.
    gathered: AtomicUsize,
    /// Parts of archives that were looked for.
    looks: AtomicU64,
}

impl Amount {
    /// Of an archive of so many bytes.
    pub(super) fn new(archive_length: u64) -> Self {
        Self::of(archive_length.saturating_mul(MOST_FOR_EACH_BYTE).saturating_add(MOST_BESIDE))
    }

    pub(super) fn of(most: u64) -> Self {
        Self { read: AtomicU64::new(0), most, gathered: AtomicUsize::new(0), looks: AtomicU64::new(0) }
    }

    /// Bytes of memory that files which may be parts of archives take, of all archives that are read.
    pub(super) fn gathered(&self) -> usize {
        self.gathered.load(Ordering::Relaxed)
    }

    /// One of these archives takes `after` bytes for them, and took `before`.
    pub(super) fn set_gathered(&self, before: usize, after: usize) {
        if after > before {
            self.gathered.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.gathered.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Counts a part that is looked for.
    pub(super) fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Parts that were looked for.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Adds `bytes`. False if there are too many by now.
    pub(super) fn add(&self, bytes: u64) -> bool {
        let sum = |read: u64| Some(read.saturating_add(bytes));
        let before = self.read.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        before.unwrap_or_else(|before| before).saturating_add(bytes) <= self.most
    }

    /// Bytes that may still be read.
    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.read.load(Ordering::Relaxed))
    }

    /// Adds `bytes` that are read. An error if that is too much.
    pub(super) fn add_read(&self, bytes: usize) -> io::Result<()> {
        if self.add(bytes as u64) { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, TOO_MUCH)) }
    }

    /// `options`, of which all blocks are counted that are decoded: very many images may each need some.
    pub(super) fn counting(self: &Arc<Self>, options: &Options) -> Options {
        let amount = Arc::clone(self);
        let decode = options.decode.clone().counting_blocks(move |bytes| amount.add_read(bytes));
        Options { decode, ..options.clone() }
    }

    /// Adds an entry that a directory tells of. An error if that is too much: it may be decoded from little.
    pub(super) fn add_entry(&self, body: &Body) -> io::Result<()> {
        let pieces = body.pieces.as_ref().map_or(0, |pieces| size_of_val::<[Piece]>(pieces));
        self.add_read(BYTES_OF_ENTRY.saturating_add(pieces))
    }

    /// Adds `bytes` of a hole. An error if that is too much.
    pub(crate) fn add_hole(&self, bytes: u64) -> io::Result<()> {
        self.add_read(usize::try_from(bytes.saturating_mul(WEIGHT_OF_HOLES)).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_format::{Decode, Step};
    use tarnfs_source::{Cancel, MemorySource};

    #[test]
    fn what_is_read_is_bounded_and_holes_count_for_more() {
        let amount = Amount::of(1000);
        assert!(amount.add(900) && amount.add_hole(1).is_ok());
        assert_eq!(amount.left(), 36);
        assert_eq!(amount.add_hole(1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(!amount.add(0) && amount.left() == 0);
        assert!(!amount.add(u64::MAX) && amount.add_hole(u64::MAX).is_err());
        let most = Amount::new(10).left();
        assert_eq!(most, (64 << 30) + 10_000);
    }

    /// What is in a disk image may have to be decoded to be listed.
    #[test]
    fn blocks_are_counted_that_are_decoded() {
        let amount = Arc::new(Amount::of(1000));
        let decode = tarnfs_format::Decode::default().with_blocks(|_, _, block| Ok(block.len()));
        let options = amount.counting(&Options { decode, ..Options::default() });
        let coder = tarnfs_format::Coder { steps: Vec::new(), is_behind_header: None };
        let block = |length: usize| options.decode.block(&coder, &[], &mut vec![0; length]);
        assert_eq!((block(600).unwrap(), amount.left()), (600, 400));
        assert_eq!(block(401).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let none = amount.counting(&Options::default());
        assert_eq!(none.decode.block(&coder, &[], &mut []).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn what_is_decoded_for_a_directory_is_counted() {
        let decode = Decode::default().with_each(|_, _, _, take| (0..100).try_for_each(|_| take(&[0; 1000])));
        let options = Options { decode, ..Options::default() };
        let nested = of_nested(&options, &Arc::new(Amount::of(500_000)));
        assert_eq!(nested.limits, Limits { directory_time: TIME_OF_ONE, ..options.limits });
        let (mut taken, stored) = (0, Arc::new(MemorySource::new(Vec::new(), "nothing")));
        let result = nested.decode.each(&Step::default(), stored, &Cancel::default(), &mut |part| {
            taken += part.len();
            Ok(())
        });
        assert_eq!((taken, result.unwrap_err().kind()), (62_000, io::ErrorKind::InvalidData));
    }

    #[test]
    fn archives_in_each_other_share_what_is_kept_while_they_are_read() {
        let of_all =
            |depth: u32| (0..depth).map(|depth| limits_at(Limits::DEFAULT, depth).extended_header).sum::<u64>();
        assert_eq!(limits_at(Limits::DEFAULT, 0), Limits::DEFAULT);
        assert_eq!(of_all(2), 24 << 20);
        assert_eq!((of_all(12), of_all(100)), ((30 + 8) << 20, (30 + 96) << 20));
        let little = Limits { extended_header: 1000, waiting_names: 10, ..Limits::DEFAULT };
        assert_eq!(limits_at(little, 1000), little);
    }

    /// Any number of files may have the same pieces, and any number of images such files.
    #[test]
    fn entries_are_counted_with_their_pieces() {
        let amount = Amount::of(100_000);
        let body = |pieces| Body { pieces: Some(vec![Piece::default(); pieces]), ..Body::default() };
        amount.add_entry(&Body::default()).unwrap();
        amount.add_entry(&body(1000)).unwrap();
        let left = 100_000 - 2 * BYTES_OF_ENTRY - 1000 * size_of::<Piece>();
        assert_eq!(amount.left(), left as u64);
        assert_eq!(amount.add_entry(&body(1000)).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(amount.add_read(0).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
