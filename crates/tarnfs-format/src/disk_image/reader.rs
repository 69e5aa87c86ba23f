//! Has what is on the disk told.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::NAME;
use super::layout::{self, Found, Packed, Place, Refusal, Sum};
use super::moved::moved;
use super::view::View;
use crate::boot::{FILE_MODE, FOLDER_MODE};
use crate::image::{Budget, Teller, data_of, format_of, is_damage};
use crate::name::excerpt;
use crate::{
    Body, Damage, Decode, Entry, Error, Event, Format, Kind, Options, Part, Piece, Reader, ReceiveRandom, Unlisted,
};

/// The name of a disk on which nothing is known.
const AS_FILE: &[u8] = b"disk.img";

/// Bytes that are read at once to compare a checksum.
const AT_ONCE: usize = 1 << 20;

type Borrowed<'i> = (View<&'i dyn Source>, Vec<String>);

/// The disk in an image that is only borrowed, without what is packed in it, and what is known of the image beside it.
/// `None` where it cannot be read.
fn borrowed(image: &dyn Source) -> io::Result<Option<Borrowed<'_>>> {
    match layout::open(image, &Cancel::default()) {
        Ok(found) => Ok(found.map(|found| (View::new(image, found.layout, Decode::default()), found.others))),
        Err(Refusal::Read(_, error)) => Err(error),
        Err(Refusal::Because(_) | Refusal::Needs(_)) => Ok(None),
    }
}

/// What `known` says of the disk. What is packed cannot be read here.
fn unless_packed<T>(known: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match known {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidData) => Ok(None),
        known => known,
    }
}

/// Places of the image that the partitions of a disk may lie in: each file is looked for among them.
const MOST_PLACES: usize = 1 << 12;

/// Runs that are looked at to find these.
const MOST_RUNS: usize = 1 << 18;

/// The partitions of the disk, each as often as it lies somewhere else in the image. `None` where there are none, or
/// they lie in too many places.
pub(super) fn parts(image: &dyn Source) -> io::Result<Option<Vec<Part>>> {
    let Some((disk, _)) = borrowed(image)? else { return Ok(None) };
    let format = unless_packed(format_of(&disk, |format| format.nature().is_of_disk()))?;
    let on_disk = format.map(|format| format.fidelity().parts(&disk)).map(unless_packed).transpose()?.flatten();
    let Some(on_disk) = on_disk else { return Ok(None) };
    let (mut parts, mut runs) = (Vec::<Part>::new(), 0_usize);
    for part in on_disk {
        let (mut at, first) = (part.range.start, parts.len());
        while at < part.range.end {
            let run = match disk.run(at, part.range.end.saturating_sub(at)) {
                Err(error) if is_damage(&error) => break,
                run => run?,
            };
            at = at.saturating_add(run.length.max(1));
            runs = runs.saturating_add(1);
            let range = match run.place {
                Place::At(start) => start..start.saturating_add(run.length),
                Place::Packed(Packed { at: start, stored, .. }) => start..start.saturating_add(stored),
                Place::Hole | Place::Nowhere(_) => 0..0,
            };
            match parts.get_mut(first..).and_then(<[Part]>::last_mut).filter(|last| last.range.end == range.start) {
                Some(last) => last.range.end = range.end,
                None if range.is_empty() => {}
                None => parts.push(Part { range, ..part.clone() }),
            }
            if parts.len() > MOST_PLACES || runs > MOST_RUNS {
                return Ok(None);
            }
        }
    }
    Ok(Some(parts))
}

/// False if the disk has a file system that keeps neither modes, owners nor hard links.
pub(super) fn tells_of_unix(image: &dyn Source) -> io::Result<bool> {
    let Some((disk, _)) = borrowed(image)? else { return Ok(true) };
    let format = unless_packed(format_of(&disk, |format| format.nature().is_of_disk()))?;
    let told = format.map(|format| match format.fidelity().parts(&disk)? {
        Some(parts) => Ok(Some(parts.iter().all(|part| part.tells_of_unix))),
        None => format.fidelity().tells_of_unix(&disk).map(Some),
    });
    Ok(told.map(unless_packed).transpose()?.flatten().unwrap_or(true))
}

/// What is in the image and in none of its entries.
pub(super) fn unlisted(image: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let Some((disk, mut others)) = borrowed(image)? else { return Ok(Unlisted::unknown()) };
    others.insert(0, "the tables of the disk image".to_owned());
    let format = unless_packed(format_of(&disk, |format| format.nature().is_of_disk()))?;
    let on_disk = format.map(|format| format.unlisted(&disk, cancel).map(Some));
    let mut all = on_disk.map(unless_packed).transpose()?.flatten().unwrap_or_default();
    all.others.extend(others);
    Ok(all)
}

/// What does not fit to the checksum of an image; `None` if it has none.
pub(super) fn wrong_checksums(image: &dyn Source, cancel: &Cancel) -> io::Result<Option<Vec<Damage>>> {
    let sum = match layout::open(image, cancel) {
        Ok(found) => found.and_then(|found| found.sum),
        Err(Refusal::Read(_, error)) => return Err(error),
        Err(Refusal::Because(_) | Refusal::Needs(_)) => None,
    };
    let Some(Sum { range, crc }) = sum else { return Ok(None) };
    let (mut at, mut hasher, mut bytes) = (range.start, crc32fast::Hasher::new(), vec![0; AT_ONCE]);
    while at < range.end {
        cancel.check()?;
        let length = range.end.saturating_sub(at).min(AT_ONCE as u64) as usize;
        let part = bytes.get_mut(..length).unwrap_or_default();
        image.read_exact_at(part, at)?;
        hasher.update(part);
        at = at.saturating_add(length as u64);
    }
    let what = "the data of the disk image do not fit to their CRC-32".to_owned();
    let wrong = (hasher.finalize() != crc).then_some(Damage { offset: range.start, what });
    Ok(Some(wrong.into_iter().collect()))
}

/// Tells all that is on the disk in the image `source`.
pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let found = layout::open(&**source, &options.cancel).map_err(|refusal| match refusal {
        Refusal::Read(offset, error) => Error::Read { offset, error },
        Refusal::Because(reason) => Error::Unreadable { format: NAME, reason },
        Refusal::Needs(reason) => Error::Unsupported { format: NAME, reason },
    })?;
    let reason = "it does not begin like an image of a disk".to_owned();
    let Found { layout, damage, others, sum: _ } = found.ok_or(Error::NotThisFormat { format: NAME, reason })?;
    let mut teller = Teller::new(receive);
    for (offset, what) in damage {
        teller.damage(offset, what)?;
    }
    for what in others {
        log::info!("{}: {what} not shown", source.describe());
    }
    let disk = Arc::new(View::new(Arc::clone(source), layout, options.decode.clone()).until(&options.cancel));
    let mut budget = Budget::of_image(data_of(&**source), options.shares);
    let format = match format_of(&*disk, |format| format.nature().is_of_disk()) {
        Err(error) if is_damage(&error) => {
            teller.damage(0, format!("the start of the disk cannot be read: {error}"))?;
            None
        }
        format => format.map_err(|error| Error::Read { offset: 0, error })?,
    };
    if let Some(Reader::Random(reader)) = format.map(Format::reader) {
        let mut has_told = false;
        let shared: SharedSource = Arc::<View<SharedSource>>::clone(&disk);
        let mut told = |event: Event| {
            has_told |= matches!(event, Event::Entry(_));
            tell(&disk, event, &mut budget, &mut teller).map_err(io::Error::from)
        };
        let why = match reader.read(&shared, options, &mut told) {
            Ok(()) => return Ok(()),
            Err(Error::Read { error, .. }) if is_damage(&error) => Some(error.to_string()),
            Err(Error::Read { offset, error }) => return Err(Error::Read { offset: disk.place_of(offset), error }),
            Err(Error::Receiver(error)) => return Err(Error::Receiver(error)),
            // It may well be whole.
            Err(error @ Error::Unsupported { .. }) => {
                log::warn!("{}: on the disk: {error}", source.describe());
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            teller.damage(0, format!("on the disk: {why}"))?;
        }
        if has_told {
            return Ok(());
        }
    }
    teller.entry(Entry { path: b".".to_vec(), kind: Kind::Folder, mode: FOLDER_MODE, ..Entry::default() })?;
    let length = disk.len();
    let pieces = (length > 0).then(|| vec![all_of(0, length)]);
    let body = Body { size: length, pieces, ..Body::default() };
    let file = Entry { path: AS_FILE.to_vec(), mode: FILE_MODE, body, ..Entry::default() };
    tell(&disk, Event::Entry(Box::new(file)), &mut budget, &mut teller)
}

/// Bytes that are stored as they are.
fn all_of(offset: u64, length: u64) -> Piece {
    Piece { length, offset, stored: length, decoded: length, ..Piece::default() }
}

/// Tells of the image what was told of the disk in it.
fn tell(disk: &View<SharedSource>, event: Event, budget: &mut Budget, teller: &mut Teller<'_>) -> Result<(), Error> {
    match event {
        Event::Entry(mut entry) => {
            let body = &mut entry.body;
            if body.pieces.is_none() && body.size > 0 && body.extents.is_none() {
                body.pieces = Some(vec![all_of(body.offset, body.stored.min(body.size))]);
                body.stored = 0;
            }
            body.offset = disk.place_of(body.offset);
            entry.header = disk.place_of(entry.header);
            if let Some(pieces) = entry.body.pieces.take() {
                let moved = moved(disk, pieces, budget);
                let (mut pieces, missing) = moved.map_err(|error| Error::Read { offset: entry.header, error })?;
                if let Some(why) = missing {
                    teller.damage(entry.header, format!("{} cannot be read whole: {why}", excerpt(&entry.path)))?;
                    if pieces.is_empty() {
                        pieces.push(Piece::unreadable(entry.header, entry.body.size));
                    }
                }
                entry.body.pieces = Some(pieces);
            }
            teller.entry(*entry)
        }
        Event::Damage(Damage { offset, what }) => teller.damage(disk.place_of(offset), what),
        other => teller.event(other),
    }
}
