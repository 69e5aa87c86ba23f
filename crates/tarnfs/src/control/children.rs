//! Processes of their own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// As many at a time; each has a thread that takes what it says.
const MOST: usize = 64;

/// Those that run.
#[derive(Debug, Default)]
pub(super) struct Children(Mutex<ChildrenState>);

#[derive(Debug, Default)]
struct ChildrenState {
    children: Vec<Child>,
    /// No more are started.
    has_ended: bool,
}

impl Children {
    fn state(&self) -> MutexGuard<'_, ChildrenState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts this program with other arguments; `say` is told what it says, and how it ended, as command `number`.
    pub(super) fn start(
        self: &Arc<Self>,
        arguments: &[OsString],
        number: u64,
        say: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name("tarnfs-command".to_owned()).stack_size(256 << 10);
        self.start_on(thread, arguments, number, say)
    }

    fn start_on(
        self: &Arc<Self>,
        thread: thread::Builder,
        arguments: &[OsString],
        number: u64,
        say: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.state();
        if state.has_ended {
            return Err(io::Error::other("the mount ends"));
        }
        if state.children.len() >= MOST {
            return Err(io::Error::other(format!("{MOST} commands run already")));
        }
        let (mut output, theirs) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tarnfs").args(arguments).current_dir("/").stdin(Stdio::null());
        command.stdout(theirs.try_clone()?).stderr(theirs);
        // Before the program: nobody would wait for one that has no thread.
        let (started, told) = mpsc::channel();
        let children = Arc::clone(self);
        thread.spawn(move || {
            let Ok(id) = told.recv() else { return };
            let mut buffer = [0; 4096];
            // What cannot be read is lost; how it ends is still told.
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                say(&buffer[..length]);
            }
            let ended = children.wait(id);
            say(match ended {
                Ok(status) if status.success() => format!("command {number}: done\n"),
                Ok(status) => format!("command {number}: failed: {status}\n"),
                Err(error) => format!("command {number}: {error}\n"),
            }
            .as_bytes());
        })?;
        let child = command.spawn()?;
        // Else the pipe would never end: this process had its other end open.
        drop(command);
        let id = child.id();
        state.children.push(child);
        drop(state);
        started.send(id).map_err(io::Error::other)
    }

    /// Waits for one, without keeping [`Children::end`] from asking it to end.
    fn wait(&self, id: u32) -> io::Result<ExitStatus> {
        const NAP: Duration = Duration::from_millis(20);
        loop {
            {
                let mut state = self.state();
                let child = state.children.iter_mut().find(|child| child.id() == id).ok_or(io::ErrorKind::NotFound)?;
                if let Some(status) = child.try_wait()? {
                    state.children.retain(|child| child.id() != id);
                    return Ok(status);
                }
            }
            // Seldom: it has closed its outputs, and nearly all that do have ended.
            thread::sleep(NAP);
        }
    }

    /// Asks all to end.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        for child in &state.children {
            // It has not been waited for, so the number is still its own; one that has ended already takes no harm.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that nobody would wait for is not started.
    #[test]
    fn nothing_is_started_without_a_thread() {
        let children = Arc::new(Children::default());
        let thread = thread::Builder::new().stack_size(1 << 60);
        let (say, said) = mpsc::channel();
        let started = children.start_on(thread, &["--list".into()], 1, move |text| say.send(text.to_vec()).unwrap());
        assert!(started.is_err() && children.state().children.is_empty());
        assert!(said.recv().is_err());
        let (say, said) = mpsc::channel();
        children.start(&["--list".into()], 2, move |text| say.send(text.to_vec()).unwrap()).unwrap();
        let said: Vec<u8> = said.iter().flatten().collect();
        assert!(String::from_utf8(said).unwrap().ends_with("command 2: done\n"));
        assert!(children.state().children.is_empty());
    }
}
