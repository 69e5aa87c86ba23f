//! What the daemon gives up once the mount is there. It reads archives that may have been made by anybody; whoever finds a hole in a decoder
//! gets a process that can answer the kernel, read what was open already, and nothing else.
//!
//! Two layers. [`Files::give_up`] (Landlock): no path can be opened, made, renamed or removed but the few that are named here; only for
//! threads that are started later. [`give_up_calls`] (seccomp): system calls that serving a mount does not need fail, for all threads.
//! Where the kernel lacks one of them, the other has to do.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The newest version of Landlock whose rights are known here; older kernels get those that they have.
const NEWEST: ABI = ABI::V6;

/// Restricts which files this thread, and those that it starts, can open; those below `folders` can still be read. Says in the log what came of it.
pub(crate) fn give_up_files(folders: &[impl AsFd]) {
    match restrict(folders) {
        Ok(status) => log::debug!("sandbox for files: {status:?}"),
        Err(error) => log::debug!("no sandbox for files: {error}"),
    }
}

fn restrict(folders: &[impl AsFd]) -> Result<RulesetStatus, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    // Each thread that answers the kernel opens its own queue.
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    // The backtrace of a panic has names of functions in it. The program not by its own path, which may lead into the mount that nobody serves yet.
    let own = ["/proc/self/exe", "/proc/self/maps"];
    let readable = own.iter().map(|path| (Path::new(path), AccessFs::ReadFile.into()));
    for (path, access) in std::iter::once((Path::new("/dev/fuse"), device)).chain(readable) {
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
    }
    // Extended attributes are asked for by name below a descriptor, which opens nothing. A file that the kernel reads itself it opens with our rights,
    // also for whoever executes it; that we cannot execute anything is left to the system calls.
    let below = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    for folder in folders {
        rules = rules.add_rule(PathBeneath::new(folder, below))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Restricts which system calls all threads of this process can make. Those that are left out fail with EPERM, as nothing here ends because
/// a call failed. `has_folders`: what is below folders is still to be looked at. Says in the log what came of it.
pub(crate) fn give_up_calls(has_folders: bool) {
    if CALLS.is_empty() {
        return log::debug!("no sandbox for system calls on this processor");
    }
    match filter(if has_folders { CALLS_FOR_FOLDERS } else { &[] }) {
        Ok(()) => log::debug!("sandbox for system calls: on"),
        Err(error) => log::debug!("no sandbox for system calls: {error}"),
    }
}

fn filter(further: &[i64]) -> Result<(), seccompiler::Error> {
    let rules: BTreeMap<i64, Vec<_>> = CALLS.iter().chain(further).map(|&call| (call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)
}

/// What a process does that reads open files, answers the kernel, starts and ends threads, takes memory, waits for signals, and writes a log.
/// No program, no socket to anybody, no mount, no change to a file by its name.
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
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_dup,
    libc::SYS_close,
    libc::SYS_ioctl,
    libc::SYS_splice,
    libc::SYS_memfd_create,
    // Names, as far as Landlock lets them be opened.
    libc::SYS_openat,
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
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_membarrier,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals, and waiting.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
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

/// What looking at a folder takes besides.
const CALLS_FOR_FOLDERS: &[i64] = &[libc::SYS_openat2, libc::SYS_getdents64, libc::SYS_lgetxattr, libc::SYS_llistxattr];

/// Elsewhere the calls have other names, and nobody has tried.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CALLS: &[i64] = &[];
