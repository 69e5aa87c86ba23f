//! Folders behind a URL.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::proxy::{Fault, PASSING, Proxy};
use crate::s3::Buckets;
use crate::secrets::assert_are_hidden;
use crate::servers::{Server, archives, contents, tree};
use crate::support::{Mounted, Ran, Scratch, can_mount, rounds, run, tarnfs, unique};

/// What lies below a folder, with lengths of files.
fn survey(root: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, about) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if about.is_dir() {
                found.push((format!("{name}/"), 0));
                folders.push(path);
            } else {
                found.push((name, about.len()));
            }
        }
    }
    found.sort();
    found
}

/// A folder in `served` with folders, odd names and archives.
pub(crate) fn folder(scratch: &Scratch) {
    archives(scratch);
    scratch.shell(
        "cd served; mkdir -p dumps/2026/deep 'dumps/a b+c%20é'; seq 1 60000 > dumps/2026/numbers
         printf x > 'dumps/a b+c%20é/x&y#z?'; cp -p a.tar a.tar.gz dumps/2026; cp -p a.zip dumps/2026/deep
         for i in $(seq 1500); do printf '%s' $i > dumps/2026/deep/f$i; done
         find dumps | xargs -d '\\n' touch -d '5 minutes ago'",
    );
}

/// Mounts the folder at `url`, and compares it with the one that is served; also with the archives in it as folders.
pub(crate) fn assert_shows_folder(scratch: &Scratch, url: &str, command: &dyn Fn() -> Command) {
    if !can_mount() {
        return;
    }
    let dumps = scratch.path("served/dumps");
    let mount = Mounted::by(command(), scratch, url, &[]);
    assert_eq!(survey(&mount.at), survey(&dumps), "{url}");
    for name in ["2026/numbers", "2026/a.tar", "2026/deep/f77", "a b+c%20é/x&y#z?"] {
        assert!(fs::read(mount.path(name)).unwrap() == fs::read(dumps.join(name)).unwrap(), "{url} {name}");
    }
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let (here, there) = (time(&mount.path("2026/a.tar")), time(&dumps.join("2026/a.tar")));
    // A bucket has the time at which it was put there; some pages have minutes.
    let apart = here.duration_since(there).unwrap_or_else(|error| error.duration());
    assert!(apart.as_secs() < 3600, "{url}: {apart:?}");
    assert_eq!(fs::read_dir(mount.path("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    mount.unmount();
    let mount = Mounted::by(command(), scratch, url, &["-r"]);
    for name in ["2026/a.tar", "2026/a.tar.gz", "2026/deep/a.zip"] {
        assert_eq!(contents(&mount.path(name)), contents(&tree(scratch)), "{url} {name}");
    }
    mount.unmount();
}

/// > A folder behind a URL is mounted as a folder of this machine: what its server lists.
#[test]
fn pages_that_list_a_folder_are_folders() {
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(server) = Server::nginx(&scratch, "autoindex on;", false) else { return };
    assert_shows_folder(&scratch, &server.url("dumps/"), &|| tarnfs(&scratch));
    // It redirects to the name with a slash.
    assert_shows_folder(&scratch, &server.url("dumps"), &|| tarnfs(&scratch));
    let listed = run(&scratch, ["ls", &server.url("dumps")]);
    assert!(listed.code == 3 && listed.err.contains("folder"), "{}", listed.err);
    // A page that says no sizes: each file is asked for.
    scratch.shell("find served/dumps/2026/deep -name 'f*' ! -name f77 -delete");
    assert_shows_folder(&scratch, &Server::python(&scratch).url("dumps/"), &|| tarnfs(&scratch));
}

/// > A folder behind a URL is mounted as a folder of this machine: what its server lists.
#[test]
fn names_in_a_bucket_are_folders() {
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(buckets) = Buckets::of(&scratch) else { return };
    assert_shows_folder(&scratch, "s3://plain/dumps", &|| buckets.tarnfs(&scratch));
    if can_mount() {
        let mount = Mounted::by(buckets.tarnfs(&scratch), &scratch, "s3://plain/", &[]);
        assert_eq!(survey(&mount.path("dumps")), survey(&scratch.path("served/dumps")));
        mount.unmount();
    }
    let ran = Ran::from(
        buckets.tarnfs(&scratch).args(["mount", "s3://plain/none/"]).arg(scratch.path("m")).output().unwrap(),
    );
    assert!(ran.code == 3 && ran.err.contains("nothing"), "{}", ran.err);
}

/// > A folder behind a URL is mounted as a folder of this machine: what its server lists.
#[test]
fn folders_over_webdav_are_folders() {
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(server) = Server::apache(&scratch, None) else { return };
    let url = |name: &str| format!("webdav://{}/dav/{name}", server.address);
    assert_shows_folder(&scratch, &url("dumps"), &|| tarnfs(&scratch));
    assert_shows_folder(&scratch, &url("dumps/"), &|| tarnfs(&scratch));
    let cat = run(&scratch, ["cat", &url("a.tar.zst"), "d/hello"]).ok();
    assert_eq!(cat.text(), "hello\n");
    let ran = run(&scratch, ["ls", &url("none.tar")]);
    assert!(ran.code == 3 && ran.err.contains("404"), "{}", ran.err);
}

/// > Who logs in over WebDAV is taken from the URL, from `WEBDAV_USER` and `WEBDAV_PASSWORD`, or from `.netrc`.
#[test]
fn logins_over_webdav_come_from_the_environment() {
    const SECRET: &str = "Xq7secretq7X";
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::apache(&scratch, Some(SECRET)) else { return };
    let url = format!("webdav://{}/dav/a.tar.gz", server.address);
    let cat = |user: &str, password: &str| {
        let mut command = tarnfs(&scratch);
        command.env("WEBDAV_USER", user).env("WEBDAV_PASSWORD", password).args([
            "cat",
            "--cache-size=0",
            &url,
            "d/hello",
        ]);
        Ran::from(command.output().unwrap())
    };
    assert_eq!(cat("me", SECRET).ok().text(), "hello\n");
    let ran = cat("me", "wrong");
    assert!(ran.code == 3 && ran.err.contains("401"), "{}", ran.err);
    // With the login as it is encoded.
    let secrets = [SECRET, "bWU6WHE3c2VjcmV0cTdY"];
    let with_login = format!("webdav://me:{SECRET}@{}/dav/a.tar.zst", server.address);
    assert_are_hidden(&scratch, &with_login, &secrets, &|| tarnfs(&scratch));
    assert_are_hidden(&scratch, &url, &secrets, &|| {
        let mut command = tarnfs(&scratch);
        command.env("WEBDAV_USER", "me").env("WEBDAV_PASSWORD", SECRET);
        command
    });
    // Without TLS nothing goes to a server that was named with it.
    let ran = run(&scratch, ["ls", &url.replace("webdav:", "webdavs:")]);
    assert!(ran.code == 3, "{}", ran.err);
}

/// > What changes in a folder behind a URL shows after a while, and what is read of one file is of one version.
#[test]
fn what_changes_in_a_folder_shows() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(server) = Server::nginx(&scratch, "autoindex on;", false) else { return };
    let mount = Mounted::by(tarnfs(&scratch), &scratch, server.url("dumps/2026/"), &["-r"]);
    assert_eq!(fs::read_to_string(mount.path("a.tar/d/hello")).unwrap(), "hello\n");
    assert!(fs::read(mount.path("numbers")).unwrap().ends_with(b"60000\n"));
    scratch.shell("cd served/dumps/2026; seq 1 60001 > numbers; echo new > new; rm a.tar; tar -cf a.tar numbers");
    crate::support::wait_until("the change shows", || {
        fs::read(mount.path("numbers")).is_ok_and(|bytes| bytes.ends_with(b"60001\n"))
            && fs::read(mount.path("new")).is_ok_and(|bytes| bytes == b"new\n")
            && fs::read(mount.path("a.tar/numbers")).is_ok_and(|bytes| bytes.ends_with(b"60001\n"))
    });
    mount.unmount();
}

/// > What changes in a folder behind a URL shows after a while, and what is read of one file is of one version.
///
/// Here neither the length nor the time that the listing tells is another one.
#[test]
fn a_file_that_is_replaced_without_a_sign_in_the_listing_is_the_new_one_after_a_while() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(server) = Server::nginx(&scratch, "autoindex on;", false) else { return };
    let file = scratch.path("served/dumps/2026/numbers");
    let old = fs::read(&file).unwrap();
    let new: Vec<u8> = old.iter().map(|byte| byte.wrapping_add(1)).collect();
    scratch.shell("touch -d '2020-02-02 02:02:02' served/dumps/2026/numbers");
    let mount = Mounted::by(tarnfs(&scratch), &scratch, server.url("dumps/2026/"), &[]);
    let open = fs::File::open(mount.path("numbers")).unwrap();
    let mut first = [0; 4096];
    open.read_exact_at(&mut first, 0).unwrap();
    assert!(old.starts_with(&first));
    // At one of the two it is in no time another file.
    fs::write(scratch.path("served/dumps/new"), &new).unwrap();
    scratch.shell("cd served/dumps; touch -d '2020-02-02 02:02:42' new; mv new 2026/numbers");
    // What the kernel and the program have read of it ahead is the old one.
    let mut last = [0; 4096];
    match open.read_exact_at(&mut last, old.len() as u64 - 4096) {
        Ok(()) => assert!(old.ends_with(&last)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}"),
    }
    crate::support::wait_until("the new one shows", || match fs::read(mount.path("numbers")) {
        Ok(bytes) => {
            assert!(bytes == old || bytes == new, "a mixture");
            bytes == new
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
            false
        }
    });
    // Who has the old one open never reads the new one.
    let mut first = [0; 4096];
    if open.read_exact_at(&mut first, 0).is_ok() {
        assert!(old.starts_with(&first));
    }
    drop(open);
    mount.unmount();
}

/// Lists all and reads a file in a mount of the folder at `url`.
fn list_and_read(scratch: &Scratch, url: &str, mut command: Command) -> (Vec<(String, u64)>, Vec<u8>) {
    command.env("XDG_CACHE_HOME", scratch.path(format!("cache-{}", unique())));
    let mount = Mounted::by(command, scratch, url, &[]);
    let found = (survey(&mount.at), fs::read(mount.path("2026/numbers")).unwrap());
    mount.unmount();
    found
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn each_fault_is_got_over_in_folders() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    scratch.shell("rm -r served/dumps/2026/deep served/dumps/2026/a.tar*");
    let dumps = scratch.path("served/dumps");
    let expected = (survey(&dumps), fs::read(dumps.join("2026/numbers")).unwrap());
    let check = |address, of: &dyn Fn(&Proxy) -> (String, Command)| {
        let proxy = Proxy::new(address, |_| None);
        let (url, command) = of(&proxy);
        assert!(list_and_read(&scratch, &url, command) == expected, "{url}");
        let requests = proxy.requests().len();
        assert!(requests >= 4, "{requests}");
        // Each fault at one request of each server, or at all of them.
        for (at, &fault) in PASSING.iter().enumerate() {
            for number in (0..requests).filter(|number| rounds(0, 1) == 1 || *number == at % requests) {
                let proxy = Proxy::new(address, move |at| (at == number).then_some(fault));
                let (url, command) = of(&proxy);
                assert!(list_and_read(&scratch, &url, command) == expected, "{fault:?} at {number}: {url}");
            }
        }
    };
    let plain = || tarnfs(&scratch);
    if let Some(server) = Server::nginx(&scratch, "autoindex on;", false) {
        check(server.address, &|proxy| (proxy.url("dumps/"), plain()));
    }
    if let Some(buckets) = Buckets::of(&scratch) {
        check(buckets.server.address, &|proxy| {
            let mut command = buckets.tarnfs(&scratch);
            command.env("AWS_ENDPOINT_URL", proxy.url("").trim_end_matches('/'));
            ("s3://plain/dumps".to_owned(), command)
        });
    }
}

/// > A server that does not answer any more costs its readers an error, in the time that any request to a mount has,
/// > and hangs nobody.
#[test]
fn a_dead_server_of_a_folder_hangs_nobody() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    let Some(server) = Server::nginx(&scratch, "autoindex on;", false) else { return };
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = Arc::clone(&is_dead);
    let proxy = Proxy::new(server.address, move |_| dead.load(Ordering::Relaxed).then_some(Fault::Silent));
    let mount = Mounted::by(tarnfs(&scratch), &scratch, proxy.url("dumps/"), &[]);
    assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 2);
    is_dead.store(true, Ordering::Relaxed);
    let (deep, begin) = (mount.path("2026"), Instant::now());
    let waits = std::thread::spawn(move || fs::read_dir(deep).and_then(|mut all| all.next().transpose()).is_err());
    // What is known is told meanwhile.
    assert!(fs::metadata(&mount.at).unwrap().is_dir());
    assert!(waits.join().unwrap());
    assert!(begin.elapsed() < Duration::from_secs(100), "{:?}", begin.elapsed());
    is_dead.store(false, Ordering::Relaxed);
    assert!(fs::read(mount.path("2026/numbers")).unwrap().ends_with(b"60000\n"));
    mount.unmount();
}
