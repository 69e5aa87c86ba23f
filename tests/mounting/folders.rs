//! A folder seen through a mount is the folder: every name, attribute and byte, as they are at each moment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    self, Compare, DEFAULT_SIGNALS, Mounted, Scratch, assert_twins, behind, can_mount, can_pass_through, foreground,
    is_mounted, make_tree, run, signal, statistics, wait_until,
};
use rustix::process::Signal;

/// How long the kernel may keep what it was told of something that can change, and some more.
const A_WHILE: Duration = Duration::from_millis(1500);

/// > A folder is shown as it is: names, attributes, access control lists, holes and bytes.
#[test]
fn a_folder_is_shown_as_it_is() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let tree = make_tree(&scratch);
    scratch.shell(
        "truncate -s 3G tree/holes; echo data | dd of=tree/holes bs=1M seek=2000 conv=notrunc status=none
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"tree/socket\")'
         setfattr -n user.colour -v blue tree/file; setfattr -n trusted.secret -v x tree/folder
         setfattr -n user.large -v $(printf 'v%.0s' $(seq 3000)) tree/block
         setfacl -m u:1234:rwx tree/folder; setfacl -d -m g:77:r tree/folder",
    );
    let mount = Mounted::new(&scratch, &tree, &[]);
    let exact = Compare { holes: true, ..Compare::default() };
    assert_twins(&mount.at, &tree, exact);
    // And once more, from what the kernel has kept.
    assert_twins(&mount.at, &tree, exact);
    let seen = |root: &Path| {
        scratch.shell(&format!("cd {} && find . -printf '%P %y %m %U %G %n %b %T@ %C@ %l\\n' | sort", root.display()))
    };
    assert_eq!(seen(&mount.at), seen(&tree));
    let nodes = |names: [&str; 3]| names.map(|name| fs::symlink_metadata(mount.path(name)).unwrap().ino());
    let [first, second, third] = nodes(["file", "folder/hard", "zz-hard"]);
    assert!(first == second && second == third, "names of one file are one node");
    mount.unmount();
}

/// > A change in a folder shows up within a second.
#[test]
fn what_changes_shows_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    changes(&scratch, &scratch.folder("tree"));
}

/// The same where the kernel does not read the files itself: not those of file systems that stand on others.
#[test]
fn what_changes_shows_up_without_the_kernels_help() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let over = scratch.folder("over");
    let mount = "mkdir lower upper work; mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work over";
    let made = Command::new("bash").args(["-ec", mount]).current_dir(scratch.path("")).output().unwrap();
    if !made.status.success() {
        println!("left out: overlayfs cannot be mounted here");
        return;
    }
    let _unmount = Unmount(over.clone());
    changes(&scratch, &over);
    fs::write(over.join("text"), "read by us").unwrap();
    let mount = Mounted::new(&scratch, &over, &["-d", "2"]);
    assert_eq!(fs::read(mount.path("text")).unwrap(), b"read by us");
    let counted = statistics(&mount.at);
    assert_eq!(counted["bytes_read"], 10, "{counted}");
    mount.unmount();
}

/// Unmounts what a test has mounted.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn changes(scratch: &Scratch, tree: &Path) {
    fs::write(tree.join("text"), "one").unwrap();
    symlink("one", tree.join("link")).unwrap();
    fs::create_dir_all(tree.join("old/inner")).unwrap();
    fs::write(tree.join("old/inner/file"), "inner").unwrap();
    let mount = Mounted::new(scratch, tree, &[]);
    let read = |name: &str| fs::read_to_string(mount.path(name));
    assert_eq!(read("text").unwrap(), "one");
    assert!(read("new").is_err());
    let mut open = File::open(mount.path("text")).unwrap();
    fs::write(tree.join("text"), "two and more").unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    symlink("two", tree.join("link")).unwrap();
    fs::rename(tree.join("old"), tree.join("moved")).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(read("text").unwrap(), "two and more");
    assert_eq!(fs::metadata(mount.path("text")).unwrap().len(), 12);
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two and more", "through what was open before");
    drop(open);
    assert_eq!(read("new").unwrap(), "new");
    assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("two"));
    assert_eq!(read("moved/inner/file").unwrap(), "inner");
    assert!(read("old/inner/file").is_err());
    // Replaced by another file of the same name and length, and by another kind.
    fs::write(tree.join("other"), "TWO AND MORE").unwrap();
    fs::rename(tree.join("other"), tree.join("text")).unwrap();
    fs::remove_file(tree.join("new")).unwrap();
    fs::create_dir(tree.join("new")).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(read("text").unwrap(), "TWO AND MORE");
    assert!(mount.path("new").is_dir());
    // Cut short, and then other bytes at once, which nobody can tell by length or by name.
    fs::write(tree.join("text"), "").unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(read("text").unwrap(), "");
    for round in 0..20 {
        fs::write(tree.join("moved/inner/file"), format!("round {round:2}")).unwrap();
        assert_eq!(read("moved/inner/file").unwrap()[..5], *"round");
    }
    std::thread::sleep(A_WHILE);
    assert_eq!(read("moved/inner/file").unwrap(), "round 19");
    // In place, of the same length, read where the kernel has read before, through what was open before.
    let held = File::open(mount.path("moved/inner/file")).unwrap();
    let mut bytes = [0; 8];
    held.read_exact_at(&mut bytes, 0).unwrap();
    File::options().write(true).open(tree.join("moved/inner/file")).unwrap().write_all(b"ROUND 20").unwrap();
    std::thread::sleep(A_WHILE);
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"ROUND 20");
    drop(held);
    assert_twins(&mount.at, tree, Compare::default());
    mount.unmount();
}

/// > An open file of a folder can be read to its end even if its name is gone.
#[test]
fn what_is_open_outlives_its_name() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("file"), &bytes).unwrap();
    let mount = Mounted::new(&scratch, &tree, &[]);
    let mut file = File::open(mount.path("file")).unwrap();
    let mut start = vec![0; 1000];
    file.read_exact(&mut start).unwrap();
    fs::remove_file(tree.join("file")).unwrap();
    std::thread::sleep(A_WHILE);
    assert!(!mount.path("file").exists());
    assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    assert!(all == bytes);
    drop(file);
    mount.unmount();
}

/// > The kernel itself reads files of a folder if it can.
#[test]
fn the_kernel_reads_files_itself() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 300000 > tree/numbers; ln tree/numbers tree/again");
    if !can_pass_through(&scratch) {
        return;
    }
    let mount = Mounted::new(&scratch, scratch.path("tree"), &["-d", "2"]);
    let twin = fs::read(scratch.path("tree/numbers")).unwrap();
    let readers: Vec<File> =
        ["numbers", "again", "numbers"].iter().map(|name| File::open(mount.path(name)).unwrap()).collect();
    for (number, reader) in readers.iter().enumerate() {
        let mut part = vec![0; 70_000];
        reader.read_exact_at(&mut part, 1000 * number as u64).unwrap();
        assert!(part == twin[1000 * number..][..70_000]);
    }
    assert!(fs::read(mount.path("again")).unwrap() == twin);
    let counted = statistics(&mount.at);
    assert_eq!(counted["bytes_read"], 0, "{counted}");
    drop(readers);
    mount.unmount();
}

/// > Nothing outside a mounted folder is reached, even if a part of it becomes a symbolic link while it is in use.
#[test]
fn nothing_outside_the_folder_is_reached() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/a/b outside/b; echo inside > tree/a/b/file; echo secret > outside/b/file; ln -s ../outside tree/out");
    let mount = Mounted::new(&scratch, scratch.path("tree"), &[]);
    assert_eq!(fs::read_to_string(mount.path("a/b/file")).unwrap(), "inside\n");
    let folder = File::open(mount.path("a/b")).unwrap();
    scratch.shell("mv tree/a tree/z; ln -s ../outside tree/a");
    // From the folder that is held, without a look at its own name.
    let held = rustix::fs::openat(&folder, "file", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    let mut text = String::new();
    if let Ok(held) = held {
        File::from(held).read_to_string(&mut text).unwrap();
    }
    assert!(!text.contains("secret"), "{text}");
    std::thread::sleep(A_WHILE);
    assert_eq!(fs::read_link(mount.path("a")).unwrap(), Path::new("../outside"));
    assert_eq!(fs::read_to_string(mount.path("z/b/file")).unwrap(), "inside\n");
    drop(folder);
    mount.unmount();
}

/// Listings go on where they were, also in folders that are larger than one answer, listed by several at once and
/// changed meanwhile.
#[test]
fn large_folders_are_listed_once_by_each() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder("tree/many");
    for number in 0..5000 {
        File::create(folder.join(format!("name-{number}-{}", "x".repeat(number % 100)))).unwrap();
    }
    let mount = Mounted::new(&scratch, scratch.path("tree"), &[]);
    let many = mount.path("many");
    let list = || {
        let mut names: Vec<_> = fs::read_dir(&many).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(all, names.len(), "a name came twice");
        names.iter().filter(|name| name.as_bytes().starts_with(b"name-")).count()
    };
    std::thread::scope(|scope| {
        let listers: Vec<_> = (0..12).map(|_| scope.spawn(list)).collect();
        for number in 0..500 {
            fs::write(folder.join(format!("new-{number}")), "").unwrap();
        }
        assert!(listers.into_iter().all(|lister| lister.join().unwrap() == 5000));
    });
    // From the middle, in folders that nobody keeps open for it any more.
    let script = "import ctypes, os, sys
c = ctypes.CDLL(None)
c.opendir.restype = c.readdir.restype = ctypes.c_void_p
c.telldir.argtypes = c.readdir.argtypes = c.closedir.argtypes = [ctypes.c_void_p]
c.telldir.restype = ctypes.c_long
c.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
name = lambda e: ctypes.string_at(e + 19)
d = c.opendir(sys.argv[1].encode())
seen = []
while True:
    at = c.telldir(d)
    e = c.readdir(d)
    if not e: break
    seen.append((at, name(e)))
for at, expected in seen[::97]:
    c.seekdir(d, at)
    got = name(c.readdir(d))
    assert got == expected, (at, got, expected)
print(len(seen))";
    let done = Command::new("python3").args(["-c", script]).arg(&many).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "5502");
    // Listings that were left in the middle keep nothing busy.
    scratch.shell("mkdir tree/disk; mount -t tmpfs none tree/disk; touch tree/disk/f{1..3000}");
    std::thread::sleep(A_WHILE);
    let mut left = fs::read_dir(mount.path("disk")).unwrap();
    assert!(left.next().unwrap().is_ok());
    drop(left);
    wait_until("it can be unmounted", || {
        Command::new("umount").arg(scratch.path("tree/disk")).stderr(Stdio::null()).status().unwrap().success()
    });
    mount.unmount();
}

/// With 64 descriptors, as many files as anybody wants to have open at once are read right.
#[test]
fn few_descriptors_are_enough() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    for number in 0..300 {
        let folder = tree.join(format!("{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{number}")), format!("{number} ").repeat(5000)).unwrap();
    }
    for options in [&[][..], &["--no-sandbox"]] {
        let at = scratch.folder("at");
        let limited = ["bash", "-c", "ulimit -n 64; exec \"$@\"", "bash"];
        let ran = behind(&scratch, &limited).args(options).arg(&tree).arg(&at).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let open: Vec<_> =
            (0..300).map(|number| (number, File::open(at.join(format!("{}/{number}", number % 7))).unwrap())).collect();
        let mut listings: Vec<_> = (0..7).map(|number| fs::read_dir(at.join(format!("{number}"))).unwrap()).collect();
        for (number, mut file) in open {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert!(text == format!("{number} ").repeat(5000), "{number}");
        }
        assert!(listings.iter_mut().all(|listing| listing.next().is_some()));
        assert_twins(&at, &tree, Compare::default());
        drop(listings);
        run(&scratch, [OsStr::new("-u"), at.as_os_str()]).ok();
    }
}

/// What the kernel forgets is forgotten: memory does not grow with what was ever looked at.
#[test]
fn files_that_come_and_go_leave_nothing() {
    if !can_mount() {
        return;
    }
    if fs::write("/proc/sys/vm/drop_caches", "2").is_err() {
        println!("left out: this system does not let us tell the kernel to forget");
        return;
    }
    let scratch = Scratch::new();
    let (tree, at) = (scratch.folder("tree"), scratch.folder("at"));
    fs::write(tree.join("file"), "").unwrap();
    let mut daemon = support::foreground(&scratch, &tree, &at);
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let round = |number: u64| {
        let folder = tree.join(format!("round-{number}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..3000 {
            fs::write(folder.join(format!("{number}-{file}-{}", "long name ".repeat(15))), "").unwrap();
        }
        let seen = fs::read_dir(at.join(format!("round-{number}")))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().metadata().is_ok());
        assert_eq!(seen.count(), 3000);
        fs::remove_dir_all(folder).unwrap();
        // Of what is gone the kernel lets go when it looks again, or is told to.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    };
    (0..3).for_each(round);
    let before = resident();
    (3..15).for_each(round);
    let grown = resident().saturating_sub(before);
    // They would be 8 MiB.
    assert!(grown < 3 << 10, "grown by {grown} KiB");
    run(&scratch, [OsStr::new("-u"), at.as_os_str()]).ok();
    daemon.wait().unwrap();
}

/// What the program gives up once it has mounted is not what it needs for a folder.
#[test]
fn the_sandbox_leaves_the_folder_open() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let tree = make_tree(&scratch);
    scratch.shell("setfattr -n user.colour -v blue tree/file; setfacl -m u:1234:rwx tree/folder");
    let at = scratch.folder("at");
    let mut command = behind(&scratch, DEFAULT_SIGNALS);
    let command = command.arg("-f").args(["-d", "3"]).arg(&tree).arg(&at);
    let mut daemon = command.stderr(File::create(scratch.path("said")).unwrap()).spawn().unwrap();
    wait_until("it is mounted", || is_mounted(&at));
    let said = || fs::read_to_string(scratch.path("said")).unwrap();
    wait_until("it has given up its rights", || said().contains("sandbox for system calls"));
    assert_twins(&at, &tree, Compare::default());
    let mut new = File::create(tree.join("made later")).unwrap();
    new.write_all(b"later").unwrap();
    assert_eq!(fs::read(at.join("made later")).unwrap(), b"later");
    // With the rights of the daemon, if it is the kernel that opens it.
    fs::copy("/bin/true", tree.join("program")).unwrap();
    assert!(Command::new(at.join("program")).status().unwrap().success());
    run(&scratch, [OsStr::new("-u"), at.as_os_str()]).ok();
    assert!(daemon.wait().unwrap().success());
}

/// Without any rights: names that can be read and nothing else, in a mount that no helper has made.
#[test]
fn what_may_not_be_looked_at_is_refused_and_listed() {
    let may = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urm", "--"];
    let can = Command::new(may[0]).args(&may[1..]).arg("true").stderr(Stdio::null()).status();
    if !can_mount() || !can.is_ok_and(|status| status.success()) {
        println!("left out: needs user namespaces");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; chmod 755 .; mkdir -p tree/closed tree/listed; mkdir at; chmod 777 at
         echo text > tree/file; echo secret > tree/secret; chmod 600 tree/secret
         touch tree/closed/x tree/listed/y; mkdir tree/listed/z; chmod 700 tree/closed; chmod 744 tree/listed",
    );
    support::in_own_namespace(|_| {
        // Where the user can execute it.
        scratch.program("tarnfs");
        let script = "./tarnfs tree at || exit; cat at/file at/secret; find at -printf '%y %P\\n' | LC_ALL=C sort; ./tarnfs -u at";
        let mut command = behind(&scratch, &[&may[..], &["bash", "-c", script]].concat());
        let done = support::Ran::from(command.current_dir(scratch.path("")).output().unwrap()).ok();
        assert_eq!(done.text(), "text\nd \nd closed\nd listed\nf file\nf listed/y\nf secret\n");
        // As find says of the folder itself.
        for refused in ["at/secret", "at/closed", "at/listed/z"] {
            let says = |line: &str| line.contains(refused) && line.contains("Permission denied");
            assert!(done.err.lines().any(says), "{refused}: {}", done.err);
        }
    });
}

/// Another mount, whose process is stopped: whoever asks it waits. It goes on when this is dropped.
struct Stopped(support::Daemon);

impl Drop for Stopped {
    fn drop(&mut self) {
        for what in [Signal::CONT, Signal::TERM] {
            signal(&self.0, what);
        }
        let _ = self.0.wait();
    }
}

/// Programs that wait for an answer of a stopped process, until this is dropped.
struct Waiting(Vec<std::process::Child>, rustix::process::Pid);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Who waits for an answer in the kernel may not be killed before it comes.
        let _ = rustix::process::kill_process(self.1, Signal::CONT);
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The same of what a mount is, and of what stands in it, where these lie on a server: here, another mount.
#[test]
fn what_changes_on_a_server_shows_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p b/x b/y; chmod 755 b b/x b/y");
    let server = Mounted::new(&scratch, scratch.path("b"), &[]);
    let (x, y) = (server.path("x"), server.path("y"));
    let mounted = Mounted::new(&scratch, &x, &["--disable-union-mount", y.to_str().unwrap()]);
    let modes = || -> Vec<u32> {
        let modes = fs::read_dir(&mounted.at).unwrap().map(|entry| entry.unwrap().metadata().unwrap().mode() & 0o777);
        let mut modes: Vec<u32> = modes.collect();
        modes.sort_unstable();
        modes
    };
    assert_eq!(modes(), [0o755, 0o755]);
    scratch.shell("chmod 700 b/x");
    // Whoever lists again and again is told, too.
    wait_until("the listing says so", || modes() == [0o700, 0o755]);
    mounted.unmount();
    let mounted = Mounted::new(&scratch, &server.at, &["--control-interface"]);
    let mode = || fs::metadata(&mounted.at).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o755);
    scratch.shell("chmod 750 b");
    wait_until("the root says so", || mode() == 0o750);
    mounted.unmount();
    server.unmount();
}

/// A server that does not answer, under a mounted folder, leaves threads to what stands beside it.
#[test]
fn what_gets_no_answer_does_not_hold_up_what_stands_beside_it() {
    if !can_mount() {
        return;
    }
    for source in ["tree/dead", "tree"] {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir -p c tree/dead; for i in $(seq 100); do echo $i > c/$i; done; echo > c/file; tar cf inner.tar -C c .
             mkdir -p d/deep; seq 100000 > d/deep/numbers; tar czf a.tgz -C d .; seq 200000 > d/deep/other; tar cf b.tar -C d .",
        );
        let dead = Stopped(foreground(&scratch, &scratch.path("inner.tar"), &scratch.path("tree/dead")));
        let (tree, b) = (scratch.path(source), scratch.path("b.tar"));
        let options = ["--disable-union-mount", tree.to_str().unwrap(), b.to_str().unwrap()];
        let mounted = Mounted::new(&scratch, scratch.path("a.tgz"), &options);
        let below =
            mounted.path(source.rsplit('/').next().unwrap()).join(source.strip_prefix("tree/").map_or("dead", |_| ""));
        assert_eq!(fs::read_to_string(below.join("1")).unwrap(), "1\n");
        signal(&dead.0, Signal::STOP);
        let cat = |number| {
            Command::new("cat")
                .arg(below.join(format!("{number}")))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let waiting = Waiting((2..=80).map(cat).collect(), rustix::process::Pid::from_child(&dead.0));
        wait_until("they wait", || statistics(&mounted.at)["in_flight"].as_u64().unwrap() >= 40);
        // In a process of its own: if it waits, too, it has to be killed.
        let reads = format!(
            "set -e; cd {}; ls | wc -l; wc -l < a.tgz/deep/numbers; wc -l < b.tar/deep/other; ls a.tgz/deep; stat -c %F b.tar/deep",
            mounted.at.display()
        );
        let output = Command::new("timeout").args(["-s", "KILL", "50", "bash", "-c", &reads]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "3\n100000\n200000\nnumbers\ndirectory\n", "{source}");
        assert_eq!(statistics(&mounted.at)["panics"], 0);
        drop(waiting);
        drop(dead);
        mounted.unmount();
    }
}
