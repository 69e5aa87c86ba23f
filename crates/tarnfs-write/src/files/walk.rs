//! Walking folders: each relative to the descriptor of the one that it is in, and through no link.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fgetxattr, flistxattr, fstat, lgetxattr, llistxattr,
    major, minor, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;
use tarnfs_format::name::escape;
use tarnfs_format::{Body, Device, Entry, Kind, Time, Xattrs};
use tarnfs_source::Extent;

use super::transform::Role;
use super::{Choice, Count, Sort, names};
use crate::container::is_acl;
use crate::{ArchiveWriter, Content, Nothing};

/// Folders that are open at the same time. The others are found again from the ones in them.
const MOST_OPEN: usize = 200;

/// Bytes of a folder's names that are read at once.
const NAMES: usize = 64 << 10;

/// A folder that is being walked.
struct Level {
    /// `None` while there are too many.
    folder: Option<Rc<OwnedFd>>,
    identity: (u64, u64),
    /// What is still to be visited, the last first.
    names: Vec<(Vec<u8>, FileType)>,
    /// Bytes of the path up to it.
    length: usize,
}

struct Walk<'a> {
    choice: &'a Choice,
    writer: &'a mut dyn ArchiveWriter,
    told: &'a mut dyn FnMut(&[u8], &str),
    count: Count,
    levels: Vec<Level>,
    /// Of what is being visited, as it was typed and found.
    path: Vec<u8>,
    /// Of the path that was typed.
    device: u64,
    /// Files with further names, and the path of the first; how many names are to come.
    linked: HashMap<(u64, u64), (Vec<u8>, u64)>,
    buffer: Vec<MaybeUninit<u8>>,
    has_cut: bool,
}

/// Puts into `writer` what was chosen. What goes wrong with a file is `told` with its path, and the others go on; an
/// error is one of writing, or `Interrupted`.
pub fn add(choice: &Choice, writer: &mut dyn ArchiveWriter, told: &mut dyn FnMut(&[u8], &str)) -> io::Result<Count> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match &choice.folder {
        Some(path) => Some(openat(CWD, path, flags, Mode::empty()).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("{}: {}", path.display(), io::Error::from(error)))
        })?),
        None => None,
    };
    let start = folder.as_ref().map_or(CWD, AsFd::as_fd);
    let mut walk = Walk {
        choice,
        writer,
        told,
        count: Count::default(),
        levels: Vec::new(),
        path: Vec::new(),
        device: 0,
        linked: HashMap::new(),
        buffer: vec![MaybeUninit::uninit(); NAMES],
        has_cut: false,
    };
    for path in &choice.paths {
        walk.operand(start, path)?;
    }
    Ok(walk.count)
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// True if a file of `size` bytes takes less room than that. Any number may be said of it.
fn has_holes(stat: &Stat, size: u64) -> bool {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size
}

/// A file's bytes. What is read may be less than it was, or more than is wanted.
struct Opened<'a>(BorrowedFd<'a>, &'a Choice);

impl Content for Opened<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.cancel.check()?;
        loop {
            match rustix::io::pread(self.0, &mut *buffer, offset) {
                // That of the person is asked for elsewhere.
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(read) => {
                    self.1.progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
            }
        }
    }
}

impl Walk<'_> {
    fn tell(&mut self, what: &str) {
        self.count.told += 1;
        (self.told)(&self.path, what);
    }

    fn tell_of(&mut self, doing: &str, error: Errno) {
        match error {
            Errno::NOENT if !self.levels.is_empty() => self.tell("it was removed before it was read"),
            error => self.tell(&format!("{doing}: {}", io::Error::from(error))),
        }
    }

    /// What was typed, with all that is in it.
    fn operand(&mut self, start: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |last| last + 1);
        self.path = path[..end].to_vec();
        self.levels.clear();
        if self.choice.excludes.iter().any(|exclude| exclude.matches_on_the_way(&self.path)) {
            return Ok(());
        }
        let name = self.path.clone();
        match statat(start, &*name, self.at_flags()) {
            Ok(stat) => {
                self.device = stat.st_dev;
                self.visit(start, &name, file_type(&stat))?;
            }
            Err(error) => self.tell(&io::Error::from(error).to_string()),
        }
        while let Some(level) = self.levels.last_mut() {
            let next = level.names.pop();
            match (next, &level.folder) {
                (Some((name, kind)), Some(folder)) => {
                    let folder = Rc::clone(folder);
                    self.path.truncate(level.length);
                    if !self.path.ends_with(b"/") {
                        self.path.push(b'/');
                    }
                    self.path.extend_from_slice(&name);
                    if !self.choice.excludes.iter().any(|exclude| exclude.matches(&self.path)) {
                        self.visit(folder.as_fd(), &name, kind)?;
                    }
                }
                _ => self.leave(),
            }
        }
        Ok(())
    }

    /// Goes back to the folder above, and finds it again if it had to be closed.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Some(level) = self.levels.last_mut().filter(|level| level.folder.is_none()) else { return };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let found = left.folder.and_then(|left| openat(&*left, "..", flags, Mode::empty()).ok());
        let found = found.filter(|found| fstat(found).is_ok_and(|stat| identity(&stat) == level.identity));
        if let Some(found) = found {
            level.folder = Some(Rc::new(found));
            return;
        }
        let is_cut = !std::mem::take(&mut level.names).is_empty();
        // So that the ones above it are found, or told of, too, it stays where it is.
        self.path.truncate(level.length);
        if is_cut {
            self.tell("it was moved while it was read; what was not read yet is missing");
        }
    }

    fn at_flags(&self) -> AtFlags {
        if self.choice.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
    }

    /// What is called `name` in `folder`, probably of that type.
    fn visit(&mut self, folder: BorrowedFd<'_>, name: &[u8], expected: FileType) -> io::Result<()> {
        self.choice.cancel.check()?;
        let is_opened = matches!(expected, FileType::RegularFile | FileType::Directory);
        if !is_opened {
            let stat = match statat(folder, name, self.at_flags()) {
                Ok(stat) => stat,
                Err(error) => {
                    self.tell_of("it cannot be looked at", error);
                    return Ok(());
                }
            };
            return match file_type(&stat) {
                kind @ (FileType::RegularFile | FileType::Directory) => self.visit(folder, name, kind),
                _ => self.unopened(folder, name, &stat),
            };
        }
        // A pipe that lies there by now is not waited for.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if !self.choice.follow {
            flags |= OFlags::NOFOLLOW;
        }
        if expected == FileType::Directory {
            flags |= OFlags::DIRECTORY;
        }
        let file = match openat(folder, name, flags, Mode::empty()) {
            Ok(file) => file,
            // It is something else by now.
            Err(error @ (Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV)) if !self.choice.follow => {
                return match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    // Some file systems have files that cannot be opened.
                    Ok(stat) if file_type(&stat) == expected => {
                        self.tell_of("it cannot be opened", error);
                        Ok(())
                    }
                    Ok(stat) if file_type(&stat) == FileType::RegularFile => {
                        self.visit(folder, name, FileType::RegularFile)
                    }
                    Ok(stat) => self.unopened(folder, name, &stat),
                    Err(error) => {
                        self.tell_of("it cannot be looked at", error);
                        Ok(())
                    }
                };
            }
            Err(error) => {
                self.tell_of("it cannot be opened", error);
                return Ok(());
            }
        };
        let stat = match fstat(&file) {
            Ok(stat) => stat,
            Err(error) => {
                self.tell_of("it cannot be looked at", error);
                return Ok(());
            }
        };
        match file_type(&stat) {
            FileType::RegularFile => self.file(&file, &stat),
            FileType::Directory => self.folder(file, &stat),
            _ => self.unopened(folder, name, &stat),
        }
    }

    fn file(&mut self, file: &OwnedFd, stat: &Stat) -> io::Result<()> {
        if self.choice.leaves_out.contains(&identity(stat)) {
            log::warn!("{}: this is the archive itself, or its index, and is left out", escape(&self.path));
            return Ok(());
        }
        let mut entry = self.entry(Kind::File, stat);
        if self.is_second_name(&mut entry, stat) {
            return self.put(&entry, &Nothing);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        entry.body = Body { size, stored: size, ..Body::default() };
        if self.choice.sparse && size > 0 && has_holes(stat, size) {
            match extents(file, size) {
                Ok(extents) => entry.body.extents = Some(extents),
                Err(error) => log::debug!("{}: its holes are not known: {error}", escape(&self.path)),
            }
        }
        entry.xattrs = self.xattrs(&Place::Opened(file.as_fd()), false);
        self.count.bytes = self.count.bytes.saturating_add(size);
        let told = self.count.told;
        self.put(&entry, &Opened(file.as_fd(), self.choice))?;
        if size > 0
            && told == self.count.told
            && let Ok(now) = fstat(file)
        {
            let times =
                |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec, stat.st_size);
            if times(&now) != times(stat) {
                self.tell("it changed while it was read");
            }
        }
        Ok(())
    }

    fn folder(&mut self, folder: OwnedFd, stat: &Stat) -> io::Result<()> {
        let identity = identity(stat);
        if self.levels.iter().any(|level| level.identity == identity) {
            self.tell("it is a folder that it lies in itself, and is not entered again");
            return Ok(());
        }
        let mut entry = self.entry(Kind::Folder, stat);
        entry.xattrs = self.xattrs(&Place::Opened(folder.as_fd()), true);
        self.put(&entry, &Nothing)?;
        if self.choice.one_file_system && stat.st_dev != self.device {
            log::info!("{}: another file system is mounted there, which is left out", escape(&self.path));
            return Ok(());
        }
        let names = match self.names(&folder) {
            Ok(names) => names,
            Err(error) => {
                self.tell_of("it cannot be read", error);
                return Ok(());
            }
        };
        // What a link has led to is not found from below.
        if self.levels.len() >= MOST_OPEN && !self.choice.follow {
            let closed = self.levels.len() - MOST_OPEN;
            self.levels[closed].folder = None;
        }
        self.levels.push(Level { folder: Some(Rc::new(folder)), identity, names, length: self.path.len() });
        Ok(())
    }

    /// The names in a folder, the last one first.
    fn names(&mut self, folder: &OwnedFd) -> rustix::io::Result<Vec<(Vec<u8>, FileType)>> {
        let mut found = Vec::new();
        let mut entries = RawDir::new(folder, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                found.push((name.to_vec(), entry.file_type(), entry.ino()));
            }
        }
        match self.choice.sort {
            Sort::None => {}
            Sort::Name => found.sort_unstable_by(|one, other| one.0.cmp(&other.0)),
            Sort::Inode => found.sort_unstable_by_key(|one| one.2),
        }
        // A link may lead to anything.
        let follows = self.choice.follow;
        let kind = |kind| if follows && kind == FileType::Symlink { FileType::Unknown } else { kind };
        Ok(found.into_iter().rev().map(|(name, found, _)| (name, kind(found))).collect())
    }

    /// What is not opened: links, pipes, devices.
    fn unopened(&mut self, folder: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> io::Result<()> {
        let device = || Device { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
        let kind = match file_type(stat) {
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::CharacterDevice(device()),
            FileType::BlockDevice => Kind::BlockDevice(device()),
            FileType::Socket => Kind::Socket,
            _ => {
                self.tell("it became something else while it was read");
                return Ok(());
            }
        };
        let mut entry = self.entry(kind, stat);
        if kind == Kind::Symlink {
            match readlinkat(folder, name, Vec::new()) {
                Ok(target) => entry.link = self.transformed(target.into_bytes(), Role::Symlink),
                Err(error) => {
                    self.tell_of("where it leads to cannot be read", error);
                    return Ok(());
                }
            }
        }
        if self.is_second_name(&mut entry, stat) {
            return self.put(&entry, &Nothing);
        }
        // The folder is the one that is open, and what is in it is not followed.
        let place = [format!("/proc/self/fd/{}/", folder.as_raw_fd()).as_bytes(), name].concat();
        // The folder of the process has no number.
        let is_found_by_name = folder.as_raw_fd() < 0 || name.starts_with(b"/");
        entry.xattrs = self.xattrs(&Place::Path(if is_found_by_name { name } else { &place }), false);
        self.put(&entry, &Nothing)
    }

    /// Makes a hard link of `entry` if the file has been put in under another name.
    fn is_second_name(&mut self, entry: &mut Entry, stat: &Stat) -> bool {
        #[allow(clippy::useless_conversion, reason = "it is narrower on other machines")]
        let links = u64::from(stat.st_nlink);
        if links < 2 || self.choice.hard_dereference || !self.writer.has_hard_links() {
            return false;
        }
        // What is left out has no name that others could lead to.
        if entry.path.is_empty() || self.writer.why_not(entry).is_some() {
            return false;
        }
        let key = identity(stat);
        let Some((first, left)) = self.linked.get_mut(&key) else {
            self.linked.insert(key, (entry.path.clone(), links - 1));
            return false;
        };
        if *first == entry.path {
            // The same name again, from another operand: a link to itself would be no file.
            return false;
        }
        let target = first.clone();
        *left = left.saturating_sub(1);
        // Followed links lead to it more often than it has names.
        if *left == 0 && !self.choice.follow {
            self.linked.remove(&key);
        }
        entry.kind = Kind::HardLink;
        entry.link = target;
        true
    }

    fn put(&mut self, entry: &Entry, content: &dyn Content) -> io::Result<()> {
        if let Some(why_not) = self.writer.why_not(entry) {
            let what = format!("it is left out: {why_not}");
            if entry.kind == Kind::Socket {
                // It has no content, and whoever serves it makes it anew.
                log::warn!("{}: {what}", escape(&self.path));
            } else {
                self.tell(&what);
            }
            return Ok(());
        }
        for what in self.writer.leaves_out(entry) {
            log::warn!("{}: its {what} are left out", escape(&self.path));
        }
        if entry.path.is_empty() {
            return Ok(());
        }
        let missing = self.writer.add(entry, content)?;
        self.count.entries += 1;
        self.choice.progress.entries.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = missing.error {
            self.tell(&format!("it cannot be read, and the last {} bytes of it are zeros: {error}", missing.bytes));
        } else if missing.bytes > 0 {
            self.tell(&format!("it became shorter while it was read by {} bytes", missing.bytes));
        }
        Ok(())
    }

    /// All but the content, links and attributes.
    fn entry(&mut self, kind: Kind, stat: &Stat) -> Entry {
        let choice = self.choice;
        let is_folder = kind == Kind::Folder;
        let mut mode = stat.st_mode & 0o7777;
        if choice.plain_modes {
            mode = match kind {
                Kind::Symlink => 0o777,
                Kind::File if mode & 0o100 == 0 => 0o644,
                _ => 0o755,
            };
        }
        if let Some(change) = &choice.mode {
            mode = change.of(mode, is_folder);
        }
        let of = |given: &Option<super::Owner>, id: u32, name: fn(u32) -> Option<Vec<u8>>| match given {
            Some(owner) => (owner.id, if choice.numeric_owner { Vec::new() } else { owner.name.clone() }),
            None if choice.numeric_owner => (u64::from(id), Vec::new()),
            None => (u64::from(id), name(id).unwrap_or_default()),
        };
        let (uid, user) = of(&choice.owner, stat.st_uid, names::user_name);
        let (gid, group) = of(&choice.group, stat.st_gid, names::group_name);
        let path = self.member();
        Entry {
            path: self.transformed(path, Role::Member),
            kind,
            mode,
            uid,
            gid,
            user,
            group,
            mtime: choice.mtime.unwrap_or(Time { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 }),
            ..Entry::default()
        }
    }

    fn transformed(&self, name: Vec<u8>, role: Role) -> Vec<u8> {
        self.choice.transforms.iter().fold(name, |name, transform| transform.of(&name, role))
    }

    /// The path in the archive: what would lead out of where it is unpacked is cut off.
    fn member(&mut self) -> Vec<u8> {
        let path = &self.path;
        let mut start = 0;
        for (at, component) in components(path) {
            if component == b".." {
                start = at + component.len();
            }
        }
        while path.get(start) == Some(&b'/') {
            start += 1;
        }
        if start > 0 && !self.has_cut {
            self.has_cut = true;
            log::warn!("{} is cut off from the names of what is in the archive", escape(&path[..start]));
        }
        if start == path.len() { b".".to_vec() } else { path[start..].to_vec() }
    }

    fn xattrs(&mut self, place: &Place<'_>, is_folder: bool) -> Xattrs {
        if !self.choice.xattrs && !self.choice.acls {
            return Vec::new();
        }
        let mut found = Vec::new();
        let names = match place.names() {
            Ok(names) => names,
            // Of a file system that has none.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Vec::new(),
            Err(error) => {
                self.tell_of("its extended attributes cannot be read", error);
                Vec::new()
            }
        };
        for name in names {
            let is_wanted = if is_acl(&name) {
                self.choice.acls && (is_folder || !name.ends_with(b"default"))
            } else {
                self.choice.xattrs
            };
            if !is_wanted {
                continue;
            }
            match place.value(&name) {
                Ok(value) => found.push((name, value)),
                // It was removed meanwhile, or is none that can be kept.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => {
                    self.tell_of(&format!("its extended attribute {} cannot be read", escape(&name)), error);
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// The components of a path, and where they begin.
fn components(path: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    path.split(|&byte| byte == b'/').map(move |component| {
        let start = at;
        at += component.len() + 1;
        (start, component)
    })
}

/// All extended attributes of what lies at `path`, whose last component is not followed.
pub fn xattrs_at(path: &[u8]) -> io::Result<Xattrs> {
    let place = Place::Path(path);
    let names = match place.names() {
        // Of a file system that has none.
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let with_value = |name: Vec<u8>| match place.value(&name) {
        // It was removed meanwhile.
        Err(Errno::NODATA) => None,
        value => Some(value.map(|value| (name, value)).map_err(io::Error::from)),
    };
    names.into_iter().filter_map(with_value).collect()
}

/// Where extended attributes are read.
enum Place<'a> {
    Opened(BorrowedFd<'a>),
    /// A path whose last component is not followed.
    Path(&'a [u8]),
}

impl Place<'_> {
    /// Reads as much as there is, which may grow meanwhile.
    fn read(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
        const FIRST: usize = 256;
        const MOST: usize = 64 << 10;
        let mut buffer = vec![0; FIRST];
        loop {
            match get(&mut buffer) {
                Ok(length) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                Err(Errno::RANGE) if buffer.len() < MOST => buffer.resize(MOST, 0),
                Err(error) => return Err(error),
            }
        }
    }

    fn names(&self) -> rustix::io::Result<Vec<Vec<u8>>> {
        let all = match self {
            Self::Opened(file) => Self::read(|buffer| flistxattr(file, buffer)),
            Self::Path(path) => Self::read(|buffer| llistxattr(*path, buffer)),
        };
        Ok(all?.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn value(&self, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
        match self {
            Self::Opened(file) => Self::read(|buffer| fgetxattr(file, name, buffer)),
            Self::Path(path) => Self::read(|buffer| lgetxattr(*path, name, buffer)),
        }
    }
}

/// Where data lie in a file of `size` bytes.
fn extents(file: &OwnedFd, size: u64) -> rustix::io::Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            // Nobody checks what a FUSE file system says.
            Ok(start) if start < at => return Err(Errno::INVAL),
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(size);
        if start >= size {
            break;
        }
        if end <= start {
            return Err(Errno::INVAL);
        }
        extents.push(Extent { offset: start, length: end - start, skip: 0 });
        at = end;
    }
    Ok(extents)
}
