//! Files that are made of images: something before what is stored, or a PNG that holds pixels without compressing them.

use std::io;

use crc32fast::Hasher;
use zlib_rs::adler32::adler32;

use super::{Feed, Undo};

/// Bytes that come first.
pub(super) struct Prefix {
    bytes: Vec<u8>,
    served: usize,
}

impl Prefix {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), served: 0 }
    }
}

impl Undo for Prefix {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let is_prefix = self.served < self.bytes.len();
        let bytes = if is_prefix { &self.bytes[self.served..] } else { input.bytes()? };
        let length = bytes.len().min(output.len());
        output[..length].copy_from_slice(&bytes[..length]);
        if is_prefix {
            self.served += length;
        } else {
            input.consume(length);
        }
        Ok(length)
    }

    fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Bytes of a block that is stored in deflated data.
const BLOCK: u64 = 65535;

/// Bytes that are made together.
const TOGETHER: u64 = 16 << 10;

/// A PNG (ISO/IEC 15948): each row begins with a byte that says that nothing was done with it.
pub(super) struct Png {
    header: Vec<u8>,
    is_inverted: bool,
    /// Bytes of a row, with that before it, and how many of them have come.
    row: u64,
    in_row: u64,
    /// Bytes of all rows, and of the block, that are still to come.
    left: u64,
    in_block: u64,
    length: u64,
    crc: Hasher,
    adler: u32,
    out: Vec<u8>,
    served: usize,
    has_begun: bool,
    has_ended: bool,
}

impl Png {
    /// The properties: width and height (4 bytes, little-endian), bits, kind of colours, whether they are inverted, and
    /// the table of colours with its length (2 bytes) before it. With it, what is behind them.
    #[allow(clippy::many_single_char_names, reason = "bytes of numbers")]
    pub(super) fn new(properties: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, e, f, g, h, bits, kind, inverted, low, high], rest) = properties.split_first_chunk()?;
        let (table, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        let (width, height) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let colors = match kind {
            0 | 3 => 1,
            2 => 3,
            _ => return None,
        };
        let row = u64::from(width).checked_mul(colors * u64::from(bits))?.div_ceil(8) + 1;
        let left = row.checked_mul(height.into())?;
        let length = left.checked_add(left.div_ceil(BLOCK).max(1) * 5 + 6).filter(|length| *length < 1 << 31)?;
        let mut header = b"\x89PNG\r\n\x1a\n".to_vec();
        let sizes = [width.to_be_bytes(), height.to_be_bytes()].concat();
        chunk(&mut header, *b"IHDR", &[&sizes[..], &[bits, kind, 0, 0, 0]].concat());
        if kind == 3 {
            chunk(&mut header, *b"PLTE", table);
        }
        let png = Self {
            header,
            is_inverted: inverted != 0,
            row,
            in_row: 0,
            left,
            in_block: 0,
            length,
            crc: Hasher::new(),
            adler: 1,
            out: Vec::new(),
            served: 0,
            has_begun: false,
            has_ended: false,
        };
        Some((png, rest))
    }

    /// Bytes of the chunk of data.
    fn push(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.out.extend_from_slice(bytes);
    }

    fn next(&mut self, input: &mut Feed) -> io::Result<()> {
        self.out.clear();
        self.served = 0;
        if !self.has_begun {
            self.has_begun = true;
            self.out.append(&mut self.header);
            self.out.extend((self.length as u32).to_be_bytes());
            self.push(b"IDAT");
            // No window is needed, and this is a multiple of 31.
            self.push(&[0x78, 0x01]);
        }
        if self.in_block == 0 {
            self.in_block = self.left.min(BLOCK);
            let [low, high] = (self.in_block as u16).to_le_bytes();
            self.push(&[u8::from(self.in_block == self.left), low, high, !low, !high]);
        }
        let mut rows = Vec::new();
        let wanted = self.in_block.min(TOGETHER) as usize;
        while rows.len() < wanted {
            if self.in_row == 0 {
                rows.push(0);
                self.in_row = 1;
            } else {
                let bytes = input.bytes()?;
                let length = bytes.len().min(wanted - rows.len()).min((self.row - self.in_row) as usize);
                if length == 0 {
                    return Err(input.wrong("the pixels of an image end early"));
                }
                let mask = if self.is_inverted { 0xff } else { 0 };
                rows.extend(bytes[..length].iter().map(|byte| byte ^ mask));
                input.consume(length);
                self.in_row += length as u64;
            }
            if self.in_row == self.row {
                self.in_row = 0;
            }
        }
        self.adler = adler32(self.adler, &rows);
        self.push(&rows);
        self.left -= rows.len() as u64;
        self.in_block -= rows.len() as u64;
        if self.left == 0 {
            self.has_ended = true;
            let adler = self.adler.to_be_bytes();
            self.push(&adler);
            let crc = std::mem::take(&mut self.crc).finalize();
            self.out.extend(crc.to_be_bytes());
            chunk(&mut self.out, *b"IEND", b"");
        }
        Ok(())
    }
}

fn chunk(bytes: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&kind);
    bytes.extend_from_slice(data);
    let mut crc = Hasher::new();
    crc.update(&kind);
    crc.update(data);
    bytes.extend(crc.finalize().to_be_bytes());
}

impl Undo for Png {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        if self.served == self.out.len() {
            if self.has_ended {
                return Ok(0);
            }
            self.next(input)?;
        }
        let length = (self.out.len() - self.served).min(output.len());
        output[..length].copy_from_slice(&self.out[self.served..self.served + length]);
        self.served += length;
        Ok(length)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.header.capacity() + 2 * self.out.capacity()
    }
}
