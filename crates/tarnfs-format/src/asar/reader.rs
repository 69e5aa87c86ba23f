//! Reads an archive: four lengths, and the header behind them.

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::{NAME, tree};
use crate::entry::LONGEST_FILE;
use crate::image::{Budget, Teller, data_of};
use crate::little::u32_at;
use crate::name::{bounded_path, excerpt};
use crate::{Body, Entry, Error, Kind, Options, Piece, ReceiveRandom, Unlisted};

/// Bytes before the header.
const LENGTHS: usize = 16;

/// Bytes of the header: those of large programs have 10 MiB.
const MOST: u32 = 64 << 20;

/// What an archive begins with: pickles of Chromium in each other, each with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Bytes of the header.
    json: u32,
    /// Where files begin.
    base: u64,
}

impl Start {
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        let [first, pickle, payload, json] = [0, 4, 8, 12].map(|at| u32_at(head, at));
        let (pickle, payload, json) = (pickle?, payload?, json?);
        let is_one = first? == 4
            && pickle.checked_sub(payload)? == 4
            && payload.checked_sub(json)? >= 4
            && payload.checked_sub(json)? < 8;
        is_one.then(|| Self { json, base: u64::from(pickle).saturating_add(8) })
    }
}

/// What is in the archive and in none of its files: what is behind the last one of them.
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let (header, base) = header_of(source)?;
    let mut end = base;
    let found = tree::read(&header, &mut |_, node| {
        let own = node.offset.and_then(|offset| base.checked_add(offset)?.checked_add(node.size));
        end = end.max(own.unwrap_or(base));
        cancel.check().map_err(|error| error.to_string())
    });
    cancel.check()?;
    if found.is_err() {
        return Ok(Unlisted::unknown());
    }
    crate::around(source, 0..end, cancel).map(Unlisted::of)
}

/// The header, and where files begin.
fn header_of(source: &dyn Source) -> Result<(Vec<u8>, u64), Error> {
    let mut head = [0; LENGTHS];
    source.read_exact_at(&mut head, 0).map_err(|error| Error::Read { offset: 0, error })?;
    let none = || Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() };
    let Start { json, base } = Start::read(&head).ok_or_else(none)?;
    let unreadable = |reason: String| Error::Unreadable { format: NAME, reason };
    if json > MOST {
        return Err(unreadable(format!("its header has {json} bytes, more than {MOST}")));
    }
    let start = LENGTHS as u64;
    if start.saturating_add(json.into()) > source.len() {
        let what = format!("its header of {json} bytes ends behind byte {}", source.len());
        return Err(Error::Read { offset: start, error: io::Error::new(io::ErrorKind::UnexpectedEof, what) });
    }
    let mut header = vec![0; json as usize];
    source.read_exact_at(&mut header, start).map_err(|error| Error::Read { offset: start, error })?;
    Ok((header, base))
}

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let (header, base) = header_of(&**source)?;
    let (end, most) = (source.len(), options.limits.path);
    let mut tell = Teller::new(receive);
    let mut failure = None;
    let mut number = LENGTHS as u64;
    let (mut budget, mut is_full) = (Budget::new(data_of(&**source), options.shares), false);
    let found = tree::read(&header, &mut |path, node| {
        number = number.saturating_add(1);
        // Each name is told with the names of all folders that it lies in.
        if let Err(error) = budget.take_bytes(path.len() as u64) {
            is_full = true;
            return Err(error.to_string());
        }
        let told = options.cancel.check().map_err(Error::Receiver);
        told.and_then(|()| tell_of(path, node, number, base..end, most, &mut tell)).map_err(|error| {
            failure = Some(error);
            "reading has ended".to_owned()
        })
    });
    if is_full {
        let what = "what is behind is left out: its paths are too long for so few bytes";
        return tell.damage(number.min(end), what.to_owned());
    }
    match (found, failure) {
        (_, Some(error)) => Err(error),
        (Ok(()), None) => Ok(()),
        (Err(what), None) => Err(Error::Unreadable { format: NAME, reason: format!("its header is damaged: {what}") }),
    }
}

fn tell_of(
    path: &[u8],
    node: tree::Node,
    header: u64,
    files: std::ops::Range<u64>,
    most: usize,
    tell: &mut Teller<'_>,
) -> Result<(), Error> {
    let kind = match (&node.link, node.is_folder) {
        (Some(_), _) => Kind::Symlink,
        (None, true) => Kind::Folder,
        (None, false) => Kind::File,
    };
    let size = if kind == Kind::File { node.size.min(LONGEST_FILE) } else { 0 };
    let mut body = Body { offset: header, size, ..Body::default() };
    if size > 0 {
        let offset = node.offset.and_then(|offset| files.start.checked_add(offset));
        let place = offset.filter(|offset| offset.checked_add(node.size).is_some_and(|end| end <= files.end));
        let piece = if let Some(offset) = place {
            Piece { length: size, offset, stored: size, decoded: size, ..Piece::default() }
        } else {
            let why =
                if node.offset.is_some() { "lies behind the end of the archive" } else { "lies beside the archive" };
            tell.damage(header.min(files.end), format!("'{}' {why}", excerpt(path)))?;
            Piece::unreadable(files.start.min(files.end), size)
        };
        body.pieces = Some(vec![piece]);
    }
    let is_executable = kind != Kind::File || node.is_executable;
    let mode = if kind == Kind::Symlink {
        0o777
    } else if is_executable {
        0o755
    } else {
        0o644
    };
    tell.entry(Entry {
        path: bounded_path(path.to_vec(), most),
        kind,
        mode,
        header,
        body,
        link: bounded_path(node.link.map(|link| relative(path, link.as_bytes())).unwrap_or_default(), most),
        ..Entry::default()
    })
}

/// A target from the root of the archive, as it is from the folder of the link at `path`.
fn relative(path: &[u8], target: &[u8]) -> Vec<u8> {
    let deep = path.split(|&byte| byte == b'/').count().saturating_sub(1);
    [b"../".repeat(deep).as_slice(), target].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use super::*;
    use crate::Event;

    /// All files in a folder have its name in their paths, which the header has once.
    #[test]
    fn long_paths_of_short_headers_have_an_end() {
        let files: Vec<String> = (0..400).map(|number| format!("\"{number}\":{{\"size\":0}}")).collect();
        let json = format!("{{\"files\":{{\"{}\":{{\"files\":{{{}}}}}}}}}", "f".repeat(60_000), files.join(","));
        let (length, padded) = (json.len() as u32, json.len().next_multiple_of(4));
        let payload = padded as u32 + 4;
        let lengths = [4, payload + 4, payload, length].map(u32::to_le_bytes).concat();
        let archive = [&lengths[..], json.as_bytes(), &[0; 3][..padded - json.len()]].concat();
        let source: SharedSource = Arc::new(MemorySource::new(archive, "an archive"));
        for (shares, is_whole) in [(1, true), (16, false)] {
            let (mut length, mut count, mut damage) = (0, 0, Vec::new());
            let mut receive = |event| {
                match event {
                    Event::Entry(entry) => (length, count) = (length + entry.path.len(), count + 1),
                    Event::Damage(told) => damage.push(told.what),
                    _ => {}
                }
                Ok(())
            };
            read(&source, &Options { shares, ..Options::default() }, &mut receive).unwrap();
            assert_eq!((count == 401, damage.is_empty()), (is_whole, is_whole), "{count} {damage:?}");
            assert!(is_whole || (15 << 20..18 << 20).contains(&length), "{length}");
        }
    }
}
