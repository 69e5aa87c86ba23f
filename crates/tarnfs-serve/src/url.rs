//! Paths and queries of requests, and back to what stands in links.

use crate::pool::Lane;

/// Names of a path at most. What is further down takes long to look up, as each of them is looked up by all before it.
const MOST_NAMES: usize = 1024;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Names from the root on.
    pub(crate) names: Vec<Vec<u8>>,
    /// It ends with a slash: a folder is asked for.
    pub(crate) is_folder: bool,
}

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// It is no path.
    Malformed,
    /// There can be nothing of that name.
    Impossible,
}

impl Target {
    /// Reads the path of a URL. Each name is decoded for itself: a slash that is encoded is part of a name, which
    /// nothing has.
    pub(crate) fn parse(path: &str) -> Result<Self, BadPath> {
        let path = path.strip_prefix('/').ok_or(BadPath::Malformed)?;
        let (inner, is_folder) = match path.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (path, path.is_empty()),
        };
        // Of "//" the inner path is empty, too; that is not the root.
        if inner.is_empty() && !path.is_empty() {
            return Err(BadPath::Impossible);
        }
        let mut names = Vec::new();
        for part in inner.split('/').filter(|_| !inner.is_empty()) {
            let name = decode(part).ok_or(BadPath::Malformed)?;
            if matches!(name.as_slice(), b"." | b"..") {
                return Err(BadPath::Malformed);
            }
            if names.len() == MOST_NAMES || name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                return Err(BadPath::Impossible);
            }
            names.push(name);
        }
        Ok(Self { names, is_folder })
    }

    /// As a tree takes it.
    pub(crate) fn in_tree(&self) -> Vec<u8> {
        self.names.join(&b'/')
    }

    /// The same with a slash in the end, from the root on. It never begins with two slashes, which would be a host.
    pub(crate) fn as_folder(&self) -> String {
        let mut url = String::from("/");
        for name in &self.names {
            url += &encode(name);
            url.push('/');
        }
        url
    }

    /// Who looks it up waits for the same as others there.
    pub(crate) fn lane(&self) -> Lane {
        Lane::of(&self.names)
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Undoes percent codes; `None` where one is cut or has other digits.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            byte => byte,
        });
    }
    Some(decoded)
}

/// A name as it stands in a URL: letters, digits and `-._~` as they are, all else as percent codes.
pub(crate) fn encode(name: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut url = String::with_capacity(name.len());
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(byte.into());
        } else {
            url.push('%');
            url.push(DIGITS[usize::from(byte >> 4)].into());
            url.push(DIGITS[usize::from(byte & 15)].into());
        }
    }
    url
}

/// A query that was sent, for a header: what is no letter of ASCII there becomes percent codes.
pub(crate) fn in_header(query: &str) -> String {
    query.bytes().fold(String::with_capacity(query.len()), |mut safe, byte| {
        if byte.is_ascii_graphic() {
            safe.push(byte.into());
        } else {
            safe += &encode(&[byte]);
        }
        safe
    })
}

/// The value of `key` in a query, empty if it has none. `None` if it is not there, or no text.
pub(crate) fn in_query(query: &str, key: &str) -> Option<String> {
    let text = |part: &str| String::from_utf8(decode(&part.replace('+', " "))?).ok();
    query.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (text(found)? == key).then(|| text(value))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Result<(Vec<Vec<u8>>, bool), BadPath> {
        Target::parse(path).map(|target| (target.names, target.is_folder))
    }

    #[test]
    fn paths_lead_to_names() {
        assert_eq!(names("/"), Ok((vec![], true)));
        assert_eq!(names("/a/b%20c"), Ok((vec![b"a".to_vec(), b"b c".to_vec()], false)));
        assert_eq!(names("/caf%E9/"), Ok((vec![b"caf\xe9".to_vec()], true)));
        assert_eq!(names("/100%25"), Ok((vec![b"100%".to_vec()], false)));
        for bad in ["", "*", "a", "/..", "/a/../b", "/%2e%2e/x", "/.", "/a/%2E", "/%", "/%4", "/%zz", "/%+1", "/%é"] {
            assert_eq!(names(bad), Err(BadPath::Malformed), "{bad}");
        }
        for nothing in ["//", "//host", "/a//b", "/a//", "/a%2fb", "/%2F", "/a%00b", "/..%2f.."] {
            assert_eq!(names(nothing), Err(BadPath::Impossible), "{nothing}");
        }
        let target = Target::parse("/%2e%2e%2e/javascript:x").unwrap();
        assert_eq!(target.as_folder(), "/.../javascript%3Ax/");
        assert_eq!(Target::parse("/").unwrap().as_folder(), "/");
    }

    /// Each name is looked up by all before it.
    #[test]
    fn paths_have_a_bounded_number_of_names() {
        assert_eq!(names(&"/a".repeat(MOST_NAMES)).map(|(names, _)| names.len()), Ok(MOST_NAMES));
        assert_eq!(names(&"/a".repeat(MOST_NAMES + 1)), Err(BadPath::Impossible));
    }

    #[test]
    fn every_name_comes_back() {
        let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let target = Target::parse(&format!("/{}", encode(&all))).unwrap();
        assert_eq!(target.names, [all]);
    }

    #[test]
    fn queries_have_values() {
        assert_eq!(in_query("q=a+b%26&sort=size", "q").as_deref(), Some("a b&"));
        assert_eq!(in_query("q=a&sort=size", "sort").as_deref(), Some("size"));
        assert_eq!(in_query("download", "download").as_deref(), Some(""));
        assert_eq!(in_query("q=%ff", "q"), None);
        assert_eq!(in_header("q=%41+é\u{7f}&x"), "q=%41+%C3%A9%7F&x");
        assert_eq!(in_query("", "q"), None);
    }
}
