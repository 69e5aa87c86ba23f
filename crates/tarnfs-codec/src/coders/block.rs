//! Blocks that are decoded at once: containers that cut their files into blocks (squashfs) name these coders.
//!
//! There is nothing to resume and no seek point: a block is at most a megabyte or so, and comes out as a whole. A block
//! does not say how long it is when it is decoded; who decodes it knows how long it may be.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use liblzma::stream::{Action, Status, Stream};
use tarnfs_source::MemorySource;
use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};
use zstd_safe::DCtx;

use super::{adc, lzfse, lznt1, padded};
use crate::lzop::lzo1x;
use crate::{Codec as _, DecodeContext, Pace, SeekPoint, bzip2};

/// Decodes blocks of one compression.
pub trait BlockCoder: Send + Sync + Debug {
    /// Its name, as it stands in an index: "zlib-block".
    fn name(&self) -> &'static str;

    /// Decodes all of `stored` to the start of `decoded`, and says how many bytes that is.
    ///
    /// `InvalidData` where the block is damaged, or where more comes of it than there is room for. What is in `decoded`
    /// then means nothing. A checksum in the block is verified.
    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize>;

    /// How fast it decodes.
    fn pace(&self) -> Pace {
        Pace { in_whole_chunks: true, ..Pace::default() }
    }

    /// Bytes of memory that it takes while it decodes to `decoded` bytes, beside what it is given.
    fn memory(&self, decoded: usize) -> usize;
}

/// All of them.
pub static BLOCK_CODERS: &[&dyn BlockCoder] = &[
    &Bzip2Block,
    &Lz4Block,
    &LzmaBlock,
    &Lzo1xBlock,
    &XzBlock,
    &ZlibBlock,
    &ZstdBlock,
    &adc::AdcBlock,
    &lzfse::LzfseBlock,
    &lzfse::LzvnBlock,
    &lznt1::Lznt1Block,
    &padded::DEFLATE_BEHIND_ZEROS,
    &padded::DEFLATE_IN_FRONT,
    &padded::Grain,
    &padded::LZ4_BEHIND_ZEROS,
    &padded::LZ4_IN_PART,
    &padded::MICROLZMA_BEHIND_ZEROS,
    &padded::Repeated,
    &padded::ZSTD_BEHIND_ZEROS,
    &padded::ZSTD_IN_FRONT,
    &padded::Zeros,
];

/// The one of that name.
pub fn block_coder_by_name(name: &str) -> Option<&'static dyn BlockCoder> {
    BLOCK_CODERS.iter().copied().find(|coder| coder.name() == name)
}

/// Bytes of memory for a decoder of LZMA, in `.lzma` and `.xz`: its dictionary is as large as a block, but nothing
/// keeps a header from saying otherwise. mksquashfs and the kernel draw the line here, too.
const MOST_FOR_LZMA: u64 = 32 << 20;

pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a block cannot be decoded: {what}"))
}

const TOO_LONG: &str = "it is longer than it may be";

/// zlib (RFC 1950), with its Adler-32: what squashfs calls gzip.
#[derive(Debug)]
struct ZlibBlock;

impl BlockCoder for ZlibBlock {
    fn name(&self) -> &'static str {
        "zlib-block"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        match decompress_slice(decoded, stored, InflateConfig { window_bits: 15 }) {
            (bytes, ReturnCode::Ok) => Ok(bytes.len()),
            (_, ReturnCode::BufError) => Err(damaged("it is cut, or longer than it may be")),
            (_, ReturnCode::MemError) => Err(io::ErrorKind::OutOfMemory.into()),
            _ => Err(damaged("its zlib data, or their checksum, are wrong")),
        }
    }

    fn memory(&self, _: usize) -> usize {
        64 << 10
    }
}

/// A `.bz2` file, with its checksums.
#[derive(Debug)]
struct Bzip2Block;

impl BlockCoder for Bzip2Block {
    fn name(&self) -> &'static str {
        "bzip2-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 30_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let stored = Arc::new(MemorySource::new(stored.to_vec(), "a block"));
        let mut decoder = bzip2::Bzip2.resume(stored, &SeekPoint::default(), &DecodeContext::default())?;
        let mut end = 0;
        loop {
            let room = decoded.get_mut(end..).unwrap_or_default();
            let mut one = [0];
            let is_full = room.is_empty();
            // What comes behind the last byte is either nothing, or too much.
            let read = decoder.read(if is_full { &mut one } else { room });
            match read.map_err(|error| damaged(&error.to_string()))? {
                0 => return Ok(end),
                _ if is_full => return Err(damaged(TOO_LONG)),
                read => end += read,
            }
        }
    }

    /// What a block of 900 000 bytes takes.
    fn memory(&self, _: usize) -> usize {
        6 << 20
    }
}

/// LZMA behind the header of a `.lzma` file.
#[derive(Debug)]
struct LzmaBlock;

impl BlockCoder for LzmaBlock {
    fn name(&self) -> &'static str {
        "lzma-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        run(Stream::new_lzma_decoder(MOST_FOR_LZMA), stored, decoded)
    }

    fn memory(&self, decoded: usize) -> usize {
        decoded.saturating_add(128 << 10)
    }
}

/// An `.xz` file, with its filters and its check.
#[derive(Debug)]
struct XzBlock;

impl BlockCoder for XzBlock {
    fn name(&self) -> &'static str {
        "xz-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        run(Stream::new_stream_decoder(MOST_FOR_LZMA, 0), stored, decoded)
    }

    fn memory(&self, decoded: usize) -> usize {
        decoded.saturating_add(128 << 10)
    }
}

/// Lets a decoder of liblzma run over a whole block.
fn run(stream: Result<Stream, liblzma::stream::Error>, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
    use liblzma::stream::Error;
    let wrong = |error: Error| match error {
        Error::Mem => io::ErrorKind::OutOfMemory.into(),
        Error::MemLimit => damaged("its dictionary is larger than 32 MiB"),
        Error::NoCheck | Error::UnsupportedCheck | Error::Options => {
            damaged("it has filters or a check of no known kind")
        }
        Error::Format => damaged("its header is wrong"),
        _ => damaged("its data, or their check, are wrong"),
    };
    let mut stream = stream.map_err(wrong)?;
    loop {
        let before = (stream.total_in(), stream.total_out());
        // No more was decoded than there was room for.
        let rest = stored.get(before.0 as usize..).unwrap_or_default();
        let room = decoded.get_mut(before.1 as usize..).unwrap_or_default();
        let is_full = room.is_empty();
        let status = stream.process(rest, room, Action::Finish).map_err(wrong)?;
        if status == Status::StreamEnd {
            return Ok(stream.total_out() as usize);
        }
        if (stream.total_in(), stream.total_out()) == before {
            return Err(damaged(if is_full { TOO_LONG } else { "it is cut" }));
        }
    }
}

/// LZO1X without a header.
#[derive(Debug)]
struct Lzo1xBlock;

impl BlockCoder for Lzo1xBlock {
    fn name(&self) -> &'static str {
        "lzo1x-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        lzo1x::decompress_up_to(stored, decoded).map_err(|_| damaged("its LZO data are wrong"))
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

/// LZ4 without a frame.
#[derive(Debug)]
struct Lz4Block;

impl BlockCoder for Lz4Block {
    fn name(&self) -> &'static str {
        "lz4-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        lz4_flex::block::decompress_into(stored, decoded).map_err(|error| damaged(&format!("its LZ4 data: {error}")))
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

/// A frame of zstd.
#[derive(Debug)]
struct ZstdBlock;

thread_local! {
    /// A context takes 160 KiB and is the same for all blocks that a thread decodes.
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

impl BlockCoder for ZstdBlock {
    fn name(&self) -> &'static str {
        "zstd-block"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: true }
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        ZSTD.with_borrow_mut(|context| {
            if context.is_none() {
                *context = Some(DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?);
            }
            let Some(context) = context else { return Err(io::ErrorKind::OutOfMemory.into()) };
            let length = context.decompress(decoded, stored);
            length.map_err(|code| damaged(&format!("its zstd data: {}", zstd_safe::get_error_name(code))))
        })
    }

    /// The window is what was decoded.
    fn memory(&self, _: usize) -> usize {
        160 << 10
    }
}

#[cfg(test)]
mod tests {
    use liblzma::stream::{Check, Filters, LzmaOptions};
    use zlib_rs::{DeflateConfig, compress_bound, compress_slice};

    use super::*;

    fn text() -> Vec<u8> {
        (0..20_000_u32).flat_map(|number| number.to_string().into_bytes()).collect()
    }

    fn by_liblzma(mut stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(bytes.len() + 1000);
        assert_eq!(stream.process_vec(bytes, &mut packed, Action::Finish).unwrap(), Status::StreamEnd);
        packed
    }

    /// What each coder has to decode, of other programs' making.
    fn packed(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let mut zlib = vec![0; compress_bound(bytes.len())];
        let zlib = compress_slice(&mut zlib, bytes, DeflateConfig::default()).0.to_vec();
        let mut zstd = vec![0; zstd_safe::compress_bound(bytes.len())];
        let length = zstd_safe::compress(&mut zstd[..], bytes, 3).unwrap();
        zstd.truncate(length);
        let options = LzmaOptions::new_preset(6).unwrap();
        let mut filters = Filters::new();
        filters.x86().lzma2(&options);
        vec![
            ("zlib-block", zlib),
            ("zstd-block", zstd),
            ("bzip2-block", crate::testing::tool("bzip2 -c", bytes)),
            ("lz4-block", lz4_flex::block::compress(bytes)),
            ("lzma-block", by_liblzma(Stream::new_lzma_encoder(&options).unwrap(), bytes)),
            ("xz-block", by_liblzma(Stream::new_easy_encoder(6, Check::Crc32).unwrap(), bytes)),
            ("xz-block", by_liblzma(Stream::new_stream_encoder(&filters, Check::Crc64).unwrap(), bytes)),
        ]
    }

    #[test]
    fn a_block_is_what_it_was_and_never_more_than_there_is_room_for() {
        let text = text();
        for (name, stored) in packed(&text) {
            let coder = block_coder_by_name(name).unwrap();
            for room in [text.len(), text.len() + 1, 2 * text.len()] {
                let mut decoded = vec![0; room];
                assert_eq!(coder.decode(&stored, &mut decoded).unwrap(), text.len(), "{name}");
                assert!(decoded[..text.len()] == text, "{name}");
            }
            for room in [0, 1, text.len() - 1] {
                let kind = coder.decode(&stored, &mut vec![0; room]).unwrap_err().kind();
                assert_eq!(kind, io::ErrorKind::InvalidData, "{name}, {room}");
            }
        }
        assert!(block_coder_by_name("zlib").is_none(), "what has seek points is no block");
    }

    #[test]
    fn what_is_cut_or_flipped_is_an_error_where_there_is_a_checksum() {
        let text = text();
        for (name, stored) in packed(&text) {
            let coder = block_coder_by_name(name).unwrap();
            let mut decoded = vec![0; text.len()];
            for length in (0..stored.len()).step_by(stored.len() / 50) {
                let found = coder.decode(&stored[..length], &mut decoded);
                // LZ4 has no end of its own, and no frames of zstd are none.
                assert!(found.is_err() || found.unwrap() < text.len(), "{name}: cut at {length}");
            }
            for place in (0..stored.len()).step_by(stored.len() / 97) {
                let mut wrong = stored.clone();
                wrong[place] ^= 0x10;
                let found = coder.decode(&wrong, &mut decoded);
                let has_checksum = matches!(name, "bzip2-block" | "zlib-block" | "xz-block");
                assert!(!has_checksum || found.is_err() || decoded == text, "{name}: flipped at {place}");
            }
        }
    }

    #[test]
    fn a_dictionary_that_no_block_needs_is_refused() {
        let mut lzma = vec![0x5d, 0, 0, 0, 0x40];
        lzma.extend([0xff; 8]);
        lzma.extend([0; 30]);
        let error = block_coder_by_name("lzma-block").unwrap().decode(&lzma, &mut [0; 100]).unwrap_err();
        assert!(error.to_string().contains("dictionary"), "{error}");
    }

    #[test]
    fn literals_of_lzo_need_not_fill_the_room() {
        let coder = block_coder_by_name("lzo1x-block").unwrap();
        let stored = [22, b'h', b'e', b'l', b'l', b'o', 0x11, 0, 0];
        let mut decoded = [0; 9];
        assert_eq!(coder.decode(&stored, &mut decoded).unwrap(), 5);
        assert_eq!(&decoded[..5], b"hello");
        assert!(coder.decode(&stored, &mut [0; 4]).is_err());
        assert!(coder.decode(&stored[..8], &mut decoded).is_err());
    }
}
