//! Decoded pieces kept on disk, for archives that are slow to decode from their seek points.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use support::{Mounted, Scratch, can_mount, run, statistics};

/// An archive of one xz block that is slow to decode: text without patterns.
fn dear() -> Scratch {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; head -c 12M /dev/urandom | base64 > tree/text; tar -C tree -c . | xz -0 -T1 > a.tar.xz");
    scratch
}

/// The files in the cache.
fn kept(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path("cache/tarnfs/decoded")).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Reads everywhere in the file, backwards; returns how many pieces came out of the cache and how often decoding was
/// begun.
fn read(scratch: &Scratch, options: &[&str]) -> (u64, u64) {
    const LENGTH: usize = 10_000;
    let right = fs::read(scratch.path("tree/text")).unwrap();
    let options = [&["-d", "2", "--index-minimum-file-count", "0"], options].concat();
    let mounted = Mounted::new(scratch, scratch.path("a.tar.xz"), &options);
    let file = fs::File::open(mounted.path("text")).unwrap();
    let mut buffer = [0; LENGTH];
    for offset in (0..right.len() - LENGTH).step_by(300_007).collect::<Vec<_>>().into_iter().rev() {
        file.read_exact_at(&mut buffer, offset as u64).unwrap();
        assert!(buffer[..] == right[offset..offset + LENGTH], "wrong bytes at {offset}");
    }
    let done = statistics(&mounted.at);
    assert_eq!(done["panics"], 0);
    (done["chunks_kept"].as_u64().unwrap(), done["resumes"].as_u64().unwrap())
}

#[test]
fn what_is_dear_to_decode_is_kept_and_used_by_the_next_mount() {
    if !can_mount() {
        return;
    }
    let scratch = dear();
    let (first, _) = read(&scratch, &[]);
    assert!(first > 0);
    let files = kept(&scratch);
    assert_eq!(files.len(), 1, "{files:?}");
    let metadata = fs::metadata(&files[0]).unwrap();
    assert!(metadata.len() > 1 << 20);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let (again, _) = read(&scratch, &["--no-recreate-index"]);
    assert!(again > 0);
    let written = fs::metadata(&files[0]).unwrap().ino();
    let (without, resumes) = read(&scratch, &["--no-recreate-index", "--cache-size", "0"]);
    assert!(without == 0 && resumes > 0);
    read(&scratch, &["--index-file", ":memory:"]);
    assert_eq!(kept(&scratch), files);
    assert_eq!(fs::metadata(&files[0]).unwrap().ino(), written, "what is there is not written again");
    read(&scratch, &["-c"]);
    assert_ne!(fs::metadata(&files[0]).unwrap().ino(), written);
}

#[test]
fn nothing_is_kept_of_what_is_fast_or_not_wanted() {
    let scratch = dear();
    scratch.shell("xz -dc a.tar.xz | gzip -1 > a.tar.gz");
    run(&scratch, ["index", "--cache-size", "0", scratch.path("a.tar.xz").to_str().unwrap()]).ok();
    run(&scratch, ["cat", "-c", scratch.path("a.tar.xz").to_str().unwrap()]).ok();
    // Not far from a seek point anywhere, so that it is fast on any machine.
    let gzip = scratch.path("a.tar.gz");
    run(&scratch, ["index", "--gzip-seek-point-spacing", "0.25", gzip.to_str().unwrap()]).ok();
    assert_eq!(kept(&scratch), Vec::<PathBuf>::new());
    // Less than the file would take.
    run(&scratch, ["index", "-c", "--cache-size", "3M", scratch.path("a.tar.xz").to_str().unwrap()]).ok();
    let bytes: u64 = kept(&scratch).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 3 << 20, "{bytes}");
    let wrong = run(&scratch, ["index", "--cache-size", "much", scratch.path("a.tar.xz").to_str().unwrap()]);
    assert!(wrong.code == 2 && wrong.err.contains("much"), "{wrong:?}");
}

/// > Decoded data that is kept on disk is served only if its checksum is the one in the index.
#[test]
fn what_somebody_else_put_there_is_not_served() {
    if !can_mount() {
        return;
    }
    let scratch = dear();
    read(&scratch, &[]);
    let file = kept(&scratch).remove(0);
    let whole = fs::read(&file).unwrap();
    // Other bytes, of the right length, packed and not.
    let mut changed = whole.clone();
    for at in (0..changed.len() - 100_000).step_by(5000) {
        changed[at] ^= 0x55;
    }
    for bytes in [&changed[..], &whole[..whole.len() / 2], &[], &whole[..whole.len() - 1], b"nothing"] {
        fs::write(&file, bytes).unwrap();
        let (_, resumes) = read(&scratch, &["--no-recreate-index"]);
        assert!(resumes > 0);
    }
    // The right bytes, from somebody who may change them later.
    let refuse = |what: &str| {
        let (kept, resumes) = read(&scratch, &["--no-recreate-index"]);
        assert!(kept == 0 && resumes > 0, "{what}: {kept} pieces");
    };
    fs::write(&file, &whole).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    refuse("everybody may write it");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(read(&scratch, &["--no-recreate-index"]).0 > 0, "nothing else was wrong with it");
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    refuse("it belongs to somebody else");
    fs::remove_file(&file).unwrap();
    fs::write(scratch.path("elsewhere"), &whole).unwrap();
    symlink(scratch.path("elsewhere"), &file).unwrap();
    refuse("it is a symbolic link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refuse("it is a folder");
}
