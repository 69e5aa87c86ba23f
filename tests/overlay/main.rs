//! Writing to a mount (`--write-overlay`): the archive stays as it is, and what is written is found again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/mod.rs"]
mod support;

mod beside;
mod contents;
mod diffs;
mod errors;
mod full;
mod operations;
mod programs;
mod races;
mod random;
mod ratarmount;
mod survives;
mod twin;
mod words;
