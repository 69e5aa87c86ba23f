//! Sources and trees that do everything wrong: the kernel gets an error in time, and all else goes on.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use common::{Gate, MemoryTree, Mounted, Opens, can_mount, rounds, wait_until};
use rustix::fs::getxattr;
use rustix::io::Errno;
use tarnfs_codec::engine::{DecodedSource, Indexing, PieceCache, Workers};
use tarnfs_codec::{Chunk, ChunkTable, Damage, Options, by_name};
use tarnfs_fuse::{MountOptions, STATISTICS_ATTRIBUTE as ATTRIBUTE};
use tarnfs_source::{Budget, Limits, MemorySource, SharedSource, Source};
use tarnfs_tree::{Kind, Node};

/// What goes wrong at one call of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fails,
    Stalls,
    ReturnsNothing,
    ReturnsTooMuch,
    Panics,
}

const AT_ONCE: [Fault; 4] = [Fault::Fails, Fault::ReturnsNothing, Fault::ReturnsTooMuch, Fault::Panics];

/// Bytes of which the `at`-th reading goes wrong and all later ones, until it is healed.
struct Faulty {
    bytes: Arc<[u8]>,
    /// As it claims.
    length: u64,
    fault: Fault,
    at: usize,
    calls: AtomicUsize,
    is_healed: AtomicBool,
    gate: Arc<Gate>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?} at call {}", self.fault, self.at)
    }
}

impl Source for Faulty {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let is_due = self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= self.at;
        if is_due && !self.is_healed.load(Ordering::Relaxed) {
            match self.fault {
                Fault::Fails => return Err(io::Error::other("as tested")),
                Fault::ReturnsNothing => return Ok(0),
                Fault::ReturnsTooMuch => return Ok(buffer.len() + 1),
                Fault::Panics => panic!("as tested"),
                Fault::Stalls => self.gate.pass(),
            }
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }

    fn is_ready(&self, _: u64, _: usize) -> bool {
        false
    }
}

/// The chunks of a stream, in memory.
#[derive(Debug)]
struct Table(Vec<Chunk>, u64);

impl ChunkTable for Table {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        let holds = |chunk: &&Chunk| (chunk.point.decoded..chunk.point.decoded + chunk.length).contains(&decoded);
        Ok(self.0.iter().find(holds).cloned())
    }

    fn decoded_length(&self) -> u64 {
        self.1
    }

    fn damage_in(&self, _: Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

/// What is read, plain and compressed, and its seek points.
struct Sample {
    plain: Arc<[u8]>,
    compressed: Arc<[u8]>,
    table: Arc<Table>,
    gate: Arc<Gate>,
}

impl Sample {
    fn new() -> Self {
        let plain = (0..400_000).map(|number: u32| number.to_string()).collect::<Vec<_>>().join("\n");
        let mut gzip = Command::new("gzip").arg("-1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, text) = (gzip.stdin.take().unwrap(), plain.clone());
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
        let compressed = gzip.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let options = Options { seek_point_spacing: 1 << 20, ..Options::default() };
        let source: SharedSource = Arc::new(MemorySource::new(compressed.clone(), "sample"));
        let mut indexing = Indexing::new(by_name("gzip").unwrap(), source, &options).unwrap();
        let (mut chunks, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while indexing.read(&mut buffer).unwrap() > 0 {}
        indexing.take_chunks(&mut chunks);
        assert!(chunks.len() > 1);
        Self {
            table: Arc::new(Table(chunks, plain.len() as u64)),
            plain: plain.into_bytes().into(),
            compressed: compressed.into(),
            gate: Arc::default(),
        }
    }

    fn plain(&self, fault: Fault, at: usize) -> Arc<Faulty> {
        self.faulty(&self.plain, fault, at)
    }

    fn faulty(&self, bytes: &Arc<[u8]>, fault: Fault, at: usize) -> Arc<Faulty> {
        let (bytes, gate) = (Arc::clone(bytes), Arc::clone(&self.gate));
        let (calls, is_healed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Faulty { length: bytes.len() as u64, bytes, fault, at, calls, is_healed, gate })
    }

    /// The same bytes, decoded from a compressed stream whose `at`-th reading goes wrong.
    fn decoded(&self, fault: Fault, at: usize) -> (Arc<Faulty>, SharedSource) {
        let below = self.faulty(&self.compressed, fault, at);
        let cache = PieceCache::new(Budget::new(64 << 20));
        let source = DecodedSource::new(
            by_name("gzip").unwrap(),
            Arc::clone(&below) as SharedSource,
            Arc::clone(&self.table) as Arc<dyn ChunkTable>,
            cache,
            // Nothing is decoded ahead: each call has a reader.
            Workers::new(0),
            Limits::default(),
        );
        (below, source)
    }
}

/// More calls than one pass over the sample makes.
const MOST_CALLS: usize = 32;

#[test]
fn a_fault_at_any_call_is_an_error_and_never_wrong_bytes() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new();
    let mut tree = MemoryTree::default();
    let mut cases = Vec::new();
    for fault in AT_ONCE {
        let folder = tree.folder(Node::ROOT, format!("{fault:?}"));
        // The last one is never reached, else there would be more calls to try.
        for at in 1..=MOST_CALLS {
            let plain = sample.plain(fault, at);
            tree.source(folder, format!("plain {at}"), Arc::clone(&plain) as SharedSource);
            let (below, decoded) = sample.decoded(fault, at);
            tree.source(folder, format!("decoded {at}"), decoded);
            cases.extend([(format!("{fault:?}/plain {at}"), plain), (format!("{fault:?}/decoded {at}"), below)]);
        }
    }
    let longer = Arc::new(Faulty {
        length: 4_000_000,
        is_healed: true.into(),
        ..Arc::into_inner(sample.plain(Fault::Fails, 1)).unwrap()
    });
    tree.source(Node::ROOT, "longer", longer);
    tree.file(Node::ROOT, "whole", &*sample.plain);
    let mut mounted = Mounted::new(tree);
    let (mut errors, mut completed) = (0, 0);
    for (name, source) in &cases {
        let first = fs::read(mounted.path(name));
        let reached = source.calls.load(Ordering::Relaxed) >= source.at;
        completed += usize::from(!reached);
        match first {
            Ok(bytes) => assert!(bytes == *sample.plain, "{name}: wrong bytes"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{name}: {error}");
                assert!(reached, "{name}: {error}");
                errors += 1;
                // Nothing of it is kept: what is read again is right.
                source.is_healed.store(true, Ordering::Relaxed);
                assert!(fs::read(mounted.path(name)).unwrap() == *sample.plain, "{name}: wrong bytes");
            }
        }
        assert!(fs::read(mounted.path("whole")).unwrap() == *sample.plain);
    }
    eprintln!("{} files, {errors} with an error, {completed} never got that far", cases.len());
    assert!(errors >= 2 * AT_ONCE.len(), "{errors} errors");
    let most = cases.iter().filter(|(name, _)| name.ends_with(&format!(" {MOST_CALLS}")));
    assert!(most.clone().all(|(_, source)| source.calls.load(Ordering::Relaxed) < MOST_CALLS), "there are more calls");
    // A source that says that it is longer than it is: the rest is an error, not zeros and not an end.
    let longer = File::open(mounted.path("longer")).unwrap();
    let mut page = [0; 4096];
    assert_eq!(longer.read_at(&mut page, 0).unwrap(), page.len());
    assert!(page[..] == sample.plain[..4096]);
    assert_eq!(longer.read_at(&mut page, 3_500_000).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    mounted.panics = mounted.statistics().panics;
    assert!(mounted.panics >= 2);
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// > Every request is answered in time, if need be with an error, and does not hold up others.
#[test]
fn readers_of_what_stalls_get_an_error_in_time_and_others_go_on() {
    const DEADLINE: Duration = Duration::from_secs(2);
    if !can_mount() {
        return;
    }
    let sample = Sample::new();
    let mut tree = MemoryTree::default();
    let mut names = Vec::new();
    for at in 1..=4 {
        tree.source(Node::ROOT, format!("plain {at}"), sample.plain(Fault::Stalls, at));
        tree.source(Node::ROOT, format!("decoded {at}"), sample.decoded(Fault::Stalls, at).1);
        names.extend([format!("plain {at}"), format!("decoded {at}")]);
    }
    // One that never comes to its end.
    tree.source(Node::ROOT, "killed", sample.plain(Fault::Stalls, 1));
    tree.source(Node::ROOT, "other", sample.decoded(Fault::Stalls, usize::MAX).1);
    let mounted = Mounted::with(tree, &MountOptions { deadline: DEADLINE, ..MountOptions::default() });
    let mut killed = cat(&mounted.path("killed"));
    let mut readers: Vec<_> = names.iter().map(|name| cat(&mounted.path(name))).collect();
    let _opens = Opens(Arc::clone(&sample.gate));
    wait_until("somebody waits", || sample.gate.waiting() > 0);
    killed.kill().unwrap();
    wait_until("the killed reader has ended", || killed.try_wait().unwrap().is_some());
    // Beside them everything else can be read; on a machine with other work the deadline may come first once.
    wait_until("another file can be read", || {
        fs::read(mounted.path("other")).is_ok_and(|bytes| bytes == *sample.plain)
    });
    let start = Instant::now();
    for (reader, name) in readers.iter_mut().zip(&names) {
        wait_until(&format!("the reader of {name} has ended"), || reader.try_wait().unwrap().is_some());
    }
    eprintln!("{} readers ended within {:?} at a deadline of {DEADLINE:?}", readers.len(), start.elapsed());
    let failed: Vec<_> = readers
        .into_iter()
        .map(|reader| String::from_utf8_lossy(&reader.wait_with_output().unwrap().stderr).into_owned())
        .filter(|said| !said.is_empty())
        .collect();
    assert!(failed.iter().all(|said| said.contains("Input/output error")), "{failed:?}");
    assert!(failed.len() >= 2, "{failed:?}");
    // A reader has at most one request that waits until the deadline, and does not begin to wait for the next.
    let missed = mounted.statistics().deadlines_missed;
    assert!(missed >= 2, "{missed}");
    sample.gate.open();
    for name in &names {
        // As soon as those who were stuck are done.
        let right = || fs::read(mounted.path(name)).is_ok_and(|bytes| bytes == *sample.plain);
        wait_until(&format!("{name} can be read"), right);
    }
}

/// An index may lie on a disk that does not answer any more: then each thread that asks it is stuck.
#[test]
fn every_request_has_its_deadline_though_all_threads_that_read_requests_are_stuck() {
    const ASKED: usize = 12;
    if !can_mount() {
        return;
    }
    for threads in [1, 2] {
        let mut tree = MemoryTree::default();
        tree.file(Node::ROOT, "other", "content");
        let gate = Arc::new(Gate::default());
        tree.gate = Some(Arc::clone(&gate));
        let _opens = Opens(Arc::clone(&gate));
        let deadline = Duration::from_secs(3);
        let mounted =
            Mounted::with(tree, &MountOptions { deadline, threads, statistics: true, ..MountOptions::default() });
        let asked: Vec<_> = (0..ASKED)
            .map(|number| {
                let path = mounted.path(format!("gate {number}"));
                std::thread::spawn(move || fs::metadata(path).unwrap_err().raw_os_error())
            })
            .collect();
        // On a busy machine the first ones may have their answer before the last ones ask.
        let are_done = || asked.iter().filter(|asked| asked.is_finished()).count();
        wait_until("all are waiting", || mounted.statistics().in_flight + are_done() >= ASKED);
        // What needs no answer of the tree that is stuck goes on.
        let mut told = [0; 16 << 10];
        let length = getxattr(mounted.folder.path(), ATTRIBUTE, &mut told[..]).unwrap();
        assert!(told[..length].starts_with(b"{"));
        wait_until("all have ended", || asked.iter().all(std::thread::JoinHandle::is_finished));
        for asked in asked {
            assert_eq!(asked.join().unwrap(), Some(Errno::IO.raw_os_error()));
        }
        gate.open();
        wait_until("another file can be read", || fs::read(mounted.path("other")).is_ok_and(|read| read == b"content"));
        // Those who were stuck read requests again.
        for number in 0..100 {
            assert!(fs::metadata(mounted.path(format!("none {number}"))).is_err());
        }
    }
}

/// > A fault of tarnfs itself while it answers a request costs only that request.
#[test]
fn a_panic_at_any_request_costs_that_request() {
    const THREADS: usize = 4;
    if !can_mount() {
        return;
    }
    let mut tree = MemoryTree::default();
    let folder = tree.folder(Node::ROOT, "folder");
    for number in 0..10 {
        tree.add(folder, format!("file {number}"), Kind::File);
    }
    tree.totals.is_immutable = false;
    tree.meeting = Some(Arc::new(Barrier::new(THREADS)));
    let until_panic = Arc::clone(&tree.until_panic);
    let mut mounted = Mounted::with(tree, &MountOptions { threads: THREADS, ..MountOptions::default() });
    let last = rounds(60, 200);
    for at in 1..=last {
        let before = mounted.statistics().panics;
        until_panic.store(at as i64, Ordering::SeqCst);
        let is_over = || until_panic.load(Ordering::SeqCst) <= 0;
        let work = |thread: usize| {
            let mut errors = 0;
            for number in 0.. {
                let name = format!("folder/none {at} {thread} {number}");
                let error = fs::metadata(mounted.path(name)).unwrap_err().raw_os_error().map(Errno::from_raw_os_error);
                assert!(matches!(error, Some(Errno::NOENT | Errno::IO)), "{error:?}");
                errors += usize::from(error == Some(Errno::IO));
                if is_over() {
                    break;
                }
            }
            errors
        };
        let errors: usize = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert_eq!((errors, mounted.statistics().panics - before), (1, 1), "at call {at}");
    }
    // All threads that answer the kernel are still there: each of these lookups waits for the others.
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let path = mounted.path(format!("meet {thread}"));
            scope.spawn(move || {
                let error = fs::metadata(path).unwrap_err().raw_os_error();
                assert_eq!(error, Some(Errno::NOENT.raw_os_error()));
            });
        }
    });
    mounted.panics = last as u64;
}

/// > A fault of tarnfs itself while it answers a request costs only that request.
#[test]
fn a_panic_beside_the_answer_costs_that_request_too() {
    if !can_mount() {
        return;
    }
    for threads in [1, 4] {
        let tree = MemoryTree::default();
        let ready_panics = Arc::clone(&tree.ready_panics);
        let mut mounted = Mounted::with(tree, &MountOptions { threads, ..MountOptions::default() });
        let look =
            |name: String| fs::metadata(mounted.path(name)).unwrap_err().raw_os_error().map(Errno::from_raw_os_error);
        for round in 0..8 {
            ready_panics.store(true, Ordering::SeqCst);
            assert_eq!(look(format!("costs {round}")), Some(Errno::IO));
            assert_eq!(look(format!("none {round}")), Some(Errno::NOENT));
        }
        // Counted behind the answer, by a thread that others go on beside.
        wait_until("all are counted", || mounted.statistics().panics == 8);
        mounted.panics = 8;
    }
}

#[test]
fn threads_that_answer_have_the_stack_that_answers_take() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(MemoryTree::default(), &MountOptions { threads: 1, ..MountOptions::default() });
    // Without the stack, this process ends.
    assert_eq!(fs::metadata(mounted.path("deep")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
