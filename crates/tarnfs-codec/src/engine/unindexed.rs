use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tarnfs_source::{Alone, Grant, SharedSource, Source};

use super::cache::PieceCache;
use super::{DecodedSource, Indexing, Table, Workers, lock};
use crate::sync::Mutex;
use crate::{ChunkTable, Codec, DecodeContext, Options, PIECE};

/// A stream of up to so many decoded bytes is decoded at once, and kept as it is while it is open.
const SHORT: u64 = 4 << 20;

/// Of a longer one, so many bytes are kept behind the place up to which it was decoded: who reads forward asks in
/// pieces, and not quite in order. More than lie between two seek points, if the codec chooses how far these are apart.
const RECENT: usize = 5 << 20;

/// A stream of up to so many decoded bytes is decoded and verified before the first of them is served.
const VERIFIED_FIRST: u64 = 16 << 20;

/// Where the table of one stream is kept from one program to the next.
pub trait KeptTable: Send + Sync {
    /// The table, if it is kept. All of it was verified when it was.
    fn load(&self) -> Option<Table>;

    /// Keeps the table of a stream that was verified. Not doing so costs time, and nothing else.
    fn store(&self, table: &Table);
}

/// The decoded bytes of a compressed stream of which there is no table of seek points, but whose length is known: a
/// member of an archive that has a directory.
///
/// It is decoded once, as far as somebody reads, and gets its seek points on the way. From then on it is read as every
/// other stream is ([`DecodedSource`]). If its checksum is known, it is compared at the end: of a long stream, bytes
/// before the last piece are served before that. If it is wrong, all later reads are errors.
pub struct UnindexedSource {
    codec: &'static dyn Codec,
    source: SharedSource,
    length: u64,
    crc: Option<u32>,
    options: Options,
    context: DecodeContext,
    cache: Arc<PieceCache>,
    workers: Arc<Workers>,
    kept: Option<Arc<dyn KeptTable>>,
    pass: Mutex<Option<Pass>>,
    /// What all that was decoded has become.
    done: OnceLock<Done>,
    memory: AtomicUsize,
}

enum Done {
    Short(Box<[u8]>),
    Long(Arc<DecodedSource>),
    /// Why it cannot be read.
    Wrong(io::ErrorKind, String),
}

/// A first pass that has come to some place.
struct Pass {
    indexing: Indexing,
    table: Table,
    crc: crc32fast::Hasher,
    /// The last bytes that were decoded.
    recent: Vec<u8>,
    /// What lies before them, up to some seek point.
    before: Option<Arc<DecodedSource>>,
    /// The memory that all this takes, and what it was given for it.
    memory: usize,
    room: Option<Room>,
}

/// Memory of the budget, or the right to do without.
enum Room {
    Granted { _grant: Grant },
    Alone { _alone: Alone },
}

impl Pass {
    /// Bytes of memory that it takes now.
    fn weight(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |_| self.table.memory());
        self.recent.capacity() + self.indexing.memory() + self.table.memory() + before
    }

    /// Charges what it takes. False if there is not so much.
    fn is_paid_for(&mut self, cache: &PieceCache) -> bool {
        let weight = self.weight();
        if self.room.is_some() && weight <= self.memory {
            return true;
        }
        // A little more than now, so that it is not charged again at once.
        self.memory = weight + weight / 4;
        self.room = None;
        let granted = cache.take(self.memory).map(|grant| Room::Granted { _grant: grant });
        self.room = granted.or_else(|| cache.budget().alone().map(|alone| Room::Alone { _alone: alone }));
        self.room.is_some()
    }
}

impl UnindexedSource {
    /// Reads `source`, in the format of `codec`, of which `length` bytes come; `crc` is their CRC-32. What `options`
    /// says is as for a first pass.
    #[allow(clippy::too_many_arguments, reason = "each is something else, and there is one caller")]
    pub fn new(
        codec: &'static dyn Codec,
        source: SharedSource,
        length: u64,
        crc: Option<u32>,
        options: Options,
        context: DecodeContext,
        cache: Arc<PieceCache>,
        workers: Arc<Workers>,
    ) -> Self {
        let (pass, done, memory) = (Mutex::new(None), OnceLock::new(), AtomicUsize::new(0));
        Self { codec, source, length, crc, options, context, cache, workers, kept: None, pass, done, memory }
    }

    /// With the table in `kept`, if there is one; else it is put there when all was decoded.
    #[must_use]
    pub fn keeping(self, kept: Option<Arc<dyn KeptTable>>) -> Self {
        Self { kept, ..self }
    }

    /// Takes the table that was kept. True if there is one.
    fn takes_kept(&self) -> bool {
        let table = self.kept.as_ref().and_then(|kept| kept.load());
        let Some(table) = table.filter(|table| table.decoded_length() == self.length) else { return false };
        self.memory.store(table.memory(), Ordering::Relaxed);
        let _ = self.done.set(Done::Long(self.source_of(table)));
        true
    }

    /// True once all of it was decoded: opening it again would lose that.
    pub fn is_indexed(&self) -> bool {
        matches!(self.done.get(), Some(Done::Long(_)))
    }

    fn wrong(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{}: {what}", self.describe()))
    }

    /// Keeps in mind why it cannot be read, if it is for ever.
    fn failed(&self, error: io::Error) -> io::Error {
        use io::ErrorKind::{InvalidData, PermissionDenied, UnexpectedEof, Unsupported};
        if matches!(error.kind(), InvalidData | UnexpectedEof | Unsupported | PermissionDenied) {
            let _ = self.done.set(Done::Wrong(error.kind(), error.to_string()));
        }
        error
    }

    fn begin(&self) -> io::Result<Pass> {
        let indexing = Indexing::new(self.codec, SharedSource::clone(&self.source), &self.options);
        let indexing = indexing.map_err(|error| self.wrong(error.kind(), &error.to_string()))?;
        let (table, crc) = (Table::default(), crc32fast::Hasher::new());
        Ok(Pass { indexing, table, crc, recent: Vec::new(), before: None, memory: 0, room: None })
    }

    /// Decodes the next bytes. False at the end, when all is what it should be.
    fn step(&self, pass: &mut Pass) -> io::Result<bool> {
        let filled = pass.recent.len();
        pass.recent.resize(filled + PIECE, 0);
        let read = pass.indexing.read(&mut pass.recent[filled..]);
        let position = pass.indexing.decoded_position();
        pass.recent.truncate(filled + *read.as_ref().unwrap_or(&0));
        pass.indexing.take_chunks(&mut pass.table.chunks);
        pass.indexing.take_damage(&mut pass.table.damage);
        let read = read.map_err(|error| {
            let what = format!("it cannot be decoded from its byte {position} on: {error}");
            self.failed(self.wrong(error.kind(), &what))
        })?;
        pass.crc.update(&pass.recent[filled..]);
        if let Some(damage) = pass.table.damage.first() {
            return Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &damage.what)));
        }
        if position > self.length || read == 0 && position < self.length {
            let what = format!("it has {} bytes, not the {} that the archive says", position, self.length);
            return Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &what)));
        }
        if pass.recent.len() > RECENT + (1 << 20) {
            let gone = pass.recent.len() - RECENT;
            pass.recent.drain(..gone);
        }
        if read > 0 {
            return Ok(true);
        }
        let crc = std::mem::take(&mut pass.crc).finalize();
        match self.crc {
            Some(expected) if expected != crc => {
                let what = format!("its CRC-32 is {crc:08x}, not {expected:08x} as the archive says: it is damaged");
                Err(self.failed(self.wrong(io::ErrorKind::InvalidData, &what)))
            }
            _ => Ok(false),
        }
    }

    /// Decodes on, at least up to byte `end`, and copies what comes from `offset` on, if that is not too far back.
    fn read_in_pass(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let end = offset + buffer.len() as u64;
        let mut held = lock(&self.pass);
        if self.done.get().is_some() {
            return Ok(None);
        }
        if held.is_none() && self.takes_kept() {
            return Ok(None);
        }
        let pass = match &mut *held {
            Some(pass) => pass,
            none => none.insert(self.begin()?),
        };
        // The last piece is served when all is verified.
        let needed = if end == self.length || self.length <= VERIFIED_FIRST { u64::MAX } else { end };
        let mut goes_on = true;
        while goes_on && pass.indexing.decoded_position() < needed {
            match self.step(pass) {
                Ok(more) => goes_on = more,
                Err(error) => {
                    *held = None;
                    return Err(error);
                }
            }
        }
        if !goes_on {
            let memory;
            let done = match held.take() {
                Some(pass) if self.length <= SHORT => {
                    memory = pass.recent.len();
                    Done::Short(pass.recent.into())
                }
                Some(pass) => {
                    memory = pass.table.memory();
                    if let Some(kept) = &self.kept {
                        kept.store(&pass.table);
                    }
                    Done::Long(self.source_of(pass.table))
                }
                None => return Ok(None),
            };
            let _ = self.done.set(done);
            self.memory.store(memory, Ordering::Relaxed);
            return Ok(None);
        }
        // Where there is no memory for what has been done, it is done again for whoever comes next.
        let is_kept = pass.is_paid_for(&self.cache);
        self.memory.store(if is_kept { pass.memory } else { 0 }, Ordering::Relaxed);
        let first = pass.indexing.decoded_position() - pass.recent.len() as u64;
        if let Some(from) = offset.checked_sub(first) {
            let there = pass.recent.get(from as usize..).unwrap_or_default();
            let length = there.len().min(buffer.len());
            buffer[..length].copy_from_slice(&there[..length]);
            if !is_kept {
                *held = None;
            }
            return Ok(Some(length));
        }
        let before = match &pass.before {
            Some(before) if before.len() > offset => Arc::clone(before),
            _ if pass.table.decoded_length() > offset => {
                Arc::clone(pass.before.insert(self.source_of(pass.table.clone())))
            }
            // There is no seek point between it and what is at hand: it is found when all is known.
            _ => {
                drop(held);
                return self.read_in_pass_to_the_end();
            }
        };
        drop(held);
        let end = before.len().min(end);
        before.read_at(&mut buffer[..(end - offset) as usize], offset).map(Some)
    }

    /// Decodes all that is left.
    fn read_in_pass_to_the_end(&self) -> io::Result<Option<usize>> {
        let mut last = [0];
        self.read_in_pass(&mut last, self.length - 1).map(|_| None)
    }

    fn source_of(&self, table: Table) -> Arc<DecodedSource> {
        let (source, table) = (SharedSource::clone(&self.source), Arc::new(table));
        let (cache, workers) = (Arc::clone(&self.cache), Arc::clone(&self.workers));
        let decoded = DecodedSource::new(self.codec, source, table, cache, workers, self.options.limits);
        decoded.give(self.context.clone());
        decoded
    }
}

impl Source for UnindexedSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let mut filled = 0;
        while filled < wanted {
            let (rest, from) = (&mut buffer[filled..], offset + filled as u64);
            let read = match self.done.get() {
                None => match self.read_in_pass(rest, from)? {
                    Some(read) => read,
                    None => continue,
                },
                Some(Done::Short(bytes)) => {
                    let there = bytes.get(from as usize..).unwrap_or_default();
                    let length = there.len().min(rest.len());
                    rest[..length].copy_from_slice(&there[..length]);
                    length
                }
                Some(Done::Long(decoded)) => decoded.read_at(rest, from)?,
                Some(Done::Wrong(kind, what)) => return Err(io::Error::new(*kind, what.clone())),
            };
            if read == 0 {
                return Err(self.wrong(io::ErrorKind::UnexpectedEof, "it ends too early"));
            }
            filled += read;
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("the decoded data of {}", self.source.describe())
    }

    fn depth(&self) -> usize {
        self.source.depth() + 1
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        match self.done.get() {
            Some(Done::Short(_) | Done::Wrong(..)) => true,
            Some(Done::Long(decoded)) => decoded.is_ready(offset, length),
            None => self.length == 0 || length == 0,
        }
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(Done::Long(decoded)) = self.done.get() {
            decoded.prefetch(offset, length);
        }
    }

    fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for UnindexedSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UnindexedSource").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
