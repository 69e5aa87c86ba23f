use std::fmt;
use std::io;
use std::ops::{AddAssign, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tarnfs_source::{Limits, Setting, SharedSource, Source};

use super::answered::Answered;
use super::cache::PieceCache;
use super::chunks::{Chunks, PiecePlace};
use super::decoded_file::{DecodedFile, Found};
use super::fill::{is_slow, note_read};
use super::in_flight::{InFlight, RunGuard, Task, Turn};
use super::memory_gate::{Expected, GatePass, Memory};
use super::missed::Missed;
use super::pool::Piece;
use super::proof::{NOT_VERIFIED, Proofs, Prover};
use super::sequence::Sequences;
use super::workers::Workers;
use super::{checksum, lock};
use crate::sync::Mutex;
use crate::{Chunk, ChunkTable, Codec, Damage, DecodeContext, Decoder};

/// The decoded bytes of a compressed stream.
///
/// A read looks for its pieces in the cache. Where one is missing, a paused decoder of the chunk that stands before it
/// goes on, or the codec resumes at the chunk's seek point; it stops again as soon as the wanted piece is there. Each
/// piece is compared with its checksum before anybody sees it. For readers that go forward, what follows is decoded
/// ahead on the workers. What is decoded at this moment is waited for, never decoded a second time beside it.
#[derive(Debug)]
pub struct DecodedSource {
    pub(super) inner: Arc<Inner>,
}

/// What a [`DecodedSource`] has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pieces that a read found in the cache.
    pub hits: u64,
    /// Pieces that a read had to decode or to wait for.
    pub misses: u64,
    /// Bytes decoded, those that no read asked for among them.
    pub decoded_bytes: u64,
    /// Pieces decoded ahead of a reader.
    pub prefetched: u64,
    /// Decoders started at a seek point.
    pub resumes: u64,
    /// Pieces read from a [`DecodedFile`].
    pub kept: u64,
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        let Self { hits, misses, decoded_bytes, prefetched, resumes, kept } = other;
        self.hits += hits;
        self.misses += misses;
        self.decoded_bytes += decoded_bytes;
        self.prefetched += prefetched;
        self.resumes += resumes;
        self.kept += kept;
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, misses, decoded_bytes, prefetched, resumes, kept } = self;
        let decoded = misses.saturating_sub(*kept);
        write!(
            formatter,
            "{decoded_bytes} bytes decoded from {resumes} seek points; pieces: {hits} found in memory, {kept} read \
             from the cache on disk, {decoded} decoded or waited for, {prefetched} decoded ahead",
        )
    }
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    decoded_bytes: AtomicU64,
    prefetched: AtomicU64,
    resumes: AtomicU64,
    kept: AtomicU64,
}

impl Counters {
    /// What has been counted so far.
    fn statistics(&self) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self { hits, misses, decoded_bytes, prefetched, resumes, kept } = self;
        Statistics {
            hits: of(hits),
            misses: of(misses),
            decoded_bytes: of(decoded_bytes),
            prefetched: of(prefetched),
            resumes: of(resumes),
            kept: of(kept),
        }
    }
}

pub(super) struct Inner {
    pub(super) codec: &'static dyn Codec,
    pub(super) source: SharedSource,
    pub(super) chunks: Chunks,
    pub(super) length: u64,
    pub(super) cache: Arc<PieceCache>,
    /// Our number in the cache; another one as soon as a table without checksums is verified.
    stream: AtomicU64,
    pub(super) workers: Arc<Workers>,
    pub(super) limits: Limits,
    /// What its decoders may need beside it.
    decode_context: OnceLock<DecodeContext>,
    /// What need not be decoded, and our number in it.
    kept: OnceLock<Arc<DecodedFile>>,
    pub(super) kept_as: u64,
    /// What may be kept in it of what random reads decode.
    pub(super) missed: Arc<Missed>,
    /// Something in it was wrong.
    kept_is_wrong: AtomicBool,
    pub(super) in_flight: InFlight,
    /// How many decoders a decoder of it reads through.
    pub(super) depth: usize,
    /// What its decoders need while they work, and those that verify chunks.
    pub(super) expected: Expected,
    pub(super) expected_to_prove: Expected,
    /// What is known where the table has no checksums.
    pub(super) proofs: Proofs,
    /// Some of it can be verified only with the whole, and readers do not wait for that.
    pub(super) has_unprovable: bool,
    /// Called where nothing is known.
    pub(super) prover: OnceLock<Arc<dyn Prover>>,
    pub(super) sequences: Mutex<Sequences>,
    /// Length of the chunk that was last decoded from.
    pub(super) chunk_length: AtomicU64,
    /// True if nothing in the stream is damaged; asked for once.
    undamaged: OnceLock<bool>,
    /// Nobody reads any more: work ahead ends.
    pub(super) closed: AtomicBool,
    /// The table was made in this process, and is in no index.
    has_no_index: AtomicBool,
    counters: Counters,
}

/// Said of bytes that do not have the checksum in the table.
const WRONG: &str = "the archive differs from its index there: it was changed after it was indexed, or is damaged";

/// The same where the table is in no index.
const CHANGED: &str = "it decodes to other bytes than before: it was changed meanwhile, or is damaged";

/// What to do where an index does not fit.
fn what_to_do() -> String {
    format!("checking the archive reads all of it, and {} makes a new index", Setting::RecreateIndex)
}

/// For whom something is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A read that goes on where another one has ended.
    Sequential,
    Random,
    /// A read that may come.
    Ahead,
}

/// A decoder and the byte at which it stands; none if it has yet to be resumed at the chunk's start.
type Begun = (u64, Option<Box<dyn Decoder>>);

impl DecodedSource {
    /// Reads `source`, in the format of `codec`, through the seek points in `table`, which must not change any more.
    pub fn new(
        codec: &'static dyn Codec,
        source: SharedSource,
        table: Arc<dyn ChunkTable>,
        cache: Arc<PieceCache>,
        workers: Arc<Workers>,
        limits: Limits,
    ) -> Arc<Self> {
        let (length, stream) = (table.decoded_length(), cache.new_stream());
        let (source, answers) = Answered::around(source);
        let missed = Arc::new(Missed::new(cache.budget().clone(), cache.missed.clone()));
        let mut inner = Inner {
            codec,
            length,
            chunks: Chunks::new(table, &source, stream, &cache.chunks),
            depth: source.depth(),
            source,
            stream: AtomicU64::new(stream),
            expected: Expected::of(&answers),
            expected_to_prove: Expected::of(&answers),
            proofs: Proofs::default(),
            has_unprovable: false,
            prover: OnceLock::new(),
            cache,
            workers,
            limits,
            decode_context: OnceLock::new(),
            kept: OnceLock::new(),
            kept_as: 0,
            missed,
            kept_is_wrong: AtomicBool::new(false),
            in_flight: InFlight::default(),
            sequences: Mutex::default(),
            chunk_length: AtomicU64::new(0),
            undamaged: OnceLock::new(),
            closed: AtomicBool::new(false),
            has_no_index: AtomicBool::new(false),
            counters: Counters::default(),
        };
        inner.has_unprovable = inner.find_unprovable();
        Arc::new(Self { inner: Arc::new(inner) })
    }

    /// From now on decoders get this, where they need it.
    pub fn give(&self, context: DecodeContext) {
        // It is given once, before anything is read.
        let _ = self.inner.decode_context.set(context);
    }

    /// Its table was made in this process: nobody is told to make an index again.
    pub(super) fn of_new_table(&self) {
        self.inner.has_no_index.store(true, Ordering::Relaxed);
    }

    /// From now on pieces are read from `file` where it has them. What is in it need not be trusted: only what has the
    /// checksum in the table is served.
    pub fn read_from(&self, file: Arc<DecodedFile>) {
        // A second one is no better.
        let _ = self.inner.kept.set(file);
    }

    /// Keeps the pieces of it in the cache, as far as there is room: `all` is what comes out of the whole stream, and
    /// was verified by whoever has decoded it.
    pub(super) fn keep_all(&self, all: &[u8]) {
        let Inner { cache, chunks, length, .. } = &*self.inner;
        let mut at = 0;
        while at < (*length).min(all.len() as u64) {
            let Ok(Some(chunk)) = chunks.look(at) else { return };
            let place = PiecePlace::of(&chunk, at);
            let Some(bytes) = all.get(place.start as usize..place.end() as usize) else { return };
            if place.end() <= at {
                return;
            }
            let mut piece = cache.pool.piece(bytes.len());
            piece.copy_from_slice(bytes);
            cache.insert(self.inner.stream(), place.start, &Arc::new(piece));
            at = place.end();
        }
    }

    /// What has been done so far.
    pub fn statistics(&self) -> Statistics {
        self.inner.counters.statistics()
    }
}

impl Drop for DecodedSource {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        // Here, not only where the last owner is: that may be a thread that gets the processor very late.
        self.inner.cache.forget(self.inner.stream());
    }
}

impl Source for DecodedSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, self.inner.length)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let wanted = self.inner.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let range = offset..offset + wanted as u64;
        let was_whole = self.inner.proofs.is_whole();
        note_read();
        self.inner.check_undamaged(&range)?;
        let advice = lock(&self.inner.sequences).note(&range, end, self.inner.most_ahead());
        let (context, after) = self.inner.split(&range, &advice.ahead);
        Inner::schedule(&self.inner, context, false);
        let mut done = 0;
        while done < wanted {
            let position = offset + done as u64;
            let (start, piece) = self.inner.piece_at(position..range.end, advice.sequential)?;
            let rest = piece.get((position - start) as usize..).unwrap_or_default();
            let length = rest.len().min(wanted - done);
            if length == 0 {
                return Err(self.inner.invalid(position, "the piece that holds it is too short"));
            }
            buffer[done..done + length].copy_from_slice(&rest[..length]);
            done += length;
        }
        if !was_whole && self.inner.proofs.is_whole() {
            // Found meanwhile.
            self.inner.check_undamaged(&range)?;
        }
        Inner::schedule(&self.inner, after, false);
        if !advice.behind.is_empty() {
            self.inner.cache.leave(self.inner.stream(), advice.behind);
        }
        Ok(wanted)
    }

    fn is_unproven(&self) -> bool {
        self.is_itself_unproven() || self.inner.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.inner.source.verify(is_abandoned)?;
        match self.inner.prover.get() {
            Some(prover) if self.is_itself_unproven() => prover.wait(is_abandoned),
            _ => Ok(()),
        }
    }

    fn len(&self) -> u64 {
        self.inner.length
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn depth(&self) -> usize {
        self.inner.depth + 1
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let end = self.inner.length.min(offset.saturating_add(length.min(self.inner.most_ahead())));
        Inner::schedule(&self.inner, offset..end, true);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let end = self.inner.length.min(offset.saturating_add(length as u64));
        let mut position = offset;
        while position < end {
            match self.inner.cache.end_of_piece_at(self.inner.stream(), position) {
                Some(next) => position = next,
                None => return false,
            }
        }
        true
    }
}

impl Inner {
    /// What decoders may need beside the stream.
    pub(super) fn decode_context(&self) -> DecodeContext {
        let given = self.decode_context.get().cloned().unwrap_or_default();
        DecodeContext { limits: self.limits, ..given }
    }

    /// Our number in the cache.
    pub(super) fn stream(&self) -> u64 {
        self.stream.load(Ordering::Acquire)
    }

    /// Gives it another number in the cache, so that what is there is not found any more, nor what is still put there
    /// under the old number. Returns that.
    pub(super) fn renumber(&self) -> u64 {
        self.stream.swap(self.cache.new_stream(), Ordering::AcqRel)
    }

    /// True if nobody reads any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn describe(&self) -> String {
        format!("the decoded data of {}", self.source.describe())
    }

    /// An error about the decoded byte `position`.
    pub(super) fn invalid(&self, position: u64, what: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("byte {position} of {}: {what}{}", self.describe(), self.advice()),
        )
    }

    /// What to do about it, behind what is wrong.
    fn advice(&self) -> String {
        if self.has_no_index.load(Ordering::Relaxed) { String::new() } else { format!("; {}", what_to_do()) }
    }

    /// What is said of bytes that do not have the checksum in the table.
    fn other_bytes(&self) -> &'static str {
        if self.has_no_index.load(Ordering::Relaxed) { CHANGED } else { WRONG }
    }

    /// An error of a decoder at the decoded byte `position`, where the index knows of no damage.
    fn differs(&self, error: &io::Error, position: u64) -> io::Error {
        let is_of_data = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
        let context = self.context(error, "decoding", position);
        // What was found at first is known of a table that is new, and is told with the block or the frame.
        if !is_of_data || self.has_no_checksums(position) || self.has_no_index.load(Ordering::Relaxed) {
            return context;
        }
        io::Error::new(error.kind(), format!("{context}; {WRONG}; {}", what_to_do()))
    }

    /// True if the table cannot tell what was decoded there when it was made.
    fn has_no_checksums(&self, position: u64) -> bool {
        let chunk = self.chunk_at(position.min(self.length.saturating_sub(1)));
        chunk.map_or(true, |chunk| chunk.checksums.is_empty())
    }

    /// Says of an error where it came up; its kind remains.
    pub(super) fn context(&self, error: &io::Error, doing: &str, position: u64) -> io::Error {
        io::Error::new(error.kind(), format!("{doing} byte {position} of {}: {error}", self.describe()))
    }

    fn check_undamaged(&self, range: &Range<u64>) -> io::Result<()> {
        let undamaged = if let Some(&known) = self.undamaged.get() {
            known
        } else {
            let none = self.chunks.table().damage_in(0..self.length)?.is_none();
            *self.undamaged.get_or_init(|| none)
        };
        let mut damage = self.proofs.damage_in(range);
        if damage.is_none() && !undamaged {
            let table = self.chunks.table();
            let is_forced = self.decode_context.get().is_some_and(|context| context.unverified);
            damage = if is_forced { table.lost_in(range.clone())? } else { table.damage_in(range.clone())? };
        }
        let Some(damage) = damage else { return Ok(()) };
        let Damage { decoded: Range { start, end }, compressed, what, .. } = damage;
        let found = match compressed {
            0 => String::new(),
            byte => format!(", found at byte {byte} of the compressed file"),
        };
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("bytes {start} to {end} of {} are damaged: {what}{found}", self.describe()),
        ))
    }

    /// The piece that holds the first byte of what is `wanted`, with where it starts.
    fn piece_at(&self, wanted: Range<u64>, sequential: bool) -> io::Result<(u64, Arc<Piece>)> {
        let position = wanted.start;
        if let Some(hit) = self.cache.get(self.stream(), position, !sequential) {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(hit);
        }
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let chunk = self.proven(self.chunk_at(position)?, position)?;
        let place = PiecePlace::of(&chunk, position);
        if let Some(piece) = self.kept_piece(&chunk, place) {
            return Ok((place.start, piece));
        }
        let task = Task { chunk: chunk.point.decoded, start: place.start, end: place.end() };
        // Chunks that overlap, as a lying index may have them, have pieces that do not begin where this one does.
        let is_it = |(start, _): &(u64, _)| *start == place.start;
        let cached = || self.cache.get(self.stream(), place.start, !sequential).filter(is_it).map(|(_, piece)| piece);
        let last = PiecePlace::of(&chunk, wanted.end.min(chunk.point.decoded + chunk.length) - 1).start;
        let piece = loop {
            if let Some(piece) = self.in_flight.wait(task, last, cached) {
                break self.compared(piece, &chunk, place)?;
            }
            // A decoder has its pass before others can wait for it: who holds a pass of a deeper stream may be among
            // them.
            let pass = self.cache.gate.enter(self.depth, &self.expected, wanted.end.saturating_sub(task.chunk));
            match self.in_flight.begin(task, cached, || self.pick(task)) {
                Turn::Ready(piece) => break self.compared(piece, &chunk, place)?,
                Turn::OnItsWay => drop(pass),
                Turn::Decode(run, begun) => {
                    let purpose = if sequential { Purpose::Sequential } else { Purpose::Random };
                    break self.decode(&chunk, task, &run, begun, pass, purpose)?;
                }
            }
        };
        Ok((place.start, piece))
    }

    /// A piece that another reader has decoded: in a stream that is verified late, perhaps before its checksum was
    /// known.
    fn compared(&self, piece: Arc<Piece>, chunk: &Chunk, place: PiecePlace) -> io::Result<Arc<Piece>> {
        match chunk.checksums.get(place.index) {
            Some(&known) if self.has_unprovable && known != checksum(&piece, place.start) => {
                Err(self.invalid(place.start, self.other_bytes()))
            }
            _ => Ok(piece),
        }
    }

    /// A piece out of the [`DecodedFile`], if there is one and it is right; it is in the cache then.
    pub(super) fn kept_piece(&self, chunk: &Chunk, place: PiecePlace) -> Option<Arc<Piece>> {
        let kept = self.kept.get()?;
        let expected = *chunk.checksums.get(place.index)?;
        if !kept.has(self.kept_as, place.start, expected, place.length) {
            return None;
        }
        let mut piece = self.cache.pool.piece(place.length);
        match kept.read(self.kept_as, place.start, expected, &mut piece) {
            Found::Piece => {}
            Found::Nothing => return None,
            Found::Wrong => {
                if !self.kept_is_wrong.swap(true, Ordering::Relaxed) {
                    log::info!(
                        "{}: what was kept of it on disk is wrong at byte {}, and is decoded again",
                        self.describe(),
                        place.start
                    );
                }
                return None;
            }
        }
        self.counters.kept.fetch_add(1, Ordering::Relaxed);
        let piece = Arc::new(piece);
        self.cache.insert(self.stream(), place.start, &piece);
        Some(piece)
    }

    pub(super) fn chunk_at(&self, position: u64) -> io::Result<Arc<Chunk>> {
        self.chunks
            .at(position)
            .map_err(|error| self.context(&error, "looking up the seek point before", position))?
            .ok_or_else(|| self.invalid(position, "the index has no seek point for it"))
    }

    /// The decoder nearest before a task's first piece, and where it stands.
    fn pick(&self, task: Task) -> (u64, Option<Box<dyn Decoder>>) {
        match self.cache.paused.take(self.stream(), task.chunk..=task.start) {
            Some((position, decoder)) => (position, Some(decoder)),
            None => (task.chunk, None),
        }
    }

    /// Decodes to the run's end, pauses the decoder there and returns the last piece.
    ///
    /// Pieces passed over go into the cache, too, but only the last ones before the end: those that lie far behind
    /// are no likelier to be wanted than what they would push out.
    pub(super) fn decode(
        &self,
        chunk: &Chunk,
        task: Task,
        run: &RunGuard<'_>,
        begun: Begun,
        mut pass: GatePass<'_>,
        purpose: Purpose,
    ) -> io::Result<Arc<Piece>> {
        let ahead = purpose == Purpose::Ahead;
        let is_missed = purpose == Purpose::Random
            && self.missed.is_wanted()
            && !chunk.checksums.is_empty()
            && is_slow(self.codec, chunk);
        if is_missed {
            self.missed.put_chunk(chunk.point.decoded);
        }
        let (mut position, decoder) = begun;
        let mut first = decoder.is_some().then_some(0);
        self.chunk_length.store(chunk.length, Ordering::Relaxed);
        let mut decoder = if let Some(decoder) = decoder {
            decoder
        } else {
            let mut decoder = self.resume(chunk)?;
            // Where there are checksums, those of the format are not needed.
            if task.start > position && !chunk.checksums.is_empty() {
                let skipped = decoder.skip(task.start - position);
                if skipped.map_err(|error| self.differs(&error, task.start))? {
                    // Who waits for what was left out decodes it.
                    run.advance(position, None, task.start);
                    position = task.start;
                }
            }
            decoder
        };
        let most_behind = (self.cache.share() / 8) as u64;
        let chunk_end = chunk.point.decoded + chunk.length;
        let mut end = run.end();
        loop {
            let place = PiecePlace::of(chunk, position);
            let mut piece = self.cache.pool.piece(place.length);
            self.fill(&mut *decoder, &mut piece, place.start)?;
            let piece = Arc::new(piece);
            position = place.end();
            let left = end.min(chunk_end).saturating_sub(position);
            let (last, most) = (decoder.memory_after(left), decoder.memory_after(u64::MAX));
            // One that was paused does not tell what others begin with.
            let first = *first.get_or_insert_with(|| decoder.memory());
            pass.holds(Memory { first, last, most });
            if ahead {
                self.counters.prefetched.fetch_add(1, Ordering::Relaxed);
            }
            let found = checksum(&piece, place.start);
            // Asked for before what is known: what was not verified stays behind under the old number.
            let stream = self.stream();
            let known = chunk.checksums.get(place.index).copied();
            let was_whole = self.proofs.is_whole();
            let expected = known.or_else(|| self.proofs.checksum(chunk.point.decoded, place.index));
            let right = expected.map_or(!was_whole, |expected| expected == found);
            // A wrong piece that is only passed over is not this reader's error; whoever wants it finds it again.
            if !right && position >= end && !ahead {
                let what = match expected {
                    Some(_) => self.other_bytes(),
                    None => NOT_VERIFIED,
                };
                return Err(self.invalid(place.start, what));
            }
            if position == self.length && chunk.checksums.is_empty() {
                self.check_ended(&mut *decoder)?;
            }
            let was_verified_meanwhile = expected.is_none() && self.proofs.is_whole();
            let keep = right
                && !was_verified_meanwhile
                && (end.saturating_sub(position) <= most_behind || run.is_awaited(place.start));
            if is_missed
                && right
                && let (Some(known), Some(kept)) = (known, self.kept.get())
                && !kept.has(self.kept_as, place.start, known, place.length)
                && self.missed.put_piece(place.start, known, &piece)
            {
                self.missed.keep_soon(&self.workers, self.kept_as);
            }
            if keep {
                self.cache.insert(stream, place.start, &piece);
            }
            end = run.advance(place.start, keep.then_some(&piece), position);
            if position >= end.min(chunk_end) {
                // One that is out of step would give the next reader more wrong pieces.
                if right {
                    self.pause(position, chunk_end, decoder);
                }
                return Ok(piece);
            }
            if ahead && self.closed.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn resume(&self, chunk: &Chunk) -> io::Result<Box<dyn Decoder>> {
        self.counters.resumes.fetch_add(1, Ordering::Relaxed);
        self.new_decoder(chunk)
    }

    /// A decoder at the chunk's start.
    pub(super) fn new_decoder(&self, chunk: &Chunk) -> io::Result<Box<dyn Decoder>> {
        self.codec
            .resume(Arc::clone(&self.source), &chunk.point, &self.decode_context())
            .map_err(|error| self.context(&error, "resuming at", chunk.point.decoded))
    }

    /// Fills `piece`, which starts at `start`, from the decoder.
    pub(super) fn fill(&self, decoder: &mut dyn Decoder, piece: &mut [u8], start: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < piece.len() {
            let position = start + filled as u64;
            let rest = &mut piece[filled..];
            match decoder.read(rest) {
                Ok(0) => return Err(self.invalid(position, "the stream ends there, the index says that it goes on")),
                Ok(read) if read > rest.len() => {
                    return Err(self.invalid(position, "the decoder returned more than was asked for"));
                }
                Ok(read) => filled += read,
                Err(error) => return Err(self.differs(&error, position)),
            }
        }
        self.counters.decoded_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Nothing may follow the last chunk. Asked only where there are no checksums to say that it is right; an
    /// error behind the end is what ended the first pass, and no error here.
    fn check_ended(&self, decoder: &mut dyn Decoder) -> io::Result<()> {
        match decoder.read(&mut [0]) {
            Ok(1..) => Err(self.invalid(self.length, "the stream goes on there, the index says that it ends")),
            _ => Ok(()),
        }
    }

    /// Keeps a decoder for the next reader, unless what follows is there or on its way already.
    fn pause(&self, position: u64, chunk_end: u64, decoder: Box<dyn Decoder>) {
        let taken_care_of = position == chunk_end
            && (self.cache.end_of_piece_at(self.stream(), position).is_some() || self.in_flight.is_in(position));
        if position < self.length && !taken_care_of {
            self.cache.paused.put(self.stream(), position, decoder);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.cache.forget(self.stream());
        log::debug!("{}: {}", self.describe(), self.counters.statistics());
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Inner")
            .field("codec", &self.codec.name())
            .field("source", &self.source)
            .field("length", &self.length)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
