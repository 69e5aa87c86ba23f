//! Files that an archive does not simply store in one run: each piece is read where it lies, or through its coder, and
//! compared with its checksum: a short one before its first byte is served, a long one ([`Member`]) while it is read.

mod coded;
mod late;
mod opening;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::io::Errno;
use tarnfs_codec::engine::{BlockPlace, Blocks, FileReads, UnindexedSource, Workers};
use tarnfs_codec::{BlockCoder, DecodeContext};
use tarnfs_format::name::escape;
use tarnfs_format::{Body, Coder, Piece};
use tarnfs_index::Node;
use tarnfs_source::{Alone, Cancel, Grant, Setting, SharedSource, Source};

use crate::build::{Amount, is_damage};
use crate::chain::chain;
use crate::members::{Member, Members};
use crate::open::Options;
use crate::patience::A_MOMENT;
use crate::streams::StreamContext;
use coded::{Decoded, compare, crc_of};

pub(crate) use coded::{CodedStreams, stored};

/// Stored pieces of up to so many bytes are compared with their checksum before they are served. Of longer ones only
/// what is asked for is read.
pub(crate) const VERIFIED_WHEN_STORED: u64 = 1 << 20;

/// The same of those that are decoded.
const VERIFIED_WHEN_CODED: u64 = UnindexedSource::VERIFIED_FIRST;

/// Bytes of memory for one piece of a file that is open.
const PER_PIECE: usize = size_of::<(u64, Piece)>();

/// So many pieces take no memory worth mentioning.
const FEW: usize = 1 << 12;

/// A list of pieces that takes no more bytes of an index is short, whatever coders its pieces have.
pub(crate) const SHORT_IN_INDEX: u64 = 4 << 10;

/// What decodes blocks, if `coder` says that what it has made is one.
pub(crate) fn block_coder(coder: &Coder) -> Option<&'static dyn BlockCoder> {
    match coder.steps.as_slice() {
        [step] if step.properties.is_empty() => tarnfs_codec::block_coder_by_name(&step.codec),
        _ => None,
    }
}

/// True if some of `pieces` are decoded block by block.
pub(crate) fn are_blocks(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| piece.coder.as_deref().and_then(block_coder).is_some())
}

/// Where the block of `piece` is stored, if it is one.
fn block_of(piece: &Piece) -> Option<BlockPlace> {
    let coder = block_coder(piece.coder.as_ref()?)?;
    // What does not fit into memory is no block.
    let (stored, most) = (usize::try_from(piece.stored).ok()?, usize::try_from(piece.decoded).ok()?);
    (stored.max(most) <= LONGEST_BLOCK).then_some(BlockPlace { offset: piece.offset, stored, most, coder })
}

/// Bytes of a block, stored or decoded: squashfs has up to 1 MiB of them.
const LONGEST_BLOCK: usize = 16 << 20;

/// Memory of the budget for a long list of pieces, or the right to do without.
#[derive(Debug)]
pub(crate) enum Room {
    Granted(Grant),
    #[allow(dead_code, reason = "it is held, not read")]
    Alone(Alone),
}

/// What a list of pieces takes, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct ListWeight {
    bytes: usize,
    last: Option<Arc<Coder>>,
}

impl ListWeight {
    /// Adds a piece. Those that follow each other mostly have the same coder.
    pub(crate) fn add(&mut self, piece: &Piece) {
        self.bytes = self.bytes.saturating_add(PER_PIECE);
        if let Some(coder) = &piece.coder
            && !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, coder))
        {
            self.bytes = self.bytes.saturating_add(coder.weight());
            self.last = Some(Arc::clone(coder));
        }
    }
}

/// What it takes to read a list of pieces, before it is read.
#[derive(Debug, Default)]
pub(crate) struct ListRoom {
    /// For as long as it is there.
    held: Option<Room>,
    /// The right to take more than there is while it is read.
    #[allow(dead_code, reason = "it is held, not read")]
    reading: Option<Alone>,
}

/// The content of one file.
#[derive(Debug)]
pub(crate) struct PieceSource {
    number: u32,
    stream: SharedSource,
    size: u64,
    /// With the byte of the file at which each begins.
    pieces: Vec<(u64, Piece)>,
    /// What is known of the long ones.
    members: Vec<Option<Arc<Member>>>,
    /// Which of the others were compared with their checksums.
    verified: Vec<AtomicBool>,
    /// The one that was opened last.
    last: Mutex<Option<(usize, Decoded)>>,
    coded: Arc<CodedStreams>,
    context: StreamContext,
    /// Itself and its path, where long pieces are verified beside the readers.
    watched: Option<Watched>,
    /// Where it has blocks.
    blocks: Option<Arc<Blocks>>,
    reads: FileReads,
    /// What its list of pieces was given, where that is long.
    room: Option<Room>,
    /// Nothing is served that fails a check, whatever others are served.
    is_strict: bool,
    /// Where what is read of its holes is counted.
    holes: Option<Arc<Amount>>,
    /// Where each file begins that it was put together from.
    starts: Vec<u64>,
}

/// A file that stays: what is known of it is kept.
#[derive(Debug)]
struct Watched {
    this: Weak<PieceSource>,
    path: PathOf,
    members: Arc<Members>,
    node: Node,
}

/// Tells the path of a file, for messages.
struct PathOf(Box<dyn Fn() -> Option<Vec<u8>> + Send + Sync>);

impl std::fmt::Debug for PathOf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PathOf")
    }
}

/// True of a piece that is served before all of it was compared with its checksum.
fn is_long(piece: &Piece) -> bool {
    let most = if has_steps(piece) { VERIFIED_WHEN_CODED } else { VERIFIED_WHEN_STORED };
    (piece.crc.is_some() || is_sealed(piece)) && piece.length > most
}

/// True of a piece whose codec has a check in place of the checksum, of all of it as well.
fn is_sealed(piece: &Piece) -> bool {
    let steps = piece.coder.as_ref().map_or(&[][..], |coder| &coder.steps);
    piece.crc.is_none() && steps.iter().any(|step| tarnfs_codec::is_sealed(&step.codec))
}

/// True of a piece whose codec tells which bytes are wrong: what lies before damage is whole.
fn compares_parts(piece: &Piece) -> bool {
    let last = piece.coder.as_ref().and_then(|coder| coder.steps.last());
    last.is_some_and(|step| tarnfs_codec::compares_parts(&step.codec))
}

/// Where the bytes of `piece` begin in what its coder gives: one with a check of the piece alone gives no others.
fn skip_of(piece: &Piece) -> u64 {
    if has_steps(piece) && !is_of_part(piece) { piece.skip } else { 0 }
}

/// True if the last step of its coder takes nothing but the bytes of `piece` itself.
fn is_of_part(piece: &Piece) -> bool {
    let last = piece.coder.as_ref().and_then(|coder| coder.steps.last());
    last.is_some_and(|step| tarnfs_codec::is_of_part(&step.codec))
}

fn has_steps(piece: &Piece) -> bool {
    piece.coder.as_ref().is_some_and(|coder| !coder.steps.is_empty())
}

/// Decoders that undo how `pieces` are stored, each called by the next: the most of one piece.
pub(crate) fn depth_of<'p>(pieces: impl Iterator<Item = &'p Piece>) -> usize {
    pieces.filter_map(|piece| piece.coder.as_ref()).map(|coder| coder.steps.len()).max().unwrap_or_default()
}

impl PieceSource {
    /// Of a file of `size` bytes whose `pieces` lie in `stream`, which has that `number`.
    pub(crate) fn new(
        (number, stream): (u32, SharedSource),
        pieces: Vec<Piece>,
        size: u64,
        coded: Arc<CodedStreams>,
        context: StreamContext,
    ) -> Self {
        let mut end = 0_u64;
        let placed = |piece: Piece| {
            let start = end.saturating_add(piece.hole);
            end = start.saturating_add(piece.length);
            (start, piece)
        };
        let pieces: Vec<_> = pieces.into_iter().map(placed).collect();
        // Where there are any, there is one for each piece.
        let has_checks = pieces.iter().any(|(_, piece)| piece.crc.is_some() || is_sealed(piece));
        let verified = pieces.iter().filter(|_| has_checks).map(|_| AtomicBool::new(false)).collect();
        let has_long = pieces.iter().any(|(_, piece)| is_long(piece));
        let member = |(_, piece): &(u64, Piece)| is_long(piece).then(|| Member::new(piece.crc, piece.length));
        let members = pieces.iter().filter(|_| has_long).map(member).collect();
        let has_blocks = pieces.iter().any(|(_, piece)| block_of(piece).is_some());
        let blocks = has_blocks.then(|| coded.blocks(number, &stream, &context));
        let (last, reads) = (Mutex::default(), FileReads::default());
        let (watched, room, is_strict, holes) = (None, None, false, None);
        Self {
            number,
            stream,
            size,
            pieces,
            members,
            verified,
            last,
            coded,
            context,
            watched,
            blocks,
            reads,
            room,
            is_strict,
            holes,
            starts: Vec::new(),
        }
    }

    /// The same of a file that stays: what is known of it is kept in `members` as that of `node`, and it is verified
    /// beside the readers. `path` tells its path.
    pub(crate) fn watched(
        mut self,
        node: Node,
        members: &Arc<Members>,
        path: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        for (number, (member, (_, piece))) in self.members.iter_mut().zip(&self.pieces).enumerate() {
            if let Some(member) = member {
                let before = std::mem::replace(member, members.of(node, number, piece.crc, piece.length));
                if let Some(Err(damage)) = before.verdict() {
                    member.decide(Err(damage.to_string()));
                }
            }
        }
        let path = PathOf(Box::new(path));
        let members = Arc::clone(members);
        Arc::new_cyclic(|this| {
            let this = Weak::clone(this);
            Self { watched: Some(Watched { this, path, members, node }), ..self }
        })
    }

    /// The same, whose list of pieces was read with this.
    pub(crate) fn within(self, room: ListRoom) -> Self {
        Self { room: room.held, ..self }
    }

    /// The same, of which a first pass has found what is wrong with it, if anything is: nothing of its long pieces is
    /// served.
    pub(crate) fn known_to_be(self, damage: Option<String>) -> Self {
        if let Some(damage) = damage {
            for member in self.members.iter().flatten() {
                member.decide(Err(damage.clone()));
            }
        }
        self
    }

    /// True if a list of pieces that takes so many bytes of the index is a short one.
    pub(crate) fn has_few(bytes: u64) -> bool {
        bytes <= SHORT_IN_INDEX
    }

    /// The room that a list of pieces needs which takes `bytes` of the index: none if they are few, which are not
    /// even weighed. `weigh` weighs them. An error if there is no memory.
    pub(crate) fn room_for<E: From<Errno>>(
        bytes: u64,
        weigh: impl FnOnce() -> Result<ListWeight, E>,
        context: &StreamContext,
    ) -> Result<ListRoom, E> {
        if Self::has_few(bytes) {
            return Ok(ListRoom::default());
        }
        // While it is read it takes more than it does then.
        let budget = context.cache.budget();
        let reading = Some(budget.alone_for_now(A_MOMENT).ok_or(Errno::NOMEM)?);
        let ListWeight { bytes, .. } = weigh()?;
        if bytes <= FEW * PER_PIECE {
            return Ok(ListRoom { held: None, reading });
        }
        let granted = context.cache.take(bytes).map(Room::Granted);
        let held = granted.or_else(|| budget.alone().map(Room::Alone)).ok_or(Errno::NOMEM)?;
        Ok(ListRoom { held: Some(held), reading })
    }

    /// The same, which serves no bytes that fail a check, whatever else is served.
    pub(crate) fn strictly(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// The same, of whose holes no more is read than `amount` allows, if there is one.
    pub(crate) fn counting_holes(self, amount: Option<Arc<Amount>>) -> Self {
        Self { holes: amount, ..self }
    }

    /// The same, which was put together from files that begin there.
    pub(crate) fn of_parts(self, starts: Vec<u64>) -> Self {
        Self { starts, ..self }
    }

    /// Decodes what a reader who goes forward wants next, and drops what it has left behind.
    fn look_ahead(&self, read: Range<u64>) {
        let Some(blocks) = &self.blocks else { return };
        let (ahead, behind) = self.reads.note(&read, self.size, blocks.most_ahead());
        if !ahead.is_empty() {
            blocks.ahead(self.blocks_in(ahead));
        }
        if !behind.is_empty() {
            let start = behind.start;
            blocks.leave(self.blocks_in(behind).skip(usize::from(start > 0)));
        }
    }

    /// The blocks that lie in `range` of the file, also the one that it begins in.
    fn blocks_in(&self, range: Range<u64>) -> impl Iterator<Item = BlockPlace> {
        let first = self.at(range.start).map_or(self.pieces.len(), |(at, ..)| at);
        let pieces = self.pieces.get(first..).unwrap_or_default().iter();
        pieces.take_while(move |(start, _)| *start < range.end).filter_map(|(_, piece)| block_of(piece))
    }

    /// Of a file that is found while the archive in `source` is read.
    pub(crate) fn of_body(source: &SharedSource, body: &Body, coded: &Arc<CodedStreams>, options: &Options) -> Self {
        let context = StreamContext {
            cache: Arc::clone(&options.decoding.cache),
            workers: Workers::new(0),
            limits: options.limits,
            passwords: options.decoding.passwords.clone(),
            members: None,
            cancel: options.cancel.clone(),
            decoding: DecodeContext { unverified: false, ..options.decode_context() },
        };
        let pieces = body.pieces.clone().unwrap_or_default();
        Self::new((0, SharedSource::clone(source)), pieces, body.size, Arc::clone(coded), context)
    }

    /// What piece `at` is read from, and where it begins there.
    fn opened(&self, at: usize, piece: &Piece) -> io::Result<(Decoded, u64)> {
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last().as_ref().filter(|(known, _)| *known == at).map(|(_, decoded)| decoded.clone());
        let has_steps = has_steps(piece);
        let decoded = match known {
            Some(known) => known,
            None if has_steps => self.coded.get(self.number, &self.stream, piece, &self.context)?,
            None => {
                let source = Arc::new(stored(&self.stream, piece)?);
                Decoded { source, whole: None, in_order: None, is_compared: false }
            }
        };
        let skip = skip_of(piece);
        match (self.member(at), self.verified.get(at)) {
            (Some(member), _) if decoded.is_compared => member.decide(Ok(())),
            (None, Some(verified)) if decoded.is_compared => verified.store(true, Ordering::Relaxed),
            (None, _) if decoded.whole.is_none() => {
                let verified = self.verify_short(at, piece, &decoded, skip);
                self.unless_served(at, piece, verified)?;
            }
            _ => {}
        }
        let replaced = last().replace((at, decoded.clone()));
        drop(replaced);
        Ok((decoded, skip))
    }

    /// Forgets what was decoded last. Who reads on decodes it again, unless it is still kept beside others.
    pub(crate) fn close_last(&self) {
        let closed = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(closed);
    }

    /// What is known of piece `at`, if it is a long one.
    fn member(&self, at: usize) -> Option<&Arc<Member>> {
        self.members.get(at)?.as_ref()
    }

    /// Fills `buffer` from byte `inside` of piece `at`.
    fn read_piece(&self, at: usize, piece: &Piece, buffer: &mut [u8], inside: u64) -> io::Result<()> {
        let Some(member) = self.member(at) else {
            let (decoded, skip) = self.opened(at, piece)?;
            let read = decoded.source.read_exact_at(buffer, skip.saturating_add(inside));
            if let Some(in_order) = decoded.in_order.as_ref().filter(|_| read.is_ok()) {
                in_order.read_ahead_into_copy();
            }
            let unchecked = || self.unchecked(piece, &decoded).map(str::to_owned);
            match decoded
                .complaint()
                .map(str::to_owned)
                .or_else(unchecked)
                .or_else(|| decoded.flaw(piece, piece.crc.is_some()))
            {
                Some(what) if !self.serves_damaged() => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Some(what) => self.serve_damaged(at, piece, &what),
                None => {}
            }
            return read;
        };
        self.check_verdict(member)?;
        let is_known = member.verdict().is_some();
        let end = inside.saturating_add(buffer.len() as u64);
        let leads = !is_known && member.note_read(&(inside..end));
        let (decoded, skip) = self.opened(at, piece)?;
        let read = decoded.source.read_exact_at(buffer, skip.saturating_add(inside));
        if is_known {
            return read;
        }
        self.begin(at, member);
        if leads
            && end < piece.length
            && let Some(in_order) = &decoded.in_order
        {
            // As nothing is kept in the kernel, it does not read ahead.
            in_order.read_ahead(skip.saturating_add(end));
        }
        match (&decoded.whole, &read) {
            (Some(_), _) if let Some(what) = decoded.complaint() => self.serve_damaged(at, piece, what),
            (Some(whole), Ok(())) if whole.is_verified() => member.decide(Ok(())),
            (Some(_), Err(error)) if is_damage(error) => member.decide(Err(error.to_string())),
            (None, Ok(())) => {
                member.see(buffer, inside);
                // Parts of it are served before all of it is compared: its checksum tells whether it is out of step.
                if let Some(what) = decoded.flaw(piece, piece.crc.is_some()) {
                    member.decide(Err(what));
                }
            }
            _ => {}
        }
        if let Some(Err(what)) = member.verdict() {
            self.unless_served(at, piece, Err(io::Error::new(io::ErrorKind::InvalidData, &**what)))?;
        }
        read?;
        // Somebody else may have found it out meanwhile.
        self.check_verdict(member)
    }

    /// What is wrong with the block that `piece` lies in, where nothing tells whether the piece itself is whole.
    fn unchecked<'d>(&self, piece: &Piece, decoded: &'d Decoded) -> Option<&'d str> {
        let in_order = decoded.in_order.as_ref().filter(|_| piece.crc.is_none() && !self.serves_damaged());
        in_order.filter(|_| !compares_parts(piece))?.complaint()
    }

    /// True if bytes that fail a check are served, too.
    fn serves_damaged(&self) -> bool {
        self.context.decoding.unverified && !self.is_strict
    }

    /// `verified`, but damage is no error where it is served.
    fn unless_served(&self, at: usize, piece: &Piece, verified: io::Result<()>) -> io::Result<()> {
        match verified {
            Err(error) if self.serves_damaged() && is_damage(&error) => {
                self.serve_damaged(at, piece, &error.to_string());
                Ok(())
            }
            verified => verified,
        }
    }

    /// Keeps that piece `at` is damaged, which is served all the same, and says so once.
    fn serve_damaged(&self, at: usize, piece: &Piece, what: &str) {
        if let Some(verified) = self.verified.get(at) {
            verified.store(true, Ordering::Relaxed);
        }
        let of_short = |watched: &Watched| watched.members.of(watched.node, at, piece.crc, piece.length);
        let Some(member) = self.member(at).cloned().or_else(|| self.watched.as_ref().map(of_short)) else { return };
        member.decide(Err(what.to_owned()));
        if self.watched.is_some() && member.is_to_be_told() {
            log::error!("{}: damaged, and served all the same ({}): {what}", self.path(), Setting::Force);
        }
    }

    /// Its path if that is known, for messages.
    fn path(&self) -> String {
        let path = self.watched.as_ref().and_then(|watched| watched.path.0());
        path.map_or_else(|| self.describe(), |path| escape(&path).to_string())
    }

    fn check_verdict(&self, member: &Member) -> io::Result<()> {
        match member.verdict() {
            Some(Err(_)) if self.serves_damaged() => Ok(()),
            Some(Err(what)) => {
                let what = format!("{}: {what}", self.describe());
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
            _ => Ok(()),
        }
    }

    /// The first bytes, which are verified only if that takes no more than they do.
    pub(crate) fn head(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0; length];
        let coded = match self.pieces.as_slice() {
            [(0, piece)] if piece.skip == 0 && self.blocks.is_none() => {
                // What needs a password is opened with those that were given.
                let is_codec = |coder: &&Arc<Coder>| matches!(coder.steps.as_slice(), [step] if tarnfs_codec::by_name(&step.codec).is_some());
                piece.coder.as_ref().filter(is_codec).zip(Some(piece))
            }
            _ => None,
        };
        let Some((coder, piece)) = coded else {
            self.read_exact_at(&mut head, 0)?;
            return Ok(head);
        };
        let source: SharedSource = Arc::new(stored(&self.stream, piece)?);
        for link in chain(coder, None, source.len(), piece.decoded)? {
            let (source, coder) = link.input(&source, &[])?;
            let limits = self.context.limits;
            let options = tarnfs_codec::Options { limits, coder, ..tarnfs_codec::Options::default() };
            let mut pass = link.codec.first_pass(source, &options)?;
            let mut filled = 0;
            while filled < length {
                match pass.read(&mut head[filled..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => filled += read,
                }
            }
        }
        Ok(head)
    }

    /// True if some of it is decoded block by block.
    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// True if some of its bytes stand in the archive without any checksum of them.
    pub(crate) fn has_unchecked(&self) -> bool {
        self.pieces.iter().any(|(_, piece)| piece.crc.is_none() && piece.length > 0 && !is_sealed(piece))
    }

    /// Reads all of it, and compares each piece with its checksum, however long it is.
    pub(crate) fn check(&self, cancel: &Cancel) -> io::Result<()> {
        let mut block = Vec::new();
        for (at, (_, piece)) in self.pieces.iter().enumerate() {
            if let Some((place, blocks)) = self.block(piece) {
                cancel.check()?;
                block.resize(piece.length.min(LONGEST_BLOCK as u64) as usize, 0);
                blocks.read(&place, piece.skip, &mut block)?;
                continue;
            }
            let (decoded, skip) = self.opened(at, piece)?;
            let crc = crc_of(&decoded.source, skip, piece.length, cancel)?;
            compare(&decoded.source, piece.crc.unwrap_or(crc), crc)?;
            let complaint = decoded.complaint().or_else(|| self.unchecked(piece, &decoded));
            if let Some(what) = complaint.map(str::to_owned).or_else(|| decoded.flaw(piece, piece.crc.is_some())) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(())
    }

    /// Compares a short piece with its checksum, unless that was done.
    fn verify_short(&self, at: usize, piece: &Piece, decoded: &Decoded, skip: u64) -> io::Result<()> {
        let source = &decoded.source;
        let is_verified = self.verified.get(at).is_none_or(|verified| verified.load(Ordering::Relaxed));
        match piece.crc {
            _ if is_verified || piece.length == 0 => return Ok(()),
            Some(expected) => compare(source, expected, crc_of(source, skip, piece.length, &self.context.cancel)?)?,
            // It is compared by what decodes it, with its last byte.
            None if is_sealed(piece) && decoded.in_order.is_some() => {
                crc_of(source, skip, piece.length, &self.context.cancel)?;
            }
            None if is_sealed(piece) => self.check_seal(source, skip)?,
            None => {}
        }
        if let Some(verified) = self.verified.get(at) {
            verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The block of a piece of ours, if it is one.
    fn block(&self, piece: &Piece) -> Option<(BlockPlace, &Blocks)> {
        block_of(piece).zip(self.blocks.as_deref())
    }

    /// True if these bytes of the piece, whose first byte is `start` of the file, are read at once.
    fn is_piece_ready(&self, at: usize, start: u64, piece: &Piece, wanted: &Range<u64>) -> bool {
        let end = start.saturating_add(piece.length).min(wanted.end);
        let from = wanted.start.max(start);
        let (inside, length) = (from.saturating_sub(start), end.saturating_sub(from) as usize);
        if let Some((place, blocks)) = self.block(piece) {
            return blocks.is_ready(&place);
        }
        if piece.coder.is_none() && piece.crc.is_none() {
            return self.stream.is_ready(piece.offset.saturating_add(inside), length);
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, decoded)) = last.as_ref().filter(|(known, _)| *known == at) else { return false };
        decoded.source.is_ready(skip_of(piece).saturating_add(inside), length)
    }

    /// The piece that holds byte `offset`, or the next one behind it.
    fn at(&self, offset: u64) -> Option<(usize, u64, &Piece)> {
        let at = self.pieces.partition_point(|(start, piece)| start.saturating_add(piece.length) <= offset);
        self.pieces.get(at).map(|(start, piece)| (at, *start, piece))
    }
}

impl Source for PieceSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let mut filled = 0;
        self.look_ahead(offset..offset.saturating_add(wanted as u64));
        while filled < wanted {
            let (rest, from) = (&mut buffer[filled..], offset + filled as u64);
            filled += match self.at(from) {
                Some((_, start, piece))
                    if start <= from
                        && let Some((place, blocks)) = self.block(piece) =>
                {
                    let inside = from - start;
                    let length = (piece.length - inside).min(rest.len() as u64) as usize;
                    blocks.read(&place, piece.skip.saturating_add(inside), &mut rest[..length])?;
                    length
                }
                Some((at, start, piece)) if start <= from => {
                    let inside = from - start;
                    let length = (piece.length - inside).min(rest.len() as u64) as usize;
                    self.read_piece(at, piece, &mut rest[..length], inside)?;
                    length
                }
                next => {
                    let hole = next.map_or(u64::MAX, |(_, start, _)| start - from);
                    let length = hole.min(rest.len() as u64) as usize;
                    if let Some(amount) = &self.holes {
                        amount.add_hole(length as u64)?;
                    }
                    rest[..length].fill(0);
                    length
                }
            };
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn describe(&self) -> String {
        let start = self.pieces.first().map_or(0, |(_, piece)| piece.offset);
        format!("{} at byte {start}", self.stream.describe())
    }

    fn depth(&self) -> usize {
        self.stream.depth() + depth_of(self.pieces.iter().map(|(_, piece)| piece))
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.at(offset).map(|(_, start, _)| start.max(offset)).filter(|&data| data < self.size)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let first = self.at(offset).map_or(self.pieces.len(), |(first, ..)| first);
        let mut end = offset;
        for (start, piece) in &self.pieces[first..] {
            if *start > end {
                break;
            }
            end = start.saturating_add(piece.length);
        }
        end.min(self.size).max(offset)
    }

    fn most_data(&self) -> u64 {
        // Any number of them may be the same bytes. What comes of those that are packed is not known.
        let is_plain = self.pieces.iter().all(|(_, piece)| piece.coder.is_none());
        if is_plain { self.size.min(self.stream.most_data()) } else { self.size }
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let wanted = offset..self.size.min(offset.saturating_add(length as u64));
        let Some((first, ..)) = self.at(offset) else { return true };
        let pieces = self.pieces.iter().enumerate().skip(first);
        let mut inside = pieces.take_while(|(_, (start, _))| *start < wanted.end);
        inside.all(|(at, (start, piece))| self.is_piece_ready(at, *start, piece, &wanted))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(blocks) = &self.blocks {
            let end = self.size.min(offset.saturating_add(length.min(blocks.most_ahead())));
            blocks.ahead(self.blocks_in(offset..end));
        }
    }

    fn is_unproven(&self) -> bool {
        self.stream.is_unproven() || self.members.iter().flatten().any(|member| member.verdict().is_none())
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.stream.verify(is_abandoned)?;
        let mut buffer = Vec::new();
        for (at, ((_, piece), member)) in self.pieces.iter().zip(&self.members).enumerate() {
            let Some(member) = member else { continue };
            while !self.verify_more(at, piece, member, &mut buffer)? {
                if is_abandoned() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(())
    }

    fn part_starts(&self) -> &[u64] {
        &self.starts
    }

    fn memory(&self) -> usize {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match &self.room {
            // It is closed as soon as nobody reads it.
            Some(Room::Alone(_)) => usize::MAX,
            Some(Room::Granted(granted)) => granted.bytes(),
            None => 0,
        };
        last.as_ref().map_or(0, |(_, decoded)| decoded.source.memory()).saturating_add(list)
    }
}
