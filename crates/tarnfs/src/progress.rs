//! The progress bar of a first pass: bytes read, files found, time left. Only on a terminal. Where nobody knows how
//! much is to come, it says how fast it goes.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tarnfs_tree::build::Progress;

/// A pass that is over sooner shows nothing.
const DELAY: Duration = Duration::from_millis(300);
const REDRAW: Duration = Duration::from_millis(100);

/// How fast it goes is not known sooner.
const RATE_IS_KNOWN: Duration = Duration::from_secs(3);

/// Shows a bar until it is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Shows how `progress` grows, if standard error is a terminal. `all` is how many entries there are, or 0 where
    /// nobody knows that.
    pub(crate) fn show(name: &str, progress: &Arc<Progress>, all: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = io::stderr()
            .is_terminal()
            .then(|| {
                let (name, progress, over) = (name.to_owned(), Arc::clone(progress), Arc::clone(&over));
                // Without a thread for it there is no bar, and nothing else is lost.
                std::thread::Builder::new()
                    .name("progress".into())
                    .spawn(move || draw(name, &progress, all, &over))
                    .ok()
            })
            .flatten();
        Self { over, thread }
    }
}

/// How the bar looks. When all bytes of the archive are read, there may still be much to do: what they decode to, and
/// what is computed of it, is of any length.
fn template(total: u64, bytes: u64) -> &'static str {
    if total == 0 {
        "{prefix} {spinner} {binary_bytes}{msg}, {binary_bytes_per_sec}"
    } else if bytes < total {
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes}{msg}"
    } else {
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes}{msg}; all is read, and being worked on"
    }
}

/// How long it still takes, where that can be known after `age`. Each pair is how much of all there is was done: small
/// files take longer than their bytes do, so what counts is that of which more was done.
fn left(age: Duration, parts: &[(u64, u64)]) -> Option<Duration> {
    let done = parts.iter().filter(|(_, all)| *all > 0).map(|(done, all)| *done as f64 / *all as f64);
    let done = done.fold(0.0, f64::max);
    let is_known = age >= RATE_IS_KNOWN && done > 0.0 && done < 1.0;
    is_known.then(|| Duration::try_from_secs_f64(age.as_secs_f64() * (1.0 - done) / done).ok()).flatten()
}

fn draw(name: String, progress: &Progress, all: u64, over: &AtomicBool) {
    let start = Instant::now();
    std::thread::park_timeout(DELAY);
    if over.load(Ordering::Relaxed) {
        return;
    }
    // Not on the screen before it has something to show.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
    bar.set_prefix(name);
    let mut shown = "";
    while !over.load(Ordering::Relaxed) {
        let (total, bytes) = (progress.total.load(Ordering::Relaxed), progress.bytes.load(Ordering::Relaxed));
        let entries = progress.entries.load(Ordering::Relaxed);
        let template = template(total, bytes);
        if std::mem::replace(&mut shown, template) != template
            && let Ok(style) = ProgressStyle::with_template(template)
        {
            bar.set_style(style);
        }
        bar.set_length(total);
        bar.set_position(bytes);
        let files = match entries {
            0 => String::new(),
            1 => ", 1 file".to_owned(),
            many => format!(", {many} files"),
        };
        let left = left(start.elapsed(), &[(bytes, total), (entries, all)]).filter(|_| bytes < total);
        let left = left.map(|left| format!(", {} left", HumanDuration(left)));
        bar.set_message(files + &left.unwrap_or_default());
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        std::thread::park_timeout(REDRAW);
    }
    bar.finish_and_clear();
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Its panic, if any, concerns nobody but the bar.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_told_that_nobody_knows() {
        let age = 2 * RATE_IS_KNOWN;
        assert_eq!(left(age, &[(1, 3)]), Some(2 * age));
        assert_eq!(left(RATE_IS_KNOWN / 2, &[(1, 3)]), None);
        // Small files come first: hardly any bytes were read, and half of the files.
        assert_eq!(left(age, &[(1, 1_000_000), (50, 100)]), Some(age));
        assert_eq!(left(age, &[(0, 7), (3, 0)]), None);
        assert_eq!(left(age, &[(1, u64::MAX)]), None);
        // A format can be read beyond what was known to be there.
        assert_eq!(left(age, &[(11, 10)]), None);
        assert!(!template(10, 9).contains("being worked on"));
        assert!(template(10, 10).contains("being worked on") && template(10, 11).contains("being worked on"));
        assert!(template(0, 11).contains("per_sec"));
    }
}
