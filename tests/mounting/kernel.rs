//! The kernel's side under load and in odd surroundings: dying daemons, signals, mounts inside mounts, other users, few
//! descriptors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "figures, for those who run the long form")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    self, Mounted, Ran, Scratch, can_mount, foreground, have, in_own_namespace, is_gone, is_mounted, rounds, run,
    signal, statistics, tarnfs, wait_until,
};
use rustix::io::Errno;
use rustix::process::Signal;

const NOBODY: u32 = 65534;

/// A compressed archive with a small file `file` and a larger one `numbers`.
fn archive(scratch: &Scratch) -> PathBuf {
    scratch.shell("mkdir tree; echo hello > tree/file; seq 1 2000000 > tree/numbers; tar -C tree -czf a.tar.gz .");
    scratch.path("a.tar.gz")
}

#[test]
fn a_running_mount_tells_what_it_has_done() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let log = scratch.path("statistics.log");
    let mount = Mounted::new(&scratch, &archive, &["-d", "2", "--log-file", log.to_str().unwrap()]);
    let before = statistics(&mount.at);
    assert_eq!(
        (&before["chunk_misses"], &before["decoded_bytes"], &before["panics"]),
        (&0.into(), &0.into(), &0.into())
    );
    let size = fs::read(mount.path("numbers")).unwrap().len() as u64;
    let after = statistics(&mount.at);
    let number = |name: &str| after[name].as_u64().unwrap();
    assert!(number("bytes_read") >= size && number("decoded_bytes") >= size, "{after}");
    assert!(number("chunk_misses") > 0 && number("resumes") > 0, "{after}");
    assert!(after["requests"]["read"].as_u64().unwrap() > 0, "{after}");
    assert_eq!((number("panics"), number("deadlines_missed")), (0, 0));
    // The question itself has no answer yet.
    assert!(number("in_flight") >= 1 && after["oldest_seconds"].as_f64().unwrap() >= 0.0, "{after}");
    let held: u64 = after["memory"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert!(held > 0 && held <= number("memory_limit"), "{after}");
    // No list of attributes has it, and no other file.
    let mut names = [0; 1000];
    assert_eq!(rustix::fs::listxattr(&mount.at, &mut names[..]), Ok(0));
    let of_file = rustix::fs::getxattr(mount.path("file"), "user.tarnfs.statistics", &mut names[..]);
    assert_eq!(of_file, Err(Errno::NODATA));
    mount.unmount();
    // The daemon writes it when the mount is gone.
    support::wait_until("the log has the statistics", || {
        let log = fs::read_to_string(&log).unwrap();
        log.contains("\"decoded_bytes\":") && log.contains("\"panics\":0")
    });
    // Usually the kernel is told not to ask: that is faster.
    let mount = Mounted::new(&scratch, &archive, &[]);
    assert_eq!(rustix::fs::getxattr(&mount.at, "user.tarnfs.statistics", &mut names[..]), Err(Errno::OPNOTSUPP));
    mount.unmount();
}

/// Reads `numbers` again and again on some threads, each time through the kernel's cache of it being dropped, while
/// `meanwhile` runs. Returns how long the slowest reader took to end after `meanwhile` had.
fn under_load(mount: &Path, readers: usize, meanwhile: impl FnOnce()) -> Duration {
    let over = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        // Whether it can be read is not the question here.
                        if let Ok(file) = fs::File::open(mount.join("numbers")) {
                            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                            let mut buffer = vec![0; 1 << 20];
                            while std::io::Read::read(&mut &file, &mut buffer).is_ok_and(|read| read > 0) {
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        wait_until("the readers read", || served.load(Ordering::Relaxed) > 0);
        meanwhile();
        over.store(true, Ordering::Relaxed);
        let start = Instant::now();
        for thread in threads {
            thread.join().unwrap();
        }
        start.elapsed()
    })
}

#[test]
fn a_daemon_that_is_killed_holds_nobody_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let at = scratch.folder("mnt");
    let mut slowest = Duration::ZERO;
    let killings = rounds(4, 50);
    for _ in 0..killings {
        let mut child = foreground(&scratch, &archive, &at);
        slowest = slowest.max(under_load(&at, 8, || {
            child.kill().unwrap();
            child.wait().unwrap();
        }));
        // Nobody unmounts it but its watcher.
        wait_until("the mount is gone", || !is_mounted(&at));
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    }
    println!("{killings} daemons killed under 8 readers: the slowest reader ended after {slowest:?}");
}

#[test]
fn signals_under_load_end_it_with_the_right_code() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let mut slowest = Duration::ZERO;
    for which in [Signal::TERM, Signal::INT, Signal::HUP] {
        for round in 0..rounds(3, 50) {
            let at = scratch.path("mnt");
            let mut child = foreground(&scratch, &archive, &at);
            let twice = round % 2 == 1;
            under_load(&at, 4, || {
                let start = Instant::now();
                signal(&child, which);
                if twice {
                    signal(&child, which);
                }
                let status = child.wait().unwrap();
                slowest = slowest.max(start.elapsed());
                let code = status.code();
                assert!(code == Some(0) || twice && code == Some(130), "{which:?}: {status:?}");
            });
            // Behind a second signal, whoever watches takes it away.
            wait_until(&format!("{which:?}: the mount point goes"), || is_gone(&at));
        }
    }
    println!("ended within {slowest:?}");
}

/// > A signal that ends nobody is no error for who reads bytes that come within half a second of it.
///
/// As of a profiler's timer. What is not verified yet is read past the page cache, where each request gets the signal.
#[test]
fn a_timer_breaks_no_read() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        r"seq 1 5500000 > numbers
cat > zip.py <<'E'
import zipfile
with zipfile.ZipFile('a.zip', 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.write('numbers')
E
cat > read.py <<'E'
import ctypes, errno, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = ctypes.c_void_p
libc.fread.restype = ctypes.c_size_t
libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
for name in 'ferror', 'clearerr':
    getattr(libc, name).argtypes = [ctypes.c_void_p]
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
# SA_RESTART.
signal.siginterrupt(signal.SIGALRM, False)
file = libc.fopen(sys.argv[1].encode(), b'r')
assert file
signal.setitimer(signal.ITIMER_REAL, .003, .003)
buffer = ctypes.create_string_buffer(1 << 16)
read = bytearray()
while True:
    begin = time.monotonic()
    got = libc.fread(buffer, 1, len(buffer), file)
    error, took = ctypes.get_errno(), time.monotonic() - begin
    read += buffer.raw[:got]
    if got == len(buffer):
        continue
    if not libc.ferror(file):
        break
    # A machine with other work may have needed longer.
    assert error == errno.EINTR and took > .4, f'{errno.errorcode[error]} after {took} s and {len(read)} bytes'
    libc.clearerr(file)
signal.setitimer(signal.ITIMER_REAL, 0)
assert ticks > 0
with open('numbers', 'rb') as numbers:
    assert numbers.read() == read
E
python3 zip.py",
    );
    let mount = Mounted::new(&scratch, scratch.path("a.zip"), &[]);
    scratch.shell(&format!("timeout -k 1 300 python3 read.py {}", mount.path("numbers").display()));
    mount.unmount();
}

#[test]
fn mounts_that_hide_what_they_need_still_work() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo hello > tree/file; seq 1 300000 > tree/numbers; for i in $(seq 1100); do : > tree/$i; done",
    );
    let content = fs::read(scratch.path("tree/numbers")).unwrap();
    // Paths from a fresh folder `home` that holds `a.tar.gz`: working folder, options and archive, mount point.
    let arrangements: [(&str, &[&str], &str, &str); 8] = [
        ("the archive is inside the mount point", &[], "a.tar.gz", "."),
        ("and the index as well", &["--index-folders", "."], "a.tar.gz", "."),
        ("the index has a folder inside the mount point", &["--index-folders", "sub/index"], "a.tar.gz", "sub"),
        ("the index is a file inside the mount point", &["--index-file", "sub/i.sqlite"], "a.tar.gz", "sub"),
        ("the log is inside the mount point", &["--log-file", "sub/log", "-d", "3"], "a.tar.gz", "sub"),
        ("the archive is reached through a link in the mount point", &[], "sub/link", "sub"),
        ("the mount point is a link to the archive's folder", &[], "a.tar.gz", "../there"),
        ("the archive and its folder are reached through the mount point's parent", &[], "sub/../a.tar.gz", "../home"),
    ];
    for (what, options, archive, at) in arrangements {
        scratch.shell(
            "mkdir -p home/sub; tar -C tree -czf home/a.tar.gz .; ln -s ../a.tar.gz home/sub/link; ln -sfn home there",
        );
        let home = scratch.path("home");
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300", env!("CARGO_BIN_EXE_tarnfs"), "-c"]).args(options).args([archive, at]);
        command.env("XDG_CACHE_HOME", scratch.path("cache")).current_dir(&home).stdin(Stdio::null());
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        // Each in a process of its own that can be given up.
        let reads = |path: &Path| {
            let output = Command::new("timeout").args(["-k", "1", "300", "cat"]).arg(path).output().unwrap();
            assert!(output.status.success() && output.stdout == content, "{what}: {}", path.display());
        };
        let mounted = home.join(at);
        reads(&mounted.join("numbers"));
        let listed =
            Command::new("timeout").args(["-k", "1", "300", "ls", "-lR"]).arg(mounted.join(".")).output().unwrap();
        assert!(listed.status.success() && listed.stdout.len() > 1100, "{what}");
        let ran = Ran::from(
            Command::new("timeout")
                .args(["-k", "1", "300", env!("CARGO_BIN_EXE_tarnfs"), "-u"])
                .arg(&mounted)
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        scratch.shell("rm -r home");
    }
    // An archive inside a mounted archive, mounted over the mount that it is read through.
    scratch.shell("mkdir outer mnt; tar -C tree -czf outer/a.tar.gz .; tar -C outer -cf outer.tar .");
    let at = scratch.path("mnt");
    run(&scratch, [scratch.path("outer.tar").as_os_str(), at.as_os_str()]).ok();
    run(&scratch, ["-o".as_ref(), "nonempty".as_ref(), at.join("a.tar.gz").as_os_str(), at.as_os_str()]).ok();
    assert!(fs::read(at.join("numbers")).unwrap() == content);
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert!(at.join("a.tar.gz").exists());
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
}

/// Resident memory of a process in KiB.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn lookups_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo hello > tree/file; for i in $(seq 2000); do : > tree/$i; done; tar -C tree -cf a.tar .",
    );
    let at = scratch.folder("mnt");
    let mut child = foreground(&scratch, &scratch.path("a.tar"), &at);
    let lookups = rounds(200_000, 10_000_000);
    let look_up = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            // Names that the kernel has not asked for before.
            let error = rustix::fs::stat(at.join(format!("none {number}"))).unwrap_err();
            assert_eq!(error, Errno::NOENT);
        }
    };
    look_up(0..lookups / 10);
    let before = resident(child.id());
    look_up(lookups / 10..lookups);
    let after = resident(child.id());
    println!("{lookups} lookups: {before} KiB before, {after} KiB after");
    assert!(after <= before + 1024, "{before} KiB before, {after} KiB after");
    assert!(statistics(&at)["requests"]["lookup"].as_u64().unwrap() >= lookups);
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A folder with the program and an archive in which everybody may do everything, and no way to become root.
fn stage(scratch: &Scratch) {
    scratch.shell(
        "mkdir tree; echo hello > tree/file; cp /usr/bin/id tree/id; cp /usr/bin/grep tree/grep; cp /usr/bin/cat tree/cat
         chmod 4755 tree/id; mknod tree/null c 1 3; chmod 666 tree/null; mknod tree/disk b 7 0; chmod 666 tree/disk
         setcap cap_net_raw,cap_sys_admin+ep tree/grep 2> /dev/null || true
         echo secret > tree/private; chmod 600 tree/private; chmod 755 . tree
         tar --xattrs --xattrs-include='*' --format=posix -C tree -cf a.tar .; chmod 644 a.tar",
    );
    scratch.program("tarnfs");
}

#[test]
fn whatever_mounts_it_the_mount_gives_no_rights() {
    if !can_mount() || !have("su") || !have("unshare") {
        return;
    }
    let scratch = Scratch::new();
    stage(&scratch);
    scratch.shell("mkdir home; chmod 777 home; ln -s tarnfs mount.fuse.tarnfs");
    in_own_namespace(|_| {
        let home = scratch.path("home");
        // Who mounts, as the start of a shell's command line, and the program.
        let who: [(&str, &[&str], &str); 4] = [
            ("root", &["sh", "-c"], "../tarnfs ../a.tar"),
            (
                "a user",
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"],
                "../tarnfs ../a.tar",
            ),
            (
                "a user namespace",
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urm", "sh", "-c"],
                "../tarnfs ../a.tar",
            ),
            ("fstab", &["sh", "-c"], "../mount.fuse.tarnfs ../a.tar"),
        ];
        for (name, words, program) in who {
            // The last three are what fstab's "defaults" stand for, and mean nothing here.
            for options in ["ro", "suid", "dev", "rw,suid,dev"] {
                // A folder of its own each, as the one before is removed some time after it was unmounted.
                let at = format!("{name}-{options}").replace([' ', ','], "-");
                let script = format!(
                    "export XDG_CACHE_HOME=$PWD; {program} {at} -o {options} || exit 9; grep \" $PWD/{at} \" /proc/self/mountinfo; \
                     cat {at}/disk {at}/null; echo denied $?; {at}/id -u; umount {at} 2> /dev/null || ../tarnfs -u {at}; rmdir {at} 2> /dev/null; true"
                );
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).arg(&script).current_dir(&home).stdin(Stdio::null());
                let ran = Ran::from(command.output().unwrap());
                if name == "a user namespace" && ran.err.contains("unshare") {
                    println!("left out: user namespaces are off");
                    continue;
                }
                if name == "a user" && ran.err.contains("fusermount3") {
                    println!("left out: fusermount3 is not installed");
                    continue;
                }
                let text = ran.text();
                assert_eq!(ran.code, 0, "{name}, {options}: {}", ran.err);
                let line = text.lines().next().unwrap_or_default();
                let flags: Vec<_> = line.split(' ').nth(5).unwrap_or_default().split(',').collect();
                assert!(["ro", "nosuid", "nodev"].iter().all(|flag| flags.contains(flag)), "{name}, {options}: {text}");
                assert!(
                    text.contains("denied 1") && ran.err.contains("Permission denied"),
                    "{name}, {options}: {}",
                    ran.err
                );
            }
        }
    });
}

/// > An archive gives nobody rights: no set-user-id bit, device or capability works in a mount.
#[test]
fn set_user_id_and_capabilities_mean_nothing_in_a_mount() {
    if !can_mount() || !have("setcap") {
        return;
    }
    let scratch = Scratch::new();
    stage(&scratch);
    let mount = Mounted::new(&scratch, scratch.path("a.tar"), &["-o", "allow_other"]);
    let nobody = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        Ran::from(command.args(arguments).uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().unwrap())
    };
    // They do mean something where they were taken from, else this would prove nothing.
    for (folder, user, has_capabilities) in [(scratch.path("tree"), "0", true), (mount.at.clone(), "65534", false)] {
        assert_eq!(nobody(&folder.join("id"), &["-u"]).ok().text().trim(), user);
        let line = nobody(&folder.join("grep"), &["CapEff", "/proc/self/status"]).ok().text();
        assert_eq!(!line.contains("0000000000000000"), has_capabilities, "{}: {line}", folder.display());
    }
    // They are shown as they are stored.
    assert_eq!(fs::metadata(mount.path("id")).unwrap().permissions().mode() & 0o7777, 0o4755);
    let mut value = [0; 100];
    assert!(rustix::fs::getxattr(mount.path("grep"), "security.capability", &mut value[..]).unwrap() > 0);
    for device in ["null", "disk"] {
        let error = fs::File::open(mount.path(device)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{device}");
    }
    mount.unmount();
}

/// > With `allow_other` the kernel checks owner and mode of each file for each user.
#[test]
fn what_root_has_read_others_may_not() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    stage(&scratch);
    let mount = Mounted::new(&scratch, scratch.path("a.tar"), &["-o", "allow_other"]);
    let private = mount.path("private");
    let others = |program: &str| {
        let mut command = Command::new(program);
        let output = command.arg(&private).uid(NOBODY).gid(NOBODY).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for round in 0..rounds(60, 1000) {
        // Cold first, then from the kernel's caches of data, names and rights.
        let (can, said) = others("cat");
        assert!(!can && said.contains("Permission denied"), "round {round}: {said}");
        assert_eq!(fs::read(&private).unwrap(), b"secret\n");
        if round % 10 == 0 {
            let file = fs::File::open(&private).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
    mount.unmount();
    // Without it, nobody else gets in at all.
    let mount = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    let ran = Command::new("ls").arg(&mount.at).uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(!ran.status.success() && ran.stdout.is_empty());
    mount.unmount();
}

#[test]
fn without_the_device_it_says_so() {
    if !can_mount() || !have("unshare") {
        return;
    }
    let scratch = Scratch::new();
    stage(&scratch);
    let script = format!("mount -t tmpfs none /dev && exec {} a.tar mnt", env!("CARGO_BIN_EXE_tarnfs"));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(scratch.path("")).stdin(Stdio::null());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("/dev/fuse does not exist") && ran.err.contains("modprobe fuse"), "{}", ran.err);
    assert!(!scratch.path("mnt").exists());
}

#[test]
fn extended_attributes_are_bounded_as_the_kernels() {
    const MANY: usize = 10_000;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - << 'E'
import tarfile, io
def add(tar, name, xattrs):
    info = tarfile.TarInfo(name)
    info.pax_headers = {'SCHILY.xattr.' + key: value for key, value in xattrs}
    tar.addfile(info)
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    add(tar, 'many', [('user.%d' % number, 'value %d' % number) for number in range(10000)])
    add(tar, 'some', [('user.%d' % number, 'value %d' % number) for number in range(1000)])
    add(tar, 'odd', [('user.' + 'n' * 250, 'longest'), ('user.' + 'n' * 251, 'too long'), ('user.' + 'x' * 4000, 'far too long'),
                     ('user.large', 'v' * 65536), ('user.larger', 'v' * 65537), ('trusted.t', 't'), ('security.s', 's'),
                     ('nonsense', 'no namespace'), ('user.', 'no name'), ('user.tarnfs.statistics', 'not those')])
E",
    );
    let mount = Mounted::any(&scratch, scratch.path("a.tar"), &[]);
    assert!(matches!(mount.ran.code, 0 | 5), "{}", mount.ran.err);
    let list = |name: &str| {
        let mut names = vec![0; 1 << 16];
        rustix::fs::listxattr(mount.path(name), &mut names[..]).map(|length| {
            names[..length]
                .split(|&byte| byte == 0)
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        })
    };
    let get = |file: &str, name: &str| {
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::getxattr(mount.path(file), name, &mut value[..])?;
        value.truncate(length);
        Ok::<_, Errno>(value)
    };
    // A list that is longer than any file system may have is an error of the list; each attribute is there.
    assert!(matches!(list("many"), Err(Errno::TOOBIG | Errno::RANGE)), "{:?}", list("many").map(|list| list.len()));
    for number in (0..MANY).step_by(997) {
        assert_eq!(get("many", &format!("user.{number}")).unwrap(), format!("value {number}").into_bytes());
    }
    let some = list("some").unwrap();
    assert_eq!(some.len(), 1000);
    let odd = list("odd").unwrap();
    assert!(odd.iter().all(|name| name.len() <= 255), "{odd:?}");
    assert_eq!(get("odd", &format!("user.{}", "n".repeat(250))).unwrap(), b"longest");
    assert_eq!(get("odd", "user.large").unwrap().len(), 65536);
    assert!(get("odd", "user.larger").is_err());
    assert_eq!(get("odd", "trusted.t").unwrap(), b"t");
    assert_eq!(get("odd", "security.s").unwrap(), b"s");
    // As stored; only the root's is the mount's own.
    assert_eq!(get("odd", "user.tarnfs.statistics").unwrap(), b"not those");
    assert!(get("", "user.tarnfs.statistics").unwrap().starts_with(b"{"));
    mount.unmount();
}

/// > The daemon needs few file descriptors and little memory.
#[test]
fn few_descriptors_are_enough() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 600); do seq $i 3000 > tree/$i; done; tar -C tree -czf a.tar.gz .");
    let at = scratch.path("mnt");
    let script = format!(
        "ulimit -n 64; exec {} {} {}",
        env!("CARGO_BIN_EXE_tarnfs"),
        scratch.path("a.tar.gz").display(),
        at.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("XDG_CACHE_HOME", scratch.path("cache")).stdin(Stdio::null());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (at, tree) = (&at, scratch.path("tree"));
            scope.spawn(move || {
                for number in (1..=600).skip(thread).step_by(4) {
                    let name = number.to_string();
                    assert!(fs::read(at.join(&name)).unwrap() == fs::read(tree.join(&name)).unwrap());
                }
            });
        }
    });
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
}

#[test]
fn processes_that_fork_share_what_they_opened() {
    if !can_mount() || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let mount = Mounted::new(&scratch, &archive, &["-d", "2"]);
    // As a data loader does: files opened before the fork, read by all at the same time.
    let (processes, reads) = (rounds(8, 16), rounds(100, 1000));
    let script = format!(
        "import os, random
opened = os.open('{mount}/numbers', os.O_RDONLY)
right = open('{tree}/numbers', 'rb').read()
children = []
for number in range({processes}):
    child = os.fork()
    if child == 0:
        random.seed(number)
        own = os.open('{mount}/numbers', os.O_RDONLY)
        for _ in range({reads}):
            at, length = random.randrange(len(right)), random.randrange(1, 200000)
            for file in opened, own:
                if os.pread(file, length, at) != right[at:at + length]: os._exit(1)
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
",
        mount = mount.at.display(),
        tree = scratch.path("tree").display(),
    );
    let output = Command::new("timeout").args(["-k", "1", "1200", "python3", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = statistics(&mount.at);
    assert_eq!((&after["panics"], &after["deadlines_missed"]), (&0.into(), &0.into()), "{after}");
    mount.unmount();
}

#[test]
fn an_archive_that_cannot_be_mounted_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    for options in [&["-o", "colour=blue"][..], &["-o", "uid=me"], &["-P", "many"]] {
        let mut command = tarnfs(&scratch);
        let ran = Ran::from(command.args(options).arg(&archive).arg(scratch.path("mnt")).output().unwrap());
        assert!(matches!(ran.code, 2 | 6), "{options:?}: {}", ran.err);
        assert!(!scratch.path("mnt").exists(), "{options:?}");
    }
}
