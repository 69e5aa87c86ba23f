use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use zstd_safe::{DCtx, ResetDirective};

/// A few contexts are kept for the next decoder: a random read that has to touch the pages of a new window first
/// takes noticeably longer.
static IDLE: Mutex<Vec<DCtx<'static>>> = Mutex::new(Vec::new());
/// Contexts kept at most.
const MOST_IDLE: usize = 4;
/// A context that has grown larger is not kept. Frames that pzstd and zstd write at their usual levels stay below.
const LARGEST_IDLE: usize = 3 << 20;

/// A decompression context of libzstd, on loan.
pub(super) struct Context(Option<DCtx<'static>>);

impl Context {
    /// One that was used before, or a new one. `None` if there is no memory.
    pub(super) fn take() -> Option<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.or_else(DCtx::try_create).map(|context| Self(Some(context)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(mut context) = self.0.take() else { return };
        if context.sizeof() > LARGEST_IDLE || context.reset(ResetDirective::SessionAndParameters).is_err() {
            return;
        }
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push(context);
        }
    }
}

impl Deref for Context {
    type Target = DCtx<'static>;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Some(context) => context,
            None => unreachable!("a context is there until it is dropped"),
        }
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            Some(context) => context,
            None => unreachable!("a context is there until it is dropped"),
        }
    }
}
