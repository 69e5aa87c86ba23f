//! Archives behind URLs: real servers on loopback, and what goes wrong on the way to them.

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod hostile;
mod lies;
mod proxy;
mod reading;
mod secrets;
mod servers;
