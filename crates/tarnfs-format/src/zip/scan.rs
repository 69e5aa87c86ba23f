//! Members found by their local headers, where the directory does not tell of them.
//!
//! A header that knows its sizes says where the next one is. Behind content of unknown length follows a descriptor: it
//! is searched for, and known by the length that it says. Each byte is searched at most three times, whatever is there.

use std::io;

use super::bytes::{u32_at, u64_at};
use super::extra::{Extra, Numbers};
use super::local::{self, Local};
use super::member::{FLAG_DESCRIPTOR, Header, Member};
use crate::encoding::Encoding;
use crate::window::Window;

/// What was found.
#[derive(Debug)]
pub(super) enum Found {
    /// A member that ends before byte `end`, or is cut there.
    Member { member: Member, end: u64, is_cut: bool },
    /// A header at byte `at` whose content cannot be told; the search goes on at byte `next`.
    LeftOut { at: u64, next: u64, what: &'static str },
}

/// Sizes that follow content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    crc: u32,
    stored: u64,
    size: u64,
    /// Byte behind it.
    end: u64,
}

/// Searches for members.
#[derive(Debug)]
pub(super) struct Scan<'s> {
    window: Window<'s>,
    /// Looks at what follows a member: that may lie far away, and what `window` has read is wanted again if no member
    /// ends there.
    ahead: Window<'s>,
    /// A descriptor is searched for past other headers: those of an archive in this one. Once one was not found, its
    /// member is given up at the next header, so that not all is searched again for each.
    is_patient: bool,
    /// The most bytes that are searched for a header.
    limit: u64,
    /// Of names that do not say what they are in.
    encoding: Option<Encoding>,
}

impl<'s> Scan<'s> {
    pub(super) fn new(window: Window<'s>, limit: u64) -> Self {
        Self { ahead: window.beside(), window, is_patient: true, limit, encoding: None }
    }

    /// Takes names that do not say what they are in for names in `encoding`.
    pub(super) fn take_names_for(&mut self, encoding: Option<Encoding>) {
        self.encoding = encoding;
    }

    /// The first member whose header begins in `from..to`. At `to` begins a header that is known, or the archive ends.
    pub(super) fn next(&mut self, mut from: u64, to: u64, is_end: bool) -> io::Result<Option<Found>> {
        while let Some(at) = self.header(from, to)? {
            let Some(local) = Local::read(&mut self.window, at, to)? else { return Ok(None) };
            let Local { flags, method, time, date, crc, stored, size, name, extra, content, .. } = local;
            let header = Header { host: u8::MAX, flags, method, time, date, crc, external: 0, name };
            let extra = Extra::read(extra, name, date);
            let Some(numbers) = extra.numbers(size, stored, 0) else {
                from = at.saturating_add(4);
                continue;
            };
            let numbers = Numbers { offset: at, ..numbers };
            let end = content.saturating_add(numbers.stored);
            let mut member = Member::new(&header, &extra, numbers, end, self.encoding);
            let left_out = |next, what| Ok(Some(Found::LeftOut { at, next, what }));
            if flags & FLAG_DESCRIPTOR != 0 && numbers.stored == 0 {
                match self.descriptor(content, to)? {
                    Ok(found) => {
                        (member.stored, member.size, member.least_end) = (found.stored, found.size, found.end);
                        member.crc = member.crc.map(|_| found.crc);
                        return Ok(Some(Found::Member { member, end: found.end, is_cut: false }));
                    }
                    Err(next) => return left_out(next, "how long its content is, is told nowhere"),
                }
            }
            let end = member.least_end;
            if end > to {
                if is_end {
                    return Ok(Some(Found::Member { member, end: to, is_cut: true }));
                }
                return left_out(content, "its content would reach over the next member");
            }
            // Something follows; and if nothing that is known does, another header in the content says that it does
            // not end there.
            let behind = self.ahead.bytes(end, to, 4)?;
            let is_followed = behind.is_empty() || behind.starts_with(b"PK") || flags & FLAG_DESCRIPTOR != 0;
            if !is_followed && let Some(next) = self.header(content, end)? {
                return left_out(next, "its content would reach over the next member");
            }
            return Ok(Some(Found::Member { member, end, is_cut: false }));
        }
        Ok(None)
    }

    /// Where in `from..to` the next local header begins that can be one.
    fn header(&mut self, mut from: u64, to: u64) -> io::Result<Option<u64>> {
        let to = to.min(from.saturating_add(self.limit));
        while let Some(at) = self.window.find(from, to, *b"PK", |four| four == local::SIGNATURE)? {
            if Local::read(&mut self.window, at, to)?.is_some_and(|local| is_plausible(&local)) {
                return Ok(Some(at));
            }
            from = at.saturating_add(4);
        }
        Ok(None)
    }

    /// The descriptor behind the content that begins at byte `content`; else where the search for members goes on.
    fn descriptor(&mut self, content: u64, to: u64) -> io::Result<Result<Descriptor, u64>> {
        let is_wanted = |four: [u8; 4]| matches!(four, [_, _, 7, 8] | [_, _, 3, 4] | [_, _, 1, 2]);
        let mut from = content;
        while let Some(at) = self.window.find(from, to, *b"PK", is_wanted)? {
            if let Some(found) = self.descriptor_at(content, at, to)? {
                return Ok(Ok(found));
            }
            let is_header = |local: Local<'_>| is_plausible(&local);
            if !self.is_patient && Local::read(&mut self.window, at, to)?.is_some_and(is_header) {
                return Ok(Err(at));
            }
            from = at.saturating_add(4);
        }
        if let Some(found) = self.descriptor_at(content, to, to)? {
            return Ok(Ok(found));
        }
        // Searched to the end for nothing. Once is enough.
        let next = if self.is_patient { content } else { to };
        self.is_patient = false;
        Ok(Err(next))
    }

    /// A descriptor that begins with its signature at byte `at`, or one without that ends there.
    fn descriptor_at(&mut self, content: u64, at: u64, to: u64) -> io::Result<Option<Descriptor>> {
        let bytes = self.window.bytes(at, to, 24)?;
        if bytes.starts_with(b"PK\x07\x08") && bytes.len() >= 16 {
            let length = at.saturating_sub(content);
            let descriptor = |stored, size, end: u64| Descriptor {
                crc: u32_at(bytes, 4),
                stored,
                size,
                end: at.saturating_add(end),
            };
            // The longer one first: its upper halves are zero, and so would be the size of the shorter one.
            if bytes.len() >= 24 && u64_at(bytes, 8) == length {
                return Ok(Some(descriptor(length, u64_at(bytes, 16), 24)));
            }
            if u64::from(u32_at(bytes, 8)) == length {
                return Ok(Some(descriptor(length, u32_at(bytes, 12).into(), 16)));
            }
            return Ok(None);
        }
        for (length, is_64) in [(20, true), (12, false)] {
            let Some(start) = at.checked_sub(length).filter(|&start| start >= content) else { continue };
            let bytes = self.window.bytes(start, at, length as usize)?;
            let (stored, size) = if is_64 {
                (u64_at(bytes, 4), u64_at(bytes, 12))
            } else {
                (u32_at(bytes, 4).into(), u32_at(bytes, 8).into())
            };
            if stored == start.saturating_sub(content) {
                return Ok(Some(Descriptor { crc: u32_at(bytes, 0), stored, size, end: at }));
            }
        }
        Ok(None)
    }
}

fn is_plausible(local: &Local<'_>) -> bool {
    local::is_plausible(local.version, local.method) && !local.name.is_empty() && !local.name.contains(&0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::testing::CountedSource;
    use tarnfs_source::{Cancel, MemorySource, Source};

    use super::*;

    /// Headers one behind the other, of 31 bytes, each of which says that its content ends far away.
    #[test]
    fn what_follows_a_member_is_looked_at_with_little() {
        const COUNT: usize = 2000;
        const STORED: u32 = 310_005;
        let numbers: Vec<u8> = [0, STORED, STORED].into_iter().flat_map(u32::to_le_bytes).collect();
        let header = [&b"PK\x03\x04"[..], &[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0], &numbers, &[1, 0, 0, 0, b'a']].concat();
        let mut bytes = header.repeat(COUNT);
        bytes.resize(bytes.len() + STORED as usize + 100, 0);
        let source = CountedSource::new(Arc::new(MemorySource::new(bytes, "headers")));
        let cancel = Cancel::default();
        let mut scan = Scan::new(Window::new(&source, &cancel), u64::MAX);
        let (mut from, mut left_out, mut members) = (0, 0, 0);
        while let Some(found) = scan.next(from, source.len(), true).unwrap() {
            match found {
                Found::Member { end, .. } => (from, members) = (end, members + 1),
                Found::LeftOut { next, .. } => (from, left_out) = (next, left_out + 1),
            }
        }
        // In the content of the last one there is no other.
        assert_eq!((left_out, members), (COUNT - 1, 1));
        let read = source.bytes();
        assert!(read < 8 * source.len(), "{read} bytes read of {}", source.len());
    }
}
