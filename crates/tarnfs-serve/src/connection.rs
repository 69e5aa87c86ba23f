//! One connection: how long it may stand still, and which one makes room for others.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use std::future::Future as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;

/// A stream whose other end must take something within a time, if anything is to be sent.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, deadline: None }
    }

    fn in_time<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.deadline = None;
            return done;
        }
        let patience = self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.in_time(context, done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.in_time(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_flush(context);
        this.in_time(context, done)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_shutdown(context);
        this.in_time(context, done)
    }
}

/// Who is connected.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Mutex<HashMap<u64, Arc<Client>>>,
    next: AtomicU64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Client {
    /// It has asked, and has no whole answer yet.
    is_served: AtomicBool,
    /// When it was served last, or came.
    since: Mutex<Instant>,
    /// It is to make room.
    pub(crate) leave: Notify,
}

impl Clients {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more. It is gone when this is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let since = Mutex::new(Instant::now());
        let client = Arc::new(Client { is_served: AtomicBool::new(false), since, leave: Notify::new() });
        self.all().insert(number, Arc::clone(&client));
        Entered { clients: Arc::clone(self), number, client }
    }

    /// Asks the one to leave that has asked for nothing for the longest time. It does so at once.
    pub(crate) fn make_room(&self) {
        let all = self.all();
        let idle = all.values().filter(|client| !client.is_served());
        if let Some(client) = idle.min_by_key(|client| client.since()) {
            // It may have been asked to before, and not be gone yet: the next time another one is the oldest.
            client.rest();
            client.leave.notify_one();
        }
    }
}

impl Client {
    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// True while it waits for the rest of an answer.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
    }

    /// It has asked for something. When that is dropped, it has it.
    pub(crate) fn serve(self: &Arc<Self>) -> Served {
        self.is_served.store(true, Ordering::Relaxed);
        Served(Arc::clone(self))
    }
}

/// See [`Client::serve`].
#[derive(Debug)]
pub(crate) struct Served(Arc<Client>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.rest();
        self.0.is_served.store(false, Ordering::Relaxed);
    }
}

/// See [`Clients::enter`].
#[derive(Debug)]
pub(crate) struct Entered {
    clients: Arc<Clients>,
    number: u64,
    pub(crate) client: Arc<Client>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.clients.all().remove(&self.number);
    }
}
