//! Random access into compressed streams.
//!
//! A [`Codec`] reads one compressed format. Its *first pass* decodes a stream once from its start and finds the
//! [`SeekPoint`]s on the way: the places at which decoding can start again. Later a [`Decoder`] resumes at any of
//! them. The [`engine`] stands on top and is the same for all codecs: it checks and caches the decoded pieces, and
//! makes a [`Source`](tarnfs_source::Source) of a compressed stream ([`engine::DecodedSource`]).
//!
//! Words: a *chunk* is what lies between two seek points; a *piece* is [`PIECE`] decoded bytes of a chunk (its
//! last piece may be shorter), and what is cached and checked.
//!
//! A new codec is one module and one line in [`CODECS`], or in [`CODERS`] if only containers (zip, 7z) use it: those
//! are told by the container, with properties and a password where they need them ([`CoderContext`]). What a container
//! cuts into blocks of its own, each decoded at once, has a [`BlockCoder`].

pub mod engine;

mod blocks;
mod brotli;
mod bzip2;
mod codec;
mod coders;
mod compress;
mod faults;
mod findings;
mod gzip;
mod input;
mod lrzip;
mod lz4;
mod lzma;
mod lzop;
mod only_bytes;
mod outline;
mod package;
mod scratch;
mod skippable;
mod snappy;
mod spacing;
mod starts;
mod stepwise;
mod sync;
mod text;
mod thread_pool;
mod xz;
mod zstd;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tarnfs_source::{Budget, Cancel, FileSource, Limits, MemorySource, Reader, SharedSource};

pub use codec::{Checks, Codec, ContainerCodec, FileCodec, Pace, StreamChecks, Windows};
pub use coders::{
    BLOCK_CODERS, BlockCoder, CODERS, CoderContext, OwnChecks, block_coder_by_name, coder_by_name, coder_of_block,
    compares_parts, is_of_part, is_sealed, lengths_of_steps,
};
pub use findings::Findings;
pub use only_bytes::OnlyBytes;
pub use outline::Outline;
pub use scratch::Scratch;
pub use xz::xz_block_state;
pub use zstd::Dictionaries;

/// Decoded bytes in one piece: the unit of checking and caching. A read of a small file decodes at most this much
/// behind the file's end; a checksum per piece costs 4 bytes in 128 KiB.
pub const PIECE: usize = 128 << 10;

/// What a first pass hands out for bytes that are lost in a damaged part of known length. They are damage and served to
/// nobody, but whoever reads the archive's structure on the way sees them: zeros would end a tar.
const FILLER: u8 = 0xff;

/// A place in a compressed stream at which a decoder can start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeekPoint {
    /// Offset in the compressed stream, in **bits** from its start.
    pub compressed_bit: u64,
    /// Offset of the first byte that is decoded from here, in bytes of the decoded stream.
    pub decoded: u64,
    /// What the codec needs beside the offset (a window, a history), in the codec's own form, kept compressed. Empty
    /// where nothing is needed. Comes from an index, so it may be anything: a codec checks it.
    pub state: Vec<u8>,
}

/// The decoded bytes from one seek point to the next, or to the end of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// Where it starts.
    pub point: SeekPoint,
    /// Length in decoded bytes.
    pub length: u64,
    /// Of each piece, in order, the lower half of XXH3-64 of its bytes, exclusive or that of its start (8 bytes,
    /// little-endian); empty if unknown (a table imported from another program).
    pub checksums: Vec<u32>,
}

/// Decoded bytes that must not be served, because a checksum of the format did not match or the stream could not be
/// decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The bytes of the decoded stream that it concerns.
    pub decoded: Range<u64>,
    /// From here on nothing was decoded, or what was is out of place. What comes before only fails a check of the
    /// format, and is served to who asks for it ([`DecodeContext::unverified`]).
    pub lost_from: u64,
    /// Byte of the compressed stream at which it was found; 0 for what only the entries of an archive show.
    pub compressed: u64,
    /// What is wrong lies between this byte and `compressed`; the same byte where that is known exactly.
    pub compressed_from: u64,
    /// What was found, as a clause: "the CRC-32 of this gzip member does not match its data".
    pub what: String,
}

impl Damage {
    /// Where it lies in the compressed file, for people.
    pub fn place(&self) -> String {
        if self.compressed_from < self.compressed {
            format!("between bytes {} and {} of the compressed file", self.compressed_from, self.compressed)
        } else {
            format!("at byte {} of the compressed file", self.compressed)
        }
    }

    /// The same of a stream that lies in another one: its bytes begin there in what is decoded, and in what is stored.
    #[must_use]
    fn moved(self, decoded: u64, compressed: u64) -> Self {
        let range = self.decoded.start.saturating_add(decoded)..self.decoded.end.saturating_add(decoded);
        Self {
            decoded: range,
            lost_from: self.lost_from.saturating_add(decoded),
            compressed: self.compressed.saturating_add(compressed),
            compressed_from: self.compressed_from.saturating_add(compressed),
            what: self.what,
        }
    }
}

/// The chunks of one stream. Kept in an index, fetched one at a time: a stream of a terabyte has a great many.
pub trait ChunkTable: Send + Sync + Debug {
    /// The chunk that holds the decoded byte `decoded`; `None` at or behind the end.
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>>;

    /// Length of the decoded stream in bytes.
    fn decoded_length(&self) -> u64;

    /// Damage that overlaps this range of decoded bytes, if there is any.
    fn damage_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>>;

    /// The same of what is lost ([`Damage::lost_from`]). A table that cannot tell says that all damage is.
    fn lost_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        self.damage_in(decoded)
    }

    /// Decoded bytes in its longest chunk, if all are verified in the same way ([`StreamChecks::checks`]) and it need
    /// not make each of them to tell.
    fn longest(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// True if chunks have checksums, so that nobody need look through all of them for one that has none.
    fn has_checksums(&self) -> bool {
        false
    }
}

/// How a stream tells where files begin in it: with `magic` at byte `at` of a block, all of which have the same length.
/// Something in a file may look like that, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStarts {
    /// Bytes of a block.
    pub block: u64,
    /// Where in the first block of a file the magic is. All of it is in that block.
    pub at: u64,
    /// The magic.
    pub magic: &'static [u8],
}

/// What shapes a first pass.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decoded bytes between two seek points, where the codec is free to choose (gzip; lz4 with linked blocks).
    pub seek_point_spacing: u64,
    /// Points may be closer together than that where they take little of the compressed stream (gzip).
    pub closer_seek_points: bool,
    /// Where files begin in what is decoded: these are read at random more often than what lies inside of large ones,
    /// so points before them are closer together.
    pub file_starts: Option<FileStarts>,
    /// Bounds on what the stream may ask for.
    pub limits: Limits,
    /// What frames of zstd may need beside the stream.
    pub dictionaries: Dictionaries,
    /// For state that outgrows the memory that a decoder may take.
    pub scratch: Scratch,
    /// What a container says of the stream.
    pub coder: CoderContext,
    /// Threads that may decode at the same time; at least 1.
    pub threads: usize,
    /// Ends a long pass.
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seek_point_spacing: 4 << 20,
            closer_seek_points: false,
            file_starts: None,
            limits: Limits::default(),
            dictionaries: Dictionaries::default(),
            scratch: Scratch::default(),
            coder: CoderContext::default(),
            threads: 1,
            cancel: Cancel::default(),
        }
    }
}

/// Decoded bytes, in order, from a seek point on.
pub trait Decoder: Send {
    /// Decodes into `buffer` and returns how many bytes; 0 only at the end of the stream (or for an empty buffer).
    ///
    /// `InvalidData` where the stream is damaged, `UnexpectedEof` where it is cut; the bytes that were whole before
    /// that have been returned by earlier calls. After an error the decoder is finished.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Leaves out the next `bytes`, if that takes less than decoding them; false if it does not. To be asked before
    /// anything is read. What is read from then on may not have been compared with the format's own checks.
    fn skip(&mut self, bytes: u64) -> io::Result<bool> {
        let _ = bytes;
        Ok(false)
    }

    /// Bytes of memory that this decoder holds (window, tables, input buffer).
    fn memory(&self) -> usize;

    /// The same once it has decoded so many bytes more: a dictionary may fill as it goes on.
    fn memory_after(&self, bytes: u64) -> usize {
        let _ = bytes;
        self.memory()
    }
}

/// The first decoding of a stream, which finds its seek points. Formats' own checksums are verified in it.
///
/// A decoder error (from [`Decoder::read`]) ends the pass: what was decoded before remains served.
pub trait FirstPass: Decoder {
    /// What was found and not taken yet; `None` for a decoder that was resumed.
    fn findings(&mut self) -> Option<&mut Findings>;

    /// Moves the seek points found since the last call into `found`.
    fn take_points(&mut self, found: &mut Vec<SeekPoint>) {
        found.extend(self.findings().into_iter().flat_map(|findings| findings.points.drain(..)));
    }

    /// Moves damage that did not end the stream (a checksum that does not match) into `found`.
    fn take_damage(&mut self, found: &mut Vec<Damage>) {
        found.extend(self.findings().into_iter().flat_map(|findings| findings.damage.drain(..)));
    }

    /// Moves the ends of gaps into `found`; see [`Findings::shifts`].
    fn take_shifts(&mut self, found: &mut Vec<u64>) {
        found.extend(self.findings().into_iter().flat_map(|findings| findings.shifts.drain(..)));
    }

    /// Up to this byte of the decoded stream all bytes were verified before they were returned, or are known to be
    /// damaged, whatever [`StreamChecks::settles`] says.
    fn verified_to(&self) -> u64 {
        0
    }

    /// Bytes of the compressed stream that have been read so far, for progress.
    fn compressed_position(&self) -> u64;
}

/// What decoders may need beside the stream.
#[derive(Debug, Clone, Default)]
pub struct DecodeContext {
    /// Bounds on what the stream may ask for.
    pub limits: Limits,
    /// For frames of zstd that were made with one.
    pub dictionaries: Dictionaries,
    /// For state that outgrows the memory a decoder may take.
    pub scratch: Scratch,
    /// Bytes that fail a check of the format are wanted, too, if they are those that the first pass decoded.
    pub unverified: bool,
    /// What a container says of the stream.
    pub coder: CoderContext,
}

/// All codecs.
pub static CODECS: &[&dyn FileCodec] = &[
    &text::base64::Base64File,
    &brotli::Brotli,
    &bzip2::Bzip2,
    &compress::Compress,
    &gzip::Gzip,
    &gzip::Zlib,
    &gzip::Deflate,
    &lrzip::Lrzip,
    &lz4::Lz4,
    &lzma::Lzip,
    &lzma::Lzma,
    &lzop::Lzop,
    &package::DEB,
    &package::RPM,
    &snappy::Snappy,
    &text::uu::Uuencode,
    &xz::Xz,
    &zstd::Zstd,
];

/// The C libraries that are compiled in, and their versions.
pub fn c_libraries() -> [(&'static str, String); 2] {
    [("liblzma", xz::liblzma_version()), ("zstd", zstd_safe::version_string().to_owned())]
}

/// The codec of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Codec> {
    let codec = CODECS.iter().find(|codec| codec.name() == name)?;
    Some(*codec)
}

/// The codec of a stream that begins with `head` (at least 1 KiB, unless it is shorter), and lies in a file of that
/// name; `None` if there is none.
pub fn detect_named(name: &[u8], head: &[u8]) -> Option<&'static dyn Codec> {
    let (bid, found) = best_of(head).unzip();
    let found = found.map(|codec| codec as &dyn Codec);
    // What chance may have put there is not believed against the name.
    if bid.is_none_or(|bid| bid <= GUESS) { by_file_name(name, head).or(found) } else { found }
}

/// The most that is bid for what may be chance.
const GUESS: u32 = gzip::DEFLATE_BID;

/// The codec that the name of a file tells, if nothing in its stream can ([`FileCodec::may_be_named`]), and if that can
/// be decoded as far as `head` goes.
fn by_file_name(name: &[u8], head: &[u8]) -> Option<&'static dyn Codec> {
    let lower = name.to_ascii_lowercase();
    let is_named = |codec: &&dyn FileCodec| {
        let mut suffixes = codec.suffixes().iter().map(|(suffix, _)| suffix.as_bytes());
        suffixes.any(|suffix| lower.len() > suffix.len() && lower.ends_with(suffix))
    };
    let mut named = CODECS.iter().copied().filter(|codec| codec.may_be_named(head)).filter(is_named);
    let codec = named.find(|codec| can_begin(*codec, head))?;
    Some(codec)
}

/// True if nothing is wrong with a stream that begins with `head`.
fn can_begin(codec: &dyn Codec, head: &[u8]) -> bool {
    /// A bomb's head decodes to gigabytes.
    const ENOUGH: usize = 64 << 10;
    /// What is shorter is all that there is.
    const SHORTEST_HEAD: usize = 1 << 10;
    let source = std::sync::Arc::new(MemorySource::new(head, "the first bytes"));
    let Ok(mut pass) = codec.first_pass(source, &Options::default()) else { return false };
    let (mut buffer, mut filled, mut damage) = (vec![0; ENOUGH], 0, Vec::new());
    while filled < ENOUGH {
        match pass.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) => match error.kind() {
                // There is more of it than its head.
                io::ErrorKind::UnexpectedEof => return head.len() >= SHORTEST_HEAD,
                // It needs more memory than it gets, as the error will say.
                io::ErrorKind::Unsupported => return true,
                _ => return false,
            },
        }
    }
    pass.take_damage(&mut damage);
    damage.is_empty()
}

/// Opens the compressed file at `path` for reading at any offset.
///
/// It is decoded once, on all cores, to find its seek points, which stay in memory as long as the file is open.
/// `Unsupported` if nothing says how it is compressed, `InvalidData` or `UnexpectedEof` if it is damaged or cut.
pub fn open(path: &Path) -> io::Result<Reader> {
    /// Bytes of memory for what was decoded last.
    const MEMORY: usize = 64 << 20;
    let source: SharedSource = Arc::new(FileSource::open(path)?);
    let mut head = vec![0; HEAD];
    let read = source.read_at(&mut head, 0)?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let codec = detect_named(name, &head[..read]).ok_or_else(|| {
        let what = format!("{}: not compressed in a format that is known", path.display());
        io::Error::new(io::ErrorKind::Unsupported, what)
    })?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let table = engine::Table::of(codec, Arc::clone(&source), &Options { threads, ..Options::default() })?;
    let (cache, workers) = (engine::PieceCache::new(Budget::new(MEMORY)), engine::Workers::new(threads));
    let limits = Limits::default();
    Ok(Reader::new(engine::DecodedSource::new(codec, source, Arc::new(table), cache, workers, limits)))
}

/// Bytes from which [`detect`] tells every format that it knows.
const HEAD: usize = 4096;

/// The codec that bids highest for a stream that begins with `head`; `None` if none does.
pub fn detect(head: &[u8]) -> Option<&'static dyn Codec> {
    let (_, codec) = best_of(head)?;
    Some(codec)
}

/// That codec, and what it bids.
fn best_of(head: &[u8]) -> Option<(u32, &'static dyn FileCodec)> {
    let bids = CODECS.iter().map(|codec| (codec.bid(head), *codec));
    bids.filter(|(bid, _)| *bid > 0).max_by_key(|(bid, _)| *bid)
}
