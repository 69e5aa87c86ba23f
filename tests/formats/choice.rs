//! Files that could be of several formats, and `--use-backend`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::process::{Command, Stdio};

use crate::peers::ratarmount;
use crate::support::{Mounted, Scratch, can_mount, have, run, wait_until};

#[test]
fn what_a_file_is_read_as_can_be_chosen() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo tar > of-tar; echo zip > of-zip; tar cf both.tar of-tar; zip -q z.zip of-zip; cat z.zip >> both.tar
         tar czf gz.tar.gz of-tar; cat z.zip >> gz.tar.gz; tar cf outer.tar both.tar",
    );
    let shown = |archive: &str, options: &[&str]| {
        let path = scratch.path(archive);
        let words = [&["ls", "-R", path.to_str().unwrap()], options].concat();
        run(&scratch, words).text().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let usual = shown("both.tar", &[]);
    for (archive, options, expected) in [
        ("both.tar", &["--use-backend", "zipfile"][..], "of-zip"),
        ("both.tar", &["--use-backend=zip"], "of-zip"),
        ("both.tar", &["--use-backend=zipfile,tarfile"], "of-tar"),
        ("both.tar", &["--use-backend=tarfile", "--use-backend=rarfile,zipfile"], "of-zip"),
        ("gz.tar.gz", &["--use-backend", "zipfile"], "of-zip"),
        ("gz.tar.gz", &["--use-backend", "tarfile"], "of-tar"),
        ("outer.tar", &["-r", "--use-backend", "zipfile"], "of-zip"),
        ("outer.tar", &["-r", "-l", "--use-backend", "zipfile"], "of-zip"),
    ] {
        assert!(shown(archive, options).iter().any(|name| name.ends_with(expected)), "{archive} {options:?}");
    }
    // Of an index that was made with another choice, another one is made beside it.
    let path = scratch.path("both.tar");
    run(&scratch, ["index", "--use-backend=zipfile", path.to_str().unwrap()]).ok();
    assert_eq!(shown("both.tar", &[]), usual);
    assert_eq!(shown("both.tar", &["--use-backend=zipfile"]), ["of-zip"]);
    // What only says how something is decoded changes nothing.
    assert_eq!(shown("both.tar", &["--use-backend=rapidgzip,indexed_zstd", "--use-backend", ""]), usual);
    let refused = run(&scratch, ["ls", "--use-backend=bsdtar", path.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.err.contains("--use-backend bsdtar: there is no"), "{}", refused.err);
    let Some(program) = ratarmount() else { return };
    for (name, expected) in [("zipfile", "of-zip"), ("tarfile", "of-tar")] {
        let at = scratch.folder(format!("theirs-{name}"));
        let options = ["-f", "-c", "--index-file", ":memory:", "--use-backend", name];
        let theirs =
            Command::new(&program).args(options).args([&path, &at]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut theirs = theirs.unwrap();
        wait_until("ratarmount mounts", || at.join(expected).exists());
        scratch.shell(&format!("umount '{}'", at.display()));
        theirs.wait().unwrap();
        let mounted = Mounted::new(&scratch, &path, &["--use-backend", name]);
        assert!(mounted.path(expected).exists());
        mounted.unmount();
    }
}
