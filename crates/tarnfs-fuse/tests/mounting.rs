//! How mounts begin and end.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::namespace::in_own_namespace;
use common::{Gate, MemoryTree, Mounted, Opens, Slow, can_mount, mount_line, wait_until};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tarnfs_fuse::{Error, MountOptions, abort, mount, unmount};
use tarnfs_tree::Node;

/// User and group "nobody".
const NOBODY: u32 = 65534;

fn small_tree() -> MemoryTree {
    let mut tree = MemoryTree::default();
    tree.file(Node::ROOT, "file", *b"content");
    tree
}

#[test]
fn the_table_of_mounts_tells_what_it_is() {
    if !can_mount() {
        return;
    }
    let source = "/data/my, own\\archive.tar.gz".to_owned();
    let mounted = Mounted::with(small_tree(), &MountOptions { source: source.into(), ..MountOptions::default() });
    let line = mount_line(mounted.folder.path()).unwrap();
    assert_eq!(
        line,
        ["ro,nosuid,nodev,relatime", "fuse.tarnfs", r"/data/my,\040own\134archive.tar.gz", "ro,user_id=0,group_id=0"]
    );
}

#[test]
fn options_reach_the_kernel() {
    if !can_mount() {
        return;
    }
    let options =
        ["noexec,noatime", "uid=7", "gid=8", "umask=0027", "max_read=65536", "defaults"].map(str::to_owned).to_vec();
    let options = MountOptions { allow_other: true, options, ..MountOptions::default() };
    let mounted = Mounted::with(small_tree(), &options);
    let line = mount_line(mounted.folder.path()).unwrap();
    assert_eq!(line[0], "ro,nosuid,nodev,noexec,noatime");
    assert_eq!(line[3], "ro,user_id=0,group_id=0,default_permissions,allow_other,max_read=65536");
    let found = fs::metadata(mounted.path("file")).unwrap();
    let owner = (found.uid(), found.gid());
    assert_eq!((owner, found.permissions().mode()), ((7, 8), 0o100_640));
}

#[test]
fn what_cannot_be_mounted_on_is_explained() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, reason) in [(folder.path().join("none"), "does not exist"), (file, "not a folder")] {
        let error = mount(Arc::new(small_tree()), &path, &MountOptions::default()).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()) && error.to_string().contains(reason), "{error}");
    }
    let options = MountOptions { options: vec!["colour=blue".to_owned()], ..MountOptions::default() };
    let error = mount(Arc::new(small_tree()), folder.path(), &options).unwrap_err();
    assert!(error.to_string().contains("colour=blue"), "{error}");
    // A folder with files in it is hidden for as long as the mount lasts.
    let mounted = mount(Arc::new(small_tree()), folder.path(), &MountOptions::default()).unwrap();
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"content");
    drop(mounted);
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"");
}

#[test]
fn wait_ends_when_somebody_unmounts() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(small_tree());
    let mount = mounted.mount.take().unwrap();
    let waiter = std::thread::spawn(move || mount.wait());
    unmount(mounted.folder.path(), false).unwrap();
    waiter.join().unwrap().unwrap();
    assert_eq!(mount_line(mounted.folder.path()), None);
    let error = unmount(mounted.folder.path(), false).unwrap_err();
    assert!(error.to_string().contains("nothing is mounted"), "{error}");
}

#[test]
fn other_file_systems_are_not_unmounted() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    rustix::mount::mount("test", folder.path(), "tmpfs", MountFlags::empty(), CString::default().as_c_str()).unwrap();
    let error = unmount(folder.path(), false).unwrap_err();
    rustix::mount::unmount(folder.path(), UnmountFlags::empty()).unwrap();
    assert!(error.to_string().contains("tmpfs"), "{error}");
}

#[test]
fn a_stop_ends_an_idle_mount_and_detaches_one_in_use() {
    if !can_mount() {
        return;
    }
    let mut idle = Mounted::new(small_tree());
    let mount = idle.mount.take().unwrap();
    mount.stopper().stop();
    mount.wait().unwrap();
    assert_eq!(mount_line(idle.folder.path()), None);

    let mut used = Mounted::new(small_tree());
    let mut open = File::open(used.path("file")).unwrap();
    let mount = used.mount.take().unwrap();
    let stopper = mount.stopper();
    let waiter = std::thread::spawn(move || mount.wait());
    stopper.stop();
    assert_eq!(mount_line(used.folder.path()), None);
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content", "who had it open goes on");
    // The second stop does not wait for them.
    stopper.stop();
    waiter.join().unwrap().unwrap();
}

#[test]
fn a_mount_in_use_is_left_or_detached() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(small_tree());
    let open = File::open(mounted.path("file")).unwrap();
    let begun = Instant::now();
    let error = unmount(mounted.folder.path(), false).unwrap_err();
    assert!(error.to_string().contains("is in use"), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "who is about to close it gets a moment to do so");
    assert!(mount_line(mounted.folder.path()).is_some());
    unmount(mounted.folder.path(), true).unwrap();
    assert_eq!(mount_line(mounted.folder.path()), None);
    drop(open);
    mounted.mount.take().unwrap().wait().unwrap();
}

#[test]
fn a_connection_that_is_aborted_ends_for_those_who_use_it() {
    const CONNECTIONS: &str = "/sys/fs/fuse/connections";
    if !can_mount() {
        return;
    }
    let (mut mounted, other) = (Mounted::new(small_tree()), Mounted::new(small_tree()));
    let open = File::open(mounted.path("file")).unwrap();
    let device = open.metadata().unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // What is no number of a connection leads nowhere.
    for wrong in [format!("{major}"), format!("{major}:../{minor}"), format!("{major}:{minor}/.."), String::new()] {
        assert_eq!(abort(&wrong).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{wrong}");
    }
    let mut is_aborted = false;
    in_own_namespace(|_| {
        let none = CString::default();
        match rustix::mount::mount("none", CONNECTIONS, "fusectl", MountFlags::empty(), none.as_c_str()) {
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => return eprintln!("left out: {CONNECTIONS}: {error}"),
        }
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
        abort(&format!("{major}:{minor}")).unwrap();
        is_aborted = true;
    });
    if is_aborted {
        let error = fs::metadata(mounted.path("none")).unwrap_err();
        assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "nobody answers any more");
        drop(open);
        mounted.mount.take().unwrap().wait().unwrap();
    }
    assert_eq!(fs::read(other.path("file")).unwrap(), b"content");
}

#[test]
fn readers_in_flight_do_not_keep_a_stop_from_ending() {
    if !can_mount() {
        return;
    }
    let gate = Arc::new(Gate::default());
    let waiting = Arc::clone(&gate);
    let stalls = move |buffer: &mut [u8], _| {
        waiting.pass();
        Ok(buffer.len())
    };
    let mut tree = MemoryTree::default();
    tree.source(Node::ROOT, "stalls", Arc::new(Slow { length: 4096, read: stalls }));
    let mut mounted = Mounted::new(tree);
    let path = mounted.path("stalls");
    let reader = std::thread::spawn(move || fs::read(path));
    let _opens = Opens(Arc::clone(&gate));
    wait_until("it reads", || gate.waiting() > 0);
    let mount = mounted.mount.take().unwrap();
    mount.stopper().stop();
    mount.wait().unwrap();
    gate.open();
    let _ = reader.join().unwrap();
}

// What another process does, as another user, in another namespace, or until it is killed: this program once more, with
// the folder to mount on in its environment.

const CHILD_FOLDER: &str = "TARNFS_TEST_CHILD_FOLDER";
const CHILD_OPTIONS: &str = "TARNFS_TEST_CHILD_OPTIONS";

#[test]
fn child_process() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER).map(PathBuf::from) else { return };
    let options = std::env::var(CHILD_OPTIONS).unwrap_or_default();
    let options = MountOptions { options: vec![options], source: "a,b".into(), ..MountOptions::default() };
    match mount(Arc::new(small_tree()), &folder, &options) {
        Ok(mount) => {
            println!("\nmounted {}", mount_line(&folder).unwrap().join(" "));
            println!("content {}", fs::read_to_string(folder.join("file")).unwrap());
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            println!("unmount {:?}", unmount(&folder, false));
            println!("wait {:?}", mount.wait());
        }
        Err(error) => println!("\nerror {error}"),
    }
}

/// This program and a folder to mount on, where everybody may go.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        fs::copy(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
        fs::create_dir(folder.path().join("mount")).unwrap();
        chown(folder.path().join("mount"), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { folder }
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// The program behind the words of `prefix`.
    fn command(&self, prefix: &[&str]) -> Command {
        let program = self.folder.path().join("program").to_str().unwrap().to_owned();
        let words: Vec<_> = prefix.iter().copied().chain([program.as_str()]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["--exact", "child_process", "--nocapture"])
            .env(CHILD_FOLDER, self.mount_point());
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Everything that it says until it ends, having been told to unmount.
    fn run(command: &mut Command) -> String {
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.mount_point(), UnmountFlags::DETACH);
    }
}

/// Waits until the child has said that it has mounted.
fn until_mounted(child: &mut Child) {
    let said = BufReader::new(child.stdout.take().unwrap());
    let all: Vec<_> = said.lines().map(Result::unwrap).take_while(|line| !line.starts_with("content")).collect();
    assert!(all.iter().any(|line| line.starts_with("mounted")), "{all:?}");
}

fn is_installed(program: &str) -> bool {
    let found = ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !found {
        eprintln!("skipped: needs {program}");
    }
    found
}

#[test]
fn another_user_mounts_through_the_helper() {
    if !can_mount() || !is_installed("fusermount3") {
        return;
    }
    in_own_namespace(|_| {
        let stage = Stage::new();
        let said = Stage::run(stage.command(&["/usr/bin/env"]).uid(NOBODY).gid(NOBODY));
        let expected = "mounted ro,nosuid,nodev,relatime fuse.tarnfs a,b ro,user_id=65534,group_id=65534\n\
                        content content\nunmount Ok(())\nwait Ok(())\n";
        assert!(said.contains(expected), "{said}");
        let said =
            Stage::run(stage.command(&["/usr/bin/env"]).uid(NOBODY).gid(NOBODY).env(CHILD_OPTIONS, "noexec,noatime"));
        assert!(said.contains("mounted ro,nosuid,nodev,noexec,noatime fuse.tarnfs"), "{said}");
        let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
        if !conf.lines().any(|line| line.trim() == "user_allow_other") {
            let said =
                Stage::run(stage.command(&["/usr/bin/env"]).uid(NOBODY).gid(NOBODY).env(CHILD_OPTIONS, "allow_other"));
            assert!(said.contains(&format!("error {}", Error::NoOthers)), "{said}");
        }
    });
}

#[test]
fn another_user_without_helper_or_device_is_told_what_to_do() {
    if !can_mount() {
        return;
    }
    in_own_namespace(|device| {
        let stage = Stage::new();
        let user = |variable, value: &str| {
            Stage::run(stage.command(&["/usr/bin/env"]).uid(NOBODY).gid(NOBODY).env(variable, value))
        };
        for (variable, value) in [("PATH", "/nowhere"), ("FUSERMOUNT_PATH", "/nowhere/fusermount3")] {
            let said = user(variable, value);
            assert!(said.contains("error only root can mount") && said.contains("fuse3"), "{said}");
        }
        device.set_mode(0o600);
        if is_installed("fusermount3") {
            let said = user("LANG", "C");
            assert!(said.contains(&format!("error {}", Error::NoPermission)), "{said}");
        }
    });
}

#[test]
fn in_a_user_namespace_no_helper_is_needed() {
    if !can_mount() || !is_installed("unshare") {
        return;
    }
    in_own_namespace(|_| {
        let stage = Stage::new();
        let mut unshare = stage.command(&["/usr/bin/env", "unshare", "-Urm"]);
        let said = Stage::run(unshare.uid(NOBODY).gid(NOBODY).env("FUSERMOUNT_PATH", "/nowhere"));
        if said.trim().is_empty() {
            eprintln!("skipped: user namespaces are off");
            return;
        }
        assert!(said.contains("mounted ro,nosuid,nodev,relatime fuse.tarnfs a,b ro,user_id=0,group_id=0\n"), "{said}");
        assert!(said.contains("content content\nunmount Ok(())\nwait Ok(())\n"), "{said}");
    });
}

#[test]
fn a_mount_whose_program_was_killed_is_taken_away_and_mounted_over() {
    if !can_mount() {
        return;
    }
    let stage = Stage::new();
    let path = stage.mount_point();
    let mut child = stage.command(&["/usr/bin/env"]).spawn().unwrap();
    until_mounted(&mut child);
    let open = File::open(path.join("file")).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let error = fs::metadata(&path).unwrap_err().raw_os_error();
    assert_eq!(error, Some(Errno::NOTCONN.raw_os_error()));
    let error = mount(Arc::new(small_tree()), &path, &MountOptions::default()).unwrap_err();
    assert!(error.to_string().contains("has died"), "{error}");
    unmount(&path, false).unwrap();
    assert_eq!(mount_line(&path), None);
    drop(open);
    let again = mount(Arc::new(small_tree()), &path, &MountOptions::default()).unwrap();
    assert_eq!(fs::read(path.join("file")).unwrap(), b"content");
    drop(again);
    assert_eq!(mount_line(&path), None);
}
