//! `tarnfs`: archives as a file system.

mod args;
mod commands;
mod daemon;
mod exit;
mod inside;
mod logging;
mod progress;
mod run;
mod sandbox;
mod signals;
mod terminal;
mod watcher;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (result, colour) = run::run(std::env::args_os().collect());
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            terminal::report(&failure, colour);
            failure.code.into()
        }
    }
}
