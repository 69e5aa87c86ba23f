//! Contents of files that are written while a compressed archive is decoded for the first time, so that it is decoded
//! once. Nobody knows yet whether they are whole, and which of them will show: they lie in the hidden folder, each
//! called after the byte of the stream at which its header begins, until the pass is over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use tarnfs_format::{Entry, Kind};
use tarnfs_source::Extent;

use super::attributes::Keeping;
use super::destination::{Destination, NewFile, Stage, cannot_be_here, has_no_room};
use super::selection::Selection;

/// Bytes that are handed to the threads that write, at once.
const BATCH: usize = 1 << 20;

/// Batches that wait for each of these threads.
const MOST_WAITING: usize = 3;

/// Threads that write: one or two keep up with all that decode.
const MOST_THREADS: usize = 4;

/// Holes that are made of a file for each byte that is stored of it are nothing; but so many parts of one are.
const MOST_EXTENTS: usize = 1 << 16;

/// What is called after the header at `header`.
fn name_of(header: u64) -> String {
    format!("at-{header:x}")
}

/// Takes contents.
#[derive(Debug)]
pub(super) struct Staging {
    destination: Arc<Destination>,
    /// What is done, for messages.
    writing: Arc<str>,
    /// The hidden folder, and the threads that write into it, from the first content on.
    stage: Mutex<Option<Arc<Stage>>>,
    count: usize,
    selection: Selection,
    keeping: Arc<Keeping>,
    current: Mutex<Option<Current>>,
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The file whose content comes.
#[derive(Debug)]
struct Current {
    header: u64,
    mode: u32,
    size: u64,
    /// Where its data go; all to the start of the file where there are no extents.
    extents: Option<Vec<Extent>>,
    /// Of those, how many are full, and the bytes in the one that is not.
    full: usize,
    in_extent: u64,
    /// Stored bytes that were handed on.
    written: u64,
    waiting: Vec<u8>,
    /// It is open where it did not come in one batch.
    file: Option<Arc<File>>,
    /// It cannot be told from another one.
    is_lost: bool,
}

/// Something to be written.
#[derive(Debug)]
enum Job {
    /// Small files, one behind the other: header, mode, length.
    Files(Vec<(u64, u32, usize)>, Vec<u8>),
    /// A part of a larger one.
    Part(Arc<File>, u64, Vec<u8>),
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: std::collections::VecDeque<Job>,
    /// Small files that wait for others.
    small: Vec<(u64, u32, usize)>,
    small_bytes: Vec<u8>,
    most: usize,
    is_closed: bool,
    /// Nothing can be written here, or nobody needs it any more: all is read again. What waits is dropped, and what was
    /// written is not used.
    is_off: bool,
    failure: Option<io::Error>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has gone wrong, if something has.
    fn check(state: &State) -> io::Result<()> {
        match &state.failure {
            None => Ok(()),
            Some(failure) => {
                Err(failure.raw_os_error().map_or_else(|| failure.kind().into(), io::Error::from_raw_os_error))
            }
        }
    }

    fn push(&self, job: Job) -> io::Result<()> {
        let mut state = self.lock();
        while state.jobs.len() >= state.most && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Self::check(&state)?;
        if !state.is_off {
            state.jobs.push_back(job);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// From now on nothing is written. False if that was so before.
    fn turn_off(&self) -> bool {
        let mut state = self.lock();
        let was_off = std::mem::replace(&mut state.is_off, true);
        state.jobs.clear();
        (state.small, state.small_bytes) = Default::default();
        drop(state);
        self.changed.notify_all();
        !was_off
    }

    /// The next job; `None` when there are no more.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.changed.notify_all();
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Staging {
    /// Takes contents of what is selected, which so many threads write. `writing` says for messages what is done.
    pub(super) fn new(
        destination: &Arc<Destination>,
        writing: &str,
        selection: Selection,
        keeping: &Arc<Keeping>,
        threads: usize,
    ) -> Self {
        let count = threads.clamp(1, MOST_THREADS);
        let queue = Arc::new(Queue::default());
        queue.lock().most = count * MOST_WAITING;
        Self {
            destination: Arc::clone(destination),
            writing: writing.into(),
            stage: Mutex::default(),
            count,
            selection,
            keeping: Arc::clone(keeping),
            current: Mutex::default(),
            queue,
            threads: Mutex::default(),
        }
    }

    /// Makes the hidden folder, and threads that write into it. `None` if it cannot be there: then nothing is written
    /// while the archive is decoded, as from one that is not compressed. Who may not write here may write in folders
    /// that are here.
    fn start(&self) -> io::Result<Option<Arc<Stage>>> {
        if self.queue.is_off() {
            return Ok(None);
        }
        match self.try_to_start() {
            Ok(stage) => Ok(Some(stage)),
            Err(error) if cannot_be_here(&error) || has_no_room(&error) => {
                turn_off(&self.queue, &self.destination, &self.writing, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn try_to_start(&self) -> io::Result<Arc<Stage>> {
        let mut known = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = &*known {
            return Ok(Arc::clone(stage));
        }
        let stage = self.destination.stage()?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while threads.len() < self.count {
            let (stage, queue) = (Arc::clone(&stage), Arc::clone(&self.queue));
            let (destination, writing) = (Arc::clone(&self.destination), Arc::clone(&self.writing));
            let work = move || work(&stage, &queue, |error| turn_off(&queue, &destination, &writing, error));
            let thread = std::thread::Builder::new().name("writing".into()).spawn(work);
            match thread {
                Ok(thread) => threads.push(thread),
                // One can do it.
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        *known = Some(Arc::clone(&stage));
        Ok(stage)
    }

    /// Nobody needs what was written, nor what waits for that.
    pub(super) fn give_up(&self) {
        self.queue.turn_off();
    }

    /// Waits until all is written. The error is that of a write.
    pub(super) fn finish(&self) -> io::Result<()> {
        let flushed = self.flush();
        self.close();
        if self.queue.is_off() {
            self.destination.remove_stage();
        }
        flushed?;
        self.check()
    }

    /// What a write has said, if one has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        Queue::check(&self.queue.lock())
    }

    fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                self.queue.lock().failure = Some(io::Error::other("a thread that writes has panicked"));
            }
        }
    }

    /// What of the file whose header is there was written; `None` if that is nothing.
    pub(super) fn take(&self, header: u64) -> io::Result<Option<NewFile>> {
        if self.queue.is_off() {
            return Ok(None);
        }
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stage.map_or(Ok(None), |stage| NewFile::staged(&stage, name_of(header)))
    }

    fn flush(&self) -> io::Result<()> {
        let is_empty = self.queue.lock().small.is_empty();
        if is_empty || self.start()?.is_none() {
            return Ok(());
        }
        let mut state = self.queue.lock();
        let job = Job::Files(std::mem::take(&mut state.small), std::mem::take(&mut state.small_bytes));
        drop(state);
        self.queue.push(job)
    }

    /// `None` if there is no room for it here.
    fn or_off<T>(&self, written: io::Result<T>) -> io::Result<Option<T>> {
        match written {
            Err(error) if has_no_room(&error) => {
                turn_off(&self.queue, &self.destination, &self.writing, &error);
                Ok(None)
            }
            written => written.map(Some),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on what waits of a file that is not written in one go.
    fn hand_on(&self, current: &mut Current) -> io::Result<()> {
        if current.file.is_none() && !current.is_lost {
            if let Some(stage) = self.start()? {
                current.file = self.or_off(new_file(&stage, current.header, current.mode))?.flatten().map(Arc::new);
            }
            current.is_lost = current.file.is_none();
        }
        let Some(file) = &current.file else {
            current.waiting.clear();
            return Ok(());
        };
        let bytes = std::mem::take(&mut current.waiting);
        let Some(extents) = &current.extents else {
            let at = current.written;
            current.written += bytes.len() as u64;
            return self.queue.push(Job::Part(Arc::clone(file), at, bytes));
        };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            // More than the map has room for is nothing of the file.
            let Some(extent) = extents.get(current.full) else { return Ok(()) };
            let room = (extent.skip + extent.length).saturating_sub(current.in_extent);
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
            let (mut part, behind) = rest.split_at(length);
            let skipped = extent.skip.saturating_sub(current.in_extent).min(length as u64);
            part = &part[skipped as usize..];
            if !part.is_empty() {
                let at = extent.offset + (current.in_extent + skipped - extent.skip);
                self.queue.push(Job::Part(Arc::clone(file), at, part.to_vec()))?;
            }
            current.in_extent += length as u64;
            if current.in_extent == extent.skip + extent.length {
                (current.full, current.in_extent) = (current.full + 1, 0);
            }
            rest = behind;
        }
        Ok(())
    }
}

impl tarnfs_tree::open::Contents for Staging {
    fn begin(&self, entry: &Entry) -> io::Result<bool> {
        let extents = entry.body.extents.clone();
        if self.queue.is_off() {
            return Ok(false);
        }
        if entry.kind != Kind::File
            || extents.as_ref().is_some_and(|extents| extents.len() > MOST_EXTENTS)
            || !self.selection.may_take(&entry.path)
        {
            return Ok(false);
        }
        *self.current() = Some(Current {
            header: entry.header,
            mode: self.keeping.first_mode(entry.mode),
            size: entry.body.size,
            extents,
            full: 0,
            in_extent: 0,
            written: 0,
            waiting: Vec::new(),
            file: None,
            is_lost: false,
        });
        Ok(true)
    }

    fn write(&self, stored: &[u8]) -> io::Result<()> {
        let mut current = self.current();
        let Some(current) = current.as_mut() else { return Ok(()) };
        current.waiting.extend_from_slice(stored);
        if current.waiting.len() >= BATCH { self.hand_on(current) } else { Ok(()) }
    }

    fn end(&self, complete: bool) -> io::Result<()> {
        let Some(mut current) = self.current().take() else { return Ok(()) };
        if !complete {
            // The index says what can be read of it.
            drop(self.take(current.header)?);
            return Ok(());
        }
        if current.file.is_some() || current.is_lost || current.extents.is_some() {
            self.hand_on(&mut current)?;
            return match (&current.file, &current.extents) {
                (Some(file), Some(_)) => match file.set_len(current.size) {
                    // The file system has no such files. That is told when it is read from the archive.
                    Err(error) if is_too_large(&error) => self.take(current.header).map(drop),
                    result => self.or_off(result).map(drop),
                },
                _ => Ok(()),
            };
        }
        let mut state = self.queue.lock();
        state.small.push((current.header, current.mode, current.waiting.len()));
        state.small_bytes.append(&mut current.waiting);
        let is_full = state.small_bytes.len() >= BATCH || state.small.len() >= 256;
        drop(state);
        if is_full { self.flush() } else { Ok(()) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.close();
    }
}

/// A file for the content behind the header there. `None` if there was one already: a header has one content, so nobody
/// knows which of them is right, and neither is used.
fn new_file(stage: &Stage, header: u64, mode: u32) -> io::Result<Option<File>> {
    // Of a folder that is removed nothing is used.
    let Some(_stays) = stage.stays() else { return Ok(None) };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = name_of(header);
    match openat(&stage.folder, &name, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::EXIST) => {
            // A folder, from now on.
            if unlinkat(&stage.folder, &name, AtFlags::empty()).is_ok() {
                mkdirat(&stage.folder, &name, Mode::RWXU)?;
            }
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// True of what no file of this file system can be: others can.
fn is_too_large(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::FBIG | Errno::INVAL))
}

/// Nothing more is written while the archive is decoded, and what was written makes room: where a name is stored
/// several times, all of its contents lie here, but only the last one is to stay; and what is mounted below has room of
/// its own.
fn turn_off(queue: &Queue, destination: &Destination, writing: &str, why: &io::Error) {
    if queue.turn_off() {
        // For that an archive is decoded once more, which nobody expects. What is mounted below is not full, perhaps.
        if has_no_room(why) && !destination.has_mounts() {
            log::warn!("{writing}: {why}: what was written is removed, and all is read a second time");
        } else {
            log::debug!("nothing is written while the archive is decoded: {why}");
        }
    }
    destination.remove_stage();
}

/// Says that a thread that writes has panicked. Whoever decodes may wait for room that nobody else makes.
struct Panics<'a>(&'a Queue);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.failure.get_or_insert_with(|| io::Error::other("a thread that writes has panicked"));
            state.jobs.clear();
            drop(state);
            self.0.changed.notify_all();
        }
    }
}

/// Writes until there is nothing more to write, and says where there is no room.
fn work(stage: &Stage, queue: &Queue, has_no_more: impl Fn(&io::Error)) {
    let _panics = Panics(queue);
    while let Some(job) = queue.next() {
        let written = match job {
            // What is shorter than its file is not used.
            Job::Part(file, at, bytes) => match file.write_all_at(&bytes, at) {
                Err(error) if is_too_large(&error) => Ok(()),
                result => result,
            },
            Job::Files(files, bytes) => small_files(stage, &files, &bytes),
        };
        if let Err(error) = written {
            if has_no_room(&error) {
                has_no_more(&error);
                continue;
            }
            let mut state = queue.lock();
            state.failure.get_or_insert(error);
            state.jobs.clear();
            drop(state);
            queue.changed.notify_all();
        }
    }
}

fn small_files(stage: &Stage, files: &[(u64, u32, usize)], mut bytes: &[u8]) -> io::Result<()> {
    for &(header, mode, length) in files {
        let (content, rest) = bytes.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        if let Some(file) = new_file(stage, header, mode)? {
            file.write_all_at(content, 0)?;
        }
        bytes = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who decodes does not wait for threads that are no more.
    #[test]
    fn a_thread_that_panics_ends_the_waiting() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            // There is room for nothing.
            let waits = scope.spawn(|| queue.push(Job::Files(Vec::new(), Vec::new())));
            let panics = scope.spawn(|| {
                let _panics = Panics(&queue);
                panic!("as tested");
            });
            assert!(panics.join().is_err());
            assert!(waits.join().unwrap().is_err());
        });
    }
}
