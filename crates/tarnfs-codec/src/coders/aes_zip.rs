//! AES as WinZip writes it into zip, AE-1 and AE-2 (https://www.winzip.com/en/support/aes-encryption/): salt, 2 bytes
//! that verify the password, the data in counter mode, 10 bytes of an HMAC-SHA1 of the data as they are stored.
//!
//! One property: the strength (1 to 3, for 128, 192 and 256 bits). Any byte is decrypted without those before it. The
//! HMAC is compared once as many bytes were read as there are: if it is wrong, that read and all later ones are errors.
//! It can only be made in order. So who reads otherwise, or with others, makes up for some of what is not in it yet, or
//! waits for whoever is at that: it never is far behind what was read, and the last read does not take long. A first
//! pass says that all is damaged.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
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

    /// Reads the next bytes before `until` that are not in the HMAC yet.
    fn hash_on(&self, progress: &mut Progress, until: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let left = usize::try_from(until.saturating_sub(progress.hashed)).unwrap_or(usize::MAX);
        buffer.resize(left.min(STEP), 0);
        self.source.read_exact_at(buffer, self.start + progress.hashed)?;
        progress.see(buffer, progress.hashed);
        Ok(())
    }

    /// Compares the HMAC of all with that behind the data.
    fn compare(&self, progress: &Progress) -> io::Result<Result<(), &'static str>> {
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
        let mut buffer = Vec::new();
        while self.progress.hashed < self.encrypted.length {
            self.encrypted.hash_on(&mut self.progress, self.encrypted.length, &mut buffer)?;
        }
        self.encrypted.compare(&self.progress)
    }
}

/// For whoever reads anywhere.
struct Decrypted {
    encrypted: Encrypted,
    cancel: Cancel,
    /// Readers are not told of a wrong HMAC.
    is_lenient: bool,
    check: Mutex<Check>,
    /// Whoever is at the HMAC has got on, or has ended.
    moved: Condvar,
}

/// How far the HMAC is known.
struct Check {
    progress: Progress,
    /// Bytes that were read in all, in whatever order, and however often.
    read: u64,
    /// Somebody makes up for what was not read in order. He reads the same source, so he waits for nothing that who
    /// waits for him may hold.
    is_settling: bool,
    /// Whether it matches.
    verdict: Option<Result<(), &'static str>>,
}

impl Check {
    /// How far the HMAC has to be before somebody is answered who has just read. As all readers see to that, each adds
    /// about as much as it takes, what is left to the last one is bounded, and all of them together read everything
    /// once more at most.
    fn due(&self, whole: u64) -> Option<u64> {
        if self.verdict.is_some() || self.read >= whole {
            return Some(whole);
        }
        Some(self.read.saturating_sub(MOST_BEHIND)).filter(|&until| until > self.progress.hashed)
    }
}

/// The right to go on with the HMAC, given back when dropped.
struct Settling<'a>(&'a Decrypted);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.lock().is_settling = false;
        self.0.moved.notify_all();
    }
}

impl Decrypted {
    fn new(encrypted: Encrypted, coder: &CoderContext) -> io::Result<Self> {
        let check = Check { progress: encrypted.progress()?, read: 0, is_settling: false, verdict: None };
        let (cancel, is_lenient) = (coder.cancel.clone(), coder.unverified);
        let decrypted = Self { encrypted, cancel, is_lenient, check: Mutex::new(check), moved: Condvar::new() };
        if decrypted.encrypted.length == 0 && !is_lenient {
            decrypted.settle(0, &|| false)?;
        }
        Ok(decrypted)
    }

    fn lock(&self) -> MutexGuard<'_, Check> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, verdict: Result<(), &'static str>) -> io::Result<()> {
        verdict.map_err(|what| faults::invalid(self.encrypted.start, what))
    }

    /// Goes on with the HMAC up to byte `until` of the data, or waits for whoever is at that. At their end it is
    /// compared. Says what is wrong.
    fn settle(&self, until: u64, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        /// How often who waits looks whether he still has to.
        const LOOK: Duration = Duration::from_millis(20);
        let whole = self.encrypted.length;
        let mut check = self.lock();
        loop {
            if let Some(verdict) = check.verdict {
                return self.told(verdict);
            }
            if until < whole && check.progress.hashed >= until {
                return Ok(());
            }
            if check.progress.hashed < whole && is_abandoned() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if !check.is_settling {
                break;
            }
            (check, _) = self.moved.wait_timeout(check, LOOK).unwrap_or_else(PoisonError::into_inner);
        }
        check.is_settling = true;
        let mut progress = check.progress.clone();
        drop(check);
        let settling = Settling(self);
        let mut buffer = Vec::new();
        while progress.hashed < until {
            if is_abandoned() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.encrypted.hash_on(&mut progress, until, &mut buffer)?;
            let mut check = self.lock();
            // Others may have read on in order meanwhile.
            if progress.hashed > check.progress.hashed {
                check.progress = progress.clone();
                self.moved.notify_all();
            } else {
                progress = check.progress.clone();
            }
        }
        if progress.hashed >= whole {
            let verdict = self.encrypted.compare(&progress)?;
            self.lock().verdict = Some(verdict);
            drop(settling);
            return self.told(verdict);
        }
        Ok(())
    }
}

impl fmt::Debug for Decrypted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Decrypted").field("source", &self.encrypted.source).finish_non_exhaustive()
    }
}

/// Bytes that may have been read and not be in the HMAC. With more, readers make up for them; so it is, roughly, what
/// one read hashes at most beside its own. (In the tests few are many.)
const MOST_BEHIND: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };

impl Source for Decrypted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.encrypted.read_at(buffer, offset, &mut |stored| {
            let mut check = self.lock();
            check.read = check.read.saturating_add(stored.len() as u64);
            if check.verdict.is_none() {
                check.progress.see(stored, offset);
            }
        })?;
        if !self.is_lenient {
            let due = self.lock().due(self.encrypted.length);
            if let Some(until) = due {
                self.settle(until, &|| self.cancel.is_cancelled())?;
            }
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
        let is_answered_at_once = || {
            let check = match self.check.try_lock() {
                Ok(check) => check,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            // What makes up for others' reads, or may wait for who does, is for threads that may wait.
            let read = check.read.saturating_add(length as u64);
            let is_near = read < self.encrypted.length && read.saturating_sub(check.progress.hashed) <= MOST_BEHIND;
            check.verdict.is_some() || is_near
        };
        let is_here = self.encrypted.source.is_ready(offset.saturating_add(self.encrypted.start), length);
        is_here && (self.is_lenient || is_answered_at_once())
    }

    fn is_unproven(&self) -> bool {
        self.encrypted.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        // Of what lies around it, whoever reads that is told.
        match self.settle(self.encrypted.length, is_abandoned) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::testing::{noise, source};

    const PASSWORD: &[u8] = b"spruce-7";

    fn coder() -> CoderContext {
        CoderContext { properties: [3].into(), password: Some(PASSWORD.into()), ..CoderContext::default() }
    }

    /// As a zip stores `data`, with AES-256.
    fn encrypted(data: &[u8]) -> Vec<u8> {
        const KEY: usize = 32;
        let mut stream = vec![7; 16];
        let mut keys = [0; 2 * KEY + VERIFIER];
        pbkdf2::pbkdf2_hmac::<Sha1>(PASSWORD, &stream, ROUNDS, &mut keys);
        let mut stored = data.to_vec();
        apply::<ctr::Ctr128LE<Aes256>>(&keys[..KEY], &mut stored, 0).unwrap();
        let mac = Hmac::<Sha1>::new_from_slice(&keys[KEY..2 * KEY]).unwrap().chain_update(&stored);
        stream.extend_from_slice(&keys[2 * KEY..]);
        stream.extend_from_slice(&stored);
        stream.extend_from_slice(&mac.finalize().into_bytes()[..MAC]);
        stream
    }

    fn decrypted(source: SharedSource) -> Decrypted {
        let coder = coder();
        Decrypted::new(Encrypted::new(source, &coder).unwrap(), &coder).unwrap()
    }

    /// The same, with one bit changed.
    fn changed(data: &[u8]) -> Decrypted {
        let mut stream = encrypted(data);
        let middle = stream.len() / 2;
        stream[middle] ^= 1;
        decrypted(source(&stream))
    }

    #[test]
    fn several_readers_of_all_are_told_whatever_is_left() {
        const PIECE: usize = 4 << 10;
        let data = noise(500_000);
        for (all, is_right) in [(decrypted(source(&encrypted(&data))), true), (changed(&data), false)] {
            let errors = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for reader in 0..4 {
                    let (all, errors, data) = (&all, &errors, &data);
                    scope.spawn(move || {
                        let mut buffer = [0; PIECE];
                        for offset in (reader * PIECE..data.len()).step_by(4 * PIECE) {
                            let expected = &data[offset..data.len().min(offset + PIECE)];
                            match all.read_exact_at(&mut buffer[..expected.len()], offset as u64) {
                                Ok(()) => assert!(!is_right || &buffer[..expected.len()] == expected),
                                Err(_) => drop(errors.fetch_add(1, Ordering::Relaxed)),
                            }
                        }
                    });
                }
            });
            assert_eq!(errors.into_inner() == 0, is_right);
            assert_eq!(all.read_at(&mut [0], 0).is_ok(), is_right);
        }
    }

    #[test]
    fn who_has_read_all_waits_for_whoever_compares_it() {
        let data = noise(50_000);
        let all = changed(&data);
        all.lock().is_settling = true;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = vec![0; data.len() / 2];
                all.read_exact_at(&mut buffer, (data.len() / 2) as u64).unwrap();
                all.read_exact_at(&mut buffer, 0)
            });
            // While it is not all read, nobody waits.
            while all.lock().read < data.len() as u64 {
                std::thread::yield_now();
            }
            assert!(!all.is_ready(0, 1), "it may have to be waited for");
            drop(Settling(&all));
            assert_eq!(reader.join().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
        });
        assert!(all.is_ready(0, 1));
        // Who is not waited for any more says so.
        let all = changed(&data);
        all.lock().is_settling = true;
        assert_eq!(all.verify(&|| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    /// Counts the bytes that are read.
    #[derive(Debug)]
    struct Counted(SharedSource, AtomicU64);

    impl Source for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    #[test]
    fn no_read_makes_up_for_much_and_all_for_no_more_than_once() {
        const PIECE: usize = 5000;
        let data = noise(1_000_000);
        let counted = Arc::new(Counted(source(&encrypted(&data)), AtomicU64::new(0)));
        let all = decrypted(Arc::<Counted>::clone(&counted));
        let count = || counted.1.load(Ordering::Relaxed);
        let (begun, mut buffer) = (count(), [0; PIECE]);
        // Backwards, so that the HMAC has nothing of it.
        for start in (0..data.len()).step_by(PIECE).rev() {
            let before = count();
            all.read_exact_at(&mut buffer, start as u64).unwrap();
            let made_up_for = count() - before - PIECE as u64;
            let most = if start == 0 { MOST_BEHIND + (PIECE + MAC) as u64 } else { PIECE as u64 };
            assert!(made_up_for <= most, "{made_up_for} at {start}");
            assert!(buffer == data[start..][..PIECE]);
        }
        assert!(count() - begun <= 2 * data.len() as u64 + MAC as u64);
        // What is read again has to make up for nothing.
        let before = count();
        all.read_exact_at(&mut buffer, 77).unwrap();
        assert_eq!(count() - before, PIECE as u64);
        assert!(all.is_ready(0, PIECE));
    }
}
