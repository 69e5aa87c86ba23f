//! A mount whose process is watched: how it ends, and how much memory it takes.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::support::{Scratch, tarnfs};

/// Only what hangs takes this long, also on a machine with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Foreground {
    pub(crate) at: PathBuf,
    daemon: Child,
    log: PathBuf,
    case: String,
}

impl Foreground {
    /// Mounts `archive`, or returns the exit code and what was said.
    pub(crate) fn new(scratch: &Scratch, archive: &Path, options: &[&str]) -> Result<Self, (i32, String)> {
        Self::patient(scratch, archive, options, PATIENCE)
    }

    pub(crate) fn patient(
        scratch: &Scratch,
        archive: &Path,
        options: &[&str],
        patience: Duration,
    ) -> Result<Self, (i32, String)> {
        let number = super::support::unique();
        let (at, log) = (scratch.folder(format!("at-{number}")), scratch.path(format!("log-{number}")));
        let daemon = tarnfs(scratch)
            .arg("-f")
            .args(options)
            .arg(archive)
            .arg(&at)
            .stderr(fs::File::create(&log).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let case = archive.display().to_string();
        let mut mount = Self { at, daemon, log, case };
        let outside = fs::metadata(scratch.path("")).unwrap().dev();
        let start = Instant::now();
        loop {
            if let Some(status) = mount.daemon.try_wait().unwrap() {
                return Err((status.code().unwrap_or(-1), mount.said()));
            }
            if fs::metadata(&mount.at).is_ok_and(|metadata| metadata.dev() != outside) {
                return Ok(mount);
            }
            assert!(start.elapsed() < patience, "{}: neither mounted nor refused", mount.case);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.daemon.id()
    }

    /// The most memory that it has had resident, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// What it has said; never with a panic, and never with what a terminal would obey.
    pub(crate) fn said(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap();
        assert!(!said.contains("panicked"), "{}: {said}", self.case);
        assert!(!said.contains(|char: char| char.is_control() && char != '\n'), "{}: {said:?}", self.case);
        said
    }

    /// Unmounts; it must still have been there, and end well.
    pub(crate) fn unmount(mut self) {
        assert!(self.daemon.try_wait().unwrap().is_none(), "{}: the daemon is gone", self.case);
        let done = Command::new(env!("CARGO_BIN_EXE_tarnfs")).arg("-u").arg(&self.at).status().unwrap();
        assert!(done.success(), "{}: cannot be unmounted", self.case);
        let code = self.daemon.wait().unwrap().code();
        assert!([Some(0), Some(5)].contains(&code), "{}: ended with {code:?}", self.case);
        self.said();
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // Of a test that failed; else it has ended already.
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        let _ = self.daemon.wait();
    }
}
