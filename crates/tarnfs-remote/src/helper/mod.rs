//! A process that has the network, for one that gives up its rights.
//!
//! Whoever reads archives of strangers asks it for bytes over sockets, and for nothing else: it opens those URLs that
//! it was given when it began, and what lies below them, so who finds a hole in a decoder cannot have it ask somebody
//! else. The [`Client`] hands it one end of a new socket for each connection ([`wire`]). It ends when nobody has the
//! other end of the first socket.

mod client;
mod server;
mod wire;

pub use client::{Client, Distant, DistantFolder, Index};
pub use server::{serve, take_log};
