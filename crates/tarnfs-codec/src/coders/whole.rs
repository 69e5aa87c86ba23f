//! Steps that have their bytes in memory: a block (see `block`) among other steps, and a part of what comes of one.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::{MemorySource, SharedSource, Slice, Source};

use super::block::{BlockCoder, block_coder_by_name};
use super::invalid_properties;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, SeekPoint};

/// Bytes of a block, stored or decoded.
const LONGEST: u64 = 16 << 20;

/// A block. Its properties are the most bytes that may come of it (8 bytes) and the name of its coder; of what comes,
/// as many bytes count as the container says.
#[derive(Debug)]
pub(super) struct Block;

/// Name of the coder of a step that is a block among other steps; `None` of other steps.
pub fn coder_of_block(step: &str, properties: &[u8]) -> Option<&'static str> {
    let (_, name) = properties.split_first_chunk::<8>().filter(|_| step == Block.name())?;
    Some(block_coder_by_name(std::str::from_utf8(name).ok()?)?.name())
}

/// So many bytes as the container says, from a byte on that is the properties (8 bytes).
#[derive(Debug)]
pub(super) struct Part;

/// A block that was decoded: its coder, what is stored of it, and what came of that.
struct Kept {
    coder: &'static str,
    stored: Vec<u8>,
    most: usize,
    decoded: Arc<MemorySource>,
}

/// Those that were decoded last: a block of a disk image may hold many blocks of a file.
static KEPT: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

/// How many are kept, and bytes of them.
const MOST_KEPT: usize = 4;
const KEPT_BYTES: usize = 8 << 20;

/// What `coder` makes of `stored`, up to `most` bytes.
fn decoded(coder: &'static dyn BlockCoder, stored: Vec<u8>, most: usize) -> io::Result<Arc<MemorySource>> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |one: &Kept| one.coder == coder.name() && one.most == most && one.stored == stored;
    {
        let mut kept = kept();
        if let Some(found) = kept.iter().position(is_it).and_then(|place| kept.remove(place)) {
            let decoded = Arc::clone(&found.decoded);
            kept.push_front(found);
            return Ok(decoded);
        }
    }
    let mut bytes = vec![0; most];
    let length = coder.decode(&stored, &mut bytes)?;
    bytes.truncate(length);
    let decoded = Arc::new(MemorySource::new(bytes, "a block"));
    let mut kept = kept();
    kept.push_front(Kept { coder: coder.name(), stored, most, decoded: Arc::clone(&decoded) });
    let mut sum = 0;
    let is_kept = |one: &&Kept| {
        sum += one.stored.len() + one.decoded.len() as usize;
        sum <= KEPT_BYTES
    };
    let count = kept.iter().take(MOST_KEPT).take_while(is_kept).count();
    kept.truncate(count);
    Ok(decoded)
}

/// Nobody decodes these in order: any byte can be had.
fn not_in_order<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Codec for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn first_pass(&self, _: SharedSource, _: &Options) -> io::Result<Box<dyn FirstPass>> {
        not_in_order()
    }

    fn resume(&self, _: SharedSource, _: &SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        not_in_order()
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Block {
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let Some((most, name)) = coder.properties.split_first_chunk::<8>() else {
            return Err(invalid_properties(self.name()));
        };
        let of_name = std::str::from_utf8(name).ok().and_then(block_coder_by_name);
        let (of_name, most) = (of_name.ok_or_else(|| invalid_properties(self.name()))?, u64::from_le_bytes(*most));
        if source.len().max(most) > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a block of more than 16 MiB"));
        }
        let mut stored = vec![0; source.len() as usize];
        source.read_exact_at(&mut stored, 0)?;
        let decoded: SharedSource = decoded(of_name, stored, most as usize)?;
        let length = decoded.len();
        let wanted = coder.decoded_length.unwrap_or(length);
        if wanted > length {
            let what = format!("only {length} bytes come of a block, {wanted} are needed: it is damaged");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(Arc::new(Decoded {
            part: Slice::new(SharedSource::clone(&decoded), 0, wanted),
            memory: length as usize,
        })))
    }
}

/// What comes of a block, all of which is in memory: whoever keeps many of them counts that.
#[derive(Debug)]
struct Decoded {
    part: Slice,
    /// Bytes of all of it.
    memory: usize,
}

impl Source for Decoded {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.part.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.part.len()
    }

    fn describe(&self) -> String {
        self.part.describe()
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

impl Codec for Part {
    fn name(&self) -> &'static str {
        "part"
    }

    fn first_pass(&self, _: SharedSource, _: &Options) -> io::Result<Box<dyn FirstPass>> {
        not_in_order()
    }

    fn resume(&self, _: SharedSource, _: &SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        not_in_order()
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Part {
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let from = coder.properties[..].try_into().ok().map(u64::from_le_bytes);
        let from = from.ok_or_else(|| invalid_properties(self.name()))?;
        let there = source.len().saturating_sub(from);
        let length = coder.decoded_length.unwrap_or(there);
        if length > there {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a part that reaches behind its end"));
        }
        Ok(Some(Arc::new(Slice::new(SharedSource::clone(source), from, length))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(codec: &dyn Codec, stored: &[u8], properties: &[u8], length: Option<u64>) -> io::Result<Vec<u8>> {
        let source: SharedSource = Arc::new(MemorySource::new(stored, "stored"));
        let coder = CoderContext { properties: properties.into(), decoded_length: length, ..CoderContext::default() };
        let found = codec.random_access(&source, &coder)?.unwrap();
        let mut bytes = vec![0; found.len() as usize];
        found.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Others may decode beside it.
    #[test]
    fn a_block_that_was_decoded_is_kept_for_its_coder() {
        let stored = lz4_flex::block::compress(b"kept kept kept kept kept kept");
        let coder = |name| block_coder_by_name(name).unwrap();
        let decode = |most| decoded(coder("lz4-block"), stored.clone(), most).unwrap();
        assert!((0..100).any(|_| Arc::ptr_eq(&decode(100), &decode(100))));
        assert!(!Arc::ptr_eq(&decode(100), &decode(101)));
        assert!(decoded(coder("zlib-block"), stored.clone(), 100).is_err());
        for number in 0..2 * MOST_KEPT {
            decoded(coder("lz4-block"), lz4_flex::block::compress(&[number as u8; 50]), 100).unwrap();
        }
        assert!(KEPT.lock().unwrap().len() <= MOST_KEPT);
    }

    #[test]
    fn a_block_is_a_step_like_others() {
        let stored = lz4_flex::block::compress(b"tarn tarn tarn tarn tarn");
        let properties = |most: u64, name: &str| [&most.to_le_bytes()[..], name.as_bytes()].concat();
        assert_eq!(read(&Block, &stored, &properties(100, "lz4-block"), Some(4)).unwrap(), b"tarn");
        assert_eq!(read(&Block, &stored, &properties(100, "lz4-block"), None).unwrap().len(), 24);
        assert_eq!(coder_of_block("block", &properties(100, "lz4-block")), Some("lz4-block"));
        assert_eq!(coder_of_block("copy", &properties(100, "lz4-block")), None);
        let source: SharedSource = Arc::new(MemorySource::new(stored.clone(), "stored"));
        let coder = CoderContext {
            properties: properties(100, "lz4-block").into(),
            decoded_length: Some(4),
            ..CoderContext::default()
        };
        assert_eq!(Block.random_access(&source, &coder).unwrap().unwrap().memory(), 24);
        for (properties, length) in [
            (properties(100, "lz4-block"), Some(25)),
            (properties(10, "lz4-block"), None),
            (properties(u64::MAX, "lz4-block"), None),
            (properties(100, "lz4"), None),
            (vec![1; 7], None),
        ] {
            assert!(read(&Block, &stored, &properties, length).is_err(), "{properties:?}");
        }
        assert_eq!(read(&Part, b"abcdef", &2_u64.to_le_bytes(), Some(3)).unwrap(), b"cde");
        for (from, length) in [(7, Some(1)), (u64::MAX, None), (2, Some(5))] {
            let found = read(&Part, b"abcdef", &from.to_le_bytes(), length);
            assert!(found.is_err() || found.unwrap().is_empty(), "{from}");
        }
    }
}
