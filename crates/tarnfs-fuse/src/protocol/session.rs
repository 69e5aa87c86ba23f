//! The threads that read requests.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::abi::{IN_HEADER, In, LEAST_MINOR, MAJOR, MINOR, Out, capability, opcode};
use super::reply::{
    Reply, ReplyAttributes, ReplyData, ReplyDone, ReplyEntry, ReplyIoctl, ReplyNames, ReplyOpen, ReplySeek,
    ReplyStatfs, ReplyXattr,
};
use super::spin::Spin;
use super::turns::{Lead, Turn, Turns};
use super::{Filesystem, How, Kernel, changes};
use crate::buffers::MOST_BYTES;
use crate::guard;

/// Room for a request. The largest that has no bytes for a file sets an extended attribute of 64 KiB; the kernel wants
/// a page of room for data, too.
pub(super) const REQUEST: usize = 128 << 10;

/// The write that the kernel insists on: a page.
const LEAST_WRITE: u32 = 4096;

/// The largest read in pages of so many bytes: 1 MiB, and not more than 256 pages, the most that the kernel allows
/// unless told otherwise. What is longer than [`MOST_BYTES`] is not answered whole.
fn most_pages(page: usize) -> u16 {
    /// See above.
    const MOST: usize = 256;
    (MOST_BYTES / page.max(1)).clamp(1, MOST) as u16
}

#[expect(unsafe_code, reason = "a question to the system")]
fn page_size() -> usize {
    // SAFETY: asks for a number, and changes nothing.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Reads ahead that the kernel may have waiting. Its default of 12 is too few to keep all cores decoding.
const MOST_AHEAD: u16 = 64;

/// Of each thread: requests that need no waiting are answered on it.
pub(crate) const STACK: usize = 1 << 20;

/// A connection that the kernel has accepted.
pub(crate) struct Session<F> {
    filesystem: F,
    /// One for each thread.
    devices: Vec<Arc<File>>,
    /// Room for a request, with the bytes of the largest write.
    room: usize,
    spin: Spin,
    turns: Turns,
}

impl<F> std::fmt::Debug for Session<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "a session of {} threads", self.devices.len())
    }
}

impl<F: Filesystem> Session<F> {
    /// Agrees with the kernel on how to go on, over the `device` of a fresh mount. `own_queues`: each of the `threads`
    /// gets a queue of its own, where the kernel lets us open the device once more.
    pub(crate) fn begin(mut filesystem: F, device: File, threads: usize, own_queues: bool) -> io::Result<Self> {
        let device = Arc::new(device);
        let mut buffer = vec![0; REQUEST];
        let most_written = greet(&device, &mut buffer, &mut filesystem)?;
        let room = REQUEST + if most_written > LEAST_WRITE { most_written as usize } else { 0 };
        let mut devices = vec![Arc::clone(&device)];
        while devices.len() < threads {
            let own = if own_queues { clone_device(&device).ok() } else { None };
            devices.push(own.map_or_else(|| Arc::clone(&device), Arc::new));
        }
        for device in &devices {
            // So that looking for a request does not wait for one.
            fcntl_setfl(device, fcntl_getfl(device)? | OFlags::NONBLOCK)?;
        }
        let spin = Spin::new(thread::available_parallelism().map_or(1, usize::from));
        Ok(Self { filesystem, devices, room, spin, turns: Turns::default() })
    }

    /// Answers requests until the file system is unmounted; tells `gone` as soon as it is.
    pub(crate) fn run(&self, gone: &(dyn Fn() + Sync)) -> io::Result<()> {
        thread::scope(|scope| {
            let mut others = Vec::new();
            for (number, device) in self.devices.iter().enumerate().skip(1) {
                let name = format!("tarnfs-kernel-{number}");
                let work = || self.serve(device, self.turns.stand_by(), gone);
                match thread::Builder::new().name(name).stack_size(STACK).spawn_scoped(scope, work) {
                    Ok(thread) => others.push(thread),
                    // One less to help.
                    Err(error) => log::error!("cannot start a thread: {error}"),
                }
            }
            let aside = thread::Builder::new().name("tarnfs-kernel-aside".to_owned()).stack_size(STACK);
            match aside.spawn_scoped(scope, || self.serve_aside(&self.devices[0], gone)) {
                Ok(thread) => others.push(thread),
                Err(error) => log::error!("cannot start a thread: {error}"),
            }
            let mut result = self.serve(&self.devices[0], Turn::Lead(self.turns.first()), gone);
            for other in others {
                let ended = other.join();
                result = result
                    .and(ended.unwrap_or_else(|_| Err(io::Error::other("a thread that answers the kernel panicked"))));
            }
            result
        })
    }

    /// What one thread does, turn after turn.
    fn serve(&self, device: &Arc<File>, mut turn: Turn, gone: &(dyn Fn() + Sync)) -> io::Result<()> {
        let mut buffer = vec![0; self.room];
        // Whatever ends this thread ends the others, too: without a leader nobody would answer.
        let _finish = Finish(&self.turns);
        loop {
            match turn {
                Turn::Lead(lead) => {
                    if !self.lead(device, &mut buffer, lead, &|| false)? {
                        gone();
                        return Ok(());
                    }
                }
                Turn::Help => {
                    while let Received::Request(length) = receive(device, &mut buffer)? {
                        self.dispatch(device, &buffer[..length]);
                    }
                }
                Turn::End => return Ok(()),
            }
            turn = self.turns.stand_by();
        }
    }

    /// What the thread does that leads while all others are stuck. It must not get stuck as well: then a request would
    /// not even be known, and get no error at its deadline. So all that may wait is handed to others meanwhile.
    fn serve_aside(&self, device: &Arc<File>, gone: &(dyn Fn() + Sync)) -> io::Result<()> {
        let _finish = Finish(&self.turns);
        while let Some(lead) = self.turns.stand_aside() {
            log::debug!("all threads that answer the kernel are held up: what may have to wait is handed to others");
            self.filesystem.all_are_stuck(true);
            let mut buffer = vec![0; self.room];
            let goes_on = self.lead(device, &mut buffer, lead, &|| self.turns.give_back());
            self.filesystem.all_are_stuck(false);
            if !goes_on? {
                gone();
                break;
            }
        }
        Ok(())
    }

    /// Answers requests until another thread leads, or `is_over` says so after one; false once the file system is
    /// unmounted.
    fn lead(
        &self,
        device: &Arc<File>,
        buffer: &mut [u8],
        mut lead: Lead,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        /// Requests that were there at once, one after the other, which mean that more programs ask than one thread can
        /// answer.
        const PILE: u32 = 8;
        let mut piled = 0;
        loop {
            let mut received = receive(device, buffer)?;
            piled = if matches!(received, Received::Request(_)) { piled + 1 } else { 0 };
            if matches!(received, Received::Nothing) {
                received = self.wait(device, buffer)?;
            }
            let length = match received {
                Received::Request(length) => length,
                Received::Nothing => continue,
                Received::End => return Ok(false),
            };
            if piled >= PILE {
                piled = 0;
                self.turns.call_for_help();
            }
            self.turns.begin(&mut lead);
            self.dispatch(device, &buffer[..length]);
            if !self.turns.end(&mut lead) || is_over() {
                return Ok(true);
            }
        }
    }

    /// Waits for a request, awake or asleep.
    fn wait(&self, device: &File, buffer: &mut [u8]) -> io::Result<Received> {
        if !self.filesystem.is_busy() {
            // Cheaper than to try and read.
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let is_there = || matches!(poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&at_once)), Ok(1..));
            let look = || if is_there() { Some(receive(device, buffer)) } else { None };
            if let Some(received) = self.spin.look(look) {
                return received;
            }
        }
        let since = Instant::now();
        match poll(&mut [PollFd::new(device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        self.spin.slept(since.elapsed());
        receive(device, buffer)
    }

    /// Answers a request. A panic costs that request and not this thread: without it, nobody might answer any more.
    fn dispatch(&self, device: &Arc<File>, request: &[u8]) {
        let Err(told) = guard::catch(|| self.answer(device, request)) else { return };
        // It has its answer by now.
        self.filesystem.panicked(&told);
    }

    fn answer(&self, device: &Arc<File>, request: &[u8]) {
        let Some(Request { opcode, unique, node, user, group, mut body }) = parse(request) else {
            log::error!("the kernel sent a request of {} bytes, too few", request.len());
            return;
        };
        let filesystem = &self.filesystem;
        let reply = Reply::new(device, unique);
        match opcode {
            // These have no answer.
            opcode::FORGET => {
                reply.not_due();
                filesystem.forget(node, body.u64());
            }
            opcode::BATCH_FORGET => {
                reply.not_due();
                let (count, _) = (body.u32(), body.u32());
                // Never more than the request has.
                for _ in 0..(count as usize).min(body.0.len() / 16) {
                    filesystem.forget(body.u64(), body.u64());
                }
            }
            opcode::NOTIFY_REPLY => reply.not_due(),
            opcode::LOOKUP => filesystem.lookup(node, body.name(), ReplyEntry(reply)),
            opcode::GETATTR => filesystem.getattr(node, ReplyAttributes(reply)),
            opcode::READLINK => filesystem.readlink(node, ReplyData(reply)),
            opcode::OPEN => {
                filesystem.open(node, How::new(body.u32(), user), ReplyOpen(reply));
            }
            opcode::ACCESS => filesystem.access(node, body.u32() & W_OK != 0, reply),
            opcode::OPENDIR => filesystem.opendir(node, ReplyOpen(reply)),
            opcode::FLUSH => filesystem.flush(node, body.u64(), ReplyDone(reply)),
            opcode::RELEASE => filesystem.release(body.u64(), reply),
            opcode::RELEASEDIR => filesystem.releasedir(node, reply),
            opcode::DESTROY => reply.done(),
            opcode::READ => {
                let (handle, offset, size) = (body.u64(), body.u64(), body.u32());
                filesystem.read(node, handle, offset, size, ReplyData(reply));
            }
            opcode::READDIR | opcode::READDIRPLUS => {
                let (_handle, offset, size) = (body.u64(), body.u64(), body.u32());
                let plus = opcode == opcode::READDIRPLUS;
                filesystem.readdir(node, offset, ReplyNames::new(reply, size, plus));
            }
            opcode::LSEEK => {
                let (handle, offset, whence) = (body.u64(), body.u64(), body.u32());
                filesystem.lseek(node, handle, offset, whence, ReplySeek(reply));
            }
            opcode::STATFS => filesystem.statfs(ReplyStatfs(reply)),
            opcode::GETXATTR => {
                let (room, _) = (body.u32(), body.u32());
                filesystem.getxattr(node, body.name(), room, ReplyXattr(reply));
            }
            opcode::LISTXATTR => filesystem.listxattr(node, body.u32(), ReplyXattr(reply)),
            // Not there: perhaps another thread has read it and is about to work on it, so the kernel is to say it
            // again.
            opcode::INTERRUPT if filesystem.interrupt(body.u64()) => reply.not_due(),
            opcode::INTERRUPT => reply.error(Errno::AGAIN),
            opcode::IOCTL => {
                let (_handle, _flags, command) = (body.u64(), body.u32(), body.u32());
                let (_argument, _given, room) = (body.u64(), body.u32(), body.u32());
                filesystem.ioctl(node, command, room, ReplyIoctl(reply));
            }
            opcode::SETATTR
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::WRITE
            | opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE => changes::answer(filesystem, (opcode, node, body), (user, group), reply),
            _ => filesystem.other(reply),
        }
    }
}

/// A request, as far as all of them are the same.
struct Request<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    user: u32,
    group: u32,
    /// What follows the header.
    body: In<'a>,
}

fn parse(request: &[u8]) -> Option<Request<'_>> {
    let (header, body) = request.split_at_checked(IN_HEADER)?;
    let mut header = In(header);
    let (_length, opcode, unique, node) = (header.u32(), header.u32(), header.u64(), header.u64());
    Some(Request { opcode, unique, node, user: header.u32(), group: header.u32(), body: In(body) })
}

/// `mask` of `access(2)`.
const W_OK: u32 = 2;

/// What a look at the device finds.
pub(super) enum Received {
    /// A request of so many bytes.
    Request(usize),
    Nothing,
    /// The file system is unmounted, or somebody has ended the connection.
    End,
}

/// Reads a request, if there is one.
pub(super) fn receive(mut device: &File, buffer: &mut [u8]) -> io::Result<Received> {
    received(device.read(buffer))
}

/// What reading from the device has come to.
fn received(read: io::Result<usize>) -> io::Result<Received> {
    /// Until there may be memory again.
    const PAUSE: Duration = Duration::from_millis(10);
    match read {
        Ok(length) => Ok(Received::Request(length)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::End),
            // The request was taken back before it was read, or nothing has happened.
            Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(Received::Nothing),
            // The request waits on.
            Some(Errno::NOMEM) => {
                thread::sleep(PAUSE);
                Ok(Received::Nothing)
            }
            _ => Err(error),
        },
    }
}

/// Lets the other threads end with this one.
struct Finish<'a>(&'a Turns);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// `struct fuse_init_in`.
pub(super) struct Init {
    unique: u64,
    pub(super) major: u32,
    pub(super) minor: u32,
    /// The largest read ahead, in bytes.
    most_ahead: u32,
    /// Its [`capability`]s.
    pub(super) offered: u64,
}

/// `request`, if it is the one that begins a mount.
pub(super) fn init(request: &[u8]) -> Option<Init> {
    let Some(Request { opcode: opcode::INIT, unique, mut body, .. }) = parse(request) else { return None };
    let (major, minor, most_ahead, offered) = (body.u32(), body.u32(), body.u32(), u64::from(body.u32()));
    let offered = if offered & capability::INIT_EXT == 0 { offered } else { offered | u64::from(body.u32()) << 32 };
    Some(Init { unique, major, minor, most_ahead, offered })
}

/// `INIT`, once or twice: a kernel of a later major version asks again in ours. Returns the most bytes of a write.
fn greet(device: &Arc<File>, buffer: &mut [u8], filesystem: &mut impl Filesystem) -> io::Result<u32> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::Unsupported, what);
    loop {
        let length = match receive(device, buffer)? {
            Received::Request(length) => length,
            Received::Nothing => continue,
            Received::End => return Err(wrong("unmounted at once".to_owned())),
        };
        let Some(Init { unique, major, minor, most_ahead, offered }) = init(&buffer[..length]) else {
            return Err(wrong("the kernel's first request is not the one that begins a mount".to_owned()));
        };
        let reply = Reply::new(device, unique);
        if major > MAJOR {
            let mut out = Out::default();
            out.u32(MAJOR).u32(MINOR).zeros(56);
            reply.send(&out.0);
            continue;
        }
        if major < MAJOR || minor < LEAST_MINOR {
            reply.error(Errno::PROTO);
            return Err(wrong(format!(
                "the kernel speaks version {major}.{minor} of FUSE, {MAJOR}.{LEAST_MINOR} is needed"
            )));
        }
        let mut kernel = Kernel { offered, taken: 0, most_written: None, device: Arc::clone(device) };
        kernel.take(capability::INIT_EXT);
        kernel.take(capability::ASYNC_READ);
        kernel.take(capability::MAX_PAGES);
        filesystem.init(&mut kernel);
        let mut out = Out::default();
        out.u32(MAJOR).u32(MINOR).u32(most_ahead).u32(kernel.taken as u32);
        out.u16(MOST_AHEAD).u16(MOST_AHEAD / 4 * 3);
        // Of the times it is told that they are exact.
        let most_written = kernel.most_written.unwrap_or(LEAST_WRITE);
        out.u32(most_written).u32(1).u16(most_pages(page_size())).u16(0).u32((kernel.taken >> 32) as u32);
        // On what files that the kernel reads itself may stand: a disk. Of two file systems on top of each other, which
        // is the most that the kernel takes, that leaves one to whoever mounts an overlay on ours.
        out.u32(u32::from(kernel.taken & capability::PASSTHROUGH != 0)).zeros(24);
        reply.send(&out.0);
        return Ok(most_written);
    }
}

#[expect(unsafe_code, reason = "a request to the device that no crate offers")]
/// Opens the device once more, for the same mount: requests that are read there wait in a queue of their own.
fn clone_device(device: &File) -> io::Result<File> {
    let clone = File::options().read(true).write(true).open("/dev/fuse")?;
    let number = device.as_raw_fd() as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 behind the pointer, which lives on this stack; rustix has no such call
    // of its own.
    let result = unsafe { rustix::ioctl::ioctl(&clone, rustix::ioctl::Setter::<CLONE, u32>::new(number)) };
    result?;
    Ok(clone)
}

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// An error ends the mount.
    #[test]
    fn want_of_memory_ends_no_mount() {
        for (errno, ends) in [(Errno::NOMEM, false), (Errno::INTR, false), (Errno::IO, true)] {
            let received = received(Err(errno.into()));
            assert_eq!((received.is_err(), matches!(received, Ok(Received::Nothing))), (ends, !ends), "{errno:?}");
        }
    }

    #[test]
    fn the_largest_read_fits_in_an_answer_whatever_a_page_is() {
        for (page, most) in [(4 << 10, 256), (16 << 10, 64), (64 << 10, 16), (2 << 20, 1), (1, 256), (0, 256)] {
            assert_eq!(most_pages(page), most, "{page}");
        }
        assert!(page_size().is_power_of_two());
    }
}
