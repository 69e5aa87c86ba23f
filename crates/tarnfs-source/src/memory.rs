use std::io;

use crate::Source;

/// Bytes in memory as a [`Source`].
#[derive(Debug, Clone)]
pub struct MemorySource {
    bytes: Vec<u8>,
    name: String,
}

impl MemorySource {
    /// `bytes`, called `name` in messages.
    pub fn new(bytes: impl Into<Vec<u8>>, name: impl Into<String>) -> Self {
        Self { bytes: bytes.into(), name: name.into() }
    }
}

impl Source for MemorySource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|start| self.bytes.get(start..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn memory(&self) -> usize {
        self.bytes.len()
    }
}
