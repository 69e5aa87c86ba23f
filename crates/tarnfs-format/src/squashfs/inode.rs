//! What an inode says.

use std::io;

use super::metadata::{Metadata, Place};
use super::numbers::Fields;
use crate::image::damaged;
use crate::{Device, Kind};

/// Number of attributes that stands for none.
pub(super) const NO_XATTRS: u32 = u32::MAX;
/// Number of a fragment that stands for none.
const NO_FRAGMENT: u32 = u32::MAX;
/// Bytes of the target of a link (PATH_MAX of Linux).
const LONGEST_TARGET: u32 = 4096;

/// The end of a file that shares a block with those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Number of the block.
    pub(super) number: u32,
    /// Where in there it begins, once that is decoded.
    pub(super) skip: u32,
}

/// Where the listing of a folder is, as its inode tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// The reference to its start, in the table of listings.
    pub(super) reference: u64,
    /// Bytes that it has, and some that are not stored.
    pub(super) length: u32,
}

impl Names {
    fn new(block: u32, byte: u16, length: u32) -> Self {
        Self { reference: u64::from(block) << 16 | u64::from(byte), length }
    }
}

/// What is in an inode beside what all have.
#[derive(Debug)]
pub(super) enum Content {
    Folder(Names),
    File {
        /// Byte of the image at which its blocks begin.
        start: u64,
        size: u64,
        fragment: Option<Fragment>,
        /// Where the lengths of its blocks stand.
        blocks: Place,
    },
    Link(Vec<u8>),
    Other(Kind),
}

/// One inode.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) mode: u16,
    /// Numbers of the owner and the group in the table of ids.
    pub(super) owner: u16,
    pub(super) group: u16,
    pub(super) time: u32,
    /// Names that it has; 1 where that is not told.
    pub(super) links: u32,
    pub(super) xattrs: u32,
    pub(super) content: Content,
    /// Where it ends, but for the lengths of its blocks.
    pub(super) end: Place,
}

impl Inode {
    /// The one at `place`.
    pub(super) fn read(metadata: &mut Metadata<'_>, mut place: Place) -> io::Result<Self> {
        let at = &mut place;
        let head = metadata.array::<16>(at)?;
        let mut fields = Fields(&head);
        let (kind, mode, owner, group) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
        let time = fields.u32()?;
        let (mut links, mut xattrs) = (1, NO_XATTRS);
        let content = match kind {
            1 => {
                let bytes = metadata.array::<16>(at)?;
                let mut fields = Fields(&bytes);
                let (block, _links) = (fields.u32()?, fields.u32()?);
                let (listing, byte) = (fields.u16()?, fields.u16()?);
                Content::Folder(Names::new(block, byte, listing.into()))
            }
            2 => {
                let bytes = metadata.array::<16>(at)?;
                let mut fields = Fields(&bytes);
                let start = fields.u32()?.into();
                let fragment = fragment(&mut fields)?;
                Content::File { start, size: fields.u32()?.into(), fragment, blocks: *at }
            }
            8 => {
                let bytes = metadata.array::<24>(at)?;
                let mut fields = Fields(&bytes);
                let (_links, listing, block, _parent) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
                let (_index, byte) = (fields.u16()?, fields.u16()?);
                xattrs = fields.u32()?;
                Content::Folder(Names::new(block, byte, listing))
            }
            9 => {
                let bytes = metadata.array::<40>(at)?;
                let mut fields = Fields(&bytes);
                let (start, size, _sparse) = (fields.u64()?, fields.u64()?, fields.u64()?);
                links = fields.u32()?;
                let fragment = fragment(&mut fields)?;
                xattrs = fields.u32()?;
                Content::File { start, size, fragment, blocks: *at }
            }
            3 | 10 => {
                let bytes = metadata.array::<8>(at)?;
                let mut fields = Fields(&bytes);
                links = fields.u32()?;
                let length = fields.u32()?;
                if length > LONGEST_TARGET {
                    return Err(damaged(format!("the target of the link would have {length} bytes")));
                }
                let mut target = vec![0; length as usize];
                metadata.read(at, &mut target)?;
                if kind == 10 {
                    xattrs = u32::from_le_bytes(metadata.array(at)?);
                }
                Content::Link(target)
            }
            4..=7 | 11..=14 => {
                links = u32::from_le_bytes(metadata.array(at)?);
                let device = match kind {
                    4 | 5 | 11 | 12 => device(u32::from_le_bytes(metadata.array(at)?)),
                    _ => Device::default(),
                };
                if kind > 7 {
                    xattrs = u32::from_le_bytes(metadata.array(at)?);
                }
                Content::Other(match kind {
                    4 | 11 => Kind::BlockDevice(device),
                    5 | 12 => Kind::CharacterDevice(device),
                    6 | 13 => Kind::Fifo,
                    _ => Kind::Socket,
                })
            }
            kind => return Err(damaged(format!("its inode is of kind {kind}, which there is not"))),
        };
        Ok(Self { mode, owner, group, time, links, xattrs, content, end: place })
    }
}

fn fragment(fields: &mut Fields<'_>) -> io::Result<Option<Fragment>> {
    let (number, skip) = (fields.u32()?, fields.u32()?);
    Ok((number != NO_FRAGMENT).then_some(Fragment { number, skip }))
}

/// As the kernel packs its numbers: 12 bits for the driver, between 8 and 12 bits for the device.
fn device(number: u32) -> Device {
    Device { major: number >> 8 & 0xfff, minor: number & 0xff | number >> 12 & 0xf_ff00 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_are_those_of_the_kernel() {
        assert_eq!(device(0x0000_0801), Device { major: 8, minor: 1 });
        assert_eq!(device(0x1230_0456), Device { major: 4, minor: 0x1_2356 });
    }
}
