use super::*;
use tarnfs_index::WriterOptions;
use tarnfs_source::{Budget, Cancel};

fn direct() -> Direct {
    let options = WriterOptions { limits: Limits::default(), budget: Budget::new(0), cancel: Cancel::default() };
    Direct::new(Writer::new(options).unwrap(), Limits::default(), 10)
}

/// A file there.
fn at(path: &[u8]) -> Entry {
    Entry { path: path.to_vec(), ..Entry::default() }
}

#[test]
fn notes_are_bounded_in_number_and_in_bytes() {
    let few = direct();
    for at in 0..2 * MOST_NOTES as u64 {
        few.note(at, "short".to_owned()).unwrap();
    }
    let notes = few.into_parts().1;
    assert_eq!((notes.len(), notes.last().map(|note| note.0)), (MOST_NOTES, Some(MOST_NOTES as u64 - 1)));
    let long = direct();
    for at in 0..MOST_NOTES as u64 {
        long.note(at, "\u{20ac}".repeat(10_000)).unwrap();
    }
    let notes = long.into_parts().1;
    // Cut at a whole character.
    assert!(notes.iter().all(|(_, what)| what.len() == MOST_OF_NOTE / 3 * 3 && what.capacity() < 2 * MOST_OF_NOTE));
    assert_eq!(notes.len(), MOST_OF_NOTES / (MOST_OF_NOTE / 3 * 3));
}

fn candidate(path: &[u8], place: Range<u64>) -> Candidate {
    Candidate {
        input: 0,
        file_in: 0,
        archive: 0,
        start: place.start,
        length: place.end - place.start,
        bytes: std::sync::Arc::new(tarnfs_source::MemorySource::new(Vec::new(), "test")),
        damaged: Vec::new(),
        pieces: None,
        split: None,
        codec: None,
        name: Vec::new(),
        makes_folder: true,
        file: Box::new(Entry { path: path.to_vec(), ..Entry::default() }),
        expected: None,
        content: None,
        instead: None,
        is_layer: false,
        place: super::super::walk::MemberPlace { prefix: path.to_vec(), ..Default::default() },
        told_at: 0,
    }
}

/// It comes with what is damaged of it.
#[allow(clippy::single_range_in_vec_init, reason = "it is one place that is damaged")]
#[test]
fn what_waits_is_told_what_is_damaged_of_it() {
    let damage = |decoded: Range<u64>| {
        let (lost_from, what) = (decoded.end, "a test".to_owned());
        Damage { decoded, lost_from, compressed: 1, compressed_from: 1, what }
    };
    // From here on there is more than is noted.
    let many = 1000 * (MOST_NOTES as u64 - 2);
    let cases: [(Range<u64>, &[Range<u64>]); 7] = [
        (0..100, &[]),
        (100..200, &[0..50, 70..80]),
        (150..170, &[]),
        (140..171, &[0..10, 30..31]),
        (900..2000, &[50..51, 1050..1051]),
        (many..many + 1000, &[950..1000]),
        (many + 5000..many + 5010, &[0..10]),
    ];
    for (place, expected) in cases {
        let direct = direct();
        direct.candidate(candidate(b"a", place.clone())).unwrap();
        direct.damage(damage(100..150)).unwrap();
        direct.damage(damage(170..180)).unwrap();
        for at in 0..2 * MOST_NOTES as u64 {
            direct.damage(damage(950 + 1000 * at..951 + 1000 * at)).unwrap();
        }
        assert_eq!(direct.next_candidate().unwrap().damaged, expected, "{place:?}");
        assert_eq!(direct.damaged.borrow().len(), MOST_NOTES + 1);
    }
}

/// Each from where to where.
type Ranges<'r> = &'r [(u64, u64)];

/// The same of one that lies in pieces, of which a coder undoes one.
#[test]
fn what_is_damaged_of_pieces_is_told_by_where_they_are() {
    let damage = |decoded: Range<u64>| {
        let (lost_from, what) = (decoded.end, "a test".to_owned());
        Damage { decoded, lost_from, compressed: 1, compressed_from: 1, what }
    };
    let piece = |hole, offset, coder| {
        let coder = if coder { Some(std::sync::Arc::default()) } else { None };
        tarnfs_format::Piece { hole, length: 100, offset, stored: 100, decoded: 100, coder, ..Default::default() }
    };
    // Bytes 10 to 110, 110 to 210 and 215 to 315 of it.
    let pieces = || Some(vec![piece(10, 1000, false), piece(0, 5000, true), piece(5, 3000, false)].into());
    let cases: [(Ranges<'_>, Ranges<'_>); 5] = [
        (&[], &[]),
        (&[(500, 900), (1150, 2000), (5000, 5100)], &[]),
        (&[(900, 1010), (3050, 3060)], &[(10, 20), (265, 275)]),
        (&[(3099, 4000)], &[(314, 315)]),
        // Where all is damaged, nothing of it is served anyway.
        (&[(500, 2000), (2500, 3200)], &[]),
    ];
    for (damaged, expected) in cases {
        let direct = direct();
        direct.candidate(Candidate { pieces: pieces(), length: 400, ..candidate(b"a", 0..400) }).unwrap();
        for &(from, to) in damaged {
            direct.damage(damage(from..to)).unwrap();
        }
        let found: Vec<_> = direct.next_candidate().unwrap().damaged.iter().map(|one| (one.start, one.end)).collect();
        assert_eq!(found, expected, "{damaged:?}");
    }
    // More than is noted.
    let direct = direct();
    let many = Some(vec![tarnfs_format::Piece { length: 1 << 20, stored: 1 << 20, ..Default::default() }].into());
    direct.candidate(Candidate { pieces: many, length: 2 << 20, ..candidate(b"a", 0..2 << 20) }).unwrap();
    for at in 0..MOST_NOTES as u64 + 10 {
        direct.damage(damage(2 * at..2 * at + 1)).unwrap();
    }
    assert_eq!(direct.next_candidate().unwrap().damaged.last(), Some(&(1 << 20..2 << 20)));
}

/// What waits is bounded in bytes; what does not fit stays a file.
#[test]
fn what_waits_is_bounded_in_bytes() {
    let direct = Direct { left: Cell::new(u64::MAX), ..direct() };
    let path = vec![b'x'; 60_000];
    let candidate = || candidate(&path, 0..0);
    let most = MOST_OF_WAITING / candidate().weight();
    assert!((500..600).contains(&most));
    for count in 0..2000 {
        assert_eq!(direct.has_room(), count <= most / 2, "{count}");
        direct.candidate(candidate()).unwrap();
    }
    assert_eq!((direct.waiting(), direct.notes.borrow().len()), (most, 2000 - most));
    while direct.next_candidate().is_some() {}
    assert_eq!(direct.bytes_of_waiting.get(), 0);
}

/// However many archives come one after the other, no more is kept than waits.
#[test]
fn what_has_been_read_leaves_no_room_behind() {
    let direct = Direct { left: Cell::new(u64::MAX), ..direct() };
    for round in 0..500 {
        // The last one that waited is taken before others are looked for.
        for _ in 0..4 {
            direct.candidate(candidate(b"a", 0..0)).unwrap();
        }
        for _ in 0..4 {
            direct.next_candidate().unwrap();
        }
        direct.begin_group();
        let candidates = direct.candidates.borrow();
        let room: usize = candidates.iter().map(VecDeque::capacity).sum();
        assert!(candidates.len() <= 2 && room <= 16, "{round}: {} groups with room for {room}", candidates.len());
    }
    // What waits in others is not lost.
    direct.candidate(candidate(b"b", 0..0)).unwrap();
    direct.begin_group();
    direct.begin_group();
    assert_eq!(direct.next_candidate().map(|found| found.file.path.clone()), Some(b"b".to_vec()));
    assert_eq!(direct.waiting(), 0);
}

/// What is taken back leaves room for others.
#[test]
fn notes_of_what_is_taken_back_are_gone() {
    let direct = direct();
    let entry = at(b"file");
    direct.note(1, "before".to_owned()).unwrap();
    for _ in 0..10 {
        direct.about(About::Ahead, &at(b"file")).unwrap();
        for at in 0..1000 {
            direct.note(at, "x".repeat(MOST_OF_NOTE)).unwrap();
        }
        direct.about(About::Ahead, &at(b"inner")).unwrap();
        direct.note(2, "inside".to_owned()).unwrap();
        direct.about(About::Confirm, &entry).unwrap();
        direct.about(About::TakeBack, &entry).unwrap();
    }
    direct.about(About::Ahead, &at(b"file")).unwrap();
    direct.note(3, "last".to_owned()).unwrap();
    direct.about(About::Confirm, &entry).unwrap();
    assert_eq!(direct.bytes_of_notes.get(), "beforelast".len());
    let notes = direct.into_parts().1;
    assert_eq!(notes, [(1, "before".to_owned()), (3, "last".to_owned())]);
}

/// While a file is looked into, what was found before it is read if there is too much of it.
#[test]
fn notes_of_others_stay_when_something_is_taken_back() {
    for depth in 0..2 {
        let direct = direct();
        (0..depth).for_each(|_| direct.about(About::Open, &at(b"around")).unwrap());
        let entry = at(b"file");
        let old = direct.archive_at(b"old", (0, 0)).unwrap();
        direct.about(About::Ahead, &at(b"file")).unwrap();
        direct.note(1, "of the file".to_owned()).unwrap();
        direct.about(About::Open, &at(b"file")).unwrap();
        direct.about(About::Open, &at(b"file/inner")).unwrap();
        direct.note(2, "inside".to_owned()).unwrap();
        let found = direct.archive_at(b"file/inner/found", (0, 0)).unwrap();
        direct.enter_archive(old);
        direct.about(About::Open, &at(b"old/inner")).unwrap();
        direct.note(3, "in the old one".to_owned()).unwrap();
        direct.call(Call::Close).unwrap();
        direct.leave_archive();
        direct.call(Call::Close).unwrap();
        direct.enter_archive(found);
        direct.note(4, "found inside".to_owned()).unwrap();
        direct.leave_archive();
        direct.call(Call::Close).unwrap();
        direct.about(About::TakeBack, &entry).unwrap();
        assert_eq!(direct.bytes_of_notes.get(), "in the old one".len());
        assert_eq!(direct.into_parts().1, [(3, "in the old one".to_owned())], "{depth}");
    }
}

/// Everything that a thread finds counts towards what may wait.
#[test]
fn what_waits_is_weighed_with_all_its_strings() {
    let long = || vec![b'x'; 1 << 20];
    let entries = [
        Entry { path: long(), ..Entry::default() },
        Entry { link: long(), ..Entry::default() },
        Entry { user: long(), ..Entry::default() },
        Entry { group: long(), ..Entry::default() },
        Entry { xattrs: vec![(Vec::new(), long())], ..Entry::default() },
        Entry { xattrs: vec![(long(), Vec::new())], ..Entry::default() },
        Entry { xattrs: vec![Default::default(); 1 << 15], ..Entry::default() },
    ];
    for entry in entries {
        let kind = entry.kind;
        assert!(Told::About(About::Entry, Box::new(entry)).weight() > 1 << 20, "{kind:?}");
    }
    assert!(Told::Call(Call::Note(0, "x".repeat(1 << 20))).weight() > 1 << 20);
}
