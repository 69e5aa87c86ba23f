//! Archives behind URLs: real servers on loopback, and what goes wrong on the way to them.

#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/mod.rs"]
mod support;

mod control;
mod faults;
mod folders;
mod ftp;
mod hostile;
mod indexes;
mod lies;
mod proxy;
mod reading;
mod s3;
mod secrets;
mod servers;
mod services;
mod ssh;
mod wire;
