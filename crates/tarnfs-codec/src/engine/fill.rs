//! Keeping a stream decoded while nobody reads.
//!
//! A [`Fill`] goes through the chunks of a stream in order. What is slow to decode and not in the file of decoded
//! pieces yet it decodes and adds. While somebody reads, it does so only with chunks that random reads had to decode
//! from ([`Missed`](super::missed::Missed)): whoever reads there again finds them whole.
//!
//! Its decoders take memory of the budget. It neither passes through the memory gate nor registers a run. So no reader
//! ever waits for the thread that does this, which may get the processor very late. Where it does, and pieces of random
//! reads wait, a worker writes these (`Missed::keep_soon`): else they would be decoded once more.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tarnfs_source::Grant;

use super::checksum;
use super::chunks::PiecePlace;
use super::decoded::{DecodedSource, Inner};
use super::decoded_file::{DecodedFile, DecodedFileWriter};
use super::keeper::Keeper;
use super::lock;
use super::missed::MissedPiece;
use crate::sync::Mutex;
use crate::{Chunk, Codec, Decoder, PIECE};

/// A random read that takes longer is slow.
pub const SLOW_MILLISECONDS: u64 = 2;

/// Nothing is decoded so long after the last read.
const QUIET: Duration = Duration::from_secs(1);

/// Pieces decoded in one step.
const STEP: usize = 16;

/// A chunk for which there was no memory so often is left out.
const MOST_REFUSALS: u32 = 3;

#[cfg(not(test))]
mod last {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// When somebody has last read from a stream of this process, in milliseconds of the monotonic clock.
    static LAST_READ: AtomicU64 = AtomicU64::new(0);

    pub(super) fn get() -> u64 {
        LAST_READ.load(Ordering::Relaxed)
    }

    pub(super) fn set(now: u64) {
        LAST_READ.store(now, Ordering::Relaxed);
    }
}

/// Tests run beside each other: each has its own.
#[cfg(test)]
mod last {
    use std::cell::Cell;

    thread_local!(static LAST_READ: Cell<u64> = const { Cell::new(0) });

    pub(super) fn get() -> u64 {
        LAST_READ.get()
    }

    pub(super) fn set(now: u64) {
        LAST_READ.set(now);
    }
}

/// Milliseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let now: Duration = clock_gettime(ClockId::MonotonicCoarse).try_into().unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Somebody reads: whatever fills files pauses.
pub(super) fn note_read() {
    last::set(now());
}

/// Nobody reads.
pub(super) fn is_quiet() -> bool {
    let last = last::get();
    last == 0 || now().saturating_sub(last) >= QUIET.as_millis() as u64
}

/// True if a random read in this chunk takes long, on average.
pub(super) fn is_slow(codec: &dyn Codec, chunk: &Chunk) -> bool {
    let pace = codec.pace();
    let bytes = if pace.in_whole_chunks { chunk.length } else { chunk.length / 2 };
    bytes / pace.bytes_per_millisecond.max(1) >= SLOW_MILLISECONDS
}

/// Keeps what is slow to decode of one stream.
pub struct Fill {
    inner: Weak<Inner>,
    keeper: Arc<Mutex<Keeper>>,
    /// What it writes to.
    file: Arc<DecodedFile>,
    /// What was not looked at yet.
    rest: Range<u64>,
    /// The same of a chunk that random reads had to decode from.
    missed: Range<u64>,
    /// Its readers are elsewhere.
    is_left: bool,
    /// Until when more of that kind is looked for all the time, in milliseconds as [`now`].
    expects: u64,
    /// The one that was looked at last.
    chunk: Option<Arc<Chunk>>,
    decoder: Option<Running>,
    /// How often there was no memory for a decoder since the last step: each time the chunk is begun again.
    refusals: u32,
}

/// A decoder, and where it stands.
struct Running {
    decoder: Box<dyn Decoder>,
    at: u64,
    memory: Grant,
}

/// What [`Fill::step`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// There is more to do.
    Some,
    /// Somebody else needs what it takes: try again after this time.
    NotNow(Duration),
    /// Nothing more will be kept.
    All,
}

impl DecodedSource {
    /// True if random reads are slow in some part of it, and what is decoded there can be compared with checksums.
    /// False for what lies in another stream: whoever keeps it would have to wait there with the readers.
    pub fn is_slow(&self) -> bool {
        const SAMPLES: u64 = 4;
        let inner = &self.inner;
        inner.depth == 0
            && (0..SAMPLES).any(|number| {
                let chunk = inner.chunks.look(inner.length / SAMPLES * number);
                matches!(chunk, Ok(Some(chunk)) if is_slow(inner.codec, &chunk) && !chunk.checksums.is_empty())
            })
    }

    /// Keeps what is slow to decode of it through `writer`, whose file it reads from. That does not keep it open.
    pub fn fill(&self, writer: DecodedFileWriter) -> Fill {
        let (keeper, file) = Keeper::new(writer);
        self.inner.missed.set_wanted(Some(&keeper));
        Fill {
            inner: Arc::downgrade(&self.inner),
            keeper,
            file,
            rest: 0..self.inner.length,
            missed: 0..0,
            is_left: false,
            expects: 0,
            chunk: None,
            decoder: None,
            refusals: 0,
        }
    }
}

impl Fill {
    /// Does a little of what is to be done.
    ///
    /// The caller holds no lock. Only one of all that keep pieces in this process should be in here at a time.
    pub fn step(&mut self) -> Filled {
        /// Until somebody else may be done with the file.
        const LOCKED: Duration = Duration::from_secs(5);
        /// Until there may be memory.
        const NO_MEMORY: Duration = Duration::from_secs(10);
        /// Until somebody else has written.
        const BUSY: Duration = Duration::from_millis(20);
        /// Until a random read may have missed another chunk.
        const SOON: Duration = Duration::from_millis(5);
        let Some(inner) = self.inner.upgrade().filter(|inner| !inner.is_closed()) else { return Filled::All };
        if lock(&self.keeper).writer.is_full() || self.rest.is_empty() {
            return self.end(&inner);
        }
        let missed = self.take_missed(&inner);
        if missed.is_none() && self.has_to_wait() {
            // What is packed need not wait in memory.
            let until = if now() < self.expects { SOON } else { QUIET };
            return self.flush().unwrap_or(Filled::NotNow(until));
        }
        let shared = Arc::clone(&self.keeper);
        let mut keeper = lock(&shared);
        if !keeper.has_memory(inner.cache.budget()) {
            // What waits takes of the same memory.
            inner.missed.clear();
            return Filled::NotNow(NO_MEMORY);
        }
        match keeper.writer.lock() {
            Ok(true) => {}
            Ok(false) => {
                self.file.refresh();
                inner.missed.clear();
                return Filled::NotNow(LOCKED);
            }
            Err(error) => return failed(&inner, &error),
        }
        if keeper.writer.is_behind() {
            if let Err(error) = keeper.writer.flush() {
                return not_kept_any_more(&error);
            }
            if keeper.writer.is_behind() {
                return Filled::NotNow(BUSY);
            }
        }
        let start = Instant::now();
        let done = if let Some(first) = missed {
            let done = keeper.add_missed(inner.kept_as, first, &inner.missed);
            drop(keeper);
            done.map(|()| true)
        } else {
            drop(keeper);
            self.decode(&inner)
        };
        match done {
            Ok(true) => self.refusals = 0,
            Ok(false) => {
                self.refusals += 1;
                if self.refusals >= MOST_REFUSALS {
                    self.skip_chunk();
                }
                inner.missed.clear();
                return Filled::NotNow(NO_MEMORY);
            }
            Err(error) => return failed(&inner, &error),
        }
        let spent = start.elapsed();
        if spent > Duration::from_secs(2) {
            // Others want the processor, or the disk.
            return Filled::NotNow(QUIET);
        }
        Filled::Some
    }

    /// Gives back the memory that it holds between two steps. What it was decoding is decoded again.
    pub fn rest(&mut self) {
        self.decoder = None;
        lock(&self.keeper).rest();
    }

    fn flush(&mut self) -> Option<Filled> {
        let error = lock(&self.keeper).writer.flush().err()?;
        Some(not_kept_any_more(&error))
    }

    fn end(&mut self, inner: &Inner) -> Filled {
        if lock(&self.keeper).writer.is_full() {
            log::info!("{}: there is no more space to keep it decoded", inner.describe());
        } else {
            log::debug!("{}: what is slow to decode is kept", inner.describe());
        }
        self.flush().unwrap_or(Filled::All)
    }

    /// Goes on behind the chunk that was looked at last.
    fn skip_chunk(&mut self) {
        self.refusals = 0;
        if let Some(chunk) = &self.chunk {
            let end = chunk.point.decoded + chunk.length;
            self.next().start = end;
        }
    }

    /// What is looked at next.
    fn next(&mut self) -> &mut Range<u64> {
        if self.missed.is_empty() { &mut self.rest } else { &mut self.missed }
    }

    /// Looks what random reads had to decode: returns a piece, or takes note of a chunk.
    fn take_missed(&mut self, inner: &Inner) -> Option<MissedPiece> {
        let piece = inner.missed.take_piece();
        if piece.is_none()
            && self.missed.is_empty()
            && let Some((start, is_left)) = inner.missed.take_chunk()
            && let Ok(Some(chunk)) = inner.chunks.look(start)
        {
            (self.missed, self.is_left) = (start..chunk.point.decoded + chunk.length, is_left);
        }
        if piece.is_some() || !self.has_to_wait() {
            self.expects = now() + QUIET.as_millis() as u64;
        }
        piece
    }

    /// Somebody reads, who does not wait for what comes next.
    fn has_to_wait(&self) -> bool {
        self.missed.is_empty() && !is_quiet()
    }

    /// Goes on by some pieces; false if there is no memory for a decoder.
    fn decode(&mut self, inner: &Inner) -> io::Result<bool> {
        let mut piece = Vec::new();
        for _ in 0..STEP {
            if self.has_to_wait() {
                break;
            }
            let Some((chunk, place)) = self.next_missing(inner)? else { break };
            let decoder =
                self.decoder.take().filter(|running| running.at <= place.start && running.at >= chunk.point.decoded);
            let mut running = match decoder {
                Some(running) => running,
                None => match self.resume(inner, &chunk, place)? {
                    Some(running) => running,
                    None => return Ok(false),
                },
            };
            while running.at < place.end() {
                if inner.is_closed() || self.has_to_wait() {
                    self.decoder = Some(running);
                    return Ok(true);
                }
                let place = PiecePlace::of(&chunk, running.at);
                piece.resize(place.length, 0);
                if let Err(error) = read_exact(&mut *running.decoder, &mut piece) {
                    if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
                        return Err(error);
                    }
                    // Whoever reads it is told what is damaged.
                    self.next().start = chunk.point.decoded + chunk.length;
                    return Ok(true);
                }
                running.at = place.end();
                let expected = chunk.checksums.get(place.index).copied();
                if let Some(expected) = expected.filter(|expected| *expected == checksum(&piece, place.start)) {
                    lock(&self.keeper).add(inner.kept_as, place.start, &piece, expected)?;
                }
            }
            self.next().start = running.at;
            if running.decoder.memory() > running.memory.bytes() {
                let Some(memory) = inner.cache.budget().take(running.decoder.memory()) else { return Ok(false) };
                running.memory = memory;
            }
            self.decoder = Some(running);
        }
        Ok(true)
    }

    /// The next piece that is slow to decode and not kept.
    fn next_missing(&mut self, inner: &Inner) -> io::Result<Option<(Arc<Chunk>, PiecePlace)>> {
        let is_missed = !self.missed.is_empty();
        loop {
            let Range { start: at, end } = self.next().clone();
            if at >= end || is_missed && self.missed.is_empty() || inner.is_closed() {
                return Ok(None);
            }
            let holds = |chunk: &Arc<Chunk>| (chunk.point.decoded..chunk.point.decoded + chunk.length).contains(&at);
            let known = self.chunk.take().filter(holds);
            let Some(chunk) = known.map_or_else(|| inner.chunks.look(at), |chunk| Ok(Some(chunk)))? else {
                self.next().start = end;
                return Ok(None);
            };
            self.chunk = Some(Arc::clone(&chunk));
            let found = if is_slow(inner.codec, &chunk) { self.missing_in(inner, &chunk, at) } else { None };
            self.next().start = found.map_or(chunk.point.decoded + chunk.length, |place| place.start);
            if let Some(place) = found {
                return Ok(Some((chunk, place)));
            }
        }
    }

    /// The first piece of `chunk` from byte `at` of the stream on that is not kept.
    fn missing_in(&self, inner: &Inner, chunk: &Chunk, at: u64) -> Option<PiecePlace> {
        let (mut at, end) = (at, chunk.point.decoded + chunk.length);
        while at < end {
            let place = PiecePlace::of(chunk, at);
            let &expected = chunk.checksums.get(place.index)?;
            if !self.file.has(inner.kept_as, place.start, expected, place.length) {
                return Some(place);
            }
            at = place.end();
        }
        None
    }

    /// A decoder of `chunk` that stands before `place`.
    fn resume(&self, inner: &Inner, chunk: &Chunk, place: PiecePlace) -> io::Result<Option<Running>> {
        let paused = (!self.missed.is_empty() && self.is_left)
            .then(|| inner.cache.paused.take(inner.stream(), chunk.point.decoded..=place.start))
            .flatten();
        let (at, decoder) = match paused {
            Some(paused) => paused,
            None => (chunk.point.decoded, inner.new_decoder(chunk)?),
        };
        // What a decoder holds before its first byte; it is asked again behind each piece.
        let memory = inner.cache.budget().take(decoder.memory() + PIECE);
        Ok(memory.map(|memory| Running { decoder, at, memory }))
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.missed.set_wanted(None);
        }
    }
}

fn not_kept_any_more(error: &io::Error) -> Filled {
    log::info!("decoded pieces are not kept any more: {error}");
    Filled::All
}

fn failed(inner: &Inner, error: &io::Error) -> Filled {
    log::info!("{}: it is not kept decoded: {error}", inner.describe());
    Filled::All
}

fn read_exact(decoder: &mut dyn Decoder, piece: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

impl std::fmt::Debug for Fill {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fill").field("rest", &self.rest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use tarnfs_source::{Budget, Source};

    use super::super::decoded_file::WRITER_MEMORY;
    use super::super::decoded_file::tests::{TestSpace, reader_of, writer_of};
    use super::super::tests::{Bench, MIB, bench};
    use super::*;

    fn run(fill: &mut Fill) {
        while fill.step() != Filled::All {}
    }

    /// How many pieces of the stream are in the file.
    fn kept(bench: &Bench, file: &tempfile::NamedTempFile) -> usize {
        let (kept, chunks) = (reader_of(file), &bench.table.chunks);
        let pieces = chunks.iter().flat_map(|chunk| {
            let places = (chunk.point.decoded..chunk.point.decoded + chunk.length).step_by(PIECE);
            places.map(move |start| (PiecePlace::of(chunk, start), chunk))
        });
        pieces.filter(|(place, chunk)| kept.has(0, place.start, chunk.checksums[place.index], place.length)).count()
    }

    fn all(bench: &Bench) -> usize {
        bench.table.chunks.iter().map(|chunk| chunk.checksums.len()).sum()
    }

    #[test]
    fn all_that_is_slow_is_kept_and_nothing_decoded_again() {
        let bench = bench(4 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(bench.source.is_slow());
        run(&mut bench.source.fill(writer_of(&file)));
        assert_eq!(kept(&bench, &file), all(&bench));
        // Nothing is held any more, and the next one has nothing to do.
        let decoded = bench.toy.decoded.load(Relaxed);
        run(&mut bench.source.fill(writer_of(&file)));
        bench.source.read_from(reader_of(&file));
        let mut bytes = vec![0; 4 * MIB];
        bench.source.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == bench.decoded);
        assert_eq!(bench.toy.decoded.load(Relaxed), decoded);
    }

    #[test]
    fn what_is_there_is_left_as_it_is() {
        let bench = bench(8 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut first = bench.source.fill(writer_of(&file));
        // Killed in the middle.
        assert_eq!(first.step(), Filled::Some);
        drop(first);
        let some = kept(&bench, &file);
        assert!(some > 0 && some < all(&bench));
        let before = std::fs::read(file.path()).unwrap();
        run(&mut bench.source.fill(writer_of(&file)));
        assert_eq!(kept(&bench, &file), all(&bench));
        let after = std::fs::read(file.path()).unwrap();
        let pieces = 16 + 512 * 32;
        assert!(before.len() > pieces && after[pieces..before.len()] == before[pieces..]);
    }

    #[test]
    fn whoever_reads_and_whoever_has_no_memory_comes_first() {
        let bench = bench(4 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fill = bench.source.fill(writer_of(&file));
        last::set(u64::MAX);
        assert_eq!(fill.step(), Filled::NotNow(QUIET));
        last::set(0);
        let rest = bench.budget.take(bench.budget.limit() - bench.budget.used()).unwrap();
        assert!(matches!(fill.step(), Filled::NotNow(_)));
        drop(rest);
        let other = {
            let mut other = writer_of(&file);
            assert!(other.lock().unwrap());
            other
        };
        assert!(matches!(fill.step(), Filled::NotNow(_)), "somebody else writes the file");
        drop(other);
        assert_eq!(kept(&bench, &file), 0);
        run(&mut fill);
        drop(fill);
        assert_eq!(kept(&bench, &file), all(&bench));
        assert_eq!(bench.budget.used(), 0, "nothing is held any more");
    }

    #[test]
    fn what_waits_to_be_kept_does_not_take_the_memory_for_that() {
        let bench = bench(4 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fill = bench.source.fill(writer_of(&file));
        for for_writer in [0, WRITER_MEMORY] {
            bench.source.read_exact_at(&mut [0], 3_000_000 - for_writer as u64).unwrap();
            last::set(0);
            let rest = bench.budget.limit() - bench.budget.used() - for_writer;
            let rest = bench.budget.take(rest).unwrap();
            while fill.step() == Filled::Some {}
            assert!(bench.source.inner.missed.take_piece().is_none(), "{for_writer}");
            drop(rest);
        }
    }

    #[test]
    fn one_that_rests_holds_no_memory() {
        let bench = bench(8 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fill = bench.source.fill(writer_of(&file));
        assert_eq!(fill.step(), Filled::Some);
        assert!(bench.budget.used() > 0);
        last::set(u64::MAX);
        assert!(matches!(fill.step(), Filled::NotNow(_)));
        fill.rest();
        assert_eq!(bench.budget.used(), 0);
        last::set(0);
        run(&mut fill);
        assert_eq!(kept(&bench, &file), all(&bench));
    }

    #[test]
    fn what_random_reads_decode_is_kept_with_the_rest_of_their_chunks_while_they_go_on() {
        let bench = bench(8 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fill = bench.source.fill(writer_of(&file));
        bench.source.read_from(reader_of(&file));
        let mut read_and_keep = |offset: usize| {
            let before = bench.toy.decoded.load(Relaxed);
            let mut byte = [0];
            bench.source.read_exact_at(&mut byte, offset as u64).unwrap();
            assert_eq!(byte[0], bench.decoded[offset]);
            last::set(u64::MAX);
            while fill.step() == Filled::Some {}
            bench.toy.decoded.load(Relaxed) - before
        };
        let pieces = |number: usize| bench.table.chunks[number].checksums.len();
        // The last piece of a chunk: what was passed over on the way is not decoded again.
        let of = |number: usize| (bench.table.chunks[number].point.decoded as usize, bench.table.chunks[number].length);
        let (start, length) = of(2);
        assert_eq!(read_and_keep(start + length as usize - 1), length);
        assert_eq!(kept(&bench, &file), pieces(2));
        // The first one.
        let (start, length) = of(6);
        assert!(read_and_keep(start) <= length + 2 * PIECE as u64);
        assert_eq!(kept(&bench, &file), pieces(2) + pieces(6));
        // A reader who goes on where he has ended keeps nothing.
        let mut bytes = vec![0; 100_000];
        for offset in (0..10).map(|number| of(8).0 + number * 100_000) {
            bench.source.read_exact_at(&mut bytes, offset as u64).unwrap();
        }
        last::set(u64::MAX);
        while fill.step() == Filled::Some {}
        assert_eq!(kept(&bench, &file), pieces(2) + pieces(6) + pieces(8), "only the first read was random");
        drop(fill);
        assert!(bench.source.inner.missed.take_piece().is_none(), "nothing waits for one that is gone");
    }

    /// As on a machine where others take all of the processor.
    #[test]
    fn what_random_reads_decode_is_kept_where_the_thread_for_that_never_runs() {
        let bench = bench(8 * MIB, 500_000, 16 << 20, 1);
        let file = tempfile::NamedTempFile::new().unwrap();
        let fill = bench.source.fill(writer_of(&file));
        bench.source.read_from(reader_of(&file));
        let ends = bench.table.chunks.iter().map(|chunk| chunk.point.decoded + chunk.length);
        for end in ends.step_by(3) {
            bench.source.read_exact_at(&mut [0], end - 1).unwrap();
        }
        // As many wait at most with this budget; more were decoded.
        let most_waiting = (16 << 20) / 16 / PIECE;
        let start = Instant::now();
        while kept(&bench, &file) < most_waiting {
            assert!(start.elapsed() < Duration::from_secs(300), "{} are kept", kept(&bench, &file));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(fill);
    }

    #[test]
    fn a_chunk_for_which_there_is_never_memory_is_left_out() {
        let bench = bench(4 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fill = bench.source.fill(writer_of(&file));
        let rest = bench.budget.take(bench.budget.limit() - bench.budget.used() - WRITER_MEMORY).unwrap();
        for _ in 0..MOST_REFUSALS {
            assert!(matches!(fill.step(), Filled::NotNow(_)));
        }
        drop(rest);
        run(&mut fill);
        drop(fill);
        assert_eq!(kept(&bench, &file), all(&bench) - bench.table.chunks[0].checksums.len());
    }

    #[test]
    fn it_ends_with_the_space_with_the_stream_and_at_an_error() {
        let bench = bench(4 * MIB, 500_000, 16 << 20, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = std::fs::File::options().read(true).write(true).open(file.path()).unwrap();
        let kept_file = DecodedFile::new(open, Budget::new(1 << 20));
        let mut small =
            bench.source.fill(DecodedFileWriter::new(kept_file, Box::new(TestSpace { room: 16_500 })).unwrap());
        run(&mut small);
        drop(small);
        assert!(file.as_file().metadata().unwrap().len() <= 16_500);
        let mut fill = bench.source.fill(writer_of(&file));
        let Bench { source, .. } = bench;
        drop(source);
        assert_eq!(fill.step(), Filled::All);
    }
}
