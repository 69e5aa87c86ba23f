//! Passwords and what else opens an object: where they go, and where they do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::proxy::Proxy;
use crate::servers::{Server, archives};
use crate::support::{Mounted, Ran, Scratch, can_mount, in_scratch, run, tarnfs};

/// It stands nowhere by chance.
const SECRET: &str = "Xq7secretq7X";

/// What nginx asks a login for: `me` with the secret.
fn guarded(scratch: &Scratch) -> Option<Server> {
    let hash = scratch.shell(&format!("openssl passwd -apr1 {SECRET}"));
    fs::write(scratch.path("logins"), format!("me:{hash}")).unwrap();
    let lines = format!("auth_basic x; auth_basic_user_file {};", scratch.path("logins").display());
    Server::nginx(scratch, &lines, false)
}

/// All files below a folder.
fn bytes_below(scratch: &Scratch, folder: &str) -> Vec<u8> {
    scratch.shell(&format!("find {folder} -type f -exec cat {{}} +; find {folder}")).into_bytes()
}

/// It, and what a login with it is encoded as.
const SECRETS: [&str; 2] = [SECRET, "bWU6WHE3c2VjcmV0cTdY"];

fn has_secret(bytes: &[u8]) -> bool {
    SECRETS.iter().any(|secret| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()))
}

/// > The password and the query of a URL are in no message, log, index, table of mounts, list of processes or cache.
#[test]
fn secrets_stay_where_they_are() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = guarded(&scratch) else { return };
    let url = format!("http://me:{SECRET}@{}/a.tar.zst?token={SECRET}", server.address);
    let (host, options) = (server.address.to_string(), ["-d", "3", "--index-minimum-file-count=0"]);
    let mut said = Vec::new();
    let mut ran = |words: &[&str]| {
        let ran = Ran::from(tarnfs(&scratch).args(words).args(options).output().unwrap());
        said.extend_from_slice(&ran.out);
        said.extend_from_slice(ran.err.as_bytes());
        ran.code
    };
    assert_eq!(ran(&["ls", &url]), 0);
    assert_eq!(ran(&["info", &url]), 0);
    assert_eq!(ran(&["index", &url]), 0);
    assert_ne!(ran(&["ls", &format!("http://me:wrong{SECRET}@{host}/a.tar.zst?{SECRET}")]), 0);
    assert_ne!(ran(&["ls", &format!("http://me:{SECRET}@{host}/none.tar?{SECRET}")]), 0);
    assert_ne!(ran(&["ls", &format!("http://me:{SECRET}@127.0.0.1:1/none.tar?{SECRET}")]), 0);
    assert_ne!(ran(&["ls", &format!("http://me:{SECRET}@ho st/none.tar?{SECRET}")]), 0);
    assert_ne!(ran(&["ls", &format!("ftq://me:{SECRET}@host/none.tar?{SECRET}")]), 0);
    // Where a password has what ends one, and words that are no archives.
    let here = scratch.folder("here");
    let bytes = [b"http://me:".as_slice(), SECRET.as_bytes(), b"@127.0.0.1:1/caf\xe9.tar"].concat();
    let mut command = tarnfs(&scratch);
    command.arg("ls").arg(std::ffi::OsStr::from_bytes(&bytes));
    let mut all = vec![command];
    let other = format!("http://me:{SECRET}@127.0.0.1:1/x?{SECRET}");
    let chain = format!("tar::{other}");
    for secret in [format!("{SECRET}/1"), format!("a1/{SECRET}"), format!("a1#{SECRET}"), format!("a1?{SECRET}")] {
        let mut command = tarnfs(&scratch);
        command.args(["ls", &format!("http://me:{secret}@127.0.0.1:1/x.tar")]);
        all.push(command);
    }
    let archive = scratch.path("served/a.tar");
    let archive = archive.to_str().unwrap();
    for words in [
        &["-u", &other][..],
        &["ls", &chain],
        &["convert", archive, &other],
        &["cat", archive, &other],
        &["create", &other, "nothing"],
        &["ls", archive, "--log-file", &other],
        &["ls", archive, "--index-folders", &other],
        &["index", archive, "--index-folders", &other],
        &["ls", "--nonsense", &other],
    ] {
        let mut command = tarnfs(&scratch);
        command.args(words);
        all.push(command);
    }
    for mut command in all {
        let ran = Ran::from(command.current_dir(&here).output().unwrap());
        said.extend_from_slice(ran.err.as_bytes());
        assert!(!has_secret(ran.err.as_bytes()) && !ran.out.starts_with(b"http"), "{command:?}: {}", ran.err);
    }
    assert!(!has_secret(&said), "{}", String::from_utf8_lossy(&said));
    assert_are_hidden(&scratch, &url, &SECRETS, &|| tarnfs(&scratch));
}

/// Reads what is behind `url`, also in a mount, and looks for these words where they must not be.
pub(crate) fn assert_are_hidden(scratch: &Scratch, url: &str, secrets: &[&str], command: &dyn Fn() -> Command) {
    let has_one =
        |bytes: &[u8]| secrets.iter().any(|secret| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
    let options = ["-d", "3", "--index-minimum-file-count=0"];
    for words in [["ls", url], ["info", url], ["index", url]] {
        let ran = Ran::from(command().args(words).args(options).output().unwrap()).ok();
        assert!(!has_one(&ran.out) && !has_one(ran.err.as_bytes()), "{words:?}: {}", ran.err);
    }
    if can_mount() {
        let mount = Mounted::by(command(), scratch, url, &options);
        assert_eq!(fs::read_to_string(mount.path("d/hello")).unwrap(), "hello\n");
        assert!(!has_one(mount.ran.err.as_bytes()), "{}", mount.ran.err);
        assert!(!has_one(&fs::read("/proc/self/mountinfo").unwrap()));
        let ours = scratch.path("cache");
        let ours = format!("(grep -lFs '{}' /proc/[0-9]*/environ || true) | xargs -n1 dirname", ours.display());
        let processes = scratch.shell(&ours);
        assert!(processes.lines().count() >= 2, "{processes}");
        for process in processes.lines() {
            for of in ["cmdline", "comm", "maps"] {
                assert!(!has_one(&fs::read(format!("{process}/{of}")).unwrap_or_default()), "{process}/{of}");
            }
        }
        let shown = run(scratch, ["mounts"]).ok();
        assert!(!has_one(&shown.out));
        mount.unmount();
    }
    assert!(fs::read_dir(scratch.path("cache/tarnfs/remote")).unwrap().count() > 0);
    assert!(!has_one(&bytes_below(scratch, "cache")));
}

/// > Who logs in is taken from the URL, else from `.netrc`.
#[test]
fn logins_come_from_netrc() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = guarded(&scratch) else { return };
    let cat = |home: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarnfs"));
        in_scratch(&mut command, &scratch);
        let command = command.env("HOME", scratch.folder(home)).args(["cat", &server.url("a.tar.gz"), "d/hello"]);
        Ran::from(command.stdin(Stdio::null()).output().unwrap())
    };
    let ran = cat("nobody");
    assert!(ran.code == 3 && ran.err.contains("401") && ran.err.contains(".netrc"), "{}", ran.err);
    let netrc = scratch.folder("somebody").join(".netrc");
    fs::write(&netrc, format!("machine 127.0.0.1 login me password {SECRET}\n")).unwrap();
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(cat("somebody").ok().text(), "hello\n");
}

/// > A redirect to another host carries no login, and one from https to http is not followed.
#[test]
fn redirects_carry_no_login() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(target) = Server::nginx(&scratch, "", false) else { return };
    let proxy = Proxy::new(target.address, |_| None);
    let to = format!("location / {{ return 302 {}$uri; }}", proxy.url("").trim_end_matches('/'));
    let Some(server) = Server::nginx(&scratch, &to, false) else { return };
    let url = format!("http://me:{SECRET}@{}/a.tar.zst", server.address);
    assert_eq!(run(&scratch, ["cat", &url, "d/hello"]).ok().text(), "hello\n");
    assert!(proxy.requests().len() > 1);
    assert!(proxy.requests().iter().all(|head| !head.to_ascii_lowercase().contains("authorization")));
    let Some(server) = Server::nginx(&scratch, &to, true) else { return };
    let mut command = tarnfs(&scratch);
    let url = format!("https://localhost:{}/a.tar.zst", server.address.port());
    command.env("SSL_CERT_FILE", scratch.path("ca.crt")).args(["cat", &url, "d/hello"]);
    let ran = Ran::from(command.output().unwrap());
    assert!(ran.code == 3 && ran.err.contains("redirects to http"), "{}", ran.err);
}
