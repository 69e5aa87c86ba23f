//! Threads whose work can wait.

use rustix::thread::Pid;

/// Of `ioprio_set(2)`: one thread, and the class that gets the disk when nobody else wants it.
const IOPRIO_WHO_PROCESS: libc::c_long = 1;
const IOPRIO_CLASS_IDLE: libc::c_long = 3 << 13;

/// Gives `thread` of this process, or else the one that calls, the processor and the disk only while nobody else wants
/// them. The kernel may not know how: then it only says so in the log.
#[allow(unsafe_code, reason = "rustix has neither of the two calls")]
pub fn lowest_priority(thread: Option<Pid>) {
    // 0 is the one that calls.
    let number = Pid::as_raw(thread);
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `parameters`, which lives longer than the call. (Not by the function of the C library:
    // musl has none that does anything.)
    let processor =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, number, libc::SCHED_IDLE, &raw const parameters) };
    if processor != 0 {
        log::debug!("a thread keeps its priority: {}", std::io::Error::last_os_error());
        if let Err(error) = rustix::process::setpriority_process(thread.or(Some(rustix::thread::gettid())), 19) {
            log::debug!("it is not nice either: {error}");
        }
    }
    // SAFETY: no pointers.
    let disk = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, number, IOPRIO_CLASS_IDLE) };
    if disk != 0 {
        log::debug!("a thread keeps its priority at the disk: {}", std::io::Error::last_os_error());
    }
}

/// Gives the thread that calls less of the processor than others: not so little that who waits for a lock that it has
/// waits long.
pub fn low_priority() {
    /// A tenth of what others get.
    const NICE: i32 = 10;
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        log::debug!("a thread keeps its priority: {error}");
    }
}
