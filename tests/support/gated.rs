//! A file whose bytes come when a test lets them: what waits for them waits for as long as the test wants, however fast
//! the machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use tarnfs_fuse::{Mount, MountOptions, mount};
use tarnfs_index::trust::Owner;
use tarnfs_source::{MemorySource, Source};
use tarnfs_tree::open::{FileFacts, IndexOptions, IndexPlace, Options, open_source};

use super::support::{Scratch, wait_until};

/// Bytes of which those from `from` on come while the gate is open.
#[derive(Debug)]
struct Gate {
    bytes: MemorySource,
    from: u64,
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Source for Gate {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset + buffer.len() as u64 > self.from {
            let mut state = self.state.lock().unwrap();
            state.1 += 1;
            self.changed.notify_all();
            let mut state = self.changed.wait_while(state, |(closed, _)| *closed).unwrap();
            state.1 -= 1;
        }
        self.bytes.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn describe(&self) -> String {
        "gated".to_owned()
    }

    fn is_ready(&self, _: u64, _: usize) -> bool {
        false
    }
}

/// A folder, mounted by this process, with one file in it.
pub(crate) struct Gated {
    gate: Arc<Gate>,
    _mount: Mount,
    file: PathBuf,
}

impl Gated {
    /// Shows the file `name` of the scratch folder in its folder `at`. What of it lies behind a half is behind the
    /// gate, which is open at first.
    pub(crate) fn new(scratch: &Scratch, name: &str, at: &str) -> Self {
        scratch.shell(&format!("tar -cf gated.tar {name}; mkdir {at}"));
        let bytes = fs::read(scratch.path("gated.tar")).unwrap();
        let from = bytes.len() as u64 / 2;
        let bytes = MemorySource::new(bytes, "gated");
        let gate = Arc::new(Gate { bytes, from, state: Mutex::default(), changed: Condvar::new() });
        let options = Options {
            index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
            ..Options::default()
        };
        let owner = Owner { user: 0, group: 0, mode: 0o644 };
        let facts = FileFacts { owner, modified: 0, identity: None };
        let opened = open_source(Arc::clone(&gate) as _, facts, Path::new("gated.tar"), &options).unwrap();
        let mount = mount(opened.tree, &scratch.path(at), &MountOptions::default()).unwrap();
        Self { gate, _mount: mount, file: scratch.path(at).join(name) }
    }

    /// From now on nothing behind it comes; what the kernel has of it is forgotten.
    pub(crate) fn close(&self) {
        self.gate.state.lock().unwrap().0 = true;
        let file = File::open(&self.file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    pub(crate) fn open(&self) {
        self.gate.state.lock().unwrap().0 = false;
        self.gate.changed.notify_all();
    }

    /// Waits until somebody waits at the gate.
    pub(crate) fn until_waited_for(&self) {
        wait_until("somebody waits at the gate", || self.gate.state.lock().unwrap().1 > 0);
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.open();
    }
}
