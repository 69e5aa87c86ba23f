//! `sftp://` and `ssh://` (`scp://`): files of a host that is reached by ssh.
//!
//! The user's own `ssh` makes the connection ([`ssh`]), and this speaks SFTP over it ([`session`], [`wire`]). A file is
//! of one version, which is its length and the second of its last change. Both are asked for when a group of pieces is
//! here, and before anybody gets them. Not along with these: the draft has a server do in order what concerns one file
//! (4.1), but Go's has some threads that read and another one for everything else.

mod askpass;
mod list;
#[cfg(test)]
mod peer;
mod said;
mod session;
mod ssh;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Cursor};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::backend::{Backend, Begun, Body, Entry, Fault, Object, Version};
use crate::fetch::Groups;
use crate::open::Settings;
use crate::url::{Url, plain};
pub use askpass::answer_ssh;
use session::{Answers, Session};
use ssh::Host;
pub use ssh::{Ssh, needs_ssh, start_programs};
use wire::{Answer, Attributes, Question, status};

/// Those of hosts that are reached by ssh.
const SCHEMES: &[&str] = &["sftp", "ssh", "scp"];

/// Bytes that are read between two looks at the version.
const GROUP: u64 = 256 << 10;

/// Groups that are asked for before the first of them is here: what a line of 20 MB/s brings in 50 ms. Most servers say
/// of which version one is behind all that was asked for before, so over a slow line it is one at a time.
const AHEAD: usize = 4;

/// See the module.
pub(crate) struct Sftp;

impl Backend for Sftp {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(File { place: Place::new(url, settings), open: Mutex::default() }))
    }

    /// What `ssh` reads is read by another process.
    fn reads(&self, _: &Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What is asked for a file says that it is a folder.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.is_none() && url.path().ends_with('/')
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        list::list(&Place::new(url, settings), deadline)
    }
}

/// A path at a host.
#[derive(Clone)]
struct Place {
    /// `None` while nothing is asked.
    host: Option<Host>,
    /// As the URL has it, from its slash on.
    path: Vec<u8>,
}

impl Place {
    fn new(url: &Url, settings: &Settings) -> Self {
        Self { host: settings.ssh.host(url), path: plain(url.path()) }
    }

    fn host(&self) -> Result<&Host, Fault> {
        self.host.as_ref().ok_or_else(|| Fault::Final("nothing was started that could ask its host".to_owned()))
    }

    /// The path as the server gets it. One that begins with `//` begins there at the root, as ratarmount has it, and
    /// with `/~/` in the home folder. All others begin in the home folder, too, if the first name is there, and else at
    /// the root.
    fn path(&self, session: &Session, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let path = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        if let Some(rest) = relative.strip_prefix(b"~").filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            return Ok(if rest.is_empty() { b".".to_vec() } else { rest.to_vec() });
        }
        if relative.starts_with(b"/") || self.path == b"//" {
            let from = relative.iter().position(|&byte| byte != b'/').unwrap_or(relative.len());
            return Ok([b"/", relative.get(from..).unwrap_or_default()].concat());
        }
        if relative.is_empty() {
            return Ok(b".".to_vec());
        }
        let first = relative.split(|&byte| byte == b'/').next().unwrap_or_default();
        let is_at_home = self.host()?.is_at_home(first, || {
            match session.ask_one(Question::OfPath(first), deadline)? {
                Answer::Status(status::NO_SUCH_FILE) => Ok(false),
                // It is there, whatever else is said of it.
                Answer::Status(status::PERMISSION_DENIED) | Answer::Attributes(_) => Ok(true),
                answer => Err(fault(&answer)),
            }
        })?;
        Ok(if is_at_home { relative.to_vec() } else { [b"/", relative].concat() })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}{}", self.host, String::from_utf8_lossy(&self.path))
    }
}

/// What it means that this is the answer.
fn fault(answer: &Answer) -> Fault {
    let Answer::Status(code) = answer else {
        return Fault::Again("the server has answered something else".to_owned(), None);
    };
    match *code {
        status::EOF => Fault::Again("the server says that there is nothing more".to_owned(), None),
        status::NO_SUCH_FILE => Fault::Missing("the server says that there is no such file".to_owned()),
        status::PERMISSION_DENIED => Fault::Final("the server says that it may not be read".to_owned()),
        status::FAILURE => Fault::Again("the server says that it has failed".to_owned(), None),
        status::NO_CONNECTION | status::CONNECTION_LOST => {
            Fault::Again("the server says that it has no connection".to_owned(), None)
        }
        code => Fault::Final(format!("the server refuses it (code {code})")),
    }
}

/// Attributes of a file, which has to be one.
fn attributes(answer: Answer) -> Result<Attributes, Fault> {
    match answer {
        Answer::Attributes(found) => Ok(found),
        answer => Err(fault(&answer)),
    }
}

fn handle(answer: Answer) -> Result<Vec<u8>, Fault> {
    match answer {
        Answer::Handle(handle) => Ok(handle),
        answer => Err(fault(&answer)),
    }
}

fn version(found: &Attributes) -> Result<Version, Fault> {
    let modified = found.modified.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()));
    Version::of_second(found.size, modified)
}

/// A file at a host.
struct File {
    place: Place,
    open: Mutex<Option<Arc<Open>>>,
}

/// What is open there. It is closed when nobody asks by it any more: the server gives its number to another file then.
/// Whoever puts another file in the place of this one leaves us this one.
struct Open {
    session: Arc<Session>,
    handle: Vec<u8>,
    /// It is one of those that a session keeps.
    is_kept: bool,
}

impl Open {
    fn new(session: &Arc<Session>, handle: Vec<u8>) -> Self {
        Self { session: Arc::clone(session), handle, is_kept: session.keeps_one_more() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_kept {
            self.session.keeps_one_less();
        }
        self.session.close(&self.handle);
    }
}

impl File {
    fn opened(&self, session: &Arc<Session>, path: &[u8], deadline: Instant) -> Result<Arc<Open>, Fault> {
        let handle = handle(session.ask_one(Question::Open(path), deadline)?)?;
        let new = Arc::new(Open::new(session, handle));
        if new.is_kept {
            let _old = self.open.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&new));
        }
        Ok(new)
    }

    /// The handle that is there, or a new one.
    fn handle(&self, session: &Arc<Session>, deadline: Instant) -> Result<Arc<Open>, Fault> {
        {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = open.as_ref().filter(|open| Arc::ptr_eq(&open.session, session)) {
                return Ok(Arc::clone(open));
            }
        }
        let path = self.place.path(session, deadline)?;
        self.opened(session, &path, deadline)
    }
}

/// Bytes of a range, as groups of them come.
struct Coming {
    /// What was asked for: the pieces of each group, and how long they are. Dropped before what is open.
    asked: VecDeque<(Answers, Vec<usize>)>,
    /// What has come, the answer to which version is there now, and since when that is asked.
    come: VecDeque<(Vec<u8>, Answers, Instant)>,
    /// Why nothing comes behind that.
    failed: Option<Fault>,
    place: Place,
    open: Arc<Open>,
    /// What was not asked for.
    rest: Range<u64>,
    version: Version,
    deadline: Instant,
}

impl Coming {
    fn new(place: &Place, open: Arc<Open>, range: Range<u64>, version: &Version, deadline: Instant) -> Self {
        let (asked, come) = (VecDeque::new(), VecDeque::new());
        let (place, version) = (place.clone(), version.clone());
        Self { asked, come, failed: None, place, open, rest: range, version, deadline }
    }

    /// Groups that are under way at a time.
    fn ahead(&self) -> usize {
        if self.open.session.is_slow() { 1 } else { AHEAD }
    }

    /// Asks for some groups ahead.
    fn ask(&mut self) -> Result<(), Fault> {
        let piece = self.open.session.piece() as u64;
        while self.asked.len() < self.ahead() && !self.rest.is_empty() {
            let end = self.rest.end.min(self.rest.start + GROUP);
            let (mut questions, mut lengths) = (Vec::new(), Vec::new());
            let mut start = self.rest.start;
            while start < end {
                let length = (end - start).min(piece);
                questions.push(Question::Read(&self.open.handle, start, length as u32));
                lengths.push(length as usize);
                start += length;
            }
            self.asked.push_back((self.open.session.ask(&questions)?, lengths));
            self.rest.start = end;
        }
        Ok(())
    }

    /// Nothing is asked for any more.
    fn stop(&mut self, why: Option<Fault>) {
        self.asked.clear();
        self.rest.start = self.rest.end;
        self.failed = why;
    }

    /// Reads the next group, and asks of which version it is. False if there is none. Fewer bytes if the server gives
    /// fewer: then they are the last ones.
    fn read(&mut self) -> Result<bool, Fault> {
        self.ask()?;
        let Some((mut answers, lengths)) = self.asked.pop_front() else { return Ok(false) };
        let mut bytes = Vec::with_capacity(lengths.iter().sum());
        let mut is_whole = true;
        let mut odd = None;
        for wanted in lengths {
            match answers.next(self.deadline)? {
                Answer::Data(data) if data.len() <= wanted && !data.is_empty() => {
                    if is_whole {
                        bytes.extend_from_slice(&data);
                    }
                    if data.len() < wanted {
                        self.open.session.gives(data.len());
                        is_whole = false;
                    }
                }
                answer => {
                    is_whole = false;
                    odd.get_or_insert(answer);
                }
            }
        }
        // Nothing that is changed from now on is in the bytes.
        let now = self.open.session.ask(&[Question::OfHandle(&self.open.handle)])?;
        if !is_whole {
            self.stop(odd.as_ref().filter(|_| bytes.is_empty()).map(fault));
        }
        self.come.push_back((bytes, now, Instant::now()));
        self.ask()?;
        Ok(true)
    }

    /// What is at the path, over a new connection.
    fn asked_anew(&self) -> Result<Answer, Fault> {
        let session = self.place.host()?.session(self.deadline)?;
        let path = self.place.path(&session, self.deadline)?;
        match session.ask_one(Question::OfPath(&path), self.deadline)? {
            Answer::Status(status::NO_SUCH_FILE) => Err(Fault::Changed("it is not there any more".to_owned())),
            answer => Ok(answer),
        }
    }

    /// The bytes of the next group, once it is known of which version they are. None at the end.
    fn group(&mut self) -> Result<Vec<u8>, Fault> {
        // Most servers tell the version behind all that was asked for before: so there is no waiting for it alone.
        while self.come.len() < self.ahead() && self.failed.is_none() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => break,
                // What has come before may be known yet.
                Err(fault) => {
                    if Instant::now() >= self.deadline {
                        self.open.session.took(Duration::MAX);
                    }
                    self.stop(Some(fault));
                }
            }
        }
        let bytes = match self.come.pop_front() {
            Some((bytes, mut now, since)) => {
                let now = now.next(self.deadline);
                self.open.session.took(since.elapsed());
                // What has come over a connection that was cut is as good, if the same version is there after that.
                let now = match now {
                    Err(Fault::Again(..)) if !bytes.is_empty() && self.open.session.is_over() => self.asked_anew()?,
                    now => now?,
                };
                self.version.is_still(&version(&attributes(now)?)?)?;
                bytes
            }
            None => Vec::new(),
        };
        match self.failed.take_if(|_| bytes.is_empty()) {
            Some(fault) => Err(fault),
            None => Ok(bytes),
        }
    }
}

impl Object for File {
    /// One connection serves all. The last version of each range takes a round trip, in which others have to come.
    fn readers(&self) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| open.session.is_slow()) { 1 } else { 8 }
    }

    fn begin(&self, most: u64, known: Option<&Version>, deadline: Instant) -> Result<Begun, Fault> {
        let session = self.place.host()?.session(deadline)?;
        let path = self.place.path(&session, deadline)?;
        let found = attributes(session.ask_one(Question::OfPath(&path), deadline)?)?;
        if found.is_folder() {
            return Err(Fault::Folder);
        }
        // Opening a pipe would make the server wait for who writes to it.
        if !found.may_be_file() {
            return Err(Fault::Final("it is neither a file nor a folder".to_owned()));
        }
        let version = version(&found)?;
        if known.is_some_and(|known| *known == version) {
            return Ok(Begun::Same);
        }
        let end = most.min(version.length);
        if end == 0 {
            return Ok(Begun::Part(version, Box::new(io::empty()), 0));
        }
        let open = self.opened(&session, &path, deadline)?;
        let mut coming = Coming::new(&self.place, open, 0..end, &version, deadline);
        let mut bytes = Vec::new();
        loop {
            let group = coming.group().map_err(|fault| match fault {
                Fault::Changed(_) => Fault::Again("it is changed while it is opened".to_owned(), None),
                fault => fault,
            })?;
            bytes.extend_from_slice(&group);
            if group.is_empty() || bytes.len() as u64 >= end {
                break;
            }
        }
        // A server that gives less at once is asked for less the next time.
        if (bytes.len() as u64) < end {
            return Err(Fault::Again("the server has sent less than it said".to_owned(), None));
        }
        Ok(Begun::Part(version, Box::new(Cursor::new(bytes)), end))
    }

    fn range(&self, range: Range<u64>, version: &Version, deadline: Instant) -> Result<Body, Fault> {
        let session = self.place.host()?.session(deadline)?;
        let open = self.handle(&session, deadline).map_err(|fault| match fault {
            Fault::Missing(_) => Fault::Changed("it is not there any more".to_owned()),
            fault => fault,
        })?;
        let mut coming = Coming::new(&self.place, open, range, version, deadline);
        let first = coming.group()?;
        Ok(Box::new(Groups::behind(first, move || coming.group())))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(formatter)
    }
}
