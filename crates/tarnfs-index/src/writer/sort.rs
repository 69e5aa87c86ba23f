//! Sorting any number of records in bounded memory.
//!
//! Records are gathered in one block of memory. When it is full they are sorted and go, as a run, to a temporary file
//! without a name, one run behind the other; at the end the runs are merged. A file that is full of runs becomes one
//! long run in a file for such: whatever is sorted, there are a few files and not many runs in each.
//!
//! Folders have small numbers, so records are first counted out by folder, and only those of one folder are compared
//! with one another, when they are asked for: so whoever takes them begins early. An archive that is in order already
//! costs one look at each.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tarnfs_source::{Budget, Cancel, Grant};

use super::record::{self, Record};
use super::spool::{BUFFER, Overflow, Reader, Spool};

/// Gathers records and hands them out in the order of (folder, name, place in the archive, tag); equal ones as they
/// came.
#[derive(Debug)]
pub(super) struct Sorter {
    block: Vec<u8>,
    /// The runs that were merged most often, which hold the oldest records, come last.
    levels: Vec<Level>,
    records: u64,
    /// Bytes of all records.
    bytes: u64,
    room: usize,
    cancel: Cancel,
    /// For runs.
    overflow: Overflow,
    grant: Option<Grant>,
}

/// Sorted runs in one temporary file.
#[derive(Debug)]
struct Level {
    spool: Spool,
    /// Where in it each lies.
    runs: Vec<Range<u64>>,
}

/// Runs of one level. Each has a buffer while they are merged.
const MOST_RUNS: usize = 32;

/// What is asked for at most, and what is used even where nothing is granted: less would be slower, not smaller.
const MOST: usize = 96 << 20;
const LEAST: usize = 1 << 20;
/// Of a grant, what is left for the order of the records while they are sorted: 16 bytes for each of about 40.
const SORTING: usize = 3;

/// Bytes that are handed out at once, and how many such batches may wait.
const BATCH: usize = 128 << 10;
const WAITING: usize = 4;

impl Sorter {
    /// Whatever takes long ends soon after `cancel` was asked for. Runs go to `overflow`.
    pub(super) fn new(budget: &Budget, overflow: &Overflow, cancel: Cancel) -> Self {
        let grant = std::iter::successors(Some(MOST), |bytes| Some(bytes / 2))
            .take_while(|&bytes| bytes >= LEAST)
            .find_map(|bytes| budget.take(bytes));
        let bytes = grant.as_ref().map_or(LEAST, Grant::bytes);
        let room = bytes.saturating_sub(bytes / SORTING);
        Self {
            block: Vec::new(),
            levels: Vec::new(),
            records: 0,
            bytes: 0,
            room,
            cancel,
            overflow: overflow.clone(),
            grant,
        }
    }

    /// How many records were pushed.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// How many bytes these are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if self.block.len().saturating_add(record.len()) > self.room && !self.block.is_empty() {
            self.spill()?;
        }
        if self.block.capacity() == 0 {
            // All at once: memory that is not touched costs nothing, and growing would copy and need twice as much.
            self.block.reserve_exact(self.room);
        }
        self.block.extend_from_slice(record);
        self.records = self.records.saturating_add(1);
        self.bytes = self.bytes.saturating_add(record.len() as u64);
        Ok(())
    }

    /// Nearly all was pushed: what is not needed for the rest has other uses from here on.
    pub(super) fn shrink(&mut self) {
        self.room = self.block.len().saturating_add(LEAST).min(self.room);
        if let Some(grant) = &mut self.grant {
            // As much as has just this room.
            let bytes = self.room.saturating_mul(SORTING).checked_div(SORTING.saturating_sub(1));
            grant.shrink_to(bytes.unwrap_or(self.room));
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.make_room(0)?;
        let block = &self.block;
        if let Some(level) = self.levels.first_mut() {
            level.add(|spool| InOrder::of(block).try_for_each(|record| spool.write(record)))?;
        }
        self.block.clear();
        Ok(())
    }

    /// Sees to it that the level `number` takes one more run. There are never many levels: each holds [`MOST_RUNS`]
    /// times what the one before it holds.
    fn make_room(&mut self, number: usize) -> io::Result<()> {
        match self.levels.get(number) {
            None => self.levels.push(Level::new(&self.overflow)),
            Some(level) if level.runs.len() < MOST_RUNS => {}
            Some(_) => {
                let next = number.saturating_add(1);
                self.make_room(next)?;
                if let Some([full, next]) = self.levels.get_mut(number..=next) {
                    let full = std::mem::replace(full, Level::new(&self.overflow));
                    let (cancel, mut taken) = (&self.cancel, 0_u32);
                    next.add(|spool| {
                        merge(full.heads().collect(), |record| {
                            taken = taken.wrapping_add(1);
                            if taken.is_multiple_of(1024) {
                                cancel.check()?;
                            }
                            spool.write(record)
                        })
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Hands all records to `receive` in order. They are sorted on another thread meanwhile.
    pub(super) fn sorted<E: From<io::Error>>(
        &self,
        mut receive: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        std::thread::scope(|scope| {
            let (sender, receiver): (_, Receiver<io::Result<Vec<u8>>>) = sync_channel(WAITING);
            std::thread::Builder::new().name("sort".to_owned()).spawn_scoped(scope, move || {
                let mut batches = Batches { sender, batch: Vec::with_capacity(BATCH) };
                // Failing to send means that nobody listens any more: who stopped knows why.
                match self.feed(&mut batches) {
                    Ok(()) => batches.flush(),
                    Err(Stopped::Reading(error)) => drop(batches.sender.send(Err(error))),
                    Err(Stopped::NobodyListens) => {}
                }
            })?;
            for batch in receiver {
                let batch = batch?;
                let mut rest = batch.as_slice();
                while !rest.is_empty() {
                    let record = Record::read(rest);
                    if record.bytes.is_empty() {
                        return Err(io::Error::other("the temporary file of an index being written has changed").into());
                    }
                    rest = rest.get(record.bytes.len()..).unwrap_or_default();
                    receive(record)?;
                }
            }
            Ok(())
        })
    }

    /// Hands all records to `receive` as they lie, which is in no order.
    pub(super) fn each<E: From<io::Error>>(
        &self,
        mut receive: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut current = Vec::new();
        for (level, run) in self.levels.iter().flat_map(|level| level.runs.iter().map(move |run| (level, run))) {
            let mut reader = level.spool.reader_of(run.clone());
            while reader.record(&mut current)? {
                receive(Record::read(&current))?;
            }
        }
        folders(&self.block).try_for_each(|(start, _)| receive(record_at(&self.block, start)))
    }

    fn feed(&self, batches: &mut Batches) -> Result<(), Stopped> {
        let mut block = InOrder::of(&self.block);
        if self.levels.is_empty() {
            return block.try_for_each(|record| batches.add(record));
        }
        let mut heads: Vec<_> = self.levels.iter().rev().flat_map(Level::heads).collect();
        heads.push(Head::Block { block, current: &[] });
        merge(heads, |record| batches.add(record))
    }
}

impl Level {
    fn new(overflow: &Overflow) -> Self {
        Self { spool: Spool::new(BUFFER, overflow), runs: Vec::new() }
    }

    /// What `write` writes is one more run.
    fn add(&mut self, write: impl FnOnce(&mut Spool) -> io::Result<()>) -> io::Result<()> {
        let start = self.spool.len();
        write(&mut self.spool)?;
        self.runs.push(start..self.spool.len());
        Ok(())
    }

    fn heads(&self) -> impl Iterator<Item = Head<'_>> {
        let reader = |run: &Range<u64>| self.spool.reader_of(run.clone());
        self.runs.iter().map(move |run| Head::File { reader: reader(run), current: Vec::new() })
    }
}

enum Stopped {
    Reading(io::Error),
    NobodyListens,
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Reading(error)
    }
}

struct Batches {
    sender: SyncSender<io::Result<Vec<u8>>>,
    batch: Vec<u8>,
}

impl Batches {
    fn add(&mut self, record: &[u8]) -> Result<(), Stopped> {
        if self.batch.len().saturating_add(record.len()) > BATCH && !self.batch.is_empty() {
            let full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            self.sender.send(Ok(full)).map_err(|_| Stopped::NobodyListens)?;
        }
        self.batch.extend_from_slice(record);
        Ok(())
    }

    fn flush(self) {
        drop(self.sender.send(Ok(self.batch)));
    }
}

/// The record that begins at byte `start`.
fn record_at(block: &[u8], start: u32) -> Record<'_> {
    Record::read(bytes_from(block, start))
}

fn bytes_from(block: &[u8], start: u32) -> &[u8] {
    block.get(start as usize..).unwrap_or_default()
}

/// Where each record of `block` begins, and the folder that it is in.
fn folders(block: &[u8]) -> impl Iterator<Item = (u32, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = block.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at as u32;
        // A record is never empty; should one be, moving on by 1 still ends.
        at = at.saturating_add(record::length_of(rest).max(1));
        Some((start, record::folder_of(rest) as usize))
    })
}

/// The records of a block in order.
struct InOrder<'b> {
    block: &'b [u8],
    /// Where each begins, by folder.
    starts: Vec<u32>,
    /// Of each folder that was not looked at yet: where its own end among these.
    ends: std::vec::IntoIter<u32>,
    next: usize,
    /// Up to here they are sorted.
    sorted: usize,
    /// Used again for each folder.
    keyed: Vec<(u64, u32)>,
}

impl<'b> InOrder<'b> {
    fn of(block: &'b [u8]) -> Self {
        // Counting sort by folder: ends[n] becomes where the records of folder n begin, and then, while they are
        // placed, where they end.
        let mut ends: Vec<u32> = Vec::new();
        let mut count = 0_u32;
        for (_, folder) in folders(block) {
            if folder >= ends.len() {
                ends.resize(folder.saturating_add(1), 0);
            }
            if let Some(end) = ends.get_mut(folder) {
                *end = end.saturating_add(1);
            }
            count = count.saturating_add(1);
        }
        let mut before = 0_u32;
        for end in &mut ends {
            before = before.saturating_add(std::mem::replace(end, before));
        }
        let mut starts = vec![0_u32; count as usize];
        for (start, folder) in folders(block) {
            if let Some(end) = ends.get_mut(folder) {
                if let Some(place) = starts.get_mut(*end as usize) {
                    *place = start;
                }
                *end = end.saturating_add(1);
            }
        }
        Self { block, starts, ends: ends.into_iter(), next: 0, sorted: 0, keyed: Vec::new() }
    }
}

impl<'b> Iterator for InOrder<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        while self.next >= self.sorted {
            let end = self.ends.next()? as usize;
            if let Some(folder) = self.starts.get_mut(self.sorted..end) {
                sort_folder(self.block, folder, &mut self.keyed);
            }
            self.sorted = end;
        }
        let rest = bytes_from(self.block, *self.starts.get(self.next)?);
        self.next = self.next.saturating_add(1);
        rest.get(..record::length_of(rest))
    }
}

/// Sorts the records of one folder. The first bytes of a name decide nearly always, and they lie beside the record's
/// place here.
fn sort_folder(block: &[u8], folder: &mut [u32], keyed: &mut Vec<(u64, u32)>) {
    keyed.clear();
    keyed.extend(folder.iter().map(|&start| (prefix(record_at(block, start).name), start)));
    let compare = |left: &(u64, u32), right: &(u64, u32)| {
        left.0.cmp(&right.0).then_with(|| {
            compare_in_folder(&record_at(block, left.1), &record_at(block, right.1)).then(left.1.cmp(&right.1))
        })
    };
    if !keyed.is_sorted_by(|left, right| compare(left, right) != Ordering::Greater) {
        keyed.sort_unstable_by(compare);
        for (place, (_, start)) in folder.iter_mut().zip(keyed) {
            *place = *start;
        }
    }
}

fn prefix(name: &[u8]) -> u64 {
    if let Some(first) = name.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(name) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

fn compare_in_folder(left: &Record<'_>, right: &Record<'_>) -> Ordering {
    left.name.cmp(right.name).then_with(|| left.compare(right))
}

/// The next record of one run.
enum Head<'a> {
    File { reader: Reader<'a>, current: Vec<u8> },
    Block { block: InOrder<'a>, current: &'a [u8] },
}

impl Head<'_> {
    fn current(&self) -> Record<'_> {
        Record::read(match self {
            Self::File { current, .. } => current,
            Self::Block { current, .. } => current,
        })
    }

    /// False at the end of the run.
    fn advance(&mut self) -> io::Result<bool> {
        match self {
            Self::File { reader, current } => reader.record(current),
            Self::Block { block, current } => Ok(match block.next() {
                Some(record) => {
                    *current = record;
                    true
                }
                None => false,
            }),
        }
    }
}

/// Merges runs; of equal records those of the earlier run come first.
fn merge<E: From<io::Error>>(
    mut heads: Vec<Head<'_>>,
    mut receive: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut heap = Vec::new();
    for (number, head) in heads.iter_mut().enumerate() {
        if head.advance()? {
            heap.push(number);
        }
    }
    for top in (0..heap.len() / 2).rev() {
        sift_down(&mut heap, top, &heads);
    }
    while let Some(&first) = heap.first() {
        let Some(head) = heads.get_mut(first) else { break };
        receive(head.current().bytes)?;
        if !head.advance()? {
            heap.swap_remove(0);
        }
        sift_down(&mut heap, 0, &heads);
    }
    Ok(())
}

fn comes_before(left: Option<&usize>, right: Option<&usize>, heads: &[Head<'_>]) -> bool {
    let (Some(&left), Some(&right)) = (left, right) else { return left.is_some() };
    let (Some(one), Some(other)) = (heads.get(left), heads.get(right)) else { return false };
    let (one, other) = (one.current(), other.current());
    one.folder.cmp(&other.folder).then_with(|| compare_in_folder(&one, &other)).then(left.cmp(&right)).is_lt()
}

/// Moves the run at `top` of the heap down to where it belongs.
fn sift_down(heap: &mut [usize], mut top: usize, heads: &[Head<'_>]) {
    loop {
        let left = top.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        let least = if comes_before(heap.get(right), heap.get(left), heads) { right } else { left };
        if least >= heap.len() || !comes_before(heap.get(least), heap.get(top), heads) {
            return;
        }
        heap.swap(top, least);
        top = least;
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::super::record::{Builder, Tag};
    use super::*;

    /// Of equal records those that came first come first, however often some of them were merged.
    #[test]
    fn any_number_of_runs_is_merged_in_a_few_files() {
        let mut sorter = Sorter::new(&Budget::new(0), &Overflow::on_disk(&Budget::new(8 << 20)), Cancel::default());
        sorter.room = 64;
        let (mut builder, mut expected) = (Builder::new(&Overflow::on_disk(&Budget::new(0))), Vec::new());
        let count = 20_000_u32;
        for number in 0..count {
            let folder = number.wrapping_mul(2_654_435_761) >> 27;
            let name = [b"a", b"b", b"c"][number as usize % 3];
            sorter.push(builder.number(folder, name, Tag::Marker, 0, number)).unwrap();
            expected.push((folder, name.to_vec(), number));
        }
        let runs: Vec<usize> = sorter.levels.iter().map(|level| level.runs.len()).collect();
        assert!(runs.len() == 3 && runs.iter().all(|&runs| runs > 0 && runs <= MOST_RUNS), "{runs:?}");
        expected.sort();
        for _ in 0..2 {
            let mut told = Vec::new();
            sorter
                .sorted::<io::Error>(|record| {
                    told.push((record.folder, record.name.to_vec(), record.number()));
                    Ok(())
                })
                .unwrap();
            assert!(told == expected);
        }
        let mut met = Vec::new();
        sorter
            .each::<io::Error>(|record| {
                met.push((record.folder, record.name.to_vec(), record.number()));
                Ok(())
            })
            .unwrap();
        met.sort();
        assert!(met == expected);
        sorter.cancel.cancel();
        let stopped = (0..count).find_map(|number| sorter.push(builder.number(0, b"a", Tag::Marker, 0, number)).err());
        assert_eq!(stopped.map(|error| error.kind()), Some(io::ErrorKind::Interrupted));
    }

    /// What is not needed any more is there for others, and what comes all the same is sorted as well.
    #[test]
    fn room_that_has_no_use_is_given_back() {
        let budget = Budget::new(MOST);
        let mut sorter = Sorter::new(&budget, &Overflow::on_disk(&Budget::new(8 << 20)), Cancel::default());
        let (mut builder, mut expected) = (Builder::new(&Overflow::on_disk(&Budget::new(0))), Vec::new());
        assert_eq!(budget.used(), MOST);
        for number in 0..100_000_u32 {
            let folder = number.wrapping_mul(2_654_435_761) >> 27;
            sorter.push(builder.number(folder, b"a", Tag::Marker, 0, number)).unwrap();
            expected.push((folder, number));
            if number == 1000 {
                sorter.shrink();
                assert!(budget.used() < 2 * LEAST, "{}", budget.used());
            }
        }
        assert!(!sorter.levels.is_empty());
        expected.sort_unstable();
        let mut told = Vec::new();
        let tell = |record: Record<'_>| {
            told.push((record.folder, record.number()));
            Ok(())
        };
        sorter.sorted::<io::Error>(tell).unwrap();
        assert!(told == expected);
    }
}
