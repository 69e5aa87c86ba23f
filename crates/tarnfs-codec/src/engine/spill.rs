use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tarnfs_source::Cancel;

use super::decoded_file::DecodedFileWriter;
use crate::{PIECE, Pace};

use rustix::time::{ClockId, clock_gettime};

/// Takes pieces of a stream that are slow to decode out of its first pass, and packs them into a
/// [`DecodedFile`](super::DecodedFile) on a thread of its own.
///
/// What a random read of a piece would cost is reckoned from what is measured: the time that decoding takes, and how
/// many bytes lie between the piece and the seek point before it. A stream for which it never gets long has no file in
/// the end.
///
/// With a fast codec the first pass does not wait: what the packing thread cannot keep up with is left out, unless a
/// read of it would take very long, as in a stream without seek points. With a [slow](Pace::is_slow) one it waits a
/// little, and what the packing thread has no time to pack is stored as it is.
pub struct SpillWriter {
    sender: Option<SyncSender<Piece>>,
    packer: Option<JoinHandle<io::Result<bool>>>,
    shared: Arc<Shared>,
    limits: TimeLimits,
    started: Instant,
    /// How long it waited for the packing thread.
    waited: Duration,
    pub(super) cancel: Cancel,
    /// The processor's time of all threads when the pass began: it is decoding that they spend it on.
    began: Duration,
    /// How long decoding took, and for how many bytes.
    time: Duration,
    bytes: u64,
    /// Bytes since the last seek point, and the most that there were.
    since_point: u64,
    longest: u64,
    /// Pieces that are kept if the stream turns out to be slow; `None` if they became too many.
    waiting: Option<Vec<Piece>>,
    /// What is decoded of the next piece.
    piece: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    /// Pieces that the packing thread has not begun.
    sent: AtomicUsize,
    /// What was written is of no use.
    is_abandoned: AtomicBool,
    /// The processor's time of the packing thread, ns.
    packing: AtomicU64,
}

/// Opens the file where the pieces go and locks it: called once, when the first piece is to be kept. `None` if somebody
/// else writes it.
pub type OpenSpill = Box<dyn FnOnce() -> io::Result<Option<DecodedFileWriter>> + Send>;

/// A piece on its way: where it starts, its checksum, and its bytes.
type Piece = (u64, u32, Box<[u8]>);

/// From which time on pieces are kept.
#[derive(Debug, Clone, Copy)]
struct TimeLimits {
    /// Random reads in a stream are slow if one may take so long. Half of it is the mean.
    slow: Duration,
    /// What can be decoded within this time from a seek point on is not kept, also of a slow stream.
    near: Duration,
    /// For what takes longer to decode the first pass waits until it is kept.
    must_wait: Duration,
    /// It waits a little for other pieces, too. What cannot be packed meanwhile is stored as it is.
    may_wait: bool,
}

impl TimeLimits {
    fn new(pace: Pace) -> Self {
        let must_wait = Duration::from_secs(1);
        if pace.is_slow() {
            let slow = Duration::from_millis(if pace.in_whole_chunks { 2 } else { 4 });
            Self { slow, near: Duration::ZERO, must_wait, may_wait: true }
        } else {
            Self { slow: Duration::from_millis(40), near: Duration::from_millis(2), must_wait, may_wait: false }
        }
    }
}

/// Of 100 parts of the time of the first pass, what it may wait with a slow codec: the disk may be slow. Where whole
/// blocks are decoded ahead, other threads go on meanwhile.
const WAITING_SHARE: u32 = 33;

/// The longest that it waits for one piece.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Nothing is known of a stream before so much time has been spent on it.
const SURE: Duration = Duration::from_millis(50);

/// Pieces kept until it is known whether the stream is slow.
const MOST_WAITING: usize = (8 << 20) / PIECE;

/// Pieces on their way to the packing thread.
const MOST_SENT: usize = (8 << 20) / PIECE;

/// Level of zstd while the packing thread keeps up, and while it does not.
const LEVEL: i32 = 1;
const FAST_LEVEL: i32 = -5;

/// As `nice -n 19`.
const LOWEST_PRIORITY: i32 = 19;

/// As `nice -n 10`: where all cores decode it still gets a tenth of one.
const LOW_PRIORITY: i32 = 10;

impl SpillWriter {
    /// Pieces of the stream of this number, of a codec of this `pace`, go to the file that `open` opens.
    pub fn new(stream: u64, pace: Pace, open: OpenSpill) -> Self {
        let (sender, receiver) = sync_channel(MOST_SENT);
        let shared = Arc::<Shared>::default();
        let of_packer = Arc::clone(&shared);
        let limits = TimeLimits::new(pace);
        let packer = thread::Builder::new()
            .name("tarnfs-packer".to_owned())
            .spawn(move || pack(stream, limits, &receiver, &of_packer, open));
        let mut spill = Self::nothing();
        spill.limits = limits;
        match packer {
            Ok(packer) => {
                spill.sender = Some(sender);
                spill.packer = Some(packer);
                spill.shared = shared;
            }
            Err(error) => log::info!("decoded pieces are not kept: cannot start a thread: {error}"),
        }
        spill
    }

    /// Keeps nothing.
    pub(super) fn nothing() -> Self {
        Self {
            sender: None,
            packer: None,
            shared: Arc::default(),
            limits: TimeLimits::new(Pace::default()),
            started: Instant::now(),
            waited: Duration::ZERO,
            cancel: Cancel::default(),
            began: processor_time(ClockId::ProcessCPUTime),
            time: Duration::ZERO,
            bytes: 0,
            since_point: 0,
            longest: 0,
            waiting: Some(Vec::new()),
            piece: Vec::new(),
        }
    }

    /// Looks how long decoding has taken so far.
    pub(super) fn measure(&mut self) {
        if self.sender.is_some() {
            let packing = Duration::from_nanos(self.shared.packing.load(Ordering::Relaxed));
            let all = processor_time(ClockId::ProcessCPUTime).saturating_sub(self.began);
            self.time = all.saturating_sub(packing);
        }
    }

    /// A seek point was passed.
    pub(super) fn seek_point(&mut self) {
        self.since_point = 0;
    }

    /// Bytes that were decoded behind those before.
    pub(super) fn decoded(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.since_point += bytes.len() as u64;
        self.longest = self.longest.max(self.since_point);
        if self.wants() {
            self.piece.extend_from_slice(bytes);
        }
    }

    /// The piece of `length` bytes that starts at `start` is whole, and has this checksum.
    pub(super) fn piece(&mut self, start: u64, length: usize, checksum: u32) {
        let piece = (self.piece.len() == length).then(|| Box::from(&self.piece[..]));
        self.piece.clear();
        let Some(piece) = piece else { return };
        if self.is_slow() {
            for piece in self.waiting.take().into_iter().flatten() {
                self.send(piece);
            }
            self.send((start, checksum, piece));
        } else if let Some(waiting) = &mut self.waiting {
            waiting.push((start, checksum, piece));
            if waiting.len() > MOST_WAITING {
                self.waiting = None;
            }
        }
    }

    /// How long it takes to decode so many bytes.
    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(self.time.as_secs_f64() * bytes as f64 / self.bytes.max(1) as f64)
    }

    /// As far as is known. With many threads much is decoded before the first byte comes: then a stream looks slow that
    /// is not.
    fn is_slow(&self) -> bool {
        self.time >= SURE && self.time_for(self.longest) >= self.limits.slow
    }

    /// True if the bytes that come next may be kept.
    fn wants(&self) -> bool {
        self.sender.is_some()
            && (self.waiting.is_some() || self.is_slow())
            && (self.time < SURE || self.time_for(self.since_point) >= self.limits.near)
    }

    fn send(&mut self, piece: Piece) {
        let Some(sender) = &self.sender else { return };
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        let must_wait = self.time_for(self.since_point) >= self.limits.must_wait;
        let share = (self.started.elapsed() * WAITING_SHARE / 100).saturating_sub(self.waited);
        let most = match () {
            () if must_wait => LONGEST_WAIT,
            () if self.limits.may_wait => share.min(LONGEST_WAIT),
            () => Duration::ZERO,
        };
        let start = Instant::now();
        let mut sent = sender.try_send(piece);
        let sent = loop {
            sent = match sent {
                Ok(()) => break Ok(()),
                Err(TrySendError::Disconnected(_)) => break Err(true),
                // No core is free, or the disk is slow.
                Err(TrySendError::Full(piece)) if start.elapsed() < most && self.cancel.check().is_ok() => {
                    thread::sleep(Duration::from_millis(1));
                    sender.try_send(piece)
                }
                // It may be that the disk does not answer at all.
                Err(TrySendError::Full(_)) => break Err(must_wait),
            };
        };
        self.waited += start.elapsed();
        if let Err(has_ended) = sent {
            self.shared.sent.fetch_sub(1, Ordering::Relaxed);
            if has_ended {
                self.sender = None;
            }
        }
    }

    /// The stream has ended: true if there is a file now.
    pub(super) fn finish(mut self) -> io::Result<bool> {
        self.shared.is_abandoned.store(!self.is_slow(), Ordering::Relaxed);
        self.end()
    }

    fn end(&mut self) -> io::Result<bool> {
        self.sender = None;
        match self.packer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the packing thread panicked")),
            None => Ok(false),
        }
    }
}

impl std::fmt::Debug for SpillWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SpillWriter").field("is_slow", &self.is_slow()).finish_non_exhaustive()
    }
}

impl Drop for SpillWriter {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
        // Nobody wants to know.
        let _ = self.end();
    }
}

fn pack(
    stream: u64,
    limits: TimeLimits,
    pieces: &Receiver<Piece>,
    shared: &Shared,
    open: OpenSpill,
) -> io::Result<bool> {
    // Without a first piece there is no file.
    let Ok(first) = pieces.recv() else { return Ok(false) };
    // Whoever decodes comes first.
    let priority = if limits.may_wait { LOW_PRIORITY } else { LOWEST_PRIORITY };
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), priority) {
        log::debug!("the packing thread keeps its priority: {error}");
    }
    let Some(mut writer) = open()? else { return Ok(false) };
    for (start, checksum, piece) in std::iter::once(first).chain(pieces) {
        if shared.is_abandoned.load(Ordering::Relaxed) {
            break;
        }
        let behind = shared.sent.fetch_sub(1, Ordering::Relaxed);
        if !writer.file().has(stream, start, checksum, piece.len()) {
            let level = match () {
                () if limits.may_wait && behind > MOST_SENT / 8 => None,
                () if behind > MOST_SENT / 2 => Some(FAST_LEVEL),
                () => Some(LEVEL),
            };
            writer.add(stream, start, &piece, checksum, level)?;
        }
        if writer.is_full() {
            break;
        }
        shared.packing.store(nanoseconds(processor_time(ClockId::ThreadCPUTime)), Ordering::Relaxed);
    }
    if shared.is_abandoned.load(Ordering::Relaxed) {
        return writer.undo().map(|()| false);
    }
    writer.flush()?;
    Ok(true)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn processor_time(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::decoded_file::Found;
    use super::super::decoded_file::tests::{TestSpace, reader_of};
    use super::super::{DecodedFile, checksum};
    use super::*;
    use tarnfs_source::Budget;

    fn open(file: &tempfile::NamedTempFile, room: u64) -> OpenSpill {
        let file = std::fs::File::options().read(true).write(true).open(file.path()).unwrap();
        Box::new(move || {
            let file = DecodedFile::new(file, Budget::new(64 << 20));
            let mut writer = DecodedFileWriter::new(file, Box::new(TestSpace { room }))?;
            Ok(writer.lock()?.then_some(writer))
        })
    }

    /// Feeds a piece for each time, a seek point where there is none; returns which of them were kept.
    fn kept(times: &[Option<Duration>], room: u64, ends: bool) -> Option<Vec<usize>> {
        kept_of(Pace::default(), times, room, ends)
    }

    fn kept_of(pace: Pace, times: &[Option<Duration>], room: u64, ends: bool) -> Option<Vec<usize>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut spill = SpillWriter::new(3, pace, open(&file, room));
        // It may wait for hours, so that what is kept does not depend on the machine.
        spill.started = spill.started.checked_sub(Duration::from_secs(100_000)).unwrap_or(spill.started);
        let mut pieces = 0;
        let content = |number: usize| vec![number as u8; PIECE];
        for time in times {
            let Some(time) = *time else {
                spill.seek_point();
                continue;
            };
            spill.time += time;
            let (first, second) = (&content(pieces)[..1000], &content(pieces)[1000..]);
            spill.decoded(first);
            spill.decoded(second);
            let start = (pieces * PIECE) as u64;
            spill.piece(start, PIECE, checksum(&content(pieces), start));
            pieces += 1;
            // So that the packing thread keeps up.
            let has_ended = || spill.packer.as_ref().is_none_or(JoinHandle::is_finished);
            let waits = spill.time_for(spill.since_point) >= spill.limits.must_wait;
            while !waits && spill.shared.sent.load(Ordering::Relaxed) > MOST_SENT / 2 && !has_ended() {
                thread::yield_now();
            }
        }
        let length = || file.as_file().metadata().unwrap().len();
        if !ends {
            drop(spill);
            assert_eq!(length(), 0, "of what was not finished nothing is kept");
            return None;
        }
        if !spill.finish().unwrap() {
            assert_eq!(length(), 0);
            return None;
        }
        assert!(length() <= room);
        let file = reader_of(&file);
        let is_kept = |number: &usize| {
            let (mut piece, start) = (vec![0; PIECE], (number * PIECE) as u64);
            let there = file.read(3, start, checksum(&content(*number), start), &mut piece) == Found::Piece;
            assert!(!there || piece == content(*number));
            there
        };
        Some((0..pieces).filter(is_kept).collect())
    }

    const ALL: u64 = u64::MAX;

    fn milliseconds(times: &[u64]) -> Vec<Option<Duration>> {
        times.iter().map(|&time| Some(Duration::from_millis(time))).collect()
    }

    #[test]
    fn what_is_near_a_seek_point_is_not_kept() {
        let chunk = milliseconds(&[1; 60]);
        let two = [&chunk[..], &[None], &chunk].concat();
        // Of the first chunk all, as nothing is known there; of the second what takes two milliseconds and more.
        let expected: Vec<usize> = (0..60).chain(62..120).collect();
        assert_eq!(kept(&two, ALL, true), Some(expected));
    }

    #[test]
    fn a_stream_that_is_fast_everywhere_gets_no_file() {
        let chunk = milliseconds(&[1; 39]);
        let many = [&chunk[..], &[None]].concat().repeat(20);
        assert_eq!(kept(&many, ALL, true), None);
        // Also one of which much was decoded before the first bytes came.
        let ahead = [milliseconds(&[39]), milliseconds(&[0; 38]), vec![None]].concat();
        let late = [&ahead[..], &many].concat();
        assert_eq!(kept(&late, ALL, true), None);
    }

    #[test]
    fn a_stream_that_turns_out_slow_late_is_kept_from_there_on() {
        let times = vec![Some(Duration::from_micros(100)); 1000];
        let found = kept(&times, ALL, true).unwrap();
        assert!((499..=501).contains(&found[0]), "{found:?}");
        assert!(found.iter().copied().eq(found[0]..1000));
    }

    #[test]
    fn nothing_is_left_out_where_there_are_no_seek_points() {
        // From a second on nobody here waits for the packing thread.
        let times = milliseconds(&[10; 1000]);
        assert_eq!(kept(&times, ALL, true), Some((0..1000).collect()));
    }

    #[test]
    fn of_a_slow_codec_all_is_kept_where_random_reads_are_slow() {
        let pace = Pace { bytes_per_millisecond: 40_000, in_whole_chunks: true };
        // Faster than the packing thread by far: it stores what it has no time to pack.
        let chunk = milliseconds(&[1; 15]);
        let many = [&chunk[..], &[None]].concat().repeat(200);
        assert_eq!(kept_of(pace, &many, ALL, true), Some((0..3000).collect()));
        let fast = [Some(Duration::from_micros(100)), None].repeat(3000);
        assert_eq!(kept_of(pace, &fast, ALL, true), None);
    }

    #[test]
    fn a_file_ends_where_there_is_no_more_room() {
        let times = milliseconds(&[50; 40]);
        let some = kept(&times, 4 * PIECE as u64, true).unwrap();
        assert!(!some.is_empty());
        assert_eq!(kept(&times, 1000, true).map_or(0, |kept| kept.len()), 0, "a piece may become as long as it is");
        assert_eq!(kept(&times, ALL, false), None);
    }
}
