//! The index of indexed_gzip, of which ratarmount keeps the bytes where rapidgzip is not used.
//!
//! `GZIDX`, version, flags; the lengths of the compressed and of the decoded stream (64 bits each), spacing, length of
//! a window, number of points (32 bits each). A point: compressed byte, decoded byte (64 bits each), bits of the byte
//! before that belong to it (8 bits) and, from version 1 on, whether it has a window (8 bits). Behind all points the
//! windows, as they are. Little-endian.

use super::points::{MOST_POINTS, Point, ValuesReader, zran_bit};
use crate::Error;

/// Bytes before the first point.
const HEADER: u64 = 35;
/// A window is at most this long (RFC 1951 §2: distances of at most 32 768); indexed_gzip uses no other length.
const WINDOW: u64 = 32 << 10;

/// What stands before the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    version: u8,
    /// Length of the decoded stream in bytes.
    pub(super) decoded_length: u64,
    window: u32,
    count: u64,
}

impl Header {
    pub(super) fn read(values: &ValuesReader<'_>) -> Result<Self, Error> {
        let magic = values.read(0, 6)?;
        let Some(&[version @ (0 | 1)]) = magic.strip_prefix(b"GZIDX") else {
            return Err(Error::Unknown("the table gzipindex does not hold an index of indexed_gzip".into()));
        };
        let header = Self {
            version,
            decoded_length: values.number(15, false, 8)?,
            window: values.number(27, false, 4)? as u32,
            count: values.number(31, false, 4)?,
        };
        if u64::from(header.window) > WINDOW || header.count > MOST_POINTS {
            return Err(Error::Broken(format!(
                "the index of indexed_gzip has {} windows of {} bytes",
                header.count, header.window
            )));
        }
        Ok(header)
    }
}

/// All points.
pub(super) fn points(values: &ValuesReader<'_>) -> Result<Vec<Point>, Error> {
    let header = Header::read(values)?;
    let size: usize = if header.version == 0 { 17 } else { 18 };
    let bytes = values.read(HEADER, usize::try_from(header.count).unwrap_or(usize::MAX).saturating_mul(size))?;
    let mut window_at = HEADER.saturating_add(bytes.len() as u64);
    bytes
        .chunks_exact(size)
        .enumerate()
        .map(|(index, point)| {
            let number = |range: std::ops::Range<usize>| {
                point
                    .get(range)
                    .unwrap_or_default()
                    .iter()
                    .rev()
                    .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
            };
            let has_window = if header.version == 0 { index > 0 } else { number(17..18) != 0 };
            let window = (window_at, if has_window { header.window } else { 0 });
            window_at = window_at.saturating_add(u64::from(window.1));
            Ok(Point { compressed_bit: zran_bit(number(0..8), number(16..17))?, decoded: number(8..16), window })
        })
        .collect()
}

/// An index in the making.
#[derive(Debug, Default)]
pub(super) struct Builder {
    points: Vec<u8>,
    windows: Vec<u8>,
    count: u32,
}

impl Builder {
    /// Adds a point inside deflate data.
    pub(super) fn add(&mut self, compressed_bit: u64, decoded: u64, window: &[u8]) {
        self.count = self.count.saturating_add(1);
        self.points.extend_from_slice(&compressed_bit.div_ceil(8).to_le_bytes());
        self.points.extend_from_slice(&decoded.to_le_bytes());
        self.points.push(8_u64.saturating_sub(compressed_bit % 8) as u8 % 8);
        self.points.push(u8::from(!window.is_empty()));
        if !window.is_empty() {
            // The window ends at the point: what is missing of it lies before.
            let missing = (WINDOW as usize).saturating_sub(window.len());
            self.windows.resize(self.windows.len().saturating_add(missing), 0);
            self.windows.extend_from_slice(window);
        }
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.points.len().saturating_add(self.windows.len())
    }

    /// The bytes of the index.
    pub(super) fn finish(self, compressed_length: u64, decoded_length: u64) -> Vec<u8> {
        /// Only a hint for points that are still to be made; none are.
        const SPACING: u32 = 16 << 20;
        let mut bytes = b"GZIDX\x01\x00".to_vec();
        bytes.extend_from_slice(&compressed_length.to_le_bytes());
        bytes.extend_from_slice(&decoded_length.to_le_bytes());
        bytes.extend_from_slice(&SPACING.to_le_bytes());
        bytes.extend_from_slice(&(WINDOW as u32).to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.points);
        bytes.extend_from_slice(&self.windows);
        bytes
    }
}
