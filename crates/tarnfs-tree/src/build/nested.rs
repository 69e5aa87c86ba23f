//! Compressed files in an archive, whose content is shown: each is decoded once, and what it holds goes into the same
//! index. Small ones are read by several threads beside each other, large ones by one walk with all threads; what they
//! hold themselves comes after them.

mod large;
mod refused;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tarnfs_codec::engine::Indexing;
use tarnfs_codec::{Codec, Damage};
use tarnfs_format::{Body, Entry, Piece, ReadForwards, Reader, SourceStream, Stream, name, stream::Moved};
use tarnfs_source::{Limits, Setting, SharedSource, Slice};

use super::amount::{Amount, TOO_MUCH, of_nested};
use super::bodies::Bodies;
use super::decoding::{DecodingStream, Shifts};
use super::hashing::{Hashing, Holes, rest_of};
use super::line::Line;
use super::names::Names;
use super::parts::{CUT, Split};
use super::receiver::{Batches, Call, Direct, Receiver};
use super::undamaged::Undamaged;
use super::walk::{Content, MemberPlace, Members, Walk, content_of, content_of_head};
use super::walk_directory::is_unreadable;
use super::{HEAD, NO_ROOM, head_length, head_of, no_room_is_none, stored_name, without_suffix};
use crate::legible::Legible;
use crate::open::Options;
use crate::pieces::are_blocks;
use crate::problem::Problem;
use large::Large;
pub(super) use large::Room;
use refused::{is_locked, is_unsupported, tell_of_few, why_not_an_archive};

/// Of that many compressed bytes on, one is read with all threads.
const LARGE: u64 = 4 << 20;

/// The most that a smaller one may hold of its directory while others are read beside it. Of formats that may hold more
/// ([`ReadRandom::heeds_held`](tarnfs_format::ReadRandom::heeds_held)), one is read at a time.
const HELD_BEHIND: u64 = 16 << 20;

/// Candidates that may wait before they are read; each takes about a kilobyte.
const MOST_WAITING: usize = 1024;

/// Candidates that are read beside each other before their results are all there.
const WAVE: usize = 64;

/// Bytes of a hole that are shown to a codec where a compressed file ends in one: padding, of which there may be more
/// than anybody can read.
const MOST_PADDING: u64 = 64 << 20;

/// Archives that may lie uncompressed in each candidate, beside one for each 16 bytes of it.
const MOST_IN_EACH: u64 = 16;

/// A file in an archive that is to be read as an archive.
#[derive(Clone)]
pub(super) struct Candidate {
    /// The stream that it lies in, where in it, and how long it is there, in bytes.
    pub(super) input: u32,
    /// The stream that the file lies in which shows it.
    pub(super) file_in: u32,
    /// Its number among the archives in the archive.
    pub(super) archive: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) bytes: SharedSource,
    /// What of these is known to be damaged.
    pub(super) damaged: Vec<Range<u64>>,
    /// Where it is not one run of bytes of its stream, or has to be decoded otherwise than by `codec` alone: its
    /// pieces there. `start` and `length` count in what comes of them.
    pub(super) pieces: Option<Arc<[Piece]>>,
    /// Where it was put together from several files.
    pub(super) split: Option<Arc<Split>>,
    /// `None` for an archive without compression.
    pub(super) codec: Option<&'static dyn Codec>,
    pub(super) name: Vec<u8>,
    /// False where the folder that shows what it holds is there.
    pub(super) makes_folder: bool,
    /// Whose attributes a single file in it gets.
    pub(super) file: Box<Entry>,
    /// Length and CRC-32 of what the codec gives, where the archive says them.
    pub(super) expected: Option<(u64, u32)>,
    /// What the codec gives, where that is the container's: then it gives the file itself, and it is known what that
    /// is.
    pub(super) content: Option<Content>,
    /// What is shown if it cannot be decoded, where there is no file yet.
    pub(super) instead: Option<Box<Entry>>,
    /// True of what comes out of a layer around it: it is the same archive.
    pub(super) is_layer: bool,
    /// Where what it holds is put.
    pub(super) place: MemberPlace,
    /// What a note of it names: the byte of the archive's own stream at which the member begins that it lies in.
    pub(super) told_at: u64,
}

impl Candidate {
    /// Archives that may lie in it uncompressed. A bound of its own, so that an index is the same for any number of
    /// threads.
    fn most_archives(&self) -> u64 {
        MOST_IN_EACH.saturating_add(self.length / 16)
    }

    /// True if it is read beside others.
    fn is_small(&self) -> bool {
        self.length < LARGE && self.codec.is_none_or(Codec::tells_memory)
    }

    /// Bytes of it that are no holes. Other archives may have the same.
    fn data(&self) -> u64 {
        let sum = |pieces: &Arc<[Piece]>| pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.length));
        self.pieces.as_ref().map_or(self.length, sum)
    }

    /// The blocks of it in which `ranges` lie, with the first byte of these there.
    fn blocks_at(&self, ranges: Vec<Range<u64>>) -> Vec<(u64, Range<u64>)> {
        let (mut ranges, mut end, mut blocks) = (ranges.into_iter().peekable(), 0_u64, Vec::new());
        for piece in self.pieces.iter().flat_map(|pieces| pieces.iter()) {
            let start = end.saturating_add(piece.hole);
            end = start.saturating_add(piece.length);
            while ranges.next_if(|range| range.end <= start).is_some() {}
            match ranges.peek() {
                Some(range) if range.start < end => blocks.push((range.start.max(start), start..end)),
                Some(_) => {}
                None => break,
            }
        }
        blocks
    }

    /// Why something of it may be missing, in words, where it was put together from several files.
    fn may_lack(&self) -> String {
        match self.split.as_deref() {
            Some(split) if split.is_cut => format!(": {CUT}"),
            Some(Split { next: Some(next), .. }) => {
                format!(". Is a part of it missing? {} is not there", name::excerpt(next))
            }
            _ => String::new(),
        }
    }

    /// What a codec is shown of it.
    fn padded(&self) -> SharedSource {
        let bytes = SharedSource::clone(&self.bytes);
        let Some(pieces) = &self.pieces else { return bytes };
        let add = |end: u64, piece: &Piece| end.saturating_add(piece.hole).saturating_add(piece.length);
        let end = pieces.iter().fold(0, add).saturating_add(MOST_PADDING);
        if end < self.length { Arc::new(Slice::new(bytes, 0, end)) } else { bytes }
    }

    /// Bytes that it takes while it waits, roughly.
    pub(super) fn weight(&self) -> usize {
        let instead = self.instead.as_ref().map_or(0, |file| size_of::<Entry>() + file.weight());
        // `bytes` has them as well.
        let pieces = self.pieces.as_ref().map_or(0, |pieces| 2 * size_of_val::<[Piece]>(pieces));
        pieces + size_of::<Self>() + self.name.len() + self.place.prefix.len() + self.file.weight() + instead
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codec = self.codec.map(tarnfs_codec::Codec::name);
        formatter.debug_struct("Candidate").field("place", &self.place).field("codec", &codec).finish_non_exhaustive()
    }
}

/// What candidates are read with.
pub(super) struct Expansion<'a> {
    pub(super) names: &'a Names,
    pub(super) options: &'a Options,
    pub(super) format_options: tarnfs_format::Options,
    pub(super) bodies: &'a Bodies,
    archive_length: u64,
    /// What was read and decoded so far, and may be.
    amount: Arc<Amount>,
    /// Holes that are hashed.
    pub(super) holes: Holes,
    /// Archives of which it was said that they are encrypted.
    locked: AtomicU64,
    unsupported: AtomicU64,
    /// Set once an archive was read by its directory.
    has_directories: AtomicBool,
    /// What the archive has that is in none of its entries, where it lies in a layer and has a directory.
    unlisted: Mutex<Vec<String>>,
    /// Some of the archive could not be read, and what comes before it is served.
    unread: AtomicBool,
    /// Those whose decoders need much memory while others are read beside them.
    large: Large,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(
        names: &'a Names,
        options: &'a Options,
        format_options: &'a tarnfs_format::Options,
        bodies: &'a Bodies,
        archive_length: u64,
    ) -> Self {
        let (amount, holes) = (Arc::new(Amount::new(archive_length)), Holes::new(archive_length));
        let (locked, unsupported) = (AtomicU64::new(0), AtomicU64::new(0));
        let (has_directories, unread, unlisted) = Default::default();
        let large = Large::new(options.decoding.threads);
        Self {
            names,
            options,
            format_options: amount.counting(format_options),
            bodies,
            archive_length,
            amount,
            holes,
            locked,
            unsupported,
            has_directories,
            unlisted,
            unread,
            large,
        }
    }

    /// True if some of the archive could not be read, and what comes before it is served.
    pub(super) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// True if some archive stayed a file for want of a password.
    pub(super) fn has_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed) > 0
    }

    /// What the archive in the layers has that is in none of its entries.
    pub(super) fn take_unlisted(&self) -> Vec<String> {
        std::mem::take(&mut *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if some archive was read by its directory.
    pub(super) fn has_directories(&self) -> bool {
        self.has_directories.load(Ordering::Relaxed)
    }

    /// Says that an archive stays a file as it needs a password. That is no damage, so there is no note of it.
    fn tell_of_locked(&self, candidate: &Candidate, error: &io::Error) {
        let more = "are encrypted, and stay files";
        tell_of_few(&self.locked, candidate, error, more);
    }

    /// The same of one that needs another file, or something that is not known here.
    fn tell_of_unsupported(&self, candidate: &Candidate, error: &io::Error) {
        let more = "need other files or are of unknown kinds, and stay files";
        tell_of_few(&self.unsupported, candidate, error, more);
    }

    /// The same as [`Expansion::run`], if there are many.
    pub(super) fn run_if_many(&self, direct: &Direct) -> Result<(), Problem> {
        if direct.waiting() < MOST_WAITING && direct.has_room() { Ok(()) } else { self.run(direct) }
    }

    /// Reads all candidates that `direct` has, and those that are found in them.
    pub(super) fn run(&self, direct: &Direct) -> Result<(), Problem> {
        while direct.waiting() > 0 {
            let mut wave = Vec::new();
            while wave.len() < WAVE
                && let Some(candidate) = direct.next_candidate()
            {
                wave.push(candidate);
            }
            direct.begin_group();
            for run in wave.chunk_by(|left, right| left.is_small() && right.is_small()) {
                if self.options.decoding.threads == 1 || run.len() == 1 {
                    self.one_by_one(run, direct)?;
                } else {
                    self.beside_each_other(run, direct, &thread::Builder::new)?;
                }
            }
        }
        Ok(())
    }

    fn one_by_one(&self, candidates: &[Candidate], direct: &Direct) -> Result<(), Problem> {
        for candidate in candidates {
            direct.enter(candidate);
            self.read(candidate, direct, None, &self.limits_of(candidate))?;
            self.read_if_put_off(candidate, direct)?;
            direct.leave()?;
        }
        Ok(())
    }

    /// Those with which a candidate is read first. They do not depend on the number of threads, as what is found then
    /// would.
    fn limits_of(&self, candidate: &Candidate) -> Limits {
        let limits = self.options.limits;
        let held = limits.held.min(if candidate.is_small() { HELD_BEHIND } else { u64::MAX });
        Limits { held, ..limits }
    }

    fn read_if_put_off(&self, candidate: &Candidate, direct: &Direct) -> Result<(), Problem> {
        if direct.take_put_off() { self.read(candidate, direct, None, &self.options.limits) } else { Ok(()) }
    }

    /// Each thread takes the next candidate; what they find is kept in the order of the candidates. `builder` makes a
    /// thread.
    fn beside_each_other(
        &self,
        candidates: &[Candidate],
        direct: &Direct,
        builder: &dyn Fn() -> thread::Builder,
    ) -> Result<(), Problem> {
        let line = Line::new(candidates.len());
        let failed = Mutex::new(None);
        let is_failed = || failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let threads = self.options.decoding.threads.min(candidates.len());
        let work = || {
            while let Some((number, place)) = line.next()
                && let Some(candidate) = candidates.get(number)
            {
                let batches = Batches::new(place);
                let read = self.read(candidate, &batches, Some(1), &self.limits_of(candidate));
                if let Err(problem) = read.and_then(|()| batches.flush().map_err(Problem::from)) {
                    // Before the place is dropped, which ends the candidate.
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
                    return;
                }
            }
        };
        let written = thread::scope(|scope| {
            // However this ends, nobody waits any more.
            let _close = line.close_at_end();
            // Where there can be no more threads, fewer do it all.
            let started = (0..threads).take_while(|_| builder().spawn_scoped(scope, work).is_ok()).count();
            if started == 0 {
                return Ok(false);
            }
            for candidate in candidates {
                direct.enter(candidate);
                while let Some(batch) = line.take() {
                    for found in batch {
                        found.tell(direct)?;
                    }
                }
                if is_failed() {
                    break;
                }
                self.read_if_put_off(candidate, direct)?;
                direct.leave()?;
            }
            Ok::<_, Problem>(true)
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            // What a thread says that was not heard comes from the error of the one that should have.
            Some(problem) if written.is_ok() => Err(problem),
            _ if written? => Ok(()),
            _ => self.one_by_one(candidates, direct),
        }
    }

    /// Reads one candidate, with so many threads. It is put off where it needs more than `limits` allow, and may have.
    fn read(
        &self,
        candidate: &Candidate,
        receiver: &dyn Receiver,
        threads: Option<usize>,
        limits: &Limits,
    ) -> Result<(), Problem> {
        let shifts = RefCell::default();
        match candidate.codec {
            Some(codec) => self.compressed(candidate, codec, receiver, &shifts, threads),
            None => self.plain(candidate, receiver, &shifts, (threads, limits)),
        }
    }

    /// What reads members that `receiver` gets, and hashes them with so many threads.
    pub(super) fn walk<'w>(
        &'w self,
        receiver: &'w dyn Receiver,
        shifts: &'w RefCell<Shifts>,
        bytes: Option<(&'w SharedSource, u64)>,
        threads: usize,
    ) -> Walk<'w> {
        Walk {
            names: self.names,
            options: self.options,
            format_options: &self.format_options,
            receiver,
            bodies: self.bodies,
            shifts,
            left: Cell::new(0),
            bytes,
            shows_progress: false,
            behind_each: None,
            failed: RefCell::default(),
            hashing: (!self.names.hashes.is_empty())
                .then(|| Hashing::new(&self.names.hashes, receiver, threads, &self.holes, &self.options.cancel)),
            contents: None,
            amount: &self.amount,
            coded: std::sync::Arc::default(),
            compressed_at: None,
            parts: RefCell::default(),
        }
    }

    fn plain(
        &self,
        candidate: &Candidate,
        receiver: &dyn Receiver,
        shifts: &RefCell<Shifts>,
        (threads, limits): (Option<usize>, &Limits),
    ) -> Result<(), Problem> {
        let threads = threads.unwrap_or(self.options.decoding.threads);
        let format_options = of_nested(&self.format_options, &self.amount);
        let walk = self.walk(receiver, shifts, Some((&candidate.bytes, candidate.start)), threads);
        let walk = Walk { format_options: &format_options, ..walk };
        // What counts in there is no byte of the archive.
        let compressed_at = candidate.pieces.as_ref().map(|_| candidate.told_at);
        let walk = Walk { left: candidate.most_archives().into(), compressed_at, ..walk };
        if !self.amount.add(candidate.data()) {
            let what = format!("{}: it stays a file: {TOO_MUCH}", name::excerpt(&candidate.file.path));
            return Ok(receiver.note(candidate.told_at, what)?);
        }
        let stream = SourceStream::new(SharedSource::clone(&candidate.bytes), self.options.cancel.clone());
        let mut stream = Moved::new(stream, candidate.start);
        let shown = name::excerpt(&candidate.file.path);
        let note = |at: u64, error: &io::Error| receiver.note(at, format!("{shown}: {error}{}", candidate.may_lack()));
        let head = match stream.peek(head_length(&candidate.name)) {
            Ok(head) => head,
            Err(error) if is_damage(&error) => return Ok(note(candidate.start, &error)?),
            Err(error) => return Err(walk.problem(candidate.start, error)),
        };
        let content = content_of(head, &*candidate.bytes, &candidate.name, &self.names.preferred);
        let content = content.map_err(|error| walk.problem(candidate.start, error))?;
        let Some(content @ Content::Format(format)) = content else { return Ok(()) };
        let reader = format.reader();
        let undamaged = Undamaged::of(candidate, &self.amount);
        if let Reader::Random(format) = reader {
            let held = limits.held;
            if held < self.options.limits.held && !format.heeds_held() {
                return Ok(receiver.call(Call::PutOff)?);
            }
            let mut format_options = format_options.clone();
            format_options.limits.held = held;
            let why = match why_not_an_archive(format, &undamaged, &format_options) {
                Ok(why) => why,
                Err((_, error)) if is_unsupported(&error) => {
                    self.tell_of_unsupported(candidate, &error);
                    return Ok(());
                }
                Err((_, error)) if is_locked(&error) => {
                    self.tell_of_locked(candidate, &error);
                    return Ok(());
                }
                Err((_, error)) if error.kind() == io::ErrorKind::OutOfMemory => {
                    if held < self.options.limits.held {
                        return Ok(receiver.call(Call::PutOff)?);
                    }
                    Some(not_looked_into(&error))
                }
                Err((at, error)) => return Err(walk.problem(candidate.start.saturating_add(at), error)),
            };
            if let Some(why) = why {
                if self.options.cancel.is_cancelled() {
                    return Err(Problem::Cancelled);
                }
                return Ok(receiver
                    .note(candidate.told_at, format!("{shown}: {why}; it stays a file{}", candidate.may_lack()))?);
            }
        }
        receiver.call(Call::Begin { shows: true })?;
        let members = match reader {
            Reader::Forwards(format) if candidate.pieces.as_deref().is_some_and(are_blocks) => {
                self.in_blocks(candidate, format, &walk, receiver)
            }
            Reader::Forwards(format) => walk.members(format, &mut stream, &candidate.place),
            Reader::Random(format) => {
                self.has_directories.store(true, Ordering::Relaxed);
                walk.random(format, &undamaged, candidate.start, &candidate.place)
            }
            _ => return Ok(receiver.call(Call::End { decoded_length: 0 })?),
        };
        match members {
            Ok(members) if candidate.is_layer => {
                self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).extend(members.unlisted);
            }
            Ok(_) | Err(Problem::NotAnArchive | Problem::Unreadable { .. }) => {}
            // What was found before it is served.
            Err(Problem::Read { offset, error }) if is_damage(&error) => note(offset, &error)?,
            Err(problem) => return Err(problem),
        }
        if !content.compares_content() {
            self.verify(candidate, candidate.length, receiver)?;
        }
        Ok(receiver.call(Call::End { decoded_length: 0 })?)
    }

    /// Reads the members of a candidate that is stored in blocks, also those behind a block that is damaged.
    fn in_blocks(
        &self,
        candidate: &Candidate,
        format: &dyn ReadForwards,
        walk: &Walk<'_>,
        receiver: &dyn Receiver,
    ) -> Result<Members, Problem> {
        let legible = Arc::new(Legible::whole(SharedSource::clone(&candidate.bytes)));
        let stream = SourceStream::new(Arc::clone(&legible) as SharedSource, self.options.cancel.clone());
        let members = walk.members(format, &mut Moved::new(stream, candidate.start), &candidate.place);
        let shown = name::excerpt(&candidate.file.path);
        for (filled, decoded) in candidate.blocks_at(legible.filled()) {
            let read = candidate.bytes.read_at(&mut [0], filled);
            let what = read.err().map_or_else(|| "could not be read".to_owned(), |error| error.to_string());
            let at = candidate.start.saturating_add(decoded.start);
            walk.note_at(at, format!("{shown}: {what}")).map_err(|error| walk.problem(at, error))?;
            let lost_from = decoded.start;
            receiver.damage(Damage { decoded, lost_from, compressed: 0, compressed_from: 0, what })?;
        }
        members
    }

    /// Compares the pieces of the candidate with their checksums, as far as reading it has not done so. If they are
    /// wrong, nobody can tell which of the `decoded` bytes of its stream are.
    fn verify(&self, candidate: &Candidate, decoded: u64, receiver: &dyn Receiver) -> Result<(), Problem> {
        if candidate.pieces.is_none() {
            return Ok(());
        }
        let cancel = &self.options.cancel;
        let verified = candidate.bytes.verify(&|| cancel.is_cancelled());
        let Err(error) = verified.and_then(|()| candidate.bytes.read_at(&mut [0], 0)) else { return Ok(()) };
        if cancel.is_cancelled() {
            return Err(Problem::Cancelled);
        }
        let (shown, what) = (name::excerpt(&candidate.file.path), error.to_string());
        if error.kind() == io::ErrorKind::OutOfMemory {
            // Its pieces are compared when they are read, too.
            return Ok(receiver.note(candidate.told_at, format!("{shown}: not verified: {what}"))?);
        }
        if !is_unreadable(&error) {
            // It may be right the next time: nothing of that belongs into an index.
            return Err(Problem::Read { offset: candidate.told_at, error });
        }
        receiver.note(candidate.told_at, format!("{shown}: {what}"))?;
        let damage = Damage { decoded: 0..decoded, lost_from: decoded, compressed: 0, compressed_from: 0, what };
        Ok(receiver.damage(damage)?)
    }

    fn compressed(
        &self,
        candidate: &Candidate,
        codec: &'static dyn Codec,
        receiver: &dyn Receiver,
        shifts: &RefCell<Shifts>,
        threads: Option<usize>,
    ) -> Result<(), Problem> {
        // Where candidates are read beside each other, each has one thread.
        let walk = Walk {
            left: candidate.most_archives().into(),
            compressed_at: Some(candidate.told_at),
            ..self.walk(receiver, shifts, None, threads.unwrap_or(self.options.decoding.threads))
        };
        let shown = name::excerpt(&candidate.file.path);
        let note = |what: String| receiver.note(candidate.told_at, format!("{shown}: {what}")).map_err(Problem::from);
        let data = candidate.data();
        if !self.amount.add(data) {
            return note(format!("it stays a file: {TOO_MUCH}"));
        }
        // There may be more for one that is read by itself.
        let no_memory = |error: &io::Error| match threads {
            Some(_) => receiver.call(Call::PutOff).map_err(Problem::from),
            None => note(stays_a_file(error)),
        };
        let bytes = candidate.padded();
        let options = tarnfs_codec::Options {
            threads: threads.unwrap_or_else(|| self.options.decoding.threads_for(codec.name())),
            ..self.options.first_pass()
        };
        let indexing = match Indexing::new(codec, bytes, &options) {
            Ok(indexing) => indexing,
            Err(error) if is_damage(&error) => return note(format!("{}: {error}; it stays a file", codec.name())),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return no_memory(&error),
            Err(error) => return Err(walk.problem(candidate.start, error)),
        };
        let room = threads.map(|_| self.large.room());
        let mut stream = DecodingStream::new(indexing, receiver, shifts, &self.options.cancel).within(room);
        if self.options.decoding.force {
            stream = stream.up_to_bad_blocks(&self.unread);
        }
        if candidate.expected.is_some() {
            stream = stream.with_crc();
        }
        if data > self.archive_length {
            // The same blocks, many times.
            stream = stream.up_to(self.amount.left());
        }
        let failed = |at: u64, error: io::Error| walk.problem(at, error);
        // A container's codec adds nothing to the name of a file.
        let inner_name = if candidate.content.is_some() { None } else { without_suffix(&candidate.name) };
        let inner_name = inner_name.unwrap_or_else(|| candidate.name.clone());
        let head = match stream.peek(head_length(&inner_name)).map(<[u8]>::to_vec) {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return no_memory(&error),
            head => head.map_err(|error| failed(0, error))?,
        };
        if let Some((_, error)) = stream.ended_by.take_if(|_| head.is_empty()) {
            return note(format!("{}: {error}; it stays a file", codec.name()));
        }
        let is_file_itself = candidate.content.is_some();
        let mut content = match candidate.content {
            None => self.inner(&head, &inner_name).filter(|_| self.names.goes_below(candidate.place.depth)),
            known => known,
        };
        if let Some(Content::Codec(_)) = content
            && let Some(limit) = self.names.most_layers().filter(|&limit| candidate.place.layers >= limit)
        {
            note(too_many_layers(limit))?;
            content = None;
        }
        if is_file_itself && content.is_none() {
            return Ok(());
        }
        // Whether there is an archive in it that can be read is not known yet: it may stay the file that it is.
        let may_stay =
            is_file_itself && !matches!(content, Some(Content::Format(format)) if format.forwards().is_some());
        receiver.call(Call::Begin { shows: !may_stay })?;
        stream.tell().map_err(|error| failed(0, error))?;
        let outer_head = head_of(&candidate.bytes, HEAD)?;
        let shown_name = stored_name(codec, &outer_head, &self.options.limits).unwrap_or_else(|| inner_name.clone());
        // What was compressed is one archive, and the tar in it another.
        let depth = candidate.place.depth.saturating_add(u32::from(!is_file_itself));
        let place = MemberPlace { depth, ..candidate.place.clone() };
        let forwards = match content {
            Some(Content::Format(format)) => format.forwards(),
            _ => None,
        };
        match (content, forwards) {
            (_, Some(format)) => match walk.members(format, &mut stream, &place) {
                Ok(_) | Err(Problem::NotAnArchive | Problem::Unreadable { .. }) => {
                    stream.skip(u64::MAX).map_err(|error| failed(stream.position, error))?;
                }
                Err(problem) => return Err(problem),
            },
            (Some(content), None) => {
                let secret = walk.may_be_secret(&candidate.place);
                let taken = self.bodies.take(&mut stream, u64::MAX, &shown.to_string(), secret);
                stream.skip(u64::MAX).map_err(|error| failed(stream.position, error))?;
                let length = stream.position;
                let kept = no_room_is_none(taken).map_err(|error| failed(stream.position, error))?;
                // What is damaged is not served, and what comes out of it is nothing that was ever stored.
                let is_whole = stream.damage.is_empty() && !stream.has_shifts();
                match kept.filter(|_| is_whole) {
                    // It stays the file that it is.
                    None => {
                        if is_whole {
                            note(format!("what lies in it stays a file: {NO_ROOM}"))?;
                        }
                        if !is_file_itself {
                            let entry = self.single_file(candidate, &shown_name, stream.length_of_file(length));
                            shifts.borrow_mut().settle(&entry, receiver)?;
                            receiver.entry(&entry)?;
                        }
                    }
                    Some(bytes) => receiver.candidate(Candidate {
                        input: 0,
                        file_in: 0,
                        archive: 0,
                        start: 0,
                        length,
                        bytes,
                        damaged: Vec::new(),
                        pieces: None,
                        split: None,
                        codec: content.codec(),
                        name: inner_name.clone(),
                        makes_folder: is_file_itself && candidate.makes_folder,
                        file: candidate.file.clone(),
                        expected: None,
                        content: None,
                        instead: (!is_file_itself)
                            .then(|| Box::new(self.single_file(candidate, &shown_name, stream.length_of_file(length)))),
                        is_layer: true,
                        place: MemberPlace { layers: place.layers + u32::from(content.codec().is_some()), ..place },
                        told_at: candidate.told_at,
                    })?,
                }
            }
            (None, None) => {
                let (length, hashes) =
                    rest_of(&mut stream, &self.names.hashes).map_err(|error| failed(stream.position, error))?;
                let size = stream.length_of_file(length);
                let mut entry = self.single_file(candidate, &shown_name, size);
                // Those of a part are not those of the file.
                if size == length {
                    entry.xattrs.extend(hashes);
                }
                shifts.borrow_mut().settle(&entry, receiver)?;
                receiver.entry(&entry)?;
            }
        }
        let decoded = stream.indexing.decoded_position();
        let is_as_told = candidate.expected.is_none_or(|(length, crc)| {
            (decoded, stream.crc()) == (length, Some(crc)) || !stream.damage.is_empty() || stream.ended_by.is_some()
        });
        if !is_as_told {
            let what = "it does not have the CRC-32 or the length that the archive says".to_owned();
            note(what.clone())?;
            let damage = Damage { decoded: 0..decoded, lost_from: decoded, compressed: 0, compressed_from: 0, what };
            receiver.damage(damage)?;
        }
        self.amount.add(decoded);
        self.verify(candidate, decoded, receiver)?;
        for (_, what) in stream.told(codec) {
            note(format!("{what}{}", candidate.may_lack()))?;
        }
        Ok(receiver.call(Call::End { decoded_length: decoded })?)
    }

    /// The one file that a compressed one holds.
    fn single_file(&self, candidate: &Candidate, name: &[u8], length: u64) -> Entry {
        let mut entry = Entry {
            path: [candidate.place.prefix.as_slice(), name].concat(),
            header: 0,
            inherits: false,
            body: Body { stored: length, size: length, ..Body::default() },
            ..(*candidate.file).clone()
        };
        self.names.transform(&mut entry);
        entry
    }

    /// What a decoded stream holds, if that is not one file: an archive, or another compressed stream.
    fn inner(&self, head: &[u8], name: &[u8]) -> Option<Content> {
        match content_of_head(head, name, &self.names.preferred)? {
            Content::Codec(codec) => is_certain(codec, head, name, self.names).then_some(Content::Codec(codec)),
            format @ Content::Format(_) => Some(format),
        }
    }
}

/// What is said of compressed data that stays as it is.
pub(super) fn too_many_layers(limit: u32) -> String {
    format!(
        "what lies in {limit} layers of compression stays a file: that is the limit ({} goes further)",
        Setting::RecursionDepth
    )
}

/// True if a decoded stream of that name which begins with `head` is taken for one of `codec`: a short magic number may
/// be chance.
pub(super) fn is_certain(codec: &dyn Codec, head: &[u8], name: &[u8], names: &Names) -> bool {
    const BITS: u32 = 24;
    codec.bid(head) >= BITS || names.stem(name).is_some()
}

/// True if the error lies in the compressed data, which cannot be decoded from there on.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    let of_data = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof, io::ErrorKind::Unsupported];
    of_data.contains(&error.kind()) && error.raw_os_error().is_none()
}

/// What is said of a file that there is no memory to look into: for the next one there is. More may never be had, so
/// it keeps nobody from all else in the archive.
pub(super) fn not_looked_into(error: &io::Error) -> String {
    format!("it could not be looked into: {error}")
}

fn stays_a_file(error: &io::Error) -> String {
    format!("{}; it stays a file", not_looked_into(error))
}
