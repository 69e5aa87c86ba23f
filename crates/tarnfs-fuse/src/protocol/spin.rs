//! Waiting for the next request awake.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Decides how long to look for the next request before sleeping.
///
/// Programs that open file after file send a request as soon as they have the answer to the last one. To put a thread
/// to sleep and wake it takes longer than to answer, so after requests in quick succession the leading thread keeps
/// looking for a moment. The moment grows while that pays and shrinks to nothing when it does not, as with the kernel's
/// own `haltpoll`.
#[derive(Debug)]
pub(super) struct Spin {
    /// In nanoseconds.
    moment: AtomicU32,
    enabled: bool,
}

/// The longest moment.
const LONGEST: u32 = 100_000;

/// The first one, and the shortest: below, sleeping is as quick.
const SHORTEST: u32 = 20_000;

impl Spin {
    /// With one processor it never pays.
    pub(super) fn new(processors: usize) -> Self {
        Self { moment: AtomicU32::new(0), enabled: processors > 1 }
    }

    /// Calls `look` until it finds something or the moment is over; then whoever calls sleeps, and tells
    /// [`Spin::slept`] for how long.
    pub(super) fn look<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let moment = self.moment.load(Ordering::Relaxed);
        if moment == 0 {
            return None;
        }
        let until = Instant::now() + Duration::from_nanos(u64::from(moment));
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if Instant::now() >= until {
                let next = if moment / 2 < SHORTEST { 0 } else { moment / 2 };
                self.moment.store(next, Ordering::Relaxed);
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Slept for so long before a request came.
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

    #[test]
    fn looks_only_after_short_sleeps_and_less_each_time_in_vain() {
        let spin = Spin::new(2);
        let moment = |spin: &Spin| spin.moment.load(Ordering::Relaxed);
        assert_eq!(spin.look(|| Some(1)), None);
        spin.slept(Duration::from_secs(1));
        assert_eq!(moment(&spin), 0);
        (0..9).for_each(|_| spin.slept(Duration::from_micros(1)));
        assert_eq!(moment(&spin), LONGEST);
        for _ in 0..9 {
            assert_eq!(spin.look(|| None::<()>), None);
        }
        assert_eq!(moment(&spin), 0);
        spin.slept(Duration::from_micros(1));
        let mut looks = 0;
        assert_eq!(
            spin.look(|| (looks > 0).then_some(7).or_else(|| {
                looks += 1;
                None
            })),
            Some(7)
        );
        assert_eq!(moment(&spin), SHORTEST);
        let single = Spin::new(1);
        single.slept(Duration::from_micros(1));
        assert_eq!(single.look(|| Some(1)), None);
    }
}
