//! `--hashes`: what coreutils say of the files, as extended attributes, however the files are stored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Mounted, Scratch, can_mount, run};
use rustix::process::Signal;

const HASHES: &str = "md5,SHA256,sha3_512,b2";
/// The programs that compute the same.
const PROGRAMS: [(&str, &str); 4] =
    [("md5", "md5sum"), ("sha1", "sha1sum"), ("sha256", "sha256sum"), ("blake2b", "b2sum")];

fn attribute(file: &Path, name: &str) -> Option<String> {
    let mut value = vec![0; 256];
    let length = rustix::fs::getxattr(file, format!("user.hash.{name}"), &mut value).ok()?;
    value.truncate(length);
    Some(String::from_utf8(value).unwrap())
}

/// Compares the attributes of all files below `root` with what the programs say of their content.
fn check(scratch: &Scratch, root: &Path) -> usize {
    let root = root.display();
    let mut files = 0;
    for (name, program) in PROGRAMS {
        let sums = scratch.shell(&format!("cd {root} && find . -type f -print0 | xargs -0 {program}"));
        files = sums.lines().count();
        for line in sums.lines() {
            let (sum, path) = line.split_once("  ").unwrap();
            let file = Path::new(&root.to_string()).join(path);
            assert_eq!(attribute(&file, name).as_deref(), Some(sum), "{program} {path}");
        }
    }
    files
}

#[test]
fn hashes_are_those_of_the_content() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; mkdir -p tree/sub; cd tree; : > empty; echo hello > a; ln a hard; ln -s a symlink; head -c 9000000 /dev/urandom > sub/large;
         head -c 100000 /dev/urandom > sub/middle; truncate -s 5M sparse; printf x | dd of=sparse bs=1 seek=3000001 conv=notrunc 2>/dev/null;
         tar cf inner.tar a sub/middle; gzip -k inner.tar; gzip < a > a.gz; cd ..;
         tar -Scf a.tar tree; gzip -k a.tar; zstd -q a.tar; xz -kT2 -0 a.tar; head -c 700000 /dev/urandom > single; bzip2 -k single",
    );
    let names = PROGRAMS.map(|(name, _)| name).join(",");
    for (archive, files) in [("a.tar", 9), ("a.tar.gz", 9), ("a.tar.zst", 9), ("a.tar.xz", 9), ("single.bz2", 1)] {
        for threads in ["1", "3"] {
            let options = ["--hashes", &names, "-P", threads, "--index-minimum-file-count", "0", "-c"];
            let mounted = Mounted::new(&scratch, scratch.path(archive), &options);
            assert_eq!(check(&scratch, mounted.path("").as_path()), files, "{archive}");
            mounted.unmount();
        }
        // From the index that was kept.
        let mounted = Mounted::new(&scratch, scratch.path(archive), &["--hashes", &names]);
        assert_eq!(check(&scratch, mounted.path("").as_path()), files, "{archive}, again");
        mounted.unmount();
    }
    // With --ignore-zeros, where contents go by before it is certain that they are whole.
    let mounted = Mounted::new(&scratch, scratch.path("a.tar.gz"), &["--hashes", &names, "-i"]);
    assert_eq!(check(&scratch, mounted.path("").as_path()), 9);
    mounted.unmount();
    // In archives in the archive, too.
    let mounted = Mounted::new(&scratch, scratch.path("a.tar.gz"), &["--hashes", &names, "-r"]);
    assert_eq!(check(&scratch, mounted.path("").as_path()), 6 + 2 + 2 + 1);
    assert!(attribute(&mounted.path("tree/symlink"), "md5").is_some(), "through the link");
    mounted.unmount();
}

/// Samples do not see each change of a plain tar, and nothing that is read is compared with the hash.
/// > With `--hashes`, the index of a plain archive is used only if the archive has the time of change that it had when
/// > it was indexed.
#[test]
fn hashes_are_those_of_a_tar_that_was_changed_in_place() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; head -c 9000000 /dev/urandom > tree/large; tar cf a.tar tree");
    let options = ["--hashes", "sha256", "--index-minimum-file-count", "0"];
    let hash = || {
        let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &options);
        let hash = attribute(&mounted.path("tree/large"), "sha256").unwrap();
        let sum = scratch.shell(&format!("sha256sum < {}", mounted.path("tree/large").display()));
        mounted.unmount();
        assert_eq!(sum.split_whitespace().next(), Some(hash.as_str()));
        hash
    };
    let first = hash();
    // Some block of these is in no sample.
    for block in 100..104 {
        scratch.shell(&format!("printf changed | dd of=a.tar bs=4096 seek={block} conv=notrunc status=none"));
    }
    assert_ne!(hash(), first);
}

#[test]
fn an_index_with_other_hashes_does_not_belong_and_unknown_names_are_refused() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo x > tree/x; tar cf a.tar tree");
    let index = |hashes: &str| {
        let (archive, index) = (scratch.path("a.tar"), scratch.path("index"));
        let arguments = ["index".as_ref(), archive.as_os_str(), "--hashes".as_ref(), hashes.as_ref()];
        run(&scratch, arguments.into_iter().chain(["--index-file".as_ref(), index.as_os_str()])).ok();
        let made = fs::read(&index).unwrap();
        fs::remove_file(index).unwrap();
        made
    };
    let (first, second) = (index("md5"), index("md5,crc32"));
    assert_ne!(first, second);
    assert_eq!(first, index("MD5,md5"));
    let archive = scratch.path("a.tar");
    let ran = run(&scratch, ["ls".as_ref(), archive.as_os_str(), "--hashes".as_ref(), HASHES.as_ref()]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("b2") && ran.err.contains("blake2b"), "{}", ran.err);
}

/// Makes `NAME.tar`: a file without any data that says it has `size` bytes.
fn make_hole(scratch: &Scratch, name: &str, size: u64) {
    scratch.shell(&format!(
        "python3 -c \"
import tarfile
info = tarfile.TarInfo('hole'); info.size = 512
info.pax_headers = {{'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'hole', 'GNU.sparse.realsize': '{size}'}}
small = tarfile.TarInfo('small'); small.size = 5
with open('{name}.tar', 'wb') as file:
    file.write(info.tobuf(tarfile.PAX_FORMAT) + b'0' + bytes([10]) + bytes(510))
    file.write(small.tobuf(tarfile.PAX_FORMAT) + b'small' + bytes(507 + 1024))\"
         gzip -k {name}.tar"
    ));
}

/// > Holes that would take too long are not hashed, and a message says so.
#[test]
fn a_file_of_holes_without_end_has_no_hashes() {
    let scratch = Scratch::new();
    make_hole(&scratch, "a", 4 << 60);
    for archive in ["a.tar", "a.tar.gz"] {
        for options in [&[][..], &["-i"], &["-r"]] {
            let output = Command::new("timeout")
                .args(["120", env!("CARGO_BIN_EXE_tarnfs"), "stat", "--index-file=:memory:", "--hashes=md5"])
                .args(options)
                .arg(scratch.path(archive))
                .arg("small")
                .env("XDG_CACHE_HOME", scratch.path("cache"))
                .output();
            let ran = support::Ran::from(output.unwrap());
            // Nothing is damaged.
            assert_eq!(ran.code, 0, "{archive} {options:?}: {}", ran.err);
            assert!(ran.text().contains("user.hash.md5"), "{archive} {options:?}: {}", ran.text());
            assert!(ran.err.contains("hole: no hashes of it are kept"), "{archive} {options:?}: {}", ran.err);
        }
        let name = scratch.path(archive);
        assert_eq!(run(&scratch, ["index".as_ref(), "--hashes=md5".as_ref(), name.as_os_str()]).code, 0);
        // Said when it is indexed, not by whoever uses that.
        for options in [&[][..], &["--hashes=md5"]] {
            let ran = run(&scratch, ["ls", name.to_str().unwrap()].iter().chain(options)).ok();
            assert_eq!(ran.err, "", "{archive} {options:?}");
        }
    }
}

/// > Ctrl-C also ends it inside a hole.
#[test]
fn hashing_a_hole_can_be_interrupted() {
    let scratch = Scratch::new();
    // An hour of work.
    make_hole(&scratch, "a", 1 << 39);
    for archive in ["a.tar", "a.tar.gz"] {
        let mut command = support::behind(&scratch, support::DEFAULT_SIGNALS);
        command.args(["index", "--index-file=:memory:", "--hashes=sha3-512,blake2s,md5"]).arg(scratch.path(archive));
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        // Nothing else of it takes a second.
        let ticks = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
            fields[12].parse::<u64>().unwrap()
        };
        let start = Instant::now();
        while ticks() < 150 && start.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(50));
        }
        support::signal(&child, Signal::INT);
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(300) {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{archive}: it goes on");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{archive}");
    }
}

/// Others than those that were computed.
#[test]
fn hashes_that_the_archive_has_are_shown_from_an_index_with_more() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import tarfile, io
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    for name, kind, value in ('d', tarfile.DIRTYPE, 'of-d'), ('d/x', tarfile.REGTYPE, 'of-x'), ('d/y', tarfile.REGTYPE, None):
        info = tarfile.TarInfo(name); info.type = kind
        if value: info.pax_headers = {'SCHILY.xattr.user.hash.md5': value, 'SCHILY.xattr.user.other': 'o'}
        tar.addfile(info)\"",
    );
    let archive = scratch.path("a.tar");
    let name = archive.to_str().unwrap();
    let attributes = |path: &str, options: &[&str]| {
        let shown = run(&scratch, ["stat", name, path].iter().chain(options)).ok().text();
        let lines = shown.lines().filter(|line| line.contains("user."));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let paths = ["d", "d/x", "d/y"];
    let memory = |options: &[&str]| paths.map(|path| attributes(path, &[options, &["--index-file=:memory:"]].concat()));
    let (plain, hashed) = (memory(&[]), memory(&["--hashes=md5"]));
    assert!(plain[0].contains("of-d") && plain[1].contains("of-x") && plain[2].is_empty(), "{plain:?}");
    let of_nothing = "d41d8cd98f00b204e9800998ecf8427e";
    assert!(hashed[0].contains("of-d") && hashed[1].contains(of_nothing) && !hashed[1].contains("of-x"), "{hashed:?}");
    run(&scratch, ["index", "--hashes=md5,sha1", name]).ok();
    for (options, expected) in
        [(&["--no-recreate-index"][..], plain), (&["--no-recreate-index", "--hashes=md5"], hashed)]
    {
        assert_eq!(paths.map(|path| attributes(path, options)), expected);
    }
}

/// What the archive itself says of a file is shown, whatever became of the file.
#[test]
fn hashes_that_are_stored_in_the_archive_stay_where_a_file_is_damaged() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let script = "import gzip, io, os, tarfile
out = io.BytesIO()
with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as tar:
    for name in 'whole', 'damaged':
        info = tarfile.TarInfo(name); info.size = 300000
        info.pax_headers = {'SCHILY.xattr.user.hash.mine': 'stored'}
        tar.addfile(info, io.BytesIO(os.urandom(300000)))
whole = out.getvalue()
first, second = gzip.compress(whole[:301568], 0), bytearray(gzip.compress(whole[301568:], 0))
second[100000] ^= 1
open('a.tar.gz', 'wb').write(first + second)";
    fs::write(scratch.path("make.py"), script).unwrap();
    scratch.shell("python3 make.py");
    for options in [&["--hashes", "md5"][..], &[]] {
        let mounted = Mounted::any(&scratch, scratch.path("a.tar.gz"), options);
        assert_eq!(mounted.ran.code, 5, "{}", mounted.ran.err);
        assert!(fs::read(mounted.path("whole")).is_ok() && fs::read(mounted.path("damaged")).is_err());
        for (name, has_computed) in [("whole", !options.is_empty()), ("damaged", false)] {
            let file = mounted.path(name);
            assert_eq!(attribute(&file, "mine").as_deref(), Some("stored"), "{name}");
            assert_eq!(attribute(&file, "md5").is_some(), has_computed, "{name}");
        }
        mounted.unmount();
    }
}

/// What an archive says of itself is no hash that was computed.
#[test]
fn hashes_in_json_are_those_that_were_asked_for() {
    let scratch = Scratch::new();
    scratch.shell(
        "printf abc > f; tar --format=posix --pax-option=SCHILY.xattr.user.hash.md5=dead,SCHILY.xattr.user.hash.sha1=beef -cf h.tar f",
    );
    let archive = scratch.path("h.tar");
    let archive = archive.to_str().unwrap();
    for command in ["stat", "ls", "find"] {
        let said =
            |options: &[&str]| run(&scratch, [&[command, "--json"], options, &[archive, "f"]].concat()).ok().text();
        let none = said(&[]);
        assert!(!none.contains("\"hashes\"") && none.contains("user.hash.md5"), "{command}: {none}");
        let some = said(&["--hashes", "sha1"]);
        let real = "\"hashes\":{\"sha1\":\"a9993e364706816aba3e25717850c26c9cd0d89d\"}";
        assert!(some.contains(real) && some.contains("user.hash.md5") && !some.contains("beef"), "{command}: {some}");
    }
}
