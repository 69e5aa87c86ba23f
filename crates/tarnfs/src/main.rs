//! `tarnfs`: archives as a file system.

mod args;
mod commands;
mod control;
mod daemon;
mod exit;
mod inside;
mod logging;
mod made;
mod mountpoint;
mod progress;
mod run;
mod sandbox;
mod signals;
mod terminal;
mod watcher;

use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::note_inherited();
    share_free_memory();
    let (result, colour) = run::run(std::env::args_os().collect());
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            terminal::report(&failure, colour);
            failure.code.into()
        }
    }
}

/// Keeps malloc from giving each thread an arena of its own, up to eight for each core: what one thread has freed, no
/// other would use, and many readers at once took twice the memory of their budget. Our threads allocate seldom enough
/// to share.
#[cfg(target_env = "gnu")]
fn share_free_memory() {
    const ARENAS: i32 = 2;
    // SAFETY: sets a number inside malloc, before there is a second thread.
    #[allow(unsafe_code, reason = "nothing safe sets it")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

#[cfg(not(target_env = "gnu"))]
fn share_free_memory() {}
