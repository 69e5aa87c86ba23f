//! `dropbox://PATH`: files and folders of a Dropbox, for which `DROPBOX_TOKEN` has a token.
//!
//! A file is read by ranges in the revision that was there first: Dropbox keeps older ones for a while.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use ureq::http::{HeaderName, Method, StatusCode, header};

use crate::backend::{Backend, Entry, Fault, MOST_ENTRIES, Object};
use crate::fetch::{read_by, tried};
use crate::http::{Access, Answer, Asker, HttpObject, Question, Refusal, json_of, refused, text};
use crate::open::Settings;
use crate::services::{Services, below};
use crate::time::of_iso;
use crate::url::{Url, plain};

/// See the module.
pub(crate) struct Dropbox;

impl Backend for Dropbox {
    fn schemes(&self) -> &'static [&'static str] {
        &["dropbox"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(HttpObject::new(Box::new(File::new(url, &settings.services)?))))
    }

    fn reads(&self, _: &Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// A refusal tells it.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.is_none() && url.path().ends_with('/')
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut answer = ask(settings, "list_folder", &json!({ "path": path(url)?, "limit": 2000 }), deadline)?;
        loop {
            found.extend(answer["entries"].as_array().into_iter().flatten().filter_map(entry));
            if found.len() > MOST_ENTRIES {
                return Err(io::Error::other(format!("there are more than {MOST_ENTRIES} names in it")));
            }
            if answer["has_more"] != true {
                return Ok(found);
            }
            answer = ask(settings, "list_folder/continue", &json!({ "cursor": answer["cursor"] }), deadline)?;
        }
    }
}

fn entry(of: &Value) -> Option<Entry> {
    let is_folder = of[".tag"] == "folder";
    if !is_folder && of[".tag"] != "file" {
        return None;
    }
    let size = if is_folder { 0 } else { of["size"].as_u64()? };
    let modified = of["client_modified"].as_str().and_then(of_iso).unwrap_or(0);
    Some(Entry { name: of["name"].as_str()?.as_bytes().to_vec(), is_folder, size, modified }).filter(Entry::is_possible)
}

/// The path as the interface has it: it begins with a slash, and the root is nothing.
fn path(url: &Url) -> io::Result<String> {
    let path = String::from_utf8(plain(url.path())).map_err(|_| io::Error::other("its name is no UTF-8"))?;
    Ok(path.trim_end_matches('/').to_owned())
}

fn base(services: &Services, usual: &str, path: &str) -> io::Result<Url> {
    below(services.dropbox_api.as_ref(), "DROPBOX_API_URL", usual, path).map_err(io::Error::other)
}

fn token(services: &Services, at: &Url, own: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
    if at.origin() != own.origin() {
        return Ok(Vec::new());
    }
    let what = "DROPBOX_TOKEN is not set: it has the token of an app that may read files";
    let token = services.dropbox_token.as_ref().ok_or_else(|| Fault::Final(what.to_owned()))?;
    Ok(vec![(header::AUTHORIZATION, format!("Bearer {token}"))])
}

/// What the interface answers, as JSON.
fn ask(settings: &Settings, function: &str, question: &Value, deadline: Instant) -> io::Result<Value> {
    let url = base(&settings.services, "https://api.dropboxapi.com", &format!("/2/files/{function}"))?;
    let asker = Asker::new(Box::new(Interface { url, services: settings.services.clone() }));
    let body = question.to_string();
    let answer = tried(deadline, true, || {
        let headers = [(header::CONTENT_TYPE, "application/json")];
        let body = Some(body.as_bytes());
        let question = Question { method: Method::POST, headers: &headers, body, deadline, is_for_body: true };
        let answer = asker.ask(&question)?;
        match answer.status() {
            status if status.is_success() => json_of(answer, deadline),
            status => Err(refused(status, &answer)),
        }
    })?;
    serde_json::from_slice(&answer).map_err(|_| io::Error::other("the answer of the server is no JSON"))
}

/// What a refusal means: the interface says that with 409, and in its body why.
fn meaning(answer: &mut Answer, deadline: Instant) -> Refusal {
    const LONGEST: u64 = 8 << 10;
    let status = answer.status();
    if status == StatusCode::UNAUTHORIZED {
        let what = "Dropbox does not take the token of DROPBOX_TOKEN: it may have run out";
        return Refusal::Means(Fault::Final(what.to_owned()));
    }
    if status != StatusCode::CONFLICT {
        return Refusal::AsItSays;
    }
    let mut said = Vec::new();
    let _ = read_by(deadline, &mut answer.body_mut().as_reader(), LONGEST, &mut said);
    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
    let summary = said["error_summary"].as_str().unwrap_or_default();
    Refusal::Means(if summary.contains("not_file") {
        Fault::Folder
    } else if summary.contains("not_found") {
        Fault::Missing("Dropbox says that there is no such file".to_owned())
    } else {
        let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '/');
        let summary: String = summary.chars().filter(|&letter| word(letter)).take(100).collect();
        Fault::Final(format!("Dropbox refuses it ({summary})"))
    })
}

/// The interface for lists.
#[derive(Debug)]
struct Interface {
    url: Url,
    services: Services,
}

impl Access for Interface {
    fn url(&self) -> Url {
        self.url.clone()
    }

    fn login(&self, _: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        token(&self.services, at, &self.url)
    }

    fn refused(&self, answer: &mut Answer, deadline: Instant) -> Refusal {
        meaning(answer, deadline)
    }
}

/// A file.
#[derive(Debug)]
struct File {
    url: Url,
    path: String,
    services: Services,
    /// The revision that is asked for.
    revision: Mutex<Option<String>>,
}

impl File {
    fn new(url: &Url, services: &Services) -> io::Result<Self> {
        let path = path(url)?;
        let url = base(services, "https://content.dropboxapi.com", "/2/files/download")?;
        Ok(Self { url, path, services: services.clone(), revision: Mutex::default() })
    }
}

/// What goes into a header: letters that are not ASCII are escaped, as the documentation wants it.
fn in_header(value: &Value) -> String {
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() && letter != '\u{7f}' {
            escaped.push(letter);
        } else {
            let mut units = [0; 2];
            escaped.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

impl Access for File {
    fn url(&self) -> Url {
        self.url.clone()
    }

    fn login(&self, _: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        let mut headers = token(&self.services, at, &self.url)?;
        if !headers.is_empty() {
            let revision = self.revision.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let path = revision.map_or_else(|| self.path.clone(), |revision| format!("rev:{revision}"));
            headers.push((HeaderName::from_static("dropbox-api-arg"), in_header(&json!({ "path": path }))));
        }
        Ok(headers)
    }

    fn refused(&self, answer: &mut Answer, deadline: Instant) -> Refusal {
        meaning(answer, deadline)
    }

    /// The ETag says the same, but as one that is weak.
    fn tag(&self, answer: &Answer) -> Option<String> {
        self.id(answer)
    }

    fn compares_tags(&self) -> bool {
        false
    }

    fn id(&self, answer: &Answer) -> Option<String> {
        let about = text(answer, &HeaderName::from_static("dropbox-api-result"))?;
        let about: Value = serde_json::from_str(&about).ok()?;
        let revision = about["rev"].as_str().filter(|rev| rev.bytes().all(|byte| byte.is_ascii_alphanumeric()))?;
        Some(revision.to_owned())
    }

    fn version(&self) -> Option<String> {
        self.revision.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of_version(&self, id: &str, asked: Option<&str>) -> bool {
        let mut revision = self.revision.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = revision.get_or_insert_with(|| id.to_owned());
        asked.is_none() && revision == id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_into_a_header() {
        assert_eq!(in_header(&json!({ "path": "/a é\u{1f600}" })), "{\"path\":\"/a \\u00e9\\ud83d\\ude00\"}");
        let url = Url::parse("dropbox://Some folder/x?.tar").unwrap();
        assert_eq!(
            (path(&url).unwrap().as_str(), url.to_string().as_str()),
            ("/Some folder/x?.tar", "dropbox://Some folder/x%3F.tar")
        );
        assert_eq!(path(&Url::parse("dropbox:///").unwrap()).unwrap(), "");
    }
}
