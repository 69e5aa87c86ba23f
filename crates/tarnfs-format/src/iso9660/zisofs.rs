//! Files that are compressed transparently: zisofs, and its second version, which has files of more than 4 GiB
//! (libisofs, doc/zisofs_format.txt and doc/zisofs2_format.txt).

use std::io;
use std::sync::Arc;

use tarnfs_source::Source;

use super::bytes::{u32_at, u64_at};
use crate::image::damaged;
use crate::{Coder, Piece, Step};

const MAGIC: [u8; 8] = [0x37, 0xe4, 0x53, 0x96, 0xc9, 0xdb, 0xd6, 0x07];
const MAGIC_2: [u8; 8] = [0xef, 0x22, 0x55, 0xa1, 0xbc, 0x1b, 0x95, 0xa0];

/// Blocks of one file: 64 MiB of memory. In blocks of 32 KiB that is a file of 32 GiB.
const MOST_BLOCKS: u64 = 1 << 20;

/// What a field says of a compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    /// Version of the format: 1 or 2.
    version: u8,
    /// Bytes of the header of the file.
    header: u64,
    /// Bytes of a block.
    block: u64,
    /// Bytes of the file.
    pub(super) size: u64,
}

impl Packed {
    /// Of a field "ZF"; `None` where it is of a kind that is not known.
    pub(super) fn parse(field: &[u8]) -> Option<Self> {
        let &[_, _, _, version, first, second, header, block, ..] = field else { return None };
        let size = match (version, &[first, second]) {
            (1, b"pz") => u32_at(field, 8)?.into(),
            (2, b"PZ") => u64_at(field, 8)?,
            _ => return None,
        };
        let is_possible = (12..=20).contains(&block) && i64::try_from(size).is_ok();
        is_possible.then(|| Self { version, header: u64::from(header).saturating_mul(4), block: 1 << block, size })
    }

    /// Blocks of the file, holes too.
    pub(super) fn blocks(self) -> u64 {
        self.size.div_ceil(self.block)
    }

    /// The pieces of the file, of which `length` bytes are stored from byte `start` of `source` on.
    pub(super) fn pieces(self, source: &dyn Source, start: u64, length: u64) -> io::Result<Vec<Piece>> {
        let mut magic = [0; 8];
        if length < self.header {
            return Err(damaged("it is shorter than its header"));
        }
        source.read_exact_at(&mut magic, start)?;
        if magic != if self.version == 1 { MAGIC } else { MAGIC_2 } {
            return Err(damaged("it does not begin as compressed files do"));
        }
        let count = self.blocks();
        let pointer = if self.version == 1 { 4_u64 } else { 8 };
        let table = count.saturating_add(1).saturating_mul(pointer);
        if count > MOST_BLOCKS || table.saturating_add(self.header) > length {
            return Err(damaged(format!("a table of {count} blocks does not fit into it")));
        }
        let mut bytes = vec![0; usize::try_from(table).unwrap_or(0)];
        source.read_exact_at(&mut bytes, start.saturating_add(self.header))?;
        let number = |at: usize| {
            let at = at.saturating_mul(pointer as usize);
            if self.version == 1 { u32_at(&bytes, at).map(u64::from) } else { u64_at(&bytes, at) }
        };
        let steps = vec![Step { codec: "zlib-block".to_owned(), ..Step::default() }];
        let coder = Arc::new(Coder { steps, is_behind_header: None });
        let (mut pieces, mut hole, mut left) = (Vec::new(), 0_u64, self.size);
        for block in 0..usize::try_from(count).unwrap_or(0) {
            let of_block = left.min(self.block);
            left = left.saturating_sub(of_block);
            let (from, to) = number(block).zip(number(block.saturating_add(1))).unwrap_or_default();
            if from > to || to > length || to.saturating_sub(from) > self.block.saturating_mul(2) {
                return Err(damaged(format!("block {block} of it would lie from byte {from} to byte {to}")));
            }
            if from == to {
                hole = hole.saturating_add(of_block);
                continue;
            }
            pieces.push(Piece {
                hole: std::mem::take(&mut hole),
                length: of_block,
                offset: start.saturating_add(from),
                stored: to.saturating_sub(from),
                coder: Some(Arc::clone(&coder)),
                decoded: of_block,
                ..Piece::default()
            });
        }
        Ok(pieces)
    }
}
