//! Walks along a stream, from header to header.

use super::checksum::Summed;
use super::header::{Dialect, Header, LONGEST, TRAILER, find, is_plausible};
use super::links::{Links, Told, Waited};
use crate::name::{bounded_path, excerpt};
use crate::{Body, Damage, Entry, Error, Event, HEAVY, Kind, Options, Receive, Stream, Time};

/// Bytes that are looked at together: of a name, and while searching for the next header.
const STEP: usize = 64 << 10;

/// Zeros behind an archive that are passed to look for another one: far more than anybody writes between two.
const MOST_PADDING: u64 = 1 << 20;

/// What compressed parts of an initramfs begin with, as Linux knows them (`lib/decompress.c`), and how files are called
/// that do.
const COMPRESSED: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\x5d\x00\x00", "lzma"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x89LZO", "lzo"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zst"),
];

/// One pass over archives one behind the other.
#[allow(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(super) struct Reader<'run> {
    stream: &'run mut dyn Stream,
    options: &'run Options,
    receive: &'run mut Receive<'run>,
    /// Of the archive that is being read.
    dialect: Option<Dialect>,
    links: Links,
    /// Whether it was told that these take much memory.
    is_heavy: bool,
    /// Nothing of this archive was lost so far.
    is_whole: bool,
    /// Archives that have ended.
    archives: u64,
    /// Whether anything here was a header.
    found: bool,
    /// Whether it was told that there is content which nothing shows.
    has_hidden: bool,
    /// Of the header that is being read.
    name: Vec<u8>,
}

impl<'run> Reader<'run> {
    pub(super) fn new(stream: &'run mut dyn Stream, options: &'run Options, receive: &'run mut Receive<'run>) -> Self {
        Self {
            stream,
            options,
            receive,
            dialect: None,
            links: Links::new(options.limits.waiting_names),
            is_heavy: false,
            is_whole: true,
            archives: 0,
            found: false,
            has_hidden: false,
            name: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let start = self.stream.position();
        // What is appended may be a name of a file that is here already.
        self.tell(Event::ForAll(true))?;
        loop {
            let at = self.stream.position();
            let bytes = self.peek(LONGEST)?;
            let (length, header) = (bytes.len(), Header::read(bytes));
            if length == 0 {
                if self.found {
                    self.is_whole = false;
                    self.damage(at, "the archive ends without its last entry")?;
                }
                break;
            }
            match header.filter(|header| self.is_of_this(header)) {
                Some(header) => {
                    if self.entry(at, &header)? && !self.is_followed()? {
                        break;
                    }
                }
                None => self.resynchronise()?,
            }
        }
        // Who reads one header alone, to compare it, searches for nothing: what has no content there is empty.
        let is_alone = self.options.limits.resynchronise == 0;
        let waited = self.links.end(self.is_whole || is_alone);
        self.waited(waited)?;
        if !self.found && self.stream.position() > start {
            return Err(Error::NotThisFormat { format: "cpio", reason: "no header was found in it".to_owned() });
        }
        Ok(())
    }

    /// Whether the header may belong to the archive that is being read.
    fn is_of_this(&self, header: &Header) -> bool {
        let limits = &self.options.limits;
        self.dialect.is_none_or(|dialect| dialect == header.dialect)
            && header.name_length > 0
            && header.name_length <= limits.extended_header
    }

    /// Reads the entry with that header, at which the stream stands. True if it was the last one of its archive.
    fn entry(&mut self, at: u64, header: &Header) -> Result<bool, Error> {
        let dialect = header.dialect;
        let length = (dialect.length() as u64).saturating_add(header.name_length);
        self.skip(dialect.length() as u64)?;
        if header.name_length >= HEAVY {
            self.tell(Event::Heavy)?;
        }
        if !self.read(header.name_length, "a name", at)? {
            return Ok(false);
        }
        let mut path = std::mem::take(&mut self.name);
        let end = path.iter().position(|&byte| byte == 0);
        path.truncate(end.unwrap_or(path.len()));
        self.skip(dialect.padding(length))?;
        self.dialect = Some(dialect);
        self.found = true;
        if path == TRAILER {
            self.hides(header)?;
            self.skip(header.size.saturating_add(dialect.padding(header.size)))?;
            let waited = self.links.end(self.is_whole);
            self.waited(waited)?;
            self.tell(Event::End(self.stream.position()))?;
            return Ok(true);
        }
        // Where what fills up the name is cut, the content would begin behind the end of the archive.
        let offset = self.stream.position();
        let Some(kind) = header.kind() else {
            self.damage(at, format!("{}: its type is not known; it was left out", excerpt(&path)))?;
            return self.end_content(at, offset, header).map(|()| false);
        };
        let most = self.options.limits.path;
        if path.len() > most {
            self.damage(at, format!("{}: a path of {} bytes was cut to {most}", excerpt(&path), path.len()))?;
        }
        let size = if kind == Kind::File { header.size } else { 0 };
        if !matches!(kind, Kind::File | Kind::Symlink) {
            self.hides(header)?;
        }
        let mut entry = Box::new(Entry {
            path: bounded_path(path, most),
            kind,
            mode: header.mode & 0o7777,
            uid: header.uid.into(),
            gid: header.gid.into(),
            mtime: Time { seconds: header.mtime.cast_signed(), nanoseconds: 0 },
            header: at,
            body: Body { offset, stored: header.size, size, ..Body::default() },
            ..Entry::default()
        });
        if kind == Kind::Symlink {
            if header.size > most as u64 {
                let what = format!("{}: a target of {} bytes; it was left out", excerpt(&entry.path), header.size);
                self.damage(at, what)?;
                return self.end_content(at, offset, header).map(|()| false);
            }
            if !self.read(header.size, "the target of a link", at)? {
                return Ok(false);
            }
            entry.link = std::mem::take(&mut self.name);
            let end = entry.link.iter().position(|&byte| byte == 0).unwrap_or(entry.link.len());
            entry.link.truncate(end);
            entry.body = Body { offset, stored: header.size, ..Body::default() };
        }
        match self.links.take(header, entry) {
            Told::Entry(entry) if dialect == Dialect::Crc && entry.kind == Kind::File && header.size > 0 => {
                self.checked(entry, header)?;
            }
            Told::Entry(entry) => self.tell(Event::Entry(entry))?,
            Told::Waits => {}
        }
        if !self.is_heavy && self.links.are_heavy() {
            self.is_heavy = true;
            self.tell(Event::Heavy)?;
        }
        self.end_content(at, offset, header)?;
        let waited = if header.names > 1 { self.links.behind(header) } else { Waited::default() };
        self.waited(waited).map(|()| false)
    }

    /// Tells once of content that nothing shows: that of a folder, of a device, of the end.
    fn hides(&mut self, header: &Header) -> Result<(), Error> {
        if header.size == 0 || self.has_hidden {
            return Ok(());
        }
        self.has_hidden = true;
        self.tell(Event::Unlisted("content of folders and the like, which is not shown".to_owned()))
    }

    /// Tells of a file with a checksum. Where its content goes by anyway, that is compared.
    fn checked(&mut self, entry: Box<Entry>, header: &Header) -> Result<(), Error> {
        let position = self.stream.position();
        if self.stream.go_back(position) {
            return self.tell(Event::Entry(entry));
        }
        let (at, path) = (entry.header, entry.path.clone());
        let end = position.saturating_add(header.size);
        let mut summed = Summed::new(&mut *self.stream, end);
        (self.receive)(Event::Entry(entry), &mut summed).map_err(Error::Receiver)?;
        let sum = summed.finish().map_err(|error| Error::Read { offset: position, error })?;
        if self.stream.position() == end && sum != header.checksum {
            let said = header.checksum;
            self.damage(at, format!("{}: its bytes add up to {sum:08x}, not to {said:08x}", excerpt(&path)))?;
        }
        Ok(())
    }

    /// Reads the next `length` bytes into `name`; false (and an event) if the stream ends before.
    fn read(&mut self, length: u64, what: &str, at: u64) -> Result<bool, Error> {
        self.name.clear();
        // In steps: what a header says is not allocated before the stream has shown that it is there.
        let mut left = length;
        while left > 0 {
            let offset = self.stream.position();
            let step = left.min(STEP as u64) as usize;
            let bytes = self.stream.peek(step).map_err(|error| Error::Read { offset, error })?;
            let there = bytes.len();
            self.name.extend_from_slice(bytes);
            self.skip(there as u64)?;
            left = left.saturating_sub(there as u64);
            if there < step {
                self.damage(at, format!("{what} of {length} bytes is cut by the end of the archive"))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves past content that begins at `offset`, of which a part may have been read, and what fills it up.
    fn end_content(&mut self, at: u64, offset: u64, header: &Header) -> Result<(), Error> {
        let Header { size, dialect, .. } = *header;
        let read = self.stream.position().saturating_sub(offset);
        let all = size.saturating_add(dialect.padding(size));
        let moved = read.saturating_add(self.skip(all.saturating_sub(read))?);
        if moved < size {
            let what =
                format!("the archive ends after {moved} of the {size} bytes of the entry whose header is at byte {at}");
            self.damage(offset, what)?;
        }
        Ok(())
    }

    fn waited(&mut self, waited: Waited) -> Result<(), Error> {
        for told in waited.each() {
            let entry = match told {
                Ok(entry) => {
                    self.tell(Event::Entry(entry))?;
                    continue;
                }
                Err(entry) => entry,
            };
            let what = format!("{}: what it is another name of was not found; it was left out", excerpt(&entry.path));
            self.damage(entry.header, what)?;
        }
        Ok(())
    }

    /// Behind the end of an archive: moves to the next one, and says whether there is one.
    fn is_followed(&mut self) -> Result<bool, Error> {
        self.archives = self.archives.saturating_add(1);
        (self.dialect, self.is_whole) = (None, true);
        let mut passed = 0_u64;
        loop {
            let bytes = self.peek(STEP)?;
            let Some(zeros) = bytes.iter().position(|&byte| byte != 0) else {
                let length = bytes.len() as u64;
                passed = passed.saturating_add(length);
                if length == 0 || passed > MOST_PADDING {
                    return Ok(false);
                }
                self.skip(length)?;
                continue;
            };
            self.skip(zeros as u64)?;
            break;
        }
        let at = self.stream.position();
        let bytes = self.peek(STEP)?;
        if Dialect::of(bytes).is_some_and(|dialect| is_plausible(bytes, dialect)) {
            return Ok(true);
        }
        let codec = COMPRESSED.iter().find(|(magic, _)| bytes.starts_with(magic));
        // How long it is, is known only of a stream that need not be read for that.
        let length = if self.stream.go_back(at) {
            let length = self.skip(u64::MAX)?;
            self.stream.go_back(at);
            Some(length)
        } else {
            None
        };
        let (Some((_, suffix)), Some(length)) = (codec, length) else {
            let what = if codec.is_some() { "something compressed" } else { "something that is no cpio archive" };
            self.damage(at, format!("behind the end of the archive lies {what}; it was not read"))?;
            return Ok(false);
        };
        let entry = Entry {
            path: format!("part-{}.{suffix}", self.archives.saturating_add(1)).into_bytes(),
            // Who may read the archive itself is not known here; an initramfs may hold keys.
            mode: 0o400,
            header: at,
            body: Body { offset: at, stored: length, size: length, ..Body::default() },
            ..Entry::default()
        };
        self.tell(Event::Entry(Box::new(entry)))?;
        Ok(false)
    }

    /// Searches for the next header. The stream stands at something that is none.
    fn resynchronise(&mut self) -> Result<(), Error> {
        let start = self.stream.position();
        self.is_whole = false;
        let mut skipped = 0_u64;
        loop {
            // A header that begins in a hole is none; its last bytes are read to learn of a file that was changed.
            let hole = self.stream.hole().saturating_sub(LONGEST as u64);
            skipped = skipped.saturating_add(hole);
            self.skip(hole)?;
            let dialect = self.dialect;
            let bytes = self.peek(STEP)?;
            let found = match dialect {
                Some(dialect) => find(bytes, dialect),
                None => [Dialect::Newc, Dialect::Crc, Dialect::Odc].iter().filter_map(|&any| find(bytes, any)).min(),
            };
            let is_last = bytes.len() < STEP;
            // A header that is not wholly here is found next time.
            let passed = found.unwrap_or(bytes.len().saturating_sub(if is_last { 0 } else { LONGEST })) as u64;
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
        self.is_whole = false;
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
