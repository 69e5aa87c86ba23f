//! What a header says of the archive's bytes: which folders they are, and which files come out of each.
//!
//! The header keeps each kind of number in a column of its own. Nothing is copied out of it: once it is known where
//! each column begins, the columns are read side by side, a folder and a file at a time.

use super::bytes::{Broken, Bytes, Column, inside};
use super::folder::Folder;
use super::property as id;

/// Folders and files of an archive, or of its header.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams<'h> {
    /// From the end of the archive's start: where the bytes of the next folder begin.
    offset: u64,
    packed_sizes: Bytes<'h>,
    packed_left: usize,
    definitions: Bytes<'h>,
    folders_left: usize,
    sizes: Bytes<'h>,
    crcs: Option<Column<'h, 4>>,
    /// Of files in each folder; one each where there is none.
    counts: Option<Bytes<'h>>,
    file_sizes: Bytes<'h>,
    file_crcs: Option<Column<'h, 4>>,
    block: Block<'h>,
    files_left: usize,
    /// Bytes that come out of the folder and of which no file has told yet.
    bytes_left: u64,
}

/// The folder that the last file was in.
#[derive(Debug, Clone, Default)]
pub(super) struct Block<'h> {
    pub(super) folder: Folder<'h>,
    /// From the end of the archive's start.
    pub(super) offset: u64,
    /// Bytes that all its streams take, one behind the other.
    pub(super) stored: u64,
    /// Bytes that each of its streams takes.
    pub(super) packed_sizes: Vec<u64>,
    /// Bytes that each output gives.
    pub(super) sizes: Vec<u64>,
    /// Bytes that come out at the end.
    pub(super) decoded: u64,
    /// Of what comes out at the end, if it is one file.
    crc: Option<u32>,
}

/// A file as a part of what comes out of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) skip: u64,
    pub(super) length: u64,
    pub(super) crc: Option<u32>,
}

impl<'h> Streams<'h> {
    pub(super) fn read(bytes: &mut Bytes<'h>) -> Result<Self, Broken> {
        let mut streams = Self::default();
        let mut last = id::END;
        loop {
            let at = *bytes;
            let section = bytes.number()?;
            match section {
                id::END => return Ok(streams),
                _ if section <= last => return Err(at.broken("its parts are not in order")),
                id::PACK_INFO => streams.read_packed(bytes)?,
                id::UNPACK_INFO => streams.read_folders(bytes)?,
                id::SUBSTREAMS_INFO => streams.read_files(bytes)?,
                _ => return Err(at.broken("a part that is not known")),
            }
            last = section;
        }
    }

    fn read_packed(&mut self, bytes: &mut Bytes<'h>) -> Result<(), Broken> {
        self.offset = bytes.number()?;
        self.packed_left = bytes.count()?;
        let mut seen = Seen::default();
        loop {
            match seen.once(bytes.number()?, bytes)? {
                id::END => return Ok(()),
                id::SIZE => {
                    self.packed_sizes = *bytes;
                    bytes.skip_numbers(self.packed_left)?;
                }
                // Of the packed bytes; those of the files say more.
                id::CRC => drop(Column::<4>::digests(bytes, self.packed_left)?),
                _ => bytes.skip_property()?,
            }
        }
    }

    fn read_folders(&mut self, bytes: &mut Bytes<'h>) -> Result<(), Broken> {
        let at = *bytes;
        if bytes.number()? != id::FOLDER {
            return Err(at.broken("folders are missing"));
        }
        self.folders_left = bytes.count()?;
        inside(bytes)?;
        self.definitions = *bytes;
        let mut outputs = 0_usize;
        for _ in 0..self.folders_left {
            self.block.folder.read(bytes)?;
            outputs = outputs.saturating_add(self.block.folder.outputs());
        }
        let mut seen = Seen::default();
        loop {
            match seen.once(bytes.number()?, bytes)? {
                id::END => return Ok(()),
                id::UNPACK_SIZE => {
                    self.sizes = *bytes;
                    bytes.skip_numbers(outputs)?;
                }
                id::CRC => self.crcs = Some(Column::digests(bytes, self.folders_left)?),
                _ => bytes.skip_property()?,
            }
        }
    }

    fn read_files(&mut self, bytes: &mut Bytes<'h>) -> Result<(), Broken> {
        let mut seen = Seen::default();
        loop {
            match seen.once(bytes.number()?, bytes)? {
                id::END => return Ok(()),
                id::FILES_IN_FOLDERS => {
                    self.counts = Some(*bytes);
                    bytes.skip_numbers(self.folders_left)?;
                }
                id::SIZE => {
                    self.file_sizes = *bytes;
                    let mut counts = self.counts;
                    for _ in 0..self.folders_left {
                        // The last one's follows from the folder's.
                        bytes.skip_numbers(next_count(&mut counts)?.saturating_sub(1))?;
                    }
                }
                id::CRC => {
                    let (mut counts, mut crcs) = (self.counts, self.crcs);
                    let mut unknown = 0_usize;
                    for _ in 0..self.folders_left {
                        let count = next_count(&mut counts)?;
                        let is_known = crcs.as_mut().and_then(Column::next).is_some();
                        unknown = unknown.saturating_add(if count == 1 && is_known { 0 } else { count });
                    }
                    self.file_crcs = Some(Column::digests(bytes, unknown)?);
                }
                _ => bytes.skip_property()?,
            }
        }
    }

    /// Bytes of all streams that are packed, before the first file is asked for.
    pub(super) fn packed(&self) -> Result<u64, Broken> {
        let mut sizes = self.packed_sizes;
        (0..self.packed_left).try_fold(0_u64, |sum, _| Ok(sum.saturating_add(sizes.number()?)))
    }

    /// The next file that has content, and the folder that it is in.
    pub(super) fn next_file(&mut self) -> Result<Option<(Part, &Block<'h>)>, Broken> {
        while self.files_left == 0 {
            if !self.next_folder()? {
                return Ok(None);
            }
        }
        self.files_left = self.files_left.saturating_sub(1);
        let at = self.file_sizes;
        let length = if self.files_left == 0 { self.bytes_left } else { self.file_sizes.number()? };
        let skip = self.block.decoded.saturating_sub(self.bytes_left);
        let left = self.bytes_left.checked_sub(length);
        self.bytes_left = left.ok_or(at.broken("the files of a folder are larger than the folder"))?;
        let of_folder = self.block.crc.filter(|_| skip == 0 && self.files_left == 0);
        let crc = of_folder.or_else(|| self.file_crcs.as_mut()?.next().map(u32::from_le_bytes));
        Ok(Some((Part { skip, length, crc }, &self.block)))
    }

    /// Moves on to the next folder; false if there is none.
    fn next_folder(&mut self) -> Result<bool, Broken> {
        let Some(folders_left) = self.folders_left.checked_sub(1) else { return Ok(false) };
        self.folders_left = folders_left;
        let block = &mut self.block;
        block.folder.read(&mut self.definitions)?;
        block.sizes.clear();
        for _ in 0..block.folder.outputs() {
            let at = self.sizes;
            let size = self.sizes.number()?;
            if i64::try_from(size).is_err() {
                return Err(at.broken("a folder is larger than any file can be"));
            }
            block.sizes.push(size);
        }
        let main = block.folder.main_output().and_then(|output| block.sizes.get(output).copied());
        block.decoded = main.ok_or(self.definitions.broken("a folder gives nothing"))?;
        block.crc = self.crcs.as_mut().and_then(Column::next).map(u32::from_le_bytes);
        (block.offset, block.stored) = (self.offset, 0);
        block.packed_sizes.clear();
        for _ in 0..block.folder.packed() {
            let at = self.packed_sizes;
            let left = self.packed_left.checked_sub(1);
            self.packed_left = left.ok_or(at.broken("folders have more streams than the archive"))?;
            let size = self.packed_sizes.number()?;
            block.packed_sizes.push(size);
            let end = self.offset.checked_add(size).filter(|end| i64::try_from(*end).is_ok());
            self.offset = end.ok_or(at.broken("a stream goes beyond any file"))?;
        }
        block.stored = self.offset.saturating_sub(block.offset);
        self.files_left = next_count(&mut self.counts)?;
        // Where the only file has the folder's checksum, the files' own do not repeat it; else the folder's is no use.
        block.crc = block.crc.filter(|_| self.files_left == 1);
        self.bytes_left = block.decoded;
        Ok(true)
    }
}

fn next_count(counts: &mut Option<Bytes<'_>>) -> Result<usize, Broken> {
    let Some(counts) = counts else { return Ok(1) };
    // More than any header can tell of ends where their sizes are read.
    counts.number().map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Streams<'_>, Broken> {
        let mut cursor = Bytes::new(bytes);
        let streams = Streams::read(&mut cursor)?;
        assert_eq!(cursor.left(), 0);
        Ok(streams)
    }

    fn all(bytes: &[u8]) -> Result<Vec<(u64, u64, u64, Part)>, Broken> {
        let mut streams = read(bytes)?;
        let mut parts = Vec::new();
        while let Some((part, block)) = streams.next_file()? {
            parts.push((block.offset, block.stored, block.decoded, part));
        }
        Ok(parts)
    }

    /// Three folders: of three files, of none, and of one that has the folder's checksum.
    const THREE: &[u8] = &[
        6,
        5,
        3,
        9,
        10,
        20,
        30,
        10,
        1,
        1,
        1,
        1,
        1,
        2,
        2,
        2,
        2,
        3,
        3,
        3,
        3,
        0,
        7,
        11,
        3,
        0,
        1,
        1,
        0,
        1,
        1,
        0,
        1,
        1,
        0,
        12,
        100,
        50,
        7,
        10,
        0,
        0b0010_0000,
        9,
        0,
        0,
        0,
        0,
        8,
        13,
        3,
        0,
        1,
        9,
        60,
        30,
        10,
        0,
        0b1010_0000,
        4,
        0,
        0,
        0,
        6,
        0,
        0,
        0,
        0,
        0,
    ];

    #[test]
    fn columns_are_read_side_by_side() {
        let part = |skip, length, crc| Part { skip, length, crc };
        let expected = vec![
            (5, 10, 100, part(0, 60, Some(4))),
            (5, 10, 100, part(60, 30, None)),
            (5, 10, 100, part(90, 10, Some(6))),
            (35, 30, 7, part(0, 7, Some(9))),
        ];
        assert_eq!(all(THREE), Ok(expected));
        for length in 0..THREE.len() {
            assert!(all(&THREE[..length]).is_err());
        }
        assert_eq!(all(&[0]), Ok(vec![]));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let change = |at: usize, from: u8, to: u8| {
            let mut bytes = THREE.to_vec();
            assert_eq!(std::mem::replace(&mut bytes[at], to), from);
            all(&bytes)
        };
        let is_refused = |result: Result<_, Broken>, what: &str| {
            assert!(result.as_ref().is_err_and(|broken| broken.what.contains(what)), "{result:?}");
        };
        is_refused(change(53, 60, 101), "larger than the folder");
        is_refused(change(0, 6, 20), "not known");
        is_refused(change(22, 7, 6), "not in order");
        is_refused(change(25, 0, 1), "in another stream");
        is_refused(change(23, 11, 12), "folders are missing");
    }
}

/// Ids of the properties that were there already. A header may repeat one millions of times, and each may cost a walk
/// over all folders.
#[derive(Debug, Default)]
struct Seen(u64);

impl Seen {
    fn once(&mut self, id: u64, bytes: &Bytes<'_>) -> Result<u64, Broken> {
        let bit = u32::try_from(id).ok().and_then(|id| 1_u64.checked_shl(id)).unwrap_or_default();
        if self.0 & bit != 0 {
            return Err(bytes.broken("a property is there twice"));
        }
        self.0 |= bit;
        Ok(id)
    }
}
