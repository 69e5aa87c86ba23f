//! cpio archives: what GNU cpio makes and extracts, and the initramfs of Linux.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, have, run};

/// Keeps an index of every archive, however small.
const KEEP: &str = "--index-minimum-file-count=0";

/// Made while things are put into them.
const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };

/// GNU cpio sets no times of symbolic links. In a twin: the times that they had.
const LINK_TIMES: &str = "find . -type l -exec touch -h -r $OLDPWD/tree/{} {} \\;";

const TREE: &str = r"
    mkdir -p tree/folder/inner tree/empty
    printf hello > tree/folder/file; : > tree/folder/nothing; seq 1 60000 > tree/folder/inner/numbers
    head -c 300001 /dev/urandom > tree/random
    ln -s ../file tree/folder/inner/link; ln -s missing tree/dangling
    ln tree/folder/file tree/hard; ln tree/folder/nothing tree/nothing; ln tree/random tree/a; ln tree/random tree/folder/z
    mkfifo tree/fifo; mknod tree/null c 1 3; mknod tree/disk b 250 70; chown 1234:4321 tree/random
    chmod 4751 tree/folder/file; chmod 1777 tree/empty
    long=$(printf '%0200d' 1); mkdir -p tree/$long/$long; echo long > tree/$long/$long/$long
    touch -h -d '2001-02-03 04:05:06 UTC' tree/folder/file tree/dangling
";

/// Mounts twice, without an index and with the one that is there then; each time the tree must be the twin's.
#[track_caller]
fn assert_both_mounts(scratch: &Scratch, archive: &str, options: &[&str], twin: &Path) {
    let path = scratch.path(archive);
    for more in [KEEP, "--no-recreate-index"] {
        let mounted = Mounted::new(scratch, &path, &[options, &[KEEP, more]].concat());
        assert_twins(&mounted.at, twin, COMPARE);
        mounted.unmount();
    }
}

/// > What is mounted of a cpio or an ar is what `cpio -i` and `ar x` make of it.
#[test]
fn mounted_is_what_cpio_extracts() {
    if !can_mount() || !have("cpio") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    for format in ["newc", "crc", "odc", "bin"] {
        scratch.shell(&format!(
            "(cd tree; find . | cpio -o --quiet -H {format}) > a.{format}
             mkdir twin-{format}; cd twin-{format}; cpio -idmu --quiet < ../a.{format}; {LINK_TIMES}"
        ));
        let twin = scratch.path(format!("twin-{format}"));
        assert_both_mounts(&scratch, &format!("a.{format}"), &[], &twin);
        for (suffix, tool) in [("gz", "gzip"), ("xz", "xz --block-size=64KiB"), ("zst", "zstd -q")] {
            scratch.shell(&format!("{tool} < a.{format} > a.{format}.{suffix}"));
            assert_both_mounts(&scratch, &format!("a.{format}.{suffix}"), &[], &twin);
        }
    }
}

/// A cpio in a tar, and a tar in a cpio, plain and compressed.
#[test]
fn in_each_other() {
    if !can_mount() || !have("cpio") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell(
        "mkdir inner outer twin; (cd tree; find . | cpio -o --quiet -H newc) > inner/a.cpio
         gzip -k inner/a.cpio; xz -k inner/a.cpio; zstd -q -k inner/a.cpio; cp -r inner outer/cpios
         tar -C tree -cf inner/b.tar .; zstd -q -k inner/b.tar; mv inner/b.* outer
         (cd outer; find . | cpio -o --quiet -H newc) > outer.cpio; tar -C outer -cf outer.tar .
         gzip -k outer.cpio; xz -k outer.tar
         cd twin; for name in cpios/a.cpio cpios/a.cpio.gz cpios/a.cpio.xz cpios/a.cpio.zst b.tar b.tar.zst; do
             mkdir -p $name; touch -r ../outer/$name $name; (cd $name; cpio -idmu --quiet < $OLDPWD/../outer/cpios/a.cpio
                 find . -type l -exec touch -h -r $OLDPWD/../tree/{} {} \\;); done",
    );
    for outer in ["outer.cpio", "outer.tar", "outer.cpio.gz", "outer.tar.xz"] {
        assert_both_mounts(&scratch, outer, &["-r"], &scratch.path("twin"));
    }
}

/// As distributions make it: a few files for the processor first, then the rest, compressed.
#[test]
fn an_initramfs_is_shown_with_its_compressed_part() {
    if !can_mount() || !have("cpio") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p early/kernel/x86 main/bin; echo code > early/kernel/x86/code; seq 1 20000 > main/bin/sh; ln main/bin/sh main/bin/bash
         ln -s bin main/sbin; (cd early; find . | cpio -o --quiet -H newc) > early.cpio
         (cd main; find . | cpio -o --quiet -H newc) > main.cpio; head -c 3000 /dev/zero > zeros
         cat early.cpio zeros early.cpio main.cpio zeros > plain.img; mkdir all; cp -a early/* main/* all",
    );
    let plain = Mounted::new(&scratch, scratch.path("plain.img"), &[]);
    assert_twins(&plain.at, &scratch.path("all"), COMPARE);
    plain.unmount();
    for (suffix, tool) in
        [("gz", "gzip -n"), ("xz", "xz --check=crc32"), ("zst", "zstd -q"), ("bz2", "bzip2"), ("lz4", "lz4 -q -c")]
    {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!("{tool} < main.cpio > main.{suffix}; cat early.cpio zeros main.{suffix} > initrd.img"));
        let part = format!("part-2.{suffix}");
        for more in ["--recreate-index", "--no-recreate-index"] {
            let without = Mounted::new(&scratch, scratch.path("initrd.img"), &[KEEP, more]);
            assert!(
                fs::read(without.path(&part)).unwrap() == fs::read(scratch.path(format!("main.{suffix}"))).unwrap()
            );
            assert_eq!(fs::read(without.path("kernel/x86/code")).unwrap(), b"code\n");
            without.unmount();
            let mounted = Mounted::new(&scratch, scratch.path("initrd.img"), &["-r", KEEP, more]);
            assert_twins(&mounted.path(&part), &scratch.path("main"), COMPARE);
            mounted.unmount();
        }
    }
    // In a compressed stream, which cannot be looked ahead in, it is told that there is more.
    scratch.shell("gzip -n < initrd.img > initrd.img.gz");
    let ran = run(&scratch, ["check".as_ref(), scratch.path("initrd.img.gz").as_os_str()]);
    assert!(ran.err.contains("something compressed") || ran.text().contains("something compressed"), "{}", ran.err);
}

/// > A file of a cpio or an ar whose header was changed since its index was made is not served.
#[test]
fn what_was_changed_is_an_error() {
    let scratch = Scratch::new();
    if !have("cpio") {
        return;
    }
    scratch.shell(
        "mkdir tree; for i in $(seq 1 300); do head -c 30000 /dev/urandom > tree/file$i; : > tree/empty$i; done",
    );
    for format in ["newc", "odc", "bin"] {
        scratch.shell(&format!(
            "(cd tree; find . -type f | sort | cpio -o --quiet -H {format}) > a.{format}; rm -f ../*.sqlite"
        ));
        let path = scratch.path(format!("a.{format}"));
        run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
        let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), "--no-recreate-index", name]);
        let whole = fs::read(&path).unwrap();
        for name in ["file5", "empty5"] {
            let there = cat(name).ok().out;
            assert!(there == fs::read(scratch.path(format!("tree/{name}"))).unwrap());
            let place = whole.windows(name.len() + 1).position(|window| window == [name.as_bytes(), b"\0"].concat());
            let at = place.unwrap() as u64;
            // The name, and what is before it.
            for (at, bytes) in [(at, &b"f"[..]), (at + 2, b"#"), (at - 20, b"zzz")] {
                let file = fs::File::options().write(true).open(&path).unwrap();
                let modified = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(bytes, at).unwrap();
                file.set_modified(modified).unwrap();
                let is_changed = fs::read(&path).unwrap() != whole;
                let ran = cat(name);
                assert!(ran.code != 0 && ran.out.is_empty() || !is_changed, "{format} {name} {at}: {}", ran.err);
                file.write_all_at(&whole, 0).unwrap();
                file.set_modified(modified).unwrap();
            }
            assert!(cat(name).ok().out == there);
        }
        // What grew is read anew.
        scratch.shell(&format!("echo late > late; echo late | cpio -o --quiet -A -H {format} -O a.{format}"));
        let ran = run(&scratch, ["cat", "-d", "2", path.to_str().unwrap(), "late"]).ok();
        assert!(ran.text() == "late\n" && !ran.err.contains("grew"), "{}", ran.err);
        let ran = run(&scratch, ["cat", path.to_str().unwrap(), "file5"]).ok();
        assert!(ran.out == fs::read(scratch.path("tree/file5")).unwrap());
    }
}

/// An archive one behind the other, put where there were zeros: nothing of its length changes.
#[test]
fn what_is_put_into_the_zeros_at_the_end_is_found() {
    let scratch = Scratch::new();
    if !have("cpio") {
        return;
    }
    scratch.shell(
        "for i in $(seq 1 2000); do echo $i; done > names; mkdir tree; (cd tree; xargs touch < ../names)
         (cd tree; find . -type f | cpio -o --quiet -H newc) > a.cpio; head -c 100000 /dev/zero >> a.cpio
         echo late > late; echo late | cpio -o --quiet -H newc > late.cpio",
    );
    let path = scratch.path("a.cpio");
    run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
    let end = fs::read(&path).unwrap().windows(10).rposition(|window| window == b"TRAILER!!!").unwrap() as u64;
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&fs::read(scratch.path("late.cpio")).unwrap(), end.next_multiple_of(512) + 512).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(10)).unwrap();
    let ran = run(&scratch, ["cat".as_ref(), path.as_os_str(), "late".as_ref()]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "late\n"), "{}", ran.err);
}

#[test]
fn checksums_of_compressed_archives_are_checked() {
    let scratch = Scratch::new();
    if !have("cpio") {
        return;
    }
    scratch.shell(
        "seq 1 9999 > one; seq 2 9999 > two; ls one two | cpio -o --quiet -H crc > a.cpio; gzip -n < a.cpio > whole.gz
         sed s/4242/4243/ < a.cpio > b.cpio; gzip -n < b.cpio > b.gz",
    );
    let check = |name: &str| run(&scratch, ["check".as_ref(), scratch.path(name).as_os_str()]);
    check("whole.gz").ok();
    let ran = check("b.gz");
    let said = [ran.text(), ran.err.clone()].concat();
    assert!(said.contains("one: its bytes add up to"), "{said}");
    // And those of plain ones, all of which has to be read for it.
    let whole = check("a.cpio").ok().text();
    assert!(whole.contains("whole: 2 files") && !whole.contains("no checksums"), "{whole}");
    let plain = check("b.cpio");
    assert_eq!(plain.code, 5, "{}{}", plain.text(), plain.err);
    assert!(plain.text().contains("one: its bytes add up to"), "{}", plain.text());
    let [from, to] = ["b.cpio", "b.tar"].map(|name| scratch.path(name));
    let converted = run(&scratch, ["convert".as_ref(), "--replace".as_ref(), from.as_os_str(), to.as_os_str()]);
    assert!(converted.code == 5 && converted.err.contains("one: its bytes add up to"), "{}", converted.err);
    assert!(from.exists() && !to.exists());
}

/// Files without content, each of which takes few bytes in the archive and in its index.
#[test]
fn many_small_files() {
    let scratch = Scratch::new();
    if !have("cpio") {
        return;
    }
    for format in ["odc", "bin"] {
        scratch.shell(&format!(
            "rm -rf t; mkdir t; cd t; seq 1 30000 | xargs touch; find . -type f | cpio -o --quiet -H {format} > ../a.{format}"
        ));
        let path = scratch.path(format!("a.{format}"));
        run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
        let ran = run(&scratch, ["ls".as_ref(), path.as_os_str(), "--no-recreate-index".as_ref()]).ok();
        assert_eq!(ran.text().lines().count(), 30_000);
    }
}

/// Sidecars of ratarmount are for tars.
#[test]
fn no_sidecar_is_written() {
    let scratch = Scratch::new();
    if !have("cpio") {
        return;
    }
    scratch.shell("echo one > one; echo one | cpio -o --quiet -H newc > a.cpio");
    let archive = scratch.path("a.cpio");
    let ran = run(&scratch, ["index".as_ref(), "--format".as_ref(), "ratarmount".as_ref(), archive.as_os_str()]);
    assert!(ran.code != 0 && ran.err.contains("no index of cpio archives"), "{} {}", ran.code, ran.err);
    assert!(!scratch.path("a.cpio.index.sqlite").exists());
}

/// Where what fills up a name is cut, what comes before it is there, in the index, too.
/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn what_comes_before_a_cut_is_listed_wherever_that_is() {
    if !have("cpio") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir s; cd s; for name in a bcd e; do echo $name > $name; done; printf 'a\nbcd\ne\n' | cpio -o --quiet -H newc > ../a.cpio");
    // From the end of the first file on, to where the second name has its content.
    let archive = fs::read(scratch.path("a.cpio")).unwrap();
    let second = archive.windows(4).position(|bytes| bytes == b"bcd\0").unwrap() - 110;
    for length in second..second + 120 {
        for suffix in ["", ".gz"] {
            let name = format!("cut.cpio{suffix}");
            fs::write(scratch.path("cut.cpio"), &archive[..length]).unwrap();
            scratch.shell("gzip -c cut.cpio > cut.cpio.gz");
            if !suffix.is_empty() && length % 16 != 0 && !(second + 112..second + 118).contains(&length) {
                continue;
            }
            let ran = run(&scratch, [Path::new("ls"), Path::new("--index-file=:memory:"), &scratch.path(&name)]);
            assert!(matches!(ran.code, 0 | 5), "{name}, {length}: {} {}", ran.code, ran.err);
            assert!(ran.text().lines().any(|line| line == "a"), "{name}, {length}: {}", ran.text());
        }
    }
}
