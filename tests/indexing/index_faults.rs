//! Whatever happens while an index is written: the process is killed, the power fails, the disk is full or broken.
//! There is a whole index under its name or none, and the tree is right.
//!
//! With `TARNFS_FULL=1` every system call is taken instead of a part of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::strace::{self, Call, calls, have_strace};
use crate::support::{self, Scratch, is_root, run, tarnfs};

const INDEX: &str = "a.tar.tarnfs.sqlite";

fn is_full() -> bool {
    std::env::var_os("TARNFS_FULL").is_some()
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// An archive `a.tar` of `count` entries, with names of its own for folders, links and attributes.
fn archive(scratch: &Scratch, count: u32) -> PathBuf {
    scratch.shell(&format!(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    for i in range({count}):
        member = tarfile.TarInfo(f'folder{{i % 10}}/file{{i}}')
        if i % 10 == 3:
            member.type, member.linkname = tarfile.SYMTYPE, f'file{{i - 1}}'
        if i % 10 == 4:
            member.type, member.linkname = tarfile.LNKTYPE, f'folder{{(i - 2) % 10}}/file{{i - 2}}'
        if i % 10 == 5:
            member.pax_headers = {{'SCHILY.xattr.user.a': str(i)}}
        tar.addfile(member)
E"
    ));
    scratch.path("a.tar")
}

/// The names in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// True for the name of an index that is being written.
fn is_temporary(name: &str) -> bool {
    name.as_bytes().ends_with(b".tmp")
}

/// What `ls -lR` shows without an index.
fn expected_tree(scratch: &Scratch) -> Vec<u8> {
    let arguments = ["ls", "-lR", "--index-file=:memory:", scratch.path("a.tar").to_str().unwrap()].map(str::to_owned);
    run(scratch, arguments).ok().out
}

fn tree(scratch: &Scratch) -> Vec<u8> {
    run(scratch, ["ls".as_ref(), "-lR".as_ref(), scratch.path("a.tar").as_os_str()]).ok().out
}

/// The bytes of a good index, which is removed again. SQLite finds nothing wrong with it.
fn fresh_index(scratch: &Scratch) -> Vec<u8> {
    let path = scratch.path(INDEX);
    run(scratch, ["index".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    let found: String =
        rusqlite::Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(path).unwrap();
    bytes
}

/// The number of the first call that has to do with the index.
fn first_of_index(calls: &[Call]) -> usize {
    calls.iter().position(|call| call.rest.contains(".tarnfs.sqlite")).unwrap()
}

/// False for what threads call more or less often, as they wait for each other or not.
fn is_certain(call: &str) -> bool {
    !["brk", "futex", "madvise", "mmap", "mprotect", "munmap", "sched_yield"].contains(&call)
}

/// The archive has 100 entries; the process is killed when it makes its first call, its second, and so on to the last.
/// > A killed or failed writer leaves a whole index or none, and the next mount works.
#[test]
fn killed_at_any_system_call_it_leaves_a_whole_index_or_none() {
    if !have_strace() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 100);
    let expected = expected_tree(&scratch);
    let fresh = fresh_index(&scratch);
    let index = scratch.path(INDEX);
    let (ran, all) = calls(&scratch, &[], &["index", "a.tar"]);
    ran.ok();
    fs::remove_file(&index).unwrap();
    let first = if is_full() { 0 } else { first_of_index(&all) };
    let moments: BTreeSet<(String, u32)> =
        all[first..].iter().map(|call| (call.name.clone(), call.number)).filter(|(name, _)| name != "execve").collect();
    let (mut killed, mut whole, mut left_over) = (0, 0, 0);
    for (name, number) in &moments {
        let inject = format!("inject={name}:signal=KILL:when={number}");
        let ran = strace::run(&scratch, &["-e", &format!("trace={name}"), "-e", &inject], &["index", "a.tar"]);
        killed += u32::from(ran.code != 0 && is_certain(name));
        let found = names(&scratch.path(""));
        if found.contains(INDEX) {
            assert!(fs::read(&index).unwrap() == fresh, "{name} {number}: another index than a fresh one");
            whole += 1;
        }
        left_over += u32::from(found.iter().any(|name| is_temporary(name)));
        if left_over > 0 || found.contains(INDEX) {
            // The next one is right, removes what the dead one has left, and leaves the same index.
            assert!(tree(&scratch) == expected, "{name} {number}");
            let _ = fs::remove_file(&index);
            run(&scratch, ["index".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
            assert!(fs::read(&index).unwrap() == fresh, "{name} {number}: another index after it");
            assert_eq!(names(&scratch.path("")), set(["a.tar", INDEX]), "{name} {number}");
            fs::remove_file(&index).unwrap();
        }
    }
    println!("{} moments, killed at {killed}: {whole} whole indexes, {left_over} left-overs", moments.len());
    let certain = moments.iter().filter(|(name, _)| is_certain(name)).count();
    assert!(killed as usize * 10 > certain * 9, "strace kills: {killed} of {certain}");
    assert!(whole > 0 && left_over > 20, "{whole} {left_over}");
}

#[test]
fn killed_at_a_random_moment_it_leaves_a_whole_index_or_none() {
    let scratch = Scratch::new();
    archive(&scratch, 20_000);
    let (expected, fresh) = (expected_tree(&scratch), fresh_index(&scratch));
    let index = scratch.path(INDEX);
    let start = std::time::Instant::now();
    run(&scratch, ["index".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    let whole_run = start.elapsed();
    let mut random = Random(5);
    let (mut killed, mut whole) = (0, 0);
    for round in 0..50 {
        let _ = fs::remove_file(&index);
        let mut child = tarnfs(&scratch).arg("index").arg(scratch.path("a.tar")).stderr(Stdio::null()).spawn().unwrap();
        // The first one at once, so that one at least is killed whatever the machine does meanwhile.
        if round > 0 {
            std::thread::sleep(whole_run.mul_f64(random.below(1200) as f64 / 1000.0));
        }
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        if index.exists() {
            assert!(fs::read(&index).unwrap() == fresh);
            whole += 1;
        }
    }
    println!("killed {killed} of 50, {whole} whole indexes");
    assert!(killed > 0);
    assert!(tree(&scratch) == expected && fs::read(&index).unwrap() == fresh);
    assert_eq!(names(&scratch.path("")), set(["a.tar", INDEX]), "left-overs are removed");
}

/// What is done to the file of an index until it has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Write(usize, Vec<u8>),
    Cut(usize),
    SyncFile,
    Rename,
    SyncFolder,
}

/// The bytes of a string as strace prints it with `-xx`.
fn unescaped(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|hex| u8::from_str_radix(&hex[..2], 16).unwrap()).collect()
}

/// Indexes `a.tar`, and says what was done to the index's file, in order.
fn steps(scratch: &Scratch) -> Vec<Step> {
    let traced = "trace=pwrite64,write,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,sync_file_range";
    let (ran, calls) = calls(scratch, &["-xx", "-s", "1000000", "-e", traced], &["index", "a.tar"]);
    ran.ok();
    let plain = |text: &str| String::from_utf8_lossy(&unescaped(text)).into_owned();
    let mut steps = Vec::new();
    for Call { name, rest, .. } in calls {
        // The path of a file descriptor, which -xx escapes as well.
        let file = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
        let file = if file.contains("\\x") { plain(file) } else { file.to_owned() };
        let is_ours = file.contains(".tarnfs.sqlite");
        let strings: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
        let numbers = || {
            let behind = rest.rsplit_once('"').map_or(rest.as_str(), |(_, behind)| behind);
            let behind = behind.split([')', '<']).next().unwrap();
            behind.split(',').filter_map(|number| number.trim().parse::<usize>().ok()).collect::<Vec<_>>()
        };
        match name.as_str() {
            "pwrite64" if is_ours => {
                let bytes = unescaped(strings[0]);
                let [length, at] = numbers()[..] else { panic!("{rest}") };
                assert_eq!(bytes.len(), length);
                steps.push(Step::Write(at, bytes));
            }
            "ftruncate" if is_ours => steps.push(Step::Cut(numbers()[0])),
            "fsync" | "fdatasync" if is_ours => steps.push(Step::SyncFile),
            "fsync" if Path::new(&file) == scratch.path("").canonicalize().unwrap() => steps.push(Step::SyncFolder),
            "rename" => {
                assert!(is_temporary(&plain(strings[0])) && plain(strings[1]).ends_with(INDEX), "{strings:?}");
                steps.push(Step::Rename);
            }
            "write" if !is_ours => {}
            "fsync" => {}
            _ => panic!("{name} {rest}"),
        }
    }
    steps
}

/// What may be on the disk after a power cut behind the first `done` steps: of what was not synced, some sectors have
/// got there and others have not, in any order, and a rename may have come before all of it. `None` if there is no
/// index.
fn after_a_power_cut(steps: &[Step], done: usize, random: &mut Random) -> Option<Vec<u8>> {
    const SECTOR: usize = 512;
    let steps = &steps[..done];
    let renamed = steps.iter().position(|step| *step == Step::Rename)?;
    // Without a sync of its folder the new name may be there or not.
    if !steps[renamed..].contains(&Step::SyncFolder) && random.below(2) == 0 {
        return None;
    }
    let synced = steps.iter().rposition(|step| *step == Step::SyncFile).unwrap_or(0);
    let mut file = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write(at, bytes) => {
                for (sector, part) in bytes.chunks(SECTOR).enumerate() {
                    let at = at + sector * SECTOR;
                    if number < synced || random.below(2) == 0 {
                        file.resize(file.len().max(at + part.len()), 0);
                        file[at..at + part.len()].copy_from_slice(part);
                    }
                }
            }
            Step::Cut(length) if number < synced || random.below(2) == 0 => file.resize(*length, 0),
            _ => {}
        }
    }
    Some(file)
}

/// How many of the states after power cuts at every step have an index that is not `whole`.
fn wrong_after_power_cuts(steps: &[Step], whole: &[u8]) -> usize {
    let mut random = Random(11);
    let rounds = 20;
    (0..=steps.len())
        .flat_map(|done| (0..rounds).map(move |_| done))
        .filter_map(|done| after_a_power_cut(steps, done, &mut random))
        .filter(|file| file != whole)
        .count()
}

#[test]
fn the_index_is_on_the_disk_before_it_has_its_name() {
    if !have_strace() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 1000);
    let steps = steps(&scratch);
    let whole = fs::read(scratch.path(INDEX)).unwrap();
    let order: Vec<&Step> = steps.iter().skip_while(|step| matches!(step, Step::Write(..) | Step::Cut(_))).collect();
    assert_eq!(order, [&Step::SyncFile, &Step::Rename, &Step::SyncFolder]);
    assert!(steps.len() > 10);

    assert_eq!(wrong_after_power_cuts(&steps, &whole), 0);
    // The simulation finds what it is made for: a missing sync, one that comes too late, a write that comes too late.
    let without: Vec<Step> = steps.iter().filter(|step| **step != Step::SyncFile).cloned().collect();
    assert!(wrong_after_power_cuts(&without, &whole) > 0);
    let mut late = without.clone();
    late.push(Step::SyncFile);
    assert!(wrong_after_power_cuts(&late, &whole) > 0);
    let mut moved = steps.clone();
    let write = moved.remove(3);
    moved.push(write);
    assert!(wrong_after_power_cuts(&moved, &whole) > 0);
}

/// Calls by which an index is written, and that can fail.
const WRITING: &[&str] = &[
    "open",
    "openat",
    "pwrite64",
    "fsync",
    "rename",
    "ftruncate",
    "flock",
    "mkdir",
    "getdents64",
    "unlink",
    "newfstatat",
];

/// > The archive is mounted even if there is no space for an index, or no right to write one.
#[test]
fn whatever_fails_while_it_is_written_the_tree_is_right() {
    if !have_strace() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 1000);
    let (expected, fresh) = (expected_tree(&scratch), fresh_index(&scratch));
    let arguments = ["ls", "-lR", "a.tar"];
    let (ran, all) = calls(&scratch, &[], &arguments);
    assert!(ran.ok().out == expected);
    let clean = || {
        let _ = (fs::remove_file(scratch.path(INDEX)), fs::remove_dir_all(scratch.path("cache")));
    };
    clean();
    let first = first_of_index(&all);
    let calls: BTreeSet<(&str, u32)> = all[first..]
        .iter()
        .filter(|call| WRITING.contains(&call.name.as_str()))
        .map(|call| (call.name.as_str(), call.number))
        .collect();
    let errors: &[&str] = if is_full() { &["EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES"] } else { &["ENOSPC"] };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut random = Random(2);
    for &(name, number) in &calls {
        for error in errors {
            for for_ever in ["", "+"] {
                // Each page is written alike: of these a few.
                if name == "pwrite64" && !is_full() && number > 3 && random.below(8) != 0 {
                    continue;
                }
                let what = format!("{name} {number}{for_ever} {error}");
                let inject = format!("inject={name}:error={error}:when={number}{for_ever}");
                let ran = strace::run(&scratch, &["-e", &format!("trace={name}"), "-e", &inject], &arguments);
                let ran = ran.ok();
                assert!(ran.out == expected, "{what}: another tree");
                // That an old one could not be opened is told, too.
                let warnings = ran.err.lines().filter(|line| line.contains("could not be written")).count();
                assert!(warnings <= 1, "{what}: {}", ran.err);
                let mut place = "memory";
                for (folder, name) in [("", "beside"), ("cache/tarnfs", "cache")] {
                    for file in names(&scratch.path(folder)) {
                        let path = scratch.path(folder).join(&file);
                        if file.ends_with(".tarnfs.sqlite") {
                            assert!(fs::read(&path).unwrap() == fresh, "{what}: another index in {folder}");
                            place = name;
                        } else if what.starts_with("unlink") {
                            assert!(is_temporary(&file) || file == "a.tar" || file == "cache", "{what}: {file}");
                            let _ = fs::remove_file(path);
                            fs::write(scratch.path("a.tar.kept"), "").unwrap();
                        } else {
                            assert!(
                                ["a.tar", "a.tar.kept", "cache"].contains(&file.as_str()),
                                "{what}: {file} is left"
                            );
                        }
                    }
                }
                assert!(place != "memory" || warnings == 1, "{what}: nobody was told: {}", ran.err);
                *seen.entry(place).or_default() += 1;
                clean();
            }
        }
    }
    println!("{} calls: {seen:?}", calls.len());
    assert!(["beside", "cache", "memory"].iter().all(|place| seen.contains_key(place)), "{seen:?}");
}

#[test]
fn a_disk_of_any_size_gives_a_right_tree() {
    if !is_root() {
        println!("left out: needs root");
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 1000);
    let (expected, fresh) = (expected_tree(&scratch), fresh_index(&scratch));
    scratch.shell("mkdir small");
    let small = scratch.path("small");
    let pages = fresh.len() / 4096;
    let (mut written, mut refused) = (0, 0);
    for step in 0..20 {
        let size = 4096 * (1 + (pages + 2) * step / 19);
        scratch.shell(&format!("mount -t tmpfs -o size={size} none small"));
        let folders = format!("--index-folders={}", small.display());
        let ran = run(&scratch, ["ls".as_ref(), "-lR".as_ref(), folders.as_ref(), scratch.path("a.tar").as_os_str()]);
        let found: Vec<Vec<u8>> = names(&small).iter().map(|name| fs::read(small.join(name)).unwrap()).collect();
        scratch.shell("umount small");
        let ran = ran.ok();
        assert!(ran.out == expected, "{size} bytes");
        let warnings = ran.err.lines().filter(|line| line.contains("warning")).count();
        match &found[..] {
            [] => {
                assert_eq!(warnings, 1, "{size} bytes: {}", ran.err);
                assert_eq!(written, 0, "{size} bytes were too few, and less was not");
                refused += 1;
            }
            [index] => {
                assert!(*index == fresh && warnings == 0, "{size} bytes: {}", ran.err);
                written += 1;
            }
            more => panic!("{size} bytes: {} files", more.len()),
        }
    }
    println!("{written} of 20 sizes had room for an index of {} bytes", fresh.len());
    assert!(written > 0 && refused > 0);
}

#[test]
fn a_limit_on_the_size_of_files_gives_a_right_tree() {
    let scratch = Scratch::new();
    archive(&scratch, 1000);
    let (expected, fresh) = (expected_tree(&scratch), fresh_index(&scratch));
    let steps = 8;
    for step in 0..=steps {
        let kib = fresh.len() / 1024 * step / steps;
        let output = Command::new("bash")
            .args(["-c", &format!("ulimit -f {kib}; exec \"$0\" ls -lR a.tar"), env!("CARGO_BIN_EXE_tarnfs")])
            .current_dir(scratch.path(""))
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{kib} KiB: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == expected, "{kib} KiB");
        let mut found = names(&scratch.path(""));
        found.remove("cache");
        let is_whole = step == steps;
        assert_eq!(found, if is_whole { set(["a.tar", INDEX]) } else { set(["a.tar"]) }, "{kib} KiB");
        assert_eq!(names(&scratch.path("cache/tarnfs")), BTreeSet::new(), "{kib} KiB");
    }
    assert!(fs::read(scratch.path(INDEX)).unwrap() == fresh);
}

/// What a server refuses says nothing about an archive in an archive: no index says that it is a file.
#[test]
fn a_refused_read_makes_no_file_of_an_archive() {
    if !have_strace() || !support::have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("seq 100 > f; tar cf in.tar f; tar czf b.tar.gz f; zip -q0 x.zip in.tar b.tar.gz f");
    let names = |ran: &support::Ran| ran.text().lines().map(str::to_owned).collect::<Vec<_>>();
    let find = ["find", "-r", "--index-file", "i.sqlite", "x.zip"];
    let index = ["index", "-c", "-r", "--index-file", "i.sqlite", "x.zip"];
    strace::run(&scratch, &["-e", "trace=none"], &index).ok();
    let whole = names(&strace::run(&scratch, &["-e", "trace=none"], &find));
    assert!(whole.len() >= 5, "{whole:?}");
    for error in ["EACCES", "EOPNOTSUPP"] {
        for number in 1..=24 {
            let inject = format!("inject=pread64:error={error}:when={number}");
            let ran = strace::run(&scratch, &["-P", "x.zip", "-e", "trace=pread64", "-e", &inject], &index);
            if ran.code == 0 {
                let found = names(&strace::run(&scratch, &["-e", "trace=none"], &find));
                assert_eq!(found, whole, "{error} at read {number}: {}", ran.err);
            } else {
                assert_eq!(ran.code, 3, "{error} at read {number}: {}", ran.err);
            }
        }
    }
}
