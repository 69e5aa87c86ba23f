//! MSZIP: each block is a deflate stream of its own, which refers to what came before.

use zlib_rs::{Inflate, InflateFlush};

/// How far back a match may reach.
const WINDOW: usize = 32 << 10;

/// What each block begins with.
const SIGNATURE: &[u8] = b"CK";

pub(super) struct Mszip {
    inflate: Inflate,
    /// The bytes that were decoded last.
    history: Vec<u8>,
}

impl Mszip {
    pub(super) fn new() -> Self {
        Self { inflate: Inflate::new(false, 15), history: Vec::new() }
    }

    pub(super) fn decode(&mut self, stored: &[u8], decoded: &mut [u8]) -> Result<(), &'static str> {
        let stored = stored.strip_prefix(SIGNATURE).ok_or("a block without the signature of MSZIP")?;
        self.inflate.reset(false);
        let is_set = self.history.is_empty() || self.inflate.set_dictionary(&self.history).is_ok();
        let status = self.inflate.decompress(stored, decoded, InflateFlush::Finish);
        // Whether the stream says that it ends there does not matter: the cabinet has told how long the block is.
        if !is_set || status.is_err() || self.inflate.total_out() != decoded.len() as u64 {
            return Err("the deflate data of a block are not valid");
        }
        if decoded.len() >= WINDOW {
            self.history.clear();
        } else {
            let kept = WINDOW - decoded.len();
            self.history.drain(..self.history.len().saturating_sub(kept));
        }
        self.history.extend_from_slice(&decoded[decoded.len().saturating_sub(WINDOW)..]);
        Ok(())
    }

    pub(super) fn memory(&self) -> usize {
        /// Its window and tables.
        const INFLATE: usize = 64 << 10;
        size_of::<Self>() + INFLATE + self.history.capacity()
    }
}
