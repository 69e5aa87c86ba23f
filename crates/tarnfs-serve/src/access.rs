//! Who may ask, and under which names.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};

/// Tokens, and users with passwords. Only their hashes are kept. Whoever has one of them may read everything; without
/// any, everybody may.
#[derive(Debug, Clone, Default)]
pub struct Logins(Vec<blake3::Hash>);

fn token(token: &[u8]) -> blake3::Hash {
    blake3::hash(&[b"token:", token].concat())
}

fn login(pair: &[u8]) -> blake3::Hash {
    blake3::hash(&[b"login:", pair].concat())
}

impl Logins {
    /// Adds a token: for `Authorization: Bearer`, and as the password of any user.
    pub fn add_token(&mut self, secret: &[u8]) {
        self.0.push(token(secret));
    }

    /// Adds a user with a password, as `user:password`.
    pub fn add_login(&mut self, pair: &[u8]) {
        self.0.push(login(pair));
    }

    /// True if everybody may read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the headers have a token or a login. All are compared, each in constant time.
    pub(crate) fn allow(&self, headers: &HeaderMap) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, value)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else { return false };
        let value = value.trim();
        let given = if scheme.eq_ignore_ascii_case("bearer") {
            vec![token(value.as_bytes())]
        } else if scheme.eq_ignore_ascii_case("basic") {
            let Ok(pair) = STANDARD.decode(value) else { return false };
            let password = pair.iter().position(|&byte| byte == b':').map_or(&[][..], |colon| &pair[colon + 1..]);
            vec![login(&pair), token(password)]
        } else {
            return false;
        };
        let mut is_allowed = false;
        for one in &self.0 {
            for other in &given {
                // Its `==` takes the same time for all.
                is_allowed |= one == other;
            }
        }
        is_allowed
    }
}

/// The names under which a server answers. A page of somebody else could give its own name the address of this machine,
/// and have a browser read what is served here: under that name nothing is served.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    names: Vec<String>,
    is_any: bool,
}

impl Hosts {
    /// Loopback, and `names`. On an address that others can reach, and without names, it answers under any.
    pub(crate) fn new(address: SocketAddr, names: &[String]) -> Self {
        let names: Vec<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { is_any: names.is_empty() && !address.ip().is_loopback(), names }
    }

    /// True if the request is for this server. One of HTTP/1.0 may have no host, as no browser sends it.
    pub(crate) fn has<B>(&self, request: &Request<B>) -> bool {
        let mut named = request.headers().get_all(HOST).iter();
        let host = match (named.next(), named.next()) {
            (Some(host), None) => host.to_str().ok(),
            (None, _) if request.version() == hyper::Version::HTTP_10 => return true,
            _ => None,
        };
        // A whole URL counts for more than the header.
        let host = request.uri().authority().map(hyper::http::uri::Authority::as_str).or(host);
        host.is_some_and(|host| self.is_any || self.has_name(host))
    }

    fn has_name(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        name == "localhost"
            || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            || self.names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(logins: &Logins, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        logins.allow(&headers)
    }

    #[test]
    fn only_what_was_added_is_allowed() {
        let mut logins = Logins::default();
        assert!(logins.allow(&HeaderMap::new()));
        logins.add_token(b"sesame");
        logins.add_login("ann:pass:word".as_bytes());
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert!(!logins.allow(&HeaderMap::new()));
        for good in ["Bearer sesame".to_owned(), "bearer  sesame".to_owned(), basic("x:sesame"), basic("ann:pass:word")]
        {
            assert!(allowed(&logins, &good), "{good}");
        }
        for bad in [
            "Bearer ann:pass:word".to_owned(),
            "Bearer sesam".to_owned(),
            "Bearer".to_owned(),
            "Basic !".to_owned(),
            "Digest sesame".to_owned(),
            basic("sesame"),
            basic("ann:pass"),
            basic("ann:"),
            basic(":"),
            basic("bob:pass:word"),
        ] {
            assert!(!allowed(&logins, &bad), "{bad}");
        }
        let mut twice = HeaderMap::new();
        for value in ["Bearer x", "Bearer sesame"] {
            twice.append(AUTHORIZATION, value.parse().unwrap());
        }
        assert!(!logins.allow(&twice));
    }

    #[test]
    fn other_names_of_this_machine_are_refused_on_loopback() {
        let has =
            |hosts: &Hosts, host: &str| hosts.has(&Request::builder().uri("/").header(HOST, host).body(()).unwrap());
        let local = Hosts::new("127.0.0.1:80".parse().unwrap(), &["Files.example".to_owned()]);
        for good in
            ["localhost", "LOCALHOST:80", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "localhost.", "files.EXAMPLE:8"]
        {
            assert!(has(&local, good), "{good}");
        }
        for bad in
            ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "::1x", ":80"]
        {
            assert!(!has(&local, bad), "{bad}");
        }
        assert!(has(&Hosts::new("192.0.2.1:80".parse().unwrap(), &[]), "anything"));
        assert!(!has(&Hosts::new("192.0.2.1:80".parse().unwrap(), &["a".to_owned()]), "anything"));
        let whole = Request::builder().uri("http://evil.example/").header(HOST, "localhost").body(()).unwrap();
        assert!(!local.has(&whole));
        assert!(!local.has(&Request::builder().uri("/").body(()).unwrap()));
    }
}
