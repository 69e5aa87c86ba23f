//! Since when processes serve mounts: what tells when a mount was made where the kernel does not show its connections.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::MountedTree;
use crate::mountinfo;

/// Says of those of `mounts` whose beginning is not known when the process began that serves them. That is known where
/// the kernel tells which connection a descriptor is (newer kernels), and only of processes that this one may look at.
pub fn find_since(mounts: &mut [MountedTree]) {
    let mut unknown = mounts.iter_mut().filter(|mount| mount.since.is_none()).peekable();
    if unknown.peek().is_none() {
        return;
    }
    let began = servers();
    for mount in unknown {
        mount.since = mount.device.and_then(|device| began.get(&device).copied());
    }
}

/// When each process of tarnfs began, by the mounts that it serves. Processes by other names are not looked through:
/// there may be very many.
fn servers() -> HashMap<(u32, u32), SystemTime> {
    let mut servers = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.map(|entry| entry.path()) {
        if !fs::read(process.join("comm")).is_ok_and(|name| name.starts_with(b"tarnfs")) {
            continue;
        }
        let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let mut served = descriptors.filter_map(|entry| mountinfo::of_descriptor(&entry.path())).peekable();
        let Some(began) = served.peek().and_then(|_| began(&process)) else { continue };
        servers.extend(served.map(|device| (device, began)));
    }
    servers
}

/// When a process began, of which this is the folder in `/proc`.
fn began(process: &Path) -> Option<SystemTime> {
    let told = fs::read_to_string(process.join("stat")).ok()?;
    let up = clock_gettime(ClockId::Boottime);
    let up = Duration::new(up.tv_sec.try_into().ok()?, up.tv_nsec.try_into().ok()?);
    SystemTime::now().checked_sub(up.saturating_sub(behind_boot(&told)?))
}

/// How long after the machine a process began (proc_pid_stat(5)).
fn behind_boot(stat: &str) -> Option<Duration> {
    /// Ticks in a second, `USER_HZ`.
    const TICKS: u64 = 100;
    // The second field is a name in parentheses, and may have spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(22 - 3)?.parse().ok()?;
    Some(Duration::from_millis(ticks.checked_mul(1000 / TICKS)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_just_begun() {
        let age = began(Path::new("/proc/self")).unwrap().elapsed().unwrap_or_default();
        let parent = format!("/proc/{}", std::os::unix::process::parent_id());
        let of_parent = began(Path::new(&parent)).unwrap().elapsed().unwrap_or_default();
        assert!(age <= of_parent + Duration::from_millis(50), "{age:?} {of_parent:?}");
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = format!("12 (a) S 1) R {} 250 7", ["0"; 18].join(" "));
        assert_eq!(behind_boot(&stat), Some(Duration::from_millis(2500)));
        assert_eq!(behind_boot("12 (a) R 0"), None);
    }
}
