//! Bodies of responses that are made as they are sent. An error in the middle ends the connection, so that nobody takes
//! what came for the whole.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tarnfs_source::Cancel;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use crate::pool::{Gone, Lane, Pool, Work};

/// Any of them.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What is in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What comes next of a body.
pub(crate) enum Step {
    Piece(Bytes),
    /// Nothing yet: there is more to do.
    Later,
    End,
}

/// What making a piece needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A thread that may wait.
    Thread,
    /// None, unless what was kept is thrown away just now.
    Hardly,
    /// None in any case.
    Nothing,
}

/// Bytes that come in pieces, each of which may take its time.
pub(crate) trait Pieces: Send + 'static {
    /// The next one.
    fn next(&mut self, gone: &Gone) -> io::Result<Step>;

    /// What that is, if it needs a thread that may wait.
    fn work(&self) -> Work;

    /// Whether it needs one.
    fn need(&self) -> Need {
        Need::Thread
    }

    /// Bytes that are still to come, if that is known.
    fn left(&self) -> Option<u64>;
}

/// Pieces of one body that wait to be sent. Whoever sends them would take as many as fit into 64 KiB, which are many
/// small ones of a client that reads nothing.
#[derive(Debug, Default)]
struct Sending {
    count: AtomicUsize,
    /// Who waits until there are fewer.
    waker: Mutex<Option<Waker>>,
}

impl Sending {
    /// One is being sent, and the next one is there when it is through.
    const MOST: usize = 2;

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when there may be one more.
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let has_room = || self.count.load(Ordering::SeqCst) < Self::MOST;
        if has_room() {
            return Poll::Ready(());
        }
        *self.waker() = Some(context.waker().clone());
        // One may have gone before anybody was known to wait.
        if has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn frame(self: &Arc<Self>, bytes: Bytes) -> Frame<Bytes> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Frame::data(Bytes::from_owner(Handed { bytes, sending: Arc::clone(self) }))
    }
}

/// A piece until it was sent.
struct Handed {
    bytes: Bytes,
    sending: Arc<Sending>,
}

impl AsRef<[u8]> for Handed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        // The next one may take its memory.
        drop(std::mem::take(&mut self.bytes));
        self.sending.count.fetch_sub(1, Ordering::SeqCst);
        let waker = self.sending.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What makes the next piece. It is driven whether or not anybody asks for that piece: in the queue for a thread, one
/// that nobody drives would keep up all behind it. It ends when this is dropped.
struct Working<P>(JoinHandle<io::Result<(P, Step)>>);

impl<P> Working<P> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(P, Step)>> {
        Pin::new(&mut self.0).poll(context).map(|done| done.map_err(io::Error::other)?)
    }
}

impl<P> Drop for Working<P> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum State<P> {
    Idle(P),
    Working(Working<P>),
    Ended,
}

/// A body of pieces. While one is sent, the next one is made.
pub(crate) struct Stepwise<P> {
    state: State<P>,
    left: Option<u64>,
    pool: Pool,
    lane: Lane,
    sending: Arc<Sending>,
    /// Somebody waits as long as this is there.
    waits: Arc<()>,
}

impl<P: Pieces + Unpin> Stepwise<P> {
    pub(crate) fn body(pieces: P, pool: &Pool, lane: Lane) -> Body {
        let left = pieces.left();
        let (pool, sending, waits) = (pool.clone(), Arc::default(), Arc::default());
        Self { state: State::Idle(pieces), left, pool, lane, sending, waits }.boxed_unsync()
    }

    fn work(&self, mut pieces: P) -> Working<P> {
        let (pool, lane) = (self.pool.clone(), self.lane);
        let kind = pieces.work();
        let work = move |gone: &Gone| pieces.next(gone).map(|step| (pieces, step));
        Working(tokio::spawn(async move { pool.run(kind, lane, work).await? }))
    }
}

impl<P: Pieces + Unpin> HttpBody for Stepwise<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        ready!(this.sending.poll_room(context));
        loop {
            match std::mem::replace(&mut this.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Idle(pieces) if this.left == Some(0) => drop(pieces),
                State::Idle(mut pieces) if pieces.need() != Need::Thread => {
                    let gone = Gone::with(&this.waits);
                    let step = match pieces.need() {
                        Need::Nothing => pieces.next(&gone),
                        // Should it take its time after all, others are waited for by another thread.
                        _ => tokio::task::block_in_place(|| pieces.next(&gone)),
                    };
                    match step? {
                        Step::End => {}
                        Step::Later => this.state = State::Idle(pieces),
                        Step::Piece(piece) => {
                            this.state = State::Idle(pieces);
                            return Poll::Ready(Some(Ok(this.sent(piece))));
                        }
                    }
                }
                State::Idle(pieces) => this.state = State::Working(this.work(pieces)),
                State::Working(mut work) => {
                    let Poll::Ready(done) = work.poll(context) else {
                        this.state = State::Working(work);
                        return Poll::Pending;
                    };
                    let (pieces, step) = done?;
                    let piece = match step {
                        Step::End => continue,
                        Step::Later => {
                            this.state = State::Idle(pieces);
                            continue;
                        }
                        Step::Piece(piece) => piece,
                    };
                    let frame = this.sent(piece);
                    this.state = if this.left == Some(0) || pieces.need() != Need::Thread {
                        State::Idle(pieces)
                    } else {
                        State::Working(this.work(pieces))
                    };
                    return Poll::Ready(Some(Ok(frame)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0) || matches!(self.state, State::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl<P> Stepwise<P> {
    fn sent(&mut self, piece: Bytes) -> Frame<Bytes> {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(piece.len() as u64);
        }
        self.sending.frame(piece)
    }
}

/// Memory that all bodies share. Each has up to two pieces that wait to be sent, and one that is being made. A client
/// that reads nothing keeps its pieces, however many others there are by then; so what counts is what is held.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    held: AtomicUsize,
}

impl Memory {
    /// Bytes that pieces of more than the least length hold. 4096 bodies of the least take 48 MiB beside them, which
    /// makes it about 64 MiB in all.
    const ALL: usize = 24 << 20;
    const LEAST: usize = 4 << 10;
    const MOST: usize = 256 << 10;

    pub(crate) fn one_more(self: &Arc<Self>) -> Share {
        Share(Arc::clone(self))
    }
}

/// The part of one body.
#[derive(Debug)]
pub(crate) struct Share(Arc<Memory>);

impl Share {
    /// Bytes of the next piece, now that so much is held. It is a power of two, so that it seldom becomes another one.
    pub(crate) fn piece(&self) -> usize {
        // The others want some of it, too.
        let part = Memory::ALL.saturating_sub(self.0.held.load(Ordering::Relaxed)) / 4;
        let most = 1 << part.max(1).ilog2();
        most.clamp(Memory::LEAST, Memory::MOST)
    }

    /// Says that so many bytes are held.
    pub(crate) fn hold(&self, bytes: usize) -> Room {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        Room { memory: Arc::clone(&self.0), bytes }
    }

    /// A piece that is in memory already.
    pub(crate) fn piece_of(&self, bytes: Vec<u8>) -> Bytes {
        let room = self.hold(bytes.capacity());
        Bytes::from_owner(Made { bytes, _room: room })
    }
}

/// What a body holds of the memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// See [`Share::piece_of`].
struct Made {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Made {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What another thread writes into a pipe.
pub(crate) struct Piped {
    pipe: pipe::Receiver,
    buffer: Vec<u8>,
    /// How it ended there, which counts more than the end of the pipe.
    end: oneshot::Receiver<io::Result<()>>,
    cancel: Cancel,
    sending: Arc<Sending>,
    share: Share,
    /// Of the buffer.
    _room: Room,
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It would go on until it writes next.
        self.cancel.cancel();
    }
}

impl Piped {
    /// Bytes that the pipe holds, if the system allows it.
    const PIPE: usize = 256 << 10;

    /// Has `write` fill the body on a thread of its own.
    pub(crate) fn body(
        turn: OwnedSemaphorePermit,
        share: Share,
        write: impl FnOnce(File, &Cancel) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Body> {
        let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let buffer = vec![0; share.piece().min(Memory::MOST / 4)];
        // Of ordinary users the system may have enough pipes of that length. What is short stays in it until the client
        // takes it, and others have their turn.
        let _ = rustix::pipe::fcntl_setpipe_size(&reader, Self::PIPE.min(buffer.len() * 4));
        let pipe = pipe::Receiver::from_owned_fd(reader)?;
        let (ended, end) = oneshot::channel();
        let cancel = Cancel::default();
        let given = cancel.clone();
        std::thread::Builder::new().name("download".to_owned()).spawn(move || {
            let result = write(writer.into(), &given);
            // Others have their turn when this has ended, not when the client is gone.
            drop(turn);
            // Nobody waits for it if the client is gone.
            let _ = ended.send(result);
        })?;
        let room = share.hold(buffer.len());
        Ok(Self { pipe, buffer, end, cancel, sending: Arc::default(), share, _room: room }.boxed_unsync())
    }
}

impl HttpBody for Piped {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        ready!(this.sending.poll_room(context));
        let mut buffer = ReadBuf::new(&mut this.buffer);
        ready!(Pin::new(&mut this.pipe).poll_read(context, &mut buffer))?;
        if !buffer.filled().is_empty() {
            let piece = this.share.piece_of(buffer.filled().to_vec());
            return Poll::Ready(Some(Ok(this.sending.frame(piece))));
        }
        match ready!(Pin::new(&mut this.end).poll(context)) {
            Ok(Ok(())) => Poll::Ready(None),
            Ok(Err(error)) => Poll::Ready(Some(Err(error))),
            Err(gone) => Poll::Ready(Some(Err(io::Error::other(gone)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;
    use std::time::Duration;

    /// A piece that was thought to be there, and comes when somebody says so.
    struct Late(Option<mpsc::Receiver<()>>);

    impl Pieces for Late {
        fn next(&mut self, _: &Gone) -> io::Result<Step> {
            let Some(said) = self.0.take() else { return Ok(Step::End) };
            said.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other)?;
            Ok(Step::Piece("late".into()))
        }

        fn work(&self) -> Work {
            Work::Read
        }

        fn need(&self) -> Need {
            Need::Hardly
        }

        fn left(&self) -> Option<u64> {
            None
        }
    }

    /// Pieces without end.
    struct Endless(Share);

    impl Pieces for Endless {
        fn next(&mut self, _: &Gone) -> io::Result<Step> {
            Ok(Step::Piece(self.0.piece_of(vec![0; self.0.piece()])))
        }

        fn work(&self) -> Work {
            Work::Read
        }

        fn need(&self) -> Need {
            Need::Nothing
        }

        fn left(&self) -> Option<u64> {
            None
        }
    }

    /// Pieces that are made by a thread, when somebody says so.
    struct Awaited(mpsc::Receiver<()>);

    impl Pieces for Awaited {
        fn next(&mut self, _: &Gone) -> io::Result<Step> {
            self.0.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other)?;
            Ok(Step::Piece("made".into()))
        }

        fn work(&self) -> Work {
            Work::Read
        }

        fn left(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn a_body_that_nobody_reads_keeps_no_turn_from_others() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).max_blocking_threads(4).enable_time().build().unwrap();
        // One works at a time.
        let pool = Pool::new(1, Duration::from_secs(600));
        let lane = Lane::of(&[]);
        let (says, said) = mpsc::channel();
        let mut slow = Stepwise::body(Awaited(said), &pool, lane);
        runtime.block_on(async {
            let mut first = polled(&mut slow);
            assert!(first.is_none(), "its first piece is being made");
            says.send(()).unwrap();
            // It is made before another one has the thread.
            assert_eq!(pool.run(Work::Read, lane, |_| 7).await.unwrap(), 7);
            let (tells, told) = mpsc::channel();
            let (goes_on, waits) = mpsc::channel();
            let other = pool.clone();
            let blocking = tokio::spawn(async move {
                let work = move |_: &Gone| {
                    tells.send(()).unwrap();
                    waits.recv_timeout(Duration::from_secs(60))
                };
                other.run(Work::Read, lane, work).await
            });
            tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(60))).await.unwrap().unwrap();
            // The client takes it, and no more: the next one waits for the thread.
            while first.is_none() {
                first = polled(&mut slow);
                tokio::task::yield_now().await;
            }
            says.send(()).unwrap();
            goes_on.send(()).unwrap();
            blocking.await.unwrap().unwrap().unwrap();
            assert_eq!(pool.run(Work::Read, lane, |_| 8).await.unwrap(), 8);
        });
    }

    /// The next piece, if it is there.
    fn polled(body: &mut Body) -> Option<Bytes> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.unwrap().unwrap().into_data().ok(),
            Poll::Pending => None,
        }
    }

    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn of_what_is_not_sent_no_more_is_made() {
        let (memory, pool) = (Arc::new(Memory::default()), Pool::new(1, Duration::from_secs(600)));
        let mut body = Stepwise::body(Endless(memory.one_more()), &pool, Lane::of(&[]));
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut next = || match Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)) {
            Poll::Ready(frame) => Some(frame.unwrap().unwrap().into_data().unwrap()),
            Poll::Pending => None,
        };
        let (first, second) = (next().unwrap(), next().unwrap());
        assert!(next().is_none() && woken.0.load(Ordering::SeqCst) == 0);
        // A part of one is not all of it.
        let part = first.slice(..1);
        drop(first);
        assert!(next().is_none());
        drop(part);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let third = next().unwrap();
        assert!(next().is_none());
        assert_eq!(memory.held.load(Ordering::Relaxed), 2 * Memory::MOST);
        drop((second, third));
        assert_eq!(memory.held.load(Ordering::Relaxed), 0);
    }

    /// As the guide says: 64 MiB, or 16 KiB for each if that is more. The first ones keep what they got.
    #[test]
    fn all_bodies_hold_a_bounded_amount() {
        let memory = Arc::new(Memory::default());
        let share = memory.one_more();
        let mut rooms = Vec::new();
        for bodies in 1..10_000 {
            rooms.extend((0..=Sending::MOST).map(|_| share.hold(share.piece())));
            let held = memory.held.load(Ordering::Relaxed);
            assert!(bodies > 16 || held == bodies * 3 * Memory::MOST, "{bodies} {held}");
            // About.
            assert!(held <= (64 << 20).max(bodies * (16 << 10)) * 9 / 8, "{bodies} {held}");
        }
        drop(rooms);
        assert_eq!(share.piece(), Memory::MOST);
    }

    #[test]
    fn a_piece_that_takes_its_time_after_all_keeps_nobody_waiting() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).max_blocking_threads(2).enable_time().build().unwrap();
        let pool = Pool::new(1, Duration::from_secs(600));
        let (says, said) = mpsc::channel();
        let body = Stepwise::body(Late(Some(said)), &pool, Lane::of(&[]));
        let late = runtime.spawn(body.collect());
        // There is one thread that waits for connections.
        let other = runtime.spawn(async move { says.send(()) });
        assert!(runtime.block_on(other).unwrap().is_ok());
        assert_eq!(runtime.block_on(late).unwrap().unwrap().to_bytes(), "late");
    }
}
