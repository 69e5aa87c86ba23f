//! One connection: how long it may stand still, and which one makes room for others.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    client: Arc<Client>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration, client: Arc<Client>) -> Self {
        Self { stream, patience, deadline: None, client }
    }

    fn in_time<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.deadline.take().is_some() {
                self.client.is_waited_for.store(false, Ordering::Relaxed);
            }
            return done;
        }
        self.client.is_waited_for.store(true, Ordering::Relaxed);
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
        this.client.has_taken(&done);
        this.in_time(context, done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.client.has_taken(&done);
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
    /// It was served at least once, or has a login.
    is_known: AtomicBool,
    /// How many it holds of each thing that there is not enough of for all.
    holds: [AtomicUsize; 2],
    /// When it was served last, or came.
    since: Mutex<Instant>,
    /// Something was sent that it has not taken.
    is_waited_for: AtomicBool,
    /// Bytes that it has taken, and when somebody looked at that last.
    taken: AtomicU64,
    seen: Mutex<(Instant, u64)>,
    /// It is to make room, also in the middle of an answer.
    must_leave: AtomicBool,
    /// It is to look whether it has to make room.
    pub(crate) leave: Notify,
}

/// What there is not enough of for all clients.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Holds {
    /// A folder that is sent as an archive.
    Download = 0,
    /// A page in memory.
    Page = 1,
}

/// Who takes fewer bytes a second than this ...
const LEAST_RATE: f64 = 4096.0;

/// ... for so long has no right to its place, if somebody else wants it.
// The system takes bytes in gulps: a quarter of a MiB, and then none until much of its buffer is empty.
const SLOW: Duration = Duration::from_secs(45);

impl Clients {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more. It is gone when this is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new());
        self.all().insert(number, Arc::clone(&client));
        Entered { clients: Arc::clone(self), number, client }
    }

    /// Asks the one to leave that has asked for nothing for the longest time, if there is one, and those first that
    /// were never served: they may not even have a login. Otherwise the one that takes its answer the most slowly, if
    /// that is too slow. It does so at once.
    pub(crate) fn make_room(&self) {
        let all = self.all();
        let idle = all.values().filter(|client| !client.is_busy());
        if let Some(client) = idle.min_by_key(|client| (client.is_known.load(Ordering::Relaxed), client.since())) {
            // It may have been asked to before, and not be gone yet: the next time another one is the oldest.
            client.rest();
            client.leave.notify_one();
        } else {
            remove_slowest(all.values());
        }
    }

    /// Has the answer end, of those that hold such a thing, that is taken the most slowly, if that is too slow.
    pub(crate) fn make_room_for(&self, held: Holds) {
        remove_slowest(self.all().values().filter(|client| client.does_hold(held)));
    }
}

fn remove_slowest<'a>(clients: impl Iterator<Item = &'a Arc<Client>>) {
    let slow = clients.filter(|client| client.is_busy()).filter_map(|client| Some((client.too_slow()?, client)));
    if let Some((_, client)) = slow.min_by(|(one, _), (other, _)| one.total_cmp(other)) {
        client.must_leave.store(true, Ordering::Relaxed);
        client.leave.notify_one();
    }
}

impl Client {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            is_served: AtomicBool::default(),
            is_known: AtomicBool::default(),
            holds: Default::default(),
            since: Mutex::new(now),
            is_waited_for: AtomicBool::default(),
            taken: AtomicU64::default(),
            seen: Mutex::new((now, 0)),
            must_leave: AtomicBool::default(),
            leave: Notify::new(),
        }
    }

    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// True while it waits for the rest of an answer. The end of it may lie in a buffer, when all of it was made. Who
    /// was never served is idle whatever it has not taken: that is nothing but refusals.
    fn is_busy(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
            || self.is_known.load(Ordering::Relaxed) && self.is_waited_for.load(Ordering::Relaxed)
    }

    /// True if it has to make room, once it was told to look.
    pub(crate) fn must_leave(&self) -> bool {
        !self.is_busy() || self.must_leave.load(Ordering::Relaxed)
    }

    fn has_taken(&self, done: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = done {
            self.taken.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }

    fn look(&self) -> MutexGuard<'_, (Instant, u64)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in a second that it takes, if they are too few. Nobody is blamed for what has not been sent yet.
    fn too_slow(&self) -> Option<f64> {
        let taken = self.taken.load(Ordering::Relaxed);
        let mut seen = self.look();
        let time = seen.0.elapsed();
        if time < SLOW {
            return None;
        }
        let rate = taken.saturating_sub(seen.1) as f64 / time.as_secs_f64();
        if self.is_waited_for.load(Ordering::Relaxed) && rate < LEAST_RATE {
            return Some(rate);
        }
        // From now on.
        *seen = (Instant::now(), taken);
        None
    }

    /// From now on, until that is dropped.
    pub(crate) fn hold(self: &Arc<Self>, what: Holds) -> Holding {
        self.holds[what as usize].fetch_add(1, Ordering::Relaxed);
        Holding { client: Arc::clone(self), what }
    }

    pub(crate) fn does_hold(&self, what: Holds) -> bool {
        self.holds[what as usize].load(Ordering::Relaxed) > 0
    }

    /// It has a login: it has not come for its place only.
    pub(crate) fn has_login(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// It has asked for something that it may have. When that is dropped, it has it.
    pub(crate) fn serve(self: &Arc<Self>) -> Served {
        *self.look() = (Instant::now(), self.taken.load(Ordering::Relaxed));
        self.is_known.store(true, Ordering::Relaxed);
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

/// See [`Client::hold`].
#[derive(Debug)]
pub(crate) struct Holding {
    client: Arc<Client>,
    what: Holds,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.client.holds[self.what as usize].fetch_sub(1, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::pin;
    use std::task::Waker;

    fn is_told(client: &Client) -> bool {
        pin!(client.leave.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// The last bytes of an answer lie in a buffer when all of it was made.
    #[test]
    fn who_has_not_taken_the_end_of_an_answer_is_not_idle() {
        let clients = Arc::<Clients>::default();
        let [slow, idle] = [clients.enter(), clients.enter()];
        for one in [&slow, &idle] {
            drop(one.client.serve());
        }
        slow.client.is_waited_for.store(true, Ordering::Relaxed);
        // The slow one has been there for longer.
        clients.make_room();
        assert!(is_told(&idle.client) && idle.client.must_leave());
        assert!(!is_told(&slow.client) && !slow.client.must_leave());
        drop(idle);
        clients.make_room();
        assert!(!is_told(&slow.client));
        slow.client.is_waited_for.store(false, Ordering::Relaxed);
        clients.make_room();
        assert!(is_told(&slow.client) && slow.client.must_leave());
    }

    #[test]
    fn who_was_never_served_is_idle_whatever_it_has_not_taken() {
        let clients = Arc::<Clients>::default();
        let refused = clients.enter();
        refused.client.is_waited_for.store(true, Ordering::Relaxed);
        clients.make_room();
        assert!(is_told(&refused.client) && refused.client.must_leave());
    }

    #[test]
    fn who_has_a_login_goes_after_those_who_have_none() {
        let clients = Arc::<Clients>::default();
        let [known, unknown] = [clients.enter(), clients.enter()];
        known.client.has_login();
        clients.make_room();
        assert!(is_told(&unknown.client) && !is_told(&known.client));
    }

    /// What sends a page drops its body before it has sent any of it.
    #[test]
    fn who_takes_a_page_slowly_makes_room_for_others() {
        let clients = Arc::<Clients>::default();
        let entered = clients.enter();
        let slow = &entered.client;
        let page = slow.hold(Holds::Page);
        drop(slow.serve());
        slow.is_waited_for.store(true, Ordering::Relaxed);
        clients.make_room_for(Holds::Page);
        assert!(!is_told(slow), "nobody knows yet how slow it is");
        *slow.look() = (Instant::now().checked_sub(SLOW).unwrap(), 0);
        clients.make_room_for(Holds::Download);
        assert!(!is_told(slow));
        clients.make_room_for(Holds::Page);
        assert!(is_told(slow) && slow.must_leave());
        drop(page);
        assert!(!slow.does_hold(Holds::Page));
    }
}
