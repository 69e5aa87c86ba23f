//! AES as WinZip writes it into zip, AE-1 and AE-2 (https://www.winzip.com/en/support/aes-encryption/): salt, 2 bytes
//! that verify the password, the data in counter mode, 10 bytes of an HMAC-SHA1 of the data as they are stored.
//!
//! One property: the strength (1 to 3, for 128, 192 and 256 bits). Any byte is decrypted without those before it. The
//! HMAC is compared once as many bytes were read as there are: if it is wrong, that read and all later ones are errors.
//! What of them was read twice is made up for by that reader alone; others read on. A first pass says that all is
//! damaged.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use aes::{Aes128, Aes192, Aes256};
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use tarnfs_source::{Cancel, SharedSource, Source};

use super::straight::{Anywhere, Straight};
use super::{invalid_properties, keys};
use crate::faults;
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};

/// The codec.
#[derive(Debug)]
pub(super) struct AesZip;

/// Rounds of PBKDF2.
const ROUNDS: u32 = 1000;
/// Bytes that verify the password, behind the salt and behind the keys.
const VERIFIER: usize = 2;
/// Bytes of the HMAC behind the data.
const MAC: usize = 10;
/// Bytes that are read at once for the HMAC alone.
const STEP: usize = 64 << 10;
/// The counter of the first block.
const FIRST: u128 = 1;

const DIFFERS: &str = "the HMAC of the encrypted data does not match: they were changed";

/// What can be decrypted anywhere.
#[derive(Clone)]
struct Encrypted {
    source: SharedSource,
    /// Of the cipher, of the HMAC, and the verifier.
    keys: Arc<[u8]>,
    /// Bytes of each of the two keys.
    key_length: usize,
    start: u64,
    length: u64,
}

/// The HMAC of what was read in order.
#[derive(Clone)]
struct Progress {
    mac: Hmac<Sha1>,
    /// Bytes of the data that are in it.
    hashed: u64,
}

/// Bytes of the salt and of each key.
fn lengths(coder: &CoderContext) -> io::Result<(usize, usize)> {
    match coder.properties[..] {
        [strength @ 1..=3] => Ok((4 + 4 * usize::from(strength), 8 + 8 * usize::from(strength))),
        _ => Err(invalid_properties("aes-zip")),
    }
}

impl Encrypted {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let (salt_length, key_length) = lengths(coder)?;
        let password = keys::password(coder)?;
        let mut head = vec![0; salt_length + VERIFIER];
        let start = head.len() as u64;
        let length = source.len().checked_sub(start + MAC as u64);
        let (Some(length), true) = (length, source.read_at(&mut head, 0)? == head.len()) else {
            return Err(faults::cut(source.len(), "the header of the encryption"));
        };
        let (salt, verifier) = head.split_at(salt_length);
        let keys = keys::key(&[b"aes-zip", salt, password], || {
            let mut keys = vec![0; 2 * key_length + VERIFIER];
            pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, ROUNDS, &mut keys);
            keys
        });
        if !keys.ends_with(verifier) {
            return Err(keys::wrong_password());
        }
        Ok(Self { source, keys, key_length, start, length })
    }

    fn progress(&self) -> io::Result<Progress> {
        let key = &self.keys[self.key_length..2 * self.key_length];
        let mac = Hmac::new_from_slice(key).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Progress { mac, hashed: 0 })
    }

    /// Reads at `offset`, and tells `progress` what is stored there.
    fn read_at(&self, buffer: &mut [u8], offset: u64, progress: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let read = self.source.read_at(&mut buffer[..wanted], self.start + offset.min(self.length))?;
        let data = &mut buffer[..read];
        progress(data);
        let key = &self.keys[..self.key_length];
        let done = match self.key_length {
            16 => apply::<ctr::Ctr128LE<Aes128>>(key, data, offset),
            24 => apply::<ctr::Ctr128LE<Aes192>>(key, data, offset),
            _ => apply::<ctr::Ctr128LE<Aes256>>(key, data, offset),
        };
        done.ok_or_else(|| faults::invalid(self.start, "more data than this encryption can have"))?;
        Ok(read)
    }

    /// Compares the HMAC of all with that behind the data. What is not in it yet is read.
    fn verify(&self, progress: &mut Progress, is_abandoned: &dyn Fn() -> bool) -> io::Result<Result<(), &'static str>> {
        let mut buffer = Vec::new();
        while progress.hashed < self.length {
            if is_abandoned() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left = usize::try_from(self.length - progress.hashed).unwrap_or(usize::MAX);
            buffer.resize(left.min(STEP), 0);
            self.source.read_exact_at(&mut buffer, self.start + progress.hashed)?;
            progress.see(&buffer, progress.hashed);
        }
        let mut stored = [0; MAC];
        self.source.read_exact_at(&mut stored, self.start + self.length)?;
        Ok(progress.mac.clone().verify_truncated_left(&stored).map_err(|_| DIFFERS))
    }
}

/// Decrypts what lies at `offset`.
fn apply<C: KeyIvInit + StreamCipher + StreamCipherSeek>(key: &[u8], data: &mut [u8], offset: u64) -> Option<()> {
    let mut cipher = C::new_from_slices(key, &FIRST.to_le_bytes()).ok()?;
    cipher.try_seek(offset).ok()?;
    cipher.try_apply_keystream(data).ok()
}

impl Progress {
    /// These bytes are stored at `offset` of the data.
    fn see(&mut self, stored: &[u8], offset: u64) {
        let known = self.hashed.checked_sub(offset).and_then(|known| usize::try_from(known).ok());
        if let Some(new) = known.and_then(|known| stored.get(known..)) {
            self.mac.update(new);
            self.hashed += new.len() as u64;
        }
    }
}

/// For a decoder, which reads in order.
struct InOrder {
    encrypted: Encrypted,
    progress: Progress,
}

impl InOrder {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let encrypted = Encrypted::new(source, coder)?;
        let progress = encrypted.progress()?;
        Ok(Self { encrypted, progress })
    }
}

impl Anywhere for InOrder {
    fn start(&self) -> u64 {
        self.encrypted.start
    }

    fn length(&self) -> u64 {
        self.encrypted.length
    }

    fn fetch(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Self { encrypted, progress } = self;
        encrypted.read_at(buffer, offset, &mut |stored| progress.see(stored, offset))
    }

    fn check_all(&mut self) -> io::Result<Result<(), &'static str>> {
        self.encrypted.verify(&mut self.progress, &|| false)
    }
}

/// For whoever reads anywhere.
struct Decrypted {
    encrypted: Encrypted,
    cancel: Cancel,
    /// Readers are not told of a wrong HMAC.
    is_lenient: bool,
    check: Mutex<Check>,
}

/// How far the HMAC is known.
struct Check {
    progress: Progress,
    /// Bytes that were read in all, in whatever order.
    read: u64,
    /// Somebody makes up for what was not read in order.
    is_settling: bool,
    /// Whether it matches.
    verdict: Option<Result<(), &'static str>>,
}

/// The right to compare the HMAC, given back when dropped.
struct Settling<'a>(&'a Decrypted);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.lock().is_settling = false;
    }
}

impl Decrypted {
    fn new(encrypted: Encrypted, coder: &CoderContext) -> io::Result<Self> {
        let check = Check { progress: encrypted.progress()?, read: 0, is_settling: false, verdict: None };
        let (cancel, is_lenient) = (coder.cancel.clone(), coder.unverified);
        let decrypted = Self { encrypted, cancel, is_lenient, check: Mutex::new(check) };
        if decrypted.encrypted.length == 0 && !is_lenient {
            decrypted.settle(&|| false)?;
        }
        Ok(decrypted)
    }

    fn lock(&self) -> MutexGuard<'_, Check> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the HMAC, and says what is wrong. Waits for nobody: while somebody else makes up for what was not read
    /// in order, nothing is known.
    fn settle(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        let told =
            |verdict: Result<(), &'static str>| verdict.map_err(|what| faults::invalid(self.encrypted.start, what));
        let mut progress = {
            let mut check = self.lock();
            if let Some(verdict) = check.verdict {
                return told(verdict);
            }
            let is_complete = check.progress.hashed >= self.encrypted.length;
            if check.is_settling && !is_complete {
                return Ok(());
            }
            check.is_settling = true;
            check.progress.clone()
        };
        let settling = Settling(self);
        let verdict = self.encrypted.verify(&mut progress, is_abandoned);
        drop(settling);
        let mut check = self.lock();
        if progress.hashed > check.progress.hashed {
            // Also where it was given up: somebody else goes on there.
            check.progress = progress;
        }
        told(*check.verdict.insert(verdict?))
    }

    /// The same, for who waits until it is known.
    fn settle_at_last(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        /// How often who waits looks.
        const LOOK: Duration = Duration::from_millis(20);
        loop {
            self.settle(is_abandoned)?;
            if self.lock().verdict.is_some() {
                return Ok(());
            }
            if is_abandoned() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            thread::sleep(LOOK);
        }
    }
}

impl fmt::Debug for Decrypted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Decrypted").field("source", &self.encrypted.source).finish_non_exhaustive()
    }
}

/// Bytes that one read hashes at most beside its own, to compare the HMAC.
const MOST_AT_ONCE: u64 = 64 << 20;

impl Source for Decrypted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.encrypted.read_at(buffer, offset, &mut |stored| {
            let mut check = self.lock();
            check.read = check.read.saturating_add(stored.len() as u64);
            if check.verdict.is_none() {
                check.progress.see(stored, offset);
            }
        })?;
        let is_due = {
            let check = self.lock();
            // Several threads may have read all of it in another order. Where much is left to be hashed, one reader
            // would have to do it for all: then it is done beside them.
            let left = self.encrypted.length.saturating_sub(check.progress.hashed);
            check.verdict.is_some() || check.read >= self.encrypted.length && left <= MOST_AT_ONCE
        };
        if is_due && !self.is_lenient {
            self.settle(&|| self.cancel.is_cancelled())?;
        }
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.encrypted.length
    }

    fn describe(&self) -> String {
        self.encrypted.source.describe()
    }

    fn depth(&self) -> usize {
        self.encrypted.source.depth()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.encrypted.source.prefetch(offset.saturating_add(self.encrypted.start), length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.encrypted.source.is_ready(offset.saturating_add(self.encrypted.start), length)
    }

    fn is_unproven(&self) -> bool {
        self.encrypted.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        // Of what lies around it, whoever reads that is told.
        match self.settle_at_last(is_abandoned) {
            // Readers are told.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !self.is_lenient => Ok(()),
            settled => settled,
        }
    }
}

impl Codec for AesZip {
    fn name(&self) -> &'static str {
        "aes-zip"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Straight::first_pass(InOrder::new(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Straight::resume(InOrder::new(source, &context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for AesZip {
    fn own_checks(&self) -> OwnChecks {
        OwnChecks::Whole
    }

    fn decoded_length(&self, stored: u64, coder: &CoderContext) -> Option<u64> {
        let (salt, _) = lengths(coder).ok()?;
        stored.checked_sub((salt + VERIFIER + MAC) as u64)
    }

    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let encrypted = Encrypted::new(SharedSource::clone(source), coder)?;
        Ok(Some(Arc::new(Decrypted::new(encrypted, coder)?)))
    }
}
