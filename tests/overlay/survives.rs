//! What is found after a mount was killed, and two mounts that want the same overlay.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    DEFAULT_SIGNALS, Daemon, Mounted, Scratch, behind, can_mount, daemon, have, is_mounted, run, tarnfs, wait_until,
};

fn archive(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/d; for i in $(seq 50); do echo old $i > tree/d/$i; done; seq 200000 > tree/large
        ln tree/d/1 tree/hard; tar -C tree -cf a.tar .",
    );
}

fn options(scratch: &Scratch) -> Vec<String> {
    vec!["-w".to_owned(), scratch.path("overlay").display().to_string()]
}

/// A mount in the foreground, to be killed.
fn foreground(scratch: &Scratch, at: &Path) -> Daemon {
    let mut command = behind(scratch, DEFAULT_SIGNALS);
    command.arg("-f").args(options(scratch)).arg(scratch.path("a.tar")).arg(at);
    let daemon = daemon(command, at);
    wait_until("it is served", || at.join("large").exists());
    daemon
}

/// The archive, mounted by a process that a test can look at.
fn served() -> (Scratch, PathBuf, Daemon) {
    let scratch = Scratch::new();
    archive(&scratch);
    let at = scratch.folder("at");
    let daemon = foreground(&scratch, &at);
    (scratch, at, daemon)
}

fn end(mut daemon: Daemon) {
    kill_process(Pid::from_child(&daemon), Signal::INT).unwrap();
    daemon.wait().unwrap();
}

fn mount(scratch: &Scratch) -> Mounted {
    let options = options(scratch);
    Mounted::new(scratch, scratch.path("a.tar"), &options.iter().map(String::as_str).collect::<Vec<_>>())
}

/// > What was written is found after the program was killed.
#[test]
fn what_was_written_is_found_after_a_kill() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let before = fs::read(scratch.path("a.tar")).unwrap();
    let mut expected = 0;
    for round in 0..6 {
        let at = scratch.folder("at");
        let mut daemon = foreground(&scratch, &at);
        // All that an earlier round has done is there.
        for number in 0..expected {
            assert_eq!(
                fs::read_to_string(at.join(format!("new/{number}"))).unwrap(),
                format!("{number}\n").repeat(100)
            );
        }
        fs::create_dir_all(at.join("new")).unwrap();
        // Killed in the middle: a thread writes on and on.
        let process = Pid::from_child(&daemon);
        let (folder, first) = (at.clone(), expected);
        let writer = std::thread::spawn(move || {
            let mut done = first;
            while fs::write(folder.join(format!("new/{done}.part")), format!("{done}\n").repeat(100)).is_ok()
                && fs::rename(folder.join(format!("new/{done}.part")), folder.join(format!("new/{done}"))).is_ok()
            {
                let old = 1 + done % 50;
                let _ = fs::write(folder.join(format!("d/{old}")), "changed\n");
                done += 1;
            }
            done
        });
        wait_until("something is written", || at.join(format!("new/{}", expected + 20 + round)).exists());
        kill_process(process, Signal::KILL).unwrap();
        daemon.wait().unwrap();
        // What it has seen come to its end is there, perhaps one more.
        expected = writer.join().unwrap();
        wait_until("the mount is gone", || !is_mounted(&at));
    }
    let mounted = mount(&scratch);
    let mut found = 0;
    for entry in mounted.path("new").read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let content = fs::read_to_string(mounted.path("new").join(&name)).unwrap();
        if name.strip_suffix(".part").is_none() {
            assert_eq!(content, format!("{name}\n").repeat(100), "{name}");
            found += 1;
        }
    }
    assert!(found == expected || found == expected + 1, "{found} of {expected}");
    for number in 1..=50 {
        let content = fs::read_to_string(mounted.path(format!("d/{number}"))).unwrap();
        // Emptied, and not written yet, it may have been in the last moment.
        assert!(["changed\n", "", &format!("old {number}\n")].contains(&content.as_str()), "{number}: {content}");
    }
    assert_eq!(fs::read_to_string(mounted.path("large")).unwrap().lines().count(), 200_000);
    mounted.unmount();
    assert!(fs::read(scratch.path("a.tar")).unwrap() == before, "the archive has changed");
    assert_eq!(left(&scratch), 0, "parts are left");
}

/// Files that were being copied.
fn left(scratch: &Scratch) -> usize {
    let folder = scratch.path("overlay/.tarnfs-overlay.files");
    folder
        .read_dir()
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().ends_with(b".part"))
        .count()
}

/// > A file that was removed while it was open goes when it is closed, or with the next mount.
#[test]
fn nothing_is_left_of_what_was_removed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let contents = |scratch: &Scratch| {
        scratch.shell("find overlay -type f -not -name '.tarnfs-overlay.*' | wc -l").trim().parse::<u32>().unwrap()
    };
    let at = scratch.folder("at");
    let mut daemon = foreground(&scratch, &at);
    fs::write(at.join("a"), "a").unwrap();
    let open = fs::File::open(at.join("a")).unwrap();
    fs::remove_file(at.join("a")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    fs::write(at.join("b"), "b").unwrap();
    fs::remove_file(at.join("b")).unwrap();
    wait_until("one is gone", || contents(&scratch) == 1);
    kill_process(Pid::from_child(&daemon), Signal::KILL).unwrap();
    daemon.wait().unwrap();
    drop(open);
    wait_until("the mount is gone", || !is_mounted(&at));
    let mounted = mount(&scratch);
    assert_eq!(contents(&scratch), 0);
    assert!(!mounted.path("a").exists());
    mounted.unmount();
    assert_eq!(
        run(&scratch, ["overlay".as_ref(), "status".as_ref(), scratch.path("overlay").as_os_str()]).ok().text(),
        ""
    );
}

/// A mount of which the system calls are noted.
struct Traced {
    strace: Child,
    said: PathBuf,
}

impl Traced {
    fn new(scratch: &Scratch, daemon: &Daemon, calls: &str) -> Self {
        let said = scratch.path("trace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-e", &format!("trace={calls}"), "-o"]).arg(&said);
        strace.args(["-p", &daemon.id().to_string()]).stderr(Stdio::null());
        let strace = strace.spawn().unwrap();
        let tasks = format!("/proc/{}/task", daemon.id());
        let is_traced = |task: &Path| {
            let status = fs::read_to_string(task.join("status")).unwrap_or_default();
            !status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() == "0"))
        };
        wait_until("it is traced", || fs::read_dir(&tasks).unwrap().flatten().all(|task| is_traced(&task.path())));
        Self { strace, said }
    }

    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.strace), Signal::INT).unwrap();
        self.strace.wait().unwrap();
        fs::read_to_string(&self.said).unwrap()
    }
}

/// > A file that is copied from below is on the disk, with its name, before a transaction names it.
#[test]
fn a_copy_is_on_the_disk_before_it_is_named() {
    if !can_mount() || !have("strace") {
        return;
    }
    let (scratch, at, daemon) = served();
    let strace = Traced::new(&scratch, &daemon, "fsync,pwrite64,renameat2");
    fs::set_permissions(at.join("d/7"), fs::Permissions::from_mode(0o600)).unwrap();
    std::io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(at.join("d/7")).unwrap(), b"more").unwrap();
    let trace = strace.end();
    let after_rename = trace.split_once("renameat2(").unwrap().1;
    let named = after_rename.find(".sqlite-wal").unwrap();
    let (before, synced) =
        (&after_rename[..named], |line: &str| line.contains("fsync(") && line.contains("/overlay/d>"));
    assert!(before.lines().any(synced), "{trace}");
    assert_eq!(fs::read_to_string(at.join("d/7")).unwrap(), "old 7\nmore");
    end(daemon);
}

/// > A row with an impossible value is left out. The other names of its folder stay.
#[test]
fn a_folder_is_listed_without_what_cannot_be() {
    if !can_mount() || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let mounted = mount(&scratch);
    let make = |name: &str| fs::write(mounted.path("d").join(name), name).unwrap();
    (0..300).for_each(|number| make(&format!("x{number:03}")));
    ["a", "b", "c", "long", "e"].into_iter().for_each(make);
    mounted.unmount();
    scratch.shell(
        "python3 - <<'P'
import sqlite3
c = sqlite3.connect('overlay/.tarnfs-overlay.sqlite')
node = lambda name: c.execute('select node from names where name = ?', (name,)).fetchone()[0]
c.execute('update nodes set kind = 99 where id = ?', (node(b'a'),))
c.execute('update nodes set mode = ? where id = ?', ('text', node(b'b')))
c.execute('update names set name = ? where name = ?', ('text', b'c'))
c.execute('update names set name = ? where name = ?', (b'n' * 300, b'long'))
# A whole batch of rows, one after the other, is of nobody.
c.execute(\"delete from nodes where id in (select node from names where cast(name as text) like 'x%')\")
c.commit()
P",
    );
    let mounted = mount(&scratch);
    let names: Vec<_> = mounted.path("d").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.contains(&"e".into()) && names.len() == 51, "{names:?}");
    assert_eq!(fs::read_to_string(mounted.path("d/e")).unwrap(), "e");
    assert!(fs::metadata(mounted.path("d/a")).is_err());
    mounted.unmount();
}

/// > Who replaces a file, or removes one, and loses power, finds the old file or the new one: contents are removed when
/// > what has taken their names is on the disk.
#[test]
fn contents_go_when_the_log_is_on_the_disk() {
    if !can_mount() || !have("strace") {
        return;
    }
    let (scratch, at, daemon) = served();
    for name in ["conf", "conf.new", "other"] {
        fs::write(at.join(name), name).unwrap();
    }
    let strace = Traced::new(&scratch, &daemon, "fdatasync,pwrite64,unlinkat");
    fs::rename(at.join("conf.new"), at.join("conf")).unwrap();
    wait_until("the old content is gone", || !scratch.path("overlay/conf").exists());
    fs::remove_file(at.join("other")).unwrap();
    wait_until("the removed one is gone", || !scratch.path("overlay/other").exists());
    // What takes the name, the disk, what takes out the row, and then the content.
    let (mut done, mut removed) = (Vec::new(), 0);
    let trace = strace.end();
    for line in trace.lines() {
        let is_log = line.contains(".sqlite-wal");
        if line.contains("pwrite64(") && is_log && done.last() != Some(&"written") {
            done.push("written");
        } else if line.contains("fdatasync(") && is_log {
            done.push("on the disk");
        } else if line.contains("unlinkat(") && (line.contains("\"conf\"") || line.contains("\"other\"")) {
            assert_eq!(done, ["written", "on the disk", "written"], "{trace}");
            done.clear();
            removed += 1;
        }
    }
    assert_eq!(removed, 2);
    assert_eq!(fs::read_to_string(at.join("conf")).unwrap(), "conf.new");
    end(daemon);
}

/// > An overlay is for one mount at a time. The second one is refused, and names the first.
#[test]
fn two_mounts_do_not_share_an_overlay() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let mounted = mount(&scratch);
    fs::write(mounted.path("a"), "a").unwrap();
    let second = scratch.path("second");
    let output = tarnfs(&scratch)
        .args(options(&scratch))
        .arg(scratch.path("a.tar"))
        .arg(&second)
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("in use by process") && said.contains(&mounted.at.display().to_string()), "{said}");
    assert!(!second.exists());
    assert_eq!(fs::read_to_string(mounted.path("a")).unwrap(), "a");
    mounted.unmount();
    mount(&scratch).unmount();
}

/// > `:temp:` and `:memory:` go with the mount, also where the program is killed.
#[test]
fn what_is_temporary_goes_with_the_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let temporary = scratch.folder("tmp");
    let found = |folder: &Path| {
        let entries = folder.read_dir().unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("tarnfs-overlay-")).count()
    };
    for (place, folder) in [(":temp:", temporary.as_path()), (":memory:", Path::new("/dev/shm"))] {
        for kill in [false, true] {
            let before = found(folder);
            let at = scratch.folder("at");
            let mut command = tarnfs(&scratch);
            command.env("TMPDIR", &temporary).args(["-f", "-w", place]).arg(scratch.path("a.tar")).arg(&at);
            let mut daemon = crate::support::daemon(command, &at);
            wait_until("it is mounted", || is_mounted(&at));
            fs::write(at.join("d/new"), "new").unwrap();
            fs::write(at.join("d/1"), "other").unwrap();
            assert_eq!(found(folder), before + 1, "{place}");
            let process = Pid::from_child(&daemon);
            kill_process(process, if kill { Signal::KILL } else { Signal::INT }).unwrap();
            daemon.wait().unwrap();
            wait_until("nothing is left", || found(folder) == before && !is_mounted(&at));
        }
    }
}

/// > What mounts have left that were killed together with their watchers is removed by the next one. Nothing else is,
/// > whatever its name.
#[test]
fn folders_of_somebody_else_stay() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let temporary = scratch.folder("tmp");
    let own = ["tarnfs-overlay-project", "tarnfs-overlay-0123456789abcdef"].map(|name| temporary.join(name));
    for folder in &own {
        let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", folder.to_str().unwrap()]);
        fs::write(mounted.path("work"), "mine").unwrap();
        mounted.unmount();
    }
    // As it is left: locked by nobody; and one whose name is no number, though all else is there.
    let left = ["tarnfs-overlay-00000000deadbeef", "tarnfs-overlay-00000000DEADBEEF"].map(|name| temporary.join(name));
    for folder in &left {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join(".tarnfs-overlay.lock"), "process 1").unwrap();
        fs::write(folder.join(".tarnfs-overlay.temporary"), "").unwrap();
    }
    let at = scratch.folder("at");
    let mut command = tarnfs(&scratch);
    command.env("TMPDIR", &temporary).args(["-f", "-w", ":temp:"]).arg(scratch.path("a.tar")).arg(&at);
    let mut first = daemon(command, &at);
    wait_until("it is mounted", || is_mounted(&at));
    for folder in &own {
        assert_eq!(fs::read_to_string(folder.join("work")).unwrap(), "mine");
    }
    assert!(!left[0].exists() && left[1].exists());
    // One that is in use stays, too.
    fs::write(at.join("new"), "new").unwrap();
    let other = scratch.folder("other");
    let mut command = tarnfs(&scratch);
    command.env("TMPDIR", &temporary).args(["-f", "-w", ":temp:"]).arg(scratch.path("a.tar")).arg(&other);
    let mut second = daemon(command, &other);
    wait_until("it is mounted", || is_mounted(&other));
    fs::write(at.join("newer"), "newer").unwrap();
    assert_eq!(fs::read_to_string(at.join("new")).unwrap(), "new");
    for (daemon, at) in [(&mut first, &at), (&mut second, &other)] {
        kill_process(Pid::from_child(daemon), Signal::INT).unwrap();
        daemon.wait().unwrap();
        wait_until("the mount is gone", || !is_mounted(at));
    }
}

/// > Where the disk is full, whoever writes is told so, what was there stays, and files can be removed.
#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    scratch.shell("mkdir disk; mount -t tmpfs -o size=3m tmpfs disk");
    let overlay = scratch.path("disk/overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    fs::write(mounted.path("kept"), "kept").unwrap();
    let mut failed = 0;
    for number in 0..100 {
        match fs::write(mounted.path(format!("big-{number}")), vec![7; 100_000]) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{number}");
                failed += 1;
            }
        }
    }
    assert!(failed > 10, "{failed}");
    // There is no room to copy it, and it stays as it is.
    assert!(
        fs::OpenOptions::new()
            .append(true)
            .open(mounted.path("large"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"x"))
            .is_err()
    );
    assert_eq!(fs::read_to_string(mounted.path("large")).unwrap().lines().count(), 200_000);
    assert_eq!(fs::read_to_string(mounted.path("kept")).unwrap(), "kept");
    for number in 0..100 {
        let _ = fs::remove_file(mounted.path(format!("big-{number}")));
    }
    wait_until("there is room again", || fs::write(mounted.path("again"), vec![1; 500_000]).is_ok());
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    assert_eq!(fs::read_to_string(mounted.path("kept")).unwrap(), "kept");
    assert_eq!(fs::read(mounted.path("again")).unwrap().len(), 500_000);
    mounted.unmount();
    scratch.unmount("disk");
}

/// > Where there is room for a copy, but not for saying so, nothing is left of it.
#[test]
fn a_copy_that_came_to_nothing_goes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    scratch.shell("mkdir disk; mount -t tmpfs -o size=6m tmpfs disk");
    let overlay = scratch.path("disk/overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let whole = fs::metadata(mounted.path("large")).unwrap().len();
    let large = whole.next_multiple_of(4096);
    let mut failed = 0;
    for pages in 0..40 {
        let room = rustix::fs::statvfs(scratch.path("disk")).unwrap();
        let fill = (room.f_bavail * room.f_frsize).checked_sub(large + pages * 4096).unwrap();
        fs::write(scratch.path("disk/fill"), vec![1; usize::try_from(fill).unwrap()]).unwrap();
        let appended = fs::OpenOptions::new()
            .append(true)
            .open(mounted.path("large"))
            .and_then(|file| rustix::fs::ftruncate(&file, whole).map_err(Into::into));
        fs::remove_file(scratch.path("disk/fill")).unwrap();
        if appended.is_ok() {
            break;
        }
        failed += 1;
        assert!(!Path::new(&overlay).join("large").exists(), "{pages}: a copy is left");
    }
    assert!(failed > 0);
    mounted.unmount();
    scratch.unmount("disk");
}

/// > However many files are open that were written to, other files can be made, renamed and synced.
#[test]
fn many_open_files_leave_descriptors_for_others() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 400); do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
    let at = scratch.folder("at");
    let mut command = behind(&scratch, &["sh", "-c", "ulimit -n 256; exec \"$0\" \"$@\""]);
    command.arg("-f").args(options(&scratch)).arg(scratch.path("a.tar")).arg(&at);
    let mut daemon = daemon(command, &at);
    wait_until("it is served", || at.join("400").exists());
    let mut files = Vec::new();
    for number in 1..=400 {
        let opened = fs::OpenOptions::new().append(true).open(at.join(number.to_string()));
        match opened.and_then(|mut file| std::io::Write::write_all(&mut file, b"x").map(|()| file)) {
            Ok(file) => files.push(file),
            Err(_) => break,
        }
    }
    assert!((50..400).contains(&files.len()), "{}", files.len());
    files[0].sync_all().unwrap();
    drop(files.pop());
    fs::write(at.join("new"), "new").unwrap();
    fs::rename(at.join("new"), at.join("400")).unwrap();
    fs::remove_file(at.join("399")).unwrap();
    files[1].sync_all().unwrap();
    drop(files);
    assert_eq!(fs::read_to_string(at.join("400")).unwrap(), "new");
    kill_process(Pid::from_child(&daemon), Signal::INT).unwrap();
    daemon.wait().unwrap();
}
