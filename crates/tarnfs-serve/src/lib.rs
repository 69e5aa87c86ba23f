//! Serves a [`Tree`](tarnfs_tree::Tree) over HTTP and WebDAV, for reading.
//!
//! A [`Server`] answers on one address. Connections wait in an asynchronous runtime, and cost a few KiB each. What may
//! take its time (looking into an archive, reading, decoding) is done by a bounded pool of threads. `answer.rs` has
//! what happens to a request, in order.

#![forbid(unsafe_code)]

mod access;
mod answer;
mod body;
mod conditions;
mod connection;
mod dav;
mod download;
mod file;
mod held;
mod kinds;
mod page;
mod pool;
mod server;
mod tls;
mod url;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use access::Logins;
pub use server::{Server, Settings, Stopper};
pub use tls::{Tls, TlsError};
