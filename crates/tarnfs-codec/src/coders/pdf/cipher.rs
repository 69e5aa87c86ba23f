//! Encryption of PDF with a password: RC4 and AES-128 (revisions 2 to 4), AES-256 (5 and 6).
//!
//! Properties: how it is encrypted (1 RC4, 2 AES-128, 3 AES-256), the revision, bytes of the key, whether metadata are
//! encrypted, what is permitted (4 bytes), the number of the object (4 bytes) and its generation (2 bytes), all
//! little-endian; then O, U, OE, UE and the first ID of the document, each with its length (1 byte) before it.

use std::io;

use aes::{Aes128, Aes256};
use cbc::cipher::{Block, BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use md5::{Digest, Md5};
use sha2::{Sha256, Sha384, Sha512};

use super::super::keys;
use super::{Feed, Undo};
use crate::CoderContext;

const BLOCK: usize = 16;

/// What short passwords are filled up with.
const PADDING: [u8; 32] = [
    0x28, 0xbf, 0x4e, 0x5e, 0x4e, 0x75, 0x8a, 0x41, 0x64, 0x00, 0x4e, 0x56, 0xff, 0xfa, 0x01, 0x08, 0x2e, 0x2e, 0x00,
    0xb6, 0xd0, 0x68, 0x3e, 0x80, 0x2f, 0x0c, 0xa9, 0xfe, 0x64, 0x53, 0x69, 0x7a,
];

/// Bytes of a password that count.
const LONGEST_PASSWORD: usize = 127;

/// What the document says of its encryption.
struct Said<'p> {
    method: u8,
    revision: u8,
    length: usize,
    encrypts_metadata: bool,
    permissions: [u8; 4],
    object: [u8; 3],
    generation: [u8; 2],
    owner: &'p [u8],
    user: &'p [u8],
    owner_key: &'p [u8],
    user_key: &'p [u8],
    id: &'p [u8],
}

impl<'p> Said<'p> {
    #[allow(clippy::many_single_char_names, reason = "bytes of numbers")]
    fn of(properties: &'p [u8]) -> Option<(Self, &'p [u8])> {
        let (&[method, revision, length, metadata, a, b, c, d, o, p, q, _, g, h], mut rest) =
            properties.split_first_chunk()?;
        let mut next = || -> Option<&'p [u8]> {
            let (&length, behind) = rest.split_first()?;
            let (bytes, behind) = behind.split_at_checked(length.into())?;
            rest = behind;
            Some(bytes)
        };
        let (owner, user, owner_key, user_key, id) = (next()?, next()?, next()?, next()?, next()?);
        let said = Self {
            method,
            revision,
            length: length.into(),
            encrypts_metadata: metadata != 0,
            permissions: [a, b, c, d],
            object: [o, p, q],
            generation: [g, h],
            owner,
            user,
            owner_key,
            user_key,
            id,
        };
        let is_known = match (method, revision) {
            (1, 2..=4) | (2, 4) => (5..=16).contains(&said.length) && owner.len() >= 32 && user.len() >= 32,
            (3, 5 | 6) => owner.len() >= 48 && user.len() >= 48 && owner_key.len() == 32 && user_key.len() == 32,
            _ => false,
        };
        is_known.then_some((said, rest))
    }

    /// The key of the document, if the password is that of its user or of its owner.
    fn key(&self, password: &[u8]) -> Option<Vec<u8>> {
        if self.method == 3 {
            let password = password.get(..LONGEST_PASSWORD).unwrap_or(password);
            return self.key_of_256(password);
        }
        let padded: Vec<u8> = password.iter().chain(&PADDING).copied().take(32).collect();
        self.key_of_user(&padded).or_else(|| {
            let key = self.repeated(Md5::digest(&padded).to_vec());
            let mut user = self.owner.get(..32)?.to_vec();
            let rounds = if self.revision >= 3 { 19 } else { 0 };
            for round in (0..=rounds).rev() {
                rc4(&key, round, &mut user);
            }
            self.key_of_user(&user)
        })
    }

    fn repeated(&self, mut hash: Vec<u8>) -> Vec<u8> {
        if self.revision >= 3 {
            for _ in 0..50 {
                hash = Md5::digest(&hash[..self.length]).to_vec();
            }
        }
        hash.truncate(self.length);
        hash
    }

    fn key_of_user(&self, padded: &[u8]) -> Option<Vec<u8>> {
        let mut hash = Md5::new();
        hash.update(padded);
        hash.update(self.owner.get(..32)?);
        hash.update(self.permissions);
        hash.update(self.id);
        if self.revision >= 4 && !self.encrypts_metadata {
            hash.update([0xff; 4]);
        }
        let key = self.repeated(hash.finalize().to_vec());
        let is_right = if self.revision >= 3 {
            let mut check = Md5::digest([&PADDING[..], self.id].concat()).to_vec();
            for round in 0..=19 {
                rc4(&key, round, &mut check);
            }
            self.user.get(..16)? == check
        } else {
            let mut check = PADDING;
            rc4(&key, 0, &mut check);
            self.user.get(..32)? == check
        };
        is_right.then_some(key)
    }

    fn key_of_256(&self, password: &[u8]) -> Option<Vec<u8>> {
        let user = self.user.get(..48)?;
        for (said, of_user, encrypted) in [(self.user, &b""[..], self.user_key), (self.owner, user, self.owner_key)] {
            let (check, salt, key_salt) = (said.get(..32)?, said.get(32..40)?, said.get(40..48)?);
            if self.hash(password, salt, of_user) == check {
                let key = self.hash(password, key_salt, of_user);
                let mut decrypted = encrypted.to_vec();
                let mut cipher = cbc::Decryptor::<Aes256>::new_from_slices(&key, &[0; BLOCK]).ok()?;
                cipher.decrypt_blocks(Block::<Aes256>::slice_as_chunks_mut(&mut decrypted).0);
                return Some(decrypted);
            }
        }
        None
    }

    /// Algorithm 2.B of ISO 32000-2; in revision 5 only its start.
    fn hash(&self, password: &[u8], salt: &[u8], user: &[u8]) -> Vec<u8> {
        let mut key = Sha256::digest([password, salt, user].concat()).to_vec();
        if self.revision < 6 {
            return key;
        }
        let mut round = 0_usize;
        loop {
            let mut bytes = [password, &key, user].concat().repeat(64);
            let Ok(mut cipher) = cbc::Encryptor::<Aes128>::new_from_slices(&key[..16], &key[16..32]) else {
                return key;
            };
            cipher.encrypt_blocks(Block::<Aes128>::slice_as_chunks_mut(&mut bytes).0);
            // 256 is 1 modulo 3, so the number that these bytes are is as their sum.
            let sum: u32 = bytes[..16].iter().map(|byte| u32::from(*byte)).sum();
            key = match sum % 3 {
                0 => Sha256::digest(&bytes).to_vec(),
                1 => Sha384::digest(&bytes).to_vec(),
                _ => Sha512::digest(&bytes).to_vec(),
            };
            round += 1;
            let last = bytes.last().copied().map_or(0, usize::from);
            // Half of the values of the last byte end it in each round: it never gets far.
            if round >= 64 && last + 32 <= round {
                key.truncate(32);
                return key;
            }
        }
    }
}

/// Encrypts or decrypts with RC4, with a key of which each byte is changed by `round`.
fn rc4(key: &[u8], round: u8, bytes: &mut [u8]) {
    let key: Vec<u8> = key.iter().map(|byte| byte ^ round).collect();
    let mut cipher = Rc4::new(&key);
    for byte in bytes {
        *byte ^= cipher.next();
    }
}

struct Rc4 {
    state: [u8; 256],
    at: u8,
    sum: u8,
}

impl Rc4 {
    fn new(key: &[u8]) -> Self {
        let mut state = std::array::from_fn(|number| number as u8);
        let mut sum = 0_u8;
        for number in 0..256 {
            sum = sum.wrapping_add(state[number]).wrapping_add(key[number % key.len()]);
            state.swap(number, sum.into());
        }
        Self { state, at: 0, sum: 0 }
    }

    fn next(&mut self) -> u8 {
        self.at = self.at.wrapping_add(1);
        self.sum = self.sum.wrapping_add(self.state[usize::from(self.at)]);
        self.state.swap(self.at.into(), self.sum.into());
        let place = self.state[usize::from(self.at)].wrapping_add(self.state[usize::from(self.sum)]);
        self.state[usize::from(place)]
    }
}

impl Undo for Rc4 {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let bytes = input.bytes()?;
        let length = bytes.len().min(output.len());
        for (target, byte) in output.iter_mut().zip(&bytes[..length]) {
            *target = byte ^ self.next();
        }
        input.consume(length);
        Ok(length)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

enum Cipher {
    Short(Box<cbc::Decryptor<Aes128>>),
    Long(Box<cbc::Decryptor<Aes256>>),
}

/// Blocks of AES, of which the first one is the vector and the last one is filled up.
struct Aes {
    key: Vec<u8>,
    cipher: Option<Cipher>,
    /// Bytes of a block that is not whole yet.
    stored: Vec<u8>,
    /// What was decrypted, and how much of it was handed out. The last block waits.
    clear: Vec<u8>,
    served: usize,
    has_ended: bool,
}

impl Aes {
    fn next(&mut self, input: &mut Feed) -> io::Result<()> {
        self.clear.drain(..self.served);
        self.served = 0;
        let bytes = input.bytes()?;
        let length = bytes.len();
        self.stored.extend_from_slice(bytes);
        input.consume(length);
        if length == 0 {
            self.has_ended = true;
            // What is not whole is nothing. Some programs fill up with nothing at all.
            let filled = self.clear.last().map_or(0, |&last| usize::from(last));
            if (1..=BLOCK.min(self.clear.len())).contains(&filled) {
                self.clear.truncate(self.clear.len() - filled);
            }
            return Ok(());
        }
        if self.cipher.is_none() && self.stored.len() >= BLOCK {
            let vector: Vec<u8> = self.stored.drain(..BLOCK).collect();
            let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
            self.cipher = Some(if self.key.len() == 32 {
                Cipher::Long(Box::new(cbc::Decryptor::new_from_slices(&self.key, &vector).map_err(wrong)?))
            } else {
                Cipher::Short(Box::new(cbc::Decryptor::new_from_slices(&self.key, &vector).map_err(wrong)?))
            });
        }
        let whole = self.stored.len() / BLOCK * BLOCK;
        let mut blocks: Vec<u8> = self.stored.drain(..whole).collect();
        match &mut self.cipher {
            Some(Cipher::Short(cipher)) => cipher.decrypt_blocks(Block::<Aes128>::slice_as_chunks_mut(&mut blocks).0),
            Some(Cipher::Long(cipher)) => cipher.decrypt_blocks(Block::<Aes256>::slice_as_chunks_mut(&mut blocks).0),
            None => {}
        }
        self.clear.extend_from_slice(&blocks);
        Ok(())
    }
}

impl Undo for Aes {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        loop {
            let waiting = if self.has_ended { 0 } else { BLOCK };
            let ready = self.clear.len().saturating_sub(self.served + waiting);
            if ready > 0 || self.has_ended {
                let length = ready.min(output.len());
                output[..length].copy_from_slice(&self.clear[self.served..self.served + length]);
                self.served += length;
                return Ok(length);
            }
            self.next(input)?;
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.stored.capacity() + self.clear.capacity()
    }
}

/// What decrypts as `properties` say, and what is behind them. `PermissionDenied` if the password is not the right one:
/// without one, the empty one is tried.
#[allow(clippy::type_complexity, reason = "it is said in one place only")]
pub(super) fn of<'p>(properties: &'p [u8], coder: &CoderContext) -> io::Result<Option<(Box<dyn Undo>, &'p [u8])>> {
    let Some((said, rest)) = Said::of(properties) else { return Ok(None) };
    let password = coder.password.as_deref().unwrap_or_default();
    let of_document = &properties[..8];
    let parts = [said.owner, said.user, said.owner_key, said.user_key, said.id, password];
    let parts: Vec<&[u8]> = [&b"pdf"[..], of_document].into_iter().chain(parts).collect();
    let key = keys::key(&parts, || said.key(password).unwrap_or_default());
    if key.is_empty() {
        return match coder.password {
            Some(_) => Err(keys::wrong_password()),
            None => keys::password(coder).map(|_| None),
        };
    }
    if said.method == 3 {
        let key = key.to_vec();
        return Ok(Some((Box::new(Aes::new(key)), rest)));
    }
    let mut hash = Md5::new();
    hash.update(&*key);
    hash.update(said.object);
    hash.update(said.generation);
    if said.method == 2 {
        hash.update(b"sAlT");
    }
    let mut of_object = hash.finalize().to_vec();
    of_object.truncate((key.len() + 5).min(16));
    Ok(Some(if said.method == 2 {
        (Box::new(Aes::new(of_object)), rest)
    } else {
        (Box::new(Rc4::new(&of_object)), rest)
    }))
}

impl Aes {
    fn new(key: Vec<u8>) -> Self {
        Self { key, cipher: None, stored: Vec::new(), clear: Vec::new(), served: 0, has_ended: false }
    }
}
