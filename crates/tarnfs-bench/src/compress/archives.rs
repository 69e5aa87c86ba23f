//! Files in archives, as `tarnfs create` writes them.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use tarnfs_format::{Body, Entry, Kind, Time};
use tarnfs_source::Budget;
use tarnfs_tree::open::{IndexPlace, Options};
use tarnfs_tree::{Tree as _, path};
use tarnfs_write::compress::COMPRESSIONS;
use tarnfs_write::{Content, Output, Target, Writing};

use super::files::Loaded;
use super::{Form, Left, Run, Watch, at_once, same};
use crate::Scratch;
use crate::measure::Reason;

/// Bytes of memory where nobody knows how much there is.
const MEMORY: u64 = 1 << 30;

pub(super) struct Archives<'a> {
    files: &'a [Loaded],
    scratch: &'a Scratch,
    candidates: Vec<(Target, i32)>,
}

impl<'a> Archives<'a> {
    pub(super) fn new(files: &'a [Loaded], scratch: &'a Scratch, is_wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = COMPRESSIONS.iter().filter(|one| !one.is_plain() && is_wanted(one.name()));
        let targets = wanted.filter_map(|one| Target::named(one.name()));
        let candidates = targets.flat_map(|target| target.levels().map(move |level| (target, level)));
        Self { files, scratch, candidates: candidates.collect() }
    }

    /// The archive of a writer.
    fn place(&self, writer: usize) -> PathBuf {
        self.scratch.join(format!("archive.{writer}"))
    }
}

/// The bytes of a file, until somebody wants it to end.
struct Bytes<'a>(&'a Loaded, &'a Watch<'a>);

impl Content for Bytes<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.check().map_err(|reason| io::Error::other(reason.to_string()))?;
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.bytes.get(offset..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

impl Form for Archives<'_> {
    fn candidates(&self) -> Vec<(String, i32)> {
        self.candidates.iter().map(|(target, level)| (target.name().to_owned(), *level)).collect()
    }

    fn run(&mut self, candidate: usize, writers: usize, watch: &Watch<'_>) -> Result<Run, Reason> {
        let (target, level) = self.candidates[candidate];
        let left = Left::new(self.files.len());
        let failed = |error: io::Error| Reason::Failed(error.to_string());
        let memory = Budget::memory_of_this_machine().map_or(MEMORY, |all| all / 8);
        let this = &*self;
        at_once(writers, |writer| {
            // Without waiting until it is on the disk.
            let output = Output::stream(File::create(this.place(writer)).map_err(failed)?);
            let compression = target.compression();
            let mut archive = target
                .writer(Writing { output, compression, level, threads: 1, memory, index: None })
                .map_err(failed)?;
            while let Some(file) = left.next(writer).and_then(|number| this.files.get(number)) {
                let size = file.bytes.len() as u64;
                let entry = Entry {
                    path: file.path.clone(),
                    kind: Kind::File,
                    mode: 0o644,
                    mtime: Time { seconds: 0, nanoseconds: 0 },
                    body: Body { size, stored: size, ..Body::default() },
                    ..Entry::default()
                };
                archive.add(&entry, &Bytes(file, watch)).map_err(failed)?;
                watch.check()?;
            }
            archive.finish().map(|finished| finished.length).map_err(failed)
        })
    }

    fn read(&mut self, _: usize, numbers: &[usize], watch: &Watch<'_>) -> Result<Vec<f64>, Reason> {
        let mut options = Options { cancel: watch.cancel.clone(), ..Options::default() };
        options.index.place = IndexPlace::Memory;
        options.index.is_written = false;
        // What is decoded once would be read from there.
        options.decoding.decoded_cache = None;
        let opened = tarnfs_tree::open::open(&self.place(0), &options);
        let opened = opened.map_err(|problem| Reason::Failed(problem.to_string()))?;
        let failed = |error: tarnfs_tree::Error| Reason::Failed(error.to_string());
        let mut times = Vec::new();
        for file in numbers.iter().filter_map(|number| self.files.get(*number)) {
            watch.check()?;
            let mut read = vec![0; file.bytes.len()];
            let start = Instant::now();
            let found = path::find(&*opened.tree, &file.path, false).map_err(failed)?;
            let source = opened.tree.open(found.node).map_err(failed)?;
            source.read_exact_at(&mut read, 0).map_err(|error| Reason::Failed(error.to_string()))?;
            times.push(start.elapsed().as_secs_f64());
            same(file, &read)?;
        }
        Ok(times)
    }
}
