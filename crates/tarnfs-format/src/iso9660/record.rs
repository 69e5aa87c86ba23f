//! Records of a folder's listing (ECMA-119, 9.1).

use super::bytes::{short_time, u32_at};
use crate::Time;

/// Bytes before a name.
const HEAD: usize = 33;

const IS_HIDDEN: u8 = 1;
const IS_FOLDER: u8 = 1 << 1;
const IS_ASSOCIATED: u8 = 1 << 2;
const GOES_ON: u8 = 1 << 7;

/// What a folder holds, or an extent of it.
#[derive(Debug)]
pub(super) struct Record<'b> {
    /// First block, which may hold attributes, and how many do.
    block: u32,
    attributes: u8,
    /// Bytes of the extent.
    pub(super) length: u64,
    pub(super) time: Option<Time>,
    flags: u8,
    /// Blocks of its content that lie together, and blocks between two such units; 0 for one that lies in one run.
    pub(super) unit: u8,
    pub(super) gap: u8,
    pub(super) name: &'b [u8],
    pub(super) system_use: &'b [u8],
}

impl<'b> Record<'b> {
    /// The one that `bytes` begin with, with all of it; `None` where it cannot be one.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (&length, _) = bytes.split_first()?;
        let bytes = bytes.get(..length.into())?;
        let name_length = usize::from(*bytes.get(32)?);
        let end = HEAD.saturating_add(name_length);
        let name = bytes.get(HEAD..end).filter(|name| !name.is_empty())?;
        // Behind a name of even length stands a byte, so that what follows begins at an even one.
        let system_use = end.saturating_add(usize::from(name_length.is_multiple_of(2)));
        Some(Self {
            block: u32_at(bytes, 2)?,
            attributes: *bytes.get(1)?,
            length: u32_at(bytes, 10)?.into(),
            time: bytes.get(18..25).and_then(short_time),
            flags: *bytes.get(25)?,
            unit: *bytes.get(26)?,
            gap: *bytes.get(27)?,
            name,
            system_use: bytes.get(system_use..).unwrap_or_default(),
        })
    }

    /// The block in which its content begins.
    pub(super) fn start(&self) -> u64 {
        u64::from(self.block).saturating_add(self.attributes.into())
    }

    pub(super) fn is_folder(&self) -> bool {
        self.flags & IS_FOLDER != 0
    }

    /// It is not shown by the systems that look at this.
    pub(super) fn is_hidden(&self) -> bool {
        self.flags & IS_HIDDEN != 0
    }

    /// Something of another system that goes with the file of the same name.
    pub(super) fn is_associated(&self) -> bool {
        self.flags & IS_ASSOCIATED != 0
    }

    /// True if the next record is a further extent of the same file.
    pub(super) fn goes_on(&self) -> bool {
        self.flags & GOES_ON != 0
    }

    /// True of the folder itself, and of the one that it is in.
    pub(super) fn is_self_or_parent(&self) -> bool {
        matches!(self.name, [0 | 1])
    }
}
