//! Codecs that only containers (zip, 7z, rar, ...) use.
//!
//! Their streams begin with nothing that tells them: the container names the codec, and says in a [`CoderContext`] what
//! it needs beside the stream. A codec is one file here and one line in [`CODERS`].
//!
//! - `block`: what is decoded a block at a time, and has no seek points; `padded`: such blocks with something around
//!   them; `whole`: one of them among other steps
//! - `lzfse` and `adc`: blocks as macOS has them; `lznt1`: those of NTFS
//! - `straight`, `filtered`, `streamed`: decoders of what can be read anywhere, in order, and only from its start on
//! - `keys`: from passwords
//! - `rar`: all that RAR has
//! - `overflow`: rows of SQLite
//! - `chunked`: resources of WIM; `lzx`: what cabinets have, too; `hashed`: the SHA-1 of a file among others
//! - `pdf`: the filters of PDF, and what makes files of its images
//! - `cabinet` and `lzh`: all that cabinets have, and LHA and ARJ; `prefix`: the codes of both

mod adc;
mod aes_7z;
mod aes_zip;
mod bcj;
mod bcj2;
mod block;
mod brotli;
mod cabinet;
mod chunked;
mod copy;
mod deflate64;
mod delta;
mod filtered;
mod hashed;
mod keys;
mod lzfse;
mod lzh;
mod lzma;
mod lznt1;
mod lzx;
mod overflow;
mod padded;
mod pdf;
mod ppmd;
mod prefix;
mod rar;
mod straight;
mod streamed;
mod swap;
mod whole;
mod zipcrypto;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, LazyLock};

use tarnfs_source::Cancel;

use crate::{CODECS, Codec, ContainerCodec, text};

pub use block::{BLOCK_CODERS, BlockCoder, block_coder_by_name};
pub use whole::coder_of_block;

/// What a container says of one of its streams. Codecs that need none of it ignore it.
#[derive(Clone, Default)]
pub struct CoderContext {
    /// In the codec's own form, as the container stores them.
    pub properties: Arc<[u8]>,
    /// As it was typed, in UTF-8 or whatever the terminal has.
    pub password: Option<Arc<[u8]>>,
    /// Bytes that come out, where the container says so.
    pub decoded_length: Option<u64>,
    /// Ends what a coder does beside what it was asked for, such as comparing a check of all.
    pub cancel: Cancel,
    /// Bytes that fail a check of all of them are wanted, too: only who verifies the stream is told of it.
    pub unverified: bool,
}

/// Without the password, which must not come into a log.
impl fmt::Debug for CoderContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CoderContext")
            .field("properties", &self.properties)
            .field("has_password", &self.password.is_some())
            .field("decoded_length", &self.decoded_length)
            .finish_non_exhaustive()
    }
}

/// All codecs that only containers use. They never bid and have no suffixes.
pub static CODERS: &[&dyn Codec] = &[
    &aes_7z::Aes7z,
    &aes_zip::AesZip,
    &bcj2::Bcj2,
    &bcj::ARM,
    &bcj::ARM64,
    &bcj::ARM_THUMB,
    &bcj::IA64,
    &bcj::POWER_PC,
    &bcj::RISCV,
    &bcj::SPARC,
    &bcj::X86,
    &brotli::Brotli7z,
    &cabinet::Cabinet,
    &chunked::RESOURCE,
    &chunked::SOLID,
    &copy::Copy,
    &deflate64::Deflate64,
    &delta::Delta,
    &hashed::Hashed,
    &lzh::CHECKED,
    &lzh::PLAIN,
    &lzma::LzmaRaw,
    &lzma::LzmaZip,
    &lzma::Lzma2Raw,
    &overflow::Overflow,
    &pdf::PdfStream,
    &ppmd::Ppmd7,
    &ppmd::Ppmd8,
    &rar::ENCRYPTED,
    &rar::ENCRYPTED_UNCHECKED,
    &rar::Header,
    &rar::PLAIN,
    &rar::UNCHECKED,
    &swap::TWO,
    &swap::FOUR,
    &whole::Block,
    &whole::Part,
    &text::base64::Base64,
    &text::quoted::QuotedPrintable,
    &text::url::DataUrl,
    &zipcrypto::ZipCrypto,
];

/// All that containers may name.
fn all() -> impl Iterator<Item = &'static dyn Codec> {
    CODECS.iter().map(|codec| *codec as &dyn Codec).chain(CODERS.iter().copied())
}

/// The codec of that name, for a container: one of [`CODECS`] or of [`CODERS`].
pub fn coder_by_name(name: &str) -> Option<&'static dyn Codec> {
    all().find(|codec| codec.name() == name)
}

/// What a codec compares with checks that stand in for a checksum of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnChecks {
    /// Nothing that tells of each byte whether it is right.
    None,
    /// All that it gives: with the last byte, or when it is told to
    /// ([`Source::verify`](tarnfs_source::Source::verify)).
    Whole,
    /// Part by part. It tells which bytes may be wrong before it gives them: others are whole, whatever is wrong
    /// elsewhere.
    Parts,
}

/// Names of the codecs of which `is_one` is true. They are asked for once: a file may have a million pieces.
fn names(is_one: impl Fn(&dyn ContainerCodec) -> bool) -> Vec<&'static str> {
    all().filter(|codec| codec.container_codec().is_some_and(&is_one)).map(Codec::name).collect()
}

/// True if the codec of that name compares all that it gives ([`OwnChecks::Whole`]).
pub fn is_sealed(name: &str) -> bool {
    static SEALED: LazyLock<Vec<&str>> = LazyLock::new(|| names(|codec| codec.own_checks() == OwnChecks::Whole));
    SEALED.contains(&name)
}

/// True if the codec of that name takes a part of what it lies in ([`ContainerCodec::takes_part`]).
pub fn is_of_part(name: &str) -> bool {
    static OF_PART: LazyLock<Vec<&str>> = LazyLock::new(|| names(|codec| codec.takes_part()));
    OF_PART.contains(&name)
}

/// True if the codec of that name compares part by part what it gives ([`OwnChecks::Parts`]).
pub fn compares_parts(name: &str) -> bool {
    static BY_PARTS: LazyLock<Vec<&str>> = LazyLock::new(|| names(|codec| codec.own_checks() == OwnChecks::Parts));
    BY_PARTS.contains(&name)
}

/// The bytes that come of each of some steps, one behind the other, of which the first one takes `stored` bytes, and
/// `decoded` come of the last one: `None` for a step of which nothing tells them.
pub fn lengths_of_steps(steps: &[(&dyn Codec, &CoderContext)], stored: u64, decoded: u64) -> Vec<Option<u64>> {
    let mut from_the_end = Some(decoded);
    let mut lengths: Vec<_> = steps
        .iter()
        .rev()
        .map(|(codec, coder)| {
            let length = from_the_end;
            from_the_end = length.filter(|&length| codec.decoded_length(length, coder) == Some(length));
            length
        })
        .collect();
    lengths.reverse();
    let mut from_the_start = Some(stored);
    for (length, (codec, coder)) in lengths.iter_mut().zip(steps) {
        from_the_start = from_the_start.and_then(|before| codec.decoded_length(before, coder));
        *length = length.or(from_the_start);
        from_the_start = *length;
    }
    lengths
}

/// Properties that no container of this kind has.
pub(crate) fn invalid_properties(name: &str) -> io::Error {
    let what = format!("the properties that the archive has for {name} are not valid");
    io::Error::new(io::ErrorKind::InvalidData, what)
}
