//! xz in one stream of blocks that say how long they are, with the index behind them ("The .xz File Format", 1.2.1).

use std::io;
use std::ops::RangeInclusive;

use liblzma::stream::{Action, Filters, LzmaOptions, Status, Stream};

use super::{Block, Compression, Compressor, Frame, Point, failed};

/// xz by blocks.
pub(super) struct Xz;

const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const FOOTER_MAGIC: [u8; 2] = *b"YZ";
/// CRC-64 behind each block.
const CHECK: u8 = 4;
const FLAGS: [u8; 2] = [0, CHECK];
const CHECK_LENGTH: u64 = 8;

/// Of a block's header: one filter, and both sizes are there.
const BLOCK_FLAGS: u8 = 0xc0;
const LZMA2: u8 = 0x21;

/// Version of the state of a seek point; at a block, its check is behind it.
const STATE: u8 = 1;

/// Dictionaries of the presets in bytes, as powers of two.
const DICTIONARIES: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];
/// Bytes that the encoder takes, as `xz -vv` says.
const MEMORY: [u64; 10] = [3, 9, 17, 32, 48, 94, 94, 186, 370, 674];

struct Blocks {
    level: u32,
    dictionary: u8,
    /// What the encoder gives.
    packed: Vec<u8>,
}

/// A number in groups of seven bits, the least first.
fn put_number(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn put_crc(bytes: &mut Vec<u8>, from: usize) {
    let crc = crc32fast::hash(&bytes[from..]);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

impl Compressor for Blocks {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        let options = LzmaOptions::new_preset(self.level).map_err(|error| failed("xz", error))?;
        let mut filters = Filters::new();
        filters.lzma2(&options);
        let mut encoder = Stream::new_raw_encoder(&filters).map_err(|error| failed("xz", error))?;
        self.packed.clear();
        // What cannot be compressed is stored, with three bytes for each 64 KiB.
        self.packed.reserve(data.len() + data.len() / 4096 + 1024);
        loop {
            let consumed = encoder.total_in() as usize;
            let status = encoder
                .process_vec(&data[consumed..], &mut self.packed, Action::Finish)
                .map_err(|error| failed("xz", error))?;
            if matches!(status, Status::StreamEnd) {
                break;
            }
            self.packed.reserve(64 << 10);
        }
        let out = &mut block.bytes;
        out.extend_from_slice(&[0, BLOCK_FLAGS]);
        put_number(out, self.packed.len() as u64);
        put_number(out, data.len() as u64);
        out.extend_from_slice(&[LZMA2, 1, self.dictionary]);
        pad(out);
        // Of the header with its CRC-32, in words of four bytes, less one.
        out[0] = (out.len() / 4) as u8;
        put_crc(out, 0);
        block.note = out.len() as u64 + self.packed.len() as u64 + CHECK_LENGTH;
        out.extend_from_slice(&self.packed);
        pad(out);
        let mut crc = crc64fast::Digest::new();
        crc.write(data);
        out.extend_from_slice(&crc.sum64().to_le_bytes());
        block.points.push(Point::at_start(&[STATE, CHECK]));
        Ok(())
    }
}

#[derive(Default)]
struct Index {
    blocks: u64,
    records: Vec<u8>,
}

impl Frame for Index {
    fn start(&mut self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&FLAGS);
        put_crc(&mut header, MAGIC.len());
        header
    }

    fn add(&mut self, data: &[u8], block: &Block) {
        self.blocks += 1;
        put_number(&mut self.records, block.note);
        put_number(&mut self.records, data.len() as u64);
    }

    fn end(&mut self) -> Vec<u8> {
        let mut index = vec![0];
        put_number(&mut index, self.blocks);
        index.append(&mut self.records);
        pad(&mut index);
        put_crc(&mut index, 0);
        let mut footer = (index.len() as u32 / 4 - 1).to_le_bytes().to_vec();
        footer.extend_from_slice(&FLAGS);
        index.extend_from_slice(&crc32fast::hash(&footer).to_le_bytes());
        index.extend_from_slice(&footer);
        index.extend_from_slice(&FOOTER_MAGIC);
        index
    }

    fn first_state(&self) -> Vec<u8> {
        vec![STATE]
    }
}

fn of_level<T: Copy>(table: &[T; 10], level: i32) -> T {
    table[level.clamp(0, 9) as usize]
}

impl Compression for Xz {
    fn name(&self) -> &'static str {
        "xz"
    }

    fn suffix(&self) -> &'static str {
        ".xz"
    }

    fn short(&self) -> &'static [&'static str] {
        &[".txz"]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        0..=9
    }

    fn usual_level(&self) -> i32 {
        6
    }

    fn block(&self, level: i32) -> usize {
        // As long as the dictionary: xz itself takes three times as much, for which a random read waits as long.
        (1 << of_level(&DICTIONARIES, level)).max(1 << 20)
    }

    fn memory(&self, level: i32) -> u64 {
        of_level(&MEMORY, level) << 20
    }

    fn spacing(&self) -> u64 {
        tarnfs_codec::PIECE as u64
    }

    fn compressor(&self, level: i32) -> io::Result<Box<dyn Compressor>> {
        // 2 << 11 is 0, 3 << 11 is 1, 2 << 12 is 2, and so on.
        let dictionary = (of_level(&DICTIONARIES, level) as u8 - 12) * 2;
        Ok(Box::new(Blocks { level: level.unsigned_abs(), dictionary, packed: Vec::new() }))
    }

    fn frame(&self, _: i32) -> Box<dyn Frame> {
        Box::new(Index::default())
    }
}
