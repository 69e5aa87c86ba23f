//! LZMA2 (The .xz File Format 1.2, §5.3.1): chunks of LZMA, and of bytes as they are.

use std::io;

use super::checkpoint::Checkpoint;
use super::history::History;
use super::model::{Model, Properties};
use super::range::{self, RangeDecoder};
use super::survey::{Found, Survey};
use super::symbols::{self, LONGEST_SYMBOL, Nobody, Stop};

/// What one step of decoding did.
pub(crate) struct Step {
    /// Bytes of the input that are no longer needed.
    pub(crate) taken: usize,
    pub(crate) written: usize,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    /// There is more, or more input is needed.
    More,
    /// The end of the data, and all of it is written.
    End,
    /// The data are damaged, and what came before is written.
    Damaged(&'static str),
}

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
pub(crate) struct Lzma2 {
    model: Model,
    history: History,
    need: Need,
    chunk: Chunk,
    /// Of the last match, what did not fit.
    pending: usize,
    /// How the data end, once that is known.
    end: Option<Result<(), &'static str>>,
    /// Bytes of input taken in all.
    taken: u64,
    /// Looks for seek points.
    survey: Option<Survey>,
}

/// The state of a point at which a dictionary starts.
const FRESH: &[u8] = &[];

const LONGEST_HEADER: usize = 6;

/// Bits of the context of literals at most: fewer than LZMA alone allows.
const LITERAL_BITS: u32 = 4;

/// Bytes of a chunk's compressed data at most.
const LONGEST_CHUNK: usize = 1 << 16;

impl Lzma2 {
    /// Bytes that each step needs, unless there are no more.
    pub(crate) const WANTED: usize = LONGEST_CHUNK + LONGEST_HEADER;

    /// A decoder with a dictionary of that many bytes; `OutOfMemory` where there is none for it.
    pub(crate) fn new(dictionary: usize) -> io::Result<Self> {
        let properties = Properties { literal_context: 3, literal_position: 0, position: 2 };
        Ok(Self {
            model: Model::new(properties),
            history: History::new(dictionary).ok_or(io::ErrorKind::OutOfMemory)?,
            need: Need::Dictionary,
            chunk: Chunk::Between,
            pending: 0,
            end: None,
            taken: 0,
            survey: None,
        })
    }

    /// Looks for seek points from now on; decoding has not begun.
    pub(crate) fn survey(&mut self) {
        self.survey = Some(Survey::new(&self.history));
    }

    /// Takes the seek points that were found. Each comes before any byte behind it is delivered.
    pub(crate) fn take_points(&mut self) -> impl Iterator<Item = Found> {
        self.survey.iter_mut().flat_map(Survey::take)
    }

    /// Goes on from a point that was found before, behind `decoded` bytes. The error says what is wrong with its `state`.
    pub(crate) fn resume(&mut self, state: &[u8], decoded: u64) -> Result<(), &'static str> {
        self.history.produced = decoded;
        if state == FRESH {
            return Ok(());
        }
        let loaded = Checkpoint::load(state, self.history.dictionary)?;
        if loaded.length as u64 > decoded {
            return Err("has a history of another length than it can have");
        }
        self.need = match loaded.owner[..] {
            [0] => Need::Nothing,
            [1] => Need::Properties,
            _ => return Err("is not one of LZMA2"),
        };
        let properties = loaded.model.properties;
        if properties.literal_context + properties.literal_position > LITERAL_BITS {
            return Err("has a model that cannot be");
        }
        self.history.restore(&loaded, decoded);
        self.model = loaded.model;
        Ok(())
    }

    /// Decodes from `input` into `output`, which is not empty. The input is at least [`Lzma2::WANTED`] bytes, or all that there are.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let (mut taken, mut written) = (0, self.deliver(output));
        while taken == 0 && written == 0 && self.end.is_none() {
            let before = self.history.produced;
            match self.produce(input) {
                Ok(count) => taken = count,
                Err(what) => self.end = Some(Err(what)),
            }
            self.taken += taken as u64;
            let starved = taken == 0 && self.history.produced == before;
            if let Some(survey) = &mut self.survey {
                if self.end.is_some() || starved {
                    survey.finish(&self.history, self.taken);
                } else {
                    survey.advance(&self.history, self.taken);
                }
            }
            written = self.deliver(output);
            if starved {
                break;
            }
        }
        let outcome = match self.end {
            Some(Ok(())) if written == 0 => Outcome::End,
            Some(Err(what)) if written == 0 => Outcome::Damaged(what),
            _ => Outcome::More,
        };
        Step { taken, written, outcome }
    }

    fn deliver(&mut self, output: &mut [u8]) -> usize {
        let hold = self.survey.as_ref().map_or(u64::MAX, Survey::hold);
        self.history.deliver(output, hold)
    }

    /// Goes on by a chunk's header or by some bytes of its data; returns how much of the input that took.
    fn produce(&mut self, input: &[u8]) -> Result<usize, &'static str> {
        match self.chunk {
            Chunk::Between => self.start_chunk(input),
            Chunk::Stored(left) => {
                let count = self.history.append(&input[..left.min(input.len())]);
                self.chunk = if count < left { Chunk::Stored(left - count) } else { Chunk::Between };
                Ok(count)
            }
            Chunk::Lzma { decoded, compressed, range, code } => self.symbols(input, decoded, compressed, range, code),
        }
    }

    fn start_chunk(&mut self, input: &[u8]) -> Result<usize, &'static str> {
        let Some(&control) = input.first() else { return Ok(0) };
        let resets_dictionary = control == 1 || control >= 0xE0;
        match control {
            0 => {
                self.end = Some(Ok(()));
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
        if let Some(survey) = &mut self.survey {
            if resets_dictionary {
                survey.fresh(&self.history, self.taken, FRESH);
            } else if survey.is_due(&self.history, self.taken) {
                let owner = vec![u8::from(self.need == Need::Properties)];
                let checkpoint = Checkpoint::new(owner, &mut self.model, self.history.phase);
                survey.begin(&self.history, self.taken, checkpoint);
            }
        }
        if resets_dictionary {
            self.history.reset();
            self.need = Need::Properties;
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
            self.model.reset(properties.ok_or("the properties of an LZMA2 chunk are not valid")?);
            self.need = Need::Nothing;
        } else if control >= 0xA0 {
            self.model.reset(self.model.properties);
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
        let before = self.history.produced;
        let (model, history, pending) = (&mut self.model, &mut self.history, &mut self.pending);
        let stop = match self.survey.as_mut().and_then(|survey| survey.watch(history)) {
            Some(marks) => symbols::decode(model, &mut decoder, history, pending, decoded, drawn, marks),
            None => symbols::decode(model, &mut decoder, history, pending, decoded, drawn, &mut Nobody),
        };
        let left = decoded - (self.history.produced - before) as usize;
        if stop.ok() != Some(Stop::Limit) || !is_cut && decoder.at > drawn {
            return Err(invalid);
        }
        if left > 0 {
            let (range, code) = (decoder.range, decoder.code);
            self.chunk = Chunk::Lzma { decoded: left, compressed: compressed - decoder.at, range, code };
            return Ok(decoder.at);
        }
        decoder.normalise();
        if self.pending > 0 || decoder.code != 0 || decoder.at != compressed {
            return Err(invalid);
        }
        self.chunk = Chunk::Between;
        Ok(decoder.at)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let survey = self.survey.as_ref().map_or(0, Survey::memory);
        size_of::<Self>() + self.history.memory() + self.model.literals.as_flattened().len() * 2 + survey
    }
}
