//! Any operations in any order, with remounts in between: what a tmpfs is then, the mount is, too.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, chmodat,
    chownat, fallocate, ftruncate, linkat, lremovexattr, lsetxattr, mkdirat, mknodat, open, renameat_with, rmdir,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::support::{Numbers, can_mount, rounds};
use crate::twin::Twins;

/// An operation, as numbers: which, on what, with what.
#[derive(Debug, Clone)]
struct Operation {
    what: u64,
    from: String,
    to: String,
    number: u64,
    length: u64,
}

fn path(numbers: &mut Numbers) -> String {
    let names = ["a", "b", "c", "d"];
    let depth = 1 + numbers.below(3);
    (0..depth).map(|_| names[numbers.below(4) as usize]).collect::<Vec<_>>().join("/")
}

/// Does it below `root`, and says what came of it.
fn apply(root: &Path, operation: &Operation) -> Result<Vec<u8>, Errno> {
    let Operation { what, number, length, .. } = operation;
    let (from, to): (PathBuf, PathBuf) = (root.join(&operation.from), root.join(&operation.to));
    let (number, length) = (*number, *length);
    let bytes = |count: u64| vec![b'0' + (number % 70) as u8; count as usize];
    let write = |flags| open(&from, flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::from(0o644));
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    match what % 21 {
        0..=2 => {
            let file = File::from(write(OFlags::CREATE)?);
            file.write_all_at(&bytes(length), number % 50_000).map_err(io)?;
        }
        3 => {
            let file = File::from(write(OFlags::CREATE | OFlags::TRUNC)?);
            file.write_all_at(&bytes(length), 0).map_err(io)?;
        }
        4 => ftruncate(write(OFlags::empty())?, number % 80_000)?,
        5 | 6 => mkdirat(CWD, &from, Mode::from_raw_mode(0o700 | (number & 0o77) as u32))?,
        7 => rmdir(&from)?,
        8 | 9 => unlinkat(CWD, &from, AtFlags::empty())?,
        10..=12 => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, RenameFlags::empty()];
            renameat_with(CWD, &from, CWD, &to, flags[(number % 4) as usize])?;
        }
        13 => symlinkat(operation.to.as_str(), CWD, &from)?,
        14 => linkat(CWD, &from, CWD, &to, AtFlags::empty())?,
        15 => {
            if from.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
                chmodat(CWD, &from, Mode::from_raw_mode((number & 0o777) as u32), AtFlags::empty())?;
            }
        }
        16 => {
            let (user, group) = (Uid::from_raw((number % 9) as u32), Gid::from_raw((length % 9) as u32));
            chownat(CWD, &from, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        17 => {
            let at = |seconds: u64| Timespec { tv_sec: seconds as i64, tv_nsec: (number % 1_000_000_000) as i64 };
            let times = Timestamps { last_access: at(number), last_modification: at(length) };
            utimensat(CWD, &from, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        18 => {
            let name = ["user.a", "user.b"][(number % 2) as usize];
            if number.is_multiple_of(3) {
                lremovexattr(&from, name)?;
            } else {
                lsetxattr(&from, name, &bytes(length % 100), XattrFlags::empty())?;
            }
        }
        19 => {
            let file = write(OFlags::empty())?;
            let how = [FallocateFlags::empty(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE];
            fallocate(file, how[(number % 2) as usize], number % 60_000, length.max(1))?;
        }
        _ => {
            if number.is_multiple_of(4) {
                mknodat(CWD, &from, FileType::Fifo, Mode::from(0o600), 0)?;
            } else {
                let file =
                    File::from(open(&from, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty())?);
                let mut read = vec![0; length as usize];
                let count = file.read_at(&mut read, number % 50_000).map_err(io)?;
                read.truncate(count);
                return Ok(read);
            }
        }
    }
    Ok(Vec::new())
}

/// > After any changes the mount shows what another file system would, also when it is mounted again.
#[test]
fn any_operations_come_to_the_same_as_on_tmpfs() {
    if !can_mount() {
        return;
    }
    let seed = std::env::var("TARNFS_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in seed.map_or(1..=rounds(2, 40), |seed| seed..=seed) {
        run(seed, rounds(1500, 10_000));
    }
}

fn run(seed: u64, count: u64) {
    let mut numbers = Numbers::new(seed);
    let make = "mkdir -p a/b/c b/a c; echo 1 > a/a; echo 2 > a/b/b; ln a/a b/link; ln a/a b/b; ln -s a d
        head -c 70000 /dev/zero | tr '\\0' q > b/d; truncate -s 60000 c/c; echo end >> c/c; mkdir c/d; echo 3 > c/d/a
        setfattr -n user.a -v x a/b; setfattr -n user.b -v y a/a; mkfifo c/a";
    let mut twins = Twins::new(make, &[]);
    for step in 0..count {
        let (from, to) = (path(&mut numbers), path(&mut numbers));
        let operation = Operation {
            what: numbers.below(1 << 30),
            from,
            to,
            number: numbers.below(1 << 30),
            length: numbers.below(10_000),
        };
        let real = apply(&twins.real, &operation);
        let ours = apply(twins.at(), &operation);
        let when = format!("seed {seed}, step {step}: {operation:?}");
        assert_eq!(real, ours, "{when}");
        if step % 250 == 249 {
            twins.same(&when);
            twins.remount();
            twins.same(&format!("mounted again after {when}"));
        }
    }
}
