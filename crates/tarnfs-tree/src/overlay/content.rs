//! The content of a file that somebody has open: that of the file below, until it is written to, and then that of a
//! file in the folder of the overlay. Whoever has it open sees the change at once.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::fs::{FallocateFlags, Timespec, Timestamps, UTIME_OMIT, fallocate, fdatasync, fsync, ftruncate};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, getrlimit};
use tarnfs_source::{FollowedFile, MemorySource, SharedSource, Source};

use super::files::{join, set_times, split};
use super::rows::{self, changed};
use super::{Overlay, access, stale};
use crate::asker::{begins, taking_long, unasked};
use crate::edit::{Allocation, WritableFile};
use crate::{Error, Node, Time};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// So many bytes of a copy are brought to the disk at a time. All at the end may take longer than anybody waits for
/// what does not get on.
const SYNCED: u64 = 64 << 20;

/// Descriptors that files take which are open and were written to. The others are for what is opened for a moment, so
/// that `fsync`, making and renaming work whatever is open.
#[derive(Debug)]
pub(super) struct Descriptors {
    taken: AtomicUsize,
    most: usize,
}

/// One of them.
#[derive(Debug)]
struct Descriptor(Arc<Descriptors>);

impl Descriptors {
    /// Half of what this process may have.
    pub(super) fn new() -> Arc<Self> {
        let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| (most / 2) as usize);
        Arc::new(Self { taken: AtomicUsize::new(0), most })
    }

    fn take(self: &Arc<Self>) -> io::Result<Descriptor> {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        if self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok() {
            return Ok(Descriptor(Arc::clone(self)));
        }
        log::error!("{} files are open that were written to: no more can be, see `ulimit -n`", self.most);
        Err(Errno::NFILE.into())
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a file holds, for all who have it open.
pub(super) struct Content {
    pub(super) node: Node,
    overlay: Weak<Overlay>,
    /// What is below, of a file that was not written to when it was opened.
    lower: Option<SharedSource>,
    upper: OnceLock<(FollowedFile, Descriptor)>,
    /// Held by who copies it.
    copying: Mutex<()>,
    /// How far copying it is; and whether it is being copied.
    copied: AtomicU64,
    is_copying: AtomicBool,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Content").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Content {
    /// What is below, where nothing was written yet.
    pub(super) fn below(overlay: &Arc<Overlay>, node: Node, lower: SharedSource) -> Self {
        Self::new(overlay, node, Some(lower), OnceLock::new())
    }

    /// What was below is not there any more: it cannot be read, but something else can be written.
    pub(super) fn gone(overlay: &Arc<Overlay>, node: Node) -> Self {
        Self::new(overlay, node, None, OnceLock::new())
    }

    /// A file in the folder of the overlay.
    pub(super) fn above(overlay: &Arc<Overlay>, node: Node, file: FollowedFile) -> io::Result<Self> {
        let descriptor = overlay.descriptors.take()?;
        Ok(Self::new(overlay, node, None, OnceLock::from((file, descriptor))))
    }

    fn new(
        overlay: &Arc<Overlay>,
        node: Node,
        lower: Option<SharedSource>,
        upper: OnceLock<(FollowedFile, Descriptor)>,
    ) -> Self {
        Self {
            node,
            overlay: Arc::downgrade(overlay),
            lower,
            upper,
            copying: Mutex::default(),
            copied: AtomicU64::new(0),
            is_copying: AtomicBool::new(false),
        }
    }

    /// The file in the folder of the overlay, if there is one.
    pub(super) fn upper(&self) -> Option<BorrowedFd<'_>> {
        self.upper.get().map(|(file, _)| file.as_fd())
    }

    /// True where there is nothing to read.
    pub(super) fn is_gone(&self) -> bool {
        self.source().is_err()
    }

    fn source(&self) -> io::Result<&dyn Source> {
        match (self.upper.get(), &self.lower) {
            (Some((upper, _)), _) => Ok(upper),
            (None, Some(lower)) => Ok(&**lower),
            (None, None) => Err(Errno::STALE.into()),
        }
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        match self.source() {
            Ok(source) => source.next_data(offset),
            // Whoever reads it is told why.
            Err(_) => Some(offset),
        }
    }

    /// How far copying it is, while it is copied.
    pub(super) fn copying(&self) -> Option<u64> {
        self.is_copying.load(Ordering::SeqCst).then(|| self.copied.load(Ordering::SeqCst))
    }

    /// Waits until it is copied.
    pub(super) fn wait(&self) {
        drop(self.copying.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Brings what was written to the disk.
    pub(super) fn settle(&self) -> io::Result<()> {
        self.upper().map_or(Ok(()), |upper| Ok(fdatasync(upper)?))
    }

    /// A file of its own for what is to be written; of what is below, it gets the first bytes, `keep` at most.
    fn copy_up(&self, overlay: &Overlay, keep: u64) -> io::Result<BorrowedFd<'_>> {
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        taking_long(|| self.copy(overlay, keep))
    }

    fn copy(&self, overlay: &Overlay, keep: u64) -> io::Result<BorrowedFd<'_>> {
        // Whoever wants the same waits for it, and holds nothing.
        let _turn = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        let nothing = MemorySource::new(Vec::new(), "nothing");
        let lower: &dyn Source = match &self.lower {
            Some(lower) => &**lower,
            None if keep == 0 => &nothing,
            None => return Err(Errno::STALE.into()),
        };
        let descriptor = overlay.descriptors.take()?;
        self.copied.store(0, Ordering::SeqCst);
        self.is_copying.store(true, Ordering::SeqCst);
        let made = overlay.copy_up(self.node, lower, keep, &self.copied);
        self.is_copying.store(false, Ordering::SeqCst);
        let made = made?;
        Ok(self.upper.get_or_init(|| (made, descriptor)).0.as_fd())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(overlay) = self.overlay.upgrade() {
            overlay.closed(self.node);
        }
    }
}

/// A file that somebody has open.
#[derive(Debug)]
pub(super) struct OpenedFile {
    overlay: Arc<Overlay>,
    content: Arc<Content>,
}

impl OpenedFile {
    pub(super) fn new(overlay: &Arc<Overlay>, content: Arc<Content>) -> Self {
        Self { overlay: Arc::clone(overlay), content }
    }

    /// The file to write to.
    fn writable(&self, keep: u64) -> io::Result<BorrowedFd<'_>> {
        self.content.copy_up(&self.overlay, keep)
    }
}

impl Source for OpenedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.content.source()?.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.content.source().map_or(0, Source::len)
    }

    fn describe(&self) -> String {
        self.content.source().map_or_else(|_| "a file that is gone".to_owned(), Source::describe)
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.content.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.content.source().map_or(offset, |source| source.next_hole(offset))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Ok(source) = self.content.source() {
            source.prefetch(offset, length);
        }
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.content.source().is_ok_and(|source| source.is_ready(offset, length))
    }

    fn is_unproven(&self) -> bool {
        self.content.source().is_ok_and(Source::is_unproven)
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.content.source()?.verify(is_abandoned)
    }

    fn pinned(&self) -> Option<u64> {
        self.content.source().ok()?.pinned()
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.content.source().is_ok_and(|source| source.is_filled(range))
    }

    fn memory(&self) -> usize {
        self.content.source().map_or(0, Source::memory)
    }

    /// That of the overlay alone: what is below becomes another one with the first write.
    fn backing_file(&self) -> Option<BorrowedFd<'_>> {
        self.content.upper()
    }
}

impl WritableFile for OpenedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let upper = self.writable(u64::MAX)?;
        if i64::try_from(offset).is_err() {
            return Err(Errno::FBIG.into());
        }
        begins()?;
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(upper, &bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                // What was taken is told, and the error comes with the next one.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if i64::try_from(length).is_err() {
            return Err(Errno::FBIG.into());
        }
        let upper = self.writable(length)?;
        begins()?;
        Ok(ftruncate(upper, length)?)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.overlay.synced(|| match self.content.upper() {
            Some(upper) if data_only => Ok(fdatasync(upper)?),
            Some(upper) => Ok(fsync(upper)?),
            None => Ok(()),
        })
    }

    fn allocate(&self, what: Allocation, range: Range<u64>, keeps_length: bool) -> io::Result<()> {
        let how = match what {
            Allocation::Reserves => FallocateFlags::empty(),
            Allocation::Punches => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocation::Zeroes => FallocateFlags::ZERO_RANGE,
        };
        let how = if keeps_length { how | FallocateFlags::KEEP_SIZE } else { how };
        let upper = self.writable(u64::MAX)?;
        begins()?;
        loop {
            match fallocate(upper, how, range.start, range.end - range.start) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

fn timespec(time: Option<Time>) -> Timespec {
    match time {
        Some(Time { seconds, nanoseconds }) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

/// Sets the times of a content that are given.
pub(super) fn stamp(file: BorrowedFd<'_>, atime: Option<Time>, mtime: Option<Time>) -> io::Result<()> {
    set_times(file, &Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) })
}

/// An error of the tree as one of a file.
pub(super) fn to_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => error.errno().into(),
    }
}

impl Overlay {
    /// Copies the first `keep` bytes of `lower`, the content of `node`, into a file of its own, with holes and times.
    /// It is whole, and on the disk, before anybody finds it. `copied` grows as long as it gets on.
    fn copy_up(&self, node: Node, lower: &dyn Source, keep: u64, copied: &AtomicU64) -> io::Result<FollowedFile> {
        let (part, file) = self.files.part()?;
        let copy = || {
            let length = keep.min(lower.len());
            copy_bytes(lower, file.as_fd(), length, (copied, SYNCED, &|| Ok(fdatasync(&file)?)))?;
            ftruncate(&file, length)?;
            let before = self.attributes(node).map_err(to_io)?;
            stamp(file.as_fd(), Some(before.atime), Some(before.mtime))?;
            if length > 0 {
                fsync(&file)?;
            }
            let settle = || self.settle_copy(node, &part, length > 0).map_err(to_io);
            // A whole copy changes nothing that anybody sees: also who was told that nothing was written may have it.
            if length < lower.len() || keep == 0 { settle() } else { unasked(settle) }
        };
        match copy() {
            Ok(place) => FollowedFile::new(file, self.files.path().join(path_of(&place))),
            Err(error) => {
                self.files.drop_part(&part);
                // Nobody waits for it any more.
                if Errno::from_io_error(&error) == Some(Errno::INTR) {
                    return Err(error);
                }
                log::error!(
                    "{}: copying it to {} to write to it: {error}",
                    lower.describe(),
                    self.files.path().display()
                );
                Err(error)
            }
        }
    }

    /// Says that what was copied is the content of `node`, and returns where it lies. `is_needed`: something of what is
    /// below is in it, so its name must be on the disk before what says so can be.
    fn settle_copy(&self, node: Node, part: &str, is_needed: bool) -> Result<Vec<u8>, Error> {
        let (below, names) = (self.prepare(node)?, self.prepare_names(node)?);
        let (id, wished) = self.edit(|editing| {
            let id = editing.touch(&below, node)?;
            let wished = match rows::name_of(editing.connection, id)? {
                Some((folder, name)) => editing.node(folder)?.place.map(|folder| join(&folder, &name)),
                None => None,
            };
            Ok((id, wished))
        })?;
        let place = self.files.settle(part, wished.as_deref().unwrap_or_default(), id)?;
        let say = || {
            if is_needed {
                self.files.sync_folder(split(&place).0)?;
            }
            self.edit(|editing| {
                let mut row = editing.node(id)?;
                if row.place.is_some() {
                    // Somebody else has copied it: what was written there counts.
                    return Err(stale());
                }
                editing.touch_names(&names, id)?;
                row.place = Some(place.clone());
                row.changed |= changed::CONTENT;
                // They are those of other bytes.
                for (name, _) in rows::xattrs(editing.connection, id)? {
                    if name.starts_with(crate::hashes::PREFIX.as_bytes()) {
                        rows::put_xattr(editing.connection, id, &name, None)?;
                    }
                }
                rows::put_node(editing.connection, &row)
            })
        };
        match say() {
            Ok(_) => {
                // Before anybody closes it: who opens it meanwhile looks again.
                self.copies.fetch_add(1, Ordering::SeqCst);
                Ok(place)
            }
            Err(error) => {
                // Its number is that of this node, and nobody else copies that: nobody has put something else there.
                self.files.remove_unused(&place);
                Err(error)
            }
        }
    }

    /// What becomes of the access control list of a file whose mode has changed.
    pub(super) fn list_with_mode(list: Option<Vec<u8>>, mode: u32) -> Option<Vec<u8>> {
        let list = access::List::parse(&list?)?;
        Some(list.with_mode(mode).to_bytes())
    }
}

/// A place as a path.
pub(super) fn path_of(place: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt as _;
    std::path::Path::new(std::ffi::OsStr::from_bytes(place))
}

/// Copies bytes, and leaves holes out. `copied` counts them; each time so many more were written, `sync` is called.
fn copy_bytes(
    lower: &dyn Source,
    to: BorrowedFd<'_>,
    length: u64,
    (copied, each, sync): (&AtomicU64, u64, &dyn Fn() -> io::Result<()>),
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE)).max(1)];
    let (mut at, mut unsynced) = (0, 0);
    while at < length {
        let Some(data) = lower.next_data(at).filter(|&data| data < length) else { break };
        let end = lower.next_hole(data).clamp(data, length);
        at = data;
        // Where a source does not know its holes, it says that there are none.
        let end = if end == data { length } else { end };
        while at < end {
            let piece = &mut buffer[..usize::try_from(end - at).unwrap_or(PIECE).min(PIECE)];
            let read = lower.read_at(piece, at)?;
            if read == 0 {
                let what = format!("{}: ends at byte {at}, and should have {length}", lower.describe());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            let mut written = 0;
            while written < read {
                written += pwrite(to, &piece[written..read], at + written as u64)?;
            }
            at += read as u64;
            copied.fetch_add(read as u64, Ordering::SeqCst);
            unsynced += read as u64;
            if unsynced >= each {
                unsynced = 0;
                sync()?;
                // What it took is progress, too.
                copied.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn what_cannot_be_read_is_no_hole() {
        let content = |lower: Option<SharedSource>| Content {
            node: Node::ROOT,
            overlay: Weak::new(),
            lower,
            upper: OnceLock::new(),
            copying: Mutex::default(),
            copied: AtomicU64::new(0),
            is_copying: AtomicBool::new(false),
        };
        assert_eq!(content(None).next_data(5), Some(5));
        let lower = content(Some(Arc::new(MemorySource::new(b"bytes", "below"))));
        assert_eq!((lower.next_data(4), lower.next_data(5)), (Some(4), None));
    }

    /// To bring all of it to the disk at the end takes longer than anybody waits for what does not get on.
    #[test]
    fn a_copy_is_brought_to_the_disk_piece_by_piece() {
        let bytes: Vec<u8> = (0..5 * PIECE + 7).map(|at| (at / PIECE) as u8 + 1).collect();
        let lower = MemorySource::new(bytes.clone(), "test");
        let file = tempfile::tempfile().unwrap();
        let (copied, seen) = (AtomicU64::new(0), RefCell::new(Vec::new()));
        let sync = || {
            seen.borrow_mut().push(copied.load(Ordering::SeqCst));
            Ok(())
        };
        copy_bytes(&lower, file.as_fd(), bytes.len() as u64, (&copied, 2 * PIECE as u64, &sync)).unwrap();
        let piece = PIECE as u64;
        assert_eq!(*seen.borrow(), [2 * piece, 4 * piece + 1], "each of them is progress");
        assert_eq!(copied.into_inner(), bytes.len() as u64 + 2);
        let mut found = vec![0; bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        assert!(found == bytes);
    }
}
