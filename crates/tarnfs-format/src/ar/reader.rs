//! Walks along a stream, from header to header.

use std::sync::Arc;

use super::header::{HEADER, Header, Name, is_symbols};
use super::{MAGIC, THIN};
use crate::name::{bounded_path, excerpt};
use crate::{Body, Coder, Damage, Entry, Error, Event, HEAVY, Kind, Options, Piece, Receive, Step, Stream, Time};

/// Bytes that are looked at together: of names, and while searching for the next header.
const STEP: usize = 64 << 10;

/// Bytes of a name in the table (PATH_MAX).
const LONGEST: usize = 4096;

/// One pass over one archive.
pub(super) struct Reader<'run> {
    stream: &'run mut dyn Stream,
    options: &'run Options,
    receive: &'run mut Receive<'run>,
    /// Where the archive begins.
    start: u64,
    /// The table of names that came before the members; empty if there is none.
    names: Vec<u8>,
    /// Whether the members lie in other files, and how many there are.
    is_thin: bool,
    outside: u64,
    /// What stands for the content of these.
    elsewhere: Arc<Coder>,
    /// Whether a member was found that is no symbol table: those come first.
    found: bool,
    /// Whether the first member is a symbol table, of which [`crate::Format::unlisted`] tells; else whether another one
    /// was told.
    has_symbols: Option<bool>,
}

impl<'run> Reader<'run> {
    pub(super) fn new(stream: &'run mut dyn Stream, options: &'run Options, receive: &'run mut Receive<'run>) -> Self {
        let start = stream.position();
        Self {
            stream,
            options,
            receive,
            start,
            names: Vec::new(),
            is_thin: false,
            outside: 0,
            elsewhere: Arc::new(Coder {
                steps: vec![Step {
                    codec: "its content elsewhere, in a file that the thin archive only names".to_owned(),
                    ..Step::default()
                }],
                is_behind_header: None,
            }),
            found: false,
            has_symbols: None,
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        // What is appended may have its name in the table.
        self.tell(Event::ForAll(true))?;
        let magic = self.peek(MAGIC.len())?;
        let has_magic = magic == MAGIC || magic == THIN;
        self.is_thin = magic == THIN;
        if has_magic {
            self.skip(MAGIC.len() as u64)?;
        } else if self.header()?.is_none() {
            return Err(Error::NotThisFormat { format: "ar", reason: "it does not begin as one does".to_owned() });
        }
        loop {
            let at = self.stream.position();
            let Some(bytes) = self.header()? else {
                let rest = self.peek(HEADER)?;
                if rest.is_empty() {
                    break;
                }
                self.resynchronise()?;
                continue;
            };
            if let Some(header) = Header::read(&bytes) {
                self.skip(HEADER as u64)?;
                self.member(at, &header)?;
            }
        }
        if self.outside > 0 {
            let what = format!(
                "a thin archive: what its {} members hold lies in other files, which are not read",
                self.outside
            );
            self.damage(self.start, what)?;
        }
        Ok(())
    }

    /// The bytes here, if they are a header.
    fn header(&mut self) -> Result<Option<[u8; HEADER]>, Error> {
        let bytes = self.peek(HEADER)?.first_chunk().copied();
        Ok(bytes.filter(|bytes| Header::read(bytes).is_some()))
    }

    /// The stream stands behind the header.
    fn member(&mut self, at: u64, header: &Header<'_>) -> Result<(), Error> {
        let offset = self.stream.position();
        let size = header.size;
        let limits = &self.options.limits;
        let (most_of_path, most_of_table) = (limits.path, limits.extended_header);
        // Bytes of the content that are the name.
        let mut before = 0;
        let mut inherits = false;
        let path = match header.name {
            Name::Symbols => return self.symbols(at, offset, size),
            Name::Names => {
                self.has_symbols.get_or_insert(false);
                if (HEAVY..=most_of_table).contains(&size) {
                    self.tell(Event::Heavy)?;
                }
                if size > most_of_table {
                    self.damage(at, format!("a table of names of {size} bytes, more than {most_of_table}"))?;
                } else if let Some(names) = self.read(size, "a table of names", at)? {
                    self.names = names;
                }
                return self.pass(at, offset, size);
            }
            Name::Short(name) => name.to_vec(),
            Name::Before(length) if length <= size && length <= most_of_table => {
                if length >= HEAVY {
                    self.tell(Event::Heavy)?;
                }
                let Some(mut name) = self.read(length, "a name", at)? else { return Ok(()) };
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                name.truncate(end);
                before = length;
                name
            }
            Name::Before(length) => {
                self.damage(at, format!("a name of {length} bytes; a member was left out"))?;
                return self.pass(at, offset, size);
            }
            Name::Table(place) => {
                inherits = true;
                if let Some(name) = self.name_at(place) {
                    name
                } else {
                    self.damage(at, format!("its name is not at byte {place} of the table of names"))?;
                    place.to_string().into_bytes()
                }
            }
        };
        if !self.found && !self.is_thin && is_symbols(&path) {
            return self.symbols(at, offset, size);
        }
        self.has_symbols.get_or_insert(false);
        self.found = true;
        if path.len() > most_of_path {
            self.damage(at, format!("{}: a path of {} bytes was cut to {most_of_path}", excerpt(&path), path.len()))?;
        }
        let body = if self.is_thin {
            self.outside = self.outside.saturating_add(1);
            self.body_elsewhere(offset, size)
        } else {
            let (content, length) = (offset.saturating_add(before), size.saturating_sub(before));
            Body { offset: content, stored: length, size: length, ..Body::default() }
        };
        self.tell(Event::Entry(Box::new(Entry {
            path: bounded_path(path, most_of_path),
            kind: Kind::File,
            mode: header.mode & 0o7777,
            uid: header.uid,
            gid: header.gid,
            mtime: Time { seconds: header.mtime, nanoseconds: 0 },
            header: at,
            inherits,
            body,
            ..Entry::default()
        })))?;
        if self.is_thin { Ok(()) } else { self.pass(at, offset, size) }
    }

    /// A file of a thin archive has its size, but nothing that could be read.
    fn body_elsewhere(&mut self, offset: u64, size: u64) -> Body {
        let body = Body { offset, size, ..Body::default() };
        if size == 0 {
            return body;
        }
        let coder = Some(Arc::clone(&self.elsewhere));
        let piece = Piece { length: size, offset, decoded: size, coder, ..Piece::default() };
        Body { pieces: Some(vec![piece]), ..body }
    }

    /// Moves past a table of symbols. One that is not the first member is told once.
    fn symbols(&mut self, at: u64, offset: u64, size: u64) -> Result<(), Error> {
        if self.has_symbols == Some(false) {
            self.tell(Event::Unlisted("its table of symbols, behind its first member".to_owned()))?;
        }
        self.has_symbols = Some(true);
        self.pass(at, offset, size)
    }

    /// The name that begins at byte `place` of the table: it ends at a slash and a new line (GNU), or a NUL (COFF).
    /// Only where the one before it has ended: else a table of a million bytes would have a million long names.
    fn name_at(&self, place: u64) -> Option<Vec<u8>> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | 0);
        let (before, rest) = self.names.split_at_checked(usize::try_from(place).ok()?)?;
        if !before.last().is_none_or(is_end) {
            return None;
        }
        // No system has longer ones, and very many members may have the same.
        let most = self.options.limits.path.min(LONGEST).saturating_add(2);
        let end = rest.iter().take(most).position(is_end).unwrap_or(rest.len().min(most));
        let name = rest.get(..end)?;
        let name = name.strip_suffix(b"/").unwrap_or(name);
        (!name.is_empty()).then(|| name.to_vec())
    }

    /// Reads the next `length` bytes; `None` (and an event) if the stream ends before.
    fn read(&mut self, length: u64, what: &str, at: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut text = Vec::new();
        // In steps: what a header says is not allocated before the stream has shown that it is there.
        let mut left = length;
        while left > 0 {
            let step = left.min(STEP as u64) as usize;
            let bytes = self.peek(step)?;
            let there = bytes.len();
            text.extend_from_slice(bytes);
            self.skip(there as u64)?;
            left = left.saturating_sub(there as u64);
            if there < step {
                self.damage(at, format!("{what} of {length} bytes is cut by the end of the archive"))?;
                return Ok(None);
            }
        }
        Ok(Some(text))
    }

    /// Moves past content that begins at `offset`, of which a part may have been read, and the byte that makes it even.
    fn pass(&mut self, at: u64, offset: u64, size: u64) -> Result<(), Error> {
        let read = self.stream.position().saturating_sub(offset);
        let moved = read.saturating_add(self.skip(size.saturating_sub(read))?);
        if moved < size {
            let what = format!(
                "the archive ends after {moved} of the {size} bytes of the member whose header is at byte {at}"
            );
            return self.damage(offset, what);
        }
        // Some programs forget to fill up.
        if !size.is_multiple_of(2) && self.header()?.is_none() {
            self.skip(1)?;
        }
        Ok(())
    }

    /// Searches for the next header. The stream stands at something that is none.
    fn resynchronise(&mut self) -> Result<(), Error> {
        let start = self.stream.position();
        let mut skipped = 0_u64;
        loop {
            // A header that begins in a hole is none; its last bytes are read to learn of a file that was changed.
            let hole = self.stream.hole().saturating_sub(HEADER as u64);
            skipped = skipped.saturating_add(hole);
            self.skip(hole)?;
            let bytes = self.peek(STEP)?;
            let found = bytes.windows(HEADER).position(|window| {
                window.ends_with(b"`\n") && window.first_chunk().is_some_and(|window| Header::read(window).is_some())
            });
            let is_last = bytes.len() < STEP;
            // A header that is not wholly here is found next time.
            let passed = found.unwrap_or(bytes.len().saturating_sub(if is_last { 0 } else { HEADER })) as u64;
            skipped = skipped.saturating_add(passed);
            self.skip(passed)?;
            if found.is_some() {
                return self.damage(start, format!("no valid header; {skipped} bytes were skipped"));
            }
            let too_far = skipped > self.options.limits.resynchronise;
            if is_last || too_far {
                let what = if too_far { "none was found within the limit" } else { "there is no other" };
                self.damage(start, format!("no valid header, and {what}; {skipped} bytes were skipped"))?;
                self.skip(if too_far { u64::MAX } else { 0 })?;
                return Ok(());
            }
        }
    }

    fn peek(&mut self, length: usize) -> Result<&[u8], Error> {
        let offset = self.stream.position();
        self.stream.peek(length).map_err(|error| Error::Read { offset, error })
    }

    fn damage(&mut self, offset: u64, what: impl Into<String>) -> Result<(), Error> {
        self.tell(Event::Damage(Damage { offset, what: what.into() }))
    }

    fn tell(&mut self, event: Event) -> Result<(), Error> {
        (self.receive)(event, &mut *self.stream).map_err(Error::Receiver)
    }

    fn skip(&mut self, length: u64) -> Result<u64, Error> {
        let offset = self.stream.position();
        self.stream.skip(length).map_err(|error| Error::Read { offset, error })
    }
}
