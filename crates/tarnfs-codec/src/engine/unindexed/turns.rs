//! Whose turn it is.

use super::super::lock;
use crate::sync::{Condvar, Mutex};

/// Lets those who want the same lock have it in the order in which they came. A lock by itself may go to whoever has
/// just let go of it, again and again, while another one waits for a minute.
#[derive(Default)]
pub(super) struct Turns {
    tickets: Mutex<Tickets>,
    /// Somebody has entered.
    changed: Condvar,
}

/// How many have come, and how many of them have entered.
#[derive(Default)]
struct Tickets {
    came: u64,
    entered: u64,
}

impl Turns {
    /// Has `enter` take the lock once all who came before have it or had it. It must not panic.
    pub(super) fn in_turn<T>(&self, enter: impl FnOnce() -> T) -> T {
        let mut tickets = lock(&self.tickets);
        let mine = tickets.came;
        tickets.came += 1;
        while tickets.entered != mine {
            tickets = self.changed.wait(tickets).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(tickets);
        let entered = enter();
        lock(&self.tickets).entered += 1;
        self.changed.notify_all();
        entered
    }

    /// How many wait, or have their turn and not the lock yet.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        let tickets = lock(&self.tickets);
        tickets.came - tickets.entered
    }
}
