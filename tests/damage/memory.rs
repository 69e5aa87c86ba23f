//! Many archives at once in little memory: one process that serves all of them from one budget, in a control group.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "figures, and what was left out")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{self, Scratch, can_mount, rounds};
use tarnfs_codec::engine::PieceCache;
use tarnfs_fuse::MountOptions;
use tarnfs_source::Budget;
use tarnfs_tree::open::{DecodingOptions, Options, open};

/// What the control group of the readers may use.
const LIMIT: u64 = 512 << 20;

const CHILD: &str = "TARNFS_TEST_ARCHIVES";

/// A control group of its own for the memory of a process; removed when dropped.
struct Group {
    folder: PathBuf,
    peak: &'static str,
}

impl Group {
    /// `None`, with a line that says so, where none can be made.
    fn new() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            match controllers {
                "" => Some((format!("/sys/fs/cgroup{path}"), "memory.max", "memory.peak")),
                "memory" => {
                    Some((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"))
                }
                _ => None,
            }
        });
        for (parent, limit, peak) in places {
            let folder = Path::new(&parent).join(format!("tarnfs-test-{}", std::process::id()));
            if fs::create_dir(&folder).is_ok() {
                let group = Self { folder, peak };
                if fs::write(group.folder.join(limit), LIMIT.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        println!("left out: no control group with a memory limit can be made");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn many_archives_are_read_in_little_memory() {
    if !can_mount() {
        return;
    }
    let Some(group) = Group::new() else { return };
    let scratch = Scratch::new();
    let archives = rounds(12, 64);
    scratch.shell(&format!(
        "mkdir tree; seq 1 6000000 > tree/numbers; tar -C tree -cf a.tar .
         gzip -1 < a.tar > kind0.gz; zstd -q -3 < a.tar > kind1.zst
         xz -0 --block-size=8MiB < a.tar > kind2.xz; bzip2 -9 < a.tar > kind3.bz2
         for i in $(seq {archives}); do for kind in kind$((i % 4)).*; do ln $kind $i.tar.${{kind#*.}}; done; done; rm a.tar",
    ));
    let right = fs::read(scratch.path("tree/numbers")).unwrap();
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.folder.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "memory::child_process", "--nocapture"]).env(CHILD, scratch.path(""));
    // As tarnfs itself asks of malloc.
    command.env("MALLOC_ARENA_MAX", "2");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ready") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the child has ended");
    }
    let until = Instant::now() + Duration::from_secs(rounds(5, 600));
    let read = |number: u64| {
        let file = fs::File::open(scratch.path(format!("{number}.mnt/numbers"))).unwrap();
        let (mut state, mut slowest, mut reads) = (number, Duration::ZERO, 0);
        let mut buffer = vec![0; 100_000];
        while Instant::now() < until {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (state >> 33) as usize % right.len();
            let start = Instant::now();
            let read = file.read_at(&mut buffer, offset as u64).unwrap();
            slowest = slowest.max(start.elapsed());
            reads += 1;
            assert!(buffer[..read] == right[offset..offset + read], "{number}: wrong bytes at {offset}");
        }
        (slowest, reads)
    };
    let (slowest, reads) = std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=archives).map(|number| scope.spawn(move || read(number))).collect();
        let done: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        (done.iter().map(|done| done.0).max().unwrap(), done.iter().map(|done| done.1).sum::<u64>())
    });
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    let peak = fs::read_to_string(group.folder.join(group.peak)).unwrap_or_default();
    let peak = peak.trim().parse::<u64>().unwrap_or_default() >> 20;
    println!("{archives} archives, {reads} reads, the slowest took {slowest:?}, peak of the group {peak} MiB\n{rest}");
    assert!(status.success() && rest.contains("all is given back"), "{status:?}: {rest}");
}

/// The process in the control group: mounts all archives of the folder, says so, and unmounts them when told to.
#[test]
fn child_process() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let cache = PieceCache::new(Budget::for_this_machine(2));
    let budget = cache.budget();
    assert!(budget.limit() as u64 <= LIMIT / 4, "the group's limit is not known: {}", budget.limit());
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let numbered = |name: String| Some((name.clone(), name.split_once(".tar.")?.0.to_owned()));
    let archives: Vec<_> = names.filter_map(numbered).collect();
    let mounts: Vec<_> = archives
        .into_iter()
        .map(|(name, number)| {
            let options = Options {
                decoding: DecodingOptions { cache: Arc::clone(&cache), threads: 2, ..DecodingOptions::default() },
                ..Options::default()
            };
            let opened = open(&folder.join(name), &options).unwrap();
            let at = folder.join(number + ".mnt");
            fs::create_dir(&at).unwrap();
            tarnfs_fuse::mount(Arc::clone(&opened.tree) as _, &at, &MountOptions::default()).unwrap()
        })
        .collect();
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("{} MiB of {} granted", budget.used() >> 20, budget.limit() >> 20);
    for mount in &mounts {
        let done = mount.statistics();
        assert_eq!((done.panics, done.deadlines_missed), (0, 0));
        // Decoders at work wait for each other, and buffers for replies have a bound of their own.
        let beside = ["working_decoders", "reply_buffers"];
        let granted = done.work.memory.iter().filter(|(owner, _)| !beside.contains(owner));
        assert!(granted.map(|(_, bytes)| bytes).sum::<u64>() <= done.work.memory_limit);
    }
    drop(mounts);
    // Decoding ahead may have been in the middle of a chunk.
    support::wait_until("all memory is given back", || budget.used() == 0);
    println!("all is given back");
}
