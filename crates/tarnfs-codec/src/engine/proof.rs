//! Verifying what a table without checksums leads to: one that another program has made.
//!
//! What a format can check for itself is checked before a byte is handed out: a chunk is decoded once to its end, its
//! checks are compared, and the checksums of its pieces are kept, as if they stood in the table. Where a format can
//! check nothing before the end, as gzip, the whole stream is decoded once. Its first reader does that before it gets
//! a byte. Where that takes too long to wait for, it is done beside the readers ([`Proving`]); until then nothing is
//! known of what they get ([`Source::is_unproven`]).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use tarnfs_source::{Grant, SharedSource, Slice, Source, Strict};

use super::cache::PieceCache;
use super::chunks::PiecePlace;
use super::decoded::{DecodedSource, Inner};
use super::memory_gate::GatePass;
use super::pool::Piece;
use super::{checksum, lock};
use crate::sync::{Condvar, Mutex};
use crate::{Checks, Chunk, ChunkTable, Codec, Damage, DecodeContext, FirstPass, Options, PIECE};

/// Decoded bytes of a chunk, or of a stream that can be verified only as a whole, that a reader waits for before the
/// first byte comes: some seconds, where the fastest programs write the largest blocks.
const LONGEST_WAIT: u64 = if cfg!(test) { 700_000 } else { 1 << 30 };

/// In place of a chunk's start: the whole stream.
const WHOLE: u64 = u64::MAX;

/// Bytes that are taken from the budget together for the checksums of a whole stream.
const GRANTED_TOGETHER: usize = 64 << 10;

/// Chunks known to be damaged; more are decoded again.
const MOST_DAMAGED: usize = 1024;

/// Chunks that are looked at when a stream is opened: about a second's work.
const MOST_LOOKED_AT: usize = if cfg!(test) { 1000 } else { 1 << 16 };

/// Bytes of a chunk's entry beside its checksums.
const OVERHEAD: usize = 128;

/// Said of bytes that have no checksum although the whole was decoded for that.
pub(super) const NOT_VERIFIED: &str = "nothing was verified there when the whole was decoded: build the index again";

/// What has been verified of a stream.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    state: Mutex<ProofTable>,
    /// A chunk is not in work any more.
    done: Condvar,
    is_whole: AtomicBool,
}

#[derive(Debug, Default)]
struct ProofTable {
    /// Of each chunk, by its start.
    checksums: BTreeMap<u64, (Box<[u32]>, Option<Grant>)>,
    /// Chunks, by their start, of which something is wrong.
    damaged: BTreeMap<u64, String>,
    /// Starts of the chunks that somebody verifies.
    in_work: Vec<u64>,
    /// Found when the whole was decoded.
    damage: Vec<Damage>,
    /// For what was found then.
    grants: Vec<Grant>,
}

/// The right to verify a chunk, given back when dropped.
struct Claim<'a> {
    proofs: &'a Proofs,
    start: u64,
}

impl Proofs {
    /// Waits while somebody verifies the chunk at `start`, or a reader the whole. Then its checksums, or what is wrong
    /// with it; `None` if nothing is known.
    ///
    /// The caller holds no lock, and no pass but of deeper streams: who verifies may need it.
    fn wait(&self, start: u64) -> Option<Result<Vec<u32>, String>> {
        let state = lock(&self.state);
        let in_work = |state: &mut ProofTable| state.in_work.iter().any(|&other| other == start || other == WHOLE);
        let state = self.done.wait_while(state, in_work).unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = state.damaged.get(&start) {
            return Some(Err(what.clone()));
        }
        state.checksums.get(&start).map(|(checksums, _)| Ok(checksums.to_vec()))
    }

    /// For one who has a pass; `None` if somebody else is at it, or has been. Of a chunk, or of the [`WHOLE`].
    fn claim(&self, start: u64) -> Option<Claim<'_>> {
        let mut state = lock(&self.state);
        let is_known = state.checksums.contains_key(&start) || state.damaged.contains_key(&start);
        if state.in_work.contains(&start) || is_known || self.is_whole() {
            return None;
        }
        state.in_work.push(start);
        Some(Claim { proofs: self, start })
    }

    /// What the piece has that is number `index` in the chunk at `start`, if that has been verified.
    pub(super) fn checksum(&self, start: u64, index: usize) -> Option<u32> {
        lock(&self.state).checksums.get(&start).and_then(|(checksums, _)| checksums.get(index).copied())
    }

    /// True if the whole stream has been verified.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Damage that was found when the whole was decoded.
    pub(super) fn damage_in(&self, range: &Range<u64>) -> Option<Damage> {
        if !self.is_whole() {
            return None;
        }
        let overlaps = |damage: &&Damage| damage.decoded.start < range.end && range.start < damage.decoded.end;
        lock(&self.state).damage.iter().find(overlaps).cloned()
    }

    /// Keeps the checksums of a chunk that was verified for itself.
    fn add(&self, start: u64, checksums: &[u32], inner: &Inner) {
        let budget = inner.cache.budget();
        let bytes = size_of_val(checksums) + OVERHEAD;
        let mut state = lock(&self.state);
        if self.is_whole() {
            // All that is known is here, and nobody would verify again what was pushed out.
            return;
        }
        let mut grant = budget.take(bytes);
        while grant.is_none() && state.checksums.len() > 1 {
            // Half of them, so that this is rare: they are verified again when somebody reads there.
            let mut number = 0_usize;
            state.checksums.retain(|_, _| {
                number += 1;
                number.is_multiple_of(2)
            });
            grant = budget.take(bytes);
        }
        // One is kept without room: else a piece of a long chunk would be verified for each read.
        state.checksums.insert(start, (checksums.into(), grant));
    }

    fn add_damaged(&self, start: u64, what: String) {
        let mut state = lock(&self.state);
        if state.damaged.len() < MOST_DAMAGED {
            state.damaged.insert(start, what);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.proofs.state).in_work.retain(|start| *start != self.start);
        self.proofs.done.notify_all();
    }
}

impl Inner {
    /// True if the chunk can be verified for itself, in a time that a reader can wait.
    fn is_provable(&self, chunk: &Chunk) -> bool {
        self.codec.checks(&chunk.point) == Checks::Chunk && chunk.length <= LONGEST_WAIT
    }

    /// True if readers wait until the whole is verified, where no chunk can be.
    fn waits_for_whole(&self) -> bool {
        self.length <= LONGEST_WAIT
    }

    /// The chunk with checksums, if there is a way to verify it. The pieces from the one that holds `position` on are
    /// in the cache then, as far as there is room for them.
    pub(super) fn proven(&self, chunk: Arc<Chunk>, position: u64) -> io::Result<Arc<Chunk>> {
        if !is_open(&chunk) {
            return Ok(chunk);
        }
        let start = chunk.point.decoded;
        loop {
            // Asked before: then what was found in the whole is seen by what follows.
            let is_whole = self.proofs.is_whole();
            match self.proofs.wait(start) {
                Some(Ok(checksums)) => return Ok(self.with(&chunk, checksums)),
                Some(Err(what)) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
                None => {}
            }
            if is_whole {
                return Err(self.invalid(start, NOT_VERIFIED));
            }
            let is_provable = self.is_provable(&chunk);
            if !is_provable && !self.waits_for_whole() {
                if let Some(prover) = self.prover.get() {
                    prover.begin();
                }
                return Ok(chunk);
            }
            // Before others can wait for it, who verifies has a pass.
            let pass = self.cache.gate.enter(self.depth, &self.expected_to_prove, u64::MAX);
            if let Some(claim) = self.proofs.claim(if is_provable { start } else { WHOLE }) {
                if is_provable {
                    return self.prove(&chunk, position, &claim, pass, false);
                }
                self.prove_whole(pass)?;
            }
        }
    }

    fn prove_whole(&self, mut pass: GatePass<'_>) -> io::Result<()> {
        let found = self
            .stream_to_prove()
            .decode(|| false, &mut |bytes| pass.holds(bytes))
            .map_err(|error| self.context(&error, "verifying all before", self.length))?;
        if let Some(found) = found {
            self.install(found);
        }
        Ok(())
    }

    /// The same for what is decoded ahead, which waits for nobody.
    pub(super) fn proven_ahead(&self, chunk: Arc<Chunk>, position: u64) -> Option<Arc<Chunk>> {
        if !is_open(&chunk) {
            return Some(chunk);
        }
        if !self.is_provable(&chunk) {
            // Whoever reads there gets only what is verified.
            return (!self.waits_for_whole() || self.proofs.is_whole()).then_some(chunk);
        }
        let pass = self.cache.gate.try_enter(self.depth, &self.expected_to_prove, u64::MAX)?;
        let Some(claim) = self.proofs.claim(chunk.point.decoded) else {
            drop(pass);
            let checksums = lock(&self.proofs.state).checksums.get(&chunk.point.decoded).map(|(of, _)| of.to_vec())?;
            return Some(self.with(&chunk, checksums));
        };
        self.prove(&chunk, position, &claim, pass, true)
            .inspect_err(|error| log::debug!("verifying ahead: {error}"))
            .ok()
    }

    fn with(&self, chunk: &Chunk, checksums: Vec<u32>) -> Arc<Chunk> {
        let chunk = Arc::new(Chunk { checksums, ..chunk.clone() });
        self.chunks.keep(&chunk);
        chunk
    }

    fn prove(
        &self,
        chunk: &Chunk,
        position: u64,
        claim: &Claim<'_>,
        mut pass: GatePass<'_>,
        ahead: bool,
    ) -> io::Result<Arc<Chunk>> {
        let source = Watched::new(&self.source);
        let (checksums, pieces) =
            self.decode_to_prove(chunk, position, &source, &mut pass, ahead).inspect_err(|error| {
                // What could not be read may be read the next time.
                if is_damage(error) && !source.has_failed() {
                    self.proofs.add_damaged(claim.start, error.to_string());
                }
            })?;
        for (start, piece) in &pieces {
            self.cache.insert(self.stream(), *start, piece);
        }
        self.proofs.add(claim.start, &checksums, self);
        Ok(self.with(chunk, checksums))
    }

    /// Decodes the chunk to its end, and compares what the format says of it.
    #[allow(clippy::type_complexity, reason = "it is written out once, and used here alone")]
    fn decode_to_prove(
        &self,
        chunk: &Chunk,
        position: u64,
        source: &Arc<Watched>,
        pass: &mut GatePass<'_>,
        ahead: bool,
    ) -> io::Result<(Vec<u32>, Vec<(u64, Arc<Piece>)>)> {
        let (start, end) = (chunk.point.decoded, chunk.point.decoded + chunk.length);
        let end_bit = if end == self.length {
            None
        } else {
            let next = self.chunk_at(end)?;
            if next.point.decoded != end {
                return Err(self.invalid(end, "the index has no seek point there, where one should be"));
            }
            Some(next.point.compressed_bit)
        };
        let compressed_end = end_bit.map_or(self.source.len(), |bit| bit.div_ceil(8));
        let is_wrong = |damage: &Damage| damage.decoded.start < end.min(damage.decoded.end);
        let options = self.options();
        let part = Arc::new(Slice::new(Arc::<Watched>::clone(source), 0, compressed_end));
        let own = self.codec.stream_checks().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        let mut decoder = own
            .and_then(|own| own.verified(part, &chunk.point, end_bit, &options))
            .map_err(|error| self.context(&error, "resuming at", start))?;
        // All of it where there is room, else what the reader comes to.
        let most_kept = self.cache.share() / 8 / PIECE;
        let position = if chunk.length.div_ceil(PIECE as u64) <= most_kept as u64 { start } else { position };
        let (mut checksums, mut pieces) = (Vec::new(), Vec::new());
        // One is enough, and there may be any number of them.
        let (mut found, mut wrong) = (Vec::new(), None);
        let mut at = start;
        while at < end {
            let place = PiecePlace::of(chunk, at);
            let mut piece = self.cache.pool.piece(place.length);
            self.fill(&mut *decoder, &mut piece, at)?;
            decoder.take_points(&mut Vec::new());
            decoder.take_shifts(&mut Vec::new());
            decoder.take_damage(&mut found);
            wrong = wrong.or_else(|| found.drain(..).find(is_wrong));
            found.clear();
            pass.holds(decoder.memory() + (pieces.len() + 1) * PIECE);
            checksums.push(checksum(&piece, at));
            at = place.end();
            if at > position && pieces.len() < most_kept {
                pieces.push((place.start, Arc::new(piece)));
            }
            if ahead && self.is_closed() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        match decoder.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(self.invalid(end, "the stream goes on there, the index says that it ends")),
            Err(error) => return Err(self.context(&error, "decoding what follows", end)),
        }
        decoder.take_damage(&mut found);
        match wrong.or_else(|| found.into_iter().find(is_wrong)) {
            Some(Damage { what, compressed, .. }) => {
                Err(self.invalid(start, &format!("{what}, found at byte {compressed} of the compressed file")))
            }
            None => Ok((checksums, pieces)),
        }
    }

    fn options(&self) -> Options {
        let DecodeContext { limits, dictionaries, scratch, coder, .. } = self.decode_context();
        Options { seek_point_spacing: u64::MAX, limits, dictionaries, scratch, coder, ..Options::default() }
    }

    /// What it takes to verify the whole.
    fn stream_to_prove(&self) -> UnprovenStream {
        UnprovenStream {
            codec: self.codec,
            source: SharedSource::clone(&self.source),
            table: self.chunks.shared_table(),
            options: self.options(),
            cache: Arc::clone(&self.cache),
        }
    }

    fn install(&self, found: Found) {
        let mut state = lock(&self.proofs.state);
        state.checksums.extend(found.checksums.into_iter().map(|(start, of)| (start, (of, None))));
        (state.damage, state.grants) = (found.damage, found.grants);
        // What was decoded before, nobody has verified: it is not found any more before anybody believes what is found.
        let old = self.renumber();
        // Under the lock: from here on nothing is pushed out.
        self.proofs.is_whole.store(true, Ordering::Release);
        drop(state);
        self.chunks.forget();
        self.cache.forget(old);
    }
}

/// True if nobody has verified the chunk. Of a decoder that compares each byte itself it is still not known whether
/// those are the bytes that lie there: a table may lead to a block that belongs elsewhere.
fn is_open(chunk: &Chunk) -> bool {
    chunk.checksums.is_empty()
}

/// True for an error that says that the bytes of a stream are wrong.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl Inner {
    /// True if what is read of it may be wrong without an error, until a [`Proving`] has ended. Reads no index.
    pub(super) fn is_unproven(&self) -> bool {
        self.has_unprovable && !self.proofs.is_whole()
    }

    /// True if some chunk can be verified only with the whole stream, and readers do not wait for that. Asked once,
    /// when the stream is opened. If the table cannot be read, or has too many chunks to look at and does not say how
    /// long they are, the answer is yes.
    pub(super) fn find_unprovable(&self) -> bool {
        if self.waits_for_whole() || self.chunks.table().has_checksums() {
            return false;
        }
        if let (Ok(Some(longest)), Ok(Some(first))) = (self.chunks.table().longest(), self.chunks.look(0)) {
            let is_provable = self.codec.checks(&first.point) == Checks::Chunk && longest <= LONGEST_WAIT;
            return is_open(&first) && !is_provable;
        }
        let mut at = 0;
        for _ in 0..MOST_LOOKED_AT {
            match self.chunks.look(at) {
                Ok(Some(chunk)) if !is_open(&chunk) || self.is_provable(&chunk) => {
                    at = chunk.point.decoded + chunk.length;
                }
                _ => return true,
            }
            if at >= self.length {
                return false;
            }
        }
        true
    }
}

impl DecodedSource {
    /// Who verifies the whole, where nothing else can be done.
    pub fn proven_by(&self, prover: Arc<dyn Prover>) {
        // It is said once, before anything is read.
        let _ = self.inner.prover.set(prover);
    }

    /// [`Source::is_unproven`], whatever it is decoded from.
    pub fn is_itself_unproven(&self) -> bool {
        self.inner.is_unproven()
    }

    /// What it takes to verify the whole.
    pub fn proving(&self) -> Proving {
        Proving { inner: Arc::downgrade(&self.inner), stream: self.inner.stream_to_prove() }
    }
}

/// Has a stream verified ([`DecodedSource::proving`]).
pub trait Prover: Send + Sync {
    /// Called for each read of what nobody has verified, and nobody can but by decoding the whole. Waits for nothing.
    fn begin(&self);

    /// Begins, and waits until that has ended. An error says why it could not be done.
    fn wait(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()>;
}

/// Decodes a whole stream, so that a table without checksums gets some.
#[derive(Debug)]
pub struct Proving {
    inner: Weak<Inner>,
    stream: UnprovenStream,
}

/// How that ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Proven {
    /// Nothing is wrong. From now on what is read is compared.
    Right,
    /// So is this, but for a part of it, which nobody gets any more. What was found first.
    Damaged(Damage),
    /// Nobody reads it any more.
    Abandoned,
}

impl Proving {
    /// Name of the format.
    pub fn codec(&self) -> &'static str {
        self.stream.codec.name()
    }

    /// What is decoded.
    pub fn describe(&self) -> String {
        self.stream.source.describe()
    }

    /// Decodes the whole, and calls `step` after each piece of it. An error means that it could not be read this time;
    /// nothing is known then.
    ///
    /// The caller holds no lock, as for any read.
    pub fn run(&self, step: &dyn Fn()) -> io::Result<Proven> {
        let is_abandoned = || {
            step();
            self.inner.upgrade().is_none_or(|inner| inner.is_closed())
        };
        let Some(found) = self.stream.decode(is_abandoned, &mut |_| ())? else { return Ok(Proven::Abandoned) };
        let Some(inner) = self.inner.upgrade() else { return Ok(Proven::Abandoned) };
        let first = found.damage.first().cloned();
        inner.install(found);
        Ok(first.map_or(Proven::Right, Proven::Damaged))
    }
}

/// A stream of which the whole is to be decoded.
struct UnprovenStream {
    codec: &'static dyn Codec,
    source: SharedSource,
    table: Arc<dyn ChunkTable>,
    options: Options,
    cache: Arc<PieceCache>,
}

/// What decoding the whole has shown.
#[derive(Default)]
struct Found {
    /// Of each chunk, by its start.
    checksums: Vec<(u64, Box<[u32]>)>,
    damage: Vec<Damage>,
    /// For the checksums.
    grants: Vec<Grant>,
}

/// Damaged parts that are told from each other. Of more, what lies between them counts as damaged, too.
const MOST_DAMAGE: usize = 10_000;

impl Found {
    fn take_damage(&mut self, pass: &mut dyn FirstPass) {
        let mut found = Vec::new();
        pass.take_damage(&mut found);
        for damage in found.into_iter().filter(|damage| !damage.decoded.is_empty()) {
            let is_full = self.damage.len() >= MOST_DAMAGE;
            match self.damage.last_mut() {
                Some(last) if is_full => {
                    let Range { start, end } = damage.decoded;
                    last.decoded = last.decoded.start.min(start)..last.decoded.end.max(end);
                    last.lost_from = last.decoded.start;
                }
                _ => self.damage.push(damage),
            }
        }
    }
}

impl UnprovenStream {
    /// Decodes the whole; `None` if it was abandoned. `holds` is told how many bytes of memory that takes.
    fn decode(&self, is_abandoned: impl Fn() -> bool, holds: &mut dyn FnMut(usize)) -> io::Result<Option<Found>> {
        let source = Watched::new(&self.source);
        let pass = self.codec.first_pass(Arc::clone(&source) as SharedSource, &self.options)?;
        let mut whole =
            Whole { pass, cache: &self.cache, found: Found::default(), granted: 0, holds, at: 0, checked: 0 };
        match whole.decode(&*self.table, is_abandoned) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if is_damage(&error) && !source.has_failed() => {
                // What the pass found before it failed: that more is wrong than what could not be decoded.
                whole.found.take_damage(&mut *whole.pass);
                let compressed = whole.pass.compressed_position();
                whole.found.damage.push(Damage {
                    decoded: whole.at..self.table.decoded_length(),
                    lost_from: whole.at,
                    compressed,
                    compressed_from: compressed,
                    what: error.to_string(),
                });
            }
            Err(error) => return Err(error),
        }
        whole.found.damage.retain(|damage| !damage.decoded.is_empty());
        Ok(Some(whole.found))
    }
}

impl std::fmt::Debug for UnprovenStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("UnprovenStream").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A first pass that gathers checksums of the pieces that a table has.
struct Whole<'a> {
    pass: Box<dyn FirstPass>,
    cache: &'a PieceCache,
    found: Found,
    /// Bytes left of what was taken for the checksums.
    granted: usize,
    holds: &'a mut dyn FnMut(usize),
    /// Up to here nothing but the damage is wrong.
    at: u64,
    /// Start of the last chunk that needs nothing before it, as a member: what is before it has been compared with its
    /// own checks.
    checked: u64,
}

impl Whole<'_> {
    /// False if it was abandoned.
    fn decode(&mut self, table: &dyn ChunkTable, is_abandoned: impl Fn() -> bool) -> io::Result<bool> {
        while let Some(chunk) = table.chunk_at(self.at)? {
            let (start, end) = (chunk.point.decoded, chunk.point.decoded.saturating_add(chunk.length));
            if start != self.at || end <= start {
                let what = format!("the index has no seek point at decoded byte {}, where one should be", self.at);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if chunk.point.state.is_empty() {
                self.checked = start;
            }
            self.take_room(chunk.length)?;
            let mut checksums = Vec::new();
            let ended = self.decode_to(end, &mut checksums, &is_abandoned);
            // Also of a chunk in which the pass failed: what comes before that is served.
            self.found.checksums.push((start, checksums.into()));
            if !ended? {
                return Ok(false);
            }
        }
        if self.at != table.decoded_length() {
            let what = format!("the index has no seek point at decoded byte {}, where one should be", self.at);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // What comes behind the last byte may be the check of all those before.
        let at = self.at;
        match self.pass.read(&mut [0]) {
            Ok(0) => self.found.take_damage(&mut *self.pass),
            Ok(_) => {
                // The check was not reached, and a table that is wrong there says nothing of where the last one was.
                self.at = 0;
                let what = format!("the stream goes on at decoded byte {at}, the index says that it ends");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Err(error) => {
                self.at = self.checked;
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Takes room in the budget for the checksums of a chunk of so many decoded bytes. Those of a long stream are held
    /// as long as it is open.
    fn take_room(&mut self, length: u64) -> io::Result<()> {
        let pieces = usize::try_from(length.div_ceil(PIECE as u64)).unwrap_or(usize::MAX);
        let bytes = pieces.saturating_mul(size_of::<u32>()).saturating_add(OVERHEAD);
        while self.granted < bytes {
            let step = GRANTED_TOGETHER.max(bytes - self.granted);
            match self.cache.make_room(step) {
                Some(grant) => self.found.grants.push(grant),
                // So much is kept without room: else no short stream could be read where there is none.
                None if self.found.checksums.is_empty() && step <= GRANTED_TOGETHER => {}
                None => {
                    let what = "the memory budget has no room for the checksums of all of it: build an index of tarnfs";
                    return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
                }
            }
            self.granted += step;
        }
        self.granted -= bytes;
        Ok(())
    }

    /// Decodes to the `end` of a chunk. False if it was abandoned.
    fn decode_to(&mut self, end: u64, checksums: &mut Vec<u32>, is_abandoned: &impl Fn() -> bool) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        let (mut points, mut shifts) = (Vec::new(), Vec::new());
        while self.at < end {
            if is_abandoned() {
                return Ok(false);
            }
            let piece = &mut piece[..PIECE.min(usize::try_from(end - self.at).unwrap_or(PIECE))];
            let mut filled = 0;
            while filled < piece.len() {
                match self.pass.read(&mut piece[filled..])? {
                    0 => {
                        let at = self.at + filled as u64;
                        let what = format!("the stream ends at decoded byte {at}, the index says that it goes on");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                    }
                    read => filled += read,
                }
            }
            (self.holds)(self.pass.memory() + PIECE);
            checksums.push(checksum(piece, self.at));
            self.at += filled as u64;
            self.found.take_damage(&mut *self.pass);
            self.pass.take_shifts(&mut shifts);
            self.pass.take_points(&mut points);
            points.clear();
            if let Some(&shift) = shifts.first() {
                self.at = shift.min(self.at);
                let what = "an unknown number of bytes is missing there, and nothing behind is in its place";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(true)
    }
}

/// A source of which it is known whether a read has failed: then what a decoder says of its bytes says nothing about
/// them.
#[derive(Debug)]
struct Watched {
    source: Strict,
    has_failed: AtomicBool,
}

impl Watched {
    fn new(source: &SharedSource) -> Arc<Self> {
        Arc::new(Self { source: Strict::new(SharedSource::clone(source)), has_failed: AtomicBool::new(false) })
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl Source for Watched {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.source.read_at(buffer, offset).inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }
}

#[cfg(test)]
mod tests;
