//! A mount shows what `tar -x` would have made: every name, attribute and byte.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use crate::support::{
    self, Compare, Mounted, Scratch, assert_twins, can_mount, have, is_gone, make_tree, run, tarnfs, wait_until,
};

/// How each compression is undone by the tool that made it.
const COMPRESSIONS: &[(&str, &str)] = &[
    ("", "cat"),
    (".gz", "gzip -6"),
    (".bz2", "bzip2 -9"),
    (".xz", "xz -3 --block-size=1MiB"),
    (".zst", "zstd -3"),
    (".lz4", "lz4 -1"),
    (".lzma", "xz -1 --format=lzma"),
    (".lz", "lzip -1"),
    (".br", "brotli -q 1"),
    (".lzo", "lzop -1"),
    (".lrz", "lrz -1"),
    (".Z", "compress"),
];

/// Extracts `archive` beside the mount, as root with everything kept.
fn extract(scratch: &Scratch, archive: &str) -> std::path::PathBuf {
    let twin = format!("twin-{archive}");
    scratch.shell(&format!(
        "mkdir {twin}; tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf {archive} -C {twin}"
    ));
    scratch.path(twin)
}

/// > A file read through the mount has the bytes that `tar -x` would have written.
/// > Owners, modes, times to the nanosecond, extended attributes and access control lists are those that `tar --xattrs
/// > --acls -x` would have set.
#[test]
fn every_dialect_reads_back_as_tar_extracts_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    // v7 has no room for long names, devices and negative times: what it can store.
    scratch.shell("mkdir v7; cp -a tree/folder tree/short tree/block tree/link v7/");
    for (name, command) in [
        ("v7.tar", "tar --format=v7 --numeric-owner -C v7 -cf v7.tar ."),
        ("oldgnu.tar", "tar --format=oldgnu --numeric-owner -C tree -cf oldgnu.tar ."),
        ("gnu.tar", "tar --format=gnu --numeric-owner -C tree -cf gnu.tar ."),
        ("posix.tar", "tar --format=posix --numeric-owner --xattrs --acls -C tree -cf posix.tar ."),
        ("star-names.tar", "tar --format=posix -C tree -cf star-names.tar folder file empty"),
        (
            "python-gnu.tar",
            "python3 -c \"import tarfile; t = tarfile.open('python-gnu.tar','w',format=tarfile.GNU_FORMAT); t.add('tree'); t.close()\"",
        ),
        (
            "python-pax.tar",
            "python3 -c \"import tarfile; t = tarfile.open('python-pax.tar','w',format=tarfile.PAX_FORMAT); t.add('tree'); t.close()\"",
        ),
        (
            "python-ustar.tar",
            "python3 -c \"import tarfile; t = tarfile.open('python-ustar.tar','w',format=tarfile.USTAR_FORMAT); t.add('v7'); t.close()\"",
        ),
        ("bsd-pax.tar", "! command -v bsdtar || bsdtar --format=pax --numeric-owner -C tree -cf bsd-pax.tar ."),
        ("bsd-gnu.tar", "! command -v bsdtar || bsdtar --format=gnutar --numeric-owner -C tree -cf bsd-gnu.tar ."),
        ("bsd-ustar.tar", "! command -v bsdtar || bsdtar --format=ustar --numeric-owner -C v7 -cf bsd-ustar.tar ."),
    ] {
        scratch.shell(command);
        if !scratch.path(name).exists() {
            println!("left out: {name}, bsdtar is not installed");
            continue;
        }
        println!("{name}");
        let twin = extract(&scratch, name);
        for _ in ["first mount", "next mount"] {
            let mount = Mounted::new(&scratch, scratch.path(name), &[]);
            // GNU tar leaves folders in which it makes hard links late with the time of the extraction.
            let skip_folder_times = name.starts_with("bsd");
            assert_twins(&mount.at, &twin, Compare { skip_folder_times, ..Compare::default() });
            mount.unmount();
        }
    }
}

/// > The first mount and the next one show the same tree and the same bytes, whatever the compression.
#[test]
fn every_compression_gives_the_same_tree_on_the_first_and_the_next_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("seq 1 1500000 > tree/folder/many-blocks");
    scratch.shell("tar --format=posix --numeric-owner -C tree -cf tree.tar .");
    let twin = extract(&scratch, "tree.tar");
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        println!("{tool}");
        if !suffix.is_empty() {
            scratch.shell(&format!("{tool} -c < tree.tar > tree.tar{suffix}"));
        }
        let archive = scratch.path(format!("tree.tar{suffix}"));
        let index = scratch.path(format!("tree.tar{suffix}.tarnfs.sqlite"));
        run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
        let written = fs::metadata(&index).unwrap().modified().unwrap();
        let mount = Mounted::new(&scratch, &archive, &["-c", "--index-minimum-file-count=0"]);
        assert_ne!(fs::metadata(&index).unwrap().modified().unwrap(), written, "-c makes the index anew");
        assert_twins(&mount.at, &twin, Compare::default());
        mount.unmount();
        let written = fs::metadata(&index).unwrap().modified().unwrap();
        let mount = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        assert_twins(&mount.at, &twin, Compare::default());
        mount.unmount();
        assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), written, "a good index is not written again");
    }
}

#[test]
fn reads_at_any_offset_are_slices_of_the_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 2000000 > tree/numbers; tar -C tree -cf a.tar .");
    let whole = fs::read(scratch.path("tree/numbers")).unwrap();
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        scratch.shell(&format!("{tool} < a.tar > b.tar{suffix}"));
        let mount = Mounted::new(&scratch, scratch.path(format!("b.tar{suffix}")), &["-gs", "1", "-c"]);
        let file = fs::File::open(mount.path("numbers")).unwrap();
        let mut state = 1_u64;
        for _ in 0..200 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (state >> 33) as usize % whole.len();
            let length = ((state >> 20) as usize % 300_000).min(whole.len() - offset);
            let mut buffer = vec![0; length];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut buffer, offset as u64).unwrap();
            assert!(buffer == whole[offset..offset + length], "{tool}: {length} bytes at {offset}");
        }
        drop(file);
        mount.unmount();
    }
}

#[test]
fn a_compressed_file_that_is_no_archive_is_one_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("seq 1 500000 > notes.txt; touch -d '2020-02-02 UTC' notes.txt; chmod 640 notes.txt");
    for (suffix, tool) in COMPRESSIONS.iter().skip(1).filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        scratch.shell(&format!("{tool} -c < notes.txt > notes.txt{suffix}"));
        let archive = scratch.path(format!("notes.txt{suffix}"));
        let mount = Mounted::new(&scratch, &archive, &[]);
        let names: Vec<_> = fs::read_dir(&mount.at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["notes.txt"], "{tool}");
        assert!(fs::read(mount.path("notes.txt")).unwrap() == fs::read(scratch.path("notes.txt")).unwrap());
        mount.unmount();
        let cat = run(&scratch, ["cat".as_ref(), archive.as_os_str()]).ok();
        assert!(cat.out == fs::read(scratch.path("notes.txt")).unwrap(), "cat undoes the compression");
    }
}

#[test]
fn extended_attributes_and_access_control_lists_read_back() {
    if !can_mount() || !have("setfattr") || !have("setfacl") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/folder; echo a > tree/a; echo b > tree/b; ln tree/a tree/hard
         setfattr -n user.comment -v 'some text' tree/a; setfattr -n user.binary -v 0x000102ff tree/a; setfattr -n user.empty tree/b
         setfattr -n trusted.secret -v x tree/b; setfattr -n user.on-folder -v y tree/folder
         setfacl -m u:1234:r,g:2345:rwx tree/b; setfacl -d -m u:99:rw tree/folder
         ! command -v setcap || setcap cap_net_raw+ep tree/a
         tar --format=posix --xattrs --xattrs-include='*' --acls -C tree -cf a.tar .",
    );
    let twin = extract(&scratch, "a.tar");
    let mount = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    assert_twins(&mount.at, &twin, Compare::default());
    let acl = scratch.shell(&format!("getfacl -n --omit-header {}", mount.path("b").display()));
    assert!(acl.contains("user:1234:r--") && acl.contains("group:2345:rwx"), "{acl}");
    // The umask takes from those, too.
    let masked = Mounted::new(&scratch, scratch.path("a.tar"), &["-o", "umask=027"]);
    let acl = scratch.shell(&format!("getfacl -n --omit-header {}", masked.path("b").display()));
    masked.unmount();
    assert!(acl.contains("user:1234:r--") && acl.contains("group:2345:r-x") && acl.contains("other::---"), "{acl}");
    mount.unmount();
}

/// > A sparse file keeps its holes, and reading them costs nothing.
#[test]
fn sparse_files_keep_their_holes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // Offsets of whole megabytes: no file system rounds them.
    scratch.shell(
        "mkdir tree
         truncate -s 9G tree/huge; printf end | dd of=tree/huge bs=1M seek=9000 conv=notrunc status=none
         truncate -s 100M tree/hole; truncate -s 0 tree/empty
         for i in $(seq 0 30); do head -c 1M /dev/urandom | dd of=tree/many bs=1M seek=$((i * 3)) conv=notrunc status=none; done
         truncate -s 200M tree/many; touch -d @1000000000 tree/*",
    );
    for version in [
        "--format=gnu",
        "--format=posix --sparse-version=0.0",
        "--format=posix --sparse-version=0.1",
        "--format=posix --sparse-version=1.0",
    ] {
        scratch
            .shell(&format!("rm -rf twin-s.tar s.tar; tar {version} --sparse -C tree -cf s.tar huge hole empty many"));
        let twin = extract(&scratch, "s.tar");
        let mount = Mounted::new(&scratch, scratch.path("s.tar"), &["-c"]);
        // The nine gigabytes are compared by their data only.
        for name in ["huge", "hole", "empty", "many"] {
            let (here, there) = (mount.path(name), twin.join(name));
            let (a, b) = (fs::metadata(&here).unwrap(), fs::metadata(&there).unwrap());
            assert_eq!(a.len(), b.len(), "{version} {name}");
            let extents = support::data_extents(&here);
            if name == "many" {
                assert_eq!(extents, support::data_extents(&there), "{version}");
                assert_eq!(a.blocks(), 31 * 2048, "{version}: st_blocks counts data only");
            }
            let (left, right) = (fs::File::open(&here).unwrap(), fs::File::open(&there).unwrap());
            for (start, end) in support::data_extents(&there).into_iter().chain(extents) {
                let length = (end - start).min(8 << 20) as usize;
                let (mut ours, mut theirs) = (vec![0; length], vec![1; length]);
                left.read_exact_at(&mut ours, start).unwrap();
                right.read_exact_at(&mut theirs, start).unwrap();
                assert!(ours == theirs, "{version} {name} at {start}");
            }
        }
        mount.unmount();
    }
}

/// > Hard links share a node and count each other, in whichever order the archive stores them.
#[test]
fn hard_links_share_a_node_in_either_order() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile, io
def add(tar, name, **kw):
    data = kw.pop('data', b'')
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in kw.items(): setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))
link = dict(type=tarfile.LNKTYPE)
with tarfile.open('links.tar', 'w') as tar:
    add(tar, 'early', linkname='target', **link)
    add(tar, 'target', data=b'shared', mode=0o640)
    add(tar, 'late', linkname='./target', **link)
    add(tar, 'chain', linkname='late', **link)
    add(tar, 'in/folder', linkname='target', **link)
    add(tar, 'self', linkname='self', **link)
    add(tar, 'ring1', linkname='ring2', **link)
    add(tar, 'ring2', linkname='ring1', **link)
    add(tar, 'missing', linkname='not/there', **link)
    add(tar, 'out', linkname='../../../etc/passwd', **link)
    add(tar, 'twice', data=b'old')
    add(tar, 'keeps-old', linkname='twice', **link)
    add(tar, 'twice', data=b'new!')
E",
    );
    let mount = Mounted::any(&scratch, scratch.path("links.tar"), &[]);
    let stat = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap();
    for name in ["early", "late", "chain", "in/folder"] {
        assert_eq!((stat(name).ino(), stat(name).nlink()), (stat("target").ino(), 5), "{name}");
        assert_eq!(fs::read(mount.path(name)).unwrap(), b"shared");
    }
    for name in ["self", "ring1", "ring2", "missing", "out"] {
        assert!(fs::symlink_metadata(mount.path(name)).is_err(), "{name} leads nowhere");
    }
    assert!(mount.ran.err.contains("missing") && mount.ran.err.contains("ring1"), "{}", mount.ran.err);
    assert_eq!(fs::read(mount.path("keeps-old")).unwrap(), b"old");
    assert_eq!(fs::read(mount.path("twice")).unwrap(), b"new!");
    assert_eq!(stat("twice").nlink(), 1);
}

#[test]
fn the_mount_table_tells_what_it_is() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar -C tree -cf 'a b.tar' .");
    let mount = Mounted::new(&scratch, scratch.path("a b.tar"), &[]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mount.at.to_str().unwrap())).unwrap();
    let fields: Vec<_> = line.split(' ').collect();
    assert_eq!(fields[0], scratch.path("a b.tar").to_str().unwrap().replace(' ', "\\040"));
    assert_eq!(fields[2], "fuse.tarnfs");
    assert!(fields[3].starts_with("ro,nosuid,nodev"), "{line}");
    for (what, result) in [
        ("create", fs::write(mount.path("new"), "x")),
        ("write", fs::write(mount.path("file"), "x")),
        ("mkdir", fs::create_dir(mount.path("d"))),
        ("remove", fs::remove_file(mount.path("file"))),
        ("rename", fs::rename(mount.path("file"), mount.path("g"))),
        ("link", fs::hard_link(mount.path("file"), mount.path("g"))),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS), "{what}");
    }
    let space = rustix::fs::statvfs(&mount.at).unwrap();
    let names = support::survey(&mount.at, Compare::default());
    let bytes: u64 = names.values().filter(|seen| seen.kind == "file").map(|seen| seen.size).sum();
    assert!(space.f_blocks * space.f_frsize >= bytes / 2 && space.f_blocks * space.f_frsize < 2 * bytes + (1 << 20));
    assert_eq!((space.f_bfree, space.f_bavail, space.f_ffree, space.f_namemax), (0, 0, 0, 255));
    mount.unmount();
}

#[test]
fn without_a_mount_point_one_is_made_and_removed_again() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo hello > tree/file; tar -C tree -czf backup.tar.gz .");
    let folder = scratch.path("backup");
    assert_eq!(tarnfs(&scratch).arg(scratch.path("backup.tar.gz")).status().unwrap().code(), Some(0));
    assert_eq!(fs::read(folder.join("file")).unwrap(), b"hello\n");
    run(&scratch, ["unmount".as_ref(), folder.as_os_str()]).ok();
    wait_until("the folder is gone", || is_gone(&folder));
    // A folder that was there stays.
    fs::create_dir(&folder).unwrap();
    let mut daemon = support::foreground(&scratch, &scratch.path("backup.tar.gz"), &folder);
    let watcher = support::watcher(&daemon);
    run(&scratch, ["-u".as_ref(), folder.as_os_str()]).ok();
    assert!(daemon.wait().unwrap().success());
    wait_until("its watcher has ended", || support::has_ended(watcher));
    assert!(folder.exists());
}

/// > A mount point that tarnfs names itself is an empty folder that belongs to the caller or root, and no link is
/// > followed to it.
#[test]
fn a_mount_point_that_nobody_named_is_no_link_and_nobody_elses() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree other theirs full; echo hello > tree/file; echo x > full/x; chown 65534 theirs
         for name in link nowhere file theirs full empty; do tar -C tree -czf $name.tar.gz .; done
         ln -s other link; ln -s missing nowhere; echo x > file; mkdir empty",
    );
    let before = scratch.shell("find . -printf '%p %y %m %U\\n' | sort");
    for (name, says) in [
        ("link", "symbolic link"),
        ("nowhere", "symbolic link"),
        ("file", "not a folder"),
        ("theirs", "another user (number 65534)"),
        ("full", "not empty"),
    ] {
        let ran = run(&scratch, [scratch.path(format!("{name}.tar.gz"))]);
        assert!(ran.code == 6 && ran.err.contains(says), "{name}: {}", ran.err);
        assert!(!support::is_mounted(&scratch.path(name)) && !support::is_mounted(&scratch.path("other")), "{name}");
    }
    assert_eq!(scratch.shell("find . -printf '%p %y %m %U\\n' | sort"), before, "nothing was read or made");
    // One that is fit, and a link that somebody has named.
    for (archive, named, at) in [("empty", None, "empty"), ("link", Some("link"), "other")] {
        let archive = scratch.path(format!("{archive}.tar.gz"));
        run(&scratch, std::iter::once(archive).chain(named.map(|named| scratch.path(named)))).ok();
        assert_eq!(fs::read(scratch.path(at).join("file")).unwrap(), b"hello\n");
        run(&scratch, ["-u".as_ref(), scratch.path(at).as_os_str()]).ok();
        assert!(!support::is_mounted(&scratch.path(at)));
    }
}

#[test]
fn a_line_in_fstab_works() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree mnt; echo hello > tree/file; tar -C tree -cf a.tar .");
    // What mount(8) calls for `ARCHIVE MOUNTPOINT fuse.tarnfs ro,nofail,x-systemd.automount 0 0`.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarnfs"), scratch.path("mount.fuse.tarnfs")).unwrap();
    let status = Command::new(scratch.path("mount.fuse.tarnfs"))
        .args([scratch.path("a.tar"), scratch.path("mnt")])
        .args([
            "-n",
            "-o",
            "rw,nofail,noauto,comment=the archive,x-systemd.automount,noexec,allow_other",
            "-t",
            "fuse.tarnfs",
        ])
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fs::read(scratch.path("mnt/file")).unwrap(), b"hello\n");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(scratch.path("mnt").to_str().unwrap())).unwrap();
    for option in ["ro", "noexec", "default_permissions", "allow_other"] {
        assert!(line.split([' ', ',']).any(|word| word == option), "{option}: {line}");
    }
    run(&scratch, ["-u".as_ref(), scratch.path("mnt").as_os_str()]).ok();
}

#[test]
fn a_mount_helper_ends_as_mount_expects() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree mnt; seq 1 300000 > tree/file; tar -C tree -cf a.tar .; head -c 400000 a.tar > cut.tar; echo x > text");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarnfs"), scratch.path("mount.fuse.tarnfs")).unwrap();
    let code = |archive: &str, options: &str| {
        let mut command = Command::new(scratch.path("mount.fuse.tarnfs"));
        command.args([archive, "mnt", "-o", options]).current_dir(scratch.path(""));
        command
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap()
            .code()
    };
    for (archive, options) in [("missing.tar", "ro"), ("text", "ro"), ("a.tar", "colour=blue")] {
        assert_eq!(code(archive, options), Some(32), "{archive} {options}");
        assert!(!support::is_mounted(&scratch.path("mnt")));
    }
    assert_eq!(code("cut.tar", "ro"), Some(0), "a damaged archive is mounted");
    assert!(support::is_mounted(&scratch.path("mnt")));
    run(&scratch, ["-u".as_ref(), scratch.path("mnt").as_os_str()]).ok();
}

#[test]
fn what_is_mounted_is_listed_and_not_mounted_over() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo hello > tree/file; tar -C tree -cf a.tar .; cp a.tar b.tar");
    let (archive, at) = (scratch.path("a.tar"), scratch.path("a"));
    run(&scratch, [&archive]).ok();
    let again = run(&scratch, [&archive]);
    let expected = format!(
        "tarnfs: {} is already mounted at {1}; run `tarnfs -u {1}` first, or ",
        archive.display(),
        at.display()
    );
    assert_eq!((again.code, again.err), (6, format!("{expected}name another mount point\n")));
    let again = run(&scratch, [&archive, &at]);
    assert_eq!((again.code, again.err), (6, format!("{expected}mount over it with -o nonempty\n")));
    let listed = run(&scratch, ["mounts"]).ok().text();
    let line = format!("{} on {}", archive.display(), at.display());
    assert!(listed.lines().any(|listed| listed.split(" since ").next() == Some(line.as_str())), "{listed}");
    // On purpose, and away again, by the names of the archives.
    run(&scratch, ["-o".as_ref(), "nonempty".as_ref(), scratch.path("b.tar").as_os_str(), at.as_os_str()]).ok();
    run(&scratch, ["-u".as_ref(), scratch.path("b.tar").as_os_str()]).ok();
    assert!(support::is_mounted(&at), "the first one is still there");
    run(&scratch, ["umount".as_ref(), archive.as_os_str()]).ok();
    assert!(!support::is_mounted(&at));
}

/// What was mounted is known by its name: a folder, whose mount point has another one, and an archive that is gone.
#[test]
fn what_is_mounted_is_unmounted_by_its_name() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo hello > tree/file; tar -C tree -cf a.tar .");
    let ran = |words: &[&str]| {
        let mut command = tarnfs(&scratch);
        let ran = support::Ran::from(command.args(words).current_dir(scratch.path("")).output().unwrap());
        (ran.code, ran.err)
    };
    let nothing = (0, String::new());
    assert_eq!(ran(&["tree"]), nothing);
    assert!(scratch.path("tree.mounted/file").exists());
    assert_eq!(ran(&["-u", "tree/"]), nothing);
    support::wait_until("its folder is gone", || !scratch.path("tree.mounted").exists());
    assert_eq!(ran(&["a.tar"]), nothing);
    fs::remove_file(scratch.path("a.tar")).unwrap();
    assert_eq!(ran(&["-u", "a.tar"]), nothing);
    support::wait_until("its folder is gone", || !scratch.path("a").exists());
    // A folder that is a mount point itself is meant as that.
    assert_eq!(ran(&["tree", "tree"]), nothing);
    assert_eq!(ran(&["-u", "tree"]), nothing);
    assert_eq!(ran(&["-u", "tree"]), (6, "tarnfs: tree: nothing is mounted here\n".to_owned()));
}

/// Of several who mount at one place at the same time one does.
#[test]
fn one_of_several_mounts() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree at; echo hello > tree/file; tar -C tree -cf a.tar .");
    let (archive, at) = (scratch.path("a.tar"), scratch.path("at"));
    let started: Vec<_> = (0..6)
        .map(|_| tarnfs(&scratch).args([&archive, &at]).stderr(std::process::Stdio::null()).spawn().unwrap())
        .collect();
    let mut codes: Vec<_> = started.into_iter().map(|mut child| child.wait().unwrap().code()).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(6), Some(6), Some(6), Some(6), Some(6)]);
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert!(!support::is_mounted(&at));
}

#[test]
fn an_index_that_was_asked_for_is_there_or_it_is_an_error() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree home; echo hello > tree/file; tar -C tree -czf a.tar.gz .");
    let archive = scratch.path("a.tar.gz");
    let run = |words: &[&str]| {
        let mut command = tarnfs(&scratch);
        command.args(words).arg(&archive).env("HOME", scratch.path("home")).current_dir(scratch.path(""));
        support::Ran::from(command.output().unwrap())
    };
    run(&["ls", "--index-file", "~/mine.sqlite"]).ok();
    assert!(scratch.path("home/mine.sqlite").exists(), "~ is the home folder, and a small archive has its index, too");
    for word in ["--no-mount", "index", "ls"] {
        let ran = run(&[word, "--index-file", "tree/file/x.sqlite"]);
        assert_eq!(ran.code, 7, "{word}: {}", ran.err);
        assert!(ran.err.contains("could not be written to") && ran.err.contains("tree/file/x.sqlite"), "{}", ran.err);
    }
    run(&["--no-mount"]).ok();
    assert!(scratch.path("a.tar.gz.tarnfs.sqlite").exists(), "--no-mount makes an index of a small archive, too");
}
