use std::fmt;
use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource};

use crate::{Coder, Step};

/// Undoes a coder in memory, for formats whose directory is coded as contents are.
#[derive(Clone)]
pub struct Decode(Arc<Function>, Option<Arc<BlockFunction>>, Option<Arc<EachFunction>>);

/// Takes the next bytes. An error ends it.
pub type Take<'t> = &'t mut dyn FnMut(&[u8]) -> io::Result<()>;

type EachFunction = dyn Fn(&Step, SharedSource, &Cancel, Take<'_>) -> io::Result<()> + Send + Sync;

type BlockFunction = dyn Fn(&Coder, &[u8], &mut [u8]) -> io::Result<usize> + Send + Sync;

type Function = dyn Fn(&Coder, SharedSource, u64, IsRight<'_>) -> io::Result<Vec<u8>> + Send + Sync;

/// Says whether bytes are those that were wanted: who has several passwords needs to know.
pub type IsRight<'r> = &'r dyn Fn(&[u8]) -> bool;

impl Decode {
    /// `decode` is called with what is stored, with the number of bytes that come out, as the archive says, and with
    /// what tells whether they are the right ones. It gives no more than these.
    pub fn new(
        decode: impl Fn(&Coder, SharedSource, u64, IsRight<'_>) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(decode), None, None)
    }

    /// The same, and `decode` for blocks: it decodes all that is stored to the start of what it is given, and says how
    /// many bytes that is.
    #[must_use]
    pub fn with_blocks(
        self,
        decode: impl Fn(&Coder, &[u8], &mut [u8]) -> io::Result<usize> + Send + Sync + 'static,
    ) -> Self {
        Self(self.0, Some(Arc::new(decode)), self.2)
    }

    /// The same, and `decode` for what nothing says how long it is: it hands all that a step makes of what is stored to
    /// what it is given, and looks at the flag also where nothing comes of it.
    #[must_use]
    pub fn with_each(
        self,
        decode: impl Fn(&Step, SharedSource, &Cancel, Take<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(self.0, self.1, Some(Arc::new(decode)))
    }

    /// The same, of which no block is decoded before `count` was given the bytes that come of it.
    #[must_use]
    pub fn counting_blocks(self, count: impl Fn(usize) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let Self(function, Some(block), each) = self else { return self };
        let counted = move |coder: &Coder, stored: &[u8], decoded: &mut [u8]| {
            count(decoded.len())?;
            block(coder, stored, decoded)
        };
        Self(function, Some(Arc::new(counted)), each)
    }

    /// Hands all that `step` makes of `stored` to `take`, unless `cancel` ends it.
    pub fn each(&self, step: &Step, stored: SharedSource, cancel: &Cancel, take: Take<'_>) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "nothing here decodes it");
        self.2.as_ref().ok_or_else(none)?(step, stored, cancel, take)
    }

    /// Decodes the block `stored`, which `coder` has made, to the start of `decoded`, and says how many bytes that is.
    pub fn block(&self, coder: &Coder, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "nothing here decodes its blocks");
        self.1.as_ref().ok_or_else(none)?(coder, stored, decoded)
    }

    /// What `coder` makes of `stored`, up to `length` bytes. They need not be right: that is for the caller to see.
    pub fn decode(
        &self,
        coder: &Coder,
        stored: SharedSource,
        length: u64,
        is_right: IsRight<'_>,
    ) -> io::Result<Vec<u8>> {
        (self.0)(coder, stored, length, is_right)
    }
}

impl Default for Decode {
    /// Undoes nothing.
    fn default() -> Self {
        Self::new(|_, _, _, _| Err(io::Error::new(io::ErrorKind::Unsupported, "nothing here decodes it")))
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Decode")
    }
}
