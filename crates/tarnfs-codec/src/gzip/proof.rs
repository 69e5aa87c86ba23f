//! Is what looks like the next member one? Its first bytes may be those of a file that a damaged member stores.

use std::io;

use crc32fast::Hasher;
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::inflate::{Inflate, InflateState, LEAST_INPUT, Stop};
use super::input::Input;
use super::member::{self, MAGIC};
use crate::starts::{self, Effort};

/// Members that lead further lie in no block that stores them: that has 64 KiB at most, and what is cut into such
/// blocks cannot be decoded as far behind each cut.
const FAR: u64 = 256 << 10;

/// Decoded bytes at a time.
const OUTPUT: usize = 32 << 10;

/// True if a gzip member begins at byte `at` and, if it is not long, ends where another one begins, and so on up to the
/// end, or zeros up to there. The data are decoded, as nothing else says how long they are.
pub(super) fn leads_on(
    source: &SharedSource,
    at: u64,
    limits: &Limits,
    cancel: &Cancel,
    effort: &mut Effort,
) -> io::Result<bool> {
    let mut input = Input::new(SharedSource::clone(source), at, cancel.clone());
    let mut output = vec![0; OUTPUT];
    loop {
        if !is_member(&mut input, at, limits, effort, &mut output)? || effort.is_spent() {
            return Ok(false);
        }
        let end = input.position();
        if end.saturating_sub(at) > FAR {
            return Ok(true);
        }
        match starts::nonzero(source, end, cancel, effort)? {
            None => return Ok(true),
            Some(next) if next == end => {}
            Some(next) => input = Input::new(SharedSource::clone(source), next, cancel.clone()),
        }
    }
}

/// Passes a member, and compares its checksum; or what of it leads far enough from byte `at`.
fn is_member(input: &mut Input, at: u64, limits: &Limits, effort: &mut Effort, output: &mut [u8]) -> io::Result<bool> {
    if input.bytes()? != Some(MAGIC) {
        return Ok(false);
    }
    match member::read_gzip_header(input, limits) {
        Ok(_) => {}
        Err(error) if member::is_of_data(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    let (mut inflate, mut crc, mut length) = (Inflate::new(), Hasher::new(), 0_u32);
    loop {
        input.cancel().check()?;
        let step = inflate.step(input.fill_to(LEAST_INPUT)?, [&mut *output], 0, Stop::Never);
        input.consume(step.read);
        let written = output.get(..step.written).unwrap_or_default();
        crc.update(written);
        length = length.wrapping_add(step.written as u32);
        if !effort.spend((step.read + step.written / 2) as u64) {
            return Ok(false);
        }
        match step.place {
            InflateState::End => break,
            InflateState::Invalid(_) => return Ok(false),
            _ if step.read + step.written == 0 => return Ok(false),
            _ if input.position().saturating_sub(at) > FAR => return Ok(true),
            _ => {}
        }
    }
    let (found, stated): (Option<[u8; 4]>, Option<[u8; 4]>) = (input.bytes()?, input.bytes()?);
    Ok(found == Some(crc.finalize().to_le_bytes()) && stated == Some(length.to_le_bytes()))
}
