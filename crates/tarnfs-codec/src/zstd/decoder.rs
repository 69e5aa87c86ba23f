use std::io;

use log::{debug, warn};
use tarnfs_source::{Cancel, Limits, SharedSource};
use xxhash_rust::xxh64::Xxh64;

use super::ahead::{Ahead, DecodedFrame, LARGEST_FRAME};
use super::block::{Blocks, Invalid};
use super::checkpoint::{self, PointPlace, Refused};
use super::dictionary::{Dictionaries, needed};
use super::entropy::{DecodedBlock, EntropyAhead, Known, Next};
use super::frame::{
    BLOCK_HEADER, BlockHeader, CHECKSUM, FrameHeader, LARGEST_BLOCK, LONGEST_HEADER, MAGIC, Start, checksum,
};
use super::idle::Loan;
use super::survey::Survey;
use crate::faults::{cut, invalid};
use crate::input::Input;
use crate::starts::{self, Behind, Effort, GAP, LONG_GAP, Proof, Walk};
use crate::stepwise::{self, Stepwise};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, PIECE, SeekPoint};

/// Of larger frames the blocks are decoded on two threads. (In the tests of all.)
const LARGEST_WHOLE: u64 = if cfg!(test) { 0 } else { LARGEST_FRAME as u64 };

/// A stream that was decoded so far is long enough for one thread to take whole frames: that takes their memory, and
/// spares copying what waits for a checksum. (In the tests, any is.)
const LONG: u64 = if cfg!(test) { 1 } else { 1 << 20 };

/// Blocks that lead further lie in no frame that stores them: of such a frame each block, of 128 KiB at most, has a
/// header, which moves what is behind it by three bytes. One of 40 places looks like the header of a block that is not
/// the last, and eight of them would have to.
const FAR: u64 = 8 * LARGEST_BLOCK;

/// Bytes of the largest window that the tool writes (`ZSTD_WINDOWLOG_MAX`).
const LARGEST_WINDOW: u64 = 1 << 31;

/// Decodes frame after frame, and each frame block by block.
pub(super) struct FrameDecoder {
    input: Input,
    limits: Limits,
    dictionaries: Dictionaries,
    cancel: Cancel,
    /// In a first pass, which collects seek points and damage, and verifies checksums.
    survey: Option<Survey>,
    blocks: Option<Loan>,
    state: FrameState,
    /// A block was decoded. Who begins in the middle may want no more than that.
    goes_on: bool,
    /// Decodes whole frames, on other threads if there are some.
    ahead: Option<Ahead>,
    /// Does half of the work of a large frame on another thread.
    entropy: Option<EntropyAhead>,
    frame: Frame,
    /// Offset in the decoded stream of the next byte.
    decoded: u64,
    /// The end of what was delivered of the last frame that was verified as a whole, in the decoded stream.
    verified: u64,
    /// Offset in the decoded stream of the last seek point.
    last_point: u64,
    /// The end of a gap that stands for much, in the decoded stream: a frame that begins there is a seek point.
    behind_gap: Option<u64>,
    /// What it has cost to find out what lies behind damage. Or damaged frames whose blocks all lead far would take a
    /// time that is quadratic.
    effort: Effort,
    findings: Findings,
    /// Found after bytes that had to be returned first.
    failure: Option<io::Error>,
}

/// The frame that is being decoded.
struct Frame {
    header: FrameHeader,
    /// Where it starts in the compressed and in the decoded stream.
    compressed: u64,
    decoded: u64,
    /// Of what was decoded of it, in a first pass.
    hash: Option<Xxh64>,
    /// It was tried to decode it on two threads.
    is_shared: bool,
}

enum FrameState {
    /// Where the stream starts: something must be there.
    Start,
    /// Between two frames.
    Between,
    /// At a block's header.
    Block,
    /// In a decoded block, of which `left` bytes are still to be delivered.
    Delivering {
        left: usize,
        last: bool,
    },
    /// At a frame's checksum.
    Checksum,
    /// In a frame that was decoded ahead, of which this many bytes have been delivered.
    Ready {
        frame: DecodedFrame,
        delivered: usize,
    },
    /// In what a damaged frame should have held.
    Gap {
        left: u64,
    },
    Ended,
}

impl FrameDecoder {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let mut decoder = Self::new(source.clone(), options.limits, &options.dictionaries, 0, 0);
        decoder.ahead = Some(Ahead::new(source, options));
        decoder.survey = Some(Survey::new(options.seek_point_spacing));
        decoder.cancel = options.cancel.clone();
        decoder.findings.points.push(SeekPoint::default());
        decoder
    }

    /// The same with a point at every block inside of frames.
    #[cfg(test)]
    pub(super) fn first_pass_with_all_points(source: SharedSource, options: &Options) -> Self {
        let mut decoder = Self::first_pass(source, options);
        decoder.ahead = None;
        decoder.survey.iter_mut().for_each(|survey| survey.everywhere = true);
        decoder
    }

    pub(super) fn resume(
        source: SharedSource,
        point: &SeekPoint,
        limits: Limits,
        dictionaries: &Dictionaries,
    ) -> io::Result<Self> {
        let compressed = point.compressed_bit / 8;
        if !point.compressed_bit.is_multiple_of(8) || compressed > source.len() {
            return Err(invalid(compressed, "a seek point that no zstd frame can have"));
        }
        let mut decoder = Self::new(source, limits, dictionaries, compressed, point.decoded);
        if !point.state.is_empty() {
            decoder.restore(point)?;
        } else if decoder.input.remaining() == 0 {
            decoder.state = FrameState::Ended;
        }
        Ok(decoder)
    }

    /// From the start of a frame on, with all that the frames can verify.
    pub(super) fn verified(source: SharedSource, point: &SeekPoint, options: &Options) -> io::Result<Self> {
        let mut decoder = Self::resume(source, point, options.limits, &options.dictionaries)?;
        decoder.survey = Some(Survey::new(options.seek_point_spacing));
        Ok(decoder)
    }

    /// Goes on inside a frame.
    fn restore(&mut self, point: &SeekPoint) -> io::Result<()> {
        let blocks = self.blocks.insert(Loan::take());
        let wrong = |what: &str| {
            invalid(point.compressed_bit / 8, format!("a seek point whose state {what}: build the index again"))
        };
        let restored = checkpoint::restore(&point.state, &self.limits, &self.dictionaries, blocks).map_err(
            |refused| match refused {
                Refused::Wrong(what) => wrong(what),
                Refused::Needs { frame, dictionary } => unsupported(frame, &needed(dictionary)),
            },
        )?;
        let decoded = point.decoded.checked_sub(restored.before).ok_or_else(|| wrong("is of another place"))?;
        self.frame =
            Frame { header: restored.header, compressed: restored.frame, decoded, hash: None, is_shared: false };
        self.state = FrameState::Block;
        Ok(())
    }

    fn new(source: SharedSource, limits: Limits, dictionaries: &Dictionaries, compressed: u64, decoded: u64) -> Self {
        let header = FrameHeader { length: 0, window: 0, content: None, dictionary: 0, checksum: false };
        Self {
            input: Input::new(source, compressed),
            limits,
            dictionaries: dictionaries.clone(),
            cancel: Cancel::default(),
            survey: None,
            blocks: None,
            state: FrameState::Start,
            goes_on: false,
            ahead: None,
            entropy: None,
            frame: Frame { header, compressed, decoded, hash: None, is_shared: false },
            decoded,
            verified: 0,
            last_point: decoded,
            behind_gap: None,
            effort: Effort::default(),
            findings: Findings::default(),
            failure: None,
        }
    }

    /// Goes on by one frame header, block or checksum, or by what fits into `buffer`; returns the bytes written.
    fn go_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.state {
            FrameState::Start | FrameState::Between => self.start_frame().map(|()| 0),
            FrameState::Block => self.start_block().map(|()| 0),
            &mut FrameState::Delivering { left, last } => Ok(self.deliver(left, last, buffer)),
            FrameState::Checksum => self.verify_checksum().map(|()| 0),
            FrameState::Ready { frame, delivered } => {
                let rest = frame.data().get(*delivered..).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                *delivered += count;
                self.verified = self.decoded.saturating_add(count as u64);
                if count == rest.len()
                    && let FrameState::Ready { frame, .. } = std::mem::replace(&mut self.state, FrameState::Between)
                    && let Some(ahead) = &mut self.ahead
                {
                    ahead.recycle(frame);
                }
                Ok(count)
            }
            &mut FrameState::Gap { left } => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(FILLER);
                let left = left - count as u64;
                self.state = if left > 0 { FrameState::Gap { left } } else { FrameState::Between };
                Ok(count)
            }
            FrameState::Ended => Ok(0),
        }
    }

    fn start_frame(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        let at_start = matches!(self.state, FrameState::Start);
        let position = self.input.position();
        let is_long = self.decoded >= LONG;
        let ahead = self.ahead.as_mut().filter(|ahead| ahead.has_threads() || is_long);
        let ahead = ahead.map(|ahead| ahead.take(position));
        if let Some(frame) = ahead.transpose()?.flatten() {
            self.input.seek(frame.end);
            (self.frame.compressed, self.frame.decoded) = (frame.start, self.decoded);
            self.state = FrameState::Ready { frame, delivered: 0 };
            return Ok(());
        }
        let head = self.input.fill(LONGEST_HEADER)?;
        match Start::parse(head) {
            _ if head.is_empty() && !at_start => self.state = FrameState::Ended,
            Start::Frame(header) => self.enter(header)?,
            Start::Skippable(length) => self.skip_frame(position, length)?,
            Start::Cut => return Err(cut(self.input.source().len(), "the header of a frame")),
            Start::Reserved => self.leave_start(position, invalid(position, "a frame whose reserved bit is set"))?,
            // Of a stream's first frame nothing but its magic says that it is one.
            Start::Other if position > 0 && self.is_frame_of_damaged_magic()? => {}
            Start::Other if at_start => return Err(invalid(position, "not the start of a zstd frame")),
            Start::Other => self.skip_padding()?,
        }
        Ok(())
    }

    /// What stands at byte `position` cannot be read, and may be damaged: goes on at the next frame, if there is one.
    /// At the start of a file it is rather what it looks like.
    fn leave_start(&mut self, position: u64, error: io::Error) -> io::Result<()> {
        let next = if position > 0 { self.next_frame(position.saturating_add(1))? } else { None };
        let Some(next) = next else { return Err(error) };
        (self.frame.compressed, self.frame.decoded) = (position, self.decoded);
        self.leave_gap(position, next, &error.to_string());
        Ok(())
    }

    /// Passes the skippable frame of `length` bytes at byte `position`. Where that leads to nothing, its length may be
    /// damaged.
    fn skip_frame(&mut self, position: u64, length: u64) -> io::Result<()> {
        let end = self.input.source().len();
        let error = if self.input.skip(length) {
            let behind = self.input.fill(LONGEST_HEADER)?;
            let may_follow = behind.first().is_none_or(|&byte| byte == 0)
                || !matches!(Start::parse(behind), Start::Other)
                || Start::of_damaged_magic(behind).is_some();
            (!may_follow).then(|| invalid(position, "a skippable frame leads to no other frame"))
        } else {
            Some(cut(end, "a skippable frame"))
        };
        let behind = self.input.position();
        self.state = FrameState::Between;
        let Some(error) = error else { return Ok(()) };
        match self.leave_start(position, error) {
            // What is behind it tells for itself.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.input.seek(behind);
                Ok(())
            }
            left => left,
        }
    }

    /// Enters the frame at the input's position, if there is one whose magic is damaged, and nothing else of what tells
    /// a frame.
    fn is_frame_of_damaged_magic(&mut self) -> io::Result<bool> {
        let position = self.input.position();
        let Some(header) = Start::of_damaged_magic(self.input.fill(LONGEST_HEADER)?) else { return Ok(false) };
        let source = self.input.shared_source();
        let mut walk = Walk::new(source, position, &self.cancel, &mut self.effort);
        let proof = Proof { far: 2 * LARGEST_BLOCK, stored: LARGEST_BLOCK, is_expected: true, is_padded: false };
        if header.window > self.limits.decoder_window || !starts::leads_on(&mut walk, proof, parts())? {
            return Ok(false);
        }
        self.frame.decoded = self.decoded;
        self.report(position, self.decoded, "the magic number of a zstd frame is damaged".into());
        self.enter(header)?;
        Ok(true)
    }

    fn enter(&mut self, header: FrameHeader) -> io::Result<()> {
        let position = self.input.position();
        let Ok(dictionary) = self.dictionaries.for_frame(header.dictionary) else {
            return self.refuse(header, &needed(header.dictionary));
        };
        if header.window > self.limits.decoder_window {
            let limit = self.limits.decoder_window;
            return self.refuse(header, &format!("needs a window of {} bytes, the limit is {limit}", header.window));
        }
        let blocks = self.blocks.get_or_insert_with(Loan::take);
        if !blocks.start(&header, dictionary) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.input.consume(header.length);
        let hash = (self.survey.is_some() && header.checksum).then(|| Xxh64::new(0));
        self.frame = Frame { header, compressed: position, decoded: self.decoded, hash, is_shared: false };
        self.entropy = None;
        self.state = FrameState::Block;
        Ok(())
    }

    /// The frame at the input's position needs more than there is. That is an error, unless its header is damaged: then
    /// it needs what no frame does, or its blocks lead to nothing, as a header that seems to name a dictionary seems to
    /// be longer.
    fn refuse(&mut self, header: FrameHeader, what: &str) -> io::Result<()> {
        let position = self.input.position();
        let error = unsupported(position, what);
        if position == 0 {
            return Err(error);
        }
        (self.frame.compressed, self.frame.decoded) = (position, self.decoded);
        (self.frame.header, self.frame.hash) = (header, None);
        self.input.consume(header.length);
        if header.window > LARGEST_WINDOW {
            return self.leave_damaged_frame(&error.to_string());
        }
        if self.find_frame_end()?.is_some() { Err(error) } else { self.leave_start(position, error) }
    }

    /// A block goes on behind the end of the file: the frame is cut, or the length of the block is damaged, and another
    /// frame follows.
    fn leave_cut_block(&mut self, position: u64) -> io::Result<()> {
        let error = cut(self.input.source().len(), "a block");
        let Some(next) = self.next_frame(position.saturating_add(1))? else { return Err(error) };
        self.entropy = None;
        self.leave_gap(position, next, &error.to_string());
        Ok(())
    }

    fn start_block(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        let position = self.input.position();
        if let Some(block) = self.decoded_ahead(position) {
            return self.execute(position, block?);
        }
        self.survey_block(position, None)?;
        let Some(header) = self.input.fill(BLOCK_HEADER)?.first_chunk::<BLOCK_HEADER>() else {
            return Err(cut(position, "a frame, where a block should be"));
        };
        let block = match BlockHeader::parse(*header, &self.frame.header) {
            Ok(block) => block,
            Err(what) => return self.leave_damaged_frame(&what),
        };
        let length = BLOCK_HEADER + block.length;
        if self.input.fill(length)?.len() < length {
            return self.leave_cut_block(position);
        }
        let goes_on = std::mem::replace(&mut self.goes_on, true) || self.survey.is_some();
        if goes_on && self.blocks.as_ref().is_some_and(|blocks| blocks.goes_faster_with_next(block)) {
            self.fill_next(length);
        }
        let Some(blocks) = &mut self.blocks else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let (content, behind) = self.input.buffered().split_at_checked(length).unwrap_or_default();
        let behind = if block.last || !goes_on { None } else { BlockHeader::next(behind, &self.frame.header) };
        if let Err(what) = blocks.decode(block, content.get(BLOCK_HEADER..).unwrap_or_default(), behind) {
            return self.leave_damaged_block(what);
        }
        self.end_block(length, block.last)
    }

    /// Reads the block behind the one of `length` bytes, too. Where that cannot be done is told when its turn comes.
    fn fill_next(&mut self, length: usize) {
        let behind = length + BLOCK_HEADER;
        let Ok(bytes) = self.input.fill(behind) else { return };
        let header = bytes.get(length..).and_then(|bytes| bytes.first_chunk());
        if let Some(Ok(next)) = header.map(|header| BlockHeader::parse(*header, &self.frame.header)) {
            let _ = self.input.fill(behind + next.length);
        }
    }

    /// Delivers the block of `length` bytes that was decoded.
    fn end_block(&mut self, length: usize, last: bool) -> io::Result<()> {
        let decoded = self.blocks.as_ref().map_or(&[][..], |blocks| blocks.decoded());
        let delivered = self.decoded - self.frame.decoded + decoded.len() as u64;
        let content = self.frame.header.content.unwrap_or(delivered);
        if delivered > content || last && delivered < content {
            self.leave_damaged_frame("the content is not as long as the header says")?;
            // Nothing says which of the two is right.
            if self.survey.is_some() {
                let left = if let FrameState::Gap { left } = self.state { left } else { 0 };
                self.findings.shift(self.decoded.saturating_add(left));
            }
            return Ok(());
        }
        if let Some(hash) = &mut self.frame.hash {
            hash.update(decoded);
        }
        self.state = FrameState::Delivering { left: decoded.len(), last };
        if !self.input.skip(length as u64) {
            return Err(cut(self.input.source().len(), "a block"));
        }
        Ok(())
    }

    /// The block at `position`, if another thread decodes the frame and has not found anything wrong with it.
    fn decoded_ahead(&mut self, position: u64) -> Option<io::Result<DecodedBlock>> {
        let blocks = self.blocks.as_mut()?;
        let content = self.frame.header.content.unwrap_or(self.decoded - self.frame.decoded);
        if self.ahead.as_ref().is_some_and(Ahead::has_threads) && !self.frame.is_shared && content > LARGEST_WHOLE {
            self.frame.is_shared = true;
            let source = self.input.shared_source();
            self.entropy = EntropyAhead::start(source, position, self.frame.header, blocks);
        }
        match EntropyAhead::next(&mut self.entropy)? {
            Next::Block(block) => Some(Ok(block)),
            Next::Ended(before) => {
                (blocks.literals, blocks.tables) = (before.literals, before.tables);
                None
            }
            Next::Lost => Some(Err(io::Error::other(format!(
                "decoding zstd ended at byte {position}; this is an error in tarnfs, please report it"
            )))),
        }
    }

    fn execute(&mut self, position: u64, block: DecodedBlock) -> io::Result<()> {
        self.survey_block(position, Some(&block.before))?;
        let Some(blocks) = &mut self.blocks else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let executed = blocks.execute(&block);
        let (length, last) = (block.length, block.last);
        if let Some(entropy) = &self.entropy {
            entropy.recycle(block);
        }
        match executed {
            Ok(()) => self.end_block(length, last),
            Err(what) => self.leave_damaged_block(what),
        }
    }

    fn leave_damaged_block(&mut self, what: Invalid) -> io::Result<()> {
        let is_first = self.decoded == self.frame.decoded;
        let names_none = self.frame.header.dictionary == 0;
        if is_first && names_none && Blocks::may_be_for_want_of_a_dictionary(what) {
            let what = format!("{what}: {}", self.dictionaries.advice());
            if self.survey.is_none() {
                // Else there are only wrong bytes, of which nothing says why.
                warn!("{}: zstd frame at byte {}: {what}", self.input.source().describe(), self.frame.compressed);
            }
            return self.leave_damaged_frame(&what);
        }
        self.leave_damaged_frame(what)
    }

    /// Makes a seek point of the place before the next block, if it is worth it.
    ///
    /// `known` is what a block may use of those before, if the blocks were decoded elsewhere.
    fn survey_block(&mut self, position: u64, known: Option<&Known>) -> io::Result<()> {
        let before = self.decoded - self.frame.decoded;
        let (Some(survey), Some(blocks)) = (&mut self.survey, &mut self.blocks) else { return Ok(()) };
        if !survey.is_due(&self.frame.header, position, self.decoded, before) {
            return Ok(());
        }
        let blocks: &mut Blocks = blocks;
        if let Some(known) = known
            && let Err(what) = known.restore(&mut blocks.literals, &mut blocks.tables)
        {
            return Err(invalid(position, what));
        }
        let place = PointPlace { header: &self.frame.header, frame: self.frame.compressed, block: position, before };
        let state = checkpoint::pack(blocks, &place, self.input.shared_source(), &self.cancel)?;
        if survey.is_worth(state.as_ref().map(Vec::len), position, self.decoded) {
            self.last_point = self.decoded;
            self.findings.points.extend(state.map(|state| SeekPoint {
                compressed_bit: position.saturating_mul(8),
                decoded: self.decoded,
                state,
            }));
        }
        Ok(())
    }

    fn deliver(&mut self, left: usize, last: bool, buffer: &mut [u8]) -> usize {
        let rest = self.blocks.as_ref().map_or(&[][..], |blocks| blocks.last(left));
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        let left = rest.len() - count;
        self.state = match (left, last, self.frame.header.checksum) {
            (1.., ..) => FrameState::Delivering { left, last },
            (0, false, _) => FrameState::Block,
            (0, true, true) => FrameState::Checksum,
            (0, true, false) => FrameState::Between,
        };
        count
    }

    fn verify_checksum(&mut self) -> io::Result<()> {
        let position = self.input.position();
        let Some(found) = self.input.fill(CHECKSUM)?.first_chunk::<CHECKSUM>() else {
            return Err(cut(self.input.source().len(), "the checksum of a frame"));
        };
        let is_right = self.frame.hash.take().is_none_or(|hash| checksum(hash.digest()) == *found);
        self.input.consume(CHECKSUM);
        self.state = FrameState::Between;
        if !is_right {
            let what = "the XXH64 of a zstd frame does not match its data".to_owned();
            self.report(position, self.decoded, what);
            if self.survey.is_some() && self.frame.header.content != Some(self.decoded - self.frame.decoded) {
                self.findings.shift(self.decoded);
            }
        }
        Ok(())
    }

    /// Behind the last frame only zeros are expected: what tapes and block devices pad with. If there is something
    /// else, then that was a frame, too.
    fn skip_padding(&mut self) -> io::Result<()> {
        self.state = FrameState::Ended;
        loop {
            self.cancel.check()?;
            let bytes = self.input.fill(1)?;
            if bytes.is_empty() {
                return Ok(());
            }
            if let Some(other) = bytes.iter().position(|&byte| byte != 0) {
                let at = self.input.position() + other as u64;
                (self.frame.compressed, self.frame.decoded) = (at, self.decoded);
                if let Some(next) = self.next_frame(at)? {
                    // No seek point leads here.
                    self.last_point = self.decoded;
                    self.leave_gap(at, next, "bytes between two zstd frames are no frame");
                    return Ok(());
                }
                // A frame whose start is lost looks like this.
                return Err(invalid(at, "bytes behind the last zstd frame are no frame"));
            }
            let count = bytes.len();
            self.input.consume(count);
            self.input.skip_hole(1);
        }
    }

    /// Where the first frame begins from byte `from` on.
    fn next_frame(&mut self, from: u64) -> io::Result<Option<u64>> {
        let (source, cancel) = (self.input.shared_source(), &self.cancel);
        let most = self.limits.decoder_window;
        starts::next(source, from, &[MAGIC.to_le_bytes()], cancel, &mut self.effort, |at, effort| {
            let mut walk = Walk::new(source, at, cancel, effort);
            let is_readable =
                matches!(Start::parse(walk.peek(LONGEST_HEADER)?), Start::Frame(header) if header.window <= most);
            let proof = Proof { far: FAR, stored: LARGEST_BLOCK, is_expected: false, is_padded: false };
            Ok(is_readable && starts::leads_on(&mut walk, proof, parts())?)
        })
    }

    /// A gap stands for the rest of the frame that is damaged at byte `position`, of which nobody knows how long it is.
    /// The next one begins at byte `next`.
    fn leave_gap(&mut self, position: u64, next: u64, what: &str) {
        let end = self.decoded.saturating_add(GAP as u64);
        self.report(position, end, what.to_owned());
        if self.survey.is_some() {
            self.findings.shift(end);
        }
        self.behind_gap = Some(end).filter(|_| next.saturating_sub(position) >= LONG_GAP);
        self.input.seek(next);
        self.state = FrameState::Gap { left: GAP as u64 };
    }

    /// The block at the input's position cannot be decoded. A gap takes the place of what the frame has not
    /// delivered, where its length and its end are known.
    fn leave_damaged_frame(&mut self, what: &str) -> io::Result<()> {
        self.entropy = None;
        let position = self.input.position();
        let what = what.to_owned();
        let delivered = self.decoded - self.frame.decoded;
        let blocks = self.find_frame_end()?;
        let missing = self.frame.header.content.and_then(|content| content.checked_sub(delivered));
        match (blocks, missing) {
            // What the header claims must be possible, or a few bytes could claim exabytes.
            (Some(blocks), Some(left)) if left <= blocks.saturating_mul(self.frame.header.largest_block()) => {
                let end = self.decoded.saturating_add(left);
                self.report(position, end, what);
                // The header has no checksum. If it says too few bytes, blocks are too large for it, or refer to bytes
                // that it does not know: where it says that the frame ends, or before.
                if self.survey.is_some() && left <= LARGEST_BLOCK {
                    self.findings.shift(end);
                }
                self.state = if left > 0 { FrameState::Gap { left } } else { FrameState::Between };
                Ok(())
            }
            // Where it ends, and nothing of how long it is.
            (Some(_), _) if self.input.remaining() > 0 => {
                self.leave_gap(position, self.input.position(), &what);
                Ok(())
            }
            _ => {
                let error = invalid(position, &what);
                if blocks.is_none()
                    && let Some(next) = self.next_frame(position.saturating_add(1))?
                {
                    self.leave_gap(position, next, &what);
                    return Ok(());
                }
                self.report(position, self.decoded, what);
                Err(error)
            }
        }
    }

    /// Walks over the block headers to the end of the frame and returns how many blocks there were, if the frame
    /// ends where another one or the end of the stream is.
    fn find_frame_end(&mut self) -> io::Result<Option<u64>> {
        let header = self.frame.header;
        let start = self.input.position();
        let mut walk = Walk::new(self.input.shared_source(), start, &self.cancel, &mut self.effort);
        let mut blocks = 0;
        while walk.step(0)? {
            let Some(bytes) = walk.peek(BLOCK_HEADER)?.first_chunk::<BLOCK_HEADER>() else { return Ok(None) };
            let Ok(block) = BlockHeader::parse(*bytes, &header) else { return Ok(None) };
            if !walk.skip((BLOCK_HEADER + block.length) as u64) {
                return Ok(None);
            }
            blocks += 1;
            if block.last {
                if header.checksum && !walk.skip(CHECKSUM as u64) {
                    return Ok(None);
                }
                let is_end = walk.position() == walk.source().len();
                let next = Start::parse(walk.peek(LONGEST_HEADER)?);
                let end = walk.position();
                let is_plausible = is_end || matches!(next, Start::Frame(_) | Start::Skippable(_));
                if is_plausible {
                    self.input.seek(end);
                }
                return Ok(is_plausible.then_some(blocks));
            }
        }
        Ok(None)
    }

    /// Takes note that the frame's bytes up to the decoded offset `end` must not be served.
    fn report(&mut self, compressed: u64, end: u64, what: String) {
        if self.survey.is_none() {
            debug!("zstd: at byte {compressed}: {what}");
            return;
        }
        let decoded = self.frame.decoded..end;
        // Where no byte is concerned, it is about what lies behind.
        let compressed_from = if decoded.is_empty() { compressed } else { self.frame.compressed };
        self.findings.report(Damage { decoded, lost_from: self.decoded, compressed, compressed_from, what });
    }

    /// Counts `written` bytes, and makes the frame that they belong to a seek point if the last one is far enough away.
    fn advance(&mut self, written: usize) {
        if let Some(survey) = &mut self.survey
            && written > 0
            && (self.frame.decoded >= self.last_point.saturating_add(PIECE as u64)
                || self.behind_gap == Some(self.frame.decoded))
        {
            (self.last_point, self.behind_gap) = (self.frame.decoded, None);
            survey.passed(self.frame.decoded);
            self.findings.points.push(SeekPoint {
                compressed_bit: self.frame.compressed.saturating_mul(8),
                decoded: self.frame.decoded,
                state: Vec::new(),
            });
        }
        self.decoded = self.decoded.saturating_add(written as u64);
    }
}

impl Stepwise for FrameDecoder {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let written = self.go_on(buffer)?;
        self.advance(written);
        Ok(written)
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, FrameState::Ended)
    }

    fn end(&mut self) {
        self.state = FrameState::Ended;
        self.blocks = None;
        self.entropy = None;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl Decoder for FrameDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.input.memory()
            + self.blocks.as_ref().map_or(0, |blocks| blocks.memory())
            + self.ahead.as_ref().map_or(0, Ahead::memory)
            + self.entropy.as_ref().map_or(0, |_| EntropyAhead::memory())
    }
}

impl FirstPass for FrameDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.findings)
    }

    fn verified_to(&self) -> u64 {
        self.verified
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}

/// Passes the parts of frames, from the header of one on. One byte of its magic may be damaged.
fn parts() -> impl FnMut(&mut Walk) -> io::Result<Behind> {
    let mut frame = None;
    move |walk| {
        let Some(header) = frame else {
            let head = walk.peek(LONGEST_HEADER)?;
            let (length, behind) = match Start::parse(head) {
                Start::Skippable(length) => (length, Behind::Start),
                start => {
                    let header = if let Start::Frame(header) = start { Some(header) } else { None };
                    let Some(header) = header.or_else(|| Start::of_damaged_magic(head)) else {
                        return Ok(Behind::Lost);
                    };
                    frame = Some(header);
                    (header.length as u64, Behind::More)
                }
            };
            return Ok(if walk.skip(length) { behind } else { Behind::Lost });
        };
        let Some(bytes) = walk.peek(BLOCK_HEADER)?.first_chunk::<BLOCK_HEADER>() else { return Ok(Behind::Lost) };
        let Ok(block) = BlockHeader::parse(*bytes, &header) else { return Ok(Behind::Lost) };
        let mut length = BLOCK_HEADER + block.length;
        if block.last {
            length += if header.checksum { CHECKSUM } else { 0 };
            frame = None;
        }
        Ok(match walk.skip(length as u64) {
            true if block.last => Behind::Start,
            true => Behind::More,
            false => Behind::Lost,
        })
    }
}

fn unsupported(frame: u64, what: &str) -> io::Error {
    let what = format!("the zstd frame at byte {frame} of the compressed file {what}");
    io::Error::new(io::ErrorKind::Unsupported, what)
}
