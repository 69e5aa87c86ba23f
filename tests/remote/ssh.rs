//! Hosts that are reached by ssh: OpenSSH's server, and rclone's, which has passwords of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::folders::{assert_shows_folder, folder};
use crate::secrets::assert_are_hidden;
use crate::servers::{Server, alike, archives, assert_are_read_at_once, contents, tree};
use crate::support::{Mounted, Ran, Scratch, can_mount, have, tarnfs, wait_until};
use crate::wire::Wire;

/// A server, and what its user has told ssh of it: it is called `box`.
pub(crate) struct Host {
    server: Server,
    bin: PathBuf,
}

impl Host {
    /// OpenSSH's, whose home folder is `served`. `None` where it is not installed.
    fn openssh(scratch: &Scratch) -> Option<Self> {
        const PROGRAM: &str = "/usr/lib/openssh/sftp-server";
        if !have("ssh") || !have("sshd") || !PathBuf::from(PROGRAM).exists() {
            return None;
        }
        let (at, served) = (keys(scratch), scratch.folder("served"));
        if crate::support::is_root() {
            // Where it has its folder is compiled in.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let server = Server::sshd(scratch, |port| {
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nPidFile none\nAuthorizedKeysFile {at}/id.pub
                 StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no
                 Subsystem sftp {PROGRAM} -d {}\n",
                served.display()
            )
        });
        Some(Self::with(scratch, server))
    }

    /// rclone's, of the folder `served`, for `me` with this password.
    fn rclone(scratch: &Scratch, password: &str) -> Option<Self> {
        if !have("ssh") || !have("rclone") {
            return None;
        }
        let key = format!("{}/host", keys(scratch));
        Some(Self::with(scratch, Server::rclone(scratch, "sftp", &["--user", "me", "--pass", password, "--key", &key])))
    }

    fn with(scratch: &Scratch, server: Server) -> Self {
        let at = scratch.path("ssh");
        let at = at.display();
        scratch.shell("echo box $(cut -d' ' -f1,2 ssh/host.pub) > ssh/known");
        let text = format!(
            "Host box\n HostName 127.0.0.1\n Port {}\nHost *\n HostKeyAlias box\n IdentityFile {at}/id\n IdentityAgent none
             IdentitiesOnly yes\n UserKnownHostsFile {at}/known\n GlobalKnownHostsFile none\n",
            server.address.port()
        );
        fs::write(scratch.path("ssh/config"), text).unwrap();
        // ssh looks for that in the home folder, wherever HOME says that it is.
        let bin = scratch.folder("bin");
        let ssh = scratch.shell("command -v ssh");
        fs::write(bin.join("ssh"), format!("#!/bin/sh\nexec {} -F {at}/config \"$@\"\n", ssh.trim())).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { server, bin }
    }

    /// The program, with this ssh.
    fn tarnfs(&self, scratch: &Scratch) -> Command {
        let mut command = tarnfs(scratch);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.bin.display())).env_remove("SSH_AUTH_SOCK");
        command
    }

    fn run(&self, scratch: &Scratch, words: &[&str]) -> Ran {
        Ran::from(self.tarnfs(scratch).args(words).output().unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }
}

/// Keys of a host and of a user. Returns their folder.
fn keys(scratch: &Scratch) -> String {
    let at = scratch.folder("ssh");
    scratch.shell("cd ssh; for i in host id other; do [ -e $i ] || ssh-keygen -q -t ed25519 -N '' -f $i; done");
    at.display().to_string()
}

/// > An archive at a host that is reached by ssh is opened by every command as the file would be, and mounted.
#[test]
fn an_archive_at_a_host_is_opened() {
    let scratch = Scratch::new();
    let names = archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    for name in names {
        let (url, file) = (format!("sftp://box/{name}"), scratch.path(format!("served/{name}")));
        for words in [&["ls", "-R"][..], &["find"], &["check"]] {
            let of = |archive: &str| {
                let mut words = words.to_vec();
                words.insert(1, archive);
                host.run(&scratch, &words).ok().text().replace(archive, "ARCHIVE")
            };
            assert_eq!(of(&url), of(file.to_str().unwrap()), "{words:?} {name}");
        }
        let cat = host.run(&scratch, &["cat", &url, "d/e/noise"]).ok();
        assert!(cat.out == fs::read(tree(&scratch).join("d/e/noise")).unwrap(), "{name}");
        assert!(host.run(&scratch, &["cat", "--offline", &url, "d/e/noise"]).ok().out == cat.out);
        if can_mount() {
            let mount = Mounted::by(host.tarnfs(&scratch), &scratch, &url, &[]);
            assert_eq!(contents(&mount.at), contents(&tree(&scratch)), "{name}");
            mount.unmount();
        }
    }
    let ran = host.run(&scratch, &["ls", "sftp://box/none.tar"]);
    assert!(ran.code == 3 && ran.err.contains("no such file"), "{}", ran.err);
    let ran = host.run(&scratch, &["cat", "sftp://box/a.tar", "nothing"]);
    assert!(ran.code != 0 && !ran.err.contains("ssh says"), "{}", ran.err);
}

/// > A path behind `sftp://HOST/` begins in the home folder, and where nothing has its first name there, at the root;
/// > `//` begins at the root, and `/~/` in the home folder.
#[test]
fn paths_begin_at_home_or_at_the_root() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    scratch.shell("cp -p served/a.tar 'served/a#b?c d%.tar'; mkdir served/tmp; cp -p served/a.tar served/tmp/here.tar");
    let at = scratch.path("served/a.tar");
    let port = host.address().port();
    for url in [
        "sftp://box/a.tar".to_owned(),
        "ssh://box/a.tar".to_owned(),
        "scp://box/~/a.tar".to_owned(),
        format!("sftp://box/{}", at.display()),
        format!("ssh://127.0.0.1:{port}/a.tar"),
        format!("ssh://[127.0.0.1]:{port}/a.tar").replace(['[', ']'], ""),
        "sftp://box/a#b?c%20d%25.tar".to_owned(),
        "sftp://box/tmp/here.tar".to_owned(),
    ] {
        assert_eq!(host.run(&scratch, &["cat", &url, "d/hello"]).ok().text(), "hello\n", "{url}");
    }
    // Nothing at home has that name, then.
    scratch.shell("rm -r served/tmp");
    let other = Scratch::new();
    let url = format!("sftp://box{}", at.display());
    assert_eq!(host.run(&other, &["cat", &url, "d/hello"]).ok().text(), "hello\n");
}

/// > A folder behind a URL is mounted as a folder of this machine: what its server lists.
#[test]
fn folders_at_a_host_are_folders() {
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    for url in ["sftp://box/dumps", "ssh://box/~/dumps/"] {
        assert_shows_folder(&scratch, url, &|| host.tarnfs(&scratch));
    }
    let ran = host.run(&scratch, &["ls", "sftp://box/dumps"]);
    assert!(ran.code == 3 && ran.err.contains("folder"), "{}", ran.err);
    if let Some(other) = Host::rclone(&scratch, "pw") {
        // It shows the time of a folder as that of now.
        assert_shows_folder(&scratch, "sftp://me:pw@box/dumps", &|| other.tarnfs(&scratch));
    }
}

/// > Links at a host show as what they lead to, but for those that lead back to a folder above them.
#[test]
fn links_at_a_host_lead_somewhere() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    scratch.shell(
        "mkdir -p served/l/d/e served/other; echo x > served/l/file; echo y > served/other/y; mkfifo served/l/pipe",
    );
    let at = |name: &str| scratch.path(format!("served/l/{name}"));
    for (to, name) in [
        ("file", "to-file"),
        ("none", "to-nothing"),
        ("../other", "to-other"),
        ("..", "up"),
        ("../..", "d/e/up"),
        ("pipe", "to-pipe"),
        ("/", "root"),
    ] {
        symlink(to, at(name)).unwrap();
    }
    let mount = Mounted::by(host.tarnfs(&scratch), &scratch, "sftp://box/l", &[]);
    let names = |name: &str| {
        let mut names: Vec<_> = fs::read_dir(mount.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["d", "file", "to-file", "to-other"]);
    assert_eq!(names("d/e"), [""; 0]);
    assert_eq!(fs::read_to_string(mount.path("to-file")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(mount.path("to-other/y")).unwrap(), "y\n");
    mount.unmount();
}

/// > A host whose key is not in `known_hosts`, or another one there, is not asked for anything.
#[test]
fn keys_of_hosts_are_checked() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    let ls = |url: &str| host.run(&scratch, &["ls", "--cache-size=0", url]);
    ls("sftp://box/a.tar").ok();
    for (known, said) in [("true", "not in known_hosts"), ("echo box $(cut -d' ' -f1,2 ssh/other.pub)", "another key")]
    {
        scratch.shell(&format!("({known}) > ssh/known"));
        for url in ["sftp://box/a.tar", "sftp://me:secret@box/a.tar"] {
            let ran = ls(url);
            assert!(ran.code == 3 && ran.err.contains(said) && ran.out.is_empty(), "{url}: {}", ran.err);
            assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        }
        assert!(!scratch.shell("cat ssh/known").contains("127.0.0.1"));
    }
}

/// > A login that is refused by a host is an error at once, and is not tried again and again.
#[test]
fn a_refused_login_is_an_error() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    scratch.shell("cp ssh/other ssh/id");
    let wire = Wire::new(host.address());
    let start = Instant::now();
    let ran = host.run(&scratch, &["ls", &format!("sftp://127.0.0.1:{}/a.tar", wire.address.port())]);
    assert!(ran.code == 3 && ran.err.contains("refuses the login") && ran.out.is_empty(), "{}", ran.err);
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!((ran.err.lines().count(), wire.connections()), (1, 1), "{}", ran.err);
    // Nor is anything there.
    drop(wire);
    let ran = host.run(&scratch, &["ls", "sftp://127.0.0.1:1/a.tar"]);
    assert!(ran.code == 3 && ran.err.contains("refused"), "{}", ran.err);
    let mut command = tarnfs(&scratch);
    let ran =
        Ran::from(command.env("PATH", scratch.folder("empty")).args(["ls", "sftp://box/a.tar"]).output().unwrap());
    assert!(ran.code == 3 && ran.err.contains("ssh cannot be started"), "{}", ran.err);
}

/// > The password of a URL for ssh is in no message, log, index, table of mounts, list of processes, environment or
/// > cache.
#[test]
fn passwords_for_ssh_are_hidden() {
    const SECRET: &str = "Xq7secretq7X";
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::rclone(&scratch, SECRET) else { return };
    let url = format!("sftp://me:{SECRET}@box/a.tar.zst");
    assert_are_hidden(&scratch, &url, &[SECRET], &|| host.tarnfs(&scratch));
    for wrong in [format!("sftp://me:no{SECRET}@box/a.tar"), "sftp://me@box/a.tar".to_owned()] {
        let ran = host.run(&scratch, &["ls", "-d", "3", &wrong]);
        assert!(ran.code == 3 && ran.err.contains("refuses the login"), "{}", ran.err);
        assert!(!ran.err.contains(SECRET) && !ran.err.contains("me@"), "{}", ran.err);
    }
    if can_mount() {
        let mount = Mounted::by(host.tarnfs(&scratch), &scratch, &url, &[]);
        let cache = scratch.path("cache").display().to_string();
        let ours = |file: &str, words: &str| {
            let files = format!(
                "for i in /proc/[0-9]*; do if grep -qFs '{cache}' $i/environ; then cat $i/{file} || true; fi; done"
            );
            scratch.shell(&files).contains(words)
        };
        assert!(ours("cmdline", "sftp") && ours("environ", "SSH_ASKPASS"));
        assert!(!ours("cmdline", SECRET) && !ours("environ", SECRET));
        mount.unmount();
        wait_until("ssh has ended", || !ours("cmdline", "sftp"));
    }
}

/// Reads files of an archive over a port that does something to what passes.
fn cat(host: &Host, wire: &Wire, name: &str) -> Ran {
    let url = format!("sftp://127.0.0.1:{}/{name}", wire.address.port());
    host.run(&Scratch::new(), &["cat", &url, "numbers", "d/hello", "d/e/noise"])
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn a_cut_connection_to_a_host_is_got_over() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    let whole: Vec<u8> = ["numbers", "d/hello", "d/e/noise"]
        .iter()
        .flat_map(|name| fs::read(tree(&scratch).join(name)).unwrap())
        .collect();
    for (cuts, most) in [
        (1, 0),
        (1, 30),
        (2, 1500),
        (1, 2700),
        (1, 3500),
        (1, 5000),
        (1, 20_000),
        (3, 150_000),
        (1, 500_000),
        (4, 1_200_000),
        (1, 2_500_000),
    ] {
        let wire = Wire::cutting(host.address(), cuts, most);
        let ran = cat(&host, &wire, "a.tar");
        assert!(ran.code == 0 && ran.out == whole, "{cuts} after {most}: {}", ran.err);
        assert!(wire.connections() > cuts, "{cuts} after {most}");
    }
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn several_readers_have_their_own_files_after_a_cut() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let names = alike(&scratch);
    let Some(host) = Host::openssh(&scratch) else { return };
    // A server gives the same names to what is open in each connection.
    let wire = Wire::cutting(host.address(), 3, 3_000_000);
    let url = format!("sftp://127.0.0.1:{}/alike", wire.address.port());
    let mount = Mounted::by(host.tarnfs(&scratch), &scratch, &url, &["--cache-size=0"]);
    assert_are_read_at_once(&scratch, &mount, &names);
    assert!(wire.connections() > 3, "{}", wire.connections());
    mount.unmount();
}

/// > A server that does not answer any more costs its readers an error, in the time that any request to a mount has,
/// > and hangs nobody.
#[test]
fn a_dead_host_hangs_nobody() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell("head -c 20000000 /dev/urandom > tree/long; tar -C tree -cf served/b.tar .; touch -d '5 minutes ago' served/b.tar");
    let Some(host) = Host::openssh(&scratch) else { return };
    let wire = Wire::new(host.address());
    let url = format!("sftp://127.0.0.1:{}/b.tar", wire.address.port());
    let mount = Mounted::by(host.tarnfs(&scratch), &scratch, &url, &["--cache-size=0"]);
    wire.be_silent(true);
    let start = Instant::now();
    let error = fs::read(mount.path("long")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
    wire.cut();
    wire.be_silent(false);
    assert!(fs::read(mount.path("long")).unwrap() == fs::read(tree(&scratch).join("long")).unwrap());
    mount.unmount();
}

/// > An object that is replaced while it is read gives the old bytes or an error that says so, never a mixture.
#[test]
fn a_file_replaced_at_a_host_is_noticed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    // Of the same length, and other bytes everywhere.
    scratch.shell("head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf first.tar .; cp tree/d/e/noise old
                   head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf other.tar .; touch -d '5 minutes ago' first.tar");
    let Some(host) = Host::openssh(&scratch) else { return };
    let served = scratch.path("served/a.tar");
    let old = fs::read(scratch.path("old")).unwrap();
    let set_time = |later: u64| {
        let file = fs::File::options().write(true).open(&served).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(later)).unwrap();
    };
    let mount = |wire: &Wire| {
        scratch.shell("rm -f served/a.tar; cp -p first.tar served/a.tar");
        let url = format!("sftp://127.0.0.1:{}/a.tar", wire.address.port());
        Mounted::by(host.tarnfs(&scratch), &scratch, url, &["--cache-size=0"])
    };
    // Written over: the file that is open is another one.
    let wire = Wire::new(host.address());
    let mounted = mount(&wire);
    fs::copy(scratch.path("other.tar"), &served).unwrap();
    set_time(5);
    let error = fs::read(mounted.path("d/e/noise")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(116), "{error}");
    mounted.unmount();
    // Another one in its place: the old one is read on as long as it is open there.
    let mounted = mount(&wire);
    scratch.shell("cp other.tar served/new; mv served/new served/a.tar");
    set_time(5);
    assert!(fs::read(mounted.path("d/e/noise")).unwrap() == old);
    mounted.unmount();
    let mounted = mount(&wire);
    scratch.shell("cp other.tar served/new; mv served/new served/a.tar");
    set_time(5);
    wire.cut();
    let error = fs::read(mounted.path("d/e/noise")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(116), "{error}");
    mounted.unmount();
    // It is opened as it is now.
    let mounted = Mounted::by(host.tarnfs(&scratch), &scratch, "sftp://box/a.tar", &[]);
    assert!(fs::read(mounted.path("d/e/noise")).unwrap() == fs::read(tree(&scratch).join("d/e/noise")).unwrap());
    mounted.unmount();
}
