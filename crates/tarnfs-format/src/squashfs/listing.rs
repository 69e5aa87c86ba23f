//! What a folder holds: names, and where their inodes are.

use std::io;

use super::metadata::{Metadata, Place};
use super::numbers::Fields;
use crate::image::damaged;

/// Bytes that an inode counts for "." and "..", which are not stored.
const NOT_STORED: u32 = 3;
/// Names behind one header.
const MOST: u32 = 256;
/// Bytes of a header, and of what stands before a name.
const HEADER: u32 = 12;
const HEAD: u32 = 8;

/// A name, and the reference to its inode.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Vec<u8>,
    pub(super) inode: u64,
}

/// A listing that is being read.
#[derive(Debug)]
pub(super) struct Listing {
    place: Place,
    /// Bytes that are left of it.
    left: u32,
    /// Names behind the last header that are still to come, and the block of their inodes.
    following: u32,
    block: u32,
}

impl Listing {
    /// The one at `place`, of which an inode says that it has `length` bytes.
    pub(super) fn new(place: Place, length: u32) -> Self {
        Self { place, left: length.saturating_sub(NOT_STORED), following: 0, block: 0 }
    }

    /// True if no names are in it.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Where it goes on.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The next name; `None` at the end.
    pub(super) fn next(&mut self, metadata: &mut Metadata<'_>) -> io::Result<Option<Named>> {
        if self.following == 0 {
            if self.left == 0 {
                return Ok(None);
            }
            self.take(HEADER)?;
            let header = metadata.array::<{ HEADER as usize }>(&mut self.place)?;
            let mut fields = Fields(&header);
            // One less than there are.
            let (count, block) = (fields.u32()?, fields.u32()?);
            if count >= MOST {
                return Err(damaged(format!(
                    "a header in it would have {} names behind it",
                    u64::from(count).saturating_add(1)
                )));
            }
            (self.following, self.block) = (count.saturating_add(1), block);
        }
        self.take(HEAD)?;
        let head = metadata.array::<{ HEAD as usize }>(&mut self.place)?;
        let mut fields = Fields(&head);
        let (byte, _number, _kind, length) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
        let length = u32::from(length).saturating_add(1);
        if length > MOST {
            return Err(damaged(format!("a name in it would have {length} bytes")));
        }
        self.take(length)?;
        let mut name = vec![0; length as usize];
        metadata.read(&mut self.place, &mut name)?;
        self.following = self.following.saturating_sub(1);
        Ok(Some(Named { name, inode: u64::from(self.block) << 16 | u64::from(byte) }))
    }

    fn take(&mut self, bytes: u32) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| damaged("it ends in the middle of a name"))?;
        Ok(())
    }
}
