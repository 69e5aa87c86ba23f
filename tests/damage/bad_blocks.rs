//! A disk that cannot read some block of an archive, and a server that gives less than there is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::strace::{self, calls, have_strace};
use crate::support::{Mounted, Ran, Scratch, can_mount, have, run};

/// Python that puts `inner` into a tar, compresses that into members of 64 KiB, and changes the checksum of the one in
/// which byte `at` of `inner` lies. In a mount of it, those bytes cannot be read, as on a disk with a bad block.
const DISK: &str = "
import sys, gzip, io, tarfile
inner, out, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode='w') as tar:
    tar.add(inner)
data, step = buffer.getvalue(), 65536
at += data.index(open(inner, 'rb').read())
with open(out, 'wb') as file:
    for start in range(0, len(data), step):
        member = bytearray(gzip.compress(data[start:start + step], 1, mtime=0))
        if start <= at < start + step:
            member[-8] ^= 1
        file.write(member)
";

/// Files of which each is `LENGTH` bytes, in the order of the archive.
const FILES: usize = 6;
const LENGTH: usize = 300_000;

/// The folder `tree` with these files, and what is in them.
fn tree(scratch: &Scratch) -> Vec<Vec<u8>> {
    scratch.shell(&format!(
        "mkdir tree
         for i in $(seq {FILES}); do head -c $(({LENGTH} / 4 * 3)) /dev/urandom | base64 -w0 > tree/f$i; done
         cat > disk.py <<'E'\n{DISK}\nE"
    ));
    (1..=FILES).map(|i| fs::read(scratch.path(format!("tree/f{i}"))).unwrap()).collect()
}

/// A mount in which byte `at` of the file `name` cannot be read, nor what lies in the same 64 KiB of its tar.
fn disk(scratch: &Scratch, name: &str, at: u64) -> (Mounted, PathBuf) {
    scratch.shell(&format!("python3 disk.py {name} {name}.disk.tar.gz {at}"));
    let mounted = Mounted::any(scratch, scratch.path(format!("{name}.disk.tar.gz")), &[]);
    let path = mounted.path(name);
    let read = fs::read(&path).map_err(|error| error.raw_os_error());
    assert_eq!(read, Err(Some(libc::EIO)), "{}", mounted.ran.err);
    (mounted, path)
}

/// Indexes that there are.
fn indexes(scratch: &Scratch) -> String {
    scratch.shell("find . -name '*.sqlite*' ! -name '*.disk.*'")
}

fn with(scratch: &Scratch, command: &[&str], archive: &Path, paths: &[&str]) -> Ran {
    let archive = archive.to_str().unwrap();
    run(scratch, command.iter().chain([&archive]).chain(paths))
}

/// > With `--force`, what lies before a block that a disk cannot read is served, and no index is kept of that. Without
/// > it, a compressed archive with such a block is an error.
#[test]
fn what_lies_before_a_bad_block_of_a_compressed_archive_is_served_with_force() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let right = tree(&scratch);
    for (suffix, tool) in [
        ("gz", "gzip"),
        ("bz2", "bzip2 -1"),
        ("xz", "xz -0 --block-size=400KiB"),
        ("zst", "zstd -q"),
        ("lz4", "lz4 -q -B4 -"),
    ] {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        let name = format!("s.tar.{suffix}");
        scratch.shell(&format!("tar -C tree -c f1 f2 f3 f4 f5 f6 | {tool} > {name}"));
        let length = fs::metadata(scratch.path(&name)).unwrap().len();
        let (mounted, archive) = disk(&scratch, &name, length / 2);
        for command in ["ls", "check"] {
            let refused = with(&scratch, &[command], &archive, &[]);
            assert_eq!((refused.code, refused.text()), (3, String::new()), "{name}: {}", refused.err);
            assert!(refused.err.contains("--force") && refused.err.contains("ddrescue"), "{name}: {}", refused.err);
        }
        // The first two are whole in any case; of the others there is a part, or nothing.
        for (number, right) in right.iter().enumerate() {
            let cat = with(&scratch, &["cat", "--force"], &archive, &[&format!("f{}", number + 1)]);
            assert!(right.starts_with(&cat.out), "{name}: f{}", number + 1);
            assert!(cat.code == 5 && (number >= 2 || cat.out.len() == LENGTH), "{name}: {} {}", cat.code, cat.err);
            assert!(cat.err.contains("cannot be read") && cat.err.contains("no index is kept"), "{name}: {}", cat.err);
        }
        let all = with(&scratch, &["cat", "--force"], &archive, &[]);
        assert!(all.code == 5 && all.out.len() > 2 * LENGTH && all.out.len() < 5 * LENGTH, "{name}: {}", all.out.len());
        let out = scratch.folder(format!("out-{suffix}"));
        let extracted = with(&scratch, &["extract", "--force", "-C", out.to_str().unwrap()], &archive, &[]);
        assert_eq!(extracted.code, 5, "{name}: {}", extracted.err);
        for (number, right) in right.iter().enumerate() {
            let found = fs::read(out.join(format!("f{}", number + 1)));
            let is_right = found.as_ref().is_ok_and(|found| right.starts_with(found));
            assert!(is_right || number >= 2 && found.is_err(), "{name}: f{}", number + 1);
            assert!(number >= 2 || found.unwrap() == *right, "{name}: f{}", number + 1);
        }
        let checked = with(&scratch, &["check", "--force"], &archive, &[]);
        assert_eq!(checked.code, 5, "{name}: {}{}", checked.text(), checked.err);
        let indexed = with(&scratch, &["index", "--force"], &archive, &[]);
        assert!(indexed.code != 0 && indexed.err.contains("no index is kept"), "{name}: {}", indexed.err);
        let inner = Mounted::any(&scratch, &archive, &["--force"]);
        assert_eq!(inner.ran.code, 5, "{name}: {}", inner.ran.err);
        assert!(fs::read(inner.path("f2")).unwrap() == right[1], "{name}");
        assert!(fs::read(inner.path("f6")).is_err(), "{name}");
        inner.unmount();
        assert_eq!(indexes(&scratch), "", "{name}");
        mounted.unmount();
    }
}

/// A compressed file that is all of an archive is no shorter file for that.
#[test]
fn a_compressed_file_with_a_bad_block_is_no_shorter_one() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let right = tree(&scratch).concat();
    // Each member ends where something else begins, which may be where the disk cannot read.
    scratch.shell("cat tree/* > all; split -b 65536 --filter='gzip -1' all > all.gz");
    let length = fs::metadata(scratch.path("all.gz")).unwrap().len();
    let (mounted, archive) = disk(&scratch, "all.gz", length / 2);
    let cat = with(&scratch, &["cat", "--force"], &archive, &["all"]);
    assert_eq!(cat.code, 5, "{}", cat.err);
    assert!(cat.out.len() > right.len() / 4 && right.starts_with(&cat.out), "{}", cat.out.len());
    mounted.unmount();
}

/// In a tar that is not compressed a bad block costs the file in which it is, unless it is that of a header.
#[test]
fn a_bad_block_of_a_tar_costs_its_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let right = tree(&scratch);
    // Small files lie between the large ones: of these, much is read at once.
    scratch.shell(
        "cp -r tree t; for i in 1 2 3; do seq 1000 > t/s$i; done; tar -C t -cf s.tar f1 s1 f2 s2 f3 s3 f4
         gzip -k tree/f3; tar -C tree -cf r.tar f1 f3.gz f2",
    );
    // Headers come behind whole blocks.
    let header =
        |number: usize| (number * (512 + LENGTH.next_multiple_of(512) + 512 + 3893_usize.next_multiple_of(512))) as u64;
    let (mounted, archive) = disk(&scratch, "s.tar", header(1) + 150_000);
    for force in [&[][..], &["--force"]] {
        let words = |command: &'static str| [&[command], force].concat();
        let listed = with(&scratch, &words("ls"), &archive, &[]);
        assert_eq!((listed.code, listed.text().lines().count()), (0, 7), "{force:?}: {}", listed.err);
        let cat = with(&scratch, &words("cat"), &archive, &["f3"]);
        assert!(cat.code == 0 && cat.out == right[2], "{force:?}: {}", cat.err);
        assert_ne!(with(&scratch, &words("cat"), &archive, &["f2"]).code, 0);
    }
    mounted.unmount();
    scratch.shell("rm -rf cache");
    let (mounted, archive) = disk(&scratch, "s.tar", header(2));
    let refused = with(&scratch, &["ls"], &archive, &[]);
    assert!(refused.code == 3 && refused.err.contains("--force"), "{}", refused.err);
    let listed = with(&scratch, &["ls", "--force"], &archive, &[]);
    assert!(listed.code == 5 && listed.text().starts_with("f1\nf2\ns1\n"), "{}{}", listed.text(), listed.err);
    assert!(with(&scratch, &["cat", "--force"], &archive, &["f1"]).out == right[0]);
    assert_eq!(indexes(&scratch), "");
    mounted.unmount();
    // What is compressed in it.
    let (mounted, archive) = disk(&scratch, "r.tar", (2 * 512 + LENGTH.next_multiple_of(512) + 150_000) as u64);
    let refused = with(&scratch, &["ls", "-r"], &archive, &[]);
    assert!(refused.code == 3 && refused.err.contains("--force"), "{}", refused.err);
    let cat = with(&scratch, &["cat", "-r", "--force"], &archive, &["f2"]);
    assert!(cat.code == 5 && cat.out == right[1], "{}", cat.err);
    assert_eq!(indexes(&scratch), "");
    mounted.unmount();
}

/// > A read that gives less than there is does not make a cut archive of it.
#[test]
fn a_short_read_is_no_cut() {
    if !have_strace() {
        return;
    }
    let scratch = Scratch::new();
    tree(&scratch);
    scratch.shell("tar -C tree -c . | gzip > s.tar.gz");
    let archive = scratch.path("s.tar.gz");
    let filter = ["-P", archive.to_str().unwrap(), "-e", "trace=pread64"];
    let words = ["index", "-P", "1", "s.tar.gz"];
    let (ran, all) = calls(&scratch, &filter, &words);
    ran.ok();
    let (index, most) = (scratch.path("s.tar.gz.tarnfs.sqlite"), all.iter().map(|call| call.number).max().unwrap());
    assert!(index.exists() && most > 4, "{most}");
    let mut refused = 0;
    for when in (1..=most).step_by((most / 8).max(1) as usize) {
        let _ = fs::remove_file(&index);
        let inject = format!("inject=pread64:retval=0:when={when}");
        let ran = strace::run(&scratch, &[&filter[..], &["-e", &inject]].concat(), &words);
        assert!(ran.code == 0 || ran.code == 3 && !index.exists(), "{when}: {} {}", ran.code, ran.err);
        refused += u32::from(ran.code == 3);
        let found = run(&scratch, ["find", archive.to_str().unwrap(), "-type", "f"]);
        assert_eq!((found.code, found.text().lines().count()), (0, FILES), "{when}: {}", found.err);
    }
    assert!(refused > 0);
}
