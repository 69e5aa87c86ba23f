//! `webdav://` and `webdavs://` (`dav://`, `davs://`): files over HTTP, and folders that are listed by `PROPFIND`.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ureq::http::{HeaderName, Method, StatusCode};

use crate::backend::{Backend, Entry, Fault, MOST_ENTRIES, Object};
use crate::credentials::Login;
use crate::fetch::tried;
use crate::http::{Access, Asker, HttpObject, Question, all_of, basic, is_of_this_machine, refused, speaks_tls};
use crate::open::Settings;
use crate::time::of_http;
use crate::url::{Url, plain};
use crate::xml::{Record, records};

/// See the module.
pub(crate) struct WebDav;

impl Backend for WebDav {
    fn schemes(&self) -> &'static [&'static str] {
        &["webdav", "webdavs", "dav", "davs"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(HttpObject::new(Box::new(Server::new(url, settings)))))
    }

    fn reads(&self, settings: &Settings) -> Vec<PathBuf> {
        settings.credentials.file().cloned().into_iter().collect()
    }

    /// Servers show pages for folders, or refuse to.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.is_some() || url.path().ends_with('/')
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        let asker = Asker::new(Box::new(Server::new(&url.as_folder(), settings)));
        let depth = HeaderName::from_static("depth");
        let method = Method::from_bytes(b"PROPFIND").map_err(io::Error::other)?;
        let page = tried(deadline, true, || {
            let headers = [(depth.clone(), "1")];
            let question =
                Question { method: method.clone(), headers: &headers, body: None, deadline, is_for_body: true };
            let answer = asker.ask(&question)?;
            match answer.status() {
                StatusCode::MULTI_STATUS => all_of(answer, deadline),
                status if status.is_success() => Err(Fault::Final("the server speaks no WebDAV there".to_owned())),
                status => Err(refused(status, &answer)),
            }
        })?;
        entries(&page, &asker.place())
    }
}

/// Where the files are, and who asks.
#[derive(Debug)]
struct Server {
    url: Url,
    login: Option<Login>,
    /// Without that it is found out by asking.
    is_encrypted: OnceLock<bool>,
    /// Until then nobody asks again: that was done, and had no answer.
    unknown_until: Mutex<Option<Instant>>,
}

/// As long as asking for that may take. One question to the server needs it several times, and is to get the same.
const UNKNOWN: Duration = Duration::from_secs(5);

impl Server {
    fn new(url: &Url, settings: &Settings) -> Self {
        let is_encrypted = OnceLock::new();
        if url.scheme().ends_with('s') {
            let _ = is_encrypted.set(true);
        }
        let login = url.login().cloned().or_else(|| settings.credentials.of_webdav(url.host()));
        Self { url: url.clone(), login, is_encrypted, unknown_until: Mutex::default() }
    }

    fn with(&self, scheme: &str) -> Url {
        let url = &self.url;
        Url::of_parts(scheme, url.authority().to_owned(), url.path().to_owned(), url.query().map(str::to_owned))
    }
}

impl Access for Server {
    fn url(&self) -> Url {
        let known = self.is_encrypted.get().copied().or_else(|| {
            // Others wait for what is found out here.
            let mut unknown_until = self.unknown_until.lock().unwrap_or_else(PoisonError::into_inner);
            if unknown_until.is_some_and(|until| Instant::now() < until) {
                return None;
            }
            let Some(found) = speaks_tls(&self.with("https")) else {
                *unknown_until = Some(Instant::now() + UNKNOWN);
                return None;
            };
            if !found && self.login.is_some() && !is_of_this_machine(self.url.host()) {
                let what = "user and password go over the network as they are; webdavs:// never does that";
                log::warn!("{}: {what}", self.url);
            }
            Some(*self.is_encrypted.get_or_init(|| found))
        });
        // Where that is not known, nothing goes over the network as it is: who asks gets an error, and asks again.
        self.with(if known.unwrap_or(true) { "https" } else { "http" })
    }

    fn login(&self, _: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        let is_for = at.origin() == self.url().origin();
        Ok(self.login.iter().filter(|_| is_for).map(basic).collect())
    }
}

/// What an answer lists of the folder at `url`.
fn entries(answer: &[u8], url: &Url) -> io::Result<Vec<Entry>> {
    let no_list = || io::Error::other("the answer of the server is no list of a folder");
    let (found, _) = records(answer, &["response"], &["href", "collection", "getcontentlength", "getlastmodified"])
        .ok_or_else(no_list)?;
    let folder = plain(url.path());
    let folder = folder.strip_suffix(b"/").unwrap_or(&folder);
    let mut entries = Vec::new();
    let mut is_folder = false;
    for (_, record) in found {
        // A path, or a whole URL.
        let Some(to) = record.get("href").and_then(|href| url.redirected(href.trim()).ok()) else { continue };
        let path = to.path().trim_end_matches('/');
        if plain(path) == folder {
            is_folder = record.get("collection").is_some();
            continue;
        }
        // Names that are escaped otherwise are the same.
        let Some((above, name)) = path.rsplit_once('/') else { continue };
        if plain(above) == folder {
            entries.extend(entry(&record, plain(name)));
        }
        if entries.len() > MOST_ENTRIES {
            return Err(io::Error::other(format!("there are more than {MOST_ENTRIES} names in it")));
        }
    }
    if is_folder { Ok(entries) } else { Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no folder")) }
}

fn entry(record: &Record, name: Vec<u8>) -> Option<Entry> {
    let is_folder = record.get("collection").is_some();
    let size = record.get("getcontentlength").and_then(|size| size.trim().parse().ok());
    let modified = record.get("getlastmodified").and_then(of_http).unwrap_or(0);
    let size = if is_folder { 0 } else { size? };
    Some(Entry { name, is_folder, size, modified }).filter(Entry::is_possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call would wait for a server that is gone, and one question has several.
    #[test]
    fn whether_a_server_speaks_tls_is_asked_once_a_question() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = Settings::default();
        let url = Url::parse(&format!("webdav://{}/x", listener.local_addr().unwrap())).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        // It cuts each connection, which says nothing.
        std::thread::spawn(move || listener.incoming().for_each(|_| _ = counted.fetch_add(1, Ordering::SeqCst)));
        let server = Server::new(&url, &settings);
        let first = server.url();
        let asked = count.load(Ordering::SeqCst);
        assert!(first.scheme() == "https" && asked > 0, "{asked}");
        assert!((0..5).all(|_| server.url() == first));
        assert_eq!(count.load(Ordering::SeqCst), asked);
    }

    #[test]
    fn a_listing_has_what_lies_in_the_folder() {
        let url = Url::parse("http://host/dav/a%20b/").unwrap();
        let of = |href: &str, props: &str| {
            format!("<D:response><D:href>{href}</D:href><D:propstat><D:prop>{props}</D:prop></D:propstat></D:response>")
        };
        let folder = "<D:resourcetype><D:collection/></D:resourcetype>";
        let file = "<D:getcontentlength>12</D:getcontentlength><D:getlastmodified>Fri, 24 May 2013 00:00:00 GMT</D:getlastmodified>";
        let all = |parts: &[String]| format!("<D:multistatus xmlns:D='DAV:'>{}</D:multistatus>", parts.concat());
        let listed = all(&[
            of("/dav/a%20b/", folder),
            of("/dav/a b/c", folder),
            of("http://host/dav/a%20b/d%2Be&amp;", file),
            of("/dav/other", file),
            of("/dav/a%20b/x/y", file),
            of("/dav/a%20b/%2e%2e", file),
        ]);
        let found = entries(listed.as_bytes(), &url).unwrap();
        let names: Vec<_> = found.iter().map(|entry| (&entry.name[..], entry.is_folder, entry.size)).collect();
        assert_eq!(names, [(&b"c"[..], true, 0), (b"d+e&", false, 12)]);
        assert_eq!(found[1].modified, 1_369_353_600_000_000_000);
        let error = entries(all(&[of("/dav/a%20b", file)]).as_bytes(), &url).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert!(entries(b"hello", &url).is_err());
    }
}
