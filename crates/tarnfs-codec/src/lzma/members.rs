//! Decodes files of LZMA data: one stream (`.lzma`), or members one after another (`.lz`).

use std::collections::VecDeque;
use std::io;

use log::debug;
use tarnfs_source::{Cancel, Limits, SharedSource, Source};

use super::ahead::{Ahead, Finder};
use super::decoder::{Outcome, Step};
use super::lzma1::Lzma1;
use super::model::Properties;
use super::survey::LzmaPoint;
use crate::faults;
use crate::input::Input;
use crate::starts::{self, Effort, GAP};
use crate::stepwise::{self, Stepwise};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, PIECE, SeekPoint};

/// First byte of the state of a seek point at a member's header, and all of it.
pub(super) const VERSION: u8 = 1;

/// First byte of the state of a seek point inside a member. Behind it is how many bytes the point lies behind the
/// member's start, in the compressed and in the decoded stream (8 bytes each, little-endian), and the state of the LZMA
/// decoder.
const INSIDE: u8 = 2;

/// LZMA makes at most about 7000 bytes of one; a dictionary need not be larger than what can come.
const LARGEST_RATIO: u64 = 1 << 13;

/// Smaller dictionaries are taken as one of this size.
const SMALLEST_DICTIONARY: u64 = 4096;

/// A file format around LZMA data.
pub(super) trait Container: Send + 'static {
    /// Its name, for messages: "lzip".
    const NAME: &'static str;
    /// Bytes of the header before the data.
    const HEADER: usize;
    /// Members may follow one another.
    const MANY: bool;
    /// Then: how each of them begins, four bytes that are different.
    const MAGIC: &'static [u8];

    /// What the header says. The error says what is wrong with it.
    fn header(bytes: &[u8]) -> Result<Header, &'static str>;

    /// Does `source` end as a file that was not cut? Where that cannot be told: no.
    fn ends_whole(source: &dyn Source) -> io::Result<bool>;

    /// Bytes of the data and of the member, as the trailer says.
    fn sizes(trailer: &[u8]) -> Option<(u64, u64)>;

    /// Compares the trailer with what was decoded; the error says what does not match.
    fn check(trailer: &[u8], crc: u32, decoded: u64, member: u64) -> Result<(), &'static str>;
}

/// What a header says of the data behind it.
pub(super) struct Header {
    pub(super) properties: Properties,
    pub(super) dictionary: u64,
    /// Decoded bytes, where that is known.
    pub(super) length: Option<u64>,
    /// Bytes of the trailer behind the data.
    pub(super) trailer: usize,
}

/// A member in which nothing was wrong.
pub(super) struct WholeMember {
    /// Its bounds in the compressed stream.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) data: Vec<u8>,
    /// Seek points inside.
    points: VecDeque<LzmaPoint>,
}

/// Decodes member after member.
pub(super) struct MemberDecoder<C: Container> {
    container: std::marker::PhantomData<C>,
    input: Input,
    limits: Limits,
    cancel: Cancel,
    first_pass: bool,
    /// Decoded bytes between two seek points of the first pass.
    spacing: u64,
    /// Decoded bytes of a member at most, as far as is known.
    most: u64,
    state: MemberState,
    /// Decodes members on other threads.
    ahead: Option<Ahead<C>>,
    /// Finds the ends of members that are damaged.
    finder: Option<Finder<C>>,
    /// What it has cost to look for them.
    effort: Effort,
    /// Where the member starts in the compressed and in the decoded stream.
    member_compressed: u64,
    member_decoded: u64,
    /// Bytes of the member's trailer.
    trailer: usize,
    /// Of what was decoded of the member; `None` where not all of it was, or it needs not be verified.
    checksum: Option<crc32fast::Hasher>,
    /// Seek points inside the member, none of whose bytes have been delivered.
    inner_points: VecDeque<LzmaPoint>,
    /// Offset in the decoded stream of the next byte.
    decoded: u64,
    /// Offset in the decoded stream of the last seek point.
    last_point: u64,
    findings: Findings,
    /// Found after bytes that had to be returned first.
    failure: Option<io::Error>,
}

enum MemberState {
    /// Where the first member must start.
    Start,
    /// Behind a member.
    Between,
    Data(Box<Lzma1>),
    /// In a member that was decoded ahead, of which this many bytes have been delivered.
    Ready {
        data: Vec<u8>,
        delivered: usize,
    },
    Trailer,
    /// In what a damaged member should have held, behind which decoding goes on at this byte.
    Gap {
        left: u64,
        next: u64,
    },
    Ended,
}

impl<C: Container> MemberDecoder<C> {
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let mut decoder = Self::new(source.clone(), options.limits, 0, 0);
        decoder.ahead = Ahead::new(source, options);
        decoder.first_pass = true;
        decoder.spacing = options.seek_point_spacing;
        decoder.cancel = options.cancel.clone();
        decoder.findings.points.push(SeekPoint { state: vec![VERSION], ..SeekPoint::default() });
        decoder
    }

    /// The member at byte `start`, if nothing is wrong with it, and it has as many decoded bytes as that, and nobody
    /// abandons it.
    pub(super) fn whole(
        source: SharedSource,
        start: u64,
        length: u64,
        options: &Options,
        abandon: &Cancel,
    ) -> Option<WholeMember> {
        let mut decoder = Self::new(source, options.limits, start, 0);
        (decoder.first_pass, decoder.spacing) = (true, options.seek_point_spacing);
        decoder.most = length;
        // One byte more than there should be tells that there are more.
        let mut data = vec![0; usize::try_from(length).ok()?.checked_add(1)?];
        while !matches!(decoder.state, MemberState::Between) {
            abandon.check().and_then(|()| options.cancel.check()).ok()?;
            let from = usize::try_from(decoder.decoded).ok().filter(|&from| from < data.len())?;
            let end = data.len().min(from + PIECE);
            decoder.decoded += decoder.go_on(&mut data[from..end]).ok()? as u64;
        }
        let is_right = decoder.decoded == length && decoder.findings.damage.is_empty();
        data.truncate(usize::try_from(length).ok()?);
        is_right.then(|| WholeMember { start, end: decoder.input.position(), data, points: decoder.inner_points })
    }

    pub(super) fn resume(source: SharedSource, point: &SeekPoint, limits: Limits) -> io::Result<Self> {
        let position = point.compressed_bit / 8;
        let wrong = |what: &str| faults::invalid(position, format!("a seek point {what}"));
        // No stream decodes to 2^63 bytes, so no sum of offsets overflows.
        if !point.compressed_bit.is_multiple_of(8) || position > source.len() || point.decoded > u64::MAX / 2 {
            return Err(wrong("that no such file can have"));
        }
        let mut decoder = Self::new(source, limits, position, point.decoded);
        match point.state[..] {
            [] | [VERSION] => {}
            [INSIDE, ref rest @ ..] => {
                let places = rest.split_first_chunk::<8>().and_then(|(compressed, rest)| {
                    let (decoded, rest) = rest.split_first_chunk::<8>()?;
                    let (compressed, decoded) = (u64::from_le_bytes(*compressed), u64::from_le_bytes(*decoded));
                    let start = (position.checked_sub(compressed)?, point.decoded.checked_sub(decoded)?);
                    Some((start, compressed, decoded, rest))
                });
                let (start, compressed, decoded, rest) = places.ok_or_else(|| wrong("without its member"))?;
                (decoder.member_compressed, decoder.member_decoded) = start;
                decoder.input.seek(start.0);
                let Some(mut lzma) = decoder.read_header()?.filter(|_| compressed >= C::HEADER as u64) else {
                    return Err(wrong("without its member"));
                };
                lzma.resume(rest, decoded).map_err(|what| wrong(&format!("whose state {what}")))?;
                decoder.input.seek(position);
                decoder.state = MemberState::Data(lzma);
            }
            _ => return Err(wrong("whose state has an unknown version")),
        }
        Ok(decoder)
    }

    /// From the start of a member on, with all that the members can verify.
    pub(super) fn verified(source: SharedSource, point: &SeekPoint, options: &Options) -> io::Result<Self> {
        let mut decoder = Self::resume(source, point, options.limits)?;
        (decoder.first_pass, decoder.spacing) = (true, options.seek_point_spacing);
        Ok(decoder)
    }

    fn new(source: SharedSource, limits: Limits, compressed: u64, decoded: u64) -> Self {
        Self {
            container: std::marker::PhantomData,
            input: Input::new(source, compressed),
            limits,
            cancel: Cancel::default(),
            first_pass: false,
            spacing: 0,
            most: u64::MAX,
            state: MemberState::Start,
            ahead: None,
            finder: None,
            effort: Effort::default(),
            member_compressed: compressed,
            member_decoded: decoded,
            trailer: 0,
            checksum: None,
            inner_points: VecDeque::new(),
            decoded,
            last_point: decoded,
            findings: Findings::default(),
            failure: None,
        }
    }

    /// Goes on by a header or trailer, or by what fits into `buffer`; returns the bytes written.
    fn go_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.state {
            MemberState::Start => self.start_member().map(|()| 0),
            MemberState::Between => self.between().map(|()| 0),
            MemberState::Data(_) => self.decode(buffer),
            MemberState::Ready { data, delivered } => {
                let count = stepwise::hand_out(data, delivered, buffer);
                if *delivered == data.len() {
                    self.state = MemberState::Between;
                }
                Ok(count)
            }
            MemberState::Trailer => self.end_member().map(|()| 0),
            &mut MemberState::Gap { left: 0, next } => {
                self.input.seek(next);
                self.state = MemberState::Between;
                Ok(0)
            }
            MemberState::Gap { left, .. } => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(FILLER);
                *left -= count as u64;
                Ok(count)
            }
            MemberState::Ended => Ok(0),
        }
    }

    fn start_member(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        (self.member_compressed, self.member_decoded) = (self.input.position(), self.decoded);
        self.inner_points.clear();
        let position = self.input.position();
        let ahead = self.ahead.as_mut().map(|ahead| ahead.take(position));
        if let Some(WholeMember { end, data, points, .. }) = ahead.transpose()?.flatten() {
            self.input.seek(end);
            self.inner_points = points;
            self.state = MemberState::Ready { data, delivered: 0 };
            return Ok(());
        }
        let Some(mut lzma) = self.read_header()? else { return Err(self.cut("a header")) };
        if self.first_pass && self.spacing < u64::MAX {
            lzma.survey(self.spacing);
        }
        self.checksum = self.first_pass.then(crc32fast::Hasher::new);
        self.state = MemberState::Data(lzma);
        Ok(())
    }

    /// Reads the header at the input's position and makes a decoder for what follows. `None` where the file ends in it.
    fn read_header(&mut self) -> io::Result<Option<Box<Lzma1>>> {
        let position = self.input.position();
        let Some(bytes) = self.input.fill(C::HEADER)?.get(..C::HEADER) else { return Ok(None) };
        let header = C::header(bytes).or_else(|what| Self::mended(position, bytes).ok_or(what));
        let header = header.map_err(|what| faults::invalid(position, what))?;
        self.input.consume(C::HEADER);
        self.trailer = header.trailer;
        let possible = self.input.remaining().saturating_mul(LARGEST_RATIO).min(header.length.unwrap_or(u64::MAX));
        let dictionary = header.dictionary.min(possible).max(SMALLEST_DICTIONARY);
        if dictionary > self.limits.lzma_dictionary {
            let limit = self.limits.lzma_dictionary;
            let what = format!("the data need a dictionary of {dictionary} bytes, the limit is {limit}");
            return Err(faults::unsupported(position, what));
        }
        let dictionary = dictionary.min(self.most.max(SMALLEST_DICTIONARY));
        let dictionary = usize::try_from(dictionary).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Some(Box::new(Lzma1::new(header.properties, dictionary, header.length)?)))
    }

    /// What the header at byte `position` says whose magic is damaged. Of a file's first member nothing but the magic
    /// says that it is one.
    fn mended(position: u64, bytes: &[u8]) -> Option<Header> {
        let mended = starts::mended(bytes, C::MAGIC).filter(|_| position > 0)?;
        C::header(&mended).ok()
    }

    fn decode(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let MemberState::Data(lzma) = &mut self.state else { return Ok(0) };
        let available = self.input.fill(Lzma1::WANTED)?;
        let at_end = available.is_empty();
        let Step { taken, written, outcome } = lzma.step(available, buffer);
        self.input.consume(taken);
        self.inner_points.extend(lzma.take_points());
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&buffer[..written]);
        }
        match outcome {
            Outcome::End => self.state = MemberState::Trailer,
            Outcome::Damaged(what) => {
                let error = faults::invalid(self.input.position(), what);
                self.leave_member(what, error)?;
            }
            Outcome::More if taken + written == 0 => {
                // Damage may have led past the end of the data.
                let what = "the data do not end where they should";
                let is_cut = at_end && !C::ends_whole(self.input.source())?;
                let error =
                    if is_cut { self.cut("the LZMA data") } else { faults::invalid(self.input.position(), what) };
                self.leave_member(what, error)?;
            }
            Outcome::More => {}
        }
        Ok(written)
    }

    /// The member cannot be decoded any further. Goes on behind it, if its end can be found, or where the next one
    /// begins; else it ends with `error`.
    fn leave_member(&mut self, what: &str, error: io::Error) -> io::Result<()> {
        if let Some((next, length)) = self.find_end()? {
            self.leave_gap(next, length, what);
            return Ok(());
        }
        if error.kind() != io::ErrorKind::UnexpectedEof {
            // Nothing says how much of what came before was wrong already.
            self.report(self.input.position(), what);
        }
        Err(error)
    }

    /// Where the damaged member ends, and how long it should be, if that is known.
    fn find_end(&mut self) -> io::Result<Option<(u64, Option<u64>)>> {
        let start = self.member_compressed;
        if let Some((end, length)) = self.end_by_trailer(start)? {
            return Ok(Some((end, Some(length))));
        }
        let Ok(magic) = C::MAGIC.try_into() else { return Ok(None) };
        // Another decoder looks at what follows.
        if self.most < u64::MAX {
            return Ok(None);
        }
        let source = self.input.shared_source();
        let finder = self.finder.get_or_insert_with(|| Finder::new(SharedSource::clone(source)));
        let mut decoded = None;
        let from = start.saturating_add(1);
        let next = starts::next(source, from, &[magic], &self.cancel, &mut self.effort, |at, _| {
            let mut header = vec![0; C::HEADER];
            let read = source.read_at(&mut header, at)?;
            let Ok(header) = C::header(header.get(..read).unwrap_or_default()) else { return Ok(false) };
            // The trailer of the damaged one is before it, however long that is, or it has a trailer of its own.
            let mut trailer = vec![0; header.trailer];
            if let Some(before) = at.checked_sub(header.trailer as u64) {
                source.read_exact_at(&mut trailer, before)?;
                decoded = C::sizes(&trailer)
                    .and_then(|(decoded, member)| (start.checked_add(member) == Some(at)).then_some(decoded));
            }
            Ok(decoded.is_some() || !finder.is_spent() && finder.member(at, &self.cancel)?.is_some())
        });
        Ok(next?.map(|next| (next, decoded)))
    }

    /// Where the member at byte `start` ends, whatever its header is, and how long it should be.
    fn end_by_trailer(&mut self, start: u64) -> io::Result<Option<(u64, u64)>> {
        if !C::MANY || self.most < u64::MAX {
            return Ok(None);
        }
        let source = self.input.shared_source();
        let finder = self.finder.get_or_insert_with(|| Finder::new(SharedSource::clone(source)));
        if finder.is_spent() {
            return Ok(None);
        }
        Ok(finder.end_of(start, &self.cancel)?.map(|member| (member.end, member.decoded)))
    }

    /// A gap stands for what the damaged member, which should be `length` bytes long, has not delivered. The next one
    /// begins at byte `next`.
    fn leave_gap(&mut self, next: u64, length: Option<u64>, what: &str) {
        let position = self.input.position();
        let delivered = self.decoded - self.member_decoded;
        let possible = next.saturating_sub(self.member_compressed).saturating_mul(LARGEST_RATIO);
        let length = length.filter(|&length| length <= possible);
        let left = length.map_or(GAP as u64, |length| length.saturating_sub(delivered));
        let end = self.decoded.saturating_add(left);
        if self.first_pass {
            let (decoded, what) = (self.member_decoded..end, what.to_owned());
            let (lost_from, compressed_from) = (self.decoded, self.member_compressed);
            self.findings.report(Damage { decoded, lost_from, compressed: position, compressed_from, what });
            if length.is_none_or(|length| length < delivered) {
                self.findings.shift(end);
            }
        }
        self.inner_points.clear();
        self.checksum = None;
        self.state = MemberState::Gap { left, next };
    }

    fn end_member(&mut self) -> io::Result<()> {
        let position = self.input.position();
        if self.is_astray()?
            && let Some((next, length)) = self.find_end()?
        {
            self.leave_gap(next, length, "the data do not end where they should");
            return Ok(());
        }
        let Some(trailer) = self.input.fill(self.trailer)?.get(..self.trailer) else {
            return Err(self.cut("the checksum behind the LZMA data"));
        };
        let checked = self.checksum.take().map_or(Ok(()), |crc| {
            let member = position + trailer.len() as u64 - self.member_compressed;
            C::check(trailer, crc.finalize(), self.decoded - self.member_decoded, member)
        });
        let stated = C::sizes(trailer).map(|(decoded, _)| decoded);
        self.input.consume(self.trailer);
        if let Err(what) = checked {
            self.report(position, what);
            if self.first_pass && stated != Some(self.decoded - self.member_decoded) {
                self.findings.shift(self.decoded);
            }
        }
        self.state = MemberState::Between;
        Ok(())
    }

    /// At a trailer that does not say how long the member is, and behind which nothing is that may follow one: damage
    /// has led to another place.
    fn is_astray(&mut self) -> io::Result<bool> {
        let length = self.input.position() + self.trailer as u64 - self.member_compressed;
        let bytes = self.input.peek(self.trailer + C::HEADER)?;
        let Some((trailer, behind)) = bytes.split_at_checked(self.trailer) else { return Ok(C::MANY) };
        let may_follow = behind.is_empty() || behind.starts_with(&[0]) || C::header(behind).is_ok();
        Ok(C::MANY && !may_follow && C::sizes(trailer).is_none_or(|(_, member)| member != length))
    }

    /// Looks for another member. Zeros are padding; what is neither is left alone, but not in silence.
    fn between(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        (self.member_compressed, self.member_decoded) = (self.input.position(), self.decoded);
        let bytes = self.input.fill(C::HEADER)?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        if bytes.is_empty() {
            self.state = MemberState::Ended;
        } else if C::MANY && bytes.len() < C::HEADER && bytes.iter().zip(C::MAGIC).all(|(byte, magic)| byte == magic) {
            // Nothing else begins so.
            return Err(self.cut("the header of a member"));
        } else if C::MANY && (C::header(&bytes[..bytes.len().min(C::HEADER)]).is_ok()) {
            self.state = MemberState::Start;
        } else if zeros > 0 {
            self.input.consume(zeros);
            if self.input.buffered().is_empty() {
                self.input.skip_hole(1);
            }
        } else {
            let position = self.member_compressed;
            if C::MANY && Self::mended(position, &bytes[..bytes.len().min(C::HEADER)]).is_some() {
                self.report(position, "the magic number of a member is damaged");
                self.state = MemberState::Start;
            } else if let Some((next, length)) = self.end_by_trailer(position)? {
                // No seek point leads here.
                self.last_point = self.decoded;
                self.leave_gap(next, Some(length), "the header of a member is damaged");
            } else {
                self.report(position, "bytes behind the data belong to nothing");
                self.state = MemberState::Ended;
            }
        }
        Ok(())
    }

    fn cut(&self, place: &str) -> io::Error {
        faults::cut(self.input.source().len(), place)
    }

    /// Takes note that the member must not be served.
    fn report(&mut self, compressed: u64, what: &str) {
        debug!("{}: at byte {compressed}: {what}", C::NAME);
        if self.first_pass {
            let decoded = self.member_decoded..self.decoded;
            // Where no byte is concerned, it is about what lies behind.
            let compressed_from = if decoded.is_empty() { compressed } else { self.member_compressed };
            let what = what.to_owned();
            self.findings.report(Damage { decoded, lost_from: self.decoded, compressed, compressed_from, what });
        }
    }

    /// Counts `written` bytes, and makes seek points of what lies before them.
    fn advance(&mut self, written: usize) {
        if self.first_pass && written > 0 && self.member_decoded.saturating_sub(self.last_point) >= PIECE as u64 {
            self.last_point = self.member_decoded;
            let compressed_bit = self.member_compressed.saturating_mul(8);
            self.findings.points.push(SeekPoint { compressed_bit, decoded: self.member_decoded, state: vec![VERSION] });
        }
        self.decoded = self.decoded.saturating_add(written as u64);
        while let Some(LzmaPoint { decoded, compressed, state }) =
            self.inner_points.front().filter(|point| self.member_decoded + point.decoded < self.decoded)
        {
            let compressed = compressed + C::HEADER as u64;
            self.last_point = self.member_decoded + decoded;
            let state = [&[INSIDE], &compressed.to_le_bytes()[..], &decoded.to_le_bytes(), state];
            self.findings.points.push(SeekPoint {
                compressed_bit: (self.member_compressed + compressed).saturating_mul(8),
                decoded: self.last_point,
                state: state.concat(),
            });
            self.inner_points.pop_front();
        }
    }
}

impl<C: Container> Stepwise for MemberDecoder<C> {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let written = self.go_on(buffer)?;
        self.advance(written);
        Ok(written)
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, MemberState::Ended)
    }

    fn end(&mut self) {
        self.state = MemberState::Ended;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl<C: Container> Decoder for MemberDecoder<C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let decoder = match &self.state {
            MemberState::Data(lzma) => lzma.memory_after(bytes),
            // What was decoded ahead counts there until it is handed out.
            _ => 0,
        };
        let finder = self.finder.as_ref().map_or(0, Finder::memory);
        size_of::<Self>() + self.input.memory() + decoder + finder + self.ahead.as_ref().map_or(0, Ahead::memory)
    }
}

impl<C: Container> FirstPass for MemberDecoder<C> {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
