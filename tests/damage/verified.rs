//! Long files of zip and 7z, which are served before all of them is compared with their checksum: through the kernel,
//! and through the commands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have, run, statistics, wait_until};

/// How an archive of the files `noise` and `other` is made; its name; bytes of each. What is packed does not get
/// smaller, so that a bit of the archive is a bit of the file, and no decoder notices.
const WAYS: &[(&str, &str, usize)] = &[
    ("zip -q -0 stored.zip noise other", "stored.zip", 3 << 20),
    ("zip -q -1 deflated.zip noise other", "deflated.zip", 18 << 20),
    ("7z a -bd -bso0 -m0=copy copy.7z noise other", "copy.7z", 18 << 20),
    ("7z a -bd -bso0 -ms=off -m0=lzma2:d20 single.7z noise other", "single.7z", 18 << 20),
    ("7z a -bd -bso0 -ms=on -m0=lzma2:d20 solid.7z noise other", "solid.7z", 18 << 20),
];

/// Where a bit is flipped, in hundredths of the file.
const PLACES: &[usize] = &[0, 50, 99];

/// The files, and what `command` makes of them in a folder.
struct Packed {
    scratch: Scratch,
    noise: Vec<u8>,
    other: Vec<u8>,
}

impl Packed {
    fn new(bytes: usize, command: &str) -> Self {
        let scratch = Scratch::new();
        scratch.shell(&format!("for i in noise other; do head -c {bytes} /dev/urandom > $i; done; {command}"));
        let read = |name: &str| fs::read(scratch.path(name)).unwrap();
        Self { noise: read("noise"), other: read("other"), scratch }
    }
}

/// Flips a bit of what is stored of `content`, at so many hundredths of it.
fn flipped(archive: &Path, content: &[u8], hundredths: usize) -> Vec<u8> {
    let mut bytes = fs::read(archive).unwrap();
    let mut place = content.len() / 100 * hundredths + 100;
    // What was put between the bytes may lie in the middle of them.
    let found = loop {
        let wanted = &content[place..place + 16];
        let found = bytes.windows(16).position(|window| window == wanted);
        match found {
            Some(found) => break found,
            None => place += 16,
        }
    };
    bytes[found + 8] ^= 4;
    bytes
}

/// Reads from the start to the end, in order; how many bytes came, and the error if there was one.
fn in_order(path: &Path) -> (Vec<u8>, Option<i32>) {
    let mut file = fs::File::open(path).unwrap();
    let mut read = Vec::new();
    let error = file.read_to_end(&mut read).err();
    (read, error.and_then(|error| error.raw_os_error()))
}

/// > Who reads a file of a zip or 7z archive from its start to its end has right bytes, or an error at the latest with
/// > the last of them.
#[test]
fn one_flipped_bit_is_an_error_to_who_reads_all() {
    if !can_mount() || !have("zip") || !have("7z") {
        return println!("left out: no mounts here, or no zip or 7z");
    }
    for (command, name, bytes) in WAYS {
        let Packed { scratch, noise, other } = Packed::new(*bytes, command);
        for &place in PLACES {
            let archive = scratch.path(format!("flipped-{place}-{name}"));
            fs::write(&archive, flipped(&scratch.path(name), &noise, place)).unwrap();
            let text = archive.to_str().unwrap();
            let ran = run(&scratch, ["cat", text, "noise"]);
            assert!(ran.code == 5 && ran.err.contains("CRC-32"), "{name} {place}: {} {}", ran.code, ran.err);
            assert!(run(&scratch, ["cat", text, "other"]).ok().out == other, "{name} {place}");
            let mounted = Mounted::any(&scratch, &archive, &[]);
            // Two at the same time, and then again.
            let path = mounted.path("noise");
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| assert_eq!(in_order(&path).1, Some(libc::EIO), "{name} {place}"));
                }
            });
            assert_eq!(in_order(&path).1, Some(libc::EIO), "{name} {place}");
            let mut first = [0; 10];
            let is_read = fs::File::open(&path).unwrap().read_exact_at(&mut first, 1000).is_ok();
            assert!(!is_read, "{name} {place}: it is known by now");
            let (read, error) = in_order(&mounted.path("other"));
            assert!(read == other && error.is_none(), "{name} {place}: {error:?}");
            mounted.unmount();
        }
    }
}

/// Behind a block of bzip2 that fails its check, files may begin elsewhere: whether they do is told by their checksums.
#[test]
fn a_long_file_behind_a_damaged_block_is_read() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts or no 7z here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 60000 /dev/urandom > a; head -c 18000000 /dev/urandom > b-long; seq 9000 > c
        7z a -bd -bso0 -ms=on -mhc=off -m0=bzip2 -mx=1 -mmt=1 x.7z a b-long c",
    );
    let path = scratch.path("x.7z");
    let mut bytes = fs::read(&path).unwrap();
    // Behind the header of the archive, and that of bzip2: the CRC-32 of the first block.
    assert_eq!(&bytes[36..42], [0x31, 0x41, 0x59, 0x26, 0x53, 0x59]);
    bytes[43] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mounted = Mounted::new(&scratch, path.clone(), &[]);
    assert!(fs::read(mounted.path("b-long")).unwrap() == fs::read(scratch.path("b-long")).unwrap());
    assert_eq!(fs::read(mounted.path("c")).unwrap(), fs::read(scratch.path("c")).unwrap());
    mounted.unmount();
    let read = run(&scratch, ["cat".as_ref(), path.as_os_str(), "b-long".as_ref()]).ok();
    assert!(read.out == fs::read(scratch.path("b-long")).unwrap());
}

/// > Parts of a long file of a zip or 7z archive may be read before it is compared with its checksum; until then the
/// > kernel keeps nothing of it, but for what is mapped into memory.
#[test]
fn who_reads_a_part_has_an_error_once_the_damage_is_known() {
    if !can_mount() || !have("zip") || !have("7z") {
        return println!("left out: no mounts here, or no zip or 7z");
    }
    for (command, name, bytes) in WAYS {
        let Packed { scratch, noise, .. } = Packed::new(*bytes, command);
        let archive = scratch.path(format!("flipped-{name}"));
        fs::write(&archive, flipped(&scratch.path(name), &noise, 99)).unwrap();
        for options in [&[][..], &["--control-interface"]] {
            let log = scratch.path(format!("log-{name}-{}", options.len()));
            let to_log = format!("--log-file={}", log.display());
            let mounted = Mounted::any(&scratch, &archive, &[options, &[&to_log]].concat());
            let path = mounted.path("noise");
            let early = fs::File::open(&path).unwrap();
            let mut start = vec![0; 4096];
            match early.read_exact_at(&mut start, 8192) {
                Ok(()) => assert!(start == noise[8192..8192 + 4096], "{name}"),
                Err(_) => println!("{name}: all was verified before the first byte was read, on a busy machine"),
            }
            wait_until("it is verified", || {
                let log = fs::read_to_string(&log).unwrap_or_default();
                log.lines().any(|line| line.contains("noise: damaged") && line.contains("CRC-32"))
            });
            let again = early.read_exact_at(&mut start, 8192);
            assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EIO), "{name}: who has it open");
            let late = fs::File::open(&path).unwrap().read_exact_at(&mut start, 8192);
            assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::EIO), "{name}: who opens it again");
            drop(early);
            mounted.unmount();
        }
    }
}

#[test]
fn with_force_an_attribute_says_what_is_wrong_once_that_is_known() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let Packed { scratch, noise, .. } = Packed::new(3 << 20, "zip -q -0 stored.zip noise other");
    fs::write(scratch.path("flipped.zip"), flipped(&scratch.path("stored.zip"), &noise, 99)).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("flipped.zip"), &["--force"]);
    let told = |name: &str| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(mounted.path(name), "user.tarnfs.damaged", &mut value[..]).ok()?;
        Some(String::from_utf8_lossy(&value[..length]).into_owned())
    };
    assert_eq!((in_order(&mounted.path("noise")).1, in_order(&mounted.path("other")).1), (None, None));
    assert!(told("noise").is_some_and(|what| what.contains("CRC-32")) && told("other").is_none());
    mounted.unmount();
}

#[test]
fn what_is_right_is_kept_by_the_kernel_once_that_is_known() {
    if !can_mount() || !have("zip") || !have("7z") {
        return println!("left out: no mounts here, or no zip or 7z");
    }
    for (command, name, bytes) in WAYS {
        let Packed { scratch, noise, other } = Packed::new(*bytes, command);
        let mounted = Mounted::new(&scratch, scratch.path(name), &["-d", "2"]);
        let path = mounted.path("noise");
        let reads = || statistics(&mounted.at)["requests"]["read"].as_u64().unwrap();
        // Nobody reads more than this.
        wait_until("what was read is kept", || {
            let file = fs::File::open(&path).unwrap();
            let mut start = vec![0; 4096];
            file.read_exact_at(&mut start, 8192).unwrap();
            assert!(start == noise[8192..8192 + 4096], "{name}");
            let before = reads();
            file.read_exact_at(&mut start, 8192).unwrap();
            reads() == before
        });
        // A machine that is short of memory takes some of it back.
        let is_kept = |path: &Path, content: &[u8]| {
            assert!(fs::read(path).unwrap() == content, "{name}");
            let before = reads();
            assert!(fs::read(path).unwrap() == content, "{name}");
            reads() == before
        };
        wait_until("all of it is kept", || is_kept(&path, &noise));
        // The other one is read in order, and nothing else is needed.
        wait_until("what was read in order is known to be right", || is_kept(&mounted.path("other"), &other));
        mounted.unmount();
    }
}

#[test]
fn a_part_of_a_damaged_file_is_no_success_of_a_command() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let Packed { scratch, noise, .. } = Packed::new(3 << 20, "zip -q -0 stored.zip noise other");
    let archive = scratch.path("flipped.zip");
    fs::write(&archive, flipped(&scratch.path("stored.zip"), &noise, 99)).unwrap();
    let (archive, good) = (archive.to_str().unwrap().to_owned(), scratch.path("stored.zip"));
    let ran = run(&scratch, ["cat", "--range", "1000:2000", &archive, "noise"]);
    assert!(ran.code == 5 && ran.err.contains("CRC-32"), "{} {}", ran.code, ran.err);
    let ran = run(&scratch, ["cat", "--range", "1000:2000", good.to_str().unwrap(), "noise"]).ok();
    assert!(ran.out == noise[1000..3000]);
    let checked = run(&scratch, ["check", &archive]);
    assert!(checked.code == 5 && checked.text().contains("damaged: noise: "), "{}", checked.text());
    run(&scratch, ["check", good.to_str().unwrap()]).ok();
}

#[test]
fn a_tar_that_is_stored_in_a_damaged_zip_is_not_served() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let Packed { scratch, noise, .. } =
        Packed::new(2 << 20, "tar cf inner.tar noise other; zip -q -0 outer.zip inner.tar");
    fs::write(scratch.path("flipped.zip"), flipped(&scratch.path("outer.zip"), &noise, 50)).unwrap();
    for options in [&["-r"][..], &["-r", "--lazy"]] {
        let mounted = Mounted::any(&scratch, scratch.path("flipped.zip"), options);
        assert!(fs::read(mounted.path("inner.tar/noise")).is_err(), "{options:?}");
        mounted.unmount();
        let mounted = Mounted::new(&scratch, scratch.path("outer.zip"), options);
        assert!(fs::read(mounted.path("inner.tar/noise")).unwrap() == noise, "{options:?}");
        mounted.unmount();
    }
}
