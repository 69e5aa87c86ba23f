//! Archives behind URLs: a process of its own reads them over the network, whatever this one gives up later.
//!
//! It is forked first of all, while there is a single thread, and gets the URLs with the passwords in them. Everything
//! else here knows what may be shown of them, which is what stands in messages, in the table of mounts and in indexes.

#![allow(unsafe_code, reason = "fork(2), for a process without a program of its own")]

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_index::location;
use tarnfs_remote::helper::{self, Client, Distant, DistantFolder, Index};
use tarnfs_remote::{
    Aws, BlockCache, Credentials, Ftp, Opener, Services, Settings, Ssh, Url, is_known_scheme, needs_ssh,
};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{Beside, IndexAt, Neighbour, Remote, RemoteEntry, RemoteFolder, Remotes, is_url};

use crate::args::{Cli, Open};
use crate::exit::{Code, Failure};
use crate::{daemon, inside, run, sandbox};

/// What one command has of the other process.
pub(crate) type Network = Arc<Client>;

/// Starts the process if something in `cli` is a URL, and leaves there what may be shown of each. To be called while
/// this one has a single thread, and before a log is written.
pub(crate) fn start(cli: &mut Cli) -> Result<(), Failure> {
    let mut urls: Vec<Url> = Vec::new();
    let mut take = |path: &Path| {
        let Some((is_known, url)) = url_of(path) else { return Ok(None) };
        let url = match url {
            Ok(url) => url,
            Err(_) if !is_known => return Ok(Some(SOMETHING.to_owned())),
            Err(what) => return Err(Failure::new(Code::Usage, format!("a URL is of no use: {what}"))),
        };
        if !is_known {
            return Ok(url.has_secrets().then(|| url.to_string()));
        }
        let shown = url.to_string();
        match urls.iter().find(|known| known.to_string() == shown) {
            Some(known) if *known != url => {
                let what = "is there twice, with another user, password or query: open one after the other";
                return Err(Failure::new(Code::Usage, format!("{shown} {what}")));
            }
            Some(_) => {}
            None => urls.push(url),
        }
        Ok(Some(shown))
    };
    run::each_path(cli, |path| {
        if let Some(shown) = take(path)? {
            *path = PathBuf::from(shown);
        }
        Ok::<_, Failure>(())
    })?;
    if let Some(file) = run::options_of_mut(cli).and_then(Open::index_file_mut)
        && let Some(shown) = take(Path::new(file))?
    {
        *file = shown.into();
    }
    let Some(open) = run::options_of_mut(cli).filter(|_| !urls.is_empty()) else { return Ok(()) };
    let (limit, offline) = (open.cache_size, open.offline);
    let client = fork(urls, limit, offline).map_err(|error| {
        Failure::new(Code::Failure, format!("starting the process that reads over the network: {error}"))
    })?;
    open.network = Some(Arc::new(client));
    Ok(())
}

/// What stands for a URL that is none, and may have a password somewhere.
const SOMETHING: &str = "scheme://...";

/// True of what is opened as a URL, or refused as one.
pub(crate) fn is_far(path: &Path) -> bool {
    url_of(path).is_some()
}

/// The URL that `path` is, if there is no file of that name, and whether it can be asked for.
fn url_of(path: &Path) -> Option<(bool, Result<Url, String>)> {
    if !is_url(path) || path.symlink_metadata().is_ok() {
        return None;
    }
    // A name that is no UTF-8 is escaped as others are.
    let escaped = |byte: u8| if byte.is_ascii() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    let bytes = || path.as_os_str().as_bytes().iter().copied();
    let text = path.to_str().map_or_else(|| bytes().map(escaped).collect(), str::to_owned);
    let scheme = text.split_once("://")?.0.to_ascii_lowercase();
    // What is said of such a one names it as a path.
    (scheme != "file").then(|| (is_known_scheme(&scheme), Url::parse(&text)))
}

fn fork(urls: Vec<Url>, limit: Option<u64>, offline: bool) -> io::Result<Client> {
    let (ours, theirs) = UnixStream::pair()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: there are no other threads, so no lock is held that the child could wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // SAFETY: as above. This process waits for the one in between alone, and so never has a dead child.
            if unsafe { libc::fork() } == 0 {
                // A panic has nobody to tell: whoever asks sees that nobody answers.
                let _ = std::panic::catch_unwind(|| work(theirs, &null, urls, limit, offline));
            }
            // SAFETY: ends this process at once; nothing is cleaned up twice.
            unsafe { libc::_exit(0) }
        }
        child => {
            // SAFETY: the child is ours, and nobody else waits for it. It ends at once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(Client::new(ours))
        }
    }
}

/// All that the process does.
fn work(control: UnixStream, null: &File, urls: Vec<Url>, limit: Option<u64>, offline: bool) -> io::Result<()> {
    helper::take_log();
    let control = daemon::detach(control, null, c"tarnfs-remote")?;
    // Each connection and each file of a folder has some.
    inside::raise_descriptors();
    let ssh = if needs_ssh(&urls) && !offline { start_ssh(&urls)? } else { Ssh::default() };
    let folder = location::cache_folder().filter(|_| limit != Some(0)).map(|folder| folder.join("remote"));
    let cache = folder.as_ref().and_then(|folder| {
        let opened = BlockCache::open(folder, limit);
        opened.inspect_err(|error| log::warn!("nothing that is read over the network is kept: {error}")).ok()
    });
    let (credentials, aws) = (Credentials::of_environment(), Aws::of_environment());
    // What lies at its path may be another one by now.
    let folder = cache.as_ref().map(BlockCache::folder);
    let (ftp, services) = (Ftp::default(), Services::of_environment());
    let opener = Opener::new(Settings { cache: cache.map(Arc::new), credentials, aws, services, ftp, ssh, offline });
    opener.prepare();
    sandbox::keep_network(folder.as_deref(), &opener.reads(&urls));
    helper::serve(&control, urls, opener)
}

/// Starts the process that starts `ssh`: the one that has the network can execute nothing. To be called while this one
/// has a single thread.
fn start_ssh(urls: &[Url]) -> io::Result<Ssh> {
    let (ours, theirs) = UnixStream::pair()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: there are no other threads, so no lock is held that the child could wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            let _ = std::panic::catch_unwind(|| {
                let control = daemon::detach(theirs, &null, c"tarnfs-ssh")?;
                tarnfs_remote::start_programs(&control, urls)
            });
            // SAFETY: ends this process at once; nothing is cleaned up twice.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(Ssh::new(ours, urls)),
    }
}

/// Opens what lies behind URLs, until `cancel` is asked for.
#[derive(Debug)]
pub(crate) struct Opens {
    network: Network,
    cancel: Cancel,
}

impl Opens {
    /// Through this process.
    pub(crate) fn new(network: &Network, cancel: &Cancel) -> Self {
        Self { network: Arc::clone(network), cancel: cancel.clone() }
    }
}

impl Remotes for Opens {
    fn open(&self, url: &Path) -> io::Result<Remote> {
        let shown = url.to_str().unwrap_or_default();
        Ok(remote(self.network.open(shown, &self.cancel)?))
    }

    fn folder(&self, url: &Path) -> io::Result<Arc<dyn RemoteFolder>> {
        let folder = self.network.folder(url.to_str().unwrap_or_default(), &self.cancel)?;
        Ok(Arc::new(Folder(folder)))
    }
}

fn remote(source: Distant) -> Remote {
    let source = Arc::new(source);
    let (modified, version, is_lasting) = (source.modified(), source.version().to_owned(), source.is_lasting());
    let beside = Arc::new(Neighbours(Arc::clone(&source)));
    Remote { source, modified, version, is_lasting, beside }
}

#[derive(Debug)]
struct Folder(DistantFolder);

impl RemoteFolder for Folder {
    fn list(&self, path: &[u8]) -> io::Result<Vec<RemoteEntry>> {
        let entries = self.0.list(path)?.into_iter().map(|entry| RemoteEntry {
            name: entry.name,
            is_folder: entry.is_folder,
            size: entry.size,
            modified: entry.modified,
        });
        Ok(entries.collect())
    }

    fn open(&self, path: &[u8]) -> io::Result<Remote> {
        Ok(remote(self.0.open(path)?))
    }
}

#[derive(Debug)]
struct Neighbours(Arc<Distant>);

impl Beside for Neighbours {
    fn open(&self, suffix: &str) -> io::Result<Option<Neighbour>> {
        Ok(self.0.beside(suffix)?.map(neighbour))
    }
}

fn neighbour(index: Index) -> Neighbour {
    match index {
        Index::Copy(path) => Neighbour::Copy(path),
        Index::Far(source) => Neighbour::Far(Arc::new(source)),
    }
}

/// The index behind a URL.
pub(crate) fn index_at(shown: &str, network: &Network, cancel: &Cancel) -> Result<IndexAt, Failure> {
    let failed = |what: String| Failure::new(Code::Index, format!("--index-file {shown}: {what}"));
    match network.index(shown, cancel) {
        Ok(Some(index)) => Ok(IndexAt { url: PathBuf::from(shown), file: neighbour(index) }),
        Ok(None) => Err(failed("there is none; with --offline, nothing of it is in the cache".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}
