//! Decodes chunk after chunk, from the start of a file or from a seek point.

use std::io;
use std::ops::Range;

use md5::{Digest, Md5};
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::header::{ChunkHeader, DIGEST, Header, Widths, number};
use super::history::{History, STEP};
use super::stream::Stream;
use crate::blocks::Stop;
use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, PIECE, Scratch, SeekPoint};

/// The state of a seek point: its version.
const VERSION: u8 = 1;

/// Bytes that say what to do next, at most. All but the last one make a byte or more.
const MOST_OF_OPERATION: u64 = 1 + 8 + 8;

/// Bytes that stand for those of a chunk that cannot be decoded, for each of its file at most: nothing says that its
/// length is right. lrzip makes a millionth of zeros.
const LARGEST_RATIO: u64 = 1 << 22;

/// The decoder.
pub(super) struct ChunkDecoder {
    /// Stands at the next header of the file or of a chunk.
    input: Input,
    limits: Limits,
    /// Known from the first step on.
    header: Option<Header>,
    state: ChunkState,
    history: History,
    /// Offset in the decoded stream of the next byte.
    decoded: u64,
    failure: Option<io::Error>,
    pass: Option<Pass>,
}

enum ChunkState {
    /// Before a chunk.
    Between,
    Chunk(Box<Chunk>),
    /// Bytes that stand for the rest of a chunk that cannot be decoded.
    Gap(u64),
    /// Behind the last chunk.
    Behind,
    Ended,
}

/// A chunk that is being decoded.
struct Chunk {
    header: ChunkHeader,
    /// Where it starts in the compressed and in the decoded stream.
    at: u64,
    start: u64,
    control: Stream,
    literals: Stream,
    /// What is to be done, and for how many bytes.
    operation: Option<(Operation, u64)>,
}

#[derive(Clone, Copy)]
enum Operation {
    Literals,
    /// From this many bytes back.
    Match(u64),
    /// There is nothing more to do.
    End,
}

/// What only a first pass needs.
struct Pass {
    cancel: Cancel,
    findings: Findings,
    last_point: u64,
    /// Of all decoded bytes, and of those of the chunk.
    digest: Md5,
    crc: crc32fast::Hasher,
    /// Chunks whose checksum says that they are damaged, which the digest of the file may know better.
    suspects: Runs,
    /// Every chunk so far has a checksum that was right.
    is_checked: bool,
    /// A chunk could not be decoded.
    has_gap: bool,
    /// The next chunk gets a seek point in any case.
    is_behind_gap: bool,
    /// Chunks that have no checksum.
    unchecked: Runs,
}

/// What is kept of many chunks until the end of the file: those that follow each other as one. A chunk takes some 40
/// bytes of the file, or less than one if that is compressed itself, and nothing can be told before the end.
#[derive(Default)]
struct Runs(Vec<Run>);

/// Chunks that follow each other: their decoded bytes, and where the first and the last of them begin.
struct Run {
    decoded: Range<u64>,
    first: u64,
    last: u64,
}

impl Runs {
    /// More become one, with what is right between them.
    const MOST: usize = 4096;

    /// Adds a chunk that begins at byte `at` of the compressed stream and is behind all others.
    fn add(&mut self, decoded: Range<u64>, at: u64) {
        let is_full = self.0.len() == Self::MOST;
        match self.0.last_mut() {
            Some(last) if last.decoded.end == decoded.start || is_full => {
                (last.decoded.end, last.last) = (decoded.end, at);
            }
            _ => self.0.push(Run { decoded, first: at, last: at }),
        }
    }

    /// Moves all of them to `findings`, as chunks whose CRC-32 is wrong.
    fn report(&mut self, findings: &mut Findings) {
        findings.damage.extend(self.0.drain(..).map(|Run { decoded, first, last }| {
            let what = if first == last {
                "the CRC-32 of this chunk does not match its data"
            } else {
                "the CRC-32 of chunks in here does not match their data"
            };
            let (lost_from, what) = (decoded.end, what.to_owned());
            Damage { decoded, lost_from, compressed: last, compressed_from: first, what }
        }));
    }
}

impl ChunkDecoder {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let pass = Pass {
            cancel: options.cancel.clone(),
            findings: Findings::default(),
            last_point: 0,
            digest: Md5::new(),
            crc: raw_crc(),
            suspects: Runs::default(),
            is_checked: true,
            has_gap: false,
            is_behind_gap: false,
            unchecked: Runs::default(),
        };
        let mut decoder = Self { pass: Some(pass), ..Self::new(source, options.limits, options.scratch.clone()) };
        decoder.add_point(0);
        decoder
    }

    pub(super) fn resume(
        source: SharedSource,
        point: &SeekPoint,
        limits: Limits,
        scratch: &Scratch,
    ) -> io::Result<Self> {
        let mut decoder = Self::new(source, limits, scratch.clone());
        let at = point.compressed_bit / 8;
        let is_start = at == 0 && point.decoded == 0;
        // No stream decodes to 2^63 bytes, so no sum of offsets overflows.
        if point.state != [VERSION]
            || !point.compressed_bit.is_multiple_of(8)
            || at > decoder.input.source().len()
            || point.decoded > u64::MAX / 2
        {
            return Err(decoder.error(at, Stop::Invalid("a seek point that no such file can have".to_owned())));
        }
        if !is_start {
            decoder.read_header().map_err(|stop| decoder.error(0, stop))?;
            decoder.input.seek(at);
            decoder.decoded = point.decoded;
        }
        Ok(decoder)
    }

    fn new(source: SharedSource, limits: Limits, scratch: Scratch) -> Self {
        Self {
            input: Input::new(source, 0),
            limits,
            header: None,
            state: ChunkState::Between,
            history: History::new(&limits, scratch),
            decoded: 0,
            failure: None,
            pass: None,
        }
    }

    /// What is said of a stop at byte `at`.
    fn error(&self, at: u64, stop: Stop) -> io::Error {
        match stop {
            Stop::Io(error) if error.kind() == io::ErrorKind::Unsupported => faults::unsupported(at, error),
            Stop::Io(error) => error,
            Stop::Cut(place) => faults::cut(self.input.source().len(), place),
            Stop::Invalid(what) => faults::invalid(at, what),
        }
    }

    /// The header of the file, from its start.
    fn read_header(&mut self) -> Result<Header, Stop> {
        if let Some(header) = self.header {
            return Ok(header);
        }
        let header = Header::read(&mut self.input)?;
        self.header = Some(header);
        Ok(header)
    }

    /// What ends a first pass.
    fn cancel(&self) -> Cancel {
        self.pass.as_ref().map(|pass| pass.cancel.clone()).unwrap_or_default()
    }

    fn add_point(&mut self, at: u64) {
        let Some(pass) = &mut self.pass else { return };
        pass.last_point = self.decoded;
        let compressed_bit = at.saturating_mul(8);
        pass.findings.points.push(SeekPoint { compressed_bit, decoded: self.decoded, state: vec![VERSION] });
    }

    /// Begins the next chunk.
    fn begin_chunk(&mut self) -> Result<(), Stop> {
        if let Some(pass) = &mut self.pass {
            pass.cancel.check()?;
            pass.crc = raw_crc();
        }
        let header = self.read_header()?;
        let at = self.input.position();
        let is_due =
            |pass: &mut Pass| std::mem::take(&mut pass.is_behind_gap) || self.decoded - pass.last_point >= PIECE as u64;
        if self.pass.as_mut().is_some_and(is_due) {
            self.add_point(at);
        }
        let cancel = self.cancel();
        let chunk = Chunk::open(&mut self.input, header, self.decoded, self.limits, &cancel)?;
        self.history.clear()?;
        self.state = ChunkState::Chunk(Box::new(chunk));
        Ok(())
    }

    /// Decodes some bytes of the chunk into the history, from which all were handed out.
    fn produce(&mut self) -> Result<(), Stop> {
        let ChunkState::Chunk(chunk) = &mut self.state else { return Ok(()) };
        if let Some(pass) = &self.pass {
            pass.cancel.check()?;
        }
        self.history.make_room()?;
        let mut room = STEP;
        while room > 0 {
            let (operation, left) = match chunk.operation {
                Some(operation) => operation,
                None => chunk.next()?,
            };
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(room);
            let done = match operation {
                Operation::End if room == STEP => return self.end_chunk(),
                Operation::End => {
                    chunk.operation = Some((operation, 0));
                    return Ok(());
                }
                Operation::Literals => self.history.append(count, |buffer| chunk.literals.read(buffer))?,
                Operation::Match(distance) => self.history.repeat(distance, count)?,
            };
            if done == 0 && count > 0 {
                return Err(Stop::Invalid(match operation {
                    Operation::Match(distance) => format!("a match of {distance} bytes back, before its chunk"),
                    _ => "a chunk needs more bytes than follow".to_owned(),
                }));
            }
            // A match of no bytes counts as well, or a chunk of nothing else would not end before all of it is read.
            room -= done.max(1);
            let left = left - done as u64;
            chunk.operation = (left > 0).then_some((operation, left));
        }
        Ok(())
    }

    /// All of the chunk is decoded: verifies it, and goes behind it.
    fn end_chunk(&mut self) -> Result<(), Stop> {
        let ChunkState::Chunk(chunk) = &mut self.state else { return Ok(()) };
        let mut stored = [0; 4];
        let has_crc = match chunk.control.read(&mut stored)? {
            4 => true,
            // It is only read where there is no digest.
            0 if self.header.is_some_and(|header| header.has_digest) => false,
            _ => return Err(Stop::Invalid("a chunk without a checksum".to_owned())),
        };
        chunk.control.finish()?;
        chunk.literals.finish()?;
        if let Some(pass) = &mut self.pass {
            let is_right = has_crc && !std::mem::replace(&mut pass.crc, raw_crc()).finalize() == number(&stored) as u32;
            pass.is_checked &= is_right;
            if !has_crc {
                pass.unchecked.add(chunk.start..self.decoded, chunk.at);
            } else if !is_right {
                pass.suspects.add(chunk.start..self.decoded, chunk.at);
                // Told at once, whatever the digest will say at the end: whoever reads on settles now what goes on
                // behind the chunk.
                if chunk.header.length != Some(self.decoded - chunk.start) {
                    pass.findings.shift(self.decoded);
                }
            }
        }
        let end = chunk.control.end().max(chunk.literals.end());
        let says_last = chunk.header.is_last;
        self.input.seek(end);
        let is_last = self.is_last(says_last)?;
        self.state = if is_last { ChunkState::Behind } else { ChunkState::Between };
        Ok(())
    }

    /// True if no chunk follows the one that ends here, which `says_last` of itself.
    fn is_last(&mut self, says_last: Option<bool>) -> Result<bool, Stop> {
        let header = self.read_header()?;
        if header.length > 0 && self.decoded >= header.length {
            return Ok(true);
        }
        match says_last {
            None => Ok(header.length == 0),
            Some(false) => Ok(false),
            // lrzip says so of another one as well, where the thread that writes it is late and the last one has begun.
            Some(true) => {
                let mut input = Input::new(SharedSource::clone(self.input.shared_source()), self.input.position());
                match Chunk::open(&mut input, header, 0, self.limits, &self.cancel()) {
                    Ok(_) => Ok(false),
                    Err(Stop::Io(error)) => Err(Stop::Io(error)),
                    Err(_) => Ok(true),
                }
            }
        }
    }

    /// Behind the last chunk: compares the digest.
    fn end_file(&mut self) -> Result<(), Stop> {
        let at = self.input.position();
        let header = self.read_header()?;
        let digest = if header.has_digest {
            let &digest = self.input.peek(DIGEST)?.first_chunk::<DIGEST>().ok_or(Stop::Cut("the MD5 at its end"))?;
            self.input.consume(DIGEST);
            Some(digest)
        } else {
            None
        };
        self.state = ChunkState::Ended;
        let (decoded, rest) = (self.decoded, self.input.remaining());
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let damage = |decoded: Range<u64>, what: String| {
            let lost_from = decoded.end;
            Damage { decoded, lost_from, compressed: at, compressed_from: at, what }
        };
        let mut report = |decoded, what| pass.findings.report(damage(decoded, what));
        if header.length > 0 && header.length != decoded {
            let length = header.length;
            report(decoded..decoded, format!("the header says that there are {length} bytes, and there are {decoded}"));
        }
        if rest > 0 {
            report(decoded..decoded, format!("{rest} bytes behind the end are of another format and are ignored"));
        }
        let is_right = digest.map(|digest| digest[..] == pass.digest.finalize_reset()[..]);
        match is_right {
            // Of whole bytes a wrong checksum says nothing.
            Some(true) => pass.suspects.0.clear(),
            Some(false) if pass.suspects.0.is_empty() && !pass.has_gap => {
                // As for the checksum of a stream of bzip2: no byte that is there is wrong, if all of its checksums are
                // right.
                let (range, what) = if pass.is_checked {
                    (
                        decoded..decoded,
                        "the MD5 at the end does not match, but the CRC-32 of each chunk: one may be missing",
                    )
                } else {
                    (0..decoded, "the MD5 of this file does not match its data")
                };
                pass.findings.report(damage(range, what.to_owned()));
            }
            // Why is known already; but of what has no other checksum nothing is.
            Some(false) => {
                let what = "the MD5 of this file does not match, and there is no CRC-32 here";
                let unchecked = pass.unchecked.0.drain(..).map(|run| run.decoded).filter(|decoded| !decoded.is_empty());
                pass.findings.damage.extend(unchecked.map(|decoded| damage(decoded, what.to_owned())));
            }
            _ => {}
        }
        pass.suspects.report(&mut pass.findings);
        Ok(())
    }

    /// What was decoded of a chunk that cannot be decoded further is not served: nothing says that it is right. In a
    /// first pass, decoding goes on with the next chunk, where that can be found.
    fn leave_damaged(&mut self, stop: Stop) -> io::Result<()> {
        let at = match &self.state {
            ChunkState::Chunk(chunk) => chunk.at,
            _ => self.input.position(),
        };
        let what = match &stop {
            Stop::Invalid(what) => what.clone(),
            Stop::Cut(place) => format!("the compressed file is cut short inside {place}"),
            Stop::Io(error) => error.to_string(),
        };
        let error = self.error(at, stop);
        let Some(pass) = &mut self.pass else { return Err(error) };
        pass.suspects.report(&mut pass.findings);
        let is_damaged = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
        let ChunkState::Chunk(chunk) = &mut self.state else { return Err(error) };
        if !is_damaged {
            return Err(error);
        }
        let next = chunk.skip(self.header, self.decoded).filter(|_| error.kind() == io::ErrorKind::InvalidData);
        pass.cancel.check()?;
        let end = next.map_or(self.decoded, |(_, length)| chunk.start + length);
        if end > chunk.start {
            let decoded = chunk.start..end;
            pass.findings.report(Damage {
                decoded,
                lost_from: self.decoded,
                compressed: at,
                compressed_from: at,
                what,
            });
        }
        let Some((behind, _)) = next else { return Err(error) };
        (pass.has_gap, pass.is_behind_gap) = (true, end > chunk.start);
        self.input.seek(behind);
        self.state = ChunkState::Gap(end - self.decoded);
        Ok(())
    }

    /// Counts bytes that are handed out.
    fn deliver(&mut self, bytes: &[u8]) {
        self.decoded += bytes.len() as u64;
        if let Some(pass) = &mut self.pass {
            pass.crc.update(bytes);
            if self.header.is_some_and(|header| header.has_digest) {
                pass.digest.update(bytes);
            }
        }
    }
}

impl Chunk {
    /// Reads the headers of the chunk at the input's position, whose first decoded byte is `start`.
    fn open(input: &mut Input, file: Header, start: u64, limits: Limits, cancel: &Cancel) -> Result<Self, Stop> {
        let at = input.position();
        let header = ChunkHeader::read(input, file.version)?;
        let base = input.position();
        let mut stream = || Stream::open(input, base, header.widths.block, file.lzma, limits, cancel);
        let (control, literals) = (stream()?, stream()?);
        Ok(Self { header, at, start, control, literals, operation: None })
    }

    /// Reads what to do next.
    fn next(&mut self) -> Result<(Operation, u64), Stop> {
        let Widths { distance, length, .. } = self.header.widths;
        let mut bytes = [0; 1 + 8];
        self.read(&mut bytes[..=length])?;
        let (kind, length) = (bytes[0], number(&bytes[1..=length]));
        match (kind, length) {
            (0, 0) => Ok((Operation::End, 0)),
            (0, _) => Ok((Operation::Literals, length)),
            _ => {
                let mut bytes = [0; 8];
                self.read(&mut bytes[..distance])?;
                Ok((Operation::Match(number(&bytes[..distance])), length))
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Stop> {
        if self.control.read(buffer)? < buffer.len() {
            return Err(Stop::Invalid("a chunk that does not say where it ends".to_owned()));
        }
        Ok(())
    }

    /// Where the chunk ends in the compressed stream, and how many bytes it has, if that is known and another chunk
    /// follows. `decoded` bytes of the stream were handed out.
    fn skip(&mut self, header: Option<Header>, decoded: u64) -> Option<(u64, u64)> {
        let length = self.header.length?;
        let possible = decoded..header?.length;
        let end = self.start.checked_add(length).filter(|end| possible.contains(end))?;
        self.control.skip().ok()?;
        self.literals.skip().ok()?;
        let behind = self.control.end().max(self.literals.end());
        (end - decoded <= (behind - self.at).saturating_mul(LARGEST_RATIO)).then_some((behind, length))
    }
}

impl Stepwise for ChunkDecoder {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = match &mut self.state {
            ChunkState::Between => self.begin_chunk(),
            ChunkState::Chunk(_) if self.history.unserved() > 0 => {
                let written = self.history.serve(buffer);
                self.deliver(&buffer[..written]);
                return Ok(written);
            }
            ChunkState::Chunk(_) => self.produce(),
            ChunkState::Gap(0) => {
                self.state = ChunkState::Between;
                Ok(())
            }
            ChunkState::Gap(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(FILLER);
                *left -= count as u64;
                self.decoded += count as u64;
                return Ok(count);
            }
            ChunkState::Behind => self.end_file(),
            ChunkState::Ended => Ok(()),
        };
        result.or_else(|stop| self.leave_damaged(stop)).map(|()| 0)
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, ChunkState::Ended)
    }

    fn end(&mut self) {
        self.state = ChunkState::Ended;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl Decoder for ChunkDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let streams = match &self.state {
            ChunkState::Chunk(chunk) => {
                let of_control = bytes.saturating_mul(MOST_OF_OPERATION);
                chunk.control.memory_after(of_control).saturating_add(chunk.literals.memory_after(bytes))
            }
            _ => 0,
        };
        let runs = self.pass.as_ref().map_or(0, |pass| pass.suspects.0.capacity() + pass.unchecked.0.capacity());
        let history = if bytes == 0 { self.history.memory() } else { self.history.memory_after(bytes) };
        let own = size_of::<Self>() + self.input.memory() + runs * size_of::<Run>();
        own.saturating_add(history).saturating_add(streams)
    }
}

impl FirstPass for ChunkDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.pass.as_mut().map(|pass| &mut pass.findings)
    }

    fn compressed_position(&self) -> u64 {
        match &self.state {
            ChunkState::Chunk(chunk) => chunk.control.end().max(chunk.literals.end()),
            _ => self.input.position(),
        }
    }
}

/// The CRC-32 of lrzip begins with 0 and is not inverted at its end: here, with all bits set, and inverted by whoever
/// takes it.
fn raw_crc() -> crc32fast::Hasher {
    crc32fast::Hasher::new_with_initial(u32::MAX)
}
