//! Other programs that do the same.

#![allow(clippy::print_stdout, reason = "a test says what it could not test")]
#![allow(dead_code, reason = "each test program uses some of it")]

use std::path::{Path, PathBuf};

/// The real ratarmount, or `None` with a line that says so.
pub(crate) fn ratarmount() -> Option<PathBuf> {
    installed("ratarmount")
}

/// A program that `tests/prepare.sh` has installed beside it.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TARNFS_PEERS").map(|folder| Path::new(&folder).join("bin").join(name));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        println!("left out: no {name} (TARNFS_PEERS names the folder of its virtual environment)");
    }
    path
}
