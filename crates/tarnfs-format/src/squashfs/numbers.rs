//! Little-endian numbers, one behind the other.

use std::io;

use crate::image::damaged;

/// Bytes that are read from the front. Fewer than are wanted are an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

impl Fields<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(|| damaged("it is cut"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u16(&mut self) -> io::Result<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}
