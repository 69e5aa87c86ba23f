//! What tarnfs-index writes: its own index, and the sidecar of ratarmount.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create};
use tarnfs_index::{Archive, Destination, Index, Node, Row, Shape, Summary, Writer, WriterOptions, own, ratarmount};
use tarnfs_source::{Budget, Cancel, FileSource, Fingerprint, Limits};

use super::{Found, Known, Opened, failed};
use crate::Error;
use crate::index::entries::Reader;

/// Takes all entries, as a first pass does.
fn gather(entries: &mut Reader) -> Result<(Writer, Summary, Hollow), Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let budget = Budget::for_this_machine(threads);
    let options = WriterOptions { limits: Limits::default(), budget, cancel: Cancel::default() };
    let mut writer = Writer::new(options).map_err(failed)?;
    for entry in entries.by_ref() {
        writer.add(&entry.map_err(failed)?).map_err(failed)?;
    }
    let length = entries.length();
    let hollow = Hollow::new(length)?;
    let shape = Shape { gnu_incremental: Some(false), ..Shape::default() };
    let archive = Archive { length, fingerprint: hollow.fingerprint()?, modified: 0 };
    Ok((writer.of_archive(length), Summary { shape, ..Summary::new(archive, "tar") }, hollow))
}

pub(super) fn make(entries: &mut Reader, path: &Path) -> Result<(), Error> {
    let (writer, summary, _) = gather(entries)?;
    writer.finish(summary, &Destination::File(path.to_owned())).map(drop).map_err(failed)
}

/// Returns how long the index of tarnfs takes from which it is made.
pub(super) fn make_for_ratarmount(entries: &mut Reader, path: &Path) -> Result<f64, Error> {
    let start = Instant::now();
    let (writer, summary, hollow) = gather(entries)?;
    let index = writer.finish(summary, &Destination::Memory).map_err(failed)?;
    let before = start.elapsed().as_secs_f64();
    ratarmount::write(&index, &hollow.path(), path).map_err(failed)?;
    Ok(before)
}

/// What stands for the archive: as long, without a byte in it, and in no folder.
struct Hollow(File);

impl Hollow {
    fn new(length: u64) -> Result<Self, Error> {
        let file = File::from(memfd_create("tarnfs-bench", MemfdFlags::CLOEXEC).map_err(failed)?);
        file.set_len(length).map_err(failed)?;
        Ok(Self(file))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    fn fingerprint(&self) -> Result<Fingerprint, Error> {
        let source = FileSource::from_file(self.0.try_clone().map_err(failed)?, self.path()).map_err(failed)?;
        Fingerprint::of(&source).map_err(failed)
    }
}

struct OwnIndex(Arc<dyn Index>);

pub(super) fn open(path: &Path) -> Result<Box<dyn Opened>, Error> {
    Ok(Box::new(OwnIndex(own::open(path, None, false).map_err(failed)?)))
}

fn found(row: &Row) -> Found {
    Found {
        kind: row.kind,
        size: row.size,
        mode: row.mode,
        owner: (row.uid, row.gid),
        seconds: row.mtime.seconds,
        node: row.node.0,
    }
}

impl OwnIndex {
    fn row(&self, path: &[u8]) -> Result<Option<Row>, Error> {
        let mut row = self.0.row(Node::ROOT).map_err(failed)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let Some(folder) = row else { return Ok(None) };
            row = self.0.lookup(folder.node, name).map_err(failed)?;
        }
        Ok(row)
    }
}

impl Opened for OwnIndex {
    fn known(&self, path: &[u8]) -> Result<Known, Error> {
        let row = self.row(path)?.ok_or_else(|| Error::Other("a folder is not there".to_owned()))?;
        Ok(Known { path: path.to_owned(), node: row.node.0 })
    }

    fn lookup(&self, folder: &Known, name: &[u8]) -> Result<Option<Found>, Error> {
        Ok(self.0.lookup(Node(folder.node), name).map_err(failed)?.as_ref().map(found))
    }

    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error> {
        Ok(self.row(path)?.as_ref().map(found))
    }

    fn list(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error> {
        let listed = self.0.children(Node(folder.node), 0, &mut |_, name, row| {
            receive(name, &found(row));
            true
        });
        listed.map_err(failed)
    }
}
