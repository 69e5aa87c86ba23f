//! Who of the threads reads requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::deadline::lock;

/// One thread leads: it reads requests and answers them, one after the other. To wake another one for each would take
/// longer than most answers, so the others stand by. They help when requests pile up, and one takes the lead when the
/// leader has been at the same request for long: on a disk that sleeps, for instance.
///
/// All of them can be stuck at the same time, on a disk that does not answer any more. One more thread stands aside for
/// that: it takes the lead when nobody stands by, and gives it back as soon as somebody does.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Changes with each step of the leader: the lowest bit is 1 while it answers, the upper half the number of the
    /// lead.
    step: AtomicU64,
    /// Somebody stands by without looking up.
    dozing: AtomicBool,
    calls: Mutex<Calls>,
    changed: Condvar,
    /// The same for who stands aside, whom a call for help must not wake.
    changed_aside: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    help: bool,
    ended: bool,
    /// Threads that stand by.
    standing: usize,
    /// The lead is given to whoever stands by.
    given: bool,
}

/// What a thread that stood by is to do.
#[derive(Debug)]
pub(super) enum Turn {
    /// Lead, from here on.
    Lead(Lead),
    /// Answer what is waiting, and stand by again.
    Help,
    End,
}

/// The right to lead, until it is taken away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lead(u64);

/// How long a leader may be at one request before another takes the lead.
const NAP: Duration = Duration::from_millis(20);

/// How long a leader may be at one request, with nobody standing by, before who stands aside takes the lead.
const LONG_NAP: Duration = Duration::from_millis(500);

/// Naps without a request after which those who stand by sleep until there is one.
const QUIET_NAPS: u32 = 50;

impl Turns {
    /// The first lead.
    pub(super) fn first(&self) -> Lead {
        Lead(self.step.load(Ordering::SeqCst))
    }

    /// The leader begins to answer a request.
    pub(super) fn begin(&self, lead: &mut Lead) {
        self.advance(lead);
        if self.dozing.load(Ordering::SeqCst) {
            // Whoever dozes does so under this lock.
            let calls = lock(&self.calls);
            self.dozing.store(false, Ordering::SeqCst);
            drop(calls);
            self.notify_all();
        }
    }

    /// The leader has answered. False if another leads now.
    pub(super) fn end(&self, lead: &mut Lead) -> bool {
        self.advance(lead)
    }

    fn advance(&self, lead: &mut Lead) -> bool {
        let next = lead.0.wrapping_add(1);
        let leads = self.step.compare_exchange(lead.0, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        lead.0 = next;
        leads
    }

    /// Asks one of those who stand by for help.
    pub(super) fn call_for_help(&self) {
        lock(&self.calls).help = true;
        self.changed.notify_one();
    }

    /// Lets everybody end.
    pub(super) fn finish(&self) {
        lock(&self.calls).ended = true;
        self.notify_all();
    }

    fn notify_all(&self) {
        self.changed.notify_all();
        self.changed_aside.notify_all();
    }

    /// Takes the lead from whoever has it, if that one is still at `step`.
    fn take_lead(&self, step: u64) -> Option<Lead> {
        let lead = ((step >> 32).wrapping_add(1)) << 32;
        let taken = self.step.compare_exchange(step, lead, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok().then_some(Lead(lead))
    }

    /// Gives the lead to somebody who stands by; false if nobody does. Called between two requests.
    pub(super) fn give_back(&self) -> bool {
        let mut calls = lock(&self.calls);
        if calls.standing == 0 || calls.ended {
            return false;
        }
        calls.given = true;
        drop(calls);
        self.changed.notify_all();
        true
    }

    /// Stands aside until there is nobody else who could lead; `None` at the end.
    pub(super) fn stand_aside(&self) -> Option<Lead> {
        let mut calls = lock(&self.calls);
        let mut seen = self.step.load(Ordering::SeqCst);
        let mut quiet = false;
        loop {
            if calls.ended {
                return None;
            }
            if quiet {
                self.dozing.store(true, Ordering::SeqCst);
                // As in `stand_by`.
                if self.step.load(Ordering::SeqCst) == seen {
                    calls = self.changed_aside.wait(calls).unwrap_or_else(PoisonError::into_inner);
                }
            } else {
                let woken = self.changed_aside.wait_timeout(calls, LONG_NAP);
                calls = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
            let step = self.step.load(Ordering::SeqCst);
            if step != seen {
                (seen, quiet) = (step, false);
            } else if step & 1 == 0 {
                quiet = true;
            } else if calls.standing == 0
                && let Some(lead) = self.take_lead(step)
            {
                return Some(lead);
            }
        }
    }

    /// Stands by.
    pub(super) fn stand_by(&self) -> Turn {
        let mut calls = lock(&self.calls);
        calls.standing += 1;
        let (mut calls, turn) = self.next_turn(calls);
        calls.standing -= 1;
        turn
    }

    fn next_turn<'a>(&self, mut calls: MutexGuard<'a, Calls>) -> (MutexGuard<'a, Calls>, Turn) {
        let mut seen = self.step.load(Ordering::SeqCst);
        let mut quiet = 0;
        loop {
            if calls.ended {
                return (calls, Turn::End);
            }
            // Before all else: until somebody takes it, nobody leads.
            if std::mem::take(&mut calls.given)
                && let Some(lead) = self.take_lead(self.step.load(Ordering::SeqCst))
            {
                return (calls, Turn::Lead(lead));
            }
            if std::mem::take(&mut calls.help) {
                return (calls, Turn::Help);
            }
            if quiet >= QUIET_NAPS {
                self.dozing.store(true, Ordering::SeqCst);
                // The leader looks whether anybody dozes after it has stepped on: one of the two sees the other.
                if self.step.load(Ordering::SeqCst) == seen {
                    calls = self.changed.wait(calls).unwrap_or_else(PoisonError::into_inner);
                }
            } else {
                calls = self.changed.wait_timeout(calls, NAP).unwrap_or_else(PoisonError::into_inner).0;
            }
            let step = self.step.load(Ordering::SeqCst);
            if step != seen {
                (seen, quiet) = (step, 0);
            } else if step & 1 == 0 {
                quiet += 1;
            } else if let Some(lead) = self.take_lead(step) {
                return (calls, Turn::Lead(lead));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_leader_that_is_stuck_is_replaced_and_learns_of_it() {
        let turns = Turns::default();
        let mut stuck = turns.first();
        turns.begin(&mut stuck);
        let Turn::Lead(mut next) = turns.stand_by() else { panic!("nobody took the lead") };
        turns.begin(&mut next);
        assert!(!turns.end(&mut stuck));
        assert!(turns.end(&mut next));
        turns.begin(&mut next);
        assert!(turns.end(&mut next));
    }

    #[test]
    fn who_stands_aside_leads_only_while_nobody_else_can() {
        let turns = Turns::default();
        let mut stuck = turns.first();
        turns.begin(&mut stuck);
        // Whoever stands by takes the lead, and is stuck as well.
        let Turn::Lead(mut second) = turns.stand_by() else { panic!("nobody took the lead") };
        turns.begin(&mut second);
        let mut aside = turns.stand_aside().unwrap();
        assert!(!turns.end(&mut stuck) && !turns.end(&mut second));
        turns.begin(&mut aside);
        assert!(turns.end(&mut aside));
        assert!(!turns.give_back(), "nobody is there");
        thread::scope(|scope| {
            let other = scope.spawn(|| turns.stand_by());
            while !turns.give_back() {
                thread::yield_now();
            }
            // A call for help comes second: until the lead is taken nobody reads requests.
            turns.call_for_help();
            assert!(matches!(other.join().unwrap(), Turn::Lead(_)));
            let aside = scope.spawn(|| turns.stand_aside());
            turns.finish();
            assert_eq!(aside.join().unwrap(), None);
        });
    }

    #[test]
    fn who_stands_by_helps_ends_and_wakes_from_dozing() {
        let turns = Turns::default();
        let mut lead = turns.first();
        turns.call_for_help();
        assert!(matches!(turns.stand_by(), Turn::Help));
        thread::scope(|scope| {
            let other = scope.spawn(|| turns.stand_by());
            while !turns.dozing.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // Dozing, it sees that a request takes long all the same.
            turns.begin(&mut lead);
            assert!(matches!(other.join().unwrap(), Turn::Lead(_)));
            let other = scope.spawn(|| turns.stand_by());
            while !turns.dozing.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // Who dozes holds nothing that others need for that.
            turns.call_for_help();
            assert!(matches!(other.join().unwrap(), Turn::Help));
            let other = scope.spawn(|| turns.stand_by());
            turns.finish();
            assert!(matches!(other.join().unwrap(), Turn::End));
        });
    }
}
