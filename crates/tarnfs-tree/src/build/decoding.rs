//! A compressed stream that is walked while it is decoded for the first time.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_codec::Chunk;
use tarnfs_codec::engine::Indexing;
use tarnfs_format::{Entry, Stream, stream::MOST_PEEKED};
use tarnfs_source::Cancel;

use super::receiver::{MOST_NOTES, Receiver};
use crate::open::Sink;

/// Places in a decoded stream before which an unknown number of bytes is missing. Nobody knows what of a file lies behind one.
#[derive(Debug, Default)]
pub(super) struct Shifts {
    /// Since the last entry that was settled, ascending.
    at: Vec<u64>,
    /// There were more than are kept.
    many: bool,
    /// There ever was one.
    any: bool,
}

impl Shifts {
    fn add(&mut self, found: &mut Vec<u64>) {
        self.any |= !found.is_empty();
        self.at.append(found);
        self.many |= self.at.len() > MOST_NOTES;
        self.at.truncate(MOST_NOTES);
    }

    /// Makes damage of what of `entry` lies behind such a place. Entries come in the order of the stream, each when it has been passed.
    pub(super) fn settle(&mut self, entry: &Entry, receiver: &dyn Receiver) -> Result<(), tarnfs_index::Error> {
        if self.at.is_empty() {
            return Ok(());
        }
        let end = entry.body.offset.saturating_add(entry.body.stored);
        let shift = self.at.iter().copied().find(|&at| at > entry.header && at < end);
        let from = if self.many { Some(entry.body.offset) } else { shift.map(|at| at.max(entry.body.offset)) };
        if let Some(from) = from.filter(|&from| from < end) {
            let what = "something is missing before it in its file".to_owned();
            receiver.damage(tarnfs_codec::Damage { decoded: from..end, compressed: 0, what })?;
        }
        self.at.retain(|&at| at > end);
        self.many &= !self.at.is_empty();
        Ok(())
    }
}

/// Hands out decoded bytes, and tells a receiver of chunks and damage.
///
/// A stream that cannot be decoded to its end ends where it broke: the error is kept in `ended_by`.
pub(super) struct DecodingStream<'a> {
    pub(super) indexing: Indexing,
    receiver: &'a dyn Receiver,
    pub(super) shifts: &'a RefCell<Shifts>,
    cancel: &'a Cancel,
    /// Counts the compressed bytes that were read.
    progress: Option<&'a AtomicU64>,
    sink: Option<&'a Arc<dyn Sink>>,
    buffer: Vec<u8>,
    /// What of `buffer` is decoded and not yet behind the stream's position.
    from: usize,
    end: usize,
    /// Byte of the decoded stream at which `buffer[from]` lies.
    pub(super) position: u64,
    at_end: bool,
    /// False as long as it is not known whether the stream is what it seems to be: nothing is told before.
    tells: bool,
    pub(super) ended_by: Option<(u64, io::Error)>,
    chunks: Vec<Chunk>,
    /// Damage that was not told yet, and all of it, for people.
    untold: Vec<tarnfs_codec::Damage>,
    pub(super) damage: Vec<tarnfs_codec::Damage>,
}

impl<'a> DecodingStream<'a> {
    /// Decoded at once: large enough to make calls cheap, small enough for the second-level cache.
    const BATCH: usize = 256 << 10;

    pub(super) fn new(
        indexing: Indexing,
        receiver: &'a dyn Receiver,
        shifts: &'a RefCell<Shifts>,
        cancel: &'a Cancel,
    ) -> Self {
        Self {
            indexing,
            receiver,
            shifts,
            cancel,
            progress: None,
            sink: None,
            buffer: Vec::new(),
            from: 0,
            end: 0,
            position: 0,
            at_end: false,
            tells: false,
            ended_by: None,
            chunks: Vec::new(),
            untold: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// The archive itself: how far it has come is shown, and somebody may want its bytes.
    pub(super) fn of_archive(self, progress: &'a AtomicU64, sink: Option<&'a Arc<dyn Sink>>) -> Self {
        Self { progress: Some(progress), sink, ..self }
    }

    /// From now on chunks and damage are told, those found before at once.
    pub(super) fn tell(&mut self) -> io::Result<()> {
        self.tells = true;
        self.hand_over()
    }

    fn buffered(&self) -> usize {
        self.end - self.from
    }

    /// Decodes more behind what is buffered.
    fn fill(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        self.buffer.copy_within(self.from..self.end, 0);
        let kept = self.buffered();
        if self.buffer.len() < kept + Self::BATCH {
            self.buffer.resize(kept + Self::BATCH, 0);
        }
        let result = self.indexing.read(&mut self.buffer[kept..][..Self::BATCH]);
        (self.from, self.end) = (0, kept + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => self.at_end = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                self.at_end = true;
                self.ended_by = Some((self.indexing.decoded_position(), error));
            }
            Err(error) => return Err(error),
        }
        if let Some(progress) = self.progress {
            progress.store(self.indexing.compressed_position(), Ordering::Relaxed);
        }
        self.take()?;
        // Bytes that were damaged are known to be so only now.
        match self.sink {
            Some(sink) if self.damage.is_empty() && !self.may_have_shifted() => {
                sink.write(&self.buffer[kept..self.end])
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> io::Result<()> {
        let mut damage = Vec::new();
        self.indexing.take_chunks(&mut self.chunks);
        self.indexing.take_damage(&mut damage);
        let mut shifts = Vec::new();
        self.indexing.take_shifts(&mut shifts);
        self.shifts.borrow_mut().add(&mut shifts);
        let room = MOST_NOTES.saturating_sub(self.damage.len());
        self.damage.extend(damage.iter().take(room).cloned());
        self.untold.append(&mut damage);
        if self.tells { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> io::Result<()> {
        for chunk in self.chunks.drain(..) {
            self.receiver.chunk(chunk).map_err(io::Error::other)?;
        }
        for damage in self.untold.drain(..) {
            self.receiver.damage(damage).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Stream for DecodingStream<'_> {
    fn position(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if length > MOST_PEEKED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while self.buffered() < length && !self.at_end {
            self.fill()?;
        }
        Ok(&self.buffer[self.from..self.end.min(self.from + length)])
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0;
        while skipped < length {
            if self.buffered() == 0 {
                if self.at_end {
                    break;
                }
                self.fill()?;
            }
            let step = (length - skipped).min(self.buffered() as u64);
            self.from += step as usize;
            self.position += step;
            skipped += step;
        }
        Ok(skipped)
    }

    fn may_have_shifted(&self) -> bool {
        self.shifts.borrow().any
    }
}
