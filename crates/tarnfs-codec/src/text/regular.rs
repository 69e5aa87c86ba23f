//! Base64 in lines that are all equally long.

use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Source};

use super::Letters as _;
use super::base64::Quads;
use crate::{CoderContext, coders};

/// Decoded bytes that are read together.
const TOGETHER: u64 = 48 << 10;

/// Bytes of the end of a line: a line feed, and what may stand before it.
const LONGEST_END: u8 = 2;

/// What such lines say.
#[derive(Debug)]
pub(super) struct Regular {
    text: SharedSource,
    /// Characters of a line, and bytes of its end.
    line: u64,
    end: u64,
    length: u64,
}

impl Regular {
    /// `None` where a container does not say that they are so.
    #[allow(clippy::new_ret_no_self, reason = "what it makes is read as any source")]
    pub(super) fn new(text: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let (&[a, b, c, d, end], Some(length)) = (&coder.properties[..], coder.decoded_length) else {
            return if coder.properties.is_empty() { Ok(None) } else { Err(coders::invalid_properties("base64")) };
        };
        let line = u64::from(u32::from_le_bytes([a, b, c, d]));
        let characters = length.div_ceil(3).saturating_mul(4);
        let is_one = characters <= line.next_multiple_of(4);
        let regular = Self { text: SharedSource::clone(text), line, end: end.into(), length };
        if line == 0 || end > LONGEST_END || !line.is_multiple_of(4) && !is_one || length > text.len() {
            return Err(coders::invalid_properties("base64"));
        }
        Ok(Some(Arc::new(regular)))
    }

    /// Where the character with that number is.
    fn place(&self, character: u64) -> u64 {
        let (line, column) = (character / self.line, character % self.line);
        // One of padding in a single line is behind it.
        if self.line.is_multiple_of(4) {
            line.saturating_mul(self.line + self.end).saturating_add(column)
        } else {
            character
        }
    }

    /// Decodes from byte `offset` on, which begins four characters, and no more than is read together.
    fn decoded(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let first = offset / 3 * 4;
        let last = (offset + length).div_ceil(3) * 4 - 1;
        let (from, to) = (self.place(first), self.place(last).saturating_add(1).min(self.text.len()));
        let mut text = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or_default()];
        self.text.read_exact_at(&mut text, from)?;
        let mut bytes = Vec::with_capacity(length as usize + 3);
        let decoded = Quads::with(false).decode(&text, true, &mut bytes);
        if decoded.is_err() || (bytes.len() as u64) < length {
            let what = format!("{}: base64 is damaged at byte {from}", self.text.describe());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(bytes)
    }
}

impl Source for Regular {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = (buffer.len() as u64).min(self.length.saturating_sub(offset));
        let (mut at, end) = (offset, offset.saturating_add(wanted));
        while at < end {
            let start = at - at % 3;
            let length = TOGETHER.min(self.length - start);
            let bytes = self.decoded(start, length.min(end - start))?;
            let bytes = &bytes[(at - start) as usize..];
            let count = bytes.len().min((end - at) as usize);
            let place = (at - offset) as usize;
            buffer[place..place + count].copy_from_slice(&bytes[..count]);
            at += count as u64;
        }
        Ok(wanted as usize)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.text.describe()
    }

    fn depth(&self) -> usize {
        self.text.depth()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let from = self.place(offset / 3 * 4);
        let to = self.place(offset.saturating_add(length).div_ceil(3).saturating_mul(4));
        self.text.prefetch(from, to.saturating_sub(from));
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let from = self.place(offset / 3 * 4);
        let to = self.place(offset.saturating_add(length as u64).div_ceil(3).saturating_mul(4));
        self.text.is_ready(from, usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX))
    }

    fn is_unproven(&self) -> bool {
        self.text.is_unproven()
    }
}
