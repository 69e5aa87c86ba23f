//! What the tests share: scratch folders, the built program, mounts that go away, and the twin comparison.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod namespace;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test file uses some of it")]
pub(crate) use namespace::in_own_namespace;
use rustix::process::{Pid, Signal, kill_process};

/// A folder that is removed at the end of a test.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("tarnfs-test-").tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// A copy of the program. Another process writes it: a child that a test beside this one starts meanwhile would
    /// have the file open, too, and nobody could run it (ETXTBSY).
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tarnfs")).arg(&path).status().unwrap();
        assert!(copied.success());
        path
    }

    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs a shell script in this folder; it must succeed.
    pub(crate) fn shell(&self, script: &str) -> String {
        let output =
            Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Unmounts what the kernel mounted. A child that a test beside this one starts may have a file of it open until
    /// its program runs.
    pub(crate) fn unmount(&self, place: &str) {
        self.shell(&format!("for i in $(seq 20); do umount {place} && exit; sleep 0.1; done; exit 1"));
    }
}

/// The built program, with a cache folder of its own so that no test sees another's index.
pub(crate) fn tarnfs(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarnfs"));
    in_scratch(&mut command, scratch);
    command
}

/// Of this name in a scratch folder: what is slow to decode is kept at once, not when the machine is idle.
pub(crate) const FILL_AT_ONCE: &str = "fill-at-once";

pub(crate) fn in_scratch(command: &mut Command, scratch: &Scratch) {
    command.env("XDG_CACHE_HOME", scratch.path("cache")).stdin(Stdio::null());
    if scratch.path(FILL_AT_ONCE).exists() {
        command.env("TARNFS_TEST_FILL_AT_ONCE", "1");
    }
}

/// Runs the program and returns its exit code and both outputs.
pub(crate) fn run<A: AsRef<OsStr>>(scratch: &Scratch, arguments: impl IntoIterator<Item = A>) -> Ran {
    Ran::from(tarnfs(scratch).args(arguments).output().unwrap())
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// Cuts the image `name` at forty places: of `file` in it, which has the content of `twin`, as much is read as is
/// there, and sometimes all.
#[track_caller]
pub(crate) fn assert_serves_what_is_whole(scratch: &Scratch, name: &str, (file, twin): (&str, &str)) {
    let (image, whole) = (fs::read(scratch.path(name)).unwrap(), fs::read(scratch.path(twin)).unwrap());
    let cut = scratch.path(format!("cut-{name}"));
    let mut read = 0;
    for length in (0..image.len()).step_by(image.len() / 40) {
        fs::write(&cut, &image[..length]).unwrap();
        let ran = run(scratch, ["cat".as_ref(), cut.as_os_str(), file.as_ref()]);
        assert!(!ran.err.contains("panicked"), "{length}: {}", ran.err);
        assert!(whole.starts_with(&ran.out) && (ran.code != 0 || ran.out == whole), "{length}: {}", ran.err);
        read += u32::from(ran.out == whole);
    }
    assert!(read > 10, "{read}");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// False, with a line that says so, where this machine cannot mount.
pub(crate) fn can_mount() -> bool {
    let can = is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("left out: needs root and /dev/fuse");
    }
    can
}

/// False, with a line that says so, where a program is missing.
pub(crate) fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        println!("left out: {program} is not installed");
    }
    found
}

/// `few`, or `many` where the environment asks for the long form of the tests (`TARNFS_FULL=1`).
pub(crate) fn rounds(few: u64, many: u64) -> u64 {
    if std::env::var_os("TARNFS_FULL").is_some() { many } else { few }
}

/// What a mount made with `-d 2` counts.
#[track_caller]
pub(crate) fn statistics(mount: &Path) -> serde_json::Value {
    let mut buffer = vec![0; 1 << 16];
    let length = rustix::fs::getxattr(mount, "user.tarnfs.statistics", &mut buffer[..]).unwrap();
    serde_json::from_slice(&buffer[..length]).unwrap()
}

/// True if the kernel can read and write itself what lies in a scratch folder: that takes root, Linux 6.9, and a file
/// system that is on a disk or in memory. Else it is told that a test leaves that out.
pub(crate) fn can_pass_through(scratch: &Scratch) -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (kind, user) = (scratch.shell("stat -f -c %T ."), rustix::process::geteuid());
    let can = version >= (6, 9) && user.is_root() && ["ext2/ext3", "xfs", "btrfs", "tmpfs"].contains(&kind.trim());
    if !can {
        println!(
            "skipped: the kernel reads itself as root, with Linux 6.9, on a disk; here are {version:?} and {kind}"
        );
    }
    can
}

/// The program, started by another one.
pub(crate) fn behind(scratch: &Scratch, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_tarnfs"));
    in_scratch(&mut command, scratch);
    command
}

/// Whoever runs these tests may have signals ignored (`nohup`, `&` in a script), which the program would go on to do.
pub(crate) const DEFAULT_SIGNALS: &[&str] = &["env", "--default-signal=INT,HUP"];

/// A mount in the foreground. A test that failed leaves neither it nor its process.
pub(crate) struct Daemon {
    child: Child,
    at: PathBuf,
}

impl Deref for Daemon {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Starts `command`, which mounts at `at` and stays in the foreground.
#[track_caller]
pub(crate) fn daemon(command: Command, at: &Path) -> Daemon {
    daemon_saying(command, at, Stdio::null())
}

/// The same, with this standard error.
#[track_caller]
pub(crate) fn daemon_saying(mut command: Command, at: &Path, to: Stdio) -> Daemon {
    let child = command.stdin(Stdio::null()).stderr(to).spawn().unwrap();
    let mut daemon = Daemon { child, at: at.to_owned() };
    wait_until("it is mounted", || {
        assert!(daemon.try_wait().unwrap().is_none(), "it has ended");
        is_mounted(at)
    });
    daemon
}

/// Mounts in the foreground, as a child that takes signals.
#[track_caller]
pub(crate) fn foreground(scratch: &Scratch, archive: &Path, at: &Path) -> Daemon {
    let mut command = behind(scratch, DEFAULT_SIGNALS);
    command.args(["-f", "-d", "2"]).arg(archive).arg(at);
    let daemon = daemon(command, at);
    wait_until("it is served", || at.join("file").exists());
    daemon
}

/// The process that takes the mount away when `daemon` dies.
pub(crate) fn watcher(daemon: &Child) -> Pid {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.id())).unwrap();
    Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap()).unwrap()
}

/// True if that process, which is not a child of this one, does nothing any more.
pub(crate) fn has_ended(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    // The name may have anything in it.
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

/// Kills the process that takes the mount away when `daemon` dies.
pub(crate) fn kill_watcher(daemon: &Child) {
    let watcher = watcher(daemon);
    kill_process(watcher, Signal::KILL).unwrap();
    wait_until("the watcher is dead", || has_ended(watcher));
}

/// True if something is mounted there, as this thread sees it.
pub(crate) fn is_mounted(at: &Path) -> bool {
    let table = fs::read("/proc/thread-self/mountinfo").unwrap();
    let mut written = Vec::new();
    for &byte in at.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => written.extend(format!("\\{byte:03o}").bytes()),
            _ => written.push(byte),
        }
    }
    table.split(|&byte| byte == b'\n').any(|line| line.split(|&byte| byte == b' ').nth(4) == Some(&written))
}

/// True if there is neither a mount nor a folder. (`exists` is also false where the program of a mount has died.)
pub(crate) fn is_gone(at: &Path) -> bool {
    !is_mounted(at) && fs::symlink_metadata(at).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A mounted archive, unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) at: PathBuf,
    pub(crate) ran: Ran,
    done: bool,
}

impl Mounted {
    /// Mounts `archive` in the background at a fresh folder.
    #[track_caller]
    pub(crate) fn new(scratch: &Scratch, archive: impl AsRef<Path>, options: &[&str]) -> Self {
        let mounted = Self::any(scratch, archive, options);
        assert_eq!(mounted.ran.code, 0, "{}", mounted.ran.err);
        mounted
    }

    /// The same, whatever the exit code.
    #[track_caller]
    pub(crate) fn any(scratch: &Scratch, archive: impl AsRef<Path>, options: &[&str]) -> Self {
        Self::by(tarnfs(scratch), scratch, archive, options)
    }

    /// The same by a command that has more in its environment, say.
    #[track_caller]
    pub(crate) fn by(mut command: Command, scratch: &Scratch, archive: impl AsRef<Path>, options: &[&str]) -> Self {
        let at = scratch.path(format!("mount-{}", unique()));
        let log = scratch.path("log");
        let output = command
            .args(options)
            .arg(archive.as_ref())
            .arg(&at)
            .stderr(fs::File::options().create(true).append(true).open(&log).unwrap())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let mut ran = Ran::from(output);
        ran.err = fs::read_to_string(log).unwrap();
        Self { at, ran, done: false }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }

    /// Unmounts; the mount point that the program made must be gone soon after.
    pub(crate) fn unmount(mut self) {
        self.done = true;
        let output = Command::new(env!("CARGO_BIN_EXE_tarnfs")).arg("-u").arg(&self.at).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wait_until("the mount point is removed", || is_gone(&self.at));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.done {
            // A test that failed must not leave a mount behind; that it also cannot unmount is not what failed.
            let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        }
    }
}

/// Numbers that look random, and are the same for the same seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

pub(crate) fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Waits for something that must come true. The limit only ends what hangs: it is far above what a machine with other
/// work needs.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a file system says of one name, in a form that shows differences well.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Seen {
    pub(crate) kind: &'static str,
    pub(crate) mode: String,
    pub(crate) owner: (u32, u32),
    pub(crate) size: u64,
    pub(crate) mtime: (i64, i64),
    pub(crate) links: u64,
    pub(crate) device: u64,
    pub(crate) target: Option<OsString>,
    pub(crate) xattrs: BTreeMap<OsString, Vec<u8>>,
    pub(crate) data: Vec<(u64, u64)>,
    pub(crate) content: u64,
}

/// How two trees are compared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compare {
    /// Times of folders, which a plain copy does not keep.
    pub(crate) skip_folder_times: bool,
    /// Where holes are: only comparable if the twin lies on a file system with holes of the same grain.
    pub(crate) holes: bool,
    /// Nanoseconds: not in every dialect of tar.
    pub(crate) whole_seconds: bool,
}

/// Every path below `root`, with what is seen there.
pub(crate) fn survey(root: &Path, compare: Compare) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let seen = look(&path, compare);
            if seen.kind == "folder" {
                open.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
        }
    }
    found
}

fn look(path: &Path, compare: Compare) -> Seen {
    let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let kind = stat.file_type();
    let kind = match () {
        () if kind.is_dir() => "folder",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_block_device() => "block device",
        () if kind.is_char_device() => "character device",
        () if kind.is_socket() => "socket",
        () => "file",
    };
    let (is_folder, is_file) = (kind == "folder", kind == "file");
    Seen {
        kind,
        mode: if kind == "symlink" { String::new() } else { format!("{:o}", stat.mode() & 0o7777) },
        owner: (stat.uid(), stat.gid()),
        size: if is_folder { 0 } else { stat.size() },
        mtime: match compare {
            Compare { skip_folder_times: true, .. } if is_folder => (0, 0),
            Compare { whole_seconds: true, .. } => (stat.mtime(), 0),
            _ => (stat.mtime(), stat.mtime_nsec()),
        },
        links: if is_folder { 0 } else { stat.nlink() },
        device: if kind.ends_with("device") { stat.rdev() } else { 0 },
        target: (kind == "symlink").then(|| fs::read_link(path).unwrap().into_os_string()),
        xattrs: xattrs(path),
        data: if is_file && compare.holes { data_extents(path) } else { Vec::new() },
        content: if is_file { hash_of(path) } else { 0 },
    }
}

/// A checksum of a file's bytes, and how many there are.
pub(crate) fn hash_of(path: &Path) -> u64 {
    use std::io::Read;
    let mut file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut length = 0_u64;
    loop {
        let read = file.read(&mut buffer).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if read == 0 {
            return length << 32 | u64::from(hasher.finalize());
        }
        length += read as u64;
        hasher.update(&buffer[..read]);
    }
}

fn xattrs(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0; 65536];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return BTreeMap::new() };
    names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
            value.truncate(length);
            (OsStr::from_bytes(name).to_owned(), value)
        })
        .collect()
}

/// Where `SEEK_DATA` and `SEEK_HOLE` say that data are: offset and end of each extent.
pub(crate) fn data_extents(path: &Path) -> Vec<(u64, u64)> {
    use rustix::fs::SeekFrom;
    let file = fs::File::open(path).unwrap();
    let mut extents = Vec::new();
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
        extents.push((data, hole));
        at = hole;
    }
    extents
}

/// Fails with the first differences between a mount and its twin.
#[track_caller]
pub(crate) fn assert_twins(mount: &Path, twin: &Path, compare: Compare) {
    let (left, right) = (survey(mount, compare), survey(twin, compare));
    let paths: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let different: Vec<String> = paths
        .into_iter()
        .filter(|path| left.get(*path) != right.get(*path))
        .take(5)
        .map(|path| format!("{}\n  mount {:?}\n  twin  {:?}", path.display(), left.get(path), right.get(path)))
        .collect();
    assert!(different.is_empty(), "{} names\n{}", right.len(), different.join("\n"));
}

/// The folder of foreign archives; `None`, with a line that says so, where it is missing.
pub(crate) fn corpus() -> Option<PathBuf> {
    let path = std::env::var_os("TARNFS_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"), PathBuf::from);
    if !path.is_dir() {
        println!("left out: no corpus at {} (TARNFS_CORPUS)", path.display());
        return None;
    }
    Some(path)
}

/// Makes a folder `tree` that holds one of everything that a tar can store.
pub(crate) fn make_tree(scratch: &Scratch) -> PathBuf {
    scratch.shell(
        r#"
        mkdir -p tree/folder/inner tree/empty "tree/with space" tree/long
        printf hello > tree/file
        : > tree/nothing
        head -c 511 /dev/urandom > tree/short; head -c 512 /dev/urandom > tree/block; head -c 513 /dev/urandom > tree/over
        head -c 3000000 /dev/urandom > tree/folder/random
        seq 1 400000 > tree/folder/inner/numbers
        ln -s file tree/link; ln -s /etc/passwd tree/absolute; ln -s ../../up/and/away tree/dangling
        ln -s "$(printf 'x%.0s' $(seq 300))" tree/long-link
        ln tree/file tree/folder/hard; ln tree/file tree/zz-hard
        name=$(printf 'n%.0s' $(seq 200)); printf long > tree/long/$name
        mkdir -p tree/long/$name.d/$name; printf deep > tree/long/$name.d/$name/leaf
        printf umlaut > "tree/$(printf 'b\344r')"; printf utf8 > "tree/bär"
        printf odd > "$(printf 'tree/new\nline\033[31m')"
        mkfifo tree/fifo
        chmod 4755 tree/short; chmod 2640 tree/block; chmod 000 tree/over; chmod 1777 tree/empty
        touch -h -d '1969-12-31 23:59:58.25 UTC' tree/nothing
        touch -h -d '2038-01-20 00:00:00.123456789 UTC' tree/block
        touch -h -d '2001-02-03 04:05:06.999999999 UTC' tree/link
        touch -d '2011-02-03 04:05:06.7 UTC' tree/folder
        "#,
    );
    if is_root() {
        scratch.shell(
            "mknod tree/null c 1 3; mknod tree/wide c 300 70000; mknod tree/loop b 7 9; chown 1234:2345 tree/over; chown -h 77:88 tree/link",
        );
    }
    scratch.path("tree")
}
