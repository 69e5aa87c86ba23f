//! Owner, mode, times and extended attributes of what was made. The order matters: a change of the owner takes away
//! setuid bits and capabilities, so these come behind it, and behind the content.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat,
    fchmod, fchown, fgetxattr_query, fremovexattr, fsetxattr, fstat, futimens, openat, removexattr, setxattr,
    utimensat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use tarnfs_tree::{Time, Xattrs};

use crate::args::Extract;
use crate::exit::{Code, Failure};

/// What damaged files have where they are served.
const DAMAGED: &[u8] = b"user.tarnfs.damaged";

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Setuid, setgid and sticky.
const SPECIAL: u32 = 0o7000;

/// Which of the attributes are kept.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct Keeping {
    pub(super) owner: bool,
    /// Modes are as stored; else as far as the umask lets them be.
    pub(super) permissions: bool,
    pub(super) is_numeric: bool,
    acls: bool,
    xattrs: bool,
    /// Which are kept; without it those of users.
    include: Option<GlobSet>,
    exclude: GlobSet,
    umask: u32,
    /// Whose the files are that this process makes, where their folder has no say in it.
    own: (u32, u32),
    /// What could not be kept, in words, and of how many.
    lost: Mutex<BTreeMap<String, u64>>,
}

/// What something is to get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) mode: u32,
    /// Its numbers here.
    pub(super) owner: (u32, u32),
    pub(super) mtime: Time,
    pub(super) atime: Time,
    pub(super) xattrs: &'a Xattrs,
}

/// What gets its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finished {
    File,
    Folder {
        /// This call has made it.
        is_made: bool,
    },
}

impl Keeping {
    pub(super) fn new(arguments: &Extract) -> Result<Self, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        // There is no other way to ask for it.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        let include = (!arguments.xattrs_include.is_empty()).then(|| globs(&arguments.xattrs_include)).transpose()?;
        Ok(Self {
            owner: (is_root || arguments.same_owner) && !arguments.no_same_owner,
            permissions: (is_root || arguments.same_permissions) && !arguments.no_same_permissions,
            is_numeric: arguments.numeric_owner,
            acls: !arguments.no_acls,
            xattrs: !arguments.no_xattrs,
            include,
            exclude: globs(&arguments.xattrs_exclude)?,
            umask: umask.as_raw_mode(),
            own: (geteuid().as_raw(), getegid().as_raw()),
            lost: Mutex::default(),
        })
    }

    /// The mode with which a file is made, which the umask may still lessen. Its owner may write until it is finished.
    pub(super) fn first_mode(&self, mode: u32) -> u32 {
        // As long as it has another owner, his group has nothing to do with it.
        if self.owner || self.permissions { 0o600 } else { mode & 0o777 | 0o600 }
    }

    /// The same of a file that has no name, so that nobody else can open it before it is finished: one that has its
    /// owner from the start may have its mode, too. Not if it is to have extended attributes, which only those can set
    /// who may write to it.
    pub(super) fn first_mode_without_name(&self, mode: u32, owner: (u32, u32), has_xattrs: bool) -> u32 {
        let is_own = self.owner && self.permissions && owner == self.own;
        let is_as_asked = mode & !0o777 == 0 && mode & self.umask == 0;
        if is_own && is_as_asked && !has_xattrs { mode } else { self.first_mode(mode) }
    }

    /// The same of a folder: things can be made in it until it is finished.
    pub(super) fn first_mode_of_folder(&self, mode: u32) -> u32 {
        if self.owner { 0o700 } else { mode & 0o777 | 0o700 }
    }

    /// True if the extended attribute `name` is kept.
    fn keeps(&self, name: &[u8]) -> bool {
        if name == DAMAGED {
            return false;
        }
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            // Permissions that the umask should lessen are not widened by a list.
            return self.acls && self.permissions;
        }
        let Ok(text) = std::str::from_utf8(name) else { return self.xattrs && self.include.is_none() };
        let is_included = self.include.as_ref().map_or_else(|| name.starts_with(b"user."), |set| set.is_match(text));
        self.xattrs && is_included && !self.exclude.is_match(text)
    }

    /// Gives `file`, which has all of its content and was made with [`first_mode`](Self::first_mode), what it is to
    /// have; or a folder, which this call has made or which was there. An error is of the owner or the mode: then the
    /// rest was kept.
    pub(super) fn keep(&self, file: &File, wanted: &Wanted<'_>, what: Finished) -> Result<(), Failure> {
        let mut failure = None;
        let mut mode = wanted.mode & 0o7777;
        // (In a folder with setgid its group may be another one than that of this process.)
        let as_made = if self.owner { fstat(file).ok() } else { None };
        let as_made = as_made.filter(|stat| (stat.st_uid, stat.st_gid) == wanted.owner);
        if self.owner && as_made.is_none() {
            let (uid, gid) = wanted.owner;
            let changed = owner(uid, gid).and_then(|(uid, gid)| fchown(file, Some(uid), Some(gid)));
            if let Err(error) = changed {
                // What may run as its owner may not run as this one.
                mode &= !SPECIAL;
                failure = Some(Failure::new(Code::Failure, format!("its owner {uid}:{gid} cannot be kept: {error}")));
            }
        }
        // Before the mode, which may forbid even the owner to write.
        let is_late = |name: &[u8]| name == ACCESS_ACL || name == DEFAULT_ACL || name.starts_with(b"security.");
        for (name, value) in wanted.xattrs.iter().filter(|(name, _)| !is_late(name) && self.keeps(name)) {
            self.set(file, name, value);
        }
        let (mut mode, mut is_as_made) = match what {
            Finished::File if self.permissions => (mode, mode == as_made.map_or(0o600, |stat| stat.st_mode & 0o7777)),
            Finished::File if self.owner => (mode & 0o777 & !self.umask, mode & 0o777 & !self.umask == 0o600),
            Finished::File => (mode & 0o777 & !self.umask, mode & 0o600 == 0o600),
            _ if self.permissions => (mode, false),
            Finished::Folder { is_made } => self.mode_of_folder(file, mode, is_made),
        };
        // Before the mode: without its list, its group would have all that the list allows to anybody in it.
        let list = wanted.xattrs.iter().find(|(name, _)| name == ACCESS_ACL && self.keeps(name));
        if let Some((_, list)) = list.filter(|(name, list)| !self.set(file, name, list)) {
            (mode, is_as_made) = (without_list(mode, list), false);
        }
        if !is_as_made && let Err(error) = fchmod(file, Mode::from_raw_mode(mode)) {
            failure.get_or_insert(Failure::new(Code::Failure, format!("its mode {mode:o} cannot be kept: {error}")));
        }
        for (name, value) in wanted.xattrs.iter().filter(|(name, _)| is_late(name) && name != ACCESS_ACL) {
            if self.keeps(name) && (failure.is_none() || !name.starts_with(b"security.")) {
                self.set(file, name, value);
            } else if name == b"security.capability" && self.owner && self.xattrs && self.include.is_none() {
                self.add("capabilities are kept with --xattrs-include='*'");
            }
        }
        if let Err(error) = futimens(file, &times(wanted)) {
            failure.get_or_insert(Failure::new(Code::Failure, format!("its time cannot be kept: {error}")));
        }
        self.look_at_time(file, wanted);
        failure.map_or(Ok(()), Err)
    }

    /// The mode of a folder that does not get the one that is stored, and whether it has it already.
    fn mode_of_folder(&self, file: &File, mode: u32, is_made: bool) -> (u32, bool) {
        let lessened = mode & 0o777 & !self.umask;
        let Ok(stat) = fstat(file) else { return (lessened, false) };
        let has = stat.st_mode & 0o7777;
        // What is made in a folder that hands lists down has got mode and list from that, and not from the umask: a
        // change of the mode would change the list. Only what was added for the time being goes away.
        let wanted = if is_made && !self.owner && fgetxattr_query(file, DEFAULT_ACL).is_ok() {
            has & !(0o700 & !mode)
        } else {
            // Setgid comes from the folder that it is in, or was there, and is for all that is made in it.
            lessened | has & SPECIAL
        };
        // Who is not in its group would take setgid away by a change.
        (wanted, wanted == has)
    }

    /// Sets an attribute; false if it cannot be kept, which is noted.
    fn set(&self, file: &File, name: &[u8], value: &[u8]) -> bool {
        let set = fsetxattr(file, name, value, XattrFlags::empty());
        set.inspect_err(|error| self.lose(name, *error)).is_ok()
    }

    /// Takes away access lists that come from the folder that `file` was made in.
    pub(super) fn without_inherited(&self, file: BorrowedFd<'_>, is_folder: bool) {
        if self.permissions {
            // Mostly there are none.
            let _ = fremovexattr(file, ACCESS_ACL);
            if is_folder {
                let _ = fremovexattr(file, DEFAULT_ACL);
            }
        }
    }

    /// [`keep`](Self::keep) for what has no content, is called `name` in `folder` and was made as `kind`. Symbolic
    /// links have no mode.
    pub(super) fn keep_at(
        &self,
        folder: BorrowedFd<'_>,
        name: &Path,
        wanted: &Wanted<'_>,
        kind: FileType,
    ) -> Result<(), Failure> {
        let failed = |what: &str| Failure::new(Code::Failure, what.to_owned());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(folder, name, flags, Mode::empty());
        let made = made.map_err(|error| failed(&format!("its attributes cannot be kept: {error}")))?;
        // Where others may write, something else can have the name by now: all below is done by the descriptor.
        let is_link = kind == FileType::Symlink;
        let is_ours = fstat(&made).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == kind
                && (is_link || stat.st_nlink == 1 && stat.st_uid == geteuid().as_raw())
        });
        if !is_ours {
            return Err(failed("its attributes cannot be kept: somebody has replaced it"));
        }
        let by_descriptor = format!("/proc/self/fd/{}", made.as_raw_fd());
        let mut failure = None;
        if self.owner {
            let (uid, gid) = wanted.owner;
            let changed =
                owner(uid, gid).and_then(|(uid, gid)| chownat(&made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH));
            if let Err(error) = changed {
                failure = Some(failed(&format!("its owner {uid}:{gid} cannot be kept: {error}")));
            }
        }
        if !is_link {
            let mode = if self.permissions { wanted.mode & 0o7777 } else { wanted.mode & 0o777 & !self.umask };
            let mut mode = if failure.is_some() { mode & !SPECIAL } else { mode };
            if self.permissions {
                // One that comes from the folder. Mostly there is none.
                let _ = removexattr(&by_descriptor, ACCESS_ACL);
            }
            let set = |name: &[u8], value: &[u8]| {
                let set = setxattr(&by_descriptor, name, value, XattrFlags::empty());
                set.inspect_err(|error| self.lose(name, *error)).is_ok()
            };
            let kept = || wanted.xattrs.iter().filter(|(name, _)| self.keeps(name));
            // Before the mode: without its list, its group would have all that the list allows to anybody in it.
            for (_, list) in kept().filter(|(name, _)| name == ACCESS_ACL) {
                if !set(ACCESS_ACL, list) {
                    mode = without_list(mode, list);
                }
            }
            if let Err(error) = chmodat(CWD, &by_descriptor, Mode::from_raw_mode(mode), AtFlags::empty()) {
                failure.get_or_insert(failed(&format!("its mode cannot be kept: {error}")));
            }
            for (name, value) in kept().filter(|(name, _)| name != ACCESS_ACL) {
                if failure.is_none() || !name.starts_with(b"security.") {
                    set(name, value);
                }
            }
            let _ = utimensat(CWD, &by_descriptor, &times(wanted), AtFlags::empty());
        } else if utimensat(&made, "", &times(wanted), AtFlags::EMPTY_PATH).is_err() {
            // Of an older kernel. The time of something else harms nobody.
            let _ = utimensat(folder, name, &times(wanted), AtFlags::SYMLINK_NOFOLLOW);
        }
        self.look_at_time(&made, wanted);
        if is_link && wanted.xattrs.iter().any(|(name, _)| self.keeps(name)) {
            self.add("extended attributes of symbolic links are not kept");
        }
        failure.map_or(Ok(()), Err)
    }

    /// Notes a time that the file system cannot store: the kernel takes the nearest one instead, without a word.
    fn look_at_time(&self, file: impl AsFd, wanted: &Wanted<'_>) {
        // All of them can store what 32 bits can.
        let is_far = i32::try_from(wanted.mtime.seconds).is_err();
        if is_far && fstat(file).is_ok_and(|stat| stat.st_mtime != wanted.mtime.seconds) {
            self.add("times so long ago or ahead cannot be stored there");
        }
    }

    fn lose(&self, name: &[u8], error: Errno) {
        let what = match name {
            ACCESS_ACL | DEFAULT_ACL => "access control lists".to_owned(),
            _ => match name.iter().position(|&byte| byte == b'.') {
                Some(dot) => format!("extended attributes of {}", String::from_utf8_lossy(&name[..dot])),
                None => "extended attributes".to_owned(),
            },
        };
        self.add(&format!("{what} cannot be stored there: {}", std::io::Error::from(error)));
    }

    fn add(&self, what: &str) {
        /// Namespaces come from the archive.
        const MOST: usize = 16;
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = lost.get_mut(what) {
            *count += 1;
        } else if lost.len() < MOST {
            lost.insert(what.to_owned(), 1);
        }
    }

    /// Says what could not be kept.
    pub(super) fn tell_of_lost(&self, archive: &str) {
        for (what, count) in &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            log::warn!(
                "{archive}: {what} ({})",
                if *count == 1 { "once".to_owned() } else { format!("{count} times") }
            );
        }
    }
}

/// The mode of what cannot have the access list `list` (`linux/posix_acl_xattr.h`) that belongs to `mode`: its group
/// has what the list allows to it, and not what it allows to anybody at most.
pub(in crate::commands) fn without_list(mode: u32, list: &[u8]) -> u32 {
    const HEAD: usize = 4;
    const GROUP: u16 = 0x04;
    let (entries, _) = list.get(HEAD..).unwrap_or_default().as_chunks::<8>();
    let of_group = entries.iter().find(|[low, high, ..]| u16::from_le_bytes([*low, *high]) == GROUP);
    let rights = of_group.map_or(0, |[_, _, rights, ..]| u32::from(*rights) & 7);
    mode & (!0o070 | rights << 3)
}

/// These numbers as the kernel takes them; the largest one means to it that nothing changes.
fn owner(uid: u32, gid: u32) -> Result<(Uid, Gid), Errno> {
    if uid == u32::MAX || gid == u32::MAX { Err(Errno::INVAL) } else { Ok((Uid::from_raw(uid), Gid::from_raw(gid))) }
}

fn times(wanted: &Wanted<'_>) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    // Where none is stored it is that of the last change; then the time of extraction is as good.
    let last_access =
        if wanted.atime == wanted.mtime { Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } } else { time(wanted.atime) };
    Timestamps { last_access, last_modification: time(wanted.mtime) }
}

/// Gives a symbolic link the time of its last change. That it cannot have it harms nobody.
pub(super) fn keep_time(folder: BorrowedFd<'_>, name: &[u8], mtime: Time) {
    let wanted = Wanted { mode: 0, owner: (0, 0), mtime, atime: mtime, xattrs: &Xattrs::new() };
    let _ = utimensat(folder, name, &times(&wanted), AtFlags::SYMLINK_NOFOLLOW);
}

fn globs(patterns: &[String]) -> Result<GlobSet, Failure> {
    let wrong =
        |error: &globset::Error| Failure::new(Code::Usage, format!("--xattrs-include and --xattrs-exclude: {error}"));
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(pattern).build().map_err(|error| wrong(&error))?);
    }
    set.build().map_err(|error| wrong(&error))
}

/// True if things that are made in `folder` get an access list from it.
pub(super) fn hands_lists_down(folder: BorrowedFd<'_>) -> bool {
    // A descriptor that is only a path has no attributes; this opens it again.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::openat(folder, ".", flags, Mode::empty())
        .is_ok_and(|folder| rustix::fs::fgetxattr_query(folder.as_fd(), DEFAULT_ACL).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }

    fn keeping(owner: bool) -> Keeping {
        Keeping {
            owner,
            permissions: true,
            is_numeric: false,
            acls: true,
            xattrs: true,
            include: None,
            exclude: GlobSet::empty(),
            umask: 0o022,
            own: own(),
            lost: Mutex::default(),
        }
    }

    /// The mode says what all in a list have at most. Without it the group would have that.
    #[test]
    fn a_pipe_keeps_its_access_list() {
        let folder = tempfile::tempdir().unwrap();
        let open = File::open(folder.path()).unwrap();
        // Version 2; owner rw, one user rw, group none, mask rw, others none.
        let list_of = |user: u32| {
            let mut list = 2_u32.to_le_bytes().to_vec();
            for (tag, rights, id) in [(1_u16, 6_u16, u32::MAX), (2, 6, user), (4, 0, u32::MAX), (0x10, 6, u32::MAX)] {
                list.extend([tag, rights].map(u16::to_le_bytes).concat());
                list.extend(id.to_le_bytes());
            }
            list.extend([0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
            list
        };
        let (list, none) = (list_of(1234), Xattrs::new());
        let listed: Xattrs = vec![(ACCESS_ACL.to_vec(), list.clone())];
        for (name, xattrs, expected) in [("listed", &listed, Some(list.as_slice())), ("plain", &none, None)] {
            rustix::fs::mknodat(&open, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            let path = folder.path().join(name);
            // As one that comes from the folder that it is made in.
            setxattr(&path, ACCESS_ACL, &list_of(4321), XattrFlags::empty()).unwrap();
            let wanted = Wanted { mode: 0o660, owner: own(), mtime: Time::default(), atime: Time::default(), xattrs };
            keeping(true).keep_at(open.as_fd(), Path::new(name), &wanted, FileType::Fifo).unwrap();
            let mut found = vec![0; 1024];
            let length = rustix::fs::getxattr(&path, ACCESS_ACL, &mut found[..]).ok();
            found.truncate(length.unwrap_or(0));
            assert_eq!(length.map(|_| found.as_slice()), expected, "{name}");
            let mode = rustix::fs::stat(&path).unwrap().st_mode & 0o7777;
            assert_eq!(mode, 0o660, "{name}");
        }
    }

    /// A folder has its name already: between its mode and its list, the group would have what the mode says of all in
    /// the list.
    #[test]
    fn a_folder_gets_its_access_list_before_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let open = File::open(folder.path()).unwrap();
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in [(1_u16, 7_u16, u32::MAX), (2, 7, 1234), (4, 0, u32::MAX), (0x10, 7, u32::MAX)] {
            list.extend([tag, rights].map(u16::to_le_bytes).concat());
            list.extend(id.to_le_bytes());
        }
        list.extend([0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        let xattrs: Xattrs = vec![(ACCESS_ACL.to_vec(), list)];
        let time = Time::default();
        // What comes last decides what all in the list have at most.
        let wanted = Wanted { mode: 0o750, owner: own(), mtime: time, atime: time, xattrs: &xattrs };
        let keeping = keeping(true);
        keeping.keep(&open, &wanted, Finished::Folder { is_made: true }).unwrap();
        assert!(keeping.lost.lock().unwrap().is_empty());
        assert_eq!(fstat(&open).unwrap().st_mode & 0o7777, 0o750);
    }

    /// Where a list cannot be stored, the mode that goes with it would give the group what others have.
    #[test]
    fn without_its_access_list_the_group_has_its_own_rights() {
        // As above, but without what others have: no kernel takes that.
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights) in [(1_u16, 6_u16), (2, 6), (4, 4), (0x10, 6)] {
            list.extend([tag, rights, 210, 4].map(u16::to_le_bytes).concat());
        }
        let xattrs: Xattrs = vec![(ACCESS_ACL.to_vec(), list.clone())];
        let time = Time::default();
        let wanted = Wanted { mode: 0o660, owner: own(), mtime: time, atime: time, xattrs: &xattrs };
        let folder = tempfile::tempdir().unwrap();
        let open = File::open(folder.path()).unwrap();
        rustix::fs::mknodat(&open, "pipe", FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let keeping = keeping(true);
        keeping.keep_at(open.as_fd(), Path::new("pipe"), &wanted, FileType::Fifo).unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        keeping.keep(&file, &wanted, Finished::File).unwrap();
        for name in ["pipe", "file"] {
            let mode = rustix::fs::stat(folder.path().join(name)).unwrap().st_mode & 0o7777;
            assert_eq!(mode, 0o640, "{name}");
        }
        assert_eq!(keeping.lost.lock().unwrap().values().sum::<u64>(), 2);
        // One in which nothing is told of the group, and none.
        assert_eq!((without_list(0o4775, &list[..20]), without_list(0o664, &[])), (0o4705, 0o604));
    }

    #[test]
    fn a_file_gets_its_mode_whatever_it_was_made_with() {
        let own = own();
        let (xattrs, time) = (Xattrs::new(), Time::default());
        for owner in [false, true] {
            let keeping = keeping(owner);
            for (mode, at_once) in [(0o644, 0o644), (0o400, 0o400), (0, 0), (0o664, 0o600), (0o4755, 0o600)] {
                let first = if owner { at_once } else { 0o600 };
                assert_eq!(keeping.first_mode_without_name(mode, own, false), first, "{mode:o}");
                assert_eq!(keeping.first_mode_without_name(mode, own, true), 0o600);
                assert_eq!(keeping.first_mode_without_name(mode, (own.0, own.1 + 1), false), 0o600);
                for made in [0o600, first] {
                    let file = tempfile::tempfile().unwrap();
                    fchmod(&file, Mode::from_raw_mode(made)).unwrap();
                    let wanted = Wanted { mode, owner: own, mtime: time, atime: time, xattrs: &xattrs };
                    keeping.keep(&file, &wanted, Finished::File).unwrap();
                    assert_eq!(fstat(&file).unwrap().st_mode & 0o7777, mode, "made with {made:o}");
                }
            }
        }
        // Not what it was to be made with, which a file system may not care for.
        let file = tempfile::tempfile().unwrap();
        fchmod(&file, Mode::from_raw_mode(0o644)).unwrap();
        let wanted = Wanted { mode: 0o600, owner: own, mtime: time, atime: time, xattrs: &xattrs };
        keeping(true).keep(&file, &wanted, Finished::File).unwrap();
        assert_eq!(fstat(&file).unwrap().st_mode & 0o7777, 0o600);
    }
}
