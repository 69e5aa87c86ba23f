//! What the process does that has the network.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tarnfs_source::Source as _;

use super::wire::{self, numbers};
use crate::backend::{Entry, is_name};
use crate::open::{Index, Opener};
use crate::source::RemoteSource;
use crate::url::Url;

/// Lines that wait to be told; more are dropped.
const MOST_LINES: usize = 100;

/// How much sooner an answer is there than somebody has to have it.
const MARGIN: Duration = Duration::from_secs(5);

/// What is said here is told with the next answer, whoever gets that.
struct Lines(Mutex<Vec<(log::Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        // What libraries say may have secrets in it.
        of.target().starts_with("tarnfs")
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.enabled(record.metadata()) && lines.len() < MOST_LINES {
            lines.push((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// From now on, what is said in this process is told to whoever asks it something.
pub fn take_log() {
    if log::set_logger(&LINES).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
}

/// What one connection has for its questions.
#[derive(Default)]
struct Asker {
    buffer: Vec<u8>,
    /// What it has listed, and is told in parts.
    listed: Vec<Entry>,
}

enum Reply {
    Nothing,
    Bytes(Vec<u8>),
    /// So many bytes in the buffer.
    Read(usize),
}

/// What all connections share.
struct Helper {
    urls: Vec<Url>,
    opener: Opener,
    /// By the place of their URL, or a number behind those: that of a file in a folder. All that is read of one is of
    /// one version, however often it is opened.
    open: Mutex<HashMap<u64, Opened>>,
    /// The last number of a file in a folder.
    last: AtomicU64,
}

#[derive(Clone)]
struct Opened {
    url: Url,
    source: Arc<RemoteSource>,
}

/// Files in folders that are open at a time. Each has two descriptors, and its blocks in memory are on the
/// [`Shelf`](crate::shelf::Shelf).
const MOST_OPEN: usize = 4 << 10;

/// Opens and reads what is behind `urls`, for whoever asks over sockets that come over `control`. Returns when nobody
/// can ask any more. To be called in a process of its own.
pub fn serve(control: &UnixStream, urls: Vec<Url>, opener: Opener) -> io::Result<()> {
    let last = AtomicU64::new(urls.len() as u64);
    let helper = Arc::new(Helper { urls, opener, open: Mutex::default(), last });
    while let Some(socket) = wire::take_over(control)? {
        let helper = Arc::clone(&helper);
        // Whoever is not served sees the end of the socket.
        let _ = std::thread::Builder::new().name("tarnfs-remote".into()).spawn(move || helper.connection(socket));
    }
    helper.open.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|opened| opened.source.end());
    Ok(())
}

impl Helper {
    /// Answers over one socket until its other end is closed.
    fn connection(&self, mut socket: UnixStream) -> Option<()> {
        let mut asker = Asker::default();
        loop {
            let (kind, payload) = wire::receive(&mut socket).ok()?;
            // A fault of ours costs this question, and not the socket.
            let reply = catch_unwind(AssertUnwindSafe(|| self.answer(&mut asker, kind, &payload)));
            let reply = reply.unwrap_or_else(|_| {
                Some(Err(io::Error::other("a fault in the process that reads over the network: please report it")))
            })?;
            if matches!(reply, Ok(Reply::Nothing)) {
                continue;
            }
            tell(&mut socket)?;
            match &reply {
                Ok(Reply::Nothing) => Ok(()),
                Ok(Reply::Bytes(bytes)) => wire::send(&mut socket, wire::FOUND, bytes),
                Ok(Reply::Read(count)) => wire::send(&mut socket, wire::FOUND, asker.buffer.get(..*count)?),
                Err(error) => wire::send(&mut socket, wire::FAILED, &wire::of_error(error)),
            }
            .ok()?;
        }
    }

    /// Answers one question. `None` if it is none.
    fn answer(&self, asker: &mut Asker, kind: u8, payload: &[u8]) -> Option<io::Result<Reply>> {
        let bytes = match kind {
            wire::OPEN => self.open(payload),
            wire::FOLDER => self.named(payload).map(|(number, _)| wire::of_numbers(&[number])),
            wire::READ => {
                let [number, offset, length, most, milliseconds] = numbers(payload)?;
                let length = usize::try_from(length).ok().filter(|&length| length <= wire::MOST_READ)?;
                asker.buffer.resize(length, 0);
                // Somewhat sooner than the other process gives up.
                let left = Duration::from_millis(milliseconds.min(60_000)).saturating_sub(MARGIN);
                let deadline = Instant::now().checked_add(left)?;
                let read = self
                    .opened(number)
                    .and_then(|opened| opened.source.read_by(deadline, &mut asker.buffer, offset, most));
                return Some(read.map(Reply::Read));
            }
            wire::PREFETCH => {
                let [number, offset, length] = numbers(payload)?;
                self.opened(number).ok()?.source.prefetch(offset, length);
                return Some(Ok(Reply::Nothing));
            }
            wire::CLOSE => {
                let [number] = numbers(payload)?;
                // Those that are named stay open, in the version that they were first opened in.
                let is_below = number >= self.urls.len() as u64;
                let closed = is_below.then(|| self.lock().remove(&number)).flatten();
                closed.inspect(|closed| closed.source.end());
                return Some(Ok(Reply::Nothing));
            }
            wire::BESIDE => {
                let ([number], suffix) = wire::numbers_before(payload)?;
                self.opened(number).and_then(|Opened { url, source }| self.beside(&url, source.len(), suffix))
            }
            wire::INDEX => self.index(payload),
            wire::LIST => {
                let ([number, from], path) = wire::numbers_before(payload)?;
                let listed = if from == 0 {
                    self.below(number, path).and_then(|url| self.opener.list(&url))
                } else {
                    Ok(Vec::new())
                };
                listed.map(|listed| {
                    if from == 0 {
                        asker.listed = listed;
                    }
                    let from = usize::try_from(from).unwrap_or(usize::MAX);
                    let (payload, _) = wire::of_entries(asker.listed.get(from..).unwrap_or_default());
                    if payload[0] == 0 {
                        asker.listed = Vec::new();
                    }
                    payload
                })
            }
            wire::BELOW => {
                let ([number], path) = wire::numbers_before(payload)?;
                self.open_below(number, path)
            }
            _ => return None,
        };
        Some(bytes.map(Reply::Bytes))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL that is shown so, and its place. No other one is asked for.
    fn named(&self, shown: &[u8]) -> io::Result<(u64, &Url)> {
        let mut urls = (0..).zip(&self.urls);
        let found = urls.find(|(_, url)| url.to_string().as_bytes() == shown);
        found.ok_or_else(|| io::Error::other("only URLs that stand on the command line can be opened"))
    }

    /// What has this path in the folder that the URL of this number is. It never leads out of that.
    fn below(&self, number: u64, path: &[u8]) -> io::Result<Url> {
        let url = usize::try_from(number).ok().and_then(|number| self.urls.get(number));
        let url = url.ok_or_else(|| io::Error::other("only URLs that stand on the command line can be opened"))?;
        let names = path.split(|&byte| byte == b'/').filter(|_| !path.is_empty());
        names
            .clone()
            .all(is_name)
            .then(|| names.fold(url.clone(), |url, name| url.child(name, false)))
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn open(&self, shown: &[u8]) -> io::Result<Vec<u8>> {
        let (number, url) = self.named(shown)?;
        let opened = if let Ok(known) = self.opened(number) {
            known
        } else {
            let source = Arc::new(self.opener.open(url)?);
            self.lock().entry(number).or_insert(Opened { url: url.clone(), source }).clone()
        };
        Ok(self.told(number, &opened))
    }

    fn open_below(&self, number: u64, path: &[u8]) -> io::Result<Vec<u8>> {
        let url = self.below(number, path)?;
        self.has_room()?;
        self.numbered(Opened { source: Arc::new(self.opener.open_one(&url)?), url })
    }

    fn has_room(&self) -> io::Result<()> {
        let has_room = self.lock().len() < MOST_OPEN;
        if has_room { Ok(()) } else { Err(io::Error::other("too many files of remote folders are open")) }
    }

    /// Keeps it open until it is closed, under a number that is told.
    fn numbered(&self, opened: Opened) -> io::Result<Vec<u8>> {
        self.has_room()?;
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let told = self.told(number, &opened);
        self.lock().insert(number, opened);
        Ok(told)
    }

    /// What is told of an object that is open.
    fn told(&self, number: u64, Opened { url, source }: &Opened) -> Vec<u8> {
        let is_lasting = u64::from(source.version().is_lasting);
        let mut answer = wire::of_numbers(&[number, source.len(), source.modified() as u64, is_lasting]);
        // Servers may call objects alike.
        answer.extend_from_slice(format!("{}-{}", &self.opener.key(url)[..8], source.version_name()).as_bytes());
        answer
    }

    fn opened(&self, number: u64) -> io::Result<Opened> {
        self.lock().get(&number).cloned().ok_or_else(|| io::Error::other("it is not open"))
    }

    /// The index beside the object of this length.
    fn beside(&self, url: &Url, length: u64, suffix: &[u8]) -> io::Result<Vec<u8>> {
        let suffix = str::from_utf8(suffix).ok().filter(|suffix| !suffix.contains(['/', '?', '%', '#']));
        let suffix = suffix.ok_or_else(|| io::Error::other("it is no suffix"))?;
        self.found(&url.beside(suffix), Some(length))
    }

    fn index(&self, shown: &[u8]) -> io::Result<Vec<u8>> {
        self.found(self.named(shown)?.1, None)
    }

    /// What is told of an index, of which there may be none.
    fn found(&self, url: &Url, archive: Option<u64>) -> io::Result<Vec<u8>> {
        Ok(match self.opener.index(url, archive)? {
            None => Vec::new(),
            Some(Index::Copy(path)) => [&[wire::COPIED], path.as_os_str().as_bytes()].concat(),
            Some(Index::Far(source)) => {
                let opened = Opened { source: Arc::new(source), url: url.clone() };
                [vec![wire::FAR], self.numbered(opened)?].concat()
            }
        })
    }
}

/// Passes on what was said.
fn tell(socket: &mut UnixStream) -> Option<()> {
    let lines = std::mem::take(&mut *LINES.0.lock().unwrap_or_else(PoisonError::into_inner));
    for (level, text) in lines {
        let mut payload = vec![level as usize as u8];
        payload.extend_from_slice(text.as_bytes());
        payload.truncate(wire::LONGEST);
        wire::send(socket, wire::LINE, &payload).ok()?;
    }
    Some(())
}
