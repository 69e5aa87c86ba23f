//! Reading zip archives in memory, and archives made by hand.

use std::io;
use std::sync::Arc;

use tarnfs_format::zip::Zip;
use tarnfs_format::{Entry, Error, Event, Format, Options, Piece, Probe, ReadRandom};
use tarnfs_source::{Limits, MemorySource, SharedSource, Source};

/// All that an archive told.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) members: Vec<Member>,
    pub(crate) damage: Vec<(u64, String)>,
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Without its piece.
    pub(crate) entry: Entry,
    /// The only one; empty if it has no content.
    pub(crate) piece: Piece,
}

impl Member {
    /// Where its content begins.
    pub(crate) fn content(&self, source: &dyn Source) -> io::Result<u64> {
        Zip.find_content(source, self.entry.header, &self.piece)
    }

    /// The codecs that undo it.
    pub(crate) fn codecs(&self) -> String {
        let steps = self.piece.coder.iter().flat_map(|coder| &coder.steps);
        steps.map(|step| step.codec.as_str()).collect::<Vec<_>>().join("+")
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.codecs().contains("cannot be")
    }
}

impl Read {
    pub(crate) fn paths(&self) -> Vec<String> {
        self.members.iter().map(|member| String::from_utf8_lossy(&member.entry.path).into_owned()).collect()
    }

    /// Where the directory of `archive` begins.
    pub(crate) fn directory(&self, archive: &[u8]) -> usize {
        let from = self.members.last().map_or(0, |member| (member.entry.header + member.piece.stored) as usize);
        from + archive[from..].windows(4).position(|four| four == b"PK\x01\x02" || four == b"PK\x05\x06").unwrap()
    }
}

pub(crate) fn try_read_source(source: &SharedSource) -> Result<Read, Error> {
    read_source_with(source, &Options::default())
}

fn read_source_with(source: &SharedSource, options: &Options) -> Result<Read, Error> {
    let mut read = Read::default();
    Zip.read(source, options, &mut |event| {
        match event {
            Event::Entry(mut entry) => {
                let piece = entry.body.pieces.take().map(|mut pieces| pieces.remove(0)).unwrap_or_default();
                read.members.push(Member { entry: *entry, piece });
            }
            Event::Damage(damage) => read.damage.push((damage.offset, damage.what)),
            other => panic!("{other:?}"),
        }
        Ok(())
    })?;
    Ok(read)
}

pub(crate) fn try_read(archive: &[u8]) -> Result<Read, Error> {
    try_read_source(&(Arc::new(MemorySource::new(archive, "archive")) as SharedSource))
}

/// Reads an archive whose names stay as they are.
#[allow(dead_code, reason = "not all tests are of names")]
pub(crate) fn read_raw(archive: &[u8]) -> Read {
    let source = Arc::new(MemorySource::new(archive, "archive")) as SharedSource;
    read_source_with(&source, &Options { guess_encoding: false, ..Options::default() }).unwrap()
}

pub(crate) fn read(archive: &[u8]) -> Read {
    try_read(archive).unwrap()
}

/// Reads an archive that must be without fault.
pub(crate) fn read_whole(archive: &[u8]) -> Read {
    let read = read(archive);
    assert_eq!(read.damage, []);
    read
}

/// What holds of every archive, whatever is in it.
pub(crate) fn check(archive: &[u8]) {
    let source = MemorySource::new(archive, "archive");
    Zip.bid(&Probe::new(&archive[..archive.len().min(4096)], &source));
    let Ok(read) = try_read(archive) else { return };
    assert!(read.members.len() <= archive.len() / 30, "{} members", read.members.len());
    let (mut last, mut end) = (0, 0);
    for member in &read.members {
        let Member { entry, piece } = member;
        assert!(entry.header >= last, "members are in order");
        assert!(entry.header + 30 <= source.len());
        assert!(entry.mode <= 0o7777 && entry.path.len() <= Limits::default().path);
        last = entry.header;
        if piece.coder.is_none() {
            continue;
        }
        assert!(i64::try_from(piece.length).is_ok() && piece.offset + piece.stored <= source.len());
        assert_eq!((piece.offset, piece.length, piece.length), (entry.header, piece.decoded, entry.body.size));
        if !member.is_refused() {
            assert!(entry.header >= end, "members do not overlap");
            if let Ok(content) = member.content(&source) {
                assert!(content <= source.len());
            }
            end = entry.header + 30 + piece.stored;
        }
    }
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    !sum
}

/// A member made by hand, stored as it is whatever its method says.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) name: Vec<u8>,
    pub(crate) content: Vec<u8>,
    pub(crate) host: u8,
    pub(crate) external: u32,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) extra: Vec<u8>,
    /// Sizes follow the content.
    pub(crate) descriptor: bool,
    /// Sizes are in a zip64 field.
    pub(crate) large: bool,
}

impl Made {
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        Self::new_raw(name.as_bytes(), content)
    }

    pub(crate) fn new_raw(name: &[u8], content: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            content: content.to_vec(),
            host: 3,
            external: 0,
            flags: 0,
            method: 0,
            extra: Vec::new(),
            descriptor: false,
            large: false,
        }
    }

    /// What a local header and one of the directory share, from the flags to the name's length.
    fn fields(&self, is_local: bool) -> (Vec<u8>, Vec<u8>) {
        let flags = self.flags | if self.descriptor { 8 } else { 0 };
        let is_known = !(self.descriptor && is_local);
        let (crc, size) = if is_known { (crc(&self.content), self.content.len() as u32) } else { (0, 0) };
        let mut extra = self.extra.clone();
        if self.large {
            let size = u64::from(size).to_le_bytes();
            extra.extend([&[1, 0, 16, 0][..], &size, &size].concat());
        }
        let size = if self.large { u32::MAX } else { size };
        let fields = [
            &flags.to_le_bytes()[..],
            &self.method.to_le_bytes(),
            &0x6000_u16.to_le_bytes(),
            &(44_u16 << 9 | 5 << 5 | 6).to_le_bytes(),
            &crc.to_le_bytes(),
            &size.to_le_bytes(),
            &size.to_le_bytes(),
            &(self.name.len() as u16).to_le_bytes(),
            &(extra.len() as u16).to_le_bytes(),
        ]
        .concat();
        (fields, extra)
    }

    fn local(&self) -> Vec<u8> {
        let (fields, extra) = self.fields(true);
        let mut bytes = [&b"PK\x03\x04\x14\0"[..], &fields, &self.name, &extra, &self.content].concat();
        if self.descriptor {
            let size = (self.content.len() as u32).to_le_bytes();
            bytes.extend([&b"PK\x07\x08"[..], &crc(&self.content).to_le_bytes(), &size, &size].concat());
        }
        bytes
    }

    fn central(&self, offset: usize) -> Vec<u8> {
        let (fields, extra) = self.fields(false);
        let start = [b'P', b'K', 1, 2, 20, self.host, 20, 0];
        let end = [&[0; 6][..], &self.external.to_le_bytes(), &(offset as u32).to_le_bytes()].concat();
        [&start[..], &fields, &end, &self.name, &extra].concat()
    }
}

/// The members, without a directory.
pub(crate) fn locals(members: &[Made]) -> Vec<u8> {
    members.iter().flat_map(Made::local).collect()
}

/// A whole archive.
pub(crate) fn zip(members: &[Made]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        directory.extend(member.central(archive.len()));
        archive.extend(member.local());
    }
    let count = (members.len() as u16).to_le_bytes();
    let end = [
        &b"PK\x05\x06\0\0\0\0"[..],
        &count,
        &count,
        &(directory.len() as u32).to_le_bytes(),
        &(archive.len() as u32).to_le_bytes(),
        &[0, 0],
    ];
    [&archive[..], &directory, &end.concat()].concat()
}
