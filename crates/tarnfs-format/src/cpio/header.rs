//! One header: the same fields in all dialects, as digits or as binary numbers.

use crate::{Device, Kind};

/// How the numbers of a header are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Eight hexadecimal digits each; everything lies on multiples of four bytes.
    Newc,
    /// The same, with the sum of all bytes of a file.
    Crc,
    /// Six or eleven octal digits, nothing in between.
    Odc,
    /// Words of 16 bits; everything lies on multiples of two bytes.
    Binary(Order),
}

/// Which byte of a word of 16 bits comes first. Of two words the upper one always does, as on a PDP-11.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// Bytes of the longest header.
pub(super) const LONGEST: usize = 110;

/// Bytes of the longest name of a header that is searched for.
const LONGEST_NAME: u64 = 64 << 10;

/// The name of the last entry of each archive.
pub(super) const TRAILER: &[u8] = b"TRAILER!!!";

/// Types of files, as `st_mode` has them.
const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;
const BLOCKS: u32 = 0o060_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;

impl Dialect {
    /// By the magic at the start of a header.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'0', b'7', b'0', b'7', b'0', b'1', ..] => Some(Self::Newc),
            [b'0', b'7', b'0', b'7', b'0', b'2', ..] => Some(Self::Crc),
            [b'0', b'7', b'0', b'7', b'0', b'7', ..] => Some(Self::Odc),
            [0xc7, 0x71, ..] => Some(Self::Binary(Order::Little)),
            [0x71, 0xc7, ..] => Some(Self::Binary(Order::Big)),
            _ => None,
        }
    }

    /// Bytes of its header without the name.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Newc | Self::Crc => LONGEST,
            Self::Odc => 76,
            Self::Binary(_) => 26,
        }
    }

    /// Bytes that fill up what takes `length` bytes, counted from the start of a header.
    pub(super) fn padding(self, length: u64) -> u64 {
        let unit = match self {
            Self::Newc | Self::Crc => 4,
            Self::Odc => 1,
            Self::Binary(_) => 2,
        };
        length.checked_next_multiple_of(unit).unwrap_or(length).saturating_sub(length)
    }

    /// True if only the last name of a file has its content.
    pub(super) fn stores_links_once(self) -> bool {
        matches!(self, Self::Newc | Self::Crc)
    }
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) dialect: Dialect,
    /// Type and permission bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Names that the file had where it was.
    pub(super) names: u32,
    /// Where that was; in dialects that have one number for it, as `major`.
    pub(super) on: Device,
    pub(super) inode: u32,
    pub(super) mtime: u64,
    pub(super) device: Device,
    /// Bytes of the name, with the NUL at its end.
    pub(super) name_length: u64,
    pub(super) size: u64,
    pub(super) checksum: u32,
}

impl Header {
    /// The header at the start of `bytes`; `None` if these are too few, or one of its numbers is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let dialect = Dialect::of(bytes)?;
        match dialect {
            Dialect::Newc | Dialect::Crc => Self::hexadecimal(dialect, bytes.first_chunk()?),
            Dialect::Odc => Self::octal(bytes.first_chunk()?).map(Self::without_device_as_size),
            Dialect::Binary(order) => Some(Self::binary(order, bytes.first_chunk()?).without_device_as_size()),
        }
    }

    /// HP-UX has the number of a device where the length of a file is, and 0,1 in place of the number to say so.
    fn without_device_as_size(mut self) -> Self {
        let has_no_content = matches!(self.mode & TYPE, CHARACTERS | BLOCKS | FIFO | SOCKET);
        if has_no_content && self.size != 0 && self.device == (Device { major: 0, minor: 1 }) {
            let number = self.size;
            // As the C library of Linux has it: GNU cpio writes and reads that.
            let minor = number & 0xff | number >> 12 & 0xf_ff00;
            self.device = Device { major: (number >> 8 & 0xfff) as u32, minor: minor as u32 };
            self.size = 0;
        }
        self
    }

    fn hexadecimal(dialect: Dialect, bytes: &[u8; 110]) -> Option<Self> {
        let field = |at: usize| number::<16>(bytes.get(at..)?.get(..8)?).and_then(|value| u32::try_from(value).ok());
        Some(Self {
            dialect,
            inode: field(6)?,
            mode: field(14)?,
            uid: field(22)?,
            gid: field(30)?,
            names: field(38)?,
            mtime: field(46)?.into(),
            size: field(54)?.into(),
            on: Device { major: field(62)?, minor: field(70)? },
            device: Device { major: field(78)?, minor: field(86)? },
            name_length: field(94)?.into(),
            checksum: field(102)?,
        })
    }

    fn octal(bytes: &[u8; 76]) -> Option<Self> {
        let long = |at: usize| number::<8>(bytes.get(at..)?.get(..11)?);
        let field = |at: usize| number::<8>(bytes.get(at..)?.get(..6)?).and_then(|value| u32::try_from(value).ok());
        Some(Self {
            dialect: Dialect::Odc,
            on: Device { major: field(6)?, minor: 0 },
            inode: field(12)?,
            mode: field(18)?,
            uid: field(24)?,
            gid: field(30)?,
            names: field(36)?,
            device: old_device(field(42)?),
            mtime: long(48)?,
            name_length: field(59)?.into(),
            size: long(65)?,
            checksum: 0,
        })
    }

    fn binary(order: Order, bytes: &[u8; 26]) -> Self {
        let (words, _) = bytes.as_chunks::<2>();
        let mut words = words.iter().map(|&word| match order {
            Order::Little => u16::from_le_bytes(word),
            Order::Big => u16::from_be_bytes(word),
        });
        let mut next = || words.next().unwrap_or_default().into();
        let [_, on, inode, mode, uid, gid, names, device] = std::array::from_fn(|_| next());
        let [mtime_upper, mtime_lower, name_length, size_upper, size_lower]: [u32; 5] = std::array::from_fn(|_| next());
        Self {
            dialect: Dialect::Binary(order),
            on: Device { major: on, minor: 0 },
            inode,
            mode,
            uid,
            gid,
            names,
            device: old_device(device),
            mtime: (mtime_upper << 16 | mtime_lower).into(),
            name_length: name_length.into(),
            size: (size_upper << 16 | size_lower).into(),
            checksum: 0,
        }
    }

    /// What its type stands for; `None` if it is not known. A symbolic link has its target as its content.
    pub(super) fn kind(&self) -> Option<Kind> {
        Some(match self.mode & TYPE {
            FILE => Kind::File,
            FOLDER => Kind::Folder,
            SYMLINK => Kind::Symlink,
            CHARACTERS => Kind::CharacterDevice(self.device),
            BLOCKS => Kind::BlockDevice(self.device),
            FIFO => Kind::Fifo,
            SOCKET => Kind::Socket,
            _ => return None,
        })
    }
}

/// Digits in that base, perhaps behind blanks.
fn number<const BASE: u32>(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_start();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(BASE)?;
        value.checked_mul(BASE.into())?.checked_add(digit.into())
    })
}

/// A device as one number: its lower eight bits are the minor one.
fn old_device(device: u32) -> Device {
    Device { major: device >> 8, minor: device & 0xff }
}

/// True if `bytes` begin with a header of that dialect that some cpio has written: for telling it from bytes that look
/// like one.
pub(super) fn is_plausible(bytes: &[u8], dialect: Dialect) -> bool {
    has_header(bytes, dialect, &mut None)
}

/// Where in `bytes`, at any byte, the first such header begins.
pub(super) fn find(bytes: &[u8], dialect: Dialect) -> Option<usize> {
    let first = match dialect {
        Dialect::Binary(Order::Little) => 0xc7,
        Dialect::Binary(Order::Big) => 0x71,
        _ => b'0',
    };
    let mut nul = None;
    let mut at = 0_usize;
    loop {
        at = at.saturating_add(bytes.get(at..)?.iter().position(|&byte| byte == first)?);
        // Counted from there on.
        let mut nul_behind = nul.and_then(|nul: usize| nul.checked_sub(at));
        if has_header(bytes.get(at..)?, dialect, &mut nul_behind) {
            return Some(at);
        }
        nul = nul_behind.map(|nul| nul.saturating_add(at));
        at = at.saturating_add(1);
    }
}

/// `nul` is where the first NUL behind the header or one before it is, if that is known: the length of `bytes` if there
/// is none.
fn has_header(bytes: &[u8], dialect: Dialect, nul: &mut Option<usize>) -> bool {
    if Dialect::of(bytes) != Some(dialect) {
        return false;
    }
    let Some(header) = Header::read(bytes).filter(|header| (1..=LONGEST_NAME).contains(&header.name_length)) else {
        return false;
    };
    let start = dialect.length();
    let name = bytes.get(start..).unwrap_or_default();
    // The last entry has no type.
    if header.kind().is_none() && !(name.starts_with(TRAILER) && header.size == 0) {
        return false;
    }
    // Where many headers seem to be, the same bytes are not searched for each of them.
    if nul.is_none_or(|nul| nul < start) {
        let found = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        *nul = Some(found.saturating_add(start));
    }
    let end = header.name_length.saturating_add(start as u64).saturating_sub(1);
    // Not all of it need be here.
    nul.is_some_and(|nul| nul as u64 == end || nul >= bytes.len() && end > nul as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_entry_in_all_dialects() {
        let header = |dialect, on| Header {
            dialect,
            mode: 0o100_644,
            uid: 1000,
            gid: 100,
            names: 2,
            on,
            inode: 77,
            mtime: 0x5a5b_5c5d,
            device: Device { major: 1, minor: 3 },
            name_length: 3,
            size: 0x0001_0002,
            checksum: 0,
        };
        let on = Device { major: 8, minor: 1 };
        let newc = b"0707010000004D000081A4000003e800000064000000025a5b5c5d0001000200000008000000010000000100000003\
            0000000300000000ab\0";
        assert_eq!(Header::read(newc), Some(header(Dialect::Newc, on)));
        let odc = b"0707070040010001151006440017500001440000020004031322665613500000300000200002ab\0";
        let on = Device { major: 0o4001, minor: 0 };
        assert_eq!(Header::read(odc), Some(header(Dialect::Odc, on)));
        let words = [0o070_707, 0o4001, 77, 0o100_644, 1000, 100, 2, 0x103, 0x5a5b, 0x5c5d, 3, 1, 2_u16];
        let little: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain(*b"ab\0").collect();
        let big: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).chain(*b"ab\0").collect();
        assert_eq!(Header::read(&little), Some(header(Dialect::Binary(Order::Little), on)));
        assert_eq!(Header::read(&big), Some(header(Dialect::Binary(Order::Big), on)));
        for bytes in [&newc[..], odc, &little, &big] {
            let dialect = Dialect::of(bytes).unwrap();
            assert!(is_plausible(bytes, dialect) && Header::read(&bytes[..dialect.length() - 1]).is_none());
            let behind = [b"0070707\xc7\x71\xc7 0", bytes].concat();
            assert_eq!(find(&behind, dialect), Some(12));
            let mut other = bytes.to_vec();
            other[dialect.length()] = 0;
            assert!(!is_plausible(&other, dialect));
        }
    }

    /// Bytes made to look like headers everywhere are searched in a time that does not grow with their square.
    #[test]
    fn searching_looks_at_each_name_once() {
        let words = [0o070_707_u16, 0o100_644].map(u16::to_le_bytes).concat();
        let bytes = words.repeat(1 << 19);
        assert_eq!(find(&bytes[..bytes.len() - 60_000], Dialect::Binary(Order::Big)), None);
        let found = find(&bytes, Dialect::Binary(Order::Little));
        // At the end a name may go on behind what is there.
        assert!(found.is_none_or(|at| at > bytes.len() - 60_000), "{found:?}");
    }
}
