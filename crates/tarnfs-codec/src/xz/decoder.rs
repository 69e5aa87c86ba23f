use std::collections::VecDeque;
use std::io;

use log::{debug, warn};
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::ahead::{Ahead, DecodedBlock};
use super::block::{BlockDecoder, Outcome};
use super::container::{
    BlockHeader, CheckId, Fault, LONGEST_BLOCK_HEADER, MAGIC, STREAM_HEADER, block_header, block_header_length, padded,
    stream_footer, stream_header,
};
use super::index::{self, Record, Search, Summary};
use super::parts::{Place, check_behind_damaged_magic, chunk, parts};
use crate::faults::{cut, invalid, unsupported};
use crate::input::Input;
use crate::lzma::LzmaPoint;
use crate::starts::{self, Effort, GAP, LONG_GAP, Proof, Walk};
use crate::stepwise::{self, Stepwise};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, PIECE, SeekPoint};

/// First byte of a seek point's state. Alone it stands for the start of a stream; a block's has the number of its check
/// behind it.
const VERSION: u8 = 1;

/// First byte of the state of a seek point inside a block. Behind it are the number of the block's check, how many
/// bytes the point lies behind the block's start, in the compressed and in the decoded stream (8 bytes each,
/// little-endian), and the state of the LZMA2 decoder.
const INSIDE: u8 = 2;

/// Chunks that lead further lie in nothing that is stored: that is cut into chunks of 64 KiB, whose headers move what
/// is behind them. Every other place looks like a chunk, and so many of them in a row are no chance.
const FAR: u64 = 4 << 20;

/// The most of a stream that is stored together: a chunk.
const STORED: u64 = 64 << 10;

/// LZMA makes at most about 7000 bytes of one; an index that claims more than this lies.
pub(super) const LARGEST_RATIO: u64 = 1 << 15;

/// Decodes stream after stream, block after block.
pub(super) struct XzDecoder {
    input: Input,
    limits: Limits,
    cancel: Cancel,
    /// Collect seek points and damage.
    first_pass: bool,
    /// Decoded bytes between two seek points of the first pass inside a block.
    spacing: u64,
    /// Verify the blocks' checks.
    verify: bool,
    /// The source may end behind any block.
    is_part: bool,
    state: XzState,
    /// Of the stream.
    check: CheckId,
    /// Of the blocks of the stream, for its index; `None` if not all of them were seen.
    summary: Option<Summary>,
    /// Where the block starts in the compressed and in the decoded stream.
    block_compressed: u64,
    block_decoded: u64,
    block: Option<Block>,
    /// Seek points inside the block, none of whose bytes have been delivered.
    inner_points: VecDeque<LzmaPoint>,
    search: Search,
    /// What it has cost to find out what lies behind damage.
    effort: Effort,
    /// Decodes blocks on other threads.
    ahead: Option<Ahead>,
    /// Offset in the decoded stream of the next byte.
    decoded: u64,
    /// Offset in the decoded stream of the last seek point.
    last_point: u64,
    /// The end of a gap that stands for much, in the decoded stream: a block that begins there is a seek point.
    behind_gap: Option<u64>,
    findings: Findings,
    /// Found after bytes that had to be returned first.
    failure: Option<io::Error>,
}

struct Block {
    header: BlockHeader,
    decoder: BlockDecoder,
    /// Steps in a row that did nothing.
    stalled: u32,
}

/// The state of a seek point at a block's header.
pub(super) fn block_state(check: CheckId) -> Vec<u8> {
    vec![VERSION, check.number()]
}

/// True for a seek point inside a block.
pub(super) fn is_inside(point: &SeekPoint) -> bool {
    point.state.first() == Some(&INSIDE)
}

enum XzState {
    /// Where the source, or what is decoded of it, starts: a stream must be there.
    Start,
    /// Behind a stream.
    BetweenStreams,
    /// At the header of a block, or the index.
    BetweenBlocks,
    /// In the data of a block.
    Data,
    /// Behind the data of a block.
    DataEnd,
    /// In a block that was decoded ahead, of which this many bytes have been delivered.
    Ready {
        data: Vec<u8>,
        delivered: usize,
    },
    /// In a block that turned out to be damaged in this way.
    Damaged(String),
    /// In what a damaged block should have held.
    Gap {
        left: u64,
    },
    /// In what stands for something between two streams that nobody knows.
    Lost {
        left: usize,
    },
    Ended,
}

/// Where the length of a damaged block may stand.
enum Sizes {
    Header,
    Index,
    Chunks,
}

impl XzDecoder {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let mut decoder = Self::new(source.clone(), options.limits, 0, 0);
        decoder.ahead = Ahead::new(source, options);
        decoder.first_pass = true;
        decoder.spacing = options.seek_point_spacing;
        decoder.verify = true;
        decoder.cancel = options.cancel.clone();
        decoder.findings.points.push(SeekPoint { state: vec![VERSION], ..SeekPoint::default() });
        decoder
    }

    pub(super) fn resume(source: SharedSource, point: &SeekPoint, limits: Limits) -> io::Result<Self> {
        let compressed = point.compressed_bit / 8;
        let impossible = || invalid(compressed, "a seek point that no xz file can have");
        if !point.compressed_bit.is_multiple_of(8) || compressed > source.len() {
            return Err(impossible());
        }
        let mut decoder = Self::new(source, limits, compressed, point.decoded);
        match point.state[..] {
            // None where another program has made the table.
            [] | [VERSION] => {}
            [VERSION, check] => {
                decoder.check = CheckId::new(check).ok_or_else(impossible)?;
                decoder.state = XzState::BetweenBlocks;
            }
            [INSIDE, check, ref rest @ ..] => {
                decoder.check = CheckId::new(check).ok_or_else(impossible)?;
                decoder.resume_inside(compressed, rest)?;
            }
            _ => return Err(impossible()),
        }
        Ok(decoder)
    }

    /// From a block on, up to the end of `source`, which may be that of any block.
    pub(super) fn verified(source: SharedSource, point: &SeekPoint, options: &Options) -> io::Result<Self> {
        let mut decoder = Self::resume(source, point, options.limits)?;
        (decoder.first_pass, decoder.verify, decoder.is_part) = (true, true, true);
        decoder.spacing = options.seek_point_spacing;
        Ok(decoder)
    }

    /// Goes on inside a block, at byte `position`.
    fn resume_inside(&mut self, position: u64, state: &[u8]) -> io::Result<()> {
        let wrong = |what: &str| invalid(position, format!("a seek point whose state {what}"));
        let places = state.split_first_chunk::<8>().and_then(|(compressed, rest)| {
            let (decoded, rest) = rest.split_first_chunk::<8>()?;
            let (compressed, decoded) = (u64::from_le_bytes(*compressed), u64::from_le_bytes(*decoded));
            let starts = (position.checked_sub(compressed)?, self.decoded.checked_sub(decoded)?);
            // No stream decodes to 2^63 bytes, so no sum of offsets overflows.
            (decoded <= u64::MAX / 2).then_some((starts, decoded, rest))
        });
        let ((start, start_decoded), decoded, rest) = places.ok_or_else(|| wrong("has no block"))?;
        (self.block_compressed, self.block_decoded) = (start, start_decoded);
        self.input.seek(start);
        let bytes = self.input.fill(LONGEST_BLOCK_HEADER)?;
        let header = match bytes.first() {
            None | Some(0) => None,
            Some(&size) => bytes.get(..block_header_length(size)),
        };
        let header = header.ok_or_else(|| wrong("leads to no block"))?;
        let header = block_header(header, self.check).map_err(|fault| refusal(start, fault))?;
        self.input.consume(header.length);
        let compressed = position.checked_sub(self.input.position()).ok_or_else(|| wrong("leads to no block"))?;
        let rest_of_block = header.compressed.unwrap_or(u64::MAX).min(self.input.remaining());
        let mut decoder =
            BlockDecoder::new(&header, None, rest_of_block, &self.limits)?.map_err(|fault| refusal(start, fault))?;
        decoder.resume(compressed, decoded, rest).map_err(wrong)?;
        self.input.seek(position);
        self.block = Some(Block { header, decoder, stalled: 0 });
        self.state = XzState::Data;
        Ok(())
    }

    fn new(source: SharedSource, limits: Limits, compressed: u64, decoded: u64) -> Self {
        Self {
            search: Search::new(source.clone()),
            effort: Effort::default(),
            ahead: None,
            input: Input::new(source, compressed),
            limits,
            cancel: Cancel::default(),
            first_pass: false,
            spacing: 0,
            verify: false,
            is_part: false,
            state: XzState::Start,
            check: CheckId::NONE,
            summary: None,
            block_compressed: compressed,
            block_decoded: decoded,
            block: None,
            inner_points: VecDeque::new(),
            decoded,
            last_point: decoded,
            behind_gap: None,
            findings: Findings::default(),
            failure: None,
        }
    }

    /// Goes on by one header, index or other part between blocks, or by what fits into `buffer`; returns the bytes
    /// written.
    fn go_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.state {
            XzState::Start | XzState::BetweenStreams => self.start_stream().map(|()| 0),
            XzState::BetweenBlocks => self.start_block().map(|()| 0),
            XzState::Data => self.decode(buffer),
            XzState::DataEnd => self.end_block().map(|()| 0),
            XzState::Damaged(what) => {
                let what = std::mem::take(what);
                self.leave_damaged_block(&what)?;
                Ok(0)
            }
            XzState::Ready { data, delivered } => {
                let count = (data.len() - *delivered).min(buffer.len());
                buffer[..count].copy_from_slice(&data[*delivered..*delivered + count]);
                *delivered += count;
                if *delivered == data.len() {
                    let data = std::mem::take(data);
                    self.state = XzState::BetweenBlocks;
                    if let Some(ahead) = &mut self.ahead {
                        ahead.recycle(data);
                    }
                }
                Ok(count)
            }
            XzState::Gap { left } => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(FILLER);
                *left -= count as u64;
                if *left == 0 {
                    self.state = XzState::BetweenBlocks;
                }
                Ok(count)
            }
            XzState::Lost { left } => {
                let count = (*left).min(buffer.len());
                buffer[..count].fill(FILLER);
                *left -= count;
                if *left == 0 {
                    self.state = XzState::BetweenStreams;
                }
                Ok(count)
            }
            XzState::Ended => Ok(0),
        }
    }

    fn start_stream(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        let at_start = matches!(self.state, XzState::Start);
        let position = self.input.position();
        let bytes = self.input.fill(STREAM_HEADER)?;
        if !at_start {
            if bytes.is_empty() {
                self.state = XzState::Ended;
                return Ok(());
            }
            // Stream padding (§2.2): any number of four zeros.
            let zeros = bytes.chunks_exact(4).take_while(|word| **word == [0; 4]).count() * 4;
            if zeros > 0 {
                self.input.consume(zeros);
                if self.input.buffered().len() < 4 {
                    self.input.skip_hole(4);
                }
                return Ok(());
            }
        }
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if MAGIC.starts_with(magic) {
            let Some(header) = bytes.first_chunk::<STREAM_HEADER>() else {
                return Err(cut(self.input.source().len(), "the header of a stream"));
            };
            match stream_header(header) {
                Ok(check) => self.check = check,
                Err(fault @ Fault::Damaged(_)) if !at_start => match self.check_behind_damaged_header(position)? {
                    Some(check) => {
                        self.check = check;
                        self.block_decoded = self.decoded;
                        self.report(position, self.decoded, "the header of an xz stream is damaged".into());
                    }
                    None => return self.leave_for_next_stream(position, refusal(position, fault)),
                },
                Err(fault) => return Err(refusal(position, fault)),
            }
        } else if at_start {
            return Err(invalid(position, "not the start of an xz stream"));
        } else if let Some(check) = check_behind_damaged_magic(bytes) {
            self.check = check;
            self.block_decoded = self.decoded;
            self.report(position, self.decoded, "the magic number of an xz stream is damaged".into());
        } else {
            let what = "bytes behind an xz stream are neither padding nor a stream";
            self.block_decoded = self.decoded;
            if self.leave_gap(position, position, what)? {
                return Ok(());
            }
            if starts::nonzero(self.input.shared_source(), position, &self.cancel, &mut self.effort)?.is_some() {
                // A stream whose start is lost looks like this.
                return Err(invalid(position, what));
            }
            self.report(position, self.decoded, what.into());
            self.state = XzState::Ended;
            return Ok(());
        }
        if ![CheckId::NONE, CheckId::CRC32, CheckId::CRC64, CheckId::SHA256].contains(&self.check) {
            warn!(
                "the blocks of the xz stream at byte {position} have check {}, which cannot be verified",
                self.check.number()
            );
        }
        self.input.consume(STREAM_HEADER);
        self.summary = Some(Summary::default());
        self.state = XzState::BetweenBlocks;
        Ok(())
    }

    /// What stands at byte `position` cannot be read: goes on at the next stream, if there is one.
    fn leave_for_next_stream(&mut self, position: u64, error: io::Error) -> io::Result<()> {
        self.block_decoded = self.decoded;
        if self.leave_gap(position, position.saturating_add(1), &error.to_string())? { Ok(()) } else { Err(error) }
    }

    /// A gap stands for what is behind byte `position`, up to the first stream from byte `from` on: nobody knows how
    /// long that is. False if there is none.
    fn leave_gap(&mut self, position: u64, from: u64, what: &str) -> io::Result<bool> {
        let (source, cancel) = (self.input.shared_source(), &self.cancel);
        let [first, second, third, fourth, ..] = MAGIC;
        let magic = [first, second, third, fourth];
        let next = starts::next(source, from, &[magic], cancel, &mut self.effort, |at, effort| {
            let mut walk = Walk::new(source, at, cancel, effort);
            let is_stream = walk.peek(STREAM_HEADER)?.first_chunk().is_some_and(|header| stream_header(header).is_ok());
            let proof = Proof { far: FAR, stored: STORED, is_expected: false, is_padded: true };
            Ok(is_stream && starts::leads_on(&mut walk, proof, parts(Place::Stream))?)
        })?;
        let Some(next) = next else { return Ok(false) };
        let end = self.decoded.saturating_add(GAP as u64);
        self.report(position, end, what.to_owned());
        if self.first_pass {
            self.findings.shift(end);
        }
        self.behind_gap = Some(end).filter(|_| next.saturating_sub(position) >= LONG_GAP);
        self.input.seek(next);
        self.inner_points.clear();
        // No seek point leads here.
        self.last_point = self.decoded;
        self.state = XzState::Lost { left: GAP };
        Ok(true)
    }

    /// The check of the stream at byte `position`, whose header is damaged: that with which its first block leads to
    /// another one or the index, and the index to the footer, which says it, too. Usually it is that of the stream
    /// before.
    fn check_behind_damaged_header(&mut self, position: u64) -> io::Result<Option<CheckId>> {
        let blocks = position.saturating_add(STREAM_HEADER as u64);
        let usual = [CheckId::CRC64, CheckId::CRC32, CheckId::SHA256, CheckId::NONE];
        for check in [self.check].into_iter().chain(usual.into_iter().filter(|&check| check != self.check)) {
            let mut walk = Walk::new(self.input.shared_source(), blocks, &self.cancel, &mut self.effort);
            let proof = Proof { far: u64::MAX, stored: STORED, is_expected: true, is_padded: true };
            if starts::leads_on(&mut walk, proof, parts(Place::Blocks { check, passed: 0 }))? {
                return Ok(Some(check));
            }
        }
        Ok(None)
    }

    fn start_block(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        let position = self.input.position();
        (self.block_compressed, self.block_decoded, self.block) = (position, self.decoded, None);
        self.inner_points.clear();
        let ahead = self.ahead.as_mut().map(|ahead| ahead.take(position, self.check));
        if let Some(DecodedBlock { data, record, end, points }) = ahead.transpose()?.flatten() {
            self.input.seek(end);
            self.count(record);
            self.inner_points.extend(points);
            self.state = XzState::Ready { data, delivered: 0 };
            return Ok(());
        }
        let Some(&size) = self.input.fill(LONGEST_BLOCK_HEADER)?.first() else {
            if self.is_part {
                self.state = XzState::Ended;
                return Ok(());
            }
            return Err(cut(position, "a stream, where a block or the index should be"));
        };
        if size == 0 {
            return self.read_index();
        }
        let Some(bytes) = self.input.buffered().get(..block_header_length(size)) else {
            return self.leave_cut_block("the header of a block");
        };
        let header = match block_header(bytes, self.check) {
            Ok(header) => header,
            Err(fault) => return self.leave_unread_block(fault),
        };
        self.input.consume(header.length);
        let rest = header.compressed.unwrap_or(u64::MAX).min(self.input.remaining());
        match BlockDecoder::new(&header, self.verify.then_some(self.check), rest, &self.limits)? {
            Ok(mut decoder) => {
                if self.first_pass && self.spacing < u64::MAX {
                    decoder.survey(self.spacing);
                }
                self.block = Some(Block { header, decoder, stalled: 0 });
                self.state = XzState::Data;
                Ok(())
            }
            Err(fault) => self.leave_unread_block(fault),
        }
    }

    fn decode(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(block) = &mut self.block else { return Err(invalid(self.block_compressed, "no block")) };
        let left = block.header.compressed.map_or(u64::MAX, |length| length.saturating_sub(block.decoder.taken()));
        let available = self.input.fill(block.decoder.wanted())?;
        let available = &available[..usize::try_from(left).unwrap_or(usize::MAX).min(available.len())];
        let step = block.decoder.decode(available, buffer)?;
        block.decoder.take_points(&mut self.inner_points);
        let at_end = available.is_empty();
        self.input.consume(step.taken);
        let idle = step.taken == 0 && step.written == 0;
        block.stalled = if idle { block.stalled + 1 } else { 0 };
        match step.outcome {
            Outcome::End => self.state = XzState::DataEnd,
            Outcome::Damaged(what) => self.state = XzState::Damaged(what),
            Outcome::More if idle && at_end && left > 0 => self.leave_cut_block("a block")?,
            // liblzma may do nothing once, but says so the second time.
            Outcome::More if idle && (at_end || block.stalled > 2) => {
                self.state = XzState::Damaged("the data of a block do not end where they should".into());
            }
            Outcome::More => {}
        }
        Ok(step.written)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Some(Block { header, decoder, .. }) = self.block.take() else {
            return Err(invalid(self.block_compressed, "no block"));
        };
        let record = Record {
            unpadded: (header.length + self.check.size()) as u64 + decoder.taken(),
            uncompressed: self.decoded - self.block_decoded,
        };
        if header.compressed.is_some_and(|length| length != decoder.taken())
            || header.uncompressed.is_some_and(|length| length != record.uncompressed)
        {
            self.block = Some(Block { header, decoder, stalled: 0 });
            self.state = XzState::Damaged("a block does not have the sizes that its header says".into());
            return Ok(());
        }
        let position = self.input.position();
        let padding = (decoder.taken().wrapping_neg() % 4) as usize;
        let length = padding + self.check.size();
        let Some(bytes) = self.input.fill(length)?.get(..length) else {
            return Err(cut(self.input.source().len(), "the check of a block"));
        };
        let (padding, stored) = bytes.split_at(padding);
        let flaw = if !decoder.matches(stored) {
            Some("the check of an xz block does not match its data".to_owned())
        } else if padding.iter().any(|&byte| byte != 0) {
            Some("the padding of an xz block is not zero".to_owned())
        } else {
            None
        };
        self.input.consume(length);
        if let Some(what) = flaw {
            self.report(position, self.decoded, what);
            let in_index = self.record_in_index()?;
            let stated = header.uncompressed.or(in_index.map(|record| record.uncompressed));
            if self.first_pass && stated != Some(record.uncompressed) {
                self.findings.shift(self.decoded);
            }
        }
        self.count(record);
        self.state = XzState::BetweenBlocks;
        Ok(())
    }

    fn count(&mut self, record: Record) {
        if let Some(summary) = &mut self.summary {
            summary.add(record);
        }
    }

    /// The index and the footer. What is wrong with them damages no decoded byte.
    fn read_index(&mut self) -> io::Result<()> {
        let position = self.input.position();
        let mut said = Summary::default();
        let read = match index::read(&mut self.input, &self.cancel, |record| said.add(record)) {
            Ok(read) => read,
            // It may be a block whose first byte is damaged.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                if self.replace_block("the header of a block is damaged")? {
                    return Ok(());
                }
                return self.leave_for_next_stream(position, error);
            }
            Err(error) => return Err(error),
        };
        let differs = self.summary.as_ref().is_some_and(|summary| !summary.matches(&said));
        let flaw = match &read {
            Err(Fault::Damaged(what) | Fault::Unsupported(what)) => Some(what.clone()),
            Ok(index) if index.flaw.is_some() => index.flaw.clone(),
            Ok(_) if differs => Some("an index does not have the sizes of its blocks".into()),
            Ok(_) => None,
        };
        if let Some(what) = &flaw {
            let end = self.input.position();
            if self.replace_block("the header of a block is damaged")? {
                return Ok(());
            }
            self.input.seek(end);
            self.report(position, self.decoded, what.clone());
        }
        let index = match read {
            Ok(index) => index,
            Err(fault @ Fault::Damaged(_)) => return self.leave_for_next_stream(position, refusal(position, fault)),
            Err(fault) => return Err(refusal(position, fault)),
        };
        let position = self.input.position();
        let Some(footer) = self.input.fill(STREAM_HEADER)?.first_chunk::<STREAM_HEADER>() else {
            return Err(cut(self.input.source().len(), "the footer of a stream"));
        };
        match stream_footer(footer) {
            Ok(sizes) if sizes == (self.check, index.length) => {}
            Ok(_) => {
                let error = invalid(position, "the footer of a stream does not match its header and its index");
                return self.leave_for_next_stream(position, error);
            }
            Err(fault @ Fault::Damaged(_)) => return self.leave_for_next_stream(position, refusal(position, fault)),
            Err(fault) => return Err(refusal(position, fault)),
        }
        self.input.consume(STREAM_HEADER);
        self.state = XzState::BetweenStreams;
        Ok(())
    }

    /// The source ends where more of a block should be. If it ends with an index that knows the block, then it is not
    /// cut: damage has led us astray.
    fn leave_cut_block(&mut self, place: &str) -> io::Result<()> {
        let found = self.record_in_index()?;
        match found {
            Some(_) => self.leave_damaged_block("a block leads past the end of the file"),
            None => Err(cut(self.input.source().len(), place)),
        }
    }

    fn leave_unread_block(&mut self, fault: Fault) -> io::Result<()> {
        match fault {
            Fault::Damaged(what) => self.leave_damaged_block(&what),
            fault @ Fault::Unsupported(_) => Err(refusal(self.block_compressed, fault)),
        }
    }

    /// Goes on behind the damaged block, or ends with an error that says `what` is wrong with it. What was
    /// delivered of it must not be served in either case.
    fn leave_damaged_block(&mut self, what: &str) -> io::Result<()> {
        let position = self.input.position();
        if self.replace_block(what)? {
            return Ok(());
        }
        let start = self.block_compressed.saturating_add(1);
        if self.leave_gap(position, start, what)? {
            self.block = None;
            return Ok(());
        }
        if self.decoded > self.block_decoded {
            self.report(position, self.decoded, what.to_owned());
        }
        Err(invalid(position, what))
    }

    /// Finds out how long the damaged block is, in its header, the index, or the headers of its LZMA2 chunks, puts
    /// a gap for what it has not delivered and goes on behind it. False if none of them leads to another block or the
    /// index.
    fn replace_block(&mut self, what: &str) -> io::Result<bool> {
        let position = self.input.position();
        for place in [Sizes::Header, Sizes::Index, Sizes::Chunks] {
            let record = match place {
                Sizes::Header => self.size_in_header(),
                Sizes::Index => self.record_in_index()?,
                Sizes::Chunks => self.size_in_chunks()?,
            };
            let Some(record) = record else { continue };
            if record.uncompressed / LARGEST_RATIO > record.unpadded {
                continue;
            }
            let end = padded(record.unpadded).and_then(|length| self.block_compressed.checked_add(length));
            let Some(end) = end.filter(|&end| end > self.block_compressed) else { continue };
            if !self.block_or_index_at(end)? {
                continue;
            }
            let delivered = self.decoded - self.block_decoded;
            let left = record.uncompressed.saturating_sub(delivered);
            let end = self.decoded.saturating_add(left);
            self.report(position, end, what.to_owned());
            // The headers of chunks may be damaged themselves; and of more bytes than there should be, nothing is known
            // of those behind.
            if self.first_pass && (matches!(place, Sizes::Chunks) || delivered > record.uncompressed) {
                self.findings.shift(end);
            }
            self.count(record);
            self.block = None;
            self.inner_points.clear();
            self.state = if left > 0 { XzState::Gap { left } } else { XzState::BetweenBlocks };
            return Ok(true);
        }
        Ok(false)
    }

    /// What the index says of the block. Where it cannot be read, that is for the walk to meet.
    fn record_in_index(&mut self) -> io::Result<Option<Record>> {
        let found = self.search.record_of(self.block_compressed, &self.cancel);
        self.cancel.check()?;
        Ok(found.ok().flatten())
    }

    fn size_in_header(&self) -> Option<Record> {
        let header = &self.block.as_ref()?.header;
        let unpadded = header.compressed?.checked_add((header.length + self.check.size()) as u64)?;
        Some(Record { unpadded, uncompressed: header.uncompressed? })
    }

    /// Walks over the headers of the LZMA2 chunks, which say the length of each without decoding it (§5.3.1).
    fn size_in_chunks(&mut self) -> io::Result<Option<Record>> {
        let Some(header_length) = self.block.as_ref().map(|block| block.header.length as u64) else { return Ok(None) };
        let start = self.block_compressed + header_length;
        let mut walk = Walk::new(self.input.shared_source(), start, &self.cancel, &mut self.effort);
        let mut uncompressed = 0u64;
        while walk.step(0)? {
            let Some((length, size, is_end)) = chunk(walk.peek(5)?) else { return Ok(None) };
            uncompressed = uncompressed.saturating_add(size);
            if !walk.skip(length) {
                return Ok(None);
            }
            if is_end {
                let compressed = walk.position() - start;
                let unpadded = header_length + compressed + self.check.size() as u64;
                return Ok(Some(Record { unpadded, uncompressed }));
            }
        }
        Ok(None)
    }

    /// Goes to byte `position` and says whether a block or an index may start there.
    fn block_or_index_at(&mut self, position: u64) -> io::Result<bool> {
        if position >= self.input.source().len() {
            return Ok(false);
        }
        self.input.seek(position);
        let bytes = self.input.fill(LONGEST_BLOCK_HEADER)?;
        Ok(match bytes.first() {
            None => false,
            Some(0) => true,
            Some(&size) => bytes
                .get(..block_header_length(size))
                .is_some_and(|header| !matches!(block_header(header, self.check), Err(Fault::Damaged(_)))),
        })
    }

    /// Takes note that the block's bytes up to the decoded offset `end` must not be served.
    fn report(&mut self, compressed: u64, end: u64, what: String) {
        if !self.first_pass {
            debug!("xz: at byte {compressed}: {what}");
            return;
        }
        let decoded = self.block_decoded..end;
        // Where no byte is concerned, it is about what lies behind.
        let compressed_from = if decoded.is_empty() { compressed } else { self.block_compressed };
        self.findings.report(Damage { decoded, lost_from: self.decoded, compressed, compressed_from, what });
    }

    /// Counts `written` bytes, and makes the block that they belong to a seek point if the last one is far enough away.
    fn advance(&mut self, written: usize) {
        let is_far = self.block_decoded.saturating_sub(self.last_point) >= PIECE as u64;
        if self.first_pass && written > 0 && (is_far || self.behind_gap == Some(self.block_decoded)) {
            (self.last_point, self.behind_gap) = (self.block_decoded, None);
            self.findings.points.push(SeekPoint {
                compressed_bit: self.block_compressed.saturating_mul(8),
                decoded: self.block_decoded,
                state: block_state(self.check),
            });
        }
        self.decoded = self.decoded.saturating_add(written as u64);
        while let Some(LzmaPoint { decoded, compressed, state }) =
            self.inner_points.front().filter(|point| self.block_decoded + point.decoded < self.decoded)
        {
            self.last_point = self.block_decoded + decoded;
            let state = [&[INSIDE, self.check.number()], &compressed.to_le_bytes()[..], &decoded.to_le_bytes(), state];
            self.findings.points.push(SeekPoint {
                compressed_bit: (self.block_compressed + compressed).saturating_mul(8),
                decoded: self.last_point,
                state: state.concat(),
            });
            self.inner_points.pop_front();
        }
    }
}

impl Stepwise for XzDecoder {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let written = self.go_on(buffer)?;
        self.advance(written);
        Ok(written)
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, XzState::Ended)
    }

    fn end(&mut self) {
        self.state = XzState::Ended;
        self.block = None;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl Decoder for XzDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let ready = if let XzState::Ready { data, .. } = &self.state { data.capacity() } else { 0 };
        size_of::<Self>()
            + self.input.memory()
            + ready
            + self.block.as_ref().map_or(0, |block| block.decoder.memory_after(bytes))
            + self.ahead.as_ref().map_or(0, Ahead::memory)
    }
}

impl FirstPass for XzDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}

fn refusal(position: u64, fault: Fault) -> io::Error {
    match fault {
        Fault::Damaged(what) => invalid(position, what),
        Fault::Unsupported(what) => unsupported(position, what),
    }
}
