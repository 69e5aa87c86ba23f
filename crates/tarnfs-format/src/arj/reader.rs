//! Walks along an archive, from header to header.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::NAME;
use super::header::{BEFORE, CHECKSUM, Header, Kind, LONGEST, MAGIC, checked};
use crate::guess::Names;
use crate::image::Teller;
use crate::little::u16_at;
use crate::name::{bounded_path, excerpt};
use crate::separators::{Separators, with_slashes};
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Options, Piece, ReceiveRandom, Step, Unlisted};

/// Extensions of one header: there is none, or one.
const MOST_EXTENSIONS: usize = 16;

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut reader = Reader {
        headers: Headers::new(&**source, &options.cancel),
        tell: Teller::new(receive),
        most: options.limits.path,
        separators: Separators::new(options),
        coders: [32, 33].map(|number| {
            let step = Step { codec: "lzh".to_owned(), properties: vec![number], ..Step::default() };
            Arc::new(Coder { steps: vec![step], is_behind_header: None })
        }),
    };
    let mut at = 0;
    let mut is_begun = false;
    loop {
        options.cancel.check().map_err(Error::Receiver)?;
        let Some(Found { header, behind: data, .. }) = reader.headers.at(at)? else { return Ok(()) };
        let Some(mut header) = header else {
            if !is_begun {
                return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
            }
            return reader.tell.damage(at, "no valid header: what follows is not read".to_owned());
        };
        if header.kind == Kind::Archive {
            (at, is_begun) = (data, true);
            continue;
        }
        if header.has_backslashes {
            let encoding = reader.separators.encoding_of(&header.path, |names| gather(&**source, options, names))?;
            header.path = with_slashes(std::mem::take(&mut header.path), encoding);
        }
        let stored = header.stored;
        reader.file(header, at, data)?;
        at = data.saturating_add(stored);
    }
}

/// Gathers the paths of the archive.
fn gather(source: &dyn Source, options: &Options, names: &mut Names) -> Result<(), Error> {
    let (mut headers, mut at) = (Headers::new(source, &options.cancel), 0);
    while !names.are_enough()
        && let Some(Found { header: Some(header), behind, .. }) = headers.at(at)?
    {
        options.cancel.check().map_err(Error::Receiver)?;
        let is_archive = header.kind == Kind::Archive;
        if !is_archive {
            names.add(&header.path, true);
        }
        at = behind.saturating_add(if is_archive { 0 } else { header.stored });
    }
    Ok(())
}

/// What is in the archive and in none of its files: comments, and what else headers have.
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let mut headers = Headers::new(source, cancel);
    let (mut unlisted, mut at) = (Unlisted::default(), 0);
    let (mut commented, mut extended, mut others, mut hidden) = (0_u64, 0_u64, 0_u64, 0_u64);
    loop {
        cancel.check()?;
        let found = headers.at(at)?;
        let Some(Found { header, behind, is_extended }) = found else { break };
        let Some(header) = header else { return Ok(Unlisted::unknown()) };
        extended = extended.saturating_add(is_extended.into());
        if header.kind == Kind::Archive {
            if unlisted.comment.is_empty() {
                unlisted.comment = header.comment;
            } else {
                commented = commented.saturating_add(1);
            }
            at = behind;
            continue;
        }
        commented = commented.saturating_add((!header.comment.is_empty()).into());
        others = others.saturating_add((header.kind == Kind::Other).into());
        hidden = hidden.saturating_add((header.kind == Kind::Folder && header.stored > 0).into());
        at = behind.saturating_add(header.stored);
    }
    if at == 0 {
        return Ok(Unlisted::unknown());
    }
    for (count, what) in [
        (commented, "comments on its files"),
        (extended, "what is told in extended headers"),
        (others, "labels of disks, or chapters"),
        (hidden, "content of folders, which is not shown"),
    ] {
        if count > 0 {
            unlisted.others.push(format!("{what} ({count})"));
        }
    }
    // Some have no mark of the end.
    let end = at.saturating_add(BEFORE as u64).min(source.len());
    unlisted.others.extend(crate::around(source, 0..end, cancel)?);
    Ok(unlisted)
}

/// What is at a byte of an archive.
struct Found {
    /// `None` if it is no header.
    header: Option<Header>,
    /// Where what is behind it begins.
    behind: u64,
    is_extended: bool,
}

/// Looks at headers.
struct Headers<'o> {
    window: Window<'o>,
    end: u64,
}

impl<'o> Headers<'o> {
    fn new(source: &'o dyn Source, cancel: &'o Cancel) -> Self {
        let mut window = Window::new(source, cancel);
        window.jumps(true);
        Self { window, end: source.len() }
    }

    fn bytes(&mut self, at: u64, length: usize) -> Result<&[u8], Error> {
        self.window.bytes(at, self.end, length).map_err(|error| Error::Read { offset: at, error })
    }

    /// What is at byte `at`; `None` at the end.
    fn at(&mut self, at: u64) -> Result<Option<Found>, Error> {
        let bytes = self.bytes(at, BEFORE.saturating_add(LONGEST).saturating_add(CHECKSUM))?;
        // A header without a length ends an archive; some just end.
        if bytes.is_empty() || bytes.starts_with(&MAGIC) && u16_at(bytes, 2) == Some(0) {
            return Ok(None);
        }
        let Some(found) = checked(bytes) else {
            return Ok(Some(Found { header: None, behind: at, is_extended: false }));
        };
        let (length, header) = (found.len() as u64, Header::read(found));
        let mut behind = at.saturating_add(length).saturating_add((BEFORE + CHECKSUM) as u64);
        let mut is_extended = false;
        for _ in 0..MOST_EXTENSIONS {
            let more = u16_at(self.bytes(behind, 2)?, 0).unwrap_or_default();
            behind = behind.saturating_add(2);
            if more == 0 {
                break;
            }
            is_extended = true;
            behind = behind.saturating_add(more.into()).saturating_add(CHECKSUM as u64);
        }
        Ok(Some(Found { header, behind, is_extended }))
    }
}

struct Reader<'o, 'r> {
    headers: Headers<'o>,
    tell: Teller<'r>,
    most: usize,
    separators: Separators,
    /// Of methods 1 to 3, and of method 4.
    coders: [Arc<Coder>; 2],
}

impl Reader<'_, '_> {
    fn file(&mut self, header: Header, at: u64, data: u64) -> Result<(), Error> {
        let kind = match header.kind {
            Kind::File => crate::Kind::File,
            Kind::Folder => crate::Kind::Folder,
            Kind::Archive | Kind::Other => return Ok(()),
            Kind::Unknown => {
                let what = format!("'{}' is of a kind that is not known; it was left out", excerpt(&header.path));
                return self.tell.damage(at, what);
            }
        };
        // Nothing of it may be here.
        let least = u64::from(header.is_continued || header.goes_on);
        let size = if kind == crate::Kind::File { header.size.max(least) } else { 0 };
        let mut body = Body { offset: at, size, ..Body::default() };
        if size > 0 {
            let there = self.headers.end.saturating_sub(data);
            let unreadable = if header.stored > there {
                Some(format!("has {} bytes, of which {there} are there", header.stored))
            } else if header.is_continued {
                Some("begins in another file, which is not read".to_owned())
            } else if header.goes_on {
                Some("goes on in another file, which is not read".to_owned())
            } else {
                None
            };
            let piece = match unreadable {
                None => self.piece(&header, data),
                Some(what) => {
                    self.tell.damage(data, format!("'{}' {what}", excerpt(&header.path)))?;
                    Piece::unreadable(at, size)
                }
            };
            body.pieces = Some(vec![piece]);
        }
        self.tell.entry(Entry {
            path: bounded_path(header.path, self.most),
            kind,
            mode: header.mode,
            mtime: header.mtime,
            header: at,
            body,
            ..Entry::default()
        })
    }

    fn piece(&self, header: &Header, data: u64) -> Piece {
        let Header { size, stored, crc, .. } = *header;
        let piece = Piece { length: size, offset: data, stored, decoded: size, crc: Some(crc), ..Piece::default() };
        let [slow, fast] = &self.coders;
        let other = |codec: String| {
            let step = Step { codec, ..Step::default() };
            Arc::new(Coder { steps: vec![step], is_behind_header: None })
        };
        let coder = match header.method {
            _ if header.is_encrypted => other("a password of ARJ".to_owned()),
            0 if stored == size => return piece,
            1..=3 => Arc::clone(slow),
            4 => Arc::clone(fast),
            method => other(format!("the method {method} of ARJ")),
        };
        Piece { coder: Some(coder), ..piece }
    }
}
