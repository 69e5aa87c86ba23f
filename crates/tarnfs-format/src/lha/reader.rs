//! Walks along an archive, from header to header.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::NAME;
use super::header::{self, Header, LONGEST, Method, START};
use crate::entry::LONGEST_FILE;
use crate::guess::Names;
use crate::image::Teller;
use crate::name::{bounded_path, excerpt};
use crate::separators::Separators;
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step, Unlisted};

/// Stored files of up to so many bytes go through the decoder, which compares their checksum. Longer ones are read
/// where they lie, and nothing compares them.
const COMPARED: u64 = 16 << 20;

/// Bytes behind a header of level 1 that are read with it.
const EXTENSIONS: usize = 400;

/// Bytes of a header of level 3, at most.
const MOST: usize = 1 << 20;

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut window = Window::new(&**source, &options.cancel);
    window.jumps(true);
    let mut tell = Teller::new(receive);
    let mut separators = Separators::new(options);
    let end = source.len();
    let mut at = 0;
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let failed = |error| Error::Read { offset: at, error };
        if ends_at(&mut window, at, end).map_err(failed)? {
            return Ok(());
        }
        let Some(mut header) = header_at(&mut window, at, end).map_err(failed)? else {
            if at == 0 {
                return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
            }
            return tell.damage(at, "no valid header: what follows is not read".to_owned());
        };
        let encoding = separators.encoding_of(&header.path, |names| gather(&**source, options, names))?;
        header.split(encoding);
        if header.is_damaged {
            let what = format!("the header of '{}' is damaged: its checksum is wrong", excerpt(&header.path));
            tell.damage(at, what)?;
        }
        let data = at.saturating_add(header.length);
        let stored = header.stored;
        file(header, at, data, end, options, &mut tell)?;
        let next = data.saturating_add(stored);
        // A header that takes nothing would be told for ever.
        if next <= at {
            return tell.damage(at, "a header without a length: what follows is not read".to_owned());
        }
        at = next;
        if at >= end {
            return Ok(());
        }
    }
}

/// Gathers the paths of the archive.
fn gather(source: &dyn Source, options: &Options, names: &mut Names) -> Result<(), Error> {
    let mut window = Window::new(source, &options.cancel);
    window.jumps(true);
    let (mut at, end) = (0_u64, source.len());
    while !names.are_enough() {
        options.cancel.check().map_err(Error::Receiver)?;
        let failed = |error| Error::Read { offset: at, error };
        if ends_at(&mut window, at, end).map_err(failed)? {
            break;
        }
        let Some(header) = header_at(&mut window, at, end).map_err(failed)? else { break };
        names.add(&header.path, true);
        let next = at.saturating_add(header.length).saturating_add(header.stored);
        if next <= at {
            break;
        }
        at = next;
    }
    Ok(())
}

/// True if the archive ends at byte `at`: a byte of zero ends it; some just end.
fn ends_at(window: &mut Window<'_>, at: u64, end: u64) -> io::Result<bool> {
    Ok(window.bytes(at, end, START)?.first().is_none_or(|first| *first == 0))
}

/// The header at byte `at`, if it is one.
fn header_at(window: &mut Window<'_>, at: u64, end: u64) -> io::Result<Option<Header>> {
    let length = header::length(window.bytes(at, end, START)?).map(|length| length.min(MOST));
    let Some(length) = length else { return Ok(None) };
    // Of level 1, the extensions follow, which are short as a rule.
    let wanted = length.saturating_add(EXTENSIONS);
    let header = Header::read(window.bytes(at, end, wanted)?);
    if header.as_ref().is_some_and(|header| header.is_cut) && wanted < LONGEST {
        // There may be one every few bytes: what is read for one is there for many behind it.
        window.jumps(false);
        let header = window.bytes(at, end, LONGEST).map(Header::read);
        window.jumps(true);
        return header;
    }
    Ok(header)
}

/// What is in the archive and in none of its files.
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let mut window = Window::new(source, cancel);
    window.jumps(true);
    let (mut others, mut count, mut hidden, mut at, end) = (Vec::new(), 0_u64, 0_u64, 0_u64, source.len());
    while !ends_at(&mut window, at, end)? {
        cancel.check()?;
        let Some(header) = header_at(&mut window, at, end)? else { return Ok(Unlisted::unknown()) };
        count = count.saturating_add(header.tells_more.into());
        hidden = hidden.saturating_add((header.kind != Kind::File && header.stored > 0).into());
        let next = at.saturating_add(header.length).saturating_add(header.stored);
        if next <= at {
            return Ok(Unlisted::unknown());
        }
        at = next;
    }
    if at == 0 {
        return Ok(Unlisted::unknown());
    }
    if count > 0 {
        others.push(format!("comments, or what else headers have that is not shown ({count})"));
    }
    if hidden > 0 {
        others.push(format!("content of folders and the like, which is not shown ({hidden})"));
    }
    others.extend(crate::around(source, 0..at.saturating_add(1).min(end), cancel)?);
    Ok(Unlisted::of(others))
}

fn file(header: Header, at: u64, data: u64, end: u64, options: &Options, tell: &mut Teller<'_>) -> Result<(), Error> {
    let limits = options.limits;
    let size = if header.kind == Kind::File { header.size.min(LONGEST_FILE) } else { 0 };
    let mut body = Body { offset: at, size, ..Body::default() };
    let path = bounded_path(header.path.clone(), limits.path);
    if size > 0 {
        let there = end.saturating_sub(data);
        let piece = if header.stored > there {
            let what = format!("'{}' has {} bytes, of which {there} are there", excerpt(&path), header.stored);
            tell.damage(data, what)?;
            Piece::unreadable(at, size)
        } else if header.size > size {
            tell.damage(at, format!("'{}' would have {} bytes", excerpt(&path), header.size))?;
            Piece::unreadable(at, size)
        } else {
            piece(&header, data)
        };
        body.pieces = Some(vec![piece]);
    }
    let owner = |name: Vec<u8>| name.get(..limits.owner_name).map_or_else(|| name.clone(), <[u8]>::to_vec);
    tell.entry(Entry {
        path,
        kind: header.kind,
        mode: header.mode,
        uid: header.uid,
        gid: header.gid,
        user: owner(header.user),
        group: owner(header.group),
        mtime: header.mtime,
        atime: header.atime,
        header: at,
        body,
        link: bounded_path(header.link, limits.path),
        ..Entry::default()
    })
}

/// The number that the decoder has for a method.
fn number(method: Method) -> Option<u8> {
    Some(match &method {
        b"-lh0-" | b"-lz4-" | b"-pm0-" => 0,
        b"-lh1-" => 1,
        b"-lh4-" => 4,
        b"-lh5-" => 5,
        b"-lh6-" => 6,
        b"-lh7-" => 7,
        b"-lhx-" => 8,
        b"-lz5-" => 16,
        b"-lzs-" => 17,
        _ => return None,
    })
}

fn piece(header: &Header, data: u64) -> Piece {
    let Header { size, stored, .. } = *header;
    let number = number(header.method);
    let plain = Piece { length: size, offset: data, stored: size, decoded: size, ..Piece::default() };
    if number == Some(0) && (size > COMPARED || header.crc.is_none()) && stored >= size {
        return plain;
    }
    let step = if let Some(number) = number {
        let crc = header.crc.map(u16::to_le_bytes);
        let properties = [&[number][..], crc.as_ref().map_or(&[], |crc| &crc[..])].concat();
        let codec = if crc.is_some() { "lzh-checked" } else { "lzh" };
        Step { codec: codec.to_owned(), properties, ..Step::default() }
    } else {
        let codec = format!("the method {} of LHA", excerpt(&header.method));
        Step { codec, ..Step::default() }
    };
    Piece { stored, coder: Some(Arc::new(Coder { steps: vec![step], is_behind_header: None })), ..plain }
}

#[cfg(test)]
mod tests {
    use tarnfs_source::MemorySource;
    use tarnfs_source::testing::CountedSource;

    use super::*;

    /// Each header of level 1 may say that it has an extension which is longer than any.
    #[test]
    fn headers_that_are_cut_are_read_together() {
        const COUNT: u64 = 20_000;
        let fields = [&b"-lh0-"[..], &[0; 12], &[0x20, 1, 1, b'a', 0, 0, b'U', 0xff, 0xff]].concat();
        let sum = fields.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        let header = [&[fields.len() as u8, sum][..], &fields].concat();
        let counted =
            Arc::new(CountedSource::new(Arc::new(MemorySource::new(header.repeat(COUNT as usize), "headers"))));
        let source: SharedSource = Arc::<CountedSource>::clone(&counted);
        let mut count = 0;
        let mut receive = |event| {
            count += u64::from(matches!(event, crate::Event::Entry(_)));
            Ok(())
        };
        read(&source, &Options::default(), &mut receive).unwrap();
        let (read, length) = (counted.bytes(), source.len());
        assert_eq!(count, COUNT);
        assert!(read <= 4 * length, "{read} bytes read of {length}");
    }
}
