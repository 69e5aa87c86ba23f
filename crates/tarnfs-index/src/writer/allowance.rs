//! Memory of tables that grow with the archive: of the memory budget as far as that goes, and up to a limit. What all
//! of one index take has another one, so that a small machine or control group gets an error and no process is killed.

use tarnfs_source::{Budget, Grant};

/// What a table may take of any archive, also where the memory budget is smaller.
const MOST: usize = 1 << 30;

/// Taken from the budget at once.
const STEP: usize = 4 << 20;

/// What one table may take, and what of the budget it has.
#[derive(Debug)]
pub(super) struct Allowance {
    pub(super) most: usize,
    budget: Budget,
    pub(super) grants: Vec<Grant>,
}

impl Allowance {
    /// What the table needs is taken from `budget`, so that others make do with less.
    pub(super) fn new(budget: &Budget) -> Self {
        Self { most: MOST.max(budget.limit()), budget: budget.clone(), grants: Vec::new() }
    }

    /// What all tables of one index may take: the budget, or half of the `memory` that there is.
    pub(super) fn together(budget: &Budget, memory: Option<u64>) -> usize {
        let memory = usize::try_from(memory.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        budget.limit().max(memory / 2)
    }

    /// `bytes`, which the table takes, if that is more than it may. Takes from the budget what was added.
    pub(super) fn beyond(&mut self, bytes: usize) -> Option<usize> {
        while self.grants.len().saturating_mul(STEP) < bytes
            && let Some(grant) = self.budget.take(STEP)
        {
            self.grants.push(grant);
        }
        (bytes > self.most).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_bounds_all_tables_together() {
        let together = |limit, memory| Allowance::together(&Budget::new(limit), memory);
        assert_eq!(together(64 << 20, Some(256 << 20)), 128 << 20);
        assert_eq!(together(64 << 20, Some(64 << 30)), 32 << 30);
        // What is asked for is given.
        assert_eq!(together(200 << 20, Some(256 << 20)), 200 << 20);
        assert_eq!(together(1, None), usize::MAX / 2);
    }
}
