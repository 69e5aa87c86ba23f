//! Walks along a stream, from member to member.

use super::{MAGIC, NAME};
use crate::ar::header::{HEADER, Header, Name};
use crate::name::{bounded_path, components, excerpt};
use crate::stream::Part;
use crate::tar::Tar;
use crate::{Body, Damage, Entry, Error, Event, Kind, Options, ReadForwards, Receive, Stream, Time};

/// Members that are folders, and how those are called.
const FOLDERS: [(&[u8], &[u8]); 2] = [(b"control.tar", b"control/"), (b"data.tar", b"data/")];

/// Where the name and the length stand in the header of a member.
const NAME_FIELD: std::ops::Range<usize> = 0..16;
const SIZE: std::ops::Range<usize> = 48..58;

/// Bytes that are looked at together behind the end of a tar.
const AT_ONCE: usize = 64 << 10;

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
        if let Name::Short(name) = header.name {
            if let Some((_, folder)) = FOLDERS.iter().find(|(member, _)| *member == name) {
                self::folder(&mut Part::new(stream, end), folder, options, receive)?;
            } else {
                let entry = Entry { header: at, ..entry(&header, name, offset, options) };
                receive(Event::Entry(Box::new(entry)), stream).map_err(Error::Receiver)?;
            }
        } else {
            // A long name, or a table of such: no package has one.
            let name = excerpt(bytes.get(NAME_FIELD).unwrap_or_default().trim_ascii_end()).to_string();
            let what = format!("'{name}' is no name of a member of a package: the member is left out");
            receive(Event::Damage(Damage { offset: at, what }), stream).map_err(Error::Receiver)?;
        }
        let end = end.checked_next_multiple_of(2).unwrap_or(u64::MAX);
        let left = end.saturating_sub(stream.position());
        if skip(stream, left)? < left {
            break;
        }
    }
    receive(Event::End(stream.position()), stream).map_err(Error::Receiver)
}

/// A member that is a file of its own, whose content begins at byte `offset`.
fn entry(header: &Header<'_>, name: &[u8], offset: u64, options: &Options) -> Entry {
    let size = header.size;
    Entry {
        path: bounded_path(name.to_vec(), options.limits.path),
        kind: Kind::File,
        mode: header.mode & 0o7777,
        uid: header.uid,
        gid: header.gid,
        mtime: Time { seconds: header.mtime, nanoseconds: 0 },
        body: Body { offset, stored: size, size, ..Body::default() },
        ..Entry::default()
    }
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
    let placed = |mut entry: Box<Entry>| {
        entry.path = within(&entry.path);
        // What follows is of another member.
        entry.body.end_at(end);
        if entry.kind == Kind::HardLink {
            entry.link = within(&entry.link);
        }
        entry
    };
    let read = Tar.read(part, options, &mut |event, stream| {
        let event = match event {
            Event::Entry(entry) => Event::Entry(placed(entry)),
            Event::Ahead(entry) => Event::Ahead(placed(entry)),
            Event::Damage(damage) => Event::Damage(damage),
            Event::Unlisted(what) => Event::Unlisted(what),
            _ => return Ok(()),
        };
        receive(event, stream)
    });
    match read {
        Ok(()) => behind(part, folder, options, receive),
        Err(Error::NotThisFormat { reason, .. }) if part.position() > start || !peek(part, 1)?.is_empty() => {
            let what = format!("what should be a tar is none: {reason}");
            receive(Event::Damage(Damage { offset: start, what }), part).map_err(Error::Receiver)
        }
        Err(Error::NotThisFormat { .. }) => Ok(()),
        read => read,
    }
}

/// Tells that something is behind the end of the tar in a member, but for zeros that fill it up.
fn behind(part: &mut Part<'_>, folder: &[u8], options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let bytes = peek(part, AT_ONCE)?;
        let length = bytes.len() as u64;
        if bytes.iter().any(|&byte| byte != 0) {
            let member = excerpt(folder.strip_suffix(b"/").unwrap_or(folder)).to_string();
            let what = format!("what is behind the end of its {member}.tar");
            return receive(Event::Unlisted(what), part).map_err(Error::Receiver);
        }
        if skip(part, length)? == 0 {
            return Ok(());
        }
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
