//! What general suites find: `fio`'s verification through every compression, and the twin comparison over archives of
//! others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, corpus, have, rounds};

/// Options of `fio` that shape what is written, and so have to be the same for reading it back.
const SHAPE: &[&str] = &[
    "--name=verified",
    "--nrfiles=4",
    "--filesize=1m",
    "--size=4m",
    "--thread",
    "--bs=4k",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--minimal",
];

fn fio(folder: &Path, how: &[&str]) {
    let done = Command::new("fio")
        .arg(format!("--directory={}", folder.display()))
        .args(SHAPE)
        .arg(format!("--numjobs={}", rounds(4, 16)))
        // Else it leaves files where it is run.
        .arg("--verify_state_save=0")
        .args(how)
        .output();
    let done = done.unwrap();
    assert!(
        done.status.success(),
        "fio {how:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn fio_finds_what_it_wrote_in_every_compression() {
    if !can_mount() || !have("fio") {
        return;
    }
    let scratch = Scratch::new();
    let written = scratch.folder("written");
    fio(&written, &["--rw=write", "--do_verify=0"]);
    scratch.shell("tar -cf plain.tar -C written .");
    for (suffix, command) in [
        ("", "cat"),
        (".gz", "gzip -1"),
        (".bz2", "bzip2 -1"),
        (".xz", "xz -0 --block-size=1MiB"),
        (".zst", "zstd -1"),
        (".lz4", "lz4 -1"),
    ] {
        let archive = format!("fio.tar{suffix}");
        scratch.shell(&format!("{command} < plain.tar > {archive}"));
        let mounted = Mounted::new(&scratch, scratch.path(&archive), &[]);
        for how in [
            &["--ioengine=psync", "--rw=randread", "--direct=0"][..],
            &["--ioengine=psync", "--rw=randread", "--direct=1"],
            &["--ioengine=mmap", "--rw=randread"],
            &["--ioengine=psync", "--rw=read", "--direct=1"],
        ] {
            let mut all = vec!["--readonly", "--verify_only=1", "--invalidate=1", "--allow_file_create=0"];
            all.extend(how);
            fio(&mounted.path(""), &all);
        }
        mounted.unmount();
    }
}

#[test]
fn archives_of_others_mount_as_tar_extracts_them() {
    let Some(corpus) = corpus().filter(|_| can_mount()) else { return };
    let scratch = Scratch::new();
    let mut compared = 0;
    let mut archives: Vec<_> =
        fs::read_dir(corpus.join("libarchive")).unwrap().map(|entry| entry.unwrap().path()).collect();
    archives.sort();
    for archive in archives {
        let name = archive.file_name().unwrap().to_string_lossy().into_owned();
        let is_tar = [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tbz", ".txz"]
            .iter()
            .any(|end| name.ends_with(end));
        if !is_tar {
            continue;
        }
        let twin = scratch.folder(format!("twin-{name}"));
        let extracted = Command::new("tar")
            .args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf"])
            .arg(&archive)
            .arg("-C")
            .arg(&twin)
            .output()
            .unwrap();
        // With a word of warning the two may each have done something sensible.
        if !extracted.status.success() || !extracted.stderr.is_empty() {
            continue;
        }
        let copy = scratch.path(&name);
        fs::copy(&archive, &copy).unwrap();
        let mounted = Mounted::new(&scratch, &copy, &[]);
        eprintln!("{name}");
        assert_twins(&mounted.path(""), &twin, Compare { skip_folder_times: true, ..Compare::default() });
        mounted.unmount();
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} archives could be compared");
}
