//! From a request to its answer.

#![allow(clippy::result_large_err, reason = "a refusal is an answer as any other, and there is one for each request")]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts as Head;
use hyper::{Method, Request, Response, StatusCode, Version};
use rustix::io::Errno;
use tarnfs_format::Kind;
use tarnfs_source::{Cancel, Setting};
use tarnfs_tree::{Error, Tree, escape, with_memory};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Hosts, Logins};
use crate::body::{Body, Memory, Piped, Stepwise, whole};
use crate::conditions::{self, FilePlace, Outcome, Validators, Wanted};
use crate::connection::{Client, Clients, Holding, Holds};
use crate::dav::{self, Found};
use crate::download::{self, Download};
use crate::file::{Part, Parts, multipart};
use crate::held::{Held, name_of_copy};
use crate::kinds;
use crate::page::{self, View};
use crate::pool::{Lanes, Pool, Work};
use crate::url::{self, BadPath, Target, in_query};

/// Who has no login waits so long for the next try.
const AFTER_A_WRONG_LOGIN: Duration = Duration::from_millis(300);

/// KiB of all pages that are being sent.
pub(crate) const TEXTS: usize = 128 << 10;

/// Pages that are made at the same time: each may have a large folder in memory.
pub(crate) const PAGES: usize = 4;

/// How many of them in one lane.
pub(crate) const PAGES_OF_A_LANE: usize = 2;

/// Between two looks whether there is room for a page.
const NO_ROOM: Duration = Duration::from_secs(1);

const METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND";

/// What is served, and how.
pub(crate) struct Site {
    pub(crate) tree: Arc<dyn Tree>,
    pub(crate) hosts: Hosts,
    pub(crate) logins: Logins,
    pub(crate) title: String,
    pub(crate) folder: Vec<u8>,
    pub(crate) salt: Vec<u8>,
    /// Some of it lies in folders behind URLs.
    pub(crate) is_far: bool,
    pub(crate) pool: Pool,
    pub(crate) patience: Duration,
    pub(crate) memory: Arc<Memory>,
    /// Of texts that are made as a whole, in KiB.
    pub(crate) texts: Arc<Semaphore>,
    /// Pages that are made at the same time, in all and in each lane.
    pub(crate) pages: Arc<Semaphore>,
    pub(crate) page_lanes: Lanes,
    pub(crate) clients: Arc<Clients>,
    pub(crate) downloads: Arc<Semaphore>,
    pub(crate) compressing_threads: usize,
    pub(crate) policy: String,
    /// Between the parts of a file. Lengths say where these are, but a client may look for it: no file can have it, as
    /// nobody knows it before.
    pub(crate) boundary: String,
}

type Answer = Response<Body>;

/// Says in the log why something of the tree cannot be sent. The client is told less: messages name files of this
/// machine.
pub(crate) fn tell(path: &[u8], error: &Error) {
    log::warn!("{}: {error}", escape(path));
}

/// The answer to who asks for what cannot be found or read.
fn failed(path: &[u8], error: &Error) -> Answer {
    match error {
        Error::NotFound | Error::NotAFolder => refuse(StatusCode::NOT_FOUND, "There is nothing of that name."),
        Error::TooManyLinks => refuse(StatusCode::LOOP_DETECTED, "Too many levels of symbolic links."),
        // As the kernel says of names that are too long.
        error if error.errno() == Errno::NAMETOOLONG => refuse(StatusCode::NOT_FOUND, "There is nothing of that name."),
        error => {
            // Nobody waits for what was given up.
            if error.errno() != Errno::INTR {
                tell(path, error);
            }
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "It cannot be read; the log of the server says why.")
        }
    }
}

/// An answer of one sentence.
fn refuse(status: StatusCode, what: &str) -> Answer {
    let mut answer = Response::new(whole(format!("{what}\n")));
    *answer.status_mut() = status;
    put(&mut answer, CONTENT_TYPE, "text/plain; charset=utf-8");
    answer
}

/// Sets a header. What no header can hold is left out; nothing here makes such.
fn put(answer: &mut Answer, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// Answers a request of a client. Who has no login counts as idle all the time: its place may be taken by others.
pub(crate) async fn answer(site: Arc<Site>, request: Request<Incoming>, client: Arc<Client>) -> Answer {
    let what = log::log_enabled!(log::Level::Info).then(|| {
        let path = request.uri().path();
        format!("{} {}", escape(request.method().as_str().as_bytes()), escape(path.as_bytes()))
    });
    let policy = site.policy.clone();
    let (mut answer, served) = match allowed(&site, &request).await {
        Ok(()) => {
            if !site.logins.is_empty() {
                client.has_login();
            }
            match said(&site, request).await {
                Ok((head, body)) => {
                    let served = client.serve();
                    (dispatch(site, head, &body, &client).await, Some(served))
                }
                Err(refused) => (refused, None),
            }
        }
        Err(refused) => (refused, None),
    };
    put(&mut answer, X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(&mut answer, REFERRER_POLICY, "no-referrer");
    put(&mut answer, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    put(&mut answer, CACHE_CONTROL, "private, no-cache");
    if !answer.headers().contains_key(CONTENT_SECURITY_POLICY) {
        put(&mut answer, CONTENT_SECURITY_POLICY, &policy);
    }
    if let Some(what) = what {
        log::info!("{what}: {}", answer.status().as_u16());
    }
    answer.map(|body| Kept { body, _kept: served }.boxed_unsync())
}

async fn allowed(site: &Site, request: &Request<Incoming>) -> Result<(), Answer> {
    if !site.hosts.has(request) {
        let what = format!("This server has another name: see {}.", Setting::Host);
        return Err(refuse(StatusCode::MISDIRECTED_REQUEST, &what));
    }
    if !site.logins.allow(request.headers()) {
        if request.headers().contains_key(hyper::header::AUTHORIZATION) {
            tokio::time::sleep(AFTER_A_WRONG_LOGIN).await;
        }
        let mut refused = refuse(StatusCode::UNAUTHORIZED, "Log in with a user and a password, or with a token.");
        put(&mut refused, WWW_AUTHENTICATE, "Basic realm=\"tarnfs\", charset=\"UTF-8\"");
        return Err(refused);
    }
    Ok(())
}

fn is_find(method: &Method) -> bool {
    method.as_str() == "PROPFIND"
}

/// All of a request. Who has not said yet what it wants counts as idle: it would hold a place for next to nothing.
async fn said(site: &Site, request: Request<Incoming>) -> Result<(Head, Bytes), Answer> {
    let (head, body) = request.into_parts();
    if !is_find(&head.method) {
        return Ok((head, Bytes::new()));
    }
    let read = tokio::time::timeout(site.patience, Limited::new(body, dav::MOST_BODY).collect());
    match read.await {
        Ok(Ok(body)) => Ok((head, body.to_bytes())),
        Ok(Err(_)) => Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "The request is too long, or was cut.")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "The request did not come to its end.")),
    }
}

async fn dispatch(site: Arc<Site>, head: Head, body: &[u8], client: &Arc<Client>) -> Answer {
    let method = head.method;
    if method == Method::OPTIONS {
        let mut answer = Response::new(whole(""));
        put(&mut answer, ALLOW, METHODS);
        put(&mut answer, HeaderName::from_static("dav"), "1");
        put(&mut answer, HeaderName::from_static("ms-author-via"), "DAV");
        return answer;
    }
    let is_find = is_find(&method);
    if method != Method::GET && method != Method::HEAD && !is_find {
        let mut refused = refuse(StatusCode::METHOD_NOT_ALLOWED, "This can only be read.");
        put(&mut refused, ALLOW, METHODS);
        return refused;
    }
    let place = match Target::parse(head.uri.path()) {
        Ok(place) => place,
        Err(BadPath::Malformed) => return refuse(StatusCode::BAD_REQUEST, "This is no path."),
        Err(BadPath::Impossible) => return refuse(StatusCode::NOT_FOUND, "There is nothing of that name."),
    };
    if is_find {
        return find(site, place, &head.headers, head.version, body).await;
    }
    let asked = Asked {
        place,
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        is_head: method == Method::HEAD,
        version: head.version,
        name_of_copy: None,
    };
    get(site, asked, client).await
}

/// What a GET or HEAD asks for.
struct Asked {
    place: Target,
    query: String,
    headers: HeaderMap,
    is_head: bool,
    version: Version,
    /// What the folder is called in an archive of it, if that is asked for; nothing for the root.
    name_of_copy: Option<Vec<u8>>,
}

/// That a thread took too long, or did not end well.
fn too_slow(error: &std::io::Error) -> Answer {
    log::warn!("a request got no answer: {error}");
    refuse(StatusCode::GATEWAY_TIMEOUT, "It took too long.")
}

async fn get(site: Arc<Site>, asked: Asked, client: &Arc<Client>) -> Answer {
    let (own, lane) = (Arc::clone(&site), asked.place.lane());
    let looked = site.pool.run(Work::Look, lane, move |_| {
        let (site, mut asked) = (own, asked);
        let mut path = asked.place.in_tree();
        if asked.place.is_folder && !path.is_empty() {
            // A file is none.
            path.push(b'/');
        }
        match Held::find(&site.tree, &path) {
            Err(error) => Err(failed(&path, &error)),
            Ok(held) => match held.attributes.kind {
                Kind::Folder => {
                    if in_query(&asked.query, "download").is_some() {
                        asked.name_of_copy = name_of_copy(&site.tree, &held.attributes, &asked.place.names);
                    }
                    Ok((asked, held))
                }
                Kind::File => Err(file(&site, &asked, &held)),
                _ => Err(refuse(StatusCode::FORBIDDEN, "This is neither a file nor a folder.")),
            },
        }
    });
    match looked.await {
        Err(error) => too_slow(&error),
        Ok(Err(answer)) => answer,
        Ok(Ok((asked, held))) => folder(site, asked, held, client).await,
    }
}

/// The content of a file, or parts of it.
fn file(site: &Arc<Site>, asked: &Asked, held: &Held) -> Answer {
    let (attributes, path) = (&held.attributes, asked.place.in_tree());
    let name = asked.place.names.last().map_or(&b""[..], Vec::as_slice);
    let open = || with_memory(&Cancel::default(), || site.tree.open(attributes.node));
    let found = FilePlace { path: &path, way: held.way(), salt: &site.salt };
    let mut opened = None;
    let now = if site.is_far {
        // What is sent may be newer than what was listed.
        let source = match open() {
            Ok(source) => opened.insert(source),
            Err(error) => return failed(&path, &error),
        };
        Validators::of_far(attributes, source.version(), found)
    } else {
        Validators::of(attributes, site.tree.lifetime(attributes.node), found)
    };
    let kind = kinds::of(name);
    let mut answer = Response::new(whole(""));
    if let Some(etag) = &now.etag {
        put(&mut answer, ETAG, etag);
    }
    if let Some(modified) = now.last_modified() {
        put(&mut answer, LAST_MODIFIED, &modified);
    }
    put(&mut answer, CONTENT_SECURITY_POLICY, kinds::policy(&kind));
    match conditions::check(&asked.headers, &now) {
        Outcome::Go => {}
        Outcome::NotModified => {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            return answer;
        }
        Outcome::Failed => {
            *answer.status_mut() = StatusCode::PRECONDITION_FAILED;
            return answer;
        }
    }
    let source = match opened.map_or_else(open, Ok) {
        Ok(source) => source,
        Err(error) => return failed(&path, &error),
    };
    let length = source.len();
    put(&mut answer, ACCEPT_RANGES, "bytes");
    if in_query(&asked.query, "download").is_some() {
        put(&mut answer, CONTENT_DISPOSITION, &kinds::attachment(name));
    }
    // Of HEAD, ranges mean nothing.
    let wanted = if asked.is_head { Wanted::Whole } else { conditions::wanted(&asked.headers, &now, length) };
    let (kind, parts) = match wanted {
        Wanted::Nothing => {
            let mut refused = refuse(StatusCode::RANGE_NOT_SATISFIABLE, "The file has no such bytes.");
            put(&mut refused, CONTENT_RANGE, &format!("bytes */{length}"));
            return refused;
        }
        Wanted::Whole => (kind, vec![Part::File(0..length)]),
        Wanted::Parts(parts) => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            match parts.as_slice() {
                [part] => {
                    put(&mut answer, CONTENT_RANGE, &format!("bytes {}-{}/{length}", part.start, part.end - 1));
                    (kind, vec![Part::File(part.clone())])
                }
                parts => {
                    let boundary = &site.boundary;
                    (format!("multipart/byteranges; boundary={boundary}"), multipart(parts, &kind, length, boundary))
                }
            }
        }
    };
    put(&mut answer, CONTENT_TYPE, &kind);
    let parts = Parts::new(source, parts, site.memory.one_more(), path);
    put(&mut answer, CONTENT_LENGTH, &parts.length().to_string());
    if !asked.is_head {
        *answer.body_mut() = Stepwise::body(parts, &site.pool, asked.place.lane());
    }
    answer
}

/// The page of a folder, or an archive of it.
async fn folder(site: Arc<Site>, asked: Asked, held: Held, client: &Arc<Client>) -> Answer {
    if !asked.place.is_folder {
        let mut answer = refuse(StatusCode::MOVED_PERMANENTLY, "It is a folder.");
        let query = if asked.query.is_empty() { String::new() } else { format!("?{}", url::in_header(&asked.query)) };
        put(&mut answer, LOCATION, &format!("{}{query}", asked.place.as_folder()));
        return answer;
    }
    if let Some(label) = in_query(&asked.query, "download") {
        return archive(&site, &asked, held, (&label, client));
    }
    let lane = asked.place.lane();
    let turn = async {
        // A folder that hangs keeps its turn.
        let lane = site.page_lanes.turn(lane).await;
        (lane, Arc::clone(&site.pages).acquire_owned().await)
    };
    let Ok((Ok(of_lane), Ok(one))) = tokio::time::timeout(site.patience, turn).await else { return busy() };
    let turn = (of_lane, one);
    let (own, is_head) = (Arc::clone(&site), asked.is_head);
    let made = site.pool.run(Work::Look, lane, move |gone| {
        let view = View::of(&asked.query);
        let page = page::page(&*own.tree, held.attributes.node, &asked.place, &own.title, &view, gone);
        page.map(|page| (page, turn)).map_err(|error| failed(&asked.place.in_tree(), &error))
    });
    // Others have their turn when there is room for this page.
    let (page, _turn) = match made.await {
        Err(error) => return too_slow(&error),
        Ok(Err(refused)) => return refused,
        Ok(Ok(page)) => page,
    };
    let mut answer = Response::new(whole(""));
    put(&mut answer, CONTENT_TYPE, "text/html; charset=utf-8");
    put(&mut answer, CONTENT_LENGTH, &page.len().to_string());
    if is_head {
        return answer;
    }
    // It stays in memory until the client has taken it.
    let room = u32::try_from(page.len().div_ceil(1024)).unwrap_or(u32::MAX).min(TEXTS as u32);
    let mut room = std::pin::pin!(Arc::clone(&site.texts).acquire_many_owned(room));
    let found = async {
        loop {
            match tokio::time::timeout(NO_ROOM, room.as_mut()).await {
                Ok(room) => break room,
                Err(_) => site.clients.make_room_for(Holds::Page),
            }
        }
    };
    match tokio::time::timeout(site.patience, found).await {
        Ok(Ok(room)) => {
            let page = Page { text: page, _kept: (room, client.hold(Holds::Page)) };
            answer.map(|_| page.body())
        }
        _ => busy(),
    }
}

/// That there is no room for one more.
fn busy() -> Answer {
    let mut refused = refuse(StatusCode::SERVICE_UNAVAILABLE, "Too many others want the same: try again soon.");
    put(&mut refused, RETRY_AFTER, "5");
    refused
}

/// An archive of a folder. If something fails in the middle, the connection is broken off. With HTTP/1.0 that would
/// look like the end, so nothing is sent there.
fn archive(site: &Arc<Site>, asked: &Asked, held: Held, (label, client): (&str, &Arc<Client>)) -> Answer {
    let Some((_, target)) = download::offered().into_iter().find(|(offered, _)| offered == label) else {
        return refuse(StatusCode::BAD_REQUEST, "There is no such kind of archive here.");
    };
    if asked.version == Version::HTTP_10 {
        return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "Archives are only sent with HTTP/1.1.");
    }
    let name = asked.name_of_copy.clone().unwrap_or_else(|| site.folder.clone());
    let mut answer = Response::new(whole(""));
    put(&mut answer, CONTENT_TYPE, &kinds::of(label.as_bytes()));
    put(&mut answer, CONTENT_DISPOSITION, &kinds::attachment(&[name.as_slice(), b".", label.as_bytes()].concat()));
    if asked.is_head {
        return answer;
    }
    let Ok(turn) = Arc::clone(&site.downloads).try_acquire_owned() else {
        // Whoever asks again may have its turn.
        site.clients.make_room_for(Holds::Download);
        return busy();
    };
    let holding = client.hold(Holds::Download);
    let (tree, threads) = (Arc::clone(&site.tree), site.compressing_threads);
    let download = Download { tree, folder: held, name, target, threads };
    let write = move |pipe, cancel: &_| download.write(pipe, cancel);
    match Piped::body(turn, site.memory.one_more(), write) {
        Ok(body) => answer.map(|_| Kept { body, _kept: holding }.boxed_unsync()),
        Err(error) => {
            log::warn!("a folder cannot be sent as an archive: {error}");
            busy()
        }
    }
}

/// PROPFIND.
async fn find(site: Arc<Site>, place: Target, headers: &HeaderMap, version: Version, body: &[u8]) -> Answer {
    let with_entries = match headers.get("depth").map(HeaderValue::as_bytes) {
        Some(b"0") => false,
        Some(b"1") => true,
        // Without a header it is infinite, too.
        _ => {
            let what = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                        <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>";
            let mut refused = refuse(StatusCode::FORBIDDEN, what);
            put(&mut refused, CONTENT_TYPE, XML);
            return refused;
        }
    };
    if version == Version::HTTP_10 {
        return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "Folders are only listed so with HTTP/1.1.");
    }
    let Some(wanted) = dav::Wanted::parse(body) else {
        return refuse(StatusCode::BAD_REQUEST, "This is no request for properties.");
    };
    let (own, lane) = (Arc::clone(&site), place.lane());
    let looked = site.pool.run(Work::Look, lane, move |_| {
        let path = place.in_tree();
        match Held::find(&own.tree, &path) {
            Err(error) => Err(failed(&path, &error)),
            Ok(held) if !matches!(held.attributes.kind, Kind::File | Kind::Folder) => {
                Err(refuse(StatusCode::FORBIDDEN, "This is neither a file nor a folder."))
            }
            Ok(held) => Ok(Found::new(own, held, place, wanted, with_entries)),
        }
    });
    match looked.await {
        Err(error) => too_slow(&error),
        Ok(Err(refused)) => refused,
        Ok(Ok(found)) => {
            let mut answer = Response::new(Stepwise::body(found, &site.pool, lane));
            *answer.status_mut() = StatusCode::MULTI_STATUS;
            put(&mut answer, CONTENT_TYPE, XML);
            answer
        }
    }
}

const XML: &str = "application/xml; charset=utf-8";

/// A page that is being sent.
struct Page {
    text: String,
    /// Its room, and that its client has it.
    _kept: (OwnedSemaphorePermit, Holding),
}

impl Page {
    /// All of it is one piece, which keeps it: the body itself is dropped as soon as that was handed on, before any of
    /// it is sent.
    fn body(self) -> Body {
        whole(Bytes::from_owner(self))
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// A body with what is dropped when it was handed on. Its last pieces may not have been sent by then.
struct Kept<K> {
    body: Body,
    _kept: K,
}

impl<K: Unpin> HttpBody for Kept<K> {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::task::Waker;

    /// Else any number of clients that read slowly would each have a page in memory.
    #[test]
    fn a_page_has_its_room_until_it_was_sent() {
        let (texts, clients) = (Arc::new(Semaphore::new(8)), Arc::<Clients>::default());
        let entered = clients.enter();
        let client = &entered.client;
        let room = Arc::clone(&texts).try_acquire_many_owned(5).unwrap();
        let page = Page { text: "<html>".to_owned(), _kept: (room, client.hold(Holds::Page)) };
        let mut body = Kept { body: page.body(), _kept: client.serve() }.boxed_unsync();
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(frame))) = polled else { panic!("a page is there") };
        // Whoever sends it drops it here.
        assert!(body.is_end_stream());
        drop(body);
        let bytes = frame.into_data().unwrap();
        assert_eq!(bytes, "<html>");
        // Nor is a part of it all of it.
        let last = bytes.slice(5..);
        drop(bytes);
        assert!(texts.available_permits() == 3 && client.does_hold(Holds::Page));
        drop(last);
        assert!(texts.available_permits() == 8 && !client.does_hold(Holds::Page));
    }
}
