use std::io;
use std::ops::Range;

use tarnfs_source::{Cancel, Limits, SharedSource};
use xxhash_rust::xxh32::{Xxh32, xxh32};

use super::frame::{Descriptor, LEGACY_BLOCK, LEGACY_MAGIC, LONGEST_HEADER, MAGIC, Start};
use crate::faults;
use crate::input::Input;
use crate::starts::{self, Behind, Effort, GAP, Proof, Walk};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint, stepwise};

/// How far back a match of a linked block reaches ("Linked blocks": at most 64 KB of history).
const HISTORY: usize = 64 << 10;

/// First byte of a seek point's state: a later version of this program may write others.
const STATE_VERSION: u8 = 1;

/// In a block's size: its data is stored as it is.
const STORED: u32 = 1 << 31;

/// LZ4 makes at most 255 bytes of one: a block that cannot be decoded was no longer than that.
const LARGEST_RATIO: usize = 255;

/// Blocks that lead further lie in no frame that stores them: its own blocks, of 4 MiB at most, have headers, which
/// move what is behind them. One of 500 places, or fewer, looks like the header of a block.
const FAR: u64 = 16 << 20;

/// Decodes frame after frame, a block at a time.
pub(super) struct FrameDecoder {
    input: Input,
    limits: Limits,
    stage: Stage,
    /// The decoded block is `block[..filled]`, of which `served` bytes were returned.
    block: Vec<u8>,
    filled: usize,
    served: usize,
    /// The last 64 KiB decoded of a frame with linked blocks.
    history: Vec<u8>,
    /// Bytes decoded up to the end of `block`.
    decoded: u64,
    /// What it has cost to find out what lies behind damage.
    effort: Effort,
    /// None after a resume: everything was verified in the first pass.
    pass: Option<Pass>,
}

/// What only a first pass gathers.
struct Pass {
    spacing: u64,
    cancel: Cancel,
    last_point: Option<u64>,
    findings: Findings,
}

enum Stage {
    /// A frame may start here; `first` if one must.
    Between {
        first: bool,
    },
    Frame(Frame),
    Ended,
}

/// What was read of a frame.
enum FramePart {
    /// A block, or what stands for it.
    Block,
    /// The end.
    End,
    /// Nothing that can be read: `what` is wrong. The next frame begins at byte `next`.
    Lost { next: u64, what: String },
}

/// The frame whose blocks are being decoded.
struct Frame {
    /// None for a legacy frame.
    descriptor: Option<Descriptor>,
    /// Its first byte in the compressed stream.
    compressed: u64,
    /// Its first byte in the decoded stream.
    decoded: u64,
    /// Of the decoded bytes; none where nothing can be compared.
    hash: Option<Xxh32>,
    /// A block's checksum did not match, or it could not be decoded.
    wrong_block: bool,
    /// Since then nothing can be trusted: from this decoded byte, found at that compressed one, and why.
    untrusted: Option<(u64, u64, &'static str)>,
}

impl Frame {
    /// A frame that is decoded from its start.
    fn new(descriptor: Option<Descriptor>, compressed: u64, decoded: u64, verify: bool) -> Self {
        let hash = (verify && descriptor.is_some_and(|it| it.content_checksum())).then(|| Xxh32::new(0));
        Self { descriptor, compressed, decoded, hash, wrong_block: false, untrusted: None }
    }

    /// The frame does not go on at byte `at`: what was decoded of it will not be compared with the checksum at its end.
    fn leave_unverified(&mut self, at: u64) {
        if self.hash.is_some() && !self.block_checksums() {
            let what = "the frame cannot be decoded to the checksum at its end";
            self.untrusted.get_or_insert((self.decoded, at, what));
        }
    }

    fn linked(&self) -> bool {
        self.descriptor.is_some_and(|descriptor| !descriptor.independent_blocks())
    }

    fn block_checksums(&self) -> bool {
        self.descriptor.is_some_and(|descriptor| descriptor.block_checksums())
    }

    fn largest_block(&self) -> usize {
        self.descriptor.map_or(LEGACY_BLOCK, |descriptor| descriptor.largest_block())
    }
}

impl FrameDecoder {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let spacing = options.seek_point_spacing;
        let pass = Pass { spacing, cancel: options.cancel.clone(), last_point: None, findings: Findings::default() };
        Self::new(source, 0, options.limits, Some(pass))
    }

    pub(super) fn resume(source: &SharedSource, point: &SeekPoint, limits: Limits) -> io::Result<Self> {
        let wrong = |what: &str| faults::invalid(point.compressed_bit / 8, what);
        if !point.compressed_bit.is_multiple_of(8) {
            return Err(wrong("a seek point that is not at a byte"));
        }
        let mut decoder = Self::new(SharedSource::clone(source), point.compressed_bit / 8, limits, None);
        decoder.decoded = point.decoded;
        if point.state.is_empty() {
            return Ok(decoder);
        }
        let (frame, history) = restore(&point.state).map_err(|what| wrong(&format!("a seek point {what}")))?;
        decoder.history = history;
        let frame = Frame::new(frame, decoder.input.position(), point.decoded, false);
        decoder.prepare(&frame)?;
        decoder.stage = Stage::Frame(frame);
        Ok(decoder)
    }

    /// From the start of a frame on, with all that the frames can verify.
    pub(super) fn verified(source: &SharedSource, point: &SeekPoint, options: &Options) -> io::Result<Self> {
        let mut decoder = Self::resume(source, point, options.limits)?;
        let (spacing, last_point) = (options.seek_point_spacing, Some(point.decoded));
        let cancel = options.cancel.clone();
        decoder.pass = Some(Pass { spacing, cancel, last_point, findings: Findings::default() });
        Ok(decoder)
    }

    fn new(source: SharedSource, position: u64, limits: Limits, pass: Option<Pass>) -> Self {
        Self {
            input: Input::new(source, position),
            limits,
            stage: Stage::Between { first: true },
            block: Vec::new(),
            filled: 0,
            served: 0,
            history: Vec::new(),
            decoded: 0,
            effort: Effort::default(),
            pass,
        }
    }

    fn cut(&self, what: &str) -> io::Error {
        faults::cut(self.input.source().len(), what)
    }

    /// Makes room for the blocks of `frame`.
    fn prepare(&mut self, frame: &Frame) -> io::Result<()> {
        let largest = frame.largest_block();
        if largest as u64 > self.limits.decoder_window {
            let most = self.limits.decoder_window;
            return Err(faults::invalid(frame.compressed, format!("blocks of {largest} bytes, the limit is {most}")));
        }
        if self.block.len() < largest {
            self.block = vec![0; largest];
        }
        Ok(())
    }

    /// Goes on to the next block that has bytes, or to the end of the stream.
    fn advance(&mut self) -> io::Result<()> {
        while self.served == self.filled {
            (self.served, self.filled) = (0, 0);
            // There may be any number of frames that hold nothing.
            if let Some(pass) = &self.pass {
                pass.cancel.check()?;
            }
            match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return Ok(()),
                Stage::Between { first } => self.stage = self.start_frame(first)?,
                Stage::Frame(mut frame) => {
                    let more = if frame.descriptor.is_some() {
                        self.read_block(&mut frame)
                    } else {
                        self.read_legacy_block(&mut frame)
                    };
                    self.stage = match more {
                        Ok(FramePart::Block) => Stage::Frame(frame),
                        Ok(FramePart::End) => {
                            self.report_untrusted(&frame);
                            Stage::Between { first: false }
                        }
                        Ok(FramePart::Lost { next, what }) => {
                            frame.leave_unverified(self.input.position());
                            self.report_untrusted(&frame);
                            self.leave_gap(next, what)?
                        }
                        Err(error) => self.leave_frame(frame, error)?,
                    };
                }
            }
        }
        Ok(())
    }

    fn start_frame(&mut self, first: bool) -> io::Result<Stage> {
        let at = self.input.position();
        if self.input.remaining() == 0 && !first {
            return Ok(Stage::Ended);
        }
        let head = self.input.peek(LONGEST_HEADER)?;
        let start = match Start::parse(head) {
            // Of a stream's first frame nothing but its magic says that it is one.
            Ok(Start::Other) if at > 0 => match Start::of_damaged_magic(head) {
                Some(start) if self.leads_to_another(at)? => {
                    self.report(self.decoded, at..at, true, "the magic number of an LZ4 frame is damaged".to_owned());
                    Ok(start)
                }
                _ => Ok(Start::Other),
            },
            start => start,
        };
        let start = match start {
            Ok(start) => start,
            Err(what) => {
                let error = faults::invalid(at, format!("the header of a frame: {what}"));
                let next = if first && at == 0 { None } else { self.next_frame(at.saturating_add(1), LEGACY_BLOCK)? };
                let Some(next) = next else { return Err(error) };
                return self.leave_gap(next, error.to_string());
            }
        };
        let (descriptor, length) = match start {
            Start::Frame { descriptor, length } => (Some(descriptor), length),
            Start::Legacy => (None, 4),
            Start::Skippable { length } if length <= self.input.remaining() => {
                self.input.skip(length);
                return Ok(Stage::Between { first: false });
            }
            Start::Skippable { .. } => {
                // Its length may be damaged.
                let error = self.cut("a skippable frame");
                let next = if at > 0 { self.next_frame(at.saturating_add(1), LEGACY_BLOCK)? } else { None };
                let Some(next) = next else { return Err(error) };
                return self.leave_gap(next, error.to_string());
            }
            Start::NeedsDictionary => {
                let what = "this frame was made with a dictionary (lz4 -D), which cannot be given here";
                return Err(faults::unsupported(at, what));
            }
            Start::Cut => return Err(self.cut("the header of a frame")),
            Start::Other if first => return Err(faults::invalid(at, "no frame of LZ4 starts there")),
            Start::Other => {
                let cancel = self.cancel();
                if starts::nonzero(self.input.shared_source(), at, &cancel, &mut self.effort)?.is_none() {
                    let what = format!("{} zeros behind the last frame are ignored", self.input.remaining());
                    self.report(self.decoded, at..at, true, what);
                    return Ok(Stage::Ended);
                }
                if let Some(next) = self.next_frame(at, LEGACY_BLOCK)? {
                    return self.leave_gap(next, "bytes between two LZ4 frames are no frame".to_owned());
                }
                // A frame whose start is lost looks like this.
                return Err(faults::invalid(at, "bytes behind the last frame are no frame"));
            }
        };
        let frame = Frame::new(descriptor, at, self.decoded, self.pass.is_some());
        self.prepare(&frame)?;
        // Nothing is kept for one, so they may be closer.
        self.add_point(4, Vec::new);
        self.input.consume(length);
        self.history.clear();
        Ok(Stage::Frame(frame))
    }

    /// Where the first frame begins from byte `from` on, behind what is stored in blocks of at most so many bytes. Of
    /// an unknown frame these are as long as those of the old format.
    fn next_frame(&mut self, from: u64, largest_block: usize) -> io::Result<Option<u64>> {
        let (source, cancel) = (self.input.shared_source(), self.cancel());
        let magics = [MAGIC.to_le_bytes(), LEGACY_MAGIC.to_le_bytes()];
        starts::next(source, from, &magics, &cancel, &mut self.effort, |at, effort| {
            let mut walk = Walk::new(source, at, &cancel, effort);
            let proof = Proof { far: FAR, stored: largest_block as u64, is_expected: false, is_padded: false };
            let is_frame = matches!(Start::parse(walk.peek(LONGEST_HEADER)?), Ok(Start::Frame { .. } | Start::Legacy));
            Ok(is_frame && starts::leads_on(&mut walk, proof, parts(Place::Start))?)
        })
    }

    /// True if the frame at byte `at`, where one is expected, leads to another one or the end.
    fn leads_to_another(&mut self, at: u64) -> io::Result<bool> {
        let cancel = self.cancel();
        let mut walk = Walk::new(self.input.shared_source(), at, &cancel, &mut self.effort);
        let proof = Proof { far: FAR, stored: LEGACY_BLOCK as u64, is_expected: true, is_padded: false };
        starts::leads_on(&mut walk, proof, parts(Place::Start))
    }

    /// True if the block of `frame` that ends at byte `end` is as long as it says: others follow, of which three in a
    /// row are hardly chance, or they lead to another frame or the end.
    fn is_followed(&mut self, frame: &Frame, end: u64) -> io::Result<bool> {
        let cancel = self.cancel();
        let mut walk = Walk::new(self.input.shared_source(), end, &cancel, &mut self.effort);
        let proof = Proof { far: FAR, stored: LEGACY_BLOCK as u64, is_expected: true, is_padded: false };
        let (mut pass, mut passed) = (parts(Place::Blocks(frame.descriptor)), 0);
        starts::leads_on(&mut walk, proof, |walk| {
            let behind = pass(walk)?;
            passed += 1;
            // Three of them are a part that proves itself.
            Ok(if behind == Behind::More && passed >= 3 { Behind::Part } else { behind })
        })
    }

    fn cancel(&self) -> Cancel {
        self.pass.as_ref().map(|pass| pass.cancel.clone()).unwrap_or_default()
    }

    /// The frame cannot be read any further: goes on at the next one, if there is one. Where it seems to be cut, the
    /// length of its block may be damaged.
    fn leave_frame(&mut self, mut frame: Frame, error: io::Error) -> io::Result<Stage> {
        let at = self.input.position();
        let is_cut = error.kind() == io::ErrorKind::UnexpectedEof && error.raw_os_error().is_none();
        let is_damaged = error.kind() == io::ErrorKind::InvalidData;
        let largest = frame.largest_block();
        let next = if is_damaged || is_cut { self.next_frame(at.saturating_add(1), largest)? } else { None };
        if is_damaged || next.is_some() {
            frame.leave_unverified(at);
        }
        self.report_untrusted(&frame);
        let Some(next) = next else { return Err(error) };
        self.leave_gap(next, error.to_string())
    }

    /// A gap stands for what is between here and the frame that begins at byte `next`: nobody knows how long that is.
    fn leave_gap(&mut self, next: u64, what: String) -> io::Result<Stage> {
        let at = self.input.position();
        self.fill(GAP, at, false, what)?;
        self.input.seek(next);
        Ok(Stage::Between { first: false })
    }

    /// `length` bytes stand for what is lost, and what was found at byte `at`; `exact` if it was as many.
    fn fill(&mut self, length: usize, at: u64, exact: bool, what: String) -> io::Result<()> {
        self.block.resize(self.block.len().max(length), 0);
        self.block[..length].fill(FILLER);
        let start = self.decoded;
        self.filled = length;
        self.decoded = self.advanced(at)?;
        if let Some(pass) = &mut self.pass {
            pass.findings.report(Damage {
                decoded: start..self.decoded,
                lost_from: start,
                compressed: at,
                compressed_from: at,
                what,
            });
            if !exact {
                pass.findings.shift(self.decoded);
            }
        }
        Ok(())
    }

    /// The block at byte `at`, which takes `whole` bytes, cannot be decoded. All blocks of a frame but the last become
    /// as many bytes as a block may. Where its length leads to nothing, that may be what is damaged, and it may lead
    /// over whole frames.
    fn leave_block(&mut self, frame: &mut Frame, at: u64, whole: usize, what: String) -> io::Result<FramePart> {
        if !self.is_followed(frame, at.saturating_add(whole as u64))?
            && let Some(next) = self.next_frame(at.saturating_add(1), frame.largest_block())?
        {
            return Ok(FramePart::Lost { next, what });
        }
        let largest = frame.largest_block();
        let behind = self.input.peek(whole + 4)?.get(whole..).unwrap_or_default();
        // At the end of a legacy frame there is the end of the file, or the magic of the next one.
        let is_last = match frame.descriptor {
            Some(_) => behind.iter().all(|&byte| byte == 0),
            None => behind.first_chunk().is_none_or(|&size| !is_legacy_block(u32::from_le_bytes(size))),
        };
        let is_possible = largest <= whole.saturating_mul(LARGEST_RATIO);
        let length = if is_possible && !is_last { largest } else { GAP };
        // Without checksums of blocks, that of the frame is the only one, and will not be compared.
        frame.leave_unverified(at);
        if frame.linked() {
            frame.untrusted.get_or_insert((
                self.decoded,
                at,
                "a block cannot be decoded, and later blocks depend on it",
            ));
        }
        (frame.hash, frame.wrong_block) = (None, true);
        self.report_untrusted(frame);
        self.fill(length, at, is_possible && !is_last, what)?;
        if let Some((from, ..)) = &mut frame.untrusted {
            *from = self.decoded;
        }
        if frame.linked() {
            remember(&mut self.history, &self.block[..length]);
        }
        self.input.consume(whole);
        Ok(FramePart::Block)
    }

    /// Reads the next block, or the end of the frame.
    fn read_block(&mut self, frame: &mut Frame) -> io::Result<FramePart> {
        let at = self.input.position();
        let Some(&size) = self.input.peek(4)?.first_chunk() else { return Err(self.cut("a frame")) };
        let size = u32::from_le_bytes(size);
        if size == 0 {
            return self.end_frame(frame).map(|()| FramePart::End);
        }
        let (stored, length) = (size & STORED != 0, (size & !STORED) as usize);
        // A block that would grow is stored instead.
        if length > frame.largest_block() {
            let largest = frame.largest_block();
            return Err(faults::invalid(at, format!("a block of {length} bytes, where {largest} are the most")));
        }
        let whole = 4 + length + if frame.block_checksums() { 4 } else { 0 };
        if (whole as u64) > self.input.remaining() {
            return Err(self.cut("a block"));
        }
        if let Some(descriptor) = frame.descriptor {
            let history = &self.history;
            if self.decoded > frame.decoded {
                let state = || state(Some(descriptor), history);
                add_point(self.pass.as_mut(), 1, &self.input, self.decoded, state);
            }
        }
        let verify = self.pass.is_some() && frame.block_checksums();
        let bytes = self.input.peek(whole)?;
        let (data, checksum) = bytes[4..].split_at(length);
        let right = !verify || checksum == xxh32(data, 0).to_le_bytes();
        let output = &mut self.block[..frame.largest_block()];
        let decoded = if stored {
            output[..length].copy_from_slice(data);
            Ok(length)
        } else if self.history.is_empty() {
            lz4_flex::block::decompress_into(data, output)
        } else {
            lz4_flex::block::decompress_into_with_dict(data, output, &self.history)
        };
        if !right {
            frame.wrong_block = true;
            // Later blocks that are linked to this one are made of its bytes.
            if frame.linked() {
                let what = "the checksum of a block does not match, and later blocks depend on it";
                frame.untrusted.get_or_insert((self.decoded, at, what));
            }
        }
        let filled = match decoded {
            Ok(filled) => filled,
            Err(error) => {
                // The offset of a match leads to before the frame: into what is not there.
                let is_first = self.decoded == frame.decoded;
                let lacks = is_first && matches!(error, lz4_flex::block::DecompressError::OffsetOutOfBounds);
                let advice = if lacks { ": a frame that was made with a dictionary looks so" } else { "" };
                let what = format!("a block that cannot be decoded: {error}{advice}");
                return self.leave_block(frame, at, whole, what);
            }
        };
        self.input.consume(whole);
        self.filled = filled;
        self.decoded = self.advanced(at)?;
        if !right && !frame.linked() {
            // A full block has the length that all have but the last.
            let is_full = filled == frame.largest_block();
            self.report(
                self.decoded - filled as u64,
                at..at,
                is_full,
                "the checksum of a block does not match".to_owned(),
            );
        }
        let decoded = &self.block[..filled];
        if let Some(hash) = &mut frame.hash {
            hash.update(decoded);
        }
        if frame.linked() {
            remember(&mut self.history, decoded);
        }
        Ok(FramePart::Block)
    }

    fn end_frame(&mut self, frame: &mut Frame) -> io::Result<()> {
        let checksum = frame.descriptor.is_some_and(|descriptor| descriptor.content_checksum());
        let whole: usize = if checksum { 8 } else { 4 };
        if (whole as u64) > self.input.remaining() {
            return Err(self.cut("the checksum at the end of a frame"));
        }
        let at = self.input.position();
        let right = match (&frame.hash, self.input.peek(whole)?.get(4..)) {
            (Some(hash), Some(found)) => hash.digest().to_le_bytes() == found,
            _ => true,
        };
        self.input.consume(whole);
        let produced = self.decoded - frame.decoded;
        let size = frame.descriptor.and_then(|descriptor| descriptor.content_size);
        // Where blocks have checksums, they say more exactly what is wrong.
        if !right && !frame.wrong_block {
            let what = "the checksum of this LZ4 frame does not match its data".to_owned();
            self.report(frame.decoded, frame.compressed..at, size == Some(produced), what);
        } else if let Some(size) = size
            && size != produced
            && self.pass.is_some()
            && !frame.wrong_block
        {
            self.report(
                frame.decoded,
                frame.compressed..frame.compressed,
                false,
                format!("this LZ4 frame has {produced} bytes, its header says {size}"),
            );
        }
        if right && frame.hash.is_some() {
            // The checksum of a block is what is wrong, not the block.
            frame.untrusted = None;
        }
        Ok(())
    }

    /// Reads the next block of a legacy frame, which ends where no block follows.
    fn read_legacy_block(&mut self, frame: &mut Frame) -> io::Result<FramePart> {
        let at = self.input.position();
        let head = self.input.peek(4)?;
        if head.is_empty() {
            return Ok(FramePart::End);
        }
        let Some(&size) = head.first_chunk() else { return Err(self.cut("a legacy frame")) };
        let length = u32::from_le_bytes(size) as usize;
        // "Legacy frame": what is no size of a block is the magic number of the next frame.
        if !is_legacy_block(u32::from_le_bytes(size)) {
            return Ok(FramePart::End);
        }
        let whole = 4 + length;
        if (whole as u64) > self.input.remaining() {
            return Err(self.cut("a block of a legacy frame"));
        }
        if self.decoded > frame.decoded {
            self.add_point(1, || state(None, &[]));
        }
        let data = &self.input.peek(whole)?[4..];
        let decoded = lz4_flex::block::decompress_into(data, &mut self.block[..LEGACY_BLOCK]);
        self.filled = match decoded {
            Ok(filled) => filled,
            Err(error) => {
                let what = format!("a block of a legacy frame cannot be decoded: {error}");
                return self.leave_block(frame, at, whole, what);
            }
        };
        self.input.consume(whole);
        self.decoded = self.advanced(at)?;
        Ok(FramePart::Block)
    }

    /// Bytes decoded with the new block.
    fn advanced(&self, at: u64) -> io::Result<u64> {
        self.decoded
            .checked_add(self.filled as u64)
            .ok_or_else(|| faults::invalid(at, "the stream is longer than 2^64 bytes"))
    }

    fn report_untrusted(&mut self, frame: &Frame) {
        if let Some((from, at, what)) = frame.untrusted.filter(|&(from, ..)| from < self.decoded) {
            let size = frame.descriptor.and_then(|descriptor| descriptor.content_size);
            self.report(from, at..at, size == Some(self.decoded - frame.decoded), what.to_owned());
        }
    }

    /// Reports damage from the decoded byte `from` up to the last one decoded; `exact` if there were as many bytes as
    /// there should be. What is wrong lies in the bytes `compressed`.
    fn report(&mut self, from: u64, compressed: Range<u64>, exact: bool, what: String) {
        if let Some(pass) = &mut self.pass {
            pass.findings.report(Damage {
                decoded: from..self.decoded,
                lost_from: self.decoded,
                compressed: compressed.end,
                compressed_from: compressed.start,
                what,
            });
            if !exact {
                pass.findings.shift(self.decoded);
            }
        }
    }

    fn add_point(&mut self, closer: u64, state: impl FnOnce() -> Vec<u8>) {
        add_point(self.pass.as_mut(), closer, &self.input, self.decoded, state);
    }
}

/// True for what can be the size of a legacy block ("Legacy frame"); else it is the magic number of the next frame.
fn is_legacy_block(size: u32) -> bool {
    size > 0 && size as usize <= lz4_flex::block::get_maximum_output_size(LEGACY_BLOCK)
}

/// Where a walk is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Where a frame begins.
    Start,
    /// Between blocks of a frame; in the old format there is no descriptor.
    Blocks(Option<Descriptor>),
}

/// Passes the parts of frames: from the header of one on, one byte of whose magic may be damaged; or from a block on.
fn parts(place: Place) -> impl FnMut(&mut Walk) -> io::Result<Behind> {
    let mut place = place;
    move |walk| {
        let end = walk.source().len();
        if let Place::Blocks(descriptor) = place {
            let Some(&size) = walk.peek(4)?.first_chunk() else { return Ok(Behind::Lost) };
            let size = u32::from_le_bytes(size);
            let (length, behind) = match descriptor {
                Some(descriptor) if size == 0 => {
                    place = Place::Start;
                    (if descriptor.content_checksum() { 8 } else { 4 }, Some(Behind::Start))
                }
                Some(descriptor) => {
                    let length = (size & !STORED) as usize;
                    let checksum = if descriptor.block_checksums() { 4 } else { 0 };
                    let is_possible = length <= descriptor.largest_block();
                    (4 + length + checksum, Some(if is_possible { Behind::More } else { Behind::Lost }))
                }
                // It ends where another frame begins, or the file ends.
                None if is_legacy_block(size) => {
                    if !walk.skip(4 + u64::from(size)) {
                        return Ok(Behind::Lost);
                    }
                    let is_last = walk.position() == end || walk.peek(4)? == [0; 4];
                    (0, Some(if is_last { Behind::Start } else { Behind::More }))
                }
                None => (0, None),
            };
            if let Some(behind) = behind {
                return Ok(if behind != Behind::Lost && walk.skip(length as u64) { behind } else { Behind::Lost });
            }
            place = Place::Start;
        }
        let head = walk.peek(LONGEST_HEADER)?;
        let start = match Start::parse(head) {
            Ok(Start::Other) => Start::of_damaged_magic(head),
            start => start.ok(),
        };
        let (length, behind) = match start {
            Some(Start::Frame { descriptor, length }) => {
                place = Place::Blocks(Some(descriptor));
                (length as u64, Behind::More)
            }
            Some(Start::Legacy) => {
                place = Place::Blocks(None);
                (4, Behind::More)
            }
            Some(Start::Skippable { length }) => (length, Behind::Start),
            _ => return Ok(Behind::Lost),
        };
        Ok(if walk.skip(length) { behind } else { Behind::Lost })
    }
}

/// Adds a seek point here, if the last one is far enough away: the spacing divided by `closer`.
fn add_point(pass: Option<&mut Pass>, closer: u64, input: &Input, decoded: u64, state: impl FnOnce() -> Vec<u8>) {
    let Some(pass) = pass else { return };
    if pass.last_point.is_none_or(|last| decoded - last >= (pass.spacing / closer).max(1)) {
        pass.last_point = Some(decoded);
        pass.findings.points.push(SeekPoint {
            compressed_bit: input.position().saturating_mul(8),
            decoded,
            state: state(),
        });
    }
}

/// The state of a seek point inside a frame: version, FLG, BD (both 0 for a legacy frame), then the history as an LZ4
/// block behind its length (4 bytes, little-endian) where blocks are linked.
fn state(descriptor: Option<Descriptor>, history: &[u8]) -> Vec<u8> {
    let (flags, block) = descriptor.map_or((0, 0), |descriptor| (descriptor.flags, descriptor.block));
    let mut state = vec![STATE_VERSION, flags, block];
    if descriptor.is_some_and(|descriptor| !descriptor.independent_blocks()) {
        state.extend_from_slice(&(history.len() as u32).to_le_bytes());
        state.extend_from_slice(&lz4_flex::block::compress(history));
    }
    state
}

/// The frame and the history that [`state`] wrote down. The error says what is wrong with it.
fn restore(state: &[u8]) -> Result<(Option<Descriptor>, Vec<u8>), String> {
    let &[version, flags, block, ref rest @ ..] = state else { return Err("whose state is too short".to_owned()) };
    if version != STATE_VERSION {
        return Err(format!("whose state has version {version}, only {STATE_VERSION} is known"));
    }
    if (flags, block) == (0, 0) {
        return Ok((None, Vec::new()));
    }
    let descriptor = Descriptor { flags, block, content_size: None };
    if flags >> 6 != 1 || block >> 4 < 4 || block >> 4 > 7 {
        return Err(format!("whose state has the flags {flags:#04x} {block:#04x}"));
    }
    if descriptor.independent_blocks() {
        return Ok((Some(descriptor), Vec::new()));
    }
    let (length, compressed) = rest.split_first_chunk::<4>().ok_or("without its history")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > HISTORY {
        return Err(format!("with a history of {length} bytes, {HISTORY} are the most"));
    }
    let mut history = vec![0; length];
    match lz4_flex::block::decompress_into(compressed, &mut history) {
        Ok(found) if found == length => Ok((Some(descriptor), history)),
        Ok(found) => Err(format!("with a history of {found} bytes that says it has {length}")),
        Err(error) => Err(format!("whose history cannot be decoded: {error}")),
    }
}

/// Adds decoded bytes to the history and drops what is further back than a match can reach.
fn remember(history: &mut Vec<u8>, decoded: &[u8]) {
    let kept = HISTORY.saturating_sub(decoded.len()).min(history.len());
    history.drain(..history.len() - kept);
    history.extend_from_slice(&decoded[decoded.len().saturating_sub(HISTORY)..]);
}

impl Decoder for FrameDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.advance()?;
        Ok(stepwise::hand_out(&self.block[..self.filled], &mut self.served, buffer))
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.block.capacity() + self.history.capacity() + self.input.memory()
    }
}

impl FirstPass for FrameDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.pass.as_mut().map(|pass| &mut pass.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
