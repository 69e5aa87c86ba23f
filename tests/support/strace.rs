//! The program under strace: what it asks of the kernel, and what becomes of it when the kernel refuses or it is killed
//! there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use super::support::{Ran, Scratch};

/// One system call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// How many of that name its thread had made, this one included: what strace counts.
    pub(crate) number: u32,
    /// What stands behind the name: arguments with the paths of files, and the result.
    pub(crate) rest: String,
}

/// A command of the program under strace with `options`, in the scratch folder.
pub(crate) fn command(scratch: &Scratch, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o"])
        .arg(scratch.path("../").join(log_name(scratch)))
        .args(options)
        .arg(env!("CARGO_BIN_EXE_tarnfs"))
        .args(arguments)
        .current_dir(scratch.path(""))
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .env("TMPDIR", std::env::temp_dir())
        .stdin(std::process::Stdio::null());
    command
}

/// Beside the scratch folder: what is in there is looked at by tests.
fn log_name(scratch: &Scratch) -> String {
    format!("{}.strace", scratch.path("").file_name().unwrap().to_string_lossy())
}

/// Runs it so.
pub(crate) fn run(scratch: &Scratch, options: &[&str], arguments: &[&str]) -> Ran {
    let ran = Ran::from(command(scratch, options, arguments).output().unwrap());
    let _ = fs::remove_file(scratch.path("../").join(log_name(scratch)));
    ran
}

/// Every call that it makes, in order; with `-y` paths stand beside file descriptors.
pub(crate) fn calls(scratch: &Scratch, options: &[&str], arguments: &[&str]) -> (Ran, Vec<Call>) {
    let options = [&["-y"], options].concat();
    let ran = Ran::from(command(scratch, &options, arguments).output().unwrap());
    let log = scratch.path("../").join(log_name(scratch));
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(log).unwrap();
    let mut numbers: HashMap<(String, String), u32> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, rest)) = call.trim_start().split_once('(') else { continue };
        // Ends of calls that others came between, signals, exits.
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let number = numbers.entry((thread.to_owned(), name.to_owned())).or_default();
        *number += 1;
        calls.push(Call { name: name.to_owned(), number: *number, rest: rest.to_owned() });
    }
    (ran, calls)
}

/// False, with a line that says so, where strace is missing or may not be used.
pub(crate) fn have_strace() -> bool {
    let works = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    let works = works.is_ok_and(|output| output.status.success());
    if !works {
        println!("left out: strace is not installed, or processes may not be traced here");
    }
    works
}
