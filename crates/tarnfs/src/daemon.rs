//! Going to the background: the command returns when the mount is ready, and a daemon stays.
//!
//! The process forks before it starts a thread. The child does all the work, in the foreground's process group, so that
//! Ctrl-C and messages reach it; when the mount is ready it leaves the terminal and tells the parent how the parent is
//! to exit.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::exit::{Code, Failure};
use crate::signals;

/// Which of the two processes this is now.
pub(crate) enum Role {
    /// The one that was called: exits as the child said.
    Parent(Code),
    /// The one that stays.
    Child(Ready),
}

/// Tells the parent that it may exit. Dropped without [`Ready::report`], the parent takes the child's own exit code.
#[derive(Debug)]
pub(crate) struct Ready {
    parent: File,
    /// `/dev/null`, opened before the process gives up opening files.
    null: io::Result<File>,
}

/// Splits in two, while signals are held. In the parent, returns only when the child is ready or has ended.
pub(crate) fn fork() -> Result<Role, Failure> {
    let failed = |what: &str, error: io::Error| Failure::new(Code::Failure, format!("{what}: {error}; try -f"));
    let (from_child, to_parent) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed("making a pipe", error.into()))?;
    // SAFETY: no thread has been started yet (`main` calls this first of all for a mount), so the child has every lock
    // in the state in which it left it.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(failed("starting a process", io::Error::last_os_error())),
        0 => {
            drop(from_child);
            // Whoever ends the process that was called (`kill`, a supervisor) means this one. The pipe is what tells of
            // a parent that had ended before this call.
            let death = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
            death.map_err(|error| failed("asking to be ended with the parent", error.into()))?;
            close_inherited();
            let null = File::options().read(true).write(true).open("/dev/null");
            Ok(Role::Child(Ready { parent: File::from(to_parent), null }))
        }
        child => {
            drop(to_parent);
            // Ctrl-C is for the child, which cleans up; this process waits for it. One from before the fork the child
            // has not got.
            if signals::interrupt_waits() {
                // SAFETY: sends a signal to a process that is ours and has not been waited for.
                unsafe { libc::kill(child, libc::SIGINT) };
            }
            // SAFETY: setting a disposition to "ignore" installs no handler.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
            signals::release();
            let mut code = [0];
            match File::from(from_child).read_exact(&mut code) {
                Ok(()) => Ok(Role::Parent(Code::from_number(code[0]))),
                Err(_) => Ok(Role::Parent(ended(child))),
            }
        }
    }
}

/// Descriptors that the command line names: `/dev/fd/N` and what else leads to them.
pub(crate) fn from_arguments() -> Vec<RawFd> {
    let words = std::env::args_os().collect::<Vec<_>>();
    words.iter().flat_map(|word| named_descriptors(word.as_bytes())).collect()
}

fn named_descriptors(word: &[u8]) -> Vec<RawFd> {
    let word = String::from_utf8_lossy(word);
    let behind = word.split("/fd/").skip(1);
    behind
        .filter_map(|rest| {
            rest[..rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
        })
        .collect()
}

/// Descriptors above 2 that whoever started this program had open.
static INHERITED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Notes which descriptors are open: to be called before this program opens one of its own.
pub(crate) fn note_inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let number = |name: OsString| name.to_str()?.parse::<RawFd>().ok();
    let open: Vec<_> = folder.flatten().filter_map(|entry| number(entry.file_name())).filter(|&fd| fd > 2).collect();
    // The folder that was read is among them, and closed by now.
    // SAFETY: asks whether a descriptor is open, which changes nothing.
    let open = open.into_iter().filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect();
    let _ = INHERITED.set(open);
}

/// Closes what whoever started this program had open, but for standard input, output and error, and what the command
/// line names: a lock that hangs on a descriptor would last as long as the mount.
fn close_inherited() {
    let named = from_arguments();
    for &descriptor in INHERITED.get().into_iter().flatten().filter(|descriptor| !named.contains(descriptor)) {
        // SAFETY: it was open before this program opened anything, so nothing here owns it.
        unsafe { libc::close(descriptor) };
    }
}

/// The exit code of a child that ended before it was ready.
fn ended(child: libc::pid_t) -> Code {
    let mut status = 0;
    // SAFETY: `status` outlives the call; the child is ours and not waited for by anybody else.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if waited == child && libc::WIFEXITED(status) {
        Code::from_number(libc::WEXITSTATUS(status) as u8)
    } else if waited == child && libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGINT {
        Code::Interrupted
    } else {
        Code::Failure
    }
}

impl Ready {
    /// Leaves the terminal and lets the parent exit with `code`.
    pub(crate) fn report(mut self, code: Code) -> io::Result<()> {
        // A session of its own: closing the terminal does not end the mount. It fails only for a group leader, which
        // the child of a fork never is.
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(None)?;
        // The folder from which it was started must not be kept busy.
        rustix::process::chdir("/")?;
        stdio_to(&self.null?)?;
        self.parent.write_all(&[code as u8])
    }
}

/// Lets go of all that belongs to the daemon from which this process was forked: terminal, folder, and every open file
/// but `socket`. What it kept open of the mount would keep that alive. `name` is for those who look at the list of
/// processes.
pub(crate) fn detach(socket: UnixStream, null: &File, name: &CStr) -> io::Result<UnixStream> {
    const KEPT: RawFd = 3;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let _ = rustix::thread::set_name(name);
    stdio_to(null)?;
    let socket = socket.into_raw_fd();
    // SAFETY: the socket becomes descriptor 3, and whatever else is open is closed. Nobody in this process uses any of
    // it again: it goes on with what it is told over the socket alone, and ends without running destructors.
    unsafe {
        if socket == KEPT {
            libc::fcntl(KEPT, libc::F_SETFD, libc::FD_CLOEXEC);
        } else if libc::dup3(socket, KEPT, libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::syscall(libc::SYS_close_range, KEPT + 1, libc::c_uint::MAX, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(UnixStream::from_raw_fd(KEPT))
    }
}

/// Lets go of the terminal, or whatever standard input, output and error were.
fn stdio_to(null: &File) -> io::Result<()> {
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_found_in_words() {
        for (word, numbers) in [
            ("/dev/fd/7", &[7][..]),
            ("--index-file=/proc/self/fd/12", &[12]),
            ("/proc/1/fd/3/x:/dev/fd/4", &[3, 4]),
            ("/fd/", &[]),
            ("a/fd/x", &[]),
            ("7", &[]),
        ] {
            assert_eq!(named_descriptors(word.as_bytes()), numbers, "{word}");
        }
    }
}
