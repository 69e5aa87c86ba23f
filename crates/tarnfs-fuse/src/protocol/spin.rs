//! Waiting for the next request awake.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Decides how long a thread looks for the next request before it sleeps.
///
/// Programs that open file after file send a request as soon as they have the answer to the last one. To put a thread to sleep and
/// wake it takes longer than to answer, so after requests in quick succession one thread keeps looking for a moment. The
/// moment grows while that pays and shrinks to nothing when it does not, as with the kernel's own `haltpoll`.
#[derive(Debug)]
pub(super) struct Spin {
    /// In nanoseconds.
    moment: AtomicU32,
    /// One thread is enough.
    taken: AtomicBool,
    enabled: bool,
}

/// The longest moment.
const LONGEST: u32 = 100_000;

/// The first one, and the shortest: below, sleeping is as quick.
const SHORTEST: u32 = 20_000;

impl Spin {
    /// With one processor it never pays.
    pub(super) fn new(processors: usize) -> Self {
        Self { moment: AtomicU32::new(0), taken: AtomicBool::new(false), enabled: processors > 1 }
    }

    /// Looks for a request on `device` for a moment. `true` if one is there; else whoever calls sleeps, and tells [`Spin::slept`] for how long.
    pub(super) fn look(&self, device: BorrowedFd<'_>) -> bool {
        let moment = self.moment.load(Ordering::Relaxed);
        if !self.enabled || moment == 0 || self.taken.swap(true, Ordering::Acquire) {
            return false;
        }
        let until = Instant::now() + Duration::from_nanos(u64::from(moment));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut found = false;
        loop {
            let mut waited = [PollFd::from_borrowed_fd(device, PollFlags::IN)];
            if poll(&mut waited, Some(&at_once)).is_ok_and(|ready| ready > 0) {
                found = true;
                break;
            }
            if Instant::now() >= until {
                break;
            }
        }
        if !found {
            let next = if moment / 2 < SHORTEST { 0 } else { moment / 2 };
            self.moment.store(next, Ordering::Relaxed);
        }
        self.taken.store(false, Ordering::Release);
        found
    }

    /// A thread slept for so long before a request came.
    pub(super) fn slept(&self, time: Duration) {
        if self.enabled && time < Duration::from_nanos(u64::from(LONGEST)) {
            let moment = self.moment.load(Ordering::Relaxed);
            self.moment.store((moment * 2).clamp(SHORTEST, LONGEST), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    #[test]
    fn looks_only_after_short_sleeps_and_less_each_time_in_vain() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let spin = Spin::new(2);
        assert!(!spin.look(reader.as_fd()));
        spin.slept(Duration::from_secs(1));
        assert_eq!(spin.moment.load(Ordering::Relaxed), 0);
        (0..9).for_each(|_| spin.slept(Duration::from_micros(1)));
        assert_eq!(spin.moment.load(Ordering::Relaxed), LONGEST);
        for _ in 0..9 {
            assert!(!spin.look(reader.as_fd()));
        }
        assert_eq!(spin.moment.load(Ordering::Relaxed), 0);
        spin.slept(Duration::from_micros(1));
        writer.write_all(b"a").unwrap();
        assert!(spin.look(reader.as_fd()));
        assert_eq!(spin.moment.load(Ordering::Relaxed), SHORTEST);
        let single = Spin::new(1);
        single.slept(Duration::from_micros(1));
        assert!(!single.look(reader.as_fd()));
    }
}
