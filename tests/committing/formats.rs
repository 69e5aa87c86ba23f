//! What goes into each kind of archive, as other programs read it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::support::{Compare, Scratch, can_mount, have, run, survey};
use crate::{assert_same, changed, commit, contents, left, shown};

/// What both kinds of archive can hold.
const TREE: &str = "mkdir -p tree/folder/in tree/many tree/stays; cd tree; echo text > text; seq 50000 > large
    for i in $(seq 40); do echo $i > many/$i; done; for name in gone private owned dated moved emptied replaced; do echo $name > $name; done
    echo x > folder/in/x; echo y > folder/y; ln -s text symbolic; echo z > stays/z; echo b > $'odd\\nname'; chmod 4755 private
    touch -d '2011-11-11 11:11:11' stays stays/z large; cd ..";

/// More that a tar can.
const MORE: &str = "cd tree; echo s > one; ln one two; ln one three; mkfifo pipe; mknod null c 1 3; echo m > marked
    setfattr -n user.old -v 1 marked; setfacl -m u:12:r marked; truncate -s 3M holes; echo end >> holes; cd ..";

const CHANGES: &str = "echo new > new; mkdir -p made/in/deep made/empty; seq 60000 > made/in/file; echo more >> text; rm gone
    rm -r folder; chmod 600 private; chown 12:34 owned; touch -d '2001-02-03 04:05:06.123456700' dated; mv moved elsewhere; mv many others
    : > emptied; rm others/7; echo other > others/8; rm replaced; mkdir replaced; echo in > replaced/in; ln -s ../text made/link
    printf x | dd of=large bs=1 seek=100000 conv=notrunc status=none; echo c > $'new\\nname'; mv symbolic others/symbolic";

const MORE_CHANGES: &str = "ln text again; ln two four; rm three; echo t >> one; mknod made/null c 1 3; mkfifo made/pipe
    setfattr -n user.mark -v yes marked; setfattr -n user.two -v b text; setfacl -m u:77:rw text; setfacl -d -m g:5:rx made
    truncate -s 4M made/holes; echo e >> made/holes; truncate -s 2M holes";

fn archive(scratch: &Scratch, name: &str) {
    let packed = match name {
        "a.zip" => "(cd tree; zip -qry ../a.zip .)".to_owned(),
        _ => format!("tar --format=posix --xattrs --acls -C tree -caf {name} ."),
    };
    scratch.shell(&format!("{TREE}; {}\n{packed}", if name == "a.zip" { "" } else { MORE }));
}

/// > `commit` puts into a tar in any compression that `create` writes all that was changed in a mount.
#[test]
fn all_that_was_changed_goes_into_a_tar() {
    if !can_mount() {
        return;
    }
    for name in ["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar.zst", "a.tar.lz4"] {
        let scratch = Scratch::new();
        if name == "a.tar.lz4" {
            // GNU tar does not know its suffix.
            archive(&scratch, "a.tar");
            scratch.shell("lz4 -q --rm a.tar a.tar.lz4");
        } else {
            archive(&scratch, name);
        }
        let expected = changed(&scratch, name, &format!("{CHANGES}; {MORE_CHANGES}"));
        let ran = commit(&scratch, name, &["--yes"]).ok();
        assert!(ran.err.is_empty(), "{name}: {}", ran.err);
        assert_eq!((left(&scratch), contents(&scratch)), (String::new(), String::new()), "{name}");
        assert_same(&expected, &shown(&scratch, name), name);
        let out = scratch.folder("out");
        let decoded = if name == "a.tar.lz4" { "lz4 -dc a.tar.lz4" } else { &format!("cat {name}") };
        scratch.shell(&format!(
            "f=; case {name} in *gz) f=-z;; *bz2) f=-j;; *xz) f=-J;; *zst) f=--zstd;; esac
             {decoded} | tar $f --xattrs --xattrs-include='*' --acls --numeric-owner -xpf - -C out"
        ));
        assert_same(&expected, &survey(&out, Compare::default()), &format!("{name} as tar extracts it"));
        assert_eq!(run(&scratch, ["check".as_ref(), scratch.path(name).as_os_str()]).code, 0, "{name}");
        // The overlay goes on.
        let expected = changed(&scratch, name, "echo again > again; rm new");
        commit(&scratch, name, &["--yes"]).ok();
        assert_same(&expected, &shown(&scratch, name), name);
    }
}

/// > `commit` puts into a zip all that was changed in a mount and that a zip can hold, and refuses what it cannot.
#[test]
fn what_a_zip_can_hold_goes_into_a_zip() {
    if !can_mount() || !have("zip") || !have("unzip") {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, "a.zip");
    let mut expected = changed(&scratch, "a.zip", CHANGES);
    // Times of a zip are those of NTFS.
    for seen in expected.values_mut() {
        seen.mtime.1 = seen.mtime.1 / 100 * 100;
    }
    commit(&scratch, "a.zip", &["--yes"]).ok();
    assert_eq!((left(&scratch), contents(&scratch)), (String::new(), String::new()));
    assert_same(&expected, &shown(&scratch, "a.zip"), "a.zip");
    scratch.shell("mkdir out; cd out; unzip -qq -X ../a.zip");
    let compare = Compare { skip_folder_times: true, whole_seconds: true, holes: false };
    let mounted = crate::support::Mounted::new(&scratch, scratch.path("a.zip"), &[]);
    let mut expected = survey(&mounted.at, compare);
    let mut found = survey(&scratch.path("out"), compare);
    for all in [&mut expected, &mut found] {
        // unzip leaves line ends out of names.
        all.retain(|path, _| !path.to_string_lossy().ends_with("name"));
        for seen in all.values_mut().filter(|seen| seen.kind == "symlink") {
            // unzip does not set that of a link.
            (seen.mtime, seen.owner) = ((0, 0), (0, 0));
        }
    }
    assert_same(&expected, &found, "as unzip extracts it");
    mounted.unmount();
    let before = fs::read(scratch.path("a.zip")).unwrap();
    for (script, says) in [
        ("setfattr -n user.a -v b text", "extended attributes cannot be kept there: text"),
        ("setfattr -x user.a text; mkfifo pipe", "a named pipe cannot be kept in a zip: pipe"),
        ("rm pipe; ln text hard", "further names of one file are files of their own there"),
    ] {
        changed(&scratch, "a.zip", script);
        let status = left(&scratch);
        let ran = commit(&scratch, "a.zip", &["--yes"]);
        assert!(ran.code == 1 && ran.err.contains(says) && ran.err.contains("--lossy"), "{script}: {}", ran.err);
        assert!(fs::read(scratch.path("a.zip")).unwrap() == before, "{script}");
        assert_eq!(left(&scratch), status);
    }
    commit(&scratch, "a.zip", &["--yes", "--lossy"]).ok();
    assert_eq!(left(&scratch), "");
    scratch.shell("unzip -qq -o a.zip hard -d out; cmp out/hard out/text");
}

/// > The archive's file keeps its owner, its mode, its access list and its extended attributes when it is committed
/// > into.
#[test]
fn the_file_keeps_what_it_has() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo 1 > tree/a; tar -C tree -cf a.tar .; setfattr -n user.note -v kept a.tar
        ln -s a.tar link; chown 12:34 a.tar; chmod 640 a.tar; setfacl -m u:77:r a.tar",
    );
    let list = || scratch.shell("getfacl -cnp a.tar; getfattr -n user.note --only-values a.tar");
    let (before, list_before) = (fs::metadata(scratch.path("a.tar")).unwrap(), list());
    changed(&scratch, "a.tar", "echo 2 > b");
    commit(&scratch, "link", &["--yes", "--rewrite"]).ok();
    let after = fs::metadata(scratch.path("a.tar")).unwrap();
    assert!(scratch.path("link").is_symlink() && after.ino() != before.ino());
    assert_eq!((after.uid(), after.gid(), after.mode()), (before.uid(), before.gid(), before.mode()));
    assert_eq!(list(), list_before);
    assert_eq!(scratch.shell("tar -xOf a.tar ./b"), "2\n");
}

/// Names of owners stay, also of what has changed, and what was made gets those of this machine.
#[test]
fn owners_are_called_as_before() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d; echo 1 > tree/d/a; echo 2 > tree/d/b; tar -C tree --owner=alice:1234 --group=wonder:4321 -cf a.tar .",
    );
    changed(&scratch, "a.tar", "echo more >> d/a; echo new > d/new; chown root d/b");
    commit(&scratch, "a.tar", &["--yes", "--rewrite"]).ok();
    let listed = scratch.shell("tar -tvf a.tar | awk '{print $2, $6}' | sort -k2");
    assert_eq!(
        listed,
        "alice/wonder ./\nalice/wonder ./d/\nalice/wonder ./d/a\nroot/wonder ./d/b\nroot/root ./d/new\n"
    );
}

/// > The index of an archive that is committed into is made in the same pass.
#[test]
fn the_index_is_made_in_the_same_pass() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; cd tree; for i in $(seq 1200); do echo $i > $i; done; cd ..; tar -C tree -czf a.tar.gz .");
    let archive = scratch.path("a.tar.gz");
    run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
    let expected = changed(&scratch, "a.tar.gz", "echo new > new; rm 7");
    commit(&scratch, "a.tar.gz", &["--yes"]).ok();
    let words = ["ls".as_ref(), "--no-recreate-index".as_ref(), archive.as_os_str()];
    let listed = run(&scratch, words).ok().text();
    assert_eq!(listed.lines().count(), 1200);
    assert_same(&expected, &shown(&scratch, "a.tar.gz"), "with the index");
    changed(&scratch, "a.tar.gz", "rm new");
    scratch.shell("rm a.tar.gz.tarnfs.sqlite");
    commit(&scratch, "a.tar.gz", &["--yes", "--no-index"]).ok();
    assert!(!scratch.path("a.tar.gz.tarnfs.sqlite").exists());
}

/// > Older entries of what has not changed stay in a tar that is written anew.
#[test]
fn older_entries_stay() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d; cd tree; for i in 1 2 3; do for name in a b d/c gone; do echo $name $i > $name; done
        chmod 75$i d; tar -rf ../a.tar a b d gone; done; gzip ../a.tar",
    );
    let expected = changed(&scratch, "a.tar.gz", "echo more >> b; rm gone; echo new > d/new");
    commit(&scratch, "a.tar.gz", &["--yes"]).ok();
    assert_same(&expected, &shown(&scratch, "a.tar.gz"), "a.tar.gz");
    let occurrence = |name: &str| scratch.shell(&format!("tar -xzOf a.tar.gz {name}"));
    assert_eq!(occurrence("a"), "a 1\na 2\na 3\n");
    assert_eq!(occurrence("d/c"), "d/c 1\nd/c 2\nd/c 3\n");
    // What was changed was so with all that it had been.
    assert_eq!(occurrence("b"), "b 3\nmore\n");
    assert_eq!(scratch.shell("tar -tzf a.tar.gz | grep -c gone || true"), "0\n");
}

/// An older entry may be of what has another name by now, too: it stays what it was when that is written to.
#[test]
fn an_older_entry_is_as_it_was_when_its_other_name_is_written_to() {
    if !can_mount() {
        return;
    }
    for (script, of_other) in [
        ("echo more >> b; chmod 600 b", "version 1\nmore\n"),
        ("printf VERSION | dd of=b conv=notrunc status=none", "VERSION 1\n"),
        ("rm b; echo new > b", "new\n"),
        ("ln b c", "version 1\n"),
    ] {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir tree; cd tree; echo version 1 > a; ln a b; echo gone > gone; tar -cf ../a.tar a b gone
            rm a; echo version 2 > a; tar -rf ../a.tar a",
        );
        // So that it is written anew.
        let expected = changed(&scratch, "a.tar", &format!("{script}; rm gone"));
        commit(&scratch, "a.tar", &["--yes"]).ok();
        assert_same(&expected, &shown(&scratch, "a.tar"), script);
        assert_eq!(scratch.shell("tar -xOf a.tar a"), "version 1\nversion 2\n", "{script}");
        scratch.shell("mkdir out; tar -C out -xf a.tar");
        assert_eq!(scratch.shell("cat out/a out/b"), format!("version 2\n{of_other}"), "{script}");
    }
}

/// So does all that lies in a folder in whose place something else shows: only its versions lead there.
#[test]
fn what_an_older_folder_holds_stays() {
    if !can_mount() {
        return;
    }
    for (first, last, listed) in [
        ("tar -cf a.tar d", "echo file > d", "d d/ d/e/ d/e/y d/x k "),
        ("tar -cf a.tar d/x d/e/y", "ln -s k d", "d d/e/y d/x k "),
        ("tar -cf a.tar d", "ln -s nowhere d", "d d/ d/e/ d/e/y d/x k "),
    ] {
        let scratch = Scratch::new();
        scratch.shell(&format!(
            "mkdir -p d/e; echo x > d/x; echo y > d/e/y; {first}; rm -r d; {last}; echo k > k; tar -rf a.tar d k"
        ));
        let expected = changed(&scratch, "a.tar", "echo new >> k");
        let ran = commit(&scratch, "a.tar", &["--yes", "--rewrite"]).ok();
        assert_eq!((ran.err.as_str(), left(&scratch).as_str()), ("", ""), "{first}");
        assert_same(&expected, &shown(&scratch, "a.tar"), first);
        assert_eq!(scratch.shell("tar -tf a.tar | LC_ALL=C sort | tr '\\n' ' '"), listed, "{first}");
        for (path, content) in [("d.versions/1/x", "x\n"), ("d.versions/1/e/y", "y\n")] {
            let ran = run(&scratch, ["cat".as_ref(), scratch.path("a.tar").as_os_str(), path.as_ref()]).ok();
            assert_eq!(ran.text(), content, "{first}");
        }
    }
    // What something else has replaced in there cannot be told from what is there.
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; echo x > d/x; echo k > k; tar -cf a.tar d k; echo 2 > d/x; tar -rf a.tar d/x
        rm -r d; echo file > d; tar -rf a.tar d",
    );
    changed(&scratch, "a.tar", "rm k");
    let ran = commit(&scratch, "a.tar", &["--yes"]);
    assert!(ran.code == 1 && ran.text().contains("1 older entry of the same names"), "{} {}", ran.text(), ran.err);
    commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(scratch.shell("tar -tf a.tar | tr '\\n' ' '"), "d/ d/x d ");
    let ran = run(&scratch, ["cat".as_ref(), scratch.path("a.tar").as_os_str(), "d.versions/1/x".as_ref()]).ok();
    assert_eq!(ran.text(), "2\n");
}

/// What is not in the overlay is in the new archive to the last byte.
#[test]
fn what_was_not_changed_stays() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/a/b/c; head -c 9000000 /dev/urandom > tree/a/b/noise; seq 300000 > tree/a/numbers
        touch -d '1970-01-01 00:00:00.5' tree/a/numbers; tar -C tree -c . | zstd -q > a.tar.zst",
    );
    let mut expected = shown(&scratch, "a.tar.zst");
    changed(&scratch, "a.tar.zst", "echo 1 > a/b/c/new");
    commit(&scratch, "a.tar.zst", &["--yes"]).ok();
    let mut found = shown(&scratch, "a.tar.zst");
    assert!(found.remove(std::path::Path::new("a/b/c/new")).is_some());
    for all in [&mut expected, &mut found] {
        all.remove(std::path::Path::new("a/b/c"));
    }
    assert_same(&expected, &found, "a.tar.zst");
}
