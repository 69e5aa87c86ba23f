//! The index of gztool, version 0, of which ratarmount keeps the bytes (through rapidgzip).
//!
//! Eight zero bytes, `gzipindx`, the number of points twice; for each point the decoded byte, the compressed byte, the
//! bits of the byte before that belong to it, the length of its window and the window as a zlib stream; at the end the
//! length of the decoded stream. Numbers are big-endian, of 64 bits but the bits and the length, which have 32.

use zlib_rs::{DeflateConfig, InflateConfig, ReturnCode, compress_bound, compress_slice, decompress_slice};

use super::points::{MOST_POINTS, Point, ValuesReader, zran_bit};
use crate::Error;

const MAGIC: &[u8; 16] = b"\0\0\0\0\0\0\0\0gzipindx";
/// Bytes before the first point.
const HEADER: u64 = 32;
/// Bytes of a point before its window.
const POINT: u64 = 24;
/// A window is at most this long (RFC 1951 §2: distances of at most 32 768).
const WINDOW: usize = 32 << 10;
/// Bytes that the zlib stream of a window may take: no compressor makes more of 32 KiB.
const MOST_PACKED: u64 = 64 << 10;

fn count(values: &ValuesReader<'_>) -> Result<u64, Error> {
    if values.read(0, MAGIC.len())? != MAGIC {
        return Err(Error::Unknown("the table gztoolindex does not hold an index of gztool's first version".into()));
    }
    let (have, all) = (values.number(16, true, 8)?, values.number(24, true, 8)?);
    if have != all || have > MOST_POINTS {
        return Err(Error::Broken(format!("the index of gztool says that it has {have} points of {all}")));
    }
    Ok(have)
}

/// Length of the decoded stream in bytes.
pub(super) fn decoded_length(values: &ValuesReader<'_>) -> Result<u64, Error> {
    count(values)?;
    values.number(values.len().saturating_sub(8), true, 8)
}

/// All points.
pub(super) fn points(values: &ValuesReader<'_>) -> Result<Vec<Point>, Error> {
    let count = count(values)?;
    let mut points = Vec::new();
    let mut at = HEADER;
    for _ in 0..count {
        let bytes = values.read(at, POINT as usize)?;
        let number = |range: std::ops::Range<usize>| {
            bytes.get(range).unwrap_or_default().iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let length = number(20..24);
        if length > MOST_PACKED {
            return Err(Error::Broken(format!("a window of gztool's index has {length} bytes")));
        }
        at = at.saturating_add(POINT);
        points.push(Point {
            decoded: number(0..8),
            compressed_bit: zran_bit(number(8..16), number(16..20))?,
            window: (at, length as u32),
        });
        at = at.saturating_add(length);
    }
    Ok(points)
}

/// The window in its zlib stream.
pub(super) fn unpack(packed: &[u8]) -> Result<Vec<u8>, Error> {
    let mut window = vec![0; WINDOW];
    let (unpacked, result) = decompress_slice(&mut window, packed, InflateConfig { window_bits: 15 });
    let length = unpacked.len();
    if result != ReturnCode::Ok {
        return Err(Error::Broken("a window of gztool's index cannot be decompressed".into()));
    }
    window.truncate(length);
    Ok(window)
}

/// An index in the making.
#[derive(Debug)]
pub(super) struct Builder {
    bytes: Vec<u8>,
    count: u64,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), count: 0 }
    }

    /// Adds a point inside deflate data.
    pub(super) fn add(&mut self, compressed_bit: u64, decoded: u64, window: &[u8]) -> Result<(), Error> {
        let mut packed = Vec::new();
        if !window.is_empty() {
            packed.resize(compress_bound(window.len()), 0);
            let (length, result) = {
                let (packed, result) = compress_slice(&mut packed, window, DeflateConfig::new(6));
                (packed.len(), result)
            };
            if result != ReturnCode::Ok {
                let what = "compressing a window failed; this is an error in tarnfs, please report it";
                return Err(std::io::Error::other(what).into());
            }
            packed.truncate(length);
        }
        self.count = self.count.saturating_add(1);
        self.bytes.extend_from_slice(&decoded.to_be_bytes());
        self.bytes.extend_from_slice(&compressed_bit.div_ceil(8).to_be_bytes());
        self.bytes.extend_from_slice(&((8_u64.saturating_sub(compressed_bit % 8) % 8) as u32).to_be_bytes());
        self.bytes.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(&packed);
        Ok(())
    }

    /// Bytes behind the head that are ready; what comes is added behind them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// How many these are.
    pub(super) fn ready(&self) -> usize {
        self.bytes.len()
    }

    /// The head, which says how many points there are, and the last bytes.
    pub(super) fn finish(mut self, decoded_length: u64) -> (Vec<u8>, Vec<u8>) {
        let count = self.count.to_be_bytes();
        self.bytes.extend_from_slice(&decoded_length.to_be_bytes());
        ([&MAGIC[..], &count, &count].concat(), self.bytes)
    }
}
