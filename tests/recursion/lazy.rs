//! Folders full of archives, and `--lazy`: archives that are opened when somebody looks inside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Compare, Mounted, Scratch, assert_twins, can_mount, run, statistics, survey, wait_until};

/// A folder with archives of all kinds at several depths, and beside it what is in them, as tar unpacks it.
fn folder(scratch: &Scratch) {
    scratch.shell(
        "umask 022; mkdir -p content/sub twin; cd content; echo hello > a; ln a hard; ln -s a symlink; head -c 300000 /dev/urandom > sub/b; cd ..;
         mkdir -p folder/deep/er; tar cf folder/one.tar -C content .; tar czf folder/deep/two.tar.gz -C content .;
         tar cJf folder/deep/er/three.txz -C content .; gzip < content/a > folder/four.gz;
         mkdir outer; cp folder/one.tar folder/deep/two.tar.gz outer; tar cf folder/five.tar -C outer .;
         echo 'no archive' > folder/text.tar; : > folder/empty.tar.gz; head -c 5000 /dev/urandom > folder/noise.gz; echo plain > folder/plain",
    );
    scratch.shell(
        "cp -a folder/. twin; cd twin; unpack() { rm \"$1\"; mkdir \"$1\"; tar xf \"$2\" -C \"$1\"; }
         for file in one.tar deep/two.tar.gz deep/er/three.txz five.tar; do unpack $file ../folder/$file; done
         for file in five.tar/one.tar five.tar/two.tar.gz; do mv $file ../moved; mkdir $file; tar xf ../moved -C $file; done
         rm four.gz; mkdir four.gz; gzip -d < ../folder/four.gz > four.gz/four; touch -r ../folder/four.gz four.gz/four",
    );
}

/// What is compared of trees whose folders are as old as their archives.
const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };

#[test]
fn archives_in_a_folder_are_folders_and_what_only_looks_like_one_is_a_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    for options in [&["-r"][..], &["-r", "--lazy"], &["-r", "--disable-union-mount"]] {
        let mounted = Mounted::new(&scratch, scratch.path("folder"), options);
        assert_twins(&mounted.at, &scratch.path("twin"), COMPARE);
        // And once more, now that all are open.
        assert_twins(&mounted.at, &scratch.path("twin"), COMPARE);
        assert_eq!(statistics(&mounted.at)["panics"], 0);
        mounted.unmount();
    }
    // Without -r they are files.
    let mounted = Mounted::new(&scratch, scratch.path("folder"), &[]);
    assert_twins(&mounted.at, &scratch.path("folder"), COMPARE);
    mounted.unmount();
}

#[test]
fn lazy_shows_what_is_shown_without() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    folder(&scratch);
    scratch.shell("tar cf all.tar folder; gzip -k all.tar");
    for archive in ["all.tar", "all.tar.gz"] {
        let eager = Mounted::new(&scratch, scratch.path(archive), &["-r"]);
        let lazy = Mounted::new(&scratch, scratch.path(archive), &["-r", "-l"]);
        assert_twins(&lazy.at, &eager.at, COMPARE);
        let shallow = Mounted::new(&scratch, scratch.path(archive), &["--recursion-depth", "1", "-l"]);
        assert!(shallow.path("folder/five.tar/one.tar").is_file() && shallow.path("folder/one.tar").is_dir());
        for mounted in [eager, lazy, shallow] {
            mounted.unmount();
        }
    }
}

/// > --recursion-depth says how many archives inside each other are opened. A compressed tar counts as two.
#[test]
fn archives_that_are_opened_lazily_count_as_others_do() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo text > text; gzip -k text; tar cf a.tar text; tar czf b.tar.gz a.tar text text.gz; mkdir f
         tar cf f/c.tar b.tar.gz text; cp b.tar.gz f; tar cf all.tar -C f .; xz -k f/c.tar",
    );
    let shown = |source: &str, options: &[&str]| {
        let mounted = Mounted::new(&scratch, scratch.path(source), options);
        let shown = scratch.shell(&format!("cd '{}'; find . | sort", mounted.at.display()));
        mounted.unmount();
        shown
    };
    for depth in ["1", "2", "3", "4", "5", "6"] {
        let options = ["--recursion-depth", depth];
        let right = shown("all.tar", &options);
        assert_eq!(shown("all.tar", &["--recursion-depth", depth, "-l"]), right, "{depth}");
        let in_folder = shown("f", &options);
        let others = |shown: &str| -> Vec<String> {
            shown.lines().filter(|line| !line.contains(".xz") && !line.contains("sqlite")).map(str::to_owned).collect()
        };
        assert_eq!(others(&in_folder), others(&right), "{depth}");
        assert_eq!(others(&shown("f", &["--recursion-depth", depth, "-l"])), others(&right), "{depth}");
        assert_eq!(in_folder.contains("c.tar.xz/c.tar\n"), depth == "1", "{in_folder}");
    }
}

#[test]
fn names_without_extensions_and_what_else_has_them() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir c f; echo 1 > c/x; tar cf f/a.tar -C c .; tar czf f/b.tar.gz -C c .; tar cf f/c.tar -C c .; echo file > f/c");
    let mounted = Mounted::new(&scratch, scratch.path("f"), &["-r", "-s"]);
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mounted.at), ["a", "a.tar", "b", "b.tar.gz", "c", "c.tar"]);
    assert_eq!(fs::read(mounted.path("b/x")).unwrap(), b"1\n");
    assert_eq!(fs::read(mounted.path("c")).unwrap(), b"file\n");
    assert_eq!(names(&mounted.path("c.tar")), ["x"]);
    mounted.unmount();
}

#[test]
fn archives_come_go_and_change_while_they_are_shown() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir c f; echo first > c/x; tar cf f/a.tar -C c .");
    let mounted = Mounted::new(&scratch, scratch.path("f"), &["-r"]);
    assert_eq!(fs::read(mounted.path("a.tar/x")).unwrap(), b"first\n");
    scratch.shell("echo second, longer > c/x; echo new > c/y; tar cf f/a.tar.new -C c .; mv f/a.tar.new f/a.tar; tar czf f/b.tgz -C c .");
    wait_until("the new archive shows", || {
        fs::read(mounted.path("a.tar/x")).is_ok_and(|bytes| bytes == b"second, longer\n")
    });
    assert_eq!(fs::read(mounted.path("b.tgz/y")).unwrap(), b"new\n");
    fs::remove_file(scratch.path("f/b.tgz")).unwrap();
    wait_until("it is gone", || !mounted.path("b.tgz").exists());
    mounted.unmount();
}

/// What was opened is read to its end or not at all, also where a file got its old time back.
#[test]
fn an_archive_that_is_written_in_place_is_listed_anew_and_never_read_wrongly() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir c f; head -c 400000 /dev/zero | tr '\\0' a > c/x; tar cf a.tar -C c x; tar czf a.tgz -C c x
         head -c 400000 /dev/zero | tr '\\0' b > c/x; tar cf b.tar -C c x; tar czf b.tgz -C c x",
    );
    for (archive, keeps_time) in [("tar", false), ("tar", true), ("tgz", false)] {
        scratch.shell(&format!("cat a.{archive} > f/x.{archive}"));
        let path = scratch.path(format!("f/x.{archive}"));
        let mounted = Mounted::new(&scratch, scratch.path("f"), &["-r"]);
        let member = mounted.path(format!("x.{archive}/x"));
        let file = fs::File::open(&member).unwrap();
        let mut buffer = [0; 1000];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, [b'a'; 1000]);
        // Renamed and back, which leaves no trace: the same bytes where checksums verify them, else perhaps none.
        scratch.shell(&format!("mv f/x.{archive} f/y.{archive}; mv f/y.{archive} f/x.{archive}"));
        match file.read_exact_at(&mut buffer, 150_000) {
            Ok(()) => assert_eq!(buffer, [b'a'; 1000]),
            Err(error) => assert_eq!((archive, error.raw_os_error()), ("tar", Some(libc::ESTALE))),
        }
        let before = fs::metadata(&path).unwrap();
        scratch.shell(&format!("cat b.{archive} > f/x.{archive}"));
        if keeps_time {
            let time =
                std::time::UNIX_EPOCH + std::time::Duration::new(before.mtime() as u64, before.mtime_nsec() as u32);
            fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mtime_nsec(), before.mtime_nsec());
        }
        // Behind what the kernel has read ahead.
        match file.read_exact_at(&mut buffer, 399_000) {
            Ok(()) => assert_eq!(buffer, [b'a'; 1000], "{archive}, {keeps_time}: bytes of another archive"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE)),
        }
        wait_until("the new archive shows", || {
            fs::read(&member).is_ok_and(|bytes| bytes.len() == 400_000 && bytes.iter().all(|&byte| byte == b'b'))
        });
        assert_eq!(statistics(&mounted.at)["panics"], 0);
        drop(file);
        mounted.unmount();
    }
}

/// More archives in each other than are looked into: those that lie too deep are files.
#[test]
fn archives_in_archives_without_end() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo end > x.tgz; for i in $(seq 130); do tar czf y.tgz x.tgz; mv y.tgz x.tgz; done
         mkdir f; cp x.tgz f; tar cf all.tar x.tgz",
    );
    for (source, options, expected) in [
        ("all.tar", &["-r", "--lazy"][..], 100),
        ("f", &["-r", "--lazy"], 100),
        ("all.tar", &["--recursion-depth", "10", "--lazy"], 5),
    ] {
        let mounted = Mounted::new(&scratch, scratch.path(source), options);
        let mut at = mounted.path("x.tgz");
        // Where other work keeps the machine busy, an answer through so many archives may miss its deadline once.
        let is_folder = |at: &Path| {
            let mut found = fs::metadata(at);
            wait_until("there is an answer", || {
                let is_late = found.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EIO));
                if is_late {
                    found = fs::metadata(at);
                }
                !is_late
            });
            found.unwrap().is_dir()
        };
        let mut depth = 0;
        while is_folder(&at) {
            depth += 1;
            at.push("x.tgz");
            assert!(depth <= 130);
        }
        assert_eq!(depth, expected, "{source} {options:?}");
        wait_until("the innermost file can be read", || {
            fs::read(&at).is_ok_and(|bytes| bytes.starts_with(&[0x1f, 0x8b]))
        });
        assert_eq!(statistics(&mounted.at)["panics"], 0);
        mounted.unmount();
    }
}

/// PROMISES K13: more archives than files may be open.
#[test]
fn thousands_of_archives_with_few_descriptors() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir c f; cd c; for i in $(seq 3); do echo $i > file$i; done; cd ..; tar czf one.tgz -C c .;
         for i in $(seq 1500); do cp one.tgz f/$i.tgz; done",
    );
    let at = scratch.folder("mount");
    let binary = env!("CARGO_BIN_EXE_tarnfs");
    let mount = format!("ulimit -n 64; exec {binary} -r f mount");
    let status = Command::new("sh").args(["-c", &mount]).current_dir(scratch.path("")).status().unwrap();
    assert!(status.success());
    let seen = survey(&at, COMPARE);
    assert_eq!(seen.len(), 1500 * 4);
    // The first ones again, which have been closed meanwhile.
    for number in 1..100 {
        assert_eq!(fs::read(at.join(format!("{number}.tgz/file2"))).unwrap(), b"2\n");
    }
    assert_eq!(statistics(&at)["panics"], 0);
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
}

/// A mount in the background leaves the folder in which it was started.
#[test]
fn folders_of_indexes_are_those_that_were_there_at_the_start() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir folder many here; seq 1200 | (cd many; xargs touch); tar cf folder/a.tar many");
    let at = scratch.folder("m");
    let ran = support::tarnfs(&scratch)
        .current_dir(scratch.path("here"))
        .args(["-r", "--lazy", "--index-folders", "indexes"])
        .args([scratch.path("folder"), at.clone()])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let names = fs::read_dir(at.join("a.tar/many")).map(Iterator::count);
    scratch.shell("umount -l m || fusermount3 -uz m");
    assert_eq!(names.unwrap(), 1200);
    assert_eq!(fs::read_dir(scratch.path("here/indexes")).unwrap().count(), 1);
}

/// What cannot be read of an archive is passed while it is looked into. It has no hash.
#[test]
fn there_is_no_hash_of_what_cannot_be_read() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "for number in 1 2 3 4; do head -c 2000000 /dev/urandom > f$number; done; tar cf in.tar f1 f2 f3 f4; tar cjf damaged.tar.bz2 in.tar
         printf '\\0\\1\\2\\3\\4\\5\\6\\7' | dd of=damaged.tar.bz2 bs=1 seek=4000000 conv=notrunc status=none",
    );
    for options in [&["-r"][..], &["-r", "--lazy"]] {
        let options = [options, &["--hashes", "crc32", "--index-file", ":memory:"]].concat();
        let mounted = Mounted::any(&scratch, scratch.path("damaged.tar.bz2"), &options);
        let hashes = scratch.shell(&format!(
            "cd {}/in.tar; ls; python3 -c \"
import os, zlib
for name in sorted(os.listdir('.')):
    try: right = '%08x' % zlib.crc32(open(name, 'rb').read())
    except OSError: right = 'none'
    for attribute in os.listxattr(name):
        if 'hash' in attribute and os.getxattr(name, attribute).decode() != right: print('WRONG', name, right)
    if right == 'none': print('unreadable', name)\"",
            mounted.at.display()
        ));
        mounted.unmount();
        assert!(hashes.contains("f1") && hashes.contains("unreadable"), "{options:?}: {hashes}");
        assert!(!hashes.contains("WRONG"), "{options:?}: {hashes}");
    }
}

/// A file may be all hole, and longer than anybody could read it. What is no header is searched past nevertheless.
#[test]
fn holes_are_passed_where_headers_are_searched_for() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo first > a; tar cf in.tar --format=ustar a; echo a | cpio -o --format=newc > in.cpio 2> /dev/null; ar rc in.a a
         python3 - <<'E'
import io, tarfile, zipfile
length = 1 << 60
def sparse(file, name, parts, stored=None):
    # A map of version 1.0: how many extents, where each begins and how long it is.
    extents = [(0, len(parts[0])), (length - 512, 512)][:len(parts)] + [(length, 0)]
    lines = [len(extents)] + [number for extent in extents for number in extent]
    body = ''.join('%d\\n' % number for number in lines).encode()
    body = body.ljust(-(-len(body) // 512) * 512, b'\\0') + b''.join(parts)
    entry = tarfile.TarInfo('GNUSparseFile.0/' + name)
    entry.size = len(body)
    entry.pax_headers = {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': name,
                         'GNU.sparse.realsize': str(length)}
    file.addfile(entry, io.BytesIO(body))
noise = b'noise, noise, no' * 32
inner = {'in.tar': open('in.tar', 'rb').read()[:1024] + noise, 'zeros.tar': open('in.tar', 'rb').read()[:1024]}
cpio = open('in.cpio', 'rb').read()
inner['in.cpio'] = cpio[:cpio.rindex(b'070701')] + noise
inner['in.a'] = open('in.a', 'rb').read() + noise
with zipfile.ZipFile('in.zip', 'w', zipfile.ZIP_DEFLATED) as file: file.write('a')
inner['in.zip'] = open('in.zip', 'rb').read().split(b'PK\\1\\2')[0] + noise
# One in one: what lies in a sparse file has its holes.
deep = tarfile.TarInfo('y.tar')
deep.size = 1 << 59
inner['deep.tar'] = deep.tobuf(tarfile.GNU_FORMAT) + inner['in.tar']
with tarfile.open('sparse.tar', 'w', format=tarfile.PAX_FORMAT) as file:
    for name, data in inner.items(): sparse(file, name, [data])
    # The last one is cut below: its last extent is not there.
    sparse(file, 'cut.tar', [inner['in.tar'].ljust(8192, b'n'), noise])
whole = open('sparse.tar', 'rb').read()
end = whole.rindex(noise)
assert not whole[end + 512:].strip(b'\\0')
open('sparse.tar', 'wb').write(whole[:end])
E",
    );
    // Those of a folder, which has no file of that length.
    scratch.shell(
        "mkdir folder; head -c 1024 in.tar > folder/in.tar; echo noise >> folder/in.tar; truncate -s 4T folder/in.tar",
    );
    let archive = scratch.path("sparse.tar");
    for (archive, options, names) in [
        (&archive, &["-r", "--lazy"][..], &["in.tar", "in.cpio", "in.a", "in.zip", "cut.tar", "deep.tar/y.tar"][..]),
        (&archive, &["-r", "--lazy", "--ignore-zeros"], &["in.tar", "zeros.tar", "cut.tar"]),
        (&scratch.path("folder"), &["-r"], &["in.tar"]),
    ] {
        let options = [options, &["--index-file", ":memory:"]].concat();
        let mounted = Mounted::any(&scratch, archive, &options);
        for name in names {
            let read = scratch.shell(&format!("timeout 55 cat {}/{name}/a 2>&1 || true", mounted.at.display()));
            assert_eq!(read, "first\n", "{name} {options:?}");
        }
        mounted.unmount();
    }
}

/// An archive that cannot be opened is the file that it is, also after it was forgotten, and whatever others of its
/// name there are.
#[test]
fn what_cannot_be_opened_is_a_file_and_stays_one() {
    if !can_mount() || !support::have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p d/a d/b; seq 100000 > f; for in in d a b; do echo $in > g; 7z a -bd -bso0 -psecret -mhe=on $in.7z f g; done
         mv d.7z d/enc.7z; mv a.7z d/a/enc.7z; mv b.7z d/b/enc.7z; 7z a -bd -bso0 whole.7z f
         head -c $(($(stat -c %s whole.7z) * 6 / 10)) whole.7z > d/cut.7z;
         tar cf d/good.tar f; tar cf d.tar -C d .",
    );
    let names = ["enc.7z", "cut.7z", "a/enc.7z", "b/enc.7z"];
    for (source, options) in [("d", &["-r"][..]), ("d.tar", &["-r", "--lazy"])] {
        let options = [options, &["--index-file", ":memory:"]].concat();
        let mounted = Mounted::any(&scratch, scratch.path(source), &options);
        for name in names {
            let at = mounted.at.join(name);
            // Looked into: it is a folder until then.
            let _ = fs::read_dir(&at).map(Iterator::count);
            wait_until("it is a file", || fs::metadata(&at).is_ok_and(|found| found.is_file()));
        }
        for name in [names; 3].as_flattened() {
            // The kernel forgets all that it can.
            let _ = fs::write("/proc/sys/vm/drop_caches", "2");
            let read = fs::read(mounted.at.join(name)).unwrap();
            assert!(read == fs::read(scratch.path("d").join(name)).unwrap(), "{source}: {name}");
        }
        assert!(fs::metadata(mounted.at.join("good.tar/f")).unwrap().is_file());
        mounted.unmount();
    }
}
