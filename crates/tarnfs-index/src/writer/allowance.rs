//! Memory of tables that grow with the archive: of the memory budget as far as that goes, and up to a limit.

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
