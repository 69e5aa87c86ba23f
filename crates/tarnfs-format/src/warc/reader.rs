//! Walks along a stream, from record to record.

use super::NAME;
use super::header::{Finder, Header, LONGEST, MARK, end_of_lines};
use super::place::{self, Places};
use crate::name::{bounded_path, excerpt};
use crate::{Body, Damage, Entry, Error, Event, Kind, Options, Receive, Stream};

/// Kinds of records that are files at their addresses.
const ANSWERS: [&[u8]; 3] = [b"response", b"resource", b"conversion"];

/// The folder of all others.
const RECORDS: &[u8] = b".records/";

/// Bytes that are looked at together while the next record is searched.
const STEP: usize = 64 << 10;

pub(super) fn read(stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    let (mut found, mut places) = (false, Places::default());
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        skip_lines(stream)?;
        let at = stream.position();
        let header = Header::read(peek(stream, LONGEST)?);
        let Some(header) = header else {
            if peek(stream, 1)?.is_empty() {
                break;
            }
            if !found {
                return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
            }
            if search(stream, options, receive)? {
                continue;
            }
            break;
        };
        found = true;
        skip(stream, header.length as u64)?;
        record(stream, options, receive, (&header, at), &mut places)?;
    }
    receive(Event::End(stream.position()), stream).map_err(Error::Receiver)
}

/// Moves past the empty lines behind a record.
fn skip_lines(stream: &mut dyn Stream) -> Result<(), Error> {
    // Two are written; some programs forget them.
    while let [b'\r' | b'\n'] = peek(stream, 1)? {
        skip(stream, 1)?;
    }
    Ok(())
}

fn record(
    stream: &mut dyn Stream,
    options: &Options,
    receive: &mut Receive<'_>,
    (header, at): (&Header, u64),
    places: &mut Places,
) -> Result<(), Error> {
    let start = stream.position();
    // No file is so long that sums of its places overflow.
    let end = start.saturating_add(header.content.min(u64::MAX / 4));
    let is_answer = ANSWERS.contains(&header.kind.as_slice());
    // What the server has said before the content is not a part of it.
    let mut before = 0;
    if is_answer && header.is_http {
        let length = usize::try_from(header.content).unwrap_or(usize::MAX).min(LONGEST);
        before = end_of_lines(peek(stream, length)?).unwrap_or_default();
    }
    let path = if is_answer && !header.address.is_empty() {
        place::of_address(&header.address)
    } else {
        let inside =
            if header.address.is_empty() { place::name(&header.id) } else { place::of_address(&header.address) };
        [RECORDS, &place::name(&header.kind), b"/", &inside].concat()
    };
    let path = places.file(path, options.limits.path_components);
    skip(stream, before as u64)?;
    let offset = stream.position();
    let size = end.saturating_sub(offset);
    let entry = Entry {
        path: bounded_path(path, options.limits.path),
        kind: Kind::File,
        mode: 0o644,
        mtime: header.date.unwrap_or_default(),
        header: at,
        body: Body { offset, stored: size, size, ..Body::default() },
        ..Entry::default()
    };
    let shown = excerpt(&entry.path).to_string();
    receive(Event::Entry(Box::new(entry)), stream).map_err(Error::Receiver)?;
    let left = end.saturating_sub(stream.position());
    let moved = skip(stream, left)?;
    if moved < left {
        let there = stream.position().saturating_sub(start);
        let what = format!("'{shown}': the archive ends after {there} of the {} bytes of a record", header.content);
        receive(Event::Damage(Damage { offset: start, what }), stream).map_err(Error::Receiver)?;
    }
    Ok(())
}

/// Moves to the next record; false if there is none.
fn search(stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<bool, Error> {
    let start = stream.position();
    skip(stream, 1)?;
    let mut finder = Finder::default();
    let found = loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let bytes = peek(stream, STEP)?;
        let length = bytes.len();
        if let Some(place) = memchr::memmem::find(bytes, MARK) {
            skip(stream, place as u64)?;
            let at = stream.position();
            let Err(length) = finder.read(at, peek(stream, LONGEST)?) else { break true };
            skip(stream, length as u64)?;
        } else if length < STEP {
            skip(stream, length as u64)?;
            break false;
        } else {
            skip(stream, length.saturating_sub(MARK.len()) as u64)?;
        }
        if stream.position().saturating_sub(start) > options.limits.resynchronise {
            break false;
        }
    };
    let skipped = stream.position().saturating_sub(start);
    let what = format!("no valid record; {skipped} bytes were skipped");
    receive(Event::Damage(Damage { offset: start, what }), stream).map_err(Error::Receiver)?;
    Ok(found)
}

fn peek(stream: &mut dyn Stream, length: usize) -> Result<&[u8], Error> {
    let offset = stream.position();
    stream.peek(length).map_err(|error| Error::Read { offset, error })
}

fn skip(stream: &mut dyn Stream, length: u64) -> Result<u64, Error> {
    let offset = stream.position();
    stream.skip(length).map_err(|error| Error::Read { offset, error })
}
