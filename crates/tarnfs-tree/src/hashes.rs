//! Hashes of files (`--hashes`): computed while an archive is indexed, kept as extended attributes `user.hash.<name>`
//! in hexadecimal, as ratarmount has them.

use std::fmt::Write as _;

use sha2::digest::{Digest, DynDigest};
use tarnfs_index::own;

/// What the names of the attributes begin with.
pub(crate) const PREFIX: &str = "user.hash.";

/// The attribute that has the hash of this name.
pub(crate) fn attribute(hash: &str) -> Vec<u8> {
    format!("{PREFIX}{hash}").into_bytes()
}

/// The same, as an index gets it: apart from attributes that the archive has.
fn computed(hash: &str) -> Vec<u8> {
    [own::COMPUTED, &attribute(hash)].concat()
}

/// Makes one hasher.
type Make = fn() -> Box<dyn Hasher>;

/// The names that `--hashes` knows, in their order.
const ALGORITHMS: &[(&str, Make)] = &[
    ("blake2b", digest::<blake2::Blake2b512>),
    ("blake2s", digest::<blake2::Blake2s256>),
    ("blake3", || Box::new(blake3::Hasher::new())),
    ("crc32", || Box::new(crc32fast::Hasher::new())),
    ("md5", digest::<md5::Md5>),
    ("md5-sha1", || Box::new(Both(digest::<md5::Md5>(), digest::<sha1::Sha1>()))),
    ("ripemd160", digest::<ripemd::Ripemd160>),
    ("sha1", digest::<sha1::Sha1>),
    ("sha224", digest::<sha2::Sha224>),
    ("sha256", digest::<sha2::Sha256>),
    ("sha3-224", digest::<sha3::Sha3_224>),
    ("sha3-256", digest::<sha3::Sha3_256>),
    ("sha3-384", digest::<sha3::Sha3_384>),
    ("sha3-512", digest::<sha3::Sha3_512>),
    ("sha384", digest::<sha2::Sha384>),
    ("sha512", digest::<sha2::Sha512>),
    ("sha512-224", digest::<sha2::Sha512_224>),
    ("sha512-256", digest::<sha2::Sha512_256>),
    ("sm3", digest::<sm3::Sm3>),
    ("smplayer", || Box::new(Smplayer::default())),
];

/// Takes the bytes of one file, in order.
trait Hasher: Send {
    fn take(&mut self, bytes: &[u8]);
    fn hexadecimal(self: Box<Self>) -> String;
}

struct OfRustCrypto(Box<dyn DynDigest + Send>);

fn digest<D: Digest + DynDigest + Send + 'static>() -> Box<dyn Hasher> {
    Box::new(OfRustCrypto(Box::new(D::new())))
}

impl Hasher for OfRustCrypto {
    fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn hexadecimal(self: Box<Self>) -> String {
        self.0.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// One behind the other.
struct Both(Box<dyn Hasher>, Box<dyn Hasher>);

impl Hasher for Both {
    fn take(&mut self, bytes: &[u8]) {
        self.0.take(bytes);
        self.1.take(bytes);
    }

    fn hexadecimal(self: Box<Self>) -> String {
        self.0.hexadecimal() + &self.1.hexadecimal()
    }
}

impl Hasher for crc32fast::Hasher {
    fn take(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn hexadecimal(self: Box<Self>) -> String {
        format!("{:08x}", self.finalize())
    }
}

impl Hasher for blake3::Hasher {
    fn take(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn hexadecimal(self: Box<Self>) -> String {
        self.finalize().to_hex().to_string()
    }
}

/// What players of films know files by: the length, and the sum of the first and the last 64 KiB as little-endian
/// numbers of 64 bits. The last ones do not begin before the first ones end.
#[derive(Default)]
struct Smplayer {
    length: u64,
    first: Vec<u8>,
    last: std::collections::VecDeque<u8>,
}

impl Smplayer {
    const CHUNK: usize = 64 << 10;
}

impl Hasher for Smplayer {
    fn take(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(Self::CHUNK - self.first.len()));
        self.first.extend_from_slice(first);
        self.last.extend(&rest[rest.len().saturating_sub(Self::CHUNK)..]);
        let more = self.last.len().saturating_sub(Self::CHUNK);
        self.last.drain(..more);
    }

    fn hexadecimal(self: Box<Self>) -> String {
        let sum = |bytes: &[u8]| {
            bytes.chunks(8).fold(0_u64, |sum, eight| {
                let mut number = [0; 8];
                number[..eight.len()].copy_from_slice(eight);
                sum.wrapping_add(u64::from_le_bytes(number))
            })
        };
        let last: Vec<u8> = self.last.into();
        format!("{:016x}", sum(&self.first).wrapping_add(sum(&last)).wrapping_add(self.length))
    }
}

/// The algorithms that were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hashes(Vec<usize>);

/// Hashes of one file while it goes by.
pub(crate) struct Running(Vec<(&'static str, Box<dyn Hasher>)>);

/// Brings names as people write them (`SHA3_256,md5`) into those of the attributes, sorted, each once. The error names
/// one that is unknown.
pub fn normalise(values: &[String]) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in values.iter().flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty()) {
        let normal = name.to_ascii_lowercase().replace('_', "-");
        if !ALGORITHMS.iter().any(|(known, _)| *known == normal) {
            let known: Vec<_> = ALGORITHMS.iter().map(|(known, _)| *known).collect();
            return Err(format!("{name}: there is no such hash; there are {}", known.join(", ")));
        }
        names.push(normal);
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

impl Hashes {
    /// Of names that [`normalise`] has made. Unknown ones are left out.
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().filter_map(|name| ALGORITHMS.iter().position(|(known, _)| known == name)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn begin(&self) -> Running {
        Running(self.0.iter().filter_map(|&at| ALGORITHMS.get(at)).map(|(name, make)| (*name, make())).collect())
    }
}

impl Running {
    /// Takes the next bytes of the file.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for (_, hasher) in &mut self.0 {
            hasher.take(bytes);
        }
    }

    /// The attributes of the file.
    pub(crate) fn finish(self) -> tarnfs_format::Xattrs {
        let finished = |(name, hasher): (&str, Box<dyn Hasher>)| (computed(name), hasher.hexadecimal().into_bytes());
        self.0.into_iter().map(finished).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(names: &str, bytes: &[u8]) -> Vec<(String, String)> {
        let mut running = Hashes::new(&normalise(&[names.to_owned()]).unwrap()).begin();
        // However it comes.
        for part in bytes.chunks(30_011) {
            running.take(part);
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        running.finish().into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn known_values() {
        let pairs = hashes("MD5,sha3_224,crc32,sha256,md5", b"abc");
        let expected = [
            ("\0user.hash.crc32", "352441c2"),
            ("\0user.hash.md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("\0user.hash.sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("\0user.hash.sha3-224", "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf"),
        ];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let of_python = [
            ("ripemd160", "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc"),
            ("sm3", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"),
        ];
        for (name, value) in of_python {
            assert_eq!(hashes(name, b"abc")[0].1, value, "{name}");
        }
        let both = hashes("md5-sha1", b"abc");
        assert_eq!(both[0].1, "900150983cd24fb0d6963f7d28e17f72a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(normalise(&["md6".to_owned()]).unwrap_err().starts_with("md6"));
    }

    /// Values computed by what ratarmount 1.3 has for it.
    #[test]
    fn the_hash_of_players() {
        for (length, value) in [
            (0_usize, "0000000000000000"),
            (3, "0000000000020103"),
            (70_000, "c5e90b33567a9d70"),
            (200_000, "e19d5212c9812cd6"),
        ] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            assert_eq!(hashes("smplayer", &bytes)[0].1, value, "{length}");
        }
    }
}
