use std::fmt::Debug;
use std::io;

use tarnfs_source::{MemorySource, Source};

/// All bytes of a source, read into memory, and the room `R` that they take, which is given back with them.
#[derive(Debug)]
pub(crate) struct InMemory<R> {
    bytes: MemorySource,
    /// Of what they were read from. It stays so: what is verified later is not what was read here.
    is_unproven: bool,
    _room: R,
}

impl<R> InMemory<R> {
    pub(crate) fn read(source: &dyn Source, room: R) -> io::Result<Self> {
        // Asked first: the bytes may be verified only after some were read.
        let is_unproven = source.is_unproven();
        let mut bytes = vec![0; source.len() as usize];
        source.read_exact_at(&mut bytes, 0)?;
        Ok(Self { bytes: MemorySource::new(bytes, source.describe()), is_unproven, _room: room })
    }
}

impl<R: Debug + Send + Sync> Source for InMemory<R> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn describe(&self) -> String {
        self.bytes.describe()
    }

    fn is_unproven(&self) -> bool {
        self.is_unproven
    }
}
