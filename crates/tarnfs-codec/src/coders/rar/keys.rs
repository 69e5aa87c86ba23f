//! Keys of encrypted archives. RAR 5: AES-256 in CBC mode, with a key of 2^n rounds of PBKDF2 with HMAC-SHA256
//! (technote.htm of RAR, "File encryption record"). RAR 3 and 4: AES-128 in CBC mode, with a key of 2^18 rounds of
//! SHA-1 over the password (UTF-16), a salt and the round, as public descriptions have it. Those before: `old_ciphers`.

use std::io;
use std::sync::Arc;

use aes::{Aes128, Aes256};
use cbc::cipher::KeyIvInit;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::data::Cipher;
use super::old_ciphers;
use crate::coders::keys::{self, wrong_password};
use crate::{CoderContext, faults};

/// Salt of RAR 5 and of those before it.
pub(super) const SALT_5: usize = 16;
pub(super) const SALT_4: usize = 8;

/// More rounds than 2^24 are refused by UnRAR, too. It writes 2^15.
const MOST_ROUNDS: u8 = 24;

/// Rounds of RAR 3.
const ROUNDS_3: u32 = 1 << 18;

/// Characters of a password that count.
const LONGEST_PASSWORD: usize = 127;

/// How something is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encryption {
    /// RAR 5: rounds as a power of two, salt, what verifies the password.
    Five { rounds: u8, salt: [u8; SALT_5], check: Option<[u8; 8]> },
    /// RAR 3 and 4.
    Four { salt: Option<[u8; SALT_4]> },
    /// The RAR of that version before.
    Old(u8),
}

/// Keys of RAR 5: of the cipher, and of checksums.
pub(super) struct Keys5 {
    keys: Arc<[u8]>,
}

/// Reads of a record of RAR 5 what stands behind version, flags and rounds: the check of 12 bytes has a checksum of
/// its own.
pub(super) fn check_of(bytes: &[u8]) -> Option<[u8; 8]> {
    let (check, sum) = bytes.split_first_chunk::<8>()?;
    Sha256::digest(check).starts_with(sum.get(..4)?).then_some(*check)
}

fn typed(coder: &CoderContext) -> io::Result<String> {
    let password = String::from_utf8_lossy(keys::password(coder)?).into_owned();
    Ok(password.chars().take(LONGEST_PASSWORD).collect())
}

impl Keys5 {
    pub(super) fn new(
        rounds: u8,
        salt: &[u8; SALT_5],
        check: Option<[u8; 8]>,
        coder: &CoderContext,
    ) -> io::Result<Self> {
        if rounds > MOST_ROUNDS {
            let what = format!("a key made in 2^{rounds} rounds; more than 2^{MOST_ROUNDS} take too long");
            return Err(faults::unsupported(0, what));
        }
        let password = typed(coder)?;
        let keys = keys::key(&[b"rar5", &[rounds], salt, password.as_bytes()], || {
            make_5(password.as_bytes(), salt, 1 << rounds)
        });
        if check.is_some_and(|check| !keys.ends_with(&check)) {
            return Err(wrong_password());
        }
        Ok(Self { keys })
    }

    pub(super) fn cipher(&self, vector: &[u8; 16]) -> io::Result<Cipher> {
        let cipher = cbc::Decryptor::<Aes256>::new_from_slices(&self.keys[..32], vector);
        Ok(Cipher::Aes256(Box::new(cipher.map_err(|_| io::ErrorKind::InvalidData)?)))
    }

    fn mac(&self, data: &[u8]) -> io::Result<[u8; 32]> {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(&self.keys[32..64]).map_err(|_| io::ErrorKind::InvalidData)?;
        mac.update(data);
        Ok(mac.finalize().into_bytes().into())
    }

    /// What stands for this CRC-32 where checksums depend on the password.
    pub(super) fn sealed_crc(&self, crc: u32) -> io::Result<u32> {
        let mac = self.mac(&crc.to_le_bytes())?;
        Ok(mac.as_chunks::<4>().0.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word)))
    }

    /// The same of a hash.
    pub(super) fn sealed_hash(&self, hash: &[u8; 32]) -> io::Result<[u8; 32]> {
        self.mac(hash)
    }
}

/// PBKDF2: the key of the cipher is what it gives after that many rounds, that of checksums 16 later, and what verifies
/// the password again 16 later.
fn make_5(password: &[u8], salt: &[u8; SALT_5], rounds: u32) -> Vec<u8> {
    let Ok(keyed) = <Hmac<Sha256> as KeyInit>::new_from_slice(password) else { return Vec::new() };
    let mac = |parts: &[&[u8]]| -> [u8; 32] {
        let mut mac = keyed.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    };
    let mut last = mac(&[salt, &[0, 0, 0, 1]]);
    let mut sum = last;
    let mut made = Vec::new();
    for more in [rounds.saturating_sub(1), 16, 16] {
        for _ in 0..more {
            last = mac(&[&last]);
            sum.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
        }
        made.extend_from_slice(&sum);
    }
    let check = made.split_off(64);
    let folded = |at: usize| check.iter().skip(at).step_by(8).fold(0, |sum, byte| sum ^ byte);
    made.extend((0..8).map(folded));
    made
}

/// The cipher of RAR 3 and 4.
pub(super) fn cipher_4(salt: Option<[u8; SALT_4]>, coder: &CoderContext) -> io::Result<Cipher> {
    let password: Vec<u8> = typed(coder)?.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let salt = salt.as_ref().map_or(&[][..], |salt| salt);
    let key = keys::key(&[b"rar3", salt, &password], || make_3([&password, salt].concat()));
    let cipher = cbc::Decryptor::<Aes128>::new_from_slices(&key[..16], &key[16..]);
    Ok(Cipher::Aes128(Box::new(cipher.map_err(|_| io::ErrorKind::InvalidData)?)))
}

/// The cipher of the RAR of that version before 3.0, which takes the password as it is.
pub(super) fn old_cipher(version: u8, coder: &CoderContext) -> io::Result<Cipher> {
    let password = typed(coder)?;
    match version {
        15 => Ok(Cipher::Stream(old_ciphers::Stream::new(password.as_bytes()))),
        20..=28 => Ok(Cipher::Old(Box::new(old_ciphers::Blocks::new(password.as_bytes())))),
        _ => {
            let what = format!("a file that RAR {}.{} has encrypted", version / 10, version % 10);
            Err(faults::unsupported(0, what))
        }
    }
}

/// Key and initialisation vector of RAR 3.
fn make_3(mut password: Vec<u8>) -> Vec<u8> {
    let (mut hash, mut vector, mut hashed) = (Sha1::new(), Vec::new(), 0_usize);
    for round in 0..ROUNDS_3 {
        hash.update(&password);
        scramble(&mut password, hashed);
        let [a, b, c, _] = round.to_le_bytes();
        hash.update([a, b, c]);
        hashed += password.len() + 3;
        if round.is_multiple_of(ROUNDS_3 / 16) {
            vector.push(hash.clone().finalize()[19]);
        }
    }
    let mut key: Vec<u8> = hash.finalize().iter().take(16).copied().collect();
    key.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
    key.extend(vector);
    key
}

/// RAR's SHA-1 left its expanded message in the blocks that it took straight from a long password, which so was another
/// one in the next round. `hashed` bytes were hashed before it.
fn scramble(password: &mut [u8], hashed: usize) {
    /// Bytes of a block.
    const BLOCK: usize = 64;
    // The first block goes through a buffer.
    let mut at = BLOCK - hashed % BLOCK;
    while at + BLOCK <= password.len() {
        let mut words = [0_u32; 80];
        let block = &mut password[at..at + BLOCK];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for number in 16..80 {
            let mixed = words[number - 3] ^ words[number - 8] ^ words[number - 14] ^ words[number - 16];
            words[number] = mixed.rotate_left(1);
        }
        for (word, bytes) in words[64..].iter().zip(block.as_chunks_mut::<4>().0) {
            *bytes = word.to_le_bytes();
        }
        at += BLOCK;
    }
}
