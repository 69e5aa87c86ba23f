//! What `uuencode` writes: a line "begin 644 name", lines that each say how many bytes they have, and "end". Fields
//! may stand before it, but what has those of mail is mail.

use std::io;

use tarnfs_source::{SharedSource, Source};

use super::{Letters, Text, heads};
use crate::{Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(crate) struct Uuencode;

const BEGIN: &[u8] = b"begin ";

/// Characters of a line, with its end.
const LONGEST: usize = 96;

impl Codec for Uuencode {
    fn name(&self) -> &'static str {
        "uuencode"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 400_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let start = heads::start(&*source, BEGIN)?;
        Ok(Box::new(Text::first_pass(source, start, Lines::default(), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let start = heads::start(&*source, BEGIN)?;
        Ok(Box::new(Text::resume(source, start, Lines::default(), point, context)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Uuencode {
    fn about(&self) -> &'static str {
        "seeks everywhere; also behind header fields that make no mail"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tuu", ".tar"), (".uu", ""), (".uue", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        let Some(begin) = heads::begin(head, BEGIN) else { return 0 };
        let text = head.get(begin.length..).unwrap_or_default();
        let line = text.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
        // Text that explains it has no such line behind it.
        let is_line = line.ends_with(b"\n") && decode_line(line, &mut Vec::new()).is_ok();
        match is_line {
            true if begin.has_fields => heads::BEHIND_FIELDS,
            true => 8 * BEGIN.len() as u32 + 24,
            false => 0,
        }
    }

    fn stored_name<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        heads::begin(head, BEGIN).map(|begin| begin.name)
    }

    fn unlisted(&self, source: &dyn Source) -> io::Result<Vec<String>> {
        heads::before(source, BEGIN)
    }
}

/// Appends what a line says; false if it is the last one.
fn decode_line(line: &[u8], bytes: &mut Vec<u8>) -> Result<bool, &'static str> {
    const WRONG: &str = "a line that uuencode does not write";
    // Blanks at its end may have been lost.
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line == b"end" {
        return Ok(false);
    }
    let Some((&length, text)) = line.split_first() else { return Ok(true) };
    let value = |letter: u8| if (32..=96).contains(&letter) { Ok((letter - 32) & 63) } else { Err(WRONG) };
    let length = usize::from(value(length)?);
    let letters = length.div_ceil(3) * 4;
    // Some programs write a checksum behind it.
    if text.len() > letters + 1 {
        return Err(WRONG);
    }
    let end = bytes.len() + length;
    for group in 0..length.div_ceil(3) {
        let mut bits = 0_u32;
        for place in 0..4 {
            let letter = text.get(group * 4 + place).copied().unwrap_or(b' ');
            bits = bits << 6 | u32::from(value(letter)?);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    bytes.truncate(end);
    Ok(length > 0)
}

/// Lines of text.
#[derive(Default)]
struct Lines {
    /// The start of one.
    line: Vec<u8>,
    /// The line without letters has come, behind which "end" is.
    has_last_line: bool,
    has_ended: bool,
    /// Of the letters that came last, how many were looked at.
    taken: usize,
}

impl Letters for Lines {
    fn decode(&mut self, text: &[u8], is_last: bool, bytes: &mut Vec<u8>) -> Result<(), (usize, &'static str)> {
        let mut at = 0;
        for part in text.split_inclusive(|&byte| byte == b'\n') {
            if self.has_ended {
                break;
            }
            if self.line.len() + part.len() > LONGEST {
                if self.has_last_line {
                    self.has_ended = true;
                    break;
                }
                return Err((at, "a line that is too long for uuencode"));
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || is_last && at + part.len() == text.len() {
                let is_end = self.line.trim_ascii_end() == b"end";
                if self.has_last_line && !is_end {
                    self.has_ended = true;
                    break;
                }
                self.has_ended = is_end;
                if !is_end {
                    self.has_last_line = !decode_line(&self.line, bytes).map_err(|what| (at, what))?;
                }
                self.line.clear();
            }
            at += part.len();
        }
        self.taken = at;
        if is_last && !self.has_ended && !self.has_last_line {
            return Err((text.len(), "what uuencode has written"));
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        self.line.is_empty() && !self.has_last_line
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn ends_at(&self) -> Option<usize> {
        Some(self.taken)
    }
}
