//! Archives that cannot be opened.

use super::*;

/// What looks like one: the first bytes of one, and others behind them.
fn broken() -> Vec<u8> {
    [&b"7z\xbc\xaf\x27\x1c\0\x04"[..], &[0xff; 100]].concat()
}

/// In an archive it is a file also after the kernel has forgotten that, which it does each time that it looks again.
#[test]
fn what_was_forgotten_is_no_archive_again() {
    let toy = Arc::new(Toy::with_contents([("a.7z", broken()), ("b.tar", tar("file", b"content"))]));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    let look = |name: &[u8]| {
        let found = tree.lookup(Node::ROOT, name).unwrap();
        let listed = (found.kind == Kind::Folder).then(|| tree.read_dir(found.node, 0, &mut |_| true).is_ok());
        tree.forget(found.node, 1);
        (found.kind, listed)
    };
    assert_eq!(look(b"a.7z"), (Kind::Folder, Some(false)));
    for _ in 0..3 {
        assert_eq!(look(b"a.7z"), (Kind::File, None));
        assert_eq!(look(b"b.tar"), (Kind::Folder, Some(true)));
    }
}

/// Of one name there may be several.
#[test]
fn those_of_one_name_do_not_push_each_other_out() {
    let mut archives = Archives::new(Ranges { limit: 100 });
    let mut released = Released::default();
    let toy = Toy::with_positions([1]);
    let versions = [1, 2, 3].map(|changed| {
        toy.change(|files| files[0].changed = changed);
        Version::of(&toy.attributes(Node(2)).unwrap())
    });
    for (node, version) in (2..).map(Node).zip(versions).take(2) {
        let file = File {
            node,
            folder: Node::ROOT,
            version,
            set: None,
            readers: None,
            name: b"a.7z".to_vec(),
            depth: 0,
            within: 0,
        };
        let number = archives.met(file, false, &mut released).unwrap();
        archives.begin(number);
        archives.end(number, Outcome::Never, &mut released);
    }
    assert_eq!(versions.map(|version| archives.has_failed(b"a.7z", version)), [true, true, false]);
    assert!(!archives.has_failed(b"b.7z", versions[0]));
}

/// Whoever else looks at an archive that cannot be opened never finds it in between.
#[test]
fn an_archive_is_no_archive_at_once_when_it_cannot_be_opened() {
    let ranges = Ranges { limit: 100 };
    let mut archives = Archives::new(ranges);
    let version = Version::of(&Toy::with_positions([1]).attributes(Node(2)).unwrap());
    let file = archive_of(2, version);
    let mut released = Released::default();
    let number = archives.met(file, false, &mut released).unwrap();
    for (outcome, is_failed) in [(Outcome::NotNow, false), (Outcome::Never, true)] {
        archives.begin(number);
        archives.end(number, outcome, &mut released);
        assert_eq!(matches!(archives.find(number), FoundArchive::Failed), is_failed);
        assert!(archives.may_begin(Duration::MAX));
    }
    let place = archives.place(Node::ROOT, b"a.tar");
    assert_eq!(archives.known(Node(2), place, version).map(|(_, archive)| archive), Some(None));
    archives.release(number, 1, &mut released);
    assert_eq!((archives.count(), released.files), (0, vec![Node(2)]));
}
