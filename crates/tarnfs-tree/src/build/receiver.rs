//! Where what a pass finds goes: into the index at once, or by way of the thread that found it to the one that writes.

mod damaged;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;

use tarnfs_codec::{Chunk, Codec, Damage};
use tarnfs_format::{Entry, Kind, name};
use tarnfs_index::{Error, Nested, Writer};
use tarnfs_source::Limits;

use super::line::{Closed, LinePlace};
use super::nested::Candidate;
use super::walk::folder_for;
use crate::unnoticed::Starts;
use damaged::DamagedRanges;

/// Damaged places that are kept in memory, as many as an index keeps: an archive can be made to hold nothing else.
pub(super) const MOST_NOTES: usize = 10_000;

/// Bytes of one note, and of all of them: they are kept in the index.
const MOST_OF_NOTE: usize = 1024;
const MOST_OF_NOTES: usize = 4 << 20;

/// Bytes of archives that wait; one that does not fit stays a file. Each may have a path of 64 KiB, which is held
/// several times and compresses to nothing.
const MOST_OF_WAITING: usize = 64 << 20;

/// True if `notes` may lack some of what was found broken.
pub(crate) fn may_lack_notes(notes: &[(u64, String)]) -> bool {
    let bytes: usize = notes.iter().map(|(_, what)| what.len()).sum();
    notes.len() >= MOST_NOTES || bytes > MOST_OF_NOTES - MOST_OF_NOTE
}

/// What is told of an entry, which lies at its place in the stream that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// It is a file, folder, link, ...
    Entry,
    /// It is a file whose content is looked into before it is certain that it is all of the content: path and header
    /// hold. What is found in it comes next, then [`About::Confirm`] or [`About::TakeBack`]. These may lie in each
    /// other.
    Ahead,
    /// It was all: here is the entry.
    Confirm,
    /// It was not: what was found since counts for nothing, and this is the entry.
    TakeBack,
    /// What comes from here on, up to [`Call::Close`], lies in the archive at its path.
    Open,
}

/// What else is told.
#[derive(Debug)]
pub(super) enum Call {
    /// The end of what was opened last.
    Close,
    /// A chunk of the stream that is being decoded.
    Chunk(Chunk),
    /// What of the decoded stream must not be served.
    Damage(Damage),
    /// What was found broken there, for people.
    Note(u64, String),
    /// A file that holds an archive, or one stream in another; looked at later.
    Candidate(Box<Candidate>),
    /// What comes from here on is in the candidate that is being read: it is what it seemed to be. Where it does not
    /// show, a candidate in it may be that: until then the file shows.
    Begin { shows: bool },
    /// All of it has been told.
    End {
        /// The length of the decoded stream in bytes.
        decoded_length: u64,
    },
    /// Instead of all these: the candidate needs more memory than those have that are read beside each other.
    PutOff,
}

/// Takes what is found in one stream, in its order.
pub(super) trait Receiver {
    /// Something is told of `entry`.
    fn about(&self, what: About, entry: &Entry) -> Result<(), Error>;

    /// Something else is told.
    fn call(&self, call: Call) -> Result<(), Error>;

    /// What comes next takes much memory: waits until that may be had, which is so of the candidate that is written, or
    /// once `has_room` says so.
    fn wait(&self, has_room: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let _ = has_room;
        Ok(())
    }

    /// See [`About::Entry`].
    fn entry(&self, entry: &Entry) -> Result<(), Error> {
        self.about(About::Entry, entry)
    }

    /// See [`Call::Damage`].
    fn damage(&self, damage: Damage) -> Result<(), Error> {
        self.call(Call::Damage(damage))
    }

    /// See [`Call::Note`].
    fn note(&self, at: u64, what: String) -> Result<(), Error> {
        self.call(Call::Note(at, what))
    }

    /// See [`Call::Candidate`].
    fn candidate(&self, candidate: Candidate) -> Result<(), Error> {
        self.call(Call::Candidate(Box::new(candidate)))
    }
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
    /// The stream that its codec undoes: that of its pieces, where it has them.
    input: Cell<u32>,
    began: Cell<bool>,
    stays_file: Cell<bool>,
    is_put_off: Cell<bool>,
    notes: RefCell<Vec<Note>>,
    damaged: RefCell<DamagedRanges>,
    /// Where the chunks begin of the candidate that is being read.
    starts: RefCell<Starts>,
    /// Bytes of the notes.
    bytes_of_notes: Cell<usize>,
    /// Files that are looked into, of which it is not certain that they are all there.
    aheads: RefCell<Vec<Ahead>>,
    /// Bytes of what waits.
    bytes_of_waiting: Cell<usize>,
    /// What waits, in the order in which it is read: last those that were found last, each group in the order of its
    /// archive. Breadth first, a few archives that each hold a few would soon be millions.
    candidates: RefCell<Vec<VecDeque<Candidate>>>,
    /// The archives that are being read, each in the one before it.
    within: RefCell<Vec<u32>>,
    /// Stream and first byte of the last entry.
    last: Cell<(u32, u64)>,
    hasher: RandomState,
    limits: Limits,
    /// Candidates that may still come.
    left: Cell<u64>,
}

/// What was found broken.
#[derive(Debug)]
struct Note {
    at: u64,
    what: String,
    /// The archive that was being read.
    archive: u32,
}

/// How far everything had come when a file was looked into.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    notes: usize,
    /// The number that the next archive had got, and the archive that the file lies in.
    next_archive: u32,
    within: u32,
    /// Stream and byte where it is taken to begin.
    at: (u32, u64),
}

/// What is `damaged` of the stream `input` where `candidate` lies in it: from which byte of the candidate, and up to
/// which one of the stream.
fn inside<'d>(
    damaged: &'d DamagedRanges,
    input: u32,
    candidate: &Candidate,
) -> impl Iterator<Item = (u64, u64)> + use<'d> {
    let (start, end) = (candidate.start, candidate.start.saturating_add(candidate.length));
    damaged.inside(input, start..end).map(move |(from, to)| (from.saturating_sub(start), to))
}

impl Direct {
    /// Takes up to `most` candidates.
    pub(super) fn new(writer: Writer, limits: Limits, most: u64) -> Self {
        Self {
            writer: RefCell::new(writer),
            layer: Cell::new(0),
            stream: Cell::new(0),
            current: RefCell::new(None),
            input: Cell::new(0),
            began: Cell::new(false),
            stays_file: Cell::new(false),
            is_put_off: Cell::new(false),
            notes: RefCell::default(),
            damaged: RefCell::default(),
            starts: RefCell::default(),
            bytes_of_notes: Cell::new(0),
            aheads: RefCell::default(),
            bytes_of_waiting: Cell::new(0),
            candidates: RefCell::default(),
            within: RefCell::default(),
            last: Cell::default(),
            hasher: RandomState::new(),
            limits,
            left: Cell::new(most),
        }
    }

    /// The writer, and what was found broken.
    pub(super) fn into_parts(self) -> (Writer, Vec<(u64, String)>) {
        let notes = self.notes.into_inner().into_iter().map(|note| (note.at, note.what));
        (self.writer.into_inner(), notes.collect())
    }

    /// The next one that was not replaced.
    pub(super) fn next_candidate(&self) -> Option<Candidate> {
        let writer = self.writer.borrow();
        let mut candidates = self.candidates.borrow_mut();
        loop {
            let group = candidates.last_mut()?;
            let next = group.pop_front();
            let bytes = next.as_ref().map_or(0, Candidate::weight);
            self.bytes_of_waiting.set(self.bytes_of_waiting.get() - bytes);
            match next {
                Some(candidate) if writer.is_replaced(candidate.archive) => {}
                Some(candidate) => {
                    let damaged = self.damaged_in(&candidate);
                    if candidate.pieces.is_some() && candidate.codec.is_some() && !damaged.is_empty() {
                        // What a codec makes of it nobody could tell from what was stored.
                        let shown = name::excerpt(&candidate.file.path);
                        self.add_note(candidate.told_at, format!("{shown}: a part of it is damaged; it stays a file"));
                        continue;
                    }
                    return Some(Candidate { damaged, ..candidate });
                }
                None => {
                    candidates.pop();
                }
            }
        }
    }

    /// What is known to be damaged of an archive, where that is not found when it is decoded.
    fn damaged_in(&self, candidate: &Candidate) -> Vec<Range<u64>> {
        if candidate.pieces.is_some() {
            return self.damaged_in_pieces(candidate);
        }
        if candidate.codec.is_some() {
            return Vec::new();
        }
        let end = candidate.start.saturating_add(candidate.length);
        let damaged = self.damaged.borrow();
        let found: Vec<_> = inside(&damaged, candidate.input, candidate).collect();
        // Where all of it is, nothing of it is served, but with `--force`: then its directory is wanted, too.
        if let [(0, to)] = found.as_slice()
            && (end..u64::MAX).contains(to)
        {
            return Vec::new();
        }
        found.into_iter().map(|(from, to)| from..to.min(end) - candidate.start).collect()
    }

    /// The same of one that lies in pieces. What a coder undoes is looked at when it is decoded.
    fn damaged_in_pieces(&self, candidate: &Candidate) -> Vec<Range<u64>> {
        let damaged = self.damaged.borrow();
        let (mut found, mut end) = (Vec::new(), 0_u64);
        if damaged.is_empty() {
            return found;
        }
        let mut is_all = candidate.codec.is_none() && candidate.split.is_none();
        for piece in candidate.pieces.iter().flat_map(|pieces| pieces.iter()) {
            let start = end.saturating_add(piece.hole);
            end = start.saturating_add(piece.length);
            let place = piece.offset..piece.offset.saturating_add(piece.stored);
            if piece.coder.is_some() {
                continue;
            }
            // There may be very many of both.
            let mut is_damaged = false;
            for (from, to) in damaged.inside(candidate.input, place.clone()) {
                is_damaged |= from <= place.start && (place.end..u64::MAX).contains(&to);
                let (from, to) = (from.saturating_sub(place.start), to.min(place.end).saturating_sub(place.start));
                found.push(start.saturating_add(from)..start.saturating_add(to));
                if found.len() >= MOST_NOTES {
                    found.push(end..candidate.length);
                    return found;
                }
            }
            is_all &= is_damaged;
        }
        // As above.
        if is_all {
            found.clear();
        }
        found
    }

    /// What the codec of the candidate that ends has made of damaged input without noticing that, counts as damaged:
    /// directories may lie in it.
    fn find_unnoticed(&self, candidate: &Candidate, codec: &dyn Codec) {
        let mut damaged = self.damaged.borrow_mut();
        let layer = self.layer.get();
        let input = inside(&damaged, self.input.get(), candidate);
        let input = input.map(|(from, to)| from..to.saturating_sub(candidate.start));
        let is_known = |decoded: u64| damaged.inside(layer, decoded..decoded.saturating_add(1)).next().is_some();
        let Some(from) = self.starts.borrow().wrong_from(codec, input, &is_known) else { return };
        damaged.add_rest(layer, from);
    }

    fn hash(&self, path: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        // As the writer takes it apart.
        for component in &name::components(path, &self.limits) {
            component.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Numbers the archive at `path`, which is the file that begins there: a stream and a byte of it.
    fn archive_at(&self, path: &[u8], place: (u32, u64)) -> Result<u32, Error> {
        self.writer.borrow_mut().add_archive(self.innermost(), self.hash(path), place)
    }

    /// What was found in the archive at that path, if there is an earlier one, does not show: the entry that begins
    /// there has the path.
    fn replace(&self, path: &[u8], place: (u32, u64)) {
        let mut writer = self.writer.borrow_mut();
        if writer.shows_archives() {
            writer.replace_archive_at(self.hash(path), place);
        }
    }

    /// The archive that is being read.
    fn innermost(&self) -> u32 {
        self.within.borrow().last().copied().unwrap_or_default()
    }

    /// True if the note is of the file that was looked into, or of what was found in it. What was found before may have
    /// been read meanwhile.
    fn is_inside(&self, note: &Note, ahead: Ahead) -> bool {
        let writer = self.writer.borrow();
        let mut at = note.archive;
        if at == ahead.within {
            return true;
        }
        while at != 0 {
            let around = writer.around_archive(at);
            if around == ahead.within {
                return at >= ahead.next_archive;
            }
            at = around;
        }
        false
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
        let mut candidates = self.candidates.borrow_mut();
        // An empty one has the room of all that were in it, and there is a new one for each few candidates.
        while candidates.pop_if(|group| group.is_empty()).is_some() {}
        candidates.push(VecDeque::new());
    }

    /// False if those that wait should be read before more are gathered.
    pub(super) fn has_room(&self) -> bool {
        self.bytes_of_waiting.get() < MOST_OF_WAITING / 2
    }

    pub(super) fn waiting(&self) -> usize {
        self.candidates.borrow().iter().map(VecDeque::len).sum()
    }

    /// What comes next was found in `candidate`.
    pub(super) fn enter(&self, candidate: &Candidate) {
        self.began.set(false);
        self.starts.borrow_mut().clear();
        self.enter_archive(candidate.archive);
        *self.current.borrow_mut() = Some(candidate.clone());
    }

    /// Ends with the candidate. One that was a layer of compression around a file, and could not be undone, is that
    /// file.
    pub(super) fn leave(&self) -> Result<(), Error> {
        let candidate = self.current.borrow_mut().take();
        if let Some(candidate) = candidate.filter(|_| !self.began.get())
            && let Some(file) = &candidate.instead
        {
            self.stays_file.set(self.stays_file.get() || candidate.archive == 0);
            self.writer.borrow_mut().add_from(candidate.input, file)?;
        }
        self.leave_archive();
        self.stream.set(0);
        self.layer.set(0);
        Ok(())
    }

    /// True if a layer of compression around the whole archive could not be undone, or what lies in it not be read:
    /// that shows as a file.
    pub(super) fn stays_file(&self) -> bool {
        self.stays_file.get()
    }

    /// Keeps a note, if there is room for it.
    fn add_note(&self, at: u64, mut what: String) {
        if what.len() > MOST_OF_NOTE {
            // At a whole character, which has four bytes at the most.
            let end = (MOST_OF_NOTE - 3..=MOST_OF_NOTE).rev().find(|&end| what.is_char_boundary(end));
            what.truncate(end.unwrap_or_default());
        }
        what.shrink_to_fit();
        let mut notes = self.notes.borrow_mut();
        let bytes = self.bytes_of_notes.get() + what.len();
        if notes.len() < MOST_NOTES && bytes <= MOST_OF_NOTES {
            self.bytes_of_notes.set(bytes);
            notes.push(Note { at, what, archive: self.innermost() });
        }
    }

    /// True once if the candidate that is being read was put off.
    pub(super) fn take_put_off(&self) -> bool {
        self.is_put_off.take()
    }

    /// See [`About::Entry`].
    fn add(&self, entry: &Entry) -> Result<(), Error> {
        self.last.set((self.stream.get(), entry.header));
        if entry.kind != Kind::Folder {
            self.replace(&entry.path, self.last.get());
        }
        self.writer.borrow_mut().add_from(self.stream.get(), entry)
    }

    /// See [`About::Ahead`].
    fn look_into(&self, entry: &Entry) {
        self.last.set((self.stream.get(), entry.header));
        self.replace(&entry.path, self.last.get());
        let (notes, next_archive) = (self.notes.borrow().len(), self.writer.borrow().next_archive());
        self.aheads.borrow_mut().push(Ahead { notes, next_archive, within: self.innermost(), at: self.last.get() });
    }

    /// See [`About::TakeBack`].
    fn take_back(&self, entry: &Entry) -> Result<(), Error> {
        if let Some(ahead) = self.aheads.borrow_mut().pop() {
            let mut notes = self.notes.borrow_mut();
            let before = ahead.notes.min(notes.len());
            let taken_back = notes.extract_if(before.., |note| self.is_inside(note, ahead));
            let bytes: usize = taken_back.map(|note| note.what.len()).sum();
            self.bytes_of_notes.set(self.bytes_of_notes.get() - bytes);
            drop(notes);
            // The archive that was found there has its path.
            self.replace(&entry.path, ahead.at);
        }
        self.add(entry)
    }

    /// See [`Call::Candidate`].
    fn keep(&self, candidate: Candidate) -> Result<(), Error> {
        let bytes = self.bytes_of_waiting.get() + candidate.weight();
        let left = self.left.get().checked_sub(1).filter(|_| bytes <= MOST_OF_WAITING);
        let Some(left) = left else {
            if let Some(file) = &candidate.instead {
                self.add(file)?;
            }
            let path = name::excerpt(&candidate.file.path);
            let what = format!("{path}: it stays a file: there are too many archives in this archive; is it a bomb?");
            self.add_note(candidate.told_at, what);
            return Ok(());
        };
        self.left.set(left);
        self.bytes_of_waiting.set(bytes);
        let input = self.stream.get();
        // A layer in a layer is the same archive, and the file that shows it lies where that of the outer one does.
        let (archive, file_in) = if candidate.is_layer {
            (self.innermost(), self.current.borrow().as_ref().map_or(input, |outer| outer.file_in))
        } else {
            (self.archive_at(&candidate.file.path, (input, candidate.file.header))?, input)
        };
        let candidate = Candidate { input, file_in, archive, ..candidate };
        let mut candidates = self.candidates.borrow_mut();
        match candidates.last_mut() {
            Some(group) => group.push_back(candidate),
            None => candidates.push(VecDeque::from([candidate])),
        }
        Ok(())
    }

    /// See [`Call::Begin`].
    fn begin(&self, shows: bool) -> Result<(), Error> {
        let current = self.current.borrow();
        let Some(candidate) = &*current else { return Ok(()) };
        self.began.set(true);
        let mut writer = self.writer.borrow_mut();
        if candidate.makes_folder && shows {
            let path = candidate.place.prefix.strip_suffix(b"/").unwrap_or(&candidate.place.prefix);
            writer.add_from(candidate.file_in, &folder_for(&candidate.file, path))?;
        }
        let mut input = candidate.input;
        if let Some(pieces) = &candidate.pieces {
            let first = pieces.first().map_or(0, |piece| piece.offset);
            writer.begin_nested(input, first);
            input = writer.add_nested_pieces(input, pieces, candidate.length)?;
            self.layer.set(input);
        }
        self.input.set(input);
        self.stream.set(input);
        if candidate.codec.is_some() {
            let number = writer.next_nested();
            writer.begin_nested(input, candidate.start);
            self.stream.set(number);
            self.layer.set(number);
        }
        Ok(())
    }

    /// See [`Call::End`].
    fn end(&self, decoded_length: u64) -> Result<(), Error> {
        let current = self.current.borrow();
        let Some(candidate) = &*current else { return Ok(()) };
        let (input, &Candidate { start, length, .. }) = (self.input.get(), candidate);
        let mut writer = self.writer.borrow_mut();
        match candidate.codec {
            Some(codec) => {
                self.find_unnoticed(candidate, codec);
                let codec = codec.name().to_owned();
                writer.add_nested(&Nested { codec, decoded_length, input, start, length }).map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Receiver for Direct {
    fn about(&self, what: About, entry: &Entry) -> Result<(), Error> {
        match what {
            About::Entry => return self.add(entry),
            About::Ahead => self.look_into(entry),
            About::Confirm => {
                self.aheads.borrow_mut().pop();
                return self.writer.borrow_mut().add_from(self.stream.get(), entry);
            }
            About::TakeBack => return self.take_back(entry),
            About::Open => self.enter_archive(self.archive_at(&entry.path, self.last.get())?),
        }
        Ok(())
    }

    fn call(&self, call: Call) -> Result<(), Error> {
        match call {
            Call::Close => self.leave_archive(),
            Call::Chunk(chunk) => {
                self.starts.borrow_mut().add(&chunk.point);
                return self.writer.borrow_mut().add_chunk(self.layer.get() as usize, chunk);
            }
            Call::Damage(damage) => {
                self.damaged.borrow_mut().add(self.layer.get(), damage.decoded.clone());
                return self.writer.borrow_mut().add_damage(self.layer.get() as usize, &damage);
            }
            Call::Note(at, what) => self.add_note(at, what),
            Call::Candidate(candidate) => return self.keep(*candidate),
            Call::Begin { shows } => return self.begin(shows),
            Call::End { decoded_length } => return self.end(decoded_length),
            Call::PutOff => self.is_put_off.set(true),
        }
        Ok(())
    }
}

/// What was told, on its way to another thread.
#[derive(Debug)]
pub(super) enum Told {
    About(About, Box<Entry>),
    Call(Call),
}

impl Told {
    /// Bytes that it holds, roughly.
    fn weight(&self) -> usize {
        let more = match self {
            Self::About(_, entry) => entry.weight(),
            Self::Call(Call::Chunk(chunk)) => chunk.point.state.len() + chunk.checksums.len() * 4,
            Self::Call(Call::Note(_, text)) => text.len(),
            Self::Call(Call::Damage(damage)) => damage.what.len(),
            Self::Call(Call::Candidate(candidate)) => 1024 + candidate.weight(),
            Self::Call(Call::Close | Call::Begin { .. } | Call::End { .. } | Call::PutOff) => 0,
        };
        more + 256
    }

    pub(super) fn tell(self, receiver: &dyn Receiver) -> Result<(), Error> {
        match self {
            Self::About(what, entry) => receiver.about(what, &entry),
            Self::Call(call) => receiver.call(call),
        }
    }
}

/// To the thread that writes, many at a time.
#[derive(Debug)]
pub(super) struct Batches<'l> {
    found: RefCell<Vec<Told>>,
    /// Bytes that these hold, roughly.
    weight: Cell<usize>,
    place: LinePlace<'l, Vec<Told>>,
}

impl<'l> Batches<'l> {
    /// Sent at once, by number and by the bytes that they hold.
    const BATCH: usize = 512;
    const WEIGHT: usize = 128 << 10;

    pub(super) fn new(place: LinePlace<'l, Vec<Told>>) -> Self {
        Self { found: RefCell::default(), weight: Cell::new(0), place }
    }

    fn push(&self, found: Told) -> Result<(), Error> {
        self.weight.set(self.weight.get() + found.weight());
        self.found.borrow_mut().push(found);
        if self.found.borrow().len() >= Self::BATCH || self.weight.get() >= Self::WEIGHT {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Nobody listens any more where it is closed: the pass has failed elsewhere.
    fn sent(sent: Result<(), Closed>) -> Result<(), Error> {
        sent.map_err(|_| Error::Io(std::io::ErrorKind::Interrupted.into()))
    }

    /// Sends what is left. Who calls this, or a method of [`Receiver`], may wait for others and must hold nothing that
    /// these need (`line.rs`).
    pub(super) fn flush(&self) -> Result<(), Error> {
        let found = self.found.take();
        Self::sent(self.place.push(found, self.weight.take()))
    }
}

impl Receiver for Batches<'_> {
    fn about(&self, what: About, entry: &Entry) -> Result<(), Error> {
        self.push(Told::About(what, Box::new(entry.clone())))
    }

    fn call(&self, call: Call) -> Result<(), Error> {
        self.push(Told::Call(call))
    }

    fn wait(&self, has_room: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.flush()?;
        Self::sent(self.place.wait(has_room))
    }
}

#[cfg(test)]
mod tests;
