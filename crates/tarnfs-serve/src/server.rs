//! Listens, and answers on each connection until somebody stops it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::SockRef;
use tarnfs_tree::Tree;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::access::{Hosts, Logins};
use crate::answer::{PAGES, PAGES_OF_A_LANE, Site, TEXTS, answer};
use crate::body::Memory;
use crate::connection::{Entered, Patient};
use crate::page;
use crate::pool::{Lanes, Pool};
use crate::tls::Tls;

/// Bytes of the head of a request at most.
const MOST_HEAD: usize = 64 << 10;

/// Threads that wait for connections: they do nothing else, so there need not be many.
const MOST_LISTENERS: usize = 4;

/// After the stop, answers that are on their way get this long.
const LAST: Duration = Duration::from_millis(300);

/// Bytes of an answer that the system may take before it has to send them. It would take MiB, and of a steady but slow
/// client nothing would be seen to move for minutes.
const UNSENT: u32 = 128 << 10;

/// Between two tries to find room for one more connection.
const NO_ROOM: Duration = Duration::from_millis(200);

/// Between two tries to accept where the system has no more descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

/// How a tree is served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is served, as people call it.
    pub title: String,
    /// The folder that an archive of all of it has it in, and the archive's own name without its suffix.
    pub folder: Vec<u8>,
    /// Who may read; without any login, everybody.
    pub logins: Logins,
    /// The certificate for HTTPS; without one, plain HTTP is spoken.
    pub tls: Option<Tls>,
    /// Names beside `localhost` that clients call this server by.
    pub hosts: Vec<String>,
    /// Tells this tree from one that was served here before: it goes into the ETags.
    pub salt: Vec<u8>,
    /// Some of it lies in folders behind URLs: what a listing says there may be true of other bytes, too.
    pub is_far: bool,
    /// A connection on which nothing moves for so long is closed.
    pub patience: Duration,
    /// Connections at the same time. Where one more comes, the one goes that has been idle the longest.
    pub most_clients: usize,
    /// Threads that may wait for a disk, or decode.
    pub threads: usize,
    /// Folders that are sent as archives at the same time.
    pub most_downloads: usize,
    /// Threads that compress one of these.
    pub compressing_threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            title: "tarnfs".to_owned(),
            folder: b"tarnfs".to_vec(),
            logins: Logins::default(),
            tls: None,
            hosts: Vec::new(),
            salt: Vec::new(),
            is_far: false,
            patience: Duration::from_secs(60),
            most_clients: 4096,
            threads: 64,
            most_downloads: 8,
            compressing_threads: 2,
        }
    }
}

/// A tree, and an address on which nobody is answered yet.
pub struct Server {
    listener: TcpListener,
    site: Site,
    settings: Settings,
    stop: watch::Sender<bool>,
}

/// Stops a server; clones stop the same one.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Nobody is answered any more, and [`Server::run`] returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What nobody can guess, for [`Site::boundary`].
fn boundary() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(format!("tarnfs-part-{:032x}", u128::from_ne_bytes(bytes)))
}

impl Server {
    /// Begins to listen at `address`; with port 0 at any that is free.
    pub fn bind(address: SocketAddr, tree: Arc<dyn Tree>, settings: Settings) -> io::Result<Self> {
        Self::new(TcpListener::bind(address)?, tree, settings)
    }

    /// On what listens already.
    pub fn new(listener: TcpListener, tree: Arc<dyn Tree>, settings: Settings) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let site = Site {
            tree,
            hosts: Hosts::new(listener.local_addr()?, &settings.hosts),
            logins: settings.logins.clone(),
            title: settings.title.clone(),
            folder: settings.folder.clone(),
            salt: settings.salt.clone(),
            is_far: settings.is_far,
            pool: Pool::new(settings.threads.max(1), settings.patience),
            patience: settings.patience,
            memory: Arc::new(Memory::default()),
            texts: Arc::new(Semaphore::new(TEXTS)),
            pages: Arc::new(Semaphore::new(PAGES)),
            page_lanes: Lanes::new(PAGES_OF_A_LANE),
            clients: Arc::default(),
            downloads: Arc::new(Semaphore::new(settings.most_downloads)),
            compressing_threads: settings.compressing_threads.max(1),
            policy: page::policy(),
            boundary: boundary()?,
        };
        Ok(Self { listener, site, settings, stop: watch::Sender::new(false) })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What ends [`Server::run`].
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Answers until it is stopped.
    pub fn run(self) -> io::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.min(MOST_LISTENERS))
            // One that waits for connections is replaced while it does something else (`Need::Hardly`).
            .max_blocking_threads(self.settings.threads.max(1) + MOST_LISTENERS)
            .thread_name("serve")
            .enable_io()
            .enable_time()
            .build()?;
        let served = runtime.block_on(self.serve());
        // Threads that decode, or wait for a disk, are not waited for.
        runtime.shutdown_timeout(Duration::ZERO);
        served
    }

    async fn serve(self) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let site = Arc::new(self.site);
        let clients = Arc::clone(&site.clients);
        let places = Arc::new(Semaphore::new(self.settings.most_clients.max(1)));
        let mut stopped = self.stop.subscribe();
        loop {
            // Nobody is accepted without a place: who waits, waits in the queue of the system.
            let accepted = async {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => break stream,
                        Err(error) => {
                            log::debug!("accepting a connection: {error}");
                            clients.make_room();
                            tokio::time::sleep(NO_DESCRIPTORS).await;
                        }
                    }
                }
            };
            let stream = tokio::select! {
                stream = accepted => stream,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            let place = async {
                let mut place = std::pin::pin!(Arc::clone(&places).acquire_owned());
                if places.available_permits() == 0 {
                    clients.make_room();
                }
                loop {
                    match tokio::time::timeout(NO_ROOM, place.as_mut()).await {
                        Ok(place) => break place,
                        // Somebody may be idle by now.
                        Err(_) => clients.make_room(),
                    }
                }
            };
            let place = tokio::select! {
                place = place => place.map_err(io::Error::other)?,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            // Where that cannot be set, small answers come a little later.
            let _ = stream.set_nodelay(true);
            let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
            let (site, entered, stopped) = (Arc::clone(&site), clients.enter(), self.stop.subscribe());
            let tls = self.settings.tls.clone();
            tokio::spawn(async move {
                match tls {
                    Some(tls) => encrypted(stream, &tls, site, &entered, stopped).await,
                    None => connection(stream, site, &entered, stopped).await,
                }
                drop((entered, place));
            });
        }
        drop(listener);
        let all = u32::try_from(self.settings.most_clients.max(1)).unwrap_or(u32::MAX);
        // Once all places are free, nobody is left.
        let _ = tokio::time::timeout(LAST, places.acquire_many(all)).await;
        Ok(())
    }
}

/// The handshake, and then the same as over plain HTTP. Until it is done, the client counts as idle.
async fn encrypted(
    stream: TcpStream,
    tls: &Tls,
    site: Arc<Site>,
    entered: &Entered,
    mut stopped: watch::Receiver<bool>,
) {
    let mut shaken = Box::pin(tokio::time::timeout(site.patience, tls.accept(stream)));
    let stream = loop {
        tokio::select! {
            shaken = shaken.as_mut() => match shaken.map_err(io::Error::from).flatten() {
                Ok(stream) => break stream,
                Err(error) => return log::debug!("a handshake has failed: {error}"),
            },
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = entered.client.leave.notified() => {
                if entered.client.must_leave() {
                    return;
                }
            }
        }
    };
    // It is as large as the connection.
    drop(shaken);
    connection(stream, site, entered, stopped).await;
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    site: Arc<Site>,
    entered: &Entered,
    mut stopped: watch::Receiver<bool>,
) {
    let client = &entered.client;
    let patience = site.patience;
    let service = service_fn(|request| {
        let (site, client) = (Arc::clone(&site), Arc::clone(client));
        async move { Ok::<_, Infallible>(answer(site, request, client).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(MOST_HEAD)
        .writev(true)
        .serve_connection(TokioIo::new(Patient::new(stream, patience, Arc::clone(client))), service);
    tokio::pin!(connection);
    let mut is_stopped = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    log::debug!("a connection has ended: {error}");
                }
                return;
            }
            _ = stopped.wait_for(|stopped| *stopped), if !is_stopped => {
                is_stopped = true;
                connection.as_mut().graceful_shutdown();
            }
            () = client.leave.notified() => {
                if client.must_leave() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_boundary_of_its_own() {
        let [one, other] = [(), ()].map(|()| boundary().unwrap());
        // RFC 2046: at most 70 characters.
        assert!(one != other && one.len() == 44 && one.is_ascii(), "{one} {other}");
    }
}
