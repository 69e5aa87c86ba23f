//! Seek points of long members, kept from one mount to the next.
//!
//! An archive with a directory of its own has no index, so the seek points that reading a member has found lie in a
//! file of the folder of decoded pieces: [`MAGIC`], then records. A record is what [`Head`] says, the key of the
//! member, and its table. It is used only if its checksum matches. Numbers are little-endian.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use tarnfs_codec::engine::{KeptTable, Table};
use tarnfs_codec::{Chunk, ChunkTable as _, SeekPoint};
use tarnfs_format::Piece;

/// How such a file begins: a later version has another number.
const MAGIC: &[u8; 16] = b"tarnfs members 1";

/// Bytes of such a file at most: a member that has no place any more is decoded anew at the next mount.
const MOST: u64 = 64 << 20;

/// Bytes of one table at most.
const MOST_OF_ONE: usize = 16 << 20;

/// Bytes of a key at most.
const MOST_OF_KEY: usize = 4096;

/// Decoded bytes of a member from which on its seek points are kept: a shorter one is decoded again within a moment.
pub(crate) const LONG: u64 = 16 << 20;

/// The tables of the members of one archive.
#[derive(Debug)]
pub(crate) struct MemberTables {
    file: File,
    /// Tables may be added.
    is_writable: bool,
    known: Mutex<Known>,
}

/// What was found in the file.
#[derive(Debug, Default)]
struct Known {
    /// Where the record of each key lies.
    records: HashMap<Box<[u8]>, (u64, Head)>,
    /// Behind the last whole record.
    end: u64,
}

/// The first bytes of a record.
#[derive(Debug, Clone, Copy)]
struct Head {
    key: usize,
    table: usize,
    /// CRC-32 of key and table.
    checksum: u32,
}

impl Head {
    const LENGTH: usize = 12;

    fn of(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        let (key, table, checksum) = (next() as usize, next() as usize, next());
        (key <= MOST_OF_KEY && table <= MOST_OF_ONE).then_some(Self { key, table, checksum })
    }

    fn bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        for (to, word) in bytes.chunks_exact_mut(4).zip([self.key as u32, self.table as u32, self.checksum]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn record(self) -> u64 {
        (Self::LENGTH + self.key + self.table) as u64
    }
}

impl MemberTables {
    /// Bytes of an archive from which on its members' seek points may be worth a file.
    pub(crate) const WORTH_IT: u64 = 1 << 20;

    /// Those in `file`, which is this user's own. Nothing is read yet.
    pub(crate) fn new(file: File, is_writable: bool) -> Self {
        Self { file, is_writable, known: Mutex::default() }
    }

    /// What is kept of what `step` of the coder of `piece` gives, which lies in stream `number`. Files of one solid
    /// block share it.
    pub(crate) fn of(self: &Arc<Self>, number: u32, piece: &Piece, step: usize) -> Option<Arc<dyn KeptTable>> {
        let coder = piece.coder.as_ref()?;
        let is_all = (piece.skip, piece.length) == (0, piece.decoded);
        let mut key = Vec::new();
        key.extend(
            [number, step as u32, piece.crc.filter(|_| is_all).unwrap_or_default()].map(u32::to_le_bytes).concat(),
        );
        key.extend([piece.offset, piece.stored, piece.decoded].iter().flat_map(|number| number.to_le_bytes()));
        for step in &coder.steps {
            for part in [step.codec.as_bytes(), &step.properties] {
                key.extend((part.len() as u32).to_le_bytes());
                key.extend_from_slice(part);
            }
        }
        let key = Some(key.into_boxed_slice()).filter(|key| key.len() <= MOST_OF_KEY)?;
        Some(Arc::new(MemberTable { tables: Arc::clone(self), key }))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the records that were added since.
    fn refresh(&self, known: &mut Known) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if known.end == 0 || length < known.end {
            // New, or emptied to make room for others.
            *known = Known::default();
            let mut magic = [0; MAGIC.len()];
            if length < MAGIC.len() as u64 || self.file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
                return Ok(());
            }
            known.end = MAGIC.len() as u64;
        }
        while known.end + (Head::LENGTH as u64) < length.min(MOST) {
            let mut head = [0; Head::LENGTH];
            self.file.read_exact_at(&mut head, known.end)?;
            let Some(head) = Head::of(head).filter(|head| head.record() <= length - known.end) else { break };
            let mut key = vec![0; head.key];
            self.file.read_exact_at(&mut key, known.end + Head::LENGTH as u64)?;
            known.records.insert(key.into(), (known.end, head));
            known.end += head.record();
        }
        Ok(())
    }

    fn load(&self, key: &[u8]) -> io::Result<Option<Table>> {
        let mut known = self.known();
        self.refresh(&mut known)?;
        let Some(&(at, head)) = known.records.get(key) else { return Ok(None) };
        drop(known);
        let mut record = vec![0; head.key + head.table];
        self.file.read_exact_at(&mut record, at + Head::LENGTH as u64)?;
        if crc32fast::hash(&record) != head.checksum || !record.starts_with(key) {
            return Ok(None);
        }
        Ok(decode(&record[head.key..]))
    }

    fn store(&self, key: &[u8], table: &Table) -> io::Result<()> {
        let table = encode(table);
        if !self.is_writable || table.len() > MOST_OF_ONE {
            return Ok(());
        }
        // Who is about to write another one does not wait, nor do we: only the time of one more pass is lost.
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let written = self.append(key, &table);
        flock(&self.file, FlockOperation::Unlock)?;
        written
    }

    fn append(&self, key: &[u8], table: &[u8]) -> io::Result<()> {
        let mut known = self.known();
        self.refresh(&mut known)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(key);
        checksum.update(table);
        let head = Head { key: key.len(), table: table.len(), checksum: checksum.finalize() };
        let begins = known.end == 0;
        let at = known.end.max(MAGIC.len() as u64);
        if at + head.record() > MOST {
            return Ok(());
        }
        // What a program that was killed has left half done.
        self.file.set_len(if begins { 0 } else { at })?;
        let record = [&head.bytes(), key, table].concat();
        self.file.write_all_at(&record, at)?;
        if begins {
            // Last: before that there is nothing.
            self.file.write_all_at(MAGIC, 0)?;
        }
        known.records.insert(key.into(), (at, head));
        known.end = at + head.record();
        Ok(())
    }
}

/// The table of one member.
#[derive(Debug)]
struct MemberTable {
    tables: Arc<MemberTables>,
    key: Box<[u8]>,
}

impl KeptTable for MemberTable {
    fn load(&self) -> Option<Table> {
        self.tables.load(&self.key).unwrap_or_else(|error| {
            log::debug!("seek points of a member are not used: {error}");
            None
        })
    }

    fn store(&self, table: &Table) {
        if let Err(error) = self.tables.store(&self.key, table) {
            log::debug!("seek points of a member are not kept: {error}");
        }
    }
}

fn encode(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in &table.chunks {
        let point = &chunk.point;
        bytes
            .extend([point.decoded, point.compressed_bit, chunk.length].iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend((point.state.len() as u32).to_le_bytes());
        bytes.extend((chunk.checksums.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&point.state);
        bytes.extend(chunk.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
    }
    bytes
}

/// `None` if it is not what [`encode`] makes of a table without gaps in which each piece has its checksum.
fn decode(mut bytes: &[u8]) -> Option<Table> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (first, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(*first)
    }
    let mut table = Table::default();
    while !bytes.is_empty() {
        let decoded = u64::from_le_bytes(take(&mut bytes)?);
        let compressed_bit = u64::from_le_bytes(take(&mut bytes)?);
        let length = u64::from_le_bytes(take(&mut bytes)?);
        let state = u32::from_le_bytes(take(&mut bytes)?) as usize;
        let checksums = (u32::from_le_bytes(take(&mut bytes)?) as usize).checked_mul(4)?;
        let (state, rest) = bytes.split_at_checked(state)?;
        let (checksums, rest) = rest.split_at_checked(checksums)?;
        bytes = rest;
        let checksums: Vec<_> = checksums.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)).collect();
        let pieces = length.div_ceil(tarnfs_codec::PIECE as u64);
        if decoded != table.decoded_length() || length == 0 || pieces != checksums.len() as u64 {
            return None;
        }
        decoded.checked_add(length)?;
        let point = SeekPoint { compressed_bit, decoded, state: state.to_vec() };
        table.chunks.push(Chunk { point, length, checksums });
    }
    Some(table)
}
