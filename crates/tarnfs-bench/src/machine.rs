//! What a report says of the machine.

use std::fs;
use std::path::Path;

use rustix::fs::statfs;

/// The machine that figures come from.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Kind of the file system that holds scratch files.
    pub file_system: String,
}

impl Machine {
    /// This machine, with scratch files in this folder.
    pub fn new(folder: &Path) -> Self {
        let of = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
        };
        let kilobytes = of("/proc/meminfo", "MemTotal");
        let name = rustix::system::uname();
        Self {
            processor: of("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kilobytes.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0) * 1024_u64,
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            file_system: file_system(folder),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let gigabytes = self.memory as f64 / f64::from(1 << 30);
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        format!(
            "{}, {cores}, {gigabytes:.1} GiB of memory, {}, scratch files on {}",
            self.processor, self.kernel, self.file_system
        )
    }
}

/// The kind of file system that holds this folder, by the mount that is nearest above it.
fn file_system(folder: &Path) -> String {
    let Ok(folder) = folder.canonicalize() else { return "unknown".to_owned() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let nearest = mounts.lines().filter_map(|line| {
        let at = line.split(' ').nth(4)?;
        let kind = line.split(" - ").nth(1)?.split(' ').next()?;
        folder.starts_with(at).then_some((at.len(), kind))
    });
    // Of several at one place the last one is on top.
    nearest.max_by_key(|(length, _)| *length).map_or("unknown", |(_, kind)| kind).to_owned()
}

/// Bytes of memory that can be had without taking that of others.
pub(crate) fn free_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// True if files in this folder are in memory.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    statfs(folder).is_ok_and(|found| found.f_type as u64 == TMPFS)
}
