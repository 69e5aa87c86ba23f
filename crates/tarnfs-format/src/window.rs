//! The part of an archive that is being looked at.

use std::io;

use tarnfs_source::{Cancel, Source};

/// Bytes read at once while a range is walked.
const PART: usize = 256 << 10;

/// Bytes read at once at least and at most by one that grows.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 10;

/// Bytes read at once where the next ones wanted lie elsewhere: a header with its name and extra fields.
const PIECE: usize = 512;

/// Shows any range of a source, and keeps what it read last.
#[derive(Debug)]
pub(crate) struct Window<'s> {
    source: &'s dyn Source,
    cancel: Option<&'s Cancel>,
    buffer: Vec<u8>,
    start: u64,
    at_once: usize,
    /// More is read at once as long as what is asked for follows what was read last.
    grows: bool,
}

impl<'s> Window<'s> {
    pub(crate) fn new(source: &'s dyn Source, cancel: &'s Cancel) -> Self {
        Self { source, cancel: Some(cancel), buffer: Vec::new(), start: 0, at_once: PART, grows: false }
    }

    /// Another one on the same source, which reads little at once: for a look at what lies elsewhere.
    pub(crate) fn beside(&self) -> Self {
        let (source, cancel) = (self.source, self.cancel);
        Self { source, cancel, buffer: Vec::new(), start: 0, at_once: PIECE, grows: false }
    }

    /// One that is small as long as places far from each other are asked for.
    pub(crate) fn growing(source: &'s dyn Source) -> Self {
        Self { source, cancel: None, buffer: Vec::new(), start: 0, at_once: LEAST, grows: true }
    }

    /// Reads no more once `cancel` says so.
    pub(crate) fn until(self, cancel: &'s Cancel) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// Reads so many bytes at once.
    pub(crate) fn with(self, at_once: usize) -> Self {
        Self { at_once, ..self }
    }

    /// Whether it is read from now on at places that do not follow each other.
    pub(crate) fn jumps(&mut self, jumps: bool) {
        self.at_once = if jumps { PIECE } else { PART };
    }

    /// True if so many bytes from `from` on are there without reading.
    pub(crate) fn has(&self, from: u64, length: usize) -> bool {
        let end = self.start.saturating_add(self.buffer.len() as u64);
        from >= self.start && from.saturating_add(length as u64) <= end
    }

    /// The bytes of `from..to`, at most `length` of them, and fewer only where `to` or the source ends.
    #[inline]
    pub(crate) fn bytes(&mut self, from: u64, to: u64, length: usize) -> io::Result<&[u8]> {
        let is_there = from.saturating_add(length as u64) <= to && self.has(from, length);
        let length = if is_there { length } else { self.fill(from, to, length)? };
        let at = from.saturating_sub(self.start) as usize;
        Ok(self.buffer.get(at..at.saturating_add(length)).unwrap_or_default())
    }

    /// Sees to it that the bytes of `from..to` are there, at most `length` of them. Returns how many these are.
    fn fill(&mut self, from: u64, to: u64, length: usize) -> io::Result<usize> {
        let to = to.min(self.source.len());
        let there = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let length = length.min(there);
        if !self.has(from, length) {
            if let Some(cancel) = self.cancel {
                cancel.check()?;
            }
            if self.grows {
                let is_near = from
                    .checked_sub(self.start)
                    .is_some_and(|ahead| ahead <= (self.buffer.len() as u64).saturating_add(MOST as u64));
                let grown = self.buffer.len().saturating_mul(2).clamp(LEAST, MOST);
                self.at_once = if is_near { grown } else { LEAST };
            }
            // Beyond `to`, too: what is read next often lies just behind it.
            let all = usize::try_from(self.source.len().saturating_sub(from)).unwrap_or(usize::MAX);
            self.buffer.resize(length.max(self.at_once).min(all), 0);
            self.start = from;
            let mut read = self.source.read_exact_at(&mut self.buffer, from);
            // What is only read ahead may be damaged.
            let is_damage = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
            if is_damage && self.buffer.len() > length {
                self.buffer.truncate(length);
                read = self.source.read_exact_at(&mut self.buffer, from);
            }
            if let Err(error) = read {
                self.buffer.clear();
                return Err(error);
            }
        }
        Ok(length)
    }

    /// Where in `from..to` the next four bytes lie that begin with `magic` and of which `is_wanted` is true.
    pub(crate) fn find(
        &mut self,
        mut from: u64,
        to: u64,
        magic: [u8; 2],
        is_wanted: fn([u8; 4]) -> bool,
    ) -> io::Result<Option<u64>> {
        loop {
            // What is there already first: it may be found at once.
            let end = self.start.saturating_add(self.buffer.len() as u64).min(to);
            let there = if from < self.start { 0 } else { end.saturating_sub(from) as usize };
            if there < 4 {
                // Of a hole, which may have no end, the last bytes are read.
                let data = self.source.next_data(from).unwrap_or(self.source.len());
                from = from.max(data.min(to).saturating_sub(3));
            }
            let bytes = self.bytes(from, to, if there < 4 { PART } else { there })?;
            let Some(last) = bytes.len().checked_sub(4) else { return Ok(None) };
            let is_it =
                |four: &[u8]| four.starts_with(&magic) && four.first_chunk().is_some_and(|four| is_wanted(*four));
            let found = bytes.windows(4).position(is_it);
            if let Some(at) = found {
                return Ok(Some(from.saturating_add(at as u64)));
            }
            from = from.saturating_add(last as u64).saturating_add(1);
        }
    }
}
