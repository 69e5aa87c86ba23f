//! LZMA data without framing: symbols from one range coder up to the end, which is a length known before, or a marker.

use std::io;

use super::checkpoint::Loaded;
use super::decoder::{Core, Framing, LzmaDecoder};
use super::history::STRIDE;
use super::model::Properties;
use super::range::{self, RangeDecoder};
use super::symbols::{LONGEST_SYMBOL, Stop};

/// Decodes LZMA data without framing.
pub(crate) type Lzma1 = LzmaDecoder<Bare>;

/// Where the decoding of bare symbols stands.
pub(crate) struct Bare {
    /// Range and code, once the first bytes have been read.
    coder: Option<(u32, u32)>,
    /// Decoded bytes that are to come, where that is known.
    left: Option<u64>,
    /// Only a marker ends the data.
    needs_marker: bool,
}

const INVALID: &str = "the LZMA data are not valid";

impl Lzma1 {
    /// A decoder of data that hold `length` bytes, or that a marker ends. `OutOfMemory` where there is no memory for
    /// the dictionary.
    pub(crate) fn new(properties: Properties, dictionary: usize, length: Option<u64>) -> io::Result<Self> {
        Self::with(Bare { coder: None, left: length, needs_marker: length.is_none() }, properties, dictionary)
    }
}

impl Framing for Bare {
    const WANTED: usize = 64 << 10;
    const STARTS_ANEW: bool = false;

    fn produce(&mut self, core: &mut Core, input: &[u8]) -> Result<usize, &'static str> {
        let Some((range, code)) = self.coder else {
            let Some(start) = input.first_chunk() else { return Ok(input.len()) };
            self.coder = Some((u32::MAX, range::start(*start).ok_or(INVALID)?));
            return Ok(range::START);
        };
        if core.pending == 0 {
            core.point(|| [range.to_le_bytes(), code.to_le_bytes()].concat());
        }
        let mut decoder = RangeDecoder { range, code, input, at: 0 };
        if self.left == Some(0) && core.pending == 0 {
            decoder.normalise();
            if decoder.code == 0 && !self.needs_marker && decoder.at <= input.len() {
                core.end = Some(Ok(()));
                return Ok(decoder.at);
            }
        }
        // Where there is no more input than this, the last symbols may have been made of what is missing.
        let safe = input.len().checked_sub(LONGEST_SYMBOL + 1);
        let (drawn, is_last) = match safe {
            Some(safe) if safe > 0 || input.len() >= Self::WANTED => (safe, false),
            _ => (input.len(), true),
        };
        let before = core.history.produced;
        // One byte more than there should be tells that no marker comes.
        let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX).max(1));
        // So many bytes are never made of more input than is wanted: where seek points are does not depend on how the
        // input comes.
        let stride = STRIDE - (before % STRIDE as u64) as usize;
        let stop = core.symbols(&mut decoder, most.min(stride), drawn);
        if is_last && decoder.at > input.len() {
            core.history.retract((core.history.produced - before) as usize);
            core.pending = 0;
            self.coder = None;
            return Ok(input.len());
        }
        let written = core.history.produced - before;
        if self.left.is_some_and(|left| written > left) {
            core.history.retract(written as usize);
            return Err("the LZMA data hold more than their header says");
        }
        self.left = self.left.map(|left| left - written);
        match stop {
            Ok(Stop::Limit) => {}
            Ok(Stop::EndMarker) => {
                decoder.normalise();
                if decoder.at > input.len() {
                    self.coder = None;
                    return Ok(input.len());
                }
                let is_whole = decoder.code == 0 && self.left.is_none_or(|left| left == 0);
                core.end = Some(if is_whole { Ok(()) } else { Err(INVALID) });
            }
            Err(_) => return Err(INVALID),
        }
        if self.left == Some(0) && core.pending > 0 {
            return Err("the LZMA data hold more than their header says");
        }
        self.coder = Some((decoder.range, decoder.code));
        Ok(decoder.at)
    }

    fn restore(&mut self, loaded: &Loaded, decoded: u64) -> Result<(), &'static str> {
        let (range, code) = loaded.owner.split_first_chunk::<4>().ok_or("is not one of LZMA")?;
        let code = code.first_chunk::<4>().filter(|_| code.len() == 4).ok_or("is not one of LZMA")?;
        let (range, code) = (u32::from_le_bytes(*range), u32::from_le_bytes(*code));
        if code >= range {
            return Err("has a range decoder that cannot be");
        }
        self.coder = Some((range, code));
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(decoded).ok_or("lies behind the end of its data")?;
        }
        Ok(())
    }
}
