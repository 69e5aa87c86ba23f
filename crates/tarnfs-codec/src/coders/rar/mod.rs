//! Members of RAR archives: what RAR 1.5 to 7 have compressed, or only encrypted.
//!
//! The stream is a part of the archive, from the header of the first member on, with all blocks and starts of further
//! volumes that lie in it. `blocks` finds the members there, `data` decrypts what they are stored as, `five`, `three`,
//! `two` and `one` decode that into `window`, and `filters` undo what RAR has done before. Of the first member, or of
//! all of a solid run, whose members need what came before them: those that are only stored are left out of a run, for
//! they lie in the archive as they are. `header` decrypts headers for who reads the directory.
//!
//! Properties: 1 for a run, 2 for what belongs to a file (a service), else 0; the version of the headers, 4 or 5; how
//! these are encrypted, if they are (`blocks`).
//!
//! The only seek point is the start: what goes from one member of a run to the next are up to gigabytes.
//! Checksums that only the password tells, and BLAKE2sp, are compared here; CRC-32 is for who made the container known.

mod bits;
mod blocks;
mod data;
mod filters;
mod five;
mod header;
mod huffman;
mod keys;
mod old_ciphers;
mod one;
mod ppmd;
#[cfg(test)]
mod tests;
mod three;
mod two;
mod window;

use std::io;

use blake2s_simd::blake2sp;
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::invalid_properties;
use super::streamed::{Streamed, Unpack};
use crate::faults;
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};
use bits::Bits;
use blocks::{Blocks, Member, Method};
use data::Data;
use five::Five;
use keys::Keys5;
use one::One;
use three::Three;
use two::Two;
use window::Window;

pub(super) use header::Header;

/// The codec: of members that are encrypted, or of those that are not.
#[derive(Debug)]
pub(super) struct Rar {
    name: &'static str,
    is_encrypted: bool,
    own_checks: OwnChecks,
}

/// Members that anybody can read.
pub(super) static PLAIN: Rar = Rar { name: "rar", is_encrypted: false, own_checks: OwnChecks::Whole };
/// Members of which some are encrypted.
pub(super) static ENCRYPTED: Rar = Rar { name: "aes-rar", is_encrypted: true, own_checks: OwnChecks::Whole };
/// The same of members that have no checksum at all: their name says that nothing was compared.
pub(super) static UNCHECKED: Rar = Rar { name: "rar-unchecked", is_encrypted: false, own_checks: OwnChecks::None };
pub(super) static ENCRYPTED_UNCHECKED: Rar =
    Rar { name: "aes-rar-unchecked", is_encrypted: true, own_checks: OwnChecks::None };

/// The first byte of the properties of a solid run, and of what belongs to a file.
const RUN: u8 = 1;
const SERVICE: u8 = 2;

/// What decodes a member, with what stays for the next one.
enum Engine {
    None,
    Five(Box<Five>),
    Three(Box<Three>),
    Two(Box<Two>),
    One(Box<One>),
}

/// The member that is decoded.
struct Current {
    member: Member,
    bits: Bits,
    keys: Option<Keys5>,
    /// What its content is compared with in the end, as far as it was decoded.
    hash: Option<Box<blake2sp::State>>,
    crc: Option<crc32fast::Hasher>,
}

/// Decodes members.
struct Unpacker {
    source: SharedSource,
    blocks: Blocks,
    coder: CoderContext,
    limits: Limits,
    is_run: bool,
    /// Bytes that are to come, of all members, if the container says so.
    left: u64,
    /// Bytes of the member that were handed out.
    done: u64,
    engine: Engine,
    window: Window,
    current: Option<Box<Current>>,
    is_begun: bool,
    /// A member was handed out to its end.
    has_one: bool,
    /// An error before which there are bytes to be handed out.
    failure: Option<io::Error>,
    /// Bytes that came last and fail a check, and which.
    flaw: Option<(u64, String)>,
}

impl Unpacker {
    fn new(source: SharedSource, limits: &Limits, coder: &CoderContext) -> io::Result<Self> {
        let (&[run, ref properties @ ..], Some(left)) = (&coder.properties[..], coder.decoded_length) else {
            return Err(invalid_properties("RAR"));
        };
        let blocks = Blocks::new(SharedSource::clone(&source), coder, properties);
        let mut unpacker = Self {
            source,
            blocks: blocks.ok_or_else(|| invalid_properties("RAR"))?.with_services(run == SERVICE),
            coder: coder.clone(),
            limits: *limits,
            is_run: run == RUN,
            left,
            done: 0,
            engine: Engine::None,
            window: Window::new(),
            current: None,
            is_begun: false,
            has_one: false,
            failure: None,
            flaw: None,
        };
        // Whoever opens it learns here whether the password is right, and what cannot be decoded.
        unpacker.begin_next(&Cancel::default())?;
        Ok(unpacker)
    }

    /// Begins the next member that counts, if there is one.
    fn begin_next(&mut self, cancel: &Cancel) -> io::Result<()> {
        while self.current.is_none() && self.left > 0 && (self.is_run || !self.is_begun) {
            cancel.check()?;
            let Some(member) = self.blocks.next().map_err(|error| self.of_one(error))? else { break };
            // One without content may have codes that the next one goes on with, but not if nothing is stored.
            let is_void = member.runs.iter().all(|(_, length)| *length == 0);
            if self.is_run && (member.method == Method::Stored || is_void) {
                continue;
            }
            self.begin(member).map_err(|error| self.of_one(error))?;
        }
        Ok(())
    }

    /// An error of a member. What cannot be read, or not with this password, says so of the whole stream; where members
    /// were handed out before, they are whole.
    fn of_one(&self, error: io::Error) -> io::Error {
        let is_of_all = matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied);
        if self.has_one && is_of_all && error.raw_os_error().is_none() {
            return io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        }
        error
    }

    fn begin(&mut self, member: Member) -> io::Result<()> {
        let place = member.runs.first().map_or(0, |(start, _)| *start);
        let is_next = std::mem::replace(&mut self.is_begun, true);
        if member.length > self.left {
            return Err(faults::invalid(place, "a file that is longer than the archive's directory says"));
        }
        let (cipher, keys) = member.cipher(&self.coder)?;
        let data = Data::new(SharedSource::clone(&self.source), member.runs.clone(), cipher);
        let mut bits = Bits::new(data);
        match member.method {
            Method::Stored => {}
            Method::Five { is_far, dictionary } => {
                let needed = dictionary.min(self.window.total().saturating_add(self.left));
                // So long is the ring.
                let taken = needed.checked_next_power_of_two().unwrap_or(u64::MAX);
                if taken > self.limits.lzma_dictionary {
                    let limit = self.limits.lzma_dictionary;
                    let what = format!(
                        "the data need a dictionary of {needed} bytes, which takes {taken}; the limit is {limit}"
                    );
                    return Err(faults::unsupported(place, what));
                }
                self.window.begin(member.length, dictionary, self.left);
                if !matches!(self.engine, Engine::Five(_)) {
                    self.engine = Engine::Five(Box::new(Five::new()));
                }
                if let Engine::Five(five) = &mut self.engine {
                    five.begin(is_far);
                }
            }
            Method::Old(29..=36) => {
                self.window.begin(member.length, three::DICTIONARY, self.left);
                if !matches!(self.engine, Engine::Three(_)) {
                    self.engine = Engine::Three(Box::new(Three::new(&self.limits)));
                }
                if let Engine::Three(three) = &mut self.engine {
                    three.begin(&mut bits, is_next)?;
                }
            }
            Method::Old(20..=28) => {
                self.window.begin(member.length, two::DICTIONARY, self.left);
                if !matches!(self.engine, Engine::Two(_)) {
                    self.engine = Engine::Two(Box::new(Two::new()));
                }
                if let Engine::Two(two) = &mut self.engine {
                    two.begin(&mut bits)?;
                }
            }
            Method::Old(15..=19) => {
                self.window.begin(member.length, one::DICTIONARY, self.left);
                if !matches!(self.engine, Engine::One(_)) {
                    self.engine = Engine::One(Box::new(One::new()));
                }
                if let Engine::One(one) = &mut self.engine {
                    one.begin();
                }
            }
            Method::Old(version) => {
                let what = if version == u8::MAX {
                    "a file that is compressed in a way that is not known".to_owned()
                } else {
                    format!("a file that RAR {}.{} has compressed", version / 10, version % 10)
                };
                return Err(faults::unsupported(place, what));
            }
        }
        let hash = member.hash.map(|_| Box::new(blake2sp::State::new()));
        let crc = member.sealed_crc.map(|_| crc32fast::Hasher::new());
        self.done = 0;
        self.current = Some(Box::new(Current { member, bits, keys, hash, crc }));
        Ok(())
    }

    /// The next bytes of the member; none at its end.
    fn decode(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        let Some(current) = &mut self.current else { return Ok(0) };
        let left = usize::try_from(current.member.length - self.done).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..wanted];
        if current.member.method == Method::Stored {
            return current.bits.copy(buffer);
        }
        loop {
            cancel.check()?;
            let served = self.window.serve(buffer, current.bits.place())?;
            if served > 0 {
                return Ok(served);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let before = (self.window.total(), current.bits.position());
            let decoded = match &mut self.engine {
                Engine::None => Ok(false),
                Engine::Five(five) => five.decode(&mut current.bits, &mut self.window),
                Engine::Three(three) => three.decode(&mut current.bits, &mut self.window),
                Engine::Two(two) => two.decode(&mut current.bits, &mut self.window),
                Engine::One(one) => one.decode(&mut current.bits, &mut self.window),
            };
            let goes_on = match decoded {
                Ok(goes_on) => goes_on,
                // What was decoded before it comes first.
                Err(error) => {
                    self.failure = Some(error);
                    continue;
                }
            };
            if !goes_on && !self.window.is_full() {
                // What there is, before that is told.
                return self.window.serve(buffer, current.bits.place());
            }
            if before == (self.window.total(), current.bits.position()) && !self.window.has_room() {
                return Err(current.bits.invalid("filters that do not end"));
            }
        }
    }

    /// Ends the member, all of which was handed out. That its checksum differs is no error: who reads others of a run
    /// goes on, and so does who wants it all the same.
    fn end(&mut self) -> io::Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        self.has_one = true;
        let keys = current.keys.as_ref();
        let mut flaw = None;
        if let (Some(crc), Some(expected)) = (current.crc.take(), current.member.sealed_crc) {
            let crc = crc.finalize();
            if keys.map_or(Ok(crc), |keys| keys.sealed_crc(crc))? != expected {
                flaw = Some("the checksum of a file does not match its data");
            }
        }
        if let (Some(hash), Some((expected, is_sealed))) = (current.hash.take(), current.member.hash) {
            let hash = *hash.finalize().as_array();
            let hash = keys.filter(|_| is_sealed).map_or(Ok(hash), |keys| keys.sealed_hash(&hash))?;
            if hash != expected {
                flaw = Some("the hash of a file (BLAKE2sp) does not match its data");
            }
        }
        let length = current.member.length;
        if let Some(what) = flaw.filter(|_| length > 0) {
            self.flaw = Some((length, current.bits.invalid(what).to_string()));
        }
        // What comes behind the last byte matters to the next member alone.
        if self.is_run && self.left > 0 {
            match &mut self.engine {
                Engine::None | Engine::One(_) => {}
                Engine::Five(five) => five.finish(&mut current.bits)?,
                Engine::Three(three) => three.finish(&mut current.bits)?,
                Engine::Two(two) => two.finish(&mut current.bits)?,
            }
        }
        Ok(())
    }
}

impl Unpack for Unpacker {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        loop {
            if let Some(current) = &self.current
                && self.done == current.member.length
            {
                self.end().map_err(|error| self.of_one(error))?;
            }
            if self.current.is_none()
                && let Some(failure) = self.failure.take()
            {
                return Err(failure);
            }
            self.begin_next(cancel)?;
            if self.current.is_none() {
                return Ok(0);
            }
            let read = self.decode(buffer, cancel).map_err(|error| self.of_one(error))?;
            let Some(current) = &mut self.current else { return Ok(0) };
            if read == 0 {
                if self.done < current.member.length {
                    return Err(current.bits.invalid("the data of a file end before the file does"));
                }
                continue;
            }
            (self.done, self.left) = (self.done + read as u64, self.left - read as u64);
            if let Some(hash) = &mut current.hash {
                hash.update(&buffer[..read]);
            }
            if let Some(crc) = &mut current.crc {
                crc.update(&buffer[..read]);
            }
            if self.done == current.member.length {
                // Now, so that whoever takes its last bytes knows whether they are right.
                self.failure = self.end().err().map(|error| self.of_one(error));
            }
            return Ok(read);
        }
    }

    fn take_flaw(&mut self) -> Option<(u64, String)> {
        self.flaw.take()
    }

    fn position(&self) -> u64 {
        self.current.as_ref().map_or(self.blocks.position(), |current| current.bits.place())
    }

    fn memory(&self, decoded: u64) -> usize {
        let engine = match &self.engine {
            Engine::None => 0,
            Engine::Five(five) => five.memory(),
            Engine::Three(three) => three.memory(),
            Engine::Two(two) => two.memory(),
            Engine::One(_) => size_of::<One>(),
        };
        let current = self
            .current
            .as_ref()
            .map_or(0, |current| current.bits.memory() + current.member.runs.capacity() * size_of::<(u64, u64)>());
        size_of::<Self>() + self.blocks.memory() + self.window.memory(decoded) + engine + current
    }
}

impl Codec for Rar {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn tells_memory(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Unpacker::new(source, &options.limits, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = Unpacker::new(source, &context.limits, &context.coder)?;
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Rar {
    fn own_checks(&self) -> OwnChecks {
        self.own_checks
    }

    /// Only whether the password can be the right one.
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        if self.is_encrypted {
            super::keys::password(coder)?;
            let blocks = Blocks::new(SharedSource::clone(source), coder, coder.properties.get(1..).unwrap_or_default());
            if let Some(member) = blocks.ok_or_else(|| invalid_properties("RAR"))?.next()? {
                member.cipher(coder)?;
            }
        }
        Ok(None)
    }
}
