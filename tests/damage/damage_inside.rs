//! Damage in a compressed archive, and what becomes of the archives in it: what is whole in them is served.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;

use crate::support::{Ran, Scratch, have, tarnfs};

/// Python that compresses `tar` into members of `length` bytes each, and changes a byte in the one which holds the
/// last of these bytes of `tar` that are `inside`, `back` bytes before their end. Noise is stored as it is, so that
/// only the checksum of the member is wrong.
const MEMBERS: &str = "
import sys, gzip
tar, out, length, inside, back = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
data, inside = open(tar, 'rb').read(), open(inside, 'rb').read()
at = data.rindex(inside) + len(inside) - back
with open(out, 'wb') as file:
    for start in range(0, len(data), length):
        member = bytearray(gzip.compress(data[start:start + length], 1, mtime=0))
        if start <= at < start + length:
            member[len(member) // 2] ^= 0x10
        file.write(member)
";

fn members(scratch: &Scratch, [tar, out, length, inside, back]: [&str; 5]) {
    fs::write(scratch.path("members.py"), MEMBERS).unwrap();
    scratch.shell(&format!("python3 members.py {tar} {out} {length} {inside} {back}"));
}

fn ran(scratch: &Scratch, words: &[&str]) -> Ran {
    Ran::from(tarnfs(scratch).args(words).current_dir(scratch.path("")).output().unwrap())
}

/// The end of a zip is looked for in its last 64 KiB: what is damaged there may be the content of one file.
#[test]
fn content_near_the_end_of_a_zip_costs_only_its_file() {
    if !have("zip") {
        return println!("left out: zip is not installed");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir f; for i in $(seq 10 49); do head -c 10000 /dev/urandom > f/$i; done; zip -q0 -j x.zip f/*; tar -cf z.tar x.zip",
    );
    members(&scratch, ["z.tar", "z.tar.gz", "4096", "x.zip", "30000"]);
    let listed = ran(&scratch, &["find", "-r", "z.tar.gz", "-type", "f", "-name", "[0-9]*"]);
    assert_eq!(listed.text().lines().count(), 40, "{}", listed.err);
    let mut damaged = 0;
    for number in 10..50 {
        let read = ran(&scratch, &["cat", "-r", "z.tar.gz", &format!("x.zip/{number}")]);
        let right = fs::read(scratch.path(format!("f/{number}"))).unwrap();
        // The code tells of the damage, wherever in the archive it is.
        assert!(right.starts_with(&read.out), "{number}");
        damaged += usize::from(read.out.len() < right.len());
    }
    assert!((1..=2).contains(&damaged), "{damaged}");
}

/// Where all of an archive is damaged, `--force` serves it, and what the archives in it hold, too.
#[test]
fn with_force_archives_in_a_damaged_stream_are_looked_into() {
    if !have("zip") {
        return println!("left out: zip is not installed");
    }
    let scratch = Scratch::new();
    scratch.shell("echo hello one > one.txt; zip -q x.zip one.txt; head -c 300000 /dev/urandom > a.bin; tar -cf d.tar a.bin x.zip");
    members(&scratch, ["d.tar", "d.tar.gz", "99999999", "a.bin", "100000"]);
    assert_ne!(ran(&scratch, &["cat", "-r", "d.tar.gz", "x.zip/one.txt"]).code, 0);
    let read = ran(&scratch, &["cat", "-r", "--force", "d.tar.gz", "x.zip/one.txt"]);
    assert_eq!(read.text(), "hello one\n", "{}", read.err);
}

/// Each member of a gzip file has a checksum. One that is wrong costs what is in it, also where it begins inside of
/// what is decoded at once.
#[test]
fn members_behind_a_damaged_one_are_right() {
    const BLOCK: usize = 32 << 10;
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "head -c $((256 * {BLOCK})) /dev/urandom > x; split -b {BLOCK} --filter='gzip -1n' x > x.gz; tar -cf m.tar x.gz",
    ));
    let length = fs::metadata(scratch.path("x.gz")).unwrap().len();
    // In the sixth of them.
    let back = (length - 5 * (BLOCK as u64 + 30) - 9000).to_string();
    members(&scratch, ["m.tar", "m.tar.gz", "65536", "x.gz", &back]);
    let right = fs::read(scratch.path("x")).unwrap();
    let (mut good, mut lost) = (0, 0);
    for at in (0..256).step_by(3).map(|number| number * BLOCK) {
        let range = format!("--range={at}:{BLOCK}");
        let read = ran(&scratch, &["cat", "-r", &range, "m.tar.gz", "x.gz/x"]);
        assert!(right[at..].starts_with(&read.out), "at {at}");
        if read.out.len() == BLOCK { good += 1 } else { lost += 1 }
    }
    assert!(lost > 0 && good > 70, "{good} are right, {lost} are lost");
}

/// What cannot be read of an archive in a cut one stays a file, and costs the others nothing.
#[test]
fn a_cut_image_in_a_cut_zip_costs_only_itself() {
    if !have("zip") || !have("mksquashfs") {
        return println!("left out: a program is missing");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir n s; echo one > n/a; echo two > n/b; head -c 300000 /dev/urandom > s/noise; mksquashfs s n/q.squashfs -quiet -no-progress
         zip -qX dl.zip n/a n/b n/q.squashfs; head -c -900 dl.zip > part.zip",
    );
    let listed = ran(&scratch, &["ls", "-R", "-r", "--index-file", ":memory:", "part.zip"]);
    assert!(listed.code == 5 && listed.text().starts_with("n\nn/a\nn/b\nn/q.squashfs\n"), "{}", listed.err);
    let extracted = ran(&scratch, &["extract", "-r", "--index-file", ":memory:", "-C", "out", "part.zip"]);
    assert_eq!(extracted.code, 5, "{}", extracted.err);
    scratch.shell("cmp out/n/a n/a; cmp out/n/b n/b; [ ! -f out/n/q.squashfs ]");
}

/// The same of lzip. What is wrong there is the checksum of a member alone, as anything else may end all of it.
#[test]
fn members_of_lzip_behind_a_damaged_one_are_right() {
    const BLOCK: usize = 8 << 10;
    const DAMAGED: usize = 37;
    if !have("lzip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "head -c $((256 * {BLOCK})) /dev/urandom > x; split -b {BLOCK} --filter='lzip -0' x > x.lz; tar -cf m.tar x.lz
         python3 - <<'E'
import gzip
tar, inner = open('m.tar', 'rb').read(), open('x.lz', 'rb').read()
ends = [len(inner)]
while ends[0] > 0:
    ends.insert(0, ends[0] - int.from_bytes(inner[ends[0] - 8:ends[0]], 'little'))
# The checksum of that member, of which there are 20 bytes behind it.
at = tar.index(inner) + ends[{DAMAGED} + 1] - 20
with open('m.tar.gz', 'wb') as file:
    for start in range(0, len(tar), 32768):
        member = bytearray(gzip.compress(tar[start:start + 32768], 0, mtime=0))
        if start <= at < start + 32768:
            near = min(max(at - 8, start), start + 32768 - 16)
            member[member.index(tar[near:near + 16]) + at - near] ^= 1
        file.write(member)
E"
    ));
    let right = fs::read(scratch.path("x")).unwrap();
    let (mut good, mut lost) = (0, Vec::new());
    for number in (0..256).step_by(3).chain([DAMAGED]) {
        let range = format!("--range={}:{BLOCK}", number * BLOCK);
        let read = ran(&scratch, &["cat", "-r", &range, "m.tar.gz", "x.lz/x"]);
        assert!(right[number * BLOCK..].starts_with(&read.out), "{number}");
        if read.out.len() == BLOCK { good += 1 } else { lost.push(number) }
    }
    assert!(lost.contains(&DAMAGED) && good > 50, "{good} are right, {lost:?} are lost");
}
