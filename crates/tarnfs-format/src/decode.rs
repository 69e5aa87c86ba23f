use std::fmt;
use std::io;
use std::sync::Arc;

use tarnfs_source::SharedSource;

use crate::Coder;

/// Undoes a coder in memory, for formats whose directory is coded as contents are.
#[derive(Clone)]
pub struct Decode(Arc<Function>);

type Function = dyn Fn(&Coder, SharedSource, u64) -> io::Result<Vec<u8>> + Send + Sync;

impl Decode {
    /// `decode` is called with what is stored and the number of bytes that come out, as the archive says. It gives no
    /// more than these.
    pub fn new(decode: impl Fn(&Coder, SharedSource, u64) -> io::Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decode))
    }

    /// What `coder` makes of `stored`, up to `length` bytes.
    pub fn decode(&self, coder: &Coder, stored: SharedSource, length: u64) -> io::Result<Vec<u8>> {
        (self.0)(coder, stored, length)
    }
}

impl Default for Decode {
    /// Undoes nothing.
    fn default() -> Self {
        Self::new(|_, _, _| Err(io::Error::new(io::ErrorKind::Unsupported, "nothing here decodes it")))
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Decode")
    }
}
