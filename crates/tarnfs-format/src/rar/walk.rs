//! Goes from block to block, through all volumes, and decrypts headers.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, MemorySource, SharedSource, Source};

use super::file::File;
use super::{MARK_4, MARK_5, MOST_BEFORE, Version, five, four};
use crate::{Coder, Damage, Decode, Error, Step};

/// Of an encrypted header, so many bytes are decrypted at first: most are shorter.
const DECRYPTED: usize = 1 << 10;

/// Bytes before an encrypted header: an initialisation vector, or a salt.
const BEFORE_5: usize = 16;
const BEFORE_4: usize = 8;

/// Bytes of a block of the cipher.
const BLOCK: usize = 16;

/// What a block is.
#[derive(Debug)]
pub(super) enum Block {
    /// `locks`, where the headers behind it are encrypted, is what a decoder has to know of that.
    Main {
        is_volume: bool,
        is_solid: bool,
        locks: Option<Vec<u8>>,
        /// There is a comment on the archive in it, which nothing here reads.
        has_comment: bool,
    },
    /// From here on headers are encrypted.
    Lock(Vec<u8>),
    File(Box<File>),
    /// What belongs to the file before it, or to the archive.
    Service(Box<File>),
    /// Who owned the file before it.
    Owner {
        user: Vec<u8>,
        group: Vec<u8>,
    },
    End {
        is_followed: bool,
    },
    /// A stream or an access list of NTFS, or attributes of another system, by a RAR before 3.0.
    LeftOut,
    Other,
}

/// A header, and how many bytes of data it has.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) block: Block,
    pub(super) length: u64,
}

/// A block, and where it is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) block: Block,
    pub(super) at: u64,
    /// Where its data begin, and their length: as much as there is of them.
    pub(super) data: u64,
    pub(super) length: u64,
    /// There is less than the header says.
    pub(super) is_cut: bool,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Block(Found),
    Damage(Damage),
    /// Nothing.
    End,
}

/// Shows bytes, and keeps those that it read last: more of them while headers follow each other closely.
struct Look<'s> {
    source: &'s dyn Source,
    cancel: Cancel,
    buffer: Vec<u8>,
    start: u64,
    at_once: usize,
}

impl Look<'_> {
    /// Bytes at once at least, and at most.
    const LEAST: usize = 512;
    const MOST: usize = 64 << 10;

    /// The `length` bytes at `at`; fewer only at the end.
    fn peek(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let there = usize::try_from(self.source.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(there);
        let end = self.start.saturating_add(self.buffer.len() as u64);
        if at < self.start || at.saturating_add(length as u64) > end {
            self.cancel.check()?;
            let is_near = at >= self.start && at <= end;
            self.at_once = if is_near { self.at_once.saturating_mul(4).min(Self::MOST) } else { Self::LEAST };
            self.buffer.resize(length.max(self.at_once).min(there), 0);
            self.start = at;
            let mut read = self.source.read_exact_at(&mut self.buffer, at);
            // What is only read ahead may be damaged.
            if read.is_err() && self.buffer.len() > length {
                self.buffer.truncate(length);
                read = self.source.read_exact_at(&mut self.buffer, at);
            }
            if let Err(error) = read {
                self.buffer.clear();
                return Err(error);
            }
        }
        let from = at.saturating_sub(self.start) as usize;
        Ok(self.buffer.get(from..from.saturating_add(length)).unwrap_or_default())
    }
}

pub(super) struct Walk<'s> {
    look: Look<'s>,
    decode: Decode,
    length: u64,
    pub(super) version: Version,
    /// How the headers are encrypted, as a decoder takes it.
    pub(super) lock: Option<Vec<u8>>,
    /// A header that was encrypted was whole: the password is right, and one that is not whole is damaged.
    is_open: bool,
    /// Byte at which the next block begins.
    next: u64,
    has_ended: bool,
}

impl<'s> Walk<'s> {
    /// From the mark at byte `start` of `source` on.
    pub(super) fn new(source: &'s dyn Source, start: u64, version: Version, decode: &Decode, cancel: &Cancel) -> Self {
        let cancel = cancel.clone();
        let look = Look { source, cancel, buffer: Vec::new(), start: 0, at_once: Look::LEAST };
        let (decode, length) = (decode.clone(), source.len());
        Self { look, decode, length, version, lock: None, is_open: false, next: start, has_ended: false }
    }

    /// Byte behind the last block.
    pub(super) fn position(&self) -> u64 {
        self.next
    }

    fn peek(&mut self, length: usize) -> Result<&[u8], Error> {
        self.peek_at(self.next, length)
    }

    fn peek_at(&mut self, offset: u64, length: usize) -> Result<&[u8], Error> {
        self.look.peek(offset, length).map_err(|error| Error::Read { offset, error })
    }

    /// Up to `length` bytes of the data of a block.
    pub(super) fn data(&mut self, found: &Found, length: usize) -> Result<Vec<u8>, Error> {
        let length = usize::try_from(found.length).unwrap_or(usize::MAX).min(length);
        Ok(self.peek_at(found.data, length)?.to_vec())
    }

    /// The next block.
    pub(super) fn next(&mut self) -> Result<Next, Error> {
        loop {
            if self.has_ended || self.next >= self.length {
                return Ok(Next::End);
            }
            let mark = self.version.mark();
            if self.peek(mark.len())? == mark {
                self.next = self.next.saturating_add(mark.len() as u64);
                self.lock = None;
                continue;
            }
            let at = self.next;
            let read = match self.version {
                Version::Five => self.header(five::LEAST, BEFORE_5, five::length, five::is_whole)?,
                Version::Four => self.header(four::LEAST, BEFORE_4, four::length, four::is_whole)?,
            };
            let parsed = read.and_then(|(header, stored)| {
                let parsed = match self.version {
                    Version::Five => five::parse(&header),
                    Version::Four => four::parse(&header),
                };
                parsed.map(|parsed| (parsed, stored))
            });
            let Some((Header { mut block, length }, stored)) = parsed else {
                self.has_ended = true;
                let least = match (&self.lock, self.version) {
                    (None, _) => five::LEAST,
                    (Some(_), Version::Five) => BEFORE_5 + BLOCK,
                    (Some(_), Version::Four) => BEFORE_4 + BLOCK,
                };
                let what = match self.lock {
                    _ if self.length.saturating_sub(at) < least as u64 => "it ends in a header",
                    Some(_) => "a header that is damaged, or has another password: nothing behind it is shown",
                    None => "a header that is damaged: nothing behind it is shown",
                };
                return Ok(Next::Damage(Damage { offset: at, what: what.to_owned() }));
            };
            match &mut block {
                // In RAR 5 that stands before it.
                Block::Main { locks, .. } if self.version == Version::Four => self.lock = locks.take(),
                Block::Lock(lock) => self.lock = Some(std::mem::take(lock)),
                _ => {}
            }
            let data = at.saturating_add(stored as u64);
            let there = length.min(self.length.saturating_sub(data));
            self.next = data.saturating_add(length);
            let is_cut = there < length;
            if matches!(block, Block::End { .. }) {
                self.end_volume()?;
            }
            return Ok(Next::Block(Found { block, at, data, length: there, is_cut }));
        }
    }

    /// Behind the last block of a volume: goes to the next one, if there is one.
    fn end_volume(&mut self) -> Result<(), Error> {
        let behind = self.next;
        let starts = self.look.source.part_starts();
        if let Some(start) = starts.iter().copied().find(|start| *start >= behind && *start > 0) {
            self.next = start;
            return Ok(());
        }
        // Volumes that somebody has joined.
        let mark = self.version.mark();
        self.has_ended = self.peek(mark.len())? != mark;
        Ok(())
    }

    /// The next header, and how many bytes it takes. `None` if it is damaged. `least` are those that tell its length.
    fn header(
        &mut self,
        least: usize,
        before: usize,
        length_of: fn(&[u8]) -> Option<usize>,
        is_whole: fn(&[u8]) -> bool,
    ) -> Result<Option<(Vec<u8>, usize)>, Error> {
        let Some(lock) = self.lock.clone() else {
            let Some(length) = length_of(self.peek(least)?) else { return Ok(None) };
            let header = self.peek(length)?;
            let header = header.get(..length).filter(|header| is_whole(header)).map(<[u8]>::to_vec);
            return Ok(header.map(|header| (header, length)));
        };
        let cut = |bytes: &[u8]| Some(bytes.get(..length_of(bytes)?)?.to_vec());
        let mut wanted = DECRYPTED;
        loop {
            let stored = self.peek(before.saturating_add(wanted))?.to_vec();
            let there = stored.len().saturating_sub(before) & !15;
            if there == 0 {
                return Ok(None);
            }
            let is_all = there < wanted;
            // What is too short is decrypted again, with more of it.
            let is_right = |bytes: &[u8]| match cut(bytes) {
                Some(header) => is_whole(&header),
                None => !is_all && length_of(bytes).is_some(),
            };
            let bytes = match self.decrypt(&lock, stored, there, &is_right) {
                Err(Error::Read { error, .. }) if self.is_open && error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(None);
                }
                bytes => bytes?,
            };
            let Some(length) = length_of(&bytes) else { return Ok(None) };
            let taken = length.next_multiple_of(16);
            match cut(&bytes) {
                Some(header) => {
                    let taken = before.saturating_add(taken);
                    self.is_open |= is_whole(&header);
                    return Ok(Some(header).filter(|header| is_whole(header)).map(|header| (header, taken)));
                }
                None if is_all || taken <= wanted => return Ok(None),
                None => wanted = taken,
            }
        }
    }

    /// Decrypts the first `length` bytes of a header.
    fn decrypt(
        &self,
        lock: &[u8],
        stored: Vec<u8>,
        length: usize,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, Error> {
        let properties = [&[self.version.number()], lock].concat();
        let step = Step { codec: "aes-rar-header".to_owned(), properties, ..Step::default() };
        let coder = Coder { steps: vec![step], is_behind_header: None };
        let stored: SharedSource = Arc::new(MemorySource::new(stored, "a header"));
        let offset = self.next;
        let bytes = self.decode.decode(&coder, stored, length as u64, is_right);
        let bytes = bytes.map_err(|error| Error::Read { offset, error })?;
        if is_right(&bytes) {
            return Ok(bytes);
        }
        let error = io::Error::new(io::ErrorKind::PermissionDenied, "wrong password, or a header is damaged");
        Err(Error::Read { offset, error })
    }
}

/// Where in `bytes` an archive begins, and its version: at a mark with a header behind it that is whole.
pub(super) fn find(bytes: &[u8]) -> Option<(usize, Version)> {
    /// Marks with something else behind them: a program that unpacks has a few, and each may be followed by megabytes
    /// that seem to be one header.
    const MOST_MARKS: usize = 100;
    let (mut from, mut marks) = (0_usize, 0_usize);
    while marks < MOST_MARKS {
        let rest = bytes.get(from..)?;
        let at = rest.windows(4).position(|window| window == b"Rar!")?;
        from = from.saturating_add(at);
        let rest = bytes.get(from..)?;
        if let Some(version) = begins(rest) {
            return Some((from, version));
        }
        if [MARK_5, MARK_4].iter().any(|mark| rest.starts_with(mark)) {
            marks = marks.saturating_add(1);
        }
        from = from.saturating_add(1);
    }
    None
}

/// The version of the archive that begins so.
pub(super) fn begins(bytes: &[u8]) -> Option<Version> {
    let marks = [(Version::Five, MARK_5), (Version::Four, MARK_4)];
    let (version, rest) = marks.iter().find_map(|(version, mark)| Some((*version, bytes.strip_prefix(*mark)?)))?;
    let (length, is_whole): (_, fn(&[u8]) -> bool) = match version {
        Version::Five => (five::length(rest)?, five::is_whole),
        Version::Four => (four::length(rest)?, four::is_whole),
    };
    // Of a long one, there may be only the start.
    rest.get(..length).is_none_or(is_whole).then_some(version)
}

/// Where in `source` an archive begins.
pub(super) fn find_start(source: &dyn Source) -> Result<(u64, Version), Error> {
    let there = usize::try_from(source.len()).unwrap_or(usize::MAX);
    let fill = |length: usize| {
        let mut head = vec![0; there.min(length)];
        let read = source.read_at(&mut head, 0).map_err(|error| Error::Read { offset: 0, error })?;
        head.truncate(read);
        Ok::<_, Error>(head)
    };
    let mark = fill(MARK_5.len())?;
    for (version, bytes) in [(Version::Five, MARK_5), (Version::Four, MARK_4)] {
        if mark.starts_with(bytes) {
            return Ok((0, version));
        }
    }
    let (at, version) = find(&fill(MOST_BEFORE)?).ok_or_else(|| {
        let reason = "nothing in its first 2 MiB begins one".to_owned();
        Error::NotThisFormat { format: super::NAME, reason }
    })?;
    Ok((at as u64, version))
}
