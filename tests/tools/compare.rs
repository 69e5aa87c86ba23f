//! `tarnfs compare` beside the programs that people compare with today.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::support::{Ran, Scratch, have, is_root, make_tree, tarnfs};

/// Calls it in the folder of `scratch`.
fn compare(scratch: &Scratch, words: &[&str]) -> Ran {
    Ran::from(tarnfs(scratch).arg("compare").args(words).current_dir(scratch.path("")).output().unwrap())
}

/// Lines of standard output, sorted.
fn lines(ran: &Ran) -> Vec<String> {
    let mut lines: Vec<_> = ran.text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn is_same(scratch: &Scratch, words: &[&str]) {
    let ran = compare(scratch, words);
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "", ""), "{words:?}");
}

/// A tree with everything that a tar keeps.
fn make_full_tree(scratch: &Scratch) {
    make_tree(scratch);
    scratch.shell(
        "truncate -s 3M tree/sparse; printf data | dd of=tree/sparse bs=1 seek=1048576 conv=notrunc status=none
         printf end >> tree/sparse; truncate -s 20M tree/hole; head -c 3000000 /dev/urandom > tree/large
         setfattr -n user.colour -v blue tree/file; setfacl -m u:7:rwx,g:8:r tree/folder/random
         setfacl -m d:u:9:rx tree/long; mkfifo tree/pipe; ln tree/large tree/linked",
    );
}

/// Archives of `tree`, by the programs that people make them with.
fn pack_all(scratch: &Scratch) -> Vec<&'static str> {
    scratch.shell(
        "tar --format=pax --xattrs --xattrs-include='*' --acls -S --pax-option=delete=atime,delete=ctime -cf all.tar -C tree .
         gzip -k all.tar; bzip2 -k all.tar; xz -k --block-size=1MiB all.tar; zstd -q -k all.tar; lz4 -q -k all.tar all.tar.lz4
         tar --format=gnu -cf gnu.tar -C tree .",
    );
    vec!["all.tar", "all.tar.gz", "all.tar.bz2", "all.tar.xz", "all.tar.zst", "all.tar.lz4", "gnu.tar"]
}

/// > What is the same is the same: in one pass and with an index, with one thread and with all.
#[test]
fn an_archive_is_the_same_as_what_it_was_made_of() {
    let scratch = Scratch::new();
    make_full_tree(&scratch);
    for archive in pack_all(&scratch) {
        is_same(&scratch, &[archive, "tree"]);
        is_same(&scratch, &["-P1", archive, "tree"]);
        assert!(!scratch.path(format!("{archive}.tarnfs.sqlite")).exists());
        scratch.shell(&format!("{} index --index-minimum-file-count 0 {archive}", env!("CARGO_BIN_EXE_tarnfs")));
        is_same(&scratch, &[archive, "tree"]);
    }
    is_same(&scratch, &["all.tar.gz", "all.tar.xz"]);
    let input = fs::File::open(scratch.path("all.tar.gz")).unwrap();
    let mut piped = tarnfs(&scratch);
    piped.args(["compare", "-", "tree"]).current_dir(scratch.path("")).stdin(input);
    let ran = Ran::from(piped.output().unwrap());
    assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{}", ran.err);
}

/// One of each thing that may differ.
const CHANGES: &str = "
    umask 022; mkdir tree; cd tree; mkdir folder gone; echo 1 > gone/in; head -c 2000000 /dev/urandom > large; echo content > same
    echo content > content; echo size > size; echo mode > mode; echo owner > owner; echo time > time; echo missing > missing
    ln -s here symlink; mkfifo type; echo one > linked; ln linked second; echo a > apart; echo a > apart2; cp large later
    touch -h -d '2020-01-02 03:04:05.123456789' * . ; cd ..
    tar --sort=name --format=pax -cf a.tar tree; gzip -k a.tar; zstd -q -k a.tar; cd tree
    rm -r gone missing; printf CONTENT | dd of=content conv=notrunc status=none; echo longer >> size; chmod 600 mode
    ln -sf there symlink; rm type; echo file > type; rm second; cp linked second; rm apart2; ln apart apart2
    printf x | dd of=large bs=1 seek=1500000 conv=notrunc status=none; printf xy >> later
    touch -d '2020-01-02 03:04:05.123456789' content size mode large later type linked second apart; touch -h -d '2020-01-02 03:04:05.123456789' symlink
    touch -d '2020-01-02 03:04:05.123456780' time; mkdir extra; echo > extra/in; echo > folder/new
    touch -d '2020-01-02 03:04:05.123456789' folder . ";

/// > What differs is told in one line each, whatever the archive is compressed with.
#[test]
fn each_difference_is_one_line() {
    let scratch = Scratch::new();
    scratch.shell(CHANGES);
    let owner = is_root();
    if owner {
        scratch.shell("chown 12:34 tree/owner; touch -d '2020-01-02 03:04:05.123456789' tree/owner");
    }
    let expected = |archive: &str| {
        let mut expected = vec![
            "tree/apart2: Linked to tree/apart".to_owned(),
            "tree/content: Contents differ: from byte 0 on".to_owned(),
            "tree/extra: Only in .".to_owned(),
            "tree/folder/new: Only in .".to_owned(),
            format!("tree/gone: Only in {archive}"),
            "tree/large: Contents differ: from byte 1500000 on".to_owned(),
            "tree/later: Size differs: 2000000 -> 2000002".to_owned(),
            format!("tree/missing: Only in {archive}"),
            "tree/mode: Mode differs: 0644 -> 0600".to_owned(),
            "tree/second: Not linked to tree/linked".to_owned(),
            "tree/size: Size differs: 5 -> 12".to_owned(),
            "tree/symlink: Symlink differs: here -> there".to_owned(),
            "tree/time: Mod time differs: 2020-01-02 03:04:05.123456789 UTC -> 2020-01-02 03:04:05.123456780 UTC"
                .to_owned(),
            "tree/type: File type differs: fifo -> file".to_owned(),
        ];
        if owner {
            expected
                .extend(["tree/owner: Gid differs: 0 -> 34".to_owned(), "tree/owner: Uid differs: 0 -> 12".to_owned()]);
        }
        expected.sort();
        expected
    };
    for archive in ["a.tar", "a.tar.gz", "a.tar.zst"] {
        let ran = compare(&scratch, &[archive]);
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{archive}");
        assert_eq!(lines(&ran), expected(archive), "{archive}");
        // The order is that of the archive, whoever is first.
        assert_eq!(compare(&scratch, &["-P1", archive]).text(), ran.text());
    }
    // What GNU tar tells is among it, in the same words.
    let told =
        Command::new("tar").args(["-df", "a.tar"]).current_dir(scratch.path("")).env("LC_ALL", "C").output().unwrap();
    let ours = lines(&compare(&scratch, &["a.tar"]));
    for line in String::from_utf8_lossy(&told.stdout).lines() {
        let line = line.trim_start_matches("tar: ");
        // It tells of each file in a folder that is missing.
        let is_told = ours.iter().any(|own| own.starts_with(line)) || line.contains("tree/gone");
        assert!(is_told, "{line}\n{ours:#?}");
    }
    // The same with an archive of what is there now.
    scratch.shell("tar --format=pax --sort=name -czf b.tar.gz tree");
    let both = compare(&scratch, &["a.tar", "b.tar.gz"]);
    assert_eq!((both.code, both.err.as_str()), (1, ""));
    let named =
        |line: &String| line.strip_suffix("Only in .").map_or(line.clone(), |start| format!("{start}Only in b.tar.gz"));
    assert_eq!(lines(&both), expected("a.tar").iter().map(named).collect::<Vec<_>>());
}

/// > What need not be the same is left out.
#[test]
fn options_leave_out_what_they_name() {
    let scratch = Scratch::new();
    scratch.shell(CHANGES);
    let has =
        |words: &[&str], what: &str| compare(&scratch, &[&["a.tar.gz", "."][..], words].concat()).text().contains(what);
    for (word, what) in
        [("mode", "Mode differs"), ("mtime", "Mod time differs"), ("links", "inked to"), ("content", "Contents differ")]
    {
        assert!(has(&[], what) && !has(&[&format!("--ignore={word}")], what), "{word}");
        assert!(!has(&[&format!("--ignore=xattrs,{word}")], what), "{word}");
    }
    assert!(has(&["--ignore=content"], "Size differs"));
    let ran = compare(&scratch, &["a.tar.gz", "--content-only", "--no-extra"]);
    assert!(ran.text().contains("Contents differ") && ran.text().contains("Symlink differs"), "{}", ran.text());
    for what in ["Mode", "time", "inked", "Only in .\n"] {
        assert!(!ran.text().contains(what), "{}", ran.text());
    }
    if is_root() {
        scratch.shell("chown 12:34 tree/owner");
        assert!(has(&[], "Uid differs") && !has(&["--ignore=owner"], "id differs"));
    }
    let wrong = compare(&scratch, &["a.tar.gz", "--ignore=nothing"]);
    assert_eq!(wrong.code, 2);
}

/// > Owners are compared by name; with `--numeric-owner` by number.
#[test]
fn owners_are_compared_by_name_or_by_number() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo > tree/file; tar --owner=daemon:4321 --group=daemon:4321 -cf a.tar -C tree file; chown daemon:daemon tree/file");
    is_same(&scratch, &["a.tar", "tree"]);
    let numbers = compare(&scratch, &["a.tar", "tree", "--numeric-owner"]);
    assert_eq!(lines(&numbers), ["file: Gid differs: 4321 -> 1", "file: Uid differs: 4321 -> 1"]);
}

/// > Patterns limit what is compared, on both sides.
#[test]
fn patterns_limit_what_is_compared() {
    let scratch = Scratch::new();
    scratch.shell(CHANGES);
    let found = |patterns: &[&str]| {
        let ran = compare(&scratch, &[&["a.tar", "."][..], patterns].concat());
        (ran.code, lines(&ran), ran.err)
    };
    let differ = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(found(&["tree/same"]), (0, vec![], String::new()));
    assert_eq!(found(&["tree/mode", "tree/same"]).1, differ(&["tree/mode: Mode differs: 0644 -> 0600"]));
    assert_eq!(found(&["tree/folder"]).1, differ(&["tree/folder/new: Only in ."]));
    assert_eq!(found(&["tree/extra"]).1, differ(&["tree/extra: Only in ."]));
    assert_eq!(found(&["tree/gone/in"]).1, differ(&["tree/gone/in: Only in a.tar"]));
    assert_eq!(found(&["**/m*"]).1, differ(&["tree/missing: Only in a.tar", "tree/mode: Mode differs: 0644 -> 0600"]));
    let (code, told, error) = found(&["tree/nosuch", "tree/mode"]);
    assert_eq!((code, told.len()), (1, 1));
    assert!(error.contains("tree/nosuch: no such file or folder"), "{error}");
}

/// What is selected inside of folders that only one side has is told, whichever side that is.
#[test]
fn patterns_look_into_folders_of_one_side() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p g/src; echo a > g/src/a.c; echo t > g/thing; tar -cf g.tar -C g src thing
         mkdir -p g/new/sub; echo n > g/new/n.c; echo m > g/new/sub/m.c; echo o > g/new/other
         rm g/thing; mkdir g/thing; echo t > g/thing/t.c; tar -cf g2.tar -C g src new thing",
    );
    for other in ["g", "g2.tar"] {
        let ran = compare(&scratch, &["g.tar", other, "**/*.c"]);
        let only = ["new/n.c", "new/sub/m.c", "thing/t.c"].map(|name| format!("{name}: Only in {other}"));
        assert_eq!((ran.code, lines(&ran)), (1, only.to_vec()), "{}", ran.err);
        let ran = compare(&scratch, &["g.tar", other, "new/n.c"]);
        assert_eq!((ran.code, lines(&ran), ran.err.as_str()), (1, only[..1].to_vec(), ""));
    }
    let ran = compare(&scratch, &["g2.tar", "g.tar", "**/*.c"]);
    assert_eq!((ran.code, lines(&ran).len()), (1, 3), "{}", ran.text());
}

/// Folders that lie deeper than those which are kept open are compared as the others are, whatever they lie in.
#[test]
fn deep_folders_are_compared() {
    let scratch = Scratch::new();
    // The same for all, in two branches so that each is gone back to.
    scratch.shell(
        "mkdir one; cd one; p=$(seq -s / 90); mkdir -p $p/x/y $p/z; echo a > $p/x/y/a; echo b > $p/z/b; echo c > $p/c
         cd ..; tar -cf one.tar -C one .; cp -pr one two; cd two; echo A > $p/x/y/a; echo new > $p/z/new; rm $p/c
         mkdir -p $p/only/there; echo d > $p/only/there/d; touch -r ../one/$p/z $p/z; touch -r ../one/$p $p
         touch -r ../one/$p/x/y/a $p/x/y/a; cd ..; tar -cf two.tar -C two .",
    );
    let path = (1..=90).map(|number| number.to_string()).collect::<Vec<_>>().join("/");
    is_same(&scratch, &["one.tar", "one"]);
    is_same(&scratch, &["one.tar", "one.tar"]);
    for other in ["two", "two.tar"] {
        let ran = compare(&scratch, &["one.tar", other]);
        let expected = [
            format!("{path}/c: Only in one.tar"),
            format!("{path}/only: Only in {other}"),
            format!("{path}/x/y/a: Contents differ: from byte 0 on"),
            format!("{path}/z/new: Only in {other}"),
        ];
        assert_eq!((ran.code, lines(&ran)), (1, expected.to_vec()), "{}", ran.err);
        let ran = compare(&scratch, &["one.tar", other, "**/d"]);
        assert_eq!((ran.code, lines(&ran)), (1, vec![format!("{path}/only/there/d: Only in {other}")]), "{}", ran.err);
    }
}

/// Where the archive has a hole, what lies there at the other side is compared with zeros.
#[test]
fn holes_are_compared() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir h; truncate -s 3M h/hole; printf end >> h/hole; tar -cSf h.tar h; gzip -k h.tar
         printf X | dd of=h/hole bs=1 seek=1500000 conv=notrunc status=none",
    );
    for archive in ["h.tar", "h.tar.gz"] {
        let ran = compare(&scratch, &["--ignore=mtime", archive]);
        let told = lines(&ran);
        assert!(ran.code == 1 && told.len() == 1 && told[0].contains("1500000"), "{archive}: {told:?} {}", ran.err);
    }
}

/// An attribute that may not be read is not taken for one that is not there.
#[test]
fn attributes_that_cannot_be_read_are_told() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir x; touch x/f; setfattr -n user.a -v 1 x/f; chmod 0 x/f; tar --xattrs -cf x.tar x; chmod 777 . x x.tar",
    );
    let ran = scratch.shell(&format!(
        "su nobody -s /bin/sh -c '{} compare --ignore=content --index-file :memory: x.tar' 2>&1 || echo code $?",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert!(ran.contains("Permission denied") && !ran.contains("Only in") && ran.contains("code "), "{ran}");
}

/// > What lies beside the archive's own names is told where the folder was named.
#[test]
fn what_is_only_in_the_folder_is_told_where_it_was_named() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p w/tree; cd w; echo > tree/file; tar -cf a.tar tree; tar -cf ../all.tar .; echo > other");
    let at = |words: &[&str]| {
        let ran = tarnfs(&scratch).arg("compare").args(words).current_dir(scratch.path("w")).output().unwrap();
        Ran::from(ran).text()
    };
    assert_eq!(at(&["a.tar"]), "");
    // Neither is the archive.
    assert_eq!(at(&["a.tar", "."]), "other: Only in .\n");
    assert_eq!(at(&["a.tar", ".", "--no-extra"]), "");
    // It has an entry for the folder that everything is in.
    assert!(at(&["../all.tar", "--ignore=mtime"]).contains("other: Only in .\n"));
}

/// > `--json` prints one object for each difference.
#[test]
fn differences_as_json() {
    let scratch = Scratch::new();
    scratch.shell(CHANGES);
    scratch.shell(
        "cd tree; setfattr -n user.a -v 1 same; tar --xattrs -cf ../x.tar.gz -z same; setfattr -n user.a -v 2 same",
    );
    let read = |words: &[&str]| -> Vec<serde_json::Value> {
        let ran = compare(&scratch, &[&["--json"][..], words].concat());
        assert_eq!(ran.code, 1, "{}", ran.err);
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = read(&["a.tar.gz"]);
    let of = |path: &str| all.iter().find(|value| value["path"] == path).unwrap();
    assert_eq!(
        *of("tree/size"),
        serde_json::json!({"path": "tree/size", "type": "file", "differs": "size", "archive": 5, "other": 12})
    );
    assert_eq!((&of("tree/mode")["archive"], &of("tree/mode")["other"]), (&"0644".into(), &"0600".into()));
    assert_eq!(of("tree/large")["at"], 1_500_000);
    assert_eq!(of("tree/extra")["differs"], "only in other");
    assert_eq!(of("tree/gone")["differs"], "only in archive");
    assert_eq!(of("tree/second")["to"], "tree/linked");
    assert_eq!((&of("tree/type")["archive"], &of("tree/type")["other"]), (&"fifo".into(), &"file".into()));
    assert_eq!(of("tree/time")["other"], serde_json::json!({"seconds": 1_577_934_245, "nanoseconds": 123_456_780}));
    assert_eq!(of("tree/symlink")["other"], "there");
    let xattr = read(&["x.tar.gz", "tree", "--no-extra"]);
    assert_eq!(
        xattr,
        [
            serde_json::json!({"path": "same", "type": "file", "differs": "xattr", "name": "user.a", "archive": "1", "other": "2"})
        ]
    );
}

/// > Extended attributes and access lists are compared if the archive has some.
#[test]
fn extended_attributes_are_compared_if_there_are_some() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; echo > a; echo > b; echo > list; setfattr -n user.x -v 1 a; setfacl -m u:7:r list
         tar --xattrs --acls --format=pax -cf ../with.tar .; tar -cf ../without.tar .
         setfattr -x user.x a; setfattr -n user.y -v 2 b; setfacl -m u:7:rw list; chmod --reference=b list",
    );
    is_same(&scratch, &["without.tar", "tree", "--ignore=mode"]);
    let with = compare(&scratch, &["with.tar", "tree", "--ignore=mode"]);
    assert_eq!(
        lines(&with),
        [
            "a: Extended attribute user.x only in with.tar",
            "b: Extended attribute user.y only in tree",
            "list: Extended attribute system.posix_acl_access differs"
        ]
    );
    is_same(&scratch, &["with.tar", "tree", "--ignore=mode,xattrs"]);
    // Of many, each is found.
    scratch.shell(
        "mkdir many; echo > many/a; cd many; for n in $(seq 20); do setfattr -n user.n$n -v $n a; done
         tar --xattrs --format=pax -cf ../many.tar .; setfattr -n user.n7 -v other a; setfattr -x user.n9 a
         setfattr -n user.more -v 1 a",
    );
    let found = lines(&compare(&scratch, &["many.tar", "many"]));
    assert_eq!(
        found,
        [
            "a: Extended attribute user.more only in many",
            "a: Extended attribute user.n7 differs",
            "a: Extended attribute user.n9 only in many.tar"
        ]
    );
}

/// > A format that does not keep an attribute does not tell that it differs.
#[test]
fn other_formats_tell_only_what_they_keep() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/folder; cd tree; echo 1 > file; head -c 700000 /dev/urandom > folder/large; ln -s file link; echo 2 > other; chmod 640 other
         touch -d '2021-05-06 07:08:09.123456789' file folder/large other; touch -h -d '2021-05-06 07:08:09' link; touch -d '2021-05-06 07:08:10' folder .",
    );
    if is_root() {
        scratch.shell("chown -R -h 12:34 tree");
    }
    let mut archives = Vec::new();
    for (program, script, archive) in [
        ("zip", "cd tree; zip -qry ../a.zip .", "a.zip"),
        ("zip", "cd tree; zip -qryX ../no-extra.zip .", "no-extra.zip"),
        ("7z", "cd tree; 7z a -snl ../a.7z . > /dev/null", "a.7z"),
        ("mksquashfs", "mksquashfs tree a.squashfs -quiet -no-progress > /dev/null", "a.squashfs"),
        ("cpio", "cd tree; find . | cpio -o -H newc --quiet > ../a.cpio; gzip -k ../a.cpio", "a.cpio"),
        ("cpio", "true", "a.cpio.gz"),
        ("ar", "ar rcD a.ar tree/file tree/other; ar rcU b.ar tree/file tree/other", "a.ar"),
        ("ar", "true", "b.ar"),
        ("gzip", "gzip -k -c tree/file > file.gz; gzip -k -c tree/folder/large > large.gz", "file.gz"),
    ] {
        if have(program) {
            scratch.shell(script);
            archives.push(archive);
        }
    }
    for archive in &archives {
        is_same(&scratch, &[archive, "tree", "--no-extra"]);
    }
    scratch.shell(
        "cd tree; printf 9 | dd of=file conv=notrunc status=none; touch -d '2021-05-06 07:08:09.123456789' file",
    );
    for archive in &archives {
        let ran = compare(&scratch, &[archive, "tree", "--no-extra"]);
        assert_eq!(
            (ran.code, ran.text().as_str()),
            (1, "file: Contents differ: from byte 0 on\n"),
            "{archive}: {}",
            ran.err
        );
    }
    // What a compressed single file is called is the name of its archive without the suffix.
    is_same(&scratch, &["large.gz", "tree/folder"]);
    if archives.contains(&"a.zip") && archives.contains(&"a.squashfs") {
        let two = compare(&scratch, &["a.zip", "a.squashfs"]);
        assert_eq!((two.code, two.text().as_str()), (0, ""), "{}", two.err);
    }
}

/// > Archives in the archive are compared as folders with `-r`.
#[test]
fn archives_in_archives_are_folders() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree in; echo 1 > in/file; tar -cf tree/in.tar in; tar -czf tree/in.tgz in; tar -czf a.tar.gz -C tree .");
    scratch.shell(&format!("{} extract -r -C out a.tar.gz", env!("CARGO_BIN_EXE_tarnfs")));
    is_same(&scratch, &["a.tar.gz", "tree"]);
    is_same(&scratch, &["-r", "a.tar.gz", "out", "--ignore=mtime"]);
    scratch.shell("printf 2 > out/in.tgz/in/file");
    let ran = compare(&scratch, &["-r", "a.tar.gz", "out", "--ignore=mtime"]);
    assert_eq!(ran.text(), "in.tgz/in/file: Size differs: 2 -> 1\n", "{}", ran.err);
}

/// > What is damaged is told, and the rest is compared.
#[test]
fn what_is_damaged_is_told_and_the_rest_is_compared() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for n in $(seq 100); do head -c 50000 /dev/urandom > tree/$n; done; printf x > tree/z
         tar --sort=name --format=pax -cf a.tar -C tree .; bzip2 -k a.tar",
    );
    scratch.shell("printf y > tree/1; printf y > tree/z");
    let mut bytes = fs::read(scratch.path("a.tar.bz2")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(scratch.path("a.tar.bz2"), bytes).unwrap();
    let ran = compare(&scratch, &["a.tar.bz2", "tree", "--ignore=mtime", "--no-extra"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("damaged"), "{}", ran.err);
    let told = lines(&ran);
    assert!(told.contains(&"1: Size differs: 50000 -> 1".to_owned()), "{told:?}");
    assert!(told.contains(&"z: Contents differ: from byte 0 on".to_owned()), "{told:?}");
    // Of what is damaged nobody says that it differs.
    assert_eq!(told.len(), 2, "{told:?}");
    fs::write(scratch.path("none"), b"nothing that is an archive").unwrap();
    assert_eq!(compare(&scratch, &["none", "tree"]).code, 4);
    assert_eq!(compare(&scratch, &["a.tar.bz2", "nowhere"]).code, 3);
    assert_eq!(compare(&scratch, &["nowhere.tar", "tree"]).code, 3);
}

/// > No symbolic link is followed, and what is neither file nor folder is not opened.
#[test]
fn links_are_not_followed_and_pipes_not_opened() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/a real; echo 1 > tree/a/file; echo 2 > tree/b; tar -czf a.tar.gz -C tree .; cp -a tree/a/. real",
    );
    scratch.shell("rm -r tree/a tree/b; mkfifo tree/b");
    symlink(scratch.path("real"), scratch.path("tree/a")).unwrap();
    let ran = compare(&scratch, &["a.tar.gz", "tree", "--ignore=mtime"]);
    assert_eq!(lines(&ran), ["a: File type differs: folder -> symlink", "b: File type differs: file -> fifo"]);
}

/// > Names go to a pipe as they are, but for line ends.
#[test]
fn names_go_to_a_pipe_as_they_are() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; echo > $'a\\x1b[31m'; echo > $'two\\nlines'; echo > $'\\xff'; tar -cf ../a.tar .; rm *",
    );
    let ran = compare(&scratch, &["a.tar", "tree", "--ignore=mtime"]);
    let mut found: Vec<_> = ran.out.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    found.sort_unstable();
    assert_eq!(found, [&b"a\x1b[31m: Only in a.tar"[..], b"two\\nlines: Only in a.tar", b"\xff: Only in a.tar"]);
}

/// > What cannot be read is told, and the rest is compared.
#[test]
fn what_cannot_be_read_is_told() {
    let scratch = Scratch::new();
    scratch.shell("chmod 755 .; mkdir tree; cd tree; echo 1 > closed; echo 2 > open; mkdir shut; echo 3 > shut/in; chmod 755 . shut; chmod 644 *; chmod 755 shut; tar -czf ../a.tar.gz .; chmod 0 closed shut; echo x > open");
    let program = scratch.program("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.path("a.tar.gz"), fs::Permissions::from_mode(0o644)).unwrap();
    let words = "./program compare --index-file :memory: --cache-size 0 a.tar.gz tree --ignore=mtime,mode,owner";
    let mut command = if is_root() { Command::new("su") } else { Command::new("bash") };
    if is_root() {
        command.args(["nobody", "-s", "/bin/bash"]);
    }
    let ran = Ran::from(command.args(["-c", words]).current_dir(scratch.path("")).output().unwrap());
    assert_eq!(ran.text(), "open: Contents differ: from byte 0 on\n", "{}", ran.err);
    assert!(ran.err.contains("closed: Permission denied") && ran.err.contains("shut"), "{}", ran.err);
    assert_ne!(ran.code, 0);
    scratch.shell("chmod -R u+rwX tree");
}

/// > A file that changes while it is read is told.
#[test]
fn a_file_that_changes_while_it_is_read_is_told() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; truncate -s 1G tree/file; printf x | dd of=tree/file bs=1 seek=1073741824 conv=notrunc status=none; tar -cf a.tar -C tree file");
    let path = scratch.path("tree/file");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The same byte again: only its time changes.
            let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                file.write_all(&[0]).unwrap();
                std::io::Seek::rewind(&mut file).unwrap();
            }
        });
        let ran = compare(&scratch, &["a.tar", "tree", "--ignore=mtime"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!((ran.code, ran.text().as_str()), (1, "file: Changed while it was read\n"), "{}", ran.err);
    });
}

/// > Many differences are told, one in each line.
#[test]
fn many_lines() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; cd tree; seq 30000 | xargs touch; tar --sort=name -cf ../a.tar .; cd ..; mkdir empty");
    let all = compare(&scratch, &["a.tar", "empty", "--ignore=mtime,mode,owner"]);
    assert_eq!(all.text().lines().count(), 30_000, "{}", all.err);
}

/// > What is damaged is told, and the rest is compared.
#[test]
fn what_is_damaged_is_told_with_force_too() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1000 > tree/f; seq 99 > tree/g; cd tree; zip -q0 ../a.zip f g");
    let archive = fs::OpenOptions::new().write(true).open(scratch.path("a.zip")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&archive, b"x", 500).unwrap();
    // With a folder that has the same wrong bytes, and with itself.
    scratch.shell(&format!("{} extract --force -C out a.zip || [ $? = 5 ]", env!("CARGO_BIN_EXE_tarnfs")));
    for words in [&["--content-only", "--force", "a.zip", "out"][..], &["--force", "a.zip", "a.zip"]] {
        let ran = compare(&scratch, words);
        assert_eq!((ran.code, ran.text().as_str()), (5, ""), "{words:?} {}", ran.err);
        assert!(ran.err.contains("f: is damaged, and was compared as it is"), "{words:?} {}", ran.err);
    }
}

/// A FUSE file system may say anything of where data lie.
#[test]
fn data_before_what_was_asked_for_is_no_data() {
    if !have("strace") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; truncate -s 4M tree/f; printf x | dd of=tree/f conv=notrunc status=none
         printf x | dd of=tree/f seek=3000000 bs=1 conv=notrunc status=none; tar -S -cf a.tar -C tree f",
    );
    let said = scratch.shell(&format!(
        "export XDG_CACHE_HOME=$PWD/cache; strace -f -qq -o log -e inject=lseek:retval=0:when=2+ {} compare --no-extra a.tar tree 2>&1
         grep -c INJECTED log",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert_ne!(said.trim(), "0", "{said}");
    assert!(said.trim().parse::<u64>().is_ok(), "{said}");
}

/// What is named is there, also where something else that was named has it in it.
#[test]
fn what_lies_in_what_was_named_is_there() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p home/me; echo n > home/me/notes.txt; echo m > home/me/m; tar -cf w.tar home");
    is_same(&scratch, &["w.tar", ".", "home", "home/me/m"]);
    is_same(&scratch, &["w.tar", ".", "home", "home/me/*.txt", "**/m"]);
    let ran = compare(&scratch, &["w.tar", ".", "home", "home/me/none", "**/none"]);
    assert_eq!((ran.code, ran.err.lines().count()), (1, 2), "{}", ran.err);
    // At the other side only.
    scratch.shell("touch home/me/new");
    let ran = compare(&scratch, &["--ignore=mtime", "w.tar", ".", "home", "home/me/new"]);
    assert!(ran.code == 1 && ran.text().contains("home/me/new") && ran.err.is_empty(), "{} {}", ran.text(), ran.err);
}

/// > What differs is told in one line each, whatever the archive is compressed with.
#[test]
fn what_differs_is_told_of_a_compressed_directory() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two; seq 9 > one/a; cp -p one/a one/b; cp -pr one/. two; chmod 600 two/a; touch -d 2001-01-01 two/b
         (cd one; zip -q -r ../one.zip .); (cd two; zip -q -r ../two.zip .); gzip one.zip two.zip",
    );
    let told = compare(&scratch, &["one.zip.gz", "two.zip.gz"]);
    assert_eq!(told.code, 1, "{}", told.err);
    for what in ["a: Mode differs", "b: Mod time differs"] {
        assert!(told.text().contains(what), "{}{}", told.text(), told.err);
    }
    let info = Ran::from(tarnfs(&scratch).arg("info").arg(scratch.path("one.zip.gz")).output().unwrap()).ok();
    assert!(info.text().contains("gzip") && info.text().contains("then zip"), "{}", info.text());
}
