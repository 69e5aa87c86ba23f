//! What stands at the start of a frame.

use xxhash_rust::xxh32::xxh32;

use crate::starts;

/// "LZ4 Frame Format", General Structure.
pub(super) const MAGIC: u32 = 0x184D_2204;
/// "Legacy frame": what `lz4 -l` writes, and the Linux kernel reads.
pub(super) const LEGACY_MAGIC: u32 = 0x184C_2102;
/// "Skippable Frames": any of 16 numbers.
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;

/// Decoded bytes of each block of a legacy frame but its last.
pub(super) const LEGACY_BLOCK: usize = 8 << 20;

/// Bytes of the longest header: magic, flags, block size, content size, dictionary number, checksum.
pub(super) const LONGEST_HEADER: usize = 4 + 2 + 8 + 4 + 1;

/// What a frame's header says ("Frame Descriptor").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The FLG byte.
    pub(super) flags: u8,
    /// The BD byte.
    pub(super) block: u8,
    /// Decoded bytes in the frame, if the header tells.
    pub(super) content_size: Option<u64>,
}

/// What stands where a frame may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// A frame, with the length of its header.
    Frame { descriptor: Descriptor, length: usize },
    /// A legacy frame; its header is the magic number alone.
    Legacy,
    /// A skippable frame of this length in bytes, header included.
    Skippable { length: u64 },
    /// A frame that was made with a dictionary.
    NeedsDictionary,
    /// Less than a header, and as far as it goes it may be one. At the end of the stream also: nothing.
    Cut,
    /// No frame.
    Other,
}

impl Start {
    /// The frame whose magic is `head` but for one byte that is damaged.
    pub(super) fn of_damaged_magic(head: &[u8]) -> Option<Self> {
        let head = head.get(..LONGEST_HEADER.min(head.len()))?;
        let mended = |magic: u32| Self::parse(&starts::mended(head, &magic.to_le_bytes())?).ok();
        let is_frame = |start: &Self| matches!(start, Self::Frame { .. } | Self::Legacy);
        mended(MAGIC).or_else(|| mended(LEGACY_MAGIC)).filter(is_frame)
    }

    /// Reads the first bytes of a frame, [`LONGEST_HEADER`] or as many as there are. The error says what is wrong
    /// with a header.
    pub(super) fn parse(head: &[u8]) -> Result<Self, String> {
        let Some((magic, rest)) = head.split_first_chunk::<4>() else {
            let skippable = SKIPPABLE_MAGIC.to_le_bytes();
            let possible = MAGIC.to_le_bytes().starts_with(head)
                || LEGACY_MAGIC.to_le_bytes().starts_with(head)
                || head.first().is_some_and(|first| first & 0xF0 == skippable[0])
                    && skippable[1..].starts_with(&head[1..]);
            return Ok(if possible { Self::Cut } else { Self::Other });
        };
        match u32::from_le_bytes(*magic) {
            MAGIC => Self::parse_descriptor(rest),
            LEGACY_MAGIC => Ok(Self::Legacy),
            magic if magic & !0xF == SKIPPABLE_MAGIC => Ok(match rest.first_chunk() {
                Some(length) => Self::Skippable { length: 8 + u64::from(u32::from_le_bytes(*length)) },
                None => Self::Cut,
            }),
            _ => Ok(Self::Other),
        }
    }

    fn parse_descriptor(rest: &[u8]) -> Result<Self, String> {
        let &[flags, block, ..] = rest else { return Ok(Self::Cut) };
        let mut descriptor = Descriptor { flags, block, content_size: None };
        // Before the checksum: another version may have it elsewhere.
        if flags >> 6 != 1 {
            return Err(format!("its version is {}, only 1 is known", flags >> 6));
        }
        let mut length = 2;
        if flags & 0b1000 != 0 {
            let Some(size) = rest.get(length..).and_then(<[u8]>::first_chunk) else { return Ok(Self::Cut) };
            descriptor.content_size = Some(u64::from_le_bytes(*size));
            length += 8;
        }
        let dictionary = flags & 1 != 0;
        if dictionary {
            length += 4;
        }
        let (Some(header), Some(&found)) = (rest.get(..length), rest.get(length)) else { return Ok(Self::Cut) };
        let expected = (xxh32(header, 0) >> 8) as u8;
        if found != expected {
            return Err(format!("its checksum is {found:#04x}, its bytes give {expected:#04x}"));
        }
        if flags & 0b10 != 0 || block & 0b1000_1111 != 0 || block >> 4 < 4 {
            return Err(format!("its bytes {flags:#04x} {block:#04x} have reserved values"));
        }
        if dictionary {
            return Ok(Self::NeedsDictionary);
        }
        Ok(Self::Frame { descriptor, length: 4 + length + 1 })
    }
}

impl Descriptor {
    /// No block refers to an earlier one.
    pub(super) fn independent_blocks(&self) -> bool {
        self.flags & 0b10_0000 != 0
    }

    /// Each block is followed by the XXH32 of its compressed bytes.
    pub(super) fn block_checksums(&self) -> bool {
        self.flags & 0b1_0000 != 0
    }

    /// The frame is followed by the XXH32 of its decoded bytes.
    pub(super) fn content_checksum(&self) -> bool {
        self.flags & 0b100 != 0
    }

    /// Decoded bytes that a block may have: 64 KiB, 256 KiB, 1 MiB or 4 MiB.
    pub(super) fn largest_block(&self) -> usize {
        1 << (8 + 2 * usize::from((self.block >> 4) & 7))
    }
}
