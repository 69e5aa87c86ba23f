//! Tells what is in each partition, under its number.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Slice, Source};

use super::NAME;
use super::table::{self, Partition, Table};
use crate::boot::{FILE_MODE, FOLDER_MODE};
use crate::content::Content;
use crate::image::{damaged, is_damage};
use crate::{Body, Entry, Error, Event, FORMATS, Format, Kind, Nature, Options, Part, Probe, Reader, ReceiveRandom};

/// Bytes of a partition that are shown at once to what looks for a file system in it.
const HEAD: usize = 64 << 10;

/// Bytes of these that are read at once where they are damaged: as many as any has before it is known.
const AT_ONCE: usize = 2 << 10;

/// Bytes of a path that are kept for the number of a partition and a slash.
const OF_NUMBER: usize = 16;

/// Partitions in which a file system is looked for though they overlap others: a table has thousands, all of which may
/// be one. Disks that are images of CDs as well have two or three.
const MOST_OVERLAPPING: usize = 64;

/// The table of the disk `source`.
pub(super) fn open(source: &dyn Source) -> io::Result<Option<Table>> {
    let failed = std::cell::Cell::new(None);
    let show = |at: u64, length: usize| {
        let there = usize::try_from(source.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        if let Err(error) = source.read_exact_at(&mut bytes, at) {
            failed.set(Some(error));
            bytes.clear();
        }
        bytes
    };
    let found = table::find(&show, Some(source.len()));
    match failed.take() {
        Some(error) if found.is_none() => Err(error),
        _ => Ok(found),
    }
}

/// The bytes of a partition.
fn inside(source: &SharedSource, partition: Partition) -> SharedSource {
    let there = partition.length.min(source.len().saturating_sub(partition.start));
    Arc::new(Slice::new(Arc::clone(source), partition.start, there))
}

/// The first bytes of `source`, up to those that are damaged.
fn head_of(source: &dyn Source) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(usize::MAX))];
    match source.read_exact_at(&mut head, 0) {
        Err(error) if is_damage(&error) => {}
        read => return read.map(|()| head),
    }
    let mut whole = 0_usize;
    for part in head.chunks_mut(AT_ONCE) {
        match source.read_exact_at(part, whole as u64) {
            Err(error) if is_damage(&error) => break,
            read => read?,
        }
        whole = whole.saturating_add(part.len());
    }
    if whole == 0 { Err(damaged("its start is damaged")) } else { Ok(head.get(..whole).unwrap_or_default().to_vec()) }
}

/// The file system that is all of `source`.
fn file_system(source: &dyn Source) -> io::Result<Option<&'static dyn Format>> {
    let head = head_of(source)?;
    let probe = Probe::new(&head, source);
    let bids = FORMATS
        .iter()
        .filter(|format| format.nature() == Nature::FileSystem)
        .map(|format| (format.bid(&probe), *format));
    let best = bids.filter(|(bid, _)| *bid > 0).max_by_key(|(bid, _)| *bid);
    match probe.take_error() {
        // What is damaged may be the mark of another, which is rarer than that it is none.
        Some((_, error)) if !is_damage(&error) || best.is_none() => Err(error),
        _ => Ok(best.map(|(_, format)| format)),
    }
}

/// Bytes of a disk, as ranges that do not overlap.
#[derive(Debug, Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// A range that has any of the bytes from `start` to `end`.
    fn overlapping(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        self.0.range(..end).next_back().map(|(first, last)| (*first, *last)).filter(|(_, last)| *last > start)
    }

    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((first, last)) = self.overlapping(start, end) {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }
}

/// What of a disk was looked at.
#[derive(Debug)]
struct Seen {
    all: Covered,
    /// Of it, what is shown as files of a file system.
    shown: Covered,
    /// How many may still be looked at that overlap others.
    left: usize,
}

impl Seen {
    fn new() -> Self {
        Self { all: Covered::default(), shown: Covered::default(), left: MOST_OVERLAPPING }
    }

    /// The file system that is all of `inside`, which are the bytes of a partition, if it is to be shown as one.
    fn file_system(&mut self, partition: Partition, inside: &dyn Source) -> io::Result<Option<&'static dyn Format>> {
        let (start, end) = (partition.start, partition.start.saturating_add(partition.length));
        // Any number of them may share what is in one.
        if self.shown.overlapping(start, end).is_some() {
            return Ok(None);
        }
        if self.all.overlapping(start, end).is_some() {
            let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
            self.left = left;
        }
        self.all.add(start, end);
        let found = file_system(inside)?;
        if found.is_some() {
            self.shown.add(start, end);
        }
        Ok(found)
    }
}

/// A partition of a disk that is only borrowed.
#[derive(Debug)]
struct Inside<'s> {
    disk: &'s dyn Source,
    start: u64,
    length: u64,
}

impl Source for Inside<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let there = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.disk.read_at(buffer.get_mut(..there).unwrap_or_default(), self.start.saturating_add(offset))
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }

    // As whoever reads it finds: of what has to be decoded, the end is not looked at.
    fn depth(&self) -> usize {
        self.disk.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        let data = self.disk.next_data(self.start.saturating_add(offset))?.saturating_sub(self.start);
        (data < self.length).then_some(data)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let hole = self.disk.next_hole(self.start.saturating_add(offset)).saturating_sub(self.start);
        hole.min(self.length).max(offset)
    }

    fn most_data(&self) -> u64 {
        self.length.min(self.disk.most_data())
    }
}

/// The partitions that have a file system, in the format of that.
pub(super) fn parts(disk: &dyn Source) -> io::Result<Vec<Part>> {
    let (mut parts, mut seen) = (Vec::new(), Seen::new());
    for partition in open(disk)?.map(|table| table.partitions).unwrap_or_default() {
        let length = partition.length.min(disk.len().saturating_sub(partition.start));
        let inside = Inside { disk, start: partition.start, length };
        let known = seen.file_system(partition, &inside).and_then(|format| {
            Ok(match format {
                Some(format) => Some((format, format.fidelity().tells_of_unix(&inside)?)),
                None => None,
            })
        });
        match known {
            Ok(Some((format, tells_of_unix))) => {
                let range = partition.start..partition.start.saturating_add(length);
                parts.push(Part { range, format, tells_of_unix });
            }
            Ok(None) => {}
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parts)
}

/// Tells all that is on the disk.
pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let table = open(&**source).map_err(|error| Error::Read { offset: 0, error })?;
    let reason = "there is no table of partitions".to_owned();
    let table = table.ok_or(Error::NotThisFormat { format: NAME, reason })?;
    let mut tell = |event: Event| receive(event).map_err(Error::Receiver);
    for (offset, what) in table.damage {
        tell(Event::Damage(crate::Damage { offset, what }))?;
    }
    let root = Entry { path: b".".to_vec(), kind: Kind::Folder, mode: FOLDER_MODE, ..Entry::default() };
    tell(Event::Entry(Box::new(root)))?;
    let mut within = options.clone();
    within.limits.path = within.limits.path.saturating_sub(OF_NUMBER);
    within.limits.path_components = within.limits.path_components.saturating_sub(1);
    // Together they may take what one image may.
    within.shares = within.shares.max(1).saturating_mul((table.partitions.len() as u64).max(1));
    let mut seen = Seen::new();
    for partition in table.partitions {
        options.cancel.check().map_err(|error| Error::Read { offset: partition.start, error })?;
        let name = partition.number.to_string().into_bytes();
        let slice = inside(source, partition);
        let damage = |receive: &mut ReceiveRandom<'_>, why: &dyn std::fmt::Display| {
            let what = format!("partition {}: {why}", partition.number);
            receive(Event::Damage(crate::Damage { offset: partition.start, what })).map_err(Error::Receiver)
        };
        let format = match seen.file_system(partition, &*slice) {
            Ok(format) => format,
            // It costs none of those behind it.
            Err(error) if is_damage(&error) => {
                damage(receive, &format_args!("what is in it is not known: {error}"))?;
                None
            }
            Err(error) => return Err(Error::Read { offset: partition.start, error }),
        };
        if let Some(Reader::Random(reader)) = format.map(Format::reader) {
            let mut has_told = false;
            let mut told = |event: Event| {
                has_told |= matches!(event, Event::Entry(_));
                moved(event, &name, partition.start).map_or(Ok(()), &mut *receive)
            };
            let why = match reader.read(&slice, &within, &mut told) {
                Ok(()) => continue,
                Err(Error::Read { error, .. }) if is_damage(&error) => Some(error.to_string()),
                Err(Error::Read { offset, error }) => {
                    return Err(Error::Read { offset: offset.saturating_add(partition.start), error });
                }
                Err(Error::Receiver(error)) => return Err(Error::Receiver(error)),
                // It may well be whole.
                Err(error @ Error::Unsupported { .. }) => {
                    log::warn!("{}: partition {}: {error}", source.describe(), partition.number);
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                damage(receive, &why)?;
            }
            if has_told {
                continue;
            }
        }
        for event in as_file(source, partition) {
            receive(event).map_err(Error::Receiver)?;
        }
    }
    Ok(())
}

/// A partition that is a file.
fn as_file(source: &SharedSource, partition: Partition) -> Vec<Event> {
    let there = source.len();
    let header = partition.start.min(there);
    if i64::try_from(partition.length).is_err() {
        let what = format!("partition {} is left out: it would have {} bytes", partition.number, partition.length);
        return vec![Event::Damage(crate::Damage { offset: header, what })];
    }
    let mut content = Content::new(partition.length);
    content.add(partition.start, partition.length, there);
    let mut events = Vec::new();
    if let Some(why) = content.missing {
        let what = format!("partition {} cannot be read whole: {why}", partition.number);
        events.push(Event::Damage(crate::Damage { offset: header, what }));
    }
    let body = Body { offset: header, size: content.size, pieces: Some(content.pieces), ..Body::default() };
    let path = format!("{}.img", partition.number).into_bytes();
    events.push(Event::Entry(Box::new(Entry { path, mode: FILE_MODE, header, body, ..Entry::default() })));
    events
}

/// What was told of a partition that begins at byte `start`, as of the disk: below the folder `name`.
fn moved(event: Event, name: &[u8], start: u64) -> Option<Event> {
    let below = |path: &[u8]| if path == b"." { name.to_vec() } else { [name, b"/", path].concat() };
    Some(match event {
        Event::Entry(mut entry) => {
            entry.path = below(&entry.path);
            if entry.kind == Kind::HardLink {
                entry.link = below(&entry.link);
            }
            entry.header = entry.header.saturating_add(start);
            entry.body.offset = entry.body.offset.saturating_add(start);
            for piece in entry.body.pieces.iter_mut().flatten() {
                piece.offset = piece.offset.saturating_add(start);
            }
            Event::Entry(entry)
        }
        Event::Damage(damage) => {
            let what = format!("partition {}: {}", String::from_utf8_lossy(name), damage.what);
            Event::Damage(crate::Damage { offset: damage.offset.saturating_add(start), what })
        }
        // There are several.
        Event::Label(_) => return None,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Nothing but zeros, and how often they were read.
    #[derive(Debug, Default)]
    struct Zeros(AtomicUsize);

    impl Source for Zeros {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let there = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
            buffer[..there].fill(0);
            Ok(there)
        }

        fn len(&self) -> u64 {
            8192
        }

        fn describe(&self) -> String {
            "zeros".to_owned()
        }
    }

    /// Reads that so many partitions cost, each of which begins so many bytes behind the one before.
    fn reads(count: u64, step: u64) -> usize {
        let (mut seen, zeros) = (Seen::new(), Zeros::default());
        for number in 0..count {
            let partition = Partition { number: number as u32, start: 4096 + number * step, length: zeros.len() };
            assert!(seen.file_system(partition, &zeros).unwrap().is_none());
        }
        zeros.0.load(Ordering::Relaxed)
    }

    #[test]
    fn few_partitions_that_overlap_are_looked_at() {
        let of_one = reads(1, 0);
        assert!(of_one > 0);
        assert_eq!(reads(1000, 0), of_one * (1 + MOST_OVERLAPPING));
        // One in sixteen begins where no other lies.
        assert!(reads(1000, 512) <= of_one * (1000 / 16 + 1 + MOST_OVERLAPPING));
        assert_eq!(reads(200, 8192), of_one * 200);
    }

    #[test]
    fn ranges_that_overlap_are_one() {
        let mut covered = Covered::default();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (50, 60)] {
            assert_eq!(covered.overlapping(start, end), None);
            covered.add(start, end);
        }
        covered.add(24, 35);
        assert_eq!(covered.0.into_iter().collect::<Vec<_>>(), [(10, 20), (20, 40), (50, 60)]);
    }
}
