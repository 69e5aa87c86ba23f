//! Where an address is in the tree.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

/// What an address that ends in a slash is called there.
const INDEX: &[u8] = b"index.html";

/// `https://example.com/a/b?c` as `https/example.com/a/b?c`. Each part stays a name: what would lead elsewhere is
/// changed.
pub(super) fn of_address(address: &[u8]) -> Vec<u8> {
    let (scheme, rest) = match address.iter().position(|&byte| byte == b':') {
        Some(colon) => {
            let (scheme, rest) = address.split_at_checked(colon).unwrap_or((address, b""));
            (scheme, rest.get(1..).unwrap_or_default())
        }
        None => (&b"unknown"[..], address),
    };
    let rest = rest.strip_prefix(b"//").unwrap_or(rest);
    // What a query asks is one name, with all slashes that it has.
    let at = rest.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(rest.len());
    let (path, query) = rest.split_at_checked(at).unwrap_or((rest, b""));
    let mut place = name(scheme);
    let mut parts = path.split(|&byte| byte == b'/').peekable();
    let mut count = 0_usize;
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        count = count.saturating_add(1);
        // A host alone is a folder, too.
        if !part.is_empty() {
            place.push(b'/');
            place.extend(name(part));
        }
        if is_last && (part.is_empty() || count == 1) {
            place.push(b'/');
            place.extend_from_slice(INDEX);
        }
    }
    place.extend(name(query));
    place
}

/// What an address that is a page and has others below it is called as a folder, if the page comes first.
const FOLDER: &[u8] = b".d";

/// Paths that are remembered, of each kind.
const MOST: usize = 1 << 20;

/// The files and folders that there are, by the hashes of their paths: on the web, a page may have others below it.
#[derive(Debug, Default)]
pub(super) struct Places {
    files: HashSet<u64>,
    folders: HashSet<u64>,
}

impl Places {
    /// The path of a file, for which there may be a folder, or which lies in what is a file already.
    pub(super) fn file(&mut self, path: &[u8]) -> Vec<u8> {
        let mut place = Vec::with_capacity(path.len());
        let mut parts = path.split(|&byte| byte == b'/').peekable();
        while let Some(part) = parts.next() {
            place.extend_from_slice(part);
            if parts.peek().is_none() {
                break;
            }
            if self.files.contains(&xxh3_64(&place)) {
                place.extend_from_slice(FOLDER);
            }
            if self.folders.len() < MOST {
                self.folders.insert(xxh3_64(&place));
            }
            place.push(b'/');
        }
        if self.folders.contains(&xxh3_64(&place)) {
            place.push(b'/');
            place.extend_from_slice(INDEX);
        }
        if self.files.len() < MOST {
            self.files.insert(xxh3_64(&place));
        }
        place
    }
}

/// As a name of a file: without slashes, and never one of the two that lead elsewhere.
pub(super) fn name(part: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> = part.iter().map(|&byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).collect();
    if matches!(name.as_slice(), b"." | b"..") {
        name.insert(0, b'_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_have_others_below_it() {
        let mut places = Places::default();
        for (path, place) in [
            ("http/h/a/b", "http/h/a/b"),
            ("http/h/a", "http/h/a/index.html"),
            ("http/h/c", "http/h/c"),
            ("http/h/c/d", "http/h/c.d/d"),
            ("http/h/c", "http/h/c"),
            ("http/h/c/d/e", "http/h/c.d/d.d/e"),
        ] {
            assert_eq!(String::from_utf8(places.file(path.as_bytes())).unwrap(), place);
        }
    }

    #[test]
    fn addresses_become_paths() {
        for (address, place) in [
            ("https://example.com/a/b?c=/d", "https/example.com/a/b?c=_d"),
            ("http://example.com", "http/example.com/index.html"),
            ("http://example.com/", "http/example.com/index.html"),
            ("http://example.com/a/", "http/example.com/a/index.html"),
            ("http://example.com/?q", "http/example.com/index.html?q"),
            ("http://h/../../etc/./passwd", "http/h/_../_../etc/_./passwd"),
            ("dns:example.com", "dns/example.com/index.html"),
            ("x", "unknown/x/index.html"),
            ("", "unknown/index.html"),
        ] {
            assert_eq!(String::from_utf8(of_address(address.as_bytes())).unwrap(), place, "{address}");
        }
    }
}
