//! Each operation, with its errors: what a tmpfs says of it, a mount says, too.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, chmodat,
    chownat, copy_file_range, fallocate, fsync, ftruncate, getxattr, linkat, lremovexattr, lsetxattr, mkdirat, mknodat,
    open, openat, renameat, renameat_with, rmdir, seek, setxattr, statvfs, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::support::can_mount;
use crate::twin::Twins;

type Done = Result<(), Errno>;

/// What is in the folder of each case.
const FILES: &str = "
    echo hello > f; chmod 640 f; cp f f2; echo shared > h1; ln h1 h2
    mkdir d e; echo x > d/x; mkdir d/in; echo deep > d/in/y; ln -s f l; ln -s nowhere gone; mkfifo p
    truncate -s 1M sparse; printf mid | dd of=sparse bs=1 seek=500000 conv=notrunc status=none
    setfattr -n user.k -v v f; head -c 300000 /dev/zero | tr '\\0' z > big
";

fn write(path: &Path, flags: OFlags, bytes: &[u8]) -> Done {
    let file = File::from(open(path, flags | OFlags::WRONLY, Mode::from(0o644))?);
    (&file).write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap())
}

fn remove(path: &Path, flags: AtFlags) -> Done {
    unlinkat(CWD, path, flags)
}

fn exchange(from: &Path, to: &Path) -> Done {
    renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)
}

fn at(seconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: 123_456_789 }
}

fn times(path: &Path) -> Done {
    let times = Timestamps { last_access: at(1_000_000_000), last_modification: at(1_100_000_000) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn mkdir(path: &Path) -> Done {
    mkdirat(CWD, path, Mode::from(0o755))
}

fn is(what: bool) -> Done {
    if what { Ok(()) } else { Err(Errno::ILSEQ) }
}

/// A name, what comes of it, and what is done in a folder with [`FILES`].
type Case = (&'static str, Done, fn(&Path) -> Done);

const CASES: &[Case] = &[
    ("create", Ok(()), |d| write(&d.join("new"), OFlags::CREATE | OFlags::EXCL, b"new")),
    ("create what is there", Err(Errno::EXIST), |d| write(&d.join("f"), OFlags::CREATE | OFlags::EXCL, b"")),
    ("create in nothing", Err(Errno::NOENT), |d| write(&d.join("no/new"), OFlags::CREATE, b"")),
    ("create in a file", Err(Errno::NOTDIR), |d| write(&d.join("f/new"), OFlags::CREATE, b"")),
    ("create a long name", Err(Errno::NAMETOOLONG), |d| write(&d.join("n".repeat(256)), OFlags::CREATE, b"")),
    ("create the longest name", Ok(()), |d| write(&d.join("n".repeat(255)), OFlags::CREATE, b"x")),
    ("create a name that is not text", Ok(()), |d| {
        use std::os::unix::ffi::OsStrExt as _;
        write(&d.join(std::ffi::OsStr::from_bytes(b"\xff\n\x01")), OFlags::CREATE, b"x")
    }),
    ("create a name of ours", Ok(()), |d| write(&d.join(".tarnfs-overlay.sqlite"), OFlags::CREATE, b"x")),
    ("write a folder", Err(Errno::ISDIR), |d| write(&d.join("d"), OFlags::empty(), b"")),
    ("write through a link", Ok(()), |d| write(&d.join("l"), OFlags::empty(), b"J")),
    ("write where a link leads nowhere", Ok(()), |d| write(&d.join("gone"), OFlags::CREATE, b"J")),
    ("write in the middle", Ok(()), |d| write(&d.join("big"), OFlags::empty(), b"begin")),
    ("append", Ok(()), |d| write(&d.join("f"), OFlags::APPEND, b"more")),
    ("append twice", Ok(()), |d| {
        write(&d.join("big"), OFlags::APPEND, b"more").and_then(|()| write(&d.join("big"), OFlags::APPEND, b"most"))
    }),
    ("empty", Ok(()), |d| write(&d.join("big"), OFlags::TRUNC, b"")),
    ("write anew", Ok(()), |d| write(&d.join("f"), OFlags::TRUNC, b"other")),
    ("write behind the end", Ok(()), |d| {
        let file = File::from(open(d.join("f"), OFlags::RDWR, Mode::empty())?);
        file.write_all_at(b"far", 100_000).unwrap();
        let mut read = vec![1; 100_003];
        file.read_exact_at(&mut read, 0).unwrap();
        is(read[..6] == *b"hello\n" && read[6..100_000].iter().all(|&byte| byte == 0) && read[100_000..] == *b"far")
    }),
    ("write to one of two names", Ok(()), |d| write(&d.join("h1"), OFlags::APPEND, b"more")),
    ("write into a hole", Ok(()), |d| {
        let file = File::from(open(d.join("sparse"), OFlags::RDWR, Mode::empty())?);
        file.write_all_at(b"x", 1).unwrap();
        is(seek(&file, rustix::fs::SeekFrom::Hole(4096))? == 4096)
    }),
    ("who has it open to read sees it", Ok(()), |d| {
        let mut reader = File::open(d.join("big")).unwrap();
        let mut byte = [0; 1];
        reader.read_exact(&mut byte).unwrap();
        write(&d.join("big"), OFlags::empty(), b"abc")?;
        reader.seek(SeekFrom::Start(2)).unwrap();
        reader.read_exact(&mut byte).unwrap();
        is(byte == *b"c")
    }),
    ("shorten", Ok(()), |d| ftruncate(open(d.join("big"), OFlags::WRONLY, Mode::empty())?, 1000)),
    ("lengthen", Ok(()), |d| ftruncate(open(d.join("f"), OFlags::WRONLY, Mode::empty())?, 5000)),
    ("shorten by path", Ok(()), |d| {
        let path = std::ffi::CString::new(d.join("big").as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path ends with a zero.
        #[allow(unsafe_code, reason = "no crate has truncate(2)")]
        let done = unsafe { libc::truncate(path.as_ptr(), 7) };
        if done == 0 { Ok(()) } else { Err(Errno::IO) }
    }),
    ("shorten what is open to read", Err(Errno::INVAL), |d| {
        ftruncate(open(d.join("f"), OFlags::RDONLY, Mode::empty())?, 1)
    }),
    ("reserve", Ok(()), |d| {
        fallocate(open(d.join("f"), OFlags::RDWR, Mode::empty())?, FallocateFlags::empty(), 0, 10_000)
    }),
    ("reserve and keep", Ok(()), |d| {
        fallocate(open(d.join("f"), OFlags::RDWR, Mode::empty())?, FallocateFlags::KEEP_SIZE, 0, 10_000)
    }),
    ("punch", Ok(()), |d| {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(open(d.join("big"), OFlags::RDWR, Mode::empty())?, how, 4096, 8192)
    }),
    ("punch at length zero", Err(Errno::INVAL), |d| {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(open(d.join("big"), OFlags::RDWR, Mode::empty())?, how, 4096, 0)
    }),
    ("copy a range", Ok(()), |d| {
        let from = open(d.join("big"), OFlags::RDONLY, Mode::empty())?;
        let to = open(d.join("copy"), OFlags::WRONLY | OFlags::CREATE, Mode::from(0o600))?;
        let (mut at, mut done) = (5, 0);
        while done < 1000 {
            done += copy_file_range(&from, Some(&mut at), &to, None, 1000 - done)?;
        }
        Ok(())
    }),
    ("a file without a name", Ok(()), |d| {
        let mut file = File::from(open(d, OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600))?);
        file.write_all(b"unnamed").unwrap();
        let stat = file.metadata().unwrap();
        is(stat.nlink() == 0 && stat.size() == 7)?;
        linkat(file.as_fd(), "", CWD, d.join("named"), AtFlags::EMPTY_PATH)
    }),
    ("a file without a name goes", Ok(()), |d| open(d, OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)).map(drop)),
    ("written past the cache", Ok(()), |d| {
        use std::alloc::{Layout, alloc_zeroed, dealloc};
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(d.join("big")).unwrap();
        let layout = Layout::from_size_align(4096, 4096).unwrap();
        #[allow(unsafe_code, reason = "memory at the border of a page")]
        // SAFETY: of that layout, and given back.
        unsafe {
            let memory = alloc_zeroed(layout);
            let bytes = std::slice::from_raw_parts_mut(memory, 4096);
            bytes.fill(b'd');
            file.write_all_at(bytes, 4096).unwrap();
            bytes.fill(0);
            file.read_exact_at(bytes, 4096).unwrap();
            let is_right = bytes.iter().all(|&byte| byte == b'd');
            dealloc(memory, layout);
            is(is_right)
        }
    }),
    ("mkdir", Ok(()), |d| mkdirat(CWD, d.join("new"), Mode::from(0o2751))),
    ("mkdir over a file", Err(Errno::EXIST), |d| mkdir(&d.join("f"))),
    ("mkdir over a link", Err(Errno::EXIST), |d| mkdir(&d.join("gone"))),
    ("mkdir in what is removed", Err(Errno::NOENT), |d| {
        let open = open(d.join("e"), OFlags::DIRECTORY, Mode::empty())?;
        rmdir(d.join("e"))?;
        mkdirat(open, "x", Mode::from(0o755))
    }),
    ("a folder hands on its group", Ok(()), |d| {
        chownat(CWD, d.join("e"), None, Some(Gid::from_raw(77)), AtFlags::empty())?;
        chmodat(CWD, d.join("e"), Mode::from_raw_mode(0o2775), AtFlags::empty())?;
        mkdir(&d.join("e/sub"))?;
        write(&d.join("e/sub/file"), OFlags::CREATE, b"")
    }),
    ("rmdir", Ok(()), |d| rmdir(d.join("e"))),
    ("rmdir of what is full", Err(Errno::NOTEMPTY), |d| rmdir(d.join("d"))),
    ("rmdir of a file", Err(Errno::NOTDIR), |d| rmdir(d.join("f"))),
    ("rmdir of nothing", Err(Errno::NOENT), |d| rmdir(d.join("no"))),
    ("rmdir of what was emptied", Ok(()), |d| {
        remove(&d.join("d/x"), AtFlags::empty())?;
        remove(&d.join("d/in/y"), AtFlags::empty())?;
        rmdir(d.join("d/in"))?;
        rmdir(d.join("d"))?;
        mkdir(&d.join("d"))?;
        is(d.join("d").read_dir().unwrap().next().is_none())
    }),
    ("unlink", Ok(()), |d| remove(&d.join("f"), AtFlags::empty())),
    ("unlink a folder", Err(Errno::ISDIR), |d| remove(&d.join("d"), AtFlags::empty())),
    ("unlink nothing", Err(Errno::NOENT), |d| remove(&d.join("no"), AtFlags::empty())),
    ("unlink one of two names", Ok(()), |d| {
        remove(&d.join("h1"), AtFlags::empty())?;
        is(d.join("h2").metadata().unwrap().nlink() == 1)
    }),
    ("unlink what is open", Ok(()), |d| {
        let file = File::options().read(true).write(true).open(d.join("f")).unwrap();
        remove(&d.join("f"), AtFlags::empty())?;
        file.write_all_at(b"J", 0).unwrap();
        let mut read = [0; 6];
        file.read_exact_at(&mut read, 0).unwrap();
        is(read == *b"Jello\n" && file.metadata().unwrap().nlink() == 0)?;
        chmod_open(&file, 0o600)
    }),
    ("unlink what is open to read", Ok(()), |d| {
        let file = File::open(d.join("big")).unwrap();
        remove(&d.join("big"), AtFlags::empty())?;
        let mut read = [0; 6];
        file.read_exact_at(&mut read, 200_000).unwrap();
        is(read == *b"zzzzzz" && file.metadata().unwrap().nlink() == 0)
    }),
    ("rm x; ln -s y x", Ok(()), |d| {
        remove(&d.join("f"), AtFlags::empty())?;
        symlinkat("f2", CWD, d.join("f"))
    }),
    ("mkdir where a file was", Ok(()), |d| {
        remove(&d.join("f"), AtFlags::empty())?;
        mkdir(&d.join("f"))?;
        write(&d.join("f/in"), OFlags::CREATE, b"x")
    }),
    ("rename", Ok(()), |d| renameat(CWD, d.join("f"), CWD, d.join("new"))),
    ("rename over a file", Ok(()), |d| renameat(CWD, d.join("f"), CWD, d.join("big"))),
    ("rename to itself", Ok(()), |d| renameat(CWD, d.join("f"), CWD, d.join("f"))),
    ("rename to its other name", Ok(()), |d| renameat(CWD, d.join("h1"), CWD, d.join("h2"))),
    ("rename a new file over an old one", Ok(()), |d| {
        write(&d.join("new"), OFlags::CREATE, b"new")?;
        renameat(CWD, d.join("new"), CWD, d.join("f"))
    }),
    ("rename into another folder", Ok(()), |d| renameat(CWD, d.join("f"), CWD, d.join("d/in/f"))),
    ("rename a folder", Ok(()), |d| renameat(CWD, d.join("d"), CWD, d.join("new"))),
    ("rename a folder and write in it", Ok(()), |d| {
        renameat(CWD, d.join("d"), CWD, d.join("e/new"))?;
        write(&d.join("e/new/x"), OFlags::APPEND, b"more")?;
        write(&d.join("e/new/in/z"), OFlags::CREATE, b"z")?;
        remove(&d.join("e/new/in/y"), AtFlags::empty())?;
        mkdir(&d.join("d"))?;
        write(&d.join("d/x"), OFlags::CREATE, b"another")
    }),
    ("rename a folder over an empty one", Ok(()), |d| renameat(CWD, d.join("d"), CWD, d.join("e"))),
    ("rename a folder over a full one", Err(Errno::NOTEMPTY), |d| renameat(CWD, d.join("e"), CWD, d.join("d"))),
    ("rename a folder over a file", Err(Errno::NOTDIR), |d| renameat(CWD, d.join("d"), CWD, d.join("f"))),
    ("rename a file over a folder", Err(Errno::ISDIR), |d| renameat(CWD, d.join("f"), CWD, d.join("d"))),
    ("rename a folder into itself", Err(Errno::INVAL), |d| renameat(CWD, d.join("d"), CWD, d.join("d/in/d"))),
    ("rename nothing", Err(Errno::NOENT), |d| renameat(CWD, d.join("no"), CWD, d.join("new"))),
    ("rename to a long name", Err(Errno::NAMETOOLONG), |d| renameat(CWD, d.join("f"), CWD, d.join("n".repeat(256)))),
    ("rename back", Ok(()), |d| {
        renameat(CWD, d.join("d"), CWD, d.join("new"))?;
        renameat(CWD, d.join("new"), CWD, d.join("d"))
    }),
    ("rename and spare", Err(Errno::EXIST), |d| {
        renameat_with(CWD, d.join("f"), CWD, d.join("big"), RenameFlags::NOREPLACE)
    }),
    ("rename and spare nothing", Ok(()), |d| {
        renameat_with(CWD, d.join("f"), CWD, d.join("new"), RenameFlags::NOREPLACE)
    }),
    ("exchange files", Ok(()), |d| exchange(&d.join("f"), &d.join("big"))),
    ("exchange a file and a folder", Ok(()), |d| exchange(&d.join("f"), &d.join("d/in"))),
    ("exchange with nothing", Err(Errno::NOENT), |d| exchange(&d.join("f"), &d.join("no"))),
    ("symlink", Ok(()), |d| symlinkat("some/where", CWD, d.join("new"))),
    ("symlink over a file", Err(Errno::EXIST), |d| symlinkat("x", CWD, d.join("f"))),
    ("link", Ok(()), |d| linkat(CWD, d.join("f"), CWD, d.join("d/new"), AtFlags::empty())),
    ("link and write", Ok(()), |d| {
        linkat(CWD, d.join("f"), CWD, d.join("new"), AtFlags::empty())?;
        write(&d.join("new"), OFlags::APPEND, b"more")?;
        is(d.join("f").metadata().unwrap().ino() == d.join("new").metadata().unwrap().ino())
    }),
    ("link a link", Ok(()), |d| linkat(CWD, d.join("l"), CWD, d.join("new"), AtFlags::empty())),
    ("link over a file", Err(Errno::EXIST), |d| linkat(CWD, d.join("f"), CWD, d.join("big"), AtFlags::empty())),
    ("link a folder", Err(Errno::PERM), |d| linkat(CWD, d.join("d"), CWD, d.join("new"), AtFlags::empty())),
    ("a pipe", Ok(()), |d| mknodat(CWD, d.join("new"), FileType::Fifo, Mode::from(0o640), 0)),
    ("a socket", Ok(()), |d| mknodat(CWD, d.join("new"), FileType::Socket, Mode::from(0o640), 0)),
    ("a device", Ok(()), |d| {
        mknodat(CWD, d.join("new"), FileType::CharacterDevice, Mode::from(0o640), rustix::fs::makedev(1, 300))
    }),
    ("a file by mknod", Ok(()), |d| mknodat(CWD, d.join("new"), FileType::RegularFile, Mode::from(0o640), 0)),
    ("chmod", Ok(()), |d| chmodat(CWD, d.join("f"), Mode::from_raw_mode(0o4711), AtFlags::empty())),
    ("chmod a folder", Ok(()), |d| chmodat(CWD, d.join("d"), Mode::from_raw_mode(0o1700), AtFlags::empty())),
    ("chmod nothing", Err(Errno::NOENT), |d| chmodat(CWD, d.join("no"), Mode::from(0o711), AtFlags::empty())),
    ("chmod one of two names", Ok(()), |d| {
        chmodat(CWD, d.join("h2"), Mode::from(0o600), AtFlags::empty())?;
        is(d.join("h1").metadata().unwrap().mode() & 0o7777 == 0o600)
    }),
    ("chown", Ok(()), |d| {
        chownat(CWD, d.join("f"), Some(Uid::from_raw(12)), Some(Gid::from_raw(34)), AtFlags::empty())
    }),
    ("chown a link", Ok(()), |d| {
        chownat(CWD, d.join("gone"), Some(Uid::from_raw(12)), None, AtFlags::SYMLINK_NOFOLLOW)
    }),
    ("chown takes setuid", Ok(()), |d| {
        chmodat(CWD, d.join("f"), Mode::from_raw_mode(0o6755), AtFlags::empty())?;
        chownat(CWD, d.join("f"), Some(Uid::from_raw(12)), None, AtFlags::empty())
    }),
    ("times", Ok(()), |d| times(&d.join("f"))),
    ("times of a folder", Ok(()), |d| times(&d.join("d"))),
    ("times of a link", Ok(()), |d| times(&d.join("l"))),
    ("times of what was written", Ok(()), |d| {
        write(&d.join("f"), OFlags::APPEND, b"more")?;
        times(&d.join("f"))
    }),
    ("times of what is new", Ok(()), |d| {
        write(&d.join("new"), OFlags::CREATE, b"more")?;
        times(&d.join("new"))
    }),
    ("an attribute", Ok(()), |d| setxattr(d.join("f2"), "user.a", b"value", XattrFlags::empty())),
    ("an attribute that is there", Err(Errno::EXIST), |d| {
        setxattr(d.join("f"), "user.k", b"value", XattrFlags::CREATE)
    }),
    ("an attribute that is not there", Err(Errno::NODATA), |d| {
        setxattr(d.join("f"), "user.a", b"value", XattrFlags::REPLACE)
    }),
    ("another attribute", Ok(()), |d| setxattr(d.join("f"), "user.k", b"", XattrFlags::REPLACE)),
    ("a long attribute", Ok(()), |d| setxattr(d.join("f"), "user.long", &[b'x'; 60_000], XattrFlags::empty())),
    ("no attribute", Ok(()), |d| lremovexattr(d.join("f"), "user.k")),
    ("no attribute twice", Err(Errno::NODATA), |d| {
        lremovexattr(d.join("f"), "user.k").and_then(|()| lremovexattr(d.join("f"), "user.k"))
    }),
    ("an attribute of a link", Err(Errno::PERM), |d| lsetxattr(d.join("l"), "user.a", b"value", XattrFlags::empty())),
    ("an attribute of a folder", Ok(()), |d| setxattr(d.join("d"), "user.a", b"value", XattrFlags::empty())),
    ("an attribute that is asked for", Ok(()), |d| {
        setxattr(d.join("f"), "user.b", b"value", XattrFlags::empty())?;
        let mut value = [0; 10];
        is(getxattr(d.join("f"), "user.b", &mut value[..])? == 5 && value.starts_with(b"value"))
    }),
    ("bring a file to the disk", Ok(()), |d| {
        write(&d.join("new"), OFlags::CREATE, b"new")?;
        fsync(open(d.join("new"), OFlags::RDWR, Mode::empty())?)
    }),
    ("bring a folder to the disk", Ok(()), |d| fsync(open(d.join("d"), OFlags::DIRECTORY, Mode::empty())?)),
    ("through an open folder", Ok(()), |d| {
        let folder = open(d.join("d"), OFlags::DIRECTORY, Mode::empty())?;
        renameat(CWD, d.join("d"), CWD, d.join("moved"))?;
        openat(&folder, "made", OFlags::CREATE | OFlags::WRONLY, Mode::from(0o600)).map(drop)
    }),
    ("there is room", Ok(()), |d| {
        let room = statvfs(d)?;
        is(room.f_bavail > 0 && room.f_blocks >= room.f_bfree && room.f_namemax == 255)
    }),
];

fn chmod_open(file: &File, mode: u32) -> Done {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// > With `--write-overlay` each operation does what it does on another file system, with the same errors.
#[test]
fn each_operation_does_what_it_does_on_tmpfs() {
    if !can_mount() {
        return;
    }
    let make = format!("for i in $(seq 0 {}); do mkdir c$i; (cd c$i; {FILES}); done", CASES.len() - 1);
    let mut twins = Twins::new(&make, &["-o", "allow_other"]);
    for (number, (name, expected, case)) in CASES.iter().enumerate() {
        let folder = format!("c{number}");
        assert_eq!(case(&twins.real.join(&folder)), *expected, "on tmpfs: {name}");
        assert_eq!(case(&twins.at().join(&folder)), *expected, "{name}");
    }
    twins.same("at once");
    twins.remount();
    twins.same("mounted again");
}

/// > The archive is never changed, whatever lies below: a union, folders, an archive in an archive.
#[test]
fn all_of_it_holds_over_unions_folders_and_archives_in_archives() {
    if !can_mount() {
        return;
    }
    let script = "mkdir a b; echo 1 > a/f; echo 2 > b/g; ln b/g b/h; mkdir a/d; echo 3 > a/d/x";
    let change = "
        echo more >> a/f; mv b c; echo new > c/new; rm c/h; mv a/d a/e; mkdir a/d; echo y > a/d/y; chmod 600 a/e/x
        ln a/e/x a/d/z; cat a/d/z; ls -A a c a/d a/e";
    for (name, before, sources) in [
        ("a union", "tar -C tree -cf left.tar ./a; tar -C tree -cf right.tar ./b", "left.tar right.tar"),
        ("a folder", "cp -a tree folder", "folder"),
        ("a folder and an archive", "mkdir folder; cp -a tree/a folder; tar -C tree -cf b.tar ./b", "folder b.tar"),
        ("a squashfs", "mksquashfs tree s.img -quiet -no-progress > /dev/null", "s.img"),
        ("a compressed archive", "tar -C tree -czf a.tgz .", "a.tgz"),
        ("a part of one", "mkdir p; cp -a tree p/in; tar -C p -cf p.tar .", "--prefix in p.tar"),
    ] {
        let twins = Twins::new(script, &[]);
        if before.starts_with("mksquashfs") && !crate::support::have("mksquashfs") {
            continue;
        }
        twins.scratch.shell(before);
        let mount = |remove: bool| {
            let program = env!("CARGO_BIN_EXE_tarnfs");
            twins.scratch.shell(&format!(
                "{} export XDG_CACHE_HOME=$PWD/cache; {program} -w other {sources} at 2>/dev/null",
                if remove { format!("{program} -u at;") } else { String::new() }
            ));
        };
        mount(false);
        let [real, at] = ["real", "at"].map(|at| twins.scratch.shell(&format!("cd {at}; umask 022; {change}")));
        assert_eq!(real, at, "{name}");
        for again in [false, true] {
            if again {
                mount(true);
            }
            let list = "find . -mindepth 1 -printf '%P %y %m %n %l\\n' | sort; find . -type f | sort | xargs cat";
            let [real, at] = ["real", "at"].map(|at| twins.scratch.shell(&format!("cd {at}; {list}")));
            assert_eq!(real, at, "{name}, mounted again: {again}");
        }
        twins.scratch.shell(&format!("{} -u at", env!("CARGO_BIN_EXE_tarnfs")));
    }
}

/// Archives that are opened when somebody looks into them.
#[test]
fn what_lies_in_an_archive_in_an_archive_can_be_changed() {
    if !can_mount() {
        return;
    }
    for options in [&["-r"][..], &["-r", "--lazy"]] {
        let mut twins = Twins::new("mkdir in; echo 1 > in/f; tar cf in.tar in; rm -r in; echo 2 > g", options);
        let (at, scratch) = (twins.at().to_owned(), &twins.scratch);
        scratch.shell(&format!("cd {}; echo more >> in.tar/in/f; mv in.tar/in in.tar/out; mv g in.tar/", at.display()));
        twins.remount();
        let list = format!("cd {}; find . -type f | sort; cat in.tar/out/f in.tar/g", twins.at().display());
        assert_eq!(twins.scratch.shell(&list), "./in.tar/g\n./in.tar/out/f\n1\nmore\n2\n", "{options:?}");
    }
}

/// > In a mount that is for others, too (`allow_other`), the kernel asks who may do what, also of what is new.
#[test]
fn others_may_do_what_they_may_do_on_tmpfs() {
    if !can_mount() || !crate::support::have("setpriv") {
        return;
    }
    let script = "chmod 755 .; echo 1 > theirs; chmod 644 theirs; mkdir own; chown 1000:1000 own; echo 2 > own/f
        chown 1000:1000 own/f; mkdir sticky; chmod 1777 sticky; echo 3 > sticky/f; mkdir shared; chmod 777 shared
        echo 4 > shared/f; echo 5 > s; chmod 4755 s; chown 1000 s";
    let twins = Twins::new(script, &["-o", "allow_other"]);
    twins.scratch.shell("chmod 755 .");
    for script in [
        "echo x > theirs",
        "rm theirs",
        "chmod 600 theirs",
        "touch theirs",
        "mkdir d",
        "echo x >> own/f",
        "chmod 4755 own/f",
        "chown 0 own/f",
        "mv own/f own/g",
        "rm sticky/f",
        "mv sticky/f sticky/g",
        "echo x > sticky/new",
        "rm sticky/new",
        "rm shared/f",
        "echo y > shared/new",
        "ln theirs own/link",
        "ln own/g own/link",
        "cat theirs",
        "touch -d 2001-01-01 own/g",
        "touch -d 2001-01-01 theirs",
        "setfattr -n user.a -v b theirs",
        "setfattr -n user.a -v b own/g",
        "setfattr -n trusted.a -v b own/g",
        "mknod own/dev c 1 3",
        "mkfifo own/p",
        "chgrp 1000 own/g",
        "chgrp 7 own/g",
        "mkdir own/d; chmod 2755 own/d; mkdir own/d/e",
        "echo x >> s",
    ] {
        let said = [&twins.real, twins.at()].map(|at| {
            let run = format!("cd {}; umask 022; {script}", at.display());
            let mut command = std::process::Command::new("setpriv");
            command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "env", "LC_ALL=C", "bash", "-c", &run]);
            let output = command.output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        });
        assert_eq!(said[0], said[1], "{script}");
    }
    twins.same("after all");
}

/// > Access control lists hold, and are handed on to what is made in a folder.
#[test]
fn lists_of_who_may_do_what_are_kept() {
    if !can_mount() || !crate::support::have("setfacl") {
        return;
    }
    let script =
        "echo 1 > f; mkdir d; setfacl -m u:1000:rw f; mkdir e; setfacl -d -m u:1000:rwx,g::r e; echo 2 > e/old";
    let mut twins = Twins::new(script, &["-o", "allow_other"]);
    let said = twins.shell(
        "getfacl -n f; chmod 600 f; getfacl -n f; setfacl -m g:7:r f; setfacl -x u:1000 f; getfacl -n f
        echo new > e/new; mkdir e/sub; echo deep > e/sub/x; mkfifo e/p; (umask 077; echo x > e/private; mkdir e/inner)
        find e | sort | xargs getfacl -n; setfacl -b f; getfacl -n f; stat -c %a f; setfacl -d -m g:9:rx d; setfacl -k e; getfacl -n d e
        (umask 027; echo x > d/y; echo x > masked; mkdir dir); stat -c %a d/y masked dir",
    );
    assert!(said.contains("user:1000:rw-"), "{said}");
    twins.same("lists");
    twins.remount();
    twins.same("lists, mounted again");
}

/// A mapping that is written to, and locks.
#[test]
fn maps_and_locks_work() {
    if !can_mount() || !crate::support::have("python3") {
        return;
    }
    let mut twins = Twins::new("head -c 100000 /dev/zero | tr '\\0' a > f; echo x > g", &[]);
    std::fs::write(
        twins.scratch.path("map.py"),
        "import mmap, os, fcntl, struct
f = os.open('f', os.O_RDWR)
m = mmap.mmap(f, 100000)
m[5000:5005] = b'mmmmm'
m[99999:100000] = b'z'
m.flush()
os.pwrite(f, b'w', 5002)
assert m[5000:5005] == b'mmwmm', m[5000:5005]
m.close()
a, b = os.open('g', os.O_RDWR), os.open('g', os.O_RDWR)
fcntl.flock(a, fcntl.LOCK_EX)
try:
    fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    raise SystemExit('two locks')
except BlockingIOError:
    pass
fcntl.flock(a, fcntl.LOCK_UN)
lock = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 50, 0)
fcntl.fcntl(a, 37, lock)
try:
    fcntl.fcntl(b, 37, lock)
    raise SystemExit('two locks of open files')
except BlockingIOError:
    pass
fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
print(open('f').read().count('m'))
",
    )
    .unwrap();
    let script = format!("python3 {}", twins.scratch.path("map.py").display());
    assert_eq!(twins.shell(&script), "4\n");
    twins.same("mapped");
    twins.remount();
    twins.same("mapped, mounted again");
}
