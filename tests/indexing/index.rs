//! The index: where it goes, whom it is believed from, when it is made anew, and that it is never half.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{self, Compare, Mounted, Scratch, assert_twins, can_mount, is_root, run};

/// An archive of `count` files that is large enough for an index on disk.
fn archive(scratch: &Scratch, count: u32) -> std::path::PathBuf {
    scratch.shell(&format!(
        "mkdir -p tree; cd tree; for i in $(seq {count}); do echo content $i > file$i; done; tar -cf ../a.tar ."
    ));
    scratch.path("a.tar")
}

fn ls(scratch: &Scratch, archive: &Path, options: &[&str]) -> support::Ran {
    run(scratch, ["ls", archive.to_str().unwrap()].into_iter().chain(options.iter().copied()))
}

#[test]
fn it_goes_beside_the_archive_then_to_the_cache_then_to_memory() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    ls(&scratch, &archive, &[]).ok();
    let beside = scratch.path("a.tar.tarnfs.sqlite");
    assert!(beside.exists());
    fs::remove_file(&beside).unwrap();

    ls(&scratch, &archive, &["--index-file", ":memory:"]).ok();
    assert!(!beside.exists());

    let folders = format!("{},", scratch.folder("one").display());
    ls(&scratch, &archive, &["--index-folders", &folders]).ok();
    assert_eq!(fs::read_dir(scratch.path("one")).unwrap().count(), 1);
    assert!(!beside.exists());
    let json = format!("[\"{}\"]", scratch.folder("with,comma").display());
    ls(&scratch, &archive, &["--index-folders", &json]).ok();
    assert_eq!(fs::read_dir(scratch.path("with,comma")).unwrap().count(), 1);

    let named = scratch.path("named.index");
    ls(&scratch, &archive, &["--index-file", named.to_str().unwrap()]).ok();
    assert!(named.exists());

    if is_root() {
        // A folder that cannot be written even by root.
        let media = scratch.folder("media");
        fs::copy(&archive, media.join("a.tar")).unwrap();
        scratch.shell("mount --bind media media; mount -o remount,bind,ro media");
        let listed = ls(&scratch, &media.join("a.tar"), &[]);
        let cached = fs::read_dir(scratch.path("cache/tarnfs")).map_or(0, Iterator::count);
        fs::remove_dir_all(scratch.path("cache")).unwrap();
        fs::write(scratch.path("cache"), "no folder can be made here").unwrap();
        let in_memory = ls(&scratch, &media.join("a.tar"), &[]);
        scratch.shell("umount media");
        assert_eq!(listed.ok().out, in_memory.ok().out);
        assert_eq!(cached, 1);
    }
}

#[test]
fn small_archives_leave_no_index_behind() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 20);
    ls(&scratch, &archive, &[]).ok();
    assert!(!scratch.path("a.tar.tarnfs.sqlite").exists());
    ls(&scratch, &archive, &["--index-minimum-file-count", "10"]).ok();
    assert!(scratch.path("a.tar.tarnfs.sqlite").exists());
}

#[test]
fn an_archive_that_was_replaced_is_read_again() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    ls(&scratch, &archive, &[]).ok();
    // Another archive of the same length and time.
    scratch.shell(
        "cp -p a.tar old.tar; mv tree/file7 tree/other; tar --sort=name -C tree -cf b.tar .
         [ $(stat -c %s b.tar) = $(stat -c %s a.tar) ]; cat b.tar > a.tar; touch -r old.tar a.tar",
    );
    let listed = ls(&scratch, &archive, &[]).ok();
    assert!(listed.text().lines().any(|name| name == "other"));
    assert!(listed.err.contains("does not belong"), "{}", listed.err);
    // Of another length.
    scratch.shell("mkdir new; touch new/alone; tar -C new -cf a.tar .");
    assert_eq!(ls(&scratch, &archive, &[]).ok().text(), "alone\n");
    // Only touched: the bytes are the same, so the index is good, unless --verify-mtime.
    scratch.shell("cp old.tar a.tar");
    ls(&scratch, &archive, &[]).ok();
    scratch.shell("touch -d 2001-01-01 a.tar");
    ls(&scratch, &archive, &["--no-recreate-index"]).ok();
    assert_eq!(ls(&scratch, &archive, &["--no-recreate-index", "--verify-mtime"]).code, 7);
}

#[test]
fn an_index_never_takes_the_place_of_something_else() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    scratch.shell("echo precious > notes; ln -s notes link; : > empty; mkdir folder");
    for name in ["a.tar", "notes", "link", "folder"] {
        let path = scratch.path(name);
        let before = fs::read(&path).ok();
        let index_file = format!("--index-file={}", path.display());
        for format in ["tarnfs", "ratarmount"] {
            let arguments =
                ["index".as_ref(), archive.as_os_str(), index_file.as_ref(), "--format".as_ref(), format.as_ref()];
            assert_ne!(run(&scratch, arguments).code, 0, "{name} {format}");
        }
        assert!(fs::read(&path).ok() == before, "{name}");
    }
    assert!(fs::symlink_metadata(scratch.path("link")).unwrap().is_symlink());
    // What is new, empty or an index may be written.
    for name in ["new", "empty", "new"] {
        let index_file = format!("--index-file={}", scratch.path(name).display());
        ls(&scratch, &archive, &["-c", &index_file]).ok();
        assert!(fs::read(scratch.path(name)).unwrap().starts_with(b"SQLite format 3"), "{name}");
    }
}

#[test]
fn another_shape_needs_another_index() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir one two; touch one/a two/b; tar -C one -cf a.tar .; tar -C two -cf b.tar .; cat b.tar >> a.tar");
    let archive = scratch.path("a.tar");
    let always = ["--index-minimum-file-count", "0"];
    assert_eq!(ls(&scratch, &archive, &always).ok().text(), "a\n");
    assert_eq!(ls(&scratch, &archive, &[always[0], always[1], "-i"]).ok().text(), "a\nb\n");
    assert_eq!(ls(&scratch, &archive, &[always[0], always[1]]).ok().text(), "a\n");
}

#[test]
fn an_archive_that_grew_is_indexed_from_where_it_ended() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    ls(&scratch, &archive, &[]).ok();
    scratch.shell("mkdir more; for i in 1 2 3; do echo $i > more/new$i; done; echo changed > more/file7; tar -C more -rf a.tar new1 new2 new3 file7");
    let logged = ls(&scratch, &archive, &["-d", "2"]).ok();
    assert!(logged.err.contains("grew"), "{}", logged.err);
    let appended = fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap();
    ls(&scratch, &archive, &["-c"]).ok();
    assert!(appended == fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap(), "equal to a fresh index");
    assert_eq!(run(&scratch, ["cat".as_ref(), archive.as_os_str(), "file7".as_ref()]).ok().text(), "changed\n");
}

#[test]
fn an_archive_that_grew_beside_a_broken_index_is_read_from_its_start() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    ls(&scratch, &archive, &[]).ok();
    scratch.shell(
        "python3 - <<'E'
import sqlite3
index = sqlite3.connect('a.tar.tarnfs.sqlite')
index.execute('UPDATE entries SET size = -1 WHERE rowid = 700')
index.commit()
E
echo new > new; tar -rf a.tar new",
    );
    let listed = ls(&scratch, &archive, &["-d", "2"]).ok();
    assert!(listed.err.contains("broken") && !listed.err.contains("grew"), "{}", listed.err);
    assert!(listed.text().ends_with("new\n"), "{}", listed.text());
    let made = fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap();
    ls(&scratch, &archive, &["-c"]).ok();
    assert!(made == fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap(), "equal to a fresh index");
}

/// > The same archive gives the same index, byte for byte.
#[test]
fn the_same_archive_gives_the_same_index() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1500);
    ls(&scratch, &archive, &[]).ok();
    let first = fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap();
    ls(&scratch, &archive, &["-c"]).ok();
    assert!(first == fs::read(scratch.path("a.tar.tarnfs.sqlite")).unwrap());
}

#[test]
fn an_index_that_somebody_else_could_have_written_is_not_believed() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    let index = scratch.path("a.tar.tarnfs.sqlite");
    ls(&scratch, &archive, &[]).ok();
    let good = fs::read(&index).unwrap();
    let check = |why: &str| {
        let ran = ls(&scratch, &archive, &["--no-recreate-index"]);
        assert_eq!(ran.code, 7, "{why} was believed");
        assert!(ran.err.contains("a.tar.tarnfs.sqlite"), "{why}: {}", ran.err);
    };
    fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).unwrap();
    check("a file that everybody may write");
    fs::remove_file(&index).unwrap();
    fs::write(scratch.path("elsewhere"), &good).unwrap();
    std::os::unix::fs::symlink(scratch.path("elsewhere"), &index).unwrap();
    check("a symbolic link");
    fs::remove_file(&index).unwrap();
    fs::hard_link(scratch.path("elsewhere"), &index).unwrap();
    check("a hard link");
    fs::remove_file(&index).unwrap();
    scratch.shell("mkfifo a.tar.tarnfs.sqlite");
    check("a fifo");
    fs::remove_file(&index).unwrap();
    fs::write(&index, &good).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&index, Some(65534), Some(65534)).unwrap();
        check("a file of somebody else");
        ls(&scratch, &archive, &["--no-recreate-index", "--trust-index"]).ok();
        std::os::unix::fs::chown(&index, Some(0), Some(0)).unwrap();
    }
    ls(&scratch, &archive, &["--no-recreate-index"]).ok();
}

#[test]
fn a_broken_index_is_made_again() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 1200);
    let index = scratch.path("a.tar.tarnfs.sqlite");
    let expected = ls(&scratch, &archive, &[]).ok().out;
    let good = fs::read(&index).unwrap();
    for bad in [&b""[..], b"not a database", &good[..good.len() / 2], &good[..100]] {
        fs::write(&index, bad).unwrap();
        assert!(ls(&scratch, &archive, &[]).ok().out == expected);
        assert!(fs::read(&index).unwrap() == good, "it was written again");
    }
}

#[test]
fn a_full_disk_costs_the_index_and_nothing_else() {
    if !is_root() {
        println!("left out: needs root");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir small; mount -t tmpfs -o size=3m none small");
    let result = std::panic::catch_unwind(|| {
        let archive = archive(&scratch, 3000);
        // One gigabyte of hole in front of it takes no space; the folder is full with the archive in it.
        scratch.shell("cp a.tar small/ 2>/dev/null || head -c 2900000 a.tar > small/a.tar; dd if=/dev/zero of=small/fill bs=4k status=none || true");
        let full = scratch.path("small/a.tar");
        let ran = ls(&scratch, &full, &["--index-folders", ""]);
        assert!(ran.code == 0 || ran.code == 5, "{}", ran.err);
        assert!(ran.text().lines().count() > 2000);
        let left: Vec<_> =
            fs::read_dir(scratch.path("small")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        drop(archive);
    });
    scratch.shell("umount small");
    result.unwrap();
}

#[test]
fn mounts_that_start_together_all_work() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch, 3000);
    let mounts: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..6).map(|_| scope.spawn(|| Mounted::new(&scratch, &archive, &[]))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let twin = scratch.path("tree");
    for mount in mounts {
        assert_twins(&mount.at, &twin, Compare { skip_folder_times: true, whole_seconds: true, ..Compare::default() });
        mount.unmount();
    }
    let left = fs::read_dir(scratch.path(""))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("tmp"))
        .count();
    assert_eq!(left, 0);
}

#[test]
fn an_archive_that_changes_under_the_mount_gives_errors_not_wrong_bytes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for i in $(seq 40); do head -c 100000 /dev/urandom > tree/f$i; done; tar -C tree -cf a.tar .",
    );
    for suffix in ["", ".gz", ".bz2", ".xz", ".zst", ".lz4"] {
        let tool = [
            ("", "cat"),
            (".gz", "gzip"),
            (".bz2", "bzip2"),
            (".xz", "xz -0"),
            (".zst", "zstd -q"),
            (".lz4", "lz4 -q"),
        ];
        let tool = tool.iter().find(|(end, _)| *end == suffix).unwrap().1;
        for action in ["overwrite", "truncate"] {
            scratch.shell(&format!("{tool} < a.tar > b.tar{suffix}"));
            let path = scratch.path(format!("b.tar{suffix}"));
            // What is kept decoded is as it was.
            let mount = Mounted::new(&scratch, &path, &["-c", "--cache-size", "0"]);
            let mut file = fs::File::options().write(true).open(&path).unwrap();
            let length = file.metadata().unwrap().len();
            if action == "truncate" {
                file.set_len(length / 2).unwrap();
            } else {
                file.seek(SeekFrom::Start(length / 2)).unwrap();
                file.write_all(&vec![b'x'; (length / 2) as usize]).unwrap();
            }
            let mut refused = 0;
            for i in 1..=40 {
                match fs::read(mount.path(format!("f{i}"))) {
                    Ok(bytes) => assert!(
                        bytes == fs::read(scratch.path(format!("tree/f{i}"))).unwrap(),
                        "{action} {suffix}: wrong bytes of f{i}"
                    ),
                    Err(error) => {
                        assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ESTALE)), "{error}");
                        refused += 1;
                    }
                }
            }
            assert!(refused >= 15, "{action} {suffix}: only {refused} of 40 were refused");
            mount.unmount();
        }
    }
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 5);
    // SQLite's header, page size 512, and no word on whose it is: as most programs leave it.
    let mut database = b"SQLite format 3\0\x02\x00\x01\x01".to_vec();
    database.resize(1024, 0);
    let mut of_another = database.clone();
    of_another[68..72].copy_from_slice(b"GPKG");
    for (name, bytes) in [("bookmarks.db", database), ("map.gpkg", of_another), ("text", b"text".to_vec())] {
        let place = scratch.path(name);
        fs::write(&place, &bytes).unwrap();
        for command in [&["index"][..], &["index", "--format=ratarmount"], &["index", "-c"], &["ls"]] {
            let options = ["--index-file", place.to_str().unwrap(), archive.to_str().unwrap()];
            let ran = run(&scratch, command.iter().chain(&options));
            assert_eq!(ran.code, 2, "{name} {command:?}: {}", ran.err);
            assert!(ran.err.contains(place.to_str().unwrap()), "{}", ran.err);
            assert_eq!(fs::read(&place).unwrap(), bytes, "{name} {command:?}");
        }
    }
}

#[test]
fn one_file_is_the_index_of_one_archive() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 5);
    scratch.shell("cp a.tar b.tar");
    let (other, place) = (scratch.path("b.tar"), scratch.path("x"));
    let both = [archive.to_str().unwrap(), other.to_str().unwrap()];
    for command in ["index", "check"] {
        let ran = run(&scratch, [&[command, "--index-file", place.to_str().unwrap()][..], &both].concat());
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("--index-file") && !place.exists(), "{}", ran.err);
        run(&scratch, [&[command, "--index-file", ":memory:"][..], &both].concat()).ok();
        run(&scratch, [command, "--index-file", place.to_str().unwrap(), both[0]]).ok();
        // A check needs none, and writes none.
        assert_eq!(fs::remove_file(&place).is_ok(), command == "index");
    }
}

/// The group of the process is not that of the archive.
#[test]
fn an_index_is_not_read_by_who_may_not_read_the_archive() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !is_root() {
        println!("not root: there are no other groups");
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch, 5);
    let (group, other) = (54_321, 65_534);
    for format in ["tarnfs", "ratarmount"] {
        let format = format!("--format={format}");
        // Root gives it to the group. Who is not in it cannot, and nobody but the owner gets it.
        for (user, own_group, expected) in
            [(0, 0, (group, 0o640)), (other, other, (other, 0o600)), (other, group, (group, 0o640))]
        {
            let place = scratch.folder(format!("{format}-{user}-{own_group}"));
            chown(&place, Some(user), Some(0)).unwrap();
            chown(&archive, Some(user), Some(group)).unwrap();
            fs::set_permissions(&archive, fs::Permissions::from_mode(0o640)).unwrap();
            scratch.shell("chmod 755 .");
            let index = place.join("index");
            let program = scratch.program("tarnfs");
            let done = std::process::Command::new("setpriv")
                .args([&format!("--reuid={user}"), &format!("--regid={own_group}"), "--clear-groups"])
                .args(["sh", "-c", "umask 022; exec \"$@\"", "sh"])
                .arg(&program)
                .args(["index", &format, "--index-file"])
                .args([&index, &archive])
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let stat = fs::metadata(&index).unwrap();
            assert_eq!((stat.gid(), stat.mode() & 0o777), expected, "{format} by {user}:{own_group}");
        }
    }
}
