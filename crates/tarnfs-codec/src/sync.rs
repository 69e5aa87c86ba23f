//! Where threads meet: at what the standard library has, or with `--cfg shuttle` at what Shuttle has in its place,
//! which tries one schedule after the other (`engine/schedules.rs`).

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread, thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard},
    thread, thread_local,
};
