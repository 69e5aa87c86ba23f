//! Encrypted headers: an initialisation vector (RAR 5) or a salt (before), and the header in whole blocks.
//!
//! Properties: 4 or 5; for RAR 5 rounds, salt and check, for RAR 4 a byte 0.

use std::io;
use std::sync::Arc;

use tarnfs_source::{MemorySource, SharedSource};

use super::keys::{self, Keys5, SALT_4};
use crate::coders::invalid_properties;
use crate::faults;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(in crate::coders) struct Header;

/// Bytes of the longest header, with what is before it.
const LONGEST: u64 = (2 << 20) + 64;

const BLOCK: usize = 16;

fn decrypted(source: &SharedSource, coder: &CoderContext) -> io::Result<SharedSource> {
    let invalid = || invalid_properties("aes-rar-header");
    let length = usize::try_from(source.len().min(LONGEST)).map_err(|_| invalid())?;
    let mut bytes = vec![0; length];
    source.read_exact_at(&mut bytes, 0)?;
    let cut = || faults::cut(source.len(), "an encrypted header");
    let (mut cipher, before) = match *coder.properties {
        [5, rounds, ref rest @ ..] => {
            let (salt, check) = rest.split_first_chunk().ok_or_else(invalid)?;
            let vector = bytes.first_chunk::<BLOCK>().ok_or_else(cut)?;
            let keys = Keys5::new(rounds, salt, keys::check_of(check), coder)?;
            (keys.cipher(vector)?, BLOCK)
        }
        [4, ..] => (keys::cipher_4(Some(*bytes.first_chunk().ok_or_else(cut)?), coder)?, SALT_4),
        _ => return Err(invalid()),
    };
    let mut header = bytes.split_off(before);
    header.truncate(header.len() / BLOCK * BLOCK);
    cipher.undo(&mut header);
    Ok(Arc::new(MemorySource::new(header, "a header")))
}

impl Codec for Header {
    fn name(&self) -> &'static str {
        "aes-rar-header"
    }

    fn first_pass(&self, _source: SharedSource, _options: &Options) -> io::Result<Box<dyn FirstPass>> {
        // It is read at random.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn resume(&self, _: SharedSource, _: &SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Header {
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        decrypted(source, coder).map(Some)
    }
}
