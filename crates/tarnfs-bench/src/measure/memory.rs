//! Memory of a process, at its most and as time goes by.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most bytes of memory that a process has had at once; `process` is its number, or "self". Unlike what `wait4`
/// says, this begins anew with each program.
pub(crate) fn peak_of(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Bytes of memory that this process has now.
fn now() -> Option<u64> {
    let fields = fs::read_to_string("/proc/self/statm").ok()?;
    Some(fields.split(' ').nth(1)?.parse::<u64>().ok()? * rustix::param::page_size() as u64)
}

/// How often memory is looked at, at first.
const OFTEN: Duration = Duration::from_millis(2);

/// So many samples are kept; then every other one is dropped, and half as many are taken from there on.
const MOST: usize = 512;

/// Looks at the memory of this process until it is asked what it has seen.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(f64, u64)>>,
}

impl Sampler {
    /// Begins now.
    pub(crate) fn start() -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let (start, mut often, mut samples) = (Instant::now(), OFTEN, Vec::new());
            loop {
                samples.extend(now().map(|bytes| (start.elapsed().as_secs_f64(), bytes)));
                if samples.len() >= MOST {
                    let mut number = 0;
                    samples.retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    often *= 2;
                }
                match stopped.recv_timeout(often) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return samples,
                }
            }
        });
        Self { stop, thread }
    }

    /// Ends. Returns seconds since the start, and bytes.
    pub(crate) fn stop(self) -> Vec<(f64, u64)> {
        // The thread may have ended.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_seen_as_it_comes() {
        let sampler = Sampler::start();
        std::thread::sleep(OFTEN * 10);
        let before = now().unwrap();
        let held = vec![1_u8; 64 << 20];
        let large = before + (held.len() as u64) / 2;
        let start = Instant::now();
        while now().unwrap() < large {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        std::thread::sleep(OFTEN * 10);
        let seen = sampler.stop();
        drop(held);
        assert!(seen.iter().any(|(_, bytes)| *bytes >= large) && seen.first().unwrap().1 < large, "{seen:?}");
        assert!(seen.is_sorted_by_key(|(seconds, _)| *seconds));
        assert!(peak_of("self").unwrap() >= large && peak_of("no process").is_none());
    }
}
