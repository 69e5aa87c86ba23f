//! Decodes a stream from a seek point on, through all its members; in a first pass it finds the seek points, too.

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource, Source};

use super::ahead::Ahead;
use super::guess;
use super::inflate::{self, Inflate, LEAST_INPUT, Stop};
use super::input::Input;
use super::member::{self, Checksum, DEFLATE, MAGIC, error};
use super::proof;
use super::segment::Segment;
use super::window::{self, WindowPacker};
use crate::faults::again;
use crate::spacing::Spacing;
use crate::starts::{self, Effort};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint};

/// What is around the deflate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapper {
    /// gzip members, any number of them.
    Gzip,
    /// One zlib stream.
    Zlib,
    /// Nothing.
    None,
}

/// What comes next in the compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    /// The header of the first member.
    Start,
    /// Deflate data.
    Data,
    /// The checksum behind it.
    Trailer,
    /// Another member, padding, garbage or the end.
    Between,
    /// What is missing of a damaged member, behind which another one was found at this byte of the compressed stream.
    Gap { left: u64, next: u64 },
    /// Nothing more.
    End,
}

/// A member that has been seen from its start.
struct Member {
    start: Start,
    checksum: Checksum,
}

/// Where a member starts.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// First of its decoded bytes in the stream.
    decoded: u64,
    /// First of its bytes of deflate data.
    compressed: u64,
}

/// What a first pass looks for.
struct Survey {
    spacing: Spacing,
    /// Decoded offset of the last point, and its byte in the compressed stream.
    last: u64,
    last_compressed: u64,
    /// The last block that was looked at: the decoded bytes before it, and its bit. What comes between two blocks that
    /// begin at the same byte is empty, and only the first is looked at, as blocks decoded ahead have only that.
    looked_at: (u64, u64),
    /// The last point, until a byte behind it is decoded: there may be none, and a chunk is never empty.
    pending: Option<SeekPoint>,
    findings: Findings,
    /// Made for the first point: most streams in archives have none.
    packer: Option<WindowPacker>,
}

/// Blocks that were decoded ahead, of which some bytes have been handed out.
struct Served {
    segment: Segment,
    /// What was before it.
    history: Vec<u8>,
    bytes: usize,
    /// The next of its boundaries.
    boundary: usize,
}

/// The decoder of all three formats.
pub(super) struct DeflateDecoder {
    input: Input,
    inflate: Inflate,
    wrapper: Wrapper,
    place: DecoderState,
    /// Offset in the decoded stream.
    decoded: u64,
    /// `None` after a resume inside of one.
    member: Option<Member>,
    /// The last member, if its checksum did not match: it may have ended somewhere else.
    astray: Option<Start>,
    /// In a first pass: the same, if it has another length, too, and the length that it should have (modulo 2^32).
    is_off: Option<(Start, u32)>,
    /// What it has cost to find out what lies behind damage.
    effort: Effort,
    /// What comes next gets a seek point in any case.
    is_behind_gap: bool,
    limits: Limits,
    /// In a first pass.
    survey: Option<Survey>,
    /// In a first pass on several threads.
    ahead: Option<Ahead>,
    /// The bit at which the next block begins, if that is known and others may have decoded it.
    block: Option<u64>,
    served: Option<Served>,
    /// Why there is no more: returned after the bytes that were decoded before, and from then on.
    failure: Option<io::Error>,
}

impl DeflateDecoder {
    /// A first pass over `source`.
    pub(super) fn first_pass(source: SharedSource, wrapper: Wrapper, options: &Options) -> Self {
        let mut decoder = Self::new(SharedSource::clone(&source), wrapper, &options.limits, options.cancel.clone());
        decoder.ahead = Ahead::new(source, options, wrapper == Wrapper::Gzip);
        decoder.survey = Some(Survey {
            spacing: Spacing::new(options),
            last: 0,
            last_compressed: 0,
            looked_at: (u64::MAX, 0),
            pending: None,
            findings: Findings { points: vec![SeekPoint::default()], ..Findings::default() },
            packer: None,
        });
        decoder
    }

    /// Continues at `point`.
    pub(super) fn resume(
        source: SharedSource,
        wrapper: Wrapper,
        point: &SeekPoint,
        limits: &Limits,
    ) -> io::Result<Self> {
        let window = window::unpack(&point.state)?;
        let byte = point.compressed_bit / 8;
        let inside_a_byte = !point.compressed_bit.is_multiple_of(8);
        // No stream decodes to 2^63 bytes, so no sum of offsets overflows.
        if byte > source.len() || (window.is_none() && inside_a_byte) || point.decoded > u64::MAX / 2 {
            let what = format!(
                "{}: no seek point can be at bit {} for byte {}",
                source.describe(),
                point.compressed_bit,
                point.decoded
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut decoder = Self::new(source, wrapper, limits, Cancel::default());
        decoder.decoded = point.decoded;
        let mut start = byte;
        if let Some(window) = window {
            decoder.place = DecoderState::Data;
            start = window::start_at(&mut decoder.inflate, &**decoder.input.source(), point.compressed_bit)?;
            decoder.inflate.set_windows([&window]);
        }
        decoder.input = Input::new(SharedSource::clone(decoder.input.source()), start, Cancel::default());
        Ok(decoder)
    }

    fn new(source: SharedSource, wrapper: Wrapper, limits: &Limits, cancel: Cancel) -> Self {
        Self {
            input: Input::new(source, 0, cancel),
            inflate: Inflate::new(),
            wrapper,
            place: DecoderState::Start,
            decoded: 0,
            member: None,
            astray: None,
            is_off: None,
            effort: Effort::default(),
            is_behind_gap: false,
            limits: *limits,
            survey: None,
            ahead: None,
            block: None,
            served: None,
            failure: None,
        }
    }

    /// Does what comes next and returns how many bytes it decoded, to behind the `done` bytes that `buffer` holds.
    fn advance(&mut self, buffer: &mut [u8], done: usize) -> io::Result<usize> {
        match self.place {
            DecoderState::Start => self.start()?,
            DecoderState::Data => return self.data(buffer, done),
            DecoderState::Trailer => self.trailer()?,
            DecoderState::Between => self.between()?,
            DecoderState::Gap { left: 0, next } => self.behind_gap(next),
            DecoderState::Gap { left, next } => return Ok(self.gap(left, next, &mut buffer[done..])),
            DecoderState::End => {}
        }
        Ok(0)
    }

    /// Reads the header at the start of the stream, or at a seek point without a window.
    fn start(&mut self) -> io::Result<()> {
        if self.wrapper == Wrapper::Gzip && self.has_damaged_magic()? {
            return self.gzip_member(None);
        }
        match self.wrapper {
            Wrapper::Gzip => match self.input.bytes()? {
                Some(MAGIC) => return self.gzip_member(None),
                Some(_) => return Err(error(io::ErrorKind::InvalidData, &self.input, "no gzip member")),
                None => return Err(error(io::ErrorKind::UnexpectedEof, &self.input, "the start of a gzip member")),
            },
            Wrapper::Zlib => match self.input.bytes()? {
                Some(header) if member::is_zlib_header(header) => self.begin(Checksum::adler32()),
                Some(_) => return Err(error(io::ErrorKind::InvalidData, &self.input, "no zlib stream")),
                None => return Err(error(io::ErrorKind::UnexpectedEof, &self.input, "the start of a zlib stream")),
            },
            Wrapper::None => self.begin(Checksum::None),
        }
        Ok(())
    }

    /// Passes the magic of a gzip member that is damaged, if there is one: what follows are deflate data. Of the first
    /// member of a file nothing but the magic says that it is one.
    fn has_damaged_magic(&mut self) -> io::Result<bool> {
        let is_damaged = self.is_at_damaged_magic()?;
        if is_damaged {
            self.input.consume(MAGIC.len());
        }
        Ok(is_damaged)
    }

    fn is_at_damaged_magic(&mut self) -> io::Result<bool> {
        if self.input.position() == 0 {
            return Ok(false);
        }
        let head = self.input.fill_to(guess::MEMBER)?;
        let head = &head[..head.len().min(guess::MEMBER)];
        let is_likely = head.get(MAGIC.len()) == Some(&DEFLATE);
        Ok(is_likely && starts::mended(head, &MAGIC).is_some_and(|mended| guess::is_gzip_member(&mended)))
    }

    /// Reads the header of a gzip member behind its magic; a seek point may be at its `start`.
    fn gzip_member(&mut self, start: Option<u64>) -> io::Result<()> {
        if !member::read_gzip_header(&mut self.input, &self.limits)? {
            self.damaged(self.decoded, self.input.position(), "the CRC-16 of a gzip header does not match");
        }
        self.begin(Checksum::crc32());
        let is_behind_gap = std::mem::take(&mut self.is_behind_gap);
        if let (Some(start), Some(survey)) = (start, &mut self.survey) {
            let is_due = self.decoded - survey.last >= survey.spacing.least_of_members();
            if is_due || is_behind_gap {
                survey.mark(SeekPoint { compressed_bit: start * 8, decoded: self.decoded, state: Vec::new() });
            } else {
                survey.spacing.begin_member();
            }
        }
        Ok(())
    }

    /// The same, behind another member. A header that cannot be read may be damaged: in a first pass, decoding goes on
    /// at the next member, if there is one.
    fn next_header(&mut self, start: u64) -> io::Result<()> {
        let error = match self.gzip_member(Some(start)) {
            Err(error) if member::is_of_data(&error) => error,
            result => return result,
        };
        let what = error.to_string();
        let member = Start { decoded: self.decoded, compressed: start };
        if !self.leave_member(member, start.saturating_add(1))? {
            return Err(error);
        }
        self.damaged(self.decoded, start, &what);
        Ok(())
    }

    fn begin(&mut self, checksum: Checksum) {
        self.inflate.reset();
        self.astray = None;
        let start = Start { decoded: self.decoded, compressed: self.input.position() };
        self.member = Some(Member { start, checksum });
        self.block = Some(start.compressed * 8);
        self.place = DecoderState::Data;
    }

    /// Decodes deflate data to `buffer`, of which `done` bytes hold what was decoded last.
    fn data(&mut self, buffer: &mut [u8], done: usize) -> io::Result<usize> {
        if let Some(served) = self.served.take().or_else(|| self.decoded_ahead()) {
            return self.serve(served, &mut buffer[done..]);
        }
        let room = buffer.len() - done;
        // Stopping at each block costs a copy of the window, so it is asked for only where a point is due or others may
        // have decoded what follows.
        let due =
            self.survey.as_ref().map(|survey| survey.spacing.next_look().saturating_sub(self.decoded - survey.last));
        let (length, stop) = match due {
            None => (room, Stop::Never),
            Some(0) => (room, Stop::AtBlock),
            Some(due) => {
                // Either way it stops at a block that begins where the point is due.
                let stop = if self.ahead.is_some() { Stop::AtBlock } else { Stop::Never };
                (due.min(room as u64) as usize, stop)
            }
        };
        let input = self.input.fill_to(LEAST_INPUT)?;
        let at_end = input.len() < LEAST_INPUT;
        let step = self.inflate.step(input, [&mut buffer[..done + length]], done, stop);
        self.input.consume(step.read);
        let start = self.decoded;
        self.decoded += step.written as u64;
        if step.written > 0 {
            if let Some(member) = &mut self.member {
                member.checksum.update(&buffer[done..][..step.written]);
            }
            if let Some(survey) = &mut self.survey {
                survey.spacing.pass(start, &buffer[done..][..step.written]);
                survey.findings.points.extend(survey.pending.take());
            }
        }
        match step.place {
            inflate::InflateState::End => {
                self.place = if self.wrapper == Wrapper::None { DecoderState::Between } else { DecoderState::Trailer };
            }
            inflate::InflateState::Boundary { spare_bits } => {
                let bit = self.input.position() * 8 - u64::from(spare_bits);
                self.block = Some(bit);
                if let Some(survey) = &mut self.survey {
                    survey.mark_block(&**self.input.source(), bit, self.decoded, self.inflate.window())?;
                }
            }
            inflate::InflateState::Inside if step.read + step.written > 0 => {}
            inflate::InflateState::Inside if at_end => {
                self.leave_overrun()?;
                self.failure = Some(error(io::ErrorKind::UnexpectedEof, &self.input, "deflate data"));
            }
            inflate::InflateState::Inside => {
                self.failure = Some(error(io::ErrorKind::InvalidData, &self.input, "deflate data does not go on"));
            }
            inflate::InflateState::Invalid(what) => {
                let what = format!("invalid deflate data ({what})");
                let invalid = error(io::ErrorKind::InvalidData, &self.input, &what);
                // Nothing says how much of what came before was wrong already.
                let start = self.member.take().map(|member| member.start);
                let from = start.unwrap_or(Start { decoded: self.decoded, compressed: self.input.position() });
                self.damaged(from.decoded, from.compressed, &what);
                match start.map(|start| self.leave_member(start, self.before(start))).transpose() {
                    Ok(Some(true)) => {}
                    Ok(_) => self.failure = Some(invalid),
                    Err(error) => self.failure = Some(error),
                }
            }
        }
        Ok(step.written)
    }

    /// The data end with the file. That need not be cut: a wrong code can lead past the end of the data, into the
    /// checks. Then the length of the member stands there, and is about right.
    fn leave_overrun(&mut self) -> io::Result<()> {
        /// By so much one wrong code may have changed the length, as what is behind it is decoded to something else.
        /// That four bytes of a cut file come as near by chance happens once in 2000 times.
        const MOST: u32 = 1 << 20;
        let source = self.input.source();
        let (Some(member), Some(last)) = (&self.member, source.len().checked_sub(4)) else { return Ok(()) };
        if self.wrapper != Wrapper::Gzip || self.survey.is_none() || last < member.start.compressed {
            return Ok(());
        }
        let mut length = [0; 4];
        source.read_exact_at(&mut length, last)?;
        let start = member.start.decoded;
        let more = ((self.decoded - start) as u32).wrapping_sub(u32::from_le_bytes(length)) as i32;
        if more.unsigned_abs() <= MOST {
            let from = member.start.compressed;
            self.damaged(start, from, "the data of a gzip member go on behind their end");
        }
        Ok(())
    }

    /// What others have decoded of the data from here on.
    fn decoded_ahead(&mut self) -> Option<Served> {
        let bit = self.block.take()?;
        let mut segment = self.ahead.as_mut()?.take(bit, self.decoded)?;
        let history = self.inflate.window().to_vec();
        segment.settle(&history).then_some(Served { segment, history, bytes: 0, boundary: 0 })
    }

    /// Hands out bytes that were decoded ahead, up to where a seek point is due.
    fn serve(&mut self, mut served: Served, buffer: &mut [u8]) -> io::Result<usize> {
        let Served { segment, history, bytes, boundary } = &mut served;
        let start = self.decoded - *bytes as u64;
        let mut is_due = |(before, bit): (usize, u64)| {
            let Some(survey) = &mut self.survey else { return false };
            survey.spacing.pass(start, &segment.bytes()[..before]);
            survey.is_due(bit, start + before as u64)
        };
        while segment.boundary(*boundary).is_some_and(|boundary| !is_due(boundary)) {
            *boundary += 1;
        }
        let next = segment.boundary(*boundary);
        let end = next.map_or(segment.bytes().len(), |(before, _)| before);
        if let Some(survey) = &mut self.survey {
            survey.spacing.pass(start, &segment.bytes()[..end]);
        }
        let rest = &segment.bytes()[*bytes..end];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        *bytes += count;
        self.decoded += count as u64;
        if let (Some(member), true) = (&mut self.member, count > 0) {
            member.checksum.update(&buffer[..count]);
        }
        if let Some(survey) = self.survey.as_mut().filter(|_| count > 0) {
            survey.findings.points.extend(survey.pending.take());
        }
        if let (Some(survey), Some((_, bit)), true) = (&mut self.survey, next, *bytes == end) {
            survey.mark_block(&**self.input.source(), bit, self.decoded, &segment.window(end, history))?;
            *boundary += 1;
        }
        if *bytes < segment.bytes().len() {
            self.served = Some(served);
            return Ok(count);
        }
        let byte = window::start_at(&mut self.inflate, &**self.input.source(), segment.end)?;
        self.inflate.set_windows([&segment.window(*bytes, history)]);
        self.input = Input::new(SharedSource::clone(self.input.source()), byte, self.input.cancel().clone());
        if segment.is_final {
            self.place = if self.wrapper == Wrapper::None { DecoderState::Between } else { DecoderState::Trailer };
        } else {
            self.block = Some(segment.end);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.recycle(served.segment);
        }
        Ok(count)
    }

    /// Compares the checksum behind the deflate data.
    fn trailer(&mut self) -> io::Result<()> {
        let first: Option<[u8; 4]> = self.input.bytes()?;
        let length: Option<[u8; 4]> = if self.wrapper == Wrapper::Gzip { self.input.bytes()? } else { Some([0; 4]) };
        let (Some(first), Some(length)) = (first, length) else {
            self.leave_overrun()?;
            return Err(error(io::ErrorKind::UnexpectedEof, &self.input, "the checksum behind deflate data"));
        };
        let length = (self.wrapper == Wrapper::Gzip).then_some(length);
        self.place = DecoderState::Between;
        let Some(member) = self.member.take() else { return Ok(()) };
        let checksum_matches = match member.checksum {
            Checksum::Crc32(hasher) => hasher.finalize() == u32::from_le_bytes(first),
            Checksum::Adler32(sum) => sum == u32::from_be_bytes(first),
            Checksum::None => true,
        };
        // ISIZE is the length modulo 2^32 (RFC 1952 §2.3.1).
        let length_matches =
            length.is_none_or(|length| u32::from_le_bytes(length) == (self.decoded - member.start.decoded) as u32);
        let what = match (checksum_matches, length_matches, self.wrapper) {
            (true, true, _) => return Ok(()),
            (true, false, _) => "the length of a gzip member does not match its data",
            (false, _, Wrapper::Gzip) => "the CRC-32 of a gzip member does not match its data",
            (false, ..) => "the Adler-32 of a zlib stream does not match its data",
        };
        self.astray = Some(member.start);
        self.damaged(member.start.decoded, member.start.compressed, what);
        if let (false, false, Some(length), true) = (checksum_matches, length_matches, length, self.survey.is_some()) {
            self.is_off = Some((member.start, u32::from_le_bytes(length)));
        }
        Ok(())
    }

    /// Looks for another member.
    fn between(&mut self) -> io::Result<()> {
        // Tapes and block devices pad with zeros. A member behind them is one, as gzip files may be joined.
        let is_end = loop {
            let block = self.input.fill()?;
            let zeros = block.iter().position(|&byte| byte != 0).unwrap_or(block.len());
            let more = block.len() > zeros;
            if block.is_empty() {
                break true;
            }
            self.input.consume(zeros);
            if more {
                break false;
            }
            self.input.skip_hole();
        };
        let start = self.input.position();
        if let Some((member, length)) = self.is_off.take() {
            let goes_on = self.input.fill_to(MAGIC.len())?.starts_with(&MAGIC) || self.is_at_damaged_magic()?;
            if self.leave_gap(member, length, start, goes_on) {
                return Ok(());
            }
        }
        if is_end {
            self.place = DecoderState::End;
            return Ok(());
        }
        if self.wrapper == Wrapper::Gzip && self.has_damaged_magic()? {
            self.damaged(self.decoded, start, "the magic number of a gzip member is damaged");
            return self.next_header(start);
        }
        if self.wrapper == Wrapper::Gzip && self.input.byte()? == Some(MAGIC[0]) {
            match self.input.byte()? {
                Some(byte) if byte == MAGIC[1] => return self.next_header(start),
                Some(_) => {}
                None => {
                    return Err(error(io::ErrorKind::UnexpectedEof, &self.input, "the header of a gzip member"));
                }
            }
        }
        let what = "behind the compressed data is something else";
        self.damaged(self.decoded, start, what);
        self.place = DecoderState::End;
        // Behind a member that is whole it is what gzip calls trailing garbage, whatever it holds: what another archive
        // has must not show as files of this one.
        if let Some(member) = self.astray.take() {
            let from = self.before(member);
            self.leave_member(member, from)?;
        }
        Ok(())
    }

    /// From which byte on to look for what lies behind the damaged `member`: damage may have led past the start of the
    /// next one. Not before the last seek point.
    fn before(&self, member: Start) -> u64 {
        const REREAD: u64 = 1 << 20;
        let last = self.survey.as_ref().map_or(0, |survey| survey.last_compressed.saturating_add(1));
        self.input.position().saturating_sub(REREAD).max(member.compressed).max(last)
    }

    /// Looks for another member behind the damaged `member`, from byte `from` of the compressed stream on, and puts a
    /// gap where the damaged one has something missing. False if there is none. Only a first pass does so: what it
    /// finds gets a seek point of its own.
    fn leave_member(&mut self, member: Start, from: u64) -> io::Result<bool> {
        if self.wrapper != Wrapper::Gzip || self.survey.is_none() {
            return Ok(false);
        }
        let Some((next, length)) = self.next_member(from)? else { return Ok(false) };
        Ok(self.leave_gap(member, length, next, true))
    }

    /// Leaves a gap for what is missing of `member`, which was `length` bytes long, modulo 2^32, if `length` is what it
    /// seems. Decoding goes on at byte `next` of the compressed stream, if it `goes_on`. False if there is no gap.
    fn leave_gap(&mut self, member: Start, length: u32, next: u64, goes_on: bool) -> bool {
        /// The longest that one byte of deflate data becomes (258 bytes in 2 bits), as a whole number.
        const LARGEST_RATIO: u64 = 1032;
        /// A tar is made of blocks of 512 bytes: a gap that keeps to them lets it go on behind. Where nothing follows,
        /// there is no such gap: a file would be longer by bytes that it never had.
        const ALIGNED: u64 = 512;
        let decoded = self.decoded - member.decoded;
        let missing = u64::from(length.wrapping_sub(decoded as u32));
        // Lengths are modulo 2^32: what looks like gigabytes is rather that a few bytes too many were decoded.
        let too_many = (1 << 32) - missing;
        let are_too_many = too_many < missing && too_many <= decoded;
        // Or a few bytes could claim gigabytes.
        let possible = next.saturating_sub(member.compressed).saturating_mul(LARGEST_RATIO);
        let left = match missing {
            missing if missing <= possible && !are_too_many => missing,
            missing if goes_on => missing % ALIGNED,
            _ => 0,
        };
        let left = match left {
            0 if !goes_on => return false,
            // The chunk before must not be decoded further.
            0 => ALIGNED,
            left => left,
        };
        let start = self.decoded;
        let compressed = self.input.position();
        if let Some(survey) = &mut self.survey {
            survey.findings.report(Damage {
                decoded: start..start + left,
                lost_from: start,
                compressed,
                compressed_from: compressed,
                what: "what is missing of a damaged gzip member".to_owned(),
            });
            survey.mark(SeekPoint { compressed_bit: next * 8, decoded: start, state: Vec::new() });
            survey.findings.shift(start + left);
        }
        self.place = DecoderState::Gap { left, next };
        true
    }

    /// Where, from byte `from` of the compressed stream on, a gzip member begins, and the four bytes before it. `None`
    /// also where too much only looks like one.
    fn next_member(&mut self, from: u64) -> io::Result<Option<(u64, u32)>> {
        /// What tells a member from bytes that look like one.
        const LOOKED_AT: usize = guess::MEMBER;
        /// So many may look like one, and one more in each 4 KiB. By chance it is one in 2^27 bytes. A file that is
        /// made for it has 70 000 in a megabyte, each of which takes some microseconds.
        const LOOK_ALIKES: u64 = 1000;
        const BETWEEN: u64 = 4 << 10;
        /// What it costs to decode the first bytes of one, in bytes that are read.
        const TRIAL: u64 = 16 << 10;
        let (source, cancel) = (SharedSource::clone(self.input.source()), self.input.cancel().clone());
        self.effort.allow(&source, from);
        let mut look_alikes = 0;
        let mut input = Input::new(SharedSource::clone(&source), from, cancel.clone());
        loop {
            let passed = input.position().abs_diff(from);
            if passed > from.saturating_add(starts::LOOKED_AT) {
                return Ok(None);
            }
            let block = input.fill_to(LOOKED_AT)?;
            let at_end = block.len() < LOOKED_AT;
            let searched = if at_end { block.len() } else { block.len() - LOOKED_AT + 1 };
            let mut found = None;
            for at in (0..searched).filter(|&at| block[at..].starts_with(&[MAGIC[0], MAGIC[1], DEFLATE])) {
                cancel.check()?;
                let place = from.saturating_add(passed).saturating_add(at as u64);
                let is_likely = guess::is_gzip_member(&block[at..]) && self.effort.spend(TRIAL);
                if is_likely && proof::leads_on(&source, place, &self.limits, &cancel, &mut self.effort)? {
                    found = Some(at as u64);
                    break;
                }
                if !self.effort.spend(TRIAL) {
                    return Ok(None);
                }
                look_alikes += 1;
                if look_alikes > LOOK_ALIKES + (passed + at as u64) / BETWEEN {
                    return Ok(None);
                }
            }
            if let Some(found) = found {
                let next = input.position() + found;
                let mut length = [0; 4];
                source.read_exact_at(&mut length, next.saturating_sub(4))?;
                return Ok(Some((next, u32::from_le_bytes(length))));
            }
            if at_end || !self.effort.spend(searched as u64) {
                return Ok(None);
            }
            input.consume(searched);
        }
    }

    fn gap(&mut self, left: u64, next: u64, buffer: &mut [u8]) -> usize {
        let count = left.min(buffer.len() as u64) as usize;
        buffer[..count].fill(FILLER);
        self.decoded += count as u64;
        self.place = DecoderState::Gap { left: left - count as u64, next };
        if let Some(survey) = &mut self.survey {
            survey.findings.points.extend(survey.pending.take());
        }
        count
    }

    fn behind_gap(&mut self, next: u64) {
        self.input = Input::new(SharedSource::clone(self.input.source()), next, self.input.cancel().clone());
        self.place = DecoderState::Between;
        self.is_behind_gap = true;
    }

    /// Notes that the decoded bytes from `start` to here are damaged, by something behind byte `from` of the compressed
    /// stream.
    fn damaged(&mut self, start: u64, from: u64, what: &str) {
        let Some(survey) = &mut self.survey else {
            log::debug!("{}: {what} (decoded bytes {start} to {})", self.input.source().describe(), self.decoded);
            return;
        };
        // Joined, so that a stream of nothing but empty or tiny damaged members takes no memory.
        match survey.findings.damage.last_mut() {
            Some(last)
                if (last.decoded.end, last.lost_from) == (start, start)
                    && last.decoded.is_empty() == (start == self.decoded) =>
            {
                (last.decoded.end, last.lost_from) = (self.decoded, self.decoded);
                last.compressed = self.input.position();
            }
            _ => survey.findings.report(Damage {
                decoded: start..self.decoded,
                lost_from: self.decoded,
                compressed: self.input.position(),
                compressed_from: from,
                what: what.to_owned(),
            }),
        }
    }
}

impl Survey {
    /// The block that begins at `bit`, before which `window` was decoded, gets a point if it is far enough from the
    /// last one.
    fn mark_block(&mut self, source: &dyn Source, bit: u64, decoded: u64, window: &[u8]) -> io::Result<()> {
        if self.is_due(bit, decoded) {
            let state = self.packer.get_or_insert_with(WindowPacker::new).pack(source, bit, window)?;
            self.mark(SeekPoint { compressed_bit: bit, decoded, state });
        }
        Ok(())
    }

    /// True if there should be a point at a block that begins at `bit`.
    fn is_due(&mut self, bit: u64, decoded: u64) -> bool {
        if self.looked_at.0 != decoded {
            self.looked_at = (decoded, bit);
        }
        self.looked_at.1 == bit && self.spacing.is_due(self.last, decoded - self.last, bit / 8)
    }

    fn mark(&mut self, point: SeekPoint) {
        self.spacing.spend(point.decoded, point.state.len());
        (self.last, self.last_compressed) = (point.decoded, point.compressed_bit / 8);
        self.pending = Some(point);
    }
}

impl Decoder for DeflateDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() && self.place != DecoderState::End && self.failure.is_none() {
            match self.advance(buffer, done) {
                Ok(decoded) => done += decoded,
                Err(error) => self.failure = Some(error),
            }
        }
        match &self.failure {
            Some(error) if done == 0 && !buffer.is_empty() => Err(again(error)),
            _ => Ok(done),
        }
    }

    fn memory(&self) -> usize {
        let survey = self.survey.as_ref().map_or(0, |survey| {
            let states: usize =
                survey.findings.points.iter().chain(&survey.pending).map(|point| point.state.len() + 64).sum();
            WindowPacker::MEMORY + states + survey.findings.damage.len() * (size_of::<Damage>() + 64)
        });
        let served = self.served.as_ref().map_or(0, |served| served.segment.memory() + served.history.capacity());
        let ahead = self.ahead.as_ref().map_or(0, Ahead::memory) + served;
        size_of::<Self>() + self.input.memory() + inflate::MEMORY + survey + ahead
    }
}

impl FirstPass for DeflateDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.survey.as_mut().map(|survey| &mut survey.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
