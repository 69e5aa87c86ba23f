//! The inverse of the Burrows-Wheeler transform, without waiting for memory.
//!
//! A block was sorted by what follows each byte. Undone, one row of the sorted matrix leads to the row of the byte
//! before it, all over a table of several MiB: followed alone, that walk waits for the cache at every byte. So it is
//! begun at hundreds of rows at once, wherever in the text they may be, and [`LANES`] of these walks take turns,
//! their loads under way together. Each ends at the row where another began; then the stretches of text are put in
//! their order.
//!
//! Every row has exactly one predecessor, whatever the input: each walk comes to a start again, and all of them
//! together make at most as many steps as there are rows.

use std::ops::Range;

/// Size of the table of rows: the next power of two above the largest block, so that an index is valid once masked.
pub(super) const ROWS: usize = 1 << 20;

/// Walks that take turns.
pub(super) const LANES: usize = 16;

/// Starts of walks in a full block. Their stretches differ in length, and towards the end fewer and fewer lanes
/// have work: with this many stretches that is a small part.
const STARTS: usize = 512;

/// Bytes that a lane collects before they are put aside.
const PART: usize = 1024;

/// Marks the entry of a row where a walk begins; the bits below are the number of that walk.
const MARK: u32 = 1 << 31;

/// The row on which a lane without work stays.
const IDLE: usize = ROWS - 1;

/// For each row of the sorted matrix: its last byte, and how many rows before it have the same last byte (shifted by
/// 8).
#[derive(Debug)]
pub(super) struct Rows(Box<[u32]>);

/// The text between two starts of walks, in reverse.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    /// Who walked it, and how many bytes it had collected before.
    lane: usize,
    from: usize,
    length: usize,
    /// The stretch before it in the text.
    previous: usize,
}

/// The memory of [`Inverter::invert`], for use again.
#[derive(Debug, Default)]
pub(super) struct Inverter {
    /// Full parts, each with its bytes from the back to the front.
    parts: Vec<[u8; PART]>,
    /// Numbers of the parts that each lane has filled.
    filled: [Vec<u32>; LANES],
    stretches: Vec<Stretch>,
    /// The entries of the rows where the walks start.
    entries: Vec<u32>,
    /// Rows between two of them, and the row of the last walk.
    spacing: usize,
    origin: usize,
    /// Bytes of text after which the walk from the origin came back to it: fewer than all in a block that repeats
    /// itself.
    round: usize,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self(vec![0; ROWS].into_boxed_slice())
    }

    /// The entries, to be filled.
    pub(super) fn entries(&mut self) -> &mut [u32; ROWS] {
        let Some(entries) = self.0.first_chunk_mut() else { unreachable!("made in this length") };
        entries
    }
}

impl Inverter {
    /// Appends to `text` the block whose sorted rows are `rows[..length]` and whose own row is `origin`. `counts`
    /// says how often each byte occurs. The rows are used up.
    ///
    /// `length` must be above `origin` and below [`ROWS`] - 1, and the sum of `counts`.
    pub(super) fn invert(
        &mut self,
        rows: &mut Rows,
        length: usize,
        origin: usize,
        counts: &[u32; 256],
        text: &mut Vec<u8>,
    ) {
        let table = rows.entries();
        let first = firsts(counts);
        // Leads to itself: no row of the byte 0 is before it.
        table[IDLE] = (IDLE as u32) << 8;

        let spacing = length.div_ceil(STARTS).max(64);
        (self.spacing, self.origin) = (spacing, origin);
        self.entries.clear();
        for row in (0..length).step_by(spacing).chain([origin]) {
            // The origin may be one of the others: then that one is a start twice, and keeps the later number.
            let entry = match table[row] {
                marked if marked & MARK != 0 => self.entries[(marked ^ MARK) as usize],
                entry => entry,
            };
            table[row] = MARK | self.entries.len() as u32;
            self.entries.push(entry);
        }
        self.walk(table, &first);
        self.round = self.assemble(length, text);
    }

    /// Walks all stretches.
    fn walk(&mut self, table: &[u32; ROWS], first: &[u32; 256]) {
        let Self { parts, filled, stretches, entries, .. } = self;
        parts.clear();
        filled.iter_mut().for_each(Vec::clear);
        stretches.clear();
        stretches.resize(entries.len(), Stretch::default());

        let mut waiting = entries.iter().copied().enumerate();
        let idle = table[IDLE];
        let mut collected = Box::new([[0_u8; PART]; LANES]);
        let mut entry = [idle; LANES];
        let mut walking = [None; LANES];
        let mut done = 0;
        for lane in 0..LANES {
            if let Some((number, start)) = waiting.next() {
                (walking[lane], entry[lane]) = (Some(number), start);
                stretches[number] = Stretch { lane, ..Stretch::default() };
            }
        }
        while walking.iter().any(Option::is_some) {
            // Lanes that are at work when the part begins have something to put aside when it is full.
            let mut working = walking.map(|number| number.is_some());
            let mut step = 0;
            while step < PART {
                let mut marks = 0;
                while step < PART && marks & MARK == 0 {
                    for lane in 0..LANES {
                        let last = entry[lane] as u8;
                        collected[lane][PART - 1 - step] = last;
                        let row = first[usize::from(last)].wrapping_add(entry[lane] >> 8) as usize % ROWS;
                        entry[lane] = table[row];
                        marks |= entry[lane];
                    }
                    step += 1;
                }
                if marks & MARK == 0 {
                    break;
                }
                for lane in 0..LANES {
                    if entry[lane] & MARK == 0 {
                        continue;
                    }
                    let collected = done + step;
                    if let Some(number) = walking[lane] {
                        let stretch = &mut stretches[number];
                        stretch.length = collected - stretch.from;
                        stretch.previous = (entry[lane] ^ MARK) as usize;
                    }
                    (walking[lane], entry[lane]) = match waiting.next() {
                        Some((number, start)) => {
                            stretches[number] = Stretch { lane, from: collected, ..Stretch::default() };
                            (Some(number), start)
                        }
                        None => (None, idle),
                    };
                }
            }
            done += PART;
            for lane in 0..LANES {
                // An idle lane stays idle, so its parts are only missing behind its last byte.
                if std::mem::take(&mut working[lane]) {
                    filled[lane].push(parts.len() as u32);
                    parts.push(collected[lane]);
                }
            }
        }
    }

    /// The walks of a block of `length` bytes that has just been inverted, from the back to the front: where in the
    /// text each begins, and at which row. None of a block that repeats itself: what is repeated is its start, and
    /// the last time it need not be whole, so the walks are not where its end is.
    pub(super) fn walks(&self, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let last = self.entries.len() - 1;
        let next = move |&(at, number): &(usize, usize)| {
            let stretch = self.stretches[number];
            Some((at.saturating_sub(stretch.length), stretch.previous)).filter(|&(at, number)| at > 0 && number != last)
        };
        let row = move |number| if number == last { self.origin } else { number * self.spacing };
        let start = Some((length, last)).filter(|_| self.round == length);
        std::iter::successors(start, next).map(move |(at, number)| (at, row(number)))
    }

    /// Puts the stretches behind each other: the one that ends at the origin is the last, and where the walk comes to
    /// the origin again it is the first. In a block that repeats itself that is before all rows were met; then the
    /// text is repeated, too. Returns the bytes of it that were not.
    fn assemble(&self, length: usize, text: &mut Vec<u8>) -> usize {
        // The origin's walk has the highest number.
        let origin = self.entries.len() - 1;
        let chain = || {
            let next = |number: &usize| Some(self.stretches[*number].previous).filter(|&number| number != origin);
            std::iter::successors(Some(origin), next).map(|number| self.stretches[number])
        };
        let round = chain().map(|stretch| stretch.length).sum::<usize>();
        let begin = text.len();
        text.resize(begin + round, 0);
        let mut rest = &mut text[begin..];
        for stretch in chain() {
            let mut steps: Range<usize> = stretch.from..stretch.from + stretch.length;
            while !steps.is_empty() {
                let part = &self.parts[self.filled[stretch.lane][steps.start / PART] as usize];
                let within = steps.start % PART;
                let count = (PART - within).min(steps.len());
                let (before, end) = rest.split_at_mut(rest.len() - count);
                end.copy_from_slice(&part[PART - within - count..PART - within]);
                rest = before;
                steps.start += count;
            }
        }
        while text.len() < begin + length {
            let again = (begin + length - text.len()).min(text.len() - begin);
            text.extend_from_within(begin..begin + again);
        }
        round
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.parts.capacity() * PART
            + self.filled.iter().map(|parts| parts.capacity() * size_of::<u32>()).sum::<usize>()
            + self.stretches.capacity() * size_of::<Stretch>()
            + self.entries.capacity() * size_of::<u32>()
    }
}

/// Of each byte, the rows before those that begin with it.
pub(super) fn firsts(counts: &[u32; 256]) -> [u32; 256] {
    let mut first = [0_u32; 256];
    let mut sum = 0_u32;
    for (first, count) in first.iter_mut().zip(counts) {
        *first = sum;
        sum = sum.wrapping_add(*count);
    }
    first
}

/// Fills up to [`LANES`] parts of the text, each from its end: with the row from which the walk leads there. Whatever
/// the rows are, the walks end. The rows are those of a block before it is inverted.
pub(super) fn walk_back(rows: &Rows, first: &[u32; 256], mut lanes: Vec<(usize, &mut [u8])>) {
    let Some(table) = rows.0.first_chunk::<ROWS>() else { unreachable!("made in this length") };
    let mut entry = [0_u32; LANES];
    for (entry, (row, _)) in entry.iter_mut().zip(&lanes) {
        *entry = table[row % ROWS];
    }
    let most = lanes.iter().map(|(_, part)| part.len()).max().unwrap_or(0);
    let mut collected = Box::new([[0_u8; PART]; LANES]);
    for _ in 0..most.div_ceil(PART) {
        for step in 0..PART {
            for lane in 0..LANES {
                let last = entry[lane] as u8;
                collected[lane][PART - 1 - step] = last;
                let row = first[usize::from(last)].wrapping_add(entry[lane] >> 8) as usize % ROWS;
                entry[lane] = table[row];
            }
        }
        for ((_, part), collected) in lanes.iter_mut().zip(&*collected) {
            let count = PART.min(part.len());
            let before = part.len() - count;
            let (before, end) = std::mem::take(part).split_at_mut(before);
            end.copy_from_slice(&collected[PART - count..]);
            *part = before;
        }
    }
}
