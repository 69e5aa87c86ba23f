//! The streams of one archive: its innermost one, and those of compressed files in it. They are opened when somebody
//! reads what lies in them, and the ones that nobody has read from for longest are closed again: an archive may hold a
//! hundred thousand.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use tarnfs_codec::engine::{DecodedSource, PieceCache, Statistics, Workers};
use tarnfs_codec::{ChunkTable, Codec, DecodeContext};
use tarnfs_index::{Holder, Index, Nested, Node, STORED_IN_PIECES};
use tarnfs_source::{Cancel, Grant, Limits, Setting, SharedSource, Slice, Source};

use crate::build::most_layers;
use crate::in_memory::InMemory;
use crate::member_tables::MemberTables;
use crate::members::Members;
use crate::open::Passwords;
use crate::pieces::{CodedStreams, ListWeight, PieceSource};
use crate::unnoticed::Behind;
use crate::{Error, Work, unproven};

use damage::{Asked, LastPlaces};

mod damage;

/// Nested streams that are open at a time.
const MOST_OPEN: usize = 256;

/// Streams inside each other that are read by calls inside each other. Of more, every so many the whole is decoded into
/// memory, so that no archive fills the stack.
pub(crate) const MOST_CALLS: usize = 12;

/// The same of decoders, of which a stream that is stored in pieces may have many in each other.
pub(crate) const MOST_DEPTH: usize = 48;

/// Streams in each other that are files stored in pieces: what reads one reads the one around it more than once, where
/// that is more than is kept of it.
pub(crate) const MOST_IN_PIECES: u32 = 4;

/// The most that is decoded into memory so, in bytes.
pub(crate) const MOST_IN_MEMORY: u64 = 64 << 20;

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    index: Arc<dyn Index>,
    innermost: SharedSource,
    /// The layers of compression around the archive.
    layers: Vec<Arc<DecodedSource>>,
    context: StreamContext,
    /// What is decoded of pieces of the innermost stream.
    coded: Arc<CodedStreams>,
    /// What is known of what is verified late.
    members: Arc<Members>,
    nested: Mutex<Open>,
    deep: Arc<DeepStreams>,
    /// The tables of the stream that was asked for last, and of those around it: to find out what is damaged of it
    /// takes many queries.
    last_tables: Mutex<Option<(u32, Tables)>>,
    last_places: Mutex<LastPlaces>,
    asked: Mutex<Asked>,
}

/// The tables of a stream and of those around it, from it outwards.
type Tables = Vec<Arc<dyn ChunkTable>>;

/// What decoding takes.
#[derive(Debug, Clone)]
pub(crate) struct StreamContext {
    pub(crate) cache: Arc<PieceCache>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) limits: Limits,
    pub(crate) passwords: Passwords,
    /// Where the seek points of members are kept.
    pub(crate) members: Option<Arc<MemberTables>>,
    /// Ends what is decoded while an archive is read.
    pub(crate) cancel: Cancel,
    pub(crate) decoding: DecodeContext,
}

/// Nested streams that are open.
#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u32, Stream>,
    /// Goes up with each use.
    clock: u64,
    /// What those have done that were closed.
    closed: Statistics,
}

#[derive(Debug)]
struct Stream {
    opened: Opened,
    /// What is decoded of pieces of it.
    coded: Arc<CodedStreams>,
    used: u64,
}

/// A stream, and what is decoded of pieces of it.
pub(crate) type WithCoded = (SharedSource, Arc<CodedStreams>);

/// A nested stream that is open.
#[derive(Debug, Clone)]
enum Opened {
    Decoded(Arc<DecodedSource>),
    Pieces(Arc<PieceSource>),
}

impl Opened {
    fn source(&self) -> SharedSource {
        match self {
            Self::Decoded(decoded) => Arc::clone(decoded) as SharedSource,
            Self::Pieces(pieces) => Arc::clone(pieces) as SharedSource,
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            Self::Decoded(decoded) => decoded.statistics(),
            Self::Pieces(_) => Statistics::default(),
        }
    }
}

impl Streams {
    pub(crate) fn new(
        index: Arc<dyn Index>,
        innermost: SharedSource,
        layers: Vec<Arc<DecodedSource>>,
        context: StreamContext,
    ) -> Self {
        for layer in &layers {
            unproven::watch(layer);
            unproven::warn_of(layer);
        }
        let (coded, members, nested, deep, last_tables, last_places, asked) = Default::default();
        Self { index, innermost, layers, context, coded, members, nested, deep, last_tables, last_places, asked }
    }

    /// What is known of files that are verified late.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// What decoding takes.
    pub(crate) fn context(&self) -> &StreamContext {
        &self.context
    }

    /// What all streams of the process share.
    pub(crate) fn cache(&self) -> &PieceCache {
        &self.context.cache
    }

    /// The archive's own.
    pub(crate) fn innermost(&self) -> &SharedSource {
        &self.innermost
    }

    /// The stream of that number. Nothing is decoded yet.
    pub(crate) fn get(&self, number: u32) -> Result<SharedSource, Error> {
        Ok(self.with_coded(number)?.0)
    }

    /// The same, and what is decoded of pieces of it.
    pub(crate) fn with_coded(&self, number: u32) -> Result<WithCoded, Error> {
        if number == 0 {
            return Ok((SharedSource::clone(&self.innermost), Arc::clone(&self.coded)));
        }
        if let Some(opened) = self.open().found(number) {
            return Ok(opened);
        }
        // Nobody but its readers keeps a deep stream.
        if let Some(deep) = self.deep.found(number) {
            return Ok((deep, self.coded.beside()));
        }
        // Not while `nested` is held: this reads the index.
        let chain = self.chain(number)?;
        if chain.len() > MOST_CALLS {
            return Ok((self.deep.add(number, self.deep(&chain)?), self.coded.beside()));
        }
        let (mut missing, mut depth) = (Vec::new(), 0);
        let (mut source, mut coded) = (SharedSource::clone(&self.innermost), Arc::clone(&self.coded));
        for ((number, nested), table) in chain.iter().zip(self.tables(&chain)?) {
            if let Some(opened) = self.open().found(*number) {
                (source, coded) = opened;
                break;
            }
            let step = self.step(*number, nested, table)?;
            depth += step.depth();
            missing.push((*number, step));
        }
        if depth + source.depth() > MOST_DEPTH {
            return Ok((self.deep.add(number, self.deep(&chain)?), self.coded.beside()));
        }
        for (number, step) in missing.into_iter().rev() {
            let opened = match step {
                Step::Coded(coded) => Opened::Decoded(coded.decode(source, &self.context)),
                Step::Pieces(pieces) => {
                    let file = pieces.open(source, &self.context, &coded)?;
                    // No file of the archive has that number.
                    let node = Node(u64::MAX - u64::from(number));
                    Opened::Pieces(file.watched(node, &self.members, || None))
                }
            };
            let (shown, closed) = self.open().add(number, opened, self.coded.beside());
            // Not while `nested` is held: these drop decoders.
            drop(closed);
            (source, coded) = shown;
        }
        Ok((source, coded))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.nested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of that number and those that it lies in, from it outwards. An index may say that these are millions;
    /// no first pass makes one of more than are allowed.
    fn chain(&self, number: u32) -> Result<Vec<(u32, Nested)>, Error> {
        let most = most_layers(&self.index.summary().shape, &self.context.limits) as usize;
        let (mut chain, mut in_pieces) = (Vec::new(), 0);
        let mut at = number;
        while at != 0 {
            let why_not = match chain.len() {
                length if length >= most => Some(format!("more than {most} layers of compression")),
                _ if in_pieces > MOST_IN_PIECES => Some(format!("more than {MOST_IN_PIECES} files in pieces")),
                _ => None,
            };
            if let Some(why) = why_not {
                return Err(tarnfs_index::Error::Broken(format!("stream {number} lies in {why}")).into());
            }
            let nested = self.index.nested(at)?;
            in_pieces += u32::from(nested.codec == STORED_IN_PIECES);
            let input = nested.input;
            chain.push((at, nested));
            at = input;
        }
        Ok(chain)
    }

    /// The tables of these streams, each of which lies in the one behind it, with the damage that they have from there.
    fn tables(&self, chain: &[(u32, Nested)]) -> Result<Tables, Error> {
        let Some((of, _)) = chain.first() else { return Ok(Vec::new()) };
        let last = || self.last_tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = last().as_ref().filter(|(number, _)| number == of) {
            return Ok(tables.clone());
        }
        // Of an archive that is not compressed nothing is known to be damaged.
        let innermost = self.index.summary().layers.len().checked_sub(1);
        let mut around = innermost.map(|layer| Arc::clone(&self.index).chunks(layer)).transpose()?;
        let mut tables = Vec::with_capacity(chain.len());
        for (number, nested) in chain.iter().rev() {
            let mut table = Arc::clone(&self.index).chunks(*number as usize)?;
            // Pieces have checksums of their own.
            if let Some(around) = around.filter(|_| nested.codec != STORED_IN_PIECES) {
                let part = nested.start..nested.start.saturating_add(nested.length);
                table = Behind::of(codec_of(&nested.codec)?, table, &*around, &part)?;
            }
            around = Some(Arc::clone(&table));
            tables.push(table);
        }
        tables.reverse();
        *last() = Some((*of, tables.clone()));
        Ok(tables)
    }

    /// True if bytes that fail a check are served, too.
    pub(crate) fn serves_unverified(&self) -> bool {
        self.context.decoding.unverified
    }

    fn step(&self, number: u32, nested: &Nested, table: Arc<dyn ChunkTable>) -> Result<Step, Error> {
        if nested.codec == STORED_IN_PIECES {
            let (input, size) = (nested.input, nested.decoded_length);
            let damage = table.damage_in(0..size)?;
            let damage = damage.map(|damage| damage.what).filter(|_| !self.serves_unverified());
            // The list may be long: it is read when the file is opened, one at a time.
            let mut depth = 0;
            self.index.each_piece(Holder::Stream(number), &mut |piece| {
                depth = depth.max(crate::pieces::depth_of(std::iter::once(piece)));
                true
            })?;
            return Ok(Step::Pieces(PiecesStep { index: Arc::clone(&self.index), number, depth, input, size, damage }));
        }
        let part = Some((nested.start, nested.length));
        Ok(Step::Coded(CodedStep { part, codec: codec_of(&nested.codec)?, chunks: table }))
    }

    /// A stream that lies in very many others: these, and itself first.
    fn deep(&self, chain: &[(u32, Nested)]) -> Result<Deep, Error> {
        let length = chain.first().map_or(0, |(_, nested)| nested.decoded_length);
        let with_tables = chain.iter().zip(self.tables(chain)?).rev();
        let steps = with_tables.map(|((number, nested), table)| self.step(*number, nested, table));
        let steps = steps.collect::<Result<_, _>>()?;
        let (input, beside) = (SharedSource::clone(&self.innermost), Arc::clone(&self.deep));
        let coded = Arc::clone(&self.coded);
        Ok(Deep { input, steps, context: self.context.clone(), coded, length, beside, opened: Mutex::default() })
    }

    pub(crate) fn work(&self) -> Work {
        let cache = &self.context.cache;
        let open = self.open();
        if self.layers.is_empty() && open.clock == 0 {
            return Work::default();
        }
        let held = cache.memory();
        let of_cache = held.pieces + held.free_pieces + held.paused_decoders + held.seek_points;
        let memory = [
            ("pieces", held.pieces),
            ("free_pieces", held.free_pieces),
            ("paused_decoders", held.paused_decoders),
            ("working_decoders", held.working_decoders),
            ("seek_points", held.seek_points),
            ("other", cache.budget().used().saturating_sub(of_cache)),
        ];
        let mut work = Work {
            memory: memory.map(|(owner, bytes)| (owner, bytes as u64)).into(),
            memory_limit: cache.budget().limit() as u64,
            ..Work::default()
        };
        let nested = open.streams.values().map(|stream| stream.opened.statistics());
        let around = self.layers.iter().map(|layer| layer.statistics());
        for of_layer in around.chain(nested).chain([open.closed]) {
            work.decoding += of_layer;
        }
        work
    }
}

impl Open {
    fn found(&mut self, number: u32) -> Option<WithCoded> {
        self.clock += 1;
        let stream = self.streams.get_mut(&number)?;
        stream.used = self.clock;
        Some((stream.opened.source(), Arc::clone(&stream.coded)))
    }

    /// The stream of that number: `opened`, or the one that another thread has opened meanwhile. Also what is open no
    /// more, which the caller drops when nothing is locked.
    fn add(&mut self, number: u32, opened: Opened, coded: Arc<CodedStreams>) -> (WithCoded, Vec<Stream>) {
        if let Some(other) = self.found(number) {
            return (other, vec![Stream { opened, coded, used: 0 }]);
        }
        let mut dropped = Vec::new();
        if self.streams.len() >= MOST_OPEN {
            // Half of them at once, so that looking for the oldest costs nothing on average.
            let mut used: Vec<u64> = self.streams.values().map(|stream| stream.used).collect();
            used.sort_unstable();
            let least = used[used.len() / 2];
            for (_, stream) in self.streams.extract_if(|_, stream| stream.used < least) {
                self.closed += stream.opened.statistics();
                dropped.push(stream);
            }
        }
        let shown = (opened.source(), Arc::clone(&coded));
        self.streams.insert(number, Stream { opened, coded, used: self.clock });
        (shown, dropped)
    }
}

/// One stream, and what reading it takes.
#[derive(Debug)]
enum Step {
    Coded(CodedStep),
    Pieces(PiecesStep),
}

/// A compressed stream.
struct CodedStep {
    /// Where it lies in the one around it, and its length; `None` for the whole.
    part: Option<(u64, u64)>,
    codec: &'static dyn Codec,
    chunks: Arc<dyn ChunkTable>,
}

/// A file of `size` bytes that is stored in pieces in the stream `input`.
#[derive(Debug, Clone)]
struct PiecesStep {
    index: Arc<dyn Index>,
    number: u32,
    /// Decoders that undo how it is stored, each called by the next.
    depth: usize,
    input: u32,
    size: u64,
    /// What the first pass found wrong with it.
    damage: Option<String>,
}

impl PiecesStep {
    /// The file; `input` is the stream that it lies in.
    fn open(
        self,
        input: SharedSource,
        context: &StreamContext,
        coded: &Arc<CodedStreams>,
    ) -> Result<PieceSource, Error> {
        let weigh = || -> Result<ListWeight, Error> {
            let mut weight = ListWeight::default();
            self.index.each_piece(Holder::Stream(self.number), &mut |piece| {
                weight.add(piece);
                true
            })?;
            Ok(weight)
        };
        let room = PieceSource::room_for(self.index.pieces_take(Holder::Stream(self.number))?, weigh, context)?;
        let pieces = self.index.pieces(Holder::Stream(self.number))?;
        let (coded, context) = (Arc::clone(coded), context.clone());
        let file = PieceSource::new((self.input, input), pieces, self.size, coded, context).within(room);
        Ok(file.known_to_be(self.damage))
    }
}

impl Step {
    /// What undoes it, each called by the next.
    fn depth(&self) -> usize {
        match self {
            Self::Coded(_) => 1,
            Self::Pieces(step) => 1 + step.depth,
        }
    }

    /// The source of what comes out of it; `input` is the stream that it lies in.
    fn source(
        &self,
        input: SharedSource,
        context: &StreamContext,
        coded: &Arc<CodedStreams>,
    ) -> Result<SharedSource, Error> {
        match self {
            Self::Coded(step) => Ok(step.decode(input, context)),
            Self::Pieces(step) => Ok(Arc::new(step.clone().open(input, context, coded)?)),
        }
    }
}

impl CodedStep {
    /// What comes out of it; `input` is the stream that it lies in.
    fn decode(&self, input: SharedSource, context: &StreamContext) -> Arc<DecodedSource> {
        let part = match self.part {
            Some((start, length)) => Arc::new(Slice::new(input, start, length)),
            None => input,
        };
        let StreamContext { cache, workers, limits, decoding, .. } = context;
        let (chunks, cache, workers) = (Arc::clone(&self.chunks), Arc::clone(cache), Arc::clone(workers));
        let decoded = DecodedSource::new(self.codec, part, chunks, cache, workers, *limits);
        decoded.give(decoding.clone());
        unproven::watch(&decoded);
        decoded
    }
}

impl std::fmt::Debug for CodedStep {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CodedStep").field("part", &self.part).finish_non_exhaustive()
    }
}

fn codec_of(name: &str) -> Result<&'static dyn Codec, tarnfs_index::Error> {
    tarnfs_codec::by_name(name)
        .ok_or_else(|| tarnfs_index::Error::Unknown(format!("compressed with {name}, which is not known")))
}

/// What comes out of very many layers of compression around an archive: `None` where there are so few that they can be
/// read by calls inside each other.
pub(crate) fn deep_layers(
    index: &Arc<dyn Index>,
    input: &SharedSource,
    context: &StreamContext,
) -> Result<Option<SharedSource>, tarnfs_index::Error> {
    let layers = &index.summary().layers;
    let Some(last) = layers.last().filter(|_| layers.len() > MOST_CALLS) else { return Ok(None) };
    let step = |(number, layer): (usize, &tarnfs_index::Layer)| {
        let (codec, chunks) = (codec_of(&layer.codec)?, Arc::clone(index).chunks(number)?);
        Ok(Step::Coded(CodedStep { part: None, codec, chunks }))
    };
    let steps = layers.iter().enumerate().map(step).collect::<Result<_, tarnfs_index::Error>>()?;
    let (input, context, length) = (SharedSource::clone(input), context.clone(), last.decoded_length);
    let (coded, beside, opened) = Default::default();
    Ok(Some(Arc::new(Deep { input, steps, context, coded, length, beside, opened })))
}

/// Streams in very many others that somebody has open, by number: each is in memory once, however many read it.
#[derive(Debug, Default)]
struct DeepStreams(Mutex<OpenDeep>);

#[derive(Debug, Default)]
struct OpenDeep {
    streams: HashMap<u32, Weak<Deep>>,
    /// Once there are so many, those that nobody has any more are removed.
    most: usize,
}

impl DeepStreams {
    fn lock(&self) -> MutexGuard<'_, OpenDeep> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self, number: u32) -> Option<Arc<Deep>> {
        self.lock().streams.get(&number)?.upgrade()
    }

    /// The stream of that number: `deep`, or the one that another thread has added meanwhile.
    fn add(&self, number: u32, deep: Deep) -> Arc<Deep> {
        let deep = Arc::new(deep);
        let mut open = self.lock();
        if let Some(other) = open.streams.get(&number).and_then(Weak::upgrade) {
            drop(open);
            return other;
        }
        if open.streams.len() >= open.most {
            open.streams.retain(|_, deep| deep.strong_count() > 0);
            open.most = open.streams.len().saturating_mul(2).max(MOST_OPEN);
        }
        open.streams.insert(number, Arc::downgrade(&deep));
        deep
    }

    fn all(&self) -> Vec<Arc<Deep>> {
        self.lock().streams.values().filter_map(Weak::upgrade).collect()
    }
}

/// A stream in very many others, opened when it is read: from the outermost inwards, in a loop.
#[derive(Debug)]
struct Deep {
    input: SharedSource,
    steps: Vec<Step>,
    context: StreamContext,
    coded: Arc<CodedStreams>,
    length: u64,
    /// All of the archive, which make room for each other.
    beside: Arc<DeepStreams>,
    /// What is read, and whether what it was made of was verified by then.
    opened: Mutex<Option<(SharedSource, bool)>>,
}

impl Deep {
    fn opened(&self) -> io::Result<SharedSource> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((opened, is_proven)) = &*opened
            // What was copied before it was verified is copied again.
            && (*is_proven || self.input.is_unproven())
        {
            return Ok(SharedSource::clone(opened));
        }
        // Before more room is taken.
        *opened = None;
        let is_proven = !self.input.is_unproven();
        let (mut source, mut depth) = (SharedSource::clone(&self.input), 0);
        for (step, number) in self.steps.iter().zip(1..) {
            if depth > 0 && depth + step.depth() > MOST_DEPTH {
                source = Arc::new(self.in_memory(&*source, number - 1)?);
                depth = 0;
            }
            depth += step.depth();
            let opened = step.source(source, &self.context, &self.coded.beside());
            source = opened.map_err(|error| match error {
                Error::Io(error) => error,
                error => io::Error::other(error),
            })?;
            if number % MOST_CALLS == 0 && number < self.steps.len() {
                source = Arc::new(self.in_memory(&*source, number)?);
                depth = 0;
            }
        }
        *opened = Some((SharedSource::clone(&source), is_proven));
        Ok(source)
    }

    /// All bytes of `source`, which comes out of so many layers.
    fn in_memory(&self, source: &dyn Source, layers: usize) -> io::Result<InMemory<Grant>> {
        let (length, name) = (source.len(), source.describe());
        let what = || format!("{name}: {length} bytes in {layers} layers of compression");
        if length > MOST_IN_MEMORY {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} are too much to be read", what())));
        }
        let Some(grant) = self.room(length as usize) else {
            let text = format!(
                "{} have to be in memory to be read, and there is no room for them now; \
                 close other such files, or mount it with more {}",
                what(),
                Setting::CacheMemory
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        };
        InMemory::read(source, grant)
    }

    /// A part of the budget, if need be at the cost of the others, which can be decoded again.
    fn room(&self, bytes: usize) -> Option<Grant> {
        let cache = &self.context.cache;
        cache.take(bytes).or_else(|| {
            self.beside.all().into_iter().find_map(|other| {
                // Not waited for: it may be one that is being opened, this one among them.
                let opened = match other.opened.try_lock() {
                    Ok(mut opened) => opened.take(),
                    Err(TryLockError::Poisoned(opened)) => opened.into_inner().take(),
                    Err(TryLockError::WouldBlock) => None,
                }?;
                // Dropped when nothing of the other one is locked.
                drop(opened);
                cache.take(bytes)
            })
        })
    }
}

impl Source for Deep {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.opened()?.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{}, decoded {} times", self.input.describe(), self.steps.len())
    }

    fn is_unproven(&self) -> bool {
        self.input.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.input.verify(is_abandoned)
    }

    /// Also of what is decoded while it is opened.
    fn depth(&self) -> usize {
        self.input.depth() + self.steps.iter().map(Step::depth).sum::<usize>()
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        // The lock is held while it is opened, which takes as long as decoding does.
        let opened = match self.opened.try_lock() {
            Ok(opened) => opened,
            Err(TryLockError::Poisoned(opened)) => opened.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        opened.as_ref().is_some_and(|(opened, _)| opened.is_ready(offset, length))
    }
}

#[cfg(test)]
mod tests;
