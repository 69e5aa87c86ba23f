//! What `--exclude` leaves out: globs as GNU tar takes them.

/// A glob. `*` and `?` stand for slashes, too, and it may begin to match behind any slash.
#[derive(Debug, Clone)]
pub struct Exclude(Vec<u8>);

impl Exclude {
    /// This one. A slash at its end means nothing.
    pub fn new(glob: &[u8]) -> Self {
        let end = glob.iter().rposition(|&byte| byte != b'/').map_or(glob.len(), |last| last + 1);
        Self(glob[..end].to_vec())
    }

    /// True if it matches `path`, which was reached through folders that it does not match.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let mut starts = (0..path.len()).filter(|&at| at == 0 || path[at - 1] == b'/');
        starts.any(|start| matches(&self.0, &path[start..]))
    }

    /// True if it matches `path` or one of the folders on the way to it.
    pub(super) fn matches_on_the_way(&self, path: &[u8]) -> bool {
        let mut ends = (1..=path.len()).filter(|&at| at == path.len() || path[at] == b'/');
        ends.any(|end| self.matches(&path[..end]))
    }
}

/// As fnmatch(3) without flags, where text is UTF-8: that compares characters, and then bytes.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let is_text = || std::str::from_utf8(glob).is_ok() && std::str::from_utf8(text).is_ok();
    matches_as(false, glob, text) || !text.is_ascii() && is_text() && matches_as(true, glob, text)
}

fn matches_as(reads_text: bool, glob: &[u8], text: &[u8]) -> bool {
    let first = |of: &[u8]| first(of, reads_text);
    let (mut in_glob, mut in_text) = (0, 0);
    // Behind the last star, and what it stands for ends here: if the rest does not match, it stands for more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match glob.get(in_glob) {
            None if in_text == text.len() => return true,
            None => None,
            Some(b'*') => {
                retry = Some((in_glob + 1, in_text));
                in_glob += 1;
                continue;
            }
            Some(_) => first(&text[in_text..]).and_then(|(character, length)| {
                one(&glob[in_glob..], character, &first).map(|in_glob| (in_glob, length))
            }),
        };
        if let Some(lengths) = step {
            in_glob += lengths.0;
            in_text += lengths.1;
            continue;
        }
        match &mut retry {
            Some((behind, end)) if *end < text.len() => {
                *end += first(&text[*end..]).map_or(1, |(_, length)| length);
                (in_glob, in_text) = (*behind, *end);
            }
            _ => return false,
        }
    }
}

/// The first character of `text` and how many bytes it has, if `reads_text`; else the first byte, which is no character
/// beyond ASCII.
fn first(text: &[u8], reads_text: bool) -> Option<(u32, usize)> {
    let byte = *text.first()?;
    let length = match byte {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    let found = text.get(..length).filter(|_| reads_text).and_then(|found| std::str::from_utf8(found).ok());
    let found = found.and_then(|found| found.chars().next());
    let of_byte = if byte.is_ascii() { byte.into() } else { u32::from(char::MAX) + u32::from(byte) };
    Some(found.map_or((of_byte, 1), |character| (u32::from(character), length)))
}

/// Finds out the first character of something, and how long it is.
type First<'a> = &'a dyn Fn(&[u8]) -> Option<(u32, usize)>;

/// How long the first element of `glob` is, if `character` matches it.
fn one(glob: &[u8], character: u32, first: First<'_>) -> Option<usize> {
    let is_it = |found: (u32, usize), before: usize| (found.0 == character).then_some(before + found.1);
    match glob {
        [b'?', ..] => Some(1),
        [b'\\', escaped @ ..] if !escaped.is_empty() => is_it(first(escaped)?, 1),
        [b'[', ..] => match set(glob, character, first) {
            Some((matched, length)) => matched.then_some(length),
            // A bracket that is never closed stands for itself.
            None => (character == u32::from(b'[')).then_some(1),
        },
        _ => is_it(first(glob)?, 0),
    }
}

/// Whether `character` is in the set that `glob` begins with, and how long that is; `None` if the set has no end.
fn set(glob: &[u8], character: u32, first: First<'_>) -> Option<(bool, usize)> {
    let is_negated = matches!(glob.get(1), Some(b'!' | b'^'));
    let start = 1 + usize::from(is_negated);
    let (mut at, mut found) = (start, false);
    loop {
        match glob.get(at..)? {
            [b']', ..] if at > start => return Some((found != is_negated, at + 1)),
            [b'[', b':', rest @ ..] => {
                let end = rest.windows(2).position(|two| two == b":]")?;
                found |= is_of_class(&rest[..end], character);
                at += end + 4;
                continue;
            }
            _ => {}
        }
        let (from, length) = first(&glob[at..])?;
        if let [b'-', last @ ..] = &glob[at + length..]
            && !matches!(last, [] | [b']', ..])
        {
            let (to, more) = first(last)?;
            found |= (from..=to).contains(&character);
            at += length + 1 + more;
            continue;
        }
        if let [b'\\', escaped @ ..] = &glob[at..]
            && let Some((escaped, more)) = first(escaped)
        {
            found |= escaped == character;
            at += 1 + more;
            continue;
        }
        found |= from == character;
        at += length;
    }
}

fn is_of_class(class: &[u8], character: u32) -> bool {
    let Some(character) = char::from_u32(character) else { return false };
    match class {
        b"alpha" => character.is_alphabetic(),
        b"digit" => character.is_ascii_digit(),
        b"alnum" => character.is_alphanumeric(),
        b"upper" => character.is_uppercase(),
        b"lower" => character.is_lowercase(),
        b"space" => character.is_whitespace(),
        b"punct" => character.is_ascii_punctuation(),
        b"xdigit" => character.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_gnu_tar() {
        for (glob, path) in [
            ("*.o", "a.o"),
            ("*.o", "a/b/c.o"),
            ("b", "a/b"),
            ("a/b", "x/a/b"),
            ("a*c", "a/b/c"),
            ("[a-c]?", "x/bz"),
            ("[!a]*", "b"),
            ("[[:digit:]x]", "7"),
            ("\\*", "*"),
            ("[", "["),
            ("dir/", "dir"),
            ("*a*b*c", "xxaxxbxxabxc"),
            ("[]]", "]"),
            ("?.txt", "é.txt"),
            ("[é].txt", "é.txt"),
            ("[à-ü]b", "éb"),
            ("[!a]", "é"),
            ("[[:alpha:]]", "é"),
            ("\\é", "é"),
            ("*?é", "a語é"),
            ("??", "é"),
        ] {
            assert!(Exclude::new(glob.as_bytes()).matches(path.as_bytes()), "{glob} {path}");
        }
        for (glob, path) in [
            ("*.o", "a.ox"),
            ("b", "ab"),
            ("b", "a/bc"),
            ("[!a]", "a"),
            ("\\*", "x"),
            ("?", ""),
            ("a/b", "a/bc"),
            ("[]", "]"),
            ("????", "é"),
            ("[é]", "è"),
            ("[!é]", "é"),
        ] {
            assert!(!Exclude::new(glob.as_bytes()).matches(path.as_bytes()), "{glob} {path}");
        }
        // What is no text is compared byte by byte.
        assert!(Exclude::new(b"??").matches(b"\xff\xfe") && Exclude::new(b"[\xff]").matches(b"\xff"));
        assert!(!Exclude::new(b"?").matches(b"\xff\xfe") && !Exclude::new("[é]".as_bytes()).matches(b"\xff"));
        assert!(Exclude::new(b"dir").matches_on_the_way(b"x/dir/file"));
        assert!(!Exclude::new(b"dir").matches(b"x/dir/file"));
        // Stars one behind the other take no time.
        let stars = [b"*a".repeat(50), b"b".to_vec()].concat();
        assert!(!Exclude::new(&stars).matches(&b"a".repeat(2000)));
    }
}
