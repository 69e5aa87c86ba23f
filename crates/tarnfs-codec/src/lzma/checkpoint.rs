//! The state of a decoder between two symbols, in the form in which an index keeps it: a zstd frame behind the length
//! of what is in it.
//!
//! In it are the range decoder (for LZMA alone), the model, and the history as runs: bytes left out, because nothing
//! refers to them, and bytes kept. Comes from an index, so it may be anything.

use super::model::{LITERAL_STATES, Model};

/// Level at which states are compressed.
const LEVEL: i32 = 9;

/// The first bytes of a state: its version.
const VERSION: u8 = 1;

/// Bytes of history in one state at most.
pub(super) const MOST: usize = 32 << 20;

/// Bytes of a state beside what it keeps of the history, for models with the most literal contexts.
const LARGEST_MODEL: usize = 16 << 20;

/// A state that is being gathered, or one that was loaded.
pub(super) struct Checkpoint {
    /// What the owner needs beside model and history.
    pub(super) owner: Vec<u8>,
    pub(super) model: Vec<u8>,
    /// Lowest bits of the position.
    pub(super) phase: u8,
    /// Bytes left out and bytes kept, by turns, from the oldest on.
    runs: Vec<u32>,
    kept: Vec<u8>,
}

/// A history to start from.
pub(crate) struct Loaded {
    pub(super) owner: Vec<u8>,
    pub(super) model: Model,
    pub(super) phase: u8,
    /// Bytes of the history.
    pub(super) length: usize,
    plain: Vec<u8>,
    /// Where in it the lengths of the runs begin, and where the kept bytes.
    runs: usize,
    kept: usize,
}

impl Loaded {
    /// What is known of the history: bytes, and behind how many others they come.
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let (mut runs, mut kept, mut start) = (&self.plain[self.runs..self.kept], &self.plain[self.kept..], 0);
        std::iter::from_fn(move || {
            start += get(&mut runs)? as usize;
            let (bytes, rest) = kept.split_at_checked(get(&mut runs)? as usize)?;
            kept = rest;
            start += bytes.len();
            Some((start - bytes.len(), bytes))
        })
    }
}

impl Checkpoint {
    pub(super) fn new(owner: Vec<u8>, model: &mut Model, phase: usize) -> Self {
        let mut saved = Vec::new();
        model.save(&mut saved);
        Self { owner, model: saved, phase: (phase % 16) as u8, runs: Vec::new(), kept: Vec::new() }
    }

    /// Bytes that were kept.
    pub(super) fn bytes(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.model.capacity() + self.kept.capacity() + 4 * self.runs.capacity()
    }

    /// The next bytes of the history are left out.
    pub(super) fn skip(&mut self, count: usize) {
        let is_leaving_out = self.runs.len() % 2 == 1;
        match self.runs.last_mut() {
            Some(left_out) if is_leaving_out => *left_out += count as u32,
            _ => self.runs.push(count as u32),
        }
    }

    /// The next bytes of the history are `bytes`.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if self.runs.is_empty() {
            self.runs.push(0);
        }
        let is_keeping = self.runs.len().is_multiple_of(2);
        match self.runs.last_mut() {
            Some(kept) if is_keeping => *kept += bytes.len() as u32,
            _ => self.runs.push(bytes.len() as u32),
        }
        self.kept.extend_from_slice(bytes);
    }

    /// The state, compressed. `None` where that fails.
    pub(super) fn pack(&self) -> Option<Vec<u8>> {
        let mut plain = vec![VERSION, self.owner.len() as u8];
        plain.extend_from_slice(&self.owner);
        plain.extend_from_slice(&self.model);
        plain.push(self.phase);
        put(&mut plain, self.runs.len() as u32);
        self.runs.iter().for_each(|&run| put(&mut plain, run));
        plain.extend_from_slice(&self.kept);
        let mut packed = vec![0; zstd_safe::compress_bound(plain.len())];
        let length = zstd_safe::compress(&mut packed[..], &plain, LEVEL).ok()?;
        let state = [&u32::try_from(plain.len()).ok()?.to_le_bytes(), packed.get(..length)?];
        Some(state.concat())
    }

    /// What [`Checkpoint::pack`] has made. The error says what is wrong with it.
    pub(super) fn load(state: &[u8], dictionary: usize) -> Result<Loaded, &'static str> {
        let (length, packed) = state.split_first_chunk::<4>().ok_or("is too short")?;
        let length = u32::from_le_bytes(*length) as usize;
        // The lengths of the shortest runs take half of what is in them.
        if length > LARGEST_MODEL + 2 * MOST {
            return Err("is too long");
        }
        let mut plain = Vec::new();
        plain.try_reserve_exact(length).map_err(|_| "is too long for the memory that there is")?;
        plain.resize(length, 0);
        if zstd_safe::decompress(&mut plain[..], packed) != Ok(length) {
            return Err("cannot be decompressed");
        }
        let mut rest = &plain[..];
        let &[version, owner] = take(&mut rest).ok_or("is too short")?;
        if version != VERSION {
            return Err("has an unknown version");
        }
        let (owner, behind) = rest.split_at_checked(usize::from(owner)).ok_or("is too short")?;
        rest = behind;
        let model = Model::load(&mut rest).ok_or("has a model that cannot be")?;
        let &[phase] = take(&mut rest).ok_or("is too short")?;
        let count = get(&mut rest).ok_or("is too short")?;
        let runs = plain.len() - rest.len();
        let (mut total, mut kept) = (0_usize, 0_usize);
        for number in 0..count {
            let run = get(&mut rest).ok_or("is too short")? as usize;
            total = total.saturating_add(run);
            kept = kept.saturating_add(if number % 2 == 1 { run } else { 0 });
        }
        if total > dictionary || kept != rest.len() {
            return Err("has a history of another length than it can have");
        }
        let kept = plain.len() - kept;
        if model.state >= LITERAL_STATES && model.distances[0] as usize >= total {
            return Err("refers to what lies before its history");
        }
        Ok(Loaded { owner: owner.to_vec(), model, phase, length: total, plain, runs, kept })
    }
}

fn take<'a, const COUNT: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; COUNT]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

/// Writes a number: seven bits a byte, the lowest first.
fn put(to: &mut Vec<u8>, mut number: u32) {
    while number > 0x7F {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn get(from: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let &[byte] = take(from)?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(number).ok();
        }
    }
    None
}
