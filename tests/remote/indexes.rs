//! Indexes beside an object, and those that are named: of ones that are long, and of ones that are compressed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::ErrorKind;

use crate::proxy::Proxy;
use crate::servers::Server;
use crate::support::{Mounted, Scratch, can_mount, run, tarnfs};

/// Folders, and files in each.
const FOLDERS: usize = 50;
const FILES: usize = 1500;

/// A tar.gz with many files and its index in `served`. They were not changed just now.
fn many(scratch: &Scratch) {
    scratch.folder("served");
    scratch.shell(&format!(
        "python3 - <<'EOT'
import hashlib, io, tarfile
with tarfile.open('served/many.tar.gz', 'w:gz', compresslevel=1) as tar:
    for folder in range({FOLDERS}):
        for number in range({FILES}):
            content = str(number).encode()
            name = hashlib.sha256(b'%d/%d' % (folder, number)).hexdigest()
            about = tarfile.TarInfo('d%02d/%04d-%s' % (folder, number, name))
            about.size, about.mtime = len(content), folder * 10007 + number
            tar.addfile(about, io.BytesIO(content))
EOT
         touch -d '5 minutes ago' served/*"
    ));
    let file = scratch.path("served/many.tar.gz");
    run(scratch, ["index".as_ref(), "--index-folders=".as_ref(), file.as_os_str()]).ok();
    scratch.shell("touch -d '5 minutes ago' served/*");
}

/// Bytes that were asked for of what has `part` in its name.
fn fetched(proxy: &Proxy, part: &str) -> u64 {
    proxy.ranges_of(part).iter().map(|(start, end)| end - start).sum()
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// > No more is read of a long index beside the object than is asked for.
#[test]
fn a_long_index_is_read_by_ranges() {
    let scratch = Scratch::new();
    many(&scratch);
    let index = fs::metadata(scratch.path("served/many.tar.gz.tarnfs.sqlite")).unwrap().len();
    assert!(index > 4 << 20, "{index}");
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let listed = run(&scratch, ["find".as_ref(), scratch.path("served/many.tar.gz").as_os_str()]).ok().text();
    let file = listed.lines().find(|name| name.contains("d31/0777-")).unwrap().to_owned();
    for options in [&[][..], &["--cache-size=0"]] {
        let (fresh, proxy) = (Scratch::new(), Proxy::new(server.address, |_| None));
        let url = proxy.url("many.tar.gz");
        let ran = run(&fresh, [&["cat"], options, &[&url, &file]].concat()).ok();
        assert_eq!(ran.text(), "777", "{}", ran.err);
        let (of_index, of_archive) = (fetched(&proxy, ".tarnfs.sqlite"), fetched(&proxy, "many.tar.gz "));
        assert!(of_index > 0 && of_index < index / 2, "{of_index} of {index}");
        assert!(of_archive < 4 << 20, "{of_archive}, and {of_index} of its index");
        let found = run(&fresh, [&["find"], options, &[&url]].concat()).ok();
        assert!(found.text() == listed, "{}", found.err);
    }
    // A named one, too.
    let (fresh, proxy) = (Scratch::new(), Proxy::new(server.address, |_| None));
    fs::rename(scratch.path("served/many.tar.gz.tarnfs.sqlite"), scratch.path("served/named.sqlite")).unwrap();
    let (url, option) = (proxy.url("many.tar.gz"), format!("--index-file={}", proxy.url("named.sqlite")));
    assert_eq!(run(&fresh, ["cat", &option, &url, &file]).ok().text(), "777");
    assert!(fetched(&proxy, "named.sqlite") < index / 2 && fetched(&proxy, "many.tar.gz ") < 4 << 20);
    // What was read of it is kept.
    assert_eq!(run(&fresh, ["cat", "--offline", &option, &url, &file]).ok().text(), "777");
}

/// > What lies behind an index that is read by ranges is mounted as with any other one; an index that is replaced
/// > meanwhile, or cannot be read any more, is an error.
#[test]
fn a_long_index_that_changes_is_an_error() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    many(&scratch);
    let Some(server) = Server::nginx(&scratch, "", false) else { return };
    let mount = Mounted::by(tarnfs(&scratch), &scratch, server.url("many.tar.gz"), &["--cache-size=0"]);
    assert_eq!(names(&mount.at).len(), FOLDERS);
    let first = names(&mount.path("d07"));
    assert!(first.len() == FILES && first[1234].starts_with("1234-"));
    assert_eq!(fs::read_to_string(mount.path("d07").join(&first[1234])).unwrap(), "1234");
    assert_eq!(fs::metadata(mount.path("d07/none")).unwrap_err().kind(), ErrorKind::NotFound);
    // Half of it is another one.
    scratch.shell(
        "cd served; cp many.tar.gz.tarnfs.sqlite new
         dd if=/dev/urandom of=new bs=64k seek=1 conv=notrunc count=20 2>/dev/null; mv new many.tar.gz.tarnfs.sqlite",
    );
    let mut failed = 0;
    for folder in 0..FOLDERS {
        let listed: Result<Vec<_>, _> = match fs::read_dir(mount.path(format!("d{folder:02}"))) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect(),
            Err(error) => Err(error),
        };
        match listed {
            Ok(found) => assert_eq!(found.len(), FILES, "{folder}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0, "all of it was in memory");
    mount.unmount();
}

/// > A sidecar of ratarmount that is compressed is used as the one in it would be, and stays as it is.
#[test]
fn a_compressed_sidecar_is_used() {
    let scratch = Scratch::new();
    scratch.folder("served");
    scratch.shell(
        "mkdir -p tree/d; echo hello > tree/d/hello; head -c 18000000 /dev/urandom | base64 > tree/long
         tar -C tree -c . | zstd -q -o served/a.tar.zst; touch -d '5 minutes ago' served/a.tar.zst",
    );
    let file = scratch.path("served/a.tar.zst");
    run(&scratch, ["index", "--format", "ratarmount", "--index-folders=", file.to_str().unwrap()]).ok();
    let server = Server::nginx(&scratch, "", false);
    scratch.shell("mv served/a.tar.zst.index.sqlite sidecar");
    let is_used = "is used, checked in";
    for (program, suffix) in [("zstd -q", ".zst"), ("gzip", ".gz"), ("xz -T1", ".xz"), ("bzip2", ".bz2")] {
        let name = format!("a.tar.zst.index.sqlite{suffix}");
        scratch.shell(&format!("{program} -c < sidecar > served/{name}; touch -d '5 minutes ago' served/*"));
        let kept = fs::read(scratch.path("served").join(&name)).unwrap();
        let ran = run(&scratch, ["cat", "-d3", file.to_str().unwrap(), "d/hello"]).ok();
        assert!(ran.text() == "hello\n" && ran.err.contains(&name) && ran.err.contains(is_used), "{}", ran.err);
        if let Some(server) = &server {
            let ran = run(&Scratch::new(), ["cat", "-d3", &server.url("a.tar.zst"), "d/hello"]).ok();
            assert!(ran.text() == "hello\n" && ran.err.contains(is_used), "{}", ran.err);
        }
        // Cut, it is none.
        fs::write(scratch.path("served").join(&name), &kept[..kept.len() / 2]).unwrap();
        let ran = run(&scratch, ["cat", "-d3", file.to_str().unwrap(), "d/hello"]).ok();
        assert!(ran.text() == "hello\n" && !ran.err.contains(is_used), "{}", ran.err);
        fs::remove_file(scratch.path("served").join(&name)).unwrap();
        // It was read instead.
        fs::remove_file(scratch.path("served/a.tar.zst.tarnfs.sqlite")).unwrap();
        // Named.
        scratch.shell(&format!("{program} -c < sidecar > served/named{suffix}; touch -d '5 minutes ago' served/*"));
        let named = scratch.path(format!("served/named{suffix}"));
        let mut options = vec![format!("--index-file={}", named.display())];
        options.extend(server.iter().map(|server| format!("--index-file={}", server.url(&format!("named{suffix}")))));
        for option in &options {
            let ran = run(&scratch, ["cat", "-d3", option, file.to_str().unwrap(), "d/hello"]).ok();
            assert!(ran.text() == "hello\n" && ran.err.contains(is_used), "{option}: {}", ran.err);
        }
        let ran = run(&scratch, ["index", "-c", &options[0], file.to_str().unwrap()]);
        assert!(ran.code != 0 && ran.err.contains("ratarmount"), "{}", ran.err);
        assert!(fs::read(&named).unwrap() == kept, "{suffix}");
    }
}
