//! Several archives in one mount: one over the other as overlayfs has it, or side by side; and a folder of them as the
//! root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    self, Compare, Mounted, Scratch, assert_twins, can_mount, have, is_mounted, make_tree, rounds, run, statistics,
    tarnfs,
};

/// Mounts all of `sources`.
fn mount(scratch: &Scratch, sources: &[PathBuf], options: &[&str]) -> Mounted {
    let (last, before) = sources.split_last().unwrap();
    let mut words = options.to_vec();
    words.extend(before.iter().map(|path| path.to_str().unwrap()));
    Mounted::new(scratch, last, &words)
}

/// Fills the folder of a layer at random: few names, so that they meet those of other layers.
fn fill(folder: &Path, random: &mut u64, depth: u32) {
    let mut below = |end: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % end
    };
    for name in ["a", "b", "c", "d", "e f", "g.versions"] {
        let path = folder.join(name);
        match below(if depth == 0 { 5 } else { 8 }) {
            0 => std::os::unix::fs::symlink(format!("target {}", below(9)), &path).unwrap(),
            1 => {
                let done = Command::new("mkfifo").arg(&path).status().unwrap();
                assert!(done.success());
            }
            2 => fs::write(&path, format!("content {}", below(1_000_000))).unwrap(),
            3..5 => {}
            _ => {
                fs::create_dir(&path).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700 + below(64) as u32);
                let seed = &mut below(u64::MAX);
                fill(&path, seed, depth - 1);
                fs::set_permissions(&path, mode).unwrap();
            }
        }
    }
}

/// A mount that is no mount of ours.
struct Overlay(PathBuf);

impl Overlay {
    /// overlayfs over `layers`, from left to right; `None` where the kernel has none.
    fn mount(scratch: &Scratch, layers: &[PathBuf]) -> Option<Self> {
        let at = scratch.folder(format!("overlay-{}", support::unique()));
        let lower: Vec<_> = layers.iter().rev().map(|layer| layer.to_str().unwrap()).collect();
        let mut command = Command::new("mount");
        command.args(["-t", "overlay", "overlay", "-o"]).arg(format!("ro,lowerdir={}", lower.join(":"))).arg(&at);
        if !command.output().unwrap().status.success() {
            println!("left out: no overlayfs");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// > Several archives in one mount show what overlayfs shows of them as layers: folders are merged, and otherwise the
/// > one furthest to the right wins.
#[test]
fn a_union_shows_what_overlayfs_shows() {
    if !can_mount() {
        return;
    }
    for round in 0..rounds(12, 300) {
        let scratch = Scratch::new();
        let mut random = round;
        let layers: Vec<PathBuf> = (0..2 + round % 4)
            .map(|number| {
                let layer = scratch.folder(format!("layer-{number}"));
                random = random.wrapping_mul(31).wrapping_add(number + 1);
                fill(&layer, &mut random, 3);
                layer
            })
            .collect();
        let Some(overlay) = Overlay::mount(&scratch, &layers) else { return };
        let archives: Vec<PathBuf> = (0..layers.len())
            .map(|number| {
                // A folder itself may be a layer, too.
                if (number as u64 + round) % 3 == 2 {
                    return layers[number].clone();
                }
                let suffix = if number % 2 == 0 { "tar" } else { "tar.gz" };
                scratch.shell(&format!("tar --format=posix -caf {number}.{suffix} -C layer-{number} ."));
                scratch.path(format!("{number}.{suffix}"))
            })
            .collect();
        let mounted = mount(&scratch, &archives, &[]);
        assert_twins(&mounted.at, &overlay.0, Compare::default());
        // And again, when the kernel asks for single names first.
        let again = mount(&scratch, &archives, &["--no-file-versions"]);
        for path in support::survey(&overlay.0, Compare::default()).keys() {
            assert!(again.path(path).symlink_metadata().is_ok(), "{}", path.display());
        }
        assert_twins(&again.at, &overlay.0, Compare::default());
        mounted.unmount();
        again.unmount();
    }
}

/// > Whiteouts and opaque folders of overlayfs hide what is further left.
#[test]
fn whiteouts_and_opaque_folders_hide_what_is_further_left() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p 0/d/e 0/opaque/sub 0/back 1/d 1/back 2/d/e 2/opaque 2/back; touch 0/d/a 0/d/b 0/d/e/f 0/gone 0/keep 0/opaque/x 0/opaque/sub/y 0/back/old
         touch 1/d/c 1/back/middle 2/opaque/new 2/back/new 2/keep 2/d/e/g
         mknod 1/gone c 0 0; mknod 2/d/a c 0 0; mknod 2/nothing c 0 0; mknod 1/d/e c 0 0; mknod 2/null c 1 3
         setfattr -n trusted.overlay.opaque -v y 2/opaque; setfattr -n trusted.overlay.opaque -v y 1/back
         for layer in 0 1 2; do tar --format=posix --xattrs --xattrs-include='*' -cf $layer.tar -C $layer .; done",
    );
    let names = |at: &Path| -> Vec<String> {
        let paths = support::survey(at, Compare::default()).into_keys();
        paths.map(|path| path.to_str().unwrap().to_owned()).collect()
    };
    let expected =
        ["back", "back/middle", "back/new", "d", "d/b", "d/c", "d/e", "d/e/g", "keep", "null", "opaque", "opaque/new"];
    for sources in [["0", "1", "2"], ["0.tar", "1.tar", "2.tar"], ["0.tar", "1", "2.tar"], ["0", "1.tar", "2"]] {
        let mounted = mount(&scratch, &sources.map(|name| scratch.path(name)), &[]);
        // Single names first.
        for path in expected {
            assert!(mounted.path(path).symlink_metadata().is_ok(), "{sources:?}: {path}");
        }
        for path in ["gone", "d/a", "d/e/f", "opaque/x", "opaque/sub", "back/old", "nothing"] {
            assert!(mounted.path(path).symlink_metadata().is_err(), "{sources:?}: {path}");
        }
        assert_eq!(names(&mounted.at), expected, "{sources:?}");
        mounted.unmount();
    }
    if let Some(overlay) = Overlay::mount(&scratch, &["0", "1", "2"].map(|name| scratch.path(name))) {
        assert_eq!(names(&overlay.0), expected, "as overlayfs");
    }
}

/// > A folder can be a source beside archives, even the folder that is mounted over, and its changes show up.
#[test]
fn a_folder_under_a_union_shows_what_is_in_it_now() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p layer/both layer/of-archive folder/both; echo archive > layer/f; echo archive > layer/both/a
         tar -cf a.tar -C layer .; echo folder > folder/both/b; echo folder > folder/g",
    );
    let (archive, folder) = (scratch.path("a.tar"), scratch.path("folder"));
    // The folder is on both sides of the archive: what it has shows.
    let mut child = tarnfs(&scratch)
        .args(["-f".as_ref(), archive.as_os_str(), folder.as_os_str(), folder.as_os_str()])
        .spawn()
        .unwrap();
    let below = fs::File::open(&folder).unwrap();
    support::wait_until("it is mounted", || is_mounted(&folder));
    let names = |path: &str| {
        let mut names: Vec<_> = fs::read_dir(folder.join(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["both", "f", "g", "of-archive"]);
    assert_eq!(names("both"), ["a", "b"]);
    // Through what was open before it was covered.
    let under = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&below)));
    fs::write(under.join("f"), "over the archive's\n").unwrap();
    fs::write(under.join("both/c"), "new\n").unwrap();
    fs::remove_file(under.join("both/b")).unwrap();
    fs::create_dir(under.join("of-archive")).unwrap();
    fs::write(under.join("of-archive/h"), "new\n").unwrap();
    support::wait_until("it shows up", || fs::read_to_string(folder.join("f")).unwrap() == "over the archive's\n");
    support::wait_until("it is listed", || names("both") == ["a", "c"]);
    support::wait_until("folders are merged", || names("of-archive") == ["h"]);
    assert_eq!(fs::read_to_string(folder.join("f.versions/1")).unwrap(), "archive\n");
    fs::remove_file(under.join("f")).unwrap();
    support::wait_until("it is gone", || fs::read_to_string(folder.join("f")).unwrap() == "archive\n");
    fs::remove_dir_all(under.join("both")).unwrap();
    fs::write(under.join("both"), "no folder any more\n").unwrap();
    support::wait_until("a file hides a folder", || folder.join("both").is_file());
    drop(below);
    assert_eq!(run(&scratch, ["-u".as_ref(), folder.as_os_str()]).code, 0);
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(folder.join("both")).unwrap(), "no folder any more\n");
}

/// The kernel keeps what it was told of an archive, and yet sees what comes to its folders from another source.
#[test]
fn what_is_kept_of_an_archive_hides_nothing_that_comes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p layer/a/b/c folder; (cd layer/a/b/c; seq 50 | xargs touch); tar -cf a.tar -C layer .");
    let mounted = mount(&scratch, &[scratch.path("a.tar"), scratch.path("folder")], &[]);
    let find = || {
        let found = Command::new("find").arg(&mounted.at).args(["-size", "0"]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().filter(|line| line.contains("/c/")).count()
    };
    let asked = || {
        let requests = statistics(&mounted.at)["requests"].clone();
        ["lookup", "attributes", "read_folder"].iter().map(|kind| requests[kind].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(find(), 50);
    // As long as what may change is kept.
    let a_while = || std::thread::sleep(std::time::Duration::from_millis(1500));
    support::wait_until("only the root is asked for again", || {
        a_while();
        let before = asked();
        assert_eq!(find(), 50);
        asked() - before < 15
    });
    let names =
        |path: &str| fs::read_dir(mounted.path(path)).unwrap().map(|e| e.unwrap().file_name()).collect::<BTreeSet<_>>();
    let only = |names: &[&str]| names.iter().map(std::ffi::OsString::from).collect::<BTreeSet<_>>();
    for _ in 0..2 {
        assert!(!mounted.path("a/b/new").exists() && !mounted.path("a/new").exists());
        assert_eq!((names("a"), names("a/b")), (only(&["b"]), only(&["c"])));
        scratch.shell("mkdir -p folder/a/b; echo new > folder/a/b/new; echo new > folder/a/new");
        a_while();
        assert_eq!((names("a"), names("a/b")), (only(&["b", "new"]), only(&["c", "new"])));
        assert_eq!(fs::read_to_string(mounted.path("a/b/new")).unwrap(), "new\n");
        assert_eq!(find(), 50);
        scratch.shell("rm -r folder/a");
        a_while();
    }
    assert_eq!((names("a"), names("a/b")), (only(&["b"]), only(&["c"])));
    mounted.unmount();
}

/// What a folder hides shows at no moment while another one takes its place.
#[test]
fn what_was_hidden_does_not_show_when_a_folder_is_exchanged() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p above/d above/e below/d; echo new > above/d/f; echo newer > above/e/f; echo hidden > below/d/f; touch below/d/g");
    let mounted = mount(&scratch, &[scratch.path("below"), scratch.path("above")], &[]);
    for _ in 0..4 {
        fs::metadata(mounted.path("d")).unwrap();
        scratch.shell("mv above/d above/aside; mv above/e above/d; mv above/aside above/e");
        let expected = fs::read(scratch.path("above/d/f")).unwrap();
        let found = fs::read(mounted.path("d/f")).unwrap();
        assert!(found == expected, "{}", String::from_utf8_lossy(&found));
        assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 2);
        // The kernel asks again what it was told, after a while.
        std::thread::sleep(std::time::Duration::from_millis(1300));
    }
}

/// Listing, and forgetting what was listed, of a folder that others change: what stays is there all the time.
#[test]
fn a_union_that_changes_can_be_listed_all_the_time() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p layer/d folder/d; (cd layer/d; seq -f 'a%.0f' 3000 | xargs touch); (cd folder/d; seq -f 'b%.0f' 3000 | xargs touch)
         for i in $(seq 40); do mkdir -p layer/d/e$i/x folder/d/e$i/y; done; tar -cf a.tar -C layer .",
    );
    let mounted = mount(&scratch, &[scratch.path("a.tar"), scratch.path("folder")], &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                let path = scratch.path(format!("folder/d/come-and-go-{}", number % 100));
                if path.exists() { fs::remove_file(path).unwrap() } else { fs::write(path, "x").unwrap() }
            }
        });
        for _ in 0..rounds(5, 200) {
            let names: Vec<_> = fs::read_dir(mounted.path("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
            let staying = names.iter().filter(|name| !name.to_str().unwrap().starts_with("come"));
            assert_eq!(staying.clone().count(), 6040);
            assert_eq!(staying.collect::<BTreeSet<_>>().len(), 6040);
            for number in 1..=40 {
                assert_eq!(fs::read_dir(mounted.path(format!("d/e{number}"))).unwrap().count(), 2);
            }
            // What is forgotten by the kernel is asked for again.
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    mounted.unmount();
}

#[test]
fn each_name_of_a_large_folder_is_listed_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p a/large b/large c/large
         (cd a/large; seq -f 'name with some length %06.0f' 0 19999 | xargs -d '\\n' touch)
         (cd b/large; seq -f 'name with some length %06.0f' 10000 29999 | xargs -d '\\n' touch)
         (cd c/large; seq -f 'another name %.0f' 1 3 | xargs -d '\\n' touch)
         for layer in a b c; do tar -cf $layer.tar -C $layer .; done",
    );
    let mounted = mount(&scratch, &["a.tar", "b.tar", "c.tar"].map(|name| scratch.path(name)), &[]);
    let listings: Vec<_> = std::thread::scope(|scope| {
        let list = || fs::read_dir(mounted.path("large")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let listers: Vec<_> = (0..4).map(|_| scope.spawn(list)).collect();
        listers.into_iter().map(|lister| lister.join().unwrap()).collect::<Vec<Vec<_>>>()
    });
    for listing in listings {
        assert_eq!(listing.len(), 30_003);
        assert_eq!(listing.iter().collect::<BTreeSet<_>>().len(), 30_003);
    }
    mounted.unmount();
}

#[test]
fn three_hundred_sources_are_mounted_as_one() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "for i in $(seq 300); do mkdir -p layer/folder; echo $i > layer/same; echo $i > layer/folder/$i
         tar -cf $i.tar -C layer same folder; rm -r layer; done",
    );
    let sources: Vec<_> = (1..=300).map(|number| scratch.path(format!("{number}.tar"))).collect();
    let mounted = mount(&scratch, &sources, &[]);
    assert_eq!(fs::read_dir(mounted.path("folder")).unwrap().count(), 300);
    for number in [1, 17, 300] {
        assert_eq!(fs::read_to_string(mounted.path(format!("folder/{number}"))).unwrap(), format!("{number}\n"));
        assert_eq!(fs::read_to_string(mounted.path(format!("same.versions/{number}"))).unwrap(), format!("{number}\n"));
    }
    assert_eq!(fs::read_to_string(mounted.path("same")).unwrap(), "300\n");
    mounted.unmount();
}

#[test]
fn a_source_that_is_damaged_shows_what_is_whole_and_one_that_is_none_is_named() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two; echo one > one/f; echo one > one/g; echo two > two/f; head -c 100000 /dev/urandom > two/z
         tar -cf one.tar -C one f g; tar -cf two.tar -C two f z; truncate -s 50000 two.tar; echo nothing > none.tar",
    );
    let mounted = Mounted::any(&scratch, scratch.path("two.tar"), &[scratch.path("one.tar").to_str().unwrap()]);
    assert_eq!(mounted.ran.code, 5, "{}", mounted.ran.err);
    assert!(mounted.ran.err.contains("two.tar: damaged at byte"), "{}", mounted.ran.err);
    assert_eq!(fs::read_to_string(mounted.path("f")).unwrap(), "two\n");
    assert_eq!(fs::read_to_string(mounted.path("f.versions/1")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(mounted.path("g")).unwrap(), "one\n");
    assert!(fs::read(mounted.path("z")).is_err());
    mounted.unmount();

    for (none, code) in [("none.tar", 4), ("missing.tar", 3)] {
        let sources = [scratch.path("one.tar"), scratch.path(none), scratch.path("two.tar")];
        let at = scratch.path("at");
        let ran = run(&scratch, sources.iter().chain([&at]));
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.err.contains(none), "{}", ran.err);
        assert!(!at.exists());
    }
}

#[test]
fn the_same_archive_twice_in_a_row_counts_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo a > f; tar -cf a.tar f; echo b > f; tar -cf b.tar f; ln -s a.tar link.tar");
    let versions = |sources: &[&str]| {
        let sources: Vec<_> = sources.iter().map(|name| scratch.path(name)).collect();
        let mounted = mount(&scratch, &sources, &[]);
        let count = fs::read_dir(mounted.path("f.versions")).unwrap().count();
        let content = fs::read_to_string(mounted.path("f")).unwrap();
        mounted.unmount();
        (count, content)
    };
    assert_eq!(versions(&["a.tar", "a.tar"]), (1, "a\n".to_owned()));
    assert_eq!(versions(&["a.tar", "link.tar", "./a.tar"]), (1, "a\n".to_owned()));
    assert_eq!(versions(&["a.tar", "b.tar", "b.tar", "a.tar"]), (3, "a\n".to_owned()));
}

/// > Without a mount point, the folder is named after the first archive.
#[test]
fn without_a_mount_point_it_is_named_after_the_first() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo a > f; tar -czf a.tar.gz f; echo b > f; tar -cf b.tar f");
    let mut command = tarnfs(&scratch);
    command.current_dir(scratch.path("")).args(["a.tar.gz", "b.tar"]);
    let done = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status().unwrap();
    assert!(done.success());
    assert_eq!(fs::read_to_string(scratch.path("a/f")).unwrap(), "b\n");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(scratch.path("a").to_str().unwrap())).unwrap();
    assert!(line.contains("/a.tar.gz:/") && line.contains("/b.tar "), "{line}");
    assert!(run(&scratch, ["-u".as_ref(), scratch.path("a").as_os_str()]).code == 0);
    support::wait_until("it is gone", || !is_mounted(&scratch.path("a")));
}

/// > With `--disable-union-mount` each archive is in a folder that has its file's name, with a number behind it where
/// > there are several of one name.
#[test]
fn each_source_can_have_a_folder() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "mkdir -p twin/a.tar twin/a.tar.1 twin/b.tar.gz other
         tar --format=posix -cf a.tar tree; tar -xpf a.tar -C twin/a.tar
         echo other > file; tar --format=posix -cf other/a.tar file; tar -xpf other/a.tar -C twin/a.tar.1
         tar --format=posix -czf b.tar.gz -C tree .; tar -xpf b.tar.gz -C twin/b.tar.gz",
    );
    let sources = ["a.tar", "other/a.tar", "b.tar.gz"].map(|name| scratch.path(name));
    let mounted = mount(&scratch, &sources, &["--disable-union-mount"]);
    assert_twins(&mounted.at, &scratch.path("twin"), Compare { skip_folder_times: true, ..Compare::default() });
    assert_eq!(fs::read_to_string(mounted.path("a.tar.1/file.versions/1")).unwrap(), "other\n");
    mounted.unmount();
    // One alone needs none, as with ratarmount.
    let mounted = mount(&scratch, &sources[..1], &["--disable-union-mount"]);
    assert!(mounted.path("tree/file").exists());
    mounted.unmount();
}

/// > With `--prefix`, or `-o modules=subdir,subdir=PATH`, the mount shows what lies below that folder.
#[test]
fn a_folder_can_be_the_root() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "tar --format=posix -cf a.tar tree; mkdir x; tar -xpf a.tar -C x
         mkdir -p y/tree/folder; echo over > y/tree/folder/inner; tar -cf b.tar -C y .",
    );
    let archive = scratch.path("a.tar");
    for options in [
        &["--prefix", "tree/folder"][..],
        &["-p", "/tree/folder/"],
        &["-o", "modules=subdir,subdir=tree/folder"],
        &["-o", "subdir=/tree/folder", "-o", "modules=subdir,noexec"],
    ] {
        let mounted = mount(&scratch, std::slice::from_ref(&archive), options);
        // A name outside counts as a link, but is not there.
        assert_twins(&mounted.at, &scratch.path("x/tree/folder"), Compare::default());
        assert!(mounted.path("hard.versions/1").exists() && !mounted.path("../file.versions").exists());
        mounted.unmount();
    }
    let both = [archive.clone(), scratch.path("b.tar")];
    let mounted = mount(&scratch, &both, &["--prefix=tree/folder", "--union-mount-cache-timeout=60"]);
    assert_eq!(fs::read_to_string(mounted.path("inner")).unwrap(), "over\n");
    assert!(mounted.path("random").exists());
    mounted.unmount();
    for (prefix, says) in [("tree/none", "no such file or folder"), ("tree/file", "not a folder")] {
        let ran = run(&scratch, ["-p".as_ref(), prefix.as_ref(), archive.as_os_str(), scratch.path("at").as_os_str()]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(&format!("the prefix {prefix}: {says}")), "{}", ran.err);
        assert!(!scratch.path("at").exists());
    }
}

#[test]
fn a_module_of_libfuse_without_its_folder_is_refused() {
    let scratch = Scratch::new();
    scratch.shell("echo a > f; tar -cf a.tar f");
    for option in ["modules=subdir", "modules=iconv,subdir=."] {
        let ran = run(&scratch, ["-o".as_ref(), option.as_ref(), scratch.path("a.tar").as_os_str()]);
        assert_eq!(ran.code, 2, "{option}: {}", ran.err);
        assert!(ran.err.contains("modules="), "{option}: {}", ran.err);
        assert!(!scratch.path("a").exists());
    }
}

#[test]
fn one_index_file_is_not_for_several_archives() {
    let scratch = Scratch::new();
    scratch.shell("echo a > f; tar -cf a.tar f; tar -cf b.tar f");
    let [a, b, index] = ["a.tar", "b.tar", "index"].map(|name| scratch.path(name));
    let ran =
        run(&scratch, ["--no-mount".as_ref(), "--index-file".as_ref(), index.as_os_str(), a.as_ref(), b.as_ref()]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("--index-folders"), "{}", ran.err);
    assert!(!index.exists());
    let ran = run(&scratch, ["--no-mount".as_ref(), "--index-file=:memory:".as_ref(), a.as_os_str(), b.as_ref()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// > Single compressed files that would show under one name in a union show under the names of their archives.
#[test]
fn single_files_that_were_renamed_do_not_hide_each_other() {
    if !can_mount() {
        return println!("left out: nothing can be mounted here");
    }
    let scratch = Scratch::new();
    // As logs are rotated: each was called app.log.1 when it was compressed. The name of one is that in another.
    scratch.shell(
        "for i in 3 2 1; do echo day $i > app.log.1; gzip app.log.1; mv app.log.1.gz $i; mv $i app.log.$i.gz; done
         echo other > other; gzip other; mv other.gz app.log.7.gz; echo last > app.log.3; gzip -c app.log.3 > named.gz; rm app.log.3",
    );
    let all = ["app.log.1.gz", "app.log.2.gz", "app.log.3.gz", "app.log.7.gz", "named.gz"];
    let paths = |names: &[&str]| names.iter().map(|name| scratch.path(name)).collect::<Vec<_>>();
    let seen = |mounted: &Mounted| {
        let names: BTreeSet<_> = fs::read_dir(mounted.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.into_iter().map(|name| (fs::read_to_string(mounted.path(&name)).unwrap(), name)).collect::<Vec<_>>()
    };
    let shown = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, text)| (format!("{text}\n"), (*name).to_owned())).collect::<Vec<_>>()
    };
    let mounted = mount(&scratch, &paths(&all), &[]);
    let expected =
        [("app.log.1", "day 1"), ("app.log.2", "day 2"), ("app.log.3", "day 3"), ("named", "last"), ("other", "other")];
    assert_eq!(seen(&mounted), shown(&expected));
    assert!(!mounted.path("app.log.3.versions/2").exists() && mounted.path("app.log.3.versions/1").exists());
    drop(mounted);
    // What is called as nothing else is keeps the name that gzip has kept; with -r, too.
    for options in [&[][..], &["-r"]] {
        let mounted = mount(&scratch, &paths(&["app.log.3.gz", "app.log.7.gz"]), options);
        assert_eq!(seen(&mounted), shown(&[("app.log.1", "day 3"), ("other", "other")]));
    }
    // The only file of an archive that was compressed is no such file.
    if have("zip") {
        scratch.shell("for n in a b; do echo in $n > data.csv; zip -q $n.zip data.csv; gzip $n.zip; done");
        let mounted = mount(&scratch, &paths(&["a.zip.gz", "b.zip.gz"]), &[]);
        assert_eq!(seen(&mounted), shown(&[("data.csv", "in b")]));
    }
}
