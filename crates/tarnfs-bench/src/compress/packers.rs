//! Compressors that take a record for itself, as a file system stores it.

use bzip2::{Action as Bzip2Action, Compress, Compression as Bzip2Level, Decompress, Status};
use liblzma::stream::{Action, Filters, LzmaOptions, Status as XzStatus, Stream};
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status as DeflateStatus};

use super::lzjb;

/// Bytes of a record: what ZFS has if nobody says something else.
pub(super) const RECORD: usize = 128 << 10;
const RECORD_BITS: i32 = 17;

/// Of deflate: the largest that it has.
const WINDOW_BITS: u8 = 15;

/// A compressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Lzjb,
    Lz4,
    Snappy,
    Gzip,
    Zstd,
    Brotli,
    Bzip2,
    Xz,
}

/// All of them, each with its levels.
pub(super) const METHODS: &[(Method, &str, std::ops::RangeInclusive<i32>)] = &[
    (Method::Lzjb, "lzjb", 1..=1),
    (Method::Lz4, "lz4", 1..=1),
    (Method::Snappy, "snappy", 1..=1),
    (Method::Gzip, "gzip", 1..=9),
    (Method::Zstd, "zstd", 1..=22),
    (Method::Brotli, "brotli", 0..=11),
    (Method::Bzip2, "bzip2", 1..=9),
    (Method::Xz, "xz", 0..=9),
];

/// A compressor at a level.
pub(super) struct Packer {
    method: Method,
    level: i32,
    zstd: Option<(zstd_safe::CCtx<'static>, zstd_safe::DCtx<'static>)>,
}

fn failed(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

impl Packer {
    pub(super) fn new(method: Method, level: i32) -> Self {
        let zstd = (method == Method::Zstd).then(|| (zstd_safe::CCtx::create(), zstd_safe::DCtx::create()));
        Self { method, level, zstd }
    }

    /// Puts what `record` becomes into `out`.
    pub(super) fn pack(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        // What cannot be compressed grows by less in all of them.
        out.reserve(record.len() + record.len() / 4 + 1024);
        match self.method {
            Method::Lzjb => lzjb::pack(record, out),
            Method::Lz4 => {
                out.resize(lz4_flex::block::get_maximum_output_size(record.len()), 0);
                let length = lz4_flex::block::compress_into(record, out).map_err(failed)?;
                out.truncate(length);
            }
            Method::Snappy => {
                out.resize(snap::raw::max_compress_len(record.len()), 0);
                let length = snap::raw::Encoder::new().compress(record, out).map_err(failed)?;
                out.truncate(length);
            }
            Method::Gzip => {
                out.resize(out.capacity(), 0);
                let mut deflate = Deflate::new(self.level, true, WINDOW_BITS);
                let status = deflate.compress(record, out, DeflateFlush::Finish).map_err(failed)?;
                if status != DeflateStatus::StreamEnd {
                    return Err("it has become too long".to_owned());
                }
                out.truncate(deflate.total_out() as usize);
            }
            Method::Zstd => {
                if let Some((zstd, _)) = &mut self.zstd {
                    zstd.compress(out, record, self.level).map_err(zstd_safe::get_error_name)?;
                }
            }
            Method::Brotli => {
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: self.level,
                    lgwin: RECORD_BITS,
                    size_hint: record.len(),
                    ..Default::default()
                };
                brotli::BrotliCompress(&mut &*record, out, &parameters).map_err(failed)?;
            }
            Method::Bzip2 => {
                let mut stream = Compress::new(Bzip2Level::new(self.level.unsigned_abs()), 0);
                if stream.compress_vec(record, out, Bzip2Action::Finish).map_err(failed)? != Status::StreamEnd {
                    return Err("it has become too long".to_owned());
                }
            }
            Method::Xz => {
                let filters = xz_filters(self.level)?;
                let mut stream = Stream::new_raw_encoder(&filters).map_err(failed)?;
                let status = stream.process_vec(record, out, Action::Finish).map_err(failed)?;
                if !matches!(status, XzStatus::StreamEnd) {
                    return Err("it has become too long".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Puts the `length` bytes that became `packed` into `out`.
    pub(super) fn unpack(&mut self, packed: &[u8], length: usize, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.reserve(length);
        match self.method {
            Method::Lzjb => lzjb::unpack(packed, length, out).ok_or("it cannot be decoded")?,
            Method::Lz4 => {
                out.resize(length, 0);
                lz4_flex::block::decompress_into(packed, out).map_err(failed)?;
            }
            Method::Snappy => {
                out.resize(length, 0);
                snap::raw::Decoder::new().decompress(packed, out).map_err(failed)?;
            }
            Method::Gzip => {
                out.resize(length, 0);
                Inflate::new(true, WINDOW_BITS).decompress(packed, out, InflateFlush::Finish).map_err(failed)?;
            }
            Method::Zstd => {
                if let Some((_, zstd)) = &mut self.zstd {
                    zstd.decompress(out, packed).map_err(zstd_safe::get_error_name)?;
                }
            }
            Method::Brotli => brotli::BrotliDecompress(&mut &*packed, out).map_err(failed)?,
            Method::Bzip2 => drop(Decompress::new(false).decompress_vec(packed, out).map_err(failed)?),
            Method::Xz => {
                let filters = xz_filters(self.level)?;
                let mut stream = Stream::new_raw_decoder(&filters).map_err(failed)?;
                stream.process_vec(packed, out, Action::Finish).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// A dictionary that is longer than a record costs time, and is of no use.
fn xz_filters(level: i32) -> Result<Filters, String> {
    let mut options = LzmaOptions::new_preset(level.unsigned_abs()).map_err(failed)?;
    options.dict_size(RECORD as u32);
    let mut filters = Filters::new();
    filters.lzma2(&options);
    Ok(filters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back() {
        let text: Vec<u8> = (0..30_000_u32).flat_map(|number| format!("{number} and so on, ").into_bytes()).collect();
        let mut state = 1_u32;
        let noise = (0..RECORD).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let records = [text[..RECORD].to_vec(), noise.collect(), vec![0; RECORD], b"x".to_vec()];
        for (method, name, levels) in METHODS {
            let (mut packed, mut unpacked) = (Vec::new(), Vec::new());
            for level in levels.clone() {
                let mut packer = Packer::new(*method, level);
                for record in &records {
                    packer.pack(record, &mut packed).unwrap_or_else(|error| panic!("{name} {level}: {error}"));
                    packer.unpack(&packed, record.len(), &mut unpacked).unwrap();
                    assert!(unpacked == *record, "{name} {level}: {} bytes", record.len());
                }
                packer.pack(&records[0], &mut packed).unwrap();
                assert!(packed.len() < RECORD * 3 / 4, "{name} {level}: {} bytes", packed.len());
            }
        }
    }
}
