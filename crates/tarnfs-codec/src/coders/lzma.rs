//! LZMA data as containers hold them: "lzma-zip" (APPNOTE 6.3.10, method 14: version, length of the properties, these,
//! data with or without a marker at their end), "lzma-raw" (method 03 01 01 of 7z: properties, and data of known
//! length), "lzma2" (method 21 of 7z: a byte for the dictionary, and data that end by themselves).
//!
//! Properties of LZMA: as in `.lzma`, one byte of `lc`, `lp` and `pb`, and 4 of the dictionary. Seek points lie inside
//! the data as in `.lzma` and `.xz` ([`crate::lzma`]). What lies behind the end of the data is not looked at.

use std::collections::VecDeque;
use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource};

use super::invalid_properties;
use crate::faults;
use crate::input::Input;
use crate::lzma::{Framing, Lzma1, Lzma2, LzmaDecoder, LzmaPoint, Outcome, Properties, Step};
use crate::stepwise::{self, Stepwise};
use crate::xz::lzma2_dictionary;
use crate::{Codec, CoderContext, DecodeContext, Decoder, Findings, FirstPass, Options, Pace, SeekPoint};

/// The codec of zip.
#[derive(Debug)]
pub(super) struct LzmaZip;

/// The first one of 7z.
#[derive(Debug)]
pub(super) struct LzmaRaw;

/// The other one.
#[derive(Debug)]
pub(super) struct Lzma2Raw;

/// Bytes of the properties of LZMA.
const PROPERTIES: usize = 5;
/// Bytes before them in zip: the version of the encoder, and how many they are (2 bytes each).
const ZIP_HEADER: usize = 4;

/// Smaller dictionaries are taken as one of this size.
const SMALLEST_DICTIONARY: u64 = 4096;
/// LZMA makes at most about 7000 bytes of one, LZMA2 2 MiB of 6.
const LARGEST_RATIO: u64 = 1 << 19;

/// Data, from their start on.
struct Start<F> {
    decoder: Box<LzmaDecoder<F>>,
    /// Where they lie in the source.
    input: Input,
}

/// Bytes of the dictionary that data need which say `stated`; an error where that is too many.
fn dictionary(stated: u64, input: &Input, coder: &CoderContext, limits: &Limits) -> io::Result<usize> {
    let possible = input.remaining().saturating_mul(LARGEST_RATIO).min(coder.decoded_length.unwrap_or(u64::MAX));
    let needed = stated.min(possible).max(SMALLEST_DICTIONARY);
    if needed > limits.lzma_dictionary {
        let limit = limits.lzma_dictionary;
        let what = format!("the data need a dictionary of {needed} bytes, the limit is {limit}");
        return Err(faults::unsupported(input.position(), what));
    }
    usize::try_from(needed).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

fn lzma1(
    [first, size @ ..]: [u8; PROPERTIES],
    input: Input,
    coder: &CoderContext,
    limits: &Limits,
) -> io::Result<Start<crate::lzma::Bare>> {
    let properties = Properties::new(first).ok_or_else(|| invalid_properties("LZMA"))?;
    let dictionary = dictionary(u64::from(u32::from_le_bytes(size)), &input, coder, limits)?;
    Ok(Start { decoder: Box::new(Lzma1::new(properties, dictionary, coder.decoded_length)?), input })
}

fn of_zip(source: SharedSource, coder: &CoderContext, limits: &Limits) -> io::Result<Start<crate::lzma::Bare>> {
    let mut input = Input::new(source, 0);
    let header = input.peek(ZIP_HEADER + PROPERTIES)?;
    let Some((&[_, _, low, high], properties)) = header.split_first_chunk::<ZIP_HEADER>() else {
        return Err(faults::cut(input.remaining(), "the header of LZMA data"));
    };
    if usize::from(u16::from_le_bytes([low, high])) != PROPERTIES {
        return Err(faults::invalid(2, "properties of LZMA that have another length than they can have"));
    }
    let Ok(properties) = properties.try_into() else {
        return Err(faults::cut(input.remaining(), "the header of LZMA data"));
    };
    input.consume(ZIP_HEADER + PROPERTIES);
    lzma1(properties, input, coder, limits)
}

fn of_7z(source: SharedSource, coder: &CoderContext, limits: &Limits) -> io::Result<Start<crate::lzma::Bare>> {
    let properties = coder.properties[..].try_into().map_err(|_| invalid_properties("LZMA"))?;
    lzma1(properties, Input::new(source, 0), coder, limits)
}

fn lzma2(source: SharedSource, coder: &CoderContext, limits: &Limits) -> io::Result<Start<crate::lzma::Chunks>> {
    let [bits @ 0..=40] = coder.properties[..] else { return Err(invalid_properties("LZMA2")) };
    let input = Input::new(source, 0);
    let dictionary = dictionary(lzma2_dictionary(bits), &input, coder, limits)?;
    Ok(Start { decoder: Box::new(Lzma2::new(dictionary)?), input })
}

/// Decodes them.
struct RawDecoder<F> {
    start: Start<F>,
    /// Where in the source they begin.
    origin: u64,
    cancel: Cancel,
    /// Seek points, none of whose bytes have been delivered.
    points: VecDeque<LzmaPoint>,
    decoded: u64,
    /// Bytes that the container says there are.
    length: Option<u64>,
    findings: Option<Findings>,
    ended: bool,
    failure: Option<io::Error>,
}

impl<F: Framing> RawDecoder<F> {
    fn first_pass(start: Start<F>, options: &Options) -> Self {
        let mut decoder = Self::new(start, &options.coder);
        if options.seek_point_spacing < u64::MAX {
            decoder.start.decoder.survey(options.seek_point_spacing);
        }
        decoder.cancel = options.cancel.clone();
        decoder.findings = Some(Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        decoder
    }

    fn resume(start: Start<F>, point: &SeekPoint, coder: &CoderContext) -> io::Result<Self> {
        let mut decoder = Self::new(start, coder);
        if *point == SeekPoint::default() {
            return Ok(decoder);
        }
        let position = point.compressed_bit / 8;
        let wrong = |what: &str| faults::invalid(position, format!("a seek point {what}"));
        // No stream decodes to 2^63 bytes, so no sum of offsets overflows.
        if !point.compressed_bit.is_multiple_of(8)
            || position < decoder.origin
            || position - decoder.origin > decoder.start.input.remaining()
            || point.decoded > u64::MAX / 2
            || !F::STARTS_ANEW && point.state.is_empty()
        {
            return Err(wrong("that no such stream can have"));
        }
        let resumed = decoder.start.decoder.resume(&point.state, point.decoded);
        resumed.map_err(|what| wrong(&format!("whose state {what}")))?;
        decoder.start.input.seek(position);
        decoder.decoded = point.decoded;
        Ok(decoder)
    }

    fn new(start: Start<F>, coder: &CoderContext) -> Self {
        Self {
            origin: start.input.position(),
            start,
            cancel: Cancel::default(),
            points: VecDeque::new(),
            decoded: 0,
            length: coder.decoded_length,
            findings: None,
            ended: false,
            failure: None,
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        match self.length.filter(|&length| length != self.decoded) {
            Some(length) => {
                let what = format!("the data hold {} bytes, the archive says {length}", self.decoded);
                Err(faults::invalid(self.start.input.position(), what))
            }
            None => Ok(()),
        }
    }

    /// Counts `written` bytes, and makes seek points of what lies before them.
    fn advance(&mut self, written: usize) {
        self.decoded += written as u64;
        let (origin, behind) = (self.origin, self.decoded);
        let count = self.points.iter().take_while(|point| point.decoded < behind).count();
        let points = self.points.drain(..count).map(|LzmaPoint { compressed, decoded, state }| {
            let compressed_bit = (origin + compressed).saturating_mul(8);
            SeekPoint { compressed_bit, decoded, state }
        });
        if let Some(findings) = &mut self.findings {
            findings.points.extend(points);
        }
    }
}

impl<F: Framing> Stepwise for RawDecoder<F> {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check()?;
        let Start { decoder, input } = &mut self.start;
        let available = input.fill(F::WANTED)?;
        let at_end = available.is_empty();
        let Step { taken, written, outcome } = decoder.step(available, buffer);
        input.consume(taken);
        self.points.extend(decoder.take_points());
        let position = input.position();
        match outcome {
            Outcome::End => self.end()?,
            Outcome::Damaged(what) => return Err(faults::invalid(position, what)),
            Outcome::More if taken + written > 0 => {}
            Outcome::More if at_end => return Err(faults::cut(position, "the LZMA data")),
            Outcome::More => return Err(faults::invalid(position, "the data do not end where they should")),
        }
        if self.length.is_some_and(|length| self.decoded + written as u64 > length) {
            return Err(faults::invalid(position, "the data hold more than the archive says"));
        }
        self.advance(written);
        Ok(written)
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl<F: Framing + Send> Decoder for RawDecoder<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        size_of::<Self>() + self.start.input.memory() + self.start.decoder.memory_after(bytes)
    }
}

impl<F: Framing + Send> FirstPass for RawDecoder<F> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.start.input.position()
    }
}

/// A codec on one of the starts above.
macro_rules! codec {
    ($type:ty, $name:literal, $start:path) => {
        impl Codec for $type {
            fn name(&self) -> &'static str {
                $name
            }

            fn pace(&self) -> Pace {
                Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
            }

            fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
                let start = $start(source, &options.coder, &options.limits)?;
                Ok(Box::new(RawDecoder::first_pass(start, options)))
            }

            fn resume(
                &self,
                source: SharedSource,
                point: &SeekPoint,
                context: &DecodeContext,
            ) -> io::Result<Box<dyn Decoder>> {
                let start = $start(source, &context.coder, &context.limits)?;
                Ok(Box::new(RawDecoder::resume(start, point, &context.coder)?))
            }
        }
    };
}

codec!(LzmaZip, "lzma-zip", of_zip);
codec!(LzmaRaw, "lzma-raw", of_7z);
codec!(Lzma2Raw, "lzma2", lzma2);
