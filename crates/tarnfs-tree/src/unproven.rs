//! Streams whose table another program has made, of which the format can check nothing before the end, and which are
//! too long for a reader to wait: each is decoded once, on a thread beside the readers, as soon as somebody reads of
//! it. Then all that is read is compared.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tarnfs_codec::engine::{DecodedSource, Proven, Prover, Proving};

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

/// Those that wait for their turn, for all archives of this process: one at a time, so that readers of a hundred
/// archives do not start a hundred threads.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_working: false });

struct Queue {
    waiting: VecDeque<Arc<Proof>>,
    is_working: bool,
}

/// What [`steps`] says.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Changes as long as some stream is being verified. That is done one after the other, so who waits for any gets on.
pub(crate) fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
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
        let proven = self.proving.run(&|| _ = STEPS.fetch_add(1, Ordering::Relaxed));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_less_and_less() {
        let minutes: Vec<u64> = (1..=8).chain([u32::MAX]).map(|failures| pause(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
