//! Parts of an image, and the descriptors in it.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::{damaged, is_damage};
use super::tag::{self, Tag};
use crate::window::Window;

/// Bytes of the largest block.
pub(super) const LARGEST_BLOCK: u64 = 32 << 10;

/// Reads an image. Descriptors and listings lie apart from each other, so each have a window.
#[derive(Debug)]
pub(super) struct Image<'s> {
    descriptors: Window<'s>,
    content: Window<'s>,
    pub(super) length: u64,
}

impl<'s> Image<'s> {
    pub(super) fn new(source: &'s dyn Source, cancel: &'s Cancel) -> Self {
        let [descriptors, content] = [(); 2].map(|()| Window::growing(source).until(cancel));
        Self { descriptors, content, length: source.len() }
    }

    /// Up to `length` bytes from byte `at` on; fewer where the image ends.
    pub(super) fn show(&mut self, at: u64, length: u64) -> io::Result<&[u8]> {
        self.descriptors.bytes(at, u64::MAX, length.min(LARGEST_BLOCK) as usize)
    }

    /// The block of so many bytes at byte `at`, with what lies before it: who asks for that next has it. Nothing where
    /// it cannot be decoded.
    pub(super) fn block_before(&mut self, (at, block): (u64, u64)) -> io::Result<&[u8]> {
        let start = at.saturating_sub(LARGEST_BLOCK.saturating_sub(block));
        let length = at.saturating_sub(start).saturating_add(block);
        if !self.descriptors.has(at, block as usize) {
            // Where some of it is damaged, the block may not be.
            match self.show(start, length) {
                Err(error) if !is_damage(&error) => return Err(error),
                _ => {}
            }
        }
        match self.show(at, block) {
            Err(error) if is_damage(&error) => Ok(&[]),
            shown => shown,
        }
    }

    /// What shows the content of files.
    pub(super) fn content(&mut self) -> &mut Window<'s> {
        &mut self.content
    }

    /// The descriptor of one of these `kinds` that lies in a block of so many bytes at byte `at`, and says that this is
    /// block `location`.
    pub(super) fn descriptor(
        &mut self,
        (at, block): (u64, u64),
        kinds: &[u16],
        location: u32,
    ) -> io::Result<(Tag, Vec<u8>)> {
        if at >= self.length {
            return Err(damaged("it would lie behind the end of the image"));
        }
        let bytes = self.show(at, block)?;
        let tag = tag::expect(bytes, kinds, location)?;
        Ok((tag, bytes.to_vec()))
    }
}
