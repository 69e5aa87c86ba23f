//! Walks along a stream: two headers, and a cpio.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::files::{File, Files, Several};
use super::header::{self, Header, INTRODUCTION};
use crate::cpio::Cpio;
use crate::name::{bounded_path, excerpt};
use crate::stream::MOST_PEEKED;
use crate::{Body, Damage, Entry, Error, Event, HEAVY, Kind, Options, ReadForwards, Receive, Stream};

/// What an entry of a payload begins with that has the number of its file, and not all that cpio has.
const NUMBERED: &[u8] = b"07070X";
const NUMBERED_HEADER: usize = 14;

/// What all others begin with, as the last one does.
const NAMED: &[u8] = b"070701";

/// Everything lies on multiples of so many bytes, counted from the start of the payload.
const UNIT: u64 = 4;

pub(super) fn read(stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    let start = stream.position();
    // Of the signatures nothing is shown.
    let signatures = header_length(stream)?;
    let padded = signatures.checked_next_multiple_of(8).unwrap_or(signatures);
    skip(stream, padded)?;
    let length = header_length(stream)?;
    let offset = stream.position();
    let bytes = usize::try_from(length).ok().filter(|length| *length <= MOST_PEEKED);
    let bytes = bytes.ok_or_else(|| unreadable(format!("its header has {length} bytes")))?;
    if length >= HEAVY {
        receive(Event::Heavy, &mut *stream).map_err(Error::Receiver)?;
    }
    let bytes = stream.peek(bytes).map_err(|error| Error::Read { offset, error })?.to_vec();
    if (bytes.len() as u64) < length {
        return Err(unreadable(format!(
            "it ends in its header, at byte {}",
            offset.saturating_add(bytes.len() as u64)
        )));
    }
    skip(stream, length)?;
    let header = Header::read(&bytes).ok_or_else(|| unreadable("its header is damaged"))?;
    let files = Files::read(&header, bytes.len(), options.limits.waiting_names);
    let payload = stream.position();
    let head = peek(stream, NUMBERED.len())?;
    if head == NUMBERED {
        let files = files.ok_or_else(|| unreadable("its header does not say which files it has"))?;
        let several = files.last_names();
        let run = Numbered { stream, options, receive, files, several, payload, waiting: HashMap::new() };
        return run.walk();
    }
    if head.is_empty() {
        return damage(stream, receive, start, "there is nothing behind its headers".to_owned());
    }
    if let Some(format) = header.string(PAYLOAD_FORMAT).filter(|format| *format != b"cpio") {
        let reason = format!("its payload is of the kind '{}', not a cpio", excerpt(format));
        return Err(Error::Unsupported { format: super::NAME, reason });
    }
    let numbers = files.as_ref().map(Files::by_path).unwrap_or_default();
    let most = options.limits.owner_name;
    Cpio.read(stream, options, &mut |mut event, stream| {
        if let (Event::Entry(entry), Some(files)) = (&mut event, &files) {
            let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
            let path = path.strip_prefix(b"/").unwrap_or(path);
            if let Some(place) = numbers.get(&xxh3_64(path)) {
                own(entry, files, *place, most);
            }
        }
        receive(event, stream)
    })
    .map_err(|error| match error {
        Error::NotThisFormat { .. } => unreadable("its payload is not a cpio"),
        error => error,
    })
}

/// Which kind of archive a payload is (`RPMTAG_PAYLOADFORMAT`).
const PAYLOAD_FORMAT: u32 = 1124;

/// The owners of an entry.
fn own(entry: &mut Entry, files: &Files<'_>, place: u32, most: usize) {
    let [user, group] = files.owners(place as usize).map(|name| name.get(..most).unwrap_or(name).to_vec());
    (entry.user, entry.group) = (user, group);
}

fn unreadable(reason: impl Into<String>) -> Error {
    Error::Unreadable { format: super::NAME, reason: reason.into() }
}

fn peek(stream: &mut dyn Stream, length: usize) -> Result<&[u8], Error> {
    let offset = stream.position();
    stream.peek(length).map_err(|error| Error::Read { offset, error })
}

fn skip(stream: &mut dyn Stream, length: u64) -> Result<u64, Error> {
    let offset = stream.position();
    stream.skip(length).map_err(|error| Error::Read { offset, error })
}

fn damage(stream: &mut dyn Stream, receive: &mut Receive<'_>, offset: u64, what: String) -> Result<(), Error> {
    receive(Event::Damage(Damage { offset, what }), stream).map_err(Error::Receiver)
}

/// Bytes of the header at which the stream stands.
fn header_length(stream: &mut dyn Stream) -> Result<u64, Error> {
    let at = stream.position();
    let found = header::length(peek(stream, INTRODUCTION)?);
    let reason = format!("there is no header at byte {at}");
    found.ok_or(Error::NotThisFormat { format: super::NAME, reason })
}

/// A payload whose entries have the numbers of their files.
struct Numbered<'run, 'h> {
    stream: &'run mut dyn Stream,
    options: &'run Options,
    receive: &'run mut Receive<'run>,
    files: Files<'h>,
    several: HashMap<(u64, u64), Several>,
    /// Where it begins.
    payload: u64,
    /// Names whose file has not come yet, each with the place of its entry.
    waiting: HashMap<(u64, u64), Vec<(u32, u64)>>,
}

impl Numbered<'_, '_> {
    fn walk(mut self) -> Result<(), Error> {
        let mut left = self.files.len();
        loop {
            self.options.cancel.check().map_err(Error::Receiver)?;
            let at = self.stream.position();
            let bytes = peek(self.stream, NUMBERED_HEADER)?;
            if bytes.starts_with(NAMED) {
                // Only the last entry has a name. It tells nothing.
                return self.end();
            }
            let place = number(bytes).filter(|_| left > 0);
            let found = place.and_then(|place| Some((place, self.files.get(place as usize)?)));
            let Some((place, file)) = found else {
                let what = "there is no entry of a file of the package: what follows is not read";
                self.damage(at, what.to_owned())?;
                return self.end();
            };
            left = left.saturating_sub(1);
            skip(self.stream, NUMBERED_HEADER as u64)?;
            self.fill_up()?;
            self.entry(at, place, &file)?;
        }
    }

    fn entry(&mut self, at: u64, place: u32, file: &File<'_>) -> Result<(), Error> {
        let offset = self.stream.position();
        let inode = self.files.inode(place as usize);
        let several = inode.and_then(|inode| Some((inode, *self.several.get(&inode)?)));
        if let Some((inode, several)) = several
            && several.last != place
        {
            self.waiting.entry(inode).or_default().push((place, at));
            return Ok(());
        }
        let has_content = matches!(file.kind, Some(Kind::File | Kind::Symlink));
        let stored = if has_content { file.size } else { 0 };
        if let Some(mut entry) = self.made(at, place, file)? {
            let size = if file.kind == Some(Kind::File) { stored } else { 0 };
            entry.body = Body { offset, stored, size, ..Body::default() };
            let path = entry.path.clone();
            self.tell(Event::Entry(entry))?;
            let others = several.and_then(|(inode, _)| self.waiting.remove(&inode)).unwrap_or_default();
            for (place, _) in others {
                // The path that each is another name of may be long.
                if !self.files.take(path.len()) {
                    self.damage(at, format!("{}: it has too many names; others were left out", excerpt(&path)))?;
                    break;
                }
                // A link means what its target shows before it, so it comes behind that.
                let behind = at.saturating_add(1);
                if let Some(mut entry) = self.made(behind, place, file)? {
                    (entry.kind, entry.link) = (Kind::HardLink, path.clone());
                    self.tell(Event::Entry(entry))?;
                }
            }
        }
        let read = self.stream.position().saturating_sub(offset);
        let moved = read.saturating_add(skip(self.stream, stored.saturating_sub(read))?);
        if moved < stored {
            let what = format!("the package ends after {moved} of the {stored} bytes of file {place}");
            self.damage(offset, what)?;
        }
        self.fill_up()
    }

    /// The entry of a file but for its content; `None` (and an event) if it cannot be shown.
    fn made(&mut self, at: u64, place: u32, file: &File<'_>) -> Result<Option<Box<Entry>>, Error> {
        let limits = self.options.limits;
        let Some(path) = self.files.path(place as usize) else {
            let what = format!("the path of file {place} cannot be told, alone or with all others; it was left out");
            self.damage(at, what)?;
            return Ok(None);
        };
        let Some(kind) = file.kind else {
            self.damage(at, format!("{}: its type is not known; it was left out", excerpt(&path)))?;
            return Ok(None);
        };
        if path.len() > limits.path {
            let what = format!("{}: a path of {} bytes was cut to {}", excerpt(&path), path.len(), limits.path);
            self.damage(at, what)?;
        }
        let link = if kind == Kind::Symlink { file.link } else { b"" };
        let mut entry = Entry {
            path: bounded_path(path, limits.path),
            kind,
            mode: file.mode,
            mtime: file.mtime,
            header: at,
            link: bounded_path(link.to_vec(), limits.path),
            ..Entry::default()
        };
        own(&mut entry, &self.files, place, limits.owner_name);
        Ok(Some(Box::new(entry)))
    }

    /// Names whose content did not come are empty files.
    fn end(mut self) -> Result<(), Error> {
        let mut left: Vec<_> = std::mem::take(&mut self.waiting).into_values().flatten().collect();
        left.sort_unstable_by_key(|(_, at)| *at);
        for (place, at) in left {
            let path = self.files.path(place as usize).unwrap_or_default();
            let what = format!("{}: what it is another name of was not found; it was left out", excerpt(&path));
            self.damage(at, what)?;
        }
        let end = self.stream.position();
        self.tell(Event::End(end))
    }

    fn fill_up(&mut self) -> Result<(), Error> {
        let behind = self.stream.position().saturating_sub(self.payload).checked_rem(UNIT).unwrap_or_default();
        if behind > 0 {
            skip(self.stream, UNIT.saturating_sub(behind))?;
        }
        Ok(())
    }

    fn damage(&mut self, offset: u64, what: String) -> Result<(), Error> {
        damage(self.stream, self.receive, offset, what)
    }

    fn tell(&mut self, event: Event) -> Result<(), Error> {
        (self.receive)(event, &mut *self.stream).map_err(Error::Receiver)
    }
}

/// The number of the file in an entry that has one.
fn number(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(NUMBERED)?.get(..8)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
