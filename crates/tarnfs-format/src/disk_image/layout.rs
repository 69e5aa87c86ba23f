//! What an image of a disk says: where each byte of the disk lies.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_source::{Cancel, Source};

use super::{dmg, qcow, sparse, vhd, vhdx, vmdk};
use crate::{Coder, Step};

/// Shows bytes of an image: at an offset, up to so many.
pub(super) type Show<'s> = dyn Fn(u64, usize) -> Vec<u8> + 's;

/// Bytes of a disk. Files have no more, either.
pub(super) const LONGEST: u64 = i64::MAX as u64;

/// Bytes of a packed block, as it is stored or not: more are no block of any of these formats.
pub(super) const LONGEST_BLOCK: u64 = 16 << 20;

/// Some bytes of a disk that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// How many, at least one.
    pub(super) length: u64,
    pub(super) place: Place,
}

/// Where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: they are zeros.
    Hole,
    /// As they are, from this byte of the image on.
    At(u64),
    /// In a block that is packed.
    Packed(Packed),
    /// Where they cannot.
    Nowhere(&'static str),
}

/// A block that is packed, and the bytes of it that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    /// Byte of the image at which it is stored, and how many it takes there.
    pub(super) at: u64,
    pub(super) stored: u64,
    pub(super) coder: Arc<Coder>,
    /// Bytes that come of it.
    pub(super) decoded: u64,
    /// Of these, bytes before those that are wanted.
    pub(super) skip: u64,
}

/// The layout of one image.
pub(super) trait Layout: Send + Sync + Debug {
    /// Bytes of the disk.
    fn length(&self) -> u64;

    /// Where byte `at` of the disk lies, which is before its end, and how many bytes behind it lie there as well: no
    /// more than are found by looking at a few thousand numbers, and it need not be looked for more than `wanted`.
    /// `InvalidData` where tables say what cannot be. `source` is the image.
    fn run(&self, source: &dyn Source, at: u64, wanted: u64) -> io::Result<Run>;
}

/// What was found out about an image.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) layout: Box<dyn Layout>,
    /// What is wrong with it, and where.
    pub(super) damage: Vec<(u64, String)>,
    /// What is in it beside the disk, in words.
    pub(super) others: Vec<String>,
    /// A checksum of what is stored, if it has one.
    pub(super) sum: Option<Sum>,
}

/// The CRC-32 of some bytes of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) range: Range<u64>,
    pub(super) crc: u32,
}

impl Found {
    pub(super) fn new(layout: impl Layout + 'static) -> Self {
        Self { layout: Box::new(layout), damage: Vec::new(), others: Vec::new(), sum: None }
    }
}

/// Why an image is not read.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It could not be read at that byte.
    Read(u64, io::Error),
    /// It is damaged.
    Because(String),
    /// It may well be whole, but needs another file, a password or something that is not known here.
    Needs(String),
}

impl Refusal {
    pub(super) fn because(what: impl Into<String>) -> Self {
        Self::Because(what.into())
    }

    pub(super) fn needs(what: impl Into<String>) -> Self {
        Self::Needs(what.into())
    }
}

/// One kind of image.
struct Kind {
    bid: fn(&Show<'_>, Option<u64>) -> u32,
    open: fn(&dyn Source, &Cancel) -> Result<Found, Refusal>,
}

const KINDS: [Kind; 6] = [
    Kind { bid: qcow::bid, open: qcow::open },
    Kind { bid: vmdk::bid, open: vmdk::open },
    Kind { bid: vhdx::bid, open: vhdx::open },
    Kind { bid: vhd::bid, open: vhd::open },
    Kind { bid: sparse::bid, open: sparse::open },
    Kind { bid: dmg::bid, open: dmg::open },
];

/// How sure it is that this is an image of a kind that is known.
pub(super) fn bid(show: &Show<'_>, length: Option<u64>) -> u32 {
    KINDS.iter().map(|kind| (kind.bid)(show, length)).max().unwrap_or_default()
}

/// What the image `source` says; `None` if it is none.
pub(super) fn open(source: &dyn Source, cancel: &Cancel) -> Result<Option<Found>, Refusal> {
    let failed = std::cell::Cell::new(None);
    let show = |at: u64, length: usize| match bytes_of(source, at, length) {
        Ok(bytes) => bytes,
        Err(error) => {
            failed.set(Some((at, error)));
            Vec::new()
        }
    };
    let bids = KINDS.iter().map(|kind| ((kind.bid)(&show, Some(source.len())), kind)).filter(|(bid, _)| *bid > 0);
    match (bids.max_by_key(|(bid, _)| *bid), failed.take()) {
        (Some((_, kind)), _) => (kind.open)(source, cancel).map(Some),
        (None, Some((at, error))) => Err(Refusal::Read(at, error)),
        (None, None) => Ok(None),
    }
}

/// Up to `length` bytes from byte `at` on; fewer where the image ends.
fn bytes_of(source: &dyn Source, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let there = usize::try_from(source.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(there)];
    source.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// The same, for who opens an image.
pub(super) fn read(source: &dyn Source, at: u64, length: usize) -> Result<Vec<u8>, Refusal> {
    bytes_of(source, at, length).map_err(|error| Refusal::Read(at, error))
}

/// The coder of a block, by its name.
pub(super) fn coder(name: &str) -> Arc<Coder> {
    let step = Step { codec: name.to_owned(), ..Step::default() };
    Arc::new(Coder { steps: vec![step], is_behind_header: None })
}

/// `length` bytes that lie at byte `at` of an image, as far as it goes.
pub(super) fn stored(source: &dyn Source, at: u64, length: u64) -> Run {
    let there = source.len().saturating_sub(at);
    if there == 0 {
        let place = Place::Nowhere("it would lie behind the end of the image, which is cut");
        return Run { length, place };
    }
    Run { length: length.min(there), place: Place::At(at) }
}

/// Which of the units of so many bytes byte `at` is in, and how far into it that is.
pub(super) fn split(at: u64, unit: u64) -> (u64, u64) {
    (at.checked_div(unit).unwrap_or_default(), at.checked_rem(unit).unwrap_or_default())
}
