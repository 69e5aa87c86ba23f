//! What a compression gives for a sample: compressed on all threads, as an archive would be, and decoded again.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tarnfs_codec::{DecodeContext, SeekPoint};
use tarnfs_source::{Cancel, MemorySource, SharedSource};

use crate::compress::{self, Block, Compression, Compressor};

/// Bytes that are decoded at once.
const BATCH: usize = 128 << 10;

/// What came of a sample.
#[derive(Debug, Default)]
pub struct Trial {
    /// Of each piece that was compressed: its number, and how long it has become.
    pub packed: Vec<(usize, u64)>,
    /// Bytes that all threads together compress in a second.
    pub rate: f64,
    /// The first piece as a stream of its own.
    pub first: Stream,
}

/// A compressed stream.
#[derive(Debug, Default, Clone)]
pub struct Stream {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes that they are decoded.
    pub decoded: u64,
    /// The [`SeekPoint::state`] of its start.
    pub state: Vec<u8>,
    /// Blocks in it, and places in them where decoding can start.
    pub blocks: u64,
    /// See `blocks`.
    pub points: u64,
}

impl Stream {
    /// Decoded bytes between two places where decoding can start, in the index of an archive that is written so.
    pub fn apart(&self, compression: &dyn Compression, level: i32) -> u64 {
        // A sample may be shorter than a block.
        let apart =
            if self.points > self.blocks { self.decoded / self.points } else { compression.block(level) as u64 };
        compress::apart(compression, apart)
    }
}

/// Compresses `piece` as an archive is compressed, into blocks that stand for themselves.
pub fn stream(
    compression: &dyn Compression,
    level: i32,
    compressor: &mut dyn Compressor,
    piece: &[u8],
) -> io::Result<Stream> {
    let mut frame = compression.frame(level);
    let (mut bytes, mut block) = (frame.start(), Block::default());
    let (mut blocks, mut points) = (0, 0);
    for part in piece.chunks(compression.block(level)) {
        block.clear();
        compressor.compress(part, &mut block)?;
        frame.add(part, &block);
        bytes.extend_from_slice(&block.bytes);
        blocks += 1;
        points += block.points.len() as u64;
    }
    bytes.extend(frame.end());
    Ok(Stream { bytes, decoded: piece.len() as u64, state: frame.first_state(), blocks, points })
}

/// Compresses `pieces` on so many threads. Each thread compresses at least one; when `time` is over, no other one is
/// begun. If there are fewer pieces than threads, some are compressed several times, so that all threads work at once.
pub fn compress(
    compression: &'static dyn Compression,
    level: i32,
    pieces: &[&[u8]],
    threads: usize,
    time: Duration,
    cancel: &Cancel,
) -> io::Result<Trial> {
    let shared = Shared { next: AtomicUsize::new(0), trial: Mutex::default() };
    let work = || -> io::Result<()> {
        let mut compressor = compression.compressor(level)?;
        let (mut bytes, mut worked) = (0_u64, Duration::ZERO);
        while worked < time {
            cancel.check()?;
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= pieces.len().max(threads) {
                break;
            }
            let Some(piece) = pieces.get(number % pieces.len().max(1)) else { break };
            let start = Instant::now();
            let packed = stream(compression, level, &mut *compressor, piece)?;
            worked += start.elapsed();
            bytes += piece.len() as u64;
            if number < pieces.len() {
                let mut trial = shared.trial.lock().unwrap_or_else(PoisonError::into_inner);
                trial.packed.push((number, packed.bytes.len() as u64));
                if number == 0 {
                    trial.first = packed;
                }
            }
        }
        // A piece that takes no time at all.
        let seconds = worked.as_secs_f64().max(1e-6);
        shared.trial.lock().unwrap_or_else(PoisonError::into_inner).rate += bytes as f64 / seconds;
        Ok(())
    };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("trying".into()).spawn_scoped(scope, work);
        // Where there can be no more threads, there are fewer.
        let works: Vec<_> = (1..threads).map(spawn).map_while(Result::ok).collect();
        let own = work();
        let ended =
            || io::Error::other("a thread has ended unexpectedly; this is an error in tarnfs, please report it");
        works.into_iter().try_fold((), |(), work| work.join().unwrap_or_else(|_| Err(ended()))).and(own)
    })?;
    let mut trial = shared.trial.into_inner().unwrap_or_else(PoisonError::into_inner);
    trial.packed.sort_unstable();
    Ok(trial)
}

struct Shared {
    next: AtomicUsize,
    trial: Mutex<Trial>,
}

/// Bytes that one thread decodes of `stream` in a second, as a reader of the archive does; nothing of what is not
/// compressed.
pub fn decode(compression: &dyn Compression, stream: Stream, cancel: &Cancel) -> io::Result<Option<f64>> {
    let Some(codec) = tarnfs_codec::by_name(compression.name()).filter(|_| stream.decoded > 0) else { return Ok(None) };
    let source: SharedSource = Arc::new(MemorySource::new(stream.bytes, "the sample"));
    let point = SeekPoint { state: stream.state, ..SeekPoint::default() };
    let mut buffer = vec![0; BATCH];
    let start = Instant::now();
    let mut decoder = codec.resume(source, &point, &DecodeContext::default())?;
    let mut decoded = 0_u64;
    loop {
        cancel.check()?;
        let read = decoder.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        decoded += read as u64;
    }
    if decoded != stream.decoded {
        return Err(io::Error::other(format!("{decoded} bytes were decoded of {}", stream.decoded)));
    }
    Ok(Some(decoded as f64 / start.elapsed().as_secs_f64().max(1e-6)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::COMPRESSIONS;

    #[test]
    fn every_piece_is_compressed_once_and_can_be_decoded() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|number| format!("{number} ").into_bytes()).collect();
        let pieces: Vec<&[u8]> = text.chunks(300_000).collect();
        let (long, cancel) = (Duration::from_mins(1), Cancel::default());
        for compression in COMPRESSIONS {
            for threads in [1, 3, 16] {
                let level = *compression.levels().start();
                let trial = compress(*compression, level, &pieces, threads, long, &cancel).unwrap();
                let name = compression.name();
                let numbers: Vec<_> = trial.packed.iter().map(|(number, _)| *number).collect();
                assert_eq!(numbers, (0..pieces.len()).collect::<Vec<_>>(), "{name}, {threads} threads");
                let is_shorter = |(number, packed): &(usize, u64)| *packed < pieces[*number].len() as u64;
                assert_eq!(trial.packed.iter().all(is_shorter), !compression.is_plain(), "{name}: {trial:?}");
                assert_eq!(trial.first.decoded, 300_000, "{name}");
                let apart = trial.first.apart(*compression, level);
                assert!(compression.is_plain() || apart >= compression.spacing(), "{name}: {apart}");
                assert!(compression.is_plain() || apart <= compression.block(level) as u64, "{name}: {apart}");
                let rate = decode(*compression, trial.first, &cancel).unwrap();
                assert_eq!(rate.is_some_and(|rate| rate > 0.0), !compression.is_plain(), "{name}: {rate:?}");
            }
        }
    }

    #[test]
    fn it_ends_when_its_time_is_over_and_when_it_is_cancelled() {
        let data = vec![7_u8; 1 << 20];
        let pieces = vec![data.as_slice(); 50];
        let gzip = crate::compress::by_name("gzip").unwrap();
        let trial = compress(gzip, 6, &pieces, 2, Duration::from_nanos(1), &Cancel::default()).unwrap();
        assert!((1..=2).contains(&trial.packed.len()) && trial.packed[0].0 == 0, "{:?}", trial.packed);
        let cancel = Cancel::default();
        cancel.cancel();
        assert!(compress(gzip, 6, &pieces, 2, Duration::from_mins(1), &cancel).is_err());
        assert!(compress(gzip, 6, &[], 2, Duration::from_mins(1), &Cancel::default()).unwrap().packed.is_empty());
    }
}
