//! Archives in members that have to be decoded in several steps, or are not one run of bytes: in solid blocks, behind
//! a password, in blocks of squashfs. With `-r` they are folders as all others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::foreground::Foreground;
use crate::support::{Mounted, Scratch, can_mount, have, run};

/// What is packed: archives of one tree, in as many formats.
const ARCHIVES: &[&str] = &["a.tar", "b.tar.gz", "c.zip", "d.tar.xz", "e.7z", "f.squashfs"];

/// How they are packed, the option that it takes to read that, and whether an index is written.
const WAYS: &[(&str, &str, &[&str], bool)] = &[
    ("solid.7z", "7z a -bd -bso0 ../solid.7z *", &[], true),
    ("ppmd.7z", "7z a -bd -bso0 -m0=ppmd ../ppmd.7z *", &[], true),
    ("bzip2.7z", "7z a -bd -bso0 -m0=bzip2 ../bzip2.7z *", &[], true),
    ("deflate.7z", "7z a -bd -bso0 -m0=deflate ../deflate.7z *", &[], true),
    ("names.7z", "7z a -bd -bso0 -psecret -mhe=on ../names.7z *", &["--password", "secret"], false),
    ("lzma.zip", "7z a -bd -bso0 -mm=lzma ../lzma.zip *", &[], true),
    ("cipher.zip", "zip -q -P secret ../cipher.zip *", &["--password", "secret"], false),
    ("aes.zip", "7z a -bd -bso0 -mem=AES256 -psecret ../aes.zip *", &["--password", "secret"], false),
    ("blocks.squashfs", "mksquashfs . ../blocks.squashfs -quiet -no-progress > /dev/null", &[], true),
    ("tail.squashfs", "mksquashfs . ../tail.squashfs -b 1M -noD -quiet -no-progress > /dev/null", &[], true),
];

fn make(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/folder/deep pack; cd tree; seq 1 > one; : > empty; seq 30000 > numbers; seq 7 > folder/deep/seven
         head -c 700000 /dev/urandom > noise; head -c 1500000 /dev/zero > zeros; tar cf ../pack/a.tar .; tar czf ../pack/b.tar.gz .
         zip -q -r ../pack/c.zip .; tar cJf ../pack/d.tar.xz .; 7z a -bd -bso0 ../pack/e.7z .
         mksquashfs . ../pack/f.squashfs -quiet -no-progress > /dev/null",
    );
}

fn difference(scratch: &Scratch, mounted: &Mounted, folder: &str) -> String {
    scratch.shell(&format!("diff -r tree '{}' 2>&1 | head -c 400 || true", mounted.path(folder).display()))
}

#[test]
fn archives_in_all_of_them_are_folders() {
    if !can_mount() || !have("7z") || !have("mksquashfs") || !have("zip") {
        return println!("left out: no mounts here, or a program is missing");
    }
    let scratch = Scratch::new();
    make(&scratch);
    for (name, how, options, has_index) in WAYS {
        scratch.shell(&format!("cd pack; {how}"));
        // The second time all comes from the index, where there is one.
        let all: Vec<&str> = [&["-r", "--index-minimum-file-count", "0"], *options].concat();
        for round in 0..2 {
            let mounted = Mounted::new(&scratch, scratch.path(name), &all);
            for folder in ARCHIVES {
                assert_eq!(difference(&scratch, &mounted, folder), "", "{name}, round {round}, {folder}");
            }
            mounted.unmount();
        }
        let index = scratch.path(format!("{name}.tarnfs.sqlite"));
        assert_eq!(index.exists(), *has_index, "{name}: what a password opens is in no index");
        // In a tar, and compressed once more.
        scratch.shell(&format!("rm -f outer.tar*; tar cf outer.tar {name}; gzip -k outer.tar"));
        for outer in ["outer.tar", "outer.tar.gz"] {
            let mounted = Mounted::new(&scratch, scratch.path(outer), &all);
            for folder in ["a.tar", "d.tar.xz"] {
                assert_eq!(
                    difference(&scratch, &mounted, &format!("{name}/{folder}")),
                    "",
                    "{outer}, {name}, {folder}"
                );
            }
            mounted.unmount();
        }
    }
}

#[test]
fn without_its_password_an_archive_in_it_stays_a_file() {
    if !have("7z") || !have("zip") {
        return println!("left out: a program is missing");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1000 > numbers; tar cf a.tar numbers; zip -q -P secret a.zip a.tar; 7z a -bd -bso0 -psecret a.7z a.tar",
    );
    for archive in ["a.zip", "a.7z"] {
        let path = scratch.path(archive);
        let ran = run(&scratch, ["ls", "-r", path.to_str().unwrap()]);
        assert_eq!(String::from_utf8_lossy(&ran.out).trim(), "a.tar", "{archive}");
        let ran = run(&scratch, ["ls", "-R", "-r", "--password", "wrong", path.to_str().unwrap()]);
        assert!(!String::from_utf8_lossy(&ran.out).contains("numbers"), "{archive}");
        // An index that was made without it does not know what it opens.
        assert_eq!(run(&scratch, ["index", "-r", path.to_str().unwrap()]).code, 0);
        assert!(scratch.path(format!("{archive}.tarnfs.sqlite")).exists(), "{archive}");
        let ran = run(&scratch, ["ls", "-R", "-r", "--password", "secret", path.to_str().unwrap()]);
        assert!(String::from_utf8_lossy(&ran.out).contains("numbers"), "{archive}: {}", ran.err);
    }
}

/// Read in order and out of it, of a member whose checksum is wrong nothing is served as if it were right.
#[test]
fn damage_of_the_member_is_damage_of_what_lies_in_it() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 400000 /dev/urandom > noise; head -c 24000000 /dev/urandom > long; tar cf short.tar noise; tar cf long.tar long noise
         7z a -bd -bso0 -m0=bcj -m1=copy short.7z short.tar; 7z a -bd -bso0 -m0=bcj -m1=copy long.7z long.tar",
    );
    for name in ["short", "long"] {
        let path = scratch.path(format!("{name}.7z"));
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        // In the middle of the noise.
        let (mut byte, at) = ([0], 200_000);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let listed = run(&scratch, ["ls", "-R", "-r", path.to_str().unwrap()]);
        if name == "short" {
            // Nothing is looked into before all is compared: it stays a file, of which its readers are told.
            assert_eq!((listed.code, listed.text().as_str(), listed.err.as_str()), (0, "short.tar\n", ""));
        } else {
            assert!(listed.err.contains("damage"), "{name}: {}", listed.err);
        }
        let mounted = Mounted::any(&scratch, &path, &["-r", "--index-minimum-file-count", "0"]);
        let inner = mounted.path(if name == "short" { "short.tar" } else { "long.tar/long" });
        let read = scratch.shell(&format!("md5sum '{}' 2>&1 || true", inner.display()));
        assert!(read.contains("Input/output error"), "{name}: {read}");
        mounted.unmount();
        let checked = run(&scratch, ["check", "-r", path.to_str().unwrap()]);
        assert_ne!(checked.code, 0, "{name}: {}", String::from_utf8_lossy(&checked.out));
    }
}

/// Where a block around an archive is lost, what `check` counts as damaged is what cannot be read: no whole file.
#[test]
fn a_lost_block_around_an_archive_costs_what_lies_in_it() {
    if !have("xz") {
        return println!("left out: no xz here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in; for i in $(seq 16); do head -c 900000 /dev/urandom > in/r$i; done; head -c 300000 /dev/zero > in/zeros
         tar cf i.tar in/r? in/zeros in/r1?; xz -0c --block-size=500KiB i.tar > y.tar.xz; tar cf q.tar y.tar.xz
         xz -0c --block-size=1MiB q.tar > q.tar.xz; cp --sparse=always i.tar x.tar; tar -S -cf o.tar x.tar
         xz -0c --block-size=1MiB o.tar > o.tar.xz",
    );
    for (name, least) in [("q.tar.xz", 4), ("o.tar.xz", 13)] {
        let path = scratch.path(name);
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let (mut byte, at) = ([0], 5_600_000);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let out = scratch.path("out");
        run(&scratch, ["extract".as_ref(), "-r".as_ref(), path.as_os_str(), "-C".as_ref(), out.as_os_str()]);
        let right = "cd in; for f in *; do cmp -s $f $(find ../out -name $f -type f | head -n 1) && echo $f || true; done | wc -l";
        let right: usize = scratch.shell(right).trim().parse().unwrap();
        scratch.shell("rm -rf out");
        assert!((least..17).contains(&right), "{name}: {right}");
        let checked = run(&scratch, ["check", "-r", path.to_str().unwrap()]);
        let counted = format!(" {} of 17 files are damaged", 17 - right);
        assert!(checked.code == 5 && checked.text().contains(&counted), "{name}: {right} right: {}", checked.text());
    }
    // Of what fails the checksum of all of it, nobody knows which bytes are wrong.
    scratch.shell(
        "mkdir few; for i in 1 2 3 4 5; do seq $i > few/$i; done; tar czf few.tar.gz few; tar cf f.tar few.tar.gz; gzip f.tar",
    );
    let path = scratch.path("f.tar.gz");
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let (mut byte, at) = ([0], file.metadata().unwrap().len() - 6);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    let checked = run(&scratch, ["check", "-r", path.to_str().unwrap()]);
    let all = ["5 of 5 files are damaged", "6 of 6 files are damaged"];
    assert!(checked.code == 5 && all.iter().any(|all| checked.text().contains(all)), "{}", checked.text());
}

/// What ends like a zip says where the directory of that is: far behind the end, in what is kept on disk meanwhile.
#[test]
fn an_archive_in_a_compressed_one_may_say_that_something_lies_behind_its_end() {
    if !have("mksquashfs") {
        return println!("left out: there is no mksquashfs");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in; head -c 3000000 /dev/urandom > in/noise; mksquashfs in a.squashfs -quiet -no-progress > /dev/null
         printf 'PK\\5\\6\\0\\0\\0\\0\\1\\0\\1\\0\\20\\0\\0\\0\\0\\0\\377\\177\\0\\0' >> a.squashfs; tar czf a.tar.gz a.squashfs",
    );
    let path = scratch.path("a.tar.gz");
    let ran = run(&scratch, ["cat", "-r", path.to_str().unwrap(), "a.squashfs/noise"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out == fs::read(scratch.path("in/noise")).unwrap());
}

/// Inodes of an image have no checksums. What lies in a damaged part of the archive around it leads nowhere.
#[test]
fn inodes_of_a_damaged_image_lead_to_no_other_bytes() {
    if !have("mksquashfs") || !have("python3") {
        return println!("left out: a program is missing");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir s; cd s; python3 -c \"
import random
random.seed(1)
for i in range(1500): open('f%04d' % i, 'wb').write(random.randbytes(1000))\"
         cd ..; mksquashfs s i.sqsh -noI -noD -noF -noX -no-fragments -quiet -no-progress > /dev/null
         python3 - <<'E'
import io, struct, tarfile, zlib
def stored(image):
    # A frame of lz4 whose blocks are stored, without checksums.
    blocks = [image[at:at + 65536] for at in range(0, len(image), 65536)]
    blocks = b''.join(struct.pack('<I', len(block) | 1 << 31) + block for block in blocks)
    return b'\\x04\\x22\\x4d\\x18\\x60\\x40\\x82' + blocks + bytes(4)
def tar(name, content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.GNU_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
image = open('i.sqsh', 'rb').read()
inodes = struct.unpack('<Q', image[64:72])[0]
# Where the blocks begin of the first inode, which is that of a file: behind 2 bytes of the block of inodes, and 16.
damaged = bytearray(image)
assert damaged[inodes + 2] == 2
damaged[inodes + 2 + 16] ^= 0x10
damaged = bytes(damaged)
plain, packed, twice = (lambda image: image), stored, (lambda image: stored(tar('i.sqsh', image)))
for archive, name, pack, of in [
    ('plain', 'i.sqsh', plain, damaged), ('packed', 'i.sqsh.lz4', packed, damaged),
    ('twice', 'i.tar.lz4', twice, damaged), ('whole', 'i.sqsh.lz4', packed, image),
]:
    whole, wrong = tar(name, pack(image)), tar(name, pack(of))
    with open(archive + '.tar.gz', 'wb') as file:
        for at in range(0, len(whole), 4096):
            part = wrong[at:at + 4096]
            file.write(b'\\x1f\\x8b\\x08\\0\\0\\0\\0\\0\\0\\xff\\x01' + struct.pack('<HH', len(part), 0xffff - len(part)) + part)
            file.write(struct.pack('<II', zlib.crc32(whole[at:at + 4096]), len(part)))
E",
    );
    // What there is of the files of the image, and how many of them.
    let cases = [
        ("plain", "i.sqsh", 501..1500),
        ("packed", "i.sqsh.lz4", 0..1500),
        ("twice", "i.tar.lz4/i.sqsh", 0..1500),
        ("whole", "i.sqsh.lz4", 1500..1501),
    ];
    for (archive, folder, expected) in cases {
        let (packed, out) = (scratch.path(format!("{archive}.tar.gz")), scratch.folder(format!("out-{archive}")));
        let words = ["extract".as_ref(), "-r".as_ref(), packed.as_os_str(), "-C".as_ref(), out.as_os_str()];
        let ran = run(&scratch, words);
        let entries = fs::read_dir(out.join(folder)).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = entries.filter(|name| name != "i.sqsh").collect();
        let is_right = |name: &std::ffi::OsString| {
            let [found, stored] =
                [out.join(folder), scratch.path("s")].map(|folder| fs::read(folder.join(name)).unwrap());
            found == stored
        };
        assert!(names.iter().all(is_right), "{archive}: {}", ran.err);
        assert!(expected.contains(&names.len()), "{archive}: {} files", names.len());
        assert_eq!(ran.code, if archive == "whole" { 0 } else { 5 }, "{archive}: {}", ran.err);
    }
}

/// With a password, nothing of the names, and of what was decoded, is in a file without a name.
#[test]
fn no_file_without_a_name_has_what_a_password_opens() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or a program is missing");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; seq 500000 | sed 's/$/ words of a secret text/' > d/secretname; ln -s secrettarget d/link
         for i in $(seq 2000); do echo > d/secretname$i; done; tar cf in.tar d; gzip in.tar; 7z a -bd -bso0 -psec -mhe=on e.7z d in.tar.gz",
    );
    for options in [&["--password", "sec"][..], &["--password", "sec", "-r"], &["--password", "sec", "-r", "--lazy"]] {
        // So little that an index which is not secret would be on the disk.
        let options = [options, &["--cache-memory", "1M"]].concat();
        let mounted =
            Foreground::new(&scratch, &scratch.path("e.7z"), &options).unwrap_or_else(|why| panic!("{why:?}"));
        if options.contains(&"-r") {
            assert_eq!(fs::read_dir(mounted.at.join("in.tar.gz/d")).unwrap().count(), 2002);
        }
        assert_eq!(fs::read_dir(mounted.at.join("d")).unwrap().count(), 2002);
        let files = fs::read_dir(format!("/proc/{}/fd", mounted.process())).unwrap();
        for file in files.map(|entry| entry.unwrap().path()) {
            let is_unnamed = fs::read_link(&file).is_ok_and(|to| to.to_string_lossy().contains("(deleted)"));
            let bytes = if is_unnamed { fs::read(&file).unwrap_or_default() } else { Vec::new() };
            let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
            assert!(!has(b"secret") && !has(b"SQLite format"), "{options:?}: {} bytes", bytes.len());
        }
        mounted.unmount();
    }
}
