//! `http://` and `https://`: ranges of an object, pinned to its version.
//!
//! Each request says which version it is for (`If-Match`, `If-Unmodified-Since`), and each answer is compared with
//! that: not all servers look at the conditions.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Proxy};

use crate::backend::{Backend, Begun, Body, Fault, Object, Version};
use crate::credentials::Credentials;
use crate::open::Settings;
use crate::url::Url;

/// See the module.
pub(crate) struct Http;

impl Backend for Http {
    fn schemes(&self) -> &'static [&'static str] {
        &["http", "https"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        let known = settings.credentials.of_host(url.host()).is_some();
        if url.scheme() == "http" && (url.login().is_some() || known) && !is_of_this_machine(url.host()) {
            log::warn!("{url}: user and password go over the network as they are; https:// hides them");
        }
        Ok(Box::new(HttpObject {
            url: url.clone(),
            credentials: settings.credentials.clone(),
            target: Mutex::default(),
        }))
    }
}

/// What is waited for: a connection, and each piece of an answer. A server that says nothing for longer is asked again.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(12);

/// As browsers have it.
const MOST_REDIRECTS: usize = 10;

/// Connections that wait for the next request, to one host.
const IDLE: usize = 8;

/// Loads the certificates that are trusted, so that no file need be opened later.
pub(crate) fn prepare() {
    agent(false);
}

/// Who asks, and keeps the connections. `is_public`: not from hosts of this machine or a private network. Both trust
/// the same certificates.
fn agent(is_public: bool) -> &'static Agent {
    static BOTH: OnceLock<[Agent; 2]> = OnceLock::new();
    let [any, public] = BOTH.get_or_init(|| {
        let config = config();
        let any = Agent::with_parts(config.clone(), DefaultConnector::new(), Any::default());
        [any, Agent::with_parts(config, DefaultConnector::new(), Public::default())]
    });
    if is_public { public } else { any }
}

fn config() -> ureq::config::Config {
    let found = rustls_native_certs::load_native_certs();
    let certificates: Vec<_> = found.certs.iter().map(|found| Certificate::from_der(found).to_owned()).collect();
    // Where the system has none, those that Mozilla trusts. Who names others trusts no more than those.
    let are_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    let roots = if certificates.is_empty() && !are_named {
        RootCerts::WebPki
    } else {
        RootCerts::new_with_certs(&certificates)
    };
    if certificates.is_empty() && are_named {
        log::warn!("what SSL_CERT_FILE or SSL_CERT_DIR names has no certificates: no server is trusted");
    }
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .proxy(Proxy::try_from_env())
        .user_agent(concat!("tarnfs/", env!("CARGO_PKG_VERSION")))
        // What is stored is what is wanted, not what comes of compressing it on the way.
        .accept_encoding("identity")
        .timeout_connect(Some(CONNECT))
        .timeout_resolve(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .timeout_per_write(Some(SILENCE))
        .max_idle_connections_per_host(IDLE)
        .build()
}

/// Hosts by name, and whether each address that was found for a connection to one was of this machine or a private
/// network. Another look-up may find others, so none is made for that alone.
static NEAR: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());

/// True if that is so of `host`. False of one that nobody was connected to.
fn is_near(host: &str) -> bool {
    NEAR.lock().unwrap_or_else(PoisonError::into_inner).get(host) == Some(&true)
}

/// Finds hosts, and remembers which are near.
#[derive(Debug, Default)]
struct Any(DefaultResolver);

impl Resolver for Any {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let is_near = found.iter().all(|address| is_private(address.ip()));
        let mut near = NEAR.lock().unwrap_or_else(PoisonError::into_inner);
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        near.entry(host).and_modify(|was| *was &= is_near).or_insert(is_near);
        Ok(found)
    }
}

/// Finds no host of this machine or a private network, but a proxy.
#[derive(Debug, Default)]
struct Public(DefaultResolver);

impl Resolver for Public {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let is_proxy = config.proxy().is_some_and(|proxy| uri == proxy.uri());
        if !is_proxy && found.iter().any(|address| is_private(address.ip())) {
            let what = "a redirect leads to this machine or a private network, which is not followed";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what).into());
        }
        Ok(found)
    }
}

/// True of addresses that mean something else to everybody, or one address to nobody.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            let is_for_tests = first == 198 && (18..20).contains(&second);
            let is_reserved = first == 0 || first >= 224 || (first, second, third) == (192, 0, 0);
            let is_local = address.is_loopback() || address.is_private() || address.is_link_local();
            is_local || is_shared || is_for_tests || is_reserved
        }
        IpAddr::V6(address) => {
            let parts = address.segments();
            let of_parts =
                |high: u16, low: u16| is_private(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into());
            let is_local = address.is_unique_local() || address.is_unicast_link_local() || parts[0] & 0xffc0 == 0xfec0;
            match parts {
                // An address of IPv4 as it is, or translated by this network (NAT64), or in a tunnel (6to4).
                [0, 0, 0, 0, 0, 0xffff, high, low]
                | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
                | [0x2002, high, low, ..] => of_parts(high, low),
                // All others that begin so are of this machine or network.
                [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => true,
                _ => is_local || address.is_multicast(),
            }
        }
    }
}

/// True if `host` is this machine whatever a look-up says.
fn is_of_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[derive(Debug)]
struct HttpObject {
    url: Url,
    credentials: Credentials,
    /// Where redirects have led.
    target: Mutex<Option<Url>>,
}

type Answer = Response<ureq::Body>;

/// How long a request may take, and whether its answer has to be read by then, too.
struct Time {
    deadline: Instant,
    is_for_body: bool,
}

impl HttpObject {
    /// Asks for a range, under conditions, and follows redirects.
    fn ask(&self, range: &Range<u64>, conditions: &[(header::HeaderName, &str)], time: &Time) -> Result<Answer, Fault> {
        let known = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            let answer = self.ask_at(&known, range, conditions, time);
            // Such a target may be good for a while only.
            let is_over =
                |status: StatusCode| matches!(status.as_u16(), 400 | 401 | 403 | 404 | 410) || status.is_redirection();
            match answer {
                Ok(answer) if !is_over(answer.status()) || answer.status() == StatusCode::NOT_MODIFIED => {
                    return Ok(answer);
                }
                Err(fault @ Fault::Again(..)) => {
                    *self.target.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    return Err(fault);
                }
                _ => *self.target.lock().unwrap_or_else(PoisonError::into_inner) = None,
            }
        }
        let mut at = self.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.ask_at(&at, range, conditions, time)?;
            if !answer.status().is_redirection() || answer.status() == StatusCode::NOT_MODIFIED {
                if answer.status().is_success() && at != self.url {
                    *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
                }
                return Ok(answer);
            }
            let location = text(&answer, &header::LOCATION);
            let location = location.ok_or_else(|| Fault::Final("a redirect of the server leads nowhere".to_owned()))?;
            let to = at.redirected(&location);
            let to = to.map_err(|error| Fault::Final(format!("a redirect of the server is of no use: {error}")))?;
            if at.scheme() == "https" && to.scheme() != "https" || !Http.schemes().contains(&to.scheme()) {
                let what = format!("the server redirects to {}://, which is not followed", to.scheme());
                return Err(Fault::Final(what));
            }
            at = to;
        }
        Err(Fault::Final(format!("the server redirects more than {MOST_REDIRECTS} times")))
    }

    fn ask_at(
        &self,
        at: &Url,
        range: &Range<u64>,
        conditions: &[(header::HeaderName, &str)],
        time: &Time,
    ) -> Result<Answer, Fault> {
        let left = time.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(again("the server does not answer in time"));
        }
        // Where a redirect leads, somebody else has said.
        let is_public = *at != self.url && !is_near(self.url.host());
        let last = range.end.saturating_sub(1);
        let mut request =
            agent(is_public).get(at.request()).header(header::RANGE, format!("bytes={}-{last}", range.start));
        for (name, value) in conditions {
            request = request.header(name, *value);
        }
        // A redirect to another host carries no login.
        if at.origin() == self.url.origin()
            && let Some(login) = at.login().cloned().or_else(|| self.credentials.of_host(at.host()))
        {
            let login = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.user, login.password));
            request = request.header(header::AUTHORIZATION, format!("Basic {login}"));
        }
        let request = request
            .config()
            .timeout_resolve(Some(left.min(CONNECT)))
            .timeout_connect(Some(left.min(CONNECT)))
            .timeout_recv_response(Some(left.min(SILENCE)))
            .timeout_global(time.is_for_body.then_some(left))
            .build();
        request.call().map_err(|error| fault(&error))
    }
}

impl Object for HttpObject {
    fn begin(&self, most: u64, known: Option<&Version>, deadline: Instant) -> Result<Begun, Fault> {
        let time = Time { deadline, is_for_body: false };
        // Not If-Modified-Since: an object that was replaced by an older one has not been modified since. And weak tags
        // are alike for other bytes.
        let tag = known.and_then(|known| known.tag.as_deref()).filter(|tag| is_strong(tag));
        let conditions: Vec<_> = tag.iter().map(|tag| (header::IF_NONE_MATCH, *tag)).collect();
        let mut answer = self.ask(&(0..most), &conditions, &time)?;
        if answer.status() == StatusCode::NOT_MODIFIED {
            if text(&answer, &header::ETAG).is_none_or(|said| Some(said.as_str()) == tag) && tag.is_some() {
                return Ok(Begun::Same);
            }
            // It means another one.
            answer = self.ask(&(0..most), &[], &time)?;
        }
        let version = |length| Version {
            length,
            tag: text(&answer, &header::ETAG),
            modified: text(&answer, &header::LAST_MODIFIED),
            is_lasting: is_lasting(&answer),
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
        let conditions = match (version.tag.as_deref().filter(|tag| is_strong(tag)), &version.modified) {
            (Some(tag), _) => vec![(header::IF_MATCH, tag)],
            (None, Some(modified)) => vec![(header::IF_UNMODIFIED_SINCE, modified.as_str())],
            (None, None) => Vec::new(),
        };
        let answer = self.ask(&range, &conditions, &Time { deadline, is_for_body: true })?;
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => {
                says(&answer, version)?;
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
                says(&answer, version)?;
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
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Fault::Changed("it is not there any more".to_owned())),
            status => Err(refused(status, &answer)),
        }
    }
}

fn again(what: &str) -> Fault {
    Fault::Again(what.to_owned(), None)
}

/// The value of a header, if it is text.
fn text(answer: &Answer, name: &header::HeaderName) -> Option<String> {
    answer.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// True of a tag that no other bytes have.
fn is_strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}

/// Whether the version that the answer tells will not be that of other bytes, too, as those are that were written in
/// the same second (RFC 9110, 8.8.2.2). There are servers that make tags of that second, and call them strong.
fn is_lasting(answer: &Answer) -> bool {
    /// As old a change must be, by the clock of the server: with its tag, and without, where the clock that the file
    /// has may be another one.
    const WITH_TAG: Duration = Duration::from_secs(2);
    const WITHOUT: Duration = Duration::from_secs(60);
    let time = |name| text(answer, &name).and_then(|text| httpdate::parse_http_date(&text).ok());
    let (modified, now) = (time(header::LAST_MODIFIED), time(header::DATE));
    let age = modified.zip(now).and_then(|(modified, now)| now.duration_since(modified).ok());
    match text(answer, &header::ETAG) {
        Some(tag) if is_strong(&tag) => age.is_none_or(|age| age >= WITH_TAG),
        _ => age.is_some_and(|age| age >= WITHOUT),
    }
}

/// Whether the answer is about `version`, as far as it says so.
fn says(answer: &Answer, version: &Version) -> Result<(), Fault> {
    let (tag, modified) = (text(answer, &header::ETAG), text(answer, &header::LAST_MODIFIED));
    let changed = || Err(Fault::Changed("another version is there now".to_owned()));
    match (&version.tag, tag) {
        (Some(_), None) => return Err(again("the server does not say any more which version it has")),
        (Some(expected), Some(said)) if said != *expected => return changed(),
        // Several servers behind one name may have written it at other times.
        (Some(expected), Some(_)) if is_strong(expected) => return Ok(()),
        _ => {}
    }
    match (&version.modified, modified) {
        (Some(_), None) if version.tag.is_none() => Err(again("the server does not say any more when it was changed")),
        (Some(expected), Some(said)) if said != *expected => changed(),
        _ => Ok(()),
    }
}

/// Which bytes an answer has, and how long all is, if it says so.
fn content_range(answer: &Answer) -> Result<(Range<u64>, Option<u64>), Fault> {
    let parsed = text(answer, &header::CONTENT_RANGE).and_then(|text| {
        let (range, length) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let length = match length.trim() {
            "*" => None,
            length => Some(length.parse().ok()?),
        };
        Some((first..last.checked_add(1).filter(|&end| end > first)?, length))
    });
    parsed.ok_or_else(|| again("the server does not say which bytes it has sent"))
}

fn length_of_unsatisfied(answer: &Answer) -> Option<u64> {
    text(answer, &header::CONTENT_RANGE)?.trim().strip_prefix("bytes")?.trim_start().strip_prefix("*/")?.parse().ok()
}

/// What a status says that is none of those that are expected.
fn refused(status: StatusCode, answer: &Answer) -> Fault {
    let said = format!("the server says {} {}", status.as_u16(), status.canonical_reason().unwrap_or(""));
    match status.as_u16() {
        401 => Fault::Final(format!("{}: give user and password in ~/.netrc or in the URL", said.trim_end())),
        403 => Fault::Final(format!(
            "{}: it may not be read, or what the URL was signed with has run out",
            said.trim_end()
        )),
        404 | 410 => Fault::Missing(said),
        408 | 425 | 429 | 500 | 502..=504 | 506..=599 => Fault::Again(said, retry_after(answer)),
        _ => Fault::Final(said),
    }
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let said = text(answer, &header::RETRY_AFTER)?;
    match said.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(&said).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

/// What a client that got no answer says of that. Not all that the library says: a URL may be in it.
fn fault(error: &ureq::Error) -> Fault {
    use ureq::Error;
    match error {
        Error::Timeout(_) => again("the server does not answer in time"),
        Error::HostNotFound => again("the host is not found"),
        Error::Io(error) => of_io(error),
        Error::Rustls(error) => Fault::Final(format!("no connection that is safe: {error}")),
        Error::Tls(what) => Fault::Final(format!("no connection that is safe: {what}")),
        Error::BadUri(_) | Error::Http(_) => Fault::Final("it is no URL that can be asked for".to_owned()),
        Error::InvalidProxyUrl => Fault::Final("the proxy that the environment names is none".to_owned()),
        Error::ConnectionFailed => again("no connection"),
        Error::Protocol(_) => again("the answer is no HTTP"),
        _ => again("the request has failed"),
    }
}

fn of_io(error: &io::Error) -> Fault {
    let said = error.to_string();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Fault::Final(said),
        // Whoever is there is not who was asked for.
        io::ErrorKind::InvalidData if said.contains("certificate") => {
            Fault::Final(format!("no connection that is safe: {said}"))
        }
        io::ErrorKind::UnexpectedEof => again("the connection was cut"),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => again("the server does not answer in time"),
        _ => Fault::Again(said, None),
    }
}

/// The bytes of an answer, and no more than these. Reading to the end keeps the connection for the next request.
fn body(answer: Answer, length: u64) -> Body {
    Box::new(ToEnd { body: answer.into_body().into_reader(), left: length })
}

struct ToEnd<R> {
    body: R,
    left: u64,
}

impl<R: Read> Read for ToEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.body.read(&mut buffer[..most])?;
        self.left -= read as u64;
        if self.left == 0 {
            // Only what was read to its end is known to have one.
            let _ = self.body.read(&mut [0]);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_mean_something_else_to_everybody_are_private() {
        let private =
            ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "198.19.0.1"];
        let more = ["255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.0.8", "::1", "fd00::1", "fe80::1", "::"];
        let in_others =
            ["::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "::127.0.0.1", "::8"];
        for address in private.iter().chain(&more).chain(&in_others).chain(&["fec0::1", "ff02::1"]) {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "100.128.0.1", "198.20.0.1", "2606:4700::1111", "64:ff9b::1.1.1.1", "2002:101:101::"]
        {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
        assert!(is_of_this_machine("localhost") && is_of_this_machine("[::1]") && !is_of_this_machine("1.1.1.1"));
    }

    #[test]
    fn redirects_lead_to_private_networks_from_there_alone() {
        let config = config();
        let timeout = || NextTimeout::default();
        let any = |host: &str| Any::default().resolve(&host.parse().unwrap(), &config, timeout());
        let public = |host: &str| Public::default().resolve(&host.parse().unwrap(), &config, timeout());
        assert!(!is_near("127.0.0.2"));
        for host in ["http://127.0.0.2/", "http://[::1]:80/", "http://1.1.1.1/"] {
            any(host).unwrap();
        }
        assert!(is_near("127.0.0.2") && is_near("[::1]") && !is_near("1.1.1.1"));
        assert!(public("http://127.0.0.2/").is_err() && public("http://[::1]/").is_err());
        assert!(public("http://1.1.1.1/").is_ok());
    }
}
