//! Images of ISO 9660, mounted through the kernel, beside the tree that was written and what others make of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{
    Compare, Mounted, Ran, Scratch, Seen, assert_serves_what_is_whole, can_mount, have, run, survey, tarnfs,
};

/// How images are written, in each case with all that Rock Ridge knows.
const WAYS: &[(&str, &str)] = &[
    ("genisoimage", "genisoimage -quiet -R -cache-inodes -o"),
    ("joliet-too", "genisoimage -quiet -R -J -joliet-long -o"),
    ("level-4", "genisoimage -quiet -R -iso-level 4 -o"),
    ("xorriso", "xorriso -as mkisofs -quiet -o"),
    ("hybrid", "xorriso -as mkisofs -quiet -J -iso-level 3 -partition_offset 16 -o"),
    ("hfs", "xorriso -as mkisofs -quiet -hfsplus -o"),
];

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/void tree/many tree/1/2/3/4/5/6/7/8/9/10/11/12; cd tree; seq 1 > one; : > empty
         seq 300000 > numbers; head -c 1048576 /dev/urandom > noise; head -c 2048 /dev/urandom > sector; seq 7 > folder/deep/seven
         echo below > 1/2/3/4/5/6/7/8/9/10/11/12/deepest; echo above > 1/2/3/4/5/6/7/8/eight
         ln -s folder/deep/seven link; ln -s /usr/../lib/./x absolute; ln -s ../../$(printf 'y%.0s' $(seq 60))/$(printf 'x%.0s' $(seq 80)) long
         chmod 4755 one; chmod 600 noise; chmod 1777 void; mkfifo fifo; mknod character c 300 70000; mknod block-device b 7 3
         chown 12345:54321 sector; printf text > 'a name with spaces and ü'; touch -d '2021-03-04 05:06:08' numbers
         printf long > $(printf 'n%.0s' $(seq 200)); touch -d '2023-01-01' folder; touch -h -d '1999-01-01' link
         for i in $(seq 3000); do echo $i > many/file-$i.text; done",
    );
}

fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    survey(root, Compare { whole_seconds: true, ..Compare::default() })
}

/// What was written is there, and nothing else but `others`.
#[track_caller]
fn assert_same(found: &BTreeMap<PathBuf, Seen>, tree: &BTreeMap<PathBuf, Seen>, others: &[&str], what: &str) {
    for (path, seen) in tree {
        assert_eq!(found.get(path), Some(seen), "{what}: {}", path.display());
    }
    let more: Vec<_> = found.keys().filter(|path| !tree.contains_key(*path)).collect();
    assert!(more.iter().all(|path| others.iter().any(|other| path.starts_with(other))), "{what}: {more:?}");
}

/// > Of an ISO image, whatever wrote it, a mount shows the tree that was written, with the attributes and names that it
/// > keeps of it.
#[test]
fn whatever_wrote_it_the_tree_is_the_same() {
    if !can_mount() || !have("genisoimage") || !have("xorriso") {
        return println!("left out: no mounts here, or nothing that writes images");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let tree = seen(&scratch.path("tree"));
    assert!(tree.len() > 3000);
    for (name, command) in WAYS {
        scratch.shell(&format!("{command} {name}.iso tree 2>/dev/null"));
        let mounted = Mounted::new(&scratch, scratch.path(format!("{name}.iso")), &[]);
        // Where genisoimage puts what lies too deep.
        assert_same(&seen(&mounted.path("")), &tree, &["rr_moved"], name);
        mounted.unmount();
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// The kernel's own mount shows the same, where it can be had.
#[test]
fn the_kernel_shows_the_same() {
    if !can_mount() || !have("genisoimage") {
        return println!("left out: no mounts here, or no genisoimage");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("genisoimage -quiet -R -J -o a.iso tree 2>/dev/null");
    let at = scratch.folder("kernel");
    let (image, place) = (scratch.path("a.iso"), at.display());
    let mount = format!("mount -t iso9660 -o loop,ro {} {place} 2>/dev/null && echo yes || true", image.display());
    if scratch.shell(&mount).trim() != "yes" {
        return println!("left out: the kernel mounts no such images here");
    }
    let theirs = seen(&at);
    scratch.shell(&format!("umount {place}"));
    let mounted = Mounted::new(&scratch, &image, &[]);
    assert_same(&seen(&mounted.path("")), &theirs, &[], "kernel");
    mounted.unmount();
}

/// Without Rock Ridge there are the names of Joliet, of level 4, or short ones.
#[test]
fn names_are_the_best_that_there_are() {
    if !have("genisoimage") || !have("7z") {
        return println!("left out: no genisoimage, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p 'tree/A folder'; seq 9000 > 'tree/A folder/Grün und länger als acht.Text'; echo x > tree/readme.txt; : > tree/none");
    let listed = |image: &str| {
        let listed = run(&scratch, ["find", scratch.path(image).to_str().unwrap(), "-type", "f"]).ok();
        let mut names: Vec<_> = listed.text().lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
        names.sort();
        names
    };
    let all = ["A folder/Grün und länger als acht.Text", "none", "readme.txt"];
    scratch.shell("genisoimage -quiet -J -joliet-long -input-charset utf-8 -o j.iso tree 2>/dev/null");
    assert_eq!(listed("j.iso"), all);
    scratch.shell("cp -r tree four; cd four; mv 'A folder'/* 'A folder/Green and longer than eight.Text'; cd ..; genisoimage -quiet -iso-level 4 -o four.iso four 2>/dev/null");
    assert_eq!(listed("four.iso"), ["A folder/Green and longer than eight.Text", "none", "readme.txt"]);
    scratch.shell("genisoimage -quiet -iso-level 1 -o short.iso tree 2>/dev/null; 7z l -slt short.iso > listed");
    let theirs = fs::read_to_string(scratch.path("listed")).unwrap();
    let theirs = theirs.lines().filter_map(|line| line.strip_prefix("Path = ")).collect::<Vec<_>>();
    for name in listed("short.iso") {
        assert!(theirs.contains(&name.as_str()), "{name} is not in {theirs:?}");
        assert_eq!(name, name.to_uppercase());
    }
    let path = scratch.path("j.iso");
    let read = run(&scratch, ["cat", path.to_str().unwrap(), all[0]]).ok();
    assert!(read.out == fs::read(scratch.path("tree").join(all[0])).unwrap());
}

/// Files that are compressed transparently are read at any offset.
#[test]
fn zisofs_is_decoded() {
    if !can_mount() || !have("xorriso") {
        return println!("left out: no mounts here, or no xorriso");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 300000 > tree/numbers; head -c 500000 /dev/urandom > tree/noise; : > tree/empty
         (seq 9000; head -c 900000 /dev/zero; seq 9000) > tree/holes",
    );
    let tree = seen(&scratch.path("tree"));
    for version in ["version_2=off", "version_2=on", "version_2=on:block_size_v2=1m"] {
        let name = format!("{}.iso", version.replace([':', '='], "-"));
        scratch.shell(&format!(
            "xorriso -outdev {name} -zisofs {version} -map tree / -set_filter_r --zisofs / -- -commit 2>/dev/null
             test $(stat -c %s {name}) -lt 2000000"
        ));
        let mounted = Mounted::new(&scratch, scratch.path(&name), &[]);
        assert_same(&seen(&mounted.path("")), &tree, &[], version);
        let file = fs::File::open(mounted.path("numbers")).unwrap();
        let all = fs::read(scratch.path("tree/numbers")).unwrap();
        for offset in [0, 32_767, 1_000_001, all.len() - 5] {
            let mut bytes = vec![0; 3000.min(all.len() - offset)];
            file.read_exact_at(&mut bytes, offset as u64).unwrap();
            assert!(bytes == all[offset..offset + bytes.len()], "{version}, at {offset}");
        }
        drop(file);
        mounted.unmount();
    }
}

/// What was written later is what shows, and what was there before is still there.
#[test]
fn the_last_session_shows() {
    if !have("xorriso") || !have("genisoimage") {
        return println!("left out: no xorriso, or no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two; echo first > one/a; echo kept > one/b; echo second > two/a; echo new > two/c
         xorriso -outdev x.iso -map one / -commit 2>/dev/null; xorriso -dev x.iso -map two / -commit 2>/dev/null
         genisoimage -quiet -R -o g.iso one 2>/dev/null; sectors=$(( ($(stat -c %s g.iso) / 2048 + 31) / 32 * 32 ))
         genisoimage -quiet -R -C 0,$sectors -M g.iso -o more.iso two 2>/dev/null
         truncate -s $((sectors * 2048)) g.iso; cat more.iso >> g.iso",
    );
    for image in ["x.iso", "g.iso"] {
        let path = scratch.path(image);
        for (name, content) in [("a", "second\n"), ("b", "kept\n"), ("c", "new\n")] {
            let read = run(&scratch, ["cat", path.to_str().unwrap(), name]).ok();
            assert_eq!(read.text(), content, "{image}: {name}");
        }
    }
}

#[test]
fn what_a_computer_boots_from_is_there() {
    if !have("xorriso") {
        return println!("left out: no xorriso");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; head -c 40000 /dev/urandom > tree/loader; head -c 1474560 /dev/urandom > tree/floppy; echo x > tree/x
         xorriso -as mkisofs -quiet -R -b loader -no-emul-boot -boot-load-size 4 -c catalogue -eltorito-alt-boot -b floppy \
            -o a.iso tree 2>/dev/null",
    );
    let path = scratch.path("a.iso");
    for (name, file) in [("1-Boot-NoEmul.img", "loader"), ("2-Boot-1.44M.img", "floppy")] {
        let read = run(&scratch, ["cat", path.to_str().unwrap(), &format!("[[]BOOT]/{name}")]).ok();
        assert!(read.out == fs::read(scratch.path("tree").join(file)).unwrap(), "{name}");
    }
}

/// Hard links are those of the tree that was written.
#[test]
fn files_with_several_names_are_hard_links() {
    if !can_mount() || !have("xorriso") {
        return println!("left out: no mounts here, or no xorriso");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/f; seq 1000 > tree/a; ln tree/a tree/f/b; cp tree/a tree/c; : > tree/e; : > tree/f/g
         xorriso -outdev x.iso -hardlinks on -map tree / -commit 2>/dev/null; genisoimage -quiet -R -cache-inodes -o g.iso tree 2>/dev/null",
    );
    for image in ["x.iso", "g.iso"] {
        let mounted = Mounted::new(&scratch, scratch.path(image), &[]);
        let inode = |name: &str| fs::metadata(mounted.path(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("f/b"), "{image}");
        assert_eq!(fs::metadata(mounted.path("a")).unwrap().nlink(), 2, "{image}");
        assert_ne!(inode("a"), inode("c"), "{image}");
        assert_ne!(inode("e"), inode("f/g"), "{image}");
        mounted.unmount();
    }
}

#[test]
fn an_image_lies_in_other_archives_and_others_in_it() {
    if !have("genisoimage") || !have("zip") {
        return println!("left out: no genisoimage, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p in tree; seq 70000 > in/numbers; tar -C in -czf tree/in.tar.gz numbers; seq 9 > tree/nine
         genisoimage -quiet -R -o a.iso tree 2>/dev/null; gzip -k a.iso; xz -k a.iso; zstd -q -k a.iso; tar -cf t.tar a.iso a.iso.gz
         gzip -k t.tar; zip -q z.zip a.iso",
    );
    let numbers = fs::read(scratch.path("in/numbers")).unwrap();
    for (archive, before) in [
        ("a.iso", ""),
        ("a.iso.gz", ""),
        ("a.iso.xz", ""),
        ("a.iso.zst", ""),
        ("t.tar", "a.iso/"),
        ("t.tar", "a.iso.gz/"),
        ("t.tar.gz", "a.iso/"),
        ("t.tar.gz", "a.iso.gz/"),
        ("z.zip", "a.iso/"),
    ] {
        let path = scratch.path(archive);
        let nine = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let read = |name: &str| run(&scratch, ["cat", "-r", path.to_str().unwrap(), &format!("{before}{name}")]).ok();
        assert_eq!(read("nine").text(), nine, "{archive}");
        assert!(read("in.tar.gz/numbers").out == numbers, "{archive}");
        if can_mount() {
            let lazy = Mounted::new(&scratch, &path, &["-r", "--lazy"]);
            assert_eq!(fs::read_to_string(lazy.path(format!("{before}nine"))).unwrap(), nine, "{archive}");
            assert!(fs::read(lazy.path(format!("{before}in.tar.gz/numbers"))).unwrap() == numbers, "{archive}");
            lazy.unmount();
        }
    }
}

/// An image that was cut anywhere shows what is whole, and says of the rest that it is not there.
#[test]
fn a_cut_image_serves_what_is_whole() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/a; seq 200000 > tree/b; echo last > tree/z
         genisoimage -quiet -R -o a.iso tree 2>/dev/null",
    );
    assert_serves_what_is_whole(&scratch, "a.iso", ("a", "tree/a"));
}

/// An image that has more than is shown of it stays when it is converted.
#[test]
fn what_has_more_than_is_shown_is_not_replaced() {
    if !have("genisoimage") || !have("xorriso") || !have("setfacl") {
        return println!("left out: nothing that writes images");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; echo read me > t/README.TXT; echo precious > t/precious; setfacl -m u:12:rw t/README.TXT
         genisoimage -quiet -V '' -udf -R -hide precious -o udf.iso t 2>/dev/null
         genisoimage -quiet -V '' -J -R -hide precious -o joliet.iso t 2>/dev/null
         xorriso -as mkisofs -quiet -V '' --acl -o list.iso t 2>/dev/null
         genisoimage -quiet -V '' -R -o plain.iso t 2>/dev/null; mkdir new; echo new > new/README.TXT
         xorriso -outdev grown.iso -volid '' -map t / -commit 2>/dev/null
         xorriso -dev grown.iso -volid '' -map new / -commit 2>/dev/null",
    );
    for (image, what) in [
        ("udf.iso", "UDF"),
        ("joliet.iso", "tree of names"),
        ("list.iso", "access lists"),
        ("grown.iso", "the sessions before its last one"),
    ] {
        let mut command = tarnfs(&scratch);
        command.args(["convert", "--replace", image, "new.tar"]).current_dir(scratch.path(""));
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.code != 0 && ran.err.contains(what), "{image}: {} {}", ran.code, ran.err);
        assert!(scratch.path(image).exists(), "{image}");
        scratch.shell("rm -f new.tar");
    }
    let mut command = tarnfs(&scratch);
    Ran::from(
        command.args(["convert", "--replace", "plain.iso", "new.tar"]).current_dir(scratch.path("")).output().unwrap(),
    )
    .ok();
    assert!(!scratch.path("plain.iso").exists());
}

/// > A format that does not keep an attribute does not tell that it differs.
#[test]
fn an_image_without_rock_ridge_tells_no_modes_owners_or_links() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p t/sub; echo one > t/one; chmod 600 t/one; chmod 700 t/sub; ln t/one t/two; echo x > t/sub/x; chown 1000:1000 t/sub/x || true
         genisoimage -quiet -J -o joliet.iso t 2>/dev/null; genisoimage -quiet -R -o rock.iso t 2>/dev/null; chmod 640 t/one",
    );
    let compare = |image: &str| {
        let path = scratch.path(image);
        run(&scratch, ["compare", path.to_str().unwrap(), scratch.path("t").to_str().unwrap()])
    };
    let plain = compare("joliet.iso");
    assert!(plain.code == 0 && plain.out.is_empty(), "{}{}", plain.text(), plain.err);
    let rock = compare("rock.iso");
    assert!(rock.code == 1 && rock.text().contains("Mode differs"), "{}{}", rock.text(), rock.err);
    // An archive in it has what it has.
    scratch.shell(
        "mkdir in; echo x > in/a; chmod 640 in/a; tar -C in -cf in/t.tar a; rm in/a; genisoimage -quiet -J -o with.iso in 2> log || { cat log; false; }",
    );
    let with = scratch.path("with.iso");
    let to = scratch.path("to");
    run(&scratch, ["extract", "-r", "-C", to.to_str().unwrap(), with.to_str().unwrap()]).ok();
    let compare = || run(&scratch, ["compare", "-r", with.to_str().unwrap(), to.to_str().unwrap()]);
    assert_eq!(compare().code, 0, "{}", compare().text());
    scratch.shell("chmod 777 to/t.tar/a");
    assert!(compare().text().contains("t.tar/a: Mode differs"), "{}", compare().text());
}

/// Another image behind an image is none of its sessions.
#[test]
fn an_image_behind_an_image_hides_nothing() {
    if !have("genisoimage") || !have("xorriso") {
        return println!("left out: nothing that writes images");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir a b; echo one > a/one; echo two > b/two; genisoimage -quiet -R -o a.iso a 2>/dev/null
         xorriso -as mkisofs -quiet -o b.iso b 2>/dev/null; cat a.iso b.iso > both.iso",
    );
    let both = scratch.path("both.iso");
    assert_eq!(run(&scratch, ["cat", both.to_str().unwrap(), "one"]).ok().text(), "one\n");
}

/// What cannot be there is told, and is no whole image.
#[test]
fn an_image_without_its_listings_is_damaged() {
    if !have("genisoimage") {
        return println!("left out: nothing that writes images");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; echo one > t/one; genisoimage -quiet -R -o a.iso t 2>/dev/null; cp a.iso zeros.iso; cp a.iso cut.iso",
    );
    let root = scratch.shell("isoinfo -l -i a.iso | sed -n 's/^d.*\\[ *\\([0-9]*\\) .*\\] *\\. *$/\\1/p' | head -1");
    let root: u64 = root.trim().parse().unwrap();
    let file = fs::File::options().write(true).open(scratch.path("zeros.iso")).unwrap();
    file.write_all_at(&[0; 2048], root * 2048).unwrap();
    fs::File::options().write(true).open(scratch.path("cut.iso")).unwrap().set_len(root * 2048 - 1000).unwrap();
    for image in ["zeros.iso", "cut.iso"] {
        for command in ["ls", "check"] {
            let path = scratch.path(image);
            let ran = run(&scratch, [command, path.to_str().unwrap()]);
            assert_eq!(ran.code, 5, "{command} {image}: {}", ran.err);
        }
    }
}

/// Numbers of devices and what a group may do are those of `tar`, too, not only of the mount.
#[test]
fn devices_and_lists_are_what_they_were() {
    if !have("xorriso") || !have("setfacl") || !rustix::process::geteuid().is_root() {
        return println!("left out: nothing that writes images, or no root");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; mknod t/disk b 8 300; mknod t/line c 300 70000; echo x > t/list; chmod 600 t/list; setfacl -m u:12:rw t/list
         xorriso -as mkisofs -quiet --acl -o a.iso t 2>/dev/null",
    );
    let image = scratch.path("a.iso");
    let listed = run(&scratch, ["ls", "-l", image.to_str().unwrap()]).ok();
    for (name, what) in [("disk", "8, 300"), ("line", "300, 70000"), ("list", "-rw-------")] {
        let line = listed.text().lines().find(|line| line.ends_with(name)).unwrap_or_default().to_owned();
        let plain = line.replace(',', ", ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(what), "{name}: {line}");
    }
}
