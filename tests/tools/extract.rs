//! `tarnfs extract` beside the programs that people extract with today.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::support::{self, Compare, Ran, Scratch, assert_twins, have, is_root, make_tree, run, survey, tarnfs};

/// Times of folders, and holes where the file systems are the same.
const ALL: Compare = Compare { skip_folder_times: false, holes: true, whole_seconds: false };

/// A tree with everything that a tar keeps, attributes and all.
fn make_full_tree(scratch: &Scratch) {
    make_tree(scratch);
    scratch.shell(
        "truncate -s 3M tree/sparse; printf data | dd of=tree/sparse bs=1 seek=1048576 conv=notrunc status=none
         printf end >> tree/sparse; truncate -s 20M tree/hole
         chmod 0555 tree/folder/inner; chmod 2750 tree/empty
         setfattr -n user.colour -v blue tree/file; setfattr -n user.folder -v yes tree/folder
         setfacl -m u:7:rwx,g:8:r tree/folder/random; setfacl -m d:u:9:rx tree/long",
    );
    if is_root() {
        scratch.shell(
            "cp /bin/true tree/capable; setcap cap_net_raw+ep tree/capable
             printf x > tree/suid; chown 12:34 tree/suid; chmod 6755 tree/suid; chown daemon:daemon tree/folder",
        );
    }
}

/// Makes `archive` of `tree`.
fn pack(scratch: &Scratch, archive: &str) {
    scratch.shell(&format!(
        "tar --format=pax --xattrs --xattrs-include='*' --acls -S --pax-option=delete=atime,delete=ctime -c -f - -C tree . > all.tar
         case {archive} in
             *.gz) gzip -k all.tar;; *.bz2) bzip2 -k all.tar;; *.xz) xz -k --block-size=1MiB all.tar;;
             *.zst) zstd -q -k all.tar;; *.lz4) lz4 -q -k all.tar all.tar.lz4;; *) true;;
         esac"
    ));
}

/// > What is extracted is what GNU tar would have extracted, attributes and holes and all.
#[test]
fn all_is_as_gnu_tar_extracts_it() {
    for archive in ["all.tar", "all.tar.gz", "all.tar.bz2", "all.tar.xz", "all.tar.zst", "all.tar.lz4"] {
        let scratch = Scratch::new();
        make_full_tree(&scratch);
        pack(&scratch, archive);
        scratch.shell("mkdir twin; tar --xattrs --xattrs-include='*' --acls -xpf all.tar -C twin");
        let path = scratch.path(archive);
        let extract = |to: &str, options: &[&str]| {
            let mut words = vec!["extract", "--xattrs-include=*", "-C", to];
            words.extend(options);
            let ran =
                Ran::from(tarnfs(&scratch).args(words).arg(&path).current_dir(scratch.path("")).output().unwrap());
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{archive}");
            assert_twins(&scratch.path(to), &scratch.path("twin"), ALL);
            let (left, right) = (fs::metadata(scratch.path(to)).unwrap(), fs::metadata(scratch.path("twin")).unwrap());
            assert_eq!(
                (left.mode(), left.mtime(), left.mtime_nsec()),
                (right.mode(), right.mtime(), right.mtime_nsec())
            );
        };
        // In one pass, and one thread.
        extract("first", &[]);
        extract("alone", &["-P1"]);
        assert!(!scratch.path(format!("{archive}.tarnfs.sqlite")).exists());
        // With an index.
        scratch.shell(&format!("{} index --index-minimum-file-count 0 {archive}", env!("CARGO_BIN_EXE_tarnfs")));
        assert!(scratch.path(format!("{archive}.tarnfs.sqlite")).exists());
        extract("indexed", &[]);
        extract("indexed-alone", &["-P1"]);
        // Nothing is made anew, and nothing is wrong.
        let before = fs::metadata(scratch.path("first/folder/random")).unwrap().ino();
        extract("first", &["--resume"]);
        extract("first", &["--skip-old"]);
        assert_eq!(fs::metadata(scratch.path("first/folder/random")).unwrap().ino(), before);
        extract("first", &["--overwrite"]);
        assert_ne!(fs::metadata(scratch.path("first/folder/random")).unwrap().ino(), before);
    }
}

/// Other dialects, written by another program, and read by both.
#[test]
fn all_is_as_bsdtar_extracts_it() {
    if !have("bsdtar") {
        return;
    }
    for format in ["pax", "ustar", "gnutar", "cpio", "newc"] {
        let scratch = Scratch::new();
        make_full_tree(&scratch);
        // These cannot hold all of it.
        let without =
            if format == "pax" { "" } else { "rm -rf tree/long tree/long-link tree/wide tree/hole tree/sparse" };
        // What comes before 1970 is written wrongly by some versions: the fraction has the wrong sign.
        let nor = if matches!(format, "cpio" | "newc") { "rm -f tree/nothing tree/block" } else { "rm tree/nothing" };
        scratch.shell(&format!(
            "{without}\n{nor}\nbsdtar --format {format} -cf a -C tree . && mkdir twin && bsdtar -xpf a -C twin"
        ));
        let to = scratch.path("out");
        let words = ["extract", "--xattrs-include=*", "--numeric-owner", "-C"].map(std::ffi::OsString::from);
        let ran = run(&scratch, words.into_iter().chain([to.clone().into(), scratch.path("a").into()]));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{format}");
        let compare = Compare { skip_folder_times: false, holes: false, whole_seconds: format != "pax" };
        assert_twins(&to, &scratch.path("twin"), compare);
    }
}

/// The kernel takes the nearest time that the file system can store.
#[test]
fn times_that_cannot_be_stored_are_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    for name, mtime in [('far', 1 << 40), ('further', 1 << 41), ('near', 1 << 30)]:
        info = tarfile.TarInfo(name); info.mtime = mtime; tar.addfile(info)\"",
    );
    let (archive, to) = (scratch.path("a.tar"), scratch.path("out"));
    let ran = run(&scratch, [OsStr::new("extract"), OsStr::new("-C"), to.as_os_str(), archive.as_os_str()]);
    let is_stored = fs::metadata(to.join("further")).unwrap().mtime() == 1 << 41;
    let said = format!(
        "tarnfs: warning: {}: times so long ago or ahead cannot be stored there (2 times)\n",
        archive.display()
    );
    assert_eq!((ran.code, ran.err), (0, if is_stored { String::new() } else { said }));
}

#[test]
fn for_another_user_all_is_as_gnu_tar_extracts_it() {
    if !is_root() {
        println!("left out: needs root, to become somebody else");
        return;
    }
    let scratch = Scratch::new();
    make_full_tree(&scratch);
    scratch.shell("rm tree/null tree/wide tree/loop; chmod 755 .; mkdir -m 777 all");
    pack(&scratch, "all.tar.gz");
    scratch.shell("cp all.tar all.tar.gz all; chmod 644 all/*");
    scratch.program("all/tarnfs");
    for (options, mask) in [("", "022"), ("-p", "022"), ("", "077"), ("-p", "007"), ("--no-same-permissions", "0")] {
        // GNU tar keeps access lists also where the umask lessens modes.
        let acls = if options == "-p" { "--acls" } else { "" };
        scratch.shell(&format!(
            "rm -rf all/out* all/twin; cd all
             su nobody -s /bin/bash -c 'umask {mask}; mkdir twin; tar --xattrs {acls} {options} -xf all.tar -C twin
                 ./tarnfs extract {options} -C out all.tar.gz 2> error || cat error; ./tarnfs extract {options} -C out2 all.tar
                 chmod 755 twin out out2; touch twin out out2'"
        ));
        let (twin, of_gzip, of_tar) = (scratch.path("all/twin"), scratch.path("all/out"), scratch.path("all/out2"));
        assert_twins(&of_gzip, &twin, ALL);
        assert_twins(&of_tar, &twin, ALL);
    }
}

/// What other containers hold is what their own programs extract.
#[test]
fn other_formats_are_as_their_programs_extract_them() {
    for (needs, archive, make) in [
        ("zip", "a.zip", "cd tree && zip -q -r -y ../a.zip . && mkdir ../twin && unzip -q ../a.zip -d ../twin"),
        ("7z", "a.7z", "cd tree && 7z a -bd -bso0 ../a.7z . && mkdir ../twin && 7z x -bd -bso0 -o../twin ../a.7z"),
        ("mksquashfs", "a.sqsh", "mksquashfs tree a.sqsh -quiet -no-progress && unsquashfs -q -n -d twin a.sqsh"),
        (
            "cpio",
            "a.cpio",
            "cd tree && find . | cpio -o -H newc --quiet > ../a.cpio && mkdir ../twin && cd ../twin \
                            && cpio -i -m -d --quiet < ../a.cpio",
        ),
        (
            "ar",
            "a.a",
            "cd tree && ar -q ../a.a numbers words 2>/dev/null && mkdir ../twin && cd ../twin && ar xo ../a.a",
        ),
    ] {
        if !have(needs) {
            continue;
        }
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir -p tree/folder/inner tree/empty; seq 1 400000 > tree/numbers; head -c 3000000 /dev/urandom > tree/folder/random
             printf hello > tree/words; ln -s words tree/link; chmod 750 tree/folder; chmod 4711 tree/words; : > tree/nothing
             for n in $(seq 300); do echo $n > tree/folder/inner/$n; done
             find tree -exec touch -h -d '2011-02-03 04:05:06 UTC' {} +",
        );
        scratch.shell(make);
        for (to, threads) in [("out", "0"), ("alone", "1")] {
            let to = scratch.path(to);
            run(
                &scratch,
                [
                    "extract".as_ref(),
                    "-P".as_ref(),
                    threads.as_ref(),
                    "-C".as_ref(),
                    to.as_os_str(),
                    scratch.path(archive).as_os_str(),
                ],
            )
            .ok();
            let compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };
            let (found, twin) = (survey(&to, compare), survey(&scratch.path("twin"), compare));
            assert_eq!(found.len(), twin.len(), "{archive}");
            for (path, seen) in &found {
                let other = &twin[path];
                // Some of them do not set the times of links.
                let time = |seen: &support::Seen| if seen.kind == "symlink" { (0, 0) } else { seen.mtime };
                let of = |seen: &support::Seen| (seen.kind, seen.size, seen.content, seen.target.clone(), time(seen));
                assert_eq!(of(seen), of(other), "{archive} {}", path.display());
                // 7z does not keep setuid bits; ar knows none.
                if needs != "7z" && needs != "zip" {
                    assert_eq!(seen.mode, other.mode, "{archive} {}", path.display());
                }
            }
        }
    }
    // One compressed file.
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1 100000 > numbers; for p in gzip bzip2 xz 'zstd -q'; do $p -k numbers; done; lz4 -q numbers numbers.lz4",
    );
    for archive in ["numbers.gz", "numbers.bz2", "numbers.xz", "numbers.zst", "numbers.lz4"] {
        let to = scratch.path(format!("of-{archive}"));
        run(&scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), scratch.path(archive).as_os_str()]).ok();
        assert_eq!(fs::read(to.join("numbers")).unwrap(), fs::read(scratch.path("numbers")).unwrap(), "{archive}");
    }
}

#[test]
fn only_what_was_named_is_extracted() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/src/deep tree/doc tree/empty; for f in src/a.c src/b.h src/deep/c.c doc/d.txt '[x]' x; do echo $f > tree/$f; done
         ln tree/src/a.c tree/doc/hard.c; ln -s ../x tree/doc/link; tar cf a.tar -C tree src doc empty '[x]' x; gzip -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        for (words, expected) in [
            (&["src"][..], "src src/a.c src/b.h src/deep src/deep/c.c"),
            (&["src/deep/c.c"], "src src/deep src/deep/c.c"),
            (&["**/*.c"], "doc doc/hard.c src src/a.c src/deep src/deep/c.c"),
            (&["*/*.c", "x"], "doc doc/hard.c src src/a.c x"),
            (&["[x]"], "[x]"),
            (&["[wx]"], "x"),
            (&["./doc//link", "/empty"], "doc doc/link empty"),
            (&["src", "--strip-components=1"], "a.c b.h deep deep/c.c"),
            (&["--strip-components=2"], "c.c"),
            (&["."], "[x] doc doc/d.txt doc/hard.c doc/link empty src src/a.c src/b.h src/deep src/deep/c.c x"),
        ] {
            let to = scratch.path("to");
            let mut command = tarnfs(&scratch);
            command.args(["extract", "-v", "-C"]).arg(&to).arg(scratch.path(archive)).args(words);
            let ran = Ran::from(command.output().unwrap()).ok();
            let found: Vec<_> =
                survey(&to, Compare::default()).into_keys().map(|path| path.display().to_string()).collect();
            assert_eq!(found.join(" "), expected, "{archive} {words:?}");
            // Those that were named, each once.
            let mut named: Vec<_> = ran.text().lines().map(str::to_owned).collect();
            named.sort();
            named.dedup();
            assert_eq!(named.len(), ran.text().lines().count(), "{}", ran.text());
            assert!(named.len() <= found.len() && !named.is_empty(), "{}", ran.text());
            fs::remove_dir_all(&to).unwrap();
        }
        let ran = run(
            &scratch,
            [
                "extract".as_ref(),
                "-C".as_ref(),
                scratch.path("to").as_os_str(),
                scratch.path(archive).as_os_str(),
                "x".as_ref(),
                "none".as_ref(),
                "*.none".as_ref(),
            ],
        );
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("none: no such file") && ran.err.contains("*.none: no such file"), "{}", ran.err);
        assert_eq!(fs::read(scratch.path("to/x")).unwrap(), b"x\n");
        fs::remove_dir_all(scratch.path("to")).unwrap();
    }
}

#[test]
fn archives_from_a_pipe_and_in_archives_are_extracted() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/numbers; printf x > tree/x; tar --format=pax -czf inner.tar.gz -C tree .; tar --format=pax -cf plain.tar -C tree .
         tar czf outer.tar.gz inner.tar.gz plain.tar tree/x; gzip -c tree/numbers > numbers.gz",
    );
    let program = env!("CARGO_BIN_EXE_tarnfs");
    scratch.shell(&format!(
        "cat inner.tar.gz | {program} extract -C piped -; {program} extract -C redirected - < plain.tar"
    ));
    assert_twins(&scratch.path("piped"), &scratch.path("tree"), Compare::default());
    assert_twins(&scratch.path("redirected"), &scratch.path("tree"), Compare::default());
    for options in ["", "-P1"] {
        scratch.shell(&format!("rm -rf nested; {program} extract {options} -r -C nested outer.tar.gz"));
        for inner in ["nested/inner.tar.gz", "nested/plain.tar"] {
            assert_twins(&scratch.path(inner), &scratch.path("tree"), Compare::default());
        }
        assert_eq!(fs::read(scratch.path("nested/tree/x")).unwrap(), b"x");
    }
    scratch.shell(&format!(
        "{program} extract -r -C one outer.tar.gz inner.tar.gz/x && [ \"$(find one -type f)\" = one/inner.tar.gz/x ]"
    ));
}

#[test]
fn encrypted_files_need_their_password() {
    if !have("zip") || !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 300000 > numbers; printf x > x; 7z a -bd -bso0 -tzip -mem=AES256 -psesame a.zip numbers x; 7z a -bd -bso0 -psesame -mhe=on a.7z numbers x
         echo sesame > words; printf y > y; zip -q a.zip y",
    );
    let program = env!("CARGO_BIN_EXE_tarnfs");
    for archive in ["a.zip", "a.7z"] {
        scratch.shell(&format!(
            "{program} extract --password-file words -C of-{archive} {archive} && cmp numbers of-{archive}/numbers"
        ));
        let ran = scratch.shell(&format!("{program} extract --password wrong -C wrong {archive} 2>&1 || echo code $?; rm -rf wrong/y; ls -A wrong 2>/dev/null || true"));
        assert!(ran.ends_with("code 3\n"), "{ran}");
    }
    // What needs none is extracted.
    let ran = scratch.shell(&format!("{program} extract -C open a.zip 2>&1 || echo code $?; ls -A open"));
    assert!(ran.contains("numbers: ") && ran.ends_with("code 3\ny\n"), "{ran}");
}

/// Of what is damaged nothing is left under its name; all else is whole.
#[test]
fn what_is_damaged_is_left_out() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for n in $(seq 40); do head -c 100000 /dev/urandom > tree/$n; done; tar --format=pax -cf a.tar -C tree .
         gzip -k a.tar; bzip2 -k a.tar; xz -k --block-size=300KiB a.tar; zstd -q -k --no-check a.tar -o n.tar.zst; zstd -q -k a.tar; lz4 -q -k a.tar a.tar.lz4",
    );
    for archive in ["a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar.zst", "a.tar.lz4"] {
        for (name, cut) in [("flipped", false), ("cut", true)] {
            let mut bytes = fs::read(scratch.path(archive)).unwrap();
            let middle = bytes.len() / 2;
            if cut {
                bytes.truncate(middle);
            } else {
                // In the middle, chance may have put a header.
                let inside = bytes.len() * 9 / 16;
                bytes[inside] ^= 0x10;
            }
            let (damaged, to) =
                (scratch.path(format!("{name}-{archive}")), scratch.path(format!("to-{name}-{archive}")));
            fs::write(&damaged, bytes).unwrap();
            let ran = run(&scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), damaged.as_os_str()]);
            assert_eq!(ran.code, 5, "{name} {archive}: {}", ran.err);
            let (found, all) = (survey(&to, Compare::default()), survey(&scratch.path("tree"), Compare::default()));
            assert!(found.len() < all.len(), "{name} {archive}");
            for (path, seen) in &found {
                assert_eq!(seen.content, all[path].content, "{name} {archive} {}", path.display());
            }
            // A cut archive has what comes before.
            assert!(!cut || archive != "a.tar.bz2" || !found.is_empty());
            let forced = scratch.path(format!("forced-{name}-{archive}"));
            let ran = run(
                &scratch,
                ["extract".as_ref(), "--force".as_ref(), "-C".as_ref(), forced.as_os_str(), damaged.as_os_str()],
            );
            assert_eq!(ran.code, 5, "{name} {archive}: {}", ran.err);
            assert!(survey(&forced, Compare::default()).len() >= found.len(), "{name} {archive}");
        }
    }
    // Nobody knows how long a compressed file was that is cut.
    scratch.shell("seq 100000 > numbers; gzip -c numbers > whole; head -c 100000 whole > numbers.gz");
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let said = scratch.shell(&format!(
        "{program} extract -C cut numbers.gz 2>&1 || echo code $?; ls -A cut; {program} extract --force -C cut numbers.gz || echo code $?
         cmp -n $(stat -c %s cut/numbers) cut/numbers numbers && ls cut"
    ));
    assert!(said.contains("numbers: is damaged; --force extracts what of it can be decoded\n"), "{said}");
    assert!(said.ends_with("code 5\ncode 5\nnumbers\n"), "{said}");
    // What can be decoded and fails its checksum comes with --force, as `cat --force` has it.
    let forced = scratch.path("forced-flipped-a.tar.gz");
    let listed = fs::read_dir(&forced).unwrap().count();
    assert!(listed > 20, "{listed}");
    for name in 1..=10 {
        let path = forced.join(name.to_string());
        if path.exists() {
            let cat = Command::new(env!("CARGO_BIN_EXE_tarnfs"))
                .args(["cat", "--force", "-d0"])
                .arg(scratch.path("flipped-a.tar.gz"))
                .arg(name.to_string())
                .output()
                .unwrap();
            assert_eq!(fs::read(&path).unwrap(), cat.stdout, "{name}");
        }
    }
}

/// A file of very many names, and names that come before what they are names of.
#[test]
fn hard_links_are_links() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; printf shared > tree/00; for n in $(seq 3000); do ln tree/00 tree/n$n; done
         printf other > tree/x; ln tree/x tree/y; ln -s nowhere tree/s; ln tree/s tree/t; tar --format=pax -cf a.tar -C tree .; gzip -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        let to = scratch.path(format!("to-{archive}"));
        run(&scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), scratch.path(archive).as_os_str()]).ok();
        assert_twins(&to, &scratch.path("tree"), ALL);
        // Some of them are gone, and come back as names of the same file.
        scratch.shell(&format!("cd to-{archive}; rm n7 n2999 y t"));
        run(
            &scratch,
            ["extract".as_ref(), "--resume".as_ref(), "-C".as_ref(), to.as_os_str(), scratch.path(archive).as_os_str()],
        )
        .ok();
        assert_twins(&to, &scratch.path("tree"), ALL);
        let inode = fs::metadata(to.join("n1")).unwrap().ino();
        run(
            &scratch,
            [
                "extract".as_ref(),
                "--overwrite".as_ref(),
                "-C".as_ref(),
                to.as_os_str(),
                scratch.path(archive).as_os_str(),
            ],
        )
        .ok();
        assert_twins(&to, &scratch.path("tree"), ALL);
        assert_ne!(fs::metadata(to.join("n1")).unwrap().ino(), inode);
        assert!(fs::read_dir(&to).unwrap().all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with('.')));
    }
}

/// The last of several entries of one name, also where an earlier one was written first.
#[test]
fn the_last_entry_of_a_name_counts() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; printf one > a; tar cf ../a.tar a; printf three > a; printf b > b; tar rf ../a.tar a b
         rm b; mkdir b; printf inner > b/inner; tar rf ../a.tar b; cd ..; gzip -k a.tar; mkdir twin; tar xf a.tar -C twin --recursive-unlink",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        let to = scratch.path(format!("to-{archive}"));
        run(&scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), scratch.path(archive).as_os_str()]).ok();
        assert_twins(&to, &scratch.path("twin"), Compare::default());
    }
}

/// A file system that takes `A` and `a` for one name.
#[test]
fn names_that_a_file_system_folds_are_not_lost() {
    if !is_root() || !have("mkfs.ext4") {
        println!("left out: needs root and mkfs.ext4");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/Folder tree/folder; printf upper > tree/File; printf lower > tree/file; printf upper > tree/Folder/x
         printf lower > tree/folder/y; ln -s /etc tree/Link; mkdir tree/link; printf evil > tree/link/passwd; printf plain > tree/plain
         tar --format=pax -cf a.tar -C tree .; gzip -k a.tar; truncate -s 32M image; mkdir at",
    );
    let made =
        "mkfs.ext4 -q -O casefold -E encoding=utf8 image && mount -o loop image at && mkdir at/to && chattr +F at/to";
    let can =
        Command::new("bash").args(["-c", made]).current_dir(scratch.path("")).stderr(Stdio::null()).status().unwrap();
    if !can.success() {
        println!("left out: no file system here folds names");
        let _ = Command::new("umount").arg(scratch.path("at")).stderr(Stdio::null()).status();
        return;
    }
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let result = std::panic::catch_unwind(|| {
        for archive in ["a.tar", "a.tar.gz"] {
            for policy in ["", "--overwrite", "--skip-old", "--keep-newer", "--resume"] {
                let said = scratch.shell(&format!(
                    "rm -rf at/to/*; {program} extract {policy} -C at/to {archive} 2>&1 || echo code $?; cat at/to/plain at/to/?ile; ls -A at/to/?older"
                ));
                assert!(said.contains("has the same name as") && said.contains("code 1\nplain"), "{policy}: {said}");
                // One of each two is there, and is whole.
                assert!(
                    said.ends_with("plainupperx\n")
                        || said.ends_with("plainlowerx\n")
                        || said.ends_with("plainlowery\n")
                        || said.ends_with("plainuppery\n"),
                    "{policy}: {said}"
                );
            }
        }
    });
    scratch.shell("umount at");
    assert!(result.is_ok());
}

/// What cannot be kept is told in one line, and nothing is lost for it.
#[test]
fn what_the_file_system_cannot_keep_is_told() {
    if !is_root() {
        println!("left out: needs root");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for n in 1 2 3; do printf x > tree/$n; setfattr -n user.colour -v blue tree/$n; done; cp /bin/true tree/c
         setcap cap_net_raw+ep tree/c; tar --xattrs --xattrs-include='*' -cf a.tar -C tree .",
    );
    // A tmpfs of an older kernel has no attributes of users; what is refused in any case is one of no namespace.
    scratch.shell("mkdir plain; printf x > plain/f; tar --format=pax --pax-option='SCHILY.xattr.nonsense.x:=1' -cf b.tar -C plain f");
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let said = scratch.shell(&format!("{program} extract -C to a.tar 2>&1; getcap to/c"));
    assert!(
        said.contains("capabilities are kept with --xattrs-include='*' (once)") && said.lines().count() == 1,
        "{said}"
    );
    let said = scratch
        .shell(&format!("{program} extract --xattrs-include='*' -C all a.tar 2>&1; getcap all/c; getfattr -d all/1"));
    assert!(said.contains("cap_net_raw") && said.contains("user.colour"), "{said}");
    let said =
        scratch.shell(&format!("{program} extract --xattrs-include='nonsense.*' -C of-b b.tar 2>&1; cat of-b/f"));
    assert!(
        said.contains("extended attributes of nonsense cannot be stored there") && said.ends_with("(once)\nx"),
        "{said}"
    );
    for (option, has) in
        [("--no-xattrs", false), ("--xattrs-exclude='user.c*'", false), ("--xattrs-exclude='user.d*'", true)]
    {
        let said =
            scratch.shell(&format!("rm -rf to; {program} extract {option} -C to a.tar 2>/dev/null; getfattr -d to/1"));
        assert_eq!(said.contains("user.colour"), has, "{option}");
    }
}

/// Whoever is not root makes no devices, and the rest is extracted.
#[test]
fn devices_are_for_root() {
    if !is_root() {
        println!("left out: needs root, to become somebody else");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree all; mknod tree/null c 1 3; mkfifo tree/fifo; printf x > tree/x; tar cf all/a.tar -C tree .; chmod 777 all; chmod 755 .");
    scratch.program("all/tarnfs");
    let said =
        scratch.shell("cd all; su nobody -s /bin/bash -c './tarnfs extract -C to a.tar 2>&1 || echo code $?; ls to'");
    assert!(
        said.contains("null: ") && said.contains("only root may make devices") && said.ends_with("code 1\nfifo\nx\n"),
        "{said}"
    );
}

#[test]
fn owners_are_found_by_their_names() {
    if !is_root() {
        println!("left out: needs root");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; printf x > tree/x; tar cf a.tar --owner=daemon:4321 --group=nobody-knows-it:4322 -C tree x",
    );
    let program = env!("CARGO_BIN_EXE_tarnfs");
    for (options, expected) in [("", "daemon 4322"), ("--numeric-owner", "4321 4322"), ("-o", "0 0")] {
        let daemon = scratch.shell("id -u daemon");
        let expected = expected.replace("daemon", daemon.trim());
        let said = scratch.shell(&format!("rm -rf to; {program} extract {options} -C to a.tar; stat -c '%u %g' to/x"));
        assert_eq!(said.trim(), expected, "{options}");
    }
}

/// A person at a terminal sees how far it has come; nobody else does.
#[test]
fn a_terminal_shows_how_far_it_has_come() {
    if !have("script") || !have("strace") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for n in $(seq 70); do head -c 20000 /dev/zero > tree/$n; done; tar --format=pax -cf a.tar -C tree .");
    let program = env!("CARGO_BIN_EXE_tarnfs");
    // One call takes so long that the bar comes.
    let slow = "strace -f -o /dev/null -e trace=utimensat -e inject=utimensat:delay_enter=900000:when=5";
    let shown = scratch.shell(&format!("script -qec '{slow} {program} extract -C to a.tar' /dev/null"));
    assert!(shown.contains(" files"), "{shown:?}");
    assert_eq!(scratch.shell(&format!("{slow} {program} extract -C quiet a.tar 2>&1")), "");
    assert_twins(&scratch.path("to"), &scratch.path("tree"), Compare::default());
    assert_twins(&scratch.path("quiet"), &scratch.path("tree"), Compare::default());
}

/// Another file system may be mounted below the folder that is extracted to.
#[test]
fn files_go_into_other_mounts() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; mkdir -p t/sub/deep; seq 1000 > t/sub/f; seq 9 > t/g; ln t/sub/f t/sub/deep/h; ln -s f t/sub/l; mkfifo -m 640 t/sub/p
         chown -h 12:34 t/sub/l t/sub/p t/sub/f; tar -C t -cf a.tar .; gzip -k a.tar",
    );
    for (archive, mount) in [("a.tar", "-t tmpfs none"), ("a.tar.gz", "-t tmpfs none"), ("a.tar.gz", "--bind other")] {
        scratch.shell(&format!("rm -rf at other; mkdir -p at/sub other; mount {mount} at/sub"));
        let program = env!("CARGO_BIN_EXE_tarnfs");
        let seen = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; {program} extract -C at {archive} 2>&1 || echo failed; diff -r --no-dereference t/sub/f at/sub/f
             stat -c '%n %u %g %a' at/sub/l at/sub/p at/sub/deep/h; ls -A at at/sub; umount at/sub"
        ));
        let expected =
            "at/sub/l 12 34 777\nat/sub/p 12 34 640\nat/sub/deep/h 12 34 644\nat:\ng\nsub\n\nat/sub:\ndeep\nf\nl\np\n";
        assert_eq!(seen, expected, "{archive} {mount}");
    }
}

/// One that the file system has no room for in its numbers is its own trouble.
#[test]
fn a_file_that_is_too_large_keeps_nobody_else() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import io, tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as file:
    def add(name, body, **more):
        entry = tarfile.TarInfo(name)
        entry.size, entry.pax_headers = len(body), more
        file.addfile(entry, io.BytesIO(body))
    add('first', b'first')
    length = 1 << 62
    body = ('2\\n0\\n5\\n%d\\n0\\n' % length).encode().ljust(512, b'\\0') + b'large'
    add('GNUSparseFile.0/large', body, **{'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'large',
        'GNU.sparse.realsize': str(length)})
    add('last', b'last')
E
         gzip -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        scratch.shell("rm -rf at; mkdir at");
        let mut command = tarnfs(&scratch);
        let ran =
            Ran::from(command.args(["extract", "-C", "at", archive]).current_dir(scratch.path("")).output().unwrap());
        assert!(ran.code == 1 && ran.err.contains("large: "), "{archive}: {} {}", ran.code, ran.err);
        assert_eq!(scratch.shell("cat at/first at/last; ls -A at"), "firstlastfirst\nlast\n", "{archive}");
    }
}

/// Without their first folders two files may have one name: the last one of the archive is there, as with tar.
#[test]
fn of_two_files_of_one_name_the_last_one_stays() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir a b; head -c 20000000 /dev/urandom > a/x; echo last > b/x; tar -cf a.tar a b; gzip -1k a.tar
         mkdir c d; echo one > c/x; echo two > d/x; touch -d @1000 c/x d/x; tar -cf same.tar c d",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        scratch.shell("rm -rf at");
        let words = ["extract", "-P", "2", "--overwrite", "--strip-components=1", "-C", "at", archive];
        Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
        assert_eq!(scratch.shell("cat at/x"), "last\n", "{archive}");
    }
    // What this call has made is no file that an earlier one has left.
    let words = ["extract", "--resume", "--overwrite", "--strip-components=1", "-C", "at2", "same.tar"];
    Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
    assert_eq!(scratch.shell("cat at2/x"), "two\n");
}

/// Access control lists of folders that were there stay, and what is made there gets none from them.
#[test]
fn lists_of_folders_that_were_there_stay() {
    if !is_root() || !have("setfacl") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p t/sub; echo f > t/sub/f; tar -C t -cf a.tar .; gzip -k a.tar");
    for (archive, words) in [("a.tar", ""), ("a.tar", "sub/f"), ("a.tar.gz", ""), ("a.tar.gz", "sub/f")] {
        scratch.shell("rm -rf at; mkdir -p at/sub; setfacl -d -m u:1000:rwx at/sub");
        let mut command = tarnfs(&scratch);
        command.args(["extract", "-C", "at", archive]).args(words.split_whitespace());
        Ran::from(command.current_dir(scratch.path("")).output().unwrap()).ok();
        let lists = scratch.shell("getfacl -cnd at/sub | grep -c 1000; getfacl -cn at/sub/f | grep -c 1000 || true");
        assert_eq!(lists, "1\n0\n", "{archive} {words}");
    }
}

/// What was extracted although it is damaged is not taken for whole by a call that goes on.
#[test]
fn damaged_files_are_not_taken_for_whole() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1000 > f; touch -d @1000000000 f; zip -q0 a.zip f; mkdir at
         python3 -c \"b = bytearray(open('a.zip', 'rb').read()); b[500] ^= 1; open('a.zip', 'wb').write(b)\"",
    );
    let ran = |words: &[&str]| {
        let mut command = tarnfs(&scratch);
        command.args(["extract", "-C", "at"]).args(words).arg("a.zip").current_dir(scratch.path(""));
        Ran::from(command.output().unwrap()).code
    };
    assert_eq!(ran(&["--force"]), 5);
    assert_eq!(scratch.shell("(cmp -l f at/f || true) | wc -l"), "1\n");
    assert_ne!(ran(&["--resume"]), 0);
}

/// The names of a folder are not looked through for each of them.
#[test]
fn names_beyond_ascii_are_told_apart_at_once() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir t; cd t; seq -f 'имя %.0f' 3000 | xargs -d '\\n' touch; cd ..; tar -C t -cf a.tar .; mkdir at");
    let strace = |words: &str| {
        scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; strace -f -c -o counts {} extract -C at {words} a.tar; grep getdents counts || true",
            env!("CARGO_BIN_EXE_tarnfs")
        ))
    };
    if !have("strace") {
        return;
    }
    strace("");
    let counts = strace("--resume");
    let calls = counts.split_whitespace().nth(3).map_or(0, |calls| calls.parse::<u64>().unwrap());
    assert!((1..100).contains(&calls), "{counts}");
    // Nor where nobody knows what the file system does with names.
    for policy in ["--resume", "--skip-old", "--overwrite"] {
        let calls = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; strace -f -qq -o log -e trace=getdents64,fstatfs -e inject=fstatfs:error=ENOSYS {} extract -C at {policy} a.tar
             grep -q INJECTED log; grep -c getdents64 log",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert!((1..100).contains(&calls.trim().parse::<u64>().unwrap()), "{policy}: {calls}");
    }
}

/// Without their first folders two folders may be one: the last one of the archive says what it is like, as with tar.
#[test]
fn of_two_folders_of_one_name_the_last_one_counts() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p a/x/in b/x/in c; chmod 700 a/x; chmod 755 b/x; chmod 750 a/x/in; chmod 711 b/x/in; echo f > a/x/in/f
         touch -d '2001-01-01 UTC' a/x a/x/in; touch -d '2002-01-01 UTC' b/x b/x/in; chmod 500 c
         tar -cf ab.tar a/x b/x c; tar -cf ba.tar b/x c a/x; gzip -k ba.tar",
    );
    for archive in ["ab.tar", "ba.tar", "ba.tar.gz"] {
        scratch.shell(&format!("rm -rf at gnu; mkdir at gnu; tar -xpf {archive} --strip-components=1 -C gnu"));
        let words = ["extract", "-p", "--overwrite", "--strip-components=1", "-C", "at", archive];
        Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
        let found = |folder: &str| scratch.shell(&format!("cd {folder}; stat -c '%n %a %Y' x x/in x/in/f"));
        assert_eq!(found("at"), found("gnu"), "{archive}");
    }
}

/// What is named is there, also where something else that was named has it in it.
#[test]
fn what_lies_in_what_was_named_is_there() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p home/me home/.h d.txt; echo n > home/me/notes.txt; echo m > home/me/m; echo h > home/.h/h; echo d > d.txt/d.txt
         tar -cf w.tar home d.txt",
    );
    let extract = |words: &[&str]| {
        let words = [&["extract", "--overwrite", "-C", "o", "w.tar"], words].concat();
        Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap())
    };
    for words in [
        &["home", "home/me/notes.txt", "home/me"][..],
        &["home/me/notes.txt", "home"],
        &["*.txt", "d.txt/d.txt"],
        &["home/.h", "home/.h/*"],
        &["home", "**/notes.*"],
    ] {
        let ran = extract(words);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    }
    // As `find` and `xargs` name them.
    let said = scratch.shell(&format!(
        "{0} find w.tar home -print0 | xargs -0 {0} extract -C all w.tar 2>&1; diff -r all/home home",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert_eq!(said, "");
    let ran = extract(&["home", "home/me/none", "home/me/*.none", "**/none"]);
    assert_eq!((ran.code, ran.err.lines().count()), (1, 3), "{}", ran.err);
}
