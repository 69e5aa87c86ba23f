use std::io::{self, Read, Seek, SeekFrom};

use crate::SharedSource;

/// A source with a position: what programs that know [`Read`] and [`Seek`] take. A copy has a position of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    source: SharedSource,
    position: u64,
}

impl Reader {
    /// Reads `source` from its start on.
    pub fn new(source: SharedSource) -> Self {
        Self { source, position: 0 }
    }

    /// What it reads.
    pub fn source(&self) -> &SharedSource {
        &self.source
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_at(buffer, self.position)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.source.len().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        let what = || io::Error::new(io::ErrorKind::InvalidInput, "a position before byte 0, or behind all numbers");
        self.position = position.ok_or_else(what)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemorySource;

    #[test]
    fn it_reads_and_seeks_as_a_file_does() {
        let mut reader = Reader::new(Arc::new(MemorySource::new(b"0123456789".to_vec(), "digits")));
        let mut two = [0; 2];
        reader.read_exact(&mut two).unwrap();
        assert_eq!((&two, reader.stream_position().unwrap()), (b"01", 2));
        assert_eq!(reader.seek(SeekFrom::End(-3)).unwrap(), 7);
        let mut copy = reader.clone();
        let mut rest = String::new();
        assert_eq!(reader.read_to_string(&mut rest).unwrap(), 3);
        assert_eq!(rest, "789");
        assert_eq!(copy.seek(SeekFrom::Current(-6)).unwrap(), 1);
        copy.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"12");
        assert!(copy.seek(SeekFrom::Current(-4)).is_err());
        assert_eq!(copy.stream_position().unwrap(), 3);
        assert_eq!(copy.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
        assert_eq!(copy.read(&mut two).unwrap(), 0);
        assert!(copy.seek(SeekFrom::Current(1)).is_err());
    }
}
