//! Blocks that share their place with something else: zeros before the data or anything behind them, a header of their
//! own, or more data than are wanted. Images of disks and file systems have them.

use std::cell::RefCell;
use std::io;

use liblzma::stream::{Action, Status, Stream};
use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};
use zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use super::block::{BlockCoder, damaged};
use crate::Pace;

/// Where the data lie in what is stored, and how much of what comes of them is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// At the start, and anything is behind them; all is wanted.
    InFront,
    /// At the end, behind zeros; as much is wanted as there is room for.
    BehindZeros,
    /// The same, at the start.
    InFrontInPart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Deflate (RFC 1951) without a header.
    Deflate,
    Lz4,
    /// LZMA whose first byte, which is always 0, has its properties, inverted (liblzma: `lzma_microlzma_decoder`).
    MicroLzma,
    /// Frames, one behind the other.
    Zstd,
}

/// The coder of one method.
#[derive(Debug)]
pub(super) struct Padded {
    name: &'static str,
    method: Method,
    lies: Lies,
}

/// All of them.
pub(super) static DEFLATE_IN_FRONT: Padded =
    Padded { name: "deflate-in-front", method: Method::Deflate, lies: Lies::InFront };
pub(super) static ZSTD_IN_FRONT: Padded = Padded { name: "zstd-in-front", method: Method::Zstd, lies: Lies::InFront };
pub(super) static LZ4_IN_PART: Padded = Padded { name: "lz4-in-part", method: Method::Lz4, lies: Lies::InFrontInPart };
pub(super) static LZ4_BEHIND_ZEROS: Padded =
    Padded { name: "lz4-behind-zeros", method: Method::Lz4, lies: Lies::BehindZeros };
pub(super) static MICROLZMA_BEHIND_ZEROS: Padded =
    Padded { name: "microlzma-behind-zeros", method: Method::MicroLzma, lies: Lies::BehindZeros };
pub(super) static DEFLATE_BEHIND_ZEROS: Padded =
    Padded { name: "deflate-behind-zeros", method: Method::Deflate, lies: Lies::BehindZeros };
pub(super) static ZSTD_BEHIND_ZEROS: Padded =
    Padded { name: "zstd-behind-zeros", method: Method::Zstd, lies: Lies::BehindZeros };

impl BlockCoder for Padded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let zeros = match self.lies {
            Lies::BehindZeros => stored.iter().take_while(|byte| **byte == 0).count(),
            Lies::InFront | Lies::InFrontInPart => 0,
        };
        let stored = &stored[zeros..];
        if stored.is_empty() {
            return Err(damaged("it is all zeros"));
        }
        let in_part = self.lies != Lies::InFront;
        match self.method {
            Method::Deflate => inflate(stored, decoded, in_part),
            Method::Lz4 => lz4(stored, decoded),
            Method::MicroLzma => microlzma(stored, decoded),
            Method::Zstd => zstd(stored, decoded, in_part),
        }
    }

    fn pace(&self) -> Pace {
        let bytes_per_millisecond = match self.method {
            Method::Deflate => 400_000,
            Method::Lz4 => 2_000_000,
            Method::MicroLzma => 100_000,
            Method::Zstd => 1_000_000,
        };
        Pace { bytes_per_millisecond, in_whole_chunks: true }
    }

    fn memory(&self, decoded: usize) -> usize {
        match self.method {
            Method::Deflate => 64 << 10,
            Method::Lz4 => 0,
            Method::MicroLzma => decoded.saturating_add(128 << 10),
            // As a stream it has a window of its own.
            Method::Zstd => decoded.saturating_add(384 << 10),
        }
    }
}

fn inflate(stored: &[u8], decoded: &mut [u8], in_part: bool) -> io::Result<usize> {
    let room = decoded.len();
    match decompress_slice(decoded, stored, InflateConfig { window_bits: -15 }) {
        (bytes, ReturnCode::Ok) => Ok(bytes.len()),
        (bytes, ReturnCode::BufError) if in_part && bytes.len() == room => Ok(room),
        (_, ReturnCode::BufError) => Err(damaged("it is cut, or longer than it may be")),
        (_, ReturnCode::MemError) => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Err(damaged("its deflate data are wrong")),
    }
}

/// A block of LZ4 as far as there is room.
fn lz4(stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
    // Most blocks end where the room does, and others are as rare as damaged ones.
    match lz4_flex::block::decompress_into(stored, decoded) {
        Ok(length) => Ok(length),
        Err(_) => lz4_in_part(stored, decoded).map_err(damaged),
    }
}

/// The same by the description of the format alone (lz4: doc/lz4_Block_format.md), and no further than that.
fn lz4_in_part(stored: &[u8], decoded: &mut [u8]) -> Result<usize, &'static str> {
    const CUT: &str = "its LZ4 data are cut";
    const SHORTEST_MATCH: usize = 4;
    let (mut at, mut filled) = (0, 0);
    // A length goes on in further bytes if all of its four bits are set.
    let length = |first: u8, at: &mut usize| -> Result<usize, &'static str> {
        let mut length = usize::from(first);
        let mut goes_on = first == 15;
        while goes_on {
            let byte = *stored.get(*at).ok_or(CUT)?;
            *at += 1;
            length = length.saturating_add(byte.into());
            goes_on = byte == 255;
        }
        Ok(length)
    };
    while filled < decoded.len() {
        let token = *stored.get(at).ok_or(CUT)?;
        at += 1;
        let wanted = length(token >> 4, &mut at)?;
        let room = decoded.len() - filled;
        let literals = stored.get(at..at.saturating_add(wanted.min(room))).ok_or(CUT)?;
        decoded[filled..filled + literals.len()].copy_from_slice(literals);
        filled += literals.len();
        at = at.saturating_add(wanted);
        if filled == decoded.len() || at == stored.len() {
            break;
        }
        let Some(&[low, high]) = stored.get(at..at.saturating_add(2)) else { return Err(CUT) };
        at += 2;
        let back = usize::from(u16::from_le_bytes([low, high]));
        let wanted = length(token & 15, &mut at)?.saturating_add(SHORTEST_MATCH);
        let from = filled.checked_sub(back).filter(|_| back > 0).ok_or("its LZ4 data lead to before its start")?;
        let end = filled + wanted.min(decoded.len() - filled);
        while filled < end {
            // What was copied is there to be copied, too.
            let count = (filled - from).min(end - filled);
            decoded.copy_within(from..from + count, filled);
            filled += count;
        }
    }
    Ok(filled)
}

fn microlzma(stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
    const LARGEST_PROPERTIES: u8 = 224;
    let Some((first, rest)) = stored.split_first() else { return Err(damaged("it is empty")) };
    let properties = !first;
    if properties > LARGEST_PROPERTIES || decoded.is_empty() {
        return Err(damaged("its first byte is none of LZMA"));
    }
    // What a `.lzma` file begins with: properties, dictionary, a length that is not known, and a byte that is 0.
    let dictionary = u32::try_from(decoded.len().max(4096)).map_err(|_| damaged("it is too long"))?;
    let mut header = [0xff; 14];
    header[0] = properties;
    header[1..5].copy_from_slice(&dictionary.to_le_bytes());
    header[13] = 0;
    let limit = u64::from(dictionary).saturating_add(1 << 20);
    let mut stream = Stream::new_lzma_decoder(limit).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let wrong = |_| damaged("its LZMA data are wrong");
    let mut filled = 0;
    for part in [&header[..], rest] {
        let start = stream.total_in();
        loop {
            let from = (stream.total_in() - start) as usize;
            let before = (from, filled);
            let status = stream.process(&part[from..], &mut decoded[filled..], Action::Run).map_err(wrong)?;
            filled = stream.total_out() as usize;
            if filled == decoded.len() || status == Status::StreamEnd {
                return Ok(filled);
            }
            let taken = (stream.total_in() - start) as usize;
            if taken == part.len() || (taken, filled) == before {
                break;
            }
        }
    }
    Err(damaged("its LZMA data are cut"))
}

thread_local! {
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Frames up to the end of the room; what is behind them is not looked at.
fn zstd(stored: &[u8], decoded: &mut [u8], in_part: bool) -> io::Result<usize> {
    /// Windows of blocks are no longer than these are.
    const LARGEST_WINDOW_LOG: u32 = 25;
    let wrong = |code| damaged(&format!("its zstd data: {}", zstd_safe::get_error_name(code)));
    ZSTD.with_borrow_mut(|context| {
        if context.is_none() {
            let mut new = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
            new.set_parameter(zstd_safe::DParameter::WindowLogMax(LARGEST_WINDOW_LOG)).map_err(wrong)?;
            *context = Some(new);
        }
        let Some(context) = context else { return Err(io::ErrorKind::OutOfMemory.into()) };
        context.reset(ResetDirective::SessionOnly).map_err(wrong)?;
        let room = decoded.len();
        let mut input = InBuffer::around(stored);
        let mut output = OutBuffer::around(decoded);
        loop {
            let before = (input.pos(), output.pos());
            let left = context.decompress_stream(&mut output, &mut input).map_err(wrong)?;
            let is_full = output.pos() == room;
            if is_full && (left == 0 || in_part) {
                return Ok(room);
            }
            if left == 0 && in_part {
                return Ok(output.pos());
            }
            if (input.pos(), output.pos()) == before || input.pos() == stored.len() && left != 0 && !is_full {
                return Err(damaged(if is_full { "it is longer than it may be" } else { "it is cut" }));
            }
            if input.pos() == stored.len() && left == 0 {
                return Ok(output.pos());
            }
        }
    })
}

/// zlib behind 12 bytes: a number, and how many bytes of zlib follow. Anything may be behind them.
#[derive(Debug)]
pub(super) struct Grain;

/// Bytes before the data, and where in them their length is.
const HEADER: usize = 12;
const LENGTH_AT: usize = 8;

impl BlockCoder for Grain {
    fn name(&self) -> &'static str {
        "zlib-behind-length"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let length = stored.get(LENGTH_AT..).and_then(|rest| rest.first_chunk()).map(|four| u32::from_le_bytes(*four));
        let data = length.and_then(|length| stored.get(HEADER..HEADER.checked_add(length as usize)?));
        let data = data.ok_or_else(|| damaged("it is longer than there is place for it"))?;
        match decompress_slice(decoded, data, InflateConfig { window_bits: 15 }) {
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

/// The same few bytes again and again.
#[derive(Debug)]
pub(super) struct Repeated;

impl BlockCoder for Repeated {
    fn name(&self) -> &'static str {
        "repeated"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        if stored.is_empty() {
            return Err(damaged("nothing is to be repeated"));
        }
        for part in decoded.chunks_mut(stored.len()) {
            let length = part.len();
            part.copy_from_slice(&stored[..length]);
        }
        Ok(decoded.len())
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

/// Zeros, whatever is stored: what an image of a disk does not store.
#[derive(Debug)]
pub(super) struct Zeros;

impl BlockCoder for Zeros {
    fn name(&self) -> &'static str {
        "zeros"
    }

    fn decode(&self, _: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        decoded.fill(0);
        Ok(decoded.len())
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::block_coder_by_name;
    use super::*;
    use liblzma::stream::{Filters, LzmaOptions};
    use zlib_rs::{DeflateConfig, compress_bound, compress_slice};

    fn text() -> Vec<u8> {
        (0..20_000_u32).flat_map(|number| number.to_string().into_bytes()).collect()
    }

    fn decoded(name: &str, stored: &[u8], room: usize) -> io::Result<Vec<u8>> {
        let mut decoded = vec![0xaa; room];
        let length = block_coder_by_name(name).unwrap().decode(stored, &mut decoded)?;
        decoded.truncate(length);
        Ok(decoded)
    }

    fn deflate(bytes: &[u8], window_bits: i32) -> Vec<u8> {
        let mut packed = vec![0; compress_bound(bytes.len())];
        let config = DeflateConfig { window_bits, ..DeflateConfig::default() };
        compress_slice(&mut packed, bytes, config).0.to_vec()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
        let length = zstd_safe::compress(&mut packed[..], bytes, 3).unwrap();
        packed.truncate(length);
        packed
    }

    /// As liblzma's raw encoder makes it: its first byte is 0, and becomes the properties.
    fn microlzma(bytes: &[u8]) -> Vec<u8> {
        let mut options = LzmaOptions::new_preset(6).unwrap();
        options.literal_context_bits(3).literal_position_bits(0).position_bits(2).dict_size(1 << 20);
        let mut filters = Filters::new();
        filters.lzma1(&options);
        let mut packed = Vec::with_capacity(bytes.len() + 1000);
        let mut stream = Stream::new_raw_encoder(&filters).unwrap();
        assert_eq!(stream.process_vec(bytes, &mut packed, Action::Finish).unwrap(), Status::StreamEnd);
        assert_eq!(packed[0], 0);
        packed[0] = !0x5d;
        packed
    }

    #[test]
    fn data_in_front_may_have_anything_behind_them() {
        let text = text();
        for (name, stored) in [("deflate-in-front", deflate(&text, -15)), ("zstd-in-front", zstd(&text))] {
            let padded = [&stored[..], &[0x55; 500]].concat();
            assert!(decoded(name, &padded, text.len()).unwrap() == text, "{name}");
            assert!(decoded(name, &stored[..stored.len() - 9], text.len()).is_err(), "{name}");
            assert!(decoded(name, &padded, text.len() - 1).is_err(), "{name}");
            assert!(decoded(name, &[], 10).is_err() && decoded(name, &[0xff; 40], 10).is_err(), "{name}");
        }
        let two = [zstd(&text[..1000]), zstd(&text[1000..3000]), vec![7; 9]].concat();
        assert!(decoded("zstd-in-front", &two, 3000).unwrap() == text[..3000]);
    }

    #[test]
    fn data_behind_zeros_are_decoded_as_far_as_there_is_room() {
        let text = text();
        for (name, stored) in [
            ("deflate-behind-zeros", deflate(&text, -15)),
            ("zstd-behind-zeros", zstd(&text)),
            ("lz4-behind-zeros", lz4_flex::block::compress(&text)),
            ("microlzma-behind-zeros", microlzma(&text)),
        ] {
            for zeros in [0, 1, 700] {
                let padded = [&vec![0; zeros][..], &stored].concat();
                for room in [1, 2, 9, 1000, text.len() - 1, text.len()] {
                    assert!(decoded(name, &padded, room).unwrap() == text[..room], "{name}: {room}");
                }
            }
            for length in (0..stored.len() - 20).step_by(stored.len() / 50) {
                let found = decoded(name, &stored[..length], text.len());
                assert!(found.is_err() || found.unwrap().len() < text.len(), "{name}: cut at {length}");
            }
            assert!(decoded(name, &[0; 100], 10).is_err(), "{name}");
        }
        let padded = [&lz4_flex::block::compress(&text)[..], &[0; 99]].concat();
        assert!(decoded("lz4-in-part", &padded, text.len()).unwrap() == text);
    }

    #[test]
    fn lz4_that_leads_nowhere_is_damaged() {
        for stored in
            [&[0x10, b'a', 5, 0, 0][..], &[0x10, b'a', 0, 0, 0], &[0xf0, 0xff], &[0x10], &[0x1f, b'a', 1, 0, 255]]
        {
            assert!(decoded("lz4-in-part", stored, 500).is_err(), "{stored:?}");
        }
        assert_eq!(decoded("lz4-in-part", &[0x1f, b'a', 1, 0, 255, 9], 9).unwrap(), b"aaaaaaaaa");
        assert_eq!(decoded("lz4-in-part", &[0x22, b'a', b'b', 2, 0], 5).unwrap(), b"ababa");
    }

    #[test]
    fn a_grain_has_its_length_before_it_and_a_pattern_and_zeros_need_no_more() {
        let text = text();
        let data = deflate(&text, 15);
        let stored = [&[1; 8][..], &(data.len() as u32).to_le_bytes(), &data, &[9; 300]].concat();
        assert!(decoded("zlib-behind-length", &stored, text.len()).unwrap() == text);
        assert!(decoded("zlib-behind-length", &stored[..data.len()], text.len()).is_err());
        assert!(decoded("zlib-behind-length", &stored[..9], text.len()).is_err());
        assert_eq!(decoded("repeated", b"abcd", 7).unwrap(), b"abcdabc");
        assert!(decoded("repeated", b"", 7).is_err());
        assert_eq!(decoded("zeros", b"", 7).unwrap(), [0; 7]);
    }
}
