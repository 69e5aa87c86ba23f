//! Looks for data URLs in a page, from its start to its end.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tarnfs_source::{SharedSource, Slice};

use super::NAME;
use super::kinds::with_extension;
use super::place::{BEFORE, End, LONGEST_HEAD, Place, Said, saved_from};
use crate::image::{Teller, is_damage};
use crate::measure::{Encoding, Measure};
use crate::name::bounded_path;
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step};

/// Bytes that are looked at together.
const TOGETHER: usize = 256 << 10;

const BEHIND: usize = 4 << 10;

/// Bytes of contents that are decoded to name them.
const MOST_HASHED: u64 = 16 << 30;

/// What undoes what addresses and pages have for characters.
const IN_PAGES: u8 = 1;
const IN_ADDRESSES: u8 = 2;
const BASE64: u8 = 4;

struct Page<'s> {
    source: &'s SharedSource,
    window: Window<'s>,
    options: &'s Options,
    hashed: u64,
    /// What ends no content from some byte on.
    endless: Vec<End>,
}

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let window = Window::new(&**source, &options.cancel);
    let mut page = Page { source, window, options, hashed: 0, endless: Vec::new() };
    let mut tell = Teller::new(receive);
    let failed = |offset| move |error| Error::Read { offset, error };
    let (mut at, mut found) = (0, false);
    while let Some(start) = page.next(at).map_err(failed(at))? {
        options.cancel.check().map_err(failed(start))?;
        at = start.saturating_add(5);
        let Some((entry, end)) = page.file(start).map_err(failed(start))? else { continue };
        (at, found) = (end, true);
        tell.entry(entry)?;
    }
    if found {
        return Ok(());
    }
    Err(Error::NotThisFormat { format: NAME, reason: "no file is in it: it has no data URLs".to_owned() })
}

/// What is known of a content once its end was found.
struct Content {
    end: u64,
    measure: Measure,
    has_ampersand: bool,
    has_percent: bool,
}

impl Page<'_> {
    /// Where the next one may begin, from byte `at` on, that is in no comment.
    fn next(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        let end = self.source.len();
        let mut in_comment = false;
        while at < end {
            self.options.cancel.check()?;
            let bytes = self.window.bytes(at, end, TOGETHER)?;
            let (mut from, mut found) = (0_usize, None::<usize>);
            loop {
                let rest = bytes.get(from..).unwrap_or_default();
                if in_comment {
                    let Some(place) = memchr::memmem::find(rest, b"-->") else { break };
                    (from, in_comment) = (from.saturating_add(place).saturating_add(3), false);
                    continue;
                }
                // Looked for once, however many comments stand before it.
                if found.is_none_or(|found| found < from) {
                    let place = memchr::memmem::find(rest, b"data:").unwrap_or(rest.len());
                    found = Some(from.saturating_add(place));
                }
                let found = found.unwrap_or(bytes.len());
                let before = bytes.get(from..found).unwrap_or_default();
                if let Some(place) = memchr::memmem::find(before, b"<!--") {
                    (from, in_comment) = (from.saturating_add(place).saturating_add(4), true);
                    continue;
                }
                if found >= bytes.len() {
                    break;
                }
                return Ok(Some(at.saturating_add(found as u64)));
            }
            if bytes.len() < TOGETHER {
                return Ok(None);
            }
            // A mark may go on in what follows.
            at = at.saturating_add(bytes.len().saturating_sub(4).max(from) as u64);
        }
        Ok(None)
    }

    /// The file of the data URL at byte `start`, if it is one, and where that ends.
    fn file(&mut self, start: u64) -> io::Result<Option<(Entry, u64)>> {
        let end = self.source.len();
        let from = start.saturating_sub(BEFORE as u64);
        let before = self.window.bytes(from, start, BEFORE)?.to_vec();
        let head = self.window.bytes(start, end, LONGEST_HEAD)?;
        let Some((place, said)) = Place::of(&before).zip(Said::of(head)) else { return Ok(None) };
        let offset = start.saturating_add(said.length as u64);
        let content = self.content(offset, place.end, said.is_base64)?;
        let Some(content) = content.filter(|content| content.end > offset) else { return Ok(None) };
        let stored = content.end.saturating_sub(offset);
        let mut address = place.address;
        if let (None, Some(attribute)) = (&address, &place.attribute) {
            let behind = self.window.bytes(content.end, end, BEHIND)?;
            let tag = memchr::memchr(b'>', behind).and_then(|end| behind.get(..end)).unwrap_or_default();
            address = saved_from(tag, attribute);
        }
        let mut flags = 0;
        for (is_there, flag) in
            [(content.has_ampersand, IN_PAGES), (content.has_percent, IN_ADDRESSES), (said.is_base64, BASE64)]
        {
            flags |= if is_there { flag } else { 0 };
        }
        let (mut size, mut step) = content.measure.finish(stored);
        let mut hash = Sha256::new();
        if flags & (IN_PAGES | IN_ADDRESSES) != 0 {
            step = Some(Step { codec: "data-url".to_owned(), properties: vec![flags], ..Step::default() });
        }
        let is_untold = flags & (IN_PAGES | IN_ADDRESSES) != 0;
        if is_untold || address.is_none() {
            match self.counted(offset, stored, step.as_ref(), &mut hash) {
                Ok(counted) => size = counted,
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => {
                    // It has no other name then.
                    hash.update(offset.to_le_bytes());
                    size = if is_untold { 0 } else { size };
                }
                Err(error) => return Err(error),
            }
        }
        let name = address.unwrap_or_else(|| {
            hash.finalize()
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .filter_map(|digit| char::from_digit(digit.into(), 16))
                .collect()
        });
        let path = bounded_path(with_extension(name, &said.kind).into_bytes(), self.options.limits.path);
        let coder = step.map(|step| Arc::new(Coder { steps: vec![step], is_behind_header: None }));
        let piece = Piece { length: size, offset, stored, coder, decoded: size, ..Piece::default() };
        let body = Body { offset: start, size, pieces: (size > 0).then(|| vec![piece]), ..Body::default() };
        let entry = Entry { path, kind: Kind::File, mode: 0o644, header: start, body, ..Entry::default() };
        Ok(Some((entry, content.end)))
    }

    /// How far the content at byte `offset` goes; `None` if it has no end.
    fn content(&mut self, offset: u64, end: End, is_base64: bool) -> io::Result<Option<Content>> {
        // Looked for once: many may begin, and none end.
        if self.endless.contains(&end) {
            return Ok(None);
        }
        let encoding = if is_base64 { Encoding::Base64 } else { Encoding::None };
        let measure = Measure::new(encoding);
        let mut content = Content { end: offset, measure, has_ampersand: false, has_percent: false };
        let all = self.source.len();
        loop {
            self.options.cancel.check()?;
            let bytes = self.window.bytes(content.end, all, TOGETHER)?;
            let found = match end {
                End::Quote(quote) => memchr::memchr(quote, bytes),
                End::Parenthesis => memchr::memchr(b')', bytes),
                End::Blank => bytes.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>'),
            };
            let part = bytes.get(..found.unwrap_or(bytes.len())).unwrap_or_default();
            content.measure.text(part);
            content.has_ampersand |= memchr::memchr(b'&', part).is_some();
            content.has_percent |= memchr::memchr(b'%', part).is_some();
            content.end = content.end.saturating_add(part.len() as u64);
            if found.is_some() {
                return Ok(Some(content));
            }
            if bytes.len() < TOGETHER {
                self.endless.push(end);
                return Ok(None);
            }
        }
    }

    /// How many bytes a content has, all of which go into `hash`.
    fn counted(&mut self, offset: u64, stored: u64, step: Option<&Step>, hash: &mut Sha256) -> io::Result<u64> {
        let source: SharedSource = Arc::new(Slice::new(SharedSource::clone(self.source), offset, stored));
        self.hashed = self.hashed.saturating_add(stored);
        if self.hashed > MOST_HASHED {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut size = 0_u64;
        let mut take = |part: &[u8]| {
            size = size.saturating_add(part.len() as u64);
            hash.update(part);
            Ok(())
        };
        if let Some(step) = step {
            self.options.decode.each(step, source, &mut take)?;
        } else {
            let mut buffer = vec![0; TOGETHER.min(usize::try_from(stored).unwrap_or(TOGETHER))];
            let mut at = 0;
            while at < stored {
                self.options.cancel.check()?;
                let read = source.read_at(&mut buffer, at)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                take(buffer.get(..read).unwrap_or_default())?;
                at = at.saturating_add(read as u64);
            }
        }
        Ok(size)
    }
}
