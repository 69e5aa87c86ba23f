//! The commands that need no mount.

#[path = "../support/reports.rs"]
mod reports;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod advise;
mod bench;
mod bench_compress;
mod bench_index;
mod compare;
mod convert;
mod convert_lost;
mod create;
mod extract;
mod extract_others;
mod extract_safety;
mod extract_stopped;
mod find;
mod info;
mod serve;
mod serve_bounds;
mod serve_tls;
mod serve_url;
