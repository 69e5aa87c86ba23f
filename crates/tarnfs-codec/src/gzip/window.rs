//! The history that a seek point inside deflate data needs, in the form in which an index keeps it.
//!
//! A state is empty where decoding starts at the header of a member or stream. Otherwise it is the byte [`INSIDE`]
//! and the last bytes before the point (at most 32 KiB) as a zlib stream (RFC 1950), or nothing behind the byte if
//! none are needed. gztool's index and what derives from it keep the same zlib stream, so both can be turned into
//! each other.
//!
//! Bytes of the history that nothing behind the point refers to are zeros: of source code about nine tenths, of noise
//! all. Only the first 32 KiB decoded behind the point can refer to it, so these are decoded over an [`unknown`]
//! history.

use std::io;

use tarnfs_source::Source;
use zlib_rs::{
    Deflate, DeflateConfig, DeflateFlush, InflateConfig, ReturnCode, Status, compress_slice, decompress_slice,
};

use super::inflate::{Inflate, InflateState, MEMORY, Stop, WINDOW};
use super::unknown;

/// First byte of a state inside deflate data, in its first version.
const INSIDE: u8 = 1;

/// Compressed bytes looked at behind a point: as many as the 32 KiB take that can refer to the history, stored
/// blocks included. What is not seen counts as referred to.
const AHEAD: usize = WINDOW + (4 << 10);

/// The fastest level that makes codes of its own; the one below it uses the fixed ones.
const LEVEL: i32 = 2;

/// The history in a state; `None` at a header.
pub(super) fn unpack(state: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let invalid =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("seek point in deflate data: {what}"));
    let packed = match state {
        [] => return Ok(None),
        [INSIDE] => return Ok(Some(Vec::new())),
        [INSIDE, packed @ ..] => packed,
        [version, ..] => return Err(invalid(format!("its state has the unknown version {version}"))),
    };
    let mut window = vec![0; WINDOW];
    let (unpacked, result) = decompress_slice(&mut window, packed, InflateConfig { window_bits: 15 });
    let length = unpacked.len();
    match result {
        ReturnCode::Ok => {
            window.truncate(length);
            Ok(Some(window))
        }
        _ => Err(invalid("its window cannot be decompressed, or is longer than 32 KiB".into())),
    }
}

/// The state of a point inside deflate data before which `window` was decoded, for points that another program has
/// kept. Not compressed: it is used at once.
pub(super) fn from_window(window: &[u8]) -> io::Result<Vec<u8>> {
    if window.len() > WINDOW {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a window of more than 32 KiB before deflate data"));
    }
    let mut packed = vec![0; window.len() + 64];
    let (packed, result) = compress_slice(&mut packed, window, DeflateConfig::new(0));
    match (window, result) {
        ([], _) => Ok(vec![INSIDE]),
        (_, ReturnCode::Ok) => Ok([&[INSIDE], &*packed].concat()),
        (_, result) => Err(io::Error::other(format!("packing a window failed: {result:?}"))),
    }
}

/// Makes an `inflate` ready to start at `bit` of `source`, and returns the byte at which its input continues.
pub(super) fn start_at<const N: usize>(inflate: &mut Inflate<N>, source: &dyn Source, bit: u64) -> io::Result<u64> {
    inflate.reset();
    let (byte, used_bits) = (bit / 8, (bit % 8) as u8);
    if used_bits == 0 {
        return Ok(byte);
    }
    let mut first = [0];
    source.read_exact_at(&mut first, byte)?;
    inflate.prime(8 - used_bits, first[0] >> used_bits);
    Ok(byte + 1)
}

/// Makes states. Kept for a whole pass, because its parts are large to allocate.
pub(super) struct WindowPacker {
    inflate: Inflate<2>,
    deflate: Deflate,
    ahead: Vec<u8>,
    outputs: [Vec<u8>; 2],
}

impl WindowPacker {
    /// Bytes of memory of one; the compressor takes most of it (zlib.h: 256 KiB).
    pub(super) const MEMORY: usize = 2 * MEMORY + AHEAD + 2 * WINDOW + (300 << 10);

    pub(super) fn new() -> Self {
        Self {
            inflate: Inflate::new(),
            deflate: Deflate::new(LEVEL, true, 15),
            ahead: vec![0; AHEAD],
            outputs: [vec![0; WINDOW], vec![0; WINDOW]],
        }
    }

    /// The state of a point at `bit` of `source`, before which `window` was decoded.
    pub(super) fn pack(&mut self, source: &dyn Source, bit: u64, window: &[u8]) -> io::Result<Vec<u8>> {
        let used = self.used(source, bit, window.len())?;
        if !used.contains(&true) {
            return Ok(vec![INSIDE]);
        }
        let window: Vec<u8> = window.iter().zip(used).map(|(&byte, used)| if used { byte } else { 0 }).collect();
        // Stored blocks at the worst: 5 bytes each, at least 16 KiB long.
        let mut state = vec![0; 1 + window.len() + 64];
        state[0] = INSIDE;
        self.deflate.reset();
        match self.deflate.compress(&window, &mut state[1..], DeflateFlush::Finish) {
            Ok(Status::StreamEnd) => state.truncate(1 + self.deflate.total_out() as usize),
            result => return Err(io::Error::other(format!("compressing a window failed: {result:?}"))),
        }
        state.shrink_to_fit();
        Ok(state)
    }

    /// Which of the `length` bytes before `bit` the data from there on refers to.
    fn used(&mut self, source: &dyn Source, bit: u64, length: usize) -> io::Result<Vec<bool>> {
        let next = start_at(&mut self.inflate, source, bit)?;
        let read = source.read_at(&mut self.ahead, next)?;
        let histories = unknown::histories(length);
        self.inflate.set_windows(histories.each_ref().map(|history| &history[..]));
        let (decoded, ended) = decode(&mut self.inflate, &self.ahead[..read], &mut self.outputs);
        let mut used = vec![false; length];
        if !ended {
            let reachable = length.saturating_sub(WINDOW.saturating_sub(decoded));
            used[reachable.min(length)..].fill(true);
        }
        let [first, second] = &self.outputs;
        for (&low, &high) in first[..decoded].iter().zip(&second[..decoded]) {
            if let Some(mark) = unknown::origin(low, high).and_then(|origin| used.get_mut(origin)) {
                *mark = true;
            }
        }
        Ok(used)
    }
}

/// Decodes `input` into `outputs` until one of them or the data ends, and returns the length, and whether the data
/// ended.
fn decode(inflate: &mut Inflate<2>, mut input: &[u8], outputs: &mut [Vec<u8>; 2]) -> (usize, bool) {
    let mut decoded = 0;
    loop {
        let step = inflate.step(input, outputs.each_mut().map(|output| &mut output[..]), decoded, Stop::Never);
        decoded += step.written;
        input = &input[step.read..];
        match step.place {
            InflateState::End | InflateState::Invalid(_) => return (decoded, true),
            _ if decoded == WINDOW || step.read + step.written == 0 => return (decoded, false),
            _ => {}
        }
    }
}
