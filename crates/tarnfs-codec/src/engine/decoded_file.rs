use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use tarnfs_source::{Budget, Grant};
use zstd_safe::{CCtx, DCtx};

use super::{checksum, lock};
use crate::PIECE;
use crate::sync::Mutex;

/// Pieces of decoded streams in a file, each packed by itself, for streams in which random reads are slow.
///
/// ```text
/// file   = MAGIC group*
/// group  = RECORDS records, of which the last may be missing (zeros), then the pieces of these records
/// record = stream (u64), start in it (u64), stored bytes (u32), bytes (u32), checksum of the piece (u32), of the
///          record's bytes before this number (u32)
/// piece  = a zstd frame, or the bytes themselves where that is not shorter
/// ```
///
/// All numbers are little-endian. A piece follows the one before it, and a group the last piece of the one before it.
/// The file is only ever appended to: pieces first, then their records. So whenever a writer is killed, what has a
/// record is whole, and the next writer goes on behind it. Nothing in it is believed: whoever reads a piece compares it
/// with the checksum in the index, and has the archive to decode it from again.
///
/// Any number may read it while one writes it, who has the lock on it ([`DecodedFileWriter::lock`]).
pub struct DecodedFile {
    file: File,
    budget: Budget,
    contents: Mutex<Contents>,
    idle: Mutex<Vec<Unpacker>>,
}

/// Version 2 of the format. Version 1 had its table at the end, and a file could not be gone on with.
const MAGIC: [u8; 16] = *b"tarnfs decoded 2";

const RECORD: usize = 32;
const RECORDS: usize = 512;
const TABLE: u64 = (RECORD * RECORDS) as u64;

/// Packed bytes that are written at once: a kill loses at most so much.
const BATCH: usize = 256 << 10;

/// Packed bytes that wait while others hold the folder. What comes then is not kept.
const MOST_WAITING: usize = 4 * BATCH;

/// Bytes of memory for a piece that is known, and pieces for which memory is taken at once.
const PER_PIECE: usize = 72;
const PIECES_AT_ONCE: usize = 256;

/// Pieces that were wrong, after which nothing in the file is used: it is of something else.
const MOST_WRONG: usize = 64;

/// Contexts kept for the next reader.
const MOST_IDLE: usize = 4;

/// A context of libzstd, which takes long to make, and room for a packed piece.
struct Unpacker {
    context: DCtx<'static>,
    packed: Vec<u8>,
}

/// What is known of the file.
struct Contents {
    /// By stream and start in it.
    pieces: BTreeMap<(u64, u64), StoredPiece>,
    memory: Vec<Grant>,
    /// There is no memory for more pieces.
    lacks_memory: bool,
    /// It has been looked at.
    is_read: bool,
    end: End,
    /// Pieces that were not what the index says.
    wrong: usize,
}

/// Where the next piece goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// The table of the last group, and how many records are in it.
    table: u64,
    records: usize,
    /// Behind the last piece.
    offset: u64,
}

#[derive(Debug, Clone, Copy)]
struct StoredPiece {
    offset: u64,
    stored: u32,
    length: u32,
    checksum: u32,
}

/// What came of looking for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Other bytes than the index says; it is not looked at again.
    Wrong,
    Piece,
}

impl End {
    const FIRST: Self = Self { table: MAGIC.len() as u64, records: 0, offset: MAGIC.len() as u64 + TABLE };

    /// Where the record and the piece go that come next; the end behind them if the piece has `stored` bytes.
    fn place(self, stored: u32) -> Option<(u64, u64, Self)> {
        let at = if self.records < RECORDS {
            self
        } else {
            Self { table: self.offset, records: 0, offset: self.offset.checked_add(TABLE)? }
        };
        let record = at.table + (at.records * RECORD) as u64;
        let end = Self { records: at.records + 1, offset: at.offset.checked_add(stored.into())?, ..at };
        Some((record, at.offset, end))
    }
}

/// A record as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    stream: u64,
    start: u64,
    stored: u32,
    length: u32,
    checksum: u32,
}

impl Record {
    fn bytes(&self, at: u64) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&self.stream.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.stored.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        let own = checksum(&bytes[..28], at);
        bytes[28..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// `None` for what nobody has written at offset `at`.
    fn parse(bytes: &[u8; RECORD], at: u64) -> Option<Self> {
        let long = |from: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[from + index]));
        let short = |from: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[from + index]));
        let record =
            Self { stream: long(0), start: long(8), stored: short(16), length: short(20), checksum: short(24) };
        let is_sound = record.stored > 0 && record.stored <= record.length && record.length as usize <= PIECE;
        (is_sound && short(28) == checksum(&bytes[..28], at)).then_some(record)
    }
}

impl DecodedFile {
    /// The pieces in `file`, whatever is in it. What is known of them takes memory of `budget`. Nothing is read yet.
    pub fn new(file: File, budget: Budget) -> Arc<Self> {
        let contents = Contents {
            pieces: BTreeMap::new(),
            memory: Vec::new(),
            lacks_memory: false,
            is_read: false,
            end: End::FIRST,
            wrong: 0,
        };
        Arc::new(Self { file, budget, contents: Mutex::new(contents), idle: Mutex::default() })
    }

    /// Decoded bytes of `stream` that are in it, as far as its tables say.
    pub fn kept_of(&self, stream: u64) -> u64 {
        self.refresh();
        let contents = lock(&self.contents);
        let of_stream = contents.pieces.range((stream, 0)..=(stream, u64::MAX));
        of_stream.map(|(_, piece)| u64::from(piece.length)).sum()
    }

    /// Reads the piece of `stream` that starts at `start` and has this checksum into `piece`, which has its length.
    pub(super) fn read(&self, stream: u64, start: u64, expected: u32, piece: &mut [u8]) -> Found {
        let Some(place) = self.place(stream, start, expected, piece.len()) else { return Found::Nothing };
        if self.unpack(place, piece).is_some() && checksum(piece, start) == expected {
            return Found::Piece;
        }
        let mut contents = lock(&self.contents);
        contents.pieces.remove(&(stream, start));
        contents.wrong += 1;
        Found::Wrong
    }

    /// True if it has that piece, as far as its table says.
    pub(super) fn has(&self, stream: u64, start: u64, expected: u32, length: usize) -> bool {
        self.place(stream, start, expected, length).is_some()
    }

    fn place(&self, stream: u64, start: u64, expected: u32, length: usize) -> Option<StoredPiece> {
        let mut contents = lock(&self.contents);
        if !contents.is_read {
            drop(contents);
            self.refresh();
            contents = lock(&self.contents);
        }
        if contents.wrong >= MOST_WRONG {
            return None;
        }
        let place = contents.pieces.get(&(stream, start)).copied();
        place.filter(|place| place.checksum == expected && place.length as usize == length)
    }

    /// Sees what was written behind the last piece that is known. Nobody waits while the file is read.
    pub(super) fn refresh(&self) {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let mut magic = [0; MAGIC.len()];
        let is_ours = self.file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC;
        let mut contents = lock(&self.contents);
        contents.is_read = true;
        if contents.end != End::FIRST && contents.end.offset > length {
            // Somebody has emptied it.
            contents.clear();
        }
        let mut end = contents.end;
        drop(contents);
        if !is_ours {
            return;
        }
        loop {
            let (records, goes_on) = self.records_behind(end, length);
            let mut contents = lock(&self.contents);
            if contents.end != end {
                // Somebody else has done the same meanwhile.
                return;
            }
            for (record, offset, behind) in records {
                if !contents.add(record, offset, &self.budget) {
                    return;
                }
                contents.end = behind;
            }
            if !goes_on {
                return;
            }
            end = contents.end;
        }
    }

    /// The records that follow in the same table, each with where its piece is and the end behind it; true if it is
    /// full then. The file has `length` bytes.
    fn records_behind(&self, mut end: End, length: u64) -> (Vec<(Record, u64, End)>, bool) {
        let mut found = Vec::new();
        let Some((first, _, after)) = end.place(0) else { return (found, false) };
        let mut table = vec![0; (TABLE - (first - after.table)) as usize];
        let read = read_as_far_as_it_goes(&self.file, &mut table, first);
        for (bytes, at) in table[..read].as_chunks::<RECORD>().0.iter().zip((first..).step_by(RECORD)) {
            let Some(record) = Record::parse(bytes, at) else { return (found, false) };
            match end.place(record.stored) {
                Some((_, offset, behind)) if behind.offset <= length => {
                    found.push((record, offset, behind));
                    end = behind;
                }
                _ => return (found, false),
            }
        }
        let goes_on = !found.is_empty() && end.records == RECORDS;
        (found, goes_on)
    }

    /// Removes what lies behind `end`, also records of pieces that are no longer there.
    fn cut(&self, end: End) -> io::Result<()> {
        if end == End::FIRST {
            return self.file.set_len(0);
        }
        self.file.set_len(end.offset)?;
        let used = (end.records * RECORD) as u64;
        self.file.write_all_at(&vec![0; (TABLE - used) as usize], end.table + used)
    }

    fn unpack(&self, place: StoredPiece, piece: &mut [u8]) -> Option<()> {
        if place.stored == place.length {
            return self.file.read_exact_at(piece, place.offset).ok();
        }
        let idle = lock(&self.idle).pop();
        let mut unpacker = match idle {
            Some(unpacker) => unpacker,
            None => Unpacker { context: DCtx::try_create()?, packed: vec![0; PIECE] },
        };
        let packed = unpacker.packed.get_mut(..place.stored as usize)?;
        self.file.read_exact_at(packed, place.offset).ok()?;
        let unpacked = unpacker.context.decompress(piece, packed).ok()?;
        let mut idle = lock(&self.idle);
        if idle.len() < MOST_IDLE {
            idle.push(unpacker);
        }
        (unpacked == piece.len()).then_some(())
    }
}

impl Contents {
    /// False if there is no memory for it.
    fn add(&mut self, record: Record, offset: u64, budget: &Budget) -> bool {
        if self.pieces.len() >= self.memory.len() * PIECES_AT_ONCE {
            let Some(grant) = budget.take(PER_PIECE * PIECES_AT_ONCE) else {
                self.lacks_memory = true;
                return false;
            };
            self.memory.push(grant);
        }
        let Record { stream, start, stored, length, checksum } = record;
        self.pieces.insert((stream, start), StoredPiece { offset, stored, length, checksum });
        true
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.memory.clear();
        (self.lacks_memory, self.end, self.wrong) = (false, End::FIRST, 0);
    }
}

/// Fills the start of `buffer`, and returns how much of it.
fn read_as_far_as_it_goes(file: &File, buffer: &mut [u8], offset: u64) -> usize {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    read
}

impl std::fmt::Debug for DecodedFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DecodedFile").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The space in which a file of pieces lies, with others.
pub trait PieceSpace: Send {
    /// Calls `write`, after which the file has `length` bytes, if it may become that long.
    fn extend(&mut self, length: u64, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Extended>;

    /// The file has nothing in it, and nobody writes it.
    fn is_empty(&mut self);
}

/// What came of [`PieceSpace::extend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// It was written.
    Written,
    /// Somebody else takes space at this moment.
    Busy,
    /// There is no more space.
    Full,
}

/// Appends pieces to a [`DecodedFile`], while it has the lock on it.
pub struct DecodedFileWriter {
    file: Arc<DecodedFile>,
    space: Box<dyn PieceSpace>,
    is_locked: bool,
    is_full: bool,
    /// The end of the file when it was locked.
    locked_at: End,
    packer: Option<Packer>,
    /// What is to be written next.
    records: Vec<Record>,
    packed: Vec<u8>,
}

/// A context of libzstd, and room for what it packs.
struct Packer {
    context: CCtx<'static>,
    packed: Vec<u8>,
}

impl Packer {
    fn new() -> Option<Self> {
        Some(Self { context: CCtx::try_create()?, packed: vec![0; zstd_safe::compress_bound(PIECE)] })
    }

    /// `piece` at this `level`, or as it is where that is not longer.
    fn pack<'a>(&'a mut self, piece: &'a [u8], level: i32) -> &'a [u8] {
        match self.context.compress(&mut self.packed[..], piece, level) {
            Ok(length) if length < piece.len() => self.packed.get(..length).unwrap_or(piece),
            _ => piece,
        }
    }
}

/// Bytes of memory that a writer holds, with what libzstd needs to pack pieces at its lowest levels.
pub(super) const WRITER_MEMORY: usize = MOST_WAITING + 2 * PIECE + (1 << 20);

impl DecodedFileWriter {
    /// Appends to `file`, which lies in `space`, once it has been locked.
    pub fn new(file: Arc<DecodedFile>, space: Box<dyn PieceSpace>) -> io::Result<Self> {
        Ok(Self {
            file,
            space,
            is_locked: false,
            is_full: false,
            locked_at: End::FIRST,
            packer: None,
            records: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// The file.
    pub fn file(&self) -> &Arc<DecodedFile> {
        &self.file
    }

    /// Locks the file, and removes what is not whole at its end. False if somebody else has it. An error where it
    /// cannot be written.
    pub fn lock(&mut self) -> io::Result<bool> {
        if self.is_locked {
            return Ok(true);
        }
        let file = &self.file.file;
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.is_locked = true;
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed"));
        }
        self.file.refresh();
        let mut contents = lock(&self.file.contents);
        if contents.lacks_memory {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if contents.wrong >= MOST_WRONG {
            contents.clear();
        }
        self.locked_at = contents.end;
        drop(contents);
        self.file.cut(self.locked_at)?;
        Ok(true)
    }

    /// Removes all that is in it.
    pub fn empty(&mut self) -> io::Result<()> {
        if self.lock()? {
            self.go_back(End::FIRST)?;
        }
        Ok(())
    }

    /// Removes what was added since it was locked.
    pub(super) fn undo(&mut self) -> io::Result<()> {
        self.go_back(self.locked_at)
    }

    fn go_back(&mut self, end: End) -> io::Result<()> {
        if !self.is_locked {
            return Ok(());
        }
        self.records.clear();
        self.packed.clear();
        lock(&self.file.contents).clear();
        self.file.cut(end)?;
        self.file.refresh();
        Ok(())
    }

    /// Holds nothing but what waits to be written, until there is more.
    pub(super) fn rest(&mut self) {
        self.packer = None;
        if self.records.is_empty() {
            (self.records, self.packed) = (Vec::new(), Vec::new());
        }
    }

    /// Bytes in the file.
    pub(super) fn length(&self) -> u64 {
        lock(&self.file.contents).end.offset
    }

    /// True if nothing more is written.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// True if more waits to be written than should.
    pub(super) fn is_behind(&self) -> bool {
        self.packed.len() >= BATCH
    }

    /// Packs a piece at this `level` of zstd, or leaves it as it is without one, and writes it with those before it
    /// once they are enough.
    pub(super) fn add(
        &mut self,
        stream: u64,
        start: u64,
        piece: &[u8],
        checksum: u32,
        level: Option<i32>,
    ) -> io::Result<()> {
        if piece.len() > PIECE || piece.is_empty() || !self.is_locked {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.is_full || self.packed.len() >= MOST_WAITING {
            return Ok(());
        }
        let stored = match level {
            None => piece,
            Some(level) => {
                if self.packer.is_none() {
                    self.packer = Packer::new();
                }
                self.packer.as_mut().map_or(piece, |packer| packer.pack(piece, level))
            }
        };
        self.packed.extend_from_slice(stored);
        let (stored, length) = (stored.len() as u32, piece.len() as u32);
        self.records.push(Record { stream, start, stored, length, checksum });
        if self.is_behind() { self.flush() } else { Ok(()) }
    }

    /// Writes what was added, unless somebody else takes space at this moment: then it waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let (file, records, mut packed) = (&self.file.file, &self.records, &self.packed[..]);
        let begin = lock(&self.file.contents).end;
        // One write for all pieces of a group, and one for their records.
        let (mut end, mut writes, mut offsets) = (begin, Vec::new(), Vec::with_capacity(records.len()));
        for record in records {
            let no_place = || io::Error::new(io::ErrorKind::FileTooLarge, "it is too long");
            let (at, offset, next) = end.place(record.stored).ok_or_else(no_place)?;
            if next.table != end.table || writes.is_empty() {
                writes.push((offset, 0, at, Vec::new()));
            }
            let Some((_, bytes, _, table)) = writes.last_mut() else { unreachable!("pushed above") };
            *bytes += record.stored as usize;
            table.extend_from_slice(&record.bytes(at));
            offsets.push(offset);
            end = next;
        }
        let extended = self.space.extend(end.offset, &mut || {
            if begin == End::FIRST {
                file.write_all_at(&MAGIC, 0)?;
            }
            for (offset, bytes, at, table) in &writes {
                let (now, later) = packed.split_at_checked(*bytes).ok_or(io::ErrorKind::InvalidData)?;
                file.write_all_at(now, *offset)?;
                file.write_all_at(table, *at)?;
                packed = later;
            }
            Ok(())
        })?;
        match extended {
            Extended::Busy => return Ok(()),
            Extended::Full => self.is_full = true,
            Extended::Written => {
                let mut contents = lock(&self.file.contents);
                for (record, offset) in self.records.iter().zip(offsets) {
                    if !contents.add(*record, offset, &self.file.budget) {
                        // It is there for whoever opens the file next.
                        self.is_full = true;
                    }
                }
                contents.end = end;
            }
        }
        self.records.clear();
        self.packed.clear();
        Ok(())
    }
}

impl Drop for DecodedFileWriter {
    fn drop(&mut self) {
        if !self.is_locked {
            return;
        }
        if let Err(error) = self.flush() {
            log::debug!("decoded pieces are not kept: {error}");
        }
        if self.file.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            self.space.is_empty();
        }
        // Readers of this process still have it open.
        if let Err(error) = flock(&self.file.file, FlockOperation::Unlock) {
            log::debug!("a file of decoded pieces stays locked: {error}");
        }
    }
}

impl std::fmt::Debug for DecodedFileWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DecodedFileWriter").field("is_locked", &self.is_locked).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
