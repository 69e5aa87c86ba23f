//! Processes of their own.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
        let child = command.spawn()?;
        // Else the pipe would never end: this process had its other end open.
        drop(command);
        let id = child.id();
        state.children.push(child);
        drop(state);
        let children = Arc::clone(self);
        thread::Builder::new().name("tarnfs-command".to_owned()).stack_size(256 << 10).spawn(move || {
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
        Ok(())
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
