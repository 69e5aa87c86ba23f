//! What programs can change in a mounted tree that takes it, through the kernel.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::editable::{EditableTree, ROOM, UNOPENED};
use common::{Gate, MemoryTree, Mounted, Opens, can_mount, mount_line, rounds, wait_until};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use tarnfs_fuse::{MountOptions, Operation};
use tarnfs_tree::{Lifetime, Node, Tree as _};

/// Bytes of which each tells its place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place / 256) ^ place) as u8).collect()
}

#[track_caller]
fn assert_errno<T: Debug>(result: Result<T, impl Into<io::Error>>, errno: Errno) {
    let error: io::Error = result.map(|value| panic!("{value:?}")).map_err(Into::into).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// Does `test` with trees that are kept for a second and for ever, and changed at once and by workers.
fn with_each(test: impl Fn(&Mounted, &EditableTree)) {
    if !can_mount() {
        return;
    }
    for (lifetime, at_once) in [(Lifetime::Short, false), (Lifetime::Forever, true), (Lifetime::None, false)] {
        let tree = Arc::new(EditableTree::new(lifetime, at_once));
        let mounted = Mounted::of(Arc::clone(&tree) as _, &MountOptions::default());
        test(&mounted, &tree);
    }
}

fn names(folder: &Path) -> BTreeSet<Vec<u8>> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect()
}

#[test]
fn everything_can_be_made_and_removed() {
    with_each(|mounted, tree| {
        let path = |name: &str| mounted.path(name);
        let options = mount_line(mounted.folder.path()).unwrap();
        assert!(options[0].starts_with("rw,nosuid,nodev"), "{options:?}");
        fs::create_dir(path("folder")).unwrap();
        File::create_new(path("folder/file")).unwrap();
        symlink("file", path("folder/link")).unwrap();
        fs::hard_link(path("folder/file"), path("folder/other")).unwrap();
        let mode = Mode::from_raw_mode(0o4640);
        let device = rustix::fs::makedev(0x123, 0x4_5678);
        for (name, kind, device) in [
            ("fifo", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("character", FileType::CharacterDevice, device),
            ("block", FileType::BlockDevice, device),
            ("regular", FileType::RegularFile, 0),
        ] {
            rustix::fs::mknodat(CWD, path("folder").join(name), kind, mode, device).unwrap();
            let found = fs::symlink_metadata(path("folder").join(name)).unwrap();
            assert_eq!((found.mode(), found.rdev()), (kind.as_raw_mode() | 0o4640, device), "{name}");
        }
        let [file, link, folder] =
            ["folder/file", "folder/link", "folder"].map(|name| fs::symlink_metadata(path(name)));
        let (file, link, folder) = (file.unwrap(), link.unwrap(), folder.unwrap());
        assert_eq!((file.mode(), file.nlink(), file.uid()), (0o100_644, 2, rustix::process::geteuid().as_raw()));
        assert_eq!((link.mode(), link.size(), folder.mode(), folder.nlink()), (0o120_777, 4, 0o040_755, 2));
        assert_eq!(fs::read_link(path("folder/link")).unwrap(), Path::new("file"));
        assert_eq!(file.ino(), fs::metadata(path("folder/other")).unwrap().ino());
        fs::create_dir(path("folder/inner")).unwrap();
        assert_eq!(fs::metadata(path("folder")).unwrap().nlink(), 3);
        let all = ["file", "link", "other", "fifo", "socket", "character", "block", "regular", "inner"];
        assert_eq!(names(&path("folder")), all.map(|name| name.as_bytes().to_vec()).into());
        for name in &all[..8] {
            fs::remove_file(path("folder").join(name)).unwrap();
        }
        fs::remove_dir(path("folder/inner")).unwrap();
        assert!(names(&path("folder")).is_empty() && !path("folder/file").exists());
        fs::remove_dir(path("folder")).unwrap();
        assert!(names(&path("")).is_empty());
        // The kernel forgets them when it likes.
        wait_until("nobody knows them", || tree.count() == 1);
    });
}

#[test]
fn a_thousand_files_are_made_and_removed() {
    with_each(|mounted, _| {
        let folder = mounted.path("folder");
        fs::create_dir(&folder).unwrap();
        let name = |number: usize| format!("file {number}");
        for number in 0..1000 {
            fs::write(folder.join(name(number)), name(number)).unwrap();
        }
        let all = (0..1000).map(|number| name(number).into_bytes()).collect::<BTreeSet<_>>();
        assert!(names(&folder) == all);
        for number in 0..1000 {
            assert_eq!(fs::read_to_string(folder.join(name(number))).unwrap(), name(number));
        }
        for number in (0..1000).filter(|number| number % 3 != 0) {
            fs::remove_file(folder.join(name(number))).unwrap();
        }
        assert!(names(&folder) == (0..1000).step_by(3).map(|number| name(number).into_bytes()).collect());
        fs::remove_dir_all(&folder).unwrap();
        assert!(!folder.exists());
    });
}

#[test]
fn what_is_written_is_read() {
    with_each(|mounted, tree| {
        let path = mounted.path("file");
        let bytes = pattern(1 << 20);
        let before = mounted.statistics().of(Operation::Write);
        fs::write(&path, &bytes).unwrap();
        let requests = mounted.statistics().of(Operation::Write) - before;
        eprintln!("{requests} requests for 1 MiB");
        assert!(requests < 64, "not page by page: {requests}");
        assert!(fs::read(&path).unwrap() == bytes);
        // At any place, by one who also reads.
        let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"abc", 4095).unwrap();
        file.write_all_at(b"end", (3 << 20) + 7).unwrap();
        let mut found = [0; 5];
        file.read_exact_at(&mut found, 4094).unwrap();
        assert_eq!(found, [bytes[4094], b'a', b'b', b'c', bytes[4098]]);
        assert_eq!(file.metadata().unwrap().len(), (3 << 20) + 10);
        file.seek(SeekFrom::Start(2 << 20)).unwrap();
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        assert!(rest.len() == (1 << 20) + 10 && rest.ends_with(b"\0end"));
        // Another reader sees it at once.
        assert_eq!(&fs::read(&path).unwrap()[4095..4098], b"abc");
        // Cut, and filled up with zeros.
        file.set_len(10).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes[..10]);
        file.set_len(20).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&bytes[..10], &[0; 10]].concat());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 5);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), bytes[..5]);
        // Behind what others have written meanwhile.
        let [mut one, mut two] = [(); 2].map(|()| OpenOptions::new().append(true).open(&path).unwrap());
        for _ in 0..10 {
            one.write_all(b"1").unwrap();
            two.write_all(b"22").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), [&bytes[..5], &b"122".repeat(10)].concat());
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        // What is to stay is asked for.
        let before = tree.synced();
        one.sync_all().unwrap();
        one.sync_data().unwrap();
        File::open(mounted.path("")).unwrap().sync_all().unwrap();
        let after = tree.synced();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 1]);
    });
}

/// One file in the mount, and one on the disk beside it, with which the same is done.
#[test]
fn random_changes_are_those_of_a_plain_file() {
    with_each(|mounted, _| {
        const LONGEST: u64 = 300_000;
        let plain = tempfile::NamedTempFile::new().unwrap();
        let paths = [mounted.path("file"), plain.path().to_owned()];
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut files = paths.each_ref().map(|path| open(path).unwrap());
        let mut random = 7_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        for step in 0..rounds(400, 20_000) {
            let (kind, offset, length) = (below(8), below(LONGEST), below(40_000));
            let bytes = vec![step as u8; length as usize];
            let [ours, twin] = files.each_ref().map(|file| match kind {
                0..3 => file.write_all_at(&bytes, offset).map(|()| Vec::new()),
                3 => file.set_len(offset).map(|()| Vec::new()),
                4 => {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let done = rustix::fs::fallocate(file, flags, offset, length + 1);
                    done.map(|()| Vec::new()).map_err(io::Error::from)
                }
                5 => file.metadata().map(|found| found.len().to_ne_bytes().to_vec()),
                _ => {
                    let mut bytes = vec![1; length as usize];
                    file.read_at(&mut bytes, offset).map(|read| bytes[..read].to_vec())
                }
            });
            if kind == 4 && twin.is_err() {
                println!("left out: no holes are made on this disk");
                return;
            }
            assert!(ours.unwrap() == twin.unwrap(), "step {step}: {kind} at {offset}, {length} bytes");
            if step % 50 == 0 {
                files = paths.each_ref().map(|path| open(path).unwrap());
            }
        }
        let [ours, twin] = paths.map(|path| fs::read(path).unwrap());
        assert!(ours == twin);
    });
}

/// What is written into a mapping arrives, also behind the end of whoever has written it.
#[test]
fn a_mapping_can_be_written() {
    with_each(|mounted, _| {
        let path = mounted.path("file");
        fs::write(&path, pattern(10_000)).unwrap();
        let script = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 10000)
os.close(file)
memory[4090:4100] = b'0123456789'
assert memory[:3] == bytes([0, 1, 2])
memory.close()";
        let Ok(mapped) = Command::new("python3").args(["-c", script]).arg(&path).output() else {
            return println!("left out: needs python3");
        };
        assert!(mapped.status.success(), "{}", String::from_utf8_lossy(&mapped.stderr));
        let mut expected = pattern(10_000);
        expected[4090..4100].copy_from_slice(b"0123456789");
        assert!(fs::read(&path).unwrap() == expected);
    });
}

#[test]
fn room_is_made_and_given_back() {
    with_each(|mounted, _| {
        let path = mounted.path("file");
        fs::write(&path, pattern(10_000)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let allocate = |flags, offset, length| rustix::fs::fallocate(&file, flags, offset, length);
        let length = || file.metadata().unwrap().len();
        allocate(FallocateFlags::empty(), 5_000, 10_000).unwrap();
        assert_eq!(length(), 15_000);
        allocate(FallocateFlags::KEEP_SIZE, 0, 100_000).unwrap();
        assert_eq!(length(), 15_000);
        allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1_000, 500).unwrap();
        allocate(FallocateFlags::ZERO_RANGE, 14_000, 2_000).unwrap();
        let mut expected = pattern(10_000);
        expected.resize(16_000, 0);
        expected[1_000..1_500].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        assert_errno(allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096), Errno::OPNOTSUPP);
        assert_errno(file.set_len(ROOM as u64 + 1), Errno::NOSPC);
        assert_errno(file.write_all_at(&[1; 4096], ROOM as u64), Errno::NOSPC);
    });
}

#[test]
fn a_file_without_a_name_is_a_file() {
    with_each(|mounted, tree| {
        let path = mounted.path("file");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b" and after").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_len(12).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut found = String::new();
        file.read_to_string(&mut found).unwrap();
        assert_eq!(found, "before and a");
        drop(file);
        wait_until("it is gone", || tree.count() == 1);
        // One that gets its name at the end. (Since Linux 6.1.)
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        match rustix::fs::open(mounted.path(""), flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::OPNOTSUPP) => eprintln!("this kernel makes none"),
            file => {
                let file = File::from(file.unwrap());
                file.write_all_at(b"content", 0).unwrap();
                assert!(names(&mounted.path("")).is_empty());
                let by = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                rustix::fs::linkat(CWD, by, CWD, &path, AtFlags::SYMLINK_FOLLOW).unwrap();
                assert_eq!((fs::read(&path).unwrap(), file.metadata().unwrap().nlink()), (b"content".to_vec(), 1));
            }
        }
    });
}

/// Whoever is told so, and the kernel, take it that there is no file.
#[test]
fn a_file_that_is_made_and_cannot_be_opened_is_not_there() {
    with_each(|mounted, tree| {
        let path = mounted.path("file");
        assert!(!path.exists());
        for flags in [OFlags::WRONLY | OFlags::CREATE, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL] {
            assert_errno(rustix::fs::open(&path, flags, Mode::from_raw_mode(UNOPENED)), Errno::NFILE);
            assert!(!path.exists() && names(&mounted.path("")).is_empty());
        }
        wait_until("nobody knows it", || tree.count() == 1);
        fs::write(&path, "content").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
    });
}

#[test]
fn names_change_as_they_are_told() {
    with_each(|mounted, _| {
        let path = |name: &str| mounted.path(name);
        let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags);
        for folder in ["a", "b", "full"] {
            fs::create_dir(path(folder)).unwrap();
        }
        for name in ["a/x", "b/y", "full/z"] {
            fs::write(path(name), name).unwrap();
        }
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        // What was looked for is found as soon as it is there.
        assert!(!path("b/x").exists());
        fs::rename(path("a/x"), path("b/x")).unwrap();
        assert_eq!((text("b/x").as_str(), path("a/x").exists()), ("a/x", false));
        assert_errno(rename("b/x", "b/y", RenameFlags::NOREPLACE), Errno::EXIST);
        rename("b/x", "b/new", RenameFlags::NOREPLACE).unwrap();
        rename("b/new", "b/y", RenameFlags::EXCHANGE).unwrap();
        assert_eq!((text("b/y").as_str(), text("b/new").as_str()), ("a/x", "b/y"));
        // A folder with a file, across folders.
        rename("a", "b/y", RenameFlags::EXCHANGE).unwrap();
        assert!(path("b/y").is_dir() && text("a") == "a/x");
        assert_errno(rename("b/y", "nothing", RenameFlags::EXCHANGE), Errno::NOENT);
        assert_errno(rename("a", "c", RenameFlags::WHITEOUT), Errno::INVAL);
        fs::rename(path("b/new"), path("a")).unwrap();
        assert_eq!((text("a").as_str(), path("b/new").exists()), ("b/y", false));
        assert_errno(fs::rename(path("b"), path("full")), Errno::NOTEMPTY);
        assert_errno(fs::rename(path("b"), path("b/y/below")), Errno::INVAL);
        assert_eq!(names(&path("b")), [b"y".to_vec()].into());
        // Who has it open goes on.
        let file = OpenOptions::new().append(true).open(path("a")).unwrap();
        fs::rename(path("a"), path("b/y/deep")).unwrap();
        (&file).write_all(b" more").unwrap();
        assert_eq!(text("b/y/deep"), "b/y more");
        assert_eq!(fs::canonicalize(path("b/y/..")).unwrap(), path("b"));
    });
}

#[test]
fn what_is_known_of_a_file_changes() {
    with_each(|mounted, _| {
        let path = mounted.path("file");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1604)).unwrap();
        std::os::unix::fs::chown(&path, Some(7), None).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode(), found.uid(), found.gid()), (0o101_604, 7, rustix::process::getegid().as_raw()));
        std::os::unix::fs::chown(&path, None, Some(8)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().gid(), 8);
        let times = Timestamps {
            last_access: Timespec { tv_sec: -5, tv_nsec: 7 },
            last_modification: Timespec { tv_sec: 1 << 33, tv_nsec: 8 },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec()), (-5, 7, 1 << 33, 8));
        let only_now = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            last_modification: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        };
        rustix::fs::utimensat(CWD, &path, &only_now, AtFlags::empty()).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!(after.atime() == -5 && after.mtime() > 1_000_000_000 && after.mtime() < 1 << 33);
        // To write changes the time of the content.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "other").unwrap();
        let (later, after) = (fs::metadata(&path).unwrap(), (after.mtime(), after.mtime_nsec()));
        assert!((later.mtime(), later.mtime_nsec()) > after && later.len() == 5);
        // A link itself.
        symlink("file", mounted.path("link")).unwrap();
        std::os::unix::fs::lchown(mounted.path("link"), Some(9), Some(9)).unwrap();
        assert_eq!(fs::symlink_metadata(mounted.path("link")).unwrap().uid(), 9);
        assert_eq!(fs::metadata(&path).unwrap().uid(), 7);
    });
}

#[test]
fn extended_attributes_come_and_go() {
    with_each(|mounted, _| {
        let path = mounted.path("file");
        fs::write(&path, "content").unwrap();
        let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.a", value, flags);
        let get = || {
            let mut value = vec![0; 70_000];
            rustix::fs::getxattr(&path, "user.a", &mut value[..]).map(|length| value[..length].to_vec())
        };
        assert_errno(set(b"1", XattrFlags::REPLACE), Errno::NODATA);
        set(b"1", XattrFlags::CREATE).unwrap();
        assert_errno(set(b"2", XattrFlags::CREATE), Errno::EXIST);
        assert_eq!(get().unwrap(), b"1");
        set(&pattern(1 << 16), XattrFlags::REPLACE).unwrap();
        assert!(get().unwrap() == pattern(1 << 16));
        set(b"", XattrFlags::empty()).unwrap();
        assert_eq!(get().unwrap(), b"");
        let mut names = [0; 100];
        let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        assert_eq!(&names[..length], b"user.a\0");
        rustix::fs::removexattr(&path, "user.a").unwrap();
        assert_errno(rustix::fs::removexattr(&path, "user.a"), Errno::NODATA);
        assert_errno(get(), Errno::NODATA);
    });
}

#[test]
fn what_cannot_be_has_its_error() {
    with_each(|mounted, _| {
        let path = |name: &str| mounted.path(name);
        fs::create_dir_all(path("folder/inner")).unwrap();
        fs::create_dir(path("fixed")).unwrap();
        fs::write(path("file"), "content").unwrap();
        assert_errno(fs::create_dir(path("file")), Errno::EXIST);
        assert_errno(File::create_new(path("file")), Errno::EXIST);
        assert_errno(symlink("x", path("file")), Errno::EXIST);
        assert_errno(fs::hard_link(path("file"), path("folder")), Errno::EXIST);
        assert_errno(fs::hard_link(path("folder"), path("other")), Errno::PERM);
        assert_errno(fs::create_dir(path("none/inner")), Errno::NOENT);
        assert_errno(fs::create_dir(path("file/inner")), Errno::NOTDIR);
        assert_errno(fs::remove_dir(path("folder")), Errno::NOTEMPTY);
        assert_errno(fs::remove_dir(path("file")), Errno::NOTDIR);
        assert_errno(rustix::fs::unlink(path("folder")), Errno::ISDIR);
        assert_errno(fs::remove_file(path("none")), Errno::NOENT);
        assert_errno(fs::rename(path("none"), path("other")), Errno::NOENT);
        assert_errno(fs::rename(path("file"), path("folder")), Errno::ISDIR);
        assert_errno(fs::rename(path("folder"), path("file")), Errno::NOTDIR);
        assert_errno(OpenOptions::new().write(true).open(path("folder")), Errno::ISDIR);
        assert_errno(fs::write(path("none/file"), "x"), Errno::NOENT);
        // A part of a tree may be for reading only.
        assert_errno(fs::create_dir(path("fixed/inner")), Errno::ROFS);
        assert_errno(File::create(path("fixed/file")), Errno::ROFS);
        assert_errno(fs::rename(path("file"), path("fixed/file")), Errno::ROFS);
        assert_errno(fs::hard_link(path("file"), path("fixed/file")), Errno::ROFS);
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "content");
        assert_eq!(names(&path("")), ["folder", "fixed", "file"].map(|name| name.as_bytes().to_vec()).into());
        rustix::fs::access(path("file"), rustix::fs::Access::WRITE_OK).unwrap();
    });
}

#[test]
fn a_change_that_panics_is_an_error_of_one_request() {
    if !can_mount() {
        return;
    }
    for at_once in [true, false] {
        let tree = Arc::new(EditableTree::new(Lifetime::Short, at_once));
        let mut mounted = Mounted::of(tree, &MountOptions::default());
        for _ in 0..10 {
            assert_errno(fs::create_dir(mounted.path("panic")), Errno::IO);
            assert_errno(File::create(mounted.path("panic")), Errno::IO);
        }
        fs::write(mounted.path("file"), "content").unwrap();
        mounted.panics = mounted.statistics().panics;
        assert_eq!(mounted.panics, 20);
    }
}

/// A write that does not begin is an error at the deadline, and holds up nobody else. It is not done later either.
#[test]
fn a_write_that_never_begins_is_an_error() {
    if !can_mount() {
        return;
    }
    let gate = Arc::new(Gate::default());
    let _opens = Opens(Arc::clone(&gate));
    let mut tree = EditableTree::new(Lifetime::Short, false);
    tree.gate = Some(Arc::clone(&gate));
    // Long enough for whatever else is asked, however busy the machine is.
    let options = MountOptions { deadline: Duration::from_secs(4), ..MountOptions::default() };
    let mounted = Mounted::of(Arc::new(tree), &options);
    let file = File::create(mounted.path("file")).unwrap();
    assert_errno(file.write_at(b"late", 100), Errno::IO);
    // It is counted behind the answer.
    wait_until("it is counted", || mounted.statistics().deadlines_missed == 1);
    fs::create_dir(mounted.path("folder")).unwrap();
    gate.open();
    wait_until("nobody is at work", || mounted.statistics().in_flight == 0);
    assert_eq!(fs::metadata(mounted.path("file")).unwrap().len(), 0);
    wait_until("it can be written again", || file.write_at(b"content", 0).is_ok());
    drop(file);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
}

/// Who closes a file waits for what that asks for, but not beyond the deadline.
#[test]
fn closing_waits_for_what_is_still_done() {
    if !can_mount() {
        return;
    }
    for at_once in [true, false] {
        let tree = Arc::new(EditableTree::new(Lifetime::Short, at_once));
        let options = MountOptions { deadline: Duration::from_secs(100_000), ..MountOptions::default() };
        let mounted = Mounted::of(Arc::clone(&tree) as _, &options);
        let file = File::create(mounted.path("file")).unwrap();
        tree.let_closing_wait(true);
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| drop(file));
            wait_until("somebody closes it", || tree.closing());
            assert!(fs::metadata(mounted.path("file")).is_ok() && !closer.is_finished());
            tree.let_closing_wait(false);
            closer.join().unwrap();
        });
        let options = MountOptions { deadline: Duration::from_secs(4), ..MountOptions::default() };
        let mounted = Mounted::of(Arc::clone(&tree) as _, &options);
        let file = File::create(mounted.path("other")).unwrap();
        tree.let_closing_wait(true);
        let begun = Instant::now();
        drop(file);
        assert!(begun.elapsed() >= Duration::from_millis(300));
        tree.let_closing_wait(false);
    }
}

#[test]
fn many_make_and_remove_at_once() {
    with_each(|mounted, tree| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..100 {
                        let folder = mounted.path(format!("{thread} {round}"));
                        fs::create_dir(&folder).unwrap();
                        let shared = mounted.path("shared");
                        OpenOptions::new().append(true).create(true).open(&shared).unwrap().write_all(b"x").unwrap();
                        fs::write(folder.join("file"), pattern(5000)).unwrap();
                        assert!(fs::read(folder.join("file")).unwrap() == pattern(5000));
                        fs::remove_dir_all(&folder).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::metadata(mounted.path("shared")).unwrap().len(), 400);
        wait_until("the others are gone", || tree.count() == 2);
        assert_eq!(tree.attributes(Node::ROOT).unwrap().links, 2);
    });
}

/// A tree without a hand for changes refuses all of them, also where root makes the kernel hand them on.
#[test]
fn a_tree_for_reading_takes_no_change() {
    if !can_mount() {
        return;
    }
    for is_immutable in [true, false] {
        let mut tree = MemoryTree::default();
        (tree.totals.has_xattrs, tree.totals.is_immutable) = (true, is_immutable);
        tree.file(Node::ROOT, "file", pattern(10));
        tree.folder(Node::ROOT, "folder");
        let mounted = Mounted::new(tree);
        mount_remount(mounted.path(""), MountFlags::NOSUID | MountFlags::NODEV, "").unwrap();
        let [file, folder, new] = ["file", "folder", "new"].map(|name| mounted.path(name));
        let mode = Mode::from_raw_mode(0o600);
        let time = Timespec { tv_sec: 1, tv_nsec: 1 };
        let times = Timestamps { last_access: time, last_modification: time };
        let rename = |flags| rustix::fs::renameat_with(CWD, &file, CWD, &new, flags);
        let open = |flags| rustix::fs::open(&file, flags, mode);
        let write = || open(OFlags::WRONLY).and_then(|file| rustix::io::write(file, b"x")).map(drop);
        let results = [
            ("create", rustix::fs::open(&new, OFlags::WRONLY | OFlags::CREATE, mode).map(drop)),
            ("tmpfile", rustix::fs::open(&folder, OFlags::WRONLY | OFlags::TMPFILE, mode).map(drop)),
            ("mkdir", rustix::fs::mkdir(&new, mode)),
            ("mknod", rustix::fs::mknodat(CWD, &new, FileType::Fifo, mode, 0)),
            ("symlink", rustix::fs::symlink("x", &new)),
            ("link", rustix::fs::link(&file, &new)),
            ("unlink", rustix::fs::unlink(&file)),
            ("rmdir", rustix::fs::rmdir(&folder)),
            ("rename", rename(RenameFlags::empty())),
            ("rename without replacing", rename(RenameFlags::NOREPLACE)),
            ("exchange", rustix::fs::renameat_with(CWD, &file, CWD, &folder, RenameFlags::EXCHANGE)),
            ("chmod", rustix::fs::chmod(&file, mode)),
            ("chown", rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(7)), None)),
            ("utimes", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())),
            ("truncate", open(OFlags::WRONLY).and_then(|file| rustix::fs::ftruncate(file, 0))),
            ("setxattr", rustix::fs::setxattr(&file, "user.x", b"y", XattrFlags::empty())),
            ("removexattr", rustix::fs::removexattr(&file, "user.x")),
            ("write", write()),
        ];
        for (what, result) in results {
            assert_eq!(result, Err(Errno::ROFS), "{what}");
        }
        if is_immutable {
            // Nothing is opened there.
            let allocated =
                open(OFlags::WRONLY).and_then(|file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 100));
            assert_eq!(allocated, Err(Errno::ROFS));
        }
        assert!(mounted.statistics().of(Operation::Write) > 0);
        assert_eq!(fs::read(&file).unwrap(), pattern(10));
    }
}
