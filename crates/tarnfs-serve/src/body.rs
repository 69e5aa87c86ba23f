//! Bodies of responses that are made as they are sent. An error in the middle ends the connection, so that nobody takes
//! what came for the whole.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tarnfs_source::Cancel;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Any of them.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What is in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What a thread is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// To look something up, or to list it.
    Look,
    /// To read, which may have to decode much.
    Read,
    /// To verify a file that was read in part. It takes as long as it takes: it gets on as long as somebody waits.
    Verify,
}

/// Threads that may wait: for a disk, or for what is decoded. Who gets no turn waits for one. However many clients wait
/// for what is slow, some threads are left for looking up.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    all: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    verifying: Arc<Semaphore>,
    /// Whoever takes longer is not waited for.
    patience: Duration,
}

/// Whether somebody still waits for what a thread does.
#[derive(Debug)]
pub(crate) struct Gone(Weak<()>);

impl Gone {
    /// True once nobody does.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Pool {
    pub(crate) fn new(threads: usize, patience: Duration) -> Self {
        let some = |threads: usize| Arc::new(Semaphore::new(threads.max(1)));
        Self { all: some(threads), reading: some(threads / 2), verifying: some(threads / 8), patience }
    }

    /// Does `work` on one of the threads. It goes on there if nobody waits any more, and keeps its turn until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        kind: Work,
        work: impl FnOnce(&Gone) -> T + Send + 'static,
    ) -> io::Result<T> {
        // Dropped with this future, or when its time is over.
        let waits = Arc::new(());
        let gone = Gone(Arc::downgrade(&waits));
        let done = async move {
            let few = match kind {
                Work::Look => None,
                Work::Read => Some(&self.reading),
                Work::Verify => Some(&self.verifying),
            };
            let few = match few {
                // Work may take long, but nobody waits for ever to begin.
                Some(few) => match tokio::time::timeout(self.patience, Arc::clone(few).acquire_owned()).await {
                    Ok(turn) => Some(turn.map_err(io::Error::other)?),
                    Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                },
                None => None,
            };
            let turn = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
            let work = move || {
                let result = work(&gone);
                drop((turn, few));
                result
            };
            let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
            drop(waits);
            done
        };
        if kind == Work::Verify {
            return done.await;
        }
        match tokio::time::timeout(self.patience, done).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// What comes next of a body.
pub(crate) enum Step {
    Piece(Bytes),
    /// Nothing yet: there is more to do.
    Later,
    End,
}

/// Bytes that come in pieces, each of which may take its time.
pub(crate) trait Pieces: Send + 'static {
    /// The next one.
    fn next(&mut self, gone: &Gone) -> io::Result<Step>;

    /// What that is, if it needs a thread that may wait.
    fn work(&self) -> Work;

    /// True if the next one needs no such thread.
    fn is_ready(&self) -> bool {
        false
    }

    /// Bytes that are still to come, if that is known.
    fn left(&self) -> Option<u64>;
}

type Working<P> = Pin<Box<dyn Future<Output = io::Result<(P, Step)>> + Send>>;

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
    /// Somebody waits as long as this is there.
    waits: Arc<()>,
}

impl<P: Pieces + Unpin> Stepwise<P> {
    pub(crate) fn body(pieces: P, pool: &Pool) -> Body {
        let left = pieces.left();
        Self { state: State::Idle(pieces), left, pool: pool.clone(), waits: Arc::default() }.boxed_unsync()
    }

    fn work(&self, mut pieces: P) -> Working<P> {
        let pool = self.pool.clone();
        let kind = pieces.work();
        Box::pin(async move { pool.run(kind, move |gone| pieces.next(gone).map(|step| (pieces, step))).await? })
    }
}

impl<P: Pieces + Unpin> HttpBody for Stepwise<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Idle(pieces) if this.left == Some(0) => drop(pieces),
                State::Idle(mut pieces) if pieces.is_ready() => {
                    let step = pieces.next(&Gone(Arc::downgrade(&this.waits)))?;
                    match step {
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
                    let Poll::Ready(done) = work.as_mut().poll(context) else {
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
                    this.state = if this.left == Some(0) || pieces.is_ready() {
                        State::Idle(pieces)
                    } else {
                        let mut work = this.work(pieces);
                        // A future does nothing before it is polled.
                        match work.as_mut().poll(context) {
                            // It must not be polled again: its result is put into a new one.
                            Poll::Ready(done) => State::Working(Box::pin(std::future::ready(done))),
                            Poll::Pending => State::Working(work),
                        }
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
        Frame::data(piece)
    }
}

/// Memory that all bodies share.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    bodies: AtomicUsize,
}

impl Memory {
    /// Bytes that all of them hold about. Each has up to two pieces on its way.
    const ALL: usize = 64 << 20;
    const LEAST: usize = 16 << 10;
    const MOST: usize = 256 << 10;

    pub(crate) fn one_more(self: &Arc<Self>) -> Share {
        self.bodies.fetch_add(1, Ordering::Relaxed);
        Share(Arc::clone(self))
    }
}

/// The part of one body.
#[derive(Debug)]
pub(crate) struct Share(Arc<Memory>);

impl Share {
    /// Bytes of a piece, now that there are so many bodies.
    pub(crate) fn piece(&self) -> usize {
        (Memory::ALL / 2 / self.0.bodies.load(Ordering::Relaxed).max(1)).clamp(Memory::LEAST, Memory::MOST)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What another thread writes into a pipe.
pub(crate) struct Piped {
    pipe: pipe::Receiver,
    buffer: Vec<u8>,
    /// How it ended there, which counts more than the end of the pipe.
    end: oneshot::Receiver<io::Result<()>>,
    cancel: Cancel,
    _share: Share,
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
        // Of ordinary users the system may have enough pipes of that length.
        let _ = rustix::pipe::fcntl_setpipe_size(&reader, Self::PIPE);
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
        let buffer = vec![0; share.piece().min(Memory::MOST / 4)];
        Ok(Self { pipe, buffer, end, cancel, _share: share }.boxed_unsync())
    }
}

impl HttpBody for Piped {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let mut buffer = ReadBuf::new(&mut this.buffer);
        ready!(Pin::new(&mut this.pipe).poll_read(context, &mut buffer))?;
        if !buffer.filled().is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(buffer.filled())))));
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

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(threads).enable_time().build().unwrap()
    }

    #[test]
    fn some_threads_are_left_for_looking_up() {
        let runtime = runtime(16);
        let pool = Pool::new(16, Duration::from_secs(600));
        // Each of them holds a thread until its client has gone.
        let wait = |gone: &Gone| {
            while !gone.is_gone() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let waiting: Vec<_> = [Work::Read, Work::Verify]
            .into_iter()
            .flat_map(|kind| std::iter::repeat_n(kind, 64))
            .map(|kind| {
                let pool = pool.clone();
                runtime.spawn(async move { pool.run(kind, wait).await })
            })
            .collect();
        while pool.reading.available_permits() > 0 || pool.verifying.available_permits() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(runtime.block_on(pool.run(Work::Look, |_| 7)).unwrap(), 7);
        for one in &waiting {
            one.abort();
        }
        // Their threads are free again.
        assert_eq!(runtime.block_on(pool.run(Work::Read, |_| 8)).unwrap(), 8);
        assert_eq!(runtime.block_on(pool.run(Work::Verify, |_| 9)).unwrap(), 9);
    }

    #[test]
    fn only_what_verifies_may_take_longer() {
        let runtime = runtime(8);
        let pool = Pool::new(8, Duration::from_millis(20));
        for (kind, is_done) in [(Work::Look, false), (Work::Read, false), (Work::Verify, true)] {
            let (told, tells) = mpsc::channel();
            let work = move |gone: &Gone| {
                let began = std::time::Instant::now();
                while !gone.is_gone() && began.elapsed() < Duration::from_millis(300) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                told.send(gone.is_gone()).unwrap();
            };
            assert_eq!(runtime.block_on(pool.run(kind, work)).is_ok(), is_done, "{kind:?}");
            // Who waits no more is known there.
            assert_eq!(tells.recv().unwrap(), !is_done, "{kind:?}");
        }
    }
}
