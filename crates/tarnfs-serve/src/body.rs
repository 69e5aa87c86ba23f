//! Bodies of responses that are made as they are sent. An error in the middle ends the connection, so that nobody takes
//! what came for the whole.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tarnfs_source::Cancel;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

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
    lane: Lane,
    /// Somebody waits as long as this is there.
    waits: Arc<()>,
}

impl<P: Pieces + Unpin> Stepwise<P> {
    pub(crate) fn body(pieces: P, pool: &Pool, lane: Lane) -> Body {
        let left = pieces.left();
        Self { state: State::Idle(pieces), left, pool: pool.clone(), lane, waits: Arc::default() }.boxed_unsync()
    }

    fn work(&self, mut pieces: P) -> Working<P> {
        let (pool, lane) = (self.pool.clone(), self.lane);
        let kind = pieces.work();
        Box::pin(async move { pool.run(kind, lane, move |gone| pieces.next(gone).map(|step| (pieces, step))).await? })
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
                    this.state = if this.left == Some(0) || pieces.need() != Need::Thread {
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
