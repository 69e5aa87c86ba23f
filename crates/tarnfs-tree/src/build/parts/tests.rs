use super::*;

fn part(path: &str) -> Part {
    let pieces = Some(vec![Piece { length: 9, stored: 9, decoded: 9, ..Piece::default() }]);
    let body = Body { size: 9, stored: 9, pieces, ..Body::default() };
    let entry = Entry { path: path.as_bytes().to_vec(), body, ..Entry::default() };
    Part::new(entry, last_component(path.as_bytes()), path.ends_with("aa") || path.ends_with("01"), None)
}

fn amount() -> Arc<Amount> {
    Arc::new(Amount::of(0))
}

fn gathered(paths: &[&str]) -> Gathered {
    let (mut gathered, amount) = (Gathered::default(), amount());
    for path in paths {
        gathered.add((path.as_bytes(), last_component(path.as_bytes())), part(path), &Limits::DEFAULT, &amount);
    }
    gathered
}

/// To walk over all of a volume takes a while.
#[test]
fn what_a_volume_says_is_asked_once() {
    use tarnfs_source::testing::{Fault, FaultySource, When};
    // Headers of the archive and of its end, which say that it goes on.
    let block = |fields: &[u8]| {
        let length = u8::try_from(fields.len()).unwrap();
        let bytes = [&[length][..], fields].concat();
        [&crc32fast::hash(&bytes).to_le_bytes()[..], &bytes].concat()
    };
    let rar = [&b"Rar!\x1a\x07\x01\0"[..], &block(&[1, 0, 1]), &block(&[5, 0, 1])].concat();
    let memory: SharedSource = Arc::new(MemorySource::new(rar, "x.part1.rar"));
    let broken: SharedSource =
        Arc::new(FaultySource::new(SharedSource::clone(&memory), Fault::Error(5), When::From(1)));
    let names = BTreeMap::from([(b"x.part1.rar".to_vec(), part("x.part1.rar"))]);
    let is_first = std::cell::Cell::new(true);
    let bytes = |_: &Part| SharedSource::clone(if is_first.take() { &memory } else { &broken });
    let folder = InFolder { names: &names, bytes: &bytes, volumes: RefCell::default() };
    let format = tarnfs_format::by_name("rar").and_then(|format| format.volumes_by_first()).unwrap();
    let volume = || parts::File::volume(&folder.get(b"x.part1.rar").unwrap(), format).unwrap();
    let before = volume();
    assert!(before.as_ref().is_some_and(|volume| volume.is_followed == Some(true)), "{before:?}");
    assert_eq!(volume(), before);
}

/// To count how many there are, none of them is made readable.
#[test]
fn the_length_of_a_part_is_known() {
    let names = BTreeMap::from([(b"x.001".to_vec(), part("x.001"))]);
    let bytes = |_: &Part| -> SharedSource { panic!("nobody reads it") };
    let folder = InFolder { names: &names, bytes: &bytes, volumes: RefCell::default() };
    assert_eq!(parts::File::length(&folder.get(b"x.001").unwrap()), 9);
    assert!(folder.get(b"x.002").is_none());
}

#[test]
fn a_first_part_is_found_in_its_own_folder() {
    let gathered = gathered(&["a/x.aa", "a/y.001", "b/x.ab"]);
    for (path, has) in [("a/x.ac", true), ("a/y.002", true), ("b/x.ac", false), ("x.ab", false), ("a/z.ab", false)] {
        let name = last_component(path.as_bytes());
        assert_eq!(gathered.has_first(path.as_bytes(), name, &Limits::DEFAULT), has, "{path}");
    }
}

/// What a later entry replaces is no part any more, however its path is spelled.
#[test]
fn spellings_of_a_path_are_one_place() {
    for path in ["p/x.tar.02", "./p/x.tar.02", "/p//x.tar.02", "q/../p/x.tar.02", "p/x.tar.02/", "p/x.tar.02/."] {
        let mut gathered = gathered(&["./p/x.tar.01", "p/x.tar.02"]);
        let name = last_component(path.as_bytes());
        assert_eq!(gathered.folders[&b"p/"[..]].len(), 2);
        let other = Part { file: File::Piece(Box::new(Piece { offset: 7, ..Piece::default() })), ..part(path) };
        gathered.add((path.as_bytes(), name), other, &Limits::DEFAULT, &amount());
        assert_eq!(gathered.folders[&b"p/"[..]][&b"x.tar.02"[..]].pieces()[0].offset, 7, "{path}");
        assert_eq!(gathered.folders[&b"p/"[..]].len(), 2, "{path}");
        assert!(gathered.has_first(path.as_bytes(), name, &Limits::DEFAULT), "{path}");
        gathered.remove(path.as_bytes(), name, &Limits::DEFAULT);
        assert_eq!(gathered.folders[&b"p/"[..]].len(), 1, "{path}");
        gathered.remove(b"p/x.tar.01", b"x.tar.01", &Limits::DEFAULT);
        assert_eq!(gathered.weight, 0, "{path}");
    }
    // A name that `--transform` has changed.
    assert_eq!(place_of(b"./a/b", b"x.001", &Limits::DEFAULT), (b"a/".to_vec(), b"x.001".to_vec()));
}

#[test]
fn what_is_hardly_a_part_makes_room() {
    let mut gathered = gathered(&["x.aa", "x.ab", "x.ad", "m.py", "n.001", "n.009", "o.900", "v.r01"]);
    gathered.leave_out();
    let names: Vec<_> = gathered.folders.values().flat_map(|names| names.keys()).collect();
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    assert_eq!(names, ["n.001", "n.009", "v.r01", "x.aa", "x.ab", "x.ad"]);
    for name in ["n.001", "n.009", "v.r01", "x.aa", "x.ab", "x.ad"] {
        gathered.remove(name.as_bytes(), name.as_bytes(), &Limits::DEFAULT);
    }
    assert_eq!(gathered.weight, 0);
}

/// A dense series is all kept, so nothing makes room: that is seen once.
#[test]
fn who_is_full_of_parts_takes_no_more() {
    let (mut gathered, amount) = (Gathered::default(), amount());
    let add = |gathered: &mut Gathered, number: usize| {
        let path = format!("frame.{number:06}");
        gathered.add((path.as_bytes(), path.as_bytes()), part(&path), &Limits::DEFAULT, &amount);
    };
    let mut number = 0;
    while !gathered.is_closed {
        add(&mut gathered, number);
        number += 1;
    }
    let count = gathered.folders.values().map(BTreeMap::len).sum::<usize>();
    (number..200_000).for_each(|number| add(&mut gathered, number));
    assert_eq!(gathered.folders.values().map(BTreeMap::len).sum::<usize>(), count);
}

/// Of one that only follows others its piece is kept.
#[test]
fn of_a_part_that_is_not_shown_little_is_kept() {
    assert!(part("x.001").entry().is_some() && part("x.z02").entry().is_some() && part("x.zip").entry().is_some());
    let later = part("x.002");
    assert!(later.entry().is_none() && later.weight() * 3 < part("x.001").weight());
    assert_eq!((later.size(), later.body().size, later.pieces().len()), (9, 9, 1));
    // Where it ends in a hole, it is not its piece alone.
    let pieces = Some(vec![Piece { length: 4, ..Piece::default() }]);
    let entry = Entry { body: Body { size: 9, pieces, ..Body::default() }, ..Entry::default() };
    assert!(Part::new(entry, b"x.002", false, None).entry().is_some());
}

/// Archives in each other are read at the same time, and so are others by other threads.
#[test]
fn what_all_archives_gather_takes_bounded_memory() {
    let amount = amount();
    let mut all: Vec<Gathered> = Vec::new();
    for _ in 0..8 {
        let mut gathered = Gathered::default();
        for number in 0..20_000 {
            let path = format!("frame.{number:06}");
            gathered.add((path.as_bytes(), path.as_bytes()), part(&path), &Limits::DEFAULT, &amount);
            assert!(amount.gathered() <= MOST_GATHERED + 8 * LEAST_GATHERED);
        }
        all.push(gathered);
    }
    assert!(all.iter().any(|gathered| gathered.is_full) && !all[0].is_full);
    assert_eq!(amount.gathered(), all.iter().map(|gathered| gathered.weight).sum::<usize>());
    // What is kept beside an entry counts, too.
    let kept = |kept| Part { kept, ..part("x.01") }.weight();
    assert!(kept(Some(Arc::new(MemorySource::new(b"x", "x")))) > kept(None));
    drop(all);
    assert_eq!(amount.gathered(), 0);
}

#[test]
fn what_is_gathered_takes_bounded_memory() {
    let (mut gathered, amount) = (Gathered::default(), amount());
    let count = |gathered: &Gathered| gathered.folders.values().map(BTreeMap::len).sum::<usize>();
    for number in 0..200_000 {
        let path = format!("{number:06}.py");
        gathered.add((path.as_bytes(), path.as_bytes()), part(&path), &Limits::DEFAULT, &amount);
        assert!(gathered.weight <= MOST_GATHERED);
    }
    // None of them is an archive.
    assert!(count(&gathered) < 200_000 && !gathered.is_full);
}

/// What its owner keeps from others does not come to them with a file that was put beside it.
#[test]
fn who_may_read_a_part_counts() {
    let owned = |path: &str, uid: u64, mode: u32| {
        let entry = part(path).entry().unwrap().clone();
        Part::new(Entry { uid, mode, ..entry }, last_component(path.as_bytes()), true, None).readers
    };
    let first = owned("x.tar.01", 1001, 0o644);
    assert!(!first.may_share(&owned("x.tar.01", 1000, 0o600)));
    assert!(first.may_share(&owned("x.tar.01", 1001, 0o600)) && first.may_share(&owned("x.tar.01", 1000, 0o644)));
}
