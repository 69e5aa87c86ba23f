//! Base64 (RFC 4648), in lines.
//!
//! A file of it may begin as `uuencode -m` writes it, or with fields as mail has them.
//!
//! Of a container (mail) the properties are, where all lines but the last are equally long, the characters of a line (4
//! bytes, little-endian) and the bytes of its end; else none. What is not in the alphabet is passed then, as RFC 2045
//! wants it.

use std::io;

use tarnfs_source::{SharedSource, Source};

use super::regular::Regular;
use super::{Letters, Text, heads};
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint,
};

/// The codec of containers.
#[derive(Debug)]
pub(crate) struct Base64;

impl Codec for Base64 {
    fn name(&self) -> &'static str {
        "mime-base64"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Text::first_pass(source, 0, Quads::new(&options.coder), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Text::resume(source, 0, Quads::new(&context.coder), point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Base64 {
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        Regular::new(source, coder)
    }
}

/// The codec of files.
#[derive(Debug)]
pub(crate) struct Base64File;

/// What `uuencode -m` begins with.
const BEGIN: &[u8] = b"begin-base64 ";

impl Codec for Base64File {
    fn name(&self) -> &'static str {
        "base64"
    }

    fn pace(&self) -> Pace {
        Base64.pace()
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let start = heads::start(&*source, BEGIN)?;
        Ok(Box::new(Text::first_pass(source, start, Quads::with(true), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let start = heads::start(&*source, BEGIN)?;
        Ok(Box::new(Text::resume(source, start, Quads::with(true), point, context)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Base64File {
    fn about(&self) -> &'static str {
        "seeks everywhere; with the head that uuencode or mail gives it, else known by its name only"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".b64", ""), (".base64", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        match heads::begin(head, BEGIN) {
            Some(begin) if begin.has_fields => heads::BEHIND_FIELDS,
            Some(_) => 8 * BEGIN.len() as u32,
            None => 0,
        }
    }

    fn stored_name<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        heads::begin(head, BEGIN).map(|begin| begin.name)
    }

    fn unlisted(&self, source: &dyn Source) -> io::Result<Vec<String>> {
        heads::before(source, BEGIN)
    }

    fn may_be_named(&self, _: &[u8]) -> bool {
        true
    }
}

/// What stands for no value.
const NONE: u8 = 0xff;

/// The value of each character.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut at = 0;
    while at < alphabet.len() {
        values[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Characters that are decoded, four by four.
pub(super) struct Quads {
    /// Bits of the characters since the last whole four, and how many of these there are.
    bits: u32,
    count: u32,
    padding: u32,
    has_ended: bool,
    /// Of the letters that came last, how many were looked at.
    taken: usize,
    /// What does not belong into it is an error.
    is_strict: bool,
}

impl Quads {
    fn new(coder: &CoderContext) -> Self {
        Self::with(coder.decoded_length.is_none())
    }

    pub(super) fn with(is_strict: bool) -> Self {
        Self { bits: 0, count: 0, padding: 0, has_ended: false, taken: 0, is_strict }
    }

    /// Whole groups of four at the start of `text`, up to where there is something else; returns how long they are.
    fn whole(text: &[u8], bytes: &mut Vec<u8>) -> usize {
        let (groups, _) = text.as_chunks::<4>();
        for (number, group) in groups.iter().enumerate() {
            let [a, b, c, d] = group.map(|letter| VALUES[usize::from(letter)]);
            if (a | b | c | d) & 0xc0 != 0 {
                return number * 4;
            }
            let bits = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
            let [_, first, second, third] = bits.to_be_bytes();
            bytes.extend_from_slice(&[first, second, third]);
        }
        groups.len() * 4
    }
}

impl Letters for Quads {
    fn decode(&mut self, text: &[u8], is_last: bool, bytes: &mut Vec<u8>) -> Result<(), (usize, &'static str)> {
        let mut at = 0;
        while at < text.len() && !self.has_ended {
            if self.count == 0 && self.padding == 0 {
                at += Self::whole(&text[at..], bytes);
            }
            let Some(&letter) = text.get(at) else { break };
            at += 1;
            let value = VALUES[usize::from(letter)];
            if value != NONE {
                if self.padding > 0 && self.is_strict {
                    return Err((at - 1, "base64 goes on behind its padding"));
                }
                self.padding = 0;
                self.bits = self.bits << 6 | u32::from(value);
                self.count += 1;
                match self.count {
                    1 => {}
                    2 => bytes.push((self.bits >> 4) as u8),
                    3 => bytes.push((self.bits >> 2) as u8),
                    _ => {
                        bytes.push(self.bits as u8);
                        (self.bits, self.count) = (0, 0);
                    }
                }
            } else if letter == b'=' {
                if self.count >= 2 {
                    self.padding += 1;
                    if self.count + self.padding >= 4 {
                        // A file may go on behind it: some programs put one text behind the other.
                        (self.bits, self.count, self.padding) = (0, 0, 0);
                        self.has_ended = !self.is_strict;
                    }
                } else if self.is_strict {
                    // A line of these stands behind the last one, as uuencode writes it.
                    self.has_ended = self.count == 0;
                    if !self.has_ended {
                        return Err((at - 1, "the padding of base64 is where none can be"));
                    }
                }
            } else if self.is_strict && !letter.is_ascii_whitespace() {
                return Err((at - 1, "a character that base64 does not have"));
            }
        }
        self.taken = at;
        if is_last && self.is_strict && !self.has_ended && self.count > 0 {
            return Err((text.len(), "four characters of base64"));
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        self.count == 0 && self.padding == 0
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn ends_at(&self) -> Option<usize> {
        self.is_strict.then_some(self.taken)
    }
}
