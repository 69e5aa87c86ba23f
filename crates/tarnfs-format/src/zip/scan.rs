//! Members found by their local headers, where the directory does not tell of them.
//!
//! A header that knows its sizes says where the next one is. Behind content of unknown length follows a descriptor: it
//! is searched for, and known by the length that it says. Each byte is searched at most three times, whatever is there.
//!
//! A descriptor has a signature or none, and numbers of 32 or 64 bits, and nothing in it says which: see
//! [`numbers_at`].

use std::io;

use super::bytes::{u32_at, u64_at};
use super::extra::{Extra, Numbers};
use super::local::{self, Local};
use super::member::{FLAG_DESCRIPTOR, FLAG_ENCRYPTED, Header, Member};
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

const DESCRIPTOR: &[u8] = b"PK\x07\x08";

/// Bytes of the old cipher before content. Info-ZIP does not count them in the header of what it stores and streams.
const OF_CIPHER: u64 = 12;

/// Lengths of what follows the signature of a descriptor: a checksum and two sizes.
const SHORT: usize = 12;
const LONG: usize = 20;

/// Content behind which a descriptor may follow.
#[derive(Debug, Clone, Copy)]
struct Content {
    /// Byte at which it begins.
    start: u64,
    /// Byte at which the next known member begins, or the archive ends.
    to: u64,
    /// Whether the header has a zip64 field, as it should where the descriptor is a long one. Not all writers put it
    /// there.
    is_64: bool,
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
            if flags & FLAG_DESCRIPTOR != 0 {
                let behind = Content { start: content, to, is_64: extra.is_64() };
                let found = if numbers.stored == 0 {
                    self.descriptor(behind)?
                } else {
                    // Some writers know the sizes before, but not the checksum.
                    let found = match self.descriptor_at_end(behind, end)? {
                        None if flags & FLAG_ENCRYPTED != 0 => {
                            self.descriptor_at_end(behind, end.saturating_add(OF_CIPHER))?
                        }
                        found => found,
                    };
                    found.ok_or(end)
                };
                match found {
                    Ok(found) => {
                        (member.stored, member.size, member.least_end) = (found.stored, found.size, found.end);
                        member.crc = member.crc.map(|_| found.crc);
                        return Ok(Some(Found::Member { member, end: found.end, is_cut: false }));
                    }
                    Err(next) if numbers.stored == 0 => {
                        return left_out(next, "how long its content is, is told nowhere");
                    }
                    // The checksum is told nowhere. Of what is encrypted the time stands in its place.
                    Err(_) => member.crc = member.crc.filter(|&crc| crc != 0 && flags & FLAG_ENCRYPTED == 0),
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

    /// The descriptor behind content of unknown length; else where the search for members goes on.
    fn descriptor(&mut self, content: Content) -> io::Result<Result<Descriptor, u64>> {
        let is_wanted = |four: [u8; 4]| matches!(four, [_, _, 7, 8] | [_, _, 3, 4] | [_, _, 1, 2]);
        let Content { start, to, .. } = content;
        let mut from = start;
        while let Some(at) = self.window.find(from, to, *b"PK", is_wanted)? {
            if let Some(found) = self.descriptor_at(content, at)? {
                return Ok(Ok(found));
            }
            let is_header = |local: Local<'_>| is_plausible(&local);
            if !self.is_patient && Local::read(&mut self.window, at, to)?.is_some_and(is_header) {
                return Ok(Err(at));
            }
            from = at.saturating_add(4);
        }
        if let Some(found) = self.descriptor_at(content, to)? {
            return Ok(Ok(found));
        }
        // Searched to the end for nothing. Once is enough.
        let next = if self.is_patient { start } else { to };
        self.is_patient = false;
        Ok(Err(next))
    }

    /// A descriptor that begins with its signature at byte `at`, or one without that ends there.
    fn descriptor_at(&mut self, content: Content, at: u64) -> io::Result<Option<Descriptor>> {
        if self.window.bytes(at, content.to, 4)? == DESCRIPTOR {
            return numbers_at(&mut self.window, at.saturating_add(4), content, at);
        }
        for (length, is_64) in [(LONG as u64, true), (SHORT as u64, false)] {
            let Some(start) = at.checked_sub(length).filter(|&start| start >= content.start) else { continue };
            let bytes = self.window.bytes(start, at, length as usize)?;
            let (stored, size) = if is_64 {
                (u64_at(bytes, 4), u64_at(bytes, 12))
            } else {
                (u32_at(bytes, 4).into(), u32_at(bytes, 8).into())
            };
            if stored == start.saturating_sub(content.start) {
                return Ok(Some(Descriptor { crc: u32_at(bytes, 0), stored, size, end: at }));
            }
        }
        Ok(None)
    }

    /// The descriptor, with its signature or without, behind content that ends at byte `end`.
    fn descriptor_at_end(&mut self, content: Content, end: u64) -> io::Result<Option<Descriptor>> {
        if end > content.to {
            return Ok(None);
        }
        let four = self.ahead.bytes(end, content.to, 4)?;
        let signature = if four == DESCRIPTOR { 4 } else { 0 };
        // Without one the next header follows.
        if signature == 0 && four.starts_with(b"PK") {
            return Ok(None);
        }
        numbers_at(&mut self.ahead, end.saturating_add(signature), content, end)
    }
}

/// The numbers at byte `at` of a descriptor, if they are of content that ends at byte `end`.
///
/// A long one looks like a short one of an empty file, and a short one of an empty file like a long one: of the stored
/// size, the upper half lies where the other has a size of zero. The checksum tells them apart, because that of no
/// bytes is zero; else what follows does: a header, or the end.
fn numbers_at(window: &mut Window<'_>, at: u64, content: Content, end: u64) -> io::Result<Option<Descriptor>> {
    let bytes = window.bytes(at, content.to, LONG.saturating_add(2))?;
    let stored = end.saturating_sub(content.start);
    let crc = u32_at(bytes, 0);
    let of_length = |length: usize, size| Descriptor { crc, stored, size, end: at.saturating_add(length as u64) };
    let is_short = bytes.len() >= SHORT && u64::from(u32_at(bytes, 4)) == stored;
    let is_long = bytes.len() >= LONG && u64_at(bytes, 4) == stored;
    // Of what follows, no more may be left than a part.
    let is_followed = |length: usize| {
        let rest = bytes.get(length..).unwrap_or_default();
        rest.starts_with(b"PK") || b"PK".starts_with(rest)
    };
    let takes_short = crc == 0
        && match (is_followed(SHORT), is_followed(LONG)) {
            (true, false) => true,
            (false, true) => false,
            _ => !content.is_64,
        };
    Ok(match (is_short, is_long) {
        (true, is_long) if !is_long || takes_short => Some(of_length(SHORT, u32_at(bytes, 8).into())),
        (_, true) => Some(of_length(LONG, u64_at(bytes, 12))),
        _ => None,
    })
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

    /// A member whose sizes and checksum follow it, in one of the ways in which that is written.
    #[derive(Debug, Clone, Copy)]
    #[allow(clippy::struct_excessive_bools, reason = "all of their pairs are tried")]
    struct Written {
        is_signed: bool,
        /// The descriptor has numbers of 64 bits.
        is_long: bool,
        /// The header has a zip64 field.
        has_large: bool,
        /// The sizes stand in the header, too.
        is_known: bool,
    }

    /// What a member has stored, and how long that is once it is unpacked: nothing, nothing but packed, something, and
    /// something that was packed.
    const CONTENTS: [(&[u8], u64, u32); 4] =
        [(b"", 0, 0), (b"\x03\0", 0, 0), (b"hello", 5, 77), (b"12345678", 0x4b50, 78)];

    impl Written {
        fn member(self, name: u8, (stored, size, crc): (&[u8], u64, u32)) -> Vec<u8> {
            let lengths = [stored.len() as u64, size];
            let [in_header, in_header_size] = if self.is_known { lengths } else { [0, 0] };
            let large = [&[1, 0, 16, 0][..], &in_header_size.to_le_bytes(), &in_header.to_le_bytes()].concat();
            let extra = if self.has_large { large } else { Vec::new() };
            let small = |length| if self.has_large { u32::MAX } else { length as u32 };
            let numbers = [0, small(in_header), small(in_header_size)].map(u32::to_le_bytes).concat();
            let method = u8::from(stored.len() as u64 != size) * 8;
            let fixed = [&b"PK\x03\x04"[..], &[20, 0, 8, 0, method, 0, 0, 0, 0x21, 0], &numbers].concat();
            let lengths_of_names = [1, 0, extra.len() as u8, 0];
            let signature = if self.is_signed { &b"PK\x07\x08"[..] } else { b"" };
            let told: Vec<u8> = if self.is_long {
                lengths.into_iter().flat_map(u64::to_le_bytes).collect()
            } else {
                lengths.into_iter().flat_map(|length| (length as u32).to_le_bytes()).collect()
            };
            [&fixed, &lengths_of_names[..], &[name], &extra, stored, signature, &crc.to_le_bytes(), &told].concat()
        }
    }

    /// Name, stored size, size and checksum of a member.
    type Seen = (Vec<u8>, u64, u64, Option<u32>);

    /// All members, and what was left out.
    fn scan_all(bytes: Vec<u8>) -> (Vec<Seen>, Vec<&'static str>) {
        let source = MemorySource::new(bytes, "archive");
        let cancel = Cancel::default();
        let mut scan = Scan::new(Window::new(&source, &cancel), u64::MAX);
        let (mut from, mut members, mut left_out) = (0, Vec::new(), Vec::new());
        while let Some(found) = scan.next(from, source.len(), true).unwrap() {
            match found {
                Found::Member { member, end, .. } => {
                    members.push((member.entry.path, member.stored, member.size, member.crc));
                    from = end;
                }
                Found::LeftOut { next, what, .. } => {
                    left_out.push(what);
                    from = next;
                }
            }
        }
        (members, left_out)
    }

    #[test]
    fn descriptors_of_each_shape_are_told_apart() {
        // Info-ZIP, Python, Java, bsdtar and 7z write a signature and 32 bits, and 64 with a zip64 field; Go no such
        // field; older programs no signature. bsdtar and Info-ZIP put sizes into the header of what they store.
        for shape in 0..16_u8 {
            let bit = |number: u8| shape >> number & 1 == 1;
            let written = Written { is_signed: bit(0), is_long: bit(1), has_large: bit(2), is_known: bit(3) };
            // A program that writes such a field and 32 bits all the same is told by what follows.
            let is_odd = written.has_large && !written.is_long;
            let directory = &b"PK\x01\x02\x14\0\x14\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..];
            for ending in [&b""[..], directory, &[b'?'; 40]] {
                // One without a signature is known by what follows.
                if ending.starts_with(b"?") && (!written.is_signed || is_odd) {
                    continue;
                }
                for order in 0..64 {
                    let contents = [order % 4, order / 4 % 4, order / 16].map(|number| CONTENTS[number]);
                    let members = [b'a', b'b', b'c'].into_iter().zip(contents);
                    let mut archive: Vec<u8> =
                        members.clone().flat_map(|(name, content)| written.member(name, content)).collect();
                    archive.extend(ending);
                    let expected: Vec<_> = members
                        .map(|(name, (stored, size, crc))| (vec![name], stored.len() as u64, size, Some(crc)))
                        .collect();
                    let (found, left_out) = scan_all(archive);
                    assert_eq!(found, expected, "{written:?}, {contents:?}, {ending:?}");
                    assert_eq!(left_out, [""; 0]);
                }
            }
        }
    }

    /// `zip -0 -e - | cat`: only the descriptor counts what is before the content.
    #[test]
    fn what_info_zip_stores_encrypted_is_longer_than_its_header_says() {
        let written = Written { is_signed: true, is_long: false, has_large: false, is_known: true };
        let mut bytes = written.member(b'a', (&[7; 17], 5, 77));
        // Encrypted and stored, five bytes.
        (bytes[6], bytes[8], bytes[18]) = (9, 0, 5);
        bytes.extend(written.member(b'b', CONTENTS[2]));
        let (found, left_out) = scan_all(bytes);
        assert_eq!(found, [(b"a".to_vec(), 17, 5, Some(77)), (b"b".to_vec(), 5, 5, Some(77))]);
        assert_eq!(left_out, [""; 0]);
    }

    /// The flag says that a descriptor follows, and none does.
    #[test]
    fn a_checksum_that_is_told_nowhere_is_none() {
        let written = Written { is_signed: true, is_long: false, has_large: false, is_known: true };
        let mut bytes = written.member(b'a', CONTENTS[2]);
        bytes.truncate(bytes.len() - 16);
        bytes.extend(written.member(b'b', CONTENTS[2]));
        let (found, left_out) = scan_all(bytes);
        assert_eq!(found, [(b"a".to_vec(), 5, 5, None), (b"b".to_vec(), 5, 5, Some(77))]);
        assert_eq!(left_out, [""; 0]);
    }

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
