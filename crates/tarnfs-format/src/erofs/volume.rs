//! Reads inodes, and what is in files.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tarnfs_source::{Cancel, Source};

use super::content;
use super::inode::{Inode, LONG};
use super::superblock::{Superblock, incompatible};
use crate::content::Content;
use crate::image::{Budget, Quota, damaged, is_damage};
use crate::window::Window;
use crate::{Coder, Decode, Piece, Step};

/// Bytes that are read at once.
const AT_ONCE: u64 = 32 << 10;

/// Blocks that are kept when they were decoded, and bytes of all of these; the last one is kept, whatever it has.
const KEPT: usize = 8;
const MOST_KEPT: usize = 16 << 20;
/// Bytes of one: more are no block.
pub(super) const LONGEST_BLOCK: u64 = 16 << 20;

/// Bytes that may be decoded to list what is in an image, and so many more for each byte of it. Any number of targets
/// and listings may lie in different blocks, in turn, each of which is decoded whole for a few bytes.
const TO_DECODE: Quota = Quota { most: 64 << 20, least: 16 << 20, of_small: 1024 };
const DECODED_FOR_EACH_BYTE: u64 = 128;

/// The coders, by their numbers.
const CODERS: [&str; 4] = ["lz4-behind-zeros", "microlzma-behind-zeros", "deflate-behind-zeros", "zstd-behind-zeros"];
/// The first one where data stand in front.
const OLD_CODER: &str = "lz4-in-part";

/// What was decoded of which piece: offset, stored and decoded bytes.
type Block = ((u64, u64, u64), Rc<[u8]>);

/// An image.
pub(super) struct Volume<'s> {
    pub(super) source: &'s dyn Source,
    pub(super) superblock: Superblock,
    decode: &'s Decode,
    cancel: &'s Cancel,
    /// For inodes, for what follows them, and for content.
    inodes: Window<'s>,
    behind: Window<'s>,
    content: Window<'s>,
    /// What was decoded, the last one that was used in front.
    blocks: VecDeque<Block>,
    to_decode: u64,
    coders: Vec<Option<Arc<Coder>>>,
    /// What is in the inode of fragments, or why nothing is.
    fragments: Option<Result<Rc<Content>, String>>,
}

impl<'s> Volume<'s> {
    /// Of an image with `data` bytes that are no holes, one of so many `shares`.
    pub(super) fn new(
        source: &'s dyn Source,
        superblock: Superblock,
        (decode, cancel): (&'s Decode, &'s Cancel),
        (data, shares): (u64, u64),
    ) -> Self {
        let of_bytes = data.saturating_mul(DECODED_FOR_EACH_BYTE);
        let to_decode = TO_DECODE.of(data, shares).saturating_add(of_bytes);
        let [inodes, behind, content] = [(); 3].map(|()| Window::growing(source).until(cancel));
        let (blocks, coders, fragments) = (VecDeque::new(), vec![None; CODERS.len()], None);
        Self { source, superblock, decode, cancel, inodes, behind, content, blocks, to_decode, coders, fragments }
    }

    pub(super) fn there(&self) -> u64 {
        self.source.len()
    }

    pub(super) fn inode(&mut self, number: u64) -> io::Result<Inode> {
        let at = self.superblock.inode(number).filter(|at| *at < self.source.len());
        let at = at.ok_or_else(|| damaged(format!("inode {number} would lie behind the end of the image")))?;
        let bytes = self.inodes.bytes(at, u64::MAX, LONG)?;
        let length = bytes.first().map_or(LONG, |first| Inode::length_of(*first));
        let found = bytes.get(..length).and_then(|bytes| Inode::parse(at, bytes, &self.superblock));
        found.ok_or_else(|| damaged(format!("inode {number} is none")))
    }

    /// `length` bytes of what follows an inode, no more than a window reads at once.
    pub(super) fn behind(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let bytes = self.behind.bytes(at, u64::MAX, length)?;
        if bytes.len() < length {
            return Err(damaged(format!("what follows an inode, at byte {at}, lies behind the end of the image")));
        }
        Ok(bytes)
    }

    /// The coder of that number, if it is known.
    pub(super) fn coder(&mut self, number: u8) -> Option<Arc<Coder>> {
        let name = *CODERS.get(usize::from(number))?;
        let has_zeros = self.superblock.incompatible & incompatible::ZEROS_IN_FRONT != 0;
        let name = if number == 0 && !has_zeros { OLD_CODER } else { name };
        let known = self.coders.get_mut(usize::from(number))?;
        let coder = known.get_or_insert_with(|| {
            let step = Step { codec: name.to_owned(), ..Step::default() };
            Arc::new(Coder { steps: vec![step], is_behind_header: None })
        });
        Some(Arc::clone(coder))
    }

    /// What is in the inode of fragments.
    pub(super) fn fragments(&mut self, budget: &mut Budget) -> io::Result<Rc<Content>> {
        if self.fragments.is_none() {
            let number = self.superblock.fragments;
            let found = if number == 0 {
                Err(damaged("the image has no fragments"))
            } else {
                self.inode(number).and_then(|inode| content::content(self, &inode, budget, true))
            };
            self.fragments = Some(match found {
                Ok(content) => Ok(Rc::new(content)),
                Err(error) if is_damage(&error) => Err(error.to_string()),
                Err(error) => return Err(error),
            });
        }
        match &self.fragments {
            Some(Ok(content)) => Ok(Rc::clone(content)),
            Some(Err(what)) => Err(damaged(format!("fragments cannot be read: {what}"))),
            None => Err(damaged("the image has no fragments")),
        }
    }

    /// Puts up to `length` bytes of `content` from byte `at` on into `buffer`: fewer where it ends.
    pub(super) fn read(&mut self, content: &Content, at: u64, length: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        let end = at.saturating_add(length).min(content.size);
        let mut at = at;
        while at < end {
            let left = end.saturating_sub(at);
            let there = match content.at(at) {
                Err(hole) => {
                    let there = left.min(hole);
                    buffer.resize(buffer.len().saturating_add(there as usize), 0);
                    there
                }
                Ok((Piece { coder: None, offset, length, .. }, inside)) => {
                    let wanted = left.min(length.saturating_sub(inside)).min(AT_ONCE);
                    let bytes = self.content.bytes(offset.saturating_add(inside), u64::MAX, wanted as usize)?;
                    if bytes.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    buffer.extend_from_slice(bytes);
                    bytes.len() as u64
                }
                Ok((Piece { stored: 0, .. }, _)) => {
                    return Err(damaged(content.missing.clone().unwrap_or_default()));
                }
                Ok((piece, inside)) => {
                    let there = left.min(piece.length.saturating_sub(inside));
                    let from = piece.skip.saturating_add(inside);
                    let block = self.block(piece)?;
                    let bytes = block.get(from as usize..from.saturating_add(there) as usize);
                    buffer.extend_from_slice(bytes.ok_or_else(|| damaged("a packed block is too short"))?);
                    there
                }
            };
            at = at.saturating_add(there);
        }
        Ok(())
    }

    fn block(&mut self, piece: &Piece) -> io::Result<Rc<[u8]>> {
        let key = (piece.offset, piece.stored, piece.decoded);
        if let Some(at) = self.blocks.iter().position(|(known, _)| *known == key)
            && let Some(known) = self.blocks.remove(at)
        {
            let block = Rc::clone(&known.1);
            self.blocks.push_front(known);
            return Ok(block);
        }
        self.cancel.check()?;
        let Some(coder) = &piece.coder else { return Err(damaged("a block that is not packed")) };
        let lengths = [piece.stored, piece.decoded].map(|length| length.min(LONGEST_BLOCK));
        let left = self.to_decode.checked_sub(lengths.iter().sum());
        self.to_decode =
            left.ok_or_else(|| damaged("packed blocks are decoded too often to list what is in the image"))?;
        let [mut stored, mut decoded] = lengths.map(|length| vec![0; length as usize]);
        self.source.read_exact_at(&mut stored, piece.offset)?;
        let length = self.decode.block(coder, &stored, &mut decoded)?;
        decoded.truncate(length);
        let block: Rc<[u8]> = decoded.into();
        self.blocks.push_front((key, Rc::clone(&block)));
        let mut bytes = 0_usize;
        let kept = self.blocks.iter().take(KEPT).take_while(|(_, block)| {
            bytes = bytes.saturating_add(block.len());
            bytes <= MOST_KEPT
        });
        let kept = kept.count().max(1);
        self.blocks.truncate(kept);
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tarnfs_source::MemorySource;

    use super::super::superblock;
    use super::*;

    const LENGTH: usize = 64 << 10;

    /// An image in which something may be packed in each byte, one of so many; and how many were decoded of those that
    /// `reads` lead to, and what was wrong. Each makes `decoded` bytes.
    fn decoded(shares: u64, decoded: u64, reads: &[u64]) -> (u64, usize, Vec<String>) {
        let mut image = vec![0; LENGTH];
        for (at, number) in [(0, 0xe0f5_e1e2_u32), (36, 16), (40, 1)] {
            image[1024 + at..1028 + at].copy_from_slice(&number.to_le_bytes());
        }
        image[1024 + 12] = 12;
        let superblock = superblock::find(&|at, length| image[at as usize..at as usize + length].to_vec()).unwrap();
        let source = MemorySource::new(image, "image");
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let decode = Decode::default().with_blocks(move |_, _, block| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(block.len())
        });
        let cancel = Cancel::default();
        let mut volume = Volume::new(&source, superblock, (&decode, &cancel), (LENGTH as u64, shares));
        let (mut wrong, mut bytes) = (Vec::new(), Vec::new());
        for offset in reads {
            let mut content = Content::new(decoded);
            let coder = volume.coder(0);
            content.add_packed(Piece {
                length: decoded,
                offset: *offset,
                stored: 4,
                decoded,
                coder,
                ..Piece::default()
            });
            match volume.read(&content, 5, 10, &mut bytes) {
                Ok(()) => assert_eq!(bytes.len(), 10),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        (count.load(Ordering::Relaxed), volume.blocks.len(), wrong)
    }

    /// Thousands of links may have their targets in a dozen of packed blocks, in turn.
    #[test]
    fn what_is_decoded_again_and_again_is_paid_for() {
        let reads: Vec<_> = (0..100).map(|number| number % 12).collect();
        let (count, _, wrong) = decoded(u64::MAX, 1 << 20, &reads);
        // 128 bytes for each of the image. Those that are kept cost nothing.
        assert_eq!((count, wrong.len()), (7, 40));
        assert!(wrong.iter().all(|what| what.contains("decoded too often")), "{:?}", wrong.first());
        let (count, _, wrong) = decoded(1, 1 << 20, &reads[..60]);
        assert_eq!((count, wrong), (60, Vec::new()));
    }

    #[test]
    fn blocks_that_were_used_last_are_kept_and_few_bytes_of_them() {
        // The first is asked for so often that it stays.
        let reads: Vec<_> = (1..50).flat_map(|number| [0, number]).collect();
        assert_eq!(decoded(1, 4096, &reads), (50, KEPT, Vec::new()));
        assert_eq!(decoded(1, 6 << 20, &[1, 2, 3, 2]), (3, 2, Vec::new()));
        assert_eq!(decoded(1, LONGEST_BLOCK, &[1, 1]), (1, 1, Vec::new()));
    }
}
