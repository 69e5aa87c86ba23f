//! The progress bar of a first pass: bytes read, files found, time left. Only on a terminal. Where nobody knows how
//! much is to come, it says how fast it goes.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tarnfs_tree::build::Progress;

/// A pass that is over sooner shows nothing.
const DELAY: Duration = Duration::from_millis(300);
const REDRAW: Duration = Duration::from_millis(100);

/// How fast it goes is not known sooner: small files, of which an archive may begin with many, take longer than their
/// bytes do.
const RATE_IS_KNOWN: Duration = Duration::from_secs(5);

/// Shows a bar until it is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Shows how `progress` grows, if standard error is a terminal.
    pub(crate) fn show(name: &str, progress: &Arc<Progress>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = io::stderr()
            .is_terminal()
            .then(|| {
                let (name, progress, over) = (name.to_owned(), Arc::clone(progress), Arc::clone(&over));
                // Without a thread for it there is no bar, and nothing else is lost.
                std::thread::Builder::new().name("progress".into()).spawn(move || draw(name, &progress, &over)).ok()
            })
            .flatten();
        Self { over, thread }
    }
}

/// How the bar looks. When all bytes of the archive are read, there may still be much to do: what they decode to, and
/// what is computed of it, is of any length.
fn template(total: u64, bytes: u64, age: Duration) -> &'static str {
    if total == 0 {
        "{prefix} {spinner} {binary_bytes}, {msg} files, {binary_bytes_per_sec}"
    } else if bytes < total && age < RATE_IS_KNOWN {
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes}, {msg} files"
    } else if bytes < total {
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes}, {msg} files, {eta} left"
    } else {
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes}, {msg} files; all is read, and being worked on"
    }
}

fn draw(name: String, progress: &Progress, over: &AtomicBool) {
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
        let template = template(total, bytes, start.elapsed());
        if std::mem::replace(&mut shown, template) != template
            && let Ok(style) = ProgressStyle::with_template(template)
        {
            bar.set_style(style);
        }
        bar.set_length(total);
        bar.set_position(bytes);
        bar.set_message(progress.entries.load(Ordering::Relaxed).to_string());
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
        let template = |total, bytes| template(total, bytes, RATE_IS_KNOWN);
        assert!(template(10, 9).contains("{eta} left"));
        assert!(!super::template(10, 9, RATE_IS_KNOWN / 2).contains("eta"));
        assert!(!template(10, 10).contains("eta") && template(10, 10).contains("being worked on"));
        // A format can be read beyond what was known to be there.
        assert!(!template(10, 11).contains("eta"));
        assert!(!template(0, 11).contains("eta") && template(0, 11).contains("per_sec"));
    }
}
