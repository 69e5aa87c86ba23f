//! Older versions of files, under `<file>.versions`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Compare, Mounted, Scratch, can_mount, run, survey};

/// An archive in which `f` is a file, then an executable, a link, a folder, a name of another file, a file with a hole
/// and a short file.
fn seven_times_f(scratch: &Scratch) {
    scratch.shell(
        "umask 022; export TAR='tar --format=posix'
         mkdir -p d; cd d
         echo first > f; touch -d '2001-02-03 04:05:06.7 UTC' f; $TAR -cf ../a.tar f
         echo second, longer > f; chmod 4711 f; $TAR -rf ../a.tar f
         ln -sf ../target f; $TAR -rf ../a.tar f
         rm f; mkdir f; $TAR -rf ../a.tar f; rmdir f
         echo other > other; ln other f; $TAR -rf ../a.tar other f; rm f
         echo data > f; truncate -s 1M f; echo end >> f; $TAR -rSf ../a.tar f
         rm f; echo seventh > f; $TAR -rf ../a.tar f
         gzip -k ../a.tar; zstd -q ../a.tar",
    );
}

/// That what is in `folder` is what `tar --occurrence` makes of each version of `f`.
#[track_caller]
fn assert_as_tar_counts(scratch: &Scratch, folder: &Path, twin: &str) {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["1", "2", "3", "4", "5", "6", "7"]);
    for name in names {
        let twin = scratch.folder(format!("{twin}/{name}"));
        scratch.shell(&format!(
            "tar -xpf a.tar -C {twin} other; tar --occurrence={name} -xpf a.tar -C {twin} f; rm {twin}/other; mv {twin}/f {twin}/{name}",
            twin = twin.display()
        ));
        let compare = Compare { holes: true, ..Compare::default() };
        let mut expected = survey(&twin, compare).remove(Path::new(&name)).unwrap();
        let mut found = survey(folder, compare).remove(Path::new(&name)).unwrap();
        // The file that the link is a name of has two of them.
        (expected.links, found.links) = (0, 0);
        assert_eq!(found, expected, "version {name}");
    }
}

/// > Older versions of a file are files in `<file>.versions`, numbered as `tar --occurrence` counts them. The last is
/// > the one that shows.
#[test]
fn versions_are_what_tar_extracts_by_occurrence() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    seven_times_f(&scratch);
    for archive in ["a.tar", "a.tar.gz", "a.tar.zst"] {
        let mounted = Mounted::new(&scratch, scratch.path(archive), &[]);
        assert_as_tar_counts(&scratch, &mounted.path("f.versions"), &format!("twins of {archive}").replace(' ', "-"));
        assert_eq!(
            fs::metadata(mounted.path("f")).unwrap().ino(),
            fs::metadata(mounted.path("f.versions/7")).unwrap().ino()
        );
        for none in ["0", "8", "01", "x", "1/x", "4/x"] {
            assert!(!mounted.path("f.versions").join(none).exists(), "{none}");
        }
        // Folders of versions are in no listing, and there are none of what is not there.
        let names: Vec<_> = fs::read_dir(&mounted.at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f", "other"]);
        assert!(!mounted.path("g.versions").exists() && !mounted.path(".versions").exists());
        assert!(mounted.path("f.versions/1/..").join("7").symlink_metadata().is_err());
        assert_eq!(fs::canonicalize(mounted.path("f.versions/../f.versions/7")).unwrap(), mounted.path("f.versions/7"));
        mounted.unmount();
    }
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["--no-file-versions"]);
    assert!(!mounted.path("f.versions").exists());
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["--no-file-versions", "--file-versions"]);
    assert!(mounted.path("f.versions").exists());
    mounted.unmount();
}

#[test]
fn commands_without_a_mount_know_versions_as_well() {
    let scratch = Scratch::new();
    seven_times_f(&scratch);
    let archive = scratch.path("a.tar.gz");
    let tarnfs = |command: &str, path: &str| run(&scratch, [command.as_ref(), archive.as_os_str(), path.as_ref()]);
    assert_eq!(tarnfs("cat", "f.versions/1").ok().text(), "first\n");
    assert_eq!(tarnfs("cat", "/f.versions/2").ok().text(), "second, longer\n");
    assert_eq!(tarnfs("cat", "f.versions/5").ok().text(), "other\n");
    assert_eq!(tarnfs("cat", "f.versions/4").code, 1);
    assert_eq!(tarnfs("ls", "f.versions/4").ok().text(), "");
    assert_eq!(tarnfs("cat", "f.versions").code, 1);
    assert_eq!(tarnfs("ls", "f.versions").ok().text(), "1\n2\n3\n4\n5\n6\n7\n");
    assert_eq!(tarnfs("ls", "").ok().text(), "f\nother\n");
    let stat = tarnfs("stat", "f.versions/2").ok().text();
    assert!(stat.contains("Mode: 4711 -rws--x--x") && stat.contains("Size: 15 bytes"), "{stat}");
    assert!(tarnfs("stat", "f.versions/3").ok().text().contains("Target: ../target"));
}

/// > A file that really has such a name is not hidden by versions.
#[test]
fn what_really_has_the_name_shows() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p d/g.versions; cd d; echo f > f; echo real > f.versions; echo g > g; echo inside > g.versions/1
         echo v > .versions; tar -cf ../a.tar f f.versions g g.versions .versions",
    );
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    let read = |path: &str| fs::read_to_string(mounted.path(path)).unwrap();
    assert_eq!(read("f.versions"), "real\n");
    assert_eq!(read("g.versions/1"), "inside\n");
    assert_eq!(read(".versions"), "v\n");
    assert_eq!(read("f.versions.versions/1"), "real\n");
    assert_eq!(read("g.versions/1.versions/1"), "inside\n");
    mounted.unmount();
}

/// > A folder is a version, too, with all that lies below it. A folder that no entry names is one if something else
/// > had its path.
#[test]
fn folders_are_versions() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // As ratarmount's own test archives have it. Of `bar` nothing but what lies in it is named.
    scratch.shell(
        "umask 022; export TAR='tar --format=gnu'; cd \"$PWD\"; mkdir -p d/foo/sub; cd d
         echo one > foo/fighter; echo deep > foo/sub/deep; $TAR -cf ../a.tar foo
         echo two > foo/fighter; chmod 700 foo; $TAR -rf ../a.tar foo
         rm -r foo; echo file > foo; $TAR -rf ../a.tar foo
         echo file > bar; $TAR -rf ../a.tar bar; rm bar; mkdir bar; echo in > bar/in; $TAR -rf ../a.tar bar/in; cp ../a.tar ../c.tar
         rm -r bar; ln -s foo bar; $TAR -rf ../a.tar bar; gzip -k ../a.tar",
    );
    let assert_versions = |archive: &str, options: &[&str]| {
        let mounted = Mounted::new(&scratch, scratch.path(archive), options);
        let read =
            |path: &str| fs::read_to_string(mounted.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let names = |path: &str| {
            let entries = fs::read_dir(mounted.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(read("foo"), "file\n");
        assert_eq!(names("foo.versions"), ["1", "2", "3"]);
        for version in ["1", "2"] {
            let folder = format!("foo.versions/{version}");
            assert_eq!(names(&folder), ["fighter", "sub"]);
            assert_eq!(read(&format!("{folder}/fighter")), "two\n");
            assert_eq!(read(&format!("{folder}/fighter.versions/1")), "one\n");
            assert_eq!(read(&format!("{folder}/fighter.versions/2")), "two\n");
            assert_eq!(read(&format!("{folder}/sub/deep")), "deep\n");
            assert_eq!(read(&format!("{folder}/sub.versions/1/deep")), "deep\n");
            let sub = mounted.path(&folder).join("sub");
            assert_eq!(fs::canonicalize(sub.join("../../..")).unwrap(), fs::canonicalize(&mounted.at).unwrap());
            // The first was open to all, and the last is not. ratarmount's index has no modes of folders that do not
            // show.
            let mode = fs::metadata(mounted.path(&folder)).unwrap().mode() & 0o777;
            assert!(mode == 0o700 || options.contains(&"--no-recreate-index") && version == "1", "{mode:o}");
        }
        let number = |path: &str| fs::metadata(mounted.path(path)).unwrap().ino();
        assert_ne!(number("foo.versions/1"), number("foo.versions/2"));
        assert_ne!(number("foo.versions/1/sub"), number("foo.versions/2/sub"));
        assert_eq!(number("foo.versions/1/sub/deep"), number("foo.versions/2/sub/deep"));
        assert_eq!(read("foo.versions/3"), "file\n");
        assert_eq!(read("bar.versions/1"), "file\n");
        assert_eq!(read("bar.versions/2/in"), "in\n");
        mounted
    };
    for archive in ["a.tar", "a.tar.gz"] {
        let mounted = assert_versions(archive, &[]);
        assert_eq!(fs::read_link(mounted.path("bar")).unwrap(), Path::new("foo"));
        assert_eq!(fs::read_dir(mounted.path("bar.versions")).unwrap().count(), 3);
        mounted.unmount();
    }
    let mounted = assert_versions("c.tar", &[]);
    assert_eq!(fs::read_to_string(mounted.path("bar/in")).unwrap(), "in\n");
    mounted.unmount();
    // The same from a sidecar of ratarmount's kind, and in one that grew. What few files have is kept where it is asked
    // for.
    let index = scratch.path("a.index.sqlite");
    let named = ["--index-file", index.to_str().unwrap()];
    let archive = scratch.path("a.tar");
    let make = [&["index", "--format=ratarmount"][..], &named, &[archive.to_str().unwrap()]].concat();
    run(&scratch, make).ok();
    assert_versions("a.tar", &[&named[..], &["--no-recreate-index"]].concat()).unmount();
    let (index, archive) = (scratch.path("grown.tarnfs.sqlite"), scratch.path("c.tar"));
    let grown = ["index", "--index-file", index.to_str().unwrap(), archive.to_str().unwrap()];
    run(&scratch, grown).ok();
    scratch.shell("cd d; echo more > more; tar --format=gnu -rf ../c.tar more foo");
    run(&scratch, grown).ok();
    let mounted = Mounted::new(&scratch, &archive, &["--index-file", index.to_str().unwrap(), "--no-recreate-index"]);
    assert_eq!(fs::read_to_string(mounted.path("foo.versions/2/sub/deep")).unwrap(), "deep\n");
    assert_eq!(fs::read_dir(mounted.path("foo.versions")).unwrap().count(), 4);
    mounted.unmount();
}

/// Through a sidecar of ratarmount, and after an archive has grown.
#[test]
fn versions_come_from_any_index() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "for i in $(seq 30); do echo $i > f; mkdir -p z; echo $i > z/$((i % 3)); if [ $i = 1 ]; then tar -cf a.tar f z/*; else tar -rf a.tar f z/*; fi; done
         seq 1200 | (mkdir many; cd many; xargs touch); tar -rf a.tar many; cp a.tar b.tar",
    );
    let assert_versions = |archive: &str, count: u32| {
        let mounted = Mounted::new(&scratch, scratch.path(archive), &["--no-recreate-index"]);
        assert_eq!(fs::read_dir(mounted.path("f.versions")).unwrap().count(), count as usize);
        for number in 1..=count {
            let read = fs::read_to_string(mounted.path(format!("f.versions/{number}"))).unwrap();
            assert_eq!(read, format!("{number}\n"));
        }
        assert!(!mounted.path(format!("f.versions/{}", count + 1)).exists());
        assert_eq!(fs::read_to_string(mounted.path("z/0.versions/1")).unwrap(), "3\n");
        mounted.unmount();
    };
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    assert!(scratch.path("a.tar.index.sqlite").exists() && !scratch.path("a.tar.tarnfs.sqlite").exists());
    assert_versions("a.tar", 30);
    run(&scratch, ["index".as_ref(), scratch.path("b.tar").as_os_str()]).ok();
    assert_versions("b.tar", 30);
    scratch.shell("echo 31 > f; tar -rf b.tar f");
    run(&scratch, ["index".as_ref(), scratch.path("b.tar").as_os_str()]).ok();
    assert_versions("b.tar", 31);
}

/// A name that is there thousands of times, links that lead nowhere among them: each number is the same version for
/// whoever lists and for whoever asks.
#[test]
fn each_of_many_versions_is_found_by_its_number() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile, io
with tarfile.open('a.tar', 'w') as tar:
    for number in range(5000):
        entry = tarfile.TarInfo('f')
        if number < 1500 or number % 7 in (0, 3, 4):
            entry.type, entry.linkname = tarfile.LNKTYPE, 'gone'
        entry.mtime = number
        tar.addfile(entry, io.BytesIO(b''))
E",
    );
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["--index-file=:memory:"]);
    // Behind the first file, such a link shows what was there before it.
    let mut last = 0;
    let shown = (1500..5000).skip_while(|number| [0, 3, 4].contains(&(number % 7))).map(|number| {
        last = if [0, 3, 4].contains(&(number % 7)) { last } else { number };
        last
    });
    let expected: Vec<i64> = shown.collect();
    let folder = mounted.path("f.versions");
    for (number, expected) in (1..).zip(&expected) {
        assert_eq!(fs::metadata(folder.join(number.to_string())).unwrap().mtime(), *expected, "version {number}");
    }
    assert!(!folder.join((expected.len() + 1).to_string()).exists() && !folder.join("4999").exists());
    let mut listed: Vec<u64> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    listed.sort_unstable();
    assert!(listed.into_iter().eq(1..=expected.len() as u64));
    mounted.unmount();
}

/// > Who may not enter the folder that shows, enters none of its older versions.
#[test]
fn an_older_version_of_a_folder_opens_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; mkdir foo foo/sub; echo secret > foo/secret; echo deep > foo/sub/deep; chmod 711 foo
         tar --owner=1000 --group=1000 -cf a.tar foo; tar --owner=1000 --group=1000 -cf open.tar foo
         chmod 700 foo foo/sub; tar --no-recursion --owner=0 --group=0 -rf a.tar foo
         tar --no-recursion --owner=0 --group=0 -cf shut.tar foo foo/sub
         cp a.tar hidden.tar; rm -r foo; echo file > foo; tar -rf hidden.tar foo",
    );
    let mode_of = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    // Of one archive, of one in which a file shows, and of two over each other.
    for (archives, version, sub) in [
        (&["a.tar"][..], "foo.versions/1", (0o755, 1000, 1000)),
        (&["hidden.tar"], "foo.versions/1", (0o755, 1000, 1000)),
        (&["open.tar", "shut.tar"], "foo.versions/1", (0o700, 0, 0)),
    ] {
        let paths: Vec<_> = archives.iter().map(|name| scratch.path(name)).collect();
        let (last, others) = paths.split_last().unwrap();
        let mut options = vec!["--index-file=:memory:"];
        options.extend(others.iter().map(|path| path.to_str().unwrap()));
        let mounted = Mounted::new(&scratch, last, &options);
        let view = mounted.path(version);
        assert_eq!(mode_of(&view), (0o700, 0, 0), "{archives:?}");
        assert_eq!(fs::read(view.join("secret")).unwrap(), b"secret\n");
        for entry in fs::read_dir(view.parent().unwrap()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                assert_eq!(mode_of(&entry.path()).0, 0o700, "{archives:?} {:?}", entry.path());
            }
        }
        assert_eq!(mode_of(&view.join("sub")), sub, "{archives:?}");
        let listed: Vec<_> = fs::read_dir(&view).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(listed.len(), 2, "{archives:?}");
        assert_eq!(mode_of(&view.join("sub")), sub, "{archives:?}");
        mounted.unmount();
    }
}
