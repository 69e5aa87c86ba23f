//! gzip as BGZF: members of at most 64 KiB, each of which says in its header how long it is (SAM/BAM specification,
//! section 4.1). Whoever reads gzip reads it.

use std::io;
use std::ops::RangeInclusive;

use libdeflater::{CompressionLvl, Compressor as Deflater};

use super::{Block, Compression, Compressor, Frame, Point, failed};

/// gzip in members that say how long they are.
pub(super) struct Gzip;

/// Bytes in a member: as bgzip has it, so that its compressed form, which may be longer, still is at most 64 KiB.
const MEMBER: usize = 0xff00;

/// Members in a block.
const MEMBERS: usize = 16;

/// Header of a member, whose last two bytes are its length less one: no name, no time, and the extra field "BC".
const HEADER: [u8; 16] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0];
/// Length of the header with these two bytes, and of CRC-32 and length behind the data.
const HEAD: usize = 18;
const TAIL: usize = 8;

/// The empty member that says that the file is whole.
const END: [u8; 28] =
    [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0, 0x1b, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

struct Members(Deflater);

struct Ending;

impl Frame for Ending {
    fn end(&mut self) -> Vec<u8> {
        END.to_vec()
    }
}

impl Compressor for Members {
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()> {
        let mut decoded = 0;
        for member in data.chunks(MEMBER) {
            let start = block.bytes.len();
            block.points.push(Point { bit: start as u64 * 8, decoded, state: Vec::new() });
            block.bytes.extend_from_slice(&HEADER);
            block.bytes.extend_from_slice(&[0, 0]);
            let bound = self.0.deflate_compress_bound(member.len());
            block.bytes.resize(start + HEAD + bound, 0);
            let length = self
                .0
                .deflate_compress(member, &mut block.bytes[start + HEAD..])
                .map_err(|error| failed("deflate", error))?;
            block.bytes.truncate(start + HEAD + length);
            block.bytes.extend_from_slice(&crc32fast::hash(member).to_le_bytes());
            block.bytes.extend_from_slice(&(member.len() as u32).to_le_bytes());
            let whole = u16::try_from(HEAD + length + TAIL - 1).map_err(|error| failed("deflate", error))?;
            block.bytes[start + HEAD - 2..start + HEAD].copy_from_slice(&whole.to_le_bytes());
            decoded += member.len() as u64;
        }
        Ok(())
    }
}

impl Compression for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn suffix(&self) -> &'static str {
        ".gz"
    }

    fn short(&self) -> &'static [&'static str] {
        &[".tgz", ".taz"]
    }

    fn levels(&self) -> RangeInclusive<i32> {
        1..=12
    }

    fn usual_level(&self) -> i32 {
        6
    }

    fn block(&self, _: i32) -> usize {
        MEMBER * MEMBERS
    }

    fn part(&self, _: i32) -> usize {
        MEMBER
    }

    fn memory(&self, _: i32) -> u64 {
        10 << 20
    }

    fn spacing(&self) -> u64 {
        // Three quarters of what a first pass leaves between points that take memory.
        384 << 10
    }

    fn compressor(&self, level: i32) -> io::Result<Box<dyn Compressor>> {
        let level = CompressionLvl::new(level).map_err(|error| failed("deflate", format!("{error:?}")))?;
        Ok(Box::new(Members(Deflater::new(level))))
    }

    fn frame(&self, _: i32) -> Box<dyn Frame> {
        Box::new(Ending)
    }
}
