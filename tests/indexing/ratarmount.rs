//! The real ratarmount and tarnfs use each other's sidecars, in both directions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::gated::Gated;
use crate::peers::ratarmount;
use crate::support::{self, Compare, Mounted, Scratch, can_mount, have, make_tree, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const COMPRESSIONS: &[(&str, &str)] = &[
    ("", "cat"),
    (".gz", "gzip"),
    (".bz2", "bzip2 -1"),
    (".xz", "xz -0 --block-size=256KiB"),
    (".zst", "pzstd -q -c"),
];

/// What both show alike: ratarmount knows neither link counts nor exact times, device numbers or folders' sizes.
fn shared_view(root: &Path) -> Vec<String> {
    let seen = support::survey(root, Compare { whole_seconds: true, ..Compare::default() });
    seen.into_iter()
        .filter(|(_, seen)| matches!(seen.kind, "file" | "folder" | "symlink"))
        .map(|(path, seen)| {
            // It gives symbolic links no size.
            let size = if seen.kind == "symlink" { 0 } else { seen.size };
            let (mode, owner, target) = (seen.mode, seen.owner, seen.target);
            format!("{} {} {mode} {owner:?} {size} {target:?} {:x}", path.display(), seen.kind, seen.content)
        })
        .collect()
}

fn archive(scratch: &Scratch, suffix: &str, tool: &str) -> PathBuf {
    scratch.shell(&format!("tar --format=posix -C tree -c . | {tool} > a.tar{suffix}"));
    scratch.path(format!("a.tar{suffix}"))
}

/// A tree of what both programs can show.
fn plain_tree(scratch: &Scratch) {
    make_tree(scratch);
    scratch.shell("cd tree; rm -f null wide loop fifo new* b[^o]*r; seq 1 1000000 > many; mkdir few; for i in $(seq 1100); do echo $i > few/$i; done");
}

#[test]
fn its_sidecars_are_opened_as_they_are() {
    let Some(ratarmount) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    plain_tree(&scratch);
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        let archive = archive(&scratch, suffix, tool);
        let sidecar = scratch.path(format!("a.tar{suffix}.index.sqlite"));
        let status = Command::new(&ratarmount)
            .arg("--no-mount")
            .arg(&archive)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success() && sidecar.exists(), "{tool}");
        let before = fs::read(&sidecar).unwrap();
        // Nothing may be made anew, so what is shown comes from the sidecar.
        let foreign = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
        assert_eq!(shared_view(&foreign.at), shared_view(&own.at), "{tool}");
        foreign.unmount();
        own.unmount();
        assert!(before == fs::read(&sidecar).unwrap());
    }
}

#[test]
fn it_opens_ours_without_making_its_own() {
    let Some(ratarmount) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    plain_tree(&scratch);
    for (suffix, tool) in COMPRESSIONS.iter().filter(|(_, tool)| have(tool.split(' ').next().unwrap())) {
        let archive = archive(&scratch, suffix, tool);
        let sidecar = scratch.path(format!("a.tar{suffix}.index.sqlite"));
        run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
        let before = fs::read(&sidecar).unwrap();
        let at = scratch.folder(format!("theirs{suffix}"));
        let output =
            Command::new(&ratarmount).args(["--no-recreate-index", "-d", "3"]).arg(&archive).arg(&at).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&said));
        let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
        let (theirs, ours) = (shared_view(&at), shared_view(&own.at));
        Command::new("umount").arg(&at).status().unwrap();
        wait_until("it is unmounted", || !at.join("file").exists());
        let different: Vec<_> = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours).take(3).collect();
        assert!(theirs.len() == ours.len() && different.is_empty(), "{tool}: {different:#?}");
        own.unmount();
        assert!(before == fs::read(&sidecar).unwrap(), "{tool}: it was written again");
    }
}

#[test]
fn hard_links_and_older_versions_survive_the_way_through_its_schema() {
    let Some(_) = ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo one > tree/a; ln tree/a tree/b; for i in $(seq 1100); do echo $i > tree/f$i; done
         tar -C tree -cf a.tar .; echo two > tree/a; tar -C tree -rf a.tar a",
    );
    let archive = scratch.path("a.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let own = Mounted::new(&scratch, &archive, &["--index-file", ":memory:"]);
    let foreign = Mounted::new(
        &scratch,
        &archive,
        &["--no-recreate-index", "--index-file", scratch.path("a.tar.index.sqlite").to_str().unwrap()],
    );
    for mount in [&own, &foreign] {
        assert_eq!(fs::read(mount.path("a")).unwrap(), b"two\n");
        assert_eq!(fs::read(mount.path("b")).unwrap(), b"one\n");
    }
}

/// "What the format itself can check is checked before a byte is handed out": its tables have no checksums.
#[test]
fn an_archive_that_changed_under_a_sidecar_gives_no_wrong_byte() {
    use std::os::unix::fs::FileExt;
    if !can_mount() {
        return;
    }
    for (suffix, program, tool) in [
        (".xz", "xz", "xz -0 --block-size=1MiB"),
        (".zst", "zstd", "split -b 1M --filter='zstd -q -c' -"),
        (".bz2", "bzip2", "bzip2 -1"),
        (".gz", "gzip", "gzip -1"),
    ] {
        let scratch = Scratch::new();
        if !have(program) {
            continue;
        }
        scratch.shell("mkdir tree; head -c 6000000 /dev/urandom > tree/noise");
        let archive = archive(&scratch, suffix, tool);
        run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
        let file = fs::File::options().read(true).write(true).open(&archive).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3_000_077).unwrap();
        file.write_all_at(&[byte[0] ^ 0x5a], 3_000_077).unwrap();
        file.set_modified(time).unwrap();
        drop(file);
        let right = fs::read(scratch.path("tree/noise")).unwrap();
        let mounted = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        let noise = fs::File::open(mounted.at.join("noise")).unwrap();
        let mut failed = 0;
        for (number, expected) in right.chunks(64 << 10).enumerate() {
            let mut buffer = vec![0; expected.len()];
            match noise.read_exact_at(&mut buffer, (number as u64) << 16) {
                Ok(()) => assert!(buffer == expected, "{tool}: wrong bytes in piece {number}"),
                Err(_) => failed += 1,
            }
        }
        // gzip has one check for all of it.
        let most = if suffix == ".gz" { 92 } else { 80 };
        assert!((1..=most).contains(&failed), "{tool}: {failed} pieces of {} failed", right.len() >> 16);
        drop(noise);
        mounted.unmount();
    }
}

/// > A file whose header is not where a sidecar of ratarmount says cannot be read.
#[test]
fn an_archive_of_the_same_length_gives_no_bytes_of_other_files() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("for name in a b; do head -c 1000000 /dev/urandom > $name; done; tar -cf ab a b; tar -cf ba b a");
    let mut tried = 0;
    for (suffix, tool) in [(".zst", "zstd -q"), (".xz", "xz -0"), (".gz", "gzip -1"), (".bz2", "bzip2 -1")] {
        let archive = scratch.path(format!("x.tar{suffix}"));
        let path = archive.to_str().unwrap();
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!("{tool} < ab > {path}; touch -d 2024-01-01 {path}"));
        let before = fs::metadata(&archive).unwrap().len();
        run(&scratch, ["index", "--format=ratarmount", path]).ok();
        scratch.shell(&format!("{tool} < ba > {path}; touch -d 2024-01-01 {path}"));
        // A sidecar of another length is refused at once.
        if fs::metadata(&archive).unwrap().len() != before {
            continue;
        }
        tried += 1;
        let mounted = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
        for name in ["a", "b"] {
            assert!(fs::read(mounted.path(name)).is_err(), "{tool}: {name}");
            assert_ne!(run(&scratch, ["cat", "--no-recreate-index", path, name]).code, 0, "{tool}: {name}");
        }
        mounted.unmount();
    }
    assert!(tried > 0 || !have("zstd"));
}

/// The name of the process that makes an index while an archive is mounted.
const INDEXER: &str = "tarnfs-index";

/// Processes of that name that have `archive` open.
fn indexers_of(archive: &Path) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == INDEXER))
        .filter(|process| {
            let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            open.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|path| path == archive))
        })
        .filter_map(|process| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?))
        .collect()
}

const LOST: &str =
    "hard links count as files, times are rounded, access lists are missing, and modes of folders may differ";

/// > With a sidecar of ratarmount an archive is there at once, and the next mount shows all of it.
#[test]
fn a_sidecar_is_used_and_an_index_of_our_own_is_made_meanwhile() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree at; echo x > tree/a; ln tree/a tree/b; tar --format=posix -cf a.tar tree; touch {}",
        support::FILL_AT_ONCE
    ));
    let (archive, at) = (scratch.path("a.tar"), scratch.path("at"));
    let name = archive.to_str().unwrap();
    run(&scratch, ["index", "--format=ratarmount", name]).ok();
    let (sidecar, own) = (scratch.path("a.tar.index.sqlite"), scratch.path("a.tar.tarnfs.sqlite"));
    let kept = fs::read(&sidecar).unwrap();
    let mount = |options: &[&str]| {
        let ran = run(&scratch, options.iter().chain(&[name, at.to_str().unwrap()])).ok();
        let links = fs::metadata(at.join("tree/a")).unwrap().nlink();
        (ran.err, links)
    };
    let unmount = || {
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
        wait_until("nobody makes an index", || indexers_of(&archive).is_empty());
    };
    let told = |instead: &str| {
        format!("tarnfs: warning: {name}: ratarmount's index {} is used: {LOST}; {instead}\n", sidecar.display())
    };
    let by_hand = told("`tarnfs index` makes one that keeps all of it");

    // Where nothing may be made, nothing is.
    assert_eq!(mount(&["--no-recreate-index"]), (by_hand.clone(), 1));
    unmount();
    assert!(!own.exists());
    // Without a mount: what shows attributes says so.
    for words in [&["ls", name][..], &["stat", name, "tree/a"]] {
        assert_eq!(run(&scratch, words).ok().err, by_hand, "{words:?}");
    }
    assert_eq!(run(&scratch, ["cat", name, "tree/a"]).ok().err, "");
    assert!(!own.exists());

    let log = format!("--log-file={}", scratch.path("log").display());
    let (_, links) = mount(&["-d2", &log]);
    assert_eq!(links, 1);
    let logged = || fs::read_to_string(scratch.path("log")).unwrap();
    assert!(logged().contains("an index that keeps all of it is made meanwhile, for the next mount"), "{}", logged());
    wait_until("it is told", || logged().contains(&format!("the next mount uses the index {}", own.display())));
    unmount();
    // From now on that is used, and nothing is said.
    assert_eq!(mount(&[]), (String::new(), 2));
    unmount();
    assert_eq!(run(&scratch, ["ls", name]).ok().err, "");
    fs::remove_file(&own).unwrap();
    // `index` was asked for one.
    assert_eq!(run(&scratch, ["index", name]).ok().err, "");
    assert!(own.exists());
    assert!(fs::read(&sidecar).unwrap() == kept, "ratarmount's is left alone");
}

#[test]
fn who_makes_an_index_meanwhile_ends_with_the_mount() {
    if !can_mount() || !have("bzip2") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree at; head -c 40000000 /dev/urandom > tree/noise; tar -c tree | bzip2 -1 > a.tar.bz2; touch {}",
        support::FILL_AT_ONCE
    ));
    let (archive, at) = (scratch.path("a.tar.bz2"), scratch.path("at"));
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    run(&scratch, ["--cache-size=0".as_ref(), archive.as_os_str(), at.as_os_str()]).ok();
    let own = scratch.path("a.tar.bz2.tarnfs.sqlite");
    wait_until("it is at work", || !indexers_of(&archive).is_empty());
    for process in indexers_of(&archive) {
        let _ = kill_process(process, Signal::STOP);
    }
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    for process in indexers_of(&archive) {
        let _ = kill_process(process, Signal::CONT);
    }
    wait_until("it has ended", || indexers_of(&archive).is_empty());
    // All of it would have taken seconds.
    assert!(!own.exists(), "it has ended, not come to its end");
    let left: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!left.iter().any(|path| path.extension().is_some_and(|end| end == "tmp")), "{left:?}");
}

/// > Of several mounts of one archive with a sidecar of ratarmount, one makes the index.
#[test]
fn one_of_several_mounts_makes_the_index() {
    if !can_mount() || !have("bzip2") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree one two; head -c 40000000 /dev/urandom > tree/noise; tar -c tree | bzip2 -1 > a.tar.bz2; touch {}",
        support::FILL_AT_ONCE
    ));
    let archive = scratch.path("a.tar.bz2");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let own = scratch.path("a.tar.bz2.tarnfs.sqlite");
    let mount = |name: &str| {
        let log = format!("--log-file={}", scratch.path(format!("log-{name}")).display());
        let words = ["-d2", "--cache-size=0", &log, archive.to_str().unwrap()];
        run(&scratch, words.into_iter().chain([scratch.path(name).to_str().unwrap()])).ok();
    };
    let said = |name: &str, what: &str| fs::read_to_string(scratch.path(format!("log-{name}"))).unwrap().contains(what);
    mount("one");
    wait_until("it is at work", || !indexers_of(&archive).is_empty());
    let first = indexers_of(&archive);
    for process in &first {
        kill_process(*process, Signal::STOP).unwrap();
    }
    mount("two");
    wait_until("the other one waits", || said("two", "is waited for"));
    assert!(!own.exists() && indexers_of(&archive) == first, "one is at work");
    for process in &first {
        kill_process(*process, Signal::CONT).unwrap();
    }
    for name in ["one", "two"] {
        wait_until("it is told", || said(name, &format!("the next mount uses the index {}", own.display())));
        run(&scratch, ["-u".as_ref(), scratch.path(name).as_os_str()]).ok();
    }
}

#[test]
fn who_makes_an_index_meanwhile_does_not_look_below_the_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!("mkdir d; echo x > d/x; tar -cf d/a.tar -C d x; : > {}", support::FILL_AT_ONCE));
    let (folder, archive) = (scratch.path("d"), scratch.path("d/a.tar"));
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let log = scratch.path("log");
    let words = ["-d2", "--log-file", log.to_str().unwrap()];
    let paths = [folder.to_str().unwrap(), archive.to_str().unwrap(), folder.to_str().unwrap()];
    run(&scratch, words.iter().chain(&paths)).ok();
    wait_until("it is told", || fs::read_to_string(&log).unwrap().contains("the mount lies over it"));
    // Not busy.
    scratch.shell("umount d; [ ! -e d/a.tar.tarnfs.sqlite ]");
}

/// A gzip file that is not compressed at its start, and decodes to more than a reader waits for until it is verified.
const LARGE: &str = "
import struct, sys, tarfile, zlib
noise = bytes((n * 7919 >> 3) & 255 for n in range(1 << 20))
files = [(name, open(name, 'rb').read()) for name in sys.argv[1:]] or [('noise', noise)]
head = b''
for name, data in files + [('zeros', None)]:
    info = tarfile.TarInfo(name); info.size = 1150 << 20 if data is None else len(data)
    head += info.tobuf() + (data or b'') + bytes(-info.size % 512)
zeros = bytes(1 << 20)
crc, length = zlib.crc32(head), len(head)
with open('a.tar.gz', 'wb') as out:
    out.write(bytes([31, 139, 8, 0, 0, 0, 0, 0, 0, 3]))
    stored = zlib.compressobj(0, zlib.DEFLATED, -15)
    out.write(stored.compress(head) + stored.flush(zlib.Z_FULL_FLUSH))
    packed = zlib.compressobj(1, zlib.DEFLATED, -15)
    for _ in range(1151):
        out.write(packed.compress(zeros)); crc = zlib.crc32(zeros, crc); length += len(zeros)
    out.write(packed.flush(zlib.Z_FINISH) + struct.pack('<II', crc, length & 0xffffffff))
";

/// Changes a byte of `archive`, but not its time.
fn flip(archive: &Path, position: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().read(true).write(true).open(archive).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[!byte[0]], position).unwrap();
    file.set_modified(time).unwrap();
}

const WARNING: &str = "its index has no checksums";

#[test]
fn a_long_frame_behind_a_short_one_is_not_trusted() {
    use std::os::unix::fs::FileExt;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // The first frame ends inside the second file. Blocks of noise are not compressed.
    scratch.shell(
        "head -c 50000 /dev/urandom > first; head -c 1000000 /dev/urandom > second; truncate -s 1150M zeros
         tar c first second zeros > all; (head -c 100000 all | zstd -q; tail -c +100001 all | zstd -q -1) > a.tar.zst; rm all",
    );
    let archive = scratch.path("a.tar.zst");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    flip(&archive, 600_000);
    let log = scratch.path("log");
    let mounted = Mounted::new(&scratch, &archive, &["--no-recreate-index", &format!("--log-file={}", log.display())]);
    let is_said = |what: &str| fs::read_to_string(&log).unwrap().contains(what);
    assert!(is_said(WARNING), "{}", fs::read_to_string(&log).unwrap());
    let second = fs::File::open(mounted.path("second")).unwrap();
    let mut content = vec![0; 1_000_000];
    let _ = second.read_exact_at(&mut content, 0);
    wait_until("it is verified", || is_said("are damaged"));
    let again = second.read_exact_at(&mut content, 0);
    assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(second);
    assert_eq!(fs::read(mounted.path("second")).unwrap_err().raw_os_error(), Some(libc::EIO));
    mounted.unmount();
}

/// Each block is verified for itself, however many there are.
#[test]
fn a_stream_of_very_many_blocks_needs_no_proof_of_the_whole() {
    if !can_mount() || !have("xz") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import subprocess, tarfile
pack = lambda data: subprocess.run(['xz', '-0', '-c'], input=data, stdout=subprocess.PIPE, check=True).stdout
info = tarfile.TarInfo('zeros'); info.size = 70000 << 14
with open('a.tar.xz', 'wb') as out:
    out.write(pack(info.tobuf())); out.write(pack(bytes(1 << 14)) * 70000); out.write(pack(bytes(1024)))\"",
    );
    let archive = scratch.path("a.tar.xz");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let log = scratch.path("log");
    let to_log = format!("--log-file={}", log.display());
    let mounted = Mounted::new(&scratch, &archive, &["--no-recreate-index", &to_log]);
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains(WARNING), "{said}");
    mounted.unmount();
}

#[test]
fn an_archive_in_a_stream_that_is_not_verified_waits_for_that() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("large.py"), LARGE).unwrap();
    scratch.shell("head -c 1000000 /dev/urandom > file; tar cf inner.tar file; python3 large.py inner.tar");
    let archive = scratch.path("a.tar.gz");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    for is_wrong in [false, true] {
        if is_wrong {
            flip(&archive, 300_000);
        }
        // What the mount before may have made.
        scratch.shell("find . -name 'a.tar.gz.*' ! -name a.tar.gz.index.sqlite -delete");
        let log = scratch.path(format!("log-{is_wrong}"));
        let to_log = format!("--log-file={}", log.display());
        let mounted = Mounted::new(&scratch, &archive, &["-r", "--lazy", &to_log]);
        let read = fs::read(mounted.path("inner.tar/file"));
        let said = fs::read_to_string(&log).unwrap();
        if is_wrong {
            assert_eq!(read.map(|bytes| bytes.len()).unwrap_err().raw_os_error(), Some(libc::EIO), "{said}");
        } else {
            assert!(read.unwrap() == fs::read(scratch.path("file")).unwrap(), "{said}");
        }
        // The archive inside has an index of ours.
        assert_eq!(said.matches(WARNING).count(), 1, "{said}");
        mounted.unmount();
    }
}

/// > Archives in a stream that is not verified yet wait for that as long as it gets on, and hold up no others.
#[test]
fn archives_that_are_not_verified_hold_up_no_others() {
    // More than are opened at a time, and more than one tree may have waiting.
    const MANY: usize = 100;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("large.py"), LARGE).unwrap();
    scratch.shell(&format!(
        "head -c 1000 /dev/urandom > file; tar cf one.tar file; mkdir in; for i in $(seq {MANY}); do cp one.tar in/$i.tar; done
         python3 large.py in/*.tar; mkdir other; cp one.tar other/other.tar; tar cf b.tar other"
    ));
    let gated = Gated::new(&scratch, "a.tar.gz", "gated");
    let archive = scratch.path("gated/a.tar.gz");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let at = scratch.folder("at");
    let log = scratch.path("log");
    let to_log = format!("--log-file={}", log.display());
    let mut words = vec!["-r", "--lazy", "-d2", &to_log];
    let b = scratch.path("b.tar");
    run(&scratch, ["index".as_ref(), b.as_os_str()]).ok();
    words.extend([archive.to_str().unwrap(), b.to_str().unwrap(), at.to_str().unwrap()]);
    run(&scratch, words).ok();
    let expected = fs::read(scratch.path("file")).unwrap();
    // What comes out of it at its start is there, the rest is not.
    gated.close();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (1..=MANY)
            .map(|number| {
                let path = at.join(format!("in/{number}.tar/file"));
                scope.spawn(move || fs::read(path))
            })
            .collect();
        gated.until_waited_for();
        wait_until("all wait", || support::statistics(&at)["in_flight"].as_u64().unwrap() >= MANY as u64);
        let opened = fs::read(at.join("other/other.tar/file"));
        gated.open();
        let said = || fs::read_to_string(&log).unwrap();
        assert!(opened.unwrap_or_else(|error| panic!("{error}: {}", said())) == expected);
        for read in waiting {
            assert!(read.join().unwrap().unwrap_or_else(|error| panic!("{error}: {}", said())) == expected);
        }
    });
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
}

/// > What was read before it could be verified is not kept by the kernel, but for what is mapped into memory.
#[test]
fn wrong_bytes_are_an_error_as_soon_as_they_are_known() {
    use std::os::unix::fs::FileExt;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("large.py"), LARGE).unwrap();
    scratch.shell("python3 large.py");
    let archive = scratch.path("a.tar.gz");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    // In a stored block: only the check at the end of it all sees this.
    flip(&archive, 300_000);
    for options in [&[][..], &["--control-interface"]] {
        let log = scratch.path(format!("log-{}", options.len()));
        let to_log = format!("--log-file={}", log.display());
        let mounted = Mounted::new(&scratch, &archive, &[options, &["--no-recreate-index", &to_log]].concat());
        let path = mounted.path("noise");
        let early = fs::File::open(&path).unwrap();
        // Nothing has been read yet, so it is not verified.
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let release: Vec<u32> = release.split('.').take(2).filter_map(|number| number.parse().ok()).collect();
        if release >= vec![6, 6] {
            let map =
                "import mmap, sys; file = open(sys.argv[1], 'rb'); mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)";
            assert!(Command::new("python3").args(["-c", map]).arg(&path).status().unwrap().success());
        }
        let mut content = vec![0; 1 << 20];
        let first = early.read_exact_at(&mut content, 0);
        wait_until("it is verified", || fs::read_to_string(&log).unwrap().contains("are damaged"));
        if first.is_err() {
            println!("{options:?}: all was verified before the first byte was read, on a busy machine");
        }
        let again = early.read_exact_at(&mut content[..4096], 0);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EIO), "{options:?}: who has it open");
        let late = fs::read(&path);
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::EIO), "{options:?}");
        drop(early);
        mounted.unmount();
    }
}

/// A sidecar that computes what it says: one search in a long text takes seconds, and nothing can end it.
#[test]
fn a_sidecar_that_computes_is_not_used() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    member = tarfile.TarInfo('f'); member.pax_headers = {'SCHILY.xattr.user.a': 'right'}
    tar.addfile(member)
E",
    );
    let archive = scratch.path("a.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    scratch.shell(
        r#"python3 - <<'E'
import sqlite3
sidecar = sqlite3.connect('a.tar.index.sqlite')
rows = sidecar.execute('SELECT offsetheader, keyid, value FROM xattrsdata').fetchall()
long = "replace(hex(zeroblob(490000)), '0', 'a')"
short = "(replace(hex(zeroblob(245000)), '0', 'a') || 'b')"
searches = f' || instr({long}, {short})' * 20
sidecar.execute('DROP VIEW xattrs')
sidecar.execute('DROP TABLE xattrsdata')
table = 'CREATE TABLE xattrsdata (offsetheader INTEGER, keyid INTEGER, own BLOB, value AS (%s), PRIMARY KEY (offsetheader, keyid))'
sidecar.execute(table % 'own')
sidecar.executemany('INSERT INTO xattrsdata (offsetheader, keyid, own) VALUES (?, ?, ?)', rows)
sidecar.execute('PRAGMA writable_schema = ON')
# Not before: whatever is inserted is computed.
sidecar.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'xattrsdata'", (table % f'own{searches}',))
sidecar.commit()
E"#,
    );
    let ran = run(&scratch, ["stat".as_ref(), "--json".as_ref(), archive.as_os_str(), "f".as_ref()]).ok();
    assert!(ran.err.contains("generated columns"), "{}", ran.err);
    assert!(ran.text().contains("user.a"), "{}", ran.text());
}

/// An archive of 2001 small files, one block each behind its header, and its sidecar.
fn small_files(scratch: &Scratch) -> PathBuf {
    scratch.shell("for i in $(seq 0 2000); do printf '%04d' $i > f$i; done; seq -f f%g 0 2000 | tar cf g.tar -T -");
    let archive = scratch.path("g.tar");
    run(scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    archive
}

/// Bytes of one of these files and its header.
const MEMBER: usize = 1024;

/// What is appended may fit into the zeros at the end, so that the archive is as long as before.
#[test]
fn what_was_appended_before_the_end_of_the_padding_is_seen() {
    let scratch = Scratch::new();
    scratch.shell("mkdir d; (cd d; seq 1 1500 | xargs touch); echo new > new; tar cf g.tar d");
    let archive = scratch.path("g.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let before = fs::metadata(&archive).unwrap();
    scratch.shell("tar rf g.tar new");
    assert_eq!(fs::metadata(&archive).unwrap().len(), before.len());
    // Also where the time says nothing.
    fs::File::options().write(true).open(&archive).unwrap().set_modified(before.modified().unwrap()).unwrap();
    let ran = run(&scratch, ["cat".as_ref(), archive.as_os_str(), "new".as_ref()]).ok();
    assert_eq!(ran.text(), "new\n", "{}", ran.err);
    assert!(ran.err.contains("there is more than it says"), "{}", ran.err);
}

/// Where two entries have changed places, no file has the bytes of the other one.
#[test]
fn what_a_sidecar_says_of_a_file_is_compared_with_its_header() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small_files(&scratch);
    scratch.shell(&format!("touch {}", support::FILL_AT_ONCE));
    let mut bytes = fs::read(&archive).unwrap();
    let (first, second) = bytes[1700 * MEMBER..1702 * MEMBER].split_at_mut(MEMBER);
    first.swap_with_slice(second);
    fs::write(&archive, bytes).unwrap();
    let cat = |what: &str| run(&scratch, ["cat".as_ref(), archive.as_os_str(), what.as_ref()]);
    for changed in ["f1700", "f1701"] {
        let ran = cat(changed);
        assert!(ran.code != 0 && ran.out.is_empty(), "{}: {}", ran.text(), ran.err);
        assert!(ran.err.contains("was changed, or copied") && ran.err.contains("no longer the header"), "{}", ran.err);
    }
    assert_eq!(cat("f1702").ok().text(), "1702");
    let ran = run(&scratch, ["check".as_ref(), archive.as_os_str()]);
    assert_eq!(ran.code, 7, "{}{}", ran.text(), ran.err);
    assert!(ran.text().contains("f1700 has another place"), "{}", ran.text());

    // While it is mounted an index of all of it is made, which shows that.
    let said = scratch.path("said");
    let option = format!("--log-file={}", said.display());
    let mounted = Mounted::new(&scratch, &archive, &[&option]);
    let stale = fs::read(mounted.path("f1700")).unwrap_err();
    assert_eq!(stale.raw_os_error(), Some(libc::ESTALE), "{stale}");
    assert_eq!(fs::read(mounted.path("f5")).unwrap(), b"0005");
    wait_until("it is told", || fs::read_to_string(&said).unwrap().contains("mount again"));
    mounted.unmount();
    let again = Mounted::new(&scratch, &archive, &[]);
    assert_eq!(fs::read(again.path("f1700")).unwrap(), b"1700");
    again.unmount();
}

/// A sidecar does not say what is damaged: that is found while the archive is mounted, and said.
#[test]
fn an_archive_that_is_damaged_behind_its_sidecar_gets_an_index_that_says_so() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small_files(&scratch);
    scratch.shell(&format!("touch {}", support::FILL_AT_ONCE));
    let time = fs::metadata(&archive).unwrap().modified().unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    bytes[1700 * MEMBER..][..512].fill(b'x');
    fs::write(&archive, bytes).unwrap();
    fs::File::options().write(true).open(&archive).unwrap().set_modified(time).unwrap();
    let said = scratch.path("said");
    let option = format!("--log-file={}", said.display());
    let mounted = Mounted::new(&scratch, &archive, &[&option]);
    let told = || fs::read_to_string(&said).unwrap();
    wait_until("it is told", || told().contains("the next mount uses the index"));
    assert!(told().contains("mount again") || told().contains("damaged in one place"), "{}", told());
    mounted.unmount();
    assert!(scratch.path("g.tar.tarnfs.sqlite").exists());
    let again = Mounted::any(&scratch, &archive, &[]);
    assert_eq!(again.ran.code, 5, "{}", again.ran.err);
    again.unmount();
}

/// A sidecar of the kind that ratarmount makes of zip archives is none of ours; nothing need be said of it.
#[test]
fn sidecars_that_cannot_be_used_are_spoken_of_once() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; echo a > t/a; tar cf src.zip.tar t; tar cf inner.tar t; tar cf outer.tar inner.tar
         python3 -c \"import zipfile; zipfile.ZipFile('src.zip', 'w').write('t/a')\"",
    );
    let [zip, tar, outer] = ["src.zip", "src.zip.tar", "outer.tar"].map(|name| scratch.path(name));
    let lines = |err: &str| err.lines().count();
    let ran = run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), zip.as_os_str()]);
    assert_eq!((ran.code, lines(&ran.err)), (7, 1), "{}", ran.err);
    assert_eq!(ran.err.matches("ratarmount has no index").count(), 1, "{}", ran.err);
    for archive in [&tar, &outer] {
        run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    }
    scratch.shell(
        r#"mv src.zip.tar.index.sqlite src.zip.index.sqlite
         python3 - <<'E'
import sqlite3
for name, change in [('src.zip', "UPDATE metadata SET value = 'ZipMountSource' WHERE key = 'backendName'"),
                     ('outer.tar', "UPDATE files SET istar = 1 WHERE name = 'inner.tar'"),
                     ('outer.tar', "UPDATE metadata SET value = replace(value, '\"mountRecursively\":false', '\"mountRecursively\":true')")]:
    with sqlite3.connect(name + '.index.sqlite') as sidecar:
        sidecar.execute(change)
E"#,
    );
    let ls = |options: &[&str], archive: &Path| {
        let words = [&["ls"], options, &[archive.to_str().unwrap()]].concat();
        run(&scratch, words).ok().err
    };
    assert_eq!(ls(&[], &zip), "");
    let named = format!("--index-file={}", scratch.path("src.zip.index.sqlite").display());
    let said = ls(&[&named], &zip);
    assert_eq!(lines(&said), 1, "{said}");
    let said = ls(&[], &outer);
    assert!(lines(&said) == 1 && said.contains("it was made with --recursive"), "{said}");
    // A sidecar that is named is looked at as what it is.
    let own = scratch.path("src.zip.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), own.as_os_str()]).ok();
    let named = format!("--index-file={}", scratch.path("src.zip.tar.index.sqlite").display());
    let said = ls(&[&named], &own);
    assert!(lines(&said) == 1 && said.contains("is used"), "{said}");
}

/// A time is a number with a fraction there, which has no room for all that a tar may have.
#[test]
fn a_time_that_the_sidecar_cannot_say_hides_no_file() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
with tarfile.open('late.tar', 'w', format=tarfile.GNU_FORMAT) as tar:
    for number in range(1000):
        entry = tarfile.TarInfo(f'f{number:03}')
        entry.mtime = {37: 2 ** 62, 80: -2 ** 62}.get(number, 0)
        tar.addfile(entry)
E",
    );
    let archive = scratch.path("late.tar");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), archive.as_os_str()]).ok();
    let listed = run(&scratch, ["ls".as_ref(), archive.as_os_str()]).ok();
    assert_eq!(listed.text().lines().count(), 1000, "{}", listed.text());
}

/// A sidecar says with which options it was made, so that a call without them does not take it for its own.
#[test]
fn sidecars_say_how_paths_were_changed() {
    let scratch = Scratch::new();
    scratch.shell("mkdir p; for n in a b c; do echo $n > p/$n.txt; done; tar -czf p.tar.gz p");
    let at = |words: &[&str]| {
        support::Ran::from(support::tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap())
    };
    at(&["index", "--format", "ratarmount", "--hashes", "md5", "--transform", "a.txt", "B.txt", "p.tar.gz"]).ok();
    let ran = at(&["ls", "p.tar.gz", "p"]);
    assert_eq!(String::from_utf8_lossy(&ran.out), "a.txt\nb.txt\nc.txt\n");
    assert!(ran.err.contains("paths were rewritten with --transform"), "{}", ran.err);
    let sidecar = fs::read(scratch.path("p.tar.gz.index.sqlite")).unwrap();
    for part in [r#""transformPattern":["a.txt","B.txt"]"#, r#""hashes":["md5"]"#] {
        assert!(sidecar.windows(part.len()).any(|bytes| bytes == part.as_bytes()), "{part}");
    }
}

/// What lies in a compressed image is no single file.
#[test]
fn there_is_no_index_of_what_lies_in_a_compressed_directory() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("seq 9 > a; zip -q -0 one.zip a; seq 99 > b; zip -q two.zip a b; gzip -k one.zip two.zip");
    for archive in ["one.zip.gz", "two.zip.gz"] {
        let path = scratch.path(archive);
        let made = run(&scratch, ["index", "--format=ratarmount", path.to_str().unwrap()]);
        assert!(made.code != 0 && made.err.contains("ratarmount has no"), "{archive}: {}", made.err);
        assert!(!scratch.path(format!("{archive}.index.sqlite")).exists(), "{archive}");
        assert_eq!(run(&scratch, ["cat", path.to_str().unwrap(), "a"]).ok().text().lines().count(), 9);
    }
}
