//! Where an address is in the tree.

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
