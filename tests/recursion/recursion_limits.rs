//! Archives in archives that are very deep, very many, or without an end: on a small stack, with few open files, in
//! little memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::foreground::Foreground;
use crate::support::{Ran, Scratch, can_mount, corpus, have, rounds, run};

const KEEP: &str = "--index-minimum-file-count=0";

/// A stack of 256 KiB for every thread.
const SMALL_STACK: &str = "ulimit -s 256; export RUST_MIN_STACK=262144";

/// Runs the program behind `limits`. What has not ended after two minutes never would.
#[track_caller]
fn limited(scratch: &Scratch, limits: &str, words: &[&str]) -> Ran {
    let output = Command::new("bash")
        .args(["-c", &format!("{limits}; exec timeout 600 \"$@\""), "bash", env!("CARGO_BIN_EXE_tarnfs")])
        .args(words)
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .stdin(Stdio::null())
        .output();
    let ran = Ran::from(output.unwrap());
    assert_ne!(ran.code, 124, "{words:?} does not end: {}", ran.err);
    assert!(!ran.err.contains("panicked") && !ran.err.contains("overflow"), "{words:?}: {}", ran.err);
    assert!((0..=10).contains(&ran.code), "{words:?}: {} {}", ran.code, ran.err);
    ran
}

/// > Layers of compression are undone up to a limit. What is left there is a file, and a message says so.
#[test]
fn a_thousand_layers_of_gzip() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import gzip
data = b'the middle'
for layer in range(1000):
    if layer in (998, 999, 898, 899, 900, 849, 850): open('rest-%d' % layer, 'wb').write(data)
    data = gzip.compress(data, 1, mtime=0)
open('x.gz', 'wb').write(data)\"
         mkdir in; cp x.gz in/x.gz; tar -C in -cf in.tar x.gz; gzip < in.tar > in.tar.gz",
    );
    for (archive, path) in [("in.tar", "x.gz/x"), ("in.tar.gz", "x.gz/x"), ("x.gz", "x")] {
        let archive = scratch.path(archive);
        let archive = archive.to_str().unwrap();
        for when in ["first", "next"] {
            let all = limited(&scratch, SMALL_STACK, &["cat", KEEP, "--recursion-depth", "1001", archive, path]);
            assert_eq!((all.code, &*all.out), (0, &b"the middle"[..]), "{archive}, {when}: {}", all.err);
        }
        for when in ["first", "next"] {
            let some = limited(&scratch, SMALL_STACK, &["cat", KEEP, "-r", archive, path]);
            assert!(!some.out.is_empty() && some.out != b"the middle", "{archive}, {when}: {}", some.err);
            // What is left is compressed still: so many layers were undone, those of the archive itself left aside.
            assert_eq!(&some.out[..2], b"\x1f\x8b", "{archive}, {when}");
            let own = u64::from(path == "x");
            let rest = |undone: u64| fs::read(scratch.path(format!("rest-{}", 1000 - own - undone))).unwrap();
            assert!(some.out == rest(100), "{archive}, {when}");
            for undone in [1, 100, 101, 150] {
                // The compression of the archive itself counts where an archive is in it.
                let depth = (undone + u64::from(archive.ends_with(".tar.gz"))).to_string();
                let words = ["cat", KEEP, "--recursion-depth", &depth, archive, path];
                assert!(limited(&scratch, SMALL_STACK, &words).out == rest(undone), "{archive}, {when}, {depth}");
            }
            assert!(some.err.contains("100 layers of compression"), "{archive}, {when}: nothing is said: {}", some.err);
        }
    }
}

/// > A damaged compressed file in an archive shows what it decodes to as a file.
#[test]
fn a_damaged_stream_in_a_stream_stays_a_file() {
    let scratch = Scratch::new();
    // `once` lacks its checksum, `none` is no gzip behind its first bytes.
    scratch.shell(
        "python3 -c \"
import gzip
inner = gzip.compress(b'text', mtime=0)
outer = bytearray(gzip.compress(inner, mtime=0))
outer[-8] ^= 1
open('once.gz.gz', 'wb').write(outer)
open('twice.gz.gz.gz', 'wb').write(gzip.compress(bytes(outer), mtime=0))
none = bytes([0x1f, 0x8b, 8]) + bytes(7) + bytes([255]) * 100
open('none.gz', 'wb').write(none)
open('none.gz.gz', 'wb').write(gzip.compress(none, mtime=0))\"
         tar -cf in.tar *.gz.gz; gzip < in.tar > in.tar.gz",
    );
    let list = |archive: &str| -> Vec<String> {
        let archive = scratch.path(archive);
        let listed = limited(&scratch, "true", &["ls", "-R", "-r", "--json", KEEP, archive.to_str().unwrap()]);
        let lines = listed.text();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut paths: Vec<_> = lines.map(|line| line["path"].as_str().unwrap().to_owned()).collect();
        paths.sort();
        paths
    };
    for archive in ["in.tar", "in.tar.gz"] {
        for when in ["first", "next"] {
            let expected = [
                "none.gz.gz",
                "none.gz.gz/none.gz",
                "once.gz.gz",
                "once.gz.gz/once.gz",
                "twice.gz.gz.gz",
                "twice.gz.gz.gz/twice.gz",
            ];
            assert_eq!(list(archive), expected, "{archive}, {when}");
            let archive = scratch.path(archive);
            let read = |path: &str| limited(&scratch, "true", &["cat", "-r", KEEP, archive.to_str().unwrap(), path]);
            assert_eq!(read("none.gz.gz/none.gz").out, fs::read(scratch.path("none.gz")).unwrap());
            for damaged in ["once.gz.gz/once.gz", "twice.gz.gz.gz/twice.gz"] {
                let read = read(damaged);
                assert_eq!((read.code, read.out.len()), (5, 0), "{damaged}: {}", read.err);
            }
        }
    }
    for (archive, expected) in [("once.gz.gz", "once.gz"), ("twice.gz.gz.gz", "twice.gz"), ("none.gz.gz", "none.gz")] {
        assert_eq!(list(archive), [expected], "{archive}");
    }
}

/// > An archive that holds itself comes to an end.
#[test]
fn a_file_that_decompresses_to_itself_ends() {
    let Some(corpus) = corpus() else { return };
    let scratch = Scratch::new();
    let quine = corpus.join("libarchive/libarchive__test_read_filter_gzip_recursive.gz");
    fs::copy(quine, scratch.path("quine.gz")).unwrap();
    scratch.shell("tar -cf in.tar quine.gz; gzip < in.tar > in.tar.gz");
    for (archive, path) in [("quine.gz", "quine"), ("in.tar", "quine.gz/quine"), ("in.tar.gz", "quine.gz/quine")] {
        let archive = scratch.path(archive);
        let archive = archive.to_str().unwrap();
        for depth in [&["-r"][..], &["--recursion-depth=2"], &["--recursion-depth=1500"], &["--recursion-depth=-1"]] {
            let ran = limited(&scratch, SMALL_STACK, &[&["cat", KEEP], depth, &[archive, path]].concat());
            // Its checksum is wrong: what it decodes to is not served, and not undone again and again.
            assert!(
                ran.code == 5 && ran.out.is_empty() && ran.err.contains("CRC-32"),
                "{archive} {depth:?}: {}",
                ran.err
            );
            let ran = limited(&scratch, SMALL_STACK, &[&["ls", "-R", KEEP], depth, &[archive]].concat());
            assert!(ran.text().lines().count() <= 4, "{archive} {depth:?}: {}", ran.text());
        }
    }
}

/// Makes `deep.tar`: so many tars, each in the next one, beside a small file.
fn make_deep(scratch: &Scratch, levels: usize) {
    scratch.shell(&format!(
        "python3 -c \"
import tarfile
def header(name, size):
    info = tarfile.TarInfo(name); info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)
small = header('small', 5) + b'small'.ljust(512, bytes(1))
size, heads, levels = 1024 + 1024, [], {levels}
for level in range(levels):
    heads.append(small + header('%d.tar' % level, size))
    size += 3 * 512 + 1024
with open('deep.tar', 'wb') as file:
    for head in reversed(heads):
        file.write(head)
    file.write(header('innermost', 9) + b'innermost'.ljust(512, bytes(1)) + bytes(1024))
    file.write(bytes(1024 * levels))\""
    ));
}

/// > Archives inside each other take no stack, however deep. Those that lie too deep for a path stay files.
#[test]
fn two_thousand_tars_in_each_other() {
    let scratch = Scratch::new();
    make_deep(&scratch, 2000);
    scratch.shell("gzip < deep.tar > deep.tar.gz; tar -cf outer.tar deep.tar.gz");
    for (archive, prefix) in [("deep.tar", ""), ("deep.tar.gz", ""), ("outer.tar", "deep.tar.gz/")] {
        let archive = scratch.path(archive);
        let archive = archive.to_str().unwrap();
        for when in ["first", "next"] {
            let listed = limited(&scratch, SMALL_STACK, &["ls", "-R", "-r", "--json", KEEP, archive]);
            let lines = listed.text().lines().count();
            assert!(lines > 1000, "{archive}, {when}: {lines} names; {}", listed.err);
            assert!(listed.err.contains("too many folders"), "{archive}, {when}: nothing is said: {}", listed.err);
            let folders: Vec<_> = (1400..2000).rev().map(|level| format!("{level}.tar")).collect();
            let deep = format!("{prefix}{}/small", folders.join("/"));
            let small = limited(&scratch, SMALL_STACK, &["cat", "-r", KEEP, archive, &deep]);
            assert_eq!(small.out, b"small", "{archive}, {when}: {}", small.err);
        }
        // All in one folder: no path is long.
        let flat = ["-r", "--transform-recursive-mount-point", "^.*", "/all"];
        let listed = limited(&scratch, SMALL_STACK, &[&["ls", "-R", KEEP], &flat[..], &[archive]].concat());
        assert!(listed.text().contains("innermost"), "{archive}: {}", listed.err);
        let inner = limited(&scratch, SMALL_STACK, &[&["cat", KEEP], &flat[..], &[archive, "all/innermost"]].concat());
        assert_eq!(inner.out, b"innermost", "{archive}: {}", inner.err);
    }
}

/// > Compressed archives and files in an archive are folders of what they hold, too.
#[test]
fn many_compressed_tars_in_each_other() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import gzip, tarfile
def member(name, data):
    info = tarfile.TarInfo(name); info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
data = b''
for level in range(400):
    tar = member('small', b'%d' % level) + (member('a.tgz', data) if data else b'') + bytes(1024)
    data = gzip.compress(tar, 1, mtime=0)
open('deep.tar', 'wb').write(tar)\"",
    );
    let archive = scratch.path("deep.tar");
    let archive = archive.to_str().unwrap();
    for when in ["first", "next"] {
        let some = limited(&scratch, SMALL_STACK, &["ls", "-R", "-r", KEEP, archive]);
        assert!(some.err.contains("100 layers of compression"), "{when}: {}", some.err);
        let last = format!("{}small", "a.tgz/".repeat(100));
        let read = limited(&scratch, SMALL_STACK, &["cat", "-r", KEEP, archive, &last]);
        assert_eq!(read.text(), "299", "{when}: {}", read.err);
    }
    for when in ["first", "next"] {
        for level in [0, 5, 11, 12, 13, 24, 25, 100, 101, 399] {
            let path = format!("{}small", "a.tgz/".repeat(399 - level));
            let read = limited(&scratch, SMALL_STACK, &["cat", "--recursion-depth=800", KEEP, archive, &path]);
            assert_eq!(read.text(), level.to_string(), "{when}: {}", read.err);
        }
    }
}

/// > Archives that are read at the same time never wait for each other in a circle.
#[test]
fn bodies_that_are_kept_beside_each_other_do_not_wait_for_one_another() {
    let scratch = Scratch::new();
    // What is inside of the first one is kept while the second one, whose decoder tells of a frame for each 128 KiB,
    // keeps its own.
    scratch.shell(
        "python3 -c \"
import bz2, gzip, os, subprocess
open('one.gz.bz2', 'wb').write(bz2.compress(gzip.compress(os.urandom(3000000), 0, mtime=0)))
data = gzip.compress(bytes(220000000), 0, mtime=0)
def frames(data):
    command = ['zstd', '-q', '-1', '-c', '--no-check']
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
step = 128 << 10
zeros = {}
with open('two.gz.zst', 'wb') as file:
    for at in range(0, len(data), step):
        part = data[at:at + step]
        if part not in zeros:
            zeros[part] = frames(part)
        file.write(zeros[part])\"
         tar -cf t.tar one.gz.bz2 two.gz.zst; tar -cf u.tar two.gz.zst one.gz.bz2",
    );
    for archive in ["t.tar", "u.tar"] {
        for threads in ["2", "5"] {
            let words = ["ls", "-R", "-r", "--json", "--index-file=:memory:", "-P", threads];
            let listed = limited(&scratch, "true", &[&words[..], &[scratch.path(archive).to_str().unwrap()]].concat());
            assert_eq!(listed.code, 0, "{archive}: {}", listed.err);
            for size in ["3000000", "220000000"] {
                assert!(listed.text().contains(size), "{archive}: {} {}", listed.text(), listed.err);
            }
        }
    }
}

/// Archives whose headers take much memory take turns where they are read beside each other, and none waits for ever.
#[test]
fn archives_with_long_headers_take_turns() {
    const ARCHIVES: usize = 12;
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "python3 -c \"
import gzip, io, tarfile
def archive(number):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as file:
        for name in ('first', 'second'):
            info = tarfile.TarInfo('%s-%d' % (name, number))
            info.pax_headers = {{'comment': 'n' * (2 << 20)}}
            file.addfile(info)
    return gzip.compress(out.getvalue(), 1, mtime=0)
with tarfile.open('in.tar', 'w') as file:
    for number in range({ARCHIVES}):
        data = archive(number)
        info = tarfile.TarInfo('%d.tar.gz' % number)
        info.size = len(data)
        file.addfile(info, io.BytesIO(data))\""
    ));
    let archive = scratch.path("in.tar");
    let list = |threads: &str| {
        let words = ["ls", "-R", "-r", "--json", "--index-file=:memory:", "-P", threads, archive.to_str().unwrap()];
        let listed = limited(&scratch, "true", &words);
        assert_eq!(listed.code, 0, "{threads}: {}", listed.err);
        listed.text()
    };
    let one = list("1");
    for number in 0..ARCHIVES {
        for name in ["first", "second"] {
            assert!(one.contains(&format!("\"{number}.tar.gz/{name}-{number}\"")), "{name}-{number}: {one}");
        }
    }
    assert_eq!(list("8"), one);
}

/// Makes `many.tar`: so many tars, every other one compressed, each with two files that no other has.
fn make_many(scratch: &Scratch, archives: usize) {
    scratch.shell(&format!(
        "python3 -c \"
import gzip, io, tarfile
def member(name, data):
    info = tarfile.TarInfo(name); info.size = len(data); info.mtime = 1600000000
    return info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
with open('many.tar', 'wb') as file:
    for number in range({archives}):
        data = member('number', b'%d' % number) + member('folder/square', b'%d' % (number * number)) + bytes(1024)
        name = 'archives-%d/%d.tar' % (number // 1000, number)
        file.write(member(name, data) if number % 2 else member(name + '.gz', gzip.compress(data, 1, mtime=0)))
    file.write(bytes(1024))\""
    ));
}

/// > Thousands of archives are read through a handful of open files (promise K13).
#[test]
fn five_thousand_archives_with_few_open_files() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_many(&scratch, 5000);
    scratch.shell("gzip -1 < many.tar > many.tar.gz");
    for archive in ["many.tar", "many.tar.gz"] {
        let archive = scratch.path(archive);
        for when in ["first", "next"] {
            let at = scratch.folder("at");
            let words = ["-r", KEEP, archive.to_str().unwrap(), at.to_str().unwrap()];
            let mounted = Detached::new(&scratch, &at, "ulimit -n 64", &words);
            for number in 0..5000_u64 {
                let end = if number % 2 == 0 { ".gz" } else { "" };
                let folder = at.join(format!("archives-{}/{number}.tar{end}", number / 1000));
                let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| error.to_string());
                assert_eq!(read("number"), number.to_string(), "{}, {when}", folder.display());
                assert_eq!(read("folder/square"), (number * number).to_string(), "{}, {when}", folder.display());
            }
            // Then at random, so that none is open from before, and many at once.
            scratch.shell(
                "cd at; find . -name number | shuf -n 1500 | xargs -P 8 -n 20 cat > ../read || exit 1
                 test $(tr -cd 0-9 < ../read | wc -c) -gt 4000",
            );
            drop(mounted);
        }
    }
}

/// A mount in the background behind limits of the shell.
struct Detached<'a>(&'a Path);

impl<'a> Detached<'a> {
    #[track_caller]
    fn new(scratch: &Scratch, at: &'a Path, limits: &str, words: &[&str]) -> Self {
        let log = fs::File::create(scratch.path("log")).unwrap();
        let status = Command::new("bash")
            .args(["-c", &format!("{limits}; exec timeout 600 \"$@\""), "bash", env!("CARGO_BIN_EXE_tarnfs")])
            .args(words)
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}: {}", fs::read_to_string(scratch.path("log")).unwrap());
        Self(at)
    }
}

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0).stderr(Stdio::null()).status();
        assert!(std::thread::panicking() || done.unwrap().success());
    }
}

/// > A hundred thousand archives in one take little memory to index and to serve.
#[test]
fn a_hundred_thousand_archives_take_little_memory() {
    const MOST: u64 = 128 << 20;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_many(&scratch, 100_000);
    for (when, options) in [("first", &["-r", KEEP][..]), ("next", &["-r", KEEP, "--no-recreate-index"])] {
        let patience = Duration::from_secs(1200);
        let mount = Foreground::patient(&scratch, &scratch.path("many.tar"), options, patience)
            .unwrap_or_else(|refused| panic!("{refused:?}"));
        assert!(mount.peak() < MOST, "{when}: {} MiB after mounting", mount.peak() >> 20);
        for number in (0..100_000_u64).step_by(97) {
            let end = if number % 2 == 0 { ".gz" } else { "" };
            let file = mount.at.join(format!("archives-{}/{number}.tar{end}/folder/square", number / 1000));
            assert_eq!(fs::read_to_string(file).unwrap(), (number * number).to_string(), "{when}");
        }
        println!("{when}: {} MiB at most", mount.peak() >> 20);
        assert!(mount.peak() < MOST, "{when}: {} MiB after reading", mount.peak() >> 20);
        mount.unmount();
    }
}

/// > Reading archives that multiply stops with a message, and what was found before is served.
#[test]
fn archives_that_multiply_stop() {
    if rounds(0, 1) == 0 {
        // A minute; the tests of tarnfs-tree do the same with a lower limit.
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import gzip, tarfile
def member(name, data):
    info = tarfile.TarInfo(name); info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
data = member('leaf', b'leaf')
for level in range(7):
    data = b''.join(member('%d.tgz' % number, gzip.compress(data, 9, mtime=0)) for number in range(16)) + bytes(1024)
open('bomb.tar', 'wb').write(data)\"",
    );
    let archive = scratch.path("bomb.tar");
    let ran = run(&scratch, ["index", "-r", archive.to_str().unwrap()]);
    assert!(ran.err.contains("is it a bomb"), "{}", ran.err);
    assert!(fs::metadata(scratch.path("bomb.tar.tarnfs.sqlite")).unwrap().len() < 1 << 30);
}

/// A later part may state a larger dictionary than the first one, also one that is larger than the part itself.
#[test]
fn a_later_part_with_a_large_dictionary_is_read() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in; seq 1 20000 > head; seq 1 300000 > tail; cat head tail > whole
         (xz -c head; xz --lzma2=preset=0,dict=128MiB -c tail) > in/a.xz",
    );
    let mut archives = vec!["a.xz"];
    if have("lzip") {
        // lzip itself states no dictionary that is larger than its file: 2^27 bytes, in the sixth byte of the header.
        scratch.shell(
            "lzip -c head > in/b.lz; lzip -c tail > tail.lz
             printf '\\x1b' | dd of=tail.lz bs=1 seek=5 conv=notrunc status=none; cat tail.lz >> in/b.lz",
        );
        archives.push("b.lz");
    } else {
        println!("left out: lzip");
    }
    scratch.shell("tar -cf t.tar in");
    for name in archives {
        let path = format!("in/{name}/{}", &name[..1]);
        let read = run(&scratch, ["cat", "-r", scratch.path("t.tar").to_str().unwrap(), &path]).ok();
        assert!(read.out == fs::read(scratch.path("whole")).unwrap(), "{name}: {}", read.err);
    }
}

/// A copy of its path for each folder on the way down would take memory with the square of how deep they lie.
#[test]
fn what_lies_very_deep_is_listed_in_little_memory() {
    const MOST: u64 = 100 << 20;
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import io, tarfile
data = b'x'
for _ in range(4):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w', format=tarfile.PAX_FORMAT) as tar:
        inner = tarfile.TarInfo('/'.join(['d' * 250] * 255 + ['n.tar']))
        inner.size = len(data)
        tar.addfile(inner, io.BytesIO(data))
    data = buffer.getvalue()
open('deep.tar', 'wb').write(data)\"",
    );
    for words in ["ls -r -R", "ls -r -R -t", "find -r", "find -r -depth"] {
        let (command, options) = words.split_once(' ').unwrap();
        // What find(1) calls an expression stands behind the archive.
        let (before, behind) = options.split_once(" -depth").map_or((options, ""), |(before, _)| (before, "-depth"));
        let peak = scratch.shell(&format!(
            "XDG_CACHE_HOME=$PWD/cache python3 -c \"
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=open('out', 'wb'), check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\" {} {command} {before} deep.tar {behind}",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        let peak = peak.trim().parse::<u64>().unwrap() << 10;
        println!("{words}: {} MiB at most", peak >> 20);
        // Each path from the first folder on, of which there are 255 in each archive.
        assert!(fs::metadata(scratch.path("out")).unwrap().len() > 100 << 20, "{words}");
        assert!(peak < MOST, "{words}: {} MiB", peak >> 20);
    }
}
