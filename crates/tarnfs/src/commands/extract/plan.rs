//! What is to be extracted, in the order of the archive. However many entries there are, they take little memory: what
//! is too much for it is sorted in runs, which lie in a file without a name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_tree::{Attributes, Device, Kind, Node, Stored, Time};

/// Bytes of entries that are held in memory.
const MOST_BYTES: usize = 48 << 20;

/// What one thread takes at a time: so many bytes of content, or so many names.
const TAKEN_BYTES: u64 = 8 << 20;
const TAKEN_COUNT: usize = 512;

/// What an entry takes beside its name, about.
const BESIDE: usize = 200;

/// Bytes that are read of a run at once.
const STEP: usize = 64 << 10;

/// Something that is to be made. They are sorted by what comes first: where in the archive it is stored, then the node,
/// so that the names of one file stand together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) struct Item {
    pub(in crate::commands) stored: Stored,
    pub(in crate::commands) node: Node,
    pub(in crate::commands) folder: Node,
    pub(in crate::commands) name: Vec<u8>,
    pub(in crate::commands) kind: What,
    pub(in crate::commands) mode: u32,
    pub(in crate::commands) uid: u32,
    pub(in crate::commands) gid: u32,
    pub(in crate::commands) links: u32,
    pub(in crate::commands) size: u64,
    pub(in crate::commands) mtime: Time,
    pub(in crate::commands) atime: Time,
}

impl Item {
    /// What is called `name` in `folder`.
    pub(in crate::commands) fn new(
        folder: Node,
        name: Vec<u8>,
        kind: What,
        attributes: &Attributes,
        stored: Stored,
    ) -> Self {
        let &Attributes { node, mode, uid, gid, links, size, mtime, atime, .. } = attributes;
        Self { stored, node, folder, name, kind, mode, uid, gid, links, size, mtime, atime }
    }
}

/// [`Kind`], of what is no folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) enum What {
    File,
    Symlink,
    Character(u32, u32),
    Block(u32, u32),
    Fifo,
    Socket,
}

impl What {
    pub(in crate::commands) fn of(kind: Kind) -> Option<Self> {
        let numbers = |device: Device| (device.major, device.minor);
        Some(match kind {
            Kind::File => Self::File,
            Kind::Symlink => Self::Symlink,
            Kind::CharacterDevice(device) => Self::Character(numbers(device).0, numbers(device).1),
            Kind::BlockDevice(device) => Self::Block(numbers(device).0, numbers(device).1),
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::Folder | Kind::HardLink => return None,
        })
    }

    fn numbers(self) -> [u32; 3] {
        match self {
            Self::File => [0, 0, 0],
            Self::Symlink => [1, 0, 0],
            Self::Character(major, minor) => [2, major, minor],
            Self::Block(major, minor) => [3, major, minor],
            Self::Fifo => [4, 0, 0],
            Self::Socket => [5, 0, 0],
        }
    }

    fn from_numbers([kind, major, minor]: [u32; 3]) -> io::Result<Self> {
        Ok(match kind {
            0 => Self::File,
            1 => Self::Symlink,
            2 => Self::Character(major, minor),
            3 => Self::Block(major, minor),
            4 => Self::Fifo,
            5 => Self::Socket,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

impl Item {
    fn write(&self, out: &mut Vec<u8>) {
        let Stored { stream, place, header, is_plain, has_xattrs } = self.stored;
        let flags = u32::from(is_plain) | u32::from(has_xattrs) << 1 | u32::from(header.is_some()) << 2;
        for number in [place, header.unwrap_or(0), self.node.0, self.folder.0, self.size] {
            out.extend(number.to_le_bytes());
        }
        for time in [self.mtime, self.atime] {
            out.extend(time.seconds.to_le_bytes());
            out.extend(time.nanoseconds.to_le_bytes());
        }
        let [kind, major, minor] = self.kind.numbers();
        let length = self.name.len() as u32;
        for number in [stream, flags, kind, major, minor, self.mode, self.uid, self.gid, self.links, length] {
            out.extend(number.to_le_bytes());
        }
        out.extend(&self.name);
    }

    /// The next one; `None` at the end.
    fn read(run: &mut Run) -> io::Result<Option<Self>> {
        if run.is_at_end()? {
            return Ok(None);
        }
        let mut long = || {
            let mut bytes = [0; 8];
            run.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let [place, header, node, folder, size] = [long()?, long()?, long()?, long()?, long()?];
        let mut short = || {
            let mut bytes = [0; 4];
            run.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
        };
        let mut time = || {
            let seconds = u64::from(short()?) | u64::from(short()?) << 32;
            Ok::<_, io::Error>(Time { seconds: seconds.cast_signed(), nanoseconds: short()? })
        };
        let [mtime, atime] = [time()?, time()?];
        let [stream, flags, kind, major, minor] = [short()?, short()?, short()?, short()?, short()?];
        let [mode, uid, gid, links, length] = [short()?, short()?, short()?, short()?, short()?];
        let mut name = vec![0; length as usize];
        run.read_exact(&mut name)?;
        let stored = Stored {
            stream,
            place,
            header: (flags & 4 != 0).then_some(header),
            is_plain: flags & 1 != 0,
            has_xattrs: flags & 2 != 0,
        };
        let kind = What::from_numbers([kind, major, minor])?;
        let (node, folder) = (Node(node), Node(folder));
        Ok(Some(Self { stored, node, folder, name, kind, mode, uid, gid, links, size, mtime, atime }))
    }
}

/// Takes items in any order.
#[derive(Debug)]
pub(in crate::commands) struct Sorter {
    items: Vec<Item>,
    bytes: usize,
    most: usize,
    file: Option<Arc<File>>,
    /// Where the runs in the file end.
    ends: Vec<u64>,
}

impl Sorter {
    pub(in crate::commands) fn new() -> Self {
        Self { items: Vec::new(), bytes: 0, most: MOST_BYTES, file: None, ends: Vec::new() }
    }

    pub(in crate::commands) fn push(&mut self, item: Item) -> io::Result<()> {
        self.bytes += BESIDE + item.name.len();
        self.items.push(item);
        if self.bytes > self.most { self.spill() } else { Ok(()) }
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            file => file.insert(Arc::new(tarnfs_source::temporary_file()?)),
        };
        self.items.sort_unstable();
        let mut out = Vec::new();
        let mut written = 0;
        for item in self.items.drain(..) {
            item.write(&mut out);
            if out.len() >= STEP {
                (&**file).write_all(&out)?;
                written += out.len() as u64;
                out.clear();
            }
        }
        (&**file).write_all(&out)?;
        written += out.len() as u64;
        self.ends.push(self.ends.last().unwrap_or(&0) + written);
        self.bytes = 0;
        Ok(())
    }

    /// All of them, in order.
    pub(in crate::commands) fn finish(mut self) -> io::Result<Items> {
        let Some(file) = self.file.clone() else {
            self.items.sort_unstable();
            return Ok(Items { inner: Inner::Memory(self.items.into_iter()), following: None });
        };
        self.spill()?;
        let mut runs = Vec::new();
        let mut heap = BinaryHeap::new();
        let mut start = 0;
        for &end in &self.ends {
            let mut run = Run { file: Arc::clone(&file), at: start, end, buffer: Vec::new(), from: 0 };
            if let Some(item) = Item::read(&mut run)? {
                heap.push(Reverse((item, runs.len())));
            }
            runs.push(run);
            start = end;
        }
        Ok(Items { inner: Inner::Runs { runs, heap }, following: None })
    }
}

/// A sorted part of the file.
#[derive(Debug)]
struct Run {
    file: Arc<File>,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    from: usize,
}

impl Run {
    fn is_at_end(&mut self) -> io::Result<bool> {
        if self.from < self.buffer.len() {
            return Ok(false);
        }
        let length = (self.end - self.at).min(STEP as u64) as usize;
        self.buffer.resize(length, 0);
        self.file.read_exact_at(&mut self.buffer, self.at)?;
        (self.at, self.from) = (self.at + length as u64, 0);
        Ok(length == 0)
    }
}

impl io::Read for Run {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_at_end()? {
            return Ok(0);
        }
        let rest = &self.buffer[self.from..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.from += length;
        Ok(length)
    }
}

/// Items in their order.
#[derive(Debug)]
pub(in crate::commands) struct Items {
    inner: Inner,
    following: Option<Item>,
}

#[derive(Debug)]
enum Inner {
    Memory(std::vec::IntoIter<Item>),
    Runs { runs: Vec<Run>, heap: BinaryHeap<Reverse<(Item, usize)>> },
}

impl Items {
    pub(super) fn next(&mut self) -> io::Result<Option<Item>> {
        if let Some(item) = self.following.take() {
            return Ok(Some(item));
        }
        match &mut self.inner {
            Inner::Memory(items) => Ok(items.next()),
            Inner::Runs { runs, heap } => {
                let Some(Reverse((item, number))) = heap.pop() else { return Ok(None) };
                if let Some(next) = Item::read(&mut runs[number])? {
                    heap.push(Reverse((next, number)));
                }
                Ok(Some(item))
            }
        }
    }

    /// The next one, if `takes` says so.
    fn next_if(&mut self, takes: impl FnOnce(&Item) -> bool) -> io::Result<Option<Item>> {
        let Some(item) = self.next()? else { return Ok(None) };
        if takes(&item) {
            return Ok(Some(item));
        }
        self.following = Some(item);
        Ok(None)
    }
}

/// A folder that gets its attributes when all is made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub(super) node: Node,
    /// This call has made it.
    pub(super) is_made: bool,
    /// Which one it is at the destination: the numbers of its file system and its inode. By the time that it is
    /// finished, its name may be another's.
    pub(super) identity: (u64, u64),
}

impl Unfinished {
    const LENGTH: usize = 24;

    /// Numbers of nodes are below 2⁶³.
    fn bytes(&self) -> [u8; Self::LENGTH] {
        let numbers = [self.node.0 << 1 | u64::from(self.is_made), self.identity.0, self.identity.1];
        let mut bytes = [0; Self::LENGTH];
        for (place, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }

    fn of_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let number = |at: usize| bytes.as_chunks::<8>().0.get(at).map_or(0, |number| u64::from_le_bytes(*number));
        Self { node: Node(number(0) >> 1), is_made: number(0) & 1 == 1, identity: (number(1), number(2)) }
    }
}

/// Folders, to be gone through backwards: what is in a folder comes before the folder.
#[derive(Debug, Default)]
pub(super) struct Backwards {
    folders: Vec<Unfinished>,
    file: Option<File>,
    /// Folders in the file.
    written: u64,
}

impl Backwards {
    /// Folders that are held in memory.
    const MOST: usize = 1 << 17;

    /// Adds a folder.
    pub(super) fn push(&mut self, folder: Unfinished) -> io::Result<()> {
        if self.folders.len() >= Self::MOST {
            let file = match &mut self.file {
                Some(file) => file,
                file => file.insert(tarnfs_source::temporary_file()?),
            };
            let bytes: Vec<u8> = self.folders.iter().flat_map(Unfinished::bytes).collect();
            file.write_all(&bytes)?;
            self.written += self.folders.len() as u64;
            self.folders.clear();
        }
        self.folders.push(folder);
        Ok(())
    }

    /// The one that was pushed last.
    pub(super) fn pop(&mut self) -> io::Result<Option<Unfinished>> {
        if self.folders.is_empty()
            && let Some(file) = &self.file
            && self.written > 0
        {
            let count = self.written.min(Self::MOST as u64);
            let mut bytes = vec![0; count as usize * Unfinished::LENGTH];
            self.written -= count;
            file.read_exact_at(&mut bytes, self.written * Unfinished::LENGTH as u64)?;
            let (folders, _) = bytes.as_chunks::<{ Unfinished::LENGTH }>();
            self.folders = folders.iter().map(Unfinished::of_bytes).collect();
        }
        Ok(self.folders.pop())
    }
}

/// Hands those that come next to `each`, on one of several threads. All names of a file go to one thread. What
/// `begin` returns, which is called before any other thread takes some, is theirs. False if there are no more.
pub(in crate::commands) fn take<T, E>(
    items: &Mutex<Items>,
    cannot: impl Fn(io::Error) -> E,
    begin: impl FnOnce() -> T,
    mut each: impl FnMut(&mut T, &Item) -> Result<(), E>,
) -> Result<bool, E> {
    let (mut taken, mut bytes) = (Vec::new(), 0_u64);
    let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
    while bytes < TAKEN_BYTES && taken.len() < TAKEN_COUNT {
        let Some(item) = items.next().map_err(&cannot)? else { break };
        bytes = bytes.saturating_add(item.size);
        taken.push(item);
    }
    let Some(&Item { node: last, links, .. }) = taken.last() else { return Ok(false) };
    while links > 1
        && taken.len() < 2 * TAKEN_COUNT
        && let Some(item) = items.next_if(|item| item.node == last).map_err(&cannot)?
    {
        taken.push(item);
    }
    let mut begun = begin();
    // So many names that they are taken one by one while the others wait.
    let others = (taken.len() == 2 * TAKEN_COUNT).then_some(items);
    for item in taken {
        each(&mut begun, &item)?;
    }
    let Some(mut items) = others else { return Ok(true) };
    while let Some(item) = items.next_if(|item| item.node == last).map_err(&cannot)? {
        each(&mut begun, &item)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u64) -> Item {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let stored = Stored {
            stream: (mixed >> 60) as u32,
            place: mixed >> 40,
            header: (mixed & 1 == 0).then_some(mixed >> 8),
            is_plain: mixed & 2 == 0,
            has_xattrs: mixed & 4 == 0,
        };
        let time = Time { seconds: mixed.cast_signed() >> 20, nanoseconds: (mixed % 1_000_000_000) as u32 };
        let kinds = [What::File, What::Symlink, What::Character(1, 3), What::Block(8, 77), What::Fifo, What::Socket];
        Item {
            stored,
            node: Node(number),
            folder: Node(mixed >> 33),
            name: vec![b'n'; (mixed % 256) as usize],
            kind: kinds[(mixed % 6) as usize],
            mode: (mixed & 0o7777) as u32,
            uid: mixed as u32,
            gid: (mixed >> 7) as u32,
            links: (mixed % 3) as u32,
            size: mixed,
            mtime: time,
            atime: Time { nanoseconds: 0, ..time },
        }
    }

    #[test]
    fn what_does_not_fit_into_memory_comes_in_the_same_order() {
        let all = |most| {
            let mut sorter = Sorter { most, ..Sorter::new() };
            (0..5000).for_each(|number| sorter.push(item(number)).unwrap());
            assert_eq!(sorter.file.is_some(), most < MOST_BYTES);
            let mut items = sorter.finish().unwrap();
            let mut found = Vec::new();
            while let Some(item) = items.next().unwrap() {
                if found.len() % 7 == 0 {
                    assert_eq!(items.next_if(|_| false).unwrap(), None);
                }
                found.push(item);
            }
            found
        };
        let sorted = all(MOST_BYTES);
        assert!(sorted.is_sorted() && sorted.len() == 5000);
        assert_eq!(all(20_000), sorted);
        assert_eq!(all(0), sorted);
    }

    #[test]
    fn folders_come_back_in_reverse() {
        for count in [0, 1, Backwards::MOST as u64, 3 * Backwards::MOST as u64 + 5] {
            let folder = |number: u64| Unfinished {
                node: Node(number),
                is_made: number.is_multiple_of(3),
                identity: (u64::MAX - number, number << 40),
            };
            let mut folders = Backwards::default();
            (0..count).for_each(|number| folders.push(folder(number)).unwrap());
            for number in (0..count).rev() {
                assert_eq!(folders.pop().unwrap(), Some(folder(number)));
            }
            assert_eq!(folders.pop().unwrap(), None);
        }
    }
}
