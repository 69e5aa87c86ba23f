//! What the daemon gives up once the mount is there. It reads archives that may have been made by anybody; whoever
//! finds a hole in a decoder gets a process that can answer the kernel, read what was open already, and nothing else.
//!
//! Two layers. [`Files::give_up`] (Landlock): no path can be opened, made, renamed or removed but the few that are
//! named here; only for threads that are started later. [`give_up_calls`] (seccomp): system calls that serving a mount
//! does not need fail, for all threads. Where the kernel lacks one of them, the other has to do.

#![allow(unsafe_code)] // One question to the kernel that the crate does not let out.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::accounts;

/// The newest version of Landlock whose rights are known here; older kernels get those that they have.
const NEWEST: ABI = ABI::V6;

/// Restricts which files this thread, and those that it starts, can open; those below `folders` can still be read, and
/// those below `written` be made, written, renamed and removed. Says in the log what came of it.
pub(crate) fn give_up_files(folders: &[impl AsFd], written: Option<BorrowedFd<'_>>) {
    accounts::ask_nobody();
    match restrict(folders, written) {
        Ok(status) => {
            let how = match status {
                RulesetStatus::FullyEnforced => "on",
                RulesetStatus::PartiallyEnforced => "on, as far as this kernel knows it",
                RulesetStatus::NotEnforced => "off: this kernel has none",
            };
            log::debug!("sandbox for files: {how}");
        }
        Err(error) => log::debug!("no sandbox for files: {error}"),
    }
}

/// The version of Landlock that this kernel has, if it is switched on.
pub(crate) fn landlock_version() -> Option<u32> {
    const ONLY_THE_VERSION: u32 = 1;
    // SAFETY: with this flag the call reads no memory, makes nothing and returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, ONLY_THE_VERSION) };
    u32::try_from(version).ok()
}

/// Whether system calls can be given up: known for this processor, and the kernel can let them fail.
pub(crate) fn has_seccomp() -> bool {
    const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";
    !CALLS.is_empty()
        && std::fs::read_to_string(ACTIONS).is_ok_and(|actions| actions.split_whitespace().any(|it| it == "errno"))
}

/// What the process gives up that reads over the network: all files but those in the `cache`, what says who logs in
/// (`secrets`, files and folders), and what the system has for who looks up names; executing programs; and taking
/// connections.
pub(crate) fn keep_network(cache: Option<&Path>, secrets: &[PathBuf]) {
    match restrict_but_network(cache, secrets) {
        Ok(_) => log::debug!("sandbox of the process that reads over the network: on, as far as this kernel knows it"),
        Err(error) => log::debug!("no sandbox for the process that reads over the network: {error}"),
    }
}

fn restrict_but_network(cache: Option<&Path>, secrets: &[PathBuf]) -> Result<RulesetStatus, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    // Name servers, hosts, certificates, and the libraries that look names up.
    let system = ["/etc", "/usr", "/lib", "/lib64", "/run", "/proc/self/exe", "/proc/self/maps"];
    for path in system.into_iter().map(Path::new).chain(secrets.iter().map(PathBuf::as_path)) {
        let access = if path.is_dir() { read } else { AccessFs::ReadFile.into() };
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
    }
    if let Some(cache) = cache.and_then(|cache| PathFd::new(cache).ok()) {
        let all = AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::MakeSock | AccessFs::IoctlDev);
        rules = rules.add_rule(PathBeneath::new(cache, all))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn restrict(folders: &[impl AsFd], written: Option<BorrowedFd<'_>>) -> Result<RulesetStatus, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    // The backtrace of a panic has names of functions in it. The program not by its own path, which may lead into the
    // mount that nobody serves yet.
    let own = ["/proc/self/exe", "/proc/self/maps"];
    for path in own {
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, AccessFs::ReadFile))?;
        }
    }
    // Extended attributes are asked for by name below a descriptor, which opens nothing. A file that the kernel reads
    // itself it opens with our rights, also for whoever executes it; that we cannot execute anything is left to the
    // system calls.
    let below = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    for folder in folders {
        rules = rules.add_rule(PathBeneath::new(folder, below))?;
    }
    // Contents of files, and folders that they lie in: no links, devices or sockets. They are executed as above.
    let within = AccessFs::ReadFile
        | AccessFs::Execute
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::ReadDir
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    if let Some(written) = written {
        rules = rules.add_rule(PathBeneath::new(written, within))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Restricts which system calls all threads of this process can make. Those that are left out fail with EPERM, as
/// nothing here ends because a call failed. `has_folders`: what is below folders is still to be looked at;
/// `is_written`: files are still to be written in the folder of an overlay. Says in the log what came of it.
pub(crate) fn give_up_calls(has_folders: bool, is_written: bool) {
    accounts::ask_nobody();
    if CALLS.is_empty() {
        return log::debug!("no sandbox for system calls on this processor");
    }
    let given_up = filters(has_folders, is_written, std::process::id())
        .and_then(|filters| filters.iter().try_for_each(|filter| seccompiler::apply_filter_all_threads(filter)));
    match given_up {
        Ok(()) => log::debug!("sandbox for system calls: on"),
        Err(error) => log::debug!("no sandbox for system calls: {error}"),
    }
}

/// What is to be applied, one after the other, for the process of this number.
fn filters(has_folders: bool, is_written: bool, process: u32) -> Result<[BpfProgram; 2], seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<_>> = CALLS.iter().map(|&call| (call, Vec::new())).collect();
    rules.extend(restricted(process)?);
    if has_folders {
        rules.extend(CALLS_FOR_FOLDERS.iter().map(|&call| (call, Vec::new())));
        rules.insert(libc::SYS_ioctl, backing_files()?);
    }
    if is_written {
        rules.extend(CALLS_FOR_OVERLAYS.iter().map(|&call| (call, Vec::new())));
        rules.insert(libc::SYS_ioctl, backing_files()?);
    }
    let errno = |number: i32| SeccompAction::Errno(number as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let calls = SeccompFilter::new(rules, errno(libc::EPERM), SeccompAction::Allow, architecture)?;
    // Of its arguments a filter sees only where they are. Who is told that there is no such call makes the older one,
    // of which it sees all.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let newer = SeccompFilter::new(newer, SeccompAction::Allow, errno(libc::ENOSYS), architecture)?;
    Ok([newer.try_into()?, calls.try_into()?])
}

/// An argument, the bits of it that count, and what they must be.
fn only(argument: u8, bits: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bits), value)
}

/// Of an argument that the kernel takes for an `int`, which is half of it.
const INT: u64 = u32::MAX as u64;

/// Calls that serving a mount needs with some arguments, and that could do harm with others.
fn restricted(process: u32) -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::Error> {
    // To read, what is there: neither made nor emptied nor written to, where there is no Landlock to see to it.
    let writes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    // A thread of this process: neither a process, nor a namespace, in which it would be root.
    let namespaces = libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWUTS;
    let int = |flags: i32| u64::from(flags as u32);
    let thread = int(libc::CLONE_THREAD);
    let rules = [
        (libc::SYS_openat, vec![only(2, int(writes), 0)?]),
        (libc::SYS_clone, vec![only(0, int(namespaces) | thread, thread)?]),
        // No signals for others.
        (libc::SYS_tgkill, vec![only(0, INT, process.into())?]),
        // The priority of a thread: not that of all processes of this user.
        (libc::SYS_setpriority, vec![only(0, INT, u64::from(libc::PRIO_PROCESS))?]),
        // To ask for a limit of its own, not to set one.
        (libc::SYS_prlimit64, vec![only(0, INT, 0)?, only(2, u64::MAX, 0)?]),
    ];
    let rules = rules.into_iter().map(|(call, conditions)| Ok((call, vec![SeccompRule::new(conditions)?])));
    rules.chain([open_descriptors().map(|rules| (libc::SYS_fcntl, rules))]).collect()
}

/// What is done to open descriptors: asked for, copied, locked, and sealed. Not who gets a signal when there is
/// something to read (`F_SETOWN`), nor which (`F_SETSIG`): that would be a signal to any process of this user.
fn open_descriptors() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const COMMANDS: [i32; 12] = [
        libc::F_DUPFD_CLOEXEC,
        libc::F_DUPFD,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_GETLK,
        libc::F_SETLK,
        libc::F_SETLKW,
        libc::F_OFD_GETLK,
        libc::F_OFD_SETLK,
        libc::F_OFD_SETLKW,
        libc::F_ADD_SEALS,
    ];
    let is = |command: i32| only(1, INT, u64::from(command as u32));
    let mut rules = Vec::new();
    for command in COMMANDS {
        rules.push(SeccompRule::new(vec![is(command)?])?);
    }
    rules.push(SeccompRule::new(vec![is(libc::F_SETFL)?, only(2, u64::from(libc::O_ASYNC as u32), 0)?])?);
    Ok(rules)
}

/// The requests that hand an open file to the kernel and take it back. All others, such as typing into a terminal
/// (`TIOCSTI`), are refused.
fn backing_files() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let requests = tarnfs_fuse::REQUESTS_FOR_BACKING_FILES;
    requests.into_iter().map(|request| Ok(SeccompRule::new(vec![only(1, INT, request.into())?])?)).collect()
}

/// What a process does that reads open files, answers the kernel, starts and ends threads, takes memory, waits for
/// signals, and writes a log. No program, no socket to anybody, no mount, no change to a file by its name.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
const CALLS: &[i64] = &[
    // Open files.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_flock,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_dup,
    libc::SYS_close,
    libc::SYS_splice,
    libc::SYS_memfd_create,
    // Names, as far as Landlock lets them be opened.
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_prctl,
    libc::SYS_membarrier,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals, and waiting.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Sockets that are open: to the watcher, and the pair through which signals come.
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    // Who we are.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_setsid,
    // Older calls, which only this processor has.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// What looking at a folder takes besides. `openat2` could make files, as its flags lie where no filter sees them: that
/// is left to Landlock.
const CALLS_FOR_FOLDERS: &[i64] = &[libc::SYS_openat2, libc::SYS_getxattr, libc::SYS_listxattr];

/// What writing to an overlay takes besides: files are made by `openat2` alone, and SQLite removes its log at the end.
/// Where: that is left to Landlock.
const CALLS_FOR_OVERLAYS: &[i64] = &[
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fallocate,
    libc::SYS_utimensat,
    libc::SYS_faccessat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
];

/// Elsewhere the calls have other names, and nobody has tried.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CALLS: &[i64] = &[];

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[allow(unsafe_code, reason = "system calls as somebody would make them who has taken the process over")]
mod tests {
    use super::*;
    use std::ffi::{CString, c_long};
    use std::os::unix::ffi::OsStrExt;

    /// Error numbers of calls, 0 where they did what they should.
    type Said = [c_long; CASES];

    const CASES: usize = 25;

    /// `linux/fcntl.h`.
    const F_SETSIG: libc::c_int = 10;

    fn errno(result: c_long) -> c_long {
        if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1).into() } else { 0 }
    }

    /// Makes the calls, and says what the kernel did. On descriptor -1 what passes the filter is EBADF.
    fn make_calls(folder: &CString, new: &CString) -> Said {
        let own = tarnfs_fuse::REQUESTS_FOR_BACKING_FILES.map(c_long::from);
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: all pointers are to what lives longer than the calls; what they make is closed with the process,
        // which ends here.
        unsafe {
            let this = c_long::from(libc::getpid());
            let thread = libc::syscall(libc::SYS_gettid);
            let ioctl = |request: c_long| errno(libc::syscall(libc::SYS_ioctl, -1, request, 0));
            let tgkill = |process: c_long, thread: c_long| errno(libc::syscall(libc::SYS_tgkill, process, thread, 0));
            let open = |path: &CString, flags: libc::c_int| {
                errno(libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600))
            };
            let clone = |flags: libc::c_int| errno(libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0));
            let fcntl =
                |command: libc::c_int, argument: c_long| errno(libc::syscall(libc::SYS_fcntl, -1, command, argument));
            let none = std::ptr::null::<libc::rlimit64>();
            let parent = c_long::from(libc::getppid());
            [
                ioctl(libc::TIOCSTI as c_long),
                ioctl(own[0]),
                ioctl(own[1]),
                ioctl(libc::TIOCSTI as c_long | 1 << 40),
                tgkill(this, thread),
                tgkill(parent, parent),
                errno(libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, &raw mut limit)),
                errno(libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, &raw const limit, none)),
                errno(libc::syscall(libc::SYS_prlimit64, parent, libc::RLIMIT_NOFILE, none, &raw mut limit)),
                open(folder, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC),
                open(new, libc::O_RDONLY | libc::O_CREAT),
                open(new, libc::O_WRONLY),
                open(folder, libc::O_TMPFILE | libc::O_RDWR),
                errno(libc::syscall(libc::SYS_clone3, 0, 0)),
                // What is no thread, and what neither is nor can be one: the kernel would say EINVAL.
                clone(libc::CLONE_NEWUSER),
                clone(libc::CLONE_THREAD | libc::CLONE_NEWUSER),
                clone(libc::CLONE_THREAD),
                fcntl(libc::F_SETOWN, parent),
                fcntl(F_SETSIG, libc::SIGKILL.into()),
                fcntl(libc::F_SETFL, libc::O_ASYNC.into()),
                fcntl(libc::F_SETFL, libc::O_NONBLOCK.into()),
                fcntl(libc::F_DUPFD_CLOEXEC, 0),
                fcntl(libc::F_SETLK, 0),
                errno(libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, thread, 19)),
                errno(libc::syscall(libc::SYS_setpriority, libc::PRIO_USER, 0, 19)),
            ]
        }
    }

    #[test]
    fn calls_that_are_left_do_only_what_is_needed() {
        let (refused, bad, invalid) = (libc::EPERM.into(), libc::EBADF.into(), libc::EINVAL.into());
        let no_call = libc::ENOSYS.into();
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let new = CString::new(folder.path().join("new").as_os_str().as_bytes()).unwrap();
        for (has_folders, is_written) in [(true, false), (false, false), (false, true), (true, true)] {
            let own = if has_folders || is_written { bad } else { refused };
            let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            // SAFETY: the child makes system calls and ends; it allocates as the C library lets it after a fork.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "no process can be started");
            if child == 0 {
                let done = filters(has_folders, is_written, std::process::id()).and_then(|filters| {
                    filters.iter().try_for_each(|filter| seccompiler::apply_filter_all_threads(filter))
                });
                let said = make_calls(&path, &new);
                let mut bytes = said.map(c_long::to_ne_bytes).concat();
                bytes.push(u8::from(done.is_ok()));
                let sent = std::io::Write::write_all(&mut &theirs, &bytes);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(sent.is_err())) };
            }
            drop(theirs);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut ours, &mut bytes).unwrap();
            let mut status = 0;
            // SAFETY: `status` outlives the call; the child is ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(bytes.pop(), Some(1), "the filters are not taken: {status}");
            let said: Vec<_> = bytes.chunks(8).map(|bytes| c_long::from_ne_bytes(bytes.try_into().unwrap())).collect();
            let expected: Said = [
                refused, own, own, refused, 0, refused, 0, refused, refused, 0, refused, refused, refused, no_call,
                refused, refused, invalid, refused, refused, refused, bad, bad, bad, 0, refused,
            ];
            assert_eq!(said, expected, "folders: {has_folders}, overlay: {is_written}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
