//! What mounts say of themselves, asked for by processes that may hang.
//!
//! Who waits for an answer to a request that was read cannot be ended, not even by SIGKILL. So each mount is asked by a
//! process of its own, which nobody has to wait for.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::MountedTree;

/// What a mount says of itself is no longer.
const MOST: usize = 64 << 10;

/// The same of the answer to [`TELL`]: what the number of a request has room for on every machine.
const ROOM: usize = 8000;

/// The request (`ioctl(2)`) to the root of a mount by which it says what is mounted, a zero byte, and its statistics as
/// JSON. Others have attributes for that. But a kernel that may ask for an attribute asks for some of each file that is
/// listed.
pub(crate) const TELL: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<[u8; ROOM]>(b't', 1);

/// What a mount says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What is mounted, as [`MountOptions::source`](crate::MountOptions::source) has it, also where `fsname=` is what
    /// the table of mounts shows.
    pub source: Option<OsString>,
    /// What it has done, as JSON.
    pub statistics: String,
}

/// A process that asks one mount.
struct Asker {
    process: Pid,
    answer: OwnedFd,
    said: Vec<u8>,
    has_ended: bool,
}

/// What each of `mounts` says of itself, if it does so within `limit`, which is that of all of them together.
pub fn told<'a>(mounts: impl IntoIterator<Item = &'a MountedTree>, limit: Duration) -> Vec<Option<Told>> {
    let mut memory = vec![0; MOST];
    let start = |mount: &MountedTree| Asker::start(&mount.mount_point, &mut memory).ok();
    let mut askers: Vec<_> = mounts.into_iter().map(start).collect();
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut open: Vec<&mut Asker> = askers.iter_mut().flatten().filter(|asker| !asker.has_ended).collect();
        if open.is_empty() || left.is_zero() {
            break;
        }
        let mut polled: Vec<_> = open.iter().map(|asker| PollFd::new(&asker.answer, PollFlags::IN)).collect();
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
        let is_ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for (asker, _) in open.iter_mut().zip(is_ready).filter(|(_, is_ready)| *is_ready) {
            asker.receive(&mut memory);
        }
    }
    askers.into_iter().map(|asker| asker?.end()).collect()
}

impl Asker {
    /// `memory` is what the other process writes to: it must not ask for any.
    fn start(mount_point: &Path, memory: &mut [u8]) -> io::Result<Self> {
        let path = CString::new(mount_point.as_os_str().as_bytes())?;
        let name = CString::new(crate::STATISTICS_ATTRIBUTE)?;
        let (answer, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let to = to.as_raw_fd();
        #[expect(unsafe_code, reason = "fork(2), for a process that asks one question")]
        // SAFETY: the child calls what a signal handler may call, and ends.
        let forked = match unsafe { libc::fork() } {
            0 => ask(&path, &name, memory, to),
            forked => forked,
        };
        // As numbers of processes, -1 and 0 mean many: a signal to them must never be sent.
        let process = if forked > 0 { Pid::from_raw(forked) } else { None };
        let process = process.ok_or_else(io::Error::last_os_error)?;
        Ok(Self { process, answer, said: Vec::new(), has_ended: false })
    }

    fn receive(&mut self, memory: &mut [u8]) {
        match rustix::io::read(&self.answer, &mut *memory) {
            Ok(read @ 1..) if self.said.len() + read <= MOST => self.said.extend(memory.iter().take(read)),
            Err(Errno::INTR) => {}
            _ => self.has_ended = true,
        }
    }

    /// What was said. A process that hangs is not waited for: it may not end before the mount does.
    fn end(self) -> Option<Told> {
        if !self.has_ended {
            let _ = kill_process(self.process, Signal::KILL);
            let _ = waitpid(Some(self.process), WaitOptions::NOHANG);
            return None;
        }
        let _ = waitpid(Some(self.process), WaitOptions::empty());
        let mut said = self.said;
        // An attribute has the statistics alone.
        let source = said.iter().position(|&byte| byte == 0).map(|end| {
            let statistics = said.split_off(end + 1);
            said.truncate(end);
            OsString::from_vec(std::mem::replace(&mut said, statistics))
        });
        let statistics = String::from_utf8(said).ok().filter(|said| !said.is_empty())?;
        Some(Told { source, statistics })
    }
}

/// Writes what the mount at `path` says to `to`, and ends this process.
#[expect(unsafe_code, reason = "system calls in a process that has just been forked")]
fn ask(path: &CString, name: &CString, memory: &mut [u8], to: RawFd) -> ! {
    // Others wait for the end of what this program writes to, and of what its caller has open.
    // SAFETY: closes descriptors of this process, which uses none of them but the first one.
    unsafe {
        libc::dup2(to, 0);
        close_from(1);
    }
    // SAFETY: both names end with a zero, and there is room for either answer.
    let got = unsafe {
        let root = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        match libc::ioctl(root, TELL.into(), memory.as_mut_ptr()) {
            // A root that may not be read.
            -1 => libc::getxattr(path.as_ptr(), name.as_ptr(), memory.as_mut_ptr().cast(), memory.len()),
            got => got as libc::ssize_t,
        }
    };
    let mut rest = memory.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    while !rest.is_empty() {
        // SAFETY: so much is there.
        let written = unsafe { libc::write(0, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
            _ => break,
        }
    }
    // SAFETY: ends this process; nothing of the parent's is cleaned up.
    unsafe { libc::_exit(0) }
}

/// Closes all descriptors from `first` on.
///
/// # Safety
///
/// For a process that has just been forked and uses none of them: it calls what a signal handler may call.
#[expect(unsafe_code, reason = "system calls in a process that has just been forked")]
pub(crate) unsafe fn close_from(first: RawFd) {
    /// Where Linux is older than 5.9, so many are closed one by one.
    const MOST: RawFd = 1 << 16;
    // SAFETY: the caller uses none of them.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            for descriptor in first..MOST {
                libc::close(descriptor);
            }
        }
    }
}
