use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tarnfs_tree::Work;

/// Extended attribute of the root that holds the statistics of a running mount. It is in no list of attributes, so
/// nobody copies it.
pub const ATTRIBUTE: &str = "user.tarnfs.statistics";

/// What the kernel asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// A name in a folder.
    Lookup,
    /// What `stat` says.
    Attributes,
    /// Names in a folder, without or with attributes.
    ReadDir,
    /// The target of a symbolic link.
    ReadLink,
    /// To open a file or a folder; the kernel asks once per mount where it need not.
    Open,
    /// Bytes of a file.
    Read,
    /// Extended attributes, one or their names.
    Xattr,
    /// Totals of the file system.
    Statfs,
    /// Where data or a hole begins.
    Seek,
    /// To change something.
    Write,
    /// What has no meaning here, and is refused once.
    Other,
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Lookup,
        Self::Attributes,
        Self::ReadDir,
        Self::ReadLink,
        Self::Open,
        Self::Read,
        Self::Xattr,
        Self::Statfs,
        Self::Seek,
        Self::Write,
        Self::Other,
    ];

    /// True of what may have to open a file.
    pub(crate) fn opens(self) -> bool {
        matches!(self, Self::Open | Self::Read | Self::Seek)
    }

    /// Its name, for the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Attributes => "attributes",
            Self::ReadDir => "read folder",
            Self::ReadLink => "read link",
            Self::Open => "open",
            Self::Read => "read",
            Self::Xattr => "extended attribute",
            Self::Statfs => "statfs",
            Self::Seek => "seek",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// What a mount has done so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Requests of each kind, in the order of [`Operation::ALL`].
    pub requests: [u64; Operation::ALL.len()],
    /// Reads that were handed to a worker because they would have waited.
    pub handed_on: u64,
    /// Bytes given to readers.
    pub bytes_read: u64,
    /// Requests whose program got a signal while it waited.
    pub interrupted: u64,
    /// Requests during which the program panicked, and which got EIO.
    pub panics: u64,
    /// Requests that got an error because they took too long.
    pub deadlines_missed: u64,
    /// Requests without an answer at this moment.
    pub in_flight: usize,
    /// How long the oldest of them has waited.
    pub oldest: Option<Duration>,
    /// What the tree has done for them.
    pub work: Work,
    /// When the mount began, in seconds since 1970.
    pub since: u64,
}

impl Statistics {
    /// Requests of one kind.
    pub fn of(&self, operation: Operation) -> u64 {
        self.requests[operation as usize]
    }

    /// Requests of all kinds.
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// All of it as one JSON object, what the attribute [`ATTRIBUTE`] holds.
    pub fn to_json(&self) -> String {
        let requests = Operation::ALL.iter().map(|&kind| (kind.name().replace(' ', "_"), self.of(kind).into()));
        let Work { decoding, ref memory, memory_limit } = self.work;
        let memory = memory.iter().map(|&(owner, bytes)| (owner.to_owned(), bytes.into()));
        json!({
            "since": self.since,
            "requests": requests.collect::<Map<String, Value>>(),
            "handed_on": self.handed_on,
            "bytes_read": self.bytes_read,
            "interrupted": self.interrupted,
            "panics": self.panics,
            "deadlines_missed": self.deadlines_missed,
            "in_flight": self.in_flight,
            "oldest_seconds": self.oldest.map_or(0.0, |age| age.as_secs_f64()),
            "chunk_hits": decoding.hits,
            "chunk_misses": decoding.misses,
            "chunks_ahead": decoding.prefetched,
            "resumes": decoding.resumes,
            "chunks_kept": decoding.kept,
            "decoded_bytes": decoding.decoded_bytes,
            "memory": memory.collect::<Map<String, Value>>(),
            "memory_limit": memory_limit,
        })
        .to_string()
    }
}

/// The numbers as they are counted: never read back, so their order among each other does not matter.
#[derive(Debug)]
pub(crate) struct Counters {
    since: SystemTime,
    requests: [AtomicU64; Operation::ALL.len()],
    pub(crate) handed_on: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) interrupted: Counter,
    pub(crate) panics: Counter,
    pub(crate) deadlines_missed: Counter,
}

impl Default for Counters {
    /// Nothing was counted before now.
    fn default() -> Self {
        let (requests, handed_on, bytes_read, interrupted, panics, deadlines_missed) = Default::default();
        let since = SystemTime::now();
        Self { since, requests, handed_on, bytes_read, interrupted, panics, deadlines_missed }
    }
}

impl Counters {
    pub(crate) fn count(&self, operation: Operation) {
        self.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, in_flight: usize, oldest: Option<Duration>, work: Work) -> Statistics {
        Statistics {
            requests: self.requests.each_ref().map(|count| count.load(Ordering::Relaxed)),
            handed_on: self.handed_on.get(),
            bytes_read: self.bytes_read.get(),
            interrupted: self.interrupted.get(),
            panics: self.panics.get(),
            deadlines_missed: self.deadlines_missed.get(),
            in_flight,
            oldest,
            work,
            since: self.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_in_their_own_place() {
        let counters = Counters::default();
        for (number, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation as usize, number);
            (0..=number).for_each(|_| counters.count(operation));
        }
        let statistics = counters.snapshot(0, None, Work::default());
        for (number, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(statistics.of(operation), number as u64 + 1);
        }
        assert_eq!(statistics.total(), 66);
        counters.interrupted.add(3);
        let json = counters.snapshot(0, None, Work::default()).to_json();
        assert!(json.contains(r#""interrupted":3"#), "{json}");
    }
}
