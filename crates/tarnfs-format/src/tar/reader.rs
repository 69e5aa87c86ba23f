//! Walks along a stream, from header to header.

use std::ops::Range;

use tarnfs_source::{Extent, Setting};

use super::acl::Names;
use super::header::{BLOCK, Block, Check, Header, check, text};
use super::inheritance::Inheritance;
use super::member::{self, Content, Pending};
use super::pax::{self, Pax};
use super::sparse::{self, LineMap};
use super::volumes::{self, FirstPart};
use crate::name::excerpt;
use crate::{Body, Damage, Entry, Error, Event, HEAVY, Options, Receive, Stream};

/// Bytes that are looked at together: of an extended header, and while searching for the next one.
const STEP: usize = 64 << 10;

/// What no entry shows is told so often at most.
const MOST_UNLISTED: usize = 8;

/// Digits of the time that some readers of GNU's incremental dumps took for the first folder of each path.
const TIME_DIGITS: usize = 11;

/// The map of a sparse file and, if it is told, the length of the file.
type Map = (Vec<Extent>, Option<u64>);

/// Bytes of the map of a sparse file.
fn weight(map: &[Extent]) -> u64 {
    size_of_val(map) as u64
}

/// One pass over one archive.
pub(super) struct Reader<'run> {
    stream: &'run mut dyn Stream,
    options: &'run Options,
    receive: &'run mut Receive<'run>,
    /// Records for all entries from here on.
    global: Option<Box<Pax>>,
    inheritance: Inheritance,
    /// It was told that entries would get too much from global headers.
    is_exhausted: bool,
    pending: Pending,
    /// What counts for an entry without extended headers; stays empty.
    no_records: Pax,
    names: Names,
    /// Whether anything here was a header.
    found: bool,
    /// Whether paths begin with an octal time that is not a folder; see [`Options::gnu_incremental`].
    strips_times: bool,
    /// Of the extended header that is being read.
    text: Vec<u8>,
    problems: Vec<String>,
    /// What was told of that no entry shows.
    unlisted: Vec<String>,
}

impl<'run> Reader<'run> {
    pub(super) fn new(stream: &'run mut dyn Stream, options: &'run Options, receive: &'run mut Receive<'run>) -> Self {
        let strips_times = options.gnu_incremental == Some(true);
        Self {
            stream,
            options,
            receive,
            global: None,
            inheritance: Inheritance::default(),
            is_exhausted: false,
            pending: Pending::default(),
            no_records: Pax::default(),
            names: Names::default(),
            found: false,
            strips_times,
            text: Vec::new(),
            problems: Vec::new(),
            unlisted: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let start = self.stream.position();
        while let Some(block) = self.next_block()? {
            match check(&block) {
                Check::Header if self.pass_beginning(true)? => {}
                Check::Header => {
                    let at = self.stream.position();
                    self.skip(BLOCK as u64)?;
                    self.found = true;
                    self.header(at, &block)?;
                }
                // They may be of a file of which a part is missing: they end nothing that goes on.
                Check::Zero if !self.options.ignore_zeros && self.has_shifted(BLOCK) => self.resynchronise()?,
                Check::Zero => {
                    if self.is_end()? {
                        break;
                    }
                }
                Check::Other => self.resynchronise()?,
            }
        }
        if let Some(offset) = self.pending.start {
            self.damage(offset, "an extended header without an entry behind it")?;
        }
        if !self.found && self.stream.position() > start {
            return Err(Error::NotThisFormat { format: "tar", reason: "no block of it is a header".to_owned() });
        }
        Ok(())
    }

    /// True if something may be missing before the end of the next `length` bytes.
    fn has_shifted(&self, length: usize) -> bool {
        self.stream.may_have_shifted(self.stream.position().saturating_add(length as u64))
    }

    /// The block at which the stream stands, without moving on; `None` at the end.
    fn next_block(&mut self) -> Result<Option<Block>, Error> {
        let offset = self.stream.position();
        let bytes = self.stream.peek(BLOCK).map_err(|error| Error::Read { offset, error })?;
        if let Some(block) = bytes.first_chunk() {
            return Ok(Some(*block));
        }
        let rest = bytes.len();
        let is_padding = bytes.iter().all(|&byte| byte == 0);
        if !is_padding {
            self.damage(offset, format!("the archive ends inside a block, {rest} bytes were not read"))?;
        }
        self.skip(rest as u64)?;
        Ok(None)
    }

    /// Where volumes are joined, one may have ended among the headers of a file. Passes what the next one says of that,
    /// and true if there was something: the rest of these headers comes next, or with `wants_header` one that begins.
    fn pass_beginning(&mut self, wants_header: bool) -> Result<bool, Error> {
        if !self.options.ignore_zeros {
            return Ok(false);
        }
        let offset = self.stream.position();
        let read = |error| Error::Read { offset, error };
        let begins = self.stream.peek(BLOCK).map_err(read)?.first_chunk().is_some_and(volumes::may_continue);
        if !begins {
            return Ok(false);
        }
        let head = self.stream.peek(volumes::LONGEST + BLOCK).map_err(read)?;
        // Also while the content of one of them is read.
        let waits = self.pending.start.is_some();
        let Some(length) = volumes::beginning(head, waits) else { return Ok(false) };
        // Content comes next where the volume before ended behind all of them.
        let behind = usize::try_from(length).ok().and_then(|length| head.get(length..)?.first_chunk());
        if wants_header && !behind.is_some_and(|block| check(block) == Check::Header) {
            return Ok(false);
        }
        self.skip(length)?;
        Ok(true)
    }

    /// Moves past a zero block and says whether it ended the archive.
    fn is_end(&mut self) -> Result<bool, Error> {
        let offset = self.stream.position();
        self.skip(BLOCK as u64)?;
        if self.options.ignore_zeros {
            // Not asked for each block.
            if offset.is_multiple_of(STEP as u64) {
                self.pass_hole(u64::MAX)?;
            }
            return Ok(false);
        }
        match self.next_block()?.map(|block| check(&block)) {
            None => {}
            Some(Check::Zero) => {
                self.skip(BLOCK as u64)?;
            }
            // GNU tar ends here, too.
            Some(_) if self.found => {
                let see = Setting::IgnoreZeros;
                self.damage(offset, format!("a lone zero block; what follows it was not read (see {see})"))?;
            }
            // No archive begins with one zero block: this is damage before the first header.
            Some(_) => {
                self.damage(offset, "a zero block before the first header; it was skipped")?;
                return Ok(false);
            }
        }
        self.found = true;
        Ok(true)
    }

    fn header(&mut self, at: u64, block: &Block) -> Result<(), Error> {
        let header = Header(block);
        self.pending.start.get_or_insert(at);
        let Some(size) = header.size() else {
            self.pending = Pending::default();
            return self.damage(at, "a header whose size is not a number; it was skipped");
        };
        match header.typeflag() {
            b'L' => {
                self.pending.long_name = self.extended_header(size, "a long name")?.then(|| text(&self.text).to_vec());
                Ok(())
            }
            b'K' => {
                self.pending.long_link = self.extended_header(size, "a long link")?.then(|| text(&self.text).to_vec());
                Ok(())
            }
            b'x' | b'X' => {
                // Read when their entry comes, on top of the global ones; the last of several counts, as in GNU tar.
                let start = self.stream.position();
                let there = self.extended_header(size, "an extended header")?;
                let text = std::mem::take(&mut self.text);
                self.pending.records = Some(if there { Ok((start, text)) } else { Err(()) });
                Ok(())
            }
            b'g' => {
                // Each global header replaces the one before it, as in GNU tar.
                let mut pax = Box::<Pax>::default();
                let start = self.stream.position();
                if self.extended_header(size, "a global extended header")? {
                    let text = std::mem::take(&mut self.text);
                    // The comment of a header that the archive begins with is that on all of it.
                    self.records(&mut pax, start, &text, start == BLOCK as u64)?;
                    self.text = text;
                }
                if let Some(label) = pax.label.take() {
                    self.tell(Event::Label(label))?;
                }
                // What cannot be read counts for nothing, and the sizes in the headers are all there.
                pax.size_in_doubt = false;
                if !pax.make_global() {
                    self.damage(
                        at,
                        "a global extended header says more than can hold for all entries; that was skipped",
                    )?;
                }
                self.set_global(Some(pax))?;
                if self.pending.start == Some(at) {
                    self.pending.start = None;
                }
                Ok(())
            }
            b'A' => {
                self.tell_of_unlisted("access lists of Solaris".to_owned())?;
                self.skip_content(at, size)
            }
            b'V' => {
                let mut label = self.pending.long_name.take().unwrap_or_else(|| header.path(header.dialect()));
                label.truncate(self.options.limits.owner_name);
                self.pending = Pending::default();
                self.tell(Event::Label(label))?;
                if size > 0 {
                    self.tell_of_unlisted("content behind a label of the archive".to_owned())?;
                }
                self.skip_content(at, size)
            }
            _ => self.member(header, size),
        }
    }

    /// From here on `pax` holds for all entries, if it says anything.
    fn set_global(&mut self, pax: Option<Box<Pax>>) -> Result<(), Error> {
        let was_there = self.global.is_some();
        self.global = pax.filter(|pax| **pax != Pax::default());
        if self.global.is_some() == was_there { Ok(()) } else { self.tell(Event::ForAll(!was_there)) }
    }

    /// The entry whose headers begin at byte `start` gets what a global header says: only numbers, once all entries
    /// together have had too much.
    fn inherit(&mut self, start: u64) -> Result<Option<Box<Pax>>, Error> {
        let bytes = self.global.as_ref().map_or(0, |global| global.inherited());
        if !self.inheritance.take(self.stream.position(), bytes) {
            let mut global = self.global.clone();
            if let Some(global) = &mut global {
                global.keep_numbers();
            }
            self.set_global(global)?;
            if !std::mem::replace(&mut self.is_exhausted, true) {
                let what = "names and attributes of a global extended header would take too much with every entry; \
                            from here on only its numbers count";
                self.damage(start, what)?;
            }
        }
        Ok(self.global.clone())
    }

    /// Reads the content of an extended header into `text`; false (and an event) if it is too long or cut.
    fn extended_header(&mut self, size: u64, what: &str) -> Result<bool, Error> {
        let start = self.stream.position();
        self.text.clear();
        if size > self.options.limits.extended_header {
            let most = self.options.limits.extended_header;
            self.damage(start, format!("{what} of {size} bytes, more than {most}; it was skipped"))?;
            self.skip(padded(size))?;
            return Ok(false);
        }
        if size >= HEAVY {
            self.tell(Event::Heavy)?;
        }
        // In steps: what a header says is not allocated before the stream has shown that it is there.
        let mut left = size;
        // A volume may end before each block of it.
        let most = if self.options.ignore_zeros { BLOCK } else { STEP };
        while left > 0 {
            self.pass_beginning(false)?;
            let offset = self.stream.position();
            let step = left.min(most as u64) as usize;
            let bytes = self.stream.peek(step).map_err(|error| Error::Read { offset, error })?;
            let length = bytes.len();
            self.text.extend_from_slice(bytes);
            self.skip(length as u64)?;
            left = left.saturating_sub(length as u64);
            if length < step {
                self.damage(start, format!("{what} of {size} bytes is cut by the end of the archive"))?;
                return Ok(false);
            }
        }
        self.skip(padded(size).saturating_sub(size))?;
        Ok(true)
    }

    /// Adds the records in `text`, which begins at byte `start` of the stream, to `pax`. Where a comment in them
    /// `is_kept`, it is none of what no entry shows.
    fn records(&mut self, pax: &mut Pax, start: u64, text: &[u8], is_kept: bool) -> Result<(), Error> {
        let mut problems = Vec::new();
        pax.read(text, &self.options.limits, &mut problems);
        for (at, what) in problems {
            self.damage(start.saturating_add(at as u64), what)?;
        }
        if std::mem::take(&mut pax.has_others) && self.unlisted.len() < MOST_UNLISTED {
            for key in pax::others(text).filter(|key| !(is_kept && *key == b"comment")) {
                self.tell_of_unlisted(format!("'{}' in its extended headers", excerpt(key)))?;
            }
        }
        Ok(())
    }

    /// Tells once of something that no entry shows.
    fn tell_of_unlisted(&mut self, what: String) -> Result<(), Error> {
        if self.unlisted.len() >= MOST_UNLISTED || self.unlisted.contains(&what) {
            return Ok(());
        }
        self.unlisted.push(what.clone());
        self.tell(Event::Unlisted(what))
    }

    /// A header that is not about another one.
    fn member(&mut self, header: Header<'_>, stored_size: u64) -> Result<(), Error> {
        let mut pending = std::mem::take(&mut self.pending);
        let start = pending.start.unwrap_or(self.stream.position());
        let mut stored_pax = self.inherit(start)?;
        if let Some(records) = pending.records.take() {
            let pax = stored_pax.get_or_insert_default();
            match records {
                Ok((start, text)) => {
                    self.records(pax, start, &text, false)?;
                    self.text = text;
                }
                // What they would have said of the size is not known.
                Err(()) => pax.size_in_doubt = true,
            }
        }
        let pax = stored_pax.as_deref_mut().unwrap_or(&mut self.no_records);
        let pax_size = pax.size;
        let size = pax_size.unwrap_or(stored_size);
        let limits = &self.options.limits;
        let made = member::entry(header, &mut pending, pax, limits, &self.names, &mut self.problems);
        let (map, pax_real_size) = (pax.sparse.map.take(), pax.sparse.real_size);
        // The content may be an archive, and so on: each of them would keep as much while it is read.
        drop((pending, stored_pax));
        self.text.clear();
        self.text.shrink_to(STEP);
        let (mut entry, content) = match made {
            Ok(made) => made,
            Err(problem) => {
                self.problems.clear();
                self.damage(start, format!("{problem}; an entry was left out"))?;
                return self.skip_content(start, size);
            }
        };
        entry.header = start;
        entry.inherits = self.global.is_some();
        self.tell_problems(start, &entry)?;
        self.strip_time(header.typeflag(), &mut entry.path);

        let offset = self.stream.position();
        let plain = Body { offset, stored: size, size, extents: None, pieces: None };
        let (body, length) = match content {
            Content::None => (Body { offset, ..Body::default() }, 0),
            Content::Skipped => {
                if size > 0 {
                    let is_list = header.typeflag() == b'D';
                    let of_dumps = "lists of what was in its folders (incremental dumps)";
                    let what = if is_list { of_dumps } else { "content of folders, which is not shown" };
                    self.tell_of_unlisted(what.to_owned())?;
                }
                (Body { offset, stored: size, ..Body::default() }, size)
            }
            Content::Plain => (plain, size),
            Content::Link => {
                let length = self.link_content(size, pax_size.is_some())?;
                (Body { offset, stored: length, size: length, extents: None, pieces: None }, length)
            }
            Content::RecordMap => (Body { size: pax_real_size.unwrap_or(size), extents: map, ..plain }, size),
            Content::FieldMap => match self.field_map(header)? {
                Ok((map, real_size)) => {
                    let real_size = pax_real_size.or(real_size).unwrap_or(size);
                    let offset = self.stream.position();
                    (Body { offset, stored: size, size: real_size, extents: Some(map), pieces: None }, size)
                }
                Err(problem) => return self.leave_out(start, &entry, &problem, size),
            },
            Content::LineMap => {
                let map = self.line_map(size)?;
                let offset = self.stream.position();
                let stored = size.saturating_sub(offset.saturating_sub(plain.offset));
                match map {
                    Ok(map) => {
                        let real_size = pax_real_size.unwrap_or(stored);
                        (Body { offset, stored, size: real_size, extents: Some(map), pieces: None }, stored)
                    }
                    Err(problem) => return self.leave_out(start, &entry, &problem, stored),
                }
            }
        };
        if let Some(map) = &body.extents
            && let Err(problem) = sparse::check(map, body.size, body.stored)
        {
            return self.leave_out(start, &entry, &problem, length);
        }
        if body.offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
            return self.leave_out(start, &entry, &format!("a size of {length} bytes is more than can be"), length);
        }
        entry.body = body;
        if header.typeflag() == b'M' {
            let before = header.continued_at(header.dialect()).unwrap_or_default();
            let what = format!("continues a file of an earlier volume; {before} bytes before it are not here");
            self.problems.push(what);
            self.tell_problems(start, &entry)?;
        }
        let is_plain = content == Content::Plain && header.typeflag() != b'M';
        if is_plain && self.options.ignore_zeros && length > 0 && self.join_volumes(start, &mut entry)? {
            return self.tell(Event::Entry(entry));
        }
        let offset = self.stream.position();
        self.tell(Event::Entry(entry))?;
        self.end_content(start, offset, length)
    }

    /// In archives one behind the other, the content of an entry may go on in the next volume, behind headers that say
    /// so. Finds its parts and moves past them; false (and the stream stands where it did) if there is only one.
    fn join_volumes(&mut self, start: u64, entry: &mut Entry) -> Result<bool, Error> {
        let Body { offset, size, .. } = entry.body;
        // A stream that can go back need not read what it passes: whoever reads past headers comes out at no header.
        if self.stream.go_back(offset) {
            let is_there = self.skip(padded(size))? >= size;
            let next = self.next_block()?;
            // The headers of a last part may stand just where the file would end.
            let is_end = match next.as_ref().map(check) {
                None => true,
                Some(Check::Header) => !next.as_ref().is_some_and(volumes::may_continue),
                Some(_) => false,
            };
            let is_whole = is_there && is_end && !self.has_headers(offset, padded(size))?;
            self.stream.go_back(offset);
            if is_whole {
                return Ok(false);
            }
        } else {
            // Its bytes go by only once, and whoever wants them must have them before it is known where they end.
            let mut first = FirstPart::new(&mut *self.stream, &entry.path, size);
            (self.receive)(Event::Ahead(Box::new(entry.clone())), &mut first).map_err(Error::Receiver)?;
            let position = first.position();
            first.skip(u64::MAX).map_err(|error| Error::Read { offset: position, error })?;
        }
        let mut at = self.stream.position().saturating_sub(offset);
        if at >= size {
            self.skip(padded(size).saturating_sub(at))?;
        }
        let mut parts = Vec::new();
        // What comes from here on is passed over: there are too many parts.
        let mut lost = None;
        let (mut part, mut skip) = (0, 0);
        while at < size {
            // No header is in a hole.
            at = at.saturating_add(self.pass_hole(size.saturating_sub(at))?);
            let offset = self.stream.position();
            let bytes = self.stream.peek(STEP).map_err(|error| Error::Read { offset, error })?;
            let within = usize::try_from(size.saturating_sub(at).div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
            let (blocks, _) = bytes.as_chunks::<BLOCK>();
            let blocks = blocks.get(..within).unwrap_or(blocks);
            let found = blocks.iter().position(volumes::may_continue);
            let passed = (found.unwrap_or(blocks.len()) as u64).saturating_mul(BLOCK as u64);
            self.skip(passed)?;
            at = at.saturating_add(passed);
            if found.is_none() {
                if passed == 0 {
                    at = at.saturating_add(self.skip(size.saturating_sub(at))?);
                    break;
                }
                continue;
            }
            let offset = self.stream.position();
            let head = self.stream.peek(volumes::LONGEST).map_err(|error| Error::Read { offset, error })?;
            if let Some(length) = volumes::continuation(head, &entry.path, at, size) {
                if parts.len() < self.options.limits.sparse_extents {
                    parts.push(Extent { offset: part, length: at.saturating_sub(part), skip });
                    (part, skip) = (at, length);
                } else {
                    lost.get_or_insert(at);
                }
                self.skip(length)?;
            } else {
                self.skip(BLOCK as u64)?;
                at = at.saturating_add(BLOCK as u64);
            }
        }
        if parts.is_empty() && self.stream.go_back(offset) {
            return Ok(false);
        }
        if at < size {
            self.damage(offset, cut_content(at, size, start))?;
        }
        if !parts.is_empty() {
            let end = lost.unwrap_or(size);
            parts.push(Extent { offset: part, length: end.saturating_sub(part), skip });
            entry.body.stored =
                parts.iter().fold(0, |sum, part| part.skip.saturating_add(part.length).saturating_add(sum));
            if let Some(lost) = lost {
                self.damage(
                    start,
                    format!("{}: it lies in too many parts; it ends with {lost} bytes", excerpt(&entry.path)),
                )?;
                entry.body.size = lost;
            }
            entry.body.extents = Some(parts);
        }
        Ok(true)
    }

    /// Whether there are headers in the first or the last blocks of the content that begins at `offset`: then a header
    /// behind it says nothing. It may be part of the content, which is an archive itself, or one of those behind which
    /// a small last part goes on. In a stream that can go back.
    fn has_headers(&mut self, offset: u64, length: u64) -> Result<bool, Error> {
        let end = offset.saturating_add(length);
        let last = end.saturating_sub(volumes::LONGEST as u64).max(offset);
        for (start, most) in [(last, volumes::LONGEST), (offset, BLOCK)] {
            self.stream.go_back(start);
            let there = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            let bytes = self.stream.peek(there.min(most)).map_err(|error| Error::Read { offset: start, error })?;
            if bytes.as_chunks::<BLOCK>().0.iter().any(|block| check(block) == Check::Header) {
                return Ok(true);
            }
            if start == offset {
                break;
            }
        }
        Ok(false)
    }

    /// Bytes of content behind the header of a hard link that has a size. Old tars wrote the size of the file there but
    /// nothing behind it, others wrote the file: the block behind it tells. A size that a pax record tells nearly
    /// always has content, also one that begins as a header: then the header behind it tells.
    fn link_content(&mut self, size: u64, is_of_pax: bool) -> Result<u64, Error> {
        if size == 0 {
            return Ok(0);
        }
        let has_content = match self.next_block()?.map(|block| check(&block)) {
            Some(Check::Other) => true,
            Some(Check::Header) => is_of_pax && self.is_content(size)?,
            // Nothing that would be lost.
            None | Some(Check::Zero) => is_of_pax,
        };
        Ok(if has_content { size } else { 0 })
    }

    /// Whether the `size` bytes here, which begin as a header, may be an archive that is the content of a file: whole
    /// blocks, more than one, and no content behind them.
    fn is_content(&mut self, size: u64) -> Result<bool, Error> {
        let offset = self.stream.position();
        let is_archive = size > BLOCK as u64 && size.is_multiple_of(BLOCK as u64);
        let Some(length) = usize::try_from(size).ok().filter(|&length| is_archive && length <= STEP) else {
            return Ok(false);
        };
        let bytes = self.stream.peek(length.saturating_add(BLOCK)).map_err(|error| Error::Read { offset, error })?;
        let Some(behind) = bytes.get(length..) else { return Ok(false) };
        Ok(behind.first_chunk().is_none_or(|block| check(block) != Check::Other))
    }

    /// The map of an old GNU or star sparse file, in its header and the blocks behind it, and the length of the file.
    fn field_map(&mut self, header: Header<'_>) -> Result<Result<Map, String>, Error> {
        let limits = &self.options.limits;
        let (fields, mut more, real_size) = header.sparse(header.dialect());
        let mut map = Vec::new();
        let mut result = sparse::push_fields(&mut map, fields, limits);
        let mut is_heavy = false;
        // Also behind a problem: the blocks of the map are no content.
        while more {
            if !is_heavy && weight(&map) >= HEAVY {
                is_heavy = true;
                self.tell(Event::Heavy)?;
            }
            let Some(block) = self.next_block()? else {
                return Ok(Err("the map of a sparse file is cut by the end of the archive".to_owned()));
            };
            self.skip(BLOCK as u64)?;
            more = block[504] != 0;
            if result.is_ok() {
                result = sparse::push_fields(&mut map, &block[..504], limits);
            }
        }
        Ok(result.map(|()| (map, real_size)))
    }

    /// The map before the content of a sparse file of GNU's format 1.0, which takes part of its `size` bytes.
    fn line_map(&mut self, size: u64) -> Result<Result<Vec<Extent>, String>, Error> {
        let mut map = LineMap::default();
        let (mut left, mut is_heavy) = (size, false);
        while left >= BLOCK as u64 {
            if !is_heavy && weight(&map.map) >= HEAVY {
                is_heavy = true;
                self.tell(Event::Heavy)?;
            }
            let Some(block) = self.next_block()? else { break };
            self.skip(BLOCK as u64)?;
            left = left.saturating_sub(BLOCK as u64);
            match map.block(&block, &self.options.limits) {
                Ok(true) => return Ok(Ok(map.map)),
                Ok(false) => {}
                Err(problem) => return Ok(Err(problem)),
            }
        }
        Ok(Err("the map of a sparse file has no end".to_owned()))
    }

    /// GNU's incremental dumps keep the time of the last access where ustar keeps the start of a path. Programs that
    /// take it for one have made archives whose paths begin with it.
    fn strip_time(&mut self, typeflag: u8, path: &mut Vec<u8>) {
        if typeflag != b'D' && !self.strips_times {
            return;
        }
        let digits = path.iter().take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if digits != TIME_DIGITS || path.get(digits) != Some(&b'/') {
            return;
        }
        self.strips_times |= self.options.gnu_incremental.is_none();
        if self.strips_times {
            path.drain(..=digits);
        }
    }

    fn leave_out(&mut self, start: u64, entry: &Entry, problem: &str, length: u64) -> Result<(), Error> {
        self.damage(start, format!("{}: {problem}; it was left out", excerpt(&entry.path)))?;
        self.skip_content(start, length)
    }

    /// Moves past `size` bytes of content and what fills their last block.
    fn skip_content(&mut self, start: u64, size: u64) -> Result<(), Error> {
        self.end_content(start, self.stream.position(), size)
    }

    /// The same of content that begins at `offset`, of which a part has been read.
    fn end_content(&mut self, start: u64, offset: u64, size: u64) -> Result<(), Error> {
        let read = self.stream.position().saturating_sub(offset);
        let moved = read.saturating_add(self.skip(padded(size).saturating_sub(read))?);
        if moved < size {
            self.damage(offset, cut_content(moved, size, start))?;
        }
        Ok(())
    }

    /// Searches for the next header. The stream stands at a block that is none. Nothing but zeros up to the end is the
    /// end of the archive.
    fn resynchronise(&mut self) -> Result<(), Error> {
        let start = self.stream.position();
        self.pending = Pending::default();
        let (mut skipped, mut is_blank) = (0_u64, true);
        loop {
            skipped = skipped.saturating_add(self.pass_hole(u64::MAX)?);
            let offset = self.stream.position();
            let failed = |error| Error::Read { offset, error };
            let length = self.stream.peek(STEP).map_err(failed)?.len();
            let shifted = self.has_shifted(length);
            let bytes = self.stream.peek(STEP).map_err(failed)?;
            let (blocks, rest) = bytes.as_chunks::<BLOCK>();
            let good = |block: &Block| check(block) == Check::Header && Header(block).is_plausible();
            let found = blocks.iter().position(good).map(|block| block.saturating_mul(BLOCK));
            let found = if shifted { found.into_iter().chain(find_shifted(bytes)).min() } else { found };
            // One that is not wholly here is found next time.
            let kept = usize::from(shifted && bytes.len() == STEP);
            let passed = found.unwrap_or(blocks.len().saturating_sub(kept).saturating_mul(BLOCK)) as u64;
            let at_end = blocks.is_empty();
            let looked_at = if at_end { bytes } else { bytes.get(..passed as usize).unwrap_or(bytes) };
            is_blank = is_blank && looked_at.iter().all(|&byte| byte == 0);
            let rest = rest.len() as u64;
            skipped = skipped.saturating_add(passed);
            self.skip(passed)?;
            if found.is_some() {
                return self.damage(start, format!("no valid header; {} were skipped", in_blocks(skipped)));
            }
            let too_far = skipped > self.options.limits.resynchronise;
            if at_end && is_blank {
                self.found = true;
                self.skip(rest)?;
                return Ok(());
            }
            if at_end || too_far {
                let what = if too_far { "none was found within the limit" } else { "there is no other" };
                self.damage(start, format!("no valid header, and {what}; {} were skipped", in_blocks(skipped)))?;
                let left = if too_far { u64::MAX } else { rest };
                self.skip(left)?;
                return Ok(());
            }
        }
    }

    /// Passes whole blocks of a hole within the next `most` bytes, but for the last one, in which a header may begin
    /// that is not at a whole block. That is also read to learn of a file that was changed.
    fn pass_hole(&mut self, most: u64) -> Result<u64, Error> {
        let hole = self.stream.hole().min(most);
        let blocks = hole.checked_div(BLOCK as u64).unwrap_or_default().saturating_sub(1);
        self.skip(blocks.saturating_mul(BLOCK as u64))
    }

    fn tell_problems(&mut self, start: u64, entry: &Entry) -> Result<(), Error> {
        while let Some(problem) = self.problems.pop() {
            self.damage(start, format!("{}: {problem}", excerpt(&entry.path)))?;
        }
        Ok(())
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

/// "3 blocks", or "1000 bytes" where it comes out even in no blocks.
fn in_blocks(bytes: u64) -> String {
    match bytes.checked_div(BLOCK as u64) {
        Some(blocks) if blocks > 1 && bytes.is_multiple_of(BLOCK as u64) => format!("{blocks} blocks"),
        _ => format!("{bytes} bytes"),
    }
}

/// Where in `bytes`, at any byte, a header with the magic of ustar or GNU begins: where something is missing before it,
/// it need not lie at a whole block.
fn find_shifted(bytes: &[u8]) -> Option<usize> {
    const MAGIC: Range<usize> = 257..262;
    let mut from = MAGIC.start;
    loop {
        from = from.saturating_add(bytes.get(from..)?.iter().position(|&byte| byte == b'u')?);
        let at = from.saturating_sub(MAGIC.start);
        let block = bytes.get(at..)?.first_chunk::<BLOCK>()?;
        if &block[MAGIC] == b"ustar" && check(block) == Check::Header && Header(block).is_plausible() {
            return Some(at);
        }
        from = from.saturating_add(1);
    }
}

/// `size` filled up to whole blocks.
fn padded(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX)
}

/// What is said of an entry, its header at `start`, of whose content only `read` bytes are there.
fn cut_content(read: u64, size: u64, start: u64) -> String {
    format!("the archive ends after {read} of the {size} bytes of the entry whose header is at byte {start}")
}
