//! AES of 7z (method 06 F1 07 01): AES-256 in CBC mode, with a key of 2^n rounds of SHA-256 over salt, password
//! (UTF-16) and the round. Source: DOC/7zFormat.txt of 7-Zip, and what 7-Zip writes.
//!
//! Properties: a byte with `n` (bits 0 to 5) and whether there are salt and initialisation vector; a byte with their
//! lengths, each less 1 (salt in the upper half); both. Nothing here tells a wrong password: what comes out is noise
//! then, and the CRC-32 in the archive tells. Data are padded to whole blocks: the container says where they end.

use std::fmt;
use std::io;
use std::sync::Arc;

use aes::Aes256;
use cbc::cipher::{Block, BlockModeDecrypt, KeyIvInit};
use sha2::{Digest, Sha256};
use tarnfs_source::{SharedSource, Source};

use super::straight::Straight;
use super::{invalid_properties, keys};
use crate::faults;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Aes7z;

const BLOCK: usize = 16;
const KEY: usize = 32;
/// More rounds than 2^24 take seconds: 7-Zip refuses them, too. It writes 2^19.
const MOST_ROUNDS: u8 = 24;
/// This stands for a key that is salt and password as they are.
const NO_ROUNDS: u8 = 0x3F;

/// What can be decrypted anywhere.
#[derive(Clone)]
struct Decrypted {
    source: SharedSource,
    key: Arc<[u8]>,
    vector: [u8; BLOCK],
    length: u64,
}

impl fmt::Debug for Decrypted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Decrypted").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Rounds as a power of two, salt, and initialisation vector.
fn parse(properties: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&first, rest) = properties.split_first()?;
    if first & 0xC0 == 0 {
        return rest.is_empty().then_some((first, &[], &[]));
    }
    let (&lengths, rest) = rest.split_first()?;
    let salt = usize::from(first >> 7) + usize::from(lengths >> 4);
    let vector = usize::from(first >> 6 & 1) + usize::from(lengths & 0xF);
    let (salt, vector) = rest.split_at_checked(salt).filter(|(_, rest)| rest.len() == vector)?;
    Some((first & 0x3F, salt, vector))
}

fn make_key(rounds: u8, salt: &[u8], password: &[u8]) -> Vec<u8> {
    let mut round = [salt, password].concat();
    if rounds == NO_ROUNDS {
        round.resize(KEY, 0);
        return round;
    }
    let fixed = round.len();
    let mut hash = Sha256::new();
    for number in 0..1_u64 << rounds {
        round.truncate(fixed);
        round.extend(number.to_le_bytes());
        hash.update(&round);
    }
    hash.finalize().to_vec()
}

impl Decrypted {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let (rounds, salt, stored) = parse(&coder.properties).ok_or_else(|| invalid_properties("aes-7z"))?;
        if rounds > MOST_ROUNDS && rounds != NO_ROUNDS {
            let what = format!("a key made in 2^{rounds} rounds; more than 2^{MOST_ROUNDS} take too long");
            return Err(faults::unsupported(0, what));
        }
        // As 7-Zip does it; whoever encrypts with it has typed characters.
        let password = String::from_utf8_lossy(keys::password(coder)?);
        let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let key = keys::key(&[b"aes-7z", &[rounds], salt, &password], || make_key(rounds, salt, &password));
        let mut vector = [0; BLOCK];
        vector[..stored.len()].copy_from_slice(stored);
        let whole = source.len() / BLOCK as u64 * BLOCK as u64;
        let length = coder.decoded_length.unwrap_or(whole);
        if length > whole {
            return Err(faults::cut(source.len(), "the encrypted data"));
        }
        Ok(Self { source, key, vector, length })
    }
}

impl Source for Decrypted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        // With the block before them, on which the first one depends.
        let before = (offset % BLOCK as u64) as usize;
        let first = offset - before as u64;
        let mut bytes = vec![0; BLOCK + (before + wanted).next_multiple_of(BLOCK)];
        if let Some(previous) = first.checked_sub(BLOCK as u64) {
            self.source.read_exact_at(&mut bytes, previous)?;
        } else {
            bytes[..BLOCK].copy_from_slice(&self.vector);
            self.source.read_exact_at(&mut bytes[BLOCK..], first)?;
        }
        let (vector, data) = bytes.split_at_mut(BLOCK);
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let mut cipher = cbc::Decryptor::<Aes256>::new_from_slices(&self.key, vector).map_err(invalid)?;
        let (blocks, _) = Block::<Aes256>::slice_as_chunks_mut(data);
        cipher.decrypt_blocks(blocks);
        buffer[..wanted].copy_from_slice(&data[before..before + wanted]);
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset.saturating_sub(BLOCK as u64), length.saturating_add(2 * BLOCK))
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }
}

impl Codec for Aes7z {
    fn name(&self) -> &'static str {
        "aes-7z"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let decrypted: SharedSource = Arc::new(Decrypted::new(source, &options.coder)?);
        Ok(Box::new(Straight::first_pass(decrypted, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let decrypted: SharedSource = Arc::new(Decrypted::new(source, &context.coder)?);
        Ok(Box::new(Straight::resume(decrypted, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Aes7z {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored / BLOCK as u64 * BLOCK as u64)
    }

    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        Ok(Some(Arc::new(Decrypted::new(SharedSource::clone(source), coder)?)))
    }
}
