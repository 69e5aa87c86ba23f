//! GitHub, IPFS and Dropbox: `services.py` answers as their documented interfaces do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::folders::{assert_shows_folder, folder};
use crate::secrets::assert_are_hidden;
use crate::servers::{Server, archives, contents, tree};
use crate::support::{Mounted, Ran, Scratch, can_mount, tarnfs};

const TOKEN: &str = "Xq7tokenq7X";

struct Services(Server);

impl Services {
    fn new(scratch: &Scratch) -> Self {
        Self(Server::services(scratch, TOKEN))
    }

    /// The program, which is told that all of them are here.
    fn tarnfs(&self, scratch: &Scratch, token: &str) -> Command {
        let mut command = tarnfs(scratch);
        let base = self.0.url("");
        let base = base.trim_end_matches('/');
        command.env("GITHUB_API_URL", format!("{base}/api")).env("GITHUB_RAW_URL", format!("{base}/raw"));
        command.env("IPFS_GATEWAY", base).env("DROPBOX_API_URL", base);
        command.env_remove("GH_TOKEN").env_remove("GITHUB_TOKEN").env_remove("DROPBOX_TOKEN");
        if !token.is_empty() {
            command.env("GITHUB_TOKEN", token).env("DROPBOX_TOKEN", token);
        }
        command
    }

    fn run(&self, scratch: &Scratch, words: &[&str]) -> Ran {
        Ran::from(self.tarnfs(scratch, TOKEN).args(words).output().unwrap())
    }
}

fn assert_opens(services: &Services, scratch: &Scratch, url: &str) {
    let cat = services.run(scratch, &["cat", url, "d/e/noise"]).ok();
    assert!(cat.out == fs::read(tree(scratch).join("d/e/noise")).unwrap(), "{url}");
    if can_mount() {
        let mount = Mounted::by(services.tarnfs(scratch, TOKEN), scratch, url, &[]);
        assert_eq!(contents(&mount.at), contents(&tree(scratch)), "{url}");
        mount.unmount();
    }
}

/// > An archive in a repository of GitHub is opened, of any branch, and its folders are shown.
#[test]
fn repositories_of_github_are_read() {
    let scratch = Scratch::new();
    folder(&scratch);
    let services = Services::new(&scratch);
    for url in
        ["github://Org:Repo@main/a.tar", "github://Org:Repo/a.tar.zst", "github://Org:Repo@a%2Fb/dumps/2026/deep/a.zip"]
    {
        assert_opens(&services, &scratch, url);
    }
    // Times are not told.
    if can_mount() {
        let mount = Mounted::by(services.tarnfs(&scratch, ""), &scratch, "github://Org:Repo@main/dumps", &["-r"]);
        // More names than are listed at once.
        assert_eq!(fs::read_dir(mount.path("2026/deep")).unwrap().count(), 1501);
        assert_eq!(contents(&mount.path("2026/a.tar.gz")), contents(&tree(&scratch)));
        assert_eq!(fs::read(mount.path("a b+c%20é/x&y#z?")).unwrap(), b"x");
        mount.unmount();
    }
    let ran = services.run(&scratch, &["ls", "github://Org:Repo@main/none.tar"]);
    assert!(ran.code == 3 && ran.err.contains("404"), "{}", ran.err);
    let ran = services.run(&scratch, &["ls", "github://Org/x.tar"]);
    assert!(ran.code == 3 && ran.err.contains("github://ORG:REPO"), "{}", ran.err);
    assert_are_hidden(&scratch, "github://Org:Repo@main/a.tar", &[TOKEN], &|| services.tarnfs(&scratch, TOKEN));
}

/// > An archive of IPFS is opened through a gateway.
#[test]
fn archives_of_ipfs_are_opened() {
    let scratch = Scratch::new();
    archives(&scratch);
    let services = Services::new(&scratch);
    assert_opens(&services, &scratch, "ipfs://QmZBuTfLH1LLi4JqgutzBdwSYS5ybrkztnyWAfRBP729WB/a.tar.zst");
    assert_opens(&services, &scratch, "ipns://example.org/a.zip");
    assert!(
        services.0.requests().iter().any(|line| line.contains("/ipfs/QmZBuTfLH1LLi4JqgutzBdwSYS5ybrkztnyWAfRBP729WB/"))
    );
    let home = scratch.folder("home/.ipfs");
    fs::write(home.join("gateway"), services.0.url("")).unwrap();
    let mut command = services.tarnfs(&Scratch::new(), "");
    command.env_remove("IPFS_GATEWAY").env_remove("IPFS_PATH").env("HOME", scratch.path("home"));
    let ran = Ran::from(command.args(["cat", "ipfs://Qmx/a.tar", "d/hello"]).output().unwrap()).ok();
    assert_eq!(ran.text(), "hello\n");
    let mut command = services.tarnfs(&scratch, "");
    let ran = Ran::from(command.env("IPFS_GATEWAY", "nonsense").args(["ls", "ipfs://Qmx/b.tar"]).output().unwrap());
    assert!(ran.code == 3 && ran.err.contains("IPFS_GATEWAY"), "{}", ran.err);
}

/// > Archives and folders of a Dropbox are opened with a token, which is in no message, log, index, table of mounts,
/// > list of processes or cache.
#[test]
fn a_dropbox_is_read() {
    let scratch = Scratch::new();
    folder(&scratch);
    let services = Services::new(&scratch);
    scratch.shell("cp -p served/a.tar 'served/a é#b?.tar'");
    for url in ["dropbox://a.tar", "dropbox:///a.tar.zst", "dropbox://dumps/2026/a.tar.gz", "dropbox://a é#b?.tar"] {
        assert_opens(&services, &scratch, url);
    }
    scratch.shell("find served/dumps/2026/deep -name 'f*' ! -name f77 -delete");
    for url in ["dropbox://dumps", "dropbox://dumps/"] {
        assert_shows_folder(&scratch, url, &|| services.tarnfs(&scratch, TOKEN));
    }
    if can_mount() {
        let mount = Mounted::by(services.tarnfs(&scratch, TOKEN), &scratch, "dropbox:///", &[]);
        assert_eq!(fs::read_dir(&mount.at).unwrap().count(), fs::read_dir(scratch.path("served")).unwrap().count());
        mount.unmount();
    }
    for (token, url, said) in [
        (TOKEN, "dropbox://none.tar", "no such file"),
        ("", "dropbox://a.tar", "DROPBOX_TOKEN"),
        ("wrong", "dropbox://a.tar", "DROPBOX_TOKEN"),
    ] {
        let ran = Ran::from(services.tarnfs(&Scratch::new(), token).args(["ls", url]).output().unwrap());
        assert!(ran.code == 3 && ran.err.contains(said), "{}", ran.err);
    }
    assert_are_hidden(&scratch, "dropbox://a.tar", &[TOKEN], &|| services.tarnfs(&scratch, TOKEN));
}

/// > An object that is replaced while it is read gives the old bytes or an error that says so, never a mixture.
#[test]
fn files_of_services_that_are_replaced_are_noticed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell(
        "head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf first.tar .; cp tree/d/e/noise old
                   head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf other.tar .",
    );
    let services = Services::new(&scratch);
    let old = fs::read(scratch.path("old")).unwrap();
    // Dropbox keeps older revisions, and GitHub has one for each branch.
    for (url, errno) in [("github://Org:Repo@main/a.tar", Some(116)), ("dropbox://a.tar", None)] {
        scratch.shell("cp first.tar served/a.tar");
        let mounted = Mounted::by(services.tarnfs(&scratch, TOKEN), &scratch, url, &["--cache-size=0"]);
        scratch.shell("cp other.tar served/a.tar");
        let file = fs::File::options().write(true).open(scratch.path("served/a.tar")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        match (fs::read(mounted.path("d/e/noise")), errno) {
            (Ok(read), None) => assert!(read == old, "{url}"),
            (Err(error), Some(_)) => assert_eq!(error.raw_os_error(), errno, "{url}: {error}"),
            (result, _) => panic!("{url}: {:?}", result.map(|bytes| bytes.len())),
        }
        mounted.unmount();
    }
}
