//! Command lines, messages and documents.

#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/mod.rs"]
mod support;

mod command;
mod habits;
mod manners;
mod mistakes;
mod newcomers;
mod ratarmount_words;
mod readme;
mod semantics;
