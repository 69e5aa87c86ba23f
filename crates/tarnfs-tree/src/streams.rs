//! The streams of one archive: its innermost one, and those of compressed files in it. They are opened when somebody
//! reads what lies in them, and the ones that nobody has read from for longest are closed again: an archive may hold a
//! hundred thousand.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tarnfs_codec::Dictionaries;
use tarnfs_codec::engine::{DecodedSource, PieceCache, Statistics, Workers};
use tarnfs_index::{Index, Nested};
use tarnfs_source::{Limits, MemorySource, SharedSource, Slice, Source};

use crate::build::most_layers;
use crate::{Error, Work, unproven};

/// Nested streams that are open at a time.
const MOST_OPEN: usize = 256;

/// Streams inside each other that are read by calls inside each other. Of more, every so many the whole is decoded into
/// memory, so that no archive fills the stack.
pub(crate) const MOST_CALLS: usize = 12;

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
    nested: Mutex<Open>,
}

/// What decoding takes.
#[derive(Debug, Clone)]
pub(crate) struct StreamContext {
    pub(crate) cache: Arc<PieceCache>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) limits: Limits,
    pub(crate) dictionaries: Dictionaries,
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
    decoded: Arc<DecodedSource>,
    /// Streams that it lies in.
    depth: usize,
    used: u64,
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
        }
        Self { index, innermost, layers, context, nested: Mutex::default() }
    }

    /// The archive's own.
    pub(crate) fn innermost(&self) -> &SharedSource {
        &self.innermost
    }

    /// The stream of that number. Nothing is decoded yet.
    pub(crate) fn get(&self, number: u32) -> Result<SharedSource, Error> {
        if number == 0 {
            return Ok(SharedSource::clone(&self.innermost));
        }
        if let Some((decoded, _)) = self.open().found(number) {
            return Ok(decoded);
        }
        // Not while `nested` is held: this reads the index.
        let chain = self.chain(number)?;
        if chain.len() > MOST_CALLS {
            // Rare, and slow to reach: nothing of it is kept open.
            return self.deep(&chain);
        }
        let mut open = self.open();
        let mut missing = Vec::new();
        let (mut source, mut depth) = (SharedSource::clone(&self.innermost), 0);
        for (number, nested) in chain {
            if let Some((decoded, at)) = open.found(number) {
                (source, depth) = (decoded, at);
                break;
            }
            missing.push((number, nested));
        }
        for (number, nested) in missing.into_iter().rev() {
            let decoded = self.step(number, &nested)?.decode(source, &self.context);
            depth += 1;
            open.add(number, Arc::clone(&decoded), depth);
            source = decoded;
        }
        Ok(source)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.nested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of that number and those that it lies in, from it outwards. An index may say that these are millions;
    /// no first pass makes one of more than are allowed.
    fn chain(&self, number: u32) -> Result<Vec<(u32, Nested)>, Error> {
        let most = most_layers(&self.index.summary().shape, &self.context.limits) as usize;
        let mut chain = Vec::new();
        let mut at = number;
        while at != 0 {
            if chain.len() >= most {
                let what = format!("stream {number} lies in more than {most} layers of compression");
                return Err(tarnfs_index::Error::Broken(what).into());
            }
            let nested = self.index.nested(at)?;
            let input = nested.input;
            chain.push((at, nested));
            at = input;
        }
        Ok(chain)
    }

    /// True if damage was found in these bytes of that stream, or in what they are decoded from. In very many layers
    /// they count as damaged.
    pub(crate) fn is_damaged(&self, mut number: u32, mut range: Range<u64>) -> Result<bool, Error> {
        for _ in 0..MOST_CALLS {
            if number == 0 {
                return Ok(self.index.damage_in(range)?.is_some());
            }
            let nested = self.index.nested(number)?;
            let decoded = Arc::clone(&self.index).chunks(number as usize)?;
            if decoded.damage_in(range)?.is_some() {
                return Ok(true);
            }
            (number, range) = (nested.input, nested.start..nested.start.saturating_add(nested.length));
        }
        Ok(true)
    }

    fn step(&self, number: u32, nested: &Nested) -> Result<Step, Error> {
        Ok(Step::new(&self.index, number as usize, &nested.codec, Some((nested.start, nested.length)))?)
    }

    /// A stream that lies in very many others: these, and itself first.
    fn deep(&self, chain: &[(u32, Nested)]) -> Result<SharedSource, Error> {
        let length = chain.first().map_or(0, |(_, nested)| nested.decoded_length);
        let steps = chain.iter().rev().map(|(number, nested)| self.step(*number, nested)).collect::<Result<_, _>>()?;
        let input = SharedSource::clone(&self.innermost);
        Ok(Arc::new(Deep { input, steps, context: self.context.clone(), length, opened: Mutex::new(None) }))
    }

    pub(crate) fn work(&self) -> Work {
        let cache = &self.context.cache;
        let open = self.open();
        if self.layers.is_empty() && open.clock == 0 {
            return Work::default();
        }
        let held = cache.memory();
        let of_cache = held.pieces + held.free_pieces + held.paused_decoders;
        let memory = [
            ("pieces", held.pieces),
            ("free_pieces", held.free_pieces),
            ("paused_decoders", held.paused_decoders),
            ("working_decoders", held.working_decoders),
            ("seek_points", cache.budget().used().saturating_sub(of_cache)),
        ];
        let mut work = Work {
            memory: memory.map(|(owner, bytes)| (owner, bytes as u64)).into(),
            memory_limit: cache.budget().limit() as u64,
            ..Work::default()
        };
        let nested = open.streams.values().map(|stream| stream.decoded.statistics());
        let around = self.layers.iter().map(|layer| layer.statistics());
        for of_layer in around.chain(nested).chain([open.closed]) {
            work.hits += of_layer.hits;
            work.misses += of_layer.misses;
            work.ahead += of_layer.prefetched;
            work.resumes += of_layer.resumes;
            work.decoded_bytes += of_layer.decoded_bytes;
            work.kept += of_layer.kept;
        }
        work
    }
}

impl Open {
    fn found(&mut self, number: u32) -> Option<(Arc<DecodedSource>, usize)> {
        self.clock += 1;
        let stream = self.streams.get_mut(&number)?;
        stream.used = self.clock;
        Some((Arc::clone(&stream.decoded), stream.depth))
    }

    fn add(&mut self, number: u32, decoded: Arc<DecodedSource>, depth: usize) {
        self.clock += 1;
        if self.streams.len() >= MOST_OPEN {
            // Half of them at once, so that looking for the oldest costs nothing on average.
            let mut used: Vec<u64> = self.streams.values().map(|stream| stream.used).collect();
            used.sort_unstable();
            let least = used[used.len() / 2];
            let closed = &mut self.closed;
            self.streams.retain(|_, stream| {
                let stays = stream.used >= least;
                if !stays {
                    let done = stream.decoded.statistics();
                    closed.hits += done.hits;
                    closed.misses += done.misses;
                    closed.prefetched += done.prefetched;
                    closed.resumes += done.resumes;
                    closed.decoded_bytes += done.decoded_bytes;
                    closed.kept += done.kept;
                }
                stays
            });
        }
        self.streams.insert(number, Stream { decoded, depth, used: self.clock });
    }
}

/// One stream, and what reading it takes.
struct Step {
    /// Where it lies in the one around it, and its length; `None` for the whole.
    part: Option<(u64, u64)>,
    codec: &'static dyn tarnfs_codec::Codec,
    chunks: Arc<dyn tarnfs_codec::ChunkTable>,
}

impl Step {
    fn new(
        index: &Arc<dyn Index>,
        number: usize,
        codec: &str,
        part: Option<(u64, u64)>,
    ) -> Result<Self, tarnfs_index::Error> {
        let codec = tarnfs_codec::by_name(codec)
            .ok_or_else(|| tarnfs_index::Error::Unknown(format!("compressed with {codec}, which is not known")))?;
        Ok(Self { part, codec, chunks: Arc::clone(index).chunks(number)? })
    }

    /// What comes out of it; `input` is the stream that it lies in.
    fn decode(&self, input: SharedSource, context: &StreamContext) -> Arc<DecodedSource> {
        let part = match self.part {
            Some((start, length)) => Arc::new(Slice::new(input, start, length)),
            None => input,
        };
        let StreamContext { cache, workers, limits, dictionaries } = context;
        let (chunks, cache, workers) = (Arc::clone(&self.chunks), Arc::clone(cache), Arc::clone(workers));
        let decoded = DecodedSource::new(self.codec, part, chunks, cache, workers, *limits);
        decoded.give(dictionaries.clone());
        unproven::watch(&decoded);
        decoded
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Step").field("part", &self.part).finish_non_exhaustive()
    }
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
    let step = |(number, layer): (usize, &tarnfs_index::Layer)| Step::new(index, number, &layer.codec, None);
    let steps = layers.iter().enumerate().map(step).collect::<Result<_, _>>()?;
    let (input, context, length) = (SharedSource::clone(input), context.clone(), last.decoded_length);
    Ok(Some(Arc::new(Deep { input, steps, context, length, opened: Mutex::new(None) })))
}

/// A stream in very many others, opened when it is read: from the outermost inwards, in a loop.
#[derive(Debug)]
struct Deep {
    input: SharedSource,
    steps: Vec<Step>,
    context: StreamContext,
    length: u64,
    opened: Mutex<Option<SharedSource>>,
}

impl Deep {
    fn opened(&self) -> io::Result<SharedSource> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(SharedSource::clone(opened));
        }
        let mut source = SharedSource::clone(&self.input);
        for (step, number) in self.steps.iter().zip(1..) {
            source = step.decode(source, &self.context);
            if number % MOST_CALLS == 0 && number < self.steps.len() {
                let length = source.len();
                if length > MOST_IN_MEMORY {
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        format!(
                            "{}: {length} bytes in {number} layers of compression are too much to be read",
                            source.describe()
                        ),
                    ));
                }
                let mut bytes = vec![0; length as usize];
                source.read_exact_at(&mut bytes, 0)?;
                source = Arc::new(MemorySource::new(bytes, source.describe()));
            }
        }
        *opened = Some(SharedSource::clone(&source));
        Ok(source)
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

    /// Also of what is decoded while it is opened.
    fn depth(&self) -> usize {
        self.input.depth() + self.steps.len()
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        // The lock is held while it is opened, which takes as long as decoding does.
        let opened = match self.opened.try_lock() {
            Ok(opened) => opened,
            Err(TryLockError::Poisoned(opened)) => opened.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        opened.as_ref().is_some_and(|opened| opened.is_ready(offset, length))
    }
}
