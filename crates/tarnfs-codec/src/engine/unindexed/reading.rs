//! How readers get bytes of a stream that is decoded for the first time, and of what it has become.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tarnfs_source::Source;

use super::pass::{Held, Pass};
use super::{DecodedSource, Done, Part, Step, UnindexedSource, VERIFIED_FIRST, is_no_memory, lock};
use crate::ChunkTable;
use crate::sync::thread;

/// Who waits for memory looks so often, and for so long at most: less than a mount waits for an answer.
const NAP: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(50);

/// Goes up whenever somebody waits: several who need the same must not look at the same moments.
static NAPS: AtomicUsize = AtomicUsize::new(0);

/// Where bytes of the first pass are.
enum Found {
    /// So many were copied.
    Bytes(usize),
    /// They can be decoded again from here.
    Before(Arc<DecodedSource>),
    Nowhere,
    /// The pass has ended.
    Done,
}

impl UnindexedSource {
    /// Decodes on, at least up to byte `end`, and copies what comes from `offset` on, if that is not too far back.
    fn read_in_pass(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let end = offset + buffer.len() as u64;
        // The last piece is served when all is verified.
        let needed = if end == self.length || self.length <= VERIFIED_FIRST { u64::MAX } else { end };
        let mut waits_since = None;
        loop {
            let before = match self.found_in_pass(buffer, offset, needed, &mut waits_since)? {
                Found::Bytes(length) => return Ok(Some(length)),
                Found::Done => return Ok(None),
                // There is no seek point between it and what is at hand: it is found when all is known.
                Found::Nowhere => return self.read_in_pass_to_the_end(),
                Found::Before(before) => before,
            };
            let end = before.len().min(end);
            match before.read_at(&mut buffer[..(end - offset) as usize], offset) {
                Err(error) if is_no_memory(&error) => self.rest(&mut waits_since)?,
                read => return read.map(Some),
            }
        }
    }

    /// Decodes on, at least up to byte `needed`, and says where what comes from `offset` on is. What is at hand is
    /// copied.
    fn found_in_pass(
        &self,
        buffer: &mut [u8],
        offset: u64,
        needed: u64,
        waits_since: &mut Option<Instant>,
    ) -> io::Result<Found> {
        loop {
            self.options.cancel.check()?;
            let mut held = self.next_turn();
            if self.done.get().is_some() {
                return Ok(Found::Done);
            }
            let position = held.as_ref().map_or(0, |pass| pass.indexing.decoded_position());
            if position < needed {
                match self.step(&mut held)? {
                    Step::More => {}
                    Step::Ended => return Ok(Found::Done),
                    Step::LostCopy => continue,
                    Step::NoMemory => {
                        drop(held);
                        self.wait_for_memory(waits_since)?;
                        continue;
                    }
                }
            }
            let Some(pass) = &mut *held else { continue };
            if pass.indexing.decoded_position() < needed {
                continue;
            }
            pass.used = Instant::now();
            let first = pass.indexing.decoded_position() - pass.recent.len() as u64;
            if let Some(from) = offset.checked_sub(first) {
                let there = pass.recent.get(from as usize..).unwrap_or_default();
                let length = there.len().min(buffer.len());
                buffer[..length].copy_from_slice(&there[..length]);
                return Ok(Found::Bytes(length));
            }
            if let Some(copied) = pass.copied.as_ref().filter(|copied| copied.length() > offset) {
                match copied.read(buffer, offset) {
                    Ok(read) => return Ok(Found::Bytes(read)),
                    Err(error) => self.lose_copy(&mut held, &error),
                }
                continue;
            }
            return Ok(match &pass.before {
                Some(before) if before.len() > offset => Found::Before(Arc::clone(before)),
                _ if pass.table.decoded_length() > offset => {
                    Found::Before(Arc::clone(pass.before.insert(self.source_of(pass.table.clone()))))
                }
                _ => Found::Nowhere,
            });
        }
    }

    /// Gives up a copy that cannot be read any more: all is decoded again, and not copied.
    fn lose_copy(&self, held: &mut Option<Box<Pass>>, error: &io::Error) {
        log::warn!("{}: {error}: it is decoded again", self.describe());
        self.cannot_copy.store(true, Ordering::Relaxed);
        self.give_up(held.take());
    }

    /// Gives up what it holds, and waits a moment: what it is decoded from has no memory.
    fn rest(&self, waits_since: &mut Option<Instant>) -> io::Result<()> {
        let mut held = self.next_turn();
        if let Some(pass) = held.take() {
            self.give_up(Some(pass));
        }
        drop(held);
        self.wait_for_memory(waits_since)
    }

    /// Waits a moment for the memory of others, who give theirs up if they do nothing with it.
    fn wait_for_memory(&self, since: &mut Option<Instant>) -> io::Result<()> {
        let is_input = self.pass.is_input.load(Ordering::Relaxed);
        if is_input || Held::any() > 0 || since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return Err(self.no_memory());
        }
        if !self.cache.drop_idle() {
            let naps = NAPS.fetch_add(1, Ordering::Relaxed) % 5 + 1;
            thread::sleep(NAP * naps as u32);
        }
        Ok(())
    }

    /// Reads from the last bytes of an input, as long as they are kept.
    fn read_tail(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let tail = lock(&self.pass.tail);
        let tail = tail.as_ref()?;
        let there = tail.bytes.get(usize::try_from(offset.checked_sub(tail.from)?).ok()?..)?;
        let length = there.len().min(buffer.len());
        buffer[..length].copy_from_slice(&there[..length]);
        Some(length)
    }

    /// Decodes all that is left.
    fn read_in_pass_to_the_end(&self) -> io::Result<Option<usize>> {
        let mut last = [0];
        self.read_in_pass(&mut last, self.length - 1).map(|_| None)
    }
}

impl Source for UnindexedSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let (mut filled, mut waits_since) = (0, None);
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
                Some(Done::Long(decoded)) => {
                    match self.read_tail(rest, from).map_or_else(|| decoded.read_at(rest, from), Ok) {
                        Err(error) if is_no_memory(&error) => {
                            self.wait_for_memory(&mut waits_since)?;
                            continue;
                        }
                        read => read?,
                    }
                }
                Some(Done::Copied(copied)) => copied.read(rest, from)?,
                Some(Done::Part(part, ..)) if from < part.length() => part.read(rest, from)?,
                Some(Done::Part(_, kind, what) | Done::Wrong(kind, what)) => {
                    return Err(io::Error::new(*kind, what.clone()));
                }
            };
            if read == 0 {
                return Err(self.wrong(io::ErrorKind::UnexpectedEof, "it ends too early"));
            }
            filled += read;
        }
        // Who takes the last byte of such a part finds here that it is wrong.
        if !self.context.unverified
            && let Some(what) = self.flaw_in(offset..offset + wanted as u64)
        {
            return Err(self.wrong(io::ErrorKind::InvalidData, &what));
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
            Some(Done::Long(decoded) | Done::Part(Part::Seekable(decoded), ..)) => decoded.is_ready(offset, length),
            // A disk may sleep.
            Some(Done::Copied(_) | Done::Part(Part::Copied(..), ..)) => false,
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
        self.memory.load(Ordering::Relaxed) + self.flaws.memory()
    }
}
