//! Where what a pass finds goes: into the index at once, or by way of the thread that found it to the one that writes.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use tarnfs_codec::{Chunk, Damage};
use tarnfs_format::{Entry, Kind, name};
use tarnfs_index::{Error, Nested, Writer};

use super::line::Place;
use super::nested::Candidate;
use super::walk::folder_for;

/// Damaged places that are kept in memory, as many as an index keeps: an archive can be made to hold nothing else.
pub(super) const MOST_NOTES: usize = 10_000;

/// Takes what is found in one stream, in its order.
pub(super) trait Receiver {
    /// A file, folder, link, ...; its place counts in the stream that is read.
    fn entry(&self, entry: &Entry) -> Result<(), Error>;
    /// A chunk of the stream that is being decoded.
    fn chunk(&self, chunk: Chunk) -> Result<(), Error>;
    /// What of the decoded stream must not be served.
    fn damage(&self, damage: Damage) -> Result<(), Error>;
    /// What was found broken, for people.
    fn note(&self, at: u64, what: String) -> Result<(), Error>;
    /// What comes from here on, up to [`Receiver::close`], lies in the archive at `path`.
    fn open(&self, path: &[u8]) -> Result<(), Error>;
    /// The end of what was opened last.
    fn close(&self) -> Result<(), Error>;
    /// A file that holds an archive, or one stream in another; looked at later.
    fn candidate(&self, candidate: Candidate) -> Result<(), Error>;
    /// What comes from here on is in the candidate that is being read: it is what it seemed to be.
    fn begin(&self) -> Result<(), Error>;
    /// All of it has been told; `decoded_length` is the length of the decoded stream in bytes.
    fn end(&self, decoded_length: u64) -> Result<(), Error>;
}

/// Into the index.
#[derive(Debug)]
pub(super) struct Direct {
    writer: RefCell<Writer>,
    /// The layer of compression whose chunks come, and the stream in which entries lie.
    layer: Cell<u32>,
    stream: Cell<u32>,
    /// The candidate that is being read, but for its bytes.
    current: RefCell<Option<Candidate>>,
    began: Cell<bool>,
    notes: RefCell<Vec<(u64, String)>>,
    /// What waits, in the order in which it is read: last those that were found last, each group in the order of its archive. Breadth first, a
    /// few archives that each hold a few would soon be millions.
    candidates: RefCell<Vec<VecDeque<Candidate>>>,
    /// The archives that are being read, each in the one before it.
    within: RefCell<Vec<u32>>,
    /// By the hash of its path, the archive in the archive that shows there. A later entry of that path takes its place.
    shown: RefCell<HashMap<u64, u32>>,
    hasher: RandomState,
    /// Candidates that may still come.
    left: Cell<u64>,
}

impl Direct {
    /// Takes up to `most` candidates.
    pub(super) fn new(writer: Writer, most: u64) -> Self {
        Self {
            writer: RefCell::new(writer),
            layer: Cell::new(0),
            stream: Cell::new(0),
            current: RefCell::new(None),
            began: Cell::new(false),
            notes: RefCell::default(),
            candidates: RefCell::default(),
            within: RefCell::default(),
            shown: RefCell::default(),
            hasher: RandomState::new(),
            left: Cell::new(most),
        }
    }

    /// The writer, and what was found broken.
    pub(super) fn into_parts(self) -> (Writer, Vec<(u64, String)>) {
        (self.writer.into_inner(), self.notes.into_inner())
    }

    /// The next one that was not replaced.
    pub(super) fn next_candidate(&self) -> Option<Candidate> {
        let writer = self.writer.borrow();
        let mut candidates = self.candidates.borrow_mut();
        loop {
            let group = candidates.last_mut()?;
            match group.pop_front() {
                Some(candidate) if writer.is_replaced(candidate.archive) => {}
                Some(candidate) => return Some(candidate),
                None => {
                    candidates.pop();
                }
            }
        }
    }

    fn hash(&self, path: &[u8]) -> u64 {
        let is_name = |component: &&[u8]| !matches!(*component, b"" | b".");
        let mut hasher = self.hasher.build_hasher();
        for component in path.split(|&byte| byte == b'/').filter(is_name) {
            component.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Numbers the archive at `path`.
    fn archive_at(&self, path: &[u8]) -> u32 {
        let within = self.within.borrow().last().copied().unwrap_or_default();
        let number = self.writer.borrow_mut().add_archive(within);
        self.shown.borrow_mut().insert(self.hash(path), number);
        number
    }

    fn enter_archive(&self, number: u32) {
        self.within.borrow_mut().push(number);
        self.writer.borrow_mut().enter_archive(number);
    }

    fn leave_archive(&self) {
        let mut within = self.within.borrow_mut();
        within.pop();
        self.writer.borrow_mut().enter_archive(within.last().copied().unwrap_or_default());
    }

    /// What is found from here on is read before what waits already.
    pub(super) fn begin_group(&self) {
        self.candidates.borrow_mut().push(VecDeque::new());
    }

    pub(super) fn waiting(&self) -> usize {
        self.candidates.borrow().iter().map(VecDeque::len).sum()
    }

    /// What comes next was found in `candidate`.
    pub(super) fn enter(&self, candidate: &Candidate) {
        self.began.set(false);
        self.enter_archive(candidate.archive);
        *self.current.borrow_mut() = Some(candidate.clone());
    }

    /// Ends with the candidate. One that was a layer of compression around a file, and could not be undone, is that file.
    pub(super) fn leave(&self) -> Result<(), Error> {
        let candidate = self.current.borrow_mut().take();
        if let Some(candidate) = candidate.filter(|_| !self.began.get())
            && let Some(file) = &candidate.instead
        {
            self.writer.borrow_mut().add_from(candidate.input, file)?;
        }
        self.leave_archive();
        self.stream.set(0);
        self.layer.set(0);
        Ok(())
    }
}

impl Receiver for Direct {
    fn entry(&self, entry: &Entry) -> Result<(), Error> {
        if entry.kind != Kind::Folder && !self.shown.borrow().is_empty() {
            let replaced = self.shown.borrow_mut().remove(&self.hash(&entry.path));
            if let Some(replaced) = replaced {
                self.writer.borrow_mut().replace_archive(replaced);
            }
        }
        self.writer.borrow_mut().add_from(self.stream.get(), entry)
    }

    fn chunk(&self, chunk: Chunk) -> Result<(), Error> {
        self.writer.borrow_mut().add_chunk(self.layer.get() as usize, chunk)
    }

    fn damage(&self, damage: Damage) -> Result<(), Error> {
        self.writer.borrow_mut().add_damage(self.layer.get() as usize, &damage)
    }

    fn note(&self, at: u64, what: String) -> Result<(), Error> {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MOST_NOTES {
            notes.push((at, what));
        }
        Ok(())
    }

    fn open(&self, path: &[u8]) -> Result<(), Error> {
        let number = self.archive_at(path);
        self.enter_archive(number);
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        self.leave_archive();
        Ok(())
    }

    fn candidate(&self, candidate: Candidate) -> Result<(), Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            if let Some(file) = &candidate.instead {
                self.entry(file)?;
            }
            let path = name::escape(candidate.file.path.get(..200).unwrap_or(&candidate.file.path));
            let what = format!("{path}: it stays a file: there are too many archives in this archive; is it a bomb?");
            return self.note(candidate.start, what);
        };
        self.left.set(left);
        // A layer in a layer is the same archive.
        let archive = match candidate.instead {
            Some(_) => self.within.borrow().last().copied().unwrap_or_default(),
            None => self.archive_at(&candidate.file.path),
        };
        let candidate = Candidate { input: self.stream.get(), archive, ..candidate };
        let mut candidates = self.candidates.borrow_mut();
        match candidates.last_mut() {
            Some(group) => group.push_back(candidate),
            None => candidates.push(VecDeque::from([candidate])),
        }
        Ok(())
    }

    fn begin(&self) -> Result<(), Error> {
        let current = self.current.borrow();
        let Some(candidate) = &*current else { return Ok(()) };
        self.began.set(true);
        let mut writer = self.writer.borrow_mut();
        if candidate.makes_folder {
            let path = candidate.place.prefix.strip_suffix(b"/").unwrap_or(&candidate.place.prefix);
            writer.add_from(candidate.input, &folder_for(&candidate.file, path))?;
        }
        self.stream.set(candidate.input);
        if candidate.codec.is_some() {
            let number = writer.next_nested();
            self.stream.set(number);
            self.layer.set(number);
        }
        Ok(())
    }

    fn end(&self, decoded_length: u64) -> Result<(), Error> {
        let current = self.current.borrow();
        let Some((candidate, codec)) = current.as_ref().and_then(|candidate| Some((candidate, candidate.codec?)))
        else {
            return Ok(());
        };
        let codec = codec.name().to_owned();
        let Candidate { input, start, length, .. } = *candidate;
        self.writer.borrow_mut().add_nested(&Nested { codec, decoded_length, input, start, length }).map(drop)
    }
}

/// One call of a [`Receiver`].
#[derive(Debug)]
pub(super) enum Found {
    Entry(Box<Entry>),
    Chunk(Chunk),
    Damage(Damage),
    Note(u64, String),
    Open(Vec<u8>),
    Close,
    Candidate(Box<Candidate>),
    Begin,
    End(u64),
}

impl Found {
    /// Bytes that it holds, roughly.
    fn weight(&self) -> usize {
        let of_entry = |entry: &Entry| {
            let xattrs = entry.xattrs.iter().map(|(name, value)| name.len() + value.len());
            let extents = entry.body.extents.as_ref().map_or(0, |extents| extents.len() * 24);
            entry.path.len() + entry.link.len() + extents + xattrs.sum::<usize>()
        };
        let more = match self {
            Self::Entry(entry) => of_entry(entry),
            Self::Chunk(chunk) => chunk.point.state.len() + chunk.checksums.len() * 4,
            Self::Open(text) => text.len(),
            Self::Note(_, text) => text.len(),
            Self::Candidate(candidate) => 1024 + of_entry(&candidate.file),
            Self::Damage(_) | Self::Close | Self::Begin | Self::End(_) => 0,
        };
        more + 256
    }

    pub(super) fn tell(self, receiver: &dyn Receiver) -> Result<(), Error> {
        match self {
            Self::Entry(entry) => receiver.entry(&entry),
            Self::Chunk(chunk) => receiver.chunk(chunk),
            Self::Damage(damage) => receiver.damage(damage),
            Self::Note(at, what) => receiver.note(at, what),
            Self::Open(path) => receiver.open(&path),
            Self::Close => receiver.close(),
            Self::Candidate(candidate) => receiver.candidate(*candidate),
            Self::Begin => receiver.begin(),
            Self::End(decoded_length) => receiver.end(decoded_length),
        }
    }
}

/// To the thread that writes, many at a time.
#[derive(Debug)]
pub(super) struct Batches<'l> {
    found: RefCell<Vec<Found>>,
    /// Bytes that these hold, roughly.
    weight: Cell<usize>,
    place: Place<'l, Vec<Found>>,
}

impl<'l> Batches<'l> {
    /// Sent at once, by number and by the bytes that they hold.
    const BATCH: usize = 512;
    const WEIGHT: usize = 128 << 10;

    pub(super) fn new(place: Place<'l, Vec<Found>>) -> Self {
        Self { found: RefCell::default(), weight: Cell::new(0), place }
    }

    fn push(&self, found: Found) -> Result<(), Error> {
        self.weight.set(self.weight.get() + found.weight());
        self.found.borrow_mut().push(found);
        if self.found.borrow().len() >= Self::BATCH || self.weight.get() >= Self::WEIGHT {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends what is left. Who calls this, or a method of [`Receiver`], may wait for others and must hold nothing that these need (`line.rs`).
    pub(super) fn flush(&self) -> Result<(), Error> {
        let found = self.found.take();
        // Nobody listens any more: the pass has failed elsewhere.
        let closed = |_| Error::Io(std::io::ErrorKind::Interrupted.into());
        self.place.push(found, self.weight.take()).map_err(closed)
    }
}

impl Receiver for Batches<'_> {
    fn entry(&self, entry: &Entry) -> Result<(), Error> {
        self.push(Found::Entry(Box::new(entry.clone())))
    }

    fn chunk(&self, chunk: Chunk) -> Result<(), Error> {
        self.push(Found::Chunk(chunk))
    }

    fn damage(&self, damage: Damage) -> Result<(), Error> {
        self.push(Found::Damage(damage))
    }

    fn note(&self, at: u64, what: String) -> Result<(), Error> {
        self.push(Found::Note(at, what))
    }

    fn open(&self, path: &[u8]) -> Result<(), Error> {
        self.push(Found::Open(path.to_vec()))
    }

    fn close(&self) -> Result<(), Error> {
        self.push(Found::Close)
    }

    fn candidate(&self, candidate: Candidate) -> Result<(), Error> {
        self.push(Found::Candidate(Box::new(candidate)))
    }

    fn begin(&self) -> Result<(), Error> {
        self.push(Found::Begin)
    }

    fn end(&self, decoded_length: u64) -> Result<(), Error> {
        self.push(Found::End(decoded_length))
    }
}
