mod flaws;
mod pass;
mod reading;
mod turns;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tarnfs_source::{SharedSource, Source};

use super::cache::PieceCache;
use super::copied::Copied;
use super::{DecodedSource, Indexing, Table, Workers, lock};
use crate::sync::MutexGuard;
use crate::{ChunkTable, Codec, Damage, DecodeContext, Options, PIECE, Scratch};
use flaws::Flaws;
use pass::{Held, Pass, PassSlot, Room, Tail};
use turns::Turns;

/// A stream of up to so many decoded bytes is decoded at once, and kept as it is while it is open. Longer ones are kept
/// in the cache, which draws on the budget: thousands may be open.
const SHORT: u64 = 64 << 10;

/// One of up to so many bytes is not copied to a file, but decoded again.
const NOT_COPIED: u64 = 4 << 20;

/// Of a longer one, so many bytes are kept behind the place up to which it was decoded: who reads forward asks in
/// pieces, and not quite in order. More than lie between two seek points, if the codec chooses how far these are apart.
const RECENT: usize = 5 << 20;

/// The same of one from which another is decoded in order.
const RECENT_OF_INPUT: usize = 512 << 10;

/// So many bytes are decoded ahead of somebody who reads on in the first pass: less than is kept behind it.
const AHEAD: u64 = 2 << 20;

/// The same where a copy is made.
const AHEAD_INTO_COPY: u64 = 32 << 20;

/// Bytes of memory that a decoder may have before it is paid for.
const UNPAID: usize = 16 << 20;

/// Bytes of memory that threads take which decode ahead, whatever the codec.
const MOST_AHEAD: usize = 128 << 20;

/// A stream of up to so many decoded bytes is decoded and verified before the first of them is served.
const VERIFIED_FIRST: u64 = 16 << 20;

/// Bytes of memory that the seek points of one stream take at most, and the part of the budget that is.
const MOST_POINTS: usize = 32 << 20;
const PART_OF_BUDGET: usize = 4;

/// Where a copy can be made, seek points that are kept from one program to the next are worth more if they are not
/// farther apart, in decoded bytes.
const NEAR: u64 = 32 << 20;

/// Where the table of one stream is kept from one program to the next.
pub trait KeptTable: Send + Sync {
    /// The table, if it is kept. All of it was verified when it was.
    fn load(&self) -> Option<Table>;

    /// Keeps the table of a stream that was verified. Not doing so costs time, and nothing else.
    fn store(&self, table: &Table);
}

/// A compressed stream of which there is no table of seek points.
#[allow(missing_debug_implementations, reason = "a codec has a name and nothing else to show")]
pub struct Unindexed {
    /// What its format is.
    pub codec: &'static dyn Codec,
    /// Its stored bytes.
    pub source: SharedSource,
    /// Bytes that come of it.
    pub length: u64,
    /// Their CRC-32, if it is known.
    pub crc: Option<u32>,
}

/// The decoded bytes of a compressed stream of which there is no table of seek points, but whose length is known: a
/// member of an archive that has a directory.
///
/// It is decoded once, as far as somebody reads, and gets its seek points on the way. From then on it is read as every
/// other stream is ([`DecodedSource`]). If its checksum is known, it is compared at the end: of a long stream, bytes
/// before the last piece are served before that. If it is wrong, all later reads are errors.
///
/// Who asks for bytes that fail a check ([`DecodeContext::unverified`]) gets all that can be decoded, and
/// [`UnindexedSource::complaint`] says what is wrong with it.
pub struct UnindexedSource {
    codec: &'static dyn Codec,
    source: SharedSource,
    length: u64,
    crc: Option<u32>,
    /// A random read takes long, of this or of what it is decoded from.
    is_slow: bool,
    /// What lies before damage is served, as readers compare it themselves.
    is_block: bool,
    options: Options,
    context: DecodeContext,
    cache: Arc<PieceCache>,
    workers: Arc<Workers>,
    /// Has a check of all stored bytes, which is compared at the end as well.
    seal: Option<SharedSource>,
    kept: Option<Arc<dyn KeptTable>>,
    pass: Arc<PassSlot>,
    /// Who has the pass next: else whoever decodes on would have it again and again.
    turns: Turns,
    /// Somebody is decoding ahead.
    is_ahead: AtomicBool,
    /// A copy could not be written.
    cannot_copy: AtomicBool,
    /// What all that was decoded has become.
    done: OnceLock<Done>,
    /// What is wrong with bytes that are served all the same.
    complaint: OnceLock<String>,
    /// What fails a check in a block, while others in it are whole.
    flaws: Flaws,
    /// The byte of a block from which on others may be where bytes should be, as a damaged part before it may have had
    /// another length.
    out_of_step_from: AtomicU64,
    memory: AtomicUsize,
}

/// True of what [`UnindexedSource::no_memory`] makes, also where decoders pass it on.
fn is_no_memory(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
}

/// What came of decoding the next bytes.
#[derive(PartialEq, Eq)]
enum Step {
    More,
    Ended,
    /// There is no memory for the pass now; it was given up.
    NoMemory,
    /// The copy could not be written; the pass was given up.
    LostCopy,
}

enum Done {
    Short(Box<[u8]>),
    Long(Arc<DecodedSource>),
    Copied(Copied),
    /// Its first bytes, and why the others cannot be read.
    Part(Part, io::ErrorKind, String),
    /// Why it cannot be read.
    Wrong(io::ErrorKind, String),
}

/// What lies before damage.
enum Part {
    Seekable(Arc<DecodedSource>),
    /// So many bytes of a copy.
    Copied(Copied, u64),
}

impl Part {
    fn length(&self) -> u64 {
        match self {
            Self::Seekable(decoded) => decoded.len(),
            Self::Copied(_, length) => *length,
        }
    }

    /// Reads from byte `offset` on, which lies before its end.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Seekable(decoded) => decoded.read_at(buffer, offset),
            Self::Copied(copied, length) => {
                let there = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
                copied.read(&mut buffer[..there], offset)
            }
        }
    }
}

impl UnindexedSource {
    /// Of up to so many decoded bytes, none is served before all are verified.
    pub const VERIFIED_FIRST: u64 = VERIFIED_FIRST;

    /// Reads `stream`. What `options` says is as for a first pass.
    pub fn new(
        stream: Unindexed,
        options: Options,
        context: DecodeContext,
        cache: Arc<PieceCache>,
        workers: Arc<Workers>,
    ) -> Self {
        let Unindexed { codec, source, length, crc } = stream;
        let (pass, turns) = (Arc::<PassSlot>::default(), Turns::default());
        cache.may_drop(Arc::downgrade(&pass) as _);
        let (is_ahead, cannot_copy) = (AtomicBool::new(false), AtomicBool::new(false));
        let (done, memory) = (OnceLock::new(), AtomicUsize::new(0));
        let (seal, kept, complaint, flaws) = (None, None, OnceLock::new(), Flaws::default());
        let is_slow = !codec.has_seek_points() || codec.pace().is_slow();
        Self {
            codec,
            source,
            length,
            crc,
            is_slow,
            is_block: false,
            options,
            context,
            cache,
            workers,
            seal,
            kept,
            pass,
            turns,
            is_ahead,
            cannot_copy,
            done,
            complaint,
            flaws,
            out_of_step_from: AtomicU64::new(u64::MAX),
            memory,
        }
    }

    /// Which is decoded from what comes of `inputs`, and of what these are decoded from. Nobody else reads those.
    #[must_use]
    pub fn decoded_from(self, inputs: &[Arc<Self>]) -> Self {
        for input in inputs {
            input.pass.is_input.store(true, Ordering::Relaxed);
        }
        let is_slow = self.is_slow || inputs.iter().any(|input| input.is_slow);
        let inputs = inputs.iter().map(|input| Arc::clone(&input.pass)).collect();
        let pass = Arc::new(PassSlot { inputs, ..PassSlot::default() });
        self.cache.may_drop(Arc::downgrade(&pass) as _);
        Self { is_slow, pass, ..self }
    }

    /// Several files lie in it, each with a checksum of its own: if it is damaged, those before the damage are served.
    #[must_use]
    pub fn of_block(self, is_block: bool) -> Self {
        Self { is_block, ..self }
    }

    /// Of which `seal`, if there is one, is a decrypted input that can tell whether all of its bytes are genuine. A
    /// decoder need not read all that is stored: what an attacker has put before the rest would pass.
    #[must_use]
    pub fn sealed_by(self, seal: Option<SharedSource>) -> Self {
        Self { seal, ..self }
    }

    /// With the table in `kept`, if there is one; else it is put there when all was decoded.
    #[must_use]
    pub fn keeping(self, kept: Option<Arc<dyn KeptTable>>) -> Self {
        Self { kept, ..self }
    }

    /// Takes the table that was kept. True if there is one.
    fn takes_kept(&self) -> bool {
        let kept = self.kept.as_ref().filter(|_| self.codec.has_seek_points());
        let table = kept.and_then(|kept| kept.load());
        // Where there can be no copy they are better than nothing.
        let is_best = |table: &Table| self.is_near(table) || Copied::new(&self.scratch(), self.length).is_none();
        let is_right = |table: &Table| table.decoded_length() == self.length && is_best(table);
        let Some(table) = table.filter(is_right) else { return false };
        self.memory.store(table.memory(), Ordering::Relaxed);
        let _ = self.done.set(Done::Long(self.source_of(table)));
        true
    }

    /// True once all of it was decoded: opening it again would lose that.
    pub fn is_indexed(&self) -> bool {
        matches!(self.done.get(), Some(Done::Long(_) | Done::Copied(_) | Done::Part(..)))
    }

    /// True if there is a copy, of all of it or of what was decoded so far, from which nobody has read for so long.
    /// Waits for nothing.
    pub fn is_idle_copy(&self, idle: Duration) -> bool {
        match self.done.get() {
            Some(Done::Copied(copied) | Done::Part(Part::Copied(copied, _), ..)) => copied.is_idle(idle),
            Some(_) => false,
            None => {
                let is_idle = |pass: &Pass| pass.copied.is_some() && pass.used.elapsed() >= idle;
                self.pass.pass.try_lock().is_ok_and(|held| held.as_deref().is_some_and(is_idle))
            }
        }
    }

    /// Decodes the next bytes of the first pass, for somebody who wants no bytes but to know whether all are right.
    /// False once they are, or are served whatever is wrong ([`UnindexedSource::complaint`]); an error says why not, or
    /// that it could not be done now.
    ///
    /// The caller holds no lock, as for any read.
    pub fn advance(&self) -> io::Result<bool> {
        let mut held = self.next_turn();
        if self.done.get().is_none() {
            match self.step(&mut held)? {
                // Without a copy it is decoded again.
                Step::More | Step::LostCopy => return Ok(true),
                Step::Ended => {}
                Step::NoMemory => return Err(self.no_memory()),
            }
        }
        match self.done.get() {
            Some(Done::Wrong(kind, what)) => Err(io::Error::new(*kind, what.clone())),
            Some(Done::Part(_, kind, what)) if !self.context.unverified => Err(io::Error::new(*kind, what.clone())),
            _ => Ok(false),
        }
    }

    /// True if what lies before damage is served.
    fn serves_part(&self) -> bool {
        self.context.unverified || self.is_checked_by_parts()
    }

    /// True if nothing goes over all of it: what is in it is compared part by part.
    fn is_checked_by_parts(&self) -> bool {
        self.is_block && self.crc.is_none() && self.seal.is_none()
    }

    /// What is wrong with some of these bytes of a block, of which the rest is whole, as far as it was decoded: they
    /// fail a check, and are served to nobody but who asks for such bytes.
    pub fn flaw_in(&self, range: Range<u64>) -> Option<String> {
        if self.is_block { self.flaws.find(&range) } else { None }
    }

    /// What may be wrong with bytes of a block up to `end`, all of which were decoded: they may be others. Who compares
    /// them with a checksum of the container knows better.
    pub fn out_of_step(&self, end: u64) -> Option<&'static str> {
        let is_behind = end > self.out_of_step_from.load(Ordering::Acquire);
        is_behind.then_some("what comes before it in its block is damaged, and may have had another length")
    }

    fn no_memory(&self) -> io::Error {
        self.wrong(io::ErrorKind::OutOfMemory, "there is no memory to decode it")
    }

    /// Somebody reads on at byte `position` for the first time: what follows is decoded on another thread. Waits for
    /// nothing.
    pub fn read_ahead(self: &Arc<Self>, position: u64) {
        if self.done.get().is_some() || self.length <= VERIFIED_FIRST || self.is_ahead.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = Arc::clone(self);
        let is_begun = self.workers.submit(move || {
            let _ahead = Ahead(&this);
            let end = position.saturating_add(AHEAD).min(this.length);
            // Whoever reads there is told what goes wrong.
            while this.position() < end && matches!(this.advance(), Ok(true)) {}
        });
        if !is_begun {
            self.is_ahead.store(false, Ordering::Relaxed);
        }
    }

    /// Somebody reads from the copy of what is decoded: somewhat more is decoded on another thread, as files of one
    /// archive are read one after the other. Waits for nothing.
    pub fn read_ahead_into_copy(self: &Arc<Self>) {
        if self.done.get().is_some() || !self.is_copied() || self.is_ahead.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = Arc::clone(self);
        let is_begun = self.workers.submit(move || {
            let _ahead = Ahead(&this);
            let has_copy = || this.next_turn().as_ref().is_some_and(|pass| pass.copied.is_some());
            let end = this.position().saturating_add(AHEAD_INTO_COPY).min(this.length);
            // Whoever reads there is told what goes wrong: what lies before it is served as before.
            let goes_on = || end == this.length || this.position() < end;
            while has_copy() && goes_on() && matches!(this.advance(), Ok(true)) {}
        });
        if !is_begun {
            self.is_ahead.store(false, Ordering::Relaxed);
        }
    }

    /// Up to where the first pass has come, in decoded bytes: all of them once it has ended.
    pub fn position(&self) -> u64 {
        if self.done.get().is_some() {
            return self.length;
        }
        self.next_turn().as_ref().map_or(0, |pass| pass.indexing.decoded_position())
    }

    /// True once it is known that all is right.
    pub fn is_verified(&self) -> bool {
        let is_whole = matches!(self.done.get(), Some(Done::Short(_) | Done::Long(_) | Done::Copied(_)));
        is_whole && self.complaint().is_none()
    }

    /// What is wrong with it, once that is known, if bytes are served all the same: those before the damage at least.
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.get().map(String::as_str)
    }

    /// The first pass, when it is this one's turn.
    fn next_turn(&self) -> MutexGuard<'_, Option<Box<Pass>>> {
        self.turns.in_turn(|| lock(&self.pass.pass))
    }

    fn wrong(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{}: {what}", self.describe()))
    }

    /// Keeps in mind why it cannot be read, if it is for ever.
    fn failed(&self, error: io::Error) -> io::Error {
        use io::ErrorKind::{InvalidData, PermissionDenied, UnexpectedEof, Unsupported};
        let is_served = self.serves_part() && is_damage(&error);
        if !is_served && matches!(error.kind(), InvalidData | UnexpectedEof | Unsupported | PermissionDenied) {
            let _ = self.done.set(Done::Wrong(error.kind(), error.to_string()));
        }
        error
    }

    /// Bytes that are kept behind the place up to which it was decoded.
    fn recent(&self) -> usize {
        if self.pass.is_input.load(Ordering::Relaxed) { RECENT_OF_INPUT } else { RECENT }
    }

    /// True if what is decoded is copied to a file, if there is one.
    fn is_copied(&self) -> bool {
        // Who reads what comes of an input has a copy of that.
        let is_read_at_random = !self.pass.is_input.load(Ordering::Relaxed);
        // Blocks that stand for themselves are near each other anyway.
        let has_points = self.keeps_points() && self.codec.pace().in_whole_chunks;
        let is_worth_it = self.length > NOT_COPIED && self.is_slow && !has_points;
        is_read_at_random && is_worth_it && !self.cannot_copy.load(Ordering::Relaxed)
    }

    /// True if seek points that are kept from one program to the next may make up for a copy. Of what this is decoded
    /// from none are kept.
    fn keeps_points(&self) -> bool {
        self.kept.is_some() && self.codec.has_seek_points() && self.pass.inputs.is_empty()
    }

    /// True if `table`, of what would be copied, has a seek point not far before each byte. Else a copy is worth more:
    /// where a state takes much memory, as that of a large dictionary, there may be none at all.
    fn is_near(&self, table: &Table) -> bool {
        !self.is_copied() || self.keeps_points() && table.chunks.iter().all(|chunk| chunk.length <= NEAR)
    }

    /// Files for what is decoded. Whatever was said of others, what a password opens is secret.
    fn scratch(&self) -> Scratch {
        let is_secret = self.options.coder.password.is_some();
        if is_secret { self.options.scratch.for_secrets() } else { self.options.scratch.clone() }
    }

    /// A new pass that decodes on so many threads.
    fn begin(&self, threads: usize) -> io::Result<Box<Pass>> {
        let copied = self.is_copied().then(|| Copied::new(&self.scratch(), self.length)).flatten();
        for input in &self.pass.inputs {
            input.needs_no_points.store(copied.is_some(), Ordering::Relaxed);
        }
        let needs_no_points =
            copied.is_some() && !self.keeps_points() || self.pass.needs_no_points.load(Ordering::Relaxed);
        let mut options = Options { threads, ..self.options.clone() };
        if needs_no_points {
            options.seek_point_spacing = u64::MAX;
        }
        let indexing = Indexing::new(self.codec, SharedSource::clone(&self.source), &options);
        let indexing = indexing.map_err(|error| self.wrong(error.kind(), &error.to_string()))?;
        let (table, crc) = (Table::default(), crc32fast::Hasher::new());
        Ok(Box::new(Pass {
            copied,
            indexing,
            table,
            table_memory: 0,
            crc,
            recent: Vec::new(),
            before: None,
            memory: 0,
            asked: 0,
            room: None,
            is_poor: false,
            lost_copy: false,
            used: Instant::now(),
        }))
    }

    /// Decodes the next bytes, from the start if nothing is decoded yet. At the end all is what it should be. Waits for
    /// no memory: the pass must not be held then.
    fn step(&self, held: &mut Option<Box<Pass>>) -> io::Result<Step> {
        let step = self.try_step(held);
        if step.is_err() {
            // Nobody else will.
            self.pass.drop_inputs();
        }
        step
    }

    fn try_step(&self, held: &mut Option<Box<Pass>>) -> io::Result<Step> {
        // If a decoder panics, nothing of its pass is used again.
        let mut pass = match held.take() {
            Some(pass) => pass,
            None if self.takes_kept() => return Ok(Step::Ended),
            None => match self.begin_with_memory()? {
                Some(pass) => pass,
                None => return Ok(self.give_up(None)),
            },
        };
        let holds = Held::new(pass.room.as_ref());
        let decoded = self.decode(&mut pass);
        drop(holds);
        match decoded {
            // There are no seek points, either.
            Ok(_) if pass.lost_copy => {
                self.give_up(Some(pass));
                return Ok(Step::LostCopy);
            }
            Ok(true) if pass.may_go_on(self.recent(), &self.cache) => {
                pass.used = Instant::now();
                self.memory.store(pass.memory, Ordering::Relaxed);
                *held = Some(pass);
                return Ok(Step::More);
            }
            Ok(true) => return Ok(self.give_up(Some(pass))),
            Ok(false) => {}
            // What it is decoded from has no memory. Others may give theirs up.
            Err(error) if is_no_memory(&error) => return Ok(self.give_up(Some(pass))),
            Err(error) => {
                if !self.serves_part() || !is_damage(&error) {
                    return Err(error);
                }
                self.ended_by(&error, *pass);
                return Ok(Step::Ended);
            }
        }
        self.ended(*pass);
        Ok(Step::Ended)
    }

    /// Keeps what lies before the damage that `error` tells of.
    fn ended_by(&self, error: &io::Error, pass: Pass) {
        let Pass { mut table, mut indexing, copied, .. } = pass;
        indexing.end();
        indexing.take_chunks(&mut table.chunks);
        let (part, memory) = if let Some(mut copied) = copied {
            copied.finish();
            let is_lost = |damage: &&Damage| !self.is_served(damage);
            let lost = table.damage.iter().filter(is_lost).map(|damage| damage.decoded.start).min();
            let length = lost.unwrap_or(u64::MAX).min(copied.length());
            self.pass.drop_inputs();
            (Part::Copied(copied, length), 0)
        } else {
            let memory = table.memory();
            (Part::Seekable(self.source_of_new(table)), memory)
        };
        self.memory.store(memory, Ordering::Relaxed);
        let _ = self.complaint.set(error.to_string());
        let _ = self.done.set(Done::Part(part, error.kind(), error.to_string()));
    }

    /// True of damage that only fails a check, where that is served: all bytes are there.
    fn is_served(&self, damage: &Damage) -> bool {
        self.context.unverified && damage.lost_from >= damage.decoded.end
    }

    /// A new pass, which has as much memory as one wanted that was given up; `None` if there is not so much now.
    fn begin_with_memory(&self) -> io::Result<Option<Box<Pass>>> {
        let reserved = lock(&self.pass.reserved).take();
        let reserved = match reserved {
            Some((room, memory)) => Some((Some(room), memory)),
            None => self.pass.reserve(&self.cache).map_err(|error| self.wrong(error.kind(), &error.to_string()))?,
        };
        let Some((mut room, mut memory)) = reserved else { return Ok(None) };
        // Threads that decode ahead take much before the first byte comes.
        let of_threads = MOST_AHEAD.min(self.cache.budget().limit() / 2);
        if self.options.threads > 1
            && room.is_none()
            && let Some(grant) = self.cache.take(of_threads)
        {
            (room, memory) = (Some(Room::granted(grant)), of_threads);
        }
        let threads = if memory >= of_threads { self.options.threads } else { 1 };
        // Some codecs read when they begin, and what they are decoded from has no memory for that.
        let holds = Held::new(room.as_ref());
        let begun = self.begin(threads);
        drop(holds);
        let mut pass = match begun {
            Err(error) if is_no_memory(&error) => return Ok(None),
            begun => begun?,
        };
        (pass.memory, pass.room) = (memory, room);
        // Some decoders take much before the first byte.
        if pass.indexing.memory() > UNPAID && !pass.is_paid_for(0, &self.cache) {
            self.pass.wanted.fetch_max(pass.wanted(), Ordering::Relaxed);
            return Ok(None);
        }
        Ok(Some(pass))
    }

    /// Ends `pass`, and those that it is decoded from, for want of memory.
    fn give_up(&self, pass: Option<Box<Pass>>) -> Step {
        if let Some(pass) = &pass {
            self.pass.wanted.fetch_max(pass.wanted(), Ordering::Relaxed);
        }
        drop(pass);
        self.pass.drop_inputs();
        self.memory.store(0, Ordering::Relaxed);
        Step::NoMemory
    }

    fn decode(&self, pass: &mut Pass) -> io::Result<bool> {
        let filled = pass.recent.len();
        if filled == 0 && self.length <= VERIFIED_FIRST {
            // Else it would take twice as much.
            pass.recent.reserve_exact(self.length as usize + PIECE);
        }
        pass.recent.resize(filled + PIECE, 0);
        let read = pass.indexing.read(&mut pass.recent[filled..]);
        let position = pass.indexing.decoded_position();
        pass.recent.truncate(filled + *read.as_ref().unwrap_or(&0));
        let most = MOST_POINTS.min(self.cache.budget().limit() / PART_OF_BUDGET);
        let needs_points = !pass.is_poor && (pass.copied.is_none() || self.keeps_points());
        pass.take_chunks(self.length, if needs_points { most } else { 0 });
        pass.indexing.take_damage(&mut pass.table.damage);
        // Also what is told with an error, of bytes before it.
        let mut shifts = Vec::new();
        pass.indexing.take_shifts(&mut shifts);
        if self.is_checked_by_parts() {
            pass.table.damage.retain(|damage| !self.flaws.take(damage, &self.cache));
            if let Some(shift) = shifts.into_iter().min() {
                self.out_of_step_from.fetch_min(shift, Ordering::AcqRel);
            }
        }
        let read = read.map_err(|error| {
            // The disk may let it be read later.
            let is_of_disk = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_some();
            if is_no_memory(&error) || is_of_disk {
                return error;
            }
            let what = format!("it cannot be decoded from its byte {position} on: {error}");
            self.failed(self.wrong(error.kind(), &what))
        })?;
        pass.crc.update(&pass.recent[filled..]);
        if let Some(copied) = &mut pass.copied
            && let Err(error) = copied.add(&pass.recent[filled..])
        {
            log::info!("{}: it is not copied, and decoded again: {error}", self.describe());
            self.cannot_copy.store(true, Ordering::Relaxed);
            (pass.copied, pass.lost_copy) = (None, true);
        }
        // What concerns no byte, such as something else behind the compressed data, says nothing of those that are
        // there: their checksum does.
        if self.crc.is_some() {
            pass.table.damage.retain(|damage| !damage.decoded.is_empty());
        }
        if let Some(damage) = pass.table.damage.iter().find(|damage| self.is_served(damage)) {
            let _ = self.complaint.set(damage.what.clone());
        }
        // One is enough, and there may be any number.
        pass.table.damage.retain(|damage| !self.is_served(damage));
        if let Some(damage) = pass.table.damage.iter().find(|damage| !self.is_served(damage)) {
            return Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &damage.what)));
        }
        if position > self.length || read == 0 && position < self.length {
            let what = format!(
                "what is stored decodes to {} bytes, not to the {} that the archive says",
                position, self.length
            );
            return Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &what)));
        }
        // What is verified before it is served is kept until then, if there is memory: else it is decoded again.
        let most = if self.length <= SHORT || self.length <= VERIFIED_FIRST && pass.is_paid_for(0, &self.cache) {
            usize::MAX
        } else {
            self.recent()
        };
        if pass.recent.len() > most.saturating_add(1 << 20) {
            let gone = pass.recent.len() - most;
            pass.recent.drain(..gone);
            pass.recent.shrink_to(2 * most);
        }
        if read > 0 {
            return Ok(true);
        }
        let crc = std::mem::take(&mut pass.crc).finalize();
        let what = match self.crc {
            Some(expected) if expected != crc => {
                format!("its CRC-32 is {crc:08x}, not {expected:08x} as the archive says: it is damaged")
            }
            _ => match self.check_seal() {
                Ok(()) => return Ok(false),
                Err(error) if is_damage(&error) => error.to_string(),
                Err(error) => return Err(error),
            },
        };
        if self.context.unverified {
            let _ = self.complaint.set(what);
            return Ok(false);
        }
        Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &what)))
    }

    /// Has the seal compared, whether all that is stored was read or not.
    fn check_seal(&self) -> io::Result<()> {
        let Some(seal) = self.seal.as_ref().filter(|seal| seal.len() > 0) else { return Ok(()) };
        seal.verify(&|| self.options.cancel.is_cancelled())?;
        // If readers are told, they are told now.
        seal.read_exact_at(&mut [0], 0)
    }

    /// Keeps what all of it is: the pass has come to the end, and nothing is wrong.
    fn ended(&self, pass: Pass) {
        let Pass { table, table_memory, mut recent, mut room, copied, .. } = pass;
        // Where seek points are kept from one program to the next and are near, they are worth more than a copy.
        let copied = copied.filter(|_| !self.is_near(&table));
        let (done, memory) = if let Some(mut copied) = copied {
            copied.finish();
            drop(recent);
            (Done::Copied(copied), 0)
        } else if self.length <= SHORT {
            recent.shrink_to_fit();
            (Done::Short(recent.into()), self.length as usize)
        } else {
            let is_kept = self.codec.has_seek_points() && self.complaint().is_none();
            if let Some(kept) = self.kept.as_ref().filter(|_| is_kept) {
                kept.store(&table);
            }
            let decoded = self.source_of_new(table);
            if recent.len() as u64 == self.length {
                decoded.keep_all(&recent);
            } else if self.pass.is_input.load(Ordering::Relaxed) {
                // Whoever decodes on from it has yet to read that.
                recent.shrink_to_fit();
                let from = self.length - recent.len() as u64;
                // Of what the pass was given it needs little.
                let of_tail = self.cache.take(recent.len()).map(Room::granted).or_else(|| room.take());
                *lock(&self.pass.tail) = Some(Tail { from, bytes: std::mem::take(&mut recent), _room: of_tail });
            }
            drop(recent);
            (Done::Long(decoded), table_memory)
        };
        // As long as both are there.
        drop(room);
        // Of what lies behind the last byte that was wanted nobody reads more.
        self.pass.drop_inputs();
        self.memory.store(memory, Ordering::Relaxed);
        let _ = self.done.set(done);
    }

    /// The same with a table that is in no index.
    fn source_of_new(&self, table: Table) -> Arc<DecodedSource> {
        let decoded = self.source_of(table);
        decoded.of_new_table();
        decoded
    }

    fn source_of(&self, table: Table) -> Arc<DecodedSource> {
        let (source, table) = (SharedSource::clone(&self.source), Arc::new(table));
        let (cache, workers) = (Arc::clone(&self.cache), Arc::clone(&self.workers));
        let decoded = DecodedSource::new(self.codec, source, table, cache, workers, self.options.limits);
        decoded.give(self.context.clone());
        decoded
    }
}

/// Decodes ahead of the readers of a stream, until it is dropped: also if a decoder panics.
struct Ahead<'s>(&'s UnindexedSource);

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.0.is_ahead.store(false, Ordering::Relaxed);
    }
}

/// True of what is wrong with the bytes themselves.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl fmt::Debug for UnindexedSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UnindexedSource").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
