//! Sorting any number of records in bounded memory.
//!
//! Records are gathered in one block of memory. When it is full they are sorted and go, as a run, to a temporary file
//! without a name; at the end the runs are merged. Folders have small numbers, so records are first counted out by folder, and
//! only those of one folder are compared with one another; an archive that is in order already costs one look at each.

use std::cmp::Ordering;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tarnfs_source::{Budget, Grant};

use super::record::Record;
use super::spool::{Reader, Spool};

/// Gathers records and hands them out in the order of (folder, name, place in the archive, tag); equal ones as they came.
#[derive(Debug)]
pub(super) struct Sorter {
    block: Vec<u8>,
    runs: Vec<Spool>,
    records: u64,
    room: usize,
    _grant: Option<Grant>,
}

/// What is asked for at most, and what is used even where nothing is granted: less would be slower, not smaller.
const MOST: usize = 96 << 20;
const LEAST: usize = 1 << 20;
/// Of a grant, what is left for the order of the records while they are sorted: 16 bytes for each of about 40.
const SORTING: usize = 3;

/// Bytes that are handed out at once, and how many such batches may wait.
const BATCH: usize = 128 << 10;
const WAITING: usize = 4;

impl Sorter {
    pub(super) fn new(budget: &Budget) -> Self {
        let grant = std::iter::successors(Some(MOST), |bytes| Some(bytes / 2))
            .take_while(|&bytes| bytes >= LEAST)
            .find_map(|bytes| budget.take(bytes));
        let bytes = grant.as_ref().map_or(LEAST, Grant::bytes);
        let room = bytes.saturating_sub(bytes / SORTING);
        Self { block: Vec::new(), runs: Vec::new(), records: 0, room, _grant: grant }
    }

    /// How many records were pushed.
    pub(super) fn records(&self) -> u64 {
        self.records
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
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut run = Spool::on_disk();
        for &start in &order(&self.block) {
            run.write(record_at(&self.block, start).bytes)?;
        }
        run.flush()?;
        self.runs.push(run);
        self.block.clear();
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

    fn feed(&self, batches: &mut Batches) -> Result<(), Stopped> {
        let order = order(&self.block);
        if self.runs.is_empty() {
            for &start in &order {
                batches.add(record_at(&self.block, start).bytes)?;
            }
            return Ok(());
        }
        let mut heads = Vec::new();
        for run in &self.runs {
            heads.push(Head::File { reader: run.reader(), current: Vec::new() });
        }
        heads.push(Head::Block { block: &self.block, order: order.iter(), current: &[] });
        merge(heads, batches)
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

fn record_at(block: &[u8], start: u32) -> Record<'_> {
    Record::read(block.get(start as usize..).unwrap_or_default())
}

fn records(block: &[u8]) -> impl Iterator<Item = (u32, Record<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = Record::read(block.get(at..).filter(|rest| !rest.is_empty())?);
        let start = at as u32;
        // A record is never empty; should one be, moving on by 1 still ends.
        at = at.saturating_add(record.bytes.len().max(1));
        Some((start, record))
    })
}

/// Where the records of `block` begin, in order.
fn order(block: &[u8]) -> Vec<u32> {
    // Counting sort by folder: ends[n] becomes where the records of folder n begin, and then, while they are placed, where they end.
    let mut ends: Vec<u32> = Vec::new();
    let mut count = 0_u32;
    for (_, record) in records(block) {
        let folder = record.folder as usize;
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
    let mut order = vec![0_u32; count as usize];
    for (start, record) in records(block) {
        if let Some(end) = ends.get_mut(record.folder as usize) {
            if let Some(place) = order.get_mut(*end as usize) {
                *place = start;
            }
            *end = end.saturating_add(1);
        }
    }
    let mut keyed = Vec::new();
    let mut from = 0;
    for end in ends {
        if let Some(folder) = order.get_mut(from..end as usize) {
            sort_folder(block, folder, &mut keyed);
        }
        from = end as usize;
    }
    order
}

/// Sorts the records of one folder. The first bytes of a name decide nearly always, and they lie beside the record's place here.
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
    Block { block: &'a [u8], order: std::slice::Iter<'a, u32>, current: &'a [u8] },
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
            Self::Block { block, order, current } => Ok(match order.next() {
                Some(&start) => {
                    *current = record_at(block, start).bytes;
                    true
                }
                None => false,
            }),
        }
    }
}

/// Merges runs; of equal records those of the earlier run come first.
fn merge(mut heads: Vec<Head<'_>>, batches: &mut Batches) -> Result<(), Stopped> {
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
        batches.add(head.current().bytes)?;
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
