//! What is decoded ahead of readers that go forward, on the workers.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::vec::IntoIter;

use super::chunks::PiecePlace;
use super::decoded::{Inner, Purpose};
use super::in_flight::{Queued, Task};
use super::lock;
use crate::Chunk;

/// Chunks that a worker decodes ahead. If it panics in one of them, those behind it are queued no more: as long as they
/// are, nobody gives them to a worker again.
struct Job {
    inner: Weak<Inner>,
    chunks: IntoIter<u64>,
}

impl Job {
    fn work(&mut self) {
        for chunk in self.chunks.by_ref() {
            if let Some(inner) = self.inner.upgrade() {
                inner.work_ahead(chunk);
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for chunk in self.chunks.by_ref() {
            if let Some(inner) = self.inner.upgrade() {
                inner.in_flight.dequeue(chunk);
            }
        }
    }
}

impl Inner {
    /// Bytes that may be decoded ahead for all readers of this stream: enough to keep the workers busy with chunks of
    /// their own, and little enough that the cache still holds them when their reader comes.
    pub(super) fn most_ahead(&self) -> u64 {
        const LEAST_PER_WORKER: u64 = 4 << 20;
        const LONGEST_CHUNK: u64 = 16 << 20;
        let workers = self.workers.threads() as u64;
        if workers == 0 {
            return 0;
        }
        let chunk = self.chunk_length.load(Ordering::Relaxed).min(LONGEST_CHUNK);
        let busy = workers.saturating_mul(LEAST_PER_WORKER).max(workers.saturating_add(1).saturating_mul(2 * chunk));
        busy.min((self.cache.share() / 2) as u64)
    }

    /// Splits what is to be decoded ahead after a read: in other chunks than its last, which begins at once, and in
    /// that one, which has to wait for the read's own decoding.
    ///
    /// If there are other chunks, the rest of that one is left to the reader: two threads on one chunk are no faster.
    pub(super) fn split(&self, read: &Range<u64>, ahead: &Range<u64>) -> (Range<u64>, Range<u64>) {
        if ahead.is_empty() {
            return (0..0, 0..0);
        }
        // An error is the demand's to report.
        let Ok(chunk) = self.chunk_at(read.end - 1) else { return (0..0, 0..0) };
        let chunk_end = chunk.point.decoded + chunk.length;
        if ahead.end > chunk_end { (ahead.start.max(chunk_end)..ahead.end, 0..0) } else { (0..0, ahead.clone()) }
    }

    /// Gives a range to the workers. Short chunks that follow each other make one job: its decoder goes on from one to
    /// the next, where another would have to resume.
    pub(super) fn schedule(this: &Arc<Self>, range: Range<u64>, hint: bool) {
        /// A table may have any number of chunks of a byte each.
        const MOST_CHUNKS: usize = 256;
        /// Decoded bytes that are worth a job.
        const WORTH: u64 = 2 << 20;
        let end = range.end.min(this.length);
        let mut position = range.start;
        let (mut job, mut bytes) = (Vec::new(), 0);
        for _ in 0..MOST_CHUNKS {
            if position >= end {
                break;
            }
            let Ok(chunk) = this.chunk_at(position) else { break };
            let start = chunk.point.decoded;
            let until = end.min(start + chunk.length);
            if this.in_flight.queue(start, position..until, hint) {
                job.push(start);
                bytes += until - position;
            } else {
                bytes = WORTH;
            }
            position = until;
            if bytes >= WORTH {
                bytes = 0;
                if !Self::submit(this, std::mem::take(&mut job)) {
                    return;
                }
            }
        }
        Self::submit(this, job);
    }

    /// Has a worker decode what was queued for these chunks; false where there is none.
    fn submit(this: &Arc<Self>, chunks: Vec<u64>) -> bool {
        if chunks.is_empty() {
            return true;
        }
        let (inner, queued) = (Arc::downgrade(this), chunks.clone());
        // Made by the worker: where a job is not accepted, the pool's lock may be held.
        let accepted = this.workers.submit(move || Job { inner, chunks: chunks.into_iter() }.work());
        if !accepted {
            for chunk in queued {
                this.in_flight.dequeue(chunk);
            }
        }
        accepted
    }

    /// Where the first piece of `range`, which lies in `chunk`, begins that is neither in the cache nor on disk.
    fn first_missing(&self, chunk: &Chunk, range: &Range<u64>) -> u64 {
        let mut position = range.start;
        while position < range.end && !self.closed.load(Ordering::Relaxed) {
            let kept = || {
                let place = PiecePlace::of(chunk, position);
                self.kept_piece(chunk, place).map(|_| place.end())
            };
            let Some(end) = self.cache.end_of_piece_at(self.stream(), position).or_else(kept) else { break };
            position = end;
        }
        position
    }

    /// Decodes what was queued for the chunk that starts at `chunk`. Errors are silent: a read of that range meets them
    /// again.
    fn work_ahead(&self, chunk: u64) {
        /// More is not passed over for a piece that may not even be wanted.
        const MOST_PASSED_OVER: u64 = 16 << 20;
        let Some(Queued { mut range, hint }) = self.in_flight.dequeue(chunk) else { return };
        let still_ahead = |range| if hint { range } else { lock(&self.sequences).still_ahead(range) };
        // The reader may have come to it before the worker did.
        range = still_ahead(range);
        if range.is_empty() {
            return;
        }
        let Ok(chunk) = self.chunk_at(chunk) else { return };
        let Some(chunk) = self.proven_ahead(chunk, range.start) else { return };
        range.start = self.first_missing(&chunk, &range);
        if range.is_empty() || self.closed.load(Ordering::Relaxed) {
            return;
        }
        let start = chunk.point.decoded;
        // Readers come first: nothing is decoded ahead that would hold them up at the gate.
        let nearest = |place: PiecePlace| start.max(place.start.saturating_sub(MOST_PASSED_OVER));
        let length = range.end.saturating_sub(nearest(PiecePlace::of(&chunk, range.start)));
        let Some(pass) = self.cache.gate.enter_ahead(self.depth, &self.expected, length) else { return };
        // Meanwhile the reader may have come to it, or another worker.
        range = still_ahead(range);
        range.start = self.first_missing(&chunk, &range);
        if range.is_empty() || self.closed.load(Ordering::Relaxed) {
            return;
        }
        let place = PiecePlace::of(&chunk, range.start);
        let task = Task { chunk: start, start: place.start, end: range.end };
        let nearest = nearest(place);
        let begin = || match self.cache.paused.take(self.stream(), nearest..=place.start) {
            Some((position, decoder)) => Some((position, Some(decoder))),
            None => (nearest == start).then_some((start, None)),
        };
        if let Some((run, begun)) = self.in_flight.ahead(task, begin)
            && let Err(error) = self.decode(&chunk, task, &run, begun, pass, Purpose::Ahead)
        {
            log::debug!("decoding ahead: {error}");
        }
    }
}
