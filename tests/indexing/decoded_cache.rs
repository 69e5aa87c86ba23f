//! Decoded pieces kept on disk, for archives that are slow to decode from their seek points.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{
    self, Daemon, FILL_AT_ONCE, Mounted, Scratch, behind, can_mount, daemon, have, is_gone, run, signal, statistics,
    wait_until,
};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

/// An archive of one xz block that is slow to decode: text without patterns.
fn slow() -> Scratch {
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

/// Samples of two archives may be the same, and a checksum of 32 bits can be met.
#[test]
fn what_was_decoded_of_one_file_is_not_shown_for_another() {
    if !can_mount() {
        return;
    }
    let scratch = slow();
    read(&scratch, &[]);
    let of_first = kept(&scratch);
    assert_eq!(of_first.len(), 1);
    // The same bytes, time and name.
    scratch.shell("cp -p a.tar.xz other && mv other a.tar.xz");
    read(&scratch, &[]);
    let of_both = kept(&scratch);
    assert_eq!(of_both.len(), 2, "{of_both:?}");
    assert!(of_both.contains(&of_first[0]), "{of_both:?}");
}

/// Whoever compares wants to know what is stored now: what was decoded before it has rotted is no answer.
/// > `check` and `compare` use no decoded data that is kept on disk.
#[test]
fn check_and_compare_use_nothing_that_was_kept() {
    let scratch = slow();
    let archive = scratch.path("a.tar.xz");
    run(&scratch, [OsStr::new("index"), archive.as_os_str()]).ok();
    let files = kept(&scratch);
    assert_eq!(files.len(), 1, "{files:?}");
    scratch.shell("touch -d 2001-01-01 cache/tarnfs/decoded/*; mkdir other; cp -p a.tar.xz other");
    // Whoever opens it notes that it was used.
    let used = || fs::metadata(&files[0]).unwrap().modified().unwrap();
    let (before, other) = (used(), scratch.path("other/a.tar.xz"));
    for (one, two) in [(&archive, &scratch.path("tree")), (&archive, &other), (&other, &archive)] {
        run(&scratch, [OsStr::new("compare"), one.as_os_str(), two.as_os_str()]).ok();
        assert_eq!(used(), before, "{}", two.display());
    }
    run(&scratch, [OsStr::new("check"), archive.as_os_str()]).ok();
    assert_eq!(used(), before);
    run(&scratch, [OsStr::new("cat"), archive.as_os_str(), OsStr::new("text")]).ok();
    assert!(used() > before);
}

#[test]
fn what_is_slow_to_decode_is_kept_and_used_by_the_next_mount() {
    if !can_mount() {
        return;
    }
    let scratch = slow();
    let (first, _) = read(&scratch, &[]);
    assert!(first > 0);
    let files = kept(&scratch);
    assert_eq!(files.len(), 1, "{files:?}");
    let metadata = fs::metadata(&files[0]).unwrap();
    assert!(metadata.len() > 1 << 20);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let (again, _) = read(&scratch, &["--no-recreate-index"]);
    assert!(again > 0);
    let (without, resumes) = read(&scratch, &["--no-recreate-index", "--cache-size", "0"]);
    assert!(without == 0 && resumes > 0);
    let written = fs::read(&files[0]).unwrap();
    read(&scratch, &["--index-file", ":memory:", "--cache-size", "1"]);
    assert_eq!(kept(&scratch), files);
    assert!(fs::read(&files[0]).unwrap() == written, "what is there is not written again");
    let (anew, _) = read(&scratch, &["-c"]);
    assert!(anew > 0);
}

/// What a password opens is not left on a disk, also where an archive in the encrypted one is opened lazily.
#[test]
fn what_a_password_opens_is_not_kept() {
    if !can_mount() || !have("7z") {
        return;
    }
    let scratch = slow();
    scratch.shell("7z a -bd -bso0 -tzip -psesame -mem=AES256 -mx0 secret.zip a.tar.xz; 7z a -bd -bso0 -tzip -mx0 open.zip a.tar.xz");
    for (archive, keeps) in [("secret.zip", false), ("open.zip", true)] {
        let options = ["--lazy", "-r", "--password", "sesame"];
        let mounted = Mounted::new(&scratch, scratch.path(archive), &options[..if keeps { 2 } else { 4 }]);
        assert!(fs::read(mounted.path("a.tar.xz/text")).unwrap() == fs::read(scratch.path("tree/text")).unwrap());
        mounted.unmount();
        assert_eq!(!kept(&scratch).is_empty(), keeps, "{archive}");
    }
}

#[test]
fn nothing_is_kept_of_what_is_fast_or_not_wanted() {
    let scratch = slow();
    scratch.shell("xz -dc a.tar.xz | gzip -1 > a.tar.gz");
    run(&scratch, ["index", "--cache-size", "0", scratch.path("a.tar.xz").to_str().unwrap()]).ok();
    run(&scratch, ["cat", "-c", "--cache-size", "0", scratch.path("a.tar.xz").to_str().unwrap()]).ok();
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
    let scratch = slow();
    read(&scratch, &[]);
    let file = kept(&scratch).remove(0);
    let whole = fs::read(&file).unwrap();
    // Other bytes, of the right length, packed and not.
    let mut changed = whole.clone();
    for at in (0..changed.len() - 100_000).step_by(5000) {
        changed[at] ^= 0x55;
    }
    // Nothing is added, which would make it right again.
    let options = ["--no-recreate-index", "--cache-size", "1"];
    for bytes in [&changed[..], &whole[..whole.len() / 2], &[], &whole[..whole.len() - 1], b"nothing"] {
        fs::write(&file, bytes).unwrap();
        let (_, resumes) = read(&scratch, &options);
        // Without its last byte it lacks one piece, which is perhaps not read.
        assert!(resumes > 0 || bytes.len() + 1 == whole.len(), "{} of {} bytes", bytes.len(), whole.len());
    }
    // The right bytes, from somebody who may change them later.
    let refuse = |what: &str| {
        let (kept, resumes) = read(&scratch, &options);
        assert!(kept == 0 && resumes > 0, "{what}: {kept} pieces");
    };
    fs::write(&file, &whole).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    refuse("everybody may write it");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(read(&scratch, &options).0 > 0, "nothing else was wrong with it");
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

/// An archive of blocks that are slow to decode, the last one among them, each of which is fast enough that a first
/// pass keeps none.
fn in_blocks(scratch: &Scratch) -> PathBuf {
    fs::write(scratch.path(FILL_AT_ONCE), "").unwrap();
    scratch
        .shell("mkdir tree; head -c 1400K /dev/urandom | base64 > tree/text; tar -C tree -c . | bzip2 -2 > a.tar.bz2");
    scratch.path("a.tar.bz2")
}

const OPTIONS: [&str; 4] = ["-d", "2", "--index-minimum-file-count", "0"];

fn bytes_kept(scratch: &Scratch) -> u64 {
    kept(scratch).iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
}

/// Reads the file to its end. Nothing of it may be in the kernel's memory. Returns how many pieces came out of the
/// cache and how often decoding was begun.
#[track_caller]
fn read_through(scratch: &Scratch, at: &Path) -> (u64, u64) {
    let right = fs::read(scratch.path("tree/text")).unwrap();
    assert!(fs::read(at.join("text")).unwrap() == right, "wrong bytes");
    let done = statistics(at);
    assert_eq!(done["panics"], 0);
    (done["chunks_kept"].as_u64().unwrap(), done["resumes"].as_u64().unwrap())
}

/// Waits until a mount that reads all of it need not decode. Each looks anew: what is in memory says nothing.
fn wait_until_all_is_kept(scratch: &Scratch, archive: &Path) {
    wait_until("all of it is kept", || {
        let options = [&OPTIONS[..], &["--no-recreate-index", "--cache-size", "1"]].concat();
        let mounted = Mounted::new(scratch, archive, &options);
        let (kept, resumes) = read_through(scratch, &mounted.at);
        mounted.unmount();
        kept > 0 && resumes == 0
    });
}

#[test]
fn what_the_first_pass_could_not_keep_is_kept_after_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = in_blocks(&scratch);
    let mounted = Mounted::new(&scratch, &archive, &OPTIONS);
    wait_until_all_is_kept(&scratch, &archive);
    // The mount that has kept it uses it as well.
    let (kept, _) = read_through(&scratch, &mounted.at);
    assert!(kept > 0);
    mounted.unmount();
}

fn start(scratch: &Scratch, archive: &Path, at: &Path, options: &[&str]) -> Daemon {
    let mut command = behind(scratch, support::DEFAULT_SIGNALS);
    command.arg("-f").args(OPTIONS).args(options).arg(archive).arg(at);
    daemon(command, at)
}

/// > A later mount goes on with keeping decoded data where an earlier one ended, even if that was killed.
#[test]
fn a_later_mount_goes_on_behind_what_is_kept() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = in_blocks(&scratch);
    let at = scratch.path("mount");
    let mut killed = start(&scratch, &archive, &at, &[]);
    wait_until("something is kept", || bytes_kept(&scratch) > 0);
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    wait_until("the mount is gone", || is_gone(&at));
    let file = kept(&scratch).remove(0);
    let before = fs::read(&file).unwrap();
    // As if it had been killed, or the machine had lost its power, while it wrote.
    for length in [before.len(), before.len() - 1, before.len() / 2, 20_000, 100, 16, 1] {
        let length = length.min(before.len());
        fs::write(&file, &before[..length]).unwrap();
        let options = [&OPTIONS[..], &["--no-recreate-index", "--cache-size", "1"]].concat();
        let mounted = Mounted::new(&scratch, &archive, &options);
        let (kept, _) = read_through(&scratch, &mounted.at);
        assert!(length < before.len() || kept > 0, "what was kept is used");
        mounted.unmount();
    }
    fs::write(&file, &before[..before.len() - 1000]).unwrap();
    let mounted = Mounted::new(&scratch, &archive, &OPTIONS);
    wait_until_all_is_kept(&scratch, &archive);
    mounted.unmount();
    let after = fs::read(&file).unwrap();
    assert!(after[20_000..30_000] == before[20_000..30_000], "what was there is not written again");
}

#[test]
fn no_more_is_kept_than_is_allowed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = in_blocks(&scratch);
    // A little more than the first pieces take.
    let limit = 700_000;
    let mounted = Mounted::new(&scratch, &archive, &[&OPTIONS[..], &["--cache-size", "700000"]].concat());
    wait_until("there is no more space", || {
        let bytes = bytes_kept(&scratch);
        assert!(bytes <= limit, "{bytes}");
        // Whoever writes it has it locked.
        let is_free = |path: &PathBuf| {
            let file = fs::File::open(path).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        bytes > 0 && kept(&scratch).iter().all(is_free)
    });
    assert!((1..=limit).contains(&bytes_kept(&scratch)));
    read_through(&scratch, &mounted.at);
    mounted.unmount();
    // None at all.
    let scratch = Scratch::new();
    let archive = in_blocks(&scratch);
    let mounted = Mounted::new(&scratch, &archive, &[&OPTIONS[..], &["--cache-size", "0"]].concat());
    read_through(&scratch, &mounted.at);
    mounted.unmount();
    assert_eq!(kept(&scratch), Vec::<PathBuf>::new());
}

/// Two mounts of an archive: one keeps it, the other reads what is there and waits.
#[test]
fn two_mounts_do_not_write_the_same_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = in_blocks(&scratch);
    let first = Mounted::new(&scratch, &archive, &OPTIONS);
    let second = Mounted::new(&scratch, &archive, &OPTIONS);
    wait_until_all_is_kept(&scratch, &archive);
    let bytes = bytes_kept(&scratch);
    first.unmount();
    read_through(&scratch, &second.at);
    second.unmount();
    assert_eq!(bytes_kept(&scratch), bytes, "nothing was written twice");
    assert_eq!(kept(&scratch).len(), 1);
}

/// > Unmounting does not wait for decoded data that is being kept.
#[test]
fn unmounting_does_not_wait_for_what_is_kept() {
    if !can_mount() {
        return;
    }
    let scratch = slow();
    scratch.shell("xz -dc a.tar.xz | bzip2 -1 > a.tar.bz2");
    let at = scratch.path("mount");
    let mut mounted = start(&scratch, &scratch.path("a.tar.bz2"), &at, &[]);
    run(&scratch, ["-u", at.to_str().unwrap()]).ok();
    assert_eq!(mounted.wait().unwrap().code(), Some(0));
    wait_until("the mount point is removed", || is_gone(&at));
}

#[test]
fn only_what_is_its_own_is_touched_in_the_cache_folder() {
    let scratch = slow();
    // The folder may be a link to a larger disk, on which there is something else.
    scratch.shell(
        "mkdir -p cache/tarnfs disk; ln -s ../../disk cache/tarnfs/decoded
         echo film > disk/film.mkv.part; echo mine > disk/mine.decoded; : > disk/old.decoded; touch -d 2001-01-01 disk/*",
    );
    let index = |expected: usize| {
        scratch.shell("rm -f a.tar.xz.tarnfs.sqlite");
        let ran = run(&scratch, [OsStr::new("index"), OsStr::new("-c"), scratch.path("a.tar.xz").as_os_str()]);
        assert_eq!((ran.code, kept(&scratch).len()), (0, expected), "{ran:?}");
    };
    index(4);
    assert_eq!(
        scratch.shell("cat disk/film.mkv.part disk/mine.decoded; ls disk/old.decoded"),
        "film\nmine\ndisk/old.decoded\n"
    );
    // Of another user: they would say where root writes.
    scratch.shell("rm disk/*-*; chown 65534 disk; chmod 777 disk");
    index(3);
}
