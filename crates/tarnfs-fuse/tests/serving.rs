//! What programs see of a mounted tree, through the kernel.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Gate, MemoryTree, Mounted, Opens, Slow, Written, can_mount, wait_until};
use rustix::fs::{Dir, XattrFlags, getxattr, getxattr_query, listxattr, major, minor, setxattr};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Pid, Signal, kill_process};
use tarnfs_fuse::{MountOptions, Operation, STATISTICS_ATTRIBUTE};
use tarnfs_source::{Extent, FollowedFile, MemorySource, Source, Stencil};
use tarnfs_tree::{Device, Kind, Node, Time};

/// Bytes of which each tells its place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place / 256) ^ place) as u8).collect()
}

#[track_caller]
fn assert_errno<T: std::fmt::Debug>(result: io::Result<T>, errno: Errno) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
}

#[test]
fn attributes_are_those_of_the_tree() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    let big = Device { major: 0x123, minor: 0x4_5678 };
    let kinds = [
        ("file", Kind::File, 0o100_000),
        ("folder", Kind::Folder, 0o040_000),
        ("link", Kind::Symlink, 0o120_000),
        ("character", Kind::CharacterDevice(big), 0o020_000),
        ("block", Kind::BlockDevice(Device { major: 8, minor: 1 }), 0o060_000),
        ("fifo", Kind::Fifo, 0o010_000),
        ("socket", Kind::Socket, 0o140_000),
    ];
    for (name, kind, _) in kinds {
        let attributes = &mut tree.add(Node::ROOT, name, kind).attributes;
        attributes.mode = 0o7751;
        attributes.uid = 4_000_000_000;
        attributes.gid = 77;
        attributes.links = 5;
        attributes.size = 12345;
        attributes.blocks = 17;
        attributes.mtime = Time { seconds: -1, nanoseconds: 999_999_999 };
        attributes.atime = Time { seconds: 1 << 40, nanoseconds: 1 };
        attributes.ctime = Time { seconds: i64::from(i32::MIN) - 5, nanoseconds: 0 };
    }
    let mounted = Mounted::new(tree);
    for (place, (name, kind, bits)) in kinds.into_iter().enumerate() {
        let found = fs::symlink_metadata(mounted.path(name)).unwrap();
        assert_eq!(found.ino(), place as u64 + 2);
        assert_eq!(found.mode(), bits | 0o7751, "{name}");
        assert_eq!((found.uid(), found.gid(), found.nlink()), (4_000_000_000, 77, 5));
        assert_eq!((found.size(), found.blocks()), (12345, 17));
        assert_eq!((found.mtime(), found.mtime_nsec()), (-1, 999_999_999));
        assert_eq!((found.atime(), found.atime_nsec()), (1 << 40, 1));
        assert_eq!((found.ctime(), found.ctime_nsec()), (i64::from(i32::MIN) - 5, 0));
        let device = Device { major: major(found.rdev()), minor: minor(found.rdev()) };
        match kind {
            Kind::CharacterDevice(expected) | Kind::BlockDevice(expected) => assert_eq!(device, expected),
            _ => assert_eq!(found.rdev(), 0),
        }
    }
    let root = fs::metadata(mounted.path("")).unwrap();
    assert_eq!((root.ino(), root.mode()), (1, 0o040_755));
    // A device on it does not open.
    assert_errno(File::open(mounted.path("character")), Errno::ACCESS);
}

#[test]
fn names_links_and_hard_links_are_bytes() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    let odd = b"b\xe4d \n\\name".to_vec();
    let long = vec![b'x'; 255];
    let node = tree.file(Node::ROOT, odd.clone(), *b"odd").attributes.node;
    tree.link(Node::ROOT, long.clone(), node);
    tree.add(Node::ROOT, "to", Kind::Symlink).target.clone_from(&odd);
    tree.add(Node::ROOT, "dangling", Kind::Symlink).target = vec![b'y'; 4095];
    let mounted = Mounted::new(tree);
    for name in [&odd, &long, &b"to".to_vec()] {
        let path = mounted.path(OsStr::from_bytes(name));
        assert_eq!(fs::read(&path).unwrap(), b"odd");
        assert_eq!(fs::metadata(path).unwrap().ino(), node.0);
    }
    assert_eq!(fs::read_link(mounted.path("to")).unwrap().as_os_str().as_bytes(), odd);
    assert_eq!(fs::read_link(mounted.path("dangling")).unwrap().as_os_str().len(), 4095);
    assert!(fs::metadata(mounted.path("dangling")).is_err());
    let listed: HashSet<Vec<u8>> =
        fs::read_dir(mounted.path("")).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
    assert_eq!(listed, HashSet::from([odd, long, b"to".to_vec(), b"dangling".to_vec()]));
}

/// > A listing shows each name once, even while others list the same folder.
#[test]
fn a_large_folder_has_each_name_once_however_it_is_listed() {
    const COUNT: u64 = 100_000;
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    let folder = tree.folder(Node::ROOT, "large");
    for number in 0..COUNT {
        tree.add(folder, format!("file {number}"), Kind::File);
    }
    let mounted = Mounted::new(tree);
    let list = || {
        let names: Vec<_> =
            fs::read_dir(mounted.path("large")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len() as u64, COUNT);
        assert_eq!(names.into_iter().collect::<HashSet<_>>().len() as u64, COUNT);
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(list))));
    list();

    // From places that were passed before, in an order of which the kernel knows nothing.
    let mut walk = Dir::read_from(File::open(mounted.path("large")).unwrap()).unwrap();
    let mut places = Vec::new();
    while let Some(entry) = walk.read() {
        let entry = entry.unwrap();
        places.push((entry.offset(), entry.file_name().to_owned()));
    }
    assert_eq!(places.len() as u64, COUNT + 2);
    for step in [COUNT as usize, 1, 77_777, 2, 50_000, 0, 99_999] {
        let (offset, _) = &places[step];
        walk.seek(*offset).unwrap();
        let next = walk.read().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(next.as_ref(), places.get(step + 1).map(|(_, name)| name));
    }
}

/// > What was looked up, listed or read once is answered by the kernel from then on.
#[test]
fn what_was_seen_once_is_not_asked_again() {
    const FOLDERS: u64 = 20;
    if !can_mount() {
        return;
    }
    let tree = || {
        let mut tree = MemoryTree::default();
        for folder in 0..FOLDERS {
            let folder = tree.folder(Node::ROOT, format!("folder {folder}"));
            for file in 0..300 {
                tree.file(folder, format!("file {file}"), pattern(100));
            }
            tree.add(folder, "link", Kind::Symlink).target = b"file 7".to_vec();
        }
        tree
    };
    let walk = |mounted: &Mounted| {
        let mut count = 0;
        for folder in fs::read_dir(mounted.path("")).unwrap() {
            for file in fs::read_dir(folder.unwrap().path()).unwrap() {
                let file = file.unwrap();
                assert!(!file.metadata().unwrap().is_dir());
                count += 1;
            }
        }
        assert_eq!(count, FOLDERS * 301);
        for folder in 0..FOLDERS {
            assert_eq!(fs::read(mounted.path(format!("folder {folder}/link"))).unwrap(), pattern(100));
            assert_errno(fs::metadata(mounted.path(format!("folder {folder}/missing"))), Errno::NOENT);
        }
        mounted.statistics()
    };
    // What a kernel has no memory for it drops at any time, and asks again. So this is tried until it had: what is
    // asked each time without need is seen all the same.
    wait_until("each thing is asked once", || {
        let mounted = Mounted::new(tree());
        let first = walk(&mounted);
        let again = walk(&mounted);
        // Of attributes only the root's, of names only those that are missing; once that files and folders can be
        // opened.
        let asked = [Operation::Attributes, Operation::Lookup, Operation::Open].map(|operation| first.of(operation));
        asked == [1, FOLDERS, 2] && again.total() == first.total()
    });
}

#[test]
fn content_is_read_at_any_offset() {
    if !can_mount() {
        return;
    }
    let bytes = pattern(5_000_003);
    let mut tree = MemoryTree::default();
    tree.file(Node::ROOT, "ready", bytes.clone());
    let copy = bytes.clone();
    let read = move |buffer: &mut [u8], offset: u64| {
        let rest = copy.get(offset as usize..).unwrap_or_default();
        // Fewer than there are, as a source should not; nobody notices.
        let length = rest.len().min(buffer.len()).min(70_001);
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    };
    tree.source(Node::ROOT, "slow", Arc::new(Slow { length: bytes.len() as u64, read }));
    tree.file(Node::ROOT, "empty", *b"");
    let mounted = Mounted::new(tree);
    assert!(fs::read(mounted.path("empty")).unwrap().is_empty());
    for name in ["ready", "slow"] {
        let file = File::open(mounted.path(name)).unwrap();
        for offset in [4_999_990, 0, 4_095, 1_234_567, 5_000_003, 6_000_000] {
            let mut buffer = vec![0; 200_000];
            let read = file.read_at(&mut buffer, offset).unwrap();
            let expected = bytes.get(offset as usize..).unwrap_or_default();
            assert_eq!(buffer[..read], expected[..expected.len().min(200_000)]);
        }
        assert!(fs::read(mounted.path(name)).unwrap() == bytes);
    }
    assert!(mounted.statistics().handed_on > 0);
    assert_errno(fs::read(mounted.path("")), Errno::ISDIR);
}

#[test]
fn holes_are_found() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    let extents = [(8192, 4096), (1 << 20, 100)].map(|(offset, length)| Extent { offset, length, skip: 0 });
    let packed = Arc::new(MemorySource::new(pattern(4196), "packed"));
    let sparse = Stencil::new(packed, extents, 1 << 21).unwrap();
    tree.source(Node::ROOT, "sparse", Arc::new(sparse)).attributes.blocks = 9;
    tree.file(Node::ROOT, "dense", pattern(1000));
    let mounted = Mounted::new(tree);
    let file = File::open(mounted.path("sparse")).unwrap();
    let seek = |position| rustix::fs::seek(&file, position);
    let (data, hole) = (rustix::fs::SeekFrom::Data, rustix::fs::SeekFrom::Hole);
    assert_eq!(seek(data(0)), Ok(8192));
    assert_eq!(seek(hole(0)), Ok(0));
    assert_eq!(seek(hole(9000)), Ok(12288));
    assert_eq!(seek(data(12288)), Ok(1 << 20));
    assert_eq!(seek(data((1 << 20) + 100)), Err(Errno::NXIO));
    assert_eq!(seek(hole((1 << 20) + 5)), Ok((1 << 20) + 100));
    assert_eq!(seek(data(1 << 21)), Err(Errno::NXIO));
    assert_eq!(seek(hole(1 << 21)), Err(Errno::NXIO), "nothing lies at the end, not even a hole");
    assert_eq!(seek(hole((1 << 21) + 1)), Err(Errno::NXIO));
    let dense = File::open(mounted.path("dense")).unwrap();
    assert_eq!(rustix::fs::seek(&dense, hole(10)), Ok(1000));
    assert_eq!(rustix::fs::seek(&dense, data(10)), Ok(10));
    assert_eq!(rustix::fs::seek(&dense, hole(1000)), Err(Errno::NXIO));
    let mut content = vec![0; 1 << 21];
    content[8192..12288].copy_from_slice(&pattern(4196)[..4096]);
    content[1 << 20..][..100].copy_from_slice(&pattern(4196)[4096..]);
    assert!(fs::read(mounted.path("sparse")).unwrap() == content);
    assert_eq!(fs::metadata(mounted.path("sparse")).unwrap().blocks(), 9);
}

/// An access control list as the kernel stores it: version 2, then tag, rights and id of each entry. The owner may do
/// all, user `reader` may read, others nothing.
fn acl(reader: u32) -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in
        [(1_u16, 7_u16, u32::MAX), (2, 4, reader), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

#[test]
fn extended_attributes_are_served_as_stored() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.totals.has_xattrs = true;
    let stored = vec![
        (b"user.one".to_vec(), b"1".to_vec()),
        (b"user.empty".to_vec(), Vec::new()),
        (b"user.large".to_vec(), pattern(60_000)),
        (b"security.capability".to_vec(), b"\x01\0\0\x02".repeat(5)),
        (b"system.posix_acl_access".to_vec(), acl(1000)),
    ];
    tree.file(Node::ROOT, "with", *b"").xattrs.clone_from(&stored);
    tree.file(Node::ROOT, "without", *b"");
    let mounted = Mounted::new(tree);
    let path = mounted.path("with");
    for (name, value) in &stored {
        let mut buffer = vec![0; 65_536];
        let length = getxattr(&path, name.as_slice(), &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..length], value);
        assert_eq!(getxattr_query(&path, name.as_slice()), Ok(value.len()));
    }
    assert_eq!(getxattr(&path, "user.large", &mut [0_u8; 100][..]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.none", &mut [0_u8; 100][..]), Err(Errno::NODATA));
    let mut buffer = vec![0_u8; 65_536];
    let length = listxattr(&path, &mut buffer[..]).unwrap();
    let mut names: Vec<_> = buffer[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut expected: Vec<_> = stored.iter().map(|(name, _)| name.as_slice()).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(listxattr(&path, &mut [0_u8; 3][..]), Err(Errno::RANGE));
    assert_eq!(listxattr(mounted.path("without"), &mut buffer[..]), Ok(0));
}

#[test]
fn other_users_may_what_owner_mode_and_acl_allow() {
    const NOBODY: u32 = 65534;
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.totals.has_xattrs = true;
    tree.totals.has_acls = true;
    for (name, mode, reader) in [("open", 0o644, None), ("closed", 0o600, None), ("listed", 0o640, Some(NOBODY))] {
        let item = tree.file(Node::ROOT, name, *b"content");
        item.attributes.mode = mode;
        item.xattrs.extend(reader.map(|reader| (b"system.posix_acl_access".to_vec(), acl(reader))));
    }
    let mounted = Mounted::with(tree, &MountOptions { allow_other: true, ..MountOptions::default() });
    let can_read = |name| {
        let mut cat = Command::new("cat");
        cat.arg(mounted.path(name)).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
        cat.status().unwrap().success()
    };
    for _ in 0..2 {
        assert_eq!(["open", "closed", "listed"].map(can_read), [true, false, true]);
        // Also not from what the kernel has cached for somebody who may.
        assert_eq!(fs::read(mounted.path("closed")).unwrap(), b"content");
    }
}

#[test]
fn a_tree_without_extended_attributes_is_asked_once() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.file(Node::ROOT, "file", *b"");
    let mounted = Mounted::new(tree);
    for _ in 0..10 {
        let mut buffer = [0_u8; 100];
        assert_eq!(getxattr(mounted.path("file"), "user.one", &mut buffer[..]), Err(Errno::OPNOTSUPP));
        assert!(matches!(listxattr(mounted.path("file"), &mut buffer[..]), Ok(0) | Err(Errno::OPNOTSUPP)));
    }
    assert_eq!(mounted.statistics().of(Operation::Xattr), 2);
}

#[test]
fn the_root_tells_what_the_mount_has_done_if_that_is_wanted() {
    if !can_mount() {
        return;
    }
    for is_wanted in [true, false] {
        let mut tree = MemoryTree::default();
        tree.file(Node::ROOT, "file", pattern(1000));
        let mounted = Mounted::with(tree, &MountOptions { statistics: is_wanted, ..MountOptions::default() });
        assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(1000));
        let mut buffer = vec![0_u8; 65_536];
        let told = getxattr(mounted.path(""), STATISTICS_ATTRIBUTE, &mut buffer[..]);
        if !is_wanted {
            assert_eq!(told, Err(Errno::OPNOTSUPP));
            continue;
        }
        let told = &buffer[..told.unwrap()];
        assert!(told.ends_with(b"}"), "{}", String::from_utf8_lossy(told));
        let told: serde_json::Value = serde_json::from_slice(told).unwrap();
        assert_eq!((&told["bytes_read"], &told["panics"]), (&1000.into(), &0.into()), "{told}");
        assert!(told["requests"]["read"].as_u64() > Some(0), "{told}");
        // Nobody copies it, and nothing else has it.
        assert_eq!(listxattr(mounted.path(""), &mut buffer[..]), Ok(0));
        let of_file = getxattr(mounted.path("file"), STATISTICS_ATTRIBUTE, &mut buffer[..]);
        assert_eq!(of_file, Err(Errno::NODATA));
    }
}

/// Bytes that may turn out to be wrong, until they are verified.
#[derive(Debug)]
struct Unproven {
    bytes: MemorySource,
    is_proven: Arc<AtomicBool>,
}

impl Source for Unproven {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn describe(&self) -> String {
        "unproven".to_owned()
    }

    fn is_unproven(&self) -> bool {
        !self.is_proven.load(Ordering::SeqCst)
    }
}

#[test]
fn the_kernel_keeps_what_is_verified_and_nothing_else() {
    if !can_mount() {
        return;
    }
    for is_immutable in [true, false] {
        let is_proven = Arc::new(AtomicBool::new(false));
        let mut tree = MemoryTree::default();
        (tree.totals.is_unproven, tree.totals.is_immutable) = (true, is_immutable);
        let bytes = MemorySource::new(pattern(5000), "test");
        tree.source(Node::ROOT, "file", Arc::new(Unproven { bytes, is_proven: Arc::clone(&is_proven) }));
        let mounted = Mounted::new(tree);
        let reads_once_more = || {
            let before = mounted.statistics().of(Operation::Read);
            assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(5000));
            mounted.statistics().of(Operation::Read) - before
        };
        for _ in 0..3 {
            assert!(reads_once_more() > 0);
        }
        is_proven.store(true, Ordering::SeqCst);
        // What somebody has left in the kernel is given up once. (It gives up more where it has no memory for it.)
        assert!(reads_once_more() > 0);
        wait_until("it is kept", || reads_once_more() == 0);
    }
}

/// A file on a disk is read by the kernel itself where it can do so.
#[test]
fn files_that_lie_on_a_disk_are_served_as_they_are() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut tree = MemoryTree::default();
    tree.totals.is_immutable = false;
    for number in 0..3_u8 {
        let path = folder.path().join(format!("{number}"));
        fs::write(&path, vec![number; 100_000]).unwrap();
        let file = FollowedFile::new(File::open(&path).unwrap(), &path).unwrap();
        tree.source(Node::ROOT, format!("{number}"), Arc::new(file));
    }
    let mounted = Mounted::new(tree);
    for _ in 0..2 {
        let open: Vec<_> = (0..3).map(|number| File::open(mounted.path(format!("{number}"))).unwrap()).collect();
        for (number, file) in open.iter().enumerate() {
            let mut bytes = vec![9; 100_001];
            assert_eq!(file.read_at(&mut bytes, 50_000).unwrap(), 50_000);
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100_000);
            assert!(bytes[..100_000].iter().all(|&byte| byte == number as u8), "{number}");
        }
    }
    eprintln!("{} bytes were read by us", mounted.statistics().bytes_read);
}

#[test]
fn totals_are_told() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.file(Node::ROOT, "file", pattern(1025));
    let mounted = Mounted::new(tree);
    let told = rustix::fs::statvfs(mounted.path("")).unwrap();
    assert_eq!(told.f_blocks * told.f_frsize, 1536);
    assert_eq!((told.f_files, told.f_bfree, told.f_bavail, told.f_ffree, told.f_namemax), (2, 0, 0, 0, 255));
}

/// Each way to change something, with the path to a file and to a name that is free.
fn try_to_change(file: &Path, new: &Path) -> Vec<(&'static str, io::Result<()>)> {
    vec![
        ("create", File::create(new).map(drop)),
        ("write", OpenOptions::new().write(true).open(file).and_then(|file| file.write_at(b"x", 0)).map(drop)),
        (
            "truncate",
            rustix::fs::open(file, rustix::fs::OFlags::WRONLY, 0.into())
                .and_then(|file| rustix::fs::ftruncate(file, 0))
                .map_err(io::Error::from),
        ),
        ("mkdir", fs::create_dir(new)),
        ("unlink", fs::remove_file(file)),
        ("rmdir", fs::remove_dir(file.with_file_name("folder"))),
        ("rename", fs::rename(file, new)),
        ("symlink", symlink("x", new)),
        ("link", fs::hard_link(file, new)),
        ("chmod", fs::set_permissions(file, fs::Permissions::from_mode(0o600))),
        ("chown", std::os::unix::fs::chown(file, Some(1), Some(1))),
        ("utimes", File::open(file).and_then(|file| file.set_modified(std::time::SystemTime::now()))),
        ("setxattr", setxattr(file, "user.x", b"y", XattrFlags::empty()).map_err(io::Error::from)),
        ("removexattr", rustix::fs::removexattr(file, "user.x").map_err(io::Error::from)),
    ]
}

/// > Without `--write-overlay` nothing can be changed through the mount.
#[test]
fn nothing_can_be_changed() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.totals.has_xattrs = true;
    tree.file(Node::ROOT, "file", pattern(10));
    tree.folder(Node::ROOT, "folder");
    let mounted = Mounted::new(tree);
    for (what, result) in try_to_change(&mounted.path("file"), &mounted.path("new")) {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem, "{what}");
    }
    assert_eq!(mounted.statistics().of(Operation::Write), 0, "the kernel has refused");
    // The same where root makes the kernel believe that it can be written.
    mount_remount(mounted.path(""), MountFlags::NOSUID | MountFlags::NODEV, "").unwrap();
    for (what, result) in try_to_change(&mounted.path("file"), &mounted.path("new")) {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem, "{what}");
    }
    assert!(mounted.statistics().of(Operation::Write) > 0, "we have refused");
    assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(10));
}

/// A file that controls the mount can be written and emptied, and nothing else of it, or of others, be changed.
#[test]
fn what_takes_writes_takes_nothing_else() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    (tree.totals.has_xattrs, tree.totals.is_immutable) = (true, false);
    tree.file(Node::ROOT, "file", pattern(10));
    tree.folder(Node::ROOT, "folder");
    let node = tree.file(Node::ROOT, "command", *b"").attributes.node;
    let written = Arc::new(Written { node, by: Arc::default() });
    tree.written = Some(Arc::clone(&written));
    let mounted = Mounted::new(tree);
    let command = mounted.path("command");
    let files: Vec<_> = ["one", "two"]
        .map(|text| {
            let file = OpenOptions::new().write(true).truncate(true).open(&command).unwrap();
            file.set_len(0).unwrap();
            assert_errno(file.set_len(7), Errno::ROFS);
            file.write_at(text.as_bytes(), 5).unwrap();
            file
        })
        .into();
    drop(files);
    wait_until("both are done", || written.by.lock().unwrap().values().all(|texts| texts.len() == 2));
    let all: Vec<_> = written.by.lock().unwrap().values().cloned().collect();
    assert_eq!(all, [[&b"one"[..], b""], [b"two", b""]]);
    for (what, result) in try_to_change(&command, &mounted.path("new")) {
        assert!(result.is_ok() == ["write", "truncate"].contains(&what), "{what}: {result:?}");
    }
    for (what, result) in try_to_change(&mounted.path("file"), &mounted.path("new")) {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem, "{what}");
    }
    let may_write = |name: &str| rustix::fs::access(mounted.path(name), rustix::fs::Access::WRITE_OK);
    assert_eq!((may_write("command"), may_write("file")), (Ok(()), Err(Errno::ROFS)));
}

#[test]
fn panics_are_errors_of_one_request() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.file(Node::ROOT, "file", pattern(100));
    tree.add(Node::ROOT, "bad folder", Kind::Folder).attributes.uid = 666;
    let panicking = Slow { length: 10, read: |_: &mut [u8], _| panic!("as tested") };
    tree.source(Node::ROOT, "bad file", Arc::new(panicking));
    let mut mounted = Mounted::with(tree, &MountOptions { threads: 2, ..MountOptions::default() });
    for _ in 0..10 {
        assert_errno(fs::metadata(mounted.path("panic")), Errno::IO);
        assert_errno(
            fs::read_dir(mounted.path("bad folder")).and_then(Iterator::collect::<io::Result<Vec<_>>>),
            Errno::IO,
        );
        assert_errno(fs::read(mounted.path("bad file")), Errno::IO);
        assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(100));
    }
    mounted.panics = mounted.statistics().panics;
    assert!(mounted.panics >= 30, "{:?}", mounted.statistics());
}

#[test]
fn errors_while_reading_never_look_like_the_end_of_the_file() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    // The bytes end, or cannot be read, in the middle of what the kernel asks for.
    let ends = |buffer: &mut [u8], offset: u64| Ok((10_000_u64.saturating_sub(offset) as usize).min(buffer.len()));
    tree.source(Node::ROOT, "ends", Arc::new(Slow { length: 100_000, read: ends }));
    let fails = move |buffer: &mut [u8], offset: u64| match ends(buffer, offset)? {
        0 => Err(io::ErrorKind::InvalidData.into()),
        read => Ok(read),
    };
    tree.source(Node::ROOT, "fails", Arc::new(Slow { length: 100_000, read: fails }));
    let stale = |_: &mut [u8], _| Err(io::ErrorKind::StaleNetworkFileHandle.into());
    tree.source(Node::ROOT, "stale", Arc::new(Slow { length: 100_000, read: stale }));
    let mounted = Mounted::new(tree);
    for name in ["ends", "fails"] {
        assert_errno(fs::read(mounted.path(name)), Errno::IO);
        let mut file = File::open(mounted.path(name)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        // What lies before the damage, page by page, can be had.
        let mut buffer = [0; 4096];
        assert_eq!(file.read(&mut buffer).unwrap(), 4096);
        file.seek(SeekFrom::Start(50_000)).unwrap();
        assert_errno(file.read(&mut buffer), Errno::IO);
    }
    let error = fs::read(mounted.path("stale")).unwrap_err().raw_os_error().map(Errno::from_raw_os_error);
    // Older kernels say EIO whatever made a page of their cache fail.
    assert!(matches!(error, Some(Errno::STALE | Errno::IO)), "{error:?}");
}

/// A file of which somebody cuts off the rest.
#[derive(Debug)]
struct Cut {
    whole: MemorySource,
    length: AtomicU64,
}

impl Source for Cut {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // Somebody is at it while it is read.
        self.length.store(10_000, Ordering::SeqCst);
        let left = 10_000_u64.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.whole.read_at(&mut buffer[..left], offset)
    }

    fn len(&self) -> u64 {
        self.length.load(Ordering::SeqCst)
    }

    fn describe(&self) -> String {
        "cut".to_owned()
    }
}

/// Where files can change, one that is shorter by now ends where it ends, as on the disk.
#[test]
fn a_file_that_has_become_shorter_is_read_to_its_end() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.totals.is_immutable = false;
    let whole = MemorySource::new(pattern(100_000), "test");
    tree.source(Node::ROOT, "cut", Arc::new(Cut { whole, length: AtomicU64::new(100_000) }));
    let mounted = Mounted::new(tree);
    // Past the page cache: for that the kernel asks once more, page by page, where it gets an error.
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(mounted.path("cut")).unwrap();
    let mut bytes = vec![0; 100_000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10_000);
    assert!(bytes[..10_000] == pattern(10_000)[..]);
    assert_eq!(file.read_at(&mut bytes, 10_000).unwrap(), 0);
}

/// A tree with a file `stalls`, whose bytes come when the gate is open, `slow` that is read by a worker, and `ready`.
fn stalling() -> (MemoryTree, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let mut tree = MemoryTree::default();
    let waiting = Arc::clone(&gate);
    let stalls = move |buffer: &mut [u8], _| {
        waiting.pass();
        Ok(buffer.len())
    };
    tree.source(Node::ROOT, "stalls", Arc::new(Slow { length: 1 << 30, read: stalls }));
    let read = |buffer: &mut [u8], _| Ok(buffer.len());
    tree.source(Node::ROOT, "slow", Arc::new(Slow { length: 1 << 20, read }));
    tree.file(Node::ROOT, "ready", pattern(1000));
    (tree, gate)
}

/// A deadline that no request of a test comes to.
const NEVER: Duration = Duration::from_secs(100_000);

#[test]
fn a_file_whose_bytes_never_come_holds_up_no_other() {
    if !can_mount() {
        return;
    }
    let (tree, gate) = stalling();
    let mounted = Mounted::with(tree, &MountOptions { deadline: NEVER, threads: 2, ..MountOptions::default() });
    let opens = Opens(gate);
    std::thread::scope(|scope| {
        // Also where something fails below: the threads of the scope end first.
        let opens = opens;
        let stalled: Vec<_> = (0..40_u64)
            .map(|number| {
                let file = File::open(mounted.path("stalls")).unwrap();
                scope.spawn(move || file.read_at(&mut [0; 4096], number << 20))
            })
            .collect();
        wait_until("all wait", || mounted.statistics().in_flight >= 40);
        assert!(mounted.statistics().oldest.is_some());
        assert_eq!(fs::read(mounted.path("ready")).unwrap(), pattern(1000));
        assert_eq!(fs::read(mounted.path("slow")).unwrap().len(), 1 << 20);
        assert!(stalled.iter().all(|reader| !reader.is_finished()));
        drop(opens);
        for reader in stalled {
            assert_eq!(reader.join().unwrap().unwrap(), 4096);
        }
    });
    assert_eq!(mounted.statistics().deadlines_missed, 0);
}

#[test]
fn bytes_that_never_come_are_an_error_and_not_for_ever() {
    if !can_mount() {
        return;
    }
    let (tree, gate) = stalling();
    let options = MountOptions { deadline: Duration::from_millis(200), threads: 2, ..MountOptions::default() };
    let mounted = Mounted::with(tree, &options);
    let opens = Opens(gate);
    let read = |offset| File::open(mounted.path("stalls")).unwrap().read_at(&mut [0; 4096], offset);
    std::thread::scope(|scope| {
        let stalled: Vec<_> = (0..40_u64).map(|number| scope.spawn(move || read(number << 20))).collect();
        for reader in stalled {
            assert_errno(reader.join().unwrap(), Errno::IO);
        }
    });
    let missed = mounted.statistics().deadlines_missed;
    assert!(missed >= 40, "{missed}");
    drop(opens);
    // A machine with other work may miss this deadline once more.
    wait_until("they can be read again", || matches!(read(5 << 20), Ok(4096)));
}

#[test]
fn a_tree_that_can_change_is_asked_again() {
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    tree.totals.is_immutable = false;
    tree.file(Node::ROOT, "file", pattern(1000));
    let mounted = Mounted::new(tree);
    for round in 1..=3 {
        assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(1000));
        assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 1);
        assert!(mounted.statistics().of(Operation::Open) >= 2 * round);
    }
}

/// > A program that gets a signal does not wait for its bytes.
#[test]
fn a_program_that_gets_a_signal_does_not_wait_for_its_bytes() {
    if !can_mount() {
        return;
    }
    let (tree, gate) = stalling();
    let mounted = Mounted::with(tree, &MountOptions { deadline: NEVER, ..MountOptions::default() });
    let _opens = Opens(Arc::clone(&gate));
    // Past the page cache, as the kernel waits there in a way that a signal may end by itself.
    let mut readers: Vec<_> = (0..8)
        .map(|number| {
            Command::new("dd")
                .arg(format!("if={}", mounted.path("stalls").display()))
                .args(["of=/dev/null", "bs=4096", "count=1", "iflag=direct", &format!("skip={number}")])
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    // Not only on their way there.
    wait_until("all read", || gate.waiting() == readers.len());
    // Not SIGINT, which whoever runs the tests may have ignored.
    for reader in &readers {
        kill_process(Pid::from_child(reader), Signal::TERM).unwrap();
    }
    for reader in &mut readers {
        assert_eq!(reader.wait().unwrap().signal(), Some(15));
    }
    assert_eq!((mounted.statistics().interrupted, mounted.statistics().deadlines_missed), (8, 0));
    assert_eq!(fs::read(mounted.path("ready")).unwrap(), pattern(1000));
}
