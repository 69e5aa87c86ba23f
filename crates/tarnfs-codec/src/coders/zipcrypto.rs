//! The old encryption of zip (APPNOTE 6.3.10, 6.1): a stream cipher with 96 bits of state, which is long broken.
//!
//! One property: the byte that the last one of the header of 12 bytes must be (of the CRC-32, or of the time). One
//! wrong password in 256 passes it: only the CRC-32 of the member tells those.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tarnfs_source::SharedSource;

use super::filtered::{Filter, Filtered};
use super::{invalid_properties, keys};
use crate::faults;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct ZipCrypto;

/// Bytes before the data.
const HEADER: usize = 12;

/// The state of the cipher.
#[derive(Clone, Copy)]
struct Keys([u32; 3]);

/// CRC-32 of one byte each.
pub(super) const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

impl Keys {
    fn new(password: &[u8]) -> Self {
        let mut keys = Self([0x1234_5678, 0x2345_6789, 0x3456_7890]);
        for &byte in password {
            keys.update(byte);
        }
        keys
    }

    fn update(&mut self, plain: u8) {
        let crc = |before: u32, byte: u8| before >> 8 ^ CRC[usize::from(before as u8 ^ byte)];
        let [first, second, third] = &mut self.0;
        *first = crc(*first, plain);
        *second = second.wrapping_add(*first & 0xFF).wrapping_mul(134_775_813).wrapping_add(1);
        *third = crc(*third, (*second >> 24) as u8);
    }

    fn decrypt(&mut self, data: &mut [u8]) {
        for byte in data {
            let mixed = (self.0[2] | 2) & 0xFFFF;
            *byte ^= (mixed.wrapping_mul(mixed ^ 1) >> 8) as u8;
            self.update(*byte);
        }
    }
}

/// Decrypts in order.
struct Cipher {
    keys: Keys,
    /// What seals the states of seek points: they lie in an index, and nobody who finds it shall read on with them.
    password: Arc<[u8]>,
    header: [u8; HEADER],
}

impl Cipher {
    fn new(source: &SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let [check] = coder.properties[..] else { return Err(invalid_properties("zipcrypto")) };
        let password: Arc<[u8]> = keys::password(coder)?.into();
        let mut header = [0; HEADER];
        if source.read_at(&mut header, 0)? < HEADER {
            return Err(faults::cut(source.len(), "the header of the encryption"));
        }
        let mut keys = Keys::new(&password);
        let mut plain = header;
        keys.decrypt(&mut plain);
        if plain[HEADER - 1] != check {
            return Err(keys::wrong_password());
        }
        Ok(Self { keys, password, header })
    }

    /// Changes a state into one that only the password makes sense of, and back.
    fn seal(&self, state: [u32; 3], position: u64) -> [u32; 3] {
        let mut hash = Sha256::new();
        hash.update(self.header);
        hash.update(position.to_le_bytes());
        hash.update(&self.password);
        let hash = hash.finalize();
        let mut sealed = state;
        for (word, bytes) in sealed.iter_mut().zip(hash.as_chunks::<4>().0) {
            *word ^= u32::from_le_bytes(*bytes);
        }
        sealed
    }
}

impl Filter for Cipher {
    fn undo(&mut self, data: &mut [u8], _position: u64) -> usize {
        self.keys.decrypt(data);
        data.len()
    }

    fn save(&self, position: u64) -> Vec<u8> {
        self.seal(self.keys.0, position).map(u32::to_le_bytes).as_flattened().to_vec()
    }

    fn load(&mut self, state: &[u8], position: u64) -> bool {
        let (words, rest) = state.as_chunks::<4>();
        let Ok(words) = <[[u8; 4]; 3]>::try_from(words) else { return false };
        self.keys = Keys(self.seal(words.map(u32::from_le_bytes), position));
        rest.is_empty()
    }
}

impl Codec for ZipCrypto {
    fn name(&self) -> &'static str {
        "zipcrypto"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 200_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let cipher = Cipher::new(&source, &options.coder)?;
        Ok(Box::new(Filtered::first_pass(source, HEADER as u64, cipher, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let cipher = Cipher::new(&source, &context.coder)?;
        Ok(Box::new(Filtered::resume(source, HEADER as u64, cipher, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for ZipCrypto {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        stored.checked_sub(HEADER as u64)
    }

    /// It has none, but the password is tried.
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        Cipher::new(source, coder).map(|_| None)
    }
}
