//! Who asks over HTTP: connections, certificates that are trusted, and which hosts redirects may lead to.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Proxy};

use crate::backend::Fault;
use crate::trust::trusted;
use crate::url::Url;

/// What is waited for: a connection, and each piece of an answer. A server that says nothing for longer is asked again.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
pub(crate) const SILENCE: Duration = Duration::from_secs(12);

/// Connections that wait for the next request, to one host.
const IDLE: usize = 8;

/// Loads the certificates that are trusted, so that no file need be opened later.
pub(crate) fn prepare() {
    agent(false);
}

/// Who asks, and keeps the connections. `is_public`: not from hosts of this machine or a private network. Both trust
/// the same certificates.
pub(crate) fn agent(is_public: bool) -> &'static Agent {
    static BOTH: OnceLock<[Agent; 2]> = OnceLock::new();
    let [any, public] = BOTH.get_or_init(|| {
        let config = config();
        let any = Agent::with_parts(config.clone(), DefaultConnector::new(), Any::default());
        [any, Agent::with_parts(config, DefaultConnector::new(), Public::default())]
    });
    if is_public { public } else { any }
}

fn config() -> ureq::config::Config {
    let roots = trusted().map_or(RootCerts::WebPki, |trusted| {
        let certificates: Vec<_> = trusted.iter().map(|der| Certificate::from_der(der)).collect();
        RootCerts::new_with_certs(&certificates)
    });
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
pub(crate) fn is_near(host: &str) -> bool {
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

/// What is said of that.
pub(crate) const LEADS_HERE: &str = "a redirect leads to this machine or a private network, which is not followed";

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
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, LEADS_HERE).into());
        }
        Ok(found)
    }
}

/// True if `host` is such an address, or this machine, whatever a look-up says. A proxy may be asked for that, too.
pub(crate) fn is_private_host(host: &str) -> bool {
    let plain = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is_local = plain == "localhost" || plain.ends_with(".localhost");
    is_local || plain.parse::<IpAddr>().is_ok_and(is_private)
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

/// Whether somebody speaks TLS where `url` (https) leads. A certificate of no use is still one. Each server is asked
/// until that is known: nobody does if the connection is refused, or the answer is something else. All other faults say
/// nothing.
pub(crate) fn speaks_tls(url: &Url) -> Option<bool> {
    static KNOWN: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().get(url.authority()).copied();
    found.or_else(|| {
        let found = answers_with_tls(url)?;
        known().insert(url.authority().to_owned(), found);
        Some(found)
    })
}

/// `None` where that is not known: somebody on the way may have seen to it that there is no answer.
fn answers_with_tls(url: &Url) -> Option<bool> {
    /// As long as other programs wait for that.
    const PATIENCE: Duration = Duration::from_secs(5);
    let at = Url::of_parts(url.scheme(), url.authority().to_owned(), "/".to_owned(), None);
    match agent(false).head(at.request()).config().timeout_global(Some(PATIENCE)).build().call() {
        Ok(_) => Some(true),
        Err(ureq::Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Some(false),
        Err(error) if is_no_tls(&error.to_string()) => Some(false),
        Err(error) if error.to_string().contains("certificate") => Some(true),
        Err(_) => None,
    }
}

/// Whether such an error says that the answer was none of TLS. (The library says it by a text alone.)
fn is_no_tls(error: &str) -> bool {
    error.contains("received corrupt message of type InvalidContentType")
}

/// True if `host` is this machine whatever a look-up says.
pub(crate) fn is_of_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What a client that got no answer says of that. Not all that the library says: a URL may be in it.
pub(crate) fn fault(error: &ureq::Error) -> Fault {
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

fn again(what: &str) -> Fault {
    Fault::Again(what.to_owned(), None)
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
        for host in ["localhost", "a.localhost.", "127.0.0.1", "[::1]", "[::ffff:10.0.0.1]"] {
            assert!(is_private_host(host), "{host}");
        }
        assert!(!is_private_host("localhost.org") && !is_private_host("1.1.1.1") && !is_private_host("[2606:4700::1]"));
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

    #[test]
    fn only_a_refusal_or_another_answer_says_that_nobody_speaks_tls() {
        use std::io::{Read as _, Write as _};
        let at = |listener: &std::net::TcpListener| {
            Url::parse(&format!("https://{}/", listener.local_addr().unwrap())).unwrap()
        };
        let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = |answer: &'static [u8]| {
            let listener = listen();
            let url = at(&listener);
            std::thread::spawn(move || {
                for mut socket in listener.incoming().flatten() {
                    let _ = socket.read(&mut [0; 4096]);
                    let _ = socket.write_all(answer);
                }
            });
            url
        };
        let refused = at(&listen());
        assert_eq!(speaks_tls(&refused), Some(false));
        assert_eq!(speaks_tls(&answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")), Some(false));
        // The connection is cut, or TLS has an alert.
        assert_eq!(speaks_tls(&answering(b"")), None);
        assert_eq!(speaks_tls(&answering(b"\x15\x03\x03\x00\x02\x02\x28")), None);
    }
}
