//! The end of an archive: the record that says where the directory is, found from the back.

use std::io;
use std::ops::Range;

use tarnfs_source::{Cancel, Source};

use super::bytes::{u16_at, u32_at, u64_at};
use super::{central, local};
use crate::Probe;

/// APPNOTE 4.3.16, without the comment.
pub(super) const RECORD: usize = 22;
/// Where in it the length of the comment stands.
pub(super) const COMMENT_LENGTH: usize = 20;
/// APPNOTE 4.3.15.
const LOCATOR: usize = 20;
/// APPNOTE 4.3.14, without the extensible data.
const RECORD_64: usize = 56;

/// As far from the end the record may begin, behind which the longest comment lies.
pub(super) const TAIL: usize = RECORD + u16::MAX as usize;

/// Records that are looked at closely and refused, before all others are: a comment may hold thousands.
const MOST_REFUSED: u32 = 16;

/// Records that are looked at at all: those of a comment full of them, and some further ahead. Each takes a few reads,
/// and millions have room there.
const MOST_LOOKED_AT: usize = TAIL / 4 + 4096;

/// As far from the end records are looked for, and how many bytes at once behind the first ones. Where there is none,
/// all is searched for members, which takes longer.
const FARTHEST: u64 = 16 << 20;
const STEP: u64 = 1 << 20;

/// What the record says, in either size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Byte at which it begins, of what was searched.
    pub(super) at: u64,
    /// Number of the volume that it is on, from 0.
    volume: u32,
    /// Number of the one on which the directory begins.
    directory_volume: u32,
    members: u64,
    length: u64,
    offset: u64,
    /// Whether the comment ends where the archive does.
    pub(super) is_last: bool,
}

/// Where the directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) range: Range<u64>,
    /// How many members the record says there are; as many modulo 65 536, if it has only 16 bits.
    pub(super) members: u64,
    pub(super) is_64: bool,
    /// What is to be added to offsets: the length of what was put before the archive. Less than nothing if its start
    /// was cut off.
    pub(super) shift: i64,
    pub(super) volumes: Volumes,
    /// Byte at which the record begins that has told of it, or, with zip64, the one of 32 bits that belongs to it.
    pub(super) record: u64,
}

/// From where the offset of a member counts: from the start of its volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Volumes {
    /// There is one.
    One,
    /// Several that were joined before: of one length, but for the last one.
    Equal(u64),
    /// The byte at which each begins.
    At(Vec<u64>),
}

impl Volumes {
    /// Where the volume of that number begins.
    pub(super) fn start(&self, number: u32) -> Option<u64> {
        match self {
            Self::One => Some(0),
            Self::Equal(length) => length.checked_mul(number.into()),
            Self::At(starts) => starts.get(number as usize).copied(),
        }
    }
}

/// What the end of an archive looks like.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Directory(Directory),
    /// It is the last one of several volumes, and so many others are not there.
    Split(u32),
    /// No record, or none whose directory is where it says.
    Missing,
}

/// The records in `tail`, the last one first.
pub(super) fn records(tail: &[u8]) -> impl Iterator<Item = Record> + '_ {
    let places = 0..=tail.len().saturating_sub(RECORD);
    places.rev().filter_map(|at| {
        let bytes = tail.get(at..).filter(|bytes| bytes.starts_with(b"PK\x05\x06") && bytes.len() >= RECORD)?;
        let rest = bytes.len().saturating_sub(RECORD);
        let comment = usize::from(u16_at(bytes, COMMENT_LENGTH));
        // All ones mean that another record has the number.
        let volume = |at| Some(u16_at(bytes, at)).filter(|&number| number != u16::MAX).unwrap_or_default().into();
        Some(Record {
            at: at as u64,
            volume: volume(4),
            directory_volume: volume(6),
            members: u16_at(bytes, 10).into(),
            length: u32_at(bytes, 12).into(),
            offset: u32_at(bytes, 16).into(),
            is_last: comment == rest,
        })
    })
}

/// Looks for the end. Of several records the last one counts whose directory is there, as in unzip. It is looked for
/// further ahead, too: what was written behind an archive may be longer than a comment.
pub(super) fn find(source: &dyn Source, cancel: &Cancel) -> io::Result<End> {
    let mut head = [0; 4];
    let length = source.len().min(head.len() as u64) as usize;
    source.read_exact_at(head.get_mut(..length).unwrap_or_default(), 0)?;
    let mut search = Search { source, head, end: End::Missing, looked_at: 0, refused: 0 };
    let (mut from, mut step) = (source.len(), TAIL as u64);
    while from > 0 && source.len().saturating_sub(from) < FARTHEST {
        // A record may reach into what was searched before.
        let end = from.saturating_add(RECORD as u64).saturating_sub(1).min(source.len());
        let start = from.saturating_sub(step);
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        cancel.check()?;
        read_legible(source, &mut bytes, start)?;
        for record in records(&bytes) {
            if search.is_over() {
                break;
            }
            cancel.check()?;
            let is_last = record.is_last && end == source.len();
            let record = Record { at: start.saturating_add(record.at), is_last, ..record };
            if let Some(found) = search.look_at(&record)? {
                return Ok(found);
            }
        }
        if search.end != End::Missing || search.is_over() {
            break;
        }
        (from, step) = (start, STEP);
    }
    Ok(search.end)
}

/// Reads what can be read: content before the record may be damaged. What is, becomes zeros, which are no record.
fn read_legible(source: &dyn Source, bytes: &mut [u8], start: u64) -> io::Result<()> {
    const STEP: usize = 512;
    let is_damage = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
    match source.read_exact_at(bytes, start) {
        Err(error) if is_damage(&error) => {}
        read => return read,
    }
    let mut at = start;
    for piece in bytes.chunks_mut(STEP) {
        match source.read_exact_at(piece, at) {
            Err(error) if is_damage(&error) => piece.fill(0),
            read => read?,
        }
        at = at.saturating_add(piece.len() as u64);
    }
    Ok(())
}

/// A search for the end.
struct Search<'s> {
    source: &'s dyn Source,
    /// The first bytes.
    head: [u8; 4],
    /// What is to be made of it if no record is sure.
    end: End,
    looked_at: usize,
    refused: u32,
}

impl Search<'_> {
    /// True if no other record is looked at.
    fn is_over(&self) -> bool {
        self.refused > MOST_REFUSED || self.looked_at >= MOST_LOOKED_AT
    }

    /// What `record` says the end is, if that is sure.
    fn look_at(&mut self, record: &Record) -> io::Result<Option<End>> {
        self.looked_at = self.looked_at.saturating_add(1);
        let (source, place) = (self.source, record.at);
        let large = large_record(source, record)?;
        let record = large.unwrap_or(*record);
        if record.volume != 0 {
            match volumes(source, &record, large.is_some())? {
                Some(directory) => return Ok(Some(End::Directory(Directory { record: place, ..directory }))),
                None if record.is_last => self.end = End::Split(record.volume),
                None => {}
            }
            return Ok(None);
        }
        let Some((directory, is_certain)) = directory(source, &record, large.is_some())? else { return Ok(None) };
        let directory = Directory { record: place, ..directory };
        // An archive that was cut behind a member that is an archive itself: that one is not what was asked for. But
        // of two archives, one behind the other, it is the second one, as in unzip.
        if directory.shift > 0 && self.head == local::SIGNATURE && !ends_at(source, directory.shift as u64)? {
            self.refused = self.refused.saturating_add(1);
            return Ok(None);
        }
        if is_certain {
            return Ok(Some(End::Directory(directory)));
        }
        if self.end == End::Missing {
            self.end = End::Directory(directory);
        }
        Ok(None)
    }
}

/// Whether an archive ends with a record that says where its directory is: `Some(true)` if it is there and nothing but
/// the comment is behind the record.
pub(super) fn probe(probe: &Probe<'_>) -> Option<bool> {
    let length = probe.length()?;
    let tail = probe.tail(TAIL);
    let start = length.saturating_sub(tail.len() as u64);
    // The same ones that `find` would take, without those of zip64: they have a classic one beside them.
    let is_there = |record: &Record| {
        let at = start.saturating_add(record.at);
        let starts = [at.checked_sub(record.length), Some(record.offset)];
        let is_large = record.length == u64::from(u32::MAX) || record.offset == u64::from(u32::MAX);
        let is_locator = || probe.at(at.saturating_sub(LOCATOR as u64), 4) == b"PK\x06\x07";
        let is_header = |start| probe.at(start, 4) == central::SIGNATURE;
        is_large && is_locator() || starts.into_iter().flatten().any(is_header)
    };
    let is_empty = |record: &Record| record.is_last && (record.length, record.members) == (0, 0);
    let mut found = records(&tail).take(MOST_REFUSED as usize).filter(|record| is_empty(record) || is_there(record));
    found.next().map(|record| record.is_last && record.length > 0)
}

/// The directory of an archive whose volumes lie one behind the other. Where it is not known where each begins, they
/// are as `cat` joins them, and all but the last one have the same length: as many as there are before that on which
/// the directory begins lie before its start.
fn volumes(source: &dyn Source, record: &Record, is_64: bool) -> io::Result<Option<Directory>> {
    let starts = source.part_starts();
    if record.volume as usize == starts.len().saturating_sub(1) {
        return in_parts(source, record, is_64, starts);
    }
    let Some((directory, true)) = directory(source, record, is_64)? else { return Ok(None) };
    let (before, number) = (directory.shift.unsigned_abs(), u64::from(record.directory_volume));
    let is_whole = directory.shift > 0 && before.checked_rem(number) == Some(0);
    let volume = before.checked_div(number).filter(|_| is_whole);
    Ok(volume.map(|volume| Directory { shift: 0, volumes: Volumes::Equal(volume), is_64, ..directory }))
}

/// The directory of an archive whose volumes begin at `starts`.
fn in_parts(source: &dyn Source, record: &Record, is_64: bool, starts: &[u64]) -> io::Result<Option<Directory>> {
    let start = starts.get(record.directory_volume as usize).and_then(|start| start.checked_add(record.offset));
    let Some(start) = start.filter(|&start| start <= record.at) else { return Ok(None) };
    let end = start.saturating_add(record.length).min(record.at);
    let mut head = [0; 4];
    source.read_exact_at(&mut head, start)?;
    let is_there = head == central::SIGNATURE || (record.length, record.members) == (0, 0);
    let (members, volumes) = (record.members, Volumes::At(starts.to_vec()));
    Ok(is_there.then_some(Directory { range: start..end, members, is_64, shift: 0, volumes, record: record.at }))
}

/// Whether an archive ends at byte `end`.
fn ends_at(source: &dyn Source, end: u64) -> io::Result<bool> {
    let length = end.min(TAIL as u64);
    let mut tail = vec![0; length as usize];
    source.read_exact_at(&mut tail, end.saturating_sub(length))?;
    Ok(records(&tail).any(|record| record.is_last))
}

/// The zip64 record that belongs to `record`. It is the last one only if that is: what else looks like one, in the
/// middle of an archive that was cut, does not say what that is.
fn large_record(source: &dyn Source, record: &Record) -> io::Result<Option<Record>> {
    let Some(end) = record.at.checked_sub(LOCATOR as u64) else { return Ok(None) };
    let mut locator = [0; LOCATOR];
    source.read_exact_at(&mut locator, end)?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    // Right before the locator, wherever the archive begins; or where the locator says, if it has extensible data.
    for at in [end.checked_sub(RECORD_64 as u64), Some(u64_at(&locator, 8))].into_iter().flatten() {
        let mut bytes = [0; RECORD_64];
        if at.checked_add(RECORD_64 as u64).is_none_or(|behind| behind > end) {
            continue;
        }
        source.read_exact_at(&mut bytes, at)?;
        let ends_at = at.saturating_add(12).saturating_add(u64_at(&bytes, 4));
        if bytes.starts_with(b"PK\x06\x06") && ends_at <= end {
            return Ok(Some(Record {
                at,
                volume: u32_at(&bytes, 16),
                directory_volume: u32_at(&bytes, 20),
                members: u64_at(&bytes, 32),
                length: u64_at(&bytes, 40),
                offset: u64_at(&bytes, 48),
                is_last: record.is_last,
            }));
        }
    }
    Ok(None)
}

/// Where the end of the archive begins whose record is at byte `at`: at that of zip64 which belongs to it, if one does.
pub(super) fn start(source: &dyn Source, at: u64) -> io::Result<u64> {
    let mut bytes = [0; RECORD];
    source.read_exact_at(&mut bytes, at)?;
    let Some(record) = records(&bytes).next() else { return Ok(at) };
    Ok(large_record(source, &Record { at, ..record })?.map_or(at, |large| large.at))
}

/// Where the directory of `record` is, and whether it begins with a header; `None` if it is not there.
fn directory(source: &dyn Source, record: &Record, is_64: bool) -> io::Result<Option<(Directory, bool)>> {
    if record.offset > i64::MAX as u64 {
        return Ok(None);
    }
    // Right before the record, whatever was put before the archive; or where the record says, if something lies
    // between.
    let starts = [record.at.checked_sub(record.length), Some(record.offset)];
    let mut found = None;
    for (start, is_likely) in starts.into_iter().zip([record.is_last, false]) {
        let Some(start) = start.filter(|&start| start <= record.at) else { continue };
        let end = start.saturating_add(record.length).min(record.at);
        let mut head = [0; 4 << 10];
        let length = end.saturating_sub(start).min(head.len() as u64) as usize;
        let Some(head) = head.get_mut(..length) else { continue };
        source.read_exact_at(head, start)?;
        let is_certain = head.starts_with(&central::SIGNATURE);
        let is_empty = record.length == 0 && record.members == 0;
        // Only its first headers are damaged.
        let is_damaged = || is_likely && head.windows(4).any(|four| four == central::SIGNATURE);
        if is_certain || found.is_none() && (is_empty || is_damaged()) {
            let (shift, members) = (start.wrapping_sub(record.offset).cast_signed(), record.members);
            let (range, volumes) = (start..end, Volumes::One);
            found = Some((Directory { range, members, is_64, shift, volumes, record: record.at }, is_certain));
        }
        if is_certain {
            break;
        }
    }
    Ok(found)
}
