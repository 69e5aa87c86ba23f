//! What stands at the start of a file.

use zlib_rs::adler32::adler32;

pub(super) const MAGIC: [u8; 9] = *b"\x89LZO\0\r\n\x1a\n";

/// Bytes of the longest header: magic, three versions, method, level, flags, filter, mode, two halves of a time, name,
/// checksum.
pub(super) const LONGEST: usize = 9 + 6 + 2 + 4 + 4 + 4 + 8 + 1 + 255 + 4;

/// Since this version there are a version needed to extract, a level, and the upper half of the time.
const WITH_LEVEL: u16 = 0x0940;

/// The methods that are LZO1X, by different compressors.
const LZO1X: std::ops::RangeInclusive<u8> = 1..=3;

/// What a header's flags say of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u32);

impl Flags {
    const ADLER32_OF_DECODED: u32 = 0x1;
    const ADLER32_OF_PACKED: u32 = 0x2;
    const EXTRA_FIELD: u32 = 0x40;
    const CRC32_OF_DECODED: u32 = 0x100;
    const CRC32_OF_PACKED: u32 = 0x200;
    const FILTER: u32 = 0x800;
    const CRC32_OF_HEADER: u32 = 0x1000;

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Which checksums of its decoded bytes a block has: Adler-32, CRC-32.
    pub(super) fn of_decoded(self) -> [bool; 2] {
        [self.has(Self::ADLER32_OF_DECODED), self.has(Self::CRC32_OF_DECODED)]
    }

    /// Which checksums a block has: of its decoded bytes, and, unless it is stored, of its compressed ones.
    pub(super) fn checksums(self, is_stored: bool) -> [bool; 4] {
        let ([first, second], [third, fourth]) = (self.of_decoded(), self.of_packed());
        [first, second, third && !is_stored, fourth && !is_stored]
    }

    /// Which checksums of its compressed bytes a block has that is not stored.
    pub(super) fn of_packed(self) -> [bool; 2] {
        [self.has(Self::ADLER32_OF_PACKED), self.has(Self::CRC32_OF_PACKED)]
    }
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: Flags,
    pub(super) length: usize,
    /// An extra field follows.
    pub(super) extra: bool,
}

/// What stands where a file may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Header(Header),
    /// Less than a header, and as far as it goes it may be one. At the end of the file also: nothing.
    Cut,
    Other,
}

impl Start {
    /// Reads the first bytes of a file, [`LONGEST`] or as many as there are. The error says what is wrong with its
    /// header.
    pub(super) fn parse(head: &[u8]) -> Result<Self, String> {
        let Some(behind) = head.strip_prefix(&MAGIC) else {
            return Ok(if MAGIC.starts_with(head) { Self::Cut } else { Self::Other });
        };
        let mut fields = Fields(behind);
        let Some((flags, method, filter)) = fields.described() else { return Ok(Self::Cut) };
        let length = behind.len() - fields.0.len();
        let Some(stated) = fields.take().map(u32::from_be_bytes) else { return Ok(Self::Cut) };
        let described = &behind[..length];
        let crc = flags.has(Flags::CRC32_OF_HEADER);
        let computed = if crc { crc32fast::hash(described) } else { adler32(1, described) };
        if stated != computed {
            return Err(format!("a header whose checksum is {stated:#010x}, its bytes give {computed:#010x}"));
        }
        if !LZO1X.contains(&method) {
            return Err(format!("the file is compressed with method {method}, only LZO1X (1 to 3) is known"));
        }
        if filter != 0 {
            return Err(format!("the file went through filter {filter} of lzop, none is known"));
        }
        let length = MAGIC.len() + length + 4;
        Ok(Self::Header(Header { flags, length, extra: flags.has(Flags::EXTRA_FIELD) }))
    }
}

/// What has not been read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Flags, method and filter; what has been read then is what the checksum is of. `None` if it is cut.
    fn described(&mut self) -> Option<(Flags, u8, u32)> {
        let [version, _library] = [self.take()?, self.take()?].map(u16::from_be_bytes);
        let with_level = version >= WITH_LEVEL;
        if with_level {
            self.take::<2>()?;
        }
        let [method] = self.take()?;
        if with_level {
            self.take::<1>()?;
        }
        let flags = Flags(u32::from_be_bytes(self.take()?));
        let filter = if flags.has(Flags::FILTER) { u32::from_be_bytes(self.take()?) } else { 0 };
        let _mode_and_time = self.take::<8>()?;
        if with_level {
            self.take::<4>()?;
        }
        let [name] = self.take()?;
        self.0 = self.0.get(usize::from(name)..)?;
        Some((flags, method, filter))
    }
}
