//! What cannot be committed is refused with what to do, and all stays as it is.

use std::fs;

use crate::support::{Mounted, Scratch, can_mount, have, run};
use crate::{changed, commit, left};

/// Fails unless that is refused with these words, and nothing is changed by it.
#[track_caller]
fn refused(scratch: &Scratch, archive: &str, more: &[&str], says: &[&str]) {
    let hash = |scratch: &Scratch| scratch.shell(&format!("find {archive} -type f | sort | xargs md5sum"));
    let (before, status) = (hash(scratch), left(scratch));
    let ran = commit(scratch, archive, &[&["--yes"], more].concat());
    assert_ne!(ran.code, 0, "{archive}");
    for part in says {
        assert!(ran.err.contains(part), "{archive}: {} lacks {part}", ran.err);
    }
    assert_eq!((hash(scratch), left(scratch)), (before, status), "{archive}");
}

/// > What cannot be committed into (damaged or encrypted archives, folders, parts, formats that are not written) is
/// > refused with what to do.
#[test]
fn what_cannot_be_committed_into_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/a; echo b > tree/b; tar -C tree -cf a.tar .; gzip -k a.tar; cp a.tar.gz cut.tar.gz
        truncate -s -100 cut.tar.gz; mkdir folder; (cd tree; find . | cpio -o --quiet -H newc > ../a.cpio); lzip -k a.tar
        split -b 200k -d a.tar p.tar.; gzip -kc tree/a > a.gz; cp a.tar i.tar; gzip -c a.tar.gz > twice.tar.gz.gz
        mkfifo pipe",
    );
    changed(&scratch, "a.tar", "echo new > new");
    refused(&scratch, "cut.tar.gz", &[], &["damaged", "stays as it is"]);
    refused(&scratch, "cut.tar.gz", &["--force"], &["--force", "extract --force"]);
    refused(&scratch, "folder", &[], &["is a folder", "copy"]);
    refused(&scratch, "pipe", &[], &["is not a file"]);
    refused(&scratch, "a.cpio", &[], &["cpio can be read, but not written", "tarnfs convert"]);
    refused(&scratch, "a.tar.lz", &[], &["tar, in lzip can be read, but not written", "tarnfs convert"]);
    refused(&scratch, "a.gz", &[], &["a single file, in gzip can be read, but not written"]);
    refused(&scratch, "twice.tar.gz.gz", &[], &["a single file, in gzip can be read"]);
    refused(&scratch, "p.tar.00", &[], &["lies in several files", "tarnfs convert"]);
    refused(&scratch, "a.tar", &["-r"], &["-r and --transform do not go with it"]);
    if have("zip") {
        scratch.shell("cd tree; zip -q -P secret ../locked.zip a b");
        refused(&scratch, "locked.zip", &[], &["encrypted", "convert --decrypt"]);
        refused(&scratch, "locked.zip", &["--password", "secret"], &["encrypted", "convert --decrypt"]);
    }
    let missing = scratch.path("nothing.tar");
    let ran =
        run(&scratch, ["commit".as_ref(), missing.as_os_str(), "--overlay".as_ref(), "x".as_ref(), "--yes".as_ref()]);
    assert!(ran.code == 3 && ran.err.contains("cannot be opened"), "{}", ran.err);
    for (overlay, says) in
        [("nowhere", "there is no such folder"), ("folder", "is no overlay"), ("a.tar", "no such folder")]
    {
        let (archive, overlay) = (scratch.path("a.tar"), scratch.path(overlay));
        let words = ["commit".as_ref(), archive.as_os_str(), "--overlay".as_ref(), overlay.as_os_str(), "-y".as_ref()];
        let ran = run(&scratch, words);
        assert!(ran.code == 3 && ran.err.contains(says), "{}", ran.err);
    }
    assert_eq!(fs::read_dir(scratch.path("folder")).unwrap().count(), 0);
    assert!(!scratch.path("nowhere").exists());
    // Into another format than that of the archive that it was over: names are all that counts.
    scratch.shell("rm a.tar.gz; gzip -k a.tar");
    commit(&scratch, "a.tar.gz", &["--yes"]).ok();
    assert_eq!(scratch.shell("tar -xzOf a.tar.gz $(tar -tzf a.tar.gz | grep new)"), "new\n");
}

/// > What was written over several archives, a folder, a part of an archive, or in an archive in it, is not committed.
#[test]
fn what_was_written_over_something_else_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d inner folder; echo a > tree/d/a; echo i > inner/i; tar -C inner -cf tree/inner.tar .
        tar -C tree -cf a.tar .; tar -C inner -cf b.tar .; echo f > folder/f",
    );
    let (a, b, folder) = (scratch.path("a.tar"), scratch.path("b.tar"), scratch.path("folder"));
    let overlay = scratch.path("overlay").display().to_string();
    let written = |more: &[&str], archives: &[&std::path::Path], script: &str| {
        scratch.shell("rm -rf overlay");
        let archives: Vec<_> = archives.iter().map(|path| path.display().to_string()).collect();
        let (last, others) = archives.split_last().unwrap();
        let options: Vec<&str> = ["-w", overlay.as_str()]
            .into_iter()
            .chain(more.iter().copied())
            .chain(others.iter().map(String::as_str))
            .collect();
        let mounted = Mounted::new(&scratch, last, &options);
        scratch.shell(&format!("cd {}; {script}", mounted.at.display()));
        mounted.unmount();
    };
    written(&[], &[&a, &b], "echo x > d/new");
    refused(&scratch, "a.tar", &[], &["several archives or folders", "mount that again"]);
    written(&[], &[&folder], "echo x > new");
    refused(&scratch, "a.tar", &[], &["over a folder"]);
    written(&["--prefix", "d"], &[&a], "echo x > new");
    refused(&scratch, "a.tar", &[], &["a part of an archive (--prefix)"]);
    written(&["--transform", "d/", "e/"], &[&a], "echo x > new");
    refused(&scratch, "a.tar", &[], &["other names than those in the archive (--transform)"]);
    written(&["-r"], &[&a], "echo x > inner.tar/new");
    refused(&scratch, "a.tar", &[], &["inner.tar is not in", "or is something else there"]);
    written(&[], &[&a], "echo x >> d/a");
    refused(&scratch, "b.tar", &[], &["d is not in"]);
    // Also where only attributes were changed, and the content is another one by now.
    written(&[], &[&a], "chmod 600 d/a");
    scratch.shell("echo longer > tree/d/a; tar -C tree -cf b.tar .");
    refused(&scratch, "b.tar", &[], &["d/a is not in", "something else there"]);
    // With -r, but beside the archives in it.
    written(&["-r"], &[&a], "echo x > d/new");
    commit(&scratch, "a.tar", &["--yes"]).ok();
}

/// > Where the new archive cannot have all that is in the old one, `commit` refuses unless `--lossy` is given.
#[test]
fn what_would_be_lost_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo 1 > tree/a; echo 2 > tree/b; tar -C tree -cf one.tar a; tar -C tree -cf two.tar b
        cat one.tar two.tar > both.tar",
    );
    changed(&scratch, "both.tar", "rm a");
    refused(&scratch, "both.tar", &[], &["--lossy"]);
    scratch.shell("tar -C tree -V label -cf labelled.tar a b");
    refused(&scratch, "labelled.tar", &[], &["--lossy"]);
    let dry = commit(&scratch, "labelled.tar", &["--dry-run"]).ok().text();
    assert!(dry.contains("its label: that is not kept"), "{dry}");
    commit(&scratch, "labelled.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(scratch.shell("tar -tf labelled.tar"), "b\n");
}

/// The lists of GNU's incremental dumps are not lost without a word.
#[test]
fn lists_of_dumps_count_as_a_loss() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/d; echo f > tree/d/f; echo g > tree/d/g; tar -C tree -g snapshot -cf a.tar .");
    changed(&scratch, "a.tar", "rm d/f");
    let ran = commit(&scratch, "a.tar", &["--yes"]);
    assert!(ran.code == 1 && ran.text().contains("incremental dumps"), "{} {}", ran.text(), ran.err);
    scratch.shell("tar --incremental -tvvf a.tar | grep -q '^Y f'");
    commit(&scratch, "a.tar", &["--yes", "--lossy"]).ok();
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c d/f || true"), "0\n");
}
