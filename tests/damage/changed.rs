//! An archive is cut, written over, replaced or deleted under its mount: what is read is right or an error, and nothing
//! hangs or dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has done")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::devour::Random;
use crate::foreground::Foreground;
use crate::support::{Mounted, Scratch, can_mount, wait_until};

const TOOLS: [(&str, &str); 8] = [
    ("tar", "cat"),
    ("tar.gz", "gzip -1"),
    ("tar.zz", "python3 -c 'import sys,zlib; sys.stdout.buffer.write(zlib.compress(sys.stdin.buffer.read(), 1))'"),
    (
        "tar.deflate",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(1,8,-15); sys.stdout.buffer.write(c.compress(sys.stdin.buffer.read())+c.flush())'",
    ),
    ("tar.bz2", "bzip2 -1"),
    ("tar.xz", "xz -0 --block-size=128KiB"),
    ("tar.zst", "split -b 150000 --filter='zstd -q -c' -"),
    ("tar.lz4", "lz4 -q -B4 -BD"),
];

const FILES: usize = 100;
const SIZE: usize = 60_000;

/// What happens to the archive while it is mounted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Cut,
    Overwrite,
    Replace,
    Delete,
}

/// The content of file `number`, compressible to about half.
fn content(number: usize) -> Vec<u8> {
    let mut random = Random(number as u64);
    (0..SIZE).map(|_| b'a' + (random.below(16) as u8)).collect()
}

fn make(scratch: &Scratch) {
    let folder = scratch.folder("tree");
    for number in 0..FILES {
        fs::write(folder.join(number.to_string()), content(number)).unwrap();
    }
    scratch.shell("tar -C tree -cf a.tar .");
}

fn mount(scratch: &Scratch, archive: &Path) -> Foreground {
    Foreground::new(scratch, archive, &["--index-file", ":memory:"]).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn act(action: Action, archive: &Path, scratch: &Scratch) {
    let open = || fs::File::options().write(true).open(archive).unwrap();
    match action {
        Action::Cut => open().set_len(fs::metadata(archive).unwrap().len() / 3).unwrap(),
        Action::Overwrite => {
            // Of the same length, from its middle on.
            let length = fs::metadata(archive).unwrap().len();
            open().write_all_at(&vec![b'#'; (length / 2) as usize], length / 2).unwrap();
        }
        Action::Replace => {
            fs::write(scratch.path("other"), vec![b'#'; 100_000]).unwrap();
            fs::rename(scratch.path("other"), archive).unwrap();
        }
        Action::Delete => fs::remove_file(archive).unwrap(),
    }
}

/// 200 reads of random parts of random files: how many were errors. A wrong or a short one fails the test.
fn read_around(at: &Path, random: &mut Random, contents: &[Vec<u8>], case: &str) -> usize {
    let mut errors = 0;
    for _ in 0..200 {
        let number = random.below(FILES);
        let offset = random.below(SIZE);
        let wanted = 1 + random.below(SIZE - offset);
        let mut bytes = vec![0; wanted];
        let read =
            fs::File::open(at.join(number.to_string())).and_then(|file| file.read_exact_at(&mut bytes, offset as u64));
        match read {
            Ok(()) => assert!(bytes == contents[number][offset..offset + wanted], "{case}: wrong bytes in {number}"),
            Err(error) => {
                let known = [Some(libc::EIO), Some(libc::ESTALE)];
                assert!(known.contains(&error.raw_os_error()), "{case}: {error}");
                errors += 1;
            }
        }
    }
    errors
}

/// > A file in an archive that changes under the mount is read as it was or not at all.
#[test]
fn nothing_wrong_is_read_of_an_archive_that_changes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch);
    let contents: Vec<_> = (0..FILES).map(content).collect();
    let mut noticed = 0;
    for (suffix, tool) in TOOLS {
        scratch.shell(&format!("{tool} < a.tar > whole.{suffix}"));
        for action in [Action::Cut, Action::Overwrite, Action::Replace, Action::Delete] {
            let case = format!("{suffix} {action:?}");
            let archive = scratch.path(format!("b.{suffix}"));
            fs::copy(scratch.path(format!("whole.{suffix}")), &archive).unwrap();
            let mount = mount(&scratch, &archive);
            let at = &mount.at;
            let mut random = Random(3);
            assert!(fs::read(at.join("7")).unwrap() == contents[7]);
            act(action, &archive, &scratch);
            let errors = read_around(at, &mut random, &contents, &case);
            println!("{case}: {errors} of 200 reads were errors");
            match action {
                // Of a small archive all may have been decoded before.
                Action::Cut | Action::Overwrite => noticed += usize::from(errors > 0),
                // The file that was opened is still there.
                Action::Replace | Action::Delete => assert_eq!(errors, 0, "{case}"),
            }
            mount.unmount();
        }
    }
    assert!(noticed > TOOLS.len(), "{noticed} of {} changes were noticed", 2 * TOOLS.len());
}

#[test]
fn cut_to_nothing_under_eight_readers() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch);
    let contents: Vec<_> = (0..FILES).map(content).collect();
    for (suffix, tool) in TOOLS {
        let archive = scratch.path(format!("b.{suffix}"));
        scratch.shell(&format!("{tool} < a.tar > b.{suffix}"));
        let mount = mount(&scratch, &archive);
        let at = &mount.at;
        let (errors, rounds, cut) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..8)
                .map(|reader| {
                    let (contents, errors, rounds, cut) = (&contents, &errors, &rounds, &cut);
                    scope.spawn(move || {
                        let mut random = Random(reader);
                        loop {
                            let was_cut = cut.load(Ordering::SeqCst);
                            errors.fetch_add(read_around(at, &mut random, contents, suffix), Ordering::SeqCst);
                            rounds.fetch_add(1, Ordering::SeqCst);
                            if was_cut {
                                return;
                            }
                        }
                    })
                })
                .collect();
            wait_until("they read", || rounds.load(Ordering::SeqCst) >= readers.len());
            fs::File::options().write(true).open(&archive).unwrap().set_len(0).unwrap();
            cut.store(true, Ordering::SeqCst);
            wait_until("the readers are done", || readers.iter().all(std::thread::ScopedJoinHandle::is_finished));
        });
        println!("{suffix}: {} errors", errors.into_inner());
        // What the page cache does not have is gone, and the rest of the tree is still there.
        assert_eq!(fs::read_dir(at).unwrap().count(), FILES);
        mount.unmount();
    }
}

/// > A plain tar that is written in place and gets its time back is an error, too. So is one that only got new
/// > extended attributes or another time of its last read, or that was moved and moved back between two reads. Where
/// > its mode, owner, name or links changed at the same time, only samples of it are compared.
#[test]
fn a_change_that_is_hidden_is_seen_where_there_are_no_checksums() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir folder; head -c 20M /dev/zero | tr '\\0' A > big; tar -cf a.tar big");
    for (source, options, file) in [
        ("folder/a.tar", &["--index-file=:memory:"][..], "big"),
        ("folder", &["--recursive", "--index-file=:memory:"], "a.tar/big"),
    ] {
        for change in ["dd if=/dev/zero of=folder/a.tar bs=4096 seek=1717 count=1 conv=notrunc status=none", ":"] {
            scratch.shell("cp a.tar folder/a.tar; touch -d '2001-02-03 04:05:06' folder/a.tar");
            let mounted = Mounted::new(&scratch, scratch.path(source), options);
            let file = fs::File::open(mounted.path(file)).unwrap();
            file.read_exact_at(&mut [0; 10], 0).unwrap();
            scratch.shell(&format!("{change}; touch -d '2001-02-03 04:05:06' folder/a.tar"));
            // Far behind what the kernel has read ahead.
            let mut bytes = vec![b'A'; 4096];
            let read = file.read_exact_at(&mut bytes, 1717 * 4096);
            assert!(bytes.iter().all(|&byte| byte == b'A'), "wrong bytes: {source} {change}");
            let found = read.map_err(|error| error.raw_os_error());
            assert!(matches!(found, Err(Some(libc::ESTALE | libc::EIO))), "{source} {change}: {found:?}");
            drop(file);
            mounted.unmount();
        }
    }
}
