//! `--control-interface`: what is written to `command` is done, and nothing else can be written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, is_mounted, run, wait_until};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};
use rustix::io::Errno;

const FOLDER: &str = ".ratarmount-control";

/// A mount with a control, and how far its output has been looked at.
struct Controlled {
    mounted: Mounted,
    done: u64,
}

impl Controlled {
    #[track_caller]
    fn new(scratch: &Scratch, archive: &str, options: &[&str]) -> Self {
        let options = [options, &["--control-interface"]].concat();
        Self { mounted: Mounted::new(scratch, scratch.path(archive), &options), done: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path(name)
    }

    fn command(&self) -> File {
        File::options().write(true).truncate(true).open(self.path(FOLDER).join("command")).unwrap()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path(FOLDER).join("output")).unwrap()
    }

    /// Writes a line, waits until it is done, and returns how it ended and what is new in the output.
    #[track_caller]
    fn say(&mut self, line: impl AsRef<[u8]>) -> String {
        let before = self.output().len();
        self.command().write_all(&[line.as_ref(), b"\n"].concat()).unwrap();
        self.done += 1;
        let end = format!("command {}: ", self.done);
        wait_until(&end, || self.output()[before..].lines().any(|line| line.starts_with(&end)));
        self.output()[before..].to_owned()
    }

    #[track_caller]
    fn does(&mut self, line: &str) -> String {
        let said = self.say(line);
        assert!(said.ends_with(&format!("command {}: done\n", self.done)), "{line}: {said}");
        said
    }

    #[track_caller]
    fn refuses(&mut self, line: impl AsRef<[u8]>, why: &str) {
        let said = self.say(line.as_ref());
        let shown = String::from_utf8_lossy(&line.as_ref()[..line.as_ref().len().min(100)]).into_owned();
        assert!(said.contains(why), "{shown}: {said}");
        assert!(said.contains(&format!("command {}: failed", self.done)), "{shown}: {said}");
    }
}

/// Two archives, a folder, and what is in them beside them.
fn sources(scratch: &Scratch) {
    scratch.shell(
        "umask 022; mkdir -p a/d b/e; echo one > a/d/f; echo two > b/e/g; ln b/e/g b/h; ln -s e/g b/l; setfattr -n user.x -v y b/e/g
         export TAR='tar --format=posix'; $TAR -C a -cf a.tar .; $TAR -C b --xattrs -czf b.tar.gz .",
    );
}

/// > With `--control-interface` there is a folder `.ratarmount-control` that no listing shows, for the mount's owner
/// > alone.
#[test]
fn the_files_are_there_and_hidden() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let mut mount = Controlled::new(&scratch, "a.tar", &["-o", "uid=12345,gid=12345,umask=077"]);
    let names: Vec<_> = fs::read_dir(&mount.mounted.at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["d"]);
    assert_eq!(fs::metadata(mount.path("d/f")).unwrap().uid(), 12345);
    for (name, mode) in [("", 0o40500), ("command", 0o100_200), ("output", 0o100_400)] {
        let found = fs::metadata(mount.path(FOLDER).join(name)).unwrap();
        assert_eq!((found.mode(), found.uid(), found.gid()), (mode, 0, 0), "{name}: who can write may run programs");
    }
    let mut names: Vec<_> = fs::read_dir(mount.path(FOLDER)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["command", "output"]);
    assert_eq!(fs::read(mount.path(FOLDER).join("command")).unwrap(), b"");
    // The output grows under one who has it open, and under its attributes.
    let open = File::open(mount.path(FOLDER).join("output")).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 0);
    let said = mount.does("ratarmount --version");
    assert!(said.starts_with("tarnfs "), "{said}");
    assert_eq!(std::io::read_to_string(&open).unwrap(), said);
    assert_eq!(open.metadata().unwrap().len() as usize, said.len());
    drop(open);
    mount.mounted.unmount();
    // Without it there is nothing.
    for options in [&[][..], &["--control-interface", "--no-control-interface"]] {
        let mounted = Mounted::new(&scratch, scratch.path("a.tar"), options);
        assert!(!mounted.path(FOLDER).exists());
        assert_eq!(File::create(mounted.path("x")).unwrap_err().raw_os_error(), Some(libc::EROFS));
        mounted.unmount();
    }
}

/// > Without `--write-overlay`, in such a mount only `command` can be written to. Every other change is EROFS.
#[test]
fn everything_else_is_read_only() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    scratch.shell("echo own > a/own; mkdir shown");
    for (source, options) in [("a.tar", &[][..]), ("a.tar", &["-o", "allow_other"]), ("a", &[])] {
        let mut mount = Controlled::new(&scratch, source, options);
        mount.does(&format!("tarnfs {} sub", scratch.path("b.tar.gz").display()));
        let at = |name: &str| mount.path(name);
        let write = OFlags::WRONLY;
        for (folder, file) in [("d", "d/f"), ("sub/e", "sub/e/g"), (FOLDER, ".ratarmount-control/output")] {
            let (new, file, folder) = (at(folder).join("new"), at(file), at(folder));
            let mode = Mode::from_raw_mode(0o600);
            let times = Timestamps {
                last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 },
                last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 },
            };
            let results: &[(&str, Result<(), Errno>)] = &[
                ("open", rustix::fs::open(&file, write, mode).map(drop)),
                ("open to read and write", rustix::fs::open(&file, OFlags::RDWR, mode).map(drop)),
                ("open to append", rustix::fs::open(&file, write | OFlags::APPEND, mode).map(drop)),
                ("open and cut", rustix::fs::open(&file, write | OFlags::TRUNC, mode).map(drop)),
                ("open to read and cut", rustix::fs::open(&file, OFlags::TRUNC, mode).map(drop)),
                ("create", rustix::fs::open(&new, write | OFlags::CREATE, mode).map(drop)),
                ("a file without a name", rustix::fs::open(&folder, write | OFlags::TMPFILE, mode).map(drop)),
                ("mkdir", rustix::fs::mkdir(&new, mode)),
                ("mknod", rustix::fs::mknodat(CWD, &new, rustix::fs::FileType::Fifo, mode, 0)),
                ("symlink", rustix::fs::symlink("x", &new)),
                ("link", rustix::fs::link(&file, &new)),
                ("rename", rustix::fs::rename(&file, &new)),
                (
                    "rename without replacing",
                    rustix::fs::renameat_with(CWD, &file, CWD, folder.join("new"), RenameFlags::NOREPLACE),
                ),
                ("unlink", rustix::fs::unlink(&file)),
                ("rmdir", rustix::fs::rmdir(&folder)),
                ("chmod", rustix::fs::chmod(&file, mode)),
                ("chown", rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(7)), None)),
                ("utimes", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())),
                ("setxattr", rustix::fs::setxattr(&file, "user.x", b"z", XattrFlags::empty())),
                ("removexattr", rustix::fs::removexattr(&file, "user.x")),
            ];
            for (what, result) in results {
                assert_eq!(*result, Err(Errno::ROFS), "{what} of {}", file.display());
            }
            let truncated = Command::new("truncate").args(["-s", "0"]).arg(&file).output().unwrap();
            assert!(String::from_utf8_lossy(&truncated.stderr).contains("Read-only"), "{}", file.display());
        }
        // Nor can the file that takes writes be made another one.
        let command = at(FOLDER).join("command");
        let mode = Mode::from_raw_mode(0o666);
        for (what, result) in [
            ("chmod", rustix::fs::chmod(&command, mode)),
            ("chown", rustix::fs::chown(&command, Some(rustix::fs::Uid::from_raw(7)), None)),
            ("unlink", rustix::fs::unlink(&command)),
            ("rename", rustix::fs::rename(&command, at("d/command"))),
            ("link", rustix::fs::link(&command, at("d/command"))),
            ("setxattr", rustix::fs::setxattr(&command, "user.x", b"z", XattrFlags::empty())),
        ] {
            assert_eq!(result, Err(Errno::ROFS), "{what} of command");
        }
        let file = File::options().write(true).open(&command).unwrap();
        assert_eq!(file.set_len(7).unwrap_err().raw_os_error(), Some(libc::EROFS));
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert!(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 7).is_err());
        drop(file);
        if options.is_empty() {
            // With `allow_other` the kernel answers this, from the modes.
            assert_eq!(rustix::fs::access(at("d/f"), Access::WRITE_OK), Err(Errno::ROFS));
        }
        rustix::fs::access(&command, Access::WRITE_OK).unwrap();
        assert_twins(&at("d"), &scratch.path("a/d"), Compare::default());
        assert_eq!(fs::read_to_string(at("d/f")).unwrap(), "one\n");
        mount.mounted.unmount();
    }
}

/// > A command with a mount point inside the mount adds to the mount, and `--unmount` removes it again.
#[test]
fn sub_mounts_come_and_go() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    scratch.shell("mkdir 'with space'; cp a.tar 'with space/q\"uote.tar'; ln -s . alias");
    let (a, b) = (scratch.path("a.tar"), scratch.path("b.tar.gz"));
    let (a, b) = (a.display(), b.display());
    for source in ["a.tar", "a"] {
        let mut mount = Controlled::new(&scratch, source, &[]);
        let root = mount.mounted.at.clone();
        let root = root.display();
        let names = |path: PathBuf| {
            let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert!(!mount.path("sub").exists());
        mount.does(&format!("ratarmount {b} sub"));
        // At once, though there was nothing of this name a moment ago.
        assert_twins(&mount.path("sub"), &scratch.path("b"), Compare::default());
        mount.does(&format!("tarnfs --recreate-index {a} {b} {root}/d/both"));
        assert_eq!(names(mount.path("")), ["d", "sub"]);
        assert_eq!(names(mount.path("d")), ["both", "f"]);
        assert_eq!(names(mount.path("d/both")), ["d", "e", "h", "l"]);
        mount.does(&format!("tarnfs mount {} 'sub/e/deep er'", scratch.path("b").display()));
        assert_eq!(fs::read_to_string(mount.path("sub/e/deep er/e/g")).unwrap(), "two\n");
        assert_eq!(fs::canonicalize(mount.path("sub/e/deep er/..")).unwrap(), mount.path("sub/e"));
        let quoted = scratch.path("with space/q\\\"uote.tar");
        mount.does(&format!("ratarmount \"{}\" /{root}/./x/../y", quoted.display()));
        assert_eq!(fs::read_to_string(mount.path("y/d/f")).unwrap(), "one\n");
        // Through another name of the mount point.
        let alias = scratch.path("alias").join(mount.mounted.at.file_name().unwrap());
        mount.does(&format!("ratarmount {a} {}/z", alias.display()));
        assert!(mount.path("z/d/f").exists());

        mount.refuses(format!("ratarmount {a} d"), "something of this name");
        mount.refuses(format!("ratarmount {a} sub"), "something of this name");
        mount.refuses(format!("ratarmount {a} none/x"), "no such file");
        mount.refuses(format!("ratarmount {a} d/f/x"), "not a folder");
        mount.refuses(format!("ratarmount {a} {FOLDER}/x"), "not a folder");
        mount.refuses("ratarmount a.tar new", "write the whole path");
        mount.refuses("ratarmount /nowhere.tar new", "/nowhere.tar");
        mount.refuses("ratarmount /etc/hostname /etc/hosts new", "archive");
        mount.refuses("ratarmount -u sub", "unmount that first");
        mount.refuses("ratarmount -u d", "nothing was mounted here");
        mount.refuses("ratarmount -u none/x", "no such file");
        mount.refuses(format!("ratarmount -o allow_other {a} new"), "for a mount of its own");
        assert_eq!(names(mount.path("")), ["d", "sub", "y", "z"]);

        // What is open is read to its end.
        let open = File::open(mount.path("d/both/e/g")).unwrap();
        mount.does("tarnfs unmount d/both 'sub/e/deep er' y");
        assert_eq!(std::io::read_to_string(open).unwrap(), "two\n");
        mount.does(&format!("ratarmount -u {root}/sub"));
        assert!(!mount.path("sub").exists() && !mount.path("sub/e").exists());
        assert_eq!(names(mount.path("")), ["d", "z"]);
        assert_eq!(names(mount.path("d")), ["f"]);
        // Something else in the same place.
        mount.does(&format!("ratarmount {a} sub"));
        assert_twins(&mount.path("sub"), &scratch.path("a"), Compare::default());
        mount.mounted.unmount();
    }
}

/// ext4, where folders of tests often lie, has hashes of 63 bits for positions in a folder.
#[test]
fn thousands_of_names_are_listed_once_each() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p d/inner e; (cd d; seq 3000 | sed 's/$/.txt/' | xargs touch); cp d/*.txt d/inner; cp d/[12]*.txt e; echo > e/other; tar cf a.tar e",
    );
    let names = |path: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (d, e, a) = (scratch.path("d"), scratch.path("e"), scratch.path("a.tar"));
    let expected = names(d.clone());
    for options in [&[][..], &["-r"], &["-r", "--lazy"]] {
        let mut mount = Controlled::new(&scratch, "d", options);
        assert_eq!(names(mount.path("")), expected, "{options:?}");
        mount.does(&format!("tarnfs {} sub", d.display()));
        mount.does(&format!("tarnfs -r {} {} union", d.display(), e.display()));
        mount.does(&format!("tarnfs {} inner/archive", a.display()));
        for (folder, more) in
            [("", &["sub", "union"][..]), ("inner", &["archive"]), ("sub", &[]), ("union", &["other"])]
        {
            let mut all = if folder == "inner" { names(d.join("inner")) } else { expected.clone() };
            all.extend(more.iter().map(std::ffi::OsString::from));
            all.sort();
            assert!(names(mount.path(folder)) == all, "{options:?} {folder}: {}", names(mount.path(folder)).len());
        }
        assert_eq!(names(mount.path("inner/archive/e")), names(e.clone()));
        mount.mounted.unmount();
    }
}

/// > A source inside the mount that would show it is refused.
#[test]
fn loops_are_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    scratch.shell("mkdir outer other; cp a.tar a/d; tar -C a -cf outer.tar .");
    let mut mount = Controlled::new(&scratch, "outer.tar", &[]);
    symlink(mount.path("d"), scratch.path("back")).unwrap();
    scratch.shell(&format!("mount --bind {} other", mount.path("d").display()));
    let own = mount.mounted.at.display().to_string();
    for source in [
        format!("{own}/d/a.tar"),
        format!("{own}/./d"),
        own.clone(),
        scratch.path("back/a.tar").display().to_string(),
        scratch.path("other/a.tar").display().to_string(),
        scratch.path("other").display().to_string(),
    ] {
        mount.refuses(format!("ratarmount {source} new"), "is inside this mount");
    }
    scratch.shell("umount other");
    // The folder that the mount is in: there it is not entered again.
    mount.does(&format!("tarnfs {} new", scratch.path("").display()));
    assert!(mount.path("new/outer.tar").exists());
    let again = mount.path("new").join(mount.mounted.at.file_name().unwrap());
    assert_eq!(fs::metadata(again).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    // A process of its own may read here, and mount elsewhere.
    mount.does(&format!("tarnfs {own}/d/a.tar {}", scratch.path("elsewhere").display()));
    assert_eq!(fs::read_to_string(scratch.path("elsewhere/d/f")).unwrap(), "one\n");
    mount.does(&format!("ratarmount -u {}", scratch.path("elsewhere").display()));
    assert!(!is_mounted(&scratch.path("elsewhere")));
    mount.mounted.unmount();
}

/// A file system whose program answers nobody, until this is dropped.
struct Silent {
    at: PathBuf,
    device: Option<File>,
}

impl Silent {
    fn mount(at: PathBuf) -> Self {
        use std::os::fd::AsRawFd;
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount(c"none", &at, c"fuse", rustix::mount::MountFlags::empty(), &*options).unwrap();
        Self { at, device: Some(device) }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Whoever waits gets an error.
        self.device = None;
        rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_server_that_is_gone_holds_up_no_other_command() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let mut mount = Controlled::new(&scratch, "a.tar", &[]);
    let silent = Silent::mount(scratch.folder("server"));
    mount.refuses(format!("ratarmount {}/a.tar new", silent.at.display()), "does not answer");
    mount.refuses(format!("ratarmount -u {}/x/a", silent.at.display()), "does not answer");
    mount.does(&format!("ratarmount {} new", scratch.path("a.tar").display()));
    assert_eq!(fs::read_to_string(mount.path("new/d/f")).unwrap(), "one\n");
    drop(silent);
    mount.mounted.unmount();
}

/// Nobody may ever write to a pipe.
#[test]
fn a_pipe_with_passwords_holds_up_no_other_command() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    scratch.shell("mkfifo pipe; echo secret > secret");
    let (a, at) = (scratch.path("a.tar").display().to_string(), scratch.path("").display().to_string());
    let mut mount = Controlled::new(&scratch, "a.tar", &[]);
    for option in ["password-file", "zstd-dictionary"] {
        mount.refuses(format!("ratarmount --{option}={at}/pipe {a} new"), "/pipe: is not a file");
        mount.refuses(format!("ratarmount --{option}={at}/none {a} new"), "cannot be read");
    }
    mount.does(&format!("ratarmount --password-file={at}/secret {a} new"));
    assert_eq!(fs::read_to_string(mount.path("new/d/f")).unwrap(), "one\n");
    mount.mounted.unmount();
}

/// > Any other command runs in a process of its own, as from the command line. What it prints is in `output`.
/// > Who closes `command` goes on when what he has written is done, or after 48 seconds.
#[test]
fn closing_waits_until_the_command_is_done() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let controlled = Controlled::new(&scratch, "a.tar", &[]);
    let at = controlled.path("");
    let archive = scratch.path("a.tar");
    let (at, archive) = (at.display(), archive.display());
    let script = format!(
        "for n in 1 2 3 4 5; do
           echo 'tarnfs {archive} sub'$n > {at}/.ratarmount-control/command; test -d {at}/sub$n
         done
         {{ echo 'tarnfs --unmount sub1'; echo 'tarnfs --version'; }} > {at}/.ratarmount-control/command
         test ! -e {at}/sub1; tail -n 1 {at}/.ratarmount-control/output"
    );
    assert_eq!(scratch.shell(&script), "command 7: done\n");
}

#[test]
fn other_commands_run() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let mut mount = Controlled::new(&scratch, "a.tar", &[]);
    let (a, at) = (scratch.path("a.tar"), scratch.path("at"));
    let (a, at) = (a.display(), at.display());
    assert!(mount.does("ratarmount --help").contains("--control-interface"));
    assert_eq!(mount.does(&format!("tarnfs cat {a} d/f d/f")), "one\none\ncommand 2: done\n");
    assert!(mount.does(&format!("tarnfs cat {a} d/f")).starts_with("one\n"));
    mount.refuses(format!("tarnfs cat {a} none"), "none");
    mount.refuses("ratarmount --no-such-option x", "--no-such-option");
    mount.refuses(format!("ratarmount --commit-overlay {a} {at}"), "name the folder of the overlay");
    mount.refuses(format!("ratarmount --write-overlay /x {a} sub"), "for a mount of its own");
    mount.refuses("ratarmount", "which archive?");
    // One that goes on, and ends with the mount.
    writeln!(mount.command(), "tarnfs -f {a} {at}").unwrap();
    wait_until("it is mounted", || scratch.path("at/d/f").exists());
    mount.done += 1;
    mount.does("ratarmount --version");
    let root = mount.mounted.at.clone();
    writeln!(mount.command(), "ratarmount --unmount {}", root.display()).unwrap();
    wait_until("it is unmounted", || !is_mounted(&root) && !root.exists());
    wait_until("what it has started is, too", || !is_mounted(&scratch.path("at")));
}

/// > A wrong command gives a message in `output` and does no harm.
#[test]
fn bad_input() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let mut mount = Controlled::new(&scratch, "a.tar", &[]);
    mount.refuses("reboot now", "a command begins with");
    mount.refuses("; touch x", "a command begins with");
    mount.refuses("ratarmount \"/a b", "never ends");
    mount.refuses("ratarmount 'a\" b", "never ends");
    mount.refuses("ratarmount a\\", "last backslash");
    mount.refuses(b"ratarmount a\0b", "zero byte");
    mount.refuses(b"\0\0\0", "a command begins with");
    mount.refuses(b"\xff\xfe ratarmount", "a command begins with");
    mount.refuses("ratarmount \x1b[31m/x new", "\\x1b[31m/x: write");
    mount.refuses(vec![b'x'; 1 << 20], "more than 65536 bytes");
    mount.refuses("x ".repeat(32 << 10).trim_end(), "more than 4096 words");
    mount.refuses(format!("ratarmount {} new", "x".repeat(60_000)), "write the whole path");
    // What a word means depends on the folder from which it was written.
    let a = scratch.path("a.tar").display().to_string();
    for option in ["index-file", "password-file", "index-folders", "zstd-dictionary", "log-file"] {
        for name in ["ratarmount", "tarnfs index"] {
            mount.refuses(format!("{name} --{option}=sub/x {a}"), "sub/x: write the whole path");
        }
    }
    mount.refuses(format!("ratarmount --index-folders=,sub/x {a} new"), "sub/x: write the whole path");
    // None of these would do anything if it was run, but in the root folder.
    for command in [
        format!("extract {a} none"),
        format!("extract -C sub {a} none"),
        format!("compare {a}"),
        format!("compare {a} sub"),
        format!("convert {a} sub/x.tar"),
        "create sub/x.tar /none".to_owned(),
        "create - none".to_owned(),
        "create -T /none -".to_owned(),
        "create -C sub -".to_owned(),
        "create -X sub - /none".to_owned(),
        "create --mtime ./none - /none".to_owned(),
        format!("serve --listen none --token-file sub {a}"),
        format!("serve --listen none --login-file sub {a}"),
        format!("serve --listen none --tls-cert sub --tls-key /none {a}"),
        format!("serve --listen none --tls-cert /none --tls-key sub {a}"),
        format!("bench mount --runs 1 --out sub/x {a}"),
        "bench tar none".to_owned(),
    ] {
        mount.refuses(format!("tarnfs {command}"), "whole path: it is not known");
    }
    mount.refuses(format!("tarnfs extract -C /none/sub {a} none"), "failed");
    mount.does(&format!("tarnfs create -C {} {a}.zip a", scratch.path("").display()));
    // What is said of a process means nothing for a part of one.
    for option in ["-f", "-d 3", "--log-file=/dev/null", "--no-sandbox", "--no-mount", "-o noexec"] {
        mount.refuses(format!("ratarmount {option} {a} new"), "are for a mount of its own");
    }
    mount.does(&format!("ratarmount -d 1 --index-file=:memory: {a} new"));
    mount.does("ratarmount -u new");
    // Words as ratarmount takes them.
    mount.does(&format!("ratarmount\n{a}\nby lines"));
    assert!(mount.path("by lines/d/f").exists());
    let output = mount.say(b"ratarmount\0--version");
    assert!(output.starts_with("tarnfs "), "{output}");
    // Empty lines are none.
    mount.command().write_all(b"\n\n   \n\t\n").unwrap();
    // Writes in pieces, and a line without an end.
    let mut file = mount.command();
    for byte in b"ratarmount --versi" {
        file.write_all(&[*byte]).unwrap();
    }
    let before = mount.output();
    file.write_all(b"on").unwrap();
    assert_eq!(mount.output(), before);
    drop(file);
    mount.done += 1;
    let end = format!("command {}: done\n", mount.done);
    wait_until(&end, || mount.output().ends_with(&end));
    // Several lines, of which one is wrong.
    let b = scratch.path("b.tar.gz");
    let b = b.display();
    mount
        .command()
        .write_all(format!("ratarmount {b} one\nwrong\nratarmount {b} two\nratarmount -u one\n").as_bytes())
        .unwrap();
    mount.done += 4;
    let end = format!("command {}: done\n", mount.done);
    wait_until(&end, || mount.output().ends_with(&end));
    assert!(mount.path("two/e/g").exists() && !mount.path("one").exists());
    // Two writers at once, each with its own lines.
    let (mut first, mut second) = (mount.command(), mount.command());
    first.write_all(b"ratarmount --ver").unwrap();
    second.write_all(b"ratarmount --no-such").unwrap();
    first.write_all(b"sion\n").unwrap();
    second.write_all(b"-option\n").unwrap();
    mount.done += 2;
    let last = [mount.done - 1, mount.done].map(|number| format!("command {number}: "));
    wait_until("both are done", || last.iter().all(|last| mount.output().contains(last)));
    let output = mount.output();
    assert!(output.contains(&format!("{}done", last[0])) && output.contains(&format!("{}failed", last[1])), "{output}");
    drop((first, second));
    // More than wait, from many at once: all are run or refused, and the mount answers.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut file = mount.command();
                for _ in 0..500 {
                    file.write_all(b"wrong\n").unwrap();
                }
            });
        }
    });
    wait_until("all are answered", || {
        let output = mount.output();
        let run =
            output.lines().rev().find_map(|line| line.strip_prefix("command ")?.split(':').next()?.parse::<u64>().ok());
        run.unwrap() - mount.done + output.matches("one was not run").count() as u64 == 2000
    });
    assert_eq!(fs::read_to_string(mount.path("d/f")).unwrap(), "one\n");
    mount.mounted.unmount();
}

/// > With `allow_other` as well, only the mount's owner and root can control it.
#[test]
fn others_cannot_control_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mount = Controlled::new(&scratch, "a.tar", &["-o", "allow_other,uid=65534"]);
    let control = mount.path(FOLDER);
    let as_nobody = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script]).arg("bash");
        let output = command.arg(&mount.mounted.at).arg(&control).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(as_nobody("cat $1/d/f"), (true, String::new()));
    for script in ["ls $2", "cat $2/output", "echo ratarmount --version > $2/command", ": >> $2/command"] {
        let (did, said) = as_nobody(script);
        assert!(!did && said.contains("Permission denied"), "{script}: {said}");
    }
    assert_eq!(mount.output(), "");
    // Somebody whom the kernel lets in whatever the modes are, and who is not root all the same.
    let past_modes = |script: &str| {
        let mut command = Command::new("setpriv");
        let may = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--reuid=65534", "--regid=65534"];
        command.args(may).args(["--clear-groups", "bash", "-c", script, "bash"]);
        let output = command.arg(&mount.mounted.at).arg(&control).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    if past_modes("ls $2") == (true, String::new()) {
        for script in ["cat $2/output", "echo ratarmount --version > $2/command", ": >> $2/command"] {
            let (did, said) = past_modes(script);
            assert!(!did && said.contains("Permission denied"), "{script}: {said}");
        }
        assert_eq!(mount.output(), "");
    } else {
        println!("left out: no rights can be given to another user here");
    }
    mount.mounted.unmount();
}

/// > With `--control-interface` a mount may start empty.
#[test]
fn it_may_begin_empty() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    sources(&scratch);
    let at = scratch.folder("at");
    let log = scratch.path("log");
    run(&scratch, ["--control-interface", "-d", "2", "--log-file", log.to_str().unwrap(), at.to_str().unwrap()]).ok();
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("no rights are given up"), "{log}");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    let command = at.join(FOLDER).join("command");
    fs::write(&command, format!("ratarmount {} x\n", scratch.path("a.tar").display())).unwrap();
    wait_until("it is there", || at.join("x/d/f").exists());
    assert_twins(&at.join("x"), &scratch.path("a"), Compare::default());
    run(&scratch, [Path::new("-u"), &at]).ok();
    assert_eq!(run(&scratch, ["--no-control-interface"]).code, 2);
}
