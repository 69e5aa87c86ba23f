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
use crate::image::{Budget, damaged, is_damage};
use crate::window::Window;
use crate::{Coder, Decode, Piece, Step};

/// Bytes that are read at once.
const AT_ONCE: u64 = 32 << 10;

/// Blocks that are kept when they were decoded, and bytes of one: more are no block.
const KEPT: usize = 8;
pub(super) const LONGEST_BLOCK: u64 = 16 << 20;

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
    blocks: VecDeque<Block>,
    coders: Vec<Option<Arc<Coder>>>,
    /// What is in the inode of fragments, or why nothing is.
    fragments: Option<Result<Rc<Content>, String>>,
}

impl<'s> Volume<'s> {
    pub(super) fn new(source: &'s dyn Source, superblock: Superblock, decode: &'s Decode, cancel: &'s Cancel) -> Self {
        let [inodes, behind, content] = [(); 3].map(|()| Window::growing(source).until(cancel));
        let (blocks, coders, fragments) = (VecDeque::new(), vec![None; CODERS.len()], None);
        Self { source, superblock, decode, cancel, inodes, behind, content, blocks, coders, fragments }
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
        if let Some((_, known)) = self.blocks.iter().find(|(known, _)| *known == key) {
            return Ok(Rc::clone(known));
        }
        self.cancel.check()?;
        let Some(coder) = &piece.coder else { return Err(damaged("a block that is not packed")) };
        let mut stored = vec![0; piece.stored.min(LONGEST_BLOCK) as usize];
        self.source.read_exact_at(&mut stored, piece.offset)?;
        let mut decoded = vec![0; piece.decoded.min(LONGEST_BLOCK) as usize];
        let length = self.decode.block(coder, &stored, &mut decoded)?;
        decoded.truncate(length);
        let block: Rc<[u8]> = decoded.into();
        self.blocks.truncate(KEPT.saturating_sub(1));
        self.blocks.push_front((key, Rc::clone(&block)));
        Ok(block)
    }
}
