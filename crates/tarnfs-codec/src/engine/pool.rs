use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tarnfs_source::{Budget, Grant};

use super::lock;
use crate::PIECE;
use crate::sync::Mutex;

/// Memory of pieces that nobody needs any more, kept for the next ones: what the kernel hands out anew it has to clear
/// first, which costs a sequential reader a fifth of its time.
#[derive(Debug)]
pub(super) struct Pool {
    /// Each of [`PIECE`] bytes.
    free: Mutex<Vec<(Box<[u8]>, Grant)>>,
    /// How many it keeps.
    most: usize,
    budget: Budget,
}

/// The bytes of a piece.
pub(super) struct Piece {
    bytes: Box<[u8]>,
    pool: Arc<Pool>,
}

/// Some more than a sequential reader leaves behind at once.
const MOST: usize = 32;

impl Pool {
    /// A pool that keeps a small part of `budget`.
    pub(super) fn new(budget: &Budget) -> Arc<Self> {
        let most = MOST.min(budget.limit() / 32 / PIECE);
        Arc::new(Self { free: Mutex::default(), most, budget: budget.clone() })
    }

    /// `length` bytes, of any content.
    pub(super) fn piece(self: &Arc<Self>, length: usize) -> Piece {
        let used = if length == PIECE { lock(&self.free).pop() } else { None };
        let bytes = used.map_or_else(|| vec![0; length].into_boxed_slice(), |(bytes, _)| bytes);
        Piece { bytes, pool: Arc::clone(self) }
    }

    /// Bytes that it keeps.
    pub(super) fn memory(&self) -> usize {
        lock(&self.free).len() * PIECE
    }

    /// Gives back what it keeps.
    pub(super) fn clear(&self) {
        let free = std::mem::take(&mut *lock(&self.free));
        drop(free);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.bytes.len() == PIECE {
            let mut free = lock(&self.pool.free);
            if free.len() < self.pool.most
                && let Some(grant) = self.pool.budget.take(PIECE)
            {
                free.push((std::mem::take(&mut self.bytes), grant));
            }
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Piece({} bytes)", self.bytes.len())
    }
}
