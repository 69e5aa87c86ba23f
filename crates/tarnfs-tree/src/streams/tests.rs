use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tarnfs_codec::{Chunk, ChunkTable, Damage};
use tarnfs_format::Piece;
use tarnfs_index::{Archive, FIRST_NESTED, History, Holder, InPieces, Node, Row, Shape, StreamTables, Summary};
use tarnfs_source::{Budget, Fingerprint, MemorySource};

use super::*;

type Answer<T> = Result<T, tarnfs_index::Error>;

/// An index that knows of nested streams only, each in the one before it, and looks whether a lock is held while it is
/// asked.
#[derive(Debug)]
struct Toy {
    summary: Summary,
    streams: OnceLock<Weak<Streams>>,
    /// Streams in each other.
    chain: u32,
    /// Each is a file that was deflated so many times, as a block that is stored: 5 bytes, and what is in it.
    steps: usize,
    /// How often it was asked for damage.
    asked: AtomicUsize,
}

/// Bytes of the file.
const LENGTH: usize = 2000;

impl Toy {
    fn length(&self, number: u32) -> u64 {
        (LENGTH - 5 * self.steps * (number - FIRST_NESTED + 1) as usize) as u64
    }
}

impl Toy {
    fn look(&self) {
        let streams = self.streams.get().unwrap().upgrade().unwrap();
        assert!(streams.nested.try_lock().is_ok(), "the index is read while streams are locked");
    }
}

impl Index for Toy {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn lookup(&self, _: Node, _: &[u8]) -> Answer<Option<Row>> {
        unreachable!()
    }

    fn children(&self, _: Node, _: u64, _: &mut dyn FnMut(u64, &[u8], &Row) -> bool) -> Answer<()> {
        unreachable!()
    }

    fn row(&self, _: Node) -> Answer<Option<Row>> {
        unreachable!()
    }

    fn named_row(&self, _: Node) -> Answer<Option<(Row, Vec<u8>)>> {
        unreachable!()
    }

    fn parent(&self, _: Node) -> Answer<Node> {
        unreachable!()
    }

    fn link(&self, _: Node) -> Answer<Vec<u8>> {
        unreachable!()
    }

    fn xattrs(&self, _: Node) -> Answer<tarnfs_format::Xattrs> {
        unreachable!()
    }

    fn extents(&self, _: Node) -> Answer<Vec<tarnfs_source::Extent>> {
        unreachable!()
    }

    fn owner_names(&self, _: Node) -> Answer<(Vec<u8>, Vec<u8>)> {
        unreachable!()
    }
}

impl InPieces for Toy {
    fn each_piece(&self, holder: Holder, receive: &mut dyn FnMut(&Piece) -> bool) -> Answer<()> {
        let Holder::Stream(number) = holder else { unreachable!() };
        let (length, stored) = (self.length(number), self.length(number) + 5 * self.steps as u64);
        let step = |step| {
            let decoded_length = Some(stored - 5 * (step as u64 + 1));
            tarnfs_format::Step { codec: "deflate".to_owned(), decoded_length, ..Default::default() }
        };
        let coder = tarnfs_format::Coder { steps: (0..self.steps).map(step).collect(), ..Default::default() };
        receive(&Piece { length, stored, decoded: length, coder: Some(Arc::new(coder)), ..Piece::default() });
        Ok(())
    }
}

impl History for Toy {
    fn replaced(&self, _: &mut dyn FnMut(Node, &[u8], &Row)) -> Answer<()> {
        unreachable!()
    }

    fn replaced_of(&self, _: Node, _: &[u8], _: u64, _: &mut dyn FnMut(Option<u64>, &Row) -> bool) -> Answer<u64> {
        unreachable!()
    }

    fn hard_links(&self, _: &mut dyn FnMut(Node, &[u8], u64, Node)) -> Answer<()> {
        unreachable!()
    }
}

impl StreamTables for Toy {
    fn nested(&self, number: u32) -> Answer<Nested> {
        self.look();
        let input = if (number - FIRST_NESTED).is_multiple_of(self.chain) { 0 } else { number - 1 };
        if self.steps > 0 {
            let decoded_length = self.length(number);
            return Ok(Nested { codec: STORED_IN_PIECES.to_owned(), decoded_length, input, start: 0, length: 0 });
        }
        Ok(Nested { codec: "gzip".to_owned(), decoded_length: 10, input, start: 0, length: 10 })
    }

    fn chunks(self: Arc<Self>, _: usize) -> Answer<Arc<dyn ChunkTable>> {
        self.look();
        Ok(Arc::new(Nothing))
    }

    fn damage_in(&self, _: Range<u64>) -> Answer<Option<Damage>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

#[derive(Debug)]
struct Nothing;

impl ChunkTable for Nothing {
    fn chunk_at(&self, _: u64) -> io::Result<Option<Chunk>> {
        Ok(None)
    }

    fn decoded_length(&self) -> u64 {
        10
    }

    fn damage_in(&self, _: Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

/// Streams of which so many lie in each other.
fn streams(chain: u32) -> Arc<Streams> {
    streams_of(chain, 0)
}

fn streams_of(chain: u32, steps: usize) -> Arc<Streams> {
    toy(chain, steps).0
}

fn toy(chain: u32, steps: usize) -> (Arc<Streams>, Arc<Toy>) {
    let mut bytes = vec![0; if steps > 0 { LENGTH } else { 100 }];
    for (number, header) in bytes.as_chunks_mut::<5>().0.iter_mut().enumerate().take(steps * chain as usize) {
        let length = (LENGTH - 5 * (number + 1)) as u16;
        let ([low, high], [not_low, not_high]) = (length.to_le_bytes(), (!length).to_le_bytes());
        *header = [1, low, high, not_low, not_high];
    }
    let file: SharedSource = Arc::new(MemorySource::new(bytes, "toy"));
    let archive = Archive { length: 100, fingerprint: Fingerprint::of(&*file).unwrap(), modified: 0 };
    let summary = Summary {
        archive,
        name: None,
        shape: Shape::default(),
        layers: Vec::new(),
        format: "tar".to_owned(),
        end: 100,
        grown_from: None,
        files: 1,
        folders: 1,
        bytes: 10,
        has_xattrs: false,
        has_acls: false,
        label: None,
        unlisted: Vec::new(),
        has_locked: false,
        renamed: tarnfs_index::Renamed::default(),
        has_directories: false,
        notes: Vec::new(),
    };
    let index = Arc::new(Toy { summary, streams: OnceLock::new(), chain, steps, asked: AtomicUsize::new(0) });
    let context = StreamContext {
        passwords: crate::open::Passwords::default(),
        members: None,
        cancel: tarnfs_source::Cancel::default(),
        cache: PieceCache::new(Budget::new(16 << 20)),
        workers: Workers::new(1),
        limits: Limits::default(),
        decoding: DecodeContext::default(),
    };
    let streams = Arc::new(Streams::new(Arc::clone(&index) as Arc<dyn Index>, file, Vec::new(), context));
    index.streams.set(Arc::downgrade(&streams)).unwrap();
    (streams, index)
}

/// Each part of a packed file needs all that is stored of it: who asks for many of them asks the index once.
#[test]
fn damage_of_a_packed_piece_is_asked_for_once() {
    let (streams, index) = toy(3, 1);
    for part in 0..100 {
        assert_eq!(streams.damage_of(FIRST_NESTED + 2, part * 10..part * 10 + 10).unwrap(), None);
    }
    assert_eq!(index.asked.load(Ordering::Relaxed), 1);
}

/// The index is read without the lock, and what is closed is dropped without it; so one that is held is still there.
#[test]
fn streams_are_opened_once_and_without_a_lock() {
    let streams = streams(3);
    let held = streams.get(FIRST_NESTED + 2).unwrap();
    assert_eq!((streams.open().streams.len(), held.depth()), (3, 3));
    for number in 0..4 * MOST_OPEN as u32 {
        let stream = streams.get(FIRST_NESTED + number).unwrap();
        assert_eq!(stream.depth() as u32, number % 3 + 1);
        assert!(streams.open().streams.len() <= MOST_OPEN);
    }
    let (first, second) = (streams.get(FIRST_NESTED).unwrap(), streams.get(FIRST_NESTED).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    let mut open = streams.open();
    let other = DecodedSource::new(
        tarnfs_codec::by_name("gzip").unwrap(),
        Arc::clone(&streams.innermost),
        Arc::new(Nothing),
        Arc::clone(&streams.context.cache),
        Arc::clone(&streams.context.workers),
        Limits::default(),
    );
    let opened = || Opened::Decoded(Arc::clone(&other));
    let ((shown, _), dropped) = open.add(FIRST_NESTED, opened(), Arc::default());
    assert!(Arc::ptr_eq(&shown, &first), "the first one stays");
    let is_other = |opened: &Opened| matches!(opened, Opened::Decoded(decoded) if Arc::ptr_eq(decoded, &other));
    assert!(matches!(&dropped[..], [Stream { opened, .. }] if is_other(opened)));
    let mut dropped = Vec::new();
    for number in 0..MOST_OPEN as u32 {
        dropped.extend(open.add(1 << 20 | number, opened(), Arc::default()).1);
    }
    assert!(dropped.len() >= MOST_OPEN / 2, "{} were handed to the caller", dropped.len());
}

/// However many have it open, a stream in very many others is opened once; what nobody has is forgotten.
#[test]
fn a_deep_stream_is_shared() {
    let streams = streams(MOST_CALLS as u32 + 1);
    let deepest = FIRST_NESTED + MOST_CALLS as u32;
    let (first, second) = (streams.get(deepest).unwrap(), streams.get(deepest).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    let known = || streams.deep.lock().streams.len();
    for number in 0..5 * MOST_OPEN as u32 {
        streams.get(deepest + number * (MOST_CALLS as u32 + 1)).unwrap();
        assert!(known() <= MOST_OPEN, "{}", known());
    }
    assert!(Arc::ptr_eq(&first, &streams.get(deepest).unwrap()));
}

/// What is decoded of a stream holds that stream: in a circle nothing would ever be dropped.
#[test]
fn streams_of_pieces_that_were_read_are_dropped_with_the_archive() {
    for (chain, steps) in [(3, 1), (MOST_IN_PIECES, MOST_DEPTH / 3)] {
        let streams = streams_of(chain, steps);
        let file = Arc::downgrade(&streams.innermost);
        let (stream, coded) = streams.with_coded(FIRST_NESTED + chain - 1).unwrap();
        let mut bytes = vec![9; stream.len() as usize];
        stream.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{bytes:?}");
        drop((streams, coded));
        // Whoever has a file open can still read it.
        stream.read_exact_at(&mut bytes, 0).unwrap();
        drop(stream);
        assert_eq!(file.strong_count(), 0, "{chain} streams in each other");
    }
}

/// A file that was stored in very many steps, in others of this kind: the calls of their decoders fill no stack.
#[test]
fn many_decoders_in_each_other_are_read_with_little_stack() {
    for (chain, steps) in [(2, 20), (3, 24), (4, 32)] {
        let streams = streams_of(chain, steps);
        let read = move || {
            let stream = streams.get(FIRST_NESTED + chain - 1).unwrap();
            let mut bytes = vec![9; stream.len() as usize];
            stream.read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
            // What waits at one depth waits only for what is less deep.
            assert!(stream.depth() >= chain as usize * steps, "{} of {chain} in each other", stream.depth());
        };
        // Less than a thread of a mount has.
        std::thread::Builder::new().stack_size(1 << 20).spawn(read).unwrap().join().unwrap();
    }
}
