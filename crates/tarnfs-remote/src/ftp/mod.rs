//! `ftp://` and `ftps://`: files of a server of FTP.
//!
//! suppaftp speaks the protocol ([`connection`]). A file is of one version, which is its length and the second of its
//! last change. While a transfer goes on, nothing can be asked over its connection, so another one asks whether the
//! version is still there, behind each group of bytes and before anybody gets them ([`pool`]).

mod connection;
mod facts;
mod names;
mod pool;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::backend::{Backend, Begun, Body, Entry, Fault, MOST_ENTRIES, Object, Version};
use crate::credentials::Login;
use crate::fetch::{Groups, tried};
use crate::http::is_of_this_machine;
use crate::open::Settings;
use crate::url::{Url, plain};
use connection::{About, letters};
use pool::{Got, Pool, Skipped, Taken, Wanted};

/// Bytes that are read between two looks at the version.
const GROUP: u64 = 1 << 20;

/// See the module.
pub(crate) struct FtpFiles;

/// Connections to servers of FTP, which all objects share.
#[derive(Clone, Default)]
pub struct Ftp(Arc<Mutex<Vec<Arc<Pool>>>>);

/// Which server, and who asks it.
#[derive(Clone, PartialEq, Eq)]
struct Site {
    host: String,
    port: u16,
    login: Option<Login>,
    is_encrypted: bool,
}

impl Ftp {
    fn pool(&self, url: &Url, settings: &Settings) -> Arc<Pool> {
        let login = url.login().cloned().or_else(|| settings.credentials.of_host(url.host()));
        let is_encrypted = url.scheme() == "ftps";
        let host = url.host().trim_matches(['[', ']']).to_owned();
        let site = Site { host, port: url.port().unwrap_or(21), login, is_encrypted };
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.iter().find(|pool| pool.site == site) {
            return Arc::clone(known);
        }
        if site.login.is_some() && !is_encrypted && !is_of_this_machine(url.host()) {
            log::warn!("{url}: user and password go over the network as they are; ftps:// hides them");
        }
        let pool = Arc::new(Pool::new(site));
        pools.push(Arc::clone(&pool));
        pool
    }
}

impl fmt::Debug for Ftp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ftp")
    }
}

/// Reads whom to trust, so that no file need be opened later.
pub(crate) fn prepare() {
    connection::prepare();
}

impl Backend for FtpFiles {
    fn schemes(&self) -> &'static [&'static str] {
        &["ftp", "ftps"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(Place::new(url, settings)))
    }

    fn reads(&self, settings: &Settings) -> Vec<PathBuf> {
        settings.credentials.file().cloned().into_iter().collect()
    }

    /// What is asked for a file says that it is a folder.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.is_none() && url.path().ends_with('/')
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        Place::new(url, settings).list(deadline)
    }
}

/// A path at a server.
struct Place {
    pool: Arc<Pool>,
    /// As the URL has it, from its slash on; a letter for each byte.
    path: String,
}

impl Place {
    fn new(url: &Url, settings: &Settings) -> Self {
        Self { pool: settings.ftp.pool(url, settings), path: letters(&plain(url.path())) }
    }

    /// The path from the root on. One that begins with `//` begins there, and with `/~/` in the folder in which the
    /// user is first. All others begin in that folder, too, if the first name is there, and else at the root.
    fn path(&self, deadline: Instant) -> Result<String, Fault> {
        let path = self.path.strip_suffix('/').unwrap_or(&self.path);
        let relative = path.strip_prefix('/').unwrap_or(path);
        if relative.starts_with('/') || self.path == "//" {
            let rest = relative.trim_start_matches('/');
            return Ok(if rest.is_empty() { String::new() } else { format!("/{rest}") });
        }
        let home = self.pool.ask(deadline, |connection| Ok(connection.home.clone()))?;
        let below = |home: &str, rest: &str| if rest.is_empty() { home.to_owned() } else { format!("{home}/{rest}") };
        if let Some(rest) = relative.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Ok(below(&home, rest.trim_start_matches('/')));
        }
        if home.is_empty() || relative.is_empty() {
            return Ok(below(&home, relative));
        }
        let first = relative.split('/').next().unwrap_or_default();
        let is_at_home = self.pool.is_at_home(first, || match self.pool.about(&below(&home, first), deadline) {
            Ok(_) => Ok(true),
            Err(Fault::Missing(_)) => Ok(false),
            Err(fault) => Err(fault),
        })?;
        Ok(below(if is_at_home { &home } else { "" }, relative))
    }

    fn list(&self, deadline: Instant) -> io::Result<Vec<Entry>> {
        let found = tried(deadline, true, || {
            let path = self.path(deadline)?;
            if !self.pool.about(&path, deadline)?.is_folder {
                return Ok(None);
            }
            self.pool.ask(deadline, |connection| {
                let (list, has_facts) = connection.list(&path, deadline)?;
                let mut found = Vec::new();
                for (name, about, is_asked) in facts::of_list(&list, has_facts) {
                    let at = format!("{path}/{}", letters(&name));
                    let about = match is_asked.then(|| connection.about(&at, deadline)) {
                        // A link to a folder may lead back.
                        Some(Ok(about)) if about.is_folder => continue,
                        Some(Ok(about)) => about,
                        Some(Err(Fault::Missing(_) | Fault::Final(_))) => continue,
                        Some(Err(fault)) => return Err(fault),
                        None => about,
                    };
                    found.extend(entry(name, &about));
                    if found.len() > MOST_ENTRIES {
                        return Err(Fault::Final(format!("there are more than {MOST_ENTRIES} names in it")));
                    }
                }
                Ok(Some(found))
            })
        })?;
        let mut found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"))?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        Ok(found)
    }
}

fn entry(name: Vec<u8>, about: &About) -> Option<Entry> {
    let since = about.modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let modified = since.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0);
    let size = if about.is_folder { 0 } else { about.size? };
    Some(Entry { name, is_folder: about.is_folder, size, modified }).filter(Entry::is_possible)
}

fn version(about: &About) -> Result<Version, Fault> {
    Version::of_second(about.size, about.modified)
}

/// Bytes of a range, as groups of them come.
struct Coming {
    pool: Arc<Pool>,
    taken: Option<Taken>,
    wanted: Wanted,
    version: Version,
    /// None for what is read as a whole, which may take long.
    deadline: Option<Instant>,
}

impl Coming {
    fn new(pool: &Arc<Pool>, path: String, range: Range<u64>, version: &Version, deadline: Instant) -> Self {
        let pool = Arc::clone(pool);
        let file = format!("{} {path}", version.key());
        let wanted = Wanted { path, file, start: range.start, end: range.end };
        Self { pool, taken: None, wanted, version: version.clone(), deadline: Some(deadline) }
    }

    /// The bytes of the next group, once it is known of which version they are. None at the end.
    fn group(&mut self) -> Result<Vec<u8>, Fault> {
        /// How long one group of a file may take that is read as a whole.
        const GROUP_COMES: Duration = Duration::from_secs(120);
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + GROUP_COMES);
        let count = GROUP.min(self.wanted.end - self.wanted.start);
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut skipped = None;
        let read = match &mut self.taken {
            Some(taken) => read(&self.pool, taken, &self.wanted, count, deadline, &mut skipped),
            None => match self.pool.reading(self.wanted.clone(), deadline)? {
                Got::Kept(bytes) => Ok(bytes),
                Got::Taken(taken) => {
                    let taken = self.taken.insert(*taken);
                    read(&self.pool, taken, &self.wanted, count, deadline, &mut skipped)
                }
            },
        };
        self.check(deadline).inspect_err(|fault| {
            if matches!(fault, Fault::Changed(_)) {
                self.give_up();
            }
        })?;
        // Others get that when it is known of which version it is.
        if let Some(skipped) = skipped {
            skipped.keep();
        }
        let bytes = read?;
        if bytes.is_empty() {
            if let Some(taken) = &mut self.taken {
                let _ = taken.connection()?.stop(deadline);
            }
            return Err(Fault::Again("the server has sent less than it said".to_owned(), None));
        }
        self.wanted.start += bytes.len() as u64;
        Ok(bytes)
    }

    /// `Changed` if another version is there. Also where nothing came: it may be that one.
    fn check(&mut self, deadline: Instant) -> Result<(), Fault> {
        let about = match &mut self.taken {
            Some(taken) => taken.about(&self.wanted.path, deadline),
            None => self.pool.about(&self.wanted.path, deadline),
        };
        match about {
            Err(Fault::Missing(_)) => Err(Fault::Changed("it is not there any more".to_owned())),
            about => self.version.is_still(&version(&about?)?),
        }
    }

    /// What was sent of it may be of another version, and nobody gets it: not even if this one is there again.
    fn give_up(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.give_up();
        }
        self.pool.forget(&self.wanted.file);
    }

    fn body(mut self) -> Result<Body, Fault> {
        let first = self.group()?;
        Ok(Box::new(Groups::behind(first, move || self.group())))
    }
}

/// Reads so many bytes of this part by a connection. What lies before them, and others may want, is `skipped`.
fn read(
    pool: &Arc<Pool>,
    taken: &mut Taken,
    wanted: &Wanted,
    count: u64,
    deadline: Instant,
    skipped: &mut Option<Skipped>,
) -> Result<Vec<u8>, Fault> {
    let Wanted { path, file, start, .. } = wanted;
    let connection = taken.connection()?;
    if let Some((sent, position)) = connection.transfer()
        && sent == file
        && (position..=position + pool::SKIPPED).contains(start)
        && position < *start
    {
        let new = skipped.insert(pool.skips(file, position..*start));
        new.bytes = connection.read((*start - position) as usize, deadline)?;
    }
    if connection.transfer() != Some((file, *start)) {
        connection.begin(path, file, *start, deadline)?;
    }
    connection.read(count as usize, deadline)
}

impl Object for Place {
    fn begin(&self, most: u64, known: Option<&Version>, deadline: Instant) -> Result<Begun, Fault> {
        let path = self.path(deadline)?;
        let about = self.pool.about(&path, deadline)?;
        if about.is_folder {
            return Err(Fault::Folder);
        }
        let version = version(&about)?;
        if known.is_some_and(|known| *known == version) {
            return Ok(Begun::Same);
        }
        let end = most.min(version.length);
        if end == 0 {
            return Ok(Begun::Part(version, Box::new(io::empty()), 0));
        }
        let has_ranges =
            end == version.length || self.pool.ask(deadline, |connection| connection.has_ranges(deadline))?;
        let end = if has_ranges { end } else { version.length };
        let mut coming = Coming::new(&self.pool, path, 0..end, &version, deadline);
        coming.deadline = coming.deadline.filter(|_| has_ranges);
        let body = coming.body().map_err(|fault| match fault {
            Fault::Changed(_) => Fault::Again("it is changed while it is opened".to_owned(), None),
            fault => fault,
        })?;
        Ok(if has_ranges { Begun::Part(version, body, end) } else { Begun::Whole(version, body) })
    }

    fn range(&self, range: Range<u64>, version: &Version, deadline: Instant) -> Result<Body, Fault> {
        Coming::new(&self.pool, self.path(deadline)?, range, version, deadline).body().map_err(|fault| match fault {
            Fault::Missing(_) => Fault::Changed("it is not there any more".to_owned()),
            fault => fault,
        })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.pool.site.host, self.path)
    }
}
