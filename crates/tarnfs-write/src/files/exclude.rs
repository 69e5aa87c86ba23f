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

/// As fnmatch(3) without flags.
fn matches(glob: &[u8], text: &[u8]) -> bool {
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
            Some(_) => text.get(in_text).and_then(|&byte| one(&glob[in_glob..], byte)),
        };
        if let Some(length) = step {
            in_glob += length;
            in_text += 1;
            continue;
        }
        match &mut retry {
            Some((behind, end)) if *end < text.len() => {
                *end += 1;
                (in_glob, in_text) = (*behind, *end);
            }
            _ => return false,
        }
    }
}

/// How long the first element of `glob` is, if `byte` matches it.
fn one(glob: &[u8], byte: u8) -> Option<usize> {
    match glob {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', ..] => match set(glob, byte) {
            Some((matched, length)) => matched.then_some(length),
            // A bracket that is never closed stands for itself.
            None => (byte == b'[').then_some(1),
        },
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// Whether `byte` is in the set that `glob` begins with, and how long that is; `None` if the set has no end.
fn set(glob: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(glob.get(1), Some(b'!' | b'^'));
    let start = 1 + usize::from(is_negated);
    let (mut at, mut found) = (start, false);
    loop {
        match glob.get(at..)? {
            [b']', ..] if at > start => return Some((found != is_negated, at + 1)),
            [b'[', b':', rest @ ..] => {
                let end = rest.windows(2).position(|two| two == b":]")?;
                found |= is_of_class(&rest[..end], byte);
                at += end + 4;
            }
            [first, b'-', last, ..] if *last != b']' => {
                found |= (*first..=*last).contains(&byte);
                at += 3;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [first, ..] => {
                found |= *first == byte;
                at += 1;
            }
            [] => return None,
        }
    }
}

fn is_of_class(class: &[u8], byte: u8) -> bool {
    match class {
        b"alpha" => byte.is_ascii_alphabetic(),
        b"digit" => byte.is_ascii_digit(),
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"upper" => byte.is_ascii_uppercase(),
        b"lower" => byte.is_ascii_lowercase(),
        b"space" => byte.is_ascii_whitespace(),
        b"punct" => byte.is_ascii_punctuation(),
        b"xdigit" => byte.is_ascii_hexdigit(),
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
        ] {
            assert!(!Exclude::new(glob.as_bytes()).matches(path.as_bytes()), "{glob} {path}");
        }
        assert!(Exclude::new(b"dir").matches_on_the_way(b"x/dir/file"));
        assert!(!Exclude::new(b"dir").matches(b"x/dir/file"));
        // Stars one behind the other take no time.
        let stars = [b"*a".repeat(50), b"b".to_vec()].concat();
        assert!(!Exclude::new(&stars).matches(&b"a".repeat(2000)));
    }
}
