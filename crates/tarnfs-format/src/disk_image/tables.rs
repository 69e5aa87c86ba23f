//! Tables of an image, of which parts are kept.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::Source;

use crate::image::damaged;

/// Bytes of a part, and parts that are kept: 4 MiB, which are the tables of 32 GiB of a disk in clusters of 64 KiB.
const PART: u64 = 16 << 10;
const KEPT: usize = 256;

/// Reads tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    parts: Mutex<HashMap<u64, Arc<[u8]>>>,
}

/// Some of a table: entries of so many bytes, one behind the other.
#[derive(Debug)]
pub(super) struct Entries {
    part: Arc<[u8]>,
    from: usize,
}

impl Entries {
    /// The bytes of them, from the one that was asked for on.
    pub(super) fn bytes(&self) -> &[u8] {
        self.part.get(self.from..).unwrap_or_default()
    }
}

impl Tables {
    /// Entries of a table, from byte `at` of `source` on: at least `length` bytes, which do not lie across a multiple
    /// of 16 KiB.
    pub(super) fn entries(&self, source: &dyn Source, at: u64, length: usize) -> io::Result<Entries> {
        let number = at / PART;
        let parts = || self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parts().get(&number).cloned();
        let part = if let Some(known) = known {
            known
        } else {
            let start = number.saturating_mul(PART);
            let mut bytes = vec![0; source.len().saturating_sub(start).min(PART) as usize];
            source.read_exact_at(&mut bytes, start)?;
            let part: Arc<[u8]> = bytes.into();
            let mut parts = parts();
            if parts.len() >= KEPT {
                // Who goes on needs few of them.
                parts.clear();
            }
            parts.insert(number, Arc::clone(&part));
            part
        };
        let from = (at % PART) as usize;
        if part.len().saturating_sub(from) < length {
            return Err(damaged(format!("a table at byte {at} lies behind the end of the image, which is cut")));
        }
        Ok(Entries { part, from })
    }
}
