//! 7z archives, mounted through the kernel, beside what was packed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{self, Mounted, Scratch, can_mount, have, run};

/// How 7z packs the folder in which it runs.
const WAYS: &[(&str, &str)] = &[
    ("solid", ""),
    ("single", "-ms=off"),
    ("lzma", "-m0=lzma"),
    ("ppmd", "-m0=ppmd"),
    ("bzip2", "-m0=bzip2"),
    ("deflate", "-m0=deflate"),
    ("copy", "-m0=copy"),
    ("bcj", "-m0=bcj -m1=lzma2"),
    ("delta", "-m0=delta:4 -m1=lzma"),
    ("bcj2", "-mf=BCJ2"),
    ("bcj2-single", "-mf=BCJ2 -ms=off"),
    ("bcj2-copy", "-m0=bcj2 -m1=lzma:d20 -m2=lzma:d20 -m3=copy -mb0:1 -mb0s1:2 -mb0s2:3"),
    // Of what comes out of the first of two, only the archive says how long it is.
    ("twice", "-m0=lzma -m1=bzip2"),
    ("thrice", "-m0=bcj -m1=deflate -m2=lzma2 -m3=ppmd"),
    ("swap4", "-m0=swap4 -m1=lzma2"),
];

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/folder/deep tree/void; cd tree; seq 1 > one; : > empty; seq 300000 > numbers; seq 5 400000 > more
         head -c 1048576 /dev/urandom > noise; head -c 3000000 /dev/zero > zeros; seq 7 > folder/deep/seven
         cp /bin/ls program; ln -s folder/deep/seven link; chmod 4755 one; chmod 600 noise; chmod 750 folder
         echo text > 'a name with spaces and ü'; touch -d '2021-03-04 05:06:08' numbers",
    );
}

/// Everything that is compared: kind, mode, size, time in seconds, path, target; then the sums of all files.
const SURVEY: &str = r"find . -mindepth 1 -type l -printf '%y %P %l\n' -o -mindepth 1 -type d -printf '%y %m %P\n' \
     -o -mindepth 1 -printf '%y %m %s %Ts %P\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum";

fn survey(scratch: &Scratch, folder: &Path) -> String {
    scratch.shell(&format!("cd '{}'; {SURVEY}", folder.display()))
}

#[test]
fn whatever_way_it_was_packed_the_tree_is_the_same() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let tree = survey(&scratch, &scratch.path("tree"));
    for (name, options) in WAYS {
        scratch.shell(&format!("cd tree; 7z a -bd -bso0 -snl {options} ../{name}.7z ."));
        let mounted = Mounted::new(&scratch, scratch.path(format!("{name}.7z")), &[]);
        for _ in 0..2 {
            assert_eq!(survey(&scratch, &mounted.path("")), tree, "{name}");
        }
        mounted.unmount();
    }
    for (name, method) in [("bcj2-single", "BCJ2"), ("twice", "LZMA"), ("thrice", "Deflate")] {
        let listed = scratch.shell(&format!("7z l -slt {name}.7z | grep ^Method"));
        assert!(listed.contains(method), "{listed}");
    }
    scratch.shell("tar cf outer.tar solid.7z; gzip -k solid.7z; zip -q -0 outer.zip single.7z");
    for (archive, folder) in [("outer.tar", "solid.7z"), ("solid.7z.gz", ""), ("outer.zip", "single.7z")] {
        let mounted = Mounted::new(&scratch, scratch.path(archive), &["-r"]);
        assert_eq!(survey(&scratch, &mounted.path(folder)), tree, "{archive}");
        mounted.unmount();
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an archive with a directory needs no index");
}

#[test]
fn encrypted_ones_need_their_password() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/numbers; seq 10 > tree/few; cp /bin/ls tree/program
         (cd tree; 7z a -bd -bso0 -psecret ../files.7z .; 7z a -bd -bso0 -psecret -mhe=on ../names.7z .
          7z a -bd -bso0 -psecret -mf=BCJ2 -mhe=on ../bcj2.7z .; 7z a -bd -bso0 -psecret -m0=lzma -m1=bzip2 ../twice.7z .)",
    );
    let tree = survey(&scratch, &scratch.path("tree"));
    for archive in ["files.7z", "names.7z", "bcj2.7z", "twice.7z"] {
        let mounted = Mounted::new(&scratch, scratch.path(archive), &["--password", "secret"]);
        assert_eq!(survey(&scratch, &mounted.path("")), tree, "{archive}");
        mounted.unmount();
        let path = scratch.path(archive);
        for options in [&[][..], &["--password", "wrong"]] {
            let mut arguments = vec!["cat"];
            arguments.extend(options);
            arguments.extend([path.to_str().unwrap(), "numbers"]);
            let ran = run(&scratch, &arguments);
            assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("password"), "{archive}: {}", ran.err);
        }
    }
}

/// What py7zr writes with brotli has no end, and what the branch of 7-Zip with zstd writes is in frames.
#[test]
fn what_py7zr_packs_is_read() {
    let numbers = (1..=200).map(|number| number.to_string() + "\n").collect::<Vec<_>>().concat();
    for (name, archive) in [
        ("brotli", &include_bytes!("../archives/brotli-of-py7zr.7z")[..]),
        ("zstd", &include_bytes!("../archives/zstd-of-py7zr.7z")[..]),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.path("a.7z"), archive).unwrap();
        assert_eq!(
            run(&scratch, ["cat", scratch.path("a.7z").to_str().unwrap(), "numbers"]).ok().out,
            numbers.as_bytes(),
            "{name}"
        );
        assert_eq!(run(&scratch, ["check", scratch.path("a.7z").to_str().unwrap()]).code, 0, "{name}");
        if can_mount() {
            let mounted = Mounted::new(&scratch, scratch.path("a.7z"), &[]);
            assert_eq!(fs::read_to_string(mounted.path("numbers")).unwrap(), numbers, "{name}");
            mounted.unmount();
        }
    }
}

/// Names that a password opens are in no index, also where what has them is compressed once more.
#[test]
fn names_that_a_password_opens_are_in_no_index() {
    if !have("7z") {
        return println!("left out: 7z is not installed");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir s; echo x > s/secretname; 7z a -bd -bso0 -psec -mhe=on e.7z s; gzip -k e.7z; seq 9 > n; tar -czf t.tar.gz n");
    let ran = |words: &[&str]| {
        support::Ran::from(support::tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap())
    };
    for archive in ["e.7z", "e.7z.gz"] {
        let words = ["index", "--password", "sec", "--index-file=names.sqlite", archive];
        assert_ne!(ran(&words).code, 0, "{archive}");
        assert!(!scratch.path("names.sqlite").exists(), "{archive}");
        let listed = ran(&["ls", "-R", "--password", "sec", "--index-minimum-file-count=0", archive]).ok();
        assert!(listed.text().contains("secretname"), "{archive}: {}", listed.text());
    }
    assert!(!scratch.shell("ls").contains(".sqlite"));
    // No password opens anything of a tar.
    ran(&["index", "--password", "sec", "--index-file=names.sqlite", "t.tar.gz"]).ok();
    assert!(scratch.path("names.sqlite").exists());
}

/// A password makes no difference to an archive that cannot be encrypted: what is too much for memory goes to a disk.
#[test]
fn the_index_of_a_tar_is_not_bounded_by_a_password() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
with tarfile.open('a.tar.gz', 'w:gz', format=tarfile.GNU_FORMAT, compresslevel=1) as tar:
    for number in range(20000):
        entry = tarfile.TarInfo(f'f{number}')
        entry.type, entry.linkname = tarfile.SYMTYPE, f'{number:05}' * 800
        tar.addfile(entry)
E",
    );
    let words = ["index", "--cache-memory", "1M", "--password", "x", "--index-file=i.sqlite", "a.tar.gz"];
    support::Ran::from(support::tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
    assert!(fs::metadata(scratch.path("i.sqlite")).unwrap().len() > 0);
}

/// py7zr writes no checksum of an encrypted header: what a wrong password makes of it is no header, and no damage.
#[test]
fn a_wrong_password_of_a_header_without_a_checksum_is_not_taken() {
    let scratch = Scratch::new();
    fs::write(scratch.path("a.7z"), include_bytes!("../archives/header-of-py7zr.7z")).unwrap();
    let archive = scratch.path("a.7z").to_str().unwrap().to_owned();
    for words in [&["--password", "secret"][..], &["--password", "bad", "--password", "other", "--password", "secret"]]
    {
        let ran = run(&scratch, [&["cat"][..], words, &[archive.as_str(), "numbers"]].concat()).ok();
        assert!(ran.out.starts_with(b"1\n2\n") && ran.out.ends_with(b"200\n"), "{words:?}");
    }
    for (words, part) in [(&["--password", "bad"][..], "wrong password"), (&[], "it is encrypted")] {
        let ran = run(&scratch, [&["ls"][..], words, &[archive.as_str()]].concat());
        assert!(ran.code == 3 && ran.err.contains(part) && !ran.err.contains("of a kind"), "{words:?}: {}", ran.err);
    }
}

#[test]
fn entries_to_be_removed_are_no_damage() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; seq 10 > t/few; seq 20 > t/other; 7z a -bd -bso0 a.7z t; rm t/few; seq 30 > t/new
         7z u a.7z -bd -bso0 -u- '-up0q3r2x2y2z0w2!anti.7z' t",
    );
    let archive = scratch.path("anti.7z");
    let ran = run(&scratch, ["check", archive.to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.text());
    assert!(!run(&scratch, ["ls", "-R", archive.to_str().unwrap()]).text().contains("few"));
    let told = run(&scratch, ["ls", "-d", "2", archive.to_str().unwrap()]).err;
    assert!(told.contains("1 entries only say what to remove"), "{told}");
}

#[test]
fn encrypted_links_are_encrypted_files_until_there_is_a_password() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 10 > tree/few; ln -s few tree/link; cd tree
         7z a -bd -bso0 -snl -psecret ../a.7z .; 7z a -bd -bso0 -snl -psecret -mem=AES256 ../a.zip .
         7z a -bd -bso0 -snl -psecret -mem=ZipCrypto ../old.zip .",
    );
    for name in ["a.7z", "a.zip", "old.zip"] {
        let archive = scratch.path(name);
        let archive = archive.to_str().unwrap();
        for options in [&[][..], &["--password", "wrong"]] {
            let ran = run(&scratch, [&["check"][..], options, &[archive]].concat());
            assert_eq!(ran.code, 3, "{name} {options:?}: {}", ran.err);
            assert!(!ran.err.contains("damaged"), "{name} {options:?}: {}", ran.err);
            let ran = run(&scratch, [&["cat"][..], options, &[archive, "link"]].concat());
            assert!(ran.code == 3 && ran.err.contains("password"), "{name} {options:?}: {} {}", ran.code, ran.err);
        }
        let shown = run(&scratch, ["ls", archive]).ok();
        assert!(shown.text().contains("link") && shown.err.contains("encrypted"), "{name}: {}", shown.err);
        let shown = run(&scratch, ["ls", "-l", "--password", "secret", archive]).ok().text();
        assert!(shown.contains("link -> few"), "{name}: {shown}");
    }
}

/// In 7z the target of a link is content: a mount decodes none of it.
///
/// > The target of a symbolic link in a zip or 7z archive is read when somebody asks for it. A damaged one is an
/// > error, also with `--force`.
#[test]
fn targets_of_links_are_read_when_somebody_asks() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree; cd tree; ln -s one first; seq 200000 > one; ln -s ../elsewhere/that/is/nowhere last
         7z a -bd -bso0 -snl ../a.7z .",
    );
    let archive = scratch.path("a.7z");
    let mounted = Mounted::any(&scratch, &archive, &[]);
    for name in ["first", "last"] {
        let target = fs::read_link(mounted.path(name)).unwrap();
        assert_eq!(target, fs::read_link(scratch.path(format!("tree/{name}"))).unwrap());
        assert_eq!(mounted.path(name).symlink_metadata().unwrap().len(), target.as_os_str().len() as u64);
    }
    assert!(fs::read(mounted.path("first")).unwrap() == fs::read(scratch.path("tree/one")).unwrap());
    mounted.unmount();
    // An index says where they are, too.
    let (archive, kept) = (archive.to_str().unwrap(), scratch.path("kept.sqlite"));
    run(&scratch, ["index", "--index-file", kept.to_str().unwrap(), archive]).ok();
    let shown = run(&scratch, ["ls", "-l", "--index-file", kept.to_str().unwrap(), archive]).ok().text();
    assert!(shown.contains("last -> ../elsewhere/that/is/nowhere") && shown.contains("first -> one"), "{shown}");
    run(&scratch, ["check", "--index-file", kept.to_str().unwrap(), archive]).ok();
    // Damaged ones are there, and who reads them is told.
    let mut bytes = fs::read(archive).unwrap();
    bytes[40..200].fill(0x55);
    fs::write(scratch.path("bad.7z"), &bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("bad.7z"), &[]);
    assert!(mounted.path("last").symlink_metadata().unwrap().is_symlink());
    assert_eq!(
        fs::read_link(mounted.path("last")).unwrap_err().raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    mounted.unmount();
    let ran = run(&scratch, ["check", scratch.path("bad.7z").to_str().unwrap()]);
    assert!(ran.code != 0 && ran.text().contains("the target of the link"), "{} {}", ran.text(), ran.err);
    assert!(
        ran.text().contains("its only file is damaged; the targets of 2 symbolic links are damaged"),
        "{}",
        ran.text()
    );
    // The rest is listed all the same. What is damaged leads nowhere, with --force either.
    let bad = scratch.path("bad.7z");
    let bad = bad.to_str().unwrap();
    for options in [&["ls", "-l", bad][..], &["ls", "-l", "--force", bad]] {
        let ran = run(&scratch, options);
        let lines = ran.text();
        assert!(lines.contains("first -> ?\n") && lines.contains("last -> ?\n") && lines.contains(" one\n"), "{lines}");
        assert!(ran.code == 5 && ran.err.contains("first") && ran.err.contains("last"), "{} {}", ran.code, ran.err);
    }
    // Who has asked for targets reads what is before the damage all the same.
    let mut bytes = fs::read(archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x55);
    fs::write(scratch.path("late.7z"), &bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("late.7z"), &["--force"]);
    // Whatever the damage has left of them.
    for name in ["first", "last"] {
        let twin = fs::read_link(scratch.path(format!("tree/{name}"))).unwrap();
        assert!(fs::read_link(mounted.path(name)).map_or(true, |target| target == twin), "{name}");
    }
    let mut start = [0; 4096];
    fs::File::open(mounted.path("one")).unwrap().read_exact_at(&mut start, 0).unwrap();
    assert!(start[..] == fs::read(scratch.path("tree/one")).unwrap()[..4096]);
    mounted.unmount();
    let ran = run(&scratch, ["stat", bad, "last", "one"]);
    assert!(ran.code == 5 && ran.text().contains("Target: ?") && ran.text().contains("one"), "{}", ran.text());
    let ran = run(&scratch, ["ls", "--json", bad]);
    assert!(ran.code == 5 && ran.text().lines().count() == 3, "{}", ran.text());
}

/// Also after somebody has read what is damaged, or the program has by reading ahead.
#[test]
fn files_before_the_damage_in_a_solid_block_are_whole() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    // A block that is decoded to its end before any of it is served, and one that is copied to a file.
    for numbers in [400_000, 1_500_000] {
        let scratch = Scratch::new();
        scratch.shell(&format!(
            "mkdir tree; cd tree; for name in a b c z; do seq -f %.0f$name {numbers} > $name; done; ln -s a l
             7z a -bd -bso0 -snl -mx1 -ms=on -mqs=off ../s.7z a b c l z",
        ));
        let mut bytes = fs::read(scratch.path("s.7z")).unwrap();
        let place = bytes.len() * 9 / 10;
        bytes[place..place + 64].fill(0x55);
        fs::write(scratch.path("bad.7z"), &bytes).unwrap();
        let bad = scratch.path("bad.7z");
        for options in [&[][..], &["--force"]] {
            let mounted = Mounted::any(&scratch, &bad, options);
            let mut start = [0; 1000];
            fs::File::open(mounted.path("a")).unwrap().read_exact_at(&mut start, 0).unwrap();
            let damaged = fs::read(mounted.path("z"));
            assert!(damaged.is_err() || options == ["--force"], "{numbers}");
            for name in ["c", "a", "b"] {
                let twin = fs::read(scratch.path(format!("tree/{name}"))).unwrap();
                assert!(fs::read(mounted.path(name)).unwrap() == twin, "{numbers}, {options:?}: {name}");
            }
            mounted.unmount();
        }
        let ran = run(&scratch, ["check", bad.to_str().unwrap()]);
        assert!(
            ran.code == 5 && ran.text().contains("1 of 4 files is damaged"),
            "{numbers}: {} {}",
            ran.text(),
            ran.err
        );
    }
}

#[test]
fn a_file_in_a_solid_block_is_read_at_any_offset() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1000000 > tree/a; seq 2000000 > tree/b; seq 3000000 > tree/c; cd tree; 7z a -bd -bso0 ../s.7z .");
    let mounted = Mounted::new(&scratch, scratch.path("s.7z"), &[]);
    let mut buffer = vec![0; 5000];
    for name in ["c", "a", "b"] {
        let twin = fs::read(scratch.path(format!("tree/{name}"))).unwrap();
        let file = fs::File::open(mounted.path(name)).unwrap();
        for place in (0..twin.len() - 5000).step_by(twin.len() / 20).rev() {
            file.read_exact_at(&mut buffer, place as u64).unwrap();
            assert!(buffer == twin[place..place + 5000], "{name} at {place}");
        }
    }
    mounted.unmount();
}

#[test]
fn what_is_damaged_is_an_error_never_wrong_bytes() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; cd tree; for i in $(seq 9); do seq $i 30000 > $i; done; 7z a -bd -bso0 -ms=off ../a.7z .");
    let mut bytes = fs::read(scratch.path("a.7z")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(scratch.path("flipped.7z"), &bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("flipped.7z"), &[]);
    let mut wrong = 0;
    for number in 1..=9 {
        match fs::read(mounted.path(number.to_string())) {
            Ok(bytes) => assert!(bytes == fs::read(scratch.path(format!("tree/{number}"))).unwrap(), "{number}"),
            Err(_) => wrong += 1,
        }
    }
    assert_eq!(wrong, 1);
    mounted.unmount();
}

/// The cipher cannot tell a wrong password, and nothing is compressed that would: only the checksum does.
#[test]
fn a_wrong_password_never_gives_noise() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 18M /dev/urandom > large; printf small > small; printf 'wrong\nsecret\n' > words
         7z a -bd -bso0 -psecret -mx0 stored.7z large small; 7z a -bd -bso0 -psecret -mhe=on names.7z small",
    );
    let (path, words) = (scratch.path("stored.7z"), scratch.path("words"));
    let (path, words) = (path.to_str().unwrap(), words.to_str().unwrap());
    for name in ["large", "small"] {
        let right = fs::read(scratch.path(name)).unwrap();
        assert!(run(&scratch, ["cat", "--password-file", words, path, name]).ok().out == right, "{name}");
        let ran = run(&scratch, ["cat", "--password", "wrong", path, name]);
        assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("wrong password"), "{name}: {}", ran.err);
    }
    // What the password opens is not written beside the archive.
    let names = scratch.path("names.7z");
    let ran = run(&scratch, ["index", "--password", "secret", names.to_str().unwrap()]);
    assert!(ran.code != 0 && ran.err.contains("not be encrypted"), "{}", ran.err);
    assert!(!scratch.shell("ls").contains("sqlite"));
}

#[test]
fn a_long_file_in_a_damaged_block_is_an_error() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "head -c 17M /dev/urandom > a; head -c 17M /dev/urandom > b; 7z a -bd -bso0 -ms=on -m0=lzma2:d20 s.7z a b",
    );
    let mut bytes = fs::read(scratch.path("s.7z")).unwrap();
    let place = bytes.len() * 3 / 4;
    bytes[place] ^= 1;
    fs::write(scratch.path("s.7z"), bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("s.7z"), &[]);
    assert!(fs::read(mounted.path("a")).unwrap() == fs::read(scratch.path("a")).unwrap());
    assert!(fs::read(mounted.path("b")).is_err());
    mounted.unmount();
    let checked = run(&scratch, ["check".as_ref(), scratch.path("s.7z").as_os_str()]);
    assert!(checked.code == 5 && checked.text().contains("damaged: b: "), "{}", checked.text());
}

/// Each of the streams that BCJ2 puts together, and what is between them.
#[test]
fn a_damaged_stream_of_bcj2_is_an_error_never_wrong_bytes() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell("cp /bin/ls program; 7z a -bd -bso0 -mf=BCJ2 -mhc=off p.7z program");
    let (bytes, right) = (fs::read(scratch.path("p.7z")).unwrap(), fs::read(scratch.path("program")).unwrap());
    let path = scratch.path("flipped.7z");
    // The header is behind the streams, and has about a hundred bytes.
    let streams = 32..bytes.len() - 200;
    for place in streams.clone().step_by(streams.len() / 23) {
        let mut flipped = bytes.clone();
        flipped[place] ^= 0x20;
        fs::write(&path, flipped).unwrap();
        let ran = run(&scratch, ["cat", path.to_str().unwrap(), "program"]);
        assert!(ran.code != 0 || ran.out == right, "byte {place}");
        assert!(right.starts_with(&ran.out), "byte {place}: {} bytes", ran.out.len());
    }
}

/// What an index says of a chain and of several streams is read from it again.
#[test]
fn coders_with_several_streams_are_kept_in_an_index() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "cp /bin/ls program; seq 50000 > numbers; 7z a -bd -bso0 -mf=BCJ2 bcj2.7z program
         7z a -bd -bso0 -m0=lzma -m1=bzip2 twice.7z numbers",
    );
    for (archive, name) in [("bcj2.7z", "program"), ("twice.7z", "numbers")] {
        let path = scratch.path(archive);
        run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
        assert!(scratch.shell("ls").contains(&format!("{archive}.")), "an index");
        let read = run(&scratch, ["cat", "--no-recreate-index", path.to_str().unwrap(), name]);
        assert!(read.ok().out == fs::read(scratch.path(name)).unwrap(), "{archive}");
    }
}

/// One that opens a file is tried first with the others, which may have another one.
#[test]
fn files_of_one_archive_may_have_several_passwords() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1000 > one; seq 2000 > two; seq 3000 > three; printf 'first\\nsecond\\n' > words
         7z a -bd -bso0 -mx0 -ms=off -pfirst both.7z one; 7z a -bd -bso0 -mx0 -ms=off -psecond both.7z two
         7z a -bd -bso0 -mx0 -ms=off -pfirst both.7z three",
    );
    let (words, path) = (scratch.path("words"), scratch.path("both.7z"));
    let arguments = ["cat", "--password-file", words.to_str().unwrap(), path.to_str().unwrap(), "one", "two", "three"];
    let shown = run(&scratch, arguments).ok();
    assert_eq!(shown.text(), scratch.shell("cat one two three"));
}
