//! The blocks of an xz stream, from the indexes at the ends of its streams (The .xz File Format 1.2, §2.1.2 and §4):
//! ratarmount keeps nothing for xz, and reads the same.

use std::io;
use std::ops::Range;

use tarnfs_codec::{Chunk, ChunkTable, Damage, SeekPoint};
use tarnfs_source::{Cancel, Source};

use crate::Error;

/// Bytes of a stream's header, and of its footer.
const EDGE: u64 = 12;
/// Last bytes of a stream.
const FOOTER_MAGIC: &[u8] = b"YZ";
/// Smallest block: header, padded data (§3).
const LEAST_BLOCK: u64 = 8;
/// More blocks than this are not kept in memory (16 bytes each): 4 TiB in blocks of 1 MiB.
const MOST_BLOCKS: usize = 4 << 20;
/// Bytes of the index of one stream: what so many blocks can need.
const MOST_INDEX: u64 = 18 * MOST_BLOCKS as u64;

/// Streams that one file may have; xz and pixz write one.
const MOST_STREAMS: u32 = 1 << 20;
/// Bytes of padding between and behind all streams (§2.2). What has more is decoded to find its blocks.
const MOST_PADDING: u64 = 64 << 20;
/// Bytes of padding that are read at once.
const STEP: u64 = 64 << 10;

/// Where each block begins in the compressed and in the decoded stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XzBlocks {
    blocks: Vec<(u64, u64)>,
    /// Where blocks begin that have another state than those before: the streams have different checks.
    states: Vec<(u64, Vec<u8>)>,
    decoded_length: u64,
}

impl XzBlocks {
    /// Reads the indexes of all streams, from the last one backwards.
    pub(super) fn read(source: &dyn Source, cancel: &Cancel) -> Result<Self, Error> {
        // Sizes of the blocks, from the last one to the first: compressed byte, decoded bytes.
        let mut backwards: Vec<(u64, u64)> = Vec::new();
        let mut states: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut end = source.len();
        let (mut streams, mut padding) = (0_u32, MOST_PADDING);
        while end > 0 {
            cancel.check()?;
            end = skip_padding(source, end, &mut padding, cancel)?;
            if end == 0 {
                break;
            }
            let state;
            (end, state) = read_stream(source, end, &mut backwards)?;
            match states.last_mut() {
                Some((start, next)) if *next == state => *start = end,
                _ => states.push((end, state)),
            }
            streams = streams.saturating_add(1);
            if streams > MOST_STREAMS {
                return Err(Error::Unknown(format!("more than {MOST_STREAMS} xz streams")));
            }
        }
        let mut decoded_length = 0_u64;
        let mut blocks = backwards;
        blocks.reverse();
        for (_, decoded) in &mut blocks {
            let length = std::mem::replace(decoded, decoded_length);
            decoded_length = decoded_length
                .checked_add(length)
                .filter(|&sum| i64::try_from(sum).is_ok())
                .ok_or_else(|| damaged(source.len()))?;
        }
        // Empty blocks hold nothing that anybody could ask for.
        blocks.dedup_by(|next, before| {
            let same = next.1 == before.1;
            if same {
                before.0 = next.0;
            }
            same
        });
        states.reverse();
        Ok(Self { blocks, states, decoded_length })
    }
}

/// Where the stream ends behind which there are only zeros up to byte `end`; takes them from what is `left` of them.
fn skip_padding(source: &dyn Source, end: u64, left: &mut u64, cancel: &Cancel) -> Result<u64, Error> {
    let mut footer = [0; 4];
    let footer_at = end.checked_sub(footer.len() as u64).ok_or_else(|| damaged(end))?;
    source.read_exact_at(&mut footer, footer_at)?;
    if footer != [0; 4] {
        return Ok(end);
    }
    let mut buffer = vec![0; STEP.min(end) as usize];
    let mut at = end;
    while at > 0 {
        cancel.check()?;
        let start = at.saturating_sub(STEP);
        let bytes = buffer.get_mut(..at.saturating_sub(start) as usize).unwrap_or_default();
        source.read_exact_at(bytes, start)?;
        // The last byte of a footer is not zero.
        let found = bytes.iter().rposition(|&byte| byte != 0);
        let footer_end = found.map_or(start, |last| start.saturating_add(last as u64).saturating_add(1));
        let zeros = at.saturating_sub(footer_end);
        *left = left.checked_sub(zeros).ok_or_else(|| {
            Error::Unknown(format!("an xz file with more than {} MiB of padding", MOST_PADDING >> 20))
        })?;
        at = footer_end;
        if found.is_some() {
            break;
        }
    }
    // It comes in words of four bytes.
    if end.saturating_sub(at).is_multiple_of(4) { Ok(at) } else { Err(damaged(end)) }
}

/// Adds the blocks of the stream that ends at byte `end`, last one first, and returns where that stream begins and
/// the state that seek points at its blocks have.
fn read_stream(source: &dyn Source, end: u64, backwards: &mut Vec<(u64, u64)>) -> Result<(u64, Vec<u8>), Error> {
    let fault = || damaged(end);
    let footer_at = end.checked_sub(EDGE).ok_or_else(fault)?;
    let mut footer = [0; EDGE as usize];
    source.read_exact_at(&mut footer, footer_at)?;
    let [c0, c1, c2, c3, fields @ .., y, z] = footer;
    let [b0, b1, b2, b3, _, _] = fields;
    if [y, z] != FOOTER_MAGIC || crc32fast::hash(&fields) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(fault());
    }
    let index_length = u64::from(u32::from_le_bytes([b0, b1, b2, b3])).saturating_add(1).saturating_mul(4);
    if index_length > MOST_INDEX {
        return Err(Error::Unknown(format!("an xz stream with an index of {index_length} bytes")));
    }
    let index_at = footer_at.checked_sub(index_length).ok_or_else(fault)?;
    let mut index = vec![0; index_length as usize];
    source.read_exact_at(&mut index, index_at)?;
    let (fields, crc) = index.split_last_chunk::<4>().ok_or_else(fault)?;
    if crc32fast::hash(fields) != u32::from_le_bytes(*crc) || fields.first() != Some(&0) {
        return Err(fault());
    }
    let mut rest = fields.get(1..).unwrap_or_default();
    let count = number(&mut rest).ok_or_else(fault)?;
    if count.saturating_mul(2) > rest.len() as u64
        || count.saturating_add(backwards.len() as u64) > MOST_BLOCKS as u64
        || count.saturating_mul(LEAST_BLOCK) > source.len()
    {
        return Err(fault());
    }
    let mut sizes = Vec::with_capacity(count as usize);
    for _ in 0..count {
        sizes.push((number(&mut rest).ok_or_else(fault)?, number(&mut rest).ok_or_else(fault)?));
    }
    let mut at = index_at;
    for (unpadded, decoded) in sizes.into_iter().rev() {
        let padded = unpadded.checked_next_multiple_of(4).filter(|&length| length >= LEAST_BLOCK);
        at = padded.and_then(|length| at.checked_sub(length)).ok_or_else(fault)?;
        backwards.push((at, decoded));
    }
    let start = at.checked_sub(EDGE).ok_or_else(fault)?;
    let mut header = [0; EDGE as usize];
    source.read_exact_at(&mut header, start)?;
    Ok((start, tarnfs_codec::xz_block_state(&header).ok_or_else(fault)?))
}

/// A number of 7 bits a byte, the lowest first (§1.2).
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn damaged(end: u64) -> Error {
    Error::Broken(format!("the xz stream that ends at byte {end} has no valid index"))
}

impl ChunkTable for XzBlocks {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        if decoded >= self.decoded_length {
            return Ok(None);
        }
        let behind = self.blocks.partition_point(|(_, start)| *start <= decoded);
        let Some(&(compressed, start)) = behind.checked_sub(1).and_then(|index| self.blocks.get(index)) else {
            return Ok(None);
        };
        let end = self.blocks.get(behind).map_or(self.decoded_length, |(_, next)| *next);
        let point = if start == 0 {
            // The first block is decoded from the header of the stream.
            SeekPoint::default()
        } else {
            let streams = self.states.partition_point(|(stream, _)| *stream <= compressed);
            let state = streams.checked_sub(1).and_then(|index| self.states.get(index));
            SeekPoint {
                compressed_bit: compressed.saturating_mul(8),
                decoded: start,
                state: state.map(|(_, state)| state.clone()).unwrap_or_default(),
            }
        };
        Ok(Some(Chunk { point, length: end.saturating_sub(start), checksums: Vec::new() }))
    }

    fn decoded_length(&self) -> u64 {
        self.decoded_length
    }

    fn longest(&self) -> io::Result<Option<u64>> {
        let ends = self.blocks.iter().skip(1).map(|(_, start)| *start).chain([self.decoded_length]);
        let lengths = self.blocks.iter().zip(ends).map(|((_, start), end)| end.saturating_sub(*start));
        Ok(lengths.max())
    }

    fn damage_in(&self, _decoded: Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use tarnfs_codec::engine::{DecodedSource, PieceCache, Workers};
    use tarnfs_source::{Budget, Limits, MemorySource};

    use super::*;

    const BLOCK: usize = 300;

    /// A stream of several blocks.
    fn stream(data: &[u8], check: &str) -> Vec<u8> {
        let mut child = Command::new("xz")
            .args(["-q", "-c", "-0", &format!("--block-size={BLOCK}"), &format!("--check={check}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It fits into the pipe.
        child.stdin.take().unwrap().write_all(data).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    fn open(file: &[u8]) -> Arc<DecodedSource> {
        let source = Arc::new(MemorySource::new(file, "joined.xz"));
        let table = Arc::new(XzBlocks::read(&*source, &Cancel::default()).unwrap());
        let codec = tarnfs_codec::by_name("xz").unwrap();
        let cache = PieceCache::new(Budget::new(1 << 20));
        DecodedSource::new(codec, source, table, cache, Workers::new(0), Limits::default())
    }

    #[test]
    fn streams_with_different_checks_are_read_and_verified() {
        let checks = ["crc32", "none", "sha256", "sha256", "crc64", "none", "crc32"];
        let (mut data, mut file) = (Vec::new(), Vec::new());
        for (number, check) in checks.into_iter().enumerate() {
            let part: Vec<u8> = (0..3 * BLOCK).map(|at| (at * 7 + number * 31 + at / 50) as u8).collect();
            file.extend(stream(&part, check));
            // Padding of a stream.
            file.extend([0; 4].repeat(number % 3));
            data.extend(part);
        }
        let source = open(&file);
        for at in (0..data.len() - 10).step_by(77).rev() {
            let mut buffer = [0; 10];
            source.read_exact_at(&mut buffer, at as u64).unwrap();
            assert!(buffer == data[at..at + 10], "byte {at}");
        }
        // A bit of the check of the first block is flipped, in each stream that has one.
        for (number, check) in checks.into_iter().enumerate() {
            let table = XzBlocks::read(&MemorySource::new(&file[..], "joined.xz"), &Cancel::default()).unwrap();
            let second = table.chunk_at((number * 3 + 1) as u64 * BLOCK as u64).unwrap().unwrap();
            let mut changed = file.clone();
            changed[second.point.compressed_bit as usize / 8 - 1] ^= 1;
            let mut buffer = [0; 10];
            let read = open(&changed).read_exact_at(&mut buffer, (number * 3 * BLOCK) as u64);
            assert!(read.is_err() || check == "none", "stream {number}");
        }
    }

    #[test]
    fn a_stream_whose_header_is_wrong_has_no_blocks() {
        let file = [stream(&[7; 1000], "crc32"), stream(&[8; 1000], "crc64")].concat();
        let second = file.len() - stream(&[8; 1000], "crc64").len();
        assert!(XzBlocks::read(&MemorySource::new(&file[..], "joined.xz"), &Cancel::default()).is_ok());
        // The magic, the number of the check, its CRC-32.
        for at in [0, 5, 7, 8, second + 1, second + 7, second + 11] {
            let mut changed = file.clone();
            changed[at] ^= 1;
            let read = XzBlocks::read(&MemorySource::new(&changed[..], "joined.xz"), &Cancel::default());
            assert!(matches!(read, Err(Error::Broken(_))), "byte {at}: {read:?}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod padding_tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tarnfs_source::MemorySource;

    use super::*;

    /// A stream of these blocks with this index.
    fn stream_of(blocks: &[u8], index: &[u8]) -> Vec<u8> {
        let with_crc = |bytes: &[u8]| [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
        let footer = [index.len() as u8 / 4, 0, 0, 0, 0, 0];
        let crc = crc32fast::hash(&footer).to_le_bytes();
        [&b"\xFD7zXZ\0"[..], &with_crc(&[0, 0]), blocks, &with_crc(index), &crc, &footer, FOOTER_MAGIC].concat()
    }

    fn empty_stream() -> Vec<u8> {
        stream_of(&[], &[0; 4])
    }

    #[test]
    fn an_index_is_believed_if_it_fits_to_the_stream() {
        let blocks = |file: Vec<u8>| match read(file, &Cancel::default()).0 {
            Ok(found) => Some((found.blocks.len(), found.decoded_length)),
            Err(Error::Broken(_)) => None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(blocks(empty_stream()), Some((0, 0)));
        assert_eq!(blocks(stream_of(&[0; 8], &[0, 1, 8, 5])), Some((1, 5)));
        // What is no index, one block more than there are, far more, blocks that are shorter or longer than theirs.
        for (length, index) in
            [(0, [1, 0, 0, 0]), (8, [0, 2, 8, 5]), (8, [0, 255, 255, 3]), (8, [0, 1, 0, 5]), (8, [0, 1, 4, 5])]
                .into_iter()
                .chain([(8, [0, 1, 12, 5]), (8, [0, 0, 8, 5]), (0, [0, 1, 8, 5]), (8, [0, 1, 8, 0x85])])
        {
            assert_eq!(blocks(stream_of(&vec![0; length], &index)), None, "{length} {index:?}");
        }
        // A bit of the index, of its CRC-32, and of each byte of the footer.
        let whole = stream_of(&[0; 8], &[0, 1, 8, 5]);
        for at in 20..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(blocks(changed), None, "byte {at}");
        }
    }

    /// A number as an index has it.
    fn written(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 128 {
            bytes.push(number as u8 | 128);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    /// A stream of blocks of 8 bytes that hold so many.
    fn stream_of_lengths(lengths: &[u64]) -> Vec<u8> {
        let blocks = lengths.iter().flat_map(|&length| [&[8][..], &written(length)].concat());
        let mut index: Vec<u8> = [0, lengths.len() as u8].into_iter().chain(blocks).collect();
        index.resize(index.len().next_multiple_of(4), 0);
        stream_of(&vec![0; 8 * lengths.len()], &index)
    }

    /// Nobody asks for a byte of an empty block, and decoding begins at the one that holds it.
    #[test]
    fn blocks_are_found_by_what_they_hold() {
        let first = stream_of_lengths(&[0, 5, 0, 0, 7]);
        let file = [first.clone(), vec![0; 4], stream_of_lengths(&[0, 0]), stream_of_lengths(&[9, 0])].concat();
        let found = read(file.clone(), &Cancel::default()).0.unwrap();
        let last = file.len() - stream_of_lengths(&[9, 0]).len();
        assert_eq!((found.decoded_length(), found.longest().unwrap()), (21, Some(9)));
        let at = |decoded: u64| {
            let chunk = found.chunk_at(decoded).unwrap()?;
            Some((chunk.point.decoded, chunk.length, chunk.point.compressed_bit))
        };
        // The first block is decoded from the header of its stream.
        for (decoded, expected) in [
            (0, Some((0, 5, 0))),
            (4, Some((0, 5, 0))),
            (5, Some((5, 7, 8 * (12 + 4 * 8)))),
            (11, Some((5, 7, 8 * (12 + 4 * 8)))),
            (12, Some((12, 9, 8 * (last as u64 + 12)))),
            (20, Some((12, 9, 8 * (last as u64 + 12)))),
            (21, None),
            (u64::MAX, None),
        ] {
            assert_eq!(at(decoded), expected, "{decoded}");
        }
        assert!(read(first, &Cancel::default()).0.unwrap().longest().unwrap() == Some(7));
    }

    /// Lengths that no file has, and what an index of that many bytes would take.
    #[test]
    fn numbers_in_an_index_are_bounded() {
        let decoded = |lengths: &[u64]| match read(stream_of_lengths(lengths), &Cancel::default()).0 {
            Ok(found) => Some(found.decoded_length()),
            Err(Error::Broken(_)) => None,
            Err(error) => panic!("{error}"),
        };
        let half = 1 << 62;
        assert_eq!(decoded(&[half, half - 1]), Some(i64::MAX as u64));
        assert_eq!(decoded(&[half, half]), None);
        // Nine bytes are the most that a number has.
        assert_eq!(decoded(&[(1 << 63) - 1]), Some(i64::MAX as u64));
        assert_eq!(decoded(&[1 << 63]), None);
        // Only a footer, which says how long the index before it is.
        let footer = |length: u64| {
            let fields = [&((length / 4 - 1) as u32).to_le_bytes()[..], &[0, 0]].concat();
            read([&crc32fast::hash(&fields).to_le_bytes()[..], &fields, FOOTER_MAGIC].concat(), &Cancel::default()).0
        };
        assert!(matches!(footer(MOST_INDEX), Err(Error::Broken(_))));
        assert!(matches!(footer(MOST_INDEX + 4), Err(Error::Unknown(_))));
    }

    #[derive(Debug)]
    struct Counting(MemorySource, AtomicUsize);

    impl Source for Counting {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    fn read(bytes: Vec<u8>, cancel: &Cancel) -> (Result<XzBlocks, Error>, usize) {
        let source = Counting(MemorySource::new(bytes, "x".to_owned()), AtomicUsize::default());
        let read = XzBlocks::read(&source, cancel);
        (read, source.1.into_inner())
    }

    #[test]
    fn padding_is_read_in_large_pieces() {
        let stream = empty_stream();
        let padded = |before: usize, behind: usize| {
            [vec![0; before], stream.clone(), vec![0; behind], stream.clone(), vec![0; 8]].concat()
        };
        for behind in [0, 4, 64 << 10, (64 << 10) - 4, (64 << 10) + 4, 1 << 20] {
            let (found, reads) = read(padded(0, behind), &Cancel::default());
            let found = found.unwrap();
            assert!(found.blocks.is_empty() && found.decoded_length == 0, "{behind}");
            assert!(reads < 40, "{behind}: {reads} reads");
        }
        for (before, behind) in [(0, 3), (0, (64 << 10) + 1), (1, 4)] {
            let (found, _) = read(padded(before, behind), &Cancel::default());
            assert!(matches!(found, Err(Error::Broken(_))), "{before} {behind}");
        }
        let (found, reads) = read([stream.clone(), vec![0; MOST_PADDING as usize + 4]].concat(), &Cancel::default());
        assert!(matches!(found, Err(Error::Unknown(_))) && reads < 1100, "{found:?} after {reads} reads");
        let cancel = Cancel::default();
        cancel.cancel();
        let (found, reads) = read(padded(0, 1 << 20), &cancel);
        assert!(matches!(found, Err(Error::Io(_))) && reads < 2, "{found:?} after {reads} reads");
    }
}
