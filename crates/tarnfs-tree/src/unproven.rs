//! Streams whose table another program has made, of which the format can check nothing before the end, and which are
//! too long for a reader to wait: each is decoded once, on a thread beside the readers, as soon as somebody reads of
//! it. Then all that is read is compared. On the same thread, long files of zip and 7z are compared with their
//! checksums ([`Late`]).

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tarnfs_codec::engine::{DecodedSource, Proven, Prover, Proving, low_priority};

/// Until it is tried again to verify what could not be verified. It doubles with each try: each decodes until it fails.
const PAUSE: Duration = Duration::from_secs(60);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The pause behind so many failures.
fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST_PAUSE)
}

/// How often who waits looks whether anybody still wants that.
const LOOK: Duration = Duration::from_millis(200);

/// Has the whole of `stream` verified once somebody reads what cannot be verified otherwise.
pub(crate) fn watch(stream: &DecodedSource) {
    // What it has of the stream does not keep that open.
    stream.proven_by(Arc::new(Unproven(Arc::new(Proof {
        proving: stream.proving(),
        state: Mutex::new(ProofState::Waiting),
        failures: AtomicU32::new(0),
        changed: Condvar::new(),
    }))));
}

/// Says so where what is read of an archive may be wrong at first.
pub(crate) fn warn_of(stream: &DecodedSource) {
    if stream.is_itself_unproven() {
        let proving = stream.proving();
        log::warn!(
            "{}: its index has no checksums, and not every part of this {} stream can be checked for itself: until all of it was decoded once \
             beside the first reader, wrong bytes are not noticed (`tarnfs index` makes an index that has checksums)",
            proving.describe(),
            proving.codec()
        );
    }
}

struct Unproven(Arc<Proof>);

struct Proof {
    proving: Proving,
    state: Mutex<ProofState>,
    /// How often it could not be done.
    failures: AtomicU32,
    changed: Condvar,
}

enum ProofState {
    /// For a first read.
    Waiting,
    /// For a turn, or at work.
    Begun,
    /// For the next try, and why the last one failed.
    Failed(Instant, String),
    Ended,
}

/// What is verified beside the readers.
pub(crate) trait Late: Send + Sync {
    /// Gets on with it for a moment, or as long as it takes. It says itself how that ended.
    fn step(&self) -> Step;

    /// It could not be done this time.
    fn failed(&self, why: &str);
}

/// How a step has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing more is to be done.
    Ended,
    /// There is more; others have their turn first.
    More,
    /// As [`Step::More`], but for now a reader does it himself.
    NotNow,
}

/// Those that wait for their turn, for all archives of this process: one at a time, so that readers of a hundred
/// archives do not start a hundred threads.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_working: false });

struct Queue {
    waiting: VecDeque<Arc<dyn Late>>,
    is_working: bool,
}

/// Until who lets a reader go ahead looks again.
const GLANCE: Duration = Duration::from_millis(5);

/// When something was tried that may fail and be tried again.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<TriesState>);

#[derive(Debug, Default)]
struct TriesState {
    is_at_work: bool,
    failed: Option<Instant>,
    failures: u32,
}

impl Tries {
    fn lock(&self) -> MutexGuard<'_, TriesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if whoever asks is to begin now.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.lock();
        if state.is_at_work || state.failed.is_some_and(|at| at.elapsed() < pause(state.failures)) {
            return false;
        }
        state.is_at_work = true;
        true
    }

    /// Nobody is at it any more.
    pub(crate) fn end(&self) {
        self.lock().is_at_work = false;
    }

    /// The same, because it has failed. Minutes until the next try.
    pub(crate) fn fail(&self) -> u64 {
        let mut state = self.lock();
        state.is_at_work = false;
        state.failed = Some(Instant::now());
        state.failures = state.failures.saturating_add(1);
        pause(state.failures).as_secs() / 60
    }
}

/// Has `late` verified when its turn comes. Waits for nothing.
pub(crate) fn submit(late: Arc<dyn Late>) {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.waiting.push_back(late);
    if queue.is_working {
        return;
    }
    match thread::Builder::new().name("tarnfs-verify".to_owned()).spawn(work) {
        Ok(_) => queue.is_working = true,
        Err(error) => {
            let late = queue.waiting.pop_back();
            drop(queue);
            if let Some(late) = late {
                late.failed(&error.to_string());
            }
        }
    }
}

/// What [`steps`] says.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Changes as long as some stream is being verified. That is done one after the other, so who waits for any gets on.
pub(crate) fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

/// Says that it gets on.
pub(crate) fn count_step() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

impl Prover for Unproven {
    fn begin(&self) {
        self.0.begin();
    }

    fn wait(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.0.begin();
        let mut state = self.0.state();
        loop {
            match &*state {
                ProofState::Ended => return Ok(()),
                ProofState::Failed(_, why) => {
                    let described = self.0.proving.describe();
                    return Err(io::Error::other(format!("{described}: could not be verified: {why}")));
                }
                _ if is_abandoned() => return Err(io::ErrorKind::Interrupted.into()),
                _ => (state, _) = self.0.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Proof {
    fn state(&self) -> MutexGuard<'_, ProofState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: ProofState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// Waits for nothing: it is called by whoever reads.
    fn begin(self: &Arc<Self>) {
        let mut state = self.state();
        match *state {
            ProofState::Begun | ProofState::Ended => return,
            ProofState::Failed(at, _) if at.elapsed() < pause(self.failures.load(Ordering::Relaxed)) => return,
            ProofState::Failed(..) => {}
            ProofState::Waiting => log::info!("{}: all of it is decoded once, to verify it", self.proving.describe()),
        }
        *state = ProofState::Begun;
        drop(state);
        submit(Arc::clone(self) as _);
    }
}

impl Late for Proof {
    fn step(&self) -> Step {
        let described = self.proving.describe();
        let proven = self.proving.run(&count_step);
        let is_done = proven.is_ok();
        match proven {
            Ok(Proven::Right) => {
                log::info!("{described}: all of it was decoded once: what is read is verified from now on");
            }
            Ok(Proven::Damaged(damage)) => log::error!(
                "{described}: bytes {} to {} of the decoded data are damaged and not read any more: {}; what was read of \
                 them before was not verified",
                damage.decoded.start,
                damage.decoded.end,
                damage.what
            ),
            Ok(Proven::Abandoned) => {}
            Err(error) => self.failed(&error.to_string()),
        }
        if is_done {
            self.set(ProofState::Ended);
        }
        Step::Ended
    }

    fn failed(&self, why: &str) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        log::warn!(
            "{}: could not be verified this time: {why}; it is tried again in {} minutes if somebody reads it",
            self.proving.describe(),
            pause(failures).as_secs() / 60
        );
        self.set(ProofState::Failed(Instant::now(), why.to_owned()));
    }
}

/// Takes one after the other.
fn work() {
    low_priority();
    loop {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = queue.waiting.pop_front() else {
            queue.is_working = false;
            return;
        };
        drop(queue);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.step())) {
            Ok(Step::Ended) => continue,
            Ok(Step::More) => {}
            Ok(Step::NotNow) => thread::sleep(GLANCE),
            Err(_) => {
                next.failed("the decoder panicked; this is an error in tarnfs, please report it");
                continue;
            }
        }
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_back(next);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc::{Sender, channel};

    use tarnfs_codec::engine::{PieceCache, Workers};
    use tarnfs_codec::{Chunk, ChunkTable, Damage, SeekPoint};
    use tarnfs_source::{Budget, Limits, MemorySource, Source};

    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_less_and_less() {
        let minutes: Vec<u64> = (1..=8).chain([u32::MAX]).map(|failures| pause(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    /// Bytes that wait until a test lets them be read, and may fail then.
    #[derive(Debug, Default)]
    struct Gate {
        is_open: Mutex<bool>,
        changed: Condvar,
        fails: AtomicBool,
        reads: AtomicUsize,
    }

    impl Gate {
        fn open(&self) {
            *self.is_open.lock().unwrap() = true;
            self.changed.notify_all();
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[derive(Debug)]
    struct Gated(Arc<Gate>, MemorySource);

    impl Source for Gated {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.reads.fetch_add(1, Ordering::SeqCst);
            let is_open = self.0.is_open.lock().unwrap();
            drop(self.0.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
            if self.0.fails.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.1.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.1.len()
        }

        fn describe(&self) -> String {
            self.1.describe()
        }
    }

    /// A table without checksums, of a stream that is too long for its first reader to wait.
    #[derive(Debug)]
    struct Long;

    impl ChunkTable for Long {
        fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
            let chunk = || Chunk { point: SeekPoint::default(), length: self.decoded_length(), checksums: Vec::new() };
            Ok((decoded < self.decoded_length()).then(chunk))
        }

        fn decoded_length(&self) -> u64 {
            2 << 30
        }

        fn damage_in(&self, _: Range<u64>) -> io::Result<Option<Damage>> {
            Ok(None)
        }
    }

    fn stream(gate: &Arc<Gate>) -> Arc<DecodedSource> {
        // A block that is stored, of one byte.
        let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x01\0\xfe\xffx".to_vec();
        gzip.extend(crc32fast::hash(b"x").to_le_bytes());
        gzip.extend(1_u32.to_le_bytes());
        let source = Arc::new(Gated(Arc::clone(gate), MemorySource::new(gzip, "gated")));
        let codec = tarnfs_codec::by_name("gzip").unwrap();
        let cache = PieceCache::new(Budget::new(1 << 20));
        let stream = DecodedSource::new(codec, source, Arc::new(Long), cache, Workers::new(0), Limits::default());
        watch(&stream);
        assert!(stream.is_unproven());
        stream
    }

    /// Whoever waits may go; who stays sees that it gets on, and is told when it is over.
    #[test]
    fn who_waits_for_a_stream_may_give_up() {
        let gate = Arc::new(Gate::default());
        let stream = stream(&gate);
        let before = steps();
        assert_eq!(stream.verify(&|| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(stream.is_unproven());
        gate.open();
        stream.verify(&|| false).unwrap();
        // It is shorter than its table says.
        assert!(steps() > before && !stream.is_unproven());
        assert!(stream.read_exact_at(&mut [0; 2], 0).is_err());
        let reads = gate.reads();
        stream.verify(&|| true).unwrap();
        assert_eq!(gate.reads(), reads);
    }

    #[test]
    fn what_could_not_be_read_is_told_and_left_for_a_while() {
        let gate = Arc::new(Gate { fails: true.into(), ..Gate::default() });
        gate.open();
        let stream = stream(&gate);
        let error = stream.verify(&|| false).unwrap_err().to_string();
        assert!(error.contains("could not be verified"), "{error}");
        let reads = gate.reads();
        gate.fails.store(false, Ordering::SeqCst);
        assert_eq!(stream.verify(&|| false).unwrap_err().to_string(), error);
        assert_eq!(gate.reads(), reads, "it is tried again after a minute");
    }

    /// Does these steps, the last one first, and panics behind them.
    struct Turns(Mutex<Vec<Step>>, Sender<String>);

    impl Late for Turns {
        fn step(&self) -> Step {
            let next = self.0.lock().unwrap().pop();
            let Some(step) = next else { panic!("no more steps, as tested") };
            self.1.send(format!("{step:?}")).unwrap();
            step
        }

        fn failed(&self, why: &str) {
            self.1.send(why.to_owned()).unwrap();
        }
    }

    /// A decoder that panics keeps no others from their turns.
    #[test]
    fn each_has_its_turns_and_none_ends_the_queue() {
        let told = |steps: &[Step]| {
            let (sender, told) = channel();
            submit(Arc::new(Turns(Mutex::new(steps.to_vec()), sender)));
            told
        };
        let panics = told(&[Step::More, Step::NotNow]);
        let ends = told(&[Step::Ended, Step::More, Step::More]);
        let all = |told: std::sync::mpsc::Receiver<String>| -> Vec<String> { told.iter().collect() };
        let [not_now, more, failed] = <[_; 3]>::try_from(all(panics)).unwrap();
        assert_eq!((not_now.as_str(), more.as_str()), ("NotNow", "More"));
        assert!(failed.contains("panicked"), "{failed}");
        assert_eq!(all(ends), ["More", "More", "Ended"]);
    }

    #[test]
    fn one_tries_at_a_time_and_a_failure_holds_for_a_while() {
        let tries = Tries::default();
        assert!(tries.begin() && !tries.begin());
        tries.end();
        assert!(tries.begin());
        assert_eq!(tries.fail(), 1);
        assert!(!tries.begin());
        assert_eq!(tries.fail(), 2);
    }
}
