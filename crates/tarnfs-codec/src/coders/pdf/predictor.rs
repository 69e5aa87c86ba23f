//! What was told as differences: by rows of PNG, or of TIFF.

use std::io;

use super::{Feed, Undo};

/// Bytes of a row.
const LONGEST: u64 = 16 << 20;

pub(super) struct Predictor {
    /// As TIFF does it, within a row.
    is_tiff: bool,
    colors: usize,
    bits: usize,
    /// Bytes of a pixel, or 1.
    pixel: usize,
    /// Bytes of a row.
    length: usize,
    /// What has come of one, and of the one before: the last one may be cut.
    row: Vec<u8>,
    above: Vec<u8>,
    /// Of values that share bytes, the last one of each colour.
    last: Vec<u8>,
    /// Of `row`, what was handed out.
    served: usize,
    /// Bytes of the longest row, which are no waste of what comes before.
    allowed: usize,
    has_ended: bool,
}

impl Predictor {
    /// `None` of numbers that cannot be.
    pub(super) fn new(kind: u8, colors: u8, bits: u8, columns: u32) -> Option<Self> {
        let is_tiff = match kind {
            2 => true,
            10..=15 => false,
            _ => return None,
        };
        let (colors, bits) = (usize::from(colors), usize::from(bits));
        if colors == 0 || !matches!(bits, 1 | 2 | 4 | 8 | 16) || columns == 0 {
            return None;
        }
        let length = u64::from(columns).checked_mul((colors * bits) as u64)?.div_ceil(8);
        if length > LONGEST {
            return None;
        }
        let length = length as usize;
        let (row, above, last) = (Vec::new(), Vec::new(), Vec::new());
        let pixel = (colors * bits).div_ceil(8);
        Some(Self { is_tiff, colors, bits, pixel, length, row, above, last, served: 0, allowed: 0, has_ended: false })
    }

    /// Takes the next row; false at the end. The last one may be cut.
    fn next(&mut self, input: &mut Feed) -> io::Result<bool> {
        let kind = if self.is_tiff {
            0
        } else {
            match input.next()? {
                Some(kind) => kind,
                None => return Ok(false),
            }
        };
        std::mem::swap(&mut self.row, &mut self.above);
        self.row.clear();
        self.served = 0;
        while self.row.len() < self.length {
            let left = self.length - self.row.len();
            let bytes = input.bytes()?;
            let length = bytes.len().min(left);
            if length == 0 {
                break;
            }
            // It is told how long a row is, but not that there is one.
            if self.row.capacity() < self.row.len() + length {
                self.row.reserve_exact(self.row.len().max(length).min(left));
            }
            self.row.extend_from_slice(&bytes[..length]);
            input.consume(length);
            if self.row.len() > self.allowed {
                let more = self.row.len() - self.allowed;
                self.allowed += more;
                input.passed.allow(more);
            }
        }
        if self.row.is_empty() {
            self.has_ended = true;
            return Ok(false);
        }
        if self.is_tiff {
            self.tiff();
        } else {
            self.png(kind);
        }
        Ok(true)
    }

    fn png(&mut self, kind: u8) {
        for at in 0..self.row.len() {
            let left = if at >= self.pixel { self.row[at - self.pixel] } else { 0 };
            let up = self.above.get(at).copied().unwrap_or(0);
            let corner = if at >= self.pixel { self.above.get(at - self.pixel).copied().unwrap_or(0) } else { 0 };
            let guess = match kind {
                1 => left,
                2 => up,
                3 => u16::midpoint(left.into(), up.into()) as u8,
                4 => {
                    let (a, b, c) = (i16::from(left), i16::from(up), i16::from(corner));
                    let sum = a + b - c;
                    let [of_a, of_b, of_c] = [a, b, c].map(|value| (sum - value).abs());
                    if of_a <= of_b && of_a <= of_c {
                        left
                    } else if of_b <= of_c {
                        up
                    } else {
                        corner
                    }
                }
                _ => 0,
            };
            self.row[at] = self.row[at].wrapping_add(guess);
        }
    }

    fn tiff(&mut self) {
        let colors = self.colors;
        match self.bits {
            8 => {
                for at in colors..self.row.len() {
                    self.row[at] = self.row[at].wrapping_add(self.row[at - colors]);
                }
            }
            16 => {
                for at in colors..self.row.len() / 2 {
                    let value = |row: &[u8], at: usize| u16::from_be_bytes([row[2 * at], row[2 * at + 1]]);
                    let sum = value(&self.row, at).wrapping_add(value(&self.row, at - colors));
                    self.row[2 * at..2 * at + 2].copy_from_slice(&sum.to_be_bytes());
                }
            }
            bits => {
                let mask = (1_u8 << bits) - 1;
                // The last value of each colour.
                self.last.clear();
                self.last.resize(colors, 0);
                let mut color = 0;
                for byte in &mut self.row {
                    let (mut rest, mut sums) = (*byte, 0);
                    for _ in 0..8 / bits {
                        rest = rest.rotate_left(bits as u32);
                        let last = &mut self.last[color];
                        *last = last.wrapping_add(rest) & mask;
                        sums = sums << bits | *last;
                        color = if color + 1 < colors { color + 1 } else { 0 };
                    }
                    *byte = sums;
                }
            }
        }
    }
}

impl Undo for Predictor {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < output.len() {
            if self.has_ended || self.served >= self.row.len() && !self.next(input)? {
                break;
            }
            let length = (self.row.len() - self.served).min(output.len() - written);
            output[written..written + length].copy_from_slice(&self.row[self.served..self.served + length]);
            self.served += length;
            written += length;
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.row.capacity() + self.above.capacity() + self.last.capacity()
    }
}
