//! Contents that are compared while a compressed archive is decoded for the first time, so that it is decoded once.
//! Nobody knows yet whether they are whole, and which of them will show. So what comes of it is noted with the byte at
//! which the header begins and with what was there at the other side: it holds if both are found again.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tarnfs_format::{Entry, Kind, name};
use tarnfs_source::{Cancel, Extent, Limits};
use tarnfs_tree::open::Contents;

use super::content::difference;
use super::side::{Readable, Seen, Side};
use crate::commands::extract::selection::Selection;

/// Bytes that are handed to the threads that compare, at once, and small files.
const BATCH: usize = 1 << 20;
const MOST_FILES: usize = 256;

/// Batches that wait for each of these threads, and how many threads there are.
const MOST_WAITING: usize = 3;
const MOST_THREADS: usize = 4;

/// Files of which is noted what came of it. Others are read again.
const MOST_NOTED: usize = 2 << 20;

/// Parts of a sparse file. One that has more is read later.
const MOST_EXTENTS: usize = 1 << 16;

/// Bytes of zeros that are compared at once.
const ZEROS: usize = 64 << 10;

static NOTHING: [u8; ZEROS] = [0; ZEROS];

/// No byte differs.
const SAME: u64 = u64::MAX;

/// What came of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    header: u64,
    /// What was there at the other side.
    there: u64,
    first: u64,
}

#[derive(Debug, Default)]
struct Notes {
    notes: Mutex<Vec<Note>>,
    keys: RandomState,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there(&self, seen: &Seen) -> u64 {
        self.keys.hash_one((seen.file, seen.size, seen.mtime, seen.ctime))
    }

    fn add(&self, header: u64, seen: &Seen, first: u64) {
        let note = Note { header, there: self.there(seen), first };
        self.lock().push(note);
    }
}

/// Takes contents.
pub(super) struct Passing<S: Side> {
    selection: Selection,
    limits: Limits,
    work: Arc<Work<S>>,
    most_threads: usize,
    threads: Mutex<Threads<S>>,
    current: Mutex<Option<Current<S>>>,
}

struct Threads<S: Side> {
    jobs: Option<SyncSender<Job<S>>>,
    running: Vec<JoinHandle<()>>,
    /// Small files that wait for others.
    small: Vec<Small>,
    bytes: Vec<u8>,
}

/// What all threads know.
struct Work<S> {
    side: Arc<S>,
    notes: Arc<Notes>,
    has_panicked: AtomicBool,
    cancel: Cancel,
}

struct Small {
    header: u64,
    path: Vec<Vec<u8>>,
    length: usize,
}

/// The file whose content comes.
struct Current<S: Side> {
    header: u64,
    path: Vec<Vec<u8>>,
    size: u64,
    /// Where its data go; all to the start of the file where there are no extents.
    extents: Option<Vec<Extent>>,
    /// Of those, how many are full, and the bytes in the one that is not.
    full: usize,
    in_extent: u64,
    /// Stored bytes that were handed on.
    passed: u64,
    waiting: Vec<u8>,
    opened: Opened<S::File>,
}

/// The file of the other side.
enum Opened<F: Readable> {
    NotYet,
    /// There is none that can be compared.
    Missing,
    Open(Arc<Large<F>>),
}

/// A file of the other side that is compared in parts. What came of it is noted when all parts are done.
struct Large<F: Readable> {
    file: F,
    seen: Seen,
    header: u64,
    first: AtomicU64,
    /// All of it was handed on, and could be read.
    is_whole: AtomicBool,
    has_failed: AtomicBool,
    notes: Arc<Notes>,
    cancel: Cancel,
}

impl<F: Readable> Large<F> {
    fn compare(&self, at: u64, bytes: &[u8], buffer: &mut Vec<u8>) {
        if self.first.load(Ordering::Relaxed) < at {
            return;
        }
        buffer.resize(bytes.len().max(buffer.len()), 0);
        match self.file.read_at(&mut buffer[..bytes.len()], at) {
            Ok(read) => {
                if let Some(place) = difference(bytes, &buffer[..read]) {
                    self.first.fetch_min(at + place, Ordering::Relaxed);
                }
            }
            Err(_) => self.has_failed.store(true, Ordering::Relaxed),
        }
    }

    /// Compares a hole of the archive.
    fn compare_zeros(&self, mut at: u64, end: u64, buffer: &mut Vec<u8>) {
        while at < end {
            // A hole may be very long, and what stands there on the other side be stored.
            if self.cancel.is_cancelled() {
                self.has_failed.store(true, Ordering::Relaxed);
                return;
            }
            let data = if self.seen.is_sparse { self.file.next_data(at).unwrap_or(end) } else { at };
            at = data.max(at);
            let length = end.saturating_sub(at).min(ZEROS as u64);
            self.compare(at, &NOTHING[..length as usize], buffer);
            at += length;
            if self.has_failed.load(Ordering::Relaxed) || self.first.load(Ordering::Relaxed) < at {
                return;
            }
        }
    }
}

impl<F: Readable> Drop for Large<F> {
    fn drop(&mut self) {
        let is_known = *self.is_whole.get_mut() && !*self.has_failed.get_mut();
        if is_known && self.file.verify().is_ok() && self.file.is_still(&self.seen).unwrap_or(false) {
            self.notes.add(self.header, &self.seen, *self.first.get_mut());
        }
    }
}

enum Job<S: Side> {
    /// Small files, one behind the other.
    Files(Vec<Small>, Vec<u8>),
    /// A part of a larger one.
    Part(Arc<Large<S::File>>, u64, Vec<u8>),
    /// Holes of one.
    Zeros(Arc<Large<S::File>>, Vec<(u64, u64)>),
}

impl<S: Side> Passing<S> {
    /// Compares what is selected with `side`, on so many threads.
    pub(super) fn new(
        side: &Arc<S>,
        selection: Selection,
        (limits, threads): (Limits, usize),
        cancel: &Cancel,
    ) -> Self {
        let (side, cancel) = (Arc::clone(side), cancel.clone());
        let work = Work { side, notes: Arc::default(), has_panicked: AtomicBool::new(false), cancel };
        let threads_now = Threads { jobs: None, running: Vec::new(), small: Vec::new(), bytes: Vec::new() };
        Self {
            selection,
            limits,
            work: Arc::new(work),
            most_threads: threads.clamp(1, MOST_THREADS),
            threads: Mutex::new(threads_now),
            current: Mutex::default(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Threads<S>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<Current<S>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on a job, to threads that are started when there is one.
    fn push(&self, job: Job<S>) -> io::Result<()> {
        let jobs = self.jobs()?;
        // It fails only if all threads have panicked.
        jobs.send(job).map_err(|_| io::Error::other("a thread that compares has panicked"))
    }

    fn jobs(&self) -> io::Result<SyncSender<Job<S>>> {
        let mut threads = self.threads();
        if let Some(jobs) = &threads.jobs {
            return Ok(jobs.clone());
        }
        let (jobs, received) = sync_channel(self.most_threads * MOST_WAITING);
        let received = Arc::new(Mutex::new(received));
        while threads.running.len() < self.most_threads {
            let (work, received) = (Arc::clone(&self.work), Arc::clone(&received));
            match std::thread::Builder::new().name("comparing".into()).spawn(move || work.all(&received)) {
                Ok(thread) => threads.running.push(thread),
                // One can do it.
                Err(_) if !threads.running.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(threads.jobs.insert(jobs).clone())
    }

    fn flush(&self) -> io::Result<()> {
        let mut threads = self.threads();
        if threads.small.is_empty() {
            return Ok(());
        }
        let job = Job::Files(std::mem::take(&mut threads.small), std::mem::take(&mut threads.bytes));
        drop(threads);
        self.push(job)
    }

    /// Waits until all is compared. From now on [`first`](Self::first) may be asked.
    pub(super) fn finish(&self) -> io::Result<()> {
        let flushed = self.flush();
        let (jobs, running) = {
            let mut threads = self.threads();
            (threads.jobs.take(), std::mem::take(&mut threads.running))
        };
        drop(jobs);
        for thread in running {
            if thread.join().is_err() {
                self.work.has_panicked.store(true, Ordering::Relaxed);
            }
        }
        self.work.notes.lock().sort_unstable();
        flushed?;
        if self.work.has_panicked.load(Ordering::Relaxed) {
            return Err(io::Error::other("a thread that compares has panicked"));
        }
        Ok(())
    }

    /// The first byte that differs of what is stored behind the header there and what was `seen` at the other side;
    /// `None` in it if there is none. `None` if these were not compared.
    #[allow(clippy::option_option, reason = "the inner one is what was found")]
    pub(super) fn first(&self, header: u64, seen: &Seen) -> Option<Option<u64>> {
        let notes = self.work.notes.lock();
        let from = notes.partition_point(|note| note.header < header);
        let mut of_header = notes[from..].iter().take_while(|note| note.header == header);
        // A header has one content; of two, nobody knows which is right.
        let (Some(note), None) = (of_header.next(), of_header.next()) else { return None };
        (note.there == self.work.notes.there(seen)).then_some((note.first != SAME).then_some(note.first))
    }

    /// Hands on what waits of a file that is not compared in one go.
    fn hand_on(&self, current: &mut Current<S>) -> io::Result<()> {
        let bytes = std::mem::take(&mut current.waiting);
        if matches!(current.opened, Opened::NotYet) {
            current.opened = self.work.open(current.header, &current.path).map_or(Opened::Missing, Opened::Open);
        }
        let Opened::Open(large) = &current.opened else { return Ok(()) };
        let Some(extents) = &current.extents else {
            let at = current.passed;
            current.passed += bytes.len() as u64;
            return self.push(Job::Part(Arc::clone(large), at, bytes));
        };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            // More than the map has room for is nothing of the file.
            let Some(extent) = extents.get(current.full) else { return Ok(()) };
            let room = extent.skip.saturating_add(extent.length).saturating_sub(current.in_extent);
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
            let (part, behind) = rest.split_at(length);
            let skipped = extent.skip.saturating_sub(current.in_extent).min(length as u64);
            let data = &part[skipped as usize..];
            if !data.is_empty() {
                let at = extent.offset.saturating_add(current.in_extent + skipped - extent.skip);
                self.push(Job::Part(Arc::clone(large), at, data.to_vec()))?;
            }
            current.in_extent += length as u64;
            if length as u64 == room {
                (current.full, current.in_extent) = (current.full + 1, 0);
            }
            rest = behind;
        }
        Ok(())
    }
}

/// The holes between extents of a file of `size` bytes. `None` if they are not in order.
fn holes(extents: &[Extent], size: u64) -> Option<Vec<(u64, u64)>> {
    let mut holes = Vec::new();
    let mut at = 0;
    for extent in extents {
        let end = extent.offset.checked_add(extent.length)?;
        if extent.offset < at || end > size {
            return None;
        }
        if extent.offset > at {
            holes.push((at, extent.offset));
        }
        at = end;
    }
    if size > at {
        holes.push((at, size));
    }
    Some(holes)
}

impl<S: Side> std::fmt::Debug for Passing<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Passing")
    }
}

impl<S: Side> Contents for Passing<S> {
    fn begin(&self, entry: &Entry) -> io::Result<bool> {
        let extents = entry.body.extents.clone();
        let is_too_sparse = extents
            .as_ref()
            .is_some_and(|extents| extents.len() > MOST_EXTENTS || holes(extents, entry.body.size).is_none());
        if entry.kind != Kind::File
            || is_too_sparse
            || self.work.notes.lock().len() >= MOST_NOTED
            || !self.selection.may_take(&entry.path)
        {
            return Ok(false);
        }
        *self.current() = Some(Current {
            header: entry.header,
            path: name::components(&entry.path, &self.limits).iter().map(<[u8]>::to_vec).collect(),
            size: entry.body.size,
            extents,
            full: 0,
            in_extent: 0,
            passed: 0,
            waiting: Vec::new(),
            opened: Opened::NotYet,
        });
        Ok(true)
    }

    fn write(&self, stored: &[u8]) -> io::Result<()> {
        let mut current = self.current();
        let Some(current) = current.as_mut() else { return Ok(()) };
        if matches!(current.opened, Opened::Missing) {
            // There is nothing to compare it with.
            return Ok(());
        }
        current.waiting.extend_from_slice(stored);
        if current.waiting.len() >= BATCH { self.hand_on(current) } else { Ok(()) }
    }

    fn end(&self, complete: bool) -> io::Result<()> {
        let Some(mut current) = self.current().take() else { return Ok(()) };
        if !complete {
            return Ok(());
        }
        if matches!(current.opened, Opened::NotYet) && current.extents.is_none() {
            let mut threads = self.threads();
            threads.small.push(Small { header: current.header, path: current.path, length: current.waiting.len() });
            threads.bytes.append(&mut current.waiting);
            let is_full = threads.bytes.len() >= BATCH || threads.small.len() >= MOST_FILES;
            drop(threads);
            return if is_full { self.flush() } else { Ok(()) };
        }
        self.hand_on(&mut current)?;
        let Opened::Open(large) = current.opened else { return Ok(()) };
        // Of another length they are told apart by that.
        let holes = match &current.extents {
            None if current.passed == large.seen.size => Vec::new(),
            Some(extents) if current.size == large.seen.size && current.full == extents.len() => {
                holes(extents, current.size).unwrap_or_default()
            }
            _ => return Ok(()),
        };
        large.is_whole.store(true, Ordering::Relaxed);
        if holes.is_empty() { Ok(()) } else { self.push(Job::Zeros(large, holes)) }
    }
}

impl<S: Side> Drop for Passing<S> {
    fn drop(&mut self) {
        // Its failure was told, or nobody asks any more.
        let _ = self.finish();
    }
}

impl<S: Side> Work<S> {
    /// Compares until there is nothing more.
    fn all(&self, jobs: &Mutex<Receiver<Job<S>>>) {
        let mut buffer = Vec::new();
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match job {
                Err(_) => return,
                Ok(Job::Files(files, bytes)) => self.small_files(&files, &bytes, &mut buffer),
                Ok(Job::Part(large, at, bytes)) => large.compare(at, &bytes, &mut buffer),
                Ok(Job::Zeros(large, holes)) => {
                    for (from, to) in holes {
                        large.compare_zeros(from, to, &mut buffer);
                    }
                }
            }
        }
    }

    fn open(&self, header: u64, path: &[Vec<u8>]) -> Option<Arc<Large<S::File>>> {
        let (name, folders) = path.split_last()?;
        let folder = self.side.folder(folders).ok()?;
        self.open_in(&folder, name, header).map(Arc::new)
    }

    fn open_in(&self, folder: &S::Folder, name: &[u8], header: u64) -> Option<Large<S::File>> {
        // What fails is found out again, and told, when the names are known.
        let seen = self.side.look(folder, name).ok().flatten().filter(|seen| seen.kind == Kind::File)?;
        let file = self.side.open(folder, name, &seen).ok()?;
        let (notes, cancel) = (Arc::clone(&self.notes), self.cancel.clone());
        let (first, is_whole, has_failed) = (AtomicU64::new(SAME), AtomicBool::new(false), AtomicBool::new(false));
        Some(Large { file, seen, header, first, is_whole, has_failed, notes, cancel })
    }

    fn small_files(&self, files: &[Small], mut bytes: &[u8], buffer: &mut Vec<u8>) {
        let mut last: Option<(&[Vec<u8>], S::Folder)> = None;
        for small in files {
            let Some((content, rest)) = bytes.split_at_checked(small.length) else { return };
            bytes = rest;
            let Some((name, folders)) = small.path.split_last() else { continue };
            if last.as_ref().is_none_or(|(known, _)| *known != folders) {
                last = self.side.folder(folders).ok().map(|folder| (folders, folder));
            }
            let Some((_, folder)) = &last else { continue };
            let Some(large) = self.open_in(folder, name, small.header) else { continue };
            if large.seen.size == content.len() as u64 {
                large.is_whole.store(true, Ordering::Relaxed);
                large.compare(0, content, buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_format::Told;
    use tarnfs_tree::Time;

    use super::*;

    /// Zeros that are stored. Somebody asks for the end while they are read for the first time.
    struct Dense(Cancel, AtomicU64);

    impl Readable for Dense {
        fn read_at(&self, buffer: &mut [u8], _at: u64) -> io::Result<usize> {
            buffer.fill(0);
            self.0.cancel();
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(buffer.len())
        }

        fn next_data(&self, at: u64) -> Option<u64> {
            Some(at)
        }

        fn is_still(&self, _seen: &Seen) -> io::Result<bool> {
            Ok(true)
        }

        fn verify(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_hole_is_not_waited_for() {
        let (size, cancel, notes) = (1 << 40, Cancel::default(), Arc::new(Notes::default()));
        let seen = Seen {
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size,
            mtime: Time { seconds: 0, nanoseconds: 0 },
            links: 1,
            is_sparse: false,
            file: (1, 2),
            ctime: (0, 0),
            told: Told::NOTHING,
            has_links: true,
        };
        let large = Large {
            file: Dense(cancel.clone(), AtomicU64::new(0)),
            seen,
            header: 0,
            first: AtomicU64::new(SAME),
            is_whole: AtomicBool::new(true),
            has_failed: AtomicBool::new(false),
            notes: Arc::clone(&notes),
            cancel,
        };
        large.compare_zeros(0, size, &mut Vec::new());
        assert_eq!(large.file.1.load(Ordering::Relaxed), 1);
        drop(large);
        assert!(notes.lock().is_empty(), "nothing is known of the rest");
    }
}
