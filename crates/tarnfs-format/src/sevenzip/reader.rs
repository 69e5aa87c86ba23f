//! Reads an archive: the start, the header, and the header that may be in it.

use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Slice, Source};

use super::bytes::{Broken, Bytes};
use super::coders::Coders;
use super::files::{File, Files};
use super::start::{self, Start};
use super::streams::{Block, Part, Streams};
use super::{FOR_EACH_STORED, MOST_HEADER, OF_SMALL_ONE, methods, property};
use crate::name::{bounded_path, excerpt};
use crate::{Body, Coder, Damage, Entry, Error, Event, Options, Piece, ReceiveRandom};

/// What an archive may follow: the program that unpacks it.
pub(super) const MOST_BEFORE: usize = 1 << 20;

/// Headers in headers: 7-Zip writes one.
const MOST_NESTED: usize = 4;

/// Files between two looks at whether somebody wants it to end.
const FILES_AT_ONCE: u64 = 4096;

/// Hands what the archive holds to `receive`.
pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let (at, start) = find_start(source.as_ref())?;
    let base = at.saturating_add(start::LENGTH as u64);
    let Some((header, packed_headers)) = load(source, base, &start, options)? else { return Ok(()) };
    let offset = base.saturating_add(start.offset);
    let broken = |broken: Broken| broken_header(offset, broken);
    let (mut streams, mut files) = parse(&header).map_err(broken)?;
    let packed = packed_headers.saturating_add(streams.packed().map_err(broken)?);
    let mut coders = Coders::default();
    let (mut count, mut anti) = (0_u64, 0_u64);
    while let Some(file) = files.next().map_err(broken)? {
        if count.is_multiple_of(FILES_AT_ONCE) {
            options.cancel.check().map_err(Error::Receiver)?;
        }
        count = count.saturating_add(1);
        let mut problems = Vec::new();
        let mut piece = None;
        if file.has_content {
            let (part, block) = streams
                .next_file()
                .and_then(|found| {
                    found.ok_or(Broken { at: header.len(), what: "more files have content than there are" })
                })
                .map_err(broken)?;
            let coder = coders.of(block, &mut |problem| problems.push(problem));
            let made = place(part, block, base, coder, source.len());
            piece = Some(made.map_err(|what| invalid(offset, what))?);
        }
        if file.is_anti {
            anti = anti.saturating_add(1);
            continue;
        }
        let header = at.saturating_add(count).min(source.len());
        let piece = piece.filter(|piece| piece.length > 0);
        let entry = entry(file, header, piece, source.as_ref(), options, &mut problems);
        for what in problems {
            receive(Event::Damage(Damage { offset, what })).map_err(Error::Receiver)?;
        }
        receive(Event::Entry(Box::new(entry))).map_err(Error::Receiver)?;
    }
    if streams.next_file().map_err(broken)?.is_some() {
        let what = "there is content of files that the archive does not name".to_owned();
        receive(Event::Damage(Damage { offset, what })).map_err(Error::Receiver)?;
    }
    let left = start.offset.saturating_sub(packed);
    let unlisted = [
        (left > 0).then(|| format!("{left} bytes that belong to none of its files")),
        (anti > 0).then(|| format!("entries that say what is to be removed ({anti})")),
    ];
    for what in unlisted.into_iter().flatten() {
        receive(Event::Unlisted(what)).map_err(Error::Receiver)?;
    }
    if anti > 0 {
        let archive = source.describe();
        log::info!("{}: {anti} entries only say what to remove; they are not shown", excerpt(archive.as_bytes()));
    }
    Ok(())
}

/// Where the archive begins, and its start.
pub(super) fn find_start(source: &dyn Source) -> Result<(u64, Start), Error> {
    let mut head = vec![0; start::LENGTH];
    let fill = |head: &mut Vec<u8>| {
        let read = source.read_at(head, 0).map_err(|error| Error::Read { offset: 0, error })?;
        head.truncate(read);
        Ok::<_, Error>(())
    };
    fill(&mut head)?;
    let found = match Start::read(&head) {
        Some(Ok(start)) => Some((0, start)),
        Some(Err(start::Damaged)) => return Err(invalid(0, "the archive's first 32 bytes are damaged")),
        None => {
            let there = usize::try_from(source.len()).unwrap_or(usize::MAX);
            head.resize(there.min(MOST_BEFORE.saturating_add(start::LENGTH)), 0);
            fill(&mut head)?;
            start::find(&head)
        }
    };
    let Some((at, start)) = found else {
        let reason = "nothing in its first MiB begins one".to_owned();
        return Err(Error::NotThisFormat { format: "7z", reason });
    };
    let at = at as u64;
    if start.major > 0 {
        let reason = format!("version {} of the format is not known", start.major);
        return Err(Error::Unsupported { format: "7z", reason });
    }
    Ok((at, start))
}

/// The header, decoded, and the bytes that it is packed in before the one that says so; `None` if there is none, for
/// the archive is empty.
fn load(source: &SharedSource, base: u64, start: &Start, options: &Options) -> Result<Option<(Vec<u8>, u64)>, Error> {
    if start.length == 0 {
        return Ok(None);
    }
    let offset = base.saturating_add(start.offset);
    let end = base.checked_add(start.offset).and_then(|offset| offset.checked_add(start.length));
    if end.is_none_or(|end| end > source.len()) {
        let what = format!(
            "its header begins at byte {offset}, behind the end at byte {}: it is cut, or the first one of several \
             files",
            source.len()
        );
        return Err(Error::Read { offset, error: io::Error::new(io::ErrorKind::UnexpectedEof, what) });
    }
    check_length(offset, start.length, MOST_HEADER)?;
    let mut header = vec![0; start.length as usize];
    source.read_exact_at(&mut header, offset).map_err(|error| Error::Read { offset, error })?;
    if crc32fast::hash(&header) != start.crc {
        return Err(invalid(offset, "the header is damaged: its checksum is wrong"));
    }
    let mut packed = 0_u64;
    for _ in 0..MOST_NESTED {
        let mut bytes = Bytes::new(&header);
        let broken = |broken: Broken| broken_header(offset, broken);
        match bytes.number().map_err(broken)? {
            property::ENCODED_HEADER => {}
            property::HEADER => return Ok(Some((header, packed))),
            _ => return Err(invalid(offset, "the header is of a kind that is not known")),
        }
        let mut streams = Streams::read(&mut bytes).map_err(broken)?;
        packed = packed.saturating_add(streams.packed().map_err(broken)?);
        let Some((part, block)) = streams.next_file().map_err(broken)? else { return Ok(None) };
        header = unpack(source, base, part, block, options)?;
        if header.is_empty() {
            return Ok(None);
        }
    }
    Err(invalid(offset, "the header has a header in it, and that another, without an end"))
}

/// The header that is in a header.
fn unpack(
    source: &SharedSource,
    base: u64,
    part: Part,
    block: &Block<'_>,
    options: &Options,
) -> Result<Vec<u8>, Error> {
    let mut problem = None;
    let coder = Coders::default().of(block, &mut |told| problem = Some(told));
    let offset = base.saturating_add(block.offset);
    if let Some(problem) = problem {
        return Err(Error::Unsupported { format: "7z", reason: format!("header: {problem}") });
    }
    let most = block.stored.saturating_mul(FOR_EACH_STORED).saturating_add(OF_SMALL_ONE).min(MOST_HEADER);
    for length in block.sizes.iter().chain([&block.stored]) {
        check_length(offset, *length, most)?;
    }
    let piece = place(part, block, base, coder, source.len()).map_err(|what| invalid(offset, what))?;
    let stored: SharedSource = Arc::new(Slice::new(Arc::clone(source), piece.offset, piece.stored));
    let is_encrypted = block.folder.methods.iter().any(|method| method.id == methods::AES);
    // 7-Zip always has a checksum there. Other programs may not, and what a wrong password makes is no header.
    let is_right = |bytes: &[u8]| match part.crc {
        Some(crc) => crc == crc32fast::hash(bytes),
        None => !is_encrypted || looks_like_header(bytes),
    };
    let bytes = if let Some(coder) = &piece.coder {
        options.decode.decode(coder, stored, piece.decoded, &|bytes| is_right(first_of(bytes, part.length)))
    } else {
        let mut bytes = vec![0; piece.length as usize];
        stored.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let whole = bytes.and_then(|mut bytes| {
        // The first file of its block: nothing comes before it.
        bytes.truncate(part.length as usize);
        let what = if part.crc.is_some() { "its checksum is wrong" } else { "it is none" };
        let is_right = bytes.len() as u64 == part.length && is_right(&bytes);
        if is_right { Ok(bytes) } else { Err(io::Error::new(io::ErrorKind::InvalidData, what)) }
    });
    whole.map_err(|error| {
        // A wrong key makes noise of it.
        let damaged = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
        let error = if is_encrypted && damaged {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("wrong password, or the header is damaged: {error}"),
            )
        } else {
            io::Error::new(error.kind(), format!("the header: {error}"))
        };
        Error::Read { offset, error }
    })
}

/// Up to `length` of the first bytes.
fn first_of(bytes: &[u8], length: u64) -> &[u8] {
    usize::try_from(length).ok().and_then(|length| bytes.get(..length)).unwrap_or(bytes)
}

/// True if `header`, of which there is no checksum, can be taken apart.
fn looks_like_header(header: &[u8]) -> bool {
    let mut bytes = Bytes::new(header);
    match bytes.number() {
        Ok(property::HEADER) => parse(header).is_ok(),
        Ok(property::ENCODED_HEADER) => Streams::read(&mut bytes).is_ok(),
        // There are no files.
        _ => header.is_empty(),
    }
}

/// The two halves of a header that is not encoded.
fn parse(header: &[u8]) -> Result<(Streams<'_>, Files<'_>), Broken> {
    let mut bytes = Bytes::new(header);
    let (mut streams, mut files) = (Streams::default(), Files::default());
    bytes.number()?;
    loop {
        let at = bytes;
        match bytes.number()? {
            property::END => return Ok((streams, files)),
            property::ARCHIVE_PROPERTIES => {
                while bytes.number()? != property::END {
                    bytes.skip_property()?;
                }
            }
            property::ADDITIONAL_STREAMS => drop(Streams::read(&mut bytes)?),
            property::MAIN_STREAMS => streams = Streams::read(&mut bytes)?,
            property::FILES => files = Files::read(&mut bytes)?,
            _ => return Err(at.broken("a part that is not known")),
        }
    }
}

/// Where a file is. Offsets of the archive count from `base`.
fn place(part: Part, block: &Block<'_>, base: u64, coder: Option<Arc<Coder>>, length: u64) -> Result<Piece, String> {
    let offset = base.checked_add(block.offset);
    let end = offset.and_then(|offset| offset.checked_add(block.stored));
    let (Some(offset), true) = (offset, end.is_some_and(|end| end <= length)) else {
        return Err(format!("the archive has {length} bytes, and files are behind its end"));
    };
    if coder.is_some() {
        let (stored, decoded) = (block.stored, block.decoded);
        let Part { skip, length, crc } = part;
        return Ok(Piece { hole: 0, length, offset, stored, coder, decoded, skip, crc });
    }
    if block.stored != block.decoded {
        return Err(format!("{} bytes that are stored as they are take {}", block.decoded, block.stored));
    }
    let offset = offset.saturating_add(part.skip);
    let Part { length, crc, .. } = part;
    Ok(Piece { length, offset, stored: length, decoded: length, crc, ..Piece::default() })
}

/// `header` tells the order of the archive: nothing of a header that was decoded has a place in the archive.
fn entry(
    file: File,
    header: u64,
    piece: Option<Piece>,
    source: &dyn Source,
    options: &Options,
    problems: &mut Vec<String>,
) -> Entry {
    let path = file.name.unwrap_or_else(|| name_of_archive(&source.describe()));
    let limits = &options.limits;
    if path.len() > limits.path {
        problems.push(format!("{}: a path of {} bytes was cut to {}", excerpt(&path), path.len(), limits.path));
    }
    let size = piece.as_ref().map_or(0, |piece| piece.length);
    Entry {
        path: bounded_path(path, limits.path),
        kind: file.kind,
        mode: file.mode,
        mtime: file.modified.unwrap_or_default(),
        atime: file.accessed,
        ctime: file.changed,
        header,
        body: Body { offset: header, size, pieces: piece.map(|piece| vec![piece]), ..Body::default() },
        ..Entry::default()
    }
}

/// What 7-Zip calls the file of an archive that has no names: as the archive, without its ending.
fn name_of_archive(description: &str) -> Vec<u8> {
    let name = description.rsplit('/').next().unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if stem.is_empty() { b"content".to_vec() } else { stem.into() }
}

fn check_length(offset: u64, length: u64, most: u64) -> Result<(), Error> {
    if length <= most {
        return Ok(());
    }
    Err(invalid(offset, format!("a header of {length} bytes, more than {most}")))
}

fn broken_header(offset: u64, Broken { at, what }: Broken) -> Error {
    invalid(offset, format!("the header is damaged: {what} (its byte {at})"))
}

fn invalid(offset: u64, what: impl Into<String>) -> Error {
    Error::Read { offset, error: io::Error::new(io::ErrorKind::InvalidData, what.into()) }
}
