use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The memory that caches, windows and workers may use together, in bytes. Clones share it.
///
/// Who needs memory that grows with the input takes a [`Grant`] first; without one it makes do with less
/// (evicts, works in smaller pieces) and never with more.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    limit: usize,
    used: AtomicUsize,
    /// Somebody has what [`Budget::alone`] gives.
    is_exceeded: AtomicBool,
    /// Somebody has what [`Budget::alone_for_now`] gives.
    is_exceeded_for_now: Mutex<bool>,
    /// Nobody has it any more.
    given_back: Condvar,
}

/// Bytes taken from a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub struct Grant {
    counter: Arc<Counter>,
    bytes: usize,
}

/// The right to take more than a [`Budget`] grants; given back when dropped.
#[derive(Debug)]
pub struct Alone {
    counter: Arc<Counter>,
    is_for_now: bool,
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.is_for_now {
            *self.counter.is_exceeded_for_now.lock().unwrap_or_else(PoisonError::into_inner) = false;
            self.counter.given_back.notify_one();
        } else {
            self.counter.is_exceeded.store(false, Ordering::Release);
        }
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let (used, is_exceeded, is_exceeded_for_now, given_back) = Default::default();
        Self(Arc::new(Counter { limit, used, is_exceeded, is_exceeded_for_now, given_back }))
    }

    /// Enough for so many threads: 128 MiB for the first two, and 16 MiB for each further one. At most a quarter of the
    /// memory that this process may have (the machine's or its control group's, whichever is less).
    pub fn for_this_machine(threads: usize) -> Self {
        Self::new(share_of(Self::memory_of_this_machine(), threads))
    }

    /// Bytes of memory that this process may have, where that is known: those of the machine, or of its control group
    /// if that has fewer. What was found first: later, a process may have given up opening files.
    pub fn memory_of_this_machine() -> Option<u64> {
        static FOUND: OnceLock<Option<u64>> = OnceLock::new();
        let read = |path: &str| fs::read_to_string(path).ok();
        *FOUND.get_or_init(|| machine_memory(&read).into_iter().chain(control_group_memory(&read)).min())
    }

    /// Takes `bytes`, or nothing if that would exceed the limit.
    pub fn take(&self, bytes: usize) -> Option<Grant> {
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.0.limit)
            })
            .ok()
            .map(|_| Grant { counter: Arc::clone(&self.0), bytes })
    }

    /// What cannot be done with less than it takes may be done without a grant, but one thing at a time. `None` while
    /// there is another.
    pub fn alone(&self) -> Option<Alone> {
        let is_taken = self.0.is_exceeded.swap(true, Ordering::Acquire);
        (!is_taken).then(|| Alone { counter: Arc::clone(&self.0), is_for_now: false })
    }

    /// The same for what takes that much only while it is made, and is given back at once then: whoever comes waits for
    /// it, for `patience` at most. It has nothing to do with the other right, which somebody may keep for as long as a
    /// file is open.
    ///
    /// Who has it waits for nobody who might wait for it.
    pub fn alone_for_now(&self, patience: Duration) -> Option<Alone> {
        let begin = Instant::now();
        let mut is_taken = self.0.is_exceeded_for_now.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            let left = patience.checked_sub(begin.elapsed())?;
            is_taken = self.0.given_back.wait_timeout(is_taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Some(Alone { counter: Arc::clone(&self.0), is_for_now: true })
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes granted and not yet given back.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}

impl Grant {
    /// How many bytes were granted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back what are more than `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(rest);
        self.counter.used.fetch_sub(rest, Ordering::Relaxed);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.counter.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What caches for so many threads may use where a process may have `available` bytes.
fn share_of(available: Option<u64>, threads: usize) -> usize {
    const FOR_TWO: u64 = 128 << 20;
    const FOR_EACH: u64 = 16 << 20;
    const LEAST: u64 = 16 << 20;
    let wanted = FOR_TWO.saturating_add(FOR_EACH.saturating_mul(threads.saturating_sub(2) as u64));
    (available.unwrap_or(u64::MAX) / 4).min(wanted).max(LEAST) as usize
}

/// `read` gives the text of a file, here and below.
fn machine_memory(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.split_whitespace().next()?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit on the way from this process' control group to the root (version 2), or of the
/// memory controller (version 1).
fn control_group_memory(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let (root, file) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max"),
                list if list.split(',').any(|name| name == "memory") => {
                    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => return None,
            };
            std::path::Path::new(path)
                .ancestors()
                .filter_map(|folder| read(&format!("{root}{}/{file}", folder.display())))
                .filter_map(|text| text.trim().parse::<u64>().ok())
                .min()
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_grows_with_the_threads() {
        let limit = |threads| Budget::for_this_machine(threads).limit();
        assert_eq!(limit(1), limit(2));
        assert!(limit(2) >= 16 << 20 && limit(2) <= 128 << 20);
        assert!(limit(8) >= limit(2) && limit(8) <= 224 << 20);
        assert!(limit(usize::MAX) >= limit(8));
    }

    #[test]
    fn grants_never_exceed_the_limit_and_come_back() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        assert!(budget.take(usize::MAX).is_none());
        let second = budget.take(40).unwrap();
        assert_eq!(budget.used(), 100);
        drop(first);
        assert_eq!((budget.used(), second.bytes()), (40, 40));
    }

    #[test]
    fn one_at_a_time_may_take_more() {
        let budget = Budget::new(1);
        let alone = budget.alone().unwrap();
        assert!(budget.alone().is_none() && budget.take(1).is_some());
        let for_now = budget.alone_for_now(Duration::ZERO).unwrap();
        assert!(budget.alone_for_now(Duration::from_millis(1)).is_none());
        drop(alone);
        assert!(budget.alone().is_some() && budget.alone_for_now(Duration::ZERO).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.alone_for_now(Duration::MAX).is_some());
            drop(for_now);
            assert!(waiting.join().unwrap());
        });
        assert!(budget.alone_for_now(Duration::ZERO).is_some());
    }

    #[test]
    fn caches_get_what_the_threads_need_and_at_most_a_quarter_of_the_memory() {
        assert_eq!(share_of(Some(64 << 30), 1), 128 << 20);
        assert_eq!(share_of(Some(64 << 30), 2), 128 << 20);
        assert_eq!(share_of(Some(64 << 30), 16), (128 + 14 * 16) << 20);
        assert_eq!(share_of(Some(256 << 20), 16), 64 << 20);
        assert_eq!(share_of(Some(1), 2), 16 << 20);
        assert_eq!(share_of(None, 2), 128 << 20);
        let limit = Budget::for_this_machine(2).limit();
        assert!((16 << 20..=128 << 20).contains(&limit), "{limit}");
        assert_eq!(Budget::new(7).limit(), 7);
    }

    #[test]
    fn memory_is_that_of_the_machine_or_of_the_control_group() {
        let file = |path: &str| match path {
            "/proc/meminfo" => Some("MemFree:  1 kB\nMemTotal:   8000 kB\nMemAvailable: 2 kB\n".to_owned()),
            _ => None,
        };
        assert_eq!(machine_memory(&file), Some(8000 << 10));
        assert_eq!((control_group_memory(&file), machine_memory(&|_| None)), (None, None));
        // Version 2: the group and all above it. The root has no such file, and "max" is no limit.
        let file = |path: &str| match path {
            "/proc/self/cgroup" => Some("0::/a/b/c\n".to_owned()),
            "/sys/fs/cgroup/a/b/c/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/b/memory.max" => Some("3000\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("5000\n".to_owned()),
            _ => None,
        };
        assert_eq!(control_group_memory(&file), Some(3000));
        // Version 1: among the controllers of one line; other controllers have other folders.
        let file = |path: &str| match path {
            "/proc/self/cgroup" => Some("5:cpu,cpuacct:/x\n4:hugetlb,memory:/y\n3:memoryless:/z\n".to_owned()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" | "/sys/fs/cgroup/memory/z/memory.limit_in_bytes" => {
                Some("1\n".to_owned())
            }
            "/sys/fs/cgroup/memory/y/memory.limit_in_bytes" => Some("700\n".to_owned()),
            "/sys/fs/cgroup/memory//memory.limit_in_bytes" => Some("9000\n".to_owned()),
            _ => None,
        };
        assert_eq!(control_group_memory(&file), Some(700));
    }
}
