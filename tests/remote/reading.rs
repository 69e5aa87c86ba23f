//! What is read over the network, and how much of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;

use crate::proxy::Proxy;
use crate::servers::{Server, archives, contents, tree};
use crate::support::{FILL_AT_ONCE, Mounted, Ran, Scratch, can_mount, run, tarnfs, wait_until};

/// Bytes of a block of the cache.
const BLOCK: u64 = 128 << 10;

/// > An archive behind a URL is opened by every command as the file would be, and shows the same.
#[test]
fn every_command_opens_a_url() {
    let scratch = Scratch::new();
    let names = archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    for name in names {
        let (url, file) = (server.url(name), scratch.path(format!("served/{name}")));
        let file = file.to_str().unwrap();
        for words in [&["ls", "-R"][..], &["find"], &["check"]] {
            let of = |archive: &str| {
                let mut words: Vec<_> = words.to_vec();
                words.insert(1, archive);
                let ran = run(&scratch, words).ok();
                ran.text().replace(archive, "ARCHIVE")
            };
            assert_eq!(of(&url), of(file), "{words:?} {name}");
        }
        let cat = run(&scratch, ["cat", &url, "d/e/noise"]).ok();
        assert!(cat.out == fs::read(tree(&scratch).join("d/e/noise")).unwrap(), "{name}");
        let to = scratch.folder(format!("to-{name}"));
        run(&scratch, ["extract".as_ref(), url.as_ref(), "-C".as_ref(), to.as_os_str()]).ok();
        assert_eq!(contents(&to), contents(&tree(&scratch)), "{name}");
        let compared = run(&scratch, ["compare".as_ref(), url.as_ref(), tree(&scratch).as_os_str()]);
        assert_eq!(compared.code, 0, "{name}: {} {}", compared.text(), compared.err);
        let info = |archive: &str| {
            let ran = run(&scratch, ["info", archive]).ok();
            let of_content = |line: &&str| ["Format:", "Holds:", "Checksums:"].iter().any(|of| line.contains(of));
            ran.text().lines().filter(of_content).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(info(&url), info(file), "{name}");
        assert!(info(&url).len() >= 2);
        let new = scratch.path(format!("new-{name}.tar.lz4"));
        run(&scratch, ["convert".as_ref(), url.as_ref(), new.as_os_str()]).ok();
        assert_eq!(run(&scratch, ["cat".as_ref(), new.as_os_str(), "d/hello".as_ref()]).ok().text(), "hello\n");
    }
    let both = run(&scratch, ["compare", &server.url("a.tar"), &server.url("a.tar.zst")]);
    assert_eq!(both.code, 0, "{}", both.err);
    // What is nowhere is told with the words of the server.
    let ran = run(&scratch, ["ls", &server.url("none.tar")]);
    assert!(ran.code == 3 && ran.err.contains("404"), "{}", ran.err);
}

/// > An archive behind a URL is mounted as the file would be.
#[test]
fn a_url_is_mounted() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let names = archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    for name in names {
        let mount = Mounted::new(&scratch, server.url(name), &[]);
        assert_eq!(contents(&mount.at), contents(&tree(&scratch)), "{name}");
        mount.unmount();
    }
    // Several, one of them a file of this machine, and a mount point that is named after the first.
    let scratch_folder = scratch.folder("here");
    let mut command = tarnfs(&scratch);
    command.current_dir(&scratch_folder).args([&server.url("a.tar.zst"), "../served/a.tar"]);
    Ran::from(command.output().unwrap()).ok();
    assert_eq!(contents(&scratch_folder.join("a")), contents(&tree(&scratch)));
    run(&scratch, ["-u".as_ref(), scratch_folder.join("a").as_os_str()]).ok();
}

/// > The next command that opens a URL whose index and blocks are kept makes one request for all of it.
#[test]
fn a_second_mount_is_one_request() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let url = server.url("a.tar.zst");
    let cat = || run(&scratch, ["cat", "--index-minimum-file-count=0", &url, "numbers"]).ok();
    let first = cat();
    let before = server.requests().len();
    assert_eq!(cat().out, first.out);
    let requests = server.requests();
    assert_eq!(requests.len(), before + 1, "{requests:#?}");
    assert!(requests[before].contains("\" 304 "), "{}", requests[before]);
}

/// > With `--offline` nothing is asked: what is kept is read, and the rest is an error.
#[test]
fn offline_reads_what_is_kept() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let (url, other) = (server.url("a.tar.zst"), server.url("a.tar"));
    let first = run(&scratch, ["cat", &url, "numbers"]).ok();
    run(&scratch, ["cat", &other, "d/hello"]).ok();
    let ran = run(&scratch, ["cat", "--offline", &url, "numbers"]).ok();
    assert_eq!(ran.out, first.out);
    let ran = run(&scratch, ["ls", "--offline", &server.url("a.zip")]);
    assert!(ran.code == 3 && ran.err.contains("--offline"), "{}", ran.err);
    // (What was cut off before comes into the server's log later.)
    assert!(!server.requests().is_empty() && !server.requests().iter().any(|request| request.contains("a.zip")));
    drop(server);
    // Nobody is there who could answer.
    assert_eq!(run(&scratch, ["cat", "--offline", &url, "numbers"]).ok().out, first.out);
}

/// > An index beside the object is used, ours or one of ratarmount, and one that does not belong is not.
#[test]
fn an_index_beside_the_object_is_used() {
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell(
        "head -c 30000000 /dev/urandom | base64 > tree/long; tar -C tree -c . | zstd -q -o served/b.tar.zst
         touch -d '5 minutes ago' served/b.tar.zst",
    );
    let file = scratch.path("served/b.tar.zst");
    run(&scratch, ["index".as_ref(), "--index-folders=".as_ref(), file.as_os_str()]).ok();
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let proxy = Proxy::new(server.address, |_| None);
    let cat = |options: &[&str], name: &str| {
        let url = proxy.url(name);
        let mut words = vec!["cat", "-d2"];
        words.extend(options);
        words.extend([&url, "d/hello"]);
        let ran = run(&scratch, words).ok();
        assert_eq!(ran.text(), "hello\n");
        ran.err
    };
    let fetched = || proxy.ranges().iter().map(|(start, end)| end - start).sum::<u64>();
    cat(&[], "b.tar.zst");
    assert!(fetched() < 12 << 20, "{}", fetched());
    // Named, and on another server's word.
    let index = scratch.path("served/b.tar.zst.tarnfs.sqlite");
    fs::rename(&index, scratch.path("served/elsewhere.sqlite")).unwrap();
    let fresh = Scratch::new();
    let option = format!("--index-file={}", proxy.url("elsewhere.sqlite"));
    let before = fetched();
    let ran = run(&fresh, ["cat", &option, &proxy.url("b.tar.zst"), "d/hello"]).ok();
    assert!(ran.text() == "hello\n" && fetched() - before < 12 << 20, "{}", fetched() - before);
    // That of another archive.
    scratch.shell("cp served/elsewhere.sqlite served/a.tar.zst.tarnfs.sqlite");
    cat(&[], "a.tar.zst");
    let ran = run(&fresh, ["cat", &proxy.url("a.tar.zst"), "d/hello"]).ok();
    assert!(ran.text() == "hello\n" && ran.err.contains("not used"), "{}", ran.err);
}

/// > Whoever reads the same of one object, in any number of processes, each block of it is fetched once.
#[test]
fn ten_readers_fetch_each_block_once() {
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let proxy = Proxy::new(server.address, |_| None);
    let url = proxy.url("a.tar");
    let expected = fs::read(tree(&scratch).join("d/e/noise")).unwrap();
    let mut children: Vec<_> = (0..10)
        .map(|_| {
            let mut command = tarnfs(&scratch);
            command.args(["cat", &url, "d/e/noise"]).stdout(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children.drain(..) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == expected);
    }
    let mut times = BTreeMap::new();
    for (start, end) in proxy.ranges() {
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            *times.entry(block).or_insert(0) += 1;
        }
    }
    // The first block comes with the question which version is there.
    times.remove(&0);
    assert!(times.len() > 20 && times.values().all(|&times| times == 1), "{times:?}");
}

/// > Of a server without ranges all is read once, with a warning, and kept.
#[test]
fn a_server_without_ranges_is_read_once() {
    let scratch = Scratch::new();
    archives(&scratch);
    let server = Server::python(&scratch);
    let proxy = Proxy::new(server.address, |_| None);
    let url = proxy.url("a.tar");
    let cat = |options: &[&str]| {
        let mut words = vec!["cat"];
        words.extend(options);
        words.extend([&url, "d/e/noise"]);
        run(&scratch, words)
    };
    let first = cat(&[]).ok();
    assert!(first.err.contains("knows no ranges"), "{}", first.err);
    assert!(first.out == fs::read(tree(&scratch).join("d/e/noise")).unwrap());
    let gets = || proxy.requests().iter().filter(|head| head.starts_with("GET /a.tar ")).count();
    assert_eq!(gets(), 1);
    let again = cat(&[]).ok();
    assert!(again.out == first.out && !again.err.contains("ranges"), "{}", again.err);
    // It is asked which version is there, and no more of the answer is read.
    assert_eq!(gets(), 2);
    assert!(cat(&["--offline"]).ok().out == first.out);
    // Nowhere to keep it.
    let ran = cat(&["--cache-size=0"]);
    assert!(ran.code == 3 && ran.err.contains("--cache-size 0"), "{}", ran.err);
}

/// > What is kept of remote objects is bounded by `--cache-size`.
#[test]
fn the_cache_is_bounded() {
    let scratch = Scratch::new();
    archives(&scratch);
    scratch.shell("head -c 40000000 /dev/urandom > tree/long; tar -C tree -cf served/b.tar .; touch -d '5 minutes ago' served/b.tar");
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let url = server.url("b.tar");
    let ran = run(&scratch, ["cat", "--cache-size=8M", &url, "long"]).ok();
    assert!(ran.out == fs::read(tree(&scratch).join("long")).unwrap());
    let kept: u64 = scratch.shell("du -sk cache/tarnfs/remote | cut -f1").trim().parse().unwrap();
    assert!((1000..9000).contains(&kept), "{kept}");
    let other = Scratch::new();
    run(&other, ["cat", "--cache-size=0", &url, "d/hello"]).ok();
    assert!(!other.path("cache/tarnfs/remote").exists());
}

/// > The process that reads over the network ends with the mount.
#[test]
fn the_process_with_the_network_ends() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let ours =
        || scratch.shell(&format!("grep -lFs '{}' /proc/[0-9]*/environ || true", scratch.path("cache").display()));
    let mount = Mounted::new(&scratch, server.url("a.tar.zst"), &[]);
    assert_eq!(fs::read_to_string(mount.path("d/hello")).unwrap(), "hello\n");
    assert!(!ours().is_empty());
    mount.unmount();
    wait_until("all processes have ended", || ours().trim().is_empty());
}

/// > An object that was replaced by an older one is noticed the next time, whatever the server tells of its version.
#[test]
fn an_object_replaced_by_an_older_one_is_noticed() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir served new old; seq 30000 >new/new; echo x > old/old
         tar -C new -cf new.tar .; tar -C old -cf old.tar .; cp old.tar same.tar; truncate -s $(stat -c %s new.tar) same.tar
         touch -d '1 hour ago' new.tar; touch -d '2 hours ago' old.tar same.tar",
    );
    let servers = [Some(Server::python(&scratch)), Server::nginx(&scratch, "", false)];
    let without_tags = Server::nginx(&scratch, "etag off;", false);
    for (number, server) in servers.iter().chain([&without_tags]).flatten().enumerate() {
        for older in ["old", "same"] {
            let name = format!("x{number}{older}.tar");
            let ls = || run(&scratch, ["ls", &server.url(&name)]).ok().text();
            scratch.shell(&format!("cp -p new.tar served/{name}"));
            assert_eq!((ls().trim(), ls().trim()), ("new", "new"), "{number} {older}");
            scratch.shell(&format!("cp -p {older}.tar served/{name}"));
            assert_eq!(ls().trim(), "old", "{number} {older}");
        }
    }
}

/// > Of an object that may change again without a sign, as one that was changed just now, nothing is kept.
#[test]
fn a_change_in_the_same_second_is_noticed() {
    let scratch = Scratch::new();
    // By the clock of the server no time has passed since.
    scratch.shell(
        "mkdir served one two; head -c 500000 /dev/urandom > one/one; cp one/one two/two; for i in one two; do tar -C $i -cf $i.tar .; done
         touch -d '1 hour' one.tar; touch -r one.tar two.tar",
    );
    let servers = [Some(Server::python(&scratch)), Server::nginx(&scratch, "etag off;", false)];
    for server in servers.iter().flatten() {
        let url = server.url("x.tar");
        for name in ["one", "two"] {
            scratch.shell(&format!("cp -p {name}.tar served/x.tar"));
            let ls = || run(&scratch, ["ls", "--index-minimum-file-count=0", &url]).ok().text();
            assert_eq!((ls().trim(), ls().trim()), (name, name));
        }
    }
    // Nobody would ever find it. The process that has the network may end a little later.
    let kept = || scratch.shell("find cache -type f -size +0 -not -name CACHEDIR.TAG || true");
    wait_until("nothing is kept", || kept().is_empty());
}

/// Puts `file` where it is served, as old as it is.
fn serve(scratch: &Scratch, file: &str, name: &str) {
    scratch.shell(&format!("cp -p {file} served/{name}.new; mv served/{name}.new served/{name}"));
}

/// > What was made of another version of an object, indexes and decoded data, is not used.
#[test]
fn what_was_made_of_another_version_is_not_used() {
    let scratch = Scratch::new();
    // Of one length, and with the same bytes wherever samples are taken.
    scratch.shell(
        "mkdir served one; for i in a b c1 d e; do head -c 1000000 /dev/urandom > one/$i; done
         cp -rp one two; mv two/c1 two/c2; touch -r one two
         for i in one two; do tar -C $i --sort=name -cf $i.tar .; done; xz -0 --check=none --block-size=1M one.tar -k
         touch -d '1 hour ago' one.tar*; touch -d '30 minutes ago' two.tar",
    );
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let ls = |url: &str| run(&scratch, ["ls", "--index-minimum-file-count=0", url]).ok().text();
    serve(&scratch, "one.tar", "x.tar");
    let url = server.url("x.tar");
    assert!(ls(&url).contains("c1") && ls(&url).contains("c1"));
    serve(&scratch, "two.tar", "x.tar");
    assert!(ls(&url).contains("c2"));

    // One byte of a file in the middle, which has no checksum.
    let content = fs::read(scratch.path("one/c1")).unwrap();
    let mut packed = fs::read(scratch.path("one.tar.xz")).unwrap();
    let of = |at: usize| packed.windows(32).position(|part| part == &content[at..at + 32]).map(|found| (at, found));
    let (at, found) = (500_000..).step_by(1000).find_map(of).unwrap();
    packed[found] ^= 1;
    fs::write(scratch.path("two.tar.xz"), &packed).unwrap();
    scratch.shell(&format!("touch -d '30 minutes ago' two.tar.xz; touch {FILL_AT_ONCE}"));
    let url = server.url("x.tar.xz");
    serve(&scratch, "one.tar.xz", "x.tar.xz");
    run(&scratch, ["index", &url]).ok();
    if can_mount() {
        let mount = Mounted::new(&scratch, &url, &[]);
        assert!(fs::read(mount.path("c1")).unwrap() == content);
        let kept = || scratch.shell("cat cache/tarnfs/decoded/* | wc -c || true").trim().parse::<u64>().unwrap_or(0);
        wait_until("all is kept decoded", || kept() > 4_500_000);
        mount.unmount();
    }
    serve(&scratch, "two.tar.xz", "x.tar.xz");
    let mut expected = content;
    expected[at] ^= 1;
    assert!(run(&scratch, ["cat", &url, "c1"]).ok().out == expected);
}
