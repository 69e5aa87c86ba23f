//! `sftp://` and `ssh://` (`scp://`): files of a host that is reached by ssh.
//!
//! The user's own `ssh` makes the connection ([`ssh`]), and this speaks SFTP over it ([`session`], [`wire`]). A file is
//! of one version, which is its length and the second of its last change. Both are asked for behind each piece that is
//! read: a server does what concerns one file in the order in which it was asked (the draft, 4.1).

mod askpass;
mod list;
mod said;
mod session;
mod ssh;
mod wire;

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

/// A handle that is kept: whoever puts another file in this one's place leaves us this one.
struct Open {
    session: Arc<Session>,
    handle: Vec<u8>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.session.let_go(&self.handle);
    }
}

/// A handle for what is asked next. One that is not kept is closed behind that; one that is, not before all has been
/// asked by who has this: the server gives its number to another file then.
struct Handle {
    handle: Vec<u8>,
    kept: Option<Arc<Open>>,
}

impl File {
    fn opened(&self, session: &Arc<Session>, path: &[u8], deadline: Instant) -> Result<Handle, Fault> {
        let handle = handle(session.ask_one(Question::Open(path), deadline)?)?;
        if !session.keeps_one_more() {
            return Ok(Handle { handle, kept: None });
        }
        let new = Arc::new(Open { session: Arc::clone(session), handle: handle.clone() });
        // Closed outside the lock.
        let _old = self.open.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&new));
        Ok(Handle { handle, kept: Some(new) })
    }

    /// The handle that is there, or a new one.
    fn handle(&self, session: &Arc<Session>, deadline: Instant) -> Result<Handle, Fault> {
        {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = open.as_ref().filter(|open| Arc::ptr_eq(&open.session, session)) {
                return Ok(Handle { handle: open.handle.clone(), kept: Some(Arc::clone(open)) });
            }
        }
        let path = self.place.path(session, deadline)?;
        self.opened(session, &path, deadline)
    }
}

/// Asks for a range, and for the version behind each group of pieces. Returns the lengths of the pieces of each group.
fn ask(session: &Session, handle: &Handle, range: &Range<u64>) -> Result<(Answers, Vec<Vec<usize>>), Fault> {
    let piece = session.piece() as u64;
    let (mut questions, mut groups) = (Vec::new(), Vec::new());
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + GROUP);
        let mut group = Vec::new();
        while start < end {
            let length = (end - start).min(piece);
            questions.push(Question::Read(&handle.handle, start, length as u32));
            group.push(length as usize);
            start += length;
        }
        questions.push(Question::OfHandle(&handle.handle));
        groups.push(group);
    }
    if handle.kept.is_none() {
        questions.push(Question::Close(&handle.handle));
    }
    Ok((session.ask(&questions)?, groups))
}

/// Bytes of a range, as groups of them come.
struct Coming {
    session: Arc<Session>,
    answers: Answers,
    groups: std::vec::IntoIter<Vec<usize>>,
    version: Version,
    deadline: Instant,
}

impl Coming {
    /// The bytes of the next group, once it is known of which version they are. Fewer if the server gives fewer: then
    /// they are the last ones.
    fn group(&mut self) -> Result<Vec<u8>, Fault> {
        let Some(lengths) = self.groups.next() else { return Ok(Vec::new()) };
        let mut bytes = Vec::with_capacity(lengths.iter().sum());
        let mut is_whole = true;
        let mut odd = None;
        for wanted in lengths {
            match self.answers.next(self.deadline)? {
                Answer::Data(data) if data.len() <= wanted && !data.is_empty() => {
                    if is_whole {
                        bytes.extend_from_slice(&data);
                    }
                    if data.len() < wanted {
                        self.session.gives(data.len());
                        is_whole = false;
                    }
                }
                answer => {
                    is_whole = false;
                    odd.get_or_insert(answer);
                }
            }
        }
        self.version.is_still(&version(&attributes(self.answers.next(self.deadline)?)?)?)?;
        if !is_whole {
            self.groups = Vec::new().into_iter();
        }
        match odd {
            Some(answer) if bytes.is_empty() => Err(fault(&answer)),
            _ => Ok(bytes),
        }
    }
}

impl Object for File {
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
        let handle = self.opened(&session, &path, deadline)?;
        let (answers, groups) = ask(&session, &handle, &(0..end))?;
        let groups = groups.into_iter();
        let mut coming = Coming { session, answers, groups, version: version.clone(), deadline };
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
        let handle = self.handle(&session, deadline).map_err(|fault| match fault {
            Fault::Missing(_) => Fault::Changed("it is not there any more".to_owned()),
            fault => fault,
        })?;
        let (answers, groups) = ask(&session, &handle, &range)?;
        let groups = groups.into_iter();
        let mut coming = Coming { session, answers, groups, version: version.clone(), deadline };
        let first = coming.group()?;
        Ok(Box::new(Groups::behind(first, move || coming.group())))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(formatter)
    }
}
