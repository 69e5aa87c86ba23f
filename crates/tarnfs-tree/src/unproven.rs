//! Streams whose table another program has made, of which the format can check nothing before the end, and which are
//! too long for a reader to wait: each is decoded once, on a thread beside the readers, as soon as somebody reads of
//! it. Then all that is read is compared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tarnfs_codec::engine::{DecodedSource, Proven, Proving};
use tarnfs_source::Source;

/// Until it is tried again to read what could not be read.
const PAUSE: Duration = Duration::from_secs(60);

/// Has the whole of `stream` verified once somebody reads what cannot be verified otherwise.
pub(crate) fn watch(stream: &DecodedSource) {
    // What it has of the stream does not keep that open.
    let unproven = Arc::new(Unproven { proving: stream.proving(), state: Mutex::new(ProofState::Waiting) });
    stream.when_unproven(move || unproven.begin());
}

/// Says so where what is read of an archive may be wrong at first.
pub(crate) fn warn_of(stream: &DecodedSource) {
    if stream.is_unproven() {
        let proving = stream.proving();
        log::warn!(
            "{}: its index has no checksums, and {} can check nothing before the end: until all of it was decoded once beside the first reader, \
             wrong bytes are not noticed (`tarnfs index` makes an index that has checksums)",
            proving.describe(),
            proving.codec()
        );
    }
}

struct Unproven {
    proving: Proving,
    state: Mutex<ProofState>,
}

enum ProofState {
    /// For a first read.
    Waiting,
    /// For a turn, or at work.
    Begun,
    /// For the next try.
    Failed(Instant),
}

/// Those that wait for their turn, for all archives of this process: one at a time, so that readers of a hundred
/// archives do not start a hundred threads.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_working: false });

struct Queue {
    waiting: VecDeque<Arc<Unproven>>,
    is_working: bool,
}

impl Unproven {
    /// Waits for nothing: it is called by whoever reads.
    fn begin(self: &Arc<Self>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            ProofState::Begun => return,
            ProofState::Failed(at) if at.elapsed() < PAUSE => return,
            ProofState::Failed(_) => {}
            ProofState::Waiting => log::info!("{}: all of it is decoded once, to verify it", self.proving.describe()),
        }
        *state = ProofState::Begun;
        drop(state);
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(Arc::clone(self));
        if queue.is_working {
            return;
        }
        match thread::Builder::new().name("tarnfs-verify".to_owned()).spawn(work) {
            Ok(_) => queue.is_working = true,
            Err(error) => {
                queue.waiting.pop_back();
                drop(queue);
                self.failed(&error.to_string());
            }
        }
    }

    fn verify(&self) {
        let described = self.proving.describe();
        match self.proving.run() {
            Ok(Proven::Right) => {
                log::info!("{described}: all of it was decoded once: what is read is verified from now on");
            }
            Ok(Proven::Damaged(damage)) => log::error!(
                "{described}: bytes {} to {} of what it decodes to are damaged and not read any more: {}; what was read of them before was not \
                 verified",
                damage.decoded.start,
                damage.decoded.end,
                damage.what
            ),
            Ok(Proven::Abandoned) => {}
            Err(error) => self.failed(&error.to_string()),
        }
    }

    fn failed(&self, why: &str) {
        log::warn!("{}: could not be verified this time: {why}", self.proving.describe());
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = ProofState::Failed(Instant::now());
    }
}

/// Takes one after the other.
fn work() {
    loop {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = queue.waiting.pop_front() else {
            queue.is_working = false;
            return;
        };
        drop(queue);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.verify())).is_err() {
            next.failed("the decoder panicked; this is an error in tarnfs, please report it");
        }
    }
}
