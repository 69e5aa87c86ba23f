//! Hashes of the files of an archive while it is indexed: entries wait until their content was hashed, several at a time on all threads.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_format::{Entry, Stream, Xattrs};
use tarnfs_source::{Extent, SharedSource, Slice};

use super::receiver::Receiver;
use crate::hashes::{Hashes, Running};

/// Entries that wait at most, and bytes of content that are kept for them.
const MOST_WAITING: usize = 256;
const MOST_BYTES: u64 = 16 << 20;

/// Longer content of a stream is hashed while it goes by.
const LONG: u64 = 4 << 20;

/// Read at once.
const STEP: usize = 256 << 10;

/// Where the content of a waiting entry is.
enum Content {
    Bytes(Vec<u8>),
    Source(SharedSource),
}

/// Hashes the files of one archive.
pub(super) struct Hashing<'a> {
    hashes: &'a Hashes,
    receiver: &'a dyn Receiver,
    threads: usize,
    waiting: RefCell<Vec<(Entry, Content)>>,
    bytes: Cell<u64>,
}

impl<'a> Hashing<'a> {
    pub(super) fn new(hashes: &'a Hashes, receiver: &'a dyn Receiver, threads: usize) -> Self {
        Self { hashes, receiver, threads, waiting: RefCell::default(), bytes: Cell::new(0) }
    }

    /// Takes an entry with content. `source` has the bytes of the stream from byte `base` on, if they can be read at any time; else the
    /// stream stands where the content begins.
    pub(super) fn take(
        &self,
        entry: Entry,
        stream: &mut dyn Stream,
        source: Option<(&SharedSource, u64)>,
    ) -> io::Result<()> {
        let body = &entry.body;
        let content = match source {
            Some((source, base)) => {
                let start = body.offset.saturating_sub(base);
                Content::Source(Arc::new(Slice::new(SharedSource::clone(source), start, body.stored)))
            }
            None if body.stored > LONG || stream.position() != body.offset => {
                let mut entry = entry;
                if stream.position() == entry.body.offset {
                    let mut running = self.hashes.begin();
                    let complete = content(&entry, &mut running, &mut |length, receive| next(stream, length, receive))?;
                    if complete {
                        entry.xattrs.extend(running.finish());
                    }
                }
                return self.receiver.entry(&entry).map_err(io::Error::other);
            }
            None => {
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < body.stored {
                    let left = body.stored - bytes.len() as u64;
                    if next(stream, left, &mut |part| bytes.extend_from_slice(part))? == 0 {
                        break;
                    }
                }
                Content::Bytes(bytes)
            }
        };
        let length = if let Content::Bytes(bytes) = &content { bytes.len() as u64 } else { body.stored };
        self.bytes.set(self.bytes.get() + length);
        self.waiting.borrow_mut().push((entry, content));
        if self.waiting.borrow().len() >= MOST_WAITING || self.bytes.get() >= MOST_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Hashes what waits, and hands it on.
    pub(super) fn flush(&self) -> io::Result<()> {
        let waiting = self.waiting.take();
        self.bytes.set(0);
        let done: Vec<Mutex<Option<io::Result<Xattrs>>>> = waiting.iter().map(|_| Mutex::new(None)).collect();
        let following = AtomicUsize::new(0);
        let hashes = self.hashes;
        let work = || {
            while let at = following.fetch_add(1, Ordering::Relaxed)
                && let (Some((entry, content)), Some(place)) = (waiting.get(at), done.get(at))
            {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(of(entry, content, hashes));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(waiting.len()) {
                scope.spawn(work);
            }
            work();
        });
        for ((mut entry, _), done) in waiting.into_iter().zip(done) {
            if let Some(result) = done.into_inner().unwrap_or_else(PoisonError::into_inner) {
                entry.xattrs.extend(result?);
            }
            self.receiver.entry(&entry).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// The attributes of one file.
fn of(entry: &Entry, stored: &Content, hashes: &Hashes) -> io::Result<Xattrs> {
    let mut running = hashes.begin();
    let mut at = 0;
    let complete = match stored {
        Content::Bytes(bytes) => content(entry, &mut running, &mut |length, receive| {
            let rest = bytes.get(at..).unwrap_or_default();
            let part = &rest[..rest.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
            at += part.len();
            receive(part);
            Ok(part.len() as u64)
        })?,
        Content::Source(source) => {
            let mut buffer = vec![0; STEP];
            let mut at = 0;
            content(entry, &mut running, &mut |length, receive| {
                let step = buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
                let read = source.read_at(&mut buffer[..step], at)?;
                at += read as u64;
                receive(&buffer[..read]);
                Ok(read as u64)
            })?
        }
    };
    Ok(if complete { running.finish() } else { Vec::new() })
}

/// Hashes all that `stream` still has, and returns how much that was.
pub(super) fn rest_of(stream: &mut dyn Stream, hashes: &Hashes) -> io::Result<(u64, Xattrs)> {
    if hashes.is_empty() {
        return Ok((stream.skip(u64::MAX)?, Vec::new()));
    }
    let mut running = hashes.begin();
    let mut length = 0;
    loop {
        let read = next(stream, u64::MAX, &mut |part| running.take(part))?;
        if read == 0 {
            return Ok((length, running.finish()));
        }
        length += read;
    }
}

/// Shows up to `length` of the bytes that come next in `stream`, and moves past them.
fn next(stream: &mut dyn Stream, length: u64, receive: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let bytes = stream.peek(STEP.min(usize::try_from(length).unwrap_or(STEP)))?;
    receive(bytes);
    let length = bytes.len() as u64;
    stream.skip(length)
}

/// Shows up to so many of the stored bytes that come next, and says how many those were.
type Read<'r> = dyn FnMut(u64, &mut dyn FnMut(&[u8])) -> io::Result<u64> + 'r;

/// Gives `running` the content of `entry` as a reader sees it, holes included. False if they are not all there.
fn content(entry: &Entry, running: &mut Running, read: &mut Read<'_>) -> io::Result<bool> {
    let zeros = [0; 8 << 10];
    let whole = [Extent { offset: 0, length: entry.body.size, skip: 0 }];
    let extents = entry.body.extents.as_deref().unwrap_or(&whole);
    let hole = |running: &mut Running, mut length: u64| {
        while length > 0 {
            let step = length.min(zeros.len() as u64);
            running.take(&zeros[..step as usize]);
            length -= step;
        }
    };
    let mut at = 0;
    for extent in extents {
        let mut skip = extent.skip;
        while skip > 0 {
            let step = read(skip, &mut |_| {})?;
            if step == 0 {
                return Ok(false);
            }
            skip -= step;
        }
        hole(running, extent.offset.saturating_sub(at));
        let mut left = extent.length;
        while left > 0 {
            let step = read(left, &mut |part| running.take(part))?;
            if step == 0 {
                return Ok(false);
            }
            left -= step;
        }
        at = extent.offset.saturating_add(extent.length);
    }
    hole(running, entry.body.size.saturating_sub(at));
    Ok(true)
}
