//! The first pass: an archive is read once, from its start to its end, and its index is written on the way.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_codec::engine::{Indexing, Keeping};
use tarnfs_codec::{Chunk, Codec};
use tarnfs_format::encoding::Encoding;
use tarnfs_format::{Entry, Event, Format, Kind, SourceStream, Stream, stream::MOST_PEEKED};
use tarnfs_index::{Archive, Layer, Summary, Writer};
use tarnfs_source::{Cancel, Fingerprint, SharedSource, Slice};

use crate::open::{DecodedCache, FileFacts, Options, Recreate};
use crate::problem::Problem;

/// How far a first pass has come; read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the archive's file read so far.
    pub bytes: AtomicU64,
    /// Length of the archive's file in bytes; 0 before it is known.
    pub total: AtomicU64,
    /// Entries found so far.
    pub entries: AtomicU64,
}

/// Bodies are padded to this many bytes in the archives that can grow.
const RECORD: u64 = 512;

/// Bytes of a stream that are looked at to tell its format.
const HEAD: usize = 4096;

/// Damaged places that are kept in memory, as many as an index keeps: an archive can be made to hold nothing else.
const MOST_DAMAGE: usize = 10_000;

/// What a first pass reads with.
#[derive(Debug)]
pub(crate) struct FirstPass<'a> {
    pub(crate) source: &'a SharedSource,
    /// Name of the archive's file: some codecs are known by nothing else.
    pub(crate) name: &'a [u8],
    /// A compressed stream that is no archive becomes one file of these attributes.
    pub(crate) single_file: Entry,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) format: &'a tarnfs_format::Options,
    pub(crate) options: &'a Options,
    pub(crate) archive: Archive,
}

impl FirstPass<'_> {
    /// Reads the archive into `writer`.
    pub(crate) fn run(&self, writer: Writer) -> Result<(Writer, Summary), Problem> {
        self.options.progress.total.store(self.source.len(), Ordering::Relaxed);
        let writer = RefCell::new(writer);
        let head = head_of(self.source)?;
        let format = tarnfs_format::detect(&head);
        let codec = match (tarnfs_codec::detect(&head), format) {
            (None, None) => tarnfs_codec::by_file_name(self.name, &head),
            (codec, None) => codec,
            (codec, Some(format)) => codec.filter(|codec| codec.bid(&head) > format.bid(&head)),
        };
        let summary = match codec {
            Some(codec) => self.compressed(codec, &writer)?,
            None => self.plain(&head, &writer)?,
        };
        Ok((writer.into_inner(), summary))
    }

    fn plain(&self, head: &[u8], writer: &RefCell<Writer>) -> Result<Summary, Problem> {
        if head.is_empty() {
            return Err(Problem::Empty);
        }
        let is_zeros = head.iter().all(|&byte| byte == 0);
        if is_zeros && !self.is_named_tar() && !self.is_short_and_zeros()? {
            return Err(Problem::OnlyZeros);
        }
        let format =
            tarnfs_format::detect(head).ok_or(if is_zeros { Problem::OnlyZeros } else { Problem::NotAnArchive })?;
        let summary = self.summary(format.name());
        self.plain_from(0, format, summary, writer)
    }

    /// True if the name, without a suffix of compression, ends in `.tar`.
    fn is_named_tar(&self) -> bool {
        self.single_file.path.to_ascii_lowercase().ends_with(b".tar")
    }

    /// True for what `tar -c` makes of nothing: zeros up to the end of one record. Images of disks begin with as many and go on.
    fn is_short_and_zeros(&self) -> Result<bool, Problem> {
        /// GNU tar's `--blocking-factor` goes further; nobody does.
        const LONGEST: u64 = 1 << 20;
        if self.source.len() > LONGEST {
            return Ok(false);
        }
        let mut bytes = vec![0; self.source.len() as usize];
        self.source.read_at(&mut bytes, 0).map_err(|error| Problem::Read { offset: 0, error })?;
        Ok(bytes.iter().all(|&byte| byte == 0))
    }

    /// Reads what an uncompressed archive holds from byte `start` on, where a header begins.
    fn plain_from(
        &self,
        start: u64,
        format: &dyn Format,
        mut summary: Summary,
        writer: &RefCell<Writer>,
    ) -> Result<Summary, Problem> {
        let mut stream = SourceStream::new(SharedSource::clone(self.source), self.cancel().clone());
        stream.skip(start).map_err(|error| self.read_error(start, error))?;
        summary.end = start;
        self.entries(format, &mut stream, writer, &RefCell::default(), &mut summary)?;
        summary.grown_from = Some(self.fingerprint_before(summary.end)?);
        Ok(summary)
    }

    /// Goes on where the archive that `old` describes ended. The writer has got all that `old` knows.
    pub(crate) fn grow(&self, old: &Summary, writer: Writer) -> Result<(Writer, Summary), Problem> {
        self.options.progress.total.store(self.source.len(), Ordering::Relaxed);
        let format = tarnfs_format::by_name(&old.format).ok_or(Problem::NotAnArchive)?;
        let writer = RefCell::new(writer);
        let summary = Summary { label: old.label.clone(), ..self.summary(format.name()) };
        let summary = self.plain_from(old.end, format, summary, &writer)?;
        Ok((writer.into_inner(), summary))
    }

    fn compressed(&self, codec: &'static dyn Codec, writer: &RefCell<Writer>) -> Result<Summary, Problem> {
        let options = tarnfs_codec::Options {
            seek_point_spacing: self.options.seek_point_spacing,
            limits: self.options.limits,
            dictionaries: self.options.dictionaries.clone(),
            threads: self.options.threads_for(codec.name()),
            cancel: self.options.cancel.clone(),
        };
        let mut indexing = Indexing::new(codec, SharedSource::clone(self.source), &options)
            .map_err(|error| self.read_error(0, error))?;
        if let Some(cache) = self.cache_to_fill(codec.name()) {
            indexing.keep(Keeping::new(cache.shelf(&self.archive, codec.name())));
        }
        let shifts = RefCell::default();
        let mut stream = DecodingStream::new(indexing, self, writer, &shifts);
        let head = stream.peek(HEAD).map(<[u8]>::to_vec).map_err(|error| self.read_error(0, error))?;
        let mut summary = self.summary("file");
        // Zeros are a file of zeros, unless the name says that they are an archive without members.
        let is_a_file = head.iter().all(|&byte| byte == 0) && !self.is_named_tar();
        if let Some(format) = tarnfs_format::detect(&head).filter(|_| !is_a_file) {
            format.name().clone_into(&mut summary.format);
            self.entries(format, &mut stream, writer, &shifts, &mut summary)?;
            // The rest is decoded as well: its checksums, and the seek points of what an append may bring.
            stream.skip(u64::MAX).map_err(|error| self.read_error(stream.position, error))?;
        } else {
            let length = stream.skip(u64::MAX).map_err(|error| self.read_error(stream.position, error))?;
            let mut entry = self.single_file.clone();
            entry.body.stored = length;
            entry.body.size = length;
            shifts.borrow_mut().settle(&entry, writer)?;
            writer.borrow_mut().add(&entry)?;
            summary.end = length;
        }
        if let Err(error) = stream.indexing.finish_keeping() {
            log::info!("no decoded pieces are kept: {error}");
        }
        if let Some((offset, error)) = stream.ended_by.take() {
            summary.notes.push((offset, format!("{}: {error}; what comes before it is served", codec.name())));
        }
        for damage in std::mem::take(&mut stream.damage) {
            let what = format!("{}: {}, found at byte {} of the file", codec.name(), damage.what, damage.compressed);
            summary.notes.push((damage.decoded.start, what));
        }
        summary
            .layers
            .push(Layer { codec: codec.name().to_owned(), decoded_length: stream.indexing.decoded_position() });
        Ok(summary)
    }

    /// Where decoded pieces go. Who wants the bytes only once does not come back for them; what is there need not be written again.
    fn cache_to_fill(&self, codec: &str) -> Option<&DecodedCache> {
        let cache = self.options.decoded_cache.as_ref()?;
        let is_there = || self.options.recreate != Recreate::Always && cache.open(&self.archive, codec).is_some();
        (self.options.sink.is_none() && !is_there()).then_some(cache)
    }

    /// Reads the members of an archive.
    fn entries(
        &self,
        format: &dyn Format,
        stream: &mut dyn Stream,
        writer: &RefCell<Writer>,
        shifts: &RefCell<Shifts>,
        summary: &mut Summary,
    ) -> Result<(), Problem> {
        let mut count = 0_u64;
        let mut last: Option<Box<Entry>> = None;
        let result = format.read(stream, self.format, &mut |event| {
            match event {
                Event::Entry(mut entry) => {
                    count += 1;
                    if count.is_multiple_of(1024) {
                        self.options.progress.entries.store(count, Ordering::Relaxed);
                        if summary.layers.is_empty() {
                            self.options.progress.bytes.fetch_max(entry.header, Ordering::Relaxed);
                        }
                    }
                    let end = entry.body.offset.saturating_add(entry.body.stored).next_multiple_of(RECORD);
                    summary.end = summary.end.max(end);
                    self.convert(&mut entry);
                    writer.borrow_mut().add(&entry).map_err(io::Error::other)?;
                    // All of the content of the entry before this one has been passed.
                    if let Some(last) = last.replace(entry) {
                        shifts.borrow_mut().settle(&last, writer).map_err(io::Error::other)?;
                    }
                }
                Event::Damage(damage) if summary.notes.len() < MOST_DAMAGE => {
                    summary.notes.push((damage.offset, damage.what));
                }
                Event::Label(label) => summary.label = Some(label),
                _ => {}
            }
            Ok(())
        });
        self.options.progress.entries.store(count, Ordering::Relaxed);
        if let Some(last) = last {
            shifts.borrow_mut().settle(&last, writer)?;
        }
        match result {
            Ok(()) => Ok(()),
            Err(tarnfs_format::Error::Read { offset, error }) => Err(self.read_error(offset, error)),
            Err(tarnfs_format::Error::NotThisFormat { .. }) => Err(Problem::NotAnArchive),
            Err(tarnfs_format::Error::Receiver(error)) => Err(self.read_error(summary.end, error)),
            Err(error) => Err(Problem::Index(tarnfs_index::Error::Io(io::Error::other(error)))),
        }
    }

    fn convert(&self, entry: &mut Entry) {
        for text in [&mut entry.path, &mut entry.link] {
            if let Cow::Owned(text_in_utf8) = converted(self.encoding.as_ref(), text) {
                *text = text_in_utf8;
            }
        }
    }

    fn summary(&self, format: &str) -> Summary {
        Summary {
            archive: self.archive,
            shape: self.options.shape.clone(),
            layers: Vec::new(),
            format: format.to_owned(),
            end: 0,
            grown_from: None,
            files: 0,
            folders: 0,
            bytes: 0,
            has_xattrs: false,
            has_acls: false,
            label: None,
            notes: Vec::new(),
        }
    }

    fn fingerprint_before(&self, end: u64) -> Result<Fingerprint, Problem> {
        let end = end.min(self.source.len());
        Fingerprint::of(&Slice::new(SharedSource::clone(self.source), 0, end))
            .map_err(|error| self.read_error(0, error))
    }

    fn cancel(&self) -> &Cancel {
        &self.format.cancel
    }

    fn read_error(&self, offset: u64, error: io::Error) -> Problem {
        if self.cancel().is_cancelled() {
            return Problem::Cancelled;
        }
        // The chunks of a stream go to the writer while it is read.
        match error.downcast::<tarnfs_index::Error>() {
            Ok(of_writer) => of_writer.into(),
            Err(error) => Problem::Read { offset, error },
        }
    }
}

/// A name that is not UTF-8 is taken for one in `encoding`.
pub(crate) fn converted<'t>(encoding: Option<&Encoding>, text: &'t [u8]) -> Cow<'t, [u8]> {
    match encoding {
        Some(encoding) if std::str::from_utf8(text).is_err() => Cow::Owned(encoding.decode(text).into_owned()),
        _ => Cow::Borrowed(text),
    }
}

/// The first bytes of `source`.
fn head_of(source: &SharedSource) -> Result<Vec<u8>, Problem> {
    let mut head = vec![0; HEAD];
    let read = source.read_at(&mut head, 0).map_err(|error| Problem::Read { offset: 0, error })?;
    head.truncate(read);
    Ok(head)
}

/// Places in a decoded stream before which an unknown number of bytes is missing. Nobody knows what of a file lies behind one.
#[derive(Debug, Default)]
struct Shifts {
    /// Since the last entry that was settled, ascending.
    at: Vec<u64>,
    /// There were more than are kept.
    many: bool,
    /// There ever was one.
    any: bool,
}

impl Shifts {
    fn add(&mut self, found: &mut Vec<u64>) {
        self.any |= !found.is_empty();
        self.at.append(found);
        self.many |= self.at.len() > MOST_DAMAGE;
        self.at.truncate(MOST_DAMAGE);
    }

    /// Makes damage of what of `entry` lies behind such a place. Entries come in the order of the stream, each when it has been passed.
    fn settle(&mut self, entry: &Entry, writer: &RefCell<Writer>) -> Result<(), tarnfs_index::Error> {
        if self.at.is_empty() {
            return Ok(());
        }
        let end = entry.body.offset.saturating_add(entry.body.stored);
        let shift = self.at.iter().copied().find(|&at| at > entry.header && at < end);
        let from = if self.many { Some(entry.body.offset) } else { shift.map(|at| at.max(entry.body.offset)) };
        if let Some(from) = from.filter(|&from| from < end) {
            let what = "something is missing before it in its file".to_owned();
            let damage = tarnfs_codec::Damage { decoded: from..end, compressed: 0, what };
            writer.borrow_mut().add_damage(0, &damage)?;
        }
        self.at.retain(|&at| at > end);
        self.many &= !self.at.is_empty();
        Ok(())
    }
}

/// A compressed stream that is walked while it is decoded for the first time; its chunks go to the writer.
///
/// A stream that cannot be decoded to its end ends where it broke: the error is kept in `ended_by`.
struct DecodingStream<'a> {
    indexing: Indexing,
    pass: &'a FirstPass<'a>,
    writer: &'a RefCell<Writer>,
    shifts: &'a RefCell<Shifts>,
    buffer: Vec<u8>,
    /// What of `buffer` is decoded and not yet behind the stream's position.
    from: usize,
    end: usize,
    /// Byte of the decoded stream at which `buffer[from]` lies.
    position: u64,
    at_end: bool,
    ended_by: Option<(u64, io::Error)>,
    chunks: Vec<Chunk>,
    damage: Vec<tarnfs_codec::Damage>,
}

impl<'a> DecodingStream<'a> {
    /// Decoded at once: large enough to make calls cheap, small enough for the second-level cache.
    const BATCH: usize = 256 << 10;

    fn new(
        indexing: Indexing,
        pass: &'a FirstPass<'a>,
        writer: &'a RefCell<Writer>,
        shifts: &'a RefCell<Shifts>,
    ) -> Self {
        Self {
            indexing,
            pass,
            writer,
            shifts,
            buffer: Vec::new(),
            from: 0,
            end: 0,
            position: 0,
            at_end: false,
            ended_by: None,
            chunks: Vec::new(),
            damage: Vec::new(),
        }
    }

    fn buffered(&self) -> usize {
        self.end - self.from
    }

    /// Decodes more behind what is buffered.
    fn fill(&mut self) -> io::Result<()> {
        self.pass.cancel().check()?;
        self.buffer.copy_within(self.from..self.end, 0);
        let kept = self.buffered();
        if self.buffer.len() < kept + Self::BATCH {
            self.buffer.resize(kept + Self::BATCH, 0);
        }
        let result = self.indexing.read(&mut self.buffer[kept..][..Self::BATCH]);
        (self.from, self.end) = (0, kept + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => self.at_end = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                self.at_end = true;
                self.ended_by = Some((self.indexing.decoded_position(), error));
            }
            Err(error) => return Err(error),
        }
        self.pass.options.progress.bytes.store(self.indexing.compressed_position(), Ordering::Relaxed);
        self.hand_over()?;
        // Bytes that were damaged are known to be so only now.
        match &self.pass.options.sink {
            Some(sink) if self.damage.is_empty() && !self.may_have_shifted() => {
                sink.write(&self.buffer[kept..self.end])
            }
            _ => Ok(()),
        }
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let mut damage = Vec::new();
        self.indexing.take_chunks(&mut self.chunks);
        self.indexing.take_damage(&mut damage);
        let mut shifts = Vec::new();
        self.indexing.take_shifts(&mut shifts);
        self.shifts.borrow_mut().add(&mut shifts);
        let mut writer = self.writer.borrow_mut();
        for chunk in self.chunks.drain(..) {
            writer.add_chunk(0, chunk).map_err(io::Error::other)?;
        }
        for damage in damage {
            writer.add_damage(0, &damage).map_err(io::Error::other)?;
            if self.damage.len() < MOST_DAMAGE {
                self.damage.push(damage);
            }
        }
        Ok(())
    }
}

impl Stream for DecodingStream<'_> {
    fn position(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if length > MOST_PEEKED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while self.buffered() < length && !self.at_end {
            self.fill()?;
        }
        Ok(&self.buffer[self.from..self.end.min(self.from + length)])
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0;
        while skipped < length {
            if self.buffered() == 0 {
                if self.at_end {
                    break;
                }
                self.fill()?;
            }
            let step = (length - skipped).min(self.buffered() as u64);
            self.from += step as usize;
            self.position += step;
            skipped += step;
        }
        Ok(skipped)
    }

    fn may_have_shifted(&self) -> bool {
        self.shifts.borrow().any
    }
}

/// The entry of a compressed single file, named after the archive without its suffix.
pub(crate) fn single_file(archive: &std::path::Path, file: &FileFacts) -> Entry {
    use std::os::unix::ffi::OsStrExt;
    let name = archive.file_name().unwrap_or_default().as_bytes();
    Entry {
        path: without_suffix(name).unwrap_or_else(|| name.to_vec()),
        kind: Kind::File,
        mode: file.owner.mode & 0o777,
        uid: u64::from(file.owner.user),
        gid: u64::from(file.owner.group),
        mtime: file.mtime(),
        ..Entry::default()
    }
}

/// The name of what a compressed file holds: `x.tar` for `x.tgz`, `x` for `x.gz`; `None` if no codec knows its suffix.
pub fn without_suffix(name: &[u8]) -> Option<Vec<u8>> {
    let lower = name.to_ascii_lowercase();
    let suffixes = tarnfs_codec::CODECS.iter().flat_map(|codec| codec.suffixes());
    let (suffix, instead) = suffixes
        .filter(|(suffix, _)| lower.len() > suffix.len() && lower.ends_with(suffix.as_bytes()))
        .max_by_key(|(suffix, _)| suffix.len())?;
    let stem = &name[..name.len() - suffix.len()];
    Some([stem, instead.as_bytes()].concat())
}
