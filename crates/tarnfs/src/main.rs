//! `tarnfs`: archives as a file system.

mod accounts;
mod args;
mod asking;
mod commands;
mod control;
mod daemon;
mod exit;
mod globs;
mod hide;
mod indexer;
mod input;
mod inside;
mod json;
mod logging;
mod made;
mod memory;
mod mountpoint;
mod overlay;
mod progress;
mod prompt;
mod reading;
mod remote;
mod run;
mod sandbox;
mod signals;
mod terminal;
mod times;
mod typos;
mod watcher;

use std::process::ExitCode;

use exit::Code;
use tarnfs_source::Setting;

fn main() -> ExitCode {
    daemon::note_inherited();
    memory::share_free_memory();
    accounts::ask_system();
    Setting::call_them(|setting| format!("--{}", setting.name()));
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(is_told) = tarnfs_remote::answer_ssh(&arguments) {
        return if is_told { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let is_mount_helper = args::is_mount_helper(&arguments);
    let (result, colour) = run::run(arguments);
    let is_broken_pipe = result.as_ref().is_err_and(exit::Failure::is_broken_pipe);
    let (code, has_failed) = match result {
        Ok(code) => (code, false),
        Err(failure) => {
            terminal::report(&failure, colour);
            (failure.code, true)
        }
    };
    logging::flush();
    if is_broken_pipe {
        signals::end_by_broken_pipe();
    }
    match (is_mount_helper, has_failed) {
        (true, false) => code.of_mount_helper(),
        // Damage that kept it from being mounted is no success.
        (true, true) => Code::CannotMount.of_mount_helper(),
        (false, _) => code.into(),
    }
}
