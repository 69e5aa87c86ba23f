//! `http://` and `https://`: ranges of an object, pinned to its version.
//!
//! Each request says which version it is for (`If-Match`, `If-Unmodified-Since`), and each answer is compared with
//! that: not all servers look at the conditions. What else speaks HTTP asks so, too, with an [`Access`] of its own.

mod agent;
mod answer;
mod ask;
mod listing;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use base64::Engine as _;
use ureq::http::{HeaderName, Method, StatusCode, header};

use crate::backend::{Backend, Begun, Body, Entry, Fault, Object, Version};
use crate::credentials::{Credentials, Login};
use crate::open::Settings;
use crate::url::Url;
pub(crate) use agent::{is_of_this_machine, prepare, speaks_tls};
pub(crate) use answer::{Answer, all_of, json_of, refused, text};
use answer::{again, body, content_range, is_lasting, is_strong, length_of_unsatisfied, says};
pub(crate) use ask::{Access, Asker, Question, Refusal};

/// See the module.
pub(crate) struct Http;

impl Backend for Http {
    fn schemes(&self) -> &'static [&'static str] {
        &["http", "https"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(HttpObject::new(Box::new(Plain::new(url, settings)))))
    }

    fn reads(&self, settings: &Settings) -> Vec<PathBuf> {
        settings.credentials.file().cloned().into_iter().collect()
    }

    /// An answer tells it.
    fn may_be_folder(&self, _: &Url, _: Option<&io::Error>) -> bool {
        false
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        listing::list(&url.as_folder(), settings, deadline)
    }
}

/// A URL as it is, with user and password where one is known.
#[derive(Debug)]
struct Plain {
    url: Url,
    credentials: Credentials,
}

impl Plain {
    fn new(url: &Url, settings: &Settings) -> Self {
        let known = settings.credentials.of_host(url.host()).is_some();
        if url.scheme() == "http" && (url.login().is_some() || known) && !is_of_this_machine(url.host()) {
            log::warn!("{url}: user and password go over the network as they are; https:// hides them");
        }
        Self::quiet(url, settings)
    }

    /// Says nothing of that.
    fn quiet(url: &Url, settings: &Settings) -> Self {
        Self { url: url.clone(), credentials: settings.credentials.clone() }
    }
}

impl Access for Plain {
    fn url(&self) -> Url {
        self.url.clone()
    }

    fn login(&self, _: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        // A redirect to another host carries no login.
        let is_for = at.origin() == self.url.origin();
        let login = if is_for { at.login().cloned().or_else(|| self.credentials.of_host(at.host())) } else { None };
        Ok(login.iter().map(basic).collect())
    }
}

/// The header by which this login is told.
pub(crate) fn basic(login: &Login) -> (HeaderName, String) {
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.user, login.password));
    (header::AUTHORIZATION, format!("Basic {login}"))
}

/// An object that is asked for over HTTP.
#[derive(Debug)]
pub(crate) struct HttpObject(Asker);

impl HttpObject {
    /// With this access.
    pub(crate) fn new(access: Box<dyn Access>) -> Self {
        Self(Asker::new(access))
    }

    /// Asks for a range, under conditions.
    fn ask(
        &self,
        range: &Range<u64>,
        conditions: &[(HeaderName, &str)],
        deadline: Instant,
        is_for_body: bool,
    ) -> Result<Answer, Fault> {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let mut headers = vec![(header::RANGE, range.as_str())];
        headers.extend_from_slice(conditions);
        self.0.ask(&Question { method: Method::GET, headers: &headers, body: None, deadline, is_for_body })
    }

    fn range_of(&self, range: &Range<u64>, version: &Version, deadline: Instant) -> Result<Body, Fault> {
        let tag = version.tag.as_deref().filter(|tag| is_strong(tag) && self.0.access.compares_tags());
        let conditions = match (tag, &version.modified) {
            (Some(tag), _) => vec![(header::IF_MATCH, tag)],
            (None, Some(modified)) => vec![(header::IF_UNMODIFIED_SINCE, modified.as_str())],
            (None, None) => Vec::new(),
        };
        let gone = || Fault::Changed("it is not there any more".to_owned());
        let answer = self.ask(range, &conditions, deadline, true).map_err(|fault| match fault {
            Fault::Missing(_) => gone(),
            fault => fault,
        })?;
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => {
                says(&answer, self.0.access.tag(&answer), version)?;
                let (sent, length) = content_range(&answer)?;
                if length.is_some_and(|length| length != version.length) {
                    return Err(Fault::Changed("it has another length now".to_owned()));
                }
                if sent.start != range.start || sent.end > range.end || sent.is_empty() {
                    let what = format!("the server has sent bytes {}-{} instead", sent.start, sent.end);
                    return Err(again(&what));
                }
                Ok(body(answer, sent.end - sent.start))
            }
            StatusCode::OK => {
                says(&answer, self.0.access.tag(&answer), version)?;
                match answer.body().content_length() {
                    Some(length) if length != version.length => {
                        Err(Fault::Changed("it has another length now".to_owned()))
                    }
                    _ => Err(again("the server has sent all of it instead of a range")),
                }
            }
            StatusCode::PRECONDITION_FAILED => Err(Fault::Changed("another version is there now".to_owned())),
            StatusCode::RANGE_NOT_SATISFIABLE => match length_of_unsatisfied(&answer) {
                Some(length) if length != version.length => Err(Fault::Changed("it has another length now".to_owned())),
                _ => Err(again("the server says that there is no such range")),
            },
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(gone()),
            status => Err(refused(status, &answer)),
        }
    }
}

impl Object for HttpObject {
    fn begin(&self, most: u64, known: Option<&Version>, deadline: Instant) -> Result<Begun, Fault> {
        // Not If-Modified-Since: an object that was replaced by an older one has not been modified since. And weak tags
        // are alike for other bytes.
        let tag = known.and_then(|known| known.tag.as_deref()).filter(|tag| is_strong(tag));
        let tag = tag.filter(|_| self.0.access.compares_tags());
        let conditions: Vec<_> = tag.iter().map(|tag| (header::IF_NONE_MATCH, *tag)).collect();
        let mut answer = self.ask(&(0..most), &conditions, deadline, false)?;
        if answer.status() == StatusCode::NOT_MODIFIED {
            if text(&answer, &header::ETAG).is_none_or(|said| Some(said.as_str()) == tag) && tag.is_some() {
                return Ok(Begun::Same);
            }
            // It means another one.
            answer = self.ask(&(0..most), &[], deadline, false)?;
        }
        // A page at a name with a slash at the end lists what is there.
        if self.0.place().path().ends_with('/')
            && answer.status().is_success()
            && text(&answer, &header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"))
        {
            return Err(Fault::Folder);
        }
        let tag = self.0.access.tag(&answer);
        let is_lasting = is_lasting(&answer, tag.as_ref());
        let version = |length| Version {
            length,
            tag: tag.clone(),
            modified: text(&answer, &header::LAST_MODIFIED),
            id: self.0.access.id(&answer),
            is_lasting,
        };
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => {
                let (range, length) = content_range(&answer)?;
                let length = length.ok_or_else(|| again("the server does not say how long it is"))?;
                if range.start != 0 || range.end > length || (range.end < most.min(length)) {
                    return Err(again(&format!("the server has sent bytes {}-{} instead", range.start, range.end)));
                }
                let (version, end) = (version(length), range.end.min(most));
                Ok(Begun::Part(version, body(answer, end), end))
            }
            StatusCode::OK => {
                let length = answer.body().content_length();
                let length = length.ok_or_else(|| {
                    Fault::Final("the server knows no ranges, and does not say how long it is".to_owned())
                })?;
                let version = version(length);
                Ok(Begun::Whole(version, body(answer, length)))
            }
            // Of nothing there is no first byte.
            StatusCode::RANGE_NOT_SATISFIABLE if length_of_unsatisfied(&answer) == Some(0) => {
                Ok(Begun::Part(version(0), Box::new(io::empty()), 0))
            }
            status => Err(refused(status, &answer)),
        }
    }

    fn range(&self, range: Range<u64>, version: &Version, deadline: Instant) -> Result<Body, Fault> {
        // Others ask at the same time, and one of them may have learned it by the time of our answer.
        let asked = version.id.as_ref().and_then(|_| self.0.access.version());
        match (self.range_of(&range, version, deadline), &version.id) {
            // The server may still have this one.
            (Err(Fault::Changed(_)), Some(id)) if self.0.access.of_version(id, asked.as_deref()) => {
                self.range_of(&range, version, deadline)
            }
            (result, _) => result,
        }
    }
}
