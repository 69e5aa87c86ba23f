//! What a mount shows, and how it begins and ends.

#[path = "../support/gated.rs"]
mod gated;
#[path = "../support/mod.rs"]
mod support;

mod access;
mod control;
mod daemon;
mod folders;
mod kernel;
mod listing;
mod loops;
mod mount;
mod union;
mod versions;
mod watcher;
