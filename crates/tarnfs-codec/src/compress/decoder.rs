//! Walks through the codes of a file.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::dictionary::{Code, Dictionary, HEADER, Header, ROOM};
use crate::faults;
use crate::input::Input;
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint, stepwise};

/// First byte of the state of a seek point behind the header. What follows is how many bits before it the dictionary
/// began (8 bytes, little-endian).
const VERSION: u8 = 1;

/// Decoded bytes after which the next ones wait.
const BATCH: usize = 64 << 10;

/// Bytes of input asked for at once.
const WANTED: usize = 16 << 10;

/// Bytes that stand for codes that mean nothing; a tar goes on behind a block of its own size.
const GAP: usize = 512;

/// Decodes codes one after the other.
#[derive(Debug)]
pub(super) struct CodeDecoder {
    input: Input,
    /// `None` before the header is read.
    dictionary: Option<Box<Dictionary>>,
    block: Vec<u8>,
    /// The bytes of `block` that are decoded, and how many of them have been handed out.
    filled: usize,
    served: usize,
    /// Decoded bytes up to the end of those in `block`.
    decoded: u64,
    stage: Stage,
    pass: Option<Pass>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next code lies behind the decoded bytes.
    Codes,
    /// Behind the decoded bytes lies a code that stands for nothing.
    Broken,
    Ended,
}

/// What only a first pass needs.
#[derive(Debug)]
struct Pass {
    spacing: u64,
    cancel: Cancel,
    /// Decoded bytes before the last seek point.
    last_point: u64,
    /// Decoded bytes before the dictionary began.
    filled_since: u64,
    /// A point is needed here, however near the last one is.
    is_behind_gap: bool,
    findings: Findings,
}

impl CodeDecoder {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let findings = Findings { points: vec![SeekPoint::default()], ..Findings::default() };
        Self::new(
            source,
            Some(Pass {
                spacing: options.seek_point_spacing,
                cancel: options.cancel.clone(),
                last_point: 0,
                filled_since: 0,
                is_behind_gap: false,
                findings,
            }),
        )
    }

    fn new(source: SharedSource, pass: Option<Pass>) -> Self {
        Self {
            input: Input::new(source, 0),
            dictionary: None,
            block: Vec::new(),
            filled: 0,
            served: 0,
            decoded: 0,
            stage: Stage::Codes,
            pass,
        }
    }

    pub(super) fn resume(source: SharedSource, point: &SeekPoint) -> io::Result<Self> {
        let mut decoder = Self::new(source, None);
        decoder.decoded = point.decoded;
        if *point == SeekPoint::default() {
            return Ok(decoder);
        }
        let at = point.compressed_bit / 8;
        let wrong = || faults::invalid(at, "a seek point that this file cannot have");
        let began = match point.state[..] {
            [VERSION, ref before @ ..] => before.try_into().ok().map(u64::from_le_bytes),
            _ => None,
        };
        let began = began.and_then(|before| point.compressed_bit.checked_sub(before));
        let began = began.filter(|&began| began.is_multiple_of(8) && began >= 8 * HEADER as u64);
        let Some(began) = began else { return Err(wrong()) };
        let mut dictionary = Dictionary::new(decoder.read_header()?, began);
        while dictionary.bit < point.compressed_bit && !dictionary.is_full() {
            decoder.input.seek(dictionary.bit / 8);
            let start = decoder.input.position() * 8;
            let bytes = decoder.input.fill(WANTED)?;
            let from = dictionary.bit;
            while dictionary.bit < point.compressed_bit && !dictionary.is_full() {
                match dictionary.read(bytes, start).map(|code| dictionary.accept(code)) {
                    Some(Code::String) => {}
                    Some(_) => return Err(wrong()),
                    None => break,
                }
            }
            if dictionary.bit == from {
                return Err(wrong());
            }
        }
        if dictionary.bit != point.compressed_bit && !dictionary.jump(point.compressed_bit) {
            return Err(wrong());
        }
        decoder.dictionary = Some(Box::new(dictionary));
        Ok(decoder)
    }

    fn cut(&self, inside: &str) -> io::Error {
        faults::cut(self.input.source().len(), inside)
    }

    fn read_header(&mut self) -> io::Result<Header> {
        let bytes = self.input.peek(HEADER)?;
        if bytes.len() < HEADER {
            return Err(self.cut("the header"));
        }
        Header::parse(bytes).map_err(|what| faults::invalid(0, what))
    }

    /// Decodes more, if all that is decoded has been handed out. Nothing more is decoded at the end of the stream.
    fn advance(&mut self) -> io::Result<()> {
        while self.served == self.filled && self.stage != Stage::Ended {
            (self.served, self.filled) = (0, 0);
            if let Some(pass) = &self.pass {
                pass.cancel.check()?;
            }
            let mut dictionary = match self.dictionary.take() {
                Some(dictionary) => dictionary,
                None => Box::new(Dictionary::new(self.read_header()?, 8 * HEADER as u64)),
            };
            match self.stage {
                Stage::Broken => self.pass_over(&mut dictionary)?,
                _ => self.decode(&mut dictionary)?,
            }
            self.dictionary = Some(dictionary);
        }
        Ok(())
    }

    /// Decodes a batch, or up to where the dictionary begins anew.
    fn decode(&mut self, dictionary: &mut Dictionary) -> io::Result<()> {
        self.add_point(dictionary);
        self.block.resize(BATCH + ROOM, 0);
        let filled_since = dictionary.filled_since;
        while self.filled < BATCH && self.stage == Stage::Codes && dictionary.filled_since == filled_since {
            let (from, filled) = (dictionary.bit, self.filled);
            self.input.seek(from / 8);
            let start = self.input.position() * 8;
            let bytes = self.input.fill(WANTED)?;
            self.filled += match strings(dictionary, bytes, start, &mut self.block[filled..]) {
                Ok(written) => written,
                Err(written) => {
                    self.stage = Stage::Broken;
                    written
                }
            };
            if dictionary.bit == from && self.stage == Stage::Codes {
                // What is decoded comes before what may be wrong with the end.
                if filled == 0 {
                    self.stage = Stage::Ended;
                    self.check_end(dictionary)?;
                }
                break;
            }
        }
        self.decoded = match self.decoded.checked_add(self.filled as u64) {
            Some(decoded) => decoded,
            None => return Err(faults::invalid(dictionary.bit / 8, "the stream is longer than 2^64 bytes")),
        };
        if let Some(pass) = self.pass.as_mut().filter(|_| dictionary.filled_since != filled_since) {
            pass.filled_since = self.decoded;
        }
        Ok(())
    }

    /// Behind the last code there are the unused bits of its byte, which are zero. Padding before codes of another
    /// width need not be there if no codes follow.
    fn check_end(&mut self, dictionary: &Dictionary) -> io::Result<()> {
        let length = self.input.source().len().saturating_mul(8);
        let (end, what) = if dictionary.bit > length {
            (dictionary.padded_since, "the padding before codes of another width")
        } else {
            (dictionary.bit, "a code")
        };
        self.input.seek(end / 8);
        let last = self.input.peek(1)?.first().map_or(0, |byte| byte >> (end % 8));
        match length.checked_sub(end) {
            Some(..8) if last == 0 => Ok(()),
            _ => Err(self.cut(what)),
        }
    }

    /// A code stands for nothing, so some before it was wrong, too. Where the dictionary begins anew all is right
    /// again: a gap stands for what is missing before it.
    fn pass_over(&mut self, dictionary: &mut Dictionary) -> io::Result<()> {
        self.stage = Stage::Ended;
        let broken = dictionary.bit;
        let what = "a code that stands for nothing yet";
        let Some(pass) = &mut self.pass else { return Err(faults::invalid(broken / 8, what)) };
        let mut damage = Damage {
            decoded: pass.filled_since..self.decoded,
            lost_from: self.decoded,
            compressed: broken / 8,
            compressed_from: broken / 8,
            what: what.to_owned(),
        };
        let state = state(dictionary);
        loop {
            pass.cancel.check()?;
            let from = dictionary.bit;
            self.input.seek(from / 8);
            let start = self.input.position() * 8;
            let bytes = self.input.fill(WANTED)?;
            if passes_over(dictionary, bytes, start) {
                break;
            }
            if dictionary.bit == from {
                pass.findings.report(damage);
                return Err(faults::invalid(broken / 8, what));
            }
        }
        // Of its own, so that no decoder from before it is used behind it.
        pass.findings.points.push(SeekPoint { compressed_bit: broken, decoded: self.decoded, state });
        self.block.resize(BATCH + ROOM, 0);
        self.block[..GAP].fill(FILLER);
        self.filled = GAP;
        self.decoded = self.decoded.saturating_add(GAP as u64);
        damage.decoded.end = self.decoded;
        pass.findings.report(damage);
        pass.findings.shift(self.decoded);
        (pass.filled_since, pass.is_behind_gap) = (self.decoded, true);
        self.stage = Stage::Codes;
        Ok(())
    }

    /// Adds a seek point here, if the last one is far enough away; where the dictionary begins, it takes no time to go
    /// on from there.
    fn add_point(&mut self, dictionary: &Dictionary) {
        let Some(pass) = &mut self.pass else { return };
        let spacing = if dictionary.bit == dictionary.filled_since { pass.spacing / 4 } else { pass.spacing };
        if std::mem::take(&mut pass.is_behind_gap) || self.decoded - pass.last_point >= spacing.max(1) {
            pass.last_point = self.decoded;
            let state = state(dictionary);
            pass.findings.points.push(SeekPoint { compressed_bit: dictionary.bit, decoded: self.decoded, state });
        }
    }
}

/// The state of a seek point at the next code.
fn state(dictionary: &Dictionary) -> Vec<u8> {
    [&[VERSION], &(dictionary.bit - dictionary.filled_since).to_le_bytes()[..]].concat()
}

/// Writes the strings of the codes in `bytes`, until there are [`BATCH`] bytes of them or the dictionary begins anew;
/// returns how many. The error has the bytes before a code that stands for nothing, which is read again.
fn strings(dictionary: &mut Dictionary, bytes: &[u8], start: u64, output: &mut [u8]) -> Result<usize, usize> {
    let mut written = 0;
    while written < output.len() - ROOM {
        let at = dictionary.bit;
        let Some(code) = dictionary.read(bytes, start) else { break };
        match dictionary.accept(code) {
            Code::String => written += dictionary.write(code, &mut output[written..]),
            Code::Clear => break,
            Code::Unknown => {
                dictionary.bit = at;
                return Err(written);
            }
        }
    }
    Ok(written)
}

/// Passes over the codes in `bytes`; true once the dictionary begins anew.
fn passes_over(dictionary: &mut Dictionary, bytes: &[u8], start: u64) -> bool {
    while let Some(code) = dictionary.read(bytes, start) {
        if dictionary.pass_over(code) {
            return true;
        }
    }
    false
}

impl Decoder for CodeDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.advance().inspect_err(|_| self.stage = Stage::Ended)?;
        Ok(stepwise::hand_out(&self.block[..self.filled], &mut self.served, buffer))
    }

    fn memory(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, |dictionary| dictionary.memory());
        size_of::<Self>() + self.block.capacity() + dictionary + self.input.memory()
    }
}

impl FirstPass for CodeDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.pass.as_mut().map(|pass| &mut pass.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
