//! Running programs, and what it costs.
//!
//! A [`Program`] is one that is installed. A [`Job`] is one call of it. [`in_turn`] says in which order programs are
//! measured, and a [`Summary`] is what several runs gave.

mod caches;
mod job;
mod memory;
mod program;
mod summary;

pub use caches::{Caches, forget};
pub use job::{Done, Input, Job, Kept, Reason, Usage, own_memory};
pub(crate) use memory::{Sampler, peak_of};
pub use program::Program;
pub use summary::{Summary, in_turn};
