//! PPMd: variant H of 7z ("ppmd7"; properties: order, memory in 4 bytes, little-endian), variant I of zip ("ppmd8",
//! APPNOTE 6.3.10, method 98; order, memory and method in the first 2 bytes of the data).
//!
//! Data of 7z have no mark at their end: without the decoded length, what lies behind them is decoded, too.

use std::io::{self, Read};

use ppmd_rust::{
    Error, PPMD7_MAX_ORDER, PPMD7_MIN_MEM_SIZE, PPMD7_MIN_ORDER, PPMD8_MIN_ORDER, Ppmd7Decoder, Ppmd8Decoder,
    RestoreMethod,
};
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::invalid_properties;
use super::streamed::{Reader, Streamed, Unpack};
use crate::faults;
use crate::input::Input;
use crate::{Codec, CoderContext, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec of 7z.
#[derive(Debug)]
pub(super) struct Ppmd7;

/// The codec of zip.
#[derive(Debug)]
pub(super) struct Ppmd8;

/// Bytes of memory at most: all that zip can say. 7-Zip's highest level takes 192 MiB. The decoder writes to all of it
/// at once, so the limit of LZMA, whose dictionary fills slowly, is too high.
const MOST: u64 = 256 << 20;

/// Bytes at the start of the data of a range coder, of either variant at most.
const START: usize = 5;

enum Model {
    /// It writes to all of its memory, so it is made when its first byte is wanted: whoever has to pay for that memory
    /// can ask before.
    Unmade(Option<(Reader, Parameters)>),
    H(Box<Ppmd7Decoder<Reader>>),
    I(Box<Ppmd8Decoder<Reader>>),
}

/// What a model is made with: its order and bytes of memory, and for variant I the method.
#[derive(Clone, Copy)]
enum Parameters {
    H(u32, u32),
    I(u32, u32, RestoreMethod),
}

struct Unpacker {
    model: Model,
    bytes: usize,
}

fn check_memory(bytes: u64, limits: &Limits) -> io::Result<()> {
    let limit = limits.lzma_dictionary.min(MOST);
    if bytes <= limit {
        return Ok(());
    }
    Err(faults::unsupported(0, format!("the PPMd data need {bytes} bytes of memory, the limit is {limit}")))
}

fn refusal(error: Error, position: u64) -> io::Error {
    match error {
        Error::MemoryAllocation => io::ErrorKind::OutOfMemory.into(),
        Error::IoError(error) => error,
        Error::InvalidParameter | Error::RangeDecoderInitialization => {
            faults::invalid(position, "the PPMd data do not begin as such data do")
        }
    }
}

impl Unpacker {
    fn variant_h(source: SharedSource, limits: &Limits, coder: &CoderContext) -> io::Result<Self> {
        let &[order, ref memory @ ..] = &coder.properties[..] else { return Err(invalid_properties("ppmd7")) };
        let memory = memory.first_chunk().filter(|_| memory.len() == 4).map(|bytes| u32::from_le_bytes(*bytes));
        let memory = memory.filter(|memory| *memory >= PPMD7_MIN_MEM_SIZE);
        let (Some(memory), PPMD7_MIN_ORDER..=PPMD7_MAX_ORDER) = (memory, u32::from(order)) else {
            return Err(invalid_properties("ppmd7"));
        };
        check_memory(u64::from(memory), limits)?;
        let reader = Self::reader(Input::new(source, 0))?;
        let parameters = Parameters::H(u32::from(order), memory);
        Ok(Self { model: Model::Unmade(Some((reader, parameters))), bytes: memory as usize })
    }

    fn variant_i(source: SharedSource, limits: &Limits) -> io::Result<Self> {
        let mut input = Input::new(source, 0);
        let Some(&parameters) = input.fill(2)?.first_chunk() else {
            return Err(faults::cut(input.position(), "the parameters of PPMd"));
        };
        let parameters = u32::from(u16::from_le_bytes(parameters));
        let (order, megabytes, method) = ((parameters & 0xF) + 1, (parameters >> 4 & 0xFF) + 1, parameters >> 12);
        let method = match method {
            0 => RestoreMethod::Restart,
            1 => RestoreMethod::CutOff,
            _ => return Err(faults::unsupported(0, format!("PPMd with method {method} of restoration"))),
        };
        if order < PPMD8_MIN_ORDER {
            return Err(faults::invalid(0, "parameters of PPMd that are not valid"));
        }
        check_memory(u64::from(megabytes) << 20, limits)?;
        let memory = megabytes << 20;
        input.consume(2);
        let reader = Self::reader(input)?;
        let parameters = Parameters::I(order, memory, method);
        Ok(Self { model: Model::Unmade(Some((reader, parameters))), bytes: memory as usize })
    }

    /// A reader of data that have a start.
    fn reader(mut input: Input) -> io::Result<Reader> {
        if input.fill(START)?.len() < START {
            return Err(faults::cut(input.position(), "the PPMd data"));
        }
        Ok(Reader::new(input))
    }
}

impl Unpack for Unpacker {
    fn unpack(&mut self, buffer: &mut [u8], _cancel: &Cancel) -> io::Result<usize> {
        if let Model::Unmade(unmade) = &mut self.model {
            let Some((reader, parameters)) = unmade.take() else { return Err(io::ErrorKind::InvalidInput.into()) };
            self.model = match parameters {
                Parameters::H(order, memory) => {
                    let model = Ppmd7Decoder::new(reader, order, memory).map_err(|error| refusal(error, 0))?;
                    Model::H(Box::new(model))
                }
                Parameters::I(order, memory, method) => {
                    let model = Ppmd8Decoder::new(reader, order, memory, method).map_err(|error| refusal(error, 2))?;
                    Model::I(Box::new(model))
                }
            };
        }
        let (read, reader) = match &mut self.model {
            // It could not be made, and who decodes was told.
            Model::Unmade(_) => return Err(io::ErrorKind::InvalidInput.into()),
            Model::H(model) => (model.read(buffer), model.get_mut()),
            Model::I(model) => (model.read(buffer), model.get_mut()),
        };
        match read {
            Ok(0) => reader.failure().map_or(Ok(0), Err),
            Ok(read) => Ok(read),
            Err(_) => {
                let position = reader.input.position();
                Err(reader.failure().unwrap_or_else(|| faults::invalid(position, "the PPMd data are not valid")))
            }
        }
    }

    fn position(&self) -> u64 {
        match &self.model {
            Model::Unmade(unmade) => unmade.as_ref().map_or(0, |(reader, _)| reader.input.position()),
            Model::H(model) => model.get_ref().input.position(),
            Model::I(model) => model.get_ref().input.position(),
        }
    }

    fn memory(&self, _decoded: u64) -> usize {
        size_of::<Ppmd7Decoder<Reader>>() + self.bytes
    }
}

/// Of both variants, on text.
const PACE: Pace = Pace { bytes_per_millisecond: 30_000, in_whole_chunks: false };

impl Codec for Ppmd7 {
    fn name(&self) -> &'static str {
        "ppmd7"
    }

    fn pace(&self) -> Pace {
        PACE
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let unpacker = Unpacker::variant_h(source, &options.limits, &options.coder)?;
        Ok(Box::new(Streamed::first_pass(unpacker, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = Unpacker::variant_h(source, &context.limits, &context.coder)?;
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }
}

impl Codec for Ppmd8 {
    fn name(&self) -> &'static str {
        "ppmd8"
    }

    fn pace(&self) -> Pace {
        PACE
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Unpacker::variant_i(source, &options.limits)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = Unpacker::variant_i(source, &context.limits)?;
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::sync::Arc;

    use ppmd_rust::{Ppmd7Encoder, Ppmd8Encoder};
    use tarnfs_source::MemorySource;

    /// The crate counts bytes that were foreseen one after the other in 32 bits, and lets the count wrap as 7-Zip does
    /// only where it is built without checks for that (`Cargo.toml`). It takes a minute, so only with `TARNFS_FULL`.
    #[test]
    fn runs_may_have_more_than_2_gib() {
        const LENGTH: u64 = (1 << 31) + (1 << 20);
        if std::env::var_os("TARNFS_FULL").is_none() {
            return;
        }
        let zeros = vec![0; 1 << 20];
        let mut of_7z = Ppmd7Encoder::new(Vec::new(), 6, 1 << 20).unwrap();
        let mut of_zip = Ppmd8Encoder::new(Vec::new(), 6, 1 << 20, RestoreMethod::Restart).unwrap();
        for _ in 0..LENGTH >> 20 {
            of_7z.write_all(&zeros).unwrap();
            of_zip.write_all(&zeros).unwrap();
        }
        let of_zip = [&[5, 0][..], &of_zip.finish(false).unwrap()].concat();
        let properties = [&[6][..], &(1_u32 << 20).to_le_bytes()].concat();
        let limits = Limits::default();
        let coder = CoderContext { properties: properties.into(), ..CoderContext::default() };
        let source = |bytes: Vec<u8>| -> SharedSource { Arc::new(MemorySource::new(bytes, "zeros")) };
        let of_7z = Unpacker::variant_h(source(of_7z.finish(false).unwrap()), &limits, &coder).unwrap();
        let of_zip = Unpacker::variant_i(source(of_zip), &limits).unwrap();
        for mut unpacker in [of_7z, of_zip] {
            let (mut left, mut buffer) = (LENGTH, zeros.clone());
            while left > 0 {
                let wanted = left.min(buffer.len() as u64) as usize;
                let read = unpacker.unpack(&mut buffer[..wanted], &Cancel::default()).unwrap();
                assert!(read > 0 && buffer[..read] == zeros[..read], "{left} bytes are left");
                left -= read as u64;
            }
        }
    }
}
