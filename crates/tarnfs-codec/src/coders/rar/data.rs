//! What a member is stored as: runs of bytes of the archive, one in each volume, which may be encrypted together.

use std::io;

use aes::{Aes128, Aes256};
use cbc::cipher::{Block, BlockModeDecrypt};
use tarnfs_source::SharedSource;

use super::old_ciphers;
use crate::faults;

const BLOCK: usize = 16;

/// Undoes an encryption, block by block.
pub(super) enum Cipher {
    Aes128(Box<cbc::Decryptor<Aes128>>),
    Aes256(Box<cbc::Decryptor<Aes256>>),
    Old(Box<old_ciphers::Blocks>),
    Stream(old_ciphers::Stream),
}

impl Cipher {
    /// Bytes of a block.
    fn block(&self) -> usize {
        if matches!(self, Self::Stream(_)) { 1 } else { BLOCK }
    }

    /// Decrypts whole blocks.
    pub(super) fn undo(&mut self, bytes: &mut [u8]) {
        match self {
            Self::Aes128(cipher) => cipher.decrypt_blocks(Block::<Aes128>::slice_as_chunks_mut(bytes).0),
            Self::Aes256(cipher) => cipher.decrypt_blocks(Block::<Aes256>::slice_as_chunks_mut(bytes).0),
            Self::Old(cipher) => cipher.undo(bytes),
            Self::Stream(cipher) => cipher.undo(bytes),
        }
    }
}

/// Reads it in order.
pub(super) struct Data {
    source: SharedSource,
    /// Where each run begins, and its length.
    runs: Vec<(u64, u64)>,
    cipher: Option<Cipher>,
    length: u64,
    /// The run that is read, and bytes of it that were.
    run: usize,
    inside: u64,
    /// Decrypted bytes that did not fit.
    left: Vec<u8>,
}

impl Data {
    pub(super) fn new(source: SharedSource, runs: Vec<(u64, u64)>, cipher: Option<Cipher>) -> Self {
        let length = runs.iter().fold(0_u64, |sum, (_, length)| sum.saturating_add(*length));
        Self { source, runs, cipher, length, run: 0, inside: 0, left: Vec::new() }
    }

    /// Bytes in all.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Byte of the archive up to which it was read.
    pub(super) fn place(&self) -> u64 {
        let run = self.runs.get(self.run).or(self.runs.last());
        run.map_or(0, |(start, length)| start.saturating_add(self.inside.min(*length)))
    }

    pub(super) fn cut(&self) -> io::Error {
        faults::cut(self.place(), "the data of a file")
    }

    /// The next bytes; none only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(size) = self.cipher.as_ref().map(Cipher::block) else { return self.read_stored(buffer) };
        if !self.left.is_empty() {
            let count = self.left.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.left[..count]);
            self.left.drain(..count);
            return Ok(count);
        }
        let whole = buffer.len() / size * size;
        if whole > 0 {
            return self.read_blocks(&mut buffer[..whole], size);
        }
        let mut block = [0; BLOCK];
        let read = self.read_blocks(&mut block, size)?;
        let count = read.min(buffer.len());
        buffer[..count].copy_from_slice(&block[..count]);
        self.left = block[count..read].to_vec();
        Ok(count)
    }

    /// Decrypts as many whole blocks of that `size` as there are.
    fn read_blocks(&mut self, buffer: &mut [u8], size: usize) -> io::Result<usize> {
        let mut filled = 0;
        // A block may lie in two volumes.
        loop {
            let read = self.read_stored(&mut buffer[filled..])?;
            filled += read;
            if read == 0 || filled.is_multiple_of(size) {
                break;
            }
        }
        let whole = filled / size * size;
        if whole < filled {
            return Err(self.cut());
        }
        if let Some(cipher) = &mut self.cipher {
            cipher.undo(&mut buffer[..whole]);
        }
        Ok(whole)
    }

    fn read_stored(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(&(start, length)) = self.runs.get(self.run) {
            let left = usize::try_from(length.saturating_sub(self.inside)).unwrap_or(usize::MAX);
            if left == 0 {
                (self.run, self.inside) = (self.run + 1, 0);
                continue;
            }
            let wanted = left.min(buffer.len());
            let read = self.source.read_at(&mut buffer[..wanted], start.saturating_add(self.inside))?;
            if read == 0 && wanted > 0 {
                return Err(self.cut());
            }
            self.inside += read as u64;
            return Ok(read);
        }
        Ok(0)
    }
}
