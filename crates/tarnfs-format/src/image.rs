//! What the readers of images share: telling what is there, and what is damaged.

use std::io;

use tarnfs_source::Source;

use crate::name::excerpt;
use crate::{Damage, Entry, Error, Event, FORMATS, Format, Piece, Probe, ReceiveRandom, Shown, Time, Told};

/// Damage that is told singly: an image may have any number of names that lead nowhere.
const MOST_TOLD: u64 = 1000;

/// Ranges of data between holes that are counted.
const MOST_RANGES: usize = 1 << 16;

/// Hands to the receiver what is in an image.
pub(crate) struct Teller<'run> {
    receive: &'run mut ReceiveRandom<'run>,
    damage: u64,
}

impl<'run> Teller<'run> {
    pub(crate) fn new(receive: &'run mut ReceiveRandom<'run>) -> Self {
        Self { receive, damage: 0 }
    }

    pub(crate) fn entry(&mut self, entry: Entry) -> Result<(), Error> {
        self.event(Event::Entry(Box::new(entry)))
    }

    /// `what` is wrong, at a byte of the source.
    pub(crate) fn damage(&mut self, offset: u64, what: String) -> Result<(), Error> {
        self.damage = self.damage.saturating_add(1);
        let what = match self.damage {
            ..MOST_TOLD => what,
            MOST_TOLD => "more is damaged than is told here".to_owned(),
            _ => return Ok(()),
        };
        self.event(Event::Damage(Damage { offset, what }))
    }

    pub(crate) fn event(&mut self, event: Event) -> Result<(), Error> {
        (self.receive)(event).map_err(Error::Receiver)
    }
}

/// Bytes that are shown at once to what looks for a file system.
const HEAD: usize = 64 << 10;
/// The same where not all of these can be read.
const LEAST_HEAD: usize = 4 << 10;

/// The format that is all of `source`, of those that `may` be it.
pub(crate) fn format_of(source: &dyn Source, may: fn(&dyn Format) -> bool) -> io::Result<Option<&'static dyn Format>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(usize::MAX))];
    if let Err(error) = source.read_exact_at(&mut head, 0) {
        // Only some of it may be damaged.
        head.truncate(LEAST_HEAD);
        if !is_damage(&error) || source.read_exact_at(&mut head, 0).is_err() {
            return Err(error);
        }
    }
    let probe = Probe::new(&head, source);
    let bids = FORMATS.iter().filter(|format| may(**format)).map(|format| (format.bid(&probe), *format));
    let best = bids.filter(|(bid, _)| *bid > 0).max_by_key(|(bid, _)| *bid);
    match probe.take_error() {
        Some((_, error)) if !is_damage(&error) => Err(error),
        _ => Ok(best.map(|(_, format)| format)),
    }
}

/// What is told of a file on a disk, whatever its file system is.
pub(crate) fn told_of_any(shown: &Shown) -> Told {
    // FAT counts in twos.
    const TWO_SECONDS: u64 = 2_000_000_000;
    let told = Told::all(shown.mtime);
    Told { mtime: told.mtime.filter(|_| shown.mtime != Time::default()).map(|unit| unit.max(TWO_SECONDS)), ..told }
}

/// Times that the coder of a file's pieces may change: an index keeps no more.
const MOST_CHANGES: usize = 1000;

/// What is wrong where it does so more often.
pub(crate) const CHANGES: &str = "its parts are packed in too many ways";

/// True if the coder of a file's pieces changes too often.
pub(crate) fn changes_too_often(pieces: &[Piece]) -> bool {
    let mut coders = pieces.iter().filter_map(|piece| piece.coder.as_ref());
    let Some(mut last) = coders.next() else { return false };
    let mut changes = 0_usize;
    for coder in coders {
        if last != coder {
            (last, changes) = (coder, changes.saturating_add(1));
        }
    }
    changes > MOST_CHANGES
}

/// The path of a folder, for people.
pub(crate) fn shown(path: &[u8]) -> String {
    if matches!(path, b"" | b".") { "the root".to_owned() } else { excerpt(path).to_string() }
}

/// The error of bytes that say what cannot be.
pub(crate) fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// True if `error` is the image's fault, and not one of who reads it.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Bytes of `source` that are no holes, as far as they lie in so many ranges. Bounds that grow with the image count
/// these: it may have any length for its holes.
pub(crate) fn data_of(source: &dyn Source) -> u64 {
    let (mut at, mut sum) = (0, 0_u64);
    for _ in 0..MOST_RANGES {
        let Some(start) = source.next_data(at) else { break };
        at = source.next_hole(start).max(start.saturating_add(1));
        sum = sum.saturating_add(at.saturating_sub(start));
    }
    sum
}

/// What may still be read and told. Any number of names may lead to one entry, and any number of entries to one list.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Parts of all files.
    pub(crate) parts: u64,
    /// Bytes of entries, and of what is read of files.
    pub(crate) bytes: u64,
}

/// Parts of all files, and one more for so many bytes of the image.
const MOST_PARTS: u64 = 16 << 20;
const BYTES_FOR_EACH_PART: u64 = 16;

/// Bytes that are read, and so many more for each byte of the image.
const MOST_BYTES: u64 = 256 << 20;
const FOR_EACH_BYTE: u64 = 4;

impl Budget {
    /// Of an image of `length` bytes, one of so many that share what does not depend on their length
    /// ([`Options::shares`](crate::Options::shares)).
    pub(crate) fn new(length: u64, shares: u64) -> Self {
        let of_one = |most: u64| most.checked_div(shares).unwrap_or(most);
        Self {
            parts: of_one(MOST_PARTS).saturating_add(length / BYTES_FOR_EACH_PART),
            bytes: of_one(MOST_BYTES).saturating_add(length.saturating_mul(FOR_EACH_BYTE)),
        }
    }

    pub(crate) fn take_parts(&mut self, count: u64) -> io::Result<()> {
        let left = self.parts.checked_sub(count);
        self.parts = left.ok_or_else(|| damaged("the files of the image lie in too many parts"))?;
        Ok(())
    }

    pub(crate) fn take_bytes(&mut self, count: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(count);
        self.bytes = left.ok_or_else(|| damaged("the entries of the image are read too often"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_on_one_disk_share_what_one_may_take() {
        let alone = Budget::new(1 << 20, 1);
        for shares in [2, 128, 8192] {
            let one = Budget::new((1 << 20) / shares, shares);
            let (parts, bytes) = (one.parts.saturating_mul(shares), one.bytes.saturating_mul(shares));
            assert!(parts <= alone.parts && bytes <= alone.bytes, "{shares}: {one:?}");
        }
        assert_eq!(Budget::new(0, 0).parts, MOST_PARTS);
    }
}
