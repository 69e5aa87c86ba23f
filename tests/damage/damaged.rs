//! Damaged, cut and foreign archives: what is whole is served, the rest is an error, nothing crashes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Mounted, Ran, Scratch, can_mount, corpus, have, run, tarnfs};

/// The exit codes of the documented list that reading an archive may end with.
const CLEAN: [i32; 5] = [0, 1, 3, 4, 5];

#[test]
fn a_damaged_header_costs_one_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for i in 1 2 3 4 5; do seq $i 3000 > tree/f$i; done; tar -C tree -cf a.tar f1 f2 f3 f4 f5
         offset=$(tar -tRvf a.tar | awk '/ f3$/ { sub(\":\", \"\", $2); print $2 * 512 }')
         printf garbage | dd of=a.tar bs=1 seek=$((offset + 100)) conv=notrunc status=none",
    );
    let mount = Mounted::any(&scratch, scratch.path("a.tar"), &[]);
    assert_eq!(mount.ran.code, 5);
    assert!(mount.ran.err.contains("damaged at byte"), "{}", mount.ran.err);
    for i in [1, 2, 4, 5] {
        assert!(
            fs::read(mount.path(format!("f{i}"))).unwrap() == fs::read(scratch.path(format!("tree/f{i}"))).unwrap()
        );
    }
    assert!(!mount.path("f3").exists());
    mount.unmount();
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn a_cut_archive_serves_what_is_there() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in 1 2 3 4 5; do head -c 300000 /dev/urandom > tree/f$i; done; tar -C tree -cf a.tar f1 f2 f3 f4 f5");
    for (suffix, tool) in [
        ("", "cat"),
        (".gz", "gzip"),
        (".bz2", "bzip2 -1"),
        (".xz", "xz -0 --block-size=256KiB"),
        (".zst", "zstd -q"),
        (".lz4", "lz4 -q -B4"),
        (".lzo", "lzop -c"),
    ] {
        if suffix == ".lzo" && !have("lzop") {
            continue;
        }
        scratch.shell(&format!(
            "{tool} < a.tar > b.tar{suffix}; truncate -s $(( $(stat -c %s b.tar{suffix}) * 6 / 10 )) b.tar{suffix}"
        ));
        let mount = Mounted::any(&scratch, scratch.path(format!("b.tar{suffix}")), &["-c"]);
        assert_eq!(mount.ran.code, 5, "{tool}: {}", mount.ran.err);
        for i in 1..=2 {
            assert!(
                fs::read(mount.path(format!("f{i}"))).unwrap() == fs::read(scratch.path(format!("tree/f{i}"))).unwrap(),
                "{tool}"
            );
        }
        // The file across the cut is an error where it is cut, never a short file.
        for i in 3..=5 {
            let path = mount.path(format!("f{i}"));
            if path.exists() {
                assert_eq!(fs::metadata(&path).unwrap().len(), 300_000);
                let got = fs::read(&path);
                let whole = fs::read(scratch.path(format!("tree/f{i}"))).unwrap();
                assert!(got.as_ref().is_ok_and(|bytes| *bytes == whole) || got.is_err(), "{tool}: f{i} is short");
            }
        }
        assert!(fs::read(mount.path("f5")).is_err(), "{tool}");
        mount.unmount();
    }
}

/// > A compressed file of which the end is lost is an error for who reads to its end, and never a shorter file.
#[test]
fn a_compressed_file_that_is_cut_is_never_a_shorter_one() {
    let scratch = Scratch::new();
    scratch.shell("seq 300000 > whole; mkdir tree; cp whole tree/c");
    let whole = fs::read(scratch.path("whole")).unwrap();
    for (suffix, tool) in [
        ("gz", "gzip -c"),
        ("bz2", "bzip2 -1c"),
        ("xz", "xz -0c --block-size=256KiB"),
        ("zst", "zstd -qc"),
        ("lz4", "lz4 -qc -B4"),
    ] {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!(
            "{tool} < whole > c.{suffix}; truncate -s $(( $(stat -c %s c.{suffix}) / 2 )) c.{suffix}
             tar -cf o-{suffix}.tar c.{suffix}"
        ));
        for (archive, options, path) in [
            (format!("c.{suffix}"), &[][..], "c".to_owned()),
            (format!("o-{suffix}.tar"), &["-r"][..], format!("c.{suffix}/c")),
        ] {
            let what = format!("{archive} {path}");
            let index = format!("--index-file={}", scratch.path(format!("{archive}.sqlite")).display());
            // The first time it is decoded to the cut, the second time the index says what is there.
            for _ in ["first", "from the index"] {
                let words = |command: &str, more: &[&str]| {
                    let mut words = vec![command.to_owned()];
                    words.extend(options.iter().chain(more).map(|&word| word.to_owned()));
                    words.push(scratch.path(&archive).to_str().unwrap().to_owned());
                    words
                };
                let with = |command: &str, more: &[&str], behind: &[&str]| {
                    let mut words = words(command, more);
                    words.extend(behind.iter().map(|&word| word.to_owned()));
                    run(&scratch, words)
                };
                let cat = with("cat", &[&index], &[&path]);
                let there = cat.out.len();
                assert!(cat.code == 5 && there > 0 && there < whole.len() && cat.out == whole[..there], "{what}");
                let stat = with("stat", &[&index], &[&path]);
                assert!(stat.code == 5 && stat.text().contains("Damage: "), "{what}: {}", stat.text());
                if !can_mount() {
                    continue;
                }
                let mount = Mounted::any(&scratch, scratch.path(&archive), &[options, &[index.as_str()]].concat());
                assert_eq!(mount.ran.code, 5, "{what}: {}", mount.ran.err);
                let file = fs::File::open(mount.path(&path)).unwrap();
                assert_eq!(file.metadata().unwrap().len(), there as u64 + 1, "{what}");
                // Up to the page in which it ends, all of it is there.
                let mut first = vec![0; there / 4096 * 4096];
                file.read_exact_at(&mut first, 0).unwrap();
                assert!(first == whole[..first.len()], "{what}");
                let copied = fs::copy(mount.path(&path), scratch.path("copy")).map_err(|error| error.raw_os_error());
                assert_eq!(copied.err(), Some(Some(libc::EIO)), "{what}");
                drop(file);
                mount.unmount();
            }
            let tarnfs = |words: &[&str]| {
                let words = [words, options].concat();
                Ran::from(support::tarnfs(&scratch).current_dir(scratch.path("")).args(words).output().unwrap())
            };
            let checked = tarnfs(&["check", &archive]);
            assert_eq!(checked.code, 5, "{what}");
            let said = format!("{archive}: its only file is damaged\n{archive}: damaged: {path}\n");
            let of_all = if options.is_empty() { format!("{archive}: the file in it is damaged\n") } else { said };
            assert!(checked.text().ends_with(&of_all), "{}", checked.text());
            let extracted = tarnfs(&["extract", "-C", "out", &archive]);
            let out = scratch.path("out").join(&path);
            assert!(extracted.code == 5 && !out.exists(), "{what}: {}", extracted.err);
            let forced = tarnfs(&["extract", "--force", "-C", "out", &archive]);
            let length = fs::read(&out).unwrap().len();
            assert!(forced.code == 5 && fs::read(&out).unwrap() == whole[..length], "{what}: {}", forced.err);
            assert!(forced.err.contains(&format!("only its first {length} bytes can be decoded")), "{}", forced.err);
            fs::remove_dir_all(scratch.path("out")).unwrap();
            let converted = tarnfs(&["convert", &archive, "new.tar"]);
            assert!(converted.code != 0, "{what}: {}", converted.err);
            let _ = fs::remove_file(scratch.path("new.tar"));
        }
        let archive = format!("c.{suffix}");
        let compared = support::tarnfs(&scratch)
            .current_dir(scratch.path(""))
            .args(["compare", &archive, "tree"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&compared.stderr);
        assert!(compared.status.code() == Some(5) && said.contains("c: is damaged; --force"), "{archive}: {said}");
    }
}

/// A wrong code that makes more of the data than there was: what is shown is what `zcat` writes, and nothing behind it.
#[test]
fn a_file_that_is_damaged_is_filled_up_to_no_length() {
    let scratch = Scratch::new();
    let script = "import gzip, io, zlib
data = b''.join(b'%d and %d\\n' % (i, i * i) for i in range(20000))
packed = bytearray(gzip.compress(data, 6, mtime=0))
for at in range(len(packed) // 2, len(packed) - 8):
    for bit in range(8):
        packed[at] ^= 1 << bit
        undo = zlib.decompressobj(-15)
        try:
            decoded = undo.decompress(bytes(packed[10:])) + undo.flush()
        except zlib.error:
            decoded = b''
        if undo.eof and len(undo.unused_data) == 8 and len(decoded) > len(data):
            open('numbers.gz', 'wb').write(packed)
            open('decoded', 'wb').write(decoded)
            raise SystemExit
        packed[at] ^= 1 << bit
raise SystemExit('no bit makes it longer')";
    scratch.shell(&format!("python3 -c \"{script}\""));
    let decoded = fs::read(scratch.path("decoded")).unwrap();
    let archive = scratch.path("numbers.gz");
    let cat = run(&scratch, ["cat".as_ref(), "--force".as_ref(), archive.as_os_str(), "numbers".as_ref()]);
    assert!(cat.code == 5 && cat.out == decoded, "{} of {} bytes: {}", cat.out.len(), decoded.len(), cat.err);
    let out = scratch.path("out");
    let [path, out] = [&archive, &out].map(|path| path.to_str().unwrap());
    let extracted = run(&scratch, ["extract", "--force", "-C", out, path]);
    assert_eq!(extracted.code, 5, "{}", extracted.err);
    assert!(fs::read(scratch.path("out/numbers")).unwrap() == decoded);
    if can_mount() {
        let mount = Mounted::any(&scratch, &archive, &["--force"]);
        assert!(fs::read(mount.path("numbers")).unwrap() == decoded);
        mount.unmount();
    }
}

/// What `gzip` ignores with a warning is no part of the file: all of that is there.
#[test]
fn what_lies_behind_a_compressed_file_takes_nothing_of_it() {
    let scratch = Scratch::new();
    scratch
        .shell("seq 30000 > whole; for tool in gzip bzip2; do $tool < whole > c.$tool; echo garbage >> c.$tool; done");
    let whole = fs::read(scratch.path("whole")).unwrap();
    for tool in ["gzip", "bzip2"] {
        let archive = format!("c.{tool}");
        let ran = |words: &[&str]| {
            Ran::from(support::tarnfs(&scratch).current_dir(scratch.path("")).args(words).output().unwrap())
        };
        let extracted = ran(&["extract", "-C", tool, &archive]);
        assert_eq!(extracted.code, 5, "{tool}: {}", extracted.err);
        let name = fs::read_dir(scratch.path(tool)).unwrap().next().unwrap().unwrap().path();
        assert!(fs::read(name).unwrap() == whole, "{tool}");
        let checked = ran(&["check", &archive]);
        assert!(checked.code == 5 && checked.text().ends_with("the file in it is not damaged\n"), "{}", checked.text());
    }
}

/// > A compressed file of which the end is lost is an error for who reads to its end, and never a shorter file.
///
/// A last part of which the start is lost looks like garbage, and is an error for the tools of these formats, too.
#[test]
fn what_lies_behind_a_compressed_file_and_may_be_the_rest_of_it_is_an_error() {
    let scratch = Scratch::new();
    scratch.shell("seq 30000 > whole; seq 500 > rest");
    let whole = fs::read(scratch.path("whole")).unwrap();
    for (suffix, tool) in [("xz", "xz -c"), ("zst", "zstd -qc"), ("lz4", "lz4 -qc")] {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!(
            "{tool} < whole > c.{suffix}; {tool} < rest > r; printf '??' | dd of=r conv=notrunc status=none; cat r >> c.{suffix}"
        ));
        let archive = scratch.path(format!("c.{suffix}"));
        for _ in ["first", "again"] {
            let cat = run(&scratch, ["cat", archive.to_str().unwrap(), "c"]);
            assert!(cat.code == 5 && cat.out == whole, "{suffix}: {}", cat.err);
            let folder = scratch.path(suffix);
            let extracted = run(&scratch, ["extract", "-C", folder.to_str().unwrap(), archive.to_str().unwrap()]);
            assert_eq!(extracted.code, 5, "{suffix}: {}", extracted.err);
            assert_eq!(fs::read_dir(folder).map_or(0, Iterator::count), 0, "{suffix}");
        }
    }
}

#[test]
fn volumes_one_behind_the_other_are_joined() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 250000 /dev/urandom > big; echo small > small
         tar -V label -M -L 100 -cf 1.tar -f 2.tar -f 3.tar big small; cat 1.tar 2.tar 3.tar > all.tar; gzip -k all.tar",
    );
    for archive in ["all.tar", "all.tar.gz"] {
        for _ in ["first", "from the index"] {
            let mount = Mounted::new(&scratch, scratch.path(archive), &["-i", "--index-minimum-file-count=0"]);
            for name in ["big", "small"] {
                assert!(
                    fs::read(mount.path(name)).unwrap() == fs::read(scratch.path(name)).unwrap(),
                    "{archive}: {name}"
                );
            }
            assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 2);
            mount.unmount();
        }
        assert!(scratch.path(format!("{archive}.tarnfs.sqlite")).exists());
    }
}

/// > Without `--force`, bytes whose checksum does not match are never served. Reading that range is an error, and the
/// > rest of the file is read.
#[test]
fn a_wrong_checksum_is_an_error_for_its_range_only() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in 1 2 3 4 5 6; do head -c 300000 /dev/urandom > tree/f$i; done; tar -C tree -cf a.tar f1 f2 f3 f4 f5 f6");
    // Each of these has a checksum for less than the whole stream. Stored blocks: a flipped byte is seen by nothing
    // else.
    for (suffix, tool) in [
        (
            ".gz",
            "python3 -c \"import sys,gzip; d=sys.stdin.buffer.read(); [sys.stdout.buffer.write(gzip.compress(d[i:i+200000], 0)) for i in range(0, len(d), 200000)]\"",
        ),
        (".bz2", "bzip2 -1"),
        (".xz", "xz -0 --block-size=128KiB"),
        (".lz4", "lz4 -q -B4 -BX"),
        (".lzo", "lzop -c"),
    ] {
        if suffix == ".lzo" && !have("lzop") {
            continue;
        }
        scratch.shell(&format!("{tool} < a.tar > b.tar{suffix}"));
        let path = scratch.path(format!("b.tar{suffix}"));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let mount = Mounted::any(&scratch, &path, &["-c"]);
        assert_eq!(mount.ran.code, 5, "{suffix}: {}", mount.ran.err);
        for _ in ["first", "from the index"] {
            let mut refused = 0;
            for i in 1..=6 {
                match fs::read(mount.path(format!("f{i}"))) {
                    Ok(read) => {
                        assert!(read == fs::read(scratch.path(format!("tree/f{i}"))).unwrap(), "{suffix}: wrong bytes");
                    }
                    Err(error) => {
                        assert!(
                            error.raw_os_error() == Some(libc::EIO) || error.raw_os_error() == Some(libc::ENOENT),
                            "{error}"
                        );
                        refused += 1;
                    }
                }
            }
            assert!((1..=4).contains(&refused), "{suffix}: {refused} of 6 refused");
        }
        mount.unmount();
    }
}

/// > With `--force`, what can be decoded but fails its checksum is served, too, and marked. What is lost is an error.
#[test]
fn what_fails_its_checksum_is_served_by_force() {
    let scratch = Scratch::new();
    scratch.shell("seq 200000 > f");
    let whole = fs::read(scratch.path("f")).unwrap();
    for (suffix, tool, wrong, right) in [
        // The CRC-32 at the end of a gzip member, so all bytes are right.
        ("gz", "gzip -c", 8, whole.len()),
        ("zst", "zstd -qc", 1, whole.len()),
        ("lz4", "lz4 -qc", 1, whole.len()),
        // The CRC-64 of the only block, before the index (20 bytes and the footer).
        ("xz", "xz -c", 33, whole.len()),
    ] {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!("{tool} < f > bad.{suffix}"));
        let path = scratch.path(format!("bad.{suffix}"));
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - wrong;
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        let index = format!("--index-file={}", scratch.path(format!("{suffix}.sqlite")).display());
        // The index is the same whoever made it: the second call without it refuses what the first one did.
        for _ in ["first", "from the index"] {
            let forced = run(&scratch, ["cat".as_ref(), "--force".as_ref(), index.as_ref(), path.as_os_str()]);
            assert_eq!((forced.code, forced.out.len()), (5, right), "{suffix}: {}", forced.err);
            assert!(forced.out == whole[..right], "{suffix}");
            let plain = run(&scratch, ["cat".as_ref(), index.as_ref(), path.as_os_str()]);
            assert_eq!((plain.code, plain.out.len()), (5, 0), "{suffix}: {}", plain.err);
            assert!(plain.err.contains("--force serves it"), "{suffix}: {}", plain.err);
        }
        let checked = run(&scratch, ["check".as_ref(), path.as_os_str()]);
        assert!(checked.text().contains(", between bytes "), "{suffix}: {}", checked.text());
    }
}

#[test]
fn a_forced_mount_marks_damaged_files_and_refuses_what_is_lost() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // Two members: the data of the first are not valid from some byte on; the file in the second is whole.
    scratch.shell("head -c 300000 /dev/urandom > a; seq 60000 > b; tar cf t.tar a b");
    // One byte of a stored block, and the type of a later one.
    let script = "import gzip
d = open('t.tar', 'rb').read()
first, at, decoded = bytearray(gzip.compress(d[:262144], 0)), 10, 0
first[5000] ^= 1
while decoded < 130000:
    length = int.from_bytes(first[at + 1:at + 3], 'little')
    at, decoded = at + 5 + length, decoded + length
first[at] = 7
open('t.tar.gz', 'wb').write(first + gzip.compress(d[262144:], 6))";
    fs::write(scratch.path("make.py"), script).unwrap();
    scratch.shell("python3 make.py");
    let (a, b) = (fs::read(scratch.path("a")).unwrap(), fs::read(scratch.path("b")).unwrap());
    let damaged = |path: &Path| rustix::fs::getxattr(path, "user.tarnfs.damaged", &mut [0; 200][..]).ok();
    for force in [true, false, true] {
        let options: &[&str] = if force { &["--force", "--index-minimum-file-count=0"] } else { &[] };
        let mount = Mounted::any(&scratch, scratch.path("t.tar.gz"), options);
        assert_eq!(mount.ran.code, 5, "{}", mount.ran.err);
        let mut start = vec![0; 100_000];
        let file = fs::File::open(mount.path("a")).unwrap();
        let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0);
        assert_eq!(read.is_ok(), force, "{read:?}");
        if force {
            let wrong: Vec<_> = (0..start.len()).filter(|&at| start[at] != a[at]).collect();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
        }
        let mut behind = [0; 1000];
        assert!(std::os::unix::fs::FileExt::read_exact_at(&file, &mut behind, 200_000).is_err());
        assert!(fs::read(mount.path("b")).is_ok_and(|read| read == b));
        assert_eq!((damaged(&mount.path("a")).is_some(), damaged(&mount.path("b"))), (force, None));
        drop(file);
        mount.unmount();
    }
}

/// ratarmount's sidecars do not say what is damaged: with `--force` one that is named changes nothing.
#[test]
fn a_forced_mount_marks_damaged_files_although_a_sidecar_is_named() {
    if !can_mount() || !have("bzip2") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("head -c 3000000 /dev/urandom > a; echo b > b; tar c a b | bzip2 > t.tar.bz2");
    let archive = scratch.path("t.tar.bz2");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let sidecar = scratch.path("t.tar.bz2.index.sqlite");
    let kept = fs::read(&sidecar).unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let time = archive.metadata().unwrap().modified().unwrap();
    bytes[1_500_000] ^= 0x55;
    fs::write(&archive, bytes).unwrap();
    fs::File::options().write(true).open(&archive).unwrap().set_modified(time).unwrap();
    let seen = |index: &str| {
        let options = ["--force", "--index-file", index];
        let mount = Mounted::any(&scratch, &archive, &options);
        let damaged = |name: &str| {
            let mut what = vec![0; 1000];
            let length = rustix::fs::getxattr(mount.path(name), "user.tarnfs.damaged", &mut what[..]).ok()?;
            what.truncate(length);
            Some(String::from_utf8(what).unwrap())
        };
        let seen = (mount.ran.code, damaged("a"), damaged("b"), mount.ran.err.contains("damaged"));
        mount.unmount();
        fs::write(scratch.path("log"), "").unwrap();
        seen
    };
    let without = seen(":memory:");
    assert!(without.0 == 5 && without.1.is_some() && without.2.is_none() && without.3, "{without:?}");
    assert_eq!(seen(sidecar.to_str().unwrap()), without);
    assert!(fs::read(&sidecar).unwrap() == kept, "ratarmount's is left alone");
}

/// Every archive of other projects' tests: listed and read through the command. No signal, no panic, no hang, a
/// documented exit code.
#[test]
fn the_corpus_is_clean() {
    let Some(corpus) = corpus() else { return };
    let scratch = Scratch::new();
    let mut archives: Vec<_> = ["libarchive", "xz", "zstd/golden-decompression", "zstd/golden-decompression-errors"]
        .iter()
        .flat_map(|folder| fs::read_dir(corpus.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    archives.sort();
    let mut opened = 0;
    for archive in &archives {
        opened += u32::from(is_clean(&scratch, archive));
    }
    println!("{opened} of {} could be opened", archives.len());
    assert!(opened > 80);
}

/// Lists and reads all of it; true if it is an archive for tarnfs.
fn is_clean(scratch: &Scratch, archive: &Path) -> bool {
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("bash");
        command
            .args(["-c", "ulimit -v 2097152; exec timeout -s KILL 600 \"$@\"", "bash", env!("CARGO_BIN_EXE_tarnfs")])
            .args(arguments)
            .arg(archive)
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .stdin(Stdio::null());
        support::Ran::from(command.output().unwrap())
    };
    let shown = archive.display();
    let listed = limited(&["ls", "-R", "--json", "--index-file", ":memory:"]);
    assert!(CLEAN.contains(&listed.code), "{shown}: {} {}", listed.code, listed.err);
    assert!(!listed.err.contains("panicked"), "{shown}: {}", listed.err);
    let read = limited(&["cat", "--index-file", ":memory:"]);
    assert!(CLEAN.contains(&read.code), "{shown}: {} {}", read.code, read.err);
    assert!(!read.err.contains("panicked"), "{shown}: {}", read.err);
    listed.code == 0 || listed.code == 5
}

/// Each damaged place costs memory, so only as many are kept as an index keeps (10 000).
#[test]
fn an_archive_of_nothing_but_damage_is_told_of_in_bounds() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import gzip, tarfile
open('a.tar', 'wb').write((tarfile.TarInfo('a').tobuf() + b'x' * 512) * 12000)
member = bytearray(gzip.compress(b'a'))
member[-8] ^= 1
open('a.gz', 'wb').write((member + gzip.compress(b'b')) * 12000)
E",
    );
    for archive in ["a.tar", "a.gz"] {
        let path = scratch.path(archive);
        let listed = run(&scratch, ["ls".as_ref(), path.as_os_str(), "--index-file=:memory:".as_ref()]);
        assert_eq!(listed.code, 5, "{archive}: {}", listed.err);
        assert!(listed.err.contains("damaged in 9990 more places"), "{archive}: {}", listed.err);
    }
}

/// What the corpus says of itself: each `good-*.xz` decodes to what the tool gives, each `bad-*.xz` is not taken for
/// good.
#[test]
fn the_xz_corpus_is_judged_as_the_tool_judges_it() {
    let Some(corpus) = corpus() else { return };
    let scratch = Scratch::new();
    let mut checked = 0;
    for entry in fs::read_dir(corpus.join("xz")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|extension| extension != "xz") || name.starts_with("unsupported") {
            continue;
        }
        let ours = tarnfs(&scratch).arg("cat").arg("--index-file=:memory:").arg(&path).output().unwrap();
        let theirs = Command::new("xz").arg("-dc").arg(&path).stderr(Stdio::null()).output().unwrap();
        assert_eq!(ours.status.success(), theirs.status.success(), "{name}: {}", String::from_utf8_lossy(&ours.stderr));
        if name.starts_with("good") {
            assert!(ours.stdout == theirs.stdout, "{name}");
        }
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn cut_at_every_block_and_flipped_anywhere_it_stays_clean() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d; echo hello > tree/file; ln -s file tree/link; ln tree/file tree/d/hard; truncate -s 1M tree/hole; mkfifo tree/fifo
         touch tree/$(printf 'n%.0s' $(seq 180)); tar --format=posix --sparse -C tree -cf posix.tar .; tar --format=gnu --sparse -C tree -cf gnu.tar .",
    );
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for name in ["posix.tar", "gnu.tar"] {
        let whole = fs::read(scratch.path(name)).unwrap();
        for round in 0..120 {
            let mut bytes = whole.clone();
            if round < 40 {
                bytes.truncate(whole.len() * round / 40);
            } else {
                for _ in 0..=round % 5 {
                    let at = random() % whole.len();
                    bytes[at] ^= 1 << (random() % 8);
                }
            }
            let path = scratch.path("mutated.tar");
            fs::write(&path, &bytes).unwrap();
            let ran = run(&scratch, ["ls".as_ref(), "-R".as_ref(), "-l".as_ref(), path.as_os_str()]);
            assert!(
                CLEAN.contains(&ran.code) && !ran.err.contains("panicked"),
                "{name} {round}: {} {}",
                ran.code,
                ran.err
            );
        }
    }
}

/// What archives say of their members is compared when these are read, so the mark comes then.
///
/// > With `--force`, a damaged file of a zip or 7z archive is marked once it was read.
#[test]
fn what_fails_the_checksum_of_a_member_is_served_by_force() {
    let scratch = Scratch::new();
    if !have("zip") || !have("7z") {
        return;
    }
    scratch.shell(
        "seq 9999 > short; head -c 3000000 /dev/urandom > long; zip -q -0 short.zip short; zip -q -0 long.zip long
         7z a -bd -bso0 -mx0 short.7z short; 7z a -bd -bso0 -mx0 long.7z long; zip -q packed.zip short
         7z a -bd -bso0 -mx0 -psecret -mem=AES256 locked.zip short; zip -q -0 -P secret old.zip short",
    );
    for (archive, file) in [
        ("short.zip", "short"),
        ("long.zip", "long"),
        ("short.7z", "short"),
        ("long.7z", "long"),
        ("packed.zip", "short"),
        ("locked.zip", "short"),
    ] {
        let (whole, path) = (fs::read(scratch.path(file)).unwrap(), scratch.path(archive));
        let mut bytes = fs::read(&path).unwrap();
        if archive == "packed.zip" {
            // Only the checksum is wrong, which is in two places.
            let directory = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
            bytes[14] ^= 1;
            bytes[directory + 16] ^= 1;
        } else {
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
        let cat = |options: &[&str]| {
            let mut words = vec!["cat", "--password", "secret"];
            words.extend(options);
            words.extend([path.to_str().unwrap(), file]);
            run(&scratch, words)
        };
        let plain = cat(&[]);
        assert!(plain.code != 0 && plain.out.len() < whole.len(), "{archive}: {} {}", plain.code, plain.err);
        let forced = cat(&["--force"]);
        assert_eq!((forced.code, forced.out.len()), (5, whole.len()), "{archive}: {}", forced.err);
        let wrong = (0..whole.len()).filter(|&at| whole[at] != forced.out[at]).count();
        assert_eq!(wrong, usize::from(archive != "packed.zip"), "{archive}");
        assert_eq!(forced.err.matches("served all the same").count(), 1, "{archive}: {}", forced.err);
        assert_eq!(cat(&["--force", "--range", "0:10"]).code, 5, "{archive}");
        if !can_mount() {
            continue;
        }
        let mount = Mounted::any(&scratch, &path, &["--force", "--password", "secret"]);
        assert_eq!(fs::read(mount.path(file)).unwrap().len(), whole.len(), "{archive}");
        let mut mark = [0; 200];
        assert!(rustix::fs::getxattr(mount.path(file), "user.tarnfs.damaged", &mut mark[..]).is_ok(), "{archive}");
        mount.unmount();
    }
    let checked = run(&scratch, ["check".as_ref(), "--force".as_ref(), scratch.path("short.zip").as_os_str()]);
    assert_eq!(checked.code, 5, "who checks is told of it all the same: {}", checked.text());
}
