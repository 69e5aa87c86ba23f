//! `tarnfs convert`: what was in the old archive is in the new one, and nothing is replaced that was not verified.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use crate::support::{Compare, Mounted, Ran, Scratch, assert_twins, can_mount, have, is_root, make_tree, tarnfs};

fn run_in(scratch: &Scratch, words: &str) -> (i32, String) {
    let ran = tarnfs(scratch).args(words.split_whitespace()).current_dir(scratch.path("")).output().unwrap();
    (ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[track_caller]
fn convert(scratch: &Scratch, words: &str) {
    assert_eq!(run_in(scratch, &format!("convert {words}")), (0, String::new()), "{words}");
}

/// > Where `convert` only changes the compression, the bytes that are compressed stay the same.
#[test]
fn another_compression_leaves_the_tar_as_it_is() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    // What nobody but GNU tar writes is kept, too.
    scratch.shell("tar --format=gnu -cSf x.tar tree; gzip -k x.tar; xz -k --block-size=1GiB x.tar; zstd -qk x.tar; bzip2 -k x.tar; lz4 -q x.tar x.tar.lz4");
    for from in ["tar", "tar.gz", "tar.xz", "tar.zst", "tar.bz2", "tar.lz4"] {
        for (to, decompress) in [
            ("tar", "cat"),
            ("tar.gz", "gzip -dc"),
            ("tar.xz", "xz -dc"),
            ("tar.zst", "zstd -dcq"),
            ("tar.lz4", "lz4 -dcq"),
        ] {
            if from != "tar.gz" && to != "tar.zst" {
                continue;
            }
            convert(&scratch, &format!("--overwrite --level=1 x.{from} y.{to}").replace("--level=1", level(to)));
            scratch.shell(&format!("{decompress} y.{to} | cmp - x.tar"));
        }
    }
    // One frame, or one block, becomes many.
    scratch.shell("seq 1 2000000 > many; tar -cf many.tar many; zstd -q many.tar; xz -1 --block-size=1GiB many.tar");
    convert(&scratch, "many.tar.zst parts.tar.zst");
    let bytes = fs::read(scratch.path("parts.tar.zst")).unwrap();
    assert_eq!(bytes[bytes.len() - 4..], 0x8f92_eab1_u32.to_le_bytes());
    convert(&scratch, "--level=1 many.tar.xz parts.tar.xz");
    scratch.shell(
        "xz -lv parts.tar.xz | grep -Eq 'Blocks: +[1-9][0-9]'; xz -dc parts.tar.xz | cmp - <(zstd -dcq parts.tar.zst)",
    );
    // A single file is no tar.
    scratch.shell("xz -1k many");
    convert(&scratch, "many.xz many.zst");
    convert(&scratch, "many.xz many.gz");
    scratch.shell("zstd -dcq many.zst | cmp - many; gzip -dc many.gz | cmp - many");
}

fn level(suffix: &str) -> &'static str {
    if matches!(suffix, "tar" | "tar.lz4") { "" } else { "--level=1" }
}

/// > `convert` makes a tar or a zip of any archive that can be mounted, with all that both can hold.
#[test]
fn another_format_keeps_what_both_can_hold() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("rm -f tree/fifo tree/null tree/wide tree/loop; chmod 640 tree/over; touch -d 2001-02-03 tree/nothing; truncate -s 3M tree/hole; echo end >> tree/hole; tar -cSf x.tar tree; gzip -k x.tar");
    let compare = Compare { skip_folder_times: false, holes: false, whole_seconds: false };
    if have("cpio") {
        scratch.shell("find tree -print0 | cpio --quiet -0 -o -H newc > x.cpio 2> /dev/null");
        convert(&scratch, "x.cpio cpio.tar.zst");
        scratch.shell("mkdir cpio; tar --zstd -xpf cpio.tar.zst -C cpio");
        assert_twins(&scratch.path("cpio/tree"), &scratch.path("tree"), Compare { whole_seconds: true, ..compare });
    }
    if have("mksquashfs") {
        scratch.shell("mksquashfs tree x.squashfs -quiet -no-progress -no-hardlinks > /dev/null 2>&1 || mksquashfs tree x.squashfs -quiet -no-progress > /dev/null");
        convert(&scratch, "x.squashfs squashfs.tar.gz");
        scratch.shell("mkdir squashfs; tar -xzpf squashfs.tar.gz -C squashfs; diff -r --no-dereference tree squashfs");
    }
    if have("zip") && have("unzip") && have("7z") {
        let (code, said) = run_in(&scratch, "convert x.tar.gz x.zip");
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("further names of one file are files of their own there: tree/"), "{said}");
        scratch.shell("unzip -tq x.zip; 7z t x.zip > /dev/null");
        scratch
            .shell("cd tree; 7z a -bd -bso0 -snl ../x.7z . > /dev/null; cd ..; zip -qry --symlinks z.zip tree/folder");
        convert(&scratch, "x.7z seven.tar.xz --level=1");
        scratch.shell("mkdir seven; tar -xJpf seven.tar.xz -C seven; diff -r --no-dereference tree seven");
        convert(&scratch, "z.zip zipped.tar");
        scratch.shell(
            "mkdir zipped; tar -xpf zipped.tar -C zipped; diff -r --no-dereference tree/folder zipped/tree/folder",
        );
        // A password opens what it opens elsewhere; without it nothing is written.
        scratch.shell("zip -q -P sesame secret.zip tree/file");
        assert_eq!(run_in(&scratch, "convert --password sesame secret.zip open.tar").0, 0);
        assert_eq!(scratch.shell("tar -xOf open.tar tree/file"), "hello");
        assert_ne!(run_in(&scratch, "convert secret.zip closed.tar").0, 0);
        assert!(!scratch.path("closed.tar").exists());
    }
    // Archives in it as folders.
    scratch.shell("tar -cf outer.tar x.tar.gz");
    convert(&scratch, "-r outer.tar inner.tar");
    assert!(scratch.shell("tar -tf inner.tar").contains("x.tar.gz/tree/file\n"));
    if can_mount() {
        convert(&scratch, "-r x.tar.gz again.tar.zst --compress zstd --overwrite");
        let mounted = Mounted::new(&scratch, scratch.path("again.tar.zst"), &[]);
        // GNU tar has stored whole seconds.
        let compare = Compare { holes: true, whole_seconds: true, ..compare };
        assert_twins(&mounted.path("tree"), &scratch.path("tree"), compare);
    }
}

/// > `convert --replace` removes the old archive only when all of it was found in the new one.
#[test]
fn nothing_is_replaced_that_was_not_verified() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar -cf x.tar tree; cp x.tar same.tar; gzip -k x.tar; chmod 600 x.tar.gz");
    if is_root() {
        scratch.shell("chown 123:456 x.tar.gz");
    }
    let (code, said) = run_in(&scratch, "convert x.tar.gz x.tar.gz");
    assert!(code == 2 && said.contains("--replace"), "{code} {said}");
    // In place.
    convert(&scratch, "--replace x.tar.gz x.tar.gz");
    let found = fs::metadata(scratch.path("x.tar.gz")).unwrap();
    assert_eq!(found.mode() & 0o777, 0o600);
    if is_root() {
        assert_eq!((found.uid(), found.gid()), (123, 456));
    }
    assert_eq!(fs::read(scratch.path("x.tar.gz")).unwrap()[12..14], *b"BC");
    scratch.shell("gzip -dc x.tar.gz | cmp - x.tar");
    // By another name.
    convert(&scratch, "--replace x.tar.gz x.tar.zst");
    assert!(!scratch.path("x.tar.gz").exists());
    scratch.shell("zstd -dcq x.tar.zst | cmp - x.tar");
    // To another format, and back.
    scratch.shell("rm tree/fifo; rm -f tree/null tree/wide tree/loop tree/block tree/over; tar --numeric-owner -cf y.tar tree/folder");
    let (code, said) = run_in(&scratch, "convert --replace y.tar y.zip");
    assert_eq!(code, 0, "{said}");
    assert!(!scratch.path("y.tar").exists());
    convert(&scratch, "--replace y.zip y.tar.xz --level=1");
    scratch.shell("tar -xOf y.tar.xz tree/folder/random | cmp - tree/folder/random");
    assert!(!scratch.path("y.zip").exists());
    // One that is damaged is kept, and nothing is written.
    let file = fs::OpenOptions::new().write(true).open(scratch.path("x.tar.zst")).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    file.write_all_at(b"damage damage", middle).unwrap();
    for words in
        ["convert --replace x.tar.zst z.tar.gz", "convert --replace x.tar.zst x.tar.zst", "convert x.tar.zst z.zip"]
    {
        let before = fs::read(scratch.path("x.tar.zst")).unwrap();
        let (code, said) = run_in(&scratch, words);
        assert!(code == 5, "{words}: {code} {said}");
        assert_eq!(fs::read(scratch.path("x.tar.zst")).unwrap(), before);
        assert!(!Path::new(&scratch.path("z.tar.gz")).exists() && !scratch.path("z.zip").exists());
    }
    // What is no archive, and what is there.
    assert_eq!(run_in(&scratch, "convert tree/file z.tar").0, 4);
    assert_eq!(run_in(&scratch, "convert same.tar x.tar.zst").0, 1);
    assert_eq!(run_in(&scratch, "convert --replace same.tar -").0, 2);
}

/// Indexes are of no use without their archive, wherever they lie and whatever options they were made with.
#[test]
fn indexes_of_what_is_replaced_are_removed() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree elsewhere; seq 1000 > tree/file; tar -czf x.tar.gz tree");
    let index = |options: &str| {
        let (code, said) = run_in(&scratch, &format!("index {options} x.tar.gz"));
        assert_eq!(code, 0, "{options}: {said}");
    };
    let make = || {
        for options in ["", "-r", "--index-folders=elsewhere", "--format=ratarmount"] {
            index(options);
        }
    };
    let left = || scratch.shell("ls . elsewhere | grep sqlite || true");
    make();
    assert_eq!(left().lines().count(), 4, "{}", left());
    // In place. The new one may have an index where the old one had its.
    convert(&scratch, "--replace --index-folders=,elsewhere x.tar.gz x.tar.gz");
    assert!(left().lines().all(|name| name == "x.tar.gz.tarnfs.sqlite"), "{}", left());
    let (code, said) = run_in(&scratch, "ls x.tar.gz");
    assert!(code == 0 && !said.contains("sqlite"), "{code} {said}");
    make();
    convert(&scratch, "--replace --index-folders=,elsewhere x.tar.gz y.tar.zst");
    assert!(left().lines().all(|name| name == "y.tar.zst.tarnfs.sqlite"), "{}", left());
}

/// What the new archive would not have is not thrown away.
#[test]
fn nothing_is_replaced_that_the_new_one_cannot_hold() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo one > tree/one; tar -cf plain.tar tree; mkfifo tree/fifo; tar -cf fifo.tar tree; rm tree/fifo
         cp plain.tar versions.tar; echo two > tree/one; tar -rf versions.tar tree/one
         split -b 4096 -a 3 --numeric-suffixes=1 plain.tar parts.tar.",
    );
    for (words, code, message) in [
        ("--replace fifo.tar fifo.zip", 1, "the new one would not have all of it"),
        ("--replace versions.tar versions.zip", 1, "1 older entry of the same names"),
        ("--replace --force plain.tar plain.zip", 2, "--force: what is damaged would look whole in the new archive"),
        ("--replace parts.tar.001 parts.zip", 2, "it lies in several files"),
    ] {
        let (found, said) = run_in(&scratch, &format!("convert {words}"));
        assert!(found == code && said.contains(message), "{words}: {found} {said}");
        let mut files = words.split_whitespace().rev();
        assert!(
            !scratch.path(files.next().unwrap()).exists() && scratch.path(files.next().unwrap()).exists(),
            "{words}"
        );
    }
    // Without that they are converted, and stay.
    assert_eq!(run_in(&scratch, "convert versions.tar versions.zip").0, 0);
    assert!(scratch.path("versions.tar").exists() && scratch.path("versions.zip").exists());
}

/// > `convert` makes a tar or a zip of any archive that can be mounted, with all that both can hold.
#[test]
fn roots_empty_files_and_hashes_of_others_are_kept() {
    let scratch = Scratch::new();
    scratch.shell(": > e; gzip e");
    convert(&scratch, "e.gz e.bz2");
    assert_eq!(scratch.shell("bzip2 -t e.bz2 && bzip2 -dc e.bz2 | wc -c"), "0\n");
    if !have("mksquashfs") || !have("setfattr") {
        return;
    }
    scratch.shell(
        "mkdir tree out; echo one > tree/one; setfattr -n user.hash.sha256 -v mine tree/one; chmod 750 tree
         touch -d @1000000000 tree; mksquashfs tree x.squashfs -quiet -no-progress > /dev/null",
    );
    convert(&scratch, "x.squashfs x.tar.gz");
    scratch.shell("tar --xattrs -C out -xpf x.tar.gz");
    assert_eq!(
        scratch.shell("stat -c '%a %Y' out; getfattr --only-values -n user.hash.sha256 out/one"),
        "750 1000000000\nmine"
    );
    // What is in it is compared with all attributes before the old one goes.
    convert(&scratch, "--replace x.squashfs y.tar.zst");
    assert!(!scratch.path("x.squashfs").exists());
}

/// What would be lost where nobody looks keeps the old archive.
#[test]
fn what_would_be_lost_without_a_word_is_not_replaced() {
    let scratch = Scratch::new();
    scratch.shell("echo a > a; echo b > b; tar -cf a.tar a; tar -cf b.tar b; cat a.tar b.tar > u.tar; gzip -k u.tar");
    // Another tar behind the end of the first.
    for from in ["u.tar", "u.tar.gz"] {
        let (code, said) = run_in(&scratch, &format!("convert --replace {from} t.zip"));
        assert!(code == 1 && said.contains("they look like another tar"), "{code} {said}");
        assert!(scratch.path(from).exists() && !scratch.path("t.zip").exists(), "{from}");
    }
    let (code, said) = run_in(&scratch, "convert u.tar.gz t.zip");
    assert!(code == 0 && said.contains("they look like another tar"), "{code} {said}");
    convert(&scratch, "--replace u.tar.gz u.tar.zst");
    scratch.shell("zstd -dcq u.tar.zst | cmp - u.tar");
    // Text before what uuencode writes, whatever becomes of that.
    scratch.shell("printf 'Subject: the reason why\\n\\nbegin 644 f\\n#86)C\\n`\\nend\\n' > s.uue");
    for to in ["s.tar", "s.zst"] {
        let (code, said) = run_in(&scratch, &format!("convert --replace s.uue {to}"));
        assert!(code == 1 && said.contains("the header fields before its text: that is not kept"), "{code} {said}");
        assert!(scratch.path("s.uue").exists() && !scratch.path(to).exists(), "{to}");
    }
    let (code, said) = run_in(&scratch, "convert s.uue s.tar");
    assert!(code == 0 && said.contains("the header fields before its text: that is not kept"), "{code} {said}");
    scratch.shell("tail -n +3 s.uue > plain.uue");
    convert(&scratch, "--replace plain.uue plain.tar");
    // An index that was made with -r.
    scratch.shell("tar -cf v.tar a b.tar; echo new > a; tar -rf v.tar a; cp v.tar v");
    assert_eq!(run_in(&scratch, "index -r v.tar").0, 0);
    convert(&scratch, "v.tar v.tar.zst");
    scratch.shell("zstd -dcq v.tar.zst | cmp - v.tar");
    let (code, said) = run_in(&scratch, "convert --replace v.tar v.zip");
    assert!(code == 1 && said.contains("v.zip: 1 older entry of the same names"), "{code} {said}");
    let (code, said) = run_in(&scratch, "convert -r --replace v.tar w.tar");
    assert!(code == 2 && said.contains("with -r"), "{code} {said}");
    scratch.shell("cmp v v.tar; test ! -e v.zip; test ! -e w.tar");
    // A sidecar of ratarmount, in which hard links are files.
    scratch.shell("mkdir d; echo x > d/x; ln d/x d/y; tar -czf h.tar.gz d");
    assert_eq!(run_in(&scratch, "index --format ratarmount h.tar.gz").0, 0);
    assert!(scratch.path("h.tar.gz.index.sqlite").exists());
    let (code, said) = run_in(&scratch, "convert --replace h.tar.gz h.zip");
    assert!(code == 1 && said.contains("further names of one file"), "{code} {said}");
    assert!(scratch.path("h.tar.gz").exists() && !scratch.path("h.zip").exists());
}

/// What has another name of its own keeps that, and what belongs to it.
#[test]
fn another_name_of_the_archive_keeps_its_indexes() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -czf a.tar.gz one; ln a.tar.gz b.tar.gz; cp a.tar.gz before");
    let place = scratch.path("");
    let program = |words: &[&str]| Ran::from(tarnfs(&scratch).args(words).current_dir(&place).output().unwrap());
    program(&["index", "a.tar.gz"]).ok();
    program(&["index", "--format", "ratarmount", "a.tar.gz"]).ok();
    let ran = program(&["convert", "--replace", "a.tar.gz", "b.tar.gz"]);
    let said = "tarnfs: warning: a.tar.gz: stays as it is: b.tar.gz was another name of that file\n";
    assert_eq!((ran.code, ran.err.as_str()), (0, said));
    let [a, b, before] = ["a.tar.gz", "b.tar.gz", "before"].map(|name| fs::read(scratch.path(name)).unwrap());
    assert!(a == before && b != before);
    assert!(scratch.path("a.tar.gz.tarnfs.sqlite").exists() && scratch.path("a.tar.gz.index.sqlite").exists());
    assert_eq!(program(&["cat", "--no-recreate-index", "a.tar.gz", "one"]).ok().text(), "one\n");
    assert_eq!(program(&["cat", "b.tar.gz", "one"]).ok().text(), "one\n");
}

/// Who could not read the old archive cannot read the new one, whatever that has replaced.
#[test]
fn what_replaces_another_file_is_not_readable_by_more() {
    let scratch = Scratch::new();
    scratch
        .shell("echo x > f; tar -cf secret.tar f; chmod 600 secret.tar; tar -czf old.tar.gz f; chmod 644 old.tar.gz");
    convert(&scratch, "--replace --overwrite secret.tar old.tar.gz");
    assert_eq!(fs::metadata(scratch.path("old.tar.gz")).unwrap().mode() & 0o777, 0o600);
}

/// > Who may not read an archive may not read what `convert` makes of it.
#[test]
fn what_becomes_of_a_private_archive_is_private() {
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; for n in $(seq 1500); do echo $n > f$n; done; tar --numeric-owner -cf a.tar f*; cp a.tar group.tar; cp a.tar open.tar
         chmod 600 a.tar; chmod 640 group.tar; chmod 444 open.tar; tar -cf old.zip f1; chmod 644 old.zip",
    );
    for (words, mode) in [
        ("a.tar a.tar.gz", 0o600),
        ("a.tar a.zip", 0o600),
        ("group.tar group.tar.gz", 0o640),
        ("open.tar open.tar.gz", 0o644),
        ("--overwrite a.tar old.zip", 0o600),
    ] {
        scratch.shell(&format!("umask 022; {} convert {words}", env!("CARGO_BIN_EXE_tarnfs")));
        let to = words.split_whitespace().last().unwrap();
        let of = |name: &str| fs::metadata(scratch.path(name)).map(|found| found.mode() & 0o777).ok();
        assert_eq!(of(to), Some(mode), "{words}");
        let index = of(&format!("{to}.tarnfs.sqlite"));
        assert_eq!(index.is_some(), to.contains(".tar"), "{words}");
        assert!(index.is_none_or(|index| index & !mode == 0), "{words}: {index:?}");
    }
    // A list says who may read it, and the new one has none.
    if have("setfacl") {
        scratch.shell("setfacl -m u:12345:- open.tar; mkdir listed");
        convert(&scratch, "open.tar listed/open.zip");
        assert_eq!(fs::metadata(scratch.path("listed/open.zip")).unwrap().mode() & 0o777, 0o600);
    }
    if is_root() {
        // Another group has nothing to do with it.
        scratch.shell("chgrp 4321 group.tar; mkdir in; chgrp 0 in");
        convert(&scratch, "group.tar in/group.zip");
        assert_eq!(fs::metadata(scratch.path("in/group.zip")).unwrap().mode() & 0o777, 0o600);
    }
}

/// > What another user has put into a folder where all may write does not get what is written there.
#[test]
fn nothing_goes_where_another_user_leads_it() {
    if !is_root() {
        println!("left out: needs root, to be another user, too");
        return;
    }
    let program = env!("CARGO_BIN_EXE_tarnfs");
    for command in ["create --overwrite PLACE priv", "convert --overwrite --transform ^ x from.tar PLACE"] {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir -m 1777 shared; mkdir -m 755 priv; echo topsecret > priv/shadow; chmod 600 priv/shadow
             tar -cf from.tar priv; chmod 600 from.tar; echo mine > victim; echo mine > own.tar; cd shared
             mkfifo -m 666 pipe.tar own-pipe.tar; ln -s ../victim link.tar; ln -s ../own.tar own.tar; echo old > old.tar; chmod 666 old.tar
             mkfifo -m 666 ../pipe; ln -s ../pipe led.tar; ln -s shared/pipe.tar ../to-pipe.tar; ln -s shared/link2.tar ../to-link.tar; ln -s ../victim link2.tar
             chown -h 65534:65534 pipe.tar link.tar link2.tar old.tar led.tar",
        );
        // Somebody reads, so that it is not waited for.
        let run = |place: &str, pipe: &str| {
            let words = command.replace("PLACE", place);
            scratch.shell(&format!("umask 022; exec 9<> {pipe}; timeout 60 {program} {words} 2>&1 || echo code $?"))
        };
        for (place, pipe) in
            [("shared/pipe.tar", "shared/pipe.tar"), ("shared/led.tar", "pipe"), ("to-pipe.tar", "shared/pipe.tar")]
        {
            let said = run(place, pipe);
            assert!(said.contains("another user has put") && said.ends_with("code 1\n"), "{command} {place}: {said}");
        }
        assert!(!run("shared/own-pipe.tar", "shared/own-pipe.tar").contains("code"), "{command}");
        // The link is replaced, not what it leads to; an own one is followed.
        for place in ["shared/link.tar", "shared/own.tar", "shared/old.tar", "to-link.tar"] {
            let said = run(place, "/dev/null");
            assert!(!said.contains("code"), "{command} {place}: {said}");
        }
        let seen = scratch.shell(
            "cat victim; tar -tf own.tar | wc -l; for n in link own old; do tar -tf shared/$n.tar | wc -l; done
             stat -c '%F %u' shared/link.tar shared/own.tar shared/old.tar; find shared/old.tar -perm /022",
        );
        // `x` has no entry of its own.
        let expected = format!("mine\n{}regular file 0\nsymbolic link 0\nregular file 0\n", "2\n".repeat(4));
        assert_eq!(seen, expected, "{command}");
    }
}

/// What replaces a file has its access list, unless it becomes of an archive that not all may read.
#[test]
fn what_replaces_a_file_has_its_access_list() {
    if !have("setfacl") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo x > tree/f; tar -cf open.tar tree; chmod 644 open.tar; tar -czf closed.tgz tree; chmod 640 closed.tgz
         mkdir in; setfacl -d -m u:4321:r in",
    );
    let old = |name: &str| {
        scratch.shell(&format!("echo old > {name}; setfacl -b {name}; chmod 640 {name}; setfacl -m u:1234:r,g::- {name}; getfacl -cn {name}"))
    };
    let list = |name: &str| scratch.shell(&format!("getfacl -cn {name}"));
    let private = "user::rw-\ngroup::---\nother::---\n\n";
    for name in ["old.tar", "in/old.tar"] {
        let before = old(name);
        assert!(before.contains("user:1234:r--") && before.contains("group::---"), "{before}");
        let (code, said) = run_in(&scratch, &format!("create --overwrite {name} tree"));
        assert_eq!((code, said.as_str(), list(name)), (0, "", before.clone()));
        old(name);
        convert(&scratch, &format!("--overwrite --transform ^ x open.tar {name}"));
        assert_eq!(list(name), before);
        old(name);
        convert(&scratch, &format!("--overwrite closed.tgz {name}"));
        assert_eq!(list(name), private);
    }
    // A list that comes from the folder lets nobody read it who could not read the old one, or the archive.
    scratch.shell("echo old > in/plain.tar; setfacl -b in/plain.tar; chmod 640 in/plain.tar");
    run_in(&scratch, "create --overwrite in/plain.tar tree");
    assert_eq!(list("in/plain.tar"), "user::rw-\ngroup::r--\nother::---\n\n");
    convert(&scratch, "closed.tgz in/new.tar");
    assert_eq!(list("in/new.tar"), private);
}

/// Numbers of another machine are not whom they are here.
#[test]
fn access_lists_get_no_names_of_this_machine() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as file:
    entry = tarfile.TarInfo('f')
    entry.uname, entry.gname = 'zoe', 'zoe'
    entry.pax_headers = {'SCHILY.acl.access': 'user::rw-,user:zed:rwx:1,group::r--,mask::rwx,other::r--'}
    file.addfile(entry)
E",
    );
    convert(&scratch, "--transform ^ x a.tar b.tar");
    assert_eq!(
        scratch.shell("grep -ac user:1:rwx b.tar; getent passwd 1 | cut -d: -f1 | grep -acf - b.tar || true"),
        "1\n0\n"
    );
}

/// The index of an archive that is removed goes with it, wherever that was called from.
#[test]
fn an_archive_that_is_removed_leaves_no_index() {
    let scratch = Scratch::new();
    scratch.shell("mkdir in; cd in; for n in $(seq 1500); do echo $n > f$n; done; tar --numeric-owner -cf ../a.tar f*");
    for (from, to, is_indexed) in [
        ("x.tar", "y.zip", true),
        ("x.tar", "y.zip", false),
        ("./x.tar", "z.zip", true),
        ("in/x.tar", "in/z.zip", true),
    ] {
        scratch.shell(&format!("cp a.tar {from}; echo mine > x.tar.mine"));
        if is_indexed {
            assert_eq!(run_in(&scratch, &format!("index {from}")).0, 0);
            assert!(scratch.path(format!("{from}.tarnfs.sqlite")).exists());
        }
        convert(&scratch, &format!("--replace {from} {to}"));
        assert_eq!(scratch.shell("ls -d x.* in/x.* 2> /dev/null || true"), "x.tar.mine\n", "{from} {to}");
        scratch.shell(&format!("rm {to}"));
    }
    // With whatever options they were made. What is of another archive stays.
    scratch.shell("cp a.tar x.tar; rm x.tar.mine; tar -cf other.tar in");
    for words in ["index x.tar", "index -r x.tar", "index other.tar"] {
        assert_eq!(run_in(&scratch, words).0, 0);
    }
    scratch.shell("ls x.tar.options-*; mv other.tar.tarnfs.sqlite x.tar.options-0123456789abcdef.tarnfs.sqlite");
    convert(&scratch, "--encoding latin1 --replace x.tar y.zip");
    assert_eq!(scratch.shell("ls -d x.*"), "x.tar.options-0123456789abcdef.tarnfs.sqlite\n");
    // Where one lies alone, nothing is to be converted.
    assert_eq!(run_in(&scratch, "index a.tar").0, 0);
    scratch.shell("rm a.tar");
    let (code, said) = run_in(&scratch, "convert --replace a.tar.tarnfs.sqlite b.tar");
    assert!(code == 2 && said.contains("it is an index without its archive"), "{code} {said}");
    let told = tarnfs(&scratch).args(["info", "a.tar.tarnfs.sqlite"]).current_dir(scratch.path("")).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("Format: ") && !told.contains("joined from several files"), "{told}");
}

/// > Who may not read an archive may not read what `convert` makes of it.
#[test]
fn who_may_not_read_a_part_may_not_read_the_whole() {
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; head -c 9000 /dev/urandom > f; tar --numeric-owner -cf x.tar f; split -b 4096 -d -a 3 --numeric-suffixes=1 x.tar x.tar.
         rm x.tar; chmod 644 x.tar.*; chmod 600 x.tar.002",
    );
    convert(&scratch, "x.tar.001 y.tar.gz");
    assert_eq!(fs::metadata(scratch.path("y.tar.gz")).unwrap().mode() & 0o777, 0o600);
    scratch.shell("chmod 640 x.tar.002");
    convert(&scratch, "x.tar.001 z.zip");
    assert_eq!(fs::metadata(scratch.path("z.zip")).unwrap().mode() & 0o777, 0o640);
}

/// > Nothing that is damaged is made to look whole by `convert`.
#[test]
fn nothing_damaged_is_made_to_look_whole() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("seq 1000 > f; zip -q0 a.zip f");
    let archive = fs::OpenOptions::new().write(true).open(scratch.path("a.zip")).unwrap();
    archive.write_all_at(b"x", 500).unwrap();
    for words in ["--force a.zip b.tar", "--force a.zip b.zip"] {
        let (code, said) = run_in(&scratch, &format!("convert {words}"));
        assert!(code == 2 && said.contains("--force: what is damaged would look whole"), "{code} {said}");
    }
    assert_eq!(run_in(&scratch, "convert a.zip b.tar").0, 5);
    assert!(!scratch.path("b.tar").exists() && !scratch.path("b.zip").exists());
}

/// More names in one folder than are read at once.
#[test]
fn folders_of_many_names_are_converted_and_verified() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; cd t; for n in $(seq 513); do mkdir d$n; echo $n > d$n/f; done; mkdir d7/full d8/none; cd d7/full; seq 256 | xargs touch
         cd ../../..; tar --sort=name --numeric-owner -cf a.tar t; cp a.tar b.tar",
    );
    convert(&scratch, "--replace a.tar a.zip");
    convert(&scratch, "--replace a.zip c.tar.gz");
    scratch.shell("mkdir out; tar -xf c.tar.gz -C out; diff -r t out/t; [ $(find out/t | wc -l) = $(find t | wc -l) ]");
}

#[test]
fn names_of_one_file_stay_that_in_whatever_folders_they_are() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d/e/f tree/g; cd tree; echo 1 > one; ln one d/one; ln one d/e/one; echo 2 > d/e/f/two; ln d/e/f/two g/two
         echo 3 > d/e/three; ln d/e/three d/three; ln d/e/three g/three; echo 4 > g/four; ln g/four z; tar -cf ../a.tar *",
    );
    for (transform, at) in [("^/one /another", "out"), ("^/ /below/it/", "out/below/it")] {
        convert(&scratch, &format!("--overwrite --transform {transform} a.tar b.tar"));
        let said = scratch.shell(&format!(
            "rm -rf out; mkdir out; tar -C out -xf b.tar; cd {at}; one=$(ls -d one another 2> /dev/null || true); [ $one -ef d/one ]; [ $one -ef d/e/one ]
             [ d/e/f/two -ef g/two ]; [ d/e/three -ef d/three ]; [ d/e/three -ef g/three ]; [ g/four -ef z ]
             cat $one g/two g/three z; find . -type f | wc -l",
        ));
        assert_eq!(said, "1\n2\n3\n4\n10\n");
    }
}

/// Who has a file open reads all that is written to it later: until its mode is known, nobody else may open it.
/// > Who may not read an archive may not read what `convert` makes of it.
#[test]
fn what_becomes_of_a_private_archive_is_private_from_the_start() {
    let scratch = Scratch::new();
    if scratch.shell("strace -qq -o /dev/null true 2> /dev/null && echo works || true") != "works\n" {
        println!("left out: strace is not installed, or processes may not be traced here");
        return;
    }
    scratch.shell("seq 999 > f; for mode in 600 640 444; do tar -cf $mode.tar f; chmod $mode $mode.tar; done");
    for (mode, umask, first, last) in [
        ("600", "022", "0600", "600"),
        ("640", "022", "0600", "640"),
        ("640", "077", "0600", "600"),
        ("444", "022", "0666", "644"),
    ] {
        // Which of its calls asks for a file without a name, as there is none on some file systems.
        let said = scratch.shell(&format!(
            "umask {umask}; convert='{} convert --no-index'; export XDG_CACHE_HOME=$PWD/cache; rm -rf out; mkdir out
             strace -f -qq -o log -e trace=openat $convert {mode}.tar out/a.tar.gz
             thread=$(grep O_TMPFILE log | head -1 | cut -d' ' -f1)
             call=$(grep \"^$thread \" log | grep -v resumed | grep -n O_TMPFILE | head -1 | cut -d: -f1)
             strace -f -qq -o log -e trace=openat -e inject=openat:error=EOPNOTSUPP:when=$call $convert {mode}.tar out/b.tar.gz
             grep INJECTED log | grep -c O_TMPFILE; grep 'part\".*O_CREAT' log | sed 's/.*, \\(0[0-7]*\\)).*/\\1/'
             cmp out/a.tar.gz out/b.tar.gz; stat -c %a out/a.tar.gz out/b.tar.gz; ls -A out",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        let expected = format!("1\n{first}\n{last}\n{last}\na.tar.gz\nb.tar.gz\n");
        assert_eq!(said, expected, "{mode}, umask {umask}");
    }
}

/// > `convert` says that encryption is not kept, and `--replace` keeps an encrypted archive unless `--decrypt` is
/// > given.
#[test]
fn an_encrypted_archive_is_not_replaced_by_one_that_all_can_read() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo secret > f; zip -qP sesame a.zip f; tar -cf outer.tar a.zip; gzip -k outer.tar");
    let mut archives = vec!["a.zip"];
    if have("7z") {
        scratch.shell("7z a -bd -bso0 -psesame -mhe=on a.7z f");
        archives.push("a.7z");
    }
    for archive in archives {
        scratch.shell(&format!("cp {archive} before"));
        let (code, said) = run_in(&scratch, &format!("convert --password sesame {archive} b.tar"));
        assert!(code == 0 && said.contains("b.tar: encryption cannot be kept there: one file"), "{code} {said}");
        assert!(!said.contains("--decrypt"), "{said}");
        for to in ["c.zip", archive] {
            if to != archive || archive == "a.zip" {
                let (code, said) = run_in(&scratch, &format!("convert --replace --password sesame {archive} {to}"));
                assert!(code == 1 && said.contains("encryption cannot be kept there"), "{code} {said}");
                assert!(said.contains("--decrypt says that this is meant") && said.contains("it is kept"), "{said}");
            }
        }
        scratch.shell(&format!("cmp {archive} before; test ! -e c.zip; rm b.tar"));
        convert(&scratch, &format!("--decrypt --replace --password sesame {archive} c.zip"));
        assert!(!scratch.path(archive).exists());
        assert_eq!(run_in(&scratch, "cat c.zip f"), (0, String::new()));
        scratch.shell("rm c.zip");
    }
    // What lies in it as it is stays encrypted; what becomes a folder does not.
    convert(&scratch, "--replace outer.tar.gz outer.tar.zst");
    let (code, said) = run_in(&scratch, "convert -r --password sesame outer.tar inner.tar");
    assert!(code == 0 && said.contains("inner.tar: encryption cannot be kept there"), "{code} {said}");
}

/// > Of a zip that becomes another one, the comment is kept. What has no place in the new one is told, and keeps the
/// > old one under `--replace`.
#[test]
fn what_a_zip_has_beside_its_files_is_kept_or_told() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import zipfile
def make(name, comment=b'', of_file=b'', first='f'):
    with zipfile.ZipFile(name, 'w', zipfile.ZIP_DEFLATED) as file:
        for member in [first, 'a']:
            entry = zipfile.ZipInfo(member)
            entry.comment = of_file
            file.writestr(entry, 'words ' * 50)
        file.comment = comment
make('plain.zip')
make('commented.zip', 'from 2024 PK\5\6 \xe9'.encode('latin-1'))
make('of-files.zip', of_file=b'mine')
make('book.epub', first='mimetype')
E
        (printf '#!/bin/sh\nexit\n'; cat plain.zip) > stub.zip
        cp stub.zip adjusted.zip; zip -qA adjusted.zip || cp stub.zip adjusted.zip
        (printf 'PK00'; cat plain.zip) > marked.zip",
    );
    convert(&scratch, "--replace plain.zip plain.zip");
    convert(&scratch, "--replace marked.zip marked.zip");
    convert(&scratch, "--replace commented.zip kept.zip");
    // What looks like an end in it misleads Python.
    assert!(fs::read(scratch.path("kept.zip")).unwrap().ends_with(b"from 2024 PK\x05\x06 \xe9"));
    for (from, to, message) in [
        ("kept.zip", "kept.tar", "kept.tar: the comment on the archive cannot be kept there"),
        ("stub.zip", "stub.zip", "stub.zip: 15 bytes before its first file: that is not kept"),
        ("adjusted.zip", "new.zip", "adjusted.zip: 15 bytes before its first file: that is not kept"),
        ("of-files.zip", "of-files.zip", "of-files.zip: comments on 2 of its files: that is not kept"),
        (
            "book.epub",
            "book.zip",
            "book.epub: 'mimetype' as its first file, which says of what kind it is: that is not kept",
        ),
    ] {
        scratch.shell(&format!("cp {from} before"));
        let (code, said) = run_in(&scratch, &format!("convert --replace {from} {to}"));
        assert!(code == 1 && said.contains(message) && said.contains("it is kept"), "{from}: {code} {said}");
        scratch.shell(&format!("cmp {from} before; test {from} = {to} || test ! -e {to}"));
    }
    // Without --replace that is a warning.
    let (code, said) = run_in(&scratch, "convert stub.zip new.zip");
    assert!(code == 0 && said.contains("15 bytes before its first file"), "{code} {said}");
}

/// > `convert --replace` removes the old archive only when all of it was found in the new one.
#[test]
fn what_is_around_an_archive_that_has_a_directory_is_told() {
    let scratch = Scratch::new();
    scratch.shell("mkdir s; echo one > s/f; echo two > s/g; cp /bin/true program");
    let mut cases = Vec::new();
    if have("mksquashfs") {
        scratch.shell(
            "mksquashfs s q.sqfs -quiet -no-progress > /dev/null; cat program q.sqfs > app.AppImage
             (echo '#!/bin/sh'; echo exit; cat q.sqfs) > script.sqfs
             (cat q.sqfs; echo trailing signature data) > tail.sqfs",
        );
        // Zeros round it up.
        convert(&scratch, "--replace q.sqfs q.tar.zst");
        cases.extend([
            ("app.AppImage", "bytes before the archive"),
            ("script.sqfs", "15 bytes before the archive"),
            ("tail.sqfs", "bytes behind its end"),
        ]);
    }
    if have("7z") {
        scratch.shell(
            "7z a x.7z s > /dev/null; cat program x.7z > self.7z; (cat x.7z; echo tail) > tail.7z
             (cat x.7z; head -c 5000 /dev/zero) > zeros.7z",
        );
        convert(&scratch, "--replace x.7z x.tar.zst");
        convert(&scratch, "--replace zeros.7z zeros.tar.zst");
        cases.extend([("self.7z", "bytes before the archive"), ("tail.7z", "5 bytes behind its end")]);
    }
    if have("xorriso") {
        scratch.shell(
            "xorriso -as mkisofs -quiet -R -V '' -o plain.iso s 2> /dev/null
             (head -c 400 program; tail -c +401 plain.iso) > disk.iso; (cat plain.iso; echo tail) > tail.iso
             head -c 4096 program > s/boot
             xorriso -as mkisofs -quiet -R -V '' -b boot -no-emul-boot -o boot.iso s 2> /dev/null",
        );
        cases.extend([
            ("disk.iso", "boot code or partitions in its first 32768 bytes"),
            ("tail.iso", "5 bytes behind its end"),
            ("boot.iso", "the catalogue of what a computer boots from"),
        ]);
    }
    for (from, message) in cases {
        scratch.shell(&format!("cp {from} before"));
        let (code, said) = run_in(&scratch, &format!("convert --replace {from} new.tar.zst"));
        let message = format!("{message}: that is not kept");
        assert!(code == 1 && said.contains(&message) && said.contains("it is kept"), "{from}: {code} {said}");
        scratch.shell(&format!("cmp {from} before; test ! -e new.tar.zst"));
    }
}

/// > `convert --replace` removes the old archive only when all of it was found in the new one.
#[test]
fn what_a_format_has_beside_its_files_is_told() {
    let scratch = Scratch::new();
    for sample in ["method0.arj", "level1.lzh", "stored.cab", "lzx.wim", "gzip.xar"] {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
        fs::copy(samples.join(sample), scratch.path(sample)).unwrap();
    }
    scratch.shell(
        r#"python3 - <<'E'
import sqlite3
for name, more in [('plain', []), ('app', ['CREATE TABLE important(x)', 'INSERT INTO important VALUES (1)']),
                   ('own', ['PRAGMA user_version=3']), ('wide', ['ALTER TABLE sqlar ADD COLUMN note'])]:
    database = sqlite3.connect(name + '.sqlar')
    database.execute('CREATE TABLE sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB)')
    database.execute("INSERT INTO sqlar VALUES ('f', 33188, 1, 5, X'68656c6c6f')")
    for statement in more:
        database.execute(statement)
    database.commit()
E
        for name in method0.arj level1.lzh stored.cab plain.sqlar; do (cat $name; echo PRECIOUS) > tail-$name; done
        printf '#mtree
empty type=file size=0
# a comment
' > list.mtree"#,
    );
    let mut cases = vec![
        ("app.sqlar", "other tables of the database, views, or the like (1)"),
        ("own.sqlar", "numbers with which a program marks its databases"),
        ("wide.sqlar", "further columns of its table, or rules for them"),
        ("tail-plain.sqlar", "9 bytes behind its end"),
        ("tail-method0.arj", "9 bytes behind its end"),
        ("tail-level1.lzh", "9 bytes behind its end"),
        ("tail-stored.cab", "9 bytes behind its end"),
        ("lzx.wim", "the names and descriptions of its images (XML)"),
        ("gzip.xar", "what its table has beside files, such as signatures, and what is behind these"),
        ("list.mtree", "the text of the list, with sums and comments"),
    ];
    if have("cpio") {
        // Further behind it than another one is looked for.
        scratch.shell(
            "echo x > f; echo f | cpio -o -H newc > x.cpio 2> /dev/null
             (cat x.cpio; head -c 3000000 /dev/zero; echo PRECIOUS) > tail.cpio",
        );
        cases.push(("tail.cpio", "bytes behind its end"));
        convert(&scratch, "--replace x.cpio cpio.tar");
    }
    for (from, message) in cases {
        scratch.shell(&format!("cp {from} before"));
        let (code, said) = run_in(&scratch, &format!("convert --replace {from} new.tar"));
        assert!(code == 1 && said.contains(message) && said.contains("it is kept"), "{from}: {code} {said}");
        scratch.shell(&format!("cmp {from} before; test ! -e new.tar"));
    }
    // Those that have nothing else.
    for from in ["plain.sqlar", "method0.arj", "level1.lzh", "stored.cab"] {
        convert(&scratch, &format!("--replace {from} {from}.tar"));
        assert!(!scratch.path(from).exists(), "{from}");
    }
    // Without --replace that is a warning.
    let (code, said) = run_in(&scratch, "convert app.sqlar app.tar");
    assert!(code == 0 && said.contains("other tables of the database"), "{code} {said}");
}

/// > `convert --replace` removes the old archive only when all of it was found in the new one.
#[test]
fn what_an_archive_has_that_is_compressed_as_a_whole_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile, zipfile
for name, comment in [('plain.zip', b''), ('commented.zip', b'mine')]:
    with zipfile.ZipFile(name, 'w') as file:
        file.writestr('f', 'words ' * 50)
        file.comment = comment
with tarfile.open('commit.tar', 'w', format=tarfile.PAX_FORMAT, pax_headers={'comment': 'c0ffee'}) as file:
    file.addfile(tarfile.TarInfo('f'))
open('page.html', 'w').write('<!DOCTYPE html><html><p>precious</p><img src=\x22data:image/png;base64,iVBORw0KGgo=\x22></html>')
E
        gzip -k plain.zip commented.zip page.html; xz -k commented.zip",
    );
    let (code, said) = run_in(&scratch, "convert --replace commented.zip.gz new.tar");
    let message = "new.tar: the comment on the archive cannot be kept there";
    assert!(code == 1 && said.contains(message) && said.contains("it is kept"), "{code} {said}");
    scratch.shell("gzip -dc commented.zip.gz | cmp - commented.zip; test ! -e new.tar");
    convert(&scratch, "--replace commented.zip.gz kept.zip");
    assert!(fs::read(scratch.path("kept.zip")).unwrap().ends_with(b"mine"));
    assert!(!scratch.path("commented.zip.gz").exists());
    // As one file it has all of it.
    convert(&scratch, "--replace commented.zip.xz commented.zip.zst");
    scratch.shell("zstd -dcq commented.zip.zst | cmp - commented.zip");
    convert(&scratch, "--replace plain.zip.gz plain.tar");
    assert!(!scratch.path("plain.zip.gz").exists());
    // `git archive` has the commit in the same place of both.
    convert(&scratch, "--replace commit.tar commit.zip");
    assert!(fs::read(scratch.path("commit.zip")).unwrap().ends_with(b"c0ffee"));
    // Records of single files have no place.
    scratch.shell("tar --format=pax --pax-option='comment:=x,VENDOR.key:=y' -cf records.tar page.html");
    let (code, said) = run_in(&scratch, "convert --replace records.tar records.zip");
    let are_told =
        ["comment", "VENDOR.key"].iter().all(|key| said.contains(&format!("'{key}' in its extended headers")));
    assert!(code == 1 && are_told && said.contains("it is kept"), "{code} {said}");
    scratch.shell("test -e records.tar; test ! -e records.zip");
    // A document is one file, also where an index has been made of what is in it.
    assert_eq!(run_in(&scratch, "index -r page.html.gz").0, 0);
    assert!(scratch.path("page.html.gz.tarnfs.sqlite").exists());
    let (code, said) = run_in(&scratch, "convert -r page.html.gz new.tar");
    assert!(code == 0 && said.contains("the page itself"), "{code} {said}");
    convert(&scratch, "--replace page.html.gz page.tar.gz");
    scratch.shell("tar -xOf page.tar.gz page.html | cmp - page.html");
    assert_eq!(scratch.shell("ls page.html.gz* 2> /dev/null || true"), "");
}

/// > A single compressed file that `convert` makes has the bytes of the archive, and of a package those of the package.
#[test]
fn a_package_that_is_compressed_is_still_a_package() {
    if !have("ar") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo 2.0 > debian-binary; echo x > control; echo y > f; tar -czf control.tar.gz control; tar -cf data.tar.xz -J f
         ar rc x.deb debian-binary control.tar.gz data.tar.xz; cp x.deb before",
    );
    convert(&scratch, "x.deb x.zst");
    scratch.shell("zstd -dcq x.zst | cmp - before");
    convert(&scratch, "--replace x.deb x.gz");
    scratch.shell("gzip -dc x.gz | cmp - before; test ! -e x.deb");
}

/// Who may not give a file away to the group that it had keeps what everybody could do, and gives nobody more.
#[test]
fn an_archive_of_another_group_stays_open_to_those_who_could_read_it() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("chmod 755 .; mkdir -m 777 in; cd in; echo x > f; tar -czf x.tar.gz f");
    for (before, after) in [(0o644, 0o644), (0o664, 0o644), (0o640, 0o600), (0o604, 0o600), (0o660, 0o600)] {
        for words in [
            "convert --replace a.tar.gz a.tar.gz",
            "convert --replace a.tar.gz b.tar.gz",
            "create --overwrite a.tar.gz f",
        ] {
            // Nobody is not in the group of root.
            scratch.shell(&format!(
                "cd in; rm -f b.tar.gz; cp x.tar.gz a.tar.gz; chown nobody:root a.tar.gz; chmod {before:o} a.tar.gz"
            ));
            let ran = scratch.shell(&format!(
                "cd in; su nobody -s /bin/sh -c 'umask 022; {} {words}' 2>&1 || echo code $?",
                env!("CARGO_BIN_EXE_tarnfs")
            ));
            if ran.contains("Permission denied") || ran.contains("not found") {
                return println!("left out: the program lies where nobody else may run it");
            }
            let name = if words.ends_with("b.tar.gz") { "b.tar.gz" } else { "a.tar.gz" };
            let mode = fs::metadata(scratch.path(format!("in/{name}"))).unwrap().mode() & 0o777;
            assert!(mode == after && !ran.contains("code"), "{words}, {before:o}: {mode:o} {ran}");
        }
    }
}

/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn folders_that_wait_share_what_is_before_their_names() {
    let scratch = Scratch::new();
    scratch.shell(
        "cat > deep.py <<'E'
import sys, tarfile
for name, letter, depth in [('z.tar', 'z', 60), ('first.tar', '!', 40)]:
    with tarfile.open(name, 'w', format=tarfile.PAX_FORMAT) as tar:
        path = ''
        for level in range(depth):
            path += letter * 200 + '/'
            for number in [None, *range(255)]:
                entry = tarfile.TarInfo(path + ('' if number is None else '%03d' % number))
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
E
         python3 deep.py; echo x > w; tar -cf w.tar w; zstd -q z.tar first.tar",
    );
    let peak = |words: &str| {
        let script = "import resource, subprocess, sys
ran = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)";
        let said = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; python3 -c '{script}' {} {words} 2>/dev/null",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        said.trim().parse::<u64>().unwrap()
    };
    let plain = peak("convert z.tar.zst one.zip");
    let verified = peak("convert --replace z.tar.zst two.zip");
    assert!(scratch.path("two.zip").exists() && !scratch.path("z.tar.zst").exists());
    assert!(verified < plain + 40, "{plain} MiB, and {verified} MiB where both are compared");
    let plain = peak("compare w.tar first.tar.zst w");
    let only_there = peak("compare w.tar first.tar.zst '**/x'");
    assert!(only_there < plain + 20, "{plain} MiB, and {only_there} MiB with folders that are in one of them only");
}
