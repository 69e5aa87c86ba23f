//! Archives in archives (`--recursive`): folders that hold what tar and the decompressors make of them, level by level.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{self, Compare, Mounted, Scratch, assert_twins, can_mount, have, make_tree, run};

/// Suffix, compressor and decompressor, both from standard input to standard output.
const TOOLS: &[(&str, &str, &str)] = &[
    ("gz", "gzip -6", "gzip -dc"),
    ("bz2", "bzip2 -1", "bzip2 -dc"),
    ("xz", "xz -1 --block-size=1MiB", "xz -dc"),
    ("zst", "zstd -q -3", "zstd -q -dc"),
    ("lz4", "lz4 -q -1", "lz4 -q -dc"),
];

/// Keeps an index of every archive, however small.
const KEEP: &str = "--index-minimum-file-count=0";

fn extract(archive: &Path, folder: &Path) -> bool {
    let tar = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf"])
        .arg(archive)
        .arg("-C")
        .arg(folder)
        .output()
        .unwrap();
    tar.status.success()
}

/// What `archive` holds in a fresh folder, each archive in it made a folder up to `depth` levels.
fn twin(scratch: &Scratch, archive: &str, depth: usize) -> PathBuf {
    let twin = scratch.folder(format!("twin-{}-{archive}", support::unique()));
    assert!(extract(&scratch.path(archive), &twin), "{archive}");
    expand(&twin, depth);
    twin
}

/// Makes folders of the archives in `folder`, and of those in them, with the tools.
fn expand(folder: &Path, depth: usize) {
    if depth == 0 {
        return;
    }
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let was = times(&folder);
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                expand_file(&path, depth);
            }
        }
        // What was done in it is no change of the archive's.
        set_times(&folder, &was);
    }
}

fn expand_file(path: &Path, depth: usize) {
    let name = path.file_name().unwrap().to_owned();
    let suffix = Path::new(&name).extension().map(|suffix| suffix.to_string_lossy().into_owned()).unwrap_or_default();
    let (suffix, stem) = match suffix.as_str() {
        "tgz" => ("gz", Path::new(&name).with_extension("tar")),
        other => (other, Path::new(&name).with_extension("")),
    };
    let tool = TOOLS.iter().find(|(known, ..)| *known == suffix);
    if tool.is_none() && suffix != "tar" {
        return;
    }
    let [packed, plain, made] = ["packed", "plain", "made"].map(|end| {
        let mut name = name.clone();
        name.push(format!(".{end}-{}", support::unique()));
        path.with_file_name(name)
    });
    fs::rename(path, &packed).unwrap();
    let source = match tool {
        Some((.., undo)) => {
            let words: Vec<_> = undo.split(' ').collect();
            let status = Command::new(words[0])
                .args(&words[1..])
                .stdin(fs::File::open(&packed).unwrap())
                .stdout(fs::File::create(&plain).unwrap())
                .stderr(Stdio::null())
                .status();
            if !status.unwrap().success() {
                fs::remove_file(&plain).unwrap();
                fs::rename(&packed, path).unwrap();
                return;
            }
            &plain
        }
        None => &packed,
    };
    fs::create_dir(&made).unwrap();
    let facts = fs::metadata(&packed).unwrap();
    let was = times(&packed);
    if is_tar(source) {
        assert!(extract(source, &made), "{}", path.display());
    } else if tool.is_some() {
        let single = made.join(stem);
        fs::copy(source, &single).unwrap();
        chown(&single, Some(facts.uid()), Some(facts.gid())).unwrap();
        fs::set_permissions(&single, fs::Permissions::from_mode(facts.mode() & 0o7777)).unwrap();
        set_times(&single, &was);
    } else {
        fs::remove_dir(&made).unwrap();
        fs::rename(&packed, path).unwrap();
        return;
    }
    expand(&made, depth - 1);
    chown(&made, Some(facts.uid()), Some(facts.gid())).unwrap();
    // Whoever may read the file may look into the folder.
    let mode = facts.mode() & 0o777;
    fs::set_permissions(&made, fs::Permissions::from_mode(mode | (mode & 0o444) >> 2)).unwrap();
    for attribute in list_xattrs(&made) {
        rustix::fs::removexattr(&made, attribute.as_os_str()).unwrap();
    }
    set_times(&made, &was);
    fs::remove_file(&packed).unwrap();
    let _ = fs::remove_file(&plain);
    fs::rename(&made, path).unwrap();
}

/// True if there is a header of POSIX or GNU at the start.
fn is_tar(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes.get(257..262) == Some(b"ustar")
}

fn list_xattrs(path: &Path) -> Vec<OsString> {
    let mut names = vec![0; 65536];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return Vec::new() };
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| std::ffi::OsStr::from_bytes(name).to_owned()).collect()
}

fn times(path: &Path) -> rustix::fs::Timestamps {
    let stat = fs::symlink_metadata(path).unwrap();
    let at = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
    rustix::fs::Timestamps {
        last_access: at(stat.atime(), stat.atime_nsec()),
        last_modification: at(stat.mtime(), stat.mtime_nsec()),
    }
}

fn set_times(path: &Path, times: &rustix::fs::Timestamps) {
    rustix::fs::utimensat(rustix::fs::CWD, path, times, rustix::fs::AtFlags::empty()).unwrap();
}

/// Mounts twice, without an index and with the one that is there then; each time the tree must be the twin's.
#[track_caller]
fn assert_both_mounts(scratch: &Scratch, archive: &str, options: &[&str], twin: &Path, compare: Compare) {
    let options = [options, &[KEEP]].concat();
    let path = scratch.path(archive);
    let first = Mounted::new(scratch, &path, &options);
    assert_twins(&first.at, twin, compare);
    first.unmount();
    let next = Mounted::new(scratch, &path, &[&options[..], &["--no-recreate-index"]].concat());
    assert_twins(&next.at, twin, compare);
    next.unmount();
}

/// One of everything, and a sparse file, in tars of both kinds.
fn make_inner(scratch: &Scratch) {
    make_tree(scratch);
    scratch.shell(
        "truncate -s 3M tree/holes; printf begin | dd of=tree/holes conv=notrunc status=none
         printf middle | dd of=tree/holes bs=1 seek=1500000 conv=notrunc status=none
         head -c 300000 /dev/urandom > tree/folder/random; seq 1 60000 > tree/folder/inner/numbers
         ! command -v setfattr || setfattr -n user.colour -v blue tree/short || true
         ! command -v setfacl || setfacl -m u:1234:r tree/short || true
         mkdir outer
         tar --format=posix --numeric-owner --sparse --xattrs --acls -C tree -cf outer/posix.tar .
         tar --format=gnu --numeric-owner --sparse -C tree -cf outer/gnu.tar file nothing short block folder link dangling zz-hard holes empty
         seq 1 200000 > outer/plain",
    );
}

/// > With --recursive each archive in the archive is a folder of what tar makes of it.
#[test]
fn archives_in_archives_are_what_the_tools_make_of_them() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_inner(&scratch);
    for (suffix, tool, _) in TOOLS.iter().filter(|(_, tool, _)| have(tool.split(' ').next().unwrap())) {
        scratch.shell(&format!(
            "mkdir outer/{suffix}; {tool} < outer/posix.tar > outer/{suffix}/posix.tar.{suffix}
             {tool} < outer/gnu.tar > outer/{suffix}/gnu.{suffix}; {tool} < outer/plain > outer/{suffix}/plain.{suffix}
             touch -d '2003-02-01 01:02:03.5 UTC' outer/{suffix}/*.{suffix}
             chmod 640 outer/{suffix}/gnu.{suffix}; chmod 4751 outer/{suffix}/plain.{suffix}
             chown 12:34 outer/{suffix}/plain.{suffix}"
        ));
    }
    scratch.shell(
        "cp outer/gz/posix.tar.gz outer/gz/short.tgz
         tar --format=posix --numeric-owner -C outer -cf outer.tar .
         gzip -1 < outer.tar > outer.tar.gz; zstd -q -1 < outer.tar > outer.tar.zst",
    );
    let twin = twin(&scratch, "outer.tar", 9);
    assert!(twin.join("gz/posix.tar.gz/folder/inner/numbers").is_file(), "the twin is not expanded");
    assert!(twin.join("zst/plain.zst/plain").is_file(), "the twin is not expanded");
    for archive in ["outer.tar", "outer.tar.gz", "outer.tar.zst"] {
        println!("{archive}");
        // Where tar makes hard links, it leaves the folder with the time of the extraction.
        assert_both_mounts(&scratch, archive, &["-r"], &twin, Compare::default());
        // Small steps between seek points, and one thread.
        fs::remove_file(scratch.path(format!("{archive}.tarnfs.sqlite"))).unwrap();
        assert_both_mounts(&scratch, archive, &["-r", "-P1", "-gs", "0.125"], &twin, Compare::default());
    }
}

/// > Archives may lie in archives in any mix and to any depth.
#[test]
fn three_levels_in_any_mix() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one; seq 1 50000 > one/numbers; printf text > one/small; : > one/nothing
         gzip -1 < one/numbers > one/numbers.gz; ln -s numbers one/link; ln one/small one/hard
         printf '\\344' > one/\"$(printf 'b\\344r')\"; mkdir one/\"$(printf 'f\\374r')\"; printf leaf > one/\"$(printf 'f\\374r')\"/leaf
         tar -C one -cf one.tar .",
    );
    let packed: Vec<_> =
        [("", "cat", "")].iter().chain(TOOLS).filter(|(_, tool, _)| have(tool.split(' ').next().unwrap())).collect();
    let name = |level: &str, suffix: &str| {
        if suffix.is_empty() { format!("{level}.tar") } else { format!("{level}.tar.{suffix}") }
    };
    // Every kind in every kind, and all of those in one of every kind.
    let mut script = String::from("mkdir outer\n");
    for (outer, outer_tool, _) in &packed {
        for (inner, inner_tool, _) in &packed {
            let (inner_name, two) = (name("one", inner), format!("two-{outer}-{inner}"));
            script.extend([format!(
                "mkdir {two}; {inner_tool} < one.tar > {two}/{inner_name}; printf x > {two}/beside
                 tar -C {two} -cf two.tar .; {outer_tool} < two.tar > outer/{}\n",
                name(&two, outer)
            )]);
        }
    }
    script += "tar -C outer -cf three.tar .; gzip < three.tar > three.tar.gz\n";
    script += "mkdir four; cp three.tar.gz four/; xz -0 < three.tar > four/three.tar.xz; tar -C four -cf four.tar three.tar.gz three.tar.xz";
    scratch.shell(&script);
    let twin = twin(&scratch, "four.tar", 9);
    assert!(twin.join("three.tar.gz/two-gz-gz.tar.gz/one.tar.gz/numbers.gz/numbers").exists() || !have("gzip"));
    assert_both_mounts(&scratch, "four.tar", &["-r"], &twin, Compare::default());
}

/// Names below `folder`, without their order.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// > ls, cat and stat see the same tree as a mount.
#[test]
fn commands_see_what_a_mount_shows() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p in/folder; printf content > in/folder/file; seq 1 1000 > in/numbers; gzip in/numbers
         tar -C in -czf inner.tar.gz folder numbers.gz; tar -cf outer.tar inner.tar.gz",
    );
    let archive = scratch.path("outer.tar");
    let archive = archive.to_str().unwrap();
    for _ in ["first", "next"] {
        let cat = |path: &str| run(&scratch, ["cat", "-r", KEEP, archive, path]).ok().text();
        assert_eq!(cat("inner.tar.gz/folder/file"), "content");
        assert_eq!(cat("inner.tar.gz/numbers.gz/numbers"), scratch.shell("seq 1 1000"));
        let listed = run(&scratch, ["ls", "-r", "-R", "--json", KEEP, archive]).ok().text();
        for name in ["inner.tar.gz", "folder", "file", "numbers.gz", "numbers"] {
            assert!(listed.contains(&format!("{name}\"")), "{name}: {listed}");
        }
        assert_eq!(listed.lines().count(), 5, "{listed}");
        let said = run(&scratch, ["stat", "-r", KEEP, archive, "inner.tar.gz/folder/file"]).ok().text();
        assert!(said.contains("Size: 7"), "{said}");
        let refused = run(&scratch, ["cat", "-r", KEEP, archive, "inner.tar.gz"]);
        assert_ne!(refused.code, 0, "a folder is written out");
    }
    let as_file = run(&scratch, ["cat", KEEP, archive, "inner.tar.gz"]).ok().out;
    assert_eq!(as_file, fs::read(scratch.path("inner.tar.gz")).unwrap(), "without -r it is the file again");
}

/// Who looks after a folder of backups with `check -r` has to learn which of them were not looked into.
#[test]
fn an_archive_that_cannot_be_opened_is_named() {
    if !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 20000 /dev/urandom > file; 7z a -psesame -mhe=on locked.7z file > log; 7z a whole.7z file > log
         head -c 10000 whole.7z > cut.7z; echo text > text.7z; tar -cf a.tar locked.7z cut.7z text.7z whole.7z; gzip -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        let checked = run(&scratch, ["check".as_ref(), "-r".as_ref(), scratch.path(archive).as_os_str()]);
        let said = checked.text();
        assert_eq!(checked.code, 5, "{said}");
        assert!(checked.err.contains("locked.7z: the header: it is encrypted"), "{}", checked.err);
        assert!(said.contains("cut.7z: its header") && !said.contains("locked.7z"), "{said}");
        // What is no archive at all is nothing to tell of.
        assert!(said.matches("; it stays a file").count() == 1 && !said.contains("text.7z"), "{said}");
    }
    // Nothing is damaged where only a password is missing.
    scratch.shell("tar -cf b.tar locked.7z whole.7z");
    let listed = run(&scratch, ["ls".as_ref(), "-r".as_ref(), scratch.path("b.tar").as_os_str()]);
    assert!(listed.code == 0 && listed.err.contains("locked.7z: the header: it is encrypted"), "{}", listed.err);
    // Nor does an index that was made without it stay when it is given.
    let archive = scratch.path("b.tar");
    let archive = archive.to_str().unwrap();
    run(&scratch, ["index", "-r", archive]).ok();
    assert!(run(&scratch, ["ls", "-r", "-R", "--password=sesame", archive]).text().contains("locked.7z/file"));
}

/// > A file that only looks like an archive stays a file and does no harm.
#[test]
fn what_only_looks_like_an_archive_stays_a_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in outer; seq 1 30000 > in/numbers; printf small > in/small; tar -C in -cf good.tar small numbers
         cp good.tar outer/a-good.tar; gzip < good.tar > outer/z-good.tar.gz
         cd outer
         printf text > x.tar; printf text > x.gz; : > empty.tar; : > empty.gz; printf 'BZh9' > x.bz2; printf 'BZ' > y.bz2
         printf '\\x1f\\x8b' > two.gz; printf '\\x1f\\x8b\\x08' > three.gz; head -c 4000 /dev/urandom > noise.tar.xz
         head -c 10240 /dev/zero > zeros.tar; printf '\\xfd7zXZ\\x00' > magic.xz; printf '\\x28\\xb5\\x2f\\xfd' > magic.zst
         printf '\\x04\\x22\\x4d\\x18' > magic.lz4; seq 300 > lines.tar; printf 'PK\\x03\\x04' > x.zip; printf '7z' > x.7z",
    );
    let odd: Vec<String> = names(&scratch.path("outer")).into_iter().filter(|name| !name.contains("good")).collect();
    assert_eq!(odd.len(), 16, "{odd:?}");
    scratch.shell("tar -C outer -cf outer.tar .; gzip < outer.tar > outer.tar.gz");
    for archive in ["outer.tar", "outer.tar.gz"] {
        for when in ["first", "next"] {
            let mount = Mounted::any(&scratch, scratch.path(archive), &["-r", KEEP]);
            // Some begin as a damaged archive does, which is said.
            assert_eq!(mount.ran.code, 5, "{archive}, {when}: {}", mount.ran.err);
            for name in &odd {
                let path = mount.path(name);
                if path.is_dir() {
                    // Zeros are an archive without members, if they are called one.
                    assert!(name == "zeros.tar" && names(&path).is_empty(), "{archive}, {when}: {name} is a folder");
                    continue;
                }
                assert_eq!(
                    fs::read(&path).unwrap(),
                    fs::read(scratch.path("outer").join(name)).unwrap(),
                    "{archive}, {when}: {name}"
                );
            }
            for good in ["a-good.tar", "z-good.tar.gz"] {
                for file in ["numbers", "small"] {
                    assert_eq!(
                        fs::read(mount.path(good).join(file)).unwrap(),
                        fs::read(scratch.path("in").join(file)).unwrap(),
                        "{archive}, {when}: {good}"
                    );
                }
            }
            mount.unmount();
        }
    }
}

/// > What can be read of a broken archive in an archive is served. Reading the rest is an error, never wrong bytes.
#[test]
fn broken_archives_give_what_is_whole_or_an_error() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in outer; for i in $(seq 20); do head -c 30000 /dev/urandom > in/noise-$i; seq $i 9000 > in/text-$i; done
         tar -C in -cf good.tar .; cp good.tar outer/good.tar",
    );
    let mut broken = Vec::new();
    for (suffix, tool, _) in
        [("tar", "cat", "")].iter().chain(TOOLS).filter(|(_, tool, _)| have(tool.split(' ').next().unwrap()))
    {
        scratch.shell(&format!("{tool} < good.tar > whole.{suffix}"));
        let whole = fs::read(scratch.path(format!("whole.{suffix}"))).unwrap();
        for (number, eighth) in [1, 4, 7].into_iter().enumerate() {
            let at = whole.len() * eighth / 8;
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            for (kind, bytes) in [("cut", &whole[..at]), ("flipped", &flipped)] {
                let name = format!("{kind}-{number}.{suffix}");
                fs::write(scratch.path("outer").join(&name), bytes).unwrap();
                broken.push(name);
            }
        }
    }
    // An archive behind the broken ones, and one before them.
    scratch.shell(
        "cp good.tar outer/zz-good.tar; tar -C outer --sort=name -cf outer.tar .; gzip -1 < outer.tar > outer.tar.gz",
    );
    for archive in ["outer.tar", "outer.tar.gz"] {
        for when in ["first", "next"] {
            let mount = Mounted::any(&scratch, scratch.path(archive), &["-r", KEEP]);
            assert_eq!(mount.ran.code, 5, "{archive}, {when}: {}", mount.ran.err);
            let (mut right, mut refused) = (0, 0);
            for name in &broken {
                let path = mount.path(name);
                if path.is_file() {
                    let bytes = fs::read(&path).unwrap();
                    assert!(bytes == fs::read(scratch.path("outer").join(name)).unwrap(), "{archive}, {when}: {name}");
                    continue;
                }
                for file in names(&path) {
                    let Ok(expected) = fs::read(scratch.path("in").join(&file)) else {
                        // A flipped bit in a header of a plain tar makes another name of it.
                        continue;
                    };
                    match fs::read(path.join(&file)) {
                        Ok(bytes) if bytes == expected => right += 1,
                        // Plain tar has no checksum of contents, and lz4 may have none of its blocks.
                        Ok(bytes) => {
                            let has_no_sums = name.ends_with("tar") && name.starts_with("flipped");
                            assert!(has_no_sums && bytes.len() == expected.len(), "{archive}, {when}: {name}/{file}");
                        }
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(5), "{archive}, {when}: {name}/{file}");
                            refused += 1;
                        }
                    }
                }
            }
            println!("{archive}, {when}: {right} files right, {refused} refused");
            assert!(right > broken.len() && refused > 0);
            for good in ["good.tar", "zz-good.tar"] {
                assert_eq!(names(&mount.path(good)).len(), 40);
                for file in names(&mount.path(good)) {
                    let expected = fs::read(scratch.path("in").join(&file)).unwrap();
                    assert!(
                        fs::read(mount.path(good).join(&file)).unwrap() == expected,
                        "{archive}, {when}: {good}/{file}"
                    );
                }
            }
            mount.unmount();
        }
    }
}

/// > The last of several archives at one path counts, with all that it holds and nothing else.
#[test]
fn the_newest_archive_of_a_path_is_the_one_that_is_shown() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir v1 v2 v1/sub; printf old > v1/both; printf old > v1/gone; printf old > v1/sub/gone; printf new > v2/both; printf new > v2/fresh
         gzip < v1/both > v1/one.gz; printf newer | gzip > v2/one.gz
         for kind in cat gzip; do
             tar -C v1 -c both gone sub one.gz | $kind > a.tar; tar --format=gnu -cf $kind.tar a.tar
             tar -C v2 -c both fresh one.gz | $kind > a.tar; tar --format=gnu -rf $kind.tar a.tar
             gzip < $kind.tar > $kind.tar.gz
             tar -C v1 -c both gone | $kind > a.tar; tar --format=gnu -cf $kind-file.tar a.tar
             printf 'no archive any more' > a.tar; tar --format=gnu -rf $kind-file.tar a.tar
         done",
    );
    for archive in ["cat.tar", "gzip.tar", "cat.tar.gz", "gzip.tar.gz"] {
        for when in ["first", "next"] {
            let mount = Mounted::new(&scratch, scratch.path(archive), &["-r", KEEP]);
            assert_eq!(names(&mount.path("a.tar")), ["both", "fresh", "one.gz"], "{archive}, {when}");
            assert_eq!(fs::read(mount.path("a.tar/both")).unwrap(), b"new", "{archive}, {when}");
            assert_eq!(fs::read(mount.path("a.tar/one.gz/one")).unwrap(), b"newer", "{archive}, {when}");
            mount.unmount();
        }
    }
    for archive in ["cat-file.tar", "gzip-file.tar"] {
        let mount = Mounted::new(&scratch, scratch.path(archive), &["-r", KEEP]);
        assert_eq!(fs::read(mount.path("a.tar")).unwrap(), b"no archive any more", "{archive}");
        mount.unmount();
    }
}

/// > The last of several entries at one path counts, in the order of the archive, even if some lie in a compressed
/// > file in it.
#[test]
fn what_comes_later_in_the_archive_is_newer_whatever_it_lies_in() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p old/a new/a; echo old > old/a/f; echo new > new/a/f; head -c 2000000 /dev/zero > pad
         tar -C new/a -czf a.tgz f; tar -cf after.tar pad; tar -C old -rf after.tar a/f; tar -rf after.tar a.tgz
         tar -cf b.tar pad; tar -C old/a -rf b.tar f; gzip < b.tar > a.tgz
         tar -cf before.tar a.tgz; tar -C new -rf before.tar a/f
         for name in after before; do gzip < $name.tar > b.tgz; tar -cf twice-$name.tar b.tgz; done",
    );
    for (archive, path) in
        [("after.tar", "a/f"), ("before.tar", "a/f"), ("twice-after.tar", "b/a/f"), ("twice-before.tar", "b/a/f")]
    {
        for threads in ["-P1", "-P4"] {
            let archive = scratch.path(archive);
            let shown = run(&scratch, ["cat", "-r", "-s", threads, archive.to_str().unwrap(), path]).ok();
            assert_eq!(shown.text(), "new\n", "{} {threads}", archive.display());
        }
    }
}

/// > The last of several entries at one path counts, in the order of the archive, even if some lie in a compressed
/// > file in it.
///
/// Where something else took the path of a folder, that is one again for what comes later.
#[test]
fn a_folder_is_one_again_whatever_lies_between() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import bz2, gzip, io, tarfile, zipfile

def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname, content = tarfile.LNKTYPE, 'never', b''
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()

def zipped(name):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        archive.writestr(name, 'z')
    return out.getvalue()

inner = tar(('a', b'f'))
for kind, content in ('tar', inner), ('tar.gz', gzip.compress(inner)), ('zip', zipped('a')):
    open(f'between-{kind}', 'wb').write(tar(('n/a/b', b'b'), (f'n.{kind}', content), ('n/a/c', b'c')))
first, last = gzip.compress(tar(('a/x', b'x'))), bz2.compress(tar(('a/y', b'y')))
open('around', 'wb').write(tar(('n.tar.gz', first), ('n/a', b'f'), ('n.tar.bz2', last)))
open('gone', 'wb').write(tar(('n.tar/b', b'b'), ('n.tar', inner), ('n.tar/c', b'c'), ('n.tar', None)))
E",
    );
    let found = |archive: &str, options: &[&str]| {
        let archive = scratch.path(archive);
        // Code 5 where a link leads nowhere.
        let shown = run(&scratch, ["find", "-r", archive.to_str().unwrap()].iter().chain(options));
        let mut paths: Vec<_> = shown.text().lines().map(str::to_owned).filter(|path| path.contains("/n")).collect();
        paths.sort();
        paths
    };
    for kind in ["tar", "tar.gz", "zip"] {
        let expected = ["./n", "./n/a", "./n/a/b", "./n/a/c", &format!("./n.{kind}")];
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found(&format!("between-{kind}"), &["-s"]), expected);
    }
    let expected = ["./n", "./n.tar.bz2", "./n.tar.gz", "./n/a", "./n/a/x", "./n/a/y"];
    assert_eq!(found("around", &["-s"]), expected);
    assert_eq!(found("gone", &[]), ["./n.tar", "./n.tar/b", "./n.tar/c"]);
}

/// > An archive that is appended to a mounted tree of archives is found, and nothing that was there is lost.
#[test]
fn what_is_appended_is_looked_into() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "for i in 1 2 3; do mkdir in-$i; seq $i 5000 > in-$i/numbers; tar -C in-$i -cf $i.tar numbers; gzip < $i.tar > $i.tar.gz; done
         tar -cf outer.tar 1.tar 1.tar.gz",
    );
    let archive = scratch.path("outer.tar");
    Mounted::new(&scratch, &archive, &["-r", KEEP]).unmount();
    scratch.shell("tar -rf outer.tar 2.tar 2.tar.gz in-3/numbers 3.tar.gz");
    for when in ["grown", "next"] {
        let mount = Mounted::new(&scratch, &archive, &["-r", KEEP]);
        for folder in ["1.tar", "1.tar.gz", "2.tar", "2.tar.gz", "3.tar.gz"] {
            let expected = fs::read(scratch.path(format!("in-{}/numbers", &folder[..1]))).unwrap();
            assert!(fs::read(mount.path(folder).join("numbers")).unwrap() == expected, "{when}: {folder}");
        }
        assert_eq!(names(&mount.at), ["1.tar", "1.tar.gz", "2.tar", "2.tar.gz", "3.tar.gz", "in-3"], "{when}");
        mount.unmount();
    }
}

/// > A hard link to an archive shows what the archive shows, or the file; never nothing.
#[test]
fn hard_links_to_archives() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in outer; printf content > in/file; tar -C in -cf outer/a.tar file; ln outer/a.tar outer/b.tar
         gzip < outer/a.tar > outer/c.tar.gz; ln outer/c.tar.gz outer/d.tar.gz; tar -C outer --sort=name -cf outer.tar .",
    );
    for when in ["first", "next"] {
        let mount = Mounted::new(&scratch, scratch.path("outer.tar"), &["-r", KEEP]);
        for name in ["a.tar", "c.tar.gz"] {
            assert_eq!(fs::read(mount.path(name).join("file")).unwrap(), b"content", "{when}: {name}");
        }
        for name in ["b.tar", "d.tar.gz"] {
            let path = mount.path(name);
            if path.is_dir() {
                assert_eq!(fs::read(path.join("file")).unwrap(), b"content", "{when}: {name}");
            } else {
                assert_eq!(
                    fs::read(&path).unwrap(),
                    fs::read(scratch.path("outer").join(name)).unwrap(),
                    "{when}: {name}"
                );
            }
        }
        mount.unmount();
    }
}
