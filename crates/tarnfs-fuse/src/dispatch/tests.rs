use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use tarnfs_source::{MemorySource, SharedSource};
use tarnfs_tree::{Child, Edit, FolderTree, Lifetime, Waiting, Xattrs};

use super::reading::SEEK_DATA;
use super::*;
use crate::deadline::Patience;
use crate::protocol::{
    Folders as _, How, Reading as _, ReplyData, ReplyDone, ReplyOpen, ReplySeek, ReplyXattr, Writing as _,
};
use crate::{MountOptions, guard};

/// Nothing in it can change, and it counts what is forgotten.
#[derive(Default)]
struct Counting {
    forgotten: Mutex<Vec<(Node, u64)>>,
    is_busy: bool,
    /// There is memory to open files.
    has_memory: AtomicBool,
    /// How often somebody has asked for one.
    asked: AtomicUsize,
    changes: Option<Changes>,
}

/// Removing is done in two steps, each when it is told to: what is before it, and itself.
struct Changes {
    step: Mutex<Receiver<()>>,
    /// Says when each of them is waited for.
    waits: Mutex<Sender<()>>,
    done: AtomicUsize,
}

impl Changes {
    fn wait(&self) {
        self.waits.lock().unwrap().send(()).unwrap();
        self.step.lock().unwrap().recv().unwrap();
    }
}

impl Edit for Counting {
    fn may_change(&self, _: Node) -> bool {
        true
    }

    fn remove(&self, _: Node, _: &[u8], _: bool) -> Result<(), Error> {
        let changes = self.changes.as_ref().unwrap();
        changes.wait();
        tarnfs_tree::asker::begins()?;
        changes.wait();
        changes.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Tree for Counting {
    fn lookup(&self, _: Node, _: &[u8]) -> Result<tarnfs_tree::Attributes, Error> {
        Err(Error::NotFound)
    }

    fn read_dir(&self, _: Node, _: u64, _: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        Ok(())
    }

    fn attributes(&self, _: Node) -> Result<tarnfs_tree::Attributes, Error> {
        Err(Error::NotFound)
    }

    fn parent(&self, _: Node) -> Result<Node, Error> {
        Ok(Node::ROOT)
    }

    fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
        Err(Error::WrongKind)
    }

    fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
        panic!("all are read though one was asked for");
    }

    fn xattr(&self, _: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok((name == b"user.a").then(|| b"value".to_vec()))
    }

    fn node_limit(&self) -> u64 {
        10
    }

    fn forget(&self, node: Node, times: u64) {
        self.forgotten.lock().unwrap().push((node, times));
    }

    fn open(&self, _: Node) -> Result<SharedSource, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.has_memory.load(Ordering::Relaxed) {
            Ok(Arc::new(MemorySource::new(*b"content", "file")))
        } else {
            Err(Errno::NOMEM.into())
        }
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::Forever
    }

    fn totals(&self) -> Totals {
        Totals { is_immutable: true, ..Totals::default() }
    }

    fn edit(&self) -> Option<&dyn Edit> {
        self.changes.is_some().then_some(self as &dyn Edit)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Counting {
    fn is_ready(&self, _: Node) -> bool {
        !self.is_busy
    }
}

/// Folders that a tree makes up, of versions for instance, are known as long as the kernel knows them.
#[test]
fn a_tree_that_never_changes_is_told_what_is_forgotten() {
    let tree = Arc::new(Counting::default());
    let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
    let asked = Arc::clone(&tree) as Arc<dyn Tree>;
    let dispatcher = Dispatcher::new(asked, &options, Workers::new(forever), Deadlines::new(forever));
    dispatcher.forget(7, 3);
    drop(Given::new(&dispatcher.asks, vec![Node(8), Node(9)]));
    Given::new(&dispatcher.asks, vec![Node(5)]).sent(true);
    assert_eq!(*tree.forgotten.lock().unwrap(), [(Node(7), 3), (Node(8), 1), (Node(9), 1)]);
}

/// What the kernel is sent of an answer that is an error.
fn error_in(mut sent: impl std::io::Read) -> i32 {
    let mut header = [0; 16];
    sent.read_exact(&mut header).unwrap();
    i32::from_ne_bytes(header[4..8].try_into().unwrap())
}

#[test]
fn a_panic_on_the_way_to_the_kernel_is_an_answer() {
    guard::install();
    for is_busy in [false, true] {
        let tree = Counting { is_busy, ..Counting::default() };
        let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
        let deadlines = Deadlines::new(forever);
        let dispatcher = Dispatcher::new(Arc::new(tree), &options, Workers::new(forever), deadlines);
        let (sent, device) = rustix::pipe::pipe().unwrap();
        let reply = ReplyOpen::to(&Arc::new(File::from(device)));
        let ask = || {
            dispatcher.ask(Operation::Open, 7, reply, |_| Ok(()), |_, _reply, ()| panic!("as tested"));
        };
        assert_eq!(guard::catch(ask).is_ok(), is_busy, "a worker keeps it to itself");
        assert_eq!(error_in(File::from(sent)), -Errno::IO.raw_os_error());
    }
}

/// A file may have thousands, of many MB together.
#[test]
fn who_asks_for_one_attribute_does_not_make_all_be_read() {
    let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
    let tree = Arc::new(Counting::default());
    let mut dispatcher = Dispatcher::new(tree, &options, Workers::new(forever), Deadlines::new(forever));
    dispatcher.has_xattrs = true;
    for (name, error) in [("user.a", 0), ("user.b", -Errno::NODATA.raw_os_error())] {
        let (sent, device) = rustix::pipe::pipe().unwrap();
        dispatcher.getxattr(5, name.as_bytes(), 100, ReplyXattr::to(&Arc::new(File::from(device))));
        assert_eq!(error_in(File::from(sent)), error);
    }
    assert_eq!(dispatcher.asks.deadlines.statistics(tarnfs_tree::Work::default()).panics, 0);
}

/// Others can give it back only as long as somebody answers the kernel.
#[test]
fn who_answers_the_kernel_does_not_wait_for_memory() {
    let forever = Duration::from_secs(100_000);
    for (operation, comes) in [(Operation::Read, true), (Operation::Seek, true), (Operation::Read, false)] {
        let tree = Arc::new(Counting::default());
        let options = Parsed::new(&MountOptions::default()).unwrap();
        let asked = Arc::clone(&tree) as Arc<dyn Tree>;
        let deadlines = Deadlines::with(forever, Patience::NONE);
        let dispatcher = Dispatcher::new(asked, &options, Workers::new(forever), deadlines);
        let (sent, device) = rustix::pipe::pipe().unwrap();
        let device = Arc::new(File::from(device));
        if operation == Operation::Read {
            dispatcher.read(5, 0, 0, 100, ReplyData::to(&device));
        } else {
            dispatcher.lseek(5, 0, 0, SEEK_DATA, ReplySeek::to(&device));
        }
        // Not before the thread is free again.
        if comes {
            tree.has_memory.store(true, Ordering::Relaxed);
            assert_eq!(error_in(File::from(sent)), 0, "{operation:?}");
        } else {
            // A worker tries again and again.
            let asked = tree.asked.load(Ordering::SeqCst);
            while tree.asked.load(Ordering::SeqCst) < asked + 10 {
                std::thread::yield_now();
            }
            // Nobody waits any more: nor does the worker.
            assert!(dispatcher.asks.deadlines.interrupt(7));
            assert_eq!(error_in(File::from(sent)), -Errno::INTR.raw_os_error());
        }
        while dispatcher.is_busy() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_file_that_nobody_has_opened_after_all_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "content").unwrap();
    let tree: Arc<dyn Tree> = Arc::new(FolderTree::open(folder.path()).unwrap());
    let node = tree.lookup(Node::ROOT, b"file").unwrap().node.0;
    let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
    let dispatcher = Dispatcher::new(tree, &options, Workers::new(forever), Deadlines::new(forever));
    let open = |device: File| {
        let how = How { to_write: false, appends: false, is_exclusive: false, user: 0 };
        dispatcher.open(node, how, ReplyOpen::to(&Arc::new(device)));
        dispatcher.asks.handles.count()
    };
    // Opened to read, it takes no answer, as the kernel does where whoever opened the file is gone: nobody will
    // release it.
    assert_eq!(open(File::open("/dev/null").unwrap()), 0);
    assert_eq!(open(File::options().write(true).open("/dev/null").unwrap()), 1);
    dispatcher.asks.handles.close(1);
    dispatcher.asks.handles.close(2);
    assert_eq!(dispatcher.asks.handles.count(), 0);
}

/// > A change that was answered with an error is not done later.
#[test]
fn a_signal_ends_a_change_before_it_begins_or_not_at_all() {
    let forever = Duration::from_secs(100_000);
    for has_begun in [false, true] {
        let ((go, step), (waits, waiting)) = (channel(), channel());
        let changes = Changes { step: Mutex::new(step), waits: Mutex::new(waits), done: AtomicUsize::new(0) };
        let tree = Arc::new(Counting { changes: Some(changes), ..Counting::default() });
        let options = Parsed::new(&MountOptions::default()).unwrap();
        let deadlines = Deadlines::with(forever, Patience::NONE);
        let dispatcher = Dispatcher::new(Arc::clone(&tree) as _, &options, Workers::new(forever), deadlines);
        let (sent, device) = rustix::pipe::pipe().unwrap();
        dispatcher.remove(1, b"name", false, ReplyDone::to(&Arc::new(File::from(device))));
        waiting.recv().unwrap();
        if has_begun {
            go.send(()).unwrap();
            waiting.recv().unwrap();
        }
        assert!(dispatcher.interrupt(7));
        let errno = |sent| error_in(File::from(sent));
        if has_begun {
            go.send(()).unwrap();
            assert_eq!(errno(sent), 0);
        } else {
            assert_eq!(errno(sent), -Errno::INTR.raw_os_error());
            go.send(()).unwrap();
        }
        while dispatcher.is_busy() {
            std::thread::yield_now();
        }
        assert_eq!(tree.changes.as_ref().unwrap().done.load(Ordering::SeqCst), usize::from(has_begun));
    }
}
