//! Mounts and servers say which archives they read: the table of mounts does not name all of them, and no server.
//!
//! Each has a socket whose name says which file it is, and to which nobody connects. It goes with its process and
//! leaves nothing on a disk. Every user finds it, and unlike a lock it is in the way of no other program.

use std::fs::{self, Metadata};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::overlay::random;

/// What the names begin with.
const NAME: &str = "tarnfs-reads";

/// The sockets of this machine, one in each line.
const SOCKETS: &str = "/proc/net/unix";

/// Of so many files it is said at most: each takes a descriptor, and of those that there may be one in eight.
const MOST: u64 = 1000;
const OF_DESCRIPTORS: u64 = 8;

/// Says it until it is dropped.
#[derive(Debug)]
pub(crate) struct Reading(Vec<UnixDatagram>);

impl Reading {
    /// Of `sources` that are files here, and, where archives in them are read, too, also of folders.
    pub(crate) fn begin(sources: &[PathBuf], with_folders: bool) -> Self {
        let files = sources.iter().filter_map(|source| source.metadata().ok());
        let files = files.filter(|found| found.is_file() || with_folders && found.is_dir());
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = MOST.min(descriptors / OF_DESCRIPTORS) as usize;
        let said: io::Result<_> = files.take(most).map(|found| say(&found)).collect();
        Self(said.unwrap_or_else(|error| {
            // Then the table of mounts has to do.
            log::debug!("that it is read is not said to others: {error}");
            Vec::new()
        }))
    }

    /// It is said no more.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }
}

fn say(found: &Metadata) -> io::Result<UnixDatagram> {
    let name = format!("{}{:016x}", of(found), random());
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The name without what is different each time.
fn of(found: &Metadata) -> String {
    format!("{NAME}/{}/{}/", found.dev(), found.ino())
}

/// True if somebody says that the file at `path`, which is `known`, or a folder above it is read.
pub(crate) fn is_read(path: &Path, known: &Metadata) -> bool {
    // What is not text is a name of others.
    let sockets = fs::read(SOCKETS).unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    // Mostly there are none, and no folder need be looked at.
    let names: Vec<&str> = sockets.lines().filter_map(|line| line.split_once('@').map(|(_, name)| name)).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with(NAME)).collect();
    let is_said = |found: &Metadata| {
        let of = of(found);
        names.iter().any(|name| name.starts_with(&of))
    };
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !names.is_empty()
        && (is_said(known)
            || real.ancestors().skip(1).filter_map(|folder| folder.metadata().ok()).any(|folder| is_said(&folder)))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn what_is_read_is_known_to_others() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let [one, other, none] = ["one", "other", "none"].map(|name| folder.join(name));
        for file in [&one, &other] {
            fs::write(file, "").unwrap();
        }
        let is_read = |path: &Path| is_read(path, &path.metadata().unwrap());
        let mut reading = Reading::begin(&[none, one.clone()], false);
        let again = Reading::begin(from_ref(&one), false);
        assert_eq!((is_read(&one), is_read(&other)), (true, false));
        reading.end();
        assert!(is_read(&one), "by another one");
        drop(again);
        assert!(!is_read(&one));
        // A folder is shown with its archives as files, unless somebody wants to see what is in them.
        let as_files = Reading::begin(from_ref(&folder), false);
        assert!(!is_read(&one));
        drop(as_files);
        let _deep = Reading::begin(from_ref(&folder), true);
        assert!(is_read(&one) && is_read(&other) && !is_read(scratch.path()));
    }
}
