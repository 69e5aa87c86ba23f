//! The history that a seek point inside deflate data needs, in the form in which an index keeps it.
//!
//! A state is empty where decoding starts at the header of a member or stream. Otherwise its first byte says in what
//! form the last bytes before the point are (at most 32 KiB): a zstd frame ([`PACKED`]), or a zlib stream (RFC 1950)
//! behind the byte [`INSIDE`], or nothing behind that byte if none are needed. Earlier versions wrote zlib streams.
//! gztool's index and what derives from it have zlib streams, too.
//!
//! Bytes of the history that nothing behind the point refers to are zeros: of source code about nine tenths, of noise
//! all. [`References`] tells which they are.

use std::io;
use std::sync::{Mutex, PoisonError};

use tarnfs_source::Source;
use zlib_rs::{DeflateConfig, InflateConfig, ReturnCode, compress_slice, decompress_slice};
use zstd_safe::{CCtx, DCtx};

use super::inflate::{Inflate, WINDOW};
use super::references::References;

/// First byte of a state inside deflate data with a zlib stream, or without a history.
const INSIDE: u8 = 1;

/// First byte of a state inside deflate data with a zstd frame.
const PACKED: u8 = 2;

/// Compressed bytes looked at behind a point: as many as the 32 KiB take that can refer to the history, stored
/// blocks included. What is not seen counts as referred to.
const AHEAD: usize = WINDOW + (4 << 10);

/// The level of libzstd that windows are compressed with. Those above take longer than they gain.
const LEVEL: i32 = 1;

/// Contexts of libzstd for the next points: to make one takes as long as to decompress a history.
static UNPACKERS: Mutex<Vec<DCtx<'static>>> = Mutex::new(Vec::new());
const MOST_UNPACKERS: usize = 2;

/// The history in a state; `None` at a header.
pub(super) fn unpack(state: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let invalid =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("seek point in deflate data: {what}"));
    let damaged = || invalid("its window cannot be decompressed, or is longer than 32 KiB".into());
    let packed = match state {
        [] => return Ok(None),
        [INSIDE] => return Ok(Some(Vec::new())),
        [INSIDE, packed @ ..] => packed,
        [PACKED, packed @ ..] => {
            let mut window = vec![0; WINDOW];
            let length = unpack_frame(&mut window, packed);
            window.truncate(length);
            return if length > 0 { Ok(Some(window)) } else { Err(damaged()) };
        }
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
        _ => Err(damaged()),
    }
}

/// Decompresses a zstd frame into `window`, and returns how long it becomes; 0 if it cannot be.
fn unpack_frame(window: &mut [u8], packed: &[u8]) -> usize {
    let idle = UNPACKERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(mut unpacker) = idle.or_else(DCtx::try_create) else { return 0 };
    let length = unpacker.decompress(window, packed).unwrap_or(0);
    let mut idle = UNPACKERS.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < MOST_UNPACKERS {
        idle.push(unpacker);
    }
    length
}

/// The history in a state as other programs keep it: 32 KiB, or nothing.
pub(super) fn whole(state: &[u8]) -> io::Result<Vec<u8>> {
    let mut window = unpack(state)?.unwrap_or_default();
    if state.first() == Some(&PACKED) {
        // What lies before the first byte that is needed was left out.
        window.splice(..0, vec![0; WINDOW - window.len()]);
    }
    Ok(window)
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
        _ => Err(io::Error::other("packing a window failed; this is an error in tarnfs, please report it")),
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
    references: References,
    compressor: CCtx<'static>,
    ahead: Vec<u8>,
    /// A window with zeros in the place of what is not referred to.
    window: Vec<u8>,
    packed: Vec<u8>,
}

impl WindowPacker {
    /// Bytes of memory of one; at this level and length the compressor takes about as much as its input.
    pub(super) const MEMORY: usize = References::MEMORY + AHEAD + 3 * WINDOW + (128 << 10);

    pub(super) fn new() -> Self {
        Self {
            references: References::new(),
            compressor: CCtx::create(),
            ahead: vec![0; AHEAD],
            window: Vec::with_capacity(WINDOW),
            packed: vec![0; zstd_safe::compress_bound(WINDOW)],
        }
    }

    /// The state of a point at `bit` of `source`, before which `window` was decoded.
    pub(super) fn pack(&mut self, source: &dyn Source, bit: u64, window: &[u8]) -> io::Result<Vec<u8>> {
        let read = source.read_at(&mut self.ahead, bit / 8)?;
        let used = self.references.before(&self.ahead[..read], (bit % 8) as u8, window.len());
        let Some(first) = used.iter().position(|&used| used) else { return Ok(vec![INSIDE]) };
        // What lies before the first byte that is needed is not kept.
        self.window.clear();
        // No branch, as none could be foretold.
        let masked = |(&byte, &used): (&u8, &bool)| byte & u8::from(used).wrapping_neg();
        self.window.extend(window[first..].iter().zip(&used[first..]).map(masked));
        let length = self.compressor.compress(&mut self.packed[..], &self.window, LEVEL).map_err(|code| {
            io::Error::other(format!("compressing a window failed: {}", zstd_safe::get_error_name(code)))
        })?;
        Ok([&[PACKED], &self.packed[..length]].concat())
    }
}
