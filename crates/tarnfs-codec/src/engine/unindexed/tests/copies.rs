//! Copies of what is slow to decode.

use super::*;

/// Files of a solid block are read in any order: what is slow is decoded once, and no seek points are looked for.
#[test]
fn what_is_slow_to_decode_is_copied_and_has_no_seek_points() {
    let bytes = content(20 << 20);
    let (packed, _) = deflated(&bytes);
    let step = |codec: &'static Slow, source: SharedSource| {
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(1));
        let (options, context) = (Options::default(), DecodeContext::default());
        UnindexedSource::new(of(codec, source, bytes.len() as u64, None), options, context, cache, workers)
    };
    let slow = |codec: &str| -> &'static Slow {
        Box::leak(Box::new(Slow(coder_by_name(codec).unwrap(), AtomicUsize::new(0))))
    };
    let mut undone = bytes.clone();
    for at in 1..undone.len() {
        undone[at] = undone[at].wrapping_add(undone[at - 1]);
    }
    // What a password opens as well.
    for is_secret in [false, true] {
        let (deflate, delta) = (slow("deflate"), slow("delta"));
        let input = Arc::new(step(deflate, Arc::new(MemorySource::new(packed.clone(), "a member"))));
        let mut last = step(delta, Arc::<UnindexedSource>::clone(&input));
        last.options.coder.properties = [0].into();
        if is_secret {
            last.options.scratch = last.options.scratch.for_secrets();
        }
        let last = Arc::new(last.decoded_from(&[Arc::clone(&input)]));
        let mut part = vec![0; 50_000];
        for at in [18 << 20, 3 << 20, 0, 10 << 20, 19 << 20, 1 << 20] {
            last.read_exact_at(&mut part, at as u64).unwrap();
            assert!(part == undone[at..at + part.len()], "at {at}");
            last.read_ahead_into_copy();
        }
        while last.done.get().is_none() {
            std::thread::yield_now();
        }
        assert!(last.is_verified() && last.memory() == 0, "{}", last.memory());
        assert!(lock(&input.pass.pass).is_none() && lock(&input.pass.tail).is_none());
        assert!(matches!(last.done.get(), Some(Done::Copied(copied)) if copied.is_encrypted() == is_secret));
    }
}

/// A codec that says that it is slow, and counts how often a first pass begins.
struct Counting(&'static dyn Codec, AtomicUsize);

impl Codec for Counting {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pace(&self) -> crate::Pace {
        crate::Pace { bytes_per_millisecond: 10_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn crate::FirstPass>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.first_pass(source, options)
    }

    fn resume(
        &self,
        source: SharedSource,
        point: &crate::SeekPoint,
        context: &DecodeContext,
    ) -> io::Result<Box<dyn crate::Decoder>> {
        self.0.resume(source, point, context)
    }
}

/// Seek points that are far from each other are worth less than a copy, whether they could be kept or not.
#[test]
fn a_copy_is_kept_where_seek_points_are_far_apart() {
    let bytes = content(NEAR as usize + (4 << 20));
    let (packed, crc) = deflated_at(6, &bytes);
    let (twice, _) = deflated(&packed);
    let deflate: &'static Counting =
        Box::leak(Box::new(Counting(coder_by_name("deflate").unwrap(), AtomicUsize::new(0))));
    let passes = || deflate.1.swap(0, Ordering::Relaxed);
    let step = |source: SharedSource, length: usize, crc, spacing| {
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
        let options = Options { seek_point_spacing: spacing, ..Options::default() };
        UnindexedSource::new(of(deflate, source, length as u64, crc), options, DecodeContext::default(), cache, workers)
    };
    let alone = |spacing, kept: &Arc<Kept>| {
        let stored = Arc::new(MemorySource::new(packed.clone(), "a member"));
        step(stored, bytes.len(), Some(crc), spacing).keeping(Some(Arc::clone(kept) as Arc<dyn KeptTable>))
    };
    let read = |source: &UnindexedSource| {
        let mut part = vec![0; 50_000];
        for at in [20 << 20, 3 << 20, 0, 23 << 20, 10 << 20] {
            source.read_exact_at(&mut part, at as u64).unwrap();
            assert!(part == bytes[at..at + part.len()], "at {at}");
        }
        let mut last = [0];
        source.read_exact_at(&mut last, bytes.len() as u64 - 1).unwrap();
        assert!(last == bytes[bytes.len() - 1..]);
        matches!(source.done.get(), Some(Done::Copied(_)))
    };
    let kept = Arc::new(Kept::default());
    for _ in 0..2 {
        assert!(read(&alone(u64::MAX, &kept)), "one seek point, at the start");
        assert!(kept.load().is_none() && passes() == 1);
    }
    assert!(!read(&alone(1 << 20, &kept)), "seek points are near");
    assert!(kept.load().is_some() && passes() == 1);
    assert!(!read(&alone(1 << 20, &kept)) && passes() == 0, "they are kept");
    // Another version may have kept others.
    let mut far = kept.load().unwrap();
    far.chunks.truncate(1);
    far.chunks[0].length = bytes.len() as u64;
    kept.store(&far);
    assert!(read(&alone(u64::MAX, &kept)) && passes() == 1, "those that are kept are far apart");
    assert!(!read(&alone(1 << 20, &kept)) && passes() == 1, "near ones are found");
    assert!(!read(&alone(1 << 20, &kept)) && passes() == 0, "and kept in place of them");
    // Where there can be no copy they are better than nothing.
    let kept = Arc::new(Kept::default());
    let mut poor = alone(u64::MAX, &kept);
    poor.options.scratch = poor.options.scratch.without_copies();
    assert!(!read(&poor) && kept.load().is_some() && passes() == 1);
    let mut poor = alone(u64::MAX, &kept);
    poor.options.scratch = poor.options.scratch.without_copies();
    assert!(!read(&poor) && passes() == 0, "and are used");
    // Of what it is decoded from no seek points are kept.
    let stored = Arc::new(MemorySource::new(twice, "a member"));
    let inner = Arc::new(step(stored, packed.len(), None, 1 << 20));
    let outer = step(Arc::clone(&inner) as SharedSource, bytes.len(), Some(crc), 1 << 20).decoded_from(&[inner]);
    let kept = Arc::new(Kept::default());
    assert!(read(&outer.keeping(Some(Arc::clone(&kept) as Arc<dyn KeptTable>))));
    assert!(kept.load().is_none() && passes() == 2);
}

/// A disk may lose what it has taken, and tell nobody who does not ask.
#[test]
fn what_a_copy_has_lost_is_never_served() {
    const LOST: u64 = 1 << 20;
    let bytes = content(20 << 20);
    let (packed, crc) = deflated(&bytes);
    let deflate: &'static Counting =
        Box::leak(Box::new(Counting(coder_by_name("deflate").unwrap(), AtomicUsize::new(0))));
    let passes = || deflate.1.swap(0, Ordering::Relaxed);
    let open = || {
        let source = Arc::new(MemorySource::new(packed.clone(), "a member"));
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
        let (options, context) = (Options::default(), DecodeContext::default());
        UnindexedSource::new(of(deflate, source, bytes.len() as u64, Some(crc)), options, context, cache, workers)
    };
    let mut part = vec![0; 50_000];
    let mut read = |source: &UnindexedSource, at: u64| {
        source.read_exact_at(&mut part, at)?;
        assert!(part == bytes[at as usize..][..part.len()], "at {at}");
        io::Result::Ok(())
    };
    let source = open(); // While it is decoded, it is decoded again.
    read(&source, 10 << 20).unwrap();
    lock(&source.pass.pass).as_ref().unwrap().copied.as_ref().unwrap().lose(LOST);
    read(&source, 2 << 20).unwrap();
    assert_eq!(passes(), 1);
    for at in [LOST, 15 << 20, 0, bytes.len() as u64 - 50_000, LOST] {
        read(&source, at).unwrap();
    }
    assert!(source.is_verified() && passes() == 1 && matches!(source.done.get(), Some(Done::Long(_))));
    let source = open(); // Later it is an error.
    read(&source, bytes.len() as u64 - 50_000).unwrap();
    let Some(Done::Copied(copied)) = source.done.get() else { panic!("it was copied") };
    copied.lose(LOST);
    assert!([0, 10 << 20, LOST + (64 << 10)].iter().all(|&at| read(&source, at).is_ok()));
    assert!(!source.is_idle_copy(Duration::from_secs(3600)));
    assert_eq!(read(&source, LOST).unwrap_err().kind(), io::ErrorKind::Other);
    assert!(source.is_idle_copy(Duration::from_secs(3600)), "it is closed, and decoded when it is opened again");
}
