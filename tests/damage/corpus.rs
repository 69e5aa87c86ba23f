//! Every archive of other projects' tests, good, odd and hostile, through the kernel: mounted, listed, read. No signal,
//! no panic, no hang, a documented exit code, bounded memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has done")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::devour::in_parallel;
use crate::foreground::{Foreground, PATIENCE};
use crate::support::{Scratch, can_mount, corpus};

/// What a mount may use beyond one of a small archive.
const MOST_MEMORY: u64 = 256 << 20;

/// What became of one file.
enum Fate {
    Refused(i32),
    Mounted { peak: u64, files: usize, errors: usize },
}

/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn every_archive_mounts_or_is_refused() {
    let Some(corpus) = corpus().filter(|_| can_mount()) else { return };
    let scratch = Scratch::new();
    let mut archives = Vec::new();
    let mut folders = vec![corpus];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { archives.push(path) }
        }
    }
    archives.sort();
    scratch.shell("echo hello > hello; tar -czf small.tar.gz hello");
    let Fate::Mounted { peak: idle, .. } = mount(&scratch, &scratch.path("small.tar.gz")) else { panic!("small") };
    let summary = Mutex::new((0, 0, 0, 0, 0_u64));
    in_parallel(archives.len(), |index| {
        let archive = &archives[index];
        match mount(&scratch, archive) {
            Fate::Refused(code) => {
                assert!([1, 3, 4].contains(&code), "{}: exit code {code}", archive.display());
                summary.lock().unwrap().0 += 1;
            }
            Fate::Mounted { peak, files, errors } => {
                assert!(peak < idle + MOST_MEMORY, "{}: {peak} bytes", archive.display());
                let mut summary = summary.lock().unwrap();
                summary.1 += 1;
                summary.2 += files;
                summary.3 += errors;
                summary.4 = summary.4.max(peak - idle.min(peak));
            }
        }
    });
    let (refused, mounted, files, errors, memory) = *summary.lock().unwrap();
    println!(
        "{refused} refused, {mounted} mounted with {files} files, {errors} of which gave an error; {memory} bytes over an idle mount of {idle}"
    );
    assert!(mounted > 100 && refused > 50, "{mounted} mounted, {refused} refused");
}

fn mount(scratch: &Scratch, archive: &Path) -> Fate {
    match Foreground::new(scratch, archive, &["--index-file", ":memory:"]) {
        Err((code, _)) => Fate::Refused(code),
        Ok(mount) => {
            let (files, errors) = read_all(&mount.at, archive);
            let peak = mount.peak();
            mount.unmount();
            Fate::Mounted { peak, files, errors }
        }
    }
}

/// Files below `at`, and how many of them gave an error.
fn read_all(at: &Path, archive: &Path) -> (usize, usize) {
    let start = Instant::now();
    let (mut files, mut errors) = (0, 0);
    let mut folders = vec![at.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries: Vec<PathBuf> = match fs::read_dir(&folder) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(error) => panic!("{}: listing {}: {error}", archive.display(), folder.display()),
        };
        for path in entries {
            let stat = fs::symlink_metadata(&path).unwrap();
            if stat.is_dir() {
                folders.push(path);
            } else if stat.is_file() {
                files += 1;
                errors += usize::from(read(&path, stat.len()).is_err());
            } else if stat.is_symlink() {
                fs::read_link(&path).unwrap();
            }
        }
        assert!(start.elapsed() < PATIENCE, "{}: reading does not end", archive.display());
    }
    (files, errors)
}

/// Reads a file as far as makes sense: some claim exabytes.
fn read(path: &Path, size: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    let mut file = fs::File::open(path)?.take(64 << 20);
    let mut total = 0;
    loop {
        let read = file.read(&mut bytes)?;
        if read == 0 {
            break;
        }
        total += read as u64;
    }
    assert_eq!(total, size.min(64 << 20), "{} is short", path.display());
    Ok(())
}
