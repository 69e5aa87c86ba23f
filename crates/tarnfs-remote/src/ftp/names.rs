//! Addresses of a host. Looking one up may take as long as it likes, and is waited for only until a deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::connection::CONNECT;
use crate::backend::Fault;

/// Threads that look names up, also for those who do not wait any more.
const MOST_THREADS: usize = 8;
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Addresses that are tried.
const MOST_ADDRESSES: usize = 16;

/// Where this host is.
pub(super) fn found(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, Fault> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    waited_for(&THREADS, deadline, move || {
        (host.as_str(), port).to_socket_addrs().map(|found| found.take(MOST_ADDRESSES).collect())
    })
}

/// One of the threads that `0` counts.
struct One(&'static AtomicUsize);

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn waited_for(
    threads: &'static AtomicUsize,
    deadline: Instant,
    look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<SocketAddr>, Fault> {
    let late = || Fault::Again("looking up the host takes too long".to_owned(), None);
    let more = |count: usize| (count < MOST_THREADS).then_some(count + 1);
    threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| late())?;
    let one = One(threads);
    let (sender, receiver) = channel();
    let work = move || {
        let found = look_up();
        drop(one);
        let _ = sender.send(found);
    };
    let unknown = |error: io::Error| Fault::Again(format!("the host is not found: {error}"), None);
    std::thread::Builder::new().name("tarnfs-name".into()).spawn(work).map_err(unknown)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)).min(CONNECT);
    match receiver.recv_timeout(left) {
        Ok(found) => found.map_err(unknown),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_a_host_up_is_waited_for_until_the_deadline() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // They look until the end.
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..MOST_THREADS).map(|_| channel::<()>()).unzip();
        for receiver in receivers {
            let late = waited_for(&COUNT, Instant::now(), move || {
                let _ = receiver.recv();
                Ok(Vec::new())
            });
            assert!(matches!(late, Err(Fault::Again(what, _)) if what.contains("too long")));
        }
        // No more of them: what they do is not done.
        let soon = || Instant::now() + Duration::from_secs(60);
        let none = waited_for(&COUNT, soon(), || unreachable!());
        assert!(none.is_err() && COUNT.load(Ordering::Relaxed) == MOST_THREADS);
        drop(senders);
        while COUNT.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        assert_eq!(waited_for(&COUNT, soon(), move || Ok(vec![address])).unwrap(), [address]);
        assert_eq!(found("127.0.0.1", 7, Instant::now()).unwrap(), [address]);
        assert!(found("localhost", 7, soon()).unwrap().contains(&address));
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
