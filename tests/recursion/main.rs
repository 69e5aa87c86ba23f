//! Archives in archives.

#[path = "../support/foreground.rs"]
mod foreground;
#[path = "../support/mod.rs"]
mod support;

mod lazy;
mod nested_members;
mod recursion;
mod recursion_limits;
mod recursion_options;
