use std::fmt;
use std::ops::RangeInclusive;

use tarnfs_source::{Budget, Grant};

use super::lock;
use crate::Decoder;
use crate::sync::Mutex;

/// Decoders that stand where the last reader needed them, so that the next read of the chunk goes on from there.
///
/// Charged with their memory; the one unused for longest goes first. One decoder is kept even where the budget has no
/// room for it: without it, reading a chunk in sequence would decode it from its start for every piece.
#[derive(Debug)]
pub(super) struct PausedDecoders {
    budget: Budget,
    /// Bytes that they may hold together.
    share: usize,
    /// The most recently paused is last.
    paused: Mutex<Vec<Paused>>,
}

struct Paused {
    stream: u64,
    /// The next byte of the decoded stream that it returns.
    position: u64,
    decoder: Box<dyn Decoder>,
    bytes: usize,
    /// None only for the one that is kept without room.
    grant: Option<Grant>,
}

/// Bounds the search, and the file descriptors or threads that a decoder may hold beside memory.
const MOST: usize = 64;

impl PausedDecoders {
    pub(super) fn new(budget: Budget) -> Self {
        let share = budget.limit() / 4;
        Self { budget, share, paused: Mutex::default() }
    }

    /// Takes out the decoder of `stream` that stands furthest on in `positions`, with where it stands.
    pub(super) fn take(&self, stream: u64, positions: RangeInclusive<u64>) -> Option<(u64, Box<dyn Decoder>)> {
        let mut paused = lock(&self.paused);
        let (index, _) = paused
            .iter()
            .enumerate()
            .filter(|(_, one)| one.stream == stream && positions.contains(&one.position))
            .max_by_key(|(_, one)| one.position)?;
        let one = paused.remove(index);
        Some((one.position, one.decoder))
    }

    /// Keeps a decoder that stands at `position`, at the cost of others.
    pub(super) fn put(&self, stream: u64, position: u64, decoder: Box<dyn Decoder>) {
        let bytes = decoder.memory();
        // Dropped behind the lock: a decoder may have much to free.
        let mut dropped = Vec::new();
        let mut paused = lock(&self.paused);
        let mut drop_first = |paused: &mut Vec<Paused>| {
            let Paused { decoder, grant, .. } = paused.remove(0);
            drop(grant);
            dropped.push(decoder);
        };
        if let Some(index) = paused.iter().position(|one| (one.stream, one.position) == (stream, position)) {
            paused[..=index].rotate_right(1);
            drop_first(&mut paused);
        }
        while !paused.is_empty()
            && (paused.len() >= MOST
                || paused.iter().fold(bytes, |sum, one| sum.saturating_add(one.bytes)) > self.share)
        {
            drop_first(&mut paused);
        }
        let grant = loop {
            match self.budget.take(bytes) {
                None if !paused.is_empty() => drop_first(&mut paused),
                grant => break grant,
            }
        };
        paused.push(Paused { stream, position, decoder, bytes, grant });
        drop(paused);
    }

    /// Drops the one unused for longest; false if there is none.
    pub(super) fn drop_oldest(&self) -> bool {
        let mut paused = lock(&self.paused);
        let oldest = (!paused.is_empty()).then(|| paused.remove(0));
        drop(paused);
        oldest.is_some()
    }

    /// Bytes that they hold.
    pub(super) fn memory(&self) -> usize {
        lock(&self.paused).iter().fold(0, |sum, one| sum.saturating_add(one.bytes))
    }

    /// Drops all of them.
    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut *lock(&self.paused));
        drop(dropped);
    }

    /// Drops the decoders of a stream that is no longer read.
    pub(super) fn forget(&self, stream: u64) {
        let dropped: Vec<_> = lock(&self.paused).extract_if(.., |one| one.stream == stream).collect();
        drop(dropped);
    }
}

impl fmt::Debug for Paused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Paused")
            .field("stream", &self.stream)
            .field("position", &self.position)
            .field("bytes", &self.bytes)
            .field("granted", &self.grant.is_some())
            .finish_non_exhaustive()
    }
}
