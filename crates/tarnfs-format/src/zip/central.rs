//! The directory: one header for each member, one behind the other.

use std::io;
use std::ops::Range;

use super::bytes::{u16_at, u32_at};
use super::extra::{Extra, Numbers};
use super::member::Header;
use crate::window::Window;

/// Length of a header without name, extra fields and comment (APPNOTE 4.3.12).
pub(super) const HEADER: usize = 46;

pub(super) const SIGNATURE: [u8; 4] = *b"PK\x01\x02";

/// A header as it stands in the directory. What it says is read when it is asked for: a directory may have a million of
/// them, and not all of each is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Central<'b> {
    /// Byte of the archive at which it stands.
    pub(super) at: u64,
    fixed: &'b [u8; HEADER],
    /// Name, extra fields and comment.
    rest: &'b [u8],
}

impl<'b> Central<'b> {
    /// What it has in common with a local header.
    pub(super) fn head(&self) -> Header<'b> {
        let fixed = self.fixed;
        Header {
            // Who made it: what `external` means.
            host: u16_at(fixed, 4).to_le_bytes()[1],
            flags: u16_at(fixed, 8),
            method: u16_at(fixed, 10),
            time: u16_at(fixed, 12),
            date: self.date(),
            crc: u32_at(fixed, 16),
            external: u32_at(fixed, 38),
            name: self.name(),
        }
    }

    fn date(&self) -> u16 {
        u16_at(self.fixed, 14)
    }

    /// Sizes and offset; `None` if one is missing among the extra fields, which are `extra`.
    pub(super) fn numbers(&self, extra: &Extra<'_>) -> Option<Numbers> {
        let [size, stored, offset] = self.small_numbers();
        extra.numbers(size, stored, offset)
    }

    /// Number of the volume in which the offset counts.
    pub(super) fn volume(&self, extra: &Extra<'_>) -> u32 {
        extra.volume(self.small_volume(), self.small_numbers())
    }

    /// Offset and volume, if none of them is among the extra fields.
    pub(super) fn plain_offset(&self) -> Option<(u64, u32)> {
        let ([_, _, offset], volume) = (self.small_numbers(), self.small_volume());
        (offset != u32::MAX && volume != u16::MAX).then_some((offset.into(), volume.into()))
    }

    /// Size, stored size and offset as they stand there: all ones if they are among the extra fields.
    fn small_numbers(&self) -> [u32; 3] {
        [24, 20, 42].map(|at| u32_at(self.fixed, at))
    }

    fn small_volume(&self) -> u16 {
        u16_at(self.fixed, 34)
    }

    pub(super) fn has_comment(&self) -> bool {
        u16_at(self.fixed, 32) > 0
    }

    pub(super) fn name(&self) -> &'b [u8] {
        self.rest.get(..u16_at(self.fixed, 28).into()).unwrap_or_default()
    }

    /// The extra fields, not taken apart.
    pub(super) fn fields(&self) -> &'b [u8] {
        let name = usize::from(u16_at(self.fixed, 28));
        let end = name.saturating_add(usize::from(u16_at(self.fixed, 30)));
        self.rest.get(name..end).unwrap_or_default()
    }

    pub(super) fn extra(&self) -> Extra<'b> {
        Extra::read(self.fields(), self.name(), self.date())
    }
}

/// What comes next in the directory.
#[derive(Debug)]
pub(super) enum Next<'b> {
    Header(Central<'b>),
    /// No header is here; the next one, or the end, is behind it.
    Broken(Range<u64>),
    End,
}

/// The same without what it says.
#[derive(Debug)]
enum Step {
    /// A header stands there.
    Header(Range<u64>),
    Broken(Range<u64>),
    End,
}

/// Walks the directory.
#[derive(Debug)]
pub(super) struct Walk<'s> {
    window: Window<'s>,
    range: Range<u64>,
    at: u64,
}

impl<'s> Walk<'s> {
    pub(super) fn new(window: Window<'s>, range: Range<u64>) -> Self {
        Self { window, at: range.start, range }
    }

    /// Goes to the header at byte `at`, and reads no more than one header at once until it starts again.
    pub(super) fn jump(&mut self, at: u64) {
        self.window.jumps(true);
        self.at = at;
    }

    /// Starts again.
    pub(super) fn rewind(&mut self) {
        self.window.jumps(false);
        self.at = self.range.start;
    }

    /// Bytes of the directory that come next: where it has ended, they are none of a header.
    pub(super) fn left(&self) -> u64 {
        self.range.end.saturating_sub(self.at)
    }

    /// The next header, past what is none.
    pub(super) fn next_header(&mut self) -> io::Result<Option<Central<'_>>> {
        loop {
            match self.step()? {
                Step::Header(place) => return self.header(place),
                Step::Broken(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        Ok(match self.step()? {
            Step::Header(place) => self.header(place)?.map_or(Next::End, Next::Header),
            Step::Broken(range) => Next::Broken(range),
            Step::End => Next::End,
        })
    }

    /// Goes past what comes next.
    fn step(&mut self) -> io::Result<Step> {
        let (at, end) = (self.at, self.range.end);
        let fixed = self.window.bytes(at, end, HEADER)?;
        // Nothing, or the digital signature (APPNOTE 4.3.13).
        if fixed.is_empty() || fixed.starts_with(b"PK\x05\x05") {
            return Ok(Step::End);
        }
        let Some(length) = length(fixed).filter(|&length| length <= end.saturating_sub(at)) else {
            self.at = self.resynchronise(at)?;
            return Ok(Step::Broken(at..self.at));
        };
        self.at = at.saturating_add(length);
        Ok(Step::Header(at..self.at))
    }

    /// The header that stands at `place`.
    fn header(&mut self, place: Range<u64>) -> io::Result<Option<Central<'_>>> {
        let at = place.start;
        let length = place.end.saturating_sub(at) as usize;
        let bytes = self.window.bytes(at, self.range.end, length)?;
        Ok(bytes.split_first_chunk().map(|(fixed, rest)| Central { at, fixed, rest }))
    }

    /// Where behind `at` the next header is that fits; the end, if none is.
    fn resynchronise(&mut self, at: u64) -> io::Result<u64> {
        let end = self.range.end;
        let mut from = at.saturating_add(1);
        while let Some(found) = self.window.find(from, end, *b"PK", |four| four == SIGNATURE)? {
            let fixed = self.window.bytes(found, end, HEADER)?;
            if length(fixed).is_some_and(|length| length <= end.saturating_sub(found)) {
                return Ok(found);
            }
            from = found.saturating_add(4);
        }
        Ok(end)
    }
}

/// Length of the header that begins with `fixed`; `None` if that is none.
fn length(fixed: &[u8]) -> Option<u64> {
    let variable = || [28, 30, 32].into_iter().map(|at| u64::from(u16_at(fixed, at))).sum::<u64>();
    (fixed.len() == HEADER && fixed.starts_with(&SIGNATURE)).then(|| variable().saturating_add(HEADER as u64))
}
