//! Archives in what is not verified yet.

use super::*;

/// Not verified until a test says so. Then reading fails if what was read before was wrong.
#[derive(Debug)]
struct Unverified {
    before: MemorySource,
    after: Option<MemorySource>,
    verified: Arc<Verified>,
}

#[derive(Debug, Default)]
struct Verified {
    is_done: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Verified {
    fn finish(&self) {
        *self.is_done.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Source for Unverified {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.is_unproven() {
            return self.before.read_at(buffer, offset);
        }
        self.after.as_ref().ok_or(io::ErrorKind::InvalidData)?.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.before.len()
    }

    fn describe(&self) -> String {
        "unverified".to_owned()
    }

    fn is_unproven(&self) -> bool {
        !*self.verified.is_done.lock().unwrap()
    }

    fn verify(&self, _: &dyn Fn() -> bool) -> io::Result<()> {
        self.verified.waiting.fetch_add(1, Ordering::SeqCst);
        let is_done = self.verified.is_done.lock().unwrap();
        drop(self.verified.changed.wait_while(is_done, |is_done| !*is_done).unwrap());
        self.verified.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A tree of archives: those whose names begin with `w` are not verified, of which `wrong` is damaged, and `whole`
/// looks like no archive before that is known.
fn unverified(names: &[String]) -> (LazyTree, Arc<Verified>) {
    let verified = Arc::new(Verified::default());
    let bytes = tar("file", b"content");
    let file = |(position, name): (u64, &String)| crate::toy::File {
        name: name.clone().into_bytes(),
        position,
        size: bytes.len() as u64,
        ..crate::toy::File::default()
    };
    let files = (1..).zip(names).map(file).collect();
    let shared = Arc::clone(&verified);
    let open = move |name: &[u8]| -> io::Result<SharedSource> {
        let right = MemorySource::new(tar("file", b"content"), "toy");
        if !name.starts_with(b"w") {
            return Ok(Arc::new(right));
        }
        let before =
            if name.starts_with(b"whole") { vec![0xff; right.len() as usize] } else { tar("file", b"content") };
        let after = (!name.starts_with(b"wrong")).then_some(right);
        Ok(Arc::new(Unverified { before: MemorySource::new(before, "toy"), after, verified: Arc::clone(&shared) }))
    };
    let toy = Arc::new(Toy::new(files, Box::new(open)));
    (LazyTree::new(Base::Other(toy as _), Lazily { most_open: 1000, ..how(None) }).unwrap(), verified)
}

/// However many archives wait until what they lie in is verified, others are opened meanwhile.
#[test]
fn archives_that_are_not_verified_do_not_keep_others_from_opening() {
    let names: Vec<_> = (0..100).map(|number| format!("w{number}.tar")).chain(["other.tar".to_owned()]).collect();
    let (tree, verified) = unverified(&names);
    let roots: Vec<_> =
        names[..100].iter().map(|name| tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node).collect();
    std::thread::scope(|scope| {
        for &root in &roots {
            let tree = &tree;
            scope.spawn(move || {
                let file = tree.lookup(root, b"file").unwrap();
                assert_eq!(read(tree, file.node), b"content");
            });
        }
        while verified.waiting.load(Ordering::SeqCst) < roots.len() {
            std::thread::yield_now();
        }
        let held_up: Vec<_> = roots.iter().map(|&root| tree.held_up(root).unwrap()).collect();
        assert!(held_up.iter().all(|one| one.by == held_up[0].by), "all wait for one stream");
        let (done, opened) = std::sync::mpsc::channel();
        let tree = &tree;
        scope.spawn(move || {
            let other = tree.lookup(Node::ROOT, b"other.tar").unwrap().node;
            assert_eq!(tree.held_up(other), None);
            let file = tree.lookup(other, b"file").unwrap();
            done.send(read(tree, file.node)).unwrap();
        });
        let opened = opened.recv_timeout(Duration::from_secs(120));
        verified.finish();
        assert_eq!(opened, Ok(b"content".to_vec()));
    });
    assert!(roots.iter().all(|&root| tree.held_up(root).is_none()));
}

/// Whether a file is an archive is not decided by bytes that may be wrong.
#[test]
fn what_is_an_archive_is_known_once_it_is_verified() {
    let names = ["w.tar", "wrong.tar", "whole.tar"].map(str::to_owned);
    let (tree, verified) = unverified(&names);
    let kind = |name: &str| tree.lookup(Node::ROOT, name.as_bytes()).unwrap().kind;
    assert_eq!(names.each_ref().map(|name| kind(name)), [Kind::Folder, Kind::Folder, Kind::File]);
    let wrong = tree.lookup(Node::ROOT, b"wrong.tar").unwrap().node;
    std::thread::scope(|scope| {
        scope.spawn(|| tree.wait_out(wrong));
        while verified.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        verified.finish();
    });
    assert_eq!(tree.held_up(wrong), None);
    assert_eq!(tree.lookup(wrong, b"file").unwrap_err().errno(), rustix::io::Errno::IO);
    assert_eq!(names.each_ref().map(|name| kind(name)), [Kind::Folder, Kind::File, Kind::Folder]);
    // One that nobody waited for is looked at as well.
    let archive = tree.lookup(Node::ROOT, b"whole.tar").unwrap().node;
    assert_eq!(read(&tree, tree.lookup(archive, b"file").unwrap().node), b"content");
}

/// What looks like an archive may be a file from the moment when somebody looks inside. What is in one stays.
#[test]
fn what_may_be_an_archive_may_change() {
    for (all, is_file, of_content) in
        [(true, false, Lifetime::Short), (false, false, Lifetime::Forever), (false, true, Lifetime::Forever)]
    {
        let archive = tar("file", b"content");
        let folder = tempfile::tempdir().unwrap();
        let base = if is_file {
            std::fs::write(folder.path().join("a.tar"), &archive).unwrap();
            Base::Folder(Arc::new(FolderTree::open(folder.path()).unwrap()))
        } else {
            Base::Other(Arc::new(Toy::with_contents([("a.tar", archive)]).immutable()) as _)
        };
        let tree = LazyTree::new(base, Lazily { all, ..how(None) }).unwrap();
        let root = tree.lookup(Node::ROOT, b"a.tar").unwrap();
        let file = tree.lookup(root.node, b"file").unwrap();
        let lifetimes = [Node::ROOT, root.node, file.node].map(|node| tree.lifetime(node));
        assert_eq!((root.kind, lifetimes), (Kind::Folder, [Lifetime::Short, Lifetime::Short, of_content]), "{all}");
        assert_eq!(tree.lifetime_of_gaps(root.node), Lifetime::Short);
    }
}
