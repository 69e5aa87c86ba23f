//! Parts of an image, and the descriptors in it.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::{damaged, is_damage};
use super::tag::{self, Tag};
use crate::image::Budget;
use crate::window::Window;

/// Bytes of the largest block.
pub(super) const LARGEST_BLOCK: u64 = 32 << 10;

/// What a descriptor counts for at least, whatever its tag says: the shortest entry has so many bytes.
pub(super) const OF_DESCRIPTOR: u64 = 176;

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
    /// block `location`. It is paid for, also if it is none: any number of names may lead to the same block.
    pub(super) fn descriptor(
        &mut self,
        (at, block): (u64, u64),
        kinds: &[u16],
        location: u32,
        budget: &mut Budget,
    ) -> io::Result<(Tag, Vec<u8>)> {
        if at >= self.length {
            return Err(damaged("it would lie behind the end of the image"));
        }
        budget.take_bytes(OF_DESCRIPTOR)?;
        let bytes = self.show(at, block)?;
        let read = tag::read(bytes);
        budget.take_bytes(tag::looked_at(read, bytes).saturating_sub(OF_DESCRIPTOR))?;
        let tag = tag::expect(read, kinds, location)?;
        Ok((tag, bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// Any number of names may lead to one block whose checksum, which covers all of it, is wrong.
    #[test]
    fn descriptors_are_paid_for_whatever_is_wrong_with_them() {
        let tag = |covered: u16, sum: u8| {
            let mut block = vec![7; 2048];
            block[..16].copy_from_slice(&[0; 16]);
            block[..2].copy_from_slice(&tag::FILE.to_le_bytes());
            block[10..12].copy_from_slice(&covered.to_le_bytes());
            block[4] = block[..16].iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
            block
        };
        let blocks = [tag(2000, 0), tag(0, 0), tag(2000, 1), vec![0; 2048]].concat();
        let (source, cancel) = (MemorySource::new(blocks, "image"), Cancel::default());
        let (mut image, mut budget) = (Image::new(&source, &cancel), Budget::new(0, 1));
        let mut paid = |number: u64| {
            let before = budget.bytes;
            let found = image.descriptor((number * 2048, 2048), &[tag::FILE], 0, &mut budget);
            (found.map_err(|error| error.to_string()).map(|(tag, _)| tag.kind), before - budget.bytes)
        };
        let wrong = |wrong: tag::Wrong| Err(wrong.words().to_owned());
        assert_eq!(paid(0), (wrong(tag::Wrong::Content), 2048));
        assert_eq!(paid(1), (Ok(tag::FILE), OF_DESCRIPTOR));
        assert_eq!(paid(2), (wrong(tag::Wrong::Tag), OF_DESCRIPTOR));
        assert_eq!(paid(3), (wrong(tag::Wrong::Nothing), OF_DESCRIPTOR));
        assert_eq!(paid(4).1, 0);
        budget.bytes = 1000;
        assert!(image.descriptor((0, 2048), &[tag::FILE], 0, &mut budget).is_err());
        assert!(image.descriptor((2048, 2048), &[tag::FILE], 0, &mut budget).is_ok());
    }
}
