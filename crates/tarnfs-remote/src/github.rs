//! `github://ORG:REPO@REF/PATH`: files and folders of a repository at GitHub.
//!
//! Files are asked for where GitHub has them as they are, which counts no requests; folders by its interface. Without a
//! REF it is the branch that is shown first.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use ureq::http::{HeaderName, Method, StatusCode, header};

use crate::backend::{Backend, Entry, Fault, Object};
use crate::fetch::tried;
use crate::http::{Access, Asker, HttpObject, Question, json_of, refused};
use crate::open::Settings;
use crate::services::{Services, below};
use crate::url::{Url, literal, plain};

/// See the module.
pub(crate) struct GitHub;

/// As many names a list has at most (its documentation).
const MOST_LISTED: usize = 1000;

impl Backend for GitHub {
    fn schemes(&self) -> &'static [&'static str] {
        &["github"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        let place = Place::new(url)?;
        let path = format!("/{}/{}/{}{}", place.owner, place.repository, place.revision, url.path());
        Ok(Box::new(HttpObject::new(Box::new(Repository::raw(&settings.services, &path)?))))
    }

    fn reads(&self, _: &Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.map_or(url.path().ends_with('/'), |error| error.kind() == io::ErrorKind::NotFound)
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        let place = Place::new(url)?;
        let repository = format!("/repos/{}/{}", place.owner, place.repository);
        let path = url.path().trim_end_matches('/');
        let contents = format!("{repository}/contents{path}");
        let listed = ask(&settings.services, &contents, Some(&place.revision), deadline)?;
        let Value::Array(listed) = listed else {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"));
        };
        if listed.len() < MOST_LISTED {
            return Ok(listed.iter().filter_map(|entry| of(entry, "name", "dir", "file")).collect());
        }
        // There may be more: those of the tree are all there.
        let mut tree = place.revision.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = ask(&settings.services, &format!("{repository}/git/trees/{tree}"), None, deadline)?;
            let name = plain(name);
            let entries = found["tree"].as_array().into_iter().flatten();
            let mut folders = entries.filter(|entry| entry["type"] == "tree");
            let folder = folders.find(|entry| entry["path"].as_str().is_some_and(|path| path.as_bytes() == name));
            let sha = folder.and_then(|folder| folder["sha"].as_str()).ok_or(io::ErrorKind::NotFound)?;
            tree = literal(sha, b"");
        }
        let found = ask(&settings.services, &format!("{repository}/git/trees/{tree}"), None, deadline)?;
        if found["truncated"] == true {
            return Err(io::Error::other("the server does not list all names"));
        }
        let entries = found["tree"].as_array().into_iter().flatten();
        Ok(entries.filter_map(|entry| of(entry, "path", "tree", "blob")).collect())
    }
}

/// One that is listed. Links and other repositories in it are left out.
fn of(entry: &Value, name: &str, folder: &str, file: &str) -> Option<Entry> {
    /// `st_mode` of a link, in octal.
    const LINK: &str = "120000";
    let kind = entry["type"].as_str()?;
    if (kind != folder && kind != file) || entry["mode"] == LINK {
        return None;
    }
    let is_folder = kind == folder;
    let size = if is_folder { 0 } else { entry["size"].as_u64()? };
    let name = entry[name].as_str()?.as_bytes().to_vec();
    Some(Entry { name, is_folder, size, modified: 0 }).filter(Entry::is_possible)
}

/// What the interface says, as JSON.
fn ask(services: &Services, path: &str, revision: Option<&String>, deadline: Instant) -> io::Result<Value> {
    let query = revision.filter(|revision| *revision != "HEAD").map(|revision| format!("ref={revision}"));
    let asker = Asker::new(Box::new(Repository::api(services, path, query)?));
    let page = tried(deadline, true, || {
        let headers = [(header::ACCEPT, "application/vnd.github+json")];
        let question = Question { method: Method::GET, headers: &headers, body: None, deadline, is_for_body: true };
        let answer = asker.ask(&question)?;
        match answer.status() {
            status if status.is_success() => json_of(answer, deadline),
            StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS if services.github_token.is_none() => {
                let what = "GitHub lists no more for now without a token: set GITHUB_TOKEN";
                Err(Fault::Final(what.to_owned()))
            }
            status => Err(refused(status, &answer)),
        }
    })?;
    serde_json::from_slice(&page).map_err(|_| io::Error::other("the list of the server is no JSON"))
}

/// Which repository, and which version of it; escaped.
struct Place {
    owner: String,
    repository: String,
    revision: String,
}

impl Place {
    fn new(url: &Url) -> io::Result<Self> {
        let (names, revision) = match url.authority().split_once('@') {
            Some((names, revision)) if !revision.is_empty() => (names, revision),
            Some((names, _)) => (names, "HEAD"),
            None => (url.authority(), "HEAD"),
        };
        let parts = names.split_once(':').filter(|(owner, repository)| !owner.is_empty() && !repository.is_empty());
        let what = "a repository is named as in github://ORG:REPO@BRANCH/PATH";
        let (owner, repository) = parts.ok_or_else(|| io::Error::other(what))?;
        let part = |part: &str| literal(&String::from_utf8_lossy(&plain(part)), b"");
        // A branch may have slashes in it.
        let revision = literal(&String::from_utf8_lossy(&plain(revision)), b"/");
        Ok(Self { owner: part(owner), repository: part(repository), revision })
    }
}

/// What lies at a place of a server of GitHub, asked for with a token if there is one.
#[derive(Debug)]
struct Repository {
    url: Url,
    services: Services,
}

impl Repository {
    fn raw(services: &Services, path: &str) -> io::Result<Self> {
        const RAW: &str = "https://raw.githubusercontent.com";
        let url = below(services.github_raw.as_ref(), "GITHUB_RAW_URL", RAW, path).map_err(io::Error::other)?;
        Ok(Self { url, services: services.clone() })
    }

    fn api(services: &Services, path: &str, query: Option<String>) -> io::Result<Self> {
        const API: &str = "https://api.github.com";
        let url = below(services.github_api.as_ref(), "GITHUB_API_URL", API, path).map_err(io::Error::other)?;
        let url = Url::of_parts(url.scheme(), url.authority().to_owned(), url.path().to_owned(), query);
        Ok(Self { url, services: services.clone() })
    }
}

impl Access for Repository {
    fn url(&self) -> Url {
        self.url.clone()
    }

    fn login(&self, _: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        let token = self.services.github_token.as_ref().filter(|_| at.origin() == self.url.origin());
        Ok(token.map(|token| (header::AUTHORIZATION, format!("Bearer {token}"))).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_named() {
        for (typed, expected) in [
            ("github://Org:Repo@v1.0/a b/x.tar", ("Org", "Repo", "v1.0", "/a%20b/x.tar")),
            ("github://o:r/x", ("o", "r", "HEAD", "/x")),
            ("github://o:r@a%2Fb/x", ("o", "r", "a/b", "/x")),
        ] {
            let url = Url::parse(typed).unwrap();
            let place = Place::new(&url).unwrap();
            let found = (place.owner.as_str(), place.repository.as_str(), place.revision.as_str(), url.path());
            assert_eq!(found, expected, "{typed}");
            assert!(!url.has_secrets());
        }
        assert!(Place::new(&Url::parse("github://o/x").unwrap()).is_err());
    }
}
