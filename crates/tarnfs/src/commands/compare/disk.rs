//! A folder on disk. It is read relative to descriptors, and no symbolic link in it is followed. What is neither file
//! nor folder is never opened.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, major, minor, open, openat, readlinkat, seek,
    statat,
};
use rustix::io::Errno;
use tarnfs_format::Told;
use tarnfs_tree::{Device, Error, Kind, Time, Xattrs};

use super::side::{Readable, Seen, Side};
use crate::commands::beneath::{Beneath, FOLDER};

/// The folder.
#[derive(Debug)]
pub(super) struct Disk {
    root: Beneath,
}

impl Disk {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        // A folder that may be searched need not be listed.
        let root = open(folder, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())?;
        Ok(Self { root: Beneath::new(root) })
    }
}

fn seen(stat: &Stat) -> Seen {
    let device = Device { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    Seen {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice => Kind::CharacterDevice(device),
            FileType::BlockDevice => Kind::BlockDevice(device),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => Kind::File,
        },
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size,
        mtime: Time { seconds: stat.st_mtime, nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) },
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        is_sparse: blocks.saturating_mul(512) < size,
        file: (stat.st_dev, stat.st_ino),
        ctime: (stat.st_ctime, stat.st_ctime_nsec),
        told: Told { mode: true, owner: true, mtime: Some(1) },
        has_links: true,
    }
}

fn or_itself(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"." } else { name }
}

impl Side for Disk {
    type Folder = OwnedFd;
    type File = DiskFile;

    fn folder(&self, names: &[Vec<u8>]) -> Result<OwnedFd, Error> {
        Ok(self.root.folder(names)?)
    }

    fn inner(&self, folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Error> {
        Ok(openat(folder, name, FOLDER, Mode::empty()).map_err(io::Error::from)?)
    }

    fn copied(&self, _: &OwnedFd) -> Option<OwnedFd> {
        None
    }

    fn look(&self, folder: &OwnedFd, name: &[u8]) -> Result<Option<Seen>, Error> {
        match statat(folder, or_itself(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(seen(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn names(&self, folder: &OwnedFd, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(folder, ".", flags, Mode::empty()).map_err(io::Error::from)?;
        // Most folders are small, and there are many.
        let mut room = [MaybeUninit::uninit(); 8 << 10];
        let mut entries = RawDir::new(listed, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(io::Error::from)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                receive(name);
            }
        }
        Ok(())
    }

    fn target(&self, folder: &OwnedFd, name: &[u8], _: &Seen) -> Result<Vec<u8>, Error> {
        Ok(readlinkat(folder, name, Vec::new()).map_err(io::Error::from)?.into_bytes())
    }

    fn xattrs(&self, folder: &OwnedFd, name: &[u8], _: &Seen) -> Result<Xattrs, Error> {
        // There is no call that takes a descriptor and a name, and devices are not to be opened.
        let path = [format!("/proc/self/fd/{}/", folder.as_raw_fd()).as_bytes(), or_itself(name)].concat();
        Ok(tarnfs_write::files::xattrs_at(&path)?)
    }

    fn open(&self, folder: &OwnedFd, name: &[u8], _: &Seen) -> Result<DiskFile, Error> {
        // It was a file a moment ago. If somebody has put something else there, this waits for nobody.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::empty()).map_err(io::Error::from)?;
        Ok(DiskFile(file.into()))
    }

    fn is_on_disk(&self) -> bool {
        true
    }

    fn has_hard_links(&self) -> bool {
        true
    }

    fn has_xattrs(&self) -> bool {
        true
    }
}

/// A file in it.
#[derive(Debug)]
pub(super) struct DiskFile(File);

impl Readable for DiskFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.0.read_at(&mut buffer[read..], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        match seek(&self.0, SeekFrom::Data(at)) {
            Ok(data) if data >= at => Some(data),
            Err(Errno::NXIO) => None,
            // Not known: it is read. (What a FUSE file system says, nobody checks.)
            Ok(_) | Err(_) => Some(at),
        }
    }

    fn is_still(&self, then: &Seen) -> io::Result<bool> {
        let now = seen(&fstat(&self.0)?);
        let facts = |seen: &Seen| (seen.file, seen.size, seen.mtime, seen.ctime);
        Ok(facts(&now) == facts(then))
    }

    fn verify(&self) -> io::Result<()> {
        Ok(())
    }
}
