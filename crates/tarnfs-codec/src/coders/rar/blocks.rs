//! Where in an archive the members of one stream lie: their blocks are walked from the header of the first one on, over
//! other blocks and the starts of further volumes. What else a header says is for who made the container known.
//!
//! Sources: technote.htm of RAR for version 5; public descriptions of the headers before it.

use std::io;

use tarnfs_source::SharedSource;

use super::data::Cipher;
use super::keys::{self, Encryption, Keys5, SALT_4, SALT_5};
use crate::input::Input;
use crate::{CoderContext, faults};

pub(super) const MARK_5: &[u8] = b"Rar!\x1a\x07\x01\0";
pub(super) const MARK_4: &[u8] = b"Rar!\x1a\x07\0";

/// Bytes of a header of RAR 5 at most: its length has three bytes.
const LONGEST_HEADER: u64 = 2 << 20;

/// Behind the end of a volume, the next one begins within so many bytes.
const BETWEEN: usize = 64 << 10;

/// Volumes that one member lies in.
const MOST_RUNS: usize = 1 << 20;

/// A member, as far as it matters for decoding it.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// Where it is stored, one run in each volume.
    pub(super) runs: Vec<(u64, u64)>,
    pub(super) length: u64,
    pub(super) method: Method,
    pub(super) encryption: Option<(Encryption, [u8; 16])>,
    /// The CRC-32 depends on the password.
    pub(super) sealed_crc: Option<u32>,
    /// BLAKE2sp, and whether it depends on the password.
    pub(super) hash: Option<([u8; 32], bool)>,
}

/// How it is compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    #[default]
    Stored,
    /// By RAR 5, or by RAR 7 with far distances, with a dictionary of so many bytes.
    Five { is_far: bool, dictionary: u64 },
    /// By the RAR of that version before.
    Old(u8),
}

/// A block.
struct Block {
    kind: Kind,
    /// Where its data begin, and their length.
    data: (u64, u64),
}

enum Kind {
    File { member: Box<Member>, is_continued: bool, goes_on: bool },
    End,
    Other,
}

pub(super) struct Blocks {
    input: Input,
    coder: CoderContext,
    is_five: bool,
    /// How headers are encrypted, if they are.
    encryption: Option<Encryption>,
    /// What belongs to a file is a member, too.
    has_services: bool,
}

/// Fields of a header.
struct Fields<'h>(&'h [u8]);

impl<'h> Fields<'h> {
    fn bytes(&mut self, count: usize) -> Option<&'h [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Seven bits in each byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Blocks {
    /// Of blocks at the start of `source`; the first byte of the properties is their version, 4 or 5. Behind it stands
    /// how the headers are encrypted, if they are.
    pub(super) fn new(source: SharedSource, coder: &CoderContext, properties: &[u8]) -> Option<Self> {
        let mut fields = Fields(properties);
        let is_five = match fields.array()? {
            [5] => true,
            [4] => false,
            _ => return None,
        };
        let encryption = match (fields.array(), is_five) {
            (None, _) => None,
            (Some([0]), false) => Some(Encryption::Four { salt: None }),
            (Some([rounds]), true) => {
                let salt = fields.array()?;
                Some(Encryption::Five { rounds, salt, check: keys::check_of(fields.0) })
            }
            _ => return None,
        };
        Some(Self { input: Input::new(source, 0), coder: coder.clone(), is_five, encryption, has_services: false })
    }

    /// What belongs to a file counts as a file.
    pub(super) fn with_services(mut self, has_services: bool) -> Self {
        self.has_services = has_services;
        self
    }

    pub(super) fn position(&self) -> u64 {
        self.input.position()
    }

    pub(super) fn memory(&self) -> usize {
        self.input.memory()
    }

    fn damaged(&self, what: &str) -> io::Error {
        faults::invalid(self.input.position(), what)
    }

    /// The next member; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut begun: Option<Member> = None;
        loop {
            if self.input.remaining() == 0 {
                return if begun.is_some() { Err(faults::cut(self.position(), "a file")) } else { Ok(None) };
            }
            let Some(block) = self.block()? else { continue };
            let (start, length) = block.data;
            if matches!(block.kind, Kind::End) {
                self.input.seek(start);
                self.seek_volume()?;
                continue;
            }
            let end = start.checked_add(length).filter(|&end| end <= start.saturating_add(self.input.remaining()));
            let Some(end) = end else { return Err(faults::cut(start, "the data of a file")) };
            self.input.seek(end);
            let Kind::File { member, is_continued, goes_on } = block.kind else { continue };
            let mut member = match (begun.take(), is_continued) {
                (None, false) => *member,
                // The last header says what the checksums are of.
                (Some(begun), true) => Member { runs: begun.runs, encryption: begun.encryption, ..*member },
                _ => return Err(self.damaged("a part of a file that is not the next one")),
            };
            if member.runs.len() >= MOST_RUNS {
                return Err(self.damaged("a file in more volumes than there can be"));
            }
            member.runs.push((start, length));
            if !goes_on {
                return Ok(Some(member));
            }
            begun = Some(member);
        }
    }

    /// Moves on to the start of the next volume, if there is one.
    fn seek_volume(&mut self) -> io::Result<()> {
        let mark = if self.is_five { MARK_5 } else { MARK_4 };
        let bytes = self.input.peek(BETWEEN)?;
        let (found, there) = (bytes.windows(mark.len()).position(|bytes| bytes == mark), bytes.len());
        self.input.skip(found.unwrap_or(there) as u64);
        if found.is_none() && self.input.remaining() > 0 {
            return Err(self.damaged("no further volume where one should begin"));
        }
        Ok(())
    }

    /// The next block; `None` for the start of a volume.
    fn block(&mut self) -> io::Result<Option<Block>> {
        if self.is_five { self.block_5() } else { self.block_4() }
    }

    /// At least `length` bytes of a header.
    fn header(&mut self, length: usize) -> io::Result<&[u8]> {
        let there = self.input.remaining();
        if there < length as u64 {
            return Err(faults::cut(self.position().saturating_add(there), "a header"));
        }
        self.input.peek(length)
    }

    fn block_5(&mut self) -> io::Result<Option<Block>> {
        /// The checksum and the shortest length.
        const LEAST: usize = 4 + 3;
        if self.input.peek(MARK_5.len())? == MARK_5 {
            self.input.consume(MARK_5.len());
            self.encryption = None;
            return Ok(None);
        }
        let start = self.position();
        let (header, stored) = if let Some(Encryption::Five { rounds, salt, check }) = &self.encryption {
            let keys = Keys5::new(*rounds, salt, *check, &self.coder)?;
            let head = self.header(32)?;
            let (Some((vector, block)), true) = (head.split_first_chunk::<16>(), head.len() == 32) else {
                return Err(faults::cut(start, "a header"));
            };
            let (vector, mut first) = (*vector, block.to_vec());
            let mut cipher = keys.cipher(&vector)?;
            cipher.undo(&mut first);
            let length = length_5(&first).ok_or_else(|| self.damaged("a header that is damaged"))?;
            let whole = length.next_multiple_of(16);
            let mut rest = self.header(16 + whole)?[32..].to_vec();
            cipher.undo(&mut rest);
            first.extend(rest);
            first.truncate(length);
            (first, 16 + whole)
        } else {
            let there = usize::try_from(self.input.remaining()).unwrap_or(usize::MAX).min(LEAST);
            let length = length_5(self.header(there)?).ok_or_else(|| self.damaged("a header that is damaged"))?;
            (self.header(length)?.to_vec(), length)
        };
        let is_whole = header
            .split_first_chunk::<4>()
            .is_some_and(|(sum, rest)| crc32fast::hash(rest) == u32::from_le_bytes(*sum));
        let data = start.saturating_add(stored as u64);
        let block = Some(&header).filter(|_| is_whole).and_then(|header| self.parse_5(header, data));
        block.map(Some).ok_or_else(|| self.damaged("a header that is damaged"))
    }

    fn parse_5(&mut self, header: &[u8], data: u64) -> Option<Block> {
        let mut fields = Fields(header.get(4..)?);
        fields.number()?;
        let (kind, flags) = (fields.number()?, fields.number()?);
        let extra = if flags & 1 != 0 { fields.number()? } else { 0 };
        let length = if flags & 2 != 0 { fields.number()? } else { 0 };
        let data = (data, length);
        let kind = match kind {
            2 | 3 if kind == 2 || self.has_services => {
                let at = fields.0.len().checked_sub(usize::try_from(extra).ok()?)?;
                let (fields, extra) = fields.0.split_at(at);
                let member = Box::new(file_5(Fields(fields), Fields(extra))?);
                Kind::File { member, is_continued: flags & 8 != 0, goes_on: flags & 0x10 != 0 }
            }
            4 => {
                let (_version, flags) = (fields.number()?, fields.number()?);
                let ([rounds], salt) = (fields.array()?, fields.array::<SALT_5>()?);
                let check = if flags & 1 != 0 { keys::check_of(fields.0) } else { None };
                self.encryption = Some(Encryption::Five { rounds, salt, check });
                Kind::Other
            }
            5 => Kind::End,
            _ => Kind::Other,
        };
        Some(Block { kind, data })
    }

    fn block_4(&mut self) -> io::Result<Option<Block>> {
        /// Bytes of the shortest header.
        const LEAST: usize = 7;
        if self.input.peek(MARK_4.len())? == MARK_4 {
            self.input.consume(MARK_4.len());
            self.encryption = None;
            return Ok(None);
        }
        let start = self.position();
        let length_of = |head: &[u8]| {
            let length = head.get(5..7).map(|bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
            length.filter(|length| *length >= LEAST)
        };
        let (header, stored) = if self.encryption.is_some() {
            let head = self.header(SALT_4 + 16)?;
            let Some((salt, block)) = head.split_first_chunk::<SALT_4>() else {
                return Err(faults::cut(start, "a header"));
            };
            let (salt, mut first) = (*salt, block.to_vec());
            let mut cipher = keys::cipher_4(Some(salt), &self.coder)?;
            cipher.undo(&mut first);
            let length = length_of(&first).ok_or_else(|| self.damaged("a header that is damaged"))?;
            let whole = length.next_multiple_of(16);
            let mut rest = self.header(SALT_4 + whole)?[SALT_4 + 16..].to_vec();
            cipher.undo(&mut rest);
            first.extend(rest);
            first.truncate(length);
            (first, SALT_4 + whole)
        } else {
            let length = length_of(self.header(LEAST)?).ok_or_else(|| self.damaged("a header that is damaged"))?;
            (self.header(length)?.to_vec(), length)
        };
        let data = start.saturating_add(stored as u64);
        self.parse_4(&header, data).map(Some).ok_or_else(|| self.damaged("a header that is damaged"))
    }

    /// Its checksum is for who reads names: what is wrong here leads to no member.
    fn parse_4(&mut self, header: &[u8], data: u64) -> Option<Block> {
        let mut fields = Fields(header);
        let (_sum, [kind], flags, _length) = (fields.u16()?, fields.array()?, fields.u16()?, fields.u16()?);
        let length = if matches!(kind, 0x74 | 0x7A) || flags & 0x8000 != 0 { Fields(fields.0).u32()? } else { 0 };
        let mut length = u64::from(length);
        let kind = match kind {
            0x73 => {
                self.encryption = (flags & 0x80 != 0).then_some(Encryption::Four { salt: None });
                Kind::Other
            }
            0x74 | 0x7A => {
                let (member, stored) = file_4(fields, flags)?;
                length = stored;
                let (is_continued, goes_on) = (flags & 1 != 0, flags & 2 != 0);
                // What belongs to a file, or to the archive, has a header of the same form.
                if kind == 0x74 || self.has_services {
                    Kind::File { member: Box::new(member), is_continued, goes_on }
                } else {
                    Kind::Other
                }
            }
            0x7B => Kind::End,
            _ => Kind::Other,
        };
        Some(Block { kind, data: (data, length) })
    }
}

/// Bytes of the header that begins so, with its checksum and length.
fn length_5(head: &[u8]) -> Option<usize> {
    let rest = head.get(4..)?;
    let mut fields = Fields(rest.get(..3).unwrap_or(rest));
    let length = fields.number().filter(|length| (1..=LONGEST_HEADER).contains(length))?;
    let before = rest.len().min(3) - fields.0.len();
    Some(4 + before + length as usize)
}

/// What a header of a file says, whose fields come next.
fn file_5(mut fields: Fields<'_>, mut extra: Fields<'_>) -> Option<Member> {
    let (flags, length, _attributes) = (fields.number()?, fields.number()?, fields.number()?);
    if flags & 2 != 0 {
        fields.u32()?;
    }
    let crc = if flags & 4 != 0 { Some(fields.u32()?) } else { None };
    let compression = fields.number()?;
    let version = compression & 0x3F;
    let power = compression >> 10 & if version == 0 { 15 } else { 31 };
    let base = (128_u64 << 10) << power;
    let fraction = if version == 0 { 0 } else { compression >> 15 & 31 };
    let dictionary = base + base / 32 * fraction;
    let method = match (compression >> 7 & 7, version) {
        (0, _) => Method::Stored,
        (1..=5, 0) => Method::Five { is_far: false, dictionary },
        (1..=5, 1) => Method::Five { is_far: compression & 0x10_0000 == 0, dictionary },
        _ => Method::Old(u8::MAX),
    };
    let mut member = Member { length, method, ..Member::default() };
    let mut seals = false;
    while !extra.0.is_empty() {
        let length = usize::try_from(extra.number()?).ok()?;
        let mut record = Fields(extra.bytes(length)?);
        match record.number()? {
            1 => {
                let (version, flags) = (record.number()?, record.number()?);
                let ([rounds], salt, vector) = (record.array()?, record.array()?, record.array()?);
                let check = if flags & 1 != 0 { keys::check_of(record.0) } else { None };
                // What is not known is refused as too many rounds.
                let rounds = if version == 0 { rounds } else { u8::MAX };
                seals = flags & 2 != 0;
                member.encryption = Some((Encryption::Five { rounds, salt, check }, vector));
            }
            2 if record.number()? == 0 => member.hash = record.array().map(|hash| (hash, false)),
            _ => {}
        }
    }
    member.sealed_crc = crc.filter(|_| seals);
    if let Some((_, is_sealed)) = &mut member.hash {
        *is_sealed = seals;
    }
    Some(member)
}

/// The same of RAR 4, and how many bytes are stored.
fn file_4(mut fields: Fields<'_>, flags: u16) -> Option<(Member, u64)> {
    let (mut stored, mut length) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
    fields.bytes(1 + 4 + 4)?;
    let [version, method] = fields.array()?;
    let name = fields.u16()?;
    fields.bytes(4)?;
    if flags & 0x100 != 0 {
        stored |= u64::from(fields.u32()?) << 32;
        length |= u64::from(fields.u32()?) << 32;
    }
    fields.bytes(name.into())?;
    let salt = if flags & 0x400 != 0 { Some(fields.array()?) } else { None };
    let method = if method == 0x30 { Method::Stored } else { Method::Old(version) };
    let mut member = Member { length, method, ..Member::default() };
    if flags & 4 != 0 {
        let encryption = if version >= 29 { Encryption::Four { salt } } else { Encryption::Old(version) };
        member.encryption = Some((encryption, [0; 16]));
    }
    Some((member, stored))
}

impl Member {
    /// What undoes its encryption, and the keys of its checksums.
    pub(super) fn cipher(&self, coder: &CoderContext) -> io::Result<(Option<Cipher>, Option<Keys5>)> {
        Ok(match &self.encryption {
            None => (None, None),
            Some((Encryption::Four { salt }, _)) => (Some(keys::cipher_4(*salt, coder)?), None),
            Some((Encryption::Old(version), _)) => (Some(keys::old_cipher(*version, coder)?), None),
            Some((Encryption::Five { rounds, salt, check }, vector)) => {
                let keys = Keys5::new(*rounds, salt, *check, coder)?;
                (Some(keys.cipher(vector)?), Some(keys))
            }
        })
    }
}
