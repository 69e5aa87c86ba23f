//! Where an address is in the tree.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64_with_seed;

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

/// Names in a row that are tried for one part of a path.
const MOST_TRIED: usize = 8;

/// The files and folders that there are, by the hashes of their paths: on the web, a page may have others below it. The
/// hash of a path is that of its last name, with that of what is before it as the seed.
#[derive(Debug, Default)]
pub(super) struct Places {
    files: HashSet<u64>,
    folders: HashSet<u64>,
}

impl Places {
    /// The path of a file, for which there may be a folder, or which lies in what is a file already. One of more than
    /// `deepest` parts stays as it is: it is shown elsewhere.
    pub(super) fn file(&mut self, path: Vec<u8>, deepest: usize) -> Vec<u8> {
        if path.split(|&byte| byte == b'/').count() > deepest {
            return path;
        }
        let mut place = Vec::with_capacity(path.len());
        let mut parts = path.split(|&byte| byte == b'/').peekable();
        let mut hash = 0;
        while let Some(part) = parts.next() {
            let (above, mut name) = (hash, part.to_vec());
            hash = xxh3_64_with_seed(&name, above);
            let is_last = parts.peek().is_none();
            if !is_last {
                for _ in 0..MOST_TRIED {
                    if !self.files.contains(&hash) {
                        break;
                    }
                    name.extend_from_slice(FOLDER);
                    hash = xxh3_64_with_seed(&name, above);
                }
                if self.folders.len() < MOST {
                    self.folders.insert(hash);
                }
            }
            place.extend(name);
            if !is_last {
                place.push(b'/');
            }
        }
        for _ in 0..MOST_TRIED {
            if !self.folders.contains(&hash) {
                break;
            }
            place.push(b'/');
            place.extend_from_slice(INDEX);
            hash = xxh3_64_with_seed(INDEX, hash);
        }
        if self.files.len() < MOST {
            self.files.insert(hash);
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
            assert_eq!(String::from_utf8(places.file(path.into(), 100)).unwrap(), place);
        }
        // The name that it would have as a folder may be taken, and so may that of the page.
        for (path, place) in [
            ("e", "e"),
            ("e.d", "e.d"),
            ("e/f", "e.d.d/f"),
            ("g/index.html/h", "g/index.html/h"),
            ("g", "g/index.html/index.html"),
        ] {
            assert_eq!(String::from_utf8(places.file(path.into(), 100)).unwrap(), place);
        }
    }

    /// An address of 64 KiB may have 32 000 parts: with its place hashed anew for each, 4.5 KB of an archive took 24 s.
    #[test]
    fn what_lies_too_deep_is_not_looked_at() {
        let mut places = Places::default();
        let deep = b"a/".repeat(1000);
        assert_eq!(places.file(deep.clone(), 1000), deep);
        assert!(places.files.is_empty() && places.folders.is_empty());
        assert_eq!(places.file(deep.clone(), 1001), deep);
        assert_eq!((places.files.len(), places.folders.len()), (1, 1000));
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
