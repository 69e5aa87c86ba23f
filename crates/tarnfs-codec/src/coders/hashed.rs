//! A file among others that were compressed together, of which the container has a SHA-1: its bytes as they are, which
//! are compared with it. The properties are the SHA-1.

use std::io;

use sha1::{Digest, Sha1};
use tarnfs_source::SharedSource;

use super::invalid_properties;
use super::straight::{Anywhere, Straight};
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};

/// The codec. See [`ContainerCodec::takes_part`] for what goes into it.
#[derive(Debug)]
pub(super) struct Hashed;

struct File {
    source: SharedSource,
    expected: [u8; 20],
    hash: Sha1,
    /// Bytes from the start on that were hashed.
    hashed: u64,
}

impl File {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let expected = coder.properties[..].try_into().map_err(|_| invalid_properties("hashed"))?;
        Ok(Self { source, expected, hash: Sha1::new(), hashed: 0 })
    }
}

impl Anywhere for File {
    fn length(&self) -> u64 {
        self.source.len()
    }

    fn fetch(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.source.read_at(buffer, offset)?;
        if self.hashed == offset {
            self.hash.update(&buffer[..read]);
            self.hashed += read as u64;
        }
        Ok(read)
    }

    fn check_all(&mut self) -> io::Result<Result<(), &'static str>> {
        let is_wrong = self.hashed == self.source.len() && self.hash.clone().finalize()[..] != self.expected;
        Ok(if is_wrong { Err("the SHA-1 of a file does not match its data") } else { Ok(()) })
    }
}

impl Codec for Hashed {
    fn name(&self) -> &'static str {
        "hashed"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Straight::first_pass(File::new(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Straight::resume(File::new(source, &context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Hashed {
    fn own_checks(&self) -> OwnChecks {
        OwnChecks::Whole
    }

    fn takes_part(&self) -> bool {
        true
    }

    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use crate::engine::Indexing;

    fn damage_of(data: &[u8], properties: &[u8]) -> io::Result<Vec<String>> {
        let source: SharedSource = Arc::new(MemorySource::new(data, "a file"));
        let coder = CoderContext { properties: properties.into(), ..CoderContext::default() };
        let mut indexing = Indexing::new(&Hashed, source, &Options { coder, ..Options::default() })?;
        let (mut all, mut buffer) = (Vec::new(), vec![0; 70_000]);
        loop {
            match indexing.read(&mut buffer)? {
                0 => break,
                read => all.extend_from_slice(&buffer[..read]),
            }
        }
        assert!(all == data);
        let mut damage = Vec::new();
        indexing.take_damage(&mut damage);
        Ok(damage.into_iter().map(|damage| damage.what).collect())
    }

    #[test]
    fn bytes_are_compared_with_the_hash_of_all() {
        let data: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        let hash = Sha1::digest(&data);
        assert_eq!(damage_of(&data, &hash).unwrap(), Vec::<String>::new());
        for at in [0, 150_000, 299_999] {
            let mut wrong = data.clone();
            wrong[at] ^= 1;
            assert_eq!(damage_of(&wrong, &hash).unwrap(), ["the SHA-1 of a file does not match its data"], "{at}");
        }
        assert!(damage_of(&data, b"short").is_err());
    }
}
