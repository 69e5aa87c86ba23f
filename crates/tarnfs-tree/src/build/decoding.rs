//! A compressed stream that is walked while it is decoded for the first time.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tarnfs_codec::engine::Indexing;
use tarnfs_codec::{Chunk, Codec};
use tarnfs_format::{Entry, Stream, stream::MOST_PEEKED};
use tarnfs_source::Cancel;

use super::amount::TOO_MUCH;
use super::held_back::HeldBack;
use super::nested::{Room, is_damage};
use super::receiver::{Call, MOST_NOTES, Receiver};
use crate::open::{Sink, is_bad_block};

/// Places in a decoded stream before which an unknown number of bytes is missing. Nobody knows what of a file lies
/// behind one.
#[derive(Debug, Default)]
pub(super) struct Shifts {
    /// Behind the last entry that was settled, ascending.
    at: Vec<u64>,
    /// More than are kept lie in this part of the stream.
    lost: Range<u64>,
    /// The first that there ever was.
    first: Option<u64>,
    /// The archives in the stream whose members are being settled, each in the one before it.
    around: Vec<Around>,
}

/// An archive whose members are settled before itself.
#[derive(Debug)]
struct Around {
    header: u64,
    /// The first place behind its header that its members have passed.
    first: Option<u64>,
}

impl Shifts {
    fn add(&mut self, found: &mut Vec<u64>) {
        self.first = self.first.into_iter().chain(found.iter().copied()).min();
        self.at.append(found);
        if let Some([first, .., last] | [first @ last]) = self.at.get(MOST_NOTES..) {
            let start = if self.lost.is_empty() { *first } else { self.lost.start };
            self.lost = start..last.saturating_add(1);
            self.at.truncate(MOST_NOTES);
        }
    }

    /// True if there is such a place at byte `end` of the stream, or behind it.
    fn are_at_or_behind(&self, end: u64) -> bool {
        self.at.iter().any(|&at| at >= end) || self.lost.end > end
    }

    /// What is settled from here on, up to [`Shifts::leave`], lies in the archive whose header is there.
    pub(super) fn enter(&mut self, header: u64) {
        self.around.push(Around { header, first: None });
    }

    /// The first such place behind the header of the archive that was entered last which its members have passed.
    pub(super) fn leave(&mut self) -> Option<u64> {
        self.around.pop().and_then(|around| around.first)
    }

    /// Makes damage of what of `entry` lies behind such a place. Entries come in the order of the stream, each when it
    /// has been passed.
    pub(super) fn settle(&mut self, entry: &Entry, receiver: &dyn Receiver) -> Result<(), tarnfs_index::Error> {
        if self.at.is_empty() && self.lost.is_empty() {
            return Ok(());
        }
        let end = entry.body.offset.saturating_add(entry.body.stored);
        let shift = self.at.iter().copied().find(|&at| at > entry.header && at < end);
        let is_unknown = entry.header.saturating_add(1) < self.lost.end && end > self.lost.start;
        let from = if is_unknown { Some(entry.body.offset) } else { shift.map(|at| at.max(entry.body.offset)) };
        if let Some(from) = from.filter(|&from| from < end) {
            let what = "bytes before this place were lost, so its place in the file is not known".to_owned();
            let damage =
                tarnfs_codec::Damage { decoded: from..end, lost_from: from, compressed: 0, compressed_from: 0, what };
            receiver.damage(damage)?;
        }
        for around in &mut self.around {
            let passed = self.at.iter().copied().find(|&at| at > around.header && at <= end);
            let unknown = is_unknown.then_some(entry.header);
            around.first = [around.first, passed, unknown].into_iter().flatten().min();
        }
        self.at.retain(|&at| at > end);
        if self.lost.end <= end {
            self.lost = 0..0;
        }
        Ok(())
    }
}

/// Hands out decoded bytes, and tells a receiver of chunks and damage.
///
/// A stream that cannot be decoded to its end ends where it broke: the error is kept in `ended_by`.
pub(super) struct DecodingStream<'a> {
    pub(super) indexing: Indexing,
    receiver: &'a dyn Receiver,
    pub(super) shifts: &'a RefCell<Shifts>,
    cancel: &'a Cancel,
    /// Counts the compressed bytes that were read.
    progress: Option<&'a AtomicU64>,
    sink: Option<HeldBack<'a>>,
    buffer: Vec<u8>,
    /// What of `buffer` is decoded and not yet behind the stream's position.
    from: usize,
    end: usize,
    /// Byte of the decoded stream at which `buffer[from]` lies.
    pub(super) position: u64,
    at_end: bool,
    /// False as long as it is not known whether the stream is what it seems to be: nothing is told before.
    tells: bool,
    pub(super) ended_by: Option<(u64, io::Error)>,
    chunks: Vec<Chunk>,
    /// Of all that was decoded, if somebody wants it.
    crc: Option<crc32fast::Hasher>,
    /// Bytes that may be decoded, where what it is decoded from may be stored nowhere.
    most: u64,
    /// What the decoder may take, where others work beside it.
    room: Option<Room<'a>>,
    /// What a disk cannot read ends it as damage does, and that is noted here.
    unread: Option<&'a AtomicBool>,
    /// Damage that was not told yet, and all of it, for people.
    untold: Vec<tarnfs_codec::Damage>,
    pub(super) damage: Vec<tarnfs_codec::Damage>,
}

impl<'a> DecodingStream<'a> {
    /// Decoded at once: large enough to make calls cheap, small enough for the second-level cache.
    const BATCH: usize = 256 << 10;

    pub(super) fn new(
        indexing: Indexing,
        receiver: &'a dyn Receiver,
        shifts: &'a RefCell<Shifts>,
        cancel: &'a Cancel,
    ) -> Self {
        Self {
            indexing,
            receiver,
            shifts,
            cancel,
            progress: None,
            sink: None,
            buffer: Vec::new(),
            from: 0,
            end: 0,
            position: 0,
            at_end: false,
            tells: false,
            ended_by: None,
            chunks: Vec::new(),
            crc: None,
            most: u64::MAX,
            room: None,
            unread: None,
            untold: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// Ends where a disk cannot read it, and sets `unread` then.
    pub(super) fn up_to_bad_blocks(self, unread: &'a AtomicBool) -> Self {
        Self { unread: Some(unread), ..self }
    }

    /// Ends behind so many bytes, and says that this is too much.
    pub(super) fn up_to(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// Waits where the decoder needs more memory than `room` has for it.
    pub(super) fn within(self, room: Option<Room<'a>>) -> Self {
        Self { room, ..self }
    }

    /// Computes the CRC-32 of what is decoded from here on.
    pub(super) fn with_crc(self) -> Self {
        Self { crc: Some(crc32fast::Hasher::new()), ..self }
    }

    /// That of all that was decoded.
    pub(super) fn crc(&self) -> Option<u32> {
        self.crc.clone().map(crc32fast::Hasher::finalize)
    }

    /// The archive itself: how far it has come is shown, and somebody may want its bytes.
    pub(super) fn of_archive(self, progress: &'a AtomicU64, sink: Option<&'a Arc<dyn Sink>>) -> Self {
        Self { progress: Some(progress), sink: sink.map(HeldBack::new), ..self }
    }

    /// From now on chunks and damage are told, those found before at once.
    pub(super) fn tell(&mut self) -> io::Result<()> {
        self.tells = true;
        self.hand_over()
    }

    /// Length of the one file that the stream is, of which so much was decoded. Of one whose end is lost that is one
    /// byte more: who reads so far gets an error, and takes no part for the whole.
    pub(super) fn length_of_file(&self, decoded: u64) -> u64 {
        decoded.saturating_add(u64::from(self.ended_by.is_some() || self.shifts.borrow().are_at_or_behind(decoded)))
    }

    /// What is wrong with the stream, for people, each with a byte of the decoded data. What has ended it is told once,
    /// also where it is damage as well.
    pub(super) fn told(&mut self, codec: &dyn Codec) -> Vec<(u64, String)> {
        let mut ended = self.ended_by.take().map(|(at, error)| (at, error.to_string()));
        let mut notes = Vec::new();
        for damage in std::mem::take(&mut self.damage) {
            let is_end = |(at, error): &mut (u64, String)| damage.decoded.end == *at && error.starts_with(&damage.what);
            let rest = ended.take_if(is_end).map_or("", |_| "; nothing behind it can be decoded");
            let what = format!("{}: {}, {}{rest}", codec.name(), damage.what, damage.place());
            notes.push((damage.decoded.start, what));
        }
        notes.extend(
            ended.map(|(at, error)| (at, format!("{}: {error}; what comes before it is served", codec.name()))),
        );
        notes
    }

    fn buffered(&self) -> usize {
        self.end - self.from
    }

    /// Decodes more behind what is buffered.
    fn fill(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        if let Some(room) = &mut self.room {
            let bytes = self.indexing.memory_after(Self::BATCH as u64);
            room.ask(bytes, self.receiver).map_err(io::Error::other)?;
        }
        self.buffer.copy_within(self.from..self.end, 0);
        let kept = self.buffered();
        if self.buffer.len() < kept + Self::BATCH {
            self.buffer.resize(kept + Self::BATCH, 0);
        }
        let result = self.indexing.read(&mut self.buffer[kept..][..Self::BATCH]);
        (self.from, self.end) = (0, kept + *result.as_ref().unwrap_or(&0));
        if let Some(crc) = &mut self.crc {
            crc.update(&self.buffer[kept..self.end]);
        }
        match result {
            Ok(0) => self.at_end = true,
            Ok(_) if self.indexing.decoded_position() > self.most => {
                self.at_end = true;
                let error = io::Error::new(io::ErrorKind::InvalidData, TOO_MUCH);
                self.ended_by = Some((self.indexing.decoded_position(), error));
            }
            Ok(_) => {}
            Err(error)
                if is_bad_block(&error)
                    && let Some(unread) = self.unread =>
            {
                unread.store(true, Ordering::Relaxed);
                self.at_end = true;
                self.ended_by = Some((self.indexing.decoded_position(), error));
            }
            // What cannot be decoded here may stand behind what can: a frame of a dictionary that is not there.
            Err(error) if is_damage(&error) => {
                self.at_end = true;
                self.ended_by = Some((self.indexing.decoded_position(), error));
            }
            Err(error) => return Err(error),
        }
        if let Some(progress) = self.progress {
            progress.store(self.indexing.compressed_position(), Ordering::Relaxed);
        }
        self.take()?;
        // Bytes that were damaged are known to be so only now.
        let is_right = self.damage.is_empty() && !self.has_shifts() && self.ended_by.is_none();
        let Some(mut sink) = self.sink.take().filter(|_| is_right) else { return Ok(()) };
        let unsettled = self.indexing.decoded_position() - self.indexing.settled();
        if sink.write(&self.buffer[kept..self.end], unsettled)? {
            self.sink = Some(sink);
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<()> {
        let mut damage = Vec::new();
        self.indexing.take_chunks(&mut self.chunks);
        self.indexing.take_damage(&mut damage);
        let mut shifts = Vec::new();
        self.indexing.take_shifts(&mut shifts);
        self.shifts.borrow_mut().add(&mut shifts);
        let room = MOST_NOTES.saturating_sub(self.damage.len());
        self.damage.extend(damage.iter().take(room).cloned());
        self.untold.append(&mut damage);
        if self.tells { self.hand_over() } else { Ok(()) }
    }

    /// True if there is any such place in what was decoded.
    pub(super) fn has_shifts(&self) -> bool {
        self.shifts.borrow().first.is_some()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        for chunk in self.chunks.drain(..) {
            self.receiver.call(Call::Chunk(chunk)).map_err(io::Error::other)?;
        }
        for damage in self.untold.drain(..) {
            self.receiver.damage(damage).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Stream for DecodingStream<'_> {
    fn position(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if length > MOST_PEEKED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while self.buffered() < length && !self.at_end {
            self.fill()?;
        }
        Ok(&self.buffer[self.from..self.end.min(self.from + length)])
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0;
        while skipped < length {
            if self.buffered() == 0 {
                if self.at_end {
                    break;
                }
                self.fill()?;
            }
            let step = (length - skipped).min(self.buffered() as u64);
            self.from += step as usize;
            self.position += step;
            skipped += step;
        }
        Ok(skipped)
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.shifts.borrow().first.is_some_and(|first| first < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tarnfs_format::Body;
    use tarnfs_index::Error;

    use super::super::receiver::About;

    /// Keeps damage.
    #[derive(Default)]
    struct Kept(Cell<Vec<Range<u64>>>);

    impl Receiver for Kept {
        fn about(&self, _: About, _: &Entry) -> Result<(), Error> {
            unreachable!()
        }

        fn call(&self, call: Call) -> Result<(), Error> {
            let Call::Damage(damage) = call else { unreachable!() };
            let mut all = self.0.take();
            all.push(damage.decoded);
            self.0.set(all);
            Ok(())
        }
    }

    /// From where to where damage goes that an entry with its header at `header` and a body of so many bytes gets.
    fn settled(shifts: &mut Shifts, header: u64, stored: u64) -> Vec<(u64, u64)> {
        let kept = Kept::default();
        let body = Body { offset: header + 512, stored, size: stored, ..Body::default() };
        shifts.settle(&Entry { header, body, ..Entry::default() }, &kept).unwrap();
        kept.0.into_inner().iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_place_harms_the_entry_in_which_it_lies_alone() {
        let harmed: [(u64, &[(u64, u64)]); 5] =
            [(512, &[]), (513, &[(1024, 1536)]), (1024, &[(1024, 1536)]), (1535, &[(1535, 1536)]), (1536, &[])];
        for (at, expected) in harmed {
            let mut shifts = Shifts::default();
            shifts.add(&mut vec![at]);
            assert_eq!(settled(&mut shifts, 512, 512), expected, "{at}");
        }
    }

    #[test]
    fn an_archive_knows_of_the_places_that_its_members_have_passed() {
        let mut shifts = Shifts::default();
        shifts.add(&mut vec![100, 3000, 3100, 7000, 9000]);
        shifts.enter(512);
        assert_eq!(settled(&mut shifts, 1024, 512), []);
        shifts.enter(2048);
        assert_eq!(settled(&mut shifts, 2560, 512), [(3072, 3584)]);
        assert_eq!(shifts.leave(), Some(3000));
        // Of the archive in the archive: what its members have not passed.
        assert_eq!(settled(&mut shifts, 2048, 5000), [(7000, 7560)]);
        assert_eq!(shifts.leave(), Some(3000));
        assert_eq!(settled(&mut shifts, 512, 7900), []);
        // Of one whose members have passed none.
        shifts.enter(8192);
        assert_eq!(settled(&mut shifts, 8300, 10), []);
        assert_eq!((shifts.leave(), settled(&mut shifts, 8192, 4096)), (None, vec![(9000, 12_800)]));
    }

    /// Of what lies where there are more of them than are kept, nothing is served.
    #[test]
    fn places_that_are_not_kept_count() {
        let mut shifts = Shifts::default();
        let most = MOST_NOTES as u64;
        shifts.add(&mut (1..=2 * most).map(|number| number * 2048).collect());
        shifts.enter(0);
        assert_eq!(settled(&mut shifts, 512, 512), []);
        assert_eq!(settled(&mut shifts, most * 2048 + 512, 1024), []);
        let in_gap = (most + 1) * 2048 - 512;
        assert_eq!(settled(&mut shifts, in_gap, 1024), [(in_gap + 512, in_gap + 1536)]);
        assert_eq!(settled(&mut shifts, in_gap + 8192, 1024), [(in_gap + 8704, in_gap + 9728)]);
        assert_eq!(shifts.leave(), Some(2048));
        // Behind all of them.
        assert_eq!(settled(&mut shifts, 2 * most * 2048, 1024), []);
        assert_eq!(settled(&mut shifts, 2 * most * 2048 + 2048, 1024), []);
    }

    /// What a sink gets.
    #[derive(Debug, Default)]
    struct Got(std::sync::Mutex<Vec<u8>>);

    impl Sink for Got {
        fn write(&self, decoded: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap().extend_from_slice(decoded);
            Ok(())
        }
    }

    /// Letters that do not compress well: three blocks of bzip2.
    fn letters() -> Vec<u8> {
        let mut state = 1_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"0123456789abcdef"[(state >> 28) as usize]
        };
        (0..290_000).map(next).collect()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
        let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
        let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
        assert_eq!(code, zlib_rs::ReturnCode::Ok);
        packed.to_vec()
    }

    /// What is around a stream that is decoded.
    #[derive(Default)]
    struct Given {
        kept: Kept,
        shifts: RefCell<Shifts>,
        cancel: Cancel,
        progress: AtomicU64,
    }

    impl Given {
        fn stream(&self, codec: &str, source: tarnfs_source::SharedSource) -> DecodingStream<'_> {
            let codec = tarnfs_codec::by_name(codec).unwrap();
            let indexing = Indexing::new(codec, source, &tarnfs_codec::Options::default()).unwrap();
            DecodingStream::new(indexing, &self.kept, &self.shifts, &self.cancel)
        }

        fn memory(&self, codec: &str, packed: &[u8]) -> DecodingStream<'_> {
            self.stream(codec, Arc::new(tarnfs_source::MemorySource::new(packed, "packed")))
        }
    }

    #[test]
    fn a_stream_is_what_was_packed_up_to_its_end() {
        let (letters, given) = (letters(), Given::default());
        let mut stream = given.memory("gzip", &gzip(&letters)).with_crc().of_archive(&given.progress, None);
        assert_eq!(stream.peek(MOST_PEEKED + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(stream.peek(10).unwrap(), &letters[..10]);
        assert_eq!(stream.position(), 0);
        assert_eq!((stream.skip(7).unwrap(), stream.position()), (7, 7));
        assert_eq!(stream.peek(280_000).unwrap(), &letters[7..280_007]);
        assert_eq!(stream.skip(u64::MAX).unwrap(), letters.len() as u64 - 7);
        assert_eq!((stream.peek(1).unwrap().len(), stream.skip(1).unwrap()), (0, 0));
        assert_eq!(stream.crc(), Some(crc32fast::hash(&letters)));
        assert_eq!(given.progress.load(Ordering::Relaxed), gzip(&letters).len() as u64);
        assert!(stream.ended_by.is_none() && !stream.has_shifts() && stream.length_of_file(5) == 5);
        assert!(stream.told(tarnfs_codec::by_name("gzip").unwrap()).is_empty());
        // Of a bomb no more is decoded than a batch behind what it may have.
        let length = letters.len() as u64;
        for (most, is_whole) in [(length, true), (length - 1, false), (0, false)] {
            let given = Given::default();
            let mut stream = given.memory("gzip", &gzip(&letters)).up_to(most);
            let passed = stream.skip(u64::MAX).unwrap();
            assert_eq!((stream.ended_by.is_none(), passed == length), (is_whole, most + 1 >= length), "{most}");
            let told = stream.told(tarnfs_codec::by_name("gzip").unwrap());
            assert!(is_whole || told[0].1.contains("is it a bomb"), "{told:?}");
        }
        let given = Given::default();
        let mut stream = given.memory("gzip", &gzip(&letters));
        given.cancel.cancel();
        assert_eq!(stream.skip(1).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    /// Who reads along gets what is right, and nothing behind the first thing that is not.
    #[test]
    fn nothing_that_may_be_wrong_is_handed_on() {
        let letters = letters();
        let got = |codec: &str, packed: &[u8]| {
            let (given, sink) = (Given::default(), Arc::new(Got::default()));
            let shared = Arc::clone(&sink) as Arc<dyn Sink>;
            let mut stream = given.memory(codec, packed).of_archive(&given.progress, Some(&shared));
            let passed = stream.skip(u64::MAX).unwrap();
            let is_whole = stream.ended_by.is_none() && stream.damage.is_empty() && !stream.has_shifts();
            let longer = stream.length_of_file(passed) - passed;
            let told = stream.told(tarnfs_codec::by_name(codec).unwrap());
            assert_eq!(told.is_empty(), is_whole, "{told:?}");
            let got = sink.0.lock().unwrap().clone();
            (got, is_whole, longer)
        };
        for (codec, mut packed) in [("gzip", gzip(&letters)), ("bzip2", bzip2(&letters))] {
            let (whole, is_whole, longer) = got(codec, &packed);
            assert!(whole == letters && is_whole && longer == 0, "{codec}: {} bytes", whole.len());
            // Its check at the end, and something in the middle: all of gzip has one check, a block of bzip2 its own.
            let end = packed.len() - 6;
            packed[end] ^= 1;
            let (part, is_whole, _) = got(codec, &packed);
            assert!(!is_whole && letters.starts_with(&part), "{codec}");
            assert_eq!(part.is_empty(), codec == "gzip", "{codec}: {} bytes", part.len());
            packed[end] ^= 1;
            let middle = packed.len() / 2;
            packed[middle] ^= 1;
            let (part, is_whole, _) = got(codec, &packed);
            assert!(!is_whole && letters.starts_with(&part) && part.len() < letters.len() / 2, "{codec}");
            assert_eq!(part.is_empty(), codec == "gzip", "{codec}: {} bytes", part.len());
            // Of one that was cut, who reads the last byte has to get an error.
            packed[middle] ^= 1;
            let (part, is_whole, longer) = got(codec, &packed[..middle]);
            assert!(!is_whole && longer == 1 && letters.starts_with(&part) && part.len() < letters.len(), "{codec}");
        }
    }

    /// A disk that cannot read on.
    #[derive(Debug)]
    struct Bad(Vec<u8>, usize);

    impl tarnfs_source::Source for Bad {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..self.1).unwrap_or_default();
            if rest.is_empty() && !buffer.is_empty() && offset < self.0.len() as u64 {
                return Err(io::Error::from_raw_os_error(5));
            }
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }

        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn describe(&self) -> String {
            "bad".to_owned()
        }
    }

    #[test]
    fn a_bad_block_ends_a_stream_where_that_is_wanted() {
        let packed = gzip(&letters());
        let disk = || Arc::new(Bad(packed.clone(), packed.len() / 2));
        let (given, unread) = (Given::default(), AtomicBool::new(false));
        let error = given.stream("gzip", disk()).skip(u64::MAX).unwrap_err();
        assert!(is_bad_block(&error), "{error}");
        let given = Given::default();
        let mut stream = given.stream("gzip", disk()).up_to_bad_blocks(&unread);
        let passed = stream.skip(u64::MAX).unwrap();
        assert!(passed < letters().len() as u64 && unread.load(Ordering::Relaxed), "{passed}");
        assert!(stream.ended_by.as_ref().is_some_and(|(at, error)| *at == passed && is_bad_block(error)));
    }
}
