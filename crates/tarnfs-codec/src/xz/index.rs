//! The index at a stream's end (§4): sizes of all its blocks.

use std::io;

use tarnfs_source::{Cancel, SharedSource};
use xxhash_rust::xxh3::Xxh3;

use super::block::dictionary_of;
use super::container::{
    CheckId, Fault, LARGEST_INTEGER, LONGEST_INTEGER, STREAM_HEADER, block_header, block_header_length, integer,
    padded, stream_footer, stream_header,
};
use crate::Outline;
use crate::faults;
use crate::input::Input;

/// What an index says of one block (§4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Bytes of header, compressed data and check.
    pub(super) unpadded: u64,
    /// Decoded bytes.
    pub(super) uncompressed: u64,
}

/// The records of the blocks of one stream, in a form that takes no memory: equal if the records are.
#[derive(Default)]
pub(super) struct Summary {
    count: u64,
    hash: Xxh3,
}

impl Summary {
    pub(super) fn add(&mut self, record: Record) {
        self.count += 1;
        self.hash.update(&record.unpadded.to_le_bytes());
        self.hash.update(&record.uncompressed.to_le_bytes());
    }

    pub(super) fn matches(&self, other: &Self) -> bool {
        self.count == other.count && self.hash.digest() == other.hash.digest()
    }
}

/// What was found in reading an index.
pub(super) struct Index {
    /// Bytes of the index.
    pub(super) length: u64,
    /// Bytes of the blocks that it describes, with padding.
    pub(super) blocks: u64,
    /// It does not hold what was written, but its end was found.
    pub(super) flaw: Option<String>,
}

/// Reads the index that starts at the input's position, and hands each record to `each`.
pub(super) fn read(
    input: &mut Input,
    cancel: &Cancel,
    mut each: impl FnMut(Record),
) -> io::Result<Result<Index, Fault>> {
    let start = input.position();
    let mut hash = crc32fast::Hasher::new();
    // The indicator, which the caller has seen.
    take(input, &mut hash, 1)?;
    let Some(count) = number(input, &mut hash)? else { return Ok(Err(not_valid("number of records"))) };
    let (mut blocks, mut uncompressed) = (0u64, 0u64);
    for at in 0..count {
        if at.is_multiple_of(4096) {
            cancel.check()?;
        }
        let Some(record) = record(input, &mut hash)? else { return Ok(Err(not_valid("record"))) };
        let sums = padded(record.unpadded)
            .and_then(|length| blocks.checked_add(length))
            .zip(uncompressed.checked_add(record.uncompressed))
            .filter(|&(blocks, uncompressed)| blocks.max(uncompressed) <= LARGEST_INTEGER);
        let Some(sums) = sums else { return Ok(Err(not_valid("sum of sizes"))) };
        (blocks, uncompressed) = sums;
        each(record);
    }
    let mut flaw = None;
    while !(input.position() - start).is_multiple_of(4) {
        if input.fill(1)?.first().is_some_and(|&byte| byte != 0) {
            flaw = Some("the padding of an index is not zero".into());
        }
        take(input, &mut hash, 1)?;
    }
    let Some(stored) = input.fill(4)?.first_chunk::<4>() else { return Err(cut(input.position())) };
    if hash.finalize().to_le_bytes() != *stored {
        flaw = Some("the CRC-32 of an index does not match".into());
    }
    input.consume(4);
    Ok(Ok(Index { length: input.position() - start, blocks, flaw }))
}

fn not_valid(what: &str) -> Fault {
    Fault::Damaged(format!("the {what} of an index is not valid"))
}

fn record(input: &mut Input, hash: &mut crc32fast::Hasher) -> io::Result<Option<Record>> {
    let Some(unpadded) = number(input, hash)? else { return Ok(None) };
    let Some(uncompressed) = number(input, hash)? else { return Ok(None) };
    // §4.3.1: at least a byte of data behind the smallest possible header (which says 5).
    Ok((5..=LARGEST_INTEGER - 3).contains(&unpadded).then_some(Record { unpadded, uncompressed }))
}

fn number(input: &mut Input, hash: &mut crc32fast::Hasher) -> io::Result<Option<u64>> {
    let bytes = input.fill(LONGEST_INTEGER)?;
    if let Some((value, length)) = integer(bytes) {
        take(input, hash, length)?;
        return Ok(Some(value));
    }
    if bytes.len() < LONGEST_INTEGER && bytes.iter().all(|byte| byte & 0x80 != 0) {
        return Err(cut(input.position()));
    }
    Ok(None)
}

fn take(input: &mut Input, hash: &mut crc32fast::Hasher, count: usize) -> io::Result<()> {
    let Some(bytes) = input.fill(count)?.get(..count) else { return Err(cut(input.position())) };
    hash.update(bytes);
    input.consume(count);
    Ok(())
}

fn cut(position: u64) -> io::Error {
    faults::cut(position, "the index of a stream")
}

/// Bytes that are looked at for padding first, and then at a time.
const FIRST_PADDING: usize = 4096;
const MORE_PADDING: usize = 64 << 10;

/// Searches the indexes from the end of a file for the sizes of a damaged block. It may read four times the file's
/// length altogether, so that a file with very many damaged blocks takes no longer than a file of four times its size.
#[derive(Debug)]
pub(super) struct Search {
    source: SharedSource,
    left: u64,
    /// Of that, bytes of padding behind the streams.
    padding: u64,
}

impl Search {
    pub(super) fn new(source: SharedSource) -> Self {
        let left = source.len().saturating_mul(4);
        Self { source, left, padding: u64::MAX }
    }

    /// For who can do without what it finds: goes back through so much padding only. A small file may stand at the
    /// start of a large disk, and nothing is decoded meanwhile.
    pub(super) fn with_padding(self, padding: u64) -> Self {
        Self { padding, ..self }
    }

    /// What the index says of the block whose header starts at byte `block`; `None` if the way back from the end of the
    /// file does not lead there.
    pub(super) fn record_of(&mut self, block: u64, cancel: &Cancel) -> io::Result<Option<Record>> {
        Ok(self.records_from(block, cancel)?.as_ref().map(Records::current))
    }

    /// What the index says of the blocks from the one whose header starts at byte `block` on.
    pub(super) fn records_from(&mut self, block: u64, cancel: &Cancel) -> io::Result<Option<Records>> {
        let mut end = self.source.len();
        loop {
            cancel.check()?;
            let Some(footer_end) = self.skip_padding(end, block, cancel)? else { return Ok(None) };
            let Some(stream) = self.stream_before(footer_end, cancel, |_| ())? else { return Ok(None) };
            if (stream.blocks..stream.index).contains(&block) {
                if self.spend(stream.index_length).is_none() {
                    return Ok(None);
                }
                let mut at = stream.blocks;
                let mut records = Records::new(self.source.clone(), stream.index)?;
                while let Some(now) = records {
                    if at >= block {
                        return Ok((at == block).then_some(now));
                    }
                    // Checked when the sizes were added up.
                    at = padded(now.current.unpadded).and_then(|length| at.checked_add(length)).unwrap_or(u64::MAX);
                    records = now.next()?;
                }
                return Ok(None);
            }
            end = stream.blocks - STREAM_HEADER as u64;
            if block >= stream.index || end == 0 {
                return Ok(None);
            }
        }
    }

    fn spend(&mut self, bytes: u64) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    /// The end of the stream that the padding before `end` follows.
    fn skip_padding(&mut self, mut end: u64, block: u64, cancel: &Cancel) -> io::Result<Option<u64>> {
        // Most files have none, and there may be a great many streams.
        let mut buffer = vec![0; FIRST_PADDING];
        while end > block {
            cancel.check()?;
            let length = end.min(buffer.len() as u64);
            if self.spend(length).is_none() {
                return Ok(None);
            }
            let bytes = &mut buffer[..length as usize];
            self.source.read_exact_at(bytes, end - length)?;
            if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                // The last byte of a footer is not zero.
                return Ok(Some(end - length + last as u64 + 1));
            }
            end -= length;
            let Some(left) = self.padding.checked_sub(length) else { return Ok(None) };
            self.padding = left;
            buffer.resize(MORE_PADDING, 0);
        }
        Ok(None)
    }

    fn stream_before(&mut self, end: u64, cancel: &Cancel, each: impl FnMut(Record)) -> io::Result<Option<Bounds>> {
        let Some(footer_at) = end.checked_sub(STREAM_HEADER as u64) else { return Ok(None) };
        let mut footer = [0; STREAM_HEADER];
        self.source.read_exact_at(&mut footer, footer_at)?;
        let Ok((check, index_length)) = stream_footer(&footer) else { return Ok(None) };
        let Some(index) = footer_at.checked_sub(index_length) else { return Ok(None) };
        let Some(read) = self.read_index(index, index_length, cancel, each)? else { return Ok(None) };
        if read.length != index_length || read.flaw.is_some() {
            return Ok(None);
        }
        let Some(blocks) = index.checked_sub(read.blocks) else { return Ok(None) };
        let Some(start) = blocks.checked_sub(STREAM_HEADER as u64) else { return Ok(None) };
        let mut header = [0; STREAM_HEADER];
        self.source.read_exact_at(&mut header, start)?;
        Ok((stream_header(&header) == Ok(check)).then_some(Bounds { blocks, index, index_length, check }))
    }

    fn read_index(
        &mut self,
        at: u64,
        length: u64,
        cancel: &Cancel,
        each: impl FnMut(Record),
    ) -> io::Result<Option<Index>> {
        if self.spend(length).is_none() {
            return Ok(None);
        }
        let mut input = Input::new(self.source.clone(), at);
        if input.fill(1)?.first() != Some(&0) {
            return Ok(None);
        }
        match read(&mut input, cancel, each) {
            Ok(index) => Ok(index.ok()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where the parts of a stream are.
struct Bounds {
    /// The first block.
    blocks: u64,
    index: u64,
    index_length: u64,
    /// Of its blocks.
    check: CheckId,
}

/// What the indexes of `source` say, from the last one back to the first; `None` where one of them is not good.
pub(super) fn outline(source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
    let mut search = Search::new(SharedSource::clone(source));
    let (mut end, mut blocks, mut longest) = (source.len(), 0_u64, 0);
    let (mut history, mut dictionary) = (0, 0);
    let mut checks = Vec::new();
    while end > 0 {
        cancel.check()?;
        let Some(footer_end) = search.skip_padding(end, 0, cancel)? else { return Ok(None) };
        let mut own = 0;
        let each = |record: Record| {
            blocks += 1;
            own = record.uncompressed.max(own);
        };
        let Some(stream) = search.stream_before(footer_end, cancel, each)? else { return Ok(None) };
        longest = longest.max(own);
        if stream.blocks < stream.index {
            let stated = dictionary_of_block(source, &stream)?;
            (history, dictionary) = (history.max(stated.min(own)), dictionary.max(stated));
        }
        if !checks.contains(&stream.check) {
            checks.push(stream.check);
        }
        end = stream.blocks.saturating_sub(STREAM_HEADER as u64);
    }
    let check = match checks.as_slice() {
        [CheckId::NONE] => Some("none"),
        [CheckId::CRC32] => Some("CRC-32"),
        [CheckId::CRC64] => Some("CRC-64"),
        [CheckId::SHA256] => Some("SHA-256"),
        _ => None,
    };
    Ok(Some(Outline {
        part: "block",
        parts: Some(blocks),
        longest: Some(longest),
        history: Some(history),
        dictionary: Some(dictionary),
        check,
    }))
}

/// Bytes of the dictionary of a stream's first block: the others nearly always have the same.
fn dictionary_of_block(source: &SharedSource, stream: &Bounds) -> io::Result<u64> {
    let mut input = Input::new(SharedSource::clone(source), stream.blocks);
    let Some(&size) = input.fill(1)?.first() else { return Ok(0) };
    let length = block_header_length(size);
    let header = input.fill(length)?.get(..length).and_then(|bytes| block_header(bytes, stream.check).ok());
    Ok(header.map_or(0, |header| dictionary_of(&header, u64::MAX)))
}

/// The records of an index that was found good, one after another.
pub(super) struct Records {
    input: Input,
    /// Records behind the current one.
    left: u64,
    current: Record,
}

impl Records {
    fn new(source: SharedSource, index: u64) -> io::Result<Option<Self>> {
        let mut input = Input::new(source, index + 1);
        let Some(left) = number(&mut input, &mut crc32fast::Hasher::new())? else { return Ok(None) };
        Self { input, left, current: Record { unpadded: 0, uncompressed: 0 } }.next()
    }

    pub(super) fn current(&self) -> Record {
        self.current
    }

    /// Goes on to the next record; `None` behind the last.
    pub(super) fn next(mut self) -> io::Result<Option<Self>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let Some(current) = record(&mut self.input, &mut crc32fast::Hasher::new())? else { return Ok(None) };
        Ok(Some(Self { left, current, ..self }))
    }
}
