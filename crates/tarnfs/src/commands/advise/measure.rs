//! Compresses a sample with every compression, at all levels that are worth it, within a time.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use tarnfs_source::Cancel;
use tarnfs_write::compress::{self, COMPRESSIONS, Compression};
use tarnfs_write::trial::{self, Trial};

use super::sample::{PIECE, Sample};

/// What is left for others beside one that has been found slow.
const LEAST: Duration = Duration::from_millis(20);
/// Of levels between the first, the usual, and the last one, each third is tried.
const STEP: usize = 3;
/// The shortest parts of pieces that are compressed, and how long one thread may take for the first of them.
const SHORTEST: usize = 256 << 10;
/// Bytes of which it is measured how quickly they are decoded.
const TO_DECODE: usize = 1 << 20;
/// How often: what else the machine does makes it slower, never quicker.
const DECODED: usize = 3;
/// What reading a file takes at least: finding it, system calls, starting a decoder.
const OVERHEAD: f64 = 50e-6;

/// What a compression gives at one level.
#[derive(Clone)]
pub(super) struct Measured {
    pub(super) compression: &'static dyn Compression,
    pub(super) level: i32,
    /// Bytes of an archive for each byte that goes in.
    pub(super) ratio: f64,
    /// Bytes that are compressed in a second by all threads, and how many threads.
    pub(super) rate: f64,
    pub(super) threads: usize,
    /// Bytes that one thread decodes in a second.
    pub(super) decode: f64,
    /// Seconds until a file from somewhere in the archive has been read.
    pub(super) access: f64,
    /// Bytes of the sample that it compressed.
    pub(super) tried: u64,
    /// What all of the sample would become is not known, but estimated from what another one makes of it.
    pub(super) is_estimated: bool,
}

impl Measured {
    /// True if nothing is compressed.
    pub(super) fn is_plain(&self) -> bool {
        self.compression.is_plain()
    }
}

/// What was measured, and what was left out for want of time or memory, with the reason.
#[derive(Default)]
pub(super) struct Results {
    pub(super) measured: Vec<Measured>,
    pub(super) left_out: Vec<(&'static dyn Compression, i32, String)>,
}

/// How much of the machine may be used.
pub(super) struct Machine {
    pub(super) threads: usize,
    pub(super) memory: u64,
    /// All that is measured takes about so long.
    pub(super) time: Duration,
}

/// Levels that differ enough.
fn levels(compression: &dyn Compression) -> Vec<i32> {
    let (all, usual) = (compression.levels(), compression.usual_level());
    let is_it =
        |level: &i32| level == all.start() || level == all.end() || level.abs_diff(usual).is_multiple_of(STEP as u32);
    all.clone().filter(is_it).collect()
}

struct Measuring<'a> {
    sample: &'a Sample,
    machine: &'a Machine,
    cancel: &'a Cancel,
    /// Compresses the whole sample, in time. What others make of a part of it is compared with what this one makes of
    /// the same part.
    reference: &'static dyn Compression,
    /// How long pieces have become: of a compression, a level, and the length to which pieces were cut, those that were
    /// compressed, by their numbers.
    known: HashMap<(&'static str, i32, usize), BTreeMap<usize, u64>>,
    /// The last level that was measured, and what it gives.
    before: HashMap<&'static str, (i32, f64)>,
}

/// Measures them, the quicker ones first: what time they leave is for the others.
pub(super) fn measure(sample: &Sample, machine: &Machine, cancel: &Cancel) -> io::Result<Results> {
    // The last one of the list is the quickest of those that compress well.
    let Some(reference) = COMPRESSIONS.last().copied() else { return Ok(Results::default()) };
    let mut measuring = Measuring { sample, machine, cancel, reference, known: HashMap::new(), before: HashMap::new() };
    let mut candidates: Vec<_> = COMPRESSIONS
        .iter()
        .flat_map(|compression| {
            let levels = levels(*compression);
            let count = levels.len();
            levels.into_iter().enumerate().map(move |(number, level)| (number * 100 / count, *compression, level))
        })
        .collect();
    candidates.sort_by_key(|(rank, _, _)| *rank);
    let (mut results, end) = (Results::default(), Instant::now() + machine.time);
    let count = candidates.len() as u32;
    for (number, (_, compression, level)) in (0..).zip(candidates) {
        cancel.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left < LEAST && !compression.is_plain() {
            results.left_out.push((compression, level, "there was no time for it".to_owned()));
            continue;
        }
        match measuring.one(compression, level, left / (count - number)) {
            Ok(measured) => results.measured.push(measured),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            // Most likely there was no memory.
            Err(error) => results.left_out.push((compression, level, error.to_string())),
        }
    }
    let order = |one: &Measured| (one.compression.name(), one.level);
    results.measured.sort_by(|one, other| order(one).cmp(&order(other)));
    Ok(results)
}

impl Measuring<'_> {
    /// The pieces, cut into parts of so many bytes. Those in front, as many as they are, come from all over the sample.
    fn pieces(&self, length: usize) -> Vec<&[u8]> {
        let parts = PIECE.div_ceil(length.max(1));
        let mut order: Vec<_> = (0..parts).collect();
        // Halves, quarters, eighths, ...
        order.sort_by_key(|part| part.reverse_bits());
        let of_part = |part: usize| {
            let (start, end) = (part * length, (part + 1) * length);
            let pieces = self.sample.pieces.iter();
            pieces.filter_map(move |piece| piece.get(start..end.min(piece.len())).filter(|part| !part.is_empty()))
        };
        order.into_iter().flat_map(of_part).collect()
    }

    fn threads(&self, compression: &dyn Compression, level: i32) -> usize {
        compress::threads(compression, level, self.machine.threads, self.machine.memory)
    }

    /// How long the pieces of these numbers become together, cut to so many bytes.
    fn packed(
        &mut self,
        (compression, level): (&'static dyn Compression, i32),
        length: usize,
        numbers: &[usize],
    ) -> io::Result<u64> {
        let key = (compression.name(), level, length);
        let known = self.known.get(&key);
        let is_missing = |number: &usize| known.is_none_or(|known| !known.contains_key(number));
        let missing: Vec<_> = numbers.iter().copied().filter(is_missing).collect();
        if !missing.is_empty() {
            let all = self.pieces(length);
            let pieces: Vec<_> = missing.iter().filter_map(|number| all.get(*number).copied()).collect();
            let threads = self.threads(compression, level).min(pieces.len());
            let trial = trial::compress(compression, level, &pieces, threads, Duration::MAX, self.cancel)?;
            let found = trial.packed.into_iter().map(|(number, packed)| (missing[number], packed));
            self.known.entry(key).or_default().extend(found);
        }
        let known = self.known.get(&key);
        Ok(numbers.iter().filter_map(|number| known?.get(number)).sum())
    }

    fn one(&mut self, compression: &'static dyn Compression, level: i32, time: Duration) -> io::Result<Measured> {
        let length = self.length(compression, level, time)?;
        let pieces = self.pieces(length);
        let threads = self.threads(compression, level);
        let trial = trial::compress(compression, level, &pieces, threads, time, self.cancel)?;
        let numbers: Vec<_> = trial.packed.iter().map(|(number, _)| *number).collect();
        let tried = numbers.iter().filter_map(|number| pieces.get(*number)).map(|piece| piece.len() as u64).sum();
        self.known.entry((compression.name(), level, length)).or_default().extend(trial.packed.iter().copied());
        let (ratio, is_estimated) = self.ratio(compression, level, length, &numbers)?;
        self.before.insert(compression.name(), (level, ratio));
        let rate = trial.rate;
        let (decode, access) = self.decode(compression, level, trial)?;
        Ok(Measured { compression, level, ratio, rate, threads, decode, access, tried, is_estimated })
    }

    /// What it makes of all of the sample, from what it made of the pieces of these numbers, cut to so many bytes.
    fn ratio(
        &mut self,
        compression: &'static dyn Compression,
        level: i32,
        length: usize,
        numbers: &[usize],
    ) -> io::Result<(f64, bool)> {
        if compression.is_plain() {
            return Ok((1.0, false));
        }
        let all: Vec<_> = (0..self.sample.pieces.len()).collect();
        // All of it, in blocks that are as long as those of an archive.
        let is_whole = length == PIECE || length.is_multiple_of(compression.block(level));
        if is_whole && numbers.len() == self.pieces(length).len() {
            let packed = self.packed((compression, level), length, numbers)?;
            return Ok((packed as f64 / self.sample.length().max(1) as f64, false));
        }
        // The level before differs least from it, whatever the data are.
        let (other, known) = if let Some((before, ratio)) = self.before.get(compression.name()) {
            ((compression, *before), *ratio)
        } else {
            let reference = (self.reference, self.reference.usual_level());
            let whole = self.packed(reference, PIECE, &all)?;
            (reference, whole as f64 / self.sample.length().max(1) as f64)
        };
        let packed = self.packed((compression, level), length, numbers)?;
        Ok((known * packed as f64 / self.packed(other, length, numbers)?.max(1) as f64, true))
    }

    /// How long the parts of pieces may be so that each thread is done with one in time: a power of two.
    fn length(&self, compression: &'static dyn Compression, level: i32, time: Duration) -> io::Result<usize> {
        // Of several places: some may be quicker than others.
        let first = self.pieces(SHORTEST / 2);
        let trial = trial::compress(compression, level, &first[..first.len().min(3)], 1, Duration::MAX, self.cancel)?;
        // As long for what it is compared with.
        let bytes = trial.rate * time.as_secs_f64() / 2.0;
        let mut length = PIECE;
        while length > SHORTEST && length as f64 > bytes {
            length /= 2;
        }
        Ok(length)
    }

    /// How quickly one thread decodes it, and how long it takes to read a file from somewhere: decoding begins at the
    /// last place before it where it can, and goes on to the end of the file.
    fn decode(&self, compression: &'static dyn Compression, level: i32, mut trial: Trial) -> io::Result<(f64, f64)> {
        if trial.first.decoded > TO_DECODE as u64
            && let Some(piece) = self.pieces(TO_DECODE).first()
        {
            trial.first = trial::stream(compression, level, &mut *compression.compressor(level)?, piece)?;
        }
        let Sample { total, files, bytes, .. } = *self.sample;
        let apart = trial.first.apart(compression, level).min(total);
        let file = bytes as f64 / (files as f64).max(1.0);
        let mut decode = None;
        for _ in 0..DECODED {
            let rate = trial::decode(compression, trial.first.clone(), self.cancel)?;
            decode = decode.into_iter().chain(rate).reduce(f64::max);
        }
        let Some(decode) = decode else { return Ok((f64::INFINITY, OVERHEAD)) };
        Ok((decode, OVERHEAD + (apart as f64 / 2.0 + file) / decode))
    }
}
