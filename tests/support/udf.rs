//! Writes UDF images byte by byte, as ECMA-167 (3rd edition) and OSTA UDF say: no free program writes most of what
//! there may be in one. What a test needs is put together by hand.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// What kind of partition an image has. All its files lie in it, in one way or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// With the table of UDF 1.50, and with that of 2.00.
    VirtualOld,
    Virtual,
    Sparable,
    /// With a copy of all metadata.
    Metadata,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Plain, Kind::VirtualOld, Kind::Virtual, Kind::Sparable, Kind::Metadata];

/// Sectors at which things are, of any size.
const MAIN: u32 = 128;
const RESERVE: u32 = 160;
const INTEGRITY: u32 = 192;
const SPARING: u32 = 200;
const ANCHOR: u32 = 256;
pub(crate) const START: u32 = 288;
/// Blocks of a packet of a sparable partition.
const PACKET: u32 = 32;

/// Kinds of files, and of how their content is told.
pub(crate) const FOLDER: u8 = 4;
pub(crate) const FILE: u8 = 5;
pub(crate) const BLOCK_DEVICE: u8 = 6;
pub(crate) const CHARACTER_DEVICE: u8 = 7;
pub(crate) const FIFO: u8 = 9;
pub(crate) const SOCKET: u8 = 10;
pub(crate) const LINK: u8 = 12;
pub(crate) const STREAMS: u8 = 13;
const SHORT: u16 = 0;
const LONG: u16 = 1;
const EXTENDED: u16 = 2;
const INSIDE: u16 = 3;

/// Bits of a name.
pub(crate) const HIDDEN: u8 = 1;
pub(crate) const IS_FOLDER: u8 = 2;
pub(crate) const DELETED: u8 = 4;
const PARENT: u8 = 8;

/// A block of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) partition: u16,
    pub(crate) block: u32,
}

/// How the content of a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Inside,
    Short,
    Long,
    Extended,
    /// Each block by itself, the last one first, the list in blocks of four.
    Scattered,
}

/// What the entry of a file says.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) kind: u8,
    pub(crate) links: u16,
    pub(crate) flags: u16,
    /// As Linux has it.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) length: u64,
    pub(crate) times: [[u8; 12]; 3],
    pub(crate) is_extended: bool,
    pub(crate) strategy: u16,
    pub(crate) attributes: Vec<u8>,
    pub(crate) streams: Option<Place>,
    pub(crate) form: u16,
    pub(crate) allocation: Vec<u8>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            kind: FILE,
            links: 1,
            flags: 0,
            mode: 0o644,
            owner: (0, 0),
            length: 0,
            times: [stamp(0, [2020, 1, 2, 3, 4, 5], 0); 3],
            is_extended: false,
            strategy: 4,
            attributes: Vec::new(),
            streams: None,
            form: INSIDE,
            allocation: Vec::new(),
        }
    }
}

/// A time in a zone so many minutes to the east, with microseconds.
pub(crate) fn stamp(east: i16, [year, month, day, hour, minute, second]: [u16; 6], micros: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..2].copy_from_slice(&(0x1000 | east as u16 & 0xfff).to_le_bytes());
    bytes[2..4].copy_from_slice(&year.to_le_bytes());
    let parts = [micros / 10_000, micros / 100 % 100, micros % 100];
    for (at, part) in [month, day, hour, minute, second].into_iter().chain(parts.map(|part| part as u16)).enumerate() {
        bytes[4 + at] = part as u8;
    }
    bytes
}

pub(crate) fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| if sum >> 15 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 })
    })
}

/// Makes both checksums of the descriptor right that `bytes` hold.
pub(crate) fn seal(bytes: &mut [u8]) {
    let length = usize::from(u16::from_le_bytes([bytes[10], bytes[11]])).min(bytes.len() - 16);
    bytes[10..12].copy_from_slice(&(length as u16).to_le_bytes());
    let sum = crc(&bytes[16..16 + length]);
    bytes[8..10].copy_from_slice(&sum.to_le_bytes());
    bytes[4] = 0;
    bytes[4] = bytes[..16].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
}

fn descriptor(kind: u16, location: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[..2].copy_from_slice(&kind.to_le_bytes());
    bytes[2] = 3;
    bytes[10..12].copy_from_slice(&(body.len() as u16).to_le_bytes());
    bytes[12..].copy_from_slice(&location.to_le_bytes());
    bytes.extend_from_slice(body);
    seal(&mut bytes);
    bytes
}

/// A name in the shortest form.
pub(crate) fn text(name: &str) -> Vec<u8> {
    if name.chars().all(|one| u32::from(one) < 256) {
        [8].into_iter().chain(name.chars().map(|one| one as u8)).collect()
    } else {
        [16].into_iter().chain(name.encode_utf16().flat_map(u16::to_be_bytes)).collect()
    }
}

fn field(name: &str, length: usize) -> Vec<u8> {
    let mut bytes = text(name);
    let used = bytes.len() as u8;
    bytes.resize(length, 0);
    bytes[length - 1] = used;
    bytes
}

fn entity(name: &str, suffix: [u8; 8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(24, 0);
    bytes.extend_from_slice(&suffix);
    bytes
}

fn characters() -> Vec<u8> {
    let mut bytes = b"\0OSTA Compressed Unicode".to_vec();
    bytes.resize(64, 0);
    bytes
}

pub(crate) fn long(length: u32, place: Place) -> Vec<u8> {
    let mut bytes = [length.to_le_bytes(), place.block.to_le_bytes()].concat();
    bytes.extend_from_slice(&place.partition.to_le_bytes());
    bytes.resize(16, 0);
    bytes
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A component of a link's target.
pub(crate) fn component(kind: u8, name: &str) -> Vec<u8> {
    let name = if name.is_empty() { Vec::new() } else { text(name) };
    [&[kind, name.len() as u8, 0, 0], &name[..]].concat()
}

/// The attribute that has the number of a device.
pub(crate) fn device(major: u32, minor: u32) -> Vec<u8> {
    let one = [numbers(&[12, 1, 24, 0, major, minor])].concat();
    [descriptor(262, 0, &numbers(&[u32::MAX, u32::MAX])), one].concat()
}

/// An image that is being written.
pub(crate) struct Writer {
    pub(crate) block: usize,
    kind: Kind,
    revision: u16,
    /// Blocks of the partition that is below all others.
    data: Vec<u8>,
    /// Blocks of the partition of metadata.
    metadata: Vec<u8>,
    /// Of the virtual one.
    table: Vec<u32>,
    pub(crate) name: String,
}

impl Writer {
    pub(crate) fn new(kind: Kind, block: usize) -> Self {
        let revision = match kind {
            Kind::Plain => 0x0102,
            Kind::VirtualOld | Kind::Sparable => 0x0150,
            Kind::Virtual => 0x0201,
            Kind::Metadata => 0x0260,
        };
        let name = "A volume ü".to_owned();
        // The first two blocks are of the file set.
        let data = vec![0; if kind == Kind::Metadata { block } else { 2 * block }];
        let metadata = vec![0; if kind == Kind::Metadata { 2 * block } else { 0 }];
        let table = if matches!(kind, Kind::Virtual | Kind::VirtualOld) { vec![0, 1] } else { Vec::new() };
        Self { block, kind, revision, data, metadata, table, name }
    }

    /// The partition in which entries lie.
    fn upper(&self) -> u16 {
        u16::from(matches!(self.kind, Kind::Virtual | Kind::VirtualOld | Kind::Metadata))
    }

    /// The next free block for entries.
    pub(crate) fn free(&mut self) -> Place {
        let block = match self.kind {
            Kind::Metadata => (self.metadata.len() / self.block) as u32,
            Kind::Virtual | Kind::VirtualOld => {
                self.table.push((self.data.len() / self.block) as u32);
                self.table.len() as u32 - 1
            }
            _ => (self.data.len() / self.block) as u32,
        };
        let place = Place { partition: self.upper(), block };
        let grown = if self.kind == Kind::Metadata { &mut self.metadata } else { &mut self.data };
        grown.resize(grown.len() + self.block, 0);
        place
    }

    /// Writes into a block.
    pub(crate) fn put(&mut self, place: Place, bytes: &[u8]) {
        assert!(bytes.len() <= self.block);
        let (into, block) = match (self.kind, place.partition) {
            (Kind::Metadata, 1) => (&mut self.metadata, place.block),
            (Kind::Virtual | Kind::VirtualOld, 1) => (&mut self.data, self.table[place.block as usize]),
            _ => (&mut self.data, place.block),
        };
        let at = block as usize * self.block;
        into[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes bytes behind each other; returns where in the lower partition they begin.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Place {
        let block = (self.data.len() / self.block) as u32;
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(self.block), 0);
        Place { partition: 0, block }
    }

    /// A file of this content. What tells where that is, is in the node.
    pub(crate) fn content(&mut self, bytes: &[u8], how: How) -> Node {
        let length = bytes.len() as u64;
        let told = bytes.len() as u32;
        let (form, allocation) = match how {
            How::Inside => (INSIDE, bytes.to_vec()),
            _ if bytes.is_empty() => (LONG, Vec::new()),
            How::Short => {
                // In the partition of the entry.
                assert_eq!(self.upper(), 0, "content lies below");
                (SHORT, numbers(&[told, self.data(bytes).block]))
            }
            How::Long => (LONG, long(told, self.data(bytes))),
            How::Extended => {
                let place = self.data(bytes);
                let mut one = numbers(&[told, told, told, place.block]);
                one.extend_from_slice(&[place.partition as u8, 0, 0, 0]);
                (EXTENDED, one)
            }
            How::Scattered => {
                let mut parts: Vec<_> = bytes.chunks(self.block).map(|part| (part.len() as u32, part)).collect();
                parts.reverse();
                let mut list: Vec<_> = parts.into_iter().map(|(length, part)| long(length, self.data(part))).collect();
                list.reverse();
                (LONG, self.chained(&list, 4))
            }
        };
        Node { length, form, allocation, is_extended: self.kind == Kind::Metadata, ..Node::default() }
    }

    /// A list of long descriptors of which so many stand in each block, and lead to the next one.
    pub(crate) fn chained(&mut self, list: &[Vec<u8>], count: usize) -> Vec<u8> {
        let groups: Vec<_> = list.chunks(count).map(<[Vec<u8>]>::concat).collect();
        let mut behind: Option<Place> = None;
        for (number, group) in groups.iter().enumerate().rev() {
            let mut all = group.clone();
            if let Some(next) = behind {
                all.extend(long(3 << 30 | self.block as u32, next));
            }
            if number == 0 {
                return all;
            }
            let place = self.free();
            let body = [&numbers(&[0, all.len() as u32])[..], &all].concat();
            let bytes = descriptor(258, place.block, &body);
            self.put(place, &bytes);
            behind = Some(place);
        }
        Vec::new()
    }

    /// A file that lies as these descriptors say.
    pub(crate) fn of_parts(&mut self, length: u64, parts: &[Vec<u8>]) -> Node {
        Node { length, form: LONG, allocation: parts.concat(), ..self.content(b"", How::Inside) }
    }

    /// The descriptor of an entry in `place`.
    pub(crate) fn entry_bytes(&self, node: &Node, place: Place) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&0_u32.to_le_bytes());
        body.extend_from_slice(&node.strategy.to_le_bytes());
        body.extend_from_slice(&u16::from(node.strategy == 4096).to_le_bytes());
        body.extend_from_slice(&[if node.strategy == 4096 { 2 } else { 1 }, 0, 0, node.kind]);
        body.extend_from_slice(&[0; 6]);
        let special = [(0o4000, 1 << 6), (0o2000, 1 << 7), (0o1000, 1 << 8)];
        let special = special.iter().filter(|(bit, _)| node.mode & bit != 0).map(|(_, flag)| flag).sum::<u16>();
        body.extend_from_slice(&(node.form | node.flags | special).to_le_bytes());
        let permissions = node.mode & 7 | (node.mode & 0o70) << 2 | (node.mode & 0o700) << 4;
        body.extend(numbers(&[node.owner.0, node.owner.1, permissions]));
        body.extend_from_slice(&node.links.to_le_bytes());
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&node.length.to_le_bytes());
        if node.is_extended {
            body.extend_from_slice(&node.length.to_le_bytes());
        }
        body.extend_from_slice(&node.length.div_ceil(self.block as u64).to_le_bytes());
        let [accessed, modified, changed] = node.times;
        body.extend_from_slice(&accessed);
        body.extend_from_slice(&modified);
        if node.is_extended {
            body.extend_from_slice(&modified);
        }
        body.extend_from_slice(&changed);
        body.extend(numbers(&[1]));
        if node.is_extended {
            body.extend(numbers(&[0]));
        }
        body.extend(long(0, Place::default()));
        if node.is_extended {
            let length = if node.streams.is_some() { self.block as u32 } else { 0 };
            body.extend(long(length, node.streams.unwrap_or_default()));
        }
        body.extend(entity("*tarnfs", [0; 8]));
        body.extend_from_slice(&u64::from(place.block).to_le_bytes());
        body.extend(numbers(&[node.attributes.len() as u32, node.allocation.len() as u32]));
        body.extend_from_slice(&node.attributes);
        body.extend_from_slice(&node.allocation);
        descriptor(if node.is_extended { 266 } else { 261 }, place.block, &body)
    }

    /// Writes an entry; returns where it is.
    pub(crate) fn entry(&mut self, node: &Node) -> Place {
        let place = self.free();
        self.put_entry(node, place);
        place
    }

    pub(crate) fn put_entry(&mut self, node: &Node, place: Place) {
        let bytes = self.entry_bytes(node, place);
        self.put(place, &bytes);
    }

    /// An entry that leads to another one.
    pub(crate) fn indirect(&mut self, place: Place, to: Place) {
        let mut body = vec![0; 20];
        body[4..6].copy_from_slice(&4096_u16.to_le_bytes());
        body[11] = 3;
        body.extend(long(self.block as u32, to));
        let bytes = descriptor(259, place.block, &body);
        self.put(place, &bytes);
    }

    /// A name in a listing: its bits, and where its entry is.
    pub(crate) fn name(&self, name: &[u8], flags: u8, place: Place) -> Vec<u8> {
        let mut body = vec![1, 0, flags, name.len() as u8];
        body.extend(long(self.block as u32, place));
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(name);
        body.resize((body.len() + 16).next_multiple_of(4) - 16, 0);
        descriptor(257, 0, &body)
    }

    /// The content of a folder.
    pub(crate) fn listing(&self, names: &[(&str, u8, Place)]) -> Vec<u8> {
        let mut bytes = self.name(b"", PARENT | IS_FOLDER, Place::default());
        for (name, flags, place) in names {
            bytes.extend(self.name(&text(name), *flags, *place));
        }
        bytes
    }

    /// Writes a folder; returns where its entry is.
    pub(crate) fn folder(&mut self, names: &[(&str, u8, Place)], like: &Node, how: How) -> Place {
        let listing = self.listing(names);
        let node = self.content(&listing, how);
        self.entry(&Node { kind: FOLDER, ..of(node, like) })
    }

    /// All of the image.
    pub(crate) fn finish(mut self, root: Place) -> Vec<u8> {
        let upper = self.upper();
        let set = Place { partition: upper, block: 0 };
        let mut body = stamp(0, [2020, 1, 1, 0, 0, 0], 0).to_vec();
        body.extend(numbers(&[3 | 3 << 16, 1, 1, 0, 0]));
        body.extend([characters(), field(&self.name, 128), characters()].concat());
        body.extend([field("set", 32), field("", 32), field("", 32)].concat());
        body.extend(long(self.block as u32, root));
        body.extend(entity("*OSTA UDF Compliant", self.suffix()));
        body.extend_from_slice(&[0; 64]);
        let bytes = descriptor(256, 0, &body);
        self.put(set, &bytes);
        let bytes = descriptor(8, 1, &[0; 496]);
        self.put(Place { block: 1, ..set }, &bytes);
        let maps = self.maps();
        let mut spared = None;
        if self.kind == Kind::Sparable {
            self.data.resize(self.data.len().next_multiple_of(self.block * PACKET as usize), 0);
            // The second packet lies behind all others.
            let (from, length) = (self.block * PACKET as usize, self.block * PACKET as usize);
            self.data.resize(self.data.len().max(2 * from), 0);
            let at = START + (self.data.len() / self.block) as u32;
            let moved = self.data[from..from + length].to_vec();
            self.data[from..from + length].fill(0xee);
            self.data.extend_from_slice(&moved);
            spared = Some(at);
        }
        let partition = (self.data.len() / self.block) as u32;
        let end = START + partition;
        let mut image = vec![0; (end as usize + 1) * self.block];
        let mut put = |sector: u32, bytes: &[u8]| {
            let at = sector as usize * self.block;
            image[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (number, mark) in
            ["BEA01", if self.revision < 0x200 { "NSR02" } else { "NSR03" }, "TEA01"].iter().enumerate()
        {
            let at = (32 << 10) + number * self.block.max(2048);
            put((at / self.block) as u32, &[b"\0", mark.as_bytes(), b"\x01"].concat());
        }
        let length = 16 * self.block as u32;
        for first in [MAIN, RESERVE] {
            let sequence = self.sequence(first, partition, &maps);
            for (number, bytes) in sequence.iter().enumerate() {
                put(first + number as u32, bytes);
            }
        }
        put(INTEGRITY, &self.integrity(partition));
        let mut anchors = vec![ANCHOR];
        if !matches!(self.kind, Kind::Virtual | Kind::VirtualOld) {
            anchors.push(end);
        }
        for at in anchors {
            let mut body = numbers(&[length, MAIN, length, RESERVE]);
            body.resize(496, 0);
            put(at, &descriptor(2, at, &body));
        }
        if let Some(at) = spared {
            let mut body = entity("*UDF Sparing Table", self.suffix());
            body.extend_from_slice(&[2, 0, 0, 0]);
            body.extend(numbers(&[7, PACKET, at, u32::MAX, at + PACKET]));
            put(SPARING, &descriptor(0, SPARING, &body));
        }
        put(START, &self.data);
        if matches!(self.kind, Kind::Virtual | Kind::VirtualOld) {
            image.truncate(image.len() - self.block);
        }
        image
    }

    fn suffix(&self) -> [u8; 8] {
        let [low, high] = self.revision.to_le_bytes();
        [low, high, 0, 0, 0, 0, 0, 0]
    }

    /// The partition maps, and what they need in the partition.
    fn maps(&mut self) -> Vec<u8> {
        let plain = vec![1, 6, 1, 0, 0, 0];
        let special = |name: &str, rest: &[u8]| {
            let mut map = [&[2, 64, 0, 0][..], &entity(name, self.suffix()), &[1, 0, 0, 0], rest].concat();
            map.resize(64, 0);
            map
        };
        match self.kind {
            Kind::Plain => plain,
            Kind::Sparable => {
                let rest = [&[PACKET as u8, 0, 1, 0][..], &numbers(&[72, SPARING])].concat();
                special("*UDF Sparable Partition", &rest)
            }
            Kind::Virtual | Kind::VirtualOld => {
                let maps = [plain, special("*UDF Virtual Partition", &[])].concat();
                self.add_table();
                maps
            }
            Kind::Metadata => {
                let mut files = Vec::new();
                let metadata = self.metadata.clone();
                for kind in [250, 251] {
                    // In two parts, with something between them.
                    let middle = (metadata.len() / self.block / 2) * self.block;
                    let parts: Vec<_> = [&metadata[..middle], &metadata[middle..]]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .map(|part| {
                            self.data(b"between");
                            (part.len() as u32, self.data(part).block)
                        })
                        .collect();
                    let allocation = parts.iter().flat_map(|(length, block)| numbers(&[*length, *block])).collect();
                    let length = metadata.len() as u64;
                    let node = Node { kind, length, form: SHORT, allocation, is_extended: true, ..Node::default() };
                    let place = self.data(&vec![0; self.block]);
                    let bytes = self.entry_bytes(&node, place);
                    self.put(place, &bytes);
                    files.push(place.block);
                }
                let rest = [&numbers(&[files[0], files[1], u32::MAX, 32])[..], &[1, 0, 1]].concat();
                [plain, special_of("*UDF Metadata Partition", self.suffix(), &rest)].concat()
            }
        }
    }

    /// Writes the table of a virtual partition, and its entry as the last block.
    fn add_table(&mut self) {
        let mut bytes = Vec::new();
        if self.kind == Kind::Virtual {
            bytes.extend_from_slice(&[152, 0, 0, 0]);
            bytes.extend(field(&self.name, 128));
            bytes.extend(numbers(&[u32::MAX, 0, 0]));
            bytes.resize(152, 0);
        }
        bytes.extend(numbers(&self.table));
        if self.kind == Kind::VirtualOld {
            bytes.extend(entity("*UDF Virtual Alloc Tbl", self.suffix()));
            bytes.extend(numbers(&[u32::MAX]));
        }
        let kind = if self.kind == Kind::Virtual { 248 } else { 0 };
        let place = self.data(&bytes);
        let allocation = numbers(&[bytes.len() as u32, place.block]);
        let node = Node { kind, length: bytes.len() as u64, form: SHORT, allocation, ..Node::default() };
        let place = self.data(&vec![0; self.block]);
        let bytes = self.entry_bytes(&node, place);
        self.put(place, &bytes);
    }

    fn sequence(&self, first: u32, partition: u32, maps: &[u8]) -> Vec<Vec<u8>> {
        let at = |number: u32| first + number;
        let mut primary = numbers(&[1, 0]);
        primary.extend(field(&self.name, 32));
        primary.extend_from_slice(&[1, 0, 1, 0, 2, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        primary.extend([field("0123456789abcdef set", 128), characters(), characters()].concat());
        primary.extend_from_slice(&[0; 16]);
        primary.extend(entity("*tarnfs", [0; 8]));
        primary.extend_from_slice(&stamp(0, [2020, 1, 1, 0, 0, 0], 0));
        primary.extend(entity("*tarnfs", [0; 8]));
        primary.resize(496, 0);
        let contents = if self.revision < 0x200 { "+NSR02" } else { "+NSR03" };
        let mut part = numbers(&[2]);
        part.extend_from_slice(&[1, 0, 0, 0]);
        part.extend(entity(contents, [0; 8]));
        part.extend_from_slice(&[0; 128]);
        part.extend(numbers(&[1, START, partition]));
        part.extend(entity("*tarnfs", [0; 8]));
        part.resize(496, 0);
        let mut logical = numbers(&[3]);
        logical.extend([characters(), field(&self.name, 128)].concat());
        logical.extend(numbers(&[self.block as u32]));
        logical.extend(entity("*OSTA UDF Compliant", self.suffix()));
        logical.extend(long(2 * self.block as u32, Place { partition: self.upper(), block: 0 }));
        logical.extend(numbers(&[maps.len() as u32, if self.upper() == 1 { 2 } else { 1 }]));
        logical.extend(entity("*tarnfs", [0; 8]));
        logical.extend_from_slice(&[0; 128]);
        logical.extend(numbers(&[self.block as u32, INTEGRITY]));
        logical.extend_from_slice(maps);
        vec![
            descriptor(1, at(0), &primary),
            descriptor(5, at(1), &part),
            descriptor(6, at(2), &logical),
            descriptor(8, at(3), &[0; 496]),
        ]
    }

    fn integrity(&self, partition: u32) -> Vec<u8> {
        let mut body = stamp(0, [2020, 1, 1, 0, 0, 0], 0).to_vec();
        body.extend(numbers(&[1, 0, 0]));
        body.extend_from_slice(&[0; 32]);
        let count = if self.upper() == 1 { 2 } else { 1 };
        body.extend(numbers(&[count, 46]));
        body.extend((0..count).flat_map(|_| numbers(&[0])));
        body.extend((0..count).flat_map(|_| numbers(&[partition])));
        body.extend(entity("*tarnfs", [0; 8]));
        body.extend(numbers(&[0, 0]));
        body.extend_from_slice(&[self.revision.to_le_bytes(); 3].concat());
        descriptor(9, INTEGRITY, &body)
    }
}

fn special_of(name: &str, suffix: [u8; 8], rest: &[u8]) -> Vec<u8> {
    let mut map = [&[2, 64, 0, 0][..], &entity(name, suffix), &[1, 0, 0, 0], rest].concat();
    map.resize(64, 0);
    map
}

/// `node`, with what is no matter of its content as in `like`.
pub(crate) fn of(node: Node, like: &Node) -> Node {
    let Node { length, form, allocation, is_extended, .. } = node;
    Node { length, form, allocation, is_extended: is_extended || like.is_extended, ..like.clone() }
}

/// A small image with one of everything.
pub(crate) fn sample(kind: Kind) -> Vec<u8> {
    let mut writer = Writer::new(kind, 512);
    let like = Node::default();
    let file = writer.content(b"short", How::Inside);
    let short = writer.entry(&of(file, &Node { links: 2, ..like.clone() }));
    let file = writer.content(&[7; 3000], How::Scattered);
    let long_one = writer.entry(&of(file, &like));
    let file = writer.content(&[8; 3000], How::Extended);
    let other = writer.entry(&of(file, &like));
    let data = writer.data(&[9; 512]);
    let parts = [long(512, data), long(1 << 30 | 1024, Place::default()), long(2 << 30 | 512, Place::default())];
    let file = writer.of_parts(2048, &parts);
    let sparse = writer.entry(&of(file, &like));
    let target = [component(2, ""), component(5, "a"), component(3, ""), component(5, "日")].concat();
    let file = writer.content(&target, How::Inside);
    let link = writer.entry(&of(file, &Node { kind: LINK, ..like.clone() }));
    let line = writer.entry(&Node { kind: CHARACTER_DEVICE, attributes: device(5, 1), ..like.clone() });
    let stream = writer.content(b"a stream", How::Inside);
    let stream = writer.entry(&stream);
    let listing = writer.listing(&[("stream", 0, stream)]);
    let file = writer.content(&listing, How::Inside);
    let streams = writer.entry(&of(file, &Node { kind: STREAMS, ..like.clone() }));
    let file = writer.content(b"with streams", How::Inside);
    let with = writer.entry(&of(file, &Node { streams: Some(streams), is_extended: true, ..like.clone() }));
    let replaced = writer.free();
    let behind = writer.free();
    let newer = writer.content(b"newer", How::Inside);
    let newer = writer.entry(&newer);
    let file = writer.content(b"older", How::Inside);
    writer.put_entry(&of(file, &Node { strategy: 4096, ..like.clone() }), replaced);
    writer.indirect(behind, newer);
    let below = writer.folder(&[("again", 0, short), ("日本", 0, long_one)], &like, How::Long);
    let names = [
        ("short", 0, short),
        ("long", HIDDEN, long_one),
        ("other", 0, other),
        ("sparse", 0, sparse),
        ("link", 0, link),
        ("line", 0, line),
        ("with", 0, with),
        ("gone", DELETED, short),
        ("replaced", 0, replaced),
        ("below", IS_FOLDER, below),
    ];
    let root = writer.folder(&names, &like, How::Long);
    writer.finish(root)
}

/// The blocks of an image that are not all zeros, each behind its number.
pub(crate) fn packed(image: &[u8]) -> Vec<u8> {
    let mut bytes = b"packed".to_vec();
    for (number, block) in image.chunks(512).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
        bytes.extend_from_slice(&(number as u16).to_le_bytes());
        bytes.extend_from_slice(block);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
    }
    bytes
}
