//! `tarnfs`: archives as a file system.

mod args;
mod commands;
mod control;
mod daemon;
mod exit;
mod globs;
mod inside;
mod json;
mod logging;
mod made;
mod mountpoint;
mod progress;
mod run;
mod sandbox;
mod signals;
mod terminal;
mod times;
mod watcher;

use std::process::ExitCode;

use exit::Code;

fn main() -> ExitCode {
    daemon::note_inherited();
    share_free_memory();
    let arguments: Vec<_> = std::env::args_os().collect();
    let is_mount_helper = args::is_mount_helper(&arguments);
    let (result, colour) = run::run(arguments);
    let (code, has_failed) = match result {
        Ok(code) => (code, false),
        Err(failure) => {
            terminal::report(&failure, colour);
            (failure.code, true)
        }
    };
    match (is_mount_helper, has_failed) {
        (true, false) => code.of_mount_helper(),
        // Damage that kept it from being mounted is no success.
        (true, true) => Code::CannotMount.of_mount_helper(),
        (false, _) => code.into(),
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
