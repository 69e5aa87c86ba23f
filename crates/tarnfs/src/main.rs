//! `tarnfs`: archives as a file system.

mod args;
mod commands;
mod control;
mod daemon;
mod exit;
mod inside;
mod logging;
mod made;
mod memory;
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
    memory::share_free_memory();
    let (result, colour) = run::run(std::env::args_os().collect());
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            terminal::report(&failure, colour);
            failure.code.into()
        }
    }
}
