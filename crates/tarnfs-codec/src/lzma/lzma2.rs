//! LZMA2 (The .xz File Format 1.2, §5.3.1): chunks of LZMA, and of bytes as they are.

use std::io;

use super::checkpoint::Loaded;
use super::decoder::{Core, Framing, LzmaDecoder};
use super::model::Properties;
use super::range::{self, RangeDecoder};
use super::symbols::{LONGEST_SYMBOL, Stop};

/// What a chunk must bring along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Nothing,
    Properties,
    Dictionary,
}

/// The chunk that is being decoded.
enum Chunk {
    Between,
    /// Bytes as they are, of which this many are left.
    Stored(usize),
    Lzma {
        /// Decoded and compressed bytes left.
        decoded: usize,
        compressed: usize,
        range: u32,
        code: u32,
    },
}

/// Decodes LZMA2 data.
pub(crate) type Lzma2 = LzmaDecoder<Chunks>;

/// The chunks of LZMA2 data.
pub(crate) struct Chunks {
    need: Need,
    chunk: Chunk,
}

const LONGEST_HEADER: usize = 6;

/// Bits of the context of literals at most: fewer than LZMA alone allows.
const LITERAL_BITS: u32 = 4;

/// Bytes of a chunk's compressed data at most.
const LONGEST_CHUNK: usize = 1 << 16;

impl Lzma2 {
    /// A decoder with a dictionary of that many bytes; `OutOfMemory` where there is none for it.
    pub(crate) fn new(dictionary: usize) -> io::Result<Self> {
        let properties = Properties { literal_context: 3, literal_position: 0, position: 2 };
        Self::with(Chunks { need: Need::Dictionary, chunk: Chunk::Between }, properties, dictionary)
    }
}

impl Framing for Chunks {
    const WANTED: usize = LONGEST_CHUNK + LONGEST_HEADER;
    const STARTS_ANEW: bool = true;

    fn produce(&mut self, core: &mut Core, input: &[u8]) -> Result<usize, &'static str> {
        match self.chunk {
            Chunk::Between => self.start_chunk(core, input),
            Chunk::Stored(left) => {
                let count = core.history.append(&input[..left.min(input.len())]);
                self.chunk = if count < left { Chunk::Stored(left - count) } else { Chunk::Between };
                Ok(count)
            }
            Chunk::Lzma { decoded, compressed, range, code } => {
                self.symbols(core, input, decoded, compressed, range, code)
            }
        }
    }

    fn restore(&mut self, loaded: &Loaded, _decoded: u64) -> Result<(), &'static str> {
        self.need = match loaded.owner[..] {
            [0] => Need::Nothing,
            [1] => Need::Properties,
            _ => return Err("is not one of LZMA2"),
        };
        let properties = loaded.model.properties;
        if properties.literal_context + properties.literal_position > LITERAL_BITS {
            return Err("has a model that cannot be");
        }
        Ok(())
    }
}

impl Chunks {
    fn start_chunk(&mut self, core: &mut Core, input: &[u8]) -> Result<usize, &'static str> {
        let Some(&control) = input.first() else { return Ok(0) };
        let resets_dictionary = control == 1 || control >= 0xE0;
        match control {
            0 => {
                core.end = Some(Ok(()));
                return Ok(1);
            }
            3..0x80 => return Err("an LZMA2 chunk has a control byte that is not valid"),
            _ if self.need == Need::Dictionary && !resets_dictionary => {
                return Err("the first LZMA2 chunk does not start a dictionary");
            }
            0x80..0xC0 if self.need >= Need::Properties => return Err("an LZMA2 chunk lacks its properties"),
            _ => {}
        }
        let length = match control {
            1 | 2 => 3,
            0xC0.. => LONGEST_HEADER + range::START,
            _ => LONGEST_HEADER - 1 + range::START,
        };
        let Some(header) = input.get(..length) else { return Ok(input.len()) };
        if resets_dictionary {
            core.reset_history();
            self.need = Need::Properties;
        } else {
            core.point(|| vec![u8::from(self.need == Need::Properties)]);
        }
        let number = |at: usize| usize::from(header[at]) << 8 | usize::from(header[at + 1]);
        if control < 0x80 {
            self.chunk = Chunk::Stored(number(1) + 1);
            return Ok(length);
        }
        if control >= 0xC0 {
            let properties = Properties::new(header[5]);
            let properties = properties
                .filter(|properties| properties.literal_context + properties.literal_position <= LITERAL_BITS);
            core.model.reset(properties.ok_or("the properties of an LZMA2 chunk are not valid")?);
            self.need = Need::Nothing;
        } else if control >= 0xA0 {
            core.model.reset(core.model.properties);
        }
        let invalid = "the data of an LZMA2 chunk are not valid";
        let start = header.last_chunk().and_then(|start| range::start(*start));
        self.chunk = Chunk::Lzma {
            decoded: (usize::from(control & 0x1F) << 16 | number(1)) + 1,
            compressed: (number(3) + 1).checked_sub(range::START).ok_or(invalid)?,
            range: u32::MAX,
            code: start.ok_or(invalid)?,
        };
        Ok(length)
    }

    fn symbols(
        &mut self,
        core: &mut Core,
        input: &[u8],
        decoded: usize,
        compressed: usize,
        range: u32,
        code: u32,
    ) -> Result<usize, &'static str> {
        let input = &input[..compressed.min(input.len())];
        let is_cut = input.len() < compressed;
        // Of data that are cut, no symbol is kept that may have been made of what is missing.
        let drawn = match (is_cut, input.len().checked_sub(LONGEST_SYMBOL + 1)) {
            (false, _) => input.len(),
            (true, Some(safe)) => safe,
            (true, None) => return Ok(input.len()),
        };
        let invalid = "the data of an LZMA2 chunk are not valid";
        let mut decoder = RangeDecoder { range, code, input, at: 0 };
        let before = core.history.produced;
        let stop = core.symbols(&mut decoder, decoded, drawn);
        let left = decoded - (core.history.produced - before) as usize;
        if stop.ok() != Some(Stop::Limit) || !is_cut && decoder.at > drawn {
            return Err(invalid);
        }
        if left > 0 {
            let (range, code) = (decoder.range, decoder.code);
            self.chunk = Chunk::Lzma { decoded: left, compressed: compressed - decoder.at, range, code };
            return Ok(decoder.at);
        }
        decoder.normalise();
        if core.pending > 0 || decoder.code != 0 || decoder.at != compressed {
            return Err(invalid);
        }
        self.chunk = Chunk::Between;
        Ok(decoder.at)
    }
}
