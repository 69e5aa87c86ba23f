//! Files that somebody has open, where a tree can change: what was opened is read to the end, whatever becomes of its
//! name.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::{Lifetime, WritableFile};

use crate::deadline::lock;
use crate::protocol::{Backing, Backings, open};

/// Handles that are open.
#[derive(Debug)]
pub(crate) struct Handles {
    /// Files that are kept open under their handle. Of more, the name leads to them each time: that is not the same
    /// only for those that are removed meanwhile.
    most: usize,
    /// Where the kernel can read and write files itself.
    backings: Option<Backings>,
    /// Nodes that the kernel may write to itself, to be looked at without the lock: each child of each listing is
    /// asked about.
    written: AtomicUsize,
    state: Mutex<HandlesState>,
}

#[derive(Debug, Default)]
struct HandlesState {
    last: u64,
    /// This process has not the right to let the kernel read, whatever the file.
    may_not: bool,
    handles: HashMap<u64, Handle>,
    nodes: HashMap<u64, Shared>,
}

#[derive(Debug)]
struct Handle {
    node: u64,
    content: Content,
}

/// What is open.
#[derive(Debug)]
enum Content {
    /// To read it, if it is kept.
    Read(Option<SharedSource>),
    /// To write to it.
    Written(Arc<dyn WritableFile>),
}

/// What was open, and is open until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Closed {
    handle: Handle,
    _unshared: Option<Shared>,
}

impl Closed {
    pub(crate) fn node(&self) -> u64 {
        self.handle.node
    }

    /// Whether to close it waits for nothing, where that is known without asking the tree.
    pub(crate) fn is_ready(&self) -> Option<bool> {
        match &self.handle.content {
            Content::Read(_) => None,
            Content::Written(file) => Some(file.writes_at_once()),
        }
    }
}

/// What all who have a file open share: the kernel wants a file to be read and written by itself for all of them,
/// through the same backing, or for none.
#[derive(Debug)]
struct Shared {
    handles: u64,
    backing: Option<Backing>,
    /// The version whose pages the kernel may have, of what others replace ([`Source::pinned`]).
    pinned: Option<u64>,
    /// Somebody who has it open may write to it there.
    is_written: bool,
}

/// What the kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) backing: i32,
}

/// A part of the descriptors that this process may have open.
pub(crate) fn share_of_descriptors(part: u64) -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| (most / part) as usize)
}

impl HandlesState {
    fn add(&mut self, node: u64, content: Content) -> u64 {
        self.last += 1;
        self.handles.insert(self.last, Handle { node, content });
        self.last
    }
}

impl Handles {
    pub(crate) fn new() -> Self {
        Self { most: share_of_descriptors(4), backings: None, written: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// From now on the kernel reads and writes files itself where it can.
    pub(crate) fn pass_through(&mut self, backings: Backings) {
        self.backings = Some(backings);
    }

    /// A handle for `source`, the content of `node`, which lives so long. What `takes_writes` is changed through the
    /// kernel alone, which knows what it has of it.
    pub(crate) fn open(&self, node: u64, source: SharedSource, lifetime: Lifetime, takes_writes: bool) -> Opening {
        let mut state = lock(&self.state);
        let file = source.backing_file();
        let (flags, backing) = match self.share(&mut state, (node, lifetime), file, &*source) {
            Some(backing) => (open::PASSTHROUGH, backing),
            // Not kept, nor are bytes that are written put together before they are handed on.
            None if lifetime == Lifetime::None => (open::DIRECT_IO, 0),
            None if lifetime == Lifetime::Forever => (open::KEEP_CACHE, 0),
            None if let Some(version) = source.pinned() => (Self::pages_of(&mut state, node, version), 0),
            // What is no file on a disk is not changed by others, however little is promised of its name and owner.
            None if takes_writes || file.is_none() => (open::KEEP_CACHE, 0),
            None => (0, 0),
        };
        // What its name leads to next may be another version.
        let source = (state.handles.len() < self.most || source.pinned().is_some()).then_some(source);
        Opening { handle: state.add(node, Content::Read(source)), flags, backing }
    }

    /// How `version` of `node`, which others replace, is opened: all who have the node open share the kernel's pages.
    /// The first one has it drop those that it has. Who opens another version meanwhile has none.
    fn pages_of(state: &mut HandlesState, node: u64, version: u64) -> u32 {
        match state.nodes.get_mut(&node) {
            Some(shared) if shared.handles == 1 => {
                shared.pinned = Some(version);
                0
            }
            Some(shared) if shared.pinned == Some(version) => open::KEEP_CACHE,
            _ => open::DIRECT_IO,
        }
    }

    /// A handle for `file`, the content of `node`. It is kept whatever else is open.
    ///
    /// Where the kernel writes it itself, it tells nobody, and does not itself see what is written through a mapping:
    /// what it knows of the file must be forgotten ([`Handles::forget_attributes`]), and not be kept while it is open
    /// ([`Handles::is_written_by_kernel`]).
    pub(crate) fn open_to_write(&self, node: u64, file: Arc<dyn WritableFile>, lifetime: Lifetime) -> Opening {
        let mut state = lock(&self.state);
        let backing = self.share(&mut state, (node, lifetime), file.backing_file(), &*file);
        let flags = match backing {
            Some(_) => open::PASSTHROUGH,
            None if lifetime == Lifetime::None => open::DIRECT_IO,
            // All that is written comes through the kernel, which knows it.
            None => open::KEEP_CACHE,
        };
        let flags = if file.is_waited_for() { flags } else { flags | open::NOFLUSH };
        let opening = Opening { handle: state.add(node, Content::Written(file)), flags, backing: backing.unwrap_or(0) };
        if let (Some(_), Some(shared)) = (backing, state.nodes.get_mut(&node)) {
            let was_written = std::mem::replace(&mut shared.is_written, true);
            self.written.fetch_add(usize::from(!was_written), Ordering::SeqCst);
        }
        opening
    }

    /// True while somebody may change `node` without our being told.
    pub(crate) fn is_written_by_kernel(&self, node: u64) -> bool {
        self.written.load(Ordering::SeqCst) > 0
            && lock(&self.state).nodes.get(&node).is_some_and(|shared| shared.is_written)
    }

    /// Has the kernel forget what it knows of `node`, if it may change it without our being told.
    pub(crate) fn forget_attributes(&self, node: u64) {
        if let Some(backings) = self.backings.as_ref().filter(|_| self.is_written_by_kernel(node)) {
            backings.forget_attributes(node);
        }
    }

    /// One more has `node` open. Returns the kernel's number of the `file` that has its bytes, if it is to read and
    /// write them itself: so it does for all who have it open, or for none.
    fn share(
        &self,
        state: &mut HandlesState,
        (node, lifetime): (u64, Lifetime),
        file: Option<BorrowedFd<'_>>,
        source: &dyn Source,
    ) -> Option<i32> {
        let HandlesState { nodes, may_not, .. } = state;
        let shared = nodes.entry(node).or_insert_with(|| {
            let backings = self.backings.as_ref().filter(|_| lifetime > Lifetime::None && !*may_not);
            let opened = backings.zip(file).map(|(all, file)| all.open(file));
            let backing = opened.and_then(|opened| {
                let refused = |error: &Errno| {
                    *may_not |= *error == Errno::PERM;
                    log::debug!("{}: not read by the kernel itself: {error}", source.describe());
                };
                opened.inspect_err(refused).ok()
            });
            Shared { handles: 0, backing, pinned: None, is_written: false }
        });
        shared.handles += 1;
        shared.backing.as_ref().map(Backing::number)
    }

    /// What is open under `handle`, if it is kept.
    pub(crate) fn get(&self, handle: u64) -> Option<SharedSource> {
        match &lock(&self.state).handles.get(&handle)?.content {
            Content::Read(source) => source.clone(),
            Content::Written(file) => Some(Arc::clone(file) as SharedSource),
        }
    }

    /// The same of what is open to write to it.
    pub(crate) fn writable(&self, handle: u64) -> Option<Arc<dyn WritableFile>> {
        match &lock(&self.state).handles.get(&handle)?.content {
            Content::Read(_) => None,
            Content::Written(file) => Some(Arc::clone(file)),
        }
    }

    /// How many are open.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).handles.len()
    }

    /// What was open under `handle`, which is closed when it is dropped.
    pub(crate) fn close(&self, handle: u64) -> Option<Closed> {
        let mut state = lock(&self.state);
        let closed = state.handles.remove(&handle)?;
        let mut unshared = None;
        if let Some(shared) = state.nodes.get_mut(&closed.node) {
            shared.handles -= 1;
            if shared.handles == 0 {
                unshared = state.nodes.remove(&closed.node);
                let was_written = unshared.as_ref().is_some_and(|shared| shared.is_written);
                self.written.fetch_sub(usize::from(was_written), Ordering::SeqCst);
            }
        }
        drop(state);
        Some(Closed { handle: closed, _unshared: unshared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarnfs_source::{FollowedFile, MemorySource, Strict};

    #[test]
    fn handles_keep_what_they_are_for_and_no_more() {
        let handles = Handles { most: 2, ..Handles::new() };
        let archived: SharedSource = Arc::new(MemorySource::new(*b"bytes", "test"));
        let first = handles.open(7, Arc::clone(&archived), Lifetime::Short, false);
        assert_eq!((first.flags, first.backing), (open::KEEP_CACHE, 0));
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        let exe: SharedSource = Arc::new(FollowedFile::new(exe, "exe").unwrap());
        let second = handles.open(8, Arc::clone(&exe), Lifetime::Short, false);
        assert_eq!(second.flags, 0, "what can change is read again");
        let third = handles.open(7, Arc::clone(&archived), Lifetime::Short, false);
        assert!(handles.get(first.handle).is_some() && handles.get(second.handle).is_some());
        assert!(handles.get(third.handle).is_none(), "more than may be");
        for opening in [first, second, third, third] {
            drop(handles.close(opening.handle));
        }
        assert!(handles.get(first.handle).is_none() && lock(&handles.state).nodes.is_empty());
        assert_eq!(Arc::strong_count(&archived), 1);
        for (lifetime, flags) in [(Lifetime::Forever, open::KEEP_CACHE), (Lifetime::None, open::DIRECT_IO)] {
            for source in [&archived, &exe] {
                let opening = handles.open(9, Arc::clone(source), lifetime, false);
                assert_eq!(opening.flags, flags, "{lifetime:?}");
                drop(handles.close(opening.handle));
            }
        }
    }

    /// One version of what others replace.
    #[derive(Debug)]
    struct Replaced(MemorySource, u64);

    impl Source for Replaced {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn pinned(&self) -> Option<u64> {
            Some(self.1)
        }
    }

    /// A node keeps its number when an object behind a URL is replaced by one of the same size.
    #[test]
    fn pages_are_those_of_one_version() {
        let handles = Handles { most: 1, ..Handles::new() };
        let version = |number| Arc::new(Strict::new(Arc::new(Replaced(MemorySource::new(*b"bytes", "test"), number))));
        for takes_writes in [false, true] {
            let open = |number| handles.open(7, version(number), Lifetime::Short, takes_writes);
            let first = open(1);
            assert_eq!(first.flags, 0, "what the kernel has may be of another version");
            let (same, other) = (open(1), open(2));
            assert_eq!((same.flags, other.flags), (open::KEEP_CACHE, open::DIRECT_IO), "{takes_writes}");
            assert!(handles.get(other.handle).is_some(), "its name may lead to another version");
            drop((handles.close(first.handle), handles.close(same.handle)));
            let third = open(2);
            assert_eq!(third.flags, open::DIRECT_IO, "the pages may be those of the first one");
            drop((handles.close(other.handle), handles.close(third.handle)));
            let last = open(2);
            assert_eq!(last.flags, 0);
            drop(handles.close(last.handle));
        }
    }
}
