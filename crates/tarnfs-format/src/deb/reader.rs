//! Walks along a stream, from member to member.

use super::{MAGIC, NAME};
use crate::ar::header::{HEADER, Header, Name};
use crate::name::{bounded_path, components};
use crate::stream::Part;
use crate::tar::Tar;
use crate::{Body, Damage, Entry, Error, Event, Kind, Options, ReadForwards, Receive, Stream, Time};

/// Members that are folders, and how those are called.
const FOLDERS: [(&[u8], &[u8]); 2] = [(b"control.tar", b"control/"), (b"data.tar", b"data/")];

/// Where the length stands in the header of a member.
const SIZE: std::ops::Range<usize> = 48..58;

pub(super) fn read(stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    if peek(stream, MAGIC.len())? != MAGIC {
        return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
    }
    skip(stream, MAGIC.len() as u64)?;
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let at = stream.position();
        let Some(mut bytes) = peek(stream, HEADER)?.first_chunk::<HEADER>().copied() else { break };
        // The last one goes to the end.
        let size = bytes.get_mut(SIZE).unwrap_or_default();
        let is_last = size.iter().all(|&byte| byte == b' ');
        if is_last && let Some(digit) = size.first_mut() {
            *digit = b'0';
        }
        let Some(header) = Header::read(&bytes) else {
            let what = "no valid header of a member: what follows is not read".to_owned();
            receive(Event::Damage(Damage { offset: at, what }), stream).map_err(Error::Receiver)?;
            break;
        };
        skip(stream, HEADER as u64)?;
        let offset = stream.position();
        let end = if is_last { u64::MAX } else { offset.saturating_add(header.size) };
        let Name::Short(name) = header.name else { break };
        if let Some((_, folder)) = FOLDERS.iter().find(|(member, _)| *member == name) {
            self::folder(&mut Part::new(stream, end), folder, options, receive)?;
        } else {
            let size = header.size;
            let entry = Entry {
                path: bounded_path(name.to_vec(), options.limits.path),
                kind: Kind::File,
                mode: header.mode & 0o7777,
                uid: header.uid,
                gid: header.gid,
                mtime: Time { seconds: header.mtime, nanoseconds: 0 },
                header: at,
                body: Body { offset, stored: size, size, ..Body::default() },
                ..Entry::default()
            };
            receive(Event::Entry(Box::new(entry)), stream).map_err(Error::Receiver)?;
        }
        let end = end.checked_next_multiple_of(2).unwrap_or(u64::MAX);
        let left = end.saturating_sub(stream.position());
        if skip(stream, left)? < left {
            break;
        }
    }
    receive(Event::End(stream.position()), stream).map_err(Error::Receiver)
}

/// Tells what the tar at which `part` stands holds, in a folder.
fn folder(part: &mut Part<'_>, folder: &[u8], options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    let (start, end) = (part.position(), part.end());
    let within = |path: &[u8]| {
        // No entry lies outside of its folder, whatever its path says.
        let inside = path.split(|&byte| byte == b'/').any(|part| part == b"..").then(|| {
            let names = components(path, &options.limits);
            names.iter().collect::<Vec<_>>().join(&b'/')
        });
        bounded_path([folder, inside.as_deref().unwrap_or(path)].concat(), options.limits.path)
    };
    let read = Tar.read(part, options, &mut |event, stream| {
        let event = match event {
            Event::Entry(mut entry) => {
                entry.path = within(&entry.path);
                // What follows is of another member.
                entry.body.end_at(end);
                if entry.kind == Kind::HardLink {
                    entry.link = within(&entry.link);
                }
                Event::Entry(entry)
            }
            Event::Damage(damage) => Event::Damage(damage),
            _ => return Ok(()),
        };
        receive(event, stream)
    });
    match read {
        Err(Error::NotThisFormat { reason, .. }) if part.position() > start || !peek(part, 1)?.is_empty() => {
            let what = format!("what should be a tar is none: {reason}");
            receive(Event::Damage(Damage { offset: start, what }), part).map_err(Error::Receiver)
        }
        Err(Error::NotThisFormat { .. }) => Ok(()),
        read => read,
    }
}

fn peek(stream: &mut dyn Stream, length: usize) -> Result<&[u8], Error> {
    let offset = stream.position();
    stream.peek(length).map_err(|error| Error::Read { offset, error })
}

fn skip(stream: &mut dyn Stream, length: u64) -> Result<u64, Error> {
    let offset = stream.position();
    stream.skip(length).map_err(|error| Error::Read { offset, error })
}
