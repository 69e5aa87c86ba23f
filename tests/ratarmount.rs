//! The real ratarmount and tarnfs use each other's sidecars, in both directions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Compare, Mounted, Scratch, can_mount, have, make_tree, run, wait_until};

/// The real one, or `None` with a line that says so.
fn ratarmount() -> Option<PathBuf> {
    let path = std::env::var_os("TARNFS_PEERS").map(|folder| Path::new(&folder).join("bin/ratarmount"));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        println!("left out: no ratarmount (TARNFS_PEERS names the folder of its virtual environment)");
    }
    path
}

const COMPRESSIONS: &[(&str, &str)] = &[
    ("", "cat"),
    (".gz", "gzip"),
    (".bz2", "bzip2 -1"),
    (".xz", "xz -0 --block-size=256KiB"),
    (".zst", "pzstd -q -c"),
];

/// What both show alike: ratarmount knows neither link counts nor exact times, device numbers or folders' sizes.
fn shared_view(root: &Path) -> Vec<String> {
    let seen = support::survey(root, Compare { whole_seconds: true, ..Compare::default() });
    seen.into_iter()
        .filter(|(_, seen)| matches!(seen.kind, "file" | "folder" | "symlink"))
        .map(|(path, seen)| {
            // It gives symbolic links no size.
            let size = if seen.kind == "symlink" { 0 } else { seen.size };
            let (mode, owner, target) = (seen.mode, seen.owner, seen.target);
            format!("{} {} {mode} {owner:?} {size} {target:?} {:x}", path.display(), seen.kind, seen.content)
        })
        .collect()
}

fn archive(scratch: &Scratch, suffix: &str, tool: &str) -> PathBuf {
    scratch.shell(&format!("tar --format=posix -C tree -c . | {tool} > a.tar{suffix}"));
    scratch.path(format!("a.tar{suffix}"))
}

/// A tree of what both programs can show.
fn plain_tree(scratch: &Scratch) {
    make_tree(scratch);
    scratch.shell("cd tree; rm -f null wide loop fifo new* b[^o]*r; seq 1 1000000 > many; mkdir few; for i in $(seq 1100); do echo $i > few/$i; done");
}

#[test]
fn its_sidecars_are_opened_as_they_are() {
    let Some(ratarmount) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    plain_tree(&scratch);
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        let archive = archive(&scratch, suffix, tool);
        let sidecar = scratch.path(format!("a.tar{suffix}.index.sqlite"));
        let status = Command::new(&ratarmount)
            .arg("--no-mount")
            .arg(&archive)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success() && sidecar.exists(), "{tool}");
        let before = fs::read(&sidecar).unwrap();
        // Nothing may be made anew, so what is shown comes from the sidecar.
        let foreign = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
        assert_eq!(shared_view(&foreign.at), shared_view(&own.at), "{tool}");
        foreign.unmount();
        own.unmount();
        assert!(before == fs::read(&sidecar).unwrap());
    }
}

#[test]
fn it_opens_ours_without_making_its_own() {
    let Some(ratarmount) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    plain_tree(&scratch);
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        let archive = archive(&scratch, suffix, tool);
        let sidecar = scratch.path(format!("a.tar{suffix}.index.sqlite"));
        run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
        let before = fs::read(&sidecar).unwrap();
        let at = scratch.folder(format!("theirs{suffix}"));
        let output =
            Command::new(&ratarmount).args(["--no-recreate-index", "-d", "3"]).arg(&archive).arg(&at).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&said));
        let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
        let (theirs, ours) = (shared_view(&at), shared_view(&own.at));
        Command::new("umount").arg(&at).status().unwrap();
        wait_until("it is unmounted", || !at.join("file").exists());
        let different: Vec<_> = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours).take(3).collect();
        assert!(theirs.len() == ours.len() && different.is_empty(), "{tool}: {different:#?}");
        own.unmount();
        assert!(before == fs::read(&sidecar).unwrap(), "{tool}: it was written again");
    }
}

#[test]
fn hard_links_and_older_versions_survive_the_way_through_its_schema() {
    let Some(_) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo one > tree/a; ln tree/a tree/b; for i in $(seq 1100); do echo $i > tree/f$i; done
         tar -C tree -cf a.tar .; echo two > tree/a; tar -C tree -rf a.tar a",
    );
    let archive = scratch.path("a.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
    let foreign = Mounted::new(
        &scratch,
        &archive,
        &["--no-recreate-index", "--index-file", scratch.path("a.tar.index.sqlite").to_str().unwrap()],
    );
    for mount in [&own, &foreign] {
        assert_eq!(fs::read(mount.path("a")).unwrap(), b"two\n");
        assert_eq!(fs::read(mount.path("b")).unwrap(), b"one\n");
    }
}

/// "What the format itself can check is checked before a byte is handed out": its tables have no checksums.
#[test]
fn an_archive_that_changed_under_a_sidecar_gives_no_wrong_byte() {
    use std::os::unix::fs::FileExt;
    if !can_mount() {
        return;
    }
    for (suffix, program, tool) in [
        (".xz", "xz", "xz -0 --block-size=1MiB"),
        (".zst", "zstd", "split -b 1M --filter='zstd -q -c' -"),
        (".bz2", "bzip2", "bzip2 -1"),
        (".gz", "gzip", "gzip -1"),
    ] {
        let scratch = Scratch::new();
        if !have(program) {
            continue;
        }
        scratch.shell("mkdir tree; head -c 6000000 /dev/urandom > tree/noise");
        let archive = archive(&scratch, suffix, tool);
        run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
        let file = fs::File::options().read(true).write(true).open(&archive).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3_000_077).unwrap();
        file.write_all_at(&[byte[0] ^ 0x5a], 3_000_077).unwrap();
        file.set_modified(time).unwrap();
        drop(file);
        let right = fs::read(scratch.path("tree/noise")).unwrap();
        let mounted = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        let noise = fs::File::open(mounted.at.join("noise")).unwrap();
        let mut failed = 0;
        for (number, expected) in right.chunks(64 << 10).enumerate() {
            let mut buffer = vec![0; expected.len()];
            match noise.read_exact_at(&mut buffer, (number as u64) << 16) {
                Ok(()) => assert!(buffer == expected, "{tool}: wrong bytes in piece {number}"),
                Err(_) => failed += 1,
            }
        }
        // gzip has one check for all of it.
        let most = if suffix == ".gz" { 92 } else { 80 };
        assert!((1..=most).contains(&failed), "{tool}: {failed} pieces of {} failed", right.len() >> 16);
        drop(noise);
        mounted.unmount();
    }
}
