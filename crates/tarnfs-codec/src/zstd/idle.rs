use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::block::Blocks;

/// A few are kept for the next decoder: a random read that has to touch the pages of a new window first takes
/// noticeably longer.
static IDLE: Mutex<Vec<Blocks>> = Mutex::new(Vec::new());
/// Decoders kept at most.
const MOST_IDLE: usize = 4;
/// One that has grown larger is not kept. Frames that pzstd and zstd write at their usual levels stay below.
const LARGEST_IDLE: usize = 4 << 20;

/// Drops those that are kept.
pub(crate) fn give_back() {
    let idle = std::mem::take(&mut *IDLE.lock().unwrap_or_else(PoisonError::into_inner));
    drop(idle);
}

/// A decoder of blocks, on loan.
pub(super) struct Loan(Option<Blocks>);

impl Loan {
    /// One that was used before, or a new one.
    pub(super) fn take() -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(idle.unwrap_or_else(Blocks::new)))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(mut blocks) = self.0.take().filter(|blocks| blocks.memory() <= LARGEST_IDLE) else { return };
        blocks.begin_with(None);
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push(blocks);
        }
    }
}

impl Deref for Loan {
    type Target = Blocks;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Some(blocks) => blocks,
            None => unreachable!("it is there until it is dropped"),
        }
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            Some(blocks) => blocks,
            None => unreachable!("it is there until it is dropped"),
        }
    }
}
