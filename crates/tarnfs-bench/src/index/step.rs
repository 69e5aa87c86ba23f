//! What one process does: makes an index, or opens and asks it. So each begins with the memory of a new process.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tarnfs_format::Kind;

use super::backends::{Backend, Known, Opened};
use super::entries::{Reader, Sum, split};
use crate::Error;
use crate::measure::{Sampler, peak_of};

/// Files in the folder in which it works: all entries, those that are looked up, and the index.
pub(super) const ENTRIES: &str = "entries";
pub(super) const CHOSEN: &str = "chosen";
pub(super) const INDEX: &str = "index";

/// What making one takes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) seconds: f64,
    /// Of these, what goes into something else from which it is made.
    pub(super) before: Option<f64>,
    /// Bytes of memory at once.
    pub(super) peak: u64,
    /// Bytes of the index.
    pub(super) size: u64,
    /// Seconds, and bytes of memory.
    pub(super) samples: Vec<(f64, u64)>,
}

/// What reading one takes: seconds of each, on average.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Read {
    pub(super) opening: f64,
    /// Bytes of memory at once until it is open.
    pub(super) memory: u64,
    /// A name in a folder that is known.
    pub(super) lookup: f64,
    /// A whole path.
    pub(super) find: f64,
    /// One folder.
    pub(super) list: f64,
    /// All folders.
    pub(super) all: f64,
    pub(super) count: u64,
    pub(super) hash: u64,
}

/// What is looked up.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Paths whose last name is looked up in its folder.
    pub(super) names: Vec<Vec<u8>>,
    /// Paths that are looked up as a whole.
    pub(super) paths: Vec<Vec<u8>>,
    /// Folders that are listed.
    pub(super) folders: Vec<Vec<u8>>,
}

impl Chosen {
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for (kind, list) in [(b'n', &self.names), (b'p', &self.paths), (b'f', &self.folders)] {
            for path in list {
                bytes.push(kind);
                bytes.extend(path);
                bytes.push(0);
            }
        }
        fs::write(path, bytes).map_err(Error::at(path))
    }

    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(Error::at(path))?;
        let mut chosen = Self::default();
        for line in bytes.split(|&byte| byte == 0) {
            match line.split_first() {
                Some((b'n', path)) => chosen.names.push(path.to_owned()),
                Some((b'p', path)) => chosen.paths.push(path.to_owned()),
                Some((b'f', path)) => chosen.folders.push(path.to_owned()),
                _ => {}
            }
        }
        Ok(chosen)
    }
}

/// Does one thing, "make" or "read", with an index in `folder`, and says in JSON what it takes.
pub fn step(what: &str, backend: &str, folder: &Path) -> Result<String, Error> {
    let unknown = || Error::Usage("this is for tarnfs bench index itself".to_owned());
    let backend = Backend::ALL.into_iter().find(|known| known.word() == backend).ok_or_else(unknown)?;
    let said = match what {
        "make" => serde_json::to_string(&make(backend, folder)?),
        "read" => serde_json::to_string(&read(backend, folder)?),
        _ => return Err(unknown()),
    };
    said.map_err(|error| Error::Other(error.to_string()))
}

fn make(backend: Backend, folder: &Path) -> Result<Made, Error> {
    let (entries, index) = (folder.join(ENTRIES), folder.join(INDEX));
    let mut reader = Reader::new(&entries).map_err(Error::at(&entries))?;
    let sampler = Sampler::start();
    let start = Instant::now();
    let before = backend.make(&mut reader, &index);
    let seconds = start.elapsed().as_secs_f64();
    let samples = sampler.stop();
    let size = fs::metadata(&index).map_or(0, |found| found.len());
    Ok(Made { seconds, before: before?, peak: peak_of("self").unwrap_or(0), size, samples })
}

/// Seconds that each of `all` takes.
fn each<T>(all: &[T], mut work: impl FnMut(&T) -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    all.iter().try_for_each(&mut work)?;
    Ok(start.elapsed().as_secs_f64() / all.len().max(1) as f64)
}

/// For a path that is in the archive.
fn is_there<T>(found: Option<T>) -> Result<(), Error> {
    black_box(found).map(drop).ok_or_else(|| Error::Other("it does not have all that was put in".to_owned()))
}

fn read(backend: Backend, folder: &Path) -> Result<Read, Error> {
    let chosen = Chosen::read(&folder.join(CHOSEN))?;
    let start = Instant::now();
    let index = backend.open(&folder.join(INDEX))?;
    let root = index.known(b"")?;
    // Some are open only when they are first asked.
    if index.lookup(&root, b"\x01")?.is_some() {
        return Err(Error::Other("it has what was not put in".to_owned()));
    }
    let opening = start.elapsed().as_secs_f64();
    let memory = peak_of("self").unwrap_or(0);
    let known = |path: &Vec<u8>| index.known(path);
    let in_folders = chosen.names.iter().map(|path| {
        let (folder, name) = split(path);
        Ok((index.known(folder)?, name))
    });
    let in_folders = in_folders.collect::<Result<Vec<(Known, &[u8])>, Error>>()?;
    let folders = chosen.folders.iter().map(known).collect::<Result<Vec<Known>, Error>>()?;
    let lookup = each(&in_folders, |(folder, name)| is_there(index.lookup(folder, name)?))?;
    let find = each(&chosen.paths, |path| is_there(index.find(path)?))?;
    let list = each(&folders, |folder| {
        index.list(folder, &mut |name, found| {
            black_box((name, found));
        })
    })?;
    let start = Instant::now();
    all(&*index, root.clone(), &mut |_, _, found| {
        black_box(found);
    })?;
    let all_seconds = start.elapsed().as_secs_f64();
    // Once more, as what shows that it is right takes time, too.
    let mut sum = Sum::default();
    let mut path = Vec::new();
    all(&*index, root, &mut |folder, name, found| {
        path.clear();
        path.extend(folder);
        if !folder.is_empty() {
            path.push(b'/');
        }
        path.extend(name);
        sum.add(&path, found.kind, found.size);
    })?;
    Ok(Read { opening, memory, lookup, find, list, all: all_seconds, count: sum.count, hash: sum.hash })
}

/// Gets the path of a folder, a name in it, and what has that name.
type Receive<'r> = dyn FnMut(&[u8], &[u8], &super::backends::Found) + 'r;

/// Lists all folders from `root` on.
fn all(index: &dyn Opened, root: Known, receive: &mut Receive<'_>) -> Result<(), Error> {
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        index.list(&folder, &mut |name, found| {
            receive(&folder.path, name, found);
            if found.kind == Kind::Folder {
                let separator: &[u8] = if folder.path.is_empty() { b"" } else { b"/" };
                let path = [folder.path.as_slice(), separator, name].concat();
                folders.push(Known { path, node: found.node });
            }
        })?;
    }
    Ok(())
}
