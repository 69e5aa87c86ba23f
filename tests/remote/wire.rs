//! Bytes on their way to a server and back, whatever they say: they pass, are cut, or stop.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

struct Shared {
    server: SocketAddr,
    /// So many bytes of the server pass over each connection.
    most: AtomicU64,
    /// Connections that are cut so; all later ones are not.
    cuts: AtomicUsize,
    /// Nothing passes, and nothing is closed.
    is_silent: AtomicBool,
    is_over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
}

/// A port before a server.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Wire {
    /// Cuts the first connections (`cuts`) after so many bytes of the server (`most`).
    pub(crate) fn cutting(server: SocketAddr, cuts: usize, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            most: AtomicU64::new(most),
            cuts: AtomicUsize::new(cuts),
            is_silent: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            open: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if all.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (all, client) = (Arc::clone(&all), client.unwrap());
                std::thread::spawn(move || all.pass(&client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn new(server: SocketAddr) -> Self {
        Self::cutting(server, 0, 0)
    }

    /// All that is open is cut now.
    pub(crate) fn cut(&self) {
        for open in self.shared.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// Nothing passes from now on, or it does again.
    pub(crate) fn be_silent(&self, is_silent: bool) {
        self.shared.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn pass(&self, client: &TcpStream) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let is_cut = self.cuts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let most = if is_cut { self.most.load(Ordering::Relaxed) } else { u64::MAX };
        let Ok(server) = TcpStream::connect(self.server) else { return };
        self.open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        std::thread::scope(|scope| {
            scope.spawn(|| self.copy(client, &server, u64::MAX));
            self.copy(&server, client, most);
        });
    }

    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream, most: u64) {
        let (mut buffer, mut left) = ([0; 4096], most);
        loop {
            let wanted = left.min(4096) as usize;
            let read = if wanted == 0 { 0 } else { from.read(&mut buffer[..wanted]).unwrap_or(0) };
            while self.is_silent.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            if read == 0 || to.write_all(&buffer[..read]).is_err() {
                let _ = to.shutdown(if left == 0 { Shutdown::Both } else { Shutdown::Write });
                if left == 0 {
                    let _ = from.shutdown(Shutdown::Both);
                }
                return;
            }
            left -= read as u64;
        }
    }
}
