//! Keys from passwords. Making one is slow on purpose, and decoders begin often: the last ones are kept.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tarnfs_source::Setting;

use super::CoderContext;

/// The password, where there is one.
pub(super) fn password(coder: &CoderContext) -> io::Result<&[u8]> {
    let missing = || {
        let what = format!("it is encrypted: give {} or {}", Setting::Password, Setting::PasswordFile);
        io::Error::new(io::ErrorKind::PermissionDenied, what)
    };
    coder.password.as_deref().ok_or_else(missing)
}

/// The password leads nowhere.
pub(super) fn wrong_password() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "wrong password")
}

/// What a key is made of, as a hash, and the key.
type Known = ([u8; 32], Arc<[u8]>);

/// Keys that are kept. Each stream of a zip has its own.
const KEPT: usize = 32;

static KEYS: Mutex<VecDeque<Known>> = Mutex::new(VecDeque::new());

/// The key that is made of `parts` by `make`.
pub(super) fn key(parts: &[&[u8]], make: impl FnOnce() -> Vec<u8>) -> Arc<[u8]> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let name: [u8; 32] = hash.finalize().into();
    let lock = || KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, key)) = lock().iter().find(|(known, _)| *known == name) {
        return Arc::clone(key);
    }
    let key: Arc<[u8]> = make().into();
    let mut keys = lock();
    keys.truncate(KEPT - 1);
    keys.push_front((name, Arc::clone(&key)));
    key
}
