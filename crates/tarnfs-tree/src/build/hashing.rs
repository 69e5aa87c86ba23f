//! Hashes of the files of an archive while it is indexed: entries wait until their content was hashed, several at a
//! time on all threads.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tarnfs_format::{Body, Entry, Stream, Xattrs, name};
use tarnfs_source::{Cancel, Extent, SharedSource, Slice};

use super::nested::is_damage;
use super::receiver::Receiver;
use crate::hashes::{Hashes, Running};
use crate::pieces::are_blocks;

/// Entries that wait at most, and bytes of content that are kept for them.
const MOST_WAITING: usize = 256;
const MOST_BYTES: u64 = 16 << 20;

/// Longer content of a stream is hashed while it goes by.
const LONG: u64 = 4 << 20;

/// Read at once.
const STEP: usize = 256 << 10;

/// Bytes that are hashed for each byte of an archive, and beside, of what may be stored nowhere: one of 3 KB may hold a
/// file of 4 EiB, whose zeros nobody can wait for.
const MOST_HOLES_FOR_EACH_BYTE: u64 = 1000;
const MOST_HOLES_BESIDE: u64 = 1 << 40;

/// Bytes of holes that may still be hashed, in all files of one pass, and of what may lie in a hole.
#[derive(Debug)]
pub(super) struct Holes {
    left: AtomicU64,
    /// Set when somebody was told of a file that has more.
    is_told: AtomicBool,
}

impl Holes {
    /// Of an archive of so many bytes.
    pub(super) fn new(archive_length: u64) -> Self {
        let most = archive_length.saturating_mul(MOST_HOLES_FOR_EACH_BYTE).saturating_add(MOST_HOLES_BESIDE);
        Self { left: AtomicU64::new(most), is_told: AtomicBool::new(false) }
    }

    /// False if there are more than may be hashed.
    fn claim(&self, bytes: u64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// The content of an entry that waits.
pub(super) enum Content {
    Bytes(Vec<u8>),
    Source(SharedSource),
    /// It was hashed while it went by, or cannot be.
    Hashed(Xattrs),
}

/// Hashes the files of one archive.
pub(super) struct Hashing<'a> {
    hashes: &'a Hashes,
    receiver: &'a dyn Receiver,
    threads: usize,
    holes: &'a Holes,
    cancel: &'a Cancel,
    waiting: RefCell<Vec<(Entry, Content)>>,
    bytes: Cell<u64>,
}

impl<'a> Hashing<'a> {
    pub(super) fn new(
        hashes: &'a Hashes,
        receiver: &'a dyn Receiver,
        threads: usize,
        holes: &'a Holes,
        cancel: &'a Cancel,
    ) -> Self {
        Self { hashes, receiver, threads, holes, cancel, waiting: RefCell::default(), bytes: Cell::new(0) }
    }

    /// False if `bytes` of `entry`, which may be stored nowhere, are more than may be hashed.
    pub(super) fn may_hash(&self, entry: &Entry, bytes: u64) -> bool {
        let may = self.holes.claim(bytes);
        // Nothing is damaged, so this is no note of the index. An archive may have very many such files.
        if !may && !self.holes.is_told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}: no hashes of it are kept: it has {bytes} bytes of holes or in blocks, and in an archive of this \
                 length so many are not hashed; other files like it are not named",
                name::excerpt(&entry.path)
            );
        }
        may
    }

    /// The content of `entry`, for [`Hashing::push`]. `source` has the bytes of the stream from byte `base` on, if they
    /// can be read at any time; else the stream stands where the content begins.
    pub(super) fn read(
        &self,
        entry: &Entry,
        stream: &mut dyn Stream,
        source: Option<(&SharedSource, u64)>,
    ) -> io::Result<Content> {
        let body = &entry.body;
        // What can be read at any time may be a file in blocks, and the content a hole in it.
        let there = |(source, base): (&SharedSource, u64)| {
            body.stored.min(source.len().saturating_sub(body.offset.saturating_sub(base)))
        };
        let in_source = source.map_or(0, there);
        if !self.may_hash(entry, holes_in(body).saturating_add(in_source)) {
            return Ok(Content::Hashed(Vec::new()));
        }
        if let Some((source, base)) = source {
            let start = body.offset.saturating_sub(base);
            return Ok(Content::Source(Arc::new(Slice::new(SharedSource::clone(source), start, body.stored))));
        }
        if stream.position() != body.offset {
            return Ok(Content::Hashed(Vec::new()));
        }
        if body.stored > LONG {
            let mut running = self.hashes.begin();
            let mut read = |length, receive: &mut dyn FnMut(&[u8])| next(stream, length, receive);
            let complete = content(entry, &mut running, self.cancel, &mut read)?;
            return Ok(Content::Hashed(if complete { running.finish() } else { Vec::new() }));
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.stored {
            let left = body.stored - bytes.len() as u64;
            if next(stream, left, &mut |part| bytes.extend_from_slice(part))? == 0 {
                break;
            }
        }
        Ok(Content::Bytes(bytes))
    }

    /// The hashes of an entry that does not wait.
    pub(super) fn now(&self, entry: &Entry, content: &Content) -> io::Result<Xattrs> {
        of(entry, content, self.hashes, self.cancel)
    }

    /// `stream`, of which all is hashed that goes by.
    pub(super) fn passing<'s>(&self, stream: &'s mut dyn Stream) -> Passing<'s> {
        let hashed = stream.position();
        Passing { stream, running: self.hashes.begin(), hashed }
    }

    /// Takes an entry with its content.
    pub(super) fn push(&self, entry: Entry, content: Content) -> io::Result<()> {
        let length = match &content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Source(_) => entry.body.stored,
            Content::Hashed(_) => 0,
        };
        self.bytes.set(self.bytes.get() + length + entry.weight() as u64);
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
        let (hashes, cancel) = (self.hashes, self.cancel);
        let work = || {
            while let at = following.fetch_add(1, Ordering::Relaxed)
                && let (Some((entry, content)), Some(place)) = (waiting.get(at), done.get(at))
            {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(of(entry, content, hashes, cancel));
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(waiting.len()) {
                // Where there can be no more threads, fewer do it all.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
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

/// A stream, and the hashes of what was passed of it.
pub(super) struct Passing<'s> {
    stream: &'s mut dyn Stream,
    running: Running,
    /// Byte up to which that is.
    hashed: u64,
}

impl Passing<'_> {
    /// Passes the rest, up to byte `end`. No hashes if that is not reached.
    pub(super) fn finish(mut self, end: u64) -> io::Result<Xattrs> {
        self.skip(u64::MAX)?;
        Ok(if self.hashed == end { self.running.finish() } else { Vec::new() })
    }
}

impl Stream for Passing<'_> {
    fn position(&self) -> u64 {
        self.stream.position()
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range)
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        self.stream.peek(length)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0;
        while skipped < length {
            let position = self.stream.position();
            let (running, hashed) = (&mut self.running, &mut self.hashed);
            let step = next(self.stream, length - skipped, &mut |part| {
                // Not once more what it went back to.
                let known = usize::try_from(hashed.saturating_sub(position)).unwrap_or(usize::MAX);
                let new = part.get(known..).unwrap_or_default();
                running.take(new);
                *hashed += new.len() as u64;
            })?;
            if step == 0 {
                break;
            }
            skipped += step;
        }
        Ok(skipped)
    }

    fn go_back(&mut self, position: u64) -> bool {
        self.stream.go_back(position)
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.stream.may_have_shifted(end)
    }
}

/// The attributes of one file.
fn of(entry: &Entry, stored: &Content, hashes: &Hashes, cancel: &Cancel) -> io::Result<Xattrs> {
    let mut running = hashes.begin();
    let mut at = 0;
    let complete = match stored {
        Content::Hashed(hashes) => return Ok(hashes.clone()),
        Content::Bytes(bytes) => content(entry, &mut running, cancel, &mut |length, receive| {
            let rest = bytes.get(at..).unwrap_or_default();
            let part = &rest[..rest.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
            at += part.len();
            receive(part);
            Ok(part.len() as u64)
        })?,
        Content::Source(source) => {
            let mut buffer = vec![0; STEP];
            let mut at = 0;
            content(entry, &mut running, cancel, &mut |length, receive| {
                cancel.check()?;
                let step = buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
                let read = match source.read_at(&mut buffer[..step], at) {
                    // Not all of it is there.
                    Err(error) if is_damage(&error) => 0,
                    read => read?,
                };
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
pub(super) fn next(stream: &mut dyn Stream, length: u64, receive: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let bytes = stream.peek(STEP.min(usize::try_from(length).unwrap_or(STEP)))?;
    receive(bytes);
    let length = bytes.len() as u64;
    stream.skip(length)
}

/// Shows up to so many of the stored bytes that come next, and says how many those were.
type Read<'r> = dyn FnMut(u64, &mut dyn FnMut(&[u8])) -> io::Result<u64> + 'r;

/// Bytes of holes in a file.
pub(super) fn holes_in(body: &Body) -> u64 {
    let Some(extents) = &body.extents else { return 0 };
    extents.iter().fold(body.size, |holes, extent| holes.saturating_sub(extent.length))
}

/// The same of a file in a directory, and of its bytes where other files may have the same ones.
pub(super) fn may_be_stored_nowhere(body: &Body) -> u64 {
    match body.pieces.as_deref() {
        Some(pieces @ [piece]) if piece.coder.is_some() && !are_blocks(pieces) => {
            body.size.saturating_sub(piece.length)
        }
        _ => body.size,
    }
}

/// Gives `running` the content of `entry` as a reader sees it, holes included. False if they are not all there.
fn content(entry: &Entry, running: &mut Running, cancel: &Cancel, read: &mut Read<'_>) -> io::Result<bool> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let whole = [Extent { offset: 0, length: entry.body.size, skip: 0 }];
    let extents = entry.body.extents.as_deref().unwrap_or(&whole);
    let hole = |running: &mut Running, mut length: u64| -> io::Result<()> {
        while length > 0 {
            // Nothing is read here that would notice it.
            cancel.check()?;
            let step = length.min(ZEROS.len() as u64);
            running.take(&ZEROS[..step as usize]);
            length -= step;
        }
        Ok(())
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
        hole(running, extent.offset.saturating_sub(at))?;
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
    hole(running, entry.body.size.saturating_sub(at))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::receiver::Direct;
    use tarnfs_index::{Writer, WriterOptions};
    use tarnfs_source::{Budget, Limits};

    /// Attributes of 16 MiB in each of 256 entries would be 4 GiB.
    #[test]
    fn entries_that_wait_are_few_if_they_are_large() {
        let options = WriterOptions { limits: Limits::default(), budget: Budget::new(0), cancel: Cancel::default() };
        let direct = Direct::new(Writer::new(options).unwrap(), Limits::default(), 0);
        let (hashes, holes, cancel) = (Hashes::new(&["md5".to_owned()]), Holes::new(0), Cancel::default());
        let hashing = Hashing::new(&hashes, &direct, 2, &holes, &cancel);
        let entry = Entry { xattrs: vec![(b"user.a".to_vec(), vec![0; 3 << 20])], ..Entry::default() };
        for number in 1..=20 {
            hashing.push(entry.clone(), Content::Bytes(Vec::new())).unwrap();
            assert_eq!(hashing.waiting.borrow().len(), number % 6, "{number}");
        }
    }

    /// Between what is stored of a file there may be bytes of others, which are not the file's.
    #[test]
    fn what_is_skipped_is_in_no_hash() {
        let stored = [&b"skipped"[..], b"ab", b"and this", b"cd"].concat();
        let extents = vec![Extent { offset: 1, length: 2, skip: 7 }, Extent { offset: 5, length: 2, skip: 8 }];
        let body = Body { size: 8, stored: stored.len() as u64, extents: Some(extents), ..Body::default() };
        let entry = Entry { body, ..Entry::default() };
        let hashes = Hashes::new(&["crc32".to_owned()]);
        let crc = format!("{:08x}", crc32fast::hash(b"\0ab\0\0cd\0")).into_bytes();
        let source: SharedSource = Arc::new(tarnfs_source::MemorySource::new(&stored[..], "stored"));
        for content in [Content::Bytes(stored.clone()), Content::Source(source)] {
            let found = of(&entry, &content, &hashes, &Cancel::default()).unwrap();
            assert!(matches!(&found[..], [(_, value)] if *value == crc), "{found:?}");
        }
        let cut = Content::Bytes(stored[..stored.len() - 3].to_vec());
        assert_eq!(of(&entry, &cut, &hashes, &Cancel::default()).unwrap(), []);
    }

    #[test]
    fn holes_are_counted_in_all_files_together() {
        let holes = Holes::new(1 << 20);
        let most = (1_000 << 20) + (1 << 40);
        assert!(
            !holes.claim(most + 1) && holes.claim(most - 5) && !holes.claim(6) && holes.claim(5) && !holes.claim(1)
        );
        let extent = |offset, length| Extent { offset, length, skip: 0 };
        let body = |extents| Body { size: 100, extents, ..Body::default() };
        assert_eq!(holes_in(&body(Some(vec![extent(10, 20), extent(50, 5)]))), 75);
        assert_eq!((holes_in(&body(Some(Vec::new()))), holes_in(&body(None))), (100, 0));
    }
}
