//! Walks from page to page.

use std::collections::HashMap;
use std::io;

use tarnfs_source::SharedSource;

use super::page::{LONGEST_HEAD, MARK, Page};
use super::{NAME, kind};
use crate::image::Teller;
use crate::window::Window;
use crate::{Body, Entry, Error, Kind, Options, Piece, ReceiveRandom};

/// Streams at one time.
const MOST_STREAMS: usize = 1 << 12;

/// Runs of pages of all streams together: each takes memory. An index takes no more of one file.
const MOST_RUNS: usize = 1 << 20;

/// Bytes that are searched together for the next page.
const SEARCHED: usize = 64 << 10;

/// The same at first: most pages lie near, and a byte may stand before each of them.
const SEARCHED_FIRST: usize = 4 << 10;

/// What is known of a stream.
#[derive(Debug)]
struct Stream {
    name: String,
    header: u64,
    size: u64,
    pieces: Vec<Piece>,
}

struct Streams<'run> {
    open: HashMap<u32, Stream>,
    runs: usize,
    tell: Teller<'run>,
}

impl Streams<'_> {
    fn end(&mut self, number: u32) -> Result<(), Error> {
        let Some(stream) = self.open.remove(&number) else { return Ok(()) };
        self.runs = self.runs.saturating_sub(stream.pieces.len());
        let Stream { name, header, size, pieces } = stream;
        let body = Body { offset: header, size, pieces: Some(pieces), ..Body::default() };
        self.tell.entry(Entry {
            path: name.into_bytes(),
            kind: Kind::File,
            mode: 0o644,
            header,
            body,
            ..Entry::default()
        })
    }

    /// Takes the bytes of a page at byte `at`; false if there are too many.
    fn add(&mut self, number: u32, at: u64, length: u64) -> bool {
        let Some(stream) = self.open.get_mut(&number) else { return true };
        stream.size = stream.size.saturating_add(length);
        if let Some(last) = stream.pieces.last_mut()
            && last.offset.saturating_add(last.stored) == at
        {
            for sum in [&mut last.length, &mut last.stored, &mut last.decoded] {
                *sum = sum.saturating_add(length);
            }
            return true;
        }
        stream.pieces.push(Piece { length, offset: at, stored: length, decoded: length, ..Piece::default() });
        self.runs = self.runs.saturating_add(1);
        self.runs <= MOST_RUNS
    }
}

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut window = Window::growing(&**source).until(&options.cancel);
    let mut streams = Streams { open: HashMap::new(), runs: 0, tell: Teller::new(receive) };
    let (mut at, end) = (0, source.len());
    while at < end {
        let failed = |error| Error::Read { offset: at, error };
        options.cancel.check().map_err(failed)?;
        let wanted = LONGEST_HEAD.saturating_add(kind::LOOKED_AT);
        let bytes = window.bytes(at, end, wanted).map_err(failed)?;
        let Some(page) = Page::read(bytes) else {
            if at == 0 {
                return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
            }
            let next = search(&mut window, at, end).map_err(failed)?;
            let passed = next.saturating_sub(at);
            streams.tell.damage(at, format!("no valid page; {passed} bytes were skipped"))?;
            at = next;
            continue;
        };
        let start = bytes.get(page.head..).unwrap_or_default();
        let (kind, name_end) = kind::of(start);
        let is_open = streams.open.contains_key(&page.stream);
        if page.is_first && is_open {
            // What was there before has no end.
            streams.tell.damage(at, format!("the stream {:08x} begins before it has ended", page.stream))?;
            streams.end(page.stream)?;
        } else if !page.is_first && !is_open {
            streams.tell.damage(at, format!("a page of the stream {:08x}, which has not begun", page.stream))?;
        }
        if !streams.open.contains_key(&page.stream) {
            if streams.open.len() >= MOST_STREAMS {
                streams.tell.damage(at, "there are too many streams: what follows is not read".to_owned())?;
                break;
            }
            let name = format!("{kind}_{:08x}{name_end}", page.stream);
            streams.open.insert(page.stream, Stream { name, header: at, size: 0, pieces: Vec::new() });
        }
        let length = page.length.min(end.saturating_sub(at));
        if length < page.length {
            let what = format!("the file ends in a page of {} bytes, of which {length} are there", page.length);
            streams.tell.damage(at, what)?;
        }
        if !streams.add(page.stream, at, length) {
            streams.tell.damage(at, "its streams lie in too many parts: what follows is not read".to_owned())?;
            break;
        }
        if page.is_last {
            streams.end(page.stream)?;
        }
        at = at.saturating_add(length);
    }
    let mut left: Vec<u32> = streams.open.keys().copied().collect();
    left.sort_unstable();
    left.into_iter().try_for_each(|number| streams.end(number))
}

/// Where the next page begins behind byte `at`; the end if none does.
fn search(window: &mut Window<'_>, at: u64, end: u64) -> io::Result<u64> {
    let (mut at, mut most) = (at.saturating_add(1), SEARCHED_FIRST);
    while at < end {
        let bytes = window.bytes(at, end, most)?;
        for place in memchr::memmem::find_iter(bytes, MARK) {
            if bytes.get(place..).is_some_and(|rest| Page::read(rest).is_some() || rest.len() < LONGEST_HEAD) {
                let found = at.saturating_add(place as u64);
                // Looked at again, with all of its head.
                return Ok(found);
            }
        }
        if bytes.len() < most {
            break;
        }
        at = at.saturating_add(most.saturating_sub(MARK.len()) as u64);
        most = SEARCHED;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::MemorySource;
    use tarnfs_source::testing::CountedSource;

    use super::*;

    /// A byte before each page made 64 KiB be read again for it.
    #[test]
    fn pages_with_something_between_them_are_read_once() {
        const PAGES: usize = 10_000;
        let bytes = [&b"xOggS"[..], &[0; 23]].concat().repeat(PAGES);
        let source = CountedSource::new(Arc::new(MemorySource::new(bytes.as_slice(), "pages")));
        let mut window = Window::growing(&source);
        let (mut at, mut count, end) = (0, 0, bytes.len() as u64);
        while at < end {
            at = search(&mut window, at, end).unwrap();
            count += usize::from(at < end);
        }
        assert_eq!(count, PAGES);
        assert!(source.bytes() < 3 * end, "{} of {end} bytes", source.bytes());
    }
}
