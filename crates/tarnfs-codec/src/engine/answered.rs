//! Whether a source still answers: one on a server that is gone may never do so again.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tarnfs_source::{SharedSource, Source};

use super::fill::now;

/// No answer comes any more where none came for so long, in milliseconds. A disk that sleeps needs some seconds.
const LONGEST: u64 = 5000;

/// Of the reads of one source.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Reads that have no answer yet.
    waiting: AtomicUsize,
    /// When the last answer came, or the first of those reads began, in milliseconds as [`now`].
    since: AtomicU64,
}

impl Answers {
    /// True if somebody reads, and there was no answer for long.
    pub(super) fn are_missing(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 && now().saturating_sub(self.since.load(Ordering::Acquire)) >= LONGEST
    }

    /// Of a source that has not answered since the machine was started.
    #[cfg(test)]
    pub(super) fn missing() -> Arc<Self> {
        Arc::new(Self { waiting: AtomicUsize::new(1), since: AtomicU64::new(0) })
    }
}

/// A read that has no answer yet.
struct Question<'a>(&'a Answers);

impl<'a> Question<'a> {
    fn new(answers: &'a Answers) -> Self {
        // Before it is counted: else it would seem to wait for as long as nobody has read.
        if answers.waiting.load(Ordering::Acquire) == 0 {
            answers.since.store(now(), Ordering::Release);
        }
        answers.waiting.fetch_add(1, Ordering::AcqRel);
        Self(answers)
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.since.store(now(), Ordering::Release);
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Another source, of which it is known whether it answers.
#[derive(Debug)]
pub(super) struct Answered {
    source: SharedSource,
    answers: Arc<Answers>,
}

impl Answered {
    /// `source`, and what is known of its answers.
    pub(super) fn around(source: SharedSource) -> (SharedSource, Arc<Answers>) {
        let answers = Arc::<Answers>::default();
        (Arc::new(Self { source, answers: Arc::clone(&answers) }), answers)
    }
}

impl Source for Answered {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _question = Question::new(&self.answers);
        self.source.read_at(buffer, offset)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let _question = Question::new(&self.answers);
        self.source.read_exact_at(buffer, offset)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let _question = Question::new(&self.answers);
        self.source.read_before(buffer, offset, end)
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn memory(&self) -> usize {
        self.source.memory()
    }

    fn backing_file(&self) -> Option<BorrowedFd<'_>> {
        self.source.backing_file()
    }

    fn part_starts(&self) -> &[u64] {
        self.source.part_starts()
    }
}
