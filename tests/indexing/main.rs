//! Indexes: ours, those of ratarmount, and what is kept beside them.

#[path = "../support/gated.rs"]
mod gated;
#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/strace.rs"]
mod strace;
#[path = "../support/mod.rs"]
mod support;

mod decoded_cache;
mod hashes;
mod index;
mod index_alone;
mod index_faults;
mod index_planted;
mod index_shared;
mod index_stale;
mod ratarmount;
