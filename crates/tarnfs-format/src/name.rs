//! Names: the only place where a path from an archive becomes the names of folders and files.
//!
//! Whatever the archive says, a component that comes out of [`components`] is 1 to [`Limits::name`] bytes long, holds
//! no `/` and no NUL, and is neither `.` nor `..`; and there are at most [`Limits::path_components`] of them.

use std::borrow::Cow;
use std::fmt;

use tarnfs_source::Limits;
use xxhash_rust::xxh3::xxh3_64;

/// The folder of the root in which entries lie whose paths have too many components.
pub const TOO_DEEP: &[u8] = "…".as_bytes();

/// The components of `path`, from the root down. The same rule serves for paths and for the targets of hard links.
///
/// - A NUL ends the path, as it does for every program written in C.
/// - Leading, doubled and trailing slashes and `.` are dropped; `..` goes one up, at the root it stays there.
/// - A component longer than [`Limits::name`] is cut at a character and gets `~` and 8 hexadecimal digits of its hash.
/// - A path of more components than [`Limits::path_components`] becomes [`TOO_DEEP`] and its last component with a hash
///   of the whole path.
///
/// No components at all mean the root itself.
pub fn components<'path>(path: &'path [u8], limits: &Limits) -> Components<'path> {
    if is_ordinary(path, limits) {
        return Components(Inner::Slices(path));
    }
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut count = 0_usize;
    // Only as many as can count are kept: a path of 500 000 components costs no more memory than one of 1024.
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                count = count.saturating_sub(1);
                kept.truncate(count);
            }
            name => {
                if count == kept.len() && count < limits.path_components {
                    kept.push(name);
                }
                count = count.saturating_add(1);
            }
        }
    }
    if count > limits.path_components {
        let is_name = |name: &&[u8]| !matches!(*name, b"" | b"." | b"..");
        let last = path.split(|&byte| byte == b'/').rfind(is_name).unwrap_or_default();
        let hash = xxh3_64(path);
        return Components(Inner::Names(vec![Cow::Borrowed(TOO_DEEP), Cow::Owned(cut(last, hash, limits.name))]));
    }
    Components(Inner::Names(kept.into_iter().map(|name| bounded(name, limits)).collect()))
}

/// True if every component can be served as it stands, but for empty ones and `.`, which iterating drops.
fn is_ordinary(path: &[u8], limits: &Limits) -> bool {
    let (mut components, mut length, mut dots) = (1_usize, 0_usize, 0_usize);
    for &byte in path {
        match byte {
            0 => return false,
            b'/' => {
                if length == 2 && dots == 2 || length > limits.name {
                    return false;
                }
                (components, length, dots) = (components.saturating_add(1), 0, 0);
            }
            _ => {
                length = length.saturating_add(1);
                dots = dots.saturating_add(usize::from(byte == b'.'));
            }
        }
    }
    !(length == 2 && dots == 2 || length > limits.name || components > limits.path_components)
}

fn bounded<'name>(name: &'name [u8], limits: &Limits) -> Cow<'name, [u8]> {
    if name.len() <= limits.name { Cow::Borrowed(name) } else { Cow::Owned(cut(name, xxh3_64(name), limits.name)) }
}

/// The start of `name`, up to a whole character, with `~` and the lower half of `hash`, in at most `most` bytes.
fn cut(name: &[u8], hash: u64, most: usize) -> Vec<u8> {
    let mark = format!("~{:08x}", hash & 0xffff_ffff);
    let mut length = name.len().min(most.saturating_sub(mark.len()));
    // A byte 10xxxxxx continues a UTF-8 character: at most three of them do.
    for _ in 0..3 {
        if name.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
            length = length.saturating_sub(1);
        }
    }
    [name.get(..length).unwrap_or_default(), mark.as_bytes()].concat()
}

/// What stands before the hash in a name that [`components`] may have made; `None` if it has none.
pub fn before_hash(name: &[u8]) -> Option<&[u8]> {
    let (start, mark) = name.split_at_checked(name.len().checked_sub(9)?)?;
    let is_hash = mark.strip_prefix(b"~").is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit));
    is_hash.then_some(start)
}

/// `path` itself, or if it is longer than `most` bytes its start and a hash of the whole, so that two of them differ.
pub fn bounded_path(mut path: Vec<u8>, most: usize) -> Vec<u8> {
    if path.capacity() > most {
        // A header may say that it is far longer than it is.
        path.shrink_to_fit();
    }
    if path.len() <= most { path } else { cut(&path, xxh3_64(&path), most) }
}

/// The components of a path; see [`components`].
#[derive(Debug, Clone)]
pub struct Components<'path>(Inner<'path>);

#[derive(Debug, Clone)]
enum Inner<'path> {
    /// A path whose components need no change; the ordinary case, which allocates nothing.
    Slices(&'path [u8]),
    Names(Vec<Cow<'path, [u8]>>),
}

impl Components<'_> {
    /// The components, from the root down.
    pub fn iter(&self) -> Iter<'_> {
        match &self.0 {
            Inner::Slices(path) => Iter { path, names: &[] },
            Inner::Names(names) => Iter { path: &[], names },
        }
    }

    /// True if they are not those that are stored: of a path with `..` or a NUL in it, or one that is too long.
    pub fn are_changed(&self) -> bool {
        matches!(self.0, Inner::Names(_))
    }

    /// True for the root itself.
    pub fn is_root(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl<'components> IntoIterator for &'components Components<'_> {
    type Item = &'components [u8];
    type IntoIter = Iter<'components>;

    fn into_iter(self) -> Iter<'components> {
        self.iter()
    }
}

/// The components of a path, from the root down.
#[derive(Debug, Clone)]
pub struct Iter<'components> {
    path: &'components [u8],
    names: &'components [Cow<'components, [u8]>],
}

impl<'components> Iterator for Iter<'components> {
    type Item = &'components [u8];

    fn next(&mut self) -> Option<&'components [u8]> {
        while !self.path.is_empty() {
            let end = self.path.iter().position(|&byte| byte == b'/').unwrap_or(self.path.len());
            let (component, rest) = self.path.split_at_checked(end)?;
            self.path = rest.get(1..).unwrap_or_default();
            if !matches!(component, b"" | b".") {
                return Some(component);
            }
        }
        let (first, rest) = self.names.split_first()?;
        self.names = rest;
        Some(first)
    }
}

/// Shows bytes from an archive where a terminal may interpret them: control characters, characters that change the
/// direction of text, backslashes and what is not UTF-8 come out as `\n`, `\x1b`, `\u{202e}`, `\\`, `\xff`.
pub fn escape(bytes: &[u8]) -> Escaped<'_> {
    Escaped(bytes)
}

/// As much of `bytes` as a message needs, in the same way: what an archive says may have megabytes, and each byte may
/// become four.
pub fn excerpt(bytes: &[u8]) -> Escaped<'_> {
    const MOST: usize = 200;
    escape(bytes.get(..MOST).unwrap_or(bytes))
}

/// True of characters that change what a terminal shows of others: control characters, and those that turn the
/// direction of writing.
pub fn steers_a_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// See [`escape`].
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'bytes>(&'bytes [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        // Nearly all names.
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
        if let Ok(name) = std::str::from_utf8(self.0)
            && self.0.iter().all(is_plain)
        {
            return formatter.write_str(name);
        }
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' | '\n' | '\t' | '\r' => write!(formatter, "{}", character.escape_default())?,
                    '\0'..='\x1f' | '\x7f' => write!(formatter, "\\x{:02x}", u32::from(character))?,
                    _ if steers_a_terminal(character) => write!(formatter, "{}", character.escape_unicode())?,
                    _ => formatter.write_char(character)?,
                }
            }
            for byte in chunk.invalid() {
                write!(formatter, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(path: &[u8]) -> Vec<String> {
        components(path, &Limits::default()).iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn names_with_a_hash_are_known() {
        assert_eq!(before_hash(&cut(b"name", 0x1234_5678, 255)), Some(&b"name"[..]));
        assert_eq!(before_hash(b"~12345678"), Some(&b""[..]));
        for name in ["name~1234567", "name~1234567g", "name-12345678", "12345678", ""] {
            assert_eq!(before_hash(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_path_takes_no_more_memory_than_it_may() {
        for length in [1, 100, 101, 100_000] {
            let mut path = vec![b'a'; 1 << 20];
            path.truncate(length);
            let path = bounded_path(path, 100);
            assert!(path.len() <= 100 && path.capacity() < 1000, "{length}: {}", path.capacity());
        }
    }

    #[test]
    fn paths_stay_inside_the_root() {
        for (path, expected) in [
            ("a/b", &["a", "b"][..]),
            ("./a//b/", &["a", "b"]),
            ("/a/./b", &["a", "b"]),
            ("../../etc/passwd", &["etc", "passwd"]),
            ("a/../../b", &["b"]),
            ("a/b/..", &["a"]),
            ("..", &[]),
            ("/", &[]),
            ("", &[]),
            (".", &[]),
            ("a\0b/c", &["a"]),
            ("a/\0", &["a"]),
            ("...", &["..."]),
            ("..a/.b.", &["..a", ".b."]),
        ] {
            assert_eq!(split(path.as_bytes()), expected, "{path:?}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_character_and_stay_different() {
        let long = |end: &str| format!("a/{}{end}/c", "ä".repeat(140));
        let (one, other) = (split(long("x").as_bytes()), split(long("y").as_bytes()));
        assert_eq!((&one[0], &one[2]), (&"a".to_owned(), &"c".to_owned()));
        assert_eq!(one[1].len(), 255);
        assert!(one[1].starts_with(&"ä".repeat(123)) && one[1].get(246..247) == Some("~"), "{}", one[1]);
        assert_ne!(one[1], other[1]);
        assert_eq!(one, split(long("x").as_bytes()));
    }

    #[test]
    fn deep_paths_are_gathered_in_one_folder() {
        let deep = "d/".repeat(500_000) + "file";
        let names = split(deep.as_bytes());
        assert_eq!((names.len(), names[0].as_str()), (2, "…"));
        assert!(names[1].starts_with("file~"));
        assert_eq!(split(("d/".repeat(1023) + "file").as_bytes()).len(), 1024);
        assert_eq!(split(("d/".repeat(1024) + "file").as_bytes()).len(), 2);
        // Going up again takes a path back to where it fits.
        assert_eq!(split(("d/".repeat(1024) + &"../".repeat(1023) + "e/f").as_bytes()), ["d", "e", "f"]);
    }

    #[test]
    fn escaped_names_have_no_control_characters() {
        let shown = escape(b"a\x1b[31m\n\\\xff\xc3\xa4\xe2\x80\xaeb\x7f").to_string();
        assert_eq!(shown, "a\\x1b[31m\\n\\\\\\xffä\\u{202e}b\\x7f");
    }

    proptest! {
        #[test]
        fn no_path_breaks_the_promise(path in "(\\.\\.|\\.|/|a|\0|[b-d]{1,300}|ä){0,40}", raw: Vec<u8>) {
            let limits = Limits { path_components: 10, ..Limits::default() };
            for path in [path.as_bytes(), &raw] {
                let names = components(path, &limits);
                prop_assert!(names.iter().count() <= 10);
                for name in &names {
                    prop_assert!((1..=255).contains(&name.len()));
                    prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                    prop_assert!(name != b"." && name != b"..");
                }
            }
        }
    }
}
