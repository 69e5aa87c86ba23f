use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use zstd_safe::{CCtx, DCtx};

use super::lock;
use crate::PIECE;
use crate::sync::Mutex;

/// Pieces of one decoded stream in a file, each packed by itself, for streams whose seek points lie far apart in time.
///
/// ```text
/// file   = piece* record* footer
/// piece  = a zstd frame, or the bytes themselves where that is not shorter
/// record = start in the decoded stream (u64), offset in the file (u64), stored bytes (u32), bytes (u32); by start
/// footer = offset of the first record (u64), records (u64), MAGIC
/// ```
///
/// All numbers are little-endian. Nothing in it is believed: whoever reads a piece compares it with the checksum in the
/// index, and has the archive to decode it from again.
#[derive(Debug)]
pub struct DecodedFile {
    file: File,
    /// Where the records begin.
    table: u64,
    records: u64,
    idle: Mutex<Vec<Unpacker>>,
}

/// Version 1 of the format.
const MAGIC: [u8; 16] = *b"tarnfs decoded 1";

const RECORD: usize = 24;
const FOOTER: usize = 32;

/// Contexts kept for the next reader.
const MOST_IDLE: usize = 4;

/// A context of libzstd, which is dear to make, and room for a packed piece.
struct Unpacker {
    context: DCtx<'static>,
    packed: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    start: u64,
    offset: u64,
    stored: u32,
    length: u32,
}

impl DecodedFile {
    /// A file that [`DecodedFileWriter`] has finished. `InvalidData` for any other.
    pub fn open(file: File) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let length = file.metadata()?.len();
        let footer_at = length
            .checked_sub(FOOTER as u64)
            .ok_or_else(|| invalid("it is too short to be a file of decoded pieces"))?;
        let mut footer = [0; FOOTER];
        file.read_exact_at(&mut footer, footer_at)?;
        if footer[16..] != MAGIC {
            return Err(invalid("it is no file of decoded pieces of this version, or its end is missing"));
        }
        let (table, records) = (number(&footer, 0), number(&footer, 8));
        if records.checked_mul(RECORD as u64).and_then(|bytes| table.checked_add(bytes)) != Some(footer_at) {
            return Err(invalid("its table has another length than it says"));
        }
        Ok(Self { file, table, records, idle: Mutex::default() })
    }

    /// Reads the piece that starts at `start` into `piece`, which has its length. False if it is not there, or not
    /// whole.
    pub(super) fn read(&self, start: u64, piece: &mut [u8]) -> bool {
        self.find(start).and_then(|record| self.unpack(record, piece)).is_some()
    }

    fn find(&self, start: u64) -> Option<Record> {
        let (mut from, mut to) = (0, self.records);
        while from < to {
            let middle = from + (to - from) / 2;
            let record = self.record(middle)?;
            match record.start.cmp(&start) {
                std::cmp::Ordering::Equal => return Some(record),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    fn record(&self, index: u64) -> Option<Record> {
        let mut bytes = [0; RECORD];
        self.file.read_exact_at(&mut bytes, self.table + index * RECORD as u64).ok()?;
        let lengths = number(&bytes, 16);
        let (stored, length) = (lengths as u32, (lengths >> 32) as u32);
        Some(Record { start: number(&bytes, 0), offset: number(&bytes, 8), stored, length })
    }

    fn unpack(&self, record: Record, piece: &mut [u8]) -> Option<()> {
        if record.length as usize != piece.len() || record.stored > record.length {
            return None;
        }
        if record.stored == record.length {
            return self.file.read_exact_at(piece, record.offset).ok();
        }
        let idle = lock(&self.idle).pop();
        let mut unpacker = match idle {
            Some(unpacker) => unpacker,
            None => Unpacker { context: DCtx::try_create()?, packed: vec![0; PIECE] },
        };
        let packed = unpacker.packed.get_mut(..record.stored as usize)?;
        self.file.read_exact_at(packed, record.offset).ok()?;
        let unpacked = unpacker.context.decompress(piece, packed).ok()?;
        let mut idle = lock(&self.idle);
        if idle.len() < MOST_IDLE {
            idle.push(unpacker);
        }
        (unpacked == piece.len()).then_some(())
    }
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes a [`DecodedFile`].
pub(super) struct DecodedFileWriter {
    file: BufWriter<File>,
    written: u64,
    table: Vec<u8>,
    last: Option<u64>,
    context: CCtx<'static>,
    packed: Vec<u8>,
}

impl DecodedFileWriter {
    /// Writes to `file`, which is empty.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            written: 0,
            table: Vec::new(),
            last: None,
            context: CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?,
            packed: vec![0; zstd_safe::compress_bound(PIECE)],
        })
    }

    /// Adds the piece that starts at `start`, behind all that were added before; packed at this `level` of zstd.
    pub(super) fn add(&mut self, start: u64, piece: &[u8], level: i32) -> io::Result<()> {
        if piece.len() > PIECE || self.last.is_some_and(|last| last >= start) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let packed = self.context.compress(&mut self.packed[..], piece, level);
        let stored = match packed {
            Ok(length) if length < piece.len() => self.packed.get(..length).unwrap_or(piece),
            _ => piece,
        };
        self.file.write_all(stored)?;
        self.last = Some(start);
        self.table.extend_from_slice(&start.to_le_bytes());
        self.table.extend_from_slice(&self.written.to_le_bytes());
        self.table.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        self.table.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        self.written += stored.len() as u64;
        Ok(())
    }

    /// Bytes that the file will have.
    pub(super) fn length(&self) -> u64 {
        self.written + (self.table.len() + FOOTER) as u64
    }

    /// Writes the table; the file is whole then.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let records = (self.table.len() / RECORD) as u64;
        self.file.write_all(&self.table)?;
        self.file.write_all(&[&self.written.to_le_bytes()[..], &records.to_le_bytes(), &MAGIC].concat())?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is packed well, what is not, and one that is short.
    fn pieces() -> Vec<(u64, Vec<u8>)> {
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(PIECE).collect();
        vec![(0, vec![7; PIECE]), (PIECE as u64, noise), (10 * PIECE as u64, b"short".repeat(9)), (u64::MAX, vec![1])]
    }

    fn written() -> File {
        let file = tempfile::tempfile().unwrap();
        let mut writer = DecodedFileWriter::new(file.try_clone().unwrap()).unwrap();
        for (start, piece) in pieces() {
            writer.add(start, &piece, 1).unwrap();
        }
        assert!(writer.add(5, b"before the last", 1).is_err());
        let length = writer.length();
        writer.finish().unwrap();
        assert_eq!(file.metadata().unwrap().len(), length);
        file
    }

    #[test]
    fn what_was_written_is_read() {
        let kept = DecodedFile::open(written()).unwrap();
        for (start, piece) in pieces() {
            let mut read = vec![0; piece.len()];
            assert!(kept.read(start, &mut read));
            assert!(read == piece);
            assert!(!kept.read(start, &mut vec![0; piece.len() + 1]), "a piece of another length");
            assert!(!kept.read(start ^ 1, &mut read), "a piece that is not there");
        }
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_refused_or_read_in_bounds() {
        let whole = written();
        let mut bytes = vec![0; whole.metadata().unwrap().len() as usize];
        whole.read_exact_at(&mut bytes, 0).unwrap();
        let open = |bytes: &[u8]| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            DecodedFile::open(file)
        };
        for length in (0..bytes.len()).rev().take(200).chain([0, 1, 31, 32]) {
            assert!(open(&bytes[..length]).is_err(), "{length}");
        }
        let tail = bytes.len() - FOOTER - pieces().len() * RECORD;
        for at in (tail..bytes.len()).chain(0..40) {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                if let Ok(kept) = open(&bytes) {
                    for (start, piece) in pieces() {
                        kept.read(start, &mut vec![0; piece.len()]);
                    }
                }
                bytes[at] ^= 1 << bit;
            }
        }
    }
}
