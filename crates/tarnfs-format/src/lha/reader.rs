//! Walks along an archive, from header to header.

use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::NAME;
use super::header::{self, Header, LONGEST, Method, START};
use crate::image::Teller;
use crate::name::{bounded_path, excerpt};
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step};

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
    let end = source.len();
    let mut at = 0;
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let failed = |error| Error::Read { offset: at, error };
        let start = window.bytes(at, end, START).map_err(failed)?;
        // A byte of zero ends an archive; some just end.
        if start.first().is_none_or(|first| *first == 0) {
            return Ok(());
        }
        let header = match header::length(start).map(|length| length.min(MOST)) {
            // Of level 1, the extensions follow, which are short as a rule.
            Some(length) => {
                let wanted = length.saturating_add(EXTENSIONS);
                let header = Header::read(window.bytes(at, end, wanted).map_err(failed)?);
                if header.as_ref().is_some_and(|header| header.is_cut) && wanted < LONGEST {
                    Header::read(window.bytes(at, end, LONGEST).map_err(failed)?)
                } else {
                    header
                }
            }
            None => None,
        };
        let Some(header) = header else {
            if at == 0 {
                return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
            }
            return tell.damage(at, "no valid header: what follows is not read".to_owned());
        };
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

fn file(header: Header, at: u64, data: u64, end: u64, options: &Options, tell: &mut Teller<'_>) -> Result<(), Error> {
    let limits = options.limits;
    let size = if header.kind == Kind::File { header.size } else { 0 };
    let mut body = Body { offset: at, size, ..Body::default() };
    let path = bounded_path(header.path.clone(), limits.path);
    if size > 0 {
        let there = end.saturating_sub(data);
        let piece = if header.stored > there {
            let what = format!("'{}' has {} bytes, of which {there} are there", excerpt(&path), header.stored);
            tell.damage(data, what)?;
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
        Step { codec: "lzh".to_owned(), properties, ..Step::default() }
    } else {
        let codec = format!("the method {} of LHA", excerpt(&header.method));
        Step { codec, ..Step::default() }
    };
    Piece { stored, coder: Some(Arc::new(Coder { steps: vec![step], is_behind_header: None })), ..plain }
}
