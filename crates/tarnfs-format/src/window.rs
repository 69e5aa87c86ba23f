//! Parts of the image that were read last: listings stand close together.

use std::io;

use tarnfs_source::Source;

/// Bytes that are read at once.
const LENGTH: u64 = 64 << 10;
const LEAST: u64 = 4 << 10;

#[derive(Debug)]
pub(crate) struct Window<'s> {
    source: &'s dyn Source,
    start: u64,
    bytes: Vec<u8>,
    /// Bytes that are read at least when something is far from what was read last.
    least: u64,
}

impl<'s> Window<'s> {
    pub(crate) fn new(source: &'s dyn Source) -> Self {
        Self { source, start: 0, bytes: Vec::new(), least: LENGTH }
    }

    /// One that is small as long as places far from each other are asked for.
    pub(crate) fn growing(source: &'s dyn Source) -> Self {
        Self { least: LEAST, ..Self::new(source) }
    }

    /// Up to `length` bytes from byte `at` on; `length` is no more than a window. Fewer where the image ends.
    pub(crate) fn get(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let there = usize::try_from(self.source.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(there);
        let is_inside = |start: u64, bytes: &[u8]| {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            bytes.get(from..)?.get(..length).map(|_| from)
        };
        let from = if let Some(from) = is_inside(self.start, &self.bytes) {
            from
        } else {
            let passed = self.bytes.len() as u64;
            let is_near = at.checked_sub(self.start).is_some_and(|ahead| ahead <= passed.saturating_add(LENGTH));
            let most = if is_near { passed.saturating_mul(2).clamp(self.least, LENGTH) } else { self.least };
            let most = most.max(length as u64).min(self.source.len().saturating_sub(at));
            self.bytes.clear();
            self.bytes.resize(usize::try_from(most).unwrap_or(0), 0);
            let mut read = self.source.read_exact_at(&mut self.bytes, at);
            // What is only read ahead may be damaged.
            let is_damage = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
            if is_damage && self.bytes.len() > length {
                self.bytes.truncate(length);
                read = self.source.read_exact_at(&mut self.bytes, at);
            }
            if let Err(error) = read {
                self.bytes.clear();
                return Err(error);
            }
            self.start = at;
            0
        };
        Ok(self.bytes.get(from..).and_then(|rest| rest.get(..length)).unwrap_or_default())
    }
}
