//! Objects behind a URL, as bytes that can be read at any offset.
//!
//! [`RemoteSource`] is an object that is pinned to one version from the first byte to the last. It reads by ranges,
//! through memory and a cache of blocks on disk ([`BlockCache`]) that all processes of a user share. What goes over the
//! network for one scheme is a [`Backend`], and [`BACKENDS`] lists them: a new one is one file and one line there.
//!
//! A program that gives up its rights lets another process do all of that: [`helper`].

mod ahead;
mod backend;
mod cache;
mod credentials;
mod dropbox;
mod fetch;
mod ftp;
mod github;
pub mod helper;
mod http;
mod ipfs;
mod known;
mod open;
mod s3;
mod services;
mod sftp;
mod shelf;
mod source;
mod time;
mod trust;
mod url;
mod webdav;
mod xml;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use backend::{BACKENDS, Backend, Begun, Body, Entry, Fault, Object, Version, is_known_scheme};
pub use cache::BlockCache;
pub use credentials::Credentials;
pub use ftp::Ftp;
pub use open::{Opener, Settings};
pub use s3::Aws;
pub use services::Services;
pub use sftp::{Ssh, answer_ssh, needs_ssh, start_programs};
pub use source::RemoteSource;
pub use url::Url;
