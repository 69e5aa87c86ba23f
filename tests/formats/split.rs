//! Archives that were split over several files, mounted through the kernel by any of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have, run};
use crate::trees::sums;

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/folder; cd tree; seq 30000 > numbers; head -c 300000 /dev/urandom > noise; : > empty
         for i in $(seq 60); do seq $i $((i + 300)) > folder/$i; done",
    );
}

/// Mounts the archive by each of its files, and compares the tree.
#[track_caller]
fn is_whole(scratch: &Scratch, parts: &str) {
    let files = scratch.shell(&format!("ls {parts}"));
    assert!(files.lines().count() > 2, "{files}");
    for file in files.lines() {
        let mounted = Mounted::new(scratch, scratch.path(file), &[]);
        let mount = mounted.at.display();
        assert_eq!(scratch.shell(&format!("diff -r tree '{mount}' 2>&1 || true")), "", "{file}");
        mounted.unmount();
    }
}

#[test]
fn volumes_of_zip_are_opened_by_any_of_them() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "cd tree; zip -q -s 64k -r ../x.zip .; zip -q -s 64k -0 -r ../Y.ZIP .; cd ..
         for f in Y.z*; do [ ! -e $f ] || mv $f Y.Z${f#Y.z}; done",
    );
    is_whole(&scratch, "x.z*");
    is_whole(&scratch, "Y.Z*");
    // Joined by hand.
    scratch.shell("cat x.z0* x.zip > joined");
    let mounted = Mounted::new(&scratch, scratch.path("joined"), &[]);
    assert_eq!(scratch.shell(&format!("diff -r tree '{}' 2>&1 || true", mounted.at.display())), "");
    mounted.unmount();
}

#[test]
fn numbered_parts_are_opened_by_any_of_them() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar czf x.tar.gz -C tree .; split -b 100k x.tar.gz x.tar.gz.; split -d -b 100k x.tar.gz y.tar.gz.; split -x -b 20k x.tar.gz h.tar.gz.; rm x.tar.gz");
    is_whole(&scratch, "x.tar.gz.??");
    is_whole(&scratch, "y.tar.gz.??");
    is_whole(&scratch, "h.tar.gz.0[09a]");
    if !have("7z") {
        return println!("left out: no 7z");
    }
    scratch.shell("cd tree; 7z a -bd -bso0 -v100k ../s.7z .; 7z a -bd -bso0 -v100k ../z.zip .");
    is_whole(&scratch, "s.7z.*");
    is_whole(&scratch, "z.zip.*");
}

#[test]
fn an_index_of_parts_is_used_again_and_belongs_to_all_of_them() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar cf - -C tree . | gzip > whole; split -b 100k whole x.tar.gz.; rm whole");
    let index = |part: &str| {
        let path = scratch.path(part);
        run(&scratch, ["index".as_ref(), path.as_os_str()]).ok().text()
    };
    index("x.tar.gz.aa");
    assert_eq!(scratch.shell("ls | grep -c sqlite").trim(), "1");
    index("x.tar.gz.ab");
    assert_eq!(scratch.shell("ls | grep -c sqlite").trim(), "1");
    let right = fs::read(scratch.path("tree/numbers")).unwrap();
    let path = scratch.path("x.tar.gz.ac");
    let numbers = || run(&scratch, ["cat", "--no-recreate-index", path.to_str().unwrap(), "numbers"]);
    assert!(numbers().ok().out == right);
    // Another part: another archive.
    let mut bytes = fs::read(scratch.path("x.tar.gz.ab")).unwrap();
    for byte in &mut bytes {
        *byte ^= 1;
    }
    fs::write(scratch.path("x.tar.gz.ab"), bytes).unwrap();
    assert_ne!(numbers().code, 0);
}

/// Data sets consist of links in some stores, such as git-annex. Who names one means what it leads to.
#[test]
fn a_link_is_followed_only_if_it_is_named() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "cd tree; 7z a -bd -bso0 -v100k ../x.7z .; cd ..; mkdir store; mv x.7z.002 store/b; ln -s store/b x.7z.002",
    );
    let list = |file: &str| {
        let path = scratch.path(file);
        run(&scratch, ["ls".as_ref(), path.as_os_str()])
    };
    assert_eq!(list("x.7z.002").ok().text(), "empty\nfolder\nnoise\nnumbers\n");
    for file in ["x.7z.001", "x.7z.003"] {
        let ran = list(file);
        let is_told = ran.err.contains("/x.7z.002 is a symbolic link, which is not followed");
        assert!(ran.code == 3 && is_told, "{file}: {} {}", ran.code, ran.err);
    }
    scratch.shell("for i in 1 3; do mv x.7z.00$i store/$i; ln -s store/$i x.7z.00$i; done");
    for (file, other) in [("x.7z.001", "x.7z.002"), ("x.7z.002", "x.7z.001"), ("x.7z.003", "x.7z.001")] {
        let ran = list(file);
        let is_told = ran.err.contains(&format!("/{other} is a symbolic link, which is not followed"));
        assert!(ran.code != 0 && is_told, "{file}: {} {}", ran.code, ran.err);
    }
}

#[test]
fn a_missing_part_is_named() {
    if !have("zip") || !have("7z") {
        return println!("left out: no zip, or no 7z");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "cd tree; zip -q -s 64k -r ../x.zip .; 7z a -bd -bso0 -v80k ../s.7z .; 7z a -bd -bso0 -v100k ../z.zip .",
    );
    let refused = |file: &str, missing: &str| {
        let path = scratch.path(file);
        let ran = run(&scratch, ["ls".as_ref(), path.as_os_str()]);
        assert!(ran.code != 0 && ran.err.contains(missing), "{file}: {}", ran.err);
    };
    scratch.shell("mv x.z02 kept; mv s.7z.002 seven");
    for file in ["x.zip", "x.z01", "x.z03"] {
        refused(file, "/x.z02");
    }
    for file in ["s.7z.001", "s.7z.003"] {
        refused(file, "/s.7z.002");
    }
    scratch.shell("mv kept x.z02; mv x.zip last; mv seven s.7z.002; rm -f s.7z.00[4-9] z.zip.00[3-9]");
    refused("x.z01", "/x.zip");
    refused("s.7z.001", "/s.7z.004");
    refused("z.zip.002", "/z.zip.003");
    // The first one is not there, but others are.
    scratch.shell("rm s.7z.001");
    refused("s.7z.003", "/s.7z.001");
}

/// Names that look like those of parts.
#[test]
fn archives_with_numbers_are_archives_of_their_own() {
    let scratch = Scratch::new();
    scratch.shell(
        "for i in 01 02 03; do seq $i$i > f$i; seq 1000000 > g; tar cf daily.tar.$i f$i; done; cat f02 >> daily.tar.02",
    );
    for number in ["01", "02", "03"] {
        let path = scratch.path(format!("daily.tar.{number}"));
        let listed = run(&scratch, ["ls".as_ref(), path.as_os_str()]).text();
        assert!(listed.contains(&format!("f{number}")), "{listed}");
    }
}

/// A part that nobody has named is followed nowhere: root may mount what somebody else has put there.
#[test]
fn a_part_that_is_a_link_is_not_followed() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/numbers; tar cf - tree | split -b 100k -d -a 3 - x.tar.; mv x.tar.001 secret",
    );
    std::os::unix::fs::symlink(scratch.path("secret"), scratch.path("x.tar.001")).unwrap();
    let ran = run(&scratch, ["cat", scratch.path("x.tar.000").to_str().unwrap(), "tree/numbers"]);
    assert!(ran.code != 0 && ran.err.contains("x.tar.001"), "{} {}", ran.code, ran.err);
    assert!(ran.out.len() < 110_000, "{} bytes", ran.out.len());
    scratch.shell("rm x.tar.001; mv secret x.tar.001");
    let right = fs::read(scratch.path("tree/numbers")).unwrap();
    assert!(run(&scratch, ["cat", scratch.path("x.tar.000").to_str().unwrap(), "tree/numbers"]).ok().out == right);
}

/// Volumes of tar have headers where a file goes on. Joined without a look at these, that file would have wrong bytes.
#[test]
fn volumes_with_headers_of_their_own_are_not_simply_joined() {
    let scratch = Scratch::new();
    scratch.shell("head -c 20000 /dev/urandom > a; head -c 60000 /dev/urandom > b");
    for format in ["gnu", "posix"] {
        scratch.shell(&format!(
            "tar -c -b1 -M -L 18 --format={format} -f x.tar.001 -f x.tar.002 -f x.tar.003 -f x.tar.004 -f x.tar.005 -f x.tar.006 \\
             a b < /dev/null"
        ));
        let archive = scratch.path("x.tar.001");
        let archive = archive.to_str().unwrap();
        let refused = run(&scratch, ["cat", archive, "b"]);
        assert!(refused.code != 0 && refused.out.is_empty(), "{format}: {}", refused.code);
        assert!(refused.err.contains("--ignore-zeros"), "{format}: {}", refused.err);
        for name in ["a", "b"] {
            let right = fs::read(scratch.path(name)).unwrap();
            assert!(run(&scratch, ["cat", "-i", archive, name]).ok().out == right, "{format}: {name}");
        }
    }
}

/// What a later entry of an archive replaces is no part any more, however it spells the path.
#[test]
fn a_part_that_was_replaced_in_an_archive_is_not_joined() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir p q out; seq 10000 19999 > f; tar cf - f | split -b 40k -a 3 --numeric-suffixes=1 - p/x.tar.; tar cf a.tar p
         seq 20000 29999 > f; tar cf - f | split -b 40k -a 3 --numeric-suffixes=1 - q/x.tar.; cp q/x.tar.002 p
         tar rf a.tar ./p/x.tar.002; gzip -k a.tar; tar xf a.tar -C out; cat out/p/x.tar.* | tar xOf - > right",
    );
    let right = fs::read(scratch.path("right")).unwrap();
    for name in ["a.tar", "a.tar.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &["-r"]);
        assert!(fs::read(mounted.path("p/x.tar.001/f")).unwrap() == right, "{name}");
        mounted.unmount();
    }
}

/// Archives in several parts, in a folder `set`; and what is shown of each, beside `tree`.
fn make_set(scratch: &Scratch) -> Vec<&'static str> {
    make_tree(scratch);
    let rar = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/rar");
    scratch.shell(&format!(
        "mkdir -p set; tar czf whole -C tree .; split -b 100k -d -a 3 --numeric-suffixes=1 whole set/x.tar.gz.
         split -x -b 20k whole set/h.tar.gz.; rm whole
         tar cf - -C tree . | split -b 100k -d -a 2 - set/p.tar.
         cd tree; tar cJf - . | split -b 70k - ../set/l.txz.; cd ../set
         cp '{rar}'/solid_multivol.part0* '{rar}'/compressed_multivol_prng_rar300.r* .",
        rar = rar.display()
    ));
    let mut shown = vec!["x.tar.gz.001", "h.tar.gz.00", "p.tar.00", "l.txz.aa"];
    if have("7z") {
        scratch.shell("cd tree; 7z a -bd -bso0 -v100k ../set/s.7z .; 7z a -bd -bso0 -v100k ../set/n.zip .");
        shown.extend(["s.7z.001", "n.zip.001"]);
    }
    if have("zip") {
        scratch.shell("cd tree; zip -q -s 64k -r ../set/z.zip .");
        shown.push("z.zip");
    }
    shown
}

/// What lies in `set` below a mount is what was split.
#[track_caller]
fn has_set(scratch: &Scratch, mounted: &Mounted, shown: &[&str], why: &str) {
    let set = mounted.path("set");
    for name in shown {
        let folder = set.join(name);
        assert_eq!(scratch.shell(&format!("diff -r tree '{}' 2>&1 || true", folder.display())), "", "{why}: {name}");
    }
    // The others stay as they are.
    for name in ["x.tar.gz.002", "p.tar.01", "solid_multivol.part02.rar", "compressed_multivol_prng_rar300.r00"] {
        let right = fs::read(scratch.path("set").join(name)).unwrap();
        assert!(fs::read(set.join(name)).unwrap() == right, "{why}: {name}");
    }
    for name in ["solid_multivol.part01.rar", "compressed_multivol_prng_rar300.rar"] {
        let alone = Mounted::new(scratch, scratch.path("set").join(name), &["--index-file", ":memory:"]);
        let right = sums(scratch, &alone.at);
        alone.unmount();
        assert!(right.lines().count() > 1 && sums(scratch, &set.join(name)) == right, "{why}: {name}");
    }
}

/// > Parts of an archive that was split are one folder of what it holds, in any archive and folder; one that is missing
/// > is named.
#[test]
fn parts_in_an_archive_or_folder_are_one_archive() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    let shown = make_set(&scratch);
    scratch.shell(
        "mkdir f; cp -r set f/set; ls set | sort -r | sed 's:^:set/:' > backwards
         tar cf a.tar -T backwards; tar czf b.tar.gz -T backwards; tar cf - set | xz -0 > c.tar.xz",
    );
    let mut archives = vec!["f", "a.tar", "b.tar.gz", "c.tar.xz"];
    if have("zip") {
        scratch.shell("zip -q -0 -r d.zip set; zip -q -r e.zip set");
        archives.extend(["d.zip", "e.zip"]);
    }
    if have("7z") {
        scratch.shell("7z a -bd -bso0 -mx=1 g.7z set");
        archives.push("g.7z");
    }
    if have("mksquashfs") {
        scratch.shell("mkdir h; cp -r set h/set; mksquashfs h h.sqfs -quiet -no-progress > log");
        archives.push("h.sqfs");
    }
    for archive in archives {
        // Made, and found.
        for options in [&["-r", "--index-minimum-file-count", "0"][..], &["-r"], &["-r", "-l"]] {
            let mounted = Mounted::new(&scratch, scratch.path(archive), options);
            has_set(&scratch, &mounted, &shown, &format!("{archive} {options:?}"));
            mounted.unmount();
        }
    }
}

/// Without the number, as ratarmount names it.
#[test]
fn parts_show_without_their_number_where_extensions_are_stripped() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "mkdir -p f/set; tar czf - -C tree . | split -b 100k -d -a 3 --numeric-suffixes=1 - f/set/x.tar.gz.
         tar cf a.tar -C f set",
    );
    for (archive, options) in [("a.tar", &["-r", "-s"][..]), ("a.tar", &["-r", "-l", "-s"]), ("f", &["-r", "-s"])] {
        let mounted = Mounted::new(&scratch, scratch.path(archive), options);
        let folder = mounted.path("set/x.tar.gz");
        assert_eq!(scratch.shell(&format!("diff -r tree '{}' 2>&1 || true", folder.display())), "", "{archive}");
        let right = fs::read(scratch.path("f/set/x.tar.gz.001")).unwrap();
        assert!(fs::read(mounted.path("set/x.tar.gz.001")).unwrap() == right, "{archive} {options:?}");
        mounted.unmount();
    }
}

#[test]
fn a_part_that_is_missing_in_an_archive_is_named() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    let shown = make_set(&scratch);
    assert!(shown.contains(&"s.7z.001"));
    scratch.shell(
        "mkdir -p f/set; cd set; cp x.tar.gz.00[13] s.7z.001 s.7z.003 solid_multivol.part0[13]* ../f/set
         cp compressed_multivol_prng_rar300.r01 ../f/set; head -c 3000 s.7z.001 > ../f/set/t.7z.001; cd ..
         tar cf a.tar -C f set; tar czf b.tar.gz -C f set",
    );
    let missing = [
        "set/x.tar.gz.002",
        "set/s.7z.002",
        "set/solid_multivol.part02.rar",
        "set/compressed_multivol_prng_rar300.rar",
        "t.7z.002 is not there",
    ];
    for archive in ["a.tar", "b.tar.gz"] {
        for _ in ["made", "found"] {
            let options = ["--index-minimum-file-count", "0", "-r"];
            let mounted = Mounted::any(&scratch, scratch.path(archive), &options);
            assert_eq!(mounted.ran.code, 5, "{archive}: {}", mounted.ran.err);
            let told = run(&scratch, ["check", "-r", scratch.path(archive).to_str().unwrap()]);
            for name in missing {
                assert!(format!("{}{}", told.err, told.text()).contains(name), "{archive}: {name}: {}", told.err);
            }
            // Nothing of it shows as a folder.
            assert_eq!(scratch.shell(&format!("find '{}' -mindepth 2 -type d", mounted.at.display())), "");
            mounted.unmount();
        }
    }
    // What is cut may be looked into here, and is an error then.
    scratch.shell("rm f/set/t.7z.001; tar cf a.tar -C f set");
    for (source, options) in [("f", &["-r"][..]), ("a.tar", &["-r", "-l"])] {
        let log = scratch.path("log");
        let options = [options, &["--log-file", log.to_str().unwrap()]].concat();
        let mounted = Mounted::new(&scratch, scratch.path(source), &options);
        assert_eq!(scratch.shell(&format!("find '{}' -mindepth 2 -type d", mounted.at.display())), "");
        mounted.unmount();
        let told = fs::read_to_string(&log).unwrap();
        for name in ["x.tar.gz.002", "s.7z.002", "solid_multivol.part02.rar"] {
            assert!(told.contains(&format!("a part of it is missing: {name}")), "{source}: {name}: {told}");
        }
        fs::remove_file(log).unwrap();
    }
}

/// What is only called like parts is as it was.
#[test]
fn numbered_files_that_are_no_archive_stay_files() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p f/set; cd f/set; for i in 001 002 004; do seq 1$i > frame.$i; done; seq 100 > m.py; seq 10 > m.aa
         head -c 5000 /dev/zero > z.aa; cp z.aa z.ab; for i in 00 01; do seq $i 9999 | gzip > log.$i; done
         seq 20000 | gzip > log.01; tar czf one.tgz.001 m.py; cp one.tgz.001 two.aa; cd ../..
         tar cf a.tar -C f set; tar czf b.tar.gz -C f set",
    );
    let hidden = ["one.tgz.001", "two.aa"];
    for (source, options) in [("f", &["-r"][..]), ("a.tar", &["-r"]), ("b.tar.gz", &["-r"]), ("a.tar", &["-r", "-l"])] {
        let mounted = Mounted::new(&scratch, scratch.path(source), options);
        let set = mounted.path("set");
        for file in fs::read_dir(scratch.path("f/set")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let right = fs::read(scratch.path("f/set").join(&name)).unwrap();
            if hidden.contains(&name.as_str()) {
                // One part is enough where it is all.
                assert_eq!(fs::read_to_string(set.join(&name).join("m.py")).unwrap().lines().count(), 100, "{name}");
            } else if !name.starts_with("log") {
                assert!(fs::read(set.join(&name)).unwrap() == right, "{source} {options:?}: {name}");
            }
        }
        // The second one is longer than the first: these are no parts.
        let lines = |name: &str| {
            let folder = set.join(name);
            let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
            fs::read_to_string(file).unwrap().lines().count()
        };
        assert_eq!((lines("log.00"), lines("log.01")), (10_000, 20_000), "{source} {options:?}");
        mounted.unmount();
    }
}

/// Parts that lie in an archive which itself lies in parts, in an archive.
#[test]
fn parts_lie_in_parts() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "tar cf - -C tree . | split -b 300k - inner.tar.; zip -q -s 100k -0 outer.zip inner.tar.*
         tar czf all.tar.gz outer.z*; tar cf plain.tar outer.z*",
    );
    for archive in ["all.tar.gz", "plain.tar"] {
        for options in [&["-r"][..], &["-r", "-l"]] {
            let mounted = Mounted::new(&scratch, scratch.path(archive), options);
            let folder = mounted.path("outer.zip/inner.tar.aa");
            assert_eq!(scratch.shell(&format!("diff -r tree '{}' 2>&1 || true", folder.display())), "", "{options:?}");
            mounted.unmount();
        }
    }
}

/// Numbered files that cannot be read are no parts, and do no harm to what is beside them.
#[test]
fn numbered_files_that_cannot_be_read_do_no_harm() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "tar cf - -C tree numbers | split -b 50k -a 3 --numeric-suffixes=1 - x.tar.; seq 9 > other.txt
         tar cf o.tar other.txt x.tar.00*; head -c 62000 o.tar > cut.tar; gzip -k cut.tar
         zip -q -0 flipped.zip other.txt x.tar.00*; seq 999 > f.001; cp f.001 f.002; cp f.001 f.003
         zip -q -P secret locked.zip other.txt f.00*",
    );
    let flipped = scratch.path("flipped.zip");
    let mut bytes = fs::read(&flipped).unwrap();
    let at = bytes.windows(9).position(|part| part == b"x.tar.002").unwrap();
    bytes[at + 300] ^= 1;
    fs::write(&flipped, bytes).unwrap();
    for archive in ["cut.tar", "cut.tar.gz", "flipped.zip", "locked.zip"] {
        let path = scratch.path(archive);
        let path = path.to_str().unwrap();
        let listed = run(&scratch, ["ls", "-R", "-r", "-c", path]);
        let names = if archive == "locked.zip" { ["other.txt", "f.002"] } else { ["other.txt", "x.tar.001"] };
        assert!(names.iter().all(|name| listed.text().contains(name)), "{archive}: {}{}", listed.text(), listed.err);
        if archive != "locked.zip" {
            assert_eq!(run(&scratch, ["cat", "-r", path, "other.txt"]).text().lines().count(), 9, "{archive}");
        }
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn what_is_whole_in_parts_of_a_cut_archive_is_served() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir y; for i in 1 2 3 4 5 6 7; do head -c 20000 /dev/urandom > y/b$i; done
         tar cf - -C y . --sort=name | split -b 60000 -a 3 --numeric-suffixes=1 - y.tar.
         tar cf o.tar y.tar.00*; head -c 150000 o.tar > cut.tar",
    );
    let path = scratch.path("cut.tar");
    let path = path.to_str().unwrap();
    for file in ["b1", "b2", "b5"] {
        let right = fs::read(scratch.path("y").join(file)).unwrap();
        let got = run(&scratch, ["cat", "-r", path, &format!("y.tar.001/{file}")]);
        assert!(got.out == right, "{file}: {}", got.err);
    }
    let checked = run(&scratch, ["check", "-r", path]);
    assert!(!checked.err.contains("broken"), "{}", checked.err);
}

/// What has gone by in a compressed archive before it was known of what it is a part is not said to be missing.
#[test]
fn parts_before_the_first_one_are_named_where_they_cannot_be_had() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "tar cf - -C tree . | split -b 100k - part.; ls part.* > parts; test $(wc -l < parts) -gt 3
         tar czf a.tgz part.ab part.aa $(tail -n +3 parts); tar czf b.tgz $(tail -n +2 parts) part.aa
         tar czf c.tgz part.aa $(tail -n +3 parts) part.ab",
    );
    for archive in ["a.tgz", "b.tgz"] {
        let path = scratch.path(archive);
        let path = path.to_str().unwrap();
        let listed = run(&scratch, ["ls", "-R", "-r", path]);
        assert_eq!(listed.code, 0, "{archive}: {}", listed.err);
        assert!(listed.err.contains("part.ab, a part of it, comes before it"), "{archive}: {}", listed.err);
        assert_eq!(run(&scratch, ["check", "-r", path]).code, 0, "{archive}");
        for part in ["part.aa", "part.ab"] {
            let right = fs::read(scratch.path(part)).unwrap();
            assert!(run(&scratch, ["cat", "-r", path, part]).ok().out == right, "{archive}: {part}");
        }
    }
    let path = scratch.path("c.tgz");
    let right = fs::read(scratch.path("tree/noise")).unwrap();
    assert!(run(&scratch, ["cat", "-r", path.to_str().unwrap(), "part.aa/noise"]).ok().out == right);
}

/// The 18th part that `split` makes is called as an archive of `ar`.
#[test]
fn more_parts_than_archives_have_names() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "tar cf whole -C tree .; split -n 40 -a 2 whole x.tar.; rm whole
         zip -q a.zip x.tar.??",
    );
    let path = scratch.path("a.zip");
    let right = fs::read(scratch.path("tree/noise")).unwrap();
    let got = run(&scratch, ["cat", "-r", path.to_str().unwrap(), "x.tar.aa/noise"]).ok();
    assert!(got.out == right && got.err.is_empty(), "{}", got.err);
}

/// Very many files with numbers are no damage.
#[test]
fn many_numbered_files_are_whole() {
    if !have("python3") {
        return println!("left out: no python3");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 30000 > f; tar cf - f | split -b 50k -a 3 --numeric-suffixes=1 - inner.tar.
python3 - << 'END'
import glob, io, tarfile
with tarfile.open('x.tar', 'w') as tar:
    for number in range(80000):
        entry = tarfile.TarInfo('f.%06d' % number)
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b'x'))
    for part in sorted(glob.glob('inner.tar.*')):
        tar.add(part)
END",
    );
    let path = scratch.path("x.tar");
    let checked = run(&scratch, ["check", "-r", path.to_str().unwrap()]);
    assert_eq!((checked.code, checked.err.as_str()), (0, ""));
    let f = run(&scratch, ["cat", "-r", path.to_str().unwrap(), "inner.tar.001/f"]).ok();
    assert_eq!(f.text().lines().count(), 30_000);
}
