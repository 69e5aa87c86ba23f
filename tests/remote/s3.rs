//! `s3://`: buckets of a server that looks at every signature.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::proxy::{PASSING, Proxy};
use crate::secrets::assert_are_hidden;
use crate::servers::{Server, archives, contents, tree};
use crate::support::{Mounted, Ran, Scratch, can_mount, in_scratch, rounds, unique};

/// A server, and who may ask it.
pub(crate) struct Buckets {
    pub(crate) server: Server,
    user: [String; 2],
    session: [String; 3],
}

impl Buckets {
    /// With all files of `served` in the buckets `kept` and `plain`.
    pub(crate) fn of(scratch: &Scratch) -> Option<Self> {
        let server = Server::moto()?;
        let said = script(&server, &["setup", scratch.path("served").to_str().unwrap()]);
        let mut lines = said.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let mut next = || lines.next().unwrap();
        let (user, session) = (next().try_into().unwrap(), next().try_into().unwrap());
        // Of what was written just now nothing is kept: it may be written again in the same second.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        Some(Self { server, user, session })
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// The program, as the user.
    pub(crate) fn tarnfs(&self, scratch: &Scratch) -> Command {
        let mut command = self.nobody(scratch);
        command.env("AWS_ACCESS_KEY_ID", &self.user[0]).env("AWS_SECRET_ACCESS_KEY", &self.user[1]);
        command
    }

    fn nobody(&self, scratch: &Scratch) -> Command {
        nobody(scratch, &self.endpoint())
    }

    fn run(&self, scratch: &Scratch, words: &[&str]) -> Ran {
        Ran::from(self.tarnfs(scratch).args(words).output().unwrap())
    }

    /// Puts a file there. Returns the version that it has.
    fn put(&self, key: &str, path: &Path) -> String {
        let (bucket, key) = key.split_once('/').unwrap();
        script(&self.server, &["put", bucket, key, path.to_str().unwrap(), &self.user[0], &self.user[1]])
    }
}

/// The program, where no keys are known.
fn nobody(scratch: &Scratch, endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarnfs"));
    in_scratch(&mut command, scratch);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ENDPOINT_URL", endpoint).env("HOME", scratch.folder("home")).stdin(Stdio::null());
    command
}

fn script(server: &Server, words: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/support/s3.py");
    let mut command = Command::new(crate::peers::installed("python3").unwrap());
    let ran = Ran::from(command.arg(script).arg(server.url("").trim_end_matches('/')).args(words).output().unwrap());
    ran.ok().text().trim_end().to_owned()
}

/// > An object in a bucket is opened by every command as the file would be, and mounted.
#[test]
fn objects_in_buckets_are_archives() {
    let scratch = Scratch::new();
    let names = archives(&scratch);
    scratch.shell("mkdir -p 'served/é'; cp -p served/a.zip 'served/é/a b+c%20#d?e.zip'");
    let Some(buckets) = Buckets::of(&scratch) else { return };
    for name in names.into_iter().chain(["é/a b+c%20#d?e.zip"]) {
        let url = format!("s3://plain/{name}");
        let cat = buckets.run(&scratch, &["cat", &url, "numbers"]).ok();
        assert!(cat.out == fs::read(tree(&scratch).join("numbers")).unwrap(), "{name}");
        let to = scratch.folder(format!("to-{}", name.replace('/', "-")));
        buckets.run(&scratch, &["extract", &url, "-C", to.to_str().unwrap()]).ok();
        assert_eq!(contents(&to), contents(&tree(&scratch)), "{name}");
        if can_mount() {
            let mount = Mounted::by(buckets.tarnfs(&scratch), &scratch, &url, &[]);
            assert_eq!(contents(&mount.at), contents(&tree(&scratch)), "{name}");
            mount.unmount();
        }
    }
    let list = buckets.run(&scratch, &["ls", "s3://plain/none.tar"]);
    assert!(list.code == 3 && list.err.contains("404 (NoSuchKey)"), "{}", list.err);
    let list = buckets.run(&scratch, &["ls", "s3://none/a.tar"]);
    assert!(list.code == 3 && list.err.contains("bucket"), "{}", list.err);
}

/// > The next command that opens a URL whose index and blocks are kept makes one request for all of it.
#[test]
fn a_second_command_is_one_request() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(buckets) = Buckets::of(&scratch) else { return };
    let proxy = Proxy::new(buckets.server.address, |_| None);
    let cat = || {
        let mut command = buckets.tarnfs(&scratch);
        command.env("AWS_ENDPOINT_URL", proxy.url("").trim_end_matches('/'));
        command.args(["cat", "--index-minimum-file-count=0", "s3://plain/a.tar.zst", "numbers"]);
        Ran::from(command.output().unwrap()).ok().out
    };
    let first = cat();
    let before = proxy.requests().len();
    assert!(before > 1);
    assert!(cat() == first);
    assert_eq!(proxy.requests().len(), before + 1, "{:#?}", proxy.requests());
}

/// > Keys come from the URL, the environment, or the files of Amazon's tools.
#[test]
fn keys_come_from_where_amazons_tools_look() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(buckets) = Buckets::of(&scratch) else { return };
    let cat = |mut command: Command, url: &str| {
        Ran::from(command.args(["cat", "--cache-size=0", url, "d/hello"]).output().unwrap())
    };
    let url = "s3://plain/a.zip";
    assert_eq!(cat(buckets.tarnfs(&scratch), url).ok().text(), "hello\n");
    let nobody = || buckets.nobody(&scratch);
    // A session.
    let [id, secret, token] = &buckets.session;
    let session = |token: &str| {
        let mut command = nobody();
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_SESSION_TOKEN", token);
        cat(command, url)
    };
    assert_eq!(session(token).ok().text(), "hello\n");
    assert_eq!(session("wrong").code, 3);
    // In the URL, where a slash ends the name of a host.
    let [id, secret] = &buckets.user;
    let escaped = secret.replace('/', "%2F").replace('+', "%2B");
    assert_eq!(cat(nobody(), &format!("s3://{id}:{escaped}@plain/a.zip")).ok().text(), "hello\n");
    // In the files.
    let folder = scratch.folder("home/.aws");
    let here = format!("[profile here]\nregion = eu-west-1\nendpoint_url = {}\n", buckets.endpoint());
    fs::write(folder.join("config"), here).unwrap();
    let credentials = |secret: &str| {
        let text = format!("[here]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        fs::write(folder.join("credentials"), text).unwrap();
        let mut command = nobody();
        command.env_remove("AWS_ENDPOINT_URL").env("AWS_PROFILE", "here");
        cat(command, url)
    };
    assert_eq!(credentials(secret).ok().text(), "hello\n");
    let ran = credentials("wrong");
    assert!(ran.code == 3 && ran.err.contains("SignatureDoesNotMatch"), "{}", ran.err);
    let mut command = nobody();
    command.env("AWS_PROFILE", "none");
    let ran = cat(command, url);
    assert!(ran.code == 3 && ran.err.contains("AWS_PROFILE"), "{}", ran.err);
}

/// > Where no keys are known, an object is asked for without, and a refusal says how to give them.
#[test]
fn nobody_reads_what_is_for_all() {
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell("cd served; mkdir open; cp -p a.tar open");
    // To somebody who does not ask for a signature, this is what a bucket looks like. (moto knows no nobody.)
    let Some(server) = Server::nginx(&scratch, "location /closed { return 403; }", false) else { return };
    let proxy = Proxy::new(server.address, |_| None);
    let ran = |url: &str, keys: &[(&str, &str)]| {
        let mut command = nobody(&scratch, proxy.url("").trim_end_matches('/'));
        Ran::from(command.envs(keys.iter().copied()).args(["cat", url, "d/hello"]).output().unwrap())
    };
    assert_eq!(ran("s3://open/a.tar", &[]).ok().text(), "hello\n");
    let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_NO_SIGN_REQUEST", "YES")];
    assert_eq!(ran("s3://open/a.tar", &keys).ok().text(), "hello\n");
    assert!(proxy.requests().iter().all(|head| !head.to_ascii_lowercase().contains("authorization")));
    let refused = ran("s3://closed/a.tar", &[]);
    assert!(refused.code == 3 && refused.err.contains("403") && refused.err.contains("AWS_PROFILE"), "{}", refused.err);
}

/// > An object that is replaced while it is read gives the old bytes or an error that says so, never a mixture.
/// > Where the bucket keeps versions, an object that is replaced is read on as it was.
#[test]
fn an_object_is_one_version() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    // More than is read before it is mounted.
    scratch.shell(
        "head -c 12000000 /dev/urandom > tree/large; tar -C tree -cf old.tar .; cp old.tar served/a.tar
         mkdir new; head -c 3000000 /dev/urandom > new/noise; tar -cf new.tar new",
    );
    let Some(buckets) = Buckets::of(&scratch) else { return };
    for bucket in ["kept", "plain"] {
        let (key, url) = (format!("{bucket}/a.tar"), format!("s3://{bucket}/a.tar"));
        let mount = Mounted::by(buckets.tarnfs(&scratch), &scratch, &url, &["--cache-size=0"]);
        let version = buckets.put(&key, &scratch.path("new.tar"));
        let read = fs::read(mount.path("large")).map_err(|error| error.raw_os_error());
        if bucket == "kept" {
            assert_ne!(version, "");
            assert!(read.unwrap() == fs::read(tree(&scratch).join("large")).unwrap());
        } else {
            let stale = rustix::io::Errno::STALE.raw_os_error();
            assert!(read.as_ref().is_err_and(|error| *error == Some(stale)), "{:?}", read.map(|bytes| bytes.len()));
        }
        mount.unmount();
        assert!(buckets.run(&scratch, &["ls", &url]).ok().text().contains("new"));
        if bucket == "kept" {
            // The one before it, and this one.
            let last = buckets.put(&key, &scratch.path("old.tar"));
            for (version, has) in [(&version, "new"), (&last, "numbers")] {
                let list = buckets.run(&scratch, &["ls", &format!("{url}?versionId={version}")]).ok().text();
                assert!(list.contains(has), "{list}");
            }
        }
    }
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn each_fault_is_got_over() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(buckets) = Buckets::of(&scratch) else { return };
    let expected = fs::read(tree(&scratch).join("d/e/noise")).unwrap();
    for &fault in &PASSING {
        for number in [0, 1, 2][..rounds(2, 3) as usize].iter().copied() {
            let proxy = Proxy::new(buckets.server.address, move |at| (at == number).then_some(fault));
            let mut command = buckets.tarnfs(&scratch);
            command.env("AWS_ENDPOINT_URL", proxy.url("").trim_end_matches('/'));
            command.env("XDG_CACHE_HOME", scratch.path(format!("cache-{}", unique())));
            command.args(["cat", "s3://plain/a.tar", "d/e/noise"]);
            let ran = Ran::from(command.output().unwrap());
            assert!(ran.code == 0 && ran.out == expected, "{fault:?} at {number}: {}", ran.err);
        }
    }
}

/// > Keys and tokens of S3 are in no message, log, index, table of mounts, list of processes or cache.
#[test]
fn keys_stay_where_they_are() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(buckets) = Buckets::of(&scratch) else { return };
    let [id, secret] = &buckets.user;
    let in_url = secret.replace('/', "%2F").replace('+', "%2B");
    let token = &buckets.session[2];
    let secrets = [secret.as_str(), &in_url, token, "wrongsecret"];
    let url = format!("s3://{id}:{in_url}@plain/a.tar.zst");
    assert_are_hidden(&scratch, &url, &secrets, &|| {
        let mut command = buckets.nobody(&scratch);
        command.env("AWS_SESSION_TOKEN", token);
        command
    });
    // What is wrong with keys of the environment is told without them.
    for (id, secret) in [(id.as_str(), "wrongsecret"), ("wrongsecret", secret), ("wrong\nsecret", secret)] {
        let mut command = buckets.nobody(&scratch);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_SESSION_TOKEN", token);
        let ran = Ran::from(command.args(["ls", "-d3", "s3://plain/a.zip"]).output().unwrap());
        assert_eq!(ran.code, 3);
        assert!(secrets.iter().all(|secret| !ran.err.contains(secret)), "{}", ran.err);
    }
}
