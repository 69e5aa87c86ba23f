//! Where nothing is taken out of a plain tar, what was written is put behind it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::served::Served;
use crate::support::{Compare, Mounted, Scratch, can_mount, run, survey, wait_until};
use crate::{assert_same, changed, commit, left, shown};

fn archive(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/d/e; for i in $(seq 20); do echo old $i > tree/d/$i; done; seq 200000 > tree/large; ln tree/d/1 tree/hard
        tar -C tree -cf a.tar .",
    );
}

/// The bytes of the archive before the zeros at its end.
fn entries(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last + 1).next_multiple_of(512));
    &bytes[..end]
}

/// > Where nothing is removed or renamed, `commit` only appends to a tar that is not compressed.
#[test]
fn what_was_written_is_appended() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    run(&scratch, ["index".as_ref(), "--index-minimum-file-count=0".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    for (round, script) in [
        "echo new > new; echo more >> d/1; chmod 600 d/2; mkdir -p f/g; seq 100000 > f/g/h; ln -s x f/link; ln d/3 d/three",
        "echo again >> new; touch -d '2001-01-01' d/e; setfattr -n user.a -v b large; : > d/4; rm d/5; echo five > d/5",
        "chown 12:34 .; mkfifo f/pipe; truncate -s 2M f/holes; echo end >> f/holes",
    ]
    .into_iter()
    .enumerate()
    {
        let before = fs::read(scratch.path("a.tar")).unwrap();
        let inode = fs::metadata(scratch.path("a.tar")).unwrap().ino();
        let expected = changed(&scratch, "a.tar", script);
        let dry = commit(&scratch, "a.tar", &["--dry-run"]).ok().text();
        assert!(dry.contains("is appended to: tar"), "{dry}");
        assert!(fs::read(scratch.path("a.tar")).unwrap() == before);
        let ran = commit(&scratch, "a.tar", &["--yes"]).ok();
        assert_eq!(ran.err, "", "{round}");
        let after = fs::read(scratch.path("a.tar")).unwrap();
        assert!(after.starts_with(entries(&before)), "{round}");
        assert_eq!((fs::metadata(scratch.path("a.tar")).unwrap().ino(), after.len() % 10_240), (inode, 0));
        assert_eq!(left(&scratch), "");
        // The index is that of the longer archive.
        let path = scratch.path("a.tar");
        run(&scratch, ["ls".as_ref(), "--no-recreate-index".as_ref(), path.as_os_str()]).ok();
        assert_same(&expected, &shown(&scratch, "a.tar"), "as it is mounted");
        scratch.shell("rm -rf out; mkdir out; tar --xattrs --xattrs-include='*' --acls --numeric-owner -C out -xpf a.tar");
        let mut extracted = survey(&scratch.path("out"), Compare::default());
        let mut expected = expected;
        for all in [&mut extracted, &mut expected] {
            // A link that was there before stays one to what is replaced: see below.
            for seen in all.values_mut() {
                seen.links = 0;
            }
        }
        assert_same(&expected, &extracted, "as tar extracts it");
    }
    // What takes something out of it is written anew; so is what is asked for.
    changed(&scratch, "a.tar", "echo 1 > more");
    let dry = commit(&scratch, "a.tar", &["--dry-run", "--rewrite"]).ok().text();
    assert!(dry.contains("is written anew: tar"), "{dry}");
    for script in ["rm d/7", "mv d/8 d/eight", "rm -r d/e; mkdir d/e", "rm d/9; mkdir d/9", "rm d/10; ln -s x d/10"] {
        scratch.shell("rm -rf overlay");
        changed(&scratch, "a.tar", script);
        let dry = commit(&scratch, "a.tar", &["--dry-run"]).ok().text();
        // A folder that is another one is one with other attributes, as long as nothing was in it.
        assert!(dry.contains("is written anew: tar"), "{script}: {dry}");
    }
    // A mount would have to say that it has changed.
    scratch.shell("rm -rf overlay");
    changed(&scratch, "a.tar", "echo 1 > more");
    let reader = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    let dry = commit(&scratch, "a.tar", &["--dry-run"]).ok().text();
    assert!(dry.contains("is written anew: tar"), "{dry}");
    commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(fs::read_to_string(reader.path("d/2")).unwrap(), "old 2\n");
    reader.unmount();
    assert_eq!(run(&scratch, ["cat".as_ref(), scratch.path("a.tar").as_os_str(), "more".as_ref()]).ok().text(), "1\n");
}

/// > Nothing is appended to an archive that a mount or `tarnfs serve` shows: they go on with what it was.
#[test]
fn what_somebody_reads_is_written_anew() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    changed(&scratch, "a.tar", "echo new > new");
    let does = |what: &str, expects: &str| {
        let dry = commit(&scratch, "a.tar", &["--dry-run"]).ok().text();
        assert!(dry.contains(expects), "{what}: {dry}");
    };
    does("nobody", "is appended to");
    let path = |name: &str| scratch.path(name).display().to_string();
    // Their names are too long for the table to have all of them.
    scratch.shell("mkdir many; for i in $(seq 20); do tar -cf many/$(printf '%0240d' $i).tar -C tree/d 1; done");
    let many = fs::read_dir(scratch.path("many")).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    let many: Vec<String> = many.collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let whole = path("");
    for (what, archive, options) in [
        ("called something else", path("a.tar"), &["-o", "fsname=something"][..]),
        ("one of many", path("a.tar"), &many[..]),
        ("in a folder", whole.clone(), &["-r", "-l"]),
    ] {
        let reader = Mounted::new(&scratch, archive, options);
        does(what, "is written anew");
        reader.unmount();
    }
    let as_file = Mounted::new(&scratch, whole, &[]);
    does("a folder whose archives stay files", "is appended to");
    as_file.unmount();
    // What is added to a mount, until it is taken out.
    scratch.shell("mkdir empty; tar -C empty -cf empty.tar .");
    let controlled = Mounted::new(&scratch, path("empty.tar"), &["--control-interface"]);
    let control = controlled.path(".ratarmount-control");
    let archive = path("a.tar");
    for (number, (line, expects)) in
        [(format!("tarnfs {archive} added"), "is written anew"), ("tarnfs unmount added".to_owned(), "is appended to")]
            .into_iter()
            .enumerate()
    {
        fs::write(control.join("command"), format!("{line}\n")).unwrap();
        let end = format!("command {}: done\n", number + 1);
        wait_until(&end, || fs::read_to_string(control.join("output")).unwrap().ends_with(&end));
        does(&line, expects);
    }
    controlled.unmount();
    let served = Served::new(&scratch, [path("a.tar")]);
    does("served", "is written anew");
    commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(served.get("/d/2").body, b"old 2\n");
    assert_eq!(served.end(), Some(0));
    assert_eq!(run(&scratch, ["cat", &path("a.tar"), "new"]).ok().text(), "new\n");
}

/// What has another place is not appended, also where it looks the same; nor is anything to a file with other names.
#[test]
fn what_was_moved_is_written_anew() {
    if !can_mount() {
        return;
    }
    for (script, linked, expects) in [
        ("mv a t; mv b a; mv t b", false, "is written anew"),
        ("mv d1 t; mv d2 d1; mv t d2", false, "is written anew"),
        ("mv a b; echo new > a", false, "is written anew"),
        ("mv d1/x d2/x; echo again > d1/x", false, "is written anew"),
        ("mv d1 d3; mkdir d1; echo again > d1/x", false, "is written anew"),
        ("ln -f a b", false, "is written anew"),
        ("echo more >> hard; rm hard", false, "is written anew"),
        ("ln a further; echo new > new", false, "is appended to"),
        ("mv a t; mv t a; echo new > new", false, "is appended to"),
        ("echo new > new", true, "is written anew"),
    ] {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir -p tree/d1 tree/d2; cd tree; echo 1 > a; echo 2 > b; echo 3 > d1/x; echo 4 > d2/x; echo 5 > c; ln c hard
            tar --mtime 2001-01-01 -cf ../a.tar .",
        );
        if linked {
            scratch.shell("ln a.tar kept.tar; cp a.tar before.tar");
        }
        let expected = changed(&scratch, "a.tar", script);
        let ran = commit(&scratch, "a.tar", &["--yes"]).ok();
        assert!(ran.text().contains(expects), "{script}");
        assert_eq!(left(&scratch), "", "{script}");
        assert_same(&expected, &shown(&scratch, "a.tar"), script);
        if linked {
            scratch.shell("cmp kept.tar before.tar");
        }
    }
}

/// A commit that was ended does not take what another one has appended since for its own, though both begin alike; nor
/// does it cut that off.
#[test]
fn what_another_overlay_appends_is_not_taken_for_it() {
    if !can_mount() || !crate::strace::have_strace() {
        return;
    }
    for time in ["2001-01-01 00:00:00", "2001-01-01 00:00:00.5"] {
        let scratch = Scratch::new();
        scratch.shell(&format!(
            "mkdir -p tree/d; echo 1 > tree/d/f; echo 2 > tree/d/g; touch -d '{time}' tree/d tree/d/f tree/d/g tree
            tar --format=pax --pax-option=delete=atime,delete=ctime -C tree -cf a.tar ."
        ));
        // In place, so that the folder, which goes before it, is as it was.
        changed(&scratch, "a.tar", "printf X | dd of=d/g conv=notrunc 2> /dev/null");
        scratch.shell("mv overlay other");
        changed(&scratch, "a.tar", "printf Y | dd of=d/f conv=notrunc 2> /dev/null");
        let words = ["commit", "a.tar", "--overlay", "overlay", "--yes"];
        scratch.shell("cp -a overlay kept; cp a.tar kept.tar");
        let (_, calls) = crate::strace::calls(&scratch, &[], &words);
        scratch.shell("rm -rf overlay a.tar*; mv kept overlay; mv kept.tar a.tar");
        let writes: Vec<_> =
            calls.iter().filter(|call| call.name == "pwrite64" && call.rest.contains("/a.tar>")).collect();
        let last = writes[writes.len() - 1].number;
        let ran = crate::strace::run(&scratch, &["-e", &format!("inject=pwrite64:signal=KILL:when={last}")], &words);
        assert_ne!(ran.code, 0);
        let paths = ["a.tar", "other"].map(|name| scratch.path(name).display().to_string());
        run(&scratch, ["commit", &paths[0], "--overlay", &paths[1], "--yes", "--lossy"]).ok();
        assert_eq!(scratch.shell("tar -xOf a.tar ./d/g"), "X\n");
        commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
        assert_eq!(scratch.shell("tar -xOf a.tar ./d/g | tail -1; tar -xOf a.tar ./d/f | tail -1"), "X\nY\n", "{time}");
    }
}

/// What an ended commit has left behind the end of an archive is not taken away if somebody has appended to it since.
#[test]
fn what_others_append_stays() {
    if !can_mount() || !crate::strace::have_strace() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let expected = changed(&scratch, "a.tar", "seq 3000 > new");
    scratch.shell("cp a.tar before.tar");
    let words = ["commit", "a.tar", "--overlay", "overlay", "--yes"];
    // Its last write makes what is behind the end a part of it.
    let (_, calls) = {
        scratch.shell("cp -a overlay kept; cp a.tar kept.tar");
        let traced = crate::strace::calls(&scratch, &[], &words);
        scratch.shell("rm -rf overlay a.tar*; mv kept overlay; mv kept.tar a.tar");
        traced
    };
    let writes: Vec<_> = calls.iter().filter(|call| call.name == "pwrite64" && call.rest.contains("/a.tar>")).collect();
    assert!(writes.len() >= 2, "{}", writes.len());
    let last = writes[writes.len() - 1].number;
    let ran = crate::strace::run(&scratch, &["-e", &format!("inject=pwrite64:signal=KILL:when={last}")], &words);
    assert_ne!(ran.code, 0);
    // tar finds the old archive.
    assert_eq!(
        scratch.shell("tar -df a.tar -C tree && tar -tf a.tar | wc -l"),
        scratch.shell("tar -tf before.tar | wc -l")
    );
    scratch.shell("cp a.tar half.tar; cp -a overlay half; echo theirs > tree/theirs; tar -C tree -rf a.tar ./theirs");
    // What lies behind their entry now might be of somebody else, too.
    let ran = commit(&scratch, "a.tar", &["--yes"]);
    assert!(ran.code == 1 && ran.err.contains("--lossy"), "{}", ran.err);
    commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(scratch.shell("tar -xOf a.tar ./theirs"), "theirs\n");
    assert_eq!(scratch.shell("tar -xOf a.tar ./new | tail -1"), "3000\n");
    // Without that, it is as it was, byte by byte.
    scratch.shell("mv half.tar a.tar; rm -r overlay; mv half overlay");
    crate::told(&scratch, &["commit", "a.tar", "--overlay", "overlay"], "no\n");
    scratch.shell("cmp a.tar before.tar");
    commit(&scratch, "a.tar", &["--yes"]).ok();
    assert_same(&expected, &shown(&scratch, "a.tar"), "a.tar");
}

/// Each commit that appends to a folder repeats its entry, so the folder has older versions then.
#[test]
fn what_was_seen_among_older_versions_is_appended() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; echo old > d/x; tar -cf a.tar d; echo y > d/y; tar -rf a.tar --no-recursion d; tar -rf a.tar d/y",
    );
    let script = "cat d/x; ls -l d.versions/1 d.versions; ! mv d/y d.versions/1/z; ! mkdir d.versions/z
        echo PRECIOUS > d/x";
    let expected = changed(&scratch, "a.tar", script);
    assert_eq!(left(&scratch), "M d/x\n");
    commit(&scratch, "a.tar", &["--yes"]).ok();
    assert_same(&expected, &shown(&scratch, "a.tar"), "as it is mounted");
    assert_eq!(scratch.shell("tar -xOf a.tar d/x | tail -n 1"), "PRECIOUS\n");
}

/// Names that are not UTF-8 are written as they are shown. Appended, they would stand beside the old ones.
#[test]
fn what_is_read_in_another_encoding_is_written_anew() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; cd tree; echo old > $'caf\\xe9.txt'; echo x > x; tar -cf ../a.tar *");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay, "--encoding", "latin1"]);
    scratch.shell(&format!("echo more | tee -a {}/*.txt > tee", mounted.at.display()));
    mounted.unmount();
    scratch.shell("flock -w 300 overlay/.tarnfs-overlay.lock true");
    commit(&scratch, "a.tar", &["--yes", "--encoding", "latin1"]).ok();
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c txt; tar -xOf a.tar --wildcards '*.txt'"), "1\nold\nmore\n");
}
