//! Servers of FTP: vsftpd, which has neither `MLST` nor `MLSD`, and pyftpdlib, which has both.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant, SystemTime};

use crate::folders::{assert_shows_folder, folder};
use crate::secrets::assert_are_hidden;
use crate::servers::{Server, alike, archives, assert_are_read_at_once, certificates, contents, tree};
use crate::support::{Mounted, Ran, Scratch, can_mount, run, tarnfs};
use crate::wire::Wire;

const SECRET: &str = "Xq7secretq7X";

/// What pyftpdlib's server is to do.
#[derive(Debug, Default)]
struct Does<'a> {
    login: &'a str,
    is_encrypted: bool,
    /// So many data connections are cut, each after so many bytes.
    cuts: (usize, u64),
}

fn pyftpdlib(scratch: &Scratch, does: &Does<'_>) -> Option<Server> {
    let pem = if does.is_encrypted {
        certificates(scratch);
        scratch.shell("cat tls.key tls.crt > tls.pem; readlink -f tls.pem").trim().to_owned()
    } else {
        String::new()
    };
    let (cuts, most) = does.cuts;
    let folder = scratch.folder("served").display().to_string();
    Server::pyftpdlib(scratch, |port, log| {
        vec![
            port.to_string(),
            folder.clone(),
            log,
            does.login.to_owned(),
            pem.clone(),
            cuts.to_string(),
            most.to_string(),
        ]
    })
}

/// The commands that it has got.
fn count(server: &Server, command: &str) -> usize {
    server.requests().iter().filter(|line| line.starts_with(command)).count()
}

fn plain(server: &Server, name: &str) -> String {
    format!("ftp://{}/{name}", server.address)
}

/// > An archive at a server of FTP is opened by every command as the file would be, and mounted.
#[test]
fn an_archive_over_ftp_is_opened() {
    let scratch = Scratch::new();
    let names = archives(&scratch);
    scratch.shell("cp -p served/a.tar 'served/a#b?c d%.tar'");
    for server in [Server::vsftpd(&scratch, false), pyftpdlib(&scratch, &Does::default())].into_iter().flatten() {
        for name in &names {
            let (url, file) = (plain(&server, name), scratch.path(format!("served/{name}")));
            for words in [&["ls", "-R"][..], &["find"], &["check"]] {
                let of = |archive: &str| {
                    let mut words = words.to_vec();
                    words.insert(1, archive);
                    run(&scratch, words).ok().text().replace(archive, "ARCHIVE")
                };
                assert_eq!(of(&url), of(file.to_str().unwrap()), "{words:?} {name}");
            }
            let cat = run(&scratch, ["cat", &url, "d/e/noise"]).ok();
            assert!(cat.out == fs::read(tree(&scratch).join("d/e/noise")).unwrap(), "{name}");
            assert!(run(&scratch, ["cat", "--offline", &url, "d/e/noise"]).ok().out == cat.out);
            if can_mount() {
                let mount = Mounted::new(&scratch, &url, &[]);
                assert_eq!(contents(&mount.at), contents(&tree(&scratch)), "{name}");
                mount.unmount();
            }
        }
        for name in ["a#b?c%20d%25.tar", "/a.tar", "~/a.tar"] {
            assert_eq!(run(&scratch, ["cat", &plain(&server, name), "d/hello"]).ok().text(), "hello\n", "{name}");
        }
        let ran = run(&scratch, ["ls", &plain(&server, "none.tar")]);
        assert!(ran.code == 3 && ran.err.contains("550"), "{}", ran.err);
    }
    let ran = run(&scratch, ["ls", "ftp://127.0.0.1:1/a.tar"]);
    assert!(ran.code == 3 && ran.err.contains("no connection"), "{}", ran.err);
}

/// > A folder behind a URL is mounted as a folder of this machine: what its server lists.
#[test]
fn folders_over_ftp_are_folders() {
    let scratch = Scratch::new();
    folder(&scratch);
    scratch.shell("mkdir served/l; cd served/l; echo x > file; ln -s file to-file; ln -s none to-nothing");
    for server in [Server::vsftpd(&scratch, false), pyftpdlib(&scratch, &Does::default())].into_iter().flatten() {
        for name in ["dumps", "dumps/"] {
            assert_shows_folder(&scratch, &plain(&server, name), &|| tarnfs(&scratch));
        }
        let ran = run(&scratch, ["ls", &plain(&server, "dumps")]);
        assert!(ran.code == 3 && ran.err.contains("folder"), "{}", ran.err);
        if can_mount() {
            let mount = Mounted::new(&scratch, plain(&server, "l"), &[]);
            assert_eq!(fs::read_to_string(mount.path("to-file")).unwrap(), "x\n");
            assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 2);
            mount.unmount();
        }
    }
}

/// > What is read from start to end over FTP comes in few transfers, over few connections.
#[test]
fn a_file_that_is_read_in_order_comes_in_few_transfers() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell("head -c 30000000 /dev/urandom > tree/long; tar -C tree -cf served/b.tar .; touch -d '5 minutes ago' served/b.tar");
    let Some(server) = pyftpdlib(&scratch, &Does::default()) else { return };
    // Samples of the archive are read at many places first.
    let mount = Mounted::new(&scratch, plain(&server, "b.tar"), &["--cache-size=0"]);
    let before = count(&server, "RETR");
    assert!(fs::read(mount.path("long")).unwrap() == fs::read(tree(&scratch).join("long")).unwrap());
    let transfers = count(&server, "RETR") - before;
    mount.unmount();
    // Of more than 30 requests, some may come out of turn on a busy machine.
    assert!((1..=24).contains(&transfers), "{transfers}");
    assert!(count(&server, "USER") <= 8, "{}", count(&server, "USER"));
}

/// > With `ftps://` all is encrypted, or nothing is asked.
#[test]
fn ftps_is_encrypted() {
    let scratch = Scratch::new();
    archives(&scratch);
    let encrypted = Does { is_encrypted: true, ..Does::default() };
    let cat = |server: &Server, host: &str, authority: bool| {
        let mut command = tarnfs(&scratch);
        if authority {
            command.env("SSL_CERT_FILE", scratch.path("ca.crt"));
        }
        let url = format!("ftps://{host}:{}/a.tar.zst", server.address.port());
        Ran::from(command.args(["cat", "--cache-size=0", &url, "d/e/noise"]).output().unwrap())
    };
    let noise = fs::read(tree(&scratch).join("d/e/noise")).unwrap();
    for server in [Server::vsftpd(&scratch, true), pyftpdlib(&scratch, &encrypted)].into_iter().flatten() {
        assert!(cat(&server, "localhost", true).ok().out == noise);
        for (host, authority) in [("localhost", false), ("127.0.0.1", true)] {
            let ran = cat(&server, host, authority);
            assert!(ran.code == 3 && ran.out.is_empty() && ran.err.contains("certificate"), "{}", ran.err);
        }
    }
    let Some(server) = pyftpdlib(&scratch, &Does { login: "me:pw", ..Does::default() }) else { return };
    let ran = cat(&server, "me:pw@localhost", true);
    assert!(ran.code == 3 && ran.out.is_empty() && ran.err.contains("the server says 5"), "{}", ran.err);
    assert_eq!((count(&server, "USER"), count(&server, "PASS")), (0, 0));
}

/// > Who logs in over FTP is taken from the URL, else from `.netrc`; a login that is refused is not tried again and
/// > again.
#[test]
fn logins_over_ftp() {
    let scratch = Scratch::new();
    archives(&scratch);
    let login = format!("me:{SECRET}");
    let Some(server) = pyftpdlib(&scratch, &Does { login: &login, ..Does::default() }) else { return };
    let with = |login: &str, name: &str| format!("ftp://{login}@{}/{name}", server.address);
    assert_are_hidden(&scratch, &with(&login, "a.tar.zst"), &[SECRET], &|| tarnfs(&scratch));
    let netrc = scratch.folder("home").join(".netrc");
    fs::write(&netrc, format!("machine 127.0.0.1 login me password {SECRET}\n")).unwrap();
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    let cat = |home: &str, url: &str| {
        let mut command = tarnfs(&scratch);
        command.env("HOME", scratch.folder(home)).args(["cat", "--cache-size=0", "-d", "3", url, "d/hello"]);
        Ran::from(command.output().unwrap())
    };
    assert_eq!(cat("home", &plain(&server, "a.tar")).ok().text(), "hello\n");
    for url in [plain(&server, "a.tar"), with(&format!("me:no{SECRET}"), "a.tar")] {
        let before = count(&server, "PASS");
        let ran = cat("nobody", &url);
        assert!(ran.code == 3 && ran.err.contains("refuses the login"), "{}", ran.err);
        assert!(!ran.err.contains(SECRET) && count(&server, "PASS") == before + 1, "{}", ran.err);
    }
}

fn cat_all(url: &str) -> Ran {
    run(&Scratch::new(), ["cat", url, "numbers", "d/hello", "d/e/noise"])
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn cut_connections_over_ftp_are_got_over() {
    let scratch = Scratch::new();
    archives(&scratch);
    let whole: Vec<u8> = ["numbers", "d/hello", "d/e/noise"]
        .iter()
        .flat_map(|name| fs::read(tree(&scratch).join(name)).unwrap())
        .collect();
    for cuts in [(1, 0), (2, 50_000), (1, 200_000), (4, 1_000_000), (1, 2_000_000)] {
        let Some(server) = pyftpdlib(&scratch, &Does { cuts, ..Does::default() }) else { return };
        let ran = cat_all(&plain(&server, "a.tar"));
        assert!(ran.code == 0 && ran.out == whole, "{cuts:?}: {}", ran.err);
    }
    // The connection over which it is asked.
    for server in [Server::vsftpd(&scratch, false), pyftpdlib(&scratch, &Does::default())].into_iter().flatten() {
        for (cuts, most) in [(1, 0), (1, 10), (2, 60), (1, 150), (3, 250), (1, 400), (2, 600), (1, 1000)] {
            let wire = Wire::cutting(server.address, cuts, most);
            let ran = cat_all(&format!("ftp://{}/a.tar", wire.address));
            assert!(ran.code == 0 && ran.out == whole, "{cuts} after {most}: {}", ran.err);
        }
    }
}

/// > Whatever goes wrong with any one request, all that is read is right: it is asked for again.
#[test]
fn several_readers_have_their_own_files_after_a_cut_over_ftp() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let names = alike(&scratch);
    let Some(server) = pyftpdlib(&scratch, &Does { cuts: (6, 1_500_000), ..Does::default() }) else { return };
    let mount = Mounted::new(&scratch, plain(&server, "alike"), &["--cache-size=0"]);
    assert_are_read_at_once(&scratch, &mount, &names);
    mount.unmount();
}

/// > A fault that stays is an error that says what it was, in bounded time.
#[test]
fn a_dead_server_of_ftp_is_an_error() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = pyftpdlib(&scratch, &Does::default()) else { return };
    let wire = Wire::new(server.address);
    wire.be_silent(true);
    let start = Instant::now();
    let ran = run(&scratch, ["ls", &format!("ftp://{}/a.tar", wire.address)]);
    assert!(ran.code == 3 && ran.err.contains("does not answer in time"), "{}", ran.err);
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}

/// > An object that is replaced while it is read gives the old bytes or an error that says so, never a mixture.
#[test]
fn a_file_replaced_over_ftp_is_noticed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell("head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf first.tar .
                   head -c 20000000 /dev/urandom > tree/d/e/noise; tar -C tree -cf other.tar .; touch -d '5 minutes ago' first.tar");
    for server in [Server::vsftpd(&scratch, false), pyftpdlib(&scratch, &Does::default())].into_iter().flatten() {
        for replace in ["cat other.tar > served/a.tar", "cp other.tar served/new; mv served/new served/a.tar"] {
            scratch.shell("rm -f served/a.tar; cp -p first.tar served/a.tar");
            let mounted = Mounted::new(&scratch, plain(&server, "a.tar"), &["--cache-size=0"]);
            scratch.shell(replace);
            let file = fs::File::options().write(true).open(scratch.path("served/a.tar")).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
            let error = fs::read(mounted.path("d/e/noise")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(116), "{replace}: {error}");
            mounted.unmount();
        }
        let mounted = Mounted::new(&scratch, plain(&server, "a.tar"), &[]);
        assert!(fs::read(mounted.path("d/e/noise")).unwrap() == fs::read(tree(&scratch).join("d/e/noise")).unwrap());
        mounted.unmount();
    }
}
