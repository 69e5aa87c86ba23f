//! One call of a program.

#![allow(unsafe_code, reason = "wait4 and killpg, whose figures no safe crate here has")]

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, fstatvfs, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tarnfs_source::Cancel;

use crate::report::escaped;

/// The most that is kept of what a program writes. Who writes more is ended.
const MOST_KEPT: u64 = 256 << 20;

/// When so many bytes are left where a program writes a file, it is ended: what it decompresses may fill any disk.
const LEAST_LEFT: u64 = 64 << 20;

/// How often it is looked whether somebody wants it to end.
const GLANCE: Duration = Duration::from_millis(100);

/// What a program reads.
#[derive(Debug, Clone, Default)]
pub enum Input {
    /// Nothing.
    #[default]
    Nothing,
    /// A file.
    File(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// What becomes of that which a program writes to standard output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kept {
    /// `/dev/null`.
    #[default]
    Nothing,
    /// In [`Done::output`].
    All,
    /// In a file.
    File(PathBuf),
}

/// A call of a program. Only [`Job::run`] starts it.
#[derive(Debug)]
pub struct Job {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    input: Input,
    output: Kept,
    limit: Duration,
    allowed: Vec<i32>,
}

/// What a call costs, with those of its children that it waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Seconds from start to end.
    pub real: f64,
    /// Seconds of processor time in the program.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Bytes of memory that the largest of its processes had at once. `None` if that is not more than this process has
    /// had: a new one begins as a copy of the one that starts it.
    pub peak_memory: Option<u64>,
}

impl Usage {
    /// Processor time over real time: 100 is one core.
    pub fn processor(&self) -> f64 {
        (self.user + self.system) / self.real * 100.0
    }
}

/// A call that ended well.
#[derive(Debug)]
pub struct Done {
    /// What it costs.
    pub usage: Usage,
    /// What it wrote, with [`Kept::All`].
    pub output: Vec<u8>,
    /// How it ended: 0, or what was allowed.
    pub code: i32,
}

/// A call that ended, somehow.
struct Ended {
    /// `None` if a signal ended it.
    code: Option<i32>,
    usage: Usage,
    output: Vec<u8>,
    errors: Vec<u8>,
}

/// Why there is no figure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It took longer than it may.
    TooLong(Duration),
    /// It failed, with its last words.
    Failed(String),
    /// The same, with its exit code.
    Exit {
        /// The code.
        code: i32,
        /// Its last words.
        words: String,
    },
    /// Somebody wants all to end.
    Cancelled,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(limit) => write!(f, "took longer than {} s", limit.as_secs_f64()),
            Self::Failed(words) | Self::Exit { words, .. } => write!(f, "failed: {words}"),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl Job {
    /// A call of the program at this path. It reads nothing, and what it writes is not kept.
    pub fn new<A: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = A>, limit: Duration) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            environment: Vec::new(),
            folder: None,
            input: Input::default(),
            output: Kept::default(),
            limit,
            allowed: vec![0],
        }
    }

    /// What it reads.
    pub fn input(&mut self, input: Input) -> &mut Self {
        self.input = input;
        self
    }

    /// What becomes of its output.
    pub fn keep(&mut self, output: Kept) -> &mut Self {
        self.output = output;
        self
    }

    /// Where it runs.
    pub fn folder(&mut self, folder: &Path) -> &mut Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Another variable of its environment.
    pub fn variable(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Another exit code that is no failure.
    pub fn allow(&mut self, code: i32) -> &mut Self {
        self.allowed.push(code);
        self
    }

    /// Runs it. After the limit, or once cancelled, it is ended with all of its process group.
    pub fn run(&self, cancel: &Cancel) -> Result<Done, Reason> {
        let Ended { code, usage, output, errors } = self.start(cancel)?;
        match code {
            Some(code) if self.allowed.contains(&code) => Ok(Done { usage, output, code }),
            _ => {
                let text = String::from_utf8_lossy(&errors).into_owned();
                let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(escaped);
                Err(match code {
                    Some(code) => Reason::Exit { code, words: last.unwrap_or_else(|| format!("exit code {code}")) },
                    None => Reason::Failed(last.unwrap_or_else(|| "ended by a signal".to_owned())),
                })
            }
        }
    }

    /// All that it says, on standard output and as errors, however it ends; `None` if it cannot be run.
    pub(super) fn said(&self, cancel: &Cancel) -> Option<Vec<u8>> {
        let Ended { mut output, errors, .. } = self.start(cancel).ok()?;
        output.extend(errors);
        Some(output)
    }

    fn start(&self, cancel: &Cancel) -> Result<Ended, Reason> {
        if cancel.is_cancelled() {
            return Err(Reason::Cancelled);
        }
        let name = self.program.display();
        let failed = |error: io::Error| Reason::Failed(escaped(&format!("{name}: {error}")));
        let mut errors = memory_file().map_err(failed)?;
        let (mut kept, mut written) = (None, None);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Messages are read by programs here, and sorting has the same order everywhere.
        command.env("LC_ALL", "C.UTF-8").process_group(0);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(match &self.input {
            Input::Nothing => Stdio::null(),
            Input::File(path) => File::open(path).map_err(failed)?.into(),
            Input::Bytes(bytes) => {
                let mut file = memory_file().map_err(failed)?;
                file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(failed)?;
                file.into()
            }
        });
        command.stdout(match &self.output {
            Kept::Nothing => Stdio::null(),
            Kept::File(path) => {
                let file = File::create(path).map_err(failed)?;
                written = Some(file.try_clone().map_err(failed)?);
                file.into()
            }
            Kept::All => {
                let file = memory_file().map_err(failed)?;
                let stdout = file.try_clone().map_err(failed)?;
                kept = Some(file);
                stdout.into()
            }
        });
        command.stderr(errors.try_clone().map_err(failed)?);
        let start = Instant::now();
        let child = command.spawn().map_err(failed)?;
        let group = Group(child.id() as i32);
        let files = Files { kept: &[Some(&errors), kept.as_ref()], written: written.as_ref() };
        let waited = self.wait(&group, start, cancel, files);
        if waited.is_err() {
            group.end();
        }
        let real = start.elapsed().as_secs_f64();
        let (code, rusage) = group.reap().map_err(failed)?;
        waited?;
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let usage = Usage {
            real,
            user: seconds(rusage.ru_utime),
            system: seconds(rusage.ru_stime),
            peak_memory: Some(rusage.ru_maxrss as u64 * 1024).filter(|&bytes| bytes > own_memory()),
        };
        let output = kept.map_or(Ok(Vec::new()), |mut file| content(&mut file)).map_err(failed)?;
        Ok(Ended { code, usage, output, errors: content(&mut errors).map_err(failed)? })
    }

    /// Waits until the program has ended, but is still a zombie.
    fn wait(&self, group: &Group, start: Instant, cancel: &Cancel, files: Files<'_>) -> Result<(), Reason> {
        let Files { kept, written } = files;
        let failed = |error: rustix::io::Errno| Reason::Failed(error.to_string());
        let pid = Pid::from_raw(group.0).ok_or(Reason::Failed("no process".to_owned()))?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
        loop {
            let left = self.limit.saturating_sub(start.elapsed()).min(GLANCE);
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let has_ended = match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                Ok(number) => number > 0,
                Err(rustix::io::Errno::INTR) => false,
                Err(error) => return Err(failed(error)),
            };
            if has_ended {
                return Ok(());
            }
            if cancel.is_cancelled() {
                return Err(Reason::Cancelled);
            }
            if start.elapsed() >= self.limit {
                return Err(Reason::TooLong(self.limit));
            }
            let is_full = |file: &File| {
                fstatvfs(file).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < LEAST_LEFT)
            };
            if written.is_some_and(is_full) {
                return Err(Reason::Failed(format!("less than {} MiB are left on the disk", LEAST_LEFT >> 20)));
            }
            if kept.iter().flatten().any(|file| file.metadata().is_ok_and(|found| found.len() > MOST_KEPT)) {
                return Err(Reason::Failed(format!("wrote more than {} MiB", MOST_KEPT >> 20)));
            }
        }
    }
}

/// What a program writes to.
#[derive(Clone, Copy)]
struct Files<'a> {
    /// In memory.
    kept: &'a [Option<&'a File>],
    /// On a disk.
    written: Option<&'a File>,
}

/// A process that was started, which leads a group.
struct Group(i32);

impl Group {
    /// Ends all of them.
    fn end(&self) {
        // SAFETY: the leader has not been waited for yet, so the number is that of our group.
        unsafe { libc::killpg(self.0, libc::SIGKILL) };
    }

    /// How it ended (`None`: by a signal), and what it used. To be called once.
    fn reap(self) -> io::Result<(Option<i32>, libc::rusage)> {
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        loop {
            // SAFETY: both pointers are to memory of their types, which lives longer than the call.
            if unsafe { libc::wait4(self.0, &raw mut status, 0, usage.as_mut_ptr()) } >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        // SAFETY: all of it is numbers, zeros at first, filled in by the call.
        Ok((code, unsafe { usage.assume_init() }))
    }
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("tarnfs-bench", MemfdFlags::CLOEXEC)?.into())
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MOST_KEPT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The most memory that this process has had at once, in bytes.
pub fn own_memory() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of its type, all of which is numbers, zeros at first.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as u64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        Job::new(Path::new("/bin/sh"), ["-c", script], Duration::from_secs(60))
    }

    #[test]
    fn a_call_is_measured() {
        let mut job = shell("cat; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.2");
        job.input(Input::Bytes(b"hello".to_vec())).keep(Kept::All);
        let done = job.run(&Cancel::default()).unwrap();
        assert_eq!(done.output, b"hello");
        assert!(done.usage.real >= 0.2 && done.usage.user > 0.0 && done.usage.user < done.usage.real, "{done:?}");
        assert!(done.usage.peak_memory.is_none_or(|bytes| bytes >= 1 << 20), "{done:?}");
    }

    /// Memory that a child has had, which its parent waited for, is seen.
    #[test]
    fn memory_of_children_is_seen() {
        let bytes = 150_u64 << 20;
        let mut job = shell(&format!("head -c {bytes} /dev/zero | tail -n 1 | wc -c"));
        let done = job.keep(Kept::All).run(&Cancel::default()).unwrap();
        assert_eq!(done.output, format!("{bytes}\n").as_bytes());
        assert!(done.usage.peak_memory.is_some_and(|peak| peak >= bytes), "{done:?}");
    }

    #[test]
    fn a_failure_has_its_last_words() {
        let failed = |script: &str| shell(script).run(&Cancel::default()).unwrap_err();
        assert_eq!(
            failed("echo first >&2; printf 'last \\033[2J\\n\\n' >&2; exit 7"),
            Reason::Exit { code: 7, words: "last \\u{1b}[2J".into() }
        );
        assert_eq!(failed("exit 7"), Reason::Exit { code: 7, words: "exit code 7".into() });
        assert_eq!(failed("kill -9 $$"), Reason::Failed("ended by a signal".into()));
        assert_eq!(shell("exit 7").allow(7).run(&Cancel::default()).unwrap().code, 7);
        assert!(matches!(
            Job::new(Path::new("/nonexistent"), [""; 0], GLANCE).run(&Cancel::default()),
            Err(Reason::Failed(_))
        ));
    }

    /// All of a process group ends: also what it has put into the background.
    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let job = Job::new(Path::new("/bin/sh"), ["-c", &script], Duration::from_secs(1));
        assert_eq!(job.run(&Cancel::default()).unwrap_err(), Reason::TooLong(Duration::from_secs(1)));
        let pid = std::fs::read_to_string(&file).unwrap();
        let has_ended = || {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            status.is_empty() || status.contains(") Z ")
        };
        let start = Instant::now();
        while !has_ended() {
            assert!(start.elapsed() < Duration::from_secs(60), "{pid} goes on");
            std::thread::sleep(GLANCE);
        }
    }

    #[test]
    fn what_is_cancelled_ends() {
        let cancel = Cancel::default();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || shell("sleep 1000").run(&other).unwrap_err());
        std::thread::sleep(GLANCE);
        cancel.cancel();
        assert_eq!(thread.join().unwrap(), Reason::Cancelled);
    }
}
