//! What is fuzzed: one function for each parser and codec. Each takes any bytes and must return: no panic, no endless
//! loop, no memory beyond the limits. `fuzz_targets/` hands them to libFuzzer; `tests/damage/seeds.rs` runs them over
//! the corpus on stable Rust.

#![allow(clippy::missing_panics_doc, clippy::expect_used, clippy::unwrap_used, missing_docs, unreachable_pub)]

mod containers;
mod differential;
mod images;
mod libzstd;
mod lzma2;
mod packages;
mod rar;
mod sevenzip;
mod sidecars;
mod squashfs;
mod udf;

use std::sync::Arc;

use tarnfs_codec::ChunkTable;
use tarnfs_codec::engine::{DecodedSource, Indexing, PieceCache, Table, Workers};
use tarnfs_format::encoding::Encoding;
use tarnfs_format::{Entry, Event, Format, Kind, Probe, ReadForwards, ReadRandom, SourceStream, Stream};
use tarnfs_source::{Budget, Cancel, Limits, MemorySource, SharedSource, Source};

pub use containers::containers;
pub use differential::differential;
pub use images::{disk_image, erofs, exfat, ext, fat, hfsplus, iso9660, ntfs, partitions};
pub use libzstd::{zstd_dictionary, zstd_differential};
pub use lzma2::lzma2;
pub use packages::{arj, asar, cab, deb, html, lha, mail, mtree, ogg, pdf, rpm, sqlar, text, warc, wim, xar};
pub use rar::{rar, rar_decoder};
pub use sevenzip::sevenzip;
pub use sidecars::{index, ratarmount, rows, templates};
pub use squashfs::squashfs;
pub use udf::udf;

/// Decoded bytes after which a pass ends: a bomb would take all the time there is.
const MOST_DECODED: u64 = 16 << 20;

/// The window that decoders may have, as a power of two.
const LARGEST_WINDOW_LOG: u32 = 23;

/// Decoders may take less than by default, so that what goes past it shows as memory that ran out.
fn limits() -> Limits {
    Limits { decoder_window: 1 << LARGEST_WINDOW_LOG, lzma_dictionary: 16 << 20, ..Limits::default() }
}

fn source(data: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(data, "fuzzed"))
}

/// Reads the members of a tar, in each of the ways that options choose.
pub fn tar(data: &[u8]) {
    for (ignore_zeros, gnu_incremental) in [(false, Some(false)), (true, None), (false, Some(true))] {
        let options = tarnfs_format::Options { ignore_zeros, gnu_incremental, ..tarnfs_format::Options::default() };
        let mut stream = SourceStream::new(source(data), Cancel::default());
        let mut last = 0;
        let mut entries = 0_usize;
        // Whether it is read to its end is the archive's matter.
        let _ = tarnfs_format::tar::Tar.read(&mut stream, &options, &mut |event, _| {
            if let Event::Entry(entry) = event {
                assert!(entry.header >= last, "headers go forward");
                last = entry.header;
                entries += 1;
                check_entry(&entry, &options.limits);
            }
            Ok(())
        });
        assert!(entries <= data.len() / 512 + 1, "an entry takes a block");
    }
}

/// Reads the directory of a zip archive, or what there is without one: members come in order, and do not overlap.
pub fn zip(data: &[u8]) {
    let options = tarnfs_format::Options::default();
    let source = source(data);
    let (mut last, mut end, mut entries) = (0, 0, 0_usize);
    tarnfs_format::zip::Zip.bid(&Probe::new(&data[..data.len().min(4096)], &*source));
    // Whether there is anything in it is the archive's matter.
    let _ = tarnfs_format::zip::Zip.read(&source, &options, &mut |event| {
        if let Event::Entry(entry) = event {
            assert!(entry.header >= last, "headers go forward");
            (last, entries) = (entry.header, entries + 1);
            check_entry(&entry, &options.limits);
            for piece in entry.body.pieces.iter().flatten() {
                assert!(piece.offset == entry.header && piece.offset + piece.stored <= data.len() as u64);
                let coder = piece.coder.as_ref().expect("content stands behind a header");
                if !coder.steps.iter().any(|step| step.codec.contains("cannot be")) {
                    assert!(entry.header >= end, "members do not overlap");
                    end = entry.header + 30 + piece.stored;
                }
                let content = tarnfs_format::zip::Zip.find_content(&*source, piece.offset, piece);
                assert!(content.is_err() || content.is_ok_and(|at| at <= data.len() as u64));
            }
        }
        Ok(())
    });
    assert!(entries <= data.len() / 30, "an entry takes a header");
}

/// Reads the members of a cpio, one of each dialect or several.
pub fn cpio(data: &[u8]) {
    members(&tarnfs_format::cpio::Cpio, data, 28);
}

/// Reads the members of an ar.
pub fn ar(data: &[u8]) {
    members(&tarnfs_format::ar::Ar, data, 60);
}

/// Reads members, then again forwards only, as those of a compressed stream are read: both tell the same.
fn members(format: &dyn Format, data: &[u8], shortest: usize) {
    let options = tarnfs_format::Options::default();
    format.bid(&Probe::of_head(&data[..data.len().min(4096)]));
    let format = format.forwards().expect("it is read forwards");
    let mut told = Vec::new();
    let mut stream = SourceStream::new(source(data), Cancel::default());
    let _ = format.read(&mut stream, &options, &mut |event, _| {
        if let Event::Entry(entry) = event {
            check_entry(&entry, &options.limits);
            told.push(*entry);
        }
        Ok(())
    });
    assert!(told.len() <= data.len() / shortest + 1, "an entry takes a header and a name");
    let mut again = Vec::new();
    let mut stream = Forwards(SourceStream::new(source(data), Cancel::default()));
    let _ = format.read(&mut stream, &options, &mut |event, _| {
        if let Event::Entry(entry) = event {
            again.push(*entry);
        }
        Ok(())
    });
    // What is compressed behind a cpio is one file only where its length can be told.
    told.retain(|entry| !entry.path.starts_with(b"part-"));
    again.retain(|entry| !entry.path.starts_with(b"part-"));
    assert_eq!(told, again);
}

/// A stream that cannot go back.
struct Forwards(SourceStream);

impl Stream for Forwards {
    fn position(&self) -> u64 {
        self.0.position()
    }

    fn peek(&mut self, length: usize) -> std::io::Result<&[u8]> {
        self.0.peek(length)
    }

    fn skip(&mut self, length: u64) -> std::io::Result<u64> {
        self.0.skip(length)
    }
}

/// An entry keeps to the limits, and the map of a sparse file to its size.
fn check_entry(entry: &Entry, limits: &Limits) {
    assert!(entry.mode <= 0o7777, "mode {:o}", entry.mode);
    assert!(entry.path.len() <= limits.path && entry.link.len() <= limits.path);
    assert!(entry.xattrs.len() <= limits.xattrs);
    assert!(entry.xattrs.iter().all(|(_, value)| value.len() <= limits.xattr_value));
    for time in [Some(entry.mtime), entry.atime, entry.ctime].into_iter().flatten() {
        assert!(time.nanoseconds < 1_000_000_000);
    }
    // A hard link may come behind the one that it waited for.
    assert!(entry.body.offset >= entry.header || entry.kind == Kind::HardLink);
    let mut end = 0_u64;
    for extent in entry.body.extents.iter().flatten() {
        assert!(extent.offset >= end, "extents go forward");
        end = extent.offset.checked_add(extent.length).expect("an extent ends");
    }
    assert!(end <= entry.body.size, "the map ends in the file");
    names(&entry.path);
}

/// What an image tells lies in its `length` bytes, and pieces of a file in the file.
fn check_pieces(entry: &Entry, length: u64) {
    assert!(entry.header <= length || entry.kind == Kind::HardLink, "a record is in the image");
    let mut end = 0_u64;
    for piece in entry.body.pieces.iter().flatten() {
        assert!(piece.offset + piece.stored <= length || piece.coder.is_some(), "a piece is in the image");
        assert!(piece.length > 0 && piece.skip + piece.length <= piece.decoded, "a piece is in its block");
        assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
        end = end.checked_add(piece.hole + piece.length).expect("a piece ends");
    }
    assert!(end <= entry.body.size, "pieces end in the file");
}

/// Components never leave the root and are names that Linux takes; what is shown has no control characters.
pub fn names(data: &[u8]) {
    let limits = Limits::default();
    let components = tarnfs_format::name::components(data, &limits);
    assert!(components.iter().count() <= limits.path_components);
    components.iter().for_each(|component| check_name(component, &limits));
    let shown = tarnfs_format::name::escape(data).to_string();
    assert!(!shown.chars().any(char::is_control));
    for encoding in ["latin1", "koi8-r", "shift_jis", "gb18030", "cp437", "cp932"] {
        let decoded = Encoding::for_name(encoding).expect("it is known").decode(data).into_owned();
        for component in &tarnfs_format::name::components(&decoded, &limits) {
            check_name(component, &limits);
        }
    }
}

fn check_name(name: &[u8], limits: &Limits) {
    assert!(!name.is_empty() && name.len() <= limits.name);
    assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..");
}

/// Decodes a stream from its start, then again from its seek points: what was decoded without damage must be served,
/// and be the same bytes.
fn codec(name: &str, data: &[u8]) {
    let codec = tarnfs_codec::by_name(name).expect("it is in the table");
    codec.bid(&data[..data.len().min(4096)]);
    // With several threads, blocks and frames are decoded ahead.
    let threads = if data.len().is_multiple_of(2) { 1 } else { 3 };
    let limits = limits();
    let options =
        tarnfs_codec::Options { seek_point_spacing: 4096, limits, threads, ..tarnfs_codec::Options::default() };
    let Ok(mut indexing) = Indexing::new(codec, source(data), &options) else { return };
    let mut table = Table::default();
    let mut decoded = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let ended = loop {
        match indexing.read(&mut buffer) {
            Ok(0) | Err(_) => break true,
            Ok(read) => decoded.extend_from_slice(&buffer[..read]),
        }
        if decoded.len() as u64 >= MOST_DECODED {
            break false;
        }
    };
    indexing.take_chunks(&mut table.chunks);
    indexing.take_damage(&mut table.damage);
    assert_eq!(indexing.decoded_position(), decoded.len() as u64);
    let length = table.decoded_length();
    assert!(!ended || length == decoded.len() as u64, "{name}: the chunks are the whole stream");
    let mut end = 0;
    for chunk in &table.chunks {
        assert_eq!(chunk.point.decoded, end, "{name}: chunks lie end to end");
        end += chunk.length;
    }
    for damage in &table.damage {
        // A block that is damaged is known to be so before all of it has been handed out.
        let end = if ended { decoded.len() as u64 } else { u64::MAX };
        assert!(damage.decoded.start <= damage.decoded.end && damage.decoded.end <= end, "{name}: {damage:?}");
    }
    let points: Vec<u64> = table.chunks.iter().rev().take(16).map(|chunk| chunk.point.decoded).collect();
    let table = Arc::new(table);
    let again = DecodedSource::new(
        codec,
        source(data),
        Arc::<Table>::clone(&table),
        PieceCache::new(Budget::new(8 << 20)),
        Workers::new(0),
        limits,
    );
    for point in points {
        let mut buffer = vec![0; 5000];
        let end = length.min(point + buffer.len() as u64);
        match again.read_at(&mut buffer, point) {
            Ok(read) => {
                let start = point as usize;
                assert_eq!(start + read, end as usize, "{name}: short at {point}");
                assert!(buffer[..read] == decoded[start..start + read], "{name}: other bytes at {point}");
            }
            Err(error) => {
                let damage = table.damage_in(point..end).expect("this one does not fail");
                assert!(damage.is_some(), "{name}: not served at {point}: {error}");
            }
        }
    }
}

pub fn gzip(data: &[u8]) {
    codec("gzip", data);
}

pub fn zlib(data: &[u8]) {
    codec("zlib", data);
}

pub fn deflate(data: &[u8]) {
    codec("deflate", data);
}

pub fn bzip2(data: &[u8]) {
    codec("bzip2", data);
}

pub fn compress(data: &[u8]) {
    codec("compress", data);
}

pub fn lzop(data: &[u8]) {
    codec("lzop", data);
}

pub fn lrzip(data: &[u8]) {
    codec("lrzip", data);
}

pub fn snappy(data: &[u8]) {
    codec("snappy", data);
}

pub fn brotli(data: &[u8]) {
    codec("brotli", data);
}

pub fn xz(data: &[u8]) {
    codec("xz", data);
}

pub fn lzma(data: &[u8]) {
    codec("lzma", data);
}

pub fn lzip(data: &[u8]) {
    codec("lzip", data);
}

pub fn zstd(data: &[u8]) {
    codec("zstd", data);
}

pub fn lz4(data: &[u8]) {
    codec("lz4", data);
}
