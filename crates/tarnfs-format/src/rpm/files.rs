//! What the header of a package says of its files: a value of each tag for each file.

use std::cell::Cell;
use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::header::{Header, LONGEST, Numbers, Strings};
use crate::{Device, Kind, Time};

/// Bytes of all paths that are told, and so many more for each byte of the header: any number of files may lie in one
/// folder that has a long name.
const MOST_OF_PATHS: u64 = 256 << 20;
const FOR_EACH_BYTE: u64 = 4;

/// Tags, as RPM numbers them (`rpmtag.h`).
mod tag {
    pub(super) const OLD_FILE_NAMES: u32 = 1027;
    pub(super) const FILE_SIZES: u32 = 1028;
    pub(super) const FILE_MODES: u32 = 1030;
    pub(super) const FILE_DEVICE_NUMBERS: u32 = 1033;
    pub(super) const FILE_TIMES: u32 = 1034;
    pub(super) const FILE_LINKS: u32 = 1036;
    pub(super) const FILE_FLAGS: u32 = 1037;
    pub(super) const FILE_USERS: u32 = 1039;
    pub(super) const FILE_GROUPS: u32 = 1040;
    pub(super) const FILE_DEVICES: u32 = 1095;
    pub(super) const FILE_INODES: u32 = 1096;
    pub(super) const FOLDER_NUMBERS: u32 = 1116;
    pub(super) const BASE_NAMES: u32 = 1117;
    pub(super) const FOLDERS: u32 = 1118;
    pub(super) const LONG_FILE_SIZES: u32 = 5008;
}

/// The flag of files that are not in the payload (`RPMFILE_GHOST`).
const GHOST: u64 = 1 << 6;

/// Types of files, as `st_mode` has them.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// Bytes that each file takes in a header at least: its size, mode, time and folder, and two bytes of its name. So many
/// files as a header says there are, and no more, are believed.
const LEAST_OF_ONE: usize = 4 + 2 + 4;

/// Bytes of memory that each file takes here: places of strings, that of its folder among them, and a line of each
/// table.
const OF_ONE: usize = 5 * 4 + 2 * 48;

/// Folders that may be there beside one for each file: a number says how many there are, and each takes memory.
const MORE_FOLDERS: usize = 64 << 10;

/// All of them.
pub(super) struct Files<'h> {
    count: usize,
    names: Names<'h>,
    sizes: Numbers<'h>,
    modes: Numbers<'h>,
    times: Numbers<'h>,
    devices: Option<Numbers<'h>>,
    flags: Option<Numbers<'h>>,
    links: Option<Strings<'h>>,
    users: Option<Strings<'h>>,
    groups: Option<Strings<'h>>,
    inodes: Option<(Numbers<'h>, Numbers<'h>)>,
    /// Bytes of paths that may still be told.
    left: Cell<u64>,
}

enum Names<'h> {
    Whole(Strings<'h>),
    Parts { bases: Strings<'h>, folders: Strings<'h>, numbers: Numbers<'h> },
}

/// What is known of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File<'h> {
    /// `None` of a kind that is not known.
    pub(super) kind: Option<Kind>,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) link: &'h [u8],
}

impl<'h> Files<'h> {
    /// What `header`, of `length` bytes, says of them; `None` if there are none, or it is damaged, or they would take
    /// more than `most` bytes of memory.
    pub(super) fn read(header: &Header<'h>, length: usize, most: usize) -> Option<Self> {
        let sizes = header.numbers(tag::LONG_FILE_SIZES).or_else(|| header.numbers(tag::FILE_SIZES))?;
        let (modes, times) = (header.numbers(tag::FILE_MODES)?, header.numbers(tag::FILE_TIMES)?);
        let count = sizes.len();
        if modes.len() < count || times.len() < count || count > length.checked_div(LEAST_OF_ONE)? {
            return None;
        }
        // Values may lie over each other: a header that is short may have any of them.
        if count.saturating_mul(OF_ONE) > most {
            return None;
        }
        let strings = |tag: u32| header.strings(tag, count);
        let names = match strings(tag::BASE_NAMES) {
            Some(bases) => {
                let numbers = header.numbers(tag::FOLDER_NUMBERS)?;
                let last = (0..count).filter_map(|place| numbers.get(place)).max().unwrap_or_default();
                let folders = usize::try_from(last).ok()?.checked_add(1)?.min(count.saturating_add(MORE_FOLDERS));
                let folders = header.strings(tag::FOLDERS, folders)?;
                Names::Parts { bases, folders, numbers }
            }
            None => Names::Whole(strings(tag::OLD_FILE_NAMES)?),
        };
        Some(Self {
            count,
            names,
            sizes,
            modes,
            times,
            devices: header.numbers(tag::FILE_DEVICE_NUMBERS),
            flags: header.numbers(tag::FILE_FLAGS),
            links: strings(tag::FILE_LINKS),
            users: strings(tag::FILE_USERS),
            groups: strings(tag::FILE_GROUPS),
            inodes: header.numbers(tag::FILE_DEVICES).zip(header.numbers(tag::FILE_INODES)),
            left: Cell::new(MOST_OF_PATHS.saturating_add((length as u64).saturating_mul(FOR_EACH_BYTE))),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Counts bytes of a path that is told; false if all together have too many.
    pub(super) fn take(&self, length: usize) -> bool {
        let left = self.left.get().checked_sub(length as u64);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// The path of one, without the slash that most begin with; `None` if there is none, or all that were asked for are
    /// too long together.
    pub(super) fn path(&self, place: usize) -> Option<Vec<u8>> {
        let mut path = match &self.names {
            Names::Whole(names) => names.get(place).filter(|name| self.take(name.len()))?.to_vec(),
            Names::Parts { bases, folders, numbers } => {
                let folder = usize::try_from(numbers.get(place)?).ok()?;
                let (folder, base) = (folders.get(folder)?, bases.get(place)?);
                let length = folder.len().saturating_add(base.len());
                if length > LONGEST || !self.take(length) {
                    return None;
                }
                [folder, base].concat()
            }
        };
        let start = path.iter().take_while(|&&byte| byte == b'/').count();
        path.drain(..start);
        Some(path)
    }

    pub(super) fn get(&self, place: usize) -> Option<File<'h>> {
        let mode = u32::try_from(self.modes.get(place)?).ok()?;
        let number = self.devices.and_then(|devices| devices.get(place)).unwrap_or_default() as u32;
        let device = Device { major: number >> 8, minor: number & 0xff };
        let kind = match mode & TYPE {
            REGULAR => Some(Kind::File),
            0o040_000 => Some(Kind::Folder),
            0o120_000 => Some(Kind::Symlink),
            0o020_000 => Some(Kind::CharacterDevice(device)),
            0o060_000 => Some(Kind::BlockDevice(device)),
            0o010_000 => Some(Kind::Fifo),
            0o140_000 => Some(Kind::Socket),
            _ => None,
        };
        let seconds = self.times.get(place)?.cast_signed();
        Some(File {
            kind,
            mode: mode & 0o7777,
            size: self.sizes.get(place)?,
            mtime: Time { seconds, nanoseconds: 0 },
            link: self.links.as_ref().and_then(|links| links.get(place)).unwrap_or_default(),
        })
    }

    /// The names of its owner and group; empty where they are not told.
    pub(super) fn owners(&self, place: usize) -> [&'h [u8]; 2] {
        [&self.users, &self.groups].map(|names| names.as_ref().and_then(|names| names.get(place)).unwrap_or_default())
    }

    /// The number of each file, by the hash of its path.
    pub(super) fn by_path(&self) -> HashMap<u64, u32> {
        let of_one = |place: usize| Some((xxh3_64(&self.path(place)?), u32::try_from(place).ok()?));
        (0..self.count).filter_map(of_one).collect()
    }

    /// Of files that have several names, the last one, which has the content. A file is a device and an inode.
    pub(super) fn last_names(&self) -> HashMap<(u64, u64), Several> {
        let mut names: HashMap<(u64, u64), Several> = HashMap::new();
        for place in 0..self.count {
            if let (Some(file), Ok(place)) = (self.inode(place), u32::try_from(place)) {
                let names = names.entry(file).or_default();
                (names.last, names.count) = (place, names.count.saturating_add(1));
            }
        }
        names.retain(|_, names| names.count > 1);
        names
    }

    /// The device and the inode of a regular file that is in the payload.
    pub(super) fn inode(&self, place: usize) -> Option<(u64, u64)> {
        let (devices, inodes) = self.inodes?;
        let flags = self.flags.and_then(|flags| flags.get(place)).unwrap_or_default();
        let is_regular = self.modes.get(place)? as u32 & TYPE == REGULAR;
        (is_regular && flags & GHOST == 0).then_some((devices.get(place)?, inodes.get(place)?))
    }
}

/// The names that one file has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Several {
    pub(super) last: u32,
    pub(super) count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 128 << 20;

    /// A header of so many files in a folder of that name.
    fn header(count: u32, folder: &str) -> Vec<u8> {
        header_of(count, 0, 1, &[folder.as_bytes(), b"\0"].concat())
    }

    /// A header of so many files in the folder with that number, of so many that have these names.
    fn header_of(count: u32, number: u32, folders: u32, names_of_folders: &[u8]) -> Vec<u8> {
        let zeros = vec![0; 4 * count as usize];
        let (numbers, names) = (number.to_be_bytes().repeat(count as usize), b"f\0".repeat(count as usize));
        let tags = [
            (tag::FILE_SIZES, 4, count, &zeros[..]),
            (tag::FILE_MODES, 4, count, &zeros[..]),
            (tag::FILE_TIMES, 4, count, &zeros[..]),
            (tag::FOLDER_NUMBERS, 4, count, &numbers[..]),
            (tag::BASE_NAMES, 8, count, &names[..]),
            (tag::FOLDERS, 8, folders, names_of_folders),
        ];
        let (mut index, mut store) = (Vec::new(), Vec::new());
        for (tag, kind, count, value) in tags {
            index.extend([tag, kind, store.len() as u32, count].map(u32::to_be_bytes).concat());
            store.extend_from_slice(value);
        }
        let lengths = [tags.len() as u32, store.len() as u32].map(u32::to_be_bytes).concat();
        [b"\x8e\xad\xe8\x01\0\0\0\0", &lengths[..], &index, &store].concat()
    }

    /// The name of a folder is stored once for all files in it.
    #[test]
    fn paths_of_all_files_together_have_an_end() {
        const COUNT: usize = 10_000;
        let bytes = header(COUNT as u32, &"f".repeat(60_000));
        let files = Files::read(&Header::read(&bytes).unwrap(), bytes.len(), MOST).unwrap();
        let told = (0..COUNT).filter(|place| files.path(*place).is_some()).count();
        let most = MOST_OF_PATHS + bytes.len() as u64 * FOR_EACH_BYTE;
        assert_eq!(told as u64, most / 60_001);
        assert!(files.path(0).is_none() && !files.take(1) && files.take(0));
        // Of usual ones all are told, by their names, too.
        let bytes = header(COUNT as u32, "/usr/share/doc/");
        let files = Files::read(&Header::read(&bytes).unwrap(), bytes.len(), MOST).unwrap();
        assert_eq!((0..COUNT).filter(|place| files.path(*place).is_some()).count(), COUNT);
    }

    /// As long as a header may be, and looked at for each file.
    #[test]
    fn of_a_very_long_string_little_is_looked_at() {
        let bytes = header(3, &"f".repeat(1 << 20));
        let files = Files::read(&Header::read(&bytes).unwrap(), bytes.len(), MOST).unwrap();
        let Names::Parts { folders, .. } = &files.names else { panic!("names in parts") };
        assert_eq!(folders.get(0).map(<[u8]>::len), Some(LONGEST + 1));
        assert!(files.path(0).is_none() && files.left.get() > MOST_OF_PATHS);
        let bytes = header(3, &"f".repeat(LONGEST - 1));
        let files = Files::read(&Header::read(&bytes).unwrap(), bytes.len(), MOST).unwrap();
        assert_eq!(files.path(2).map(|path| path.len()), Some(LONGEST));
    }

    /// A folder may have any number, and the place of each before it is kept.
    #[test]
    fn there_are_not_many_more_folders_than_files() {
        const FOLDERS: u32 = 200_000;
        for (number, is_there) in [(0, true), (1000, true), (FOLDERS - 1, false)] {
            let bytes = header_of(2, number, FOLDERS, &b"f\0".repeat(FOLDERS as usize));
            let files = Files::read(&Header::read(&bytes).unwrap(), bytes.len(), MOST).unwrap();
            let Names::Parts { folders, .. } = &files.names else { panic!("names in parts") };
            assert!(folders.len() <= 2 + MORE_FOLDERS, "{}", folders.len());
            assert_eq!(files.path(1).is_some(), is_there, "{number}");
        }
    }

    #[test]
    fn files_that_would_take_too_much_memory_are_none() {
        let bytes = header(1000, "/usr/");
        let read = |most: usize| Files::read(&Header::read(&bytes).unwrap(), bytes.len(), most).is_some();
        assert!(read(1000 * OF_ONE) && !read(1000 * OF_ONE - 1));
    }
}
