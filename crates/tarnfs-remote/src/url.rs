//! URLs, and what of them may be shown.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::credentials::Login;

/// Schemes whose URLs have a path and nothing behind it: in names of files, `?` and `#` are letters.
const PATHS: [&str; 7] = ["dropbox", "ftp", "ftps", "github", "scp", "sftp", "ssh"];

/// Schemes whose authority is a name with capitals in it, which mean something.
const WITH_CAPITALS: [&str; 8] = ["github", "ipfs", "ipns", "s3", "scp", "sftp", "ssh", "dropbox"];

/// A URL with an authority: `scheme://[user:password@]host[:port]/path[?query]`.
///
/// It is shown without user, password and query, since both may hold what opens the object to anybody.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    /// Host, and the port if one is named; in lower case.
    authority: String,
    /// From its slash on, with `%` for what may not stand in one.
    path: String,
    query: Option<String>,
    login: Option<Login>,
}

impl Url {
    /// Takes what a person has typed: spaces and other letters that no URL has are escaped. An error says what is
    /// wrong, and shows nothing of the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme, as in https://")?;
        let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if scheme.is_empty() || !scheme.bytes().all(is_of_scheme) {
            return Err("its scheme is not one".to_owned());
        }
        // Names in a bucket are what was typed, whatever letters they have.
        let is_literal = scheme.eq_ignore_ascii_case("s3");
        let is_path = PATHS.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let is_whole = is_literal || is_path;
        let rest = if is_whole { rest } else { rest.split_once('#').map_or(rest, |(rest, _)| rest) };
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if scheme.eq_ignore_ascii_case("dropbox") {
            // There is no host, and what stands in its place is the first name.
            let path = format!("{authority}{rest}");
            return Ok(Self::of_path(scheme, String::new(), &format!("/{}", path.trim_start_matches('/'))));
        }
        if scheme.eq_ignore_ascii_case("github") {
            let is_of_repository = |byte: u8| is_of_host(byte) || byte == b'@';
            return if authority.bytes().all(is_of_repository) && !authority.is_empty() {
                Ok(Self::of_path(scheme, authority.to_owned(), if rest.is_empty() { "/" } else { rest }))
            } else {
                Err("it names no repository, as github://ORG:REPO@BRANCH/PATH does".to_owned())
            };
        }
        // What stands before the last @: a password may have one, too.
        let (login, authority) = match authority.rsplit_once('@') {
            Some((login, authority)) => (Some(login), authority),
            None => (None, authority),
        };
        if authority.is_empty() || authority.starts_with(':') || !authority.bytes().all(is_of_host) {
            return Err("it names no host that can be looked for".to_owned());
        }
        let host = authority.rfind(']').map_or_else(|| authority.rfind(':').unwrap_or(authority.len()), |end| end + 1);
        let (host, port) = authority.split_at(host);
        let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
        if port.strip_prefix(':').map_or(!port.is_empty(), |port| !is_port(port)) {
            let what = "its port is no number; in a user or password, /, ? and # are written as %2F, %3F and %23";
            return Err(what.to_owned());
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err("it names no host that can be looked for".to_owned());
        }
        let (path, query) = if is_literal {
            match rest.rsplit_once("?versionId=") {
                Some((path, version)) => (literal(path, b"/"), Some(format!("versionId={}", literal(version, b"")))),
                None => (literal(rest, b"/"), None),
            }
        } else if is_path {
            (escaped_path(rest), None)
        } else {
            match rest.split_once('?') {
                Some((path, query)) => (escaped(path), Some(escaped(query))),
                None => (escaped(rest), None),
            }
        };
        let login = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            Login { user: unescaped(user), password: unescaped(password) }
        });
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let scheme = scheme.to_ascii_lowercase();
        let has_capitals = WITH_CAPITALS.contains(&scheme.as_str());
        let authority = if has_capitals { authority.to_owned() } else { authority.to_ascii_lowercase() };
        Ok(Self { scheme, authority, path, query, login })
    }

    /// Of a path without anything behind it, as a person has typed it.
    fn of_path(scheme: &str, authority: String, path: &str) -> Self {
        Self::of_parts(&scheme.to_ascii_lowercase(), authority, escaped_path(path), None)
    }

    /// Of what is escaped already; the path begins with a slash.
    pub(crate) fn of_parts(scheme: &str, authority: String, path: String, query: Option<String>) -> Self {
        Self { scheme: scheme.to_owned(), authority, path, query, login: None }
    }

    /// Host, and the port if one is named.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Escaped, from its slash on.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Escaped.
    pub(crate) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// In lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host without the port.
    pub fn host(&self) -> &str {
        let end = match self.authority.rfind(']') {
            Some(bracket) => bracket + 1,
            None => self.authority.rfind(':').unwrap_or(self.authority.len()),
        };
        &self.authority[..end]
    }

    /// The port that is named.
    pub(crate) fn port(&self) -> Option<u16> {
        self.authority[self.host().len()..].strip_prefix(':').and_then(|port| port.parse().ok())
    }

    /// Scheme, host and port. Only what has the same one gets the credentials that were meant for it.
    pub fn origin(&self) -> (&str, &str, u16) {
        (&self.scheme, self.host(), self.port().unwrap_or(if self.scheme == "http" { 80 } else { 443 }))
    }

    /// User and password that it names.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// True if there is more in it than is shown.
    pub fn has_secrets(&self) -> bool {
        self.login.is_some() || self.query.is_some()
    }

    /// What is asked for: without user and password, which go elsewhere.
    pub fn request(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}://{}{}{query}", self.scheme, self.authority, self.path)
    }

    /// The object whose name has `suffix` behind it. A query is for this one alone.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> Self {
        Self { path: format!("{}{}", self.path, escaped(suffix)), query: None, ..self.clone() }
    }

    /// The folder of this name.
    #[must_use]
    pub(crate) fn as_folder(&self) -> Self {
        let slash = if self.path.ends_with('/') { "" } else { "/" };
        Self { path: format!("{}{slash}", self.path), ..self.clone() }
    }

    /// What is called `name` in the folder that this is.
    #[must_use]
    pub(crate) fn child(&self, name: &[u8], is_folder: bool) -> Self {
        let slash = if is_folder { "/" } else { "" };
        Self { path: format!("{}{}{slash}", self.as_folder().path, escaped_name(name)), query: None, ..self.clone() }
    }

    /// Where a redirect or a link to `reference` leads (RFC 3986, 5.2). The credentials go along only to the same
    /// origin.
    pub fn redirected(&self, reference: &str) -> Result<Self, String> {
        let reference = reference.split('#').next().unwrap_or_default();
        let (path, query) = match reference.split_once('?') {
            Some((path, query)) => (escaped(path), Some(escaped(query))),
            None => (escaped(reference), None),
        };
        let mut to = if has_scheme(reference) {
            Self::parse(reference)?
        } else if reference.starts_with("//") {
            Self::parse(&format!("{}:{reference}", self.scheme))?
        } else if path.is_empty() {
            Self { query: query.or_else(|| self.query.clone()), ..self.clone() }
        } else if path.starts_with('/') {
            Self { path, query, ..self.clone() }
        } else {
            let folder = &self.path[..=self.path.rfind('/').unwrap_or(0)];
            Self { path: format!("{folder}{path}"), query, ..self.clone() }
        };
        to.path = without_dots(&to.path);
        // Nobody but the person who has typed the URL says who logs in.
        to.login = None;
        Ok(to.with_login_of(self))
    }

    /// With the login of `other`, if both have the same origin.
    #[must_use]
    pub(crate) fn with_login_of(mut self, other: &Self) -> Self {
        if self.origin() == other.origin() {
            self.login.clone_from(&other.login);
        }
        self
    }

    /// What its path has between slashes, not escaped: names that are escaped otherwise are the same. A slash at the
    /// end changes nothing.
    pub(crate) fn components(&self) -> Vec<Vec<u8>> {
        let path = self.path.strip_prefix('/').unwrap_or(&self.path);
        path.strip_suffix('/').unwrap_or(path).split('/').filter(|_| !path.is_empty()).map(plain).collect()
    }

    /// Names it in the cache, without telling what it is. `place`: what it is told from others by.
    pub(crate) fn key(&self, place: &str) -> String {
        let mut hash = Sha256::new();
        let login = self.login.as_ref().map(|login| login.user.as_str());
        for part in [place, login.unwrap_or("")] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..16])
    }
}

/// True if it begins with a scheme, as RFC 3986 has these: else a colon is one of a name.
fn has_scheme(reference: &str) -> bool {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let scheme = reference.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.bytes().all(is_of_scheme)
}

/// A path without `.` and `..` (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut rest = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(name) = rest.next() {
        let is_last = rest.peek().is_none();
        match name {
            "." => {}
            ".." => drop(names.pop()),
            name => {
                names.push(name);
                continue;
            }
        }
        // It was a folder.
        if is_last {
            names.push("");
        }
    }
    format!("/{}", names.join("/"))
}

/// These bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| DIGITS.get(usize::from(digit)).copied().map(char::from)).collect()
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of files are read by people, so what was escaped is shown as it was, where it is the same then.
        let path: Vec<_> = self.path.split('/').map(readable).collect();
        // Without a host, a slash is enough.
        let slashes = if self.authority.is_empty() { ":/" } else { "://" };
        write!(formatter, "{}{slashes}{}{}", self.scheme, self.authority, path.join("/"))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// One component as it was before it was escaped, unless it would be another one then.
fn readable(component: &str) -> String {
    let plain = unescaped(component);
    let is_same = !plain.contains(['/', '?', '#', '%', '\u{fffd}']) && !plain.contains(char::is_control);
    if is_same { plain } else { component.to_owned() }
}

/// With `%` for each byte that may not stand in a URL. What is escaped stays so.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped += &hex(&[byte]).to_ascii_uppercase();
        }
    }
    escaped
}

/// The same of a path with nothing behind it.
fn escaped_path(path: &str) -> String {
    escaped(path).replace('?', "%3F").replace('#', "%23")
}

/// With `%` for each byte but letters, digits, `-._~` and those of `others`: as signatures have it. A `%` is escaped,
/// too.
pub(crate) fn literal(text: &str, others: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || others.contains(byte);
    text.bytes().map(|byte| part(byte, is_plain(&byte))).collect()
}

/// The same of a name, which may have any bytes.
fn escaped_name(name: &[u8]) -> String {
    name.iter().map(|&byte| part(byte, byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))).collect()
}

fn part(byte: u8, is_plain: bool) -> String {
    if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

/// The inverse; bytes that are no UTF-8 are replaced.
fn unescaped(text: &str) -> String {
    String::from_utf8_lossy(&plain(text)).into_owned()
}

/// The same as bytes.
pub(crate) fn plain(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = || text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let code = if byte == b'%' { code() } else { None };
        plain.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_an_object_is_not_shown() {
        let url = Url::parse("HTTPS://me:se%40cret@Host:8443/a b/x.tar.zst?sig=abc#part").unwrap();
        assert_eq!(url.to_string(), "https://host:8443/a b/x.tar.zst");
        assert_eq!(format!("{url:?}"), url.to_string());
        assert_eq!(url.request(), "https://host:8443/a%20b/x.tar.zst?sig=abc");
        assert_eq!(url.login().unwrap().password, "se@cret");
        assert_eq!(url.origin(), ("https", "host", 8443));
        assert_eq!(url.beside(".tarnfs.sqlite").request(), "https://host:8443/a%20b/x.tar.zst.tarnfs.sqlite");
        let no_hosts =
            ["https://", "https:///x", "//x", "https://h st/x", "https://a:b@/x", "https://a:b:1/", "https://::1/"];
        // What was meant as a password.
        let no_ports =
            ["https://a:b/1@h/x", "https://a:b?1@h/x", "https://a:b#1@h/x", "https://[::1]b/", "https://h:65536/"];
        for wrong in no_hosts.iter().chain(&no_ports) {
            let error = Url::parse(wrong).unwrap_err();
            assert!(!error.contains("a:b") && !error.contains("65536"), "{error}");
        }
    }

    #[test]
    fn a_name_is_shown_as_it_is_unless_it_would_be_another() {
        for (typed, shown) in [
            ("http://h/a%20b.tar", "http://h/a b.tar"),
            ("http://h/a%2Fb.tar", "http://h/a%2Fb.tar"),
            ("http://h/%0A", "http://h/%0A"),
            ("http://h/%FF.tar", "http://h/%FF.tar"),
            ("http://h", "http://h/"),
            ("http://[::1]:80/x", "http://[::1]:80/x"),
            ("http://h:/x", "http://h:/x"),
        ] {
            assert_eq!(Url::parse(typed).unwrap().to_string(), shown);
        }
        assert_eq!(Url::parse("http://[::1]:81/x").unwrap().origin(), ("http", "[::1]", 81));
    }

    #[test]
    fn a_name_in_a_bucket_is_what_was_typed() {
        for (typed, request, shown) in [
            (
                "s3://My_bucket/a%20b/c d+e.tar",
                "s3://My_bucket/a%2520b/c%20d%2Be.tar",
                "s3://My_bucket/a%2520b/c d+e.tar",
            ),
            ("S3://b/a?b#c", "s3://b/a%3Fb%23c", "s3://b/a%3Fb%23c"),
            ("s3://b/a?versionId=x/y", "s3://b/a?versionId=x%2Fy", "s3://b/a"),
            ("s3://id:se%2Fcret@b/a", "s3://b/a", "s3://b/a"),
        ] {
            let url = Url::parse(typed).unwrap();
            assert_eq!((url.request().as_str(), url.to_string().as_str()), (request, shown));
        }
        assert_eq!(Url::parse("s3://id:se%2Fcret@b/a").unwrap().login().unwrap().password, "se/cret");
    }

    #[test]
    fn credentials_go_along_to_the_same_origin_only() {
        let url = Url::parse("https://me:secret@host/a/x.tar?q").unwrap();
        for (location, request, has_login) in [
            ("y.tar", "https://host/a/y.tar", true),
            ("/y.tar?z=1", "https://host/y.tar?z=1", true),
            ("//other/y", "https://other/y", false),
            ("https://host:443/y", "https://host:443/y", true),
            ("https://host:444/y", "https://host:444/y", false),
            ("http://host/y", "http://host/y", false),
            ("https://evil@host/y", "https://host/y", true),
        ] {
            let to = url.redirected(location).unwrap();
            assert_eq!((to.request().as_str(), to.login().is_some()), (request, has_login), "{location}");
            assert!(to.login().is_none_or(|login| login.user == "me"));
        }
        // Back where it began.
        let back = url.redirected("//other/y").unwrap().redirected("https://host/z").unwrap();
        assert!(back.login().is_none() && back.with_login_of(&url).login().is_some());
        assert!(url.redirected("//other/y").unwrap().with_login_of(&url).login().is_none());
    }

    /// RFC 3986, 5.4, with names as servers list them.
    #[test]
    fn references_lead_where_the_rfc_says() {
        let url = Url::parse("http://h/b/c/d;p?q").unwrap();
        for (reference, request) in [
            ("g", "http://h/b/c/g"),
            ("./g", "http://h/b/c/g"),
            ("g/", "http://h/b/c/g/"),
            ("/g", "http://h/g"),
            ("//g", "http://g/"),
            ("?y", "http://h/b/c/d;p?y"),
            ("g?y", "http://h/b/c/g?y"),
            ("#s", "http://h/b/c/d;p?q"),
            ("g?y#s", "http://h/b/c/g?y"),
            (";x", "http://h/b/c/;x"),
            ("", "http://h/b/c/d;p?q"),
            (".", "http://h/b/c/"),
            ("./", "http://h/b/c/"),
            ("..", "http://h/b/"),
            ("../g", "http://h/b/g"),
            ("../../../g", "http://h/g"),
            ("/./g", "http://h/g"),
            ("/../g", "http://h/g"),
            ("g.", "http://h/b/c/g."),
            ("..g", "http://h/b/c/..g"),
            ("./g/.", "http://h/b/c/g/"),
            ("g/../h", "http://h/b/c/h"),
            ("g;x=1/../y", "http://h/b/c/y"),
            ("g?y/../x", "http://h/b/c/g?y/../x"),
            ("http://h2/a/../g", "http://h2/g"),
            // The same names, with a colon.
            ("./log-10:00:00.txt", "http://h/b/c/log-10:00:00.txt"),
            ("10:00.txt", "http://h/b/c/10:00.txt"),
            ("a_b:c", "http://h/b/c/a_b:c"),
            ("a b", "http://h/b/c/a%20b"),
        ] {
            assert_eq!(url.redirected(reference).unwrap().request(), request, "{reference}");
        }
        for other in ["mailto:me@host", "javascript:void(0)", "log-10:00"] {
            assert!(url.redirected(other).is_err(), "{other}");
        }
        let components = |text| Url::parse(text).unwrap().components();
        assert_eq!(components("http://h/a%2Bb/c+d/"), [&b"a+b"[..], b"c+d"]);
        assert_eq!(components("http://h/a+b/c%2Bd"), components("http://h/a%2Bb/c+d/"));
        assert_eq!(components("http://h/").len() + components("http://h").len(), 0);
        assert_eq!(components("http://h/a%2Fb"), [b"a/b"]);
    }

    #[test]
    fn who_logs_in_is_part_of_the_key_and_the_password_is_not() {
        let key = |text| {
            let url = Url::parse(text).unwrap();
            url.key(&url.request())
        };
        assert_eq!(key("https://me:a@host/x"), key("https://me:b@host/x"));
        assert_ne!(key("https://me:a@host/x"), key("https://host/x"));
        assert_ne!(key("https://host/x?1"), key("https://host/x?2"));
    }
}
