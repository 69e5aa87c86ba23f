//! An archive that a program has mounted. It is unmounted again, whatever happens.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tarnfs_source::Cancel;

use super::mounters::Mounter;
use crate::measure::{Job, Program, Reason, peak_of};
use crate::scratch::mounts_below;
use crate::{Error, Scratch, Settings};

/// How long a program may take to end when its mount is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a mount has come or gone.
const GLANCE: Duration = Duration::from_millis(1);

/// A mount. Nothing in this process looks into it: a program that does not answer would stop it.
#[derive(Debug)]
pub(super) struct Mounted {
    at: PathBuf,
    /// Seconds until it was there.
    pub(super) seconds: f64,
    /// Bytes of memory of those who were there only until it was mounted.
    before: Option<f64>,
    is_over: bool,
}

impl Mounted {
    /// Mounts `archive` in the scratch folder.
    pub(super) fn new(
        mounter: &Mounter,
        archive: &Path,
        keeps: &Path,
        scratch: &Scratch,
        settings: &Settings,
    ) -> Result<Result<Self, Reason>, Error> {
        let at = scratch.folder("mnt")?;
        let job = mounter.call(archive, &at, keeps, settings);
        let start = Instant::now();
        // From here on something may be mounted.
        let mut mounted = Self { at, seconds: 0.0, before: None, is_over: false };
        match job.run(&settings.cancel) {
            Ok(done) => mounted.before = done.usage.peak_memory.map(|bytes| bytes as f64),
            Err(reason) => return Ok(Err(reason)),
        }
        while mounts_below(&mounted.at).is_empty() {
            settings.check()?;
            if start.elapsed() > settings.limit {
                return Ok(Err(Reason::TooLong(settings.limit)));
            }
            if mounted.processes().is_empty() && mounts_below(&mounted.at).is_empty() {
                return Ok(Err(Reason::Failed("ended without a mount".to_owned())));
            }
            std::thread::sleep(GLANCE);
        }
        mounted.seconds = start.elapsed().as_secs_f64();
        Ok(Ok(mounted))
    }

    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Our processes that have the mount point on their command line, which is in a folder of ours. Others may name
    /// it, too: they are neither waited for nor ended.
    fn processes(&self) -> Vec<i32> {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let has_it = |number: &i32| {
            let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).any(|word| word == self.at.as_os_str().as_bytes())
        };
        let user = geteuid().as_raw();
        let is_ours = |number: &i32| fs::metadata(format!("/proc/{number}")).is_ok_and(|found| found.uid() == user);
        numbers.filter(|&number| number != std::process::id() as i32).filter(is_ours).filter(has_it).collect()
    }

    /// Bytes of memory that the process had at once which had most; `None` if there is none.
    pub(super) fn peak_memory(&self) -> Option<f64> {
        let now = self.processes();
        let peaks = now.iter().filter_map(|number| peak_of(&number.to_string()));
        peaks.map(|bytes| bytes as f64).chain(self.before).max_by(f64::total_cmp)
    }

    /// Unmounts it, and waits for its program to end. Says what it took if that does not.
    pub(super) fn unmount(mut self) -> Option<&'static str> {
        self.end()
    }

    fn end(&mut self) -> Option<&'static str> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        let start = Instant::now();
        let mut is_asked = false;
        while !mounts_below(&self.at).is_empty() || !self.processes().is_empty() {
            // Also when all else was cancelled.
            if !is_asked && !mounts_below(&self.at).is_empty() {
                is_asked = ask(&self.at, false);
            }
            if start.elapsed() > PATIENCE {
                self.kill();
                return Some("did not end when it was unmounted, and was killed");
            }
            std::thread::sleep(GLANCE);
        }
        None
    }

    fn kill(&self) {
        for number in self.processes() {
            if let Some(pid) = Pid::from_raw(number) {
                // It may have ended by now.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        while mounts_below(&self.at).iter().any(|at| ask(at, true)) {}
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.end();
    }
}

/// Unmounts what is there: directly for root, else with the helper of FUSE. True if that is done.
fn ask(at: &Path, lazily: bool) -> bool {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    if geteuid().is_root() {
        return unmount(at, flags).is_ok();
    }
    let path = at.as_os_str().to_owned();
    ["fusermount3", "fusermount"].iter().any(|helper| {
        let option = if lazily { "-uz" } else { "-u" };
        let Some(program) = Program::path_of(helper, &[]) else { return false };
        Job::new(&program, [option.as_ref(), path.as_os_str()], PATIENCE).run(&Cancel::default()).is_ok()
    })
}
