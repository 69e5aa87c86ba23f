//! File entries, and extended ones (ECMA-167, 4/14.9 and 4/14.17): what an inode is elsewhere.

use std::ops::Range;

use super::bytes::{Place, TIME, long_place, time, u16_at, u32_at, u64_at};
use super::tag;
use crate::Time;

/// What a file is (ECMA-167, 4/14.6.6; UDF 2.3.5.2).
pub(super) mod kind {
    pub(in super::super) const UNSPECIFIED: u8 = 0;
    pub(in super::super) const FOLDER: u8 = 4;
    pub(in super::super) const FILE: u8 = 5;
    pub(in super::super) const BLOCK_DEVICE: u8 = 6;
    pub(in super::super) const CHARACTER_DEVICE: u8 = 7;
    pub(in super::super) const FIFO: u8 = 9;
    pub(in super::super) const SOCKET: u8 = 10;
    pub(in super::super) const LINK: u8 = 12;
    pub(in super::super) const STREAMS: u8 = 13;
    pub(in super::super) const TABLE: u8 = 248;
    pub(in super::super) const REAL_TIME: u8 = 249;
}

/// How the content of a file is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Extents in the partition of the entry.
    Short,
    Long,
    /// With a length before and behind a compression that UDF does not have.
    Extended,
    /// It stands in the place of the descriptors.
    Inside,
}

/// The entry of a file.
#[derive(Debug, Clone)]
pub(super) struct FileEntry {
    /// Where it lies.
    pub(super) place: Place,
    pub(super) at: u64,
    /// The strategy with which it is replaced by newer ones.
    pub(super) strategy: u16,
    pub(super) kind: u8,
    pub(super) form: Form,
    flags: u16,
    uid: u32,
    gid: u32,
    permissions: u32,
    /// Names that it has.
    pub(super) links: u16,
    pub(super) length: u64,
    pub(super) atime: Option<Time>,
    pub(super) mtime: Option<Time>,
    pub(super) ctime: Option<Time>,
    /// Extended attributes that lie elsewhere, and streams beside its content.
    pub(super) attributes_at: Option<Place>,
    pub(super) streams_at: Option<Place>,
    /// Where in the block of the entry extended attributes and allocation descriptors stand.
    pub(super) attributes: Range<usize>,
    pub(super) allocation: Range<usize>,
}

/// An owner or group that was not told (UDF 2.3.6.1).
const NOBODY: u32 = u32::MAX;

impl FileEntry {
    /// Of the block `bytes`, in which a descriptor of one of both kinds stands.
    pub(super) fn parse(bytes: &[u8], descriptor: u16, (place, at): (Place, u64)) -> Option<Self> {
        let is_extended = descriptor == tag::EXTENDED_FILE;
        let long = |at: usize| u32_at(bytes, at);
        // Times, what lies elsewhere, and the lengths of what comes behind.
        let (times, elsewhere, lengths) =
            if is_extended { ([80, 92, 116], (136, Some(152)), 208) } else { ([72, 84, 96], (112, None), 168) };
        let [atime, mtime, ctime] = times.map(|at: usize| bytes.get(at..at.saturating_add(TIME)).and_then(time));
        let start = usize::checked_add(lengths, 8)?;
        let middle = start.checked_add(long(lengths)? as usize)?;
        let end = middle.checked_add(long(lengths.checked_add(4)?)? as usize)?;
        bytes.get(..end)?;
        let lies = |at: usize| long_place(bytes, at).filter(|(length, _)| length << 2 != 0).map(|(_, place)| place);
        let flags = u16_at(bytes, 34)?;
        Some(Self {
            place,
            at,
            strategy: u16_at(bytes, 20)?,
            kind: *bytes.get(27)?,
            form: match flags & 7 {
                0 => Form::Short,
                1 => Form::Long,
                2 => Form::Extended,
                3 => Form::Inside,
                _ => return None,
            },
            flags,
            uid: long(36)?,
            gid: long(40)?,
            permissions: long(44)?,
            links: u16_at(bytes, 48)?,
            length: u64_at(bytes, 56)?,
            atime,
            mtime,
            ctime,
            attributes_at: lies(elsewhere.0),
            streams_at: elsewhere.1.and_then(lies),
            attributes: start..middle,
            allocation: middle..end,
        })
    }

    /// Permission bits. UDF has five for each, of which change and delete have no other place.
    pub(super) fn mode(&self) -> u32 {
        let bits = self.permissions;
        let special = [(6, 0o4000), (7, 0o2000), (8, 0o1000)];
        let special = special.iter().filter(|(bit, _)| self.flags >> bit & 1 != 0);
        bits & 7 | bits >> 2 & 0o70 | bits >> 4 & 0o700 | special.fold(0, |sum, (_, bit)| sum | bit)
    }

    /// False if neither an owner nor a group was told.
    pub(super) fn has_owner(&self) -> bool {
        self.uid != NOBODY || self.gid != NOBODY
    }

    /// Owner and group; those that were not told are root's.
    pub(super) fn owner(&self) -> (u64, u64) {
        let of = |id: u32| if id == NOBODY { 0 } else { id.into() };
        (of(self.uid), of(self.gid))
    }
}
