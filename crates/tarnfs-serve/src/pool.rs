//! Threads that may wait, and who has how many of them.
//!
//! A look-up or a read may have to wait for as long as it likes: for a server below a folder, for an archive that is
//! being opened. Nobody can end that thread. So what lies behind one name in the root, and behind one name in that, has
//! a part of the threads only: whatever hangs there leaves the rest to all else.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a thread is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// To look something up, or to list it.
    Look,
    /// To read, which may have to decode much.
    Read,
    /// To verify a file that was read in part. It takes as long as it takes: it gets on as long as somebody waits.
    Verify,
}

/// Names of a path that have threads of their own.
const LEVELS: usize = 2;

/// Places of each level: names that share one are few.
const PLACES: usize = 251;

/// Where in the tree something lies: what is in one lane may all have to wait for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane([usize; LEVELS]);

impl Lane {
    /// That of what these names lead to from the root; of none, that of the root.
    pub(crate) fn of(names: &[Vec<u8>]) -> Self {
        Self(std::array::from_fn(|level| {
            let mut hasher = DefaultHasher::new();
            names[..names.len().min(level + 1)].hash(&mut hasher);
            (hasher.finish() % PLACES as u64) as usize
        }))
    }
}

/// What lanes may have at most of something.
#[derive(Debug, Clone)]
pub(crate) struct Lanes(Arc<[Vec<Arc<Semaphore>>; LEVELS]>);

/// The part of a lane, until it is dropped.
pub(crate) type Turn = [OwnedSemaphorePermit; LEVELS];

impl Lanes {
    /// So many for a lane of the first level, and half as many for one of each further level.
    pub(crate) fn new(most: usize) -> Self {
        let places = |level: usize| (0..PLACES).map(|_| Arc::new(Semaphore::new((most >> level).max(1)))).collect();
        Self(Arc::new(std::array::from_fn(places)))
    }

    /// Waits for a turn, with those of the deepest name first: who waits keeps nobody up but those who would wait for
    /// the same.
    pub(crate) async fn turn(&self, lane: Lane) -> io::Result<Turn> {
        let [first, second] = &*self.0;
        let second = Arc::clone(&second[lane.0[1]]).acquire_owned().await.map_err(io::Error::other)?;
        let first = Arc::clone(&first[lane.0[0]]).acquire_owned().await.map_err(io::Error::other)?;
        Ok([first, second])
    }
}

/// Those who do one kind of work.
#[derive(Debug, Clone)]
struct Share {
    all: Arc<Semaphore>,
    lanes: Lanes,
}

impl Share {
    fn new(threads: usize, of_a_lane: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(threads.max(1))), lanes: Lanes::new(of_a_lane) }
    }
}

/// Threads that may wait: for a disk, or for what is decoded. Who gets no turn waits for one. However many clients wait
/// for what is slow, some threads are left for looking up.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    looking: Share,
    reading: Share,
    verifying: Share,
    /// Of all kinds.
    all: Arc<Semaphore>,
    /// Whoever takes longer is not waited for.
    patience: Duration,
}

/// Whether somebody still waits for what a thread does.
#[derive(Debug)]
pub(crate) struct Gone(Weak<()>);

impl Gone {
    /// For who waits as long as that is there.
    pub(crate) fn with(waits: &Arc<()>) -> Self {
        Self(Arc::downgrade(waits))
    }

    /// True once nobody does.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Fails once nobody does.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_gone() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

impl Pool {
    pub(crate) fn new(threads: usize, patience: Duration) -> Self {
        let of_a_lane = threads / 8;
        Self {
            looking: Share::new(threads, of_a_lane),
            reading: Share::new(threads / 2, of_a_lane),
            verifying: Share::new(threads / 8, threads / 16),
            all: Arc::new(Semaphore::new(threads.max(1))),
            patience,
        }
    }

    /// Does `work` on one of the threads. It goes on there if nobody waits any more, and keeps its turn until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        kind: Work,
        lane: Lane,
        work: impl FnOnce(&Gone) -> T + Send + 'static,
    ) -> io::Result<T> {
        // Dropped with this future, or when its time is over.
        let waits = Arc::new(());
        let gone = Gone::with(&waits);
        let done = async move {
            let share = match kind {
                Work::Look => &self.looking,
                Work::Read => &self.reading,
                Work::Verify => &self.verifying,
            };
            let turn = async {
                let lane = share.lanes.turn(lane).await?;
                let few = Arc::clone(&share.all).acquire_owned().await.map_err(io::Error::other)?;
                let one = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
                Ok::<_, io::Error>((lane, few, one))
            };
            // Work may take long, but nobody waits for ever to begin.
            let turn = tokio::time::timeout(self.patience, turn).await.map_err(|_| io::ErrorKind::TimedOut)??;
            let work = move || {
                let result = work(&gone);
                drop(turn);
                result
            };
            let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
            drop(waits);
            done
        };
        if kind == Work::Verify {
            return done.await;
        }
        match tokio::time::timeout(self.patience, done).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(threads).enable_time().build().unwrap()
    }

    /// The lane of a path.
    fn at(path: &str) -> Lane {
        Lane::of(&path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    /// Holds a thread until its client has gone.
    fn wait(gone: &Gone) {
        while !gone.is_gone() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn some_threads_are_left_for_looking_up() {
        let runtime = runtime(16);
        let pool = Pool::new(16, Duration::from_secs(600));
        let waiting: Vec<_> = [Work::Read, Work::Verify]
            .into_iter()
            .flat_map(|kind| std::iter::repeat_n(kind, 64))
            .enumerate()
            .map(|(number, kind)| {
                let pool = pool.clone();
                runtime.spawn(async move { pool.run(kind, at(&number.to_string()), wait).await })
            })
            .collect();
        while pool.reading.all.available_permits() > 0 || pool.verifying.all.available_permits() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(runtime.block_on(pool.run(Work::Look, at("0"), |_| 7)).unwrap(), 7);
        for one in &waiting {
            one.abort();
        }
        // Their threads are free again.
        assert_eq!(runtime.block_on(pool.run(Work::Read, at("0"), |_| 8)).unwrap(), 8);
        assert_eq!(runtime.block_on(pool.run(Work::Verify, at("0"), |_| 9)).unwrap(), 9);
    }

    /// Whatever hangs behind one name, however many ask for it, and whether they still wait or not.
    #[test]
    fn what_hangs_leaves_threads_to_what_lies_beside_it() {
        let runtime = runtime(64);
        for kind in [Work::Look, Work::Read] {
            let pool = Pool::new(64, Duration::from_secs(600));
            let (goes_on, is_over) = (Arc::new(Semaphore::new(0)), Arc::new(std::sync::atomic::AtomicBool::new(false)));
            for number in 0..200 {
                let (pool, goes_on, is_over) = (pool.clone(), Arc::clone(&goes_on), Arc::clone(&is_over));
                let hangs = move |_: &Gone| {
                    goes_on.add_permits(1);
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                // Below one folder of a folder, and all over another one.
                let path = if number % 2 == 0 { format!("a/b/{number}") } else { format!("c/{number}/x") };
                runtime.spawn(async move { pool.run(kind, at(&path), hangs).await });
            }
            // As many hang as may.
            let all = runtime.block_on(goes_on.acquire_many(4 + 8)).unwrap();
            all.forget();
            for path in ["one", "a", "a/d", "a/d/e"] {
                assert_eq!(runtime.block_on(pool.run(kind, at(path), |_| 7)).unwrap(), 7, "{kind:?} {path}");
            }
            assert_eq!(runtime.block_on(pool.run(kind, Lane::of(&[]), |_| 7)).unwrap(), 7, "{kind:?}");
            assert_eq!(goes_on.available_permits(), 0);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_verifies_may_take_longer() {
        let runtime = runtime(8);
        let pool = Pool::new(8, Duration::from_millis(20));
        for (kind, is_done) in [(Work::Look, false), (Work::Read, false), (Work::Verify, true)] {
            let (told, tells) = mpsc::channel();
            let work = move |gone: &Gone| {
                let began = std::time::Instant::now();
                // Nobody stops to wait for what verifies.
                let is_over = || kind == Work::Verify && began.elapsed() > Duration::from_millis(100);
                while !gone.is_gone() && !is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                told.send(gone.is_gone()).unwrap();
            };
            assert_eq!(runtime.block_on(pool.run(kind, at("x"), work)).is_ok(), is_done, "{kind:?}");
            // Who waits no more is known there.
            assert_eq!(tells.recv().unwrap(), !is_done, "{kind:?}");
        }
    }
}
